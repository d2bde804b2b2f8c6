// SPDX-License-Identifier: Apache-2.0
#include <inttypes.h>

#include "query/query_private.h"
#include "tests/lib/fake_query.h"

/*
 * A tree of which only the shown nodes were named is answered exactly as one that was named whole
 * and trimmed then: each question is asked twice, the second time with query_whole_trees.
 */

#define S NS_PER_S

static uint64_t seed;

static uint32_t rnd(uint32_t n)
{
    seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407;
    return (uint32_t)(seed >> 33) % n;
}

struct shape {
    uint32_t services, epochs, subs, depth, funcs;
    bool templates, unknown, vars;
};

static struct shape random_shape(void)
{
    return (struct shape){.services = 1 + rnd(4),
                          .epochs = 1 + (rnd(3) == 0),
                          .subs = 1 + (rnd(3) == 0),
                          .depth = 1 + rnd(30),
                          .funcs = 2 + rnd(20),
                          .templates = rnd(2),
                          .unknown = rnd(10) == 0,
                          .vars = rnd(10) == 0};
}

static void random_row(struct store *s, const struct shape *sh)
{
    static const char *const services[] = {"service=a,host=x", "service=b,host=x",
                                           "service=b,host=y", "service=c,host=y"};
    static const char *const files[] = {"one.c", "two.c", "a.py"};
    static const char *const odd[] = {"[no stack: x]", "[truncated: deep]", "0x12ab", "libx+0x7f"};
    struct fake_frame f[40];
    char name[40][24];
    uint32_t depth = 1 + rnd(sh->depth);

    for (uint32_t i = 0; i < depth; i++) {
        uint32_t fn = rnd(sh->funcs);

        (void)snprintf(name[i], sizeof name[i], sh->templates && rnd(2) ? "f%u<%u>" : "f%u", fn,
                       rnd(3));
        f[i] = (struct fake_frame){
            .kind = rnd(2) ? FRAME_NATIVE : FRAME_PYTHON, .name = str_c(name[i]), .line = rnd(3)};
        if (rnd(30) == 0) {
            uint32_t k = rnd(4);

            f[i].name = str_c(odd[k]);
            f[i].kind = k < 2 ? FRAME_OTHER : FRAME_NATIVE;
        }
        if (f[i].kind == FRAME_PYTHON) {
            f[i].file = rnd(2) ? STR("a.py") : STR("b.py");
        } else if (f[i].kind == FRAME_NATIVE) { /* one scope, several binaries, files and kinds */
            f[i].bin = rnd(4) ? STR("/usr/lib/libx.so") : STR("/opt/libx.so");
            f[i].kind = rnd(8) ? FRAME_NATIVE : FRAME_JIT;
            f[i].file = str_c(files[rnd(3)]);
        }
    }
    fake_store_row(s, &(struct fake_row){.type = PTYPE_CPU,
                                         .labels = services[rnd(sh->services)],
                                         .t = (int64_t)rnd(1000) * S,
                                         .n_frame = depth,
                                         .frame = f,
                                         .count = rnd(9) ? 1 + rnd(5) : 1000,
                                         .count_unknown = sh->unknown && rnd(20) == 0,
                                         .value = rnd(20) ? rnd(1000) : 100000,
                                         .var = sh->vars ? (double)rnd(9) : -1,
                                         .epoch = rnd(sh->epochs),
                                         .sub = rnd(sh->subs)});
}

static struct store *random_store(const struct shape *sh)
{
    struct store *s = fake_store_new();

    for (uint32_t i = 0, rows = 1 + rnd(200); i < rows; i++)
        random_row(s, sh);
    if (rnd(2))
        fake_store_whole(s);
    fake_store_cover(s,
                     &(struct fake_cover){
                         .type = PTYPE_CPU, .t1 = 1000 * S, .basis = BASIS_PERIODIC, .period = 10});
    return s;
}

/* ---- the same answer ---------------------------------------------------------------------------
 */

static void same_text(struct str a, struct str b)
{
    assert_true(str_eq(a, b));
}

static void same_filtered(const struct query_sums *a, const struct query_sums *b)
{
    assert_int_equal(a->n_filtered, b->n_filtered);
    assert_int_equal(a->empty.why, b->empty.why);
    for (uint32_t i = 0; i < a->n_filtered; i++) {
        same_text(a->filtered[i].text, b->filtered[i].text);
        assert_true(a->filtered[i].functions == b->filtered[i].functions);
        assert_true(a->filtered[i].dropped == b->filtered[i].dropped);
        assert_true(a->filtered[i].samples == b->filtered[i].samples);
    }
}

