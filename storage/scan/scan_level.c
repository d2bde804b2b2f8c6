// SPDX-License-Identifier: Apache-2.0
/*
 * Levels. A reading is a record of coverage: its rows hold over the record's [t0, t1). Time is cut
 * at whole milliseconds, so that the parts of a range add up.
 *   average  each row weighs the milliseconds that its reading holds in the bucket; the share says
 *            by how many its series was covered there
 *   now      of each scope the last reading that touches the bucket; not one that ended more than
 *            its own length before the newest of its label set: that process is gone
 *   at       the readings that held at the instant
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "storage/scan/scan_private.h"

static int64_t add_ns(int64_t t, int64_t step, uint32_t n)
{
    int64_t d, r;

    if (__builtin_mul_overflow(step, (int64_t)n, &d) || __builtin_add_overflow(t, d, &r))
        return INT64_MAX;
    return r;
}

/* Where bucket b begins, in ms; the shorter of two sides ends within its buckets. */
static int64_t edge(const struct scan *sc, const struct scan_side *side, uint32_t b)
{
    int64_t end = ms_floor(side->range.t1), ms;

    if (b >= sc->n_bucket)
        return end;
    ms = ms_floor((real_ns){add_ns(side->range.t0.v, sc->q->bucket_ns, b)});
    return ms < end ? ms : end;
}

struct span {
    int64_t lo, hi; /* ms */
};

static int by_lo(const void *a, const void *b)
{
    const struct span *x = a, *y = b;

    return (x->lo > y->lo) - (x->lo < y->lo);
}

struct spans {
    uint32_t n, room;
    struct span *v;
};

static bool add_span(struct arena *tmp, struct spans *l, struct span s)
{
    if (l->n == l->room) {
        uint32_t room = l->room ? 2 * l->room : 64;
        struct span *v = arena_array(tmp, struct span, room);

        if (!v)
            return false;
        if (l->n)
            memcpy(v, l->v, l->n * sizeof *v);
        l->v = v;
        l->room = room;
    }
    l->v[l->n++] = s;
    return true;
}

/* Covered stretches of a series, from the scopes of one source that cover it. */
static bool spans_in(struct scan *sc, const struct scan_side *side, const struct opened *o,
                     const struct names_series *s, struct spans *ret)
{
    const struct names *names = sc->v->names;
    int64_t lo = ms_floor(side->range.t0), hi = ms_floor(side->range.t1);

    for (uint32_t i = 1; o->local && i < o->n.scope; i++) {
        const struct local_scope *scope = TABLE(&o->local->scope, struct local_scope, i);
        const struct local_cover *c;
        uint32_t at;

        if (scope->type != sc->type || !names_labels_within(names_labels(names, scope->labels),
                                                            names_labels(names, s->labels)))
            continue;
        for (c = local_cover_last(o->local, o->n.cover, scope, &at); c;
             c = local_cover_prev(o->local, c, &at)) {
            struct span x = {ms_floor(c->t.t0), ms_floor(c->t.t1)};

            x.lo = x.lo < lo ? lo : x.lo;
            x.hi = x.hi > hi ? hi : x.hi;
            if (c->state == SOURCE_OK && x.lo < x.hi && !add_span(sc->tmp, ret, x))
                return false;
        }
    }
    return true;
}

static bool spans_of(struct scan *sc, const struct scan_side *side, const struct names_series *s,
                     struct spans *ret)
{
    ret->n = 0;
    for (uint32_t k = 0; k < sc->v->n_source; k++) {
        if (!spans_in(sc, side, &sc->o[k], s, ret))
            return false;
    }
    if (ret->n > 1)
        qsort(ret->v, ret->n, sizeof *ret->v, by_lo);
    return true;
}

static uint32_t bucket_at(const struct scan *sc, const struct scan_side *side, int64_t ms)
{
    uint32_t lo = 0, hi = sc->n_bucket - 1;

    while (lo < hi) { /* the last bucket whose edge is at or before ms */
        uint32_t mid = lo + (hi - lo + 1) / 2;

        if (edge(sc, side, mid) <= ms)
            lo = mid;
        else
            hi = mid - 1;
    }
    return lo;
}

static void add_covered(const struct scan *sc, const struct scan_side *side, int64_t *den,
                        struct span x)
{
    for (uint32_t b = bucket_at(sc, side, x.lo); b < sc->n_bucket && x.lo < x.hi; b++) {
        int64_t end = edge(sc, side, b + 1);

        end = end > x.hi || b + 1 == sc->n_bucket ? x.hi : end;
        if (end > x.lo) {
            den[b] += end - x.lo;
            x.lo = end;
        }
    }
}

