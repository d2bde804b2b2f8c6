// SPDX-License-Identifier: Apache-2.0
#include "storage/keep/compact_private.h"
#include "tests/unit/test_storage_file_lib.h"

/* Parts of one hour become one: every row, record, step and event of them and nothing else. */

#define N_IN 5u
#define MS0  (T0 / NS_PER_MS)

struct here {
    char dir[64];
    struct sample_names nm;
    struct parts *parts;
    struct part *in[N_IN];
    uint64_t random;
};

static uint64_t next_random(struct here *h)
{
    h->random += UINT64_C(0x9e3779b97f4a7c15);
    return hash_mix(h->random);
}

/* ---- making parts --------------------------------------------------------------------------- */

/* A source of its own: the same targets and threads get other numbers in each. */
static void source_make(struct sample_local *s, const struct sample_names *nm, uint32_t no)
{
    struct target_key key = {.host = {1, 2}, .pidns = 4026531836, .pid = 500 + no, .start = {T0}};

    if (no % 2)
        sample_local_init(s, nm);
    else {
        *s = (struct sample_local){};
        pool_init(&s->pool);
        assert_true(local_init(&s->l, &s->pool, no));
    }
    for (uint32_t i = 0; i < 3; i++) {
        char name[16];

        (void)snprintf(name, sizeof name, "worker%u", (i + no) % 3);
        assert_true(local_thread_of(&s->l, local_target_of(&s->l, &key), (i + no) % 3,
                                    text_id(&s->l.text, str_c(name))) != UINT32_MAX);
        key.pid = 600;
    }
    assert_true(local_scope_of(&s->l, PTYPE_LIVE, nm->labels[2], 0) != UINT32_MAX);
}

struct column {
    uint32_t n;
    struct block_rows r;
    struct arena mem;
};

static void column_make(struct column *c, uint32_t n)
{
    arena_init(&c->mem, (size_t)256 << 20);
    c->r = (struct block_rows){.n = n,
                               .ms = arena_array(&c->mem, int64_t, n),
                               .series = arena_array(&c->mem, uint32_t, n),
                               .thread = arena_array(&c->mem, uint32_t, n),
                               .node = arena_array(&c->mem, uint32_t, n),
                               .count = arena_array(&c->mem, uint64_t, n),
                               .value = arena_array(&c->mem, int64_t, n),
                               .cpu = arena_array(&c->mem, uint32_t, n),
                               .var = arena_array(&c->mem, float, n),
                               .period = 10 * NS_PER_MS};
    assert_non_null(c->r.var);
}

/* n random rows of one type and trie as blocks, in order. form: which columns there are. */
static void put_random(struct here *h, struct part_writer *w, const struct sample_local *s,
                       uint32_t n, ptype_id type, uint32_t svc, uint32_t series, uint32_t form)
{
    struct err err = {};
    struct column c;

    column_make(&c, n);
    for (uint32_t i = 0; i < n; i++) {
        uint64_t x = next_random(h);

        c.r.ms[i] = MS0 + (int64_t)(x % 3600000);
        c.r.series[i] = series;
        c.r.thread[i] = part_thread(w, (uint32_t)(x >> 32) % s->l.thread.v.n);
        c.r.node[i] = (uint32_t)(x >> 40) % 5000;
        c.r.count[i] = form & 1 ? x >> 50 & 3 : 1;
        c.r.value[i] = form & 2 ? (int64_t)(x >> 20) - (int64_t)UINT64_C(1) * 4096
                                : (int64_t)c.r.count[i] * c.r.period;
        c.r.cpu[i] = (uint32_t)(x >> 8 & 7);
        c.r.var[i] = (float)(x & 0xff);
    }
    if (!(form & 4))
        c.r.cpu = NULL;
    if (!(form & 8))
        c.r.var = NULL;
    assert_ok(block_sort(&c.r, &c.mem, &err), &err);
    for (uint32_t at = 0; at < n; at += BLOCK_ROWS) {
        struct block_rows b = c.r;

        b.n = n - at < BLOCK_ROWS ? n - at : BLOCK_ROWS;
        b.ms += at;
        b.series += at;
        b.thread += at;
        b.node += at;
        b.count += at;
        b.value += at;
        b.cpu = b.cpu ? b.cpu + at : NULL;
        b.var = b.var ? b.var + at : NULL;
        assert_ok(part_put_block(w, &b, type, svc, 0, &err), &err);
    }
    arena_deinit(&c.mem);
}

