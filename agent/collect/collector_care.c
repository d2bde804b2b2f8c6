// SPDX-License-Identifier: Apache-2.0
/* What the collector does about itself once a window: restraint, cross-checks, the books of the
 * spool; and what it says of the run before. */
#include <inttypes.h>
#include <malloc.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "agent/apart/apart.h"
#include "agent/collect/collector_private.h"
#include "agent/collect/status.h"
#include "agent/file/procfile.h"
#include "base/log.h"

#define MINUTE_NS   (60 * NS_PER_S)
#define FOLD_NS     BATCHFOLD_NS
#define STATUS_CAP  (1 << 20)
#define MAX_SAID    16 /* cpu_mismatch events of one minute */
#define NAMES_SHARE 4

/* ---- the run before ------------------------------------------------------------------------ */

static int64_t number(struct str json, const char *key)
{
    int64_t v;

    return str_i64(status_value(json, key), &v) ? v : 0;
}

/* The status file of the run before, by its folder and name; "" where there is none. */
static void read_before(const char *path, struct buf *b)
{
    struct str p = str_c(path);
    size_t slash = str_rfind(p, '/');
    char dir[4096];

    p = slash == SIZE_MAX ? STR(".") : str_to(p, slash);
    (void)snprintf(dir, sizeof dir, "%.*s", STR_ARG(p));
    if (procfile_read(dir[0] ? dir : "/", str_basename(str_c(path)).p, b, NULL) < 0)
        buf_reset(b);
}

/* Ticks of a killed run that were in no batch yet are gone: not covered, and said here. */
static void say_restart(struct collector *c)
{
    struct spool_stats st;
    int64_t covered = 0, now = clock_real().v;
    const char *cause = "first";
    struct buf b;

    buf_init(&b, STATUS_CAP);
    if (c->conf.status_file)
        read_before(c->conf.status_file, &b);
    if (b.n) {
        bool stopped = str_eq(status_value(buf_view(&b), "state"), STR("stopped"));

        cause = stopped ? "stopped" : "killed";
        covered = number(buf_view(&b), "covered_to_ns");
    }
    buf_deinit(&b);
    spool_get_stats(c->conf.spool, &st);
    if (st.inherited_t.t1.v > covered)
        covered = st.inherited_t.t1.v;
    if (covered > 0 && covered < now)
        collector_event(c, "restart",
                        "version=%s period_ns=%lld before=%s not_covered_from_ns=%lld "
                        "not_covered_ns=%lld",
                        STRATA_VERSION, (long long)c->conf.conf->period_ns, cause,
                        (long long)covered, (long long)(now - covered));
    else
        collector_event(c, "restart", "version=%s period_ns=%lld before=%s", STRATA_VERSION,
                        (long long)c->conf.conf->period_ns, cause);
    if (st.damaged)
        collector_event(c, "state", "source=spool damaged=%llu", (unsigned long long)st.damaged);
}

/* ---- restraint ----------------------------------------------------------------------------- */

/* With the others'. */
static uint64_t all_cpu_ns(void)
{
    return (uint64_t)process_cpu_ns(0) + apart_cpu_ns();
}

/* Anonymous memory: what maps of BPF show of themselves here is counted with them. From statm,
 * which costs the kernel a tenth of what the text of status does. */
static uint64_t anonymous_bytes(const char *dir)
{
    uint64_t pages[3] = {}; /* of addresses, resident, of those in files or shared */
    struct str text;
    struct buf b;

    buf_init(&b, 4096);
    if (procfile_read(dir, "statm", &b, NULL) < 0)
        buf_reset(&b);
    text = buf_view(&b);
    for (unsigned i = 0; i < 3; i++) {
        size_t end = str_find(text, ' ');

        if (!str_u64(str_to(text, end), &pages[i]))
            pages[1] = 0;
        text = str_from(text, end == SIZE_MAX ? text.n : end + 1);
    }
    buf_deinit(&b);
    return pages[1] > pages[2] ? (pages[1] - pages[2]) * (uint64_t)sysconf(_SC_PAGESIZE) : 0;
}

/* Of this process and the others. */
static uint64_t memory_bytes(void)
{
    uint64_t sum = anonymous_bytes("/proc/self");

    for (unsigned i = 0; i < APART_ROLES; i++) {
        pid_t pid = apart_pid(i);
        char dir[32];

        if (pid <= 0)
            continue;
        (void)snprintf(dir, sizeof dir, "/proc/%d", (int)pid);
        sum += anonymous_bytes(dir);
    }
    return sum;
}

static void set_period(struct collector *c, uint64_t period)
{
    struct err err = {};

    if (source_cpu_set_period(c->cpu, period, &err) < 0)
        log_event(LOG_WARN, "period", LOG_ERR(&err));
    c->cut_now = true; /* the batch ends with the rate */
}

static void set_memory(struct collector *c, enum restrain_memory level)
{
    uint64_t cache = c->conf.conf->symbols_cache;

    batcher_set_names_cache(c->conf.batcher,
                            level >= RESTRAIN_MEMORY_NAMES ? cache / NAMES_SHARE : cache);
    tables_restrain(source_cpu_tables(c->cpu), level >= RESTRAIN_MEMORY_REFUSE   ? TABLES_REFUSE
                                               : level >= RESTRAIN_MEMORY_TABLES ? TABLES_NO_GROWTH
                                                                                 : TABLES_ALL);
}

/* All that the agent holds; where that is too much, of what is really held. */
static uint64_t held_bytes(struct collector *c)
{
    struct collector_off_stats os;
    uint64_t maps = source_cpu_map_bytes(c->cpu), sum;

    collector_off_get_stats(c, &os);
    maps += os.map_bytes;
    sum = memory_bytes() + maps;
    if (sum <= c->restrain.conf.memory)
        return sum;
    (void)malloc_trim(0); /* what a peak left in the heap */
    return memory_bytes() + maps;
}

