// SPDX-License-Identifier: Apache-2.0
/*
 * Known, measured, allowed. What is allowed comes from the sampling itself: a correct sampler that
 * looks every P ns errs by chance, and one time in 16,000 by more than four standard deviations.
 */
#include <elfutils/libdwfl.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "agent/cmd/validate_private.h"

#define SIGMAS       4.0
#define STEP_WITHIN  20000 /* ns */
#define ENOUGH       40    /* samples, for shares */
#define SAMPLES_FROM 10

#define SAY(to, ...) ((void)snprintf((to), sizeof(to), __VA_ARGS__))

static double s_of(double ns)
{
    return ns / 1e9;
}

static int64_t usage_ns(const struct rusage *u)
{
    return (u->ru_utime.tv_sec + u->ru_stime.tv_sec) * NS_PER_S +
           (u->ru_utime.tv_usec + u->ru_stime.tv_usec) * NS_PER_US;
}

static void skip(struct judgement *j, const char *why)
{
    j->verdict = VERDICT_SKIP;
    SAY(j->why, "%s", why);
}

static void set(struct judgement *j, bool ok)
{
    j->verdict = ok ? VERDICT_PASS : VERDICT_FAIL;
}

/* "key=NUMBER" in what a program said; -1: not there. */
static int64_t said(const struct work *w, const char *key)
{
    size_t at = 0, n = strlen(key);
    struct str text = w->said;
    int64_t v;

    while (at + n < text.n && memcmp(text.p + at, key, n) != 0)
        at++;
    if (at + n >= text.n)
        return -1;
    text = str_from(text, at + n);
    for (at = 0; at < text.n && text.p[at] >= '0' && text.p[at] <= '9';)
        at++;
    return str_i64(str_to(text, at), &v) ? v : -1;
}

/* Did the work come to its end by itself? Else nothing is known of it. */
static bool whole(const struct work *w, struct judgement *j)
{
    if (w->stopped)
        skip(j, "the program took too long here and was ended: a very busy machine?");
    else if (!w->child.ended || record_child_status(&w->child) != 0)
        skip(j, "the controlled program did not come to its end");
    else
        return true;
    return false;
}

/* Are k of n a share of p at least, as far as n can tell? */
static bool mostly(uint64_t k, uint64_t n, double p)
{
    double m = (double)n;

    return (double)k >= p * m - SIGMAS * sqrt(m * p * (1 - p));
}

/* How far a correct sampler may be from a known time. */
static double bound(const struct work *w, double known)
{
    double ticks = 2.0 * (double)w->period_ns, chance = SIGMAS * sqrt(w->variance);

    return fmax(fmax(0.02 * known, ticks), chance);
}

/* Time told as lost, which may have been the program's, widens it on one side. */
static void judge_time(const struct work *w, double known, double measured, double lost,
                       double allowed, struct judgement *j)
{
    double error = measured - known, sd = sqrt(w->variance);

    SAY(j->measured, "%.3f s, %+.1f %%, z %+.1f", s_of(measured), 100 * error / known, error / sd);
    if (lost > 0)
        SAY(j->allowed, "+%.3f -%.3f s (%.3f s told as lost)", s_of(allowed), s_of(allowed + lost),
            s_of(lost));
    else
        SAY(j->allowed, "+-%.3f s", s_of(allowed));
    set(j, error <= allowed && error >= -allowed - lost);
    if (j->verdict == VERDICT_PASS && allowed + lost > 0.8 * known)
        skip(j, "what may be missing is as much as what was to be measured: a busy machine?");
}

void judge_cpu(const struct validate *v, enum work_id id, struct judgement *j)
{
    const struct work *w = &v->work[id];
    double clock = (double)w->child.clock_ns, usage = (double)usage_ns(&w->child.usage);

    if (!whole(w, j))
        return;
    SAY(j->known, "%.3f s by the process CPU clock, %.3f s by getrusage", s_of(clock), s_of(usage));
    judge_time(w, clock, (double)(w->seen.ns + w->seen.hidden),
               (double)(w->seen.missed + w->seen.refused), bound(w, clock), j);
    if (fabs(clock - usage) > 0.01 * clock) {
        set(j, false);
        SAY(j->why, "the kernel's two counters differ");
    }
}