static void same_funcs(const struct query_flame *a, const struct query_flame *b)
{
    assert_int_equal(a->n_func, b->n_func);
    for (uint32_t i = 0; i < a->n_func; i++) {
        same_text(a->func[i].name, b->func[i].name);
        same_text(a->func[i].scope, b->func[i].scope);
        same_text(a->func[i].file, b->func[i].file);
        same_text(a->func[i].bin, b->func[i].bin);
        assert_int_equal(a->func[i].kind, b->func[i].kind);
        assert_true(a->func[i].key == b->func[i].key);
    }
    assert_int_equal(a->n_path, b->n_path);
    for (uint32_t i = 0; i < a->n_path; i++) {
        assert_int_equal(a->path[i].func, b->path[i].func);
        assert_true(a->path[i].hash == b->path[i].hash);
    }
}

static void same_rows(const struct query_flame *a, const struct query_flame *b)
{
    assert_true(a->view_total == b->view_total && a->floor == b->floor);
    assert_true(a->hidden_total == b->hidden_total && a->hidden_nodes == b->hidden_nodes);
    assert_int_equal(a->n, b->n);
    for (uint32_t i = 0; i < a->n; i++) {
        assert_int_equal(a->depth[i], b->depth[i]);
        assert_int_equal(a->node_func[i], b->node_func[i]);
        assert_true(a->self[i] == b->self[i] && a->total[i] == b->total[i]);
        assert_true(a->samples[i] == b->samples[i] && a->hidden[i] == b->hidden[i]);
        assert_true(a->hash[i] == b->hash[i]);
    }
}

static void same_matched(const struct query_matched *a, const struct query_matched *b)
{
    assert_true(a->functions == b->functions && a->samples == b->samples);
    assert_true(a->total == b->total && a->view == b->view);
    assert_int_equal(a->n_func, b->n_func);
    for (uint32_t i = 0; i < a->n_func; i++)
        assert_int_equal(a->func[i], b->func[i]);
}

static void same(const struct query_flame *a, const struct query_flame *b)
{
    same_filtered(&a->sum, &b->sum);
    assert_true(a->sum.total == b->sum.total && a->sum.samples == b->sum.samples);
    assert_true(a->sum.whole.total == b->sum.whole.total);
    assert_true(a->sum.whole.samples == b->sum.whole.samples);
    assert_true(a->sum.se == b->sum.se);
    assert_true(a->sum.quality.no_stack == b->sum.quality.no_stack);
    assert_true(a->sum.quality.truncated == b->sum.quality.truncated);
    assert_true(a->sum.quality.unsymbolised == b->sum.quality.unsymbolised);
    assert_true(a->view_root == b->view_root && a->view_found == b->view_found);
    same_rows(a, b);
    assert_true(a->has_match == b->has_match);
    if (a->has_match)
        same_matched(&a->matched, &b->matched);
    same_funcs(a, b);
}

/* Shown own weights and hidden ones are all there is. */
static void conserved(const struct query_flame *f)
{
    unit_i128 sum = 0;

    for (uint32_t i = 0; i < f->n; i++)
        sum += f->self[i];
    assert_true(f->n == 0 || sum == f->view_total);
}

static void flame(struct query *q, const struct query_flame_ask *a, struct query_flame *ret)
{
    test_err = (struct query_err){};
    if (query_flame(q, a, ret, &test_err) != 0)
        fail_msg("flame: %s", test_err.msg);
}

/* Was the short way taken at all? */
static bool is_short(struct query *q, const struct query_flame_ask *a)
{
    const struct query_shown_ask ask = {.width = a->width, .root = a->root, .match = a->match};
    struct query_shape s = {};
    bool done = false;

    query_ask_detail(q, QUERY_OF_FUNCTIONS, &a->match, a->match.n > 0);
    assert_true(query_gather_listed(q, &test_err) == 0);
    assert_true(query_tree_shown(q, &ask, &s, &done, &test_err) == 0);
    query_shape_deinit(&s);
    return done;
}

/* A node that some tree has, or none has. */
static uint64_t random_root(struct query *q, bool invert)
{
    const struct query_flame_ask all = {.invert = invert};
    struct query_flame f = {};
    uint32_t i;

    if (rnd(2))
        return 0;
    if (rnd(8) == 0)
        return 1 + rnd(1000);
    flame(q, &all, &f);
    i = f.n ? rnd(f.n) : 0;
    return f.n ? f.hash[i] : 0;
}

