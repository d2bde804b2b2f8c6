// SPDX-License-Identifier: Apache-2.0
/*
 * libc's calls by other means: each does the system call and, for files of the disk, notes it or
 * fails. Call and note are one step under one lock, so the order of notes is that of the disk.
 * libsqlite3 finds these because a program's own symbols come before libc's.
 */
#undef _FORTIFY_SOURCE   /* would define some of them in headers */
#undef _FILE_OFFSET_BITS /* would name open() open64() and so on: both are defined here */
#include "tests/lib/disk.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "tests/lib/disk_model.h"

#define FDS 4096

static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;
static char root_path[PATH_MAX];
static size_t root_n; /* 0: no disk */
static _Atomic(struct node *) by_fd[FDS];
static bool stopped;
static uint32_t weak;
static uint32_t arm_mask;
static uint64_t armed, calls; /* armed: the call at which it gets to 0 is not noted any more */
static uint32_t fail_mask;
static uint64_t fail_in, fail_n, failed;
static int fail_code;

static void lock(void)
{
    (void)pthread_mutex_lock(&mu);
}

static void unlock(void)
{
    (void)pthread_mutex_unlock(&mu);
}

/* ---- the test's side ----------------------------------------------------------------------- */

static void set_root(const char *path)
{
    size_t n = strlen(path);

    assert(path[0] == '/' && n < sizeof root_path);
    memcpy(root_path, path, n + 1);
    root_n = n;
}

static void forget_fds(void)
{
    for (int i = 0; i < FDS; i++)
        atomic_store(&by_fd[i], NULL);
}

void disk_begin(const char *root)
{
    struct stat st;
    int r = stat(root, &st);

    assert(r == 0);
    lock();
    set_root(root);
    model_begin();
    model_root()->ino = st.st_ino;
    forget_fds();
    stopped = false;
    weak = fail_mask = 0;
    armed = calls = failed = 0;
    unlock();
}

void disk_end(void)
{
    lock();
    root_n = 0;
    fail_mask = 0;
    forget_fds();
    model_end();
    unlock();
}

void disk_arm(uint32_t mask, uint64_t n)
{
    lock();
    arm_mask = mask;
    armed = n;
    unlock();
}

void disk_stop(void)
{
    lock();
    stopped = true;
    unlock();
}

bool disk_stopped(void)
{
    bool r;

    lock();
    r = stopped;
    unlock();
    return r;
}

void disk_see(_Atomic bool *flag)
{
    lock();
    if (!stopped)
        atomic_store(flag, true);
    unlock();
}

static void new_image(const char *dir)
{
    set_root(dir);
    forget_fds();
    stopped = false;
    armed = 0;
    fail_mask = 0;
}

void disk_cut(const char *dir, enum disk_keep keep, uint64_t seed)
{
    lock();
    model_cut(dir, keep, seed);
    new_image(dir);
    unlock();
}

void disk_kill(const char *dir)
{
    lock();
    model_kill(dir);
    new_image(dir);
    unlock();
}

void disk_weaken(uint32_t how)
{
    lock();
    weak = how;
    unlock();
}

void disk_fail(uint32_t mask, uint64_t n, uint64_t n_fail, int code)
{
    lock();
    fail_mask = mask;
    fail_in = n;
    fail_n = n_fail;
    fail_code = code;
    failed = 0;
    unlock();
}

uint64_t disk_failures(void)
{
    uint64_t r;

    lock();
    r = failed;
    unlock();
    return r;
}

bool disk_compare(void)
{
    bool r;

    lock();
    r = model_equals(root_path);
    unlock();
    return r;
}

uint64_t disk_calls(void)
{
    uint64_t r;

    lock();
    r = calls;
    unlock();
    return r;
}

/* ---- which file ---------------------------------------------------------------------------- */

static struct node *of_fd(int fd)
{
    return fd >= 0 && fd < FDS ? atomic_load(&by_fd[fd]) : NULL;
}

/* path without the root's, or NULL: not on the disk. *ret_at: where it begins. */
static const char *inside(int dirfd, const char *path, struct node **ret_at)
{
    if (root_n == 0)
        return NULL;
    if (path[0] != '/') {
        *ret_at = dirfd == AT_FDCWD ? NULL : of_fd(dirfd);
        return *ret_at ? path : NULL;
    }
    if (strncmp(path, root_path, root_n) != 0 || (path[root_n] != '/' && path[root_n] != '\0'))
        return NULL;
    *ret_at = model_root();
    return path + root_n + (path[root_n] == '/');
}

