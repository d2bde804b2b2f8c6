// SPDX-License-Identifier: Apache-2.0
/*
 * Varints, cells, planes, rank coding: cell_private.h, docs/format-shard.md.
 *
 * Rank coding of x < d: K = 0 if d <= 256, else ceil((d - 256) / 255); T = 256 - K. Plane one holds
 * x for x < T, else T + (x - T) / 256; plane two, only for the latter, the low byte of x - T. The
 * low byte of the rest is noise: it stays out of the entropy code, and reading needs no branch.
 */
#include <endian.h>
#include <string.h>
#include <zstd.h>

#include "storage/file/cell_private.h"

#define CELL_TRY_MIN   16 /* below, zstd's own header is what it could save */
#define CELL_MIN_MATCH 7
#define TMP_CAP        ((size_t)1 << 30)
#define STRIDE         128 /* rows that are counted in a byte */

void cell_coder_init(struct cell_coder *c)
{
    *c = (struct cell_coder){};
    buf_init(&c->tmp, TMP_CAP);
    buf_init(&c->plane, TMP_CAP);
}

void cell_coder_deinit(struct cell_coder *c)
{
    (void)ZSTD_freeCCtx(c->pack);
    (void)ZSTD_freeDCtx(c->unpack);
    buf_deinit(&c->tmp);
    buf_deinit(&c->plane);
    *c = (struct cell_coder){};
}

/* ---- out ----------------------------------------------------------------------------------- */

void cell_varint(struct buf *b, uint64_t v)
{
    char *p = buf_reserve(b, CELL_VARINT_MAX);

    if (p)
        buf_commit(b, (size_t)(cell_varint_to((uint8_t *)p, v) - (uint8_t *)p));
}

/* Bytes that zstd made at p, or 0: it is no help. */
static size_t squeeze(struct cell_coder *c, char *p, size_t room, const void *raw, size_t n,
                      enum cell_level level)
{
    ZSTD_CCtx *z = c->pack;
    size_t got;

    if (!z)
        z = c->pack = ZSTD_createCCtx();
    if (!z)
        return 0;
    (void)ZSTD_CCtx_reset(z, ZSTD_reset_session_and_parameters);
    (void)ZSTD_CCtx_setParameter(z, ZSTD_c_compressionLevel, (int)level);
    if (level == CELL_FAST)
        (void)ZSTD_CCtx_setParameter(z, ZSTD_c_minMatch, CELL_MIN_MATCH);
    (void)ZSTD_CCtx_setParameter(z, ZSTD_c_contentSizeFlag, 0);
    got = ZSTD_compress2(z, p, room, raw, n);
    return ZSTD_isError(got) || got > n - (n * 3 + 99) / 100 ? 0 : got;
}

void cell_write(struct cell_coder *c, struct buf *b, const void *raw, size_t n,
                enum cell_level level, enum cell_codec *ret_codec, size_t *ret_stored)
{
    size_t got = 0;

    if (level != CELL_STORE && n > CELL_TRY_MIN) {
        size_t room = ZSTD_compressBound(n);
        char *p = buf_reserve(b, room);

        got = p ? squeeze(c, p, room, raw, n, level) : 0;
        buf_commit(b, got);
    }
    *ret_codec = got ? CELL_ZSTD : CELL_RAW;
    *ret_stored = got ? got : n;
    if (!got)
        buf_add(b, raw, n);
}

void cell_put(struct cell_coder *c, struct buf *b, const void *raw, size_t n, enum cell_level level)
{
    enum cell_codec codec;
    size_t stored;

    buf_reset(&c->tmp);
    cell_write(c, &c->tmp, raw, n, level, &codec, &stored);
    buf_fail(b, c->tmp.failed);
    buf_chr(b, (char)codec);
    cell_varint(b, n);
    cell_varint(b, stored);
    buf_add(b, c->tmp.p, c->tmp.n);
}

