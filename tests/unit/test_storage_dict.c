// SPDX-License-Identifier: Apache-2.0
#include <string.h>

#include "storage/dict/dict_private.h"
#include "storage/dict/names_private.h"
#include "tests/lib/testing.h"

static void begin(struct pool *p, struct dict *d, uint32_t max_nodes)
{
    pool_init(p);
    assert_true(dict_init(d, p, 99, max_nodes));
}

static void end(struct pool *p, struct dict *d)
{
    dict_deinit(d);
    pool_deinit(p);
}

static void test_texts(void **state)
{
    struct pool p;
    struct texts x;
    uint32_t a, b;

    (void)state;
    pool_init(&p);
    assert_true(texts_init(&x, &p, 99));
    assert_int_equal(text_id(&x, (struct str){NULL, 0}), 0);
    a = text_id(&x, STR("a\0b"));
    b = text_id(&x, STR("a"));
    assert_true(a != b && a && b);
    assert_int_equal(text_id(&x, STR("a\0b")), a);
    assert_str(text_of(&x, a), STR("a\0b"));
    texts_deinit(&x);
    pool_deinit(&p);
}

/* By name, the later of two wins, an empty value is none. */
static void test_label_sets(void **state)
{
    struct names n;
    uint32_t x, y, z, one, two, empty, set;
    const struct names_labels *l;

    (void)state;
    assert_true(names_init(&n, 99));
    x = text_id(&n.text, STR("x"));
    y = text_id(&n.text, STR("y"));
    z = text_id(&n.text, STR("z"));
    one = text_id(&n.text, STR("1"));
    two = text_id(&n.text, STR("2"));
    set = names_label_set(&n, 5, (uint32_t[]){z, one, x, one, y, two, x, two, z, 0});
    l = names_labels(&n, set);
    assert_int_equal(l->n, 2);
    assert_str(l->v[0].name, STR("x"));
    assert_str(l->v[0].value, STR("2"));
    assert_str(l->v[1].name, STR("y"));
    assert_int_equal(names_label_set(&n, 2, (uint32_t[]){y, two, x, two}), set);
    empty = names_label_set(&n, 1, (uint32_t[]){x, 0});
    assert_int_equal(empty, 0);
    one = names_label_set(&n, 1, (uint32_t[]){y, two});
    l = names_labels(&n, set);
    assert_true(names_labels_within(names_labels(&n, one), l));
    assert_true(names_labels_within(names_labels(&n, 0), l));
    assert_false(names_labels_within(l, names_labels(&n, one)));
    names_deinit(&n);
}

/* Lines become known after a function was first seen: it then has its file, and the same number. */
static void test_file_later(void **state)
{
    struct pool p;
    struct dict d;
    struct dict_frame f = {.kind = FRAME_NATIVE};
    const struct dict_func *fn;
    uint32_t bare, lined, func;

    (void)state;
    begin(&p, &d, 0);
    f.name = text_id(&d.text, STR("train"));
    f.bin = text_id(&d.text, STR("/opt/app"));
    f.addr = 0x1234;
    bare = dict_frame_of(&d, &f);
    func = f.func;
    fn = TABLE(&d.func, struct dict_func, func);
    assert_int_equal(fn->file, 0);
    f.file = text_id(&d.text, STR("/src/train.c"));
    f.line = 17;
    f.flags = FRAME_INLINED;
    lined = dict_frame_of(&d, &f);
    assert_true(lined != bare);
    assert_int_equal(f.func, func);
    assert_str(dict_str(&d, fn->file), STR("/src/train.c"));
    f.file = text_id(&d.text, STR("/src/other.h")); /* the first one stays */
    (void)dict_frame_of(&d, &f);
    assert_str(dict_str(&d, fn->file), STR("/src/train.c"));
    end(&p, &d);
}

/* A chain of n nodes, all of one function. */
#define CHAIN 3000u

static struct batch_node node[CHAIN + 1];
static uint32_t text[2] = {UINT32_MAX, UINT32_MAX}, frames[2] = {UINT32_MAX, UINT32_MAX},
                ids[CHAIN + 1];