/* Kernel mode is told as hidden, by the event's clock, which runs on where the process's stands: in
 * interrupts, by which they differ by a percent or so, and in time that the host gives to others,
 * which the kernel counts for the machine. User mode is sampled. The kernel's division of the two
 * may come from ticks as well. */
void judge_user(const struct validate *v, enum work_id id, struct judgement *j)
{
    const struct work *w = &v->work[id];
    const struct rusage *u = &w->child.usage;
    double clock = (double)w->child.clock_ns, ns = (double)w->seen.ns;
    double user = (double)(u->ru_utime.tv_sec * NS_PER_S + u->ru_utime.tv_usec * NS_PER_US);
    double lost = (double)(w->seen.hidden + w->seen.missed + w->seen.refused);
    double allowed = bound(w, user) * 1.5, sum = 2 * (double)w->period_ns + 0.02 * clock;

    if (!whole(w, j))
        return;
    SAY(j->known, "%.3f s by the process CPU clock, %.3f s of it user mode", s_of(clock),
        s_of(user));
    SAY(j->measured, "%.3f s in samples + %.3f s told as hidden or lost", s_of(ns), s_of(lost));
    double stolen = (double)w->stolen, over = ns + lost - clock;

    SAY(j->allowed, "sum +%.3f -%.3f s (%.3f s stolen by the host); user mode +-%.3f s",
        s_of(sum + stolen), s_of(sum), s_of(stolen), s_of(allowed));
    set(j, over <= sum + stolen && over >= -sum &&
               fabs(ns - user) <= allowed + (double)(w->seen.missed + w->seen.refused));
}

void judge_lost(const struct validate *v, enum work_id id, struct judgement *j)
{
    const struct work *w = &v->work[id];
    const struct collector_stats *s = &v->run[VALIDATE_RING].stats;
    double clock = (double)w->child.clock_ns;

    if (!whole(w, j))
        return;
    SAY(j->known, "%.3f s by the process CPU clock", s_of(clock));
    judge_time(w, clock, (double)(w->seen.ns + s->ring_full.weight), (double)w->seen.missed,
               bound(w, clock), j);
    SAY(j->measured, "%.3f s in samples + %.3f s told as refused", s_of((double)w->seen.ns),
        s_of((double)s->ring_full.weight));
    if (s->ring_full.n == 0)
        skip(j, "the ring did not run over");
    else if (s->identity_violations)
        set(j, false);
}

void judge_machine(const struct validate *v, enum work_id id, struct judgement *j)
{
    const struct source_run *r = &v->run[VALIDATE_BPF];
    const struct collector_stats *s = &r->stats;

    (void)id;
    SAY(j->known, "%.3f s of samples given out", s_of((double)s->weight));
    SAY(j->measured, "%.3f s in %" PRIu64 " batches; %" PRIu64 " of %" PRIu64 " windows violated",
        s_of((double)r->rows_ns), r->batches, s->identity_violations, s->windows);
    SAY(j->allowed, "nothing: exact in integers");
    set(j, s->windows > 0 && !s->identity_violations && r->rows_ns == s->weight &&
               r->batches == s->batches);
}

/* ---- the tree of calls ---------------------------------------------------------------------- */

static bool enough(const struct seen *s, struct judgement *j)
{
    if (s->n >= ENOUGH)
        return true;
    skip(j, "fewer than 40 samples: the machine is too busy");
    return false;
}

