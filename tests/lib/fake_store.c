// SPDX-License-Identifier: Apache-2.0
#include "tests/lib/fake_store.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/hash.h"
#include "base/map.h"

#define LABELS_MAX 8

struct fnode {
    uint32_t parent, func; /* func: of the trie's epoch */
};
struct node {
    uint32_t parent, fnode, frame;
};
struct frame {
    uint32_t func;
    struct fake_frame f;
};
struct trie {
    struct store_trie_id id;
    char *service;
    uint32_t n, n_fnode;
    struct node *node;
    struct fnode *fnode;
    struct map child, fchild; /* parent and what makes the child -> its number */
    uint32_t *v_parent, *v_frame, *v_fnode, *v_fparent, *v_func; /* as the view hands them out */
    uint64_t *v_again;
    uint32_t n_marked;
    struct store_marked *v_marked;
};
struct func {
    uint32_t epoch;
    struct store_func f;
};
struct row {
    struct fake_row r;
    uint32_t trie, node, series;
};
struct series {
    ptype_id type;
    uint32_t n;
    struct store_label l[LABELS_MAX];
};
struct cover {
    struct fake_cover c;
    uint32_t n;
    struct store_label l[LABELS_MAX];
    uint64_t scope;
};
struct imported {
    ptype_id id;
    char *name, *unit;
    enum ptype_kind kind;
};

#define PIECE 256 /* nodes of a share at most; 7 by default: several come for one key */

struct store {
    struct arena arena; /* texts */
    uint32_t n_trie, n_func, n_frame, n_row, n_series, n_cover, n_type, n_damage;
    uint32_t n_step, n_event, n_metric;
    struct fake_step *step;
    struct fake_event *event;
    struct fake_metric *metric;
    struct trie *trie;
    struct func *func;
    struct map func_at; /* key and epoch -> number + 1 */
    struct frame *frame;
    struct row *row;
    struct series *series;
    struct cover *cover;
    struct imported *type;
    struct store_damage *damage;
    uint32_t piece; /* nodes of a share at most */
    int fail;
    ptype_id lie;
    uint64_t lsn;
};
struct store_view {
    struct store *s;
};

#define PUSH(v, n, x)                                                                              \
    do {                                                                                           \
        if (((n) & ((n) + 1)) == 0 || (n) == 0)                                                    \
            (v) = xrealloc((v), (2 * (size_t)(n) + 2) * sizeof *(v));                              \
        (v)[(n)++] = (x);                                                                          \
    } while (0)

static struct str keep(struct store *s, struct str t)
{
    return t.n ? arena_str(&s->arena, t) : (struct str){NULL, 0};
}

struct store *fake_store_new(void)
{
    struct store *s = xcalloc(1, sizeof *s);

    arena_init(&s->arena, SIZE_MAX / 2);
    map_init(&s->func_at, 0);
    s->piece = 7;
    return s;
}

void fake_store_whole(struct store *s)
{
    s->piece = PIECE;
}

static void trie_forget(struct trie *t)
{
    free(t->v_parent);
    free(t->v_frame);
    free(t->v_fnode);
    free(t->v_fparent);
    free(t->v_func);
    free(t->v_again);
    free(t->v_marked);
    t->v_parent = t->v_frame = t->v_fnode = t->v_fparent = t->v_func = NULL;
    t->v_again = NULL;
    t->v_marked = NULL;
    t->n_marked = 0;
}

struct store *fake_store_free(struct store *s)
{
    if (s) {
        for (uint32_t i = 0; i < s->n_trie; i++) {
            trie_forget(&s->trie[i]);
            free(s->trie[i].node);
            free(s->trie[i].fnode);
            map_deinit(&s->trie[i].child);
            map_deinit(&s->trie[i].fchild);
        }
        free(s->trie);
        free(s->func);
        free(s->frame);
        free(s->row);
        free(s->series);
        free(s->cover);
        free(s->type);
        free(s->damage);
        free(s->step);
        free(s->event);
        free(s->metric);
        map_deinit(&s->func_at);
        arena_deinit(&s->arena);
        free(s);
    }
    return NULL;
}

/* ---- filling -----------------------------------------------------------------------------------
 */

static int label_cmp(const void *a, const void *b)
{
    return str_cmp(((const struct store_label *)a)->name, ((const struct store_label *)b)->name);
}

static uint32_t parse_labels(struct store *s, const char *text, struct store_label *l)
{
    struct str rest = keep(s, str_c(text));
    uint32_t n = 0;

    while (rest.n) {
        size_t comma = str_find(rest, ','), eq = str_find(rest, '=');

        assert(n < LABELS_MAX && eq < rest.n);
        l[n].name = str_to(rest, eq);
        l[n++].value = str_from(str_to(rest, comma), eq + 1);
        rest = comma == SIZE_MAX ? (struct str){NULL, 0} : str_from(rest, comma + 1);
    }
    if (n > 1)
        qsort(l, n, sizeof *l, label_cmp);
    return n;
}

static struct str label_of(const struct store_label *l, uint32_t n, struct str name)
{
    for (uint32_t i = 0; i < n; i++) {
        if (str_eq(l[i].name, name))
            return l[i].value;
    }
    return (struct str){NULL, 0};
}

static bool same_labels(const struct store_label *a, uint32_t na, const struct store_label *b,
                        uint32_t nb)
{
    if (na != nb)
        return false;
    for (uint32_t i = 0; i < na; i++) {
        if (!str_eq(a[i].name, b[i].name) || !str_eq(a[i].value, b[i].value))
            return false;
    }
    return true;
}

static uint32_t series_at(struct store *s, ptype_id type, const char *labels)
{
    struct series x = {.type = type};

    x.n = parse_labels(s, labels ? labels : "", x.l);
    for (uint32_t i = 0; i < s->n_series; i++) {
        if (s->series[i].type == type && same_labels(s->series[i].l, s->series[i].n, x.l, x.n))
            return i;
    }
    PUSH(s->series, s->n_series, x);
    return s->n_series - 1;
}

