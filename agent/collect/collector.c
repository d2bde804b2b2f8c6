// SPDX-License-Identifier: Apache-2.0
/*
 * One turn of the loop: what processes did, by time, up to a millisecond ago; changed mappings into
 * the BPF maps; then the samples. When turns come: collector_wait.c.
 */
#include "agent/collect/collector.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "agent/apart/apart.h"
#include "agent/apart/reader.h"
#include "agent/collect/collector_private.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/time.h"

#define WINDOW_NS   NS_PER_S
#define SETTLED_NS  NS_PER_MS        /* younger records may still be overtaken by others */
#define LATE_NS     (10 * NS_PER_MS) /* a window closed so late still ends at the second */
#define FIRST_NS    (400 * NS_PER_MS)
#define PICTURE_NS  (150 * NS_PER_MS) /* from its first sample on */
#define JIT_TELL_NS (20 * NS_PER_S)
#define EACH_S_NS   (900 * NS_PER_MS) /* a turn may be early by what the one before was late */
#define PREPARE_NS  (300 * NS_PER_MS)
#define CUT_ROWS    (UINT32_C(1) << 18)
#define CUT_WORDS   (UINT64_C(6) << 20) /* about 8 MiB on the wire */

static void on_perfmap(void *ctx, const struct perfmap_event *e)
{
    struct collector *c = ctx;

    proc_event(c->procs, e);
}

/* While it lives, and now and then, for what is not asked for is forgotten. */
static void tell_jit(struct collector *c, struct proc *p)
{
    if (p->jit_told && c->now - p->jit_told < JIT_TELL_NS)
        return;
    p->jit_told = c->now;
    batcher_see_jit(
        c->conf.batcher,
        &(struct jits_target){.serial = p->serial, .host_pid = p->tgid, .pid = p->key.pid});
}

static bool on_sample(void *ctx, const struct sa_ev *ev, real_ns t)
{
    struct collector *c = ctx;
    struct proc *p = proc_find_at(c->procs, ev->tgid, (int64_t)ev->t_ns, c->now);

    struct pynames_frame py[SA_MAX_PY];
    bool anonymous;

    if (p && p->dropped)
        return false;
    if (p)
        proc_seen(c->procs, p, ev->cgroup_id);
    stackagg_since(c->fold, source_step_since(c->steps, p, (int64_t)ev->t_ns, t));
    stackagg_python(c->fold, (struct stackagg_pys){py, py_sample(c->py, p, ev, py)});
    anonymous = stackagg_add(c->fold, ev, t, p, c->conf.ids->host);
    c->stats.samples++;
    c->stats.weight += (int64_t)ev->weight_ns;
    c->stats.kstack_err += (ev->flags & SA_F_KSTACK_ERR) != 0;
    c->stats.fp_used += (ev->flags & SA_F_FP_USED) != 0;
    c->wanted |= collector_wants(ev);
    if (!p)
        return true;
    c->stats.sampled += p->profiled_ns == 0;
    p->profiled_ns += (int64_t)ev->weight_ns;
    if (anonymous)
        tell_jit(c, p);
    if (ev->stop == SA_S_NOMAP)
        proc_missed(c->procs, p, c->now);
    return true;
}

/* Of a process that rules leave out the programs need to know no more than that. */
static int publish_one(struct tables *t, const struct proc *p, struct err *err)
{
    if (p->dropped)
        return tables_exclude(t, p->tgid, true, err);
    if (p->kthread)
        return 0;
    TRY(tables_publish(t, p, err));
    return tables_exclude(t, p->tgid, false, err);
}

/* What its files are; those that nobody knows yet are asked for, and then it comes here again. */
static void follow_files(struct collector *c, struct proc *p)
{
    uint64_t waits = facts_waits(c->facts);

    source_step_follow(c->steps, p);
    py_follow(c->py, p, c->now);
    if (facts_waits(c->facts) != waits)
        facts_remember(c->facts, p->tgid);
}

static void publish(struct collector *c)
{
    struct tables *t = source_cpu_tables(c->cpu);
    struct err err = {};
    struct proc *p;
    uint32_t tgid;

    while ((p = proc_next_changed(c->procs))) {
        err = (struct err){};
        if (c->conf.capture && !source_cpu_watches(c->cpu, p->tgid))
            continue;
        if (publish_one(t, p, &err) < 0)
            log_event(LOG_WARN, "publish", LOG_U("pid", p->tgid), LOG_ERR(&err));
        follow_files(c, p);
    }
    while (proc_next_gone(c->procs, &tgid)) {
        tables_unpublish(t, tgid);
        py_gone(c->py, tgid);
        p = proc_find(c->procs, tgid);
        if (c->conf.capture && (!p || p->dead)) /* its number may be given to a stranger */
            (void)source_cpu_watch(c->cpu, tgid, false, NULL);
    }
}

