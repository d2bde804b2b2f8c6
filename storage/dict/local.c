// SPDX-License-Identifier: Apache-2.0
#include <string.h>

#include "base/hash.h"
#include "storage/dict/local_private.h"

#define NONE UINT32_MAX

bool local_init(struct local *l, struct pool *p, uint64_t seed)
{
    *l = (struct local){.pool = p, .seed = seed, .cpu = 1};
    vec_init(&l->info, sizeof(struct local_info));
    vec_init(&l->cover, sizeof(struct local_cover));
    vec_init(&l->loss, sizeof(struct local_loss));
    vec_init(&l->metric, sizeof(struct local_metric));
    vec_init(&l->step, sizeof(struct local_step));
    vec_init(&l->event, sizeof(struct local_event));
    return texts_init(&l->text, p, seed) &&
           table_init(&l->thread, p, sizeof(struct local_thread)) &&
           table_init(&l->target, p, sizeof(struct local_target)) &&
           table_init(&l->scope, p, sizeof(struct local_scope)) &&
           table_init(&l->mseries, p, sizeof(struct local_mseries));
}

void local_deinit(struct local *l)
{
    enum {
        N_TABLE = 4,
        N_VEC = 6
    };
    struct table *table[N_TABLE] = {&l->thread, &l->target, &l->scope, &l->mseries};
    struct vec *vec[N_VEC] = {&l->info, &l->cover, &l->loss, &l->metric, &l->step, &l->event};

    if (!l->pool)
        return;
    texts_deinit(&l->text);
    for (size_t i = 0; i < N_TABLE; i++)
        table_deinit(table[i], l->pool);
    for (size_t i = 0; i < N_VEC; i++)
        vec_deinit(vec[i], l->pool);
}

struct local_snap local_snap(const struct local *l)
{
    return (struct local_snap){.thread = l->thread.v.n,
                               .target = l->target.v.n,
                               .info = l->info.n,
                               .scope = l->scope.v.n,
                               .cover = l->cover.n,
                               .loss = l->loss.n,
                               .mseries = l->mseries.v.n,
                               .metric = l->metric.n,
                               .step = l->step.n,
                               .event = l->event.n,
                               .cpu = l->cpu};
}

/* ---- ids ----------------------------------------------------------------------------------- */

static uint64_t hash_of(const struct local *l, const void *p, size_t n)
{
    return hash_seed(p, n, l->seed);
}

static bool eq_thread(const void *entry, const void *key)
{
    const struct local_thread *a = entry, *b = key;

    return a->target == b->target && a->tid == b->tid && a->name == b->name;
}

uint32_t local_thread_of(struct local *l, uint32_t target, uint32_t tid, uint32_t name)
{
    struct local_thread key = {.target = target, .tid = tid, .name = name}, *e;
    uint32_t field[3] = {target, tid, name}, i;
    uint64_t hash;

    if (!target && !tid && !name)
        return 0;
    hash = hash_of(l, field, sizeof field);
    i = table_find(&l->thread, hash, &key, eq_thread);
    if (i)
        return i;
    if (l->thread.v.n >= LOCAL_THREADS)
        return 0;
    i = table_add(&l->thread, l->pool, hash);
    if (!i)
        return NONE;
    e = TABLE(&l->thread, struct local_thread, i);
    *e = key;
    return i;
}

static bool key_eq(const struct target_key *a, const struct target_key *b)
{
    return memcmp(a->host, b->host, sizeof a->host) == 0 && a->pidns == b->pidns &&
           a->pid == b->pid && a->start.v == b->start.v;
}

static bool eq_target(const void *entry, const void *key)
{
    return key_eq(&((const struct local_target *)entry)->key, key);
}

uint32_t local_target_of(struct local *l, const struct target_key *key)
{
    uint64_t id = target_id(key), hash = hash_mix(id ^ l->seed);
    uint32_t i = table_find(&l->target, hash, key, eq_target);
    struct local_target *e;

    if (i)
        return i;
    i = table_add(&l->target, l->pool, hash);
    if (!i)
        return NONE;
    e = TABLE(&l->target, struct local_target, i);
    e->key = *key;
    e->id = id;
    return i;
}

static bool eq_scope(const void *entry, const void *key)
{
    const struct local_scope *a = entry, *b = key;

    return a->type == b->type && a->labels == b->labels && a->target == b->target;
}

