// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <stdlib.h>

#include "query/query_private.h"

/* What there is: types, labels, their values, targets, senders and the state of sources. */

/* Copies rows into an array in the arena that doubles. */
struct list {
    struct query *q;
    struct query_err *e;
    int r; /* why a callback ended the read */
    uint32_t n, room;
    size_t size;
    char *row;
    const void *ctx;
    uint32_t more; /* left out */
    bool full;     /* enough: the read was ended on purpose */
};

static void *list_add(struct list *l)
{
    char *row = query_grow(l->q, l->row, l->n, &l->room, l->size, l->e);

    if (!row) {
        l->r = -ENOMEM;
        return NULL;
    }
    l->row = row;
    return l->row + l->n++ * l->size;
}

static bool list_copy(struct list *l, struct str s, struct str *ret)
{
    l->r = query_copy(l->q, s, ret, l->e);
    return l->r == 0;
}

static int list_end(struct list *l, int r, const struct err *err)
{
    if (l->r < 0)
        return l->r;
    if (r < 0 && !l->full)
        return query_store_failed(l->q, r, err, l->e);
    return 0;
}

static struct store_ask ask_of(const struct query *q)
{
    return (struct store_ask){.sel = query_selector(q), .range = q->head.range};
}

/* ---- types -------------------------------------------------------------------------------------
 */

static bool on_type(void *ctx, const struct store_type *t)
{
    struct list *l = ctx;
    struct query_type_row *row = list_add(l);

    if (!row)
        return false;
    row->type = (struct query_type){.id = t->id, .kind = t->kind};
    row->builtin = ptype_builtin(t->id) != NULL;
    row->seen = t->seen;
    return list_copy(l, t->name, &row->type.name) && list_copy(l, t->unit, &row->type.unit);
}

struct scopes {
    uint64_t last;
    uint32_t n;
};

static bool on_scope(void *ctx, const struct store_cover *c)
{
    struct scopes *s = ctx;

    if (s->n == 0 || c->scope != s->last)
        s->n++;
    s->last = c->scope;
    return true;
}

int query_types(struct query *q, struct query_types *ret, struct query_err *e)
{
    struct list l = {.q = q, .e = e, .size = sizeof(struct query_type_row)};
    struct store_ask ask = ask_of(q);
    struct query_type_row *row;
    struct err err = {};

    TRY(list_end(&l, store_list_types(q->view, &ask, on_type, &l, &err), &err));
    row = (struct query_type_row *)(void *)l.row;
    for (uint32_t i = 0; i < l.n; i++) {
        struct scopes s = {};
        int r;

        ask.sel.type = row[i].type.id;
        r = store_cover(q->view, &ask, on_scope, &s, &err);
        if (r < 0)
            return query_store_failed(q, r, &err, e);
        row[i].sources = s.n;
    }
    *ret = (struct query_types){l.n, row};
    return 0;
}

int query_types_all(struct query *q, struct query_types *ret, struct query_err *e)
{
    struct list l = {.q = q, .e = e, .size = sizeof(struct query_type_row)};
    struct store_ask ask = {.range = q->head.range};
    struct err err = {};

    TRY(list_end(&l, store_list_types(q->view, &ask, on_type, &l, &err), &err));
    *ret = (struct query_types){l.n, (struct query_type_row *)(void *)l.row};
    return 0;
}

const struct query_type *query_type_of(const struct query_types *types, ptype_id id)
{
    for (uint32_t i = 0; i < types->n; i++) {
        if (types->row[i].type.id == id)
            return &types->row[i].type;
    }
    return NULL;
}

/* ---- labels ------------------------------------------------------------------------------------
 */

static bool on_name(void *ctx, const struct store_name *n)
{
    struct list *l = ctx;
    struct query_name_row *row = list_add(l);

    if (!row)
        return false;
    row->values = n->values;
    row->attribute = n->attribute;
    return list_copy(l, n->name, &row->name);
}

int query_names(struct query *q, struct query_names *ret, struct query_err *e)
{
    struct list l = {.q = q, .e = e, .size = sizeof(struct query_name_row)};
    struct store_ask ask = ask_of(q);
    struct err err = {};

    TRY(list_end(&l, store_list_names(q->view, &ask, on_name, &l, &err), &err));
    *ret = (struct query_names){l.n, (struct query_name_row *)(void *)l.row};
    return 0;
}

