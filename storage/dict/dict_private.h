// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <pthread.h>

#include "base/dindex.h"
#include "base/sample.h"
#include "storage/file/text_private.h"
#include "storage/store.h"

/*
 * What stacks are made of, for one epoch: texts, frames, functions, nodes.
 *
 * A stack node exists once for the epoch ("global", g). Each service has a trie of its own, whose
 * nodes are numbered from 0 in order of first use there, so that an answer is an array and not a
 * hash table. The numbers g are given to tries by the page: a g says in which trie its node is, and
 * which one, and its parent and its frame stand there and nowhere else. A trie that has the stack
 * of another one has a copy, whose g is never used; from the other's g to it leads its map local. A
 * hash that a sender names is therefore found wherever its stack was first seen.
 *
 * Two definitions with one hash and other content both keep their own g, found by (parent, frame);
 * the hash is ambiguous from then on and is not taken without definitions.
 *
 * Numbers of texts, frames, functions and of a trie's nodes are those of the epoch's file; g is of
 * this process only.
 *
 * Writer: the opening thread, then the apply thread. Readers: vecs below published lengths. The
 * maps of g are read by store_append too, under the rwlock ids of the epoch.
 */
#define DICT_DEPTH  2048u       /* of a stack; deeper ones are booked on their ancestor there */
#define DICT_FOLDED 0x80000000u /* bit in dict_batch.node: that is such an ancestor */

struct dict_frame {
    uint8_t kind, flags, id_kind;
    bool damaged;
    uint32_t name, file, start_line, line; /* name, file: texts */
    uint32_t bin, bin_id;                  /* texts */
    uint32_t func;
    uint64_t addr;
};

struct dict_func {
    uint8_t kind, mark;    /* mark: enum func_mark bits */
    uint32_t scope, name;  /* texts; they are the function */
    _Atomic uint32_t file; /* text, of the first frame that has one: lines may become known later */
    uint32_t bin;          /* text, of its first frame */
    uint64_t key;
};

/* Of g: nodes of one trie, in their order. */
#define DICT_PAGE_BITS 6u
#define DICT_PAGE      (1u << DICT_PAGE_BITS)

struct dict_page {
    struct dict_trie *trie;
    uint32_t first; /* its node that the page begins with */
};

/*
 * The function trie of a trie: equal functions below one parent are one node. Made of the nodes
 * that are there when somebody asks, by whoever asks; what nobody asks for takes no memory.
 */
struct dict_functions {
    struct mutex mu;
    uint32_t n;              /* nodes of the trie that are in it, under mu as all of this */
    struct vec of;           /* u32 by node: its function node */
    struct vec parent, func; /* u32 by function node */
    struct vec again;        /* bits by function node */
    struct vec marked;       /* struct store_marked */
    struct dindex child;     /* (parent, function) -> function node */
};

struct dict_trie {
    struct store_trie_id id;
    uint32_t at;              /* index in epoch.trie */
    struct dict_trie *older;  /* of the service: sub one less */
    struct vec parent, frame; /* u32 by node */
    _Atomic uint32_t n;       /* published */
    struct vec page;          /* u32 by node / DICT_PAGE: page of g. None if it is only read */
    struct vec copy;          /* bits by node: it is one */
    struct hindex local;      /* g -> node, of copies */
    struct dict_functions fn;
};

struct dict {
    struct pool *pool;
    uint64_t seed;
    struct texts text;
    struct table frame, func;
    struct vec page;   /* struct dict_page by g / DICT_PAGE */
    struct paged hash; /* u64 by g; of a copy: the g that it is one of */
    struct dict_trie
        *none;             /* of stacks that no service has room for, or asked for. Its root is 0 */
    struct dindex by_hash; /* hash -> the first g */
    struct map by_pair;    /* parent << 32 | frame -> g, of later ones with a held hash */
    struct map ambiguous;  /* hash -> 1 */
    uint32_t damaged;      /* g of [no stack: damaged], 0 before it is needed */
    uint32_t max_nodes;    /* per trie */
    uint64_t clashes;
    _Atomic uint32_t n_text, n_frame, n_func; /* published, before the tries that use them */
};

