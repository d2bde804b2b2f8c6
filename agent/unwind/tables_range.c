// SPDX-License-Identifier: Apache-2.0
#include <stdlib.h>
#include <string.h>

#include "agent/unwind/tables_private.h"
#include "base/arena.h"

void ranges_init(struct ranges *r, uint32_t n)
{
    *r = (struct ranges){.cap = 64, .n_free = 1};
    r->free = xcalloc(r->cap, sizeof *r->free);
    r->free[0] = (struct range){1, n - 1};
}

void ranges_deinit(struct ranges *r)
{
    free(r->free);
    *r = (struct ranges){};
}

uint32_t ranges_take(struct ranges *r, uint32_t n)
{
    for (uint32_t i = 0; i < r->n_free; i++) {
        struct range *f = &r->free[i];
        uint32_t at = f->at;

        if (f->n < n)
            continue;
        f->at += n;
        f->n -= n;
        if (!f->n)
            memmove(f, f + 1, (--r->n_free - i) * sizeof *f);
        r->used += n;
        return at;
    }
    return 0;
}

void ranges_give(struct ranges *r, uint32_t at, uint32_t n)
{
    uint32_t i = 0;
    bool left, right;

    while (i < r->n_free && r->free[i].at < at)
        i++;
    left = i && r->free[i - 1].at + r->free[i - 1].n == at;
    right = i < r->n_free && at + n == r->free[i].at;
    r->used -= n;
    if (left) {
        r->free[i - 1].n += n + (right ? r->free[i].n : 0);
        if (right)
            memmove(&r->free[i], &r->free[i + 1], (--r->n_free - i) * sizeof *r->free);
        return;
    }
    if (right) {
        r->free[i].at = at;
        r->free[i].n += n;
        return;
    }
    if (r->n_free == r->cap) {
        r->cap *= 2;
        r->free = xrealloc(r->free, r->cap * sizeof *r->free);
    }
    memmove(&r->free[i + 1], &r->free[i], (r->n_free++ - i) * sizeof *r->free);
    r->free[i] = (struct range){at, n};
}