static struct query *random_question(struct store *s, struct query_ask *a)
{
    struct query_conf conf = {
        .store = s, .now = {10000 * S}, .mem_max = UINT64_C(1) << 30, .max_points = 11000};
    static const char *const q[] = {"cpu", "cpu{service=\"b\"}", "cpu{host=\"x\"}"};
    static const char *const filter[] = {"drop:f1",       "keep:/f[0-3]/",   "collapse:recursion",
                                         "start:/f[24]/", "merge:/f[135]/",  "collapse:/f[1-6]/",
                                         "drop:nobody",   "keep:file=one.c", "merge:file=/o/",
                                         "start:kind=jit"};
    struct query *ret = NULL;

    *a = (struct query_ask){.q = str_c(q[rnd(3)]), .need_type = true};
    a->from = rnd(2) ? STR("0s") : STR("300s");
    a->to = rnd(2) ? STR("1000s") : STR("400s");
    a->short_names = rnd(3) == 0;
    if (rnd(3) == 0)
        a->by[a->n_by++] = STR("service");
    if (rnd(6) == 0)
        a->by[a->n_by++] = STR("host");
    if (a->n_by)
        a->groups = 1 + rnd(3);
    for (uint32_t n = rnd(4) ? 0 : 1 + rnd(3); a->n_filter < n;)
        a->filter[a->n_filter++] = str_c(filter[rnd(10)]);
    test_err = (struct query_err){};
    if (query_open(&conf, a, &ret, &test_err) != 0)
        fail_msg("%s", test_err.msg);
    return ret;
}

static struct str random_pattern(void)
{
    static const char *const pattern[] = {"f1",        "/f[0-3]/", "nobody is called this",
                                          "bin=libx",  "<",        "/f1$/i",
                                          "file=a.py", "file=/o/"};

    return str_c(pattern[rnd(8)]);
}

/* What kinds of questions went the short way: a test in which none does would be blind. */
static struct {
    uint32_t all, taken, grouped, epochs, shortened, zoomed, filtered, searched, thinned, lone, own;
} seen;

static void ask_twice(struct store *s, const struct shape *sh)
{
    struct query_flame_ask a = {.width = 1 + rnd(200), .by_name = rnd(2)};
    struct query_flame one = {}, two = {};
    struct query_ask asked;
    struct query *q = random_question(s, &asked);
    bool taken;

    a.max_nodes = rnd(2) ? 0 : 2 + rnd(60);
    a.root = random_root(q, false);
    if (rnd(4) == 0)
        a.match = random_pattern();
    taken = is_short(q, &a);
    seen.all++;
    seen.taken += taken;
    seen.grouped += taken && asked.n_by;
    seen.epochs += taken && sh->epochs > 1 && !asked.n_by;
    seen.shortened += taken && asked.short_names && sh->templates;
    seen.zoomed += taken && a.root;
    seen.filtered += taken && asked.n_filter;
    seen.searched += taken && a.match.n;
    seen.own += taken && q->own;
    flame(q, &a, &one);
    for (uint32_t i = 0; i < q->gather->n_acc; i++) {
        seen.thinned += q->gather->acc[i]->thin != NULL;
        seen.lone += q->gather->acc[i]->thin && !asked.n_by;
    }
    query_whole_trees = true;
    flame(q, &a, &two);
    query_whole_trees = false;
    same(&one, &two);
    conserved(&one);
    (void)query_free(q);
}

static void random_trees(void **state)
{
    (void)state;
    for (uint32_t n = 0; n < 200; n++) {
        struct shape sh;
        struct store *s;

        seed = n * 7919 + 3;
        sh = random_shape();
        s = random_store(&sh);
        for (uint32_t i = 0; i < 8; i++)
            ask_twice(s, &sh);
        (void)fake_store_free(s);
    }
    assert_true(seen.taken > seen.all / 2);
    assert_true(seen.grouped > 20 && seen.epochs > 20 && seen.shortened > 20 && seen.zoomed > 20);
    assert_true(seen.filtered > 100 && seen.searched > 150 && seen.thinned > 50 && seen.lone > 20 &&
                seen.own > 80);
}

/* ---- leaves first ------------------------------------------------------------------------------
 */

static bool is_inverted(struct query *q, const struct query_flame_ask *a)
{
    const struct query_shown_ask ask = {.width = a->width, .root = a->root, .match = a->match};
    struct query_shape s = {};
    bool done = false;

    query_ask_detail(q, QUERY_OF_FUNCTIONS, &a->match, a->match.n > 0);
    assert_true(query_gather_listed(q, &test_err) == 0);
    assert_true(query_tree_inverted(q, &ask, &s, &done, &test_err) == 0);
    query_shape_deinit(&s);
    return done;
}

