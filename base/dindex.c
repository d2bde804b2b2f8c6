// SPDX-License-Identifier: Apache-2.0
#include "base/dindex.h"

#include <assert.h>
#include <stdlib.h>

#include "base/arena.h"

#define SLOTS_MIN 16u
#define LARGE     (UINT32_C(1) << 16) /* slots: from here on a table grows by half */
#define SLOTS_MAX (UINT32_C(1) << 31)

void dindex_init(struct dindex *x)
{
    *x = (struct dindex){};
}

void dindex_deinit(struct dindex *x)
{
    free(x->slot);
    dindex_init(x);
}

size_t dindex_bytes(const struct dindex *x)
{
    return (size_t)x->slots * sizeof *x->slot;
}

static void put(struct dindex *x, uint32_t hash, uint32_t number)
{
    uint32_t i = dindex_place(x, hash);

    while (x->slot[i] != 0)
        i = i + 1 < x->slots ? i + 1 : 0;
    x->slot[i] = hash << x->bits | number;
}

/* So many slots, for numbers of so many bits. */
static bool rebuild(struct dindex *x, uint32_t slots, uint32_t bits, dindex_hash_fn *hash_of,
                    const void *ctx)
{
    struct dindex new = {.n = x->n, .slots = slots, .bits = bits};

    new.slot = mem_fail_now() ? NULL : calloc(slots, sizeof *new.slot);
    if (!new.slot)
        return false;
    for (uint32_t i = 0; i < x->slots; i++) {
        uint32_t number = x->slot[i] & ((UINT32_C(1) << x->bits) - 1);

        if (number != 0)
            put(&new, hash_of(ctx, number), number);
    }
    free(x->slot);
    *x = new;
    return true;
}

bool dindex_add(struct dindex *x, uint32_t hash, uint32_t number, dindex_hash_fn *hash_of,
                const void *ctx)
{
    uint32_t slots = x->slots, bits = x->bits ? x->bits : 4;

    assert(number != 0 && number < UINT32_C(1) << 31);
    if ((uint64_t)x->n + 1 > slots / 8 * UINT64_C(7)) {
        if (slots > SLOTS_MAX / 2)
            return false;
        slots = slots < SLOTS_MIN ? SLOTS_MIN : slots < LARGE ? 2 * slots : slots + slots / 2;
    }
    while (number >> bits != 0 || slots / 8 * UINT64_C(7) >> bits != 0)
        bits++;
    if ((slots != x->slots || number >> x->bits != 0) && !rebuild(x, slots, bits, hash_of, ctx))
        return false;
    put(x, hash, number);
    x->n++;
    return true;
}
