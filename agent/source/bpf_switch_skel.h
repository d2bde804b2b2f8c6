// SPDX-License-Identifier: Apache-2.0
/* bpftool's skeleton, for bpf_switch.c alone; as bpf_skel.h. */
#pragma once
#pragma GCC system_header
#include "agent/switch.skel.h"
