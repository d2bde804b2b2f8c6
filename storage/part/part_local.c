// SPDX-License-Identifier: Apache-2.0
/*
 * What stands beside rows, as bytes: struct local to the tables local, cover, metric, step, event
 * of a part. part_local_read.c is the way back. A change here changes it, docs/format-shard.md and
 * the golden part. Records are varints in one cell unless docs/format-shard.md says otherwise.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "storage/part/part_tables_private.h"

int chunk_put(const struct local_writer *w, enum db_table table, sqlite3_stmt *st, const int64_t *v,
              size_t n, enum cell_level level, struct err *err)
{
    struct str data;
    int64_t sum;

    TRY(buf_check(w->tmp, "a row beside the blocks", err));
    if (level != CELL_STORE || w->data != w->tmp) {
        buf_reset(w->data);
        cell_put(w->coder, w->data, w->tmp->p, w->tmp->n, level);
    }
    TRY(buf_check(w->data, w->db->name, err));
    data = buf_view(w->data);
    TRY(db_put(w->db, table, st, v, n, &data, 1, &sum, err));
    part_fold_add(w->fold, sum);
    return 0;
}

void labels_put(struct buf *b, uint32_t n, const struct store_label *v)
{
    cell_varint(b, n);
    for (uint32_t i = 0; i < n; i++) {
        cell_varint(b, v[i].name.n);
        buf_str(b, v[i].name);
        cell_varint(b, v[i].value.n);
        buf_str(b, v[i].value);
    }
}

static void put_signed(struct buf *b, int64_t v)
{
    cell_varint(b, cell_zigzag(v));
}

/* ---- table local --------------------------------------------------------------------------- */

static void put_one_text(struct buf *b, const struct local *l, uint32_t i)
{
    struct str s = local_str(l, i);

    cell_varint(b, s.n);
    buf_str(b, s);
}

static void put_thread(struct buf *b, const struct local *l, uint32_t i)
{
    const struct local_thread *t = TABLE(&l->thread, struct local_thread, i);

    cell_varint(b, t->target);
    cell_varint(b, t->tid);
    cell_varint(b, t->name);
}

/* The key, then 0, or 1 and what was last known of the process. */
static void put_target(struct buf *b, const struct local *l, uint32_t i)
{
    const struct local_target *t = TABLE(&l->target, struct local_target, i);
    uint32_t info = atomic_load_explicit(&t->info, memory_order_acquire);
    const struct local_info *v;

    buf_add(b, t->key.host, sizeof t->key.host);
    cell_varint(b, t->key.pidns);
    cell_varint(b, t->key.pid);
    put_signed(b, t->key.start.v);
    cell_varint(b, info != 0);
    if (info == 0)
        return;
    v = VEC(&l->info, struct local_info, info - 1);
    cell_varint(b, v->exe);
    cell_varint(b, v->cmdline);
    cell_varint(b, v->comm);
    cell_varint(b, v->cgroup);
    cell_varint(b, v->container);
    cell_varint(b, v->env);
    cell_varint(b, v->flags);
}

static void put_mseries(struct buf *b, const struct local *l, uint32_t i)
{
    const struct local_mseries *s = TABLE(&l->mseries, struct local_mseries, i);

    cell_varint(b, s->name);
    cell_varint(b, s->unit);
    cell_varint(b, s->labels);
    cell_varint(b, s->target);
    cell_varint(b, s->kind);
    cell_varint(b, s->is_int);
}

static int put_chunks(const struct local_writer *w, const struct local *l, sqlite3_stmt *st,
                      enum part_local_kind kind, uint32_t end,
                      void (*put)(struct buf *b, const struct local *l, uint32_t i),
                      struct err *err)
{
    for (uint32_t first = 1, n; first < end; first += n) {
        n = end - first < PART_CHUNK ? end - first : PART_CHUNK;
        buf_reset(w->tmp);
        for (uint32_t i = first; i < first + n; i++)
            put(w->tmp, l, i);
        TRY(chunk_put(w, DB_LOCAL, st, (int64_t[]){(int64_t)kind, first, n}, 3, CELL_TEXT, err));
    }
    return 0;
}

