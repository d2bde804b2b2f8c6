// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/str.h"

/*
 * A bump allocator with a hard cap: everything that one request or one batch needs lies in one
 * arena, the cap is the limit of the peer, and one call frees it all. Memory is zeroed and aligned
 * for any type.
 *
 * Ownership: the caller's struct, the arena's chunks. Thread: owner only.
 */
struct arena_chunk;

struct arena {
    struct arena_chunk *chunk; /* newest first */
    size_t used, cap;          /* bytes handed out; never beyond cap */
};

/* Starts empty; allocates nothing yet. cap in bytes. */
void arena_init(struct arena *a, size_t cap);

/* Frees all of it. A zeroed or already freed arena is a no-op. */
void arena_deinit(struct arena *a);

/* Forget all, keep the newest chunk for reuse. */
void arena_reset(struct arena *a);

/* n bytes, zeroed, aligned to 16; NULL at the cap or when memory is short. n may be 0. */
void *arena_alloc(struct arena *a, size_t n);

/* n * size, NULL also if that overflows. */
void *arena_calloc(struct arena *a, size_t n, size_t size);

/* A copy that ends with a NUL (not counted in n); {NULL, 0} if it does not fit. */
struct str arena_str(struct arena *a, struct str s);

#define arena_new(a, T)      ((T *)arena_alloc((a), sizeof(T)))
#define arena_array(a, T, n) ((T *)arena_calloc((a), (n), sizeof(T)))

/* Failure injection for tests: the n-th allocation from now on fails (1 = the next); 0 switches it
 * off. Process wide, counts arena, buf and map growth alike. */
void mem_fail_nth(uint64_t n);

/* Used by base/ containers: true if this allocation is the one that must fail. */
bool mem_fail_now(void);

/* For fixed-size bookkeeping in server, agent and cli: never NULL, aborts when memory is short. */
void *xmalloc(size_t n);
void *xcalloc(size_t n, size_t size);
void *xrealloc(void *p, size_t n);
char *xstrdup(const char *s);
