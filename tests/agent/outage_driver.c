// SPDX-License-Identifier: Apache-2.0
/*
 * outage_driver URL SECONDS [KEY=VALUE...]: a batch thread, a spool and a sender as in the agent,
 * with clocks that this program moves: SECONDS pass, a window each second and a batch each ten;
 * then time goes on, with batches, until the spool is empty. Prints as JSON what was made and what
 * is counted. The server is the test's; it knows these clocks from when batches say they were sent.
 *   dir=DIR  cap=BYTES  memory_cap=BYTES  stacks=N different ones in each window
 *   tail=SECONDS at most after that
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "agent/file/procfile.h"
#include "agent/send/batcher.h"
#include "agent/send/upload.h"
#include "agent/source/clock.h"
#include "base/arena.h"
#include "base/json_out.h"

#define P        INT64_C(10101010)
#define INTERVAL 10

static const struct proc app = {.tgid = 50,
                                .serial = 1,
                                .facts = 1,
                                .service = STR("app"),
                                .key = {.pidns = 1, .pid = 5, .start = {5}}};
static const uint8_t host[16] = {1};

/* A sanitizer keeps what was freed. */
#ifndef __has_feature
#define __has_feature(x) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || __has_feature(address_sanitizer)
#define RSS_COUNTS 0
#else
#define RSS_COUNTS 1
#endif

struct made {
    uint64_t n;
    int64_t weight;
};

static int argc_;
static char **argv_;

static const char *text_option(const char *name, const char *otherwise)
{
    size_t n = strlen(name);

    for (int i = 3; i < argc_; i++)
        if (strncmp(argv_[i], name, n) == 0 && argv_[i][n] == '=')
            return argv_[i] + n + 1;
    return otherwise;
}

static uint64_t option(const char *name, uint64_t otherwise)
{
    uint64_t v;

    return str_u64(str_c(text_option(name, "")), &v) ? v : otherwise;
}

static void pause_ms(uint64_t ms)
{
    struct timespec t = {(time_t)(ms / 1000), (long)(ms % 1000 * 1000000)};

    nanosleep(&t, NULL);
}

/* One second of four threads. */
static struct stackagg_window *window(struct stackagg *fold, real_ns t, uint64_t stacks,
                                      struct made *made)
{
    const struct source_account a = {.covers = {t, {t.v + NS_PER_S}},
                                     .width = 1,
                                     .period = P,
                                     .received = stacks,
                                     .identity_ok = true,
                                     .weight_ns = (uint64_t)P * stacks};
    struct sa_ev *e = xcalloc(1, sizeof *e + 12 * sizeof(uint64_t));

    for (uint64_t i = 0; i < stacks; i++) {
        uint64_t which = i + (i % 4 ? 0 : (uint64_t)(t.v / NS_PER_S % 50) * 10000);

        *e = (struct sa_ev){.kind = 1,
                            .tgid = 50,
                            .tid = 50 + (uint32_t)(i % 4),
                            .nk = 12,
                            .weight_ns = (uint64_t)P,
                            .stop = SA_S_KTHREAD};
        for (uint64_t k = 0; k < 12; k++)
            e->w[k] = UINT64_C(0xffffffff00000000) + (which >> (k / 2)) * 12 + k;
        stackagg_add(fold, e, t, &app, host);
    }
    free(e);
    made->n += stacks;
    made->weight += P * (int64_t)stacks;
    return stackagg_take(fold, &a);
}

/* Time passes; then the sender gets the time that it needs, of which these clocks know nothing. */
static void advance(int64_t ns, struct spool *spool)
{
    struct spool_stats st;

    clock_shift_add((struct clock_shift){ns, ns, ns});
    spool_wake(spool, false);
    for (int i = 0; i < 500; i++) {
        pause_ms(1);
        spool_get_stats(spool, &st);
        if (!st.in_flight)
            break;
    }
}

static void ten_seconds(struct batcher *b, struct stackagg *fold, struct spool *spool,
                        struct made *made, int steps)
{
    struct batcher_job job = {.n_window = INTERVAL, .window = xcalloc(INTERVAL, sizeof(void *))};
    struct clock_pair p = clock_pair_now();
    static real_ns t0; /* without a gap, though these clocks run a little ahead */

    t0.v = t0.v ? t0.v + INTERVAL * NS_PER_S : (p.real.v / NS_PER_S - INTERVAL) * NS_PER_S;

