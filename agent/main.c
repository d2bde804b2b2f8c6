// SPDX-License-Identifier: Apache-2.0
#include <argp.h>
#include <errno.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/apart/apart.h"
#include "agent/apart/landlock.h"
#include "agent/apart/privs.h"
#include "agent/apart/reader.h"
#include "agent/apart/sandbox.h"
#include "agent/cmd/check_pid.h"
#include "agent/cmd/cmd_dump.h"
#include "agent/cmd/record.h"
#include "agent/cmd/validate.h"
#include "agent/collect/check.h"
#include "agent/collect/collector.h"
#include "agent/collect/status.h"
#include "agent/file/procfile.h"
#include "agent/send/sender.h"
#include "base/log.h"
#include "base/time.h"

#define STATE_DIR      "/var/lib/strata-agent"
#define STOP_WAIT_NS   (5 * NS_PER_S)
#define LOCAL_INTERVAL (2 * NS_PER_S)
#define NO_BPF         77
#define STATUS_OLD_S   10 /* it is written every second */

const char *argp_program_version = "strata-agent " STRATA_VERSION;

enum {
    OPT_CONFIG = 'c',
    OPT_SET = 'o',
    OPT_STATE_DIR = 256,
    OPT_STATUS_FILE,
    OPT_SINGLE,
    OPT_USER,
    OPT_HELP_CONFIG,
    OPT_MARKDOWN,
    OPT_VERBOSE,
    OPT_PID,
    OPT_NO_BPF_LOOP,
    OPT_JSON,
};

struct args {
    struct agent_conf conf;
    const char *config, *state_dir, *status_file, *verb, *user;
    uint64_t pid;       /* of check --pid; 0: none */
    struct str set[64]; /* in order, after the file */
    size_t n_set;
    uint32_t line[CONF_OPTS_MAX];
    bool no_bpf_loop, json, single;
};

static struct args args = {.state_dir = STATE_DIR};

static struct conf conf_of(void)
{
    return (struct conf){
        .program = "strata-agent",
        .opt = agent_opts,
        .n_opt = agent_n_opts,
        .target = &args.conf,
        .more = rules_set,
        .more_ctx = args.conf.rules,
        .line = args.line,
    };
}

static const struct argp_option options[] = {
    {"config", OPT_CONFIG, "FILE", 0, "read settings from this INI file", 0},
    {NULL, OPT_SET, "SECTION.KEY=VALUE", 0, "set one setting; wins over the file", 0},
    {"state-dir", OPT_STATE_DIR, "DIR", 0, "where the agent's id is kept; " STATE_DIR, 0},
    {"status-file", OPT_STATUS_FILE, "FILE", 0,
     "JSON, rewritten every second; \"status\" in the state directory", 0},
    {"single", OPT_SINGLE, NULL, 0, "all in one process; sets privileges.processes", 0},
    {"user", OPT_USER, "USER", 0, "whom to become when started as root; sets privileges.user", 0},
    {"pid", OPT_PID, "PID", 0,
     "with check: what this process would be seen as: identity, labels, rules that match", 0},
    {"no-bpf-loop", OPT_NO_BPF_LOOP, NULL, 0,
     "for tests: walk stacks as on a kernel without bpf_loop (before 5.17)", 0},
    {"json", OPT_JSON, NULL, 0, "status: as JSON", 0},
    {"verbose", OPT_VERBOSE, NULL, 0, "log at level debug", 0},
    {"help-config", OPT_HELP_CONFIG, NULL, 0, "print all settings and end", 1},
    {"markdown-config", OPT_MARKDOWN, NULL, 0, "the same as docs/config.md", 1},
    {},
};