static uint32_t trie_at(struct store *s, uint32_t epoch, struct str service, uint32_t sub)
{
    struct trie t = {.id = {.epoch = epoch, .sub = sub}};
    struct node root = {};
    struct fnode froot = {};
    uint32_t svc = 1;

    for (uint32_t i = 0; i < s->n_trie; i++) {
        if (str_eq(str_c(s->trie[i].service), service)) {
            svc = s->trie[i].id.svc;
            if (s->trie[i].id.epoch == epoch && s->trie[i].id.sub == sub)
                return i;
        } else if (s->trie[i].id.svc >= svc) {
            svc = s->trie[i].id.svc + 1;
        }
    }
    for (uint32_t i = 0; i < s->n_trie; i++) {
        if (str_eq(str_c(s->trie[i].service), service))
            svc = s->trie[i].id.svc;
    }
    t.id.svc = svc;
    t.service = service.n ? (char *)(uintptr_t)keep(s, service).p : (char *)(uintptr_t) "";
    map_init(&t.child, 0);
    map_init(&t.fchild, 0);
    PUSH(t.node, t.n, root);
    PUSH(t.fnode, t.n_fnode, froot);
    PUSH(s->trie, s->n_trie, t);
    return s->n_trie - 1;
}

static uint32_t func_at(struct store *s, uint32_t epoch, const struct fake_frame *f)
{
    struct func x = {.epoch = epoch, .f = {.kind = f->kind}};
    uint64_t *slot;

    x.f.scope = func_scope(f->kind, f->bin, f->file);
    x.f.key = func_key(x.f.scope, f->name);
    if (map_at(&s->func_at, x.f.key ^ hash_mix(epoch), &slot) == MAP_FOUND) {
        if (s->func[*slot].f.file.n == 0)
            s->func[*slot].f.file = keep(s, f->file);
        return (uint32_t)*slot;
    }
    *slot = s->n_func;
    x.f.scope = keep(s, x.f.scope);
    x.f.name = keep(s, f->name);
    x.f.file = keep(s, f->file);
    x.f.bin = keep(s, f->bin);
    PUSH(s->func, s->n_func, x);
    return s->n_func - 1;
}

static uint32_t frame_at(struct store *s, uint32_t func, const struct fake_frame *f)
{
    struct frame x = {.func = func, .f = *f};

    for (uint32_t i = 0; i < s->n_frame; i++) {
        const struct fake_frame *k = &s->frame[i].f;

        if (s->frame[i].func == func && k->line == f->line && k->kind == f->kind &&
            str_eq(k->file, f->file) && str_eq(k->bin, f->bin))
            return i;
    }
    x.f.name = s->func[func].f.name;
    x.f.file = keep(s, f->file);
    x.f.bin = keep(s, f->bin);
    PUSH(s->frame, s->n_frame, x);
    return s->n_frame - 1;
}

static uint32_t child_at(struct store *s, struct trie *t, uint32_t parent,
                         const struct fake_frame *f)
{
    uint32_t func = func_at(s, t->id.epoch, f), fparent = t->node[parent].fnode;
    struct fnode y = {.parent = fparent, .func = func};
    struct node x = {.parent = parent, .frame = frame_at(s, func, f)};
    uint64_t *slot;

    if (map_at(&t->fchild, (uint64_t)fparent << 32 | func, &slot) != MAP_FOUND) {
        *slot = t->n_fnode;
        PUSH(t->fnode, t->n_fnode, y);
    }
    x.fnode = (uint32_t)*slot;
    if (map_at(&t->child, (uint64_t)parent << 32 | x.frame, &slot) == MAP_FOUND)
        return (uint32_t)*slot;
    *slot = t->n;
    PUSH(t->node, t->n, x);
    return t->n - 1;
}

/* "k:name", then "@file" and "#bin" and ":line", in this order, each if it is there. */
static struct fake_frame parse_frame(struct str s)
{
    static const char kinds[] = "?knpjgo";
    struct fake_frame f = {};
    size_t at;

    assert(s.n > 2 && s.p[1] == ':');
    f.kind = (enum frame_kind)(strchr(kinds, s.p[0]) - kinds);
    s = str_from(s, 2);
    f.name = s;
    at = str_find(f.name, '#');
    if (at != SIZE_MAX) {
        f.bin = str_from(f.name, at + 1);
        f.name = str_to(f.name, at);
    }
    at = str_find(f.name, '@');
    if (at != SIZE_MAX) {
        f.file = str_from(f.name, at + 1);
        f.name = str_to(f.name, at);
        at = str_rfind(f.file, ':');
        if (at != SIZE_MAX) {
            uint64_t line = 0;

            if (str_u64(str_from(f.file, at + 1), &line)) {
                f.line = (uint32_t)line;
                f.file = str_to(f.file, at);
            }
        }
    }
    return f;
}

void fake_store_row(struct store *s, const struct fake_row *r)
{
    struct row x = {.r = *r};
    struct str rest = str_c(r->stack);
    struct trie *t;

    x.series = series_at(s, r->type, r->labels);
    x.trie =
        trie_at(s, r->epoch, label_of(s->series[x.series].l, s->series[x.series].n, STR("service")),
                r->sub);
    t = &s->trie[x.trie];
    trie_forget(t);
    for (uint32_t i = 0; i < r->n_frame; i++)
        x.node = child_at(s, t, x.node, &r->frame[i]);
    while (rest.n) {
        size_t end = str_find(rest, ';');
        struct fake_frame f = parse_frame(str_to(rest, end));

        x.node = child_at(s, t, x.node, &f);
        rest = end == SIZE_MAX ? (struct str){NULL, 0} : str_from(rest, end + 1);
    }
    x.r.stack = NULL;
    x.r.frame = NULL;
    PUSH(s->row, s->n_row, x);
    s->lsn++;
}

void fake_store_cover(struct store *s, const struct fake_cover *c)
{
    struct cover x = {.c = *c, .scope = s->n_cover + 1};

    x.n = parse_labels(s, c->labels ? c->labels : "", x.l);
    for (uint32_t i = 0; i < s->n_cover; i++) {
        if (s->cover[i].c.type == c->type && s->cover[i].c.pid == c->pid &&
            same_labels(s->cover[i].l, s->cover[i].n, x.l, x.n)) {
            x.scope = s->cover[i].scope;
            break;
        }
    }
    PUSH(s->cover, s->n_cover, x);
    s->lsn++;
}

