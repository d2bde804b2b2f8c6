// SPDX-License-Identifier: Apache-2.0
/* What the collector says of itself: metrics, events, the status file. */
#include <assert.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "agent/apart/apart.h"
#include "agent/apart/reader.h"
#include "agent/collect/collector_private.h"
#include "agent/file/procfile.h"
#include "base/json_out.h"
#include "base/loss.h"

#define MAX_METRICS 8192 /* of one batch */

void collector_event(struct collector *c, const char *kind, const char *fmt, ...)
{
    struct batchmake_event *e;
    va_list ap;

    if (c->n_event == COLLECTOR_MAX_EVENTS) {
        c->stats.events_dropped++;
        return;
    }
    e = &c->event[c->n_event++];
    *e = (struct batchmake_event){.t = clock_real(), .kind = kind};
    va_start(ap, fmt);
    // NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): va_start is above
    (void)vsnprintf(e->text, sizeof e->text, fmt, ap);
    va_end(ap);
}

static int64_t rss_bytes(void)
{
    struct buf b;
    struct str s;
    uint64_t pages = 0;
    size_t sp;

    buf_init(&b, 4096);
    if (procfile_read("/proc/self", "statm", &b, NULL) < 0)
        buf_reset(&b);
    s = buf_view(&b);
    sp = str_find(s, ' ');
    s = str_from(s, sp == SIZE_MAX ? s.n : sp + 1);
    if (!str_u64(str_to(s, str_find(s, ' ')), &pages))
        pages = 0;
    buf_deinit(&b);
    return (int64_t)pages * sysconf(_SC_PAGESIZE);
}

/* ---- everything that is counted, once, for metrics and status ------------------------------ */

struct figure {
    const char *name, *unit;
    bool counter;
    int64_t v;
    const char *why;            /* label; NULL: none */
    char python[METRIC_PYTHON]; /* label; "": none */
};

#define MAX_FIGURES 320

struct figures {
    struct figure v[MAX_FIGURES];
    uint32_t n;
};

static void put(struct figures *f, const char *name, const char *unit, bool counter, uint64_t v)
{
    assert(f->n < MAX_FIGURES);
    f->v[f->n++] = (struct figure){.name = name,
                                   .unit = unit,
                                   .counter = counter,
                                   .v = v > INT64_MAX ? INT64_MAX : (int64_t)v};
}

static void put_steps(struct figures *f, const struct collector *c)
{
    struct source_step_stats s;

    source_step_get_stats(c->steps, &s);
    put(f, "agent_step_calls", "count", true, s.track.calls);
    put(f, "agent_steps", "count", true, s.track.steps);
    put(f, "agent_steps_open", "count", false, s.track.open);
    put(f, "agent_step_names_folded", "count", true, s.track.names_folded);
    put(f, "agent_step_probes", "count", false, s.probes);
    put(f, "agent_step_probes_refused", "count", false, s.refused);
    for (unsigned i = 0; i < STEPTRACK_N_DROP; i++) {
        put(f, "agent_steps_dropped", "count", true, s.track.dropped[i]);
        f->v[f->n - 1].why = steptrack_drop_name((enum steptrack_drop)i);
    }
}

