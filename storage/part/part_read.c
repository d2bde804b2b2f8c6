// SPDX-License-Identifier: Apache-2.0
/*
 * Reading parts. A struct part is what a list of sources holds: counted, its metadata read once.
 * Handles are connections; each is used by one thread at a time, then waits in a list for the next.
 * At most `max` are open; the longest unused ones are closed first. No lock is held across SQLite
 * or file I/O but part->mu, which is that of the first reader of the metadata.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "base/arena.h"
#include "storage/part/part_reader_private.h"

#define HANDLES     128u  /* where descriptors are few */
#define HANDLES_MAX 1024u /* a week of hours for two workers is 336: each trie goes through all */
#define DESCRIPTORS 32u   /* kept for all else */
#define MMAP_MAX    (INT64_C(1) << 30)

/* ---- parts and their list ------------------------------------------------------------------ */

static uint32_t handles_max(void)
{
    struct rlimit l;

    if (getrlimit(RLIMIT_NOFILE, &l) != 0)
        return HANDLES;
    if (l.rlim_cur / 8 >= HANDLES)
        return l.rlim_cur / 8 < HANDLES_MAX ? (uint32_t)(l.rlim_cur / 8) : HANDLES_MAX;
    if (l.rlim_cur >= UINT64_C(2) * (HANDLES + DESCRIPTORS))
        return HANDLES;
    return l.rlim_cur > UINT64_C(2) * DESCRIPTORS ? (uint32_t)(l.rlim_cur - DESCRIPTORS) / 2
                                                  : DESCRIPTORS / 2;
}

struct parts *parts_new(const char *dir, const char *vfs, uint32_t max, bool mmap)
{
    struct parts *p = mem_fail_now() ? NULL : calloc(1, sizeof *p);

    if (!p)
        return NULL;
    p->dir = strdup(dir);
    p->vfs = vfs ? strdup(vfs) : NULL;
    p->max = max ? max : handles_max();
    p->mmap = mmap ? MMAP_MAX : 0;
    p->limits = (struct names_snap){UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX};
    mutex_init(&p->mu);
    if (!p->dir || (vfs && !p->vfs))
        return parts_free(p);
    return p;
}

struct parts *parts_free(struct parts *p)
{
    if (!p)
        return NULL;
    assert(p->n_open == 0);
    mutex_deinit(&p->mu);
    free(p->with);
    free(p->dir);
    free(p->vfs);
    free(p);
    return NULL;
}

void parts_know(struct parts *p, const struct names_snap *limits)
{
    mutex_lock(&p->mu);
    p->limits = *limits;
    mutex_unlock(&p->mu);
}

struct part *part_new(struct parts *parts, const struct part_info *info)
{
    struct part *p = mem_fail_now() ? NULL : calloc(1, sizeof *p);

    if (!p)
        return NULL;
    p->info = *info;
    p->parts = parts;
    atomic_store(&p->refs, 1);
    mutex_init(&p->mu);
    return p;
}

struct part *part_ref(struct part *p)
{
    (void)atomic_fetch_add(&p->refs, 1);
    return p;
}

void part_set_gone(struct part *p)
{
    atomic_store(&p->gone, true);
}

/* ---- handles ------------------------------------------------------------------------------- */

static void unlink_lru(struct parts *ps, struct part_handle *h) REQUIRES(&ps->mu)
{
    if (h->newer)
        h->newer->older = h->older;
    else
        ps->newest = h->older;
    if (h->older)
        h->older->newer = h->newer;
    else
        ps->oldest = h->newer;
    h->newer = h->older = NULL;
}

static struct part_handle *close_handle(struct part_handle *h)
{
    if (!h)
        return NULL;
    (void)sqlite3_finalize(h->summary);
    (void)sqlite3_finalize(h->cols);
    (void)sqlite3_finalize(h->hsum);
    db_close(&h->db);
    free(h);
    return NULL;
}

/* The longest unused one, out of both lists; NULL: all are in use. */
static struct part_handle *take_oldest(struct parts *ps) REQUIRES(&ps->mu)
{
    struct part_handle *h = ps->oldest, **at;

