// SPDX-License-Identifier: Apache-2.0
/* Every way in which an append ends, and that each ends exactly once. */
#include <fcntl.h>
#include <sys/file.h>

#include "tests/unit/test_storage_lib.h"

struct settled {
    struct mutex mu;
    struct cond cond;
    uint32_t n, by_r[8]; /* 0, duplicate, conflict, too old, miss; 7: negative */
    int last;
    uint64_t last_lsn;
    bool rising;
};

static void settled_init(struct settled *d)
{
    *d = (struct settled){.rising = true};
    mutex_init(&d->mu);
    cond_init(&d->cond);
}

static void settled_deinit(struct settled *d)
{
    mutex_deinit(&d->mu);
    cond_deinit(&d->cond);
}

static void on_settled(void *ctx, int r, uint64_t lsn, const struct err *err)
{
    struct settled *d = ctx;

    mutex_lock(&d->mu);
    assert_true((r < 0) == (err != NULL));
    assert_true((r == 0) == (lsn != 0));
    d->by_r[r < 0 ? 7 : r]++;
    if (r == 0) {
        d->rising &= lsn > d->last_lsn;
        d->last_lsn = lsn;
    }
    d->last = r;
    d->n++;
    cond_broadcast(&d->cond);
    mutex_unlock(&d->mu);
}

static void wait_for(struct settled *d, uint32_t n)
{
    mutex_lock(&d->mu);
    while (d->n < n)
        assert_true(cond_wait_for(&d->cond, &d->mu, 20 * NS_PER_S));
    mutex_unlock(&d->mu);
}

static int append(struct fixture *f, const struct batch *b, struct str payload)
{
    return store_append_wait(f->s, b, payload, &(uint64_t){0}, NULL);
}

static void test_identity(void **state)
{
    struct fixture f;
    struct batch b;
    struct store_stats st;
    uint64_t rows;

    (void)state;
    fixture_init(&f);
    fixture_open(&f, 0);
    gen_batch(2000, 10, &f.a, NULL, &b);
    assert_int_equal(append(&f, &b, STR("x")), 0);
    store_stats(f.s, &st);
    rows = st.rows;
    assert_int_equal(append(&f, &b, STR("other form of it")), STORE_DUPLICATE);
    b.id.content++;
    assert_int_equal(append(&f, &b, STR("x")), STORE_SEQ_CONFLICT);
    b.id.seq = 2000 - 1024;
    assert_int_equal(append(&f, &b, STR("x")), STORE_SEQ_TOO_OLD);
    store_stats(f.s, &st);
    assert_int_equal(st.rows, rows);
    assert_int_equal(st.batches, 1);
    assert_int_equal(st.duplicates, 1);
    b.id.seq = 2000 - 1023;
    assert_int_equal(append(&f, &b, STR("x")), 0);
    memset(b.id.agent, 0, 16); /* imports without identity: each counts */
    assert_int_equal(append(&f, &b, STR("x")), 0);
    assert_int_equal(append(&f, &b, STR("x")), 0);
    store_stats(f.s, &st);
    assert_int_equal(st.rows, 4 * rows);
    fixture_deinit(&f);
}

/* The same batch many times at once: one is stored, the others wait for it. */
static void test_in_flight(void **state)
{
    enum {
        N = 200
    };
    struct fixture f;
    struct batch b, conflict;
    struct settled d;

    (void)state;
    fixture_init(&f);
    fixture_open(&f, 0);
    settled_init(&d);
    gen_batch(1, 10, &f.a, NULL, &b);
    conflict = b;
    conflict.id.content++;
    for (int i = 0; i < N; i++)
        store_append(f.s, i % 4 == 3 ? &conflict : &b, STR("x"), on_settled, &d);
    wait_for(&d, N);
    assert_int_equal(d.by_r[0], 1);
    assert_int_equal(d.by_r[STORE_DUPLICATE], N * 3 / 4 - 1);
    assert_int_equal(d.by_r[STORE_SEQ_CONFLICT], N / 4);
    fixture_deinit(&f);
    settled_deinit(&d);
}

