// SPDX-License-Identifier: Apache-2.0
/*
 * stackstat [-p PERIOD_NS] [-s SECONDS] [-w SECONDS] [-r RING_BYTES] [-c PERIOD_NS] [-n STACKS]
 *           [-x] [-k] [-e] [-i] [-l] [-f] [-b BYTES] [-N CPUS] [-O FILE] PID...
 *
 * The agent's whole way from tick to stack, without a batch: how the stacks of some processes
 * ended, and the account of the machine. Prints "ready" when it samples, one line per window and
 * process, then totals, all as key=value. -w: stacks count only after so many seconds, when tables
 * are built; accounts always do. -c: change the period in the middle. -n: print that many stacks.
 * -x: exclude the processes. -k: no user stacks. -i: lines of standard input are periods, each in
 * force when the line "period NS" answers. -l: as without bpf_loop(). -f: no frame pointers. -b:
 * budget of tables. -N: sizes as with so many CPUs. -O: the list of online CPUs is this file. Ends
 * after the time, or at SIGTERM. Exit 0; 1 an identity did not hold; 77 no BPF here; 2 usage or
 * another error.
 */
#include <errno.h>
#include <inttypes.h>
#include <malloc.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "agent/file/ehtab.h"
#include "agent/proc/proc.h"
#include "agent/source/source_cpu.h"
#include "base/arena.h"
#include "base/time.h"

enum {
    MAX_PIDS = 64
};

static const char *const stop_name[SA_S_N] = {
    "end",    "trunc", "nomap", "notable", "noinfo",  "invalid", "readfault",
    "zeropc", "badsp", "badfp", "noproc",  "kthread", "exiting", "compat32"};

struct opts {
    uint64_t period, change;
    double seconds, warm;
    uint32_t ring, stacks;
    bool exclude, no_user, broken, asked, no_loop, no_fp;
    uint64_t budget;
    uint32_t fake_cpus;
    const char *online;
};

struct watch {
    uint32_t tgid;
    uint64_t n, weight, gap, stop[16], fp_used, kstack_err, from_kernel, words, kwords;
};

struct tool {
    struct opts o;
    struct source_cpu *src;
    struct perfmap *perf;
    struct proc_table *procs;
    struct watch w[MAX_PIDS];
    uint32_t n_w;
    uint64_t rows; /* weight that the sink got in this window */
    struct source_account sum;
    uint32_t windows, bad;
    int64_t warm_until, warm_latest;
};

static volatile sig_atomic_t stopped;

static void on_term(int sig)
{
    (void)sig;
    stopped = 1;
}

static void print_stack(const struct sa_ev *ev)
{
    (void)printf(
        "stack tid=%u comm=%.16s stop=%s flags=%u weight_ns=%" PRIu64 " t_ns=%" PRIu64 " gap=%u",
        ev->tid, ev->comm, stop_name[ev->stop], ev->flags, ev->weight_ns, ev->t_ns, ev->gap_ticks);
    for (uint32_t i = ev->nk; i < (uint32_t)ev->nk + ev->nu; i++) {
        uint64_t w = ev->w[i];
        struct binary *b = (w & SA_W_TAG) == SA_W_NATIVE ? binary_by_id(SA_W_BIN(w)) : NULL;

        if (b)
            (void)printf(" %.*s+%" PRIx64, STR_ARG(str_basename(b->path)), (uint64_t)SA_W_ADDR(w));
        else
            (void)printf(" %s%" PRIx64, (w & SA_W_TAG) == SA_W_MARK ? "mark:" : "",
                         (uint64_t)(w & ~SA_W_TAG));
        (void)binary_unref(b);
    }
    (void)printf("\n");
}

/* Is it too early for this sample to count? */
static bool warming(struct tool *x, const struct sa_ev *ev)
{
    int64_t t = (int64_t)ev->t_ns, more = t + NS_PER_S / 2;

    if (t >= x->warm_until)
        return false;
    if (ev->stop == SA_S_NOTABLE && more > x->warm_until && x->warm_until < x->warm_latest)
        x->warm_until = more;
    return true;
}

