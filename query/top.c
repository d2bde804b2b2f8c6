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
    const struct query_shape *s;
    const struct query_tree *t; /* that is shown */
    const struct query_top_ask *ask;
    uint32_t *key_of;        /* function -> row */
    struct query_row *row;   /* [0]: the root's, not shown */
    struct query_func *func; /* parallel */
    uint32_t n;
    uint8_t *again;                 /* per node */
    const struct query_numbers *by; /* in place of nodes; NULL: the tree is whole */
};

/* ---- keys --------------------------------------------------------------------------------------
 */

/* Rows are what the tree tells apart, or what several of its functions have in common. */
static bool merges(enum query_key key)
{
    return key == QUERY_KEY_FILE || key == QUERY_KEY_BIN;
}

static enum query_detail detail_of(enum query_key key)
{
    return key == QUERY_KEY_LINE   ? QUERY_OF_LINES
           : key == QUERY_KEY_ADDR ? QUERY_OF_ADDRESSES
                                   : QUERY_OF_FUNCTIONS;
}

static struct query_func key_func(const struct query_func *f, enum query_key key)
{
    struct query_func k = *f;

    if (!merges(key))
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
        if (merges(tb->ask->key)) {
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

static int find_again(struct table *tb, struct query_err *e)
{
    const struct query_tree *t = tb->t;

    QUERY_NEW(tb->q, &tb->again, t->n, e);
    if (merges(tb->ask->key))
        return query_tree_again(tb->q, t, tb->key_of, tb->n, tb->again, e);
    for (uint32_t i = 1; i < t->n; i++)
        tb->again[i] = t->flag[i] & QUERY_NODE_AGAIN;
    return 0;
}

static void weigh(struct table *tb)
{
    const struct query_tree *t = tb->t;

    for (uint32_t i = 1; i < t->n; i++) {
        struct query_row *r = &tb->row[tb->key_of[t->func[i]]];
        uint64_t samples = query_samples(t, 0, i);

        if (t->flag[i] & QUERY_NODE_LEVEL)
            continue;
        r->self += t->w[0].self[i];
        if (t->fn_flag[t->func[i]] & FUNC_UNSYMBOLISED)
            r->unsymbolised += t->w[0].self[i];
        if (tb->again[i])
            continue;
        r->total += t->w[0].total[i];
        r->places++;
        if (samples == BATCH_UNKNOWN || r->samples == BATCH_UNKNOWN)
            r->samples = BATCH_UNKNOWN;
        else
            r->samples += samples;
    }
}

/* ---- by numbers --------------------------------------------------------------------------------
 */

static struct query_row *row_of(struct table *tb, uint32_t i)
{
    return &tb->row[tb->key_of[query_numbers_func(tb->by, i)]];
}

static void weigh_numbers(struct table *tb)
{
    const struct query_numbers *u = tb->by;

    for (uint32_t i = 1; i < u->n; i++) {
        struct query_row *r;

        if (!query_numbers_weighs(u, i) || query_bit(u->again, i))
            continue;
        r = row_of(tb, i);
        r->total += u->sum[i].sum;
        r->samples += u->sum[i].low >> QUERY_NODE_BITS;
        r->places++;
    }
    for (uint32_t k = 0; k < u->n_acc; k++) {
        const struct query_acc *a = u->acc[k];

        for (uint32_t i = 0; i < a->n_entry; i++) {
            if (a->entry[i].node)
                row_of(tb, a->entry[i].node)->self += a->entry[i].sum;
        }
    }
}

/* ---- patterns ----------------------------------------------------------------------------------
 */

static uint64_t seen_samples(const struct query_seen *s)
{
    return s->unknown ? BATCH_UNKNOWN : s->samples;
}

static int find(struct table *tb, const struct str *pattern, uint32_t n, const char *param,
                uint32_t *bit, struct query_seen *each, struct query_seen *any, struct query_err *e)
{
    return tb->by ? query_numbers_find(tb->q, tb->t, tb->by, pattern, n, param, bit, each, any, e)
                  : query_shape_find(tb->q, tb->s, pattern, n, param, NULL, bit, each, any, e);
}

static int match_any(struct table *tb, struct query_top *ret, struct query_err *e)
{
    struct query_seen each[QUERY_ANY_MAX] = {}, any = {};
    struct query_any *out;
    uint32_t *bit, n = tb->ask->n_any;

    if (n == 0)
        return 0;
    QUERY_NEW(tb->q, &bit, tb->t->n_func, e);
    QUERY_NEW(tb->q, &out, n, e);
    TRY(find(tb, tb->ask->any, n, "any", bit, each, &any, e));
    for (uint32_t k = 0; k < n; k++) {
        TRY(query_copy(tb->q, tb->ask->any[k], &out[k].pattern, e));
        out[k].functions = each[k].functions;
        out[k].total = each[k].total;
        out[k].samples = seen_samples(&each[k]);
    }
    ret->any_union.functions = any.functions;
    ret->any_union.total = any.total;
    ret->any_union.samples = seen_samples(&any);
    ret->n_any = n;
    ret->any = out;
    return 0;
}

/* Rows that match: of functions those whose name does; of files and binaries those that hold one.
 */
static int match_rows(struct table *tb, uint8_t *shown, struct query_top *ret, struct query_err *e)
{
    struct query_seen each[1] = {}, any = {};
    uint32_t *bit;

    if (tb->ask->match.n == 0) {
        memset(shown, 1, tb->n);
        return 0;
    }
    QUERY_NEW(tb->q, &bit, tb->t->n_func, e);
    TRY(find(tb, &tb->ask->match, 1, "match", bit, each, &any, e));
    for (uint32_t f = 1; f < tb->t->n_func; f++)
        shown[tb->key_of[f]] |= bit[f] != 0;
    ret->has_match = true;
    ret->matched.functions = any.functions;
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

/* Where a row stands: a place in this order outlives changes of the data. */
struct place {
    unit_i128 value, total;
    struct str name; /* its first bytes */
    uint64_t key;
};

enum {
    PLACE_NAME = 48, /* bytes of a name that count; beyond them rows are told apart by key */
    PLACE_FIXED = 32 + 32 + 16,
    PLACE_TEXT = PLACE_FIXED + 2 * PLACE_NAME,
};

static struct place place_of(const struct table *tb, const struct query_row *r)
{
    const struct query_func *f = &tb->func[r->func];

    return (struct place){.value = sort_value(r, tb->ask->sort),
                          .total = r->total,
                          .name = str_to(f->name, PLACE_NAME),
                          .key = f->key};
}

/* Falling by value, then by total; of equal ones rising by name, then by key. */
static int place_cmp(const struct place *a, const struct place *b)
{
    int names;

    if (a->value != b->value)
        return a->value > b->value ? -1 : 1;
    if (a->total != b->total)
        return a->total > b->total ? -1 : 1;
    names = str_cmp(a->name, b->name);
    return names ? names : (a->key > b->key) - (a->key < b->key);
}

static int row_cmp(const void *va, const void *vb, void *ctx)
{
    const struct place a = place_of(ctx, va), b = place_of(ctx, vb);

    return place_cmp(&a, &b);
}

/* A page's end: value, total and key of its last row, 32, 32 and 16 hex digits, and its name's
 * bytes, two digits each. */
static void place_text(const struct place *p, char ret[PLACE_TEXT + 1])
{
    int n = snprintf(ret, PLACE_TEXT + 1,
                     "%016" PRIx64 "%016" PRIx64 "%016" PRIx64 "%016" PRIx64 "%016" PRIx64,
                     (uint64_t)(p->value >> 64), (uint64_t)p->value, (uint64_t)(p->total >> 64),
                     (uint64_t)p->total, p->key);

    for (size_t i = 0; i < p->name.n; i++)
        n += snprintf(ret + n, (size_t)(PLACE_TEXT + 1 - n), "%02x", (unsigned char)p->name.p[i]);
}

/* name: room for the place's, which borrows it */
static int place_read(struct str s, char name[PLACE_NAME], struct place *ret, struct query_err *e)
{
    uint64_t word[5] = {}, byte;
    bool ok = s.n >= PLACE_FIXED && s.n <= PLACE_TEXT && s.n % 2 == 0;

    for (size_t i = 0; ok && i < 5; i++)
        ok = str_hex64(str_to(str_from(s, 16 * i), 16), &word[i]);
    for (size_t i = PLACE_FIXED; ok && i < s.n; i += 2) {
        ok = str_hex64(str_to(str_from(s, i), 2), &byte);
        if (ok)
            name[(i - PLACE_FIXED) / 2] = (char)byte;
    }
    if (!ok)
        return query_fail(e, -EINVAL, QUERY_BAD_PARAMETER, "after",
                          "after is not the next of a page before");
    *ret = (struct place){.value = (unit_i128)((query_u128)word[0] << 64 | word[1]),
                          .total = (unit_i128)((query_u128)word[2] << 64 | word[3]),
                          .name = {name, (s.n - PLACE_FIXED) / 2},
                          .key = word[4]};
    return 0;
}

/* Rows behind the page before. */
static int skip_pages(const struct table *tb, uint32_t n, uint32_t *from, struct query_err *e)
{
    char name[PLACE_NAME];
    struct place last = {.key = 0};

    TRY(place_read(tb->ask->after, name, &last, e));
    while (*from < n) {
        const struct place p = place_of(tb, &tb->row[*from]);

        if (place_cmp(&p, &last) > 0)
            break;
        ++*from;
    }
    return 0;
}

static int page(struct table *tb, const uint8_t *shown, struct query_top *ret, struct query_err *e)
{
    uint32_t from = 0, n = 0;
    struct str next;
    char text[PLACE_TEXT + 1];

    for (uint32_t i = 1; i < tb->n; i++) {
        if (shown[i] && tb->row[i].places) /* not a level of by= */
            tb->row[n++] = tb->row[i];
    }
    ret->rows = n;
    if (n > 1)
        qsort_r(tb->row, n, sizeof *tb->row, row_cmp, tb);
    if (tb->ask->after.n)
        TRY(skip_pages(tb, n, &from, e));
    n -= from;
    if (n > tb->ask->limit) {
        n = tb->ask->limit;
        if (n) {
            const struct place last = place_of(tb, &tb->row[from + n - 1]);

            place_text(&last, text);
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

/* ---- groups ------------------------------------------------------------------------------------
 */

struct cell {
    unit_i128 *self, *total;
};

static int new_groups(struct table *tb, const struct query_top *page, struct query_top_group *g,
                      struct cell *cell, struct query_err *e)
{
    const struct query_gather *gather = tb->q->gather;

    for (uint32_t k = 0; k <= gather->n_group; k++) {
        QUERY_NEW(tb->q, &cell[k].self, page->n, e);
        QUERY_NEW(tb->q, &cell[k].total, page->n, e);
        g[k].self = cell[k].self;
        g[k].sums = cell[k].total;
        g[k].rest = k == gather->n_group;
        for (uint32_t i = 0; i < tb->q->n_by && !g[k].rest; i++)
            g[k].label[i] = gather->group[k].value[i];
    }
    return 0;
}

/* The page's rows again, each cut into groups. */
static int groups(struct table *tb, struct query_top *ret, struct query_err *e)
{
    const struct query_tree *t = tb->t;
    uint32_t n = tb->q->gather->n_group, *at;
    struct query_top_group *g;
    struct cell *cell;
    bool rest = false;

    if (tb->q->n_by == 0)
        return 0;
    QUERY_NEW(tb->q, &g, (size_t)n + 1, e);
    QUERY_NEW(tb->q, &cell, (size_t)n + 1, e);
    QUERY_NEW(tb->q, &at, tb->n, e); /* row -> 1 + its place on the page */
    TRY(new_groups(tb, ret, g, cell, e));
    for (uint32_t i = 0; i < ret->n; i++)
        at[ret->row[i].func] = i + 1;
    for (uint32_t i = 0; i < t->n; i++) {
        uint32_t row = at[tb->key_of[t->func[i]]];

        if (t->flag[i] & QUERY_NODE_TOP) {
            g[t->group[i]].total += t->w[0].total[i];
            g[t->group[i]].samples = query_samples(t, 0, i);
            rest |= t->group[i] == n;
        }
        if ((t->flag[i] & QUERY_NODE_LEVEL) || !row)
            continue;
        cell[t->group[i]].self[row - 1] += t->w[0].self[i];
        if (!tb->again[i])
            cell[t->group[i]].total[row - 1] += t->w[0].total[i];
    }
    ret->n_by = tb->q->n_by;
    memcpy(ret->by, tb->q->by, sizeof ret->by);
    ret->n_group = n + rest;
    ret->group = g;
    return 0;
}

static int top(struct table *tb, struct query_top *ret, struct query_err *e)
{
    uint8_t *shown;

    TRY(make_rows(tb, e));
    QUERY_NEW(tb->q, &shown, tb->n, e);
    if (tb->by) {
        weigh_numbers(tb);
    } else {
        TRY(find_again(tb, e));
        weigh(tb);
    }
    TRY(match_any(tb, ret, e));
    TRY(match_rows(tb, shown, ret, e));
    TRY(page(tb, shown, ret, e));
    TRY(groups(tb, ret, e));
    return query_shape_sums(tb->q, tb->s, &ret->sum, e);
}

/* Functions alone: then nodes need no names. */
static bool numbers_do(const struct query *q, const struct query_top_ask *ask)
{
    return ask->key == QUERY_KEY_FN && q->n_by == 0;
}

/* Patterns are tried on full names: numbers have one name per function. */
static bool patterns_do(const struct query *q, const struct query_top_ask *ask)
{
    return !q->gather->shortens || (ask->match.n == 0 && ask->n_any == 0);
}

/* *ret_done false: not these data. */
static int by_numbers(struct table *tb, struct query_shape *s, struct query_numbers *u,
                      bool *ret_done, struct query_err *e)
{
    TRY(query_gather_listed(tb->q, e));
    *ret_done = false;
    if (patterns_do(tb->q, tb->ask))
        TRY(query_tree_numbers(tb->q, s, u, ret_done, e));
    if (!*ret_done)
        return query_gather_columns(tb->q->gather, e);
    tb->by = u;
    return query_numbers_name(tb->q, s->t, u, e);
}

static int by_nodes(struct table *tb, struct query_shape *s, struct query_err *e)
{
    if (!numbers_do(tb->q, tb->ask)) /* else it is gathered */
        TRY(query_gather(tb->q, 0, e));
    return query_shape(tb->q, false, s, e);
}

int query_top(struct query *q, const struct query_top_ask *ask, struct query_top *ret,
              struct query_err *e)
{
    struct query_numbers u = {};
    struct query_shape s = {};
    struct table tb = {.q = q, .s = &s, .ask = ask};
    struct query_top answer = {};
    bool done = false;
    int r = 0;

    q->detail = detail_of(ask->key);
    if (numbers_do(q, ask))
        r = by_numbers(&tb, &s, &u, &done, e);
    if (r == 0 && !done)
        r = by_nodes(&tb, &s, e);
    tb.t = s.t;
    if (r == 0)
        r = top(&tb, &answer, e);
    query_numbers_deinit(&u);
    query_shape_deinit(&s);
    if (r == 0)
        *ret = answer;
    return r;
}
