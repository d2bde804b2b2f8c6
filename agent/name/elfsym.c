// SPDX-License-Identifier: Apache-2.0
#include "agent/name/elfsym.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/apart/reader.h"
#include "base/arena.h"

struct elfsym {
    struct binary *b;
    int debug_fd; /* -1: none */
    uint64_t debug_size;
    struct elfsym_arrays a;
};

static int64_t read_binary(void *ctx, void *to, uint64_t n, uint64_t at)
{
    return binary_read(ctx, to, n, at);
}

static struct elfsym_file main_file(const struct elfsym *s)
{
    return (struct elfsym_file){read_binary, s->b, s->b->size};
}

static struct elfsym_file debug_file(const struct elfsym *s)
{
    // NOLINTNEXTLINE(performance-no-int-to-ptr): sheds const; it is only read
    return (struct elfsym_file){elffile_pread, (void *)(uintptr_t)&s->debug_fd, s->debug_size};
}

int elfsym_open(struct binary *b, int debug_fd, uint32_t max_symbols, struct elfsym **ret,
                struct err *err)
{
    struct elfsym *s = xcalloc(1, sizeof *s);
    struct stat st;
    int r;

    s->b = binary_ref(b);
    s->debug_fd = debug_fd;
    if (debug_fd >= 0 && fstat(debug_fd, &st) == 0)
        s->debug_size = (uint64_t)st.st_size;
    r = reader_symbols(b, debug_fd, max_symbols, &s->a, err);
    if (r < 0) {
        elfsym_close(s);
        return r;
    }
    if (s->debug_fd >= 0 && !s->a.debug_used) {
        close(s->debug_fd);
        s->debug_fd = -1;
    }
    *ret = s;
    return 0;
}

struct elfsym *elfsym_close(struct elfsym *s)
{
    if (!s)
        return NULL;
    if (s->debug_fd >= 0)
        close(s->debug_fd);
    binary_unref(s->b);
    free(s->a.sym);
    free(s->a.mini);
    free(s);
    return NULL;
}

/* ---- asking -------------------------------------------------------------------------------- */

bool elfsym_find(const struct elfsym *s, uint64_t addr, struct elfsym_hit *ret)
{
    uint32_t lo = 0, hi = s->a.n;

    while (lo < hi) { /* first symbol beyond addr */
        uint32_t mid = lo + (hi - lo) / 2;

        if (s->a.sym[mid].addr <= addr)
            lo = mid + 1;
        else
            hi = mid;
    }
    /* an inner function that ends before addr may lie in a larger one: a few steps back */
    for (uint32_t back = 0; back < 16 && lo > 0; back++) {
        const struct elfsym_sym *y = &s->a.sym[--lo];

        if (addr - y->addr < y->size) {
            *ret = (struct elfsym_hit){.index = lo, .addr = y->addr};
            return true;
        }
    }
    return false;
}

static bool read_name(const struct elfsym *s, uint32_t name, struct buf *out)
{
    enum elfsym_table t = name >> 30;
    uint64_t at = name & ELFSYM_NAME_MASK;
    size_t start = out->n;
    const struct elfsym_file main = main_file(s), debug = debug_file(s);
    const struct elfsym_job job = {.main = &main, .debug = &debug};

    while (out->n - start < ELFSYM_MAX_NAME) {
        char part[256];
        int64_t got = elfsym_read_names(&job, &s->a, t, part, sizeof part, at);
        const char *end;

        if (got <= 0)
            return false;
        end = memchr(part, 0, (size_t)got);
        buf_add(out, part, end ? (size_t)(end - part) : (size_t)got);
        if (end)
            return !out->failed && out->n > start;
        at += (uint64_t)got;
    }
    return false; /* no end, or too long */
}

bool elfsym_name(const struct elfsym *s, uint32_t index, struct buf *out)
{
    size_t start = out->n;
    uint32_t name;

    if (index >= s->a.n)
        return false;
    name = s->a.sym[index].name;
    if (!read_name(s, name, out)) {
        out->n = start;
        return false;
    }
    if (name >> 29 & 1)
        buf_str(out, STR("@plt"));
    return !out->failed;
}

uint64_t elfsym_bytes(const struct elfsym *s)
{
    return sizeof *s + s->a.n * sizeof *s->a.sym + (s->a.mini ? s->a.names[ELFSYM_MINI].size : 0);
}

uint32_t elfsym_count(const struct elfsym *s)
{
    return s->a.n;
}

bool elfsym_has_debug(const struct elfsym *s)
{
    return s->a.debug_used;
}

bool elfsym_has_mini(const struct elfsym *s)
{
    return s->a.mini_used;
}

bool elfsym_mini_failed(const struct elfsym *s)
{
    return s->a.mini_failed;
}
