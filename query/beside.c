// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/hash.h"
#include "query/query_private.h"

/*
 * What stands beside weights has labels and a process of its own. The agent marks a step with the
 * process alone: that it is of service x only the process's samples say. So a selector takes a
 * thing if the thing's own words fulfil it, or if it selects data of the thing's process.
 */

/* ---- what the selector takes -------------------------------------------------------------------
 */

struct processes {
    struct query *q;
    struct query_err *e;
    uint64_t *id;
    uint32_t n, room;
    int r;
};

static bool on_process(void *ctx, const struct store_target *t)
{
    struct processes *p = ctx;
    uint64_t *id = query_grow(p->q, p->id, p->n, &p->room, sizeof *id, p->e);

    if (!id) {
        p->r = -ENOMEM;
        return false;
    }
    p->id = id;
    p->id[p->n++] = target_id(&t->key);
    if (p->n % 1024 == 0)
        p->r = query_alive(p->q, p->e);
    return p->r == 0;
}

static int id_cmp(const void *va, const void *vb)
{
    uint64_t a = *(const uint64_t *)va, b = *(const uint64_t *)vb;

    return (a > b) - (a < b);
}

static bool names_process(struct str name)
{
    static const struct str words[] = {STR("pid"), STR("tid"), STR("thread"), STR("cpu"),
                                       STR("target")};

    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (str_eq(words[i], name))
            return true;
    }
    return false;
}

int query_takes_init(struct query *q, struct query_takes *ret, struct query_err *e)
{
    struct query_takes t = {.q = q, .all = q->select.n == 0};
    struct processes p = {.q = q, .e = e};
    struct store_ask ask = {.sel = query_selector(q), .range = q->head.range};
    struct err err = {};
    int r;

    *ret = t;
    TRY(query_alive(q, e));
    if (t.all)
        return 0;
    for (uint32_t i = 0; i < q->select.n; i++)
        t.by_process |= names_process(q->select.matcher[i].name);
    r = store_list_targets(q->view, &ask, on_process, &p, &err);
    if (p.r < 0)
        return p.r;
    if (r < 0)
        return query_store_failed(q, r, &err, e);
    q->head.partial |= r == STORE_PARTIAL;
    if (p.n > 1)
        qsort(p.id, p.n, sizeof *p.id, id_cmp);
    t.n = p.n;
    t.id = p.id;
    *ret = t;
    return 0;
}

bool query_takes_process(const struct query_takes *t, const struct target_key *key)
{
    uint64_t id = target_id(key);

    return t->n && bsearch(&id, t->id, t->n, sizeof id, id_cmp);
}

static struct str own_value(struct str name, const struct store_labels *labels,
                            const struct target_key *key, uint32_t tid, char text[static 24])
{
    text[0] = '\0';
    if (str_eq(name, STR("pid")) && key)
        (void)snprintf(text, 24, "%" PRIu64, key->pid);
    else if (str_eq(name, STR("target")) && key)
        (void)snprintf(text, 24, "%016" PRIx64, target_id(key));
    else if (str_eq(name, STR("tid")) && tid)
        (void)snprintf(text, 24, "%" PRIu32, tid);
    for (uint32_t i = 0; !names_process(name) && labels && i < labels->n; i++) {
        if (str_eq(labels->v[i].name, name))
            return labels->v[i].value;
    }
    return str_c(text);
}

int query_takes(const struct query_takes *t, const struct store_labels *labels,
                const struct target_key *key, uint32_t tid, struct query_err *e)
{
    if (t->all || (key && query_takes_process(t, key)))
        return 1;
    for (uint32_t i = 0; i < t->q->select.n; i++) {
        const struct store_matcher *m = &t->q->select.matcher[i];
        char text[24];
        struct str value = own_value(m->name, labels, key, tid, text);
        struct err err = {};
        int yes = m->match ? m->match(m->ctx, value, &err) : str_eq(m->value, value);

        if (yes < 0)
            return query_store_failed(t->q, yes, &err, e);
        if ((yes > 0) != (m->op == STORE_EQ || m->op == STORE_LIKE))
            return 0;
    }
    return 1;
}

/* ---- copies ------------------------------------------------------------------------------------
 */

int query_labels_copy(struct query *q, const struct store_labels *l, struct query_labels *ret,
                      struct query_err *e)
{
    struct query_pair *v;

    *ret = (struct query_labels){};
    if (l->n == 0)
        return 0;
    QUERY_NEW(q, &v, l->n, e);
    for (uint32_t i = 0; i < l->n; i++) {
        TRY(query_copy(q, l->v[i].name, &v[i].name, e));
        TRY(query_copy(q, l->v[i].value, &v[i].value, e));
    }
    *ret = (struct query_labels){l->n, v};
    return 0;
}

struct query_owner query_owner_of(const struct target_key *key)
{
    static const struct target_key none;

    if (!key || memcmp(key, &none, sizeof none) == 0)
        return (struct query_owner){};
    return (struct query_owner){true, target_id(key)};
}

/* ---- label sets --------------------------------------------------------------------------------
 */

struct sets {
    struct query *q;
    struct query_err *e;
    const struct query_types *types;
    struct query_set_row *row;
    uint32_t n, room, limit;
    uint64_t after;
    bool skipping, full, truncated;
    int r;
};

static uint64_t set_id(const struct store_series *s)
{
    uint64_t h = hash_mix(s->type);

    for (uint32_t i = 0; i < s->labels.n; i++) {
        h = hash_mix(h ^ hash_str(s->labels.v[i].name));
        h = hash_mix(h ^ hash_str(s->labels.v[i].value));
    }
    return h;
}

