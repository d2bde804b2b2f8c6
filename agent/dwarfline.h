// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "agent/binary.h"

/*
 * Source file and line of an ELF address, from the DWARF of the binary or of its debug file with
 * the same build id (libdw). Slow (a file's tables are read whole) and made for files of strangers
 * only as far as libdw is: used by commands with the caller's rights, not by the daemon. Owner's
 * thread.
 */
struct dwarfline;

/* debug_dir: "/usr/lib/debug"; "": none. NULL: there is no DWARF. b is borrowed. */
struct dwarfline *dwarfline_open(const struct binary *b, const char *debug_dir);
struct dwarfline *dwarfline_close(struct dwarfline *d); /* NULL is a no-op; returns NULL */

/* *ret_file lives as long as d. */
bool dwarfline_find(struct dwarfline *d, uint64_t addr, const char **ret_file, uint32_t *ret_line);
