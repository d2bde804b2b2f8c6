// SPDX-License-Identifier: Apache-2.0
/*
 * Whose time off the CPU is profiled, and its way into the fold. Programs are attached, and
 * processes join, where a window begins: what is covered is covered whole.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "agent/collect/collector_private.h"
#include "agent/file/procfile.h"
#include "agent/proc/glob.h"
#include "base/log.h"
#include "base/map.h"

#define GLOBS         32
#define NAMES         64 /* of threads that hold a lock, kept for a second */
#define CAPTURE_PER_S 2000
#define LADDER        4 /* steps that halve the stacks; further ones double min_block */

#define OFF_TYPES (1U << PTYPE_OFFCPU | 1U << PTYPE_RUNQ | 1U << PTYPE_GIL_WAIT)

enum mode {
    MODE_OFF = 0,
    MODE_ALL,      /* or what a capture watches */
    MODE_AUTO,     /* Python with several threads */
    MODE_SERVICES, /* those that a glob names */
};

struct thread_name {
    uint32_t tgid, tid;
    int64_t at;
    char name[48];
};

struct collector_off {
    enum mode mode;
    struct source_offcpu *source;
    struct source_offcpu_sink sink;
    struct glob *glob[GLOBS];
    uint32_t n_glob, n_tracked;
    struct map tracked; /* tgid -> serial */
    int64_t unknown_wait_ns;
    struct thread_name name[NAMES];
};

/* ---- who holds the lock --------------------------------------------------------------------- */

static const char *thread_name(struct collector *c, const struct proc *p, uint32_t tid)
{
    struct thread_name *n = &c->off->name[tid % NAMES];
    char path[64];
    struct buf b;

    if (n->tgid == p->tgid && n->tid == tid && c->now - n->at < NS_PER_S)
        return n->name;
    *n = (struct thread_name){.tgid = p->tgid, .tid = tid, .at = c->now, .name = "?"};
    if (p->key.pid != p->tgid) /* another pid namespace: the number is of that one */
        return n->name;
    (void)snprintf(path, sizeof path, "%u/task/%u/comm", p->tgid, tid);
    buf_init(&b, 64);
    if (procfile_read("/proc", path, &b, NULL) == 0 && b.n > 1) {
        struct str s = str_to(buf_view(&b), str_find(buf_view(&b), '\n'));

        (void)snprintf(n->name, sizeof n->name, "%.*s", STR_ARG(s));
    }
    buf_deinit(&b);
    return n->name;
}

/* The frame that says it, below a stack that waits for the lock. */
static struct str holder_frame(struct collector *c, const struct proc *p, const struct sa_ev *ev,
                               char *text, size_t size)
{
    if (!p || ev->gil == SA_G_NA || ev->gil == SA_G_MINE || ev->gil == SA_G_UNREADABLE)
        return STR("");
    if (ev->gil == SA_G_FREE)
        return STR("[gil free]");
    if (!ev->gil_holder)
        return STR("[gil held by another thread]");
    (void)snprintf(text, size, "[gil held by %s/%" PRIu64 "]",
                   thread_name(c, p, (uint32_t)ev->gil_holder), ev->gil_holder);
    return str_c(text);
}

/* ---- records -------------------------------------------------------------------------------- */

static struct proc *proc_of(struct collector *c, const struct sa_ev *ev)
{
    return ev->t_ns ? proc_find_at(c->procs, ev->tgid, (int64_t)ev->t_ns, c->now)
                    : proc_find(c->procs, ev->tgid);
}

static uint64_t on_left(void *ctx, const struct sa_ev *ev)
{
    struct collector *c = ctx;
    struct pynames_frame py[SA_MAX_PY];
    struct proc *p = proc_of(c, ev);

    if (!p || p->dropped)
        return 0;
    proc_seen(c->procs, p, ev->cgroup_id);
    source_cpu_touch(c->cpu, ev);
    (void)py_frames(c->py, p, ev, py); /* they are known when the thread is back */
    c->wanted |= collector_wants(ev);
    if (ev->stop == SA_S_NOMAP)
        proc_missed(c->procs, p, c->now);
    return py_holder(c->py, p, ev);
}

