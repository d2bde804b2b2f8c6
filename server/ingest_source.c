// SPDX-License-Identifier: Apache-2.0
#include "server/ingest_source.h"

#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/hash.h"
#include "base/map.h"
#include "base/thread.h"

struct entry {
    uint8_t agent[16];
    const char *type;
    uint64_t batch; /* that spoke last */
    bool ok;
};

struct source_table {
    struct mutex mu;
    struct map index; /* hash of agent and type -> position + 1 */
    uint64_t batches;
    uint32_t n;
    struct entry entry[INGEST_SOURCES];
};

struct source_table *source_table_new(void)
{
    struct source_table *t = xcalloc(1, sizeof *t);

    mutex_init(&t->mu);
    map_init(&t->index, INGEST_SOURCES);
    return t;
}

struct source_table *source_table_free(struct source_table *t)
{
    if (!t)
        return NULL;
    map_deinit(&t->index);
    mutex_deinit(&t->mu);
    free(t);
    return NULL;
}

static void set_locked(struct source_table *t, const uint8_t agent[16], const char *type, bool ok)
    REQUIRES(&t->mu)
{
    struct entry *e;
    uint64_t *at;

    if (map_at(&t->index, hash_seed(agent, 16, hash_str(str_c(type))), &at) == MAP_FULL)
        return;
    if (!*at) {
        *at = ++t->n;
        e = &t->entry[*at - 1];
        memcpy(e->agent, agent, sizeof e->agent);
        e->type = type;
    }
    e = &t->entry[*at - 1];
    e->ok = ok && (e->batch != t->batches || e->ok);
    e->batch = t->batches;
}

void source_table_set(struct source_table *t, const struct batch *b)
{
    mutex_lock(&t->mu);
    t->batches++;
    for (uint32_t i = 0; i < b->n_stream; i++) {
        const struct ptype *type = ptype_builtin(b->stream[i].type);

        set_locked(t, b->id.agent, type ? type->name : "imported", b->stream[i].state == SOURCE_OK);
    }
    mutex_unlock(&t->mu);
}

void source_table_each(struct source_table *t, source_table_fn *fn, void *ctx)
{
    mutex_lock(&t->mu);
    for (uint32_t i = 0; i < t->n; i++)
        fn(ctx, t->entry[i].agent, t->entry[i].type, t->entry[i].ok);
    mutex_unlock(&t->mu);
}