/* What processes did, up to a millisecond ago, into the maps. */
void collector_follow(struct collector *c)
{
    uint32_t tgid;

    c->now = mono_now().v;
    c->followed = c->now;
    c->left = perfmap_drain(c->perfmap, c->now - SETTLED_NS, on_perfmap, c);
    proc_tick(c->procs, c->now);
    publish(c);
    while (facts_again(c->facts, &tgid)) {
        struct proc *p = proc_find(c->procs, tgid);

        if (p && !p->dead && (!c->conf.capture || source_cpu_watches(c->cpu, tgid)))
            follow_files(c, p);
    }
    py_tick(c->py, c->now);
    tables_tick(source_cpu_tables(c->cpu));
}

static int drain(struct collector *c, struct err *err)
{
    c->now = mono_now().v;
    if (c->now - c->polled_cpus >= EACH_S_NS) {
        c->polled_cpus = c->now;
        perfmap_poll_cpus(c->perfmap);
        TRY(apart_check(err));
        binary_sweep(c->now);
    }
    collector_follow(c);
    source_step_poll(c->steps, c->procs, c->fold, c->now, c->clocks.real_minus_mono);
    TRY(collector_off_poll(c, err));
    TRY(source_cpu_poll(c->cpu, &c->sink, err));
    collector_wait_drained(c);
    return 0;
}

/* ---- windows and batches ------------------------------------------------------------------- */

static void count(struct collector *c, const struct stackagg_window *w)
{
    const struct source_account *a = &w->account;
    struct collector_stats *s = &c->stats;

    s->windows++;
    s->busy += (int64_t)a->busy_ns;
    s->idle += (int64_t)a->idle_ns;
    s->filtered += a->filtered_ns;
    s->jitter += a->jitter;
    s->received += a->received;
    s->missed.n += a->missed.n;
    s->missed.weight += a->missed.weight;
    s->missed_idle.n += a->missed_idle.n;
    s->missed_idle.weight += a->missed_idle.weight;
    s->ring_full.n += a->ring_full.n;
    s->ring_full.weight += a->ring_full.weight;
    s->bpf_ns += a->bpf_ns;
    s->table_full += w->table_full;
    for (unsigned i = 0; i < 16; i++)
        s->stop[i] += a->stop[i];
    if (!a->identity_ok || (uint64_t)stackagg_weight(w) != a->weight_ns) {
        s->identity_violations++;
        log_event(LOG_ERROR, "identity", LOG_C("text", a->identity_text),
                  LOG_I("rows_ns", stackagg_weight(w)), LOG_U("received_ns", a->weight_ns));
    }
}

/* Times on both sides of a step of the wall clock are of different clocks; a suspend is a gap, for
 * the window began when the machine woke. Both end the batch. */
static void watch_clock(struct collector *c)
{
    struct clock_change by = clock_watch_look(&c->clocks);

    if (by.step_ns) {
        c->stats.clock_steps++;
        c->stepped = true;
        collector_event(c, "clock_step", "by_ns=%lld", (long long)by.step_ns);
        log_event(LOG_WARN, "clock_step", LOG_I("by_ns", by.step_ns));
    }
    if (by.suspended_ns > 0) {
        c->stats.suspends++;
        c->stepped = true;
        collector_event(c, "suspend", "dur_ns=%lld", (long long)by.suspended_ns);
        log_event(LOG_INFO, "suspend", LOG_I("dur_ns", by.suspended_ns));
    }
}

static void close_window(struct collector *c)
{
    struct source_account a;
    struct stackagg_off_account off;
    struct stackagg_window *w;
    real_ns now = clock_real(), t1 = now;
    int64_t late = now.v - c->next_window.v;

    if (late >= 0 && late < LATE_NS)
        t1 = c->next_window;
    source_cpu_account(c->cpu, t1, &a);
    collector_off_window(c, a.covers.t1, c->stopping, &off);
    w = stackagg_take(c->fold, &a);
    w->off = off;
    w->gil.on = py_any(c->py) && (c->conf.capture ? c->conf.capture->types >> PTYPE_GIL_HELD & 1
                                                  : c->conf.conf->gil);
    count(c, w);
    collector_care(c, &a, &off);
    watch_clock(c);
    c->next_window.v = now.v - now.v % WINDOW_NS + WINDOW_NS;
    if (c->n_window == COLLECTOR_MAX_WINDOWS) { /* the cut below keeps it far from that */
        stackagg_window_free(c->window[0]);
        memmove(c->window, c->window + 1, --c->n_window * sizeof(void *));
    }
    c->window[c->n_window++] = w;
    c->words += w->n_word;
}

static int64_t phase(const struct collector *c)
{
    if (c->conf.loopback)
        return 0;
    return (int64_t)(hash_bytes(c->conf.ids->agent, 16) % (uint64_t)c->conf.interval_ns);
}