static void put_own(struct figures *f, const struct collector *c)
{
    const struct collector_stats *s = &c->stats;
    static const char *const stop[SA_S_N] = {
        "agent_stop_end",     "agent_stop_trunc",   "agent_stop_nomap",     "agent_stop_notable",
        "agent_stop_noinfo",  "agent_stop_invalid", "agent_stop_readfault", "agent_stop_zeropc",
        "agent_stop_badsp",   "agent_stop_badfp",   "agent_stop_noproc",    "agent_stop_kthread",
        "agent_stop_exiting", "agent_stop_compat32"};

    put(f, "agent_windows", "count", true, s->windows);
    put(f, "agent_samples", "count", true, s->samples);
    put(f, "agent_received", "count", true, s->received);
    put(f, "agent_weight", "nanoseconds", true, (uint64_t)s->weight);
    put(f, "agent_busy", "nanoseconds", true, (uint64_t)s->busy);
    put(f, "agent_idle", "nanoseconds", true, (uint64_t)s->idle);
    put(f, "agent_filtered", "nanoseconds", true, s->filtered);
    put(f, "agent_missed", "nanoseconds", true, (uint64_t)s->missed.weight);
    put(f, "agent_missed_ticks", "count", true, s->missed.n);
    put(f, "agent_missed_idle", "nanoseconds", true, (uint64_t)s->missed_idle.weight);
    put(f, "agent_missed_idle_ticks", "count", true, s->missed_idle.n);
    put(f, "agent_ring_full", "nanoseconds", true, (uint64_t)s->ring_full.weight);
    put(f, "agent_ring_full_ticks", "count", true, s->ring_full.n);
    put(f, "agent_identity_violations", "count", true, s->identity_violations);
    put(f, "agent_clock_steps", "count", true, s->clock_steps);
    put(f, "agent_suspends", "count", true, s->suspends);
    put(f, "agent_cpu_mismatches", "count", true, s->cpu_mismatches);
    put(f, "agent_kstack_err", "count", true, s->kstack_err);
    put(f, "agent_fp_used", "count", true, s->fp_used);
    put(f, "agent_fold_full", "count", true, s->table_full);
    put(f, "agent_bpf_cpu", "nanoseconds", true, s->bpf_ns);
    put(f, "agent_cpu", "nanoseconds", true, (uint64_t)process_cpu_ns(0));
    put(f, "agent_rss", "bytes", false, (uint64_t)rss_bytes());
    put(f, "agent_map_bytes", "bytes", false, source_cpu_map_bytes(c->cpu));
    put(f, "agent_memory", "bytes", false, c->memory);
    put(f, "agent_memory_limit", "bytes", false, c->restrain.conf.memory);
    put(f, "agent_memory_level", "count", false, c->restrain.memory);
    put(f, "agent_cost", "nanoseconds", false, c->restrain.cpu_ns);
    put(f, "agent_cost_budget", "nanoseconds", false, c->restrain.budget_ns);
    put(f, "agent_period", "nanoseconds", false, restrain_period(&c->restrain));
    put(f, "agent_restraint_steps", "count", true, c->restrain.steps);
    for (unsigned i = 0; i < SA_S_N; i++)
        put(f, stop[i], "count", true, s->stop[i]);
}

static void put_why(struct figures *f, const char *name, const char *why, uint64_t v)
{
    put(f, name, "count", true, v);
    f->v[f->n - 1].why = why;
}

static void put_python_version(struct figures *f, const struct py_version *v)
{
    struct figure *g;

    put(f, "agent_python_versions", "count", false, v->processes);
    g = &f->v[f->n - 1];
    g->why = pylayout_name(v->state);
    if (v->hex && !(v->hex & 0xffff)) /* 3.10 does not say which it is */
        (void)snprintf(g->python, sizeof g->python, "%u.%u", v->hex >> 24, v->hex >> 16 & 255);
    else if (v->hex)
        (void)snprintf(g->python, sizeof g->python, "%u.%u.%u", v->hex >> 24, v->hex >> 16 & 255,
                       v->hex >> 8 & 255);
    else
        (void)snprintf(g->python, sizeof g->python, "unknown");
}

