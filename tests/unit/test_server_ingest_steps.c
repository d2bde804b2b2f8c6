// SPDX-License-Identifier: Apache-2.0
/* POST /api/v1/steps against a store of this file: which batch a body becomes, and what is refused.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <zlib.h>

#include "base/arena.h"
#include "server/ingest.h"
#include "server/msg.h"
#include "server/pool.h"
#include "tests/lib/testing.h"

#define S   NS_PER_S
#define NOW (1764417600 * S)

/* ---- the store ----------------------------------------------------------------------------- */

struct store {
    int result;
    uint32_t appends;
    struct buf payload;
    struct batch_id id;
    uint32_t n_steps, n; /* names; steps in all */
    uint64_t number;     /* of the first */
    char text[400];      /* "name*n@target/labels..." */
};
static struct store store;

static void put_labels(struct buf *b, const struct batch *x, const struct batch_labels *l)
{
    for (uint32_t i = 0; i < l->n; i++) {
        buf_str(b, x->str[l->pair[2 * (size_t)i]]);
        buf_chr(b, '=');
        buf_str(b, x->str[l->pair[2 * (size_t)i + 1]]);
        buf_chr(b, ' ');
    }
}

static void describe(const struct batch *x, char *ret, size_t room)
{
    struct buf b;

    buf_init(&b, 4096);
    put_labels(&b, x, &x->label);
    for (uint32_t i = 0; i < x->n_steps; i++) {
        const struct batch_steps *s = &x->steps[i];

        buf_printf(&b, "| ");
        buf_str(&b, x->str[s->name]);
        buf_printf(&b, " pid %llu", (unsigned long long)x->target[s->target].key.pid);
        for (uint32_t k = 0; k < s->n && k < 4; k++) {
            buf_printf(&b, " %llu:%lld+%lld tid %u ", (unsigned long long)s->number[k],
                       (long long)(s->start[k].v - NOW), (long long)s->dur_ns[k],
                       s->tid ? s->tid[k] : 0);
            if (s->labels)
                put_labels(&b, x, &x->labels[s->labels[k]]);
        }
    }
    (void)snprintf(ret, room, "%.*s", STR_ARG(buf_view(&b)));
    buf_deinit(&b);
}

void store_append(struct store *s, const struct batch *b, struct str payload, store_done_fn *done,
                  void *ctx)
{
    const struct err err = {.code = s->result, .msg = "words of the store"};
    struct err why = {};

    assert_ok(batch_check(b, &why), &why);
    s->appends++;
    s->id = b->id;
    s->n_steps = b->n_steps;
    s->n = 0;
    for (uint32_t i = 0; i < b->n_steps; i++)
        s->n += b->steps[i].n;
    s->number = b->n_steps ? b->steps[0].number[0] : 0;
    describe(b, s->text, sizeof s->text);
    buf_reset(&s->payload);
    buf_str(&s->payload, payload);
    done(ctx, s->result, s->result == 0 ? 7 : 0, s->result < 0 ? &err : NULL);
}

void store_stats(struct store *s, struct store_stats *ret)
{
    (void)s;
    *ret = (struct store_stats){.state = STORE_OK};
}

/* ---- asking -------------------------------------------------------------------------------- */

static struct pool pool;
static struct ingest *g;
static struct msg_reply reply;
static int n_done;

static void on_done(void *ctx)
{
    assert_ptr_equal(ctx, &reply);
    n_done++;
}

static void post(struct str body, const char *coding, const char *id)
{
    static struct msg_request q;
    uint32_t appends = store.appends;

    q = (struct msg_request){.method = STR("POST"),
                             .path = STR("/api/v1/steps"),
                             .content_type = STR("application/json; charset=utf-8"),
                             .content_encoding = str_c(coding),
                             .batch_id = str_c(id),
                             .body = body,
                             .now = {NOW}};
    msg_reply_deinit(&reply);
    n_done = 0;
    if (!ingest_steps_admit(g, &q, &reply))
        return;
    ingest_steps(g, &q, &reply, on_done, &reply);
    assert_int_equal(n_done, 1);
    assert_int_equal(pool_used(&pool), 0);
    assert_true(store.appends <= appends + 1);
}

