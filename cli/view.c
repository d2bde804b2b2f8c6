// SPDX-License-Identifier: Apache-2.0
#include <argp.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/capture.h"
#include "cli/local.h"
#include "cli/text.h"

enum {
    OPT_NO_OPEN = 256,
};

struct view {
    const char *file;
    bool no_open;
};

static const struct argp_option options[] = {
    {"no-open", OPT_NO_OPEN, NULL, 0, "print the address, open no browser", 0},
    {},
};

// NOLINTBEGIN(concurrency-mt-unsafe): argp, getenv and exit: one thread
static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct view *v = state->input;

    switch (key) {
    case OPT_NO_OPEN:
        v->no_open = true;
        return 0;
    case ARGP_KEY_ARG:
        if (v->file)
            argp_error(state, "one FILE at a time; unexpected argument \"%s\"", arg);
        v->file = arg;
        return 0;
    case ARGP_KEY_END:
        if (!v->file)
            argp_error(state, "FILE is missing");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* With xdg-open where there is a display; whether a browser comes is not ours to know. */
static void open_browser(const struct buf *link)
{
    const char *x = getenv("DISPLAY"), *w = getenv("WAYLAND_DISPLAY");
    char program[] = "xdg-open", *args[] = {program, link->p, NULL};
    pid_t pid;

    if ((!x || !x[0]) && (!w || !w[0]))
        return;
    pid = fork();
    if (pid == 0) {
        int null = open("/dev/null", O_RDWR | O_CLOEXEC);

        (void)setpgid(0, 0);
        if (null < 0 || dup2(null, 0) < 0 || dup2(null, 1) < 0 || dup2(null, 2) < 0 ||
            !program_drop())
            _exit(127);
        (void)execvp(program, args);
        _exit(127);
    }
}
// NOLINTEND(concurrency-mt-unsafe)

static int show(const struct view *v, struct private *p, struct err *err)
{
    const struct cli_server server = {.url = p->url};
    struct capture_sent c;
    struct capture_view at;
    struct buf link, line;
    int r = capture_send(&server, v->file, &c, err);

    if (r < 0) {
        capture_sent_free(&c);
        return r;
    }
    buf_init(&link, 64 << 10);
    buf_init(&line, 64 << 10);
    if (!c.stored && !c.duplicate) {
        r = err_set(err, -ENODATA, "%.100s holds no samples%s%s", v->file, c.cut ? ": " : "",
                    c.cut ? c.cut : "");
        capture_sent_free(&c);
        return r;
    }
    capture_view(&c, STR("cpu"), &at);
    capture_link(&link, p->url, &at, NULL);
    capture_describe(&c, &line);
    (void)fprintf(stderr, "%.*s\n", STR_ARG(buf_view(&line)));
    (void)printf("%.*s\n", STR_ARG(buf_view(&link)));
    (void)fflush(stdout);
    (void)fprintf(stderr, "Ctrl-C ends.\n");
    buf_chr(&link, '\0');
    if (!v->no_open && !program_signals)
        open_browser(&link);
    if (!program_wait_signal(p->pid, 0))
        r = err_set(err, -1, "stratad has ended");
    buf_deinit(&link);
    buf_deinit(&line);
    capture_sent_free(&c);
    return r;
}

int cli_view(int argc, char **argv)
{
    const struct argp argp = {
        .options = options,
        .parser = parse,
        .args_doc = "FILE.strata",
        .doc = "Opens a capture file of `strata record` in a server of its own: prints the address "
               "of its page on standard output, opens a browser where there is a display, and "
               "serves until Ctrl-C. The file is only read; nothing is left behind.\v"
               "The server listens on loopback, at a free port, below a secret path, so that other "
               "users of this machine cannot read it. A file whose recording was not finished is "
               "shown as far as it goes, and that is said. Exit status: 0 ended by a signal, 2 it "
               "could not be shown."};
    struct view v = {};
    struct private p = {};
    struct capture f;
    struct err err = {};
    int r;

    if (argp_parse(&argp, argc, argv, 0, NULL, &v) != 0) // NOLINT(concurrency-mt-unsafe)
        return CLI_TROUBLE;
    if (capture_open(&f, v.file, &err) < 0) /* before a server is started for it */
        return cli_fail(&err);
    capture_close(&f);
    program_catch_signals();
    r = private_start(&p, &err);
    if (r == 0)
        r = show(&v, &p, &err);
    private_stop(&p);
    return r < 0 ? cli_fail(&err) : CLI_OK;
}
