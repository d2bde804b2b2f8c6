// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <assert.h>

#include "base/arena.h"
#include "base/hash.h"
#include "base/sample.h"

/*
 * Random valid batches from a seed, for property tests: every table, column and enum value appears.
 * All of it lives in the arena. Streams lie within the hour before received.
 */
struct gen {
    uint64_t state;
    struct arena *arena;
};

static inline uint64_t gen_u64(struct gen *g)
{
    g->state += UINT64_C(0x9e3779b97f4a7c15);
    return hash_mix(g->state);
}

static inline uint32_t gen_below(struct gen *g, uint64_t n)
{
    return (uint32_t)(gen_u64(g) % n);
}

static inline void *gen_array(struct gen *g, size_t n, size_t size)
{
    void *p = arena_calloc(g->arena, n, size);

    assert(p);
    return p;
}

#define GEN_ARRAY(g, T, n) ((T *)gen_array((g), (n), sizeof(T)))

/* A column of indices, or NULL one time in three. */
static inline uint32_t *gen_column(struct gen *g, size_t n, uint32_t end)
{
    uint32_t *v = GEN_ARRAY(g, uint32_t, n);

    if (gen_below(g, 3) == 0)
        return NULL;
    for (size_t i = 0; i < n; i++)
        v[i] = gen_below(g, end);
    return v;
}

static inline struct str gen_text(struct gen *g, uint32_t i)
{
    size_t n = 1 + gen_below(g, 20);
    char *p = gen_array(g, n + 4, 1);

    for (size_t k = 0; k < n; k++)
        p[k] = (char)(i % 7 == 0 ? gen_u64(g) : 'a' + gen_below(g, 26));
    return (struct str){p, n};
}

static inline struct batch_labels gen_labels(struct gen *g, uint32_t n_str)
{
    uint32_t n = gen_below(g, 4);
    uint32_t *pair = GEN_ARRAY(g, uint32_t, 2 * (size_t)n);

    for (uint32_t i = 0; i < 2 * n; i++)
        pair[i] = gen_below(g, n_str);
    return (struct batch_labels){n, n ? pair : NULL};
}

static inline void gen_stacks(struct gen *g, struct batch *b)
{
    static const struct str reason = STR("ring_full");
    struct str *str;
    struct batch_bin *bin;
    struct batch_fn *fn;
    struct batch_frame *frame;
    struct batch_node *node;

    b->n_str = 3 + gen_below(g, 60);
    b->n_bin = 1 + gen_below(g, 5);
    b->n_fn = 1 + gen_below(g, 30);
    b->n_frame = 1 + gen_below(g, 40);
    b->n_node = b->n_frame == 1 ? 1 : 1 + gen_below(g, 80);
    b->str = str = GEN_ARRAY(g, struct str, b->n_str);
    b->bin = bin = GEN_ARRAY(g, struct batch_bin, b->n_bin);
    b->fn = fn = GEN_ARRAY(g, struct batch_fn, b->n_fn);
    b->frame = frame = GEN_ARRAY(g, struct batch_frame, b->n_frame);
    b->node = node = GEN_ARRAY(g, struct batch_node, b->n_node);
    str[1] = reason;
    for (uint32_t i = 2; i < b->n_str; i++)
        str[i] = gen_text(g, i);
    for (uint32_t i = 1; i < b->n_bin; i++)
        bin[i] = (struct batch_bin){gen_below(g, b->n_str), (enum bin_id_kind)gen_below(g, 4),
                                    gen_text(g, 0)};
    for (uint32_t i = 1; i < b->n_fn; i++)
        fn[i] =
            (struct batch_fn){gen_below(g, b->n_str), gen_below(g, b->n_str), gen_below(g, 1000)};
    for (uint32_t i = 1; i < b->n_frame; i++)
        frame[i] = (struct batch_frame){.kind = (enum frame_kind)(1 + gen_below(g, 6)),
                                        .flags = gen_below(g, 2),
                                        .fn = gen_below(g, b->n_fn),
                                        .bin = gen_below(g, b->n_bin),
                                        .line = gen_below(g, 500),
                                        .addr = gen_u64(g) >> gen_below(g, 64)};
    for (uint32_t i = 1; i < b->n_node; i++) {
        node[i].parent = gen_below(g, i);
        node[i].frame = 1 + gen_below(g, b->n_frame - 1);
        node[i].hash = node_hash(node[node[i].parent].hash, batch_frame_hash(b, node[i].frame));
    }
}

