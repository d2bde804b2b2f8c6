// SPDX-License-Identifier: Apache-2.0
/*
 * oracle [-l] [-p PERIOD_NS] [-s SECONDS] [-w SECONDS] [-v N] -- COMMAND...
 *
 * Same sample, two unwinders. The tick's event writes the registers and the top of the stack of the
 * command's process to its own ring at the very tick that our BPF program unwinds. The copy is
 * unwound with libdw; both chains are compared, address by address. -w: at least so long nothing
 * counts, and until all tables are built that samples asked for. -v: print so many differences. -l:
 * as without bpf_loop().
 * Output: one line of key=value; kinds of difference are counted apart: same        equal dump
 * libdw needed more stack than was copied, or memory that has changed; equal so far ours_STOP   we
 * stopped with that reason, libdw went on; equal so far theirs      libdw stopped with an error, we
 * went on; equal so far differ      another frame at some place unmatched   no record of ours for
 * the sample (ring, noproc of a thread just made) Exit 0, 77 no BPF here, 2 usage or another error.
 */
#include <assert.h>
#include <elfutils/libdwfl.h>
#include <errno.h>
#include <inttypes.h>
#include <linux/perf_event.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/bpf_load.h"
#include "agent/proc.h"
#include "base/arena.h"
#include "base/time.h"

enum {
    RING_PAGES = 1024,
    STACK_BYTES = 65528 - 8 * 60, /* header, registers and stack must fit into 64 KiB */
    MAX_CHAIN = 520,
    MATCH_NS = 200000,
    WARM_MORE_NS = 500000000,
};

static const char *const stop_name[SA_S_N] = {
    "end",    "trunc", "nomap", "notable", "noinfo",  "invalid", "readfault",
    "zeropc", "badsp", "badfp", "noproc",  "kthread", "exiting", "compat32"};

struct ours {
    uint32_t tid;
    uint64_t t;
    uint8_t stop;
    bool fp_used;
    uint32_t n;
    uint64_t w[MAX_CHAIN];
};

struct theirs {
    uint32_t tid;
    uint64_t t, reg[17]; /* DWARF order, 16: rip */
    uint64_t stack_at, n_stack;
    const uint8_t *stack;
    bool missing; /* memory was asked for that is not in the copy */
    uint32_t n;
    uint64_t pc[MAX_CHAIN];
};

struct oracle {
    uint64_t period;
    double seconds, warm;
    uint32_t verbose;
    bool no_loop;
    pid_t child;
    struct bpf_load *bpf;
    struct tables *tables;
    struct perfmap *perf;
    struct proc_table *procs;
    Dwfl *dwfl;
    void **ring;          /* by CPU */
    int64_t from, latest; /* samples count from there; never later than latest */
    struct ours *ours;    /* since `from`, not yet matched */
    size_t n_ours, cap_ours;
    struct theirs cur;
    uint64_t same, dump, theirs_stop, differ, unmatched, stop[SA_S_N], samples, fp_used;
};

/* ---- our chain ------------------------------------------------------------------------------ */

/* Does the word stand for this address of the process? A file may be mapped more than once. */
static bool word_is(const struct proc *p, uint64_t w, uint64_t pc)
{
    const struct proc_map *m;

    if ((w & SA_W_TAG) == SA_W_RAW)
        return (w & ~SA_W_TAG) == pc;
    m = proc_map_find(p, pc);
    return m && m->bin && m->bin->id == SA_W_BIN(w) && pc - m->bias == SA_W_ADDR(w);
}

static void on_record(void *ctx, const struct sa_ev *ev)
{
    struct oracle *o = ctx;
    const struct proc *p;
    struct ours *u;

    if (ev->tgid != (uint32_t)o->child)
        return;
    p = proc_find(o->procs, ev->tgid);
    if (ev->stop == SA_S_NOTABLE && ev->nu) {
        struct binary *b = binary_by_id(SA_W_BIN(ev->w[ev->nk + ev->nu - 1]));

        if (b)
            tables_want(o->tables, b);
        (void)binary_unref(b);
        if ((int64_t)ev->t_ns < o->from && (int64_t)ev->t_ns + WARM_MORE_NS > o->from &&
            o->from < o->latest)
            o->from = (int64_t)ev->t_ns + WARM_MORE_NS;
    }
    if ((int64_t)ev->t_ns < o->from || !p)
        return;
    if (o->n_ours == o->cap_ours) {
        o->cap_ours = o->cap_ours ? o->cap_ours * 2 : 64;
        o->ours = xrealloc(o->ours, o->cap_ours * sizeof *o->ours);
    }
    u = &o->ours[o->n_ours++];
    *u = (struct ours){.tid = ev->tid,
                       .t = ev->t_ns,
                       .stop = ev->stop,
                       .fp_used = (ev->flags & SA_F_FP_USED) != 0};
    for (uint32_t i = ev->nk; i < (uint32_t)ev->nk + ev->nu; i++)
        if ((ev->w[i] & SA_W_TAG) != SA_W_MARK && u->n < MAX_CHAIN)
            u->w[u->n++] = ev->w[i];
}

