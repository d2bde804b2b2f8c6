// SPDX-License-Identifier: Apache-2.0
/*
 * mixed SECONDS SYSTEM THREADS CHILDREN: CPU time in user mode and, by SYSTEM reads of /dev/zero
 * per round, in kernel mode; by so many threads and so many forked children, each for so many
 * seconds of wall clock.
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static volatile unsigned long sink;
static double seconds;
static int reads;

__attribute__((noinline)) static void user_part(void)
{
    for (int i = 0; i < 100000; i++)
        sink += (unsigned long)i;
}

__attribute__((noinline)) static void system_part(int fd)
{
    static _Thread_local char b[16384]; /* a frame that large is a warning in some compilers */

    for (int i = 0; i < reads; i++)
        sink += (unsigned long)read(fd, b, sizeof b);
}

static double now(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

__attribute__((noinline)) static void *rounds(void *arg)
{
    double end = now() + seconds;
    int fd = open("/dev/zero", O_RDONLY);

    /* the clock is a system call, where a kernel likes to preempt: seldom */
    while (now() < end) {
        for (int i = 0; i < 400; i += 1 + reads) {
            user_part();
            system_part(fd);
        }
    }
    (void)close(fd);
    return arg;
}

int main(int argc, char **argv)
{
    int n_thread = argc > 3 ? atoi(argv[3]) : 0, n_child = argc > 4 ? atoi(argv[4]) : 0;
    pthread_t t[64];

    seconds = argc > 1 ? strtod(argv[1], NULL) : 1;
    reads = argc > 2 ? atoi(argv[2]) : 0;
    for (int i = 0; i < n_child; i++)
        if (fork() == 0) {
            (void)rounds(NULL);
            _exit(0);
        }
    for (int i = 0; i < n_thread && i < 64; i++)
        (void)pthread_create(&t[i], NULL, rounds, NULL);
    (void)rounds(NULL);
    for (int i = 0; i < n_thread && i < 64; i++)
        (void)pthread_join(t[i], NULL);
    while (wait(NULL) > 0)
        ;
    return 0;
}
