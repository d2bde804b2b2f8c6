// SPDX-License-Identifier: Apache-2.0
#include "storage/catalog/catalog_private.h"
#include "tests/unit/test_storage_file_lib.h"

#define NOW ((real_ns){T0 + 5 * HOUR})

/* ---- what is in it, as a number -------------------------------------------------------------- */

struct seen {
    uint64_t h;
    uint32_t svc, ptype, labelset, series, epoch, part, sender, numbers, damage;
    uint64_t dict_id;
    uint64_t part_id, hi;
    char last_svc[64];
};

static void add(struct seen *s, const void *p, size_t n)
{
    s->h = hash_seed(p, n, hash_mix(s->h + n));
}

static int on_svc(void *ctx, const struct catalog_svc *x, struct err *err)
{
    struct seen *s = ctx;

    (void)err;
    s->svc++;
    assert_int_equal(x->id, s->svc); /* dense */
    add(s, &x->id, sizeof x->id);
    add(s, x->name.p, x->name.n);
    (void)snprintf(s->last_svc, sizeof s->last_svc, "%.*s", STR_ARG(x->name));
    return 0;
}

static int on_ptype(void *ctx, const struct catalog_ptype *x, struct err *err)
{
    struct seen *s = ctx;

    (void)err;
    s->ptype++;
    assert_int_equal(x->id, PTYPE_IMPORTED_FIRST + s->ptype - 1);
    add(s, &x->kind, sizeof x->kind);
    add(s, x->name.p, x->name.n);
    add(s, x->unit.p, x->unit.n);
    return 0;
}

static int on_labelset(void *ctx, const struct catalog_labelset *x, struct err *err)
{
    struct seen *s = ctx;

    (void)err;
    s->labelset++;
    assert_int_equal(x->id, s->labelset);
    for (uint32_t i = 0; i < x->n; i++) {
        add(s, x->v[i].name.p, x->v[i].name.n);
        add(s, x->v[i].value.p, x->v[i].value.n);
    }
    return 0;
}

static int on_series(void *ctx, const struct catalog_series *x, struct err *err)
{
    struct seen *s = ctx;

    (void)err;
    s->series++;
    assert_int_equal(x->id, s->series);
    add(s, (uint32_t[]){x->id, x->type, x->svc, x->labelset}, 16);
    return 0;
}

static int on_epoch(void *ctx, const struct catalog_epoch *x, struct err *err)
{
    struct seen *s = ctx;

    (void)err;
    s->epoch++;
    s->dict_id += x->dict_id;
    add(s, (uint64_t[]){x->id, (uint64_t)x->t0.v, x->state}, 24);
    return 0;
}

static int on_part(void *ctx, const struct part_info *x, struct err *err)
{
    struct seen *s = ctx;

    (void)err;
    s->part++;
    s->part_id = x->id;
    add(s, &(uint64_t){info_hash(x)}, sizeof(uint64_t));
    return 0;
}

static int on_sender(void *ctx, const struct catalog_sender *x, struct err *err)
{
    struct seen *s = ctx;

    (void)err;
    s->sender++;
    s->hi = x->hi;
    s->numbers += x->n_seen;
    add(s, x->agent, 16);
    add(s, x->boot, 16);
    add(s, (uint64_t[]){x->hi, (uint64_t)x->last.v}, 16);
    add(s, x->seen, x->n_seen * sizeof *x->seen);
    return 0;
}

static int on_damage(void *ctx, const struct catalog_damage *x, struct err *err)
{
    struct seen *s = ctx;

    (void)err;
    s->damage++;
    add(s,
        (uint64_t[]){(uint64_t)x->at.v, x->part, x->type, x->svc, (uint64_t)x->t.t0.v,
                     (uint64_t)x->t.t1.v, x->n},
        56);
    add(s, x->what.p, x->what.n);
    return 0;
}

