// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "storage/keep/view_private.h"

enum attr attr_of(struct str name)
{
    static const struct str names[] = {[ATTR_PID] = STR("pid"),
                                       [ATTR_TID] = STR("tid"),
                                       [ATTR_THREAD] = STR("thread"),
                                       [ATTR_CPU] = STR("cpu"),
                                       [ATTR_TARGET] = STR("target")};

    for (unsigned i = ATTR_PID; i <= ATTR_TARGET; i++) {
        if (str_eq(names[i], name))
            return (enum attr)i;
    }
    return ATTR_NONE;
}

struct str attr_number(char buf[static 24], uint64_t v)
{
    int n = snprintf(buf, 24, "%" PRIu64, v);

    return (struct str){buf, n > 0 ? (size_t)n : 0};
}

struct str attr_text_target(const struct local *l, enum attr attr, uint32_t target,
                            char buf[static 24])
{
    const struct local_target *t;
    int n;

    if (target == 0)
        return (struct str){};
    t = TABLE(&l->target, struct local_target, target);
    if (attr == ATTR_PID)
        return attr_number(buf, t->key.pid);
    n = snprintf(buf, 24, "%016" PRIx64, t->id);
    return (struct str){buf, n > 0 ? (size_t)n : 0};
}

struct str attr_text(const struct local *l, enum attr attr, uint32_t thread, uint32_t cpu,
                     char buf[static 24])
{
    const struct local_thread *t;

    if (attr == ATTR_CPU)
        return cpu ? attr_number(buf, cpu - 1) : (struct str){};
    t = TABLE(&l->thread, struct local_thread, thread);
    switch (attr) {
    case ATTR_PID:
    case ATTR_TARGET:
        return attr_text_target(l, attr, t->target, buf);
    case ATTR_TID:
        return t->tid ? attr_number(buf, t->tid) : (struct str){};
    case ATTR_THREAD:
        return local_str(l, t->name);
    case ATTR_CPU:
    case ATTR_NONE:
        break;
    }
    return (struct str){};
}

struct str label_of(const struct names *n, uint32_t set, struct str name, uint32_t *ret_text)
{
    const struct names_labels *l = names_labels(n, set);

    for (uint32_t i = 0; i < l->n; i++) {
        if (str_eq(l->v[i].name, name)) {
            if (ret_text)
                *ret_text = l->pair[2 * i + 1];
            return l->v[i].value;
        }
    }
    if (ret_text)
        *ret_text = 0;
    return (struct str){};
}

/* ---- one matcher --------------------------------------------------------------------------- */

/* A value is asked about once: memo by text for labels, by bytes for what is made up. */
struct ask {
    const struct store_view *v;
    const struct opened *o;
    const struct store_matcher *m;
    struct arena *arena;
    struct map memo; /* hash -> struct known * */
};

struct known {
    struct known *next;
    struct str value;
    bool yes;
};

static int decide(const struct store_matcher *m, struct str value, struct err *err)
{
    int r;

    switch (m->op) {
    case STORE_EQ:
        return str_eq(m->value, value);
    case STORE_NE:
        return !str_eq(m->value, value);
    case STORE_LIKE:
    case STORE_UNLIKE:
        r = m->match(m->ctx, value, err);
        return r < 0 ? r : (r > 0) == (m->op == STORE_LIKE);
    }
    return err_set(err, -EINVAL, "matcher %.*s: no such operator", STR_ARG(m->name));
}

static int asked(struct ask *a, struct str value, struct err *err)
{
    uint64_t *first;
    struct known *k;
    int r;

    if (a->m->op == STORE_EQ || a->m->op == STORE_NE)
        return decide(a->m, value, err);
    if (map_at(&a->memo, hash_str(value), &first) == MAP_FULL)
        return no_memory(err);
    for (k = (struct known *)(uintptr_t)*first; k; k = k->next) { // NOLINT
        if (str_eq(k->value, value))
            return k->yes;
    }
    r = decide(a->m, value, err);
    if (r < 0)
        return r;
    k = arena_new(a->arena, struct known);
    if (!k)
        return no_memory(err);
    *k = (struct known){.next = (struct known *)(uintptr_t)*first, // NOLINT
                        .value = arena_str(a->arena, value),
                        .yes = r > 0};
    if (value.n && !k->value.p)
        return no_memory(err);
    *first = (uintptr_t)k;
    return r;
}

static uint64_t *bits(struct arena *arena, uint32_t n)
{
    return arena_array(arena, uint64_t, n / 64 + 1);
}

static int cut_series(struct ask *a, struct selection *sel, struct err *err)
{
    const uint32_t n = a->v->snap.series;
    uint64_t left = 0;

    for (uint32_t i = bit_next(sel->series, 0, n); i < n; i = bit_next(sel->series, i + 1, n)) {
        int r = asked(
            a, label_of(a->v->names, names_series(a->v->names, i)->labels, a->m->name, NULL), err);

        if (r < 0)
            return r;
        if (r)
            left++;
        else
            sel->series[i / 64] &= ~(UINT64_C(1) << i % 64);
    }
    sel->n_series = left;
    return 0;
}