static void put_python(struct figures *f, const struct collector *c)
{
    static const char *const err[SA_PE_N] = {
        [SA_PE_KEY] = "key",       [SA_PE_BADKEY] = "bad_key", [SA_PE_SLOT] = "slot",
        [SA_PE_NONE] = "no_state", [SA_PE_FRAME0] = "newest",  [SA_PE_CFRAME] = "cframe",
        [SA_PE_FRAME] = "frame",   [SA_PE_CODE] = "code",      [SA_PE_DEEP] = "deep"};
    static const char *const gil[] = {[SA_G_FREE] = "free",
                                      [SA_G_MINE] = "mine",
                                      [SA_G_OTHER] = "other",
                                      [SA_G_UNREADABLE] = "unreadable"};
    struct py_stats s;

    py_get_stats(c->py, &s);
    for (unsigned i = 0; i < PYLAYOUT_N; i++) {
        put(f, "agent_python_processes", "count", false, s.processes[i]);
        f->v[f->n - 1].why = pylayout_name((enum pylayout_result)i);
    }
    for (uint32_t i = 0; i < s.n_version; i++)
        put_python_version(f, &s.version[i]);
    put(f, "agent_python_by_entry_frame", "count", false, s.by_shim);
    put(f, "agent_python_unmerged", "count", false, s.unmerged);
    put(f, "agent_python_samples", "count", true, s.samples);
    put(f, "agent_python_with_frames", "count", true, s.with_frames);
    put(f, "agent_python_merged", "count", true, s.merged);
    put(f, "agent_python_frames", "count", true, s.frames);
    put(f, "agent_python_short", "count", true, s.is_short);
    put(f, "agent_python_drained", "count", true, s.drained);
    for (unsigned i = 0; i < SA_PE_N; i++) {
        if (err[i])
            put_why(f, "agent_pyerr", err[i], s.err[i]);
    }
    for (unsigned i = SA_G_FREE; i <= SA_G_UNREADABLE; i++)
        put_why(f, "agent_python_gil", gil[i], s.gil[i]);
    put(f, "agent_python_codes", "count", false, s.names.codes);
    put(f, "agent_python_code_bytes", "bytes", false, s.names.bytes);
    put(f, "agent_python_code_reads", "count", true, s.names.reads);
    put_why(f, "agent_python_unnamed", "py_died", s.names.died);
    put_why(f, "agent_python_unnamed", "py_unreadable", s.names.unreadable);
    put_why(f, "agent_python_unnamed", "py_check", s.names.check);
}

static void put_off(struct figures *f, const struct collector *c)
{
    struct collector_off_stats o;
    const struct sa_swacct *a = &o.source.acct;

    collector_off_get_stats(c, &o);
    put(f, "agent_offcpu_on", "count", false, o.source.on);
    put(f, "agent_offcpu_processes", "count", false, o.tracked);
    put(f, "agent_offcpu_left", "count", true, a->left);
    put(f, "agent_offcpu_stacks", "count", true, a->stacks);
    put_why(f, "agent_offcpu_no_stack", "throttled", a->throttled);
    put_why(f, "agent_offcpu_no_stack", "short", a->few);
    put_why(f, "agent_offcpu_no_stack", "ring_refused", a->lost_stacks);
    put_why(f, "agent_offcpu_no_stack", "table_full", o.source.full);
    put(f, "agent_offcpu_back", "count", true, a->back);
    put(f, "agent_offcpu_blocked", "nanoseconds", true, (uint64_t)o.source.blocked);
    put(f, "agent_offcpu_queued", "nanoseconds", true, (uint64_t)o.source.queued);
    put(f, "agent_gil_wait_unknown", "nanoseconds", true, (uint64_t)o.unknown_wait_ns);
    put(f, "agent_offcpu_lost", "count", true, a->lost);
    put(f, "agent_offcpu_no_storage", "count", true, a->no_storage);
    put(f, "agent_offcpu_swept", "count", true, o.source.swept);
    put(f, "agent_offcpu_open", "count", false, o.source.open);
    put(f, "agent_offcpu_bytes", "bytes", false, o.map_bytes + o.source.open_bytes);
    put(f, "agent_offcpu_bpf", "nanoseconds", true, a->bpf_ns);
    put(f, "agent_offcpu_level", "count", false, c->restrain.off_level);
}

