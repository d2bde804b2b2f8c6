// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "query/query_private.h"

/* diff.c, compare.c */

struct query_differ {
    struct query *q[2];
    const struct query_diff_ask *ask;
    struct query_shape s;
    struct query_both p;
    bool by_numbers; /* s has a root until what is shown was placed; nodes are p's */
    struct query_diff *ret;
    uint32_t root;
    unit_i128 *size, *sort;
    double *churn;           /* of the subtree; NULL unless comparable */
    const double *spread[2]; /* of sides that saw every event: per node, or function of a table */
    struct query_fn_table fns;
};

/* Is this a question that differences answer? */
[[nodiscard]] int query_diff_check(const struct query *q, const struct query_diff_ask *ask,
                                   struct query_err *e);
/* ret->side[k], of a tree whose root is known. */
[[nodiscard]] int query_diff_side_sums(struct query_differ *d, uint32_t k, struct query_err *e);
/* What both are divided by; or why they cannot be compared. */
void query_diff_compare(struct query_differ *d);

/* Of a side's weight, divided. */
double query_diff_value(const struct query_differ *d, uint32_t k, unit_i128 v);
/* var: per side, negative: unknown */
struct query_delta query_diff_delta(const struct query_differ *d, const unit_i128 self[2],
                                    const unit_i128 total[2], const uint64_t samples[2],
                                    const double var[2]);
enum query_state query_diff_state(const unit_i128 total[2], const uint64_t samples[2]);
/* Did side k's sources see every event? Then its variance is measured, by spreads(). */
bool query_diff_wants_spread(const struct query_differ *d, uint32_t k);
[[nodiscard]] int query_diff_spreads(struct query_differ *d, struct query_err *e);
/* Of node i, or of a table's function; negative: unknown */
double query_diff_var(const struct query_differ *d, uint32_t k, uint32_t i);
[[nodiscard]] int query_diff_warnings(struct query_differ *d, struct query_err *e);
