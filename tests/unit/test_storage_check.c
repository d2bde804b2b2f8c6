// SPDX-License-Identifier: Apache-2.0
/* strata check on a store made by hand: catalog, dictionary, one part. */
#include <sys/file.h>
#include <sys/stat.h>

#include "storage/catalog/catalog_private.h"
#include "storage/dict/dict_private.h"
#include "storage/dict/dictfile_private.h"
#include "tests/unit/test_storage_file_lib.h"

#define PART "shard/raw/20251129T12-e12-g3.db"

struct here {
    char dir[64];
    struct sample_names nm;
    struct part_info info;
};

/* ---- a store -----------------------------------------------------------------------------------
 */

static void make_dict(const char *dir)
{
    struct epoch *e = epoch_new(12, 1, 1000);
    struct dictfile *f = NULL;
    struct err err = {};

    for (uint32_t svc = 1; svc <= 2; svc++) {
        struct dict_trie *t = epoch_trie(e, svc);

        for (uint32_t i = 0; i < 12; i++) {
            char name[16];
            int n = snprintf(name, sizeof name, "f%u", i);
            struct dict_frame key = {.kind = FRAME_OTHER,
                                     .name = text_id(&e->dict.text, (struct str){name, (size_t)n})};
            uint32_t frame = dict_frame_of(&e->dict, &key);
            const struct dict_load node = {
                .frame = frame, .frame_hash = dict_frame_hash(&e->dict, frame), .depth = 1};

            assert_true(dict_trie_load(&e->dict, t, &node));
        }
        dict_trie_publish(t);
    }
    epoch_publish(e);
    assert_ok(dictfile_create(dir, 12, NULL, &f, &err), &err);
    assert_ok(dictfile_append(f, e, &err), &err);
    f = dictfile_close(f);
    epoch_unref(e);
}

static void make_part(struct here *h, uint32_t generation, uint64_t lsn,
                      const struct part_info *input)
{
    const struct part_conf conf = {.dir = h->dir,
                                   .tier = STORE_RAW,
                                   .period = PERIOD,
                                   .epoch = 12,
                                   .generation = generation,
                                   .sealed_lsn = lsn,
                                   .n_input = input != NULL,
                                   .input = input ? &input->uuid : NULL,
                                   .names = &h->nm.n};
    struct sample_local sl;
    struct part_writer *w;
    struct err err = {};

    sample_local_init(&sl, &h->nm);
    assert_ok(part_create(&conf, &w, &err), &err);
    assert_ok(sample_put(w, &h->nm, &sl, &err), &err);
    assert_ok(part_finish(w, &h->info, &err), &err);
    h->info.id = 1;
    sample_local_deinit(&sl);
}

static void make_catalog(struct here *h)
{
    const struct names *n = &h->nm.n;
    const struct catalog_svc svc[2] = {{1, STR("api")}, {2, STR("web")}};
    const struct catalog_ptype ptype = {h->nm.custom, STR("custom"), STR("widgets"), KIND_SUM};
    const struct catalog_epoch epoch = {.id = 12, .t0 = {T0}, .state = CATALOG_EPOCH_CURRENT};
    const struct catalog_state state = {.sealed_lsn = 4711, .next_part = 2};
    struct catalog_labelset set[3];
    struct catalog_series series[3];
    struct catalog_change ch = {.n_svc = 2,
                                .svc = svc,
                                .n_ptype = 1,
                                .ptype = &ptype,
                                .n_labelset = 3,
                                .labelset = set,
                                .n_series = 3,
                                .series = series,
                                .n_epoch = 1,
                                .epoch = &epoch,
                                .n_part = 1,
                                .part = &h->info,
                                .state = &state};
    struct catalog *c = NULL;
    struct err err = {};

    for (uint32_t i = 1; i <= 3; i++) {
        const struct names_labels *l = names_labels(n, i);
        const struct names_series *s = names_series(n, i);

        set[i - 1] = (struct catalog_labelset){i, l->n, l->v};
        series[i - 1] = (struct catalog_series){i, s->type, s->svc, s->labels, false};
    }
    /* made from the part, which says the same; then as the seal would have written it */
    assert_int_equal(catalog_open(h->dir, NULL, (real_ns){T0}, &c, &err), CATALOG_REBUILT);
    err = (struct err){};
    assert_ok(catalog_commit(c, &ch, &err), &err);
    catalog_checkpoint(c);
    c = catalog_close(c);
}

