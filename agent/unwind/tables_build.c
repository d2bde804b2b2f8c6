// SPDX-License-Identifier: Apache-2.0
/*
 * The building thread: a binary's .eh_frame to rows in chunks. Rules are interned (16-bit numbers);
 * rows are grouped by 64 KiB page of the ELF address space, the first of a page carries the rule in
 * force before it, and a page never straddles a chunk.
 *
 * Only this thread writes rows and rules. A chunk belongs to the tables that have rows in it; a
 * large table has its chunks for itself. When all chunks of the budget are used the thread waits:
 * the main thread evicts tables and gives their chunks back once no program can read them.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "agent/apart/reader.h"
#include "agent/unwind/tables_private.h"
#include "base/arena.h"
#include "base/hash.h"
#include "base/time.h"

enum {
    QUEUE_MAX = 1024,
    GROW = 4, /* new chunks at once: an insert waits for RCU, a batch waits once */
    RULE_HASH = 1 << 17,
    MAX_PAGES = 1 << 15, /* of one file, 2 GiB: no file may take the whole page index */
};

struct job {
    struct table *table;
    struct binary *bin;
    bool urgent; /* a sample waits for it: before those that are only likely to be needed */
};

struct builder {
    struct tables_io io;
    uint32_t max_chunks;
    pthread_t thread;
    struct mutex mu; /* guards what follows, down to the line */
    struct cond wake;
    struct job queue[QUEUE_MAX]; /* oldest first */
    uint32_t n_queue;
    bool busy, stop, deny, no_growth;
    struct built *done;
    uint32_t n_done, cap_done;
    struct chunk {
        struct sa_row *row;
        uint32_t users;
    } chunk[SA_MAX_CHUNKS];
    uint32_t n_chunk; /* made */
    uint32_t wants;
    uint64_t build_ns;
    uint32_t n_rule;
    /* ---- the thread's own ---- */
    struct place {
        uint32_t chunk, fill; /* rows used in it */
        bool have;
    } shared; /* where the next small table goes */
    uint32_t rule_hash[RULE_HASH];
};

/* ---- rules ---------------------------------------------------------------------------------- */

/* Number of an equal rule; 0 (invalid) when all numbers are used. */
static uint16_t intern(struct builder *b, const struct sa_rule *r)
{
    uint32_t h = (uint32_t)hash_bytes(r, sizeof *r) % RULE_HASH;

    while (b->rule_hash[h] && memcmp(&b->io.rules[b->rule_hash[h]], r, sizeof *r) != 0)
        h = (h + 1) % RULE_HASH;
    if (!b->rule_hash[h]) {
        static const struct sa_rule invalid;

        if (memcmp(r, &invalid, sizeof *r) == 0 || b->n_rule + 1 >= b->io.n_rules)
            return 0;
        mutex_lock(&b->mu);
        b->n_rule++;
        mutex_unlock(&b->mu);
        b->io.rules[b->n_rule] = *r;
        b->rule_hash[h] = b->n_rule;
    }
    return (uint16_t)b->rule_hash[h];
}

/* ---- chunks --------------------------------------------------------------------------------- */

static bool find_free_locked(struct builder *b, uint32_t *ret) REQUIRES(&b->mu)
{
    for (uint32_t i = 0; i < b->n_chunk; i++) {
        if (b->chunk[i].users)
            continue;
        *ret = i;
        return true;
    }
    return false;
}

/* A chunk without users, made or waited for. */
static enum ehtab_fail chunk_get(struct builder *b, uint32_t *ret)
{
    struct sa_row *row[GROW];
    enum ehtab_fail why = EHTAB_OK;

    mutex_lock(&b->mu);
    while (!find_free_locked(b, ret)) {
        uint32_t n = b->no_growth ? 0 : b->max_chunks - b->n_chunk, first = b->n_chunk;

        if (b->stop || b->deny) {
            why = EHTAB_BUDGET;
            break;
        }
        if (!n) {
            b->wants = 1;
            cond_wait(&b->wake, &b->mu);
            b->wants = 0;
            continue;
        }
        n = n < GROW ? n : GROW;
        mutex_unlock(&b->mu);
        if (b->io.chunk_new(b->io.ctx, first, n, row) < 0)
            n = 0;
        mutex_lock(&b->mu);
        for (uint32_t i = 0; i < n; i++)
            b->chunk[b->n_chunk++] = (struct chunk){.row = row[i]};
        if (!n)
            b->max_chunks = b->n_chunk; /* no more memory for maps: live with what there is */
    }
    if (!why)
        b->chunk[*ret].users = 1;
    mutex_unlock(&b->mu);
    return why;
}

/* d holds this chunk from now on; false: it did already. */
static bool hold(struct built *d, uint32_t chunk)
{
    for (uint32_t i = 0; i < d->n_chunk; i++)
        if (d->chunk[i] == chunk)
            return false;
    d->chunk = xrealloc(d->chunk, (d->n_chunk + 1) * sizeof *d->chunk);
    d->chunk[d->n_chunk++] = chunk;
    return true;
}

