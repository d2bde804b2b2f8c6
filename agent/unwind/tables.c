// SPDX-License-Identifier: Apache-2.0
/*
 * Which process maps which table where. The main thread alone writes page index, mappings and
 * processes. What a range says of a process's addresses never changes: a new range is written
 * beside it, then the process's entry is swapped, and the old range rests until no program can be
 * reading it. Where the table of a mapping is changes in place: every process maps the C library,
 * and new ranges for all of them at once would need the space twice.
 */
#include "agent/unwind/tables.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "agent/unwind/tables_private.h"
#include "base/arena.h"
#include "base/hash.h"
#include "base/map.h"
#include "base/time.h"

#define BUDGET   (UINT64_C(64) << 20)
#define CHUNK_SZ (SA_CHUNK_ROWS * sizeof(struct sa_row))

/* A process with many mappings gets a new range the more seldom, the larger that is: else one that
 * maps and unmaps without end would fill the space with ranges at rest. 4,096 mappings: 4.9/s. */
#define LARGE        256
#define PAUSE_PER_NS 50000 /* and mapping */

/* Tables that no process maps, and which hold nothing, are forgotten when there are so many. */
#define FORGET_MIN 8192

struct published {
    uint32_t tgid, flags;
    struct sa_py *py; /* heap; NULL: none */
    uint32_t at, n;   /* its range in mapents */
    bool dirty;       /* map has changed since */
    int64_t next_ns;  /* not before */
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
    enum tables_room room;
    int64_t reuse_ns;
    uint32_t gen;
    bool again;                /* a process is not published as it is: try at the next tick */
    uint32_t forget_at;        /* n_all to look for tables that may be forgotten */
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
    if (t->room == TABLES_REFUSE) {
        t->stats.refused++;
        return;
    }
    if (!builder_put(t->builder, tab, b, urgent)) {
        t->stats.queue_full++;
        return;
    }
    tab->state = TABLE_QUEUED;
    tab->urgent = urgent;
    tab->seen_ns = mono_now().v;
}