static int load(struct catalog *c, struct seen *s, struct catalog_state *state, struct err *err)
{
    const struct catalog_sink sink = {.ctx = s,
                                      .svc = on_svc,
                                      .ptype = on_ptype,
                                      .labelset = on_labelset,
                                      .series = on_series,
                                      .epoch = on_epoch,
                                      .part = on_part,
                                      .sender = on_sender,
                                      .damage = on_damage};
    int r;

    *s = (struct seen){};
    r = catalog_load(c, &sink, state, err);
    if (r == 0)
        add(s, state, sizeof *state);
    return r;
}

/* ---- a sample -------------------------------------------------------------------------------- */

static const struct store_label labels[2] = {{STR("job"), STR("a")}, {STR("service"), STR("api")}};
static const struct catalog_seen numbers[3] = {{7, 70}, {8, 80}, {2000, UINT64_MAX}};

static int commit_sample(struct catalog *c, struct err *err)
{
    const struct catalog_svc svc[2] = {{1, STR("api")}, {2, STR("w\0b")}};
    const struct catalog_ptype ptype = {PTYPE_IMPORTED_FIRST, STR("custom"), STR("w"), KIND_LEVEL};
    const struct catalog_labelset set[2] = {{1, 2, labels}, {2, 1, labels}};
    const struct catalog_series series = {1, PTYPE_CPU, 1, 1, false};
    const struct catalog_epoch epoch = {.id = 12, .t0 = {T0}, .state = CATALOG_EPOCH_CURRENT};
    const struct part_info part[2] = {
        {.id = 1,
         .uuid = {1},
         .hash = {2},
         .name = "shard/raw/x.db",
         .tier = STORE_RAW,
         .state = PART_SEALED,
         .dirty = true,
         .epoch = 12,
         .generation = 1,
         .period = {{T0}, {T0 + HOUR}},
         .data = {{T0 + 1}, {T0 + 2}},
         .rows = UINT64_MAX,
         .blocks = 3,
         .bytes = 4,
         .sealed_lsn = 5},
        {.id = 2, .uuid = {9}, .name = "shard/raw/y.db", .tier = STORE_MINUTE, .state = PART_GONE}};
    const struct catalog_sender sender = {
        .agent = {1}, .boot = {2}, .hi = 2000, .last = {T0}, .n_seen = 3, .seen = numbers};
    const struct catalog_damage damage = {{T0}, 1, PTYPE_CPU, 1, {{T0}, {T0 + 1}}, 77, STR("cols")};
    const struct catalog_state state = {5, 6, 7, 8, {9}, 10, 11, 0};
    const struct catalog_change ch = {.n_svc = 2,
                                      .svc = svc,
                                      .n_ptype = 1,
                                      .ptype = &ptype,
                                      .n_labelset = 2,
                                      .labelset = set,
                                      .n_series = 1,
                                      .series = &series,
                                      .n_epoch = 1,
                                      .epoch = &epoch,
                                      .n_part = 2,
                                      .part = part,
                                      .n_sender = 1,
                                      .sender = &sender,
                                      .n_damage = 1,
                                      .damage = &damage,
                                      .state = &state};

    return catalog_commit(c, &ch, err);
}

