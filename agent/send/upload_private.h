// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <curl/curl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "agent/send/spool.h"
#include "agent/send/upload.h"
#include "base/arena.h"
#include "base/buf.h"
#include "base/map.h"
#include "base/sample.h"
#include "base/thread.h"
#include "proto/wire.h"

/* Shared by upload.c (what is sent when, what an answer means), upload_http.c (libcurl) and
 * upload_apart.c, sender.c (another process in between). */

/* One batch on its way. */
struct upload_slot {
    const struct spool_batch *batch; /* NULL: free */
    CURL *curl;                      /* of upload_http */
    struct buf answer;
    char curl_err[CURL_ERROR_SIZE];
    uint64_t asked;     /* of upload_apart: number of its request; 0: none */
    int64_t since;      /* mono_now() */
    struct arena arena; /* of whole */
    struct buf spooled, raw, brief;
    struct batch whole; /* as it was made; valid if have */
    bool have, was_whole;
};

struct upload_answer {
    long status;            /* 0: none */
    int64_t retry_after_ns; /* 0: not said */
    char why[160];
    bool have_reply; /* of a 200, and it could be read */
    struct wire_reply reply;
    struct wire_error error; /* of others; zeros: it could not be read */
};

struct upload;

/* How a request gets to the server. */
struct upload_way {
    /* errors: -ENOMEM and others */
    int (*open)(struct upload *u, struct err *err);
    void (*close)(struct upload *u);
    /* Posts body, which must stay; false: not taken. */
    bool (*post)(struct upload *u, struct upload_slot *s, struct str body);
    /* Waits at most wait_ms for something to happen; the next slot that has its answer, or NULL. */
    struct upload_slot *(*next)(struct upload *u, int wait_ms, struct upload_answer *ret);
    /* Ends a request without waiting for its answer. */
    void (*cancel)(struct upload *u, struct upload_slot *s);
};

extern const struct upload_way upload_http;  /* libcurl, here */
extern const struct upload_way upload_apart; /* the process of sender.h */

struct upload {
    const struct upload_way *way;
    struct upload_conf conf;
    char *url, *token, *ca_file;
    struct spool *spool;
    pthread_t thread;
    atomic_bool stop;
    _Atomic int64_t stop_at; /* mono_now() */
    /* the thread's; clock_mono() */
    CURLM *multi;
    struct curl_slist *headers;
    int sender;        /* of upload_apart: the connection; -1: none */
    uint64_t asks;     /* so far */
    int64_t due, born; /* mono_now(): the next start may be, the last one was */
    int64_t pause;
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
