// SPDX-License-Identifier: Apache-2.0
#include "agent/cmd/validate.h"

#include <argp.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/cmd/validate_private.h"
#include "base/json_out.h"
#include "base/log.h"

#define TROUBLE  125
#define NOTHING  77
#define MAX_TEXT ((size_t)1 << 20)

/* The claims, in the order of the output. */
static const struct claim {
    const char *id;
    enum validate_source source;
    enum work_id work;
    validate_judge *judge;
    const char *means;
} claims[] = {
    {"cpu_19hz", VALIDATE_BPF, WORK_BURN_19, judge_cpu, "CPU time of a loop, 19 samples a second"},
    {"cpu_99hz", VALIDATE_BPF, WORK_BURN_99, judge_cpu, "CPU time of a loop, 99 samples a second"},
    {"cpu_499hz", VALIDATE_BPF, WORK_BURN_499, judge_cpu,
     "CPU time of a loop, 499 samples a second"},
    {"cpu_threads", VALIDATE_BPF, WORK_PHOTOS, judge_cpu, "CPU time of two busy threads"},
    {"shares", VALIDATE_BPF, WORK_PHOTOS, judge_shares,
     "shares of three functions that burn 60, 30 and 10 %"},
    {"threads", VALIDATE_BPF, WORK_PHOTOS, judge_threads, "names of threads, and who did the work"},
    {"depth", VALIDATE_BPF, WORK_PHOTOS, judge_depth, "frames of a function that calls itself"},
    {"whole_stacks", VALIDATE_BPF, WORK_PHOTOS, judge_whole,
     "stacks of code without frame pointers reach their end"},
    {"unwinding", VALIDATE_ORACLE, WORK_N, judge_oracle,
     "native stacks: the same registers and stack, unwound a second time by libdw"},
    {"symbols", VALIDATE_BPF, WORK_N, judge_symbols,
     "function names against the program's own symbol table"},
    {"kernel_stacks", VALIDATE_BPF, WORK_SYSCALLS, judge_kernel,
     "stacks of a loop of system calls"},
    {"kernel_time", VALIDATE_BPF, WORK_SYSCALLS, judge_split,
     "time in the kernel of a loop of system calls"},
    {"short_lived", VALIDATE_BPF, WORK_CHILDREN, judge_children,
     "programs that live for 20 ms of CPU time"},
    {"steps", VALIDATE_BPF, WORK_STEPS, judge_steps,
     "steps that a program marks, nested and in 8 threads"},
    {"identities", VALIDATE_BPF, WORK_N, judge_machine,
     "every nanosecond of every CPU is accounted for, over changes of the rate"},
    {"lost", VALIDATE_RING, WORK_RING, judge_lost,
     "a ring of 64 KiB that nobody reads for a while: what is lost is told"},
    {"blocked", VALIDATE_OFF, WORK_BLOCKED, judge_blocked,
     "blocked time of threads that wait for a sleep, a futex, a pipe, the disk, epoll"},
    {"lock", VALIDATE_OFF, WORK_BLOCKED, judge_lock, "blocked time of two that fight for a lock"},
    {"life", VALIDATE_OFF, WORK_BLOCKED, judge_life,
     "cpu, offcpu and runq of a thread add up to its life"},
    {"gil_wait", VALIDATE_OFF, WORK_GIL, judge_gil_wait,
     "waits of three Python threads for the interpreter lock"},
    {"gil_held", VALIDATE_OFF, WORK_GIL, judge_gil_held, "CPU time with the interpreter lock"},
    {"python_lines", VALIDATE_OFF, WORK_GIL, judge_lines,
     "shares of three lines of a Python function that burn 60, 30 and 10 %"},
    {"user_cpu", VALIDATE_USER, WORK_USER, judge_user,
     "CPU time of two busy threads, taken without privileges"},
    {"user_shares", VALIDATE_USER, WORK_USER, judge_shares,
     "shares of 60, 30 and 10 %, taken without privileges"},
    {"user_stacks", VALIDATE_USER, WORK_USER, judge_whole,
     "stacks reach their end, taken without privileges"},
};

enum {
    CLAIMS = sizeof claims / sizeof claims[0],
};

