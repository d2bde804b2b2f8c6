// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/hash.h"
#include "storage/scan/scan_private.h"

static void tag_str(struct buf *b, struct str s)
{
    buf_le64(b, s.n);
    buf_str(b, s);
}

static uint64_t etag_of(const struct scan *sc)
{
    const struct store_query *q = sc->q;
    struct buf b;
    uint64_t h;

    buf_init(&b, (size_t)64 << 20);
    buf_le64(&b, sc->v->s->seed);
    for (uint32_t k = 0; k < sc->v->n_source; k++) {
        const struct source *src = &sc->v->source[k];

        if (sc->touched[k] && src->part)
            buf_add(&b, src->part->info.uuid, sizeof src->part->info.uuid);
        else if (sc->touched[k])
            buf_le64(&b, sc->v->lsn);
    }
    buf_le32(&b, q->want);
    buf_le32(&b, q->level);
    buf_le64(&b, (uint64_t)q->at.v);
    buf_le64(&b, (uint64_t)q->bucket_ns);
    for (uint32_t i = 0; i < q->n_side; i++) {
        const struct store_side *s = &q->side[i];

        buf_le32(&b, s->sel.type);
        buf_le64(&b, (uint64_t)s->range.t0.v);
        buf_le64(&b, (uint64_t)s->range.t1.v);
        buf_le32(&b, s->sel.n);
        for (uint32_t k = 0; k < s->sel.n; k++) {
            tag_str(&b, s->sel.matcher[k].name);
            buf_le32(&b, s->sel.matcher[k].op);
            tag_str(&b, s->sel.matcher[k].value);
        }
        buf_le32(&b, s->n_window);
        for (uint32_t k = 0; k < s->n_window; k++) {
            buf_le64(&b, target_id(&s->window[k].target));
            buf_le64(&b, (uint64_t)s->window[k].t.t0.v);
            buf_le64(&b, (uint64_t)s->window[k].t.t1.v);
        }
    }
    buf_le32(&b, q->n_by);
    for (uint32_t k = 0; k < q->n_by; k++)
        tag_str(&b, q->by[k]);
    buf_le32(&b, q->n_group);
    for (uint32_t i = 0; i < q->n_group; i++) {
        for (uint32_t k = 0; k < q->n_by; k++)
            tag_str(&b, q->group[i].value[k]);
    }
    h = hash_str(buf_view(&b));
    buf_deinit(&b);
    return h;
}

/* ---- damage -------------------------------------------------------------------------------- */

int scan_damaged(struct scan *sc, uint32_t source, struct interval t, struct err *err)
{
    const struct part *p = sc->v->source[source].part;
    struct scan_damage *d;
    const char *name = p ? p->info.name : "head";
    bool named = strncmp(err->msg, name, strlen(name)) == 0;
    char text[256];
    int n = snprintf(text, sizeof text, "%s%s%s", named ? "" : name, named ? "" : ": ", err->msg);
    struct str what = {text, n < 0 ? 0 : (size_t)n < sizeof text ? (size_t)n : sizeof text - 1};
    int r = 0;

    mutex_lock(&sc->mu);
    d = vec_push(&sc->damage, &sc->pool);
    if (d)
        *d = (struct scan_damage){t, source, arena_str(sc->q->arena, what)};
    if (!d || !d->what.p)
        r = no_memory(err);
    mutex_unlock(&sc->mu);
    *err = (struct err){.code = r};
    return r;
}

static bool touches_side(const struct scan *sc, struct interval t)
{
    bool yes = false;

    for (uint32_t k = 0; k < sc->q->n_side; k++)
        yes |= intervals_touch(t, sc->side[k].data);
    return yes;
}

static uint32_t parts_touched(const struct scan *sc)
{
    uint32_t n = 0;

    for (uint32_t k = 0; k < sc->v->n_source; k++)
        n += sc->v->source[k].part && touches_side(sc, sc->v->source[k].t);
    return n;
}

/* What was lost at the start, and what this scan could not read: parts once each, in any order. */
static int answer_damage(const struct scan *sc, struct store_answer *ret, struct err *err)
{
    const struct store *s = sc->v->s;
    uint32_t n = s->n_lost + sc->damage.n;
    struct store_damage *d = arena_array(sc->q->arena, struct store_damage, n);
    bool *counted = arena_array(sc->q->arena, bool, sc->v->n_source);

    if (!d || !counted)
        return no_memory(err);
    memset(counted, 0, sc->v->n_source * sizeof *counted);
    for (uint32_t i = 0; i < s->n_lost; i++) {
        if (!touches_side(sc, s->lost[i].t))
            continue;
        d[ret->n_damage++] = (struct store_damage){
            .t = s->lost[i].t, .what = arena_str(sc->q->arena, s->lost[i].what)};
        ret->parts_asked++;
        ret->parts_unreadable++;
    }
    for (uint32_t i = 0; i < sc->damage.n; i++) {
        const struct scan_damage *x = VEC(&sc->damage, struct scan_damage, i);

        if (!touches_side(sc, x->t))
            continue;
        d[ret->n_damage++] = (struct store_damage){.t = x->t, .what = x->what};
        ret->parts_unreadable += !counted[x->source];
        counted[x->source] = true;
    }
    ret->damage = d;
    return 0;
}

/* ---- the answer ---------------------------------------------------------------------------- */

int scan_answer(const struct scan *sc, struct store_answer *ret, struct err *err)
{
    struct arena *a = sc->q->arena;
    struct store_answer r = {.etag = etag_of(sc)};
    struct store_group *g;

    for (uint32_t i = 0; i < sc->q->n_side; i++) {
        const struct selection *sel = &sc->side[i].sel;
        struct store_tier_span *t = arena_new(a, struct store_tier_span);

        if (!t)
            return no_memory(err);
        *t = (struct store_tier_span){STORE_RAW, NS_PER_MS, sc->side[i].range};
        r.side[i].effective = sc->side[i].range;
        r.side[i].n_tier = 1;
        r.side[i].tier = t;
        r.side[i].series = sel->n_series;
        r.side[i].overflow_series = sel->n_overflow;
        r.side[i].none_by = sel->none_by;
    }
    r.group = sc->q->group;
    r.n_group = sc->q->n_group;
    if (sc->q->n_group == 0) {
        /* without "by" there is the one group that has no values */
        r.n_group = sc->q->n_by ? sc->out.n : 1;
        g = arena_array(a, struct store_group, r.n_group);
        if (!g)
            return no_memory(err);
        for (uint32_t i = 0; sc->q->n_by && i < r.n_group; i++)
            g[i] = *VEC(&sc->out, struct store_group, i);
        r.group = g;
    }
    TRY(answer_damage(sc, &r, err));
    r.parts_asked += 1 + parts_touched(sc); /* what is in memory counts as one */
    r.parts_read = r.parts_asked > r.parts_unreadable ? r.parts_asked - r.parts_unreadable : 0;
    *ret = r;
    return r.n_damage ? STORE_PARTIAL : 0;
}
