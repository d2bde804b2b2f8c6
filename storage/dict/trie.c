// SPDX-License-Identifier: Apache-2.0
#include <stdlib.h>

#include "storage/dict/dict_private.h"

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

bool dict_trie_find(const struct dict *d, const struct dict_trie *t, uint32_t g, uint32_t *ret)
{
    uint32_t at = hash_g(g);

    *ret = 0;
    return g == 0 || dict_home(d, g, ret) == t || hindex_next(&t->local, hash_g(g), &at, ret);
}

static uint32_t own_g(const struct dict_trie *t, uint32_t node)
{
    return *VEC(&t->page, uint32_t, node >> DICT_PAGE_BITS) << DICT_PAGE_BITS |
           (node & (DICT_PAGE - 1));
}

static bool is_copy(const struct dict_trie *t, uint32_t node)
{
    return *VEC(&t->copy, uint64_t, node / 64) >> node % 64 & 1;
}

uint32_t dict_trie_g(const struct dict *d, const struct dict_trie *t, uint32_t node)
{
    if (node == 0)
        return 0;
    return is_copy(t, node) ? (uint32_t)*dict_hash(d, own_g(t, node)) : own_g(t, node);
}

/* The next page of g for t, with a bit for each. */
bool dict_trie_page(struct dict *d, struct dict_trie *t)
{
    const uint32_t first = t->page.n * DICT_PAGE;
    struct dict_page *p = vec_push(&d->page, d->pool);

    if (!p)
        return false;
    *p = (struct dict_page){.trie = t, .first = first};
    for (uint32_t i = 0; i < DICT_PAGE; i++) {
        if (!paged_push(&d->hash, d->pool))
            return false;
    }
    return push_u32(&t->page, d->pool, d->page.n - 1) &&
           (first / 64 < t->copy.n || vec_push(&t->copy, d->pool));
}

static uint32_t add_node(struct dict *d, struct dict_trie *t, uint32_t parent, uint32_t frame)
{
    uint32_t node = t->parent.n;

    if (!push_u32(&t->parent, d->pool, parent))
        return NONE;
    if (push_u32(&t->frame, d->pool, frame))
        return node;
    t->parent.n--;
    return NONE;
}

uint32_t dict_trie_add(struct dict *d, struct dict_trie *t, uint32_t parent, uint32_t frame,
                       uint64_t hash)
{
    uint32_t node;

    if (t->parent.n >> DICT_PAGE_BITS >= t->page.n && !dict_trie_page(d, t))
        return NONE;
    node = add_node(d, t, parent, frame);
    if (node != NONE)
        *dict_hash(d, own_g(t, node)) = hash;
    return node;
}

uint32_t dict_trie_copy(struct dict *d, struct dict_trie *t, uint32_t parent, uint32_t frame,
                        uint32_t g)
{
    uint32_t node = dict_trie_add(d, t, parent, frame, g);

    if (node == NONE || !pool_hindex_add(d->pool, &t->local, hash_g(g), node))
        return NONE;
    *VEC(&t->copy, uint64_t, node / 64) |= UINT64_C(1) << node % 64;
    return node;
}

bool dict_trie_load_bare(struct dict *d, struct dict_trie *t, uint32_t parent, uint32_t frame)
{
    return add_node(d, t, parent, frame) != NONE;
}

struct dict_trie *dict_trie_new(struct dict *d, struct store_trie_id id)
{
    struct dict_trie *t = pool_block(d->pool, sizeof *t);

    if (!t)
        return NULL;
    t->id = id;
    vec_init(&t->parent, 4);
    vec_init(&t->frame, 4);
    vec_init(&t->page, 4);
    vec_init(&t->copy, 8);
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
    vec_deinit(&t->page, d->pool);
    vec_deinit(&t->copy, d->pool);
    hindex_deinit(&t->local);
    dict_functions_deinit(&t->fn, d->pool);
    pool_free(d->pool, t, sizeof *t);
}

uint32_t dict_trie_node(struct dict *d, struct dict_trie *t, uint32_t g, bool *ret_folded)
{
    uint32_t path[DICT_DEPTH + 1], n = 0, node;

    /* up to the first ancestor that is there (the root always is), then down again */
    while (!dict_trie_find(d, t, g, &node)) {
        const struct dict_trie *home = dict_home(d, g, &node);

        path[n++] = g;
        g = dict_trie_g(d, home, *VEC(&home->parent, uint32_t, node));
    }
    while (n > 0) {
        const struct dict_trie *home;
        uint32_t at;

        if (t != d->none && t->parent.n >= d->max_nodes) {
            *ret_folded = true;
            return node;
        }
        g = path[--n];
        home = dict_home(d, g, &at);
        node = dict_trie_copy(d, t, node, *VEC(&home->frame, uint32_t, at), g);
        if (node == NONE)
            return NONE;
    }
    return node;
}

void dict_trie_publish(struct dict_trie *t)
{
    atomic_store_explicit(&t->n, t->parent.n, memory_order_release);
}
