// SPDX-License-Identifier: Apache-2.0
/*
 * The works one after the other, each under the source that is to be tried: forked when everything
 * samples, watched, then executed (record_child.c), as `strata record` does it. One collector takes
 * three rates, so that the identities go over its changes.
 */
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "agent/cmd/validate_private.h"
#include "base/arena.h"

#define LOOK_NS  (300 * NS_PER_MS)
#define STAGE_NS (90 * NS_PER_S) /* then its works are ended, */
#define QUICK_NS (20 * NS_PER_S) /* with --quick */
/* Photos takes turns in about 4 ms: rates that fall on ever other places of them. */
#define PHOTOS_HZ  701
#define USER_HZ    173
#define STALL_NS   NS_PER_S /* of its CPU time */
#define RING_BYTES (UINT64_C(64) << 10)
#define RING_HZ    2000
#define SAID_MAX   (1 << 20)
#define ARGS       6
#define PYTHON     "/usr/bin/python3"

/* How the works are called, in CPU time that is so short or long that the source suffices. */
static const struct {
    const char *quick[ARGS], *full[ARGS];
    bool pinned; /* one more argument: the last CPU that we may use */
} spec[WORK_N] = {
    [WORK_BURN_19] = {{"burn", "2"}, {"burn", "10"}, true},
    [WORK_BURN_99] = {{"burn", "1.5"}, {"burn", "10"}, true},
    [WORK_BURN_499] = {{"burn", "1"}, {"burn", "10"}, true},
    [WORK_PHOTOS] = {{"photos", "-l", "100", "-s", "3"},
                     {"photos", "-l", "100", "-s", "15"},
                     false},
    [WORK_SYSCALLS] = {{"syscalls", "1000"}, {"syscalls", "5000"}, false},
    [WORK_CHILDREN] = {{"children", "20", "20"}, {"children", "200", "20"}, false},
    [WORK_STEPS] = {{"steps", "all"}, {"steps", "all"}, false},
    [WORK_BLOCKED] = {{"blocked", "1000"}, {"blocked", "10000"}, false},
    [WORK_GIL] = {{"2000"}, {"15000"}, false},
    [WORK_RING] = {{"burn", "2"}, {"burn", "6"}, true},
    [WORK_USER] = {{"photos", "-l", "100", "-s", "4"}, {"photos", "-l", "100", "-s", "15"}, false},
};

struct stage {
    uint64_t hz;
    enum work_id first;
    uint32_t n;
};

static const struct stage bpf_stages[] = {{19, WORK_BURN_19, 1},
                                          {99, WORK_BURN_99, 1},
                                          {499, WORK_BURN_499, 1},
                                          {PHOTOS_HZ, WORK_PHOTOS, 1},
                                          {499, WORK_SYSCALLS, 3}};
static const struct stage ring_stages[] = {{RING_HZ, WORK_RING, 1}};
static const struct stage off_stages[] = {{499, WORK_BLOCKED, 1}, {499, WORK_GIL, 1}};

/* The stages under one source. */
struct script {
    struct validate *v;
    struct source_run *run;
    struct batcher *batcher;
    struct record_taker taker;
    const struct stage *stage;
    uint32_t n_stage, at; /* at: the next one */
    int64_t begun;        /* CLOCK_MONOTONIC */
    bool stalls, failed;
    uint32_t types; /* as in struct collector_capture */
};

/* ---- works ---------------------------------------------------------------------------------- */

static bool find(const char *name, char ret[static 4096])
{
    static const char *const in[] = {"", "../libexec/strata/", "../demo/"};
    char self[3800];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);

    self[n < 0 ? 0 : n] = 0;
    self[n < 0 ? 0 : str_rfind(str_c(self), '/') + 1] = 0;
    for (size_t i = 0; i < sizeof in / sizeof in[0]; i++) {
        (void)snprintf(ret, 4096, "%s%s%s", self, in[i], name);
        if (access(ret, R_OK) == 0)
            return true;
    }
    ret[0] = 0;
    return false;
}

bool validate_find_workload(char ret[static 4096])
{
    return find("strata-workload", ret) && access(ret, X_OK) == 0;
}

void validate_find_gil(char ret[static 4096])
{
    if (!find("gil.py", ret) || access(PYTHON, X_OK) != 0)
        ret[0] = 0;
}

static unsigned last_cpu(void)
{
    cpu_set_t set;

    if (sched_getaffinity(0, sizeof set, &set) == 0)
        for (unsigned i = CPU_SETSIZE; i > 0; i--)
            if (CPU_ISSET(i - 1, &set))
                return i - 1;
    return 0;
}