static void want(const char *text)
{
    if (!memmem(reply.body.p, reply.body.n, text, strlen(text)))
        fail_msg("\"%s\" is not in %d %.*s", text, reply.status, STR_ARG(buf_view(&reply.body)));
}

static void steps(const char *more, const char *list, const char *id)
{
    static char body[8192];

    (void)snprintf(body, sizeof body, "{\"service\":\"train\"%s,\"steps\":[%s]}", more, list);
    post(str_c(body), "", id);
}

/* {NAME,NUMBER,t0,t1} in seconds before NOW. */
static const char *one(const char *name, const char *number, int t0, int t1)
{
    static char text[4][300];
    static int n;
    char *p = text[n++ % 4];

    (void)snprintf(p, 300, "{\"name\":\"%s\",\"number\":%s,\"t0_ns\":%lld,\"t1_ns\":\"%lld\"}",
                   name, number, (long long)(NOW + t0 * S), (long long)(NOW + t1 * S));
    return p;
}

static int setup(void **state)
{
    struct ingest_conf conf = {.pool = &pool};

    (void)state;
    pool.max = 64 << 20;
    wire_limits_default(&conf.limits);
    g = ingest_new(&conf);
    buf_init(&store.payload, 16 << 20);
    ingest_set_store(g, &store);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    msg_reply_deinit(&reply);
    buf_deinit(&store.payload);
    (void)ingest_free(g);
    return 0;
}

/* ---- tests --------------------------------------------------------------------------------- */

static void stored(void **state)
{
    (void)state;
    steps(",\"labels\":{\"rank\":\"0\",\"job\":\"j\"},\"host\":\"h1\"", one("step", "5", -20, -10),
          "");
    assert_int_equal(reply.status, 200);
    want("{\"status\":\"stored\",\"steps\":1,\"lsn\":\"7\",\"rejected\":[]}");
    assert_string_equal(reply.content_type, "application/json");
    assert_string_equal(store.text, "rank=0 job=j service=train host=h1 | step pid 0 "
                                    "5:-20000000000+10000000000 tid 0 ");
    assert_true(store.id.seq == 0 && store.id.agent[0] == 0);
    steps("",
          "{\"name\":\"b\",\"number\":\"18446744073709551615\",\"t0_ns\":\"1764417590000000000\","
          "\"t1_ns\":1764417590000000001,\"tid\":9,\"attributes\":{\"loss\":\"0.5\"}}",
          "");
    want("\"steps\":1");
    assert_string_equal(store.text, "service=train | b pid 0 "
                                    "18446744073709551615:-10000000000+1 tid 9 loss=0.5 ");
}

static void of_a_process(void **state)
{
    (void)state;
    steps(",\"host\":\"000102030405060708090a0b0c0d0e0f\",\"pid\":42,\"pidns\":\"7\","
          "\"process_start_ns\":\"1764417000000000000\"",
          one("step", "1", -2, -1), "");
    assert_string_equal(store.text, "service=train | step pid 42 1:-2000000000+1000000000 tid 0 ");
    steps(",\"host\":\"h1\",\"pid\":42,\"process_start_ns\":1", one("step", "1", -2, -1), "");
    assert_string_equal(store.text, "service=train host=h1 | step pid 42 "
                                    "1:-2000000000+1000000000 tid 0 ");
    steps(",\"pid\":42", one("step", "1", -2, -1), "");
    assert_int_equal(reply.status, 400);
    want("process_start_ns: a process is named by host, pid and process_start_ns together");
    steps(",\"pid\":42,\"process_start_ns\":1", one("step", "1", -2, -1), "");
    want("\"param\":\"host\"");
}

