// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "storage/view_private.h"

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

struct str attr_text_target(const struct store_view *v, enum attr attr, uint32_t target,
                            char buf[static 24])
{
    const struct head_target *t;
    int n;

    if (target == 0)
        return (struct str){};
    t = TABLE(&v->h->target, struct head_target, target);
    if (attr == ATTR_PID)
        return attr_number(buf, t->key.pid);
    n = snprintf(buf, 24, "%016" PRIx64, t->id);
    return (struct str){buf, n > 0 ? (size_t)n : 0};
}

struct str attr_text(const struct store_view *v, enum attr attr, uint32_t thread, uint32_t cpu,
                     char buf[static 24])
{
    const struct head_thread *t = TABLE(&v->h->thread, struct head_thread, thread);

    switch (attr) {
    case ATTR_PID:
    case ATTR_TARGET:
        return attr_text_target(v, attr, t->target, buf);
    case ATTR_TID:
        return t->tid ? attr_number(buf, t->tid) : (struct str){};
    case ATTR_THREAD:
        return head_str(v->h, t->name);
    case ATTR_CPU:
        return cpu ? attr_number(buf, *VEC(&v->h->cpu, uint32_t, cpu) - 1) : (struct str){};
    case ATTR_NONE:
        break;
    }
    return (struct str){};
}

struct str label_of(const struct store_view *v, uint32_t set, struct str name, uint32_t *ret_text)
{
    const struct dict_labels *l = head_labels(v->h, set);

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
    const struct head *h = a->v->h;
    uint64_t left = 0;