static void check_sample(const struct seen *s, const struct catalog_state *state)
{
    assert_int_equal(s->svc, 2);
    assert_int_equal(s->ptype, 1);
    assert_int_equal(s->labelset, 2);
    assert_int_equal(s->series, 1);
    assert_int_equal(s->epoch, 1);
    assert_int_equal(s->part, 2);
    assert_int_equal(s->sender, 1);
    assert_int_equal(s->numbers, 1); /* 7 and 8 are 1,024 and more behind 2,000: forgotten */
    assert_int_equal(s->damage, 1);
    assert_true(state->sealed_lsn == 5 && state->next_journal == 6 && state->next_seal == 7 &&
                state->next_part == 8 && state->expiry_ref.v == 9);
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void test_round_trip(void **state)
{
    struct catalog_state st = {};
    const struct catalog_epoch closed = {
        .id = 11, .t0 = {T0 - 1}, .state = CATALOG_EPOCH_CLOSED, .dict_id = UINT64_MAX};
    struct catalog *c = NULL;
    struct seen a, b;
    struct err err = {};
    char dir[64];

    (void)state;
    folder_make(dir);
    assert_int_equal(catalog_open(dir, NULL, NOW, &c, &err), CATALOG_NEW);
    assert_ok(load(c, &a, &st, &err), &err);
    assert_int_equal(a.svc + a.part, 0);
    assert_int_equal(st.sealed_lsn, 0);
    assert_ok(commit_sample(c, &err), &err);
    assert_ok(load(c, &a, &st, &err), &err);
    check_sample(&a, &st);
    assert_true(st.dict_id == 10 && st.dict_n == 11);
    st.store = 12;
    assert_ok(catalog_commit(
                  c, &(struct catalog_change){.n_epoch = 1, .epoch = &closed, .state = &st}, &err),
              &err);
    assert_ok(load(c, &a, &st, &err), &err);
    assert_int_equal(a.epoch, 2);
    assert_true(a.dict_id == UINT64_MAX && st.store == 12);
    c = catalog_close(c);
    assert_ok(catalog_open(dir, NULL, NOW, &c, &err), &err);
    assert_ok(load(c, &b, &st, &err), &err);
    assert_true(a.h == b.h);
    catalog_checkpoint(c);
    assert_ok(load(c, &b, &st, &err), &err);
    assert_true(a.h == b.h);
    c = catalog_close(c);
    assert_ok(catalog_open_read(dir, NULL, &c, &err), &err);
    assert_ok(load(c, &b, &st, &err), &err);
    assert_true(a.h == b.h);
    c = catalog_close(c);
    { /* a copy is a catalog like any other */
        char path[96];

        assert_ok(catalog_open(dir, NULL, NOW, &c, &err), &err);
        (void)snprintf(path, sizeof path, "%s/copy/catalog.db", dir);
        folder_sub(dir, "copy");
        assert_ok(catalog_copy(c, path, &err), &err);
        assert_int_equal(catalog_copy(c, path, NULL), -EEXIST);
        c = catalog_close(c);
        (void)snprintf(path, sizeof path, "%s/copy", dir);
        assert_ok(catalog_open(path, NULL, NOW, &c, &err), &err);
        assert_ok(load(c, &b, &st, &err), &err);
        assert_true(a.h == b.h);
        assert_ok(commit_sample(c, &err), &err);
        assert_true(file_there(path, "catalog.db-wal"));
        c = catalog_close(c);
    }
    assert_null(catalog_close(NULL));
    assert_int_equal(test_remove_tree(dir), 0);
}

/* Rows change, go and come back; the sum of all follows. */
static void test_changes(void **state)
{
    struct catalog_state st = {.sealed_lsn = 99};
    static struct catalog_seen many[1000];
    struct catalog_sender sender = {.agent = {1}, .boot = {2}, .hi = 5000, .seen = many};
    struct part_info part = {.id = 1,
                             .uuid = {1},
                             .name = "shard/raw/x.db",
                             .tier = STORE_RAW,
                             .state = PART_QUARANTINED};
    const struct catalog_change first = {
        .n_part = 1, .part = &part, .n_gone = 1, .gone = &(uint64_t){2}, .state = &st};
    const struct catalog_change second = {.n_sender = 1, .sender = &sender};
    const struct catalog_change third = {.n_forget = 1, .forget = &sender};
    struct catalog *c = NULL;
    struct seen s;
    struct err err = {};
    char dir[64];

    (void)state;
    folder_make(dir);
    assert_int_equal(catalog_open(dir, NULL, NOW, &c, &err), CATALOG_NEW);
    assert_ok(commit_sample(c, &err), &err);
    assert_ok(catalog_commit(c, &first, &err), &err);
    assert_ok(load(c, &s, &st, &err), &err);
    assert_int_equal(s.part, 1);
    assert_int_equal(s.part_id, 1);
    assert_int_equal(st.sealed_lsn, 99);
    for (uint32_t i = 0; i < 1000; i++)
        many[i] = (struct catalog_seen){4001 + i, i};
    sender.n_seen = 1000;
    assert_ok(catalog_commit(c, &second, &err), &err);
    assert_ok(load(c, &s, &st, &err), &err);
    assert_int_equal(s.sender, 1);
    assert_int_equal(s.hi, 5000);
    assert_int_equal(s.numbers, 1000); /* 2,000 is gone */
    sender.hi = 5500;
    sender.n_seen = 500;
    for (uint32_t i = 0; i < 500; i++)
        many[i] = (struct catalog_seen){5001 + i, i};
    assert_ok(catalog_commit(c, &second, &err), &err);
    assert_ok(load(c, &s, &st, &err), &err);
    assert_int_equal(s.numbers, 1024);
    assert_ok(catalog_commit(c, &third, &err), &err);
    assert_ok(catalog_commit(c, &third, &err), &err); /* nobody: no change */
    assert_ok(load(c, &s, &st, &err), &err);
    assert_int_equal(s.sender + s.numbers, 0);
    c = catalog_close(c);
    assert_ok(catalog_open(dir, NULL, NOW, &c, &err), &err);
    c = catalog_close(c);
    assert_int_equal(test_remove_tree(dir), 0);
}

static void test_damage(void **state)
{
    struct catalog_state st;
    struct catalog *c = NULL;
    struct seen good, is;
    struct bytes file;
    struct err err = {};
    char dir[64], name[96];
    size_t step, rebuilt = 0, n = 0;

    (void)state;
    folder_make(dir);
    assert_int_equal(catalog_open(dir, NULL, NOW, &c, &err), CATALOG_NEW);
    assert_ok(commit_sample(c, &err), &err);
    assert_ok(load(c, &good, &st, &err), &err);
    catalog_checkpoint(c);
    c = catalog_close(c);
    file = file_get(dir, "catalog.db");
    step = flip_step(file.n, 400);
    (void)snprintf(name, sizeof name, "%s/quarantine", dir);
    for (size_t at = 0; at < file.n; at += step, n++) {
        int r;

        file.p[at] ^= (char)(1 << at % 8);
        file_put(dir, "catalog.db", file);
        file.p[at] ^= (char)(1 << at % 8);
        file_put(dir, "catalog.db-wal", (struct bytes){});
        err = (struct err){};
        r = catalog_open(dir, NULL, NOW, &c, &err);
        if (r == -EPROTO)
            continue;
        assert_true(r == 0 || r == CATALOG_REBUILT);
        assert_ok(load(c, &is, &st, &err), &(struct err){});
        if (r == 0 && is.h != good.h)
            fail_msg("byte %zu: another catalog", at);
        if (r == CATALOG_REBUILT) {
            rebuilt++;
            assert_int_equal(is.part, 0);
            assert_true(folder_count(dir, "quarantine") >= 1);
            assert_int_equal(test_remove_tree(name), 0);
        }
        c = catalog_close(c);
    }
    print_message("%zu of %zu flips: made again\n", rebuilt, n);
    assert_true(rebuilt > n / 50); /* most of a small file is empty pages */
    free(file.p);
    assert_int_equal(test_remove_tree(dir), 0);
}

/* A page as it was one commit ago is as wrong as any other. */
static void test_stale_page(void **state)
{
    const struct catalog_svc svc = {3, STR("new")};
    const struct catalog_change ch = {.n_svc = 1, .svc = &svc};
    struct catalog *c = NULL;
    struct bytes before, after;
    struct err err = {};
    char dir[64];
    uint32_t stale = 0;

    (void)state;
    folder_make(dir);
    assert_int_equal(catalog_open(dir, NULL, NOW, &c, &err), CATALOG_NEW);
    assert_ok(commit_sample(c, &err), &err);
    catalog_checkpoint(c);
    before = file_get(dir, "catalog.db");
    assert_ok(catalog_commit(c, &ch, &err), &err);
    catalog_checkpoint(c);
    c = catalog_close(c);
    after = file_get(dir, "catalog.db");
    assert_int_equal(before.n, after.n);
    for (size_t page = 4096; page < after.n; page += 4096) {
        char keep[4096];

        if (memcmp(before.p + page, after.p + page, 4096) == 0)
            continue;
        stale++;
        memcpy(keep, after.p + page, 4096);
        memcpy(after.p + page, before.p + page, 4096);
        file_put(dir, "catalog.db", after);
        memcpy(after.p + page, keep, 4096);
        err = (struct err){};
        assert_int_equal(catalog_open(dir, NULL, NOW, &c, &err), CATALOG_REBUILT);
        assert_non_null(strstr(err.msg, "missing, or older"));
        c = catalog_close(c);
    }
    assert_int_equal(stale, 2); /* svc and state */
    free(before.p);
    free(after.p);
    assert_int_equal(test_remove_tree(dir), 0);
}

static void test_foreign(void **state)
{
    struct catalog *c = NULL;
    struct bytes file, now;
    struct err err = {};
    char dir[64];

    (void)state;
    folder_make(dir);
    assert_int_equal(catalog_open(dir, NULL, NOW, &c, &err), CATALOG_NEW);
    assert_ok(commit_sample(c, &err), &err);
    catalog_checkpoint(c);
    c = catalog_close(c);
    file_sql(dir, "catalog.db", "PRAGMA user_version=7");
    file = file_get(dir, "catalog.db");
    assert_int_equal(catalog_open(dir, NULL, NOW, &c, &err), -EPROTO);
    assert_non_null(strstr(err.msg, "catalog.db has format 7, this program reads format 1"));
    now = file_get(dir, "catalog.db");
    assert_true(now.n == file.n && memcmp(now.p, file.p, now.n) == 0);
    free(now.p);
    free(file.p);
    file_put(dir, "catalog.db", (struct bytes){(char[]){"hello"}, 5});
    err = (struct err){};
    assert_int_equal(catalog_open(dir, NULL, NOW, &c, &err), CATALOG_REBUILT);
    assert_non_null(strstr(err.msg, "not a database"));
    c = catalog_close(c);
    assert_int_equal(folder_count(dir, "quarantine"), 2); /* and its -wal */
    assert_int_equal(catalog_open_read("/nonexistent", NULL, &c, NULL), -ENOENT);
    assert_int_equal(test_remove_tree(dir), 0);
}

/* No room at any write: rolled back, and the same catalog goes on when there is room. */
static void test_full(void **state)
{
    struct catalog_state st;
    struct catalog *c = NULL;
    struct seen s;
    struct err err = {};
    char dir[64];
    int r = -1;

    (void)state;
    folder_make(dir);
    assert_int_equal(catalog_open(dir, full_register(), NOW, &c, &err), CATALOG_NEW);
    for (int writes = 0; r != 0; writes++) {
        full_left = writes;
        err = (struct err){};
        r = commit_sample(c, &err);
        full_left = -1;
        assert_true(r == 0 || r == -ENOSPC);
        assert_ok(load(c, &s, &st, &err), &(struct err){});
        assert_int_equal(s.svc, r == 0 ? 2 : 0);
    }
    check_sample(&s, &st);
    c = catalog_close(c);
    assert_int_equal(test_remove_tree(dir), 0);
    folder_make(dir);
    full_left = 2;
    err = (struct err){};
    assert_int_equal(catalog_open(dir, "full", NOW, &c, &err), -ENOSPC);
    assert_int_equal(folder_count(dir, "."), 0);
    assert_int_equal(test_remove_tree(dir), 0);
}

/* ---- made again from parts ------------------------------------------------------------------- */

static struct part_info write_part(const char *dir, struct sample_names *nm,
                                   struct sample_local *sl, uint32_t series, ptype_id type,
                                   uint32_t svc, uint32_t generation, const struct part_info *input)
{
    const struct part_conf conf = {.dir = dir,
                                   .tier = STORE_RAW,
                                   .period = PERIOD,
                                   .epoch = 12,
                                   .generation = generation,
                                   .sealed_lsn = UINT64_C(100) * generation,
                                   .names = &nm->n,
                                   .n_input = input != NULL,
                                   .input = input ? &input->uuid : NULL};
    struct local_snap snap = local_snap(&sl->l);
    struct part_writer *w;
    struct part_info info;
    struct sample_rows rows;
    struct err err = {};
    uint32_t thread[2];

    assert_ok(part_create(&conf, &w, &err), &err);
    assert_ok(part_source(w, &sl->l, &snap, &err), &err);
    thread[0] = part_thread(w, 1);
    thread[1] = part_thread(w, 2);
    rows = sample_rows(20, T0 / NS_PER_MS, series, thread, true);
    assert_ok(part_put_block(w, &rows.r, type, svc, 0, &err), &err);
    free(rows.mem);
    assert_ok(part_finish(w, &info, &err), &err);
    return info;
}

static void test_rebuild(void **state)
{
    struct sample_names nm;
    struct sample_local sl;
    struct catalog_state st;
    struct catalog *c = NULL;
    struct part_info first, second, third;
    struct bytes junk = {(char[]){"not a part"}, 10};
    struct seen s;
    struct err err = {};
    char dir[64];

    (void)state;
    folder_make(dir);
    sample_names_init(&nm);
    sample_local_init(&sl, &nm);
    first = write_part(dir, &nm, &sl, nm.series[2], PTYPE_CPU, 2, 1, NULL);
    second = write_part(dir, &nm, &sl, nm.series[2], PTYPE_CPU, 2, 2, &first);
    third = write_part(dir, &nm, &sl, nm.series[3], nm.custom, 1, 3, NULL);
    (void)second;
    (void)third;
    file_put(dir, "shard/raw/20251129T12-e12-g9.db", junk);
    folder_sub(dir, "dict");
    file_put(dir, "dict/12.db", junk);
    assert_int_equal(catalog_open(dir, NULL, NOW, &c, &err), CATALOG_REBUILT);
    assert_ok(load(c, &s, &st, &err), &(struct err){});
    assert_int_equal(s.part, 2); /* the second replaced the first */
    assert_int_equal(s.svc, 3);  /* and one for the series that no part knows */
    assert_string_equal(s.last_svc, "[lost]");
    assert_int_equal(s.series, 3);
    assert_int_equal(s.ptype, 1);
    assert_int_equal(s.epoch, 1);
    assert_int_equal(s.damage, 1);
    assert_int_equal(st.sealed_lsn, 300);
    assert_int_equal(st.next_part, 3);
    assert_int_equal(st.next_seal, 4);
    assert_int_equal(folder_count(dir, "quarantine"), 2); /* the first, and the junk */
    c = catalog_close(c);
    assert_ok(catalog_open(dir, NULL, NOW, &c, &err), &err);
    c = catalog_close(c);
    sample_local_deinit(&sl);
    names_deinit(&nm.n);
    assert_int_equal(test_remove_tree(dir), 0);
}

/* A catalog of format version 1, as it was written when that was new. */
static void test_golden(void **state)
{
    const char *golden = getenv("STRATA_GOLDEN"); // NOLINT(concurrency-mt-unsafe)
    struct catalog_state st;
    struct catalog *c = NULL;
    struct seen want, is;
    struct bytes file;
    struct err err = {};
    char dir[64];

    (void)state;
    if (!golden)
        skip();
    folder_make(dir);
    assert_int_equal(catalog_open(dir, NULL, NOW, &c, &err), CATALOG_NEW);
    assert_ok(commit_sample(c, &err), &err);
    assert_ok(load(c, &want, &st, &err), &err);
    catalog_checkpoint(c);
    c = catalog_close(c);
    if (getenv("UPDATE_GOLDEN")) { // NOLINT(concurrency-mt-unsafe)
        file = file_get(dir, "catalog.db");
        file_put(golden, "catalog_v1.db", file);
    } else {
        file = file_get(golden, "catalog_v1.db");
        file_put(dir, "catalog.db", file);
    }
    free(file.p);
    assert_ok(catalog_open(dir, NULL, NOW, &c, &err), &err);
    assert_ok(load(c, &is, &st, &err), &err);
    assert_true(is.h == want.h);
    c = catalog_close(c);
    assert_int_equal(test_remove_tree(dir), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip), cmocka_unit_test(test_changes),
        cmocka_unit_test(test_damage),     cmocka_unit_test(test_stale_page),
        cmocka_unit_test(test_foreign),    cmocka_unit_test(test_full),
        cmocka_unit_test(test_rebuild),    cmocka_unit_test(test_golden),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