/* The folder of path and its last name ("" for the root). false: not on the disk, or not there. */
static bool find_dir(int dirfd, const char *path, struct node **ret_dir, const char **ret_name)
{
    struct node *dir = NULL;
    const char *p = inside(dirfd, path, &dir), *slash;

    if (!p)
        return false;
    while ((slash = strchr(p, '/'))) {
        char part[NAME_MAX + 1];
        size_t n = (size_t)(slash - p);

        if (n > NAME_MAX)
            return false;
        memcpy(part, p, n);
        part[n] = '\0';
        if (n > 0 && strcmp(part, ".") != 0)
            dir = model_find(dir, part);
        if (!dir || !dir->dir)
            return false;
        p = slash + 1;
    }
    *ret_dir = dir;
    *ret_name = p;
    return true;
}

/* ---- the end, and failures; the lock is held ----------------------------------------------- */

/* A change or sync: is it noted? */
static bool counts(uint32_t call)
{
    calls++;
    if (!stopped && armed > 0 && (call & arm_mask) && --armed == 0)
        stopped = true;
    return !stopped;
}

static bool must_fail(uint32_t call, const struct node *n, bool needs_room)
{
    if (!(fail_mask & call) || (n && n->skip && call != DISK_CHANGE) ||
        (fail_code == ENOSPC && !needs_room))
        return false;
    if (fail_in > 1) {
        fail_in--;
        return false;
    }
    if (fail_n == 0)
        return false;
    fail_n--;
    failed++;
    errno = fail_code;
    return true;
}

/* ---- open and close ------------------------------------------------------------------------ */

static int open_noted(int dirfd, const char *path, int flags, mode_t mode)
{
    struct node *dir, *n;
    const char *name;
    bool made;
    struct stat st;
    int fd;

    if (!find_dir(dirfd, path, &dir, &name) || stopped)
        return (int)syscall(SYS_openat, dirfd, path, flags, mode);
    n = *name && strcmp(name, ".") != 0 ? model_find(dir, name) : dir;
    made = !n && (flags & O_CREAT);
    if (must_fail(DISK_OPEN, n, made))
        return -1;
    if ((made || (n && !n->skip && (flags & O_TRUNC))) && !counts(DISK_CHANGE))
        return (int)syscall(SYS_openat, dirfd, path, flags, mode);
    fd = (int)syscall(SYS_openat, dirfd, path, flags, mode);
    if (fd < 0)
        return fd;
    if (made && fstat(fd, &st) == 0)
        n = model_make(dir, name, false, st.st_ino);
    else if (!n && fstat(fd, &st) == 0) /* by way of ".." */
        n = model_of(st.st_ino);
    else if (n && (flags & O_TRUNC))
        model_truncate(n, 0);
    assert(fd < FDS);
    atomic_store(&by_fd[fd], n);
    return fd;
}

static int do_open(int dirfd, const char *path, int flags, mode_t mode)
{
    int r;

    lock();
    r = open_noted(dirfd, path, flags, mode);
    unlock();
    return r;
}

#define MODE_OF(flags, mode)                                                                       \
    mode_t mode = 0;                                                                               \
    if ((flags) & (O_CREAT | O_TMPFILE)) {                                                         \
        va_list ap_;                                                                               \
        va_start(ap_, flags);                                                                      \
        mode = va_arg(ap_, mode_t);                                                                \
        va_end(ap_);                                                                               \
    }

int open(const char *path, int flags, ...)
{
    MODE_OF(flags, mode)
    return do_open(AT_FDCWD, path, flags, mode);
}

int open64(const char *path, int flags, ...)
{
    MODE_OF(flags, mode)
    return do_open(AT_FDCWD, path, flags, mode);
}

int openat(int dirfd, const char *path, int flags, ...)
{
    MODE_OF(flags, mode)
    return do_open(dirfd, path, flags, mode);
}

int openat64(int dirfd, const char *path, int flags, ...)
{
    MODE_OF(flags, mode)
    return do_open(dirfd, path, flags, mode);
}

int close(int fd)
{
    if (of_fd(fd)) {
        lock();
        atomic_store(&by_fd[fd], NULL);
        unlock();
    }
    return (int)syscall(SYS_close, fd);
}

/* ---- content ------------------------------------------------------------------------------- */

