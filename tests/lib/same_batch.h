// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/sample.h"

/*
 * Do two batches say the same? NULL, or the name of what differs. A missing column equals one that
 * holds its default; texts are compared by what they are, tables entry by entry.
 */
#define SAME(cond, what)                                                                           \
    do {                                                                                           \
        if (!(cond))                                                                               \
            return (what);                                                                         \
    } while (0)

static inline bool same_u32(const uint32_t *a, const uint32_t *b, size_t n, uint32_t def)
{
    for (size_t i = 0; i < n; i++) {
        if ((a ? a[i] : def) != (b ? b[i] : def))
            return false;
    }
    return true;
}

static inline bool same_labels(struct batch_labels a, struct batch_labels b)
{
    return a.n == b.n && same_u32(a.pair, b.pair, 2 * (size_t)a.n, 0);
}

static inline const char *same_tables(const struct batch *a, const struct batch *b)
{
    SAME(a->n_str == b->n_str && a->n_bin == b->n_bin && a->n_fn == b->n_fn, "n_str, n_bin, n_fn");
    SAME(a->n_frame == b->n_frame && a->n_node == b->n_node && a->n_known == b->n_known,
         "n_frame, n_node, n_known");
    SAME(a->n_target == b->n_target && a->n_labels == b->n_labels, "n_target, n_labels");
    for (uint32_t i = 0; i < a->n_str; i++)
        SAME(str_eq(a->str[i], b->str[i]), "str");
    for (uint32_t i = 0; i < a->n_bin; i++)
        SAME(a->bin[i].path == b->bin[i].path && a->bin[i].id_kind == b->bin[i].id_kind &&
                 str_eq(a->bin[i].id, b->bin[i].id),
             "bin");
    for (uint32_t i = 0; i < a->n_fn; i++)
        SAME(memcmp(&a->fn[i], &b->fn[i], sizeof a->fn[i]) == 0, "fn");
    for (uint32_t i = 0; i < a->n_frame; i++)
        SAME(a->frame[i].kind == b->frame[i].kind && a->frame[i].flags == b->frame[i].flags &&
                 a->frame[i].fn == b->frame[i].fn && a->frame[i].bin == b->frame[i].bin &&
                 a->frame[i].line == b->frame[i].line && a->frame[i].addr == b->frame[i].addr,
             "frame");
    for (uint32_t i = 0; i < a->n_node; i++)
        SAME(a->node[i].parent == b->node[i].parent && a->node[i].frame == b->node[i].frame &&
                 a->node[i].hash == b->node[i].hash,
             "node");
    for (uint32_t i = 0; i < a->n_labels; i++)
        SAME(same_labels(a->labels[i], b->labels[i]), "labels");
    for (uint32_t i = 0; i < a->n_target; i++) {
        const struct batch_target *x = &a->target[i], *y = &b->target[i];

        SAME(memcmp(&x->key, &y->key, sizeof x->key) == 0 && x->host_pid == y->host_pid &&
                 x->exe == y->exe && x->cmdline == y->cmdline && x->comm == y->comm &&
                 x->cgroup == y->cgroup && x->container == y->container &&
                 same_labels(x->env, y->env) && x->flags == y->flags,
             "target");
    }
    return NULL;
}

static inline const char *same_rows(const struct batch_stream *x, const struct batch_stream *y)
{
    const struct batch_rows *a = &x->rows, *b = &y->rows;

    SAME(a->n == b->n, "rows.n");
    SAME(same_u32(a->node, b->node, a->n, 0), "rows.node");
    SAME(same_u32(a->target, b->target, a->n, x->target), "rows.target");
    SAME(same_u32(a->tid, b->tid, a->n, 0) && same_u32(a->thread, b->thread, a->n, 0) &&
             same_u32(a->cpu, b->cpu, a->n, 0) && same_u32(a->labels, b->labels, a->n, 0),
         "rows.tid, thread, cpu or labels");
    SAME(!a->value == !b->value && !a->var == !b->var, "rows.value or var");
    for (uint32_t k = 0; k < a->n; k++) {
        SAME((a->t ? a->t[k].v : x->covers.t0.v) == (b->t ? b->t[k].v : y->covers.t0.v), "rows.t");
        SAME((a->count ? a->count[k] : 1) == (b->count ? b->count[k] : 1), "rows.count");
        SAME(!a->value || a->value[k] == b->value[k], "rows.value");
        SAME(!a->var || a->var[k] == b->var[k], "rows.var");
    }
    return NULL;
}

