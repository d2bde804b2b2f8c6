// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/str.h"

struct upload_answer;

/*
 * The process that talks to the server (apart.h): it alone opens sockets, and it has nothing else.
 * It is told URL, token and CA file once, then gets one body after the other in a memfd and gives
 * back what the server said, taken apart into numbers and short texts. Spool, order and patience
 * stay with upload.h: a sender that dies costs the answers that were under way, and their batches
 * are sent again under the same number, which the server knows.
 *
 * Messages over one SOCK_SEQPACKET, as they lie in memory: both sides are the same program.
 */
#define SENDER_MAGIC UINT32_C(0x73525453) /* "STRs" */
#define SENDER_TEXT  ((size_t)16 << 10)   /* URL, token and CA file together */
#define SENDER_BODY  ((uint64_t)64 << 20)

enum sender_kind {
    SENDER_SETUP = 1, /* n: lengths of URL, token, CA file, which follow */
    SENDER_POST,      /* slot, id; n[0] bytes of a body, in the descriptor that comes with it */
    SENDER_CANCEL,    /* slot, id */
};

struct sender_ask {
    uint32_t magic, kind, slot, pad;
    uint64_t id;
    uint64_t n[3];
};

struct sender_answer {
    uint32_t magic, slot;
    uint64_t id;
    int64_t status, retry_after_ns;
    uint32_t have_reply, reply_status, min_interval_ms, retry_after_ms;
    uint64_t seq, rejected_rows, max_bytes;
    uint64_t limit, actual;
    char why[160], reason[33], message[160], setting[48];
};

void sender_answer_put(const struct upload_answer *a, struct sender_answer *ret);
/* Whatever the bytes are, ret may be used: texts end and are UTF-8, numbers are in their ranges.
 * false: no answer of a sender. */
bool sender_answer_get(const struct sender_answer *a, size_t n, struct upload_answer *ret);

/* The process itself; returns its exit status when the other end is closed. fd: one. */
int sender_serve(const int *fd, unsigned n);
