// SPDX-License-Identifier: Apache-2.0
/*
 * The life of a capture: everything samples before the command is forked; it is watched before it
 * is executed; the end is its end, a signal, or --duration. Then the last drain, the last batch,
 * the capture file's last record. The command is never killed by us: if it still runs, it is waited
 * for, since its status is ours.
 */
#include "agent/cmd/record.h"

#include <argp.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

#include "agent/cmd/record_private.h"
#include "agent/file/procfile.h"
#include "base/conf.h"
#include "base/log.h"
#include "base/thread.h"

#define STATE_DIR   "/var/lib/strata-agent"
#define INTERVAL_NS NS_PER_S       /* of batches */
#define GRACE_NS    (5 * NS_PER_S) /* for the command, after the first signal */
#define SEND_NS     (10 * NS_PER_S)
#define SPOOL_BYTES (UINT64_C(64) << 20)
#define TRACKED     1024
#define RATE_MAX    9999
#define RECORDED                                                                                   \
    (1U << PTYPE_CPU | 1U << PTYPE_GIL_HELD | 1U << PTYPE_OFFCPU | 1U << PTYPE_RUNQ |              \
     1U << PTYPE_GIL_WAIT)

/* A process whose clock is read beside its samples. */
struct tracked {
    uint32_t tgid;
    uint64_t serial;
    int64_t base, last; /* ns of CPU: before us, and at the last look */
    bool gone;
};

struct record {
    struct record_opts o;
    struct record_before before;
    struct agent_conf conf;
    struct ids ids;
    struct buf token;
    struct spool *spool;
    struct upload *upload;
    struct batcher *batcher;
    struct record_taker taker;
    struct record_file file;
    struct record_child child;
    struct tracked track[TRACKED];
    uint32_t n_track;
    bool track_full;
    int signals; /* signalfd */
    unsigned n_signal;
    int64_t begun, ended, until, told; /* CLOCK_MONOTONIC; until 0: open */
    real_ns from;
    bool aborted, progress;
};

/* ---- measured beside profiled -------------------------------------------------------------- */

static void track(struct record *r, uint32_t tgid, uint64_t serial, bool from_birth)
{
    int64_t now = process_cpu_ns((pid_t)tgid);

    if (r->n_track == TRACKED) {
        r->track_full = true;
        return;
    }
    r->track[r->n_track++] = (struct tracked){.tgid = tgid,
                                              .serial = serial,
                                              .base = from_birth || now < 0 ? 0 : now,
                                              .last = now < 0 ? 0 : now,
                                              .gone = now < 0};
}

static struct tracked *tracked_of(struct record *r, const struct proc *p)
{
    for (uint32_t i = 0; i < r->n_track; i++) {
        struct tracked *t = &r->track[i];

        if (t->serial == p->serial || (!t->serial && t->tgid == p->tgid)) {
            t->serial = p->serial; /* given by its number before it was known */
            return t;
        }
    }
    return NULL;
}

/* Clocks of all that had a sample: children that came and went between two looks without one had
 * less than a tick. */
static void look_at_clocks(struct record *r)
{
    struct proc_table *procs = record_take_procs(&r->taker);

    for (struct proc *p = proc_next(procs, NULL); p; p = proc_next(procs, p)) {
        if (p->profiled_ns > 0 && !tracked_of(r, p))
            track(r, p->tgid, p->serial, true);
    }
    for (uint32_t i = 0; i < r->n_track; i++) {
        struct tracked *t = &r->track[i];
        int64_t now = t->gone ? -1 : process_cpu_ns((pid_t)t->tgid);

        if (now < t->last) /* gone, or its number is another's */
            t->gone = true;
        else
            t->last = now;
    }
}

static int64_t usage_ns(const struct rusage *u)
{
    return (u->ru_utime.tv_sec + u->ru_stime.tv_sec) * NS_PER_S +
           (u->ru_utime.tv_usec + u->ru_stime.tv_usec) * NS_PER_US;
}

