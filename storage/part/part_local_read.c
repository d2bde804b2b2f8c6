// SPDX-License-Identifier: Apache-2.0
/*
 * The tables of a part back into a struct local: what part_local.c wrote. Each row's sum was right,
 * yet nothing is believed: ids are below the lengths of what they point to, counts are those of the
 * bytes, and what is left over is damage.
 */
#include <errno.h>
#include <string.h>

#include "base/arena.h"
#include "storage/part/part_tables_private.h"

#define CELL_MAX ((size_t)64 << 20)

struct reader {
    const struct db *db;
    const struct names_snap *limits;
    struct local *l;
    struct cell_coder coder;
    struct buf scratch;
    uint64_t *u64, *u64b; /* PART_CHUNK each */
    struct cell_in in;    /* of the row's cell */
    struct part_fold fold;
    bool no_memory;
};

static uint32_t get_u32(struct reader *r)
{
    uint64_t v = cell_get_varint(&r->in);

    if (v > UINT32_MAX)
        r->in.bad = true;
    return (uint32_t)v;
}

/* A number below end; else damage, and 0. */
static uint32_t get_below(struct reader *r, uint32_t end)
{
    uint32_t v = get_u32(r);

    if (v >= end)
        r->in.bad = true;
    return v < end ? v : 0;
}

static int64_t get_signed(struct reader *r)
{
    return cell_unzigzag(cell_get_varint(&r->in));
}

static uint32_t get_text(struct reader *r)
{
    return get_below(r, texts_n(&r->l->text));
}

static uint32_t get_labels(struct reader *r)
{
    return get_below(r, r->limits->labels);
}

static bool known_type(const struct reader *r, int64_t type)
{
    if (type <= 0 || type > UINT32_MAX)
        return false;
    return type < PTYPE_IMPORTED_FIRST ? ptype_builtin((ptype_id)type) != NULL
                                       : type - PTYPE_IMPORTED_FIRST + 1 < r->limits->ptype;
}

/* n integers, a blob (NULL: none), the sum. */
static int take_row(struct reader *r, sqlite3_stmt *st, enum db_table table, int64_t *v, size_t n,
                    struct str *data, struct err *err)
{
    const size_t n_blob = data != NULL;

    TRY(db_take(r->db, table, st, v, n, data, n_blob, err));
    part_fold_add(&r->fold, sqlite3_column_int64(st, (int)(n + n_blob)));
    return 0;
}

/* Open the cell of a row. */
static bool open_cell(struct reader *r, struct str data)
{
    struct cell_in in = cell_in(data.p, data.n);
    size_t n;
    const uint8_t *p = cell_get(&r->coder, &in, CELL_MAX, &r->scratch, &n);

    r->in = cell_in(p, p ? n : 0);
    r->in.bad = !p || !cell_at_end(&in);
    return !r->in.bad;
}

static int ended(struct reader *r, const char *what, int64_t id, struct err *err)
{
    if (r->no_memory || r->coder.no_memory)
        return err_set(err, -ENOMEM, "%s: memory is short", r->db->name);
    return cell_at_end(&r->in)
               ? 0
               : db_damaged(r->db, err, "%s %lld: does not decode", what, (long long)id);
}

/* ---- table local --------------------------------------------------------------------------- */

static void take_text(struct reader *r, uint32_t i)
{
    uint64_t n = cell_get_varint(&r->in);
    const uint8_t *p = cell_get_bytes(&r->in, n);
    uint32_t id;

    if (!p || r->in.bad) {
        r->in.bad = true;
        return;
    }
    id = text_id(&r->l->text, (struct str){(const char *)p, n});
    r->no_memory |= id == UINT32_MAX;
    r->in.bad |= id != i && id != UINT32_MAX;
}

