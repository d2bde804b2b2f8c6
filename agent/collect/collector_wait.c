// SPDX-License-Identifier: Apache-2.0
/*
 * When the next turn comes. Each wake of the collector costs more than what it then does, so in a
 * steady state turns are TURN_NS apart, and what cannot wait wakes by itself: records of processes;
 * a ring that fills; a stack that lacks a mapping or a table. Turns are SHORT_NS apart while what
 * records name may vanish before it is read: new Python code, holders of locks; and of a capture,
 * whose turn looks for the end of its command, too.
 *
 * Turns stand on the wall clock, so that one of them falls on each full second: a window is then
 * closed at the second itself. Between turns a new process or mapping is published within 10 ms,
 * and a new unwind table as soon as it is built: until then its stacks are cut.
 */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "agent/collect/collector_private.h"
#include "base/log.h"
#include "base/time.h"

#define TURN_NS         (250 * NS_PER_MS)
#define SHORT_NS        (50 * NS_PER_MS)
#define SHORT_FOR_NS    (5 * NS_PER_S)
#define SOON_NS         (10 * NS_PER_MS)
#define SOON_CAPTURE_NS (2 * NS_PER_MS)
#define BURST_NS        (3 * NS_PER_MS)
#define NEWS_NS         (200 * NS_PER_MS)
#define WAKE_STOPS      (1U << SA_S_NOMAP | 1U << SA_S_NOTABLE | 1U << SA_S_NOPROC)

enum {
    FROM_SIGNALS = 1,
    FROM_PROCESSES,
    FROM_RING
};

