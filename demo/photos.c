// SPDX-License-Identifier: Apache-2.0
/*
 * [-t THREADS] [-l PERCENT] [-s SECONDS]
 *
 * A photo server without photos, made to be profiled. Whatever the machine does, its CPU time goes
 *     60 %  blur_image       under render_page, make_thumbnail
 *     30 %  compress_image   likewise
 *     10 %  hash_tags        under search_folder, which calls itself: 64 frames deep
 * because each thread always runs the function that is furthest behind its share of the thread's
 * own CPU clock, in short slices. Wall time plays no part: a busy machine changes how much is
 * burned, never the shares. Compiled without frame pointers, as distributions compile.
 *
 * Runs until SIGINT or SIGTERM (or for SECONDS); then says on standard output what it burned.
 */
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "demo/workload.h"

/* Each function is a frame of its own, under its own name. */
#if defined(__clang__)
#define FRAME __attribute__((noinline))
#else
#define FRAME __attribute__((noipa))
#endif

enum {
    MAX_THREADS = 64,
    SIDE = 128,         /* of a picture, in pixels */
    FOLDERS = 64,       /* how deep search_folder goes */
    SLICE_NS = 400000,  /* of one function, on average */
    PAUSE_NS = 8000000, /* of a thread that is ahead of its load, on average */
};

enum job {
    BLUR,
    COMPRESS,
    HASH,
    N_JOB,
};
static const int share[N_JOB] = {[BLUR] = 60, [COMPRESS] = 30, [HASH] = 10};

struct worker {
    pthread_t thread;
    unsigned index, load; /* load: percent of one CPU */
    uint64_t random;
    int64_t used[N_JOB];    /* CPU time inside each function, ns */
    int64_t unit_ns[N_JOB]; /* of one unit of work, measured as it goes */
    uint64_t folders;       /* visited */
    uint64_t checksum;      /* of all results: nothing is optimised away */
    uint8_t picture[SIDE][SIDE], blurred[SIDE][SIDE], packed[2 * SIDE];
};

static atomic_bool stopping;

