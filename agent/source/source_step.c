// SPDX-License-Identifier: Apache-2.0
/*
 * A file is looked at once, when a process first maps it; whether it holds the probe is remembered
 * by the binary's id. Listening is per file, not per process: every process that maps it now or
 * later is heard. A file that no process maps any more is let go after a while.
 */
#include "agent/source/source_step.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "agent/file/usdt.h"
#include "agent/source/bpf_step.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/map.h"
#include "base/time.h"

#define LOOK_NS   (2 * NS_PER_MS) /* at new files, in one call */
#define TRIES     5               /* to listen at one file */
#define LET_GO_NS (30 * NS_PER_S)
#define SWEEP_NS  NS_PER_S

enum look {
    LOOK_NO = 1, /* no probe in it, or none that can be had */
    LOOK_PROBE,
};

struct probe {          /* one inode: of equal files each is its own */
    struct binary *bin; /* a reference */
    dev_t dev;
    ino_t ino;
    struct usdt_site site;
    void *link; /* NULL: not yet */
    uint32_t tries;
    int64_t mapped; /* when a process was last seen to map it */
};

/* When a process called, lately: time is cut there. */
struct calls {
    uint32_t n, room;
    struct instant {
        int64_t t;
        real_ns real;
    } * at; /* by t */
};

#define CALLS_KEPT_NS (3 * NS_PER_S)

struct source_step {
    struct bpf_step *bpf;
    struct facts *facts;
    struct steptrack *track;
    struct map looked;  /* binary id -> enum look */
    struct map callers; /* serial -> pid, of the processes that called */
    struct map calls;   /* serial -> struct calls * */
    struct probe probe[SOURCE_STEP_PROBES];
    uint32_t n_probe;
    uint64_t last_cookie;
    bool again; /* files were left for later */
    int64_t swept, now;
    struct sa_step_drops drops;
    char news[SOURCE_STEP_NEWS];
    bool told_foreign, told_full, told_refused;
    /* during a poll */
    struct proc_table *table;
    struct stackagg *fold;
    int64_t real_minus_mono;
    struct proc *who; /* whose call it is */
};

static void on_step(void *ctx, const struct steptrack_step *s)
{
    struct source_step *x = ctx;
    const struct stackagg_step done = {.tid = s->tid,
                                       .n_label = s->n_label,
                                       .label = s->label,
                                       .name = s->name,
                                       .number = s->number,
                                       .t0 = {s->t0},
                                       .dur = s->t1 - s->t0};

    stackagg_add_step(x->fold, &done, x->who);
}

int source_step_open(struct source_step **ret, struct facts *facts, struct err *err)
{
    struct source_step *s = xcalloc(1, sizeof *s);
    int r = bpf_step_open(&s->bpf, err);

    if (r < 0) {
        free(s);
        return r;
    }
    s->facts = facts;
    s->track = steptrack_new(on_step, s);
    map_init(&s->looked, 0);
    map_init(&s->callers, 0);
    map_init(&s->calls, 0);
    *ret = s;
    return 0;
}

static struct calls *calls_at(uint64_t v)
{
    return (struct calls *)(uintptr_t)v; // NOLINT(performance-no-int-to-ptr): a map value
}

static void calls_free(struct calls *c)
{
    free(c->at);
    free(c);
}

static void let_go(struct source_step *s, uint32_t i)
{
    bpf_step_detach(s->probe[i].link);
    (void)binary_unref(s->probe[i].bin);
    s->probe[i] = s->probe[--s->n_probe];
}

struct source_step *source_step_close(struct source_step *s)
{
    uint64_t serial, v;
    uint32_t pos = 0;

    if (!s)
        return NULL;
    while (s->n_probe)
        let_go(s, s->n_probe - 1);
    steptrack_free(s->track);
    bpf_step_close(s->bpf);
    map_deinit(&s->looked);
    while (map_next(&s->calls, &pos, &serial, &v))
        calls_free(calls_at(v));
    map_deinit(&s->calls);
    map_deinit(&s->callers);
    free(s);
    return NULL;
}

/* ---- files --------------------------------------------------------------------------------- */

static void say(struct source_step *s, bool *told, const char *text, const struct binary *b)
{
    if (!*told)
        (void)snprintf(s->news, sizeof s->news, "source=steps %s file=\"%.60s\"", text,
                       str_basename(b->path).p);
    *told = true;
}

/* Once: that programs mark steps which nobody hears. */
static void say_refused(struct source_step *s, const struct err *e, const struct binary *b)
{
    char text[72];

    (void)snprintf(text, sizeof text, "why=\"%.64s\"", e->msg);
    say(s, &s->told_refused, text, b);
}

static struct probe *probe_of(struct source_step *s, const struct stat *st)
{
    for (uint32_t i = 0; i < s->n_probe; i++) {
        if (s->probe[i].dev == st->st_dev && s->probe[i].ino == st->st_ino)
            return &s->probe[i];
    }
    return NULL;
}

