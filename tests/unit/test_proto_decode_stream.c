// SPDX-License-Identifier: Apache-2.0
/*
 * What decoding refuses and what it cuts. Each case breaks one thing of a good batch; the encoder
 * does not check, so it writes what is broken.
 */
#include <errno.h>

#include "base/arena.h"
#include "base/hash.h"
#include "proto/wire.h"
#include "tests/lib/testing.h"

#define MS       INT64_C(1000000)
#define DAY      (INT64_C(86400) * NS_PER_S)
#define RECEIVED INT64_C(1796000000000000000)

enum {
    S_NONE,
    S_MAIN,
    S_WORK,
    S_RING,
    S_HOST,
    S_H1,
    S_CPU,
    S_NS,
    S_OTHER,
    N_S
};

/* The good batch, rebuilt for every case. */
static struct str str[N_S + 2];
static struct batch_bin bin[2];
static struct batch_fn fn[3];
static struct batch_frame frame[3];
static struct batch_node node[3];
static uint32_t pair[2], set_pair[2], env[2];
static struct batch_target target[2];
static struct batch_labels labels[2];
static struct batch_loss lost[1];
static real_ns t[3], metric_t[1], start[1];
static uint32_t row_node[3], row_target[3], row_labels[3], thread[3], part[1];
static uint64_t count[3], number[1];
static int64_t value[3], dur[1], part_ns[1];
static double var[3], num[1];
static uint8_t status[1];
static struct batch_stream st;
static struct batch_metric metric;
static struct batch_steps steps;
static struct batch_event event;
static struct seq_range dropped;
static struct batch b;

static struct arena arena;
static struct buf out;
static struct wire_limits limits;
static struct wire_fault fault;
static struct wire_rejects rejects;
static struct batch back;

static void make(void)
{
    static const struct str text[N_S] = {
        [S_NONE] = {NULL, 0},        [S_MAIN] = STR("main"),      [S_WORK] = STR("work"),
        [S_RING] = STR("ring_full"), [S_HOST] = STR("host"),      [S_H1] = STR("h1"),
        [S_CPU] = STR("cpu"),        [S_NS] = STR("nanoseconds"), [S_OTHER] = STR("other"),
    };

    memcpy(str, text, sizeof text);
    bin[1] = (struct batch_bin){S_H1, BIN_ID_GNU, STR("id")};
    fn[1] = (struct batch_fn){S_MAIN, 0, 0};
    fn[2] = (struct batch_fn){S_WORK, S_H1, 3};
    frame[1] = (struct batch_frame){.kind = FRAME_NATIVE, .fn = 1, .bin = 1, .addr = 16};
    frame[2] = (struct batch_frame){.kind = FRAME_PYTHON, .fn = 2, .line = 4};
    node[1] = (struct batch_node){.parent = 0, .frame = 1};
    node[2] = (struct batch_node){.parent = 1, .frame = 2};
    memcpy(pair, (uint32_t[]){S_HOST, S_H1}, sizeof pair);
    memcpy(set_pair, (uint32_t[]){S_MAIN, S_WORK}, sizeof set_pair);
    memcpy(env, (uint32_t[]){S_MAIN, S_WORK}, sizeof env);
    target[1] = (struct batch_target){.key = {.pid = 7}, .comm = S_MAIN, .env = {1, env}};
    labels[1] = (struct batch_labels){1, set_pair};
    lost[0] = (struct batch_loss){S_RING, 1, 10 * MS};
    for (unsigned i = 0; i < 3; i++) {
        t[i].v = RECEIVED - 1000 * MS + i * MS;
        row_node[i] = i;
        row_target[i] = row_labels[i] = 1;
        thread[i] = S_MAIN;
        count[i] = i + 1;
        value[i] = 100 + i;
        var[i] = 1;
    }
    st = (struct batch_stream){
        .type = PTYPE_CPU,
        .kind = KIND_SUM,
        .covers = {{RECEIVED - 1000 * MS}, {RECEIVED}},
        .state = SOURCE_OK,
        .basis = BASIS_PERIODIC,
        .period = 10 * MS,
        .n_lost = 1,
        .lost = lost,
        .rows = {.n = 3,
                 .t = t,
                 .node = row_node,
                 .target = row_target,
                 .labels = row_labels,
                 .thread = thread,
                 .count = count},
    };
    metric_t[0].v = start[0].v = RECEIVED;
    num[0] = 0.5;
    status[0] = METRIC_OK;
    metric = (struct batch_metric){.name = S_MAIN,
                                   .unit = S_NS,
                                   .kind = METRIC_GAUGE,
                                   .n = 1,
                                   .t = metric_t,
                                   .num = num,
                                   .status = status};
    number[0] = 5;
    dur[0] = 5;
    part[0] = S_WORK;
    steps = (struct batch_steps){.name = S_MAIN,
                                 .n = 1,
                                 .number = number,
                                 .start = start,
                                 .dur_ns = dur,
                                 .n_part = 1,
                                 .part = part,
                                 .part_ns = part_ns};
    event = (struct batch_event){{RECEIVED}, S_MAIN, S_WORK, 1};
    dropped = (struct seq_range){3, 4};
    b = (struct batch){.id = {.agent = {1}, .boot = {2}, .seq = 5, .content = 9},
                       .received = {RECEIVED},
                       .label = {1, pair},
                       .n_str = N_S,
                       .str = str,
                       .n_bin = 2,
                       .bin = bin,
                       .n_fn = 3,
                       .fn = fn,
                       .n_frame = 3,
                       .frame = frame,
                       .n_node = 3,
                       .node = node,
                       .n_target = 2,
                       .target = target,
                       .n_labels = 2,
                       .labels = labels,
                       .n_stream = 1,
                       .stream = &st,
                       .n_metric = 1,
                       .metric = &metric,
                       .n_steps = 1,
                       .steps = &steps,
                       .n_event = 1,
                       .event = &event,
                       .n_dropped = 1,
                       .dropped = &dropped};
}

