// SPDX-License-Identifier: Apache-2.0
/*
 * Which process maps which table where. The main thread alone writes page index, mappings and
 * processes; a process's range of mappings never changes: a new one is written beside it, then the
 * process's entry is swapped, and the old range rests until no program can be reading it.
 */
#include "agent/tables.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "agent/tables_private.h"
#include "base/arena.h"
#include "base/hash.h"
#include "base/map.h"
#include "base/time.h"

#define BUDGET   (UINT64_C(64) << 20)
#define CHUNK_SZ (SA_CHUNK_ROWS * sizeof(struct sa_row))

struct published {
    uint32_t tgid, flags;
    uint32_t at, n; /* its range in mapents */
    bool dirty;     /* map has changed since, or stands for other tables */
    uint32_t n_map;
    struct pub_map {
        uint64_t start, end, bias;
        uint32_t bin; /* 0: raw words */
        uint32_t fallback;
        struct table *table; /* NULL: never one */
    } * map;
};

/* What may be used again later. */
struct rest {
    int64_t due_ns;
    enum {
        REST_MAPS,
        REST_PAGES,
        REST_CHUNKS
    } kind;
    uint32_t at, n;
    uint32_t *chunk;
};

struct tables {
    struct tables_io io;
    struct builder *builder;
    int64_t reuse_ns;
    uint32_t gen;
    bool again;                /* a process found no room: try at the next tick */
    struct map by_key, by_bin; /* content key, binary number -> struct table * */
    struct map procs;          /* tgid -> struct published * */
    struct table **all;
    uint32_t n_all, cap_all;
    struct ranges ents, pages;
    struct rest *rest; /* oldest first, from rest_head */
    size_t rest_head, n_rest, cap_rest;
    struct tables_stats stats;
};

static void *from_u64(uint64_t v)
{
    return (void *)(uintptr_t)v; // NOLINT(performance-no-int-to-ptr): maps hold u64
}

static uint64_t to_u64(const void *p)
{
    return (uint64_t)(uintptr_t)p;
}

/* ---- things that rest ----------------------------------------------------------------------- */

static void rest_put(struct tables *t, struct rest r)
{
    r.due_ns = mono_now().v + t->reuse_ns;
    if (t->rest_head + t->n_rest == t->cap_rest) {
        memmove(t->rest, t->rest + t->rest_head, t->n_rest * sizeof *t->rest);
        t->rest_head = 0;
        if (t->n_rest * 2 > t->cap_rest) {
            t->cap_rest *= 2;
            t->rest = xrealloc(t->rest, t->cap_rest * sizeof *t->rest);
        }
    }
    t->rest[t->rest_head + t->n_rest++] = r;
}

static void rest_tick(struct tables *t)
{
    int64_t now = mono_now().v;

    for (; t->n_rest && t->rest[t->rest_head].due_ns <= now; t->rest_head++, t->n_rest--) {
        struct rest *r = &t->rest[t->rest_head];

        switch (r->kind) {
        case REST_MAPS:
            ranges_give(&t->ents, r->at, r->n);
            break;
        case REST_PAGES:
            ranges_give(&t->pages, r->at, r->n);
            break;
        case REST_CHUNKS:
            (void)builder_unuse(t->builder, r->chunk, r->n);
            free(r->chunk);
            break;
        }
    }
}

/* ---- tables by binary ----------------------------------------------------------------------- */

static uint64_t content_key(const struct binary *b)
{
    if (b->id_kind == BIN_ID_NONE || !b->id_len)
        return hash_mix(b->id);
    return hash_seed(b->id_bytes, b->id_len, (uint64_t)b->id_kind);
}

/* The table of a binary, whatever its state. */
static struct table *table_of(struct tables *t, const struct binary *b)
{
    uint64_t *slot, key;
    struct table *tab;

    (void)map_at(&t->by_bin, b->id, &slot);
    if (*slot)
        return from_u64(*slot);
    key = content_key(b);
    (void)map_at(&t->by_key, key, &slot);
    if (!*slot) {
        tab = xcalloc(1, sizeof *tab);
        tab->key = key;
        if (t->n_all == t->cap_all) {
            t->cap_all = t->cap_all ? t->cap_all * 2 : 64;
            t->all =
                xrealloc(t->all, t->cap_all * sizeof *t->all); // NOLINT(bugprone-sizeof-expression)
        }
        t->all[t->n_all++] = tab;
        *slot = to_u64(tab);
    }
    tab = from_u64(*slot);
    (void)map_put(&t->by_bin, b->id, to_u64(tab));
    return tab;
}

