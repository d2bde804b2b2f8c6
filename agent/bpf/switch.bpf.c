// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * Where a thread leaves its CPU, when it may run again, when it runs: time blocked and time waiting
 * for a CPU, exact, with the stack that it left with. An object of its own, so that a kernel that
 * refuses it still has ticks; unwind tables and processes are those of cpu.bpf.c.
 *
 * sched_switch runs with the run queue's lock held and interrupts off: nothing here waits, and a
 * storm of switches costs no more than its bucket of stacks.
 */
#include "agent/bpf/unwind.bpf.h"
#include "agent/bpf/switch.h"
#include "agent/bpf/watch.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#define TASK_DEAD 0x80

/* Every process, or those of map procs with SA_P_SWITCHES. */
const volatile u32 sa_all = 0;

/* Changed while running. A token of the bucket costs so many ns; it holds those of 1 s. */
volatile u64 sa_token_ns = 2000000;
volatile u64 sa_min_block = 1000000;

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct sa_thread);
} threads SEC(".maps");

struct bucket {
	u64 at, have; /* when it was looked at; ns */
};
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct bucket);
} buckets SEC(".maps");
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct sa_swacct);
} swacct SEC(".maps");

static __always_inline bool tracked(struct task_struct *t)
{
	u32 tgid = t->tgid;

	if (!tgid || t->flags & PF_KTHREAD)
		return false;
	if (sa_watch)
		return watched(tgid);
	const struct sa_proc *p = bpf_map_lookup_elem(&procs, &tgid);

	if (sa_all)
		return !p || !(p->flags & SA_P_EXCLUDED);
	return p && (p->flags & (SA_P_SWITCHES | SA_P_EXCLUDED)) == SA_P_SWITCHES;
}

static __always_inline bool take_token(u64 now)
{
	u32 zero = 0;
	struct bucket *b = bpf_map_lookup_elem(&buckets, &zero);
	u64 cost = sa_token_ns;

	if (!b)
		return false;
	b->have += now - b->at;
	b->at = now;
	if (b->have > 1000000000)
		b->have = 1000000000;
	if (b->have < cost)
		return false;
	b->have -= cost;
	return true;
}

/* The interval that begins gets its stack, or the reason why not. */
static __always_inline u32 left_with(void *ctx, struct sa_thread *th, struct sa_swacct *a, u64 now)
{
	bool excluded = false;

	if (now - th->second >= 1000000000) {
		th->second = now;
		th->recent = 0;
	}
	if (++th->recent > SA_SHORT_SAMPLED && th->mean < sa_min_block &&
	    th->recent % SA_SHORT_SAMPLED) {
		a->few++;
		return SA_L_THROTTLED;
	}
	if (!take_token(now)) {
		a->throttled++;
		return SA_L_THROTTLED;
	}
	struct sa_state *s = collect(ctx, 0, SA_KIND_LEFT, now, false, &excluded);

	if (!s) {
		a->filtered += excluded;
		return SA_L_THROTTLED;
	}
	if (emit(s)) {
		a->lost_stacks++;
		return SA_L_RING;
	}
	a->stacks++;
	return SA_L_STACK;
}

static __always_inline void tell(struct task_struct *t, struct sa_back *b, struct sa_swacct *a)
{
	b->kind = SA_KIND_BACK;
	b->tgid = t->tgid;
	b->tid = t->pid;
	if (bpf_ringbuf_output(&samples, b, sizeof *b, wake(SA_S_END))) {
		a->lost += b->n;
		a->lost_blocked += b->blocked;
		a->lost_queued += b->queued;
	} else {
		a->back += b->n;
	}
}

static __always_inline void tell_short(struct task_struct *t, struct sa_thread *th,
				       struct sa_swacct *a, u64 now)
{
	struct sa_back b = {.why = SA_L_SHORT,
			    .n = th->short_n,
			    .t_ns = now,
			    .blocked = th->short_blocked,
			    .queued = th->short_queued};

	__builtin_memcpy(b.comm, th->short_comm, sizeof b.comm);
	th->short_n = 0;
	th->short_blocked = th->short_queued = 0;
	tell(t, &b, a);
}

static __always_inline void leave(void *ctx, struct task_struct *t, struct sa_swacct *a, u64 now,
				  bool runnable, bool dead)
{
	struct sa_thread *th =
		bpf_task_storage_get(&threads, t, 0, dead ? 0 : BPF_LOCAL_STORAGE_GET_F_CREATE);

	if (!th) {
		a->no_storage += !dead;
		return;
	}
	if (dead) {
		if (th->short_n)
			tell_short(t, th, a, now);
		th->t0 = 0;
		return;
	}
	a->left++;
	th->preempted = runnable;
	th->wake = runnable ? now : 0;
	th->why = left_with(ctx, th, a, now);
	th->t0 = now;
}

