// SPDX-License-Identifier: Apache-2.0
#include "agent/spool.h"

#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/thread.h"
#include "base/time.h"

#define MAX_DROPPED 64 /* entries to tell; beyond it the last one grows */

struct item {
    struct spool_batch b; /* first */
    struct item *next;
    struct batchmake_dropped *told;
    uint32_t n_told;
};

struct spool {
    struct mutex mu;
    struct cond changed;
    struct item *oldest, *newest;
    struct item *in_flight; /* stays: it may be stored already */
    int64_t max_age;
    bool hurry;
    struct spool_stats stats;
    struct batchmake_dropped dropped[MAX_DROPPED];
    uint32_t n_dropped;
};

const char *spool_drop_name(enum spool_drop d)
{
    static const char *const name[SPOOL_DROP_N] = {
        [SPOOL_DROP_FULL] = "spool_full",       [SPOOL_DROP_AGE] = "too_old",
        [SPOOL_DROP_BAD] = "bad_request",       [SPOOL_DROP_TOO_LARGE] = "too_large",
        [SPOOL_DROP_CONFLICT] = "seq_conflict", [SPOOL_DROP_SEQ_OLD] = "seq_too_old",
        [SPOOL_DROP_INTERNAL] = "internal"};

    return name[d];
}

struct spool *spool_new(uint64_t cap, int64_t max_age)
{
    struct spool *s = xcalloc(1, sizeof *s);

    mutex_init(&s->mu);
    cond_init(&s->changed);
    s->stats.cap = cap;
    s->max_age = max_age;
    return s;
}

static void item_free(struct item *i)
{
    free((void *)(uintptr_t)i->b.body.p); // NOLINT(performance-no-int-to-ptr): sheds const
    free(i->told);
    free(i);
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
    cond_deinit(&s->changed);
    mutex_deinit(&s->mu);
    free(s);
    return NULL;
}

/* Into the list that the next batch tells; neighbours become one entry. */
static void tell_locked(struct spool *s, const struct batchmake_dropped *n) REQUIRES(&s->mu)
{
    struct batchmake_dropped *d = s->n_dropped ? &s->dropped[s->n_dropped - 1] : NULL;

    if (!d || (s->n_dropped < MAX_DROPPED &&
               (d->why != n->why || d->last + 1 != n->first || d->first > d->last ||
                d->width != n->width || d->covers.t1.v != n->covers.t0.v))) {
        s->dropped[s->n_dropped++] = *n;
        return;
    }
    if (n->first <= n->last)
        d->last = n->last > d->last ? n->last : d->last;
    if (n->covers.t0.v < d->covers.t0.v)
        d->covers.t0 = n->covers.t0;
    if (n->covers.t1.v > d->covers.t1.v)
        d->covers.t1 = n->covers.t1;
    d->n += n->n;
    d->weight += n->weight;
}

/* What i held, and what it would have told. */
static void remember_locked(struct spool *s, const struct item *i, enum spool_drop why)
    REQUIRES(&s->mu)
{
    bool by_us = why == SPOOL_DROP_FULL || why == SPOOL_DROP_AGE;
    const struct batchmake_info *f = &i->b.info;
    const struct batchmake_dropped own = {.why = by_us ? LOSS_SPOOL_DROP : LOSS_SEND_REJECTED,
                                          .first = i->b.seq,
                                          .last = i->b.seq,
                                          .covers = f->covers,
                                          .n = f->n,
                                          .weight = f->weight,
                                          .width = f->width};

    s->stats.dropped[why]++;
    for (uint32_t k = 0; k < i->n_told; k++)
        tell_locked(s, &i->told[k]);
    tell_locked(s, &own);
}

static void remove_locked(struct spool *s, struct item *i) REQUIRES(&s->mu)
{
    struct item **at = &s->oldest, *before = NULL;

    while (*at != i) {
        before = *at;
        at = &before->next;
    }
    *at = i->next;
    if (s->newest == i)
        s->newest = before;
    s->stats.spooled--;
    s->stats.bytes -= i->b.body.n;
    if (s->in_flight == i)
        s->in_flight = NULL;
    item_free(i);
}

/* The oldest that nobody is sending. */
static struct item *victim_locked(struct spool *s) REQUIRES(&s->mu)
{
    return s->oldest && s->oldest == s->in_flight ? s->oldest->next : s->oldest;
}

