// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/str.h"
#include "base/time.h"

/*
 * What the verbs of `strata` share. Exit status: 0 done; 2 usage, no server, or an answer that is
 * an error. One thread.
 */
enum {
    CLI_OK = 0,
    CLI_DAMAGE = 1, /* of `strata check` */
    CLI_TROUBLE = 2,
};

/* Options that every verb which asks a server takes; strings are argv's or the environment's. */
struct cli_server {
    const char *url;        /* --server, STRATA_SERVER, else http://127.0.0.1:4040 */
    const char *token_file; /* --token-file, STRATA_TOKEN_FILE, else NULL */
};

enum {
    CLI_FILTERS_MAX = 16,
};

struct cli_ask {
    struct cli_server server;
    const char *q, *from, *to; /* q NULL: cpu */
    const char *step, *names;  /* NULL: as the server does */
    size_t n_filter;
    const char *filter[CLI_FILTERS_MAX];
    bool json;
};

/* argp keys of the shared options, for a verb's own argp to hand over as a child. */
struct argp;
extern const struct argp cli_ask_argp;    /* input: struct cli_ask * */
extern const struct argp cli_server_argp; /* the same without what is asked for */

/* Defaults from the environment. */
void cli_ask_init(struct cli_ask *a);

/* "strata: TEXT" on stderr; returns CLI_TROUBLE. */
int cli_fail(const struct err *err);

/* The verbs: argv[0] is "strata VERB". Return the exit status. */
int cli_top(int argc, char **argv);
int cli_flame(int argc, char **argv);
int cli_check(int argc, char **argv);
int cli_store(int argc, char **argv);
int cli_diff(int argc, char **argv);
int cli_agent(int argc, char **argv);
int cli_backup(int argc, char **argv);
int cli_dump(int argc, char **argv);
int cli_validate(int argc, char **argv);
int cli_record(int argc, char **argv);
int cli_view(int argc, char **argv);
int cli_import(int argc, char **argv);
int cli_export(int argc, char **argv);

/* ---- client.c ------------------------------------------------------------------------------ */

/* Parameters of a query, percent-encoded as they are added. */
void cli_param(struct buf *query, const char *name, struct str value);

/* All of a; a selector that names no type gets "cpu". */
void cli_params_ask(struct buf *query, const struct cli_ask *a);
/* A selector, completed like that. */
void cli_param_selector(struct buf *query, const char *name, const char *q);
/* Filters and names of a, without the rest. */
void cli_params_shape(struct buf *query, const struct cli_ask *a);

/*
 * GET url/path?query. out gets the body of a 200, at most its cap.
 *   errors   -EPERM token file or token over plain HTTP to another machine; -ECONNREFUSED no
 * server; -EIO anything else of the network; -EREMOTEIO the server answered with an error, whose
 *            code and text are in err
 */
[[nodiscard]] int cli_get(const struct cli_server *s, const char *path, const struct buf *query,
                          struct buf *out, struct err *err);
/* The same by POST, without a body: asks the server to do something, for as long as it takes. */
[[nodiscard]] int cli_post(const struct cli_server *s, const char *path, const struct buf *query,
                           struct buf *out, struct err *err);

/* Set by a signal handler: transfers end at once. */
extern volatile sig_atomic_t cli_stop;

/*
 * One body of a capture file to /api/v1/batch. 0, or CLI_DUPLICATE: it was there. *ret_rejected:
 * rows that the server did not take.
 *   errors   as cli_get(); -EAGAIN later again, after *ret_wait_ns (0: not said)
 */
enum {
    CLI_DUPLICATE = 1
};
[[nodiscard]] int cli_send_batch(const struct cli_server *s, struct str body,
                                 uint64_t *ret_rejected, int64_t *ret_wait_ns, struct err *err);

/* ---- export.c ------------------------------------------------------------------------------ */

/* The format of /export by a file's name, NULL: it says none. "strata" is one, too. */
const char *cli_format_of(const char *file);
/* By its word on the command line, NULL: there is none. */
const char *cli_format_named(const char *word);
/* To a file ("-", NULL: standard output), whole or not at all; under sudo it is the caller's. */
[[nodiscard]] int cli_write_file(const char *path, struct str s, struct err *err);
/* GET /export of what the query asks for, to a file. */
[[nodiscard]] int cli_export_to(const struct cli_server *s, struct buf *query, const char *format,
                                const char *file, struct err *err);