static void take_target(struct reader *r, uint32_t i)
{
    struct target_key key = {};
    const uint8_t *host = cell_get_bytes(&r->in, sizeof key.host);
    struct local_info info = {};
    uint32_t id;

    if (host)
        memcpy(key.host, host, sizeof key.host);
    key.pidns = cell_get_varint(&r->in);
    key.pid = cell_get_varint(&r->in);
    key.start.v = get_signed(r);
    if (!host || r->in.bad) {
        r->in.bad = true;
        return;
    }
    id = local_target_of(r->l, &key);
    r->no_memory |= id == UINT32_MAX;
    r->in.bad |= id != i;
    if (get_below(r, 2) == 0 || r->in.bad)
        return;
    info.exe = get_text(r);
    info.cmdline = get_text(r);
    info.comm = get_text(r);
    info.cgroup = get_text(r);
    info.container = get_text(r);
    info.env = get_labels(r);
    info.flags = get_u32(r);
    if (!r->in.bad)
        r->no_memory |= !local_add_info(r->l, id, &info);
}

static void take_thread(struct reader *r, uint32_t i)
{
    uint32_t target = get_below(r, r->l->target.v.n), tid = get_u32(r), name = get_text(r), id;

    if (r->in.bad)
        return;
    id = local_thread_of(r->l, target, tid, name);
    r->no_memory |= id == UINT32_MAX;
    r->in.bad |= id != i;
}

static void take_mseries(struct reader *r, uint32_t i)
{
    struct local_mseries key = {.name = get_text(r), .unit = get_text(r)};
    uint32_t id;

    key.labels = get_labels(r);
    key.target = get_below(r, r->l->target.v.n);
    key.kind = get_below(r, METRIC_COUNTER + 1);
    key.is_int = get_below(r, 2);
    if (r->in.bad)
        return;
    id = local_mseries_of(r->l, &key);
    r->no_memory |= id == UINT32_MAX;
    r->in.bad |= id != i;
}

/* Rows of one kind follow one another without a gap, from 1 on. */
static int read_chunks(struct reader *r, sqlite3_stmt *st, enum part_local_kind kind,
                       void (*take)(struct reader *r, uint32_t i), struct err *err)
{
    uint32_t next = 1;
    int step;

    if (sqlite3_reset(st) != SQLITE_OK || sqlite3_bind_int64(st, 1, kind) != SQLITE_OK)
        return db_fail(r->db, "local", err);
    while ((step = db_step(r->db, st, err)) == 1) {
        struct str data;
        int64_t v[3];

        TRY(take_row(r, st, DB_LOCAL, v, 3, &data, err));
        if (v[0] != (int64_t)kind || v[1] != next || v[2] < 1 || v[2] > PART_CHUNK)
            return db_damaged(r->db, err, "local: kind %d is not whole at %u", (int)kind, next);
        (void)open_cell(r, data);
        for (int64_t i = 0; i < v[2] && !r->in.bad && !r->no_memory; i++)
            take(r, next++);
        TRY(ended(r, "local kind", (int64_t)kind, err));
    }
    return step;
}

static int read_tables(struct reader *r, sqlite3_stmt *st, struct err *err)
{
    TRY(read_chunks(r, st, PART_TEXT, take_text, err));
    TRY(read_chunks(r, st, PART_TARGET, take_target, err));
    TRY(read_chunks(r, st, PART_THREAD, take_thread, err));
    return read_chunks(r, st, PART_MSERIES, take_mseries, err);
}

/* ---- cover --------------------------------------------------------------------------------- */

static void take_losses(struct reader *r, struct local_cover *c)
{
    uint32_t n = get_below(r, 1u << 20);

    c->loss = r->l->loss.n;
    for (c->n_loss = 0; c->n_loss < n && !r->in.bad && !r->no_memory; c->n_loss++) {
        struct local_loss l = {.why = get_text(r)};

        l.n = cell_get_varint(&r->in) - 1;
        l.weight = (int64_t)cell_get_varint(&r->in) - 1;
        if (!r->in.bad)
            r->no_memory |= !local_add_loss(r->l, &l);
    }
}

