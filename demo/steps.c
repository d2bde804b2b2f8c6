// SPDX-License-Identifier: Apache-2.0
/*
 * Marks steps and says what it did: "NAME NUMBER TID BEFORE AFTER BEFORE AFTER", the wall clock
 * around the call that began the step and around the one that ended it.
 *
 * steps MODE [N]: waits for a line, works, prints; then waits for the end of its input.
 *   all      marks, begin and end, nested ones, 8 threads
 *   run      begin and end until its input ends
 *   bad      what is dropped: see the code
 *   burst N  N marks at once
 *   hot      uses CPU time inside a step and outside of it
 *   cost     prints nanoseconds of a call
 *   exec N   N programs in one process: none ends what the one before it began
 */
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#define STRATA_STEP_IMPL
#include "demo/workload.h"
#include "sdk/c/strata_step.h"

struct at {
    int64_t before, after;
};

static pthread_mutex_t lines = PTHREAD_MUTEX_INITIALIZER;

static int64_t real_now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_REALTIME, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

static void nap(unsigned us)
{
    struct timespec t = {us / 1000000, (long)(us % 1000000) * 1000};

    nanosleep(&t, NULL);
}

static void say(const char *name, uint64_t number, struct at b, struct at e)
{
    pthread_mutex_lock(&lines);
    printf("%s %llu %ld %lld %lld %lld %lld\n", name, (unsigned long long)number,
           (long)syscall(SYS_gettid), (long long)b.before, (long long)b.after, (long long)e.before,
           (long long)e.after);
    pthread_mutex_unlock(&lines);
}

static struct at begin(const char *name, uint64_t number, const char *attr)
{
    struct at t = {.before = real_now_ns()};

    strata_step_begin(name, number, attr);
    t.after = real_now_ns();
    return t;
}

static struct at end(const char *name, uint64_t number)
{
    struct at t = {.before = real_now_ns()};

    strata_step_end(name, number);
    t.after = real_now_ns();
    return t;
}

static struct at mark(const char *name, uint64_t number)
{
    struct at t = {.before = real_now_ns()};

    strata_step_mark(name, number);
    t.after = real_now_ns();
    return t;
}

static void marks(const char *name, unsigned n, unsigned us)
{
    struct at last = mark(name, STRATA_STEP_NEXT);

    for (unsigned i = 0; i < n; i++) {
        struct at now;

        nap(us);
        now = mark(name, STRATA_STEP_NEXT);
        say(name, i, last, now);
        last = now;
    }
}

static void *thread(void *ctx)
{
    marks("threaded", 20, 3000);
    for (unsigned i = 0; i < 10; i++) {
        uint64_t number = (uint64_t)(uintptr_t)ctx * 1000 + i;
        struct at b = begin("numbered", number, NULL), e;

        nap(1000);
        e = end("numbered", number);
        say("numbered", number, b, e);
    }
    return NULL;
}

static void all(void)
{
    struct at epoch = begin("epoch", 7, "phase=warm,kind=x"), e;
    pthread_t t[8];

    marks("mark", 20, 2000);
    for (unsigned i = 0; i < 20; i++) {
        struct at b = begin("outer", STRATA_STEP_NEXT, NULL), inner;

        inner = begin("inner", 100 + i, NULL);
        nap(500);
        e = end("inner", 100 + i);
        say("inner", 100 + i, inner, e);
        e = end("outer", STRATA_STEP_NEXT);
        say("outer", i, b, e);
    }
    for (uintptr_t i = 0; i < 8; i++)
        pthread_create(&t[i], NULL, thread, (void *)i); // NOLINT: a number
    for (unsigned i = 0; i < 8; i++)
        pthread_join(t[i], NULL);
    e = end("epoch", 7);
    say("epoch", 7, epoch, e);
}

static bool input_ended(void)
{
    struct pollfd p = {.fd = 0, .events = POLLIN};

    return poll(&p, 1, 0) > 0;
}

static void run(void)
{
    for (uint64_t i = 0; !input_ended(); i++) {
        struct at b = begin("run", i, NULL), e;

        nap(4000);
        e = end("run", i);
        say("run", i, b, e);
        nap(1000);
    }
}

