// SPDX-License-Identifier: Apache-2.0
/* What is made is read back by the decoder, as the server would: sums, stacks, loss, targets. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "agent/send/batchmake.h"
#include "base/loss.h"
#include "base/time.h"
#include "proto/wire.h"
#include "tests/lib/testing.h"

#define T0 (INT64_C(1700000000) * NS_PER_S)
#define P  INT64_C(10101010)

static const uint8_t host[16] = {1};
static struct batchmake *m;
static struct stackagg *fold;
static struct proc app = {.tgid = 50,
                          .serial = 1,
                          .facts = 1,
                          .service = STR("app"),
                          .exe = STR("/opt/app"),
                          .comm = STR("app"),
                          .key = {.pidns = 1, .pid = 5, .start = {5}}};
static struct proc twin = {.tgid = 60,
                           .serial = 2,
                           .facts = 1,
                           .service = STR("app"),
                           .key = {.pidns = 2, .pid = 5, .start = {5}}};

static void add(const struct proc *p, uint8_t stop, const uint64_t *w, uint16_t nk, uint16_t nu,
                int64_t t)
{
    struct sa_ev *e = calloc(1, sizeof *e + ((size_t)nk + nu) * sizeof *w);

    assert_non_null(e);
    *e = (struct sa_ev){.kind = 1,
                        .tgid = p->tgid,
                        .tid = p->tgid,
                        .nk = nk,
                        .nu = nu,
                        .stop = stop,
                        .weight_ns = (uint64_t)P};
    if (nk + nu)
        memcpy(e->w, w, ((size_t)nk + nu) * sizeof *w);
    stackagg_add(fold, e, (real_ns){t}, p, host);
    free(e);
}

static struct stackagg_window *window(int64_t second, uint64_t received)
{
    struct source_account a = {
        .covers = {{T0 + second * NS_PER_S}, {T0 + (second + 1) * NS_PER_S}},
        .width = 2,
        .period = P,
        .received = received,
        .identity_ok = true,
        .jitter = 7,
        .missed = {1, 2 * P},
        .missed_idle = {3, 3 * P},
    };

    struct stackagg_window *w = stackagg_take(fold, &a);

    w->account.weight_ns = (uint64_t)stackagg_weight(w);
    return w;
}

static struct batch decoded;
static struct arena arena;
static struct buf bytes;
static struct batchmake_info info;

static void make(const struct batchmake_job *job, uint64_t seq)
{
    struct wire_limits limits;
    struct err err = {};

    buf_reset(&bytes);
    assert_ok(batchmake_make(m, job, seq, &bytes, &info, &err), &err);
    wire_limits_default(&limits);
    arena_deinit(&arena);
    arena_init(&arena, (size_t)64 << 20);
    assert_ok(wire_decode(buf_view(&bytes), &limits, (real_ns){T0 + 60 * NS_PER_S}, &arena,
                          &decoded, NULL, NULL, &err),
              &err);
    assert_int_equal(decoded.id.content, info.content);
    assert_int_not_equal(info.content, 0);
}

static struct str frame_name(uint32_t node)
{
    return decoded.str[decoded.fn[decoded.frame[decoded.node[node].frame].fn].name];
}

static struct str label(uint32_t i, struct str name)
{
    const struct batch_labels *l = &decoded.labels[i];

    for (uint32_t k = 0; k < l->n; k++) {
        if (str_eq(decoded.str[l->pair[2 * k]], name))
            return decoded.str[l->pair[2 * k + 1]];
    }
    return (struct str){NULL, 0};
}

static int set_up_with(const char *proc)
{
    const struct batchmake_conf c = {
        .agent = {9},
        .boot = {8},
        .hostname = STR("box"),
        .labels = STR("site=lab"),
        .version = STR("1.2"),
        .names = {.cache = 1 << 20, .debug_dirs = "", .proc = proc, .sys = "/nowhere"}};

    m = batchmake_new(&c);
    fold = stackagg_new();
    buf_init(&bytes, (size_t)64 << 20);
    return 0;
}

static int set_up(void **state)
{
    (void)state;
    return set_up_with("/nowhere");
}

static int tear_down(void **state)
{
    (void)state;
    batchmake_free(m);
    stackagg_free(fold);
    buf_deinit(&bytes);
    arena_deinit(&arena);
    return 0;
}

static void sums(void **state)
{
    struct stackagg_window *w[3];
    struct batchmake_job job = {.window = w, .n_window = 3};
    int64_t sum = 0, want = 0;
    uint64_t rows = 0;
    unsigned seed = 1;

    (void)state;
    for (uint32_t i = 0; i < 3; i++) {
        for (uint32_t k = 0; k < 500; k++) {
            uint64_t words[4];

            for (uint32_t j = 0; j < 4; j++) {
                seed = seed * 1103515245 + 12345;
                words[j] = SA_W_RAW | (uint64_t)((seed >> 16) & 1) << 61;
            }
            words[0] = 0xffffffff81000000 + (seed >> 8) % 7;
            add(k % 2 ? &app : &twin, (uint8_t)(k % SA_S_N), words, 1, 3,
                T0 + i * NS_PER_S + k * NS_PER_MS);
        }
        w[i] = window(i, 600);
        want += stackagg_weight(w[i]);
        rows += w[i]->n_row;
    }
    make(&job, 7);
    assert_int_equal(decoded.id.seq, 7);
    assert_int_equal(decoded.id.agent[0], 9);
    assert_int_equal(decoded.n_stream, 1);
    const struct batch_stream *st = &decoded.stream[0];
    assert_int_equal(st->rows.n, rows);
    assert_int_equal(info.rows, rows);
    for (uint32_t i = 0; i < st->rows.n; i++)
        sum += (int64_t)st->rows.count[i] * st->period;
    assert_int_equal(sum, want);
    assert_int_equal(info.held.v[0].weight, want);
    assert_int_equal(sum, 1500 * P);
    assert_null(st->rows.value); /* every value is count x period */
    assert_int_equal(st->covers.t0.v, T0);
    assert_int_equal(st->covers.t1.v, T0 + 3 * NS_PER_S);
    assert_int_equal(st->received, 1800);
    assert_int_equal(st->expected, 1800 + 3 + 9);
    assert_int_equal(st->jitter, 21);
    assert_int_equal(st->width, 2);
    assert_int_equal(st->basis, BASIS_PERIODIC);
    assert_int_equal(st->n_lost, 2);
    assert_int_equal(decoded.n_event, 0);
    assert_int_equal(decoded.n_target, 3); /* the host; equal pids of two namespaces are two */
    for (uint32_t i = 0; i < 3; i++)
        stackagg_window_free(w[i]);
}

