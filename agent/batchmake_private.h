// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "agent/batchmake.h"
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
        by_target, by_serial, by_labels;
    int64_t now; /* CLOCK_MONOTONIC */
    struct buf name;
    uint32_t kernel_bin;
    int64_t weight;
    uint64_t received;
    uint32_t rows;
    bool gil;
    uint64_t gil_known;
    int64_t gil_weight;
};

/* Index under a 64-bit key; *ret_new: the caller makes the entry of that index. */
uint32_t making_index(struct map *map, uint64_t key, uint32_t next, bool *ret_new);

/* Of a text; texts that are equal share an entry. */
uint32_t making_str(struct making *k, struct str s);

/* The leaf node of a row's stack. */
uint32_t making_stack(struct making *k, const struct stackagg_window *w,
                      const struct stackagg_row *r);