static int64_t measured(const struct record *r)
{
    int64_t sum = 0;

    if (r->o.cmd && r->child.ended)
        return r->o.children ? usage_ns(&r->child.usage) : r->child.clock_ns;
    if (r->track_full || (r->o.cmd && !r->o.duration_ns)) /* nobody looked all along */
        return -1;
    for (uint32_t i = 0; i < r->n_track; i++)
        sum += r->track[i].last - r->track[i].base;
    return sum;
}

/* ---- every turn ---------------------------------------------------------------------------- */

static bool pids_alive(struct record *r)
{
    bool alive = false;

    for (uint32_t i = 0; i < r->o.n_pid; i++)
        alive = !r->track[i].gone || alive;
    return alive;
}

/* The first signal asks for the end, the second one for it at once. */
static void take_signals(struct record *r)
{
    struct signalfd_siginfo s;

    while (read(r->signals, &s, sizeof s) == sizeof s) {
        /* a terminal gives its signals to the whole process group, the command included */
        if (r->o.cmd && !r->child.ended && s.ssi_code != SI_KERNEL)
            (void)kill(r->child.pid, (int)s.ssi_signo);
        r->n_signal++;
        if (r->n_signal == 1)
            r->until = r->o.cmd ? mono_now().v + GRACE_NS : mono_now().v;
        else
            r->aborted = true;
    }
}

static void put_thousands(struct buf *b, uint64_t n)
{
    if (n >= 1000) {
        put_thousands(b, n / 1000);
        buf_printf(b, ",%03u", (unsigned)(n % 1000));
    } else {
        buf_u64(b, n);
    }
}

/* "12 s · 11,842 samples · lost 0.2 % · 3 processes · Ctrl-C ends" */
static void tell(struct record *r, int64_t now)
{
    struct collector_stats s;
    int64_t lost;
    struct buf b;

    if (!r->progress || now - r->told < NS_PER_S)
        return;
    r->told = now;
    record_take_get_stats(&r->taker, &s);
    lost = s.missed.weight + s.ring_full.weight + s.hidden;
    buf_init(&b, 4096);
    buf_printf(&b, "\r%lld s · ", (long long)((now - r->begun) / NS_PER_S));
    put_thousands(&b, s.samples);
    buf_printf(&b, " samples · lost %.1f %% · %llu process%s · Ctrl-C ends\x1b[K",
               s.weight + lost > 0 ? 100.0 * (double)lost / (double)(s.weight + lost) : 0.0,
               (unsigned long long)s.sampled, s.sampled == 1 ? "" : "es");
    (void)!write(STDERR_FILENO, b.p, b.n);
    buf_deinit(&b);
}

static bool on_turn(void *ctx)
{
    struct record *r = ctx;
    int64_t now = mono_now().v;

    take_signals(r);
    if (!r->o.cmd || r->o.duration_ns)
        look_at_clocks(r);
    tell(r, now);
    if (!r->aborted && !(r->until && now >= r->until) &&
        (r->o.cmd ? !record_child_ended(&r->child, false) : pids_alive(r)))
        return true;
    r->ended = now;
    return false;
}

static int64_t command_used(void *ctx)
{
    const struct record *r = ctx;

    return r->o.cmd && r->o.children && r->child.ended ? usage_ns(&r->child.usage) : -1;
}

/* ---- start --------------------------------------------------------------------------------- */

static void block_signals(struct record *r)
{
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGHUP);
    (void)pthread_sigmask(SIG_BLOCK, &set, &r->before.mask);
    r->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    sigemptyset(&set);
    sigaddset(&set, SIGPIPE);
    (void)pthread_sigmask(SIG_BLOCK, &set, NULL);
}

static void raise_limits(struct record *r)
{
    struct rlimit l;

    if (getrlimit(RLIMIT_NOFILE, &r->before.files) < 0)
        return;
    l = r->before.files;
    l.rlim_cur = l.rlim_max < 65536 ? l.rlim_max : 65536;
    if (l.rlim_cur > r->before.files.rlim_cur)
        (void)setrlimit(RLIMIT_NOFILE, &l);
}