void judge_shares(const struct validate *v, enum work_id id, struct judgement *j)
{
    const struct work *w = &v->work[id];
    double known[PHOTO_FUNCTIONS], got[PHOTO_FUNCTIONS], all = 0, seen = 0, worst = 0, most = 0;
    char key[32];

    if (!whole(w, j) || !enough(&w->seen, j))
        return;
    for (unsigned i = 0; i < PHOTO_FUNCTIONS; i++) {
        SAY(key, "%s=", photo_function[i]);
        all += known[i] = (double)said(w, key);
        seen += got[i] = (double)w->seen.function_ns[i];
    }
    for (unsigned i = 0; i < PHOTO_FUNCTIONS; i++) {
        double p = known[i] / all, sd = sqrt(p * (1 - p) * (double)w->period_ns / seen);

        worst = fmax(worst, fabs(got[i] / seen - p) / sd);
        most = fmax(most, SIGMAS * sd);
    }
    SAY(j->known, "%.1f / %.1f / %.1f %% by the threads' own clocks", 100 * known[0] / all,
        100 * known[1] / all, 100 * known[2] / all);
    SAY(j->measured, "%.1f / %.1f / %.1f %% of %" PRIu64 " samples, worst z %.1f",
        100 * got[0] / seen, 100 * got[1] / seen, 100 * got[2] / seen, w->seen.n, worst);
    SAY(j->allowed, "z %.0f: up to %.1f points", SIGMAS, 100 * most);
    set(j, worst < SIGMAS);
}

void judge_depth(const struct validate *v, enum work_id id, struct judgement *j)
{
    const struct seen *s = &v->work[id].seen;

    if (!whole(&v->work[id], j))
        return;
    if (s->deep_n < SAMPLES_FROM) {
        skip(j, "too few samples of it");
        return;
    }
    SAY(j->known, "64 frames of search_folder above hash_tags");
    SAY(j->measured, "%" PRId64 " of %" PRId64 " stacks have 64", s->deep_ok, s->deep_n);
    /* it is sampled on its way down, too: then hash_tags is not on the stack */
    SAY(j->allowed, "none may differ");
    set(j, s->deep_ok == s->deep_n);
}

void judge_whole(const struct validate *v, enum work_id id, struct judgement *j)
{
    const struct seen *s = &v->work[id].seen;

    if (!whole(&v->work[id], j) || !enough(s, j))
        return;
    SAY(j->known, "%" PRIu64 " stacks, from half a second behind its start on", s->settled);
    SAY(j->measured, "%" PRIu64 " reach the thread's start", s->whole);
    SAY(j->allowed, "99 %%, four standard deviations less");
    set(j, s->settled > 0 && mostly(s->whole, s->settled, 0.99));
}

void judge_threads(const struct validate *v, enum work_id id, struct judgement *j)
{
    const struct seen *s = &v->work[id].seen;
    int64_t photo[2] = {0, 0}, other = 0;

    if (!whole(&v->work[id], j) || !enough(s, j))
        return;
    for (uint32_t i = 0; i < s->n_thread; i++) {
        if (strcmp(s->thread[i].name, "photo-1") == 0)
            photo[0] = s->thread[i].ns;
        else if (strcmp(s->thread[i].name, "photo-2") == 0)
            photo[1] = s->thread[i].ns;
        else
            other += s->thread[i].ns;
    }
    SAY(j->known, "threads photo-1 and photo-2 do all the work");
    SAY(j->measured, "%.1f and %.1f %%, others %.1f %%", 100.0 * (double)photo[0] / (double)s->ns,
        100.0 * (double)photo[1] / (double)s->ns, 100.0 * (double)other / (double)s->ns);
    SAY(j->allowed, "both there, others below 2 %% (start and end)");
    set(j, photo[0] > 0 && photo[1] > 0 && (double)other < 0.02 * (double)s->ns);
}

void judge_oracle(const struct validate *v, enum work_id id, struct judgement *j)
{
    const struct oracle_result *o = &v->oracle;
    uint64_t n = o->samples - o->dump - o->unmatched;

    (void)id;
    if (n < ENOUGH) {
        skip(j, "fewer than 40 samples could be compared");
        return;
    }
    SAY(j->known, "libdw's chains of the same %" PRIu64 " samples (%" PRIu64 " not comparable)", n,
        o->samples - n);
    SAY(j->measured, "%" PRIu64 " equal, frame by frame", o->same);
    SAY(j->allowed, "99 %%, four standard deviations less");
    set(j, mostly(o->same, n, 0.99) && (double)n >= 0.9 * (double)o->samples);
}

/* ---- kernel mode ---------------------------------------------------------------------------- */

