// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/str.h"
#include "base/time.h"

/*
 * One request and one reply, free of any HTTP library: what http.c hands to api.c, ingest.c and
 * static.c, and takes back. All request strings are borrowed until the reply is finished; the reply
 * owns its body. Thread: one at a time; cancel may be set by any.
 */
struct msg_param {
    struct str name, value; /* percent-decoded; may hold any byte */
};

struct msg_request {
    struct str method, path; /* path decoded, without query; below base_path */
    uint32_t n_param;
    const struct msg_param *param; /* query, then form body, in order */
    struct str content_type, content_encoding, accept, accept_encoding, if_none_match;
    struct str batch_id; /* Strata-Batch-Id: identity of what an import sends */
    struct str body;
    uint64_t id;         /* X-Request-Id */
    real_ns now;         /* receipt, by the server's clock (a hook in tests) */
    mono_ns deadline;    /* 0: none */
    atomic_bool *cancel; /* the client hung up, or the server stops */
};

enum msg_cache {
    MSG_NO_STORE = 0,
    MSG_NO_CACHE,  /* private, no-cache: revalidate with the ETag */
    MSG_DAY,       /* private, max-age=86400 */
    MSG_IMMUTABLE, /* public, one year */
};

struct msg_reply {
    int status;               /* HTTP */
    const char *content_type; /* static */
    struct buf body;  /* cap set by the maker; failed at the end is 422 query_too_expensive */
    struct str fixed; /* where p is set: the body instead, which outlives the server's replies */
    const char *encoding; /* Content-Encoding of the body as it stands; NULL: none */
    bool has_etag;
    uint64_t etag;
    enum msg_cache cache;
    uint32_t retry_after_s; /* 0: none */
    char filename[128];     /* of an attachment, ASCII; "" none */
    bool gzip_file;         /* the file itself is to be gzip, whatever the client accepts */
    const char *allow;      /* of 405; NULL none */
};

/*
 * The one error object (docs/api.md): fills status, type and body, replacing what was there.
 *   code     static, [a-z_]; message may hold data (escaped by the writer)
 *   param, setting   NULL: left out; limit and actual are written where setting is there
 */
struct msg_error {
    int status;
    const char *code;
    const char *message;
    const char *param, *setting;
    uint64_t limit, actual;
    uint32_t retry_after_s;
};
void msg_fail(struct msg_reply *r, const struct msg_request *q, const struct msg_error *e);

/* Frees the body; a zeroed reply is a no-op. */
void msg_reply_deinit(struct msg_reply *r);

/* The first parameter of this name; false if there is none. */
bool msg_param(const struct msg_request *q, const char *name, struct str *ret);
