// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/buf.h"

/*
 * How numbers become bytes in parts and dictionaries (docs/format-shard.md): varints, cells,
 * planes, rank coding. Pure functions; any thread, a coder belongs to one.
 *
 *   varint  LEB128, shortest form only, at most 10 bytes; signed numbers as zigzag
 *   cell    codec u8 (enum cell_codec), raw length varint, stored length varint, bytes
 *   planes  u8 width, then for each byte of the numbers, lowest first, a cell
 *   rank    numbers below d <= 65,536 in two planes: what is common gets a byte of its own
 */
enum cell_codec {
    CELL_RAW = 0,
    CELL_ZSTD = 1,
};

/* What the encoder tries: not at all, or zstd at that level. */
enum cell_level {
    CELL_STORE = 0,
    CELL_FAST = 1, /* columns */
    CELL_TEXT = 3, /* strings: 5 % smaller, no slower */
};

/* zstd's working memory, made at first use. A zeroed one is empty. */
struct cell_coder {
    void *pack, *unpack;
    struct buf tmp, plane;
    bool no_memory; /* tells a NULL for want of memory from one for damage; stays set */
};

void cell_coder_init(struct cell_coder *c);
void cell_coder_deinit(struct cell_coder *c);

/* ---- bytes out: failures stay in the buf ---- */

#define CELL_VARINT_MAX 10

void cell_varint(struct buf *b, uint64_t v);
/* The same into room for CELL_VARINT_MAX bytes; returns the end. */
static inline uint8_t *cell_varint_to(uint8_t *p, uint64_t v)
{
    for (; v >= 0x80; v >>= 7)
        *p++ = (uint8_t)(v | 0x80);
    *p++ = (uint8_t)v;
    return p;
}
static inline uint64_t cell_zigzag(int64_t v)
{
    return (uint64_t)v << 1 ^ (uint64_t)(v >> 63);
}
static inline int64_t cell_unzigzag(uint64_t v)
{
    return (int64_t)(v >> 1 ^ -(v & 1));
}

/* The bytes of a cell alone; codec and stored length go where the caller keeps them. */
void cell_write(struct cell_coder *c, struct buf *b, const void *raw, size_t n,
                enum cell_level level, enum cell_codec *ret_codec, size_t *ret_stored);
/* With its header. */
void cell_put(struct cell_coder *c, struct buf *b, const void *raw, size_t n,
              enum cell_level level);
/* n numbers of 8 bytes, or of 16, low half first. */
void cell_put_planes(struct cell_coder *c, struct buf *b, const uint64_t *v, uint32_t n);
void cell_put_planes_wide(struct cell_coder *c, struct buf *b, const uint64_t (*v)[2], uint32_t n);

/* ---- bytes in: reading past the end, or a varint that is not the shortest, sets bad, yields 0 */

struct cell_in {
    const uint8_t *p, *end;
    bool bad;
};

static inline struct cell_in cell_in(const void *p, size_t n)
{
    const uint8_t *from = p ? p : (const void *)"";

    return (struct cell_in){from, from + (p ? n : 0), false};
}
static inline bool cell_at_end(const struct cell_in *in)
{
    return !in->bad && in->p == in->end;
}
uint64_t cell_get_varint(struct cell_in *in);
uint64_t cell_get_fixed(struct cell_in *in, size_t bytes);   /* up to 8 */
const uint8_t *cell_get_bytes(struct cell_in *in, size_t n); /* NULL when short */

/*
 * Stored bytes to exactly n raw ones: in place if raw, else in scratch, which is grown for it; its
 * bytes stay until scratch is used again. n must be bounded by the caller. NULL: damage, or
 * c->no_memory. n may be 0: not NULL.
 */
const uint8_t *cell_read(struct cell_coder *c, uint32_t codec, const uint8_t *stored,
                         size_t n_stored, size_t n, struct buf *scratch);
/* What cell_put wrote, at most max bytes raw. */
const uint8_t *cell_get(struct cell_coder *c, struct cell_in *in, size_t max, struct buf *scratch,
                        size_t *ret_n);
/* What cell_put_planes wrote; width above 8: false. _wide: what either wrote, two words each. */
[[nodiscard]] bool cell_get_planes(struct cell_coder *c, struct cell_in *in, uint32_t n,
                                   uint64_t *ret, struct buf *scratch);
[[nodiscard]] bool cell_get_planes_wide(struct cell_coder *c, struct cell_in *in, uint32_t n,
                                        uint64_t (*ret)[2], struct buf *scratch);

/* ---- rank coding ---- */

#define RANK_MAX 65536u
/* What plane one and two can say exceeds d - 1 by less than this. */
#define RANK_SLACK 256u

struct rank_table {
    uint32_t base[256];
    uint32_t mask[256]; /* 255 where a byte of plane two follows */
};

void rank_table(struct rank_table *t, uint32_t d);
/* Fills one[n], two[n + 1]; returns the length of plane two. x[i] < d. */
uint32_t rank_split(const uint32_t *x, uint32_t n, uint32_t d, uint8_t *one, uint8_t *two);
/* How long plane two has to be. */
uint32_t rank_followed(const uint8_t *one, uint32_t n, uint32_t d);
/* Back again; two has the length that rank_followed says. ret[i] < d + RANK_SLACK: check. */
void rank_join(const uint8_t *one, const uint8_t *two, uint32_t n, uint32_t d, uint32_t *ret);