static inline const char *same_stream(const struct batch_stream *a, const struct batch_stream *b)
{
    SAME(a->type == b->type && a->name == b->name && a->unit == b->unit && a->kind == b->kind,
         "stream type");
    SAME(a->target == b->target && a->labels == b->labels && a->width == b->width, "stream scope");
    SAME(a->covers.t0.v == b->covers.t0.v && a->covers.t1.v == b->covers.t1.v && a->at.v == b->at.v,
         "stream time");
    SAME(a->state == b->state && a->state_why == b->state_why && a->basis == b->basis &&
             a->period == b->period,
         "stream state, basis or period");
    SAME(a->expected == b->expected && a->received == b->received && a->jitter == b->jitter &&
             a->n_lost == b->n_lost,
         "stream expected, received, jitter or lost");
    for (uint32_t i = 0; i < a->n_lost; i++)
        SAME(a->lost[i].why == b->lost[i].why && a->lost[i].n == b->lost[i].n &&
                 a->lost[i].weight == b->lost[i].weight,
             "lost");
    return same_rows(a, b);
}

static inline const char *same_metric(const struct batch_metric *a, const struct batch_metric *b)
{
    SAME(a->name == b->name && a->unit == b->unit && a->kind == b->kind && a->target == b->target &&
             a->labels == b->labels && a->n == b->n,
         "metric");
    SAME(!a->num == !b->num && !a->inum == !b->inum, "metric column");
    for (uint32_t k = 0; k < a->n; k++)
        SAME(a->t[k].v == b->t[k].v && (!a->num || a->num[k] == b->num[k]) &&
                 (!a->inum || a->inum[k] == b->inum[k]) &&
                 (a->status ? a->status[k] : 0) == (b->status ? b->status[k] : 0),
             "metric point");
    return NULL;
}

static inline const char *same_steps(const struct batch_steps *a, const struct batch_steps *b)
{
    SAME(a->target == b->target && a->name == b->name && a->inferred == b->inferred &&
             a->n == b->n && a->n_part == b->n_part,
         "steps");
    SAME(same_u32(a->tid, b->tid, a->n, 0) && same_u32(a->labels, b->labels, a->n, 0) &&
             same_u32(a->part, b->part, a->n_part, 0),
         "steps columns");
    for (uint32_t k = 0; k < a->n; k++)
        SAME(a->number[k] == b->number[k] && a->start[k].v == b->start[k].v &&
                 a->dur_ns[k] == b->dur_ns[k],
             "step");
    for (size_t k = 0; k < (size_t)a->n * a->n_part; k++)
        SAME(a->part_ns[k] == b->part_ns[k], "part_ns");
    return NULL;
}

static inline const char *same_batch(const struct batch *a, const struct batch *b)
{
    const char *r = same_tables(a, b);

    SAME(!r, r);
    SAME(memcmp(&a->id, &b->id, sizeof a->id) == 0, "id");
    SAME(str_eq(a->str[a->agent_version], b->str[b->agent_version]), "agent_version");
    SAME(a->clock.sent.v == b->clock.sent.v && a->clock.mono.v == b->clock.mono.v &&
             a->clock.real.v == b->clock.real.v && a->clock.err_ns == b->clock.err_ns &&
             a->clock.stepped == b->clock.stepped && a->received.v == b->received.v,
         "clock");
    SAME(same_labels(a->label, b->label), "label");
    SAME(a->n_stream == b->n_stream && a->n_metric == b->n_metric && a->n_steps == b->n_steps &&
             a->n_event == b->n_event && a->n_dropped == b->n_dropped,
         "n_stream, n_metric, n_steps, n_event or n_dropped");
    for (uint32_t i = 0; i < a->n_stream && !r; i++)
        r = same_stream(&a->stream[i], &b->stream[i]);
    for (uint32_t i = 0; i < a->n_metric && !r; i++)
        r = same_metric(&a->metric[i], &b->metric[i]);
    for (uint32_t i = 0; i < a->n_steps && !r; i++)
        r = same_steps(&a->steps[i], &b->steps[i]);
    SAME(!r, r);
    for (uint32_t i = 0; i < a->n_event; i++)
        SAME(a->event[i].t.v == b->event[i].t.v && a->event[i].kind == b->event[i].kind &&
                 a->event[i].text == b->event[i].text && a->event[i].target == b->event[i].target,
             "event");
    for (uint32_t i = 0; i < a->n_dropped; i++)
        SAME(a->dropped[i].first == b->dropped[i].first && a->dropped[i].last == b->dropped[i].last,
             "dropped");
    return NULL;
}

#undef SAME
