// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bench/bench_store.h"
#include "server/api.h"
#include "server/ingest.h"
#include "server/pool.h"

#define MIB  (UINT64_C(1) << 20)
#define HOUR "2026-11-29T13:00:00Z"

void bench_die(const char *what, const struct err *err)
{
    data_die("%s: %s", what, err->msg);
}

/* ---- files ----------------------------------------------------------------------------------- */

static struct bench_bytes found; /* nftw has no context */
static size_t found_skip;

static int add_file(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    struct str s = str_from(str_c(path), found_skip);
    uint64_t *to = &found.other;

    (void)ftw;
    if (type != FTW_F)
        return 0;
    if (str_starts(s, STR("shard/")))
        to = &found.shard;
    else if (str_starts(s, STR("dict/")))
        to = &found.dict;
    else if (str_starts(s, STR("catalog")))
        to = &found.catalog;
    else if (str_starts(s, STR("journal/")))
        to = &found.journal;
    *to += (uint64_t)st->st_size;
    return 0;
}

struct bench_bytes bench_bytes(const struct bench *b)
{
    found = (struct bench_bytes){};
    found_skip = strlen(b->dir) + 1;
    (void)nftw(b->dir, add_file, 16, FTW_PHYS);
    return found;
}

static uint32_t parts;

static int add_part(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    struct str s = str_from(str_c(path), found_skip);

    (void)st, (void)ftw;
    parts += type == FTW_F && str_starts(s, STR("shard/")) && str_ends(s, STR(".db"));
    return 0;
}

uint32_t bench_parts(const struct bench *b)
{
    parts = 0;
    found_skip = strlen(b->dir) + 1;
    (void)nftw(b->dir, add_part, 16, FTW_PHYS);
    return parts;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st, (void)type, (void)ftw;
    return remove(path);
}

/* ---- life ------------------------------------------------------------------------------------ */

static real_ns clock_of(void *ctx)
{
    struct bench *b = ctx;

    return (real_ns){atomic_load(&b->now)};
}

static void start(struct bench *b)
{
    static struct pool pool = {.max = 384 * MIB};
    struct ingest_conf ic = {.pool = &pool};
    struct store_conf sc = {.decode = ingest_replay,
                            .max_unsealed = UINT64_C(64) << 30,
                            .min_free = 64 * MIB,
                            .mem_head = UINT64_C(8) << 30,
                            .mem_dict = UINT64_C(2) << 30,
                            .mem_query = UINT64_C(4) << 30,
                            .workers = b->workers,
                            .warm = b->warm,
                            .now = clock_of,
                            .now_ctx = b};
    struct api_conf ac = {.mem_max = UINT64_C(4) << 30, .answer_max = 256 * MIB};
    struct err err = {};

    bench_forget_sums();
    wire_limits_default(&ic.limits);
    b->ingest = ingest_new(&ic);
    sc.dir = b->dir;
    sc.decode_ctx = b->ingest;
    sc.limits = ic.limits.batch;
    sc.limits.series_per_service = 100000;
    sc.limits.series = 1000000;
    if (store_open(&sc, &b->store, &err) < 0)
        bench_die("open", &err);
    ac.store = b->store;
    b->api = api_new(&ac);
}

void bench_open(struct bench *b, const char *below, const char *data, uint32_t workers)
{
    real_ns hour;

    if (!real_ns_parse(STR(HOUR), &hour))
        data_die("the hour is no time");
    bench_open_at(b, below, data, workers, hour);
}

static void prepare(struct bench *b, const char *data, uint32_t workers, real_ns hour)
{
    *b = (struct bench){.workers = workers, .hour = hour};
    if (data)
        b->d = data_open(data);
    atomic_store(&b->now, b->hour.v);
}

void bench_open_kept(struct bench *b, const char *dir, const char *data, uint32_t workers)
{
    real_ns hour;

    if (!real_ns_parse(STR(HOUR), &hour))
        data_die("the hour is no time");
    prepare(b, data, workers, hour);
    atomic_fetch_add(&b->now, DATA_SPAN_MS * NS_PER_MS);
    b->dir = strdup(dir);
    if (!b->dir)
        data_die("out of memory");
    start(b);
}

void bench_open_at(struct bench *b, const char *below, const char *data, uint32_t workers,
                   real_ns hour)
{
    prepare(b, data, workers, hour);
    if (asprintf(&b->dir, "%s/bench_store.XXXXXX", below) < 0 || !mkdtemp(b->dir))
        data_die("%s: no data directory can be made (--dir): %s", below, strerrordesc_np(errno));
    start(b);
}

static void stop(struct bench *b)
{
    (void)api_free(b->api);
    (void)store_close(b->store);
    (void)ingest_free(b->ingest);
}

void bench_reopen(struct bench *b)
{
    stop(b);
    start(b);
}

void bench_close(struct bench *b)
{
    bench_loader_free(b);
    stop(b);
    if (!b->keep)
        (void)nftw(b->dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    free(b->dir);
}

/* ---- sealing --------------------------------------------------------------------------------- */

void bench_seal(struct bench *b)
{
    struct err err = {};

    if (store_seal(b->store, &err) != 0)
        bench_die("seal", &err);
}
