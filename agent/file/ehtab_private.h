// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "agent/file/ehtab.h"

/* Cursor with a sticky error: every read is bounded, a hostile file costs time, not safety. */
struct ehtab_cur {
    const uint8_t *p, *end;
    bool bad;
};

uint64_t ehtab_cur_u(struct ehtab_cur *c, unsigned n); /* n <= 8 bytes, little-endian */
uint64_t ehtab_cur_uleb(struct ehtab_cur *c);
int64_t ehtab_cur_sleb(struct ehtab_cur *c);
/* A pointer in encoding DW_EH_PE_*; vaddr: the ELF address of the cursor. */
uint64_t ehtab_cur_ptr(struct ehtab_cur *c, unsigned enc, uint64_t vaddr);

/* Executable addresses of the file: FDEs outside are leftovers of discarded sections. */
struct ehtab_seg {
    uint64_t lo, hi;
};

struct ehtab_frame {
    const uint8_t *sec; /* .eh_frame */
    uint64_t n, vaddr;
    uint64_t max_fdes; /* end after so many: its end is not known exactly; 0: walk all of it */
    const struct ehtab_seg *seg;
    size_t n_seg;
};

/* Append the rows of every FDE, unsorted; t->full when EHTAB_MAX_ROWS or memory is reached. */
void ehtab_walk(const struct ehtab_frame *f, struct ehtab *t);
void ehtab_add(struct ehtab *t, uint64_t pc, const struct sa_rule *r);
