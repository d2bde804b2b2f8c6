// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/str.h"

/*
 * Protobuf fields, one at a time (protobuf encoding specification, proto3): bounded, no recursion,
 * no allocation. The caller descends by opening a field's bytes with pb_init(). Groups, field
 * number 0, numbers above 2^29 - 1, varints longer than 10 bytes and lengths past the end are
 * -EINVAL with what and where (byte offset). Thread: any.
 */
enum pb_wire {
    PB_VARINT = 0,
    PB_I64 = 1,
    PB_LEN = 2,
    PB_I32 = 5,
};

struct pb {
    struct str all;
    size_t at;
};

struct pb_field {
    uint32_t number;
    enum pb_wire wire;
    uint64_t v;   /* PB_VARINT, PB_I64, PB_I32 */
    struct str s; /* PB_LEN */
};

void pb_init(struct pb *p, struct str bytes);

/* The next field: 0 and *ret set; 1 at the end; -EINVAL. */
[[nodiscard]] int pb_next(struct pb *p, struct pb_field *ret, struct err *err);

/* The next varint of a packed run (p was opened on it): 0, 1 at the end, -EINVAL. */
[[nodiscard]] int pb_packed(struct pb *p, uint64_t *ret, struct err *err);

static inline int64_t pb_zigzag(uint64_t v)
{
    return (int64_t)(v >> 1) ^ -(int64_t)(v & 1);
}

/* The other way round. */
static inline uint64_t pb_zag(int64_t v)
{
    return (uint64_t)v << 1 ^ (uint64_t)(v >> 63);
}

/* Writer: appends to a buf. Messages are built inside out, or over a second buf. */
void pb_put_tag(struct buf *b, uint32_t number, enum pb_wire wire);
void pb_put_raw_varint(struct buf *b, uint64_t v);
void pb_put_varint(struct buf *b, uint32_t number, uint64_t v);  /* left out where 0 */
void pb_put_sint(struct buf *b, uint32_t number, int64_t v);     /* zigzag; left out where 0 */
void pb_put_fixed64(struct buf *b, uint32_t number, uint64_t v); /* left out where 0 */
void pb_put_bytes(struct buf *b, uint32_t number, struct str s); /* written where empty too */
