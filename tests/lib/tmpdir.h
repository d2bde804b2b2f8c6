// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <errno.h>
#include <ftw.h>
#include <stdio.h>

static inline int test_remove_one(const char *path, const struct stat *st, int type, struct FTW *f)
{
    (void)st;
    (void)type;
    (void)f;
    return remove(path);
}

/* Remove a folder of the test and all in it. 0, or negative errno. One thread. */
static inline int test_remove_tree(const char *path)
{
    return nftw(path, test_remove_one, 16, FTW_DEPTH | FTW_PHYS) == 0 ? 0 : -errno;
}
