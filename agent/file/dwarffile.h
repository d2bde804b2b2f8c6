// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdbool.h>
#include <stdint.h>

/*
 * The debug sections of an ELF file as a small ELF file in memory, for libdw: nothing else is in
 * it, they are inflated here and not by libelf, and behind each stand DWARFFILE_PAD zero bytes, for
 * libdw 0.188 reads texts to their end even where they have none in their section. What is measured
 * is what is read: the file may change meanwhile. Any thread, no state.
 */
#define DWARFFILE_PAD 16

enum dwarffile_fail {
    DWARFFILE_OK = 0,
    DWARFFILE_NONE, /* no .debug_info */
    DWARFFILE_TOO_BIG,
    DWARFFILE_BAD, /* no ELF file, one that lies, or a compression other than zlib */
};

struct dwarffile {
    uint8_t *image; /* heap */
    uint64_t n;
    uint64_t line_at, line_n; /* .debug_line in it; line_n 0: none */
    bool has_alt;             /* it needs a further file (.gnu_debugaltlink) */
};

/* max: bytes of all debug sections, inflated. */
enum dwarffile_fail dwarffile_read(int fd, uint64_t max, struct dwarffile *ret);
void dwarffile_deinit(struct dwarffile *d);