/* Many batches at once: few commits, answers in order of LSN, and done of all that were taken when
 * the store is closed under load. */
static void test_groups_and_close(void **state)
{
    enum {
        N = 400
    };
    static struct batch b[N];
    struct fixture f;
    struct settled d;
    struct store_stats st;

    (void)state;
    fixture_init(&f);
    fixture_open(&f, 0);
    settled_init(&d);
    for (uint32_t i = 0; i < N; i++)
        gen_batch(i + 1, 10, &f.a, NULL, &b[i]);
    mutex_lock(&f.s->apply_mu); /* a commit that takes long: it cannot pass its group on */
    for (uint32_t i = 0; i < N / 2; i++)
        store_append(f.s, &b[i], STR("x"), on_settled, &d);
    mutex_unlock(&f.s->apply_mu);
    wait_for(&d, N / 2);
    store_stats(f.s, &st);
    assert_int_equal(d.by_r[0], N / 2);
    assert_true(d.rising);
    assert_in_range(st.commits, 1, 2); /* what waited meanwhile is one group */
    assert_int_equal(st.lsn, N / 2);
    for (uint32_t i = N / 2; i < N; i++)
        store_append(f.s, &b[i], STR("x"), on_settled, &d);
    f.s = store_close(f.s);
    assert_int_equal(d.n, N);
    assert_int_equal(d.by_r[0], N);
    fixture_deinit(&f);
    settled_deinit(&d);
}

static void test_too_much(void **state)
{
    struct fixture f;
    struct batch b;
    struct batch_stream st;
    struct store_stats stats;
    char *big = xcalloc(1, (16u << 20) + 1);

    (void)state;
    fixture_init(&f);
    f.conf.limits.samples = 100;
    f.conf.max_unsealed = 64;
    fixture_open(&f, 0);
    gen_batch(1, 10, &f.a, NULL, &b);
    assert_int_equal(append(&f, &b, (struct str){big, (16u << 20) + 1}), -E2BIG);
    st = b.stream[0];
    st.rows = (struct batch_rows){.n = 101};
    st.period = 1;
    b.stream = &st;
    b.n_stream = 1;
    assert_int_equal(append(&f, &b, STR("x")), -E2BIG);
    gen_batch(2, 10, &f.a, NULL, &b);
    assert_int_equal(append(&f, &b, (struct str){big, 60}), 0);
    gen_batch(3, 10, &f.a, NULL, &b);
    assert_int_equal(append(&f, &b, (struct str){big, 5}), -ENOBUFS); /* journal */
    assert_int_equal(append(&f, &b, (struct str){big, 4}), 0);        /* and not remembered */
    store_stats(f.s, &stats);
    assert_int_equal(stats.journal_bytes, 64);
    assert_int_equal(stats.state, STORE_OK);
    fixture_deinit(&f);
    free(big);
}

static void test_head_full(void **state)
{
    struct fixture f;
    struct err err = {};
    struct store_stats st;
    uint64_t seq = 1;
    int r;

    (void)state;
    fixture_init(&f);
    f.conf.mem_head = 3 << 20;
    fixture_open(&f, 0);
    while ((r = fixture_append(&f, seq, true, &err)) == 0)
        seq++;
    assert_int_equal(r, -ENOBUFS);
    assert_non_null(strstr(err.msg, "head"));
    assert_true(seq > 10);
    store_stats(f.s, &st);
    assert_true(st.head_bytes <= f.conf.mem_head);
    assert_int_equal(st.batches, seq - 1);
    fixture_reopen(&f, 0); /* what was acknowledged is shown all the same */
    store_stats(f.s, &st);
    assert_int_equal(st.lsn, seq - 1);
    fixture_deinit(&f);
}

