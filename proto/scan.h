// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"
#include "proto/wire.h"

/*
 * The pass before unpacking: walks a protobuf message once, without recursion and without
 * allocating, and refuses what would cost too much or is malformed. A library that unpacks such a
 * message has no limit of depth or of elements of its own. Knows each message by a table; fields
 * beyond the table are counted and skipped unread.
 * Thread: any.
 */
#define WIRE_SCAN_NESTING 32 /* fixed stack; wire_limits.nesting may only be smaller */
#define WIRE_SCAN_SLOTS   192

enum wire_scan_type {
    WIRE_SCAN_U32 = 1, /* varint; more than 32 bits is refused, not cut */
    WIRE_SCAN_U64,     /* varint, zigzag or not */
    WIRE_SCAN_F64,     /* fixed64, double */
    WIRE_SCAN_BYTES,
    WIRE_SCAN_MSG,
};

/* Which limit a repeated field's elements count against, each field alone, over the whole body. */
enum wire_scan_limit {
    WIRE_SCAN_FREE = 0,
    WIRE_SCAN_SAMPLES,
    WIRE_SCAN_STREAMS,
    WIRE_SCAN_ENTRIES,
};

struct wire_scan_msg;

struct wire_scan_field {
    const char *name;
    const struct wire_scan_msg *child; /* WIRE_SCAN_MSG */
    uint32_t number;
    enum wire_scan_type type;
    bool repeated;
    enum wire_scan_limit limit;
    uint32_t cost; /* bytes of memory for each element once decoded, beyond that of a child */
};

struct wire_scan_msg {
    const struct wire_scan_field *field; /* by number, ascending */
    uint32_t n;
    uint32_t slot; /* of its first field among all fields of the schema: below WIRE_SCAN_SLOTS */
    uint32_t cost; /* bytes for one message */
};

extern const struct wire_scan_msg wire_scan_batch; /* of proto/ingest.proto */

/*
 * Scan body as root. room: bytes that decoding may use.
 *   errors   -EINVAL malformed, -E2BIG a limit, -ENOMEM it would not fit in room; fault is filled
 */
[[nodiscard]] int wire_scan(struct str body, const struct wire_scan_msg *root,
                            const struct wire_limits *limits, size_t room, struct wire_fault *fault,
                            struct err *err);
