// SPDX-License-Identifier: Apache-2.0
/*
 * What both ways share: following processes, unwinding, the account. A sample whose chain stops for
 * want of a table is held, with its copy of the stack, until the table is built: so a process's
 * first samples are whole, too, and the drain does not wait.
 */
#include "agent/source/source_user.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/source/source_user_private.h"
#include "base/arena.h"
#include "base/time.h"

#define HELD_MAX     1024 /* samples, 32 KiB each */
#define HELD_NS      (2 * NS_PER_S)
#define FINISH_NS    (10 * NS_PER_S)
#define STACK_BYTES  32768
#define STACK_MAX    65024 /* with header and registers a record stays below 64 KiB */
#define TURN_NS      (50 * NS_PER_MS)
#define MIN_STOPS_NS (20 * NS_PER_MS)

struct held {
    struct held *next;
    struct user_sample u;
    uint8_t stack[];
};

/* ---- samples --------------------------------------------------------------------------------- */

static void touch_tables(struct source_user *s, const struct sa_ev *ev)
{
    uint32_t last = 0;

    for (uint32_t i = 0; i < ev->nu; i += sa_words(ev->w[i])) {
        uint32_t bin = SA_W_BIN(ev->w[i]);

        if ((ev->w[i] & SA_W_TAG) != SA_W_NATIVE || bin == last)
            continue;
        tables_seen(unwind_native_tables(s->unwind), bin);
        last = bin;
    }
}

static void give(struct source_user *s, const struct user_sample *u, struct sa_ev *ev)
{
    real_ns t = {u->t + s->real_minus_mono};
    struct proc *p;

    if (t.v < s->t0.v) /* held over the window's edge */
        t = s->t0;
    ev->kind = 1;
    ev->tid = u->tid;
    ev->cpu = u->cpu;
    ev->t_ns = (uint64_t)u->t;
    ev->weight_ns = u->weight;
    memcpy(ev->comm, u->comm, sizeof ev->comm);
    touch_tables(s, ev);
    if (ev->stop == SA_S_NOMAP) {
        p = proc_find(s->procs, u->pid);
        if (p)
            proc_missed(s->procs, p, s->now);
    }
    if (s->tap)
        s->tap(s->tap_ctx, u, ev);
    s->got_n++;
    if (!s->sink->sample(s->sink->ctx, ev, t)) {
        s->filtered_ns += u->weight;
        return;
    }
    s->got_ns += u->weight;
    s->stats.samples++;
    s->stop[ev->stop & 15]++;
}

/* Does the chain stop at a binary whose table is being built, or is asked for now? */
static bool table_comes(struct source_user *s, const struct sa_ev *ev)
{
    uint64_t w = sa_last_native(ev);
    struct tables *t = unwind_native_tables(s->unwind);
    struct binary *b;

    if (ev->stop != SA_S_NOTABLE || (w & SA_W_TAG) != SA_W_NATIVE)
        return false;
    b = binary_by_id(SA_W_BIN(w));
    if (b)
        tables_want(t, b);
    (void)binary_unref(b);
    return b && tables_pending(t) > 0;
}

static void hold(struct source_user *s, const struct user_sample *u)
{
    struct held *h = xmalloc(sizeof *h + u->stack.n);

    h->next = NULL;
    h->u = *u;
    if (u->stack.n)
        memcpy(h->stack, u->stack.p, u->stack.n);
    h->u.stack.p = h->stack;
    h->u.stack.live = false;
    if (s->last_held)
        s->last_held->next = h;
    else
        s->held = h;
    s->last_held = h;
    s->n_held++;
}

struct sa_ev *user_unwind(struct source_user *s, const struct user_sample *u)
{
    struct stack_copy c = u->stack;
    struct unwind_memory mem = stack_copy_memory(&c);
    struct sa_ev *ev = unwind_native(s->unwind, u->pid, &u->regs, &mem);

    if (u->is_32) {
        ev->stop = SA_S_COMPAT32;
        ev->nu = ev->npy = 0;
    }
    return ev;
}

void user_sample(struct source_user *s, const struct user_sample *u, struct sa_ev *ev)
{
    s->ticks_ns += u->weight;
    if (s->n_held < HELD_MAX && table_comes(s, ev))
        hold(s, u);
    else
        give(s, u, ev);
}

/* Oldest first; all of them where last is set. */
static void give_held(struct source_user *s, bool last)
{
    struct held *h, *next, *all = s->held;

    s->held = s->last_held = NULL;
    s->n_held = 0;
    for (h = all; h; h = next) {
        struct sa_ev *ev = user_unwind(s, &h->u);

        next = h->next;
        h->next = NULL;
        if (!last && s->now - h->u.t < HELD_NS && table_comes(s, ev)) {
            if (s->last_held)
                s->last_held->next = h;
            else
                s->held = h;
            s->last_held = h;
            s->n_held++;
            continue;
        }
        give(s, &h->u, ev);
        free(h);
    }
}

/* ---- polls ----------------------------------------------------------------------------------- */

