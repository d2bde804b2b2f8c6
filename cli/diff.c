// SPDX-License-Identifier: Apache-2.0
#include <argp.h>
#include <errno.h>
#include <math.h>
#include <string.h>

#include "cli/answer.h"
#include "cli/beside.h"
#include "cli/cli.h"
#include "cli/text.h"

enum {
    OPT_A = 256,
    OPT_B,
    OPT_A_FROM,
    OPT_A_TO,
    OPT_B_FROM,
    OPT_B_TO,
    OPT_A_STEP,
    OPT_B_STEP,
    OPT_NORM,
    OPT_SORT,
    ANSWER_MAX = 256 << 20,
    TEXT_MAX = 64 << 20,
};

struct side {
    const char *q, *from, *to, *step;
};

struct diff {
    struct cli_ask ask; /* what A leaves out is taken from here */
    struct side a, b;   /* what B leaves out is taken from A */
    const char *norm, *sort, *rows;
};

static const struct argp_option options[] = {
    {"a", OPT_A, "SELECTOR", 0, "before; default: --query", 0},
    {"b", OPT_B, "SELECTOR", 0, "after; default: A's", 0},
    {"a-from", OPT_A_FROM, "TIME", 0, "default: --from", 0},
    {"a-to", OPT_A_TO, "TIME", 0, "default: --to", 0},
    {"b-from", OPT_B_FROM, "TIME", 0, "default: A's", 0},
    {"b-to", OPT_B_TO, "TIME", 0, "default: A's", 0},
    {"a-step", OPT_A_STEP, "NAME[:FIRST-LAST]", 0, "default: --step", 0},
    {"b-step", OPT_B_STEP, "NAME[:FIRST-LAST]", 0, "default: A's", 0},
    {"norm", OPT_NORM, "step|second|share|none", 0,
     "what each side is divided by; default: step if both have some, else second", 0},
    {"sort", OPT_SORT, "delta|a|b|name", 0, "default delta: largest change first", 0},
    {"rows", 'n', "N", 0, "functions, at most 2000; default 20", 0},
    {},
};

// NOLINTBEGIN(concurrency-mt-unsafe): argp and exit, before any thread
static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct diff *d = state->input;
    const char **to[] = {&d->a.q,  &d->b.q,    &d->a.from, &d->a.to, &d->b.from,
                         &d->b.to, &d->a.step, &d->b.step, &d->norm, &d->sort};
    uint64_t n;

    if (key >= OPT_A && key <= OPT_SORT) {
        *to[key - OPT_A] = arg;
        return 0;
    }
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &d->ask;
        return 0;
    case 'n':
        if (!str_u64(str_c(arg), &n) || n > 2000)
            argp_error(state, "-n is 0 to 2000, not \"%s\"", arg);
        d->rows = arg;
        return 0;
    case ARGP_KEY_ARG:
        argp_error(state, "unexpected argument \"%s\"", arg);
        return EINVAL;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}
// NOLINTEND(concurrency-mt-unsafe)

/* ---- values that may be negative ----------------------------------------------------------- */

enum {
    W_VALUE = 16,
};

struct unit {
    struct str type, unit;
    bool share;
    const char *per; /* behind each value */
};

/* "+1.23 core-s/s", "-4.5 %"; null is "-". */
static void put_value(struct buf *b, const struct unit *u, const json_t *v, bool sign)
{
    double x = json_number_value(v);

    if (!json_is_number(v)) {
        buf_chr(b, '-');
        return;
    }
    if (sign)
        buf_chr(b, x < 0 ? '-' : '+');
    if (u->share)
        buf_printf(b, "%.2f %%", 100 * fabs(x));
    else
        text_value(b, u->type, u->unit, fabs(x));
    buf_cstr(b, u->per);
}

static void put_cell(struct buf *b, const struct unit *u, const json_t *v, bool sign)
{
    struct buf cell;

    buf_init(&cell, 256);
    put_value(&cell, u, v, sign);
    answer_put_right(b, &cell, W_VALUE);
    buf_deinit(&cell);
}

