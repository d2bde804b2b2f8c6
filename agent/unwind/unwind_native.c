// SPDX-License-Identifier: Apache-2.0
#include "agent/unwind/unwind_native.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <time.h>

#include "agent/unwind/unwind_rbp.h"
#include "base/arena.h"
#include "base/map.h"
#include "base/time.h"

#ifdef __clang__ /* the record and its words are one piece, as the BPF programs write it */
#pragma clang diagnostic ignored "-Wgnu-variable-sized-type-not-at-end"
#endif
#include "agent/bpf/step.bpf.h"

#define SETTLE_STEP_NS 200000

struct unwind_native {
    struct sa_state state; /* first: the step is given it alone */
    const struct unwind_memory *mem;
    struct tables *tables;
    struct sa_mapent *ents;
    struct sa_pg *pages;
    struct sa_rule *rules;
    struct sa_row *chunk[SA_MAX_CHUNKS]; /* set by the building thread, before a page names it */
    struct map procs;                    /* tgid -> struct sa_proc * */
};

static struct unwind_native *whole(struct sa_state *s)
{
    return (struct unwind_native *)s;
}

/* ---- what the step asks for ------------------------------------------------------------------ */

static inline int sa_read(struct sa_state *s, void *to, u32 n, u64 at)
{
    const struct unwind_memory *m = whole(s)->mem;

    return m->read(m->ctx, to, n, at);
}

static inline const struct sa_mapent *sa_ent(struct sa_state *s, u32 idx)
{
    return idx < SA_MAX_MAPENTS ? &whole(s)->ents[idx] : NULL;
}

static inline const struct sa_pg *sa_page(struct sa_state *s, u32 idx)
{
    return idx < SA_MAX_PAGES ? &whole(s)->pages[idx] : NULL;
}

static inline const struct sa_rule *sa_rule_at(struct sa_state *s, u32 idx)
{
    return idx < SA_MAX_RULES ? &whole(s)->rules[idx] : NULL;
}

static inline void *sa_chunk(struct sa_state *s, u32 chunk)
{
    return chunk < SA_MAX_CHUNKS ? whole(s)->chunk[chunk] : NULL;
}

static inline struct sa_known *sa_known_at(struct sa_state *s, u64 pc)
{
    (void)s;
    (void)pc;
    return NULL;
}

static inline int sa_row(void *chunk, u32 idx, u32 *row)
{
    const struct sa_row *r = chunk;

    if (idx >= SA_CHUNK_ROWS)
        return -1;
    *row = (u32)r[idx].rule << 16 | r[idx].pc_low;
    return 0;
}

/* ---- tables in plain memory ------------------------------------------------------------------ */

static struct sa_proc *proc_of(const struct unwind_native *u, uint32_t tgid)
{
    uint64_t v;

    if (!map_get(&u->procs, tgid, &v))
        return NULL;
    return (struct sa_proc *)(uintptr_t)v; // NOLINT(performance-no-int-to-ptr): a map value
}

static int proc_set(void *ctx, const struct sa_proc *p)
{
    struct unwind_native *u = ctx;
    struct sa_proc *at = proc_of(u, p->tgid);

    if (!at) {
        if (u->procs.n >= SA_MAX_PROCS)
            return -E2BIG;
        at = xcalloc(1, sizeof *at);
        if (map_put(&u->procs, p->tgid, (uint64_t)(uintptr_t)at) == MAP_FULL) {
            free(at);
            return -ENOMEM;
        }
    }
    *at = *p;
    return 0;
}

static int proc_del(void *ctx, uint32_t tgid)
{
    struct unwind_native *u = ctx;
    struct sa_proc *at = proc_of(u, tgid);

    if (!at)
        return -ENOENT;
    (void)map_del(&u->procs, tgid);
    free(at);
    return 0;
}