static void want(struct tables *t, struct binary *b, bool urgent)
{
    struct table *tab;

    if (b->big_address)
        return;
    tab = table_of(t, b);
    if (tab->state == TABLE_QUEUED && urgent && !tab->urgent) {
        tab->urgent = true;
        builder_hurry(t->builder, tab);
    }
    if (tab->state != TABLE_NONE)
        return;
    if (!builder_put(t->builder, tab, b, urgent)) {
        t->stats.queue_full++;
        return;
    }
    tab->state = TABLE_QUEUED;
    tab->urgent = urgent;
    tab->seen_ns = mono_now().v;
}

void tables_want(struct tables *t, struct binary *b)
{
    want(t, b, true);
}

void tables_seen(struct tables *t, uint32_t bin)
{
    uint64_t v;

    if (map_get(&t->by_bin, bin, &v) && v)
        ((struct table *)from_u64(v))->seen_ns = mono_now().v;
}

/* ---- publishing ----------------------------------------------------------------------------- */

static struct sa_mapent entry(const struct pub_map *m)
{
    const struct table *tab = m->table;
    struct sa_mapent e = {.start = m->start,
                          .end = m->end,
                          .bias = m->bias,
                          .bin = m->bin,
                          .first_page = m->fallback};

    if (tab && tab->state == TABLE_READY) {
        e.pg_base = tab->pg_base;
        e.npages = tab->n_pages;
        e.first_page = tab->first_page;
    } else if (tab && tab->state == TABLE_FAILED &&
               (tab->why == EHTAB_NO_EHFRAME || tab->why == EHTAB_EMPTY)) {
        e.first_page = SA_NT_FP;
    }
    return e;
}

/* Write p's mappings to a new range and swap. The old range rests. */
static int swap_in(struct tables *t, struct published *p, struct err *err)
{
    const uint32_t n = p->n_map;
    struct sa_proc v = {.tgid = p->tgid, .n = n, .flags = p->flags};
    int r;

    if (n) {
        v.maps_off = ranges_take(&t->ents, n);
        if (!v.maps_off)
            return err_set(err, -ENOSPC, "mappings of process %u: all %u entries are used", p->tgid,
                           t->io.n_mapents);
    }
    for (uint32_t i = 0; i < n; i++)
        t->io.mapents[v.maps_off + i] = entry(&p->map[i]);
    v.gen = v.gen2 = ++t->gen;
    r = t->io.proc_set(t->io.ctx, &v);
    if (r < 0) {
        if (n)
            ranges_give(&t->ents, v.maps_off, n);
        return err_set(err, r == -E2BIG ? -ENOSPC : r, "publish process %u: %s", p->tgid,
                       strerrordesc_np(-r));
    }
    if (p->n)
        rest_put(t, (struct rest){.kind = REST_MAPS, .at = p->at, .n = p->n});
    p->at = v.maps_off;
    p->n = n;
    p->dirty = false;
    return 0;
}

static bool always_wanted(const struct proc *p, const struct binary *b)
{
    struct str name = str_basename(b->path);

    return b->image || str_eq(b->path, p->exe) || str_eq(name, STR("libc.so.6")) ||
           str_starts(name, STR("ld-linux-"));
}

static struct published *find_pub(const struct tables *t, uint32_t tgid)
{
    uint64_t v;

    return map_get(&t->procs, tgid, &v) ? from_u64(v) : NULL;
}

static struct pub_map to_map(struct tables *t, const struct proc *p, const struct proc_map *m)
{
    struct pub_map r = {.start = m->start, .end = m->end};

    if (!m->bin || m->bin->big_address) {
        bool anon = m->bin || (m->why && strcmp(m->why, "anonymous") == 0);

        r.fallback = anon ? SA_NT_FP : SA_NT_WAIT;
        return r;
    }
    if (always_wanted(p, m->bin))
        want(t, m->bin, false);
    r.bias = m->bias;
    r.bin = m->bin->id;
    r.table = table_of(t, m->bin);
    return r;
}

