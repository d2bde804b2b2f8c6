// SPDX-License-Identifier: Apache-2.0
#include "storage/file/db_private.h"
#include "tests/unit/test_storage_part_lib.h"

/* ---- reading all of a part, as a number ------------------------------------------------------ */

struct digest {
    uint64_t h;
};

static void add(struct digest *d, const void *p, size_t n)
{
    d->h = hash_seed(p, n, hash_mix(d->h + n));
}

static void add_u64(struct digest *d, uint64_t v)
{
    add(d, &v, sizeof v);
}

static void add_text(struct digest *d, const struct local *l, uint32_t text)
{
    struct str s = local_str(l, text);

    add(d, s.p, s.n);
}

static void add_local(struct digest *d, const struct local *l)
{
    for (uint32_t i = 1; i < l->target.v.n; i++) {
        const struct local_target *t = TABLE(&l->target, struct local_target, i);
        const struct local_info *x;

        add_u64(d, t->id);
        if (t->info == 0)
            continue;
        x = VEC(&l->info, struct local_info, t->info - 1);
        add_text(d, l, x->exe);
        add_text(d, l, x->cmdline);
        add_text(d, l, x->comm);
        add_text(d, l, x->cgroup);
        add_text(d, l, x->container);
        add_u64(d, (uint64_t)x->env << 32 | x->flags);
    }
    for (uint32_t i = 1; i < l->thread.v.n; i++) {
        const struct local_thread *t = TABLE(&l->thread, struct local_thread, i);

        add_u64(d, (uint64_t)t->target << 32 | t->tid);
        add_text(d, l, t->name);
    }
    for (uint32_t i = 0; i < l->cover.n; i++) {
        const struct local_cover *c = VEC(&l->cover, struct local_cover, i);
        const struct local_scope *sc = TABLE(&l->scope, struct local_scope, c->scope);

        add_u64(d, (uint64_t)sc->type << 32 | sc->labels);
        add_u64(d, (uint64_t)sc->target << 32 | c->series);
        add(d, &c->t, sizeof c->t);
        add(d, &c->at, sizeof c->at);
        add_text(d, l, c->why);
        add_u64(d, (uint64_t)c->width << 32 | (uint64_t)c->state << 16 | (uint64_t)c->basis << 1 |
                       c->ended);
        add(d,
            (uint64_t[]){(uint64_t)c->period, (uint64_t)c->jitter, (uint64_t)c->skew_ns,
                         c->expected, c->received},
            40);
        for (uint32_t k = 0; k < c->n_loss; k++) {
            const struct local_loss *x = VEC(&l->loss, struct local_loss, c->loss + k);

            add_text(d, l, x->why);
            add_u64(d, x->n);
            add_u64(d, (uint64_t)x->weight);
        }
    }
    for (uint32_t i = 0; i < l->metric.n; i++) {
        const struct local_metric *m = VEC(&l->metric, struct local_metric, i);
        const struct local_mseries *s = TABLE(&l->mseries, struct local_mseries, m->series);

        add_text(d, l, s->name);
        add_text(d, l, s->unit);
        add_u64(d, (uint64_t)s->labels << 32 | s->target);
        add_u64(d, (uint64_t)s->kind << 1 | s->is_int);
        add(d, m->t, m->n * sizeof *m->t);
        add(d, s->is_int ? (const void *)m->inum : (const void *)m->num, 8 * (size_t)m->n);
        if (m->status)
            add(d, m->status, m->n);
    }
    for (uint32_t i = 0; i < l->step.n; i++) {
        const struct local_step *s = VEC(&l->step, struct local_step, i);

        add_text(d, l, s->name);
        add_u64(d, (uint64_t)s->target << 32 | s->tid);
        add_u64(d, (uint64_t)s->labels << 1 | s->inferred);
        add_u64(d, s->number);
        add(d, &s->t, sizeof s->t);
        for (uint32_t k = 0; k < s->n_part; k++) {
            add_text(d, l, s->part[k]);
            add_u64(d, (uint64_t)s->part_ns[k]);
        }
    }
    for (uint32_t i = 0; i < l->event.n; i++) {
        const struct local_event *e = VEC(&l->event, struct local_event, i);

        add_u64(d, (uint64_t)e->t.v);
        add_text(d, l, e->kind);
        add_text(d, l, e->text);
        add_u64(d, e->target);
    }
}