static int plan_average(struct scan *sc, struct scan_side *side, struct err *err)
{
    const struct store_view *v = sc->v;
    int64_t *den = arena_calloc(sc->tmp, (size_t)v->snap.series * sc->n_bucket, sizeof *den);
    struct spans l = {};

    if (!den)
        return no_memory(err);
    for (uint32_t i = 1; i < v->snap.series; i++) {
        int64_t end = INT64_MIN;

        if (!bit_get(side->sel.series, i))
            continue;
        if (!spans_of(sc, side, names_series(v->names, i), &l))
            return no_memory(err);
        for (uint32_t k = 0; k < l.n; k++) { /* the union: only what goes beyond the ones before */
            struct span x = l.v[k];

            x.lo = x.lo < end ? end : x.lo;
            if (x.lo >= x.hi)
                continue;
            add_covered(sc, side, den + (size_t)i * sc->n_bucket, x);
            end = x.hi;
        }
    }
    side->den = den;
    return 0;
}

static int add_average(struct scan_worker *w, uint32_t s, const struct scan_row *row, int64_t lo,
                       int64_t hi)
{
    const struct scan *sc = w->sc;
    const struct scan_side *side = &sc->side[s];
    uint32_t b = lo < side->lo ? 0 : bucket_at(sc, side, lo);

    for (; b < sc->n_bucket; b++) {
        int64_t from = edge(sc, side, b), to = edge(sc, side, b + 1);
        int64_t den = side->den[(size_t)row->series * sc->n_bucket + b];

        from = from < lo ? lo : from;
        to = to > hi ? hi : to;
        if (from >= hi)
            break;
        if (from >= to)
            continue;
        /* a row whose own labels its scope lacks is covered by its own reading at least */
        TRY(scan_add(w, s, b, den > 0 ? den : to - from, row, (unit_i128)row->value * (to - from)));
    }
    return 0;
}

/* ---- now, at ------------------------------------------------------------------------------- */

struct readings {
    uint32_t n, room;
    struct scan_reading *v;
};

static bool add_reading(struct scan *sc, struct readings *l, uint32_t source, uint32_t cover,
                        uint32_t bucket)
{
    const struct local_cover *c = VEC(&sc->o[source].local->cover, struct local_cover, cover);
    struct scan_reading *e;

    if (l->n == l->room) {
        uint32_t room = l->room ? 2 * l->room : 64;
        struct scan_reading *v = arena_array(sc->tmp, struct scan_reading, room);

        if (!v)
            return false;
        if (l->n)
            memcpy(v, l->v, l->n * sizeof *v);
        l->v = v;
        l->room = room;
    }
    e = &l->v[l->n++];
    *e = (struct scan_reading){.source = source, .id = cover, .bucket = bucket};
    if (sc->v->source[source].part) {
        e->id = c->scope;
        e->lo = ms_floor(c->t.t0);
        e->hi = ms_floor(c->t.t1);
    }
    return true;
}

/* Order of readings, but for the bucket. */
static int compare(const struct scan_reading *x, const struct scan_reading *y)
{
    if (x->source != y->source)
        return (x->source > y->source) - (x->source < y->source);
    if (x->id != y->id)
        return (x->id > y->id) - (x->id < y->id);
    if (x->lo != y->lo)
        return (x->lo > y->lo) - (x->lo < y->lo);
    return (x->hi > y->hi) - (x->hi < y->hi);
}

static int by_reading(const void *a, const void *b)
{
    const struct scan_reading *x = a, *y = b;
    int r = compare(x, y);

    return r ? r : (x->bucket > y->bucket) - (x->bucket < y->bucket);
}

