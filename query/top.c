// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/hash.h"
#include "query/query_private.h"

/*
 * Functions, files or binaries with what they weigh. self: samples whose leaf it is; total: samples
 * that contain it, each once: a node counts only if no node above it has the same key. For
 * functions the trie knows that (again); for files and binaries a walk of the tree finds it.
 */

struct table {
    struct query *q;
    struct query_tree *t;
    const struct query_top_ask *ask;
    uint32_t *key_of;        /* function -> row */
    struct query_row *row;   /* [0]: the root's, not shown */
    struct query_func *func; /* parallel */
    uint32_t n;
    uint8_t *again; /* per node */
};

/* ---- keys --------------------------------------------------------------------------------------
 */

static struct query_func key_func(const struct query_func *f, enum query_key key)
{
    struct query_func k = *f;

    if (key == QUERY_KEY_FN)
        return k;
    k.name = key == QUERY_KEY_FILE ? f->file : f->bin;
    if (key == QUERY_KEY_FILE)
        k.bin = (struct str){NULL, 0};
    else
        k.file = (struct str){NULL, 0};
    k.scope = (struct str){NULL, 0};
    k.key = func_key(k.scope, k.name);
    return k;
}

static int make_rows(struct table *tb, struct query_err *e)
{
    const struct query_tree *t = tb->t;
    struct map by_key;
    int r = 0;

    QUERY_NEW(tb->q, &tb->key_of, t->n_func, e);
    QUERY_NEW(tb->q, &tb->row, t->n_func, e);
    QUERY_NEW(tb->q, &tb->func, t->n_func, e);
    tb->func[0] = t->fn[0];
    tb->n = 1;
    map_init(&by_key, 0);
    for (uint32_t f = 1; f < t->n_func; f++) {
        struct query_func k = key_func(&t->fn[f], tb->ask->key);
        uint64_t own = 0, *slot = &own;

        /* two functions of one hash stay two rows; names of files and binaries are compared too */
        if (tb->ask->key != QUERY_KEY_FN) {
            uint64_t key = k.key;

            do {
                if (map_at(&by_key, key, &slot) == MAP_FULL) {
                    r = query_no_memory(tb->q, e);
                    goto out;
                }
                key = hash_mix(key + 1);
            } while (*slot && !str_eq(tb->func[*slot].name, k.name));
        }
        if (*slot == 0) {
            *slot = tb->n;
            tb->func[tb->n] = k;
            tb->row[tb->n].func = tb->n;
            tb->n++;
        }
        tb->key_of[f] = (uint32_t)*slot;
    }
out:
    map_deinit(&by_key);
    return r;
}

/* Depth first with a counter per key: again[i] = a node above i has its key. */
static int find_again(struct table *tb, struct query_err *e)
{
    const struct query_tree *t = tb->t;
    uint32_t *first, *next, *open, top = 0, i = 0;

    QUERY_NEW(tb->q, &tb->again, t->n, e);
    if (tb->ask->key == QUERY_KEY_FN) {
        for (i = 1; i < t->n; i++)
            tb->again[i] = t->flag[i] & QUERY_NODE_AGAIN;
        return 0;
    }
    QUERY_NEW(tb->q, &first, t->n, e); /* first child; next sibling: 0 is no child of anyone */
    QUERY_NEW(tb->q, &next, t->n, e);
    QUERY_NEW(tb->q, &open, tb->n, e);
    for (i = t->n - 1; i > 0; i--) {
        next[i] = first[t->parent[i]];
        first[t->parent[i]] = i;
    }
    for (i = first[0]; i; top++) {
        uint32_t k = tb->key_of[t->func[i]];

        tb->again[i] = open[k]++ > 0;
        if (first[i]) {
            i = first[i];
            continue;
        }
        while (i && !next[i]) {
            open[tb->key_of[t->func[i]]]--;
            i = t->parent[i];
        }
        if (i) {
            open[tb->key_of[t->func[i]]]--;
            i = next[i];
        }
    }
    assert(top == t->n - 1);
    return 0;
}

static void weigh(struct table *tb)
{
    const struct query_tree *t = tb->t;

    for (uint32_t i = 1; i < t->n; i++) {
        struct query_row *r = &tb->row[tb->key_of[t->func[i]]];

        r->self += t->self[i];
        if (tb->again[i])
            continue;
        r->total += t->total[i];
        r->places++;
        if ((t->flag[i] & QUERY_NODE_UNKNOWN) || r->samples == BATCH_UNKNOWN)
            r->samples = BATCH_UNKNOWN;
        else
            r->samples += t->samples[i];
    }
}