/* t0 and length in units, added up without overflow, or damage. */
static void take_times(struct reader *r, struct local_cover *c, int64_t *last, int64_t unit)
{
    int64_t d = get_signed(r);
    uint64_t len = cell_get_varint(&r->in);

    if (__builtin_mul_overflow(d, unit, &d) || __builtin_add_overflow(*last, d, &c->t.t0.v) ||
        __builtin_mul_overflow(len, (uint64_t)unit, &len) ||
        __builtin_add_overflow(c->t.t0.v, len, &c->t.t1.v))
        r->in.bad = true;
    *last = c->t.t0.v;
}

static void take_record(struct reader *r, uint32_t scope, int64_t *last, int64_t unit)
{
    uint32_t flags = get_below(r, COVER_ALL + 1);
    struct local_cover c = {.scope = scope, .ended = flags & COVER_ENDED};

    take_times(r, &c, last, unit);
    c.width = get_u32(r);
    c.state = (uint8_t)get_below(r, SOURCE_ABSENT + 1);
    c.why = get_text(r);
    c.basis = (uint8_t)get_below(r, BASIS_RAW + 1);
    c.period = get_signed(r);
    c.expected = cell_get_varint(&r->in) - 1;
    c.received = cell_get_varint(&r->in) - 1;
    if (flags & COVER_AT && __builtin_add_overflow(c.t.t0.v, get_signed(r), &c.at.v))
        r->in.bad = true;
    if (flags & COVER_SERIES)
        c.series = get_below(r, r->limits->series);
    if (flags & COVER_JITTER)
        c.jitter = get_signed(r);
    if (flags & COVER_SKEW)
        c.skew_ns = get_signed(r);
    if (flags & COVER_LOSS)
        take_losses(r, &c);
    if (!r->in.bad && !r->no_memory)
        r->no_memory |= !local_add_cover(r->l, &c);
}

static int take_scope(struct reader *r, sqlite3_stmt *st, struct err *err)
{
    struct str data;
    int64_t v[5], last = 0, unit;
    uint32_t scope;

    TRY(take_row(r, st, DB_COVER, v, 5, &data, err));
    if (!known_type(r, v[1]) || v[2] < 0 || v[2] >= r->limits->labels || v[3] < 0 ||
        v[3] >= r->l->target.v.n || v[4] < 0)
        return db_damaged(r->db, err, "cover %lld: no such scope", (long long)v[0]);
    scope = local_scope_of(r->l, (ptype_id)v[1], (uint32_t)v[2], (uint32_t)v[3]);
    if (scope == UINT32_MAX)
        return err_set(err, -ENOMEM, "%s: memory is short", r->db->name);
    if (scope != v[0]) /* rows of levels name their scope by this number */
        return db_damaged(r->db, err, "cover %lld: out of order", (long long)v[0]);
    (void)open_cell(r, data);
    unit = (int64_t)cell_get_varint(&r->in);
    if (unit != 1 && unit != NS_PER_MS)
        r->in.bad = true;
    for (int64_t i = 0; i < v[4] && !r->in.bad && !r->no_memory; i++)
        take_record(r, scope, &last, unit);
    return ended(r, "cover", v[0], err);
}

/* ---- metrics ------------------------------------------------------------------------------- */

/* Columns of points into memory of the local's. */
static void take_points(struct reader *r, struct local_metric *m, bool is_int)
{
    struct pool *p = r->l->pool;
    const uint32_t n = m->n;
    int64_t *t = pool_fixed(p, n * sizeof *t), *inum = pool_fixed(p, n * sizeof *inum), last = 0;
    uint8_t *status = pool_fixed(p, n);
    uint64_t before = 0;
    bool all_ok = true;

    if (!t || !inum || !status) {
        r->no_memory = true;
        return;
    }
    if (!cell_get_planes(&r->coder, &r->in, n, r->u64, &r->scratch) ||
        !cell_get_planes(&r->coder, &r->in, n, r->u64b, &r->scratch)) {
        r->in.bad = true;
        return;
    }
    for (uint32_t i = 0; i < n; i++) {
        t[i] = last = (int64_t)((uint64_t)last + (uint64_t)cell_unzigzag(r->u64[i]));
        before = is_int ? before + (uint64_t)cell_unzigzag(r->u64b[i]) : r->u64b[i];
        memcpy(&inum[i], &before, sizeof before);
    }
    for (uint32_t i = 0, run; i < n && !r->in.bad; i += run) {
        uint8_t s = (uint8_t)get_below(r, METRIC_READ_ERROR + 1);

        run = get_u32(r);
        if (run == 0 || run > n - i) {
            r->in.bad = true;
            return;
        }
        memset(status + i, s, run);
        all_ok &= s == METRIC_OK;
    }
    static_assert(sizeof(real_ns) == sizeof *t && sizeof(double) == sizeof *inum, "one word each");
    m->t = (const real_ns *)t;
    if (is_int)
        m->inum = inum;
    else
        m->num = (const double *)(const void *)inum;
    m->status = all_ok ? NULL : status;
}