/* Of n entries those that were selected and that the matcher takes; *left of them. */
static int cut_bits(struct ask *a, enum attr attr, bool targets, const struct local *l,
                    uint64_t **bitmap, uint32_t n, uint64_t *left, struct err *err)
{
    const uint64_t *was = *bitmap;
    uint64_t *now = bits(a->arena, n);
    char buf[24];

    if (!now)
        return no_memory(err);
    for (uint32_t i = 0; i < n; i++) {
        int r = 0;

        if (bit_get(was, i))
            r = asked(a,
                      targets ? attr_text_target(l, attr, i, buf) : attr_text(l, attr, i, i, buf),
                      err);
        if (r < 0)
            return r;
        if (r) {
            bit_set(now, i);
            (*left)++;
        }
    }
    *bitmap = now;
    return 0;
}

/* A number is the same in every source: one bitmap for all. */
static int cut_cpus(struct ask *a, struct selection *sel, uint64_t *left, struct err *err)
{
    uint64_t *bitmap = sel->cpu;
    uint32_t n = 1;

    for (uint32_t k = 0; k < a->v->n_source; k++)
        n = a->o[k].local && a->o[k].n.cpu > n ? a->o[k].n.cpu : n;
    TRY(cut_bits(a, ATTR_CPU, false, NULL, &bitmap, n, left, err));
    sel->cpu = bitmap;
    for (uint32_t k = 0; k < a->v->n_source; k++)
        sel->source[k].cpu = bitmap;
    return 0;
}

static int cut_attr(struct ask *a, enum attr attr, struct selection *sel, struct err *err)
{
    uint64_t left = 0, ignored = 0;

    sel->by_attr = true;
    if (!sel->source)
        sel->source = arena_array(a->arena, struct attr_bits, a->v->n_source);
    if (!sel->source)
        return no_memory(err);
    if (attr == ATTR_CPU)
        TRY(cut_cpus(a, sel, &left, err));
    for (uint32_t k = 0; attr != ATTR_CPU && k < a->v->n_source; k++) {
        const struct opened *o = &a->o[k];
        struct attr_bits *b = &sel->source[k];

        if (!o->local)
            continue;
        TRY(cut_bits(a, attr, false, o->local, &b->thread, o->n.thread, &left, err));
        if (attr == ATTR_PID || attr == ATTR_TARGET)
            TRY(cut_bits(a, attr, true, o->local, &b->target, o->n.target, &ignored, err));
    }
    if (left == 0)
        sel->n_series = 0;
    return 0;
}

static void choose_one(const struct store_view *v, const struct store_selector *sel, uint32_t i,
                       struct selection *s)
{
    if (sel->type != PTYPE_NONE && names_series(v->names, i)->type != sel->type)
        return;
    bit_set(s->series, i);
    s->n_series++;
}

/* The condition that asks for one service by its name; NULL: none does. */
static const struct store_matcher *asked_service(const struct store_selector *sel)
{
    for (uint32_t k = 0; k < sel->n; k++) {
        if (sel->matcher[k].op == STORE_EQ && str_eq(sel->matcher[k].name, STR("service")))
            return &sel->matcher[k];
    }
    return NULL;
}

static void choose_of_service(const struct store_view *v, const struct store_selector *sel,
                              struct str service, struct selection *s)
{
    const struct names *n = v->names;

    for (uint32_t svc = 1; svc < v->snap.svc; svc++) {
        if (!str_eq(names_str(n, TABLE(&n->svc, struct names_svc, svc)->name), service))
            continue;
        for (uint32_t i = names_last_series(n, svc, v->snap.series); i;
             i = names_series(n, i)->before)
            choose_one(v, sel, i, s);
    }
}

/* of: a condition that is known to leave series of its service alone, or NULL. */
static int choose(struct store_view *v, const struct store_selector *sel, const struct opened *o,
                  struct arena *arena, const struct store_matcher *of, struct selection *ret,
                  struct err *err)
{
    const uint32_t n = v->snap.series;
    struct selection s = {.series = bits(arena, n), .none_by = -1};

    if (!s.series)
        return no_memory(err);
    if (of)
        choose_of_service(v, sel, of->value, &s);
    for (uint32_t i = 1; !of && i < n; i++)
        choose_one(v, sel, i, &s);
    for (uint32_t i = 0; i < sel->n && s.n_series > 0; i++) {
        struct ask a = {.v = v, .o = o, .m = &sel->matcher[i], .arena = arena};
        enum attr attr = attr_of(a.m->name);
        int r;

        map_init(&a.memo, 0);
        r = attr == ATTR_NONE ? cut_series(&a, &s, err) : cut_attr(&a, attr, &s, err);
        map_deinit(&a.memo);
        if (r < 0)
            return r;
        if (s.n_series == 0) {
            s.none_by = (int32_t)i;
            memset(s.series, 0, (n / 64 + 1) * sizeof *s.series);
        }
    }
    for (uint32_t i = bit_next(s.series, 0, n); i < n; i = bit_next(s.series, i + 1, n))
        s.n_overflow += names_series(v->names, i)->overflow;
    *ret = s;
    return 0;
}