static void inverted_twice(struct store *s, const struct shape *sh)
{
    struct query_flame_ask a = {.width = 1 + rnd(200), .by_name = rnd(2), .invert = true};
    struct query_flame one = {}, two = {};
    struct query_ask asked;
    struct query *q = random_question(s, &asked);
    bool taken;

    a.max_nodes = rnd(2) ? 0 : 2 + rnd(60);
    a.root = random_root(q, true);
    if (rnd(4) == 0)
        a.match = random_pattern();
    taken = is_inverted(q, &a);
    seen.all++;
    seen.taken += taken;
    seen.epochs += taken && sh->epochs > 1;
    seen.shortened += taken && asked.short_names && sh->templates;
    seen.zoomed += taken && a.root;
    seen.filtered += taken && asked.n_filter;
    seen.searched += taken && a.match.n;
    seen.own += taken && q->own;
    flame(q, &a, &one);
    query_whole_trees = true;
    flame(q, &a, &two);
    query_whole_trees = false;
    same(&one, &two);
    conserved(&one);
    (void)query_free(q);
}

static void inverted_trees(void **state)
{
    (void)state;
    memset(&seen, 0, sizeof seen);
    for (uint32_t n = 0; n < 200; n++) {
        struct shape sh;
        struct store *s;

        seed = n * 15485863 + 11;
        sh = random_shape();
        s = random_store(&sh);
        for (uint32_t i = 0; i < 8; i++)
            inverted_twice(s, &sh);
        (void)fake_store_free(s);
    }
    assert_true(seen.taken > seen.all / 3);
    assert_true(seen.epochs > 100 && seen.shortened > 50 && seen.zoomed > 100);
    assert_true(seen.filtered > 80 && seen.searched > 80 && seen.own > 80);
}

/* ---- tables ------------------------------------------------------------------------------------
 */

static void top(struct query *q, const struct query_top_ask *a, struct query_top *ret)
{
    test_err = (struct query_err){};
    if (query_top(q, a, ret, &test_err) != 0)
        fail_msg("top: %s", test_err.msg);
}

static bool is_by_numbers(struct query *q)
{
    struct query_numbers u = {};
    struct query_shape s = {};
    bool done = false;

    query_ask_detail(q, QUERY_OF_FUNCTIONS, NULL, 0);
    assert_true(query_gather_listed(q, &test_err) == 0);
    assert_true(query_tree_numbers(q, false, 0, NULL, &s, &u, &done, &test_err) == 0);
    query_numbers_deinit(&u);
    query_shape_deinit(&s);
    return done;
}

static int on_nobody(void *ctx, struct query_tree *t, struct query_numbers *u, uint32_t group,
                     struct query_err *e)
{
    (void)ctx;
    (void)t;
    (void)u;
    (void)group;
    (void)e;
    return 0;
}

static bool is_cut(struct query *q)
{
    struct query_shape s = {};
    bool done = false;

    query_ask_detail(q, QUERY_OF_FUNCTIONS, NULL, 0);
    assert_true(query_gather_listed(q, &test_err) == 0);
    assert_true(query_tree_numbers_by(q, on_nobody, NULL, &s, &done, &test_err) == 0);
    query_shape_deinit(&s);
    return done;
}

static void same_table(const struct query_top *a, const struct query_top *b)
{
    same_filtered(&a->sum, &b->sum);
    assert_true(a->sum.total == b->sum.total && a->sum.samples == b->sum.samples);
    assert_true(a->sum.whole.total == b->sum.whole.total && a->sum.se == b->sum.se);
    assert_true(a->sum.quality.no_stack == b->sum.quality.no_stack);
    assert_true(a->sum.quality.truncated == b->sum.quality.truncated);
    assert_true(a->sum.quality.unsymbolised == b->sum.quality.unsymbolised);
    assert_true(a->rows == b->rows);
    assert_int_equal(a->n, b->n);
    same_text(a->next, b->next);
    for (uint32_t i = 0; i < a->n; i++) {
        const struct query_row *x = &a->row[i], *y = &b->row[i];
        const struct query_func *f = &a->func[x->func], *g = &b->func[y->func];

        assert_true(x->self == y->self && x->total == y->total && x->samples == y->samples);
        assert_true(x->places == y->places && x->unsymbolised == y->unsymbolised);
        assert_true(f->key == g->key && f->kind == g->kind);
        same_text(f->name, g->name);
        same_text(f->scope, g->scope);
        same_text(f->file, g->file);
        same_text(f->bin, g->bin);
    }
}

