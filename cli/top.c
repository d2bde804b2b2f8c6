// SPDX-License-Identifier: Apache-2.0
#include <argp.h>
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/text.h"

enum {
    OPT_ANY = 256,
    OPT_SORT,
    OPT_KEY,
    OPT_MATCH,
    ANY_MAX = 16,
    ANSWER_MAX = 256 << 20,
    TEXT_MAX = 64 << 20,
};

struct top {
    struct cli_ask ask;
    const char *any[ANY_MAX], *sort, *key, *match, *rows;
    size_t n_any;
};

static const struct argp_option options[] = {
    {"any", OPT_ANY, "PATTERN", 0,
     "share of samples that contain it; [fn=|bin=|file=]TEXT or /REGEX/; repeatable", 0},
    {"match", OPT_MATCH, "PATTERN", 0, "only functions that match", 0},
    {"sort", OPT_SORT, "self|total|samples", 0, "default self", 0},
    {"key", OPT_KEY, "fn|file|bin", 0, "what a row stands for; default fn", 0},
    {"rows", 'n', "N", 0, "rows, at most 2000; default 20, 0: the sums alone", 0},
    {},
};

// NOLINTBEGIN(concurrency-mt-unsafe): argp and exit, before any thread
static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct top *t = state->input;
    uint64_t n;

    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &t->ask;
        return 0;
    case OPT_ANY:
        if (t->n_any == ANY_MAX)
            argp_error(state, "more than %d times --any", ANY_MAX);
        t->any[t->n_any++] = arg;
        return 0;
    case OPT_MATCH:
        t->match = arg;
        return 0;
    case OPT_SORT:
        t->sort = arg;
        return 0;
    case OPT_KEY:
        t->key = arg;
        return 0;
    case 'n':
        if (!str_u64(str_c(arg), &n) || n > 2000)
            argp_error(state, "-n is 0 to 2000, not \"%s\"", arg);
        t->rows = arg;
        return 0;
    case ARGP_KEY_ARG:
        argp_error(state, "unexpected argument \"%s\"", arg);
        return EINVAL;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}
// NOLINTEND(concurrency-mt-unsafe)

/* ---- reading the answer -------------------------------------------------------------------- */

static struct str text_of(const json_t *v)
{
    return (struct str){json_string_value(v), json_string_length(v)};
}

/* A number or a decimal string; -1 where it is null or absent: the API has no negative ones. */
static double number_of(const json_t *v)
{
    struct str s = text_of(v);
    double d = 0;

    if (json_is_number(v))
        return json_number_value(v);
    if (!s.n)
        return -1;
    for (size_t i = 0; i < s.n; i++) {
        if (s.p[i] < '0' || s.p[i] > '9')
            return -1;
        d = d * 10 + (s.p[i] - '0');
    }
    return d;
}

static bool ns_of(const json_t *o, const char *key, real_ns *ret)
{
    return str_i64(text_of(json_object_get(o, key)), &ret->v);
}

static void put_share(struct buf *b, double part, double whole)
{
    if (part < 0 || whole < 0)
        buf_cstr(b, "unknown");
    else
        text_percent(b, part, whole);
}

/* What was lost, of what was lost and what arrived. */
static void put_lost(struct buf *b, const json_t *root)
{
    const json_t *lost = json_object_get(json_object_get(root, "quality"), "lost"), *l;
    double sum = 0, total = number_of(json_object_get(root, "total"));
    bool unknown = total < 0;
    size_t i;

    json_array_foreach(lost, i, l)
    {
        double w = number_of(json_object_get(l, "weight"));

        if (w < 0)
            unknown = true;
        else
            sum += w;
    }
    if (unknown && json_array_size(lost))
        buf_cstr(b, "unknown");
    else
        put_share(b, sum, sum + (total < 0 ? 0 : total));
}

