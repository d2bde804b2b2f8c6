// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdbool.h>
#include <stdint.h>

/*
 * The shortest decimal m x 10^e that reads back as v, the nearest to v of those; v from 2^-64 to
 * 2^64. false, outputs untouched, for all others. m may end in zeros. Any thread.
 */
bool shortest_decimal(double v, uint64_t *ret_m, int *ret_e);
