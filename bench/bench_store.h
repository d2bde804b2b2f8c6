// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdatomic.h>

#include "base/err.h"
#include "base/map.h"
#include "bench/bench_data.h"
#include "storage/store.h"

/*
 * What the parts of bench_store share: a store filled with a workload, and the way back from its
 * tries to the workload's. Only storage/store.h, query/ and the JSON API are used of the product.
 * Errors end the program. Thread: the main thread, unless said otherwise.
 */
struct api;
struct ingest;
struct msg_reply;
struct loader;

#define BENCH_HOSTS 10U

struct bench {
    struct data d;
    char *dir;
    real_ns hour;        /* start of the workload's hour */
    _Atomic int64_t now; /* the store's clock */
    struct ingest *ingest;
    struct store *store;
    struct api *api;
    struct loader *loader;
    uint32_t workers;
    bool warm; /* bench_reopen() as a server does it */
    bool keep; /* the store's folder, at its end */
    struct bench_map *map;
};

void bench_forget_sums(void); /* of parts: before a store is opened */
void bench_open(struct bench *b, const char *below, const char *data, uint32_t workers);
/* The same, whose workload begins at that hour. */
void bench_open_at(struct bench *b, const char *below, const char *data, uint32_t workers,
                   real_ns hour);
/* A store of this workload that was kept, as bench_open() opens one. */
void bench_open_kept(struct bench *b, const char *dir, const char *data, uint32_t workers);
void bench_reopen(struct bench *b); /* as a server that has just started */
void bench_close(struct bench *b);  /* the store's folder goes too, unless it is kept */

[[gnu::noreturn]] void bench_die(const char *what, const struct err *err);

/* ---- loading (bench_store_load.c) ------------------------------------------------------------ */

/*
 * Append the rows of the workload as ten hosts would: batches of rows_per_batch, one in flight per
 * host, nodes by hash once the store has said that it holds them.
 *   from, to   rows; a second call goes on where the first ended
 *   seal_ms    > 0: store_seal() whenever so much of the workload's time has passed
 */
struct load_ask {
    uint32_t rows_per_batch;
    uint32_t seal_ms;
    size_t to;
};

struct loaded {
    uint64_t rows, batches, payload_bytes, seals;
    double append_cpu_ns, seal_cpu_ns; /* of the process, encoding left out */
    double encode_cpu_ns;
};

struct loaded bench_load(struct bench *b, const struct load_ask *ask);
/* The same rows again, one hour later. */
void bench_next_hour(struct bench *b);
void bench_loader_free(struct bench *b);

/* One batch of a host, built and encoded, not yet appended: for those who send it themselves. */
struct built {
    const struct batch *batch;
    struct str payload;
    uint32_t rows;
};

/* The next batch of this host, of at most so many rows; false: no rows are left before to. Valid
 * until the next call for this host. complete: every node is defined. */
bool bench_next(struct bench *b, uint32_t host, uint32_t rows, size_t to, struct built *ret);
/* The store holds the nodes that the last batch of this host defined. */
void bench_held(struct bench *b, uint32_t host);

void bench_seal(struct bench *b);

/* ---- asking (bench_store_ask.c) -------------------------------------------------------------- */

enum question {
    Q_ONE,       /* flame graph of the largest service, as the API answers it */
    Q_ALL,       /* a tree for each service, likewise */
    Q_MERGED,    /* one tree over all services, likewise */
    Q_ONE_TEN,   /* as Q_ONE, ten of sixty minutes */
    Q_TOP,       /* table of the largest service's functions */
    Q_DIFF,      /* the largest service, ten minutes against the ten before */
    Q_ONE_SHORT, /* as Q_ONE, Q_MERGED, Q_TOP under short names, as the page asks */
    Q_MERGED_SHORT,
    Q_TOP_SHORT,
    Q_CALLERS, /* as Q_ONE, Q_ONE_SHORT, Q_MERGED, leaves first */
    Q_CALLERS_SHORT,
    Q_CALLERS_MERGED,
    Q_TOP_ALL, /* table of all functions */
    Q_TOP_BIN, /* of binaries */
    Q_TOP_BY,  /* of functions, each cut by service */
    Q_API_LAST = Q_TOP_BY,
    Q_ONE_SUM, /* sums by stack, whole hour: summaries */
    Q_ALL_SUM,
    Q_ALL_RAW, /* a question that summaries cannot answer: nine of ten series */
    Q_CUT_ONE, /* ten of sixty minutes */
    Q_CUT,
    Q_SERIES, /* by series and 15 s, the largest service */
    QUESTIONS
};

extern const char *const question_name[QUESTIONS];

/* Sums by node of each trie that a scan met; asked with once, unless in_turn. */
struct acc_trie {
    struct store_trie_id id;
    uint32_t n;
    int64_t *sum;
    uint64_t *count;
};

struct acc {
    uint32_t n, room, last;
    struct acc_trie *trie;
    struct map index;
    bool in_turn; /* only the trie that came last is kept: whoever measures is done with it then */
    int64_t *series; /* Q_SERIES: [host * buckets + bucket] */
    uint64_t observations;
};

void acc_free(struct acc *a);

/* Answer a question. A scan's sums lie in a until the next call; an API answer in reply, which is
 * freed by msg_reply_deinit(). service: of the _ONE questions. */
void bench_ask(struct bench *b, enum question q, uint32_t service, struct acc *a,
               struct msg_reply *reply);
/* GET path with this query string (already decoded pairs). */
struct bench_param {
    const char *name, *value;
};
void bench_get(struct bench *b, const char *path, const struct bench_param *p, uint32_t n,
               struct msg_reply *reply);

/* ---- checking (bench_store_check.c) ---------------------------------------------------------- */

/* Compare the answer of every question with plain arrays, bit by bit. Ends the program if one
 * differs. Returns the number of answers compared. */
uint32_t bench_check(struct bench *b);

/* ---- files ----------------------------------------------------------------------------------- */

struct bench_bytes {
    uint64_t shard, dict, catalog, journal, other;
};
/* Sizes of the files below the store's folder. */
struct bench_bytes bench_bytes(const struct bench *b);

/* Parts that lie below it. */
uint32_t bench_parts(const struct bench *b);
