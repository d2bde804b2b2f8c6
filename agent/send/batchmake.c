// SPDX-License-Identifier: Apache-2.0
#include "agent/send/batchmake.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/send/batchmake_private.h"
#include "agent/source/account.h"
#include "agent/source/steptrack.h"
#include "base/hash.h"
#include "base/loss.h"
#include "base/time.h"
#include "proto/wire.h"

#define ARENA_CAP  ((size_t)256 << 20)
#define NAME_CAP   ((size_t)1 << 20)
#define MAX_EVENTS 64 /* of our own making, identities; beside those of the job */

/* ---- tables -------------------------------------------------------------------------------- */

uint32_t making_index(struct map *map, uint64_t key, uint32_t next, bool *ret_new)
{
    uint64_t *at;
    enum map_result r = map_at(map, key, &at);

    if (r == MAP_FULL)
        abort(); /* the arena's cap is far below what a map can hold */
    *ret_new = r == MAP_ADDED;
    if (*ret_new)
        *at = next;
    return (uint32_t)*at;
}

/* Of two that merely share a hash the second gets its own. */
uint32_t making_str(struct making *k, struct str s)
{
    bool is_new;
    uint32_t i;

    if (s.n == 0)
        return 0;
    i = making_index(&k->by_str, hash_str(s), k->str.n, &is_new);
    if (!is_new && str_eq(k->str.v[i], s))
        return i;
    i = k->str.n;
    *vec_push(&k->str) = arena_str(&k->arena, s);
    return i;
}

static uint32_t intern_c(struct making *k, const char *s)
{
    return making_str(k, str_c(s));
}

/* ---- who ----------------------------------------------------------------------------------- */

static struct batch_labels pairs_of(struct making *k, const struct label *l, uint32_t n)
{
    uint32_t *pair = arena_array(&k->arena, uint32_t, (size_t)(n ? n : 1) * 2);

    for (size_t i = 0; pair && i < n; i++) {
        pair[2 * i] = making_str(k, l[i].name);
        pair[2 * i + 1] = making_str(k, l[i].value);
    }
    return (struct batch_labels){pair ? n : 0, pair};
}

static uint32_t labels_index(struct making *k, struct batch_labels l)
{
    uint64_t key = l.n ? hash_bytes(l.pair, 2 * (size_t)l.n * sizeof *l.pair) : 1;
    bool is_new;
    uint32_t i = making_index(&k->by_labels, key, k->labels.n, &is_new);

    if (is_new)
        *vec_push(&k->labels) = l;
    return i;
}

/* Is this label said of the whole batch, by who started it? */
static bool overridden(const struct making *k, struct str name)
{
    for (uint32_t i = 0; i < k->m->conf.n_label; i++) {
        if (str_eq(k->m->conf.label[i].name, name))
            return true;
    }
    return false;
}

static uint32_t labels_of(struct making *k, const struct stackagg_who *who)
{
    struct label left[LABELS_MAX];
    uint32_t n = 0;

    for (uint32_t i = 0; i < who->n_label && n < LABELS_MAX; i++) {
        if (!overridden(k, who->label[i].name))
            left[n++] = who->label[i];
    }
    return labels_index(k, pairs_of(k, left, n));
}

/* One target per process life; of several states in one batch the last one shows. */
static uint32_t target_of(struct making *k, const struct stackagg_who *who)
{
    uint64_t key = target_id(&who->key) ^ (who->key.start.v ? 0 : hash_mix(who->host_pid));
    bool is_new;
    uint32_t i = making_index(&k->by_target, key, k->target.n, &is_new);
    struct batch_target *t;

    if (is_new)
        (void)vec_push(&k->target);
    struct batch_target made = {.key = who->key,
                                .host_pid = who->host_pid,
                                .exe = making_str(k, who->exe),
                                .cmdline = making_str(k, who->cmdline),
                                .comm = making_str(k, who->comm),
                                .cgroup = making_str(k, who->cgroup),
                                .container = making_str(k, who->container),
                                .env = pairs_of(k, who->env, who->n_env),
                                .flags = who->flags};
    t = &k->target.v[i];
    made.flags |= t->flags;
    *t = made;
    (void)map_put(&k->by_serial, who->serial, i);
    return i;
}

