// SPDX-License-Identifier: Apache-2.0
/*
 * Sums of parts that are asked for again: a part never changes, so what some of its series add up
 * to by node does not either. Only what costs reading columns is kept, the longest unused goes
 * first. Entries are counted: one that is given up lives until its last reader is done.
 */
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/map.h"
#include "base/thread.h"
#include "storage/part/scan_cache_private.h"

struct entry {
    struct scan_cached c; /* first: what callers hold */
    uint64_t key[2];
    uint32_t refs; /* under mu; one of the cache's own */
    struct entry *newer, *older;
    size_t bytes;
};

struct scan_cache {
    struct mutex mu;
    uint64_t max, bytes;
    struct map at; /* key[0] -> entry */
    struct entry *newest, *oldest;
};

struct scan_cache *scan_cache_new(uint64_t max)
{
    struct scan_cache *c = max == 0 || mem_fail_now() ? NULL : calloc(1, sizeof *c);

    if (!c)
        return NULL;
    mutex_init(&c->mu);
    map_init(&c->at, 0);
    c->max = max;
    return c;
}

static void unlink_entry(struct scan_cache *c, struct entry *e) REQUIRES(&c->mu)
{
    if (e->newer)
        e->newer->older = e->older;
    else
        c->newest = e->older;
    if (e->older)
        e->older->newer = e->newer;
    else
        c->oldest = e->newer;
    e->newer = e->older = NULL;
}

static void link_newest(struct scan_cache *c, struct entry *e) REQUIRES(&c->mu)
{
    e->older = c->newest;
    if (c->newest)
        c->newest->newer = e;
    else
        c->oldest = e;
    c->newest = e;
}

static void unref(struct entry *e)
{
    if (--e->refs == 0)
        free(e);
}

static void give_up(struct scan_cache *c, struct entry *e) REQUIRES(&c->mu)
{
    (void)map_del(&c->at, e->key[0]);
    unlink_entry(c, e);
    c->bytes -= e->bytes;
    unref(e);
}

struct scan_cache *scan_cache_free(struct scan_cache *c)
{
    if (!c)
        return NULL;
    mutex_lock(&c->mu);
    while (c->oldest)
        give_up(c, c->oldest);
    mutex_unlock(&c->mu);
    map_deinit(&c->at);
    mutex_deinit(&c->mu);
    free(c);
    return NULL;
}

const struct scan_cached *scan_cache_get(struct scan_cache *c, const uint64_t key[2])
{
    struct entry *e = NULL;
    uint64_t p;

    mutex_lock(&c->mu);
    if (map_get(&c->at, key[0], &p)) {
        e = (struct entry *)(uintptr_t)p; // NOLINT(performance-no-int-to-ptr)
        if (e->key[1] == key[1]) {
            e->refs++;
            unlink_entry(c, e);
            link_newest(c, e);
        } else {
            e = NULL;
        }
    }
    mutex_unlock(&c->mu);
    return e ? &e->c : NULL;
}

void scan_cache_put(struct scan_cache *c, const struct scan_cached *p)
{
    /* c is its first member */
    struct entry *e = (struct entry *)(uintptr_t)p; // NOLINT(performance-no-int-to-ptr)

    mutex_lock(&c->mu);
    unref(e);
    mutex_unlock(&c->mu);
}

struct scan_cached *scan_cached_new(uint32_t n)
{
    size_t nodes = ((size_t)n * sizeof(uint32_t) + 15) / 16 * 16;
    size_t head = (sizeof(struct entry) + 15) / 16 * 16;
    size_t bytes = head + nodes + (size_t)n * sizeof(struct sum_at);
    struct entry *e = mem_fail_now() ? NULL : malloc(bytes);

    if (!e)
        return NULL;
    *e = (struct entry){.refs = 1, .bytes = bytes};
    e->c.n = n;
    e->c.node = (uint32_t *)((char *)e + head);
    e->c.sum = (struct sum_at *)((char *)e + head + nodes);
    return &e->c;
}

void scan_cache_add(struct scan_cache *c, const uint64_t key[2], struct scan_cached *p)
{
    struct entry *e = (struct entry *)p;
    uint64_t *at;

    memcpy(e->key, key, sizeof e->key);
    mutex_lock(&c->mu);
    if (e->bytes > c->max / 4 || map_at(&c->at, key[0], &at) != MAP_ADDED) {
        unref(e); /* too large, no memory, or another worker was first */
    } else {
        *at = (uintptr_t)e;
        link_newest(c, e);
        c->bytes += e->bytes;
        while (c->bytes > c->max)
            give_up(c, c->oldest);
    }
    mutex_unlock(&c->mu);
}

uint64_t scan_cache_bytes(struct scan_cache *c)
{
    uint64_t n;

    if (!c)
        return 0;
    mutex_lock(&c->mu);
    n = c->bytes + map_bytes(&c->at);
    mutex_unlock(&c->mu);
    return n;
}
