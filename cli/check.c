// SPDX-License-Identifier: Apache-2.0
/* `strata check DIR`: is what is on disk what was written? Exit status: 0 sound, 1 damage, 2 it
 * could not be found out. */
#include <argp.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/json_out.h"
#include "cli/cli.h"
#include "cli/text.h"
#include "storage/store.h"

enum {
    OPT_QUICK = 256,
    OPT_DEEP,
    OPT_JSON,
    LINES_MAX = 64 << 20,
    PROGRESS_NS = 200 * 1000 * 1000
};

struct check {
    const char *dir;
    enum store_depth depth;
    bool json, tty, shown; /* shown: a line of progress stands there */
    mono_ns last;
    struct buf line; /* text */
    struct buf found;
    struct json_out out;
};

static const struct argp_option options[] = {
    {"quick", OPT_QUICK, NULL, 0, "the catalog against the files, their sizes and headers", 0},
    {"deep", OPT_DEEP, NULL, 0, "also hashes of files and SQLite's own check of every page", 0},
    {"json", OPT_JSON, NULL, 0, "one JSON object", 0},
    {},
};

// NOLINTBEGIN(concurrency-mt-unsafe): argp and exit, before any thread
static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct check *c = state->input;

    switch (key) {
    case OPT_QUICK:
    case OPT_DEEP:
        if (c->depth != STORE_CHECK_FULL)
            argp_error(state, "--quick and --deep are one choice");
        c->depth = key == OPT_QUICK ? STORE_CHECK_QUICK : STORE_CHECK_DEEP;
        return 0;
    case OPT_JSON:
        c->json = true;
        return 0;
    case ARGP_KEY_ARG:
        if (c->dir)
            argp_error(state, "one DIR, not also \"%s\"", arg);
        c->dir = arg;
        return 0;
    case ARGP_KEY_END:
        if (!c->dir)
            argp_error(state, "DIR is missing: the data directory of a store");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}
// NOLINTEND(concurrency-mt-unsafe)

/* ---- while it runs ------------------------------------------------------------------------- */

static void clear_progress(struct check *c)
{
    if (c->shown)
        (void)fputs("\r\033[K", stderr);
    c->shown = false;
}

static void on_progress(void *ctx, uint64_t done, uint64_t all)
{
    struct check *c = ctx;
    mono_ns now = mono_now();

    if (!c->tty || now.v - c->last.v < PROGRESS_NS)
        return;
    c->last = now;
    c->shown = true;
    (void)fprintf(stderr, "\rchecked %" PRIu64 " of %" PRIu64 " MiB, %d %%", done >> 20, all >> 20,
                  all ? (int)((double)done * 100 / (double)all) : 100);
}

static bool is_known(struct interval t)
{
    return t.t0.v < t.t1.v;
}

static void finding_text(struct check *c, const struct store_finding *f)
{
    struct buf *b = &c->line;

    buf_reset(b);
    text_name(b, f->file);
    if (f->table.n > 0) {
        buf_chr(b, ' ');
        text_name(b, f->table);
        if (f->id >= 0)
            buf_printf(b, " %" PRId64, f->id);
    }
    buf_cstr(b, ": ");
    text_name(b, f->what);
    if (is_known(f->t)) {
        buf_cstr(b, " [");
        text_range(b, f->t);
        buf_chr(b, ']');
    }
    buf_chr(b, '\n');
    clear_progress(c);
    (void)fwrite(b->p, 1, b->n, stdout);
}

static void json_time(struct json_out *j, const char *key, real_ns t, bool known)
{
    json_key(j, key);
    if (known)
        json_dec_i64(j, t.v);
    else
        json_null_value(j);
}

static void finding_json(struct check *c, const struct store_finding *f)
{
    struct json_out *j = &c->out;

    json_object_begin(j);
    json_key(j, "file");
    json_str(j, f->file);
    json_key(j, "table");
    if (f->table.n > 0)
        json_str(j, f->table);
    else
        json_null_value(j);
    json_key(j, "id");
    if (f->id >= 0)
        json_dec_i64(j, f->id);
    else
        json_null_value(j);
    json_key(j, "what");
    json_str(j, f->what);
    json_time(j, "t0", f->t.t0, is_known(f->t));
    json_time(j, "t1", f->t.t1, is_known(f->t));
    json_object_end(j);
}

