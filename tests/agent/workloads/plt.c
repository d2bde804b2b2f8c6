// SPDX-License-Identifier: Apache-2.0
/*
 * plt SECONDS: nothing but calls through the procedure linkage table, so that ticks fall into its
 * stubs. Linked in different ways: with the linker's unwind information for them and without, as
 * lld does.
 */
#include <stdlib.h>
#include <time.h>

static __attribute__((noinline)) void calls(void)
{
    for (int i = 0; i < 200000; i++)
        (void)labs(i); /* a leaf of libc; not built in: -fno-builtin */
    __asm__ volatile("" ::: "memory");
}

int main(int argc, char **argv)
{
    time_t end = time(NULL) + (argc == 2 ? atol(argv[1]) : 1);

    while (time(NULL) < end)
        calls();
    return 0;
}
