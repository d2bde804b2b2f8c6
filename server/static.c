// SPDX-License-Identifier: Apache-2.0
#include "server/static.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/hash.h"
#include "server/http_parse.h"
#include "server/msg.h"

enum {
    TOTAL_MAX = 4 << 20, /* bytes of all files, compressed forms included */
    MANIFEST_MAX = 256 << 10,
    FILES_MAX = 1024,
    DEV_DEPTH = 8,
};

struct static_file {
    struct str url, type, path; /* path: on disk, for the dev directory */
    struct str plain, gz;       /* gz.p NULL: there is none */
    bool page;
    uint64_t etag;
};

struct static_files {
    struct arena arena; /* everything below */
    char *dir, *base;
    char hash[24];
    bool dev;
    uint32_t n;
    struct static_file *file;
};

/* ---- reading ------------------------------------------------------------------------------- */

static int file_read(struct arena *a, int dir, const char *path, struct str *ret, struct err *err)
{
    int fd = openat(dir, path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    struct stat st;
    char *p = NULL;
    size_t n = 0;
    int r = 0;

    if (fd < 0)
        return err_set(err, -errno, "%s: %s", path, strerrordesc_np(errno));
    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
        r = err_set(err, -EINVAL, "%s is not a regular file", path);
    else if (!(p = arena_alloc(a, (size_t)st.st_size + 1)))
        r = err_set(err, -E2BIG, "%s: the files of the user interface exceed %d bytes", path,
                    TOTAL_MAX);
    while (r == 0 && n < (size_t)st.st_size) {
        ssize_t got = read(fd, p + n, (size_t)st.st_size - n);

        if (got < 0)
            r = err_set(err, -errno, "%s: %s", path, strerrordesc_np(errno));
        if (got <= 0)
            break;
        n += (size_t)got;
    }
    (void)close(fd);
    if (r == 0)
        *ret = (struct str){p, n};
    return r;
}

/* Every "from" of text by to; in the arena. {NULL, 0}: no room. */
static struct str replace(struct arena *a, struct str text, struct str from, struct str to)
{
    struct buf b;
    struct str out;
    size_t i = 0;

    assert(text.p || !text.n);
    buf_init(&b, TOTAL_MAX);
    while (i < text.n) {
        if (str_starts(str_from(text, i), from)) {
            buf_str(&b, to);
            i += from.n;
        } else {
            buf_chr(&b, text.p[i++]);
        }
    }
    out = b.failed ? (struct str){NULL, 0} : arena_str(a, buf_view(&b));
    buf_deinit(&b);
    return out;
}

static struct str field(struct str *line)
{
    size_t at = str_find(*line, '\t');
    struct str f = str_to(*line, at);

    *line = at == SIZE_MAX ? (struct str){NULL, 0} : str_from(*line, at + 1);
    return f;
}

static int line_load(struct static_files *s, int dir, unsigned nr, struct str line, struct err *err)
{
    struct static_file f = {.url = field(&line), .type = field(&line)};
    struct str name = field(&line), size = field(&line), gz_size = field(&line), path;
    uint64_t want = 0;
    char gz[512];

    if (!gz_size.n || line.n || !name.n || f.url.n == 0 || f.url.p[0] != '/' ||
        !str_u64(size, &want))
        return err_set(err, -EINVAL, "manifest.tsv:%u: not URL, type, file, size, gz size", nr);
    path = arena_str(&s->arena, name);
    f.url = arena_str(&s->arena, f.url);
    f.type = arena_str(&s->arena, f.type);
    if (!path.p || !f.type.p || !f.url.p)
        return err_set(err, -E2BIG, "manifest.tsv is too large");
    TRY(file_read(&s->arena, dir, path.p, &f.plain, err));
    if (f.plain.n != want)
        return err_set(err, -EINVAL, "%s has %zu bytes, manifest.tsv:%u says %llu", path.p,
                       f.plain.n, nr, (unsigned long long)want);
    f.page = !str_starts(f.url, STR("/ui/"));
    if (f.page) {
        f.plain = replace(&s->arena, f.plain, STR("@BASE@"), str_c(s->base));
    } else if (!str_eq(gz_size, STR("-"))) {
        if (snprintf(gz, sizeof gz, "%s.gz", path.p) >= (int)sizeof gz)
            return err_set(err, -EINVAL, "manifest.tsv:%u: the name is too long", nr);
        TRY(file_read(&s->arena, dir, gz, &f.gz, err));
    }
    f.etag = hash_str(f.plain);
    if (s->n == FILES_MAX)
        return err_set(err, -E2BIG, "manifest.tsv names more than %d files", FILES_MAX);
    s->file[s->n++] = f;
    return 0;
}

/* The hash stands in the addresses: /ui/HASH/... */
static void hash_find(struct static_files *s)
{
    for (uint32_t i = 0; i < s->n; i++) {
        struct str rest = s->file[i].url;
        size_t at;

        if (!str_starts(rest, STR("/ui/")))
            continue;
        rest = str_from(rest, 4);
        at = str_find(rest, '/');
        if (rest.p && at < sizeof s->hash) {
            memcpy(s->hash, rest.p, at);
            s->hash[at] = '\0';
            return;
        }
    }
}

static struct static_files *files_new(const char *dir, const char *base)
{
    struct static_files *s = xcalloc(1, sizeof *s);

    arena_init(&s->arena, 2 * (size_t)TOTAL_MAX);
    s->dir = xstrdup(dir);
    s->base = xstrdup(base);
    s->file = xcalloc(FILES_MAX, sizeof *s->file);
    return s;
}

static int manifest_load(struct static_files *s, int dir, struct err *err)
{
    struct str text = {NULL, 0};
    size_t total = 0;

    TRY(file_read(&s->arena, dir, "manifest.tsv", &text, err));
    if (text.n > MANIFEST_MAX)
        return err_set(err, -E2BIG, "manifest.tsv is larger than %d bytes", MANIFEST_MAX);
    for (unsigned nr = 1; text.n; nr++) {
        size_t at = str_find(text, '\n');
        struct str line = str_to(text, at);

        text = at == SIZE_MAX ? (struct str){NULL, 0} : str_from(text, at + 1);
        if (line.n)
            TRY(line_load(s, dir, nr, line, err));
    }
    for (uint32_t i = 0; i < s->n; i++)
        total += s->file[i].plain.n + s->file[i].gz.n;
    if (total > TOTAL_MAX)
        return err_set(err, -E2BIG, "the files have %zu bytes, at most %d", total, TOTAL_MAX);
    if (!s->n)
        return err_set(err, -EINVAL, "manifest.tsv is empty");
    hash_find(s);
    return 0;
}

static int dir_open(const char *path, struct err *err)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (fd < 0)
        return err_set(err, -errno, "directory of the user interface %s: %s", path,
                       strerrordesc_np(errno));
    return fd;
}

