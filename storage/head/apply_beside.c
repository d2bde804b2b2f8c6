// SPDX-License-Identifier: Apache-2.0
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "storage/head/apply_private.h"

#define NONE UINT32_MAX

static uint32_t text(struct apply *a, uint32_t s)
{
    return apply_text(a, s);
}

static uint32_t env_of(struct apply *a, const struct batch_labels *env)
{
    uint32_t *pair = arena_array(&a->h->scratch, uint32_t, 2 * (size_t)env->n);

    for (uint32_t i = 0; pair && i < 2 * env->n; i++) {
        pair[i] = apply_name(a, env->pair[i]);
        if (pair[i] == NONE)
            return NONE;
    }
    return pair ? names_label_set(a->h->names, env->n, pair) : NONE;
}

/* A new version where something changed: exec, exit, a name learnt late. */
static bool add_target(struct apply *a, uint32_t i)
{
    const struct batch_target *t = &a->b->target[i];
    uint32_t target = apply_target(a, i);
    struct local_info info = {.exe = text(a, t->exe),
                              .cmdline = text(a, t->cmdline),
                              .comm = text(a, t->comm),
                              .cgroup = text(a, t->cgroup),
                              .container = text(a, t->container),
                              .env = env_of(a, &t->env),
                              .flags = t->flags};

    return target != NONE && info.exe != NONE && info.cmdline != NONE && info.comm != NONE &&
           info.cgroup != NONE && info.container != NONE && info.env != NONE &&
           local_add_info(&a->h->local, target, &info);
}

static uint32_t mseries_of(struct apply *a, const struct batch_metric *m)
{
    const struct local_mseries key = {.name = text(a, m->name),
                                      .unit = text(a, m->unit),
                                      .labels = apply_labels(a, m->labels, 0),
                                      .target = apply_target(a, m->target),
                                      .kind = m->kind,
                                      .is_int = m->inum != NULL};

    if (key.name == NONE || key.unit == NONE || key.labels == NONE || key.target == NONE)
        return NONE;
    return local_mseries_of(&a->h->local, &key);
}

static const void *keep(struct apply *a, const void *p, size_t n, bool *ok)
{
    const void *copy = p && n ? local_keep(&a->h->local, p, n) : NULL;

    *ok = *ok && (copy || !p || n == 0);
    return copy;
}

static bool add_metric(struct apply *a, const struct batch_metric *m)
{
    struct local_metric v = {.n = m->n};
    bool ok = true;

    if (m->n == 0)
        return true;
    v.series = mseries_of(a, m);
    if (v.series == NONE)
        return false;
    v.t = keep(a, m->t, m->n * sizeof *m->t, &ok);
    v.num = keep(a, m->num, m->n * sizeof *m->num, &ok);
    v.inum = keep(a, m->inum, m->n * sizeof *m->inum, &ok);
    v.status = keep(a, m->status, m->n, &ok);
    for (uint32_t i = 0; i < m->n; i++)
        head_widen(a->h, (struct interval){m->t[i], m->t[i]});
    return ok && local_add_metric(&a->h->local, &v);
}

static bool add_steps(struct apply *a, const struct batch_steps *s)
{
    uint32_t target = apply_target(a, s->target), name = text(a, s->name);
    uint32_t *part = pool_fixed(&a->h->pool, 4 * (size_t)s->n_part);
    bool ok = part && target != NONE && name != NONE;

    for (uint32_t k = 0; ok && k < s->n_part; k++) {
        part[k] = text(a, s->part[k]);
        ok = part[k] != NONE;
    }
    for (uint32_t i = 0; ok && i < s->n; i++) {
        const int64_t *ns = s->n_part ? &s->part_ns[(size_t)i * s->n_part] : NULL;
        struct local_step v = {.target = target,
                               .name = name,
                               .labels = apply_labels(a, s->labels ? s->labels[i] : 0, 0),
                               .tid = s->tid ? s->tid[i] : 0,
                               .inferred = s->inferred,
                               .number = s->number[i],
                               .t.t0 = s->start[i],
                               .n_part = s->n_part,
                               .part = part,
                               .part_ns = keep(a, ns, s->n_part * sizeof *ns, &ok)};

        if (__builtin_add_overflow(s->start[i].v, s->dur_ns[i], &v.t.t1.v))
            v.t.t1.v = INT64_MAX;
        head_widen(a->h, v.t);
        ok = ok && v.labels != NONE && local_add_step(&a->h->local, &v);
    }
    return ok;
}

static bool add_event(struct apply *a, real_ns t, uint32_t kind, uint32_t words, uint32_t target)
{
    const struct local_event e = {.t = t, .kind = kind, .text = words, .target = target};

    head_widen(a->h, (struct interval){t, t});
    return kind != NONE && words != NONE && target != NONE && local_add_event(&a->h->local, &e);
}

/* Batches that the sender gave up have no time and no type of their own: an event says so. */
static bool add_dropped(struct apply *a, const struct seq_range *d)
{
    char line[64];
    int n = snprintf(line, sizeof line, "first=%" PRIu64 " last=%" PRIu64, d->first, d->last);

    return n > 0 && add_event(a, a->b->received, text_id(&a->h->local.text, STR("spool_drop")),
                              text_id(&a->h->local.text, (struct str){line, (size_t)n}), 0);
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
