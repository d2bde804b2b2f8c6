// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"

/*
 * Perf maps (tools/perf/Documentation/jit-interface.txt of Linux): a JIT writes the functions that
 * it made into /tmp/perf-PID.map, lines "START SIZE NAME" (hex, hex, the rest). A later line hides
 * an earlier one that it overlaps, wholly: that code is gone. A last line without its end is still
 * being written and is left out.
 *
 * jitmap_read() takes a descriptor and gives arrays, jitmap_open() finds the file. Any thread.
 */
#define JITMAP_MAX_BYTES   (UINT64_C(64) << 20)
#define JITMAP_MAX_ENTRIES (UINT32_C(2) << 20)
#define JITMAP_MAX_NAME    65535

struct jitmap_sym {
    uint64_t start, end;
    uint32_t name, name_len; /* in text */
};

struct jitmap {
    struct jitmap_sym *sym; /* by start, without overlaps; heap, as text */
    uint32_t n;
    char *text;
    uint64_t text_n;
    uint32_t bad, hidden, dropped; /* lines that make no sense, were overlapped, "py::..." */
    bool cut;                      /* there is more than the limits let in */
};

struct jitmap_args {
    bool drop_python; /* names "py::...": Python frames are told by other means */
    uint32_t max_entries;
    uint64_t max_bytes; /* 0: the limits above */
};

/* errors: errno of read */
[[nodiscard]] int jitmap_read(int fd, const struct jitmap_args *args, struct jitmap *ret,
                              struct err *err);
void jitmap_deinit(struct jitmap *m);

/* The name of what covers addr. Part of m. */
bool jitmap_find(const struct jitmap *m, uint64_t addr, struct str *ret);

/*
 * The map of the process that its own pid namespace calls pid, below its root (rootfile.h): never
 * through a link, and only if it belongs to one of the process's users (real, effective) or root.
 *   errors   -ENOENT none, -ELOOP a link, -EINVAL no regular file, -EPERM somebody else's
 */
int jitmap_open(int root, uint64_t pid, const uint32_t uid[static 2]);
