// SPDX-License-Identifier: Apache-2.0
/*
 *     header   8 B magic, u32 version, u32 flags (0)
 *     record   u32 kind, u32 length of the body, u64 XXH3-64 of the body, the body
 *
 * Little-endian. A record is written by one writev(2), so a killed writer leaves whole records and
 * at most one that is cut.
 */
#include "base/capture.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/hash.h"

enum {
    HEAD = 16,
};

/* The first byte is no text, the last four find a copy that changed line ends. */
static const char magic[8] = {'\x93', 'S', 'T', 'R', 'A', '\r', '\n', '\x1a'};

static int write_all(int fd, struct str head, struct str body, struct err *err)
{
    size_t done = 0, all = head.n + body.n;

    while (done < all) {
        struct str h = str_from(head, done);
        struct str b = str_from(body, done > head.n ? done - head.n : 0);
        union {
            const char *in;
            void *out;
        } hp = {h.p}, bp = {b.p}; /* writev takes no const */
        struct iovec v[2] = {{hp.out, h.n}, {bp.out, b.n}};
        ssize_t n = writev(fd, v, 2);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return err_set(err, n < 0 ? -errno : -EIO, "capture file: %s",
                           strerrordesc_np(n < 0 ? errno : EIO));
        done += (size_t)n;
    }
    return 0;
}

int capture_begin(int fd, struct err *err)
{
    struct buf b;
    int r;

    buf_init(&b, HEAD);
    buf_add(&b, magic, sizeof magic);
    buf_le32(&b, CAPTURE_VERSION);
    buf_le32(&b, 0);
    r = write_all(fd, buf_view(&b), (struct str){NULL, 0}, err);
    buf_deinit(&b);
    return r;
}

int capture_put(int fd, enum capture_kind kind, struct str body, struct err *err)
{
    struct buf b;
    int r;

    if (body.n > CAPTURE_BODY_MAX)
        return err_set(err, -E2BIG, "capture file: a record of %zu bytes", body.n);
    buf_init(&b, HEAD);
    buf_le32(&b, (uint32_t)kind);
    buf_le32(&b, (uint32_t)body.n);
    buf_le64(&b, hash_str(body));
    r = write_all(fd, buf_view(&b), body, err);
    buf_deinit(&b);
    return r;
}

/* n bytes, or fewer at the end of the file; -EIO. */
static ssize_t read_full(struct capture *c, void *p, size_t n, struct err *err)
{
    size_t got = 0;

    while (got < n) {
        ssize_t r = read(c->fd, (char *)p + got, n - got);

        if (r < 0 && errno == EINTR)
            continue;
        if (r < 0)
            return err_set(err, -EIO, "capture file: %s", strerrordesc_np(errno));
        if (r == 0)
            break;
        got += (size_t)r;
    }
    c->at += got;
    return (ssize_t)got;
}

static int read_header(struct capture *c, const char *path, struct err *err)
{
    unsigned char h[HEAD];
    ssize_t n = read_full(c, h, sizeof h, err);

    if (n < 0)
        return (int)n;
    if (n < HEAD || memcmp(h, magic, sizeof magic) != 0)
        return err_set(err, -EINVAL, "%.100s is no capture file of `strata record`", path);
    if (bytes_u32(h + 8) != CAPTURE_VERSION || bytes_u32(h + 12) != 0)
        return err_set(err, -EINVAL, "%.80s is a capture file of version %u: this is version %d",
                       path, bytes_u32(h + 8), CAPTURE_VERSION);
    return 0;
}

int capture_open(struct capture *c, const char *path, struct err *err)
{
    struct stat st;
    int r;

    *c = (struct capture){.fd = open(path, O_RDONLY | O_CLOEXEC)};
    if (c->fd < 0)
        return err_set(err, -errno, "%.100s: %s", path, strerrordesc_np(errno));
    buf_init(&c->body, CAPTURE_BODY_MAX);
    if (fstat(c->fd, &st) < 0)
        r = err_set(err, -errno, "%.100s: %s", path, strerrordesc_np(errno));
    else if (S_ISDIR(st.st_mode))
        r = err_set(err, -EISDIR, "%.100s is a directory", path);
    else
        r = read_header(c, path, err);
    if (r < 0) {
        capture_close(c);
        return r;
    }
    c->size = (uint64_t)st.st_size;
    c->changed.v = (int64_t)st.st_mtim.tv_sec * NS_PER_S + st.st_mtim.tv_nsec;
    return 0;
}

void capture_close(struct capture *c)
{
    buf_deinit(&c->body);
    if (c->fd >= 0)
        (void)close(c->fd);
    c->fd = -1;
}

int capture_next(struct capture *c, struct err *err)
{
    unsigned char h[HEAD];
    uint64_t from = c->at;
    ssize_t n = read_full(c, h, sizeof h, err);
    uint32_t size;
    char *p;

    if (n < 0)
        return (int)n;
    if (n == 0)
        return CAPTURE_EOF;
    if (n < HEAD)
        return CAPTURE_CUT;
    size = bytes_u32(h + 4);
    if (size > CAPTURE_BODY_MAX)
        return err_set(err, -EBADMSG, "capture file damaged at byte %llu: a record of %u bytes",
                       (unsigned long long)from, size);
    if (c->size && size > c->size - (c->at < c->size ? c->at : c->size))
        return CAPTURE_CUT; /* before room is made for what is not there */
    buf_reset(&c->body);
    p = buf_reserve(&c->body, size ? size : 1);
    if (!p)
        return err_set(err, -ENOMEM, "capture file: no memory for %u bytes", size);
    n = read_full(c, p, size, err);
    if (n < 0)
        return (int)n;
    if ((uint32_t)n < size)
        return CAPTURE_CUT;
    buf_commit(&c->body, size);
    if (hash_str(buf_view(&c->body)) != bytes_u64(h + 8))
        return err_set(err, -EBADMSG, "capture file damaged at byte %llu: checksum",
                       (unsigned long long)from);
    c->kind = bytes_u32(h);
    return 0;
}
