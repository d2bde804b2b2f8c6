// SPDX-License-Identifier: Apache-2.0
/*
 * strata-workload [-o FD] NAME ARGUMENT...: the controlled programs of `strata validate`.
 *
 *   photos     60 / 30 / 10 % of CPU time in three functions; photos.c
 *   burn       so many seconds of CPU time; burn.c
 *   blocked    threads that wait for known times; blocked.c
 *   steps      marks steps and says when; steps.c
 *   syscalls N read(2) of a device in a loop, for N ms of CPU time
 *   children N MS  N programs one after the other, each of MS ms of CPU time and no longer
 *
 * A program of its own, installed beside the agent: compiled without frame pointers, as
 * distributions compile, and with none of the agent's code in it. -o: what it says goes to that
 * descriptor, and its input is one line, then the end.
 */
#include "demo/workload.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#if defined(__clang__)
#define FRAME __attribute__((noinline))
#else
#define FRAME __attribute__((noipa))
#endif

enum {
    BLOCK = 1 << 20, /* so long that the call outweighs its entry and exit */
    MAX_NUMBER = 1000000,
};

static bool number(const char *text, unsigned *ret)
{
    unsigned v = 0;

    for (const char *p = text; *p; p++) {
        if (*p < '0' || *p > '9' || v > MAX_NUMBER)
            return false;
        v = v * 10 + (unsigned)(*p - '0');
    }
    *ret = v;
    return v > 0 && v <= MAX_NUMBER;
}

static int64_t cpu_ns(void)
{
    struct timespec t = {};

    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* ---- syscalls ------------------------------------------------------------------------------- */

FRAME static uint64_t read_block(int fd)
{
    static char block[BLOCK];
    ssize_t n = read(fd, block, sizeof block);

    return n > 0 ? (uint64_t)n : 0;
}

int syscalls_main(int argc, char **argv)
{
    int fd = open("/dev/zero", O_RDONLY | O_CLOEXEC);
    uint64_t bytes = 0;
    unsigned ms;

    if (fd < 0 || argc != 2 || !number(argv[1], &ms))
        return 2;
    for (int64_t end = cpu_ns() + (int64_t)ms * 1000000; cpu_ns() < end;)
        for (int i = 0; i < 10; i++)
            bytes += read_block(fd);
    printf("bytes=%" PRIu64 "\n", bytes);
    (void)close(fd);
    return 0;
}

/* ---- children ------------------------------------------------------------------------------- */

static void one_child(char *seconds)
{
    char name[] = "strata-workload", work[] = "burn";
    char *args[] = {name, work, seconds, NULL};
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);

    if (null >= 0 && dup2(null, 0) == 0 && dup2(null, 1) == 1)
        (void)execv("/proc/self/exe", args);
    _exit(127);
}

static int64_t tv_ns(struct timeval t)
{
    return ((int64_t)t.tv_sec * 1000000 + t.tv_usec) * 1000;
}

/* Prints how many, their CPU time by getrusage(2), and the pids. */
int children_main(int argc, char **argv)
{
    struct rusage u;
    char seconds[32];
    unsigned n, ms;
    int status;

    if (argc != 3 || !number(argv[1], &n) || !number(argv[2], &ms))
        return 2;
    if (snprintf(seconds, sizeof seconds, "%u.%03u", ms / 1000, ms % 1000) < 0)
        return 2;
    for (unsigned i = 0; i < n; i++) {
        pid_t pid = fork();

        if (pid == 0)
            one_child(seconds);
        if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFEXITED(status) ||
            WEXITSTATUS(status) != 0)
            return 1;
    }
    (void)getrusage(RUSAGE_CHILDREN, &u);
    printf("children=%u cpu_ns=%" PRId64 "\n", n, tv_ns(u.ru_utime) + tv_ns(u.ru_stime));
    return 0;
}

/* ---- which ---------------------------------------------------------------------------------- */

/* Standard output to fd; standard input one line from a pipe. */
static bool redirect(unsigned fd)
{
    int in[2];

    if (pipe2(in, O_CLOEXEC) < 0 || write(in[1], "\n", 1) != 1 || dup2(in[0], 0) < 0)
        return false;
    (void)close(in[1]);
    return dup2((int)fd, 1) == 1;
}

static int usage(void)
{
    (void)fputs("usage: strata-workload [-o FD] photos|burn|blocked|steps|syscalls|children "
                "ARGUMENT...\n"
                "Controlled programs of `strata validate`.\n",
                stderr);
    return 2;
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        int (*run)(int, char **);
    } works[] = {{"photos", photos_main}, {"burn", burn_main},         {"blocked", blocked_main},
                 {"steps", steps_main},   {"syscalls", syscalls_main}, {"children", children_main}};
    unsigned fd;

    if (argc > 2 && strcmp(argv[1], "-o") == 0) {
        if (!number(argv[2], &fd) || !redirect(fd))
            return usage();
        argc -= 2;
        argv += 2;
    }
    for (size_t i = 0; argc > 1 && i < sizeof works / sizeof works[0]; i++)
        if (strcmp(argv[1], works[i].name) == 0) {
            int status = works[i].run(argc - 1, argv + 1);

            return fflush(stdout) == 0 ? status : 1;
        }
    return usage();
}