static void put_head(struct buf *b, const json_t *root)
{
    const json_t *type = json_object_get(root, "type");
    const json_t *range = json_object_get(root, "range");
    const json_t *cov = json_object_get(root, "coverage");
    struct str name = text_of(json_object_get(type, "name"));
    struct str unit = text_of(json_object_get(type, "unit"));
    double total = number_of(json_object_get(root, "total"));
    double n = number_of(json_object_get(root, "samples"));
    double sources = number_of(json_object_get(cov, "sources"));
    struct interval t = {};

    text_name(b, name);
    buf_chr(b, ' ');
    text_name(b, unit);
    buf_cstr(b, ", ");
    text_name(b, text_of(json_object_get(type, "kind")));
    if (ns_of(range, "from_ns", &t.t0) && ns_of(range, "to_ns", &t.t1)) {
        buf_cstr(b, " · ");
        text_range(b, t);
    }
    if (sources >= 0) {
        buf_cstr(b, " · ");
        text_count(b, (uint64_t)sources);
        buf_cstr(b, sources == 1 ? " source" : " sources");
    }
    buf_cstr(b, " · covered ");
    put_share(b, number_of(json_object_get(cov, "covered_ns")),
              number_of(json_object_get(cov, "asked_ns")));
    buf_cstr(b, " · lost ");
    put_lost(b, root);
    buf_cstr(b, " · ");
    if (total < 0)
        buf_cstr(b, "no data");
    else
        text_value(b, name, unit, total);
    if (n >= 0) {
        buf_cstr(b, ", n = ");
        text_count(b, (uint64_t)n);
    }
    buf_chr(b, '\n');
}

/* Right-aligned in width columns, two blanks behind. */
static void put_right(struct buf *b, const struct buf *cell, size_t width)
{
    for (size_t w = text_width(buf_view(cell)); w < width; w++)
        buf_chr(b, ' ');
    buf_str(b, buf_view(cell));
    buf_cstr(b, "  ");
}

enum {
    W_VALUE = 14,
    W_SHARE = 8,
    W_COUNT = 12
};

static void put_value(struct buf *b, const json_t *root, double v)
{
    const json_t *type = json_object_get(root, "type");
    struct buf cell;

    buf_init(&cell, 256);
    if (v < 0)
        buf_chr(&cell, '-');
    else
        text_value(&cell, text_of(json_object_get(type, "name")),
                   text_of(json_object_get(type, "unit")), v);
    put_right(b, &cell, W_VALUE);
    buf_reset(&cell);
    put_share(&cell, v, number_of(json_object_get(root, "total")));
    put_right(b, &cell, W_SHARE);
    buf_deinit(&cell);
}

static void put_number(struct buf *b, double n)
{
    struct buf cell;

    buf_init(&cell, 64);
    if (n < 0)
        buf_chr(&cell, '-');
    else
        text_count(&cell, (uint64_t)n);
    put_right(b, &cell, W_COUNT);
    buf_deinit(&cell);
}

/* ---- printing ------------------------------------------------------------------------------ */

static void put_any_row(struct buf *b, const json_t *root, struct str name, const json_t *row)
{
    put_value(b, root, number_of(json_object_get(row, "total")));
    put_number(b, number_of(json_object_get(row, "samples")));
    put_number(b, number_of(json_object_get(row, "functions")));
    text_name(b, name);
    buf_chr(b, '\n');
}

static void put_any(struct buf *b, const json_t *root)
{
    const json_t *any = json_object_get(root, "any"), *row;
    size_t i;

    if (!any)
        return;
    buf_printf(b, "%*s  %*s  %*s  %*s  %s\n", W_VALUE, "value", W_SHARE, "share", W_COUNT,
               "samples", W_COUNT, "functions", "any");
    json_array_foreach(json_object_get(any, "each"), i, row)
        put_any_row(b, root, text_of(json_object_get(row, "pattern")), row);
    put_any_row(b, root, STR("at least one"), json_object_get(any, "union"));
}

static void put_func(struct buf *b, const json_t *root, const json_t *index)
{
    const json_t *strings = json_object_get(root, "strings"), *func = json_object_get(root, "func");
    size_t f = (size_t)json_integer_value(index);
    const json_t *name = json_array_get(json_object_get(func, "name"), f);
    const json_t *bin = json_array_get(json_object_get(func, "bin"), f);
    const json_t *file = json_array_get(json_object_get(func, "file"), f);
    struct str where = text_of(json_array_get(strings, (size_t)json_integer_value(bin)));

    if (!where.n)
        where = text_of(json_array_get(strings, (size_t)json_integer_value(file)));
    text_name(b, text_of(json_array_get(strings, (size_t)json_integer_value(name))));
    if (where.n) {
        bool bare = where.p[0] != '['; /* [kernel] and its like bring their own */

        buf_cstr(b, bare ? "  [" : "  ");
        text_name(b, where);
        buf_cstr(b, bare ? "]" : "");
    }
}

