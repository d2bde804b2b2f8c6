// SPDX-License-Identifier: Apache-2.0
#include <argp.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "cli/beside.h"
#include "cli/cli.h"

enum {
    OPT_FORMAT = 256,
    ANSWER_MAX = 512 << 20
};

struct flame {
    struct cli_ask ask;
    const char *file;   /* NULL or "-": standard output */
    const char *format; /* NULL: by the file's extension */
};

static const struct argp_option options[] = {
    {"output", 'o', "FILE", 0,
     "write here; .svg, .folded, .pb.gz or .speedscope.json decides the format; default: stdout",
     0},
    {"format", OPT_FORMAT, "folded|svg|pprof|speedscope", 0, "whatever FILE is called", 0},
    {},
};

// NOLINTBEGIN(concurrency-mt-unsafe): argp and exit, before any thread
static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct flame *f = state->input;

    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &f->ask;
        return 0;
    case 'o':
        f->file = arg;
        return 0;
    case OPT_FORMAT:
        f->format = cli_format_named(arg);
        if (!f->format || strcmp(f->format, "strata") == 0)
            argp_error(state,
                       "--format is folded, svg, pprof, speedscope, text or json, not \"%s\"", arg);
        return 0;
    case ARGP_KEY_ARG:
        argp_error(state, "unexpected argument \"%s\"", arg);
        return EINVAL;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}
// NOLINTEND(concurrency-mt-unsafe)

int cli_flame(int argc, char **argv)
{
    const struct argp_child children[] = {{&cli_ask_argp, 0, NULL, 0}, {}};
    const struct argp argp = {
        .options = options,
        .parser = parse,
        .children = children,
        .doc = "A flame graph to a file: folded stacks, SVG, pprof or speedscope."};
    struct flame f = {};
    struct err err = {};
    struct buf query, out;
    const char *format;
    int r;

    cli_ask_init(&f.ask);
    if (argp_parse(&argp, argc, argv, 0, NULL, &f) != 0) // NOLINT(concurrency-mt-unsafe)
        return CLI_TROUBLE;
    format = f.format                              ? f.format
             : !f.file || strcmp(f.file, "-") == 0 ? "folded"
                                                   : cli_format_of(f.file);
    if (!f.ask.json && (!format || strcmp(format, "strata") == 0)) {
        (void)err_set(&err, -EINVAL,
                      "%s ends in none of .svg .folded .pb.gz .speedscope.json: say --format",
                      f.file);
        return cli_fail(&err);
    }
    buf_init(&query, 128 << 10);
    cli_params_ask(&query, &f.ask);
    if (f.ask.json) {
        buf_init(&out, ANSWER_MAX);
        r = cli_get(&f.ask.server, "/api/v1/flamegraph", &query, &out, &err);
        if (r == 0)
            r = cli_write_file(f.file, buf_view(&out), &err);
        buf_deinit(&out);
    } else {
        r = cli_export_to(&f.ask.server, &query, format, f.file, &err);
    }
    if (r == 0)
        cli_tell_captures(&f.ask.server, "", f.ask.q, f.ask.from, f.ask.to);
    buf_deinit(&query);
    return r < 0 ? cli_fail(&err) : CLI_OK;
}
