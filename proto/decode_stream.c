// SPDX-License-Identifier: Apache-2.0
/*
 * Streams and their rows. What is malformed refuses the batch; what is well-formed and must not be
 * stored (a value out of range, a time outside its interval, an interval too old) is refused alone
 * and counted, the rest goes on.
 */
#include <errno.h>
#include <math.h>

#include "base/loss.h"
#include "proto/decode_private.h"

#define VALUE_MAX (INT64_C(1) << 62)

/* One (reason, stream) pair; beyond the array's end all goes to its last entry. */
static void refuse(struct wire_decoding *d, const char *reason, size_t stream, uint64_t rows,
                   unit_i128 value)
{
    struct wire_rejects *r = d->rejects;
    struct wire_reject *at = NULL;

    if (!r)
        return;
    for (uint32_t i = 0; i < r->n && !at; i++) {
        if (r->v[i].stream == stream && strcmp(r->v[i].reason, reason) == 0)
            at = &r->v[i];
    }
    if (!at && r->n < WIRE_REJECTS) {
        at = &r->v[r->n++];
        *at = (struct wire_reject){.reason = reason, .stream = (uint32_t)stream};
    }
    if (!at)
        at = &r->v[WIRE_REJECTS - 1];
    at->rows += rows;
    at->value += value;
}

/* ---- what is malformed --------------------------------------------------------------------- */

static int bad_field(struct wire_decoding *d, size_t i, const char *field)
{
    return WIRE_BAD(d->fault, d->err, "bad_value", "stream[%zu].%s", i, field);
}

static int index_of(struct wire_decoding *d, uint32_t v, size_t end, size_t i, const char *field)
{
    if (v < end)
        return 0;
    return WIRE_BAD(d->fault, d->err, "bad_index", "stream[%zu].%s = %u of %zu", i, field, v, end);
}

static int check_head(struct wire_decoding *d, const Strata__V1__Stream *m, size_t i)
{
    struct interval covers = {{m->t0_ns}, {m->t1_ns}};
    int64_t len;

    TRY(index_of(d, m->name, d->b->n_str, i, "name"));
    TRY(index_of(d, m->unit, d->b->n_str, i, "unit"));
    TRY(index_of(d, m->target, d->b->n_target, i, "target"));
    TRY(index_of(d, m->labels, d->b->n_labels, i, "labels"));
    TRY(index_of(d, m->state_why, d->b->n_str, i, "state_why"));
    if (m->type == PTYPE_NONE && m->name == 0)
        return bad_field(d, i, "name");
    if (m->state < SOURCE_OK || m->state > SOURCE_ABSENT)
        return bad_field(d, i, "state");
    if (m->basis > BASIS_RAW)
        return bad_field(d, i, "basis");
    if (m->period < 0)
        return bad_field(d, i, "period");
    if (!interval_len(covers, &len))
        return bad_field(d, i, "t1_ns");
    return 0;
}

static int check_column(struct wire_decoding *d, size_t i, const char *name, size_t have, size_t n)
{
    if (have == 0 || have == n)
        return 0;
    return WIRE_BAD(d->fault, d->err, "column_length", "stream[%zu].%s: %zu, stack: %zu", i, name,
                    have, n);
}

static int check_columns(struct wire_decoding *d, const Strata__V1__Stream *m, size_t i)
{
    size_t n = m->n_stack;

    TRY(check_column(d, i, "t_ns", m->n_t_ns, n));
    TRY(check_column(d, i, "s_target", m->n_s_target, n));
    TRY(check_column(d, i, "tid", m->n_tid, n));
    TRY(check_column(d, i, "thread", m->n_thread, n));
    TRY(check_column(d, i, "cpu", m->n_cpu, n));
    TRY(check_column(d, i, "s_labels", m->n_s_labels, n));
    TRY(check_column(d, i, "count", m->n_count, n));
    TRY(check_column(d, i, "value", m->n_value, n));
    TRY(check_column(d, i, "var", m->n_var, n));
    TRY(wire_indices(d, m->stack, n, d->b->n_node, "stream[%zu].stack", i));
    TRY(wire_indices(d, m->s_target, m->n_s_target, d->b->n_target, "stream[%zu].s_target", i));
    TRY(wire_indices(d, m->thread, m->n_thread, d->b->n_str, "stream[%zu].thread", i));
    TRY(wire_indices(d, m->s_labels, m->n_s_labels, d->b->n_labels, "stream[%zu].s_labels", i));
    if (m->n_var && m->basis != BASIS_SCALED)
        return bad_field(d, i, "var");
    for (size_t k = 0; k < m->n_var; k++) {
        if (!isfinite(m->var[k]) || m->var[k] < 0)
            return WIRE_BAD(d->fault, d->err, "bad_value", "stream[%zu].var[%zu]", i, k);
    }
    if (n && !m->n_value && m->period == 0)
        return bad_field(d, i, "period");
    return 0;
}

