// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <stdlib.h>

#include "base/hash.h"
#include "query/query_private.h"

/*
 * Who looked when, and what was lost: the records of coverage as runs. Records are read type by
 * type and put into groups (a scope, a host, a process). Where several records of a group speak of
 * one instant, the best state counts: one source that looked is enough.
 */

const char *query_run_word(enum query_run_state state)
{
    static const char *const words[] = {[QUERY_RUN_OK] = "ok",
                                        [QUERY_RUN_LOST] = "lost",
                                        [QUERY_RUN_PAUSED] = "paused",
                                        [QUERY_RUN_REFUSED] = "refused",
                                        [QUERY_RUN_ABSENT] = "absent"};

    return words[state];
}

struct cover_list {
    struct query *q;
    enum query_cover_by by;
    uint32_t limit;
    struct query_source *v;
    uint32_t n, room, more;
};

static enum query_run_state run_state(const struct query_cover *c)
{
    switch (c->state) {
    case SOURCE_OK:
        return c->covers ? QUERY_RUN_OK : QUERY_RUN_LOST;
    case SOURCE_PAUSED:
        return QUERY_RUN_PAUSED;
    case SOURCE_REFUSED:
        return QUERY_RUN_REFUSED;
    case SOURCE_ABSENT:
    default:
        return QUERY_RUN_ABSENT;
    }
}

/* ---- runs --------------------------------------------------------------------------------------
 */

/* One way to be: a state and its reason. */
struct mood {
    enum query_run_state state;
    struct str why;
    uint32_t n; /* records that say so at this instant */
};

struct edge {
    int64_t t;
    uint32_t mood;
    int32_t step; /* 1 begins, -1 ends */
};

struct sweep {
    struct query *q;
    struct query_err *e;
    struct mood *mood;
    struct edge *edge;
    uint32_t n_mood, room_mood, n_edge;
    struct query_run *run;
    uint32_t n_run, room_run, more;
    int64_t covered_ns;
};

static int mood_of(struct sweep *s, const struct query_cover *c, uint32_t *ret)
{
    enum query_run_state state = run_state(c);
    struct str why = state == QUERY_RUN_OK ? (struct str){NULL, 0} : c->why;
    struct mood *m;

    for (uint32_t i = 0; i < s->n_mood; i++) {
        if (s->mood[i].state == state && str_eq(s->mood[i].why, why)) {
            *ret = i;
            return 0;
        }
    }
    m = query_grow(s->q, s->mood, s->n_mood, &s->room_mood, sizeof *m, s->e);
    if (!m)
        return -ENOMEM;
    s->mood = m;
    s->mood[s->n_mood] = (struct mood){.state = state, .why = why};
    *ret = s->n_mood++;
    return 0;
}

static int edge_cmp(const void *va, const void *vb)
{
    const struct edge *a = va, *b = vb;

    return (a->t > b->t) - (a->t < b->t);
}

/* The best of those that someone is in; NULL: nobody speaks. */
static const struct mood *best(const struct sweep *s)
{
    const struct mood *b = NULL;

    for (uint32_t i = 0; i < s->n_mood; i++) {
        const struct mood *m = &s->mood[i];

        if (m->n &&
            (!b || m->state < b->state || (m->state == b->state && str_cmp(m->why, b->why) < 0)))
            b = m;
    }
    return b;
}

static int close_run(struct sweep *s, const struct mood *m, int64_t t0, int64_t t1)
{
    struct query_run *r = s->n_run ? &s->run[s->n_run - 1] : NULL;

    if (!m || t0 >= t1)
        return 0;
    if (m->state == QUERY_RUN_OK)
        s->covered_ns += t1 - t0;
    if (r && !s->more && r->t.t1.v == t0 && r->state == m->state && str_eq(r->why, m->why)) {
        r->t.t1.v = t1;
        return 0;
    }
    if (s->n_run == QUERY_RUNS_MAX) {
        s->more++;
        return 0;
    }
    r = query_grow(s->q, s->run, s->n_run, &s->room_run, sizeof *r, s->e);
    if (!r)
        return -ENOMEM;
    s->run = r;
    s->run[s->n_run++] = (struct query_run){{{t0}, {t1}}, m->state, m->why};
    return 0;
}

static int make_runs(struct query *q, struct query_cover *const *c, uint32_t n,
                     struct query_source *ret, struct query_err *e)
{
    struct sweep s = {.q = q, .e = e};
    const struct mood *now = NULL;
    int64_t since = INT64_MIN;

    QUERY_NEW(q, &s.edge, 2 * (size_t)n, e);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t m;

