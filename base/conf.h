// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/err.h"
#include "base/str.h"

struct argp_child;

/*
 * One table of options per program. --help, the INI reader, the environment of tests and
 * docs/config.md come from it, so a setting is described once.
 *
 *     static struct srv_conf c;
 *     static const struct conf_opt opts[] = {
 *         {"http", "listen", CONF_STR, offsetof(struct srv_conf, listen), "127.0.0.1:4040", 0, 0,
 *          "address and port to listen on"},
 *         {"ingest", "age", CONF_DURATION, offsetof(struct srv_conf, age_ns), "7d", ...
 *
 * A duration needs a suffix (ns us ms s m h d), a size likewise (B KiB MiB GiB TiB); counts and
 * percentages have none. An unknown section or key, a missing suffix or a value out of range is an
 * error that names file, line, key, value and limit.
 * Thread: start-up, one thread. Strings are owned by the conf until conf_free().
 */
enum conf_type {
    CONF_STR,      /* char * */
    CONF_BOOL,     /* bool: on off true false yes no */
    CONF_COUNT,    /* uint64_t */
    CONF_PERCENT,  /* uint64_t */
    CONF_DURATION, /* int64_t, nanoseconds */
    CONF_SIZE,     /* uint64_t, bytes */
};

struct conf_opt {
    const char *section, *key;
    enum conf_type type;
    size_t offset;    /* of the field in the program's struct */
    const char *def;  /* as it would be written in the file; NULL: "" or 0 */
    int64_t min, max; /* both 0: no range; not for strings */
    const char *text; /* one line */
};

struct conf_pair {
    struct str section, key, value;
};

struct conf {
    const char *program;
    const struct conf_opt *opt;
    size_t n_opt;
    void *target;
    /* Asked about sections that the table does not have, such as [rule NAME]. May be NULL.
     * Texts are borrowed; where: "FILE:LINE: ", or "" of the command line. 0, CONF_NOT_MINE, or a
     * negative errno with what is wrong in err. */
    int (*more)(void *ctx, const char *where, const struct conf_pair *pair, struct err *err);
    void *more_ctx;
    uint32_t *line; /* of the file, by option; 0: not set there. CONF_OPTS_MAX of them, or NULL */
};
#define CONF_NOT_MINE 1
#define CONF_OPTS_MAX 128
/* Longer names of sections and keys are refused. */
#define CONF_NAME_MAX 48

/* Set every field to its default. Defaults that do not parse are bugs: assert. */
void conf_defaults(const struct conf *c);

/* Read an INI file. errors: -ENOENT, -EACCES, -EINVAL with "FILE:LINE: ..."; a key that is there
 * twice is one where c->line is given. */
[[nodiscard]] int conf_read(const struct conf *c, const char *path, struct err *err);

/*
 * An error in a value that was found after the file had been read: where its text begins with a
 * "section.key" that this file has set (c->line), "FILE:LINE: " is put before it.
 */
void conf_place(const struct conf *c, const char *path, struct err *err);

/* "section.key=value", as given to -o on the command line. */
[[nodiscard]] int conf_set(const struct conf *c, struct str assignment, struct err *err);

/* All options as text for --help-config, or as the table of docs/config.md. */
void conf_print_help(const struct conf *c, FILE *to);
void conf_print_markdown(const struct conf *c, FILE *to);

void conf_free(const struct conf *c);

/* Parse one value with its suffix; also for command lines. */
[[nodiscard]] int conf_duration(struct str s, int64_t *ret_ns, struct err *err);
[[nodiscard]] int conf_size(struct str s, uint64_t *ret, struct err *err);