/* Root first: pseudo-frame, user part, kernel part. */
static void stacks(void **state)
{
    const uint64_t words[] = {0xffffffff81000001, SA_W_RAW | STACKAGG_W_ANON | 5,
                              SA_W_MARK | SA_M_SIGNAL, SA_W_RAW | 9};
    struct stackagg_window *w[1];
    struct batchmake_job job = {.window = w, .n_window = 1};
    uint32_t node;

    (void)state;
    add(&app, SA_S_NOINFO, words, 1, 3, T0);
    add(&app, SA_S_EXITING, NULL, 0, 0, T0);
    add(&app, SA_S_KTHREAD, words, 1, 0, T0);
    add(&app, SA_S_END, words, 1, 3, T0);
    w[0] = window(0, 4);
    make(&job, 1);
    node = decoded.stream[0].rows.node[0];
    assert_str(frame_name(node), STR("0xffffffff81000001"));
    assert_int_equal(decoded.frame[decoded.node[node].frame].kind, FRAME_KERNEL);
    node = decoded.node[node].parent;
    assert_str(frame_name(node), STR("[anonymous]"));
    assert_int_equal(decoded.frame[decoded.node[node].frame].kind, FRAME_JIT);
    node = decoded.node[node].parent;
    assert_str(frame_name(node), STR("[unmapped]"));
    node = decoded.node[node].parent;
    assert_str(frame_name(node), STR("[truncated: noinfo]"));
    assert_int_equal(decoded.node[node].parent, 0);
    node = decoded.stream[0].rows.node[1];
    assert_str(frame_name(node), STR("[no stack: exiting]"));
    assert_int_equal(decoded.node[node].parent, 0);
    node = decoded.stream[0].rows.node[2];
    assert_int_equal(decoded.node[node].parent, 0); /* whole: kernel thread */
    node = decoded.stream[0].rows.node[3];
    node = decoded.node[decoded.node[decoded.node[node].parent].parent].parent;
    assert_int_equal(node, 0);
    stackagg_window_free(w[0]);
}

