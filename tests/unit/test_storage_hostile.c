// SPDX-License-Identifier: Apache-2.0
/*
 * Bytes whose sums are right and whose content is not: a file that somebody made. Decoders refuse
 * them or make something of them; they neither crash nor read or write outside (run under ASan).
 *
 * STRATA_ROUNDS mutations of each blob (40); STRATA_SEED.
 */
#include "storage/dict/dictchunk_private.h"
#include "storage/part/part_tables_private.h"
#include "tests/unit/test_storage_part_lib.h"

static uint64_t seed = 1;
static unsigned long rounds = 40;

static uint64_t rnd(void)
{
    seed += UINT64_C(0x9e3779b97f4a7c15);
    return hash_mix(seed);
}

/* Change, cut or lengthen; returns the new length, at most n + 8. */
static size_t mutate(char *p, size_t n)
{
    uint32_t changes = 1 + (uint32_t)(rnd() % 3);

    for (uint32_t i = 0; n > 0 && i < changes; i++) {
        char *at = &p[rnd() % n];

        switch (rnd() % 4) {
        case 0:
            *at ^= (char)(1 << rnd() % 8);
            break;
        case 1:
            *at = (char)0xff;
            break;
        case 2:
            *at = (char)(*at + 1);
            break;
        default:
            *at = (char)rnd();
        }
    }
    if (rnd() % 8 == 0)
        return rnd() % (n + 1);
    if (rnd() % 8 == 0) {
        memset(p + n, (int)rnd(), 8);
        return n + 1 + rnd() % 8;
    }
    return n;
}

/* ---- chunks of dictionaries ------------------------------------------------------------------ */

enum {
    N = 300
};

struct chunks {
    struct dict_coder *c;
    struct buf b;
    struct str text[N];
    char room[N][16];
    struct dict_bin bin[N];
    struct dict_function function[N];
    struct dict_place place[N];
    uint32_t list[N], parent[N + 1], frame[N];
};

static void make_chunks(struct chunks *x)
{
    x->c = dict_coder_new();
    assert_non_null(x->c);
    buf_init(&x->b, 1 << 20);
    for (uint32_t i = 0; i < N; i++) {
        int n = snprintf(x->room[i], sizeof x->room[i], "text %u", i * i % 97);

        x->text[i] = (struct str){x->room[i], i % 5 ? (size_t)n : 0};
        x->bin[i] = (struct dict_bin){i, i / 2, i % 4};
        x->function[i] = (struct dict_function){i * 7 % 50, i % 9, i, i % 7};
        x->place[i] = (struct dict_place){i / 3, i % 11, i * 13 % 100, i % 2, rnd()};
        x->list[i] = i % 4 ? i : i / 2;
        x->parent[i + 1] = (uint32_t)(rnd() % 3 ? i : rnd() % (i + 1));
        x->frame[i] = (uint32_t)(rnd() % (i + 1));
    }
    x->parent[0] = 0;
}

static void put(struct chunks *x, int kind)
{
    buf_reset(&x->b);
    switch (kind) {
    case DICT_TEXT:
        dict_put_texts(x->c, &x->b, x->text, N);
        break;
    case DICT_BIN:
        dict_put_bins(x->c, &x->b, x->bin, N);
        break;
    case DICT_FUNCTION:
        dict_put_functions(x->c, &x->b, x->function, N);
        break;
    case DICT_FRAME:
        dict_put_frames(x->c, &x->b, x->place, N);
        break;
    case DICT_LIST:
        dict_put_list(x->c, &x->b, x->list, N);
        break;
    default:
        dict_put_nodes(x->c, &x->b, x->parent, x->frame, 1, N, N);
    }
    assert_false(x->b.failed);
}

/* Decode as n entries; where that works and nothing was changed it is what was put. */
static bool get(const struct chunks *x, int kind, struct str data, uint32_t n, bool same)
{
    static struct str text[N + 1];
    static struct dict_bin bin[N + 1];
    static struct dict_function function[N + 1];
    static struct dict_place place[N + 1];
    static uint32_t list[N + 1], parent[N + 2], frame[N + 1];
    static bool damaged[N + 2];
    bool ok;

    switch (kind) {
    case DICT_TEXT:
        ok = dict_get_texts(x->c, data, text, n);
        for (uint32_t i = 0; same && i < n; i++)
            assert_str(text[i], x->text[i]);
        return ok;
    case DICT_BIN:
        ok = dict_get_bins(x->c, data, bin, n);
        assert_true(!same || memcmp(bin, x->bin, sizeof x->bin) == 0);
        return ok;
    case DICT_FUNCTION:
        ok = dict_get_functions(x->c, data, function, n);
        assert_true(!same || memcmp(function, x->function, sizeof x->function) == 0);
        return ok;
    case DICT_FRAME:
        ok = dict_get_frames(x->c, data, place, n);
        assert_true(!same || memcmp(place, x->place, sizeof x->place) == 0);
        return ok;
    case DICT_LIST:
        ok = dict_get_list(x->c, data, list, n);
        assert_true(!same || memcmp(list, x->list, sizeof x->list) == 0);
        return ok;
    default:
        ok = dict_get_nodes(x->c, data, parent, damaged, frame, 1, n);
        for (uint32_t i = 1; ok && i <= n; i++)
            assert_true(parent[i] < i);
        assert_true(!same || memcmp(parent, x->parent, sizeof x->parent) == 0);
        assert_true(!same || memcmp(frame, x->frame, sizeof x->frame) == 0);
        return ok;
    }
}