static void print_and_exit(int key)
{
    const struct conf c = conf_of();

    if (key == OPT_HELP_CONFIG)
        conf_print_help(&c, stdout);
    else
        conf_print_markdown(&c, stdout);
    exit(fflush(stdout) == 0 ? 0 : 1); // NOLINT(concurrency-mt-unsafe): no other thread yet
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    switch (key) {
    case OPT_CONFIG:
        args.config = arg;
        return 0;
    case OPT_SET:
        if (args.n_set == sizeof args.set / sizeof *args.set)
            // NOLINTNEXTLINE(concurrency-mt-unsafe): no other thread yet
            argp_error(state, "more than %zu settings", args.n_set);
        args.set[args.n_set++] = str_c(arg);
        return 0;
    case OPT_STATE_DIR:
        args.state_dir = arg;
        return 0;
    case OPT_STATUS_FILE:
        args.status_file = arg;
        return 0;
    case OPT_SINGLE:
        args.single = true;
        return 0;
    case OPT_USER:
        args.user = arg;
        return 0;
    case OPT_PID:
        if (!str_u64(str_c(arg), &args.pid) || args.pid == 0 || args.pid > INT32_MAX)
            // NOLINTNEXTLINE(concurrency-mt-unsafe): no other thread yet
            argp_error(state, "\"%s\" is no process id", arg);
        return 0;
    case OPT_NO_BPF_LOOP:
        args.no_bpf_loop = true;
        return 0;
    case OPT_JSON:
        args.json = true;
        return 0;
    case OPT_VERBOSE:
        log_set_level(LOG_DEBUG);
        return 0;
    case OPT_HELP_CONFIG:
    case OPT_MARKDOWN:
        print_and_exit(key);
        return 0;
    case ARGP_KEY_ARG:
        if (args.verb || (strcmp(arg, "check") != 0 && strcmp(arg, "status") != 0))
            // NOLINTNEXTLINE(concurrency-mt-unsafe): no other thread yet
            argp_error(state, "unexpected argument \"%s\"", arg);
        args.verb = arg;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp argp = {
    .options = options,
    .parser = parse,
    .args_doc = "[check | status | record ... | dump ... | validate ...]",
    .doc = "The agent of Strata: samples the CPU time of every program on this machine with eBPF "
           "and sends it to a server.\v"
           "  check    what this machine allows, row by row, with what to do;\n"
           "           ends with 0 all well, 1 degraded, 2 no BPF here, 77 not even\n"
           "           processes of one's own can be recorded;\n"
           "           with --pid: as what one process is seen\n"
           "  status   what the agent counts; ends with 1 if it has gone silent\n"
           "  record   one capture of a command or of processes; see `strata record`\n"
           "  dump     stacks of all threads of a process, now: dump --help\n"
           "  validate programs of known CPU time, stacks and steps: measured beside known\n\n"
           "Settings: --help-config."};

/* "k=v,k=v" of labels.static. */
static int check_static(const char *text, struct err *err)
{
    struct str list = str_c(text);
    struct label l;

    while (labels_next(&list, &l)) {
        if (!labels_name_ok(l.name) || l.value.n == 0 || l.value.n > LABELS_VALUE)
            return err_set(err, -EINVAL, "labels.static: \"%.*s=%.*s\" is no label",
                           STR_ARG(str_to(l.name, 40)), STR_ARG(str_to(l.value, 40)));
    }
    return 0;
}

static int set_who(struct err *err)
{
    struct agent_conf *c = &args.conf;
    struct err why = {};
    int r;

    environ_init(&c->want);
    r = environ_allow(&c->want, str_c(c->label_env), &why);
    if (r < 0)
        return err_set(err, r, "labels.env: %s", why.msg);
    TRY(check_static(c->label_static, err));
    TRY(rules_select(c->rules, c->include, c->exclude, err));
    return rules_finish(c->rules, &c->want, err);
}

static int settings_check(struct err *err)
{
    const char *m = args.conf.cmdline;
    enum lines_mode mode;

    if (strcmp(m, "masked") != 0 && strcmp(m, "exe") != 0 && strcmp(m, "off") != 0)
        return err_set(err, -EINVAL, "labels.cmdline = %.40s: must be masked, exe or off", m);
    if (strcmp(args.conf.processes, "apart") != 0 && strcmp(args.conf.processes, "single") != 0)
        return err_set(err, -EINVAL, "privileges.processes = %.40s: must be apart or single",
                       args.conf.processes);
    if (!lines_mode_of(args.conf.lines, &mode))
        return err_set(err, -EINVAL, "symbols.lines = %.40s: must be off, hot or all",
                       args.conf.lines);
    if (args.conf.ring_bytes & (args.conf.ring_bytes - 1))
        return err_set(err, -EINVAL, "cpu.ring = %llu bytes: must be a power of two",
                       (unsigned long long)args.conf.ring_bytes);
    return set_who(err);
}

static int settings_read(struct err *err)
{
    struct conf c;
    int r;

    args.conf.rules = rules_new();
    c = conf_of();
    conf_defaults(&c);
    if (args.config)
        TRY(conf_read(&c, args.config, err));
    for (size_t i = 0; i < args.n_set; i++)
        TRY(conf_set(&c, args.set[i], err));
    r = settings_check(err);
    if (r < 0)
        conf_place(&c, args.config, err);
    return r;
}

/* ---- verbs --------------------------------------------------------------------------------- */

static bool apart(void)
{
    return !args.single && strcmp(args.conf.processes, "apart") == 0;
}

/* What its other processes do. */
static apart_serve_fn *const roles[APART_ROLES] = {
    [APART_READER] = reader_serve, [APART_SENDER] = sender_serve};

/* From here on with the rights that the agent has, and nothing is forked or executed any more. The
 * rows of it go into the table. A run starts its other processes, and hands its state directory
 * over; a look only says so. */
static int restrict_rights(struct check *c, bool run, struct err *err)
{
    struct err why = {};
    struct privs p;

    privs_raise_limits();
    TRY(privs_drop(args.user ? args.user : args.conf.user, args.state_dir, run, &p, err));
    check_add(c, "user", BPF_PROBE_OK, "", p.who);
    if (!run && p.hands_over) {
        check_add(c, "state_dir", BPF_PROBE_OK, "", "root's: a run hands it over to its user");
        args.state_dir = NULL;
    }
    if (apart() && landlock_abi())
        check_add(c, "landlock", BPF_PROBE_OK, "", "");
    else if (apart())
        check_add(c, "landlock", BPF_PROBE_DEGRADED,
                  "a kernel with CONFIG_SECURITY_LANDLOCK, named in lsm= of its command line",
                  "reader and sender are held by their filters of system calls alone");
    if (run && apart()) /* from here on no process can be made */
        TRY(apart_open(roles, err));
    if (sandbox_begin(!apart(), &why) < 0)
        check_add(c, "seccomp", BPF_PROBE_DEGRADED, "allow seccomp() in the container's profile",
                  why.msg);
    else
        check_add(c, "seccomp", BPF_PROBE_OK, "", "");
    return 0;
}

static int cmd_check(void)
{
    static struct check c;
    struct check_own own;
    struct err err = {};

    if (args.pid)
        return check_pid(&args.conf, (uint32_t)args.pid, args.state_dir, stdout);
    check_own(&own);
    if (restrict_rights(&c, false, &err) < 0) {
        (void)fprintf(stderr, "strata-agent: %s\n", err.msg);
        return 1;
    }
    check_run("/proc", "/sys", args.state_dir, args.no_bpf_loop, &c);
    if (c.worst != BPF_PROBE_IMPOSSIBLE)
        check_self_test(&c, args.no_bpf_loop);
    if (c.worst == BPF_PROBE_IMPOSSIBLE)
        check_own_add(&c, &own);
    check_print(&c, stdout);
    return check_status(&c);
}

static int cmd_status(const char *file)
{
    struct err err = {};
    int64_t silent;
    struct buf b;
    int r;

    buf_init(&b, 1 << 20);
    r = file[0] == '/' ? procfile_read("", file + 1, &b, &err) : procfile_read(".", file, &b, &err);
    if (r < 0)
        (void)fprintf(stderr,
                      "strata-agent: no status: %s\n"
                      "No agent runs here, or it keeps its state elsewhere: name that folder with "
                      "--state-dir, or its file with --status-file\n",
                      err.msg);
    else if (args.json)
        (void)fwrite(b.p, 1, b.n, stdout);
    else
        status_print(buf_view(&b), stdout);
    silent = r < 0 ? -1 : status_silent_s(buf_view(&b), real_now().v);
    if (silent > STATUS_OLD_S) { /* killed, or hanging */
        (void)fprintf(stderr, "strata-agent: no word since %lld s: the agent does not run\n",
                      (long long)silent);
        r = -ESRCH;
    }
    buf_deinit(&b);
    return r < 0 ? 1 : 0;
}

/* ---- running ------------------------------------------------------------------------------- */

struct running {
    struct ids ids;
    struct spool *spool;
    struct upload *upload;
    struct batcher *batcher;
    struct collector *collector;
    struct buf token;
};

static struct spool *new_spool(const struct running *r, const struct agent_conf *c)
{
    char dir[4200] = "";
    struct spool_conf sc = {.dir = dir, .cap = c->spool_max_bytes, .max_age = c->spool_max_age_ns};

    memcpy(sc.boot, r->ids.boot, 16);
    if (c->spool_dir[0])
        (void)snprintf(dir, sizeof dir, "%.4096s", c->spool_dir);
    else if (r->ids.dir_ok)
        (void)snprintf(dir, sizeof dir, "%.4096s/spool", args.state_dir);
    else
        sc.no_dir = r->ids.why;
    return spool_new(&sc);
}

static int start_sender(struct running *r, int64_t interval, struct err *err)
{
    const struct agent_conf *c = &args.conf;
    struct upload_conf uc = {.url = c->url,
                             .token = "",
                             .ca_file = c->ca_file,
                             .insecure = c->insecure,
                             .interval_ns = interval};
    struct batchmake_conf bc = {
        .hostname = str_c(r->ids.hostname),
        .version = STR(STRATA_VERSION),
        .labels = str_c(c->label_static),
        .names = {.cache = c->symbols_cache,
                  .debug_dirs = c->debuginfo_dirs,
                  .proc = "/proc",
                  .sys = "/sys"},
        .lines = {.debug_dirs = c->debuginfo_dirs, .cache = c->symbols_cache / 4}};

    (void)lines_mode_of(c->lines, &bc.lines.mode); /* checked with the settings */
    memcpy(bc.agent, r->ids.agent, 16);
    memcpy(bc.boot, r->ids.boot, 16);
    if (c->token_file[0]) {
        TRY(ids_token(c->token_file, &r->token, err));
        uc.token = r->token.p;
    }
    r->spool = new_spool(r, c);
    TRY(upload_start(&uc, r->spool, &r->upload, err));
    return batcher_start(&bc, r->spool, &r->batcher, err);
}

static int start_collector(struct running *r, int64_t interval, const char *status,
                           const struct check *check, struct err *err)
{
    const struct collector_conf cc = {.conf = &args.conf,
                                      .ids = &r->ids,
                                      .state_dir = args.state_dir,
                                      .status_file = status,
                                      .batcher = r->batcher,
                                      .spool = r->spool,
                                      .upload = r->upload,
                                      .interval_ns = interval,
                                      .loopback = upload_url_is_loopback(args.conf.url),
                                      .no_bpf_loop = args.no_bpf_loop,
                                      .check = check};

    return collector_open(&r->collector, &cc, err);
}

static void stop(struct running *r)
{
    struct spool_stats st;

    if (r->batcher)
        batcher_stop(r->batcher); /* the last windows become a batch, */
    reader_stop();
    if (r->upload)
        upload_stop(r->upload, r->collector ? STOP_WAIT_NS : 0); /* which is sent */
    if (r->collector)
        collector_write_status(r->collector, "stopped");
    if (r->spool) {
        spool_get_stats(r->spool, &st);
        if (st.spooled)
            log_event(st.memory_batches ? LOG_WARN : LOG_INFO, "stopped",
                      LOG_U("batches_spooled", st.spooled - st.memory_batches),
                      LOG_U("batches_lost", st.memory_batches));
    }
    collector_close(r->collector);
    upload_free(r->upload);
    batcher_free(r->batcher);
    spool_free(r->spool);
    buf_deinit(&r->token);
    apart_close();
}

static void block_signals(void)
{
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    sigemptyset(&set);
    sigaddset(&set, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
}

static bool allowed(struct check *c)
{
    char reason[384];

    check_run("/proc", "/sys", args.state_dir, args.no_bpf_loop, c);
    for (uint32_t i = 0; i < c->n; i++) {
        if (c->item[i].state == BPF_PROBE_DEGRADED)
            log_event(LOG_WARN, "degraded", LOG_C("what", c->item[i].name),
                      LOG_C("why", c->item[i].why), LOG_C("remedy", c->item[i].remedy));
    }
    if (c->worst != BPF_PROBE_IMPOSSIBLE)
        return true;
    check_reason(c, reason);
    (void)fprintf(stderr, "no BPF here: %s\n", reason);
    return false;
}

static int run_agent(const char *status)
{
    bool loopback = upload_url_is_loopback(args.conf.url);
    int64_t interval = args.conf.batch_interval_ns;
    struct running r = {};
    struct err err = {};
    static struct check check;
    int code = 0;

    if (restrict_rights(&check, true, &err) < 0) {
        (void)fprintf(stderr, "strata-agent: %s\n", err.msg);
        return 1;
    }
    if (!allowed(&check))
        return NO_BPF;
    if (loopback && interval > LOCAL_INTERVAL)
        interval = LOCAL_INTERVAL;
    interval = interval / NS_PER_S * NS_PER_S; /* whole windows */
    block_signals();
    ids_load(args.state_dir, "/etc", &r.ids);
    buf_init(&r.token, 8192);
    if (apart())
        code = reader_start(0, &err);
    if (code == 0)
        code = start_sender(&r, interval, &err);
    if (code == 0)
        code =
            start_collector(&r, interval, r.ids.dir_ok ? status : args.status_file, &check, &err);
    if (code == 0 && sandbox_opened(&err) < 0) { /* the table has said that there are no filters */
        log_event(LOG_WARN, "seccomp", LOG_ERR(&err));
        err = (struct err){};
    }
    if (code == 0) {
        log_event(LOG_INFO, "sampling", LOG_C("server", args.conf.url),
                  LOG_I("period_ns", args.conf.period_ns), LOG_I("interval_ns", interval));
        code = collector_run(r.collector, &err);
    }
    stop(&r);
    if (code < 0) {
        const struct conf c = conf_of();

        conf_place(&c, args.config, &err);
        (void)fprintf(stderr, "strata-agent: %s\n", err.msg);
    }
    return code < 0 ? 1 : 0;
}

/* What is freed is given back. malloc(3) raises both thresholds with the largest array that it has
 * seen, up to 64 MiB, and each thread has a heap of its own: a symbol table that was read once
 * would be held for good, in each process. */
static void bound_heap(void)
{
    // NOLINTBEGIN(concurrency-mt-unsafe): no other thread yet
    (void)mallopt(M_MMAP_THRESHOLD, 256 << 10);
    (void)mallopt(M_TRIM_THRESHOLD, 512 << 10);
    (void)mallopt(M_ARENA_MAX, 2);
    // NOLINTEND(concurrency-mt-unsafe)
}

int main(int argc, char **argv)
{
    char status[4200];
    struct err err = {};

    log_set_name("strata-agent");
    bound_heap();
    if (argc > 1 && strcmp(argv[1], "dump") == 0) /* its own options, the caller's rights */
        return cmd_dump(argc - 1, argv + 1);
    if (argc > 1 && strcmp(argv[1], "record") == 0)
        return record_main(argc - 1, argv + 1);
    if (argc > 1 && strcmp(argv[1], "validate") == 0)
        return validate_main(argc - 1, argv + 1);
    // NOLINTNEXTLINE(concurrency-mt-unsafe): no other thread yet
    argp_parse(&argp, argc, argv, 0, NULL, NULL);
    if (settings_read(&err) < 0) {
        (void)fprintf(stderr, "strata-agent: %s\n", err.msg);
        return 1;
    }
    (void)snprintf(status, sizeof status, "%.4096s/status", args.state_dir);
    if (args.status_file)
        (void)snprintf(status, sizeof status, "%.4096s", args.status_file);
    if (args.verb && strcmp(args.verb, "status") == 0)
        return cmd_status(status);
    if (args.verb)
        return cmd_check();
    return run_agent(status);
}
