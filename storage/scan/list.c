// SPDX-License-Identifier: Apache-2.0
/* What occurs in a range: found by walking the rows, since only they say when something was. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "storage/keep/view_private.h"

struct span {
    int64_t lo, hi; /* ms, hi included; lo > hi: not seen */
};

/* What is asked of the rows: those that tell nothing of it are left out. */
enum wants {
    WANT_TYPES = 1,   /* when each type occurred */
    WANT_SERIES = 2,  /* which series occurred */
    WANT_SPANS = 4,   /* and when */
    WANT_TARGETS = 8, /* which targets, when, with which types */
    WANT_THREADS = 16,
    WANT_CPUS = 32,
};

struct occur {
    struct store_view *v;
    uint32_t wants;
    const struct selection *sel;
    struct opened *o;
    struct span *series, *target; /* target: by number in the view */
    struct span *of_type;         /* by type_bit() */
    uint32_t *by_svc, *svc_at;    /* series by service; where each begins, one more at the end */
    uint64_t **thread;            /* by source: bitmap of those met */
    uint32_t *threads;            /* by source: how many, 0 (none) left out */
    uint64_t *cpu;                /* bitmap: met */
    uint32_t cpus;                /* all below it were, 0 (not kept) left out */
    uint64_t *type;               /* bitmaps by target */
    uint32_t **local_target;      /* invert() */
    uint32_t n_target, type_words;
    int r; /* STORE_PARTIAL: a source could not be read */
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
    const struct opened *src = &o->o[row->source];
    const struct local_thread *th;

    widen(&o->series[row->series], row->ms, row->ms);
    widen(&o->of_type[type_bit(row->type)], row->ms, row->ms);
    bit_set(o->cpu, row->cpu);
    if (!src->local) /* it began to touch the range after it was looked at: cannot be */
        return true;
    if (!bit_get(o->thread[row->source], row->thread)) {
        bit_set(o->thread[row->source], row->thread);
        o->threads[row->source] += row->thread > 0;
    }
    th = TABLE(&src->local->thread, struct local_thread, row->thread);
    meet_target(o, src->target[th->target], row->type, row->ms, row->ms);
    return true;
}

static bool inside(const struct span *s, int64_t lo, int64_t hi)
{
    return s->lo <= lo && s->hi >= hi;
}

static bool knows_cpus(struct occur *o, const struct local *l)
{
    while (o->cpus < LOCAL_CPUS && bit_get(o->cpu, o->cpus))
        o->cpus++;
    return !(o->wants & WANT_CPUS) || o->cpus >= l->cpu;
}

static bool knows_series(const struct occur *o, uint32_t series, ptype_id type, int64_t lo,
                         int64_t hi)
{
    const struct span *s = &o->series[series];

    return (!(o->wants & WANT_SERIES) || s->lo <= s->hi) &&
           (!(o->wants & WANT_SPANS) || inside(s, lo, hi)) &&
           (!(o->wants & WANT_TYPES) || inside(&o->of_type[type_bit(type)], lo, hi));
}

static bool is_known(void *ctx, const struct row_at *row, int64_t last)
{
    struct occur *o = ctx;
    const struct opened *src = &o->o[row->source];
    uint32_t target;

    if (!src->local || !knows_cpus(o, src->local) ||
        !knows_series(o, row->series, row->type, row->ms, last) ||
        ((o->wants & WANT_THREADS) && !bit_get(o->thread[row->source], row->thread)))
        return false;
    if (!(o->wants & WANT_TARGETS))
        return true;
    target = src->target[TABLE(&src->local->thread, struct local_thread, row->thread)->target];
    return inside(&o->target[target], row->ms, last) &&
           bit_get(o->type + (size_t)target * o->type_words, type_bit(row->type));
}

#define SERIES_LOOK 4096u /* of a service, looked at per block */

