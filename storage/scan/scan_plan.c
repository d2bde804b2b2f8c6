// SPDX-License-Identifier: Apache-2.0
/* What a scan has to read: sides, windows, groups, and the rows of the type by trie. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "storage/scan/scan_private.h"

static int check_types(struct scan *sc, struct err *err)
{
    const struct store_query *q = sc->q;
    struct store_type t, u;

    if (q->n_side < 1 || q->n_side > 2)
        return err_set(err, -EINVAL, "sides: %u, 1 or 2 are possible", q->n_side);
    sc->type = q->side[0].sel.type;
    if (!names_type_info(sc->v->names, sc->v->snap.ptype, sc->type, &t))
        return err_set(err, -EINVAL, "no profile type %u", sc->type);
    if (q->n_side == 2 && q->side[1].sel.type != sc->type) {
        if (!names_type_info(sc->v->names, sc->v->snap.ptype, q->side[1].sel.type, &u))
            return err_set(err, -EINVAL, "no profile type %u", q->side[1].sel.type);
        return err_set(err, -EINVAL, "two types: %.*s (%.*s) and %.*s (%.*s)", STR_ARG(t.name),
                       STR_ARG(t.unit), STR_ARG(u.name), STR_ARG(u.unit));
    }
    sc->kind = t.kind;
    if (q->level == STORE_PEAK)
        return err_set(err, -ENOTSUP, "level: peak is not kept");
    if (q->want == STORE_ROWS)
        return 0;
    if (t.kind == KIND_LEVEL && q->level == STORE_SUM)
        return err_set(err, -EINVAL, "%.*s is a level: it cannot be added over time",
                       STR_ARG(t.name));
    if (t.kind == KIND_SUM && q->level != STORE_SUM)
        return err_set(err, -EINVAL, "%.*s is a sum: it has no average, now or at",
                       STR_ARG(t.name));
    return 0;
}

static int by_window(const void *a, const void *b)
{
    const struct scan_window *x = a, *y = b;

    if (x->target != y->target)
        return (x->target > y->target) - (x->target < y->target);
    return (x->lo > y->lo) - (x->lo < y->lo);
}

static int plan_windows(struct scan *sc, const struct store_side *ask, struct scan_side *side,
                        struct err *err)
{
    struct scan_window *w;
    uint32_t n = 0, k = 0;

    if (ask->n_window == 0)
        return 0;
    if (sc->q->level != STORE_SUM)
        return err_set(err, -ENOTSUP, "a level cannot be restricted to steps");
    w = arena_array(sc->tmp, struct scan_window, ask->n_window);
    if (!w)
        return no_memory(err);
    for (uint32_t i = 0; i < ask->n_window; i++) {
        uint32_t target = view_target(sc->v, &ask->window[i].target);

        if (target == UINT32_MAX)
            return no_memory(err);
        w[n++] = (struct scan_window){target, ms_ceil(ask->window[i].t.t0),
                                      ms_ceil(ask->window[i].t.t1)};
    }
    if (n > 1)
        qsort(w, n, sizeof *w, by_window);
    for (uint32_t i = 0; i < n; i++) { /* steps may overlap: a row counts once */
        if (k > 0 && w[k - 1].target == w[i].target && w[i].lo <= w[k - 1].hi)
            w[k - 1].hi = w[i].hi > w[k - 1].hi ? w[i].hi : w[k - 1].hi;
        else
            w[k++] = w[i];
    }
    side->window = w;
    side->n_window = k;
    return 0;
}

/* What is asked of the sources: the range; the instant alone where that is the question. */
static struct interval data_of(const struct store_query *q, uint32_t side)
{
    if (q->level == STORE_AT && q->at.v < INT64_MAX)
        return (struct interval){q->at, {q->at.v + 1}};
    return q->side[side].range;
}

