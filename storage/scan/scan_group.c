// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <string.h>

#include "base/hash.h"
#include "storage/scan/scan_private.h"

#define GROUP_LOOK 64u /* series of a block that are compared */

/* Number of a text in b->text; UINT32_MAX: memory is short. */
static uint32_t number_of(struct scan *sc, struct scan_by *b, struct map *by_hash, struct str s)
{
    struct str *e;
    uint64_t *at;
    uint64_t h = hash_str(s);

    for (;; h++) { /* of two texts with one hash the second takes the next key */
        switch (map_at(by_hash, h, &at)) {
        case MAP_FULL:
            return UINT32_MAX;
        case MAP_FOUND:
            if (str_eq(*VEC(&b->text, struct str, (uint32_t)*at), s))
                return (uint32_t)*at;
            continue;
        case MAP_ADDED:
            break;
        }
        break;
    }
    *at = b->text.n;
    e = vec_push(&b->text, &sc->pool);
    if (!e)
        return UINT32_MAX;
    *e = s.n ? arena_str(sc->tmp, s) : (struct str){};
    return s.n && !e->p ? UINT32_MAX : b->text.n - 1;
}

static uint32_t *numbers_of_source(struct scan *sc, struct scan_by *b, struct map *by_hash,
                                   const struct opened *o)
{
    uint32_t *num = arena_array(sc->tmp, uint32_t, o->n.thread);
    char buf[24];

    for (uint32_t i = 0; num && i < o->n.thread; i++) {
        num[i] = number_of(sc, b, by_hash, attr_text(o->local, b->attr, i, 0, buf));
        if (num[i] == UINT32_MAX)
            num = NULL;
    }
    return num;
}

static bool number_threads(struct scan *sc, struct scan_by *b)
{
    struct map by_hash;
    bool ok;

    b->thread = arena_calloc(sc->tmp, sc->v->n_source, sizeof *b->thread);
    ok = b->thread != NULL;
    map_init(&by_hash, 0);
    for (uint32_t k = 0; ok && k < sc->v->n_source; k++) {
        if (!sc->o[k].local)
            continue;
        b->thread[k] = numbers_of_source(sc, b, &by_hash, &sc->o[k]);
        ok = b->thread[k] != NULL;
    }
    map_deinit(&by_hash);
    return ok;
}

static bool number_labels(struct scan *sc, struct scan_by *b, struct str name)
{
    uint32_t *num = arena_array(sc->tmp, uint32_t, sc->v->snap.series);

    for (uint32_t i = 1; num && i < sc->v->snap.series; i++)
        (void)label_of(sc->v->names, names_series(sc->v->names, i)->labels, name, &num[i]);
    b->series = num;
    return num != NULL;
}

int scan_group_plan(struct scan *sc, struct err *err)
{
    const struct store_query *q = sc->q;

    if (q->n_by > STORE_BY_MAX)
        return err_set(err, -EINVAL, "group by: %u names, limit %u", q->n_by, STORE_BY_MAX);
    vec_init(&sc->out, sizeof(struct store_group));
    if (!table_init(&sc->group, &sc->pool, sizeof(struct scan_group)))
        return no_memory(err);
    for (uint32_t k = 0; k < q->n_by; k++) {
        struct scan_by *b = &sc->by[k];
        bool ok = true;

        vec_init(&b->text, sizeof(struct str));
        b->attr = attr_of(q->by[k]);
        sc->by_attr |= b->attr != ATTR_NONE;
        if (b->attr == ATTR_NONE)
            ok = number_labels(sc, b, q->by[k]);
        else if (b->attr != ATTR_CPU)
            ok = number_threads(sc, b);
        if (!ok)
            return no_memory(err);
    }
    return 0;
}

void scan_group_free(struct scan *sc)
{
    table_deinit(&sc->group, &sc->pool);
    vec_deinit(&sc->out, &sc->pool);
    for (uint32_t k = 0; k < STORE_BY_MAX; k++)
        vec_deinit(&sc->by[k].text, &sc->pool);
}

static bool eq_group(const void *entry, const void *key)
{
    return memcmp(((const struct scan_group *)entry)->num, key,
                  sizeof((struct scan_group *)NULL)->num) == 0;
}

static struct str value_of(const struct scan *sc, uint32_t k, uint32_t num, char buf[static 24])
{
    const struct scan_by *b = &sc->by[k];

