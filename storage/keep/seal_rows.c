// SPDX-License-Identifier: Apache-2.0
/*
 * The parts of a frozen head: one file per hour. Rows go where they begin, and so do records,
 * points, steps and events. Rows of one (type, trie) are taken a stretch of time at once, so that
 * memory does not grow with the head: sorted, cut into blocks, encoded.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "storage/file/db_private.h"
#include "storage/keep/seal_private.h"

#define HOUR_MS      INT64_C(3600000)
#define STRETCH_ROWS (4 * BLOCK_ROWS) /* at once, where time can be cut so */
#define STRETCHES    3600u            /* of an hour: seconds */
#define SEAL_ARENA   ((size_t)1 << 31)

static int64_t hour_of(int64_t ms)
{
    return ms / HOUR_MS - (ms % HOUR_MS < 0);
}

/* ---- hours --------------------------------------------------------------------------------- */

struct hours {
    uint32_t n, room;
    int64_t *v; /* rising */
};

static bool add_hour(struct hours *l, int64_t hour)
{
    uint32_t i = l->n;

    while (i > 0 && l->v[i - 1] > hour)
        i--;
    if (i > 0 && l->v[i - 1] == hour)
        return true;
    if (l->n == l->room) {
        uint32_t room = l->room ? 2 * l->room : 16;
        int64_t *v = mem_fail_now() ? NULL : realloc(l->v, room * sizeof *v);

        if (!v)
            return false;
        l->v = v;
        l->room = room;
    }
    memmove(l->v + i + 1, l->v + i, (l->n - i) * sizeof *l->v);
    l->v[i] = hour;
    l->n++;
    return true;
}

static bool row_hours(struct hours *l, const struct head *h)
{
    for (uint32_t k = 0; k < h->group.n; k++) {
        const struct head_group *g = head_group_at(h, k);

        for (uint32_t ci = 0; ci < g->chunk.n; ci++) {
            const struct head_chunk *c = *VEC(&g->chunk, struct head_chunk *, ci);
            int64_t last = hour_of(c->min_ms);
            struct head_rows r;

            head_rows_of(c, &r);
            if (c->n == 0)
                continue;
            if (!add_hour(l, last))
                return false;
            for (uint32_t i = 0; hour_of(c->max_ms) != last && i < c->n; i++) {
                if (!add_hour(l, hour_of(head_ms(&r, i))))
                    return false;
            }
        }
    }
    return true;
}

static bool local_hours(struct hours *l, const struct local *x)
{
    bool ok = true;

    for (uint32_t i = 0; ok && i < x->cover.n; i++)
        ok = add_hour(l, hour_of(ms_floor(VEC(&x->cover, struct local_cover, i)->t.t0)));
    for (uint32_t i = 0; ok && i < x->step.n; i++)
        ok = add_hour(l, hour_of(ms_floor(VEC(&x->step, struct local_step, i)->t.t0)));
    for (uint32_t i = 0; ok && i < x->event.n; i++)
        ok = add_hour(l, hour_of(ms_floor(VEC(&x->event, struct local_event, i)->t)));
    for (uint32_t i = 0; ok && i < x->metric.n; i++) {
        const struct local_metric *m = VEC(&x->metric, struct local_metric, i);

        for (uint32_t k = 0; ok && k < m->n; k++)
            ok = add_hour(l, hour_of(ms_floor(m->t[k])));
    }
    return ok;
}

/* ---- rows ---------------------------------------------------------------------------------- */

struct sealing {
    const struct head *h;
    struct part_writer *w;
    struct arena tmp;
    const struct head_group *g;
    bool level;
};

/* Columns that some chunk of the group needs. */
struct columns {
    bool value, count, cpu, var, period;
    int64_t v;
};

static struct columns columns_of(const struct head_group *g)
{
    struct columns r = {};

    for (uint32_t ci = 0; ci < g->chunk.n; ci++) {
        const struct head_chunk *c = *VEC(&g->chunk, struct head_chunk *, ci);

        struct head_rows rows;

        head_rows_of(c, &rows);
        r.value |= rows.column[HEAD_VALUE] != NULL;
        r.count |= head_differs(&rows, HEAD_COUNT, 1);
        r.cpu |= head_differs(&rows, HEAD_CPU, 0);
        r.var |= rows.column[HEAD_VAR] || !isnan(head_var(&rows, 0));
        r.period |= ci > 0 && c->period != r.v;
        r.v = c->period;
    }
    return r;
}

static bool columns_new(struct sealing *s, const struct columns *c, uint32_t n,
                        struct block_rows *b)
{
    struct arena *a = &s->tmp;