/* ---- asked again -------------------------------------------------------------------------------
 *
 * One question selects several times: for rows, for coverage, for series without a source. Where
 * labels decide, and by comparison alone, a view's answer stays the same.
 */

struct selected {
    struct selected *next;
    ptype_id type;
    uint32_t n;
    struct store_matcher *matcher;
    struct selection s;
};

static bool by_labels(const struct store_selector *sel)
{
    for (uint32_t i = 0; i < sel->n; i++) {
        if ((sel->matcher[i].op != STORE_EQ && sel->matcher[i].op != STORE_NE) ||
            attr_of(sel->matcher[i].name) != ATTR_NONE)
            return false;
    }
    return true;
}

static bool is_for(const struct selected *x, const struct store_selector *sel)
{
    if (x->type != sel->type || x->n != sel->n)
        return false;
    for (uint32_t i = 0; i < x->n; i++) {
        if (x->matcher[i].op != sel->matcher[i].op ||
            !str_eq(x->matcher[i].name, sel->matcher[i].name) ||
            !str_eq(x->matcher[i].value, sel->matcher[i].value))
            return false;
    }
    return true;
}

/* Without memory it is chosen again next time. */
static void remember(struct store_view *v, const struct store_selector *sel,
                     const struct selection *s) REQUIRES(&v->mu)
{
    size_t bytes = (v->snap.series / 64 + 1) * sizeof *s->series;
    struct selected *x = arena_new(&v->mem, struct selected);
    struct store_matcher *m = arena_array(&v->mem, struct store_matcher, sel->n);
    uint64_t *series = arena_alloc(&v->mem, bytes);

    if (!x || !m || !series)
        return;
    for (uint32_t i = 0; i < sel->n; i++) {
        const struct store_matcher *from = &sel->matcher[i];

        m[i] = (struct store_matcher){.op = from->op,
                                      .name = arena_str(&v->mem, from->name),
                                      .value = arena_str(&v->mem, from->value)};
        if (!m[i].name.p || !m[i].value.p)
            return;
    }
    memcpy(series, s->series, bytes);
    *x = (struct selected){
        .next = v->selected, .type = sel->type, .n = sel->n, .matcher = m, .s = *s};
    x->s.series = series;
    v->selected = x;
}

int select_series(struct store_view *v, const struct store_selector *sel, const struct opened *o,
                  struct arena *arena, struct selection *ret, struct err *err)
{
    const struct store_matcher *of;
    const struct selected *x;
    bool again = by_labels(sel);

    if (again) {
        mutex_lock(&v->mu);
        for (x = v->selected; x && !is_for(x, sel); x = x->next)
            ;
        mutex_unlock(&v->mu);
        if (x) { /* never changed, and as long as the view */
            *ret = x->s;
            return 0;
        }
    }
    of = asked_service(sel);
    TRY(choose(v, sel, o, arena, of, ret, err));
    if (of && ret->n_series == 0) /* which condition takes the last one of all series? */
        TRY(choose(v, sel, o, arena, NULL, ret, err));
    if (again) {
        mutex_lock(&v->mu);
        remember(v, sel, ret);
        mutex_unlock(&v->mu);
    }
    return 0;
}

/* ---- records ------------------------------------------------------------------------------- */

static bool covers_selected(const struct store_view *v, const struct local_scope *sc,
                            const struct selection *sel)
{
    const struct names_labels *l = names_labels(v->names, sc->labels);
    const uint32_t n = v->snap.series;

    for (uint32_t i = bit_next(sel->series, 0, n); i < n; i = bit_next(sel->series, i + 1, n)) {
        const struct names_series *s = names_series(v->names, i);

        if (s->type == sc->type && names_labels_within(l, names_labels(v->names, s->labels)))
            return true;
    }
    return false;
}

bool scope_selected(const struct store_view *v, const struct local_scope *sc, uint32_t source,
                    const struct selection *sel, struct map *memo)
{
    uint64_t key = (uint64_t)sc->type << 32 | sc->labels, yes;

    /* the host's records touch all targets; those of other targets do not */
    if (sc->target && !bit_get(selection_bits(sel, source).target, sc->target))
        return false;
    if (map_get(memo, key, &yes))
        return yes;
    yes = covers_selected(v, sc, sel);
    (void)map_put(memo, key, yes); /* without memory it is looked up again */
    return yes;
}