static int setup(void **state)
{
    (void)state;
    make();
    arena_init(&arena, (size_t)128 << 20);
    buf_init(&out, (size_t)64 << 20);
    wire_limits_default(&limits);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    arena_deinit(&arena);
    buf_deinit(&out);
    return 0;
}

static int decode(struct err *err)
{
    struct err enc = {};

    arena_reset(&arena);
    buf_reset(&out);
    *err = (struct err){};
    assert_ok(wire_encode(&b, &out, NULL, &enc), &enc);
    return wire_decode(buf_view(&out), &limits, (real_ns){RECEIVED}, &arena, &back, &fault,
                       &rejects, err);
}

static void good(void **state)
{
    struct err err;

    (void)state;
    assert_ok(decode(&err), &err);
    assert_int_equal(rejects.n, 0);
    assert_int_equal(back.n_stream, 1);
    assert_int_equal(back.stream[0].rows.n, 3);
    assert_int_equal(back.id.content, 9);
}

/* ---- malformed: the batch is refused ------------------------------------------------------- */

#define BREAKS(set, why, where)                                                                    \
    do {                                                                                           \
        struct err err_;                                                                           \
        make();                                                                                    \
        set;                                                                                       \
        assert_int_equal(decode(&err_), -EINVAL);                                                  \
        if (strcmp(fault.reason, why) != 0 || strcmp(fault.field, where) != 0)                     \
            fail_msg("%s: %s \"%s\"", #set, fault.reason, fault.field);                            \
        assert_false(fault.too_large);                                                             \
        assert_null(fault.setting);                                                                \
    } while (0)

static void bad_index(void **state)
{
    (void)state;
    BREAKS(row_node[1] = 3, "bad_index", "stream[0].stack[1] = 3 of 3");
    BREAKS(row_target[2] = 2, "bad_index", "stream[0].s_target[2] = 2 of 2");
    BREAKS(row_labels[0] = UINT32_MAX, "bad_index", "stream[0].s_labels[0] = 4294967295 of 2");
    BREAKS(thread[0] = N_S, "bad_index", "stream[0].thread[0] = 9 of 9");
    BREAKS(st.target = 2, "bad_index", "stream[0].target = 2 of 2");
    BREAKS(st.labels = 2, "bad_index", "stream[0].labels = 2 of 2");
    BREAKS(st.state_why = N_S, "bad_index", "stream[0].state_why = 9 of 9");
    BREAKS(lost[0].why = 99, "bad_index", "stream[0].lost_why[0] = 99 of 9");
    BREAKS(pair[1] = 99, "bad_index", "label[0][1] = 99 of 9");
    BREAKS(set_pair[0] = 99, "bad_index", "labels[0][0] = 99 of 9");
    BREAKS(env[1] = 99, "bad_index", "target.env[0][1] = 99 of 9");
    BREAKS(target[1].cgroup = 99, "bad_index", "target[0].cgroup = 99 of 9");
    BREAKS(bin[1].path = 99, "bad_index", "dict.bin_path[0] = 99 of 9");
    BREAKS(fn[2].file = 99, "bad_index", "dict.fn_file[1] = 99 of 9");
    BREAKS(frame[1].fn = 3, "bad_index", "dict.fr_fn[0] = 3 of 3");
    BREAKS(frame[2].bin = 2, "bad_index", "dict.fr_bin[1] = 2 of 2");
    BREAKS(node[2].parent = 2, "bad_index", "dict.node_parent[1] = 2 of 2");
    BREAKS(node[1].frame = 3, "bad_index", "dict.node_frame[0] = 2 of 2");
    BREAKS(node[1].frame = 0, "bad_index", "dict.node_frame[0] = 4294967295 of 2");
    BREAKS(metric.unit = 99, "bad_index", "metric[0].unit = 99 of 9");
    BREAKS(metric.labels = 2, "bad_index", "metric[0].labels = 2 of 2");
    BREAKS(steps.target = 2, "bad_index", "steps[0].target = 2 of 2");
    BREAKS(part[0] = 99, "bad_index", "steps[0].part[0] = 99 of 9");
    BREAKS(event.text = 99, "bad_index", "event[0].text = 99 of 9");
}

static void bad_value(void **state)
{
    (void)state;
    BREAKS(b.id.seq = 0, "bad_value", "seq = 0");
    BREAKS(str[0] = STR("x"), "bad_value", "str[0]: not empty");
    BREAKS(bin[1].id_kind = (enum bin_id_kind)4, "bad_value", "dict.bin_id_kind[0] = 4");
    BREAKS(bin[1].id = ((struct str){(const char *)str, 65}), "bad_value",
           "dict.bin_id[0]: 65 bytes of 64");
    BREAKS(frame[2].kind = (enum frame_kind)7, "bad_value", "dict.fr_kind[1] = 7");
    BREAKS(frame[1].kind = (enum frame_kind)0, "bad_value", "dict.fr_kind[0] = 0");
    BREAKS(st.state = (enum source_state)0, "bad_value", "stream[0].state");
    BREAKS(st.state = (enum source_state)5, "bad_value", "stream[0].state");
    BREAKS(st.basis = (enum basis)5, "bad_value", "stream[0].basis");
    BREAKS(st.period = -1, "bad_value", "stream[0].period");
    BREAKS(st.period = 0, "bad_value", "stream[0].period"); /* and no values */
    BREAKS(st.covers.t1.v = st.covers.t0.v - 1, "bad_value", "stream[0].t1_ns");
    BREAKS(st.rows.var = var, "bad_value", "stream[0].var"); /* not with this basis */
    BREAKS((st.rows.var = var, st.basis = BASIS_SCALED, var[2] = -1), "bad_value",
           "stream[0].var[2]");
    BREAKS((st.type = 0, st.kind = KIND_SUM), "bad_value", "stream[0].name");
    BREAKS(str[S_RING] = STR("Ring full"), "bad_value", "stream[0].lost_why[0]");
    BREAKS(lost[0].weight = INT64_MIN, "bad_value", "stream[0].lost_weight[0]");
    BREAKS(metric.kind = (enum metric_kind)3, "bad_value", "metric[0].kind");
    BREAKS(metric.name = 0, "bad_value", "metric[0].name");
    BREAKS(num[0] = __builtin_inf(), "bad_value", "metric[0].num[0]");
    BREAKS(status[0] = 5, "bad_value", "metric[0].status[0]");
    BREAKS(dur[0] = 0, "bad_value", "steps[0].dur[0]");
    BREAKS(dur[0] = -1, "bad_value", "steps[0].dur[0]");
    BREAKS(dropped.last = 2, "bad_value", "dropped_seq[0]");
    BREAKS(b.n_known = 1, "bad_value", "dict.known[0] = 0");
}

/* Columns that the struct cannot have: field appended behind, where it counts as more of it. */
static void more_of(const char *bytes, size_t n, const char *where)
{
    struct err err;
    int r;

    make();
    b.id.content = 0;
    b.n_stream = b.n_metric = b.n_steps = 0;
    assert_ok(decode(&err), &err);
    buf_add(&out, bytes, n);
    arena_reset(&arena);
    err = (struct err){};
    r = wire_decode(buf_view(&out), &limits, (real_ns){RECEIVED}, &arena, &back, &fault, NULL,
                    &err);
    assert_int_equal(r, -EINVAL);
    if (strcmp(fault.reason, "column_length") != 0 || strcmp(fault.field, where) != 0)
        fail_msg("%s \"%s\"", fault.reason, fault.field);
}
#define MORE_OF(lit, where) more_of(lit, sizeof(lit) - 1, where)

static void column_length(void **state)
{
    (void)state;
    /* a stream of state 1 with one row and two of something */
    MORE_OF("\x62\x0d\x08\x01\x58\x01\xd2\x01\x01\x00\xb2\x01\x02\x00\x00",
            "stream[0].tid: 2, stack: 1");
    MORE_OF("\x62\x0d\x08\x01\x58\x01\xd2\x01\x01\x00\xa2\x01\x02\x00\x00",
            "stream[0].t_ns: 2, stack: 1");
    MORE_OF("\x62\x0d\x08\x01\x58\x01\x8a\x01\x01\x00\x92\x01\x02\x00\x00", "stream[0].lost_n");
    MORE_OF("\x6a\x07\x08\x01\x18\x01\x3a\x01\x00", "metric[0]");
    MORE_OF("\x72\x03\x22\x01\x05", "steps[0]");
    MORE_OF("\x42\x01\x00", "label[0]: odd");
    MORE_OF("\x82\x01\x01\x09", "dropped_seq: odd");
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

/* ---- refused alone ------------------------------------------------------------------------- */

static void one_reject(uint32_t i, const char *reason, uint32_t stream, uint64_t rows,
                       int64_t weight)
{
    assert_true(i < rejects.n);
    assert_string_equal(rejects.v[i].reason, reason);
    assert_int_equal(rejects.v[i].stream, stream);
    assert_int_equal(rejects.v[i].rows, rows);
    assert_true(rejects.v[i].value == weight);
}

static void single_rows(void **state)
{
    struct err err;

    (void)state;
    st.rows.value = value;
    value[0] = -7;
    value[1] = (INT64_C(1) << 62) + 1;
    assert_ok(decode(&err), &err);
    assert_int_equal(rejects.n, 2);
    one_reject(0, "negative_value", 0, 1, -7);
    one_reject(1, "value_out_of_range", 0, 1, (INT64_C(1) << 62) + 1);
    assert_int_equal(back.stream[0].rows.n, 1);
    assert_int_equal(back.stream[0].rows.value[0], 102);
    assert_int_equal(back.stream[0].rows.node[0], 2);
    assert_int_equal(back.stream[0].rows.count[0], 3);
    assert_int_equal(back.stream[0].rows.t[0].v, t[2].v);
    assert_int_equal(back.stream[0].rows.labels[0], 1);

    make();
    st.rows.value = value;
    value[1] = INT64_C(1) << 62; /* the last that fits */
    assert_ok(decode(&err), &err);
    assert_int_equal(rejects.n, 0);

    make();
    t[0].v = st.covers.t0.v - 1;
    t[2].v = st.covers.t1.v;
    assert_ok(decode(&err), &err);
    assert_int_equal(rejects.n, 1);
    one_reject(0, "outside_interval", 0, 2, (1 + 3) * 10 * MS);
    assert_int_equal(back.stream[0].rows.n, 1);
    assert_int_equal(back.stream[0].rows.t[0].v, t[1].v);

    make();
    count[0] = 0; /* unknown, and no value */
    count[1] = UINT64_MAX;
    assert_ok(decode(&err), &err);
    assert_int_equal(rejects.n, 1);
    assert_string_equal(rejects.v[0].reason, "value_out_of_range");
    assert_int_equal(rejects.v[0].rows, 2);
    assert_true(rejects.v[0].value == (unit_i128)UINT64_MAX * 10 * MS);
    assert_int_equal(back.stream[0].rows.n, 1);
}

static void times_that_overflow(void **state)
{
    struct err err;

    (void)state;
    t[0].v = INT64_MAX;
    t[1].v = INT64_MIN;
    assert_ok(decode(&err), &err);
    assert_int_equal(back.stream[0].rows.n, 1);
    assert_int_equal(back.stream[0].rows.t[0].v, t[2].v);
}

static void whole_streams(void **state)
{
    struct batch_stream two[2];
    struct err err;

    (void)state;
    two[0] = two[1] = st;
    b.stream = two;
    b.n_stream = 2;
    two[0].covers.t0.v = RECEIVED - 7 * DAY; /* the last that is taken */
    assert_ok(decode(&err), &err);
    assert_int_equal(rejects.n, 0);
    two[0].covers.t0.v--;
    assert_ok(decode(&err), &err);
    assert_int_equal(rejects.n, 1);
    one_reject(0, "too_old", 0, 3, 6 * 10 * MS);
    assert_int_equal(back.n_stream, 1);

    two[0] = st;
    two[1].covers.t1.v = RECEIVED + 600 * NS_PER_S;
    assert_ok(decode(&err), &err);
    assert_int_equal(rejects.n, 0);
    two[1].covers.t1.v++;
    assert_ok(decode(&err), &err);
    one_reject(0, "in_future", 1, 3, 6 * 10 * MS);
    assert_int_equal(back.n_stream, 1);

    two[1] = st;
    two[1].type = PTYPE_BUILTIN_END;
    assert_ok(decode(&err), &err);
    one_reject(0, "unknown_type", 1, 3, 6 * 10 * MS);
    two[1].type = PTYPE_IMPORTED_FIRST; /* an id of one store means nothing in another */
    assert_ok(decode(&err), &err);
    one_reject(0, "unknown_type", 1, 3, 6 * 10 * MS);

    two[1].type = PTYPE_NONE;
    two[1].name = S_OTHER;
    two[1].kind = (enum ptype_kind)3;
    assert_ok(decode(&err), &err);
    one_reject(0, "bad_kind", 1, 3, 6 * 10 * MS);
    two[1].kind = KIND_LEVEL;
    assert_ok(decode(&err), &err);
    assert_int_equal(rejects.n, 0);
    assert_int_equal(back.stream[1].name, S_OTHER);
}

/* An import under the name and unit of a built-in type is that type. */
static void built_in_by_name(void **state)
{
    struct err err;

    (void)state;
    st.type = PTYPE_NONE;
    st.name = S_CPU;
    st.unit = S_NS;
    st.kind = KIND_LEVEL;
    assert_ok(decode(&err), &err);
    assert_int_equal(back.stream[0].type, PTYPE_CPU);
    assert_int_equal(back.stream[0].kind, KIND_SUM);
    assert_int_equal(back.stream[0].name, 0);
}

/* ---- cut ----------------------------------------------------------------------------------- */

static void names(void **state)
{
    static const char text[] = "a_very_long_name_\xc3\xbc_of_a_function";
    struct err err;
    uint64_t hash;
    char want[40];

    (void)state;
    str[S_WORK] = str_c(text);
    assert_ok(decode(&err), &err);
    hash = back.node[2].hash;
    limits.batch.name_bytes = 27; /* 18 bytes stay, which would end inside a character */
    assert_ok(decode(&err), &err);
    assert_int_equal(rejects.name_cut, 1);
    (void)snprintf(want, sizeof want, "a_very_long_name_~%08x",
                   (unsigned)(hash_bytes(text, sizeof text - 1) >> 32));
    assert_str(back.str[S_WORK], str_c(want));
    assert_int_equal(back.node[2].hash, hash); /* both sides still mean the same stack */
}

static void label_limits(void **state)
{
    struct err err;

    (void)state;
    limits.batch.label_value_bytes = 10;
    str[S_WORK] = STR("a value longer than that");
    assert_ok(decode(&err), &err);
    assert_int_equal(rejects.label_cut, 1);
    assert_int_equal(back.labels[1].n, 1);
    assert_int_equal(back.str[back.labels[1].pair[1]].n, 10);
    assert_str(back.str[S_WORK], STR("a value longer than that")); /* a name elsewhere */

    limits.batch.label_name_bytes = 3;
    assert_ok(decode(&err), &err);
    assert_int_equal(rejects.label_dropped, 2);
    assert_int_equal(back.label.n, 0);
}

/* Of too many labels the built-in names stay, then the first by name; of one name the later. */
static void too_many_labels(void **state)
{
    static const char *const name[] = {"zone", "b", "host", "a", "service", "a"};
    static struct str more[13];
    static uint32_t many[12];
    struct err err;
    struct batch_labels l;

    (void)state;
    for (uint32_t i = 0; i < 6; i++) {
        more[2 * i + 1] = str_c(name[i]);
        more[2 * i + 2] = str_c(i == 3 ? "first" : i == 5 ? "second" : "x");
        many[2 * i] = 2 * i + 1;
        many[2 * i + 1] = 2 * i + 2;
    }
    b = (struct batch){.id = {.seq = 1},
                       .n_str = 13,
                       .str = more,
                       .n_bin = 1,
                       .bin = bin,
                       .n_fn = 1,
                       .fn = fn,
                       .n_frame = 1,
                       .frame = frame,
                       .n_node = 1,
                       .node = node,
                       .n_target = 1,
                       .target = target,
                       .n_labels = 1,
                       .labels = labels,
                       .label = {6, many}};
    limits.batch.labels = 3;
    assert_ok(decode(&err), &err);
    l = back.label;
    assert_int_equal(l.n, 3);
    assert_int_equal(rejects.label_dropped, 3);
    assert_str(back.str[l.pair[0]], STR("host"));
    assert_str(back.str[l.pair[2]], STR("service"));
    assert_str(back.str[l.pair[4]], STR("a"));
    assert_str(back.str[l.pair[5]], STR("second"));
}

/* A stack of 5,000 frames, of which the limit of 1,024 keeps 1,023 at the leaf. */
static void deep_stacks(void **state)
{
    enum {
        DEEP = 5000
    };
    static struct batch_node chain[DEEP + 1];
    static const uint32_t leaf[] = {DEEP, 1024, 1025, DEEP};
    static const uint64_t c[] = {1, 2, 4, 8};
    const struct batch_rows *r = &back.stream[0].rows;
    struct err err;

    (void)state;
    for (uint32_t i = 1; i <= DEEP; i++)
        chain[i] = (struct batch_node){i - 1, i % 2 ? 1 : 2, 0};
    b.node = chain;
    b.n_node = DEEP + 1;
    st.rows = (struct batch_rows){.n = 4, .node = leaf, .count = c};
    assert_ok(decode(&err), &err);
    r = &back.stream[0].rows;
    assert_int_equal(rejects.stack_cut, 3);
    assert_int_equal(back.n_node, 1 + 1024 + 1 + 2 * 1023);
    assert_int_equal(r->node[0], r->node[3]);
    for (unsigned k = 0; k < 4; k++) {
        uint32_t depth = 0, at = r->node[k], top = 0;

        for (; at; at = back.node[at].parent, depth++) {
            const struct batch_node *n = &back.node[at];

            top = n->frame;
            assert_true(n->parent < at);
            assert_int_equal(
                n->hash, node_hash(back.node[n->parent].hash, batch_frame_hash(&back, n->frame)));
            if (depth < 1023)
                assert_int_equal(n->frame, (leaf[k] - depth) % 2 ? 1 : 2);
        }
        assert_int_equal(depth, 1024);
        assert_str(back.str[back.fn[back.frame[top].fn].name],
                   leaf[k] == 1024 ? STR("main") : STR("[truncated]"));
    }
}

/* ---- memory -------------------------------------------------------------------------------- */

/* 50,000 frames of one function whose name has 64 kB: 3 GB to hash, from a body of 0.6 MB. */
static void long_names_in_many_frames(void **state)
{
    enum {
        FRAMES = 50000
    };
    static struct batch_frame many[FRAMES];
    static char name[65000];
    struct err err;

    (void)state;
    memset(name, 'x', sizeof name);
    str[S_MAIN] = (struct str){name, sizeof name};
    for (uint32_t i = 1; i < FRAMES; i++)
        many[i] = (struct batch_frame){.kind = FRAME_NATIVE, .fn = 1, .line = i};
    b.frame = many;
    b.n_frame = FRAMES;
    assert_int_equal(decode(&err), -E2BIG);
    assert_string_equal(fault.reason, "decode_budget");
    assert_string_equal(fault.setting, "ingest.inflated");
    assert_true(fault.limit == (uint64_t)1 << 30 && fault.actual > fault.limit && fault.too_large);
}

/* Whichever allocation fails: decode_budget, nothing leaks, and the next try succeeds. */
static void any_allocation_fails(void **state)
{
    uint64_t n = 0;
    struct err err;
    int r;

    (void)state;
    limits.batch.label_value_bytes = 10;
    str[S_WORK] = STR("a value longer than that");
    assert_ok(decode(&err), &err);
    do {
        struct arena a;
        struct batch got;

        arena_init(&a, (size_t)1 << 20);
        err = (struct err){};
        mem_fail_nth(++n);
        r = wire_decode(buf_view(&out), &limits, (real_ns){RECEIVED}, &a, &got, &fault, NULL, &err);
        mem_fail_nth(0);
        if (r != 0) {
            assert_int_equal(r, -ENOMEM);
            assert_string_equal(fault.reason, "decode_budget");
        }
        arena_deinit(&a);
    } while (r != 0 && n < 1000);
    assert_int_equal(r, 0);
    assert_in_range(n, 40, 300);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(good),
        TEST(bad_index),
        TEST(bad_value),
        TEST(column_length),
        TEST(single_rows),
        TEST(times_that_overflow),
        TEST(whole_streams),
        TEST(built_in_by_name),
        TEST(names),
        TEST(label_limits),
        TEST(too_many_labels),
        TEST(deep_stacks),
        TEST(long_names_in_many_frames),
        TEST(any_allocation_fails),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