/* A real function of this program, by its address in the file. */
static void native_name(void **state)
{
    struct binary *b = NULL;
    struct stackagg_window *w[1];
    struct batchmake_job job = {.window = w, .n_window = 1};
    struct err err = {};
    char line[512];
    uint64_t word = 0, elf = 0;
    uintptr_t start = 0, offset = 0, at = (uintptr_t)native_name;
    FILE *maps;

    (void)state;
    maps = fopen("/proc/self/maps", "re");
    assert_non_null(maps);
    while (fgets(line, sizeof line, maps)) {
        uintptr_t lo, hi, off;

        if (sscanf(line, "%lx-%lx %*s %lx", &lo, &hi, &off) == 3 && at >= lo && at < hi) {
            start = lo;
            offset = off;
        }
    }
    (void)fclose(maps);
    assert_ok(
        binary_open(open("/proc/self/exe", O_RDONLY | O_CLOEXEC), STR("/opt/app"), false, &b, &err),
        &err);
    elf = binary_vaddr(b, at - start + offset);
    word = (uint64_t)b->id << 40 | elf;
    add(&app, SA_S_END, &word, 0, 1, T0);
    word = (uint64_t)b->id << 40 | 0xfffffff0;
    add(&app, SA_S_END, &word, 0, 1, T0);
    w[0] = window(0, 2);
    make(&job, 1);
    uint32_t node = decoded.stream[0].rows.node[0];
    const struct batch_frame *f = &decoded.frame[decoded.node[node].frame];
    assert_str(frame_name(node), STR("native_name"));
    assert_int_equal(f->addr, elf);
    assert_str(decoded.str[decoded.bin[f->bin].path], STR("/opt/app"));
    assert_int_equal(decoded.bin[f->bin].id_kind, b->id_kind);
    assert_str(decoded.bin[f->bin].id, ((struct str){(const char *)b->id_bytes, b->id_len}));
    assert_str(frame_name(decoded.stream[0].rows.node[1]), STR("app+0xfffffff0"));
    stackagg_window_free(w[0]);
    binary_unref(b);
}

