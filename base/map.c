// SPDX-License-Identifier: Apache-2.0
/*
 * A slot is free where its key is 0. The key 0 itself lives in one more slot behind the table:
 * its key field says whether it is there.
 */
#include "base/map.h"

#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/hash.h"

#define SLOTS_MIN 16u
#define N_MAX     (UINT32_C(1) << 31)
#define SLOTS_MAX (UINT64_C(1) << 32)

struct map_slot {
    uint64_t key, value;
};

void map_init(struct map *m, uint32_t max)
{
    *m = (struct map){.max = max};
}

void map_deinit(struct map *m)
{
    free(m->slot);
    *m = (struct map){.max = m->max};
}

static uint64_t slots(const struct map *m)
{
    return m->slot ? (uint64_t)m->mask + 1 : 0;
}

static struct map_slot *zero_slot(const struct map *m)
{
    return &m->slot[(uint64_t)m->mask + 1];
}

void map_clear(struct map *m)
{
    if (m->slot)
        memset(m->slot, 0, map_bytes(m));
    m->n = 0;
}

size_t map_bytes(const struct map *m)
{
    return m->slot ? (size_t)(slots(m) + 1) * sizeof *m->slot : 0;
}

/* The slot that holds key, or the free one where it would go. key is not 0; the table is there. */
static struct map_slot *seek(const struct map *m, uint64_t key)
{
    uint32_t i = (uint32_t)hash_mix(key) & m->mask;

    while (m->slot[i].key != 0 && m->slot[i].key != key)
        i = (i + 1) & m->mask;
    return &m->slot[i];
}

static bool grow(struct map *m, uint64_t n)
{
    uint64_t old = slots(m);
    struct map bigger = *m;

    if (n > SLOTS_MAX || mem_fail_now())
        return false;
    bigger.slot = calloc((size_t)n + 1, sizeof *bigger.slot);
    if (!bigger.slot)
        return false;
    bigger.mask = (uint32_t)(n - 1);
    for (uint64_t i = 0; i < old; i++) {
        if (m->slot[i].key != 0)
            *seek(&bigger, m->slot[i].key) = m->slot[i];
    }
    if (old)
        *zero_slot(&bigger) = *zero_slot(m);
    free(m->slot);
    *m = bigger;
    return true;
}

bool map_reserve(struct map *m, uint32_t n)
{
    uint64_t want = SLOTS_MIN;

    while (want / 8 * 7 < n)
        want *= 2;
    return want <= slots(m) || grow(m, want);
}

bool map_get(const struct map *m, uint64_t key, uint64_t *ret)
{
    const struct map_slot *s;

    if (!m->slot)
        return false;
    s = key ? seek(m, key) : zero_slot(m);
    if (s->key == 0)
        return false;
    *ret = s->value;
    return true;
}

enum map_result map_at(struct map *m, uint64_t key, uint64_t **ret)
{
    struct map_slot *s = NULL;

    if (m->slot) {
        s = key ? seek(m, key) : zero_slot(m);
        if (s->key != 0) {
            *ret = &s->value;
            return MAP_FOUND;
        }
    }
    if (m->n >= (m->max ? m->max : N_MAX))
        return MAP_FULL;
    if ((uint64_t)m->n + 1 > slots(m) / 8 * 7) {
        if (!grow(m, slots(m) ? slots(m) * 2 : SLOTS_MIN))
            return MAP_FULL;
        s = key ? seek(m, key) : zero_slot(m);
    }
    s->key = key ? key : 1;
    s->value = 0;
    m->n++;
    *ret = &s->value;
    return MAP_ADDED;
}

enum map_result map_put(struct map *m, uint64_t key, uint64_t value)
{
    uint64_t *at;
    enum map_result r = map_at(m, key, &at);

    if (r != MAP_FULL)
        *at = value;
    return r;
}

bool map_del(struct map *m, uint64_t key)
{
    struct map_slot *s;
    uint32_t hole, i;

    if (!m->slot)
        return false;
    s = key ? seek(m, key) : zero_slot(m);
    if (s->key == 0)
        return false;
    m->n--;
    *s = (struct map_slot){};
    if (key == 0)
        return true;
    /* Close the gap: a later entry of the run moves into the hole unless its home lies behind it.
     */
    hole = i = (uint32_t)(s - m->slot);
    for (;;) {
        uint32_t home;

        i = (i + 1) & m->mask;
        if (m->slot[i].key == 0)
            return true;
        home = (uint32_t)hash_mix(m->slot[i].key) & m->mask;
        if (((i - home) & m->mask) >= ((i - hole) & m->mask)) {
            m->slot[hole] = m->slot[i];
            m->slot[i] = (struct map_slot){};
            hole = i;
        }
    }
}

bool map_next(const struct map *m, uint32_t *pos, uint64_t *ret_key, uint64_t *ret_value)
{
    uint64_t n = slots(m);

    for (uint64_t i = *pos; i < n + (n > 0); i++) {
        const struct map_slot *s = &m->slot[i];

        if (s->key == 0)
            continue;
        *ret_key = i < n ? s->key : 0;
        *ret_value = s->value;
        *pos = (uint32_t)(i + 1);
        return true;
    }
    return false;
}