/* Of a capture: somebody waits for its first picture. */
static bool picture_due(const struct collector *c)
{
    return c->conf.capture && !c->first_sent && c->first_sample &&
           c->now - c->first_sample >= PICTURE_NS;
}

static bool cut_due(const struct collector *c)
{
    const struct stackagg_window *last;
    uint64_t rows = 0;
    int64_t s, interval;

    if (c->n_window == 0)
        return false;
    if (c->stopping || c->stepped || c->cut_now || c->n_window >= COLLECTOR_MAX_WINDOWS - 2)
        return true;
    for (uint32_t i = 0; i < c->n_window; i++)
        rows += c->window[i]->n_row;
    if (rows >= CUT_ROWS || c->words >= CUT_WORDS)
        return true;
    last = c->window[c->n_window - 1];
    if (!c->first_sent) /* soon, so that there is something to see */
        return c->now - c->started >= FIRST_NS || picture_due(c);
    /* the first window that ends at or behind a multiple of the interval, moved by the phase */
    interval = c->interval_ns / WINDOW_NS;
    s = last->account.covers.t1.v / WINDOW_NS - phase(c) / WINDOW_NS;
    return s / interval !=
           (c->window[0]->account.covers.t0.v / WINDOW_NS - phase(c) / WINDOW_NS) / interval;
}

static void cut(struct collector *c)
{
    struct clock_pair p = clock_pair_now();
    struct batcher_job j = {.n_window = c->n_window,
                            .n_event = c->n_event,
                            .clock = {.sent = p.real,
                                      .mono = p.mono,
                                      .real = p.real,
                                      .err_ns = p.err_ns,
                                      .stepped = c->stepped}};
    bool now = !c->first_sent || c->stopping;

    j.window = xcalloc(c->n_window, sizeof(void *));
    memcpy(j.window, c->window, c->n_window * sizeof(void *));
    j.event = xcalloc(c->n_event ? c->n_event : 1, sizeof *j.event);
    memcpy(j.event, c->event, c->n_event * sizeof *j.event);
    if (!c->conf.capture)
        j.metric = collector_metrics(c, c->window[c->n_window - 1]->account.covers.t1, &j.n_metric);
    j.not_before =
        now ? 0 : c->now + (c->conf.loopback ? 0 : c->conf.interval_ns / 10 + phase(c) % WINDOW_NS);
    batcher_put(c->conf.batcher, &j);
    c->n_window = c->n_event = 0;
    c->words = 0;
    c->first_sent = true;
    c->stepped = c->cut_now = false;
    c->stats.batches++;
}

/* ---- the loop ------------------------------------------------------------------------------ */

static int turn(struct collector *c, struct err *err)
{
    TRY(drain(c, err));
    if (!c->first_sample && c->stats.samples)
        c->first_sample = c->now;
    if (clock_real().v >= c->next_window.v || c->stopping || picture_due(c) ||
        stackagg_words(c->fold) > STACKAGG_WORDS / 2) {
        close_window(c);
        if (cut_due(c))
            cut(c);
        collector_write_status(c, c->stopping ? "stopping" : "running");
    } else if (c->next_window.v - clock_real().v > 2 * WINDOW_NS) {
        close_window(c); /* the wall clock was set back */
    }
    return 0;
}

int collector_run(struct collector *c, struct err *err)
{
    while (!c->stopping) {
        TRY(collector_wait(c, err));
        if (c->conf.capture && !c->conf.capture->turn(c->conf.capture->ctx))
            c->stopping = true;
        TRY(turn(c, err));
    }
    return 0;
}

static enum procread_cmdline cmdline_mode(const char *s)
{
    if (strcmp(s, "exe") == 0)
        return PROCREAD_CMDLINE_EXE;
    return strcmp(s, "off") == 0 ? PROCREAD_CMDLINE_OFF : PROCREAD_CMDLINE_MASKED;
}

/* Without it everything else goes on. */
static void open_steps(struct collector *c)
{
    struct err err = {};

    if (c->conf.conf->steps && source_step_open(&c->steps, c->facts, &err) < 0) {
        collector_event(c, "state", "source=steps state=refused why=\"%.120s\"", err.msg);
        log_event(LOG_WARN, "steps", LOG_ERR(&err));
    }
}

static void say_python(void *ctx, const char *kind, const char *text)
{
    collector_event(ctx, kind, "%s", text);
}