static void on_part(void *ctx, const struct source_offcpu_part *part)
{
    static const uint8_t stop[SOURCE_OFFCPU_WHYS] = {[SA_L_SHORT] = STACKAGG_SHORT,
                                                     [SA_L_THROTTLED] = STACKAGG_THROTTLED,
                                                     [SA_L_NOT_RUN] = STACKAGG_NOT_RUN,
                                                     [SA_L_RING] = STACKAGG_RING,
                                                     [SOURCE_OFFCPU_FULL] = STACKAGG_TABLE_FULL};
    struct collector *c = ctx;
    struct proc *p = proc_of(c, part->ev);
    struct pynames_frame py[SA_MAX_PY];
    char text[96];
    struct stackagg_off o = {.ev = part->ev,
                             .t = part->t,
                             .stop = stop[part->why],
                             .n = part->n,
                             .blocked = part->blocked,
                             .queued = part->queued,
                             .again = part->again};

    if (p && p->dropped)
        return;
    if (p && part->why != SA_L_STACK && py_state(c->py, p) == PYLAYOUT_OK) {
        p->unknown_wait_ns += part->blocked;
        c->off->unknown_wait_ns += part->blocked;
    }
    if (part->why == SA_L_STACK) {
        o.stop = part->ev->stop < SA_S_N ? part->ev->stop : (uint8_t)SA_S_INVALID;
        o.holder = holder_frame(c, p, part->ev, text, sizeof text);
        stackagg_python(c->fold, (struct stackagg_pys){py, py_frames(c->py, p, part->ev, py)});
    }
    stackagg_add_off(c->fold, &o, p, c->conf.ids->host);
}

/* ---- whose ---------------------------------------------------------------------------------- */

static bool has_threads(uint32_t tgid)
{
    char path[32];
    struct stat st;

    (void)snprintf(path, sizeof path, "/proc/%u/task", tgid);
    return stat(path, &st) == 0 && st.st_nlink > 3; /* ., .. and one for each thread */
}

static bool service_wanted(const struct collector_off *o, const struct proc *p)
{
    for (uint32_t i = 0; i < o->n_glob && p->n_label; i++)
        if (glob_match(o->glob[i], p->label[0].value, NULL))
            return true;
    return false;
}

static void track(struct collector *c, const struct proc *p)
{
    struct collector_off *o = c->off;
    struct err err = {};
    uint64_t serial;

    if (!p || p->dead || p->kthread || p->dropped ||
        (map_get(&o->tracked, p->tgid, &serial) && serial == p->serial))
        return;
    if (tables_switches(source_cpu_tables(c->cpu), p->tgid, true, &err) < 0)
        log_event(LOG_WARN, "offcpu", LOG_U("pid", p->tgid), LOG_ERR(&err));
    else if (map_put(&o->tracked, p->tgid, p->serial) == MAP_ADDED)
        o->n_tracked++;
}

/* Those that are gone are none any more. */
static void untrack(struct collector *c)
{
    struct collector_off *o = c->off;
    uint32_t pos = 0, n = 0;
    uint64_t tgid, serial, gone[64];

    while (n < sizeof gone / sizeof *gone && map_next(&o->tracked, &pos, &tgid, &serial)) {
        const struct proc *p = proc_find(c->procs, (uint32_t)tgid);

        if (!p || p->dead || p->serial != serial)
            gone[n++] = tgid;
    }
    o->n_tracked -= n;
    while (n > 0)
        (void)map_del(&o->tracked, gone[--n]);
}

static void choose(struct collector *c)
{
    struct collector_off *o = c->off;
    struct err err = {};
    uint32_t pos = 0, tgid;

    untrack(c);
    while (o->mode == MODE_AUTO && py_next(c->py, &pos, &tgid))
        if (has_threads(tgid))
            track(c, proc_find(c->procs, tgid));
    for (struct proc *p = o->mode == MODE_SERVICES ? proc_next(c->procs, NULL) : NULL; p;
         p = proc_next(c->procs, p))
        if (service_wanted(o, p))
            track(c, p);
    if (source_offcpu_switch(o->source, o->mode == MODE_ALL || o->n_tracked > 0, &err) < 0) {
        collector_event(c, "state", "source=offcpu state=refused why=\"%.120s\"", err.msg);
        log_event(LOG_WARN, "offcpu", LOG_ERR(&err));
        o->source = source_offcpu_close(o->source);
    }
}

/* ---- life ----------------------------------------------------------------------------------- */