static void put_levels(struct part_writer *w, struct sample_local *s, const struct sample_names *nm,
                       uint32_t no)
{
    const uint32_t scope = part_scope(w, local_scope_of(&s->l, PTYPE_LIVE, nm->labels[2], 0));
    struct err err = {};
    struct column c;

    column_make(&c, 20);
    c.r.attr = arena_array(&c.mem, uint32_t, 20);
    c.r.held = arena_array(&c.mem, uint32_t, 20);
    for (uint32_t i = 0; i < 20; i++) {
        c.r.ms[i] = MS0 + 1000 * no + i / 4;
        c.r.series[i] = nm->series[2];
        c.r.thread[i] = part_thread(w, 1);
        c.r.node[i] = i % 4;
        c.r.count[i] = 1;
        c.r.value[i] = 1000 * (int64_t)no + i;
        c.r.attr[i] = scope;
        c.r.held[i] = 250;
    }
    c.r.cpu = NULL;
    c.r.var = NULL;
    assert_ok(block_sort(&c.r, &c.mem, &err), &err);
    assert_ok(part_put_block(w, &c.r, PTYPE_LIVE, 2, 0, &err), &err);
    arena_deinit(&c.mem);
}

static struct part *make(struct here *h, uint32_t no, uint32_t n)
{
    const struct part_conf conf = {.dir = h->dir,
                                   .tier = STORE_RAW,
                                   .period = PERIOD,
                                   .epoch = 1,
                                   .generation = no + 1,
                                   .sealed_lsn = 100 + no,
                                   .names = &h->nm.n};
    struct part_writer *w;
    struct sample_local s;
    struct local_snap snap;
    struct part_info info;
    struct err err = {};
    struct part *p;

    source_make(&s, &h->nm, no);
    snap = local_snap(&s.l);
    assert_ok(part_create(&conf, &w, &err), &err);
    assert_ok(part_source(w, &s.l, &snap, &err), &err);
    put_random(h, w, &s, n, PTYPE_CPU, 1, h->nm.series[1], no);
    if (no != 1)
        put_random(h, w, &s, 50 + no, PTYPE_CPU, 2, h->nm.series[2], 15);
    put_levels(w, &s, &h->nm, no);
    if (no == 2)
        put_random(h, w, &s, 3, h->nm.custom, 1, h->nm.series[3], 3);
    assert_ok(part_put_local(w, WHOLE, &err), &err);
    assert_ok(part_finish(w, &info, &err), &err);
    info.id = no + 1;
    p = part_new(h->parts, &info);
    assert_non_null(p);
    sample_local_deinit(&s);
    return p;
}

static void here_init(struct here *h, uint32_t n)
{
    *h = (struct here){.random = n};
    folder_make(h->dir);
    sample_names_init(&h->nm);
    h->parts = parts_new(h->dir, NULL, 0, true);
    assert_non_null(h->parts);
    for (uint32_t i = 0; i < N_IN; i++)
        h->in[i] = make(h, i, n);
}

static void here_deinit(struct here *h)
{
    for (uint32_t i = 0; i < N_IN; i++)
        (void)part_unref(h->in[i]);
    (void)parts_free(h->parts);
    names_deinit(&h->nm.n);
    assert_int_equal(test_remove_tree(h->dir), 0);
}

static struct compact_job job_of(const struct here *h)
{
    return (struct compact_job){.dir = h->dir,
                                .parts = h->parts,
                                .names = &h->nm.n,
                                .generation = 99,
                                .n_in = N_IN,
                                .in = h->in};
}

/* ---- what a part says, without its numbers ----------------------------------------------------
 */

struct lines {
    uint32_t n, room;
    uint64_t *v; /* a hash of each row, record, step, ... in texts */
};

