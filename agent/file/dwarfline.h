// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdbool.h>
#include <stdint.h>

/*
 * Source lines and inlined functions of addresses, from DWARF 2 to 5 (libdw). Descriptors and
 * addresses in, arrays out; no state. The file is a stranger's: libdw sees a copy of its debug
 * sections alone (dwarffile.h); their size, one unit's line program and the number of entries
 * looked at are bounded before; it opens no further file (.dwo, alternative files),
 * whatever the DWARF names. Units whose entries are in a .dwo file give lines without inlines.
 *
 * Costs: all debug sections are read into memory, so one job asks for many addresses of a file.
 * Any thread.
 */
#define DWARFLINE_MAX_BYTES   (UINT64_C(256) << 20) /* of debug sections, as inflated */
#define DWARFLINE_MAX_PROGRAM (UINT64_C(4) << 20)   /* of one unit's line program */
#define DWARFLINE_MAX_STEPS   (UINT64_C(20) << 20)  /* entries looked at, of one job */
#define DWARFLINE_MAX_INLINES 64 /* inside each other; deeper ones are left out */

enum dwarfline_fail {
    DWARFLINE_OK = 0,
    DWARFLINE_NO_DWARF, /* no debug sections */
    DWARFLINE_TOO_BIG,
    DWARFLINE_NO_ALT, /* it needs the file of .gnu_debugaltlink, which was not given */
    DWARFLINE_BAD,    /* no ELF file, one that lies, or what libdw refuses */
    DWARFLINE_STEPS,  /* DWARFLINE_MAX_STEPS: what was found so far is given */
    DWARFLINE_ABSENT, /* there was nobody to read it (reader.h): ask again */
    DWARFLINE_FAIL_N,
};
const char *dwarfline_fail_name(enum dwarfline_fail f); /* "ok", "no_dwarf", ... Static */

struct dwarfline_job {
    int fd, alt_fd;       /* alt_fd: -1 none */
    const uint64_t *addr; /* ELF addresses, ascending */
    uint32_t n;
    uint64_t max_bytes, max_steps; /* 0: the limits above */
};

/* Texts are parts of dwarfline_arrays.text; length 0: unknown. */
struct dwarfline_text {
    uint32_t at, n;
};

struct dwarfline_frame {
    struct dwarfline_text name; /* as DWARF has it, mangled */
    struct dwarfline_text file;
    uint32_t line;       /* being executed; 0 unknown */
    uint32_t start_line; /* where the function begins in file; 0 unknown */
    bool inlined;        /* into the frame before it */
};

/* Frames of one address, outermost first; n 0: nothing is known of it. */
struct dwarfline_found {
    uint32_t first, n;
};

struct dwarfline_arrays {
    struct dwarfline_frame *frame; /* heap, as the others */
    uint32_t n_frame;
    struct dwarfline_found *found; /* [job->n] */
    char *text;
    uint32_t text_n;
    uint64_t steps;
};

/* ret is set, perhaps without frames, whatever is returned. */
enum dwarfline_fail dwarfline_read(const struct dwarfline_job *job, struct dwarfline_arrays *ret);
/* The names of functions, for people (demangle.h); those that are no mangled ones stay. */
void dwarfline_demangle(struct dwarfline_arrays *a);
void dwarfline_deinit(struct dwarfline_arrays *a);
