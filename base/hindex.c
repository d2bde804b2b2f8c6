// SPDX-License-Identifier: Apache-2.0
#include "base/hindex.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"

#define SLOTS_MIN 16u
#define SLOTS_MAX (UINT64_C(1) << 32)

void hindex_init(struct hindex *x)
{
    *x = (struct hindex){};
}

void hindex_deinit(struct hindex *x)
{
    free(x->slot);
    hindex_init(x);
}

static uint64_t slots(const struct hindex *x)
{
    return x->slot ? (uint64_t)x->mask + 1 : 0;
}

size_t hindex_bytes(const struct hindex *x)
{
    return (size_t)slots(x) * sizeof *x->slot;
}

void hindex_clear(struct hindex *x)
{
    if (x->slot)
        memset(x->slot, 0, hindex_bytes(x));
    x->n = 0;
}

static void put(struct hindex *x, struct hindex_slot s)
{
    uint32_t i = s.hash & x->mask;

    while (x->slot[i].number != 0)
        i = (i + 1) & x->mask;
    x->slot[i] = s;
}

static bool grow(struct hindex *x)
{
    uint64_t old = slots(x), n = old ? 2 * old : SLOTS_MIN;
    struct hindex bigger = {.n = x->n, .mask = (uint32_t)(n - 1)};

    if (n > SLOTS_MAX || mem_fail_now())
        return false;
    bigger.slot = calloc((size_t)n, sizeof *bigger.slot);
    if (!bigger.slot)
        return false;
    for (uint64_t i = 0; i < old; i++) {
        if (x->slot[i].number != 0)
            put(&bigger, x->slot[i]);
    }
    free(x->slot);
    *x = bigger;
    return true;
}

bool hindex_add(struct hindex *x, uint32_t hash, uint32_t number)
{
    assert(number != 0);
    if ((uint64_t)x->n + 1 > slots(x) / 8 * 7 && !grow(x))
        return false;
    put(x, (struct hindex_slot){hash, number});
    x->n++;
    return true;
}