static inline void gen_targets(struct gen *g, struct batch *b)
{
    struct batch_target *target;
    struct batch_labels *labels;

    b->n_target = 1 + gen_below(g, 5);
    b->n_labels = 1 + gen_below(g, 5);
    b->target = target = GEN_ARRAY(g, struct batch_target, b->n_target);
    b->labels = labels = GEN_ARRAY(g, struct batch_labels, b->n_labels);
    for (uint32_t i = 1; i < b->n_target; i++) {
        struct batch_target *t = &target[i];

        for (unsigned k = 0; k < 16; k++)
            t->key.host[k] = (uint8_t)gen_u64(g);
        t->key.pidns = gen_u64(g) >> 32;
        t->key.pid = 1 + gen_below(g, 1 << 22);
        t->key.start.v = (int64_t)(gen_u64(g) >> 2);
        t->host_pid = gen_below(g, 1 << 22);
        t->exe = gen_below(g, b->n_str);
        t->cmdline = gen_below(g, b->n_str);
        t->comm = gen_below(g, b->n_str);
        t->cgroup = gen_below(g, b->n_str);
        t->container = gen_below(g, b->n_str);
        t->env = gen_labels(g, b->n_str);
        t->flags = gen_below(g, 16);
    }
    for (uint32_t i = 1; i < b->n_labels; i++)
        labels[i] = gen_labels(g, b->n_str);
}

static inline void gen_rows(struct gen *g, const struct batch *b, struct batch_stream *st)
{
    struct batch_rows *r = &st->rows;
    uint64_t len = (uint64_t)(st->covers.t1.v - st->covers.t0.v);
    uint32_t n = gen_below(g, 4) == 0 ? 0 : gen_below(g, 50);
    real_ns *t = GEN_ARRAY(g, real_ns, n);
    uint64_t *count = GEN_ARRAY(g, uint64_t, n);
    int64_t *value = GEN_ARRAY(g, int64_t, n);
    double *var = GEN_ARRAY(g, double, n);
    bool has_value = st->period == 0 || gen_below(g, 2);

    for (uint32_t i = 0; i < n; i++) {
        t[i].v = st->covers.t0.v + (int64_t)(gen_u64(g) % len);
        count[i] = has_value ? gen_below(g, 5) : 1 + gen_below(g, 100);
        value[i] = (int64_t)(gen_u64(g) >> (2 + gen_below(g, 60)));
        var[i] = (double)gen_below(g, 1000) / 7;
    }
    r->n = n;
    if (n == 0)
        return;
    r->t = gen_below(g, 3) ? t : NULL;
    r->node = gen_column(g, n, b->n_node);
    r->target = gen_column(g, n, b->n_target);
    r->tid = gen_column(g, n, UINT32_MAX);
    r->thread = gen_column(g, n, b->n_str);
    r->cpu = gen_column(g, n, 256);
    r->labels = gen_column(g, n, b->n_labels);
    r->count = !has_value || gen_below(g, 2) ? count : NULL;
    r->value = has_value ? value : NULL;
    r->var = st->basis == BASIS_SCALED && gen_below(g, 2) ? var : NULL;
}

static inline void gen_stream(struct gen *g, const struct batch *b, struct batch_stream *st)
{
    struct batch_loss *lost;

    if (gen_below(g, 5) > 0) {
        st->type = 1 + gen_below(g, PTYPE_BUILTIN_END - 1);
        st->kind = ptype_builtin(st->type)->kind;
    } else {
        st->name = 1 + gen_below(g, b->n_str - 1);
        st->unit = gen_below(g, b->n_str);
        st->kind = gen_below(g, 2) ? KIND_SUM : KIND_LEVEL;
    }
    st->target = gen_below(g, b->n_target);
    st->labels = gen_below(g, b->n_labels);
    st->width = gen_below(g, 200);
    st->covers.t0.v = b->received.v - 1 - (int64_t)(gen_u64(g) % UINT64_C(3600000000000));
    st->covers.t1.v = st->covers.t0.v + 1 + (int64_t)(gen_u64(g) % UINT64_C(60000000000));
    st->at.v = st->kind == KIND_LEVEL ? st->covers.t0.v : 0;
    st->state = (enum source_state)(1 + gen_below(g, 4));
    st->state_why = gen_below(g, b->n_str);
    st->basis = (enum basis)gen_below(g, 5);
    st->period = gen_below(g, 2) ? 10000000 : 0;
    st->expected = gen_below(g, 3) ? gen_u64(g) >> 20 : BATCH_UNKNOWN;
    st->received = gen_below(g, 3) ? gen_u64(g) >> 20 : BATCH_UNKNOWN;
    st->jitter = (int64_t)gen_u64(g) >> 30;
    st->n_lost = gen_below(g, 3);
    st->lost = lost = GEN_ARRAY(g, struct batch_loss, st->n_lost);
    for (uint32_t i = 0; i < st->n_lost; i++) {
        lost[i].why = 1;
        lost[i].n = gen_below(g, 2) ? gen_u64(g) >> 30 : BATCH_UNKNOWN;
        lost[i].weight = gen_below(g, 2) ? (int64_t)(gen_u64(g) >> 10) : BATCH_NO_WEIGHT;
    }
    gen_rows(g, b, st);
}

