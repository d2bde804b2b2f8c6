// SPDX-License-Identifier: Apache-2.0
#include "bench/bench_lean.h"

#include <stdlib.h>
#include <string.h>

#include "base/sample.h"

enum {
    BITS = 15,
    RANKS = 1 << BITS,
    LANES = 8,
    BLOCK = LANES * 32, /* values */
    PAD = RANKS - 1,    /* fills the last block of a service; never a real rank */
    WIDTH = 10000,      /* nodes below 1/WIDTH of the whole are left out */
    PIXELS = 1920,      /* of columns */
    DEPTH = 1024,
    TEXT = 1 << 26,
};

typedef uint32_t lanes __attribute__((vector_size(LANES * sizeof(uint32_t))));

struct service {
    uint32_t nodes, ranks;
    const uint32_t *parent, *function; /* of all its nodes */
    uint32_t *leaf;                    /* rank -> node */
    uint32_t *observed;                /* rank -> observations */
    size_t blocks;
    lanes *packed; /* BITS vectors per block */
    uint64_t rows, observations;
    unsigned char *rollup, *rollup_end; /* varints: id minus previous id, observations */
};

/* Columns of an answer. */
struct table {
    uint32_t rows, functions;
    uint32_t *depth, *function, *hidden;
    int64_t *self, *total;
    uint32_t *number; /* function -> in the answer + 1 */
    uint32_t *listed; /* the functions of the answer */
};

struct lean {
    const struct data *d;
    struct service *s;
    uint32_t *count, *row;
    int64_t *total, *self;
    char *text;
    uint32_t *below;                /* per node: nodes of its subtree */
    uint32_t *node, *first, *child; /* of what is shown */
    struct table t;
};

/* ---- preparing ------------------------------------------------------------------------------ */

static void pack_block(const uint16_t *values, lanes *out)
{
    memset(out, 0, BITS * sizeof *out);
    for (size_t i = 0; i < BLOCK; i++) {
        size_t bit = i / LANES * BITS, lane = i % LANES, word = bit / 32, shift = bit % 32;

        out[word][lane] |= (uint32_t)values[i] << shift;
        if (shift + BITS > 32)
            out[word + 1][lane] |= (uint32_t)values[i] >> (32 - shift);
    }
}

static int by_frequency(const void *a, const void *b, void *ctx)
{
    const uint32_t *frequency = ctx, x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    if (frequency[x] != frequency[y])
        return frequency[x] < frequency[y] ? 1 : -1;
    return x < y ? -1 : x > y;
}

static unsigned char *put_varint(unsigned char *p, uint32_t v)
{
    for (; v >= 0x80; v >>= 7)
        *p++ = (unsigned char)(v | 0x80);
    *p++ = (unsigned char)v;
    return p;
}

/* stack, count: of the cpu rows of the service, in any order */
static bool prepare(struct service *s, const uint32_t *stack, const uint32_t *count, size_t rows)
{
    uint32_t *frequency = data_alloc(s->nodes, sizeof *frequency);
    uint32_t *rank = data_alloc(s->nodes, sizeof *rank), last = 0;
    uint32_t *sum = data_alloc(s->nodes, sizeof *sum);
    unsigned char *p;

    s->leaf = data_alloc(s->nodes, sizeof *s->leaf);
    for (size_t i = 0; i < rows; i++) {
        frequency[stack[i]]++;
        sum[stack[i]] += count[i];
        s->observations += count[i];
    }
    for (uint32_t node = 0; node < s->nodes; node++)
        if (frequency[node])
            s->leaf[s->ranks++] = node;
    if (s->ranks >= PAD)
        return false;
    qsort_r(s->leaf, s->ranks, sizeof *s->leaf, by_frequency, frequency);
    s->observed = data_alloc(s->ranks, sizeof *s->observed);
    for (uint32_t r = 0; r < s->ranks; r++) {
        rank[s->leaf[r]] = r;
        s->observed[r] = sum[s->leaf[r]];
    }
    s->rows = rows;
    s->blocks = (rows + BLOCK - 1) / BLOCK;
    s->packed = data_alloc(s->blocks * BITS, sizeof *s->packed);
    for (size_t b = 0; b < s->blocks; b++) {
        uint16_t values[BLOCK];

        for (size_t i = 0; i < BLOCK; i++)
            values[i] = b * BLOCK + i < rows ? (uint16_t)rank[stack[b * BLOCK + i]] : PAD;
        pack_block(values, s->packed + b * BITS);
    }
    p = s->rollup = data_alloc(s->ranks, 10);
    for (uint32_t node = 0; node < s->nodes; node++) {
        if (!frequency[node])
            continue;
        p = put_varint(put_varint(p, node - last), sum[node]);
        last = node;
    }
    s->rollup_end = p;
    free(frequency);
    free(rank);
    free(sum);
    return true;
}