static void labels_and_targets(void **state)
{
    const struct environ_var env[] = {{STR("STRATA_VERSION"), STR("abc"), false},
                                      {STR("SECRET"), STR("x"), true}, /* stays here */
                                      {STR("RANK"), STR("3"), false}};
    struct label as_app[] = {{STR("service"), STR("app")}, {STR("rank"), STR("3")}};
    struct label as_new[] = {{STR("service"), STR("new")}};
    struct stackagg_window *w[1];
    struct batchmake_metric metric[] = {
        {"process_cpu", "nanoseconds", true, 1, {T0 + NS_PER_S}, 5, NULL, ""},
        {"process_cpu", "nanoseconds", true, 99, {T0 + NS_PER_S}, 6, NULL, ""}, /* no row, no target
                                                                                 */
        {"agent_rss", "bytes", false, 0, {T0 + NS_PER_S}, 7, "full", "3.11.7"}};
    struct batchmake_event event = {{T0}, "restart", "version=1"};
    struct batchmake_job job = {
        .window = w, .n_window = 1, .metric = metric, .n_metric = 3, .event = &event, .n_event = 1};
    struct proc p = app;

    (void)state;
    p.env = env;
    p.n_env = 3;
    p.label = as_app;
    p.n_label = 2;
    add(&p, SA_S_END, NULL, 0, 0, T0);
    p.facts = 2; /* exec: another name, the same life */
    p.exe = STR("/opt/new");
    p.label = as_new;
    p.n_label = 1;
    add(&p, SA_S_END, NULL, 0, 0, T0);
    w[0] = window(0, 2);
    make(&job, 1);
    assert_int_equal(decoded.n_target, 2);
    assert_str(decoded.str[decoded.target[1].exe], STR("/opt/new"));
    assert_int_equal(decoded.target[1].env.n, 2);
    assert_int_equal(decoded.target[1].key.pid, 5);
    assert_int_equal(decoded.target[1].host_pid, 50);
    assert_str(label(decoded.stream[0].rows.labels[0], STR("service")), STR("app"));
    assert_str(label(decoded.stream[0].rows.labels[1], STR("service")), STR("new"));
    assert_str(label(decoded.stream[0].rows.labels[0], STR("rank")), STR("3"));
    assert_int_equal(decoded.n_metric, 2);
    assert_int_equal(decoded.metric[0].target, 1);
    assert_int_equal(decoded.metric[0].inum[0], 5);
    assert_int_equal(decoded.metric[1].kind, METRIC_GAUGE);
    assert_str(label(decoded.metric[1].labels, STR("why")), STR("full"));
    assert_str(label(decoded.metric[1].labels, STR("python")), STR("3.11.7"));
    assert_str(decoded.str[decoded.event[0].kind], STR("restart"));
    assert_str(decoded.str[decoded.label.pair[1]], STR("box"));
    assert_str(decoded.str[decoded.label.pair[3]], STR("agent"));
    assert_int_equal(decoded.label.n, 3);
    assert_str(decoded.str[decoded.label.pair[5]], STR("lab"));
    stackagg_window_free(w[0]);
}

/* What was given up is a stream of loss over its own time. */
static void dropped(void **state)
{
    const struct batchmake_dropped d[] = {
        {LOSS_SPOOL_DROP,
         3,
         5,
         {{T0 - 9 * NS_PER_S}, {T0 - 6 * NS_PER_S}},
         600,
         60 * P,
         2,
         PTYPE_CPU},
        {LOSS_SPOOL_DROP, 1, 0, {{T0 - 6 * NS_PER_S}, {T0 - 5 * NS_PER_S}}, 10, P, 2, PTYPE_CPU}};
    struct stackagg_window *w[1];
    struct batchmake_job job = {.window = w, .n_window = 1, .dropped = d, .n_dropped = 2};
    const struct batch_stream *st;

    (void)state;
    add(&app, SA_S_END, NULL, 0, 0, T0);
    w[0] = window(0, 200);
    make(&job, 6);
    assert_int_equal(decoded.n_stream, 3);
    assert_int_equal(decoded.n_dropped, 1);
    assert_int_equal(decoded.dropped[0].first, 3);
    assert_int_equal(decoded.dropped[0].last, 5);
    st = &decoded.stream[1];
    assert_int_equal(st->rows.n, 0);
    assert_int_equal(st->covers.t0.v, T0 - 9 * NS_PER_S);
    assert_int_equal(st->received, 0);
    assert_int_equal(st->expected, 600);
    assert_int_equal(st->lost[0].n, 600);
    assert_int_equal(st->lost[0].weight, 60 * P);
    assert_str(decoded.str[st->lost[0].why], STR("spool_drop"));
    /* of itself alone: the spool keeps what it tells */
    assert_int_equal(info.held.n, 1);
    assert_int_equal(info.held.v[0].n, 200);
    assert_int_equal(info.held.v[0].weight, P);
    assert_int_equal(info.covers.t0.v, T0);
    stackagg_window_free(w[0]);
}