static inline void gen_metric(struct gen *g, const struct batch *b, struct batch_metric *m)
{
    uint32_t n = gen_below(g, 10);
    real_ns *t = GEN_ARRAY(g, real_ns, n);
    double *num = GEN_ARRAY(g, double, n);
    int64_t *inum = GEN_ARRAY(g, int64_t, n);
    uint8_t *status = GEN_ARRAY(g, uint8_t, n);

    *m = (struct batch_metric){.name = 1 + gen_below(g, b->n_str - 1),
                               .unit = gen_below(g, b->n_str),
                               .kind = gen_below(g, 2) ? METRIC_GAUGE : METRIC_COUNTER,
                               .target = gen_below(g, b->n_target),
                               .labels = gen_below(g, b->n_labels),
                               .n = n};
    for (uint32_t i = 0; i < n; i++) {
        t[i].v = b->received.v - (int64_t)(gen_u64(g) >> 24);
        num[i] = (double)(int64_t)gen_u64(g) / 3;
        inum[i] = (int64_t)gen_u64(g);
        status[i] = (uint8_t)gen_below(g, 5);
    }
    if (n == 0)
        return;
    m->t = t;
    if (gen_below(g, 2))
        m->num = num;
    else
        m->inum = inum;
    m->status = gen_below(g, 2) ? status : NULL;
}

static inline void gen_steps(struct gen *g, const struct batch *b, struct batch_steps *s)
{
    uint32_t n = gen_below(g, 10), parts = gen_below(g, 4);
    uint64_t *number = GEN_ARRAY(g, uint64_t, n);
    real_ns *start = GEN_ARRAY(g, real_ns, n);
    int64_t *dur = GEN_ARRAY(g, int64_t, n), *part_ns = GEN_ARRAY(g, int64_t, n * parts + 1);
    uint32_t *part = GEN_ARRAY(g, uint32_t, parts);

    for (uint32_t i = 0; i < n; i++) {
        number[i] = gen_u64(g);
        start[i].v = b->received.v - (int64_t)(gen_u64(g) >> 24);
        dur[i] = 1 + (int64_t)(gen_u64(g) >> 2);
    }
    for (uint32_t i = 0; i < n * parts; i++)
        part_ns[i] = (int64_t)(gen_u64(g) >> 3) - 1;
    for (uint32_t i = 0; i < parts; i++)
        part[i] = gen_below(g, b->n_str);
    *s = (struct batch_steps){.target = gen_below(g, b->n_target),
                              .name = gen_below(g, b->n_str),
                              .inferred = gen_below(g, 2),
                              .n = n,
                              .number = number,
                              .start = start,
                              .dur_ns = dur,
                              .tid = gen_column(g, n, 1 << 22),
                              .labels = gen_column(g, n, b->n_labels),
                              .n_part = parts,
                              .part = part,
                              .part_ns = part_ns};
}

static inline void gen_beside(struct gen *g, struct batch *b)
{
    struct batch_metric *metric;
    struct batch_steps *steps;
    struct batch_event *event;
    struct seq_range *dropped;

    b->n_metric = gen_below(g, 4);
    b->n_steps = gen_below(g, 3);
    b->n_event = gen_below(g, 4);
    b->n_dropped = gen_below(g, 3);
    b->metric = metric = GEN_ARRAY(g, struct batch_metric, b->n_metric);
    b->steps = steps = GEN_ARRAY(g, struct batch_steps, b->n_steps);
    b->event = event = GEN_ARRAY(g, struct batch_event, b->n_event);
    b->dropped = dropped = GEN_ARRAY(g, struct seq_range, b->n_dropped);
    for (uint32_t i = 0; i < b->n_metric; i++)
        gen_metric(g, b, &metric[i]);
    for (uint32_t i = 0; i < b->n_steps; i++)
        gen_steps(g, b, &steps[i]);
    for (uint32_t i = 0; i < b->n_event; i++)
        event[i] = (struct batch_event){{(int64_t)gen_u64(g)},
                                        gen_below(g, b->n_str),
                                        gen_below(g, b->n_str),
                                        gen_below(g, b->n_target)};
    for (uint32_t i = 0; i < b->n_dropped; i++) {
        dropped[i].first = gen_u64(g) >> 1;
        dropped[i].last = dropped[i].first + gen_below(g, 100);
    }
}

static inline void gen_batch(struct gen *g, struct batch *ret)
{
    struct batch b = {.received = {INT64_C(1796000000000000000)}};
    struct batch_stream *stream;

    for (unsigned k = 0; k < 16; k++) {
        b.id.agent[k] = (uint8_t)gen_u64(g);
        b.id.boot[k] = (uint8_t)gen_u64(g);
    }
    b.id.seq = 1 + gen_below(g, 1000);
    b.clock = (struct batch_clock){{b.received.v - gen_below(g, 1000000)},
                                   {(int64_t)(gen_u64(g) >> 20)},
                                   {b.received.v - 5},
                                   gen_below(g, 5000),
                                   gen_below(g, 2)};
    gen_stacks(g, &b);
    gen_targets(g, &b);
    b.agent_version = gen_below(g, b.n_str);
    b.label = gen_labels(g, b.n_str);
    b.n_stream = gen_below(g, 6);
    b.stream = stream = GEN_ARRAY(g, struct batch_stream, b.n_stream);
    for (uint32_t i = 0; i < b.n_stream; i++)
        gen_stream(g, &b, &stream[i]);
    gen_beside(g, &b);
    *ret = b;
}