static int chunk_new(void *ctx, uint32_t first, uint32_t n, struct sa_row **ret)
{
    struct unwind_native *u = ctx;

    for (uint32_t i = 0; i < n; i++)
        ret[i] = u->chunk[first + i] = xcalloc(SA_CHUNK_ROWS, sizeof(struct sa_row));
    return 0;
}

int unwind_native_open(struct unwind_native **ret, const struct tables_opts *opts, struct err *err)
{
    struct unwind_native *u = xcalloc(1, sizeof *u);
    struct tables_io io;
    int r;

    map_init(&u->procs, 0);
    u->ents = xcalloc(SA_MAX_MAPENTS, sizeof *u->ents);
    u->pages = xcalloc(SA_MAX_PAGES, sizeof *u->pages);
    u->rules = xcalloc(SA_MAX_RULES, sizeof *u->rules);
    io = (struct tables_io){.mapents = u->ents,
                            .pgidx = u->pages,
                            .rules = u->rules,
                            .n_mapents = SA_MAX_MAPENTS,
                            .n_pgidx = SA_MAX_PAGES,
                            .n_rules = SA_MAX_RULES,
                            .n_chunks = SA_MAX_CHUNKS,
                            .ctx = u,
                            .proc_set = proc_set,
                            .proc_del = proc_del,
                            .chunk_new = chunk_new};
    r = tables_open(&u->tables, &io, opts, err);
    if (r < 0) {
        (void)unwind_native_close(u);
        return r;
    }
    *ret = u;
    return 0;
}

struct unwind_native *unwind_native_close(struct unwind_native *u)
{
    uint32_t pos = 0;
    uint64_t key, v;

    if (!u)
        return NULL;
    (void)tables_close(u->tables);
    while (map_next(&u->procs, &pos, &key, &v))
        free((void *)(uintptr_t)v); // NOLINT(performance-no-int-to-ptr): a map value
    map_deinit(&u->procs);
    for (uint32_t i = 0; i < SA_MAX_CHUNKS; i++)
        free(u->chunk[i]);
    free(u->ents);
    free(u->pages);
    free(u->rules);
    free(u);
    return NULL;
}

struct tables *unwind_native_tables(struct unwind_native *u)
{
    return u->tables;
}

/* ---- a chain --------------------------------------------------------------------------------- */

static void start(struct sa_state *s, const struct unwind_regs *r)
{
    memset(&s->e, 0, sizeof s->e);
    memcpy(s->reg, r->reg, sizeof s->reg);
    s->pc = r->pc;
    s->sp = r->reg[7];
    s->bp = r->reg[6];
    s->nw = s->depth = s->lastmap = 0;
    s->nshim = s->nlook = 0;
    s->win_n = 0;
    s->fsbase = r->fsbase;
    s->ra = 0;
    s->bp_bad = r->only_pc_sp;
    s->leaf = !r->only_pc_sp;
    s->e.stop = SA_S_TRUNC;
}

/* The frame that the chain ended at needs rbp, which is not known: computed from its code, where a
 * call confirms it. */
static bool recover_rbp(struct sa_state *s)
{
    const struct sa_mapent *m = find_map(s, s->pc - s->ra), *rm;
    uint64_t v[2], above, begin;
    struct binary *b = m && m->bin ? binary_by_id(m->bin) : NULL, *rb = NULL;
    bool ok = false;

    if (b && unwind_rbp_frame(b, s->pc - s->ra - m->bias, &above, &begin) &&
        sa_read(s, v, sizeof v, s->sp + above) == 0) {
        rm = find_map(s, v[1] - 1);
        rb = rm && rm->bin ? binary_by_id(rm->bin) : NULL;
        ok = rb && unwind_rbp_called(rb, v[1] - rm->bias, rm->bin == m->bin ? begin : 0);
    }
    (void)binary_unref(b);
    (void)binary_unref(rb);
    if (!ok)
        return false;
    s->bp = s->sp + above;
    s->bp_bad = 0;
    s->e.flags |= SA_F_FP_USED;
    s->nw--; /* the frame is taken once more */
    s->depth--;
    return true;
}