/* Bad ones cost themselves alone. */
static void refused_alone(void **state)
{
    struct ingest_stats before, after;
    char list[4000];

    (void)state;
    ingest_stats(g, &before);
    (void)snprintf(list, sizeof list, "%s,%s,%s", one("a", "1", -5, -4), one("a", "2", -4, -4),
                   one("a", "null", -4, -3));
    (void)snprintf(list + strlen(list), sizeof list - strlen(list), ",%s,%s,%s",
                   one("a", "3", -8 * 86400, -7 * 86400 - 1), one("a", "4", 1, 601),
                   one("", "5", -4, -3));
    (void)snprintf(list + strlen(list), sizeof list - strlen(list),
                   ",%s,{\"number\":1},{\"name\":\"x\",\"number\":1,\"t0_ns\":1}",
                   one("a", "6", -86401, 0));
    steps("", list, "");
    assert_int_equal(reply.status, 200);
    want("\"steps\":1,");
    want("\"rejected\":[{\"reason\":\"bad_step\",\"steps\":6},{\"reason\":\"too_old\",\"steps\":1},"
         "{\"reason\":\"in_future\",\"steps\":1}]");
    assert_true(store.n == 1 && store.number == 1);
    ingest_stats(g, &after);
    assert_int_equal(after.n_reason, before.n_reason + 3);
    store.appends = 0;
    steps("", one("a", "1", -4, -4), "");
    want("{\"status\":\"stored\",\"steps\":0,\"lsn\":null,");
    steps("", "", "");
    want("{\"status\":\"stored\",\"steps\":0,\"lsn\":null,\"rejected\":[]}");
    assert_int_equal(store.appends, 0);
    steps("", one("a", "1", -86400, 0), ""); /* a day is not too long */
    want("\"steps\":1,");
    steps("", one("a", "1", 0, 600), ""); /* nor ten minutes too far ahead */
    want("\"steps\":1,");
}

static void identities(void **state)
{
    struct batch_id a, b;

    (void)state;
    steps("", one("s", "1", -2, -1), "run-1:7");
    a = store.id;
    assert_int_equal(a.seq, 7);
    steps("", one("s", "1", -2, -1), "run-1:7");
    b = store.id;
    assert_true(memcmp(&a, &b, sizeof a) == 0); /* content too: a resend is one */
    steps("", one("s", "2", -2, -1), "run-1:8");
    b = store.id;
    assert_true(memcmp(a.agent, b.agent, 16) == 0 && memcmp(a.boot, b.boot, 16) == 0);
    assert_true(b.seq == 8 && b.content != a.content);
    steps("", one("s", "1", -2, -1), "run-2:7");
    assert_true(memcmp(a.agent, store.id.agent, 16) != 0);
    for (int i = 0; i < 3; i++) {
        static const char *const whole[] = {"run-1", "run-1:x", "run-1:0"};

        steps("", one("s", "1", -2, -1), whole[i]);
        assert_int_equal(store.id.seq, 1);
        assert_true(memcmp(a.agent, store.id.agent, 16) != 0);
    }
}

/* What the journal is handed gives, decoded with the limits of the day, the same batch. */
static void replay(void **state)
{
    struct batch_limits limits;
    struct wire_limits wire;
    struct store_entry e = {.lsn = 7, .received = {NOW}, .limits = &limits};
    struct arena a;
    struct batch back;
    struct err err = {};
    char text[400], list[1000];

    (void)state;
    wire_limits_default(&wire);
    limits = wire.batch;
    arena_init(&a, 64 << 20);
    (void)snprintf(list, sizeof list, "%s,%s,%s", one("b", "1", -5, -4), one("a", "2", -4, -3),
                   one("b", "3", -3, -2));
    steps(",\"labels\":{\"x\":\"y\"}", list, "id:1");
    assert_int_equal(reply.status, 200);
    assert_int_equal(store.n_steps, 2);
    e.payload = buf_view(&store.payload);
    assert_ok(ingest_replay(g, &e, &a, &back, &err), &err);
    describe(&back, text, sizeof text);
    assert_string_equal(text, store.text);
    assert_true(back.id.content == store.id.content && back.id.seq == 1);
    arena_deinit(&a);
}

