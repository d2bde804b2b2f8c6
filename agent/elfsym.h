// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "agent/binary.h"
#include "base/buf.h"
#include "base/err.h"

/*
 * Function names of a binary, from .symtab (its own or of a debug file), .dynsym, the PLT, and
 * where the binary is stripped and has no debug file from its mini debug info (minidebug.h). A
 * sorted array of 16 bytes per symbol is kept; names stay in the file and are read when asked for.
 * Files are strangers': bounded, checked, copied (elffile.h).
 *
 * At one address the symbol wins that has a size, then GLOBAL before WEAK before LOCAL, then the
 * one with fewer leading underscores, then by name. A symbol reaches over its size; one of size 0
 * to the next symbol or its section's end. Beyond that an address has no name: the nearest one
 * before it would be a guess.
 *
 * elfsym_read() takes files and gives arrays, any thread; struct elfsym is its owner's.
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

struct elfsym;

struct elfsym_hit {
    uint32_t index; /* of the symbol: a key for what the caller caches by name */
    uint64_t addr;  /* where it begins */
};

/* Of b, which gets a further reference. debug_fd: of its debug file or -1; taken over whatever
 * happens. errors as elfsym_read() */
[[nodiscard]] int elfsym_open(struct binary *b, int debug_fd, uint32_t max_symbols,
                              struct elfsym **ret, struct err *err);
struct elfsym *elfsym_close(struct elfsym *s); /* NULL is a no-op; returns NULL */

/* The symbol that covers an ELF address. */
bool elfsym_find(const struct elfsym *s, uint64_t addr, struct elfsym_hit *ret);

/* Appends the symbol's name as it stands in the file ("name@plt" of a PLT stub); false if it cannot
 * be read. */
bool elfsym_name(const struct elfsym *s, uint32_t index, struct buf *out);

uint64_t elfsym_bytes(const struct elfsym *s); /* of memory */
uint32_t elfsym_count(const struct elfsym *s); /* symbols kept */
bool elfsym_has_debug(const struct elfsym *s); /* names of a separate debug file are among them */
bool elfsym_has_mini(const struct elfsym *s);  /* of mini debug info */
bool elfsym_mini_failed(const struct elfsym *s);
