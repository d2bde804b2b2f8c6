// SPDX-License-Identifier: Apache-2.0
/*
 * A capture without rights: source_user.h in place of the collector. It follows its processes by
 * itself, so a turn is a poll; each full second a window becomes a batch. It begins with perf where
 * that is allowed; once a process shows to be a Python, stops follow, which see its frames.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "agent/cmd/record_private.h"
#include "agent/source/source_user.h"
#include "base/arena.h"

#define WINDOW_NS      NS_PER_S
#define FIRST_NS       (400 * NS_PER_MS)
#define PERF_RATE      99 /* a tick copies 32 KiB of stack */
#define PERF_RATE_MAX  1000
#define STOPS_RATE     49
#define STOPS_RATE_MAX 50

struct record_user {
    struct record_take take;
    struct proc_table *procs;
    struct source_user *src;
    struct stackagg *fold;
    struct collector_stats stats;
    int64_t window;   /* CLOCK_MONOTONIC: when it is closed */
    uint64_t counted; /* ns of a source that another one followed */
    bool stay;        /* the other way was tried, or is in use */
    bool changed;     /* from perf to stops */
    struct pynames_frame py[SA_MAX_PY];
};

static bool on_sample(void *ctx, const struct sa_ev *ev, real_ns t)
{
    struct record_user *u = ctx;
    struct proc *p = proc_find_at(u->procs, ev->tgid, (int64_t)ev->t_ns, mono_now().v);
    uint32_t n_py = py_sample(source_user_python(u->src), p, ev, u->py);

    stackagg_python(u->fold, (struct stackagg_pys){u->py, n_py});
    stackagg_add(u->fold, ev, t, p, u->take.ids->host);
    u->stats.samples++;
    u->stats.weight += (int64_t)ev->weight_ns;
    u->stats.stop[ev->stop & 15]++;
    if (p) {
        u->stats.sampled += p->profiled_ns == 0;
        p->profiled_ns += (int64_t)ev->weight_ns;
    }
    return true;
}

static void close_window(struct record_user *u)
{
    struct clock_pair c = clock_pair_take(9);
    struct batcher_job j = {
        .n_window = 1,
        .clock = {.sent = c.real, .mono = c.mono, .real = c.real, .err_ns = c.err_ns}};
    struct source_account a;

    source_user_account(u->src, c.real, &a);
    u->stats.windows++;
    u->stats.missed.n += a.missed.n;
    u->stats.missed.weight += a.missed.weight;
    u->stats.ring_full.n += a.ring_full.n;
    u->stats.ring_full.weight += a.ring_full.weight;
    u->stats.hidden += (int64_t)a.kernel_hidden;
    u->stats.paused += (int64_t)a.pause_ns;
    j.window = xcalloc(1, sizeof(void *));
    j.window[0] = stackagg_take(u->fold, &a);
    j.event = xcalloc(1, sizeof *j.event);
    batcher_put(u->take.batcher, &j);
    u->window = c.mono.v + WINDOW_NS;
}

static uint64_t rate_of(const struct record_take *t, enum source_user_kind kind)
{
    uint64_t most = kind == SOURCE_USER_PERF ? PERF_RATE_MAX : STOPS_RATE_MAX;
    uint64_t usual = kind == SOURCE_USER_PERF ? PERF_RATE : STOPS_RATE;

    if (!t->rate_given)
        return usual;
    return t->rate < most ? t->rate : most;
}

static int open_kind(struct record_user *u, enum source_user_kind kind, const char *name, char *why,
                     size_t size, struct err *err)
{
    const struct source_user_opts o = {.period_ns = (uint64_t)NS_PER_S / rate_of(&u->take, kind),
                                       .pid = u->take.pid,
                                       .n_pid = u->take.n_pid,
                                       .on_exec = u->take.on_exec,
                                       .procs = u->procs,
                                       .table_budget = u->take.conf->table_budget};
    size_t n = strlen(why);
    int r;

    *err = (struct err){};
    r = source_user_open(&u->src, kind, &o, err);
    if (r < 0)
        (void)snprintf(why + n, size - n, "%-24s %-11s %s\n", name, "impossible", err->msg);
    return r;
}

