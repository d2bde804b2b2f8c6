// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <math.h>
#include <string.h>

#include "base/err.h"
#include "storage/head/apply_private.h"

#define NONE UINT32_MAX

static uint32_t *indices(struct apply *a, uint32_t n)
{
    uint32_t *v = arena_array(&a->h->scratch, uint32_t, n);

    if (v)
        memset(v, 0xff, n * sizeof *v);
    return v;
}

static bool start(struct apply *a)
{
    const struct batch *b = a->b;
    uint32_t most = 0;

    for (uint32_t i = 0; i < b->n_labels; i++)
        most = b->labels[i].n > most ? b->labels[i].n : most;
    arena_reset(&a->h->scratch);
    a->db = (struct dict_batch){.b = b,
                                .text = indices(a, b->n_str),
                                .frame = indices(a, b->n_frame),
                                .node = indices(a, b->n_node),
                                .trie = arena_array(&a->h->scratch, struct dict_trie *, b->n_node),
                                .depth = arena_array(&a->h->scratch, uint16_t, b->n_node)};
    a->name = indices(a, b->n_str);
    a->own = indices(a, b->n_str);
    a->target = indices(a, b->n_target);
    a->set = indices(a, b->n_labels);
    a->set_series = indices(a, b->n_labels);
    a->set_stamp = arena_array(&a->h->scratch, uint32_t, b->n_labels);
    a->no_service = arena_array(&a->h->scratch, bool, b->n_labels);
    /* of the batch, a stream, a row, and the service that may be missing */
    a->pair =
        arena_array(&a->h->scratch, uint32_t, 2 * ((size_t)b->label.n + 2 * (size_t)most + 1));
    return a->db.text && a->db.frame && a->db.node && a->db.trie && a->db.depth && a->name &&
           a->own && a->target && a->set && a->set_series && a->set_stamp && a->no_service &&
           a->pair;
}

uint32_t apply_text(struct apply *a, uint32_t s)
{
    if (a->own[s] == NONE)
        a->own[s] = text_id(&a->h->local.text, a->b->str[s]);
    return a->own[s];
}

uint32_t apply_name(struct apply *a, uint32_t s)
{
    if (a->name[s] == NONE)
        a->name[s] = text_id(&a->h->names->text, a->b->str[s]);
    return a->name[s];
}

uint32_t apply_target(struct apply *a, uint32_t target)
{
    if (target == 0)
        return 0;
    if (a->target[target] == NONE)
        a->target[target] = local_target_of(&a->h->local, &a->b->target[target].key);
    return a->target[target];
}

static bool add_pairs(struct apply *a, const struct batch_labels *l, uint32_t *n)
{
    for (uint32_t i = 0; i < 2 * l->n; i++) {
        uint32_t t = apply_name(a, l->pair[i]);

        if (t == NONE)
            return false;
        a->pair[(*n)++] = t;
    }
    return true;
}

static uint32_t merge(struct apply *a, uint32_t one, uint32_t two, bool *missing)
{
    struct names *x = a->h->names;
    uint32_t n = 0, service = text_id(&x->text, STR("service"));

    if (service == NONE || !add_pairs(a, &a->b->label, &n) ||
        !add_pairs(a, &a->b->labels[one], &n) || !add_pairs(a, &a->b->labels[two], &n))
        return NONE;
    if (missing) {
        uint32_t value = 0;

        for (uint32_t i = 0; i < n; i += 2)
            value = a->pair[i] == service ? a->pair[i + 1] : value;
        *missing = value == 0;
        if (*missing) {
            a->pair[n++] = service;
            a->pair[n++] = text_id(&x->text, STR("unknown"));
            if (a->pair[n - 1] == NONE)
                return NONE;
        }
    }
    return names_label_set(x, n / 2, a->pair);
}

uint32_t apply_labels(struct apply *a, uint32_t one, uint32_t two)
{
    return merge(a, one, two, NULL);
}