void tables_restrain(struct tables *t, enum tables_room room)
{
    t->room = room;
    builder_grow(t->builder, room == TABLES_ALL);
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

static void range_rests(struct tables *t, struct published *p)
{
    if (p->n)
        rest_put(t, (struct rest){.kind = REST_MAPS, .at = p->at, .n = p->n});
    p->at = p->n = 0;
}

/* No room. Its old range may name files that are no longer there: rather no stack (noproc) than a
 * wrong one. */
static int no_room(struct tables *t, struct published *p, int code, struct err *err)
{
    t->stats.no_room++;
    t->again = true;
    (void)t->io.proc_del(t->io.ctx, p->tgid); /* -ENOENT: it was not there */
    range_rests(t, p);
    if (code == -ENOSPC)
        return err_set(err, code, "mappings of process %u: all %u entries are used", p->tgid,
                       t->io.n_mapents);
    return err_set(err, code == -E2BIG ? -ENOSPC : code, "publish process %u: %s", p->tgid,
                   strerrordesc_np(-code));
}

/* Write p's mappings to a new range and swap. The old range rests. */
static int swap_in(struct tables *t, struct published *p, struct err *err)
{
    const uint32_t n = p->n_map;
    struct sa_proc v = {.tgid = p->tgid, .n = n, .flags = p->flags};
    int r;

    if (p->py)
        v.py = *p->py;

    p->dirty = true;
    if (n) {
        v.maps_off = ranges_take(&t->ents, n);
        if (!v.maps_off)
            return no_room(t, p, -ENOSPC, err);
    }
    for (uint32_t i = 0; i < n; i++)
        t->io.mapents[v.maps_off + i] = entry(&p->map[i]);
    v.gen = v.gen2 = ++t->gen;
    r = t->io.proc_set(t->io.ctx, &v);
    if (r < 0) {
        if (n)
            ranges_give(&t->ents, v.maps_off, n);
        return no_room(t, p, r, err);
    }
    range_rests(t, p);
    p->at = v.maps_off;
    p->n = n;
    p->dirty = false;
    if (n >= LARGE)
        p->next_ns = mono_now().v + (int64_t)n * PAUSE_PER_NS;
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

static void drop_map(struct published *pub)
{
    for (uint32_t i = 0; i < pub->n_map; i++)
        if (pub->map[i].table)
            pub->map[i].table->users--;
    free(pub->map);
    pub->map = NULL;
    pub->n_map = 0;
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
    for (uint32_t i = 0; i < n; i++) {
        map[i] = to_map(t, p, &p->map[i]);
        if (map[i].table)
            map[i].table->users++;
    }
    drop_map(pub);
    pub->map = map;
    pub->n_map = n;
    if (n >= LARGE && mono_now().v < pub->next_ns) {
        pub->dirty = t->again = true;
        return 0;
    }
    return swap_in(t, pub, err);
}

void tables_unpublish(struct tables *t, uint32_t tgid)
{
    struct published *pub = find_pub(t, tgid);

    if (!pub)
        return;
    (void)t->io.proc_del(t->io.ctx, tgid); /* -ENOENT: publishing had failed */
    range_rests(t, pub);
    (void)map_del(&t->procs, tgid);
    drop_map(pub);
    free(pub->py);
    free(pub);
}

int tables_exclude(struct tables *t, uint32_t tgid, bool excluded, struct err *err)
{
    struct published *pub = find_pub(t, tgid);
    uint32_t flags = (pub ? pub->flags & ~(uint32_t)SA_P_EXCLUDED : 0) |
                     (excluded ? (uint32_t)SA_P_EXCLUDED : 0);

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

int tables_switches(struct tables *t, uint32_t tgid, bool on, struct err *err)
{
    struct published *pub = find_pub(t, tgid);

    if (!pub || on == ((pub->flags & SA_P_SWITCHES) != 0))
        return 0;
    pub->flags ^= SA_P_SWITCHES;
    return swap_in(t, pub, err);
}

int tables_python(struct tables *t, uint32_t tgid, const struct sa_py *py, struct err *err)
{
    struct published *pub = find_pub(t, tgid);

    if (!pub || (!pub->py && !py->ver))
        return 0;
    if (!pub->py)
        pub->py = xmalloc(sizeof *pub->py);
    *pub->py = *py;
    return swap_in(t, pub, err);
}

/* A mapping's table, as it is now, into the entry that programs may be reading: nothing before
 * something else, npages last. Pages that they read a moment ago rest. */
static void patch(struct sa_mapent *to, const struct sa_mapent *e)
{
    __atomic_store_n(&to->npages, 0, __ATOMIC_RELEASE);
    __atomic_store_n(&to->first_page, e->first_page, __ATOMIC_RELEASE);
    __atomic_store_n(&to->pg_base, e->pg_base, __ATOMIC_RELEASE);
    __atomic_store_n(&to->npages, e->npages, __ATOMIC_RELEASE);
}

static void patch_changed(struct tables *t, struct published *p)
{
    if (p->dirty) /* its range, if it has one, is of other mappings than map */
        return;
    for (uint32_t i = 0; i < p->n_map; i++) {
        if (p->map[i].table && p->map[i].table->changed) {
            struct sa_mapent e = entry(&p->map[i]);

            patch(&t->io.mapents[p->at + i], &e);
        }
    }
}

/* Tables that changed into the ranges of those who map them; processes that wait for a range. */
static void republish(struct tables *t)
{
    uint32_t pos = 0;
    uint64_t key, v;
    int64_t now = mono_now().v;

    t->again = false;
    while (map_next(&t->procs, &pos, &key, &v)) {
        struct published *p = from_u64(v);

        patch_changed(t, p);
        if (!p->dirty)
            continue;
        if (p->n_map >= LARGE && now < p->next_ns)
            t->again = true;
        else
            (void)swap_in(t, p, NULL); /* no room: counted, and tried again */
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

/* Not the builder's, and nobody's: 0 users. What holds rows is evicted first, and goes at the next
 * sweep. */
static bool forgettable(struct tables *t, struct table *tab)
{
    if (tab->users || tab->state == TABLE_QUEUED)
        return false;
    if (tab->state != TABLE_READY)
        return true;
    evict(t, tab);
    return false;
}

/* Binaries without end, each run once: what is known of them must not grow without end. */
static void forget_some(struct tables *t)
{
    uint32_t n = 0, pos = 0;
    struct map by_bin;
    uint64_t bin, v;

    for (uint32_t i = 0; i < t->n_all; i++)
        t->all[i]->gone = forgettable(t, t->all[i]);
    map_init(&by_bin, 0);
    while (map_next(&t->by_bin, &pos, &bin, &v))
        if (!((struct table *)from_u64(v))->gone)
            (void)map_put(&by_bin, bin, v);
    map_deinit(&t->by_bin);
    t->by_bin = by_bin;
    for (uint32_t i = 0; i < t->n_all; i++) {
        struct table *tab = t->all[i];

        if (!tab->gone) {
            t->all[n++] = tab;
            continue;
        }
        (void)map_del(&t->by_key, tab->key);
        free(tab);
        t->stats.forgotten++;
    }
    t->n_all = n;
    t->forget_at = n < FORGET_MIN / 2 ? FORGET_MIN : 2 * n;
}

void tables_tick(struct tables *t)
{
    struct built d;
    bool changed = false;
    uint64_t evicted = t->stats.evicted;

    if (t->again) /* before pages are given to others that an old range may still name */
        republish(t);
    rest_tick(t);
    if (t->n_all >= t->forget_at)
        forget_some(t);
    while (builder_take(t->builder, &d)) {
        take_in(t, &d);
        changed = true;
    }
    make_room(t);
    if (changed || t->stats.evicted != evicted)
        republish(t);
}

uint32_t tables_pending(const struct tables *t)
{
    return builder_pending(t->builder);
}

bool tables_again(const struct tables *t)
{
    return t->again;
}

void tables_get_stats(const struct tables *t, struct tables_stats *ret)
{
    *ret = t->stats;
    ret->procs = t->procs.n;
    ret->mapents = t->ents.used;
    ret->pages = t->pages.used;
    ret->known = t->n_all;
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
    t->forget_at = FORGET_MIN;
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
        struct published *pub = from_u64(v);

        free(pub->map);
        free(pub->py);
        free(pub);
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
