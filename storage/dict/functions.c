// SPDX-License-Identifier: Apache-2.0
/*
 * Function tries, which flame graphs are made of. A head that takes rows does without them; whoever
 * asks first for a trie makes its own, and adds what has come since when it is asked for again.
 */
#include "base/hash.h"
#include "storage/dict/dict_private.h"

#define NONE UINT32_MAX

static uint32_t u32_at(const struct vec *v, uint32_t i)
{
    return *VEC(v, uint32_t, i);
}

static bool push_u32(struct vec *v, struct pool *p, uint32_t x)
{
    uint32_t *e = vec_push(v, p);

    if (e)
        *e = x;
    return e != NULL;
}

void dict_functions_init(struct dict_functions *f)
{
    *f = (struct dict_functions){};
    mutex_init(&f->mu);
    vec_init(&f->of, 4);
    vec_init(&f->parent, 4);
    vec_init(&f->func, 4);
    vec_init(&f->again, 8);
    vec_init(&f->marked, sizeof(struct store_marked));
    dindex_init(&f->child);
}

void dict_functions_deinit(struct dict_functions *f, struct pool *p)
{
    vec_deinit(&f->of, p);
    vec_deinit(&f->parent, p);
    vec_deinit(&f->func, p);
    vec_deinit(&f->again, p);
    vec_deinit(&f->marked, p);
    dindex_deinit(&f->child);
    mutex_deinit(&f->mu);
}

/* Most functions have no mark: only those that do are listed. */
static bool push_marked(struct dict *d, struct dict_functions *f, uint32_t i, uint32_t func)
{
    uint8_t mark = func ? TABLE(&d->func, struct dict_func, func)->mark : 0;
    struct store_marked *e;

    if (!mark)
        return true;
    e = vec_push(&f->marked, d->pool);
    if (e)
        *e = (struct store_marked){i, mark};
    return e != NULL;
}

static bool is_again(const struct dict_functions *f, uint32_t parent, uint32_t func)
{
    for (uint32_t i = parent; i != 0; i = u32_at(&f->parent, i)) {
        if (u32_at(&f->func, i) == func)
            return true;
    }
    return false;
}

static uint32_t hash_of(uint32_t parent, uint32_t func)
{
    return (uint32_t)hash_mix((uint64_t)parent << 32 | func);
}

static uint32_t hash_of_number(const void *ctx, uint32_t i)
{
    const struct dict_functions *f = ctx;

    return hash_of(u32_at(&f->parent, i), u32_at(&f->func, i));
}

static uint32_t add(struct dict *d, struct dict_functions *f, uint32_t parent, uint32_t func)
{
    uint32_t i = f->func.n, marked = f->marked.n;

    if (i / 64 >= f->again.n && !vec_push(&f->again, d->pool))
        return NONE;
    if (!push_u32(&f->parent, d->pool, parent))
        return NONE;
    if (!push_u32(&f->func, d->pool, func)) {
        f->parent.n--;
        return NONE;
    }
    /* number 0 is the root, which nobody looks for */
    if (!push_marked(d, f, i, func) ||
        (i > 0 &&
         !pool_dindex_add(d->pool, &f->child, hash_of(parent, func), i, hash_of_number, f))) {
        f->marked.n = marked;
        f->parent.n--;
        f->func.n--;
        return NONE;
    }
    if (is_again(f, parent, func))
        *VEC(&f->again, uint64_t, i / 64) |= UINT64_C(1) << i % 64;
    return i;
}

/* The function node below parent. */
static uint32_t child_of(struct dict *d, struct dict_functions *f, uint32_t parent, uint32_t func)
{
    const uint32_t h = hash_of(parent, func);

    for (uint32_t at = dindex_place(&f->child, h), i; dindex_next(&f->child, h, &at, &i);) {
        if (u32_at(&f->parent, i) == parent && u32_at(&f->func, i) == func)
            return i;
    }
    return add(d, f, parent, func);
}

/* Those of nodes below n that are not in it yet. */
static bool extend(struct dict *d, struct dict_trie *t, uint32_t n) REQUIRES(&t->fn.mu)
{
    struct dict_functions *f = &t->fn;

    for (; f->n < n; f->n++) {
        uint32_t func = TABLE(&d->frame, struct dict_frame, u32_at(&t->frame, f->n))->func;
        uint32_t i = f->n == 0 ? add(d, f, 0, 0)
                               : child_of(d, f, u32_at(&f->of, u32_at(&t->parent, f->n)), func);

        if (i == NONE || !push_u32(&f->of, d->pool, i))
            return false;
    }
    return true;
}

bool dict_functions_make(struct dict *d, struct dict_trie *t)
{
    bool ok;

    mutex_lock(&t->fn.mu);
    ok = extend(d, t, atomic_load_explicit(&t->n, memory_order_acquire));
    mutex_unlock(&t->fn.mu);
    return ok;
}

/* The bits share words with function nodes that are still to come, so they are copied. */
static bool read_locked(struct dict *d, struct dict_trie *t, struct arena *bits,
                        struct store_trie *r) REQUIRES(&t->fn.mu)
{
    const struct dict_functions *f = &t->fn;
    uint64_t *again;

    r->n = atomic_load_explicit(&t->n, memory_order_acquire);
    if (!extend(d, t, r->n))
        return false;
    again = arena_array(bits, uint64_t, f->again.n);
    if (!again)
        return false;
    memcpy(again, vec_at(&f->again, 0), f->again.n * sizeof *again);
    r->parent = vec_at(&t->parent, 0);
    r->frame = vec_at(&t->frame, 0);
    r->fnode = vec_at(&f->of, 0);
    r->n_fnode = f->func.n;
    r->fparent = vec_at(&f->parent, 0);
    r->func = vec_at(&f->func, 0);
    r->again = again;
    r->n_marked = f->marked.n;
    r->marked = r->n_marked ? vec_at(&f->marked, 0) : NULL;
    return true;
}

bool dict_trie_read(struct dict *d, struct dict_trie *t, struct arena *bits, struct store_trie *ret)
{
    bool ok;

    mutex_lock(&t->fn.mu);
    ok = read_locked(d, t, bits, ret);
    mutex_unlock(&t->fn.mu);
    return ok;
}
