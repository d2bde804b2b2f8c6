// SPDX-License-Identifier: Apache-2.0
/*
 * A file is looked at once, when a process first maps it; whether it holds the probe is remembered
 * by the binary's id. Listening is per file, not per process: every process that maps it now or
 * later is heard. A file that no process maps any more is let go after a while.
 */
#include "agent/source_step.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/bpf_step.h"
#include "agent/usdt.h"
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

struct probe {
    struct binary *bin; /* a reference */
    struct usdt_site site;
    void *link; /* NULL: not yet */
    uint32_t tries;
    int64_t mapped; /* when a process was last seen to map it */
};

struct source_step {
    struct bpf_step *bpf;
    struct steptrack *track;
    struct map looked;  /* binary id -> enum look */
    struct map callers; /* serial -> pid, of the processes that called */
    struct probe probe[SOURCE_STEP_PROBES];
    uint32_t n_probe;
    bool again; /* files were left for later */
    int64_t swept, now;
    struct sa_step_drops drops;
    char news[SOURCE_STEP_NEWS];
    bool told_foreign, told_full;
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
                                       .t0 = {s->t0 + x->real_minus_mono},
                                       .dur = s->t1 - s->t0};

    stackagg_add_step(x->fold, &done, x->who);
}

int source_step_open(struct source_step **ret, struct err *err)
{
    struct source_step *s = xcalloc(1, sizeof *s);
    int r = bpf_step_open(&s->bpf, err);

    if (r < 0) {
        free(s);
        return r;
    }
    s->track = steptrack_new(on_step, s);
    map_init(&s->looked, 0);
    map_init(&s->callers, 0);
    *ret = s;
    return 0;
}

static void let_go(struct source_step *s, uint32_t i)
{
    bpf_step_detach(s->probe[i].link);
    (void)map_del(&s->looked, s->probe[i].bin->id);
    (void)binary_unref(s->probe[i].bin);
    s->probe[i] = s->probe[--s->n_probe];
}

struct source_step *source_step_close(struct source_step *s)
{
    if (!s)
        return NULL;
    while (s->n_probe)
        let_go(s, s->n_probe - 1);
    steptrack_free(s->track);
    bpf_step_close(s->bpf);
    map_deinit(&s->looked);
    map_deinit(&s->callers);
    free(s);
    return NULL;
}

/* ---- files --------------------------------------------------------------------------------- */

static int64_t read_binary(void *ctx, void *to, uint64_t n, uint64_t at)
{
    return binary_read(ctx, to, n, at);
}

static enum usdt_found look(struct binary *b, struct usdt_site *ret)
{
    enum usdt_found found = USDT_NONE;
    struct elffile f = {};

    if (b->is_elf && !b->image && elffile_open(&f, read_binary, b, b->size, NULL) == 0)
        found = usdt_find_step(&f, ret);
    elffile_close(&f);
    return found;
}

static struct probe *probe_of(struct source_step *s, const struct binary *b)
{
    for (uint32_t i = 0; i < s->n_probe; i++) {
        if (s->probe[i].bin == b)
            return &s->probe[i];
    }
    return NULL;
}

static void say(struct source_step *s, bool *told, const char *text, const struct binary *b)
{
    if (!*told)
        (void)snprintf(s->news, sizeof s->news, "source=steps %s file=\"%.60s\"", text,
                       str_basename(b->path).p);
    *told = true;
}

/* Through the mapping: that reaches other mount namespaces, deleted files and memfds. */
static void listen_at(struct source_step *s, struct probe *b, const struct proc *p,
                      const struct proc_map *m)
{
    char path[96];
    struct err err = {};

    if (b->link || b->tries >= TRIES)
        return;
    b->tries++;
    (void)snprintf(path, sizeof path, "/proc/%u/map_files/%" PRIx64 "-%" PRIx64, p->tgid, m->start,
                   m->end);
    if (bpf_step_attach(s->bpf, path, b->site.offset, b->site.sem_offset, &b->link, &err) < 0)
        log_event(b->tries == TRIES ? LOG_WARN : LOG_DEBUG, "steps", LOG_U("pid", p->tgid),
                  LOG_ERR(&err));
}

static void look_at(struct source_step *s, const struct proc *p, const struct proc_map *m)
{
    struct usdt_site site = {};
    enum usdt_found found = look(m->bin, &site);
    enum look kind = LOOK_NO;

    if (found == USDT_FOREIGN)
        say(s, &s->told_foreign, "why=\"a probe strata:step of another form\"", m->bin);
    if (found == USDT_FOUND && s->n_probe == SOURCE_STEP_PROBES) {
        say(s, &s->told_full, "why=\"too many files with the probe\"", m->bin);
    } else if (found == USDT_FOUND) {
        kind = LOOK_PROBE;
        s->probe[s->n_probe++] =
            (struct probe){.bin = binary_ref(m->bin), .site = site, .mapped = s->now};
        listen_at(s, &s->probe[s->n_probe - 1], p, m);
    }
    (void)map_put(&s->looked, m->bin->id, kind);
}

void source_step_follow(struct source_step *s, const struct proc *p)
{
    int64_t begin;

    if (!s || p->dropped || p->kthread)
        return;
    begin = s->now = mono_now().v;
    for (uint32_t i = 0; i < p->n_map; i++) {
        const struct proc_map *m = &p->map[i];
        struct probe *b;
        uint64_t v;

        if (!m->bin)
            continue;
        if (!map_get(&s->looked, m->bin->id, &v)) {
            if (mono_now().v - begin > LOOK_NS) {
                s->again = true;
                return;
            }
            look_at(s, p, m);
        } else if (v == LOOK_PROBE && (b = probe_of(s, m->bin))) {
            b->mapped = s->now;
            listen_at(s, b, p, m);
        }
    }
}

/* ---- calls --------------------------------------------------------------------------------- */

static void on_call(void *ctx, const struct sa_step_call *c)
{
    struct source_step *s = ctx;
    struct proc *p = proc_find_at(s->table, c->tgid, (int64_t)c->t_ns, s->now);
    struct steptrack_call call = {.tid = c->tid,
                                  .t = (int64_t)c->t_ns,
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
    call.execs = p->execs;
    s->who = p;
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
        steptrack_gone(s->track, gone[i]);
        (void)map_del(&s->callers, gone[i]);
    }
}

static void sweep_files(struct source_step *s)
{
    bool look_again = s->again, old = false;

    s->again = false;
    for (uint32_t i = 0; i < s->n_probe; i++)
        old |= s->now - s->probe[i].mapped >= LET_GO_NS || !s->probe[i].link;
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
    for (uint32_t i = 0; i < s->n_probe; i++)
        ret->probes += s->probe[i].link != NULL;
}
