// SPDX-License-Identifier: Apache-2.0
/*
 * Damage of every kind in every kind of file of a store: it opens, or says in which file a newer
 * format is; what it shows is what was sent or a part of it, and where something is missing the
 * answer names the stretch. Never another number, and never silence.
 *
 * STRATA_ROUNDS kinds of damage (200); STRATA_SEED.
 */
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "base/map.h"
#include "storage/keep/compact_private.h"
#include "tests/unit/test_storage_lib.h"

#define BATCHES 48u
#define SLOT_MS 10000 /* batch i is the i-th 10 s */
#define ROWS    20
#define FILES   128u
#define PATH    192

static const uint32_t types[] = {PTYPE_CPU, PTYPE_OFFCPU};
#define TYPES 2

/* ---- what was sent ------------------------------------------------------------------------- */

static struct batch sent[BATCHES];
static int64_t want[TYPES][N_SVC][BATCHES];
static struct map want_stack[TYPES]; /* hash of the names from root to leaf -> weight */

static real_ns slot(uint64_t i)
{
    return (real_ns){T_BASE + (int64_t)i * SLOT_MS * MS};
}

/* Batch i with its times moved into its slot and small weights, so that no sum can wrap. */
static void make(uint64_t i, struct arena *a)
{
    struct batch *b = &sent[i];

    gen_batch(i + 1, ROWS, a, NULL, b);
    b->received = (real_ns){slot(i + 1).v + 1};
    for (uint32_t s = 0; s < b->n_stream; s++) {
        struct batch_stream *st = (struct batch_stream *)(uintptr_t)&b->stream[s];
        int64_t move = slot(i).v - st->covers.t0.v;
        real_ns *t = arena_array(a, real_ns, st->rows.n);
        int64_t *value = st->rows.value ? arena_array(a, int64_t, st->rows.n) : NULL;

        st->covers = (struct interval){{st->covers.t0.v + move}, {st->covers.t1.v + move}};
        for (uint32_t k = 0; k < st->rows.n; k++) {
            t[k] = (real_ns){st->rows.t[k].v + move};
            if (value)
                value[k] = 1 + st->rows.value[k] % 1000003;
        }
        st->rows.t = t;
        st->rows.value = value;
    }
}

static uint32_t service_of(const struct batch *b, uint32_t labels)
{
    const struct batch_labels *l = &b->labels[labels];

    for (uint32_t i = 0; i < l->n; i++) {
        if (l->pair[2 * i] == T_SERVICE)
            return l->pair[2 * i + 1] - T_SVC0;
    }
    return N_SVC - 1;
}

static uint64_t stack_in(const struct batch *b, uint32_t node)
{
    const struct batch_node *n = &b->node[node];

    return node ? stack_step(stack_in(b, n->parent), b->str[b->fn[b->frame[n->frame].fn].name]) : 0;
}

static void add_up(uint64_t i)
{
    const struct batch *b = &sent[i];

    for (uint32_t s = 0; s < TYPES; s++) {
        const struct batch_stream *st = &b->stream[s];

        for (uint32_t k = 0; k < st->rows.n; k++) {
            int64_t v =
                st->rows.value ? st->rows.value[k] : (int64_t)st->rows.count[k] * st->period;
            uint64_t *at;

            want[s][service_of(b, st->rows.labels[k])][i] += v;
            assert_true(map_at(&want_stack[s], stack_in(b, st->rows.node[k]), &at) != MAP_FULL);
            *at += (uint64_t)v;
        }
    }
}

static int decode_sent(void *ctx, const struct store_entry *e, struct arena *arena,
                       struct batch *ret, struct err *err)
{
    uint64_t i = BATCHES;

    (void)ctx, (void)arena;
    if (e->payload.n == sizeof i)
        memcpy(&i, e->payload.p, sizeof i);
    if (i >= BATCHES)
        return err_set(err, -EINVAL, "payload of %zu bytes", e->payload.n);
    *ret = sent[i];
    ret->received = e->received;
    return 0;
}

static int append(struct store *s, uint64_t i)
{
    return store_append_wait(s, &sent[i], (struct str){(const char *)&i, sizeof i}, NULL, NULL);
}

/* ---- folders ------------------------------------------------------------------------------- */

