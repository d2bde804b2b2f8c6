// SPDX-License-Identifier: Apache-2.0
#include <argp.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/record_private.h"

enum {
    OPT_CHILDREN = 256,
    OPT_NO_CHILDREN,
    OPT_NATIVE,
    OPT_NO_NATIVE,
    OPT_SERVICE,
    OPT_SERVER,
    OPT_NO_SERVER,
    OPT_TOKEN_FILE,
    RATE_DEFAULT = 999,
};

static const struct argp_option options[] = {
    {NULL, 0, NULL, 0, "What to record:", 1},
    {"pid", 'p', "PID", 0,
     "this process and its children, instead of a command; repeatable. As the caller numbers them",
     1},
    {"duration", 'd', "TIME", 0,
     "end after so long: 500ms, 30s, 5m; a bare number is seconds. Default: when the command or all "
     "processes end, or at Ctrl-C",
     1},
    {"rate", 'r', "HZ", 0, "samples per second of CPU time, 1 to 9999; default 999", 1},
    {NULL, 'F', "HZ", OPTION_ALIAS, NULL, 1},
    {"types", 't', "LIST", 0,
     "profile types beside cpu, by commas: gil_held, offcpu, runq, gil_wait; default: all that are "
     "there. A file of one type holds the first of them, else cpu; a .strata file holds all",
     1},
    {"type", 0, "LIST", OPTION_ALIAS, NULL, 1},
    {"no-children", OPT_NO_CHILDREN, NULL, 0, "leave out what is forked", 1},
    {"children", OPT_CHILDREN, NULL, 0, "follow it, the default", 1},
    {"no-native", OPT_NO_NATIVE, NULL, 0,
     "leave native and kernel frames out of summary, link and file; a capture file has them", 1},
    {"native", OPT_NATIVE, NULL, 0, "show them, the default", 1},
    {"label", 'l', "NAME=VALUE", 0,
     "a label of every series of this capture, for `strata diff` and selectors; repeatable", 1},
    {"service", OPT_SERVICE, "NAME", 0, "the same as -l service=NAME", 1},
    {NULL, 0, NULL, 0, "Where it goes:", 2},
    {"output", 'o', "FILE", 0,
     ".strata .pb.gz .pprof .folded .collapsed .txt .speedscope.json .svg .json say the format "
     "(.txt is folded, the report is -f text); - is "
     "standard output, and needs -f",
     2},
    {"format", 'f', "FORMAT", 0,
     "strata, pprof, folded, speedscope, svg, text or json, whatever FILE is called", 2},
    {"server", OPT_SERVER, "URL", 0,
     "send it there, as it is taken; default: STRATA_SERVER, without -o", 2},
    {"no-server", OPT_NO_SERVER, NULL, 0,
     "no server, and none of our own is left running; without -o the summary is all that is left",
     2},
    {"token-file", OPT_TOKEN_FILE, "FILE", 0,
     "the server's token, mode 0600; default: STRATA_TOKEN_FILE", 2},
    {"quiet", 'q', NULL, 0, "no progress line, no summary", 2},
    {},
};

static const char doc[] =
    "One capture of a command, or of running processes, with their children.\v"
    "  strata record -- ./a.out 3            summary and a link to the flame graph\n"
    "  strata record -o a.svg -- ./a.out 3   a flame graph as a file\n"
    "  strata record -p 4711 -d 10s -o a.pb.gz\n\n"
    "The command keeps its standard streams, its environment and, under sudo, its user. Its exit "
    "status is ours. While it runs a line a second says what was taken, where standard error is a "
    "terminal; at the end a summary stands there: CPU time as the kernel measured it, as profiled, "
    "as lost; how long it took, what the other types add up to, each by itself; the ten functions "
    "with the most time of their own; incomplete stacks by reason.\n\n"
    "Without -o the capture goes to the server of --server or STRATA_SERVER, which must answer; "
    "else to a server at http://127.0.0.1:4040, if one answers; else, on a terminal, to a server of "
    "its own, which serves it until Ctrl-C and keeps it in ~/.local/state/strata; else it is left as "
    "strata-NAME-TIME.strata in this directory. With -o it goes to the file, and to a server only "
    "if --server names one.\n\n"
    "The first Ctrl-C ends the recording and writes what was taken, a second one stops the writing "
    "and leaves FILE.partial, which `strata view` opens. The command is never killed: if it goes "
    "on, it is waited for.\n\n"
    "Rights: as root or with sudo eBPF samples, kernel stacks included. Without rights your own "
    "processes are sampled, at 99 Hz unless -r says more, in user mode only: time in the kernel is "
    "said to be lost. Where not even that is allowed, a table says what is missing.\n\n"
    "Exit status: the command's own, 128 + N where signal N ended it; 0 with -p; 125 trouble of "
    "ours: rights, options, nothing written; 126 the command cannot be executed; 127 it was not "
    "found.";