static void here_init(struct here *h)
{
    *h = (struct here){};
    folder_make(h->dir);
    sample_names_init(&h->nm);
    make_dict(h->dir);
    make_part(h, 3, 4711, NULL);
    make_catalog(h);
    file_put(h->dir, "LOCK", (struct bytes){});
}

static void here_deinit(struct here *h)
{
    names_deinit(&h->nm.n);
    assert_int_equal(test_remove_tree(h->dir), 0);
}

/* ---- checking ----------------------------------------------------------------------------------
 */

struct seen {
    const char *unlink; /* when the first progress is told */
    uint32_t n, most;
    char file[80], table[16], what[160];
    int64_t id;
    struct interval t;
    uint64_t done, all;
};

static bool on_finding(void *ctx, const struct store_finding *f)
{
    struct seen *s = ctx;

    (void)snprintf(s->file, sizeof s->file, "%.*s", STR_ARG(f->file));
    (void)snprintf(s->table, sizeof s->table, "%.*s", STR_ARG(f->table));
    (void)snprintf(s->what, sizeof s->what, "%.*s", STR_ARG(f->what));
    s->id = f->id;
    s->t = f->t;
    assert_true(f->what.n > 0);
    return ++s->n != s->most;
}

static void on_progress(void *ctx, uint64_t done, uint64_t all)
{
    struct seen *s = ctx;

    assert_true(done <= all && done >= s->done);
    if (s->unlink)
        assert_int_equal(unlink(s->unlink), 0);
    s->unlink = NULL;
    s->done = done;
    s->all = all;
}

static int check(const char *dir, enum store_depth depth, struct seen *s, struct store_checked *ret)
{
    const struct store_check_conf conf = {
        .dir = dir, .depth = depth, .finding = on_finding, .progress = on_progress, .ctx = s};
    struct err err = {};
    int r;

    s->n = 0;
    s->done = s->all = 0;
    r = store_check(&conf, ret, &err);
    if (r < 0)
        (void)snprintf(s->what, sizeof s->what, "%s", err.msg);
    if (r >= 0)
        assert_int_equal(ret->findings, s->n);
    assert_true(r < 0 || (r == STORE_PARTIAL) == (s->n > 0));
    return r;
}

static void test_sound(void **state)
{
    struct here h;
    struct seen s = {};
    struct store_checked c;
    struct bytes before, after;

    (void)state;
    here_init(&h);
    before = file_get(h.dir, "catalog.db");
    for (int depth = STORE_CHECK_QUICK; depth <= STORE_CHECK_DEEP; depth++) {
        if (check(h.dir, (enum store_depth)depth, &s, &c) != 0)
            fail_msg("%s %s: %s", s.file, s.table, s.what);
        assert_int_equal(c.parts, 1);
        assert_int_equal(c.blocks, depth == STORE_CHECK_QUICK ? 0 : 4);
        assert_int_equal(c.rows, depth == STORE_CHECK_QUICK ? 0 : 547);
        assert_true(s.done == s.all && s.all > h.info.bytes);
        assert_false(c.beside);
    }
    after = file_get(h.dir, "catalog.db");
    assert_true(before.n == after.n && memcmp(before.p, after.p, after.n) == 0);
    assert_false(file_there(h.dir, "catalog.db-shm"));
    free(before.p);
    free(after.p);
    assert_int_equal(check("/nonexistent", STORE_CHECK_QUICK, &s, &c), -ENOENT);
    here_deinit(&h);
}

