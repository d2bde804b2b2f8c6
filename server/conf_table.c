// SPDX-License-Identifier: Apache-2.0
#include "server/conf_table.h"

#define K(n)      (INT64_C(1) << 10) * (n)
#define M(n)      (INT64_C(1) << 20) * (n)
#define G(n)      (INT64_C(1) << 30) * (n)
#define SEC(n)    INT64_C(1000000000) * (n)
#define DAY(n)    SEC(86400) * (n)
#define AT(field) offsetof(struct srv_conf, field)
#define COUNT_MAX INT64_C(0xffffffff)

// clang-format off
const struct conf_opt srv_opts[] = {
    {"http", "listen", CONF_STR, AT(listen), "127.0.0.1:4040", 0, 0,
     "address and port; any but a loopback address needs http.tokens"},
    {"http", "base_path", CONF_STR, AT(base_path), "", 0, 0,
     "path below which a proxy serves everything, as /strata"},
    {"http", "base_only", CONF_BOOL, AT(base_only), "off", 0, 0,
     "nothing is served outside base_path, so that a secret one keeps other users of a machine out"},
    {"http", "hosts", CONF_STR, AT(hosts), "", 0, 0,
     "host names, separated by blanks, that requests may name besides localhost"},
    {"http", "tokens", CONF_STR, AT(tokens), "", 0, 0,
     "file of tokens, mode 0600, one a line: NAME ROLE[,ROLE] SHA256; roles ingest, read, admin"},

    {"limits", "memory", CONF_SIZE, AT(memory), "0B", 0, G(1 << 20),
     "what the pools are cut from; 0B: 80 % of the cgroup's limit, else half of the machine"},
    {"limits", "log_lines_per_s", CONF_COUNT, AT(log_lines), "10", 1, 10000,
     "log lines of one kind per second; the rest is counted"},

    {"ingest", "header", CONF_SIZE, AT(header), "32KiB", K(4), M(1), "request line and headers"},
    {"ingest", "uri", CONF_SIZE, AT(uri), "8KiB", K(1), K(64), "path and query"},
    {"ingest", "body", CONF_SIZE, AT(body), "16MiB", K(1), G(1), "body as received"},
    {"ingest", "inflated", CONF_SIZE, AT(inflated), "64MiB", K(1), G(2), "body after decompression"},
    {"ingest", "arena", CONF_SIZE, AT(arena), "128MiB", K(64), G(4), "memory to decode one request"},
    {"ingest", "memory", CONF_SIZE, AT(ingest_memory), "0B", 0, G(1 << 20),
     "bodies and arenas of all requests together; 0B: lesser of 384 MiB and a quarter of limits.memory"},
    {"ingest", "members", CONF_COUNT, AT(members), "1024", 1, COUNT_MAX, "zstd frames per body"},
    {"ingest", "nesting", CONF_COUNT, AT(nesting), "32", 2, 32, "messages inside each other"},
    {"ingest", "unknown_fields", CONF_COUNT, AT(unknown_fields), "10000", 0, COUNT_MAX,
     "fields of a later version that are skipped"},
    {"ingest", "samples", CONF_COUNT, AT(samples), "1000000", 1, COUNT_MAX, "rows per request"},
    {"ingest", "streams", CONF_COUNT, AT(streams), "1024", 1, COUNT_MAX, "streams per request"},
    {"ingest", "entries", CONF_COUNT, AT(entries), "1000000", 1, COUNT_MAX,
     "entries of each dictionary table per request"},
    {"ingest", "depth", CONF_COUNT, AT(depth), "1024", 2, 65535, "frames of a stack; cut at its root"},
    {"ingest", "name", CONF_COUNT, AT(name), "65535", 64, 65535, "bytes of a name; cut"},
    {"ingest", "labels", CONF_COUNT, AT(labels), "32", 1, 255, "labels of a series; the rest dropped"},
    {"ingest", "label_name", CONF_COUNT, AT(label_name), "128", 8, 65535, "bytes of a label's name"},
    {"ingest", "label_value", CONF_COUNT, AT(label_value), "256", 16, 65535,
     "bytes of a label's value; cut"},
    {"ingest", "attributes", CONF_COUNT, AT(attributes), "16", 0, 255, "attributes kept per sample"},
    {"ingest", "series_per_service", CONF_COUNT, AT(series_per_service), "10000", 1, COUNT_MAX,
     "active series of one service; the rest is folded into __overflow__"},
    {"ingest", "series", CONF_COUNT, AT(series), "100000", 1, COUNT_MAX, "active series in all"},
    {"ingest", "age", CONF_DURATION, AT(age_ns), "7d", SEC(60), DAY(3650),
     "a stream starts at most so long before its receipt"},
    {"ingest", "future", CONF_DURATION, AT(future_ns), "10m", SEC(1), DAY(1),
     "a stream ends at most so long after its receipt"},
    {"ingest", "rate", CONF_SIZE, AT(rate), "8MiB", 0, G(1),
     "inflated bytes per second of one agent; 0B: no limit"},
    {"ingest", "burst", CONF_SIZE, AT(burst), "32MiB", K(64), G(16), "what it may send at once"},
    {"ingest", "connections", CONF_COUNT, AT(connections), "0", 0, 65536,
     "connections in all; 0: lesser of 4096, limits.memory / 32 / ingest.header, descriptors - 192"},
    {"ingest", "connections_per_address", CONF_COUNT, AT(connections_per_address), "64", 1, 65536,
     "connections of one address; without tokens only"},
    {"ingest", "idle", CONF_DURATION, AT(idle_ns), "30s", SEC(1), SEC(3600),
     "an idle connection is closed after this"},
    {"ingest", "request_time", CONF_DURATION, AT(request_time_ns), "10s", SEC(1), SEC(600),
     "to send a request or take an answer, plus its bytes at ingest.min_rate"},
    {"ingest", "min_rate", CONF_SIZE, AT(min_rate), "16KiB", 1, G(1), "bytes per second, at least"},

    {"query", "timeout", CONF_DURATION, AT(query_timeout_ns), "30s", SEC(1), SEC(3600),
     "deadline of a query that asks for none"},
    {"query", "timeout_max", CONF_DURATION, AT(query_timeout_max_ns), "120s", SEC(1), SEC(3600),
     "longest deadline that a query may ask for"},
    {"query", "running", CONF_COUNT, AT(running), "0", 0, 1024, "queries at work; 0: 2 per core"},
    {"query", "waiting", CONF_COUNT, AT(waiting), "64", 0, 65536, "queries waiting; beyond: 503 busy"},
    {"query", "memory", CONF_SIZE, AT(query_memory), "256MiB", M(1), G(64), "memory of one query"},
    {"query", "max_range", CONF_DURATION, AT(max_range_ns), "400d", SEC(3600), DAY(36500),
     "longest range, measured after it was cut to what is stored"},
    {"query", "max_points", CONF_COUNT, AT(max_points), "11000", 10, 1000000, "points of a series"},
    {"query", "max_nodes", CONF_COUNT, AT(max_nodes), "1048576", 100, 16777216,
     "nodes of a tree in one answer"},
    {"query", "answer", CONF_SIZE, AT(answer), "64MiB", K(64), G(4), "bytes of an answer"},
    {"query", "form", CONF_SIZE, AT(form), "64KiB", K(1), M(16), "body of a query sent by POST"},

    {"storage", "dir", CONF_STR, AT(dir), "/var/lib/strata", 0, 0,
     "data directory; created with mode 0700 if missing"},
    {"storage", "backup_dir", CONF_STR, AT(backup_dir), "", 0, 0,
     "directory below which backups are made, on the file system of storage.dir; empty: none"},
    {"storage", "min_free", CONF_SIZE, AT(min_free), "1GiB", 0, G(1 << 20),
     "space to leave free on the file system; below a quarter of it batches are refused"},
    {"storage", "max_unsealed", CONF_SIZE, AT(max_unsealed), "1GiB", M(1), G(1 << 20),
     "journal not yet sealed; beyond it batches are refused with head_full"},
    {"storage", "seal_after", CONF_DURATION, AT(seal_after_ns), "60s", SEC(1) / 10, SEC(3600),
     "data are written into parts after so long at most"},
    {"storage", "reserve", CONF_SIZE, AT(reserve), "32MiB", 0, G(1),
     "file that is given up when the disk is full, so that the head can be sealed"},
};
// clang-format on

const size_t srv_n_opts = sizeof srv_opts / sizeof srv_opts[0];
