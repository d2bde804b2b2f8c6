// SPDX-License-Identifier: Apache-2.0
/*
 * spin_loop CPU MILLION-TURNS: the same work for each line of standard input, pinned to one CPU, 18
 * calls deep without frame pointers: the loop whose slow-down bench_agent measures. Prints the CPU
 * nanoseconds of each.
 */
#include <inttypes.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <time.h>

#include "base/str.h"

static volatile unsigned long sink;

static int64_t cpu_ns(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
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
    uint64_t cpu, turns;
    char line[16];
    cpu_set_t one;

    if (argc != 3 || !str_u64(str_c(argv[1]), &cpu) || !str_u64(str_c(argv[2]), &turns)) {
        (void)fputs("usage: spin_loop CPU MILLION-TURNS\n", stderr);
        return 2;
    }
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    if (sched_setaffinity(0, sizeof one, &one)) {
        perror("sched_setaffinity");
        return 1;
    }
    while (fgets(line, sizeof line, stdin)) {
        int64_t used = cpu_ns();

        sink += work(17, turns * 1000000) & 1;
        (void)printf("%" PRId64 "\n", cpu_ns() - used);
        (void)fflush(stdout);
    }
    return 0;
}
