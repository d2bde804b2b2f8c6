// SPDX-License-Identifier: Apache-2.0
#include <argp.h>
#include <errno.h>
#include <jansson.h>
#include <stdio.h>

#include "cli/cli.h"
#include "cli/text.h"

enum {
    ANSWER_MAX = 64 << 10,
};

struct backup {
    struct cli_ask ask;
    const char *name;
};

// NOLINTBEGIN(concurrency-mt-unsafe): argp and exit, before any thread
static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct backup *b = state->input;

    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &b->ask;
        return 0;
    case ARGP_KEY_ARG:
        if (b->name)
            argp_error(state, "unexpected argument \"%s\"", arg);
        b->name = arg;
        return 0;
    case ARGP_KEY_END:
        if (!b->name)
            argp_error(state, "NAME is missing");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}
// NOLINTEND(concurrency-mt-unsafe)

/* "/srv/backup/monday: 12.3 MiB, all batches up to 4711" */
static int say(struct str answer, struct err *err)
{
    json_t *root = json_loadb(answer.p ? answer.p : "", answer.n, 0, NULL);
    const json_t *path = json_object_get(root, "path"), *lsn = json_object_get(root, "lsn");
    const json_t *bytes = json_object_get(root, "bytes");
    uint64_t n = 0;
    struct buf b;
    int r = 0;

    if (!json_is_string(path) || !json_is_string(lsn)) {
        json_decref(root);
        return err_set(err, -EIO, "the server's answer is not understood");
    }
    buf_init(&b, ANSWER_MAX);
    text_name(&b, (struct str){json_string_value(path), json_string_length(path)});
    buf_cstr(&b, ": ");
    if (str_u64(str_c(json_string_value(bytes)), &n)) {
        text_value(&b, STR(""), STR("bytes"), (double)n);
        buf_cstr(&b, ", ");
    }
    buf_cstr(&b, "all batches up to ");
    text_name(&b, str_c(json_string_value(lsn)));
    buf_chr(&b, '\n');
    if (fwrite(b.p, 1, b.n, stdout) != b.n || fflush(stdout) != 0)
        r = err_set(err, -EIO, "standard output cannot be written");
    buf_deinit(&b);
    json_decref(root);
    return r;
}

int cli_backup(int argc, char **argv)
{
    const struct argp_child children[] = {{&cli_server_argp, 0, NULL, 0}, {}};
    const struct argp argp = {
        .parser = parse,
        .args_doc = "NAME",
        .children = children,
        .doc = "A coherent copy of the running store, as a new directory NAME below the server's "
               "storage.backup_dir."};
    struct backup b = {};
    struct err err = {};
    struct buf query, out;
    int r;

    cli_ask_init(&b.ask);
    if (argp_parse(&argp, argc, argv, 0, NULL, &b) != 0) // NOLINT(concurrency-mt-unsafe)
        return CLI_TROUBLE;
    buf_init(&query, 64 << 10);
    buf_init(&out, ANSWER_MAX);
    cli_param(&query, "name", str_c(b.name));
    r = cli_post(&b.ask.server, "/api/v1/backup", &query, &out, &err);
    if (r == 0 && b.ask.json) {
        if (fwrite(out.p, 1, out.n, stdout) != out.n || putchar('\n') == EOF || fflush(stdout) != 0)
            r = err_set(&err, -EIO, "standard output cannot be written");
    } else if (r == 0) {
        r = say(buf_view(&out), &err);
    }
    buf_deinit(&query);
    buf_deinit(&out);
    return r < 0 ? cli_fail(&err) : CLI_OK;
}
