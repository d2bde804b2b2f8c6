// SPDX-License-Identifier: Apache-2.0
/*
 * A file is two zstd frames: a skippable one with the head, then the body as it would travel. So
 * `zstd -d` of a file gives the batch. Head, little-endian; the format is docs/format-spool.md:
 *
 *      0  u32  0x184d2a5b, magic of a skippable frame
 *      4  u32  bytes that follow in this frame: 112 + 56 n_lost
 *      8  u32  version, 1
 *     12  u32  rows
 *     16  u32  n_own    entries of the batch itself
 *     20  u32  n_lost   entries in all
 *     24  16 B boot
 *     40  u64  seq
 *     48  i64  made, ns since the epoch
 *     56  u64  content
 *     64  u64  body bytes
 *     72  u64  XXH3-64 of the body
 *     80  32 B zero
 *    112  entries: u16 type, u16 reason, u32 width, u64 first, u64 last, i64 t0, i64 t1, u64 n,
 *         i64 weight
 *    end  u64  XXH3-64 of all before
 */
#include "agent/send/spool_disk.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/file/procfile.h"
#include "base/arena.h"
#include "base/bytes.h"
#include "base/hash.h"
#include "base/log.h"

#define MAGIC      UINT32_C(0x184d2a5b)
#define VERSION    1
#define FIXED      ((size_t)112)
#define ENTRY      ((size_t)56)
#define TAIL       ((size_t)8)
#define MAX_LOST   UINT32_C(128)
#define HEAD_MAX   (FIXED + MAX_LOST * ENTRY + TAIL)
#define MAX_BODY   (UINT64_C(64) << 20)
#define NAME_CAP   96
#define KEEP_BAD   16
#define HEX        ((size_t)32)
#define UNTOLD     "untold"
#define UNTOLD_NEW "untold.new"

struct spool_disk {
    int dir, lock;
    uint64_t keep_bad;
    _Atomic uint64_t bad, bad_bytes; /* files set aside that are there */
};

/* ---- names --------------------------------------------------------------------------------- */

static void name_of(const struct spool_disk_head *h, const char *end, char ret[static NAME_CAP])
{
    size_t at = 0;

    for (unsigned i = 0; i < 16; i++, at += 2)
        (void)snprintf(ret + at, NAME_CAP - at, "%02x", h->boot[i]);
    (void)snprintf(ret + at, NAME_CAP - at, "-%010" PRIu64 ".batch%s", h->seq, end);
}

/* Exactly what name_of() makes, with this end. */
static bool is_ours(const char *name, const char *end)
{
    struct str s = str_c(name), tail = str_c(end);
    struct spool_disk_head h = {};
    char again[NAME_CAP];
    uint64_t hi, lo;

    if (s.n < HEX + 1 + 10 || !str_hex64(str_to(s, 16), &hi) ||
        !str_hex64(str_to(str_from(s, 16), 16), &lo) || s.n < tail.n + 6 + HEX + 1 ||
        !str_u64(str_to(str_from(s, HEX + 1), s.n - tail.n - 6 - HEX - 1), &h.seq))
        return false;
    for (unsigned i = 0; i < 8; i++) {
        h.boot[i] = (uint8_t)(hi >> (56 - 8 * i));
        h.boot[8 + i] = (uint8_t)(lo >> (56 - 8 * i));
    }
    name_of(&h, end, again);
    return strcmp(again, name) == 0;
}

/* ---- bytes --------------------------------------------------------------------------------- */

static void put_entries(struct buf *b, const struct batchmake_dropped *v, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        buf_le16(b, (uint16_t)v[i].type);
        buf_le16(b, (uint16_t)v[i].why);
        buf_le32(b, v[i].width);
        buf_le64(b, v[i].first);
        buf_le64(b, v[i].last);
        buf_le64(b, (uint64_t)v[i].covers.t0.v);
        buf_le64(b, (uint64_t)v[i].covers.t1.v);
        buf_le64(b, v[i].n);
        buf_le64(b, (uint64_t)v[i].weight);
    }
}

static void put_head(struct buf *b, const struct spool_disk_head *h)
{
    buf_le32(b, MAGIC);
    buf_le32(b, (uint32_t)(FIXED + h->n_lost * ENTRY + TAIL - 8));
    buf_le32(b, VERSION);
    buf_le32(b, h->rows);
    buf_le32(b, h->n_own);
    buf_le32(b, h->n_lost);
    buf_add(b, h->boot, 16);
    buf_le64(b, h->seq);
    buf_le64(b, (uint64_t)h->made.v);
    buf_le64(b, h->content);
    buf_le64(b, h->body_bytes);
    buf_le64(b, h->body_hash);
    for (int i = 0; i < 4; i++)
        buf_le64(b, 0);
    put_entries(b, h->lost, h->n_lost);
    buf_le64(b, hash_bytes(b->p, b->n));
}

