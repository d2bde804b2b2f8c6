// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "server/ingest.h"
#include "server/msg.h"

/* What the doors to the store share: ingest.c, ingest_steps.c. Any thread. */

struct store *ingest_store(const struct ingest *g);
const struct ingest_conf *ingest_conf_of(const struct ingest *g);

/* Can the store take anything now? false: *e says why not. */
bool ingest_state(struct ingest *g, struct msg_error *e);

/* One answer with this HTTP status; reason NULL: nothing was refused. proto: as in /metrics,
 * static. */
void ingest_count(struct ingest *g, const char *proto, int code, const char *reason);
/* n items of a request that was stored were refused alone. */
void ingest_count_refused(struct ingest *g, const char *proto, const char *reason, uint64_t n);

/* n inflated bytes of this sender's share. false: *e says how long to wait. */
bool ingest_rate(struct ingest *g, const uint8_t agent[16], uint64_t n, struct msg_error *e);

/* What a result of the store other than 0 and STORE_DUPLICATE means to a sender. *ret borrows from
 * err. */
void ingest_append_error(int r, const struct err *err, struct msg_error *ret);
