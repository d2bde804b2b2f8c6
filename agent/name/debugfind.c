// SPDX-License-Identifier: Apache-2.0
#include "agent/name/debugfind.h"

#include <string.h>
#include <unistd.h>

#include "agent/apart/reader.h"
#include "agent/file/rootfile.h"
#include "base/buf.h"

#define MAX_PATH 4096

/* ---- places -------------------------------------------------------------------------------- */

struct search {
    int root;
    const struct debugfind_where *where;
    struct debugfile_proof proof;
    uint64_t *counts;
    struct buf path;
};

/* What is at the path put together, if it proves right. */
static int try_path(struct search *s)
{
    enum debugfile_why why;
    int fd;

    if (s->path.failed)
        return -1;
    fd = rootfile_open(s->root, buf_view(&s->path), true);
    if (fd < 0)
        return -1;
    why = reader_prove(fd, &s->proof);
    s->counts[why]++;
    if (why == DEBUGFILE_OK)
        return fd;
    close(fd);
    return -1;
}

/* The next of the folders in list. */
static bool next_dir(struct str *list, struct str *ret)
{
    while (list->n) {
        size_t colon = str_find(*list, ':');

        *ret = str_to(*list, colon);
        *list = colon == SIZE_MAX ? (struct str){} : str_from(*list, colon + 1);
        if (ret->n)
            return true;
    }
    return false;
}

static int by_id(struct search *s, const uint8_t *id, uint8_t id_len)
{
    struct str list = str_c(s->where->dirs), dir;
    int fd = -1;

    if (id_len < 2)
        return -1;
    s->proof = (struct debugfile_proof){.id = id, .id_len = id_len};
    while (fd < 0 && next_dir(&list, &dir)) {
        buf_reset(&s->path);
        buf_str(&s->path, dir);
        buf_printf(&s->path, "/.build-id/%02x/", id[0]);
        for (unsigned i = 1; i < id_len; i++)
            buf_printf(&s->path, "%02x", id[i]);
        buf_str(&s->path, STR(".debug"));
        fd = try_path(s);
    }
    return fd;
}

static int try_link(struct search *s, struct str dir, const char *sub, const char *name)
{
    struct str path = s->where->path;
    size_t slash = str_rfind(path, '/');

    buf_reset(&s->path);
    buf_str(&s->path, dir);
    buf_str(&s->path, str_to(path, slash == SIZE_MAX ? 0 : slash));
    buf_str(&s->path, str_c(sub));
    buf_str(&s->path, str_c(name));
    return try_path(s);
}

static int by_link(struct search *s, const struct debugfile_facts *f)
{
    struct str list = str_c(s->where->dirs), dir, path = s->where->path;
    int fd;

    if (!f->has_link || path.n == 0 || path.p[0] != '/')
        return -1;
    s->proof =
        (struct debugfile_proof){.id = f->id, .id_len = f->id_len, .with_crc = true, .crc = f->crc};
    fd = try_link(s, STR(""), "/", f->link);
    if (fd < 0)
        fd = try_link(s, STR(""), "/.debug/", f->link);
    while (fd < 0 && next_dir(&list, &dir))
        fd = try_link(s, dir, "/", f->link);
    return fd;
}

/* The alternative file: by its build id, else at its path, taken from the debug file's folder. */
static int by_alt(struct search *s, const struct debugfile_facts *f)
{
    int fd = by_id(s, f->alt_id, f->alt_id_len);

    if (fd >= 0 || f->alt_id_len == 0 || f->alt[0] == '\0')
        return fd;
    if (f->alt[0] != '/')
        return try_link(s, STR(""), "/", f->alt);
    buf_reset(&s->path);
    buf_str(&s->path, str_c(f->alt));
    return try_path(s);
}

// NOLINTNEXTLINE(readability-non-const-parameter): counted in by way of struct search
static int find(const struct debugfile_facts *f, const struct debugfind_where *w, uint64_t *counts,
                bool alt)
{
    const int roots[] = {w->target, rootfile_root("/proc", 0)};
    struct search s = {.where = w, .counts = counts};
    int fd = -1;

    buf_init(&s.path, MAX_PATH);
    for (unsigned i = 0; fd < 0 && i < 2; i++) {
        s.root = roots[i];
        if (s.root < 0)
            continue;
        if (alt) {
            fd = by_alt(&s, f);
            continue;
        }
        fd = by_id(&s, f->id, f->id_len);
        if (fd < 0)
            fd = by_link(&s, f);
    }
    buf_deinit(&s.path);
    if (roots[1] >= 0)
        close(roots[1]);
    return fd;
}

int debugfind(const struct debugfile_facts *f, const struct debugfind_where *w, uint64_t *counts)
{
    if (!w->dirs || !w->dirs[0])
        return -1;
    if (f->bad_link)
        counts[DEBUGFILE_BAD_LINK]++;
    return find(f, w, counts, false);
}

int debugfind_alt(const struct debugfile_facts *f, const struct debugfind_where *w,
                  uint64_t *counts)
{
    return w->dirs && w->dirs[0] && f->has_alt ? find(f, w, counts, true) : -1;
}

int debugfind_of(const struct binary *b, const char *dirs, struct debugfile_facts *ret,
                 uint64_t *counts)
{
    struct debugfind_where w = {.path = b->path, .dirs = dirs};
    int fd;

    *ret = (struct debugfile_facts){};
    if (!reader_facts(b, ret))
        return -1;
    w.target = binary_root(b);
    fd = debugfind(ret, &w, counts);
    if (w.target >= 0)
        close(w.target);
    return fd;
}
