/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What steps.bpf.c and user space share. SA_BPF_SIDE: included by a BPF program. */
#pragma once

#include "agent/bpf/cpu.h"

#define SA_STEP_NAME 64	  /* with its NUL */
#define SA_STEP_ATTR 256  /* likewise */
#define SA_STEP_RATE 1000 /* calls of one process in a second */

enum sa_step_bad {
	SA_STEP_BAD_NAME = 1, /* unreadable, or longer */
	SA_STEP_BAD_ATTR = 2,
};

struct sa_step_call {
	u64 t_ns; /* CLOCK_MONOTONIC */
	u64 number, cgroup_id;
	u64 exec_id; /* of the program that called, among those that the process ran */
	u32 tgid, tid;
	u8 what;		/* 0 mark, 1 begin, 2 end */
	u8 bad;			/* enum sa_step_bad */
	u16 name_len, attr_len; /* without NUL; attr_len 0: the record ends before attr */
	u16 pad;
	char comm[16];
	char name[SA_STEP_NAME];
	char attr[SA_STEP_ATTR];
};

struct sa_step_rate { /* of one process */
	u64 second;
	u32 n, pad;
};

/*
 * Who hears a process at an address. Files of two overlays may be one inode below: then two
 * listeners hear each call, and the second one is to be silent. After SA_STEP_QUIET without a call
 * another one may take over (the pid may be another process's by then).
 */
#define SA_STEP_QUIET 100000000ULL

struct sa_step_site {
	u64 ip;
	u32 tgid, pad;
};

struct sa_step_hears {
	u64 cookie, t_ns;
};

struct sa_step_drops {
	u64 rate, ring_full;
};