/* A violated identity is said in the batch itself; another period is another stream. */
static void identity_and_period(void **state)
{
    struct stackagg_window *w[3];
    struct batchmake_job job = {.window = w, .n_window = 3};

    (void)state;
    for (uint32_t i = 0; i < 3; i++) {
        add(&app, SA_S_END, NULL, 0, 0, T0 + i * NS_PER_S);
        w[i] = window(i, 1);
    }
    w[1]->account.weight_ns++;
    w[2]->account.identity_ok = false;
    memcpy(w[2]->account.identity_text, "cpu=1 left=5 right=6", 21);
    w[2]->account.period = 2 * P;
    make(&job, 1);
    assert_int_equal(decoded.n_stream, 2);
    assert_int_equal(decoded.stream[0].rows.n, 2);
    assert_int_equal(decoded.stream[1].period, 2 * P);
    assert_int_equal(decoded.stream[1].rows.value[0], P); /* not count x its period: said */
    assert_int_equal(decoded.n_event, 2);
    assert_str(decoded.str[decoded.event[0].kind], STR("identity"));
    assert_str(decoded.str[decoded.event[1].text], STR("cpu=1 left=5 right=6"));
    for (uint32_t i = 0; i < 3; i++)
        stackagg_window_free(w[i]);
}

/* Nothing ran: covered and zero, which is data. */
/* Of a source without privileges: what it is, what it cannot see, what that cost. */
static void user_source(void **state)
{
    const uint64_t word = SA_W_RAW | 0x1000;
    struct batchmake_job job = {.n_window = 1};
    struct stackagg_window *w;
    const struct batch_stream *st;
    bool found = false;

    (void)state;
    add(&app, SA_S_END, &word, 0, 1, T0);
    w = window(0, 1);
    w->account.source = "user";
    w->account.why = "user: no kernel stacks";
    w->account.scaled = true;
    w->account.kernel_hidden = 12345;
    job.window = &w;
    make(&job, 1);
    st = &decoded.stream[0];
    assert_str(decoded.str[st->state_why], STR("user: no kernel stacks"));
    assert_int_equal(st->basis, BASIS_SCALED);
    for (uint32_t i = 0; i < st->n_lost; i++) {
        if (!str_eq(decoded.str[st->lost[i].why], STR("kernel_hidden")))
            continue;
        found = true;
        assert_int_equal(st->lost[i].weight, 12345);
        assert_int_equal(st->lost[i].n, BATCH_UNKNOWN);
    }
    assert_true(found);
    found = false;
    for (uint32_t i = 0; i < decoded.label.n; i++)
        found |= str_eq(decoded.str[decoded.label.pair[2 * i]], STR("source")) &&
                 str_eq(decoded.str[decoded.label.pair[2 * i + 1]], STR("user"));
    assert_true(found);
    stackagg_window_free(w);
}

static void idle(void **state)
{
    struct stackagg_window *w[1];
    struct batchmake_job job = {.window = w, .n_window = 1};

    (void)state;
    w[0] = window(0, 198);
    make(&job, 1);
    assert_int_equal(decoded.n_stream, 1);
    assert_int_equal(decoded.stream[0].rows.n, 0);
    assert_int_equal(decoded.stream[0].received, 198);
    assert_int_equal(decoded.stream[0].state, SOURCE_OK);
    stackagg_window_free(w[0]);
}

static void add_off(const struct proc *p, uint32_t tid, uint8_t stop, int64_t blocked,
                    int64_t queued, struct str holder)
{
    struct sa_ev *e = calloc(1, sizeof *e + 2 * sizeof *e->w);
    struct stackagg_off o = {.ev = e,
                             .t = {T0 + 5},
                             .stop = stop,
                             .n = 1,
                             .blocked = blocked,
                             .queued = queued,
                             .holder = holder};

    assert_non_null(e);
    *e = (struct sa_ev){.kind = 2, .tgid = p->tgid, .tid = tid, .nu = 2, .comm = "w"};
    e->w[0] = SA_W_RAW | 0x1000;
    e->w[1] = SA_W_RAW | 0x2000;
    stackagg_add_off(fold, &o, p, host);
    free(e);
}

