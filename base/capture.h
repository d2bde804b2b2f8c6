// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/str.h"
#include "base/time.h"

/*
 * The capture file, NAME.strata (docs/format-wire.md, "The capture file"): a header, then records,
 * each checksummed, in the order in which they were made. Batches are bodies as they go over the
 * wire; nothing here looks into them. A file without its last record, or cut inside one, holds a
 * capture that was not finished: what is whole counts. Thread: owner only.
 */
enum capture_kind {
    CAPTURE_ABOUT = 1, /* JSON: what is recorded; the first record */
    CAPTURE_BATCH = 2, /* zstd, the complete form */
    CAPTURE_END = 3,   /* JSON: what it came to; the last record */
};

#define CAPTURE_VERSION  1
#define CAPTURE_BODY_MAX (UINT32_C(64) << 20)

/* Header, or one record, at the end of fd. errors: errno of write */
[[nodiscard]] int capture_begin(int fd, struct err *err);
[[nodiscard]] int capture_put(int fd, enum capture_kind kind, struct str body, struct err *err);

struct capture {
    int fd;
    uint64_t at;     /* bytes read */
    uint64_t size;   /* of the file when it was opened */
    real_ns changed; /* when it had last been written */
    uint32_t kind;   /* of the last record */
    struct buf body; /* its bytes, until the next one */
};

/* errors: errno of open; -EINVAL it is none, or of a later version: says which */
[[nodiscard]] int capture_open(struct capture *c, const char *path, struct err *err);
void capture_close(struct capture *c);

enum capture_outcome {
    CAPTURE_EOF = 1, /* behind a whole record */
    CAPTURE_CUT = 2, /* inside one: the writer did not come to its end */
};

/* The next record; of kinds unknown here too: leave them. 0, an outcome, or -EBADMSG damaged, with
 * the offset; -EIO. */
[[nodiscard]] int capture_next(struct capture *c, struct err *err);
