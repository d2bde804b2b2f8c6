// SPDX-License-Identifier: Apache-2.0
#include "agent/send/batcher.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/log.h"
#include "base/thread.h"
#include "base/time.h"
#include "proto/wire.h"

#define PLAIN_CAP    ((size_t)64 << 20) /* what a server inflates */
#define BODY_DEFAULT ((size_t)16 << 20)
#define MAX_DROPPED  48 /* what a spool hands over at once: five types of nine batches */
#define QUEUE        64
#define JITS         64 /* processes to look at; told again if there is no room */

struct batcher {
    struct batchmake_conf conf;
    struct batchmake *make; /* the thread's */
    struct spool *spool;    /* NULL: none */
    struct batcher_tap tap;
    pthread_t thread;
    _Atomic uint64_t max_bytes, names_cache;
    uint64_t seq; /* the thread's */
    struct mutex mu;
    struct cond changed;
    struct batcher_job queue[QUEUE]; /* oldest first */
    uint32_t n_queue, n_windows;
    struct jits_target jit[JITS];
    uint32_t n_jit;
    bool stop;
    struct batchmake_sums lost; /* windows given up: told with the next batch that is made */
    struct batcher_stats stats;
};

static void job_free(struct batcher_job *j)
{
    for (uint32_t i = 0; i < j->n_window; i++)
        stackagg_window_free(j->window[i]);
    free(j->window);
    free(j->metric);
    free(j->event);
    *j = (struct batcher_job){};
}

/* What a window holds of the types beside CPU time. Which waits were for Python's lock is found
 * with the names of a batch, so of gil_wait the time is not known. */
static void sum_rows(const struct stackagg_window *w,
                     struct batchmake_dropped sum[static PTYPE_BUILTIN_END])
{
    struct batchmake_dropped *off = &sum[PTYPE_OFFCPU], *runq = &sum[PTYPE_RUNQ];

    for (uint32_t i = 0; i < w->n_row; i++) {
        const struct stackagg_row *r = &w->row[i];

        sum[PTYPE_GIL_HELD].weight += r->gil_weight;
        if (!r->off)
            continue;
        off->n += r->count;
        off->weight += r->weight;
        runq->n += r->runq_count;
        runq->weight += r->runq_weight;
        if (r->holder)
            sum[PTYPE_GIL_WAIT].n += r->count;
    }
    sum[PTYPE_GIL_HELD].n = w->gil.known;
    sum[PTYPE_GIL_WAIT].weight = sum[PTYPE_GIL_WAIT].n ? BATCH_NO_WEIGHT : 0;
}

/* Is type in the window, and of whom else than of some processes that had nothing? */
static bool holds(const struct stackagg_window *w, uint32_t type, uint64_t n)
{
    switch (type) {
    case PTYPE_CPU:
        return true;
    case PTYPE_GIL_HELD:
        return w->gil.on;
    case PTYPE_OFFCPU:
    case PTYPE_RUNQ:
    case PTYPE_GIL_WAIT:
        return w->off.on && w->off.types >> type & 1 && (n || !w->off.scoped) &&
               (type != PTYPE_GIL_WAIT || w->off.python);
    default:
        return false;
    }
}

/* A window that no batch will carry. */
static void lose_locked(struct batcher *b, const struct stackagg_window *w) REQUIRES(&b->mu)
{
    const struct source_account *a = &w->account;
    struct batchmake_dropped sum[PTYPE_BUILTIN_END] = {
        [PTYPE_CPU] = {.n = a->received, .weight = stackagg_weight(w)}};

    sum_rows(w, sum);
    for (uint32_t type = 0; type < PTYPE_BUILTIN_END; type++) {
        struct batchmake_dropped *d = &sum[type];

        if (!holds(w, type, d->n))
            continue;
        d->type = type;
        d->why = LOSS_SPOOL_DROP;
        d->first = 1; /* no number was given */
        d->covers = a->covers;
        d->width = type == PTYPE_CPU || type == PTYPE_GIL_HELD ? a->width : 1;
        batchmake_sum(&b->lost, d);
    }
    b->stats.windows_dropped++;
    b->stats.steps_dropped += w->n_step;
}

/* ---- one batch ----------------------------------------------------------------------------- */

/* Half of what still has a stack loses it: the weight stays, under [no stack: table_full]. */
static bool strip(struct stackagg_window *w)
{
    uint32_t with = 0, left;

    for (uint32_t i = 0; i < w->n_row; i++)
        with += w->row[i].nk || w->row[i].nu;
    left = with / 2;
    if (with == 0)
        return false;
    for (uint32_t i = w->n_row; i-- > 0 && with > left;) {
        struct stackagg_row *r = &w->row[i];

        if (!r->nk && !r->nu)
            continue;
        r->nk = r->nu = 0;
        r->stop = STACKAGG_TABLE_FULL;
        with--;
    }
    return true;
}

struct made {
    struct buf plain, body;
    struct batchmake_info info;
};

