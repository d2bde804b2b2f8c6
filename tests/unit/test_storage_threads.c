// SPDX-License-Identifier: Apache-2.0
/* Readers beside a writer: what a view answers is a prefix of what was acknowledged, whole batches,
 * and never changes. For TSan too. */
#include "tests/unit/test_storage_lib.h"

#define BATCHES 120u
#define READERS 3u

struct shared {
    struct fixture f;
    unit_i128 prefix[BATCHES + 1]; /* cpu of the first n batches */
    uint64_t count[BATCHES + 1];
    _Atomic uint32_t acked;
    _Atomic uint32_t reads;
    atomic_bool stop;
};

static bool add_up(void *ctx, uint32_t worker, const struct store_share *sh)
{
    struct {
        unit_i128 value;
        uint64_t count;
    } *sum = ctx;

    /* one accumulator per worker and no lock: as the header promises */
    for (uint32_t i = 0; i < sh->n; i++) {
        sum[worker].value += sh->sum.v ? sh->sum.v[i] : sh->sum.wide[i];
        sum[worker].count += sh->count[i];
    }
    return true;
}

static void read_once(struct shared *s, struct arena *a, uint32_t *ret_n)
{
    struct {
        unit_i128 value;
        uint64_t count;
    } sum[4] = {}, all = {};
    uint32_t before = atomic_load(&s->acked);
    struct store_view *v = store_view_get(s->f.s);
    const struct store_sink sink = {.share = add_up, .ctx = sum};
    struct store_query q = {.n_side = 1,
                            .side = {{.sel = {.type = PTYPE_CPU}, .range = WHOLE}},
                            .want = STORE_STACKS,
                            .arena = a};
    struct store_answer answer;
    struct err err = {};
    uint32_t n;

    arena_reset(a);
    assert_ok(store_scan(v, &q, &sink, &answer, &err), &err);
    for (uint32_t i = 0; i < store_workers(v); i++) {
        all.value += sum[i].value;
        all.count += sum[i].count;
    }
    for (n = 0; n <= BATCHES; n++) {
        if (s->prefix[n] == all.value && s->count[n] == all.count)
            break;
    }
    assert_true(n <= BATCHES);
    assert_true(n >= before); /* what was answered before is seen */
    for (uint32_t svc = 1; svc <= N_SVC; svc++) {
        struct store_trie t;
        struct store_frame fr;

        if (store_trie(v, (struct store_trie_id){1, svc, 0}, &t, NULL) != 0)
            continue;
        for (uint32_t i = 1; i < t.n; i++) {
            assert_true(t.parent[i] < i && t.fnode[i] < t.n_fnode);
            assert_int_equal(store_frame(v, 1, t.frame[i], &fr, NULL), 0);
            assert_int_equal(fr.func, t.func[t.fnode[i]]);
        }
    }
    v = store_view_put(v);
    *ret_n = n;
}

static void *reader(void *arg)
{
    struct shared *s = arg;
    struct arena a;
    uint32_t last = 0, n;

    arena_init(&a, 1 << 22);
    while (!atomic_load(&s->stop)) {
        read_once(s, &a, &n);
        assert_true(n >= last);
        last = n;
        atomic_fetch_add(&s->reads, 1);
    }
    arena_deinit(&a);
    return NULL;
}

static void test_prefix(void **state)
{
    static struct shared s;
    static struct batch b[BATCHES + 1];
    static struct oracle o;
    pthread_t t[READERS];
    struct store_stats st;

    (void)state;
    store_tuning.scan_rows = 200;
    fixture_init(&s.f);
    s.f.conf.workers = 4;
    fixture_open(&s.f, 0);
    for (uint32_t i = 1, at = 0; i <= BATCHES; i++) {
        gen_batch(i, GEN_ROWS, &s.f.a, &o, &b[i]);
        s.prefix[i] = s.prefix[i - 1];
        s.count[i] = s.count[i - 1];
        for (; at < o.n; at++) {
            if (o.v[at].type == PTYPE_CPU) {
                s.prefix[i] += o.v[at].value;
                s.count[i] += o.v[at].count;
            }
        }
    }
    for (uint32_t i = 0; i < READERS; i++)
        assert_int_equal(thread_start(&t[i], "reader", 0, reader, &s), 0);
    for (uint64_t i = 1; i <= BATCHES; i++) {
        assert_int_equal(store_append_wait(s.f.s, &b[i], (struct str){(const char *)&i, 8},
                                           &(uint64_t){0}, NULL),
                         0);
        atomic_store(&s.acked, (uint32_t)i);
        store_stats(s.f.s, &st);
        assert_true(st.lsn >= i);
    }
    while (atomic_load(&s.reads) < 3 * READERS)
        (void)usleep(1000);
    atomic_store(&s.stop, true);
    for (uint32_t i = 0; i < READERS; i++)
        assert_int_equal(pthread_join(t[i], NULL), 0);
    print_message("%u reads\n", atomic_load(&s.reads));
    free(o.v);
    fixture_deinit(&s.f);
    store_tuning = (struct store_tuning){};
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_prefix)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
