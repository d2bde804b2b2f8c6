// SPDX-License-Identifier: Apache-2.0
#include "agent/file/jitmap.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/file/elffile.h"
#include "agent/file/rootfile.h"
#include "base/arena.h"

#define CHUNK ((size_t)64 << 10)

struct reading {
    const struct jitmap_args *args;
    struct jitmap m;
    uint32_t room;
    uint64_t text_room;
    uint32_t max_entries;
};

/* ---- lines --------------------------------------------------------------------------------- */

static bool hex_word(struct str *line, uint64_t *ret)
{
    size_t blank = str_find(*line, ' ');
    struct str word = str_to(*line, blank);

    if (blank == SIZE_MAX)
        return false;
    if (str_starts(word, STR("0x")))
        word = str_from(word, 2);
    *line = str_from(*line, blank + 1);
    return str_hex64(word, ret);
}

static uint32_t keep_text(struct reading *r, struct str s)
{
    uint64_t at = r->m.text_n;

    if (at + s.n > r->text_room) {
        r->text_room = 2 * (at + s.n) + CHUNK;
        r->m.text = xrealloc(r->m.text, r->text_room);
    }
    memcpy(r->m.text + at, s.p, s.n);
    r->m.text_n = at + s.n;
    return (uint32_t)at;
}

/* false: no room for more */
static bool add_line(struct reading *r, struct str line)
{
    uint64_t start, size;
    struct jitmap_sym *y;

    if (str_ends(line, STR("\r")))
        line.n--;
    if (line.n == 0)
        return true;
    if (!hex_word(&line, &start) || !hex_word(&line, &size) || size == 0 || start + size < start ||
        line.n == 0 || line.n > JITMAP_MAX_NAME) {
        r->m.bad++;
        return true;
    }
    if (r->args->drop_python && str_starts(line, STR("py::"))) {
        r->m.dropped++;
        return true;
    }
    if (r->m.n == r->max_entries)
        return false;
    if (r->m.n == r->room) {
        r->room = r->room ? 2 * r->room : 1024;
        r->m.sym = xrealloc(r->m.sym, r->room * sizeof *r->m.sym);
    }
    y = &r->m.sym[r->m.n++];
    *y = (struct jitmap_sym){.start = start, .end = start + size, .name_len = (uint32_t)line.n};
    y->name = keep_text(r, line);
    return true;
}

/* Whole lines of p; the bytes that they take. */
static size_t add_lines(struct reading *r, const char *p, size_t n)
{
    size_t done = 0;

    while (done < n && !r->m.cut) {
        const char *end = memchr(p + done, '\n', n - done);
        size_t len;

        if (!end)
            break;
        len = (size_t)(end - p) - done;
        r->m.cut = !add_line(r, (struct str){p + done, len});
        done += len + 1;
    }
    return done;
}

static int read_lines(struct reading *r, int fd, uint64_t max_bytes, struct err *err)
{
    size_t room = 2 * CHUNK + JITMAP_MAX_NAME, have = 0;
    char *part = xmalloc(room);
    bool skipping = false; /* inside a line that is too long */
    int code = 0;

    for (uint64_t at = 0; !r->m.cut;) {
        int64_t n = elffile_pread(&fd, part + have, CHUNK, at);
        size_t done = 0;

        if (n < 0)
            code = err_set(err, (int)n, "perf map: %s", strerrordesc_np((int)-n));
        if (n <= 0)
            break;
        at += (uint64_t)n;
        have += (size_t)n;
        if (skipping) {
            const char *end = memchr(part, '\n', have);

            done = end ? (size_t)(end - part) + 1 : have;
            skipping = !end;
        }
        done += add_lines(r, part + done, have - done);
        memmove(part, part + done, have - done);
        have -= done;
        if (have > CHUNK + JITMAP_MAX_NAME) {
            r->m.bad++;
            skipping = true;
            have = 0;
        }
        r->m.cut = r->m.cut || at >= max_bytes;
    }
    free(part);
    return code;
}

/* ---- the later one hides ------------------------------------------------------------------- */

