// SPDX-License-Identifier: Apache-2.0
/* ingest.c against a store of this file: what it is handed, and what each of its results becomes.
 */
#include <errno.h>
#include <string.h>

#include "base/arena.h"
#include "server/ingest.h"
#include "server/msg.h"
#include "server/pool.h"
#include "tests/lib/gen_batch.h"
#include "tests/lib/same_batch.h"
#include "tests/lib/testing.h"

/* ---- the store ----------------------------------------------------------------------------- */

struct store {
    int result; /* of the next append */
    bool keep;  /* answer later */
    store_done_fn *done;
    void *done_ctx;
    struct buf payload;
    uint64_t content, rows;
    uint32_t appends;
    enum store_state state;
};
static struct store store;

void store_append(struct store *s, const struct batch *b, struct str payload, store_done_fn *done,
                  void *ctx)
{
    const struct err err = {.code = s->result, .msg = "words of the store"};

    s->appends++;
    s->content = b->id.content;
    s->rows = 0;
    for (uint32_t i = 0; i < b->n_stream; i++)
        s->rows += b->stream[i].rows.n;
    buf_reset(&s->payload);
    buf_str(&s->payload, payload);
    s->done = done;
    s->done_ctx = ctx;
    if (!s->keep)
        done(ctx, s->result, s->result == 0 ? 7 : 0, s->result < 0 ? &err : NULL);
}

void store_stats(struct store *s, struct store_stats *ret)
{
    *ret = (struct store_stats){.state = s->state};
}

/* ---- asking -------------------------------------------------------------------------------- */

static struct arena arena;
static struct pool pool;
static struct ingest *g;
static struct buf plain, packed;
static struct batch batch;
static struct msg_reply reply;
static int n_done;

static void on_done(void *ctx)
{
    assert_ptr_equal(ctx, &reply);
    n_done++;
}

static void post(struct str body, const char *coding, const char *accept)
{
    static struct msg_request q; /* lent until on_done, which may come after we returned */
    uint64_t used = pool_used(&pool);

    q = (struct msg_request){.method = STR("POST"),
                             .path = STR("/api/v1/batch"),
                             .content_type = STR(WIRE_MEDIA_TYPE),
                             .content_encoding = str_c(coding),
                             .accept = str_c(accept),
                             .body = body,
                             .now = batch.received};
    msg_reply_deinit(&reply);
    n_done = 0;
    ingest_batch(g, &q, &reply, on_done, &reply);
    if (store.keep)
        return;
    assert_int_equal(n_done, 1);
    assert_int_equal(pool_used(&pool), used);
}

static void is_error(int status, const char *reason)
{
    struct wire_error e = {};
    struct err err = {};

    assert_int_equal(reply.status, status);
    assert_string_equal(reply.content_type, WIRE_MEDIA_TYPE);
    assert_ok(wire_error_decode(buf_view(&reply.body), &e, &err), &err);
    assert_string_equal(e.reason, reason);
    if (e.retry_after_ms)
        assert_int_equal(e.retry_after_ms, reply.retry_after_s * 1000);
}

static void is_reply(enum wire_status status)
{
    struct wire_reply r = {};
    struct err err = {};

    assert_int_equal(reply.status, 200);
    assert_string_equal(reply.content_type, WIRE_MEDIA_TYPE);
    assert_ok(wire_reply_decode(buf_view(&reply.body), &r, &err), &err);
    assert_int_equal(r.status, status);
    assert_int_equal(r.seq, batch.id.seq);
    assert_int_equal(r.lsn, status == WIRE_STORED ? 7 : 0);
    assert_int_equal(r.max_bytes, 1 << 20);
}

/* ---- tests --------------------------------------------------------------------------------- */

