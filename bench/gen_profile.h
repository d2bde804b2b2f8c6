// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/*
 * What the workload generator is made of: random numbers, tries, columns. Shares nothing with the
 * product, so that it can vouch for it. Errors end the program. One thread.
 */
enum {
    GEN_SERVICES = 200,
    GEN_STACKS = 20000, /* per service */
    GEN_SERIES = 10,    /* per service */
    GEN_TYPES = 4,
    GEN_SPAN_MS = 3600000,
    GEN_CPU_NS = 52631579, /* 19 Hz */
    GEN_FUNCTIONS_SHARED = 3000,
    GEN_FUNCTIONS_OWN = 1500, /* per service */
    GEN_FUNCTIONS = 1 + GEN_FUNCTIONS_SHARED + GEN_SERVICES * GEN_FUNCTIONS_OWN,
};

[[gnu::noreturn, gnu::format(printf, 1, 2)]] void gen_die(const char *fmt, ...);
void *gen_alloc(size_t n, size_t size); /* zeroed */

/* ---- random numbers: splitmix64, one stream per purpose, so that options do not shift others */

struct rng {
    uint64_t state;
};

struct rng rng_stream(uint64_t seed, uint64_t purpose);
uint64_t rng_u64(struct rng *r);
uint32_t rng_below(struct rng *r, uint32_t n);
double rng_unit(struct rng *r); /* in (0, 1) */

/* Zipf through Vose's alias table: one random number and one look-up per draw. */
struct alias {
    uint32_t n;
    uint32_t *keep; /* own index if the low half of the draw is at most this */
    uint32_t *other;
};

struct alias alias_zipf(uint32_t n, double exponent);
uint32_t alias_draw(const struct alias *a, struct rng *r);

/* ---- tries ---------------------------------------------------------------------------------- */

/* The trie of one service. Nodes get their id when they first occur, parents before children. */
struct gen_trie {
    uint32_t n, room;
    uint32_t *parent, *function;
    uint8_t *depth;
    uint32_t *leaf;  /* by popularity; NULL for recursive ones */
    uint32_t *id;    /* node -> id in order of first appearance, or UINT32_MAX */
    uint32_t *order; /* id -> node */
    uint32_t seen;
};

/* 20,000 stacks for each service, 30 to 60 deep. Returns the nodes of all. */
uint64_t gen_tries(struct gen_trie *tries, uint64_t seed);

/* The id of a node, handing out ids to it and its unseen ancestors, topmost first. */
uint32_t gen_trie_id(struct gen_trie *t, uint32_t node);

/* A stack that a recursive descent walks through: every call site is a node of its own. */
struct gen_walk {
    struct gen_trie trie;
    uint64_t *slot; /* (parent, function) -> node */
    uint32_t mask, path[256], depth;
};

void gen_walk_init(struct gen_walk *w, uint32_t most_nodes);
/* Goes on for one sample; returns the node it stands at. Ids are nodes. */
uint32_t gen_walk_step(struct gen_walk *w, struct rng *r, uint32_t service);

/* ---- output --------------------------------------------------------------------------------- */

extern uint64_t gen_checksum; /* over all bytes written: tells two runs apart */

FILE *gen_open(const char *dir, const char *name);
void gen_put(FILE *f, const void *p, size_t size);
void gen_finish(FILE *f);

/* node.*, service.first. Returns the number of nodes. */
uint32_t gen_write_tries(const char *dir, const struct gen_trie *tries, uint32_t services);
/* function.name, function.end. Returns the mean length. */
double gen_write_functions(const char *dir, uint64_t seed);
