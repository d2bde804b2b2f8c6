// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/conf.h"

/*
 * The settings of stratad, one field per option of conf_table.c; names as in refusals
 * (section.key). Bytes, nanoseconds or counts. Strings are owned by the table until conf_free().
 * Thread: filled at start-up, read-only afterwards.
 */
struct srv_conf {
    /* [http] */
    char *listen, *base_path, *hosts, *tokens;
    bool base_only;
    /* [limits] */
    uint64_t memory, log_lines;
    /* [ingest] */
    uint64_t header, uri, body, inflated, arena, ingest_memory;
    uint64_t members, nesting, unknown_fields, samples, streams, entries, depth, name;
    uint64_t labels, label_name, label_value, attributes, series_per_service, series;
    int64_t age_ns, future_ns;
    uint64_t rate, burst;
    uint64_t connections, connections_per_address;
    int64_t idle_ns, request_time_ns;
    uint64_t min_rate;
    /* [query] */
    int64_t query_timeout_ns, query_timeout_max_ns;
    uint64_t running, waiting, query_memory;
    int64_t max_range_ns;
    uint64_t max_points, max_nodes, answer, form;
    /* [storage] */
    char *dir, *backup_dir;
    uint64_t min_free, max_unsealed, reserve;
    int64_t seal_after_ns;
};

extern const struct conf_opt srv_opts[];
extern const size_t srv_n_opts;