static void put_procs(struct figures *f, const struct collector *c)
{
    struct proc_stats p;
    struct tables_stats t;

    proc_get_stats(c->procs, &p);
    put(f, "agent_processes", "count", false, p.processes);
    put(f, "agent_mappings", "count", false, p.maps);
    put(f, "agent_binaries", "count", false, binary_count());
    put(f, "agent_tracker_lost", "count", true, p.lost);
    put(f, "agent_rescans", "count", true, p.rescans);
    put(f, "agent_unseen", "count", true, p.unseen);
    put(f, "agent_maps_truncated", "count", true, p.maps_truncated);
    put(f, "agent_services_folded", "count", true, p.services_folded);
    put(f, "agent_open_failed", "count", true, p.open_failed);
    put(f, "agent_proc_table_full", "count", true, p.table_full);
    put(f, "agent_cgroup_changes", "count", true, p.cgroup_changes);
    put(f, "agent_labels_bad_name", "count", true, p.labels.bad_name);
    put(f, "agent_labels_cleaned", "count", true, p.labels.bad_text);
    put(f, "agent_labels_cut", "count", true, p.labels.cut);
    put(f, "agent_labels_too_many", "count", true, p.labels.too_many);
    tables_get_stats(source_cpu_tables(c->cpu), &t);
    put(f, "agent_tables_built", "count", true, t.built);
    put(f, "agent_tables_pending", "count", false, tables_pending(source_cpu_tables(c->cpu)));
    put(f, "agent_tables_failed", "count", true, t.failed);
    put(f, "agent_tables_evicted", "count", true, t.evicted);
    put(f, "agent_tables_refused", "count", true, t.refused);
    put(f, "agent_tables_known", "count", false, t.known);
    put(f, "agent_table_bytes", "bytes", false, t.bytes);
    put(f, "agent_publish_no_room", "count", true, t.no_room);
    put(f, "agent_build_queue_full", "count", true, t.queue_full);
}

static void put_symbols(struct figures *f, const struct batcher_stats *b)
{
    static const char *const debug[DEBUGFILE_N] = {
        "agent_debug_files",    "agent_debug_other_build_id", "agent_debug_bad_crc",
        "agent_debug_bad_link", "agent_debug_bad_file",       "agent_debug_too_big"};
    static const char *const lines[DWARFLINE_FAIL_N] = {
        "agent_lines_ok",  "agent_lines_no_dwarf", "agent_lines_too_big", "agent_lines_no_alt",
        "agent_lines_bad", "agent_lines_steps",    "agent_lines_absent"};
    static const char *const jit[JITS_N] = {"agent_jit_none", "agent_jit_link", "agent_jit_no_file",
                                            "agent_jit_owner", "agent_jit_failed"};

    put(f, "agent_symbols_failed", "count", true, b->names.failed);
    put(f, "agent_symbols_evicted", "count", true, b->names.evicted);
    put(f, "agent_symbols_mini", "count", true, b->names.mini);
    put(f, "agent_symbols_mini_failed", "count", true, b->names.mini_failed);
    for (unsigned i = 0; i < DEBUGFILE_N; i++)
        put(f, debug[i], "count", true, b->names.debug_found[i]);
    put(f, "agent_lines_asked", "count", true, b->lines.asked);
    put(f, "agent_lines_found", "count", true, b->lines.found);
    put(f, "agent_lines_inlined", "count", true, b->lines.inlined);
    put(f, "agent_lines_waiting", "count", false, b->lines.waiting);
    put(f, "agent_lines_dropped", "count", true, b->lines.dropped);
    put(f, "agent_lines_bytes", "bytes", false, b->lines.bytes);
    put(f, "agent_lines_cpu", "nanoseconds", true, b->lines.cpu_ns);
    for (unsigned i = 0; i < DWARFLINE_FAIL_N; i++)
        put(f, lines[i], "count", true, b->lines.fail[i]);
    put(f, "agent_jit_maps", "count", false, b->jits.maps);
    put(f, "agent_jit_entries", "count", false, b->jits.entries);
    put(f, "agent_jit_bytes", "bytes", false, b->jits.bytes);
    put(f, "agent_jit_reads", "count", true, b->jits.reads);
    put(f, "agent_jit_bad_lines", "count", true, b->jits.bad_lines);
    put(f, "agent_jit_cut", "count", true, b->jits.cut);
    put(f, "agent_jit_resolved", "count", true, b->jits.resolved);
    put(f, "agent_jit_unresolved", "count", true, b->jits.unresolved);
    for (unsigned i = 0; i < JITS_N; i++)
        put(f, jit[i], "count", true, b->jits.refused[i]);
}