static void new_table(struct table *t, const struct data *d)
{
    t->depth = data_alloc(d->nodes, sizeof *t->depth);
    t->function = data_alloc(d->nodes, sizeof *t->function);
    t->hidden = data_alloc(d->nodes, sizeof *t->hidden);
    t->self = data_alloc(d->nodes, sizeof *t->self);
    t->total = data_alloc(d->nodes, sizeof *t->total);
    t->number = data_alloc(d->functions, sizeof *t->number);
    t->listed = data_alloc(d->functions, sizeof *t->listed);
}

static void free_table(struct table *t)
{
    free(t->depth);
    free(t->function);
    free(t->hidden);
    free(t->self);
    free(t->total);
    free(t->number);
    free(t->listed);
}

struct lean *lean_new(const struct data *d)
{
    struct lean *l = data_alloc(1, sizeof *l);
    size_t *at = data_alloc(d->services + 2, sizeof *at);
    uint32_t *stack = data_alloc(d->rows, sizeof *stack), *count = data_alloc(d->rows, 4);
    bool ok = true;

    for (size_t i = 0; i < d->rows; i++)
        at[d->svc[i] + 2] += d->type[i] == DATA_CPU;
    for (size_t s = 0; s < d->services; s++)
        at[s + 2] += at[s + 1];
    for (size_t i = 0; i < d->rows; i++)
        if (d->type[i] == DATA_CPU) {
            size_t k = at[d->svc[i] + 1]++;

            stack[k] = d->stack[i];
            count[k] = d->count ? d->count[i] : 1;
        }
    *l = (struct lean){.d = d,
                       .s = data_alloc(d->services, sizeof *l->s),
                       .count = data_alloc(RANKS, sizeof *l->count),
                       .row = data_alloc(d->nodes, sizeof *l->row),
                       .total = data_alloc(d->nodes, sizeof *l->total),
                       .self = data_alloc(d->nodes, sizeof *l->self),
                       .text = data_alloc(TEXT, 1),
                       .below = data_alloc(d->nodes, sizeof *l->below),
                       .node = data_alloc(d->nodes, sizeof *l->node),
                       .child = data_alloc(d->nodes, sizeof *l->child),
                       .first = data_alloc(d->nodes + 2, sizeof *l->first)};
    new_table(&l->t, d);
    for (size_t s = 0; ok && s < d->services; s++) {
        l->s[s].nodes = d->first[s + 1] - d->first[s];
        l->s[s].parent = d->parent + d->first[s];
        l->s[s].function = d->function + d->first[s];
        ok = prepare(&l->s[s], stack + at[s], count + at[s], at[s + 1] - at[s]);
    }
    free(stack);
    free(count);
    free(at);
    return ok ? l : lean_free(l);
}

struct lean *lean_free(struct lean *l)
{
    if (!l)
        return NULL;
    for (size_t s = 0; s < l->d->services; s++) {
        free(l->s[s].leaf);
        free(l->s[s].observed);
        free(l->s[s].packed);
        free(l->s[s].rollup);
    }
    free(l->s);
    free(l->count);
    free(l->row);
    free(l->total);
    free(l->self);
    free(l->text);
    free(l->below);
    free(l->node);
    free(l->child);
    free(l->first);
    free_table(&l->t);
    free(l);
    return NULL;
}