static int64_t earlier(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t later(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* ---- what the last drain says ---------------------------------------------------------------- */

bool collector_wants(const struct sa_ev *ev)
{
    return WAKE_STOPS >> (ev->stop & 31) & 1;
}

/* A stack that lacks something wakes the collector, unless nothing can be done about it: then the
 * next one may, a window later. */
static void choose_stops(struct collector *c)
{
    bool news =
        tables_pending(source_cpu_tables(c->cpu)) > 0 || proc_due(c->procs) < c->now + NEWS_NS;

    if (news || c->now - c->deaf >= NS_PER_S)
        c->deaf = 0;
    if (c->wanted && !news)
        c->deaf = c->now;
    source_cpu_wake(c->cpu, c->deaf ? 0 : WAKE_STOPS);
    source_offcpu_wake(collector_off_source(c), c->deaf ? 0 : WAKE_STOPS);
    c->wanted = false;
}

void collector_wait_drained(struct collector *c)
{
    uint64_t reads = py_reads(c->py);
    int64_t real = real_now().v;

    if (reads != c->py_reads)
        c->short_until = c->now + SHORT_FOR_NS;
    c->py_reads = reads;
    choose_stops(c);
    c->ring_due = INT64_MAX;
    c->drained = mono_now().v;
    c->next_short = c->drained + SHORT_NS - real % SHORT_NS;
    c->next_turn = c->drained + TURN_NS - real % TURN_NS;
}

/* ---- what is due ----------------------------------------------------------------------------- */

static int64_t soon_ns(const struct collector *c)
{
    /* a capture has few processes, and each must be known from its exec on */
    return c->conf.capture ? SOON_CAPTURE_NS : SOON_NS;
}

static int64_t turn_due(const struct collector *c)
{
    bool is_short = c->conf.capture || c->drained < c->short_until;

    return earlier(is_short ? c->next_short : c->next_turn, c->ring_due);
}

/* Between turns; INT64_MAX: nothing waits to be followed. */
static int64_t follow_due(const struct collector *c)
{
    int64_t soon = c->followed + soon_ns(c), at = later(py_due(c->py), soon), work;

    if (c->left || tables_pending(source_cpu_tables(c->cpu)) > 0)
        return soon;
    if (facts_waiting(c->facts) || tables_again(source_cpu_tables(c->cpu)))
        at = earlier(at, c->followed + SHORT_NS);
    work = proc_due(c->procs);
    return earlier(at, work == INT64_MIN ? soon : later(work, c->followed + SHORT_NS));
}

/* ---- waiting --------------------------------------------------------------------------------- */

static bool take_signals(struct collector *c)
{
    struct signalfd_siginfo s;

    while (read(c->signals, &s, sizeof s) == sizeof s) {
        log_event(LOG_INFO, "stopping", LOG_C("signal", sigabbrev_np((int)s.ssi_signo)));
        c->stopping = true;
    }
    return c->stopping;
}

/* Until then, or something comes: bits 1 << FROM_.... */
static int wait_until(int epoll, int64_t until, uint32_t *ret_from, struct err *err)
{
    struct epoll_event ev[8];
    int64_t ns = until - mono_now().v;
    int n;

    *ret_from = 0;
    if (ns <= 0)
        return 0;
    n = epoll_wait(epoll, ev, 8, (int)((ns + NS_PER_MS - 1) / NS_PER_MS));
    if (n < 0 && errno != EINTR)
        return err_set(err, -errno, "epoll_wait: %s", strerrordesc_np(errno));
    for (int i = 0; i < n; i++)
        *ret_from |= 1U << ev[i].data.u32;
    return 0;
}

/* An exec is a dozen records: let them come. */
static int let_come(struct collector *c, struct err *err)
{
    int64_t burst = mono_now().v + (c->conf.capture ? NS_PER_MS : BURST_NS);
    uint32_t from;

    TRY(wait_until(c->quiet, earlier(later(burst, c->followed + soon_ns(c)), turn_due(c)), &from,
                   err));
    if (from)
        (void)take_signals(c);
    return 0;
}

int collector_wait(struct collector *c, struct err *err)
{
    uint32_t from;

    while (!c->stopping) {
        int64_t now = mono_now().v, turn = turn_due(c), follow = follow_due(c);

        if (now >= turn)
            return 0;
        if (now >= follow) {
            collector_follow(c);
            continue;
        }
        TRY(wait_until(c->epoll, earlier(turn, follow), &from, err));
        if (from >> FROM_SIGNALS & 1)
            (void)take_signals(c);
        if (from >> FROM_RING & 1) /* never more often than in short turns */
            c->ring_due = c->drained + SHORT_NS;
        if (from >> FROM_PROCESSES & 1 && !c->stopping) {
            TRY(let_come(c, err));
            if (mono_now().v < turn_due(c))
                collector_follow(c);
        }
    }
    return 0;
}

/* ---- life ------------------------------------------------------------------------------------ */

static int add(int epoll, int fd, uint32_t from, struct err *err)
{
    struct epoll_event e = {.events = EPOLLIN | (from == FROM_RING ? EPOLLET : 0),
                            .data.u32 = from};

    if (fd >= 0 && epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &e) < 0)
        return err_set(err, -errno, "epoll: %s", strerrordesc_np(errno));
    return 0;
}

int collector_wait_open(struct collector *c, struct err *err)
{
    sigset_t set;

    sigemptyset(&set);
    if (!c->conf.capture) {
        sigaddset(&set, SIGINT);
        sigaddset(&set, SIGTERM);
    }
    c->epoll = epoll_create1(EPOLL_CLOEXEC);
    c->quiet = epoll_create1(EPOLL_CLOEXEC);
    c->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (c->epoll < 0 || c->quiet < 0 || c->signals < 0)
        return err_set(err, -errno, "epoll or signals: %s", strerrordesc_np(errno));
    TRY(add(c->epoll, c->signals, FROM_SIGNALS, err));
    return add(c->quiet, c->signals, FROM_SIGNALS, err);
}

int collector_wait_processes(struct collector *c, struct err *err)
{
    return add(c->epoll, perfmap_fd(c->perfmap), FROM_PROCESSES, err);
}

int collector_wait_rings(struct collector *c, struct err *err)
{
    TRY(add(c->epoll, source_cpu_ring_fd(c->cpu), FROM_RING, err));
    TRY(add(c->epoll, source_step_ring_fd(c->steps), FROM_RING, err));
    TRY(add(c->epoll, source_offcpu_ring_fd(collector_off_source(c)), FROM_RING, err));
    collector_wait_drained(c);
    return 0;
}

void collector_wait_close(struct collector *c)
{
    const int fd[] = {c->epoll, c->quiet, c->signals};

    for (size_t i = 0; i < sizeof fd / sizeof fd[0]; i++)
        if (fd[i] >= 0)
            (void)close(fd[i]);
}