/* ---- streams ------------------------------------------------------------------------------- */

int making_columns(struct making *k, struct batchfold_columns *c, size_t n, struct err *err)
{
    *c = (struct batchfold_columns){.t = arena_array(&k->arena, real_ns, n),
                                    .node = arena_array(&k->arena, uint32_t, n),
                                    .target = arena_array(&k->arena, uint32_t, n),
                                    .tid = arena_array(&k->arena, uint32_t, n),
                                    .thread = arena_array(&k->arena, uint32_t, n),
                                    .labels = arena_array(&k->arena, uint32_t, n),
                                    .count = arena_array(&k->arena, uint64_t, n),
                                    .value = arena_array(&k->arena, int64_t, n),
                                    .by_period = true};
    if (!c->t || !c->node || !c->target || !c->tid || !c->thread || !c->labels || !c->count ||
        !c->value)
        return err_set(err, -ENOMEM, "batch: %zu rows do not fit", n);
    return 0;
}

/* Of its row of CPU time what it held Python's lock for. */
static void add_gil_row(const struct stackagg_row *r, const struct batchfold_columns *c,
                        uint32_t at, struct batchfold_columns *g)
{
    uint32_t n = g->n;

    if (r->gil_count == 0)
        return;
    g->n++;
    g->t[n] = c->t[at];
    g->node[n] = c->node[at];
    g->target[n] = c->target[at];
    g->labels[n] = c->labels[at];
    g->tid[n] = c->tid[at];
    g->thread[n] = c->thread[at];
    g->count[n] = r->gil_count;
    g->value[n] = r->gil_weight;
}

static void add_rows(struct making *k, const struct stackagg_window *w, struct making_rows *rows)
{
    struct batchfold_columns *c = &rows->cpu;
    uint32_t *target = arena_array(&k->arena, uint32_t, w->n_who ? w->n_who : 1);
    uint32_t *labels = arena_array(&k->arena, uint32_t, w->n_who ? w->n_who : 1);

    for (uint32_t i = 0; target && labels && i < w->n_who; i++) {
        target[i] = target_of(k, &w->who[i]);
        labels[i] = labels_of(k, &w->who[i]);
    }
    for (uint32_t i = 0; target && labels && i < w->n_row; i++) {
        const struct stackagg_row *r = &w->row[i];
        uint32_t n = c->n;

        if (r->off) {
            making_off_row(k, w, r, target[r->who], labels[r->who], rows);
            continue;
        }
        c->n++;
        c->t[n] = r->t;
        c->node[n] = making_stack(k, w, r);
        c->target[n] = target[r->who];
        c->labels[n] = labels[r->who];
        c->tid[n] = r->tid;
        c->thread[n] = making_str(k, (struct str){r->comm, strnlen(r->comm, sizeof r->comm)});
        c->count[n] = r->count;
        c->value[n] = r->weight;
        if (r->weight != (int64_t)r->count * w->account.period)
            c->by_period = false;
        add_gil_row(r, c, n, &rows->gil_held);
    }
}

void making_stream(struct making *k, const struct batch_stream *st,
                   const struct batchfold_columns *c)
{
    struct batchmake_dropped held = {.type = st->type,
                                     .why = LOSS_SPOOL_DROP,
                                     .first = 1,
                                     .covers = st->covers,
                                     .n = st->received,
                                     .width = st->width};

    for (uint32_t i = 0; i < c->n; i++)
        held.weight += c->value[i];
    batchmake_sum(&k->held, &held);
    *vec_push(&k->stream) = *st;
}

void making_lost(struct making *k, struct batch_stream *st, struct batch_loss *lost,
                 enum loss_reason why, uint64_t n, int64_t weight)
{
    if (n == 0 && weight == 0)
        return;
    lost[st->n_lost++] =
        (struct batch_loss){.why = making_str(k, loss_info(why)->name), .n = n, .weight = weight};
    st->expected += n;
}

static void own_event(struct making *k, real_ns t, const char *kind, const char *text)
{
    struct batch_event *e;
    uint32_t s_kind = intern_c(k, kind), s_text = intern_c(k, text);

    if (k->event.n >= k->job->n_event + MAX_EVENTS)
        return;
    e = vec_push(&k->event);
    *e = (struct batch_event){.t = t, .kind = s_kind, .text = s_text};
}