static bool entry_ok(const struct batchmake_dropped *d)
{
    return ptype_builtin(d->type) && (d->why == LOSS_SPOOL_DROP || d->why == LOSS_SEND_REJECTED) &&
           d->covers.t0.v <= d->covers.t1.v && (d->weight >= 0 || d->weight == BATCH_NO_WEIGHT);
}

/* 0, or -EBADMSG. ret->lost is heap. n: bytes at p. */
static int get_head(const uint8_t *p, size_t n, struct spool_disk_head *ret)
{
    struct spool_disk_head h = {};
    size_t size;

    if (n < FIXED + TAIL || bytes_u32(p) != MAGIC || bytes_u32(p + 8) != VERSION)
        return -EBADMSG;
    h.rows = bytes_u32(p + 12);
    h.n_own = bytes_u32(p + 16);
    h.n_lost = bytes_u32(p + 20);
    size = FIXED + h.n_lost * ENTRY + TAIL;
    if (h.n_lost > MAX_LOST || h.n_own > h.n_lost || bytes_u32(p + 4) != size - 8 || n < size ||
        hash_bytes(p, size - TAIL) != bytes_u64(p + size - TAIL))
        return -EBADMSG;
    memcpy(h.boot, p + 24, 16);
    h.seq = bytes_u64(p + 40);
    h.made.v = (int64_t)bytes_u64(p + 48);
    h.content = bytes_u64(p + 56);
    h.body_bytes = bytes_u64(p + 64);
    h.body_hash = bytes_u64(p + 72);
    if (h.body_bytes > MAX_BODY)
        return -EBADMSG;
    h.file_bytes = size + h.body_bytes;
    h.lost = xcalloc(h.n_lost ? h.n_lost : 1, sizeof *h.lost);
    for (uint32_t i = 0; i < h.n_lost; i++) {
        const uint8_t *e = p + FIXED + i * ENTRY;

        h.lost[i] = (struct batchmake_dropped){
            .type = bytes_u16(e),
            .why = (enum loss_reason)bytes_u16(e + 2),
            .width = bytes_u32(e + 4),
            .first = bytes_u64(e + 8),
            .last = bytes_u64(e + 16),
            .covers = {{(int64_t)bytes_u64(e + 24)}, {(int64_t)bytes_u64(e + 32)}},
            .n = bytes_u64(e + 40),
            .weight = (int64_t)bytes_u64(e + 48)};
        if (!entry_ok(&h.lost[i])) {
            free(h.lost);
            return -EBADMSG;
        }
    }
    *ret = h;
    return 0;
}

/* ---- files --------------------------------------------------------------------------------- */

static int write_file(struct spool_disk *d, const char *name, const char *aside, struct str a,
                      struct str b, struct err *err)
{
    int fd = openat(d->dir, aside, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    int code;

    if (fd < 0)
        return err_set(err, -errno, "spool: %s", strerrordesc_np(errno));
    code = procfile_write(fd, a);
    if (code == 0)
        code = procfile_write(fd, b);
    if (close(fd) < 0 && code == 0)
        code = errno;
    if (code == 0 && renameat(d->dir, aside, d->dir, name) < 0)
        code = errno;
    if (code == 0)
        return 0;
    (void)unlinkat(d->dir, aside, 0);
    return err_set(err, -code, "spool: %s", strerrordesc_np(code));
}

/* Up to max bytes from at on. */
static int read_file(struct spool_disk *d, const char *name, off_t at, size_t max, struct buf *out,
                     uint64_t *ret_size)
{
    int fd = openat(d->dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK), code = 0;
    struct stat st;

    if (fd < 0)
        return -errno;
    if (fstat(fd, &st) < 0)
        code = errno;
    else if (!S_ISREG(st.st_mode))
        code = EBADMSG;
    while (code == 0 && max) {
        size_t want = max < 65536 ? max : 65536;
        char *p = buf_reserve(out, want);
        ssize_t r = p ? pread(fd, p, want, at) : -1;

        if (r < 0 && p && errno == EINTR)
            continue;
        if (r < 0)
            code = p ? errno : ENOMEM;
        if (r <= 0)
            break;
        buf_commit(out, (size_t)r);
        at += r;
        max -= (size_t)r;
    }
    (void)close(fd);
    if (code == 0 && ret_size)
        *ret_size = (uint64_t)st.st_size;
    return -code;
}

int spool_disk_write(struct spool_disk *d, struct spool_disk_head *head, struct str body,
                     struct err *err)
{
    char name[NAME_CAP], aside[NAME_CAP];
    struct buf b;
    int r;