static void add_line(struct lines *l, uint64_t h)
{
    if (l->n == l->room) {
        l->room = l->room ? 2 * l->room : 1024;
        l->v = xrealloc(l->v, l->room * sizeof *l->v);
    }
    l->v[l->n++] = h;
}

static uint64_t text_hash(const struct local *l, uint32_t text)
{
    return hash_str(local_str(l, text));
}

static uint64_t target_hash(const struct local *l, uint32_t target)
{
    return target ? TABLE(&l->target, struct local_target, target)->id : 0;
}

static uint64_t scope_hash(const struct local *l, uint32_t scope)
{
    const struct local_scope *s = TABLE(&l->scope, struct local_scope, scope);

    return hash_mix(target_hash(l, s->target) + ((uint64_t)s->type << 32 | s->labels));
}

static uint64_t thread_hash(const struct local *l, uint32_t thread)
{
    const struct local_thread *t = TABLE(&l->thread, struct local_thread, thread);

    return thread ? hash_mix(target_hash(l, t->target) + t->tid) ^ text_hash(l, t->name) : 1;
}

static void add_block(struct lines *out, const struct part_block *b, const struct block_rows *r,
                      const struct local *l)
{
    for (uint32_t i = 0; i < r->n; i++) {
        uint64_t count = r->count ? r->count[i] : 1;
        const uint64_t field[] = {
            b->m.type,
            (uint64_t)b->m.svc << 32 | b->m.sub,
            (uint64_t)r->ms[i],
            (uint64_t)r->series[i] << 32 | r->node[i],
            thread_hash(l, r->thread[i]),
            count,
            r->value ? (uint64_t)r->value[i] : (uint64_t)r->period * count,
            r->cpu ? r->cpu[i] : 0,
            r->var ? (uint64_t)r->var[i] : UINT64_MAX,
            r->held ? scope_hash(l, r->attr[i]) + r->held[i] : 0,
        };

        add_line(out, hash_bytes(field, sizeof field));
    }
}

static void add_local(struct lines *out, const struct local *l)
{
    for (uint32_t i = 0; i < l->step.n; i++) {
        const struct local_step *s = VEC(&l->step, struct local_step, i);

        add_line(out, hash_mix(target_hash(l, s->target) + s->number) ^ text_hash(l, s->name) ^
                          (uint64_t)s->t.t0.v);
    }
    for (uint32_t i = 0; i < l->event.n; i++) {
        const struct local_event *e = VEC(&l->event, struct local_event, i);

        add_line(out, hash_mix(target_hash(l, e->target) ^ text_hash(l, e->text)) + 1);
    }
    for (uint32_t i = 0; i < l->metric.n; i++) {
        const struct local_metric *m = VEC(&l->metric, struct local_metric, i);
        const struct local_mseries *s = TABLE(&l->mseries, struct local_mseries, m->series);

        for (uint32_t k = 0; k < m->n; k++) {
            const void *value = m->inum ? (const void *)&m->inum[k] : (const void *)&m->num[k];

            add_line(out, hash_mix(text_hash(l, s->name) + (uint64_t)m->t[k].v) ^
                              hash_bytes(value, sizeof(int64_t)));
        }
    }
}

static void read_part(struct part *p, struct lines *out)
{
    struct block_coder *coder = block_coder_new();
    struct part_handle *h;
    const struct local *l;
    struct local_snap snap;
    struct err err = {};
    struct arena mem;

    arena_init(&mem, (size_t)256 << 20);
    assert_ok(part_load(p, &err), &err);
    assert_ok(part_enter(p, &h, &err), &err);
    assert_ok(part_local(p, &l, &snap, &err), &err);
    for (uint32_t i = 0; i < p->n_block; i++) {
        struct block_rows rows;
        struct str summary, cols;

        arena_reset(&mem);
        assert_ok(part_summary(h, p->block[i].id, &summary, &err), &err);
        summary = arena_str(&mem, summary);
        assert_ok(part_cols(h, p->block[i].id, &cols, &err), &err);
        assert_ok(block_decode(coder, summary, cols, UINT32_MAX, &mem, &rows, &err), &err);
        add_block(out, &p->block[i], &rows, l);
    }
    add_local(out, l);
    part_leave(h);
    arena_deinit(&mem);
    (void)block_coder_free(coder);
}