/*
 * An epoch: its dictionary and its tries. One is current and written by the apply thread; older
 * ones are only read. Counted: views and the list of sources hold it.
 */
struct epoch_svc {
    _Atomic(struct dict_trie *) trie; /* the newest sub; older ones behind it */
};

struct epoch {
    uint32_t id; /* from 1 */
    _Atomic uint32_t refs;
    uint64_t file_id; /* dictfile_mark() of what it was loaded from */
    struct pool pool;
    struct dict dict;
    pthread_rwlock_t ids; /* maps of nodes: the apply thread writes, store_append looks */
    struct epoch *before; /* counted, under ids: where hashes are looked for that are not here */
    struct vec svc;       /* struct epoch_svc, by service */
    struct vec trie;      /* struct dict_trie *, in the order of making */
    _Atomic uint32_t n_svc, n_trie; /* published */
};

/* One reference, the caller's. NULL: memory is short. */
struct epoch *epoch_new(uint32_t id, uint64_t seed, uint32_t max_nodes);
void epoch_ref(struct epoch *e);
void epoch_unref(struct epoch *e); /* the last one frees; NULL is a no-op */
/* The trie that new stacks of the service go to, made if there is none. Writer. NULL: memory. */
struct dict_trie *epoch_trie(struct epoch *e, uint32_t svc);
/* A further trie for the service, in the order of sub: loading. Writer. NULL: memory. */
struct dict_trie *epoch_add_trie(struct epoch *e, uint32_t svc);
/* NULL: there is none. Any thread. */
struct dict_trie *epoch_find_newest(const struct epoch *e, uint32_t svc);
struct dict_trie *epoch_find(const struct epoch *e, uint32_t svc, uint32_t sub);
/* Show texts, frames, functions; the tries after it, one by one (dict_trie_publish). Writer. */
void epoch_publish(struct epoch *e);
/* A new one begins where another ended, which is not written any more: what senders know of that
 * is taken over as they name it, until epoch_forget(). */
void epoch_follow(struct epoch *e, struct epoch *before);
void epoch_forget(struct epoch *e);
/* Does it hold every node that the batch only names? Any thread. */
bool epoch_knows(struct epoch *e, const struct batch *b);

static inline struct dict_trie *epoch_trie_at(const struct epoch *e, uint32_t i)
{
    return *VEC(&e->trie, struct dict_trie *, i);
}

[[nodiscard]] bool dict_init(struct dict *d, struct pool *p, uint64_t seed, uint32_t max_nodes);
void dict_deinit(struct dict *d);

/* The frame equal to *key (its func is not looked at), added if it is new. UINT32_MAX:
 * memory is short. */
uint32_t dict_frame_of(struct dict *d, struct dict_frame *key);

/* The frame of a batch. str translates its texts (dict_batch_text). */
struct dict_batch {
    const struct batch *b;
    uint32_t *text, *frame, *node; /* by index of the batch; UINT32_MAX: not looked up yet */
    struct dict_trie **trie;       /* of nodes: where they are used first; NULL: nowhere */
    uint16_t *depth;               /* of nodes; 0: not looked up yet */
    uint64_t damaged;              /* known nodes that were not held */
};

uint32_t dict_batch_text(struct dict *d, struct dict_batch *db, uint32_t s);

/* Fill db->node with the g of every node of the batch. before: where unknown ones are taken from,
 * or NULL. False: memory is short. Needs ids to be write-locked. */
[[nodiscard]] bool dict_batch_nodes(struct dict *d, const struct dict *before,
                                    struct dict_batch *db);