void judge_kernel(const struct validate *v, enum work_id id, struct judgement *j)
{
    const struct seen *s = &v->work[id].seen;

    if (!whole(&v->work[id], j) || !enough(s, j))
        return;
    if (!s->in_read) {
        set(j, false);
        SAY(j->why, "no kernel frame has the name of read(2): is kernel.kptr_restrict 2?");
    } else {
        set(j, mostly(s->below_loop, s->kernel_n, 0.95) && s->kernel_n >= ENOUGH / 2);
    }
    SAY(j->known, "in the kernel the program is in read(2), called by read_block");
    SAY(j->measured, "%" PRIu64 " of %" PRIu64 " kernel stacks have both", s->below_loop,
        s->kernel_n);
    SAY(j->allowed, "95 %%, four standard deviations less: entry, exit, interrupts");
}

/* The kernel's own division of user and kernel time may come from ticks, too, at 100 to 1000 Hz;
 * with z of both. */
void judge_split(const struct validate *v, enum work_id id, struct judgement *j)
{
    const struct work *w = &v->work[id];
    const struct rusage *u = &w->child.usage;
    double known = (double)(u->ru_stime.tv_sec * NS_PER_S + u->ru_stime.tv_usec * NS_PER_US);
    double all = (double)w->child.clock_ns, p = fmin(known / all, 1), hz = 100;
    double sd = sqrt(w->variance + all * ((double)w->period_ns + 1e9 / hz) * p * (1 - p));

    if (!whole(w, j) || !enough(&w->seen, j))
        return;
    SAY(j->known, "%.3f s system time by getrusage", s_of(known));
    judge_time(w, known, (double)w->seen.kernel_ns, (double)w->seen.missed,
               fmax(SIGMAS * sd, bound(w, known)), j);
}

/* ---- off the CPU ---------------------------------------------------------------------------- */

#define WITHIN    0.05 /* these are measured, not sampled */
#define WITHIN_NS (5 * NS_PER_MS)
#define LIFE_NS   (2 * NS_PER_MS)
#define NOT_MINE  0.10 /* of the ticks: takes and drops, more of them the busier the machine */

/* What its thread said under NAME.what; -1: nothing. */
static int64_t said_of(const struct work *w, const char *name, const char *what)
{
    char key[64];

    SAY(key, "%s.%s=", name, what);
    return said(w, key);
}

static unsigned thread_of(const struct seen *s, const char *name)
{
    unsigned i = 0;

    while (i < s->n_thread && strcmp(s->thread[i].name, name) != 0)
        i++;
    return i;
}

/* Sums over threads, and the worst of them. */
struct compared {
    int64_t known, measured, bare;
    double worst; /* error as a part of known */
    const char *of;
    bool ok;
};

/* stolen: of its CPU time the part that may have passed in interrupts or beside the machine, which
 * the kernel's counters leave out and so call blocked. */
static void compare(struct compared *c, const struct work *w, const char *name, int64_t known,
                    int64_t measured, int64_t bare, double stolen)
{
    double error = (double)(measured - known), allowed = WITHIN * (double)known + WITHIN_NS;
    double less = stolen * (double)said_of(w, name, "cpu");
    double part = known > 0 ? error / (double)known : 0;

    c->known += known;
    c->measured += measured;
    c->bare += bare;
    if (!c->of || fabs(part) > fabs(c->worst)) {
        c->worst = part;
        c->of = name;
    }
    if (error > allowed || error + (double)(bare + w->seen.off_lost) < -allowed - less)
        c->ok = false;
}

static void judge_compared(const struct compared *c, const struct work *w, const char *known,
                           struct judgement *j)
{
    SAY(j->known, "%.3f s %s", s_of((double)c->known), known);
    SAY(j->measured, "%.3f s, %+.2f %%; of one thread at most %+.1f %% (%s)",
        s_of((double)c->measured),
        100.0 * (double)(c->measured - c->known) / (double)(c->known > 0 ? c->known : 1),
        100 * c->worst, c->of ? c->of : "none");
    SAY(j->allowed, "5 %% and 5 ms for each thread; %.3f s told as lost or without a stack",
        s_of((double)(c->bare + w->seen.off_lost)));
    set(j, c->ok);
}