    *b = (struct block_rows){.ms = arena_array(a, int64_t, n),
                             .series = arena_array(a, uint32_t, n),
                             .thread = arena_array(a, uint32_t, n),
                             .node = arena_array(a, uint32_t, n),
                             .count = c->count ? arena_array(a, uint64_t, n) : NULL,
                             .value = c->value || c->period ? arena_array(a, int64_t, n) : NULL,
                             .cpu = c->cpu ? arena_array(a, uint32_t, n) : NULL,
                             .var = c->var ? arena_array(a, float, n) : NULL,
                             .held = s->level ? arena_array(a, uint32_t, n) : NULL,
                             .attr = s->level ? arena_array(a, uint32_t, n) : NULL,
                             .period = c->v};
    return b->ms && b->series && b->thread && b->node && (b->count || !c->count) &&
           (b->value || !(c->value || c->period)) && (b->cpu || !c->cpu) && (b->var || !c->var) &&
           ((b->held && b->attr) || !s->level);
}

/* Rows of a chunk that are looked at together. */
#define RUN 256u

/* Their times. A level's row is its reading: its time is that of the record. */
static void run_times(const struct sealing *s, const struct head_rows *r, uint32_t i, uint32_t n,
                      int64_t *ms)
{
    uint64_t v[RUN];

    head_numbers(r, HEAD_TIME, i, n, v);
    for (uint32_t k = 0; k < n; k++)
        ms[k] = head_ms_of(r, v[k]);
    for (uint32_t k = 0; s->level && k < n; k++) {
        uint32_t cover = head_u32(r, HEAD_COVER, i + k);

        if (cover)
            ms[k] = ms_floor(VEC(&s->h->local.cover, struct local_cover, cover - 1)->t.t0);
    }
}

static bool put_readings(struct sealing *s, const struct head_rows *r, uint32_t i, uint32_t n,
                         struct block_rows *b)
{
    for (uint32_t k = 0; k < n; k++) {
        uint32_t cover = head_u32(r, HEAD_COVER, i + k);
        const struct local_cover *c;
        int64_t held;

        if (cover == 0)
            continue;
        c = VEC(&s->h->local.cover, struct local_cover, cover - 1);
        held = ms_floor(c->t.t1) - ms_floor(c->t.t0);
        b->held[b->n + k] = held > UINT32_MAX ? UINT32_MAX : (uint32_t)held;
        b->attr[b->n + k] = part_scope(s->w, c->scope);
        if (b->attr[b->n + k] == UINT32_MAX)
            return false;
    }
    return true;
}

static bool put_threads(struct sealing *s, const uint64_t *v, uint32_t n, uint32_t *to)
{
    for (uint32_t k = 0; k < n; k++) {
        to[k] = k && v[k] == v[k - 1] ? to[k - 1] : part_thread(s->w, (uint32_t)v[k]);
        if (to[k] == UINT32_MAX)
            return false;
    }
    return true;
}

static void narrow(const uint64_t *v, uint32_t n, uint32_t *to)
{
    for (uint32_t k = 0; k < n; k++)
        to[k] = (uint32_t)v[k];
}

/* Rows [i, i + n) of a chunk, at most RUN, behind those of b. False: memory is short. */
static bool put_run(struct sealing *s, const struct head_rows *r, uint32_t i, uint32_t n,
                    const int64_t *ms, struct block_rows *b)
{
    uint32_t at = b->n;
    uint64_t v[RUN];

    memcpy(b->ms + at, ms, n * sizeof *ms);
    head_numbers(r, HEAD_SERIES, i, n, v);
    narrow(v, n, b->series + at);
    head_numbers(r, HEAD_NODE, i, n, v);
    narrow(v, n, b->node + at);
    head_numbers(r, HEAD_THREAD, i, n, v);
    if (!put_threads(s, v, n, b->thread + at) || (b->held && !put_readings(s, r, i, n, b)))
        return false;
    if (b->count)
        head_numbers(r, HEAD_COUNT, i, n, b->count + at);
    for (uint32_t k = 0; b->value && k < n; k++)
        b->value[at + k] = head_value(r, i + k);
    if (b->cpu) {
        head_numbers(r, HEAD_CPU, i, n, v);
        narrow(v, n, b->cpu + at);
    }
    for (uint32_t k = 0; b->var && k < n; k++)
        b->var[at + k] = (float)head_var(r, i + k);
    b->n += n;
    return true;
}

