// SPDX-License-Identifier: Apache-2.0
/* Intervals off the CPU, in parts (source_offcpu.h). */
#include <stdlib.h>
#include <string.h>

#include "agent/source/source_offcpu.h"
#include "base/arena.h"
#include "base/hash.h"
#include "base/map.h"

#define SWEEP 64   /* in one pass, at most */
#define ENDED 1024 /* threads of whom the last interval is remembered */

struct open {
    uint64_t t0, told_to;    /* CLOCK_MONOTONIC */
    int64_t blocked, queued; /* told so far */
    uint64_t pass;           /* that it was last met in */
    uint64_t stack;          /* hash of its words */
    uint8_t why;
    bool again;      /* as of struct source_offcpu_part */
    struct sa_ev ev; /* its words follow */
};

/* The last interval of a thread; the next thread with its place takes that. */
struct ended {
    uint32_t tid;
    uint64_t t, stack;
};

struct offparts {
    struct map by_tid; /* -> struct open * */
    struct ended ended[ENDED];
    uint64_t max_bytes, pass;
    struct source_offcpu_stats stats;
};

static struct open *from_u64(uint64_t v)
{
    return (struct open *)(uintptr_t)v; // NOLINT(performance-no-int-to-ptr): a map value
}

static uint64_t open_size(const struct open *e)
{
    return sizeof *e + 8 * ((uint64_t)e->ev.nk + e->ev.nu);
}

struct offparts *offparts_new(uint64_t max_bytes)
{
    struct offparts *o = xcalloc(1, sizeof *o);

    o->max_bytes = max_bytes;
    map_init(&o->by_tid, 0);
    return o;
}

static void drop(struct offparts *o, struct open *e)
{
    (void)map_del(&o->by_tid, e->ev.tid);
    o->stats.open--;
    o->stats.open_bytes -= open_size(e);
    free(e);
}

void offparts_clear(struct offparts *o)
{
    uint32_t pos = 0;
    uint64_t key, v;

    while (map_next(&o->by_tid, &pos, &key, &v))
        free(from_u64(v));
    map_clear(&o->by_tid);
    o->stats.open = o->stats.open_bytes = 0;
}

struct offparts *offparts_free(struct offparts *o)
{
    if (!o)
        return NULL;
    offparts_clear(o);
    map_deinit(&o->by_tid);
    free(o);
    return NULL;
}

static struct open *find(const struct offparts *o, uint32_t tid)
{
    uint64_t v;

    return map_get(&o->by_tid, tid, &v) ? from_u64(v) : NULL;
}

/* Of a thread that has left; NULL: no memory for even that. */
static struct open *keep(struct offparts *o, const struct sa_ev *ev, uint64_t t0, uint8_t why)
{
    struct open *e = find(o, ev->tid), told = {.told_to = t0};
    size_t words = (size_t)ev->nk + ev->nu;

    if (e) { /* the same one, whose stack comes only now; or it came back, and that was lost */
        if (e->t0 == t0)
            told = *e;
        drop(o, e);
    }
    if (o->stats.open_bytes + sizeof *e + 8 * words > o->max_bytes) {
        o->stats.full++;
        why = SOURCE_OFFCPU_FULL;
        words = 0;
        if (o->stats.open_bytes + sizeof *e > 2 * o->max_bytes)
            return NULL;
    }
    e = xmalloc(sizeof *e + 8 * words);
    *e = (struct open){.t0 = t0,
                       .told_to = told.told_to,
                       .blocked = told.blocked,
                       .queued = told.queued,
                       .pass = o->pass,
                       .why = why};
    memcpy(&e->ev, ev, sizeof *ev + 8 * words);
    if (!words)
        e->ev.nk = e->ev.nu = 0;
    if (map_put(&o->by_tid, ev->tid, (uint64_t)(uintptr_t)e) == MAP_FULL) {
        free(e);
        return NULL;
    }
    o->stats.open++;
    o->stats.open_bytes += open_size(e);
    return e;
}

void offparts_left(struct offparts *o, const struct sa_ev *ev, uint64_t gil_holder)
{
    const struct ended *last = &o->ended[ev->tid % ENDED];
    struct open *e = keep(o, ev, ev->t_ns, SA_L_STACK);

    if (!e)
        return;
    e->ev.gil_holder = gil_holder;
    e->stack = hash_bytes(ev->w, ((size_t)ev->nk + ev->nu) * sizeof *ev->w);
    e->again = last->tid == ev->tid && last->stack == e->stack && ev->t_ns >= last->t &&
               ev->t_ns - last->t < SOURCE_OFFCPU_JOIN_NS;
}