/* ---- streams ------------------------------------------------------------------------------- */

static ptype_id type_of(struct apply *a, const struct batch_stream *st)
{
    if (st->type != PTYPE_NONE)
        return st->type;
    return names_type(a->h->names, a->b->str[st->name], a->b->str[st->unit], st->kind);
}

/* The series of rows of stream s with these labels. */
static uint32_t series_of(struct apply *a, uint32_t s, ptype_id type, uint32_t labels)
{
    if (a->set_stamp[labels] == s + 1)
        return a->set_series[labels];
    a->set[labels] = merge(a, a->b->stream[s].labels, labels, &a->no_service[labels]);
    if (a->set[labels] == NONE)
        return NONE;
    a->set_series[labels] = names_series_of(a->h->names, type, a->set[labels], a->limits);
    a->set_stamp[labels] = s + 1;
    return a->set_series[labels];
}

static void count(_Atomic uint64_t *c)
{
    atomic_fetch_add_explicit(c, 1, memory_order_relaxed);
}

/* NULL: memory is short. */
static const struct apply_thread *thread_of(struct apply *a, uint32_t target, uint32_t tid,
                                            uint32_t name)
{
    struct apply_thread *t = &a->thread[(tid ^ name ^ target) % APPLY_THREADS];
    uint32_t own_target, own_name, thread;

    if (t->known && t->target == target && t->tid == tid && t->name == name)
        return t;
    own_target = apply_target(a, target);
    own_name = apply_text(a, name);
    if (own_target == NONE || own_name == NONE)
        return NULL;
    thread = local_thread_of(&a->h->local, own_target, tid, own_name);
    if (thread == NONE)
        return NULL;
    *t = (struct apply_thread){.known = true,
                               .target = target,
                               .tid = tid,
                               .name = name,
                               .thread = thread,
                               .overflow = thread == 0 && (own_target || tid || own_name)};
    return t;
}

/* Ids of the row's own; false: memory is short. */
static bool row_of(struct apply *a, uint32_t s, uint32_t k, ptype_id type, struct head_row *row)
{
    const struct batch_stream *st = &a->b->stream[s];
    const struct batch_rows *r = &st->rows;
    struct head *h = a->h;
    uint32_t labels = r->labels ? r->labels[k] : 0, tid = r->tid ? r->tid[k] : 0;
    uint32_t target = r->target ? r->target[k] : st->target, name = r->thread ? r->thread[k] : 0;
    uint32_t cpu = r->cpu ? r->cpu[k] : 0;
    const struct apply_thread *thread;

    row->series = series_of(a, s, type, labels);
    thread = row->series == NONE ? NULL : thread_of(a, target, tid, name);
    if (!thread)
        return false;
    row->thread = thread->thread;
    row->cpu = local_cpu_of(&h->local, cpu);
    if (thread->overflow || row->cpu != cpu)
        count(&h->stats->attr_overflow);
    return true;
}

static void lock_ids(struct epoch *e)
{
    int r = pthread_rwlock_wrlock(&e->ids);

    assert(r == 0);
    (void)r;
}

static void unlock_ids(struct epoch *e)
{
    int r = pthread_rwlock_unlock(&e->ids);

    assert(r == 0);
    (void)r;
}

/* The node of g in the trie: another service had it first, or it is there. */
static uint32_t node_of(struct apply *a, struct dict_trie *trie, uint32_t g, bool *folded)
{
    struct epoch *e = a->h->epoch;
    uint32_t node;

    if (dict_trie_find(&e->dict, trie, g, &node))
        return node;
    lock_ids(e);
    node = dict_trie_node(&e->dict, trie, g, folded);
    unlock_ids(e);
    return node;
}

static bool end_group(struct apply *a)
{
    return !a->group || head_add_rows(a->h, a->group, &a->rows);
}

