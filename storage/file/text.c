// SPDX-License-Identifier: Apache-2.0
#include <string.h>

#include "base/hash.h"
#include "storage/file/text_private.h"

bool texts_init(struct texts *x, struct pool *p, uint64_t seed)
{
    *x = (struct texts){.pool = p, .seed = seed};
    return table_init(&x->t, p, sizeof(struct text));
}

void texts_deinit(struct texts *x)
{
    if (x->pool)
        table_deinit(&x->t, x->pool);
}

static bool eq_text(const void *entry, const void *key)
{
    const struct text *a = entry;
    const struct str *s = key;

    return str_eq(a->s, *s);
}

uint32_t text_id(struct texts *x, struct str s)
{
    uint64_t h;
    uint32_t i;
    char *copy;

    if (s.n == 0)
        return 0;
    h = hash_seed(s.p, s.n, x->seed);
    i = table_find(&x->t, h, &s, eq_text);
    if (i)
        return i;
    copy = pool_fixed(x->pool, s.n + 1);
    if (!copy)
        return UINT32_MAX;
    memcpy(copy, s.p, s.n);
    i = table_add(&x->t, x->pool, h);
    if (!i)
        return UINT32_MAX;
    TABLE(&x->t, struct text, i)->s = (struct str){copy, s.n};
    return i;
}
