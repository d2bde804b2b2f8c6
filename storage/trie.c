// SPDX-License-Identifier: Apache-2.0
#include <stdlib.h>

#include "base/hash.h"
#include "storage/dict_private.h"

#define NONE UINT32_MAX

static bool push_u32(struct vec *v, struct pool *p, uint32_t x)
{
    uint32_t *e = vec_push(v, p);

    if (e)
        *e = x;
    return e != NULL;
}

/* Most functions have no mark: only those that do are listed. */
static bool push_marked(struct dict *d, struct dict_trie *t, uint32_t fnode, uint32_t func)
{
    uint8_t mark = func ? TABLE(&d->func, struct dict_func, func)->mark : 0;
    struct store_marked *e;

    if (!mark)
        return true;
    e = vec_push(&t->marked, d->pool);
    if (e)
        *e = (struct store_marked){fnode, mark};
    return e != NULL;
}

static bool is_again(const struct dict_trie *t, uint32_t fparent, uint32_t func)
{
    for (uint32_t i = fparent; i != 0; i = *VEC(&t->fparent, uint32_t, i)) {
        if (*VEC(&t->func, uint32_t, i) == func)
            return true;
    }
    return false;
}

static uint32_t hash_of(uint32_t fparent, uint32_t func)
{
    return (uint32_t)hash_mix((uint64_t)fparent << 32 | func);
}

/* A mix of 32 bits that no two numbers share (the finish of MurmurHash3), so what is found by it is
 * found. */
static uint32_t hash_g(uint32_t g)
{
    g ^= g >> 16;
    g *= 0x85ebca6bu;
    g ^= g >> 13;
    g *= 0xc2b2ae35u;
    return g ^ g >> 16;
}

static bool find_local(const struct dict *d, const struct dict_trie *t, uint32_t g, uint32_t *ret)
{
    const struct dict_home *home = dict_home(d, g);
    uint32_t at = hash_g(g);

    *ret = 0;
    if (g == 0)
        return true;
    if (home->trie == t->at + 1) {
        *ret = home->node;
        return true;
    }
    return hindex_next(&t->local, hash_g(g), &at, ret);
}

static bool put_local(struct dict *d, struct dict_trie *t, uint32_t g, uint32_t node)
{
    struct dict_home *home = dict_home(d, g);

    if (home->trie == 0 && t->at < UINT16_MAX) {
        home->trie = (uint16_t)(t->at + 1);
        home->node = node;
        return true;
    }
    return pool_hindex_add(d->pool, &t->local, hash_g(g), node);
}

static uint32_t hash_of_function_node(const void *ctx, uint32_t f)
{
    const struct dict_trie *t = ctx;

    return hash_of(*VEC(&t->fparent, uint32_t, f), *VEC(&t->func, uint32_t, f));
}

/* The function node below fparent. Its bit in a word that readers copy meanwhile: atomic. */
static uint32_t function_node(struct dict *d, struct dict_trie *t, uint32_t fparent, uint32_t func)
{
    const uint32_t h = hash_of(fparent, func), marked = t->marked.n;
    uint32_t f = t->func.n;

    for (uint32_t at = dindex_place(&t->fchild, h), found;
         dindex_next(&t->fchild, h, &at, &found);) {
        if (*VEC(&t->fparent, uint32_t, found) == fparent &&
            *VEC(&t->func, uint32_t, found) == func)
            return found;
    }
    if (f / 64 >= t->again.n && !vec_push(&t->again, d->pool))
        return NONE;
    if (!push_u32(&t->fparent, d->pool, fparent))
        return NONE;
    if (!push_u32(&t->func, d->pool, func)) {
        t->fparent.n--;
        return NONE;
    }
    if (!push_marked(d, t, f, func) ||
        !pool_dindex_add(d->pool, &t->fchild, h, f, hash_of_function_node, t)) {
        t->marked.n = marked;
        t->fparent.n--;
        t->func.n--;
        return NONE;
    }
    if (is_again(t, fparent, func))
        atomic_fetch_or_explicit(VEC(&t->again, _Atomic uint64_t, f / 64), UINT64_C(1) << f % 64,
                                 memory_order_relaxed);
    return f;
}