static void put_reader(struct figures *f)
{
    struct reader_stats r;
    uint64_t asked = 0;

    reader_get_stats(&r);
    for (unsigned i = 0; i < READER_KINDS; i++)
        asked += i == READER_PING ? 0 : r.asked[i];
    put(f, "agent_reader_asked", "count", true, asked);
    put(f, "agent_reader_failed", "count", true, r.failed);
    put(f, "agent_reader_absent", "count", true, r.absent);
    put(f, "agent_reader_died", "count", true, r.died);
    put(f, "agent_reader_hung", "count", true, r.hung);
    put(f, "agent_reader_bad_answer", "count", true, r.bad);
    put(f, "agent_reader_starts", "count", true, r.starts);
    put(f, "agent_apart_cpu", "nanoseconds", true, apart_cpu_ns());
}

static uint64_t dropped_sum(const struct spool_stats *s)
{
    uint64_t n = 0;

    for (unsigned i = 0; i < SPOOL_DROP_N; i++)
        n += s->dropped[i];
    return n;
}

static void put_sender(struct figures *f, const struct collector *c)
{
    static const char *const drop[SPOOL_DROP_N] = {
        "agent_dropped_spool_full", "agent_dropped_too_old",      "agent_dropped_bad_request",
        "agent_dropped_too_large",  "agent_dropped_seq_conflict", "agent_dropped_seq_too_old",
        "agent_dropped_internal",   "agent_dropped_damaged"};
    static const char *const answer[UPLOAD_N_ANSWERS] = {
        "agent_answer_200", "agent_answer_400",  "agent_answer_401",  "agent_answer_403",
        "agent_answer_404", "agent_answer_405",  "agent_answer_409",  "agent_answer_413",
        "agent_answer_414", "agent_answer_415",  "agent_answer_421",  "agent_answer_429",
        "agent_answer_431", "agent_answer_500",  "agent_answer_502",  "agent_answer_503",
        "agent_answer_504", "agent_answer_none", "agent_answer_other"};
    struct batcher_stats b;
    struct spool_stats s;
    struct upload_stats u;

    batcher_get_stats(c->conf.batcher, &b);
    put(f, "agent_rows", "count", true, b.rows);
    put(f, "agent_batch_splits", "count", true, b.splits);
    put(f, "agent_batches_failed", "count", true, b.failed);
    put(f, "agent_windows_dropped", "count", true, b.windows_dropped);
    put(f, "agent_window_steps_dropped", "count", true, b.steps_dropped);
    put(f, "agent_metrics_dropped", "count", true, b.metrics_dropped);
    put(f, "agent_events_dropped", "count", true, c->stats.events_dropped + b.events_dropped);
    put(f, "agent_batch_cpu", "nanoseconds", true, b.busy_ns);
    put(f, "agent_symbols_resolved", "count", true, b.names.resolved);
    put(f, "agent_symbols_unresolved", "count", true, b.names.unresolved);
    put(f, "agent_symbol_bytes", "bytes", false, b.names.bytes);
    put(f, "agent_symbol_tables", "count", false, b.names.tables);
    put(f, "agent_kernel_symbols", "count", false, b.kernel_symbols);
    put_symbols(f, &b);
    spool_get_stats(c->conf.spool, &s);
    put(f, "agent_batches_produced", "count", true, s.produced);
    put(f, "agent_batches_inherited", "count", true, s.inherited);
    put(f, "agent_batches_sent", "count", true, s.sent);
    put(f, "agent_batches_duplicate", "count", true, s.duplicate);
    put(f, "agent_batches_spooled", "count", false, s.spooled);
    put(f, "agent_spool_bytes", "bytes", false, s.bytes);
    put(f, "agent_spool_level", "percent", false, spool_level(c->conf.spool));
    put(f, "agent_spool_memory_bytes", "bytes", false, s.memory_bytes);
    put(f, "agent_spool_memory_batches", "count", false, s.memory_batches);
    put(f, "agent_spool_write_failed", "count", true, s.write_failed);
    put(f, "agent_spool_damaged", "count", true, s.damaged);
    put(f, "agent_spool_unreadable", "count", true, s.unreadable);
    put(f, "agent_spool_foreign", "count", false, s.foreign);
    put(f, "agent_spool_untold", "count", false, s.untold);
    put(f, "agent_dropped", "count", true, dropped_sum(&s));
    put(f, "agent_retries", "count", true, s.retries);
    for (unsigned i = 0; i < SPOOL_DROP_N; i++)
        put(f, drop[i], "count", true, s.dropped[i]);
    upload_get_stats(c->conf.upload, &u);
    for (unsigned i = 0; i < UPLOAD_N_ANSWERS; i++)
        put(f, answer[i], "count", true, u.answers[i]);
    put(f, "agent_requests", "count", true, u.requests);
    put(f, "agent_dict_miss", "count", true, u.dict_miss);
    put(f, "agent_send_rejected", "count", true, u.rejected_rows);
    put(f, "agent_sent_bytes", "bytes", true, u.short_bytes);
    put(f, "agent_full_bytes", "bytes", true, u.full_bytes);
}