    if (b->attr == ATTR_NONE)
        return names_str(sc->v->names, num);
    if (b->attr == ATTR_CPU)
        return num ? attr_number(buf, num - 1) : (struct str){};
    return *VEC(&b->text, struct str, num);
}

/* The group asked for that has these texts, or STORE_REST. */
static uint32_t asked_for(const struct scan *sc, const struct str *value)
{
    for (uint32_t i = 0; i < sc->q->n_group; i++) {
        bool same = true;

        for (uint32_t k = 0; same && k < sc->q->n_by; k++)
            same = str_eq(sc->q->group[i].value[k], value[k]);
        if (same)
            return i;
    }
    return STORE_REST;
}

static bool add_group(struct scan *sc, const uint32_t num[STORE_BY_MAX], uint64_t hash,
                      uint32_t *ret)
{
    char buf[STORE_BY_MAX][24];
    struct store_group g = {};
    struct store_group *out;
    struct scan_group *e;
    uint32_t i;

    for (uint32_t k = 0; k < sc->q->n_by; k++)
        g.value[k] = value_of(sc, k, num[k], buf[k]);
    if (sc->q->n_group > 0) {
        *ret = asked_for(sc, g.value);
    } else {
        for (uint32_t k = 0; k < sc->q->n_by; k++) {
            if (g.value[k].n == 0)
                continue;
            g.value[k] = arena_str(sc->q->arena, g.value[k]);
            if (!g.value[k].p)
                return false;
        }
        out = vec_push(&sc->out, &sc->pool);
        if (!out)
            return false;
        *out = g;
        *ret = sc->out.n - 1;
    }
    i = table_add(&sc->group, &sc->pool, hash);
    if (!i)
        return false;
    e = TABLE(&sc->group, struct scan_group, i);
    memcpy(e->num, num, sizeof e->num);
    e->out = *ret;
    return true;
}

static bool shared_group(struct scan *sc, const uint32_t num[STORE_BY_MAX], uint64_t hash,
                         uint32_t *ret)
{
    bool ok = true;
    uint32_t i;

    mutex_lock(&sc->mu);
    i = table_find(&sc->group, hash, num, eq_group);
    if (i)
        *ret = TABLE(&sc->group, struct scan_group, i)->out;
    else
        ok = add_group(sc, num, hash, ret);
    mutex_unlock(&sc->mu);
    return ok;
}

int scan_group_of(struct scan_worker *w, const struct scan_row *row, uint32_t *ret)
{
    struct scan *sc = w->sc;
    uint32_t num[STORE_BY_MAX] = {}, i;
    struct scan_group *e;
    uint64_t hash;

    if (sc->q->n_by == 0) {
        *ret = 0;
        return 0;
    }
    for (uint32_t k = 0; k < sc->q->n_by; k++) {
        const struct scan_by *b = &sc->by[k];

        if (b->attr == ATTR_CPU)
            num[k] = row->cpu;
        else if (b->attr == ATTR_NONE)
            num[k] = b->series[row->series];
        else
            num[k] = b->thread[w->source][row->thread];
    }
    hash = hash_bytes(num, sizeof num);
    i = table_find(&w->group, hash, num, eq_group);
    if (i) {
        *ret = TABLE(&w->group, struct scan_group, i)->out;
        return 0;
    }
    if (!shared_group(sc, num, hash, ret))
        return no_memory(&w->err);
    i = table_add(&w->group, &w->pool, hash);
    if (!i)
        return no_memory(&w->err);
    e = TABLE(&w->group, struct scan_group, i);
    memcpy(e->num, num, sizeof num);
    e->out = *ret;
    return 0;
}

bool scan_group_one(const struct scan *sc, uint32_t svc, uint32_t smin, uint32_t smax)
{
    uint32_t lo, n;

    if (sc->q->n_by == 0 || (!sc->by_attr && smin == smax))
        return true;
    if (sc->by_attr || svc >= sc->v->snap.svc || smax == UINT32_MAX)
        return false;
    lo = scan_series_from(sc, svc, smin);
    n = scan_series_from(sc, svc, smax + 1) - lo;
    if (n > GROUP_LOOK)
        return false;
    for (uint32_t k = 0; k < sc->q->n_by; k++) {
        const uint32_t *num = sc->by[k].series;

        for (uint32_t i = 1; i < n; i++)
            if (num[sc->by_svc[lo + i]] != num[sc->by_svc[lo]])
                return false;
    }
    return true;
}