static struct dict_trie *tries[CHAIN + 1];
static uint16_t depths[CHAIN + 1];

/* t: where its last one is used, or NULL. */
static void chain(struct dict *d, uint32_t n, struct dict_trie *t)
{
    static const struct str str[] = {{NULL, 0}, STR("f")};
    static const struct batch_bin bin[1];
    static const struct batch_fn fn[] = {{}, {.name = 1}};
    static const struct batch_frame frame[] = {{}, {.kind = FRAME_OTHER, .fn = 1}};
    const struct batch b = {.n_str = 2,
                            .str = str,
                            .n_bin = 1,
                            .bin = bin,
                            .n_fn = 2,
                            .fn = fn,
                            .n_frame = 2,
                            .frame = frame,
                            .n_node = n + 1,
                            .node = node};
    struct dict_batch db = {.b = &b, .text = text, .frame = frames, .node = ids};

    db.trie = tries;
    db.depth = depths;
    memset(tries, 0, sizeof tries);
    memset(depths, 0, sizeof depths);
    tries[n] = t;
    memset(text, 0xff, sizeof text);
    memset(frames, 0xff, sizeof frames);
    for (uint32_t i = 1; i <= n; i++)
        node[i] = (struct batch_node){.parent = i - 1, .frame = 1, .hash = 1000 + i};
    assert_true(dict_batch_nodes(d, NULL, &db));
}

static void test_deep(void **state)
{
    struct pool p;
    struct dict d;
    struct dict_trie *t;
    bool folded = false;
    struct store_trie r;
    struct arena bits;
    uint32_t leaf;

    (void)state;
    begin(&p, &d, CHAIN);
    chain(&d, CHAIN, NULL);
    assert_true(ids[CHAIN] & DICT_FOLDED);
    assert_false(ids[DICT_DEPTH] & DICT_FOLDED);
    assert_int_equal(ids[CHAIN] & ~DICT_FOLDED, ids[DICT_DEPTH]);
    assert_true(dict_knows(&d, 1000 + DICT_DEPTH));
    assert_false(dict_knows(&d, 1000 + CHAIN));
    t = dict_trie_new(&d, (struct store_trie_id){.epoch = 1, .svc = 1});
    assert_non_null(t);
    leaf = dict_trie_node(&d, t, ids[DICT_DEPTH], &folded);
    assert_int_equal(leaf, DICT_DEPTH);
    assert_false(folded);
    dict_trie_publish(t);
    arena_init(&bits, 1 << 20);
    assert_true(dict_trie_read(&d, t, &bits, &r));
    assert_int_equal(r.n, DICT_DEPTH + 1);
    assert_int_equal(r.n_fnode, DICT_DEPTH + 1);
    for (uint32_t i = 2; i <= DICT_DEPTH; i++) /* one function, over and over */
        assert_true(r.again[i / 64] >> i % 64 & 1);
    assert_false(r.again[0] >> 1 & 1);
    arena_deinit(&bits);
    dict_trie_free(&d, t);
    end(&p, &d);
}

/* A full trie books on the nearest ancestor that is there. */
static void test_full(void **state)
{
    struct pool p;
    struct dict d;
    struct dict_trie *t;
    bool folded = false;

    (void)state;
    begin(&p, &d, 10);
    chain(&d, 50, NULL);
    t = dict_trie_new(&d, (struct store_trie_id){.epoch = 1, .svc = 1});
    assert_non_null(t);
    assert_int_equal(dict_trie_node(&d, t, ids[50], &folded), 9);
    assert_true(folded);
    folded = false;
    assert_int_equal(dict_trie_node(&d, t, ids[5], &folded), 5);
    assert_false(folded);
    dict_trie_free(&d, t);
    end(&p, &d);
}

/* A stack has its node where it is used first; another trie gets copies, found from there, and what
 * hangs below them is equal to what hangs below the first. */