static int start_sender(struct record *r, struct err *err)
{
    struct upload_conf uc = {
        .url = r->o.url, .token = "", .ca_file = "", .interval_ns = INTERVAL_NS};
    struct batchmake_conf bc = {.hostname = str_c(r->ids.hostname),
                                .version = STR(STRATA_VERSION),
                                .names = {.cache = r->conf.symbols_cache,
                                          .debug_dirs = r->conf.debuginfo_dirs,
                                          .proc = "/proc",
                                          .sys = "/sys"},
                                .lines = {.debug_dirs = r->conf.debuginfo_dirs,
                                          .cache = r->conf.symbols_cache / 4,
                                          .no_budget = true},
                                .source = "record",
                                .label = r->o.label,
                                .n_label = r->o.n_label};

    struct spool_conf sc = {/* in memory: the capture file has it, too */
                            .dir = "",
                            .cap = SPOOL_BYTES,
                            .max_age = r->conf.spool_max_age_ns};

    (void)lines_mode_of(r->conf.lines, &bc.lines.mode); /* the default is one */
    memcpy(bc.agent, r->ids.agent, 16);
    memcpy(bc.boot, r->ids.boot, 16);
    if (r->o.url[0]) {
        if (r->o.token_file) {
            TRY(ids_token(r->o.token_file, &r->token, err));
            uc.token = r->token.p;
        }
        memcpy(sc.boot, r->ids.boot, 16);
        r->spool = spool_new(&sc);
        TRY(upload_start(&uc, r->spool, &r->upload, err));
    }
    TRY(batcher_start(&bc, r->spool, &r->batcher, err));
    batcher_set_tap(r->batcher, record_file_tap(&r->file));
    return 0;
}

/* The parent of a process; 0: unknown. */
static uint32_t parent_of(const char *pid)
{
    struct str s;
    uint64_t parent = 0;
    size_t at;
    struct buf b;

    buf_init(&b, 4096);
    if (procfile_read("/proc", pid, &b, NULL) == 0) {
        s = buf_view(&b);
        at = str_rfind(s, ')'); /* a comm may hold anything: ") S PPID " */
        s = str_from(s, at == SIZE_MAX ? s.n : at + 4);
        if (!str_u64(str_to(s, str_find(s, ' ')), &parent))
            parent = 0;
    }
    buf_deinit(&b);
    return (uint32_t)parent;
}

static bool is_given(const struct record *r, uint64_t pid)
{
    for (uint32_t i = 0; i < r->n_track; i++) {
        if (r->track[i].tgid == pid)
            return true;
    }
    return false;
}

/* One pass over /proc; how many were added. */
static int add_children(struct record *r, uint32_t *ret_added, struct err *err)
{
    DIR *d = opendir("/proc");
    const struct dirent *e;
    int code = 0;

    *ret_added = 0;
    while (d && code == 0 && (e = readdir(d))) { // NOLINT(concurrency-mt-unsafe): own stream
        char path[300];
        uint64_t pid;

        (void)snprintf(path, sizeof path, "%s/stat", e->d_name);
        if (!str_u64(str_c(e->d_name), &pid) || is_given(r, pid) || !is_given(r, parent_of(path)))
            continue;
        code = collector_watch(r->taker.collector, (uint32_t)pid, true, err);
        track(r, (uint32_t)pid, 0, false);
        ++*ret_added;
    }
    if (d)
        closedir(d);
    return code;
}

/* The processes given, and the children they have: those to come are followed from their fork. */
static int watch_pids(struct record *r, struct err *err)
{
    uint32_t added = 1;

    for (uint32_t i = 0; i < r->o.n_pid; i++) {
        TRY(collector_watch(r->taker.collector, r->o.pid[i], true, err));
        track(r, r->o.pid[i], 0, false);
    }
    while (r->o.children && added)
        TRY(add_children(r, &added, err));
    return 0;
}

