// SPDX-License-Identifier: Apache-2.0
#include <argp.h>
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "cli/answer.h"
#include "cli/beside.h"
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
    {"key", OPT_KEY, "fn|line|file|bin|addr", 0, "what a row stands for; default fn", 0},
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
        text_value(&cell, answer_text(json_object_get(type, "name")),
                   answer_text(json_object_get(type, "unit")), v);
    answer_put_right(b, &cell, W_VALUE);
    buf_reset(&cell);
    answer_put_share(&cell, v, answer_number(json_object_get(root, "total")));
    answer_put_right(b, &cell, W_SHARE);
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
    answer_put_right(b, &cell, W_COUNT);
    buf_deinit(&cell);
}

/* ---- printing ------------------------------------------------------------------------------ */

static void put_any_row(struct buf *b, const json_t *root, struct str name, const json_t *row)
{
    put_value(b, root, answer_number(json_object_get(row, "total")));
    put_number(b, answer_number(json_object_get(row, "samples")));
    put_number(b, answer_number(json_object_get(row, "functions")));
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
        put_any_row(b, root, answer_text(json_object_get(row, "pattern")), row);
    put_any_row(b, root, STR("at least one"), json_object_get(any, "union"));
}

void cli_top_rows(struct buf *b, const json_t *root)
{
    const json_t *row = json_object_get(root, "row"), *func = json_object_get(row, "func"), *index;
    size_t i;

    if (!json_array_size(func))
        return;
    buf_printf(b, "%*s  %*s  %*s  %*s  %*s  %s\n", W_VALUE, "self", W_SHARE, "", W_VALUE, "total",
               W_SHARE, "", W_COUNT, "samples", "function");
    json_array_foreach(func, i, index)
    {
        put_value(b, root, answer_number(json_array_get(json_object_get(row, "self"), i)));
        put_value(b, root, answer_number(json_array_get(json_object_get(row, "total"), i)));
        put_number(b, answer_number(json_array_get(json_object_get(row, "samples"), i)));
        answer_put_func(b, root, index);
        buf_chr(b, '\n');
    }
}

static int print(const struct buf *answer, bool json, struct err *err)
{
    struct buf b;
    json_t *root;
    int r;

    if (json)
        return answer_print(answer, err);
    TRY(answer_read(answer, &root, err));
    buf_init(&b, TEXT_MAX);
    answer_put_head(&b, root);
    put_any(&b, root);
    cli_top_rows(&b, root);
    answer_put_empty(&b, root);
    r = answer_print(&b, err);
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
    if (r == 0)
        cli_tell_captures(&t.ask.server, "", t.ask.q, t.ask.from, t.ask.to);
    buf_deinit(&query);
    buf_deinit(&out);
    return r < 0 ? cli_fail(&err) : CLI_OK;
}