/* A batch that names nodes: held ones are taken, unknown ones come back for definitions. */
static void test_known(void **state)
{
    struct fixture f;
    struct batch full, named;
    struct batch_node node[3] = {};
    const uint32_t row_node[] = {1, 2};
    struct batch_stream st;
    struct store_stats stats;

    (void)state;
    fixture_init(&f);
    fixture_open(&f, 0);
    gen_batch(1, 10, &f.a, NULL, &full);
    named = full;
    named.id.seq = 2;
    named.n_known = 2;
    named.n_node = 3;
    named.node = node;
    node[1].hash = full.node[1].hash;
    node[2].hash = 4711;
    st = full.stream[0];
    st.rows = (struct batch_rows){.n = 2, .node = row_node};
    named.n_stream = 1;
    named.stream = &st;
    assert_int_equal(append(&f, &named, STR("x")), STORE_DICT_MISS);
    assert_int_equal(append(&f, &full, STR("x")), 0);
    assert_int_equal(append(&f, &named, STR("x")), STORE_DICT_MISS);
    node[2].hash = full.node[full.n_node - 1].hash;
    assert_int_equal(append(&f, &named, STR("x")), 0);
    store_stats(f.s, &stats);
    assert_int_equal(stats.dict_misses, 2);
    fixture_deinit(&f);
}

/* One hash, two meanings: both keep their stack, and the hash is not taken any more. */
static void test_clash(void **state)
{
    struct fixture f;
    struct batch one, two, named;
    struct batch_node node[2][3] = {};
    struct batch_stream st;
    const uint32_t row_node[] = {1, 2};
    struct store_stats stats;

    (void)state;
    fixture_init(&f);
    fixture_open(&f, 0);
    gen_batch(1, 10, &f.a, NULL, &one);
    st = one.stream[0];
    st.rows = (struct batch_rows){.n = 2, .node = row_node};
    one.n_stream = 1;
    one.stream = &st;
    one.n_node = 3;
    two = one;
    two.id.seq = 2;
    one.node = node[0];
    two.node = node[1];
    node[0][1] = (struct batch_node){0, 1, 77};
    node[0][2] = (struct batch_node){1, 2, 78};
    node[1][1] = (struct batch_node){0, 3, 77};
    node[1][2] = (struct batch_node){1, 2, 78};
    assert_int_equal(append(&f, &one, STR("x")), 0);
    assert_int_equal(append(&f, &two, STR("x")), 0);
    store_stats(f.s, &stats);
    assert_int_equal(stats.hash_clashes, 2);
    assert_int_equal(stats.nodes, 5); /* a root, and two stacks of two */
    two.id.seq = 3;
    assert_int_equal(append(&f, &two, STR("x")), 0);
    store_stats(f.s, &stats);
    assert_int_equal(stats.nodes, 5);
    named = one;
    named.id.seq = 4;
    named.n_known = 1;
    assert_int_equal(append(&f, &named, STR("x")), STORE_DICT_MISS);
    fixture_deinit(&f);
}

static void test_folds(void **state)
{
    struct fixture f;
    struct err err = {};
    struct store_stats st;

    (void)state;
    store_tuning.trie_nodes = 50;
    fixture_init(&f);
    f.conf.limits.series_per_service = 2;
    fixture_open(&f, 0);
    for (uint64_t i = 1; i <= 20; i++)
        assert_ok(fixture_append(&f, i, false, &err), &err);
    store_stats(f.s, &st);
    assert_true(st.stack_folded > 0);
    assert_true(st.series_overflow > 0);
    assert_true(st.service_missing > 0);
    assert_true(st.nodes <= (uint64_t)N_SVC * 50);
    assert_true(st.series <= (uint64_t)N_SVC * (2 + 3)); /* and one folded per type */
    fixture_deinit(&f);
    store_tuning.trie_nodes = 0;
}

