// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "agent/file/binary.h"
#include "agent/file/elffile.h"
#include "base/str.h"

/*
 * The note of our own probe in a stranger's file: section .note.stapsdt, owner "stapsdt", type 3,
 * as <sys/sdt.h> writes it. Every offset is checked; a note that lies is no note. Pure; the
 * elffile's reader decides about threads.
 */
struct usdt_site {
    uint64_t offset;     /* of the instruction, in the file */
    uint64_t sem_offset; /* of the 16-bit word that the kernel raises */
};

enum usdt_found {
    USDT_NONE = 0,
    USDT_FOUND,
    USDT_FOREIGN, /* strata:step, but not as we write it: other arguments, no nop5, no semaphore */
};

/* The first probe strata:step of f (elffile_open() was done; sections are read if they are not). */
enum usdt_found usdt_find_step(struct elffile *f, struct usdt_site *ret);

/* Is b, at this site, as we write it: the nop to be replaced, and in a segment of data a word of
 * zeros? Reads these seven bytes. */
bool usdt_site_ok(const struct binary *b, const struct usdt_site *s);