/* Forks it; it waits until it is let go. */
static int work_fork(struct validate *v, enum work_id id, struct err *err)
{
    const char *const *more = v->quick ? spec[id].quick : spec[id].full;
    struct work *w = &v->work[id];
    char fd[16], cpu[16], option[] = "-o", python[] = PYTHON, *args[ARGS + 6], *copy[ARGS] = {};
    unsigned n = 0;
    int r;

    w->out = memfd_create("strata-workload", 0); /* not closed by exec */
    if (w->out < 0)
        return err_set(err, -errno, "memfd_create: %s", strerrordesc_np(errno));
    (void)snprintf(fd, sizeof fd, "%d", w->out);
    (void)snprintf(cpu, sizeof cpu, "%u", last_cpu());
    if (id == WORK_GIL)
        args[n++] = python;
    args[n++] = id == WORK_GIL ? v->gil : v->workload;
    args[n++] = option;
    args[n++] = fd;
    for (unsigned i = 0; i < ARGS && more[i]; i++)
        args[n++] = copy[i] = xstrdup(more[i]);
    if (spec[id].pinned)
        args[n++] = cpu;
    args[n] = NULL;
    r = record_child_start(&w->child, args, &v->before, err);
    for (unsigned i = 0; i < ARGS; i++)
        free(copy[i]); /* the child has its own */
    return r;
}

static int64_t clock_of(const struct work *w)
{
    int64_t ns = process_cpu_ns(w->child.pid);

    return ns < 0 ? w->clock : ns;
}

static int work_go(struct work *w, uint64_t period_ns, struct err *err)
{
    w->period_ns = period_ns;
    w->from = real_now();
    w->looked = mono_now().v;
    w->begun = true;
    return record_child_go(&w->child, err) == 0 ? 0 : -EIO;
}

/* Which ticks meet a program that has a share s of the time is binomial: over a time T of one CPU,
 * n = T / P of them, the variance is n P^2 s (1 - s). Both ends add up to a quarter of a tick's. */
static void look(struct work *w, bool last)
{
    int64_t now = mono_now().v, wall = now - w->looked, clock;
    double p = (double)w->period_ns, share, cpus;

    if (!last && wall < LOOK_NS)
        return;
    clock = last && w->child.ended ? w->child.clock_ns : clock_of(w);
    if (wall > 0 && clock >= w->clock) {
        share = (double)(clock - w->clock) / (double)wall;
        cpus = share > 1 ? (double)(int)(share + 1) : 1;
        share /= cpus;
        w->variance += (double)wall * cpus * p * share * (1 - share);
    }
    w->looked = now;
    w->clock = clock;
}

static void work_read(struct work *w)
{
    off_t n = lseek(w->out, 0, SEEK_END);
    char *text = xcalloc(1, SAID_MAX + 1);
    ssize_t got = pread(w->out, text, n < SAID_MAX ? (size_t)n : SAID_MAX, 0);

    w->said = (struct str){text, got > 0 ? (size_t)got : 0};
    (void)close(w->out);
    w->out = -1;
}

/* Is it over? Then what it said is read. */
static bool work_over(struct work *w, bool too_long)
{
    if (w->child.ended)
        return true;
    if (too_long && !w->stopped) {
        w->stopped = true;
        (void)kill(w->child.pid, SIGKILL);
    }
    if (!record_child_ended(&w->child, w->stopped)) {
        look(w, false);
        return false;
    }
    w->to = real_now();
    look(w, true);
    w->variance += (double)w->period_ns * (double)w->period_ns / 4;
    work_read(w);
    return true;
}

/* ---- batches -------------------------------------------------------------------------------- */

/* The batcher's thread; the main thread looks when that has ended. */
static void on_batch(void *ctx, struct str body, const struct batchmake_info *info)
{
    struct validate *v = ctx;

    (void)info;
    if (v->n_body == v->cap_body) {
        v->cap_body = v->cap_body ? 2 * v->cap_body : 64;
        v->body = xrealloc(v->body, v->cap_body * sizeof *v->body);
    }
    buf_init(&v->body[v->n_body], body.n + 1);
    buf_str(&v->body[v->n_body++], body);
}

static int batcher_open(struct script *s, struct err *err)
{
    struct validate *v = s->v;
    struct batchmake_conf bc = {
        .hostname = str_c(v->ids.hostname),
        .version = STR(STRATA_VERSION),
        .names = {.cache = v->conf.symbols_cache, .debug_dirs = "", .proc = "/proc", .sys = "/sys"},
        .lines = {.debug_dirs = "", .mode = LINES_OFF},
        .source = "record"};

    memcpy(bc.agent, v->ids.agent, 16);
    memcpy(bc.boot, v->ids.boot, 16);
    TRY(batcher_start(&bc, NULL, &s->batcher, err));
    batcher_set_tap(s->batcher, (struct batcher_tap){.batch = on_batch, .ctx = v});
    return 0;
}

