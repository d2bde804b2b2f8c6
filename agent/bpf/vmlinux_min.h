/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Only the kernel types and fields that the programs read; CO-RE finds their offsets at load time.
 * Include before everything else in a *.bpf.c.
 */
#pragma once
#define __VMLINUX_H__
#include <linux/types.h>
#include <linux/bpf.h>

typedef __u64 u64;
typedef __u32 u32;
typedef __u16 u16;
typedef __u8 u8;
typedef __s64 s64;
typedef __s32 s32;
typedef _Bool bool;
#define true 1
#define false 0

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct pt_regs {
	unsigned long r15, r14, r13, r12, bp, bx, r11, r10, r9, r8, ax, cx, dx, si, di, orig_ax, ip,
		cs, flags, sp, ss;
};
struct mm_struct;
struct thread_struct {
	unsigned long fsbase;
};
struct task_struct {
	unsigned int __state, flags;
	int pid, tgid;
	char comm[16];
	u64 self_exec_id; /* how many programs it ran */
	struct mm_struct *mm;
	struct thread_struct thread;
};
struct bpf_perf_event_data {
	struct pt_regs regs;
	__u64 sample_period, addr;
};
#pragma clang attribute pop

/* What an iterator's program gets; not moved by CO-RE: the verifier knows it by its offsets. */
struct seq_file;
struct bpf_iter_meta {
	struct seq_file *seq;
	u64 session_id, seq_num;
};
struct bpf_iter__task {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
};

#define PF_EXITING 0x00000004
#define PF_KTHREAD 0x00200000
