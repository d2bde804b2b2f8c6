// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "agent/proc/environ.h"
#include "agent/proc/rules.h"
#include "base/conf.h"

/* Settings of strata-agent: strata-agent.ini, -o, docs/config.md. Durations in ns, sizes in bytes.
 */
struct agent_conf {
    char *url, *token_file, *ca_file;
    bool insecure;
    int64_t period_ns;
    uint64_t ring_bytes;
    int64_t batch_interval_ns;
    uint64_t symbols_cache;
    char *debuginfo_dirs, *lines;
    uint64_t table_budget;
    bool fallback_fp;
    char *cmdline, *label_env, *label_static;
    char *include, *exclude;
    bool steps;
    bool python, gil;
    char *offcpu;
    int64_t min_block_ns;
    uint64_t stacks_per_s;
    /* made of the above and of the sections [rule NAME] */
    struct rules *rules;
    struct environ_want want;
    uint64_t cpu_percent, memory;
    char *spool_dir;
    uint64_t spool_max_bytes;
    int64_t spool_max_age_ns;
    char *user, *processes;
};

extern const struct conf_opt agent_opts[];
extern const size_t agent_n_opts;
