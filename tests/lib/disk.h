// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdbool.h>
#include <stdint.h>

/*
 * A disk that loses what was not synced, and calls that fail. A test program that links disk.c and
 * disk_model.c replaces libc's calls that change files (open write pwrite ftruncate fsync fdatasync
 * posix_fallocate rename unlink mkdir rmdir link, and read for failing): those of the program
 * itself and those of SQLite alike. Below one folder every change is done and noted; fsync of a
 * file makes its content last, fsync of a folder its names, nothing else does: neither a new file's
 * own fsync its name, nor a rename's its content. Files that end with -shm are SQLite's memory and
 * no part of it.
 *
 * Not seen: stdio, mmap, copy_file_range. disk_compare() finds who used them.
 * Threads: the calls any; all of this header one, with no file of the folder open at an image.
 */

/* The folder root, an existing empty one with a path without links, is the disk. */
void disk_begin(const char *root);
/* Calls do what libc's do from now on. The folder stays. */
void disk_end(void);

/* ---- power cuts and kills ------------------------------------------------------------------ */

enum disk_call {
    DISK_CHANGE = 1, /* write, truncate, rename, unlink, mkdir, rmdir, link, an open that makes */
    DISK_SYNC = 2,
    DISK_OPEN = 4,
    DISK_READ = 8,
};

/* The end comes before the n-th change or sync from now, whichever is in the mask; changes after it
 * go nowhere. */
void disk_arm(uint32_t mask, uint64_t n);
/* It comes now, if it has not come. */
void disk_stop(void);
bool disk_stopped(void);
/* *flag = true, unless the end came before: what the world saw of a program. */
void disk_see(_Atomic bool *flag);

enum disk_keep {
    DISK_NONE,   /* of what was not synced */
    DISK_PREFIX, /* in the order of the calls */
    DISK_SUBSET, /* each by itself */
    DISK_ALL,
    DISK_KEEPS
};

/* What is left is written to the new folder dir, which is the disk from now on. The last write that
 * is kept may be torn by sectors. seed: of all choices. */
void disk_cut(const char *dir, enum disk_keep keep, uint64_t seed);
/* The program ended and the machine went on: all is there, but what was not synced still is not. */
void disk_kill(const char *dir);

/* ---- weaker disks, for tests that must fail ------------------------------------------------ */

enum disk_weak {
    DISK_NO_DIR_SYNC = 1, /* fsync of a folder does nothing */
    DISK_NO_OLD_SYNC = 2, /* fsync leaves out what was pending when the program was killed */
};
void disk_weaken(uint32_t weak);

/* ---- calls that fail ----------------------------------------------------------------------- */

/* Of the calls in the mask the n-th from now fails with errno code, and the next n_fail - 1; mask
 * 0: none. Unlink, truncate and rmdir do not fail with ENOSPC, nor does an open that makes nothing.
 * A write that fails has written half; after a failed sync what it was for never lasts, whatever a
 * later sync says. */
void disk_fail(uint32_t mask, uint64_t n, uint64_t n_fail, int code);
/* Calls that did, since the last disk_fail. */
uint64_t disk_failures(void);

/* ---- itself -------------------------------------------------------------------------------- */

/* The noted state of all files equals the folder: else a line of what differs to stderr, false. */
bool disk_compare(void);
/* Changes and syncs since disk_begin. */
uint64_t disk_calls(void);
