// SPDX-License-Identifier: Apache-2.0
#include <stdlib.h>

#include "storage/dict/dict_private.h"

struct epoch *epoch_new(uint32_t id, uint64_t seed, uint32_t max_nodes)
{
    struct epoch *e = mem_fail_now() ? NULL : calloc(1, sizeof *e);
    int r;

    if (!e)
        return NULL;
    e->id = id;
    atomic_store(&e->refs, 1);
    pool_init(&e->pool);
    r = pthread_rwlock_init(&e->ids, NULL);
    assert(r == 0);
    vec_init(&e->svc, sizeof(struct epoch_svc));
    vec_init(&e->trie, sizeof(struct dict_trie *));
    if (!dict_init(&e->dict, &e->pool, seed, max_nodes)) {
        epoch_unref(e);
        return NULL;
    }
    epoch_publish(e);
    return e;
}

void epoch_ref(struct epoch *e)
{
    atomic_fetch_add(&e->refs, 1);
}

void epoch_unref(struct epoch *e)
{
    if (!e || atomic_fetch_sub(&e->refs, 1) > 1)
        return;
    for (uint32_t i = 0; i < e->trie.n; i++)
        dict_trie_free(&e->dict, epoch_trie_at(e, i));
    vec_deinit(&e->trie, &e->pool);
    vec_deinit(&e->svc, &e->pool);
    epoch_unref(e->before);
    dict_deinit(&e->dict);
    pool_deinit(&e->pool);
    (void)pthread_rwlock_destroy(&e->ids);
    free(e);
}

static struct epoch_svc *svc_at(struct epoch *e, uint32_t svc)
{
    while (e->svc.n <= svc) {
        if (!vec_push(&e->svc, &e->pool))
            return NULL;
    }
    return VEC(&e->svc, struct epoch_svc, svc);
}

struct dict_trie *epoch_add_trie(struct epoch *e, uint32_t svc)
{
    struct epoch_svc *s = svc_at(e, svc);
    struct dict_trie *last = s ? atomic_load_explicit(&s->trie, memory_order_relaxed) : NULL;
    struct store_trie_id id = {.epoch = e->id, .svc = svc, .sub = last ? last->id.sub + 1 : 0};
    struct dict_trie *t = s ? dict_trie_new(&e->dict, id) : NULL;
    struct dict_trie **slot = t ? vec_push(&e->trie, &e->pool) : NULL;

    if (!slot) {
        dict_trie_free(&e->dict, t);
        return NULL;
    }
    t->at = e->trie.n - 1;
    t->older = last;
    *slot = t;
    atomic_store_explicit(&s->trie, t, memory_order_release);
    atomic_store_explicit(&e->n_trie, e->trie.n, memory_order_release);
    atomic_store_explicit(&e->n_svc, e->svc.n, memory_order_release);
    return t;
}

struct dict_trie *epoch_trie(struct epoch *e, uint32_t svc)
{
    struct dict_trie *t = epoch_find_newest(e, svc);

    return t ? t : epoch_add_trie(e, svc);
}

struct dict_trie *epoch_find_newest(const struct epoch *e, uint32_t svc)
{
    if (svc >= atomic_load_explicit(&e->n_svc, memory_order_acquire))
        return NULL;
    return atomic_load_explicit(&VEC(&e->svc, struct epoch_svc, svc)->trie, memory_order_acquire);
}

struct dict_trie *epoch_find(const struct epoch *e, uint32_t svc, uint32_t sub)
{
    struct dict_trie *t = epoch_find_newest(e, svc);

    while (t && t->id.sub != sub)
        t = t->older;
    return t;
}

void epoch_publish(struct epoch *e)
{
    struct dict *d = &e->dict;

    atomic_store_explicit(&d->n_text, texts_n(&d->text), memory_order_release);
    atomic_store_explicit(&d->n_func, d->func.v.n, memory_order_release);
    atomic_store_explicit(&d->n_frame, d->frame.v.n, memory_order_release);
}

static void lock_ids(struct epoch *e)
{
    int r = pthread_rwlock_wrlock(&e->ids);

    assert(r == 0);
    (void)r;
}

static void unlock_ids(struct epoch *e)
{
    int r = pthread_rwlock_unlock(&e->ids);

    assert(r == 0);
    (void)r;
}

void epoch_follow(struct epoch *e, struct epoch *before)
{
    epoch_ref(before);
    lock_ids(e);
    e->before = before;
    unlock_ids(e);
}

void epoch_forget(struct epoch *e)
{
    struct epoch *before;

    lock_ids(e);
    before = e->before;
    e->before = NULL;
    unlock_ids(e);
    epoch_unref(before);
}

bool epoch_knows(struct epoch *e, const struct batch *b)
{
    bool all = true;
    int r;

    if (b->n_known == 0)
        return true;
    r = pthread_rwlock_rdlock(&e->ids);
    assert(r == 0);
    for (uint32_t i = 1; all && i <= b->n_known; i++) {
        if (i % DICT_AHEAD == 1)
            dict_ahead(&e->dict, b->node + i, b->n_known + 1 - i);
        all = dict_knows(&e->dict, b->node[i].hash) ||
              (e->before && !dict_holds(&e->dict, b->node[i].hash) &&
               dict_knows(&e->before->dict, b->node[i].hash));
    }
    r = pthread_rwlock_unlock(&e->ids);
    assert(r == 0);
    return all;
}