        if (c[i]->t.t0.v >= c[i]->t.t1.v)
            continue;
        TRY(mood_of(&s, c[i], &m));
        s.edge[s.n_edge++] = (struct edge){c[i]->t.t0.v, m, 1};
        s.edge[s.n_edge++] = (struct edge){c[i]->t.t1.v, m, -1};
    }
    if (s.n_edge > 1)
        qsort(s.edge, s.n_edge, sizeof *s.edge, edge_cmp);
    for (uint32_t i = 0, k; i < s.n_edge; i = k) {
        const struct mood *then;

        for (k = i; k < s.n_edge && s.edge[k].t == s.edge[i].t; k++)
            s.mood[s.edge[k].mood].n += (uint32_t)s.edge[k].step; /* wraps, and back */
        then = best(&s);
        if (then == now)
            continue;
        TRY(close_run(&s, now, since, s.edge[i].t));
        now = then;
        since = s.edge[i].t;
        if (i % 1024 == 0)
            TRY(query_alive(q, e));
    }
    ret->covered_ns = s.covered_ns;
    ret->n_run = s.n_run;
    ret->runs_more = s.more;
    ret->run = s.run;
    return 0;
}

/* ---- loss --------------------------------------------------------------------------------------
 */

static int loss_run_cmp(const void *va, const void *vb)
{
    const struct query_loss_run *a = va, *b = vb;

    if (a->t.t0.v != b->t.t0.v)
        return real_ns_cmp(a->t.t0, b->t.t0);
    if (a->t.t1.v != b->t.t1.v)
        return real_ns_cmp(a->t.t1, b->t.t1);
    return str_cmp(a->loss.why, b->loss.why);
}

static int make_losses(struct query *q, struct query_cover *const *c, uint32_t n,
                       struct query_source *ret, struct query_err *e)
{
    struct query_loss_run *v;
    uint32_t room = 0, k = 0;

    TRY(query_losses(q, c, n, &ret->n_lost, &ret->lost, e));
    for (uint32_t i = 0; i < n; i++)
        room += c[i]->n_loss;
    QUERY_NEW(q, &v, room, e);
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t l = 0; l < c[i]->n_loss; l++)
            v[k++] = (struct query_loss_run){c[i]->t, c[i]->loss[l]};
    }
    if (k > 1)
        qsort(v, k, sizeof *v, loss_run_cmp);
    ret->n_loss_run = k < QUERY_RUNS_MAX ? k : QUERY_RUNS_MAX;
    ret->loss_runs_more = k - ret->n_loss_run;
    ret->loss_run = v;
    return 0;
}

/* ---- groups ------------------------------------------------------------------------------------
 */

static struct str label_of(const struct query_cover *c, struct str name)
{
    for (uint32_t i = 0; i < c->labels.n; i++) {
        if (str_eq(c->labels.v[i].name, name))
            return c->labels.v[i].value;
    }
    return (struct str){NULL, 0};
}

static struct str host_of(const struct query_cover *c)
{
    return label_of(c, STR("host"));
}

/*
 * How far a sender's clock is off, the worst of them. Receipt less sending is that and the time on
 * the way: packing, a busy machine, the network, which only ever add. So of one sender the least is
 * nearest, and a batch that came late does not accuse a clock. 0 to the ns: the sender did not say
 * when it sent, which tells nothing; nor does a capture, whose file may come a year after.
 */
int query_clock_skew(struct query *q, const struct query_evidence *ev, struct query_quality *ret,
                     struct query_err *e)
{
    struct map least; /* hash of the host's name -> ns, as its bits */
    uint32_t pos = 0;
    uint64_t key, v;
    bool full = false;

    map_init(&least, 0);
    for (uint32_t i = 0; i < ev->n && !full; i++) {
        const struct query_cover *c = &ev->cover[i];
        uint64_t *slot;

        if (!c->skew_ns || label_of(c, STR("capture")).n)
            continue;
        enum map_result r = map_at(&least, hash_str(host_of(c)), &slot);

        full = r == MAP_FULL;
        if (r == MAP_ADDED || (r == MAP_FOUND && c->skew_ns < (int64_t)*slot))
            *slot = (uint64_t)c->skew_ns;
    }
    while (map_next(&least, &pos, &key, &v)) {
        if (!ret->skew_known || llabs((int64_t)v) > llabs(ret->skew_ns))
            ret->skew_ns = (int64_t)v;
        ret->skew_known = true;
    }
    map_deinit(&least);
    return full ? query_no_memory(q, e) : 0;
}

static uint64_t process_of(const struct query_cover *c)
{
    return c->has_target ? target_id(&c->target) : 0;
}