static void test_chunks(void **state)
{
    static struct chunks x;
    uint64_t refused = 0, taken = 0;

    (void)state;
    make_chunks(&x);
    for (int kind = DICT_TEXT; kind < DICT_KINDS; kind++) {
        struct bytes copy;

        put(&x, kind);
        assert_true(get(&x, kind, buf_view(&x.b), N, true));
        assert_false(get(&x, kind, buf_view(&x.b), N - 1, false));
        assert_false(get(&x, kind, buf_view(&x.b), N + 1, false));
        for (unsigned long i = 0; i < 20 * rounds; i++) {
            size_t n;
            bool ok;

            copy = (struct bytes){xmalloc(x.b.n + 8), x.b.n};
            memcpy(copy.p, x.b.p, x.b.n);
            n = mutate(copy.p, copy.n);
            copy.p = xrealloc(copy.p, n ? n : 1); /* exactly so long: for ASan */
            ok = get(&x, kind, (struct str){copy.p, n}, N, false);
            taken += ok;
            refused += !ok;
            free(copy.p);
        }
    }
    print_message("chunks: %llu refused, %llu taken\n", (unsigned long long)refused,
                  (unsigned long long)taken);
    assert_true(refused > taken / 4);
    buf_deinit(&x.b);
    x.c = dict_coder_free(x.c);
}

/* ---- tables of a part ------------------------------------------------------------------------ */

struct blob_table {
    const char *name, *columns; /* integers in the order of the sum, then data */
    int n;
    enum db_table number;
};

static const struct blob_table tables[] = {
    {"local", "kind, first, n", 3, DB_LOCAL},
    {"cover", "id, type, labelset, target, n", 5, DB_COVER},
    {"metric", "id, series, t0, t1, n", 5, DB_METRIC},
    {"step", "id, name, target, t0, t1, n", 6, DB_STEP},
};

