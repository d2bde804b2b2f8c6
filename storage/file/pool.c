// SPDX-License-Identifier: Apache-2.0
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "storage/file/pool_private.h"

#define VEC_LARGE 4096u /* elements */

struct pool_old {
    struct pool_old *next;
    void *block;
    size_t n;
};

void pool_init(struct pool *p)
{
    *p = (struct pool){};
    mutex_init(&p->mu);
    arena_init(&p->fixed, SIZE_MAX);
}

static void free_old(struct pool *p, struct pool_old *o)
{
    while (o) {
        struct pool_old *next = o->next;

        pool_free(p, o->block, o->n);
        free(o);
        o = next;
    }
}

void pool_deinit(struct pool *p)
{
    free_old(p, p->old);
    p->old = NULL;
    arena_deinit(&p->fixed);
    mutex_deinit(&p->mu);
    pool_count_in(p, NULL);
}

void pool_count_in(struct pool *p, _Atomic uint64_t *sum)
{
    _Atomic uint64_t *old = atomic_exchange(&p->sum, sum);
    uint64_t used = atomic_load(&p->used);

    if (old)
        atomic_fetch_sub_explicit(old, used, memory_order_relaxed);
    if (sum)
        atomic_fetch_add_explicit(sum, used, memory_order_relaxed);
}

static void count(struct pool *p, size_t n)
{
    _Atomic uint64_t *sum = atomic_load_explicit(&p->sum, memory_order_relaxed);

    atomic_fetch_add_explicit(&p->used, n, memory_order_relaxed);
    if (sum)
        atomic_fetch_add_explicit(sum, n, memory_order_relaxed);
}

void *pool_fixed(struct pool *p, size_t n)
{
    void *m = arena_alloc(&p->fixed, n);

    if (m)
        count(p, (n + 15) & ~(size_t)15);
    return m;
}

void *pool_block(struct pool *p, size_t n)
{
    void *m = mem_fail_now() ? NULL : calloc(1, n ? n : 1);

    if (m)
        count(p, n);
    return m;
}

void pool_free(struct pool *p, void *block, size_t n)
{
    if (!block)
        return;
    free(block);
    count(p, 0 - n);
}

void pool_retire(struct pool *p, void *block, size_t n)
{
    struct pool_old *o;
    bool idle;

    if (!block)
        return;
    mutex_lock(&p->mu);
    idle = p->readers == 0;
    if (!idle) {
        o = xmalloc(sizeof *o);
        *o = (struct pool_old){.next = p->old, .block = block, .n = n};
        p->old = o;
    }
    mutex_unlock(&p->mu);
    if (idle)
        pool_free(p, block, n);
}

void pool_enter(struct pool *p)
{
    mutex_lock(&p->mu);
    p->readers++;
    mutex_unlock(&p->mu);
}

void pool_leave(struct pool *p)
{
    struct pool_old *old = NULL;

    mutex_lock(&p->mu);
    assert(p->readers > 0);
    if (--p->readers == 0) {
        old = p->old;
        p->old = NULL;
    }
    mutex_unlock(&p->mu);
    free_old(p, old);
}

void vec_init(struct vec *v, size_t size)
{
    *v = (struct vec){.size = (uint32_t)size};
}

void vec_deinit(struct vec *v, struct pool *p)
{
    pool_free(p, atomic_load_explicit(&v->p, memory_order_relaxed), (size_t)v->room * v->size);
    *v = (struct vec){.size = v->size};
}

static bool vec_grow(struct vec *v, struct pool *p, uint32_t room)
{
    void *old = atomic_load_explicit(&v->p, memory_order_relaxed);
    void *new = pool_block(p, (size_t)room * v->size);

    if (!new)
        return false;
    if (old)
        memcpy(new, old, (size_t)v->n * v->size);
    atomic_store_explicit(&v->p, new, memory_order_release);
    pool_retire(p, old, (size_t)v->room * v->size);
    v->room = room;
    return true;
}

void vec_reserve(struct vec *v, struct pool *p, uint32_t n)
{
    if (n > v->room)
        (void)vec_grow(v, p, n);
}

void *vec_push(struct vec *v, struct pool *p)
{
    if (v->n == v->room) {
        /* twice as much, a large one an eighth more: what is not used is memory too */
        uint32_t room = v->room < VEC_LARGE ? 2 * v->room : v->room + v->room / 8;

        if (v->room == 0)
            room = 8;
        if (v->room > UINT32_MAX / 2 || !vec_grow(v, p, room))
            return NULL;
    }
    return vec_at(v, v->n++);
}

void paged_init(struct paged *x, size_t size)
{
    *x = (struct paged){.size = (uint32_t)size};
    vec_init(&x->page, sizeof(char *));
}

void paged_deinit(struct paged *x, struct pool *p)
{
    for (uint32_t i = 0; i < x->page.n; i++)
        pool_free(p, *VEC(&x->page, char *, i), (size_t)x->size << PAGED_BITS);
    vec_deinit(&x->page, p);
    x->n = 0;
}

/* A page that was begun for an element that did not come stays. */
void *paged_push(struct paged *x, struct pool *p)
{
    if (x->n == UINT32_MAX)
        return NULL;
    if (x->n >> PAGED_BITS == x->page.n) {
        char *page = pool_block(p, (size_t)x->size << PAGED_BITS), **slot;

        slot = page ? vec_push(&x->page, p) : NULL;
        if (!slot) {
            pool_free(p, page, (size_t)x->size << PAGED_BITS);
            return NULL;
        }
        *slot = page;
    }
    return paged_at(x, x->n++);
}

bool table_init(struct table *t, struct pool *p, size_t size)
{
    vec_init(&t->v, size);
    hindex_init(&t->by_hash);
    return vec_push(&t->v, p) != NULL;
}

void table_deinit(struct table *t, struct pool *p)
{
    vec_deinit(&t->v, p);
    hindex_deinit(&t->by_hash);
}

uint32_t table_find(const struct table *t, uint64_t hash, const void *key, table_eq_fn *eq)
{
    const uint32_t h = (uint32_t)hash_mix(hash);

    for (uint32_t at = h, i; hindex_next(&t->by_hash, h, &at, &i);) {
        if (eq(vec_at(&t->v, i), key))
            return i;
    }
    return 0;
}

uint32_t table_add(struct table *t, struct pool *p, uint64_t hash)
{
    uint32_t i = t->v.n;

    if (!vec_push(&t->v, p))
        return 0;
    if (!pool_hindex_add(p, &t->by_hash, (uint32_t)hash_mix(hash), i)) {
        t->v.n--;
        return 0;
    }
    return i;
}

bool pool_map_put(struct pool *p, struct map *m, uint64_t key, uint64_t value)
{
    size_t before = map_bytes(m);

    if (map_put(m, key, value) == MAP_FULL)
        return false;
    count(p, map_bytes(m) - before);
    return true;
}

bool pool_hindex_add(struct pool *p, struct hindex *x, uint32_t hash, uint32_t number)
{
    size_t before = hindex_bytes(x);

    if (!hindex_add(x, hash, number))
        return false;
    count(p, hindex_bytes(x) - before);
    return true;
}

bool pool_dindex_add(struct pool *p, struct dindex *x, uint32_t hash, uint32_t number,
                     dindex_hash_fn *hash_of, const void *ctx)
{
    size_t before = dindex_bytes(x);

    if (!dindex_add(x, hash, number, hash_of, ctx))
        return false;
    count(p, dindex_bytes(x) - before);
    return true;
}
