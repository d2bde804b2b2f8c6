// SPDX-License-Identifier: Apache-2.0
/*
 * blocked MS: threads that wait, each in its own way, for about MS ms: a sleep, a futex, a pipe,
 * the disk, epoll, and two that fight for a lock. Prints of each, in ns, what the kernel's own
 * counters say of its life under its name: wall, cpu, queued (waiting for a CPU:
 * /proc/thread-self/schedstat; -1: not counted here) and blocked, the rest of wall; and joined, the
 * most that wall can have been:
 *
 *     sleep.wall=N sleep.most=N sleep.cpu=N sleep.queued=N sleep.blocked=N
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "demo/workload.h"

#if defined(__clang__)
#define FRAME __attribute__((noinline))
#else
#define FRAME __attribute__((noipa))
#endif

#define MS         1000000L
#define ROUND_NS   (20 * MS)
#define HOLD_NS    (3 * MS)
#define DISK_BYTES (64 << 10)
#define N_WAITER   7

struct waiter {
    const char *name;
    void (*wait)(void);
    pthread_t thread;
    int64_t begun, wall, most, cpu, queued;
};

static int64_t until; /* CLOCK_MONOTONIC */
static uint32_t word; /* of the futex: a count of wakes */
static int pipe_fd[2] = {-1, -1}, event_fd = -1, epoll_fd = -1, disk_fd = -1;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char block[DISK_BYTES];

static int64_t clock_ns(clockid_t id)
{
    struct timespec t = {};

    (void)clock_gettime(id, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static bool going(void)
{
    return clock_ns(CLOCK_MONOTONIC) < until;
}

FRAME static void nap(void)
{
    const struct timespec t = {.tv_nsec = ROUND_NS};

    (void)nanosleep(&t, NULL);
}

FRAME static void wait_futex(void)
{
    uint32_t now = __atomic_load_n(&word, __ATOMIC_ACQUIRE);

    (void)syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, now, NULL, NULL, 0);
}

FRAME static void read_pipe(void)
{
    char c;

    (void)!read(pipe_fd[0], &c, 1);
}

FRAME static void write_disk(void)
{
    if (disk_fd < 0) {
        nap();
        return;
    }
    (void)!pwrite(disk_fd, block, sizeof block, 0);
    (void)fdatasync(disk_fd);
}

FRAME static void wait_epoll(void)
{
    struct epoll_event e;
    uint64_t n;

    if (epoll_wait(epoll_fd, &e, 1, -1) == 1)
        (void)!read(event_fd, &n, sizeof n);
}

FRAME static void fight(void)
{
    const struct timespec hold = {.tv_nsec = HOLD_NS};

    (void)pthread_mutex_lock(&lock);
    (void)nanosleep(&hold, NULL);
    (void)pthread_mutex_unlock(&lock);
}

/* The digits at text, and where they end. */
static int64_t number(const char *text, const char **ret_end)
{
    int64_t v = 0;

    for (; *text >= '0' && *text <= '9' && v < INT64_MAX / 16; text++)
        v = v * 10 + (*text - '0');
    *ret_end = text;
    return v;
}

static int64_t queued_ns(void)
{
    FILE *f = fopen("/proc/thread-self/schedstat", "re");
    char line[128] = "";
    const char *end;
    int64_t v = -1;

    if (f && fgets(line, sizeof line, f)) {
        (void)number(line, &end);
        if (*end == ' ')
            v = number(end + 1, &end);
    }
    if (f)
        (void)fclose(f);
    return v;
}

static void *run(void *arg)
{
    struct waiter *w = arg;
    int64_t begun, queued, cpu;

    w->begun = clock_ns(CLOCK_MONOTONIC);
    (void)pthread_setname_np(pthread_self(), w->name);
    begun = clock_ns(CLOCK_MONOTONIC);
    queued = queued_ns();
    cpu = clock_ns(CLOCK_THREAD_CPUTIME_ID);
    while (going())
        w->wait();
    w->queued = queued < 0 ? -1 : queued_ns() - queued;
    w->cpu = clock_ns(CLOCK_THREAD_CPUTIME_ID) - cpu;
    w->wall = clock_ns(CLOCK_MONOTONIC) - begun;
    (void)pthread_setname_np(pthread_self(), "done"); /* its end is not its life */
    w->most = clock_ns(CLOCK_MONOTONIC) - w->begun;
    return NULL;
}

static bool open_all(void)
{
    struct epoll_event e = {.events = EPOLLIN};

    event_fd = eventfd(0, EFD_CLOEXEC);
    epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    disk_fd = open("/var/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    return pipe2(pipe_fd, O_CLOEXEC) == 0 && event_fd >= 0 && epoll_fd >= 0 &&
           epoll_ctl(epoll_fd, EPOLL_CTL_ADD, event_fd, &e) == 0;
}

/* Whoever waits for another thread waits for this one. */
static void wake(void)
{
    const uint64_t one = 1;

    (void)__atomic_add_fetch(&word, 1, __ATOMIC_RELEASE);
    (void)syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
    (void)!write(pipe_fd[1], "", 1);
    (void)!write(event_fd, &one, sizeof one);
}

int blocked_main(int argc, char **argv)
{
    static struct waiter waiter[N_WAITER] = {
        {.name = "sleep", .wait = nap},        {.name = "futex", .wait = wait_futex},
        {.name = "pipe", .wait = read_pipe},   {.name = "disk", .wait = write_disk},
        {.name = "epoll", .wait = wait_epoll}, {.name = "lock-a", .wait = fight},
        {.name = "lock-b", .wait = fight},
    };
    const char *end = "";
    int64_t ms = argc == 2 ? number(argv[1], &end) : 0;

    if (ms <= 0 || ms > 1000000 || *end || !open_all())
        return 2;
    until = clock_ns(CLOCK_MONOTONIC) + ms * MS;
    for (int i = 0; i < N_WAITER; i++) {
        if (pthread_create(&waiter[i].thread, NULL, run, &waiter[i]) != 0)
            return 1;
    }
    while (going()) {
        nap();
        wake();
    }
    for (int i = 0; i < N_WAITER; i++) {
        /* one that looked at the clock just before the end waits once more */
        while (pthread_tryjoin_np(waiter[i].thread, NULL) == EBUSY) {
            wake();
            nap();
        }
    }
    for (int i = 0; i < N_WAITER; i++) {
        const struct waiter *w = &waiter[i];

        printf("%s.wall=%" PRId64 " %s.most=%" PRId64 " %s.cpu=%" PRId64 " %s.queued=%" PRId64
               " %s.blocked=%" PRId64 "\n",
               w->name, w->wall, w->name, w->most, w->name, w->cpu, w->name, w->queued, w->name,
               w->wall - w->cpu - (w->queued > 0 ? w->queued : 0));
    }
    return 0;
}
