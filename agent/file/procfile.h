// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/buf.h"
#include "base/err.h"

/*
 * Files of /proc and /sys (no size, read until the end) and small state files of our own.
 * errors: negative errno of open or read, with path and reason; -E2BIG beyond the buf's cap.
 * Any thread.
 */

/* Appends the whole of DIR/NAME. */
[[nodiscard]] int procfile_read(const char *dir, const char *name, struct buf *out,
                                struct err *err);

/* Appends as much as the cap holds; true in *ret_cut if there was more. */
[[nodiscard]] int procfile_read_some(const char *dir, const char *name, struct buf *out,
                                     bool *ret_cut, struct err *err);

/* Appends what the link DIR/NAME points to. */
[[nodiscard]] int procfile_link(const char *dir, const char *name, struct buf *out,
                                struct err *err);

/* DIR/NAME becomes content, mode 0600, in one step (written aside, renamed); with flush it
 * is on the disk before the rename. */
[[nodiscard]] int procfile_replace(const char *dir, const char *name, struct str content,
                                   bool flush, struct err *err);

/* The same for a file that is written again and again, for readers that read it at once: it changes
 * its place with the one before, NAME.new, which is written over the next time. So no file is made
 * and none removed, which on a disk costs more than the writing. */
[[nodiscard]] int procfile_exchange(const char *dir, const char *name, struct str content,
                                    struct err *err);

/* All of s, in as many calls as it takes. 0, or a positive errno. */
[[nodiscard]] int procfile_write(int fd, struct str s);