static void put_rows(struct buf *b, const json_t *root)
{
    const json_t *row = json_object_get(root, "row"), *func = json_object_get(row, "func"), *index;
    size_t i;

    if (!json_array_size(func))
        return;
    buf_printf(b, "%*s  %*s  %*s  %*s  %*s  %s\n", W_VALUE, "self", W_SHARE, "", W_VALUE, "total",
               W_SHARE, "", W_COUNT, "samples", "function");
    json_array_foreach(func, i, index)
    {
        put_value(b, root, number_of(json_array_get(json_object_get(row, "self"), i)));
        put_value(b, root, number_of(json_array_get(json_object_get(row, "total"), i)));
        put_number(b, number_of(json_array_get(json_object_get(row, "samples"), i)));
        put_func(b, root, index);
        buf_chr(b, '\n');
    }
}

static void put_empty(struct buf *b, const json_t *root)
{
    const json_t *empty = json_object_get(root, "empty");
    struct str why = text_of(json_object_get(empty, "why"));

    if (!why.n)
        return;
    buf_cstr(b, "nothing to show: ");
    text_name(b, why);
    if (json_is_string(json_object_get(empty, "matcher"))) {
        buf_cstr(b, ", by ");
        text_name(b, text_of(json_object_get(empty, "matcher")));
    }
    buf_chr(b, '\n');
}

static int print(const struct buf *answer, bool json, struct err *err)
{
    json_error_t je;
    struct buf b;
    json_t *root;
    int r = 0;

    if (json)
        return fwrite(answer->p, 1, answer->n, stdout) == answer->n && fflush(stdout) == 0
                   ? 0
                   : err_set(err, -EIO, "standard output cannot be written");
    root = json_loadb(answer->p, answer->n, 0, &je);
    if (!json_is_object(root)) {
        json_decref(root);
        return err_set(err, -EREMOTEIO, "the server's answer is not JSON: %s", je.text);
    }
    buf_init(&b, TEXT_MAX);
    put_head(&b, root);
    put_any(&b, root);
    put_rows(&b, root);
    put_empty(&b, root);
    if (b.failed || fwrite(b.p, 1, b.n, stdout) != b.n || fflush(stdout) != 0)
        r = err_set(err, -EIO, "standard output cannot be written");
    buf_deinit(&b);
    json_decref(root);
    return r;
}

int cli_top(int argc, char **argv)
{
    const struct argp_child children[] = {{&cli_ask_argp, 0, NULL, 0}, {}};
    const struct argp argp = {.options = options,
                              .parser = parse,
                              .children = children,
                              .doc = "Functions by self time, total and samples. The first line "
                                     "says what was read, and what of it is missing."};
    struct top t = {.rows = "20"};
    struct err err = {};
    struct buf query, out;
    int r;

    cli_ask_init(&t.ask);
    if (argp_parse(&argp, argc, argv, 0, NULL, &t) != 0) // NOLINT(concurrency-mt-unsafe)
        return CLI_TROUBLE;
    buf_init(&query, 256 << 10);
    buf_init(&out, ANSWER_MAX);
    cli_params_ask(&query, &t.ask);
    cli_param(&query, "limit", str_c(t.rows));
    if (t.sort)
        cli_param(&query, "sort", str_c(t.sort));
    if (t.key)
        cli_param(&query, "key", str_c(t.key));
    if (t.match)
        cli_param(&query, "match", str_c(t.match));
    for (size_t i = 0; i < t.n_any; i++)
        cli_param(&query, "any", str_c(t.any[i]));
    r = cli_get(&t.ask.server, "/api/v1/top", &query, &out, &err);
    if (r == 0)
        r = print(&out, t.ask.json, &err);
    buf_deinit(&query);
    buf_deinit(&out);
    return r < 0 ? cli_fail(&err) : CLI_OK;
}
