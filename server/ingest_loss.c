// SPDX-License-Identifier: Apache-2.0
#include "server/ingest_loss.h"

#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/hash.h"
#include "base/loss.h"
#include "base/map.h"
#include "base/thread.h"

struct entry {
    uint8_t agent[16];
    const char *type;
    char reason[33];
    uint64_t n;
};

struct loss_table {
    struct mutex mu;
    struct map index; /* hash of the three -> position + 1 */
    uint32_t n;
    uint64_t other;
    struct entry entry[INGEST_LOSSES];
};

struct loss_table *loss_table_new(void)
{
    struct loss_table *t = xcalloc(1, sizeof *t);

    mutex_init(&t->mu);
    map_init(&t->index, INGEST_LOSSES);
    return t;
}

struct loss_table *loss_table_free(struct loss_table *t)
{
    if (!t)
        return NULL;
    map_deinit(&t->index);
    mutex_deinit(&t->mu);
    free(t);
    return NULL;
}

static void add_locked(struct loss_table *t, const uint8_t agent[16], const char *type,
                       struct str reason, uint64_t n) REQUIRES(&t->mu)
{
    uint64_t key = hash_seed(reason.p, reason.n, hash_seed(agent, 16, hash_str(str_c(type))));
    struct entry *e;
    uint64_t *at;

    if (!loss_name_ok(reason) || map_at(&t->index, key, &at) == MAP_FULL) {
        t->other += n;
        return;
    }
    if (!*at) {
        e = &t->entry[t->n++];
        *at = t->n;
        memcpy(e->agent, agent, sizeof e->agent);
        memcpy(e->reason, reason.p, reason.n);
        e->type = type;
    }
    t->entry[*at - 1].n += n;
}

void loss_table_add(struct loss_table *t, const struct batch *b)
{
    mutex_lock(&t->mu);
    for (uint32_t i = 0; i < b->n_stream; i++) {
        const struct batch_stream *st = &b->stream[i];
        const struct ptype *type = ptype_builtin(st->type);

        for (uint32_t k = 0; k < st->n_lost; k++)
            if (st->lost[k].n != BATCH_UNKNOWN && st->lost[k].n)
                add_locked(t, b->id.agent, type ? type->name : "imported", b->str[st->lost[k].why],
                           st->lost[k].n);
    }
    mutex_unlock(&t->mu);
}

void loss_table_each(struct loss_table *t, loss_table_fn *fn, void *ctx)
{
    mutex_lock(&t->mu);
    for (uint32_t i = 0; i < t->n; i++)
        fn(ctx, t->entry[i].agent, t->entry[i].type, t->entry[i].reason, t->entry[i].n);
    if (t->other)
        fn(ctx, NULL, "", "other", t->other);
    mutex_unlock(&t->mu);
}
