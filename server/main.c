// SPDX-License-Identifier: Apache-2.0
#include <argp.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/log.h"
#include "server/app.h"

#define STOP_WAIT_NS (15 * NS_PER_S)

const char *argp_program_version = "stratad " STRATA_VERSION;

enum {
    OPT_CONFIG = 'c',
    OPT_SET = 'o',
    OPT_LISTEN = 256,
    OPT_DATA,
    OPT_UI,
    OPT_UI_DEV,
    OPT_DUMP_ROUTES,
    OPT_HELP_CONFIG,
    OPT_MARKDOWN,
    OPT_VERBOSE,
};

struct args {
    struct srv_conf conf;
    const char *config, *ui, *ui_dev;
    struct str set[64]; /* in order, after the file */
    size_t n_set;
    uint32_t line[CONF_OPTS_MAX];
    char listen[256], data[1024];
};

static struct args args;
static const struct conf table = {
    .program = "stratad", .opt = srv_opts, .n_opt = 0, .target = &args.conf, .line = args.line};

static struct conf conf_of(void)
{
    struct conf c = table;

    c.n_opt = srv_n_opts;
    return c;
}

static const struct argp_option options[] = {
    {"config", OPT_CONFIG, "FILE", 0, "read settings from this INI file", 0},
    {NULL, OPT_SET, "SECTION.KEY=VALUE", 0, "set one setting; wins over the file", 0},
    {"listen", OPT_LISTEN, "HOST:PORT", 0, "same as -o http.listen=HOST:PORT; port 0: any free one",
     0},
    {"data", OPT_DATA, "DIR", 0, "same as -o storage.dir=DIR", 0},
    {"ui", OPT_UI, "DIR", 0, "packed user interface to serve (with manifest.tsv)", 0},
    {"ui-dev", OPT_UI_DEV, "DIR", 0, "serve the sources of the user interface, read each time", 0},
    {"verbose", OPT_VERBOSE, NULL, 0, "log at level debug", 0},
    {"dump-routes", OPT_DUMP_ROUTES, NULL, 0, "print all routes and end", 1},
    {"help-config", OPT_HELP_CONFIG, NULL, 0, "print all settings and end", 1},
    {"markdown-config", OPT_MARKDOWN, NULL, 0, "the same as docs/config.md", 1},
    {},
};

static void print_and_exit(int key)
{
    const struct conf c = conf_of();
    struct buf b;

    if (key == OPT_HELP_CONFIG) {
        conf_print_help(&c, stdout);
    } else if (key == OPT_MARKDOWN) {
        conf_print_markdown(&c, stdout);
    } else {
        buf_init(&b, 1 << 20);
        app_dump_routes(&b);
        (void)fwrite(b.p, 1, b.n, stdout);
        buf_deinit(&b);
    }
    exit(fflush(stdout) == 0 ? 0 : 1); // NOLINT(concurrency-mt-unsafe): no other thread yet
}

static void set_later(struct argp_state *state, const char *assignment)
{
    if (args.n_set == sizeof args.set / sizeof args.set[0])
        argp_error(state, // NOLINT(concurrency-mt-unsafe): no other thread yet
                   "more than %zu settings", args.n_set);
    args.set[args.n_set++] = str_c(assignment);
}