static void test_stored(void **state)
{
    (void)state;
    post(buf_view(&plain), "", "");
    is_reply(WIRE_STORED);
    assert_int_equal(store.content, batch.id.content);
    post(buf_view(&packed), "zstd", "");
    is_reply(WIRE_STORED);
    assert_str(buf_view(&store.payload), buf_view(&packed)); /* as received */
    post(buf_view(&packed), "ZSTD", "application/json");
    assert_string_equal(reply.content_type, "application/json");
    assert_non_null(strstr(reply.body.p, "\"status\":\"stored\""));
    assert_non_null(strstr(reply.body.p, "\"lsn\":\"7\""));
}

/* Replay of what was handed to the store gives the same batch. */
static void test_replay(void **state)
{
    struct batch_limits limits;
    struct wire_limits wire;
    struct store_entry e = {.lsn = 7, .received = batch.received, .limits = &limits};
    struct batch back;
    struct arena a;
    struct err err = {};
    const char *differs;

    (void)state;
    wire_limits_default(&wire);
    limits = wire.batch;
    arena_init(&a, 64 << 20);
    for (int i = 0; i < 2; i++) {
        post(buf_view(i ? &packed : &plain), i ? "zstd" : "identity", "");
        e.payload = buf_view(&store.payload);
        assert_ok(ingest_replay(g, &e, &a, &back, &err), &err);
        differs = same_batch(&batch, &back);
        if (differs)
            fail_msg("differs: %s", differs);
        arena_reset(&a);
    }
    arena_deinit(&a);
}

static void test_results(void **state)
{
    static const struct {
        int result, status;
        const char *reason;
        uint32_t retry_after_s;
    } t[] = {
        {STORE_SEQ_CONFLICT, 409, "seq_conflict", 0},
        {STORE_SEQ_TOO_OLD, 409, "seq_too_old", 0},
        {STORE_DICT_MISS, 409, "dict_miss", 0},
        {-EAGAIN, 503, "overloaded", 1},
        {-ENOBUFS, 429, "head_full", 5},
        {-ENOSPC, 503, "disk_full", 5},
        {-EROFS, 503, "read_only", 60},
        {-ESHUTDOWN, 503, "stopping", 5},
        {-EIO, 503, "commit_failed", 5},
        {-E2BIG, 413, "body_too_large", 0},
        {-ENOMEM, 503, "overloaded", 1},
        {-EBADMSG, 500, "internal", 5},
    };

    (void)state;
    store.result = STORE_DUPLICATE;
    post(buf_view(&packed), "zstd", "");
    is_reply(WIRE_DUPLICATE);
    for (size_t i = 0; i < sizeof t / sizeof t[0]; i++) {
        store.result = t[i].result;
        post(buf_view(&packed), "zstd", "");
        is_error(t[i].status, t[i].reason);
        assert_int_equal(reply.retry_after_s, t[i].retry_after_s);
    }
    store.result = 0;
}

/* The store answers later, from wherever: nothing waits, nothing is freed before. */
static void test_later(void **state)
{
    (void)state;
    store.keep = true;
    post(buf_view(&packed), "zstd", "");
    assert_int_equal(n_done, 0);
    assert_true(pool_used(&pool) > 0);
    store.done(store.done_ctx, 0, 7, NULL);
    assert_int_equal(n_done, 1);
    assert_int_equal(pool_used(&pool), 0);
    is_reply(WIRE_STORED);
    store.keep = false;
}

static void test_malformed(void **state)
{
    uint32_t appends = store.appends;
    struct str cut = str_to(buf_view(&packed), packed.n / 2);

    (void)state;
    post(STR("\x3a\xff\xff\xff\xff\x7f"), "", "");
    is_error(400, "bad_encoding");
    post(STR(""), "zstd", "");
    is_error(400, "bad_encoding");
    post(cut, "zstd", "");
    is_error(400, "bad_encoding");
    post(STR("not zstd at all"), "zstd", "application/json");
    assert_int_equal(reply.status, 400);
    assert_string_equal(reply.content_type, "application/json");
    assert_non_null(strstr(reply.body.p, "\"code\":\"bad_encoding\""));
    /* every prefix and many single changes: an answer, never a crash, no memory kept */
    for (size_t n = 0; n < plain.n; n += 1 + plain.n / 200)
        post(str_to(buf_view(&plain), n), "", "");
    for (size_t i = 0; i < plain.n; i += 1 + plain.n / 200) {
        plain.p[i] ^= 0x55;
        post(buf_view(&plain), "", "");
        assert_true(reply.status == 200 || reply.status == 400 || reply.status == 413);
        plain.p[i] ^= 0x55;
    }
    assert_true(store.appends > appends); /* some changes are harmless */
}