static int write_tables(const struct local_writer *w, const struct local *l, sqlite3_stmt *st,
                        struct err *err)
{
    TRY(put_chunks(w, l, st, PART_TEXT, texts_n(&l->text), put_one_text, err));
    TRY(put_chunks(w, l, st, PART_TARGET, l->target.v.n, put_target, err));
    TRY(put_chunks(w, l, st, PART_THREAD, l->thread.v.n, put_thread, err));
    return put_chunks(w, l, st, PART_MSERIES, l->mseries.v.n, put_mseries, err);
}

/* ---- cover --------------------------------------------------------------------------------- */

static int by_time(const void *a, const void *b)
{
    const struct local_cover *x = a, *y = b;
    int r = real_ns_cmp(x->t.t0, y->t.t0);

    if (r == 0)
        r = real_ns_cmp(x->t.t1, y->t.t1);
    return r ? r : (x->prev > y->prev) - (x->prev < y->prev); /* prev: order of arrival, here */
}

static uint64_t add_known(uint64_t a, uint64_t b)
{
    return a == BATCH_UNKNOWN || b == BATCH_UNKNOWN ? BATCH_UNKNOWN : a + b;
}

/* The time on the way only adds to the difference of two clocks; 0: not known. */
static int64_t nearest_skew(int64_t a, int64_t b)
{
    if (!a || !b)
        return a ? a : b;
    return a < b ? a : b;
}

/* Two stretches that say the same and touch are one, where nothing was lost (storage.md 5.3). */
static bool can_merge(const struct local_cover *a, const struct local_cover *b)
{
    return a->t.t1.v == b->t.t0.v && a->width == b->width && a->state == b->state &&
           a->why == b->why && a->basis == b->basis && a->period == b->period && a->n_loss == 0 &&
           b->n_loss == 0 && !a->ended && a->series == b->series && a->at.v == 0 && b->at.v == 0 &&
           (a->expected == BATCH_UNKNOWN) == (b->expected == BATCH_UNKNOWN) &&
           (a->received == BATCH_UNKNOWN) == (b->received == BATCH_UNKNOWN);
}

static uint32_t merge(struct local_cover *v, uint32_t n)
{
    uint32_t kept = 0;

    for (uint32_t i = 0; i < n; i++) {
        struct local_cover *to = kept ? &v[kept - 1] : NULL;

        if (!to || !can_merge(to, &v[i])) {
            v[kept++] = v[i];
            continue;
        }
        to->t.t1 = v[i].t.t1;
        to->expected = add_known(to->expected, v[i].expected);
        to->received = add_known(to->received, v[i].received);
        to->jitter += v[i].jitter;
        to->ended = v[i].ended;
        to->skew_ns = nearest_skew(to->skew_ns, v[i].skew_ns);
    }
    return kept;
}

static void put_record(struct buf *b, const struct local *l, const struct local_cover *c,
                       int64_t *last, int64_t unit)
{
    uint32_t flags = (c->ended ? COVER_ENDED : 0) | (c->at.v ? COVER_AT : 0) |
                     (c->series ? COVER_SERIES : 0) | (c->n_loss ? COVER_LOSS : 0) |
                     (c->skew_ns ? COVER_SKEW : 0) | (c->jitter ? COVER_JITTER : 0);

    cell_varint(b, flags);
    put_signed(b, (c->t.t0.v - *last) / unit);
    cell_varint(b, (uint64_t)(c->t.t1.v - c->t.t0.v) / (uint64_t)unit);
    *last = c->t.t0.v;
    cell_varint(b, c->width);
    cell_varint(b, c->state);
    cell_varint(b, c->why);
    cell_varint(b, c->basis);
    put_signed(b, c->period);
    cell_varint(b, c->expected + 1); /* unknown is 0 */
    cell_varint(b, c->received + 1);
    if (c->at.v)
        put_signed(b, c->at.v - c->t.t0.v);
    if (c->series)
        cell_varint(b, c->series);
    if (c->jitter)
        put_signed(b, c->jitter);
    if (c->skew_ns)
        put_signed(b, c->skew_ns);
    if (c->n_loss == 0)
        return;
    cell_varint(b, c->n_loss);
    for (uint32_t i = 0; i < c->n_loss; i++) {
        const struct local_loss *x = VEC(&l->loss, struct local_loss, c->loss + i);

        cell_varint(b, x->why);
        cell_varint(b, x->n + 1);
        cell_varint(b, (uint64_t)(x->weight + 1));
    }
}