static void follow(struct source_user *s, struct proc *p)
{
    if (p->kthread)
        return;
    /* no room: its stacks say noproc */
    (void)tables_publish(unwind_native_tables(s->unwind), p, NULL);
    py_follow(s->py, p, s->now);
}

void user_publish(struct source_user *s)
{
    struct tables *t = unwind_native_tables(s->unwind);
    struct proc *p;
    uint32_t tgid;

    while ((p = proc_next_changed(s->procs)))
        follow(s, p);
    while (proc_next_gone(s->procs, &tgid)) {
        py_gone(s->py, tgid);
        tables_unpublish(t, tgid);
    }
}

int source_user_poll(struct source_user *s, const struct source_sink *sink, struct err *err)
{
    int r = 0;

    s->sink = sink;
    s->now = mono_now().v;
    proc_tick(s->procs, s->now);
    user_publish(s);
    tables_tick(unwind_native_tables(s->unwind));
    py_tick(s->py, s->now);
    if (s->kind == SOURCE_USER_PERF)
        r = user_perf_drain(s, err);
    else if (!s->finished)
        user_stops_turn(s);
    user_publish(s);
    give_held(s, false);
    return r;
}

int source_user_finish(struct source_user *s, const struct source_sink *sink, struct err *err)
{
    int64_t end = mono_now().v + FINISH_NS;
    int r;

    if (s->kind == SOURCE_USER_PERF)
        user_perf_end(s->perf);
    else
        user_stops_end(s->stops);
    s->finished = true;
    r = source_user_poll(s, sink, err);
    while (s->held && mono_now().v < end && unwind_native_settle(s->unwind, end - mono_now().v)) {
        uint32_t before = s->n_held;

        s->now = mono_now().v;
        give_held(s, false);
        if (s->n_held == before && tables_pending(unwind_native_tables(s->unwind)) == 0)
            break;
    }
    give_held(s, true);
    return r;
}

static void take_clock(struct source_user *s)
{
    struct clock_pair p = clock_pair_take(9);

    s->real_minus_mono = p.real.v - p.mono.v;
}

/*
 * Time that ticks did not see. A tick may be in a ring that was not read yet, at most one per CPU
 * since the drain: so much stays untold until the end, when the events stand and all is read.
 */
static void account_perf(struct source_user *s, struct source_account *a)
{
    uint64_t counter = user_perf_counter(s->perf);
    uint64_t seen = s->ticks_ns + s->stats.lost * s->period_ns + s->told_hidden;

    a->width = user_perf_width(s->perf);
    a->counter_ns = counter - s->told_counter;
    if (!s->finished)
        seen += a->width * s->period_ns;
    a->kernel_hidden = counter > seen ? counter - seen : 0;
    s->told_hidden += a->kernel_hidden;
    s->stats.counter_ns = counter;
    s->stats.hidden_ns = s->told_hidden;
}

/* Time of threads that have not been read yet may still come with a sample; at the end it does not.
 * A process that has ended has no clock left: what its threads used after it was read last is known
 * from theirs alone. */
static void account_stops(struct source_user *s, struct source_account *a)
{
    uint64_t seen = s->ticks_ns + s->told_hidden;

    user_stops_clocks(s);
    if (s->stats.counter_ns < s->used_ns)
        s->stats.counter_ns = s->used_ns;
    if (s->finished && s->stats.counter_ns < seen)
        s->stats.counter_ns = seen;
    a->counter_ns = s->stats.counter_ns - s->told_counter;
    if (!s->finished || s->stats.counter_ns == seen)
        return;
    a->missed.weight = (int64_t)(s->stats.counter_ns - seen);
    s->told_hidden += (uint64_t)a->missed.weight;
    s->stats.hidden_ns = s->told_hidden;
}

void source_user_command(struct source_user *s, uint64_t used_ns)
{
    assert(s->finished);
    if (s->kind == SOURCE_USER_STOPS)
        s->used_ns = used_ns;
}

void source_user_account(struct source_user *s, real_ns t1, struct source_account *ret)
{
    take_clock(s);
    *ret = (struct source_account){
        .covers = {s->t0, t1.v < s->t0.v ? s->t0 : t1},
        .width = (uint32_t)sysconf(_SC_NPROCESSORS_ONLN),
        .period = (int64_t)s->period_ns,
        .received = s->got_n,
        .busy_ns = s->got_ns + s->filtered_ns,
        .filtered_ns = s->filtered_ns,
        .weight_ns = s->got_ns,
        .ring_full = {s->lost_n, (int64_t)(s->lost_n * s->period_ns)},
        .missed = {s->turns_missed, 0},
        .pause_ns = s->pause_ns,
        .source = "user",
        .why = source_user_why(s),
        .scaled = s->kind == SOURCE_USER_STOPS,
        .identity_ok = true,
    };
    memcpy(ret->stop, s->stop, sizeof ret->stop);
    if (s->kind == SOURCE_USER_PERF)
        account_perf(s, ret);
    else
        account_stops(s, ret);
    s->told_counter = s->stats.counter_ns;
    memset(s->stop, 0, sizeof s->stop);
    s->got_n = s->got_ns = s->filtered_ns = s->lost_n = s->turns_missed = s->pause_ns = 0;
    s->t0 = ret->covers.t1;
    if (s->want_period)
        s->period_ns = s->want_period;
    s->want_period = 0;
}

