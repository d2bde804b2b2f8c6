// SPDX-License-Identifier: Apache-2.0
#include "agent/collect/status.h"

#include <inttypes.h>
#include <string.h>

#include "base/time.h"

struct str status_value(struct str json, const char *key)
{
    struct str k = str_c(key);

    for (size_t at = 0; at + k.n + 3 < json.n; at++) {
        const char *p = json.p + at;
        struct str v;
        size_t n = 0;

        if (p[0] != '"' || memcmp(p + 1, k.p, k.n) != 0 || p[k.n + 1] != '"' || p[k.n + 2] != ':')
            continue;
        v = str_from(json, at + k.n + 3);
        if (v.n == 0 || v.p[0] != '"') {
            while (n < v.n && v.p[n] != ',' && v.p[n] != '}')
                n++;
            return str_to(v, n);
        }
        v = str_from(v, 1);
        while (n < v.n && v.p[n] != '"')
            n += v.p[n] == '\\' && n + 1 < v.n ? 2 : 1;
        return str_to(v, n);
    }
    return STR("");
}

int64_t status_silent_s(struct str json, int64_t now_ns)
{
    int64_t t;

    if (str_eq(status_value(json, "state"), STR("stopped")) ||
        !str_i64(status_value(json, "t_ns"), &t))
        return -1;
    return (now_ns - t) / NS_PER_S;
}

static void line(struct str json, const char *key, const char *title, FILE *to)
{
    struct str v = status_value(json, key);

    if (v.n)
        (void)fprintf(to, "%-18s %.*s\n", title, STR_ARG(v));
}

static int64_t figure(struct str json, const char *key)
{
    int64_t v;

    return str_i64(status_value(json, key), &v) ? v : 0;
}

static void print_rate(struct str json, FILE *to)
{
    int64_t now = figure(json, "period_ns"), asked = figure(json, "asked_period_ns");

    if (now <= 0)
        return;
    (void)fprintf(to, "%-18s %.1f Hz", "rate", 1e9 / (double)now);
    if (asked > 0 && asked != now)
        (void)fprintf(to, " (asked for %.1f)", 1e9 / (double)asked);
    (void)fprintf(to, "\n%-18s %.2f %% of one CPU in the last window, budget %.2f %%\n", "own CPU",
                  (double)figure(json, "agent_cost") / 1e7,
                  (double)figure(json, "agent_cost_budget") / 1e7);
    (void)fprintf(to, "%-18s %.1f MiB of %.1f MiB\n", "memory",
                  (double)figure(json, "agent_memory") / (1 << 20),
                  (double)figure(json, "agent_memory_limit") / (1 << 20));
}

static void print_spool(struct str json, FILE *to)
{
    (void)fprintf(to, "%-18s %" PRId64 " batches, %.1f MiB, %" PRId64 " %% full\n", "waiting",
                  figure(json, "agent_batches_spooled"),
                  (double)figure(json, "agent_spool_bytes") / (1 << 20),
                  figure(json, "agent_spool_level"));
    (void)fprintf(to,
                  "%-18s %" PRId64 " produced + %" PRId64 " of older runs = %" PRId64
                  " sent + %" PRId64 " dropped + %" PRId64 " waiting\n",
                  "batches", figure(json, "agent_batches_produced"),
                  figure(json, "agent_batches_inherited"), figure(json, "agent_batches_sent"),
                  figure(json, "agent_dropped"), figure(json, "agent_batches_spooled"));
}

/* What follows head. */
static struct str behind(struct str json, struct str head)
{
    const char *at = json.n ? memmem(json.p, json.n, head.p, head.n) : NULL;

    return at ? str_from(json, (size_t)(at - json.p) + head.n) : STR("");
}

/* " ns", " B"; nothing for a count. */
static void print_unit(struct str units, struct str key, FILE *to)
{
    char name[80];
    struct str u;

    (void)snprintf(name, sizeof name, "%.*s", STR_ARG(str_to(key, sizeof name - 1)));
    u = status_value(units, name);
    if (str_eq(u, STR("nanoseconds")))
        u = STR("ns");
    else if (str_eq(u, STR("bytes")))
        u = STR("B");
    if (u.n)
        (void)fprintf(to, " %.*s", STR_ARG(u));
}

/* All of "figures", one in a line, without the zeros. */
static void print_figures(struct str json, FILE *to)
{
    const struct str units = behind(json, STR("\"units\":{"));
    struct str rest = behind(json, STR("\"figures\":{"));

    while (rest.n && rest.p[0] == '"') {
        struct str key = str_from(rest, 1), value;

        key = str_to(key, str_find(key, '"'));
        if (rest.n < key.n + 4)
            return;
        value = str_from(rest, key.n + 4); /* behind ":" and the quote */
        value = str_to(value, str_find(value, '"'));
        if (!str_eq(value, STR("0"))) {
            (void)fprintf(to, "  %-32.*s %.*s", STR_ARG(key), STR_ARG(value));
            print_unit(units, key, to);
            (void)fputc('\n', to);
        }
        rest = str_from(rest, key.n + 4 + value.n + 1);
        if (rest.n && rest.p[0] == ',')
            rest = str_from(rest, 1);
    }
}

void status_print(struct str json, FILE *to)
{
    char text[40];
    int64_t t = figure(json, "t_ns");

    line(json, "version", "strata-agent", to);
    line(json, "state", "state", to);
    (void)fprintf(to, "%-18s %s\n", "as of", real_ns_format((real_ns){t}, text));
    line(json, "pid", "pid", to);
    line(json, "agent", "agent", to);
    line(json, "boot", "run", to);
    line(json, "server", "server", to);
    line(json, "upload", "upload", to);
    print_rate(json, to);
    line(json, "restraint", "restraint", to);
    line(json, "spool", "spool", to);
    line(json, "folding", "folding", to);
    print_spool(json, to);
    line(json, "identity", "identities", to);
    line(json, "kernel_symbols", "kernel symbols", to);
    line(json, "runs_as", "runs as", to);
    line(json, "degraded", "degraded", to);
    line(json, "process_sampler", "process sampler", to);
    line(json, "process_starter", "process starter", to);
    line(json, "process_reader", "process reader", to);
    line(json, "process_sender", "process sender", to);
    (void)fprintf(to, "figures, but for zeros; without a unit: counts\n");
    print_figures(json, to);
}