static int add_blocks(struct digest *d, struct part *p, struct part_handle *h, struct err *err)
{
    for (uint32_t i = 0; i < p->n_block; i++) {
        const struct part_block *b = &p->block[i];
        struct str s;

        add(d,
            (uint64_t[]){b->id, b->m.type, b->m.svc, b->m.sub, (uint64_t)b->m.t0, (uint64_t)b->m.t1,
                         b->m.n, b->m.count, b->m.smin, b->m.smax, (uint64_t)b->m.vmin,
                         (uint64_t)b->m.vmax, b->m.flags},
            (size_t)13 * 8);
        add(d, &b->m.total, sizeof b->m.total);
        TRY(part_summary(h, b->id, &s, err));
        add(d, s.p, s.n);
        TRY(part_cols(h, b->id, &s, err));
        add(d, s.p, s.n);
    }
    for (uint32_t i = 0; i < p->n_hsum; i++) {
        struct str s;

        TRY(part_hsum(h, &p->hsum[i], &s, err));
        add_u64(d, p->hsum[i].n);
        add(d, s.p, s.n);
    }
    return 0;
}

static int add_name(void *ctx, uint32_t id, struct str name, struct err *err)
{
    (void)err;
    add_u64(ctx, id);
    add(ctx, name.p, name.n);
    return 0;
}

static int add_ptype(void *ctx, ptype_id id, struct str name, struct str unit, enum ptype_kind kind,
                     struct err *err)
{
    (void)add_name(ctx, id + (kind << 20), name, err);
    return add_name(ctx, id, unit, err);
}

static int add_labels(void *ctx, uint32_t id, uint32_t n, const struct store_label *v,
                      struct err *err)
{
    for (uint32_t i = 0; i < n; i++) {
        (void)add_name(ctx, id, v[i].name, err);
        (void)add_name(ctx, id, v[i].value, err);
    }
    return 0;
}

static int add_series(void *ctx, uint32_t id, ptype_id type, uint32_t svc, uint32_t labelset,
                      struct err *err)
{
    (void)err;
    add(ctx, (uint32_t[]){id, type, svc, labelset}, 16);
    return 0;
}

/* Everything that can be asked of the part; the first error ends it. */
static int read_all(const char *dir, const struct part_info *info, const struct sample_names *nm,
                    struct digest *d, struct err *err)
{
    const struct part_names fn = {d, add_name, add_ptype, add_labels, add_series};
    const struct names_snap limits = names_snap(&nm->n);
    struct parts *ps = parts_new(dir, NULL, 0, false);
    struct part *p = part_new(ps, info);
    struct part_handle *h = NULL;
    const struct local *l;
    struct local_snap snap;
    int r;

