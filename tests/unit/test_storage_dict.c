// SPDX-License-Identifier: Apache-2.0
#include <string.h>

#include "storage/dict_private.h"
#include "storage/names_private.h"
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

static void chain(struct dict *d, uint32_t n)
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
    chain(&d, CHAIN);
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
    chain(&d, 50);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_texts),      cmocka_unit_test(test_label_sets),
        cmocka_unit_test(test_file_later), cmocka_unit_test(test_deep),
        cmocka_unit_test(test_full),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