static bool counts_queues(const struct work *w, const char *name, struct judgement *j)
{
    if (said_of(w, name, "queued") >= 0)
        return true;
    skip(j, "this kernel does not count how long threads wait for a CPU (/proc/self/schedstat)");
    return false;
}

static void judge_waiters(const struct validate *v, enum work_id id, const char *const *name,
                          unsigned n, struct judgement *j)
{
    const struct work *w = &v->work[id];
    struct compared c = {.ok = true};

    if (!whole(w, j) || !counts_queues(w, name[0], j))
        return;
    for (unsigned i = 0; i < n; i++) {
        unsigned t = thread_of(&w->seen, name[i]);

        compare(&c, w, name[i], said_of(w, name[i], "blocked"),
                t < w->seen.n_thread ? w->seen.thread[t].offcpu : 0, 0, 1);
    }
    judge_compared(&c, w, "of their lives they neither ran nor waited for a CPU (schedstat)", j);
}

static const char *const waiter[] = {"sleep", "futex", "pipe", "disk", "epoll", "lock-a", "lock-b"};

void judge_blocked(const struct validate *v, enum work_id id, struct judgement *j)
{
    judge_waiters(v, id, waiter, 5, j);
}

void judge_lock(const struct validate *v, enum work_id id, struct judgement *j)
{
    judge_waiters(v, id, waiter + 5, 2, j);
}

/* I5: +- max(2 P, 4 P sqrt(n)) of n ticks; each of its ends lies between two moments. */
void judge_life(const struct validate *v, enum work_id id, struct judgement *j)
{
    const struct work *w = &v->work[id];
    double lives = 0, have = 0, worst = 0;
    bool ok = true;

    if (!whole(w, j))
        return;
    for (unsigned i = 0; i < sizeof waiter / sizeof *waiter; i++) {
        unsigned t = thread_of(&w->seen, waiter[i]);
        double wall = (double)said_of(w, waiter[i], "wall"), p = (double)w->period_ns;
        double most = (double)said_of(w, waiter[i], "most"), sum, bound, n;

        if (t == w->seen.n_thread) {
            set(j, false);
            SAY(j->why, "thread %s is not there", waiter[i]);
            return;
        }
        sum = (double)(w->seen.thread[t].ns + w->seen.thread[t].offcpu + w->seen.thread[t].runq);
        n = fmax((double)w->seen.thread[t].n, (double)said_of(w, waiter[i], "cpu") / p);
        bound = fmax(2 * p, SIGMAS * p * sqrt(n)) + LIFE_NS + 0.01 * wall;
        lives += wall;
        have += sum;
        worst = fmax(worst, fmax(wall - sum, sum - most) / bound);
        if (sum > most + bound ||
            sum + (double)(w->seen.off_lost + w->seen.missed + w->seen.refused) < wall - bound)
            ok = false;
    }
    SAY(j->known, "%.3f s: the lives of seven threads, by the clock", s_of(lives));
    SAY(j->measured, "%.3f s of cpu + offcpu + runq; of one thread at most %.2f of its bound",
        s_of(have), worst);
    SAY(j->allowed, "2 samples, or 4 for the root of their number, and 1 %%");
    set(j, ok);
}

static const char *const fighter[] = {"fight-1", "fight-2", "tree"};

enum {
    FIGHTERS = sizeof fighter / sizeof fighter[0]
};

void judge_gil_wait(const struct validate *v, enum work_id id, struct judgement *j)
{
    const struct work *w = &v->work[id];
    struct compared c = {.ok = true};

    if (!w->begun) {
        skip(j, "no /usr/bin/python3, or gil.py is not beside the agent");
        return;
    }
    if (!whole(w, j))
        return;
    for (unsigned i = 0; i < FIGHTERS; i++) {
        unsigned t = thread_of(&w->seen, fighter[i]);
        bool there = t < w->seen.n_thread;

        compare(&c, w, fighter[i], said_of(w, fighter[i], "blocked"),
                there ? w->seen.thread[t].gil_wait : 0, there ? w->seen.thread[t].bare : 0, 0.1);
    }
    judge_compared(&c, w, "blocked, of threads that wait for nothing else", j);
}