/* I1 and I2 were judged by the source; I3 here. */
static void check_identity(struct making *k, const struct stackagg_window *w)
{
    char text[ACCOUNT_TEXT];

    if (!w->account.identity_ok)
        own_event(k, w->account.covers.t1, "identity", w->account.identity_text);
    if (!account_i3((uint64_t)stackagg_weight(w), w->account.weight_ns, text))
        own_event(k, w->account.covers.t1, "identity", text);
}

struct batch_rows making_rows_of(const struct batchfold_columns *c)
{
    return (struct batch_rows){.n = c->n,
                               .t = c->t,
                               .node = c->node,
                               .target = c->target,
                               .tid = c->tid,
                               .thread = c->thread,
                               .labels = c->labels,
                               .count = c->count,
                               .value = c->by_period ? NULL : c->value};
}

/* What is known of ticks is known of who held the lock; what is lost of them may have held it. */
static int add_gil_stream(struct making *k, const struct batch_stream *cpu,
                          struct stackagg_window *const *w, uint32_t n_window,
                          struct batchfold_columns *g, struct err *err)
{
    struct batch_loss *lost = arena_array(&k->arena, struct batch_loss, cpu->n_lost + 1);
    struct batch_stream st = *cpu;
    uint64_t unreadable = 0;
    int64_t weight = 0;
    uint32_t n = 0;

    if (!lost)
        return err_set(err, -ENOMEM, "batch: no room for gil_held");
    st.type = PTYPE_GIL_HELD;
    st.received = 0;
    st.jitter = 0;
    for (uint32_t i = 0; i < n_window; i++) {
        st.received += w[i]->gil.known;
        unreadable += w[i]->gil.unreadable;
        weight += w[i]->gil.unreadable_weight;
    }
    st.expected = st.received;
    for (uint32_t i = 0; i < cpu->n_lost; i++) {
        lost[n] = cpu->lost[i];
        lost[n++].weight = BATCH_NO_WEIGHT;
        st.expected += cpu->lost[i].n;
    }
    st.lost = lost;
    st.n_lost = n;
    making_lost(k, &st, lost, LOSS_GIL_UNREADABLE, unreadable, weight);
    g->by_period = false;
    st.rows = making_rows_of(g);
    making_stream(k, &st, g);
    return 0;
}

