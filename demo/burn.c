// SPDX-License-Identifier: Apache-2.0
/*
 * burn CPU-SECONDS [CPU [BURN-MS PAUSE-MS]]: uses so much CPU time by its own process clock, pinned
 * to that CPU, then prints the clock in ns. Waits for a line on stdin first, so that a watcher can
 * be ready. With two lengths it sleeps in between: both vary by half, so that they keep no step
 * with anyone's ticks.
 */
#include <inttypes.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "demo/workload.h"

static volatile unsigned long sink;

static int64_t cpu_ns(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

__attribute__((noinline)) static void leaf(unsigned long n)
{
    for (unsigned long i = 0; i < n; i++)
        sink += i;
}

/* "12.5"; what is no digit ends it. */
static double decimal(const char *text)
{
    double v = 0, unit = 1;
    bool behind = false;

    for (; (*text >= '0' && *text <= '9') || (*text == '.' && !behind); text++) {
        if (*text == '.') {
            behind = true;
            continue;
        }
        v = v * 10 + (*text - '0');
        unit = behind ? unit * 10 : unit;
    }
    return v / unit;
}

/* A length of ms on average, in ns. */
static int64_t about(double ms)
{
    return (int64_t)(ms * 1e6 * (0.5 + (double)rand() / RAND_MAX));
}

static void burn_until(int64_t end)
{
    while (cpu_ns() < end)
        leaf(20000);
}

static void burn_and_pause(int64_t end, double burn_ms, double pause_ms)
{
    while (cpu_ns() < end) {
        const struct timespec pause = {.tv_nsec = about(pause_ms)};
        int64_t next = cpu_ns() + about(burn_ms);

        burn_until(next < end ? next : end);
        (void)nanosleep(&pause, NULL);
    }
}

int burn_main(int argc, char **argv)
{
    int64_t end, begin;
    cpu_set_t one;
    char c;

    if (argc < 2) {
        (void)fputs("usage: burn CPU-SECONDS [CPU [BURN-MS PAUSE-MS]]\n", stderr);
        return 2;
    }
    if (argc > 2) {
        CPU_ZERO(&one);
        CPU_SET((size_t)decimal(argv[2]), &one);
        if (sched_setaffinity(0, sizeof one, &one)) {
            perror("sched_setaffinity");
            return 1;
        }
    }
    if (read(0, &c, 1) < 0)
        return 1;
    begin = cpu_ns();
    end = begin + (int64_t)(decimal(argv[1]) * 1e9);
    srand((unsigned)getpid());
    if (argc > 4)
        burn_and_pause(end, decimal(argv[3]), decimal(argv[4]));
    burn_until(end);
    (void)printf("%" PRId64 " %" PRId64 "\n", cpu_ns() - begin, cpu_ns());
    return 0;
}
