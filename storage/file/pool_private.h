// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/dindex.h"
#include "base/hindex.h"
#include "base/map.h"
#include "base/thread.h"

/*
 * Memory that one thread writes and many read without a lock.
 *
 * A vec is an array that grows by copying: readers that loaded the old copy go on reading it, since
 * an element below the length they know never changes. The old copy is freed as soon as no reader
 * is inside (pool_enter, pool_leave). Lengths are published by whoever owns the vec, behind the
 * elements; the pointer may be younger than the length, never older.
 *
 * Sizes in bytes. Writer: one thread at a time for each vec or index: that of the head, or who
 * holds the lock of it. Failure: NULL, nothing changed.
 */
struct pool_old;

struct pool {
    struct mutex mu;
    uint32_t readers;                /* under mu */
    struct pool_old *old;            /* under mu: copies that a reader may still hold */
    _Atomic uint64_t used;           /* bytes of everything below */
    _Atomic(_Atomic uint64_t *) sum; /* the same for several pools; NULL: none */
    struct arena fixed;              /* writer only: what lives as long as the store */
};

void pool_init(struct pool *p);
void pool_deinit(struct pool *p);
/* Count into *sum too, what is there already included; NULL: no more, what is there is taken out
 * again. Not while the pool is written. */
void pool_count_in(struct pool *p, _Atomic uint64_t *sum);
/* Zeroed memory for the life of the store. */
void *pool_fixed(struct pool *p, size_t n);
/* A zeroed block of its own, for pool_free(). */
void *pool_block(struct pool *p, size_t n);
void pool_free(struct pool *p, void *block, size_t n);
/* A reader comes: what it can see from now on is not freed. */
void pool_enter(struct pool *p);
/* A reader goes: the last one frees what was given up. */
void pool_leave(struct pool *p);
/* Give up a block that readers may hold. */
void pool_retire(struct pool *p, void *block, size_t n);

struct vec {
    _Atomic(void *) p;
    uint32_t n, room, size; /* n is the writer's; readers know theirs */
};

void vec_init(struct vec *v, size_t size);
void vec_deinit(struct vec *v, struct pool *p);
/* Room for n elements in all, where there is memory: what is known to come is not copied. */
void vec_reserve(struct vec *v, struct pool *p, uint32_t n);
/* One more element, zeroed. */
void *vec_push(struct vec *v, struct pool *p);

static inline void *vec_at(const struct vec *v, uint32_t i)
{
    return (char *)atomic_load_explicit(&v->p, memory_order_acquire) + (size_t)i * v->size;
}

/* Element i as a T. */
#define VEC(v, T, i) ((T *)vec_at((v), (i)))

/*
 * An array in pages: nothing is copied when it grows, and no room is kept but for the rest of the
 * last page. For what is large and never handed out as one array. Readers as those of a vec.
 */
#define PAGED_BITS 10u /* entries of a page */

struct paged {
    struct vec page; /* void * */
    uint32_t n, size;
};

void paged_init(struct paged *x, size_t size);
void paged_deinit(struct paged *x, struct pool *p);
/* One more element, zeroed. */
void *paged_push(struct paged *x, struct pool *p);

static inline void *paged_at(const struct paged *x, uint32_t i)
{
    return *VEC(&x->page, char *, i >> PAGED_BITS) +
           (size_t)(i & ((UINT32_C(1) << PAGED_BITS) - 1)) * x->size;
}

/*
 * Entries that are equal are one entry: a vec, and an index of its elements by hash. Entry 0 means
 * "none" and is never found. Readers know the vec; find and add belong to the writer.
 */
typedef bool table_eq_fn(const void *entry, const void *key);

struct table {
    struct vec v;
    struct hindex by_hash;
};

[[nodiscard]] bool table_init(struct table *t, struct pool *p, size_t size);
void table_deinit(struct table *t, struct pool *p);
/* The entry equal to key, or 0. */
uint32_t table_find(const struct table *t, uint64_t hash, const void *key, table_eq_fn *eq);
/* A new entry, zeroed; 0 when memory is short. */
uint32_t table_add(struct table *t, struct pool *p, uint64_t hash);

#define TABLE(t, T, i) VEC(&(t)->v, T, (i))

/* map_put, hindex_add, dindex_add, counted in the pool. */
[[nodiscard]] bool pool_map_put(struct pool *p, struct map *m, uint64_t key, uint64_t value);
[[nodiscard]] bool pool_hindex_add(struct pool *p, struct hindex *x, uint32_t hash,
                                   uint32_t number);
[[nodiscard]] bool pool_dindex_add(struct pool *p, struct dindex *x, uint32_t hash, uint32_t number,
                                   dindex_hash_fn *hash_of, const void *ctx);