static void test_limits(void **state)
{
    struct buf zeros;
    struct err err = {};
    static char zero[9 << 20];
    uint64_t held;

    (void)state;
    buf_init(&zeros, 1 << 20);
    assert_ok(wire_compress((struct str){zero, sizeof zero}, &zeros, &err), &err);
    post(buf_view(&zeros), "zstd", "");
    is_error(413, "inflated_too_large");
    post(buf_view(&zeros), "zstd", "application/json");
    assert_non_null(strstr(reply.body.p, "\"setting\":\"ingest.inflated\",\"limit\":8388608"));
    buf_deinit(&zeros);

    held = pool.max - 1000; /* others hold the pool */
    assert_true(pool_take(&pool, held));
    post(buf_view(&packed), "zstd", "application/json");
    assert_int_equal(reply.status, 503);
    assert_int_equal(reply.retry_after_s, 1);
    assert_non_null(strstr(reply.body.p, "\"setting\":\"ingest.memory\""));
    pool_give(&pool, held);
}

static void test_admit(void **state)
{
    struct msg_request q = {.content_type = STR("text/plain")};

    (void)state;
    assert_false(ingest_admit(g, &q, &reply));
    is_error(415, "unsupported_media_type");
    q.content_type = STR(WIRE_MEDIA_TYPE "; x=y");
    assert_true(ingest_admit(g, &q, &reply));
    q.content_encoding = STR("gzip");
    assert_false(ingest_admit(g, &q, &reply));
    is_error(415, "unsupported_coding");
    q.content_encoding = STR("zstd");
    assert_true(ingest_admit(g, &q, &reply));
}

static void test_counters(void **state)
{
    struct ingest_stats s;
    uint64_t requests = 0, reasons = 0;

    (void)state;
    ingest_stats(g, &s);
    for (uint32_t i = 0; i < s.n_code; i++)
        requests += s.code[i].n;
    for (uint32_t i = 0; i < s.n_reason; i++)
        reasons += strcmp(s.reason[i].name, "duplicate") == 0 ? s.reason[i].n : 0;
    assert_true(requests > 300);
    assert_int_equal(reasons, 1);
}

static int setup(void **state)
{
    struct ingest_conf c = {.pool = &pool};
    struct gen gen = {42, &arena};
    struct err err = {};
    uint64_t content = 0;

    (void)state;
    arena_init(&arena, 64 << 20);
    buf_init(&plain, 16 << 20);
    buf_init(&packed, 16 << 20);
    buf_init(&store.payload, 16 << 20);
    store.state = STORE_OK;
    pool.max = 32 << 20;
    wire_limits_default(&c.limits);
    c.limits.body = 1 << 20;
    c.limits.inflated = 8 << 20;
    gen_batch(&gen, &batch);
    batch.id.content = 0;
    assert_ok(wire_encode(&batch, &plain, &content, &err), &err);
    batch.id.content = content;
    assert_ok(wire_compress(buf_view(&plain), &packed, &err), &err);
    g = ingest_new(&c);
    ingest_set_store(g, &store);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    ingest_free(g);
    msg_reply_deinit(&reply);
    buf_deinit(&plain);
    buf_deinit(&packed);
    buf_deinit(&store.payload);
    arena_deinit(&arena);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stored),    cmocka_unit_test(test_replay),
        cmocka_unit_test(test_results),   cmocka_unit_test(test_later),
        cmocka_unit_test(test_malformed), cmocka_unit_test(test_limits),
        cmocka_unit_test(test_admit),     cmocka_unit_test(test_counters),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