/* Rows of this series are next: where they go. */
static bool begin_series(struct apply *a, ptype_id type, uint32_t series)
{
    const struct names_series *x = names_series(a->h->names, series);
    struct dict_trie *trie = epoch_trie(a->h->epoch, x->svc);
    struct head_group *group = trie ? head_group_of(a->h, type, trie) : NULL;

    if (!group || (group != a->group && !end_group(a)))
        return false;
    a->series = series;
    a->overflow = x->overflow;
    a->group = group;
    return true;
}

static bool add_row(struct apply *a, uint32_t s, uint32_t k, ptype_id type, uint32_t cover)
{
    const struct batch_stream *st = &a->b->stream[s];
    const struct batch_rows *r = &st->rows;
    struct head *h = a->h;
    const struct dict *d = &h->epoch->dict;
    struct head_row row = {.ms = ms_floor(r->t ? r->t[k] : st->covers.t0),
                           .cover = st->kind == KIND_LEVEL ? cover + 1 : 0,
                           .count = r->count ? r->count[k] : 1,
                           .var = r->var ? r->var[k] : (double)NAN};
    uint32_t g = a->db.node[r->node ? r->node[k] : 0];
    bool folded = g & DICT_FOLDED;

    row.value = r->value ? r->value[k] : (int64_t)row.count * st->period;
    if (!row_of(a, s, k, type, &row))
        return false;
    if ((!a->group || a->series != row.series) && !begin_series(a, type, row.series))
        return false;
    row.node = node_of(a, a->group->of, g & ~DICT_FOLDED, &folded);
    if (row.node == NONE || (a->rows.n == HEAD_BATCH && !end_group(a)))
        return false;
    head_batch_put(&a->rows, &row);
    if (folded)
        count(&h->stats->stack_folded);
    if (a->overflow)
        count(&h->stats->series_overflow);
    if (a->no_service[r->labels ? r->labels[k] : 0])
        count(&h->stats->service_missing);
    if (d->damaged && g == d->damaged)
        count(&h->stats->damaged_rows);
    return true;
}

static bool add_losses(struct apply *a, const struct batch_stream *st)
{
    for (uint32_t i = 0; i < st->n_lost; i++) {
        struct local_loss l = {apply_text(a, st->lost[i].why), st->lost[i].n, st->lost[i].weight};

        if (l.why == NONE || !local_add_loss(&a->h->local, &l))
            return false;
    }
    return true;
}

/* A stream without rows still speaks of its series: "0 s of 60 s" is an answer, and so is
 * "refused". */
static bool empty_series(struct apply *a, uint32_t s, ptype_id type, uint32_t *ret)
{
    const struct batch_stream *st = &a->b->stream[s];

    *ret = 0;
    if (st->rows.n > 0)
        return true;
    if (series_of(a, s, type, 0) == NONE)
        return false;
    *ret = a->set_series[0];
    return true;
}

static bool says_service(const struct apply *a, const struct batch_labels *l)
{
    for (size_t i = 0; i < l->n; i++) {
        if (str_eq(a->b->str[l->pair[2 * i]], STR("service")))
            return true;
    }
    return false;
}

static bool add_cover(struct apply *a, uint32_t s, ptype_id type, uint32_t *ret)
{
    const struct batch *b = a->b;
    const struct batch_stream *st = &b->stream[s];
    struct local *l = &a->h->local;
    uint32_t target = apply_target(a, st->target), labels = apply_labels(a, st->labels, 0);
    struct local_cover c = {
        .t = st->covers,
        .at = st->at,
        .width = st->width,
        .why = apply_text(a, st->state_why),
        .n_loss = st->n_lost,
        .loss = l->loss.n,
        .state = (uint8_t)st->state,
        .basis = (uint8_t)st->basis,
        .ended = st->target && (b->target[st->target].flags & TARGET_EXITED),
        .period = st->period,
        .jitter = st->jitter,
        .skew_ns = b->clock.sent.v ? b->received.v - b->clock.sent.v : 0,
        .expected = st->expected,
        .received = st->received,
    };

    if (target == NONE || labels == NONE || c.why == NONE || !add_losses(a, st))
        return false;
    if ((says_service(a, &b->label) || says_service(a, &b->labels[st->labels])) &&
        !empty_series(a, s, type, &c.series))
        return false;
    c.scope = local_scope_of(l, type, labels, target);
    if (c.scope == NONE || !local_add_cover(l, &c))
        return false;
    head_widen(a->h, c.t);
    *ret = l->cover.n - 1;
    return true;
}

