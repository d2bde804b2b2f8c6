// SPDX-License-Identifier: Apache-2.0
/*
 * A trie so large that the others would have nothing left to do: all workers read it, block by
 * block, each into cells of its own; worker 0, which has the trie, adds theirs to its own and hands
 * them out. The others wait until it has read them.
 */
#include <errno.h>
#include <string.h>

#include "storage/scan/scan_private.h"

#define MANY 4u /* parts per worker */

/* What one worker does at a time. */
struct unit {
    const struct scan_item *it;
    uint32_t from, n; /* blocks of a part; n 0: the whole item */
};

enum gang_state {
    GANG_WAITS = 0,
    GANG_OPEN,   /* units are handed out, workers may join */
    GANG_CLOSED, /* nobody may join */
    GANG_OVER,   /* cells have been read */
};

struct scan_gang {
    struct cond turned;
    enum gang_state state; /* under scan.mu, as the next three */
    uint32_t n_member, working;
    struct scan_worker **member;
    const uint64_t *nodes; /* of worker 0 */
    uint32_t n_unit;
    struct unit *unit;
    _Atomic uint32_t next;
};

/* ---- preparation --------------------------------------------------------------------------- */

/* Parts one by one where there are many of them: then what the cache holds is of use. */
static uint32_t units_of(const struct scan_task *t, const struct scan_item *it, uint32_t workers)
{
    return it->g || it->whole || t->n_item >= MANY * workers ? 1 : it->n_block;
}

bool scan_gang_new(struct scan *sc, struct scan_task *t, uint32_t workers)
{
    struct scan_gang *g = arena_new(sc->tmp, struct scan_gang);
    uint32_t n = 0;

    for (uint32_t i = 0; i < t->n_item; i++)
        n += units_of(t, &t->item[i], workers);
    if (!g || n < 2)
        return false;
    g->unit = arena_array(sc->tmp, struct unit, n);
    g->member = arena_calloc(sc->tmp, workers, sizeof(struct scan_worker *));
    if (!g->unit || !g->member)
        return false;
    for (uint32_t i = 0; i < t->n_item; i++) {
        const struct scan_item *it = &t->item[i];

        if (units_of(t, it, workers) == 1) {
            g->unit[g->n_unit++] = (struct unit){it, 0, 0};
            continue;
        }
        for (uint32_t k = 0; k < it->n_block; k++)
            g->unit[g->n_unit++] = (struct unit){it, k, 1};
    }
    cond_init(&g->turned);
    t->gang = g;
    return true;
}

void scan_gang_free(struct scan_task *t)
{
    if (t->gang)
        cond_deinit(&t->gang->turned);
}

/* ---- work ---------------------------------------------------------------------------------- */

static int read_units(struct scan_worker *w, struct scan_gang *g)
{
    for (;;) {
        uint32_t i = atomic_fetch_add(&g->next, 1);
        const struct unit *u = &g->unit[i];
        int r;

        if (i >= g->n_unit)
            return 0;
        w->source = u->it->source;
        if (u->it->g)
            r = scan_head(w, u->it);
        else
            r = u->n ? scan_blocks(w, u->it, u->from, u->n) : scan_part(w, u->it);
        if (r < 0)
            return r;
    }
}

static void set_state(struct scan *sc, struct scan_gang *g, enum gang_state state)
{
    mutex_lock(&sc->mu);
    g->state = state;
    cond_broadcast(&g->turned);
    mutex_unlock(&sc->mu);
}

/* Read with worker 0, if it has not come to an end yet. */
static int join(struct scan_worker *w, struct scan_gang *g)
{
    struct scan *sc = w->sc;
    bool joined = false;
    int r = 0;

    mutex_lock(&sc->mu);
    while (g->state == GANG_WAITS)
        cond_wait(&g->turned, &sc->mu);
    if (g->state == GANG_OPEN) {
        g->member[g->n_member++] = w;
        g->working++;
        joined = true;
    }
    mutex_unlock(&sc->mu);
    if (!joined)
        return 0;
    w->nodes = g->nodes;
    r = read_units(w, g);
    if (r < 0)
        scan_failed(w, r);
    mutex_lock(&sc->mu);
    g->working--;
    cond_broadcast(&g->turned);
    while (g->state != GANG_OVER)
        cond_wait(&g->turned, &sc->mu);
    mutex_unlock(&sc->mu);
    return r;
}

static int lead(struct scan_worker *w, struct scan_gang *g)
{
    struct scan *sc = w->sc;
    int r;

    g->nodes = w->nodes;
    set_state(sc, g, GANG_OPEN);
    r = read_units(w, g);
    if (r < 0)
        scan_failed(w, r); /* the others need not go on */
    mutex_lock(&sc->mu);
    g->state = GANG_CLOSED;
    while (g->working > 0)
        cond_wait(&g->turned, &sc->mu);
    mutex_unlock(&sc->mu);
    if (r == 0)
        r = scan_check(w); /* one of them may have failed */
    for (uint32_t i = 0; r == 0 && i < g->n_member; i++)
        r = scan_cell_merge(w, g->member[i]);
    set_state(sc, g, GANG_OVER);
    return r < 0 ? r : scan_cell_emit(w);
}

int scan_gang_run(struct scan_worker *w, struct scan_gang *g)
{
    return w->no == 0 ? lead(w, g) : join(w, g);
}

/* Worker 0 does not come: it failed before. */
void scan_gang_end(struct scan *sc, struct scan_gang *g)
{
    set_state(sc, g, GANG_OVER);
}
