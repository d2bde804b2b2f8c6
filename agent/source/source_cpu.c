// SPDX-License-Identifier: Apache-2.0
/*
 * A poll first copies the accounts of all CPUs, then drains the ring. The programs write a tick's
 * account and its record inside one odd seq, so the records up to an account's last_t are exactly
 * those that it counts; later ones are held for the next poll. Hence the sums of a window are equal
 * in integers, not nearly.
 */
#include "agent/source/source_cpu.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/source/account.h"
#include "agent/source/bpf_load.h"
#include "agent/source/clock.h"
#include "base/arena.h"
#include "base/time.h"

#define STAT_PATH     "/proc/stat"
#define POLL_CPU_NS   (900 * NS_PER_MS) /* once a second, by polls that jitter */
#define CLOCK_STEP_NS (10 * NS_PER_MS)

struct source_cpu {
    struct bpf_load *bpf;
    struct tables *tables;
    const char *stat_path;
    uint32_t n_cpu;
    uint64_t period_ns;
    bool period_changed; /* inside this window */
    struct sa_acct *now; /* by CPU: at the last poll */
    struct sa_acct *at0; /* at the window's begin */
    uint64_t *got;       /* by CPU: weight that the sink took in this window */
    uint64_t *filtered;  /* by CPU: that it left out, beside what the programs filter */
    uint64_t *stat, *stat0;
    struct account_carry *carry; /* by CPU */
    uint64_t stop[16];
    real_ns t0; /* the window's begin */
    int64_t real_minus_mono;
    mono_ns opened, cpus_polled;
    /* records beyond their CPU's account */
    uint8_t *held;
    size_t n_held, cap_held;
    const struct source_sink *sink; /* during a poll */
};

static size_t ev_size(const struct sa_ev *ev)
{
    return sizeof *ev + 8 * ((size_t)ev->nk + ev->nu);
}

void source_cpu_touch(struct source_cpu *s, const struct sa_ev *ev)
{
    uint32_t last = 0;

    for (uint32_t i = ev->nk; i < (uint32_t)ev->nk + ev->nu; i += sa_words(ev->w[i])) {
        uint32_t bin = SA_W_BIN(ev->w[i]);

        if ((ev->w[i] & SA_W_TAG) != SA_W_NATIVE || bin == last)
            continue;
        tables_seen(s->tables, bin);
        last = bin;
    }
    if (ev->stop == SA_S_NOTABLE && ev->nu) {
        uint64_t w = sa_last_native(ev);
        struct binary *b = (w & SA_W_TAG) == SA_W_NATIVE ? binary_by_id(SA_W_BIN(w)) : NULL;

        if (b)
            tables_want(s->tables, b);
        (void)binary_unref(b);
    }
}

static void give(struct source_cpu *s, const struct sa_ev *ev)
{
    real_ns t = {(int64_t)ev->t_ns + s->real_minus_mono};

    if (t.v < s->t0.v) /* held over the window's edge */
        t = s->t0;
    if (!s->sink->sample(s->sink->ctx, ev, t)) {
        s->filtered[ev->cpu] += ev->weight_ns;
        return;
    }
    s->got[ev->cpu] += ev->weight_ns;
    s->stop[ev->stop & 15]++;
    source_cpu_touch(s, ev);
}

static bool counted(const struct source_cpu *s, const struct sa_ev *ev)
{
    return ev->t_ns <= s->now[ev->cpu].last_t;
}

static void hold(struct source_cpu *s, const struct sa_ev *ev)
{
    size_t n = ev_size(ev);

    if (s->n_held + n > s->cap_held) {
        s->cap_held = (s->n_held + n) * 2;
        s->held = xrealloc(s->held, s->cap_held);
    }
    memcpy(s->held + s->n_held, ev, n);
    s->n_held += n;
}

static void on_record(void *ctx, const struct sa_ev *ev)
{
    struct source_cpu *s = ctx;

    if (counted(s, ev))
        give(s, ev);
    else
        hold(s, ev);
}

static void give_held(struct source_cpu *s)
{
    size_t left = 0;

    for (size_t at = 0; at < s->n_held;) {
        const struct sa_ev *ev = (const void *)(s->held + at);
        size_t n = ev_size(ev);

        if (counted(s, ev)) {
            give(s, ev);
        } else {
            memmove(s->held + left, ev, n);
            left += n;
        }
        at += n;
    }
    s->n_held = left;
}