/* 0, or -E2BIG where the body is larger than the server takes. */
static int make_one(struct batcher *b, const struct batchmake_job *job, struct made *m,
                    struct err *err)
{
    uint64_t max = atomic_load(&b->max_bytes);

    buf_reset(&m->plain);
    buf_reset(&m->body);
    TRY(batchmake_make(b->make, job, b->seq + 1, &m->plain, &m->info, err));
    TRY(wire_compress(buf_view(&m->plain), &m->body, err));
    if (m->body.n > (max ? max : BODY_DEFAULT))
        return err_set(err, -E2BIG, "a batch of %zu bytes, the server takes %llu", m->body.n,
                       (unsigned long long)(max ? max : BODY_DEFAULT));
    return 0;
}

static void put_made(struct batcher *b, const struct batchmake_job *job, const struct made *m,
                     int64_t not_before)
{
    struct spool_new_batch n = {.body = buf_view(&m->body),
                                .info = &m->info,
                                .told = job->dropped,
                                .n_told = job->n_dropped,
                                .not_before = not_before};

    n.seq = ++b->seq;
    if (b->tap.batch)
        b->tap.batch(b->tap.ctx, n.body, n.info);
    if (b->spool)
        spool_put(b->spool, &n);
    mutex_lock(&b->mu);
    b->stats.batches++;
    b->stats.rows += m->info.rows;
    b->stats.last_bytes = m->body.n;
    b->stats.last_plain = m->plain.n;
    mutex_unlock(&b->mu);
}

/* Windows [from, to); split until it fits. The first part carries what is beside the windows. */
static void make_range(struct batcher *b, const struct batcher_job *j, struct batchmake_job *job,
                       uint32_t from, uint32_t to, struct made *m)
{
    struct err err = {};
    int r;

    job->window = j->window + from;
    job->n_window = to - from;
    r = make_one(b, job, m, &err);
    if (r == 0) {
        put_made(b, job, m, j->not_before);
        job->n_metric = job->n_event = job->n_dropped = 0;
        return;
    }
    if ((r == -E2BIG || r == -ENOMEM) && to - from > 1) {
        mutex_lock(&b->mu);
        b->stats.splits++;
        mutex_unlock(&b->mu);
        make_range(b, j, job, from, from + (to - from) / 2, m);
        make_range(b, j, job, from + (to - from) / 2, to, m);
        return;
    }
    if ((r == -E2BIG || r == -ENOMEM) && to - from == 1 && strip(j->window[from])) {
        make_range(b, j, job, from, to, m);
        return;
    }
    mutex_lock(&b->mu);
    b->stats.failed++;
    for (uint32_t i = from; i < to; i++)
        lose_locked(b, j->window[i]);
    mutex_unlock(&b->mu);
    log_event(LOG_ERROR, "batch_failed", LOG_ERR(&err));
}

static void make(struct batcher *b, const struct batcher_job *j)
{
    struct batchmake_dropped dropped[MAX_DROPPED + PTYPE_BUILTIN_END];
    struct batchmake_job job = {.metric = j->metric,
                                .event = j->event,
                                .n_metric = j->n_metric,
                                .n_event = j->n_event,
                                .dropped = dropped,
                                .clock = j->clock,
                                .fold = b->spool ? batchfold_level(spool_level(b->spool)) : 0};
    struct made m = {};
    uint32_t taken;

    if (b->spool)
        job.n_dropped = spool_take_dropped(b->spool, dropped, MAX_DROPPED);
    taken = job.n_dropped;
    mutex_lock(&b->mu);
    b->stats.fold = job.fold;
    for (uint32_t i = 0; i < b->lost.n; i++)
        dropped[job.n_dropped++] = b->lost.v[i];
    b->lost.n = 0;
    mutex_unlock(&b->mu);
    buf_init(&m.plain, PLAIN_CAP);
    buf_init(&m.body, PLAIN_CAP);
    make_range(b, j, &job, 0, j->n_window, &m);
    mutex_lock(&b->mu); /* what no batch carries: the spool still has its own */
    for (uint32_t i = taken; i < job.n_dropped; i++)
        batchmake_sum(&b->lost, &dropped[i]);
    b->stats.metrics_dropped += job.n_metric;
    b->stats.events_dropped += job.n_event;
    mutex_unlock(&b->mu);
    buf_deinit(&m.plain);
    buf_deinit(&m.body);
}

/* ---- the thread ---------------------------------------------------------------------------- */

static void see_jits(struct batcher *b)
{
    struct jits_target t[JITS];
    uint32_t n;

    mutex_lock(&b->mu);
    n = b->n_jit;
    memcpy(t, b->jit, n * sizeof *t);
    b->n_jit = 0;
    mutex_unlock(&b->mu);
    for (uint32_t i = 0; i < n; i++)
        jits_see(batchmake_jits(b->make), &t[i], mono_now().v);
}