static uint32_t add_node(struct dict *d, struct dict_trie *t, uint32_t parent, uint32_t frame,
                         uint32_t g)
{
    uint32_t func = TABLE(&d->frame, struct dict_frame, frame)->func;
    uint32_t f = function_node(d, t, *VEC(&t->fnode, uint32_t, parent), func), node = t->parent.n;

    if (f == NONE || !push_u32(&t->parent, d->pool, parent))
        return NONE;
    if (!push_u32(&t->frame, d->pool, frame)) {
        t->parent.n--;
        return NONE;
    }
    if (!push_u32(&t->fnode, d->pool, f)) {
        t->parent.n--;
        t->frame.n--;
        return NONE;
    }
    if (g && !put_local(d, t, g, node)) {
        t->parent.n--;
        t->frame.n--;
        t->fnode.n--;
        return NONE;
    }
    return node;
}

bool dict_trie_load(struct dict *d, struct dict_trie *t, uint32_t parent, uint32_t frame,
                    uint32_t g)
{
    return add_node(d, t, parent, frame, g) != NONE;
}

struct dict_trie *dict_trie_new(struct dict *d, struct store_trie_id id)
{
    struct dict_trie *t = pool_block(d->pool, sizeof *t);

    if (!t)
        return NULL;
    t->id = id;
    vec_init(&t->parent, 4);
    vec_init(&t->frame, 4);
    vec_init(&t->fnode, 4);
    vec_init(&t->fparent, 4);
    vec_init(&t->func, 4);
    vec_init(&t->again, 8);
    vec_init(&t->marked, sizeof(struct store_marked));
    hindex_init(&t->local);
    dindex_init(&t->fchild);
    if (push_u32(&t->parent, d->pool, 0) && push_u32(&t->frame, d->pool, 0) &&
        push_u32(&t->fnode, d->pool, 0) && push_u32(&t->fparent, d->pool, 0) &&
        push_u32(&t->func, d->pool, 0) && vec_push(&t->again, d->pool)) {
        dict_trie_publish(t);
        return t;
    }
    dict_trie_free(d, t);
    return NULL;
}

void dict_trie_free(struct dict *d, struct dict_trie *t)
{
    if (!t)
        return;
    vec_deinit(&t->parent, d->pool);
    vec_deinit(&t->frame, d->pool);
    vec_deinit(&t->fnode, d->pool);
    vec_deinit(&t->fparent, d->pool);
    vec_deinit(&t->func, d->pool);
    vec_deinit(&t->again, d->pool);
    vec_deinit(&t->marked, d->pool);
    hindex_deinit(&t->local);
    dindex_deinit(&t->fchild);
    pool_free(d->pool, t, sizeof *t);
}

uint32_t dict_trie_node(struct dict *d, struct dict_trie *t, uint32_t g, bool *ret_folded)
{
    uint32_t path[DICT_DEPTH + 1], n = 0, node;

    /* up to the first ancestor that is there (the root always is), then down again */
    while (!find_local(d, t, g, &node)) {
        path[n++] = g;
        g = dict_node(d, g)->parent;
    }
    while (n > 0) {
        if (t->parent.n >= d->max_nodes) {
            *ret_folded = true;
            return node;
        }
        g = path[--n];
        node = add_node(d, t, node, dict_node(d, g)->frame, g);
        if (node == NONE)
            return NONE;
    }
    return node;
}

void dict_trie_publish(struct dict_trie *t)
{
    atomic_store_explicit(&t->n_marked, t->marked.n, memory_order_release);
    atomic_store_explicit(&t->n_fnode, t->func.n, memory_order_release);
    atomic_store_explicit(&t->n, t->parent.n, memory_order_release);
}
