// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/*
 * A pool of memory that is only a number: raised before the allocation it stands for, lowered after
 * the free. What does not fit is refused by whoever wanted it. Bytes. Any thread.
 */
struct pool {
    _Atomic uint64_t used;
    uint64_t max;
};

static inline bool pool_take(struct pool *p, uint64_t n)
{
    uint64_t old = atomic_load_explicit(&p->used, memory_order_relaxed);

    do {
        if (n > p->max || old > p->max - n)
            return false;
    } while (!atomic_compare_exchange_weak_explicit(&p->used, &old, old + n, memory_order_relaxed,
                                                    memory_order_relaxed));
    return true;
}

static inline void pool_give(struct pool *p, uint64_t n)
{
    atomic_fetch_sub_explicit(&p->used, n, memory_order_relaxed);
}

static inline uint64_t pool_used(const struct pool *p)
{
    return atomic_load_explicit(&p->used, memory_order_relaxed);
}
