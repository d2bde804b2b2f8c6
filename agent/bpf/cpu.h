/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What the BPF programs and user space share: records, unwind tables, accounting. Little-endian,
 * 8-byte aligned. Included by *.bpf.c after vmlinux_min.h, elsewhere after <stdint.h>.
 */
#pragma once

#include "agent/bpf/py.h"

#define SA_MAX_KERN   127
#define SA_MAX_NATIVE 512
#define SA_MAX_WORDS  1024  /* power of two: used as a mask for the verifier */
#define SA_CHUNK_ROWS 65536 /* rows of one inner table array: 256 KiB, two rows per u64 */
#define SA_PAGE_ROWS  16384 /* most rows of one 64 KiB page: what the search covers */

/* Sizes of the maps; entry 0 of mapents and pgidx is not used. */
#define SA_MAX_CHUNKS  1024
#define SA_MAX_PROCS   16384
#define SA_MAX_MAPENTS 262144
#define SA_MAX_PAGES   262144
#define SA_MAX_RULES   65536
#define SA_PROC_MAPS   4096  /* executable mappings of one process */
#define SA_MAX_WATCH   16384 /* processes of one capture, at a time */

/*
 * One executable mapping of one process; sorted by start inside the process's range. Where its
 * table is may change while it is read: npages is written last and 0 before anything else changes.
 */
struct sa_mapent {
	u64 start, end;
	u64 bias;	/* runtime address - ELF address */
	u32 pg_base;	/* first entry of this binary in pgidx */
	u32 npages;	/* 0: no table; first_page is then an enum sa_no_table */
	u32 first_page; /* ELF address >> 16 of the first page with rows */
	u32 bin;	/* binary id given by user space, below 2^22; 0: raw words */
};

enum sa_no_table {
	SA_NT_WAIT = 0,	    /* not built, failed or evicted: stop notable */
	SA_NT_FP = 1 << 30, /* anonymous (JIT), or a file without .eh_frame: frame pointers */
};

/* Rows of one 64 KiB page of a binary: global row number (chunk << 16 | index) and count. */
struct sa_pg {
	u32 row, n;
};

struct sa_row {
	u16 pc_low, rule; /* valid from pc_low to the next row */
};

enum sa_fpk { /* where the caller's rbp is */
	SA_FP_SAME = 0,
	SA_FP_CFA,   /* at CFA + fpoff */
	SA_FP_RBP,   /* at rbp + fpoff */
	SA_FP_UNDEF, /* lost: a later rbp-based rule stops with badfp */
};

enum sa_rule_kind {
	SA_K_INVALID = 0,
	SA_K_RSP,	/* CFA = rsp + off */
	SA_K_RBP,	/* CFA = rbp + off */
	SA_K_PLT11,	/* CFA = rsp + 8 + ((rip & 15) >= 11 ? 8 : 0) */
	SA_K_PLT10,	/* the same, >= 10 */
	SA_K_SIG,	/* rt_sigframe: reload rbp, rsp, rip */
	SA_K_END,	/* outermost frame */
	SA_K_DEREF_RBP, /* CFA = *(rbp + off) */
	SA_K_DEREF_RSP, /* CFA = *(rsp + off) */
	SA_K_NOINFO,	/* no FDE covers this address */
	SA_K_REG,	/* CFA = reg + off; leaf only */
	SA_K_RAREG,	/* CFA = rsp + off, return address in reg; leaf only */
	SA_K_PLT9,	/* as PLT11, >= 9: stubs that begin with endbr64 */
};

struct sa_rule { /* 16 bytes, interned; rule 0 is INVALID */
	u8 kind, fpk, reg, pad;
	s32 off, fpoff;
	u32 gen; /* 0; of a remembered frame the process's (step.bpf.h) */
};

/*
 * Value of map procs, key tgid. gen is new at each publication, whichever process it is for: an
 * element may be reused while a program reads it, so it copies the value, then compares tgid and
 * both gen.
 */
struct sa_proc {
	u32 gen, tgid, maps_off, n;
	u32 flags, gen2;
	struct sa_py py;
};

enum sa_proc_flag {
	SA_P_EXCLUDED = 1, /* filtered_ns, no record */
	SA_P_SWITCHES = 2, /* its time off the CPU is profiled (switch.bpf.c) */
};

/* Why the walk ended. Wire names are in base/loss.h; END and KTHREAD are complete. */
enum sa_stop {
	SA_S_END = 0,
	SA_S_TRUNC,
	SA_S_NOMAP,
	SA_S_NOTABLE,
	SA_S_NOINFO,
	SA_S_INVALID,
	SA_S_READFAULT,
	SA_S_ZEROPC,
	SA_S_BADSP,
	SA_S_BADFP,
	SA_S_NOPROC,
	SA_S_KTHREAD,
	SA_S_EXITING,
	SA_S_COMPAT32,
	SA_S_N,
};

