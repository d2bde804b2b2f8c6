// SPDX-License-Identifier: Apache-2.0
/*
 * A store that is only looked at: no LOCK, no write, sealed parts. A server may have it open and go
 * on writing catalog and dictionary; neither is locked by us. What is read meanwhile is either
 * whole (every row's sum and the sum of sums are right) or read again a little later.
 */
#include <errno.h>
#include <unistd.h>

#include "storage/dict/dictfile_private.h"
#include "storage/keep/recover_private.h"

#define TRIES   20
#define WAIT_US 50000

int open_read_catalog(struct store *s, struct catalog **ret, struct err *err)
{
    struct err why = {};
    int r = 0;

    *ret = NULL;
    for (int i = 0; i < TRIES; i++) {
        why = (struct err){};
        r = catalog_open_read(s->dir, store_tuning.vfs, ret, &why);
        if (r != -EBADMSG && r != -EIO)
            break;
        (void)usleep(WAIT_US);
    }
    if (r == -ENOENT)
        return faccessat(s->dir_fd, "LOCK", F_OK, 0) == 0 ||
                       faccessat(s->dir_fd, "journal", F_OK, 0) == 0
                   ? 0 /* nothing was sealed yet */
                   : err_set(err, r, "%s: there is no store", s->dir);
    return r == 0 ? 0 : err_set(err, r, "%s", why.msg);
}

int open_read_epoch(struct store *s, uint32_t id, uint32_t none, struct err *err)
{
    struct epoch *e;
    struct err why = {};
    int r = 0;

    for (int i = 0; i < TRIES; i++) {
        e = epoch_new(id ? id : none, s->seed, store_trie_nodes());
        if (!e)
            return err_set(err, -ENOMEM, "epoch: memory is short");
        why = (struct err){};
        r = id ? dictfile_load(s->dir, store_tuning.vfs, DICTFILE_READ, e, NULL, &why) : 0;
        if (r == 0)
            break;
        if (r == -ENOMEM || r == -EPROTO || i == TRIES - 1)
            break; /* what could be read of it */
        epoch_unref(e);
        (void)usleep(WAIT_US);
    }
    s->epoch = e;
    pool_count_in(&e->pool, &s->mem_used);
    if (r != 0)
        (void)err_set(err, r < 0 ? r : -EBADMSG, "%s", why.msg);
    return r == -ENOMEM || r == -EPROTO ? r : r == 0 ? 0 : STORE_PARTIAL;
}