    for (uint32_t i = 1; i < a->v->snap.series; i++) {
        const struct head_series *s = TABLE(&h->series, struct head_series, i);
        int r;

        if (!bit_get(sel->series, i))
            continue;
        r = asked(a, label_of(a->v, s->labels, a->m->name, NULL), err);
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

static int cut_threads(struct ask *a, enum attr attr, struct selection *sel, struct err *err)
{
    const struct store_view *v = a->v;
    uint64_t *was = sel->thread, *now = bits(a->arena, v->snap.thread), left = 0;
    char buf[24];

    if (!now)
        return no_memory(err);
    for (uint32_t i = 0; i < v->snap.thread; i++) {
        int r = bit_get(was, i) ? asked(a, attr_text(v, attr, i, 0, buf), err) : 0;

        if (r < 0)
            return r;
        if (r) {
            bit_set(now, i);
            left++;
        }
    }
    sel->thread = now;
    if (left == 0)
        sel->n_series = 0;
    if (attr != ATTR_PID && attr != ATTR_TARGET)
        return 0;
    was = sel->target;
    now = bits(a->arena, v->snap.target);
    if (!now)
        return no_memory(err);
    for (uint32_t i = 0; i < v->snap.target; i++) {
        int r = bit_get(was, i) ? asked(a, attr_text_target(v, attr, i, buf), err) : 0;

        if (r < 0)
            return r;
        if (r)
            bit_set(now, i);
    }
    sel->target = now;
    return 0;
}

static int cut_cpus(struct ask *a, struct selection *sel, struct err *err)
{
    uint64_t *was = sel->cpu, *now = bits(a->arena, a->v->snap.cpu), left = 0;
    char buf[24];

    if (!now)
        return no_memory(err);
    for (uint32_t i = 0; i < a->v->snap.cpu; i++) {
        int r = bit_get(was, i) ? asked(a, attr_text(a->v, ATTR_CPU, 0, i, buf), err) : 0;

        if (r < 0)
            return r;
        if (r) {
            bit_set(now, i);
            left++;
        }
    }
    sel->cpu = now;
    if (left == 0)
        sel->n_series = 0;
    return 0;
}

static int cut(struct ask *a, struct selection *sel, struct err *err)
{
    enum attr attr = attr_of(a->m->name);

    switch (attr) {
    case ATTR_NONE:
        return cut_series(a, sel, err);
    case ATTR_CPU:
        return cut_cpus(a, sel, err);
    case ATTR_PID:
    case ATTR_TID:
    case ATTR_THREAD:
    case ATTR_TARGET:
        return cut_threads(a, attr, sel, err);
    }
    return 0;
}

int select_series(const struct store_view *v, const struct store_selector *sel, struct arena *arena,
                  struct selection *ret, struct err *err)
{
    struct selection s = {.series = bits(arena, v->snap.series), .none_by = -1};

    if (!s.series)
        return no_memory(err);
    for (uint32_t i = 1; i < v->snap.series; i++) {
        if (sel->type != PTYPE_NONE &&
            TABLE(&v->h->series, struct head_series, i)->type != sel->type)
            continue;
        bit_set(s.series, i);
        s.n_series++;
    }
    for (uint32_t i = 0; i < sel->n && s.n_series > 0; i++) {
        struct ask a = {.v = v, .m = &sel->matcher[i], .arena = arena};
        int r;

        map_init(&a.memo, 0);
        r = cut(&a, &s, err);
        map_deinit(&a.memo);
        if (r < 0)
            return r;
        if (s.n_series == 0) {
            s.none_by = (int32_t)i;
            memset(s.series, 0, (v->snap.series / 64 + 1) * sizeof *s.series);
        }
    }
    for (uint32_t i = 1; i < v->snap.series; i++)
        s.n_overflow +=
            bit_get(s.series, i) && TABLE(&v->h->series, struct head_series, i)->overflow;
    *ret = s;
    return 0;
}

/* ---- rows and records ---------------------------------------------------------------------- */

bool each_row(const struct store_view *v, ptype_id type, const struct selection *sel,
              struct interval range, row_fn *fn, void *ctx)
{
    int64_t lo = ms_ceil(range.t0), hi = ms_ceil(range.t1);

    for (uint32_t k = 0; k < v->snap.group; k++) {
        const struct head_group *g = *VEC(&v->h->group, struct head_group *, k);
        uint64_t rows = head_group_rows(g, v->snap.lsn);

        if (type != PTYPE_NONE && g->type != type)
            continue;
        for (uint32_t ci = 0; rows > 0; ci++) {
            const struct head_chunk *c = *VEC(&g->chunk, struct head_chunk *, ci);
            uint32_t n = head_chunk_rows(c, rows);
            const uint32_t *cpu = atomic_load_explicit(&c->cpu, memory_order_acquire);

            for (uint32_t i = 0; i < n; i++) {
                struct row_at row = {g, c, i, c->base_ms + c->t[i]};

                if (row.ms < lo || row.ms >= hi || !bit_get(sel->series, c->series[i]) ||
                    !bit_get(sel->thread, c->thread[i]) || !bit_get(sel->cpu, cpu ? cpu[i] : 0))
                    continue;
                if (!fn(ctx, &row))
                    return false;
            }
            if (c->first + n >= rows)
                break;
        }
    }
    return true;
}

const struct head_cover *cover_prev(const struct store_view *v, const struct head_cover *c,
                                    uint32_t *ret_i)
{
    if (c->prev == 0)
        return NULL;
    *ret_i = c->prev - 1;
    return VEC(&v->h->cover, struct head_cover, *ret_i);
}

const struct head_cover *cover_last(const struct store_view *v, const struct head_scope *sc,
                                    uint32_t *ret_i)
{
    uint32_t i = atomic_load_explicit(&sc->last, memory_order_acquire);
    const struct head_cover *c;

    if (i == 0)
        return NULL;
    *ret_i = i - 1;
    c = VEC(&v->h->cover, struct head_cover, i - 1);
    while (c && *ret_i >= v->snap.cover)
        c = cover_prev(v, c, ret_i);
    return c;
}

bool scope_selected(const struct store_view *v, const struct head_scope *sc,
                    const struct selection *sel)
{
    const struct dict_labels *l = head_labels(v->h, sc->labels);

    /* the host's records touch all targets; those of other targets do not */
    if (sc->target && !bit_get(sel->target, sc->target))
        return false;
    for (uint32_t i = 1; i < v->snap.series; i++) {
        const struct head_series *s = TABLE(&v->h->series, struct head_series, i);

        if (bit_get(sel->series, i) && s->type == sc->type &&
            dict_labels_within(l, head_labels(v->h, s->labels)))
            return true;
    }
    return false;
}