static bool add_stream(struct apply *a, uint32_t s)
{
    const struct batch_stream *st = &a->b->stream[s];
    ptype_id type = type_of(a, st);
    uint32_t cover;

    if (type == NONE || !add_cover(a, s, type, &cover))
        return false;
    a->group = NULL;
    a->rows.period = st->period;
    for (uint32_t k = 0; k < st->rows.n; k++) {
        if (!add_row(a, s, k, type, cover))
            return false;
    }
    return end_group(a);
}

/* In which tries new stacks are used first: their nodes are made there. */
static bool find_tries(struct apply *a)
{
    const struct batch *b = a->b;

    if (b->n_node == b->n_known + 1)
        return true;
    for (uint32_t s = 0; s < b->n_stream; s++) {
        const struct batch_rows *r = &b->stream[s].rows;
        ptype_id type = type_of(a, &b->stream[s]);

        for (uint32_t k = 0; r->node && k < r->n; k++) {
            struct dict_trie **trie = &a->db.trie[r->node[k]];
            uint32_t series = *trie ? 0 : series_of(a, s, type, r->labels ? r->labels[k] : 0);

            if (series == NONE || type == PTYPE_NONE)
                return false;
            if (!*trie)
                *trie = epoch_trie(a->h->epoch, names_series(a->h->names, series)->svc);
            if (!*trie)
                return false;
        }
    }
    return true;
}

static bool add_nodes(struct apply *a)
{
    bool ok;
    struct epoch *e = a->h->epoch;
    uint64_t clashes = e->dict.clashes;

    if (!find_tries(a))
        return false;
    lock_ids(e);
    ok = dict_batch_nodes(&e->dict, e->before ? &e->before->dict : NULL, &a->db);
    unlock_ids(e);
    atomic_fetch_add_explicit(&a->h->stats->hash_clashes, e->dict.clashes - clashes,
                              memory_order_relaxed);
    return ok;
}

int head_apply(struct head *h, const struct batch *b, uint64_t lsn,
               const struct batch_limits *limits, struct err *err)
{
    struct apply a = {.h = h, .b = b, .limits = limits};
    bool ok = start(&a) && add_nodes(&a);

    for (uint32_t s = 0; ok && s < b->n_stream; s++)
        ok = add_stream(&a, s);
    if (!ok || !apply_beside(&a) || !head_publish(h, lsn))
        return err_set(err, -ENOMEM, "head: memory is short");
    return 0;
}

uint64_t head_estimate(const struct batch *b)
{
    uint64_t n = 1024 + (uint64_t)b->n_stream * 512 + (uint64_t)b->n_target * 256 +
                 (uint64_t)b->n_event * 64;

    for (uint32_t i = 0; i < b->n_str; i++)
        n += 64 + b->str[i].n;
    n += (uint64_t)(b->n_node - b->n_known) * 160 + (uint64_t)b->n_frame * 160 +
         (uint64_t)b->n_labels * 128;
    for (uint32_t i = 0; i < b->n_stream; i++)
        n += (uint64_t)b->stream[i].rows.n * 48 + (uint64_t)b->stream[i].n_lost * 24;
    for (uint32_t i = 0; i < b->n_metric; i++)
        n += (uint64_t)b->metric[i].n * 20 + 64;
    for (uint32_t i = 0; i < b->n_steps; i++)
        n += (uint64_t)b->steps[i].n * (96 + 12 * (uint64_t)b->steps[i].n_part);
    return n;
}
