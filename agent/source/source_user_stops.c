// SPDX-License-Identifier: Apache-2.0
/*
 * Samples by stopping: once a period the threads that run, and only those, are stopped (ptrace),
 * read and let go. A sample's weight is the CPU time that its thread used since it was last read,
 * by the kernel's count, which is exact while it stands: so the weights add up to the process's CPU
 * time, and waiting for a CPU is not in them. Blocked ones are left alone: an interrupt would end
 * some system calls with EINTR. A thread that blocks between our look at its state and the
 * interrupt, some microseconds, can still be hit. Between two turns nothing is traced, so signals
 * and job control are as ever.
 *
 * Nobody tells of new processes and mappings here: children are looked for, an exec is seen by the
 * stack's new place, and a chain that meets unknown memory has the mappings read again.
 */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <time.h>
#include <unistd.h>

#include "agent/file/procfile.h"
#include "agent/source/source_user_private.h"
#include "base/arena.h"
#include "base/map.h"
#include "base/time.h"

#define NAP_NS      20000
#define NAPS_SHORT  50 /* then longer ones */
#define LONG_NAP_NS 200000
#define WAIT_NS     NS_PER_S /* for a stopped thread to get a CPU */
#define END_NS      (10 * NS_PER_S)
#define CHILDREN_NS (100 * NS_PER_MS)
#define SLACK_NS    1000
#define PAUSE_SHARE 100 /* 1 / 100 of the time that threads run */
#define JUDGE_N     50  /* samples, before the pauses are judged */
#define MAX_PERIOD  NS_PER_S

struct asked {
    uint32_t pid, tid;
    uint64_t start_ticks; /* of the thread: numbers come back */
    int64_t not_yet;      /* last seen not to be stopped */
    char comm[16];
    bool own; /* a child of ours: its end is waited for by others */
    bool done;
};

struct known {            /* of one process */
    uint64_t stack_start; /* moves with an exec */
    uint64_t clock_ns;    /* its CPU clock, last read */
};

struct user_stops {
    struct map known; /* serial of a process -> struct known * */
    struct map exec;  /* exec_key() of a thread -> its CPU time when it was last read, ns */
    struct asked *asked;
    uint32_t n_asked, room;
    int64_t next, children_at;
    uint64_t judged_n, judged_pause;
    uint8_t stack[STACK_COPY_MAX];
};

static struct known *known_of(struct user_stops *p, uint64_t serial)
{
    uint64_t *slot;
    struct known *k;

    if (map_at(&p->known, serial, &slot) == MAP_ADDED)
        *slot = (uint64_t)(uintptr_t)xcalloc(1, sizeof *k);
    return (struct known *)(uintptr_t)*slot; // NOLINT(performance-no-int-to-ptr): a map value
}

static uint64_t exec_key(uint32_t tid, uint64_t start_ticks)
{
    return (uint64_t)tid << 40 ^ start_ticks;
}

/* 0: it is gone. */
static uint64_t process_clock(uint32_t pid)
{
    int64_t ns = process_cpu_ns((pid_t)pid);

    return ns < 0 ? 0 : (uint64_t)ns;
}

/* ---- opening --------------------------------------------------------------------------------- */

/* What it used before is not ours. */
static void begin_process(struct source_user *s, uint32_t pid)
{
    const struct proc *p = proc_find_at(s->procs, pid, s->now, s->now);
    struct thread_look l;
    uint32_t *tid = NULL;
    int n = p ? threads_list("/proc", pid, &tid) : 0;

    if (p)
        known_of(s->stops, p->serial)->clock_ns = process_clock(pid);
    for (int i = 0; i < n; i++)
        if (thread_look("/proc", pid, tid[i], &l) == 0)
            (void)map_put(&s->stops->exec, exec_key(tid[i], l.start_ticks), l.sched.exec_ns);
    free(tid);
}