static const char *const verdict_name[VERDICT_N] = {"pass", "fail", "skip"};
static const char *const verdict_shown[VERDICT_N] = {"PASS", "FAIL", "SKIP"};

/* ---- options -------------------------------------------------------------------------------- */

enum {
    OPT_JSON = 256,
    OPT_QUICK,
};

static const struct argp_option options[] = {
    {"quick", OPT_QUICK, NULL, 0,
     "about 20 s of CPU time and more on a busy machine, instead of 90 s; chance may do more", 0},
    {"json", OPT_JSON, NULL, 0, "one JSON object instead of text", 0},
    {},
};

// NOLINTNEXTLINE(readability-non-const-parameter): the type of argp
static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct validate *v = state->input;

    (void)arg;
    switch (key) {
    case OPT_QUICK:
        v->quick = true;
        return 0;
    case OPT_JSON:
        v->json = true;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp argp = {
    .options = options,
    .parser = parse,
    .doc = "Runs programs whose CPU time, stacks and steps are known on this machine, and prints "
           "what Strata measures beside it. Needs no server; what needs root or BPF is skipped "
           "with the reason where it cannot be had.\v"
           "Exit status: 0 no claim failed, 1 one did, 77 nothing could be measured here, 125 "
           "trouble."};

/* ---- output --------------------------------------------------------------------------------- */

static void print_one(const struct claim *c, const struct judgement *j, char before[static WHY_N])
{
    (void)printf("%s  %-14s %s\n", verdict_shown[j->verdict], c->id, c->means);
    if (j->known[0])
        (void)printf("      known     %s\n      measured  %s\n      allowed   %s\n", j->known,
                     j->measured, j->allowed);
    if (j->why[0] && strcmp(j->why, before) != 0) /* once, where several have the same */
        (void)printf("      why       %s\n", j->why);
    (void)snprintf(before, WHY_N, "%s", j->why);
}

static void json_one(struct json_out *o, const struct claim *c, const struct judgement *j)
{
    json_object_begin(o);
    json_key(o, "claim");
    json_cstr(o, c->id);
    json_key(o, "means");
    json_cstr(o, c->means);
    json_key(o, "verdict");
    json_cstr(o, verdict_name[j->verdict]);
    json_key(o, "known");
    json_cstr(o, j->known);
    json_key(o, "measured");
    json_cstr(o, j->measured);
    json_key(o, "allowed");
    json_cstr(o, j->allowed);
    json_key(o, "why");
    json_cstr(o, j->why);
    json_object_end(o);
}

static bool shown(const struct validate *v, const struct claim *c)
{
    return v->run[c->source].tried || c->source != VALIDATE_USER;
}

/* Lines and columns become one line. */
static void squeeze(const char *text, char ret[static WHY_N])
{
    size_t n = 0;

    for (; *text && n + 3 < WHY_N; text++) {
        if (*text == '\n' && text[1]) {
            ret[n++] = ';';
            ret[n++] = ' ';
        } else if (*text != '\n' && !(*text == ' ' && n && ret[n - 1] == ' ')) {
            ret[n++] = *text;
        }
    }
    ret[n] = 0;
}

static void judge(const struct validate *v, const struct claim *c, struct judgement *ret)
{
    const struct source_run *r = &v->run[c->source];

    *ret = (struct judgement){.verdict = VERDICT_SKIP};
    if (r->ran)
        c->judge(v, c->work, ret);
    else
        squeeze(r->why, ret->why);
}

static void legend(const struct validate *v)
{
    (void)printf(
        "\nknown: by the kernel's own counters or by the program itself. allowed: what chance does\n"
        "to a correct sampler, four standard deviations (z is the error in one), or 2 %% or two\n"
        "samples where that is more; beyond it a line fails. Time told as lost is missing from the\n"
        "samples, and said so.%s\n",
        v->quick ? " Without --quick each runs five times as long, and less is allowed." : "");
    if (v->run[VALIDATE_USER].ran)
        (void)printf("Without privileges: %s\n", v->run[VALIDATE_USER].note);
}

static int print_all(const struct validate *v)
{
    char before[WHY_N] = "";
    unsigned n[VERDICT_N] = {};
    struct json_out o;
    struct buf b;

    buf_init(&b, MAX_TEXT);
    json_init(&o, &b);
    json_object_begin(&o);
    json_key(&o, "version");
    json_cstr(&o, STRATA_VERSION);
    json_key(&o, "quick");
    json_bool(&o, v->quick);
    json_key(&o, "claims");
    json_array_begin(&o);
    for (unsigned i = 0; i < CLAIMS; i++) {
        struct judgement j;

        if (!shown(v, &claims[i]))
            continue;
        judge(v, &claims[i], &j);
        n[j.verdict]++;
        json_one(&o, &claims[i], &j);
        if (!v->json)
            print_one(&claims[i], &j, before);
    }
    json_array_end(&o);
    for (unsigned i = 0; i < VERDICT_N; i++) {
        json_key_str(&o, str_c(verdict_name[i]));
        json_u64(&o, n[i]);
    }
    json_object_end(&o);
    if (v->json)
        (void)printf("%.*s\n", STR_ARG(buf_view(&b)));
    else
        legend(v);
    buf_deinit(&b);
    if (!v->json)
        (void)printf("\n%u passed, %u failed, %u skipped\n", n[VERDICT_PASS], n[VERDICT_FAIL],
                     n[VERDICT_SKIP]);
    if (n[VERDICT_FAIL])
        return 1;
    return n[VERDICT_PASS] ? 0 : NOTHING;
}

/* ---- running -------------------------------------------------------------------------------- */

static void tell(const struct validate *v, const char *what)
{
    if (!v->json && isatty(STDERR_FILENO))
        (void)fprintf(stderr, "\r\x1b[K%s", what);
}

static void why_no_bpf(struct validate *v)
{
    static struct check c;
    char why[384];

    check_run("/proc", "/sys", "/", false, &c);
    check_reason(&c, why);
    for (unsigned i = 0; i < VALIDATE_SOURCES; i++)
        if (i != VALIDATE_USER)
            (void)snprintf(v->run[i].why, sizeof v->run[i].why, "no BPF here: %s", why);
}

static void run_all(struct validate *v)
{
    bool bpf = record_source_bpf("/");

    if (bpf) {
        tell(v, "loops, threads, system calls, short programs, steps ...");
        validate_run_bpf(v);
        tell(v, "a ring that is too small ...");
        validate_run_ring(v);
        tell(v, "threads that wait, for Python's lock too ...");
        validate_run_off(v);
        tell(v, "the same samples by libdw ...");
        validate_run_oracle(v);
    } else {
        why_no_bpf(v);
    }
    if (!bpf || !v->quick) {
        tell(v, "without privileges ...");
        validate_run_user(v);
    }
    tell(v, "");
}

static void free_all(struct validate *v)
{
    for (unsigned i = 0; i < WORK_N; i++)
        free((void *)(uintptr_t)v->work[i].said.p); // NOLINT: ours, const for its readers
    free(v->step);
    free(v->body);
    map_deinit(&v->child_pid);
}

int validate_main(int argc, char **argv)
{
    static struct validate v;
    const struct conf conf = {.program = "strata-agent validate",
                              .opt = agent_opts,
                              .n_opt = agent_n_opts,
                              .target = &v.conf};
    int code;

    log_set_level(LOG_ERROR);
    argp_err_exit_status = TROUBLE;
    argp_parse(&argp, argc, argv, 0, NULL, &v); // NOLINT(concurrency-mt-unsafe): no other thread
    if (!validate_find_workload(v.workload)) {
        (void)fprintf(stderr, "strata validate: strata-workload is not beside the agent\n");
        return TROUBLE;
    }
    validate_find_gil(v.gil);
    conf_defaults(&conf);
    environ_init(&v.conf.want);
    ids_load("", "/etc", &v.ids);
    map_init(&v.child_pid, 0);
    (void)getrlimit(RLIMIT_NOFILE, &v.before.files);
    (void)pthread_sigmask(SIG_SETMASK, NULL, &v.before.mask);
    run_all(&v);
    code = print_all(&v);
    if (fflush(stdout) != 0)
        code = TROUBLE;
    free_all(&v);
    conf_free(&conf);
    return code;
}