void judge_gil_held(const struct validate *v, enum work_id id, struct judgement *j)
{
    const struct work *w = &v->work[id];
    int64_t known = 0, cpu = 0, held = 0;
    uint64_t n = 0;

    if (!w->begun) {
        skip(j, "no /usr/bin/python3, or gil.py is not beside the agent");
        return;
    }
    if (!whole(w, j) || !enough(&w->seen, j))
        return;
    for (unsigned i = 0; i < FIGHTERS; i++) {
        unsigned t = thread_of(&w->seen, fighter[i]);

        known += said_of(w, fighter[i], "cpu");
        if (t == w->seen.n_thread)
            continue;
        cpu += w->seen.thread[t].ns;
        held += w->seen.thread[t].gil_held;
        n += w->seen.thread[t].n;
    }
    SAY(j->known, "%.3f s: three threads hold it whenever they run", s_of((double)known));
    SAY(j->measured, "%.3f s, in %.3f s of samples of them", s_of((double)held), s_of((double)cpu));
    SAY(j->allowed, "90 %% of the samples, four standard deviations less: takes and drops");
    set(j,
        n > 0 && held <= cpu && mostly((uint64_t)(held / (int64_t)w->period_ns), n, 1 - NOT_MINE));
}

void judge_lines(const struct validate *v, enum work_id id, struct judgement *j)
{
    static const char *const part[] = {"first", "second", "third"};
    const struct work *w = &v->work[id];
    double known[3], got[3] = {}, all = 0, seen = 0, worst = 0;

    if (!w->begun) {
        skip(j, "no /usr/bin/python3, or gil.py is not beside the agent");
        return;
    }
    if (!whole(w, j))
        return;
    for (unsigned i = 0; i < 3; i++) {
        all += known[i] = (double)said_of(w, "tree", part[i]);
        for (unsigned k = 0; k < SEEN_LINES; k++)
            if ((int64_t)w->seen.line[k].line == said_of(w, "tree", "line") + 2 * (int64_t)i)
                got[i] += (double)w->seen.line[k].ns;
        seen += got[i];
    }
    if (seen < ENOUGH * (double)w->period_ns) {
        skip(j, "fewer than 40 samples: the machine is too busy");
        return;
    }
    for (unsigned i = 0; i < 3; i++) {
        double p = known[i] / all;

        worst =
            fmax(worst, fabs(got[i] / seen - p) / sqrt(p * (1 - p) * (double)w->period_ns / seen));
    }
    SAY(j->known, "%.1f / %.1f / %.1f %% by the thread's own clock", 100 * known[0] / all,
        100 * known[1] / all, 100 * known[2] / all);
    SAY(j->measured, "%.1f / %.1f / %.1f %%, worst z %.1f", 100 * got[0] / seen,
        100 * got[1] / seen, 100 * got[2] / seen, worst);
    SAY(j->allowed, "z %.0f", SIGMAS);
    set(j, worst < SIGMAS);
}

/* ---- the rest ------------------------------------------------------------------------------- */

void judge_children(const struct validate *v, enum work_id id, struct judgement *j)
{
    const struct work *w = &v->work[id];
    double known = (double)usage_ns(&w->child.usage), p = (double)w->period_ns;
    double wall = (double)(w->to.v - w->from.v), share = fmin(known / wall, 1);
    int64_t n = said(w, "children=");
    double allowed, sd;

    if (!whole(w, j) || n <= 0)
        return;
    /* over the whole time; and both ends of each life fall anywhere between two ticks */
    sd = sqrt(wall * p * share * (1 - share) + (double)n * p * p / 4);
    allowed = fmax(SIGMAS * sd, bound(w, known));
    SAY(j->known, "%" PRId64 " programs, %.3f s by getrusage", n, s_of(known));
    judge_time(w, known, (double)w->seen.ns, (double)(w->seen.missed + w->seen.refused), allowed,
               j);
    SAY(j->measured, "%" PRIu64 " programs, %" PRIu64 " with their file; %.3f s, %+.1f %%",
        v->child_processes, v->child_named, s_of((double)w->seen.ns),
        100 * ((double)w->seen.ns - known) / known);
    if ((int64_t)v->child_processes < n - n / 10 || (int64_t)v->child_processes > n)
        set(j, false);
}