static void bad(void)
{
    char longer[80];

    memset(longer, 'x', sizeof longer - 1);
    longer[79] = 0;
    strata_step_end("never", 1);         /* unopened */
    strata_step_begin("twice", 1, NULL); /* unclosed */
    strata_step_begin("twice", 1, NULL);
    strata_step_end("twice", 1);
    strata_step_begin("left", 1, NULL); /* open_at_exit */
    strata_step_begin("left", 2, NULL);
    strata_step_begin("\xff\xfe", 1, NULL); /* bad_text */
    strata_step_probe(0, 1, longer, NULL);  /* the header would not */
    strata_step_probe(9, 1, "x", NULL);
    strata_step_probe(0, 1, (const char *)8, NULL);
}

static volatile uint64_t sink;

__attribute__((noinline)) static void spin_inside(int64_t ns)
{
    for (int64_t until = real_now_ns() + ns; real_now_ns() < until;)
        for (unsigned i = 0; i < 100000; i++)
            sink += i;
}

__attribute__((noinline)) static void spin_outside(int64_t ns)
{
    for (int64_t until = real_now_ns() + ns; real_now_ns() < until;)
        for (unsigned i = 0; i < 100000; i++)
            sink -= i;
}

static void hot(void)
{
    for (unsigned i = 0; i < 6; i++) {
        struct at b = begin("hot", i, NULL), e;

        spin_inside(300000000);
        e = end("hot", i);
        say("hot", i, b, e);
        spin_outside(200000000);
    }
}

static void cost(void)
{
    enum {
        ROUNDS = 9
    };
    double best[2] = {1e9, 1e9};
    unsigned n = strata_step_semaphore ? 400 : 1000000; /* a listener takes 1,000 a second */

    for (unsigned r = 0; r < ROUNDS; r++) {
        int64_t t = real_now_ns();

        for (unsigned i = 0; i < n; i++)
            strata_step_mark("cost", i);
        t = real_now_ns() - t;
        if ((double)t / n < best[0])
            best[0] = (double)t / n;
        if (strata_step_semaphore)
            nap(1000000);
    }
    printf("cost listener=%d mark_ns=%.1f\n", strata_step_semaphore, best[0]);
}

static uint64_t number_of(const char *text)
{
    uint64_t n = 0;

    for (; *text >= '0' && *text <= '9'; text++)
        n = n * 10 + (uint64_t)(*text - '0');
    return n;
}

static void burst(const char *times)
{
    uint64_t n = number_of(times);

    for (uint64_t i = 0; i < n; i++)
        strata_step_mark("burst", i);
}

/* One of them; execed are all but the first, which say nothing and wait for nothing. */
static void exec_next(char *self, const char *left)
{
    static char mode[] = "execed";
    uint64_t n = number_of(left);
    char rest[24];
    char *argv[] = {self, mode, rest, NULL};
    struct at b, e;

    strata_step_end("across", n + 1);
    b = begin("within", n, NULL);
    e = end("within", n);
    say("within", n, b, e);
    strata_step_begin("across", n, NULL);
    if (n == 0)
        return;
    (void)snprintf(rest, sizeof rest, "%llu", (unsigned long long)n - 1);
    (void)fflush(stdout);
    (void)execv("/proc/self/exe", argv);
}

int steps_main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "all";
    char line[64];

    if (strcmp(mode, "execed") != 0) {
        puts("ready");
        fflush(stdout);
        if (!fgets(line, sizeof line, stdin))
            return 1;
    }
    if (strcmp(mode, "all") == 0)
        all();
    else if (strcmp(mode, "run") == 0)
        run();
    else if (strcmp(mode, "bad") == 0)
        bad();
    else if (strcmp(mode, "hot") == 0)
        hot();
    else if (strcmp(mode, "cost") == 0)
        cost();
    else if (strcmp(mode, "burst") == 0)
        burst(argc > 2 ? argv[2] : "");
    else if (strncmp(mode, "exec", 4) == 0)
        exec_next(argv[0], argc > 2 ? argv[2] : "");
    printf("counts %llu %llu %llu %llu\n", (unsigned long long)strata_step_stats().probe,
           (unsigned long long)strata_step_stats().sent,
           (unsigned long long)strata_step_stats().dropped,
           (unsigned long long)strata_step_stats().errors);
    puts("done");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        strata_step_mark("tick", STRATA_STEP_NEXT); /* goes on with what is under way */
    }
    return 0;
}