ptype_id fake_store_type(struct store *s, const char *name, const char *unit, enum ptype_kind kind)
{
    struct imported x = {.id = PTYPE_IMPORTED_FIRST + s->n_type, .kind = kind};

    x.name = (char *)(uintptr_t)keep(s, str_c(name)).p;
    x.unit = (char *)(uintptr_t)keep(s, str_c(unit)).p;
    PUSH(s->type, s->n_type, x);
    return x.id;
}

void fake_store_damage(struct store *s, int64_t t0, int64_t t1, const char *what)
{
    struct store_damage d = {.t = {{t0}, {t1}}, .what = keep(s, str_c(what))};

    PUSH(s->damage, s->n_damage, d);
}

void fake_store_fail(struct store *s, int error)
{
    s->fail = error;
}

void fake_store_lie(struct store *s, ptype_id type)
{
    s->lie = type;
}

unit_i128 fake_store_sum(const struct store *s, ptype_id type, int64_t t0, int64_t t1)
{
    unit_i128 sum = 0;

    for (uint32_t i = 0; i < s->n_row; i++) {
        if (s->row[i].r.type == type && s->row[i].r.t >= t0 && s->row[i].r.t < t1)
            sum += s->row[i].r.value;
    }
    return sum;
}

/* ---- selecting ---------------------------------------------------------------------------------
 */

static struct target_key target_key_of(uint64_t pid)
{
    return (struct target_key){.pid = pid};
}

struct view_text {
    char text[24];
};

static struct str attribute(const struct row *r, struct str name, struct view_text *v)
{
    struct target_key key = target_key_of(r->r.pid);

    if (str_eq(name, STR("pid")) && r->r.pid)
        (void)snprintf(v->text, sizeof v->text, "%llu", (unsigned long long)r->r.pid);
    else if (str_eq(name, STR("tid")) && r->r.tid)
        (void)snprintf(v->text, sizeof v->text, "%u", r->r.tid);
    else if (str_eq(name, STR("target")) && r->r.pid)
        (void)snprintf(v->text, sizeof v->text, "%016llx", (unsigned long long)target_id(&key));
    else
        v->text[0] = '\0';
    return str_c(v->text);
}

static bool is_attribute(struct str name)
{
    return str_eq(name, STR("pid")) || str_eq(name, STR("tid")) || str_eq(name, STR("target"));
}

static int says(const struct store_matcher *m, struct str value, struct err *err)
{
    int r;

    switch (m->op) {
    case STORE_EQ:
        return str_eq(m->value, value);
    case STORE_NE:
        return !str_eq(m->value, value);
    case STORE_LIKE:
        return m->match(m->ctx, value, err);
    case STORE_UNLIKE:
    default:
        r = m->match(m->ctx, value, err);
        return r < 0 ? r : !r;
    }
}

/* 1 selected, 0 not (*ret_by: the condition that says so), negative: a matcher gave up. */
static int selects(const struct store_selector *sel, const struct series *x, const struct row *row,
                   uint32_t *ret_by, struct err *err)
{
    if (sel->type != PTYPE_NONE && sel->type != x->type)
        return 0;
    for (uint32_t i = 0; i < sel->n; i++) {
        struct view_text text;
        struct str v;
        int r;

        if (is_attribute(sel->matcher[i].name)) {
            if (!row)
                continue;
            v = attribute(row, sel->matcher[i].name, &text);
        } else {
            v = label_of(x->l, x->n, sel->matcher[i].name);
        }
        r = says(&sel->matcher[i], v, err);
        if (r <= 0) {
            if (ret_by && i > *ret_by)
                *ret_by = i;
            return r;
        }
    }
    return 1;
}

/* ---- views and scans ---------------------------------------------------------------------------
 */

struct store_view *store_view_get(struct store *s)
{
    struct store_view *v = xcalloc(1, sizeof *v);

    v->s = s;
    return v;
}

struct store_view *store_view_put(struct store_view *v)
{
    free(v);
    return NULL;
}

uint32_t store_workers(const struct store_view *v)
{
    (void)v;
    return 2;
}

struct cell { /* what one share is made of */
    uint32_t side, trie, group, bucket, series;
    uint32_t node;
    uint64_t count;
    unit_i128 sum;
    double var;
    bool unknown, var_missing;
};

static int cell_cmp(const void *va, const void *vb)
{
    const struct cell *a = va, *b = vb;

    if (a->trie != b->trie)
        return a->trie < b->trie ? -1 : 1;
    if (a->side != b->side)
        return a->side < b->side ? -1 : 1;
    if (a->group != b->group)
        return a->group < b->group ? -1 : 1;
    if (a->bucket != b->bucket)
        return a->bucket < b->bucket ? -1 : 1;
    if (a->series != b->series)
        return a->series < b->series ? -1 : 1;
    return (a->node > b->node) - (a->node < b->node);
}

static uint32_t group_of(const struct store_query *q, struct store *s, const struct row *r,
                         struct store_group **group, uint32_t *n_group)
{
    struct store_group g = {};
    struct view_text text[STORE_BY_MAX];
    const struct store_group *have = q->n_group ? q->group : *group;
    uint32_t n = q->n_group ? q->n_group : *n_group;

    for (uint32_t i = 0; i < q->n_by; i++)
        g.value[i] = is_attribute(q->by[i])
                         ? attribute(r, q->by[i], &text[i])
                         : label_of(s->series[r->series].l, s->series[r->series].n, q->by[i]);
    for (uint32_t i = 0; i < n; i++) {
        bool same = true;

        for (uint32_t k = 0; k < q->n_by; k++)
            same &= str_eq(have[i].value[k], g.value[k]);
        if (same)
            return i;
    }
    if (q->n_group)
        return STORE_REST;
    for (uint32_t i = 0; i < q->n_by; i++)
        g.value[i] = keep(s, g.value[i]);
    PUSH(*group, *n_group, g);
    return *n_group - 1;
}