static bool on_value(void *ctx, struct str value)
{
    struct list *l = ctx;
    const struct query_values_ask *ask = l->ctx;
    struct str *row;

    if (!str_starts(value, ask->prefix)) {
        if (str_cmp(value, ask->prefix) < 0)
            return true;
        l->full = true; /* they rise: none behind this one begins so */
        return false;
    }
    if (l->n == ask->limit) {
        l->full = true;
        l->room = UINT32_MAX; /* one more was there */
        return false;
    }
    row = list_add(l);
    return row && list_copy(l, value, row);
}

int query_values(struct query *q, const struct query_values_ask *ask, struct query_values *ret,
                 struct query_err *e)
{
    struct list l = {.q = q, .e = e, .size = sizeof(struct str), .ctx = ask};
    struct store_ask sa = ask_of(q);
    struct err err = {};

    sa.name = ask->name;
    sa.after = ask->after;
    TRY(list_end(&l, store_list_values(q->view, &sa, on_value, &l, &err), &err));
    *ret = (struct query_values){l.n, (struct str *)(void *)l.row, l.room == UINT32_MAX};
    return 0;
}

/* ---- targets -----------------------------------------------------------------------------------
 */

struct targets_ask {
    uint32_t limit;
    uint64_t after;
    bool *skipping;
    bool *more;
    const struct query_types *types;
};

static bool target_types(struct list *l, const struct store_target *t, struct query_target_row *row)
{
    const struct targets_ask *ask = l->ctx;
    struct query_type *type = arena_calloc(&l->q->arena, t->n_type, sizeof *type);

    if (!type) {
        l->r = query_no_memory(l->q, l->e);
        return false;
    }
    row->type = type;
    for (uint32_t i = 0; i < t->n_type; i++) {
        const struct query_type *known = query_type_of(ask->types, t->type[i]);

        if (known)
            type[row->n_type++] = *known;
    }
    return true;
}

static bool on_target(void *ctx, const struct store_target *t)
{
    struct list *l = ctx;
    const struct targets_ask *ask = l->ctx;
    uint64_t id = target_id(&t->key);
    struct query_target_row *row;

    if (*ask->skipping) {
        *ask->skipping = id != ask->after;
        return true;
    }
    if (l->n == ask->limit) {
        *ask->more = l->full = true;
        return false;
    }
    row = list_add(l);
    if (!row)
        return false;
    row->id = id;
    row->key = t->key;
    row->flags = t->flags;
    row->seen = t->seen;
    return list_copy(l, t->exe, &row->exe) && list_copy(l, t->cmdline, &row->cmdline) &&
           list_copy(l, t->comm, &row->comm) && list_copy(l, t->cgroup, &row->cgroup) &&
           list_copy(l, t->container, &row->container) && target_types(l, t, row);
}

int query_targets(struct query *q, uint32_t limit, uint64_t after, struct query_targets *ret,
                  struct query_err *e)
{
    struct query_types types;
    bool skipping = after != 0, more = false;
    struct targets_ask ta = {limit, after, &skipping, &more, &types};
    struct list l = {.q = q, .e = e, .size = sizeof(struct query_target_row), .ctx = &ta};
    struct store_ask ask = ask_of(q);
    struct err err = {};

    TRY(query_types_all(q, &types, e));
    TRY(list_end(&l, store_list_targets(q->view, &ask, on_target, &l, &err), &err));
    *ret = (struct query_targets){l.n, (struct query_target_row *)(void *)l.row, more};
    return 0;
}

/* ---- status ------------------------------------------------------------------------------------
 */

#define SENDERS_MAX 1000
#define SOURCES_MAX 200

static bool on_sender(void *ctx, const struct store_sender *s)
{
    struct list *l = ctx;
    struct query_sender_row *row;

    if (l->n == SENDERS_MAX) {
        l->more++;
        return true;
    }
    row = list_add(l);
    if (!row)
        return false;
    memcpy(row->agent, s->agent, sizeof row->agent);
    memcpy(row->boot, s->boot, sizeof row->boot);
    row->seq = s->seq;
    row->last = s->last;
    return true;
}