static __always_inline void back(struct task_struct *t, struct sa_thread *th, struct sa_swacct *a,
				 u64 now)
{
	u64 wake = th->wake ?: now;
	struct sa_back b = {
		.why = th->why, .preempted = th->preempted, .n = 1, .t_ns = now, .t0 = th->t0};

	if (wake < th->t0)
		wake = th->t0;
	if (wake > now)
		wake = now;
	b.blocked = wake - th->t0;
	b.queued = now - wake;
	u64 sum = now - th->t0;

	th->t0 = 0;
	th->mean = th->mean - th->mean / 8 + sum / 8;
	u64 comm[2] = {};

	bpf_probe_read_kernel(comm, sizeof comm, t->comm);
	if (b.why == SA_L_STACK || sum >= sa_min_block) {
		__builtin_memcpy(b.comm, comm, sizeof b.comm);
		tell(t, &b, a);
		return;
	}
	if (th->short_n && (comm[0] != th->short_comm[0] || comm[1] != th->short_comm[1]))
		tell_short(t, th, a, now); /* they are of the name that it had */
	th->short_comm[0] = comm[0];
	th->short_comm[1] = comm[1];
	if (!th->short_n++)
		th->short_since = now;
	th->short_blocked += b.blocked;
	th->short_queued += b.queued;
	if (th->short_blocked + th->short_queued >= SA_SHORT_SUM_NS ||
	    now - th->short_since >= SA_SHORT_FOR_NS)
		tell_short(t, th, a, now);
}

static __always_inline int on_switch(void *ctx, bool preempt, struct task_struct *prev,
				     struct task_struct *next, u32 state)
{
	u64 now = bpf_ktime_get_ns();
	u32 zero = 0;
	struct sa_swacct *a = bpf_map_lookup_elem(&swacct, &zero);
	struct sa_thread *th = next->tgid ? bpf_task_storage_get(&threads, next, 0, 0) : 0;
	bool leaves = tracked(prev), any = leaves;

	if (!a)
		return 0;
	if (leaves)
		leave(ctx, prev, a, now, preempt || !state, !preempt && state & TASK_DEAD);
	if (th && th->t0) {
		any = true;
		if (tracked(next))
			back(next, th, a, now);
		th->t0 = 0;
	}
	if (any)
		a->bpf_ns += bpf_ktime_get_ns() - now;
	return 0;
}

SEC("tp_btf/sched_switch")
int BPF_PROG(on_switch4, bool preempt, struct task_struct *prev, struct task_struct *next,
	     unsigned int state)
{
	return on_switch(ctx, preempt, prev, next, state);
}

/* Before 5.18. */
SEC("tp_btf/sched_switch")
int BPF_PROG(on_switch3, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	return on_switch(ctx, preempt, prev, next, prev->__state);
}

SEC("tp_btf/sched_wakeup")
int BPF_PROG(on_wakeup, struct task_struct *t)
{
	struct sa_thread *th = bpf_task_storage_get(&threads, t, 0, 0);

	if (th && th->t0 && !th->wake)
		th->wake = bpf_ktime_get_ns();
	return 0;
}

/* A new thread waits for a CPU from here on. */
SEC("tp_btf/sched_wakeup_new")
int BPF_PROG(on_wakeup_new, struct task_struct *t)
{
	if (!tracked(t))
		return 0;
	struct sa_thread *th = bpf_task_storage_get(&threads, t, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);

	if (!th)
		return 0;
	th->preempted = 1;
	th->why = SA_L_NOT_RUN;
	th->t0 = th->wake = bpf_ktime_get_ns();
	return 0;
}

/* Once a window, by reading: who is off the CPU now. */
SEC("iter/task")
int on_threads(struct bpf_iter__task *ctx)
{
	struct task_struct *t = ctx->task;

	if (!t)
		return 0;
	struct sa_thread *th = bpf_task_storage_get(&threads, t, 0, 0);

	if (!th || (!th->t0 && !th->short_n))
		return 0;
	struct sa_off o = {.tgid = t->tgid,
			   .tid = t->pid,
			   .t0 = th->t0,
			   .wake = th->wake,
			   .short_blocked = th->short_blocked,
			   .short_queued = th->short_queued,
			   .short_n = th->short_n,
			   .why = th->why};

	bpf_probe_read_kernel_str(o.comm, sizeof o.comm, t->comm);
	bpf_seq_write(ctx->meta->seq, &o, sizeof o);
	return 0;
}
