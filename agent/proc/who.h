// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "agent/proc/labels.h"
#include "agent/proc/procread.h"
#include "agent/proc/rules.h"

/*
 * From what /proc says of a process to what it is seen by: its service (after the rules) and its
 * labels. Pure, any thread.
 */

/* What rules look at. Texts stay f's. */
struct rules_who who_of_facts(const struct procread_facts *f);

/*
 * Labels, service first, into ret[LABELS_MAX]; returns how many. Of two with one name the earlier
 * counts: service, rules, container, container_name, pod, version, rank, job, variables that
 * [labels] env adds to the default list (in lower case), STRATA_LABELS.
 *
 * No daemon is asked for names: "pod" is POD_NAME, or HOSTNAME inside a pod's cgroup (Kubernetes
 * sets both host name and variable to the pod's name); "container_name" is HOSTNAME inside another
 * container, unless it is the begin of the container's id, which is what Docker and Podman set
 * where the user named no host.
 */
uint32_t who_labels(const struct procread_facts *f, const struct environ_want *want,
                    struct str service, const struct rules_result *rules, struct arena *a,
                    struct labels_counts *n, struct label ret[LABELS_MAX]);

struct who_conf {
    const struct rules *rules;       /* NULL: none */
    const struct environ_want *want; /* NULL: no labels of listed variables */
};

struct who {
    struct str service;
    uint32_t n_label, n_env;
    struct label *label;
    struct environ_var *env;
    bool drop;
};

/* All of it, in the arena. */
void who_make(const struct who_conf *c, const struct procread_facts *f, struct arena *a,
              struct labels_counts *n, struct who *ret);