// NOLINTBEGIN(concurrency-mt-unsafe): argp and exit, before any thread
static error_t parse(int key, char *arg, struct argp_state *state)
{
    switch (key) {
    case OPT_CONFIG:
        args.config = arg;
        return 0;
    case OPT_SET:
        set_later(state, arg);
        return 0;
    case OPT_LISTEN:
        (void)snprintf(args.listen, sizeof args.listen, "http.listen=%s", arg);
        set_later(state, args.listen);
        return 0;
    case OPT_DATA:
        (void)snprintf(args.data, sizeof args.data, "storage.dir=%s", arg);
        set_later(state, args.data);
        return 0;
    case OPT_UI:
        args.ui = arg;
        return 0;
    case OPT_UI_DEV:
        args.ui_dev = arg;
        return 0;
    case OPT_VERBOSE:
        log_set_level(LOG_DEBUG);
        return 0;
    case OPT_DUMP_ROUTES:
    case OPT_HELP_CONFIG:
    case OPT_MARKDOWN:
        print_and_exit(key);
        return 0;
    case ARGP_KEY_ARG:
        argp_error(state, "unexpected argument \"%s\"", arg);
        return EINVAL;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}
// NOLINTEND(concurrency-mt-unsafe)

static const struct argp argp = {
    .options = options,
    .parser = parse,
    .doc = "The server of Strata: takes profiles from agents, keeps them, answers queries, and "
           "serves the user interface.\v"
           "Settings: --help-config. On a loopback address every local user may do everything; any "
           "other address needs a token file (http.tokens).",
};

static int settings_read(struct err *err)
{
    const struct conf c = conf_of();

    conf_defaults(&c);
    if (args.config)
        TRY(conf_read(&c, args.config, err));
    for (size_t i = 0; i < args.n_set; i++)
        TRY(conf_set(&c, args.set[i], err));
    log_rate((uint32_t)args.conf.log_lines);
    return 0;
}

/* Blocked in all threads, read from a descriptor by the first. */
static int signals_open(struct err *err)
{
    sigset_t set;
    int fd;

    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGTERM);
    (void)sigaddset(&set, SIGINT);
    (void)sigaddset(&set, SIGHUP);
    (void)signal(SIGPIPE, SIG_IGN);
    (void)signal(SIGXFSZ, SIG_IGN);
    if (pthread_sigmask(SIG_BLOCK, &set, NULL) != 0)
        return err_set(err, -EINVAL, "signals cannot be blocked");
    fd = signalfd(-1, &set, SFD_CLOEXEC);
    return fd < 0 ? err_set(err, -errno, "signalfd: %s", strerrordesc_np(errno)) : fd;
}

static void reload(struct app *a)
{
    struct err err = {};

    if (app_reload(a, &err) < 0)
        log_event(LOG_ERROR, "reload_failed", LOG_ERR(&err));
    else
        log_event(LOG_INFO, "reloaded");
}

/* Until a signal says stop, or the store does not open: 0 or negative. */
static int run(struct app *a, int signals, int opened, struct err *err)
{
    struct pollfd p[2] = {{.fd = signals, .events = POLLIN}, {.fd = opened, .events = POLLIN}};

    for (;;) {
        if (poll(p, 2, -1) < 0) {
            if (errno == EINTR)
                continue;
            return err_set(err, -errno, "poll: %s", strerrordesc_np(errno));
        }
        if (p[0].revents) {
            struct signalfd_siginfo s = {};

            if (read(signals, &s, sizeof s) != sizeof s)
                continue;
            if (s.ssi_signo == SIGHUP) {
                reload(a);
                continue;
            }
            log_event(LOG_INFO, "stopping", LOG_U("signal", s.ssi_signo));
            return 0;
        }
        if (p[1].revents) {
            p[1].fd = -1;
            TRY(app_opened(a, err));
            log_event(LOG_INFO, "ready", LOG_C("address", app_address(a)),
                      LOG_C("dir", args.conf.dir));
            (void)printf("ready: http://%s%s/\n", app_address(a), args.conf.base_path);
            (void)fflush(stdout);
        }
    }
}

static int fail(struct err *err)
{
    const struct conf c = conf_of();

    conf_place(&c, args.config, err);
    (void)fprintf(stderr, "stratad: %s\n", err->msg);
    return 1;
}

int main(int argc, char **argv)
{
    const struct conf c = conf_of();
    struct err err = {};
    struct app_conf conf = {.conf = &args.conf};
    struct app *a = NULL;
    int signals, r;

    log_set_name("stratad");
    (void)umask(0077);
    if (argp_parse(&argp, argc, argv, 0, NULL, NULL) != 0) // NOLINT(concurrency-mt-unsafe)
        return 1;
    signals = settings_read(&err);
    if (signals == 0)
        signals = signals_open(&err);
    if (signals < 0)
        return fail(&err);
    conf.ui = args.ui || args.ui_dev || access(STRATA_UI_DIR, R_OK) < 0 ? args.ui : STRATA_UI_DIR;
    conf.ui_dev = args.ui_dev;
    conf.opened_fd = eventfd(0, EFD_CLOEXEC);
    if (app_start(&conf, &a, &err) < 0)
        return fail(&err);
    r = run(a, signals, conf.opened_fd, &err);
    if (r < 0)
        (void)fail(&err);
    if (!app_stop(a, STOP_WAIT_NS)) {
        log_event(LOG_WARN, "stopped_at_once",
                  LOG_C("why", "a request or the journal's reading did not end in time"));
        _exit(r < 0 ? 1 : 0);
    }
    conf_free(&c);
    if (r == 0)
        log_event(LOG_INFO, "stopped");
    return r < 0 ? 1 : 0;
}
