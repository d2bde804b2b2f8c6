// SPDX-License-Identifier: Apache-2.0
/*
 * struct batch -> bytes. One encoding for one batch: fields in ascending order, packed columns,
 * defaults left out, so that the digest of the bytes stands for the content.
 */
#include <errno.h>

#include "base/hash.h"
#include "base/pb.h"
#include "proto/wire.h"

/* ---- packed columns ------------------------------------------------------------------------ */

static size_t varint_bytes(uint64_t v)
{
    return (size_t)(70 - __builtin_clzll(v | 1)) / 7;
}

static char *varint_put(char *p, uint64_t v)
{
    while (v >= 0x80) {
        *p++ = (char)(unsigned char)(v | 0x80);
        v >>= 7;
    }
    *p++ = (char)v;
    return p;
}

/* Element k of a column as a varint value. */
typedef uint64_t column_fn(const void *col, size_t k);

static void put_column(struct buf *b, uint32_t number, size_t n, column_fn *at, const void *col)
{
    size_t bytes = 0;
    char *p;

    if (n == 0)
        return;
    for (size_t k = 0; k < n; k++)
        bytes += varint_bytes(at(col, k));
    pb_put_tag(b, number, PB_LEN);
    pb_put_raw_varint(b, bytes);
    p = buf_reserve(b, bytes);
    if (!p)
        return;
    for (size_t k = 0; k < n; k++)
        p = varint_put(p, at(col, k));
    buf_commit(b, bytes);
}

static uint64_t at_u32(const void *col, size_t k)
{
    return ((const uint32_t *)col)[k];
}

static uint64_t at_u64(const void *col, size_t k)
{
    return ((const uint64_t *)col)[k];
}

static uint64_t at_sint(const void *col, size_t k)
{
    return pb_zag(((const int64_t *)col)[k]);
}

static uint64_t at_byte(const void *col, size_t k)
{
    return ((const uint8_t *)col)[k];
}

static uint64_t at_zero(const void *col, size_t k)
{
    (void)col;
    (void)k;
    return 0;
}

struct times {
    int64_t from;
    const real_ns *t;
};

/* Differences wrap as the reader's sums do; a valid batch has none that does. */
static uint64_t at_delta(const void *col, size_t k)
{
    const struct times *c = col;
    uint64_t before = (uint64_t)(k ? c->t[k - 1].v : c->from);

    return pb_zag((int64_t)((uint64_t)c->t[k].v - before));
}

static void put_times(struct buf *b, uint32_t number, size_t n, int64_t from, const real_ns *t)
{
    put_column(b, number, t ? n : 0, at_delta, &(struct times){from, t});
}

static void put_u32(struct buf *b, uint32_t number, size_t n, const uint32_t *v)
{
    put_column(b, number, v ? n : 0, at_u32, v);
}

static void put_doubles(struct buf *b, uint32_t number, size_t n, const double *v)
{
    if (n == 0 || !v)
        return;
    pb_put_tag(b, number, PB_LEN);
    pb_put_raw_varint(b, 8 * n);
    for (size_t k = 0; k < n; k++) {
        uint64_t bits;

        memcpy(&bits, &v[k], sizeof bits);
        buf_le64(b, bits);
    }
}

static void put_labels(struct buf *b, uint32_t number, struct batch_labels l)
{
    put_u32(b, number, 2 * (size_t)l.n, l.pair);
}

/* ---- tables -------------------------------------------------------------------------------- */

static void put_sixteen(struct buf *b, uint32_t number, const uint8_t v[static 16])
{
    static const uint8_t none[16];

    if (memcmp(v, none, 16) != 0)
        pb_put_bytes(b, number, (struct str){(const char *)v, 16});
}

/* The member at offset of entry 1 .. n of a table of structs. */
struct member {
    const char *first;
    size_t size, offset;
};

static uint64_t at_member(const void *col, size_t k)
{
    const struct member *m = col;
    uint32_t v;

    memcpy(&v, m->first + k * m->size + m->offset, sizeof v);
    return v;
}

#define PUT_MEMBER(b, number, table, n, field)                                                     \
    put_column((b), (number), (n)-1, at_member,                                                    \
               &(struct member){(const char *)((table) + 1), sizeof *(table),                      \
                                offsetof(typeof(*(table)), field)})

static uint64_t at_addr(const void *col, size_t k)
{
    return ((const struct batch_frame *)col)[k].addr;
}

static uint64_t at_parent(const void *col, size_t k)
{
    return ((const struct batch_node *)col)[k].parent;
}

static uint64_t at_node_frame(const void *col, size_t k)
{
    return ((const struct batch_node *)col)[k].frame - 1;
}

