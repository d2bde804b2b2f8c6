// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "query/query_private.h"

/* layer.c: for shown.c and whole.c. */

/*
 * Layers: all that hangs under one level of by=, or under the root. A layer of one trie is that
 * trie as it lies in the dictionary. One of several is first made into a trie by numbers: of
 * functions of the epoch, which its services share; over several epochs, or under short names, by
 * names, each looked up once. Small nodes are in that as well, since a node that is small in each
 * trie may reach the floor in the sum, and since hidden nodes are counted as the union has them.
 */

#define QUERY_NODES_MAX ((uint32_t)1 << QUERY_NODE_BITS)

struct query_layer {
    uint32_t top; /* the level above it */
    uint32_t n_acc;
    struct query_acc **acc;
    uint32_t n;
    const uint32_t *parent, *func;
    bool named; /* func: of the tree; else of the epoch */
    bool made;  /* n, parent and func are set: what filters left */
};

struct query_layers {
    struct query *q;
    struct query_tree *t;     /* levels, and the functions of named layers */
    struct query_tree *names; /* t, but while functions are apart that t has as one */
    bool named;
    bool again; /* whether a function is above itself is asked as well */
    bool full;  /* names are not shortened, even if that was asked for */
    bool keep;  /* the gather may be needed as it was: entries are changed in copies */
    uint32_t n_search;
    struct query_search *search; /* done with the filters, if there is a pattern for it */
    struct query_stacks *stacks; /* per side */
    struct query_tree left;      /* what filters left, if there are any; its maps are gone */

    struct query_slim *sum; /* of one layer or trie at a time */
    uint32_t *pick;         /* what is shown of a layer, falling */
    uint32_t room;
    bool clean; /* sum is all 0 */

    unit_i128 *total; /* by node of t, as the next two */
    uint64_t *samples;
    uint32_t *cut;
    uint32_t cap;
};

/* Is this question one for sums by number? searches: it has a pattern of its own; full: as below */
bool query_layers_asked(const struct query *q, bool searches, bool full);
/* Do sums, counts and nodes fit, with no weight below 0? Then what is below the floor has only such
 * below it. */
bool query_layers_fit(const struct query_gather *g);
/* Must layers be numbered by name? */
bool query_layers_named(const struct query *q, bool full);

/* Are there filters, or patterns that are tried as those are? */
bool query_layers_sifts(const struct query *q);

/* Levels into s->t, with their totals, and what hangs under them: layers by level. */
[[nodiscard]] int query_layers_start(struct query_layers *s, struct query_layer **ret,
                                     uint32_t *ret_n, struct query_err *e);
/*
 * Filters, before anything is summed: all tries as one, under names, since patterns are tried on
 * them; then what is left of it is the only layer. ret->all keeps what there was before.
 */
[[nodiscard]] int query_layers_sift(struct query_layers *s, struct query_layer *l, uint32_t n,
                                    struct query_shape *ret, struct query_err *e);
/* Room for n more nodes in s->t and the columns beside it. */
[[nodiscard]] int query_layers_room(struct query_layers *s, uint32_t n, struct query_err *e);
/* The tree that is shown: the only one, or that behind the filters. */
void query_layers_hand_over(const struct query_layers *s, struct query_shape *made,
                            struct query_shape *ret);

/* Several tries as one, in merged: what l is from then on. */
[[nodiscard]] int query_layer_merge(struct query_layers *s, struct query_layer *l,
                                    struct query_tree *merged, struct query_err *e);
/* Totals of the layer into s->sum; s->pick: what reaches the floor. merged: as above, if it must */
[[nodiscard]] int query_layer_sum(struct query_layers *s, struct query_layer *l, int64_t floor,
                                  struct query_tree *merged, uint32_t *ret_picked,
                                  struct query_err *e);
[[nodiscard]] int query_layer_trie(struct query_layers *s, const struct query_acc *a,
                                   struct store_trie *ret, struct query_err *e);

/* s->sum and s->pick for n nodes. */
[[nodiscard]] int query_layers_scratch(struct query_layers *s, uint32_t n, struct query_err *e);
void query_slim_scatter(struct query_slim *v, const struct query_acc *a);
/* Own weights -> totals, parents first as they are. Returns how many reach the floor. */
uint32_t query_slim_add_up(struct query_slim *v, const uint32_t *parent, uint32_t n, int64_t floor,
                           uint32_t *pick);
