// SPDX-License-Identifier: Apache-2.0
/*
 * The golden frame of format version 1: one small batch that uses every message and most columns.
 * argv[1]: its file. UPDATE_GOLDEN=1 writes it anew; a byte that changes without that is a break of
 * the format.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "base/arena.h"
#include "base/hash.h"
#include "proto/wire.h"
#include "tests/lib/gen_batch.h"
#include "tests/lib/same_batch.h"
#include "tests/lib/testing.h"

#define MS INT64_C(1000000)
#define T0 INT64_C(1796000000000000000)

static const char *golden_path;

enum {
    S_NONE,
    S_HOST,
    S_H1,
    S_EXE,
    S_DEMO,
    S_SYS,
    S_RANK,
    S_3,
    S_SERVICE,
    S_JOB,
    S_RING,
    S_THREAD,
    S_MAIN,
    S_TRAIN,
    S_PY,
    S_NOSTACK,
    S_GOROUTINE,
    S_COUNT,
    S_PERMS,
    S_GAVE_UP,
    S_PROCESS_CPU,
    S_NS,
    S_POWER,
    S_MW,
    S_RESTART,
    S_DUR,
    N_S
};
static const struct str text[N_S] = {
    [S_HOST] = STR("host"),
    [S_H1] = STR("h1"),
    [S_EXE] = STR("/usr/bin/demo"),
    [S_DEMO] = STR("demo"),
    [S_SYS] = STR("/sys"),
    [S_RANK] = STR("RANK"),
    [S_3] = STR("3"),
    [S_SERVICE] = STR("service"),
    [S_JOB] = STR("job"),
    [S_RING] = STR("ring_full"),
    [S_THREAD] = STR("w\xff"),
    [S_MAIN] = STR("main"),
    [S_TRAIN] = STR("train"),
    [S_PY] = STR("a.py"),
    [S_NOSTACK] = STR("[no stack: short]"),
    [S_GOROUTINE] = STR("goroutine"),
    [S_COUNT] = STR("count"),
    [S_PERMS] = STR("perms"),
    [S_GAVE_UP] = STR("sender_gave_up"),
    [S_PROCESS_CPU] = STR("process_cpu"),
    [S_NS] = STR("nanoseconds"),
    [S_POWER] = STR("power"),
    [S_MW] = STR("milliwatts"),
    [S_RESTART] = STR("restart"),
    [S_DUR] = STR("dur=1s"),
};
static const struct batch_bin bin[] = {{}, {S_EXE, BIN_ID_GNU, STR("\x01\x02")}};
static const struct batch_fn fn[] = {
    {}, {.name = S_MAIN}, {.name = S_TRAIN, .file = S_PY}, {.name = S_NOSTACK}, {.name = S_TRAIN}};
static const struct batch_frame frame[] = {
    {},
    {.kind = FRAME_NATIVE, .fn = 1, .bin = 1, .addr = 0x1040},
    {.kind = FRAME_PYTHON, .fn = 2, .line = 7},
    {.kind = FRAME_OTHER, .fn = 3},
    {.kind = FRAME_NATIVE, .fn = 4, .line = 9, .flags = FRAME_INLINED}};
static struct batch_node node[] = {{}, {0, 1, 0}, {1, 2, 0}, {0, 3, 0}, {1, 4, 0}};
static const uint32_t host[] = {S_HOST, S_H1}, service[] = {S_SERVICE, S_JOB},
                      env[] = {S_RANK, S_3};
static const struct batch_labels labels[] = {{}, {1, service}};
static const struct batch_target target[] = {
    {},
    {.key = {.host = {32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 44, 45, 46, 47},
             .pidns = 4026531836,
             .pid = 42,
             .start = {T0 - 5}},
     .host_pid = 4242,
     .exe = S_EXE,
     .comm = S_DEMO,
     .cgroup = S_SYS,
     .env = {1, env},
     .flags = TARGET_EXITED}};
static const struct batch_loss lost[] = {{S_RING, 1, 10 * MS}};
static const struct batch_loss gave_up[] = {{S_GAVE_UP, BATCH_UNKNOWN, BATCH_NO_WEIGHT}};
static const real_ns t[] = {{T0}, {T0 + 1000 * MS}, {T0 + 999 * MS}};
static const uint32_t row_node[] = {2, 1, 3}, live_node[] = {4}, tid[] = {42, 43, 42};
static const uint32_t thread[] = {S_THREAD, 0, 0}, cpu[] = {1, 4, 0};
static const uint64_t count[] = {2, 1, 1};
static const int64_t live[] = {INT64_C(1) << 62};
static const double var[] = {2.5};
static const struct batch_stream stream[] = {
    {.type = PTYPE_CPU,
     .kind = KIND_SUM,
     .target = 1,
     .labels = 1,
     .width = 4,
     .covers = {{T0}, {T0 + 2000 * MS}},
     .state = SOURCE_OK,
     .basis = BASIS_PERIODIC,
     .period = 10 * MS,
     .expected = 5,
     .received = 4,
     .jitter = -3,
     .n_lost = 1,
     .lost = lost,
     .rows = {.n = 3,
              .t = t,
              .node = row_node,
              .tid = tid,
              .thread = thread,
              .cpu = cpu,
              .count = count}},
    {.type = PTYPE_LIVE,
     .kind = KIND_LEVEL,
     .width = 1,
     .covers = {{T0}, {T0 + 1000 * MS}},
     .at = {T0},
     .state = SOURCE_OK,
     .basis = BASIS_SCALED,
     .expected = BATCH_UNKNOWN,
     .received = BATCH_UNKNOWN,
     .rows = {.n = 1, .node = live_node, .value = live, .var = var}},
    {.name = S_GOROUTINE,
     .unit = S_COUNT,
     .kind = KIND_LEVEL,
     .width = 1,
     .covers = {{T0}, {T0 + 1}},
     .state = SOURCE_REFUSED,
     .state_why = S_PERMS,
     .expected = BATCH_UNKNOWN,
     .received = BATCH_UNKNOWN,
     .n_lost = 1,
     .lost = gave_up},
};
static const real_ns cpu_t[] = {{T0}, {T0 + 10}}, power_t[] = {{T0 + 3}};
static const int64_t cpu_ns_col[] = {5, -7};
static const double power[] = {0.5};
static const struct batch_metric metric[] = {
    {.name = S_PROCESS_CPU,
     .unit = S_NS,
     .kind = METRIC_COUNTER,
     .target = 1,
     .n = 2,
     .t = cpu_t,
     .inum = cpu_ns_col},
    {.name = S_POWER, .unit = S_MW, .kind = METRIC_GAUGE, .n = 1, .t = power_t, .num = power}};
static const struct batch_event event[] = {{{T0 + 4}, S_RESTART, S_DUR, 1}};
static const struct seq_range dropped[] = {{7, 9}};
static struct batch golden = {
    .id = {.agent = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15},
           .boot = {16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31},
           .seq = 300,
           .content = 0x1122334455667788},
    .agent_version = S_MAIN,
    .clock = {.sent = {T0 + 2500 * MS}, .mono = {1}, .real = {T0 + 2500 * MS}},
    .received = {T0 + 3000 * MS},
    .label = {1, host},
    .n_str = N_S,
    .str = text,
    .n_bin = 2,
    .bin = bin,
    .n_fn = 5,
    .fn = fn,
    .n_frame = 5,
    .frame = frame,
    .n_node = 5,
    .node = node,
    .n_target = 2,
    .target = target,
    .n_labels = 2,
    .labels = labels,
    .n_stream = 3,
    .stream = stream,
    .n_metric = 2,
    .metric = metric,
    .n_event = 1,
    .event = event,
    .n_dropped = 1,
    .dropped = dropped,
};

static struct buf out;
static struct arena arena;

static int setup(void **state)
{
    (void)state;
    for (uint32_t i = 1; i < golden.n_node; i++)
        node[i].hash =
            node_hash(node[node[i].parent].hash, batch_frame_hash(&golden, node[i].frame));
    buf_init(&out, (size_t)16 << 20);
    arena_init(&arena, (size_t)64 << 20);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    buf_deinit(&out);
    arena_deinit(&arena);
    return 0;
}

static void read_file(struct buf *to)
{
    FILE *f = fopen(golden_path, "rbe");
    char bytes[4096];
    size_t n;

    if (!f)
        fail_msg("%s is not there: UPDATE_GOLDEN=1 writes it", golden_path);
    while ((n = fread(bytes, 1, sizeof bytes, f)) > 0)
        buf_add(to, bytes, n);
    (void)fclose(f);
}

static void golden_is_written(void **state)
{
    const char *update = getenv("UPDATE_GOLDEN"); // NOLINT(concurrency-mt-unsafe): one thread
    struct err err = {};
    struct buf file;

    (void)state;
    assert_ok(batch_check(&golden, &err), &err);
    assert_ok(wire_encode(&golden, &out, NULL, &err), &err);
    if (update && strcmp(update, "1") == 0) {
        FILE *f = fopen(golden_path, "wbe");

        assert_non_null(f);
        assert_int_equal(fwrite(out.p, 1, out.n, f), out.n);
        assert_int_equal(fclose(f), 0);
    }
    buf_init(&file, 1 << 20);
    read_file(&file);
    assert_int_equal(file.n, out.n);
    assert_memory_equal(file.p, out.p, out.n);
    buf_deinit(&file);
}

static void golden_is_read(void **state)
{
    struct wire_rejects rejects;
    struct wire_limits limits;
    struct wire_fault fault;
    struct err err = {};
    struct batch back;
    const char *differs;

    (void)state;
    wire_limits_default(&limits);
    read_file(&out);
    assert_ok(wire_decode(buf_view(&out), &limits, golden.received, &arena, &back, &fault, &rejects,
                          &err),
              &err);
    assert_int_equal(rejects.n, 0);
    differs = same_batch(&golden, &back);
    if (differs)
        fail_msg("%s", differs);
}

/* The digest is part of the format: what it is taken of must not change either. */
static void content_digest(void **state)
{
    struct batch b = golden;
    struct err err = {};
    uint64_t content = 0, again = 0;

    (void)state;
    b.id.content = 0;
    assert_ok(wire_encode(&b, &out, &content, &err), &err);
    assert_int_equal(content, 0xd51beef2d06c00dd);
    b.id.content = content;
    buf_reset(&out);
    assert_ok(wire_encode(&b, &out, &again, &err), &err);
    assert_int_equal(again, content);
    b.id.seq++;
    b.id.content = 0;
    buf_reset(&out);
    assert_ok(wire_encode(&b, &out, &again, &err), &err);
    assert_int_not_equal(again, content);
}