    head->body_bytes = body.n;
    head->body_hash = hash_str(body);
    buf_init(&b, HEAD_MAX);
    put_head(&b, head);
    head->file_bytes = b.n + body.n;
    name_of(head, "", name);
    name_of(head, ".new", aside);
    r = b.failed ? err_set(err, -E2BIG, "spool: a batch tells of %u others", head->n_lost)
                 : write_file(d, name, aside, buf_view(&b), body, err);
    buf_deinit(&b);
    return r;
}

int spool_disk_read(struct spool_disk *d, const struct spool_disk_head *head, struct buf *out,
                    struct err *err)
{
    off_t at = (off_t)(head->file_bytes - head->body_bytes);
    size_t before = out->n;
    char name[NAME_CAP];
    uint64_t size = 0;
    int r;

    name_of(head, "", name);
    r = read_file(d, name, at, head->body_bytes, out, &size);
    if (r < 0)
        return err_set(err, r, "spool: %s: %s", name, strerrordesc_np(-r));
    if (size != head->file_bytes || out->n - before != head->body_bytes ||
        hash_bytes(out->p + before, out->n - before) != head->body_hash)
        return err_set(err, -EBADMSG, "spool: %s is damaged", name);
    return 0;
}

void spool_disk_remove(struct spool_disk *d, const struct spool_disk_head *head)
{
    char name[NAME_CAP];

    name_of(head, "", name);
    (void)unlinkat(d->dir, name, 0);
}

static uint64_t size_of(const struct spool_disk *d, const char *name)
{
    struct stat st;

    return fstatat(d->dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0 ? 0 : (uint64_t)st.st_size;
}

static void aside(struct spool_disk *d, const char *name)
{
    uint64_t size = size_of(d, name);
    char bad[NAME_CAP + 8];

    (void)snprintf(bad, sizeof bad, "%s.bad", name);
    if (d->bad >= KEEP_BAD || d->bad_bytes + size > d->keep_bad ||
        renameat(d->dir, name, d->dir, bad) < 0) {
        (void)unlinkat(d->dir, name, 0);
        return;
    }
    d->bad++;
    d->bad_bytes += size;
}

uint64_t spool_disk_bad_bytes(const struct spool_disk *d)
{
    return d->bad_bytes;
}

void spool_disk_set_aside(struct spool_disk *d, const struct spool_disk_head *head)
{
    char name[NAME_CAP];

    name_of(head, "", name);
    aside(d, name);
}

/* ---- what was there ------------------------------------------------------------------------ */

static void scan_one(struct spool_disk *d, const char *name,
                     void (*fn)(void *ctx, struct spool_disk_head *head, bool whole), void *ctx,
                     struct spool_disk_found *ret)
{
    struct spool_disk_head h = {};
    char must_be[NAME_CAP];
    uint64_t size = 0;
    struct buf b;
    int r;

    buf_init(&b, HEAD_MAX);
    r = read_file(d, name, 0, HEAD_MAX, &b, &size);
    if (r == 0)
        r = get_head((const uint8_t *)b.p, b.n, &h);
    buf_deinit(&b);
    if (r == 0) {
        name_of(&h, "", must_be);
        if (strcmp(name, must_be) != 0) {
            free(h.lost);
            r = -EBADMSG;
        }
    }
    if (r == -EBADMSG || (r == 0 && size != h.file_bytes)) {
        ret->damaged++;
        aside(d, name);
    }
    if (r == 0) {
        fn(ctx, &h, size == h.file_bytes);
    } else if (r != -EBADMSG) {
        ret->unreadable++;
        log_event(LOG_WARN, "spool_unreadable", LOG_C("file", name),
                  LOG_C("error", strerrordesc_np(-r)));
    }
}

void spool_disk_scan(struct spool_disk *d,
                     void (*fn)(void *ctx, struct spool_disk_head *head, bool whole), void *ctx,
                     struct spool_disk_found *ret)
{
    int fd = openat(d->dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    char(*name)[NAME_CAP] = NULL;
    size_t n = 0, room = 0;

    *ret = (struct spool_disk_found){};
    if (!dir) {
        if (fd >= 0)
            (void)close(fd);
        return;
    }
    for (const struct dirent *e; (e = readdir(dir));) { // NOLINT(concurrency-mt-unsafe): own DIR
        if (is_ours(e->d_name, ".new"))
            (void)unlinkat(d->dir, e->d_name, 0);
        else if (is_ours(e->d_name, ".bad")) {
            d->bad++;
            d->bad_bytes += size_of(d, e->d_name);
        } else if (!is_ours(e->d_name, ""))
            ret->foreign += e->d_name[0] != '.' && strcmp(e->d_name, UNTOLD) != 0 &&
                            strcmp(e->d_name, UNTOLD_NEW) != 0 && strcmp(e->d_name, "lock") != 0;
        else {
            if (n == room) {
                room = room ? 2 * room : 64;
                name = xrealloc(name, room * sizeof *name);
            }
            memcpy(name[n++], e->d_name, strlen(e->d_name) + 1); /* fits: it is one of ours */
        }
    }
    closedir(dir);
    for (size_t i = 0; i < n; i++) /* not while the directory is read: files may be renamed */
        scan_one(d, name[i], fn, ctx, ret);
    free(name);
}

/* ---- what was given up and not told yet ---------------------------------------------------- */

int spool_disk_write_untold(struct spool_disk *d, const struct batchmake_dropped *v, uint32_t n,
                            struct err *err)
{
    const struct spool_disk_head h = {
        .n_lost = n, .lost = (struct batchmake_dropped *)(uintptr_t)v}; // NOLINT: only read
    struct buf b;
    int r;

    if (n == 0) {
        if (unlinkat(d->dir, UNTOLD, 0) < 0 && errno != ENOENT)
            return err_set(err, -errno, "spool: %s", strerrordesc_np(errno));
        return 0;
    }
    buf_init(&b, HEAD_MAX);
    put_head(&b, &h);
    r = b.failed ? err_set(err, -E2BIG, "spool: %u entries to tell", n)
                 : write_file(d, UNTOLD, UNTOLD_NEW, buf_view(&b), STR(""), err);
    buf_deinit(&b);
    return r;
}

int spool_disk_read_untold(struct spool_disk *d, struct batchmake_dropped *ret, uint32_t max,
                           uint32_t *ret_n, struct err *err)
{
    struct spool_disk_head h = {};
    struct buf b;
    int r;

    buf_init(&b, HEAD_MAX);
    r = read_file(d, UNTOLD, 0, HEAD_MAX, &b, NULL);
    if (r == 0)
        r = get_head((const uint8_t *)b.p, b.n, &h);
    buf_deinit(&b);
    if (r < 0)
        return err_set(err, r, "spool: %s: %s", UNTOLD, strerrordesc_np(-r));
    *ret_n = h.n_lost < max ? h.n_lost : max;
    for (uint32_t i = 0; i < *ret_n; i++)
        ret[i] = h.lost[i];
    free(h.lost);
    return 0;
}

/* ---- open and close ------------------------------------------------------------------------ */

int spool_disk_open(struct spool_disk **ret, const char *dir, uint64_t keep_bad, struct err *err)
{
    struct spool_disk *d = xcalloc(1, sizeof *d);
    struct stat st = {};
    int r = 0;

    d->dir = d->lock = -1;
    d->keep_bad = keep_bad;
    if (mkdir(dir, 0700) < 0 && errno != EEXIST)
        r = err_set(err, -errno, "spool.dir = %.80s: %s", dir, strerrordesc_np(errno));
    if (r == 0)
        d->dir = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (r == 0 && (d->dir < 0 || fstat(d->dir, &st) < 0))
        r = err_set(err, -errno, "spool.dir = %.80s: %s", dir, strerrordesc_np(errno));
    if (r == 0 && (st.st_uid != geteuid() || st.st_mode & 077))
        r = err_set(err, -EACCES, "spool.dir = %.80s: must be ours alone, mode 0700", dir);
    if (r == 0) {
        d->lock = openat(d->dir, "lock", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (d->lock < 0)
            r = err_set(err, -errno, "spool.dir = %.80s: %s", dir, strerrordesc_np(errno));
        else if (flock(d->lock, LOCK_EX | LOCK_NB) < 0)
            r = err_set(err, -EBUSY, "spool.dir = %.80s: another agent uses it", dir);
    }
    if (r < 0) {
        spool_disk_close(d);
        return r;
    }
    *ret = d;
    return 0;
}

struct spool_disk *spool_disk_close(struct spool_disk *d)
{
    if (!d)
        return NULL;
    if (d->lock >= 0)
        (void)close(d->lock);
    if (d->dir >= 0)
        (void)close(d->dir);
    free(d);
    return NULL;
}