/* ---- patterns ----------------------------------------------------------------------------------
 */

struct seen {
    unit_i128 total;
    uint64_t samples, functions;
    bool unknown;
};

static void see(struct seen *s, const struct query_tree *t, uint32_t i)
{
    s->total += t->self[i];
    s->samples += t->self_samples[i];
    s->unknown |= (t->flag[i] & QUERY_NODE_UNKNOWN) && t->self_samples[i];
}

static uint64_t seen_samples(const struct seen *s)
{
    return s->unknown ? BATCH_UNKNOWN : s->samples;
}

/* One pass down hands each node its parent's bits, one per pattern. bit: per function. */
static int pass_down(struct table *tb, const uint32_t *bit, uint32_t n, struct seen *each,
                     struct seen *any, struct query_err *e)
{
    const struct query_tree *t = tb->t;
    uint32_t *in;

    QUERY_NEW(tb->q, &in, t->n, e);
    for (uint32_t i = 1; i < t->n; i++) {
        in[i] = in[t->parent[i]] | bit[t->func[i]];
        for (uint32_t k = 0; in[i] && k < n; k++) {
            if (in[i] >> k & 1)
                see(&each[k], t, i);
        }
        if (in[i])
            see(any, t, i);
    }
    return 0;
}

static int find(struct table *tb, struct str pattern, const char *param, uint8_t *hit,
                struct query_err *e)
{
    struct query_pattern p = {};
    int r;

    TRY(query_pattern_new(&tb->q->arena, pattern, param, &p, e));
    r = query_tree_match(tb->q, tb->t, &p, param, hit, e);
    query_pattern_deinit(&p);
    return r;
}

static int match_any(struct table *tb, struct query_top *ret, struct query_err *e)
{
    struct seen each[QUERY_ANY_MAX] = {}, any = {};
    struct query_any *out;
    uint32_t *bit;
    uint8_t *hit;

    if (tb->ask->n_any == 0)
        return 0;
    QUERY_NEW(tb->q, &bit, tb->t->n_func, e);
    QUERY_NEW(tb->q, &hit, tb->t->n_func, e);
    QUERY_NEW(tb->q, &out, tb->ask->n_any, e);
    for (uint32_t k = 0; k < tb->ask->n_any; k++) {
        TRY(find(tb, tb->ask->any[k], "any", hit, e));
        for (uint32_t f = 1; f < tb->t->n_func; f++) {
            bit[f] |= (uint32_t)hit[f] << k;
            each[k].functions += hit[f];
        }
    }
    TRY(pass_down(tb, bit, tb->ask->n_any, each, &any, e));
    for (uint32_t k = 0; k < tb->ask->n_any; k++) {
        TRY(query_copy(tb->q, tb->ask->any[k], &out[k].pattern, e));
        out[k].functions = each[k].functions;
        out[k].total = each[k].total;
        out[k].samples = seen_samples(&each[k]);
    }
    for (uint32_t f = 1; f < tb->t->n_func; f++)
        any.functions += bit[f] != 0;
    ret->any_union.functions = any.functions;
    ret->any_union.total = any.total;
    ret->any_union.samples = seen_samples(&any);
    ret->n_any = tb->ask->n_any;
    ret->any = out;
    return 0;
}

/* Rows that match: of functions those whose name does; of files and binaries those that hold one.
 */
static int match_rows(struct table *tb, uint8_t *shown, struct query_top *ret, struct query_err *e)
{
    struct seen each[1] = {}, any = {};
    uint32_t *bit;
    uint8_t *hit;

    if (tb->ask->match.n == 0) {
        memset(shown, 1, tb->n);
        return 0;
    }
    QUERY_NEW(tb->q, &bit, tb->t->n_func, e);
    QUERY_NEW(tb->q, &hit, tb->t->n_func, e);
    TRY(find(tb, tb->ask->match, "match", hit, e));
    for (uint32_t f = 1; f < tb->t->n_func; f++) {
        bit[f] = hit[f];
        ret->matched.functions += hit[f];
        shown[tb->key_of[f]] |= hit[f];
    }
    TRY(pass_down(tb, bit, 1, each, &any, e));
    ret->has_match = true;
    ret->matched.total = ret->matched.view = any.total;
    ret->matched.samples = seen_samples(&any);
    return 0;
}

/* ---- order and pages ---------------------------------------------------------------------------
 */

static unit_i128 sort_value(const struct query_row *r, enum query_sort sort)
{
    switch (sort) {
    case QUERY_BY_TOTAL:
        return r->total;
    case QUERY_BY_SAMPLES:
        return r->samples == BATCH_UNKNOWN ? -1 : (unit_i128)r->samples;
    case QUERY_BY_SELF:
    default:
        return r->self;
    }
}

