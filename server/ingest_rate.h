// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/time.h"

/*
 * A share of ingest for each sender: a bucket of burst bytes that fills at rate bytes per second.
 * So the loud are refused before the many. Senders are told apart by the id of their installation;
 * at most RATE_SENDERS are remembered, the fullest bucket is forgotten first, which costs nobody
 * anything. Any thread.
 */
enum {
    RATE_SENDERS = 4096
};

struct rate;

/* rate 0: no limit. */
struct rate *rate_new(uint64_t rate, uint64_t burst);
struct rate *rate_free(struct rate *r);

/*
 * Take n bytes of this sender's share. A bucket that is not empty gives more than it holds, once:
 * a batch larger than burst must be possible. 0: taken; else what the sender owes, at least 1 byte.
 */
uint64_t rate_take(struct rate *r, const uint8_t agent[16], uint64_t n, mono_ns now);