static void malformed(void **state)
{
    static const struct {
        const char *body, *code, *more;
    } t[] = {
        {"", "bad_value", "no JSON"},
        {"[]", "bad_value", "the body is no object"},
        {"{\"service\":\"a\"}", "bad_value", "\"param\":\"steps\""},
        {"{\"service\":\"a\",\"steps\":{}}", "bad_value", "not an array"},
        {"{\"steps\":[]}", "bad_value", "\"param\":\"service\""},
        {"{\"service\":\"\",\"steps\":[]}", "bad_value", "\"param\":\"service\""},
        {"{\"service\":\"a\",\"service\":\"b\",\"steps\":[]}", "bad_value", "no JSON"},
        {"{\"service\":\"a\",\"lables\":{},\"steps\":[]}", "bad_value", "\"param\":\"lables\""},
        {"{\"service\":\"a\",\"labels\":{\"x\":1},\"steps\":[]}", "bad_value", "x is no text"},
        {"{\"service\":\"a\",\"steps\":[7]}", "bad_value", "\"param\":\"steps[0]\""},
        {"{\"service\":\"a\",\"steps\":[{\"name\":1}]}", "bad_value",
         "\"param\":\"steps[0].name\""},
        {"{\"service\":\"a\",\"steps\":[{\"number\":-1}]}", "bad_value",
         "\"param\":\"steps[0].number\""},
        {"{\"service\":\"a\",\"steps\":[{\"number\":1.5}]}", "bad_value", "whole number"},
        {"{\"service\":\"a\",\"steps\":[{\"t0_ns\":\"1s\"}]}", "bad_value", "steps[0].t0_ns"},
        {"{\"service\":\"a\",\"steps\":[{\"t1_ns\":9223372036854775808}]}", "bad_value", "no JSON"},
        {"{\"service\":\"a\",\"steps\":[{\"colour\":1}]}", "bad_value", "steps[0].colour"},
        {"{\"service\":\"a\",\"steps\":[{\"attributes\":{\"x\":[[[]]]}}]}", "bad_value",
         "deeper than 4"},
        {"{\"service\":\"a\",\"host\":7,\"steps\":[]}", "bad_value", "\"param\":\"host\""},
        {"{\"service\":\"\xff\",\"steps\":[]}", "bad_value", "no JSON"},
        {"{\"service\":\"a\",\"steps\":[", "bad_value", "no JSON"},
    };

    (void)state;
    store.appends = 0;
    for (size_t i = 0; i < sizeof t / sizeof t[0]; i++) {
        post(str_c(t[i].body), "", "");
        assert_int_equal(reply.status, 400);
        want(t[i].code);
        want(t[i].more);
    }
    assert_int_equal(store.appends, 0);
}

static void bombs(void **state)
{
    static char text[(1 << 20) + 10];
    struct str whole = {text, 0};

    (void)state;
    memset(text, '[', 100000);
    post((struct str){text, 100000}, "", "");
    want("nested deeper than 4");
    memset(text, ',', 500000);
    post((struct str){text, 500000}, "", "");
    assert_int_equal(reply.status, 413);
    want("\"code\":\"too_many_entries\"");
    memset(text, ' ', sizeof text);
    whole.n = (1 << 20) + 1;
    post(whole, "", "");
    assert_int_equal(reply.status, 413);
    want("\"limit\":1048576,\"actual\":1048577");
    whole.n = 1 << 20;
    post(whole, "", "");
    want("no JSON");
    whole.n = (size_t)snprintf(text, sizeof text, "{\"service\":\"a\",\"steps\":[0");
    for (int i = 0; i < 10000; i++)
        whole.n += (size_t)snprintf(text + whole.n, sizeof text - whole.n, ",0");
    whole.n += (size_t)snprintf(text + whole.n, sizeof text - whole.n, "]}");
    post(whole, "", "");
    want("\"limit\":10000,\"actual\":10001");
}

static size_t gzip(const char *text, size_t n, char *out, size_t room)
{
    const union {
        const char *in;
        Bytef *out;
    } from = {.in = text};
    z_stream z = {};

    assert_int_equal(deflateInit2(&z, 9, Z_DEFLATED, 16 + 15, 9, Z_DEFAULT_STRATEGY), Z_OK);
    z.next_in = from.out;
    z.avail_in = (uInt)n;
    z.next_out = (Bytef *)out;
    z.avail_out = (uInt)room;
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    assert_int_equal(deflateEnd(&z), Z_OK);
    return room - z.avail_out;
}

