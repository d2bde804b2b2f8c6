// SPDX-License-Identifier: Apache-2.0
/*
 * userstat [-k perf|stops|choose] [-r HZ] [-s SECONDS] [-b STACK-BYTES] [-L]
 *          (-p PID... | -- COMMAND...)
 *
 * The source without privileges, from tick to stack, without a batch. Prints refusals as they are
 * said, one line per window, "function NS" for the time in each function (leaf) and a line of
 * totals, all as key=value. -L: libdw unwinds each sample of the process, too; a line says how the
 * chains compare. Ends after the time or with the processes. Exit 0; 1 the identity did
 * not hold; 125 no way to sample; 2 usage or another error.
 */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "agent/cmd/dwchain.h"
#include "agent/name/names.h"
#include "agent/source/source_user_private.h"
#include "base/arena.h"
#include "base/map.h"
#include "base/time.h"

enum {
    MAX_PIDS = 64,
    REFUSED = 125,
};

struct tool {
    struct source_user *src;
    struct proc_table *procs;
    struct names *names;
    struct map leaf;  /* word -> ns */
    struct map chain; /* hash of the names -> ns */
    uint64_t n, ns, stop[16], window_ns, tids, pids;
    struct map tid, pid;
    struct dwchain *dw; /* of dw_pid, while its mappings are of dw_gen */
    uint32_t dw_pid, dw_gen;
    bool compare;
    uint64_t verdict[DWCHAIN_N];
    uint64_t counter, hidden, lost, weight, missed, bad;
};

static bool on_sample(void *ctx, const struct sa_ev *ev, real_ns t)
{
    struct tool *k = ctx;
    uint64_t *slot;

    (void)t;
    (void)map_at(&k->leaf, ev->nu ? ev->w[0] : UINT64_MAX, &slot);
    *slot += ev->weight_ns;
    k->tids += map_at(&k->tid, ev->tid, &slot) == MAP_ADDED;
    k->pids += map_at(&k->pid, ev->tgid, &slot) == MAP_ADDED;
    k->n++;
    k->ns += ev->weight_ns;
    k->window_ns += ev->weight_ns;
    k->stop[ev->stop & 15]++;
    return true;
}

static void tap(void *ctx, const struct user_sample *u, const struct sa_ev *ev)
{
    struct tool *k = ctx;
    const struct proc *p = proc_find(k->procs, u->pid);
    enum dwchain_verdict v;

    if (!p || p->dead || ev->stop == SA_S_NOMAP)
        return;
    if (!k->dw || k->dw_pid != u->pid || k->dw_gen != p->gen) {
        (void)dwchain_close(k->dw);
        k->dw = dwchain_open(u->pid);
        k->dw_pid = u->pid;
        k->dw_gen = p->gen;
    }
    if (!k->dw)
        return;
    v = dwchain_compare(k->dw, p, &u->regs, &u->stack, ev->w + ev->nk, ev->nu);
    if (v == DWCHAIN_OURS && ev->stop == SA_S_READFAULT)
        v = DWCHAIN_DUMP; /* what we lacked was not copied either */
    k->verdict[v]++;
}

static void account(struct tool *k)
{
    struct source_account a;

    source_user_account(k->src, real_now(), &a);
    if (a.weight_ns != k->window_ns || a.covers.t1.v < a.covers.t0.v)
        k->bad++;
    k->window_ns = 0;
    k->counter += a.counter_ns;
    k->hidden += a.kernel_hidden;
    k->lost += (uint64_t)a.ring_full.weight;
    k->weight += a.weight_ns;
    k->missed += (uint64_t)a.missed.weight;
    (void)printf("window received=%" PRIu64 " weight_ns=%" PRIu64 " counter_ns=%" PRIu64
                 " hidden_ns=%" PRIu64 " lost_ns=%" PRId64 " pause_ns=%" PRIu64 " period=%" PRId64
                 " width=%u\n",
                 a.received, a.weight_ns, a.counter_ns, a.kernel_hidden, a.ring_full.weight,
                 a.pause_ns, a.period, a.width);
}

