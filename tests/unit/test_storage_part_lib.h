// SPDX-License-Identifier: Apache-2.0
#pragma once

/* A folder with one part that holds the sample: for the tests of parts. */
#include "tests/unit/test_storage_file_lib.h"

struct here {
    char dir[64];
    struct sample_names nm;
    struct sample_local sl;
    struct part_info info;
};

[[maybe_unused]] static struct part_conf conf_of(const struct here *h, const char *vfs)
{
    return (struct part_conf){.dir = h->dir,
                              .vfs = vfs,
                              .tier = STORE_RAW,
                              .period = PERIOD,
                              .epoch = 12,
                              .generation = 3,
                              .sealed_lsn = 4711,
                              .names = &h->nm.n};
}

[[maybe_unused]] static int write_part(struct here *h, const char *vfs, struct part_info *ret,
                                       struct err *err)
{
    struct part_conf conf = conf_of(h, vfs);
    struct part_writer *w;
    int r;

    TRY(part_create(&conf, &w, err));
    r = sample_put(w, &h->nm, &h->sl, err);
    if (r == 0)
        return part_finish(w, ret, err);
    (void)part_abort(w);
    return r;
}

[[maybe_unused]] static void here_init(struct here *h)
{
    struct err err = {};

    *h = (struct here){};
    folder_make(h->dir);
    sample_names_init(&h->nm);
    sample_local_init(&h->sl, &h->nm);
    assert_ok(write_part(h, NULL, &h->info, &err), &err);
}

[[maybe_unused]] static void here_deinit(struct here *h)
{
    sample_local_deinit(&h->sl);
    names_deinit(&h->nm.n);
    assert_int_equal(test_remove_tree(h->dir), 0);
}
