/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The unwinder: maps, one step, and collect(), which fills a record for the current task. Included
 * by each program file after vmlinux_min.h. Everything below it is x86-64.
 *
 * Rules come from .eh_frame (tables in chunks, pgidx, rules), found by the process's mappings
 * (procs, mapents). User space writes rows, then pgidx, then mapents, then procs, and reuses an old
 * range, page entry or chunk 1 s after the swap at the earliest: far longer than a program runs.
 */
#pragma once
#include "agent/bpf/vmlinux_min.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#define SA_BPF_SIDE
#include "agent/bpf/cpu.h"

#define SA_USER_CS32   0x23 /* __USER32_CS of every x86-64 kernel */
#define SA_MAX_STEPS   (SA_MAX_NATIVE + 256)
#define SA_FP_MAX      (1 << 20) /* a larger frame is not believed */
#define SA_SIG_REGS    17	 /* r8 .. r15, rdi, rsi, rbp, rbx, rdx, rax, rcx, rsp, rip */
#define SA_SIG_REGS_AT 40	 /* in struct ucontext, which a signal frame's rsp points to */

struct chunk {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	/* array elements are rounded up to 8 bytes, so each holds two 4-byte rows */
	__uint(max_entries, SA_CHUNK_ROWS / 2);
	__uint(key_size, 4);
	__uint(value_size, 8); /* __type() fails in a nested map definition */
};
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, SA_MAX_CHUNKS);
	__uint(key_size, 4);
	__array(values, struct chunk);
} chunks SEC(".maps");
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, SA_MAX_PROCS);
	__type(key, u32);
	__type(value, struct sa_proc);
} procs SEC(".maps");
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, SA_MAX_MAPENTS);
	__type(key, u32);
	__type(value, struct sa_mapent);
} mapents SEC(".maps");
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, SA_MAX_PAGES);
	__type(key, u32);
	__type(value, struct sa_pg);
} pgidx SEC(".maps");
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, SA_MAX_RULES);
	__type(key, u32);
	__type(value, struct sa_rule);
} rules SEC(".maps");
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4 << 20); /* set at load, by rate and number of CPUs */
} samples SEC(".maps");

struct sa_state {
	u64 pc, sp, bp;
	u64 reg[16]; /* of the interrupted frame, DWARF numbering */
	u64 sig[SA_SIG_REGS];
	u32 nw, depth, lastmap;
	u8 ra;	 /* pc is a return address: look up pc - 1 */
	u8 leaf; /* reg is valid */
	u8 bp_bad;
	struct sa_proc pi;
	struct sa_ev e; /* its words are w */
	u64 w[SA_MAX_WORDS];
};
/* One slot per program kind: a tick can interrupt a program of another kind. */
enum sa_slot {
	SA_SLOT_TICK = 0,
	SA_SLOT_N,
};
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, SA_SLOT_N);
	__type(key, u32);
	__type(value, struct sa_state);
} scratch SEC(".maps");

/* For benchmarks: 0 leaves the user part of stacks out. */
const volatile u32 sa_do_user = 1;

static __always_inline void push(struct sa_state *s, u64 w)
{
	u32 n = s->nw;

	if (n < SA_MAX_WORDS - 1) {
		s->w[n] = w;
		s->nw = n + 1;
	}
}

static __always_inline int read_user(void *to, u32 n, u64 at)
{
	return bpf_probe_read_user(to, n, (void *)at);
}

/* Row idx of a chunk: pc_low in bits 0-15, rule in bits 16-31. */
static __always_inline int row_at(void *chunk, u32 idx, u32 *row)
{
	u32 k = idx >> 1;
	u64 *v = bpf_map_lookup_elem(chunk, &k);

	if (!v)
		return -1;
	*row = idx & 1 ? (u32)(*v >> 32) : (u32)*v;
	return 0;
}

/* The mapping that holds pc, by binary search in the process's range; the last hit first. */
static __always_inline struct sa_mapent *find_map(struct sa_state *s, u64 pc)
{
	u32 lo = 0, hi = s->pi.n, idx = s->lastmap;
	struct sa_mapent *m = bpf_map_lookup_elem(&mapents, &idx);

	if (m && idx && pc >= m->start && pc < m->end)
		return m;
	for (int i = 0; i < 13; i++) { /* 4,096 mappings */
		if (lo >= hi)
			break;
		u32 mid = (lo + hi) >> 1;

		idx = s->pi.maps_off + mid;
		m = bpf_map_lookup_elem(&mapents, &idx);
		if (!m)
			return 0;
		if (m->end <= pc)
			lo = mid + 1;
		else
			hi = mid;
	}
	if (lo >= s->pi.n)
		return 0;
	idx = s->pi.maps_off + lo;
	m = bpf_map_lookup_elem(&mapents, &idx);
	if (!m || pc < m->start || pc >= m->end)
		return 0;
	s->lastmap = idx;
	return m;
}