static void print_leaves(struct tool *k)
{
    uint32_t pos = 0;
    uint64_t w, ns;
    struct buf b;

    buf_init(&b, 65536);
    while (map_next(&k->leaf, &pos, &w, &ns)) {
        struct binary *bin = (w & SA_W_TAG) == SA_W_NATIVE ? binary_by_id(SA_W_BIN(w)) : NULL;

        buf_reset(&b);
        if (bin)
            (void)names_native(k->names, bin, SA_W_ADDR(w), &b);
        (void)binary_unref(bin);
        (void)printf("leaf %.*s %" PRIu64 "\n", STR_ARG(buf_view(&b)), ns);
    }
    buf_deinit(&b);
}

static int loop(struct tool *k, double seconds, struct err *err)
{
    const struct source_sink sink = {on_sample, k};
    int64_t end = mono_now().v + (int64_t)(seconds * 1e9), window = mono_now().v + NS_PER_S;
    int64_t turn = source_user_turn_ns(k->src), next = mono_now().v;
    struct source_user_stats st;

    while (mono_now().v < end && source_user_alive(k->src)) {
        struct timespec nap;

        TRY(source_user_poll(k->src, &sink, err));
        if (mono_now().v >= window) {
            account(k);
            window += NS_PER_S;
        }
        next += turn;
        if (next < mono_now().v)
            next = mono_now().v;
        nap = (struct timespec){.tv_sec = next / NS_PER_S, .tv_nsec = next % NS_PER_S};
        (void)clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &nap, NULL);
    }
    TRY(source_user_finish(k->src, &sink, err));
    account(k);
    source_user_get_stats(k->src, &st);
    print_leaves(k);
    (void)printf("total kind=%s samples=%" PRIu64 " weight_ns=%" PRIu64 " lost_ns=%" PRIu64
                 " hidden_ns=%" PRIu64 " counter_ns=%" PRIu64 " end=%" PRIu64 " tids=%" PRIu64
                 " pids=%" PRIu64 " stops=%" PRIu64 " pause_ns=%" PRIu64 " pause_max_ns=%" PRIu64
                 " halved=%" PRIu64 " missed_ns=%" PRIu64 " bad=%" PRIu64,
                 source_user_kind(k->src) == SOURCE_USER_PERF ? "perf" : "stops", k->n, k->weight,
                 k->lost, k->hidden, k->counter, k->stop[0], k->tids, k->pids, st.stops,
                 st.pause_ns, st.pause_max_ns, st.halved, k->missed, k->bad);
    for (int i = 1; i < SA_S_N; i++)
        if (k->stop[i])
            (void)printf(" stop_%d=%" PRIu64, i, k->stop[i]);
    (void)printf("\n");
    if (k->compare)
        (void)printf("libdw same=%" PRIu64 " dump=%" PRIu64 " theirs=%" PRIu64 " ours=%" PRIu64
                     " differ=%" PRIu64 "\n",
                     k->verdict[DWCHAIN_SAME], k->verdict[DWCHAIN_DUMP], k->verdict[DWCHAIN_THEIRS],
                     k->verdict[DWCHAIN_OURS], k->verdict[DWCHAIN_DIFFER]);
    return k->bad || k->weight + k->lost + k->hidden + k->missed != k->counter;
}

static pid_t start_child(char **argv, int *ret_go)
{
    int go[2];
    pid_t p;
    char c;

    if (pipe(go) < 0)
        return -1;
    p = fork();
    if (p == 0) {
        (void)close(go[1]);
        (void)!read(go[0], &c, 1);
        (void)execvp(argv[0], argv);
        (void)fprintf(stderr, "userstat: %s: %s\n", argv[0], strerrordesc_np(errno));
        _exit(127);
    }
    (void)close(go[0]);
    *ret_go = go[1];
    return p;
}