int user_stops_open(struct source_user *s, const struct source_user_opts *o, struct err *err)
{
    struct user_stops *p;

    /* of nobody that we trace: ESRCH, unless the call itself is refused */
    if (ptrace(PTRACE_DETACH, getpid(), NULL, NULL) < 0 && errno != ESRCH)
        return err_set(err, -errno,
                       "ptrace: %s: a seccomp filter (as containers have) or a security module "
                       "forbids the call",
                       strerrordesc_np(errno));
    (void)prctl(PR_SET_TIMERSLACK, SLACK_NS); /* naps while a thread stands are short */
    p = s->stops = xcalloc(1, sizeof *p);
    map_init(&p->known, 0);
    map_init(&p->exec, 0);
    p->next = s->now;
    for (uint32_t i = 0; i < o->n_pid; i++)
        begin_process(s, o->pid[i]);
    return 0;
}

void user_stops_close(struct user_stops *p)
{
    uint32_t pos = 0;
    uint64_t key, v;

    if (!p)
        return;
    while (map_next(&p->known, &pos, &key, &v))
        free((void *)(uintptr_t)v); // NOLINT(performance-no-int-to-ptr): a map value
    map_deinit(&p->known);
    map_deinit(&p->exec);
    free(p->asked);
    free(p);
}

/* ---- which threads --------------------------------------------------------------------------- */

/* Fields 3 (state), 4 (parent), 28 (start of the stack) of /proc/PID/stat. */
static bool stat_fields(uint32_t pid, char *ret_state, uint64_t *ret_parent, uint64_t *ret_stack)
{
    char dir[64];
    const char *at;
    struct buf b;
    bool ok = false;

    (void)snprintf(dir, sizeof dir, "/proc/%u", pid);
    buf_init(&b, 65536);
    if (procfile_read(dir, "stat", &b, NULL) == 0) {
        buf_chr(&b, '\0');
        at = strrchr(b.p, ')');
        // NOLINTNEXTLINE(cert-err34-c): the kernel's numbers
        ok = at && sscanf(at,
                          ") %c %" SCNu64 " %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d "
                          "%*d %*d %*d %*d %*u %*u %*d %*u %*u %*u %" SCNu64,
                          ret_state, ret_parent, ret_stack) == 3;
    }
    buf_deinit(&b);
    return ok;
}

/* Children of a thread become known, where the kernel lists them (CONFIG_PROC_CHILDREN). */
static void see_children(struct source_user *s, uint32_t pid, uint32_t tid)
{
    char dir[64];
    struct str list, word;
    struct buf b;
    uint64_t child;
    bool cut;

    (void)snprintf(dir, sizeof dir, "/proc/%u/task/%u", pid, tid);
    buf_init(&b, 65536);
    if (procfile_read_some(dir, "children", &b, &cut, NULL) == 0) {
        for (list = buf_view(&b); list.n; list = str_from(list, word.n + 1)) {
            word = str_to(list, str_find(list, ' '));
            if (str_u64(word, &child) && child <= INT32_MAX &&
                !proc_find(s->procs, (uint32_t)child))
                (void)proc_find_at(s->procs, (uint32_t)child, s->now, s->now);
        }
    }
    buf_deinit(&b);
}

/* Children of known processes become known: those, too, whose parent has ended meanwhile. */
static void find_children(struct source_user *s)
{
    DIR *d = opendir("/proc");
    const struct dirent *de;

    // NOLINTNEXTLINE(concurrency-mt-unsafe): a directory stream of our own
    while (d && (de = readdir(d))) {
        uint64_t pid, parent, stack;
        char state;

        if (!str_u64(str_c(de->d_name), &pid) || pid > INT32_MAX ||
            proc_find(s->procs, (uint32_t)pid) ||
            !stat_fields((uint32_t)pid, &state, &parent, &stack) || state == 'Z')
            continue;
        if (parent && parent <= INT32_MAX && proc_find(s->procs, (uint32_t)parent))
            (void)proc_find_at(s->procs, (uint32_t)pid, s->now, s->now);
    }
    if (d)
        (void)closedir(d);
}