static uint32_t width_of(uint64_t all)
{
    return (uint32_t)(71 - __builtin_clzll(all | 1)) / 8 - (all == 0);
}

/* Bytes k of the numbers, `step` words apart. */
static void put_plane(struct cell_coder *c, struct buf *b, const uint64_t *v, uint32_t n,
                      uint32_t step, uint32_t k)
{
    uint8_t *p;

    buf_reset(&c->plane);
    p = (uint8_t *)buf_reserve(&c->plane, n);
    if (!p) {
        buf_fail(b, c->plane.failed);
        return;
    }
    for (uint32_t i = 0; i < n; i++)
        p[i] = (uint8_t)(v[(size_t)i * step] >> (8 * k));
    cell_put(c, b, p, n, CELL_FAST);
}

void cell_put_planes(struct cell_coder *c, struct buf *b, const uint64_t *v, uint32_t n)
{
    uint64_t all = 0;
    uint32_t width;

    for (uint32_t i = 0; i < n; i++)
        all |= v[i];
    width = width_of(all);
    buf_chr(b, (char)width);
    for (uint32_t k = 0; k < width; k++)
        put_plane(c, b, v, n, 1, k);
}

void cell_put_planes_wide(struct cell_coder *c, struct buf *b, const uint64_t (*v)[2], uint32_t n)
{
    uint64_t low = 0, high = 0;
    uint32_t width;

    for (uint32_t i = 0; i < n; i++) {
        low |= v[i][0];
        high |= v[i][1];
    }
    width = high ? 8 + width_of(high) : width_of(low);
    buf_chr(b, (char)width);
    for (uint32_t k = 0; k < width && n > 0; k++)
        put_plane(c, b, &v[0][k / 8], n, 2, k % 8);
}

/* ---- in ------------------------------------------------------------------------------------ */

uint64_t cell_get_varint(struct cell_in *in)
{
    uint64_t v = 0;

    for (unsigned shift = 0; shift < 64 && in->p < in->end; shift += 7) {
        uint8_t byte = *in->p++;

        v |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) {
            if ((byte == 0 && shift) || (shift == 63 && byte > 1))
                break; /* not the shortest form, or more than 64 bits */
            return v;
        }
    }
    in->bad = true;
    in->p = in->end;
    return 0;
}

const uint8_t *cell_get_bytes(struct cell_in *in, size_t n)
{
    if ((size_t)(in->end - in->p) < n) {
        in->bad = true;
        return NULL;
    }
    in->p += n;
    return in->p - n;
}

uint64_t cell_get_fixed(struct cell_in *in, size_t bytes)
{
    uint64_t v = 0;
    const uint8_t *p = cell_get_bytes(in, bytes);

    if (p)
        memcpy(&v, p, bytes);
    return le64toh(v);
}

const uint8_t *cell_read(struct cell_coder *c, uint32_t codec, const uint8_t *stored,
                         size_t n_stored, size_t n, struct buf *scratch)
{
    char *p;

    if (!stored || codec > CELL_ZSTD)
        return NULL;
    if (codec == CELL_RAW)
        return n_stored == n ? stored : NULL;
    if (!c->unpack)
        c->unpack = ZSTD_createDCtx();
    buf_reset(scratch);
    p = buf_reserve(scratch, n + 1); /* never nothing: not NULL */
    if (!p || !c->unpack) {
        c->no_memory = true;
        return NULL;
    }
    return ZSTD_decompressDCtx(c->unpack, p, n, stored, n_stored) == n ? (uint8_t *)p : NULL;
}

const uint8_t *cell_get(struct cell_coder *c, struct cell_in *in, size_t max, struct buf *scratch,
                        size_t *ret_n)
{
    uint32_t codec = (uint32_t)cell_get_fixed(in, 1);
    uint64_t n = cell_get_varint(in), stored = cell_get_varint(in);
    const uint8_t *p = in->bad ? NULL : cell_get_bytes(in, stored);

    if (!p || n > max)
        return NULL;
    *ret_n = n;
    return cell_read(c, codec, p, stored, n, scratch);
}

