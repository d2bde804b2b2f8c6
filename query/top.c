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

/* Searches of a table. */
enum {
    OF_ANY,
    OF_MATCH,
    N_SEARCH
};

/* What a function weighs below one level of by=. */
struct cut {
    uint32_t func;
    int64_t self, total;
    uint64_t samples, places;
};

struct part {
    uint32_t group, n;
    struct cut *cut;
};

struct table {
    struct query *q;
    const struct query_shape *s;
    const struct query_tree *t; /* that is shown */
    const struct query_top_ask *ask;
    uint32_t *key_of;        /* function -> row */
    struct query_row *row;   /* [0]: the root's, not shown */
    struct query_func *func; /* parallel */
    uint32_t n;
    uint8_t *again;                   /* per node; by numbers: only of files and binaries */
    const struct query_numbers *by;   /* in place of nodes; NULL: the tree is whole, or levels: */
    struct part *part;                /* each level's functions */
    uint32_t n_part, part_room, *met; /* met: function -> 1 + its cut of the level */
    uint32_t met_room;
    struct query_search search[N_SEARCH];
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
    switch (key) {
    case QUERY_KEY_LINE:
        return QUERY_OF_LINES;
    case QUERY_KEY_ADDR:
        return QUERY_OF_ADDRESSES;
    case QUERY_KEY_FILE:
        return QUERY_OF_FILES;
    case QUERY_KEY_FN:
    case QUERY_KEY_BIN:
    default:
        return QUERY_OF_FUNCTIONS;
    }
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

/* Functions of numbers that some node has. What filters took from all stacks is in no row: a row of
 * several functions has its kind from the first. */
static int that_occur(struct table *tb, uint8_t **ret, struct query_err *e)
{
    const struct query_numbers *u = tb->by;

    QUERY_NEW(tb->q, ret, tb->t->n_func, e);
    for (uint32_t i = 1; i < u->n; i++) {
        if (query_numbers_weighs(u, i))
            (*ret)[query_numbers_func(u, i)] = 1;
    }
    return 0;
}

static int make_rows(struct table *tb, struct query_err *e)
{
    const struct query_tree *t = tb->t;
    uint8_t *occurs = NULL;
    struct map by_key;
    int r = 0;

    if (tb->by && merges(tb->ask->key))
        TRY(that_occur(tb, &occurs, e));

    QUERY_NEW(tb->q, &tb->key_of, t->n_func, e);
    QUERY_NEW(tb->q, &tb->row, t->n_func, e);
    QUERY_NEW(tb->q, &tb->func, t->n_func, e);
    tb->func[0] = t->fn[0];
    tb->n = 1;
    map_init(&by_key, 0);
    for (uint32_t f = 1; f < t->n_func; f++) {
        struct query_func k = key_func(&t->fn[f], tb->ask->key);
        uint64_t own = 0, *slot = &own;

        if (occurs && !occurs[f])
            continue;
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

static bool nameless(const struct query_func *f)
{
    return (func_mark(f->kind, f->scope, f->name) & FUNC_UNSYMBOLISED) != 0;
}

static int again_by_key(struct table *tb, struct query_err *e)
{
    const struct query_numbers *u = tb->by;
    uint32_t *key;

    QUERY_NEW(tb->q, &key, u->n, e);
    QUERY_NEW(tb->q, &tb->again, u->n, e);
    for (uint32_t i = 0; i < u->n; i++)
        key[i] =
            i && query_numbers_weighs(u, i) ? tb->key_of[query_numbers_func(u, i)] : UINT32_MAX;
    return query_again(tb->q, u->n, u->parent, key, tb->n, tb->again, e);
}

static int weigh_numbers(struct table *tb, struct query_err *e)
{
    const struct query_numbers *u = tb->by;
    uint8_t *unnamed;

    if (merges(tb->ask->key) && u->n)
        TRY(again_by_key(tb, e));
    for (uint32_t i = 1; i < u->n; i++) {
        struct query_row *r;

        if (!query_numbers_weighs(u, i) || (tb->again ? tb->again[i] : query_bit(u->again, i)))
            continue;
        r = row_of(tb, i);
        r->total += u->sum[i].sum;
        r->samples += u->sum[i].low >> QUERY_NODE_BITS;
        r->places++;
    }
    QUERY_NEW(tb->q, &unnamed, tb->t->n_func, e);
    for (uint32_t f = 1; f < tb->t->n_func; f++)
        unnamed[f] = nameless(&tb->t->fn[f]);
    for (uint32_t k = 0; k < u->n_acc; k++) {
        for (uint32_t i = 0; i < u->acc[k]->n_entry; i++) {
            const struct query_entry *x = &u->acc[k]->entry[i];

            if (x->node == 0)
                continue;
            row_of(tb, x->node)->self += x->sum;
            if (unnamed[query_numbers_func(u, x->node)])
                row_of(tb, x->node)->unsymbolised += x->sum;
        }
    }
    return 0;
}

/* ---- by numbers, cut by levels -----------------------------------------------------------------
 */

/* The functions of a level, numbered as they are met. */
static int meet(struct table *tb, const struct query_tree *t, const struct query_numbers *u,
                struct part *ret, struct query_err *e)
{
    if (t->n_func > tb->met_room) {
        tb->met_room = 2 * t->n_func;
        QUERY_NEW(tb->q, &tb->met, tb->met_room, e);
    }
    for (uint32_t i = 1; i < u->n; i++) {
        if (query_numbers_weighs(u, i) && !tb->met[query_numbers_func(u, i)])
            tb->met[query_numbers_func(u, i)] = ++ret->n;
    }
    QUERY_NEW(tb->q, &ret->cut, ret->n, e);
    return 0;
}

static void cut_numbers(struct table *tb, const struct query_numbers *u, struct part *p)
{
    for (uint32_t i = 1; i < u->n; i++) {
        struct cut *c;

        if (!query_numbers_weighs(u, i))
            continue;
        c = &p->cut[tb->met[query_numbers_func(u, i)] - 1];
        c->func = query_numbers_func(u, i);
        if (query_bit(u->again, i))
            continue;
        c->total += u->sum[i].sum;
        c->samples += u->sum[i].low >> QUERY_NODE_BITS;
        c->places++;
    }
    for (uint32_t k = 0; k < u->n_acc; k++) {
        for (uint32_t i = 0; i < u->acc[k]->n_entry; i++) {
            const struct query_entry *x = &u->acc[k]->entry[i];

            if (x->node && query_numbers_weighs(u, x->node))
                p->cut[tb->met[query_numbers_func(u, x->node)] - 1].self += x->sum;
        }
    }
    for (uint32_t i = 0; i < p->n; i++)
        tb->met[p->cut[i].func] = 0;
}

static int on_level(void *ctx, struct query_tree *t, struct query_numbers *u, uint32_t group,
                    struct query_err *e)
{
    struct table *tb = ctx;
    struct part *p = query_grow(tb->q, tb->part, tb->n_part, &tb->part_room, sizeof *p, e);

    if (!p)
        return -ENOMEM;
    tb->part = p;
    p += tb->n_part++;
    *p = (struct part){.group = group};
    TRY(query_numbers_name(tb->q, t, u, e));
    TRY(meet(tb, t, u, p, e));
    cut_numbers(tb, u, p);
    return 0;
}

static void weigh_parts(struct table *tb)
{
    for (uint32_t k = 0; k < tb->n_part; k++) {
        for (uint32_t i = 0; i < tb->part[k].n; i++) {
            const struct cut *c = &tb->part[k].cut[i];
            struct query_row *r = &tb->row[tb->key_of[c->func]];

            r->self += c->self;
            r->total += c->total;
            r->samples += c->samples;
            r->places += c->places;
            if (nameless(&tb->t->fn[c->func]))
                r->unsymbolised += c->self;
        }
    }
}

/* ---- patterns ----------------------------------------------------------------------------------
 */

static uint64_t seen_samples(const struct query_seen *s)
{
    return s->unknown ? BATCH_UNKNOWN : s->samples;
}

static int find(struct table *tb, const struct query_search *x, uint32_t *bit,
                struct query_seen *each, struct query_seen *any, struct query_err *e)
{
    if (x->done) {
        memcpy(bit, x->bit, tb->t->n_func * sizeof *bit);
        memcpy(each, x->each, x->n * sizeof *each);
        *any = x->any;
        return 0;
    }
    return tb->by ? query_numbers_find(tb->q, tb->t, tb->by, x->pattern, x->n, x->param, bit, each,
                                       any, e)
                  : query_shape_find(tb->q, tb->s, x->pattern, x->n, x->param, NULL, bit, each, any,
                                     e);
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
    TRY(find(tb, &tb->search[OF_ANY], bit, each, &any, e));
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
    TRY(find(tb, &tb->search[OF_MATCH], bit, each, &any, e));
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

/* Rows behind the page before: they alone are left. */
static int skip_pages(const struct table *tb, uint32_t *n, struct query_err *e)
{
    char name[PLACE_NAME];
    struct place last = {.key = 0};
    uint32_t left = 0;

    TRY(place_read(tb->ask->after, name, &last, e));
    for (uint32_t i = 0; i < *n; i++) {
        const struct place p = place_of(tb, &tb->row[i]);

        if (place_cmp(&p, &last) > 0)
            tb->row[left++] = tb->row[i];
    }
    *n = left;
    return 0;
}

/* Row i of a heap whose first row is the last in order goes down to where it belongs. */
static void sink(struct table *tb, uint32_t n, uint32_t i)
{
    struct query_row *row = tb->row, one = row[i];

    for (uint32_t k; 2 * i + 1 < n; i = k) {
        k = 2 * i + 1;
        if (k + 1 < n && row_cmp(&row[k + 1], &row[k], tb) > 0)
            k++;
        if (row_cmp(&one, &row[k], tb) >= 0)
            break;
        row[i] = row[k];
    }
    row[i] = one;
}

/* The first rows of n, in order. Most tables have many times as many as a page shows. */
static void first_rows(struct table *tb, uint32_t n, uint32_t first)
{
    for (uint32_t i = first / 2; first < n && i-- > 0;)
        sink(tb, first, i);
    for (uint32_t i = first; first && i < n; i++) {
        if (row_cmp(&tb->row[i], &tb->row[0], tb) >= 0)
            continue;
        tb->row[0] = tb->row[i];
        sink(tb, first, 0);
    }
    if (first > 1)
        qsort_r(tb->row, first, sizeof *tb->row, row_cmp, tb);
}

static int page(struct table *tb, const uint8_t *shown, struct query_top *ret, struct query_err *e)
{
    uint32_t n = 0, first;
    struct str next;
    char text[PLACE_TEXT + 1];

    for (uint32_t i = 1; i < tb->n; i++) {
        if (shown[i] && tb->row[i].places) /* not a level of by= */
            tb->row[n++] = tb->row[i];
    }
    ret->rows = n;
    if (tb->ask->after.n)
        TRY(skip_pages(tb, &n, e));
    first = n < tb->ask->limit ? n : tb->ask->limit;
    first_rows(tb, n, first);
    if (first && first < n) {
        const struct place last = place_of(tb, &tb->row[first - 1]);

        place_text(&last, text);
        TRY(query_copy(tb->q, str_c(text), &next, e));
        ret->next = next;
    }
    ret->n = first;
    ret->row = tb->row;
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
    for (uint32_t k = 0; k < tb->n_part; k++) {
        const struct part *p = &tb->part[k];

        for (uint32_t i = 0; i < p->n; i++) {
            uint32_t row = at[tb->key_of[p->cut[i].func]];

            if (!row)
                continue;
            cell[p->group].self[row - 1] += p->cut[i].self;
            cell[p->group].total[row - 1] += p->cut[i].total;
        }
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
        TRY(weigh_numbers(tb, e));
    } else if (tb->part) {
        weigh_parts(tb);
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

/* What nodes have in common is in their functions: then they need no names. */
static bool numbers_do(const struct query *q, const struct query_top_ask *ask)
{
    if (q->n_by)
        return ask->key == QUERY_KEY_FN && ask->match.n == 0 && ask->n_any == 0;
    return detail_of(ask->key) == QUERY_OF_FUNCTIONS || detail_of(ask->key) == QUERY_OF_FILES;
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
    if (tb->q->n_by)
        TRY(query_tree_numbers_by(tb->q, on_level, tb, s, ret_done, e));
    else if (patterns_do(tb->q, tb->ask))
        TRY(query_tree_numbers(tb->q, false, N_SEARCH, tb->search, s, u, ret_done, e));
    if (!*ret_done)
        return query_gather_columns(tb->q->gather, e);
    if (tb->q->n_by)
        return 0;
    tb->by = u;
    return query_numbers_name(tb->q, s->t, u, e);
}

static int by_nodes(struct table *tb, struct query_shape *s, struct query_err *e)
{
    if (!numbers_do(tb->q, tb->ask)) /* else it is gathered */
        TRY(query_gather(tb->q, 0, e));
    return query_shape(tb->q, false, s, e);
}

static void ask_detail(struct query *q, const struct query_top_ask *ask)
{
    struct str pattern[QUERY_ANY_MAX + 1];
    uint32_t n = ask->n_any;

    for (uint32_t i = 0; i < n; i++)
        pattern[i] = ask->any[i];
    if (ask->match.n)
        pattern[n++] = ask->match;
    query_ask_detail(q, detail_of(ask->key), pattern, n);
}

int query_top(struct query *q, const struct query_top_ask *ask, struct query_top *ret,
              struct query_err *e)
{
    struct query_numbers u = {};
    struct query_shape s = {};
    struct table tb = {
        .q = q,
        .s = &s,
        .ask = ask,
        .search = {[OF_ANY] = {.pattern = ask->any, .n = ask->n_any, .param = "any"},
                   [OF_MATCH] = {.pattern = &ask->match, .n = ask->match.n > 0, .param = "match"}}};
    struct query_top answer = {};
    bool done = false;
    int r = 0;

    ask_detail(q, ask);
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