/* Windows [from, to) have one period and one width. */
static int add_stream(struct making *k, uint32_t from, uint32_t to, struct err *err)
{
    struct stackagg_window *const *w = k->job->window;
    const struct source_account *first = &w[from]->account;
    struct source_account sum = {};
    struct batch_loss *lost = arena_array(&k->arena, struct batch_loss, 5);
    struct batch_stream st = {};
    struct making_rows rows = {};
    bool gil = false;
    size_t n = 0, n_off = 0;

    for (uint32_t i = from; i < to; i++) {
        for (uint32_t r = 0; r < w[i]->n_row; r++)
            n_off += w[i]->row[r].off;
        n += w[i]->n_row;
        gil |= w[i]->gil.on;
    }
    n -= n_off;
    TRY(making_columns(k, &rows.cpu, n, err));
    TRY(making_columns(k, &rows.gil_held, n, err));
    TRY(making_columns(k, &rows.offcpu, n_off, err));
    TRY(making_columns(k, &rows.runq, n_off, err));
    TRY(making_columns(k, &rows.gil_wait, n_off, err));
    for (uint32_t i = from; i < to; i++) {
        const struct source_account *a = &w[i]->account;

        check_identity(k, w[i]);
        add_rows(k, w[i], &rows);
        sum.received += a->received;
        sum.jitter += a->jitter;
        sum.kernel_hidden += a->kernel_hidden;
        sum.missed.n += a->missed.n;
        sum.missed.weight += a->missed.weight;
        sum.missed_idle.n += a->missed_idle.n;
        sum.missed_idle.weight += a->missed_idle.weight;
        sum.ring_full.n += a->ring_full.n;
        sum.ring_full.weight += a->ring_full.weight;
    }
    if (!lost || rows.cpu.n != n)
        return err_set(err, -ENOMEM, "batch: %zu rows do not fit", n);
    batchfold(&rows.cpu, first->covers.t0, k->job->fold);
    batchfold(&rows.gil_held, first->covers.t0, k->job->fold);
    k->rows += rows.cpu.n;
    st = (struct batch_stream){
        .type = PTYPE_CPU,
        .kind = KIND_SUM,
        .width = first->width ? first->width : 1,
        .covers = {first->covers.t0, w[to - 1]->account.covers.t1},
        .state = SOURCE_OK,
        .state_why = making_str(k, str_c(first->why)),
        .basis = first->scaled ? BASIS_SCALED : BASIS_PERIODIC,
        .period = first->period,
        .expected = sum.received,
        .received = sum.received,
        .jitter = sum.jitter,
        .lost = lost,
        .rows = making_rows_of(&rows.cpu),
    };
    making_lost(k, &st, lost, LOSS_TICKS_MISSED, sum.missed.n, sum.missed.weight);
    making_lost(k, &st, lost, LOSS_TICKS_MISSED_IDLE, sum.missed_idle.n, sum.missed_idle.weight);
    making_lost(k, &st, lost, LOSS_RING_FULL, sum.ring_full.n, sum.ring_full.weight);
    if (sum.kernel_hidden) { /* how many ticks that were cannot be known */
        lost[st.n_lost++] =
            (struct batch_loss){.why = making_str(k, loss_info(LOSS_KERNEL_HIDDEN)->name),
                                .n = BATCH_UNKNOWN,
                                .weight = (int64_t)sum.kernel_hidden};
        st.expected = BATCH_UNKNOWN;
    }
    making_stream(k, &st, &rows.cpu);
    if (gil)
        TRY(add_gil_stream(k, &st, w + from, to - from, &rows.gil_held, err));
    return making_off_streams(k, w + from, to - from, &st, &rows, err);
}

static int add_streams(struct making *k, struct err *err)
{
    struct stackagg_window *const *w = k->job->window;
    uint32_t from = 0;

    for (uint32_t i = 1; i <= k->job->n_window; i++) {
        if (i < k->job->n_window && w[i]->account.period == w[from]->account.period &&
            w[i]->account.width == w[from]->account.width && w[i]->gil.on == w[from]->gil.on &&
            w[i]->off.on == w[from]->off.on && w[i]->off.scoped == w[from]->off.scoped &&
            w[i]->account.covers.t0.v == w[i - 1]->account.covers.t1.v)
            continue;
        TRY(add_stream(k, from, i, err));
        from = i;
    }
    return 0;
}

void batchmake_add(struct batchmake_dropped *sum, const struct batchmake_dropped *d)
{
    if (d->covers.t0.v < sum->covers.t0.v)
        sum->covers.t0 = d->covers.t0;
    if (d->covers.t1.v > sum->covers.t1.v)
        sum->covers.t1 = d->covers.t1;
    sum->n += d->n;
    if (sum->weight == BATCH_NO_WEIGHT || d->weight == BATCH_NO_WEIGHT)
        sum->weight = BATCH_NO_WEIGHT;
    else
        sum->weight += d->weight;
}

void batchmake_sum(struct batchmake_sums *s, const struct batchmake_dropped *d)
{
    uint32_t i = 0;

    if (d->covers.t0.v >= d->covers.t1.v)
        return;
    while (i < s->n && s->v[i].type != d->type)
        i++;
    if (i < s->n) {
        batchmake_add(&s->v[i], d);
        return;
    }
    assert(s->n < PTYPE_BUILTIN_END);
    s->v[s->n++] = *d;
}

/* What the spool gave up: streams without rows over its time, so that the hole is seen as loss. */
static int add_dropped(struct making *k, struct err *err)
{
    for (uint32_t i = 0; i < k->job->n_dropped; i++) {
        const struct batchmake_dropped *d = &k->job->dropped[i];
        struct batch_loss *lost = arena_array(&k->arena, struct batch_loss, 1);
        bool by_ticks = d->type == PTYPE_CPU || d->type == PTYPE_GIL_HELD;
        struct batch_stream st = {.type = d->type,
                                  .kind = ptype_builtin((ptype_id)d->type)->kind,
                                  .width = d->width ? d->width : 1,
                                  .covers = d->covers,
                                  .state = SOURCE_OK,
                                  .basis = by_ticks ? BASIS_PERIODIC : BASIS_EVERY,
                                  .lost = lost};

        if (!lost)
            return err_set(err, -ENOMEM, "batch: no room for what was dropped");
        if (d->covers.t0.v >= d->covers.t1.v)
            continue;
        making_lost(k, &st, lost, d->why, d->n, d->weight);
        *vec_push(&k->stream) = st;
    }
    return 0;
}

