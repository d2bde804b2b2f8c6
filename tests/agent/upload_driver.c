// SPDX-License-Identifier: Apache-2.0
/*
 * upload_driver URL BATCHES [KEY=VALUE...]: makes that many batches of the same few stacks, gives
 * them to the spool and lets the sender work until all are settled or time is over; prints what it
 * counted as JSON. The server is the test's.
 *   cap=BYTES  gap_ms=N between batches  wait_ms=N at most  grow=1 a new stack in each batch
 *   dir=DIR the spool's directory
 *   lockstep=1 each batch is settled before the next is made  tail=1 one more at the end
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "agent/send/batchmake.h"
#include "agent/send/upload.h"
#include "base/json_out.h"
#include "base/time.h"
#include "proto/wire.h"

#define P INT64_C(10101010)

static const struct proc app = {.tgid = 50,
                                .serial = 1,
                                .facts = 1,
                                .service = STR("app"),
                                .key = {.pidns = 1, .pid = 5, .start = {5}}};
static const uint8_t host[16] = {1};

static uint64_t option(int argc, char **argv, const char *name, uint64_t otherwise)
{
    size_t n = strlen(name);

    for (int i = 3; i < argc; i++) {
        uint64_t v;

        if (strncmp(argv[i], name, n) == 0 && argv[i][n] == '=' &&
            str_u64(str_c(argv[i] + n + 1), &v))
            return v;
    }
    return otherwise;
}

static const char *text_option(int argc, char **argv, const char *name, const char *otherwise)
{
    size_t n = strlen(name);

    for (int i = 3; i < argc; i++)
        if (strncmp(argv[i], name, n) == 0 && argv[i][n] == '=')
            return argv[i] + n + 1;
    return otherwise;
}

static void pause_ms(uint64_t ms)
{
    struct timespec t = {(time_t)(ms / 1000), (long)(ms % 1000 * 1000000)};

    nanosleep(&t, NULL);
}

/* 20 stacks of 6 frames; with extra one more, that no other batch has. */
static struct stackagg_window *window(struct stackagg *fold, real_ns t, uint64_t extra)
{
    const struct source_account a = {.covers = {t, {t.v + NS_PER_S}},
                                     .width = 1,
                                     .period = P,
                                     .received = 20 + (extra != 0),
                                     .identity_ok = true,
                                     .weight_ns = (uint64_t)P * (extra ? 21 : 20)};
    struct sa_ev *e = calloc(1, sizeof *e + 6 * sizeof(uint64_t));

    if (!e)
        abort();
    for (uint64_t i = 0; i < a.received; i++) {
        uint64_t own = i == 20 ? extra << 16 : 0;

        *e = (struct sa_ev){.kind = 1,
                            .tgid = 50,
                            .tid = 50,
                            .nk = 6,
                            .weight_ns = (uint64_t)P,
                            .stop = SA_S_KTHREAD};
        for (uint64_t k = 0; k < 6; k++)
            e->w[k] = UINT64_C(0xffffffff00000000) + own + i * (6 - k) + k;
        stackagg_add(fold, e, t, &app, host);
    }
    free(e);
    return stackagg_take(fold, &a);
}

static void make(struct batchmake *m, struct stackagg *fold, struct spool *spool, uint64_t seq,
                 bool grow)
{
    real_ns t = {(INT64_C(1700000000) + (int64_t)seq) * NS_PER_S};
    struct stackagg_window *w = window(fold, t, grow ? seq : 0);
    struct batchmake_dropped dropped[16];
    struct batchmake_job job = {.window = &w, .n_window = 1, .dropped = dropped};
    struct batchmake_info info;
    struct buf plain, body;
    struct err err = {};

    job.n_dropped = spool_take_dropped(spool, dropped, 16);
    buf_init(&plain, 1 << 24);
    buf_init(&body, 1 << 24);
    if (batchmake_make(m, &job, seq, &plain, &info, &err) < 0 ||
        wire_compress(buf_view(&plain), &body, &err) < 0) {
        (void)fprintf(stderr, "%s\n", err.msg);
        exit(1);
    }
    spool_put(spool, &(struct spool_new_batch){.seq = seq,
                                               .body = buf_view(&body),
                                               .info = &info,
                                               .told = dropped,
                                               .n_told = job.n_dropped});
    buf_deinit(&plain);
    buf_deinit(&body);
    stackagg_window_free(w);
}