static void full_buffer(void **state)
{
    struct err err = {};
    struct buf small;

    (void)state;
    for (size_t cap = 0; cap < 300; cap += 7) {
        buf_init(&small, cap);
        err = (struct err){};
        assert_int_equal(wire_encode(&golden, &small, NULL, &err), -E2BIG);
        buf_deinit(&small);
    }
}

/* 1,000 rows of ticks with 200 stacks of depth 30: what travels in ten seconds of one host. */
static void size_of_1000_rows(void **state)
{
    enum {
        ROWS = 1000,
        STACKS = 200,
        DEPTH = 30
    };
    struct gen g = {7, &arena};
    struct str *str = GEN_ARRAY(&g, struct str, 1002);
    struct batch_fn *f = GEN_ARRAY(&g, struct batch_fn, 1001);
    struct batch_frame *fr = GEN_ARRAY(&g, struct batch_frame, 1001);
    struct batch_node *nodes = GEN_ARRAY(&g, struct batch_node, 1 + STACKS * DEPTH / 4);
    uint32_t *stack = GEN_ARRAY(&g, uint32_t, ROWS), *tids = GEN_ARRAY(&g, uint32_t, ROWS);
    real_ns *at = GEN_ARRAY(&g, real_ns, ROWS);
    uint64_t *counts = GEN_ARRAY(&g, uint64_t, ROWS);
    struct batch_stream st = stream[0];
    struct batch b = golden;
    struct err err = {};
    struct buf z;

    (void)state;
    for (uint32_t i = 1; i <= 1000; i++) {
        char *name = gen_array(&g, 40, 1);
        int n = snprintf(name, 40, "module_%u::function_%u", i % 50, i);

        str[i] = (struct str){name, (size_t)n};
        f[i].name = i;
        fr[i] = (struct batch_frame){.kind = FRAME_NATIVE, .fn = i, .addr = gen_below(&g, 1 << 22)};
    }
    str[1001] = STR("ring_full");
    b.n_node = 1 + STACKS * DEPTH / 4;
    for (uint32_t i = 1; i < b.n_node; i++)
        nodes[i] = (struct batch_node){i > 20 ? i - 1 - gen_below(&g, 20) : i - 1,
                                       1 + gen_below(&g, 1000), 0};
    for (uint32_t i = 0; i < ROWS; i++) {
        stack[i] = 1 + gen_below(&g, b.n_node - 1);
        tids[i] = 1000 + gen_below(&g, 40);
        at[i].v = T0 + i / 500 * 1000 * MS;
        counts[i] = 1 + gen_below(&g, 20);
    }
    st.rows = (struct batch_rows){.n = ROWS, .t = at, .node = stack, .tid = tids, .count = counts};
    st.n_lost = 0;
    b.str = str;
    b.n_str = 1002;
    b.fn = f;
    b.n_fn = 1001;
    b.frame = fr;
    b.n_frame = 1001;
    b.node = nodes;
    b.stream = &st;
    b.n_stream = 1;
    b.n_metric = b.n_event = 0;
    b.label.n = b.agent_version = 0;
    b.n_target = b.n_labels = 1;
    st.target = st.labels = 0;
    assert_ok(batch_check(&b, &err), &err);
    assert_ok(wire_encode(&b, &out, NULL, &err), &err);
    buf_init(&z, 1 << 20);
    assert_ok(wire_compress(buf_view(&out), &z, &err), &err);
    print_message("1,000 rows, %u new nodes: %zu bytes, zstd %zu\n", b.n_node - 1, out.n, z.n);
    assert_true(out.n < 60000 && z.n < out.n);
    buf_deinit(&z);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        TEST(golden_is_written), TEST(golden_is_read),    TEST(content_digest),
        TEST(full_buffer),       TEST(size_of_1000_rows),
    };

    if (argc != 2) {
        (void)fprintf(stderr, "usage: test_proto_encode GOLDEN_FILE\n");
        return 1;
    }
    golden_path = argv[1];
    return cmocka_run_group_tests(tests, NULL, NULL);
}
