// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "agent/file/elffile.h"
#include "base/err.h"

/*
 * The symbols of one ELF file, from .symtab (its own or of a debug file), .dynsym, the PLT, and
 * where it is stripped and has no debug file from its mini debug info (minidebug.h). Sorted, 16
 * bytes each; names stay in the file. Files are strangers': bounded, checked, copied (elffile.h).
 *
 * At one address the symbol wins that has a size, then GLOBAL before WEAK before LOCAL, then the
 * one with fewer leading underscores, then by name. A symbol reaches over its size; one of size 0
 * to the next symbol or its section's end. Beyond that an address has no name: the nearest one
 * before it would be a guess. Any thread, no state.
 */

/* At most this many symbols, and bytes of one symbol's name. */
#define ELFSYM_MAX_SYMBOLS (UINT32_C(16) << 20)
#define ELFSYM_MAX_NAME    65535

struct elfsym_file {
    elffile_read_fn *read;
    void *ctx;
    uint64_t size;
};

struct elfsym_job {
    const struct elfsym_file *main,
        *debug;           /* debug: proved to belong to main (debugfile.h), or NULL
                           */
    uint32_t max_symbols; /* 0: ELFSYM_MAX_SYMBOLS */
};

enum elfsym_table {
    ELFSYM_SYMTAB,
    ELFSYM_DYNSYM,
    ELFSYM_DEBUG, /* .symtab of the debug file */
    ELFSYM_MINI,
    ELFSYM_TABLES,
};

/* Where a symbol's name stands: table, whether it is a PLT stub's, offset in the table's names. */
#define ELFSYM_NAME_MASK ((UINT32_C(1) << 29) - 1)
static inline uint32_t elfsym_name_ref(enum elfsym_table t, bool plt, uint64_t offset)
{
    return (uint32_t)t << 30 | (uint32_t)plt << 29 | (uint32_t)(offset & ELFSYM_NAME_MASK);
}

struct elfsym_sym {
    uint64_t addr;
    uint32_t size; /* of size 0 symbols: what they reach to */
    uint32_t name; /* elfsym_name_ref() */
};

struct elfsym_names {
    uint64_t offset, size; /* in their file; of ELFSYM_MINI: in mini, from 0 */
};

struct elfsym_arrays {
    struct elfsym_sym *sym; /* by addr; heap, as mini */
    uint32_t n;
    struct elfsym_names names[ELFSYM_TABLES];
    char *mini; /* names of ELFSYM_MINI */
    bool debug_used, mini_used, mini_failed;
};

/*
 *   errors   -ENOEXEC no ELF file, -EINVAL it lies, -E2BIG too many symbols, -EIO: no names. What
 *            is wrong with the debug file or the mini debug info costs their names alone
 */
[[nodiscard]] int elfsym_read(const struct elfsym_job *job, struct elfsym_arrays *ret,
                              struct err *err);

/* Up to n bytes of a table's names, from at; the number read, 0 beyond the end, negative errno. */
int64_t elfsym_read_names(const struct elfsym_job *job, const struct elfsym_arrays *a,
                          enum elfsym_table t, void *to, uint64_t n, uint64_t at);