static void drop_old_locked(struct spool *s, int64_t now) REQUIRES(&s->mu)
{
    for (;;) {
        struct item *i = victim_locked(s);

        if (!i || now - i->b.made <= s->max_age)
            return;
        remember_locked(s, i, SPOOL_DROP_AGE);
        remove_locked(s, i);
    }
}

void spool_put(struct spool *s, const struct spool_new_batch *n)
{
    struct item *i = xcalloc(1, sizeof *i);
    char *copy = xmalloc(n->body.n ? n->body.n : 1);

    if (n->body.n)
        memcpy(copy, n->body.p, n->body.n);
    i->b = (struct spool_batch){.seq = n->seq,
                                .body = {copy, n->body.n},
                                .info = *n->info,
                                .made = mono_now().v,
                                .not_before = n->not_before};
    i->n_told = n->n_told;
    i->told = xcalloc(n->n_told ? n->n_told : 1, sizeof *i->told);
    if (n->n_told)
        memcpy(i->told, n->told, n->n_told * sizeof *i->told);
    mutex_lock(&s->mu);
    s->stats.produced++;
    if (s->newest)
        s->newest->next = i;
    else
        s->oldest = i;
    s->newest = i;
    s->stats.spooled++;
    s->stats.bytes += n->body.n;
    drop_old_locked(s, i->b.made);
    /* the newest stays, were it alone larger than the cap: it tells of the others */
    while (s->stats.bytes > s->stats.cap && s->stats.spooled > 1) {
        struct item *v = victim_locked(s);

        if (!v || v == s->newest)
            break;
        remember_locked(s, v, SPOOL_DROP_FULL);
        remove_locked(s, v);
    }
    cond_broadcast(&s->changed);
    mutex_unlock(&s->mu);
}

const struct spool_batch *spool_front(struct spool *s, int64_t wait_ns)
{
    int64_t end = mono_now().v + wait_ns;
    const struct spool_batch *ret = NULL;

    mutex_lock(&s->mu);
    assert(!s->in_flight);
    for (;;) {
        int64_t now = mono_now().v, until = end;

        drop_old_locked(s, now);
        if (s->oldest && (s->hurry || s->oldest->b.not_before <= now)) {
            s->in_flight = s->oldest;
            s->in_flight->b.tries++;
            ret = &s->in_flight->b;
            break;
        }
        if (s->oldest && s->oldest->b.not_before < until)
            until = s->oldest->b.not_before;
        if (now >= end || s->hurry)
            break;
        (void)cond_wait_for(&s->changed, &s->mu, until - now);
    }
    mutex_unlock(&s->mu);
    return ret;
}

void spool_done(struct spool *s, const struct spool_batch *b, bool duplicate)
{
    mutex_lock(&s->mu);
    assert(s->in_flight && b == &s->in_flight->b);
    s->stats.sent++;
    s->stats.duplicate += duplicate;
    remove_locked(s, s->in_flight);
    mutex_unlock(&s->mu);
}

void spool_drop(struct spool *s, const struct spool_batch *b, enum spool_drop why)
{
    mutex_lock(&s->mu);
    assert(s->in_flight && b == &s->in_flight->b);
    remember_locked(s, s->in_flight, why);
    remove_locked(s, s->in_flight);
    mutex_unlock(&s->mu);
}

void spool_retry(struct spool *s, const struct spool_batch *b, int64_t not_before)
{
    mutex_lock(&s->mu);
    assert(s->in_flight && b == &s->in_flight->b);
    s->in_flight->b.not_before = not_before;
    s->in_flight = NULL;
    s->stats.retries++;
    mutex_unlock(&s->mu);
}

uint32_t spool_take_dropped(struct spool *s, struct batchmake_dropped *ret, uint32_t max)
{
    uint32_t n;

    mutex_lock(&s->mu);
    n = s->n_dropped < max ? s->n_dropped : max;
    memcpy(ret, s->dropped, n * sizeof *ret);
    s->n_dropped -= n;
    memmove(s->dropped, s->dropped + n, s->n_dropped * sizeof *ret);
    mutex_unlock(&s->mu);
    return n;
}

void spool_hurry(struct spool *s)
{
    mutex_lock(&s->mu);
    s->hurry = true;
    cond_broadcast(&s->changed);
    mutex_unlock(&s->mu);
}

void spool_get_stats(struct spool *s, struct spool_stats *ret)
{
    mutex_lock(&s->mu);
    *ret = s->stats;
    mutex_unlock(&s->mu);
}
