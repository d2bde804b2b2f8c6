// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/str.h"
#include "storage/file/pool_private.h"

/*
 * Texts, each once, by number. 0 is the empty text. One table per lifetime: struct names, struct
 * dict and struct local have one each, and their numbers mean nothing to each other. Writer: the
 * owner's thread. Readers: numbers below a length that was published behind them.
 */
struct text {
    struct str s;
};

struct texts {
    struct pool *pool;
    uint64_t seed;
    struct table t;
};

[[nodiscard]] bool texts_init(struct texts *x, struct pool *p, uint64_t seed);
void texts_deinit(struct texts *x);

/* Number of s, added if it is new; the bytes are copied. UINT32_MAX when memory is short. */
uint32_t text_id(struct texts *x, struct str s);

static inline struct str text_of(const struct texts *x, uint32_t i)
{
    return TABLE(&x->t, struct text, i)->s;
}

static inline uint32_t texts_n(const struct texts *x)
{
    return x->t.v.n;
}