struct states {
    struct list *l;
    struct query_type type;
    uint64_t scope;
    bool any;
    struct query_source_row *row; /* of the scope that is being read; NULL: no room */
    uint32_t more;
};

/* Records come by scope, then time: the last one of a scope is its state. */
static bool on_state(void *ctx, const struct store_cover *c)
{
    struct states *s = ctx;

    if (!s->any || s->scope != c->scope) {
        s->any = true;
        s->scope = c->scope;
        s->row = NULL;
        if (s->l->n == SOURCES_MAX) {
            s->more++;
            return true;
        }
        s->row = list_add(s->l);
        if (!s->row)
            return false;
        s->row->type = s->type;
        for (uint32_t i = 0; i < c->labels.n; i++) {
            if (str_eq(c->labels.v[i].name, STR("host")) &&
                !list_copy(s->l, c->labels.v[i].value, &s->row->host))
                return false;
        }
    }
    if (!s->row)
        return true;
    s->row->state = c->state;
    s->row->last = c->t.t1;
    if (str_eq(s->row->why, c->why))
        return true;
    return list_copy(s->l, c->why, &s->row->why);
}

static int source_cmp(const void *va, const void *vb)
{
    const struct query_source_row *a = va, *b = vb;

    if ((a->state != SOURCE_OK) != (b->state != SOURCE_OK))
        return a->state != SOURCE_OK ? -1 : 1;
    if (a->type.id != b->type.id)
        return a->type.id < b->type.id ? -1 : 1;
    return -real_ns_cmp(a->last, b->last);
}

/* Of every built-in type, since a refused source has no data; and of what else occurs. */
static int source_states(struct query *q, struct query_status *ret, struct query_err *e)
{
    struct list lt = {.q = q, .e = e, .size = sizeof(struct query_type_row)};
    struct list l = {.q = q, .e = e, .size = sizeof(struct query_source_row)};
    struct states s = {.l = &l};
    struct store_ask ask = ask_of(q);
    const struct query_type_row *row;
    struct err err = {};
    uint32_t n = PTYPE_BUILTIN_END;

    TRY(list_end(&lt, store_list_types(q->view, &ask, on_type, &lt, &err), &err));
    row = (const struct query_type_row *)(const void *)lt.row;
    for (uint32_t i = 0; i < n + lt.n; i++) {
        const struct ptype *p = i < n ? ptype_builtin(i) : NULL;

        if (i < n ? !p : row[i - n].builtin)
            continue;
        s.type = p ? (struct query_type){p->id, str_c(p->name), str_c(p->unit), p->kind}
                   : row[i - n].type;
        s.any = false;
        ask.sel.type = s.type.id;
        TRY(list_end(&l, store_cover(q->view, &ask, on_state, &s, &err), &err));
    }
    if (l.n > 1)
        qsort(l.row, l.n, l.size, source_cmp);
    ret->n_source = l.n;
    ret->source = (struct query_source_row *)(void *)l.row;
    ret->sources_more = s.more;
    return 0;
}

int query_status(struct query *q, struct query_status *ret, struct query_err *e)
{
    static const char *const states[] = {"ok", "ok", "tight", "full", "read_only"};
    struct query_status s = {};
    struct list l = {.q = q, .e = e, .size = sizeof(struct query_sender_row)};
    struct store_stats st = {};
    struct err err = {};

    store_stats(q->conf.store, &st);
    s.state = (unsigned)st.state < 5 ? states[st.state] : "ok";
    s.state_why = st.state_why;
    s.disk_free = st.disk_free;
    s.disk_used = st.disk_used;
    s.bytes_per_day = st.bytes_per_day;
    s.lsn = st.lsn;
    s.batches = st.batches;
    s.rows = st.rows;
    s.series = st.series;
    s.nodes = st.nodes;
    s.head_rows = st.head_rows;
    s.journal_bytes = st.journal_bytes;
    s.oldest = st.oldest;
    s.newest = st.newest;
    s.raw_from = st.raw_from;
    TRY(list_end(&l, store_list_senders(q->conf.store, on_sender, &l, &err), &err));
    s.n_sender = l.n;
    s.senders_more = l.more;
    s.sender = (struct query_sender_row *)(void *)l.row;
    TRY(source_states(q, &s, e));
    *ret = s;
    return 0;
}