static void test_copies(void **state)
{
    struct pool p;
    struct dict d;
    struct dict_trie *t[2];
    bool folded = false;
    uint32_t at, first[51];

    (void)state;
    begin(&p, &d, CHAIN);
    for (uint32_t i = 0; i < 2; i++)
        t[i] = dict_trie_new(&d, (struct store_trie_id){.epoch = 1, .svc = 1 + i});
    chain(&d, 30, t[0]);
    memcpy(first, ids, sizeof first);
    assert_int_equal(t[0]->parent.n, 31);
    assert_int_equal(d.none->parent.n, 1);
    for (uint32_t i = 1; i <= 30; i++) {
        assert_true(dict_trie_find(&d, t[0], ids[i], &at) && at == i);
        assert_false(dict_trie_find(&d, t[1], ids[i], &at));
    }
    chain(&d, 50, t[1]); /* the first thirty are known; the rest is used there first */
    assert_memory_equal(ids, first, 31 * sizeof *ids);
    assert_int_equal(t[0]->parent.n, 31);
    assert_int_equal(t[1]->parent.n, 51);
    for (uint32_t i = 1; i <= 50; i++) {
        assert_true(dict_trie_find(&d, t[1], ids[i], &at) && at == i);
        assert_int_equal(dict_trie_g(&d, t[1], i), ids[i]);
    }
    assert_int_equal(dict_trie_node(&d, t[0], ids[50], &folded), 50);
    assert_false(folded);
    memcpy(first, ids, sizeof first);
    chain(&d, 50, t[0]);
    assert_memory_equal(ids, first, sizeof first);
    assert_int_equal(d.by_hash.n, 50);
    assert_int_equal(d.clashes, 0);
    for (uint32_t i = 0; i < 2; i++)
        dict_trie_free(&d, t[i]);
    end(&p, &d);
}

/* What a full trie has no room for keeps its number: senders may name it. */
static void test_full_known(void **state)
{
    struct pool p;
    struct dict d;
    struct dict_trie *t;
    bool folded = false;

    (void)state;
    begin(&p, &d, 10);
    t = dict_trie_new(&d, (struct store_trie_id){.epoch = 1, .svc = 1});
    chain(&d, 50, t);
    assert_int_equal(t->parent.n, 10);
    assert_true(dict_knows(&d, 1050));
    assert_int_equal(dict_trie_node(&d, t, ids[50], &folded), 9);
    assert_true(folded);
    dict_trie_free(&d, t);
    end(&p, &d);
}

/* Stacks of one hash: each keeps its own node, and nobody may name them by it. */
static void test_clash(void **state)
{
    struct pool p;
    struct dict d;
    uint32_t first[6];

    (void)state;
    begin(&p, &d, CHAIN);
    chain(&d, 5, NULL);
    memcpy(first, ids, sizeof first);
    for (uint32_t turn = 0; turn < 2; turn++) {
        const struct batch_node clash[] = {
            {}, {.hash = 1003}, {.parent = 1, .frame = 1, .hash = 1002}};
        const struct batch b = {.n_node = 3,
                                .n_known = 1,
                                .node = clash,
                                .n_frame = 2,
                                .frame = (struct batch_frame[2]){},
                                .fn = (struct batch_fn[1]){},
                                .bin = (struct batch_bin[1]){}};
        struct dict_batch db = {
            .b = &b, .frame = frames, .node = ids, .trie = tries, .depth = depths};

        memset(depths, 0, sizeof depths);
        assert_true(dict_batch_nodes(&d, NULL, &db));
        assert_int_equal(ids[1], first[3]);
        assert_true(ids[2] != first[2] && (turn == 0 || ids[2] == first[0]));
        first[0] = ids[2];
        assert_int_equal(d.clashes, 1);
    }
    assert_true(dict_holds(&d, 1002));
    assert_false(dict_knows(&d, 1002));
    assert_true(dict_knows(&d, 1003));
    end(&p, &d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_texts),      cmocka_unit_test(test_label_sets),
        cmocka_unit_test(test_file_later), cmocka_unit_test(test_deep),
        cmocka_unit_test(test_full),       cmocka_unit_test(test_full_known),
        cmocka_unit_test(test_copies),     cmocka_unit_test(test_clash),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