/* A measured sum, divided as the differences are. */
static void put_divided(struct buf *b, const struct unit *u, const json_t *v, double by)
{
    double x = answer_number(v);
    json_t *n = x >= 0 && by > 0 ? json_real(x / by) : NULL;

    put_cell(b, u, n, false);
    json_decref(n);
}

static struct unit unit_of(const json_t *root)
{
    const json_t *type = json_object_get(root, "type");
    struct str norm = answer_text(json_object_get(root, "norm"));

    return (struct unit){.type = answer_text(json_object_get(type, "name")),
                         .unit = answer_text(json_object_get(type, "unit")),
                         .share = str_eq(norm, STR("share")),
                         .per = str_eq(norm, STR("second")) ? "/s"
                                : str_eq(norm, STR("step")) ? "/step"
                                                            : ""};
}

static double denominator(const json_t *root, const char *side)
{
    struct str norm = answer_text(json_object_get(root, "norm"));
    const json_t *all = json_object_get(json_object_get(root, side), "denominators");
    char key[16] = "";

    if (str_eq(norm, STR("none")))
        return 1;
    memcpy(key, norm.p ? norm.p : "", norm.n < sizeof key ? norm.n : 0);
    return answer_number(json_object_get(all, key));
}

/* ---- printing ------------------------------------------------------------------------------ */

static void put_sides(struct buf *b, const json_t *root)
{
    const json_t *type = json_object_get(root, "type"), *w;
    size_t i;

    for (int k = 0; k < 2; k++) {
        buf_printf(b, "%c", 'A' + k);
        answer_put_side(b, type, json_object_get(root, k ? "b" : "a"));
    }
    json_array_foreach(json_object_get(root, "warnings"), i, w)
    {
        buf_cstr(b, "warning: ");
        text_name(b, answer_text(w));
        buf_chr(b, '\n');
    }
}

static void put_total(struct buf *b, const json_t *root, const struct unit *u)
{
    const json_t *delta = json_object_get(root, "delta");

    text_name(b, u->type);
    buf_chr(b, ' ');
    text_name(b, u->unit);
    if (!json_is_true(json_object_get(root, "comparable"))) {
        buf_cstr(b, ": cannot be compared, ");
        text_name(b, answer_text(json_object_get(root, "why_not")));
        buf_chr(b, '\n');
        return;
    }
    buf_cstr(b, u->share ? ", as a share of each side, change of the total "
                         : ", change of the total ");
    put_value(b, u, json_object_get(delta, "value"), true);
    if (json_is_number(json_object_get(delta, "se"))) {
        json_t *two = json_real(2 * json_number_value(json_object_get(delta, "se")));

        buf_cstr(b, " ± ");
        put_value(b, u, two, false);
        json_decref(two);
    }
    buf_chr(b, '\n');
}

static void put_row(struct buf *b, const json_t *root, const struct unit *u, size_t i)
{
    static const char *const states[] = {"", "gone ", "new "};
    const json_t *row = json_object_get(root, "row");
    long long state = json_integer_value(json_array_get(json_object_get(row, "state"), i));
    const json_t *sig = json_array_get(json_object_get(row, "sig"), i);
    const json_t *se = json_array_get(json_object_get(row, "se"), i);

    put_divided(b, u, json_array_get(json_object_get(row, "self_a"), i), denominator(root, "a"));
    put_divided(b, u, json_array_get(json_object_get(row, "self_b"), i), denominator(root, "b"));
    put_cell(b, u, json_array_get(json_object_get(row, "d_self"), i), true);
    put_cell(b, u, json_array_get(json_object_get(row, "d_total"), i), true);
    if (!json_is_number(se))
        buf_cstr(b, "?     ");
    else
        buf_cstr(b, json_integer_value(sig) ? "yes   " : "no    ");
    if (state > 0 && state < 3)
        buf_cstr(b, states[state]);
    answer_put_func(b, root, json_array_get(json_object_get(row, "func"), i));
    buf_chr(b, '\n');
}

