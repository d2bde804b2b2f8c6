// SPDX-License-Identifier: Apache-2.0
/* Writing summaries, and collecting those of blocks for an hsum. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "storage/part/coder_private.h"

/* Places of the entries by falling row frequency, ties by rising node. */
static uint64_t *by_frequency(struct block_coder *c, const struct sum_entry *v, uint32_t n)
{
    uint64_t *a = CODER_ARRAY(c, ARRAY_WRITE_PAIR, uint64_t, n);
    uint64_t *b = CODER_ARRAY(c, ARRAY_WRITE_PAIR2, uint64_t, n);

    if (!a || !b)
        return NULL;
    for (uint32_t i = 0; i < n; i++)
        a[i] = (uint64_t)~v[i].freq << 32 | i;
    return sort_u64(a, b, n, 32);
}

/* V with sum = count x V in every entry, or false. */
static bool factor_of(const struct sum_entry *v, uint32_t n, int64_t *ret)
{
    unit_i128 f = 0;
    uint32_t i = 0;

    while (i < n && v[i].count == 0)
        i++;
    if (i < n)
        f = v[i].sum / (unit_i128)v[i].count;
    if (f != (int64_t)f)
        return false;
    for (i = 0; i < n; i++)
        if (v[i].sum != f * (unit_i128)v[i].count)
            return false;
    *ret = (int64_t)f;
    return true;
}

struct gaps {
    uint32_t groups, largest, many;
    uint32_t *x;
};

/* Varints of the groups to c->directory, escapes to c->bytes, gaps to g->x. */
static void make_groups(struct block_coder *c, const struct sum_entry *v, const uint64_t *order,
                        uint32_t n, struct gaps *g)
{
    uint32_t last = 0;

    buf_reset(&c->directory);
    buf_reset(&c->bytes);
    for (uint32_t i = 0, end; i < n; i = end) {
        uint32_t next = 0, freq = v[(uint32_t)order[i]].freq;

        for (end = i; end < n && v[(uint32_t)order[end]].freq == freq; end++) {
            uint32_t node = v[(uint32_t)order[end]].node, gap = node - next;

            next = node + 1;
            if (gap >= RANK_ESCAPE) {
                buf_le32(&c->bytes, gap);
                gap = RANK_ESCAPE;
            }
            g->x[end] = gap;
            g->largest = gap > g->largest ? gap : g->largest;
        }
        cell_varint(&c->directory, i ? last - freq : freq);
        cell_varint(&c->directory, end - i);
        last = freq;
        g->groups++;
        if (freq > 1)
            g->many = end;
    }
}

static uint32_t flags_of(const struct sum_entry *v, uint32_t n, int64_t *ret_v)
{
    uint32_t flags = 0;

    for (uint32_t i = 0; i < n; i++) {
        if (v[i].count != v[i].freq)
            flags |= BLOCK_COUNTS;
        if (!isnan(v[i].var))
            flags |= BLOCK_VARIANCES;
    }
    *ret_v = 0;
    if (!factor_of(v, n, ret_v))
        flags |= BLOCK_SUMS;
    return flags;
}

/* Planes of counts, sums, variances. */
static bool put_planes(struct block_coder *c, const struct sum_entry *v, const uint64_t *order,
                       uint32_t n, uint32_t flags, struct buf *out)
{
    uint64_t(*x)[2] = coder_room(&c->array[ARRAY_WRITE_PLANES], n, sizeof *x);
    uint64_t *one = x ? x[0] : NULL;

    if (!x)
        return false;
    if (flags & BLOCK_COUNTS) {
        for (uint32_t i = 0; i < n; i++)
            one[i] = v[(uint32_t)order[i]].count;
        cell_put_planes(&c->cell, out, one, n);
    }
    if (flags & BLOCK_SUMS) {
        for (uint32_t i = 0; i < n; i++)
            zigzag_wide(v[(uint32_t)order[i]].sum, x[i]);
        cell_put_planes_wide(&c->cell, out, x, n);
    }
    if (flags & BLOCK_VARIANCES) {
        for (uint32_t i = 0; i < n; i++) {
            double d = v[(uint32_t)order[i]].var;

            memcpy(&one[i], &d, sizeof d);
            one[i] = isnan(d) ? 0 : one[i] ^ VAR_UNKNOWN_WIDE;
        }
        cell_put_planes(&c->cell, out, one, n);
    }
    return true;
}