/* Files that are gone, of another size, not listed. */
static void test_files(void **state)
{
    struct here h;
    struct seen s = {};
    struct store_checked c;
    struct bytes part, dict, cut;

    (void)state;
    here_init(&h);
    part = file_get(h.dir, PART);
    dict = file_get(h.dir, "dict/12.db");
    file_put(h.dir, "shard/raw/20251129T12-e12-g9.db", part);
    assert_int_equal(check(h.dir, STORE_CHECK_QUICK, &s, &c), STORE_PARTIAL);
    assert_string_equal(s.file, "shard/raw/20251129T12-e12-g9.db");
    assert_non_null(strstr(s.what, "the catalog does not have it"));
    file_put(h.dir, "shard/raw/20251129T12-e12-g9.db", (struct bytes){});
    {
        char path[256];

        (void)snprintf(path, sizeof path, "%s/shard/raw/20251129T12-e12-g9.db", h.dir);
        assert_int_equal(unlink(path), 0);
        (void)snprintf(path, sizeof path, "%s/" PART, h.dir);
        assert_int_equal(unlink(path), 0);
    }
    assert_int_equal(check(h.dir, STORE_CHECK_QUICK, &s, &c), STORE_PARTIAL);
    assert_string_equal(s.file, PART);
    assert_non_null(strstr(s.what, "is gone"));
    assert_true(s.t.t0.v == T0 && s.t.t1.v == T0 + 600 * NS_PER_S);
    cut = (struct bytes){part.p, part.n - 2048};
    file_put(h.dir, PART, cut);
    assert_int_equal(check(h.dir, STORE_CHECK_QUICK, &s, &c), STORE_PARTIAL);
    assert_non_null(strstr(s.what, "has another size"));
    assert_null(strstr(s.what, s.file)); /* said once */
    file_put(h.dir, PART, part);
    {
        char path[256];

        (void)snprintf(path, sizeof path, "%s/dict/12.db", h.dir);
        assert_int_equal(unlink(path), 0);
        assert_int_equal(mkfifo(path, 0600), 0); /* not waited for */
        assert_int_equal(check(h.dir, STORE_CHECK_FULL, &s, &c), STORE_PARTIAL);
        assert_string_equal(s.file, "dict/12.db");
        assert_int_equal(unlink(path), 0);
    }
    file_put(h.dir, "dict/12.db", (struct bytes){dict.p, 100});
    assert_int_equal(check(h.dir, STORE_CHECK_FULL, &s, &c), STORE_PARTIAL);
    assert_string_equal(s.file, "dict/12.db");
    file_put(h.dir, "dict/12.db", dict);
    assert_int_equal(check(h.dir, STORE_CHECK_FULL, &s, &c), 0);
    free(part.p);
    free(dict.p);
    here_deinit(&h);
}

/* What a killed server left: files of a seal and of a merge that the catalog did not hear of, and
 * one that it wants no more. Nothing of it is damage. */
static void test_left_over(void **state)
{
    struct here h;
    struct seen s = {};
    struct store_checked c;
    struct part_info listed;

    (void)state;
    here_init(&h);
    listed = h.info;
    make_part(&h, 4, 4712, NULL); /* sealed_lsn of the catalog: 4711 */
    assert_int_equal(check(h.dir, STORE_CHECK_FULL, &s, &c), 0);
    make_part(&h, 5, 4711, &listed);
    assert_int_equal(check(h.dir, STORE_CHECK_FULL, &s, &c), 0);
    make_part(&h, 6, 4711, NULL);
    assert_int_equal(check(h.dir, STORE_CHECK_FULL, &s, &c), STORE_PARTIAL);
    assert_string_equal(s.file, "shard/raw/20251129T12-e12-g6.db");
    {
        const struct catalog_change ch = {.n_part = 1, .part = &h.info};
        struct catalog *cat = NULL;
        struct err err = {};

        h.info.id = 2;
        h.info.state = PART_GONE;
        assert_ok(catalog_open(h.dir, NULL, (real_ns){T0}, &cat, &err), &err);
        assert_ok(catalog_commit(cat, &ch, &err), &err);
        cat = catalog_close(cat);
    }
    assert_int_equal(check(h.dir, STORE_CHECK_FULL, &s, &c), 0);
    assert_int_equal(c.parts, 1);
    here_deinit(&h);
}

/* Every flip in a part is noticed by a deep look; a full one notices what can be asked for. */
static void test_flips(void **state)
{
    static const char *const name[] = {PART, "dict/12.db", "catalog.db"};
    struct here h;
    struct seen s = {};
    struct store_checked c;

    (void)state;
    here_init(&h);
    for (int i = 0; i < 3; i++) {
        struct bytes file = file_get(h.dir, name[i]);
        size_t step = flip_step(file.n, 150), full = 0, n = 0;

        for (size_t at = 0; at < file.n; at += step, n++) {
            int r;

            file.p[at] ^= (char)(1 << at % 8);
            file_put(h.dir, name[i], file);
            file.p[at] ^= (char)(1 << at % 8);
            r = check(h.dir, STORE_CHECK_FULL, &s, &c);
            assert_true(r == 0 || r == STORE_PARTIAL || r == -EPROTO);
            full += r != 0;
            r = check(h.dir, STORE_CHECK_DEEP, &s, &c);
            if (i == 0 && r == 0)
                fail_msg("byte %zu of %s: not noticed", at, name[i]);
        }
        print_message("%s: %zu of %zu flips found without hashes\n", name[i], full, n);
        assert_true(full > n / 50);
        file_put(h.dir, name[i], file);
        free(file.p);
        assert_int_equal(check(h.dir, STORE_CHECK_DEEP, &s, &c), 0);
    }
    here_deinit(&h);
}