/* at < 0: where the descriptor is. */
static ssize_t write_noted(int fd, struct node *n, const void *p, size_t size, off_t at)
{
    ssize_t r;
    bool fails = must_fail(DISK_CHANGE, n, true), noted = n->skip || counts(DISK_CHANGE);
    int code = errno;

    if (fails)
        size /= 2;
    if (at < 0) {
        struct stat st;
        int flags = fcntl(fd, F_GETFL);

        at = flags & O_APPEND && fstat(fd, &st) == 0 ? st.st_size : lseek(fd, 0, SEEK_CUR);
        r = syscall(SYS_write, fd, p, size);
    } else {
        r = syscall(SYS_pwrite64, fd, p, size, at);
    }
    if (r > 0 && noted && !stopped)
        model_write(n, (uint64_t)at, p, (size_t)r);
    errno = fails ? code : errno;
    return fails ? -1 : r;
}

static ssize_t do_write(int fd, const void *p, size_t size, off_t at)
{
    struct node *n = of_fd(fd);
    ssize_t r;

    if (!n)
        return at < 0 ? syscall(SYS_write, fd, p, size) : syscall(SYS_pwrite64, fd, p, size, at);
    lock();
    r = write_noted(fd, n, p, size, at);
    unlock();
    return r;
}

ssize_t write(int fd, const void *p, size_t size)
{
    return do_write(fd, p, size, -1);
}

ssize_t pwrite(int fd, const void *p, size_t size, off_t at)
{
    return do_write(fd, p, size, at);
}

ssize_t pwrite64(int fd, const void *p, size_t size, off64_t at)
{
    return do_write(fd, p, size, at);
}

ssize_t writev(int fd, const struct iovec *v, int n)
{
    ssize_t sum = 0;

    if (!of_fd(fd))
        return syscall(SYS_writev, fd, v, n);
    for (int i = 0; i < n; i++) {
        ssize_t r = do_write(fd, v[i].iov_base, v[i].iov_len, -1);

        if (r < 0)
            return sum > 0 ? sum : r;
        sum += r;
        if ((size_t)r < v[i].iov_len)
            break;
    }
    return sum;
}

static bool read_fails(int fd)
{
    struct node *n = of_fd(fd);
    bool fails = false;

    if (n) {
        lock();
        fails = must_fail(DISK_READ, n, false);
        unlock();
    }
    return fails;
}

ssize_t read(int fd, void *p, size_t size)
{
    return read_fails(fd) ? -1 : syscall(SYS_read, fd, p, size);
}

ssize_t pread(int fd, void *p, size_t size, off_t at)
{
    return read_fails(fd) ? -1 : syscall(SYS_pread64, fd, p, size, at);
}

ssize_t pread64(int fd, void *p, size_t size, off64_t at)
{
    return read_fails(fd) ? -1 : syscall(SYS_pread64, fd, p, size, at);
}

static int do_truncate(int fd, off_t size)
{
    struct node *n = of_fd(fd);
    int r;

    if (!n)
        return (int)syscall(SYS_ftruncate, fd, size);
    lock();
    r = must_fail(DISK_CHANGE, n, false) ? -1 : 0;
    if (r == 0) {
        bool noted = n->skip || counts(DISK_CHANGE);

        r = (int)syscall(SYS_ftruncate, fd, size);
        if (r == 0 && noted && !stopped)
            model_truncate(n, (uint64_t)size);
    }
    unlock();
    return r;
}

int ftruncate(int fd, off_t size)
{
    return do_truncate(fd, size);
}

int ftruncate64(int fd, off64_t size)
{
    return do_truncate(fd, size);
}

/* Room for [at, at + n), zeros where there was nothing. The result is the errno. */
static int do_allocate(int fd, off_t at, off_t n)
{
    struct node *f = of_fd(fd);
    struct stat st;
    int r;

    if (!f)
        return syscall(SYS_fallocate, fd, 0, at, n) == 0 ? 0 : errno;
    lock();
    r = must_fail(DISK_CHANGE, f, true) ? errno : 0;
    if (r == 0) {
        bool noted = f->skip || counts(DISK_CHANGE);

        r = syscall(SYS_fallocate, fd, 0, at, n) == 0 ? 0 : errno;
        if (r == 0 && noted && !stopped && fstat(fd, &st) == 0)
            model_truncate(f, (uint64_t)st.st_size);
    }
    unlock();
    return r;
}

int posix_fallocate(int fd, off_t at, off_t n)
{
    return do_allocate(fd, at, n);
}

int posix_fallocate64(int fd, off64_t at, off64_t n)
{
    return do_allocate(fd, at, n);
}

/* ---- syncs --------------------------------------------------------------------------------- */

