// SPDX-License-Identifier: Apache-2.0
/*
 * How close does the journal come to appending the same bytes to a plain file?
 *
 * 16 clients, one batch in flight each, through store_append; beside it, in turns, a file that gets
 * groups of the same size (bytes per commit as the store counted them) with write + fdatasync.
 * Payloads are random bytes of 4, 64, 256 and 512 KiB with one row each, so that nothing but the
 * journal works. Bytes written are those of /proc/self/io, which know every page that reached the
 * block layer.
 *
 *   value,NAME,VALUE,UNIT,N       NAME ends in the payload's size in KiB
 */
#include <argp.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <unistd.h>

#include "bench/bench_store.h"
#include "bench/bench_stream.h"

enum {
    CLIENTS = 16,
    TURNS = 5,
};

struct options {
    const char *dir;
    bool smoke;
};

static void value(const char *name, uint32_t kib, double v, const char *unit, uint64_t n)
{
    (void)printf("value,%s_%u,%.6g,%s,%" PRIu64 "\n", name, kib, v, unit, n);
    (void)fflush(stdout);
}

/* write_bytes of this process; false where the kernel does not say. */
static bool written(uint64_t *ret)
{
    FILE *f = fopen("/proc/self/io", "re");
    char line[128];
    bool found = false;

    while (f && fgets(line, sizeof line, f))
        found |= strncmp(line, "write_bytes: ", 13) == 0 &&
                 str_u64((struct str){line + 13, strcspn(line + 13, "\n")}, ret);
    if (f)
        (void)fclose(f);
    return found;
}

/* ---- the store ------------------------------------------------------------------------------- */

struct client {
    struct stream stream;
    struct run *run;
};

struct run {
    struct client client[CLIENTS];
    sem_t ready;
    uint32_t queue[CLIENTS]; /* clients that may send; written by the store's thread */
    _Atomic uint32_t tail;
    uint32_t head;
};

static void on_done(void *ctx, int r, uint64_t lsn, const struct err *err)
{
    struct client *c = ctx;
    struct run *run = c->run;

    (void)lsn;
    if (r != 0) {
        (void)fprintf(stderr, "bench_journal: outcome %d: %s\n", r, err ? err->msg : "");
        exit(EXIT_FAILURE); // NOLINT(concurrency-mt-unsafe): nothing to clean up
    }
    run->queue[atomic_load(&run->tail) % CLIENTS] = (uint32_t)(c - run->client);
    atomic_fetch_add(&run->tail, 1);
    (void)sem_post(&run->ready);
}

static void wait_one(struct run *run)
{
    while (sem_wait(&run->ready) < 0)
        ;
}

/* Seconds for n batches of this payload. */
static double through_store(struct bench *b, struct run *run, struct str payload, uint64_t n)
{
    double begun = data_wall_ns();

    run->head = 0;
    atomic_store(&run->tail, CLIENTS);
    for (uint32_t i = 0; i < CLIENTS; i++) {
        run->queue[i] = i;
        (void)sem_post(&run->ready);
    }
    for (uint64_t i = 0; i < n; i++) {
        struct client *c;
        real_ns t;

        wait_one(run);
        c = &run->client[run->queue[run->head++ % CLIENTS]];
        t.v = b->hour.v + (int64_t)(c->stream.seq % 3000) * NS_PER_S;
        stream_next(&c->stream, t, NS_PER_S, false);
        store_append(b->store, &c->stream.batch, payload, on_done, c);
    }
    for (uint32_t i = 0; i < CLIENTS; i++)
        wait_one(run);
    return (data_wall_ns() - begun) / 1e9;
}

/* ---- the floor ------------------------------------------------------------------------------- */

