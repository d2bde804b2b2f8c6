// SPDX-License-Identifier: Apache-2.0
/*
 * What was given up is told exactly once, also over a kill. The order: the file `untold` names it
 * before its batch is removed; the batch that tells of it is written before `untold` forgets it,
 * and can be sent only then. Killed in between, the next run finds an entry in both and drops it
 * from `untold`.
 */
#include "agent/send/spool.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/send/spool_disk.h"
#include "agent/source/clock.h"
#include "base/arena.h"
#include "base/log.h"
#include "base/thread.h"

#define MAX_DROPPED 96 /* entries to tell; beyond it some become one */
#define MAX_TAKEN   (MAX_DROPPED / 2)
#define MEMORY_CAP  (UINT64_C(32) << 20)
#define BAD_SHARE   8 /* of the cap, for damaged files */

struct item {
    struct spool_batch b; /* first */
    struct item *next;
    struct spool_disk_head head; /* lost: what is to be told if it is given up */
    char *body;                  /* NULL: on disk */
    bool in_flight;              /* stays: it may be stored already */
};

/* What is to be told: no two entries are neighbours, but for those that are fixed. */
struct telling {
    struct batchmake_dropped v[MAX_DROPPED];
    uint32_t n, fixed; /* [0, fixed): in the batch being made */
};

struct spool {
    struct spool_disk *disk; /* NULL: none */
    struct mutex mu;
    struct cond changed;
    struct item *oldest, *newest;
    uint8_t boot[16];
    int64_t max_age;
    bool hurry;
    struct spool_stats stats;
    struct telling told;
};

const char *spool_drop_name(enum spool_drop d)
{
    static const char *const name[SPOOL_DROP_N] = {
        [SPOOL_DROP_FULL] = "spool_full",       [SPOOL_DROP_AGE] = "too_old",
        [SPOOL_DROP_BAD] = "bad_request",       [SPOOL_DROP_TOO_LARGE] = "too_large",
        [SPOOL_DROP_CONFLICT] = "seq_conflict", [SPOOL_DROP_SEQ_OLD] = "seq_too_old",
        [SPOOL_DROP_INTERNAL] = "internal",     [SPOOL_DROP_DAMAGED] = "damaged"};

    return name[d];
}

static void item_free(struct item *i)
{
    free(i->body);
    free(i->head.lost);
    free(i);
}

/* ---- what is to be told -------------------------------------------------------------------- */

static bool has_seq(const struct batchmake_dropped *d)
{
    return d->first <= d->last;
}

/* May n become a part of d, which is before it? */
static bool neighbours(const struct batchmake_dropped *d, const struct batchmake_dropped *n)
{
    return d->type == n->type && d->why == n->why && d->width == n->width &&
           d->covers.t1.v == n->covers.t0.v && has_seq(d) == has_seq(n) &&
           (!has_seq(d) || d->last + 1 == n->first);
}

/* n becomes the sum of both. */
static void join(struct batchmake_dropped *n, const struct batchmake_dropped *d)
{
    if (has_seq(n) && has_seq(d)) {
        n->first = d->first < n->first ? d->first : n->first;
        n->last = d->last > n->last ? d->last : n->last;
    }
    batchmake_add(n, d);
}

static void take_entry(struct telling *t, uint32_t i)
{
    memmove(&t->v[i], &t->v[i + 1], (--t->n - i) * sizeof *t->v);
}

/* Of d's type and reason, the last one in [fixed, before); before: there is none. */
static uint32_t like(const struct telling *t, const struct batchmake_dropped *d, uint32_t before)
{
    for (uint32_t i = before; i-- > t->fixed;)
        if (t->v[i].type == d->type && t->v[i].why == d->why)
            return i;
    return before;
}

/* For want of room two of one type and reason become one: the gap between them is then called lost
 * too, and no number is, for those of the gap may yet arrive. Count and weight stay exact. With n
 * there is a pair: types and reasons are far fewer than there is room for. */
