// SPDX-License-Identifier: Apache-2.0
/*
 * zstd frames (RFC 8878). A body is one or more frames, nothing else; all share one cap of output,
 * and one byte beyond it ends the work, for 32,000 bytes of zeros fit in one.
 */
#include <errno.h>
#include <pthread.h>
#include <zstd.h>
#include <zstd_errors.h>

#include "proto/fault_private.h"
#include "proto/wire.h"

#define WINDOW_LOG_MAX 23
#define LEVEL          3
#define STEP           ((size_t)64 << 10)
#define KEEP           ((size_t)512 << 10) /* what a thread's context may hold between bodies */

int wire_compress(struct str in, struct buf *out, struct err *err)
{
    size_t room = ZSTD_compressBound(in.n), n;
    char *to;

    if (ZSTD_isError(room))
        return err_set(err, -E2BIG, "compress: %zu bytes", in.n);
    /* the bound is a little above the input; what is near the cap may still fit in it */
    if (room > out->cap - out->n)
        room = out->cap - out->n;
    to = buf_reserve(out, room);
    if (!to)
        return err_set(err, -E2BIG, "compress: no room for %zu bytes", room);
    n = ZSTD_compress(to, room, in.p, in.n, LEVEL);
    if (ZSTD_isError(n))
        return err_set(err, -E2BIG, "compress: %s", ZSTD_getErrorName(n));
    buf_commit(out, n);
    return 0;
}

static int too_large(struct wire_fault *fault, struct err *err, const char *reason,
                     const char *setting, uint64_t limit, uint64_t actual)
{
    const struct wire_fault_why why = {reason, setting, limit, actual, true};

    return wire_fault_set(fault, err, -E2BIG, &why, "%s", "");
}

/* The server's memory, not the body's fault. */
static int no_memory(struct wire_fault *fault, struct err *err)
{
    const struct wire_fault_why why = {.reason = "overloaded"};

    return wire_fault_set(fault, err, -ENOMEM, &why, "zstd: memory is short");
}

/* One step; *ret_hint is 0 at the end of a frame. */
static int step(ZSTD_DStream *z, ZSTD_inBuffer *in, struct buf *out, size_t start,
                const struct wire_limits *limits, size_t *ret_hint, struct wire_fault *fault,
                struct err *err)
{
    size_t done = out->n - start;
    size_t room = limits->inflated - done;
    ZSTD_outBuffer to;
    char one[1]; /* at the cap: does it want to write more? */

    if (room > STEP)
        room = STEP;
    to = (ZSTD_outBuffer){.dst = room ? buf_reserve(out, room) : one, .size = room ? room : 1};
    if (!to.dst && room <= out->cap - out->n)
        return no_memory(fault, err);
    if (!to.dst)
        return too_large(fault, err, "inflated_too_large", "ingest.inflated", limits->inflated,
                         (uint64_t)done + room);
    *ret_hint = ZSTD_decompressStream(z, &to, in);
    if (ZSTD_isError(*ret_hint)) {
        if (ZSTD_getErrorCode(*ret_hint) == ZSTD_error_memory_allocation)
            return no_memory(fault, err);
        return WIRE_BAD(fault, err, "bad_encoding", "zstd at byte %zu of %zu: %.30s", in->pos,
                        in->size, ZSTD_getErrorName(*ret_hint));
    }
    if (room == 0 && to.pos > 0)
        return too_large(fault, err, "inflated_too_large", "ingest.inflated", limits->inflated,
                         (uint64_t)limits->inflated + 1);
    if (room > 0)
        buf_commit(out, to.pos);
    return 0;
}

static int frames(ZSTD_DStream *z, struct str in, const struct wire_limits *limits, struct buf *out,
                  struct wire_fault *fault, struct err *err)
{
    ZSTD_inBuffer from = {.src = in.p, .size = in.n};
    size_t start = out->n, hint = 1;
    uint32_t n = 0;

    if (ZSTD_isError(ZSTD_DCtx_setParameter(z, ZSTD_d_windowLogMax, WINDOW_LOG_MAX)))
        return no_memory(fault, err);
    while (from.pos < from.size || hint != 0) {
        size_t before = from.pos, had = out->n;

        TRY(step(z, &from, out, start, limits, &hint, fault, err));
        if (hint == 0 && ++n >= limits->members && from.pos < from.size) {
            const struct wire_fault_why why = {"too_many_members", "ingest.members",
                                               limits->members, (uint64_t)n + 1, false};

            return wire_fault_set(fault, err, -E2BIG, &why, "%s", "");
        }
        if (hint != 0 && from.pos == before && out->n == had && from.pos == from.size)
            return WIRE_BAD(fault, err, "bad_encoding", "zstd: cut off at byte %zu", in.n);
    }
    return 0;
}

/*
 * A context is 96 KB and more that are allocated, touched and given back: for a body of 4 KiB that
 * is more work than to inflate it. So each thread keeps its own, as long as no large window made it
 * large.
 */
static pthread_key_t kept;
static pthread_once_t kept_once = PTHREAD_ONCE_INIT;
static bool kept_ok;

static void kept_free(void *z)
{
    (void)ZSTD_freeDStream(z);
}

static void kept_init(void)
{
    kept_ok = pthread_key_create(&kept, kept_free) == 0;
}

static ZSTD_DStream *context_take(void)
{
    ZSTD_DStream *z;

    (void)pthread_once(&kept_once, kept_init);
    z = kept_ok ? pthread_getspecific(kept) : NULL;
    if (!z)
        return ZSTD_createDStream();
    (void)pthread_setspecific(kept, NULL);
    (void)ZSTD_DCtx_reset(z, ZSTD_reset_session_and_parameters);
    return z;
}

static void context_give(ZSTD_DStream *z)
{
    if (!kept_ok || ZSTD_sizeof_DStream(z) > KEEP || pthread_setspecific(kept, z) != 0)
        (void)ZSTD_freeDStream(z);
}

int wire_inflate(struct str in, const struct wire_limits *limits, struct buf *out,
                 struct wire_fault *fault, struct err *err)
{
    size_t start = out->n;
    ZSTD_DStream *z;
    int r;

    if (in.n > limits->body)
        return too_large(fault, err, "body_too_large", "ingest.body", limits->body, in.n);
    if (in.n == 0)
        return WIRE_BAD(fault, err, "bad_encoding", "zstd: %s", "no frame");
    z = context_take();
    if (!z)
        return no_memory(fault, err);
    r = frames(z, in, limits, out, fault, err);
    context_give(z);
    if (r < 0)
        out->n = start;
    return r;
}
