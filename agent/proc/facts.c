// SPDX-License-Identifier: Apache-2.0
#include "agent/proc/facts.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "agent/apart/reader.h"
#include "base/arena.h"
#include "base/map.h"
#include "base/thread.h"
#include "base/time.h"

#define PING_NS   NS_PER_S
#define MAX_QUEUE 4096 /* beyond it a file is asked for again, when it is seen again */
#define MAX_AGAIN 65536

/* Of a file that is something; most are nothing. */
struct fact {
    bool python;
    enum usdt_found step;
    struct pyelf elf;
    struct usdt_site site;
};

enum {
    ASKED = 1,
    NOTHING,
    FIRST_FACT, /* from here on: index in fact */
};

struct facts {
    pthread_t thread;
    /* the main thread's */
    uint64_t waits, seen;
    uint32_t *again, n_again, cap_again;
    uint32_t left; /* of again, to be given back now */
    /* both threads' */
    struct mutex mu;
    struct cond wake;
    bool stop;
    _Atomic uint64_t known; /* answers so far */
    struct map by_bin;
    struct fact *fact;
    uint32_t n_fact;
    struct binary *queue[MAX_QUEUE];
    uint32_t n_queue;
};

/* ---- the thread ---------------------------------------------------------------------------- */

static bool read_fact(struct binary *b, struct fact *ret)
{
    int r = reader_python(b, &ret->elf);

    if (r == -EAGAIN)
        return false;
    ret->python = r == 0;
    r = b->is_elf && !b->image ? reader_step(b, &ret->site) : USDT_NONE;
    if (r == -EAGAIN)
        return false;
    ret->step = (enum usdt_found)r;
    return true;
}

static void keep_locked(struct facts *f, const struct binary *b, const struct fact *is)
    REQUIRES(&f->mu)
{
    uint64_t v = NOTHING;

    if (is->python || is->step != USDT_NONE) {
        f->fact = xrealloc(f->fact, (f->n_fact + 1) * sizeof *f->fact);
        v = FIRST_FACT + f->n_fact;
        f->fact[f->n_fact++] = *is;
    }
    (void)map_put(&f->by_bin, b->id, v);
    atomic_fetch_add(&f->known, 1);
}

static void *run(void *ctx)
{
    struct facts *f = ctx;
    int64_t pinged = mono_now().v;

    mutex_lock(&f->mu);
    while (!f->stop) {
        int64_t left = pinged + PING_NS - mono_now().v;
        struct fact is = {};
        struct binary *b;
        bool have;

        if (left <= 0) {
            mutex_unlock(&f->mu);
            reader_ping();
            mutex_lock(&f->mu);
            pinged = mono_now().v;
            continue;
        }
        if (f->n_queue == 0) {
            (void)cond_wait_for(&f->wake, &f->mu, left);
            continue;
        }
        b = f->queue[0];
        mutex_unlock(&f->mu);
        have = read_fact(b, &is);
        mutex_lock(&f->mu);
        if (!have) { /* no reader now */
            (void)cond_wait_for(&f->wake, &f->mu, PING_NS / 4);
            continue;
        }
        memmove(f->queue, f->queue + 1, --f->n_queue * sizeof(struct binary *));
        keep_locked(f, b, &is);
        (void)binary_unref(b);
    }
    mutex_unlock(&f->mu);
    return NULL;
}

/* ---- the main thread's side ---------------------------------------------------------------- */

static bool ask_locked(struct facts *f, struct binary *b) REQUIRES(&f->mu)
{
    if (f->n_queue == MAX_QUEUE || map_put(&f->by_bin, b->id, ASKED) == MAP_FULL)
        return false;
    f->queue[f->n_queue++] = binary_ref(b);
    cond_signal(&f->wake);
    return true;
}

/* 0: *ret is what is known; -EAGAIN. */
static int get(struct facts *f, struct binary *b, struct fact *ret)
{
    uint64_t v = 0;
    int r = 0;

    mutex_lock(&f->mu);
    if (!map_get(&f->by_bin, b->id, &v))
        (void)ask_locked(f, b);
    if (v < NOTHING)
        r = -EAGAIN;
    else
        *ret = v >= FIRST_FACT ? f->fact[v - FIRST_FACT] : (struct fact){};
    mutex_unlock(&f->mu);
    f->waits += r != 0;
    return r;
}

int facts_python(struct facts *f, struct binary *b, struct pyelf *ret)
{
    struct fact is;

    if (!f)
        return reader_python(b, ret);
    if (get(f, b, &is) < 0)
        return -EAGAIN;
    if (is.python)
        *ret = is.elf;
    return is.python ? 0 : 1;
}

int facts_step(struct facts *f, struct binary *b, struct usdt_site *ret)
{
    struct fact is;

    if (!b->is_elf || b->image)
        return USDT_NONE;
    if (!f)
        return reader_step(b, ret);
    if (get(f, b, &is) < 0)
        return -EAGAIN;
    if (is.step == USDT_FOUND)
        *ret = is.site;
    return (int)is.step;
}

uint64_t facts_waits(const struct facts *f)
{
    return f ? f->waits : 0;
}

void facts_remember(struct facts *f, uint32_t tgid)
{
    for (uint32_t i = f->left; i < f->n_again; i++)
        if (f->again[i] == tgid)
            return;
    if (f->n_again == MAX_AGAIN)
        return; /* looked at again when its mappings change */
    if (f->n_again == f->cap_again) {
        f->cap_again = f->cap_again ? 2 * f->cap_again : 64;
        f->again = xrealloc(f->again, f->cap_again * sizeof *f->again);
    }
    f->again[f->n_again++] = tgid;
}

bool facts_waiting(const struct facts *f)
{
    return f && f->n_again > 0;
}

bool facts_again(struct facts *f, uint32_t *ret_tgid)
{
    uint64_t known;

    if (!f)
        return false;
    if (f->left == 0) {
        known = atomic_load(&f->known);
        if (known == f->seen)
            return false;
        f->seen = known;
        f->left = f->n_again;
    }
    if (f->left == 0)
        return false;
    *ret_tgid = f->again[0];
    memmove(f->again, f->again + 1, --f->n_again * sizeof *f->again);
    f->left--;
    return true;
}

int facts_start(struct facts **ret, struct err *err)
{
    struct facts *f = xcalloc(1, sizeof *f);
    int r;

    map_init(&f->by_bin, 0);
    mutex_init(&f->mu);
    cond_init(&f->wake);
    r = thread_start(&f->thread, "strata-facts", 0, run, f);
    if (r < 0) {
        map_deinit(&f->by_bin);
        cond_deinit(&f->wake);
        mutex_deinit(&f->mu);
        free(f);
        return err_set(err, r, "thread of the reader's facts: %s", strerrordesc_np(-r));
    }
    *ret = f;
    return 0;
}

struct facts *facts_stop(struct facts *f)
{
    if (!f)
        return NULL;
    mutex_lock(&f->mu);
    f->stop = true;
    cond_signal(&f->wake);
    mutex_unlock(&f->mu);
    (void)pthread_join(f->thread, NULL);
    for (uint32_t i = 0; i < f->n_queue; i++)
        (void)binary_unref(f->queue[i]);
    map_deinit(&f->by_bin);
    cond_deinit(&f->wake);
    mutex_deinit(&f->mu);
    free(f->again);
    free(f->fact);
    free(f);
    return NULL;
}