/* ---- beside -------------------------------------------------------------------------------- */

static void add_metrics(struct making *k)
{
    for (uint32_t i = 0; i < k->job->n_metric; i++) {
        const struct batchmake_metric *m = &k->job->metric[i];
        real_ns *t = arena_new(&k->arena, real_ns);
        int64_t *v = arena_new(&k->arena, int64_t);
        uint64_t target = 0;
        uint32_t name = intern_c(k, m->name), unit = intern_c(k, m->unit);
        struct label l[2];
        uint32_t n = 0;

        if (m->python[0])
            l[n++] = (struct label){STR("python"), str_c(m->python)};
        if (m->why)
            l[n++] = (struct label){STR("why"), str_c(m->why)};
        if (!t || !v || (m->serial && !map_get(&k->by_serial, m->serial, &target)))
            continue; /* a process without a row in this batch has no target here */
        *t = m->t;
        *v = m->v;
        *vec_push(&k->metric) =
            (struct batch_metric){.name = name,
                                  .unit = unit,
                                  .kind = m->counter ? METRIC_COUNTER : METRIC_GAUGE,
                                  .labels = n ? labels_index(k, pairs_of(k, l, n)) : 0,
                                  .target = (uint32_t)target,
                                  .n = 1,
                                  .t = t,
                                  .inum = v};
    }
}

struct step_ref {
    uint32_t target, name;
    const struct stackagg_who *who;
    const struct stackagg_step *s;
};

static int step_order(const void *a, const void *b)
{
    const struct step_ref *x = a, *y = b;

    if (x->target != y->target)
        return x->target < y->target ? -1 : 1;
    if (x->name != y->name)
        return x->name < y->name ? -1 : 1;
    return x->s->t0.v < y->s->t0.v ? -1 : x->s->t0.v > y->s->t0.v;
}

/* The process's labels, by which it is found even where it used no CPU time, and the step's own. */
static uint32_t step_labels(struct making *k, const struct stackagg_who *who,
                            const struct stackagg_step *s)
{
    struct label l[LABELS_MAX + STEPTRACK_ATTRS + 1];
    uint32_t n = 0;

    for (; n < who->n_label && n < LABELS_MAX; n++)
        l[n] = who->label[n];
    for (uint32_t i = 0, n_who = n; i < s->n_label; i++) {
        uint32_t same = 0;

        while (same < n_who && !str_eq(l[same].name, s->label[i].name))
            same++;
        if (same == n_who && n < sizeof l / sizeof *l)
            l[n++] = s->label[i];
    }
    return labels_index(k, pairs_of(k, l, n));
}

/* Steps [from, to) of one target and name. */
static int add_step_group(struct making *k, const struct step_ref *r, uint32_t n, struct err *err)
{
    uint64_t *number = arena_array(&k->arena, uint64_t, n);
    real_ns *start = arena_array(&k->arena, real_ns, n);
    int64_t *dur = arena_array(&k->arena, int64_t, n);
    uint32_t *tid = arena_array(&k->arena, uint32_t, n);
    uint32_t *labels = arena_array(&k->arena, uint32_t, n);

    if (!number || !start || !dur || !tid || !labels)
        return err_set(err, -ENOMEM, "batch: %u steps do not fit", n);
    for (uint32_t i = 0; i < n; i++) {
        number[i] = r[i].s->number;
        start[i] = r[i].s->t0;
        dur[i] = r[i].s->dur;
        tid[i] = r[i].s->tid;
        labels[i] = step_labels(k, r[i].who, r[i].s);
    }
    *vec_push(&k->steps) = (struct batch_steps){.target = r->target,
                                                .name = r->name,
                                                .n = n,
                                                .number = number,
                                                .start = start,
                                                .dur_ns = dur,
                                                .tid = tid,
                                                .labels = labels};
    return 0;
}