static int64_t covered_ms(const struct store *s, uint32_t series, struct interval range)
{
    int64_t ns = 0, upto = INT64_MIN;

    for (uint32_t i = 0; i < s->n_row; i++) { /* readings come in time order */
        const struct row *r = &s->row[i];
        struct interval c = interval_cut((struct interval){{r->r.t}, {r->r.until}}, range);

        if (r->series != series || c.t1.v <= upto)
            continue;
        ns += c.t1.v - (c.t0.v > upto ? c.t0.v : upto);
        upto = c.t1.v;
    }
    return ns / NS_PER_MS;
}

/* The start of the reading that "now" or "at" means; INT64_MIN: none. */
static int64_t chosen_reading(const struct store *s, const struct store_query *q, uint32_t side,
                              uint32_t series)
{
    int64_t best = INT64_MIN;

    for (uint32_t i = 0; i < s->n_row; i++) {
        const struct fake_row *r = &s->row[i].r;

        if (s->row[i].series != series || r->t <= best)
            continue;
        if (q->level == STORE_NOW ? r->t < q->side[side].range.t1.v
                                  : r->t <= q->at.v && q->at.v < r->until)
            best = r->t;
    }
    return best;
}

static struct interval bucket_range(const struct store_query *q, uint32_t side, uint32_t bucket)
{
    struct interval r = q->side[side].range;

    if (q->bucket_ns > 0) {
        r.t0.v += bucket * q->bucket_ns;
        if (r.t0.v + q->bucket_ns < r.t1.v)
            r.t1.v = r.t0.v + q->bucket_ns;
    }
    return r;
}

static void add_row(struct store *s, const struct store_query *q, uint32_t side,
                    const struct row *r, uint32_t group, struct cell **cell, uint32_t *n_cell)
{
    struct interval range = q->side[side].range;
    struct cell c = {.side = side,
                     .trie = r->trie,
                     .group = group,
                     .node = q->want == STORE_STACKS ? r->node : 0,
                     .count = r->r.count_unknown ? 0 : r->r.count,
                     .sum = r->r.value,
                     .var = r->r.var > 0 ? r->r.var : 0,
                     .unknown = r->r.count_unknown,
                     .var_missing = r->r.var < 0};
    uint32_t first = 0, last = 0;

    if (q->level == STORE_SUM) {
        if (!interval_has(range, (real_ns){r->r.t}))
            return;
        if (q->bucket_ns > 0)
            c.bucket = (uint32_t)((r->r.t - range.t0.v) / q->bucket_ns);
        PUSH(*cell, *n_cell, c);
        return;
    }
    c.series = r->series;
    if (q->level != STORE_AVERAGE) {
        if (chosen_reading(s, q, side, r->series) == r->r.t)
            PUSH(*cell, *n_cell, c);
        return;
    }
    if (q->bucket_ns > 0)
        last = (uint32_t)((range.t1.v - range.t0.v - 1) / q->bucket_ns);
    for (c.bucket = first; c.bucket <= last; c.bucket++) {
        struct interval held = interval_cut((struct interval){{r->r.t}, {r->r.until}},
                                            bucket_range(q, side, c.bucket));

        c.sum = (unit_i128)r->r.value * ((held.t1.v - held.t0.v) / NS_PER_MS);
        if (held.t1.v > held.t0.v)
            PUSH(*cell, *n_cell, c);
    }
}

static bool hand_out(struct store *s, const struct store_query *q, const struct store_sink *sink,
                     const struct cell *c, uint32_t n, bool only)
{
    uint32_t node[PIECE];
    uint64_t count[PIECE];
    unit_i128 wide[PIECE];
    int64_t narrow[PIECE];
    double var[PIECE];
    struct store_share sh = {.trie = s->trie[c->trie].id,
                             .side = c->side,
                             .group = c->group,
                             .bucket = c->bucket,
                             .n = n,
                             .node = node,
                             .count = count,
                             .var = var,
                             .den_ms = 1,
                             .only = only,
                             .sum = {.type = q->side[c->side].sel.type, .n = n}};
    bool fits = true;

    for (uint32_t i = 0; i < n; i++) {
        node[i] = c[i].node;
        count[i] = c[i].count;
        wide[i] = c[i].sum;
        fits &= c[i].sum <= INT64_MAX;
        narrow[i] = (int64_t)c[i].sum;
        var[i] = c[i].var;
        sh.count_unknown |= c[i].unknown;
        if (c[i].var_missing)
            sh.var = NULL;
    }
    if (fits)
        sh.sum.v = narrow;
    else
        sh.sum.wide = wide;
    if (s->lie != PTYPE_NONE)
        sh.sum.type = s->lie;
    if (q->level == STORE_AVERAGE)
        sh.den_ms = covered_ms(s, c->series, bucket_range(q, c->side, c->bucket));
    return sink->share(sink->ctx, c->trie % 2, &sh);
}

static int emit(struct store *s, const struct store_query *q, const struct store_sink *sink,
                struct cell *c, uint32_t n, struct err *err)
{
    const bool only = q->n_side == 1 && q->n_by == 0 && q->bucket_ns == 0;
    uint32_t out = 0;

    if (n > 1)
        qsort(c, n, sizeof *c, cell_cmp);
    for (uint32_t i = 0; i < n; i++) { /* equal keys become one */
        if (out && cell_cmp(&c[out - 1], &c[i]) == 0) {
            c[out - 1].count += c[i].count;
            c[out - 1].sum += c[i].sum;
            c[out - 1].var += c[i].var;
            c[out - 1].unknown |= c[i].unknown;
            c[out - 1].var_missing |= c[i].var_missing;
        } else {
            c[out++] = c[i];
        }
    }
    for (uint32_t i = 0, k; i < out; i += k) {
        for (k = 1; k < s->piece && i + k < out; k++) {
            struct cell a = c[i], b = c[i + k];

            a.node = b.node = 0;
            if (cell_cmp(&a, &b) != 0 || c[i].unknown != c[i + k].unknown)
                break;
        }
        if (!hand_out(s, q, sink, &c[i], k, only && k == out))
            return err_set(err, -ECANCELED, "the sink said stop");
    }
    return 0;
}

