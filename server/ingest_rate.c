// SPDX-License-Identifier: Apache-2.0
#include "server/ingest_rate.h"

#include <stdlib.h>

#include "base/arena.h"
#include "base/hash.h"
#include "base/map.h"
#include "base/thread.h"

struct bucket {
    uint64_t key;
    double level; /* bytes; negative: owed */
    mono_ns at;   /* of level */
};

struct rate {
    struct mutex mu;
    double rate, burst;
    struct map index; /* key -> position in bucket */
    uint32_t n;
    struct bucket bucket[RATE_SENDERS];
};

struct rate *rate_new(uint64_t rate, uint64_t burst)
{
    struct rate *r = xcalloc(1, sizeof *r);

    mutex_init(&r->mu);
    r->rate = (double)rate;
    r->burst = (double)burst;
    map_init(&r->index, RATE_SENDERS);
    return r;
}

struct rate *rate_free(struct rate *r)
{
    if (!r)
        return NULL;
    map_deinit(&r->index);
    mutex_deinit(&r->mu);
    free(r);
    return NULL;
}

static double level_at(const struct rate *r, const struct bucket *b, mono_ns now)
{
    double level = b->level + (double)(now.v - b->at.v) / 1e9 * r->rate;

    return level < r->burst ? level : r->burst;
}

/* The bucket of a new sender: a free one, or that which has the most in it. */
static struct bucket *bucket_add(struct rate *r, uint64_t key, mono_ns now) REQUIRES(&r->mu)
{
    struct bucket *b = &r->bucket[0];

    if (r->n < RATE_SENDERS) {
        b = &r->bucket[r->n++];
    } else {
        for (uint32_t i = 1; i < RATE_SENDERS; i++)
            if (level_at(r, &r->bucket[i], now) > level_at(r, b, now))
                b = &r->bucket[i];
        (void)map_del(&r->index, b->key);
    }
    *b = (struct bucket){.key = key, .level = r->burst, .at = now};
    if (map_put(&r->index, key, (uint64_t)(b - r->bucket)) == MAP_FULL)
        return NULL;
    return b;
}

static uint64_t take_locked(struct rate *r, uint64_t key, uint64_t n, mono_ns now) REQUIRES(&r->mu)
{
    struct bucket *b;
    uint64_t at;

    b = map_get(&r->index, key, &at) ? &r->bucket[at] : bucket_add(r, key, now);
    if (!b)
        return 0; /* memory is short: other limits decide */
    b->level = level_at(r, b, now);
    b->at = now;
    if (b->level <= 0)
        return 1 + (uint64_t)-b->level;
    b->level -= (double)n;
    return 0;
}

uint64_t rate_take(struct rate *r, const uint8_t agent[16], uint64_t n, mono_ns now)
{
    uint64_t owed;

    if (r->rate <= 0)
        return 0;
    mutex_lock(&r->mu);
    owed = take_locked(r, hash_bytes(agent, 16), n, now);
    mutex_unlock(&r->mu);
    return owed;
}