/* Records of one scope by time, in memory of its own; order of arrival in prev. */
static uint32_t gather(const struct local *l, const struct local_scope *sc, struct local_cover *v)
{
    uint32_t n = 0, i;
    const struct local_cover *c = local_cover_last(l, l->cover.n, sc, &i);

    for (; c; c = local_cover_prev(l, c, &i)) {
        v[n] = *c;
        v[n++].prev = i;
    }
    if (n > 1)
        qsort(v, n, sizeof *v, by_time);
    return n;
}

static int64_t unit_of(const struct local_cover *v, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (v[i].t.t0.v % NS_PER_MS != 0 || v[i].t.t1.v % NS_PER_MS != 0)
            return 1;
    return NS_PER_MS;
}

static int write_scope(const struct local_writer *w, const struct local *l, sqlite3_stmt *st,
                       uint32_t id, struct local_cover *v, struct err *err)
{
    const struct local_scope *sc = TABLE(&l->scope, struct local_scope, id);
    uint32_t n = gather(l, sc, v);
    int64_t last = 0, unit;

    /* a scope that only rows of levels name has its row all the same: the ids are its number */
    if (w->sums(w->ctx, sc->type))
        n = merge(v, n);
    unit = unit_of(v, n);
    buf_reset(w->tmp);
    cell_varint(w->tmp, (uint64_t)unit);
    for (uint32_t i = 0; i < n; i++)
        put_record(w->tmp, l, &v[i], &last, unit);
    return chunk_put(w, DB_COVER, st, (int64_t[]){id, sc->type, sc->labels, sc->target, n}, 5,
                     CELL_FAST, err);
}

static int write_covers(const struct local_writer *w, const struct local *l, sqlite3_stmt *st,
                        struct err *err)
{
    struct local_cover *v = mem_fail_now() ? NULL : malloc(((size_t)l->cover.n + 1) * sizeof *v);
    int r = 0;

    if (!v)
        return err_set(err, -ENOMEM, "%s: memory is short", w->db->name);
    for (uint32_t i = 1; r == 0 && i < l->scope.v.n; i++)
        r = write_scope(w, l, st, i, v, err);
    free(v);
    return r;
}

/* ---- metrics ------------------------------------------------------------------------------- */

struct point {
    int64_t t;
    uint64_t bits;
    uint64_t at; /* order of arrival */
    uint8_t status;
};

static int by_point(const void *a, const void *b)
{
    const struct point *x = a, *y = b;

    if (x->t != y->t)
        return x->t < y->t ? -1 : 1;
    return (x->at > y->at) - (x->at < y->at);
}

static uint64_t bits_of(double x)
{
    uint64_t b;

    memcpy(&b, &x, sizeof b);
    return b;
}

static void take_points(const struct local_metric *m, struct point *v, uint32_t *n)
{
    for (uint32_t i = 0; i < m->n; i++, (*n)++)
        v[*n] = (struct point){.t = m->t[i].v,
                               .bits = m->num ? bits_of(m->num[i]) : (uint64_t)m->inum[i],
                               .status = m->status ? m->status[i] : METRIC_OK};
}