static void ask(struct source_user *s, const struct proc *p, uint32_t tid,
                const struct thread_look *l, bool own)
{
    struct user_stops *us = s->stops;
    struct asked *a;

    if (us->n_asked == us->room) {
        us->room = us->room ? 2 * us->room : 16;
        us->asked = xrealloc(us->asked, us->room * sizeof *us->asked);
    }
    a = &us->asked[us->n_asked];
    *a = (struct asked){
        .pid = p->tgid, .tid = tid, .start_ticks = l->start_ticks, .own = own && tid == p->tgid};
    memcpy(a->comm, l->comm, sizeof a->comm);
    a->not_yet = mono_now().v;
    if (thread_stop(tid) == 0)
        us->n_asked++;
}

static void ask_process(struct source_user *s, struct proc *p)
{
    struct known *k = known_of(s->stops, p->serial);
    uint64_t parent = 0, stack = 0;
    char state = 'X';
    uint32_t *tid = NULL;
    int n;

    if (!stat_fields(p->tgid, &state, &parent, &stack) || state == 'Z') {
        /* the leader's end; the table looks whether other threads live */
        proc_event(s->procs,
                   &(struct perfmap_event){
                       .kind = PERFMAP_EXIT, .t = s->now, .pid = p->tgid, .tid = p->tgid});
        user_stops_clocks(s);
        if (state != 'Z')
            return;
    }
    if (k->stack_start && stack != k->stack_start)
        proc_reread(s->procs, p, s->now);
    k->stack_start = stack;
    n = threads_list("/proc", p->tgid, &tid);
    for (int i = 0; i < n; i++) {
        struct thread_look l;

        see_children(s, p->tgid, tid[i]);
        if (thread_look("/proc", p->tgid, tid[i], &l) == 0 && l.state == 'R')
            ask(s, p, tid[i], &l, parent == (uint64_t)getpid());
    }
    free(tid);
}

/* ---- one stop -------------------------------------------------------------------------------- */

/* CPU time that this thread used since it was last read: exact, because it stands. */
static uint64_t used(struct user_stops *us, const struct asked *a, uint64_t exec_ns)
{
    uint64_t *slot, last;

    (void)map_at(&us->exec, exec_key(a->tid, a->start_ticks), &slot); /* new: since its birth */
    last = *slot;
    *slot = exec_ns;
    return exec_ns >= last ? exec_ns - last : 0; /* less: it could not be read */
}

/* It stands: registers were read, now clock and stack, and it goes on. The chain of a thread of
 * Python is made before it does, and returned; else NULL: the copy is enough. */
static struct sa_ev *read_one(struct source_user *s, const struct asked *a, struct user_sample *u,
                              int sig)
{
    const struct proc *p = proc_find(s->procs, a->pid);
    struct sa_ev *ev = NULL;
    struct thread_sched now = thread_sched("/proc", a->pid, a->tid);
    uint64_t stood;

    stack_copy_take(&u->stack, a->pid, u->regs.reg[7], s->stack_bytes, s->stops->stack);
    u->pid = a->pid;
    if (p && py_state(s->py, p) == PYLAYOUT_OK)
        ev = user_unwind(s, u);
    thread_let_go(a->tid, sig);
    stood = (uint64_t)(mono_now().v - a->not_yet);
    u->stack.live = false;
    u->tid = a->tid;
    u->t = s->now;
    u->weight = used(s->stops, a, now.exec_ns);
    memcpy(u->comm, a->comm, sizeof u->comm);
    s->pause_ns += stood;
    s->stats.pause_ns += stood;
    s->stats.stops++;
    if (stood > s->stats.pause_max_ns)
        s->stats.pause_max_ns = stood;
    return ev;
}