static double through_file(const char *below, struct str bytes, uint64_t total, uint64_t group)
{
    char path[4096];
    double begun;
    int fd;

    (void)snprintf(path, sizeof path, "%s/floor", below);
    fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0600);
    if (fd < 0)
        data_die("%s: %s", path, strerrordesc_np(errno));
    begun = data_wall_ns();
    for (uint64_t done = 0; done < total; done += group) {
        for (uint64_t at = 0; at < group;) {
            size_t n = group - at < bytes.n ? group - at : bytes.n;

            if (write(fd, bytes.p, n) != (ssize_t)n)
                data_die("write: %s", strerrordesc_np(errno));
            at += n;
        }
        if (fdatasync(fd) < 0)
            data_die("fdatasync: %s", strerrordesc_np(errno));
    }
    begun = (data_wall_ns() - begun) / 1e9;
    (void)close(fd);
    (void)unlink(path);
    return begun;
}

/* ---- the question ---------------------------------------------------------------------------- */

static int double_cmp(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static void measure(struct bench *b, struct run *run, uint32_t kib, uint64_t total, int turns)
{
    struct str payload = {malloc((size_t)kib << 10), (size_t)kib << 10};
    double ratio[TURNS], store_s = 0, file_s = 0;
    uint64_t n = total / payload.n, io0 = 0, io1 = 0, io = 0, groups = 0;
    struct store_stats s0, s1;
    bool known = true;

    if (!payload.p)
        data_die("out of memory");
    for (size_t at = 0; at < payload.n; at += 256)
        if (getrandom((char *)(uintptr_t)payload.p + at, 256, 0) != 256)
            data_die("getrandom");
    for (int turn = 0; turn < turns; turn++) {
        double s, f;

        store_stats(b->store, &s0);
        known &= written(&io0);
        s = through_store(b, run, payload, n);
        known &= written(&io1);
        store_stats(b->store, &s1);
        f = through_file(b->dir, payload, n * payload.n, n * payload.n / (s1.commits - s0.commits));
        ratio[turn] = f / s;
        store_s += s;
        file_s += f;
        io += io1 - io0;
        groups += s1.commits - s0.commits;
    }
    qsort(ratio, (size_t)turns, sizeof *ratio, double_cmp);
    n *= (uint64_t)turns;
    value("journal_rate", kib, (double)(n * payload.n) / 1e6 / store_s, "MB/s", n);
    value("file_rate", kib, (double)(n * payload.n) / 1e6 / file_s, "MB/s", groups);
    value("journal_group", kib, (double)n / (double)groups, "batches", groups);
    value("journal_over_file", kib, ratio[turns / 2], "ratio", (uint64_t)turns);
    if (known && io)
        value("journal_written", kib, (double)io / (double)(n * payload.n), "B per byte", n);
    free((void *)(uintptr_t)payload.p);
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct options *o = state->input;

    switch (key) {
    case 'd':
        o->dir = arg;
        return 0;
    case 's':
        o->smoke = true;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

int main(int argc, char **argv)
{
    static const struct argp_option options[] = {
        {"dir", 'd', "DIR", 0, "where the store is made, on a disk; default /var/tmp", 0},
        {"smoke", 's', NULL, 0, "the least that shows it works", 0},
        {},
    };
    static const uint32_t sizes[] = {4, 64, 256, 512};
    const struct argp argp = {.options = options, .parser = parse};
    struct options o = {.dir = "/var/tmp"};
    struct run *run = data_alloc(1, sizeof *run);
    struct bench b;

    if (argp_parse(&argp, argc, argv, 0, NULL, &o) != 0)
        return 2;
    bench_open(&b, o.dir, NULL, 1);
    (void)sem_init(&run->ready, 0, 0);
    for (uint32_t i = 0; i < CLIENTS; i++) {
        struct client *c = &run->client[i];
        struct err err = {};

        c->run = run;
        stream_init(&c->stream, i, 1);
        stream_next(&c->stream, b.hour, NS_PER_S, true);
        if (store_append_wait(b.store, &c->stream.batch, buf_view(&c->stream.payload), NULL, &err))
            bench_die("definitions", &err);
    }
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        measure(&b, run, sizes[i],
                (uint64_t)(o.smoke         ? 1
                           : sizes[i] < 64 ? 16
                                           : 64)
                    << 20,
                o.smoke ? 1 : TURNS);
    bench_close(&b);
    for (uint32_t i = 0; i < CLIENTS; i++)
        stream_deinit(&run->client[i].stream);
    free(run);
    return 0;
}