static bool on_sample(void *ctx, const struct sa_ev *ev, real_ns t)
{
    struct tool *x = ctx;

    (void)t;
    x->rows += ev->weight_ns;
    if (ev->stop == SA_S_NOMAP || ev->stop == SA_S_NOPROC) {
        struct proc *p = proc_find_at(x->procs, ev->tgid, (int64_t)ev->t_ns, mono_now().v);

        if (p)
            proc_missed(x->procs, p, mono_now().v);
    }
    if (x->o.broken && x->o.stacks && ev->stop != SA_S_END && ev->stop < SA_S_KTHREAD) {
        x->o.stacks--;
        print_stack(ev);
    }
    for (uint32_t i = 0; i < x->n_w; i++) {
        struct watch *w = &x->w[i];

        if (w->tgid != ev->tgid || warming(x, ev))
            continue;
        w->n++;
        w->weight += ev->weight_ns;
        w->gap += ev->gap_ticks * ev->weight_ns;
        w->stop[ev->stop & 15]++;
        w->fp_used += (ev->flags & SA_F_FP_USED) != 0;
        w->kstack_err += (ev->flags & SA_F_KSTACK_ERR) != 0;
        w->from_kernel += (ev->flags & SA_F_FROM_KERNEL) != 0;
        w->words += ev->nu;
        w->kwords += ev->nk;
        if (x->o.stacks && !x->o.broken) {
            x->o.stacks--;
            print_stack(ev);
        }
    }
    return true;
}

static void on_event(void *ctx, const struct perfmap_event *e)
{
    proc_event(ctx, e);
}

static void publish(struct tool *x)
{
    struct tables *t = source_cpu_tables(x->src);
    uint32_t gone;

    for (struct proc *p = proc_next_changed(x->procs); p; p = proc_next_changed(x->procs))
        (void)tables_publish(t, p, NULL); /* no room is counted, and seen in its stacks */
    while (proc_next_gone(x->procs, &gone))
        tables_unpublish(t, gone);
}

static int round_once(struct tool *x, struct err *err)
{
    const struct source_sink sink = {.sample = on_sample, .ctx = x};
    int64_t now = mono_now().v;

    perfmap_drain(x->perf, now - NS_PER_MS, on_event, x->procs);
    proc_tick(x->procs, now);
    publish(x);
    return source_cpu_poll(x->src, &sink, err);
}

static void add(struct source_account *s, const struct source_account *a)
{
    s->received += a->received;
    s->jitter += a->jitter;
    s->busy_ns += a->busy_ns;
    s->idle_ns += a->idle_ns;
    s->filtered_ns += a->filtered_ns;
    s->weight_ns += a->weight_ns;
    s->missed.n += a->missed.n;
    s->missed.weight += a->missed.weight;
    s->missed_idle.n += a->missed_idle.n;
    s->missed_idle.weight += a->missed_idle.weight;
    s->ring_full.n += a->ring_full.n;
    s->ring_full.weight += a->ring_full.weight;
    s->bpf_ns += a->bpf_ns;
}

static void print_account(const char *what, const struct source_account *a, bool ok)
{
    (void)printf(
        "%s width=%u period_ns=%" PRId64 " received=%" PRIu64 " busy_ns=%" PRIu64
        " idle_ns=%" PRIu64 " jitter_ns=%" PRId64 " filtered_ns=%" PRIu64 " weight_ns=%" PRIu64
        " missed=%" PRIu64 " missed_ns=%" PRId64 " missed_idle=%" PRIu64 " missed_idle_ns=%" PRId64
        " ring_full=%" PRIu64 " ring_full_ns=%" PRId64 " bpf_ns=%" PRIu64 " identity=%s\n",
        what, a->width, a->period, a->received, a->busy_ns, a->idle_ns, a->jitter, a->filtered_ns,
        a->weight_ns, a->missed.n, a->missed.weight, a->missed_idle.n, a->missed_idle.weight,
        a->ring_full.n, a->ring_full.weight, a->bpf_ns, ok ? "ok" : "violated");
}