    if (!h)
        return NULL;
    unlink_lru(ps, h);
    for (at = &h->part->idle; *at != h; at = &(*at)->sibling)
        ;
    *at = h->sibling;
    h->sibling = NULL;
    ps->n_open--;
    return h;
}

static int open_handle(struct part *p, struct part_handle *h, struct err *err)
{
    const struct parts *ps = p->parts;

    h->part = p;
    TRY(db_open_read(ps->dir, p->info.name, &part_kind, DB_AT_REST, ps->mmap, ps->vfs, &h->db,
                     err));
    if (memcmp(h->db.uuid, p->info.uuid, sizeof h->db.uuid) != 0)
        return db_damaged(&h->db, err, "is another file than the catalog says");
    /* all reads are one transaction: nobody writes the file, and half of a short read was beginning
     * and ending one of its own */
    TRY(db_exec(&h->db, "BEGIN", err));
    TRY(db_prepare(&h->db, "SELECT id, data, sum FROM summary WHERE id = ?1", &h->summary, err));
    TRY(db_prepare(&h->db, "SELECT id, data, sum FROM cols WHERE id = ?1", &h->cols, err));
    return db_prepare(&h->db,
                      "SELECT type, svc, sub, span, t0, n, data, sum FROM hsum WHERE type = ?1 AND "
                      "svc = ?2 AND sub = ?3 AND span = ?4 AND t0 = ?5",
                      &h->hsum, err);
}

static bool out_of_descriptors(int r)
{
    return r == -EMFILE || r == -ENFILE;
}

/* Close idle handles until at most `most` are open. */
static void evict(struct parts *ps, uint32_t most)
{
    for (;;) {
        struct part_handle *h = NULL;

        mutex_lock(&ps->mu);
        if (ps->n_open > most)
            h = take_oldest(ps);
        mutex_unlock(&ps->mu);
        if (!h)
            return;
        (void)close_handle(h);
    }
}

static int new_handle(struct part *p, struct part_handle **ret, struct err *err)
{
    struct parts *ps = p->parts;
    struct part_handle *h;
    struct err why = {};
    int r;

    for (int attempt = 0;; attempt++) {
        h = mem_fail_now() ? NULL : calloc(1, sizeof *h);
        if (!h)
            return err_set(err, -ENOMEM, "%s: memory is short", p->info.name);
        why = (struct err){};
        r = open_handle(p, h, &why);
        if (r == 0)
            break;
        (void)close_handle(h);
        if (!out_of_descriptors(r) || attempt > 0)
            return err_set(err, r, "%s", why.msg);
        evict(ps, 0);
    }
    *ret = h;
    return 0;
}

int part_enter(struct part *p, struct part_handle **ret, struct err *err)
{
    struct parts *ps = p->parts;
    struct part_handle *h;
    int r;

    mutex_lock(&ps->mu);
    h = p->idle;
    if (h) {
        p->idle = h->sibling;
        h->sibling = NULL;
        unlink_lru(ps, h);
    } else {
        ps->n_open++;
    }
    mutex_unlock(&ps->mu);
    if (!h) {
        evict(ps, ps->max);
        r = new_handle(p, &h, err);
        if (r != 0) {
            mutex_lock(&ps->mu);
            ps->n_open--;
            mutex_unlock(&ps->mu);
            return r;
        }
    }
    *ret = h;
    return 0;
}

static void reset(sqlite3_stmt *st)
{
    (void)sqlite3_reset(st);
}

void part_leave(struct part_handle *h)
{
    struct part *p = h->part;
    struct parts *ps = p->parts;

    reset(h->summary);
    reset(h->cols);
    reset(h->hsum);
    mutex_lock(&ps->mu);
    h->sibling = p->idle;
    p->idle = h;
    h->older = ps->newest;
    if (ps->newest)
        ps->newest->newer = h;
    else
        ps->oldest = h;
    ps->newest = h;
    mutex_unlock(&ps->mu);
    evict(ps, ps->max);
}

/* ---- the last reader ----------------------------------------------------------------------- */

