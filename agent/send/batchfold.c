// SPDX-License-Identifier: Apache-2.0
#include "agent/send/batchfold.h"

#include "base/hash.h"
#include "base/map.h"

enum batchfold_level batchfold_level(unsigned spool_percent)
{
    if (spool_percent >= BATCHFOLD_THREADS_AT)
        return BATCHFOLD_THREADS;
    return spool_percent >= BATCHFOLD_TIME_AT ? BATCHFOLD_TIME : BATCHFOLD_NONE;
}

static real_ns slot_of(real_ns t, real_ns t0)
{
    int64_t in = t.v % BATCHFOLD_NS;

    t.v -= in < 0 ? in + BATCHFOLD_NS : in;
    return t.v < t0.v ? t0 : t;
}

static bool equal(const struct batchfold_columns *c, uint32_t a, uint32_t b)
{
    return c->t[a].v == c->t[b].v && c->node[a] == c->node[b] && c->target[a] == c->target[b] &&
           c->tid[a] == c->tid[b] && c->thread[a] == c->thread[b] && c->labels[a] == c->labels[b];
}

static uint64_t key_of(const struct batchfold_columns *c, uint32_t i)
{
    uint64_t h = hash_mix((uint64_t)c->t[i].v);

    h = hash_mix(h ^ ((uint64_t)c->node[i] << 32 | c->target[i]));
    return hash_mix(h ^ ((uint64_t)c->tid[i] << 32 | c->thread[i]) ^
                    (uint64_t)c->labels[i] * UINT64_C(0x9e3779b97f4a7c15));
}

static void move(struct batchfold_columns *c, uint32_t to, uint32_t from)
{
    c->t[to] = c->t[from];
    c->node[to] = c->node[from];
    c->target[to] = c->target[from];
    c->tid[to] = c->tid[from];
    c->thread[to] = c->thread[from];
    c->labels[to] = c->labels[from];
    c->count[to] = c->count[from];
    c->value[to] = c->value[from];
}

void batchfold(struct batchfold_columns *c, real_ns t0, enum batchfold_level level)
{
    uint32_t n = 0;
    struct map map;

    if (level == BATCHFOLD_NONE)
        return;
    map_init(&map, 0);
    for (uint32_t i = 0; i < c->n; i++) {
        uint64_t *at, key;

        c->t[i] = slot_of(c->t[i], t0);
        if (level == BATCHFOLD_THREADS)
            c->tid[i] = c->thread[i] = 0;
        key = key_of(c, i);
        /* of two that merely share a hash the second stays by itself */
        if (map_at(&map, key, &at) == MAP_FOUND && equal(c, (uint32_t)*at, i)) {
            c->count[*at] += c->count[i];
            c->value[*at] += c->value[i];
            continue;
        }
        move(c, n, i);
        if (map_at(&map, key, &at) != MAP_FULL)
            *at = n;
        n++;
    }
    c->n = n;
    map_deinit(&map);
}
