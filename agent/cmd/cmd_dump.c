// SPDX-License-Identifier: Apache-2.0
#include "agent/cmd/cmd_dump.h"

#include <argp.h>
#include <errno.h>
#include <stdio.h>

#include "agent/cmd/dump.h"
#include "base/buf.h"
#include "base/str.h"

#define TROUBLE  125
#define MAX_TEXT ((size_t)256 << 20)

enum {
    OPT_JSON = 256,
    OPT_NO_NATIVE,
    OPT_STOP,
};

struct args {
    uint64_t pid;
    bool json, no_native, stop;
};

static const struct argp_option options[] = {
    {"pid", 'p', "PID", 0, "the process", 0},
    {"json", OPT_JSON, NULL, 0, "one JSON object instead of text", 0},
    {"no-native", OPT_NO_NATIVE, NULL, 0, "leave frames of compiled code out", 0},
    {"stop", OPT_STOP, NULL, 0,
     "stop blocked threads, too: whole registers, but epoll_wait and a few other calls then fail "
     "with EINTR in the program",
     0},
    {},
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct args *a = state->input;

    switch (key) {
    case 'p':
        if (!str_u64(str_c(arg), &a->pid) || a->pid == 0 || a->pid > INT32_MAX)
            argp_error(state, "\"%.40s\" is no process id", arg); // NOLINT(concurrency-mt-unsafe)
        return 0;
    case OPT_JSON:
        a->json = true;
        return 0;
    case OPT_NO_NATIVE:
        a->no_native = true;
        return 0;
    case OPT_STOP:
        a->stop = true;
        return 0;
    case ARGP_KEY_END:
        if (!a->pid)
            argp_error(state, "which process? -p PID"); // NOLINT(concurrency-mt-unsafe)
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp argp = {
    .options = options,
    .parser = parse,
    .doc =
        "Prints the stacks of all threads of a process, now. Needs no privilege for processes of "
        "your own. Threads that run stand for a moment; blocked ones are not touched."};

int cmd_dump(int argc, char **argv)
{
    struct args a = {};
    struct dump_opts o = {.proc = "/proc"};
    struct err err = {};
    struct dump d;
    struct buf out;
    int r;

    argv[0] = (char[]){"strata dump"}; /* in errors and help: what was typed */
    argp_err_exit_status = TROUBLE;
    argp_parse(&argp, argc, argv, 0, NULL, &a); // NOLINT(concurrency-mt-unsafe): no other thread
    o.pid = (uint32_t)a.pid;
    o.stop = a.stop;
    buf_init(&out, MAX_TEXT);
    r = dump_take(&d, &o, &err);
    if (r == 0) {
        if (a.json)
            dump_json(&d, !a.no_native, &out);
        else
            dump_print(&d, !a.no_native, &out);
        if (fwrite(out.p, 1, out.n, stdout) != out.n || fflush(stdout) != 0)
            r = err_set(&err, -EIO, "standard output cannot be written");
    }
    if (r < 0)
        (void)fprintf(stderr, "strata dump: %s\n", err.msg);
    dump_deinit(&d);
    buf_deinit(&out);
    return r < 0 ? TROUBLE : 0;
}