int tables_publish(struct tables *t, const struct proc *p, struct err *err)
{
    struct published *pub = find_pub(t, p->tgid);
    uint32_t n = p->n_map < SA_PROC_MAPS ? p->n_map : SA_PROC_MAPS;
    struct pub_map *map = n ? xcalloc(n, sizeof *map) : NULL;

    if (!pub) {
        pub = xcalloc(1, sizeof *pub);
        pub->tgid = p->tgid;
        (void)map_put(&t->procs, p->tgid, to_u64(pub));
    }
    for (uint32_t i = 0; i < n; i++)
        map[i] = to_map(t, p, &p->map[i]);
    free(pub->map);
    pub->map = map;
    pub->n_map = n;
    pub->dirty = true;
    return swap_in(t, pub, err);
}

void tables_unpublish(struct tables *t, uint32_t tgid)
{
    struct published *pub = find_pub(t, tgid);

    if (!pub)
        return;
    (void)t->io.proc_del(t->io.ctx, tgid); /* -ENOENT: publishing had failed */
    if (pub->n)
        rest_put(t, (struct rest){.kind = REST_MAPS, .at = pub->at, .n = pub->n});
    (void)map_del(&t->procs, tgid);
    free(pub->map);
    free(pub);
}

int tables_exclude(struct tables *t, uint32_t tgid, bool excluded, struct err *err)
{
    struct published *pub = find_pub(t, tgid);
    uint32_t flags = excluded ? SA_P_EXCLUDED : 0;

    if (!pub) {
        pub = xcalloc(1, sizeof *pub);
        pub->tgid = tgid;
        (void)map_put(&t->procs, tgid, to_u64(pub));
    } else if (pub->flags == flags) {
        return 0;
    }
    pub->flags = flags;
    return swap_in(t, pub, err);
}

/* Processes that map a table that changed get a new range. */
static void republish(struct tables *t)
{
    uint32_t pos = 0;
    uint64_t key, v;

    t->again = false;
    while (map_next(&t->procs, &pos, &key, &v)) {
        struct published *p = from_u64(v);

        for (uint32_t i = 0; i < p->n_map && !p->dirty; i++)
            p->dirty = p->map[i].table && p->map[i].table->changed;
        if (p->dirty && swap_in(t, p, NULL) < 0)
            t->again = true;
    }
    for (uint32_t i = 0; i < t->n_all; i++)
        t->all[i]->changed = false;
}

/* ---- finished and evicted ------------------------------------------------------------------- */

static void failed(struct tables *t, struct table *tab, enum ehtab_fail why)
{
    tab->state = TABLE_FAILED;
    tab->why = why;
    tab->changed = true;
    t->stats.failed++;
    t->stats.failed_why[why]++;
}

/* Its pages say "no table" at once; pages and chunks rest. */
static void evict(struct tables *t, struct table *tab)
{
    for (uint32_t i = 0; i < tab->n_pages; i++)
        __atomic_store_n(&t->io.pgidx[tab->pg_base + i].n, 0, __ATOMIC_RELAXED);
    rest_put(t, (struct rest){.kind = REST_PAGES, .at = tab->pg_base, .n = tab->n_pages});
    rest_put(t, (struct rest){.kind = REST_CHUNKS, .chunk = tab->chunk, .n = tab->n_chunk});
    tab->chunk = NULL;
    tab->n_chunk = 0;
    tab->state = TABLE_NONE;
    tab->changed = true;
    t->stats.evicted++;
}

/* The one whose last touch is oldest; NULL: there is none. */
static struct table *oldest_ready(struct tables *t)
{
    struct table *oldest = NULL;

    for (uint32_t i = 0; i < t->n_all; i++) {
        struct table *tab = t->all[i];

        if (tab->state == TABLE_READY && (!oldest || tab->seen_ns < oldest->seen_ns))
            oldest = tab;
    }
    return oldest;
}

/* The page index is full: another table goes, and the next sample asks for this one again. */
static void no_pages(struct tables *t, struct built *d)
{
    struct table *oldest = oldest_ready(t);

    (void)builder_unuse(t->builder, d->chunk, d->n_chunk);
    free(d->chunk);
    free(d->pg);
    if (!oldest) {
        failed(t, d->table, EHTAB_BUDGET);
        return;
    }
    evict(t, oldest);
    d->table->state = TABLE_NONE;
}

