// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * The cpu-clock tick: exact accounting of each CPU's time, and a record with the stack of what ran.
 *
 * Every tick has the weight P, the event's period, because ticks stand on a grid: the signed
 * difference of the time that really passed is jitter and cancels. Where more than 1.5 P passed,
 * ticks did not fire: that time is missed, and never spread over stacks.
 */
#include "agent/bpf/unwind.bpf.h"
#include "agent/bpf/watch.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct sa_acct);
} acct SEC(".maps");

/* The period in force, by user space before it changes the events'; 0 until then: the context's. */
volatile u64 sa_period = 0;

/* For tests: this process's ticks go to the event's own ring as well, with registers and stack. */
const volatile u32 sa_pass_tgid = 0;

static __always_inline void seq_inc(struct sa_acct *a)
{
	barrier();
	*(volatile u64 *)&a->seq += 1;
	barrier();
}

/* Time that passed since the last tick, d, split so that each branch adds exactly d. */
static __always_inline void count_gap(struct sa_acct *a, s64 over, u64 period, bool idle, u32 *gap)
{
	u64 n = ((u64)over + period / 2) / period;

	if (idle && a->last_idle)
		a->missed_idle_ns += over;
	else if (!idle && !a->last_idle)
		a->missed_busy_ns += over;
	else
		a->missed_mixed_ns += over;
	a->missed_ticks += n;
	*gap = n;
}

/* Weight of this tick; 0: the first of its event. */
static __always_inline u64 account(struct sa_acct *a, u64 counter, u64 period, bool idle, u32 *gap)
{
	u64 last = a->counter, old = a->period, weight = 0;

	if (!a->starts || counter < last) {
		if (a->starts)
			a->past += last - a->first;
		a->first = counter;
		a->starts++;
	} else {
		/* a change of the period restarts the timer: what was left of the old one is no
		 * missed tick */
		u64 left = old != period ? old : 0;
		s64 over = (s64)(counter - last - period);

		if (over <= (s64)(period / 2 + left))
			a->jitter_ns += over;
		else
			count_gap(a, over, period, idle, gap);
		weight = period;
		a->ticks++;
		if (idle)
			a->idle_ns += weight;
		else
			a->busy_ns += weight;
	}
	a->counter = counter;
	a->period = period;
	a->last_idle = idle;
	return weight;
}

static __always_inline void sample(struct bpf_perf_event_data *ctx, struct sa_acct *a, u64 t,
				   u64 weight, u32 gap)
{
	bool excluded = false;
	/* by the sign of ip, never by cs */
	struct sa_state *s = collect(ctx, SA_SLOT_TICK, 1, t, !(ctx->regs.ip >> 63), &excluded);

	if (!s) {
		if (excluded) {
			a->filtered_ns += weight;
		} else { /* cannot happen: the slot is there */
			a->lost_ring++;
			a->lost_ring_ns += weight;
		}
		return;
	}
	s->e.weight_ns = weight;
	s->e.gap_ticks = gap;
	a->stop[s->e.stop & 15]++;
	if (emit(s)) {
		a->lost_ring++;
		a->lost_ring_ns += weight;
	}
}

SEC("perf_event")
int on_tick(struct bpf_perf_event_data *ctx)
{
	u64 t = bpf_ktime_get_ns();
	u32 zero = 0, gap = 0, tgid = bpf_get_current_pid_tgid() >> 32;
	bool idle = !watched(tgid);
	struct bpf_perf_event_value v = {};
	struct sa_acct *a = bpf_map_lookup_elem(&acct, &zero);

	if (!a || bpf_perf_prog_read_value(ctx, &v, sizeof v))
		return 0;
	u64 period = sa_period ?: ctx->sample_period;

	seq_inc(a);
	u64 weight = account(a, v.counter, period, idle, &gap);

	a->last_t = t;
	if (weight && !idle)
		sample(ctx, a, t, weight, gap);
	a->bpf_ns += bpf_ktime_get_ns() - t;
	seq_inc(a);
	return tgid && tgid == sa_pass_tgid;
}

/* Children that found no room in watch: their time is not seen. */
volatile u64 sa_watch_full = 0;

SEC("tp_btf/sched_process_fork")
int BPF_PROG(on_fork, struct task_struct *parent, struct task_struct *child)
{
	u32 from = parent->tgid, to = child->tgid;
	u8 one = 1;

	if (from == to || sa_watch != 2 || !bpf_map_lookup_elem(&watch, &from))
		return 0;
	if (bpf_map_update_elem(&watch, &to, &one, BPF_ANY))
		__sync_fetch_and_add(&sa_watch_full, 1);
	return 0;
}
