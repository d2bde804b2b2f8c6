// SPDX-License-Identifier: Apache-2.0
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "storage/apply_private.h"

#define NONE UINT32_MAX

static uint32_t text(struct apply *a, uint32_t s)
{
    return dict_batch_text(&a->h->dict, &a->db, s);
}

static bool same_info(const struct head_info *x, const struct head_info *y)
{
    return x->exe == y->exe && x->cmdline == y->cmdline && x->comm == y->comm &&
           x->cgroup == y->cgroup && x->container == y->container && x->env == y->env &&
           x->flags == y->flags;
}

static uint32_t env_of(struct apply *a, const struct batch_labels *env)
{
    uint32_t *pair = arena_array(&a->h->scratch, uint32_t, 2 * (size_t)env->n);

    for (uint32_t i = 0; pair && i < 2 * env->n; i++) {
        pair[i] = text(a, env->pair[i]);
        if (pair[i] == NONE)
            return NONE;
    }
    return pair ? dict_label_set(&a->h->dict, env->n, pair) : NONE;
}

/* A new version where something changed: exec, exit, a name learnt late. */
static bool add_target(struct apply *a, uint32_t i)
{
    const struct batch_target *t = &a->b->target[i];
    struct head *h = a->h;
    uint32_t target = apply_target(a, i), last;
    struct head_info info = {.exe = text(a, t->exe),
                             .cmdline = text(a, t->cmdline),
                             .comm = text(a, t->comm),
                             .cgroup = text(a, t->cgroup),
                             .container = text(a, t->container),
                             .env = env_of(a, &t->env),
                             .flags = t->flags};
    struct head_target *e;
    struct head_info *v;

    if (target == NONE || info.exe == NONE || info.cmdline == NONE || info.comm == NONE ||
        info.cgroup == NONE || info.container == NONE || info.env == NONE)
        return false;
    e = TABLE(&h->target, struct head_target, target);
    last = atomic_load_explicit(&e->info, memory_order_relaxed);
    if (last && same_info(VEC(&h->info, struct head_info, last - 1), &info))
        return true;
    v = vec_push(&h->info, &h->pool);
    if (!v)
        return false;
    info.prev = last;
    *v = info;
    atomic_store_explicit(&e->info, h->info.n, memory_order_release);
    return true;
}

static bool eq_mseries(const void *entry, const void *key)
{
    const struct head_mseries *x = entry, *y = key;

    return x->name == y->name && x->unit == y->unit && x->labels == y->labels &&
           x->target == y->target && x->kind == y->kind && x->is_int == y->is_int;
}

static uint32_t mseries_of(struct apply *a, const struct batch_metric *m)
{
    struct head *h = a->h;
    struct head_mseries key = {.name = text(a, m->name),
                               .unit = text(a, m->unit),
                               .labels = apply_labels(a, m->labels, 0),
                               .target = apply_target(a, m->target),
                               .kind = m->kind,
                               .is_int = m->inum != NULL},
                        *e;
    uint32_t field[6] = {key.name, key.unit, key.labels, key.target, key.kind, key.is_int}, i;
    uint64_t hash = hash_seed(field, sizeof field, h->dict.seed);

    if (key.name == NONE || key.unit == NONE || key.labels == NONE || key.target == NONE)
        return NONE;
    i = table_find(&h->mseries, hash, &key, eq_mseries);
    if (i)
        return i;
    i = table_add(&h->mseries, &h->pool, hash);
    if (!i)
        return NONE;
    e = TABLE(&h->mseries, struct head_mseries, i);
    e->name = key.name;
    e->unit = key.unit;
    e->labels = key.labels;
    e->target = key.target;
    e->kind = key.kind;
    e->is_int = key.is_int;
    return i;
}

static const void *keep(struct apply *a, const void *p, size_t n, bool *ok)
{
    void *copy;

    if (!p || n == 0)
        return NULL;
    copy = pool_fixed(&a->h->pool, n);
    if (copy)
        memcpy(copy, p, n);
    else
        *ok = false;
    return copy;
}