struct step_said {
    struct str name;
    uint64_t number, tid;
    int64_t t[4]; /* before and after the call that began it, and the one that ended it */
};

/* "NAME NUMBER TID BEFORE AFTER BEFORE AFTER" */
static bool step_line(struct str line, struct step_said *ret)
{
    int64_t v[6];
    size_t at = str_find(line, ' ');

    ret->name = str_to(line, at);
    for (unsigned i = 0; i < 6; i++) {
        if (at >= line.n)
            return false;
        line = str_from(line, at + 1);
        at = str_find(line, ' ');
        if (!str_i64(str_to(line, at), &v[i]))
            return false;
    }
    ret->number = (uint64_t)v[0];
    ret->tid = (uint64_t)v[1];
    memcpy(ret->t, v + 2, sizeof ret->t);
    return true;
}

static int64_t outside(int64_t t, int64_t before, int64_t after)
{
    if (t < before)
        return before - t;
    return t > after ? t - after : 0;
}

void judge_steps(const struct validate *v, enum work_id id, struct judgement *j)
{
    struct str text = v->work[id].said;
    uint32_t marked = 0, found = 0;
    int64_t worst = 0;

    if (!whole(&v->work[id], j))
        return;
    while (text.n) {
        size_t end = str_find(text, '\n');
        struct step_said s;

        if (step_line(str_to(text, end), &s)) {
            marked++;
            for (uint32_t i = 0; i < v->n_step; i++) {
                const struct seen_step *k = &v->step[i];

                if (!str_eq(str_c(k->name), s.name) || k->number != s.number || k->tid != s.tid)
                    continue;
                found++;
                worst =
                    worst > outside(k->t0, s.t[0], s.t[1]) ? worst : outside(k->t0, s.t[0], s.t[1]);
                worst =
                    worst > outside(k->t1, s.t[2], s.t[3]) ? worst : outside(k->t1, s.t[2], s.t[3]);
            }
        }
        text = str_from(text, end >= text.n ? text.n : end + 1);
    }
    SAY(j->known, "%u steps, by the program's clock around each call", marked);
    SAY(j->measured, "%u of them, %u in all, at most %.1f us outside", found, v->n_step,
        (double)worst / 1e3);
    SAY(j->allowed, "each once, within 20 us");
    set(j, marked > 0 && found == marked && v->n_step == marked && worst <= STEP_WITHIN);
}

void judge_symbols(const struct validate *v, enum work_id id, struct judgement *j)
{
    static const Dwfl_Callbacks cb = {.find_elf = dwfl_build_id_find_elf,
                                      .find_debuginfo = dwfl_standard_find_debuginfo,
                                      .section_address = dwfl_offline_section_address};
    Dwfl *d = dwfl_begin(&cb);
    Dwfl_Module *m = d ? dwfl_report_elf(d, "workload", v->workload, -1, 0, false) : NULL;
    uint32_t same = 0, known = 0;

    (void)id;
    if (m)
        (void)dwfl_report_end(d, NULL, NULL);
    for (uint32_t i = 0; m && i < v->n_symbol; i++) {
        const struct seen_symbol *s = &v->symbol[i];
        const char *name = dwfl_module_addrname(m, s->addr);

        if (!name)
            continue;
        known++;
        if (strcmp(name, s->name) == 0)
            same++;
        else
            SAY(j->why, "at 0x%" PRIx64 ": \"%.50s\", libdw \"%.50s\"", s->addr, s->name, name);
    }
    if (d)
        dwfl_end(d);
    if (known < 5) {
        skip(j, "the controlled program has no symbol table: stripped?");
        return;
    }
    SAY(j->known, "libdw's names of %u addresses of the controlled programs", known);
    SAY(j->measured, "%u equal", same);
    SAY(j->allowed, "none may differ");
    set(j, same == known);
}