static int plan_side(struct scan *sc, uint32_t i, struct err *err)
{
    const struct store_side *ask = &sc->q->side[i];
    struct scan_side *side = &sc->side[i];
    int64_t len;

    if (!interval_len(ask->range, &len))
        return err_set(err, -EINVAL, "range: its end lies before its start");
    side->range = ask->range;
    side->data = data_of(sc->q, i);
    side->lo = ms_ceil(ask->range.t0);
    side->hi = ms_ceil(ask->range.t1);
    if (sc->q->bucket_ns > 0) {
        int64_t n = len / sc->q->bucket_ns + (len % sc->q->bucket_ns > 0);

        if (n > SCAN_BUCKETS)
            return err_set(err, -EINVAL, "buckets: %" PRId64 ", limit %u", n, SCAN_BUCKETS);
        if (n > sc->n_bucket)
            sc->n_bucket = (uint32_t)n;
    }
    TRY(select_series(sc->v, &ask->sel, sc->o, sc->tmp, &side->sel, err));
    return plan_windows(sc, ask, side, err);
}

static int by_rows(const void *a, const void *b)
{
    const struct scan_task *x = a, *y = b;

    return (x->rows < y->rows) - (x->rows > y->rows);
}

/* ---- series by service --------------------------------------------------------------------- */

/* Services of which a side selects series. NULL: memory is short. */
static uint64_t *asked_services(const struct scan *sc)
{
    uint64_t *svc = arena_array(sc->tmp, uint64_t, sc->v->snap.svc / 64 + 1);
    const uint32_t n = sc->v->snap.series;

    for (uint32_t k = 0; svc && k < sc->q->n_side; k++) {
        const uint64_t *series = sc->side[k].sel.series;

        for (uint32_t i = bit_next(series, 0, n); i < n; i = bit_next(series, i + 1, n)) {
            uint32_t of = names_series(sc->v->names, i)->svc;

            if (of < sc->v->snap.svc)
                bit_set(svc, of);
        }
    }
    return svc;
}

/* All series of the type of those services, by service, then id: where a block's series are all
 * selected its summary does. Filled from the end, as services know their series. */
static bool list_series(struct scan *sc, const uint64_t *asked, uint32_t *ret)
{
    const struct names_snap *n = &sc->v->snap;
    uint32_t *at = arena_array(sc->tmp, uint32_t, n->svc + 1);
    uint32_t *v = arena_array(sc->tmp, uint32_t, n->series), first = n->series;

    if (!at || !v)
        return false;
    at[n->svc] = first;
    for (uint32_t svc = n->svc; svc-- > 0; at[svc] = first) {
        uint32_t i = bit_get(asked, svc) ? names_last_series(sc->v->names, svc, n->series) : 0;

        for (; i; i = names_series(sc->v->names, i)->before) {
            if (names_series(sc->v->names, i)->type == sc->type)
                v[--first] = i;
        }
    }
    for (uint32_t svc = 0; svc <= n->svc; svc++)
        at[svc] -= first;
    sc->by_svc = v + first;
    sc->svc_at = at;
    *ret = n->series - first;
    return true;
}

static int plan_series(struct scan *sc, struct err *err)
{
    const uint64_t *asked = asked_services(sc);
    uint32_t total = 0;

    if (!asked || !list_series(sc, asked, &total))
        return no_memory(err);
    for (uint32_t k = 0; k < sc->q->n_side; k++) {
        uint32_t *before = arena_array(sc->tmp, uint32_t, total + 1);

        if (!before)
            return no_memory(err);
        for (uint32_t i = 0; i < total; i++)
            before[i + 1] = before[i] + bit_get(sc->side[k].sel.series, sc->by_svc[i]);
        sc->side[k].before = before;
    }
    return 0;
}