int record_user_open(struct record_user **ret, const struct record_take *take, char *why,
                     size_t size, struct err *err)
{
    struct record_user *u = xcalloc(1, sizeof *u);
    struct proc_conf pc = {.proc = "/proc",
                           .boot = procread_boot_time("/proc", NULL, NULL),
                           .tick_ns = NS_PER_S / sysconf(_SC_CLK_TCK),
                           .want = &take->conf->want};
    int r;

    memcpy(pc.host, take->ids->host, sizeof pc.host);
    u->take = *take;
    u->procs = proc_new(&pc);
    r = open_kind(u, SOURCE_USER_PERF, "user: perf", why, size, err);
    if (r < 0)
        r = open_kind(u, SOURCE_USER_STOPS, "user: ptrace", why, size, err);
    if (r < 0) {
        record_user_close(u);
        return r;
    }
    u->fold = stackagg_new();
    stackagg_keep_times(u->fold);
    u->window = mono_now().v + FIRST_NS;
    *ret = u;
    return 0;
}

struct record_user *record_user_close(struct record_user *u)
{
    if (!u)
        return NULL;
    (void)source_user_close(u->src);
    (void)proc_free(u->procs);
    stackagg_free(u->fold);
    free(u);
    return NULL;
}

uint64_t record_user_rate(const struct record_user *u)
{
    return rate_of(&u->take, source_user_kind(u->src));
}

const char *record_user_why(const struct record_user *u)
{
    return u->changed
               ? "user: no kernel stacks; a Python: after its first moments, taken by perf, "
                 "running threads are stopped for a moment to be read, of processes that come "
                 "and go between two stops only the time is told, as lost"
               : source_user_why(u->src);
}

struct proc_table *record_user_procs(struct record_user *u)
{
    return u->procs;
}

void record_user_get_stats(const struct record_user *u, struct collector_stats *ret)
{
    *ret = u->stats;
}

/* The processes that are followed now, for another source. */
static uint32_t *pids_now(const struct record_user *u, uint32_t *ret_n)
{
    uint32_t *pid = NULL, n = 0;

    for (struct proc *p = proc_next(u->procs, NULL); p; p = proc_next(u->procs, p)) {
        if (p->dead)
            continue;
        pid = xrealloc(pid, (n + 1) * sizeof *pid);
        pid[n++] = p->tgid;
    }
    *ret_n = n;
    return pid;
}

/* From perf to stops, for a Python; the window ends with perf. Where stops are refused, or nobody
 * is alive any more, perf goes on. */
static int change_to_stops(struct record_user *u, const struct source_sink *sink, struct err *err)
{
    struct source_user_opts o = {.period_ns =
                                     (uint64_t)NS_PER_S / rate_of(&u->take, SOURCE_USER_STOPS),
                                 .procs = u->procs,
                                 .table_budget = u->take.conf->table_budget};
    struct source_user *stops = NULL;
    struct source_user_stats st;
    uint32_t *pid = pids_now(u, &o.n_pid);
    struct err why = {};
    int r = 0;

    o.pid = pid;
    u->stay = true;
    if (o.n_pid && source_user_open(&stops, SOURCE_USER_STOPS, &o, &why) == 0) {
        r = source_user_finish(u->src, sink, err);
        close_window(u);
        source_user_get_stats(u->src, &st);
        u->counted = st.counter_ns;
        u->src = source_user_close(u->src);
        u->src = stops;
        u->changed = true;
    }
    free(pid);
    return r;
}

int record_user_run(struct record_user *u, struct err *err)
{
    const struct source_sink sink = {on_sample, u};
    int64_t turn = source_user_turn_ns(u->src), next = mono_now().v, used;

    u->stay = source_user_kind(u->src) == SOURCE_USER_STOPS;
    while (u->take.turn(u->take.ctx)) {
        struct timespec nap;

        TRY(source_user_poll(u->src, &sink, err));
        if (!u->stay && py_any(source_user_python(u->src))) {
            TRY(change_to_stops(u, &sink, err));
            turn = source_user_turn_ns(u->src);
        }
        if (mono_now().v >= u->window)
            close_window(u);
        next = next + turn < mono_now().v ? mono_now().v : next + turn;
        nap = (struct timespec){.tv_sec = next / NS_PER_S, .tv_nsec = next % NS_PER_S};
        (void)clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &nap, NULL);
    }
    TRY(source_user_finish(u->src, &sink, err));
    used = u->take.used ? u->take.used(u->take.ctx) : 0;
    if (used > (int64_t)u->counted)
        source_user_command(u->src, (uint64_t)used - u->counted);
    close_window(u);
    return 0;
}