static struct figures *collect(const struct collector *c)
{
    struct figures *f = xcalloc(1, sizeof *f); /* too large for the stack */

    put_own(f, c);
    put_procs(f, c);
    put_steps(f, c);
    if (c->py)
        put_python(f, c);
    if (reader_is_apart())
        put_reader(f);
    put_off(f, c);
    put_sender(f, c);
    return f;
}

#define PROCESS_METRICS 3

/* The kernel's own count of a process, dead threads included, beside ours; and of a Python what
 * may have been a wait for its lock. */
static uint32_t put_process(struct batchmake_metric *m, struct proc *p, real_ns t)
{
    int64_t ns = process_cpu_ns((pid_t)p->tgid);

    if (ns < 0)
        return 0;
    m[0] = (struct batchmake_metric){.name = "process_cpu",
                                     .unit = "nanoseconds",
                                     .counter = true,
                                     .serial = p->serial,
                                     .t = t,
                                     .v = ns};
    m[1] = m[0];
    m[1].name = "profiled_cpu";
    m[1].v = p->profiled_ns;
    if (!p->unknown_wait_ns)
        return 2;
    m[2] = m[0];
    m[2].name = "gil_wait_unknown";
    m[2].v = p->unknown_wait_ns;
    return PROCESS_METRICS;
}

struct batchmake_metric *collector_metrics(struct collector *c, real_ns t, uint32_t *ret_n)
{
    struct batchmake_metric *m = xcalloc(MAX_METRICS, sizeof *m);
    struct figures *f = collect(c);
    uint32_t n = 0;

    for (uint32_t i = 0; i < f->n; i++) {
        m[n] = (struct batchmake_metric){.name = f->v[i].name,
                                         .unit = f->v[i].unit,
                                         .counter = f->v[i].counter,
                                         .t = t,
                                         .v = f->v[i].v,
                                         .why = f->v[i].why};
        memcpy(m[n++].python, f->v[i].python, METRIC_PYTHON);
    }
    for (struct proc *p = proc_next(c->procs, NULL); p && n + PROCESS_METRICS <= MAX_METRICS;
         p = proc_next(c->procs, p)) {
        if (p->profiled_ns > 0 && !p->kthread)
            n += put_process(m + n, p, t);
    }
    free(f);
    *ret_n = n;
    return m;
}

/* ---- status -------------------------------------------------------------------------------- */

static const struct bpf_probe_item *check_row(const struct check *check, const char *name)
{
    for (uint32_t i = 0; check && i < check->n; i++) {
        if (strcmp(check->item[i].name, name) == 0)
            return &check->item[i];
    }
    return NULL;
}

void collector_tell_check(struct collector *c)
{
    const struct check *check = c->conf.check;

    for (uint32_t i = 0; check && i < check->n; i++) {
        const struct bpf_probe_item *m = &check->item[i];

        if (m->state != BPF_PROBE_OK)
            collector_event(c, "state", "check=%s state=degraded why=\"%.120s\"", m->name, m->why);
    }
}