/* ---- life ------------------------------------------------------------------------------------ */

static int open_kind(struct source_user *s, const struct source_user_opts *o, struct err *err)
{
    const struct tables_opts to = {.budget = o->table_budget};
    struct py_conf pc = {.proc = "/proc"};

    for (uint32_t i = 0; i < o->n_pid; i++) {
        TRY(threads_allowed("/proc", o->pid[i], err));
        if (!proc_find_at(s->procs, o->pid[i], s->now, s->now))
            return err_set(err, -ESRCH, "process %u ended", o->pid[i]);
    }
    if (s->kind == SOURCE_USER_STOPS)
        thread_stop_prepare();
    TRY(unwind_native_open(&s->unwind, &to, err));
    pc.tables = unwind_native_tables(s->unwind);
    s->py = py_new(&pc);
    /* all that are known: another source may have taken note of their changes before */
    for (struct proc *p = proc_next(s->procs, NULL); p; p = proc_next(s->procs, p))
        follow(s, p);
    return s->kind == SOURCE_USER_PERF ? user_perf_open(s, o, err) : user_stops_open(s, o, err);
}

int source_user_open(struct source_user **ret, enum source_user_kind kind,
                     const struct source_user_opts *o, struct err *err)
{
    struct source_user *s;
    int r;

    if (!o->n_pid || o->stack_bytes > STACK_MAX || o->stack_bytes % 8 || o->period_ns < NS_PER_MS ||
        o->period_ns > NS_PER_S)
        return err_set(err, -EINVAL, "no process, or a period or stack size out of range");
    s = xcalloc(1, sizeof *s);
    s->kind = kind;
    s->procs = o->procs;
    s->stack_bytes = o->stack_bytes ? o->stack_bytes : STACK_BYTES;
    s->period_ns = o->period_ns;
    s->tap = o->tap;
    s->tap_ctx = o->tap_ctx;
    if (kind == SOURCE_USER_STOPS && s->period_ns < MIN_STOPS_NS)
        s->period_ns = MIN_STOPS_NS;
    s->now = mono_now().v;
    s->t0 = real_now();
    take_clock(s);
    r = open_kind(s, o, err);
    if (r < 0) {
        (void)source_user_close(s);
        return r;
    }
    *ret = s;
    return 0;
}

struct source_user *source_user_close(struct source_user *s)
{
    struct held *next;

    if (!s)
        return NULL;
    user_perf_close(s->perf);
    user_stops_end(s->stops);
    user_stops_close(s->stops);
    for (struct held *h = s->held; h; h = next) {
        next = h->next;
        free(h);
    }
    (void)py_free(s->py);
    (void)unwind_native_close(s->unwind);
    free(s);
    return NULL;
}

int source_user_choose(struct source_user **ret, const struct source_user_opts *o, char *why,
                       size_t size, struct err *err)
{
    struct err e = {};
    int r = source_user_open(ret, SOURCE_USER_PERF, o, &e);
    size_t n;

    why[0] = '\0';
    if (r == 0)
        return 0;
    if (r == -ESRCH || r == -ENOTSUP || r == -EINVAL) /* no other way would help */
        return err_set(err, r, "%s", e.msg);
    (void)snprintf(why, size, "perf: %s\n", e.msg);
    e = (struct err){};
    r = source_user_open(ret, SOURCE_USER_STOPS, o, &e);
    if (r == 0)
        return 0;
    n = strlen(why);
    (void)snprintf(why + n, size - n, "ptrace: %s\n", e.msg);
    return err_set(err, r, "%s", e.msg);
}

enum source_user_kind source_user_kind(const struct source_user *s)
{
    return s->kind;
}

const char *source_user_why(const struct source_user *s)
{
    return s->kind == SOURCE_USER_PERF
               ? "user: no kernel stacks, time in kernel mode is lost as kernel_hidden"
               : "user: no kernel stacks; running threads are stopped for a moment to be read, "
                 "of processes that come and go between two stops only the time is told, as lost";
}

struct tables *source_user_tables(struct source_user *s)
{
    return unwind_native_tables(s->unwind);
}

struct py *source_user_python(struct source_user *s)
{
    return s->py;
}

int64_t source_user_turn_ns(const struct source_user *s)
{
    return s->kind == SOURCE_USER_PERF ? TURN_NS : (int64_t)s->period_ns;
}

void source_user_get_stats(const struct source_user *s, struct source_user_stats *ret)
{
    *ret = s->stats;
}

bool source_user_alive(const struct source_user *s)
{
    return proc_next(s->procs, NULL) != NULL;
}
