// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <curl/curl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "agent/spool.h"
#include "agent/upload.h"
#include "base/arena.h"
#include "base/buf.h"
#include "base/map.h"
#include "base/sample.h"
#include "base/thread.h"
#include "proto/wire.h"

/* Shared by upload.c (what is sent when, what an answer means) and upload_http.c (libcurl). */

/* One batch on its way. */
struct upload_slot {
    const struct spool_batch *batch; /* NULL: free */
    CURL *curl;
    struct buf answer;
    char curl_err[CURL_ERROR_SIZE];
    struct arena arena; /* of whole */
    struct buf spooled, raw, brief;
    struct batch whole; /* as it was made; valid if have */
    bool have, was_whole;
};

struct upload_answer {
    long status;            /* 0: none */
    int64_t retry_after_ns; /* 0: not said */
    char why[160];
};

struct upload {
    struct upload_conf conf;
    char *url, *token, *ca_file;
    struct spool *spool;
    pthread_t thread;
    atomic_bool stop;
    _Atomic int64_t stop_at; /* mono_now() */
    /* the thread's; clock_mono() */
    CURLM *multi;
    struct curl_slist *headers;
    struct upload_slot slot[SPOOL_IN_FLIGHT];
    unsigned n_busy;
    struct map known;
    struct wire_limits limits;
    uint64_t random;
    uint32_t failures; /* in a row */
    int64_t down_since;
    int64_t started;   /* the last request; 0: none yet */
    int64_t answered;  /* the last answer */
    int64_t drain_gap; /* to the next request, while draining */
    bool healthy;      /* the last answer was a 200 */
    bool draining;     /* after an outage: slowly */
    struct mutex mu;   /* stats */
    struct upload_stats stats;
};

/* Handles and headers. errors: -ENOMEM */
[[nodiscard]] int upload_http_open(struct upload *u, struct err *err);
void upload_http_close(struct upload *u);

/* Posts body, which must stay; true in ret if libcurl takes it. */
bool upload_http_post(struct upload *u, struct upload_slot *s, struct str body);

/* Waits at most wait_ms for something to happen; the next slot that has its answer, or NULL. */
struct upload_slot *upload_http_next(struct upload *u, int wait_ms, struct upload_answer *ret);

/* Ends a request without waiting for its answer. */
void upload_http_cancel(struct upload *u, struct upload_slot *s);