/* All batches are made: what do they say? */
static void batches_read(struct script *s, enum validate_source source, struct err *err)
{
    struct validate *v = s->v;

    for (uint32_t i = 0; i < v->n_body; i++) {
        if (!err->msg[0] && validate_seen(v, source, buf_view(&v->body[i]), err) < 0)
            s->failed = true;
        buf_deinit(&v->body[i]);
    }
    v->n_body = 0;
}

/* ---- stages --------------------------------------------------------------------------------- */

static int start_stage(struct script *s, struct err *err)
{
    const struct stage *g = &s->stage[s->at++];
    uint64_t period = (uint64_t)NS_PER_S / g->hz;

    if (s->at > 1 && g->hz != s->stage[s->at - 2].hz)
        TRY(collector_set_period(s->taker.collector, period, err));
    for (uint32_t i = 0; i < g->n; i++) {
        struct work *w = &s->v->work[g->first + i];

        TRY(work_fork(s->v, g->first + i, err));
        TRY(collector_watch(s->taker.collector, (uint32_t)w->child.pid, true, err));
        TRY(work_go(w, period, err));
    }
    s->begun = mono_now().v;
    return 0;
}

static int64_t stage_ns(const struct validate *v)
{
    return v->quick ? QUICK_NS : STAGE_NS;
}

static bool stage_over(struct script *s, const struct stage *g)
{
    bool over = true, too_long = mono_now().v - s->begun > stage_ns(s->v);

    for (uint32_t i = 0; i < g->n; i++)
        over = work_over(&s->v->work[g->first + i], too_long) && over;
    return over;
}

/* The collector hangs, once, while the work uses so much CPU time that the ring runs over. */
static void stall(struct script *s)
{
    const struct timespec nap = {.tv_nsec = 20 * NS_PER_MS};
    const struct work *w = &s->v->work[WORK_RING];
    int64_t until = clock_of(w) + STALL_NS, latest = mono_now().v + QUICK_NS / 2;

    if (!s->stalls)
        return;
    s->stalls = false;
    while (clock_of(w) < until && mono_now().v < latest)
        (void)nanosleep(&nap, NULL);
}

static bool on_turn(void *ctx)
{
    struct script *s = ctx;
    struct err err = {};

    if (s->at) {
        stall(s);
        if (!stage_over(s, &s->stage[s->at - 1]))
            return true;
    }
    if (s->at == s->n_stage)
        return false;
    if (start_stage(s, &err) == 0)
        return true;
    s->failed = true;
    (void)snprintf(s->run->why, sizeof s->run->why, "%s", err.msg);
    return false;
}

/* Whatever failed, none of them goes on. */
static void works_end(struct validate *v)
{
    for (uint32_t i = 0; i < WORK_N; i++)
        if (v->work[i].begun)
            (void)work_over(&v->work[i], true);
}

static void run_script(struct script *s, enum validate_source source, struct agent_conf *conf)
{
    struct collector_capture cap = {
        .watch = BPF_LOAD_CHILDREN, .turn = on_turn, .ctx = s, .types = s->types};
    const struct collector_conf cc = {.conf = conf,
                                      .ids = &s->v->ids,
                                      .state_dir = "/",
                                      .interval_ns = NS_PER_S,
                                      .loopback = true,
                                      .capture = &cap};
    struct collector_conf with = cc;
    struct err err = {};
    int r;

    s->run = &s->v->run[source];
    s->run->tried = true;
    r = batcher_open(s, &err);
    with.batcher = s->batcher;
    if (r == 0)
        r = collector_open(&s->taker.collector, &with, &err);
    if (r == 0) {
        collector_prepare(s->taker.collector, s->v->workload);
        r = collector_run(s->taker.collector, &err);
        collector_get_stats(s->taker.collector, &s->run->stats);
    }
    works_end(s->v);
    if (s->batcher)
        batcher_stop(s->batcher);
    if (r == 0)
        batches_read(s, source, &err);
    s->run->ran = r == 0 && !s->failed;
    if (!s->run->ran && err.msg[0])
        (void)snprintf(s->run->why, sizeof s->run->why, "%s", err.msg);
    record_take_close(&s->taker);
    if (s->batcher)
        batcher_free(s->batcher);
}

void validate_run_bpf(struct validate *v)
{
    struct script s = {
        .v = v, .stage = bpf_stages, .n_stage = sizeof bpf_stages / sizeof bpf_stages[0]};
    struct agent_conf conf = v->conf;

    conf.period_ns = NS_PER_S / (int64_t)bpf_stages[0].hz;
    run_script(&s, VALIDATE_BPF, &conf);
}