static int mode_of(struct collector *c, const char *text, struct err *err)
{
    struct str all = str_c(text);
    struct collector_off *o = c->off;

    if (c->conf.capture)
        o->mode = c->conf.capture->types & OFF_TYPES ? MODE_ALL : MODE_OFF;
    else if (str_eq(all, STR("on")) || str_eq(all, STR("off")) || str_eq(all, STR("auto")))
        o->mode = text[0] == 'a' ? MODE_AUTO : text[1] == 'n' ? MODE_ALL : MODE_OFF;
    else
        o->mode = MODE_SERVICES;
    while (o->mode == MODE_SERVICES && all.n) {
        size_t comma = str_find(all, ',');

        if (o->n_glob == GLOBS)
            return err_set(err, -E2BIG, "offcpu.enabled: more than %d services", GLOBS);
        TRY(glob_new(str_to(all, comma), &o->glob[o->n_glob], err));
        o->n_glob++;
        all = str_from(all, comma == SIZE_MAX ? all.n : comma + 1);
    }
    return 0;
}

int collector_off_open(struct collector *c, struct err *err)
{
    const struct agent_conf *conf = c->conf.conf;
    struct source_offcpu_opts so = {.cpu = source_cpu_bpf(c->cpu)};
    struct err own = {};

    c->off = xcalloc(1, sizeof *c->off);
    map_init(&c->off->tracked, 0);
    c->off->sink = (struct source_offcpu_sink){.left = on_left, .part = on_part, .ctx = c};
    TRY(mode_of(c, conf->offcpu, err));
    if (c->off->mode == MODE_OFF)
        return 0;
    so.all = c->off->mode == MODE_ALL;
    if (source_offcpu_open(&c->off->source, &so, &own) < 0) { /* all else goes on */
        collector_event(c, "state", "source=offcpu state=refused why=\"%.120s\"", own.msg);
        log_event(LOG_WARN, "offcpu", LOG_ERR(&own));
        return 0;
    }
    collector_off_limit(c);
    choose(c);
    return 0;
}

struct source_offcpu *collector_off_source(struct collector *c)
{
    return c->off ? c->off->source : NULL;
}

void collector_off_close(struct collector *c)
{
    if (!c->off)
        return;
    for (uint32_t i = 0; i < c->off->n_glob; i++)
        glob_free(c->off->glob[i]);
    source_offcpu_close(c->off->source);
    map_deinit(&c->off->tracked);
    free(c->off);
    c->off = NULL;
}

void collector_off_limit(struct collector *c)
{
    const struct agent_conf *conf = c->conf.conf;
    uint32_t level = c->restrain.off_level;
    uint64_t per_s = c->conf.capture ? CAPTURE_PER_S : conf->stacks_per_s;
    uint64_t block = (uint64_t)conf->min_block_ns;

    for (; level > LADDER; level--)
        block *= 2;
    source_offcpu_limit(c->off->source, (uint32_t)(per_s >> level), block);
}

int collector_off_poll(struct collector *c, struct err *err)
{
    return source_offcpu_poll(c->off->source, &c->off->sink, c->clocks.real_minus_mono, err);
}

void collector_off_window(struct collector *c, real_ns t1, bool last,
                          struct stackagg_off_account *ret)
{
    struct source_offcpu_account a = {};
    struct err err = {};

    *ret = (struct stackagg_off_account){.on = source_offcpu_is_on(c->off->source),
                                         .scoped = c->off->mode != MODE_ALL,
                                         .python = py_any(c->py),
                                         .types =
                                             c->conf.capture ? c->conf.capture->types : OFF_TYPES};
    if (source_offcpu_window(c->off->source, &c->off->sink, t1, c->clocks.real_minus_mono, last, &a,
                             &err) < 0)
        log_event(LOG_WARN, "offcpu", LOG_ERR(&err));
    ret->lost = a.lost;
    ret->lost_blocked = a.lost_blocked;
    ret->lost_queued = a.lost_queued;
    ret->bpf_ns = a.bpf_ns;
    if (!last && c->off->source)
        choose(c);
}

void collector_off_get_stats(const struct collector *c, struct collector_off_stats *ret)
{
    *ret = (struct collector_off_stats){.tracked = c->off->n_tracked,
                                        .unknown_wait_ns = c->off->unknown_wait_ns};
    source_offcpu_get_stats(c->off->source, &ret->source);
    ret->map_bytes = source_offcpu_map_bytes(c->off->source);
}
