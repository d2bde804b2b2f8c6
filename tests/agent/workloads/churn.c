// SPDX-License-Identifier: Apache-2.0
/*
 * churn threads N SECONDS        N threads in thread_work()
 * churn spawn RATE SECONDS FILE  runs FILE RATE times a second (as "churn short"), as
 * "SERVICE-short" churn short                    0.2 ms in short_work() Prints how many
 * it ran.
 */
#include <pthread.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static volatile uint64_t sink;

static int64_t now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

__attribute__((noinline)) static void thread_work(int64_t until)
{
    while (now_ns() < until)
        for (unsigned i = 0; i < 100000; i++)
            sink += i;
}

__attribute__((noinline)) static void short_work(int64_t until)
{
    while (now_ns() < until)
        for (unsigned i = 0; i < 1000; i++)
            sink -= i;
}

static void *thread(void *ctx)
{
    thread_work(*(int64_t *)ctx);
    return NULL;
}

static int threads(unsigned n, int64_t until)
{
    pthread_t t[256];

    for (unsigned i = 0; i < n && i < 256; i++)
        pthread_create(&t[i], NULL, thread, &until);
    for (unsigned i = 0; i < n && i < 256; i++)
        pthread_join(t[i], NULL);
    return 0;
}

__attribute__((noinline)) static int spawn_work(unsigned rate, int64_t until, char *file)
{
    char arg[] = "short", service[128], *argv[] = {file, arg, NULL};
    char *envp[] = {service, NULL};
    int64_t begin = now_ns(), now;
    unsigned n = 0, reaped = 0;

    snprintf(service, sizeof service, "STRATA_SERVICE=%s-short", getenv("STRATA_SERVICE"));
    while ((now = now_ns()) < until) {
        pid_t pid;

        if (n < (now - begin) / (INT64_C(1000000000) / rate) && n - reaped < 200)
            n += posix_spawn(&pid, file, NULL, NULL, argv, envp) == 0;
        while (waitpid(-1, NULL, WNOHANG) > 0)
            reaped++;
    }
    while (wait(NULL) > 0)
        reaped++;
    printf("%u\n", reaped);
    return n == reaped ? 0 : 1;
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "short") == 0) {
        short_work(now_ns() + 200000);
        return 0;
    }
    if (argc < 4)
        return 2;
    if (strcmp(argv[1], "threads") == 0)
        return threads((unsigned)strtoul(argv[2], NULL, 10),
                       now_ns() + INT64_C(1000000000) * strtol(argv[3], NULL, 10));
    return argc < 5
               ? 2
               : spawn_work((unsigned)strtoul(argv[2], NULL, 10),
                            now_ns() + INT64_C(1000000000) * strtol(argv[3], NULL, 10), argv[4]);
}