static void answer_selection(struct store *s, const struct store_query *q, uint32_t side,
                             struct store_answer *ret, int *r, struct err *err)
{
    uint32_t furthest = 0;

    ret->side[side].none_by = -1;
    for (uint32_t i = 0; i < s->n_series; i++) {
        int yes = selects(&q->side[side].sel, &s->series[i], NULL, &furthest, err);

        if (yes < 0)
            *r = yes;
        ret->side[side].series += yes == 1;
    }
    if (ret->side[side].series == 0 && q->side[side].sel.n)
        ret->side[side].none_by = (int32_t)furthest;
}

/* The bits of each trie, asked for once, by the worker that hands its shares out. */
static void ask_nodes(struct store *s, const struct store_query *q, const uint64_t **bits)
{
    for (uint32_t i = 0; q->nodes && i < s->n_trie; i++)
        bits[i] = q->nodes(q->nodes_ctx, i % 2, s->trie[i].id);
}

static bool in_windows(const struct store_side *side, const struct row *r)
{
    struct target_key key = target_key_of(r->r.pid);

    for (uint32_t i = 0; i < side->n_window; i++) {
        if (r->r.pid && target_id(&side->window[i].target) == target_id(&key) &&
            interval_has(side->window[i].t, (real_ns){r->r.t}))
            return true;
    }
    return side->n_window == 0;
}

static int add_side(struct store *s, const struct store_query *q, uint32_t side,
                    const uint64_t **bits, struct store_answer *ret, struct cell **cell,
                    uint32_t *n_cell, struct store_group **group, uint32_t *n_group,
                    struct err *err)
{
    int r = 0;

    answer_selection(s, q, side, ret, &r, err);
    if (q->side[side].n_window && q->level != STORE_SUM)
        r = err_set(err, -ENOTSUP, "a level cannot be restricted to steps");
    for (uint32_t i = 0; r == 0 && i < s->n_row; i++) {
        const struct row *row = &s->row[i];
        const uint64_t *b = bits[row->trie];
        int yes = selects(&q->side[side].sel, &s->series[row->series], row, NULL, err);

        if (yes < 0)
            r = yes;
        if (yes != 1 || (b && !(b[row->node >> 6] >> (row->node & 63) & 1)) ||
            !in_windows(&q->side[side], row) ||
            (q->level == STORE_SUM && !interval_has(q->side[side].range, (real_ns){row->r.t})))
            continue;
        add_row(s, q, side, row, q->n_by ? group_of(q, s, row, group, n_group) : 0, cell, n_cell);
    }
    return r;
}

int store_scan(struct store_view *v, const struct store_query *q, const struct store_sink *sink,
               struct store_answer *ret, struct err *err)
{
    static const struct store_tier_span raw = {.tier = STORE_RAW, .resolution_ns = NS_PER_MS};
    struct store *s = v->s;
    struct store_group *group = NULL, *copy;
    struct cell *cell = NULL;
    struct store_tier_span *tier = arena_array(q->arena, struct store_tier_span, 2);
    uint32_t n_group = 0, n_cell = 0;
    const uint64_t **bits;
    int r = 0;

    if (s->fail)
        return err_set(err, s->fail, "told to fail");
    if (!tier)
        return err_set(err, -ENOMEM, "no memory for the answer");
    *ret = (struct store_answer){};
    bits = xcalloc(s->n_trie + 1, sizeof *bits);
    ask_nodes(s, q, bits);
    for (uint32_t i = 0; r == 0 && i < q->n_side; i++)
        r = add_side(s, q, i, bits, ret, &cell, &n_cell, &group, &n_group, err);
    if (r == 0)
        r = emit(s, q, sink, cell, n_cell, err);
    for (uint32_t i = 0; i < q->n_side; i++) {
        tier[i] = raw;
        tier[i].t = q->side[i].range;
        ret->side[i].effective = q->side[i].range;
        ret->side[i].tier = &tier[i];
        ret->side[i].n_tier = 1;
    }
    copy = arena_array(q->arena, struct store_group, n_group);
    if (!copy)
        r = err_set(err, -ENOMEM, "no memory for the groups");
    if (copy && n_group)
        memcpy(copy, group, n_group * sizeof *group);
    ret->group = copy;
    ret->n_group = n_group;
    ret->damage = s->damage;
    ret->n_damage = s->n_damage;
    ret->parts_asked = ret->parts_read = 1;
    ret->etag = s->lsn + 1;
    free(group);
    free(cell);
    free(bits);
    if (r < 0)
        return r;
    return s->n_damage ? STORE_PARTIAL : 0;
}

/* ---- evidence ----------------------------------------------------------------------------------
 */

static bool scope_has(const struct cover *c, const struct series *x)
{
    for (uint32_t i = 0; i < c->n; i++) {
        if (!str_eq(label_of(x->l, x->n, c->l[i].name), c->l[i].value))
            return false;
    }
    return true;
}

static int scope_selected(struct store *s, const struct store_ask *ask, const struct cover *c,
                          struct err *err)
{
    struct series own = {.type = c->c.type, .n = c->n};
    int r;

    if (ask->sel.type != c->c.type)
        return 0;
    memcpy(own.l, c->l, sizeof own.l);
    r = selects(&ask->sel, &own, NULL, NULL, err);
    for (uint32_t i = 0; r == 0 && i < s->n_series; i++) {
        if (s->series[i].type == c->c.type && scope_has(c, &s->series[i]))
            r = selects(&ask->sel, &s->series[i], NULL, NULL, err);
    }
    return r;
}

static bool say_cover(const struct cover *c, struct interval cut, store_cover_fn *fn, void *ctx)
{
    struct target_key key = target_key_of(c->c.pid);
    struct store_loss loss = {
        .why = str_c(c->c.lost_why), .n = c->c.lost_n, .weight = c->c.lost_weight};
    struct store_cover out = {.scope = c->scope,
                              .type = c->c.type,
                              .labels = {c->n, c->l},
                              .target = c->c.pid ? &key : NULL,
                              .t = cut,
                              .width = 1,
                              .state = c->c.state ? c->c.state : SOURCE_OK,
                              .why = str_c(c->c.why),
                              .basis = c->c.basis,
                              .period = c->c.period,
                              .expected = c->c.expected,
                              .received = c->c.received,
                              .n_loss = c->c.lost_why ? 1 : 0,
                              .loss = &loss,
                              .skew_ns = c->c.skew_ns,
                              .ended = c->c.ended};

    return fn(ctx, &out);
}