static void prepare(struct record *r)
{
    char file[4096];

    record_child_file(r->o.cmd[0], file);
    collector_prepare(r->taker.collector, file[0] ? file : NULL);
}

/* Everything samples, then the command is forked, watched, and executed. 0, or the exit status. */
static int start_bpf(struct record *r, struct err *err)
{
    static struct collector_capture cap;
    const struct collector_conf cc = {.conf = &r->conf,
                                      .ids = &r->ids,
                                      .state_dir = STATE_DIR,
                                      .batcher = r->batcher,
                                      .spool = r->spool,
                                      .upload = r->upload,
                                      .interval_ns = INTERVAL_NS,
                                      .loopback = true,
                                      .capture = &cap};

    cap = (struct collector_capture){.watch = r->o.children ? BPF_LOAD_CHILDREN : BPF_LOAD_WATCHED,
                                     .turn = on_turn,
                                     .ctx = r,
                                     .types = r->o.types};
    if (collector_open(&r->taker.collector, &cc, err) < 0)
        return RECORD_OURS;
    if (!r->o.cmd)
        return watch_pids(r, err) < 0 ? RECORD_OURS : 0;
    prepare(r);
    if (record_child_start(&r->child, r->o.cmd, &r->before, err) < 0 ||
        collector_watch(r->taker.collector, (uint32_t)r->child.pid, true, err) < 0)
        return RECORD_OURS;
    return 0;
}

/* The same by a source without rights, which wants to know its processes when it is opened. */
static int start_user(struct record *r, struct err *err)
{
    struct record_take take = {.conf = &r->conf,
                               .ids = &r->ids,
                               .batcher = r->batcher,
                               .rate = r->o.rate,
                               .rate_given = r->o.rate_given,
                               .pid = r->o.pid,
                               .n_pid = r->o.n_pid,
                               .turn = on_turn,
                               .used = command_used,
                               .ctx = r};
    char why[1024] = "";
    uint32_t child;

    if (r->o.cmd) {
        if (record_child_start(&r->child, r->o.cmd, &r->before, err) < 0)
            return RECORD_OURS;
        child = (uint32_t)r->child.pid;
        take.pid = &child;
        take.n_pid = 1;
        take.on_exec = true;
    }
    if (record_user_open(&r->taker.user, &take, why, sizeof why, err) < 0) {
        record_source_refused(why);
        *err = (struct err){};
        return RECORD_OURS;
    }
    for (uint32_t i = 0; i < r->o.n_pid; i++)
        track(r, r->o.pid[i], 0, false);
    r->o.rate = record_user_rate(r->taker.user);
    return 0;
}

/* 0, or the exit status. */
static int start(struct record *r, struct err *err)
{
    bool bpf = record_source_bpf(STATE_DIR);
    int code;

    ids_load("", "/etc", &r->ids); /* new for each capture: its batches are told apart by it */
    r->ids.dir_ok = access(STATE_DIR "/boot", R_OK) == 0; /* the agent's, so that starts agree */
    if (record_file_open(&r->file, &r->o, err) < 0 || start_sender(r, err) < 0)
        return RECORD_OURS;
    r->from = real_now();             /* before the first sample */
    r->o.types &= bpf ? RECORDED : 0; /* without rights cpu alone */
    code = bpf ? start_bpf(r, err) : start_user(r, err);
    if (code == 0 && record_file_about(&r->file, &r->o, &r->ids,
                                       bpf ? NULL : record_user_why(r->taker.user), err) < 0)
        code = RECORD_OURS;
    r->begun = r->told = mono_now().v; /* a short command may have ended when go() returns */
    if (code == 0 && r->o.cmd)
        code = record_child_go(&r->child, err);
    if (r->o.duration_ns)
        r->until = r->begun + r->o.duration_ns;
    return code;
}

/* ---- end ----------------------------------------------------------------------------------- */

