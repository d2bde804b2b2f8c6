// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "agent/file/binary.h"

/*
 * Is a binary a CPython, and where are its parts: ELF addresses, 0 where it has none. Any thread;
 * reads a few hundred bytes of what is none.
 */
struct pyelf {
    uint64_t runtime;          /* _PyRuntime */
    uint64_t version;          /* Py_Version, 3.11 on: an unsigned long, PY_VERSION_HEX */
    uint64_t code_type;        /* PyCode_Type */
    uint64_t gilstate;         /* PyGILState_GetThisThreadState */
    uint64_t eval_lo, eval_hi; /* _PyEval_EvalFrameDefault */
    uint64_t cold_lo, cold_hi; /* its part that the compiler put elsewhere */
    bool named_310;            /* by its path it is 3.10, which has no Py_Version */
};

/* false: it is none. */
bool pyelf_read(const struct binary *b, struct pyelf *ret);

/* The eval function is known whole: by less than this its main loop is elsewhere. */
#define PYELF_EVAL_LEAST 16384

static inline bool pyelf_has_eval(const struct pyelf *e)
{
    return e->eval_hi - e->eval_lo + (e->cold_hi - e->cold_lo) >= PYELF_EVAL_LEAST;
}
