// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "storage/store.h"

/*
 * A double of the store for tests of query/ and of the JSON API: rows and records of coverage in
 * plain arrays, every read a loop over all of them. It is slow and obvious, so it also serves as an
 * oracle; and it does on purpose what the real one may do rarely: several tries of one service,
 * several epochs, shares in small pieces, two workers, damage.
 *
 * It defines the reading half of storage/store.h. Link it instead of storage. One thread.
 */
struct fake_frame {
    enum frame_kind kind;
    struct str name, file, bin; /* bin: a path */
    uint32_t line;
};

struct fake_row {
    ptype_id type;
    const char *labels; /* "service=a,host=h1" */
    int64_t t;          /* ns; of levels the start of the reading */
    int64_t until;      /* levels: its end */
    const char *stack;  /* "n:main#/bin/demo;p:train@train.py:7", root first; NULL: frame */
    uint32_t n_frame;
    const struct fake_frame *frame;
    uint64_t count;
    bool count_unknown;
    int64_t value;
    double var; /* negative: not known */
    uint32_t epoch, sub;
    uint64_t pid; /* 0: the host */
    uint32_t tid;
};

struct fake_cover {
    ptype_id type;
    const char *labels;
    int64_t t0, t1;
    enum source_state state; /* 0: ok */
    const char *why;
    enum basis basis;
    int64_t period;
    uint64_t expected, received;
    const char *lost_why; /* NULL: nothing was lost */
    uint64_t lost_n;
    int64_t lost_weight;
    uint64_t pid;
    int64_t skew_ns;
    bool ended;
};

/* A step of process pid; 0: it names none. */
struct fake_step {
    uint64_t pid, number;
    const char *name;
    const char *labels;
    int64_t t0, t1;
    uint32_t tid;
    bool inferred;
    uint32_t n_part;
    const char *part[4];
    int64_t part_ns[4];
};

struct fake_event {
    int64_t t;
    const char *kind, *text;
    uint64_t pid; /* 0: the host */
};

#define FAKE_POINTS 16
/* One piece of a series of readings; pieces of one series come one behind the other. */
struct fake_metric {
    const char *name, *unit, *labels;
    enum metric_kind kind;
    uint64_t pid;
    bool is_int;
    uint32_t n;
    struct {
        int64_t t;
        double v;
        enum metric_status status;
    } p[FAKE_POINTS];
    bool minutes; /* num is the last; min, max and mean are v - 1, v + 3, v + 1 of 4 readings */
};

struct store *fake_store_new(void);
struct store *fake_store_free(struct store *s);
/* One share for one key, where it has not more than 256 nodes. */
void fake_store_whole(struct store *s);

/* An imported type; its id. */
ptype_id fake_store_type(struct store *s, const char *name, const char *unit, enum ptype_kind kind);
void fake_store_row(struct store *s, const struct fake_row *row);
void fake_store_cover(struct store *s, const struct fake_cover *cover);
/* Texts are borrowed. */
void fake_store_step(struct store *s, const struct fake_step *step);
void fake_store_event(struct store *s, const struct fake_event *event);
void fake_store_metric(struct store *s, const struct fake_metric *metric);
/* What cannot be read, from now on. */
void fake_store_damage(struct store *s, int64_t t0, int64_t t1, const char *what);
/* The next scan fails with this. 0: it does not. */
void fake_store_fail(struct store *s, int error);
/* Shares come with this type, whatever was asked for. PTYPE_NONE: no longer. */
void fake_store_lie(struct store *s, ptype_id type);
/* Sum of the values of rows of this type in [t0, t1), by the most obvious loop. */
unit_i128 fake_store_sum(const struct store *s, ptype_id type, int64_t t0, int64_t t1);
