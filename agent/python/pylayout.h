// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdint.h>

#include "agent/bpf/cpu.h"
#include "agent/file/pyelf.h"
#include "agent/unwind/unwind_native.h"

/*
 * The layout of each CPython that we read, 3.10 to 3.15, and the checks that a running one has it.
 * Nothing is guessed: another version, or one whose words differ, is refused by name.
 */
struct pylayout {
    struct sa_py py;
    uint32_t version; /* PY_VERSION_HEX, of one that is refused too; 0: not read */
    uint64_t runtime; /* address of _PyRuntime in this process */
    uint64_t code_type;
    /* what BPF does not need */
    uint16_t interpreters, first_thread; /* from _PyRuntime, from an interpreter */
    uint16_t interp_next;                /* from an interpreter; 0 up to 3.12 */
    uint16_t next, thread_id;            /* from a thread state */
    uint16_t traceable;                  /* code object -> first traceable unit; 0 */
    uint16_t str_ascii, str_other;       /* data of a str */
};

enum pylayout_result {
    PYLAYOUT_OK = 0,
    PYLAYOUT_VERSION,       /* py_version: none that we read */
    PYLAYOUT_LAYOUT,        /* py_layout: the words of _Py_DebugOffsets differ from those we know */
    PYLAYOUT_FREE_THREADED, /* py_free_threaded */
    PYLAYOUT_TLS,           /* py_tls: the thread states are not where they must be */
    PYLAYOUT_WAIT,          /* not initialised yet, or between two states: ask again */
    PYLAYOUT_GONE,          /* its memory cannot be read */
    PYLAYOUT_N,
};

/* The name on the wire, static: "py_version". */
const char *pylayout_name(enum pylayout_result r);

/* From what the file says and the process holds. bias: run-time minus ELF addresses. */
enum pylayout_result pylayout_read(const struct pyelf *e, uint64_t bias,
                                   const struct unwind_memory *mem, struct pylayout *ret);

/*
 * By the process itself: in each thread of each interpreter the place that BPF will look at holds
 * the thread state. PYLAYOUT_TLS may be a thread that is just being made: ask again before it is
 * believed.
 */
enum pylayout_result pylayout_check(const struct pylayout *l, const struct unwind_memory *mem);

/*
 * The thread pointer of thread tid as its thread state tells it, for threads whose registers are
 * not known. 1; 0: it has no thread state, or none can be read now.
 *   errors   -ENOTSUP up to 3.10, whose states do not say which thread they are of
 */
int pylayout_thread_pointer(const struct pylayout *l, const struct unwind_memory *mem, uint32_t tid,
                            uint64_t *ret);

/* Parts, for tests. hex: PY_VERSION_HEX. */
enum pylayout_result pylayout_of_version(uint64_t hex, uint64_t runtime, struct pylayout *ret);
enum pylayout_result pylayout_check_offsets(const struct pylayout *l,
                                            const uint64_t word[static 64]);