int source_cpu_poll(struct source_cpu *s, const struct source_sink *sink, struct err *err)
{
    int r = 0, e;

    if (mono_now().v - s->cpus_polled.v >= POLL_CPU_NS) {
        s->cpus_polled = mono_now();
        r = bpf_load_poll_cpus(s->bpf, err);
    }
    s->sink = sink;
    e = bpf_load_acct(s->bpf, s->now);
    if (e < 0)
        return err_set(err, e, "read the accounts of the CPUs: %s", strerrordesc_np(-e));
    give_held(s);
    e = bpf_load_drain(s->bpf, on_record, s);
    if (e < 0)
        return err_set(err, e, "read the ring of samples: %s", strerrordesc_np(-e));
    tables_tick(s->tables);
    return r < 0 ? r : 0;
}

static int64_t last_tick(const struct source_cpu *s, uint32_t cpu)
{
    return s->now[cpu].last_t ? (int64_t)s->now[cpu].last_t : s->opened.v;
}

/* One CPU's part of the window. */
static void add_cpu(struct source_cpu *s, uint32_t cpu, struct source_account *ret)
{
    struct account_delta d = account_delta(&s->at0[cpu], &s->now[cpu]);
    const struct account_seen seen = {
        .stat_idle = s->stat[cpu] - s->stat0[cpu],
        .open = (uint64_t)(mono_now().v - last_tick(s, cpu)),
        .window = (uint64_t)(ret->covers.t1.v - ret->covers.t0.v),
        .period = s->period_ns,
    };
    uint64_t idle = account_missed_idle(&d, &seen, &s->carry[cpu]);
    uint64_t period = s->period_changed ? 0 : s->period_ns;
    uint64_t n_idle = (idle + s->period_ns / 2) / s->period_ns;

    if (n_idle > d.missed_ticks || idle == d.missed)
        n_idle = d.missed_ticks;
    ret->received += d.ticks - d.lost_n;
    ret->jitter += d.jitter;
    ret->busy_ns += d.busy;
    ret->idle_ns += d.idle;
    d.filtered += s->filtered[cpu];
    ret->filtered_ns += d.filtered;
    ret->weight_ns += s->got[cpu];
    ret->missed_idle.n += n_idle;
    ret->missed_idle.weight += (int64_t)idle;
    ret->missed.n += d.missed_ticks - n_idle;
    ret->missed.weight += (int64_t)(d.missed - idle);
    ret->ring_full.n += d.lost_n;
    ret->ring_full.weight += (int64_t)d.lost_ns;
    ret->bpf_ns += d.bpf_ns;
    if (ret->identity_ok)
        ret->identity_ok = account_i1(cpu, &d, period, ret->identity_text) &&
                           account_i2(cpu, &d, s->got[cpu], ret->identity_text);
}

static void take_clock(struct source_cpu *s)
{
    struct clock_pair p = clock_pair_now();

    s->real_minus_mono = p.real.v - p.mono.v;
}

void source_cpu_account(struct source_cpu *s, real_ns t1, struct source_account *ret)
{
    int64_t offset = s->real_minus_mono;

    take_clock(s);
    offset = s->real_minus_mono - offset;
    if (offset > CLOCK_STEP_NS || offset < -CLOCK_STEP_NS)
        s->t0.v += offset; /* set, or the machine slept: the window began where it is now */
    *ret = (struct source_account){
        .covers = {s->t0, t1.v < s->t0.v ? s->t0 : t1},
        .width = bpf_load_width(s->bpf),
        .period = (int64_t)s->period_ns,
        .identity_ok = true,
    };
    /* unreadable: idle by the ticks alone */
    if (account_read_stat(s->stat_path, s->stat, s->n_cpu) < 0)
        memcpy(s->stat, s->stat0, s->n_cpu * sizeof *s->stat);
    for (uint32_t i = 0; i < s->n_cpu; i++)
        add_cpu(s, i, ret);
    memcpy(ret->stop, s->stop, sizeof ret->stop);
    memset(s->stop, 0, sizeof s->stop);
    memset(s->got, 0, s->n_cpu * sizeof *s->got);
    memset(s->filtered, 0, s->n_cpu * sizeof *s->filtered);
    memcpy(s->at0, s->now, s->n_cpu * sizeof *s->at0);
    memcpy(s->stat0, s->stat, s->n_cpu * sizeof *s->stat0);
    s->period_changed = false;
    s->t0 = ret->covers.t1;
}