int static_load(const char *dir, const char *base_path, struct static_files **ret, struct err *err)
{
    struct static_files *s;
    int fd = dir_open(dir, err);
    int r;

    if (fd < 0)
        return fd;
    s = files_new(dir, base_path);
    r = manifest_load(s, fd, err);
    (void)close(fd);
    if (r < 0)
        static_free(s);
    else
        *ret = s;
    return r;
}

/* ---- the dev directory --------------------------------------------------------------------- */

static struct str media_of(struct str path)
{
    static const struct {
        struct str end, type;
    } table[] = {{STR(".js"), STR("text/javascript")},
                 {STR(".css"), STR("text/css")},
                 {STR(".svg"), STR("image/svg+xml")},
                 {STR("/LICENSE"), STR("text/plain")}};

    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        if (str_ends(path, table[i].end))
            return table[i].type;
    return (struct str){NULL, 0};
}

static int dev_add(struct static_files *s, const char *url, const char *path, struct str type,
                   bool page, struct err *err)
{
    struct static_file f = {.url = arena_str(&s->arena, str_c(url)),
                            .path = arena_str(&s->arena, str_c(path)),
                            .type = type,
                            .page = page};

    if (s->n == FILES_MAX || !f.url.p || !f.path.p)
        return err_set(err, -E2BIG, "more than %d files below %s", FILES_MAX, s->dir);
    s->file[s->n++] = f;
    return 0;
}