static int take_metric(struct reader *r, sqlite3_stmt *st, struct err *err)
{
    struct local_metric m = {};
    struct str data;
    int64_t v[5];

    TRY(take_row(r, st, DB_METRIC, v, 5, &data, err));
    if (v[1] < 1 || v[1] >= r->l->mseries.v.n || v[4] < 1 || v[4] > PART_CHUNK)
        return db_damaged(r->db, err, "metric %lld: no such series", (long long)v[0]);
    m.series = (uint32_t)v[1];
    m.n = (uint32_t)v[4];
    r->in = cell_in(data.p, data.n);
    take_points(r, &m, TABLE(&r->l->mseries, struct local_mseries, m.series)->is_int);
    TRY(ended(r, "metric", v[0], err));
    return local_add_metric(r->l, &m) ? 0
                                      : err_set(err, -ENOMEM, "%s: memory is short", r->db->name);
}

/* ---- steps and events ---------------------------------------------------------------------- */

static void take_parts(struct reader *r, struct local_step *s)
{
    uint32_t n = get_below(r, 1u << 16), *part;

    s->n_part = 0;
    s->part = NULL;
    if (n == 0 || r->in.bad)
        return;
    part = pool_fixed(r->l->pool, n * sizeof *part);
    if (!part) {
        r->no_memory = true;
        return;
    }
    for (uint32_t i = 0; i < n; i++)
        part[i] = get_text(r);
    s->part = part;
    s->n_part = n;
}

/* s: the step before it in the row, made into the next. */
static void take_step(struct reader *r, struct local_step *s)
{
    uint32_t flags = get_below(r, STEP_ALL + 1);
    int64_t *ns = NULL;
    uint64_t len;

    s->inferred = flags & STEP_INFERRED;
    s->number += (uint64_t)get_signed(r);
    s->t.t0.v = (int64_t)((uint64_t)s->t.t0.v + (uint64_t)get_signed(r));
    len = cell_get_varint(&r->in);
    if (__builtin_add_overflow(s->t.t0.v, len, &s->t.t1.v))
        r->in.bad = true;
    s->tid = get_u32(r);
    s->labels = get_labels(r);
    if (!(flags & STEP_SAME_PARTS))
        take_parts(r, s);
    if (s->n_part > 0)
        ns = pool_fixed(r->l->pool, s->n_part * sizeof *ns);
    if (s->n_part > 0 && !ns)
        r->no_memory = true;
    for (uint32_t i = 0; ns && i < s->n_part; i++)
        ns[i] = get_signed(r);
    s->part_ns = ns;
    if (!r->in.bad && !r->no_memory)
        r->no_memory |= !local_add_step(r->l, s);
}

static int take_steps(struct reader *r, sqlite3_stmt *st, struct err *err)
{
    struct local_step s = {};
    struct str data;
    int64_t v[6];

    TRY(take_row(r, st, DB_STEP, v, 6, &data, err));
    if (v[1] < 0 || v[1] >= texts_n(&r->l->text) || v[2] < 0 || v[2] >= r->l->target.v.n ||
        v[5] < 1 || v[5] > PART_CHUNK)
        return db_damaged(r->db, err, "step %lld: no such name", (long long)v[0]);
    s.name = (uint32_t)v[1];
    s.target = (uint32_t)v[2];
    (void)open_cell(r, data);
    for (int64_t i = 0; i < v[5] && !r->in.bad && !r->no_memory; i++)
        take_step(r, &s);
    return ended(r, "step", v[0], err);
}

