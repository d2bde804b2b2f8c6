// SPDX-License-Identifier: Apache-2.0
/*
 * SQLite writes a page to its log by two calls, one for the frame's header and one for the page,
 * and each takes the file system through its bookkeeping of a file that grows. Here what adjoins is
 * gathered and goes down in one call: when the log is synced, when there is no more room, or before
 * whatever would see the file otherwise.
 *
 * What a power cut can do stays the same: the order within the file stays, and bytes that are
 * still gathered are bytes that were not synced, which nobody was promised. What a write would have
 * failed with, the sync that needs it fails with, before anything is synced; then what was gathered
 * is gone, as a write that failed is.
 */
#include <assert.h>
#include <pthread.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "storage/journal/journal_private.h"

enum {
    /* bytes: stays in the caches on its way; SQLite takes 2^17 - 1 at once and no more */
    ROOM = 120 << 10,
};

/* A log. The file of the VFS below lies behind it, as SQLite asked for room for both. */
struct gathered {
    sqlite3_file file; /* first: what SQLite holds */
    char *bytes;
    sqlite3_int64 at; /* where in the file they belong */
    int n;
};

static sqlite3_vfs *below;
static sqlite3_vfs gather = {.zName = "strata-gather"};

static struct gathered *of(sqlite3_file *f)
{
    return (struct gathered *)f;
}

static sqlite3_file *real(sqlite3_file *f)
{
    return (sqlite3_file *)(of(f) + 1);
}

static int flush(sqlite3_file *f)
{
    struct gathered *g = of(f);
    int n = g->n;

    g->n = 0;
    return n ? real(f)->pMethods->xWrite(real(f), g->bytes, n, g->at) : SQLITE_OK;
}

static int on_close(sqlite3_file *f)
{
    int r = flush(f), closed = real(f)->pMethods->xClose(real(f));

    free(of(f)->bytes);
    of(f)->bytes = NULL;
    return r ? r : closed;
}

static int on_read(sqlite3_file *f, void *p, int n, sqlite3_int64 at)
{
    int r = flush(f);

    return r ? r : real(f)->pMethods->xRead(real(f), p, n, at);
}

static int on_write(sqlite3_file *f, const void *p, int n, sqlite3_int64 at)
{
    struct gathered *g = of(f);

    assert(n <= ROOM); /* a page has 64 KiB at most */
    if (g->n && (at != g->at + g->n || n > ROOM - g->n)) {
        int r = flush(f);

        if (r)
            return r;
    }
    if (g->n == 0)
        g->at = at;
    memcpy(g->bytes + g->n, p, (size_t)n);
    g->n += n;
    return SQLITE_OK;
}

static int on_truncate(sqlite3_file *f, sqlite3_int64 size)
{
    int r = flush(f);

    return r ? r : real(f)->pMethods->xTruncate(real(f), size);
}

static int on_sync(sqlite3_file *f, int flags)
{
    int r = flush(f);

    return r ? r : real(f)->pMethods->xSync(real(f), flags);
}

static int on_size(sqlite3_file *f, sqlite3_int64 *ret)
{
    int r = flush(f);

    return r ? r : real(f)->pMethods->xFileSize(real(f), ret);
}

static int on_lock(sqlite3_file *f, int level)
{
    return real(f)->pMethods->xLock(real(f), level);
}

static int on_unlock(sqlite3_file *f, int level)
{
    return real(f)->pMethods->xUnlock(real(f), level);
}

static int on_reserved(sqlite3_file *f, int *ret)
{
    return real(f)->pMethods->xCheckReservedLock(real(f), ret);
}

static int on_control(sqlite3_file *f, int op, void *arg)
{
    return real(f)->pMethods->xFileControl(real(f), op, arg);
}

static int on_sector(sqlite3_file *f)
{
    return real(f)->pMethods->xSectorSize(real(f));
}

static int on_device(sqlite3_file *f)
{
    return real(f)->pMethods->xDeviceCharacteristics(real(f));
}

/* Version 1: a log is neither mapped nor has shared memory of its own. */
static const sqlite3_io_methods methods = {
    .iVersion = 1,
    .xClose = on_close,
    .xRead = on_read,
    .xWrite = on_write,
    .xTruncate = on_truncate,
    .xSync = on_sync,
    .xFileSize = on_size,
    .xLock = on_lock,
    .xUnlock = on_unlock,
    .xCheckReservedLock = on_reserved,
    .xFileControl = on_control,
    .xSectorSize = on_sector,
    .xDeviceCharacteristics = on_device,
};

/* Files other than logs are the VFS's below alone. */
static int on_open(sqlite3_vfs *v, const char *name, sqlite3_file *f, int flags, int *ret_flags)
{
    struct gathered *g = of(f);
    int r;

    (void)v;
    if (!(flags & SQLITE_OPEN_WAL))
        return below->xOpen(below, name, f, flags, ret_flags);
    *g = (struct gathered){.bytes = mem_fail_now() ? NULL : malloc(ROOM)};
    if (!g->bytes)
        return SQLITE_NOMEM;
    real(f)->pMethods = NULL;
    r = below->xOpen(below, name, real(f), flags, ret_flags);
    if (r == SQLITE_OK) {
        f->pMethods = &methods;
        return SQLITE_OK;
    }
    if (real(f)->pMethods)
        (void)real(f)->pMethods->xClose(real(f));
    free(g->bytes);
    return r;
}

/* All but opening is done by the VFS below; what it keeps in the struct is copied with it. */
static void add(void)
{
    const char *name = gather.zName;

    below = sqlite3_vfs_find(NULL);
    if (!below)
        return;
    gather = *below;
    gather.zName = name;
    gather.pNext = NULL;
    gather.szOsFile = (int)sizeof(struct gathered) + below->szOsFile;
    gather.xOpen = on_open;
    if (sqlite3_vfs_register(&gather, 0) != SQLITE_OK)
        below = NULL;
}

const char *journal_vfs(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    (void)pthread_once(&once, add);
    return below ? gather.zName : NULL;
}
