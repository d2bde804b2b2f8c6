// SPDX-License-Identifier: Apache-2.0
#include "storage/dict/dict_private.h"
#include "storage/dict/dictfile_private.h"
#include "tests/unit/test_storage_file_lib.h"

#define EPOCH 12

/* ---- an epoch that grows --------------------------------------------------------------------- */

struct grown {
    struct epoch *e;
    uint64_t seed;
    uint32_t n_fn, n_svc;
    uint32_t *g; /* nodes met */
    uint32_t n_g, room;
};

static uint64_t rnd(struct grown *x)
{
    x->seed += UINT64_C(0x9e3779b97f4a7c15);
    return hash_mix(x->seed);
}

static void grown_init(struct grown *x, uint32_t n_fn, uint32_t n_svc)
{
    *x = (struct grown){.seed = 5, .n_fn = n_fn, .n_svc = n_svc};
    x->e = epoch_new(EPOCH, 1, 1u << 22);
    assert_non_null(x->e);
    x->g = xcalloc(1, sizeof *x->g);
    x->n_g = x->room = 1; /* the root */
}

static void grown_deinit(struct grown *x)
{
    epoch_unref(x->e);
    free(x->g);
}

static uint32_t random_frame(struct grown *x)
{
    struct dict *d = &x->e->dict;
    uint32_t fn = (uint32_t)(rnd(x) % x->n_fn);
    char name[32], file[32];
    int n = snprintf(name, sizeof name, "function %u", fn);
    int k = snprintf(file, sizeof file, "file%u.py", fn % 7);
    bool native = fn % 3 == 0;
    struct dict_frame f = {.kind = native ? FRAME_NATIVE : FRAME_PYTHON,
                           .flags = fn % 5 == 0 ? FRAME_INLINED : 0,
                           .name = text_id(&d->text, (struct str){name, (size_t)n})};

    f.start_line = fn % 11;
    f.line = f.start_line + (uint32_t)(rnd(x) % 3);
    if (native) {
        f.bin = text_id(&d->text, STR("/usr/lib/libc.so.6"));
        f.bin_id = text_id(&d->text, STR("\x01\x02\0\x03"));
        f.id_kind = BIN_ID_GNU;
        f.addr = UINT64_C(0xffffffff00000000) + UINT64_C(16) * fn;
    } else {
        f.file = text_id(&d->text, (struct str){file, (size_t)k});
    }
    return dict_frame_of(d, &f);
}

/* The stack of that frame below g `parent`, in t if it is new: a batch that says so. */
static uint32_t define(struct dict *d, struct dict_trie *t, uint32_t parent, uint32_t frame)
{
    const uint32_t last = parent ? 2 : 1;
    uint64_t below = *dict_hash(d, parent);
    struct batch_node node[3] = {{}, {.hash = below}};
    struct dict_trie *trie[3] = {[2] = NULL};
    uint32_t frames[2] = {0, frame}, ids[3];
    uint16_t depth[3] = {0};
    const struct batch b = {.n_node = last + 1,
                            .n_known = last - 1,
                            .node = node,
                            .n_frame = 2,
                            .frame = (struct batch_frame[2]){},
                            .fn = (struct batch_fn[1]){},
                            .bin = (struct batch_bin[1]){}};
    struct dict_batch db = {.b = &b, .frame = frames, .node = ids, .trie = trie, .depth = depth};

    node[last] = (struct batch_node){
        .parent = last - 1, .frame = 1, .hash = node_hash(below, dict_frame_hash(d, frame))};
    trie[last] = t;
    assert_true(dict_batch_nodes(d, NULL, &db));
    return ids[last] & ~DICT_FOLDED;
}

/* So many stacks more, each below a node that was met before. */
static void grow(struct grown *x, uint32_t n)
{
    struct dict *d = &x->e->dict;

    for (uint32_t i = 0; i < n; i++) {
        uint32_t back = (uint32_t)(rnd(x) % 4 ? rnd(x) % 8 : rnd(x) % x->n_g);
        uint32_t parent = x->g[x->n_g - 1 - (back < x->n_g ? back : 0)];
        uint32_t frame = random_frame(x);
        struct dict_trie *t = epoch_trie(x->e, 1 + (uint32_t)(rnd(x) % x->n_svc));
        uint32_t g = define(d, t, parent, frame);
        bool folded = false;

        assert_true(dict_trie_node(d, t, g, &folded) != UINT32_MAX);
        if (x->n_g == x->room) {
            x->room *= 2;
            x->g = xrealloc(x->g, x->room * sizeof *x->g);
        }
        x->g[x->n_g++] = g;
    }
    epoch_publish(x->e);
    for (uint32_t i = 0; i < x->e->trie.n; i++)
        dict_trie_publish(epoch_trie_at(x->e, i));
}