static __always_inline int stop(struct sa_state *s, u8 why)
{
	s->e.stop = why;
	return 1;
}

/*
 * One frame by rbp, only where nothing better is known. Believed if the frame is plausible and the
 * return address lies in an executable mapping. 0: done; else the state is as before.
 */
static __always_inline int fp_step(struct sa_state *s)
{
	u64 v[2];

	if (s->bp_bad || s->bp < s->sp || (s->bp & 7) || s->bp - s->sp > SA_FP_MAX)
		return SA_S_BADFP;
	if (read_user(v, sizeof v, s->bp))
		return SA_S_READFAULT;
	if (v[1] && !find_map(s, v[1] - 1))
		return SA_S_BADFP;
	s->sp = s->bp + 16;
	s->bp = v[0];
	s->pc = v[1];
	s->ra = 1;
	s->leaf = 0;
	s->e.flags |= SA_F_FP_USED;
	return 0;
}

/* Into a signal frame: the interrupted registers lie in its ucontext, so it is a leaf again. */
static __always_inline int sig_step(struct sa_state *s)
{
	u64 *g = s->sig;

	if (read_user(g, sizeof s->sig, s->sp + SA_SIG_REGS_AT))
		return stop(s, SA_S_READFAULT);
	/* the kernel put its own address there as a return address: no call precedes it */
	u32 at = s->nw - 1;

	if (at < SA_MAX_WORDS)
		s->w[at] += s->ra;
	for (int i = 0; i < 8; i++)
		s->reg[8 + i] = g[i];
	s->reg[5] = g[8];
	s->reg[4] = g[9];
	s->reg[6] = g[10];
	s->reg[3] = g[11];
	s->reg[1] = g[12];
	s->reg[0] = g[13];
	s->reg[2] = g[14];
	s->reg[7] = g[15];
	s->bp = g[10];
	s->sp = g[15];
	s->pc = g[16];
	s->bp_bad = 0;
	s->ra = 0; /* an interrupted instruction, not a return address */
	s->leaf = 1;
	push(s, SA_W_MARK | SA_M_SIGNAL);
	return s->pc ? 0 : stop(s, SA_S_ZEROPC);
}

/* The rule in force at ELF address va of a binary with a table. 0, or why not. */
static __always_inline int find_rule(const struct sa_mapent *m, u64 va, struct sa_rule **ret)
{
	u32 pg = (u32)(va >> 16) - m->first_page, row;

	*ret = 0;
	if (pg >= m->npages)
		return 0; /* before the first FDE or behind the last: no information */
	u32 i = m->pg_base + pg;
	struct sa_pg *g = bpf_map_lookup_elem(&pgidx, &i);

	if (!g)
		return SA_S_NOTABLE;
	u32 at = g->row, n = g->n, chunk = at >> 16;

	if (!n) /* evicted */
		return SA_S_NOTABLE;
	void *c = bpf_map_lookup_elem(&chunks, &chunk);

	if (!c)
		return SA_S_NOTABLE;
	u32 lo = at & 0xffff, hi = lo + n;

	for (int k = 0; k < 15; k++) { /* last row with pc_low <= va; 16,384 rows in a page */
		if (lo + 1 >= hi)
			break;
		u32 mid = (lo + hi) >> 1;

		if (row_at(c, mid, &row))
			return SA_S_NOTABLE;
		if ((row & 0xffff) <= (va & 0xffff))
			lo = mid;
		else
			hi = mid;
	}
	if (row_at(c, lo, &row))
		return SA_S_NOTABLE;
	u32 id = row >> 16;

	*ret = bpf_map_lookup_elem(&rules, &id);
	return 0;
}