static void tick(struct batcher *b, int64_t t0)
{
    struct names *names = batchmake_names(b->make);

    names_tick(names, mono_now().v);
    jits_tick(batchmake_jits(b->make), mono_now().v);
    lines_tick(batchmake_lines(b->make), mono_now().v);
    mutex_lock(&b->mu);
    b->stats.busy_ns += (uint64_t)(mono_now().v - t0);
    names_get_stats(names, &b->stats.names);
    jits_get_stats(batchmake_jits(b->make), &b->stats.jits);
    lines_get_stats(batchmake_lines(b->make), &b->stats.lines);
    b->stats.kernel_symbols = ksym_count(names_kernel(names));
    (void)snprintf(b->stats.kernel_state, sizeof b->stats.kernel_state, "%s",
                   ksym_state(names_kernel(names)));
    mutex_unlock(&b->mu);
}

static void *run(void *ctx)
{
    struct batcher *b = ctx;

    b->make = batchmake_new(&b->conf); /* reads the kernel's symbols: 0.1 s */
    for (;;) {
        struct batcher_job job = {};
        bool stop, has_job;
        int64_t t0;

        mutex_lock(&b->mu);
        while (b->n_queue == 0 && b->n_jit == 0 && !b->stop)
            cond_wait(&b->changed, &b->mu);
        has_job = b->n_queue > 0;
        stop = b->stop && !has_job;
        if (has_job) {
            job = b->queue[0];
            b->n_queue--;
            b->n_windows -= job.n_window;
            memmove(b->queue, b->queue + 1, b->n_queue * sizeof *b->queue);
        }
        mutex_unlock(&b->mu);
        if (stop)
            return NULL;
        t0 = mono_now().v;
        if (atomic_load(&b->names_cache))
            names_set_cache(batchmake_names(b->make), atomic_exchange(&b->names_cache, 0));
        see_jits(b);
        if (has_job)
            make(b, &job);
        job_free(&job);
        tick(b, t0);
    }
}

void batcher_see_jit(struct batcher *b, const struct jits_target *t)
{
    mutex_lock(&b->mu);
    if (b->n_jit < JITS)
        b->jit[b->n_jit++] = *t;
    cond_signal(&b->changed);
    mutex_unlock(&b->mu);
}

void batcher_put(struct batcher *b, const struct batcher_job *job)
{
    struct batcher_job old = {};

    mutex_lock(&b->mu);
    if (b->n_queue == QUEUE || b->n_windows + job->n_window > BATCHER_MAX_WINDOWS) {
        if (b->n_queue) {
            old = b->queue[0];
            b->n_queue--;
            b->n_windows -= old.n_window;
            memmove(b->queue, b->queue + 1, b->n_queue * sizeof *b->queue);
        }
    }
    for (uint32_t i = 0; i < old.n_window; i++)
        lose_locked(b, old.window[i]);
    b->stats.metrics_dropped += old.n_metric;
    b->stats.events_dropped += old.n_event;
    b->queue[b->n_queue++] = *job;
    b->n_windows += job->n_window;
    cond_signal(&b->changed);
    mutex_unlock(&b->mu);
    job_free(&old);
}

int batcher_start(const struct batchmake_conf *c, struct spool *spool, struct batcher **ret,
                  struct err *err)
{
    struct batcher *b = xcalloc(1, sizeof *b);
    int r;

    b->spool = spool;
    b->conf = *c;
    mutex_init(&b->mu);
    cond_init(&b->changed);
    r = thread_start(&b->thread, "batch", 0, run, b);
    if (r < 0) {
        cond_deinit(&b->changed);
        mutex_deinit(&b->mu);
        free(b);
        return err_set(err, r, "thread: %s", strerrordesc_np(-r));
    }
    *ret = b;
    return 0;
}

void batcher_set_tap(struct batcher *b, struct batcher_tap tap)
{
    b->tap = tap; /* the thread looks once it has a job, which comes through the lock */
}

void batcher_stop(struct batcher *b)
{
    mutex_lock(&b->mu);
    b->stop = true;
    cond_signal(&b->changed);
    mutex_unlock(&b->mu);
    pthread_join(b->thread, NULL);
}

struct batcher *batcher_free(struct batcher *b)
{
    if (!b)
        return NULL;
    for (uint32_t i = 0; i < b->n_queue; i++)
        job_free(&b->queue[i]);
    cond_deinit(&b->changed);
    mutex_deinit(&b->mu);
    batchmake_free(b->make);
    free(b);
    return NULL;
}

void batcher_set_max_bytes(struct batcher *b, uint64_t max_bytes)
{
    atomic_store(&b->max_bytes, max_bytes);
}

void batcher_set_names_cache(struct batcher *b, uint64_t bytes)
{
    atomic_store(&b->names_cache, bytes);
}

void batcher_get_stats(struct batcher *b, struct batcher_stats *ret)
{
    mutex_lock(&b->mu);
    *ret = b->stats;
    mutex_unlock(&b->mu);
}