int store_cover(struct store_view *v, const struct store_ask *ask, store_cover_fn *fn, void *ctx,
                struct err *err)
{
    struct store *s = v->s;

    for (uint64_t scope = 1; scope <= s->n_cover; scope++) {
        for (uint32_t i = 0; i < s->n_cover; i++) { /* each scope's were added in time order */
            const struct cover *c = &s->cover[i];
            struct interval cut = interval_cut((struct interval){{c->c.t0}, {c->c.t1}}, ask->range);
            int r;

            if (c->scope != scope || cut.t0.v >= cut.t1.v)
                continue;
            r = scope_selected(s, ask, c, err);
            if (r < 0)
                return r;
            if (r && !say_cover(c, cut, fn, ctx))
                return err_set(err, -ECANCELED, "the callback said stop");
        }
    }
    return 0;
}

/* ---- listings ----------------------------------------------------------------------------------
 */

/* First and last time of the rows that ask selects and want() likes; false: none. */
static bool seen(struct store *s, const struct store_ask *ask, uint32_t series,
                 struct interval *ret)
{
    bool any = false;

    for (uint32_t i = 0; i < s->n_row; i++) {
        int64_t t = s->row[i].r.t;

        if (s->row[i].series != series || !interval_has(ask->range, (real_ns){t}))
            continue;
        if (!any || t < ret->t0.v)
            ret->t0.v = t;
        if (!any || t > ret->t1.v)
            ret->t1.v = t;
        any = true;
    }
    return any;
}

static bool series_selected(struct store *s, const struct store_ask *ask, uint32_t i,
                            struct interval *ret)
{
    struct err err = {};

    return selects(&ask->sel, &s->series[i], NULL, NULL, &err) == 1 && seen(s, ask, i, ret);
}

static struct store_type type_of(const struct store *s, ptype_id id)
{
    const struct ptype *p = ptype_builtin(id);
    struct store_type t = {.id = id};

    if (p) {
        t.name = str_c(p->name);
        t.unit = str_c(p->unit);
        t.kind = p->kind;
    } else {
        const struct imported *x = &s->type[id - PTYPE_IMPORTED_FIRST];

        t.name = str_c(x->name);
        t.unit = str_c(x->unit);
        t.kind = x->kind;
    }
    return t;
}

int store_list_types(struct store_view *v, const struct store_ask *ask, store_type_fn *fn,
                     void *ctx, struct err *err)
{
    struct store *s = v->s;

    for (ptype_id id = 1; id < PTYPE_IMPORTED_FIRST + s->n_type; id++) {
        struct store_type t;
        bool any = false;

        if (!ptype_builtin(id) && id < PTYPE_IMPORTED_FIRST)
            continue;
        t = type_of(s, id);
        for (uint32_t i = 0; i < s->n_series; i++) {
            struct interval one;

            if (s->series[i].type != id || !series_selected(s, ask, i, &one))
                continue;
            if (!any || one.t0.v < t.seen.t0.v)
                t.seen.t0 = one.t0;
            if (!any || one.t1.v > t.seen.t1.v)
                t.seen.t1 = one.t1;
            any = true;
        }
        if (any && !fn(ctx, &t))
            return err_set(err, -ECANCELED, "the callback said stop");
    }
    return 0;
}

int store_known_types(struct store_view *v, store_type_fn *fn, void *ctx, struct err *err)
{
    for (uint32_t i = 0; i < v->s->n_type; i++) {
        struct store_type t = type_of(v->s, PTYPE_IMPORTED_FIRST + i);

        if (!fn(ctx, &t))
            return err_set(err, -ECANCELED, "the callback said stop");
    }
    return 0;
}

static int str_order(const void *a, const void *b)
{
    return str_cmp(*(const struct str *)a, *(const struct str *)b);
}

/* Distinct label names (name empty) or values of a name, rising. */
static uint32_t distinct(struct store *s, const struct store_ask *ask, struct str name,
                         struct str **ret)
{
    uint32_t n = 0, out = 0;

    for (uint32_t i = 0; i < s->n_series; i++) {
        struct interval t;

        if (!series_selected(s, ask, i, &t))
            continue;
        for (uint32_t k = 0; k < s->series[i].n; k++) {
            if (name.n == 0)
                PUSH(*ret, n, s->series[i].l[k].name);
            else if (str_eq(name, s->series[i].l[k].name))
                PUSH(*ret, n, s->series[i].l[k].value);
        }
    }
    if (n)
        qsort(*ret, n, sizeof **ret, str_order);
    for (uint32_t i = 0; i < n; i++) {
        if (out == 0 || !str_eq((*ret)[out - 1], (*ret)[i]))
            (*ret)[out++] = (*ret)[i];
    }
    return out;
}

int store_list_names(struct store_view *v, const struct store_ask *ask, store_name_fn *fn,
                     void *ctx, struct err *err)
{
    struct str *name = NULL, *value;
    uint32_t n = distinct(v->s, ask, (struct str){NULL, 0}, &name);
    bool go = true;

    for (uint32_t i = 0; go && i < n; i++) {
        struct store_name x = {.name = name[i]};

        value = NULL;
        x.values = distinct(v->s, ask, name[i], &value);
        free(value);
        go = fn(ctx, &x);
    }
    free(name);
    return go ? 0 : err_set(err, -ECANCELED, "the callback said stop");
}

int store_list_values(struct store_view *v, const struct store_ask *ask, store_value_fn *fn,
                      void *ctx, struct err *err)
{
    struct str *value = NULL;
    uint32_t n = distinct(v->s, ask, ask->name, &value);
    bool go = true;

    for (uint32_t i = 0; go && i < n; i++) {
        if (ask->after.n == 0 || str_cmp(value[i], ask->after) > 0)
            go = fn(ctx, value[i]);
    }
    free(value);
    return go ? 0 : err_set(err, -ECANCELED, "the callback said stop");
}