static int add_steps(struct making *k, struct err *err)
{
    struct step_ref *r;
    uint32_t n = 0, all = 0;

    for (uint32_t i = 0; i < k->job->n_window; i++)
        all += k->job->window[i]->n_step;
    if (all == 0)
        return 0;
    r = arena_array(&k->arena, struct step_ref, all);
    if (!r)
        return err_set(err, -ENOMEM, "batch: %u steps do not fit", all);
    for (uint32_t i = 0; i < k->job->n_window; i++) {
        const struct stackagg_window *w = k->job->window[i];

        for (uint32_t s = 0; s < w->n_step; s++)
            r[n++] = (struct step_ref){target_of(k, &w->who[w->step[s].who]),
                                       making_str(k, w->step[s].name), &w->who[w->step[s].who],
                                       &w->step[s]};
    }
    qsort(r, n, sizeof *r, step_order);
    for (uint32_t i = 0, first = 0; i < n; i++) {
        if (i + 1 < n && r[i + 1].target == r[first].target && r[i + 1].name == r[first].name)
            continue;
        TRY(add_step_group(k, r + first, i + 1 - first, err));
        first = i + 1;
    }
    return 0;
}

static void add_events(struct making *k)
{
    for (uint32_t i = 0; i < k->job->n_event; i++) {
        const struct batchmake_event *e = &k->job->event[i];
        uint32_t kind = intern_c(k, e->kind), text = intern_c(k, e->text);

        *vec_push(&k->event) = (struct batch_event){.t = e->t, .kind = kind, .text = text};
    }
}

/* ---- the batch ----------------------------------------------------------------------------- */

static void making_init(struct making *k, struct batchmake *m, const struct batchmake_job *job)
{
    *k = (struct making){.m = m, .job = job, .now = mono_now().v};
    arena_init(&k->arena, ARENA_CAP);
    buf_init(&k->name, NAME_CAP);
    (void)vec_push(&k->str);
    (void)vec_push(&k->bin);
    (void)vec_push(&k->fn);
    (void)vec_push(&k->frame);
    (void)vec_push(&k->node);
    (void)vec_push(&k->target);
    (void)vec_push(&k->labels);
}

static void making_deinit(struct making *k)
{
    struct map *maps[] = {&k->by_str,    &k->by_bin,    &k->by_fn,    &k->by_user,   &k->by_jit,
                          &k->by_kernel, &k->by_pseudo, &k->by_node,  &k->by_target, &k->by_serial,
                          &k->by_labels, &k->by_python, &k->by_holder};

    for (size_t i = 0; i < sizeof maps / sizeof maps[0]; i++)
        map_deinit(maps[i]);
    arena_deinit(&k->arena);
    buf_deinit(&k->name);
    free(k->str.v);
    free(k->bin.v);
    free(k->fn.v);
    free(k->frame.v);
    free(k->chain.v);
    free(k->link.v);
    free(k->node.v);
    free(k->target.v);
    free(k->labels.v);
    free(k->stream.v);
    free(k->metric.v);
    free(k->event.v);
    free(k->steps.v);
}

/* Where its observations are from: the windows of a batch have one source. */
static const char *source_of(const struct making *k)
{
    const char *own = k->job->n_window ? k->job->window[0]->account.source : NULL;

    if (own)
        return own;
    return k->m->conf.source ? k->m->conf.source : "agent";
}

static struct batch_labels batch_label(struct making *k)
{
    const struct batchmake_conf *c = &k->m->conf;
    struct label l[LABELS_MAX] = {{STR("host"), str_c(k->m->hostname)},
                                  {STR("source"), str_c(source_of(k))}};
    struct str list = c->labels;
    struct labels_counts counts = {}; /* they were checked at the start */
    struct label item;
    uint32_t n = 2;

    for (uint32_t i = 0; i < c->n_label; i++)
        labels_add(l, &n, LABELS_MAX, c->label[i], &k->arena, &counts);
    while (labels_next(&list, &item))
        labels_add(l, &n, LABELS_MAX, item, &k->arena, &counts);
    return pairs_of(k, l, n);
}

