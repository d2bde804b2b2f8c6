// SPDX-License-Identifier: Apache-2.0
#include "bench/bench_stream.h"

#include <stdio.h>

#include "base/hash.h"
#include "bench/bench_data.h"
#include "proto/wire.h"

enum {
    DEPTH = 24,
    FUNCTIONS = 600,
    THREADS = 16,
    NODES = STREAM_STACKS * DEPTH + 1,
};

enum {
    S_SERVICE = 1,
    S_NAME,
    S_BIN,
    S_THREAD,
    S_FIRST
};

#define MIB (UINT64_C(1) << 20)

static uint64_t rnd(uint64_t *state)
{
    *state += UINT64_C(0x9e3779b97f4a7c15);
    return hash_mix(*state);
}

/* Functions, frames, and stacks of which half is that of the one before. */
static void make_tables(struct stream *s, uint32_t *leaf)
{
    struct arena *a = &s->arena;
    struct str *str = arena_array(a, struct str, S_FIRST + FUNCTIONS);
    struct batch_fn *fn = arena_array(a, struct batch_fn, FUNCTIONS + 1);
    struct batch_frame *frame = arena_array(a, struct batch_frame, FUNCTIONS + 1);
    struct batch_node *node = arena_array(a, struct batch_node, NODES);
    uint64_t seed = 7 + s->sender;
    uint32_t n = 1;
    char text[64];

    str[S_SERVICE] = STR("service");
    (void)snprintf(text, sizeof text, "stream-%u", s->sender);
    str[S_NAME] = arena_str(a, str_c(text));
    str[S_BIN] = STR("/usr/bin/bench");
    str[S_THREAD] = STR("worker");
    for (uint32_t i = 0; i < FUNCTIONS; i++) {
        (void)snprintf(text, sizeof text, "module_%u::function_with_a_name_%u", i % 23, i);
        str[S_FIRST + i] = arena_str(a, str_c(text));
        fn[1 + i] = (struct batch_fn){.name = S_FIRST + i};
        frame[1 + i] = (struct batch_frame){
            .kind = FRAME_NATIVE, .fn = 1 + i, .bin = 1, .addr = 0x1000 + 16 * (uint64_t)i};
    }
    for (uint32_t k = 0; k < STREAM_STACKS; k++) {
        uint32_t at = k ? leaf[k - 1] : 0, from = k ? DEPTH / 2 : 0;

        for (uint32_t up = 0; k && up < DEPTH / 2; up++)
            at = node[at].parent;
        for (uint32_t d = from; d < DEPTH; d++) {
            node[n] =
                (struct batch_node){.parent = at, .frame = 1 + (uint32_t)(rnd(&seed) % FUNCTIONS)};
            at = n++;
        }
        leaf[k] = at;
    }
    s->complete.n_str = S_FIRST + FUNCTIONS;
    s->complete.str = str;
    s->complete.n_fn = s->complete.n_frame = FUNCTIONS + 1;
    s->complete.fn = fn;
    s->complete.frame = frame;
    s->complete.n_node = n;
    s->complete.node = node;
}

static void make_rows(struct stream *s, const uint32_t *leaf)
{
    struct arena *a = &s->arena;
    uint32_t *tid = arena_array(a, uint32_t, s->rows), *thread = arena_array(a, uint32_t, s->rows);
    uint64_t seed = s->sender * UINT64_C(1000003);

    s->st = arena_new(a, struct batch_stream);
    s->t = arena_array(a, real_ns, s->rows);
    s->full_node = arena_array(a, uint32_t, s->rows);
    s->short_node = arena_array(a, uint32_t, s->rows);
    for (uint32_t i = 0; i < s->rows; i++) {
        uint32_t k = (uint32_t)(rnd(&seed) % STREAM_STACKS);

        s->full_node[i] = leaf[k];
        s->short_node[i] = 1 + k;
        tid[i] = 1000 + (uint32_t)(rnd(&seed) % THREADS);
        thread[i] = S_THREAD;
    }
    *s->st = (struct batch_stream){.type = PTYPE_CPU,
                                   .kind = KIND_SUM,
                                   .target = 1,
                                   .width = 1,
                                   .state = SOURCE_OK,
                                   .basis = BASIS_PERIODIC,
                                   .period = 10 * NS_PER_MS,
                                   .expected = s->rows,
                                   .received = s->rows,
                                   .rows = {.n = s->rows, .t = s->t, .tid = tid, .thread = thread}};
    s->complete.n_stream = 1;
    s->complete.stream = s->st;
}