static void merge(struct telling *t, struct batchmake_dropped *n)
{
    uint32_t i = like(t, n, t->n), at = t->n;

    if (i < t->n) {
        join(n, &t->v[i]);
        n->first = 1;
        n->last = 0;
        take_entry(t, i);
        return;
    }
    while (i == at) {
        assert(at > t->fixed);
        at--;
        i = like(t, &t->v[at], at);
    }
    join(&t->v[i], &t->v[at]);
    t->v[i].first = 1;
    t->v[i].last = 0;
    take_entry(t, at);
}

static void tell(struct telling *t, const struct batchmake_dropped *told)
{
    struct batchmake_dropped n = *told;
    uint32_t i = t->fixed;

    while (i < t->n) {
        if (!neighbours(&t->v[i], &n) && !neighbours(&n, &t->v[i])) {
            i++;
            continue;
        }
        join(&n, &t->v[i]);
        take_entry(t, i);
        i = t->fixed; /* it may have become another one's neighbour */
    }
    if (t->n == MAX_DROPPED)
        merge(t, &n);
    t->v[t->n++] = n;
}

/* What batches in memory (all but one that goes now) tell of is as untold as what none carries:
 * with us they are gone. */
static void save_untold_locked(struct spool *s, const struct item *but) REQUIRES(&s->mu)
{
    struct telling all = s->told;
    struct err err = {};

    if (!s->disk)
        return;
    for (const struct item *i = s->oldest; i; i = i->next) {
        for (uint32_t k = i->head.n_own; i != but && i->body && k < i->head.n_lost; k++)
            tell(&all, &i->head.lost[k]);
    }
    if (spool_disk_write_untold(s->disk, all.v, all.n, &err) < 0)
        log_event(LOG_WARN, "spool_untold", LOG_ERR(&err));
}

/* What i held, and what it would have told. */
static void remember_locked(struct spool *s, const struct item *i, enum spool_drop why)
    REQUIRES(&s->mu)
{
    bool by_us = why == SPOOL_DROP_FULL || why == SPOOL_DROP_AGE || why == SPOOL_DROP_DAMAGED;
    bool ours = memcmp(i->b.boot, s->boot, 16) == 0;

    s->stats.dropped[why]++;
    for (uint32_t k = 0; k < i->head.n_lost; k++) {
        uint32_t at = k + i->head.n_own; /* the others first: they are older */
        bool own = at >= i->head.n_lost;
        struct batchmake_dropped d = i->head.lost[own ? at - i->head.n_lost : at];

        if (own)
            d.why = by_us ? LOSS_SPOOL_DROP : LOSS_SEND_REJECTED;
        if (!ours) { /* numbers of another run mean nothing in a batch of this one */
            d.first = 1;
            d.last = 0;
        }
        tell(&s->told, &d);
    }
    save_untold_locked(s, i);
}

/* ---- the list ------------------------------------------------------------------------------ */

/* Out of the list; its file stays. */
static void take_out_locked(struct spool *s, struct item *i) REQUIRES(&s->mu)
{
    struct item **at = &s->oldest, *before = NULL;

    while (*at != i) {
        assert(*at); /* it is in the list */
        before = *at;
        at = &before->next;
    }
    *at = i->next;
    if (s->newest == i)
        s->newest = before;
    s->stats.spooled--;
    s->stats.in_flight -= i->in_flight;
    s->stats.bytes -= i->head.file_bytes;
    if (i->body) {
        s->stats.memory_batches--;
        s->stats.memory_bytes -= i->head.file_bytes;
    }
}

static void remove_locked(struct spool *s, struct item *i) REQUIRES(&s->mu)
{
    take_out_locked(s, i);
    if (!i->body)
        spool_disk_remove(s->disk, &i->head);
    item_free(i);
}

static void append_locked(struct spool *s, struct item *i) REQUIRES(&s->mu)
{
    if (s->newest)
        s->newest->next = i;
    else
        s->oldest = i;
    s->newest = i;
    s->stats.spooled++;
    s->stats.bytes += i->head.file_bytes;
    if (i->body) {
        s->stats.memory_batches++;
        s->stats.memory_bytes += i->head.file_bytes;
    }
}

