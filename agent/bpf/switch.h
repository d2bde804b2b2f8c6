/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What the programs of context switches and user space share. Sizes: the ring is by CPUs (set at
 * load), accounts and buckets are one per CPU, the state of a thread lives as long as the thread
 * (task storage, some 150 bytes each, of tracked threads alone). Times are CLOCK_MONOTONIC ns.
 *
 * A thread that leaves its CPU may send its stack at once (struct sa_ev, kind 2): when it is back
 * its memory is not at hand. When it is back it sends how long it was away (struct sa_back, kind
 * 4).
 */
#pragma once

#include "agent/bpf/cpu.h"

#define SA_KIND_LEFT 2
#define SA_KIND_BACK 4

#define SA_SHORT_SUM_NS 100000000ULL  /* so much of short waits is told at once, */
#define SA_SHORT_FOR_NS 1000000000ULL /* and what there is after so long */

/* So many of a thread's mostly short waits of a second have a stack, of the others one in so many.
 */
#define SA_SHORT_SAMPLED 16

/* Why an interval off the CPU has no stack. */
enum sa_left {
	SA_L_STACK = 0, /* it has: a record of kind 2 was sent */
	SA_L_SHORT,	/* shorter than min_block */
	SA_L_THROTTLED, /* no token left, or of a thread with mostly short ones */
	SA_L_NOT_RUN,	/* a new thread waits for its first CPU */
	SA_L_RING,	/* the ring refused the stack */
	SA_L_N,
};

struct sa_back {	   /* 72 bytes */
	u8 kind, why;	   /* SA_KIND_BACK, enum sa_left */
	u8 preempted, pad; /* it could have gone on: all of it is waiting for a CPU */
	u32 tgid, tid, n;  /* n: intervals; more than one of short ones, which have no t0 */
	u64 t_ns, t0;	   /* back on a CPU; left it */
	u64 blocked, queued;
	char comm[16];
};

struct sa_thread { /* value of the task storage */
	u64 t0;	   /* left its CPU; 0: it runs, or was never seen to leave */
	u64 wake;  /* can run since; 0: blocked */
	u64 mean;  /* of its times off the CPU, over the last eight or so */
	u64 short_blocked, short_queued, short_since;
	u64 second; /* that recent is of */
	u32 recent; /* intervals that began in it */
	u32 short_n;
	u32 preempted, why; /* of the interval that is open */
	u64 short_comm[2];  /* the thread's name when the short ones were */
};

struct sa_off { /* by the iterator: a thread that is off its CPU, or has short waits to tell */
	u32 tgid, tid;
	u64 t0, wake; /* as above */
	u64 short_blocked, short_queued;
	u32 short_n, why;
	char comm[16];
};

struct sa_swacct {			     /* per CPU; each only grows */
	u64 left;			     /* times that a tracked thread left the CPU */
	u64 stacks, throttled, few;	     /* few: of mostly short ones, passed over */
	u64 back;			     /* intervals told, short ones by their number */
	u64 lost, lost_blocked, lost_queued; /* refused by the ring, and their time */
	u64 lost_stacks;		     /* refused by the ring: the time has no stack */
	u64 no_storage;			     /* no memory for a thread's state: not covered */
	u64 filtered;			     /* of excluded processes: not told */
	u64 bpf_ns;			     /* spent in the programs on tracked threads */
};