/* The rows cut by what by= names. */
static void same_groups(const struct query_top *a, const struct query_top *b)
{
    assert_int_equal(a->n_by, b->n_by);
    assert_int_equal(a->n_group, b->n_group);
    for (uint32_t k = 0; k < a->n_group; k++) {
        const struct query_top_group *x = &a->group[k], *y = &b->group[k];

        assert_true(x->rest == y->rest && x->total == y->total && x->samples == y->samples);
        for (uint32_t i = 0; i < a->n_by && !x->rest; i++)
            same_text(x->label[i], y->label[i]);
        for (uint32_t i = 0; i < a->n; i++)
            assert_true(x->self[i] == y->self[i] && x->sums[i] == y->sums[i]);
    }
}

static void same_any(const struct query_any *a, const struct query_any *b)
{
    assert_true(a->functions == b->functions && a->total == b->total && a->samples == b->samples);
}

static void same_searches(const struct query_top *a, const struct query_top *b)
{
    assert_int_equal(a->n_any, b->n_any);
    for (uint32_t i = 0; i < a->n_any; i++)
        same_any(&a->any[i], &b->any[i]);
    same_any(&a->any_union, &b->any_union);
    assert_true(a->has_match == b->has_match);
    assert_true(a->matched.total == b->matched.total && a->matched.view == b->matched.view);
    assert_true(a->matched.functions == b->matched.functions);
    assert_true(a->matched.samples == b->matched.samples);
}

/* A table of numbers against one of a named tree. */
static void tables(void **state)
{
    uint32_t taken = 0, merged = 0, shortened = 0, epochs = 0, pages = 0, filtered = 0,
             searched = 0, keyed = 0, cut = 0;

    (void)state;
    for (uint32_t n = 0; n < 600; n++) {
        static const enum query_key keys[] = {QUERY_KEY_FN, QUERY_KEY_FN, QUERY_KEY_FILE,
                                              QUERY_KEY_BIN};
        struct query_top_ask a = {.key = QUERY_KEY_FN};
        struct query_top one = {}, two = {};
        struct query_ask asked;
        struct shape sh;
        struct store *s;
        struct query *q;

        seed = n * 104729 + 7;
        sh = random_shape();
        s = random_store(&sh);
        q = random_question(s, &asked);
        a.key = keys[rnd(4)];
        a.sort = (enum query_sort)rnd(3);
        a.limit = rnd(3) ? 1 + rnd(30) : 1000;
        a.match = rnd(3) ? (struct str){NULL, 0} : random_pattern();
        for (uint32_t k = rnd(2) ? 0 : rnd(4); a.n_any < k;)
            a.any[a.n_any++] = random_pattern();
        if (asked.n_by == 0 && is_by_numbers(q)) {
            taken++;
            filtered += asked.n_filter > 0;
            merged += q->gather->n_acc > 1;
            shortened += asked.short_names && sh.templates;
            epochs += sh.epochs > 1;
            searched += a.match.n && a.n_any;
            keyed += a.key != QUERY_KEY_FN;
        }
        if (asked.n_by && a.key == QUERY_KEY_FN && !a.match.n && !a.n_any)
            cut += is_cut(q);
        do {
            top(q, &a, &one);
            query_whole_trees = true;
            top(q, &a, &two);
            query_whole_trees = false;
            same_table(&one, &two);
            same_searches(&one, &two);
            same_groups(&one, &two);
            a.after = one.next;
            pages++;
        } while (one.next.n);
        (void)query_free(q);
        (void)fake_store_free(s);
    }
    assert_true(taken > 100 && merged > 30 && shortened > 10 && epochs > 10 && pages > 500);
    assert_true(filtered > 20 && searched > 10 && keyed > 50 && cut > 15);
}

/* ---- callers and callees -----------------------------------------------------------------------
 */

static void sandwich(struct query *q, const struct query_sandwich_ask *a,
                     struct query_sandwich *ret)
{
    test_err = (struct query_err){};
    if (query_sandwich(q, a, ret, &test_err) != 0)
        fail_msg("sandwich: %s", test_err.msg);
}