/* ---- measured ------------------------------------------------------------------------------- */

static inline void unpack_block(const lanes *in, lanes *out)
{
#pragma GCC unroll 32
    for (size_t i = 0; i < 32; i++) {
        size_t bit = i * BITS, word = bit / 32, shift = bit % 32;
        lanes v = in[word] >> (uint32_t)shift;

        if (shift + BITS > 32)
            v |= in[word + 1] << (uint32_t)(32 - shift);
        out[i] = v & (RANKS - 1);
    }
}

static void count_service(const struct service *s, uint32_t *count)
{
    union {
        lanes v[32];
        uint32_t at[BLOCK];
    } buf;

    memset(count, 0, s->ranks * sizeof count[0]);
    for (size_t b = 0; b < s->blocks; b++) {
        unpack_block(s->packed + b * BITS, buf.v);
        for (size_t i = 0; i < BLOCK; i++)
            count[buf.at[i]]++;
    }
}

uint64_t lean_count(struct lean *l, size_t services)
{
    uint64_t rows = 0;

    for (size_t s = 0; s < services; s++) {
        count_service(&l->s[s], l->count);
        __asm__ volatile("" : : "r"(l->count) : "memory"); /* the counts are wanted */
        rows += l->s[s].rows;
    }
    return rows;
}

int64_t lean_tree(struct lean *l, size_t services)
{
    int64_t sum = 0;

    for (size_t s = 0; s < services; s++) {
        const struct service *v = &l->s[s];

        memset(l->total, 0, v->nodes * sizeof *l->total);
        for (uint32_t r = 0; r < v->ranks; r++)
            l->total[v->leaf[r]] += (int64_t)v->observed[r] * DATA_CPU_NS;
        for (uint32_t i = v->nodes - 1; i > 0; i--)
            l->total[v->parent[i]] += l->total[i];
        sum += l->total[0];
    }
    return sum;
}

static inline uint32_t get_varint(const unsigned char **p)
{
    uint32_t v = *(*p)++;

    if (v < 0x80)
        return v;
    v &= 0x7f;
    for (uint32_t shift = 7;; shift += 7) {
        uint32_t byte = *(*p)++;

        v |= (byte & 0x7f) << shift;
        if (byte < 0x80)
            return v;
    }
}

static char *put_number(char *p, uint64_t v)
{
    char digits[20];
    size_t n = 0;

    do
        digits[n++] = (char)('0' + v % 10);
    while (v /= 10);
    while (n)
        *p++ = digits[--n];
    return p;
}

static void tree_of_rollup(const struct service *s, int64_t *total, int64_t *self)
{
    uint32_t node = 0;

    memset(self, 0, s->nodes * sizeof *self);
    for (const unsigned char *p = s->rollup; p < s->rollup_end;) {
        node += get_varint(&p);
        self[node] = (int64_t)get_varint(&p) * DATA_CPU_NS;
    }
    memcpy(total, self, s->nodes * sizeof *total);
    for (uint32_t i = s->nodes - 1; i > 0; i--)
        total[s->parent[i]] += total[i];
}

/* One row per node, [parent's row, name, total, self], parents first. Returns the end. */
static char *answer_service(struct lean *l, const struct service *s, int64_t least, char *out)
{
    uint32_t rows = 0;

    tree_of_rollup(s, l->total, l->self);
    for (uint32_t i = 0; i < s->nodes; i++) {
        const char *name;
        size_t n;

        if (l->total[i] < least)
            continue;
        name = data_name(l->d, s->function[i], &n);
        l->row[i] = rows++;
        *out++ = '[';
        out = put_number(out, l->row[s->parent[i]]);
        *out++ = ',';
        *out++ = '"';
        memcpy(out, name, n);
        out += n;
        *out++ = '"';
        *out++ = ',';
        out = put_number(out, (uint64_t)l->total[i]);
        *out++ = ',';
        out = put_number(out, (uint64_t)l->self[i]);
        *out++ = ']';
        *out++ = '\n';
    }
    return out;
}