uint32_t local_scope_of(struct local *l, ptype_id type, uint32_t labels, uint32_t target)
{
    struct local_scope key = {.type = type, .labels = labels, .target = target}, *e;
    uint32_t field[3] = {type, labels, target}, i;
    uint64_t hash = hash_of(l, field, sizeof field);

    i = table_find(&l->scope, hash, &key, eq_scope);
    if (i)
        return i;
    i = table_add(&l->scope, l->pool, hash);
    if (!i)
        return NONE;
    e = TABLE(&l->scope, struct local_scope, i);
    e->type = type;
    e->labels = labels;
    e->target = target;
    return i;
}

static bool eq_mseries(const void *entry, const void *key)
{
    const struct local_mseries *x = entry, *y = key;

    return x->name == y->name && x->unit == y->unit && x->labels == y->labels &&
           x->target == y->target && x->kind == y->kind && x->is_int == y->is_int;
}

uint32_t local_mseries_of(struct local *l, const struct local_mseries *key)
{
    uint32_t field[6] = {key->name, key->unit, key->labels, key->target, key->kind, key->is_int};
    uint64_t hash = hash_of(l, field, sizeof field);
    uint32_t i = table_find(&l->mseries, hash, key, eq_mseries);
    struct local_mseries *e;

    if (i)
        return i;
    i = table_add(&l->mseries, l->pool, hash);
    if (!i)
        return NONE;
    e = TABLE(&l->mseries, struct local_mseries, i);
    e->name = key->name;
    e->unit = key->unit;
    e->labels = key->labels;
    e->target = key->target;
    e->kind = key->kind;
    e->is_int = key->is_int;
    return i;
}

uint32_t local_cpu_of(struct local *l, uint32_t cpu)
{
    if (cpu >= LOCAL_CPUS)
        return 0;
    if (cpu >= l->cpu)
        l->cpu = cpu + 1;
    return cpu;
}

/* ---- records ------------------------------------------------------------------------------- */

static bool same_info(const struct local_info *x, const struct local_info *y)
{
    return x->exe == y->exe && x->cmdline == y->cmdline && x->comm == y->comm &&
           x->cgroup == y->cgroup && x->container == y->container && x->env == y->env &&
           x->flags == y->flags;
}

bool local_add_info(struct local *l, uint32_t target, const struct local_info *info)
{
    struct local_target *e = TABLE(&l->target, struct local_target, target);
    uint32_t last = atomic_load_explicit(&e->info, memory_order_relaxed);
    struct local_info *v;

    if (last && same_info(VEC(&l->info, struct local_info, last - 1), info))
        return true;
    v = vec_push(&l->info, l->pool);
    if (!v)
        return false;
    *v = *info;
    v->prev = last;
    atomic_store_explicit(&e->info, l->info.n, memory_order_release);
    return true;
}

bool local_add_cover(struct local *l, const struct local_cover *c)
{
    struct local_cover *v = vec_push(&l->cover, l->pool);
    struct local_scope *sc = TABLE(&l->scope, struct local_scope, c->scope);

    if (!v)
        return false;
    *v = *c;
    v->prev = atomic_load_explicit(&sc->last, memory_order_relaxed);
    atomic_store_explicit(&sc->last, l->cover.n, memory_order_release);
    return true;
}

bool local_add_loss(struct local *l, const struct local_loss *loss)
{
    struct local_loss *v = vec_push(&l->loss, l->pool);

    if (v)
        *v = *loss;
    return v != NULL;
}

bool local_add_metric(struct local *l, const struct local_metric *m)
{
    struct local_metric *v = vec_push(&l->metric, l->pool);
    struct local_mseries *e = TABLE(&l->mseries, struct local_mseries, m->series);

    if (!v)
        return false;
    *v = *m;
    v->prev = atomic_load_explicit(&e->last, memory_order_relaxed);
    atomic_store_explicit(&e->last, l->metric.n, memory_order_release);
    return true;
}

bool local_add_step(struct local *l, const struct local_step *s)
{
    struct local_step *v = vec_push(&l->step, l->pool);

    if (v)
        *v = *s;
    return v != NULL;
}

bool local_add_event(struct local *l, const struct local_event *e)
{
    struct local_event *v = vec_push(&l->event, l->pool);

    if (v)
        *v = *e;
    return v != NULL;
}

const void *local_keep(struct local *l, const void *p, size_t n)
{
    void *copy = n ? pool_fixed(l->pool, n) : NULL;

    if (copy)
        memcpy(copy, p, n);
    return copy;
}
