// SPDX-License-Identifier: Apache-2.0
#include "agent/name/names.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "agent/apart/reader.h"
#include "agent/name/debugfind.h"
#include "agent/name/elfsym.h"
#include "base/arena.h"
#include "base/hash.h"
#include "base/map.h"

struct table {
    uint32_t bin;
    struct elfsym *sym; /* NULL: it has none, remembered */
    bool absent;        /* nobody could read it: asked again */
    struct table *newer, *older;
};

struct names {
    char *debug_dirs;
    uint64_t cache;
    struct ksym *kernel;
    struct map by_bin;             /* binary id -> struct table * */
    struct table *newest, *oldest; /* by last use */
    struct map by_symbol;          /* hash of (binary id, symbol) -> struct str * in arena */
    struct arena texts;
    struct names_stats stats;
};

struct names *names_new(const struct names_conf *c)
{
    struct names *n = xcalloc(1, sizeof *n);

    n->debug_dirs = xstrdup(c->debug_dirs ? c->debug_dirs : "");
    n->cache = c->cache;
    n->kernel = ksym_new(c->proc, c->sys);
    map_init(&n->by_bin, 0);
    map_init(&n->by_symbol, 0);
    arena_init(&n->texts, c->cache / 4);
    return n;
}

static void unlink_table(struct names *n, struct table *t)
{
    if (t->newer)
        t->newer->older = t->older;
    else
        n->newest = t->older;
    if (t->older)
        t->older->newer = t->newer;
    else
        n->oldest = t->newer;
    t->newer = t->older = NULL;
}

static void link_newest(struct names *n, struct table *t)
{
    t->older = n->newest;
    t->newer = NULL;
    if (n->newest)
        n->newest->newer = t;
    else
        n->oldest = t;
    n->newest = t;
}

static void drop(struct names *n, struct table *t)
{
    unlink_table(n, t);
    map_del(&n->by_bin, t->bin);
    if (t->sym)
        n->stats.bytes -= elfsym_bytes(t->sym);
    n->stats.tables--;
    elfsym_close(t->sym);
    free(t);
}

struct names *names_free(struct names *n)
{
    if (!n)
        return NULL;
    while (n->oldest)
        drop(n, n->oldest);
    ksym_free(n->kernel);
    map_deinit(&n->by_bin);
    map_deinit(&n->by_symbol);
    arena_deinit(&n->texts);
    free(n->debug_dirs);
    free(n);
    return NULL;
}

/* What symbol tables may take: the rest is for names. */
static uint64_t tables_cap(const struct names *n)
{
    return n->cache - n->cache / 4;
}

/* A table that alone is beyond the cap is refused. */
static void open_table(struct names *n, struct binary *b, struct table *t)
{
    uint64_t max = tables_cap(n) / sizeof(struct elfsym_sym);
    struct debugfile_facts facts;
    int fd = b->is_elf ? debugfind_of(b, n->debug_dirs, &facts, n->stats.debug_found) : -1;
    int r = elfsym_open(b, fd, max < UINT32_MAX ? (uint32_t)max : UINT32_MAX, &t->sym, NULL);

    n->stats.failed += r < 0 && r != -EAGAIN;
    t->absent = r == -EAGAIN;
    if (!t->sym)
        return;
    n->stats.opened++;
    n->stats.debug_files += elfsym_has_debug(t->sym);
    n->stats.mini += elfsym_has_mini(t->sym);
    n->stats.mini_failed += elfsym_mini_failed(t->sym);
    n->stats.bytes += elfsym_bytes(t->sym);
}

/* Down to the cap, but for the one that is being used. */
static void shrink(struct names *n, const struct table *in_use)
{
    while (n->oldest && n->oldest != in_use && n->stats.bytes > tables_cap(n)) {
        n->stats.evicted += n->oldest->sym != NULL;
        drop(n, n->oldest);
    }
}

static struct table *table_of(struct names *n, struct binary *b)
{
    struct table *t;
    uint64_t v;

    if (map_get(&n->by_bin, b->id, &v)) {
        t = (struct table *)(uintptr_t)v; // NOLINT(performance-no-int-to-ptr): a map value
        unlink_table(n, t);
        link_newest(n, t);
        if (t->absent) {
            open_table(n, b, t);
            shrink(n, t);
        }
        return t;
    }
    t = xcalloc(1, sizeof *t);
    t->bin = b->id;
    open_table(n, b, t);
    n->stats.tables++;
    if (map_put(&n->by_bin, b->id, (uint64_t)(uintptr_t)t) == MAP_FULL)
        abort(); /* a hundred bytes could not be had: as xmalloc */
    link_newest(n, t);
    shrink(n, t);
    return t;
}

void names_set_cache(struct names *n, uint64_t bytes)
{
    n->cache = bytes;
    shrink(n, NULL);
}

/* The demangled name of one symbol, from the cache or into it. */
static bool symbol_name(struct names *n, const struct table *t, uint32_t index, struct buf *out)
{
    uint64_t key = hash_mix((uint64_t)t->bin << 32 | index);
    uint64_t v;
    struct buf raw;
    size_t start = out->n;
    struct str *kept;
    int r;

    if (map_get(&n->by_symbol, key, &v)) {
        buf_str(out, *(struct str *)(uintptr_t)v); // NOLINT(performance-no-int-to-ptr)
        return true;
    }
    buf_init(&raw, ELFSYM_MAX_NAME + 16);
    if (!elfsym_name(t->sym, index, &raw)) {
        buf_deinit(&raw);
        return false;
    }
    r = reader_demangle(buf_view(&raw), out);
    if (r != 0)
        buf_str(out, buf_view(&raw));
    buf_deinit(&raw);
    if (out->failed || r == -EAGAIN)
        return true;
    for (int again = 0; again < 2; again++) {
        kept = arena_new(&n->texts, struct str);
        if (kept) {
            *kept = arena_str(&n->texts, (struct str){out->p + start, out->n - start});
            if (kept->n && map_put(&n->by_symbol, key, (uint64_t)(uintptr_t)kept) != MAP_FULL)
                break;
        }
        map_clear(&n->by_symbol);
        arena_reset(&n->texts);
    }
    return true;
}

bool names_native(struct names *n, struct binary *b, uint64_t addr, struct buf *out)
{
    struct table *t = table_of(n, b);
    struct elfsym_hit hit;

    if (t->sym && elfsym_find(t->sym, addr, &hit) && symbol_name(n, t, hit.index, out)) {
        n->stats.resolved++;
        return true;
    }
    n->stats.unresolved++;
    buf_str(out, str_basename(b->path));
    buf_printf(out, "+0x%llx", (unsigned long long)addr);
    return false;
}

struct ksym *names_kernel(struct names *n)
{
    return n->kernel;
}

void names_tick(struct names *n, int64_t now_ns)
{
    ksym_refresh(n->kernel, now_ns);
}

void names_get_stats(const struct names *n, struct names_stats *ret)
{
    *ret = n->stats;
}