uint32_t scan_series_from(const struct scan *sc, uint32_t svc, uint32_t id)
{
    uint32_t lo = sc->svc_at[svc], hi = sc->svc_at[svc + 1];

    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;

        if (sc->by_svc[mid] < id)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

enum scan_pick scan_pick(const struct scan *sc, const struct scan_side *side, uint32_t svc,
                         uint32_t smin, uint32_t smax)
{
    uint32_t lo, hi, n;

    if (svc >= sc->v->snap.svc || smax == UINT32_MAX)
        return SCAN_SOME;
    lo = scan_series_from(sc, svc, smin);
    hi = scan_series_from(sc, svc, smax + 1);
    n = side->before[hi] - side->before[lo];
    return n == 0 ? SCAN_NONE : n == hi - lo ? SCAN_ALL : SCAN_SOME;
}

/* ---- tries --------------------------------------------------------------------------------- */

struct found {
    struct store_trie_id trie;
    struct scan_item item;
};

struct founds {
    uint32_t n, room;
    struct found *v;
};

static bool push(struct scan *sc, struct founds *l, const struct found *f)
{
    if (l->n == l->room) {
        uint32_t room = l->room ? 2 * l->room : 256;
        struct found *v = arena_array(sc->tmp, struct found, room);

        if (!v)
            return false;
        if (l->n)
            memcpy(v, l->v, l->n * sizeof *v);
        l->v = v;
        l->room = room;
    }
    l->v[l->n++] = *f;
    return true;
}

static int by_trie(const void *a, const void *b)
{
    const struct found *x = a, *y = b;
    bool x_head = x->item.g, y_head = y->item.g;

    if (x->trie.epoch != y->trie.epoch)
        return (x->trie.epoch > y->trie.epoch) - (x->trie.epoch < y->trie.epoch);
    if (x->trie.svc != y->trie.svc)
        return (x->trie.svc > y->trie.svc) - (x->trie.svc < y->trie.svc);
    if (x->trie.sub != y->trie.sub)
        return (x->trie.sub > y->trie.sub) - (x->trie.sub < y->trie.sub);
    if (x_head != y_head)
        return x_head - y_head;
    return (x->item.source > y->item.source) - (x->item.source < y->item.source);
}

static bool same_trie(struct store_trie_id a, struct store_trie_id b)
{
    return a.epoch == b.epoch && a.svc == b.svc && a.sub == b.sub;
}

/* Does anybody ask for a series of this service? */
static bool asked_for(const struct scan *sc, uint32_t svc)
{
    for (uint32_t s = 0; s < sc->q->n_side; s++) {
        if (scan_pick(sc, &sc->side[s], svc, 0, UINT32_MAX - 1) != SCAN_NONE)
            return true;
    }
    return false;
}

static bool find_in_head(struct scan *sc, uint32_t k, struct founds *l)
{
    const struct source *src = &sc->v->source[k];

    for (uint32_t i = 0; i < src->snap.group; i++) {
        const struct head_group *g = head_group_at(src->head, i);
        struct found f = {g->trie, {.source = k, .g = g}};

        if (g->type != sc->type || !asked_for(sc, g->trie.svc))
            continue;
        f.item.rows = head_group_rows(src->head, g, src->snap.lsn);
        if (!push(sc, l, &f))
            return false;
    }
    return true;
}

static int find_in_part(struct scan *sc, uint32_t k, struct founds *l, struct err *err)
{
    const struct source *src = &sc->v->source[k];
    const struct part_block *b;
    struct err why = {};
    uint32_t n;
    int r = part_load(src->part, &why);

    if (r == -ENOMEM)
        return no_memory(err);
    if (r != 0) {
        atomic_fetch_add_explicit(&sc->v->s->damaged_blocks, src->part->info.blocks,
                                  memory_order_relaxed);
        return scan_damaged(sc, k, src->t, &why);
    }
    n = part_blocks(src->part, sc->type, UINT32_MAX, 0, &b);
    for (uint32_t i = 0, end; i < n; i = end) {
        struct found f = {{src->epoch, b[i].m.svc, b[i].m.sub},
                          {.source = k, .part = src->part, .block = b + i}};

        for (end = i; end < n && b[end].m.svc == b[i].m.svc && b[end].m.sub == b[i].m.sub; end++)
            ;
        if (!asked_for(sc, b[i].m.svc))
            continue;
        f.item.n_block = end - i;
        scan_part_cost(sc, &f.item);
        if (f.item.rows > 0 && !push(sc, l, &f))
            return no_memory(err);
    }
    return 0;
}

static int find_items(struct scan *sc, struct founds *l, struct err *err)
{
    for (uint32_t k = 0; k < sc->v->n_source; k++) {
        if (!sc->touched[k])
            continue;
        if (sc->v->source[k].part)
            TRY(find_in_part(sc, k, l, err));
        else if (!find_in_head(sc, k, l))
            return no_memory(err);
    }
    return 0;
}

static int plan_tasks(struct scan *sc, uint64_t *ret_rows, struct err *err)
{
    struct founds f = {};
    struct scan_item *item;

    TRY(find_items(sc, &f, err));
    item = arena_array(sc->tmp, struct scan_item, f.n);
    sc->task = arena_array(sc->tmp, struct scan_task, f.n);
    if (!item || !sc->task)
        return no_memory(err);
    if (f.n > 1)
        qsort(f.v, f.n, sizeof *f.v, by_trie);
    *ret_rows = 0;
    for (uint32_t i = 0; i < f.n; i++) {
        struct scan_task *t = sc->n_task ? &sc->task[sc->n_task - 1] : NULL;

        if (!t || !same_trie(t->trie, f.v[i].trie)) {
            t = &sc->task[sc->n_task++];
            *t = (struct scan_task){.trie = f.v[i].trie, .item = item + i};
        }
        item[i] = f.v[i].item;
        t->n_item++;
        t->rows += item[i].rows;
        *ret_rows += item[i].rows;
    }
    if (sc->n_task > 1)
        qsort(sc->task, sc->n_task, sizeof *sc->task, by_rows);
    sc->one_share = sc->n_task == 1 && sc->q->n_side == 1 && sc->q->n_by == 0 &&
                    sc->q->bucket_ns == 0 && sc->q->level == STORE_SUM;
    return 0;
}

/* ---- sources ------------------------------------------------------------------------------- */

/* Does the question ask for more than rows and labels: threads, targets, records? */
static bool asks_local(const struct scan *sc)
{
    const struct store_query *q = sc->q;
    bool yes = q->level != STORE_SUM || q->want == STORE_ROWS;

    for (uint32_t k = 0; k < q->n_by && k < STORE_BY_MAX; k++)
        yes |= attr_of(q->by[k]) != ATTR_NONE;
    for (uint32_t i = 0; i < q->n_side; i++) {
        yes |= q->side[i].n_window > 0;
        for (uint32_t k = 0; k < q->side[i].sel.n; k++)
            yes |= attr_of(q->side[i].sel.matcher[k].name) != ATTR_NONE;
    }
    return yes;
}

/* Sources that a side's range touches; what they have beside rows only where it is asked for. */
static int open_sources(struct scan *sc, struct err *err)
{
    struct interval range[2];

    sc->touched = arena_array(sc->tmp, bool, sc->v->n_source);
    sc->o = arena_array(sc->tmp, struct opened, sc->v->n_source);
    if (!sc->touched || !sc->o)
        return no_memory(err);
    for (uint32_t i = 0; i < sc->q->n_side; i++) {
        range[i] = data_of(sc->q, i);
        for (uint32_t k = 0; k < sc->v->n_source; k++)
            sc->touched[k] |= intervals_touch(sc->v->source[k].t, range[i]);
    }
    if (!asks_local(sc))
        return 0;
    TRY(view_open(sc->v, range, sc->q->n_side, sc->tmp, &sc->o, err));
    for (uint32_t k = 0; k < sc->v->n_source; k++) {
        struct err why = {};

        if (!sc->o[k].damaged)
            continue;
        sc->touched[k] = false;
        (void)!err_set(&why, -EBADMSG, "its tables cannot be read");
        TRY(scan_damaged(sc, k, sc->v->source[k].t, &why));
    }
    return sc->q->level == STORE_SUM ? 0 : view_open_scopes(sc->v, sc->o, sc->tmp, err);
}

int scan_plan(struct scan *sc, uint64_t *ret_rows, struct err *err)
{
    TRY(check_types(sc, err));
    TRY(open_sources(sc, err));
    sc->n_bucket = 1;
    for (uint32_t i = 0; i < sc->q->n_side; i++)
        TRY(plan_side(sc, i, err));
    for (uint32_t i = 0; sc->q->want != STORE_ROWS && i < sc->q->n_side; i++)
        TRY(scan_level_plan(sc, &sc->side[i], err));
    TRY(scan_group_plan(sc, err));
    TRY(plan_series(sc, err));
    return plan_tasks(sc, ret_rows, err);
}
