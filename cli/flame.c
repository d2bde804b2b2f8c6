// SPDX-License-Identifier: Apache-2.0
#include <argp.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

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
        if (strcmp(arg, "folded") != 0 && strcmp(arg, "svg") != 0 && strcmp(arg, "pprof") != 0 &&
            strcmp(arg, "speedscope") != 0)
            argp_error(state, "--format is folded, svg, pprof or speedscope, not \"%s\"", arg);
        f->format = arg;
        return 0;
    case ARGP_KEY_ARG:
        argp_error(state, "unexpected argument \"%s\"", arg);
        return EINVAL;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}
// NOLINTEND(concurrency-mt-unsafe)

static const char *format_of(const struct flame *f)
{
    struct str name = str_c(f->file);

    if (f->format)
        return f->format;
    if (str_ends(name, STR(".svg")))
        return "svg";
    if (str_ends(name, STR(".pb.gz")))
        return "pprof";
    if (str_ends(name, STR(".speedscope.json")))
        return "speedscope";
    if (!name.n || str_eq(name, STR("-")) || str_ends(name, STR(".folded")) ||
        str_ends(name, STR(".txt")))
        return "folded";
    return NULL;
}

/* Whole or not at all: a half written file is removed. */
static int file_write(const char *path, struct str s, struct err *err)
{
    bool std = !path || strcmp(path, "-") == 0;
    FILE *f = std ? stdout : fopen(path, "we");
    bool ok;

    if (!f)
        return err_set(err, -errno, "%s: %s", path, strerrordesc_np(errno));
    ok = fwrite(s.p, 1, s.n, f) == s.n;
    ok = (std ? fflush(f) : fclose(f)) == 0 && ok;
    if (ok)
        return 0;
    if (!std)
        (void)remove(path);
    return err_set(err, -EIO, "%s cannot be written", std ? "standard output" : path);
}

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
    format = f.ask.json ? "json" : format_of(&f);
    if (!format) {
        (void)err_set(&err, -EINVAL,
                      "%s ends in none of .svg .folded .pb.gz .speedscope.json: say --format",
                      f.file);
        return cli_fail(&err);
    }
    buf_init(&query, 128 << 10);
    buf_init(&out, ANSWER_MAX);
    cli_params_ask(&query, &f.ask);
    if (f.ask.json) {
        r = cli_get(&f.ask.server, "/api/v1/flamegraph", &query, &out, &err);
    } else {
        cli_param(&query, "format", str_c(format));
        r = cli_get(&f.ask.server, "/api/v1/export", &query, &out, &err);
    }
    if (r == 0)
        r = file_write(f.file, buf_view(&out), &err);
    buf_deinit(&query);
    buf_deinit(&out);
    return r < 0 ? cli_fail(&err) : CLI_OK;
}
