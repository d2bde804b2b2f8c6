// SPDX-License-Identifier: Apache-2.0
#include "base/arena.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#if defined(__SANITIZE_ADDRESS__)
#define ARENA_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ARENA_ASAN 1
#endif
#endif

#ifdef ARENA_ASAN
#include <sanitizer/asan_interface.h>
#define ARENA_HIDE(p, n) ASAN_POISON_MEMORY_REGION((p), (n))
#define ARENA_SHOW(p, n) ASAN_UNPOISON_MEMORY_REGION((p), (n))
#else
#define ARENA_HIDE(p, n) ((void)(p), (void)(n))
#define ARENA_SHOW(p, n) ((void)(p), (void)(n))
#endif

#define ALIGN     16
#define CHUNK_MIN ((size_t)4096)
#define CHUNK_MAX ((size_t)1 << 20)

struct arena_chunk {
    struct arena_chunk *next;
    size_t size, used;
    size_t dirty; /* bytes that an earlier life wrote; beyond them calloc's zeros still stand */
    _Alignas(ALIGN) unsigned char bytes[];
};

/* ---- failure injection --------------------------------------------------------------------- */

static _Atomic uint64_t fail_in;

void mem_fail_nth(uint64_t n)
{
    atomic_store(&fail_in, n);
}

bool mem_fail_now(void)
{
    uint64_t n = atomic_load_explicit(&fail_in, memory_order_relaxed);

    while (n > 0) {
        if (atomic_compare_exchange_weak(&fail_in, &n, n - 1))
            return n == 1;
    }
    return false;
}

/* ---- the arena ----------------------------------------------------------------------------- */

void arena_init(struct arena *a, size_t cap)
{
    *a = (struct arena){.cap = cap};
}

static void chunks_free(struct arena_chunk *c)
{
    while (c) {
        struct arena_chunk *next = c->next;

        ARENA_SHOW(c->bytes, c->size);
        free(c);
        c = next;
    }
}

void arena_deinit(struct arena *a)
{
    chunks_free(a->chunk);
    *a = (struct arena){.cap = a->cap};
}

void arena_reset(struct arena *a)
{
    struct arena_chunk *c = a->chunk;

    a->used = 0;
    if (!c)
        return;
    chunks_free(c->next);
    c->next = NULL;
    if (c->dirty < c->used)
        c->dirty = c->used;
    c->used = 0;
    ARENA_HIDE(c->bytes, c->size);
}

/* A chunk with room for n; what is large gets its own behind the newest, whose rest stays in use.
 */
static struct arena_chunk *chunk_add(struct arena *a, size_t n)
{
    struct arena_chunk *top = a->chunk;
    size_t size = top ? top->size * 2 : CHUNK_MIN;
    struct arena_chunk *c;

    if (size > CHUNK_MAX)
        size = CHUNK_MAX;
    if (n > size)
        size = n;
    /* of a large block the system's own zeros are had for nothing; of a chunk only what is handed
     * out is cleared */
    c = n > CHUNK_MAX / 4 ? calloc(1, sizeof *c + size) : malloc(sizeof *c + size);
    if (!c)
        return NULL;
    *c = (struct arena_chunk){.size = size, .dirty = n > CHUNK_MAX / 4 ? 0 : size};
    if (top && n > CHUNK_MAX / 4) {
        c->next = top->next;
        top->next = c;
    } else {
        c->next = top;
        a->chunk = c;
    }
    ARENA_HIDE(c->bytes, c->size);
    return c;
}

void *arena_alloc(struct arena *a, size_t n)
{
    struct arena_chunk *c = a->chunk;
    size_t want;
    unsigned char *p;

    assert(a->used <= a->cap);
    if (n > SIZE_MAX - sizeof *c - ALIGN)
        return NULL;
    want = n ? (n + ALIGN - 1) & ~(size_t)(ALIGN - 1) : ALIGN;
    if (want > a->cap - a->used || mem_fail_now())
        return NULL;
    if (!c || c->size - c->used < want) {
        c = chunk_add(a, want);
        if (!c)
            return NULL;
    }
    p = c->bytes + c->used;
    ARENA_SHOW(p, n);
    if (c->used < c->dirty) {
        size_t left = c->dirty - c->used;

        memset(p, 0, left < n ? left : n);
    }
    c->used += want;
    a->used += want;
    return p;
}

void *arena_calloc(struct arena *a, size_t n, size_t size)
{
    size_t bytes;

    if (__builtin_mul_overflow(n, size, &bytes))
        return NULL;
    return arena_alloc(a, bytes);
}

struct str arena_str(struct arena *a, struct str s)
{
    char *p = s.n < SIZE_MAX ? arena_alloc(a, s.n + 1) : NULL;

    if (!p)
        return (struct str){NULL, 0};
    if (s.n > 0)
        memcpy(p, s.p, s.n);
    return (struct str){p, s.n};
}

/* ---- allocation that never fails ----------------------------------------------------------- */

static _Noreturn void out_of_memory(size_t n)
{
    (void)fprintf(stderr, "level=error event=out_of_memory bytes=%zu\n", n);
    abort();
}

void *xmalloc(size_t n)
{
    void *p = malloc(n ? n : 1);

    if (!p)
        out_of_memory(n);
    return p;
}

void *xcalloc(size_t n, size_t size)
{
    void *p = calloc(n ? n : 1, size ? size : 1);

    if (!p)
        out_of_memory(n);
    return p;
}

void *xrealloc(void *p, size_t n)
{
    void *q = realloc(p, n ? n : 1);

    if (!q)
        out_of_memory(n);
    return q;
}

char *xstrdup(const char *s)
{
    size_t n = strlen(s) + 1;

    return memcpy(xmalloc(n), s, n);
}
