// SPDX-License-Identifier: Apache-2.0
/* What occurs in a range: found by walking the rows, since only they say when something was. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "storage/view_private.h"

struct span {
    int64_t lo, hi; /* ms, hi included; lo > hi: not seen */
};

struct occur {
    const struct store_view *v;
    const struct selection *sel;
    struct span *series, *target;
    uint64_t *thread, *cpu; /* bitmaps: met */
    uint64_t *type;         /* bitmaps by target */
    uint32_t type_words;
};

static void widen(struct span *s, int64_t lo, int64_t hi)
{
    s->lo = lo < s->lo ? lo : s->lo;
    s->hi = hi > s->hi ? hi : s->hi;
}

/* Types as small numbers: built-in ids, then imported ones. */
static uint32_t type_bit(ptype_id id)
{
    return id < PTYPE_IMPORTED_FIRST ? id : PTYPE_BUILTIN_END + (id - PTYPE_IMPORTED_FIRST);
}

static ptype_id bit_type(uint32_t bit)
{
    return bit < PTYPE_BUILTIN_END ? bit : PTYPE_IMPORTED_FIRST + (bit - PTYPE_BUILTIN_END);
}

static void meet_target(struct occur *o, uint32_t target, ptype_id type, int64_t lo, int64_t hi)
{
    widen(&o->target[target], lo, hi);
    bit_set(o->type + (size_t)target * o->type_words, type_bit(type));
}

static bool on_row(void *ctx, const struct row_at *row)
{
    struct occur *o = ctx;
    const uint32_t *cpu = atomic_load_explicit(&row->c->cpu, memory_order_acquire);
    uint32_t thread = row->c->thread[row->i];

    widen(&o->series[row->c->series[row->i]], row->ms, row->ms);
    bit_set(o->thread, thread);
    bit_set(o->cpu, cpu ? cpu[row->i] : 0);
    meet_target(o, TABLE(&o->v->h->thread, struct head_thread, thread)->target, row->g->type,
                row->ms, row->ms);
    return true;
}

static struct span *spans(struct arena *a, uint32_t n)
{
    struct span *s = arena_array(a, struct span, n);

    for (uint32_t i = 0; s && i < n; i++)
        s[i] = (struct span){INT64_MAX, INT64_MIN};
    return s;
}

/* Streams without rows are data: covered and zero. */
static void meet_covers(struct occur *o, struct interval range)
{
    const struct store_view *v = o->v;

    for (uint32_t i = 0; i < v->snap.cover; i++) {
        const struct head_cover *c = VEC(&v->h->cover, struct head_cover, i);
        const struct head_scope *sc = TABLE(&v->h->scope, struct head_scope, c->scope);
        struct interval t = interval_cut(c->t, range);

        if (!c->series || t.t0.v >= t.t1.v || !bit_get(o->sel->series, c->series) ||
            !bit_get(o->sel->target, sc->target))
            continue;
        widen(&o->series[c->series], ms_floor(t.t0), ms_ceil(t.t1) - 1);
        meet_target(o, sc->target, sc->type, ms_floor(t.t0), ms_ceil(t.t1) - 1);
    }
}

static int find(struct store_view *v, const struct store_ask *ask, struct arena *a,
                struct selection *sel, struct occur *ret, struct err *err)
{
    const struct head_snap *n = &v->snap;

    TRY(select_series(v, &ask->sel, a, sel, err));
    *ret = (struct occur){.v = v,
                          .sel = sel,
                          .series = spans(a, n->series),
                          .target = spans(a, n->target),
                          .thread = arena_array(a, uint64_t, n->thread / 64 + 1),
                          .cpu = arena_array(a, uint64_t, n->cpu / 64 + 1),
                          .type_words = (PTYPE_BUILTIN_END + n->ptype) / 64 + 1};
    ret->type = arena_array(a, uint64_t, (size_t)n->target * ret->type_words);
    if (!ret->series || !ret->target || !ret->thread || !ret->cpu || !ret->type)
        return no_memory(err);
    (void)each_row(v, ask->sel.type, sel, ask->range, on_row, ret);
    meet_covers(ret, ask->range);
    return 0;
}

static bool seen(const struct span *s)
{
    return s->lo <= s->hi;
}

static struct interval seen_ns(const struct span *s, struct interval range)
{
    struct interval t = {{s->lo * NS_PER_MS}, {(s->hi + 1) * NS_PER_MS}};

    return interval_cut(t, range);
}

int store_list_types(struct store_view *v, const struct store_ask *ask, store_type_fn *fn,
                     void *ctx, struct err *err)
{
    struct arena a;
    struct selection sel;
    struct occur o;
    struct span *type;
    uint32_t n = PTYPE_BUILTIN_END + v->snap.ptype;
    int r;

    read_arena(v, &a);
    type = spans(&a, n);
    r = type ? find(v, ask, &a, &sel, &o, err) : no_memory(err);
    for (uint32_t i = 1; r == 0 && i < v->snap.series; i++) {
        uint32_t bit = type_bit(TABLE(&v->h->series, struct head_series, i)->type);

        if (seen(&o.series[i]))
            widen(&type[bit], o.series[i].lo, o.series[i].hi);
    }
    for (uint32_t i = 1; r == 0 && i < n; i++) {
        struct store_type t;

        if (!seen(&type[i]) || !head_type_info(v->h, v->snap.ptype, bit_type(i), &t))
            continue;
        t.seen = seen_ns(&type[i], ask->range);
        if (!fn(ctx, &t))
            r = cancelled(err);
    }
    arena_deinit(&a);
    return r;
}