static void same_sandwich(const struct query_sandwich *a, const struct query_sandwich *b)
{
    same_filtered(&a->sum, &b->sum);
    assert_true(a->sum.total == b->sum.total && a->sum.samples == b->sum.samples);
    assert_true(a->self == b->self && a->total == b->total && a->samples == b->samples);
    assert_int_equal(a->n_hit, b->n_hit);
    for (uint32_t i = 0; i < a->n_hit; i++)
        assert_int_equal(a->hit[i], b->hit[i]);
    assert_int_equal(a->n_func, b->n_func);
    for (uint32_t i = 0; i < a->n_func; i++) {
        same_text(a->func[i].name, b->func[i].name);
        same_text(a->func[i].file, b->func[i].file);
        assert_true(a->func[i].key == b->func[i].key);
    }
    same_rows(&a->callers, &b->callers);
    same_rows(&a->callees, &b->callees);
}

static void sandwiches(void **state)
{
    static const char *const names[] = {"f0", "f1", "f2", "f1<2>", "f3<>", "nobody"};
    uint32_t taken = 0, hits = 0, filtered = 0;

    (void)state;
    for (uint32_t n = 0; n < 300; n++) {
        struct query_sandwich one = {}, two = {};
        struct query_sandwich_ask a;
        struct query_ask asked;
        struct store *s;
        struct query *q;

        seed = n * 15485863 + 5;
        s = random_store(&(struct shape){.services = 1 + rnd(4),
                                         .epochs = 1 + (rnd(3) == 0),
                                         .subs = 1 + (rnd(3) == 0),
                                         .depth = 1 + rnd(30),
                                         .funcs = 2 + rnd(20),
                                         .templates = rnd(2),
                                         .unknown = rnd(10) == 0});
        q = random_question(s, &asked);
        a = (struct query_sandwich_ask){.fn = str_c(names[rnd(6)]),
                                        .width = rnd(2) ? 0 : 1 + rnd(100),
                                        .max_nodes = rnd(2) ? 0 : 2 + rnd(30),
                                        .by_name = rnd(2)};
        if (rnd(4) == 0)
            a.file = STR("a.py");
        if (asked.n_by == 0 && is_by_numbers(q)) {
            taken++;
            filtered += asked.n_filter > 0;
        }
        sandwich(q, &a, &one);
        query_whole_trees = true;
        sandwich(q, &a, &two);
        query_whole_trees = false;
        same_sandwich(&one, &two);
        hits += one.n_hit > 1;
        (void)query_free(q);
        (void)fake_store_free(s);
    }
    assert_true(taken > 100 && hits > 50 && filtered > 20);
}

/* ---- differences -------------------------------------------------------------------------------
 */

static void diff(struct query *q, const struct query_diff_ask *a, struct query_diff *ret)
{
    test_err = (struct query_err){};
    if (query_diff(q, a, ret, &test_err) != 0)
        fail_msg("diff: %s", test_err.msg);
}

/* Doubles too: to the last bit. */
static void same_deltas(const struct query_diff *a, const struct query_diff *b)
{
    for (uint32_t i = 0; a->comparable && i < a->n; i++) {
        const struct query_delta *x = &a->delta_row[i], *y = &b->delta_row[i];

        assert_true(x->self == y->self && x->total == y->total && x->se == y->se);
        assert_true(x->churn == y->churn && x->sig == y->sig);
    }
}

static void same_side(const struct query_diff *a, const struct query_diff *b, uint32_t k)
{
    const struct query_diff_side *x = &a->side[k], *y = &b->side[k];

    same_filtered(&x->sum, &y->sum);
    assert_true(x->sum.total == y->sum.total && x->sum.samples == y->sum.samples);
    assert_true(x->sum.quality.no_stack == y->sum.quality.no_stack);
    assert_true(x->sum.quality.truncated == y->sum.quality.truncated);
    assert_true(x->sum.quality.unsymbolised == y->sum.quality.unsymbolised);
    assert_true(x->share == y->share && x->view == y->view && x->norm == y->norm);
    for (uint32_t i = 0; i < a->n; i++) {
        assert_true(a->self[k][i] == b->self[k][i] && a->total[k][i] == b->total[k][i]);
        assert_true(a->samples[k][i] == b->samples[k][i]);
    }
}

