/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * One capture watches some processes: their tgids are keys of watch. What another process does
 * counts as idle time: the CPU did not run what is watched. Children join at the fork itself
 * (cpu.bpf.c), before they run, so none of their time is missed.
 */
#pragma once
#include "agent/bpf/unwind.bpf.h"

/* 0: every process. 1: those of watch. 2: and what they fork. */
const volatile u32 sa_watch = 0;

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, SA_MAX_WATCH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, u32);
	__type(value, u8);
} watch SEC(".maps");

static __always_inline bool watched(u32 tgid)
{
	return tgid && (!sa_watch || bpf_map_lookup_elem(&watch, &tgid));
}
