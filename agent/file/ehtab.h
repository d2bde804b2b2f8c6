// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/bpf/cpu.h"

/*
 * .eh_frame of one ELF file to rows (ELF address, rule in force from there on), by simulating three
 * columns of the call frame information: CFA, rbp and the return address (DWARF 5, 6.4; Linux
 * Standard Base, exception frames; System V ABI, x86-64). The file is a stranger's: it is read by
 * a callback, never mapped; every read goes through a bounds-checked cursor; memory and time are
 * bounded by its size and the limits below. Any thread; no globals.
 */
enum {
    EHTAB_MAX_SECTION = 256 << 20, /* bytes of .eh_frame */
    EHTAB_MAX_ROWS = 16 << 20,     /* before sorting; 2.3 million is the most seen */
};

/* Why there is no table. Names on the wire: ehtab_fail_name(). Append only. */
enum ehtab_fail {
    EHTAB_OK = 0,
    EHTAB_NO_EHFRAME,
    EHTAB_BAD_HEADER, /* no ELF64 x86-64 file, or tables outside of it */
    EHTAB_EMPTY,      /* no usable FDE */
    EHTAB_TOO_BIG,
    EHTAB_TIMEOUT,
    EHTAB_CRASHED, /* the file changed while it was read, or memory is short */
    EHTAB_BUDGET,  /* larger than all tables together may be, or maps full */
    EHTAB_FAIL_N,
};

const char *ehtab_fail_name(enum ehtab_fail f);

struct ehtab_file {
    /* Up to n bytes at an offset; fewer at the end. Bytes read or negative errno. */
    int64_t (*read)(void *ctx, void *to, uint64_t n, uint64_t at);
    void *ctx;
    uint64_t size;
};

struct ehtab_row {
    uint64_t pc; /* ELF address */
    struct sa_rule rule;
};

struct ehtab {
    struct ehtab_row *row; /* sorted, no two equal addresses, no two equal neighbours */
    size_t n;
    /* what could not be expressed, and what was made specially */
    uint64_t fdes, cies, bad_fde, bad_expr, bad_ra, bad_off, leaf_reg, ra_reg, ctx_end, plt_made;
    /* private */
    size_t cap;
    bool full;
};

/* Builds *t; any value but EHTAB_OK leaves it empty. Free it with ehtab_deinit(). */
[[nodiscard]] enum ehtab_fail ehtab_build(const struct ehtab_file *f, struct ehtab *t);
void ehtab_deinit(struct ehtab *t);

/* The rule in force at pc; NULL before the first row. */
const struct sa_rule *ehtab_find(const struct ehtab *t, uint64_t pc);