static void take_in(struct tables *t, struct built *d)
{
    struct table *tab = d->table;
    uint32_t at;

    if (d->why) {
        failed(t, tab, d->why);
        return;
    }
    at = ranges_take(&t->pages, d->n_pages);
    if (!at) {
        no_pages(t, d);
        return;
    }
    memcpy(&t->io.pgidx[at], d->pg, d->n_pages * sizeof *d->pg);
    free(d->pg);
    tab->state = TABLE_READY;
    tab->changed = true;
    tab->pg_base = at;
    tab->n_pages = d->n_pages;
    tab->first_page = d->first_page;
    tab->chunk = d->chunk;
    tab->n_chunk = d->n_chunk;
    tab->seen_ns = mono_now().v;
    t->stats.built++;
}

static bool rest_has_chunks(const struct tables *t)
{
    for (size_t i = 0; i < t->n_rest; i++)
        if (t->rest[t->rest_head + i].kind == REST_CHUNKS)
            return true;
    return false;
}

/* The builder waits for a chunk: evict the table touched longest ago, one at a time, until one is
 * free; what is already resting is waited for first. */
static void make_room(struct tables *t)
{
    struct table *oldest;

    if (!builder_wants(t->builder) || rest_has_chunks(t))
        return;
    oldest = oldest_ready(t);
    if (oldest)
        evict(t, oldest);
    else
        builder_deny(t->builder);
}

void tables_tick(struct tables *t)
{
    struct built d;
    bool changed = false;
    uint64_t evicted = t->stats.evicted;

    rest_tick(t);
    while (builder_take(t->builder, &d)) {
        take_in(t, &d);
        changed = true;
    }
    make_room(t);
    if (changed || t->again || t->stats.evicted != evicted)
        republish(t);
}

uint32_t tables_pending(const struct tables *t)
{
    return builder_pending(t->builder);
}

void tables_get_stats(const struct tables *t, struct tables_stats *ret)
{
    *ret = t->stats;
    ret->procs = t->procs.n;
    ret->mapents = t->ents.used;
    ret->pages = t->pages.used;
    builder_stats(t->builder, ret);
}

/* ---- life ----------------------------------------------------------------------------------- */

int tables_open(struct tables **ret, const struct tables_io *io, const struct tables_opts *opts,
                struct err *err)
{
    uint64_t budget = opts && opts->budget ? opts->budget : BUDGET, n = budget / CHUNK_SZ;
    struct tables *t = xcalloc(1, sizeof *t);
    int r;

    t->io = *io;
    t->reuse_ns = opts && opts->reuse_ns ? opts->reuse_ns : NS_PER_S;
    t->cap_rest = 64;
    t->rest = xcalloc(t->cap_rest, sizeof *t->rest);
    map_init(&t->by_key, 0);
    map_init(&t->by_bin, 0);
    map_init(&t->procs, 0);
    ranges_init(&t->ents, io->n_mapents);
    ranges_init(&t->pages, io->n_pgidx);
    r = builder_open(&t->builder, io, (uint32_t)(n < io->n_chunks ? n : io->n_chunks), err);
    if (r < 0) {
        (void)tables_close(t);
        return r;
    }
    *ret = t;
    return 0;
}

struct tables *tables_close(struct tables *t)
{
    uint32_t pos = 0;
    uint64_t key, v;

    if (!t)
        return NULL;
    t->builder = builder_close(t->builder);
    while (map_next(&t->procs, &pos, &key, &v)) {
        free(((struct published *)from_u64(v))->map);
        free(from_u64(v));
    }
    for (size_t i = 0; i < t->n_rest; i++)
        if (t->rest[t->rest_head + i].kind == REST_CHUNKS)
            free(t->rest[t->rest_head + i].chunk);
    for (uint32_t i = 0; i < t->n_all; i++) {
        free(t->all[i]->chunk);
        free(t->all[i]);
    }
    free(t->all);
    free(t->rest);
    map_deinit(&t->by_key);
    map_deinit(&t->by_bin);
    map_deinit(&t->procs);
    ranges_deinit(&t->ents);
    ranges_deinit(&t->pages);
    free(t);
    return NULL;
}