int source_cpu_set_period(struct source_cpu *s, uint64_t period_ns, struct err *err)
{
    s->period_ns = period_ns;
    s->period_changed = true;
    return bpf_load_set_period(s->bpf, period_ns, err);
}

int source_cpu_ring_fd(const struct source_cpu *s)
{
    return bpf_load_ring_fd(s->bpf);
}

void source_cpu_wake(struct source_cpu *s, uint32_t stops)
{
    bpf_load_wake(s->bpf, stops);
}

int source_cpu_watch(struct source_cpu *s, uint32_t tgid, bool on, struct err *err)
{
    return bpf_load_watch(s->bpf, tgid, on, err);
}

bool source_cpu_watches(const struct source_cpu *s, uint32_t tgid)
{
    return bpf_load_watches(s->bpf, tgid);
}

uint64_t source_cpu_watch_full(const struct source_cpu *s)
{
    return bpf_load_watch_full(s->bpf);
}

const struct bpf_load *source_cpu_bpf(const struct source_cpu *s)
{
    return s->bpf;
}

struct tables *source_cpu_tables(struct source_cpu *s)
{
    return s->tables;
}

uint64_t source_cpu_map_bytes(const struct source_cpu *s)
{
    struct tables_stats st;

    tables_get_stats(s->tables, &st);
    return bpf_load_map_bytes(s->bpf) + st.bytes;
}

int source_cpu_open(struct source_cpu **ret, const struct source_cpu_opts *opts, struct err *err)
{
    const struct bpf_load_opts lo = {.period_ns = opts->period_ns,
                                     .ring_bytes = opts->ring_bytes,
                                     .watch = opts->watch,
                                     .online_path = opts->online_path,
                                     .no_user = opts->no_user,
                                     .no_fallback_fp = opts->no_fallback_fp,
                                     .no_bpf_loop = opts->no_bpf_loop,
                                     .fake_cpus = opts->fake_cpus};
    const struct tables_opts to = {.budget = opts->table_budget};
    struct source_cpu *s = xcalloc(1, sizeof *s);
    struct tables_io io;
    int r;

    s->stat_path = opts->stat_path ? opts->stat_path : STAT_PATH;
    s->period_ns = opts->period_ns;
    take_clock(s);
    s->t0 = clock_real();
    s->opened = s->cpus_polled = mono_now();
    r = bpf_load_open(&s->bpf, &lo, err);
    if (r == 0) {
        io = bpf_load_tables_io(s->bpf);
        r = tables_open(&s->tables, &io, &to, err);
    }
    if (r < 0) {
        (void)source_cpu_close(s);
        return r;
    }
    s->n_cpu = bpf_load_cpus(s->bpf);
    s->now = xcalloc(s->n_cpu, sizeof *s->now);
    s->at0 = xcalloc(s->n_cpu, sizeof *s->at0);
    s->got = xcalloc(s->n_cpu, sizeof *s->got);
    s->filtered = xcalloc(s->n_cpu, sizeof *s->filtered);
    s->stat = xcalloc(s->n_cpu, sizeof *s->stat);
    s->stat0 = xcalloc(s->n_cpu, sizeof *s->stat0);
    s->carry = xcalloc(s->n_cpu, sizeof *s->carry);
    (void)account_read_stat(s->stat_path, s->stat0, s->n_cpu);
    memcpy(s->stat, s->stat0, s->n_cpu * sizeof *s->stat);
    *ret = s;
    return 0;
}

struct source_cpu *source_cpu_close(struct source_cpu *s)
{
    if (!s)
        return NULL;
    (void)tables_close(s->tables);
    (void)bpf_load_close(s->bpf);
    free(s->now);
    free(s->at0);
    free(s->got);
    free(s->filtered);
    free(s->stat);
    free(s->stat0);
    free(s->carry);
    free(s->held);
    free(s);
    return NULL;
}
