// SPDX-License-Identifier: Apache-2.0
#include "base/thread.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <time.h>

#include "base/time.h"

static void must(int r)
{
    assert(r == 0);
    (void)r;
}

void cond_init(struct cond *c)
{
    pthread_condattr_t attr;

    must(pthread_condattr_init(&attr));
    must(pthread_condattr_setclock(&attr, CLOCK_MONOTONIC));
    must(pthread_cond_init(&c->c, &attr));
    must(pthread_condattr_destroy(&attr));
}

void cond_deinit(struct cond *c)
{
    must(pthread_cond_destroy(&c->c));
}

void cond_wait(struct cond *c, struct mutex *m)
{
    must(pthread_cond_wait(&c->c, &m->m));
}

bool cond_wait_for(struct cond *c, struct mutex *m, int64_t wait_ns)
{
    struct timespec ts;
    int64_t end;
    int r;

    if (__builtin_add_overflow(mono_now().v, wait_ns > 0 ? wait_ns : 0, &end))
        end = INT64_MAX;
    ts = (struct timespec){.tv_sec = end / NS_PER_S, .tv_nsec = end % NS_PER_S};
    r = pthread_cond_timedwait(&c->c, &m->m, &ts);
    assert(r == 0 || r == ETIMEDOUT);
    return r == 0;
}

void cond_signal(struct cond *c)
{
    must(pthread_cond_signal(&c->c));
}

void cond_broadcast(struct cond *c)
{
    must(pthread_cond_broadcast(&c->c));
}

int thread_start(pthread_t *ret, const char *name, size_t stack, void *(*fn)(void *), void *arg)
{
    pthread_attr_t attr;
    sigset_t all, old;
    pthread_t t;
    int r;

    must(pthread_attr_init(&attr));
    if (stack > 0) {
        if (stack < (size_t)PTHREAD_STACK_MIN)
            stack = (size_t)PTHREAD_STACK_MIN;
        must(pthread_attr_setstacksize(&attr, stack));
    }
    must(sigfillset(&all));
    must(pthread_sigmask(SIG_SETMASK, &all, &old)); /* the new thread inherits the mask */
    r = pthread_create(&t, &attr, fn, arg);
    must(pthread_sigmask(SIG_SETMASK, &old, NULL));
    must(pthread_attr_destroy(&attr));
    if (r != 0)
        return -r;
    (void)pthread_setname_np(t, name); /* a thread that has ended already has no name to set */
    *ret = t;
    return 0;
}
