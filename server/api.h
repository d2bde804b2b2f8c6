// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdint.h>

#include "base/time.h"

/*
 * The JSON API below /api/v1: parameters in, bytes out. It knows no socket and no HTTP library.
 *
 *   Thread   api_new and api_free: owner. api_handle: any number of threads at once.
 *   Errors   become the reply: status and error object. api_handle itself never fails.
 */
struct store;
struct msg_request;
struct msg_reply;
struct api;
struct buf;

/* All strings are borrowed until api_free(). Zero means the default beside the field. */
struct api_conf {
    struct store *store;
    const char *version; /* of the program; part of every ETag */
    const char *ui_hash; /* of the static files; NULL: "" */
    int64_t age_ns;      /* ingest age limit: ranges that end before it do not change. 7 d */
    int64_t timeout_ns, timeout_max_ns;  /* 30 s, 120 s */
    uint64_t mem_max;                    /* per query. 256 MiB */
    uint64_t answer_max;                 /* bytes of one answer, exports apart. 64 MiB */
    uint64_t export_max;                 /* bytes of one export. 256 MiB */
    int64_t max_range_ns;                /* 400 d */
    uint32_t max_points;                 /* 11,000 */
    uint32_t max_nodes;                  /* 1,048,576 */
    uint32_t running_max;                /* queries at once, beyond: 503 busy. 0: no limit */
    int64_t keep_raw_ns, keep_minute_ns; /* shown by /status; 0: not said */
    uint64_t disk_limit;                 /* storage.max_bytes; 0: none */
};

struct api *api_new(const struct api_conf *conf);
/* NULL is a no-op; returns NULL. No api_handle may be running. */
struct api *api_free(struct api *a);

/*
 * Answer one request whose path is below /api/v1 (the prefix included) and for which no other part
 * of the server is responsible. reply is zeroed by the caller, who frees reply->body afterwards.
 * Takes as long as the query: call it from a thread that may wait.
 */
void api_handle(struct api *a, const struct msg_request *q, struct msg_reply *reply);

/* Number of queries running now, for /metrics. Any thread. */
uint32_t api_running(const struct api *a);

/*
 * The routes, for documents and tests: one line each, "GET,POST /api/v1/flamegraph q from to ...".
 */
void api_dump_routes(struct buf *out);
