// SPDX-License-Identifier: Apache-2.0
/*
 * When parts are merged. Each seal leaves a small part per hour that it had rows of, so:
 *   - as soon as COMPACT_FAN parts of one hour are of about one size (a factor of eight) they
 * become one. A minute of data is thus written again at most once per factor of eight, and an hour
 *     that is still open has some fifteen parts, not sixty;
 *   - when an hour has been over for COMPACT_AFTER and nothing came late for COMPACT_QUIET, all its
 *     parts become one.
 * Data that come later make small parts again, and after the same quiet time one part again. A part
 * in which something damaged was read stays as it is, and the others of its hour are merged.
 *
 * One thread: it holds references to its inputs, not a view, and reads and writes files that nobody
 * else writes. Only the swap runs in the writer thread.
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/statvfs.h>

#include "base/log.h"
#include "storage/keep/compact_private.h"
#include "storage/keep/seal_private.h"

#define COMPACT_FAN    8u
#define COMPACT_AFTER  (INT64_C(20) * 60 * NS_PER_S)
#define COMPACT_QUIET  (INT64_C(15) * 60 * NS_PER_S)
#define COMPACT_LOOK   (10 * NS_PER_S)
#define COMPACT_PARTS  256u /* of one job: what is more waits for the next */
#define COMPACT_SIZE_0 (UINT64_C(64) << 10)

/* An hour that has several parts: when the newest of them was first seen. */
struct hour {
    real_ns t0;
    uint32_t epoch;
    uint64_t newest;
    real_ns since;
    bool failed; /* its parts cannot be merged as they are: not before there is another. Where one
                    was found damaged the next look leaves that one out */
};

struct compactor {
    struct store *s;
    pthread_t thread;
    struct mutex mu;
    struct cond wake;
    bool stop_asked;
    atomic_bool stop;
    struct hour *hour; /* of the thread, or of compact_all() before it runs */
    uint32_t n_hour, room;
};

/* The parts of a view, one reference each, by (tier, hour, epoch, size). */
struct part_list {
    uint32_t n;
    struct part **v;
};

static int by_hour(const void *a, const void *b)
{
    const struct part_info *x = &(*(struct part *const *)a)->info,
                           *y = &(*(struct part *const *)b)->info;

    if (x->tier != y->tier)
        return x->tier < y->tier ? -1 : 1;
    if (x->period.t0.v != y->period.t0.v)
        return x->period.t0.v < y->period.t0.v ? -1 : 1;
    if (x->epoch != y->epoch)
        return x->epoch < y->epoch ? -1 : 1;
    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? -1 : 1;
    return (x->id > y->id) - (x->id < y->id);
}

static bool same_hour(const struct part *a, const struct part *b)
{
    return a->info.tier == b->info.tier && a->info.epoch == b->info.epoch &&
           a->info.period.t0.v == b->info.period.t0.v;
}

static void list_free(struct part_list *l)
{
    for (uint32_t i = 0; i < l->n; i++)
        (void)part_unref(l->v[i]);
    free(l->v);
}

/* Damage was read in it: it may be on its way to quarantine. */
static bool is_bad(struct part *p)
{
    return atomic_load(&p->bad) > 0 || atomic_load(&p->loaded) == 2;
}

static bool some_bad(struct part *const *v, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        if (is_bad(v[i]))
            return true;
    }
    return false;
}

static bool list_parts(struct store *s, struct part_list *ret)
{
    struct source_list *list = source_list_get(s);
    struct part **v = calloc(list->n ? list->n : 1, sizeof(struct part *));
    uint32_t n = 0;

    for (uint32_t i = 0; v && i < list->n; i++) {
        struct part *p = list->item[i].part;

        if (p && p->info.tier == STORE_RAW && !is_bad(p))
            v[n++] = part_ref(p);
    }
    source_list_unref(list);
    if (n > 1)
        qsort(v, n, sizeof *v, by_hour); // NOLINT(bugprone-sizeof-expression)
    *ret = (struct part_list){n, v};
    return v != NULL;
}

