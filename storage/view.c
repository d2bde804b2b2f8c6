// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <stdlib.h>

#include "storage/view_private.h"

#define VIEW_MEM ((size_t)1 << 30)

struct store_view *store_view_get(struct store *s)
{
    struct store_view *v = xcalloc(1, sizeof *v);
    struct pool *p = &s->head.pool;

    assert(s->magic == STORE_MAGIC);
    v->s = s;
    v->h = &s->head;
    mutex_init(&v->mu);
    arena_init(&v->mem, VIEW_MEM);
    map_init(&v->trie, 0);
    mutex_lock(&p->mu);
    p->readers++;
    v->snap = s->head.snap;
    mutex_unlock(&p->mu);
    return v;
}

struct store_view *store_view_put(struct store_view *v)
{
    if (!v)
        return NULL;
    pool_leave(&v->s->head.pool);
    arena_deinit(&v->mem);
    map_deinit(&v->trie);
    mutex_deinit(&v->mu);
    free(v);
    return NULL;
}

uint32_t store_workers(const struct store_view *v)
{
    return v->s->conf.workers;
}

void read_arena(const struct store_view *v, struct arena *a)
{
    arena_init(a, v->s->conf.mem_query);
}

const struct target_key *target_of(const struct store_view *v, uint32_t target)
{
    return target ? &TABLE(&v->h->target, struct head_target, target)->key : NULL;
}

/* ---- tries, frames, functions -------------------------------------------------------------- */

/* The bits share words with nodes that are still to come, so they are copied. */
static uint64_t *copy_bits(struct store_view *v, const struct dict_trie *t, uint32_t n)
{
    uint32_t words = n / 64 + 1;
    uint64_t *bits = arena_array(&v->mem, uint64_t, words);

    for (uint32_t i = 0; bits && i < words && (size_t)i * 64 < n; i++)
        bits[i] = atomic_load_explicit(VEC(&t->again, _Atomic uint64_t, i), memory_order_relaxed);
    return bits;
}

static struct store_trie *look_up(struct store_view *v, uint32_t at) REQUIRES(&v->mu)
{
    const struct dict_trie *t = head_trie(v->h, at);
    struct store_trie *r = arena_new(&v->mem, struct store_trie);

    if (!r)
        return NULL;
    r->n = atomic_load_explicit(&t->n, memory_order_acquire);
    r->n_fnode = atomic_load_explicit(&t->n_fnode, memory_order_acquire);
    r->parent = vec_at(&t->parent, 0);
    r->frame = vec_at(&t->frame, 0);
    r->fnode = vec_at(&t->fnode, 0);
    r->fparent = vec_at(&t->fparent, 0);
    r->func = vec_at(&t->func, 0);
    r->again = copy_bits(v, t, r->n_fnode);
    if (!r->again || map_put(&v->trie, at, (uintptr_t)r) == MAP_FULL)
        return NULL;
    return r;
}

int store_trie(struct store_view *v, struct store_trie_id id, struct store_trie *ret,
               struct err *err)
{
    struct store_trie *t;
    uint64_t found;
    uint32_t at;

    if (id.epoch != DICT_EPOCH || id.sub != 0 || id.svc == 0 || id.svc >= v->snap.svc)
        return err_set(err, -ENOENT, "no trie %u/%u/%u", id.epoch, id.svc, id.sub);
    at = TABLE(&v->h->svc, struct head_svc, id.svc)->trie;
    mutex_lock(&v->mu);
    t = map_get(&v->trie, at, &found) ? (struct store_trie *)(uintptr_t)found // NOLINT
                                      : look_up(v, at);
    if (t)
        *ret = *t;
    mutex_unlock(&v->mu);
    return t ? 0 : err_set(err, -ENOMEM, "trie: the dictionary pool is full");
}

int store_frame(struct store_view *v, uint32_t epoch, uint32_t frame, struct store_frame *ret,
                struct err *err)
{
    const struct head *h = v->h;
    const struct dict_frame *f;

    /* not by the snapshot: a trie may be younger than it */
    if (epoch != DICT_EPOCH ||
        frame >= atomic_load_explicit(&h->dict.n_frame, memory_order_acquire))
        return err_set(err, -ENOENT, "no frame %u in epoch %u", frame, epoch);
    if (frame == 0) {
        *ret = (struct store_frame){};
        return 0;
    }
    f = TABLE(&h->dict.frame, struct dict_frame, frame);
    *ret = (struct store_frame){.kind = f->kind,
                                .flags = f->flags,
                                .func = f->func,
                                .name = head_str(h, f->name),
                                .file = head_str(h, f->file),
                                .start_line = f->start_line,
                                .line = f->line,
                                .bin = head_str(h, f->bin),
                                .bin_id = head_str(h, f->bin_id),
                                .bin_id_kind = f->id_kind,
                                .addr = f->addr};
    return 0;
}

int store_func(struct store_view *v, uint32_t epoch, uint32_t func, struct store_func *ret,
               struct err *err)
{
    const struct head *h = v->h;
    const struct dict_func *f;

    if (epoch != DICT_EPOCH || func >= atomic_load_explicit(&h->dict.n_func, memory_order_acquire))
        return err_set(err, -ENOENT, "no function %u in epoch %u", func, epoch);
    if (func == 0) {
        *ret = (struct store_func){.key = func_key((struct str){}, (struct str){})};
        return 0;
    }
    f = TABLE(&h->dict.func, struct dict_func, func);
    *ret = (struct store_func){.kind = f->kind,
                               .scope = head_str(h, f->scope),
                               .name = head_str(h, f->name),
                               .file = head_str(h, f->file),
                               .bin = head_str(h, f->bin),
                               .key = f->key};
    return 0;
}