int store_list_series(struct store_view *v, const struct store_ask *ask, store_series_fn *fn,
                      void *ctx, struct err *err)
{
    struct store *s = v->s;

    for (uint32_t i = 0; i < s->n_series; i++) {
        struct store_series x = {.type = s->series[i].type,
                                 .labels = {s->series[i].n, s->series[i].l}};

        if (series_selected(s, ask, i, &x.seen) && !fn(ctx, &x))
            return err_set(err, -ECANCELED, "the callback said stop");
    }
    return 0;
}

int store_known_series(struct store_view *v, const struct store_ask *ask, store_series_fn *fn,
                       void *ctx, struct err *err)
{
    struct store_ask ever = {.sel = ask->sel, .range = {{INT64_MIN}, {INT64_MAX}}};

    return store_list_series(v, &ever, fn, ctx, err);
}

int store_list_targets(struct store_view *v, const struct store_ask *ask, store_target_fn *fn,
                       void *ctx, struct err *err)
{
    struct store *s = v->s;

    for (uint64_t pid = 1000; pid > 0; pid--) {
        struct store_target t = {.key = target_key_of(pid), .comm = STR("worker")};
        ptype_id type = PTYPE_NONE;

        for (uint32_t i = 0; i < s->n_row; i++) {
            struct interval x;

            struct err ignored = {};

            if (s->row[i].r.pid != pid || !series_selected(s, ask, s->row[i].series, &x) ||
                selects(&ask->sel, &s->series[s->row[i].series], &s->row[i], NULL, &ignored) != 1)
                continue;
            type = s->row[i].r.type;
            t.seen = x;
        }
        t.type = &type;
        t.n_type = type != PTYPE_NONE;
        if (t.n_type && !fn(ctx, &t))
            return err_set(err, -ECANCELED, "the callback said stop");
    }
    return 0;
}

/* ---- beside profiles ---------------------------------------------------------------------------
 */

void fake_store_step(struct store *s, const struct fake_step *step)
{
    PUSH(s->step, s->n_step, *step);
    s->lsn++;
}

void fake_store_event(struct store *s, const struct fake_event *event)
{
    PUSH(s->event, s->n_event, *event);
    s->lsn++;
}

void fake_store_metric(struct store *s, const struct fake_metric *metric)
{
    PUSH(s->metric, s->n_metric, *metric);
    s->lsn++;
}

static bool named(const struct store_ask *ask, const char *name)
{
    return ask->name.n == 0 || str_eq(ask->name, str_c(name));
}

/* In the order in which they were added: the test's duty. */
int store_steps(struct store_view *v, const struct store_ask *ask, store_step_fn *fn, void *ctx,
                struct err *err)
{
    struct store *s = v->s;

    for (uint32_t i = 0; i < s->n_step; i++) {
        const struct fake_step *f = &s->step[i];
        struct store_label l[LABELS_MAX];
        struct str part[4];
        struct store_step out = {.target = target_key_of(f->pid),
                                 .name = str_c(f->name),
                                 .number = f->number,
                                 .t = {{f->t0}, {f->t1}},
                                 .tid = f->tid,
                                 .inferred = f->inferred,
                                 .n_part = f->n_part,
                                 .part = part,
                                 .part_ns = f->part_ns};

        if (!named(ask, f->name) || f->t0 >= ask->range.t1.v || f->t1 <= ask->range.t0.v)
            continue;
        assert(ask->sel.n == 0);
        out.labels = (struct store_labels){parse_labels(s, f->labels ? f->labels : "", l), l};
        for (uint32_t k = 0; k < f->n_part; k++)
            part[k] = str_c(f->part[k]);
        if (!fn(ctx, &out))
            return err_set(err, -ECANCELED, "the callback said stop");
    }
    return s->n_damage ? STORE_PARTIAL : 0;
}

int store_events(struct store_view *v, const struct store_ask *ask, store_event_fn *fn, void *ctx,
                 struct err *err)
{
    struct store *s = v->s;

    assert(ask->sel.n == 0);
    for (uint32_t i = 0; i < s->n_event; i++) {
        const struct fake_event *f = &s->event[i];
        struct target_key key = target_key_of(f->pid);
        struct store_event out = {.t = {f->t},
                                  .kind = str_c(f->kind),
                                  .text = str_c(f->text),
                                  .target = f->pid ? &key : NULL};

        if (interval_has(ask->range, out.t) && !fn(ctx, &out))
            return err_set(err, -ECANCELED, "the callback said stop");
    }
    return s->n_damage ? STORE_PARTIAL : 0;
}

static bool say_metric(struct store *s, const struct fake_metric *f, struct interval range,
                       store_metric_fn *fn, void *ctx)
{
    struct target_key key = target_key_of(f->pid);
    struct store_label l[LABELS_MAX];
    double num[FAKE_POINTS], min[FAKE_POINTS], max[FAKE_POINTS], mean[FAKE_POINTS];
    int64_t inum[FAKE_POINTS];
    uint32_t readings[FAKE_POINTS];
    uint8_t status[FAKE_POINTS];
    real_ns t[FAKE_POINTS];
    struct store_metric out = {.name = str_c(f->name),
                               .unit = str_c(f->unit),
                               .kind = f->kind ? f->kind : METRIC_GAUGE,
                               .target = f->pid ? &key : NULL,
                               .t = t,
                               .status = status};

    out.labels = (struct store_labels){parse_labels(s, f->labels ? f->labels : "", l), l};
    for (uint32_t i = 0; i < f->n; i++) {
        if (!interval_has(range, (real_ns){f->p[i].t}))
            continue;
        t[out.n].v = f->p[i].t;
        status[out.n] = (uint8_t)f->p[i].status;
        num[out.n] = f->p[i].v;
        inum[out.n] = f->is_int ? (int64_t)f->p[i].v : 0;
        min[out.n] = f->p[i].v - 1;
        max[out.n] = f->p[i].v + 3;
        mean[out.n] = f->p[i].v + 1;
        readings[out.n++] = 4;
    }
    if (f->is_int)
        out.inum = inum;
    else
        out.num = num;
    if (f->minutes) {
        out.min = min;
        out.max = max;
        out.mean = mean;
        out.readings = readings;
    }
    return out.n == 0 || fn(ctx, &out);
}

