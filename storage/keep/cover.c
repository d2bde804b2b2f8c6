// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "storage/keep/view_private.h"

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
    const struct opened *o;
    const struct selection *sel;
    store_cover_fn *fn;
    void *ctx;
    struct arena tmp;
};

/* A scope of a source; equal ones of several sources have one number. */
struct scope_at {
    uint32_t number, source, scope;
};

struct item {
    const struct local *l;
    const struct local_cover *c;
    struct interval t;
    uint32_t source;
};

static int by_time(const void *a, const void *b)
{
    const struct item *x = a, *y = b;
    int r = real_ns_cmp(x->t.t0, y->t.t0);

    if (r == 0)
        r = real_ns_cmp(x->t.t1, y->t.t1);
    if (r == 0)
        r = (x->source > y->source) - (x->source < y->source);
    return r ? r : (x->c > y->c) - (x->c < y->c);
}

static struct store_loss *losses(struct out *o, const struct item *it)
{
    const struct local_cover *c = it->c;
    struct store_loss *l = arena_array(&o->tmp, struct store_loss, c->n_loss);

    for (uint32_t i = 0; l && i < c->n_loss; i++) {
        const struct local_loss *x = VEC(&it->l->loss, struct local_loss, c->loss + i);

        l[i].why = local_str(it->l, x->why);
        l[i].n = part_of(x->n, c->t, it->t);
        l[i].weight = x->weight == BATCH_NO_WEIGHT
                          ? BATCH_NO_WEIGHT
                          : (int64_t)part_of((uint64_t)x->weight, c->t, it->t);
    }
    return l;
}

/* Where a record's expected is its received + its lost, so is that of each part: three floors would
 * differ by a tick. l: the part's losses; received: the part's. */
static uint64_t expected_part(const struct item *it, uint64_t received, const struct store_loss *l)
{
    const struct local_cover *c = it->c;
    uint64_t whole = c->received, part = received;

    for (uint32_t i = 0; i < c->n_loss; i++) {
        uint64_t n = VEC(&it->l->loss, struct local_loss, c->loss + i)->n;

        if (n == BATCH_UNKNOWN)
            return part_of(c->expected, c->t, it->t);
        whole += n;
        part += l[i].n;
    }
    if (c->received == BATCH_UNKNOWN || c->expected != whole)
        return part_of(c->expected, c->t, it->t);
    return part;
}

