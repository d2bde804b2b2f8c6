// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "storage/head/head_private.h"

/* The thread of a row, by indices of the batch: most rows are of the few threads before them. */
#define APPLY_THREADS 16u

struct apply_thread {
    bool known;
    uint32_t target, tid, name;
    uint32_t thread; /* of the head */
    bool overflow;   /* there is no room for it: 0 */
};

/* One batch on its way into the head: apply.c, apply_beside.c. */
struct apply {
    struct head *h;
    const struct batch *b;
    const struct batch_limits *limits;
    struct dict_batch db; /* texts of the epoch */
    uint32_t *name, *own; /* texts of names and of the head, by index of the batch */
    uint32_t *target;     /* by index of the batch; UINT32_MAX: not looked up yet */
    uint32_t *set;        /* merged label set by index of labels, for one stream */
    uint32_t *set_series; /* its series */
    uint32_t *set_stamp;  /* stream + 1 that both are of */
    uint32_t *pair;       /* room for merging */
    bool *no_service;     /* of set: service was missing */
    struct apply_thread thread[APPLY_THREADS];
    /* the series of the row before, in the stream, and where its rows go */
    struct head_group *group; /* NULL: there was none */
    uint32_t series;
    bool overflow;
    struct head_batch rows; /* those of group that are not in it yet */
};

/* UINT32_MAX: memory is short. apply_text: of the head. */
uint32_t apply_text(struct apply *a, uint32_t s);
uint32_t apply_name(struct apply *a, uint32_t s);
uint32_t apply_target(struct apply *a, uint32_t target);
/* batch labels, then further ones that win: indices into b->labels, 0 none. */
uint32_t apply_labels(struct apply *a, uint32_t one, uint32_t two);

/* Targets' names, metrics, steps, events. False: memory is short. */
[[nodiscard]] bool apply_beside(struct apply *a);
