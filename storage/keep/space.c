// SPDX-License-Identifier: Apache-2.0
/*
 * A disk that fills up. On it unlinking works where writing does not, and what takes room and can
 * be given up are journals: once their rows are in parts, which are smaller. A file "reserve" is
 * kept for the parts of that moment.
 *
 *   tight   less than min_free: nothing that only saves space later (compaction)
 *   full    less than a quarter of it, or ENOSPC: appends are refused, reserve is given up, the
 * head is sealed into it, journals are unlinked (st-writer, st-upkeep). Reads go on ok      again
 * when a commit passes (st-journal) and min_free is there; reserve is made anew
 *
 * Nothing else is deleted: if others filled the disk, the store waits.
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "storage/keep/seal_private.h"

#define NAME        "reserve"
#define RESERVE_MIN 4096u /* below that none is kept */

void space_full(struct store *s, const char *why)
{
    store_set_state(s, STORE_FULL, why);
    mutex_lock(&s->writer);
    cond_signal(&s->writer_wake);
    mutex_unlock(&s->writer);
}

/* Where it cannot be had whole, it is not there. */
static void make_reserve(const struct store *s, uint64_t avail)
{
    struct stat st;
    int fd;

    if (s->conf.reserve < RESERVE_MIN)
        return;
    if (fstatat(s->dir_fd, NAME, &st, 0) == 0 && (uint64_t)st.st_size == s->conf.reserve)
        return;
    if (avail < s->conf.reserve + s->conf.min_free)
        return;
    fd = openat(s->dir_fd, NAME, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0)
        return;
    if (posix_fallocate(fd, 0, (off_t)s->conf.reserve) != 0)
        (void)unlinkat(s->dir_fd, NAME, 0);
    (void)close(fd);
}

void space_look(struct store *s)
{
    enum store_state state = atomic_load(&s->state);
    struct statvfs v;
    uint64_t avail;

    if (fstatvfs(s->dir_fd, &v) != 0)
        return;
    avail = (uint64_t)v.f_bavail * v.f_frsize;
    atomic_store(&s->disk_free, avail);
    if (state != STORE_OK && state != STORE_TIGHT)
        return;
    if (avail < s->conf.min_free / 4) {
        space_full(s, "less than a quarter of min_free is left on the device");
        mutex_lock(&s->admit);
        cond_signal(&s->queued);
        mutex_unlock(&s->admit);
        return;
    }
    if (avail < s->conf.min_free)
        store_set_state(s, STORE_TIGHT, "less than min_free is left on the device");
    else
        store_set_state(s, STORE_OK, "");
    if (s->catalog)
        make_reserve(s, avail);
}

/* The head goes into the room that reserve leaves; what cannot be sealed now is tried again. */
int space_relieve(struct store *s, struct err *err)
{
    (void)unlinkat(s->dir_fd, NAME, 0);
    return seal(s, err);
}
