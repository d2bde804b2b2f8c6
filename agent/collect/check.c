// SPDX-License-Identifier: Apache-2.0
#include "agent/collect/check.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/file/perfmap.h"
#include "agent/file/procfile.h"
#include "agent/name/ksym.h"
#include "agent/name/names.h"
#include "agent/proc/ids.h"
#include "agent/proc/proc.h"
#include "agent/source/source_cpu.h"
#include "agent/source/source_user.h"
#include "base/time.h"

#define INITIAL_PIDNS STR("pid:[4026531836]") /* PROC_PID_INIT_INO */
#define ROOT_CGROUPNS STR("cgroup:[4026531835]")
#define PERIOD_NS     1000003
#define TABLES_NS     (10 * NS_PER_S)
#define TRY_NS        (5 * NS_PER_MS)
#define SPIN_NS       (200 * NS_PER_MS) /* CPU time */
#define SPIN_MOST_NS  (10 * NS_PER_S)   /* where others have the CPUs */
#define RIGHT_PERCENT 95
#define OWN_PERIOD_NS (20 * NS_PER_MS)

[[gnu::format(printf, 5, 6)]] static void add(struct check *c, const char *name,
                                              enum bpf_probe_state state, const char *remedy,
                                              const char *fmt, ...)
{
    struct bpf_probe_item *i;
    va_list ap;

    if (c->n == CHECK_MAX)
        return;
    i = &c->item[c->n++];
    *i = (struct bpf_probe_item){.name = name, .state = state};
    va_start(ap, fmt);
    (void)vsnprintf(i->why, sizeof i->why, fmt, ap); // NOLINT(clang-analyzer-valist.Uninitialized)
    va_end(ap);
    (void)snprintf(i->remedy, sizeof i->remedy, "%s", remedy);
    if (state > c->worst)
        c->worst = state;
}

static void check_link(struct check *c, const char *proc, const char *link, struct str want,
                       const char *name, enum bpf_probe_state otherwise, const char *why,
                       const char *remedy)
{
    struct buf b;

    buf_init(&b, 4096);
    if (procfile_link(proc, link, &b, NULL) == 0 && !str_eq(buf_view(&b), want))
        add(c, name, otherwise, remedy, "%s", why);
    else
        add(c, name, BPF_PROBE_OK, "", "%s", "");
    buf_deinit(&b);
}

static void check_kallsyms(struct check *c, const char *proc, const char *sys)
{
    struct ksym *k = ksym_new(proc, sys);

    if (strcmp(ksym_state(k), "ok") == 0)
        add(c, "kallsyms", BPF_PROBE_OK, "", "%s", "");
    else
        add(c, "kallsyms", BPF_PROBE_DEGRADED, "grant CAP_SYSLOG; kernel.kptr_restrict at most 1",
            "%s: kernel frames stay raw addresses", ksym_state(k));
    ksym_free(k);
}

static void check_state_dir(struct check *c, const char *state_dir)
{
    struct ids ids;

    ids_load(state_dir, "/etc", &ids);
    if (ids.kept)
        add(c, "state_dir", BPF_PROBE_OK, "", "%s", "");
    else
        add(c, "state_dir", BPF_PROBE_DEGRADED, "create it, mode 0700, or give --state-dir",
            "%s: every start is a new agent", ids.why);
}

void check_add(struct check *c, const char *name, enum bpf_probe_state state, const char *remedy,
               const char *why)
{
    add(c, name, state, remedy, "%s", why);
}

void check_run(const char *proc, const char *sys, const char *state_dir, bool no_bpf_loop,
               struct check *ret)
{
    struct bpf_probe p = {};

    bpf_load_probe(no_bpf_loop, &p);
    for (uint32_t i = 0; i < p.n && ret->n < CHECK_MAX; i++)
        ret->item[ret->n++] = p.item[i];
    if (p.worst > ret->worst)
        ret->worst = p.worst;
    check_link(ret, proc, "self/ns/pid", INITIAL_PIDNS, "pid_namespace", BPF_PROBE_IMPOSSIBLE,
               "BPF sees the host's pids, this is another pid namespace",
               "run with the host's pid namespace (--pid=host)");
    check_link(ret, proc, "self/ns/cgroup", ROOT_CGROUPNS, "cgroup_namespace", BPF_PROBE_DEGRADED,
               "paths are relative to another cgroup namespace: no container names",
               "run with the host's cgroup namespace (--cgroupns=host)");
    check_kallsyms(ret, proc, sys);
    if (state_dir)
        check_state_dir(ret, state_dir);
}

/* ---- self-test ----------------------------------------------------------------------------- */

static volatile uint64_t spin_sink;

