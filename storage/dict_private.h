// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <pthread.h>

#include "base/sample.h"
#include "storage/pool_private.h"
#include "storage/store.h"

/*
 * What rows point to: texts, label sets, frames, functions, and stacks.
 *
 * A stack node exists once for the epoch ("global", g): its parent, its frame, its hash. Each
 * service has a trie of its own, whose nodes are numbered from 0 in order of first use there, so
 * that an answer is an array and not a hash table; map local leads from g to it. A hash that a
 * sender names is therefore found wherever its stack was first seen.
 *
 * Two definitions with one hash and other content both keep their own g, found by (parent, frame);
 * the hash is ambiguous from then on and is not taken without definitions.
 *
 * Writer: the apply thread. Readers: vecs below the lengths of their snapshot. The maps of g are
 * read by store_append too, under the rwlock ids of the head.
 */
#define DICT_EPOCH  1u
#define DICT_DEPTH  2048u       /* of a stack; deeper ones are booked on their ancestor there */
#define DICT_FOLDED 0x80000000u /* bit in dict_batch.node: that is such an ancestor */

struct dict_str {
    struct link link;
    struct str s;
};

struct dict_labels {
    struct link link;
    uint32_t n;
    const uint32_t *pair;        /* texts: name, value; by name, rising */
    const struct store_label *v; /* the same as bytes */
};

struct dict_frame {
    struct link link;
    uint8_t kind, flags, id_kind;
    bool damaged;
    uint32_t name, file, start_line, line; /* name, file: texts */
    uint32_t bin, bin_id;                  /* texts */
    uint32_t func;
    uint64_t addr;
};

struct dict_func {
    struct link link;
    uint8_t kind;
    uint32_t scope, name; /* texts; they are the function */
    uint32_t file, bin;   /* texts, of its first frame */
    uint64_t key;
};

struct dict_node {
    uint32_t parent, frame, depth;
    uint64_t hash;
};

struct dict_trie {
    struct store_trie_id id;
    struct vec parent, frame, fnode; /* u32 by node */
    struct vec fparent, func;        /* u32 by function node */
    struct vec again;                /* bits by function node */
    _Atomic uint32_t n, n_fnode;     /* published */
    struct map local;                /* g -> node */
    struct map fchild;               /* function parent << 32 | function -> function node */
};

struct dict {
    struct pool *pool;
    uint64_t seed;
    struct table str, labels, frame, func;
    struct vec node;      /* struct dict_node; 0 the root */
    struct map by_hash;   /* hash -> the first g */
    struct map by_pair;   /* parent << 32 | frame -> g, of later ones with a held hash */
    struct map ambiguous; /* hash -> 1 */
    uint32_t damaged;     /* g of [no stack: damaged], 0 before it is needed */
    uint32_t max_nodes;   /* per trie */
    uint64_t clashes;
    _Atomic uint32_t n_frame, n_func; /* published */
};

[[nodiscard]] bool dict_init(struct dict *d, struct pool *p, uint64_t seed, uint32_t max_nodes);
void dict_deinit(struct dict *d);

/* Ids; UINT32_MAX when memory is short. The empty text and the empty set are 0. */
uint32_t dict_text(struct dict *d, struct str s);
/* pair: n texts of names and values, in any order; of two with one name the later counts. Sorted
 * in place. */
uint32_t dict_label_set(struct dict *d, uint32_t n, uint32_t *pair);
/* Is each pair of a also in b? */
bool dict_labels_within(const struct dict_labels *a, const struct dict_labels *b);

/* The frame of a batch. str translates its texts (dict_batch_text). */
struct dict_batch {
    const struct batch *b;
    uint32_t *text, *frame, *node; /* by index of the batch; UINT32_MAX: not looked up yet */
    uint64_t damaged;              /* known nodes that were not held */
};

uint32_t dict_batch_text(struct dict *d, struct dict_batch *db, uint32_t s);

/* Fill db->node with the g of every node of the batch. False: memory is short. Needs ids to be
 * write-locked. */
[[nodiscard]] bool dict_batch_nodes(struct dict *d, struct dict_batch *db);

/* Does it hold the hash, with one meaning? Needs ids to be locked. */
bool dict_knows(const struct dict *d, uint64_t hash);

struct dict_trie *dict_trie_new(struct dict *d, uint32_t svc);
void dict_trie_free(struct dict *d, struct dict_trie *t);
/* The node of g in t, added with its ancestors. Where t is full: the nearest ancestor that is
 * there, and *ret_folded. UINT32_MAX: memory is short. */
uint32_t dict_trie_node(struct dict *d, struct dict_trie *t, uint32_t g, bool *ret_folded);
void dict_trie_publish(struct dict_trie *t);

static inline struct str dict_str(const struct dict *d, uint32_t text)
{
    return TABLE(&d->str, struct dict_str, text)->s;
}