int64_t lean_answer(struct lean *l, size_t services, size_t *ret_bytes)
{
    uint64_t observations = 0;
    char *end = l->text;
    int64_t sum = 0, least;

    for (size_t s = 0; s < services; s++)
        observations += l->s[s].observations;
    least = (int64_t)observations * DATA_CPU_NS / WIDTH + 1;
    for (size_t s = 0; s < services; s++) {
        end = answer_service(l, &l->s[s], least, end);
        if (end - l->text > TEXT / 2)
            data_die("the lean answer is too long");
        sum += l->total[0];
    }
    *ret_bytes = (size_t)(end - l->text);
    return sum;
}

/* ---- as the API answers it ------------------------------------------------------------------- */

/* Totals and nodes below, in one pass. */
static void tree_and_nodes(struct lean *l, const struct service *s)
{
    uint32_t node = 0;

    memset(l->self, 0, s->nodes * sizeof *l->self);
    memset(l->below, 0, s->nodes * sizeof *l->below);
    for (const unsigned char *p = s->rollup; p < s->rollup_end;) {
        node += get_varint(&p);
        l->self[node] = (int64_t)get_varint(&p) * DATA_CPU_NS;
    }
    memcpy(l->total, l->self, s->nodes * sizeof *l->total);
    for (uint32_t i = s->nodes - 1; i > 0; i--) {
        if (!l->total[i])
            continue;
        l->below[s->parent[i]] += ++l->below[i];
        l->total[s->parent[i]] += l->total[i];
    }
    l->below[0]++;
}

/*
 * What is shown: node[k] in the order of the trie, so that parents come first and the root is 0;
 * child[] by parent, largest first: those of k are child[first[k]] to child[first[k + 1]].
 */
static void order_shown(struct lean *l, const struct service *s, int64_t least)
{
    uint32_t *first = l->first, n = 1;

    l->node[0] = l->row[0] = 0;
    for (uint32_t i = 1; i < s->nodes; i++) {
        if (l->total[i] < least)
            continue;
        l->row[i] = n;
        l->node[n++] = i;
    }
    memset(first, 0, (n + 2) * sizeof *first);
    for (uint32_t k = 1; k < n; k++)
        first[l->row[s->parent[l->node[k]]] + 2]++;
    for (uint32_t k = 2; k < n + 2; k++)
        first[k] += first[k - 1];
    for (uint32_t k = 1; k < n; k++) {
        uint32_t p = l->row[s->parent[l->node[k]]];

        l->child[first[p + 1]++] = k;
    }
    for (uint32_t k = 0; k < n; k++) {
        for (uint32_t i = first[k] + 1; i < first[k + 1]; i++) {
            uint32_t one = l->child[i], at = i;

            for (; at > first[k] && l->total[l->node[l->child[at - 1]]] < l->total[l->node[one]];
                 at--)
                l->child[at] = l->child[at - 1];
            l->child[at] = one;
        }
    }
}

static void put_row(struct table *t, uint32_t depth, uint32_t function, int64_t self, int64_t total)
{
    t->depth[t->rows] = depth;
    t->function[t->rows] = function;
    t->self[t->rows] = self;
    t->total[t->rows] = total;
    t->hidden[t->rows++] = 0;
}

static void put_node(struct lean *l, const struct service *s, uint32_t i, uint32_t depth)
{
    struct table *t = &l->t;
    uint32_t f = s->function[i];

    if (!t->number[f]) {
        t->listed[t->functions] = f;
        t->number[f] = ++t->functions;
    }
    put_row(t, depth, t->number[f], l->self[i], l->total[i]);
}

/* What the shown children of k leave of it. */
static void put_hidden(struct lean *l, uint32_t k, uint32_t depth)
{
    uint32_t i = l->node[k], nodes = l->below[i] - 1;
    int64_t rest = l->total[i] - l->self[i];

    for (uint32_t at = l->first[k]; at < l->first[k + 1]; at++) {
        rest -= l->total[l->node[l->child[at]]];
        nodes -= l->below[l->node[l->child[at]]];
    }
    if (!nodes)
        return;
    put_row(&l->t, depth + 1, 0, rest, rest);
    l->t.hidden[l->t.rows - 1] = nodes;
}