/* Asks memory for what finding these hashes reads: many at once, where one by one each would be
 * waited for. Of n nodes at most DICT_AHEAD. */
#define DICT_AHEAD 32u
void dict_ahead(const struct dict *d, const struct batch_node *node, uint32_t n);

/* Does it hold the hash, with one meaning? Needs ids to be locked. */
bool dict_knows(const struct dict *d, uint64_t hash);
bool dict_holds(const struct dict *d, uint64_t hash); /* whatever it means */

/*
 * Loading a trie, whose nodes come in the order of their ids. The current epoch: with their hashes,
 * so that senders may name them. Older epochs, that nothing is added to: hash 0, no maps. False:
 * memory is short.
 */
struct dict_load {
    uint32_t parent, frame; /* parent: node of the trie */
    uint64_t frame_hash;
    uint32_t depth;
};

/* As senders compute it (batch_frame_hash): once per frame. */
uint64_t dict_frame_hash(const struct dict *d, uint32_t frame);
[[nodiscard]] bool dict_trie_load(struct dict *d, struct dict_trie *t, const struct dict_load *n);
/* Only to be read: without a g. */
[[nodiscard]] bool dict_trie_load_bare(struct dict *d, struct dict_trie *t, uint32_t parent,
                                       uint32_t frame);

/* trie.c, for dict.c. UINT32_MAX: memory is short. */
[[nodiscard]] bool dict_trie_page(struct dict *d, struct dict_trie *t);
/* A node below `parent` with a g of its own. */
uint32_t dict_trie_add(struct dict *d, struct dict_trie *t, uint32_t parent, uint32_t frame,
                       uint64_t hash);
/* A node that stands for g. */
uint32_t dict_trie_copy(struct dict *d, struct dict_trie *t, uint32_t parent, uint32_t frame,
                        uint32_t g);
/* The g of a node, wherever it was first. */
uint32_t dict_trie_g(const struct dict *d, const struct dict_trie *t, uint32_t node);

struct dict_trie *dict_trie_new(struct dict *d, struct store_trie_id id);
void dict_trie_free(struct dict *d, struct dict_trie *t);
/* Is it there? */
bool dict_trie_find(const struct dict *d, const struct dict_trie *t, uint32_t g, uint32_t *ret);
/* The node of g in t, added with its ancestors. Needs ids to be write-locked. Where t is full: the
 * nearest ancestor that is there, and *ret_folded. UINT32_MAX: memory is short. */
uint32_t dict_trie_node(struct dict *d, struct dict_trie *t, uint32_t g, bool *ret_folded);
void dict_trie_publish(struct dict_trie *t);

/* functions.c */
void dict_functions_init(struct dict_functions *f);
void dict_functions_deinit(struct dict_functions *f, struct pool *p);
/* Make those of all nodes that are published: what takes long of dict_trie_read(). */
[[nodiscard]] bool dict_functions_make(struct dict *d, struct dict_trie *t);
/*
 * What a reader sees of a trie, as far as it is published: all of ret. Its bits are
 * the arena's, the rest lives as long as the reader keeps the epoch. Any thread; of an epoch that
 * is written it is inside its pool. False: memory is short.
 */
[[nodiscard]] bool dict_trie_read(struct dict *d, struct dict_trie *t, struct arena *bits,
                                  struct store_trie *ret);

static inline uint64_t *dict_hash(const struct dict *d, uint32_t g)
{
    return paged_at(&d->hash, g);
}

/* The trie of g; its node there. */
static inline struct dict_trie *dict_home(const struct dict *d, uint32_t g, uint32_t *ret_node)
{
    const struct dict_page *p = VEC(&d->page, struct dict_page, g >> DICT_PAGE_BITS);

    *ret_node = p->first + (g & (DICT_PAGE - 1));
    return p->trie;
}

static inline struct str dict_str(const struct dict *d, uint32_t text)
{
    return text_of(&d->text, text);
}