static void copy_file(int from, int to, const char *name)
{
    static char b[1 << 16];
    int in = openat(from, name, O_RDONLY | O_CLOEXEC);
    int out = openat(to, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    ssize_t n;

    assert_true(in >= 0 && out >= 0);
    while ((n = read(in, b, sizeof b)) > 0)
        assert_int_equal(write(out, b, (size_t)n), n);
    (void)close(in);
    (void)close(out);
}

static void copy_tree(const char *from, const char *to)
{
    DIR *d = opendir(from);
    const struct dirent *e;
    int out;

    assert_non_null(d);
    assert_int_equal(mkdir(to, 0700), 0);
    out = open(to, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(out >= 0);
    while ((e = readdir(d))) { // NOLINT(concurrency-mt-unsafe)
        char a[PATH], b[PATH];

        if (e->d_name[0] == '.')
            continue;
        if (e->d_type != DT_DIR) {
            copy_file(dirfd(d), out, e->d_name);
            continue;
        }
        assert_true(snprintf(a, PATH, "%s/%s", from, e->d_name) < PATH);
        assert_true(snprintf(b, PATH, "%s/%s", to, e->d_name) < PATH);
        copy_tree(a, b);
    }
    (void)close(out);
    (void)closedir(d);
}

struct file {
    char path[PATH];
    uint64_t kind; /* equal for files of one kind: the path without its numbers */
};

struct files {
    struct file v[FILES];
    uint32_t n;
};

static uint64_t kind_of(const char *below)
{
    uint64_t k = 1;
    bool number = false;

    for (; *below; below++) {
        bool digit = *below >= '0' && *below <= '9';

        if (!digit || !number)
            k = hash_mix(k ^ (digit ? '0' : (unsigned char)*below));
        number = digit;
    }
    return k;
}

static void list(struct files *l, const char *top, const char *below)
{
    char path[PATH];
    const struct dirent *e;
    DIR *d;

    assert_true(snprintf(path, PATH, "%s/%s", top, below) < PATH);
    d = opendir(path);
    assert_non_null(d);
    while ((e = readdir(d))) { // NOLINT(concurrency-mt-unsafe)
        char sub[PATH];
        struct file *f = &l->v[l->n];

        if (e->d_name[0] == '.' || strcmp(e->d_name, "LOCK") == 0)
            continue;
        assert_true(snprintf(sub, PATH, "%s%s%s", below, *below ? "/" : "", e->d_name) < PATH);
        if (e->d_type == DT_DIR) {
            list(l, top, sub);
            continue;
        }
        assert_true(l->n < FILES);
        assert_true(snprintf(f->path, PATH, "%s/%s", top, sub) < PATH);
        f->kind = kind_of(sub);
        l->n++;
    }
    (void)closedir(d);
}

/* A kind, then a file of it: however many files of one there are. */
static const struct file *choose(const struct files *l, struct rnd *r)
{
    uint64_t kinds[FILES];
    uint32_t n = 0, k;
    const struct file *f;

    for (uint32_t i = 0; i < l->n; i++) {
        for (k = 0; k < n && kinds[k] != l->v[i].kind; k++)
            continue;
        if (k == n)
            kinds[n++] = l->v[i].kind;
    }
    k = rnd_below(r, n);
    do
        f = &l->v[rnd_below(r, l->n)];
    while (f->kind != kinds[k]);
    return f;
}

/* ---- damage -------------------------------------------------------------------------------- */

static void change(int fd, struct rnd *r, uint64_t size, uint64_t n, bool zero)
{
    unsigned char b[4096] = {};
    uint64_t at = zero ? rnd_next(r) % ((size + 4095) / 4096) * 4096 : rnd_next(r) % size;

    if (n > size - at)
        n = size - at;
    for (uint64_t i = 0; !zero && i < n; i++)
        b[i] = (unsigned char)rnd_next(r);
    assert_int_equal(pwrite(fd, b, n, (off_t)at), n);
}

static void flip(int fd, struct rnd *r, uint64_t size)
{
    off_t at = (off_t)(rnd_next(r) % size);
    unsigned char b;

    assert_int_equal(pread(fd, &b, 1, at), 1);
    b ^= (unsigned char)(1u << rnd_below(r, 8));
    assert_int_equal(pwrite(fd, &b, 1, at), 1);
}

static void swap_files(const struct files *l, const struct file *f, const char *top, struct rnd *r)
{
    const struct file *g;
    char tmp[PATH];

    do
        g = &l->v[rnd_below(r, l->n)];
    while (g->kind != f->kind);
    assert_true(snprintf(tmp, PATH, "%s/swap", top) < PATH);
    assert_int_equal(rename(f->path, tmp), 0);
    if (g != f)
        assert_int_equal(rename(g->path, f->path), 0);
    assert_int_equal(rename(tmp, g->path), 0);
}

static const char *const action_name[] = {"flip",   "bytes", "zero page", "cut",
                                          "delete", "swap",  "append",    "empty"};

static uint32_t damage(const struct files *l, const struct file *f, const char *top, struct rnd *r)
{
    uint32_t action = rnd_below(r, 8);
    int fd = open(f->path, O_RDWR | O_CLOEXEC);
    struct stat st;
    uint64_t size;

    assert_true(fd >= 0);
    assert_int_equal(fstat(fd, &st), 0);
    size = (uint64_t)st.st_size;
    if (size == 0 && action < 4)
        action = 6;
    if (action == 0)
        flip(fd, r, size);
    else if (action == 1)
        change(fd, r, size, 1 + rnd_below(r, 16), false);
    else if (action == 2)
        change(fd, r, size, 4096, true);
    else if (action == 3)
        assert_int_equal(ftruncate(fd, (off_t)(rnd_next(r) % size)), 0);
    else if (action == 4)
        assert_int_equal(unlink(f->path), 0);
    else if (action == 5)
        swap_files(l, f, top, r);
    else if (action == 6)
        assert_int_equal(pwrite(fd, "garbage behind it", 17, st.st_size), 17);
    else
        assert_int_equal(ftruncate(fd, 0), 0);
    (void)close(fd);
    return action;
}

/* ---- what the store says ------------------------------------------------------------------- */

struct seen {
    unit_i128 value[N_SVC + 1][BATCHES + 1]; /* the last ones: elsewhere */
    struct interval damage[64];
    uint32_t n_damage;
};

static bool on_share(void *ctx, uint32_t worker, const struct store_share *sh)
{
    struct seen *s = ctx;
    uint32_t group = sh->group < N_SVC ? sh->group : N_SVC;
    uint32_t bucket = sh->bucket < BATCHES ? sh->bucket : BATCHES;

    (void)worker;
    for (uint32_t i = 0; i < sh->n; i++)
        s->value[group][bucket] += sh->sum.v ? sh->sum.v[i] : sh->sum.wide[i];
    return true;
}

static void ask(struct store *s, uint32_t type, struct seen *ret)
{
    const struct store_sink sink = {.share = on_share, .ctx = ret};
    struct store_view *v = store_view_get(s);
    struct store_group group[N_SVC];
    struct store_answer answer;
    struct err err = {};
    struct arena a;
    int r;

    memset(ret, 0, sizeof *ret);
    for (uint32_t i = 0; i < N_SVC; i++)
        group[i] = (struct store_group){{str_c(svc_name[i])}};
    arena_init(&a, 1 << 22);
    r = store_scan(
        v,
        &(struct store_query){.n_side = 1,
                              .side = {{.sel = {.type = type}, .range = {slot(0), slot(BATCHES)}}},
                              .want = STORE_TOTALS,
                              .bucket_ns = SLOT_MS * MS,
                              .n_by = 1,
                              .by = {STR("service")},
                              .n_group = N_SVC,
                              .group = group,
                              .arena = &a},
        &sink, &answer, &err);
    if (r < 0)
        fail_msg("store_scan = %d: %s", r, err.msg);
    assert_int_equal(r, answer.n_damage ? STORE_PARTIAL : 0);
    ret->n_damage = answer.n_damage < 64 ? answer.n_damage : 64;
    for (uint32_t i = 0; i < ret->n_damage; i++) {
        ret->damage[i] = answer.damage[i].t;
        assert_true(answer.damage[i].what.n > 0);
    }
    arena_deinit(&a);
    v = store_view_put(v);
}

/* Batch i lies in a stretch that is named: by its own time, or by that of its receipt. */
static bool named(const struct seen *s, uint32_t i)
{
    for (uint32_t k = 0; k < s->n_damage; k++) {
        if (s->damage[k].t0.v < slot(i + 1).v + 2 && s->damage[k].t1.v > slot(i).v)
            return true;
    }
    return false;
}

/* ---- stacks -------------------------------------------------------------------------------- */

struct stacks {
    struct store_view *v;
    struct map sum;
    uint64_t unnamed; /* weight whose names are damaged */
};

/* False: a name of it is damaged. */
static bool stack_of(const struct store_trie *t, struct store_view *v, uint32_t epoch,
                     uint32_t node, uint64_t *ret)
{
    struct err err = {};
    struct store_frame fr;
    uint64_t up;

    *ret = 0;
    if (node == 0)
        return true;
    assert_true(t->parent[node] < node);
    assert_ok(store_frame(v, epoch, t->frame[node], &fr, &err), &err);
    if (fr.damaged || str_eq(fr.name, STR("[no stack: damaged]")) ||
        !stack_of(t, v, epoch, t->parent[node], &up))
        return false;
    *ret = stack_step(up, fr.name);
    return true;
}

static bool on_stacks(void *ctx, uint32_t worker, const struct store_share *sh)
{
    struct stacks *s = ctx;
    struct store_trie t;
    struct err err = {};

    (void)worker;
    assert_ok(store_trie(s->v, sh->trie, &t, &err), &err);
    for (uint32_t i = 0; i < sh->n; i++) {
        uint64_t key, *at = &s->unnamed;

        assert_true(sh->node[i] < t.n);
        if (stack_of(&t, s->v, sh->trie.epoch, sh->node[i], &key))
            assert_true(map_at(&s->sum, key, &at) != MAP_FULL);
        *at += sh->sum.v ? (uint64_t)sh->sum.v[i] : (uint64_t)sh->sum.wide[i];
    }
    return true;
}

/* No stack has more than was sent of it: no weight stands under another name. */
static void compare_stacks(struct store *s)
{
    for (uint32_t i = 0; i < TYPES; i++) {
        struct stacks st = {.v = store_view_get(s)};
        const struct store_sink sink = {.share = on_stacks, .ctx = &st};
        struct store_answer answer;
        struct err err = {};
        struct arena a;
        uint64_t key, is, must;
        uint32_t pos = 0;
        int r;

        arena_init(&a, 1 << 22);
        map_init(&st.sum, 0);
        r = store_scan(st.v,
                       &(struct store_query){
                           .n_side = 1,
                           .side = {{.sel = {.type = types[i]}, .range = {slot(0), slot(BATCHES)}}},
                           .want = STORE_STACKS,
                           .arena = &a},
                       &sink, &answer, &err);
        if (r < 0)
            fail_msg("store_scan = %d: %s", r, err.msg);
        while (map_next(&st.sum, &pos, &key, &is)) {
            must = 0;
            (void)map_get(&want_stack[i], key, &must);
            if (is > must)
                fail_msg("a stack of type %u: %llu, sent %llu", types[i], (unsigned long long)is,
                         (unsigned long long)must);
        }
        map_deinit(&st.sum);
        arena_deinit(&a);
        st.v = store_view_put(st.v);
    }
}

/* ---- all of it ------------------------------------------------------------------------------ */

/* How much is missing. Weights are whole: a block or a batch is there or is not. */
static uint32_t compare(struct store *s)
{
    static struct seen seen;
    uint32_t missing = 0;

    for (uint32_t t = 0; t < TYPES; t++) {
        ask(s, types[t], &seen);
        for (uint32_t g = 0; g <= N_SVC; g++) {
            for (uint32_t i = 0; i <= BATCHES; i++) {
                unit_i128 is = seen.value[g][i];
                int64_t must = g < N_SVC && i < BATCHES ? want[t][g][i] : 0;

                if (is == must)
                    continue;
                if (is != 0)
                    fail_msg("type %u service %u batch %u: %lld, sent %lld", types[t], g, i,
                             (long long)is, (long long)must);
                if (!named(&seen, i))
                    fail_msg("type %u service %u batch %u is missing, and nothing says so",
                             types[t], g, i);
                missing++;
            }
        }
    }
    compare_stacks(s);
    return missing;
}

/* ---- the store ----------------------------------------------------------------------------- */

struct world {
    char top[64], sound[96], killed[96], work[96];
    struct arena a;
    struct store_conf conf;
    int64_t now;
};

static real_ns now_of(void *ctx)
{
    return (real_ns){((const struct world *)ctx)->now};
}

static struct store *open_store(const struct world *w, const char *dir, int *ret, struct err *err)
{
    struct store_conf conf = w->conf;
    struct store *s = NULL;

    conf.dir = dir;
    *ret = store_open(&conf, &s, err);
    return s;
}

static void world_init(struct world *w)
{
    struct store_stats st;
    struct err err = {};
    struct store *s;
    int r;

    *w = (struct world){.now = slot(BATCHES + 6).v};
    (void)snprintf(w->top, sizeof w->top, "%s/strata_damage_XXXXXX", test_fast_dir());
    assert_non_null(mkdtemp(w->top));
    (void)snprintf(w->sound, sizeof w->sound, "%s/sound", w->top);
    (void)snprintf(w->killed, sizeof w->killed, "%s/killed", w->top);
    (void)snprintf(w->work, sizeof w->work, "%s/work", w->top);
    arena_init(&w->a, (size_t)1 << 30);
    w->conf = (struct store_conf){.decode = decode_sent,
                                  .min_free = 1,
                                  .reserve = 1,
                                  .workers = 1,
                                  .now = now_of,
                                  .now_ctx = w};
    store_tuning.rotate_bytes = 8 * 5;
    store_tuning.rotate_waits = true;
    store_tuning.compact_asked = true;
    for (uint32_t i = 0; i < TYPES; i++)
        map_init(&want_stack[i], 0);
    for (uint64_t i = 0; i < BATCHES; i++) {
        make(i, &w->a);
        add_up(i);
    }
    s = open_store(w, w->sound, &r, &err);
    assert_ok(r, &err);
    for (uint64_t i = 0; i < BATCHES; i++) {
        assert_int_equal(append(s, i), 0);
        if (i % 16 == 11) /* three times: the last batches stay in the journal */
            assert_ok(store_seal(s, &err), &err);
        if (i == 27) /* two parts are one, the third comes behind it */
            assert_ok(compact_all(s, &err), &err);
    }
    store_stats(s, &st);
    assert_true(st.seals == 3 && st.compactions == 1);
    assert_int_equal(compare(s), 0);
    copy_tree(w->sound, w->killed); /* nothing is being written: as a kill would leave it */
    s = store_close(s);
}

static void world_deinit(struct world *w)
{
    store_tuning = (struct store_tuning){};
    for (uint32_t i = 0; i < TYPES; i++)
        map_deinit(&want_stack[i]);
    arena_deinit(&w->a);
    assert_int_equal(test_remove_tree(w->top), 0);
}

static void send_again(struct store *s, const struct file *f, uint32_t action)
{
    for (uint64_t i = 0; i < BATCHES; i++) {
        int r = append(s, i);

        if (r != 0 && r != STORE_DUPLICATE)
            fail_msg("%s, %s: batch %u sent again: %d", f->path, action_name[action], (unsigned)i,
                     r);
    }
}

/* Damaged, opened, looked at, sent again, opened again. */
static uint32_t one(const struct world *w, struct rnd *r, uint32_t round)
{
    static struct files l;
    const char *from = rnd_below(r, 2) ? w->sound : w->killed;
    const struct file *f;
    struct err err = {};
    struct store *s;
    uint32_t action, missing;
    int o;

    l.n = 0;
    copy_tree(from, w->work);
    list(&l, w->work, "");
    f = choose(&l, r);
    action = damage(&l, f, w->work, r);
    if (getenv("STRATA_VERBOSE")) // NOLINT(concurrency-mt-unsafe)
        print_message("%u: %s: %s\n", round, f->path + strlen(w->top), action_name[action]);
    s = open_store(w, w->work, &o, &err);
    if (o < 0) {
        if (o != -EPROTO || action > 1)
            fail_msg("%s, %s: %d %s", f->path, action_name[action], o, err.msg);
        assert_int_equal(test_remove_tree(w->work), 0);
        return 0;
    }
    missing = compare(s);
    if (!strstr(f->path, "/catalog.db")) /* of a catalog made anew the senders are not known */
        send_again(s, f, action);
    (void)compare(s);
    s = store_close(s);
    s = open_store(w, w->work, &o, &err);
    if (o < 0)
        fail_msg("%s, %s: again: %d %s", f->path, action_name[action], o, err.msg);
    (void)compare(s);
    s = store_close(s);
    assert_int_equal(test_remove_tree(w->work), 0);
    return missing;
}

static uint64_t setting(const char *name, uint64_t or_else)
{
    const char *text = getenv(name); // NOLINT(concurrency-mt-unsafe)

    if (text)
        assert_true(str_u64(str_c(text), &or_else));
    return or_else;
}

static void test_damage(void **state)
{
    uint64_t seed = setting("STRATA_SEED", 20261130), rounds = setting("STRATA_ROUNDS", 200);
    uint32_t with_loss = 0;
    struct world w;
    struct rnd r = {seed};

    (void)state;
    world_init(&w);
    for (uint64_t i = 0; i < rounds; i++)
        with_loss += one(&w, &r, (uint32_t)i) > 0;
    print_message("seed %llu: %llu damages, %u with something missing, all of it named\n",
                  (unsigned long long)seed, (unsigned long long)rounds, with_loss);
    assert_true(with_loss > 0);
    world_deinit(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_damage)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
