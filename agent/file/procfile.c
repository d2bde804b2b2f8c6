// SPDX-License-Identifier: Apache-2.0
#include "agent/file/procfile.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PATH_CAP 4352
#define CHUNK    ((size_t)64 << 10)

static int path_of(char path[static PATH_CAP], const char *dir, const char *name, struct err *err)
{
    int n = snprintf(path, PATH_CAP, "%s/%s", dir, name);

    if (n < 0 || n >= PATH_CAP)
        return err_set(err, -ENAMETOOLONG, "%.60s...: path too long", dir);
    return 0;
}

static int fail(struct err *err, const char *path, int code)
{
    return err_set(err, -code, "%s: %s", path, strerrordesc_np(code));
}

int procfile_read_some(const char *dir, const char *name, struct buf *out, bool *ret_cut,
                       struct err *err)
{
    char path[PATH_CAP];
    bool cut = false;
    int fd, code = 0;

    TRY(path_of(path, dir, name, err));
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return fail(err, path, errno);
    for (;;) {
        size_t left = out->cap > out->n ? out->cap - out->n : 0;
        size_t want = left < CHUNK ? left : CHUNK;
        char one;
        char *p = want ? buf_reserve(out, want) : &one;
        ssize_t r;

        if (!p) {
            code = ENOMEM;
            break;
        }
        r = read(fd, p, want ? want : 1);
        if (r < 0 && errno == EINTR)
            continue;
        if (r < 0)
            code = errno;
        if (r <= 0)
            break;
        if (!want) {
            cut = true;
            break;
        }
        buf_commit(out, (size_t)r);
    }
    close(fd);
    if (code)
        return fail(err, path, code);
    *ret_cut = cut;
    return 0;
}

int procfile_read(const char *dir, const char *name, struct buf *out, struct err *err)
{
    bool cut = false;

    TRY(procfile_read_some(dir, name, out, &cut, err));
    if (cut)
        return err_set(err, -E2BIG, "%.40s/%.80s: more than %zu bytes", dir, name, out->cap);
    return 0;
}

int procfile_link(const char *dir, const char *name, struct buf *out, struct err *err)
{
    char path[PATH_CAP], text[4096];
    ssize_t n;

    TRY(path_of(path, dir, name, err));
    n = readlink(path, text, sizeof text);
    if (n < 0)
        return fail(err, path, errno);
    buf_add(out, text, (size_t)n);
    return out->failed ? err_set(err, -E2BIG, "%s: link too long", path) : 0;
}

int procfile_write(int fd, struct str s)
{
    while (s.n) {
        ssize_t r = write(fd, s.p, s.n);

        if (r < 0 && errno == EINTR)
            continue;
        if (r < 0)
            return errno;
        s = str_from(s, (size_t)r);
    }
    return 0;
}

/* DIR/NAME and DIR/NAME.new. */
static int paths_of(char path[static PATH_CAP], char aside[static PATH_CAP], const char *dir,
                    const char *name, struct err *err)
{
    int n;

    TRY(path_of(path, dir, name, err));
    n = snprintf(aside, PATH_CAP, "%s.new", path);
    if (n < 0 || n >= PATH_CAP)
        return err_set(err, -ENAMETOOLONG, "%.60s...: path too long", path);
    return 0;
}

int procfile_replace(const char *dir, const char *name, struct str content, bool flush,
                     struct err *err)
{
    char path[PATH_CAP], aside[PATH_CAP];
    int fd, code;

    TRY(paths_of(path, aside, dir, name, err));
    fd = open(aside, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return fail(err, aside, errno);
    code = procfile_write(fd, content);
    if (code == 0 && flush && fsync(fd) < 0)
        code = errno;
    if (close(fd) < 0 && code == 0)
        code = errno;
    if (code == 0 && rename(aside, path) < 0)
        code = errno;
    if (code)
        return fail(err, path, code);
    return 0;
}

int procfile_exchange(const char *dir, const char *name, struct str content, struct err *err)
{
    char path[PATH_CAP], aside[PATH_CAP];
    struct stat st;
    int fd, code;

    TRY(paths_of(path, aside, dir, name, err));
    fd = open(aside, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return fail(err, aside, errno);
    code = procfile_write(fd, content);
    if (code == 0 && fstat(fd, &st) == 0 && (uint64_t)st.st_size > content.n &&
        ftruncate(fd, (off_t)content.n) < 0)
        code = errno;
    if (close(fd) < 0 && code == 0)
        code = errno;
    /* the first time there is none to change with; some file systems cannot */
    if (code == 0 && renameat2(AT_FDCWD, aside, AT_FDCWD, path, RENAME_EXCHANGE) < 0 &&
        rename(aside, path) < 0)
        code = errno;
    if (code)
        return fail(err, path, code);
    return 0;
}
