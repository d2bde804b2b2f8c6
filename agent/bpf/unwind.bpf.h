/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The unwinder: maps for the step of step.bpf.h, and collect(), which fills a record for the
 * current task. Included by each program file after vmlinux_min.h. Everything below it is x86-64.
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

#include "agent/bpf/step.bpf.h"

#define SA_KNOWN     1024 /* frames remembered by a CPU: a power of two */
#define SA_AT_ONCE   4	  /* steps of one call: each call and its return cost as much as a step */
#define SA_USER_CS32 0x23 /* __USER32_CS of every x86-64 kernel */

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

/*
 * By CPU. Each program file's own: a tick can interrupt a program of the other one, never one of
 * its own. No per-CPU array: that has a pointer for each entry, one more cold place for each frame.
 */
struct sa_knowns {
	struct sa_known v[SA_KNOWN];
};
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); /* set at load, by number of CPUs */
	__type(key, u32);
	__type(value, struct sa_knowns);
} known SEC(".maps");

/* For benchmarks: 0 leaves the user part of stacks out. */
const volatile u32 sa_do_user = 1;

/* Never step by the frame pointer. */
const volatile u32 sa_no_fp = 0;

/* User space is woken where more than so much waits in the ring; and by a record with one of these
 * stops, a bit each: it asks for what is missing. */
const volatile u64 sa_wake_bytes = 1 << 20;
volatile u32 sa_wake_stops = 0;

/* Does this kernel have bpf_loop() (5.17)? The branch that is not taken is not loaded. */
const volatile u32 sa_has_loop = 1;

static __always_inline int sa_read(struct sa_state *s, void *to, u32 n, u64 at)
{
	return bpf_probe_read_user(to, n, (void *)at);
}

static __always_inline const struct sa_mapent *sa_ent(struct sa_state *s, u32 idx)
{
	return bpf_map_lookup_elem(&mapents, &idx);
}

static __always_inline const struct sa_pg *sa_page(struct sa_state *s, u32 idx)
{
	return bpf_map_lookup_elem(&pgidx, &idx);
}

static __always_inline const struct sa_rule *sa_rule_at(struct sa_state *s, u32 idx)
{
	return bpf_map_lookup_elem(&rules, &idx);
}

static __always_inline void *sa_chunk(struct sa_state *s, u32 chunk)
{
	return bpf_map_lookup_elem(&chunks, &chunk);
}

static __always_inline int sa_row(void *chunk, u32 idx, u32 *row)
{
	u32 k = idx >> 1;
	u64 *v = bpf_map_lookup_elem(chunk, &k);

	if (!v)
		return -1;
	*row = idx & 1 ? (u32)(*v >> 32) : (u32)*v;
	return 0;
}

static __always_inline struct sa_known *sa_known_at(struct sa_state *s, u64 pc)
{
	u32 k = ((u32)pc ^ (u32)(pc >> 11) ^ s->pi.gen * 0x9e3779b1) & (SA_KNOWN - 1);
	u32 cpu = s->e.cpu;
	struct sa_knowns *of = bpf_map_lookup_elem(&known, &cpu);

	return of ? &of->v[k] : 0;
}

/* A global function is verified once, by itself, however often and in whatever loop it is called.
 */
__noinline int sa_step(u32 slot)
{
	struct sa_state *s = bpf_map_lookup_elem(&scratch, &slot);

	if (!s)
		return 1;
	for (int i = 0; i < SA_AT_ONCE; i++)
		if (step_frame(s))
			return 1;
	return 0;
}

static long step(u32 i, void *slot)
{
	return sa_step(*(u32 *)slot) != 0; /* the verifier wants to see 0 or 1 */
}

/* Steps until one says stop. */
static __always_inline void walk(u32 slot)
{
	if (sa_has_loop) {
		bpf_loop(SA_MAX_STEPS / SA_AT_ONCE, step, &slot, 0);
		return;
	}
	for (int i = 0; i < SA_MAX_STEPS / SA_AT_ONCE; i++)
		if (sa_step(slot))
			break;
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
		push_raw(s, s->pc);
		return;
	}
	if (!known) {
		s->e.stop = SA_S_NOPROC;
		push_raw(s, s->pc);
		return;
	}
	s->e.map_gen = s->pi.gen;
	s->fsbase = t->thread.fsbase;
	py_start(s);
	walk(slot);
	s->e.npy = s->npy;
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
	s->nshim = s->nlook = 0;
	s->win_n = 0;
	s->ra = s->bp_bad = 0;
	s->leaf = 1;
	s->no_fp = sa_no_fp;
	s->e.stop = SA_S_TRUNC; /* what is left if the loop runs out */
	if (!from_user)
		s->e.flags |= SA_F_FROM_KERNEL;
	/* from user mode there is no kernel part */
	long n = from_user ? 0 : bpf_get_stack(ctx, s->w, SA_MAX_KERN * 8, 0);

	if (n > 0)
		s->e.nk = s->nw = ((u64)n >> 3) & 127;
	else if (n < 0)
		s->e.flags |= SA_F_KSTACK_ERR;
	collect_user(s, slot, known);
	s->e.nu = s->nw - s->e.nk;
	return s;
}

/* A record waits in the ring for the next drain, unless it says that something is missing, or the
 * ring fills. */
static __always_inline u64 wake(u32 stop)
{
	if (sa_wake_stops >> (stop & 31) & 1 ||
	    bpf_ringbuf_query(&samples, BPF_RB_AVAIL_DATA) > sa_wake_bytes)
		return BPF_RB_FORCE_WAKEUP;
	return BPF_RB_NO_WAKEUP;
}

/* To the ring, exact length. 0, or the ring refused it: count it. */
static __always_inline int emit(struct sa_state *s)
{
	u32 n = s->nw;

	if (n > SA_MAX_WORDS)
		n = SA_MAX_WORDS;
	return bpf_ringbuf_output(&samples, &s->e, sizeof s->e + n * 8, wake(s->e.stop)) != 0;
}