static struct part_beside *free_beside(struct part_beside *b)
{
    if (!b)
        return NULL;
    local_deinit(&b->local);
    pool_deinit(&b->pool);
    free(b);
    return NULL;
}

/* p->mu is held, or p is the caller's alone. */
static void drop_beside(struct part *p)
{
    struct parts *ps = p->parts;

    if (!p->beside)
        return;
    atomic_fetch_sub(&ps->local_bytes, p->beside->bytes);
    p->beside = free_beside(p->beside);
    mutex_lock(&ps->mu);
    for (uint32_t i = 0; i < ps->n_with; i++)
        if (ps->with[i] == p) {
            ps->with[i] = ps->with[--ps->n_with];
            break;
        }
    mutex_unlock(&ps->mu);
}

struct part *part_unref(struct part *p)
{
    struct parts *ps;

    if (!p || atomic_fetch_sub(&p->refs, 1) > 1)
        return NULL;
    ps = p->parts;
    for (;;) {
        struct part_handle *h;

        mutex_lock(&ps->mu);
        h = p->idle;
        if (h) {
            p->idle = h->sibling;
            unlink_lru(ps, h);
            ps->n_open--;
        }
        mutex_unlock(&ps->mu);
        if (!h)
            break;
        (void)close_handle(h);
    }
    drop_beside(p);
    if (atomic_load(&p->gone)) { /* closed first: an open file keeps its space */
        db_remove(ps->dir, p->info.name);
        (void)db_sync_dir(ps->dir, p->info.name, NULL); /* one that comes back is an orphan */
    }
    mutex_deinit(&p->mu);
    free(p->block);
    free(p->hsum);
    free(p);
    return NULL;
}

/* ---- blobs --------------------------------------------------------------------------------- */

static int take_blob(struct part_handle *h, enum db_table table, sqlite3_stmt *st,
                     const int64_t *key, size_t n_key, size_t n, struct str *ret, struct err *err)
{
    int64_t v[8];
    bool bound = sqlite3_reset(st) == SQLITE_OK;
    int r;

    for (size_t i = 0; i < n_key; i++)
        bound = bound && sqlite3_bind_int64(st, (int)i + 1, key[i]) == SQLITE_OK;
    r = bound ? db_step(&h->db, st, err) : db_fail(&h->db, "read", err);
    if (r == 0)
        r = db_damaged(&h->db, err, "table %d: row %" PRId64 " is gone", (int)table, key[0]);
    else if (r == 1)
        r = db_take(&h->db, table, st, v, n, ret, 1, err);
    if (r == 0 && memcmp(v, key, n_key * sizeof *v) != 0)
        r = db_damaged(&h->db, err, "table %d: another row than %" PRId64, (int)table, key[0]);
    if (r == -EBADMSG)
        atomic_fetch_add(&h->part->bad, 1);
    return r;
}

int part_summary(struct part_handle *h, uint32_t block, struct str *ret, struct err *err)
{
    return take_blob(h, DB_SUMMARY, h->summary, (int64_t[]){block}, 1, 1, ret, err);
}

int part_cols(struct part_handle *h, uint32_t block, struct str *ret, struct err *err)
{
    return take_blob(h, DB_COLS, h->cols, (int64_t[]){block}, 1, 1, ret, err);
}

int part_hsum(struct part_handle *h, const struct part_hsum *key, struct str *ret, struct err *err)
{
    return take_blob(h, DB_HSUM, h->hsum,
                     (int64_t[]){key->type, key->svc, key->sub, key->span, key->t0.v}, 5, 6, ret,
                     err);
}

/* ---- local tables -------------------------------------------------------------------------- */

/* cpu columns are below it. */
static int read_cpus(const struct db *db, struct local *l, struct err *err)
{
    int64_t n = 0;
    int has;

    TRY_OUTCOME(has, db_meta_get(db, "cpus", &n, err));
    if (!has || n < 1 || n > LOCAL_CPUS)
        return db_damaged(db, err, "meta: cpus %" PRId64, n);
    l->cpu = (uint32_t)n;
    return 0;
}

