// SPDX-License-Identifier: Apache-2.0
/*
 * A copy of the store as of one seal. Parts never change: they are linked. So are dictionaries of
 * closed epochs. The catalog and the current dictionary are copied by the thread that writes them,
 * which does nothing else meanwhile: so what is linked is what the copied catalog lists.
 *
 * The copy grows in a folder beside its name and gets the name when all of it is on disk.
 */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "storage/dict/dictfile_private.h"
#include "storage/file/db_private.h"
#include "storage/keep/seal_private.h"

struct backup {
    const char *dir; /* as it will be */
    char tmp[PATH_MAX];
    uint64_t lsn;
};

static int join(char ret[static PATH_MAX], const char *a, const char *b, struct err *err)
{
    int n = snprintf(ret, PATH_MAX, "%s/%s", a, b);

    return n > 0 && n < PATH_MAX ? 0 : err_set(err, -ENAMETOOLONG, "%s/%s: too long", a, b);
}

static int make_dir(const struct backup *b, const char *name, struct err *err)
{
    char path[PATH_MAX];

    TRY(join(path, b->tmp, name, err));
    return mkdir(path, 0700) == 0 ? 0 : err_set(err, -errno, "%s: %m", path);
}

static int sync_dir(const char *path, struct err *err)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC), r;

    if (fd < 0)
        return err_set(err, -errno, "%s: %m", path);
    r = fsync(fd) == 0 ? 0 : err_set(err, -errno, "%s: fsync: %m", path);
    (void)close(fd);
    return r;
}

static int link_file(const struct store *s, const struct backup *b, const char *name,
                     struct err *err)
{
    char from[PATH_MAX], to[PATH_MAX];

    TRY(join(from, s->dir, name, err));
    TRY(join(to, b->tmp, name, err));
    return link(from, to) == 0 ? 0 : err_set(err, -errno, "%s: cannot be linked: %m", name);
}

/* ---- by the writer thread ------------------------------------------------------------------ */

static int link_parts(struct store *s, const struct backup *b, struct err *err)
{
    struct source_list *l = source_list_get(s);
    int r = 0;

    for (uint32_t i = 0; r == 0 && i < l->n; i++)
        if (l->item[i].part)
            r = link_file(s, b, l->item[i].part->info.name, err);
    source_list_unref(l);
    return r;
}

struct closed {
    struct store *s;
    const struct backup *b;
};

/* An epoch whose file is at rest. */
static int on_epoch(void *ctx, const struct catalog_epoch *x, struct err *err)
{
    const struct closed *c = ctx;
    char name[DICTFILE_NAME];

    if (x->state != CATALOG_EPOCH_CLOSED)
        return 0;
    dictfile_name(name, x->id);
    /* a damaged store can be copied too: what is not there stays away */
    return faccessat(c->s->dir_fd, name, F_OK, 0) == 0 ? link_file(c->s, c->b, name, err) : 0;
}

static int copy_dicts(struct store *s, const struct backup *b, struct err *err)
{
    struct closed closed = {s, b};
    const struct catalog_sink sink = {.ctx = &closed, .epoch = on_epoch};
    struct catalog_state state;
    char name[DICTFILE_NAME], path[PATH_MAX];

    TRY(catalog_load(s->catalog, &sink, &state, err));
    if (!s->dict)
        return 0;
    dictfile_name(name, s->epoch->id);
    TRY(join(path, b->tmp, name, err));
    return dictfile_copy(s->dict, path, err);
}

static int fill(struct store *s, struct backup *b, struct err *err)
{
    static const char *const dir[] = {"shard/raw", "shard/minute", "shard", "dict", ""};
    char path[PATH_MAX];

    TRY(make_dir(b, "dict", err));
    TRY(make_dir(b, "shard", err));
    TRY(make_dir(b, "shard/raw", err));
    TRY(make_dir(b, "shard/minute", err));
    TRY(link_parts(s, b, err));
    TRY(copy_dicts(s, b, err));
    TRY(join(path, b->tmp, "catalog.db", err));
    TRY(catalog_copy(s->catalog, path, err));
    for (size_t i = 0; i < sizeof dir / sizeof *dir; i++) {
        TRY(join(path, b->tmp, dir[i], err));
        TRY(sync_dir(path, err));
    }
    return 0;
}

static int in_writer(struct store *s, void *ctx, struct err *err)
{
    struct backup *b = ctx;

    if (!s->catalog)
        return err_set(err, -EROFS, "backup: nothing can be sealed: %s",
                       atomic_load(&s->state_why));
    TRY(seal(s, err));
    b->lsn = s->cat.sealed_lsn;
    return fill(s, b, err);
}

/* ---- its name ------------------------------------------------------------------------------ */

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *f)
{
    (void)st;
    (void)type;
    (void)f;
    return remove(path);
}

static int parent_of(char ret[static PATH_MAX], const char *dir)
{
    const char *slash = strrchr(dir, '/');
    size_t n = slash ? (size_t)(slash - dir) : 0;

    if (n >= PATH_MAX)
        return -ENAMETOOLONG;
    (void)snprintf(ret, PATH_MAX, "%.*s", (int)n, dir);
    if (n == 0)
        (void)snprintf(ret, PATH_MAX, "%s", slash ? "/" : ".");
    return 0;
}

static int begin(const struct store *s, struct backup *b, struct err *err)
{
    char parent[PATH_MAX];
    struct stat here, there;
    int n = snprintf(b->tmp, sizeof b->tmp, "%s.XXXXXX", b->dir);

    if (n < 0 || (size_t)n >= sizeof b->tmp || parent_of(parent, b->dir) != 0)
        return err_set(err, -ENAMETOOLONG, "%s: too long", b->dir);
    if (faccessat(AT_FDCWD, b->dir, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
        return err_set(err, -EEXIST, "%s: is there already", b->dir);
    if (stat(parent, &there) != 0)
        return err_set(err, -errno, "%s: %m", parent);
    if (fstat(s->dir_fd, &here) == 0 && here.st_dev != there.st_dev)
        return err_set(err, -EXDEV, "%s: on another file system than %s", b->dir, s->dir);
    return mkdtemp(b->tmp) ? 0 : err_set(err, -errno, "%s: %m", b->tmp);
}

static int finish(struct backup *b, struct err *err)
{
    char parent[PATH_MAX];

    if (renameat2(AT_FDCWD, b->tmp, AT_FDCWD, b->dir, RENAME_NOREPLACE) != 0)
        return err_set(err, -errno, "%s: %m", b->dir);
    (void)snprintf(b->tmp, sizeof b->tmp, "%s", b->dir); /* what a failure removes from here on */
    (void)parent_of(parent, b->dir);
    return sync_dir(parent, err);
}

int store_backup(struct store *s, const char *dir, uint64_t *ret_lsn, struct err *err)
{
    struct backup *b = mem_fail_now() ? NULL : calloc(1, sizeof *b);
    int r;

    if (!b)
        return err_set(err, -ENOMEM, "backup: memory is short");
    b->dir = dir;
    r = begin(s, b, err);
    if (r == 0) {
        r = writer_call(s, in_writer, b, err);
        if (r == 0)
            r = finish(b, err);
        if (r != 0)
            // NOLINTNEXTLINE(concurrency-mt-unsafe): no locale, no working directory
            (void)nftw(b->tmp, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    }
    if (r == 0)
        *ret_lsn = b->lsn;
    free(b);
    return r;
}
