// SPDX-License-Identifier: Apache-2.0
/*
 * Summaries: node -> (rows, count, sum, variance) of a block or of an hsum.
 *
 *   u8 flags; zigzag varint V; varints n, groups, largest gap; then cells:
 *   groups  of equal row frequency, falling: frequency (first) or by how much less; size: varints
 *   gap     to the node before in the group - 1 (first: the node): rank coding, d = largest + 1;
 *           65,535 is an escape
 *   escapes u32 each
 *   planes  of counts, of zigzag(sum), of variances, as flagged
 */
#include <errno.h>
#include <string.h>

#include "storage/part/coder_private.h"

struct group_in {
    uint32_t n, groups, largest;
    struct cell_in head, escape, rest;
    const uint8_t *one, *two;
};

static bool open_cells(struct block_coder *c, struct str bytes, uint32_t n_node,
                       struct summary *ret, struct group_in *g)
{
    struct cell_in in = cell_in(bytes.p, bytes.n);
    uint64_t n, groups, largest;
    const uint8_t *head, *escape;
    size_t got = 0, m = 0;

    ret->flags = (uint32_t)cell_get_fixed(&in, 1);
    ret->v = cell_unzigzag(cell_get_varint(&in));
    n = cell_get_varint(&in);
    groups = cell_get_varint(&in);
    largest = cell_get_varint(&in);
    if (in.bad || ret->flags > (BLOCK_COUNTS | BLOCK_SUMS | BLOCK_VARIANCES) || n == 0 ||
        n > n_node || groups > n || largest > RANK_ESCAPE)
        return false;
    ret->n = g->n = (uint32_t)n;
    g->groups = (uint32_t)groups;
    g->largest = (uint32_t)largest;
    head = cell_get(&c->cell, &in, groups * 2 * CELL_VARINT_MAX, &c->scratch[0], &got);
    if (!head)
        return false;
    g->head = cell_in(head, got);
    g->one = cell_get(&c->cell, &in, n, &c->scratch[1], &got);
    if (!g->one || got != n)
        return false;
    g->two = cell_get(&c->cell, &in, n, &c->scratch[2], &m);
    if (!g->two || rank_followed(g->one, g->n, g->largest + 1) != m)
        return false;
    escape = cell_get(&c->cell, &in, n * 4, &c->scratch[3], &got);
    if (!escape)
        return false;
    g->escape = cell_in(escape, got);
    g->rest = in;
    return true;
}

/* The gaps of one group; *j: place in plane two. Nodes past 2^32 come out as large as they are. */
static uint64_t read_gaps(struct group_in *g, const struct rank_table *t, uint32_t from,
                          uint32_t to, uint32_t *j, uint32_t *node)
{
    const uint8_t *one = g->one, *two = g->two;
    uint64_t next = 0;
    uint32_t k = *j;

    if (g->largest < RANK_ESCAPE) {
        for (uint32_t i = from; i < to; i++) {
            uint32_t mask = t->mask[one[i]];

            next += t->base[one[i]] + (two[k] & mask);
            k += mask & 1;
            node[i] = (uint32_t)next++;
        }
    } else {
        for (uint32_t i = from; i < to; i++) {
            uint32_t mask = t->mask[one[i]], d = t->base[one[i]] + (two[k] & mask);

            k += mask & 1;
            if (d == RANK_ESCAPE)
                d = (uint32_t)cell_get_fixed(&g->escape, 4);
            next += d;
            node[i] = (uint32_t)next++;
        }
    }
    *j = k;
    return next;
}

static bool read_groups(struct group_in *g, uint32_t n_node, struct summary *ret, uint32_t *node,
                        uint32_t *freq)
{
    struct rank_table t;
    uint32_t at = 0, j = 0, rows = 0;

    rank_table(&t, g->largest + 1);
    ret->many = 0;
    for (uint32_t k = 0; k < g->groups; k++) {
        uint64_t step = cell_get_varint(&g->head), size = cell_get_varint(&g->head);

        if (g->head.bad || step == 0 || step > UINT32_MAX || (k > 0 && step >= rows) || size == 0 ||
            size > g->n - at)
            return false;
        rows = (uint32_t)(k > 0 ? rows - step : step);
        if (read_gaps(g, &t, at, at + (uint32_t)size, &j, node) > n_node)
            return false;
        for (uint32_t end = at + (uint32_t)size; at < end; at++)
            freq[at] = rows;
        if (rows > 1)
            ret->many = at;
    }
    ret->node = node;
    ret->freq = freq;
    return at == g->n && cell_at_end(&g->head) && cell_at_end(&g->escape);
}

