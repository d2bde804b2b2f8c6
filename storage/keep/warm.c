// SPDX-License-Identifier: Apache-2.0
/*
 * What the first questions after a start need is made ready beside them: the dictionary of the
 * epoch before the current one, and what parts say of themselves. The newest part comes first,
 * since a question takes them from the oldest on, so that both together open them.
 */
#include <stdio.h>
#include <stdlib.h>

#include "storage/keep/seal_private.h"

#define WORKERS 2u

struct warm {
    struct store *s;
    struct source_list *list; /* until the last worker ends */
    _Atomic uint32_t next, running;
    atomic_bool stop;
    uint32_t n_thread;
    pthread_t thread[WORKERS];
};

static uint32_t epoch_before(const struct source_list *l)
{
    uint32_t id = 0;

    for (uint32_t i = 0; i < l->n; i++)
        if (l->item[i].epoch != l->epoch->id && l->item[i].epoch > id)
            id = l->item[i].epoch;
    return id;
}

/* What cannot be read is told by whoever asks for it. */
static void make_ready(struct warm *w, uint32_t i)
{
    const struct source_list *l = w->list;
    uint32_t id = i == 0 ? epoch_before(l) : 0;
    struct err err = {};

    if (id)
        epoch_unref(epoch_get(w->s, id, &err));
    else if (i > 0 && l->item[l->n - i].part)
        (void)!part_load(l->item[l->n - i].part, &err);
}

static void leave(struct warm *w)
{
    if (atomic_fetch_sub(&w->running, 1) == 1)
        source_list_unref(w->list);
}

static void *work(void *arg)
{
    struct warm *w = arg;
    uint32_t i;

    while (!atomic_load(&w->stop) && (i = atomic_fetch_add(&w->next, 1)) <= w->list->n)
        make_ready(w, i);
    leave(w);
    return NULL;
}

void warm_start(struct store *s)
{
    struct warm *w = mem_fail_now() ? NULL : calloc(1, sizeof *w);

    if (!w)
        return;
    w->s = s;
    w->list = source_list_get(s);
    atomic_store(&w->running, WORKERS);
    for (uint32_t i = 0; i < WORKERS; i++) {
        char name[16];

        (void)snprintf(name, sizeof name, "st-warm-%u", i);
        if (thread_start(&w->thread[w->n_thread], name, 0, work, w) == 0)
            w->n_thread++;
        else
            leave(w);
    }
    s->warm = w;
}

void warm_stop(struct store *s)
{
    struct warm *w = s->warm;

    if (!w)
        return;
    atomic_store(&w->stop, true);
    for (uint32_t i = 0; i < w->n_thread; i++) {
        int r = pthread_join(w->thread[i], NULL);

        assert(r == 0);
        (void)r;
    }
    free(w);
    s->warm = NULL;
}