/* ---- what is due --------------------------------------------------------------------------- */

static struct hour *hour_of(struct compactor *c, const struct part_info *p)
{
    struct hour *h;

    for (uint32_t i = 0; i < c->n_hour; i++) {
        h = &c->hour[i];
        if (h->t0.v == p->period.t0.v && h->epoch == p->epoch)
            return h;
    }
    if (c->n_hour == c->room) {
        uint32_t room = c->room ? 2 * c->room : 32;

        h = realloc(c->hour, room * sizeof *h);
        if (!h)
            return NULL;
        c->hour = h;
        c->room = room;
    }
    h = &c->hour[c->n_hour++];
    *h = (struct hour){.t0 = p->period.t0, .epoch = p->epoch};
    return h;
}

/* Hours that have one part, or none, are not remembered. */
static void forget(struct compactor *c, const struct part_list *l)
{
    uint32_t kept = 0;

    for (uint32_t i = 0; i < c->n_hour; i++) {
        uint32_t n = 0;

        for (uint32_t k = 0; k < l->n; k++)
            n += l->v[k]->info.period.t0.v == c->hour[i].t0.v &&
                 l->v[k]->info.epoch == c->hour[i].epoch;
        if (n > 1)
            c->hour[kept++] = c->hour[i];
    }
    c->n_hour = kept;
}

static uint32_t size_class(uint64_t bytes)
{
    uint32_t class = 0;

    for (uint64_t edge = COMPACT_SIZE_0; bytes > edge && class < 16; edge *= COMPACT_FAN)
        class ++;
    return class;
}

/* Parts [from, from + n) of the hour, sorted by size, that are of one size and enough. */
static bool same_size(struct part *const *v, uint32_t n, uint32_t *ret_from, uint32_t *ret_n)
{
    for (uint32_t i = 0, k; i < n; i = k) {
        for (k = i + 1; k < n && size_class(v[k]->info.bytes) == size_class(v[i]->info.bytes);)
            k++;
        if (k - i >= COMPACT_FAN) {
            *ret_from = i;
            *ret_n = k - i;
            return true;
        }
    }
    return false;
}

static bool hour_over(const struct compactor *c, const struct hour *h, const struct part *p)
{
    const int64_t after = store_tuning.compact_ns ? store_tuning.compact_ns : COMPACT_AFTER;
    const int64_t quiet = store_tuning.compact_ns ? store_tuning.compact_ns : COMPACT_QUIET;
    real_ns now = store_now(c->s);

    return now.v - p->info.period.t1.v >= after && now.v - h->since.v >= quiet;
}

/* Which of the hour's n parts are to be merged now. */
static bool due(struct compactor *c, struct part *const *v, uint32_t n, bool all,
                uint32_t *ret_from, uint32_t *ret_n)
{
    uint64_t newest = 0;
    struct hour *h = n > 1 ? hour_of(c, &v[0]->info) : NULL;

    if (!h)
        return false;
    for (uint32_t i = 0; i < n; i++)
        newest = v[i]->info.id > newest ? v[i]->info.id : newest;
    if (newest != h->newest) {
        h->newest = newest;
        h->since = store_now(c->s);
        h->failed = false;
    }
    if (h->failed)
        return false;
    *ret_from = 0;
    *ret_n = n;
    if (!all && !hour_over(c, h, v[0]) && !same_size(v, n, ret_from, ret_n))
        return false;
    if (*ret_n > COMPACT_PARTS)
        *ret_n = COMPACT_PARTS;
    return true;
}

/* ---- doing it ------------------------------------------------------------------------------ */

static bool room_for(const struct store *s, struct part *const *in, uint32_t n)
{
    struct statvfs v;
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < n; i++)
        bytes += in[i]->info.bytes;
    return fstatvfs(s->dir_fd, &v) == 0 && v.f_bavail * v.f_frsize / 6 >= bytes / 5;
}