/* ---- names and values ---------------------------------------------------------------------- */

static int by_bytes(const void *a, const void *b)
{
    return str_cmp(*(const struct str *)a, *(const struct str *)b);
}

/* Sorted, none twice. */
static uint32_t unique(struct str *v, uint32_t n)
{
    uint32_t k = 0;

    if (n > 1)
        qsort(v, n, sizeof *v, by_bytes);
    for (uint32_t i = 0; i < n; i++) {
        if (k == 0 || !str_eq(v[k - 1], v[i]))
            v[k++] = v[i];
    }
    return k;
}

/* Distinct values of a name among what occurs; "" is no value. */
static struct str *values_of(const struct occur *o, struct arena *a, struct str name, uint32_t *ret)
{
    const struct store_view *v = o->v;
    enum attr attr = attr_of(name);
    uint32_t end = attr == ATTR_NONE  ? v->snap.series
                   : attr == ATTR_CPU ? v->snap.cpu
                                      : v->snap.thread;
    struct str *out = arena_array(a, struct str, end);
    uint32_t n = 0;
    char buf[24];

    for (uint32_t i = 0; out && i < end; i++) {
        struct str s = {};

        if (attr == ATTR_NONE) {
            if (i > 0 && seen(&o->series[i]))
                s = label_of(v, TABLE(&v->h->series, struct head_series, i)->labels, name, NULL);
        } else if (bit_get(attr == ATTR_CPU ? o->cpu : o->thread, i)) {
            s = attr_text(v, attr, i, attr == ATTR_CPU ? i : 0, buf);
            if (s.p == buf) {
                s = arena_str(a, s);
                if (!s.p)
                    return NULL;
            }
        }
        if (s.n > 0)
            out[n++] = s;
    }
    if (out)
        *ret = unique(out, n);
    return out;
}

int store_list_values(struct store_view *v, const struct store_ask *ask, store_value_fn *fn,
                      void *ctx, struct err *err)
{
    struct arena a;
    struct selection sel;
    struct occur o;
    struct str *value = NULL;
    uint32_t n = 0;
    int r;

    read_arena(v, &a);
    r = find(v, ask, &a, &sel, &o, err);
    if (r == 0) {
        value = values_of(&o, &a, ask->name, &n);
        r = value ? 0 : no_memory(err);
    }
    for (uint32_t i = 0; r == 0 && i < n; i++) {
        if (ask->after.n > 0 && str_cmp(value[i], ask->after) <= 0)
            continue;
        if (!fn(ctx, value[i]))
            r = cancelled(err);
    }
    arena_deinit(&a);
    return r;
}

static struct str *names_of(const struct occur *o, struct arena *a, uint32_t *ret)
{
    static const struct str attr[] = {STR("cpu"), STR("pid"), STR("target"), STR("thread"),
                                      STR("tid")};
    const struct store_view *v = o->v;
    size_t most = sizeof attr / sizeof *attr;
    uint32_t n = 0;
    struct str *out;

    for (uint32_t i = 1; i < v->snap.series; i++) {
        if (seen(&o->series[i]))
            most += head_labels(v->h, TABLE(&v->h->series, struct head_series, i)->labels)->n;
    }
    out = arena_array(a, struct str, most);
    for (size_t i = 0; out && i < sizeof attr / sizeof *attr; i++)
        out[n++] = attr[i];
    for (uint32_t i = 1; out && i < v->snap.series; i++) {
        const struct dict_labels *l;

        if (!seen(&o->series[i]))
            continue;
        l = head_labels(v->h, TABLE(&v->h->series, struct head_series, i)->labels);
        for (uint32_t k = 0; k < l->n; k++)
            out[n++] = l->v[k].name;
    }
    if (out)
        *ret = unique(out, n);
    return out;
}

int store_list_names(struct store_view *v, const struct store_ask *ask, store_name_fn *fn,
                     void *ctx, struct err *err)
{
    struct arena a, tmp;
    struct selection sel;
    struct occur o;
    struct str *name = NULL;
    uint32_t n = 0;
    int r;

    read_arena(v, &a);
    read_arena(v, &tmp);
    r = find(v, ask, &a, &sel, &o, err);
    if (r == 0) {
        name = names_of(&o, &a, &n);
        r = name ? 0 : no_memory(err);
    }
    for (uint32_t i = 0; r == 0 && i < n; i++) {
        struct store_name out = {.name = name[i], .attribute = attr_of(name[i]) != ATTR_NONE};
        uint32_t values = 0;

        if (!values_of(&o, &tmp, name[i], &values))
            r = no_memory(err);
        out.values = values;
        if (r == 0 && values > 0 && !fn(ctx, &out))
            r = cancelled(err);
        arena_reset(&tmp);
    }
    arena_deinit(&tmp);
    arena_deinit(&a);
    return r;
}