static int assemble(struct making *k, uint64_t seq, struct batch *b, struct err *err)
{
    struct seq_range *dropped =
        arena_array(&k->arena, struct seq_range, k->job->n_dropped ? k->job->n_dropped : 1);

    TRY(add_streams(k, err));
    TRY(add_dropped(k, err));
    TRY(add_steps(k, err));
    add_metrics(k);
    add_events(k);
    *b = (struct batch){.id = {.seq = seq},
                        .agent_version = intern_c(k, k->m->version),
                        .clock = k->job->clock,
                        .label = batch_label(k)};
    memcpy(b->id.agent, k->m->conf.agent, 16);
    memcpy(b->id.boot, k->m->conf.boot, 16);
    for (uint32_t i = 0; dropped && i < k->job->n_dropped; i++) {
        if (k->job->dropped[i].first <= k->job->dropped[i].last)
            dropped[b->n_dropped++] =
                (struct seq_range){k->job->dropped[i].first, k->job->dropped[i].last};
    }
    b->dropped = dropped;
    b->n_str = k->str.n;
    b->str = k->str.v;
    b->n_bin = k->bin.n;
    b->bin = k->bin.v;
    b->n_fn = k->fn.n;
    b->fn = k->fn.v;
    b->n_frame = k->frame.n;
    b->frame = k->frame.v;
    b->n_node = k->node.n;
    b->node = k->node.v;
    b->n_target = k->target.n;
    b->target = k->target.v;
    b->n_labels = k->labels.n;
    b->labels = k->labels.v;
    b->n_stream = k->stream.n;
    b->stream = k->stream.v;
    b->n_metric = k->metric.n;
    b->metric = k->metric.v;
    b->n_steps = k->steps.n;
    b->steps = k->steps.v;
    b->n_event = k->event.n;
    b->event = k->event.v;
    return batch_check(b, err);
}

static void sum_up(const struct making *k, struct batchmake_info *info)
{
    const struct batchmake_job *job = k->job;

    info->nodes = k->node.n - 1;
    info->targets = k->target.n - 1;
    info->rows = k->rows;
    info->held = k->held;
    if (job->n_window) {
        info->covers.t0 = job->window[0]->account.covers.t0;
        info->covers.t1 = job->window[job->n_window - 1]->account.covers.t1;
    }
}

int batchmake_make(struct batchmake *m, const struct batchmake_job *job, uint64_t seq,
                   struct buf *out, struct batchmake_info *ret, struct err *err)
{
    struct batchmake_info info = {};
    struct making k;
    struct batch b;
    int r;

    making_init(&k, m, job);
    r = assemble(&k, seq, &b, err);
    if (r == 0)
        r = wire_encode(&b, out, &info.content, err);
    if (r == 0) {
        sum_up(&k, &info);
        *ret = info;
    }
    making_deinit(&k);
    return r;
}

struct names *batchmake_names(struct batchmake *m)
{
    return m->names;
}

struct jits *batchmake_jits(struct batchmake *m)
{
    return m->jits;
}

struct lines *batchmake_lines(struct batchmake *m)
{
    return m->lines;
}

struct batchmake *batchmake_new(const struct batchmake_conf *c)
{
    struct batchmake *m = xcalloc(1, sizeof *m);
    struct buf text;

    m->conf = *c;
    m->names = names_new(&c->names);
    m->jits = jits_new(c->names.proc, false);
    if (lines_start(&c->lines, &m->lines, NULL) < 0) { /* no thread: without lines */
        const struct lines_conf off = {.mode = LINES_OFF};

        (void)lines_start(&off, &m->lines, NULL);
    }
    buf_init(&text, 4096);
    buf_str(&text, c->hostname);
    buf_chr(&text, '\0');
    m->hostname = xstrdup(text.p);
    buf_reset(&text);
    buf_str(&text, c->version);
    buf_chr(&text, '\0');
    m->version = xstrdup(text.p);
    buf_deinit(&text);
    return m;
}

struct batchmake *batchmake_free(struct batchmake *m)
{
    if (!m)
        return NULL;
    names_free(m->names);
    jits_free(m->jits);
    lines_stop(m->lines);
    free(m->hostname);
    free(m->version);
    free(m);
    return NULL;
}