static int64_t clock_ns(clockid_t clock)
{
    struct timespec t = {};

    if (clock_gettime(clock, &t) != 0)
        abort();
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* splitmix64: the lengths of slices and pauses keep no step with anyone's sampling clock */
static uint64_t next_random(struct worker *w)
{
    uint64_t z = w->random += 0x9e3779b97f4a7c15u;

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* ---- the three that burn; a unit is one row of the picture ---------------------------------- */

FRAME static void blur_image(struct worker *w, int64_t rows)
{
    for (int64_t i = 0; i < rows; i++) {
        size_t y = 1 + (size_t)i % (SIDE - 2);

        for (size_t x = 1; x < SIDE - 1; x++) {
            unsigned sum = 0;

            for (size_t dy = 0; dy < 3; dy++)
                for (size_t dx = 0; dx < 3; dx++)
                    sum += w->picture[y + dy - 1][x + dx - 1];
            w->blurred[y][x] = (uint8_t)(sum / 9);
        }
        w->checksum += w->blurred[y][SIDE / 2];
    }
}

FRAME static void compress_image(struct worker *w, int64_t rows)
{
    for (int64_t i = 0; i < rows; i++) {
        const uint8_t *row = w->picture[(size_t)i % SIDE];
        size_t n = 0;

        for (size_t x = 0; x < SIDE;) { /* runs of one colour: length, colour */
            size_t run = 1;

            while (x + run < SIDE && run < 255 && row[x + run] == row[x])
                run++;
            w->packed[n++] = (uint8_t)run;
            w->packed[n++] = row[x];
            x += run;
        }
        w->checksum += n;
    }
}

FRAME static void hash_tags(struct worker *w, int64_t rows)
{
    uint64_t hash = 0xcbf29ce484222325u; /* FNV-1a */

    for (int64_t i = 0; i < rows; i++)
        for (size_t x = 0; x < SIDE; x++)
            hash = (hash ^ w->picture[(size_t)i % SIDE][x]) * 0x100000001b3u;
    w->checksum += hash;
}

/* ---- the way there --------------------------------------------------------------------------- */

FRAME static void run_slice(struct worker *w, enum job job)
{
    static void (*const run[N_JOB])(struct worker *, int64_t) = {
        [BLUR] = blur_image, [COMPRESS] = compress_image, [HASH] = hash_tags};
    int64_t slice = SLICE_NS / 2 + (int64_t)(next_random(w) % SLICE_NS);
    int64_t units = slice / w->unit_ns[job] + 1;
    int64_t before = clock_ns(CLOCK_THREAD_CPUTIME_ID);
    int64_t spent;

    run[job](w, units);
    spent = clock_ns(CLOCK_THREAD_CPUTIME_ID) - before;
    w->used[job] += spent;
    /* half old, half new: the next slice is about as long as it was meant to be */
    w->unit_ns[job] = (w->unit_ns[job] + spent / units) / 2;
    if (w->unit_ns[job] < 1)
        w->unit_ns[job] = 1;
}

FRAME static void search_folder(struct worker *w, int level)
{
    if (level < FOLDERS)
        search_folder(w, level + 1);
    else
        run_slice(w, HASH);
    w->folders++; /* after the call, so that it is none that could be replaced by a jump */
}

FRAME static void make_thumbnail(struct worker *w, enum job job)
{
    run_slice(w, job);
    w->picture[next_random(w) % SIDE][next_random(w) % SIDE] ^= 1;
}

FRAME static void render_page(struct worker *w, enum job job)
{
    make_thumbnail(w, job);
    w->checksum ^= w->blurred[1][1];
}

static enum job furthest_behind(const struct worker *w)
{
    enum job job = BLUR;

    for (enum job j = COMPRESS; j < N_JOB; j++)
        if (w->used[j] * share[job] < w->used[job] * share[j])
            job = j;
    return job;
}

FRAME static void handle_request(struct worker *w)
{
    enum job job = furthest_behind(w);

    if (job == HASH)
        search_folder(w, 1);
    else
        render_page(w, job);
    w->checksum++;
}

/* Sleeps where the thread is ahead of its load. */
static void keep_load(struct worker *w, int64_t begun)
{
    int64_t wall = clock_ns(CLOCK_MONOTONIC) - begun;
    int64_t cpu = clock_ns(CLOCK_THREAD_CPUTIME_ID);
    int64_t ahead = cpu - wall / 100 * w->load;
    struct timespec pause = {};

    if (w->load >= 100 || ahead <= 0)
        return;
    ahead = ahead * 100 / w->load + (int64_t)(next_random(w) % (UINT64_C(2) * PAUSE_NS));
    pause.tv_sec = ahead / 1000000000;
    pause.tv_nsec = ahead % 1000000000;
    (void)nanosleep(&pause, NULL);
}

FRAME static void serve_requests(struct worker *w)
{
    int64_t begun = clock_ns(CLOCK_MONOTONIC);

    while (!atomic_load_explicit(&stopping, memory_order_relaxed)) {
        handle_request(w);
        keep_load(w, begun);
    }
}

static void *worker_main(void *arg)
{
    struct worker *w = arg;
    char name[16];

    if (snprintf(name, sizeof name, "photo-%u", w->index) > 0)
        (void)pthread_setname_np(pthread_self(), name);
    /* no two threads, and no two runs, take the same turns */
    w->random = w->index ^ ((uint64_t)clock_ns(CLOCK_REALTIME) << 8);
    for (size_t y = 0; y < SIDE; y++)
        for (size_t x = 0; x < SIDE; x++)
            w->picture[y][x] = (uint8_t)(next_random(w) & 3);
    for (enum job j = BLUR; j < N_JOB; j++)
        w->unit_ns[j] = 1000;
    serve_requests(w);
    return NULL;
}

/* ---- start, stop, report --------------------------------------------------------------------- */

static void report(const struct worker *w, unsigned n)
{
    int64_t used[N_JOB] = {};

    for (unsigned i = 0; i < n; i++)
        for (enum job j = BLUR; j < N_JOB; j++)
            used[j] += w[i].used[j];
    printf("cpu_ns=%" PRId64 " blur_image=%" PRId64 " compress_image=%" PRId64 " hash_tags=%" PRId64
           "\n",
           clock_ns(CLOCK_PROCESS_CPUTIME_ID), used[BLUR], used[COMPRESS], used[HASH]);
}

static int usage(void)
{
    (void)fputs(
        "usage: demo [-t THREADS 1-64] [-l PERCENT 1-100 of a CPU each] [-s SECONDS 1-86400]\n",
        stderr);
    return 2;
}

static bool number(const char *text, unsigned max, unsigned *ret)
{
    unsigned v = 0;

    for (const char *p = text; *p; p++) {
        if (*p < '0' || *p > '9' || v > max)
            return false;
        v = v * 10 + (unsigned)(*p - '0');
    }
    if (v < 1 || v > max)
        return false;
    *ret = v;
    return true;
}

static int run(unsigned threads, unsigned load, unsigned seconds)
{
    struct worker *w = calloc(threads, sizeof *w);
    struct timespec limit = {.tv_sec = (time_t)seconds};
    sigset_t ends;
    unsigned started = 0;

    if (!w)
        return 1;
    sigemptyset(&ends);
    sigaddset(&ends, SIGINT);
    sigaddset(&ends, SIGTERM);
    if (pthread_sigmask(SIG_BLOCK, &ends, NULL) != 0) /* threads inherit it: main alone waits */
        abort();
    for (; started < threads; started++) {
        int e;

        w[started].index = started + 1;
        w[started].load = load;
        e = pthread_create(&w[started].thread, NULL, worker_main, &w[started]);
        if (e) {
            (void)fprintf(stderr, "demo: thread %u: %s\n", started + 1, strerrordesc_np(e));
            break;
        }
    }
    if (started == threads) {
        printf("demo: pid %d, %u threads at %u %% of a CPU each\n", getpid(), threads, load);
        (void)fflush(stdout);
        while ((seconds ? sigtimedwait(&ends, NULL, &limit) : sigwaitinfo(&ends, NULL)) < 0 &&
               errno == EINTR) {
        }
    }
    atomic_store(&stopping, true);
    for (unsigned i = 0; i < started; i++)
        (void)pthread_join(w[i].thread, NULL);
    report(w, started);
    free(w);
    return started == threads ? 0 : 1;
}

int photos_main(int argc, char **argv)
{
    unsigned threads = 2, load = 60, seconds = 0;
    int c;

    while ((c = getopt(argc, argv, "t:l:s:")) != -1) { // NOLINT(concurrency-mt-unsafe): one thread
        bool ok = (c == 't' && number(optarg, MAX_THREADS, &threads)) ||
                  (c == 'l' && number(optarg, 100, &load)) ||
                  (c == 's' && number(optarg, 86400, &seconds));

        if (!ok)
            return usage();
    }
    return optind == argc ? run(threads, load, seconds) : usage();
}