static const struct batch_stream *stream_of(ptype_id type, uint32_t target)
{
    for (uint32_t i = 0; i < decoded.n_stream; i++)
        if (decoded.stream[i].type == type && decoded.stream[i].target == target)
            return &decoded.stream[i];
    return NULL;
}

static int64_t sum_of(const struct batch_stream *st)
{
    int64_t sum = 0;

    for (uint32_t i = 0; i < st->rows.n; i++)
        sum += st->rows.value[i];
    return sum;
}

/* Blocked and queued are types of their own, never CPU time; what the ring refused is told. */
static void off_cpu(void **state)
{
    struct stackagg_window *w[1];
    const struct batch_stream *off, *runq;

    (void)state;
    add(&app, SA_S_END, NULL, 0, 0, T0 + 1);
    add_off(&app, 7, SA_S_END, 300, 20, STR(""));
    add_off(&app, 7, SA_S_END, 100, 0, STR("")); /* the same stack: one row */
    add_off(&app, 8, STACKAGG_THROTTLED, 0, 50, STR(""));
    w[0] = window(0, 10);
    assert_int_equal(stackagg_weight(w[0]), P);
    w[0]->off = (struct stackagg_off_account){
        .on = true, .types = UINT32_MAX, .lost = 3, .lost_blocked = 1000, .lost_queued = 10};
    make(&(struct batchmake_job){.window = w, .n_window = 1}, 1);
    assert_int_equal(decoded.n_stream, 3); /* no Python: no gil_wait */
    off = stream_of(PTYPE_OFFCPU, 0);
    runq = stream_of(PTYPE_RUNQ, 0);
    assert_non_null(off);
    assert_non_null(runq);
    assert_int_equal(off->rows.n, 1);
    assert_int_equal(off->rows.count[0], 2);
    assert_int_equal(sum_of(off), 400);
    assert_int_equal(off->received, 2);
    assert_int_equal(off->expected, 5);
    assert_int_equal(off->basis, BASIS_EVERY);
    assert_int_equal(off->lost[0].weight, 1000);
    assert_int_equal(sum_of(runq), 70);
    assert_int_equal(runq->received, 2);
    assert_int_equal(runq->lost[0].weight, 10);
    assert_true(str_eq(frame_name(runq->rows.node[1]), STR("[no stack: throttled]")));
    assert_int_equal(stream_of(PTYPE_CPU, 0)->rows.n, 1);
    assert_int_equal(info.held.n, 3);
    assert_int_equal(info.held.v[1].type, PTYPE_OFFCPU);
    assert_int_equal(info.held.v[1].n, 2);
    assert_int_equal(info.held.v[1].weight, 400);
    assert_int_equal(info.held.v[2].weight, 70);
    stackagg_window_free(w[0]);
}

/* Of some processes alone: a stream for each, so that the others are not covered. */
static void off_cpu_of_some(void **state)
{
    struct stackagg_window *w[1];
    int64_t sum = 0;

    (void)state;
    add_off(&app, 7, SA_S_END, 300, 0, STR(""));
    add_off(&twin, 9, SA_S_END, 40, 0, STR(""));
    add_off(&app, 8, SA_S_END, 5, 0, STR(""));
    w[0] = window(0, 10);
    w[0]->off = (struct stackagg_off_account){
        .on = true, .scoped = true, .types = 1U << PTYPE_OFFCPU, .lost = 1, .lost_blocked = 9};
    make(&(struct batchmake_job){.window = w, .n_window = 1}, 1);
    assert_int_equal(decoded.n_stream, 4); /* cpu, two, and what was lost of whoever */
    for (uint32_t t = 1; t < decoded.n_target; t++) {
        const struct batch_stream *st = stream_of(PTYPE_OFFCPU, t);

        assert_non_null(st);
        assert_int_equal(st->n_lost, 0);
        sum += sum_of(st);
    }
    assert_int_equal(sum, 345);
    assert_int_equal(stream_of(PTYPE_OFFCPU, 0)->lost[0].weight, 9);
    assert_int_equal(stream_of(PTYPE_OFFCPU, 0)->rows.n, 0);
    assert_int_equal(info.held.n, 2);
    assert_int_equal(info.held.v[1].weight, 345); /* of all of them together */
    stackagg_window_free(w[0]);
}