/* Sums that are right, of numbers that are wrong: rows of SQL that a flip would not make. */
static void test_wrong_numbers(void **state)
{
    struct here h;
    struct seen s = {};
    struct store_checked c;
    struct bytes part;

    (void)state;
    here_init(&h);
    part = file_get(h.dir, PART);
    file_sql(h.dir, PART, "DELETE FROM hsum");
    assert_int_equal(check(h.dir, STORE_CHECK_QUICK, &s, &c), STORE_PARTIAL);
    file_put(h.dir, PART, part);
    file_sql(h.dir, PART, "DELETE FROM cols WHERE id = 2");
    assert_int_equal(check(h.dir, STORE_CHECK_FULL, &s, &c), STORE_PARTIAL);
    assert_int_equal(s.n, 2); /* the sum of sums, and the block */
    assert_string_equal(s.table, "block");
    assert_int_equal(s.id, 2);
    assert_int_equal(s.t.t0.v, T0 + 3000 * NS_PER_MS);
    assert_int_equal(c.blocks, 4); /* the others were checked */
    file_put(h.dir, PART, part);
    file_sql(h.dir, PART, "UPDATE meta SET v = v + 1 WHERE k = 'rows'");
    assert_int_equal(check(h.dir, STORE_CHECK_QUICK, &s, &c), STORE_PARTIAL);
    assert_string_equal(s.table, "meta");
    s.most = 1;
    assert_int_equal(check(h.dir, STORE_CHECK_QUICK, &s, &c), -ECANCELED);
    free(part.p);
    here_deinit(&h);
}

/* Names of other services, a dictionary of another store: what ids lead to is looked at. */
static void test_ids(void **state)
{
    struct here h;
    struct seen s = {};
    struct store_checked c;
    char path[256];

    (void)state;
    here_init(&h);
    (void)snprintf(path, sizeof path, "%s/catalog.db", h.dir);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(check(h.dir, STORE_CHECK_QUICK, &s, &c), STORE_PARTIAL);
    assert_string_equal(s.file, "catalog.db");
    (void)snprintf(path, sizeof path, "%s/dict/12.db", h.dir);
    assert_int_equal(unlink(path), 0);
    {
        struct dictfile *f = NULL;
        struct err err = {};

        assert_ok(dictfile_create(h.dir, 12, NULL, &f, &err), &err); /* without a stack */
        f = dictfile_close(f);
    }
    make_catalog(&h);
    assert_int_equal(check(h.dir, STORE_CHECK_FULL, &s, &c), STORE_PARTIAL);
    assert_int_equal(s.n, 4);
    assert_non_null(strstr(s.what, "stacks that the dictionary does not have"));
    here_deinit(&h);
}

/* A server has it: its own files are left alone, sealed parts are checked. */
static void test_beside(void **state)
{
    struct here h;
    struct seen s = {};
    struct store_checked c;
    char path[256];
    int fd;

    (void)state;
    here_init(&h);
    (void)snprintf(path, sizeof path, "%s/LOCK", h.dir);
    fd = open(path, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0);
    file_put(h.dir, "catalog.db", (struct bytes){(char[]){"busy"}, 4});
    assert_int_equal(check(h.dir, STORE_CHECK_FULL, &s, &c), 0);
    assert_true(c.beside);
    assert_int_equal(c.parts, 1);
    assert_int_equal(c.rows, 547);
    /* a part that is replaced while we look */
    make_part(&h, 4, 4712, NULL);
    (void)snprintf(path, sizeof path, "%s/%s", h.dir, h.info.name);
    s.unlink = path;
    assert_int_equal(check(h.dir, STORE_CHECK_FULL, &s, &c), 0);
    assert_false(file_there(h.dir, h.info.name));
    assert_int_equal(c.rows, 547);
    file_sql(h.dir, PART, "DELETE FROM cols WHERE id = 2");
    assert_int_equal(check(h.dir, STORE_CHECK_FULL, &s, &c), STORE_PARTIAL);
    (void)close(fd);
    here_deinit(&h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sound),         cmocka_unit_test(test_files),
        cmocka_unit_test(test_flips),         cmocka_unit_test(test_left_over),
        cmocka_unit_test(test_wrong_numbers), cmocka_unit_test(test_ids),
        cmocka_unit_test(test_beside),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