/* The oldest that nobody is sending, of those in memory or of all. */
static struct item *victim_locked(struct spool *s, bool in_memory) REQUIRES(&s->mu)
{
    struct item *i = s->oldest;

    while (i && (i->in_flight || (in_memory && !i->body)))
        i = i->next;
    return i;
}

static void drop_old_locked(struct spool *s, int64_t now) REQUIRES(&s->mu)
{
    for (;;) {
        struct item *i = victim_locked(s, false);

        if (!i || now - i->b.made <= s->max_age)
            return;
        remember_locked(s, i, SPOOL_DROP_AGE);
        remove_locked(s, i);
    }
}

static uint64_t disk_bytes_locked(const struct spool *s) REQUIRES(&s->mu)
{
    return s->stats.bytes - s->stats.memory_bytes + (s->disk ? spool_disk_bad_bytes(s->disk) : 0);
}

/* Down to the caps. The newest stays, were it alone larger than the cap: it tells of the others. */
static void shrink_locked(struct spool *s) REQUIRES(&s->mu)
{
    for (;;) {
        uint64_t disk = disk_bytes_locked(s);
        bool memory = s->stats.memory_bytes > s->stats.memory_cap;
        struct item *i = memory || disk > s->stats.cap ? victim_locked(s, memory) : NULL;

        if (!i || i == s->newest)
            return;
        remember_locked(s, i, SPOOL_DROP_FULL);
        remove_locked(s, i);
    }
}

/* ---- what older runs left ------------------------------------------------------------------ */

struct found {
    struct spool *s;
    struct item **v;
    size_t n, room;
};

static void on_found(void *ctx, struct spool_disk_head *head, bool whole) NO_ANALYSIS
{
    struct found *f = ctx;
    struct item *i = xcalloc(1, sizeof *i);
    int64_t age = clock_real().v - head->made.v;

    i->head = *head;
    memcpy(i->b.boot, head->boot, 16);
    i->b.seq = head->seq;
    i->b.bytes = head->body_bytes;
    i->b.made = clock_mono().v - (age > 0 ? age : 0);
    if (head->n_own)
        i->b.covers = head->lost[0].covers;
    f->s->stats.inherited++;
    if (!whole) { /* set aside already */
        remember_locked(f->s, i, SPOOL_DROP_DAMAGED);
        item_free(i);
        return;
    }
    if (f->n == f->room) {
        f->room = f->room ? 2 * f->room : 64;
        f->v = xrealloc(f->v, f->room * sizeof(struct item *));
    }
    f->v[f->n++] = i;
}

/* By run, then by number: each run's batches get the time of its first one as their own in turn. */
static int by_boot(const void *a, const void *b)
{
    const struct item *x = *(struct item *const *)a, *y = *(struct item *const *)b;
    int r = memcmp(x->b.boot, y->b.boot, 16);

    return r ? r : (x->b.seq > y->b.seq) - (x->b.seq < y->b.seq);
}

static int by_begin(const void *a, const void *b)
{
    const struct item *x = *(struct item *const *)a, *y = *(struct item *const *)b;

    if (x->b.not_before != y->b.not_before) /* when its run began, for now */
        return x->b.not_before < y->b.not_before ? -1 : 1;
    return by_boot(a, b);
}

/* An entry that a batch carries already: the run was killed between the two writes. */
static void forget_told_locked(struct spool *s, const struct item *i) REQUIRES(&s->mu)
{
    for (uint32_t k = i->head.n_own; k < i->head.n_lost; k++) {
        const struct batchmake_dropped *t = &i->head.lost[k];

        for (uint32_t j = 0; j < s->told.n; j++) {
            const struct batchmake_dropped *d = &s->told.v[j];

            if (d->type != t->type || d->why != t->why || d->first != t->first ||
                d->last != t->last || d->covers.t0.v != t->covers.t0.v ||
                d->covers.t1.v != t->covers.t1.v || d->n != t->n || d->weight != t->weight)
                continue;
            take_entry(&s->told, j);
            break;
        }
    }
}