/* CFA of rule r, and the return address where it is in a register. 0, or the stop. */
static __always_inline int find_cfa(struct sa_state *s, const struct sa_rule *r, u64 *cfa, u64 *ra)
{
	s64 off = r->off;

	switch (r->kind) {
	case SA_K_RSP:
		*cfa = s->sp + off;
		return 0;
	case SA_K_RBP:
		*cfa = s->bp + off;
		return s->bp_bad ? SA_S_BADFP : 0;
	case SA_K_PLT11:
		*cfa = s->sp + 8 + ((s->pc & 15) >= 11 ? 8 : 0);
		return 0;
	case SA_K_PLT10:
		*cfa = s->sp + 8 + ((s->pc & 15) >= 10 ? 8 : 0);
		return 0;
	case SA_K_DEREF_RBP:
		if (s->bp_bad)
			return SA_S_BADFP;
		return read_user(cfa, 8, s->bp + off) ? SA_S_READFAULT : 0;
	case SA_K_DEREF_RSP:
		return read_user(cfa, 8, s->sp + off) ? SA_S_READFAULT : 0;
	case SA_K_REG:
		*cfa = s->reg[r->reg & 15] + off;
		return s->leaf ? 0 : SA_S_INVALID;
	case SA_K_RAREG:
		*cfa = s->sp + off;
		*ra = s->reg[r->reg & 15];
		return s->leaf ? 0 : SA_S_INVALID;
	default:
		return SA_S_INVALID;
	}
}

/* Apply rule r: to the caller's frame. 0 go on, 1 stopped. */
static __always_inline int rule_step(struct sa_state *s, const struct sa_rule *r)
{
	u64 cfa = 0, ra = 0;
	int e = find_cfa(s, r, &cfa, &ra);

	if (e)
		return stop(s, e);
	if (cfa < s->sp || (cfa == s->sp && r->kind != SA_K_RAREG))
		return stop(s, SA_S_BADSP);
	if (r->kind != SA_K_RAREG && read_user(&ra, 8, cfa - 8))
		return stop(s, SA_S_READFAULT);
	if (r->fpk == SA_FP_UNDEF)
		s->bp_bad = 1;
	else if (r->fpk != SA_FP_SAME) {
		if (r->fpk == SA_FP_RBP && s->bp_bad)
			return stop(s, SA_S_BADFP);
		if (read_user(&s->bp, 8, (r->fpk == SA_FP_CFA ? cfa : s->bp) + (s64)r->fpoff))
			return stop(s, SA_S_READFAULT);
		s->bp_bad = 0;
	}
	s->sp = cfa;
	s->pc = ra;
	s->ra = 1;
	s->leaf = 0;
	return ra ? 0 : stop(s, SA_S_END);
}

static __always_inline int step_frame(struct sa_state *s)
{
	struct sa_rule *r;

	if (s->nw >= SA_MAX_WORDS - 8 || s->depth >= SA_MAX_NATIVE)
		return stop(s, SA_S_TRUNC);
	if (!s->pc)
		return stop(s, SA_S_ZEROPC);
	u64 pc = s->pc - s->ra;
	struct sa_mapent *m = find_map(s, pc);

	if (!m) {
		push(s, SA_W_RAW | (pc & ~SA_W_TAG));
		return stop(s, SA_S_NOMAP);
	}
	u64 va = pc - m->bias;

	if (m->bin)
		push(s, SA_W_NATIVE | ((u64)(m->bin & 0x3fffff) << 40) | (va & 0xffffffffffULL));
	else
		push(s, SA_W_RAW | (pc & ~SA_W_TAG));
	s->depth++;
	if (!m->npages) {
		if (m->first_page != SA_NT_FP)
			return stop(s, SA_S_NOTABLE);
		int e = fp_step(s);

		if (e)
			return stop(s, e);
		return s->pc ? 0 : stop(s, SA_S_END);
	}
	int e = find_rule(m, va, &r);

	if (e)
		return stop(s, e);
	if (!r || r->kind == SA_K_NOINFO) {
		if (fp_step(s))
			return stop(s, SA_S_NOINFO);
		return s->pc ? 0 : stop(s, SA_S_END);
	}
	if (r->kind == SA_K_END)
		return stop(s, SA_S_END);
	if (r->kind == SA_K_SIG)
		return sig_step(s);
	return rule_step(s, r);
}

static long step(u32 i, void *c)
{
	u32 slot = *(u32 *)c;
	struct sa_state *s = bpf_map_lookup_elem(&scratch, &slot);

	return s ? step_frame(s) : 1;
}

/*
 * User registers, from user and from kernel mode alike: entry code stores them at the stack's top.
 * Returns false for a 32-bit frame. cs is a member of a union in newer kernels: read it by offset.
 */