static bool read_sums(struct block_coder *c, struct cell_in *in, struct summary *ret)
{
    if (in->p<in->end && * in->p> 8) {
        uint64_t(*v)[2] = coder_array(c, ARRAY_SUM_SUM, ret->n, sizeof *v);

        if (!v || !cell_get_planes_wide(&c->cell, in, ret->n, v, &c->scratch[0]))
            return false;
        unzigzag_wide(v[0], ret->n);
        ret->wide = (const unit_i128 *)c->array[ARRAY_SUM_SUM].p;
    } else {
        uint64_t *v = coder_array(c, ARRAY_SUM_SUM, ret->n, sizeof *v);

        if (!v || !cell_get_planes(&c->cell, in, ret->n, v, &c->scratch[0]))
            return false;
        for (uint32_t i = 0; i < ret->n; i++)
            v[i] = (uint64_t)cell_unzigzag(v[i]);
        ret->sum = (const int64_t *)v;
    }
    return true;
}

static bool read_vars(struct block_coder *c, struct cell_in *in, struct summary *ret)
{
    uint64_t *v = CODER_ARRAY(c, ARRAY_SUM_VAR, uint64_t, ret->n);

    if (!v || !cell_get_planes(&c->cell, in, ret->n, v, &c->scratch[0]))
        return false;
    for (uint32_t i = 0; i < ret->n; i++) {
        uint64_t bits = v[i] ^ VAR_UNKNOWN_WIDE;
        double d;

        memcpy(&d, &bits, sizeof d);
        memcpy(&v[i], &d, sizeof d);
    }
    ret->var = (const double *)v;
    return true;
}

static bool read_planes(struct block_coder *c, struct cell_in *in, struct summary *ret)
{
    if (ret->flags & BLOCK_COUNTS) {
        uint64_t *count = CODER_ARRAY(c, ARRAY_SUM_COUNT, uint64_t, ret->n);

        if (!count || !cell_get_planes(&c->cell, in, ret->n, count, &c->scratch[0]))
            return false;
        ret->count = count;
    }
    if ((ret->flags & BLOCK_SUMS) && !read_sums(c, in, ret))
        return false;
    if ((ret->flags & BLOCK_VARIANCES) && !read_vars(c, in, ret))
        return false;
    return cell_at_end(in);
}

int summary_open(struct block_coder *c, struct str bytes, uint32_t n_node, struct summary *ret,
                 struct err *err)
{
    struct summary s = {};
    struct group_in g;
    uint32_t *node, *freq;

    c->cell.no_memory = false;
    if (!open_cells(c, bytes, n_node, &s, &g))
        return coder_damage(c, err, "summary");
    node = CODER_ARRAY(c, ARRAY_SUM_NODE, uint32_t, s.n);
    freq = CODER_ARRAY(c, ARRAY_SUM_FREQ, uint32_t, s.n);
    if (!node || !freq)
        return coder_no_memory(err);
    if (!read_groups(&g, n_node, &s, node, freq))
        return coder_damage(c, err, "summary: nodes");
    if (!read_planes(c, &g.rest, &s))
        return coder_damage(c, err, "summary: sums");
    *ret = s;
    return 0;
}

/* ---- adding -------------------------------------------------------------------------------- */

void summary_add(const struct summary *s, struct sum_at *at)
{
    if (!s->count && !s->sum && !s->wide) {
        for (uint32_t i = 0; i < s->n; i++) {
            struct sum_at *a = &at[s->node[i]];

            a->count += s->freq[i];
            a->sum += s->v * (int64_t)s->freq[i];
        }
        return;
    }
    for (uint32_t i = 0; i < s->n; i++) {
        struct sum_at *a = &at[s->node[i]];

        a->count += s->count ? s->count[i] : s->freq[i];
        a->sum += (int64_t)summary_sum(s, i);
    }
}

void summary_add_wide(const struct summary *s, struct sum_wide *at)
{
    for (uint32_t i = 0; i < s->n; i++) {
        struct sum_wide *a = &at[s->node[i]];

        a->count += s->count ? s->count[i] : s->freq[i];
        a->sum += summary_sum(s, i);
    }
}