/* ---- comparing ------------------------------------------------------------------------------- */

static bool same_text(const struct epoch *a, uint32_t x, const struct epoch *b, uint32_t y)
{
    return str_eq(dict_str(&a->dict, x), dict_str(&b->dict, y));
}

static bool same_frame(const struct epoch *a, const struct epoch *b, uint32_t i)
{
    const struct dict_frame *x = TABLE(&a->dict.frame, struct dict_frame, i);
    const struct dict_frame *y = TABLE(&b->dict.frame, struct dict_frame, i);

    return x->kind == y->kind && x->flags == y->flags && x->id_kind == y->id_kind &&
           x->damaged == y->damaged && x->start_line == y->start_line && x->line == y->line &&
           x->addr == y->addr && same_text(a, x->name, b, y->name) &&
           same_text(a, x->file, b, y->file) && same_text(a, x->bin, b, y->bin) &&
           same_text(a, x->bin_id, b, y->bin_id) && x->name == y->name && x->func == y->func;
}

static const uint32_t *u32_of(const struct vec *v)
{
    return VEC(v, uint32_t, 0);
}

static void assert_same(struct epoch *a, struct epoch *b)
{
    struct arena bits;

    arena_init(&bits, 1 << 26);
    assert_int_equal(texts_n(&a->dict.text), texts_n(&b->dict.text));
    assert_int_equal(a->dict.frame.v.n, b->dict.frame.v.n);
    assert_int_equal(a->dict.func.v.n, b->dict.func.v.n);
    for (uint32_t i = 1; i < a->dict.frame.v.n; i++)
        assert_true(same_frame(a, b, i));
    assert_int_equal(a->trie.n, b->trie.n);
    for (uint32_t i = 0; i < a->trie.n; i++) {
        struct dict_trie *x = epoch_trie_at(a, i), *y = epoch_find(b, x->id.svc, x->id.sub);
        struct store_trie of_x, of_y;

        assert_non_null(y);
        assert_int_equal(x->parent.n, y->parent.n);
        assert_int_equal(atomic_load(&y->n), y->parent.n);
        assert_memory_equal(u32_of(&x->parent), u32_of(&y->parent), 4 * (size_t)x->parent.n);
        assert_memory_equal(u32_of(&x->frame), u32_of(&y->frame), 4 * (size_t)x->parent.n);
        dict_trie_publish(x);
        assert_true(dict_trie_read(&a->dict, x, &bits, &of_x));
        assert_true(dict_trie_read(&b->dict, y, &bits, &of_y));
        assert_memory_equal(of_x.fnode, of_y.fnode, 4 * (size_t)of_x.n);
        assert_int_equal(of_x.n_fnode, of_y.n_fnode);
    }
    arena_deinit(&bits);
}

static struct epoch *load(const char *dir, enum dictfile_how how, struct dictfile **f, int expect,
                          struct err *err)
{
    struct epoch *e = epoch_new(EPOCH, 9, 1u << 22);
    int r;