static void walk(struct sa_state *s, bool unknown_rbp)
{
    for (unsigned i = 0; i < SA_MAX_STEPS; i++) {
        if (step_frame(s) == 0)
            continue;
        if (!unknown_rbp || s->e.stop != SA_S_BADFP || !s->bp_bad || !recover_rbp(s))
            return;
        unknown_rbp = false;
        s->e.stop = SA_S_TRUNC;
    }
}

struct sa_ev *unwind_native(struct unwind_native *u, uint32_t tgid, const struct unwind_regs *regs,
                            const struct unwind_memory *mem)
{
    struct sa_state *s = &u->state;
    const struct sa_proc *p = proc_of(u, tgid);

    start(s, regs);
    u->mem = mem;
    if (p) {
        s->pi = *p;
        s->e.map_gen = p->gen;
        py_start(s);
        walk(s, regs->only_pc_sp);
    } else {
        s->e.stop = SA_S_NOPROC;
        push_raw(s, s->pc);
    }
    s->e.tgid = tgid;
    s->e.nu = (u16)s->nw;
    s->e.npy = p ? (u16)s->npy : 0;
    return &s->e;
}

bool unwind_native_settle(struct unwind_native *u, int64_t wait_ns)
{
    const struct timespec nap = {.tv_nsec = SETTLE_STEP_NS};
    int64_t end = mono_now().v + wait_ns;

    tables_tick(u->tables);
    while (tables_pending(u->tables) > 0) {
        if (mono_now().v >= end)
            return false;
        (void)nanosleep(&nap, NULL);
        tables_tick(u->tables);
    }
    return true;
}

/* The table that the chain stopped for; false: it will not come. */
static bool want_last(struct unwind_native *u, const struct sa_ev *ev)
{
    uint64_t w = sa_last_native(ev);
    struct binary *b = (w & SA_W_TAG) == SA_W_NATIVE ? binary_by_id(SA_W_BIN(w)) : NULL;

    if (!b)
        return false;
    tables_want(u->tables, b);
    (void)binary_unref(b);
    return tables_pending(u->tables) > 0;
}

struct sa_ev *unwind_native_whole(struct unwind_native *u, uint32_t tgid,
                                  const struct unwind_regs *regs, const struct unwind_memory *mem,
                                  int64_t wait_ns)
{
    int64_t end = mono_now().v + wait_ns;
    struct sa_ev *ev = unwind_native(u, tgid, regs, mem);

    while (ev->stop == SA_S_NOTABLE && want_last(u, ev) &&
           unwind_native_settle(u, end - mono_now().v))
        ev = unwind_native(u, tgid, regs, mem);
    return ev;
}

/* ---- memory and registers -------------------------------------------------------------------- */

static int read_process(void *ctx, void *to, uint32_t n, uint64_t at)
{
    const uint32_t *pid = ctx;
    struct iovec l = {to, n},
                 r = {(void *)(uintptr_t)at, n}; // NOLINT(performance-no-int-to-ptr): the target's

    return process_vm_readv((pid_t)*pid, &l, 1, &r, 1, 0) == (ssize_t)n ? 0 : -1;
}

struct unwind_memory unwind_memory_of_process(const uint32_t *pid)
{
    // NOLINTNEXTLINE(performance-no-int-to-ptr): sheds const, it is only read
    return (struct unwind_memory){read_process, (void *)(uintptr_t)pid};
}

struct unwind_regs unwind_regs_of_user(const struct user_regs_struct *r)
{
    return (struct unwind_regs){.pc = r->rip,
                                .fsbase = r->fs_base,
                                .reg = {r->rax, r->rdx, r->rcx, r->rbx, r->rsi, r->rdi, r->rbp,
                                        r->rsp, r->r8, r->r9, r->r10, r->r11, r->r12, r->r13,
                                        r->r14, r->r15}};
}