static int hand_out(struct out *o, const struct scope_at *at, const struct item *it)
{
    const struct local *own = it->l;
    const struct local_scope *sc = TABLE(&own->scope, struct local_scope, it->c->scope);
    const struct names_labels *labels = names_labels(o->v->names, sc->labels);
    const struct local_cover *c = it->c;
    const struct store_loss *l = losses(o, it);
    struct store_cover out = {.scope = at->number,
                              .type = sc->type,
                              .labels = {labels->n, labels->v},
                              .target = target_of(own, sc->target),
                              .t = it->t,
                              .width = c->width,
                              .state = c->state,
                              .why = local_str(own, c->why),
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
    out.expected = expected_part(it, out.received, l);
    return o->fn(o->ctx, &out) ? 0 : -ECANCELED;
}

/* A record without length is an instant: it belongs to the range that holds it. */
static bool touches(struct interval t, struct interval range)
{
    return t.t0.v == t.t1.v ? interval_has(range, t.t0)
                            : t.t0.v < range.t1.v && range.t0.v < t.t1.v;
}

/* Records of one scope of one source that touch the range; it NULL: how many. */
static uint32_t take(const struct out *o, const struct scope_at *at, struct item *it)
{
    const struct opened *src = &o->o[at->source];
    const struct local *l = src->local;
    const struct local_scope *sc = TABLE(&l->scope, struct local_scope, at->scope);
    const struct local_cover *c;
    uint32_t n = 0, i;

    for (c = local_cover_last(l, src->n.cover, sc, &i); c; c = local_cover_prev(l, c, &i)) {
        if (!touches(c->t, o->range))
            continue;
        if (it)
            it[n] = (struct item){.l = l,
                                  .c = c,
                                  .t = c->t.t0.v == c->t.t1.v ? c->t : interval_cut(c->t, o->range),
                                  .source = at->source};
        n++;
    }
    return n;
}

/* n entries of one number. */
static int one_scope(struct out *o, const struct scope_at *at, uint32_t n)
{
    struct item *it;
    uint32_t room = 0, k = 0;
    int r = 0;

    for (uint32_t i = 0; i < n; i++)
        room += take(o, &at[i], NULL);
    it = arena_array(&o->tmp, struct item, room);
    if (!it)
        return -ENOMEM;
    for (uint32_t i = 0; i < n; i++)
        k += take(o, &at[i], it + k);
    if (k > 1)
        qsort(it, k, sizeof *it, by_time);
    for (uint32_t i = 0; r == 0 && i < k; i++)
        r = hand_out(o, at, &it[i]);
    return r;
}

static int by_scope(const void *a, const void *b)
{
    const struct scope_at *x = a, *y = b;

    if (x->number != y->number)
        return (x->number > y->number) - (x->number < y->number);
    return (x->source > y->source) - (x->source < y->source);
}

/* Selected scopes of all sources, equal ones side by side. NULL: memory is short. */
static struct scope_at *scopes(struct out *o, ptype_id type, struct arena *a, uint32_t *ret)
{
    const struct store_view *v = o->v;
    uint32_t most = 0, n = 0;
    struct scope_at *at;
    struct map memo;

    for (uint32_t k = 0; k < v->n_source; k++)
        most += o->o[k].n.scope;
    at = arena_array(a, struct scope_at, most);
    map_init(&memo, 0);
    for (uint32_t k = 0; at && k < v->n_source; k++) {
        for (uint32_t i = 1; o->o[k].local && i < o->o[k].n.scope; i++) {
            const struct local_scope *sc = TABLE(&o->o[k].local->scope, struct local_scope, i);

            if ((type == PTYPE_NONE || sc->type == type) && scope_selected(v, sc, k, o->sel, &memo))
                at[n++] = (struct scope_at){o->o[k].scope[i], k, i};
        }
    }
    map_deinit(&memo);
    if (n > 1)
        qsort(at, n, sizeof *at, by_scope);
    *ret = n;
    return at;
}

static int hand_scopes(struct out *o, const struct scope_at *at, uint32_t n, struct err *err)
{
    for (uint32_t i = 0, k; i < n; i = k) {
        int r;

        for (k = i + 1; k < n && at[k].number == at[i].number; k++)
            ;
        r = one_scope(o, at + i, k - i);
        arena_reset(&o->tmp);
        if (r == -ENOMEM)
            return no_memory(err);
        if (r < 0)
            return cancelled(err);
    }
    return 0;
}

static bool damaged(const struct out *o)
{
    const struct store *s = o->v->s;
    bool yes = false;

    for (uint32_t k = 0; k < o->v->n_source; k++)
        yes |= o->o[k].damaged;
    for (uint32_t i = 0; i < s->n_lost; i++)
        yes |= intervals_touch(s->lost[i].t, o->range);
    return yes;
}

static int cover(struct out *o, const struct store_ask *ask, struct arena *a, struct err *err)
{
    struct selection sel;
    struct opened *opened;
    struct scope_at *at;
    uint32_t n;
    int r;

    TRY(view_open(o->v, &ask->range, 1, a, &opened, err));
    TRY(view_open_scopes(o->v, opened, a, err));
    TRY(select_series(o->v, &ask->sel, opened, a, &sel, err));
    o->o = opened;
    o->sel = &sel;
    at = scopes(o, ask->sel.type, a, &n);
    r = at ? hand_scopes(o, at, n, err) : no_memory(err);
    if (r == 0 && damaged(o))
        r = STORE_PARTIAL;
    o->o = NULL; /* both end with this call */
    o->sel = NULL;
    return r;
}

int store_cover(struct store_view *v, const struct store_ask *ask, store_cover_fn *fn, void *ctx,
                struct err *err)
{
    struct out o = {.v = v, .range = ask->range, .fn = fn, .ctx = ctx};
    struct arena tmp;
    int r;

    read_arena(v, &tmp);
    read_arena(v, &o.tmp);
    r = cover(&o, ask, &tmp, err);
    arena_deinit(&o.tmp);
    arena_deinit(&tmp);
    return r;
}