    *d = (struct digest){};
    parts_know(ps, &limits);
    r = part_load(p, err);
    if (r == 0)
        r = part_enter(p, &h, err);
    if (r == 0)
        r = add_blocks(d, p, h, err);
    if (h)
        part_leave(h);
    if (r == 0)
        r = part_local(p, &l, &snap, err);
    if (r == 0)
        add_local(d, l);
    if (r == 0)
        r = part_read_names(dir, info->name, NULL, &fn, err);
    (void)part_unref(p);
    (void)parts_free(ps);
    return r;
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void test_name(void **state)
{
    char name[PART_NAME];

    (void)state;
    part_name(name, STORE_RAW, (real_ns){T0 + HOUR}, 12, 3);
    assert_string_equal(name, "shard/raw/20251129T13-e12-g3.db");
    part_name(name, STORE_MINUTE, (real_ns){T0 + HOUR}, 1, 4294967295);
    assert_string_equal(name, "shard/minute/20251129-e1-g4294967295.db");
}

static void check_info(const struct here *h)
{
    struct part_info is;
    uint8_t(*input)[16] = NULL;
    uint32_t n_input = 9;
    struct err err = {};

    assert_string_equal(h->info.name, "shard/raw/20251129T12-e12-g3.db");
    assert_int_equal(h->info.rows, 547);
    assert_int_equal(h->info.blocks, 4);
    assert_int_equal(h->info.sealed_lsn, 4711);
    assert_int_equal(h->info.data.t0.v, T0);
    assert_int_equal(h->info.data.t1.v, T0 + 600 * NS_PER_S);
    assert_ok(part_read_info(h->dir, h->info.name, NULL, &is, &input, &n_input, &err), &err);
    assert_int_equal(n_input, 0);
    free(input);
    assert_true(info_hash(&is) == info_hash(&h->info));
}

static void check_rows(struct part *p)
{
    const struct part_block *b;
    struct part_handle *h;
    struct str s, c;
    struct block_coder *coder = block_coder_new();
    struct arena a;
    struct block_rows rows;
    struct err err = {};

    arena_init(&a, SIZE_MAX);
    assert_int_equal(part_blocks(p, PTYPE_CPU, UINT32_MAX, 0, &b), 3);
    assert_int_equal(part_blocks(p, PTYPE_NONE, 0, 0, &b), 4);
    assert_int_equal(part_blocks(p, PTYPE_CPU, 2, 0, &b), 1);
    assert_int_equal(part_blocks(p, PTYPE_CPU, 3, 0, &b), 0);
    assert_int_equal(part_blocks(p, PTYPE_CPU, 1, 1, &b), 0);
    assert_int_equal(part_blocks(p, PTYPE_CPU, 1, 0, &b), 2);
    assert_true(b[0].m.t0 == T0 && b[1].m.n == 200);
    assert_ok(part_enter(p, &h, &err), &err);
    for (uint32_t i = 0; i < 2; i++) {
        const uint32_t thread[2] = {1, 2};
        struct sample_rows want = sample_rows(b[i].m.n, i ? MS0 + 3000 : MS0, 1, thread, i == 1);
        struct bytes sum;

        assert_ok(part_summary(h, b[i].id, &s, &err), &err);
        sum = (struct bytes){xmalloc(s.n), s.n};
        memcpy(sum.p, s.p, s.n);
        assert_ok(part_cols(h, b[i].id, &c, &err), &err);
        assert_ok(block_decode(coder, (struct str){sum.p, sum.n}, c, 100, &a, &rows, &err), &err);
        assert_int_equal(rows.n, want.r.n);
        assert_memory_equal(rows.ms, want.r.ms, 8 * (size_t)rows.n);
        assert_memory_equal(rows.series, want.r.series, 4 * (size_t)rows.n);
        assert_memory_equal(rows.thread, want.r.thread, 4 * (size_t)rows.n);
        assert_memory_equal(rows.node, want.r.node, 4 * (size_t)rows.n);
        free(want.mem);
        free(sum.p);
    }
    /* two blocks of one group: their sum, 10 ms x 300 and 1000 ... 1199 */
    assert_int_equal(p->n_hsum, 1);
    assert_ok(part_hsum(h, &p->hsum[0], &s, &err), &err);
    {
        struct summary sum;
        unit_i128 total = 0;
        uint64_t count = 0;

        assert_ok(summary_open(coder, s, 100, &sum, &err), &err);
        for (uint32_t i = 0; i < sum.n; i++) {
            total += summary_sum(&sum, i);
            count += sum.count ? sum.count[i] : sum.freq[i];
        }
        assert_true(total ==
                    INT64_C(3000) * NS_PER_MS + INT64_C(200) * 1000 + INT64_C(199) * 200 / 2);
        assert_int_equal(count, 500);
        assert_int_equal(sum.n, p->hsum[0].n);
    }
    part_leave(h);
    arena_deinit(&a);
    (void)block_coder_free(coder);
}

/* What was put is what is read; stretches that touch and say the same are one. */
static void check_local(const struct local *l)
{
    const struct local_cover *c = VEC(&l->cover, struct local_cover, 0);
    const struct local_target *t = TABLE(&l->target, struct local_target, 1);
    const struct local_info *info = VEC(&l->info, struct local_info, t->info - 1);

    assert_int_equal(l->target.v.n, 3);
    assert_int_equal(t->key.pid, 77);
    assert_str(local_str(l, info->exe), STR("/usr/bin/python3"));
    assert_int_equal(info->flags, TARGET_EXEC);
    assert_int_equal(l->thread.v.n, 3);
    assert_int_equal(l->scope.v.n, 3);
    assert_int_equal(l->cover.n, 3 + 3); /* before, at and behind the loss; the level apart */
    assert_true(c->t.t0.v == T0 && c->t.t1.v == T0 + 360 * NS_PER_S);
    assert_int_equal(c->expected, 3600);
    assert_int_equal(c->jitter, -3 - 2 - 1 + 0 + 1 + 2);
    assert_int_equal(c->skew_ns, 5000); /* the least of its records */
    assert_int_equal(c[1].n_loss, 1);
    assert_true(c[2].ended && c[2].received == 1800);
    assert_int_equal(l->mseries.v.n, 3);
    assert_int_equal(l->metric.n, 2);
    assert_int_equal(l->step.n, 5);
    assert_int_equal(l->event.n, 1);
    for (uint32_t i = 1; i < texts_n(&l->text); i++)
        assert_false(str_eq(local_str(l, i), STR("of no use")));
}

static void test_round_trip(void **state)
{
    struct here h;
    struct parts *ps;
    struct part *p;
    const struct local *l;
    struct local_snap snap, all;
    struct err err = {};

    (void)state;
    here_init(&h);
    check_info(&h);
    assert_int_equal(folder_count(h.dir, "build"), 0);
    ps = parts_new(h.dir, NULL, 0, true);
    p = part_new(ps, &h.info);
    assert_ok(part_load(p, &err), &err);
    check_rows(p);
    assert_ok(part_local(p, &l, &snap, &err), &err);
    all = local_snap(l);
    assert_memory_equal(&snap, &all, sizeof all);
    check_local(l);
    assert_true(parts_local_bytes(ps) > 0);
    (void)part_ref(p);
    parts_trim(ps, 0); /* in use */
    assert_true(parts_local_bytes(ps) > 0);
    (void)part_unref(p);
    parts_trim(ps, 0);
    assert_int_equal(parts_local_bytes(ps), 0);
    assert_ok(part_local(p, &l, &snap, &err), &err);
    check_local(l);
    part_set_gone(p);
    assert_true(file_there(h.dir, h.info.name));
    assert_null(part_unref(p));
    assert_false(file_there(h.dir, h.info.name));
    (void)parts_free(ps);
    here_deinit(&h);
}

/* Copied into another part, all of it is there again: what compaction does. */
static void test_copy(void **state)
{
    struct here h;
    struct parts *ps;
    struct part *p;
    const struct local *l;
    struct local_snap snap;
    struct part_conf conf;
    struct part_writer *w;
    struct part_info info;
    struct digest a = {}, b = {};
    struct err err = {};

    (void)state;
    here_init(&h);
    ps = parts_new(h.dir, NULL, 0, false);
    p = part_new(ps, &h.info);
    assert_ok(part_local(p, &l, &snap, &err), &err);
    conf = conf_of(&h, NULL);
    conf.generation = 4;
    conf.n_input = 1;
    conf.input = &h.info.uuid;
    assert_ok(part_create(&conf, &w, &err), &err);
    assert_true(part_empty(w));
    assert_ok(part_source(w, l, &snap, &err), &err);
    assert_true(part_thread(w, 1) == 1 && part_thread(w, 2) == 2 && part_thread(w, 0) == 0);
    assert_ok(part_put_local(w, WHOLE, &err), &err);
    assert_false(part_empty(w));
    assert_ok(part_finish(w, &info, &err), &err);
    add_local(&a, l);
    (void)part_unref(p);
    p = part_new(ps, &info);
    assert_ok(part_local(p, &l, &snap, &err), &err);
    add_local(&b, l);
    assert_true(a.h == b.h);
    (void)part_unref(p);
    (void)parts_free(ps);
    here_deinit(&h);
}

static void count(struct here *h, struct interval range, uint32_t generation, uint32_t ret[4])
{
    struct local_snap snap = local_snap(&h->sl.l);
    struct part_conf conf = conf_of(h, NULL);
    struct parts *ps = parts_new(h->dir, NULL, 0, false);
    struct part_writer *w;
    struct part *p;
    const struct local *l;
    struct part_info info;
    struct err err = {};

    conf.generation = generation;
    assert_ok(part_create(&conf, &w, &err), &err);
    assert_ok(part_source(w, &h->sl.l, &snap, &err), &err);
    assert_ok(part_put_local(w, range, &err), &err);
    assert_ok(part_finish(w, &info, &err), &err);
    p = part_new(ps, &info);
    assert_ok(part_local(p, &l, &snap, &err), &err);
    for (uint32_t i = 0; i < l->metric.n; i++)
        ret[0] += VEC(&l->metric, struct local_metric, i)->n;
    for (uint32_t i = 0; i < l->cover.n; i++) {
        const struct local_cover *c = VEC(&l->cover, struct local_cover, i);

        ret[1] += c->received == BATCH_UNKNOWN ? 1 : (uint32_t)c->received;
    }
    ret[2] += l->step.n;
    ret[3] += l->event.n;
    (void)part_unref(p);
    (void)parts_free(ps);
}

/* Any cut gives two parts that hold everything once. */
static void test_cut(void **state)
{
    static const int64_t cut[] = {-1, 0, 6, 8, 1000, 1234568, 250 * NS_PER_MS, 90 * NS_PER_S};
    struct here h;

    (void)state;
    here_init(&h);
    for (uint32_t i = 0; i < sizeof cut / sizeof *cut; i++) {
        uint32_t n[4] = {};

        count(&h, (struct interval){{INT64_MIN}, {T0 + cut[i]}}, 100 + 2 * i, n);
        count(&h, (struct interval){{T0 + cut[i]}, {INT64_MAX}}, 101 + 2 * i, n);
        assert_int_equal(n[0], 12);
        assert_int_equal(n[1], 9 * 600 + 590 + 3);
        assert_int_equal(n[2], 5);
        assert_int_equal(n[3], 1);
    }
    here_deinit(&h);
}

static void test_damage(void **state)
{
    struct here h;
    struct digest good, is;
    struct bytes file;
    struct err err = {};
    size_t refused = 0, n = 0, step;

    (void)state;
    here_init(&h);
    assert_ok(read_all(h.dir, &h.info, &h.nm, &good, &err), &err);
    file = file_get(h.dir, h.info.name);
    step = flip_step(file.n, 1500);
    for (size_t at = 0; at < file.n; at += step, n++) {
        int r;

        file.p[at] ^= (char)(1 << at % 8);
        file_put(h.dir, h.info.name, file);
        file.p[at] ^= (char)(1 << at % 8);
        err = (struct err){};
        r = read_all(h.dir, &h.info, &h.nm, &is, &err);
        refused += r != 0;
        if (r == 0 && is.h != good.h)
            fail_msg("byte %zu: other numbers", at);
        if (r != 0 && r != -EBADMSG && r != -EPROTO && r != -EIO && r != -EROFS)
            fail_msg("byte %zu: %d %s", at, r, err.msg);
    }
    print_message("%zu of %zu flips refused\n", refused, n);
    assert_true(refused > n / 8); /* most of a small file is empty pages */
    for (size_t cut = 0; cut < file.n; cut += 512) {
        file_put(h.dir, h.info.name, (struct bytes){file.p, cut});
        assert_true(read_all(h.dir, &h.info, &h.nm, &is, &err) < 0);
    }
    free(file.p);
    here_deinit(&h);
}

/* Ids that the catalog does not know, another uuid, another version, another program's file. */
static void test_foreign(void **state)
{
    struct here h;
    struct sample_names none = {};
    struct part_info other;
    struct digest d;
    struct bytes file, now;
    struct err err = {};

    (void)state;
    here_init(&h);
    assert_true(names_init(&none.n, 1));
    assert_int_equal(read_all(h.dir, &h.info, &none, &d, &err), -EBADMSG);
    other = h.info;
    other.uuid[3] ^= 1;
    err = (struct err){};
    assert_int_equal(read_all(h.dir, &other, &h.nm, &d, &err), -EBADMSG);
    other = h.info;
    other.rows++;
    err = (struct err){};
    assert_int_equal(read_all(h.dir, &other, &h.nm, &d, &err), -EBADMSG);
    file_sql(h.dir, h.info.name, "PRAGMA user_version=2");
    file = file_get(h.dir, h.info.name);
    err = (struct err){};
    assert_int_equal(read_all(h.dir, &h.info, &h.nm, &d, &err), -EPROTO);
    assert_non_null(strstr(err.msg, "has format 2, this program reads format 1"));
    now = file_get(h.dir, h.info.name);
    assert_true(now.n == file.n && memcmp(now.p, file.p, file.n) == 0);
    free(now.p);
    free(file.p);
    file_put(h.dir, h.info.name, (struct bytes){(char[]){"hello"}, 5});
    err = (struct err){};
    assert_int_equal(read_all(h.dir, &h.info, &h.nm, &d, &err), -EBADMSG);
    names_deinit(&none.n);
    here_deinit(&h);
}

/* No room at any write: nothing is left, nothing has a name. */
static void test_full(void **state)
{
    struct here h;
    struct part_info info;
    struct err err = {};
    int writes = 0, r;

    (void)state;
    here_init(&h);
    for (;; writes += 3) {
        const char *vfs = full_register();
        char path[256];

        (void)snprintf(path, sizeof path, "%s/%s", h.dir, h.info.name);
        (void)unlink(path);
        full_left = writes;
        err = (struct err){};
        r = write_part(&h, vfs, &info, &err);
        if (r == 0)
            break;
        assert_int_equal(r, -ENOSPC);
        assert_int_equal(folder_count(h.dir, "build"), 0);
        assert_int_equal(folder_count(h.dir, "shard/raw"), 0);
    }
    assert_true(writes > 6);
    err = (struct err){};
    r = write_part(&h, NULL, &info, &err); /* the same name again */
    assert_int_equal(r, -EEXIST);
    assert_int_equal(folder_count(h.dir, "build"), 0);
    assert_int_equal(folder_count(h.dir, "shard/raw"), 1);
    here_deinit(&h);
}

/* Memory that is short at any point: an error, nothing left, nothing leaked. */
static void test_no_memory(void **state)
{
    struct here h;
    struct part_info info;
    struct digest good, is;
    struct err err = {};
    char path[256];
    int r = -1;

    (void)state;
    here_init(&h);
    (void)snprintf(path, sizeof path, "%s/%s", h.dir, h.info.name);
    assert_ok(read_all(h.dir, &h.info, &h.nm, &good, &err), &err);
    for (uint64_t n = 1; r != 0; n++) {
        (void)unlink(path);
        err = (struct err){};
        mem_fail_nth(n);
        r = write_part(&h, NULL, &info, &err);
        mem_fail_nth(0);
        if (r != 0)
            assert_true(r == -ENOMEM || r == -E2BIG);
    }
    here_deinit(&h);
    here_init(&h);
    r = -1;
    for (uint64_t n = 3; r != 0; n++) { /* the list and the part themselves are made before */
        err = (struct err){};
        mem_fail_nth(n);
        r = read_all(h.dir, &h.info, &h.nm, &is, &err);
        mem_fail_nth(0);
        if (r != 0)
            assert_int_equal(r, -ENOMEM);
    }
    here_deinit(&h);
}

/* A part of format version 1, as it was written when that was new. */
static void test_golden(void **state)
{
    const char *golden = getenv("STRATA_GOLDEN"); // NOLINT(concurrency-mt-unsafe)
    struct here h;
    struct part_info info;
    struct digest want, is;
    struct bytes file;
    struct err err = {};

    (void)state;
    if (!golden)
        skip();
    here_init(&h);
    assert_ok(read_all(h.dir, &h.info, &h.nm, &want, &err), &err);
    if (getenv("UPDATE_GOLDEN")) { // NOLINT(concurrency-mt-unsafe)
        file = file_get(h.dir, h.info.name);
        file_put(golden, "part_v1.db", file);
    } else {
        file = file_get(golden, "part_v1.db");
        file_put(h.dir, h.info.name, file);
    }
    free(file.p);
    assert_ok(part_read_info(h.dir, h.info.name, NULL, &info, NULL, NULL, &err), &err);
    assert_ok(read_all(h.dir, &info, &h.nm, &is, &err), &err);
    assert_true(is.h == want.h);
    here_deinit(&h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_name),   cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_copy),   cmocka_unit_test(test_cut),
        cmocka_unit_test(test_damage), cmocka_unit_test(test_foreign),
        cmocka_unit_test(test_full),   cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_golden),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
