// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "agent/send/spool.h"
#include "base/err.h"

/*
 * Sends the spool's batches to a server, oldest first, in a thread of its own. While the server
 * answers 200 two are in flight, else one, so that none overtakes a batch that must be repeated. A
 * batch travels in its short form: nodes that a 200 confirmed are named by their hash. What each
 * status means is docs/api.md's table; in short: 200 done, 400 413 dropped, 409 dict_miss again in
 * the complete form, 429 503 after Retry-After, 5xx and no answer after 1 s doubling to 30 s with
 * full jitter, a wrong URL or token every 60 s. What an outage of more than 30 s or an older run
 * left goes at twice the rate at which batches are made, at most.
 */
struct upload;

struct upload_conf {
    const char *url;     /* of the server; "/api/v1/batch" is added */
    const char *token;   /* "" none */
    const char *ca_file; /* "": the system's */
    bool insecure;       /* the token over plain HTTP to another host */
    int64_t interval_ns; /* of the batches: after a long outage they go at twice this rate */
    /* For tests; 0: as said above. */
    int64_t backoff_ns, refused_ns;
};

/* Answers that are counted one by one; the rest are others. */
#define UPLOAD_STATUS                                                                              \
    {                                                                                              \
        200, 400, 401, 403, 404, 405, 409, 413, 414, 415, 421, 429, 431, 500, 502, 503, 504        \
    }
enum {
    UPLOAD_N_STATUS = 17,
    UPLOAD_NO_ANSWER = UPLOAD_N_STATUS, /* reset, timeout, nobody there */
    UPLOAD_OTHER,
    UPLOAD_N_ANSWERS,
};

struct upload_stats {
    uint64_t requests, dict_miss, rejected_rows;
    uint64_t answers[UPLOAD_N_ANSWERS]; /* as UPLOAD_STATUS, then the two others */
    bool draining;
    uint64_t known;                   /* nodes believed to be held by the server */
    uint64_t short_bytes, full_bytes; /* sent, and what the complete forms would have been */
    uint64_t max_bytes;               /* of a body, as the server said; 0: not yet */
    int64_t min_interval_ns;
    int64_t last_ok; /* clock_mono(); 0: never */
    char state[160]; /* "ok", "connecting", or why not, with what to do */
};

/* Checks URL and token's way, starts the thread. errors: -EINVAL, -EPERM token over plain HTTP */
[[nodiscard]] int upload_start(const struct upload_conf *c, struct spool *spool,
                               struct upload **ret, struct err *err);

/* Send what is left for at most wait_ns, then end the thread; counters stay. */
void upload_stop(struct upload *u, int64_t wait_ns);
struct upload *upload_free(struct upload *u); /* after the stop; NULL is a no-op; returns NULL */

void upload_get_stats(struct upload *u, struct upload_stats *ret);

/* Is the host of this URL this machine by its name: localhost, 127.0.0.0/8, [::1]? */
bool upload_url_is_loopback(const char *url);
