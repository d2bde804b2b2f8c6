// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "base/time.h"
#include "cli/cli.h"

/*
 * What `strata record`, `view` and `import` share: programs beside this one, a server of one's own
 * for the length of a command, capture files. One thread.
 */

/* ---- programs.c ---------------------------------------------------------------------------- */

enum {
    PROGRAM_PATH = 4096
};

/* Where a program of ours is: beside this one, in the build tree, else by PATH. */
void program_find(const char *name, char ret[static PROGRAM_PATH]);

/* In a new process: become who called sudo, if somebody did. false: it failed. */
bool program_drop(void);
/* Home directory of whoever it is for; NULL: unknown. Borrowed until the next call. */
const char *program_home(void);
/* A folder of our own in TMPDIR or /tmp, for whoever it is for. */
[[nodiscard]] int program_tmpdir(char ret[static PROGRAM_PATH], struct err *err);
void program_remove_tree(const char *dir);

/*
 * Signals that ask for the end: SIGINT, SIGTERM, SIGHUP. They are counted; those that did not come
 * from the terminal go on to the process given.
 */
void program_catch_signals(void);
extern volatile sig_atomic_t program_signals;
extern volatile pid_t program_signals_to; /* 0: nobody */
/* Sleep until there are more than since (read before anyone was told to send one), or the process
 * ends. true: a signal */
bool program_wait_signal(pid_t pid, int since);

/* ---- private.c ----------------------------------------------------------------------------- */

/*
 * A stratad of one's own, on loopback, with its data in a temporary folder. The path of its address
 * is a secret (http.base_path): other users of this machine cannot read it. It ends with us.
 */
struct private
{
    pid_t pid; /* 0: not running */
    char dir[PROGRAM_PATH];
    char url[128]; /* without a slash at the end */
};

[[nodiscard]] int private_start(struct private *p, struct err *err);
void private_stop(struct private *p); /* a no-op where it does not run */

/* ---- capture.c ----------------------------------------------------------------------------- */

/* What a capture file says of itself, and what became of its batches. */
struct capture_sent {
    json_t *about, *end; /* NULL: not there */
    uint64_t stored, duplicate, rejected;
    real_ns changed; /* when the file had last been written */
    bool damaged;    /* not all that is in it could be read */
    bool whole;      /* the recording came to its end */
    const char *cut; /* where not: why, static */
};

/*
 * Send every batch to a server, in order; one that is there already counts once. What fails for a
 * time is tried again, for about half a minute.
 *   errors   as capture_open(), capture_next() and cli_send_batch(); what was sent stays
 */
[[nodiscard]] int capture_send(const struct cli_server *s, const char *path,
                               struct capture_sent *ret, struct err *err);
void capture_sent_free(struct capture_sent *c);

/* The selector and the range that show one type of a capture and nothing else. */
struct capture_view {
    char q[512];
    char from[40], to[40];
};
void capture_view(const struct capture_sent *c, struct str type, struct capture_view *ret);
/* The page of a server that shows it. filters: NULL-terminated, or NULL */
void capture_link(struct buf *out, const char *url, const struct capture_view *v,
                  const char *const *filters);

/* "a.out, 12.3 s, 999 Hz, on host: not finished (...)": one line */
void capture_describe(const struct capture_sent *c, struct buf *out);