static void share(struct builder *b, uint32_t chunk)
{
    mutex_lock(&b->mu);
    b->chunk[chunk].users++;
    mutex_unlock(&b->mu);
}

/* n rows of one page. own: the large table's position; NULL: a small one, in the shared chunk,
 * which this thread holds as well, so that it is not given to another while it fills. */
static enum ehtab_fail rows_get(struct builder *b, struct built *d, struct place *own, uint32_t n,
                                uint32_t *ret)
{
    struct place *p = own ? own : &b->shared;

    if (!p->have || p->fill + n > SA_CHUNK_ROWS) {
        uint32_t c;
        enum ehtab_fail why;

        if (!own && p->have)
            (void)builder_unuse(b, &p->chunk, 1);
        p->have = false;
        why = chunk_get(b, &c);
        if (why)
            return why;
        *p = (struct place){.chunk = c, .have = true};
    }
    if (hold(d, p->chunk) && !own)
        share(b, p->chunk);
    *ret = p->chunk << 16 | p->fill;
    p->fill += n;
    return EHTAB_OK;
}

/* ---- one table ------------------------------------------------------------------------------ */

/* Behind the last row of page pg, which begins at i. */
static size_t page_end(const struct ehtab *t, size_t i, uint64_t pg)
{
    while (i < t->n && t->row[i].pc >> 16 == pg)
        i++;
    return i;
}

static void fill_page(struct builder *b, struct sa_row *to, const struct ehtab *t, size_t i,
                      size_t end, const struct sa_rule *carry)
{
    *to++ = (struct sa_row){0, intern(b, carry)};
    for (; i < end; i++)
        *to++ = (struct sa_row){(uint16_t)t->row[i].pc, intern(b, &t->row[i].rule)};
}

static enum ehtab_fail encode(struct builder *b, const struct ehtab *t, struct built *d)
{
    struct sa_rule carry = {.kind = SA_K_NOINFO};
    uint64_t first = t->row[0].pc >> 16, last = t->row[t->n - 1].pc >> 16;
    bool large = t->n >= SA_CHUNK_ROWS;
    struct place own = {};
    size_t i = 0;

    if (last - first >= MAX_PAGES || last - first >= b->io.n_pgidx || first > UINT32_MAX)
        return EHTAB_BUDGET;
    if (t->n / SA_CHUNK_ROWS >= b->max_chunks)
        return EHTAB_BUDGET;
    d->first_page = (uint32_t)first;
    d->n_pages = (uint32_t)(last - first) + 1;
    d->pg = xcalloc(d->n_pages, sizeof *d->pg);
    for (uint32_t p = 0; p < d->n_pages; p++) {
        size_t end = page_end(t, i, first + p);
        uint32_t n = (uint32_t)(end - i) + 1, row;
        static const struct sa_rule invalid;
        enum ehtab_fail why;

        if (n > SA_PAGE_ROWS) { /* denser than the search can reach */
            carry = invalid;
            n = 1;
        }
        why = rows_get(b, d, large ? &own : NULL, n, &row);
        if (why)
            return why;
        fill_page(b, b->chunk[row >> 16].row + (row & 0xffff), t, i, n == 1 ? i : end, &carry);
        d->pg[p] = (struct sa_pg){row, n};
        if (end > i)
            carry = t->row[end - 1].rule;
        i = end;
    }
    return EHTAB_OK;
}

static void make(struct builder *b, const struct job *j, struct built *d)
{
    struct ehtab t;

    *d = (struct built){.table = j->table};
    d->why = reader_table(j->bin, &t);
    if (d->why)
        return;
    d->why = encode(b, &t, d);
    ehtab_deinit(&t);
    if (!d->why)
        return;
    (void)builder_unuse(b, d->chunk, d->n_chunk);
    free(d->chunk);
    free(d->pg);
    *d = (struct built){.table = j->table, .why = d->why};
}

static void done_locked(struct builder *b, const struct built *d) REQUIRES(&b->mu)
{
    if (b->n_done == b->cap_done) {
        b->cap_done = b->cap_done ? b->cap_done * 2 : 16;
        b->done = xrealloc(b->done, b->cap_done * sizeof *b->done);
    }
    b->done[b->n_done++] = *d;
}

static bool before(const struct job *a, const struct job *b)
{
    return a->urgent != b->urgent ? a->urgent : a->bin->size < b->bin->size;
}

/* Urgent ones first, then the smallest: most stacks need a small table beside a large one. */
static struct job next_locked(struct builder *b) REQUIRES(&b->mu)
{
    uint32_t best = 0;
    struct job j;

    for (uint32_t i = 1; i < b->n_queue; i++)
        if (before(&b->queue[i], &b->queue[best]))
            best = i;
    j = b->queue[best];
    memmove(&b->queue[best], &b->queue[best + 1], (--b->n_queue - best) * sizeof *b->queue);
    return j;
}