static int decode_beside(struct part *p, struct part_beside **ret, struct err *err)
{
    struct part_beside *b = mem_fail_now() ? NULL : calloc(1, sizeof *b);
    struct part_handle *h;
    struct names_snap limits;
    int r;

    if (!b)
        return err_set(err, -ENOMEM, "%s: memory is short", p->info.name);
    r = part_enter(p, &h, err);
    if (r != 0) {
        free(b);
        return r;
    }
    mutex_lock(&p->parts->mu);
    limits = p->parts->limits;
    mutex_unlock(&p->parts->mu);
    pool_init(&b->pool);
    r = local_init(&b->local, &b->pool, 0)
            ? local_read(&h->db, &limits, &b->local, err)
            : err_set(err, -ENOMEM, "%s: memory is short", p->info.name);
    if (r == 0)
        r = read_cpus(&h->db, &b->local, err);
    part_leave(h);
    if (r == -EBADMSG)
        atomic_fetch_add(&p->bad, 1);
    if (r != 0) {
        (void)free_beside(b);
        return r;
    }
    b->snap = local_snap(&b->local);
    b->bytes = atomic_load(&b->pool.used) + sizeof *b;
    *ret = b;
    return 0;
}

static bool remember(struct parts *ps, struct part *p)
{
    bool ok = true;

    mutex_lock(&ps->mu);
    if (ps->n_with == ps->room_with) {
        uint32_t room = ps->room_with ? 2 * ps->room_with : 16;
        struct part **v = realloc(ps->with, room * sizeof(struct part *));

        ok = v != NULL;
        if (v) {
            ps->with = v;
            ps->room_with = room;
        }
    }
    if (ok)
        ps->with[ps->n_with++] = p;
    mutex_unlock(&ps->mu);
    return ok;
}

/* p->mu is held. */
static int make_beside(struct part *p, struct err *err)
{
    struct part_beside *b = NULL;

    TRY(decode_beside(p, &b, err));
    assert(b);
    if (!remember(p->parts, p)) {
        (void)free_beside(b);
        return err_set(err, -ENOMEM, "%s: memory is short", p->info.name);
    }
    p->beside = b;
    atomic_fetch_add(&p->parts->local_bytes, b->bytes);
    return 0;
}

int part_local(struct part *p, const struct local **ret, struct local_snap *ret_snap,
               struct err *err)
{
    struct parts *ps = p->parts;
    int r;

    mutex_lock(&p->mu);
    r = p->beside ? 0 : make_beside(p, err);
    if (r == 0) {
        atomic_store(&p->beside_used, atomic_fetch_add(&ps->clock, 1) + 1);
        *ret = &p->beside->local;
        *ret_snap = p->beside->snap;
    }
    mutex_unlock(&p->mu);
    return r;
}

uint64_t parts_local_bytes(const struct parts *p)
{
    return atomic_load(&p->local_bytes);
}

/* The longest unused one that only the list of sources holds, with a reference; NULL: none. */
static struct part *idle_beside(struct parts *ps)
{
    struct part *found = NULL;

    mutex_lock(&ps->mu);
    for (uint32_t i = 0; i < ps->n_with; i++) {
        struct part *p = ps->with[i];

        if (atomic_load(&p->refs) == 1 &&
            (!found || atomic_load(&p->beside_used) < atomic_load(&found->beside_used)))
            found = p;
    }
    if (found) {
        uint32_t one = 1;

        if (!atomic_compare_exchange_strong(&found->refs, &one, 2))
            found = NULL;
    }
    mutex_unlock(&ps->mu);
    return found;
}

void parts_trim(struct parts *ps, uint64_t max)
{
    while (atomic_load(&ps->local_bytes) > max) {
        struct part *p = idle_beside(ps);
        bool ours;

        if (!p)
            return;
        mutex_lock(&p->mu);
        ours = atomic_load(&p->refs) == 2; /* who comes later finds nothing decoded */
        if (ours)
            drop_beside(p);
        mutex_unlock(&p->mu);
        (void)part_unref(p);
        if (!ours)
            return;
    }
}