// NOLINTBEGIN(concurrency-mt-unsafe): argp, getenv and exit: one thread
static void pass(struct record *r, const char *option, const char *value,
                 const struct argp_state *state)
{
    char *text;

    if (r->n_pass >= RECORD_ARGS - 16)
        argp_error(state, "too many options");
    if (asprintf(&text, "%s%s", option, value ? value : "") < 0)
        abort();
    r->pass[r->n_pass++] = text;
}

static void settle(struct record *r, const struct argp_state *state)
{
    if (r->cmd && r->pid)
        argp_error(state, "-p and a command exclude each other");
    if (!r->cmd && !r->pid)
        argp_error(state, "nothing to record: say -- COMMAND [ARGUMENT...], or -p PID");
    if (r->no_server && r->server_named)
        argp_error(state, "--server and --no-server exclude each other");
    if (!r->file && r->format)
        argp_error(state, "-f says how -o FILE is written: say -o");
    if (!r->file)
        return;
    if (!r->format)
        r->format = cli_format_of(r->file);
    if (!r->format && strcmp(r->file, "-") == 0)
        argp_error(state, "-o - needs -f strata, pprof, folded, speedscope, svg, text or json");
    if (!r->format)
        argp_error(state,
                   "%s ends in none of .strata .pb.gz .pprof .folded .collapsed .txt .json "
                   ".speedscope.json .svg: say -f FORMAT",
                   r->file);
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct record *r = state->input;

    switch (key) {
    case 'p':
        r->pid = r->pid ? r->pid : arg;
        pass(r, "--pid=", arg, state);
        return 0;
    case 'd':
        pass(r, "--duration=", arg, state);
        return 0;
    case 'r':
    case 'F':
        if (!str_u64(str_c(arg), &r->rate) || r->rate < 1 || r->rate > 9999)
            argp_error(state, "-r is 1 to 9999, not \"%s\"", arg);
        pass(r, "--rate=", arg, state);
        return 0;
    case 't':
        (void)snprintf(r->type, sizeof r->type, "%.*s", (int)strcspn(arg, ","), arg);
        pass(r, "--types=", arg, state);
        return 0;
    case OPT_CHILDREN:
    case OPT_NO_CHILDREN:
        pass(r, key == OPT_CHILDREN ? "--children" : "--no-children", NULL, state);
        return 0;
    case OPT_NATIVE:
    case OPT_NO_NATIVE:
        r->no_native = key == OPT_NO_NATIVE;
        return 0;
    case 'l':
        pass(r, "--label=", arg, state);
        return 0;
    case OPT_SERVICE:
        pass(r, "--service=", arg, state);
        return 0;
    case 'o':
        r->file = arg;
        return 0;
    case 'f':
        r->format = cli_format_named(arg);
        if (!r->format)
            argp_error(state,
                       "-f is strata, pprof, folded, speedscope, svg, text or json, not \"%s\"",
                       arg);
        return 0;
    case OPT_SERVER:
        r->server.url = arg;
        r->server_named = true;
        return 0;
    case OPT_NO_SERVER:
        r->no_server = true;
        return 0;
    case OPT_TOKEN_FILE:
        r->server.token_file = arg;
        return 0;
    case 'q':
        r->quiet = true;
        pass(r, "--quiet", NULL, state);
        return 0;
    case ARGP_KEY_ARGS:
        r->cmd = state->argv + state->next;
        return 0;
    case ARGP_KEY_SUCCESS:
        settle(r, state);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp argp = {
    .options = options, .parser = parse, .args_doc = "-- COMMAND [ARGUMENT...]", .doc = doc};

/* ---- the agent ----------------------------------------------------------------------------- */

/* Its arguments: what we were given, where to write, what to run. */
static char **agent_args(struct record *r, char *program, int done)
{
    static char *args[RECORD_ARGS];
    static char fd[32], name[160], capture[PROGRAM_PATH + 16], token[PROGRAM_PATH + 16];
    static char verb[] = "record", dashes[] = "--";
    size_t n = 0, n_cmd = 0;
    char **all;

    (void)snprintf(fd, sizeof fd, "--done-fd=%d", done);
    (void)snprintf(name, sizeof name, "--name=%s", r->name);
    (void)snprintf(capture, sizeof capture, "--capture=%s", r->capture);
    args[n++] = program;
    args[n++] = verb;
    for (int i = 0; i < r->n_pass; i++)
        args[n++] = r->pass[i];
    args[n++] = fd;
    args[n++] = name;
    args[n++] = capture;
    if (r->shared && r->server.token_file && r->server.token_file[0]) {
        (void)snprintf(token, sizeof token, "--token-file=%.4000s", r->server.token_file);
        args[n++] = token;
    }
    if (!r->cmd)
        return args;
    args[n++] = dashes;
    while (r->cmd[n_cmd])
        n_cmd++;
    all = calloc(n + n_cmd + 1, sizeof *all);
    if (!all)
        abort();
    memcpy(all, args, n * sizeof *all);
    memcpy(all + n, r->cmd, n_cmd * sizeof *all);
    return all;
}

/* The agent runs in our process group: the terminal's Ctrl-C reaches it and the command at once. */
static pid_t start_agent(struct record *r, int *ret_done, struct err *err)
{
    static char program[PROGRAM_PATH];
    int done[2];
    pid_t pid;

    program_find("strata-agent", program);
    if (pipe2(done, O_CLOEXEC) < 0)
        return err_set(err, -errno, "pipe: %s", strerrordesc_np(errno));
    pid = fork();
    if (pid == 0) {
        char **args = agent_args(r, program, done[1]);

        (void)signal(SIGPIPE, SIG_DFL); /* as we found it: the command is given it */
        (void)fcntl(done[1], F_SETFD, 0);
        if (r->server.url)
            (void)setenv("STRATA_RECORD_URL", r->server.url, 1);
        (void)execvp(program, args);
        (void)fprintf(stderr, "strata: %s: %s\n", program, strerrordesc_np(errno));
        _exit(RECORD_OURS);
    }
    (void)close(done[1]);
    *ret_done = done[0];
    return pid < 0 ? err_set(err, -errno, "fork: %s", strerrordesc_np(errno)) : pid;
}
// NOLINTEND(concurrency-mt-unsafe)

/* One byte: the capture is whole. */
static bool wait_done(int fd)
{
    char byte;
    ssize_t n;

    do
        n = read(fd, &byte, 1);
    while (n < 0 && errno == EINTR);
    (void)close(fd);
    return n == 1;
}

static int wait_agent(pid_t pid)
{
    int status;

    while (waitpid(pid, &status, 0) < 0) {
        if (errno != EINTR)
            return RECORD_OURS;
    }
    program_signals_to = 0;
    if (WIFEXITED(status))
        return WEXITSTATUS(status);
    if (program_signals)
        (void)fprintf(stderr, "strata: interrupted before anything was recorded\n");
    else
        (void)fprintf(stderr, "strata: strata-agent was ended by signal %d\n", WTERMSIG(status));
    return RECORD_OURS;
}

/* A signal while the results are made stops that: transfers look at cli_stop. */
static void stop_on_signal(int sig)
{
    (void)sig;
    program_signals++;
    cli_stop = 1;
}

static void let_signals_stop(void)
{
    struct sigaction a = {.sa_handler = stop_on_signal};

    (void)sigemptyset(&a.sa_mask);
    (void)sigaction(SIGINT, &a, NULL);
    (void)sigaction(SIGTERM, &a, NULL);
    (void)sigaction(SIGHUP, &a, NULL);
}

static void serve(struct record *r)
{
    int since = program_signals;

    if (!r->live.pid || cli_stop)
        return;
    (void)fprintf(stderr, "Ctrl-C ends.\n");
    (void)program_wait_signal(r->live.pid, since);
}

static int fail(const struct err *err)
{
    (void)cli_fail(err);
    return RECORD_OURS;
}

static int run(struct record *r)
{
    struct err err = {};
    int done = -1, code, result;
    pid_t agent;

    if (r->live.pid && !r->quiet)
        (void)fprintf(stderr, "live at %s/?v=1&q=cpu&from=now-15m\n", r->live.url);
    agent = start_agent(r, &done, &err);
    if (agent < 0)
        return fail(&err);
    program_signals_to = agent;
    if (!wait_done(done)) {
        code = wait_agent(agent);
        if (code == RECORD_OURS)
            record_leave_partial(r);
        else /* the command could not be executed */
            (void)unlink(r->capture);
        return code;
    }
    let_signals_stop();
    result = record_deliver(r, &err);
    if (result < 0) {
        (void)cli_fail(&err);
        record_leave_partial(r);
    }
    code = wait_agent(agent); /* the command may go on */
    serve(r);
    return result < 0 ? RECORD_OURS : code;
}

int cli_record(int argc, char **argv)
{
    static struct record r = {.rate = RATE_DEFAULT, .type = "cpu"};
    struct cli_ask defaults;
    struct err err = {};
    const char *env;
    int code;

    // NOLINTBEGIN(concurrency-mt-unsafe): one thread
    argp_err_exit_status = RECORD_OURS;
    cli_ask_init(&defaults);
    r.server = defaults.server;
    if (argp_parse(&argp, argc, argv, ARGP_IN_ORDER, NULL, &r) != 0)
        return RECORD_OURS;
    env = getenv("STRATA_SERVER");
    // NOLINTEND(concurrency-mt-unsafe)
    r.server_named = r.server_named || (env && env[0] && !r.file && !r.no_server);
    program_catch_signals();
    code = record_prepare(&r, &err) < 0 ? fail(&err) : run(&r);
    private_stop(&r.live);
    program_remove_tree(r.tmp);
    return code;
}