static void put_dict(const struct batch *b, struct buf *to)
{
    uint32_t n_new = b->n_node - 1 - b->n_known;

    PUT_MEMBER(to, 1, b->bin, b->n_bin, path);
    PUT_MEMBER(to, 2, b->bin, b->n_bin, id_kind);
    for (uint32_t i = 1; i < b->n_bin; i++)
        pb_put_bytes(to, 3, b->bin[i].id);
    PUT_MEMBER(to, 4, b->fn, b->n_fn, name);
    PUT_MEMBER(to, 5, b->fn, b->n_fn, file);
    PUT_MEMBER(to, 6, b->fn, b->n_fn, line);
    PUT_MEMBER(to, 7, b->frame, b->n_frame, kind);
    PUT_MEMBER(to, 8, b->frame, b->n_frame, fn);
    PUT_MEMBER(to, 9, b->frame, b->n_frame, line);
    PUT_MEMBER(to, 10, b->frame, b->n_frame, bin);
    PUT_MEMBER(to, 11, b->frame, b->n_frame, flags);
    put_column(to, 12, b->n_frame - 1, at_addr, b->frame + 1);
    if (b->n_known > 0) {
        pb_put_tag(to, 13, PB_LEN);
        pb_put_raw_varint(to, 8 * (uint64_t)b->n_known);
        for (uint32_t i = 1; i <= b->n_known; i++)
            buf_le64(to, b->node[i].hash);
    }
    put_column(to, 14, n_new, at_parent, b->node + 1 + b->n_known);
    put_column(to, 15, n_new, at_node_frame, b->node + 1 + b->n_known);
}

static void put_target(const struct batch_target *t, struct buf *to)
{
    pb_put_varint(to, 1, t->key.pidns);
    pb_put_varint(to, 2, t->key.pid);
    pb_put_varint(to, 3, t->host_pid);
    pb_put_varint(to, 4, (uint64_t)t->key.start.v);
    pb_put_varint(to, 5, t->exe);
    pb_put_varint(to, 6, t->cmdline);
    pb_put_varint(to, 7, t->comm);
    pb_put_varint(to, 8, t->cgroup);
    pb_put_varint(to, 9, t->container);
    put_labels(to, 10, t->env);
    pb_put_varint(to, 11, t->flags);
    put_sixteen(to, 12, t->key.host);
}

/* ---- streams and what stands beside them --------------------------------------------------- */

static uint64_t at_why(const void *col, size_t k)
{
    return ((const struct batch_loss *)col)[k].why;
}

static uint64_t at_lost_n(const void *col, size_t k)
{
    return ((const struct batch_loss *)col)[k].n + 1; /* BATCH_UNKNOWN: 0 */
}

static uint64_t at_lost_weight(const void *col, size_t k)
{
    return (uint64_t)((const struct batch_loss *)col)[k].weight + 1;
}

static void put_rows(const struct batch_stream *st, struct buf *to)
{
    const struct batch_rows *r = &st->rows;

    put_times(to, 20, r->n, st->covers.t0.v, r->t);
    put_u32(to, 21, r->n, r->target);
    put_u32(to, 22, r->n, r->tid);
    put_u32(to, 23, r->n, r->thread);
    put_u32(to, 24, r->n, r->cpu);
    put_u32(to, 25, r->n, r->labels);
    put_column(to, 26, r->n, r->node ? at_u32 : at_zero, r->node); /* says how many rows */
    put_column(to, 27, r->count ? r->n : 0, at_u64, r->count);
    put_column(to, 28, r->value ? r->n : 0, at_sint, r->value);
    put_doubles(to, 29, r->n, r->var);
}

static void put_stream(const struct batch_stream *st, struct buf *to)
{
    if (st->type != PTYPE_NONE) {
        pb_put_varint(to, 1, st->type);
    } else {
        pb_put_varint(to, 2, st->name);
        pb_put_varint(to, 3, st->unit);
        pb_put_varint(to, 4, st->kind);
    }
    pb_put_varint(to, 5, st->target);
    pb_put_varint(to, 6, st->labels);
    pb_put_varint(to, 7, (uint64_t)st->covers.t0.v);
    pb_put_varint(to, 8, (uint64_t)st->covers.t1.v);
    pb_put_varint(to, 9, (uint64_t)st->at.v);
    pb_put_varint(to, 10, st->width);
    pb_put_varint(to, 11, st->state);
    pb_put_varint(to, 12, st->state_why);
    pb_put_varint(to, 13, st->basis);
    pb_put_varint(to, 14, (uint64_t)st->period);
    pb_put_varint(to, 15, st->expected + 1);
    pb_put_varint(to, 16, st->received + 1);
    put_column(to, 17, st->n_lost, at_why, st->lost);
    put_column(to, 18, st->n_lost, at_lost_n, st->lost);
    put_column(to, 19, st->n_lost, at_lost_weight, st->lost);
    put_rows(st, to);
    pb_put_sint(to, 30, st->jitter);
}

