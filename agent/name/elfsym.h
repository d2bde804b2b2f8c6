// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "agent/file/binary.h"
#include "agent/file/elfsym_read.h"
#include "base/buf.h"
#include "base/err.h"

/*
 * Function names of a binary, by address: the symbols that elfsym_read.h finds, read by way of
 * reader.h and kept; names are read from the file when asked for. An elfsym is its owner's.
 */
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