/* Names of what is degraded, with ", " between. */
static void status_check(const struct check *check, struct json_out *j)
{
    const struct bpf_probe_item *who = check_row(check, "user");
    char text[512] = "";
    size_t n = 0;

    for (uint32_t i = 0; check && i < check->n && n < sizeof text; i++) {
        if (check->item[i].state != BPF_PROBE_OK)
            n += (size_t)snprintf(text + n, sizeof text - n, "%s%s", n ? ", " : "",
                                  check->item[i].name);
    }
    json_key(j, "runs_as");
    json_cstr(j, who ? who->why : "");
    json_key(j, "degraded");
    json_cstr(j, text);
}

#define RIGHTS_NEW_NS (3 * NS_PER_S) /* a process that begins gives its own away */
#define RIGHTS_OLD_NS (30 * NS_PER_S)

/* No process gets rights that it has not: looked at now and then. */
static const char *rights_of(struct collector_rights *r, pid_t pid, int64_t now)
{
    if (r->pid != pid)
        *r = (struct collector_rights){.pid = pid, .since = now};
    if (now - r->at < RIGHTS_OLD_NS && r->at - r->since > RIGHTS_NEW_NS)
        return r->text;
    r->at = now;
    apart_rights(pid, r->text);
    return r->text;
}

/* Who is who, and what each may. */
static void status_processes(struct collector *c, struct json_out *j)
{
    const struct {
        const char *key, *does;
        pid_t pid;
    } p[] = {{"process_sampler", "samples, follows processes, keeps the spool", getpid()},
             {"process_starter", "starts the two below", apart_starter()},
             {"process_reader", "reads files that it is handed", apart_pid(APART_READER)},
             {"process_sender", "talks to the server", apart_pid(APART_SENDER)}};

    for (size_t i = 0; i < sizeof p / sizeof p[0]; i++) {
        char text[APART_RIGHTS + 80];

        if (p[i].pid <= 0)
            continue;
        (void)snprintf(text, sizeof text, "pid %d: %s; %s", (int)p[i].pid,
                       rights_of(&c->rights[i], p[i].pid, c->now), p[i].does);
        json_key(j, p[i].key);
        json_cstr(j, text);
    }
}

/* What is more than a figure. */
static void status_more(struct collector *c, struct json_out *j)
{
    static const char *const memory[] = {"none", "symbols shrink", "tables only replaced",
                                         "no new tables"};
    static const char *const folding[] = {"rows of 1 s", "rows of 10 s",
                                          "rows of 10 s, threads into processes"};
    struct spool_stats s;
    struct batcher_stats b;
    char text[96];

    spool_get_stats(c->conf.spool, &s);
    batcher_get_stats(c->conf.batcher, &b);
    json_key(j, "covered_to_ns");
    json_dec_i64(j, s.covered_to.v);
    json_key(j, "spool");
    json_cstr(j, s.state);
    json_key(j, "folding");
    json_cstr(j, folding[b.fold]);
    (void)snprintf(text, sizeof text, "rate: step %u of %u; memory: %s", c->restrain.at,
                   c->restrain.n_period - 1, memory[c->restrain.memory]);
    json_key(j, "restraint");
    json_cstr(j, text);
    (void)snprintf(text, sizeof text, "%s, %" PRIu64 " violations",
                   c->stats.identity_violations ? "I1 to I4 NOT exact" : "I1 to I4 exact",
                   c->stats.identity_violations);
    json_key(j, "identity");
    json_cstr(j, text);
    status_check(c->conf.check, j);
    if (apart_is_on())
        status_processes(c, j);
}