static int finish(struct record *r, struct err *err)
{
    struct record_result res = {.from = r->from,
                                .to = real_now(),
                                .wall_ns = (r->ended ? r->ended : mono_now().v) - r->begun,
                                .measured_ns = -1};
    struct spool_stats st = {};
    struct upload_stats us = {};
    int code = 0;

    if (r->progress)
        (void)!write(STDERR_FILENO, "\r\x1b[K", 4);
    record_take_get_stats(&r->taker, &res.stats);
    if (r->taker.collector)
        res.watch_full = collector_watch_full(r->taker.collector);
    if (r->taker.user)
        res.source = record_user_why(r->taker.user);
    res.rate = r->taker.user ? record_user_rate(r->taker.user) : r->o.rate;
    res.measured_ns = measured(r);
    batcher_stop(r->batcher);
    if (r->upload) {
        upload_stop(r->upload, SEND_NS);
        upload_get_stats(r->upload, &us);
        spool_get_stats(r->spool, &st);
        res.unsent = st.produced - st.sent; /* dropped, or still waiting */
        res.sender = us.state;
    }
    res.batches = r->file.batches;
    if (r->file.covers.t1.v) { /* what was watched: neither getting ready nor the sending */
        res.from = r->file.covers.t0;
        res.to = r->file.covers.t1;
    }
    if (r->aborted)
        code = err_set(err, -EINTR, "interrupted twice: what was taken so far is in %.90s",
                       r->o.file ? r->o.file : "no file");
    else
        code = record_file_end(&r->file, &res, err);
    record_file_close(&r->file);
    if (code == 0 && r->o.done_fd >= 0)
        (void)!write(r->o.done_fd, "", 1);
    else if (code == 0 && !r->o.quiet)
        record_print(&res);
    if (r->o.done_fd >= 0)
        (void)close(r->o.done_fd);
    return code;
}

static void close_all(struct record *r)
{
    record_take_close(&r->taker);
    if (r->upload)
        upload_free(r->upload);
    if (r->batcher)
        batcher_free(r->batcher);
    spool_free(r->spool);
    buf_deinit(&r->token);
    record_file_close(&r->file);
}

static int fail(const struct record *r, const struct err *err, int code)
{
    if (!err->msg[0])
        return code; /* said already */
    if (r->o.cmd && code != RECORD_OURS)
        (void)fprintf(stderr, "strata: %s: %s\n", r->o.cmd[0], err->msg);
    else
        (void)fprintf(stderr, "strata: %s\n", err->msg);
    return code;
}

static int run(struct record *r)
{
    struct err err = {};
    int code;

    block_signals(r); /* one that comes from now on is looked at in the first turn */
    raise_limits(r);
    buf_init(&r->token, 8192);
    code = start(r, &err);
    if (code) {
        if (r->batcher) /* its thread must end before it is freed */
            batcher_stop(r->batcher);
        if (r->upload)
            upload_stop(r->upload, 0);
        close_all(r);
        return fail(r, &err, code);
    }
    r->progress = !r->o.quiet && isatty(STDERR_FILENO);
    if (record_take_run(&r->taker, &err) < 0)
        r->aborted = true;
    if (finish(r, &err) < 0)
        code = fail(r, &err, RECORD_OURS);
    close_all(r);
    if (r->o.cmd && record_child_ended(&r->child, true) && code == 0)
        code = record_child_status(&r->child);
    return code;
}

/* ---- options ------------------------------------------------------------------------------- */

enum {
    OPT_CHILDREN = 256,
    OPT_NO_CHILDREN,
    OPT_SERVICE,
    OPT_TOKEN_FILE,
    OPT_CAPTURE,
    OPT_NAME,
    OPT_DONE_FD,
    OPT_LOG,
};