enum sa_flag {
	SA_F_KSTACK_ERR = 1,
	SA_F_FP_USED = 2,
	SA_F_FROM_KERNEL = 4,
	SA_F_PY_SHORT = 8,    /* an eval frame found no Python frame left */
	SA_F_PY_DRAINED = 16, /* the native part ended early: Python frames follow SA_M_CUT */
	SA_F_GIL_ASKED = 32,  /* 3.15: the thread itself says that it waits for the GIL */
};

#define SA_VSYSCALL 0xffffffffff600000ULL /* the kernel's page above user space */

/* user words: tag in the two top bits */
#define SA_W_TAG     (3ULL << 62)
#define SA_W_NATIVE  0ULL	  /* bin:22 | ELF address:40 */
#define SA_W_RAW     (1ULL << 62) /* an address that no table entry covers: 61 bits */
#define SA_W_VSYS    (SA_W_RAW | (SA_VSYSCALL & SA_W_RAWBITS)) /* anywhere in the vsyscall page */
#define SA_W_RAWBITS ((1ULL << 61) - 1)
#define SA_W_PY	     (2ULL << 62) /* code object; the next word, untagged: check:32 | instruction:32 */
#define SA_W_MARK    (3ULL << 62) /* marker: SA_M_* in the low bits */
#define SA_W_BIN(w)  ((u32)(((w) >> 40) & 0x3fffff))
#define SA_W_ADDR(w) ((w)&0xffffffffffULL)
#define SA_M_SIGNAL  1
#define SA_M_CUT     2
#define SA_M_SHORT   3 /* before an activation that no Python frame was left for */

struct sa_ev {		     /* 88 bytes + 8 * (nk + nu) */
	u8 kind;	     /* 1 tick, 2 thread left the CPU, 3 probe, 4 thread is back */
	u8 stop, gil, pyerr; /* enum sa_stop, sa_gil, sa_pyerr */
	u16 flags, nk;	     /* nk kernel words */
	u16 nu, npy;	     /* nu user words, npy Python frames (two words each) */
	u32 tgid, tid, cpu, map_gen, gap_ticks;
	u64 t_ns, weight_ns, aux, cgroup_id, gil_holder; /* t_ns: CLOCK_MONOTONIC */
	char comm[16];
	u64 w[]; /* kernel addresses, then user words, leaf first */
};

#ifndef SA_BPF_SIDE
/* Words of the entry that begins with w: the second one of a Python frame has no tag. */
static inline u32 sa_words(u64 w)
{
	return (w & SA_W_TAG) == SA_W_PY ? 2 : 1;
}

/* The user word that the native part of the stack ends with; SA_W_RAW: there is none. */
static inline u64 sa_last_native(const struct sa_ev *ev)
{
	u64 last = SA_W_RAW;

	for (u32 i = ev->nk; i < (u32)ev->nk + ev->nu; i += sa_words(ev->w[i])) {
		if (ev->w[i] == (SA_W_MARK | SA_M_CUT))
			break;
		if ((ev->w[i] & SA_W_TAG) != SA_W_PY)
			last = ev->w[i];
	}
	return last;
}
#endif

/*
 * Per CPU. seq is odd while the program writes. An event's counter starts at 0, its first tick has
 * no weight; a CPU that was offline gets a new event, past keeps what the older ones covered.
 * In integers, always:
 *     busy + idle + jitter + missed (3 kinds) = past + counter - first
 */
struct sa_acct {
	u64 seq;
	u64 counter; /* last value of the event's clock, ns */
	u64 first;   /* its value at the event's first tick */
	u64 past;    /* counter - first of the events before this one, added up */
	u64 starts;  /* events that ticked */
	u64 period;  /* last */
	u64 last_t;  /* CLOCK_MONOTONIC of the last tick: t_ns of its record */
	u64 ticks;   /* that have weight */
	u64 busy_ns, idle_ns, filtered_ns; /* busy: filtered too */
	s64 jitter_ns;
	u64 missed_idle_ns, missed_busy_ns, missed_mixed_ns; /* by what ran at both ends */
	u64 missed_ticks;
	u64 lost_ring, lost_ring_ns; /* busy ticks whose record was refused */
	u64 stop[16];		     /* records by enum sa_stop, refused ones too */
	u64 bpf_ns;		     /* time spent in the program */
	u64 last_idle;		     /* was the last tick idle? */
};