static int print(const struct buf *answer, bool json, struct err *err)
{
    struct unit u;
    struct buf b;
    json_t *root;
    size_t n = 0; /* rows: none where there is nothing to compare with */
    int r;

    if (json)
        return answer_print(answer, err);
    TRY(answer_read(answer, &root, err));
    u = unit_of(root);
    buf_init(&b, TEXT_MAX);
    put_sides(&b, root);
    put_total(&b, root, &u);
    if (json_is_true(json_object_get(root, "comparable")))
        n = json_array_size(json_object_get(json_object_get(root, "row"), "func"));
    if (n)
        buf_printf(&b, "%*s  %*s  %*s  %*s  %s\n", W_VALUE, "self in A", W_VALUE, "in B", W_VALUE,
                   "change", W_VALUE, "of total", "sure  function");
    for (size_t i = 0; i < n; i++)
        put_row(&b, root, &u, i);
    r = answer_print(&b, err);
    buf_deinit(&b);
    json_decref(root);
    return r;
}

/* ---- asking -------------------------------------------------------------------------------- */

static void put_side(struct buf *query, const char *side, const struct side *s)
{
    static const char *const names[] = {"from", "to", "step"};
    const char *value[] = {s->from, s->to, s->step};
    char name[16];

    (void)snprintf(name, sizeof name, "%s_q", side);
    cli_param_selector(query, name, s->q);
    for (int i = 0; i < 3; i++) {
        (void)snprintf(name, sizeof name, "%s_%s", side, names[i]);
        if (value[i])
            cli_param(query, name, str_c(value[i]));
    }
}

static struct side or_else(struct side s, struct side other)
{
    return (struct side){.q = s.q ? s.q : other.q,
                         .from = s.from ? s.from : other.from,
                         .to = s.to ? s.to : other.to,
                         .step = s.step ? s.step : other.step};
}

int cli_diff(int argc, char **argv)
{
    const struct argp_child children[] = {{&cli_ask_argp, 0, NULL, 0}, {}};
    const struct argp argp = {.options = options,
                              .parser = parse,
                              .children = children,
                              .doc =
                                  "What changed between A, before, and B, after: two ranges, two "
                                  "selectors, or both. Lines say first what each side is.\v"
                                  "Change is B less A, of a function's own time; of total, with "
                                  "what it calls. Sure: yes where the change of the total is at "
                                  "least twice its standard error, no where it is less or there "
                                  "are fewer than 30 samples, ? where that error is not known "
                                  "(samples of several periods, for instance). new, gone: on one "
                                  "side alone."};
    struct diff d = {.rows = "20", .sort = "delta"};
    struct err err = {};
    struct buf query, out;
    int r;

    cli_ask_init(&d.ask);
    if (argp_parse(&argp, argc, argv, 0, NULL, &d) != 0) // NOLINT(concurrency-mt-unsafe)
        return CLI_TROUBLE;
    d.a = or_else(d.a, (struct side){d.ask.q, d.ask.from, d.ask.to, d.ask.step});
    d.b = or_else(d.b, d.a);
    buf_init(&query, 256 << 10);
    buf_init(&out, ANSWER_MAX);
    put_side(&query, "a", &d.a);
    put_side(&query, "b", &d.b);
    cli_params_shape(&query, &d.ask);
    cli_param(&query, "view", STR("top"));
    cli_param(&query, "order", str_c(d.sort));
    cli_param(&query, "limit", str_c(d.rows));
    if (d.norm)
        cli_param(&query, "norm", str_c(d.norm));
    r = cli_get(&d.ask.server, "/api/v1/diff", &query, &out, &err);
    if (r == 0)
        r = print(&out, d.ask.json, &err);
    if (r == 0) {
        cli_tell_captures(&d.ask.server, "A: ", d.a.q, d.a.from, d.a.to);
        cli_tell_captures(&d.ask.server, "B: ", d.b.q, d.b.from, d.b.to);
    }
    buf_deinit(&query);
    buf_deinit(&out);
    return r < 0 ? cli_fail(&err) : CLI_OK;
}