static void test_lock(void **state)
{
    struct fixture f;
    struct store *two = NULL;
    struct err err = {};
    char path[128];
    int fd;

    (void)state;
    fixture_init(&f);
    (void)snprintf(path, sizeof path, "%s/LOCK", f.dir);
    fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(flock(fd, LOCK_EX), 0);
    assert_int_equal(store_open(&f.conf, &two, &err), -EBUSY);
    assert_non_null(strstr(err.msg, f.dir));
    (void)close(fd);
    fixture_open(&f, 0);
    fixture_deinit(&f);
}

static void test_not_here(void **state)
{
    struct fixture f;
    struct err err = {};

    (void)state;
    fixture_init(&f);
    f.conf.dir = "/nonexistent/a/b";
    assert_int_equal(store_open(&f.conf, &f.s, &err), -ENOENT);
    f.conf.dir = f.dir;
    f.conf.read_only = true;
    assert_int_equal(store_open(&f.conf, &f.s, NULL), -ENOENT);
    fixture_deinit(&f);
    assert_null(store_close(NULL));
    assert_null(store_view_put(NULL));
}

struct senders {
    uint32_t n;
    uint64_t seq[4];
    int64_t last;
};

static bool on_sender(void *ctx, const struct store_sender *s)
{
    struct senders *l = ctx;

    assert_true(l->n == 0 || s->last.v <= l->last);
    l->seq[l->n++] = s->seq;
    l->last = s->last.v;
    return true;
}

static void test_senders(void **state)
{
    struct fixture f;
    struct batch b;
    struct senders l = {};
    struct err err = {};

    (void)state;
    fixture_init(&f);
    fixture_open(&f, 0);
    for (uint8_t i = 1; i <= 3; i++) {
        gen_batch(i, 10, &f.a, NULL, &b);
        b.id.boot[0] = i;
        assert_int_equal(append(&f, &b, STR("x")), 0);
    }
    assert_ok(store_list_senders(f.s, on_sender, &l, &err), &err);
    assert_int_equal(l.n, 3);
    assert_int_equal(l.seq[0], 3);
    assert_int_equal(l.seq[2], 1);
    fixture_deinit(&f);
}

/* A view does not change, whatever comes behind it. */
static void test_view_stays(void **state)
{
    static struct sums s[2];
    struct fixture f;
    struct err err = {};
    struct store_view *v;
    struct store_trie t[2] = {};
    struct store_answer answer;
    struct store_query q = {
        .n_side = 1, .side = {{.sel = {.type = PTYPE_CPU}, .range = WHOLE}}, .want = STORE_STACKS};
    uint64_t etag = 0;

    (void)state;
    fixture_init(&f);
    fixture_open(&f, 0);
    for (uint64_t i = 1; i <= 5; i++)
        assert_ok(fixture_append(&f, i, false, &err), &err);
    v = store_view_get(f.s);
    q.arena = &f.a;
    for (int i = 0; i < 2; i++) {
        const struct store_sink sink = {.share = sums_share, .ctx = &s[i]};

        assert_ok(store_scan(v, &q, &sink, &answer, &err), &err);
        assert_ok(store_trie(v, (struct store_trie_id){1, 1, 0}, &t[i], &err), &err);
        if (i == 0)
            etag = answer.etag;
        for (uint64_t k = 6; i == 0 && k <= 60; k++)
            assert_ok(fixture_append(&f, k, false, &err), &err);
    }
    assert_memory_equal(s[0].value, s[1].value, sizeof s[0].value);
    assert_true(etag == answer.etag);
    assert_int_equal(t[0].n, t[1].n);
    assert_ptr_equal(t[0].parent, t[1].parent);
    assert_null(store_view_put(v));
    fixture_deinit(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_identity),
        cmocka_unit_test(test_in_flight),
        cmocka_unit_test(test_groups_and_close),
        cmocka_unit_test(test_too_much),
        cmocka_unit_test(test_head_full),
        cmocka_unit_test(test_known),
        cmocka_unit_test(test_clash),
        cmocka_unit_test(test_folds),
        cmocka_unit_test(test_lock),
        cmocka_unit_test(test_not_here),
        cmocka_unit_test(test_senders),
        cmocka_unit_test(test_view_stays),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