void stream_init(struct stream *s, uint32_t sender, uint32_t rows)
{
    static const uint32_t label[] = {S_SERVICE, S_NAME};
    static const struct batch_bin bins[] = {{}, {.path = S_BIN}};
    static const struct batch_labels no_labels[1];
    struct batch_target *target;
    struct batch_node *node;
    uint32_t leaf[STREAM_STACKS];

    *s = (struct stream){.sender = sender, .rows = rows};
    arena_init(&s->arena, 64 * MIB);
    buf_init(&s->plain, 64 * MIB);
    buf_init(&s->payload, 64 * MIB);
    target = arena_array(&s->arena, struct batch_target, 2);
    target[1] = (struct batch_target){
        .key = {.pidns = 1, .pid = 100 + sender, .start = {1}}, .exe = S_BIN, .comm = S_NAME};
    s->complete = (struct batch){.label = {1, label},
                                 .n_bin = 2,
                                 .bin = bins,
                                 .n_target = 2,
                                 .target = target,
                                 .n_labels = 1,
                                 .labels = no_labels};
    memcpy(s->complete.id.agent, "bench-stream", 12);
    memcpy(s->complete.id.agent + 12, &sender, sizeof sender);
    s->complete.id.boot[0] = 1;
    make_tables(s, leaf);
    make_rows(s, leaf);
    node = arena_array(&s->arena, struct batch_node, s->complete.n_node);
    memcpy(node, s->complete.node, s->complete.n_node * sizeof *node);
    for (uint32_t i = 1; i < s->complete.n_node; i++)
        node[i].hash =
            node_hash(node[node[i].parent].hash, batch_frame_hash(&s->complete, node[i].frame));
    s->complete.node = node;
    s->known = arena_array(&s->arena, struct batch_node, STREAM_STACKS + 1);
    for (uint32_t k = 0; k < STREAM_STACKS; k++)
        s->known[1 + k].hash = node[leaf[k]].hash;
}

void stream_deinit(struct stream *s)
{
    arena_deinit(&s->arena);
    buf_deinit(&s->plain);
    buf_deinit(&s->payload);
}

void stream_next(struct stream *s, real_ns t0, int64_t len_ns, bool encode)
{
    struct err err = {};
    bool complete = s->seq == 0;
    struct batch *b = &s->batch;

    *b = s->complete;
    if (!complete) { /* texts of functions go, those in front of them stay */
        b->n_str = S_FIRST;
        b->n_fn = b->n_frame = 1;
        b->n_node = STREAM_STACKS + 1;
        b->n_known = STREAM_STACKS;
        b->node = s->known;
    }
    b->id.seq = ++s->seq;
    b->id.content = hash_mix(s->seq << 20 | s->sender) | 1;
    b->clock.sent = b->received = (real_ns){t0.v + len_ns};
    s->st->covers = (struct interval){t0, {t0.v + len_ns}};
    s->st->rows.node = complete ? s->full_node : s->short_node;
    for (uint32_t i = 0; i < s->rows; i++)
        s->t[i].v = t0.v + len_ns * i / s->rows;
    if (!encode)
        return;
    buf_reset(&s->plain);
    buf_reset(&s->payload);
    if (batch_check(b, &err) < 0 || wire_encode(b, &s->plain, NULL, &err) < 0 ||
        wire_compress(buf_view(&s->plain), &s->payload, &err) < 0)
        data_die("stream: %s", err.msg);
}
