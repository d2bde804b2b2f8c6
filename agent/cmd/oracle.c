// SPDX-License-Identifier: Apache-2.0
#include "agent/cmd/oracle.h"

#include <errno.h>
#include <inttypes.h>
#include <linux/perf_event.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/cmd/dwchain.h"
#include "agent/proc/proc.h"
#include "agent/source/bpf_load.h"
#include "base/arena.h"
#include "base/time.h"

enum {
    RING_BYTES = 1025 * 4096,     /* the page of its head, then the ring */
    STACK_BYTES = 65528 - 8 * 60, /* header, registers and stack must fit into 64 KiB */
    MAX_CHAIN = 520,
    MATCH_NS = 200000,
    WARM_MORE_NS = 500000000,
};

const char *const oracle_stop_name[SA_S_N] = {
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

/* A copied sample. */
struct theirs {
    uint32_t tid;
    uint64_t t;
    struct unwind_regs regs;
    struct stack_copy stack; /* borrowed from the ring's record */
};

struct oracle {
    struct oracle_opts o;
    struct oracle_result *ret;
    struct bpf_load *bpf;
    struct tables *tables;
    struct perfmap *perf;
    struct proc_table *procs;
    struct dwchain *dw;
    void **ring;          /* by CPU */
    int64_t from, latest; /* samples count from there; never later than latest */
    struct ours *ours;    /* since `from`, not yet matched */
    size_t n_ours, cap_ours;
    struct theirs cur;
};

/* ---- our chain ------------------------------------------------------------------------------ */

static void on_record(void *ctx, const struct sa_ev *ev)
{
    struct oracle *o = ctx;
    const struct proc *p;
    struct ours *u;

    if (ev->tgid != (uint32_t)o->o.child)
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

/* ---- comparing ------------------------------------------------------------------------------ */

static void print_chain(FILE *to, const char *who, const uint64_t *pc, uint32_t n, uint32_t at)
{
    (void)fprintf(to, "  %s (%u frames), from %u:", who, n, at);
    for (uint32_t i = at; i < n && i < at + 6; i++)
        (void)fprintf(to, " %" PRIx64, pc[i]);
    (void)fprintf(to, "\n");
}

static void report(struct oracle *o, const char *what, const struct ours *u)
{
    uint32_t n, at;
    const uint64_t *pc = dwchain_last(o->dw, &n, &at);

    if (!o->o.verbose)
        return;
    o->o.verbose--;
    (void)fprintf(o->o.to, "difference %s at frame %u, stop %s\n", what, at,
                  oracle_stop_name[u->stop]);
    print_chain(o->o.to, "ours", u->w, u->n, at ? at - 1 : 0);
    print_chain(o->o.to, "libdw", pc, n, at ? at - 1 : 0);
}

static void compare(struct oracle *o, const struct ours *u)
{
    const struct proc *p = proc_find(o->procs, (uint32_t)o->o.child);
    struct oracle_result *r = o->ret;

    if (!p || !o->dw) {
        r->unmatched++;
        return;
    }
    r->fp_used += u->fp_used;
    switch (dwchain_compare(o->dw, p, &o->cur.regs, &o->cur.stack, u->w, u->n)) {
    case DWCHAIN_SAME:
        r->same++;
        return;
    case DWCHAIN_DUMP:
        r->dump++;
        return;
    case DWCHAIN_THEIRS:
        r->theirs++;
        report(o, "theirs", u);
        return;
    case DWCHAIN_OURS:
        r->stop[u->stop]++;
        report(o, "ours", u);
        return;
    case DWCHAIN_DIFFER:
    case DWCHAIN_N:
        r->differ++;
        report(o, "differ", u);
        return;
    }
}

static void on_sample(struct oracle *o)
{
    uint64_t best = MATCH_NS;
    size_t at = o->n_ours;

    o->ret->samples++;
    for (size_t i = 0; i < o->n_ours; i++) {
        uint64_t d = o->ours[i].t > o->cur.t ? o->ours[i].t - o->cur.t : o->cur.t - o->ours[i].t;

        if (o->ours[i].tid == o->cur.tid && d < best) {
            best = d;
            at = i;
        }
    }
    if (at == o->n_ours)
        o->ret->unmatched++;
    else
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
        if (dwarf[i] >= 0 && dwarf[i] < 16)
            c->regs.reg[dwarf[i]] = v[i];
    c->regs.pc = v[8];
    memcpy(&n, p, 8);
    c->stack = (struct stack_copy){.at = c->regs.reg[7], .p = p + 8, .pid = (uint32_t)o->o.child};
    if (n)
        memcpy(&c->stack.n, p + 8 + n, 8);
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
        changed |= p->tgid == (uint32_t)o->o.child;
        TRY(tables_publish(o->tables, p, err));
    }
    while (proc_next_gone(o->procs, &gone))
        tables_unpublish(o->tables, gone);
    if (changed || !o->dw) {
        (void)dwchain_close(o->dw);
        o->dw = dwchain_open((uint32_t)o->o.child);
    }
    r = bpf_load_drain(o->bpf, on_record, o);
    if (r < 0)
        return r;
    for (uint32_t i = 0; i < bpf_load_cpus(o->bpf); i++)
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
    const struct bpf_load_opts lo = {.period_ns = o->o.period_ns,
                                     .no_bpf_loop = o->o.no_loop,
                                     .pass_tgid = (uint32_t)o->o.child,
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
        p = mmap(NULL, RING_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, bpf_load_event_fd(o->bpf, i),
                 0);
        if (p == MAP_FAILED)
            return err_set(err, -errno, "ring of CPU %u: %s", i, strerrordesc_np(errno));
        o->ring[i] = p;
    }
    return 0;
}

static int run(struct oracle *o, struct err *err)
{
    TRY(open_all(o, err));
    o->from = mono_now().v + (int64_t)(o->o.warm * 1e9);
    o->latest = o->from + 30 * NS_PER_S;
    while (mono_now().v < o->from + (int64_t)(o->o.seconds * 1e9)) {
        TRY(round_once(o, err));
        if (waitpid(o->o.child, NULL, WNOHANG) == o->o.child) {
            o->ret->ended = true;
            break;
        }
        (void)usleep(50000);
    }
    return 0;
}

static void close_all(struct oracle *o)
{
    for (uint32_t i = 0; o->ring && i < bpf_load_cpus(o->bpf); i++)
        if (o->ring[i])
            (void)munmap(o->ring[i], RING_BYTES);
    free(o->ring);
    free(o->ours);
    (void)dwchain_close(o->dw);
    (void)tables_close(o->tables);
    (void)bpf_load_close(o->bpf);
    (void)perfmap_close(o->perf);
    (void)proc_free(o->procs);
}

int oracle_run(const struct oracle_opts *opts, struct oracle_result *ret, struct err *err)
{
    struct oracle o = {.o = *opts, .ret = ret};
    int r;

    *ret = (struct oracle_result){};
    r = run(&o, err);
    close_all(&o);
    return r;
}