void validate_run_ring(struct validate *v)
{
    struct script s = {.v = v, .stage = ring_stages, .n_stage = 1};
    struct agent_conf conf = v->conf;

    conf.period_ns = NS_PER_S / RING_HZ;
    conf.ring_bytes = RING_BYTES;
    s.stalls = true;
    run_script(&s, VALIDATE_RING, &conf);
}

void validate_run_off(struct validate *v)
{
    struct script s = {.v = v,
                       .stage = off_stages,
                       .n_stage = v->gil[0] ? 2 : 1, /* without Python the first alone */
                       .types = UINT32_MAX};
    struct agent_conf conf = v->conf;

    conf.period_ns = NS_PER_S / (int64_t)off_stages[0].hz;
    run_script(&s, VALIDATE_OFF, &conf);
}

/* ---- other sources -------------------------------------------------------------------------- */

/* Time in which the host ran others, of all CPUs since boot, ns; 0: unknown. */
static int64_t stolen_ns(void)
{
    unsigned long long ticks = 0;
    FILE *f = fopen("/proc/stat", "re");

    if (!f)
        return 0;
    if (fscanf(f, "cpu %*u %*u %*u %*u %*u %*u %*u %llu", &ticks) != 1) // NOLINT(cert-err34-c)
        ticks = 0;
    (void)fclose(f);
    return (int64_t)ticks * (NS_PER_S / sysconf(_SC_CLK_TCK));
}

static bool user_turn(void *ctx)
{
    struct script *s = ctx;

    return !work_over(&s->v->work[WORK_USER], mono_now().v - s->begun > stage_ns(s->v));
}

void validate_run_user(struct validate *v)
{
    struct script s = {.v = v, .run = &v->run[VALIDATE_USER], .begun = mono_now().v};
    struct record_take take = {.conf = &v->conf,
                               .ids = &v->ids,
                               .n_pid = 1,
                               .on_exec = true,
                               .rate = USER_HZ,
                               .rate_given = true,
                               .turn = user_turn,
                               .ctx = &s};
    struct work *w = &v->work[WORK_USER];
    struct err err = {};
    int64_t stolen = stolen_ns();
    uint32_t pid;
    int r;

    s.run->tried = true;
    r = batcher_open(&s, &err);
    if (r == 0)
        r = work_fork(v, WORK_USER, &err);
    pid = (uint32_t)w->child.pid;
    take.pid = &pid;
    take.batcher = s.batcher;
    if (r == 0)
        r = record_user_open(&s.taker.user, &take, s.run->why, sizeof s.run->why, &err);
    if (r == 0) {
        s.run->note = record_user_why(s.taker.user);
        r = work_go(w, (uint64_t)NS_PER_S / record_user_rate(s.taker.user), &err);
    } else if (w->child.pid > 0) {
        (void)kill(w->child.pid, SIGKILL);
        (void)record_child_ended(&w->child, true);
    }
    if (r == 0)
        r = record_user_run(s.taker.user, &err);
    works_end(v);
    w->stolen = stolen_ns() - stolen;
    if (s.taker.user)
        record_user_get_stats(s.taker.user, &s.run->stats);
    if (s.batcher)
        batcher_stop(s.batcher);
    if (r == 0)
        batches_read(&s, VALIDATE_USER, &err);
    s.run->ran = r == 0 && !s.failed;
    if (!s.run->ran && !s.run->why[0])
        (void)snprintf(s.run->why, sizeof s.run->why, "%s", err.msg);
    record_take_close(&s.taker);
    if (s.batcher)
        batcher_free(s.batcher);
}

void validate_run_oracle(struct validate *v)
{
    struct source_run *run = &v->run[VALIDATE_ORACLE];
    char work[] = "photos", load[] = "-l", all[] = "100", limit[] = "-s", most[] = "60", o[] = "-o";
    char null[16];
    char *args[] = {v->workload, o, null, work, load, all, limit, most, NULL};
    struct oracle_opts opts = {.period_ns = 5025125, .seconds = v->quick ? 2 : 10, .warm = 0.5};
    struct record_child child;
    struct err err = {};
    int fd = memfd_create("strata-workload", 0);

    run->tried = true;
    (void)snprintf(null, sizeof null, "%d", fd);
    if (fd >= 0 && record_child_start(&child, args, &v->before, &err) == 0) {
        opts.child = child.pid;
        if (record_child_go(&child, &err) == 0)
            run->ran = oracle_run(&opts, &v->oracle, &err) == 0;
        if (!v->oracle.ended) {
            (void)kill(child.pid, SIGKILL);
            (void)waitpid(child.pid, NULL, 0);
        }
    }
    if (!run->ran)
        (void)snprintf(run->why, sizeof run->why, "%s", err.msg);
    if (fd >= 0)
        (void)close(fd);
}