static int open_parts(struct collector *c, struct err *err)
{
    const struct agent_conf *conf = c->conf.conf;
    const char *dir = c->conf.ids->dir_ok ? c->conf.state_dir : NULL;
    struct proc_conf pc = {.proc = "/proc",
                           .boot = procread_boot_time("/proc", dir, NULL),
                           .tick_ns = NS_PER_S / sysconf(_SC_CLK_TCK),
                           .cmdline = cmdline_mode(conf->cmdline),
                           .rules = conf->rules,
                           .want = &conf->want};
    struct source_cpu_opts so = {.period_ns = (uint64_t)conf->period_ns,
                                 .table_budget = conf->table_budget,
                                 .no_fallback_fp = !conf->fallback_fp,
                                 .no_bpf_loop = c->conf.no_bpf_loop,
                                 .ring_bytes = (uint32_t)conf->ring_bytes,
                                 .watch = c->conf.capture ? c->conf.capture->watch : BPF_LOAD_ALL};

    memcpy(pc.host, c->conf.ids->host, sizeof pc.host);
    TRY(collector_wait_open(c, err));
    if (reader_is_apart())
        TRY(facts_start(&c->facts, err));
    TRY(perfmap_open(&c->perfmap, err));
    TRY(collector_wait_processes(c, err));
    c->procs = proc_new(&pc);
    proc_scan(c->procs, mono_now().v);
    TRY(source_cpu_open(&c->cpu, &so, err));
    open_steps(c);
    if (conf->python)
        c->py = py_new(&(struct py_conf){.proc = "/proc",
                                         .tables = source_cpu_tables(c->cpu),
                                         .facts = c->facts,
                                         .say = say_python,
                                         .ctx = c});
    publish(c);
    TRY(collector_off_open(c, err));
    return collector_wait_rings(c, err);
}

int collector_open(struct collector **ret, const struct collector_conf *conf, struct err *err)
{
    struct collector *c = xcalloc(1, sizeof *c);
    int r;

    c->conf = *conf;
    c->epoll = c->quiet = c->signals = -1;
    c->sink = (struct source_sink){.sample = on_sample, .ctx = c};
    c->fold = stackagg_new();
    if (conf->capture)
        stackagg_keep_times(c->fold);
    c->now = c->started = mono_now().v;
    clock_watch_begin(&c->clocks);
    r = open_parts(c, err);
    if (r < 0) {
        collector_close(c);
        return r;
    }
    c->started = mono_now().v;
    c->next_window.v = clock_real().v / WINDOW_NS * WINDOW_NS + WINDOW_NS;
    collector_care_open(c);
    collector_event(c, "state", "source=cpu state=ok");
    collector_tell_check(c);
    *ret = c;
    return 0;
}

struct collector *collector_close(struct collector *c)
{
    if (!c)
        return NULL;
    for (uint32_t i = 0; i < c->n_window; i++)
        stackagg_window_free(c->window[i]);
    source_step_close(c->steps);
    collector_off_close(c);
    py_free(c->py);
    facts_stop(c->facts);
    source_cpu_close(c->cpu);
    perfmap_close(c->perfmap);
    proc_free(c->procs);
    stackagg_free(c->fold);
    crosscheck_free(c->cross);
    collector_wait_close(c);
    free(c);
    return NULL;
}

void collector_prepare(struct collector *c, const char *exe)
{
    struct tables *t = source_cpu_tables(c->cpu);
    const struct timespec pause = {.tv_nsec = 2 * NS_PER_MS};
    struct proc *self = proc_find(c->procs, (uint32_t)getpid()); /* it maps loader and libc, too */
    int fd = exe ? open(exe, O_RDONLY | O_CLOEXEC | O_NOCTTY) : -1;
    int64_t until = mono_now().v + PREPARE_NS;
    struct binary *b;

    if (self)
        (void)tables_publish(t, self, NULL);
    if (fd >= 0 && binary_open(fd, str_c(exe), false, &b, NULL) == 0) {
        tables_want(t, b);
        (void)binary_unref(b);
    }
    do {
        nanosleep(&pause, NULL);
        tables_tick(t);
    } while (tables_pending(t) && mono_now().v < until);
}

int collector_watch(struct collector *c, uint32_t tgid, bool on, struct err *err)
{
    struct proc *p = proc_find(c->procs, tgid);

    TRY(source_cpu_watch(c->cpu, tgid, on, err));
    if (on && p && !p->kthread) /* it was passed over while nobody watched it */
        TRY(tables_publish(source_cpu_tables(c->cpu), p, err));
    if (on && p)
        py_follow(c->py, p, mono_now().v);
    return 0;
}

int collector_set_period(struct collector *c, uint64_t period_ns, struct err *err)
{
    TRY(drain(c, err));
    close_window(c);
    cut(c);
    return source_cpu_set_period(c->cpu, period_ns, err);
}

uint64_t collector_watch_full(const struct collector *c)
{
    return source_cpu_watch_full(c->cpu);
}

struct proc_table *collector_procs(struct collector *c)
{
    return c->procs;
}

void collector_get_stats(const struct collector *c, struct collector_stats *ret)
{
    *ret = c->stats;
}
