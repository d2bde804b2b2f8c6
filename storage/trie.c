// SPDX-License-Identifier: Apache-2.0
#include <stdlib.h>

#include "storage/dict_private.h"

#define NONE UINT32_MAX

static bool push_u32(struct vec *v, struct pool *p, uint32_t x)
{
    uint32_t *e = vec_push(v, p);

    if (e)
        *e = x;
    return e != NULL;
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

static uint32_t add_node(struct dict *d, struct dict_trie *t, uint32_t parent, uint32_t frame,
                         uint32_t g)
{
    uint32_t node = t->parent.n;

    if (!push_u32(&t->parent, d->pool, parent))
        return NONE;
    if (!push_u32(&t->frame, d->pool, frame)) {
        t->parent.n--;
        return NONE;
    }
    if (g && !put_local(d, t, g, node)) {
        t->parent.n--;
        t->frame.n--;
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
    hindex_init(&t->local);
    dict_functions_init(&t->fn);
    if (push_u32(&t->parent, d->pool, 0) && push_u32(&t->frame, d->pool, 0)) {
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
    hindex_deinit(&t->local);
    dict_functions_deinit(&t->fn, d->pool);
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
    atomic_store_explicit(&t->n, t->parent.n, memory_order_release);
}