    assert_non_null(e);
    r = dictfile_load(dir, NULL, how, e, f, err);
    if (r != expect)
        fail_msg("dictfile_load = %d, not %d: %s", r, expect, err->msg);
    return e;
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void test_round_trip(void **state)
{
    static const uint32_t step[] = {1, 30, 4000, 200, 9000, 0, 5};
    struct grown x;
    struct dictfile *f = NULL;
    struct epoch *e;
    struct err err = {};
    char dir[64];

    (void)state;
    folder_make(dir);
    grown_init(&x, 300, 3);
    assert_ok(dictfile_create(dir, EPOCH, NULL, &f, &err), &err);
    epoch_unref(load(dir, DICTFILE_READ, NULL, 0, &err)); /* nothing in it */
    for (size_t i = 0; i < sizeof step / sizeof *step; i++) {
        grow(&x, step[i]);
        assert_ok(dictfile_append(f, x.e, &err), &err);
        if (i == 3)
            dictfile_checkpoint(f);
        if (i == 4) /* as after a restart */
            f = dictfile_close(f);
        e = load(dir, f ? DICTFILE_READ : DICTFILE_APPEND, f ? NULL : &f, 0, &err);
        assert_same(x.e, e);
        epoch_unref(e);
    }
    assert_true(x.e->trie.n == 3 && x.g[x.n_g - 1] > 9000);
    f = dictfile_close(f);
    assert_null(dictfile_close(NULL));
    assert_int_equal(dictfile_create(dir, EPOCH, NULL, &f, &err), -EEXIST);
    grown_deinit(&x);
    assert_int_equal(test_remove_tree(dir), 0);
}

/* The current epoch is loaded with its hashes: a batch may name what it held, and ids go on. */
static void test_maps(void **state)
{
    struct grown x;
    struct dictfile *f = NULL;
    struct epoch *e;
    struct err err = {};
    char dir[64];

    (void)state;
    folder_make(dir);
    grown_init(&x, 50, 2);
    grow(&x, 500);
    assert_ok(dictfile_create(dir, EPOCH, NULL, &f, &err), &err);
    assert_ok(dictfile_append(f, x.e, &err), &err);
    f = dictfile_close(f);
    e = load(dir, DICTFILE_APPEND, &f, 0, &err);
    for (uint32_t i = 0; i < x.n_g; i++)
        assert_true(x.g[i] == 0 || dict_knows(&e->dict, *dict_hash(&x.e->dict, x.g[i])));
    assert_false(dict_knows(&e->dict, 12345));
    assert_int_equal(e->dict.by_hash.n, x.e->dict.by_hash.n);
    epoch_unref(x.e);
    x.e = e;
    x.n_g = 1;
    grow(&x, 700);
    assert_ok(dictfile_append(f, x.e, &err), &err);
    f = dictfile_close(f);
    e = load(dir, DICTFILE_READ, NULL, 0, &err);
    assert_same(x.e, e);
    epoch_unref(e);
    grown_deinit(&x);
    assert_int_equal(test_remove_tree(dir), 0);
}

/* More frames than rank coding has numbers for. */
static void test_many_frames(void **state)
{
    struct grown x;
    struct dictfile *f = NULL;
    struct epoch *e;
    struct err err = {};
    char dir[64];

    (void)state;
    folder_make(dir);
    grown_init(&x, 1u << 20, 1);
    grow(&x, 70000);
    assert_ok(dictfile_create(dir, EPOCH, NULL, &f, &err), &err);
    assert_ok(dictfile_append(f, x.e, &err), &err);
    f = dictfile_close(f);
    e = load(dir, DICTFILE_READ, NULL, 0, &err);
    assert_true(x.e->dict.frame.v.n > 65536);
    assert_same(x.e, e);
    epoch_unref(e);
    grown_deinit(&x);
    assert_int_equal(test_remove_tree(dir), 0);
}

static bool is_damaged(const struct epoch *e, uint32_t frame)
{
    return TABLE(&e->dict.frame, struct dict_frame, frame)->damaged;
}

/* Every node is what it was, or says that it is not known. */
static uint64_t assert_same_or_lost(const struct epoch *a, const struct epoch *b, size_t at)
{
    uint64_t lost = 0;

    for (uint32_t i = 0; i < a->trie.n; i++) {
        const struct dict_trie *x = epoch_trie_at(a, i);
        const struct dict_trie *y = epoch_find(b, x->id.svc, x->id.sub);

        for (uint32_t k = 1; y && k < x->parent.n && k < y->parent.n; k++) {
            uint32_t was = u32_of(&x->frame)[k], is = u32_of(&y->frame)[k];

            if (is_damaged(b, is)) {
                lost++;
                continue;
            }
            if (u32_of(&x->parent)[k] != u32_of(&y->parent)[k] || was != is ||
                TABLE(&a->dict.frame, struct dict_frame, was)->line !=
                    TABLE(&b->dict.frame, struct dict_frame, is)->line ||
                !same_text(a, TABLE(&a->dict.frame, struct dict_frame, was)->name, b,
                           TABLE(&b->dict.frame, struct dict_frame, is)->name))
                fail_msg("byte %zu: node %u of trie %u is another", at, k, i);
        }
    }
    return lost;
}

static void test_damage(void **state)
{
    struct grown x;
    struct dictfile *f = NULL;
    struct bytes file;
    struct err err = {};
    char dir[64];
    size_t step, n = 0, partial = 0, refused = 0;
    uint64_t lost = 0;

    (void)state;
    folder_make(dir);
    grown_init(&x, 200, 2);
    grow(&x, 9500); /* several chunks of each kind but binaries */
    assert_ok(dictfile_create(dir, EPOCH, NULL, &f, &err), &err);
    assert_ok(dictfile_append(f, x.e, &err), &err);
    f = dictfile_close(f);
    file = file_get(dir, "dict/12.db");
    step = flip_step(file.n, 250);
    for (size_t at = 0; at < file.n; at += step, n++) {
        struct epoch *e = epoch_new(EPOCH, 9, 1u << 22);
        int r;

        file.p[at] ^= (char)(1 << at % 8);
        file_put(dir, "dict/12.db", file);
        file.p[at] ^= (char)(1 << at % 8);
        err = (struct err){};
        r = dictfile_load(dir, NULL, n % 2 ? DICTFILE_READ : DICTFILE_APPEND, e, &f, &err);
        partial += r == STORE_PARTIAL;
        refused += r < 0;
        if (r == 0 && n % 2 == 0)
            f = dictfile_close(f);
        if (r == 0)
            assert_same(x.e, e);
        else if (r == STORE_PARTIAL)
            lost += assert_same_or_lost(x.e, e, at);
        else
            assert_true(r == -EBADMSG || r == -EPROTO || r == -EIO);
        assert_true(r == 0 || err.msg[0]);
        epoch_unref(e);
    }
    print_message("%zu flips: %zu partial, %zu refused, %llu nodes lost\n", n, partial, refused,
                  (unsigned long long)lost);
    assert_true(partial > n / 4 && lost > partial);
    free(file.p);
    grown_deinit(&x);
    assert_int_equal(test_remove_tree(dir), 0);
}

/* A page as it was before, or a chunk that is gone. */
static void test_stale(void **state)
{
    struct grown x;
    struct dictfile *f = NULL;
    struct err err = {};
    char dir[64];

    (void)state;
    folder_make(dir);
    grown_init(&x, 40, 1);
    grow(&x, 300);
    assert_ok(dictfile_create(dir, EPOCH, NULL, &f, &err), &err);
    assert_ok(dictfile_append(f, x.e, &err), &err);
    f = dictfile_close(f);
    file_sql(dir, "dict/12.db", "DELETE FROM chunk WHERE kind = 5");
    epoch_unref(load(dir, DICTFILE_READ, NULL, STORE_PARTIAL, &err));
    assert_non_null(strstr(err.msg, "missing, or older"));
    file_sql(dir, "dict/12.db", "DELETE FROM chunk WHERE kind = 1");
    err = (struct err){};
    epoch_unref(load(dir, DICTFILE_APPEND, &f, STORE_PARTIAL, &err));
    file_sql(dir, "dict/12.db", "DELETE FROM chunk");
    epoch_unref(load(dir, DICTFILE_READ, NULL, 0, &err));
    grown_deinit(&x);
    assert_int_equal(test_remove_tree(dir), 0);
}

static void test_foreign(void **state)
{
    struct grown x;
    struct dictfile *f = NULL;
    struct bytes file, now;
    struct err err = {};
    char dir[64];

    (void)state;
    folder_make(dir);
    grown_init(&x, 10, 1);
    grow(&x, 10);
    assert_ok(dictfile_create(dir, EPOCH, NULL, &f, &err), &err);
    assert_ok(dictfile_append(f, x.e, &err), &err);
    f = dictfile_close(f);
    file_sql(dir, "dict/12.db", "PRAGMA user_version=3");
    file = file_get(dir, "dict/12.db");
    epoch_unref(load(dir, DICTFILE_APPEND, &f, -EPROTO, &err));
    assert_non_null(strstr(err.msg, "dict/12.db has format 3, this program reads format 1"));
    now = file_get(dir, "dict/12.db");
    assert_true(now.n == file.n && memcmp(now.p, file.p, now.n) == 0);
    free(now.p);
    free(file.p);
    err = (struct err){};
    file_put(dir, "dict/12.db", (struct bytes){(char[]){"hello"}, 5});
    epoch_unref(load(dir, DICTFILE_READ, NULL, -EBADMSG, &err));
    assert_int_equal(test_remove_tree(dir), 0);
    epoch_unref(load(dir, DICTFILE_READ, NULL, -ENOENT, &err));
    grown_deinit(&x);
}

/* No room at any write: rolled back, and the next append writes all of it. */
static void test_full(void **state)
{
    struct grown x;
    struct dictfile *f = NULL;
    struct epoch *e;
    struct err err = {};
    char dir[64];
    int r = -1;

    (void)state;
    folder_make(dir);
    grown_init(&x, 40, 2);
    assert_ok(dictfile_create(dir, EPOCH, full_register(), &f, &err), &err);
    for (int writes = 0; r != 0; writes += 3) {
        grow(&x, 50);
        full_left = writes;
        err = (struct err){};
        r = dictfile_append(f, x.e, &err);
        full_left = -1;
        assert_true(r == 0 || r == -ENOSPC);
    }
    f = dictfile_close(f);
    e = load(dir, DICTFILE_READ, NULL, 0, &err);
    assert_same(x.e, e);
    epoch_unref(e);
    grown_deinit(&x);
    assert_int_equal(test_remove_tree(dir), 0);
}

static void test_no_memory(void **state)
{
    struct grown x;
    struct dictfile *f = NULL;
    struct epoch *e;
    struct err err = {};
    char dir[64];
    int r = -1;

    (void)state;
    folder_make(dir);
    grown_init(&x, 40, 2);
    grow(&x, 200);
    assert_ok(dictfile_create(dir, EPOCH, NULL, &f, &err), &err);
    for (uint64_t n = 1; r != 0; n++) {
        err = (struct err){};
        mem_fail_nth(n);
        r = dictfile_append(f, x.e, &err);
        mem_fail_nth(0);
        assert_true(r == 0 || r == -ENOMEM);
    }
    f = dictfile_close(f);
    e = load(dir, DICTFILE_READ, NULL, 0, &err);
    assert_same(x.e, e);
    epoch_unref(e);
    r = -1;
    for (uint64_t n = 1; r != 0; n++) {
        e = epoch_new(EPOCH, 9, 1u << 22);
        err = (struct err){};
        mem_fail_nth(n);
        r = dictfile_load(dir, NULL, DICTFILE_APPEND, e, &f, &err);
        mem_fail_nth(0);
        assert_true(r == 0 || r == -ENOMEM);
        epoch_unref(e);
    }
    f = dictfile_close(f);
    grown_deinit(&x);
    assert_int_equal(test_remove_tree(dir), 0);
}

/* A dictionary of format version 1, as it was written when that was new; and what a node costs. */
static void test_golden(void **state)
{
    const char *golden = getenv("STRATA_GOLDEN"); // NOLINT(concurrency-mt-unsafe)
    struct grown x;
    struct dictfile *f = NULL;
    struct epoch *e;
    struct bytes file;
    struct err err = {};
    char dir[64];
    struct store_size size[DICTFILE_KINDS] = {};

    (void)state;
    folder_make(dir);
    grown_init(&x, 60, 2);
    grow(&x, 600);
    assert_ok(dictfile_create(dir, EPOCH, NULL, &f, &err), &err);
    assert_ok(dictfile_append(f, x.e, &err), &err);
    f = dictfile_close(f);
    assert_ok(dictfile_sizes(dir, EPOCH, NULL, size, &err), &err);
    for (int i = 1; i < DICTFILE_KINDS; i++)
        assert_true(size[i].what.n > 0 && size[i].n > 0 && size[i].raw > 0 && size[i].stored > 0);
    assert_str(size[5].what, STR("dict node"));
    assert_true(size[5].n > 600 && size[5].stored < 4 * size[5].n);
    if (golden && getenv("UPDATE_GOLDEN")) { // NOLINT(concurrency-mt-unsafe)
        file = file_get(dir, "dict/12.db");
        file_put(golden, "dict_v1.db", file);
        free(file.p);
    } else if (golden) {
        file = file_get(golden, "dict_v1.db");
        file_put(dir, "dict/12.db", file);
        free(file.p);
    }
    e = load(dir, DICTFILE_READ, NULL, 0, &err);
    assert_same(x.e, e);
    epoch_unref(e);
    grown_deinit(&x);
    assert_int_equal(test_remove_tree(dir), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),  cmocka_unit_test(test_maps),
        cmocka_unit_test(test_many_frames), cmocka_unit_test(test_damage),
        cmocka_unit_test(test_stale),       cmocka_unit_test(test_foreign),
        cmocka_unit_test(test_full),        cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_golden),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
