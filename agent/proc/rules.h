// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "agent/proc/environ.h"
#include "agent/proc/labels.h"
#include "base/conf.h"
#include "base/err.h"
#include "base/str.h"

/*
 * What the administrator says of processes: [rule NAME] sections of the settings, in file order,
 * and [select]. A rule's conditions must all hold; each is a glob (glob.h) whose captures are $1 to
 * $9, counted through the conditions in the order they are written.
 *
 *     exe, cmdline, cgroup, comm, env.NAME     conditions, also as match.exe ...
 *     match.service                            condition: the service so far
 *     action = keep | drop                     effects; of each the first rule that sets it counts
 *     service = TEXT, label.KEY = TEXT         with $1 .. $9, $$
 *
 * Set up at the start by one thread; rules_apply() any thread.
 */
struct rules;

#define RULES_MAX    64
#define RULES_LABELS 16

struct rules *rules_new(void);
struct rules *rules_free(struct rules *r); /* NULL is a no-op; returns NULL */

/*
 * One key of a section. For struct conf: ctx is the struct rules.
 * 0; CONF_NOT_MINE: no section [rule NAME]. errors: -EINVAL, -E2BIG, -EEXIST with what is wrong
 */
[[nodiscard]] int rules_set(void *ctx, const char *where, const struct conf_pair *pair,
                            struct err *err);

/* "service=a-*,exe=/usr/bin/x": what is profiled at all; a bare glob is of the service. */
[[nodiscard]] int rules_select(struct rules *r, const char *include, const char *exclude,
                               struct err *err);

/* After the last one: variables that conditions look at are added to w.
 * errors: a rule without a condition or effect, a $N that no condition captures */
[[nodiscard]] int rules_finish(struct rules *r, struct environ_want *w, struct err *err);

/* cmdline: as it would be sent (masked), so that a capture cannot carry a secret away. */
struct rules_who {
    struct str exe, cmdline, cgroup, comm, service;
    const struct environ_var *env;
    uint32_t n_env;
};

struct rules_result {
    bool drop;
    struct str service; /* the rules' or who's own */
    struct label label[RULES_LABELS];
    uint32_t n_label;
    /* Why: names of rules, "select.include", "select.exclude", or "". Borrowed from the rules. */
    const char *drop_by, *service_by, *label_by[RULES_LABELS];
    uint32_t n_matched;
    const char *matched[RULES_MAX];
};

/* Texts of the result are in the arena, or who's. r NULL: nothing is set. */
void rules_apply(const struct rules *r, const struct rules_who *who, struct arena *a,
                 struct labels_counts *n, struct rules_result *ret);