/* Of rows [i, i + n) of a chunk, those with lo <= ms < hi. */
static bool each_in_run(struct sealing *s, const struct head_rows *r, uint32_t i, uint32_t n,
                        int64_t lo, int64_t hi, uint32_t *by_second, struct block_rows *b)
{
    int64_t ms[RUN];

    run_times(s, r, i, n, ms);
    for (uint32_t k = 0, end; k < n; k = end) {
        for (end = k; end < n && ms[end] >= lo && ms[end] < hi;)
            end++;
        for (uint32_t at = k; by_second && at < end; at++)
            by_second[(uint32_t)(ms[at] - lo) / 1000]++;
        if (b && end > k && !put_run(s, r, i + k, end - k, ms + k, b))
            return false;
        while (end < n && (ms[end] < lo || ms[end] >= hi))
            end++;
    }
    return true;
}

/* Rows of the group with lo <= ms < hi; b NULL: counted by second of the hour that begins at lo. */
static bool each_row_in(struct sealing *s, int64_t lo, int64_t hi, uint32_t *by_second,
                        struct block_rows *b)
{
    for (uint32_t ci = 0; ci < s->g->chunk.n; ci++) {
        const struct head_chunk *c = *VEC(&s->g->chunk, struct head_chunk *, ci);
        struct head_rows r;

        /* a reading may begin before its rows */
        if (!s->level && (c->max_ms < lo || c->min_ms >= hi))
            continue;
        head_rows_of(c, &r);
        for (uint32_t i = 0; i < c->n; i += RUN) {
            if (!each_in_run(s, &r, i, c->n - i < RUN ? c->n - i : RUN, lo, hi, by_second, b))
                return false;
        }
    }
    return true;
}

/* Columns that hold their default in all of a block's rows are left out. */
static void trim(struct block_rows *b)
{
    bool value = false, count = false, cpu = false, var = false;

    for (uint32_t i = 0; i < b->n; i++) {
        uint64_t n = b->count ? b->count[i] : 1;
        int64_t v;

        count |= n != 1;
        cpu |= b->cpu && b->cpu[i] != 0;
        var |= b->var && !isnan(b->var[i]);
        value |= b->value && (__builtin_mul_overflow(n, b->period, &v) || v != b->value[i]);
    }
    b->value = value ? b->value : NULL;
    b->count = count ? b->count : NULL;
    b->cpu = cpu ? b->cpu : NULL;
    b->var = var ? b->var : NULL;
}

/* Rows [from, from + n) of a. */
static struct block_rows slice_of(const struct block_rows *a, uint32_t from, uint32_t n)
{
    struct block_rows b = *a;

    b.n = n;
    b.ms += from;
    b.series += from;
    b.thread += from;
    b.node += from;
    b.count = b.count ? b.count + from : NULL;
    b.value = b.value ? b.value + from : NULL;
    b.cpu = b.cpu ? b.cpu + from : NULL;
    b.var = b.var ? b.var + from : NULL;
    b.held = b.held ? b.held + from : NULL;
    b.attr = b.attr ? b.attr + from : NULL;
    trim(&b);
    return b;
}

static int put_stretch(struct sealing *s, const struct columns *c, int64_t lo, int64_t hi,
                       uint32_t n, struct err *err)
{
    struct block_rows all;
    uint32_t blocks = (n + BLOCK_ROWS - 1) / BLOCK_ROWS;

    arena_reset(&s->tmp);
    if (!columns_new(s, c, n, &all) || !each_row_in(s, lo, hi, NULL, &all))
        return err_set(err, -ENOMEM, "seal: memory is short");
    assert(all.n == n);
    TRY(block_sort(&all, &s->tmp, err));
    for (uint32_t i = 0; i < blocks; i++) {
        uint32_t from = (uint32_t)((uint64_t)n * i / blocks);
        uint32_t to = (uint32_t)((uint64_t)n * (i + 1) / blocks);
        struct block_rows b = slice_of(&all, from, to - from);

        TRY(part_put_block(s->w, &b, s->g->type, s->g->trie.svc, s->g->trie.sub, err));
    }
    return 0;
}

/* Rows of the group in the hour, stretch by stretch. */
static int put_group(struct sealing *s, int64_t hour, struct err *err)
{
    const struct columns c = columns_of(s->g);
    const int64_t base = hour * HOUR_MS;
    uint32_t *n = calloc(STRETCHES, sizeof *n), from = 0, rows = 0;
    int r = 0;

    if (!n || !each_row_in(s, base, base + HOUR_MS, n, NULL)) {
        r = -ENOMEM;
        (void)err_set(err, r, "seal: memory is short");
    }
    for (uint32_t i = 0; r == 0 && i < STRETCHES; i++) {
        rows += n[i];
        if (rows == 0 || (i + 1 < STRETCHES && rows + n[i + 1] <= STRETCH_ROWS))
            continue;
        r = put_stretch(s, &c, base + from * INT64_C(1000), base + (i + 1) * INT64_C(1000), rows,
                        err);
        from = i + 1;
        rows = 0;
    }
    free(n);
    return r;
}