static void load_locked(struct spool *s) REQUIRES(&s->mu)
{
    struct spool_disk_found counts;
    struct found f = {.s = s};
    struct err err = {};
    int r = spool_disk_read_untold(s->disk, s->told.v, MAX_DROPPED, &s->told.n, &err);

    if (r < 0 && r != -ENOENT)
        log_event(LOG_WARN, "spool_untold", LOG_ERR(&err));
    spool_disk_scan(s->disk, on_found, &f, &counts);
    s->stats.damaged = counts.damaged;
    s->stats.foreign = counts.foreign;
    s->stats.unreadable = counts.unreadable;
    if (f.n)
        qsort(f.v, f.n, sizeof(struct item *), by_boot);
    for (size_t i = 0; i < f.n; i++) {
        bool first = i == 0 || memcmp(f.v[i]->b.boot, f.v[i - 1]->b.boot, 16) != 0;

        f.v[i]->b.not_before = first ? f.v[i]->b.made : f.v[i - 1]->b.not_before;
    }
    if (f.n)
        qsort(f.v, f.n, sizeof(struct item *), by_begin);
    for (size_t i = 0; i < f.n; i++) {
        const struct interval c = f.v[i]->b.covers;

        f.v[i]->b.not_before = 0;
        forget_told_locked(s, f.v[i]);
        if (i == 0 || c.t0.v < s->stats.inherited_t.t0.v)
            s->stats.inherited_t.t0 = c.t0;
        if (i == 0 || c.t1.v > s->stats.inherited_t.t1.v)
            s->stats.inherited_t.t1 = c.t1;
        append_locked(s, f.v[i]);
    }
    for (uint32_t i = 0; i < s->told.n; i++) { /* numbers of an older run */
        s->told.v[i].first = 1;
        s->told.v[i].last = 0;
    }
    save_untold_locked(s, NULL);
    drop_old_locked(s, clock_mono().v);
    shrink_locked(s);
    free(f.v);
}

struct spool *spool_new(const struct spool_conf *c)
{
    struct spool *s = xcalloc(1, sizeof *s);
    struct err err = {};

    mutex_init(&s->mu);
    cond_init(&s->changed);
    memcpy(s->boot, c->boot, 16);
    s->max_age = c->max_age;
    s->stats.cap = c->cap;
    s->stats.memory_cap = c->memory_cap ? c->memory_cap : MEMORY_CAP;
    (void)snprintf(s->stats.state, sizeof s->stats.state, "%s",
                   c->no_dir   ? c->no_dir
                   : c->dir[0] ? "ok"
                               : "in memory only");
    mutex_lock(&s->mu);
    if (c->dir[0] && spool_disk_open(&s->disk, c->dir, c->cap / BAD_SHARE, &err) < 0) {
        (void)snprintf(s->stats.state, sizeof s->stats.state, "%.150s", err.msg);
        log_event(LOG_WARN, "spool_in_memory", LOG_ERR(&err));
    }
    if (s->disk)
        load_locked(s);
    else if (s->stats.cap < s->stats.memory_cap)
        s->stats.memory_cap = s->stats.cap;
    mutex_unlock(&s->mu);
    return s;
}

struct spool *spool_free(struct spool *s)
{
    if (!s)
        return NULL;
    while (s->oldest) {
        struct item *i = s->oldest;

        s->oldest = i->next;
        item_free(i);
    }
    spool_disk_close(s->disk);
    cond_deinit(&s->changed);
    mutex_deinit(&s->mu);
    free(s);
    return NULL;
}

/* ---- put ----------------------------------------------------------------------------------- */

static struct item *item_of(const struct spool *s, const struct spool_new_batch *n)
{
    struct item *i = xcalloc(1, sizeof *i);
    const struct batchmake_info *f = n->info;
    uint32_t n_own = f->held.n ? f->held.n : 1;

