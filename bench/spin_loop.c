// SPDX-License-Identifier: Apache-2.0
/*
 * spin_loop CPU MILLION-TURNS RUNS: the same work again and again, pinned to one CPU, 18 calls deep
 * without frame pointers, as the loop whose slow-down bench_agent measures. Prints wall and CPU
 * nanoseconds of each run.
 */
#include <inttypes.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <time.h>

#include "base/str.h"

static volatile unsigned long sink;

static int64_t clock_ns(clockid_t id)
{
    struct timespec t;

    (void)clock_gettime(id, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

__attribute__((noinline)) static unsigned long work(unsigned depth, unsigned long turns)
{
    unsigned long r = 0;

    if (depth) {
        r = work(depth - 1, turns);
        __asm__ volatile("" ::: "memory"); /* a call, not a jump */
        return r + 1;
    }
    for (unsigned long i = 0; i < turns; i++)
        r += i ^ sink;
    return r;
}

int main(int argc, char **argv)
{
    uint64_t cpu, turns, runs;
    cpu_set_t one;

    if (argc != 4 || !str_u64(str_c(argv[1]), &cpu) || !str_u64(str_c(argv[2]), &turns) ||
        !str_u64(str_c(argv[3]), &runs)) {
        (void)fputs("usage: spin_loop CPU MILLION-TURNS RUNS\n", stderr);
        return 2;
    }
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    if (sched_setaffinity(0, sizeof one, &one)) {
        perror("sched_setaffinity");
        return 1;
    }
    turns *= 1000000;
    for (uint64_t i = 0; i < runs; i++) {
        int64_t wall = clock_ns(CLOCK_MONOTONIC), used = clock_ns(CLOCK_THREAD_CPUTIME_ID);

        sink += work(17, turns) & 1;
        (void)printf("%" PRId64 " %" PRId64 "\n", clock_ns(CLOCK_MONOTONIC) - wall,
                     clock_ns(CLOCK_THREAD_CPUTIME_ID) - used);
    }
    return 0;
}
