// SPDX-License-Identifier: Apache-2.0
#include "agent/file/minidebug.h"

#include <elf.h>
#include <errno.h>
#include <inttypes.h>
#include <lzma.h>
#include <stdlib.h>

#include "base/arena.h"

#define CHUNK UINT64_C(65536)
#define FIRST (UINT64_C(256) << 10)

struct inflating {
    const struct elffile *f;
    const struct elffile_section *section;
    uint64_t at; /* read of the section */
    uint8_t in[CHUNK];
    uint8_t *out;
    uint64_t room;
    lzma_stream z;
};

static int more_in(struct inflating *i, struct err *err)
{
    uint64_t left = i->section->size - i->at, n = left < CHUNK ? left : CHUNK;

    TRY(elffile_read(i->f, i->in, n, i->section->offset + i->at, err));
    i->at += n;
    i->z.next_in = i->in;
    i->z.avail_in = n;
    return 0;
}

static int more_out(struct inflating *i, struct err *err)
{
    uint64_t done = i->z.total_out, room = i->room ? 2 * i->room : FIRST;

    if (i->room >= MINIDEBUG_MAX_OUT)
        return err_set(err, -E2BIG, "mini debug info: more than %" PRIu64 " bytes",
                       MINIDEBUG_MAX_OUT);
    i->out = xrealloc(i->out, room);
    i->room = room;
    i->z.next_out = i->out + done;
    i->z.avail_out = room - done;
    return 0;
}

static int inflate_all(struct inflating *i, struct err *err)
{
    for (;;) {
        bool last;
        lzma_ret r;

        if (i->z.avail_in == 0 && i->at < i->section->size)
            TRY(more_in(i, err));
        if (i->z.avail_out == 0)
            TRY(more_out(i, err));
        last = i->at == i->section->size;
        r = lzma_code(&i->z, last ? LZMA_FINISH : LZMA_RUN);
        if (r == LZMA_STREAM_END)
            return 0;
        if (r == LZMA_MEMLIMIT_ERROR || r == LZMA_MEM_ERROR)
            return err_set(err, -E2BIG, "mini debug info: needs more than %" PRIu64 " bytes",
                           MINIDEBUG_MEMORY);
        if (r != LZMA_OK || (last && i->z.avail_in == 0 && i->z.avail_out > 0))
            return err_set(err, -EINVAL, "mini debug info: damaged or cut off (xz %d)", (int)r);
    }
}

int minidebug_read(const struct elffile *f, uint8_t **ret, uint64_t *ret_n, struct err *err)
{
    const struct elffile_section *s = elffile_section(f, ".gnu_debugdata");
    struct inflating *i;
    int r = 0;

    if (!s || s->type != SHT_PROGBITS || s->size == 0)
        return err_set(err, -ENOENT, "no mini debug info");
    if (s->size > MINIDEBUG_MAX_IN)
        return err_set(err, -E2BIG, "mini debug info: %" PRIu64 " bytes, the limit is %" PRIu64,
                       s->size, MINIDEBUG_MAX_IN);
    i = xcalloc(1, sizeof *i);
    i->f = f;
    i->section = s;
    i->z = (lzma_stream)LZMA_STREAM_INIT;
    if (lzma_stream_decoder(&i->z, MINIDEBUG_MEMORY, 0) != LZMA_OK)
        r = err_set(err, -ENOMEM, "xz");
    if (r == 0)
        r = inflate_all(i, err);
    if (r == 0) {
        *ret = i->out;
        *ret_n = i->z.total_out;
    } else {
        free(i->out);
    }
    lzma_end(&i->z);
    free(i);
    return r;
}