static bool add_metric(struct apply *a, const struct batch_metric *m)
{
    struct head *h = a->h;
    uint32_t series;
    struct head_mseries *e;
    struct head_metric *v;
    bool ok = true;

    if (m->n == 0)
        return true;
    series = mseries_of(a, m);
    if (series == NONE)
        return false;
    v = vec_push(&h->metric, &h->pool);
    if (!v)
        return false;
    e = TABLE(&h->mseries, struct head_mseries, series);
    *v = (struct head_metric){.series = series,
                              .prev = atomic_load_explicit(&e->last, memory_order_relaxed),
                              .n = m->n,
                              .t = keep(a, m->t, m->n * sizeof *m->t, &ok),
                              .num = keep(a, m->num, m->n * sizeof *m->num, &ok),
                              .inum = keep(a, m->inum, m->n * sizeof *m->inum, &ok),
                              .status = keep(a, m->status, m->n, &ok)};
    if (ok)
        atomic_store_explicit(&e->last, h->metric.n, memory_order_release);
    return ok;
}

static bool add_steps(struct apply *a, const struct batch_steps *s)
{
    struct head *h = a->h;
    uint32_t target = apply_target(a, s->target), name = text(a, s->name);
    uint32_t *part = pool_fixed(&h->pool, 4 * (size_t)s->n_part);
    bool ok = part && target != NONE && name != NONE;

    for (uint32_t k = 0; ok && k < s->n_part; k++) {
        part[k] = text(a, s->part[k]);
        ok = part[k] != NONE;
    }
    for (uint32_t i = 0; ok && i < s->n; i++) {
        const int64_t *ns = s->n_part ? &s->part_ns[(size_t)i * s->n_part] : NULL;
        uint32_t labels = apply_labels(a, s->labels ? s->labels[i] : 0, 0);
        struct head_step *v = labels == NONE ? NULL : vec_push(&h->step, &h->pool);
        int64_t end;

        if (!v)
            return false;
        if (__builtin_add_overflow(s->start[i].v, s->dur_ns[i], &end))
            end = INT64_MAX;
        *v = (struct head_step){.target = target,
                                .name = name,
                                .labels = labels,
                                .tid = s->tid ? s->tid[i] : 0,
                                .inferred = s->inferred,
                                .number = s->number[i],
                                .t = {s->start[i], {end}},
                                .n_part = s->n_part,
                                .part = part,
                                .part_ns = keep(a, ns, s->n_part * sizeof *ns, &ok)};
    }
    return ok;
}

static bool add_event(struct apply *a, real_ns t, uint32_t kind, uint32_t words, uint32_t target)
{
    struct head_event *v;

    if (kind == NONE || words == NONE || target == NONE)
        return false;
    v = vec_push(&a->h->event, &a->h->pool);
    if (!v)
        return false;
    *v = (struct head_event){.t = t, .kind = kind, .text = words, .target = target};
    return true;
}

/* Batches that the sender gave up have no time and no type of their own: an event says so. */
static bool add_dropped(struct apply *a, const struct seq_range *d)
{
    char line[64];
    int n = snprintf(line, sizeof line, "first=%" PRIu64 " last=%" PRIu64, d->first, d->last);

    return n > 0 && add_event(a, a->b->received, dict_text(&a->h->dict, STR("spool_drop")),
                              dict_text(&a->h->dict, (struct str){line, (size_t)n}), 0);
}

bool apply_beside(struct apply *a)
{
    const struct batch *b = a->b;
    bool ok = true;

    for (uint32_t i = 1; ok && i < b->n_target; i++)
        ok = add_target(a, i);
    for (uint32_t i = 0; ok && i < b->n_metric; i++)
        ok = add_metric(a, &b->metric[i]);
    for (uint32_t i = 0; ok && i < b->n_steps; i++)
        ok = add_steps(a, &b->steps[i]);
    for (uint32_t i = 0; ok && i < b->n_event; i++) {
        const struct batch_event *e = &b->event[i];

        ok = add_event(a, e->t, text(a, e->kind), text(a, e->text), apply_target(a, e->target));
    }
    for (uint32_t i = 0; ok && i < b->n_dropped; i++)
        ok = add_dropped(a, &b->dropped[i]);
    return ok;
}