    i->b = (struct spool_batch){.seq = n->seq,
                                .bytes = n->body.n,
                                .covers = f->covers,
                                .made = clock_mono().v,
                                .not_before = n->not_before};
    memcpy(i->b.boot, s->boot, 16);
    i->head = (struct spool_disk_head){.seq = n->seq,
                                       .content = f->content,
                                       .made = clock_real(),
                                       .rows = f->rows,
                                       .n_own = n_own,
                                       .n_lost = n_own + n->n_told,
                                       .body_bytes = n->body.n,
                                       .file_bytes = n->body.n};
    memcpy(i->head.boot, s->boot, 16);
    i->head.lost = xcalloc(i->head.n_lost, sizeof *i->head.lost);
    i->head.lost[0] = (struct batchmake_dropped){.type = PTYPE_CPU, .why = LOSS_SPOOL_DROP};
    memcpy(i->head.lost, f->held.v, f->held.n * sizeof *f->held.v);
    i->head.lost[0].first = i->head.lost[0].last = n->seq; /* told once, with the first type */
    if (n->n_told)
        memcpy(i->head.lost + n_own, n->told, n->n_told * sizeof *n->told);
    return i;
}

static void keep_in_memory(struct item *i, struct str body)
{
    i->body = xmalloc(body.n ? body.n : 1);
    if (body.n)
        memcpy(i->body, body.p, body.n);
    i->head.file_bytes = body.n;
}

/* Said when it begins and when it is over. */
static void say_locked(struct spool *s, const struct err *err) REQUIRES(&s->mu)
{
    bool was_ok = strcmp(s->stats.state, "ok") == 0;

    s->stats.write_failed += err != NULL;
    if (err && was_ok)
        log_event(LOG_WARN, "spool_in_memory", LOG_ERR(err));
    if (!err && !was_ok)
        log_event(LOG_INFO, "spool_on_disk", LOG_U("in_memory", s->stats.memory_batches));
    (void)snprintf(s->stats.state, sizeof s->stats.state, "%.159s", err ? err->msg : "ok");
}

void spool_put(struct spool *s, const struct spool_new_batch *n)
{
    struct item *i = item_of(s, n);
    struct err err = {};
    int r = 0;

    if (s->disk)
        r = spool_disk_write(s->disk, &i->head, n->body, &err);
    if (!s->disk || r < 0)
        keep_in_memory(i, n->body);
    mutex_lock(&s->mu);
    if (s->disk)
        say_locked(s, r < 0 ? &err : NULL);
    s->stats.produced++;
    if (i->b.covers.t1.v > s->stats.covered_to.v)
        s->stats.covered_to = i->b.covers.t1;
    append_locked(s, i);
    if (s->told.fixed) { /* it tells of them */
        s->told.n -= s->told.fixed;
        memmove(s->told.v, s->told.v + s->told.fixed, s->told.n * sizeof *s->told.v);
        s->told.fixed = 0;
        save_untold_locked(s, NULL);
    }
    drop_old_locked(s, i->b.made);
    shrink_locked(s);
    cond_broadcast(&s->changed);
    mutex_unlock(&s->mu);
}

/* ---- the sender's side --------------------------------------------------------------------- */

const struct spool_batch *spool_front(struct spool *s, int64_t wait_ns)
{
    int64_t end = clock_mono().v + wait_ns;
    const struct spool_batch *ret = NULL;

    mutex_lock(&s->mu);
    for (;;) {
        int64_t now = clock_mono().v, until = end;
        struct item *i;

        drop_old_locked(s, now);
        i = victim_locked(s, false);
        if (i && (s->hurry || i->b.not_before <= now)) {
            i->in_flight = true;
            s->stats.in_flight++;
            i->b.tries++;
            ret = &i->b;
            break;
        }
        if (i && i->b.not_before < until)
            until = i->b.not_before;
        if (now >= end || s->hurry)
            break;
        (void)cond_wait_for(&s->changed, &s->mu, until - now);
    }
    mutex_unlock(&s->mu);
    return ret;
}