/* Times, values, status: three columns. u64: working memory of n. */
static void put_points(const struct local_writer *w, const struct point *v, uint32_t n, bool is_int,
                       uint64_t *u64)
{
    int64_t last = 0;
    uint64_t before = 0;

    buf_reset(w->tmp);
    for (uint32_t i = 0; i < n; i++) {
        u64[i] = cell_zigzag((int64_t)((uint64_t)v[i].t - (uint64_t)last));
        last = v[i].t;
    }
    cell_put_planes(w->coder, w->tmp, u64, n);
    for (uint32_t i = 0; i < n; i++) {
        u64[i] = is_int ? cell_zigzag((int64_t)(v[i].bits - before)) : v[i].bits;
        before = v[i].bits;
    }
    cell_put_planes(w->coder, w->tmp, u64, n);
    for (uint32_t i = 0, k; i < n; i = k) {
        for (k = i + 1; k < n && v[k].status == v[i].status; k++)
            ;
        cell_varint(w->tmp, v[i].status);
        cell_varint(w->tmp, k - i);
    }
}

static int write_points(const struct local_writer *w, sqlite3_stmt *st, uint32_t series,
                        const struct point *v, uint32_t n, bool is_int, int64_t *id, uint64_t *u64,
                        struct err *err)
{
    struct local_writer raw = *w;

    raw.data = raw.tmp; /* its columns are cells already */
    for (uint32_t first = 0, k; first < n; first += k) {
        k = n - first < PART_CHUNK ? n - first : PART_CHUNK;
        put_points(w, v + first, k, is_int, u64);
        TRY(chunk_put(&raw, DB_METRIC, st,
                      (int64_t[]){++*id, series, v[first].t, v[first + k - 1].t, k}, 5, CELL_STORE,
                      err));
    }
    return 0;
}

static uint32_t count_points(const struct local *l)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < l->metric.n; i++)
        n += VEC(&l->metric, struct local_metric, i)->n;
    return n;
}

static int write_metrics(const struct local_writer *w, const struct local *l, sqlite3_stmt *st,
                         struct err *err)
{
    uint32_t all = count_points(l);
    struct point *v = mem_fail_now() ? NULL : malloc(((size_t)all + 1) * sizeof *v);
    uint64_t *u64 = mem_fail_now() ? NULL : malloc(PART_CHUNK * sizeof *u64);
    int64_t id = 0;
    int r = 0;

    if (!v || !u64) {
        free(v);
        free(u64);
        return err_set(err, -ENOMEM, "%s: memory is short", w->db->name);
    }
    for (uint32_t s = 1; r == 0 && s < l->mseries.v.n; s++) {
        const struct local_mseries *ms = TABLE(&l->mseries, struct local_mseries, s);
        uint32_t n = 0, at = atomic_load_explicit(&ms->last, memory_order_acquire);

        while (at) {
            const struct local_metric *m = VEC(&l->metric, struct local_metric, at - 1);
            uint32_t from = n;

            take_points(m, v, &n);
            for (uint32_t i = from; i < n; i++)
                v[i].at = (uint64_t)at << 32 | (i - from);
            at = m->prev;
        }
        if (n > 1)
            qsort(v, n, sizeof *v, by_point);
        r = write_points(w, st, s, v, n, ms->is_int, &id, u64, err);
    }
    free(v);
    free(u64);
    return r;
}

/* ---- steps and events ---------------------------------------------------------------------- */

static int by_step(const void *a, const void *b)
{
    const struct local_step *x = *(const struct local_step *const *)a,
                            *y = *(const struct local_step *const *)b;

    if (x->name != y->name)
        return x->name < y->name ? -1 : 1;
    if (x->target != y->target)
        return x->target < y->target ? -1 : 1;
    if (x->t.t0.v != y->t.t0.v)
        return x->t.t0.v < y->t.t0.v ? -1 : 1;
    return (x > y) - (x < y); /* elements of one array: order of arrival */
}

static bool same_parts(const struct local_step *a, const struct local_step *b)
{
    return a && a->n_part == b->n_part &&
           (a->n_part == 0 || memcmp(a->part, b->part, a->n_part * sizeof *a->part) == 0);
}