static int take_event(struct reader *r, sqlite3_stmt *st, struct err *err)
{
    const uint32_t n_text = texts_n(&r->l->text);
    struct local_event e = {};
    int64_t v[5];

    TRY(take_row(r, st, DB_EVENT, v, 5, NULL, err));
    if (v[2] < 0 || v[2] >= n_text || v[3] < 0 || v[3] >= r->l->target.v.n || v[4] < 0 ||
        v[4] >= n_text)
        return db_damaged(r->db, err, "event %lld: no such text", (long long)v[0]);
    e = (struct local_event){
        .t = {v[1]}, .kind = (uint32_t)v[2], .target = (uint32_t)v[3], .text = (uint32_t)v[4]};
    return local_add_event(r->l, &e) ? 0
                                     : err_set(err, -ENOMEM, "%s: memory is short", r->db->name);
}

/* ---- all of it ----------------------------------------------------------------------------- */

static int each_row(struct reader *r, sqlite3_stmt *st,
                    int (*take)(struct reader *r, sqlite3_stmt *st, struct err *err),
                    struct err *err)
{
    int step;

    while ((step = db_step(r->db, st, err)) == 1)
        TRY(take(r, st, err));
    return step;
}

static int read_all(struct reader *r, struct err *err)
{
    const struct {
        int (*take)(struct reader *r, sqlite3_stmt *st, struct err *err);
        const char *sql;
    } all[] = {
        {NULL, "SELECT kind, first, n, data, sum FROM local WHERE kind = ?1 ORDER BY first"},
        {take_scope, "SELECT id, type, labelset, target, n, data, sum FROM cover ORDER BY id"},
        {take_metric, "SELECT id, series, t0, t1, n, data, sum FROM metric ORDER BY id"},
        {take_steps, "SELECT id, name, target, t0, t1, n, data, sum FROM step ORDER BY id"},
        {take_event, "SELECT id, t, kind, target, text, sum FROM event ORDER BY id"},
    };
    int out = 0;

    for (size_t i = 0; out == 0 && i < sizeof all / sizeof *all; i++) {
        sqlite3_stmt *st = NULL;

        out = db_prepare(r->db, all[i].sql, &st, err);
        if (out == 0)
            out = all[i].take ? each_row(r, st, all[i].take, err) : read_tables(r, st, err);
        (void)sqlite3_finalize(st);
    }
    return out == 0 ? part_fold_check(r->db, FOLD_LOCAL, &r->fold, err) : out;
}

int local_read(const struct db *db, const struct names_snap *limits, struct local *l,
               struct err *err)
{
    struct reader r = {.db = db, .limits = limits, .l = l};
    struct arena work;
    int out;

    arena_init(&work, SIZE_MAX);
    cell_coder_init(&r.coder);
    buf_init(&r.scratch, CELL_MAX + 64);
    r.u64 = arena_array(&work, uint64_t, PART_CHUNK);
    r.u64b = arena_array(&work, uint64_t, PART_CHUNK);
    out = r.u64 && r.u64b ? read_all(&r, err)
                          : err_set(err, -ENOMEM, "%s: memory is short", db->name);
    cell_coder_deinit(&r.coder);
    buf_deinit(&r.scratch);
    arena_deinit(&work);
    return out;
}

bool labels_get(struct cell_in *in, labels_pair_fn *fn, void *ctx)
{
    uint64_t n = cell_get_varint(in);

    for (uint64_t i = 0; i < n && !in->bad; i++) {
        struct str s[2];

        for (int k = 0; k < 2; k++) {
            uint64_t len = cell_get_varint(in);

            s[k] = (struct str){(const char *)cell_get_bytes(in, len), len};
            if (!s[k].p)
                in->bad = true;
        }
        if (in->bad || !fn(ctx, s[0], s[1]))
            return false;
    }
    return !in->bad;
}