/* Through the mapping: that reaches other mount namespaces, deleted files and memfds. */
static void listen_at(struct source_step *s, const struct proc *p, const struct proc_map *m,
                      const struct usdt_site *site)
{
    struct bpf_step_at at = {.offset = site->offset, .sem_offset = site->sem_offset};
    struct err err = {};
    struct probe *b;
    struct stat st;
    char path[96];

    (void)snprintf(path, sizeof path, "/proc/%u/map_files/%" PRIx64 "-%" PRIx64, p->tgid, m->start,
                   m->end);
    if (stat(path, &st) < 0)
        return; /* gone, or cut meanwhile: told again then */
    b = probe_of(s, &st);
    if (!b && s->n_probe == SOURCE_STEP_PROBES) {
        say(s, &s->told_full, "why=\"too many files with the probe\"", m->bin);
        return;
    }
    if (!b) {
        b = &s->probe[s->n_probe++];
        *b = (struct probe){
            .bin = binary_ref(m->bin), .dev = st.st_dev, .ino = st.st_ino, .site = *site};
    }
    b->mapped = s->now;
    if (b->link || b->tries >= TRIES)
        return;
    b->tries++;
    at.path = path;
    at.cookie = ++s->last_cookie;
    if (bpf_step_attach(s->bpf, &at, &b->link, &err) == 0)
        return;
    log_event(b->tries == TRIES ? LOG_WARN : LOG_DEBUG, "steps", LOG_U("pid", p->tgid),
              LOG_ERR(&err));
    if (b->tries == TRIES || err.code == -EPERM || err.code == -EACCES)
        say_refused(s, &err, m->bin);
}

/* Does this content hold the probe? Looked at once, when that is known. */
static bool look_at(struct source_step *s, const struct proc_map *m, struct usdt_site *ret)
{
    struct usdt_site site = {};
    int found = facts_step(s->facts, m->bin, &site);

    if (found == -EAGAIN)
        return false;

    if (found == USDT_FOREIGN)
        say(s, &s->told_foreign, "why=\"a probe strata:step of another form\"", m->bin);
    if (found == USDT_FOUND)
        *ret = site;
    (void)map_put(&s->looked, m->bin->id, found == USDT_FOUND ? LOOK_PROBE : LOOK_NO);
    return found == USDT_FOUND;
}

/* Of a content that holds the probe. */
static bool site_of(const struct source_step *s, const struct binary *b, struct usdt_site *ret)
{
    for (uint32_t i = 0; i < s->n_probe; i++) {
        if (s->probe[i].bin == b) {
            *ret = s->probe[i].site;
            return true;
        }
    }
    return false;
}

void source_step_follow(struct source_step *s, const struct proc *p)
{
    int64_t begin;

    if (!s || p->dropped || p->kthread)
        return;
    begin = s->now = mono_now().v;
    for (uint32_t i = 0; i < p->n_map; i++) {
        const struct proc_map *m = &p->map[i];
        struct usdt_site site;
        uint64_t v;

        if (!m->bin || (map_get(&s->looked, m->bin->id, &v) && v == LOOK_NO))
            continue;
        if (!site_of(s, m->bin, &site)) {
            if (mono_now().v - begin > LOOK_NS) {
                s->again = true;
                return;
            }
            if (!look_at(s, m, &site))
                continue;
        }
        listen_at(s, p, m, &site);
    }
}

/* ---- calls --------------------------------------------------------------------------------- */

static void remember(struct source_step *s, uint64_t serial, int64_t t, real_ns real)
{
    struct calls *c;
    uint64_t *at;
    uint32_t old = 0, i;

    if (map_at(&s->calls, serial, &at) == MAP_FULL)
        abort(); /* no memory for 100 bytes: as xmalloc */
    if (*at == 0)
        *at = (uint64_t)(uintptr_t)xcalloc(1, sizeof *c);
    c = calls_at(*at);
    if (c->n == c->room) {
        while (old < c->n && t - c->at[old].t > CALLS_KEPT_NS)
            old++;
        if (old)
            memmove(c->at, c->at + old, (c->n - old) * sizeof *c->at);
        c->n -= old;
        if (2 * c->n >= c->room) {
            c->room = c->room ? 2 * c->room : 64;
            c->at = xrealloc(c->at, c->room * sizeof *c->at);
        }
    }
    for (i = c->n++; i > 0 && c->at[i - 1].t > t; i--) /* threads may overtake each other */
        c->at[i] = c->at[i - 1];
    c->at[i] = (struct instant){t, real};
}

real_ns source_step_since(const struct source_step *s, const struct proc *p, int64_t t, real_ns at)
{
    real_ns second = {at.v - at.v % NS_PER_S};
    const struct calls *c;
    uint32_t lo = 0, hi;
    uint64_t v;

    if (!s || !p || !map_get(&s->calls, p->serial, &v))
        return second;
    c = calls_at(v);
    hi = c->n;
    while (lo < hi) { /* the first one behind t */
        uint32_t mid = lo + (hi - lo) / 2;

        if (c->at[mid].t <= t)
            lo = mid + 1;
        else
            hi = mid;
    }
    if (lo == 0 || c->at[lo - 1].real.v <= second.v)
        return second;
    /* the store keeps milliseconds, cut: never to before the call */
    at.v = (c->at[lo - 1].real.v + NS_PER_MS - 1) / NS_PER_MS * NS_PER_MS;
    return at.v < second.v + NS_PER_S ? at : second;
}