/* ---- parts --------------------------------------------------------------------------------- */

static int by_trie(const void *a, const void *b)
{
    const struct head_group *x = *(const struct head_group *const *)a,
                            *y = *(const struct head_group *const *)b;

    if (x->type != y->type)
        return (x->type > y->type) - (x->type < y->type);
    if (x->trie.svc != y->trie.svc)
        return (x->trie.svc > y->trie.svc) - (x->trie.svc < y->trie.svc);
    return (x->trie.sub > y->trie.sub) - (x->trie.sub < y->trie.sub);
}

static int put_rows(struct sealing *s, const struct head_group *const *group, int64_t hour,
                    struct err *err)
{
    for (uint32_t i = 0; i < s->h->group.n; i++) {
        struct store_type t;

        s->g = group[i];
        // NOLINTNEXTLINE(clang-analyzer-core.NullDereference): put_hours() filled all of them
        s->level = names_type_info(s->h->names, UINT32_MAX, s->g->type, &t) && t.kind == KIND_LEVEL;
        TRY(put_group(s, hour, err));
    }
    return 0;
}

static int put_hour(struct store *st, struct sealing *s, const struct head_group *const *group,
                    int64_t hour, struct part_info *ret, struct err *err)
{
    const struct interval period = {{hour * HOUR_MS * NS_PER_MS},
                                    {(hour + 1) * HOUR_MS * NS_PER_MS}};
    uint64_t id = seal_part_id(st);
    const struct part_conf conf = {.dir = st->dir,
                                   .vfs = store_tuning.vfs,
                                   .tier = STORE_RAW,
                                   .period = period,
                                   .epoch = s->h->epoch->id,
                                   .generation = (uint32_t)id,
                                   .sealed_lsn = s->h->snap.lsn,
                                   .names = s->h->names};
    int r;

    TRY(part_create(&conf, &s->w, err));
    r = part_source(s->w, &s->h->local, &s->h->snap.local, err);
    if (r == 0)
        r = put_rows(s, group, hour, err);
    if (r == 0)
        r = part_put_local(s->w, period, err);
    if (r != 0 || part_empty(s->w)) { /* empty: a reading's rows begin in another hour */
        s->w = part_abort(s->w);
        ret->name[0] = '\0';
        return r;
    }
    r = part_finish(s->w, ret, err);
    ret->id = id;
    return r;
}

void seal_discard(const struct store *s, struct seal_parts *p)
{
    for (uint32_t i = 0; i < p->n; i++)
        db_remove(s->dir, p->v[i].name);
    free(p->v);
    *p = (struct seal_parts){};
}

static int put_hours(struct store *st, struct sealing *s, const struct hours *hours,
                     struct seal_parts *ret, struct err *err)
{
    const struct head_group **group = calloc(s->h->group.n + 1, sizeof(struct head_group *));
    int r = 0;

    ret->v = calloc(hours->n + 1, sizeof *ret->v);
    if (!group || !ret->v) {
        r = -ENOMEM;
        (void)err_set(err, r, "seal: memory is short");
    }
    for (uint32_t i = 0; r == 0 && i < s->h->group.n; i++)
        group[i] = head_group_at(s->h, i);
    if (r == 0 && s->h->group.n > 1)
        qsort(group, s->h->group.n, sizeof *group, by_trie); // NOLINT(bugprone-sizeof-expression)
    for (uint32_t i = 0; r == 0 && i < hours->n; i++) {
        r = put_hour(st, s, group, hours->v[i], &ret->v[ret->n], err);
        if (r == 0 && ret->v[ret->n].name[0])
            ret->n++;
    }
    free(group);
    return r;
}

int seal_write(struct store *st, const struct head *h, struct seal_parts *ret, struct err *err)
{
    struct sealing s = {.h = h};
    struct hours hours = {};
    int r;

    *ret = (struct seal_parts){};
    arena_init(&s.tmp, SEAL_ARENA);
    r = row_hours(&hours, h) && local_hours(&hours, &h->local)
            ? put_hours(st, &s, &hours, ret, err)
            : err_set(err, -ENOMEM, "seal: memory is short");
    if (r != 0)
        seal_discard(st, ret);
    arena_deinit(&s.tmp);
    free(hours.v);
    return r;
}