static void window(struct tool *x)
{
    struct source_account a;
    bool ok;

    source_cpu_account(x->src, real_now(), &a);
    (void)malloc_trim(0); /* as the agent does where it holds too much */
    ok = a.identity_ok && x->rows == a.weight_ns;
    x->rows = 0;
    x->windows++;
    x->bad += !ok;
    add(&x->sum, &a);
    x->sum.width = a.width;
    x->sum.period = a.period;
    print_account("window", &a, ok);
    if (!ok)
        (void)printf("identity \"%s\"\n", a.identity_text);
}

static void print_end(struct tool *x)
{
    struct tables_stats st;
    struct rusage ru;

    for (uint32_t i = 0; i < x->n_w; i++) {
        const struct watch *w = &x->w[i];

        (void)printf("process pid=%u n=%" PRIu64 " weight_ns=%" PRIu64 " gap_ns=%" PRIu64
                     " fp_used=%" PRIu64 " kstack_err=%" PRIu64 " from_kernel=%" PRIu64
                     " words=%" PRIu64 " kwords=%" PRIu64,
                     w->tgid, w->n, w->weight, w->gap, w->fp_used, w->kstack_err, w->from_kernel,
                     w->words, w->kwords);
        for (int k = 0; k < SA_S_N; k++)
            (void)printf(" %s=%" PRIu64, stop_name[k], w->stop[k]);
        (void)printf("\n");
    }
    print_account("total", &x->sum, !x->bad);
    tables_get_stats(source_cpu_tables(x->src), &st);
    (void)getrusage(RUSAGE_SELF, &ru);
    (void)printf("tables built=%" PRIu64 " failed=%" PRIu64 " evicted=%" PRIu64 " bytes=%" PRIu64
                 " rules=%" PRIu64 " pages=%" PRIu64 " procs=%" PRIu64 " mapents=%" PRIu64
                 " no_room=%" PRIu64 " queue_full=%" PRIu64 " known=%" PRIu64 " build_ns=%" PRIu64
                 " map_bytes=%" PRIu64 " rss_kb=%ld cpu_ns=%" PRId64 "\n",
                 st.built, st.failed, st.evicted, st.bytes, st.rules, st.pages, st.procs,
                 st.mapents, st.no_room, st.queue_full, st.known, st.build_ns,
                 source_cpu_map_bytes(x->src), ru.ru_maxrss,
                 (ru.ru_utime.tv_sec + ru.ru_stime.tv_sec) * NS_PER_S +
                     (ru.ru_utime.tv_usec + ru.ru_stime.tv_usec) * NS_PER_US);
    for (int k = 1; k < EHTAB_FAIL_N; k++)
        if (st.failed_why[k])
            (void)printf("failed why=%s n=%" PRIu64 "\n", ehtab_fail_name((enum ehtab_fail)k),
                         st.failed_why[k]);
}

/* 50 ms, or until a period is asked for. */
static int pause_or_change(struct tool *x, struct err *err)
{
    struct pollfd in = {.fd = x->o.asked ? STDIN_FILENO : -1, .events = POLLIN};
    char line[32];
    uint64_t period;

    if (poll(&in, 1, 50) <= 0)
        return 0;
    if (!fgets(line, sizeof line, stdin) ||
        !str_u64((struct str){line, strcspn(line, "\n")}, &period)) {
        x->o.asked = false;
        return 0;
    }
    TRY(round_once(x, err));
    window(x);
    TRY(source_cpu_set_period(x->src, period, err));
    (void)printf("period %" PRIu64 "\n", period);
    return 0;
}