static void restrain(struct collector *c, const struct source_account *a,
                     const struct stackagg_off_account *off)
{
    int64_t now = mono_now().v;
    uint64_t cpu = all_cpu_ns(), period = restrain_period(&c->restrain);
    enum restrain_memory memory = c->restrain.memory;
    uint32_t off_level = c->restrain.off_level;
    char text[RESTRAIN_TEXT];
    struct restrain_seen seen = {.window_ns = now - c->cared,
                                 .cpu_ns = cpu - c->cpu_before + a->bpf_ns + off->bpf_ns,
                                 .off_ns = off->bpf_ns,
                                 .off_lost = off->lost,
                                 .ring_full = a->ring_full.n,
                                 .memory = held_bytes(c)};

    c->cared = now;
    c->cpu_before = cpu;
    c->memory = seen.memory;
    if (!restrain_look(&c->restrain, &seen, text))
        return;
    collector_event(c, "restraint", "%s", text);
    log_event(LOG_INFO, "restraint", LOG_C("what", text));
    if (restrain_period(&c->restrain) != period)
        set_period(c, restrain_period(&c->restrain));
    if (c->restrain.memory != memory)
        set_memory(c, c->restrain.memory);
    if (c->restrain.off_level != off_level)
        collector_off_limit(c);
}

/* ---- the spool ----------------------------------------------------------------------------- */

/* I4, over all batches of this run and those it found. */
static void check_books(struct collector *c)
{
    struct spool_stats s;
    uint64_t in, out;

    spool_get_stats(c->conf.spool, &s);
    in = s.produced + s.inherited;
    out = s.sent + s.spooled;
    for (unsigned i = 0; i < SPOOL_DROP_N; i++)
        out += s.dropped[i];
    if (in == out)
        return;
    c->stats.identity_violations++;
    collector_event(c, "identity",
                    "batches produced + inherited = %" PRIu64 ", sent + dropped + spooled %" PRIu64,
                    in, out);
    log_event(LOG_ERROR, "identity", LOG_U("batches_in", in), LOG_U("batches_out", out));
}

/* Rows of 10 s need batches of 10 s. */
static void watch_spool(struct collector *c)
{
    static const char *const name[] = {"none", "rows_10s", "threads_into_processes"};
    unsigned level = spool_level(c->conf.spool);
    enum batchfold_level fold = batchfold_level(level);
    struct spool_stats s;

    spool_get_stats(c->conf.spool, &s);
    if (strcmp(c->told_spool, s.state) != 0) {
        if (c->told_spool[0] || strcmp(s.state, "ok") != 0)
            collector_event(c, "state", "source=spool state=\"%.100s\"", s.state);
        (void)snprintf(c->told_spool, sizeof c->told_spool, "%s", s.state);
    }
    c->interval_ns = c->conf.interval_ns;
    if (fold != BATCHFOLD_NONE && c->interval_ns < FOLD_NS)
        c->interval_ns = FOLD_NS;
    if (fold == c->fold_told)
        return;
    collector_event(c, "restraint", "source=spool cause=level_percent=%u fold=%s was=%s", level,
                    name[fold], name[c->fold_told]);
    c->fold_told = fold;
}

/* ---- cross-check --------------------------------------------------------------------------- */

static void check_processes(struct collector *c)
{
    char text[CROSSCHECK_TEXT];
    unsigned said = 0;

    c->crosschecked = c->now;
    crosscheck_begin(c->cross, c->stats.missed.weight + c->stats.ring_full.weight,
                     (int64_t)restrain_period(&c->restrain));
    for (struct proc *p = proc_next(c->procs, NULL); p; p = proc_next(c->procs, p)) {
        struct crosscheck_seen seen = {
            .serial = p->serial, .pid = p->tgid, .profiled_ns = p->profiled_ns};

        if (p->profiled_ns == 0 || p->kthread || p->dropped)
            continue;
        seen.clock_ns = process_cpu_ns((pid_t)p->tgid);
        if (seen.clock_ns < 0)
            continue;
        if (crosscheck_look(c->cross, &seen, text))
            continue;
        c->stats.cpu_mismatches++;
        if (said++ < MAX_SAID)
            collector_event(c, "cpu_mismatch", "%s", text);
    }
}

/* ---- all of it ----------------------------------------------------------------------------- */

void collector_care_open(struct collector *c)
{
    const struct agent_conf *conf = c->conf.conf;
    const struct restrain_conf rc = {.period_ns = (uint64_t)conf->period_ns,
                                     .cpu_percent = conf->cpu_percent,
                                     .cpus = (uint32_t)sysconf(_SC_NPROCESSORS_ONLN),
                                     .memory = conf->memory};

    restrain_init(&c->restrain, &rc);
    c->cross = crosscheck_new();
    c->cared = mono_now().v;
    c->crosschecked = c->cared;
    c->cpu_before = all_cpu_ns();
    c->interval_ns = c->conf.interval_ns;
    if (c->conf.capture)
        collector_event(c, "capture", "version=%s period_ns=%lld", STRATA_VERSION,
                        (long long)conf->period_ns);
    else
        say_restart(c);
}

void collector_care(struct collector *c, const struct source_account *a,
                    const struct stackagg_off_account *off)
{
    if (c->conf.capture) /* it was asked for at this rate, and it ends */
        return;
    restrain(c, a, off);
    check_books(c);
    watch_spool(c);
    if (c->now - c->crosschecked >= MINUTE_NS)
        check_processes(c);
}