static int losses(struct wire_decoding *d, const Strata__V1__Stream *m, size_t i,
                  struct batch_stream *st)
{
    size_t n = m->n_lost_why;
    struct batch_loss *lost = arena_array(d->arena, struct batch_loss, n);

    if (!lost)
        return wire_no_room(d);
    if ((m->n_lost_n && m->n_lost_n != n) || (m->n_lost_weight && m->n_lost_weight != n))
        return WIRE_BAD(d->fault, d->err, "column_length", "stream[%zu].lost_n", i);
    TRY(wire_indices(d, m->lost_why, n, d->b->n_str, "stream[%zu].lost_why", i));
    for (size_t k = 0; k < n; k++) {
        uint64_t weight = m->n_lost_weight ? m->lost_weight[k] : 0;

        if (!loss_name_ok(d->b->str[m->lost_why[k]]))
            return WIRE_BAD(d->fault, d->err, "bad_value", "stream[%zu].lost_why[%zu]", i, k);
        if (weight > (uint64_t)INT64_MAX + 1)
            return WIRE_BAD(d->fault, d->err, "bad_value", "stream[%zu].lost_weight[%zu]", i, k);
        /* n + 1 on the wire: 0 becomes BATCH_UNKNOWN and BATCH_NO_WEIGHT */
        lost[k] = (struct batch_loss){m->lost_why[k], (m->n_lost_n ? m->lost_n[k] : 0) - 1,
                                      (int64_t)(weight - 1)};
    }
    st->lost = lost;
    st->n_lost = (uint32_t)n;
    return 0;
}

/* ---- what is refused alone ----------------------------------------------------------------- */

/* The type of a stream, or why the stream is refused. */
static const char *resolve_type(const struct wire_decoding *d, const Strata__V1__Stream *m,
                                struct batch_stream *st)
{
    const struct ptype *t = ptype_builtin(m->type);

    if (m->type != PTYPE_NONE && !t)
        return "unknown_type";
    for (ptype_id id = 1; !t && id < PTYPE_BUILTIN_END; id++) {
        const struct ptype *same = ptype_builtin(id);

        if (same && str_eq(d->b->str[m->name], str_c(same->name)) &&
            str_eq(d->b->str[m->unit], str_c(same->unit)))
            t = same; /* an import under a built-in name is that type, with its kind */
    }
    if (!t) {
        st->name = m->name;
        st->unit = m->unit;
        st->kind = (enum ptype_kind)m->kind;
        return m->kind == KIND_SUM || m->kind == KIND_LEVEL ? NULL : "bad_kind";
    }
    st->type = t->id;
    st->kind = t->kind;
    return m->type != PTYPE_NONE && m->kind != 0 && m->kind != t->kind ? "bad_kind" : NULL;
}

/* Older than age_ns at its start, or further ahead than future_ns at its end. */
static const char *age_reason(const struct wire_decoding *d, struct interval covers)
{
    const struct batch_limits *l = &d->limits->batch;
    __extension__ __int128 received = d->b->received.v;

    if (covers.t0.v < received - l->age_ns)
        return "too_old";
    if (covers.t1.v > received + l->future_ns)
        return "in_future";
    return NULL;
}

/* Weight of a row, exactly. */
static unit_i128 weight(const Strata__V1__Stream *m, size_t k)
{
    if (m->n_value)
        return m->value[k];
    return (unit_i128)(m->n_count ? m->count[k] : 1) * m->period;
}

static const char *row_reason(const Strata__V1__Stream *m, size_t k, unit_i128 t)
{
    unit_i128 v = weight(m, k);

    if (t < m->t0_ns || (t >= m->t1_ns && m->n_t_ns))
        return "outside_interval";
    if (v < 0)
        return "negative_value";
    if (v > VALUE_MAX || (!m->n_value && m->n_count && m->count[k] == 0))
        return "value_out_of_range"; /* an unknown count times the period is no value */
    return NULL;
}