static void settle(struct spool *spool, int64_t end)
{
    struct spool_stats st;

    do {
        pause_ms(5);
        spool_get_stats(spool, &st);
    } while (st.spooled && mono_now().v < end);
}

static void number(struct json_out *j, const char *key, uint64_t v)
{
    json_key(j, key);
    json_u64(j, v);
}

static void print(struct spool *spool, struct upload *u)
{
    struct upload_stats us;
    struct spool_stats st;
    struct json_out j;
    struct buf b;

    upload_get_stats(u, &us);
    spool_get_stats(spool, &st);
    buf_init(&b, 65536);
    json_init(&j, &b);
    json_object_begin(&j);
    number(&j, "produced", st.produced);
    number(&j, "inherited", st.inherited);
    number(&j, "sent", st.sent);
    number(&j, "damaged", st.damaged);
    number(&j, "foreign", st.foreign);
    number(&j, "memory_batches", st.memory_batches);
    number(&j, "write_failed", st.write_failed);
    number(&j, "duplicate", st.duplicate);
    number(&j, "spooled", st.spooled);
    number(&j, "retries", st.retries);
    number(&j, "requests", us.requests);
    number(&j, "dict_miss", us.dict_miss);
    number(&j, "known", us.known);
    number(&j, "rejected_rows", us.rejected_rows);
    number(&j, "short_bytes", us.short_bytes);
    number(&j, "full_bytes", us.full_bytes);
    number(&j, "max_bytes", us.max_bytes);
    json_key(&j, "state");
    json_cstr(&j, us.state);
    json_key(&j, "dropped");
    json_object_begin(&j);
    for (int i = 0; i < SPOOL_DROP_N; i++)
        number(&j, spool_drop_name((enum spool_drop)i), st.dropped[i]);
    json_object_end(&j);
    json_object_end(&j);
    printf("%.*s\n", STR_ARG(buf_view(&b)));
    buf_deinit(&b);
}

int main(int argc, char **argv)
{
    struct batchmake_conf bc = {
        .agent = {9},
        .hostname = STR("box"),
        .version = STR("1"),
        .names = {.cache = 1 << 20, .debug_dirs = "", .proc = "/nowhere", .sys = "/nowhere"}};
    struct upload_conf uc = {.url = argc > 1 ? argv[1] : "",
                             .token = "",
                             .ca_file = "",
                             .interval_ns = 100 * NS_PER_MS,
                             .backoff_ns = 20 * NS_PER_MS,
                             .refused_ns = 50 * NS_PER_MS};
    struct spool_conf sc = {.max_age = 3600 * NS_PER_S};
    struct err err = {};
    struct upload *u = NULL;
    struct spool *spool;
    struct stackagg *fold;
    struct batchmake *m;
    uint64_t n;
    int64_t end;

    if (argc < 3 || !str_u64(str_c(argv[2]), &n))
        return 2;
    end = mono_now().v + (int64_t)option(argc, argv, "wait_ms", 30000) * NS_PER_MS;
    memcpy(bc.boot, &end, sizeof end);
    if (getenv("STRATA_TEST_TOKEN"))            // NOLINT(concurrency-mt-unsafe): no thread yet
        uc.token = getenv("STRATA_TEST_TOKEN"); // NOLINT(concurrency-mt-unsafe)
    memcpy(sc.boot, bc.boot, sizeof sc.boot);
    sc.dir = text_option(argc, argv, "dir", "");
    sc.cap = option(argc, argv, "cap", 1 << 24);
    spool = spool_new(&sc);
    fold = stackagg_new();
    m = batchmake_new(&bc);
    if (upload_start(&uc, spool, &u, &err) < 0) {
        (void)fprintf(stderr, "%s\n", err.msg);
        return 1;
    }
    for (uint64_t seq = 1; seq <= n; seq++) {
        make(m, fold, spool, seq, option(argc, argv, "grow", 0) != 0);
        pause_ms(option(argc, argv, "gap_ms", 0));
        if (option(argc, argv, "lockstep", 0))
            settle(spool, end);
    }
    settle(spool, end);
    if (option(argc, argv, "tail", 0)) {
        make(m, fold, spool, n + 1, false);
        settle(spool, end);
    }
    upload_stop(u, 0);
    print(spool, u);
    upload_free(u);
    batchmake_free(m);
    stackagg_free(fold);
    spool_free(spool);
    return 0;
}