static void status_json(struct collector *c, const char *state, struct buf *out)
{
    struct batcher_stats b;
    struct upload_stats u;
    struct figures *f = collect(c);
    struct json_out j;
    char id[33];

    batcher_get_stats(c->conf.batcher, &b);
    upload_get_stats(c->conf.upload, &u);
    json_init(&j, out);
    json_object_begin(&j);
    json_key(&j, "version");
    json_cstr(&j, STRATA_VERSION);
    json_key(&j, "pid");
    json_i64(&j, getpid());
    json_key(&j, "state");
    json_cstr(&j, state);
    json_key(&j, "t_ns");
    json_dec_i64(&j, real_now().v);
    json_key(&j, "agent");
    ids_hex(c->conf.ids->agent, id);
    json_cstr(&j, id);
    json_key(&j, "boot");
    ids_hex(c->conf.ids->boot, id);
    json_cstr(&j, id);
    json_key(&j, "server");
    json_cstr(&j, c->conf.conf->url);
    json_key(&j, "upload");
    json_cstr(&j, u.state);
    json_key(&j, "kernel_symbols");
    json_cstr(&j, b.kernel_state);
    json_key(&j, "period_ns");
    json_dec_u64(&j, restrain_period(&c->restrain));
    json_key(&j, "asked_period_ns");
    json_dec_i64(&j, c->conf.conf->period_ns);
    status_more(c, &j);
    json_key(&j, "figures");
    json_object_begin(&j);
    for (uint32_t i = 0; i < f->n; i++) {
        const struct figure *g = &f->v[i];
        char name[64];

        (void)snprintf(name, sizeof name, "%s%s%s%s%s", g->name, g->python[0] ? "_" : "", g->python,
                       g->why ? "_" : "", g->why ? g->why : "");
        json_key(&j, name);
        json_dec_i64(&j, f->v[i].v);
    }
    json_object_end(&j);
    json_key(&j, "units"); /* of those that are no plain counts */
    json_object_begin(&j);
    for (uint32_t i = 0; i < f->n; i++) {
        if (f->v[i].why || strcmp(f->v[i].unit, "count") == 0)
            continue;
        json_key(&j, f->v[i].name);
        json_cstr(&j, f->v[i].unit);
    }
    json_object_end(&j);
    json_object_end(&j);
    free(f);
    buf_chr(out, '\n');
}

static void tell_changes(struct collector *c)
{
    struct batcher_stats b;
    struct upload_stats u;
    struct proc_stats p;
    char reader[READER_NEWS];

    proc_get_stats(c->procs, &p);
    if (reader_is_apart() && reader_news(reader))
        collector_event(c, "state", "%s", reader);
    if (source_step_news(c->steps, c->step_news))
        collector_event(c, "state", "%s", c->step_news);
    if (p.foreign_cgroups && !c->told_cgroupns) {
        c->told_cgroupns = true;
        collector_event(c, "cgroupns",
                        "paths of another cgroup namespace: containers have no names; run the "
                        "agent in the host's");
    }

    batcher_get_stats(c->conf.batcher, &b);
    if (b.kernel_state[0] && strcmp(c->told_kernel, b.kernel_state) != 0) {
        (void)snprintf(c->told_kernel, sizeof c->told_kernel, "%s", b.kernel_state);
        collector_event(c, "state", "source=kernel_symbols state=\"%s\"", b.kernel_state);
    }
    if (!c->conf.upload)
        return;
    upload_get_stats(c->conf.upload, &u);
    batcher_set_max_bytes(c->conf.batcher, u.max_bytes);
    /* the server's wish, up to a minute */
    if (u.min_interval_ns > c->conf.interval_ns && u.min_interval_ns <= 60 * NS_PER_S)
        c->conf.interval_ns = (u.min_interval_ns + NS_PER_S - 1) / NS_PER_S * NS_PER_S;
}

void collector_write_status(struct collector *c, const char *state)
{
    const char *path = c->conf.status_file;
    struct str p;
    char dir[4096];
    size_t slash;
    struct buf b;

    tell_changes(c);
    if (!path)
        return;
    p = str_c(path);
    slash = str_rfind(p, '/');
    p = slash == SIZE_MAX ? STR(".") : str_to(p, slash);
    (void)snprintf(dir, sizeof dir, "%.*s", STR_ARG(p));
    buf_init(&b, 1 << 20);
    status_json(c, state, &b);
    if (!b.failed)
        (void)procfile_exchange(dir, str_basename(str_c(path)).p, buf_view(&b), NULL);
    buf_deinit(&b);
}
