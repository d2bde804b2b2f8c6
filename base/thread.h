// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <assert.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * A mutex that clang's -Wthread-safety understands. Functions that need one end in _locked and
 * carry REQUIRES(m). Errors of pthread calls here are bugs: they assert.
 */
#if defined(__clang__)
#define THREAD_ATTR(x) __attribute__((x))
#else
#define THREAD_ATTR(x)
#endif
#define REQUIRES(m) THREAD_ATTR(requires_capability(m))
#define ACQUIRE(m)  THREAD_ATTR(acquire_capability(m))
#define RELEASE(m)  THREAD_ATTR(release_capability(m))
#define NO_ANALYSIS THREAD_ATTR(no_thread_safety_analysis)

struct THREAD_ATTR(capability("mutex")) mutex {
    pthread_mutex_t m;
};

#define MUTEX_INIT                                                                                 \
    {                                                                                              \
        PTHREAD_MUTEX_INITIALIZER                                                                  \
    }

static inline void mutex_init(struct mutex *m)
{
    int r = pthread_mutex_init(&m->m, NULL);

    assert(r == 0);
    (void)r;
}

static inline void mutex_deinit(struct mutex *m)
{
    int r = pthread_mutex_destroy(&m->m);

    assert(r == 0);
    (void)r;
}

static inline void mutex_lock(struct mutex *m) ACQUIRE(m) NO_ANALYSIS
{
    int r = pthread_mutex_lock(&m->m);

    assert(r == 0);
    (void)r;
}

static inline void mutex_unlock(struct mutex *m) RELEASE(m) NO_ANALYSIS
{
    int r = pthread_mutex_unlock(&m->m);

    assert(r == 0);
    (void)r;
}

/* A condition on CLOCK_MONOTONIC. */
struct cond {
    pthread_cond_t c;
};

void cond_init(struct cond *c);
void cond_deinit(struct cond *c);
void cond_wait(struct cond *c, struct mutex *m) REQUIRES(m);
/* false when wait_ns have passed without a signal */
bool cond_wait_for(struct cond *c, struct mutex *m, int64_t wait_ns) REQUIRES(m);
void cond_signal(struct cond *c);
void cond_broadcast(struct cond *c);

/* Start a joinable thread with this name (at most 15 bytes, seen by the kernel) and stack size (0:
 * default); all signals blocked in it. 0 or negative errno. */
[[nodiscard]] int thread_start(pthread_t *ret, const char *name, size_t stack, void *(*fn)(void *),
                               void *arg);