/* ---- libdw's chain -------------------------------------------------------------------------- */

static pid_t next_thread(Dwfl *dwfl, void *arg, void **thread_arg)
{
    (void)dwfl;
    if (*thread_arg)
        return 0;
    *thread_arg = arg;
    return (pid_t)((struct oracle *)arg)->cur.tid;
}

static bool get_thread(Dwfl *dwfl, pid_t tid, void *arg, void **thread_arg)
{
    (void)dwfl;
    *thread_arg = arg;
    return tid == (pid_t)((struct oracle *)arg)->cur.tid;
}

/* The copy first; other memory (constants, the GOT) from the process itself. */
static bool memory_read(Dwfl *dwfl, Dwarf_Addr at, Dwarf_Word *ret, void *arg)
{
    struct oracle *o = arg;
    struct theirs *c = &o->cur;
    struct iovec to = {ret, sizeof *ret},
                 from = {(void *)(uintptr_t)at, sizeof *ret}; // NOLINT: an address of the target

    (void)dwfl;
    if (at >= c->stack_at && at - c->stack_at + sizeof *ret <= c->n_stack) {
        memcpy(ret, c->stack + (at - c->stack_at), sizeof *ret);
        return true;
    }
    if (at >= c->stack_at && at - c->stack_at < (UINT64_C(8) << 20)) {
        c->missing = true;
        return false;
    }
    return process_vm_readv(o->child, &to, 1, &from, 1, 0) == (ssize_t)sizeof *ret;
}

static bool set_registers(Dwfl_Thread *thread, void *arg)
{
    const struct oracle *o = arg;

    return dwfl_thread_state_registers(thread, 0, 17, o->cur.reg);
}

static int on_frame(Dwfl_Frame *f, void *arg)
{
    struct theirs *c = arg;
    Dwarf_Addr pc;
    bool exact;

    if (!dwfl_frame_pc(f, &pc, &exact) || c->n == MAX_CHAIN)
        return DWARF_CB_ABORT;
    if (!pc)
        return DWARF_CB_ABORT;
    c->pc[c->n++] = pc - (exact ? 0 : 1);
    return DWARF_CB_OK;
}

static int dwfl_start(struct oracle *o)
{
    static const Dwfl_Callbacks cb = {.find_elf = dwfl_linux_proc_find_elf,
                                      .find_debuginfo = dwfl_standard_find_debuginfo};
    static const Dwfl_Thread_Callbacks tcb = {.next_thread = next_thread,
                                              .get_thread = get_thread,
                                              .memory_read = memory_read,
                                              .set_initial_registers = set_registers};

    if (o->dwfl)
        dwfl_end(o->dwfl);
    o->dwfl = dwfl_begin(&cb);
    if (!o->dwfl || dwfl_linux_proc_report(o->dwfl, o->child) ||
        dwfl_report_end(o->dwfl, NULL, NULL) ||
        !dwfl_attach_state(o->dwfl, NULL, o->child, &tcb, o)) {
        (void)fprintf(stderr, "oracle: libdw: %s\n", dwfl_errmsg(-1));
        return -1;
    }
    return 0;
}

/* ---- comparing ------------------------------------------------------------------------------ */

static void print_chain(const char *who, const uint64_t *pc, uint32_t n, uint32_t at)
{
    (void)printf("  %s (%u frames), from %u:", who, n, at);
    for (uint32_t i = at; i < n && i < at + 6; i++)
        (void)printf(" %" PRIx64, pc[i]);
    (void)printf("\n");
}

