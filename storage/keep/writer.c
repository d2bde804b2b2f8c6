// SPDX-License-Identifier: Apache-2.0
/*
 * st-writer: the one thread that changes catalog, dictionary file and the list of sources. It seals
 * when time, rows or journal say so, does what other threads ask of it (writer_call), and tries a
 * seal that failed again.
 */
#include <errno.h>
#include <stdlib.h>

#include "base/log.h"
#include "storage/keep/seal_private.h"

#define LOOK_NS  NS_PER_S       /* how often the limits are looked at */
#define RETRY_NS (2 * NS_PER_S) /* after a seal that failed */

struct writer_job {
    struct writer_job *next;
    writer_fn *fn;
    void *ctx;
    struct err *err;
    int r;
    bool done;
};

int writer_call(struct store *s, writer_fn *fn, void *ctx, struct err *err)
{
    struct writer_job job = {.fn = fn, .ctx = ctx, .err = err}, **at;

    mutex_lock(&s->writer);
    if (!s->writer_runs) {
        mutex_unlock(&s->writer);
        return err_set(err, -ESHUTDOWN, "the store is closing");
    }
    for (at = &s->jobs; *at; at = &(*at)->next)
        ;
    *at = &job;
    cond_signal(&s->writer_wake);
    while (!job.done)
        cond_wait(&s->writer_done, &s->writer);
    mutex_unlock(&s->writer);
    return job.r;
}

static void run(struct store *s, struct writer_job *job)
{
    job->r = job->fn(s, job->ctx, job->err);
    mutex_lock(&s->writer);
    job->done = true; /* it is the waiting thread's from here */
    cond_broadcast(&s->writer_done);
    mutex_unlock(&s->writer);
}

/* A failure is not an error of the store: nothing is lost, and it is tried again. */
static void seal_by_itself(struct store *s, mono_ns *retry)
{
    bool full = atomic_load(&s->state) == STORE_FULL;
    struct err err = {};
    int r = 0;

    if (mono_now().v < retry->v)
        return;
    if (full)
        r = space_relieve(s, &err);
    else if (seal_due(s))
        r = seal(s, &err);
    if (r == 0)
        return;
    retry->v = mono_now().v + (store_tuning.probe_ns ? store_tuning.probe_ns : RETRY_NS);
    log_event(LOG_DEBUG, "seal_failed", LOG_ERR(&err));
}

static void *writer_main(void *arg)
{
    struct store *s = arg;
    const int64_t after = store_tuning.seal_ns ? store_tuning.seal_ns : s->conf.seal_ns;
    const int64_t wait = after / 4 < LOOK_NS ? after / 4 : LOOK_NS;
    mono_ns retry = {};

    for (;;) {
        struct writer_job *job;
        bool stop;

        mutex_lock(&s->writer);
        if (!s->jobs && !s->writer_stop)
            (void)cond_wait_for(&s->writer_wake, &s->writer, wait);
        job = s->jobs;
        if (job)
            s->jobs = job->next;
        stop = !job && s->writer_stop;
        mutex_unlock(&s->writer);
        if (job)
            run(s, job);
        if (stop)
            return NULL;
        seal_look_at_parts(s);
        seal_by_itself(s, &retry);
    }
}

int writer_start(struct store *s, struct err *err)
{
    int r;

    if (!s->catalog)
        return 0; /* nothing can be written */
    r = thread_start(&s->writer_thread, "st-writer", 0, writer_main, s);
    if (r != 0)
        return err_set(err, r, "thread st-writer: cannot be started");
    s->writer_runs = true;
    return 0;
}

void writer_stop(struct store *s, bool last)
{
    bool runs;
    struct err err = {};

    mutex_lock(&s->writer);
    runs = s->writer_runs;
    s->writer_runs = false;
    s->writer_stop = true;
    cond_signal(&s->writer_wake);
    mutex_unlock(&s->writer);
    if (!runs)
        return;
    if (pthread_join(s->writer_thread, NULL) != 0)
        abort();
    if (last && !store_tuning.seal_asked && seal(s, &err) != 0)
        log_event(LOG_DEBUG, "seal_failed", LOG_ERR(&err));
}

/* ---- what others ask for ------------------------------------------------------------------- */

static int seal_job(struct store *s, void *ctx, struct err *err)
{
    (void)ctx;
    return seal(s, err);
}

int store_seal(struct store *s, struct err *err)
{
    assert(s->magic == STORE_MAGIC);
    if (!s->catalog)
        return err_set(err, -EROFS, "read-only: %s", atomic_load(&s->state_why));
    return writer_call(s, seal_job, NULL, err);
}
