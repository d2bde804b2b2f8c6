// SPDX-License-Identifier: Apache-2.0
#include "agent/debugfile.h"

#include <elf.h>
#include <lzma.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/reader.h"
#include "agent/rootfile.h"
#include "base/arena.h"
#include "base/buf.h"

#define CHUNK    ((size_t)256 << 10)
#define MAX_PATH 4096

const char *debugfile_why_name(enum debugfile_why w)
{
    static const char *const name[DEBUGFILE_N] = {"ok",       "other_build_id", "bad_crc",
                                                  "bad_link", "bad_file",       "too_big"};

    return w < DEBUGFILE_N ? name[w] : "";
}

/* ---- what a binary says -------------------------------------------------------------------- */

/* A section's bytes: the number read, at most cap. */
static size_t section_bytes(const struct elffile *f, const char *name, uint8_t *to, size_t cap)
{
    const struct elffile_section *s = elffile_section(f, name);
    size_t n;

    if (!s || s->type == SHT_NOBITS || s->size == 0)
        return 0;
    n = s->size < cap ? s->size : cap;
    return elffile_read(f, to, n, s->offset, NULL) == 0 ? n : 0;
}

bool debugfile_is_name(const char *s)
{
    return s[0] && !strchr(s, '/') && strcmp(s, ".") != 0 && strcmp(s, "..") != 0;
}

/* Name, NUL, padding to 4 bytes, CRC-32. */
static void read_link(const struct elffile *f, struct debugfile_facts *ret)
{
    uint8_t raw[sizeof ret->link + 8];
    size_t n = section_bytes(f, ".gnu_debuglink", raw, sizeof raw), len, at;

    if (n == 0)
        return;
    len = strnlen((const char *)raw, n);
    at = (len + 4) & ~(size_t)3;
    if (len >= sizeof ret->link || at + 4 > n) {
        ret->bad_link = true;
        return;
    }
    memcpy(ret->link, raw, len + 1);
    memcpy(&ret->crc, raw + at, 4);
    ret->bad_link = !debugfile_is_name(ret->link);
    ret->has_link = !ret->bad_link;
}

/* Path, NUL, build id. */
static void read_alt(const struct elffile *f, struct debugfile_facts *ret)
{
    uint8_t raw[sizeof ret->alt + sizeof ret->alt_id];
    size_t n = section_bytes(f, ".gnu_debugaltlink", raw, sizeof raw), len;

    if (n == 0)
        return;
    ret->has_alt = true;
    len = strnlen((const char *)raw, n);
    if (len >= sizeof ret->alt || len + 1 >= n || n - len - 1 > sizeof ret->alt_id)
        return; /* there is one, and it is not found */
    memcpy(ret->alt, raw, len + 1);
    ret->alt_id_len = (uint8_t)(n - len - 1);
    memcpy(ret->alt_id, raw + len + 1, ret->alt_id_len);
}

void debugfile_facts(const struct elffile *f, struct debugfile_facts *ret)
{
    *ret = (struct debugfile_facts){.id_len = f->build_id_len};
    memcpy(ret->id, f->build_id, f->build_id_len);
    read_link(f, ret);
    read_alt(f, ret);
}

/* ---- proof --------------------------------------------------------------------------------- */

static enum debugfile_why check_crc(int fd, uint64_t size, uint32_t want)
{
    uint8_t *part;
    uint32_t crc = 0;

    if (size > DEBUGFILE_MAX_CRC)
        return DEBUGFILE_TOO_BIG;
    part = xmalloc(CHUNK);
    for (uint64_t at = 0; at < size;) {
        int64_t n = elffile_pread(&fd, part, CHUNK, at);

        if (n <= 0) {
            free(part);
            return DEBUGFILE_BAD_FILE;
        }
        crc = lzma_crc32(part, (size_t)n, crc);
        at += (uint64_t)n;
    }
    free(part);
    return crc == want ? DEBUGFILE_OK : DEBUGFILE_BAD_CRC;
}

enum debugfile_why debugfile_prove(int fd, const struct debugfile_proof *p)
{
    enum debugfile_why why = DEBUGFILE_OK;
    struct elffile f = {};
    struct stat st;

    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) ||
        elffile_open(&f, elffile_pread, &fd, (uint64_t)st.st_size, NULL) < 0 ||
        elffile_sections(&f, NULL) < 0)
        why = DEBUGFILE_BAD_FILE;
    /* by CRC alone only where one of the two has no build id */
    else if (p->id_len && (f.build_id_len || !p->with_crc) &&
             (f.build_id_len != p->id_len || memcmp(f.build_id, p->id, p->id_len) != 0))
        why = DEBUGFILE_OTHER_ID;
    else if (p->with_crc)
        why = check_crc(fd, (uint64_t)st.st_size, p->crc);
    elffile_close(&f);
    return why;
}

/* ---- places -------------------------------------------------------------------------------- */

struct search {
    int root;
    const struct debugfile_where *where;
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
static int find(const struct debugfile_facts *f, const struct debugfile_where *w, uint64_t *counts,
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

int debugfile_find(const struct debugfile_facts *f, const struct debugfile_where *w,
                   uint64_t *counts)
{
    if (!w->dirs || !w->dirs[0])
        return -1;
    if (f->bad_link)
        counts[DEBUGFILE_BAD_LINK]++;
    return find(f, w, counts, false);
}

int debugfile_find_alt(const struct debugfile_facts *f, const struct debugfile_where *w,
                       uint64_t *counts)
{
    return w->dirs && w->dirs[0] && f->has_alt ? find(f, w, counts, true) : -1;
}

int debugfile_of(const struct binary *b, const char *dirs, struct debugfile_facts *ret,
                 uint64_t *counts)
{
    struct debugfile_where w = {.path = b->path, .dirs = dirs};
    int fd;

    *ret = (struct debugfile_facts){};
    if (!reader_facts(b, ret))
        return -1;
    w.target = binary_root(b);
    fd = debugfile_find(ret, &w, counts);
    if (w.target >= 0)
        close(w.target);
    return fd;
}
