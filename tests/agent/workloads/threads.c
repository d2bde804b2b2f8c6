// SPDX-License-Identifier: Apache-2.0
/*
 * threads N MODE: N threads beside the main one, each in a known chain of calls, then "ready" on
 * standard output. What they do there, MODE:
 *   pause     wait on a condition that never comes
 *   spin      use CPU time
 *   read      wait in read(2) of an empty pipe
 *   epoll     wait in epoll_wait(2); the process prints "EINTR" if it ever fails so
 *   sys       system calls without end
 *   die       all end, with the process, after 0.3 s
 * The main thread sleeps in the same chain.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t never = PTHREAD_COND_INITIALIZER;
static pthread_barrier_t all;
static volatile unsigned long sink;
static int pipes[2], poll_fd, zero_fd;

__attribute__((noinline)) static void work_leaf(char mode)
{
    struct epoll_event e;
    char c[4096];

    for (;;) {
        if (mode == 'p') {
            (void)pthread_mutex_lock(&mu);
            (void)pthread_cond_wait(&never, &mu);
            (void)pthread_mutex_unlock(&mu);
        } else if (mode == 'r') {
            (void)!read(pipes[0], c, 1);
        } else if (mode == 'e') {
            if (epoll_wait(poll_fd, &e, 1, -1) < 0)
                (void)printf("%s\n", errno == EINTR ? "EINTR" : "error");
        } else if (mode == 'y') {
            (void)!read(zero_fd, c, sizeof c);
        } else if (mode == 'm') {
            const struct timespec t = {.tv_sec = 1000};

            (void)nanosleep(&t, NULL);
        } else if (mode == 'd') {
            const struct timespec t = {.tv_nsec = 300000000};

            (void)nanosleep(&t, NULL);
            _exit(0);
        } else {
            for (int i = 0; i < 10000; i++)
                sink += (unsigned long)i;
        }
    }
}

__attribute__((noinline)) static void work_inner(char mode, int depth)
{
    if (depth > 0)
        work_inner(mode, depth - 1);
    else
        work_leaf(mode);
    sink++;
}

__attribute__((noinline)) static void work_outer(char mode)
{
    work_inner(mode, 3);
    sink++;
}

static void *thread(void *arg)
{
    (void)pthread_barrier_wait(&all);
    work_outer(*(const char *)arg);
    return NULL;
}

int main(int argc, char **argv)
{
    int n = argc > 2 ? atoi(argv[1]) : 0; // NOLINT(cert-err34-c)
    char mode = argc > 2 ? argv[2][0] : 'p';
    pthread_t t;

    if (argc > 2 && strcmp(argv[2], "sys") == 0)
        mode = 'y';
    poll_fd = epoll_create1(0);
    zero_fd = open("/dev/zero", O_RDONLY);
    if (pipe(pipes) < 0 || poll_fd < 0 || zero_fd < 0)
        return 1;
    (void)setvbuf(stdout, NULL, _IOLBF, 0);
    (void)pthread_barrier_init(&all, NULL, (unsigned)n + 1);
    for (int i = 0; i < n; i++)
        if (pthread_create(&t, NULL, thread, &mode) != 0)
            return 1;
    (void)pthread_barrier_wait(&all);
    (void)puts("ready");
    work_outer('m');
    return 0;
}