static int keep_set(struct sets *l, const struct store_series *s, uint64_t id)
{
    const struct query_type *type = query_type_of(l->types, s->type);
    struct query_set_row *row = query_grow(l->q, l->row, l->n, &l->room, sizeof *row, l->e);

    if (!row)
        return -ENOMEM;
    l->row = row;
    row = &l->row[l->n++];
    row->id = id;
    row->type = type ? *type : (struct query_type){.id = s->type};
    row->seen = s->seen;
    return query_labels_copy(l->q, &s->labels, &row->labels, l->e);
}

static bool on_set(void *ctx, const struct store_series *s)
{
    struct sets *l = ctx;
    uint64_t id = set_id(s);

    if (l->skipping) {
        l->skipping = id != l->after;
        return true;
    }
    if (l->n == l->limit) {
        l->full = l->truncated = true;
        return false;
    }
    l->r = keep_set(l, s, id);
    if (l->r == 0 && l->n % 1024 == 0)
        l->r = query_alive(l->q, l->e);
    return l->r == 0;
}

int query_sets(struct query *q, uint32_t limit, uint64_t after, struct query_sets *ret,
               struct query_err *e)
{
    struct query_types types;
    struct sets l = {
        .q = q, .e = e, .types = &types, .limit = limit, .after = after, .skipping = after != 0};
    struct store_ask ask = {.sel = query_selector(q), .range = q->head.range};
    struct err err = {};
    int r;

    TRY(query_types_all(q, &types, e));
    r = store_list_series(q->view, &ask, on_set, &l, &err);
    if (l.r < 0)
        return l.r;
    if (r < 0 && !l.full)
        return query_store_failed(q, r, &err, e);
    q->head.partial |= r == STORE_PARTIAL;
    if (l.skipping)
        return query_fail(e, -EINVAL, QUERY_BAD_PARAMETER, "after",
                          "after is no series of this answer: begin again without it");
    *ret = (struct query_sets){l.n, l.row, l.truncated};
    return 0;
}

/* ---- events ------------------------------------------------------------------------------------
 */

/* Where a page of things in order of time ends: several may have one instant. */
struct time_cursor {
    bool set;
    int64_t t;
    uint64_t same; /* so many of that instant were given */
};

struct events {
    struct query *q;
    struct query_err *e;
    const struct query_takes *takes;
    struct query_event_row *row;
    uint32_t n, room, limit;
    struct time_cursor after;
    uint64_t skipped; /* of the cursor's instant */
    bool full;        /* one more was there */
    int r;
};

static int cursor_parse(struct str s, struct time_cursor *ret, struct query_err *e)
{
    size_t dot = str_find(s, '.');

    if (s.n == 0)
        return 0;
    ret->set = true;
    if (dot == SIZE_MAX || !str_i64(str_to(s, dot), &ret->t) ||
        !str_u64(str_from(s, dot + 1), &ret->same))
        return query_fail(e, -EINVAL, QUERY_BAD_PARAMETER, "after",
                          "after is the next of a page before");
    return 0;
}

static int keep_event(struct events *l, const struct store_event *v)
{
    struct query_event_row *row = query_grow(l->q, l->row, l->n, &l->room, sizeof *row, l->e);

    if (!row)
        return -ENOMEM;
    l->row = row;
    row = &l->row[l->n++];
    row->t = v->t;
    row->owner = query_owner_of(v->target);
    TRY(query_copy(l->q, v->kind, &row->kind, l->e));
    TRY(query_copy(l->q, v->text, &row->text, l->e));
    return l->n % 1024 ? 0 : query_alive(l->q, l->e);
}

/* What happened to a machine as a whole belongs to every selection that names no process. */
static int event_taken(const struct events *l, const struct store_event *v)
{
    if (!v->target && !l->takes->by_process)
        return 1;
    return query_takes(l->takes, NULL, v->target, 0, l->e);
}

static bool on_event(void *ctx, const struct store_event *v)
{
    struct events *l = ctx;
    int taken = event_taken(l, v);

    l->r = taken < 0 ? taken : 0;
    if (taken <= 0)
        return taken == 0;
    if (l->after.set && v->t.v < l->after.t)
        return true;
    if (l->after.set && v->t.v == l->after.t && l->skipped < l->after.same) {
        l->skipped++;
        return true;
    }
    if (l->n == l->limit) {
        l->full = true;
        return false;
    }
    l->r = keep_event(l, v);
    return l->r == 0;
}

/* next of a page that is not the last. */
static int cursor_make(const struct events *l, struct str *ret, struct query_err *e)
{
    int64_t t = l->row[l->n - 1].t.v;
    uint64_t same = 0;
    char text[48];

    while (same < l->n && l->row[l->n - 1 - same].t.v == t)
        same++;
    if (l->after.set && same == l->n && t == l->after.t)
        same += l->after.same;
    (void)snprintf(text, sizeof text, "%" PRId64 ".%" PRIu64, t, same);
    return query_copy(l->q, str_c(text), ret, e);
}

int query_events(struct query *q, uint32_t limit, struct str after, struct query_events *ret,
                 struct query_err *e)
{
    struct query_takes takes;
    struct events l = {.q = q, .e = e, .takes = &takes, .limit = limit};
    struct store_ask ask = {.range = q->head.range};
    struct err err = {};
    int r;

    assert(limit > 0);
    TRY(cursor_parse(after, &l.after, e));
    TRY(query_takes_init(q, &takes, e));
    r = store_events(q->view, &ask, on_event, &l, &err);
    if (l.r < 0)
        return l.r;
    if (r < 0 && !l.full)
        return query_store_failed(q, r, &err, e);
    q->head.partial |= r == STORE_PARTIAL;
    *ret = (struct query_events){.n = l.n, .row = l.row};
    return l.full ? cursor_make(&l, &ret->next, e) : 0;
}