static int by_number(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

static uint32_t place_of(const uint64_t *edge, uint32_t n, uint64_t v)
{
    uint32_t lo = 0;

    for (uint32_t hi = n; lo < hi;) {
        uint32_t mid = lo + (hi - lo) / 2;

        if (edge[mid] < v)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

/* The first piece from i on that nobody has taken (union-find: next[i] == i is free). */
static uint32_t free_from(uint32_t *next, uint32_t i)
{
    uint32_t root = i;

    while (next[root] != root)
        root = next[root];
    while (next[i] != root) {
        uint32_t after = next[i];

        next[i] = root;
        i = after;
    }
    return root;
}

static int by_start(const void *a, const void *b)
{
    const struct jitmap_sym *x = a, *y = b;

    return (x->start > y->start) - (x->start < y->start);
}

/*
 * All edges cut the addresses into pieces. From the newest entry back each takes the pieces of its
 * range that are left; one that does not get them all was overlapped by a later one. (One that was
 * hidden itself still hides: its code had replaced theirs.)
 */
static void hide_older(struct jitmap *m)
{
    uint32_t n_edge = 0, kept = 0;
    uint64_t *edge = xmalloc(2 * (size_t)m->n * sizeof *edge);
    uint32_t *next;

    for (size_t i = 0; i < m->n; i++) {
        edge[2 * i] = m->sym[i].start;
        edge[2 * i + 1] = m->sym[i].end;
    }
    qsort(edge, 2 * (size_t)m->n, sizeof *edge, by_number);
    for (size_t i = 0; i < 2 * (size_t)m->n; i++) {
        if (n_edge == 0 || edge[n_edge - 1] != edge[i])
            edge[n_edge++] = edge[i];
    }
    next = xmalloc(((size_t)n_edge + 1) * sizeof *next);
    for (uint32_t i = 0; i <= n_edge; i++)
        next[i] = i;
    for (uint32_t k = m->n; k-- > 0;) {
        struct jitmap_sym *y = &m->sym[k];
        uint32_t lo = place_of(edge, n_edge, y->start), hi = place_of(edge, n_edge, y->end);
        uint32_t taken = 0;

        for (uint32_t i = free_from(next, lo); i < hi; i = free_from(next, i)) {
            next[i] = i + 1;
            taken++;
        }
        if (taken < hi - lo)
            y->end = 0;
    }
    free(next);
    free(edge);
    for (uint32_t i = 0; i < m->n; i++) {
        if (m->sym[i].end)
            m->sym[kept++] = m->sym[i];
    }
    m->hidden = m->n - kept;
    m->n = kept;
    if (kept)
        qsort(m->sym, kept, sizeof *m->sym, by_start);
}

int jitmap_read(int fd, const struct jitmap_args *args, struct jitmap *ret, struct err *err)
{
    struct reading r = {.args = args,
                        .max_entries = args->max_entries ? args->max_entries : JITMAP_MAX_ENTRIES};
    int code = read_lines(&r, fd, args->max_bytes ? args->max_bytes : JITMAP_MAX_BYTES, err);

    if (code < 0) {
        jitmap_deinit(&r.m);
        return code;
    }
    if (r.m.n)
        hide_older(&r.m);
    *ret = r.m;
    return 0;
}

void jitmap_deinit(struct jitmap *m)
{
    free(m->sym);
    free(m->text);
    *m = (struct jitmap){};
}

bool jitmap_find(const struct jitmap *m, uint64_t addr, struct str *ret)
{
    uint32_t lo = 0;

    for (uint32_t hi = m->n; lo < hi;) { /* first symbol beyond addr */
        uint32_t mid = lo + (hi - lo) / 2;

        if (m->sym[mid].start <= addr)
            lo = mid + 1;
        else
            hi = mid;
    }
    if (lo == 0 || addr >= m->sym[lo - 1].end)
        return false;
    *ret = (struct str){m->text + m->sym[lo - 1].name, m->sym[lo - 1].name_len};
    return true;
}

int jitmap_open(int root, uint64_t pid, const uint32_t uid[static 2])
{
    char path[64];
    struct stat st;
    int fd;

    (void)snprintf(path, sizeof path, "tmp/perf-%" PRIu64 ".map", pid);
    fd = rootfile_open(root, str_c(path), false);
    if (fd < 0)
        return fd;
    if (fstat(fd, &st) < 0 || (st.st_uid != 0 && st.st_uid != uid[0] && st.st_uid != uid[1])) {
        close(fd);
        return -EPERM;
    }
    return fd;
}