static const struct argp_option options[] = {
    {"pid", 'p', "PID", 0, "a process to record; repeatable", 0},
    {"duration", 'd', "TIME", 0, "end after so long: 30s, 5m; a bare number is seconds", 0},
    {"rate", 'r', "HZ", 0, "samples per second of CPU time, 1 to 9999; default 999", 0},
    {NULL, 'F', "HZ", OPTION_ALIAS, NULL, 0},
    {"types", 't', "LIST", 0,
     "what to record, beside cpu: gil_held,offcpu,runq,gil_wait; default: all that is there", 0},
    {"type", 0, "LIST", OPTION_ALIAS, NULL, 0},
    {"children", OPT_CHILDREN, NULL, 0, "follow children (default)", 0},
    {"no-children", OPT_NO_CHILDREN, NULL, 0, "only the process itself", 0},
    {"label", 'l', "NAME=VALUE", 0, "a label of every series; repeatable", 0},
    {"service", OPT_SERVICE, "NAME", 0, "the same as -l service=NAME", 0},
    {"capture", OPT_CAPTURE, "FILE", 0, "write the capture file there", 0},
    {"name", OPT_NAME, "NAME", 0, "label capture of every series", 0},
    {"token-file", OPT_TOKEN_FILE, "FILE", 0, "the server's token, mode 0600", 0},
    {"quiet", 'q', NULL, 0, "no progress line, no summary", 0},
    {"verbose", OPT_LOG, NULL, 0, "log what happens", 0},
    {"done-fd", OPT_DONE_FD, "N", OPTION_HIDDEN, "", 0},
    {},
};

static bool types_read(struct str list, uint32_t *ret, struct str *ret_bad)
{
    *ret = 0;
    while (list.n) {
        size_t comma = str_find(list, ',');
        ptype_id id = 1;

        *ret_bad = str_to(list, comma);
        while (id < PTYPE_BUILTIN_END && !str_eq(*ret_bad, str_c(ptype_builtin(id)->name)))
            id++;
        if (id == PTYPE_BUILTIN_END || !(RECORDED >> id & 1))
            return false;
        *ret |= 1U << id;
        list = str_from(list, comma == SIZE_MAX ? list.n : comma + 1);
    }
    return true;
}

// NOLINTBEGIN(concurrency-mt-unsafe): argp and exit, before any thread
static void add_label(struct record_opts *o, struct str name, struct str value,
                      const struct argp_state *state)
{
    if (!name.n || !value.n)
        argp_error(state, "a label is NAME=VALUE");
    if (!labels_name_ok(name))
        argp_error(state,
                   "\"%.*s\" is no name of a label: a letter or _, then letters, digits and _.-/, "
                   "at most %d bytes",
                   STR_ARG(str_to(name, 40)), LABELS_NAME);
    for (uint32_t i = 0; i < o->n_label; i++) {
        if (str_eq(o->label[i].name, name)) {
            o->label[i].value = value;
            return;
        }
    }
    if (o->n_label == RECORD_LABELS)
        argp_error(state, "more than %d labels", RECORD_LABELS);
    o->label[o->n_label++] = (struct label){name, value};
}

static void parse_number(char *arg, const struct argp_state *state, const char *what, uint64_t max,
                         uint64_t *ret)
{
    if (!str_u64(str_c(arg), ret) || *ret == 0 || *ret > max)
        argp_error(state, "%s is 1 to %llu, not \"%s\"", what, (unsigned long long)max, arg);
}

static void parse_duration(struct record_opts *o, char *arg, const struct argp_state *state)
{
    struct err err = {};
    uint64_t s;

    if (str_u64(str_c(arg), &s) && s < 10000000)
        o->duration_ns = (int64_t)s * NS_PER_S;
    else if (conf_duration(str_c(arg), &o->duration_ns, &err) < 0)
        argp_error(state, "-d %s: %s", arg, err.msg);
    if (o->duration_ns <= 0)
        argp_error(state, "-d %s: must be longer than nothing", arg);
}

