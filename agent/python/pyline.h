// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdint.h>

/*
 * The line of an instruction by a code object's line table (co_linetable), which a stranger's
 * memory holds: any bytes give a number. Pure, any thread.
 *
 * ver: 0x30a .. 0x30f. lasti: index of the 2-byte unit; below 0: not started, which is the first
 * line. 0: the instruction belongs to no line.
 */
uint32_t pyline_of(uint16_t ver, const uint8_t *table, uint32_t n, int32_t first, int32_t lasti);