/* false: not yet. */
static bool try_one(struct source_user *s, struct asked *a)
{
    struct user_sample u = {};
    struct sa_ev *ev;
    int64_t now = mono_now().v;
    int sig = 0, r = thread_stopped(a->tid, a->own, &u.regs, &u.is_32, &sig);

    if (r == 0) {
        a->not_yet = now;
        return false;
    }
    a->done = true;
    if (r < 0)
        return true;
    ev = read_one(s, a, &u, sig);
    if (u.weight) /* 0: it did not get a CPU since it was last read */
        user_sample(s, &u, ev ? ev : user_unwind(s, &u));
    return true;
}

static void read_asked(struct source_user *s)
{
    struct user_stops *us = s->stops;
    int64_t end = mono_now().v + WAIT_NS;
    uint32_t left = us->n_asked;

    while (left) {
        for (uint32_t i = 0; i < us->n_asked; i++)
            if (!us->asked[i].done && try_one(s, &us->asked[i]))
                left--;
        if (!left || mono_now().v >= end)
            break;
        thread_stop_wait(NAP_NS);
    }
    /* what has not stopped yet stays asked, and is let go by the next turn */
    left = 0;
    for (uint32_t i = 0; i < us->n_asked; i++)
        if (!us->asked[i].done)
            us->asked[left++] = us->asked[i];
    us->n_asked = left;
}

/* Nobody else would let them go while we live. */
void user_stops_end(struct user_stops *p)
{
    int64_t end = mono_now().v + END_NS;

    while (p && p->n_asked && mono_now().v < end) {
        uint32_t left = 0;

        for (uint32_t i = 0; i < p->n_asked; i++) {
            struct unwind_regs regs;
            bool is_32;
            int sig = 0, r = thread_stopped(p->asked[i].tid, p->asked[i].own, &regs, &is_32, &sig);

            if (r > 0)
                thread_let_go(p->asked[i].tid, sig);
            else if (r == 0)
                p->asked[left++] = p->asked[i];
        }
        p->n_asked = left;
        if (left)
            thread_stop_wait(NAP_NS);
    }
}

/* ---- a turn ---------------------------------------------------------------------------------- */

/* The processes' own CPU clocks: what their threads used in all, dead ones too. */
void user_stops_clocks(struct source_user *s)
{
    for (struct proc *p = proc_next(s->procs, NULL); p; p = proc_next(s->procs, p)) {
        struct known *k = known_of(s->stops, p->serial);
        uint64_t v = process_clock(p->tgid);

        if (v > k->clock_ns)
            s->stats.counter_ns += v - k->clock_ns;
        if (v)
            k->clock_ns = v;
    }
}

/* Threads that run must not stand for more than a hundredth of their time. */
static void judge(struct source_user *s)
{
    struct user_stops *us = s->stops;
    uint64_t n = s->stats.stops - us->judged_n, pause = s->stats.pause_ns - us->judged_pause;

    if (n < JUDGE_N)
        return;
    if (pause * PAUSE_SHARE > n * s->period_ns && s->period_ns * 2 <= (uint64_t)MAX_PERIOD) {
        s->want_period = s->period_ns * 2;
        s->stats.halved++;
    }
    us->judged_n = s->stats.stops;
    us->judged_pause = s->stats.pause_ns;
}

void user_stops_turn(struct source_user *s)
{
    struct user_stops *us = s->stops;
    int64_t period = (int64_t)s->period_ns;

    if (s->now - us->children_at >= CHILDREN_NS) {
        us->children_at = s->now;
        find_children(s);
        user_stops_clocks(s);
    }
    if (s->now < us->next - period / 10)
        return;
    if (s->now - us->next >= period) {
        s->turns_missed += (uint64_t)((s->now - us->next) / period);
        us->next += (s->now - us->next) / period * period;
    }
    us->next += period;
    for (struct proc *p = proc_next(s->procs, NULL); p; p = proc_next(s->procs, p))
        ask_process(s, p);
    user_publish(s);
    read_asked(s);
    judge(s);
}