static void put_step(struct buf *b, const struct local_step *s, const struct local_step *before)
{
    bool same = same_parts(before, s);

    cell_varint(b, (s->inferred ? STEP_INFERRED : 0) | (same ? STEP_SAME_PARTS : 0));
    put_signed(b, (int64_t)(s->number - (before ? before->number : 0)));
    put_signed(b, (int64_t)((uint64_t)s->t.t0.v - (uint64_t)(before ? before->t.t0.v : 0)));
    cell_varint(b, (uint64_t)s->t.t1.v - (uint64_t)s->t.t0.v);
    cell_varint(b, s->tid);
    cell_varint(b, s->labels);
    if (!same) {
        cell_varint(b, s->n_part);
        for (uint32_t i = 0; i < s->n_part; i++)
            cell_varint(b, s->part[i]);
    }
    for (uint32_t i = 0; i < s->n_part; i++)
        put_signed(b, s->part_ns[i]);
}

static int write_step_rows(const struct local_writer *w, const struct local_step *const *v,
                           uint32_t n, sqlite3_stmt *st, struct err *err)
{
    int64_t id = 0;

    for (uint32_t i = 0, k; i < n; i = k) {
        const struct local_step *first = v[i], *before = NULL;
        int64_t t1 = first->t.t1.v;

        buf_reset(w->tmp);
        for (k = i; k < n && k - i < PART_CHUNK && v[k]->name == first->name &&
                    v[k]->target == first->target;
             k++) {
            put_step(w->tmp, v[k], before);
            before = v[k];
            if (v[k]->t.t1.v > t1)
                t1 = v[k]->t.t1.v;
        }
        TRY(chunk_put(w, DB_STEP, st,
                      (int64_t[]){++id, first->name, first->target, first->t.t0.v, t1, k - i}, 6,
                      CELL_FAST, err));
    }
    return 0;
}

static int write_steps(const struct local_writer *w, const struct local *l, sqlite3_stmt *st,
                       struct err *err)
{
    const uint32_t n = l->step.n;
    const size_t size = sizeof(struct local_step *);
    const struct local_step **v = mem_fail_now() ? NULL : malloc(((size_t)n + 1) * size);
    int r;

    if (!v)
        return err_set(err, -ENOMEM, "%s: memory is short", w->db->name);
    for (uint32_t i = 0; i < n; i++)
        v[i] = VEC(&l->step, struct local_step, i);
    if (n > 1)
        qsort(v, n, size, by_step);
    r = write_step_rows(w, v, n, st, err);
    free(v);
    return r;
}

static int write_events(const struct local_writer *w, const struct local *l, sqlite3_stmt *st,
                        struct err *err)
{
    for (uint32_t i = 0; i < l->event.n; i++) {
        const struct local_event *e = VEC(&l->event, struct local_event, i);
        int64_t v[5] = {(int64_t)i + 1, e->t.v, e->kind, e->target, e->text}, sum;

        TRY(db_put(w->db, DB_EVENT, st, v, 5, NULL, 0, &sum, err));
        part_fold_add(w->fold, sum);
    }
    return 0;
}

int local_write(const struct local_writer *w, const struct local *l, struct err *err)
{
    const struct {
        int (*write)(const struct local_writer *w, const struct local *l, sqlite3_stmt *st,
                     struct err *err);
        const char *sql;
    } all[] = {
        {write_tables, "INSERT INTO local(kind, first, n, data, sum) VALUES(?1, ?2, ?3, ?4, ?5)"},
        {write_covers, "INSERT INTO cover(id, type, labelset, target, n, data, sum) "
                       "VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7)"},
        {write_metrics, "INSERT INTO metric(id, series, t0, t1, n, data, sum) "
                        "VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7)"},
        {write_steps, "INSERT INTO step(id, name, target, t0, t1, n, data, sum) "
                      "VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)"},
        {write_events, "INSERT INTO event(id, t, kind, target, text, sum) "
                       "VALUES(?1, ?2, ?3, ?4, ?5, ?6)"},
    };
    int r = 0;

    for (size_t i = 0; r == 0 && i < sizeof all / sizeof *all; i++) {
        sqlite3_stmt *st = NULL;

        r = db_prepare(w->db, all[i].sql, &st, err);
        if (r == 0)
            r = all[i].write(w, l, st, err);
        (void)sqlite3_finalize(st);
    }
    return r;
}