static void *build_thread(void *arg)
{
    struct builder *b = arg;

    mutex_lock(&b->mu);
    while (!b->stop) {
        struct job j;
        struct built d;
        mono_ns t0;

        if (!b->n_queue) {
            cond_wait(&b->wake, &b->mu);
            continue;
        }
        j = next_locked(b);
        b->busy = true;
        b->deny = false;
        mutex_unlock(&b->mu);
        t0 = mono_now();
        make(b, &j, &d);
        (void)binary_unref(j.bin);
        mutex_lock(&b->mu);
        b->build_ns += (uint64_t)(mono_now().v - t0.v);
        b->busy = false;
        done_locked(b, &d);
    }
    mutex_unlock(&b->mu);
    return NULL;
}

/* ---- the main thread's side ----------------------------------------------------------------- */

bool builder_put(struct builder *b, struct table *t, struct binary *bin, bool urgent)
{
    bool room;

    mutex_lock(&b->mu);
    room = b->n_queue < QUEUE_MAX;
    if (room) {
        b->queue[b->n_queue++] = (struct job){t, binary_ref(bin), urgent};
        cond_signal(&b->wake);
    }
    mutex_unlock(&b->mu);
    return room;
}

void builder_hurry(struct builder *b, const struct table *t)
{
    mutex_lock(&b->mu);
    for (uint32_t i = 0; i < b->n_queue; i++)
        if (b->queue[i].table == t)
            b->queue[i].urgent = true;
    mutex_unlock(&b->mu);
}

bool builder_take(struct builder *b, struct built *ret)
{
    bool have;

    mutex_lock(&b->mu);
    have = b->n_done > 0;
    if (have)
        *ret = b->done[--b->n_done];
    mutex_unlock(&b->mu);
    return have;
}

uint32_t builder_wants(struct builder *b)
{
    uint32_t n;

    mutex_lock(&b->mu);
    n = b->wants;
    mutex_unlock(&b->mu);
    return n;
}

void builder_deny(struct builder *b)
{
    mutex_lock(&b->mu);
    b->deny = true;
    cond_signal(&b->wake);
    mutex_unlock(&b->mu);
}

uint32_t builder_unuse(struct builder *b, const uint32_t *chunk, uint32_t n)
{
    uint32_t freed = 0;

    mutex_lock(&b->mu);
    for (uint32_t i = 0; i < n; i++)
        freed += --b->chunk[chunk[i]].users == 0;
    if (freed)
        cond_signal(&b->wake);
    mutex_unlock(&b->mu);
    return freed;
}

uint32_t builder_users(struct builder *b, uint32_t chunk)
{
    uint32_t n;

    mutex_lock(&b->mu);
    n = b->chunk[chunk].users;
    mutex_unlock(&b->mu);
    return n;
}

void builder_grow(struct builder *b, bool may)
{
    mutex_lock(&b->mu);
    b->no_growth = !may;
    cond_broadcast(&b->wake);
    mutex_unlock(&b->mu);
}

uint32_t builder_pending(struct builder *b)
{
    uint32_t n;

    mutex_lock(&b->mu);
    n = b->n_queue + b->busy + b->n_done;
    mutex_unlock(&b->mu);
    return n;
}

void builder_stats(struct builder *b, struct tables_stats *ret)
{
    mutex_lock(&b->mu);
    ret->bytes = (uint64_t)b->n_chunk * SA_CHUNK_ROWS * sizeof(struct sa_row);
    ret->build_ns = b->build_ns;
    ret->rules = b->n_rule;
    mutex_unlock(&b->mu);
}

int builder_open(struct builder **ret, const struct tables_io *io, uint32_t max_chunks,
                 struct err *err)
{
    struct builder *b = xcalloc(1, sizeof *b);
    int r;

    b->io = *io;
    b->max_chunks = max_chunks;
    mutex_init(&b->mu);
    cond_init(&b->wake);
    r = thread_start(&b->thread, "strata-tables", 0, build_thread, b);
    if (r < 0) {
        cond_deinit(&b->wake);
        mutex_deinit(&b->mu);
        free(b);
        return err_set(err, r, "thread of the unwind tables: %s", strerrordesc_np(-r));
    }
    *ret = b;
    return 0;
}

struct builder *builder_close(struct builder *b)
{
    struct built d;

    if (!b)
        return NULL;
    mutex_lock(&b->mu);
    b->stop = true;
    cond_signal(&b->wake);
    mutex_unlock(&b->mu);
    (void)pthread_join(b->thread, NULL);
    for (uint32_t i = 0; i < b->n_queue; i++)
        (void)binary_unref(b->queue[i].bin);
    while (builder_take(b, &d)) {
        free(d.pg);
        free(d.chunk);
    }
    free(b->done);
    cond_deinit(&b->wake);
    mutex_deinit(&b->mu);
    free(b);
    return NULL;
}