/* Replace the blob of one row by a changed one, with a sum that is right. */
static void forge(const struct db *db, const struct blob_table *t)
{
    char sql[256];
    sqlite3_stmt *st = NULL;
    int64_t v[8] = {};
    struct str data;
    char *p;
    size_t n;

    (void)snprintf(sql, sizeof sql,
                   "SELECT %s, data, rowid_ FROM (SELECT *, row_number() OVER () "
                   "AS rowid_ FROM %s) ORDER BY random() LIMIT 1",
                   t->columns, t->name);
    assert_int_equal(sqlite3_prepare_v2(db->sq, sql, -1, &st, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_step(st), SQLITE_ROW);
    for (int i = 0; i < t->n; i++)
        v[i] = sqlite3_column_int64(st, i);
    n = (size_t)sqlite3_column_bytes(st, t->n);
    p = xmalloc(n + 8);
    memcpy(p, sqlite3_column_blob(st, t->n), n);
    (void)sqlite3_finalize(st);
    n = mutate(p, n);
    data = (struct str){p, n};
    (void)snprintf(sql, sizeof sql, "UPDATE %s SET data = ?1, sum = ?2 WHERE %s = ?3 AND %s = ?4",
                   t->name, t->number == DB_LOCAL ? "kind" : "id",
                   t->number == DB_LOCAL ? "first" : "id");
    assert_int_equal(sqlite3_prepare_v2(db->sq, sql, -1, &st, NULL), SQLITE_OK);
    (void)sqlite3_bind_blob64(st, 1, n ? p : "", n, SQLITE_TRANSIENT);
    (void)sqlite3_bind_int64(st, 2, db_sum(db, t->number, v, (size_t)t->n, &data, 1));
    (void)sqlite3_bind_int64(st, 3, v[0]);
    (void)sqlite3_bind_int64(st, 4, t->number == DB_LOCAL ? v[1] : v[0]);
    assert_int_equal(sqlite3_step(st), SQLITE_DONE);
    (void)sqlite3_finalize(st);
    free(p);
}

/* Sums of sums, and the sum of meta, as they are now. */
static void forge_meta(const struct db *db)
{
    static const char *const sql[] = {
        "SELECT sum FROM local WHERE kind IN (3, 4, 6, 7) UNION ALL SELECT sum FROM cover UNION ALL "
        "SELECT sum FROM metric UNION ALL SELECT sum FROM step UNION ALL SELECT sum FROM event",
        "SELECT sum FROM local WHERE kind IN (1, 2, 8, 9)"};

    for (int i = 0; i < 2; i++) {
        sqlite3_stmt *st = NULL;
        uint64_t fold = 0;
        struct err err = {};

        assert_int_equal(sqlite3_prepare_v2(db->sq, sql[i], -1, &st, NULL), SQLITE_OK);
        while (sqlite3_step(st) == SQLITE_ROW)
            fold += (uint64_t)sqlite3_column_int64(st, 0);
        (void)sqlite3_finalize(st);
        assert_ok(db_meta_put(db, part_fold_key[FOLD_LOCAL + i], (int64_t)fold, &err), &err);
    }
    assert_int_equal(db_meta_seal(db, NULL), 0);
}

static int take_name(void *ctx, uint32_t id, struct str name, struct err *err)
{
    (void)err;
    *(uint64_t *)ctx += hash_str(name) + id;
    return 0;
}

static int take_ptype(void *ctx, ptype_id id, struct str name, struct str unit,
                      enum ptype_kind kind, struct err *err)
{
    (void)kind;
    return take_name(ctx, id, name, err) + take_name(ctx, id, unit, err);
}

static int take_labels(void *ctx, uint32_t id, uint32_t n, const struct store_label *v,
                       struct err *err)
{
    for (uint32_t i = 0; i < n; i++)
        (void)(take_name(ctx, id, v[i].name, err) + take_name(ctx, id, v[i].value, err));
    return 0;
}

/* Everything that it says is followed. */
static int read_beside(struct here *h, uint64_t *sink)
{
    const struct names_snap limits = names_snap(&h->nm.n);
    const struct part_names fn = {
        .ctx = sink, .svc = take_name, .ptype = take_ptype, .labelset = take_labels};
    struct parts *ps = parts_new(h->dir, NULL, 0, false);
    struct part *p = part_new(ps, &h->info);
    const struct local *l;
    struct local_snap n;
    int r;

    parts_know(ps, &limits);
    r = part_local(p, &l, &n, NULL);
    for (uint32_t i = 0; r == 0 && i < n.cover; i++) {
        const struct local_cover *c = VEC(&l->cover, struct local_cover, i);

        *sink += local_str(l, c->why).n + names_series(&h->nm.n, c->series)->labels;
        for (uint32_t k = 0; k < c->n_loss; k++)
            *sink += local_str(l, VEC(&l->loss, struct local_loss, c->loss + k)->why).n;
    }
    for (uint32_t i = 0; r == 0 && i < n.metric; i++) {
        const struct local_metric *m = VEC(&l->metric, struct local_metric, i);

        for (uint32_t k = 0; k < m->n; k++)
            *sink += (uint64_t)m->t[k].v + (m->status ? m->status[k] : 0) +
                     (m->inum ? (uint64_t)m->inum[k] : (uint64_t)(m->num[k] > 0));
    }
    for (uint32_t i = 0; r == 0 && i < n.step; i++) {
        const struct local_step *s = VEC(&l->step, struct local_step, i);

        *sink += names_labels(&h->nm.n, s->labels)->n;
        for (uint32_t k = 0; k < s->n_part; k++)
            *sink += local_str(l, s->part[k]).n + (uint64_t)s->part_ns[k];
    }
    (void)part_unref(p);
    (void)parts_free(ps);
    return part_read_names(h->dir, h->info.name, NULL, &fn, NULL) | r;
}

static void test_tables(void **state)
{
    struct here h;
    struct bytes good;
    struct err err = {};
    uint64_t sink = 0, refused = 0, taken = 0;
    char path[256];

    (void)state;
    here_init(&h);
    (void)snprintf(path, sizeof path, "%s/%s", h.dir, h.info.name);
    good = file_get(h.dir, h.info.name);
    assert_int_equal(read_beside(&h, &sink), 0);
    for (unsigned long i = 0; i < 4 * rounds; i++) {
        struct db db;
        int r;

        file_put(h.dir, h.info.name, good);
        assert_ok(db_open_read(h.dir, h.info.name, &part_kind, DB_AT_REST, 0, NULL, &db, &err),
                  &err);
        db_close(&db);
        assert_int_equal(sqlite3_open(path, &db.sq), SQLITE_OK);
        forge(&db, &tables[i % 4]);
        forge_meta(&db);
        db_close(&db);
        r = read_beside(&h, &sink);
        refused += r != 0;
        taken += r == 0;
    }
    print_message("tables: %llu refused, %llu taken (%llx)\n", (unsigned long long)refused,
                  (unsigned long long)taken, (unsigned long long)sink);
    assert_true(refused > 0 && taken > 0);
    free(good.p);
    here_deinit(&h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chunks),
        cmocka_unit_test(test_tables),
    };
    const char *text = getenv("STRATA_ROUNDS"); // NOLINT(concurrency-mt-unsafe)
    uint64_t n;

    if (text && str_u64(str_c(text), &n) && n > 0)
        rounds = (unsigned long)n;
    text = getenv("STRATA_SEED"); // NOLINT(concurrency-mt-unsafe)
    if (!text || !str_u64(str_c(text), &seed))
        seed = 20261130;
    print_message("seed %llu\n", (unsigned long long)seed);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