static int do_sync(int fd)
{
    struct node *n = of_fd(fd);
    int r = 0;

    if (!n)
        return (int)syscall(SYS_fsync, fd);
    lock();
    if (must_fail(DISK_SYNC, n, false)) {
        model_lose(n);
        r = -1;
    } else if (counts(DISK_SYNC) && !(n->dir && (weak & DISK_NO_DIR_SYNC))) {
        model_sync(n, !(weak & DISK_NO_OLD_SYNC));
    }
    unlock();
    return r;
}

int fsync(int fd)
{
    return do_sync(fd);
}

int fdatasync(int fd)
{
    return do_sync(fd);
}

/* ---- names --------------------------------------------------------------------------------- */

static int remove_noted(int dirfd, const char *path, int flags)
{
    struct node *dir, *n;
    const char *name;
    bool noted;
    int r;

    if (!find_dir(dirfd, path, &dir, &name))
        return (int)syscall(SYS_unlinkat, dirfd, path, flags);
    n = model_find(dir, name);
    if (n && must_fail(DISK_CHANGE, n, false))
        return -1;
    noted = n && (n->skip || counts(DISK_CHANGE));
    r = (int)syscall(SYS_unlinkat, dirfd, path, flags);
    if (r == 0 && noted && !stopped)
        model_name(dir, name, NULL);
    return r;
}

static int do_remove(int dirfd, const char *path, int flags)
{
    int r;

    lock();
    r = remove_noted(dirfd, path, flags);
    unlock();
    return r;
}

int unlink(const char *path)
{
    return do_remove(AT_FDCWD, path, 0);
}

int unlinkat(int dirfd, const char *path, int flags)
{
    return do_remove(dirfd, path, flags);
}

int rmdir(const char *path)
{
    return do_remove(AT_FDCWD, path, AT_REMOVEDIR);
}

static int do_mkdir(int dirfd, const char *path, mode_t mode)
{
    struct node *dir;
    const char *name;
    struct stat st;
    int r;

    lock();
    if (!find_dir(dirfd, path, &dir, &name) || !*name || model_find(dir, name)) {
        r = (int)syscall(SYS_mkdirat, dirfd, path, mode);
    } else if (must_fail(DISK_CHANGE, NULL, true)) {
        r = -1;
    } else {
        bool noted = counts(DISK_CHANGE);

        r = (int)syscall(SYS_mkdirat, dirfd, path, mode);
        if (r == 0 && noted && fstatat(dirfd, path, &st, 0) == 0)
            (void)model_make(dir, name, true, st.st_ino);
    }
    unlock();
    return r;
}

int mkdir(const char *path, mode_t mode)
{
    return do_mkdir(AT_FDCWD, path, mode);
}

int mkdirat(int dirfd, const char *path, mode_t mode)
{
    return do_mkdir(dirfd, path, mode);
}

/* Both ends on the disk, or neither: what leaves it or comes to it is not noted. */
static int two_names(int da, const char *a, int db, const char *b, unsigned flags, bool move)
{
    const long call = move ? SYS_renameat2 : SYS_linkat;
    struct node *from, *to;
    const char *x, *y;
    bool noted;
    int r;

    if (!find_dir(da, a, &from, &x) || !find_dir(db, b, &to, &y))
        return (int)syscall(call, da, a, db, b, flags);
    if (must_fail(DISK_CHANGE, NULL, true))
        return -1;
    noted = counts(DISK_CHANGE);
    r = (int)syscall(call, da, a, db, b, flags);
    if (r != 0 || !noted)
        return r;
    if (move)
        model_rename(from, x, to, y);
    else if (model_find(from, x))
        model_name(to, y, model_find(from, x));
    return r;
}

static int do_two(int da, const char *a, int db, const char *b, unsigned flags, bool move)
{
    int r;

    lock();
    r = two_names(da, a, db, b, flags, move);
    unlock();
    return r;
}

int rename(const char *a, const char *b)
{
    return do_two(AT_FDCWD, a, AT_FDCWD, b, 0, true);
}

int renameat(int da, const char *a, int db, const char *b)
{
    return do_two(da, a, db, b, 0, true);
}

int renameat2(int da, const char *a, int db, const char *b, unsigned flags)
{
    return do_two(da, a, db, b, flags, true);
}

int link(const char *a, const char *b)
{
    return do_two(AT_FDCWD, a, AT_FDCWD, b, 0, false);
}

int linkat(int da, const char *a, int db, const char *b, int flags)
{
    return do_two(da, a, db, b, (unsigned)flags, false);
}
