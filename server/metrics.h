// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdint.h>

/*
 * GET /metrics: the counters of the process in Prometheus' text format 0.0.4. Each has one line of
 * help; a value that is not known is left out, never 0. Reads snapshots only. Any thread.
 */
struct http;
struct http_route;
struct ingest;
struct msg_reply;
struct pool;
struct store;
struct work;

/* What there is to count; store NULL: not open yet. Borrowed during the call. */
struct metrics {
    struct http *http;
    const struct http_route *route;
    uint32_t n_route;
    struct ingest *ingest;
    const struct pool *ingest_pool;
    struct work *work;
    struct store *store;
    const char *version, *ui_hash;
};

void metrics_handle(const struct metrics *m, struct msg_reply *r);