/* A block says its service and its times, not its threads: those must all have been met. */
static bool is_dull(void *ctx, uint32_t source, const struct block_meta *m)
{
    struct occur *o = ctx;
    const struct opened *src = &o->o[source];
    int64_t lo = ms_floor((real_ns){m->t0}), hi = ms_ceil((real_ns){m->t1}) - 1;
    uint32_t from, to;

    if ((o->wants & WANT_TARGETS) || !src->local || !knows_cpus(o, src->local) ||
        m->svc >= o->v->snap.svc ||
        ((o->wants & WANT_THREADS) && o->threads[source] + 1 < src->n.thread))
        return false;
    if (o->wants == WANT_TYPES)
        return inside(&o->of_type[type_bit(m->type)], lo, hi);
    from = o->svc_at[m->svc];
    to = o->svc_at[m->svc + 1];
    if (to - from > SERIES_LOOK)
        return false;
    for (uint32_t k = from; k < to; k++) {
        uint32_t i = o->by_svc[k];

        if (i >= m->smin && i <= m->smax && bit_get(o->sel->series, i) &&
            names_series(o->v->names, i)->type == m->type && !knows_series(o, i, m->type, lo, hi))
            return false;
    }
    return true;
}

/* False: memory is short. */
static bool series_by_service(struct occur *o, struct arena *a)
{
    const struct names_snap *n = &o->v->snap;
    uint32_t *at = arena_array(a, uint32_t, n->svc + 2);

    o->by_svc = arena_array(a, uint32_t, n->series);
    o->svc_at = at;
    if (!o->by_svc || !at)
        return false;
    for (uint32_t i = 1; i < n->series; i++) {
        uint32_t svc = names_series(o->v->names, i)->svc;

        at[svc < n->svc ? svc + 2 : 0] += svc < n->svc;
    }
    for (uint32_t k = 2; k < n->svc + 2; k++)
        at[k] += at[k - 1];
    for (uint32_t i = 1; i < n->series; i++) {
        uint32_t svc = names_series(o->v->names, i)->svc;

        if (svc < n->svc)
            o->by_svc[at[svc + 1]++] = i;
    }
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
static void meet_covers(struct occur *o, uint32_t source, struct interval range)
{
    const struct opened *src = &o->o[source];
    const struct local *l = src->local;

    for (uint32_t i = 0; l && i < src->n.cover; i++) {
        const struct local_cover *c = VEC(&l->cover, struct local_cover, i);
        const struct local_scope *sc = TABLE(&l->scope, struct local_scope, c->scope);
        struct interval t = interval_cut(c->t, range);

        if (!c->series || t.t0.v >= t.t1.v || !bit_get(o->sel->series, c->series) ||
            !bit_get(selection_bits(o->sel, source).target, sc->target))
            continue;
        widen(&o->series[c->series], ms_floor(t.t0), ms_ceil(t.t1) - 1);
        widen(&o->of_type[type_bit(sc->type)], ms_floor(t.t0), ms_ceil(t.t1) - 1);
        meet_target(o, src->target[sc->target], sc->type, ms_floor(t.t0), ms_ceil(t.t1) - 1);
    }
}

static bool find_room(struct occur *o, struct arena *a)
{
    const struct store_view *v = o->v;

    o->n_target = view_n_target(o->v);
    o->type_words = (PTYPE_BUILTIN_END + v->snap.ptype) / 64 + 1;
    o->series = spans(a, v->snap.series);
    o->target = spans(a, o->n_target);
    o->of_type = spans(a, PTYPE_BUILTIN_END + v->snap.ptype);
    o->thread = arena_calloc(a, v->n_source, sizeof *o->thread);
    o->threads = arena_array(a, uint32_t, v->n_source);
    o->cpus = 1;
    if (!series_by_service(o, a))
        return false;
    o->cpu = arena_array(a, uint64_t, LOCAL_CPUS / 64 + 1);
    o->type = arena_array(a, uint64_t, (size_t)o->n_target * o->type_words);
    if (!o->series || !o->target || !o->of_type || !o->thread || !o->threads || !o->cpu || !o->type)
        return false;
    for (uint32_t i = 0; i < v->n_source; i++) {
        if (!o->o[i].local)
            continue;
        o->thread[i] = arena_array(a, uint64_t, o->o[i].n.thread / 64 + 1);
        if (!o->thread[i])
            return false;
    }
    return true;
}

/* 0, negative; what could not be read is in ret->r. */
static int find(struct store_view *v, const struct store_ask *ask, struct arena *a,
                struct selection *sel, uint32_t wants, struct occur *ret, struct err *err)
{
    const struct row_walk to = {.ctx = ret, .fn = on_row, .known = is_known, .dull = is_dull};
    int r;

    *ret = (struct occur){.v = v, .sel = sel, .wants = wants};
    TRY(view_open(v, &ask->range, 1, a, &ret->o, err));
    TRY(select_series(v, &ask->sel, ret->o, a, sel, err));
    if (!find_room(ret, a))
        return no_memory(err);
    TRY_OUTCOME(r, each_row(v, ask->sel.type, sel, ask->range, &to, err));
    ret->r = r;
    for (uint32_t i = 0; i < v->n_source; i++) {
        meet_covers(ret, i, ask->range);
        ret->r = ret->o[i].damaged ? STORE_PARTIAL : ret->r;
    }
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
    uint32_t n = PTYPE_BUILTIN_END + v->snap.ptype;
    int r;

    read_arena(v, &a);
    r = find(v, ask, &a, &sel, WANT_TYPES, &o, err);
    for (uint32_t i = 1; r == 0 && i < n; i++) {
        struct store_type t;

        if (!seen(&o.of_type[i]) || !names_type_info(v->names, v->snap.ptype, bit_type(i), &t))
            continue;
        t.seen = seen_ns(&o.of_type[i], ask->range);
        if (!fn(ctx, &t))
            r = cancelled(err);
    }
    arena_deinit(&a);
    return r == 0 ? o.r : r;
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

struct values {
    const struct occur *o;
    struct arena *a;
    struct str name;
    uint32_t n, room;
    struct str *v;
};

static bool add_value(struct values *l, struct str s, const char *buf)
{
    if (s.n == 0)
        return true;
    if (l->n == l->room) {
        uint32_t room = l->room ? 2 * l->room : 256;
        struct str *v = arena_array(l->a, struct str, room);

        if (!v)
            return false;
        if (l->n)
            memcpy(v, l->v, l->n * sizeof *v);
        l->v = v;
        l->room = room;
    }
    if (s.p == buf) {
        s = arena_str(l->a, s);
        if (!s.p)
            return false;
    }
    l->v[l->n++] = s;
    return true;
}

static bool label_values(struct values *l)
{
    const struct store_view *v = l->o->v;

    for (uint32_t i = 1; i < v->snap.series; i++) {
        if (seen(&l->o->series[i]) &&
            !add_value(l, label_of(v->names, names_series(v->names, i)->labels, l->name, NULL),
                       NULL))
            return false;
    }
    return true;
}

static bool cpu_values(struct values *l)
{
    char buf[24];

    for (uint32_t i = 1; i < LOCAL_CPUS; i++) {
        if (bit_get(l->o->cpu, i) && !add_value(l, attr_number(buf, i - 1), buf))
            return false;
    }
    return true;
}

static bool thread_values(struct values *l, enum attr attr)
{
    char buf[24];

    for (uint32_t k = 0; k < l->o->v->n_source; k++) {
        const struct opened *src = &l->o->o[k];

        for (uint32_t i = 0; src->local && i < src->n.thread; i++) {
            if (bit_get(l->o->thread[k], i) &&
                !add_value(l, attr_text(src->local, attr, i, 0, buf), buf))
                return false;
        }
    }
    return true;
}

/* Distinct values of a name among what occurs; "" is no value. False: memory is short. */
static bool values_of(const struct occur *o, struct arena *a, struct str name, struct str **ret,
                      uint32_t *ret_n)
{
    struct values l = {.o = o, .a = a, .name = name};
    enum attr attr = attr_of(name);
    bool ok = attr == ATTR_NONE  ? label_values(&l)
              : attr == ATTR_CPU ? cpu_values(&l)
                                 : thread_values(&l, attr);

    *ret = l.v;
    *ret_n = ok ? unique(l.v, l.n) : 0;
    return ok;
}

static uint32_t wants_of(struct str name)
{
    enum attr attr = attr_of(name);

    return attr == ATTR_NONE ? WANT_SERIES : attr == ATTR_CPU ? WANT_CPUS : WANT_THREADS;
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
    r = find(v, ask, &a, &sel, wants_of(ask->name), &o, err);
    if (r == 0 && !values_of(&o, &a, ask->name, &value, &n))
        r = no_memory(err);
    for (uint32_t i = 0; r == 0 && i < n; i++) {
        if (ask->after.n > 0 && str_cmp(value[i], ask->after) <= 0)
            continue;
        if (!fn(ctx, value[i]))
            r = cancelled(err);
    }
    arena_deinit(&a);
    return r == 0 ? o.r : r;
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
            most += names_labels(v->names, names_series(v->names, i)->labels)->n;
    }
    out = arena_array(a, struct str, most);
    for (size_t i = 0; out && i < sizeof attr / sizeof *attr; i++)
        out[n++] = attr[i];
    for (uint32_t i = 1; out && i < v->snap.series; i++) {
        const struct names_labels *l;

        if (!seen(&o->series[i]))
            continue;
        l = names_labels(v->names, names_series(v->names, i)->labels);
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
    r = find(v, ask, &a, &sel, WANT_SERIES | WANT_THREADS | WANT_CPUS, &o, err);
    if (r == 0) {
        name = names_of(&o, &a, &n);
        r = name ? 0 : no_memory(err);
    }
    for (uint32_t i = 0; r == 0 && i < n; i++) {
        struct store_name out = {.name = name[i], .attribute = attr_of(name[i]) != ATTR_NONE};
        struct str *value;
        uint32_t values = 0;

        if (!values_of(&o, &tmp, name[i], &value, &values))
            r = no_memory(err);
        out.values = values;
        if (r == 0 && values > 0 && !fn(ctx, &out))
            r = cancelled(err);
        arena_reset(&tmp);
    }
    arena_deinit(&tmp);
    arena_deinit(&a);
    return r == 0 ? o.r : r;
}

/* ---- series and targets -------------------------------------------------------------------- */

struct series_row {
    const struct names_series *s;
    const struct names_labels *l;
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
    r = row ? find(v, ask, &a, &sel, WANT_SPANS, &o, err) : no_memory(err);
    for (uint32_t i = 1; r == 0 && i < v->snap.series; i++) {
        const struct names_series *s = names_series(v->names, i);

        if (seen(&o.series[i]))
            row[n++] = (struct series_row){s, names_labels(v->names, s->labels), &o.series[i]};
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
    return r == 0 ? o.r : r;
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

/* The version of its names that the view knows, of the newest source that has one. */
static const struct local_info *info_of(const struct occur *o, uint32_t target,
                                        const struct local **ret)
{
    for (uint32_t k = o->v->n_source; k-- > 0;) {
        const struct opened *src = &o->o[k];
        uint32_t at = src->local ? o->local_target[k][target] : 0, i;

        if (!at)
            continue;
        i = atomic_load_explicit(&TABLE(&src->local->target, struct local_target, at)->info,
                                 memory_order_acquire);
        while (i > src->n.info)
            i = VEC(&src->local->info, struct local_info, i - 1)->prev;
        if (i) {
            *ret = src->local;
            return VEC(&src->local->info, struct local_info, i - 1);
        }
    }
    return NULL;
}

static void describe(const struct occur *o, uint32_t target, struct store_target *ret)
{
    const struct local *l = NULL;
    const struct local_info *i = info_of(o, target, &l);
    const struct names_labels *env;

    mutex_lock(&o->v->mu);
    ret->key = TABLE(&o->v->target, struct view_target, target)->key;
    mutex_unlock(&o->v->mu);
    if (!i)
        return;
    env = names_labels(o->v->names, i->env);
    ret->exe = local_str(l, i->exe);
    ret->cmdline = local_str(l, i->cmdline);
    ret->comm = local_str(l, i->comm);
    ret->cgroup = local_str(l, i->cgroup);
    ret->container = local_str(l, i->container);
    ret->env = (struct store_labels){env->n, env->v};
    ret->flags = i->flags;
}

/* The way back: number in the view -> target of the source. */
static bool invert(struct occur *o, struct arena *a)
{
    o->local_target = arena_calloc(a, o->v->n_source, sizeof *o->local_target);
    for (uint32_t k = 0; o->local_target && k < o->v->n_source; k++) {
        if (!o->o[k].local)
            continue;
        o->local_target[k] = arena_array(a, uint32_t, o->n_target);
        if (!o->local_target[k])
            return false;
        for (uint32_t i = 1; i < o->o[k].n.target; i++)
            o->local_target[k][o->o[k].target[i]] = i;
    }
    return o->local_target != NULL;
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
    type = arena_array(&a, ptype_id, PTYPE_BUILTIN_END + v->snap.ptype);
    r = type ? find(v, ask, &a, &sel, WANT_TARGETS, &o, err) : no_memory(err);
    row = r == 0 ? arena_array(&a, struct target_row, o.n_target) : NULL;
    if (r == 0 && (!row || !invert(&o, &a)))
        r = no_memory(err);
    for (uint32_t i = 1; r == 0 && i < o.n_target; i++) {
        if (seen(&o.target[i]))
            row[n++] = (struct target_row){i, &o.target[i]};
    }
    if (n > 1)
        qsort(row, n, sizeof *row, newest_first);
    for (uint32_t i = 0; r == 0 && i < n; i++) {
        struct store_target out = {.type = type, .seen = seen_ns(row[i].span, ask->range)};

        describe(&o, row[i].target, &out);
        for (uint32_t k = 0; k < PTYPE_BUILTIN_END + v->snap.ptype; k++) {
            if (bit_get(o.type + (size_t)row[i].target * o.type_words, k))
                type[out.n_type++] = bit_type(k);
        }
        if (!fn(ctx, &out))
            r = cancelled(err);
    }
    arena_deinit(&a);
    return r == 0 ? o.r : r;
}

/* ---- without rows -------------------------------------------------------------------------- */

int store_known_types(struct store_view *v, store_type_fn *fn, void *ctx, struct err *err)
{
    for (uint32_t i = PTYPE_BUILTIN_END; i < PTYPE_BUILTIN_END + v->snap.ptype; i++) {
        struct store_type t;

        if (names_type_info(v->names, v->snap.ptype, bit_type(i), &t) && !fn(ctx, &t))
            return cancelled(err);
    }
    return 0;
}

int store_known_series(struct store_view *v, const struct store_ask *ask, store_series_fn *fn,
                       void *ctx, struct err *err)
{
    const uint32_t n = v->snap.series;
    struct selection sel;
    struct opened *o;
    struct arena a;
    int r;

    read_arena(v, &a);
    r = view_open(v, &ask->range, 1, &a, &o, err);
    if (r == 0)
        r = select_series(v, &ask->sel, o, &a, &sel, err);
    for (uint32_t i = r == 0 ? bit_next(sel.series, 0, n) : n; r == 0 && i < n;
         i = bit_next(sel.series, i + 1, n)) {
        const struct names_series *s = names_series(v->names, i);
        const struct names_labels *l = names_labels(v->names, s->labels);
        struct store_series out = {.type = s->type, .labels = {l->n, l->v}};

        if (!fn(ctx, &out))
            r = cancelled(err);
    }
    arena_deinit(&a);
    return r;
}