static uint32_t node_of_wait(const uint64_t *words, uint16_t nk, uint16_t nu)
{
    struct sa_ev *e = calloc(1, sizeof *e + ((size_t)nk + nu) * sizeof *words);
    struct stackagg_off o = {
        .ev = e, .t = {T0 + 5}, .stop = SA_S_END, .n = 1, .blocked = 100, .holder = STR("")};
    struct stackagg_window *w[1];

    assert_non_null(e);
    *e = (struct sa_ev){.kind = 2, .tgid = app.tgid, .tid = 7, .nk = nk, .nu = nu, .comm = "w"};
    memcpy(e->w, words, ((size_t)nk + nu) * sizeof *words);
    stackagg_add_off(fold, &o, &app, host);
    free(e);
    w[0] = window(0, 1);
    w[0]->off = (struct stackagg_off_account){.on = true, .types = UINT32_MAX};
    make(&(struct batchmake_job){.window = w, .n_window = 1}, 1);
    stackagg_window_free(w[0]);
    return stream_of(PTYPE_OFFCPU, 0)->rows.node[0];
}

/* The leaf of a wait is what waited: neither the tracepoint's frames nor the scheduler's. */
static void off_cpu_leaf(void **state)
{
    static const char symbols[] = "ffffffff81000000 T _text\n"
                                  "ffffffff81001000 t bpf_trace_run4\n"
                                  "ffffffff81002000 t __schedule\n"
                                  "ffffffff81003000 T schedule\n"
                                  "ffffffff81004000 T schedule_timeout\n"
                                  "ffffffff81005000 t do_nanosleep\n"
                                  "ffffffff81006000 t vfs_read\n";
    const uint64_t k = 0xffffffff81000000, user = SA_W_RAW | 0x1000;
    const uint64_t sleeps[] = {k + 0x1008, k + 0x2008, k + 0x3008, k + 0x4008,
                               k + 0x5008, k + 0x6008, user};
    const uint64_t bare[] = {k + 0x1008, k + 0x2008, k + 0x3008, user};
    const uint64_t other[] = {k + 0x3008, k + 0x6008, user};
    char root[] = "/tmp/strata_batchmake_XXXXXX", path[64];
    uint32_t node;
    FILE *f;

    (void)state;
    assert_non_null(mkdtemp(root));
    (void)snprintf(path, sizeof path, "%s/kallsyms", root);
    f = fopen(path, "we");
    assert_non_null(f);
    assert_true(fputs(symbols, f) >= 0);
    (void)fclose(f);
    (void)set_up_with(root);
    node = node_of_wait(sleeps, 6, 1);
    assert_str(frame_name(node), STR("do_nanosleep"));
    assert_str(frame_name(decoded.node[node].parent), STR("vfs_read"));
    node = node_of_wait(bare, 3, 1); /* nothing is left: who called the kernel */
    assert_int_not_equal(decoded.frame[decoded.node[node].frame].kind, FRAME_KERNEL);
    node = node_of_wait(other, 2, 1); /* no __schedule: unknown ground, all of it is shown */
    assert_str(frame_name(node), STR("schedule"));
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(root), 0);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
    const struct CMUnitTest tests[] = {T(sums),
                                       T(stacks),
                                       T(native_name),
                                       T(dropped),
                                       T(idle),
                                       T(labels_and_targets),
                                       T(identity_and_period),
                                       T(user_source),
                                       T(off_cpu),
                                       T(off_cpu_of_some),
                                       cmocka_unit_test_teardown(off_cpu_leaf, tear_down)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
