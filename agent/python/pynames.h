// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "agent/python/pylayout.h"
#include "base/str.h"

/*
 * Names and lines of the Python frames of a record, read from the process at once (a drain is at
 * most 50 ms behind while new ones come), because it may free them. A code object is believed if it
 * is of the type code, and if the check word of its unchanging fields is what the program saw; else
 * the frame is [python 0xADDR], never another function's name. What was read is kept, PYNAMES_BYTES
 * in all; beyond them all of it is forgotten and read again. Owner: one thread.
 */
#define PYNAMES_BYTES ((size_t)32 << 20)

struct pynames;

struct pynames_frame {
    uint64_t key; /* equal keys are one function */
    struct str name, file;
    uint32_t start_line, line; /* 0: unknown */
    bool internal;             /* no frame of the program: left out */
};

struct pynames_stats {
    uint64_t codes, reads, bytes;     /* kept now; read; bytes kept */
    uint64_t forgotten;               /* times that all were */
    uint64_t frames, internal;        /* asked for; of them no function of the program */
    uint64_t died, unreadable, check; /* frames without a name, by why */
};

struct pynames *pynames_new(size_t bytes);       /* 0: PYNAMES_BYTES */
struct pynames *pynames_free(struct pynames *n); /* NULL is a no-op; returns NULL */

/*
 * The Python frames of ev in its order, into ret; how many. serial: of the process's life. Texts
 * are borrowed until the next call.
 */
uint32_t pynames_get(struct pynames *n, uint64_t serial, const struct pylayout *l,
                     const struct unwind_memory *mem, const struct sa_ev *ev,
                     struct pynames_frame ret[static SA_MAX_PY]);

void pynames_get_stats(const struct pynames *n, struct pynames_stats *ret);