    job.clock = (struct batch_clock){.sent = p.real, .mono = p.mono, .real = p.real};
    for (uint32_t i = 0; i < INTERVAL; i++)
        job.window[i] = window(fold, (real_ns){t0.v + i * NS_PER_S}, option("stacks", 50), made);
    job.not_before = p.mono.v + NS_PER_S;
    batcher_put(b, &job);
    for (int i = 0; i < steps; i++)
        advance(INTERVAL * NS_PER_S / steps, spool);
}

static uint64_t rss(void)
{
    struct str text, key = STR("RssAnon:");
    uint64_t kib = 0;
    const char *at;
    struct buf b;

    buf_init(&b, 65536);
    if (procfile_read("/proc/self", "status", &b, NULL) < 0)
        abort();
    at = memmem(b.p, b.n, key.p, key.n);
    if (!at)
        abort();
    text = str_from(buf_view(&b), (size_t)(at - b.p) + key.n);
    while (text.n && (text.p[0] == ' ' || text.p[0] == '\t'))
        text = str_from(text, 1);
    if (!str_u64(str_to(text, str_find(text, ' ')), &kib))
        abort();
    buf_deinit(&b);
    return kib << 10;
}

static void number(struct json_out *j, const char *key, uint64_t v)
{
    json_key(j, key);
    json_u64(j, v);
}

static void print(struct spool *spool, const struct made *made, uint64_t base, uint64_t most)
{
    struct spool_stats st;
    struct json_out j;
    struct buf b;

    spool_get_stats(spool, &st);
    buf_init(&b, 65536);
    json_init(&j, &b);
    json_object_begin(&j);
    number(&j, "made_n", made->n);
    number(&j, "made_weight", (uint64_t)made->weight);
    number(&j, "rss_counts", RSS_COUNTS);
    number(&j, "rss_base", base);
    number(&j, "rss_most", most);
    number(&j, "produced", st.produced);
    number(&j, "inherited", st.inherited);
    number(&j, "sent", st.sent);
    number(&j, "duplicate", st.duplicate);
    number(&j, "spooled", st.spooled);
    number(&j, "untold", st.untold);
    number(&j, "write_failed", st.write_failed);
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
                             .interval_ns = INTERVAL * NS_PER_S};
    struct spool_conf sc = {.max_age = 24 * 3600 * NS_PER_S};
    struct stackagg *fold = stackagg_new();
    struct made made = {};
    struct upload *u = NULL;
    struct batcher *b = NULL;
    struct spool_stats st;
    struct err err = {};
    uint64_t seconds, base, most, now = (uint64_t)mono_now().v;

    argc_ = argc;
    argv_ = argv;
    if (argc < 3 || !str_u64(str_c(argv[2]), &seconds))
        return 2;
    memcpy(bc.boot, &now, sizeof now);
    memcpy(sc.boot, bc.boot, sizeof sc.boot);
    sc.dir = text_option("dir", "");
    sc.cap = option("cap", UINT64_C(1) << 30);
    sc.memory_cap = option("memory_cap", 0);
    struct spool *spool = spool_new(&sc);

    if (upload_start(&uc, spool, &u, &err) < 0 || batcher_start(&bc, spool, &b, &err) < 0) {
        (void)fprintf(stderr, "%s\n", err.msg);
        return 1;
    }
    ten_seconds(b, fold, spool, &made, INTERVAL); /* what every agent has in memory */
    pause_ms(300);
    base = most = rss();
    for (uint64_t s = 0; s < seconds; s += INTERVAL) {
        ten_seconds(b, fold, spool, &made, 1);
        now = rss();
        most = now > most ? now : most;
    }
    for (uint64_t s = 0; s < option("tail", 40000); s += INTERVAL) {
        ten_seconds(b, fold, spool, &made, INTERVAL);
        now = rss();
        most = now > most ? now : most;
        spool_get_stats(spool, &st);
        if (st.spooled <= 2 && st.untold == 0)
            break;
    }
    batcher_stop(b);
    for (int i = 0; i < 400; i++) { /* the last ones */
        spool_get_stats(spool, &st);
        if (st.spooled == 0)
            break;
        advance(NS_PER_S, spool);
        pause_ms(10);
    }
    upload_stop(u, 0);
    print(spool, &made, base, most);
    upload_free(u);
    batcher_free(b);
    stackagg_free(fold);
    spool_free(spool);
    return 0;
}