/* ---- series and targets -------------------------------------------------------------------- */

struct series_row {
    const struct head_series *s;
    const struct dict_labels *l;
    const struct span *span;
};

static int by_type_labels(const void *a, const void *b)
{
    const struct series_row *x = a, *y = b;

    if (x->s->type != y->s->type)
        return (x->s->type > y->s->type) - (x->s->type < y->s->type);
    for (uint32_t i = 0; i < x->l->n && i < y->l->n; i++) {
        int r = str_cmp(x->l->v[i].name, y->l->v[i].name);

        if (r == 0)
            r = str_cmp(x->l->v[i].value, y->l->v[i].value);
        if (r != 0)
            return r;
    }
    return (x->l->n > y->l->n) - (x->l->n < y->l->n);
}

int store_list_series(struct store_view *v, const struct store_ask *ask, store_series_fn *fn,
                      void *ctx, struct err *err)
{
    struct arena a;
    struct selection sel;
    struct occur o;
    struct series_row *row;
    uint32_t n = 0;
    int r;

    read_arena(v, &a);
    row = arena_array(&a, struct series_row, v->snap.series);
    r = row ? find(v, ask, &a, &sel, &o, err) : no_memory(err);
    for (uint32_t i = 1; r == 0 && i < v->snap.series; i++) {
        const struct head_series *s = TABLE(&v->h->series, struct head_series, i);

        if (seen(&o.series[i]))
            row[n++] = (struct series_row){s, head_labels(v->h, s->labels), &o.series[i]};
    }
    if (n > 1)
        qsort(row, n, sizeof *row, by_type_labels);
    for (uint32_t i = 0; r == 0 && i < n; i++) {
        struct store_series out = {.type = row[i].s->type,
                                   .labels = {row[i].l->n, row[i].l->v},
                                   .seen = seen_ns(row[i].span, ask->range)};

        if (!fn(ctx, &out))
            r = cancelled(err);
    }
    arena_deinit(&a);
    return r;
}

struct target_row {
    uint32_t target;
    const struct span *span;
};

static int newest_first(const void *a, const void *b)
{
    const struct target_row *x = a, *y = b;

    if (x->span->hi != y->span->hi)
        return (x->span->hi < y->span->hi) - (x->span->hi > y->span->hi);
    return (x->target > y->target) - (x->target < y->target);
}

/* The version of its names that the view knows. */
static const struct head_info *info_of(const struct store_view *v, uint32_t target)
{
    static const struct head_info none;
    const struct head_target *t = TABLE(&v->h->target, struct head_target, target);
    uint32_t i = atomic_load_explicit(&t->info, memory_order_acquire);

    while (i > v->snap.info)
        i = VEC(&v->h->info, struct head_info, i - 1)->prev;
    return i ? VEC(&v->h->info, struct head_info, i - 1) : &none;
}

static void describe(const struct store_view *v, uint32_t target, struct store_target *ret)
{
    const struct head_info *i = info_of(v, target);
    const struct dict_labels *env = head_labels(v->h, i->env);

    ret->key = TABLE(&v->h->target, struct head_target, target)->key;
    ret->exe = head_str(v->h, i->exe);
    ret->cmdline = head_str(v->h, i->cmdline);
    ret->comm = head_str(v->h, i->comm);
    ret->cgroup = head_str(v->h, i->cgroup);
    ret->container = head_str(v->h, i->container);
    ret->env = (struct store_labels){env->n, env->v};
    ret->flags = i->flags;
}

int store_list_targets(struct store_view *v, const struct store_ask *ask, store_target_fn *fn,
                       void *ctx, struct err *err)
{
    struct arena a;
    struct selection sel;
    struct occur o;
    struct target_row *row;
    ptype_id *type;
    uint32_t n = 0;
    int r;

    read_arena(v, &a);
    row = arena_array(&a, struct target_row, v->snap.target);
    type = arena_array(&a, ptype_id, PTYPE_BUILTIN_END + v->snap.ptype);
    r = row && type ? find(v, ask, &a, &sel, &o, err) : no_memory(err);
    for (uint32_t i = 1; r == 0 && i < v->snap.target; i++) {
        if (seen(&o.target[i]))
            row[n++] = (struct target_row){i, &o.target[i]};
    }
    if (n > 1)
        qsort(row, n, sizeof *row, newest_first);
    for (uint32_t i = 0; r == 0 && i < n; i++) {
        struct store_target out = {.type = type, .seen = seen_ns(row[i].span, ask->range)};

        describe(v, row[i].target, &out);
        for (uint32_t k = 0; k < PTYPE_BUILTIN_END + v->snap.ptype; k++) {
            if (bit_get(o.type + (size_t)row[i].target * o.type_words, k))
                type[out.n_type++] = bit_type(k);
        }
        if (!fn(ctx, &out))
            r = cancelled(err);
    }
    arena_deinit(&a);
    return r;
}