static void on_call(void *ctx, const struct sa_step_call *c)
{
    struct source_step *s = ctx;
    struct proc *p = proc_find_at(s->table, c->tgid, (int64_t)c->t_ns, s->now);
    struct steptrack_call call = {.tid = c->tid,
                                  .t = (int64_t)c->t_ns,
                                  .real = (int64_t)c->t_ns + s->real_minus_mono,
                                  .what = c->what,
                                  .number = c->number,
                                  .name = {c->name, c->name_len},
                                  .comm = {c->comm, strnlen(c->comm, sizeof c->comm)}};

    if (p && p->dropped)
        return;
    if (!p || c->bad & SA_STEP_BAD_NAME) {
        steptrack_lost(s->track, STEPTRACK_BAD_TEXT, 1);
        return;
    }
    proc_seen(s->table, p, c->cgroup_id);
    if (c->attr_len)
        call.attr = (struct str){c->attr, c->attr_len};
    if (c->bad & SA_STEP_BAD_ATTR) { /* cut: the last pair may be half of one */
        size_t comma = str_rfind(call.attr, ',');

        call.attr = str_to(call.attr, comma == SIZE_MAX ? 0 : comma);
    }
    call.target = p->serial;
    call.service = hash_str(p->service);
    call.program = c->exec_id; /* p says it a millisecond late, and a program may call at once */
    s->who = p;
    remember(s, p->serial, call.t, (real_ns){call.real});
    (void)map_put(&s->callers, p->serial, p->tgid);
    if (steptrack_call(s->track, &call) && !s->news[0])
        (void)snprintf(s->news, sizeof s->news,
                       "source=steps pid=%u why=\"several threads mark steps of one name\"",
                       c->tgid);
}

/* Whose life ended. */
static void sweep_targets(struct source_step *s)
{
    uint64_t gone[256], serial, pid;
    uint32_t pos = 0, n = 0;

    while (n < sizeof gone / sizeof *gone && map_next(&s->callers, &pos, &serial, &pid)) {
        const struct proc *p = proc_find(s->table, (uint32_t)pid);

        if (!p || p->serial != serial || p->dead)
            gone[n++] = serial;
    }
    for (uint32_t i = 0; i < n; i++) {
        uint64_t v;

        steptrack_gone(s->track, gone[i]);
        if (map_get(&s->calls, gone[i], &v))
            calls_free(calls_at(v));
        (void)map_del(&s->calls, gone[i]);
        (void)map_del(&s->callers, gone[i]);
    }
}

static void sweep_files(struct source_step *s)
{
    bool look_again = s->again, old = false;

    s->again = false;
    for (uint32_t i = 0; i < s->n_probe; i++)
        old |= s->now - s->probe[i].mapped >= LET_GO_NS ||
               (!s->probe[i].link && s->probe[i].tries < TRIES);
    if (!look_again && !old)
        return;
    for (struct proc *p = proc_next(s->table, NULL); p; p = proc_next(s->table, p))
        source_step_follow(s, p);
    for (uint32_t i = s->n_probe; i-- > 0;) {
        if (s->now - s->probe[i].mapped >= LET_GO_NS)
            let_go(s, i);
    }
}

void source_step_poll(struct source_step *s, struct proc_table *procs, struct stackagg *fold,
                      int64_t now, int64_t real_minus_mono)
{
    struct sa_step_drops d;

    if (!s)
        return;
    s->table = procs;
    s->fold = fold;
    s->real_minus_mono = real_minus_mono;
    s->now = now;
    (void)bpf_step_drain(s->bpf, on_call, s);
    d = bpf_step_drops(s->bpf);
    steptrack_lost(s->track, STEPTRACK_RATE, d.rate - s->drops.rate);
    steptrack_lost(s->track, STEPTRACK_RING_FULL, d.ring_full - s->drops.ring_full);
    s->drops = d;
    if (now - s->swept < SWEEP_NS)
        return;
    s->swept = now;
    sweep_targets(s);
    sweep_files(s);
}

int source_step_ring_fd(const struct source_step *s)
{
    return s ? bpf_step_ring_fd(s->bpf) : -1;
}

bool source_step_news(struct source_step *s, char ret[static SOURCE_STEP_NEWS])
{
    if (!s || !s->news[0])
        return false;
    memcpy(ret, s->news, SOURCE_STEP_NEWS);
    s->news[0] = '\0';
    return true;
}

void source_step_get_stats(const struct source_step *s, struct source_step_stats *ret)
{
    *ret = (struct source_step_stats){};
    if (!s)
        return;
    steptrack_get_stats(s->track, &ret->track);
    for (uint32_t i = 0; i < s->n_probe; i++) {
        ret->probes += s->probe[i].link != NULL;
        ret->refused += !s->probe[i].link && s->probe[i].tries > 0;
    }
}
