// SPDX-License-Identifier: Apache-2.0
#include "base/pb.h"

#include <endian.h>
#include <errno.h>

#define NUMBER_MAX ((UINT64_C(1) << 29) - 1)

void pb_init(struct pb *p, struct str bytes)
{
    *p = (struct pb){.all = bytes};
}

static int bad(const struct pb *p, size_t at, const char *what, struct err *err)
{
    return err_set(err, -EINVAL, "protobuf: %s at byte %zu of %zu", what, at, p->all.n);
}

/* A varint at p->at; the tenth byte has one bit left. */
static int varint(struct pb *p, uint64_t *ret, struct err *err)
{
    uint64_t v = 0;

    for (size_t i = 0; i < 10; i++) {
        unsigned char c;

        if (p->at + i >= p->all.n)
            return bad(p, p->at, "varint past the end", err);
        c = (unsigned char)p->all.p[p->at + i];
        if (i == 9 && c > 1)
            break;
        v |= (uint64_t)(c & 0x7f) << (7 * i);
        if (c < 0x80) {
            p->at += i + 1;
            *ret = v;
            return 0;
        }
    }
    return bad(p, p->at, "varint longer than 64 bits", err);
}

static int fixed(struct pb *p, size_t n, uint64_t *ret, struct err *err)
{
    uint64_t le = 0;

    if (p->all.n - p->at < n)
        return bad(p, p->at, "fixed number past the end", err);
    memcpy(&le, p->all.p + p->at, n);
    *ret = le64toh(le);
    p->at += n;
    return 0;
}

int pb_next(struct pb *p, struct pb_field *ret, struct err *err)
{
    struct pb_field f = {};
    size_t start = p->at;
    uint64_t tag;

    if (p->at >= p->all.n)
        return 1;
    TRY(varint(p, &tag, err));
    if (tag >> 3 == 0 || tag >> 3 > NUMBER_MAX)
        return bad(p, start, "field number out of range", err);
    f.number = (uint32_t)(tag >> 3);
    switch (tag & 7) {
    case PB_VARINT:
        f.wire = PB_VARINT;
        TRY(varint(p, &f.v, err));
        break;
    case PB_I64:
        f.wire = PB_I64;
        TRY(fixed(p, 8, &f.v, err));
        break;
    case PB_LEN:
        f.wire = PB_LEN;
        TRY(varint(p, &f.v, err));
        if (f.v > p->all.n - p->at)
            return bad(p, start, "length past the end", err);
        f.s = (struct str){p->all.p + p->at, (size_t)f.v};
        p->at += f.s.n;
        f.v = 0;
        break;
    case PB_I32:
        f.wire = PB_I32;
        TRY(fixed(p, 4, &f.v, err));
        break;
    default:
        return bad(p, start, "wire type that is not used", err);
    }
    *ret = f;
    return 0;
}

int pb_packed(struct pb *p, uint64_t *ret, struct err *err)
{
    if (p->at >= p->all.n)
        return 1;
    return varint(p, ret, err);
}

/* ---- writer -------------------------------------------------------------------------------- */

void pb_put_tag(struct buf *b, uint32_t number, enum pb_wire wire)
{
    pb_put_raw_varint(b, (uint64_t)number << 3 | wire);
}

void pb_put_raw_varint(struct buf *b, uint64_t v)
{
    char bytes[10];
    size_t n = 0;

    while (v >= 0x80) {
        bytes[n++] = (char)(unsigned char)(v | 0x80);
        v >>= 7;
    }
    bytes[n++] = (char)v;
    buf_add(b, bytes, n);
}

void pb_put_varint(struct buf *b, uint32_t number, uint64_t v)
{
    if (v == 0)
        return;
    pb_put_tag(b, number, PB_VARINT);
    pb_put_raw_varint(b, v);
}

void pb_put_sint(struct buf *b, uint32_t number, int64_t v)
{
    pb_put_varint(b, number, pb_zag(v));
}

void pb_put_fixed64(struct buf *b, uint32_t number, uint64_t v)
{
    if (v == 0)
        return;
    pb_put_tag(b, number, PB_I64);
    buf_le64(b, v);
}

void pb_put_bytes(struct buf *b, uint32_t number, struct str s)
{
    pb_put_tag(b, number, PB_LEN);
    pb_put_raw_varint(b, s.n);
    buf_str(b, s);
}
