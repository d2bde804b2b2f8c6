// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdint.h>

#include "agent/file/elffile.h"
#include "base/err.h"

/*
 * Mini debug info (Fedora and its kin): the section .gnu_debugdata holds an ELF file, compressed by
 * xz, whose .symtab names the functions that .dynsym does not. Any thread, no state.
 */
#define MINIDEBUG_MAX_IN  (UINT64_C(32) << 20)
#define MINIDEBUG_MAX_OUT (UINT64_C(64) << 20)
#define MINIDEBUG_MEMORY  (UINT64_C(64) << 20) /* of the decoder */

/*
 * The file inside, on the heap; f after elffile_sections().
 *   errors   -ENOENT there is no such section, -E2BIG beyond a limit above, -EINVAL no xz stream,
 *            one that is cut off or damaged
 */
[[nodiscard]] int minidebug_read(const struct elffile *f, uint8_t **ret, uint64_t *ret_n,
                                 struct err *err);