static void rows_of_service(struct lean *l, const struct service *s, int64_t least)
{
    uint32_t path[DEPTH] = {}, next[DEPTH], depth = 0;

    tree_and_nodes(l, s);
    order_shown(l, s, least);
    put_node(l, s, 0, 0);
    next[0] = l->first[0];
    for (;;) {
        uint32_t k = path[depth];

        if (next[depth] < l->first[k + 1]) {
            uint32_t child = l->child[next[depth]++];

            path[++depth] = child;
            next[depth] = l->first[child];
            put_node(l, s, l->node[child], depth);
            continue;
        }
        put_hidden(l, k, depth);
        if (depth-- == 0)
            break;
    }
}

static char *put_text(char *p, const char *text)
{
    while (*text)
        *p++ = *text++;
    return p;
}

static char *put_key(char *p, const char *key)
{
    p[-1] = p[-1] == ',' ? ']' : p[-1]; /* ends the column before */
    return put_text(put_text(put_text(p, ",\""), key), "\":[");
}

static char *put_column(char *p, const char *key, const uint32_t *v, uint32_t n)
{
    p = put_key(p, key);
    for (uint32_t i = 0; i < n; i++) {
        p = put_number(p, v[i]);
        *p++ = ',';
    }
    return p;
}

/* each: what the numbers are divided by */
static char *put_weights(char *p, const char *key, const int64_t *v, uint32_t n, int64_t each)
{
    p = put_key(p, key);
    for (uint32_t i = 0; i < n; i++) {
        p = put_number(p, (uint64_t)(v[i] / each));
        *p++ = ',';
    }
    return p;
}

static char *put_functions(const struct lean *l, char *p)
{
    static const char hex[] = "0123456789abcdef";

    p = put_key(p, "strings");
    for (uint32_t k = 0; k < l->t.functions; k++) {
        size_t n;
        const char *name = data_name(l->d, l->t.listed[k], &n);

        *p++ = '"';
        for (size_t i = 0; i < n; i++) {
            if (name[i] == '"' || name[i] == '\\')
                *p++ = '\\';
            *p++ = name[i];
        }
        *p++ = '"';
        *p++ = ',';
    }
    p = put_key(p, "key");
    for (uint32_t k = 0; k < l->t.functions; k++) {
        struct str name;
        uint64_t key;

        name.p = data_name(l->d, l->t.listed[k], &name.n);
        key = func_key((struct str){NULL, 0}, name);
        *p++ = '"';
        for (int shift = 60; shift >= 0; shift -= 4)
            *p++ = hex[key >> shift & 15];
        *p++ = '"';
        *p++ = ',';
    }
    return p;
}

int64_t lean_columns(struct lean *l, size_t services, size_t *ret_bytes)
{
    uint64_t observations = 0;
    struct table *t = &l->t;
    char *p = l->text;
    int64_t sum = 0, least;

    for (size_t s = 0; s < services; s++)
        observations += l->s[s].observations;
    least = ((int64_t)observations * DATA_CPU_NS + PIXELS - 1) / PIXELS;
    t->rows = t->functions = 0;
    for (size_t s = 0; s < services; s++) {
        rows_of_service(l, &l->s[s], least);
        sum += l->total[0];
    }
    *p++ = '{';
    p = put_column(p, "depth", t->depth, t->rows);
    p = put_column(p, "func", t->function, t->rows);
    p = put_weights(p, "self", t->self, t->rows, 1);
    p = put_weights(p, "total", t->total, t->rows, 1);
    p = put_weights(p, "samples", t->total, t->rows, DATA_CPU_NS);
    p = put_column(p, "hidden", t->hidden, t->rows);
    p = put_functions(l, p);
    for (uint32_t k = 0; k < t->functions; k++)
        t->number[t->listed[k]] = 0;
    *ret_bytes = (size_t)(p - l->text);
    if (*ret_bytes > TEXT / 2)
        data_die("the lean answer is too long");
    return sum;
}