static void give(struct offparts *o, const struct source_offcpu_part *p,
                 const struct source_offcpu_sink *sink)
{
    if (p->blocked == 0 && p->queued == 0)
        return;
    o->stats.parts++;
    o->stats.blocked += p->blocked;
    o->stats.queued += p->queued;
    sink->part(sink->ctx, p);
}

static struct sa_ev bare(uint32_t tgid, uint32_t tid, const char comm[16])
{
    struct sa_ev ev = {.kind = SA_KIND_LEFT, .tgid = tgid, .tid = tid};

    memcpy(ev.comm, comm, sizeof ev.comm);
    return ev;
}

void offparts_back(struct offparts *o, const struct sa_back *b,
                   const struct source_offcpu_sink *sink, int64_t real_minus_mono)
{
    struct open *e = b->why == SA_L_SHORT ? NULL : find(o, b->tid);
    struct sa_ev ev = bare(b->tgid, b->tid, b->comm);
    struct source_offcpu_part p = {.ev = &ev,
                                   .why = b->why,
                                   .blocked = (int64_t)b->blocked,
                                   .queued = (int64_t)b->queued,
                                   .n = b->n};
    uint64_t from = b->why == SA_L_SHORT ? b->t_ns : b->t0;

    if (e && e->t0 == b->t0) {
        p.ev = &e->ev;
        p.why = e->why;
        p.again = e->again;
        p.blocked -= e->blocked;
        p.queued -= e->queued;
        if (p.blocked < 0) { /* told as blocked when it could run already */
            p.queued += p.blocked;
            p.blocked = 0;
        } else if (p.queued < 0) {
            p.blocked += p.queued;
            p.queued = 0;
        }
        from = e->told_to;
    } else if (b->why == SA_L_STACK) {
        p.why = SOURCE_OFFCPU_FULL;
    }
    p.t.v = (int64_t)from + real_minus_mono;
    if (p.blocked >= 0 && p.queued >= 0)
        give(o, &p, sink);
    if (!e)
        return;
    if (e->stack)
        o->ended[b->tid % ENDED] = (struct ended){b->tid, b->t_ns, e->stack};
    drop(o, e);
}

void offparts_off(struct offparts *o, const struct sa_off *off, uint64_t edge, bool last,
                  const struct source_offcpu_sink *sink, int64_t real_minus_mono)
{
    struct sa_ev ev = bare(off->tgid, off->tid, off->comm);
    struct open *e = find(o, off->tid);
    struct source_offcpu_part p = {.ev = &ev, .why = SA_L_SHORT, .n = off->short_n};
    uint64_t from, wake;

    if (last && off->short_n) {
        p.blocked = (int64_t)off->short_blocked;
        p.queued = (int64_t)off->short_queued;
        p.t.v = (int64_t)edge - 1 + real_minus_mono;
        give(o, &p, sink);
    }
    if (!off->t0 || off->t0 >= edge)
        return;
    if (!e || e->t0 != off->t0)
        e = keep(o, &ev, off->t0,
                 off->why == SA_L_STACK ? (uint8_t)SOURCE_OFFCPU_FULL : (uint8_t)off->why);
    if (!e)
        return;
    e->pass = o->pass;
    from = e->told_to;
    if (from >= edge)
        return;
    wake = off->wake && off->wake < edge ? off->wake : edge;
    if (wake < from)
        wake = from;
    p = (struct source_offcpu_part){.ev = &e->ev,
                                    .why = e->why,
                                    .t = {(int64_t)from + real_minus_mono},
                                    .blocked = (int64_t)(wake - from),
                                    .queued = (int64_t)(edge - wake),
                                    .n = 1,
                                    .again = e->again};
    e->blocked += p.blocked;
    e->queued += p.queued;
    e->told_to = edge;
    give(o, &p, sink);
}

void offparts_pass(struct offparts *o)
{
    uint32_t pos = 0, n = 0;
    uint64_t key, v;
    struct open *gone[SWEEP];

    while (n < SWEEP && map_next(&o->by_tid, &pos, &key, &v))
        if (from_u64(v)->pass + 2 <= o->pass)
            gone[n++] = from_u64(v);
    for (uint32_t i = 0; i < n; i++)
        drop(o, gone[i]);
    o->stats.swept += n;
    o->pass++;
}

void offparts_get_stats(const struct offparts *o, struct source_offcpu_stats *ret)
{
    *ret = o->stats;
}