static struct item *item_in_flight(struct spool *s, const struct spool_batch *b)
{
    struct item *i = (struct item *)(uintptr_t)b; // NOLINT(performance-no-int-to-ptr): first member

    (void)s;
    assert(i->in_flight);
    return i;
}

int spool_read(struct spool *s, const struct spool_batch *b, struct buf *out, struct err *err)
{
    struct item *i = item_in_flight(s, b); /* nobody else touches it meanwhile */

    if (!i->body) {
        int r = spool_disk_read(s->disk, &i->head, out, err);

        i->b.unread += r < 0;
        return r;
    }
    buf_add(out, i->body, i->b.bytes);
    return out->failed ? err_set(err, -E2BIG, "spool: a batch of %llu bytes",
                                 (unsigned long long)i->b.bytes)
                       : 0;
}

void spool_done(struct spool *s, const struct spool_batch *b, bool duplicate)
{
    struct item *i = item_in_flight(s, b);

    mutex_lock(&s->mu);
    bool told = i->body && i->head.n_lost > i->head.n_own;

    s->stats.sent++;
    s->stats.duplicate += duplicate;
    remove_locked(s, i);
    if (told)
        save_untold_locked(s, NULL); /* what it told of is told now */
    mutex_unlock(&s->mu);
}

void spool_drop(struct spool *s, const struct spool_batch *b, enum spool_drop why)
{
    struct item *i = item_in_flight(s, b);

    mutex_lock(&s->mu);
    remember_locked(s, i, why);
    if (why == SPOOL_DROP_DAMAGED && !i->body) {
        s->stats.damaged++;
        spool_disk_set_aside(s->disk, &i->head);
    }
    remove_locked(s, i);
    mutex_unlock(&s->mu);
}

void spool_retry(struct spool *s, const struct spool_batch *b, int64_t not_before, bool whole)
{
    struct item *i = item_in_flight(s, b);

    mutex_lock(&s->mu);
    i->b.not_before = not_before;
    i->b.whole = whole;
    i->in_flight = false;
    s->stats.in_flight--;
    s->stats.retries++;
    mutex_unlock(&s->mu);
}

uint32_t spool_take_dropped(struct spool *s, struct batchmake_dropped *ret, uint32_t max)
{
    uint32_t n;

    mutex_lock(&s->mu);
    max = max < MAX_TAKEN ? max : MAX_TAKEN; /* there must be room for what comes meanwhile */
    n = s->told.n < max ? s->told.n : max;
    memcpy(ret, s->told.v, n * sizeof *ret);
    s->told.fixed = n;
    mutex_unlock(&s->mu);
    return n;
}

/* ---- state --------------------------------------------------------------------------------- */

unsigned spool_level(struct spool *s)
{
    uint64_t disk, memory;

    mutex_lock(&s->mu);
    memory = s->stats.memory_bytes * 100 / (s->stats.memory_cap ? s->stats.memory_cap : 1);
    disk = disk_bytes_locked(s) * 100 / (s->stats.cap ? s->stats.cap : 1);
    mutex_unlock(&s->mu);
    disk = memory > disk ? memory : disk;
    return disk > 100 ? 100 : (unsigned)disk;
}

void spool_wake(struct spool *s, bool hurry)
{
    mutex_lock(&s->mu);
    s->hurry |= hurry;
    cond_broadcast(&s->changed);
    mutex_unlock(&s->mu);
}

void spool_wait(struct spool *s, int64_t wait_ns)
{
    mutex_lock(&s->mu);
    (void)cond_wait_for(&s->changed, &s->mu, wait_ns);
    mutex_unlock(&s->mu);
}

void spool_get_stats(struct spool *s, struct spool_stats *ret)
{
    mutex_lock(&s->mu);
    *ret = s->stats;
    ret->untold = s->told.n;
    mutex_unlock(&s->mu);
}