/* Falling by value, of equal ones rising by key: a place in this order outlives changes of the
 * data. */
static int place_cmp(unit_i128 va, uint64_t ka, unit_i128 vb, uint64_t kb)
{
    if (va != vb)
        return va > vb ? -1 : 1;
    return (ka > kb) - (ka < kb);
}

static int row_cmp(const void *va, const void *vb, void *ctx)
{
    const struct query_row *a = va, *b = vb;
    const struct table *tb = ctx;

    return place_cmp(sort_value(a, tb->ask->sort), tb->func[a->func].key,
                     sort_value(b, tb->ask->sort), tb->func[b->func].key);
}

static void i128_hex(unit_i128 v, char ret[33])
{
    (void)snprintf(ret, 33, "%016" PRIx64 "%016" PRIx64, (uint64_t)(v >> 64), (uint64_t)v);
}

/* A page's end: value and key of its last row, 32 and 16 hex digits. */
static int parse_after(struct str s, unit_i128 *ret_v, uint64_t *ret_key, struct query_err *e)
{
    uint64_t high, low;

    if (s.n != 48 || !str_hex64(str_to(s, 16), &high) ||
        !str_hex64(str_to(str_from(s, 16), 16), &low) || !str_hex64(str_from(s, 32), ret_key))
        return query_fail(e, -EINVAL, QUERY_BAD_PARAMETER, "after",
                          "after is not the next of a page before");
    *ret_v = (unit_i128)((query_u128)high << 64 | low);
    return 0;
}

static int page(struct table *tb, const uint8_t *shown, struct query_top *ret, struct query_err *e)
{
    uint32_t from = 0, n = 0;
    struct str next;
    char text[33 + 16];

    for (uint32_t i = 1; i < tb->n; i++) {
        if (shown[i])
            tb->row[n++] = tb->row[i];
    }
    ret->rows = n;
    if (n > 1)
        qsort_r(tb->row, n, sizeof *tb->row, row_cmp, tb);
    if (tb->ask->after.n) {
        unit_i128 v = 0;
        uint64_t key;

        TRY(parse_after(tb->ask->after, &v, &key, e));
        while (from < n && place_cmp(sort_value(&tb->row[from], tb->ask->sort),
                                     tb->func[tb->row[from].func].key, v, key) <= 0)
            from++;
    }
    n -= from;
    if (n > tb->ask->limit) {
        n = tb->ask->limit;
        if (n) {
            const struct query_row *last = &tb->row[from + n - 1];

            i128_hex(sort_value(last, tb->ask->sort), text);
            (void)snprintf(text + 32, 17, "%016" PRIx64, tb->func[last->func].key);
            TRY(query_copy(tb->q, str_c(text), &next, e));
            ret->next = next;
        }
    }
    ret->n = n;
    ret->row = tb->row + from;
    ret->n_func = tb->n;
    ret->func = tb->func;
    return 0;
}

static int top(struct table *tb, struct query_top *ret, struct query_err *e)
{
    struct query_evidence ev = {};
    struct query_stacks stacks;
    const struct query_tree *t = tb->t;
    uint8_t *shown;

    TRY(query_tree_build(tb->q, false, tb->t, e));
    TRY(make_rows(tb, e));
    QUERY_NEW(tb->q, &shown, tb->n, e);
    TRY(find_again(tb, e));
    weigh(tb);
    TRY(match_any(tb, ret, e));
    TRY(match_rows(tb, shown, ret, e));
    TRY(page(tb, shown, ret, e));
    stacks = query_tree_stacks(t);
    TRY(query_evidence(tb->q, &ev, e));
    return query_sums(tb->q, &ev, t->total[0],
                      t->flag[0] & QUERY_NODE_UNKNOWN ? BATCH_UNKNOWN : t->samples[0], &stacks,
                      &ret->sum, e);
}

int query_top(struct query *q, const struct query_top_ask *ask, struct query_top *ret,
              struct query_err *e)
{
    struct query_tree t = {};
    struct table tb = {.q = q, .t = &t, .ask = ask};
    struct query_top answer = {};
    int r;

    if (q->n_by)
        return query_fail(e, -ENOTSUP, QUERY_NOT_SUPPORTED, "by",
                          "by is not supported for this answer");
    TRY(query_gather(q, 0, e));
    r = top(&tb, &answer, e);
    query_tree_deinit(&t);
    if (r == 0)
        *ret = answer;
    return r;
}
