// SPDX-License-Identifier: Apache-2.0
#include "server/work.h"

#include <stdlib.h>

#include "base/arena.h"
#include "base/thread.h"

struct work {
    struct mutex mu;
    struct cond wake;
    struct work_job *head, **tail;
    uint32_t n_thread, max_waiting;
    uint32_t busy, queued; /* jobs in run(); jobs in the list */
    bool stop;
    pthread_t thread[];
};

static void *work_main(void *arg)
{
    struct work *w = arg;

    mutex_lock(&w->mu);
    for (;;) {
        struct work_job *job = w->head;

        if (!job) {
            if (w->stop)
                break;
            cond_wait(&w->wake, &w->mu);
            continue;
        }
        w->head = job->next;
        if (!w->head)
            w->tail = &w->head;
        w->queued--;
        w->busy++;
        mutex_unlock(&w->mu);
        job->run(job);
        mutex_lock(&w->mu);
        w->busy--;
    }
    mutex_unlock(&w->mu);
    return NULL;
}

int work_start(uint32_t running, uint32_t waiting, struct work **ret, struct err *err)
{
    struct work *w = xcalloc(1, sizeof *w + running * sizeof w->thread[0]);

    mutex_init(&w->mu);
    cond_init(&w->wake);
    w->tail = &w->head;
    w->max_waiting = waiting;
    for (; w->n_thread < running; w->n_thread++) {
        int r = thread_start(&w->thread[w->n_thread], "query", 0, work_main, w);

        if (r < 0) {
            r = err_set(err, r, "cannot start query thread %u of %u", w->n_thread + 1, running);
            work_stop(w);
            return r;
        }
    }
    *ret = w;
    return 0;
}

struct work *work_stop(struct work *w)
{
    if (!w)
        return NULL;
    mutex_lock(&w->mu);
    w->stop = true;
    cond_broadcast(&w->wake);
    mutex_unlock(&w->mu);
    for (uint32_t i = 0; i < w->n_thread; i++)
        (void)pthread_join(w->thread[i], NULL);
    cond_deinit(&w->wake);
    mutex_deinit(&w->mu);
    free(w);
    return NULL;
}

bool work_submit(struct work *w, struct work_job *job)
{
    bool ok;

    mutex_lock(&w->mu);
    /* a free thread takes from the queue: room is what the threads will take plus the waiting */
    ok = !w->stop && w->busy + w->queued < w->n_thread + w->max_waiting;
    if (ok) {
        job->next = NULL;
        *w->tail = job;
        w->tail = &job->next;
        w->queued++;
        cond_signal(&w->wake);
    }
    mutex_unlock(&w->mu);
    return ok;
}

void work_load(struct work *w, uint32_t *ret_running, uint32_t *ret_waiting)
{
    mutex_lock(&w->mu);
    *ret_running = w->busy;
    *ret_waiting = w->queued;
    mutex_unlock(&w->mu);
}