/* Directories below `rel`, not deeper than DEV_DEPTH; names that begin with a dot are left out. */
static int dev_walk(struct static_files *s, const char *rel, unsigned depth, struct err *err)
{
    char path[1024], url[1024];
    struct dirent *e;
    DIR *d;
    int r = 0;

    (void)snprintf(path, sizeof path, "%s/%s", s->dir, rel);
    d = opendir(path);
    if (!d)
        return errno == ENOENT ? 0 : err_set(err, -errno, "%s: %s", path, strerrordesc_np(errno));
    while (r == 0 && (e = readdir(d))) { // NOLINT(concurrency-mt-unsafe): start-up, one thread
        if (e->d_name[0] == '.' ||
            snprintf(path, sizeof path, "%s/%s", rel, e->d_name) >= (int)sizeof path)
            continue;
        if (e->d_type == DT_DIR) {
            if (depth < DEV_DEPTH)
                r = dev_walk(s, path, depth + 1, err);
        } else if (media_of(str_c(path)).p &&
                   snprintf(url, sizeof url, "/ui/dev/%s", path) < (int)sizeof url) {
            r = dev_add(s, url, path, media_of(str_c(path)), false, err);
        }
    }
    (void)closedir(d);
    return r;
}

int static_load_dev(const char *dir, const char *base_path, struct static_files **ret,
                    struct err *err)
{
    static const char *const page[] = {"/", "/explore"};
    static const char *const tree[] = {"css", "js", "vendor"};
    struct static_files *s;
    int fd = dir_open(dir, err);
    int r = 0;

    if (fd < 0)
        return fd;
    (void)close(fd);
    s = files_new(dir, base_path);
    s->dev = true;
    (void)snprintf(s->hash, sizeof s->hash, "dev");
    for (size_t i = 0; r == 0 && i < sizeof page / sizeof page[0]; i++)
        r = dev_add(s, page[i], "index.html", STR("text/html; charset=utf-8"), true, err);
    for (size_t i = 0; r == 0 && i < sizeof tree / sizeof tree[0]; i++)
        r = dev_walk(s, tree[i], 0, err);
    if (r < 0)
        static_free(s);
    else
        *ret = s;
    return r;
}

static void not_found(struct msg_reply *r)
{
    static const struct str text = STR("not found\n");

    *r = (struct msg_reply){
        .status = 404, .content_type = "text/plain", .fixed = text, .cache = MSG_NO_STORE};
}

static void dev_handle(const struct static_files *s, const struct static_file *f,
                       struct msg_reply *r)
{
    struct err err = {};
    struct arena a;
    struct str text = {NULL, 0};
    int fd = dir_open(s->dir, &err);

    arena_init(&a, 4 * (size_t)TOTAL_MAX);
    if (fd >= 0 && file_read(&a, fd, f->path.p, &text, &err) == 0) {
        if (f->page) {
            text = replace(&a, text, STR("@BASE@"), str_c(s->base));
            text = replace(&a, text, STR("@HASH@"), STR("dev"));
        }
        *r = (struct msg_reply){.status = 200, .content_type = f->type.p, .cache = MSG_NO_STORE};
        buf_init(&r->body, TOTAL_MAX);
        buf_str(&r->body, text);
    } else {
        not_found(r);
    }
    if (fd >= 0)
        (void)close(fd);
    arena_deinit(&a);
}

/* ---- answering ----------------------------------------------------------------------------- */

struct static_files *static_none(void)
{
    return files_new("", "");
}

struct static_files *static_free(struct static_files *s)
{
    if (!s)
        return NULL;
    arena_deinit(&s->arena);
    free(s->dir);
    free(s->base);
    free(s->file);
    free(s);
    return NULL;
}

const char *static_hash(const struct static_files *s)
{
    return s->hash;
}

void static_handle(const struct static_files *s, const struct msg_request *q, struct msg_reply *r)
{
    const struct static_file *f = NULL;

    for (uint32_t i = 0; i < s->n && !f; i++)
        if (str_eq(s->file[i].url, q->path))
            f = &s->file[i];
    if (!f) {
        not_found(r);
        return;
    }
    if (s->dev) {
        dev_handle(s, f, r);
        return;
    }
    *r = (struct msg_reply){.status = 200,
                            .content_type = f->type.p,
                            .fixed = f->plain,
                            .cache = f->page ? MSG_NO_CACHE : MSG_IMMUTABLE,
                            .has_etag = f->page,
                            .etag = f->etag};
    if (f->gz.p && http_list_has(q->accept_encoding, STR("gzip"))) {
        r->fixed = f->gz;
        r->encoding = "gzip";
    }
}
