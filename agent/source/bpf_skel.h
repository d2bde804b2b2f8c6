// SPDX-License-Identifier: Apache-2.0
/* bpftool's skeletons, for bpf_load.c alone. What a generator wrote is not ours to warn about. */
#pragma once
#pragma GCC system_header
#include "agent/cpu.skel.h"
