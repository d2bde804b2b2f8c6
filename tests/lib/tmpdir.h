// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <unistd.h>

static inline int test_remove_one(const char *path, const struct stat *st, int type, struct FTW *f)
{
    (void)st;
    (void)type;
    (void)f;
    return remove(path);
}

/* Where a folder that many small commits go to is made: in memory where there is such a place,
 * since what these tests check is not the speed of a disk. */
static inline const char *test_fast_dir(void)
{
    return access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
}

/* Remove a folder of the test and all in it. 0, or negative errno. One thread. */
static inline int test_remove_tree(const char *path)
{
    return nftw(path, test_remove_one, 16, FTW_DEPTH | FTW_PHYS) == 0 ? 0 : -errno;
}