static bool get_planes(struct cell_coder *c, struct cell_in *in, uint32_t n, uint32_t words,
                       uint64_t *ret, struct buf *scratch)
{
    uint32_t width = (uint32_t)cell_get_fixed(in, 1);

    if (in->bad || width > 8 * words)
        return false;
    memset(ret, 0, (size_t)n * words * sizeof *ret);
    for (uint32_t k = 0; k < width; k++) {
        uint64_t *to = ret + k / 8;
        uint32_t shift = k % 8 * 8;
        size_t got;
        const uint8_t *p = cell_get(c, in, n, scratch, &got);

        if (!p || got != n)
            return false;
        for (uint32_t i = 0; i < n; i++)
            to[(size_t)i * words] |= (uint64_t)p[i] << shift;
    }
    return true;
}

bool cell_get_planes(struct cell_coder *c, struct cell_in *in, uint32_t n, uint64_t *ret,
                     struct buf *scratch)
{
    return get_planes(c, in, n, 1, ret, scratch);
}

bool cell_get_planes_wide(struct cell_coder *c, struct cell_in *in, uint32_t n, uint64_t (*ret)[2],
                          struct buf *scratch)
{
    return get_planes(c, in, n, 2, &ret[0][0], scratch);
}

/* ---- rank coding --------------------------------------------------------------------------- */

/* How many numbers have a byte of their own. */
static uint32_t literals(uint32_t d)
{
    return 256 - (d <= 256 ? 0 : (d - 256 + 254) / 255);
}

uint32_t rank_split(const uint32_t *x, uint32_t n, uint32_t d, uint8_t *one, uint8_t *two)
{
    uint32_t t = literals(d), j = 0;

    if (d <= 256) {
        for (uint32_t i = 0; i < n; i++)
            one[i] = (uint8_t)x[i];
        return 0;
    }
    for (uint32_t i = 0; i < n; i++) {
        uint32_t over = x[i] - t;
        bool is = x[i] >= t;

        one[i] = (uint8_t)(is ? t + (over >> 8) : x[i]);
        two[j] = (uint8_t)over; /* overwritten unless it counts */
        j += is;
    }
    return j;
}

void rank_table(struct rank_table *t, uint32_t d)
{
    uint32_t own = literals(d);

    for (uint32_t b = 0; b < 256; b++) {
        t->base[b] = b < own ? b : own + (b - own) * 256;
        t->mask[b] = b < own ? 0 : 255;
    }
}

uint32_t rank_followed(const uint8_t *one, uint32_t n, uint32_t d)
{
    uint32_t t = literals(d), sum = 0, i = 0;

    if (t == 256)
        return 0;
    for (uint8_t own = (uint8_t)t; n - i >= STRIDE; i += STRIDE) {
        const uint8_t *p = one + i;
        uint8_t part = 0;

        for (int k = 0; k < STRIDE; k++) /* 16 to a vector */
            part = (uint8_t)(part + (p[k] >= own));
        sum += part;
    }
    for (; i < n; i++)
        sum += one[i] >= t;
    return sum;
}

void rank_join(const uint8_t *one, const uint8_t *two, uint32_t n, uint32_t d, uint32_t *ret)
{
    struct rank_table t;
    uint32_t j = 0, last = n;

    if (d <= 256) {
        for (uint32_t i = 0; i < n; i++)
            ret[i] = one[i];
        return;
    }
    rank_table(&t, d);
    while (last > 0 && !t.mask[one[last - 1]])
        last--;
    for (uint32_t i = 0; i < last; i++) { /* no branch: which bytes are followed is noise */
        uint32_t mask = t.mask[one[i]];

        ret[i] = t.base[one[i]] + (two[j] & mask);
        j += mask & 1;
    }
    for (uint32_t i = last; i < n; i++) /* behind the end of two nothing is read */
        ret[i] = t.base[one[i]];
}