static __always_inline bool load_regs(struct sa_state *s, struct task_struct *t)
{
	struct pt_regs *k = (void *)bpf_task_pt_regs(t);
	u16 cs = 0;

	s->pc = k->ip;
	s->sp = k->sp;
	s->bp = k->bp;
	s->reg[0] = k->ax;
	s->reg[1] = k->dx;
	s->reg[2] = k->cx;
	s->reg[3] = k->bx;
	s->reg[4] = k->si;
	s->reg[5] = k->di;
	s->reg[6] = k->bp;
	s->reg[7] = k->sp;
	s->reg[8] = k->r8;
	s->reg[9] = k->r9;
	s->reg[10] = k->r10;
	s->reg[11] = k->r11;
	s->reg[12] = k->r12;
	s->reg[13] = k->r13;
	s->reg[14] = k->r14;
	s->reg[15] = k->r15;
	bpf_probe_read_kernel(&cs, sizeof cs, (char *)k + bpf_core_field_offset(k->cs));
	return cs != SA_USER_CS32;
}

/* The process's entry, whole: false if there is none, or it was reused while we read it. */
static __always_inline bool load_proc(struct sa_state *s, u32 tgid)
{
	struct sa_proc *p = bpf_map_lookup_elem(&procs, &tgid);

	if (!p)
		return false;
	s->pi = *p;
	barrier();
	return s->pi.tgid == tgid && s->pi.gen == s->pi.gen2;
}

/* User part of the record: registers, mappings, steps. */
static __always_inline void collect_user(struct sa_state *s, u32 slot, bool known)
{
	struct task_struct *t = bpf_get_current_task_btf();

	if (t->flags & PF_KTHREAD) {
		s->e.stop = SA_S_KTHREAD;
		return;
	}
	if (t->flags & PF_EXITING || !t->mm) {
		s->e.stop = SA_S_EXITING;
		return;
	}
	if (!sa_do_user)
		return;
	if (!load_regs(s, t)) {
		s->e.stop = SA_S_COMPAT32;
		push(s, SA_W_RAW | (s->pc & ~SA_W_TAG));
		return;
	}
	if (!known) {
		s->e.stop = SA_S_NOPROC;
		push(s, SA_W_RAW | (s->pc & ~SA_W_TAG));
		return;
	}
	s->e.map_gen = s->pi.gen;
	bpf_loop(SA_MAX_STEPS, step, &slot, 0);
}

/*
 * Fill the record of a slot for the current task. ctx: the program's, for the kernel stack. t_ns:
 * CLOCK_MONOTONIC. NULL with *excluded set: the process is excluded, there is no record.
 */
static __always_inline struct sa_state *collect(void *ctx, u32 slot, u8 kind, u64 t_ns,
						bool from_user, bool *excluded)
{
	u64 id = bpf_get_current_pid_tgid();
	struct sa_state *s = bpf_map_lookup_elem(&scratch, &slot);

	if (!s)
		return 0;
	bool known = load_proc(s, id >> 32);

	if (known && s->pi.flags & SA_P_EXCLUDED) {
		*excluded = true;
		return 0;
	}
	__builtin_memset(&s->e, 0, sizeof s->e);
	s->e.kind = kind;
	s->e.t_ns = t_ns;
	s->e.tgid = id >> 32;
	s->e.tid = (u32)id;
	s->e.cpu = bpf_get_smp_processor_id();
	s->e.cgroup_id = bpf_get_current_cgroup_id();
	bpf_get_current_comm(s->e.comm, sizeof s->e.comm);
	s->nw = s->depth = s->lastmap = 0;
	s->ra = s->bp_bad = 0;
	s->leaf = 1;
	s->e.stop = SA_S_TRUNC; /* what is left if the loop runs out */
	if (!from_user)
		s->e.flags |= SA_F_FROM_KERNEL;
	long n = bpf_get_stack(ctx, s->w, SA_MAX_KERN * 8, 0);

	if (n > 0)
		s->e.nk = s->nw = ((u64)n >> 3) & 127;
	else if (n < 0 && !from_user)
		s->e.flags |= SA_F_KSTACK_ERR;
	collect_user(s, slot, known);
	s->e.nu = s->nw - s->e.nk;
	return s;
}

/* To the ring, exact length. 0, or the ring refused it: count it. */
static __always_inline int emit(struct sa_state *s)
{
	u32 n = s->nw;

	if (n > SA_MAX_WORDS)
		n = SA_MAX_WORDS;
	return bpf_ringbuf_output(&samples, &s->e, sizeof s->e + n * 8, BPF_RB_NO_WAKEUP) != 0;
}