static void check_opts(const struct record_opts *o, const struct argp_state *state)
{
    if (o->n_pid && o->cmd)
        argp_error(state, "-p and a command exclude each other");
    if (!o->n_pid && !o->cmd)
        argp_error(state, "nothing to record: say -p PID, or -- COMMAND ARGUMENT...");
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct record_opts *o = state->input;
    struct str s = str_c(arg);
    uint64_t n = 0;

    switch (key) {
    case 'p':
        parse_number(arg, state, "-p", INT32_MAX, &n);
        if (o->n_pid == RECORD_PIDS)
            argp_error(state, "more than %d times -p", RECORD_PIDS);
        o->pid[o->n_pid++] = (uint32_t)n;
        return 0;
    case 'd':
        parse_duration(o, arg, state);
        return 0;
    case 'r':
    case 'F':
        parse_number(arg, state, "-r", RATE_MAX, &o->rate);
        o->rate_given = true;
        return 0;
    case 't':
        if (!types_read(str_c(arg), &o->types, &s))
            argp_error(
                state,
                "type \"%.*s\" is not built yet; built: cpu, gil_held, offcpu, runq, gil_wait",
                STR_ARG(s));
        return 0;
    case OPT_CHILDREN:
    case OPT_NO_CHILDREN:
        o->children = key == OPT_CHILDREN;
        return 0;
    case 'l':
        n = str_find(s, '=');
        add_label(o, str_to(s, n == SIZE_MAX ? 0 : n), str_from(s, n == SIZE_MAX ? s.n : n + 1),
                  state);
        return 0;
    case OPT_SERVICE:
        add_label(o, STR("service"), s, state);
        return 0;
    case OPT_CAPTURE:
        o->file = arg;
        return 0;
    case OPT_NAME:
        o->name = arg;
        return 0;
    case OPT_TOKEN_FILE:
        o->token_file = arg;
        return 0;
    case 'q':
        o->quiet = true;
        return 0;
    case OPT_LOG:
        log_set_level(LOG_INFO);
        return 0;
    case OPT_DONE_FD:
        parse_number(arg, state, "--done-fd", 1 << 20, &n);
        o->done_fd = (int)n;
        return 0;
    case ARGP_KEY_ARGS:
        o->cmd = state->argv + state->next;
        return 0;
    case ARGP_KEY_SUCCESS:
        check_opts(o, state);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}
// NOLINTEND(concurrency-mt-unsafe)

static const struct argp argp = {
    .options = options,
    .parser = parse,
    .args_doc = "-- COMMAND [ARGUMENT...]",
    .doc = "One capture of a command, or of processes and their children. `strata record` executes "
           "this and makes formats, summary and link of it.\v"
           "The environment variable STRATA_RECORD_URL names the server to send to; the command "
           "does not get it."};

int record_main(int argc, char **argv)
{
    static struct record r = {
        .o = {.rate = 999, .children = true, .name = "", .done_fd = -1, .types = UINT32_MAX}};
    const struct conf conf = {.program = "strata-agent record",
                              .opt = agent_opts,
                              .n_opt = agent_n_opts,
                              .target = &r.conf};
    const char *url;
    int code;

    argv[0] = (char[]){"strata record"}; /* in errors and help: what was typed */
    log_set_level(LOG_ERROR);
    argp_err_exit_status = RECORD_OURS;
    // NOLINTBEGIN(concurrency-mt-unsafe): no other thread yet
    argp_parse(&argp, argc, argv, ARGP_IN_ORDER, NULL, &r.o);
    url = getenv("STRATA_RECORD_URL");
    r.o.url = xstrdup(url ? url : "");
    (void)unsetenv("STRATA_RECORD_URL");
    // NOLINTEND(concurrency-mt-unsafe)
    for (uint32_t i = 0; i < r.o.n_pid; i++) {
        if (kill((pid_t)r.o.pid[i], 0) < 0 && errno == ESRCH) {
            (void)fprintf(stderr, "strata: -p %u: no such process\n", r.o.pid[i]);
            return RECORD_OURS;
        }
    }
    if (r.o.name[0])
        r.o.label[r.o.n_label++] = (struct label){STR("capture"), str_c(r.o.name)};
    conf_defaults(&conf);
    environ_init(&r.conf.want);
    r.conf.period_ns = NS_PER_S / (int64_t)r.o.rate;
    code = run(&r);
    conf_free(&conf);
    free(r.o.url);
    return code;
}
