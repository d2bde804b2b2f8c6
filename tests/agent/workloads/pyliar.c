// SPDX-License-Identifier: Apache-2.0
/*
 * A library for pyhostile.py: while a thread stands in pyliar_lie(), another one overwrites the
 * interpreter frame that called it, again and again; before it returns the frame is as it was.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#define FRAME_BYTES 64

struct lie {
    volatile uint64_t *frame; /* words of it */
    unsigned code, prev;      /* which of them */
    const uint64_t *junk;     /* what is written there, by turns */
    unsigned n;
    atomic_bool end;
};

double pyliar_lie(uint64_t *frame, unsigned code, unsigned prev, const uint64_t *junk, unsigned n,
                  double seconds);

static void *overwrite(void *arg)
{
    struct lie *l = arg;
    uint64_t was_code = l->frame[l->code], was_prev = l->frame[l->prev];

    for (unsigned i = 0; !atomic_load(&l->end); i++) {
        l->frame[l->prev] = i % 3 ? l->junk[i % l->n] : (uint64_t)(uintptr_t)l->frame;
        l->frame[l->code] = i % 5 ? l->junk[i / 3 % l->n] : was_code;
        for (unsigned k = 0; k < (i & 1023) && !atomic_load(&l->end); k++)
            __asm__ volatile("pause");
        if (i % 64 == 0) { /* and sometimes it is right */
            l->frame[l->prev] = was_prev;
            l->frame[l->code] = was_code;
        }
    }
    return NULL;
}

static double cpu_s(void)
{
    struct timespec t;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

double pyliar_lie(uint64_t *frame, unsigned code, unsigned prev, const uint64_t *junk, unsigned n,
                  double seconds)
{
    struct lie l = {.frame = frame, .code = code, .prev = prev, .junk = junk, .n = n};
    uint64_t was[FRAME_BYTES / 8];
    double begun = cpu_s(), used;
    pthread_t t;

    memcpy(was, frame, sizeof was);
    if (pthread_create(&t, NULL, overwrite, &l) != 0)
        return -1;
    do
        used = cpu_s() - begun;
    while (used < seconds);
    atomic_store(&l.end, true);
    pthread_join(t, NULL);
    memcpy(frame, was, sizeof was);
    return used;
}
