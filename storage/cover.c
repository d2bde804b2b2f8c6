// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "storage/view_private.h"

/*
 * Share of x that falls into the part of whole: floor at both edges, so that the parts of any cut
 * add up to x. Unknown stays unknown.
 */
static uint64_t part_of(uint64_t x, struct interval whole, struct interval part)
{
    __extension__ typedef unsigned __int128 u128;
    uint64_t len = (uint64_t)(whole.t1.v - whole.t0.v);
    uint64_t from = (uint64_t)(part.t0.v - whole.t0.v), to = (uint64_t)(part.t1.v - whole.t0.v);

    if (x == BATCH_UNKNOWN || len == 0)
        return x;
    return (uint64_t)((u128)x * to / len - (u128)x * from / len);
}

struct out {
    struct store_view *v;
    struct interval range;
    store_cover_fn *fn;
    void *ctx;
    struct arena tmp;
};

struct item {
    const struct head_cover *c;
    struct interval t;
};

static int by_time(const void *a, const void *b)
{
    const struct item *x = a, *y = b;
    int r = real_ns_cmp(x->t.t0, y->t.t0);

    if (r == 0)
        r = real_ns_cmp(x->t.t1, y->t.t1);
    return r ? r : (x->c > y->c) - (x->c < y->c);
}

static struct store_loss *losses(struct out *o, const struct item *it)
{
    const struct head *h = o->v->h;
    const struct head_cover *c = it->c;
    struct store_loss *l = arena_array(&o->tmp, struct store_loss, c->n_loss);

    for (uint32_t i = 0; l && i < c->n_loss; i++) {
        const struct head_loss *x = VEC(&h->loss, struct head_loss, c->loss + i);

        l[i].why = head_str(h, x->why);
        l[i].n = part_of(x->n, c->t, it->t);
        l[i].weight = x->weight == BATCH_NO_WEIGHT
                          ? BATCH_NO_WEIGHT
                          : (int64_t)part_of((uint64_t)x->weight, c->t, it->t);
    }
    return l;
}

/* Where a record's expected is its received + its lost, so is that of each part: three floors would
 * differ by a tick. l: the part's losses; received: the part's. */
static uint64_t expected_part(const struct head *h, const struct item *it, uint64_t received,
                              const struct store_loss *l)
{
    const struct head_cover *c = it->c;
    uint64_t whole = c->received, part = received;

    for (uint32_t i = 0; i < c->n_loss; i++) {
        uint64_t n = VEC(&h->loss, struct head_loss, c->loss + i)->n;

        if (n == BATCH_UNKNOWN)
            return part_of(c->expected, c->t, it->t);
        whole += n;
        part += l[i].n;
    }
    if (c->received == BATCH_UNKNOWN || c->expected != whole)
        return part_of(c->expected, c->t, it->t);
    return part;
}

static int hand_out(struct out *o, uint32_t scope, const struct head_scope *sc,
                    const struct item *it)
{
    const struct head *h = o->v->h;
    const struct dict_labels *labels = head_labels(h, sc->labels);
    const struct head_cover *c = it->c;
    const struct store_loss *l = losses(o, it);
    struct store_cover out = {.scope = scope,
                              .type = sc->type,
                              .labels = {labels->n, labels->v},
                              .target = target_of(o->v, sc->target),
                              .t = it->t,
                              .width = c->width,
                              .state = c->state,
                              .why = head_str(h, c->why),
                              .basis = c->basis,
                              .period = c->period,
                              .jitter = c->jitter,
                              .received = part_of(c->received, c->t, it->t),
                              .n_loss = c->n_loss,
                              .loss = l,
                              .skew_ns = c->skew_ns,
                              .ended = c->ended && it->t.t1.v == c->t.t1.v};

    if (!l)
        return -ENOMEM;
    out.expected = expected_part(h, it, out.received, l);
    return o->fn(o->ctx, &out) ? 0 : -ECANCELED;
}

/* A record without length is an instant: it belongs to the range that holds it. */
static bool touches(struct interval t, struct interval range)
{
    return t.t0.v == t.t1.v ? interval_has(range, t.t0)
                            : t.t0.v < range.t1.v && range.t0.v < t.t1.v;
}

static int one_scope(struct out *o, uint32_t scope, const struct head_scope *sc)
{
    const struct head_cover *c;
    struct item *it;
    uint32_t n = 0, at;
    int r = 0;

    for (c = cover_last(o->v, sc, &at); c; c = cover_prev(o->v, c, &at))
        n += touches(c->t, o->range);
    it = arena_array(&o->tmp, struct item, n);
    if (!it)
        return -ENOMEM;
    n = 0;
    for (c = cover_last(o->v, sc, &at); c; c = cover_prev(o->v, c, &at)) {
        if (touches(c->t, o->range))
            it[n++] =
                (struct item){c, c->t.t0.v == c->t.t1.v ? c->t : interval_cut(c->t, o->range)};
    }
    if (n > 1)
        qsort(it, n, sizeof *it, by_time);
    for (uint32_t i = 0; r == 0 && i < n; i++)
        r = hand_out(o, scope, sc, &it[i]);
    return r;
}

int store_cover(struct store_view *v, const struct store_ask *ask, store_cover_fn *fn, void *ctx,
                struct err *err)
{
    struct out o = {.v = v, .range = ask->range, .fn = fn, .ctx = ctx};
    struct arena tmp;
    struct selection sel;
    int r;

    read_arena(v, &tmp);
    read_arena(v, &o.tmp);
    r = select_series(v, &ask->sel, &tmp, &sel, err);
    for (uint32_t i = 1; r == 0 && i < v->snap.scope; i++) {
        const struct head_scope *sc = TABLE(&v->h->scope, struct head_scope, i);

        if ((ask->sel.type != PTYPE_NONE && sc->type != ask->sel.type) ||
            !scope_selected(v, sc, &sel))
            continue;
        r = one_scope(&o, i, sc);
        arena_reset(&o.tmp);
        if (r == -ENOMEM)
            r = no_memory(err);
        else if (r < 0)
            r = cancelled(err);
    }
    arena_deinit(&o.tmp);
    arena_deinit(&tmp);
    for (uint32_t i = 0; r == 0 && i < v->s->n_lost; i++) {
        if (v->s->lost[i].t.t0.v < ask->range.t1.v && ask->range.t0.v < v->s->lost[i].t.t1.v)
            r = STORE_PARTIAL;
    }
    return r;
}