static void compressed(void **state)
{
    static char text[4 << 20], out[64 << 10];
    struct str body = {out, 0};
    size_t n;

    (void)state;
    n = (size_t)snprintf(text, sizeof text, "{\"service\":\"a\",\"steps\":[%s]}",
                         one("s", "1", -2, -1));
    body.n = gzip(text, n / 2, out, sizeof out);
    body.n += gzip(text + n / 2, n - n / 2, out + body.n, sizeof out - body.n); /* two members */
    post(body, "gzip", "");
    assert_int_equal(reply.status, 200);
    want("\"steps\":1,");
    body.n -= 3;
    post(body, "gzip", "");
    assert_int_equal(reply.status, 400);
    want("\"code\":\"bad_encoding\"");
    body.n += 3;
    out[body.n++] = 'x'; /* something behind the last member */
    post(body, "gzip", "");
    assert_int_equal(reply.status, 400);
    post(STR(""), "gzip", "");
    assert_int_equal(reply.status, 400);
    memset(text, ' ', sizeof text);
    body.n = gzip(text, 1 << 20, out, sizeof out); /* at the limit */
    post(body, "gzip", "");
    want("no JSON");
    body.n = gzip(text, (1 << 20) + 1, out, sizeof out);
    post(body, "gzip", "");
    assert_int_equal(reply.status, 413);
    want("\"code\":\"inflated_too_large\"");
    body.n = gzip(text, sizeof text, out, sizeof out);
    post(body, "gzip", "");
    assert_int_equal(reply.status, 413);
    for (body.n = 0; body.n < 20520;) /* empty members */
        body.n += gzip(text, 0, out + body.n, sizeof out - body.n);
    post(body, "gzip", "");
    want("\"code\":\"too_many_members\"");
}

static void results(void **state)
{
    static const struct {
        int result, status;
        const char *code;
    } t[] = {{STORE_SEQ_CONFLICT, 409, "seq_conflict"},
             {-ENOBUFS, 429, "head_full"},
             {-ENOSPC, 503, "disk_full"},
             {-EIO, 503, "commit_failed"},
             {-EBADMSG, 500, "internal"}};

    (void)state;
    for (size_t i = 0; i < sizeof t / sizeof t[0]; i++) {
        store.result = t[i].result;
        steps("", one("s", "1", -2, -1), "id");
        assert_int_equal(reply.status, t[i].status);
        want(t[i].code);
    }
    store.result = STORE_DUPLICATE;
    steps("", one("s", "1", -2, -1), "id");
    assert_int_equal(reply.status, 200);
    want("\"status\":\"duplicate\"");
    store.result = 0;
}

/* Whatever allocation fails: an answer, nothing stored, nothing left. */
static void memory_short(void **state)
{
    static char list[4000];
    uint64_t n = 0;

    (void)state;
    (void)snprintf(list, sizeof list, "%s,%s,%s", one("b", "1", -5, -4), one("a", "2", -4, -3),
                   one("c", "3", -3, -2));
    for (int status = 0; status != 200;) {
        uint32_t appends = store.appends;

        assert_true(++n < 1000);
        mem_fail_nth(n);
        steps(",\"labels\":{\"x\":\"y\",\"z\":\"w\"}", list, "id:1");
        mem_fail_nth(0);
        status = reply.status;
        if (status == 200)
            break;
        assert_true(status == 413 || status == 503 || status == 500 || status == 400);
        assert_int_equal(store.appends, appends);
    }
    assert_true(n > 20);
    want("\"steps\":3,");
}

static void admission(void **state)
{
    struct msg_request q = {.method = STR("POST"), .content_type = STR("text/plain")};
    char id[200] = "";

    (void)state;
    msg_reply_deinit(&reply);
    assert_false(ingest_steps_admit(g, &q, &reply));
    assert_int_equal(reply.status, 415);
    q.content_type = STR("application/json");
    q.content_encoding = STR("zstd");
    assert_false(ingest_steps_admit(g, &q, &reply));
    assert_int_equal(reply.status, 415);
    q.content_encoding = STR("GZIP");
    assert_true(ingest_steps_admit(g, &q, &reply));
    memset(id, 'x', 129);
    q.batch_id = str_c(id);
    assert_false(ingest_steps_admit(g, &q, &reply));
    assert_int_equal(reply.status, 400);
    want("\"param\":\"Strata-Batch-Id\"");
    pool.max = 1000;
    steps("", one("s", "1", -2, -1), "");
    assert_int_equal(reply.status, 503);
    want("\"setting\":\"ingest.memory\"");
    pool.max = 64 << 20;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stored),        cmocka_unit_test(of_a_process),
        cmocka_unit_test(refused_alone), cmocka_unit_test(identities),
        cmocka_unit_test(replay),        cmocka_unit_test(malformed),
        cmocka_unit_test(bombs),         cmocka_unit_test(compressed),
        cmocka_unit_test(results),       cmocka_unit_test(memory_short),
        cmocka_unit_test(admission),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
