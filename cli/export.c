// SPDX-License-Identifier: Apache-2.0
#include <argp.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/sudo.h"
#include "cli/local.h"

enum {
    OPT_TYPE = 256,
    OPT_SERVICE,
    OPT_FORMAT,
    ANSWER_MAX = 512 << 20,
    SELECTOR_MAX = 16 << 10,
};

/* ---- formats and files --------------------------------------------------------------------- */

static const struct {
    const char *end, *format; /* the longer ending first */
} endings[] = {
    {".strata", "strata"}, {".pb.gz", "pprof"},      {".pprof", "pprof"},
    {".folded", "folded"}, {".collapsed", "folded"}, {".speedscope.json", "speedscope"},
    {".svg", "svg"},       {".json", "json"},        {".txt", "folded"},
};

const char *cli_format_of(const char *file)
{
    for (size_t i = 0; file && i < sizeof endings / sizeof *endings; i++) {
        if (str_ends(str_c(file), str_c(endings[i].end)))
            return endings[i].format;
    }
    return NULL;
}

const char *cli_format_named(const char *word)
{
    static const char *const words[] = {"strata", "pprof", "folded", "speedscope",
                                        "svg",    "text",  "json"};

    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (strcmp(word, words[i]) == 0)
            return words[i];
    }
    return strcmp(word, "collapsed") == 0 ? "folded" : NULL;
}

int cli_write_file(const char *path, struct str s, struct err *err)
{
    bool std = !path || strcmp(path, "-") == 0, ok, own = false;
    int fd = std ? STDOUT_FILENO : sudo_create(path, err);
    struct stat st;
    FILE *f;

    if (fd < 0)
        return fd;
    own = !std && fstat(fd, &st) == 0 && S_ISREG(st.st_mode);
    f = std ? stdout : fdopen(fd, "w");
    if (!f || (own && ftruncate(fd, 0) < 0))
        return err_set(err, -errno, "%.100s: %s", path, strerrordesc_np(errno));
    ok = fwrite(s.p, 1, s.n, f) == s.n;
    ok = (std ? fflush(f) : fclose(f)) == 0 && ok;
    if (ok)
        return 0;
    if (own)
        (void)remove(path);
    return err_set(err, -EIO, "%.100s cannot be written", std ? "standard output" : path);
}

int cli_export_to(const struct cli_server *s, struct buf *query, const char *format,
                  const char *file, struct err *err)
{
    struct buf out;
    int r;

    buf_init(&out, ANSWER_MAX);
    cli_param(query, "format", str_c(format));
    r = cli_get(s, "/api/v1/export", query, &out, err);
    if (r == 0)
        r = cli_write_file(file, buf_view(&out), err);
    buf_deinit(&out);
    return r;
}

/* ---- the verb ------------------------------------------------------------------------------ */

struct export
{
    struct cli_ask ask;
    const char *type, *service, *file, *format;
};

static const struct argp_option options[] = {
    {"type", OPT_TYPE, "TYPE", 0, "profile type; default cpu", 0},
    {"service", OPT_SERVICE, "NAME", 0, "only this service", 0},
    {"output", 'o', "FILE", 0,
     "write here; .pb.gz .pprof .folded .collapsed .txt .speedscope.json .svg .json say the format "
     "(.txt is folded, the report is --format text); "
     "default: standard output",
     0},
    {"format", OPT_FORMAT, "FORMAT", 0,
     "pprof, folded, speedscope, svg, text or json, whatever FILE is called", 0},
    {},
};

// NOLINTBEGIN(concurrency-mt-unsafe): argp and exit, before any thread
static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct export *x = state->input;

    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &x->ask;
        return 0;
    case OPT_TYPE:
        x->type = arg;
        return 0;
    case OPT_SERVICE:
        x->service = arg;
        return 0;
    case 'o':
        x->file = arg;
        return 0;
    case OPT_FORMAT:
        x->format = cli_format_named(arg);
        if (!x->format || strcmp(x->format, "strata") == 0)
            argp_error(state,
                       "--format is pprof, folded, speedscope, svg, text or json, not \"%s\"", arg);
        return 0;
    case ARGP_KEY_ARG:
        argp_error(state, "unexpected argument \"%s\"", arg);
        return EINVAL;
    case ARGP_KEY_SUCCESS:
        if (x->ask.q && (x->type || x->service))
            argp_error(state, "--query says type and labels itself: no --type, no --service");
        if (!x->format)
            x->format = x->ask.json ? "json" : cli_format_of(x->file);
        if (!x->format && x->file && strcmp(x->file, "-") != 0)
            argp_error(state, "%s does not say a format: say --format", x->file);
        if (!x->format || strcmp(x->format, "strata") == 0)
            argp_error(state, "say --format pprof, folded, speedscope, svg, text or json");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}
// NOLINTEND(concurrency-mt-unsafe)

static void put_selector(struct buf *b, const struct export *x)
{
    buf_cstr(b, x->type ? x->type : "cpu");
    if (x->service) {
        buf_cstr(b, "{service=\"");
        for (const char *p = x->service; *p; p++) {
            if (*p == '"' || *p == '\\')
                buf_chr(b, '\\');
            buf_chr(b, *p);
        }
        buf_cstr(b, "\"}");
    }
    buf_chr(b, '\0');
}

int cli_export(int argc, char **argv)
{
    const struct argp_child children[] = {{&cli_ask_argp, 0, NULL, 0}, {}};
    const struct argp argp = {
        .options = options,
        .parser = parse,
        .children = children,
        .doc = "Profiles of a server to a file: pprof, folded stacks, speedscope, SVG, a report as "
               "text, or the tree as JSON. Nothing is cut from it but in SVG, which says so.\v"
               "  strata export --service web --from now-15m -o web.pb.gz\n"
               "  strata export --type cpu --format text\n\n"
               "One file holds one profile type. Coverage and loss are in it where the format has "
               "a place for them. Exit status: 0 done, 2 not, and why is said."};
    struct export x = {};
    struct err err = {};
    struct buf query, q;
    int r;

    cli_ask_init(&x.ask);
    if (argp_parse(&argp, argc, argv, 0, NULL, &x) != 0) // NOLINT(concurrency-mt-unsafe)
        return CLI_TROUBLE;
    buf_init(&query, 128 << 10);
    buf_init(&q, SELECTOR_MAX);
    put_selector(&q, &x);
    if (!x.ask.q)
        x.ask.q = q.p;
    cli_params_ask(&query, &x.ask);
    r = cli_export_to(&x.ask.server, &query, x.format, x.file, &err);
    buf_deinit(&query);
    buf_deinit(&q);
    return r < 0 ? cli_fail(&err) : CLI_OK;
}
