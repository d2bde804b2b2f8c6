// SPDX-License-Identifier: Apache-2.0
#include <argp.h>
#include <inttypes.h>
#include <stdio.h>

#include "cli/local.h"
#include "cli/text.h"

struct import {
    struct cli_ask ask;
    char **file;
    int n_file;
};

// NOLINTBEGIN(concurrency-mt-unsafe,readability-non-const-parameter): argp, before any thread
static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct import *m = state->input;

    (void)arg;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &m->ask;
        return 0;
    case ARGP_KEY_ARGS:
        m->file = state->argv + state->next;
        m->n_file = state->argc - state->next;
        return 0;
    case ARGP_KEY_NO_ARGS:
        argp_error(state, "FILE is missing");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}
// NOLINTEND(concurrency-mt-unsafe,readability-non-const-parameter)

static void say(const struct import *m, const char *file, const struct capture_sent *c)
{
    struct capture_view v;
    struct buf b;

    buf_init(&b, 64 << 10);
    if (m->ask.json) {
        buf_printf(&b,
                   "{\"stored\":%" PRIu64 ",\"duplicate\":%" PRIu64 ",\"rejected\":\"%" PRIu64
                   "\",\"whole\":%s}\n",
                   c->stored, c->duplicate, c->rejected, c->whole ? "true" : "false");
    } else {
        text_name(&b, str_c(file));
        buf_cstr(&b, ": ");
        capture_describe(c, &b);
        buf_printf(&b, "\n  %" PRIu64 " batches stored, %" PRIu64 " there already", c->stored,
                   c->duplicate);
        if (c->rejected)
            buf_printf(&b, ", %" PRIu64 " rows refused by the server", c->rejected);
        if (c->stored || c->duplicate) {
            buf_cstr(&b, "\n  ");
            capture_view(c, STR("cpu"), &v);
            capture_link(&b, m->ask.server.url, &v, NULL);
        }
        buf_chr(&b, '\n');
    }
    (void)fwrite(b.p, 1, b.n, stdout);
    buf_deinit(&b);
}

int cli_import(int argc, char **argv)
{
    const struct argp_child children[] = {{&cli_server_argp, 0, NULL, 0}, {}};
    const struct argp argp = {
        .parser = parse,
        .args_doc = "FILE...",
        .children = children,
        .doc = "Sends capture files of `strata record` (.strata) to a server. A batch that the "
               "server has already counts once: importing twice changes nothing.\v"
               "The server takes data up to its ingest.age (7 days by default). A file whose "
               "recording was not finished is sent as far as it goes, and that is said. Exit "
               "status: 0 all that the file holds is there; 2 not, and why is said: a record is "
               "damaged, for instance."};
    struct import m = {};
    struct err err = {};
    int status = CLI_OK;

    cli_ask_init(&m.ask);
    if (argp_parse(&argp, argc, argv, 0, NULL, &m) != 0) // NOLINT(concurrency-mt-unsafe)
        return CLI_TROUBLE;
    for (int i = 0; i < m.n_file; i++) {
        struct capture_sent c;
        int r;

        err = (struct err){};
        r = capture_send(&m.ask.server, m.file[i], &c, &err);
        if (r == 0)
            say(&m, m.file[i], &c);
        if (r < 0)
            status = cli_fail(&err);
        else if (c.rejected || c.damaged)
            status = CLI_TROUBLE;
        capture_sent_free(&c);
    }
    return fflush(stdout) == 0 ? status : CLI_TROUBLE;
}