static int open_source(struct tool *k, const char *kind, const struct source_user_opts *o)
{
    struct err err = {};
    char why[1024] = "";
    int r;

    if (strcmp(kind, "choose") == 0)
        r = source_user_choose(&k->src, o, why, sizeof why, &err);
    else
        r = source_user_open(
            &k->src, strcmp(kind, "perf") == 0 ? SOURCE_USER_PERF : SOURCE_USER_STOPS, o, &err);
    (void)printf("%s", why);
    if (r < 0)
        (void)fprintf(stderr, "userstat: %s\n", err.msg);
    return r;
}

static int run(struct tool *k, const char *kind, struct source_user_opts *o, double seconds,
               char **command)
{
    struct err err = {};
    struct rusage ru;
    int go = -1, status, r;
    uint32_t child;

    if (*command) {
        child = (uint32_t)start_child(command, &go);
        *o = (struct source_user_opts){.period_ns = o->period_ns,
                                       .pid = &child,
                                       .n_pid = 1,
                                       .on_exec = true,
                                       .procs = k->procs,
                                       .tap = o->tap,
                                       .tap_ctx = k,
                                       .stack_bytes = o->stack_bytes};
    }
    r = open_source(k, kind, o);
    if (go >= 0)
        (void)close(go);
    if (r < 0)
        return r == -EACCES || r == -EPERM || r == -ENOSYS ? REFUSED : 2;
    (void)printf("ready\n");
    r = loop(k, seconds, &err);
    if (r < 0)
        (void)fprintf(stderr, "userstat: %s\n", err.msg);
    if (*command) {
        if (source_user_alive(k->src)) /* the time is over */
            (void)kill((pid_t)*o->pid, SIGKILL);
        (void)waitpid((pid_t)*o->pid, &status, 0);
        (void)getrusage(RUSAGE_CHILDREN, &ru);
        (void)printf("rusage user_ns=%" PRId64 " system_ns=%" PRId64 "\n",
                     ru.ru_utime.tv_sec * NS_PER_S + ru.ru_utime.tv_usec * 1000,
                     ru.ru_stime.tv_sec * NS_PER_S + ru.ru_stime.tv_usec * 1000);
    }
    return r < 0 ? 2 : r;
}

int main(int argc, char **argv)
{
    static struct tool k;
    const struct proc_conf pc = {.proc = "/proc"};
    const struct names_conf nc = {
        .cache = UINT64_C(64) << 20, .debug_dirs = "", .proc = "/nowhere", .sys = "/nowhere"};
    struct source_user_opts o = {.period_ns = 10101010};
    uint32_t pid[MAX_PIDS];
    const char *kind = "choose";
    double seconds = 3600;
    uint64_t v = 0;
    int c, r;

    while ((c = getopt(argc, argv, "+k:r:s:p:b:L")) != -1) {
        if (c == 'k')
            kind = optarg;
        else if (c == 'L')
            k.compare = true;
        else if (c == 's')
            seconds = strtod(optarg, NULL);
        else if (c == '?' || !str_u64(str_c(optarg), &v) || o.n_pid == MAX_PIDS)
            return 2;
        else if (c == 'r')
            o.period_ns = 1000000000 / (v ? v : 1);
        else if (c == 'b')
            o.stack_bytes = (uint32_t)v;
        else
            pid[o.n_pid++] = (uint32_t)v;
    }
    if ((optind >= argc) == (o.n_pid == 0))
        return 2;
    (void)setvbuf(stdout, NULL, _IOLBF, 0);
    o.pid = pid;
    o.tap = k.compare ? tap : NULL;
    o.tap_ctx = &k;
    o.procs = k.procs = proc_new(&pc);
    k.names = names_new(&nc);
    r = run(&k, kind, &o, seconds, argv + optind);
    (void)source_user_close(k.src);
    (void)dwchain_close(k.dw);
    (void)proc_free(k.procs);
    (void)names_free(k.names);
    return r;
}