int sum_write(struct block_coder *c, const struct sum_entry *v, uint32_t n, struct buf *out,
              uint32_t *rank, uint32_t *ret_flags, uint32_t *ret_many, struct err *err)
{
    struct gaps g = {.x = CODER_ARRAY(c, ARRAY_WRITE_NUMBER, uint32_t, n)};
    const uint64_t *order = by_frequency(c, v, n);
    uint8_t *one = coder_room(&c->scratch[0], n, 1), *two = coder_room(&c->scratch[1], n, 1);
    int64_t factor;
    uint32_t m;

    if (!g.x || !order || !one || !two)
        return coder_no_memory(err);
    make_groups(c, v, order, n, &g);
    *ret_flags = flags_of(v, n, &factor);
    *ret_many = g.many;
    buf_chr(out, (char)*ret_flags);
    cell_varint(out, cell_zigzag(factor));
    cell_varint(out, n);
    cell_varint(out, g.groups);
    cell_varint(out, g.largest);
    cell_put(&c->cell, out, c->directory.p, c->directory.n, CELL_FAST);
    m = rank_split(g.x, n, g.largest + 1, one, two);
    cell_put(&c->cell, out, one, n, CELL_FAST);
    cell_put(&c->cell, out, two, m, CELL_FAST);
    cell_put(&c->cell, out, c->bytes.p, c->bytes.n, CELL_FAST);
    if (!put_planes(c, v, order, n, *ret_flags, out) || c->directory.failed || c->bytes.failed)
        return coder_no_memory(err);
    TRY(buf_check(out, "block: summary", err));
    for (uint32_t i = 0; rank && i < n; i++)
        rank[(uint32_t)order[i]] = i;
    return 0;
}

/* ---- hsum ---------------------------------------------------------------------------------- */

void sum_set_init(struct sum_set *s)
{
    *s = (struct sum_set){};
}

void sum_set_deinit(struct sum_set *s)
{
    free(s->v);
    *s = (struct sum_set){};
}

void sum_set_reset(struct sum_set *s)
{
    s->n = 0;
}

static bool grow(struct sum_set *s, uint64_t n)
{
    uint64_t room = s->room ? s->room : 4096;
    struct sum_entry *v;

    if (n <= s->room)
        return true;
    while (room < n)
        room *= 2;
    if (room > UINT32_MAX || mem_fail_now())
        return false;
    v = reallocarray(s->v, room, sizeof *v);
    if (!v)
        return false;
    s->v = v;
    s->room = (uint32_t)room;
    return true;
}

int sum_set_add(struct sum_set *s, const struct summary *block, struct err *err)
{
    if ((uint64_t)s->n + block->n > s->room)
        TRY(sum_set_merge(s, err)); /* most nodes are there already */
    if (!grow(s, (uint64_t)s->n + block->n))
        return coder_no_memory(err);
    for (uint32_t i = 0; i < block->n; i++)
        s->v[s->n++] = (struct sum_entry){.node = block->node[i],
                                          .freq = block->freq[i],
                                          .count = block->count ? block->count[i] : block->freq[i],
                                          .sum = summary_sum(block, i),
                                          .var = block->var ? block->var[i] : (double)NAN};
    return 0;
}

int sum_set_merge(struct sum_set *s, struct err *err)
{
    uint64_t *a = s->n ? calloc(2 * (size_t)s->n, sizeof *a) : NULL, *order;
    struct sum_entry *v = s->n ? calloc(s->room, sizeof *v) : NULL;
    uint32_t n = 0;

    if (s->n == 0)
        return 0;
    if (!a || !v || mem_fail_now()) {
        free(a);
        free(v);
        return coder_no_memory(err);
    }
    for (uint32_t i = 0; i < s->n; i++)
        a[i] = (uint64_t)s->v[i].node << 32 | i;
    order = sort_u64(a, a + s->n, s->n, 32);
    for (uint32_t i = 0; i < s->n; i++) {
        const struct sum_entry *e = &s->v[(uint32_t)order[i]];
        struct sum_entry *last = n ? &v[n - 1] : NULL;

        if (!last || last->node != e->node) {
            v[n++] = *e;
            continue;
        }
        last->freq += e->freq;
        last->count += e->count;
        last->sum += e->sum;
        last->var += e->var; /* one that is unknown makes it so */
    }
    free(a);
    free(s->v);
    s->v = v;
    s->n = n;
    return 0;
}

int sum_set_encode(struct block_coder *c, const struct sum_set *s, struct buf *out,
                   uint32_t *ret_flags, struct err *err)
{
    uint32_t many;

    if (s->n == 0)
        return err_set(err, -EINVAL, "hsum: no rows");
    return sum_write(c, s->v, s->n, out, NULL, ret_flags, &many, err);
}