static int merge(struct compactor *c, struct part *const *in, uint32_t n, struct err *err)
{
    struct store *s = c->s;
    uint64_t id = seal_part_id(s);
    const struct compact_job job = {.dir = s->dir,
                                    .vfs = store_tuning.vfs,
                                    .parts = s->parts,
                                    .names = &s->names,
                                    .generation = (uint32_t)id,
                                    .n_in = n,
                                    .in = in,
                                    .stop = &c->stop};
    struct part_info out;

    TRY(compact_merge(&job, &out, err));
    out.id = id;
    TRY(seal_swap(s, in, n, &out, err));
    atomic_fetch_add(&s->compactions, 1);
    return 0;
}

/* One look at all hours. Negative: the first failure; the others were done. */
static int look(struct compactor *c, bool all, struct err *err)
{
    struct part_list l;
    int result = 0;

    if (!list_parts(c->s, &l))
        return err_set(err, -ENOMEM, "compaction: memory is short");
    forget(c, &l);
    for (uint32_t i = 0, k; i < l.n && !atomic_load(&c->stop); i = k) {
        uint32_t from, n;
        struct err why = {};
        int r;

        for (k = i + 1; k < l.n && same_hour(l.v[i], l.v[k]);)
            k++;
        if (atomic_load(&c->s->state) != STORE_OK && !all)
            break;
        if (!due(c, &l.v[i], k - i, all, &from, &n) || !room_for(c->s, &l.v[i + from], n))
            continue;
        r = merge(c, &l.v[i + from], n, &why);
        if (r < 0 && r != -ECANCELED && r != -ESTALE) {
            struct hour *h = hour_of(c, &l.v[i]->info);

            log_event(LOG_WARN, "compaction_failed", LOG_C("part", l.v[i + from]->info.name),
                      LOG_ERR(&why));
            atomic_fetch_add(&c->s->compaction_failures, 1);
            if (h)
                h->failed = r != -ENOSPC && r != -ENOMEM && !some_bad(&l.v[i + from], n);
            if (result == 0) {
                result = r;
                if (err)
                    *err = why;
            }
        }
    }
    list_free(&l);
    return result;
}

static void *compactor_main(void *arg)
{
    struct compactor *c = arg;
    const int64_t wait = store_tuning.compact_look_ns ? store_tuning.compact_look_ns : COMPACT_LOOK;
    bool stop = false;

    while (!stop) {
        (void)look(c, false, NULL);
        mutex_lock(&c->mu);
        if (!c->stop_asked)
            (void)cond_wait_for(&c->wake, &c->mu, wait);
        stop = c->stop_asked;
        mutex_unlock(&c->mu);
    }
    return NULL;
}

static struct compactor *compactor_new(struct store *s)
{
    struct compactor *c = xcalloc(1, sizeof *c);

    c->s = s;
    mutex_init(&c->mu);
    cond_init(&c->wake);
    return c;
}

static void compactor_free(struct compactor *c)
{
    cond_deinit(&c->wake);
    mutex_deinit(&c->mu);
    free(c->hour);
    free(c);
}

int compactor_start(struct store *s, struct err *err)
{
    struct compactor *c = compactor_new(s);
    int r = thread_start(&c->thread, "st-compact", 0, compactor_main, c);

    if (r != 0) {
        compactor_free(c);
        return err_set(err, r, "thread st-compact: cannot be started");
    }
    s->compactor = c;
    return 0;
}

void compactor_stop(struct store *s)
{
    struct compactor *c = s->compactor;
    int r;

    if (!c)
        return;
    mutex_lock(&c->mu);
    c->stop_asked = true;
    atomic_store(&c->stop, true);
    cond_broadcast(&c->wake);
    mutex_unlock(&c->mu);
    r = pthread_join(c->thread, NULL);
    assert(r == 0);
    compactor_free(c);
    s->compactor = NULL;
}

int compact_all(struct store *s, struct err *err)
{
    struct compactor *c = compactor_new(s);
    int r = look(c, true, err);

    compactor_free(c);
    return r;
}