static void same_diff(const struct query_diff *a, const struct query_diff *b, bool table)
{
    assert_true(a->comparable == b->comparable && a->why_not == b->why_not);
    assert_true(a->delta == b->delta && a->delta_se == b->delta_se);
    assert_int_equal(a->n, b->n);
    assert_true(a->rows == b->rows && a->view_root == b->view_root);
    assert_true(a->view_found == b->view_found && a->hidden_nodes == b->hidden_nodes);
    for (uint32_t i = 0; i < a->n; i++) {
        assert_int_equal(a->node_func[i], b->node_func[i]);
        assert_int_equal(a->state[i], b->state[i]);
        assert_true(table || (a->depth[i] == b->depth[i] && a->hidden[i] == b->hidden[i]));
    }
    same_deltas(a, b);
    same_side(a, b, 0);
    same_side(a, b, 1);
    assert_int_equal(a->n_func, b->n_func);
    for (uint32_t i = 0; i < a->n_func; i++) {
        same_text(a->func[i].name, b->func[i].name);
        same_text(a->func[i].file, b->func[i].file);
        assert_true(a->func[i].key == b->func[i].key);
    }
}

static struct query *random_pair(struct store *s)
{
    struct query_conf conf = {
        .store = s, .now = {10000 * S}, .mem_max = UINT64_C(1) << 30, .max_points = 11000};
    static const char *const q[] = {"cpu", "cpu{service=\"b\"}", "cpu{host=\"x\"}"};
    static const char *const t[] = {"0s", "300s", "500s", "1000s"};
    struct query_ask side[2];
    struct query *ret = NULL;
    bool short_names = rnd(3) == 0;
    uint32_t wrong = 0;

    for (uint32_t k = 0; k < 2; k++) {
        uint32_t from = rnd(3);

        side[k] = (struct query_ask){.q = str_c(q[rnd(3)]),
                                     .from = str_c(t[from]),
                                     .to = str_c(t[from + 1 + rnd(3 - from)]),
                                     .short_names = short_names,
                                     .need_type = true};
    }
    if (rnd(6) == 0)
        side[0].filter[side[0].n_filter++] = STR("merge:f1");
    test_err = (struct query_err){};
    if (query_open_diff(&conf, &side[0], &side[1], &ret, &wrong, &test_err) != 0)
        fail_msg("%s", test_err.msg);
    return ret;
}

static bool is_pair(struct query *q)
{
    struct query_both p = {};
    struct query_shape s = {};
    bool done = false;

    query_ask_detail(q, QUERY_OF_FUNCTIONS, NULL, 0);
    assert_true(query_gather_listed(q, &test_err) == 0);
    assert_true(query_tree_both(q, &s, &p, &done, &test_err) == 0);
    query_both_deinit(&p);
    query_shape_deinit(&s);
    return done;
}

static void differences(void **state)
{
    uint32_t taken = 0, compared = 0, tables_taken = 0, cut = 0;

    (void)state;
    for (uint32_t n = 0; n < 400; n++) {
        struct query_diff one = {}, two = {};
        struct query_diff_ask a;
        struct store *s;
        struct query *q;
        bool is;

        seed = n * 32452843 + 9;
        s = random_store(&(struct shape){.services = 1 + rnd(4),
                                         .epochs = 1 + (rnd(3) == 0),
                                         .subs = 1 + (rnd(3) == 0),
                                         .depth = 1 + rnd(30),
                                         .funcs = 2 + rnd(20),
                                         .templates = rnd(2),
                                         .unknown = rnd(10) == 0,
                                         .vars = rnd(10) == 0});
        if (rnd(8) == 0)
            fake_store_cover(s, &(struct fake_cover){.type = PTYPE_CPU,
                                                     .labels = "service=b",
                                                     .t1 = 1000 * S,
                                                     .basis = BASIS_EVERY});
        q = random_pair(s);
        a = (struct query_diff_ask){.norm = rnd(2) ? QUERY_NORM_SHARE : QUERY_NORM_DEFAULT,
                                    .order = (enum query_diff_order)rnd(4),
                                    .table = rnd(3) == 0,
                                    .limit = 1 + rnd(30),
                                    .width = rnd(8) ? 1 + rnd(100) : 0,
                                    .max_nodes = rnd(2) ? 0 : 2 + rnd(30)};
        is = is_pair(q) && (a.table || a.width);
        diff(q, &a, &one);
        query_whole_trees = true;
        diff(q, &a, &two);
        query_whole_trees = false;
        same_diff(&one, &two, a.table);
        taken += is;
        tables_taken += is && a.table;
        compared += is && one.comparable;
        cut += is && !a.table && one.hidden_nodes;
        (void)query_free(q);
        (void)fake_store_free(s);
    }
    assert_true(taken > 150 && compared > 100 && tables_taken > 40 && cut > 40);
}

