// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <stdio.h>

#include "base/pb.h"
#include "proto/wire.h"

/* A reply that is longer than this is not ours. */
#define REPLY_MAX ((size_t)64 << 10)

/* value of a refusal: what an int64 may not hold, so a decimal text */
static struct str decimal(unit_i128 v, char ret[static 48])
{
    __extension__ unsigned __int128 u = (unsigned __int128)v;
    size_t at = 48;

    if (v < 0)
        u = -u;
    do {
        ret[--at] = (char)('0' + (unsigned)(u % 10));
        u /= 10;
    } while (u > 0);
    if (v < 0)
        ret[--at] = '-';
    return (struct str){ret + at, 48 - at};
}

static void put_reject(const struct wire_reject *r, struct buf *to)
{
    char digits[48];

    pb_put_bytes(to, 1, str_c(r->reason));
    pb_put_varint(to, 2, r->stream);
    pb_put_varint(to, 3, r->rows);
    pb_put_bytes(to, 4, decimal(r->value, digits));
}

void wire_reply_encode(const struct wire_reply *r, struct buf *out)
{
    char bytes[256];
    uint32_t n = r->rejects ? r->rejects->n : 0;

    pb_put_varint(out, 1, r->seq);
    pb_put_varint(out, 2, r->status);
    pb_put_varint(out, 3, r->lsn);
    for (uint32_t i = 0; i < n; i++) {
        struct buf sub = {.p = bytes, .room = sizeof bytes, .cap = sizeof bytes};

        put_reject(&r->rejects->v[i], &sub);
        pb_put_bytes(out, 4, buf_view(&sub));
    }
    pb_put_varint(out, 5, (uint64_t)r->server.v);
    pb_put_varint(out, 6, r->max_bytes);
    pb_put_varint(out, 7, r->min_interval_ms);
}

static int wrong(struct err *err, const char *what, uint32_t number)
{
    return err_set(err, -EINVAL, "answer: %s field %u", what, number);
}

/* Rows of one refusal, added to *rows. */
static int reject_rows(struct str bytes, uint64_t *rows, struct err *err)
{
    struct pb_field f;
    struct pb p;
    int r;

    pb_init(&p, bytes);
    for (;;) {
        TRY_OUTCOME(r, pb_next(&p, &f, err));
        if (r == 1)
            return 0;
        if (f.number != 3)
            continue;
        if (f.wire != PB_VARINT)
            return wrong(err, "refusal", 3);
        if (__builtin_add_overflow(*rows, f.v, rows))
            *rows = UINT64_MAX;
    }
}

static int reply_field(struct wire_reply *r, const struct pb_field *f, struct err *err)
{
    enum pb_wire want = f->number == 4 || f->number == 8 ? PB_LEN : PB_VARINT;

    if (f->number < 1 || f->number > 8)
        return 0; /* of a newer server */
    if (f->wire != want)
        return wrong(err, "wire type of", f->number);
    switch (f->number) {
    case 1:
        r->seq = f->v;
        break;
    case 2:
        if (f->v != WIRE_STORED && f->v != WIRE_DUPLICATE)
            return wrong(err, "unknown status in", 2);
        r->status = f->v == WIRE_STORED ? WIRE_STORED : WIRE_DUPLICATE;
        break;
    case 3:
        r->lsn = f->v;
        break;
    case 4:
        return reject_rows(f->s, &r->rejected_rows, err);
    case 5:
        r->server.v = (int64_t)f->v;
        break;
    case 6:
        r->max_bytes = f->v;
        break;
    case 7:
        r->min_interval_ms = f->v > UINT32_MAX ? UINT32_MAX : (uint32_t)f->v;
        break;
    default: /* 8, asks: of no kind that we know */
        break;
    }
    return 0;
}

int wire_reply_decode(struct str in, struct wire_reply *ret, struct err *err)
{
    struct wire_reply reply = {};
    struct pb_field f;
    struct pb p;
    int r;

    if (in.n > REPLY_MAX)
        return err_set(err, -EINVAL, "answer: %zu bytes, at most %zu", in.n, REPLY_MAX);
    pb_init(&p, in);
    for (;;) {
        TRY_OUTCOME(r, pb_next(&p, &f, err));
        if (r == 1)
            break;
        TRY(reply_field(&reply, &f, err));
    }
    if (!reply.status)
        return wrong(err, "no status in", 2);
    *ret = reply;
    return 0;
}

/* ---- errors -------------------------------------------------------------------------------- */

static void put_text(struct buf *out, uint32_t number, const char *s)
{
    if (s[0])
        pb_put_bytes(out, number, str_c(s));
}

void wire_error_encode(const struct wire_error *e, struct buf *out)
{
    put_text(out, 1, e->reason);
    put_text(out, 2, e->message);
    put_text(out, 3, e->setting);
    pb_put_varint(out, 4, e->limit);
    pb_put_varint(out, 5, e->actual);
    pb_put_varint(out, 6, e->retry_after_ms);
}

static void get_text(struct str s, char *to, size_t room)
{
    s = str_to(s, room - 1);
    if (s.n > 0)
        memcpy(to, s.p, s.n);
    to[s.n] = '\0';
}

static int error_field(struct wire_error *e, const struct pb_field *f, struct err *err)
{
    if (f->number < 1 || f->number > 6)
        return 0;
    if (f->wire != (f->number <= 3 ? PB_LEN : PB_VARINT))
        return wrong(err, "wire type of", f->number);
    switch (f->number) {
    case 1:
        get_text(f->s, e->reason, sizeof e->reason);
        break;
    case 2:
        get_text(f->s, e->message, sizeof e->message);
        break;
    case 3:
        get_text(f->s, e->setting, sizeof e->setting);
        break;
    case 4:
        e->limit = f->v;
        break;
    case 5:
        e->actual = f->v;
        break;
    default:
        e->retry_after_ms = f->v > UINT32_MAX ? UINT32_MAX : (uint32_t)f->v;
        break;
    }
    return 0;
}

int wire_error_decode(struct str in, struct wire_error *ret, struct err *err)
{
    struct wire_error e = {};
    struct pb_field f;
    struct pb p;
    int r;

    if (in.n > REPLY_MAX)
        return err_set(err, -EINVAL, "answer: %zu bytes, at most %zu", in.n, REPLY_MAX);
    pb_init(&p, in);
    for (;;) {
        TRY_OUTCOME(r, pb_next(&p, &f, err));
        if (r == 1)
            break;
        TRY(error_field(&e, &f, err));
    }
    if (!e.reason[0])
        return wrong(err, "no reason in", 1);
    *ret = e;
    return 0;
}