static int add_readings(struct scan_worker *w, uint32_t s, const struct scan_row *row, uint32_t id,
                        int64_t from, int64_t to)
{
    const struct scan_side *side = &w->sc->side[s];
    struct scan_reading key = {.source = w->source, .id = id};
    uint32_t lo = 0, hi = side->n_reading;

    if (w->sc->v->source[w->source].part) {
        key.lo = from;
        key.hi = to;
    }
    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;

        if (compare(&side->reading[mid], &key) < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    for (; lo < side->n_reading && compare(&side->reading[lo], &key) == 0; lo++)
        TRY(scan_add(w, s, side->reading[lo].bucket, 1, row, row->value));
    return 0;
}

int scan_level_add(struct scan_worker *w, uint32_t side, const struct scan_row *row, uint32_t id,
                   int64_t lo, int64_t hi)
{
    if (w->sc->q->level == STORE_AVERAGE)
        return add_average(w, side, row, lo, hi);
    return add_readings(w, side, row, id, lo, hi);
}

/* The last reading of the scope that touches [t0, t1) ns. */
static const struct local_cover *last_in(const struct opened *o, const struct local_scope *sc,
                                         struct interval t, uint32_t *ret)
{
    const struct local_cover *best = NULL;
    uint32_t at;

    for (const struct local_cover *c = local_cover_last(o->local, o->n.cover, sc, &at); c;
         c = local_cover_prev(o->local, c, &at)) {
        if (c->state != SOURCE_OK || c->t.t0.v >= t.t1.v || c->t.t1.v <= t.t0.v)
            continue;
        if (!best || c->t.t0.v > best->t.t0.v) {
            best = c;
            *ret = at;
        }
    }
    return best;
}

/* The last reading of a scope, whatever source it lies in. */
struct last {
    const struct local_cover *c;
    uint32_t source, cover, labels;
};

static void find_last(const struct scan *sc, struct interval t, struct last *last, int64_t *newest)
{
    for (uint32_t k = sc->v->n_source; k-- > 0;) {
        const struct opened *o = &sc->o[k];

        for (uint32_t i = 1; o->local && i < o->n.scope; i++) {
            const struct local_scope *s = TABLE(&o->local->scope, struct local_scope, i);
            struct last *l = &last[o->scope[i]];
            uint32_t at;
            const struct local_cover *c = s->type == sc->type ? last_in(o, s, t, &at) : NULL;

            if (!c)
                continue;
            if (!l->c || c->t.t0.v > l->c->t.t0.v)
                *l = (struct last){c, k, at, s->labels};
        }
    }
    for (uint32_t i = 1; i < view_n_scope(sc->v); i++) {
        if (last[i].c && last[i].c->t.t1.v > newest[last[i].labels])
            newest[last[i].labels] = last[i].c->t.t1.v;
    }
}

static int plan_now(struct scan *sc, const struct scan_side *side, struct readings *l,
                    struct err *err)
{
    const struct store_view *v = sc->v;
    uint32_t n = view_n_scope(sc->v);
    int64_t *newest = arena_array(sc->tmp, int64_t, v->snap.labels);
    struct last *last = arena_array(sc->tmp, struct last, n);

    if (!newest || !last)
        return no_memory(err);
    for (uint32_t b = 0; b < sc->n_bucket; b++) {
        struct interval t = {{add_ns(side->range.t0.v, sc->q->bucket_ns, b)},
                             {add_ns(side->range.t0.v, sc->q->bucket_ns, b + 1)}};

        if (b + 1 == sc->n_bucket || t.t1.v > side->range.t1.v)
            t.t1 = side->range.t1;
        if (t.t0.v >= t.t1.v)
            break;
        for (uint32_t i = 0; i < v->snap.labels; i++)
            newest[i] = INT64_MIN;
        memset(last, 0, n * sizeof *last);
        find_last(sc, t, last, newest);
        for (uint32_t i = 1; i < n; i++) {
            const struct local_cover *c = last[i].c;

            if (c && newest[last[i].labels] - c->t.t1.v <= c->t.t1.v - c->t.t0.v &&
                !add_reading(sc, l, last[i].source, last[i].cover, b))
                return no_memory(err);
        }
    }
    return 0;
}

static bool readings_at(struct scan *sc, uint32_t source, struct readings *l)
{
    const struct opened *o = &sc->o[source];
    uint32_t at;

    for (uint32_t i = 1; o->local && i < o->n.scope; i++) {
        const struct local_scope *s = TABLE(&o->local->scope, struct local_scope, i);

        if (s->type != sc->type)
            continue;
        for (const struct local_cover *c = local_cover_last(o->local, o->n.cover, s, &at); c;
             c = local_cover_prev(o->local, c, &at)) {
            if (c->state == SOURCE_OK && interval_has(c->t, sc->q->at) &&
                !add_reading(sc, l, source, at, 0))
                return false;
        }
    }
    return true;
}

static int plan_at(struct scan *sc, struct readings *l, struct err *err)
{
    for (uint32_t k = 0; k < sc->v->n_source; k++) {
        if (!readings_at(sc, k, l))
            return no_memory(err);
    }
    return 0;
}

int scan_level_plan(struct scan *sc, struct scan_side *side, struct err *err)
{
    struct readings l = {};

    switch (sc->q->level) {
    case STORE_SUM:
        return 0;
    case STORE_AVERAGE:
        return plan_average(sc, side, err);
    case STORE_NOW:
        TRY(plan_now(sc, side, &l, err));
        break;
    case STORE_AT:
        TRY(plan_at(sc, &l, err));
        break;
    case STORE_PEAK:
        return err_set(err, -ENOTSUP, "level: peak is not kept");
    }
    if (l.n > 1)
        qsort(l.v, l.n, sizeof *l.v, by_reading);
    side->n_reading = l.n;
    side->reading = l.v;
    return 0;
}
