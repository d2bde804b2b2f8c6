// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdint.h>
#include <stdio.h>

#include "agent/collect/conf_table.h"

/* "strata-agent check --pid PID": as what this process would be seen, and why. Returns the exit
 * status: 0, or 1 with the reason where it cannot be read. */
int check_pid(const struct agent_conf *conf, uint32_t pid, const char *state_dir, FILE *to);