/* Four frames that are really there: nothing is inlined, no call is the last thing done. */
[[gnu::noinline]] static void check_spin_leaf(int64_t until)
{
    while (mono_now().v < until) {
        for (unsigned i = 0; i < 100000; i++)
            spin_sink += i;
    }
    spin_sink++;
}

[[gnu::noinline]] static void check_spin_inner(int64_t until)
{
    check_spin_leaf(until);
    spin_sink++;
}

[[gnu::noinline]] static void check_spin_middle(int64_t until)
{
    check_spin_inner(until);
    spin_sink++;
}

[[gnu::noinline]] static void check_spin_outer(int64_t until)
{
    check_spin_middle(until);
    spin_sink++;
}

struct self_test {
    struct perfmap *perfmap;
    struct proc_table *procs;
    struct source_cpu *cpu;
    struct names *names;
    uint32_t tgid, tid;
    int64_t from, to; /* of the spin, CLOCK_MONOTONIC; samples beside it are of other code */
    uint64_t samples, whole, named;
};

static void on_event(void *ctx, const struct perfmap_event *e)
{
    struct self_test *t = ctx;

    proc_event(t->procs, e);
}

static bool frame_is(struct self_test *t, uint64_t w, const char *name)
{
    struct binary *b = (w & SA_W_TAG) == SA_W_NATIVE ? binary_by_id(SA_W_BIN(w)) : NULL;
    struct buf out;
    bool is;

    if (!b)
        return false;
    buf_init(&out, 65536);
    names_native(t->names, b, SA_W_ADDR(w), &out);
    is = str_eq(buf_view(&out), str_c(name));
    buf_deinit(&out);
    (void)binary_unref(b);
    return is;
}

static bool on_sample(void *ctx, const struct sa_ev *ev, real_ns at)
{
    static const char *const want[] = {"check_spin_leaf", "check_spin_inner", "check_spin_middle",
                                       "check_spin_outer"};
    struct self_test *t = ctx;
    const uint64_t *user = ev->w + ev->nk;

    (void)at;
    /* this thread's: another one of ours builds tables */
    if (ev->tgid != t->tgid || ev->tid != t->tid || (int64_t)ev->t_ns < t->from ||
        (int64_t)ev->t_ns >= t->to)
        return true;
    t->samples++;
    t->whole += ev->stop == SA_S_END;
    if (ev->stop != SA_S_END)
        return true;
    for (uint32_t i = 0; i + 4 <= ev->nu && i < 8; i++) { /* the leaf may be in the clock call */
        if (frame_is(t, user[i], want[0])) {
            t->named += frame_is(t, user[i + 1], want[1]) && frame_is(t, user[i + 2], want[2]) &&
                        frame_is(t, user[i + 3], want[3]);
            return true;
        }
    }
    return true;
}

static int turn(struct self_test *t, struct err *err)
{
    const struct source_sink sink = {on_sample, t};
    int64_t now = mono_now().v;
    struct proc *p;

    perfmap_drain(t->perfmap, now, on_event, t);
    proc_tick(t->procs, now);
    while ((p = proc_next_changed(t->procs))) {
        if (!p->kthread)
            TRY(tables_publish(source_cpu_tables(t->cpu), p, err));
    }
    return source_cpu_poll(t->cpu, &sink, err);
}

/* Spins for so much CPU time and counts its samples anew. */
static int spin(struct self_test *t, int64_t least, struct err *err)
{
    int64_t until = thread_cpu_ns() + least, latest = mono_now().v + SPIN_MOST_NS;

    t->samples = t->whole = t->named = 0;
    do {
        t->from = mono_now().v;
        t->to = t->from + TRY_NS;
        check_spin_outer(t->to);
        TRY(turn(t, err));
    } while (thread_cpu_ns() < until && mono_now().v < latest);
    return 0;
}

static int self_test(struct self_test *t, bool no_bpf_loop, struct source_account *ret,
                     struct err *err)
{
    const struct proc_conf pc = {.proc = "/proc"};
    const struct source_cpu_opts so = {.period_ns = PERIOD_NS, .no_bpf_loop = no_bpf_loop};
    const struct names_conf nc = {
        .cache = UINT64_C(16) << 20, .proc = "/nowhere", .sys = "/nowhere"};
    int64_t end;

    t->tgid = (uint32_t)getpid();
    t->tid = (uint32_t)gettid();
    t->names = names_new(&nc);
    t->procs = proc_new(&pc);
    TRY(perfmap_open(&t->perfmap, err));
    if (!proc_find_at(t->procs, t->tgid, mono_now().v, mono_now().v))
        return err_set(err, -ESRCH, "our own process is not in /proc");
    TRY(source_cpu_open(&t->cpu, &so, err));
    end = mono_now().v + TABLES_NS;
    do { /* until our own unwind tables are there, which the first samples are without */
        TRY(spin(t, TRY_NS, err));
    } while (t->named == 0 && mono_now().v < end);
    source_cpu_account(t->cpu, real_now(), ret);
    TRY(spin(t, SPIN_NS, err));
    source_cpu_account(t->cpu, real_now(), ret);
    return 0;
}