/* Row k takes place w, in every column. */
static void move_row(const Strata__V1__Stream *m, size_t w, size_t k)
{
    m->stack[w] = m->stack[k];
    if (m->n_s_target)
        m->s_target[w] = m->s_target[k];
    if (m->n_tid)
        m->tid[w] = m->tid[k];
    if (m->n_thread)
        m->thread[w] = m->thread[k];
    if (m->n_cpu)
        m->cpu[w] = m->cpu[k];
    if (m->n_s_labels)
        m->s_labels[w] = m->s_labels[k];
    if (m->n_count)
        m->count[w] = m->count[k];
    if (m->n_value)
        m->value[w] = m->value[k];
    if (m->n_var)
        m->var[w] = m->var[k];
}

/* Absolute times; refused rows taken out; how many stay. */
static size_t sift_rows(struct wire_decoding *d, const Strata__V1__Stream *m, size_t i)
{
    unit_i128 t = m->t0_ns;
    size_t w = 0;

    for (size_t k = 0; k < m->n_stack; k++) {
        const char *reason;

        if (m->n_t_ns)
            t += m->t_ns[k];
        reason = row_reason(m, k, t);
        if (reason) {
            refuse(d, reason, i, 1, weight(m, k));
            continue;
        }
        if (m->n_t_ns)
            m->t_ns[w] = (int64_t)t;
        if (w != k)
            move_row(m, w, k);
        w++;
    }
    return w;
}

static void take_rows(const Strata__V1__Stream *m, size_t n, struct batch_rows *r)
{
    *r = (struct batch_rows){.n = (uint32_t)n};
    if (n == 0)
        return;
    r->node = m->stack;
    r->t = m->n_t_ns ? (const real_ns *)m->t_ns : NULL;
    r->target = m->n_s_target ? m->s_target : NULL;
    r->tid = m->n_tid ? m->tid : NULL;
    r->thread = m->n_thread ? m->thread : NULL;
    r->cpu = m->n_cpu ? m->cpu : NULL;
    r->labels = m->n_s_labels ? m->s_labels : NULL;
    r->count = m->n_count ? m->count : NULL;
    r->value = m->n_value ? m->value : NULL;
    r->var = m->n_var ? m->var : NULL;
}

/* 0 stored; 1 refused alone, counted. */
static int stream(struct wire_decoding *d, const Strata__V1__Stream *m, size_t i,
                  struct batch_stream *ret)
{
    struct batch_stream st = {.target = m->target,
                              .labels = m->labels,
                              .width = m->width,
                              .covers = {{m->t0_ns}, {m->t1_ns}},
                              .at = {m->at_ns},
                              .state = (enum source_state)m->state,
                              .state_why = m->state_why,
                              .basis = (enum basis)m->basis,
                              .period = m->period,
                              .expected = m->expected - 1, /* 0: BATCH_UNKNOWN */
                              .received = m->received - 1,
                              .jitter = m->jitter_ns};
    const char *reason;

    TRY(check_head(d, m, i));
    TRY(check_columns(d, m, i));
    TRY(losses(d, m, i, &st));
    reason = resolve_type(d, m, &st);
    if (!reason)
        reason = age_reason(d, st.covers);
    if (reason) {
        unit_i128 value = 0;

        for (size_t k = 0; k < m->n_stack; k++)
            value += weight(m, k);
        refuse(d, reason, i, m->n_stack, value);
        return 1;
    }
    take_rows(m, sift_rows(d, m, i), &st.rows);
    *ret = st;
    return 0;
}

int wire_streams(struct wire_decoding *d)
{
    size_t n = d->m->n_stream;
    struct batch_stream *st = arena_array(d->arena, struct batch_stream, n);
    uint32_t kept = 0;

    if (!st)
        return wire_no_room(d);
    for (size_t i = 0; i < n; i++) {
        int r;

        TRY_OUTCOME(r, stream(d, d->m->stream[i], i, &st[kept]));
        kept += r == 0;
    }
    d->b->stream = d->stream = st;
    d->b->n_stream = kept;
    return 0;
}