/* Small in each trie, above the floor in their sum; and one that stays below it. */
static void sum_of_small_ones(void **state)
{
    struct store *s = fake_store_new();
    struct query_flame_ask a = {.width = 4};
    struct query_flame f = {};
    struct query *q;

    (void)state;
    for (uint32_t i = 0; i < 4; i++) {
        char labels[16];

        (void)snprintf(labels, sizeof labels, "service=%c", (char)('a' + i));
        fake_store_row(s, &(struct fake_row){.type = PTYPE_CPU,
                                             .labels = labels,
                                             .stack = "n:main#x;n:shared#x",
                                             .count = 1,
                                             .var = -1,
                                             .value = 20});
        fake_store_row(s, &(struct fake_row){.type = PTYPE_CPU,
                                             .labels = labels,
                                             .stack = "n:main#x;n:rest#x;n:leaf#x",
                                             .count = 1,
                                             .var = -1,
                                             .value = i == 0 ? 19 : 0});
        fake_store_row(s, &(struct fake_row){.type = PTYPE_CPU,
                                             .labels = labels,
                                             .stack = "n:main#x",
                                             .count = 1,
                                             .var = -1,
                                             .value = 20});
    }
    fake_store_cover(
        s, &(struct fake_cover){.type = PTYPE_CPU, .t1 = S, .basis = BASIS_PERIODIC, .period = 10});
    q = test_ask(s, "cpu", 0, S, NULL);
    assert_true(is_short(q, &a));
    flame(q, &a, &f);
    /* all, main, shared, and one row for rest and leaf: each is one node, in however many tries */
    assert_true(f.view_total == 179 && f.floor == 45);
    assert_int_equal(f.n, 4);
    assert_true(str_eq(f.func[f.node_func[2]].name, STR("shared")));
    assert_true(f.total[2] == 80 && f.self[1] == 80);
    assert_int_equal(f.hidden_nodes, 2);
    assert_true(f.hidden_total == 19 && f.samples[3] == 4);
    (void)query_free(q);
    (void)fake_store_free(s);
}

enum how {
    PLAIN,
    FILTERED,
    INVERTED,
    TABLE,
    SANDWICH,
    HOWS,
};

/* The n-th allocation of a question fails: an error, or the answer. True: there were fewer. */
static bool nth_fails(struct store *s, uint64_t n, enum how how)
{
    struct query_conf conf = {.store = s, .now = {10000 * S}, .mem_max = 1 << 24};
    struct query_ask a = {.q = STR("cpu"),
                          .from = STR("0s"),
                          .to = STR("1000s"),
                          .short_names = n & 1,
                          .n_filter = how == FILTERED,
                          .filter = {STR("merge:f1")},
                          .need_type = true};
    const struct query_flame_ask ask = {.width = 50,
                                        .max_nodes = 40,
                                        .invert = how == INVERTED,
                                        .root = how == INVERTED && n % 3 == 0,
                                        .match = n % 3 ? STR("/f[12]/") : (struct str){NULL, 0}};
    const struct query_top_ask table = {.limit = 5, .n_any = 1, .any = {STR("f2")}};
    const struct query_sandwich_ask sandwich = {.fn = STR("f1"), .width = 50};
    struct query_sandwich w = {};
    struct query_flame f = {};
    struct query_top t = {};
    struct query *q = NULL;
    unit_i128 total;
    int r;

    test_err = (struct query_err){};
    mem_fail_nth(n);
    r = query_open(&conf, &a, &q, &test_err);
    if (r == 0)
        r = how == TABLE      ? query_top(q, &table, &t, &test_err)
            : how == SANDWICH ? query_sandwich(q, &sandwich, &w, &test_err)
                              : query_flame(q, &ask, &f, &test_err);
    mem_fail_nth(0);
    assert_true(r == 0 || test_err.code != QUERY_OK);
    total = how == TABLE ? t.sum.total : how == SANDWICH ? w.sum.total : f.sum.total;
    (void)query_free(q);
    return r == 0 && total == fake_store_sum(s, PTYPE_CPU, 0, 1000 * S);
}

static void no_memory(void **state)
{
    const struct shape sh = {.services = 4, .epochs = 1, .subs = 2, .depth = 20, .funcs = 9};
    struct store *s;

    (void)state;
    seed = 11;
    s = random_store(&sh);
    for (enum how how = PLAIN; how < HOWS; how++) {
        for (uint64_t n = 1; !nth_fails(s, n, how); n++)
            assert_true(n < 10000);
    }
    (void)fake_store_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_trees), cmocka_unit_test(inverted_trees),
        cmocka_unit_test(tables),       cmocka_unit_test(sandwiches),
        cmocka_unit_test(differences),  cmocka_unit_test(sum_of_small_ones),
        cmocka_unit_test(no_memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