static int by_value(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

static void assert_same(struct lines *a, struct lines *b)
{
    assert_int_equal(a->n, b->n);
    qsort(a->v, a->n, sizeof *a->v, by_value);
    qsort(b->v, b->n, sizeof *b->v, by_value);
    for (uint32_t i = 0; i < a->n; i++) {
        if (a->v[i] != b->v[i])
            fail_msg("entry %u of %u differs", i, a->n);
    }
    free(a->v);
    free(b->v);
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void merged(uint32_t n)
{
    struct lines before = {}, after = {};
    struct compact_job job;
    struct part_info info;
    struct err err = {};
    struct part *out;
    struct here h;
    uint64_t rows = 0;

    here_init(&h, n);
    job = job_of(&h);
    assert_ok(compact_merge(&job, &info, &err), &err);
    assert_int_equal(info.generation, 99);
    assert_int_equal(info.sealed_lsn, 100 + N_IN - 1);
    out = part_new(h.parts, &info);
    for (uint32_t i = 0; i < N_IN; i++) {
        read_part(h.in[i], &before);
        rows += h.in[i]->info.rows;
    }
    read_part(out, &after);
    assert_int_equal(info.rows, rows);
    assert_same(&before, &after);
    /* full blocks but for the last of each trie, in order of time */
    for (uint32_t i = 0; i + 1 < out->n_block; i++) {
        const struct block_meta *a = &out->block[i].m, *b = &out->block[i + 1].m;

        if (a->type == b->type && a->svc == b->svc) {
            assert_int_equal(a->n, BLOCK_ROWS);
            assert_true(b->t0 >= a->t0);
        }
    }
    (void)part_unref(out);
    assert_int_equal(folder_count(h.dir, "build"), 0);
    here_deinit(&h);
}

static void test_small(void **state)
{
    (void)state;
    merged(400);
}

static void test_blocks(void **state)
{
    (void)state;
    merged(50000);
}

/* A block of one input cannot be read: no part is made, all inputs stay. */
static void test_damage(void **state)
{
    struct compact_job job;
    struct part_info info;
    struct err err = {};
    struct here h;

    (void)state;
    here_init(&h, 400);
    assert_ok(part_load(h.in[3], &err), &err);
    file_sql(h.dir, h.in[3]->info.name, "UPDATE cols SET sum=sum+1 WHERE id=2");
    job = job_of(&h);
    assert_int_equal(compact_merge(&job, &info, &err), -EBADMSG);
    assert_non_null(strstr(err.msg, h.in[3]->info.name));
    assert_int_equal(folder_count(h.dir, "build"), 0);
    assert_int_equal(folder_count(h.dir, "shard/raw"), N_IN);
    here_deinit(&h);
}

static void test_stop(void **state)
{
    atomic_bool stop = true;
    struct compact_job job;
    struct part_info info;
    struct err err = {};
    struct here h;

    (void)state;
    here_init(&h, 10);
    job = job_of(&h);
    job.stop = &stop;
    assert_int_equal(compact_merge(&job, &info, &err), -ECANCELED);
    assert_int_equal(folder_count(h.dir, "build"), 0);
    assert_int_equal(folder_count(h.dir, "shard/raw"), N_IN);
    here_deinit(&h);
}

/* Memory is short, at each allocation in turn: an error, and nothing is left. */
static void test_memory(void **state)
{
    struct compact_job job;
    struct part_info info;
    struct here h;
    int r = -ENOMEM;

    (void)state;
    here_init(&h, 10);
    job = job_of(&h);
    for (uint64_t n = 1; r < 0; n += 1 + n / 16) {
        struct err err = {};

        mem_fail_nth(n);
        r = compact_merge(&job, &info, &err);
        mem_fail_nth(0);
        assert_int_equal(folder_count(h.dir, "build"), 0);
        if (r < 0)
            assert_int_equal(folder_count(h.dir, "shard/raw"), N_IN);
    }
    assert_int_equal(r, 0);
    here_deinit(&h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_small), cmocka_unit_test(test_blocks), cmocka_unit_test(test_damage),
        cmocka_unit_test(test_stop),  cmocka_unit_test(test_memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