int store_metrics(struct store_view *v, const struct store_ask *ask, store_metric_fn *fn, void *ctx,
                  struct err *err)
{
    struct store *s = v->s;

    assert(ask->sel.n == 0);
    for (uint32_t i = 0; i < s->n_metric; i++) {
        if (named(ask, s->metric[i].name) && !say_metric(s, &s->metric[i], ask->range, fn, ctx))
            return err_set(err, -ECANCELED, "the callback said stop");
    }
    return s->n_damage ? STORE_PARTIAL : 0;
}

/* ---- meaning -----------------------------------------------------------------------------------
 */

static void fill_again(struct trie *t)
{
    for (uint32_t i = 1; i < t->n_fnode; i++) {
        for (uint32_t k = t->fnode[i].parent; k > 0; k = t->fnode[k].parent) {
            if (t->fnode[k].func == t->fnode[i].func)
                t->v_again[i >> 6] |= UINT64_C(1) << (i & 63);
        }
    }
}

static void fill_marked(struct store_view *v, struct trie *t)
{
    t->v_marked = xcalloc(t->n_fnode, sizeof *t->v_marked);
    for (uint32_t i = 1; i < t->n_fnode; i++) {
        struct store_func f = {};
        int r = store_func(v, t->id.epoch, t->fnode[i].func, &f, NULL);
        uint8_t mark = r == 0 ? func_mark(f.kind, f.scope, f.name) : 0;

        if (mark)
            t->v_marked[t->n_marked++] = (struct store_marked){i, mark};
    }
}

int store_trie(struct store_view *v, struct store_trie_id id, struct store_trie *ret,
               struct err *err)
{
    for (uint32_t i = 0; i < v->s->n_trie; i++) {
        struct trie *t = &v->s->trie[i];

        if (t->id.epoch != id.epoch || t->id.svc != id.svc || t->id.sub != id.sub)
            continue;
        if (!t->v_parent) {
            t->v_parent = xcalloc(t->n, sizeof *t->v_parent);
            t->v_frame = xcalloc(t->n, sizeof *t->v_frame);
            t->v_fnode = xcalloc(t->n, sizeof *t->v_fnode);
            t->v_fparent = xcalloc(t->n_fnode, sizeof *t->v_fparent);
            t->v_func = xcalloc(t->n_fnode, sizeof *t->v_func);
            t->v_again = xcalloc(t->n_fnode / 64 + 1, sizeof *t->v_again);
            for (uint32_t k = 0; k < t->n; k++) {
                t->v_parent[k] = t->node[k].parent;
                t->v_fnode[k] = t->node[k].fnode;
                t->v_frame[k] = t->node[k].frame;
            }
            for (uint32_t k = 0; k < t->n_fnode; k++) {
                t->v_fparent[k] = t->fnode[k].parent;
                t->v_func[k] = t->fnode[k].func;
            }
            fill_again(t);
            fill_marked(v, t);
        }
        *ret = (struct store_trie){.n = t->n,
                                   .parent = t->v_parent,
                                   .frame = t->v_frame,
                                   .fnode = t->v_fnode,
                                   .n_fnode = t->n_fnode,
                                   .fparent = t->v_fparent,
                                   .func = t->v_func,
                                   .again = t->v_again,
                                   .n_marked = t->n_marked,
                                   .marked = t->v_marked};
        return 0;
    }
    return err_set(err, -ENOENT, "no such trie");
}

/* A frame with a line has an address too: 0x1000 and the line. */
int store_frame(struct store_view *v, uint32_t epoch, uint32_t frame, struct store_frame *ret,
                struct err *err)
{
    const struct store *s = v->s;
    const struct fake_frame *f;
    uint32_t line;

    if (frame >= s->n_frame || s->func[s->frame[frame].func].epoch != epoch)
        return err_set(err, -ENOENT, "no frame %u in epoch %u", frame, epoch);
    f = &s->frame[frame].f;
    line = f->line;
    *ret = (struct store_frame){.kind = f->kind,
                                .func = s->frame[frame].func,
                                .name = f->name,
                                .file = f->file,
                                .line = line,
                                .bin = f->bin,
                                .bin_id = f->bin.n ? STR("b1d") : (struct str){NULL, 0},
                                .addr = line && f->bin.n ? 0x1000 + line : 0};
    return 0;
}

int store_func(struct store_view *v, uint32_t epoch, uint32_t func, struct store_func *ret,
               struct err *err)
{
    if (func >= v->s->n_func || v->s->func[func].epoch != epoch)
        return err_set(err, -ENOENT, "no function %u in epoch %u", func, epoch);
    *ret = v->s->func[func].f;
    return 0;
}

int store_funcs(struct store_view *v, uint32_t epoch, uint32_t n, const uint32_t *func,
                struct store_func *ret, struct err *err)
{
    for (uint32_t i = 0; i < n; i++)
        TRY(store_func(v, epoch, func[i], &ret[i], err));
    return 0;
}

/* ---- upkeep ------------------------------------------------------------------------------------
 */

void store_stats(struct store *s, struct store_stats *ret)
{
    *ret = (struct store_stats){.state = STORE_OK, .lsn = s->lsn, .batches = s->lsn};
    ret->rows = s->n_row;
    for (uint32_t i = 0; i < s->n_row; i++) {
        int64_t t = s->row[i].r.t;

        if (i == 0 || t < ret->oldest.v)
            ret->oldest.v = t;
        if (i == 0 || t > ret->newest.v)
            ret->newest.v = t;
    }
}

int store_list_senders(struct store *s, store_sender_fn *fn, void *ctx, struct err *err)
{
    struct store_sender x = {.agent = {0xab}, .boot = {1}, .seq = s->lsn};

    if (s->lsn && !fn(ctx, &x))
        return err_set(err, -ECANCELED, "the callback said stop");
    return 0;
}