static void put_metric(const struct batch_metric *m, struct buf *to)
{
    int64_t from = m->n ? m->t[0].v : 0;

    pb_put_varint(to, 1, m->name);
    pb_put_varint(to, 2, m->unit);
    pb_put_varint(to, 3, m->kind);
    pb_put_varint(to, 4, m->target);
    pb_put_varint(to, 5, m->labels);
    pb_put_varint(to, 6, (uint64_t)from);
    put_times(to, 7, m->n, from, m->t);
    put_doubles(to, 8, m->n, m->num);
    put_column(to, 9, m->inum ? m->n : 0, at_sint, m->inum);
    put_column(to, 10, m->status ? m->n : 0, at_byte, m->status);
}

static void put_steps(const struct batch_steps *s, struct buf *to)
{
    int64_t from = s->n ? s->start[0].v : 0;

    pb_put_varint(to, 1, s->target);
    pb_put_varint(to, 2, s->name);
    pb_put_varint(to, 3, s->inferred);
    put_column(to, 4, s->n, at_u64, s->number);
    pb_put_varint(to, 5, (uint64_t)from);
    put_times(to, 6, s->n, from, s->start);
    put_column(to, 7, s->n, at_u64, s->dur_ns);
    put_u32(to, 8, s->n, s->labels);
    put_u32(to, 9, s->n_part, s->part);
    put_column(to, 10, (size_t)s->n * s->n_part, at_sint, s->part_ns);
    put_u32(to, 11, s->n, s->tid);
}

static void put_event(const struct batch_event *e, struct buf *to)
{
    pb_put_varint(to, 1, (uint64_t)e->t.v);
    pb_put_varint(to, 2, e->kind);
    pb_put_varint(to, 3, e->text);
    pb_put_varint(to, 4, e->target);
}

static void put_clock(const struct batch_clock *c, struct buf *to)
{
    pb_put_varint(to, 1, (uint64_t)c->sent.v);
    pb_put_varint(to, 2, (uint64_t)c->mono.v);
    pb_put_varint(to, 3, (uint64_t)c->real.v);
    pb_put_varint(to, 4, (uint64_t)c->err_ns);
    pb_put_varint(to, 5, c->stepped);
}

/* ---- the batch ----------------------------------------------------------------------------- */

/* What stands in sub becomes field number of out. */
static void put_sub(struct buf *out, uint32_t number, struct buf *sub)
{
    buf_fail(out, sub->failed);
    pb_put_bytes(out, number, buf_view(sub));
    buf_reset(sub);
}

static void put_head(const struct batch *b, struct buf *out, struct buf *sub)
{
    pb_put_varint(out, 1, WIRE_VERSION);
    put_sixteen(out, 2, b->id.agent);
    put_sixteen(out, 3, b->id.boot);
    pb_put_varint(out, 4, b->id.seq);
    if (b->agent_version)
        pb_put_bytes(out, 5, b->str[b->agent_version]);
    put_clock(&b->clock, sub);
    put_sub(out, 6, sub);
    for (uint32_t i = 0; i < b->n_str; i++)
        pb_put_bytes(out, 7, b->str[i]);
    put_labels(out, 8, b->label);
    put_dict(b, sub);
    put_sub(out, 9, sub);
}

static void put_all(const struct batch *b, struct buf *out, struct buf *sub)
{
    put_head(b, out, sub);
    for (uint32_t i = 1; i < b->n_target; i++) {
        put_target(&b->target[i], sub);
        put_sub(out, 10, sub);
    }
    for (uint32_t i = 1; i < b->n_labels; i++) {
        put_labels(sub, 1, b->labels[i]);
        put_sub(out, 11, sub);
    }
    for (uint32_t i = 0; i < b->n_stream; i++) {
        put_stream(&b->stream[i], sub);
        put_sub(out, 12, sub);
    }
    for (uint32_t i = 0; i < b->n_metric; i++) {
        put_metric(&b->metric[i], sub);
        put_sub(out, 13, sub);
    }
    for (uint32_t i = 0; i < b->n_steps; i++) {
        put_steps(&b->steps[i], sub);
        put_sub(out, 14, sub);
    }
    for (uint32_t i = 0; i < b->n_event; i++) {
        put_event(&b->event[i], sub);
        put_sub(out, 15, sub);
    }
    put_column(out, 16, 2 * (size_t)b->n_dropped, at_u64, b->dropped);
}

int wire_encode(const struct batch *b, struct buf *out, uint64_t *ret_content, struct err *err)
{
    size_t start = out->n;
    uint64_t content = b->id.content;
    struct buf sub;

    buf_init(&sub, out->cap);
    put_all(b, out, &sub);
    buf_deinit(&sub);
    if (content == 0 && b->n_known == 0 && !out->failed)
        content = hash_bytes(out->p + start, out->n - start);
    pb_put_fixed64(out, 17, content);
    if (out->failed)
        return err_set(err, -E2BIG, "batch: its encoding does not fit in %zu bytes", out->cap);
    if (ret_content)
        *ret_content = content;
    return 0;
}