static int run(struct tool *x, struct err *err)
{
    const struct source_cpu_opts so = {.period_ns = x->o.period,
                                       .ring_bytes = x->o.ring,
                                       .no_user = x->o.no_user,
                                       .no_bpf_loop = x->o.no_loop,
                                       .no_fallback_fp = x->o.no_fp,
                                       .table_budget = x->o.budget,
                                       .fake_cpus = x->o.fake_cpus,
                                       .online_path = x->o.online};
    const struct proc_conf pc = {
        .proc = "/proc", .boot = procread_boot_time("/proc", NULL, NULL), .tick_ns = 10000000};
    int64_t begin, next;

    TRY(source_cpu_open(&x->src, &so, err));
    TRY(perfmap_open(&x->perf, err));
    x->procs = proc_new(&pc);
    proc_scan(x->procs, mono_now().v);
    publish(x);
    for (uint32_t i = 0; x->o.exclude && i < x->n_w; i++)
        TRY(tables_exclude(source_cpu_tables(x->src), x->w[i].tgid, true, err));
    (void)printf("ready\n");
    begin = mono_now().v;
    next = begin + NS_PER_S;
    x->warm_until = begin + (int64_t)(x->o.warm * 1e9);
    x->warm_latest = x->warm_until + (x->o.warm > 0 ? 60 * NS_PER_S : 0);
    while (!stopped && (double)(mono_now().v - x->warm_until) < x->o.seconds * 1e9) {
        TRY(pause_or_change(x, err));
        TRY(round_once(x, err));
        if (mono_now().v < next)
            continue;
        window(x);
        next += NS_PER_S;
        if (x->o.change && (double)(mono_now().v - x->warm_until) > x->o.seconds * 5e8) {
            TRY(source_cpu_set_period(x->src, x->o.change, err));
            x->o.change = 0;
        }
    }
    TRY(round_once(x, err));
    window(x);
    print_end(x);
    return 0;
}

static int usage(void)
{
    (void)fputs("usage: stackstat [-p PERIOD_NS] [-c PERIOD_NS] [-s SECONDS] [-w SECONDS] "
                "[-r RING_BYTES] [-n STACKS] [-x] [-k] [-e] [-i] [-l] [-f] [-b BYTES] [-N CPUS] "
                "[-O FILE] PID...\n",
                stderr);
    return 2;
}

int main(int argc, char **argv)
{
    static struct tool x = {.o = {.period = 10101010, .seconds = 2}};
    struct err err = {};
    uint64_t v;
    int o, r;

    while ((o = getopt(argc, argv, "p:c:s:w:r:n:b:N:O:xkeilf")) != -1) {
        if (o == 's' || o == 'w') {
            *(o == 's' ? &x.o.seconds : &x.o.warm) = strtod(optarg, NULL);
            continue;
        }
        if (o == 'O') {
            x.o.online = optarg;
            continue;
        }
        v = 0;
        if (o == '?' || (!strchr("xkeilf", o) && !str_u64(str_c(optarg), &v)))
            return usage();
        if (o == 'p')
            x.o.period = v;
        else if (o == 'c')
            x.o.change = v;
        else if (o == 'r')
            x.o.ring = (uint32_t)v;
        else if (o == 'n')
            x.o.stacks = (uint32_t)v;
        else if (o == 'b')
            x.o.budget = v;
        else if (o == 'N')
            x.o.fake_cpus = (uint32_t)v;
        else if (o == 'l')
            x.o.no_loop = true;
        else if (o == 'f')
            x.o.no_fp = true;
        else if (o == 'x')
            x.o.exclude = true;
        else if (o == 'e')
            x.o.broken = true;
        else if (o == 'i')
            x.o.asked = true;
        else
            x.o.no_user = true;
    }
    for (; optind < argc && x.n_w < MAX_PIDS; optind++) {
        if (!str_u64(str_c(argv[optind]), &v))
            return usage();
        x.w[x.n_w++].tgid = (uint32_t)v;
    }
    (void)setvbuf(stdout, NULL, _IOLBF, 0);
    (void)signal(SIGTERM, on_term);
    r = run(&x, &err);
    (void)source_cpu_close(x.src);
    (void)perfmap_close(x.perf);
    (void)proc_free(x.procs);
    if (r < 0) {
        (void)fprintf(stderr, "stackstat: %s\n", err.msg);
        return r == -EPERM || r == -EACCES || r == -ENOTSUP || r == -ENOENT ? 77 : 2;
    }
    return x.bad ? 1 : 0;
}