static void report(struct oracle *o, const char *what, const struct ours *u, uint32_t at)
{
    Dwfl_Module *m;
    const char *name = NULL;
    uint64_t pc = at < o->cur.n ? o->cur.pc[at] : o->cur.n ? o->cur.pc[o->cur.n - 1] : 0;

    if (!o->verbose)
        return;
    o->verbose--;
    m = dwfl_addrmodule(o->dwfl, pc);
    if (m)
        name = dwfl_module_info(m, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
    (void)printf("difference %s at frame %u, stop %s, %" PRIx64 " in %s\n", what, at,
                 stop_name[u->stop], pc, name ? name : "?");
    print_chain("ours", u->w, u->n, at ? at - 1 : 0);
    print_chain("libdw", o->cur.pc, o->cur.n, at ? at - 1 : 0);
}

static void compare(struct oracle *o, const struct ours *u)
{
    const struct theirs *c = &o->cur;
    const struct proc *p = proc_find(o->procs, (uint32_t)o->child);
    uint32_t i = 0;

    assert(p);

    while (i < u->n && i < c->n && word_is(p, u->w[i], c->pc[i]))
        i++;
    o->fp_used += u->fp_used;
    if (i == u->n && i == c->n) {
        o->same++;
    } else if (i < u->n && i < c->n) {
        o->differ++;
        report(o, "differ", u, i);
    } else if (i == c->n && c->missing) {
        o->dump++;
    } else if (i == c->n) {
        o->theirs_stop++;
        report(o, "theirs", u, i);
    } else {
        o->stop[u->stop]++;
        report(o, "ours", u, i);
    }
}

static void on_sample(struct oracle *o)
{
    struct theirs *c = &o->cur;
    uint64_t best = MATCH_NS;
    size_t at = o->n_ours;

    o->samples++;
    for (size_t i = 0; i < o->n_ours; i++) {
        uint64_t d = o->ours[i].t > c->t ? o->ours[i].t - c->t : c->t - o->ours[i].t;

        if (o->ours[i].tid == c->tid && d < best) {
            best = d;
            at = i;
        }
    }
    if (at == o->n_ours) {
        o->unmatched++;
        return;
    }
    c->n = 0;
    c->missing = false;
    (void)dwfl_getthread_frames(o->dwfl, (pid_t)c->tid, on_frame, c);
    compare(o, &o->ours[at]);
}

/* PERF_RECORD_SAMPLE with the sample type of bpf_load.c. */
static void parse_sample(struct oracle *o, const uint8_t *p)
{
    /* perf's order: ax bx cx dx si di bp sp ip flags cs ss r8 .. r15, as DWARF numbers */
    static const int dwarf[20] = {0,  3,  2, 1, 4,  5,  6,  7,  16, -1,
                                  -1, -1, 8, 9, 10, 11, 12, 13, 14, 15};
    struct theirs *c = &o->cur;
    uint64_t v[22], n;

    p += sizeof(struct perf_event_header);
    memcpy(&c->tid, p + 4, 4);
    memcpy(&c->t, p + 8, 8);
    p += 16;
    memcpy(&v[0], p, 8);
    p += 8;
    if (v[0] != PERF_SAMPLE_REGS_ABI_64)
        return;
    memcpy(v, p, 20 * sizeof v[0]);
    p += 20 * sizeof v[0];
    for (int i = 0; i < 20; i++)
        if (dwarf[i] >= 0)
            c->reg[dwarf[i]] = v[i];
    memcpy(&n, p, 8);
    c->stack = p + 8;
    c->stack_at = c->reg[7];
    c->n_stack = 0;
    if (n)
        memcpy(&c->n_stack, p + 8 + n, 8);
    if ((int64_t)c->t >= o->from)
        on_sample(o);
}

static void drain_ring(struct oracle *o, uint32_t cpu)
{
    static uint8_t record[65536];
    struct perf_event_mmap_page *m = o->ring[cpu];
    const uint8_t *data = (const uint8_t *)m + m->data_offset;
    uint64_t head = __atomic_load_n(&m->data_head, __ATOMIC_ACQUIRE), size = m->data_size;

    while (m->data_tail < head) {
        uint64_t at = m->data_tail % size, n;
        struct perf_event_header h;

        memcpy(&h, data + at, sizeof h); /* records are 8-byte aligned: a header never wraps */
        n = h.size < size - at ? h.size : size - at;
        memcpy(record, data + at, n);
        memcpy(record + n, data, h.size - n);
        if (h.type == PERF_RECORD_SAMPLE)
            parse_sample(o, record);
        __atomic_store_n(&m->data_tail, m->data_tail + h.size, __ATOMIC_RELEASE);
    }
}

/* ---- running -------------------------------------------------------------------------------- */

static void on_event(void *ctx, const struct perfmap_event *e)
{
    proc_event(ctx, e);
}

static int round_once(struct oracle *o, struct err *err)
{
    int64_t now = mono_now().v;
    bool changed = false;
    uint32_t gone;
    int r;

    perfmap_drain(o->perf, now - NS_PER_MS, on_event, o->procs);
    proc_tick(o->procs, now);
    for (struct proc *p = proc_next_changed(o->procs); p; p = proc_next_changed(o->procs)) {
        changed |= p->tgid == (uint32_t)o->child;
        TRY(tables_publish(o->tables, p, err));
    }
    while (proc_next_gone(o->procs, &gone))
        tables_unpublish(o->tables, gone);
    if (changed || !o->dwfl)
        (void)dwfl_start(o);
    r = bpf_load_drain(o->bpf, on_record, o);
    if (r < 0)
        return r;
    for (uint32_t i = 0; i < bpf_load_cpus(o->bpf) && o->dwfl; i++)
        if (o->ring[i])
            drain_ring(o, i);
    o->n_ours = 0;
    tables_tick(o->tables);
    /* on a busy machine a table takes a while, and then there are others */
    if (now < o->from && tables_pending(o->tables) && o->from < now + WARM_MORE_NS &&
        o->from < o->latest)
        o->from = now + WARM_MORE_NS;
    return 0;
}

static int open_all(struct oracle *o, struct err *err)
{
    const struct bpf_load_opts lo = {.period_ns = o->period,
                                     .no_bpf_loop = o->no_loop,
                                     .pass_tgid = (uint32_t)o->child,
                                     .pass_stack = STACK_BYTES};
    const struct proc_conf pc = {
        .proc = "/proc", .boot = procread_boot_time("/proc", NULL, NULL), .tick_ns = 10000000};
    struct tables_io io;

    TRY(bpf_load_open(&o->bpf, &lo, err));
    io = bpf_load_tables_io(o->bpf);
    TRY(tables_open(&o->tables, &io, NULL, err));
    TRY(perfmap_open(&o->perf, err));
    o->procs = proc_new(&pc);
    proc_scan(o->procs, mono_now().v);
    o->ring = xcalloc(bpf_load_cpus(o->bpf), sizeof *o->ring);
    for (uint32_t i = 0; i < bpf_load_cpus(o->bpf); i++) {
        void *p;

        if (bpf_load_event_fd(o->bpf, i) < 0)
            continue;
        p = mmap(NULL, (1 + RING_PAGES) * 4096UL, PROT_READ | PROT_WRITE, MAP_SHARED,
                 bpf_load_event_fd(o->bpf, i), 0);
        if (p == MAP_FAILED)
            return err_set(err, -errno, "ring of CPU %u: %s", i, strerror(errno));
        o->ring[i] = p;
    }
    return 0;
}

static int run(struct oracle *o, struct err *err)
{
    int status;

    TRY(open_all(o, err));
    o->from = mono_now().v + (int64_t)(o->warm * 1e9);
    o->latest = o->from + 30 * NS_PER_S;
    while (mono_now().v < o->from + (int64_t)(o->seconds * 1e9)) {
        TRY(round_once(o, err));
        if (waitpid(o->child, &status, WNOHANG) == o->child) {
            o->child = 0;
            break;
        }
        (void)usleep(50000);
    }
    (void)printf("oracle samples=%" PRIu64 " same=%" PRIu64 " dump=%" PRIu64 " theirs=%" PRIu64
                 " differ=%" PRIu64 " unmatched=%" PRIu64 " fp_used=%" PRIu64,
                 o->samples, o->same, o->dump, o->theirs_stop, o->differ, o->unmatched, o->fp_used);
    for (int k = 0; k < SA_S_N; k++)
        if (o->stop[k])
            (void)printf(" ours_%s=%" PRIu64, stop_name[k], o->stop[k]);
    (void)printf("\n");
    return 0;
}

static int usage(void)
{
    (void)fputs(
        "usage: oracle [-l] [-p PERIOD_NS] [-s SECONDS] [-w SECONDS] [-v N] -- COMMAND...\n",
        stderr);
    return 2;
}

static pid_t start(char **argv)
{
    pid_t p = fork();

    if (p == 0) {
        (void)execvp(argv[0], argv);
        (void)fprintf(stderr, "oracle: %s: %s\n", argv[0], strerror(errno));
        _exit(127);
    }
    return p;
}

int main(int argc, char **argv)
{
    static struct oracle o = {.period = 5025125, .seconds = 4, .warm = 2};
    struct err err = {};
    uint64_t v;
    int c, r;

    while ((c = getopt(argc, argv, "+lp:s:w:v:")) != -1) {
        if (c == 's' || c == 'w')
            *(c == 's' ? &o.seconds : &o.warm) = strtod(optarg, NULL);
        else if (c == 'l')
            o.no_loop = true;
        else if (c == '?' || !str_u64(str_c(optarg), &v))
            return usage();
        else if (c == 'p')
            o.period = v;
        else
            o.verbose = (uint32_t)v;
    }
    if (optind >= argc)
        return usage();
    (void)setvbuf(stdout, NULL, _IOLBF, 0);
    o.child = start(argv + optind);
    r = run(&o, &err);
    if (o.child > 0) {
        (void)kill(o.child, SIGKILL);
        (void)waitpid(o.child, NULL, 0);
    }
    if (o.dwfl)
        dwfl_end(o.dwfl);
    (void)tables_close(o.tables);
    (void)bpf_load_close(o.bpf);
    (void)perfmap_close(o.perf);
    (void)proc_free(o.procs);
    if (r < 0) {
        (void)fprintf(stderr, "oracle: %s\n", err.msg);
        return r == -EPERM || r == -EACCES || r == -ENOTSUP || r == -ENOENT ? 77 : 2;
    }
    return 0;
}