static bool on_finding(void *ctx, const struct store_finding *f)
{
    struct check *c = ctx;

    if (c->json)
        finding_json(c, f);
    else
        finding_text(c, f);
    return true;
}

/* ---- afterwards ---------------------------------------------------------------------------- */

static void summary_text(struct check *c, const struct store_checked *r)
{
    struct buf *b = &c->line;

    buf_reset(b);
    text_things(b, r->parts, "part", "parts");
    buf_cstr(b, ", ");
    text_things(b, r->blocks, "block", "blocks");
    buf_cstr(b, ", ");
    text_things(b, r->rows, "row", "rows");
    buf_cstr(b, ", ");
    text_things(b, r->journals, "journal", "journals");
    buf_cstr(b, ", ");
    text_things(b, r->batches, "batch", "batches");
    buf_cstr(b, ": ");
    text_things(b, r->findings, "finding", "findings");
    buf_chr(b, '\n');
    if (r->beside)
        buf_cstr(b, "A server has it open: its parts were checked, not its catalog, dictionaries "
                    "and journals.\n");
    (void)fwrite(b->p, 1, b->n, stdout);
}

static void json_number(struct json_out *j, const char *key, uint64_t v)
{
    json_key(j, key);
    json_u64(j, v);
}

static void summary_json(struct check *c, const struct store_checked *r)
{
    struct json_out *j = &c->out;

    json_array_end(j);
    json_key(j, "sound");
    json_bool(j, r->findings == 0);
    json_key(j, "beside_server");
    json_bool(j, r->beside);
    json_number(j, "parts", r->parts);
    json_number(j, "blocks", r->blocks);
    json_number(j, "rows", r->rows);
    json_number(j, "journals", r->journals);
    json_number(j, "batches", r->batches);
    json_number(j, "bytes", r->bytes);
    json_object_end(j);
    buf_chr(&c->found, '\n');
    (void)fwrite(c->found.p, 1, c->found.n, stdout);
}

static int run(struct check *c, struct err *err)
{
    const struct store_check_conf conf = {
        .dir = c->dir, .depth = c->depth, .finding = on_finding, .progress = on_progress, .ctx = c};
    struct store_checked checked;
    int r;

    json_init(&c->out, &c->found);
    json_object_begin(&c->out);
    json_key(&c->out, "findings");
    json_array_begin(&c->out);
    r = store_check(&conf, &checked, err);
    clear_progress(c);
    if (r < 0)
        return r;
    if (c->json)
        summary_json(c, &checked);
    else
        summary_text(c, &checked);
    if (c->found.failed)
        return err_set(err, -E2BIG, "more findings than %d MiB", LINES_MAX >> 20);
    return fflush(stdout) == 0 ? r : err_set(err, -EIO, "standard output cannot be written");
}

int cli_check(int argc, char **argv)
{
    const struct argp argp = {.options = options,
                              .parser = parse,
                              .args_doc = "DIR",
                              .doc =
                                  "Is a store sound? One line per finding: file, table, row, what, "
                                  "and the time that cannot be answered for. Changes nothing. "
                                  "Exit status: 0 sound, 1 damage, 2 it could not be found out."};
    struct check c = {.depth = STORE_CHECK_FULL, .tty = isatty(STDERR_FILENO) == 1};
    struct err err = {};
    int r;

    if (argp_parse(&argp, argc, argv, 0, NULL, &c) != 0) // NOLINT(concurrency-mt-unsafe)
        return CLI_TROUBLE;
    buf_init(&c.line, LINES_MAX);
    buf_init(&c.found, LINES_MAX);
    r = run(&c, &err);
    buf_deinit(&c.line);
    buf_deinit(&c.found);
    return r < 0 ? cli_fail(&err) : r == 0 ? CLI_OK : CLI_DAMAGE;
}