/* Within a group in the order of the array that they lie in: by scope, then time. */
static int place_cmp(const struct query_cover *a, const struct query_cover *b)
{
    return (a > b) - (a < b);
}

static int host_cmp(const void *va, const void *vb)
{
    const struct query_cover *a = *(struct query_cover *const *)va;
    const struct query_cover *b = *(struct query_cover *const *)vb;
    int r = str_cmp(host_of(a), host_of(b));

    return r ? r : place_cmp(a, b);
}

static int process_cmp(const void *va, const void *vb)
{
    const struct query_cover *a = *(struct query_cover *const *)va;
    const struct query_cover *b = *(struct query_cover *const *)vb;
    uint64_t x = process_of(a), y = process_of(b);

    return x != y ? (x > y) - (x < y) : place_cmp(a, b);
}

static bool same_group(const struct cover_list *l, const struct query_cover *a,
                       const struct query_cover *b)
{
    switch (l->by) {
    case QUERY_COVER_BY_HOST:
        return str_eq(host_of(a), host_of(b));
    case QUERY_COVER_BY_TARGET:
        return process_of(a) == process_of(b);
    case QUERY_COVER_BY_SOURCE:
    default:
        return a->scope == b->scope;
    }
}

static int add_source(struct cover_list *l, struct query_cover *const *c, uint32_t n,
                      struct query_err *e)
{
    const struct query_cover *first = c[0];
    struct query_source *s;

    if (l->n == l->limit) {
        l->more++;
        return 0;
    }
    s = query_grow(l->q, l->v, l->n, &l->room, sizeof *s, e);
    if (!s)
        return -ENOMEM;
    l->v = s;
    s = &l->v[l->n++];
    *s = (struct query_source){.type = l->q->head.type, .ended = true};
    if (l->by != QUERY_COVER_BY_TARGET)
        s->host = host_of(first);
    if (l->by != QUERY_COVER_BY_HOST)
        s->owner = query_owner_of(first->has_target ? &first->target : NULL);
    if (l->by == QUERY_COVER_BY_SOURCE)
        TRY(query_labels_copy(l->q, &first->labels, &s->labels, e));
    for (uint32_t i = 0, k; i < n; i += k) {
        bool ended = false;

        for (k = 0; i + k < n && c[i + k]->scope == c[i]->scope; k++)
            ended |= c[i + k]->ended;
        s->ended &= ended;
        s->scopes++;
        query_source_time(c + i, k, l->q->head.range, &s->asked_ns, &s->source_ns);
    }
    TRY(make_runs(l->q, c, n, s, e));
    return make_losses(l->q, c, n, s, e);
}

/* All sources of the question's type. */
static int add_type(struct cover_list *l, struct query_err *e)
{
    struct query_evidence ev = {};
    struct query_cover **all;

    TRY(query_evidence(l->q, &ev, e));
    l->q->head.partial |= ev.partial;
    TRY(query_records(l->q, &ev, &all, e));
    if (l->by != QUERY_COVER_BY_SOURCE && ev.n > 1)
        qsort(all, ev.n, sizeof(void *), l->by == QUERY_COVER_BY_HOST ? host_cmp : process_cmp);
    for (uint32_t i = 0, n; i < ev.n; i += n) {
        for (n = 1; i + n < ev.n && same_group(l, all[i], all[i + n]); n++)
            ;
        TRY(query_alive(l->q, e));
        TRY(add_source(l, all + i, n, e));
    }
    return 0;
}

int query_coverage(struct query *q, enum query_cover_by by, uint32_t limit,
                   struct query_cover_answer *ret, struct query_err *e)
{
    struct cover_list l = {.q = q, .by = by, .limit = limit};
    struct query_type asked = q->head.type;
    struct query_types types;

    if (asked.id != PTYPE_NONE) {
        TRY(add_type(&l, e));
        *ret = (struct query_cover_answer){l.n, l.more, l.v};
        return 0;
    }
    TRY(query_types_all(q, &types, e));
    /* built-in types always: a source that was refused has no data */
    for (uint32_t i = 0; i < PTYPE_BUILTIN_END + types.n; i++) {
        const struct ptype *p = i < PTYPE_BUILTIN_END ? ptype_builtin(i) : NULL;

        if (i < PTYPE_BUILTIN_END ? !p : types.row[i - PTYPE_BUILTIN_END].builtin)
            continue;
        q->head.type = p ? (struct query_type){p->id, str_c(p->name), str_c(p->unit), p->kind}
                         : types.row[i - PTYPE_BUILTIN_END].type;
        TRY(add_type(&l, e));
    }
    q->head.type = asked;
    *ret = (struct query_cover_answer){l.n, l.more, l.v};
    return 0;
}
