// SPDX-License-Identifier: Apache-2.0
/*
 * gzip members (RFC 1952). A body is one or more members, nothing else; all share one cap of
 * output, and one byte beyond it ends the work.
 */
#include <errno.h>
#include <zlib.h>

#include "proto/fault_private.h"
#include "proto/wire.h"

#define STEP        ((size_t)64 << 10)
#define GZIP_WINDOW (16 + 15) /* gzip alone, with the largest window there is */

static int too_large(struct wire_fault *fault, struct err *err, const char *reason,
                     const char *setting, uint64_t limit, uint64_t actual)
{
    const struct wire_fault_why why = {reason, setting, limit, actual, true};

    return wire_fault_set(fault, err, -E2BIG, &why, "%s", "");
}

static int no_memory(struct wire_fault *fault, struct err *err)
{
    const struct wire_fault_why why = {.reason = "overloaded"};

    return wire_fault_set(fault, err, -ENOMEM, &why, "gzip: memory is short");
}

/* Until the end of this member. */
static int member(z_stream *z, size_t max, struct buf *out, size_t start, struct wire_fault *fault,
                  struct err *err)
{
    for (;;) {
        size_t room = max - (out->n - start);
        Bytef one[1]; /* at the cap: does it want to write more? */
        char *to;
        int r;

        if (room > STEP)
            room = STEP;
        to = room ? buf_reserve(out, room) : (char *)one;
        if (!to)
            return no_memory(fault, err);
        z->next_out = (Bytef *)to;
        z->avail_out = room ? (uInt)room : 1;
        r = inflate(z, Z_NO_FLUSH);
        if (r == Z_MEM_ERROR)
            return no_memory(fault, err);
        if (r != Z_OK && r != Z_STREAM_END)
            return WIRE_BAD(fault, err, "bad_encoding", "gzip at byte %lu: %.30s", z->total_in,
                            r == Z_BUF_ERROR ? "cut off"
                            : z->msg         ? z->msg
                                             : "no gzip");
        if (room == 0 && z->avail_out == 0)
            return too_large(fault, err, "inflated_too_large", "ingest.inflated", max,
                             (uint64_t)max + 1);
        if (room)
            buf_commit(out, room - z->avail_out);
        if (r == Z_STREAM_END)
            return 0;
    }
}

int wire_gunzip(struct str in, const struct wire_limits *limits, struct buf *out,
                struct wire_fault *fault, struct err *err)
{
    union {
        const char *in;
        Bytef *out; /* the library only reads it, though its type does not say so */
    } from = {.in = in.p};
    size_t start = out->n;
    z_stream z = {};
    uint32_t n = 0;
    int r = 0;

    if (in.n > limits->body || in.n > UINT32_MAX)
        return too_large(fault, err, "body_too_large", "ingest.body", limits->body, in.n);
    if (in.n == 0)
        return WIRE_BAD(fault, err, "bad_encoding", "gzip: %s", "no member");
    if (inflateInit2(&z, GZIP_WINDOW) != Z_OK)
        return no_memory(fault, err);
    z.next_in = from.out;
    z.avail_in = (uInt)in.n;
    while (r == 0 && z.avail_in) {
        if (n++ == limits->members) {
            const struct wire_fault_why why = {"too_many_members", "ingest.members",
                                               limits->members, n, false};

            r = wire_fault_set(fault, err, -E2BIG, &why, "%s", "");
            break;
        }
        r = member(&z, limits->inflated, out, start, fault, err);
        if (r == 0 && z.avail_in && inflateReset(&z) != Z_OK)
            r = no_memory(fault, err);
    }
    (void)inflateEnd(&z);
    if (r < 0)
        out->n = start;
    return r;
}
