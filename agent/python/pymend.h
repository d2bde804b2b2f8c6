// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "agent/bpf/cpu.h"

/*
 * A tick in the first or the last instructions of the interpreter's function finds an activation
 * whose Python frame is not linked yet, or no more. Frames are given to activations from the inside
 * outwards, so each one then has that of its caller, and the outermost has none (SA_M_SHORT). That
 * it is the innermost one that has none is certain: all the others have called something. So each
 * activation's frames belong to the next one.
 */

#define PYMEND_WORDS (SA_MAX_WORDS + SA_MAX_KERN)

/* Any thread; nothing fails. Activations of ev that no frame was left for. */
uint32_t pymend_missing(const struct sa_ev *ev);

/* ev with its frames where they belong and without SA_M_SHORT, in room, of sizeof *ev +
 * 8 * PYMEND_WORDS bytes, where it is in it; else ev itself. More than one without frames cannot be
 * told apart: those stay where they are. */
const struct sa_ev *pymend(const struct sa_ev *ev, struct sa_ev *room);
