// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "agent/send/batchmake.h"
#include "base/arena.h"
#include "base/map.h"

/* Shared by batchmake.c (who, streams, the batch) and batchmake_stack.c (frames and stacks). */
struct batchmake {
    struct batchmake_conf conf;
    char *hostname, *version;
    struct names *names;
    struct jits *jits;
    struct lines *lines;
};

/* A growing table; entry 0 is there. */
#define VEC(T)                                                                                     \
    struct {                                                                                       \
        T *v;                                                                                      \
        uint32_t n, room;                                                                          \
    }

#define vec_push(vec)                                                                              \
    ((vec)->n == (vec)->room ? ((vec)->room = (vec)->room ? 2 * (vec)->room : 64,                  \
                                (vec)->v = xrealloc((vec)->v, (vec)->room * sizeof *(vec)->v))     \
                             : (vec)->v,                                                           \
     memset(&(vec)->v[(vec)->n], 0, sizeof *(vec)->v), &(vec)->v[(vec)->n++])

/* The frames of one address: the function and what is inlined there, outermost first. */
struct chain {
    uint32_t first, n; /* in link */
};

/* One batch in the making. */
struct making {
    struct batchmake *m;
    const struct batchmake_job *job;
    struct arena arena;
    VEC(struct str) str;
    VEC(struct batch_bin) bin;
    VEC(struct batch_fn) fn;
    VEC(struct batch_frame) frame;
    VEC(struct chain) chain;
    VEC(uint32_t) link; /* frames */
    VEC(struct batch_node) node;
    VEC(struct batch_target) target;
    VEC(struct batch_labels) labels;
    VEC(struct batch_stream) stream;
    VEC(struct batch_metric) metric;
    VEC(struct batch_event) event;
    VEC(struct batch_steps) steps;
    struct map by_str, by_bin, by_fn, by_user, by_jit, by_kernel, by_pseudo, by_node, by_python,
        by_target, by_serial, by_labels, by_holder;
    int64_t now; /* CLOCK_MONOTONIC */
    struct buf name;
    uint32_t kernel_bin;
    uint32_t rows;
    struct batchmake_sums held;
};

/* Index under a 64-bit key; *ret_new: the caller makes the entry of that index. */
uint32_t making_index(struct map *map, uint64_t key, uint32_t next, bool *ret_new);

/* Of a text; texts that are equal share an entry. */
uint32_t making_str(struct making *k, struct str s);

/* Rows by profile type, in the making. */
struct making_rows {
    struct batchfold_columns cpu, gil_held, offcpu, runq, gil_wait;
};

[[nodiscard]] int making_columns(struct making *k, struct batchfold_columns *c, size_t n,
                                 struct err *err);
struct batch_rows making_rows_of(const struct batchfold_columns *c);
/* The stream, with these rows, is in the batch. */
void making_stream(struct making *k, const struct batch_stream *st,
                   const struct batchfold_columns *c);
/* Into the room that was made; st->expected counts it. */
void making_lost(struct making *k, struct batch_stream *st, struct batch_loss *lost,
                 enum loss_reason why, uint64_t n, int64_t weight);

/* Time off the CPU of windows [0, n): its streams (batchmake_off.c). */
[[nodiscard]] int making_off_streams(struct making *k, struct stackagg_window *const *w, uint32_t n,
                                     const struct batch_stream *cpu, struct making_rows *rows,
                                     struct err *err);
/* A row of time off the CPU, of a target with these labels, into those of its types. */
void making_off_row(struct making *k, const struct stackagg_window *w, const struct stackagg_row *r,
                    uint32_t target, uint32_t labels, struct making_rows *to);

/* The node of a frame below parent; a frame of no binary. */
uint32_t making_node(struct making *k, uint32_t parent, uint32_t frame);
uint32_t making_frame(struct making *k, enum frame_kind kind, struct str name);

/* The leaf node of a row's stack. */
uint32_t making_stack(struct making *k, const struct stackagg_window *w,
                      const struct stackagg_row *r);
