// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "agent/binary.h"
#include "base/buf.h"
#include "base/err.h"

/*
 * Function names of a binary, from .symtab (its own or of a debug file with the same build id),
 * .dynsym and the PLT. A sorted array of 16 bytes per symbol is kept; names stay in the file and
 * are read when asked for. Files are strangers': bounded, checked, copied (elffile.h).
 *
 * At one address the symbol wins that has a size, then GLOBAL before WEAK before LOCAL, then the
 * one with fewer leading underscores, then by name. A symbol reaches over its size; one of size 0
 * to the next symbol or its section's end. Beyond that an address has no name: the nearest one
 * before it would be a guess.
 *
 * Thread: owner only (the batch thread).
 */
struct elfsym;

/* At most this many symbols of one table, and bytes of one symbol's name. */
#define ELFSYM_MAX_SYMBOLS (UINT32_C(16) << 20)
#define ELFSYM_MAX_NAME    65535

struct elfsym_hit {
    uint32_t index; /* of the symbol: a key for what the caller caches by name */
    uint64_t addr;  /* where it begins */
};

/*
 * Reads the tables of b, whose reference is taken over into *ret as a further one.
 * debug_dir: "/usr/lib/debug"; NULL or "": no debug files.
 *   errors   -ENOEXEC no ELF file, -EINVAL it lies, -E2BIG too many symbols, -EIO: no names
 */
[[nodiscard]] int elfsym_open(struct binary *b, const char *debug_dir, struct elfsym **ret,
                              struct err *err);
struct elfsym *elfsym_close(struct elfsym *s); /* NULL is a no-op; returns NULL */

/* The symbol that covers an ELF address. */
bool elfsym_find(const struct elfsym *s, uint64_t addr, struct elfsym_hit *ret);

/* Appends the symbol's name as it stands in the file ("name@plt" of a PLT stub); false if it cannot
 * be read. */
bool elfsym_name(const struct elfsym *s, uint32_t index, struct buf *out);

uint64_t elfsym_bytes(const struct elfsym *s); /* of memory */
uint32_t elfsym_count(const struct elfsym *s); /* symbols kept */
bool elfsym_has_debug(const struct elfsym *s); /* a separate debug file was found and used */
