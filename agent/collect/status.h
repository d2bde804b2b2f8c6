// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/str.h"

/*
 * The status file, as collector_write_status() writes it: one JSON object of texts and numbers and
 * in it the object "figures". Read by `strata-agent status` and by the next run. Pure; any thread.
 */

/* The value of a key, wherever it stands, without quotes; "" if it is not there. Escapes stay. */
struct str status_value(struct str json, const char *key);

/* Seconds since a running agent wrote it; -1: it has stopped, or nobody can tell. */
int64_t status_silent_s(struct str json, int64_t now_ns);

/* For people. */
void status_print(struct str json, FILE *to);