void check_self_test(struct check *c, bool no_bpf_loop)
{
    struct self_test t = {};
    struct source_account a = {};
    struct err err = {};
    int r = self_test(&t, no_bpf_loop, &a, &err);

    source_cpu_close(t.cpu);
    perfmap_close(t.perfmap);
    proc_free(t.procs);
    names_free(t.names);
    if (r < 0)
        add(c, "self_test", BPF_PROBE_IMPOSSIBLE, "", "%s", err.msg);
    else if (!a.identity_ok)
        add(c, "self_test", BPF_PROBE_IMPOSSIBLE, "", "%s", a.identity_text);
    else if (t.named == 0)
        add(c, "self_test", BPF_PROBE_IMPOSSIBLE, "",
            "%llu samples of a spin, %llu whole, none with its four functions",
            (unsigned long long)t.samples, (unsigned long long)t.whole);
    else
        add(c, "self_test",
            100 * t.named < RIGHT_PERCENT * t.samples ? BPF_PROBE_DEGRADED : BPF_PROBE_OK, "",
            "%llu of %llu stacks of a known spin right", (unsigned long long)t.named,
            (unsigned long long)t.samples);
}

/* ---- without BPF --------------------------------------------------------------------------- */

static void try_own(uint32_t pid, struct check_own *ret)
{
    const struct proc_conf pc = {.proc = "/proc"};
    struct source_user_opts o = {.period_ns = OWN_PERIOD_NS, .pid = &pid, .n_pid = 1};
    struct source_user *s = NULL;
    struct err err = {};
    char why[1024];

    o.procs = proc_new(&pc);
    ret->works = source_user_choose(&s, &o, why, sizeof why, &err) == 0;
    if (ret->works)
        (void)snprintf(ret->why, sizeof ret->why, "strata record samples them by %s",
                       source_user_kind(s) == SOURCE_USER_PERF ? "perf" : "ptrace");
    else
        (void)snprintf(ret->why, sizeof ret->why, "%s", err.msg);
    source_user_close(s);
    proc_free(o.procs);
}

void check_own(struct check_own *ret)
{
    pid_t pid = fork();

    *ret = (struct check_own){};
    if (pid == 0) {
        (void)pause();
        _exit(0);
    }
    if (pid < 0) {
        (void)snprintf(ret->why, sizeof ret->why, "fork: %s", strerrordesc_np(errno));
        return;
    }
    try_own((uint32_t)pid, ret);
    (void)kill(pid, SIGKILL);
    (void)waitpid(pid, NULL, 0);
}

void check_own_add(struct check *c, const struct check_own *own)
{
    c->own = own->works;
    if (own->works)
        add(c, "own_processes", BPF_PROBE_OK, "", "%s", own->why);
    else
        add(c, "own_processes", BPF_PROBE_IMPOSSIBLE, "", "%s", own->why);
}

/* ---- saying it ----------------------------------------------------------------------------- */

void check_reason(const struct check *c, char ret[static 384])
{
    for (uint32_t i = 0; i < c->n; i++) {
        const struct bpf_probe_item *m = &c->item[i];

        if (m->state != c->worst)
            continue;
        (void)snprintf(ret, 384, "%s: %s%s%s", m->name, m->why, m->remedy[0] ? "; " : "",
                       m->remedy);
        return;
    }
    (void)snprintf(ret, 384, "ok");
}

void check_print(const struct check *c, FILE *to)
{
    static const char *const word[] = {"ok", "degraded", "impossible"};
    char reason[384];

    for (uint32_t i = 0; i < c->n; i++) {
        const struct bpf_probe_item *m = &c->item[i];

        if (m->why[0] || m->remedy[0])
            (void)fprintf(to, "%-24s %-11s %s%s%s\n", m->name, word[m->state], m->why,
                          m->remedy[0] ? " -- " : "", m->remedy);
        else
            (void)fprintf(to, "%-24s %s\n", m->name, word[m->state]);
    }
    check_reason(c, reason);
    if (c->worst == BPF_PROBE_IMPOSSIBLE)
        (void)fprintf(to, "no BPF here: %s\n", reason);
}

int check_status(const struct check *c)
{
    if (c->worst == BPF_PROBE_IMPOSSIBLE)
        return c->own ? 2 : 77;
    return c->worst == BPF_PROBE_OK ? 0 : 1;
}
