// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <math.h>
#include <string.h>

#include "base/err.h"
#include "base/hash.h"
#include "storage/head_private.h"

#define NONE UINT32_MAX

static bool init_tables(struct head *h)
{
    struct pool *p = &h->pool;

    vec_init(&h->info, sizeof(struct head_info));
    vec_init(&h->cover, sizeof(struct head_cover));
    vec_init(&h->loss, sizeof(struct head_loss));
    vec_init(&h->metric, sizeof(struct head_metric));
    vec_init(&h->step, sizeof(struct head_step));
    vec_init(&h->event, sizeof(struct head_event));
    vec_init(&h->cpu, sizeof(uint32_t));
    vec_init(&h->trie, sizeof(struct dict_trie *));
    vec_init(&h->group, sizeof(struct head_group *));
    vec_init(&h->touched, sizeof(uint32_t));
    map_init(&h->group_of, 0);
    map_init(&h->cpu_of, 0);
    return table_init(&h->svc, p, sizeof(struct head_svc)) &&
           table_init(&h->ptype, p, sizeof(struct head_ptype)) &&
           table_init(&h->series, p, sizeof(struct head_series)) &&
           table_init(&h->thread, p, sizeof(struct head_thread)) &&
           table_init(&h->target, p, sizeof(struct head_target)) &&
           table_init(&h->scope, p, sizeof(struct head_scope)) &&
           table_init(&h->mseries, p, sizeof(struct head_mseries)) && vec_push(&h->cpu, p);
}

int head_init(struct head *h, const struct head_conf *conf, struct err *err)
{
    int r;

    *h = (struct head){.oldest_ms = INT64_MAX, .newest_ms = INT64_MIN};
    pool_init(&h->pool);
    arena_init(&h->scratch, (size_t)1 << 30);
    r = pthread_rwlock_init(&h->ids, NULL);
    assert(r == 0);
    if (!init_tables(h) || !dict_init(&h->dict, &h->pool, conf->seed, conf->trie_nodes)) {
        head_deinit(h);
        return err_set(err, -ENOMEM, "head: memory is short");
    }
    (void)head_publish(h, 0); /* nothing is touched yet: cannot fail */
    return 0;
}

static void free_chunk(struct head *h, struct head_chunk *c)
{
    size_t n = c->room;

    pool_free(&h->pool, c->t, 4 * n);
    pool_free(&h->pool, c->series, 4 * n);
    pool_free(&h->pool, c->thread, 4 * n);
    pool_free(&h->pool, c->node, 4 * n);
    pool_free(&h->pool, atomic_load(&c->value), 8 * n);
    pool_free(&h->pool, atomic_load(&c->count), 8 * n);
    pool_free(&h->pool, atomic_load(&c->cpu), 4 * n);
    pool_free(&h->pool, atomic_load(&c->cover), 4 * n);
    pool_free(&h->pool, atomic_load(&c->var), 8 * n);
    pool_free(&h->pool, c, sizeof *c);
}

static void free_group(struct head *h, struct head_group *g)
{
    for (uint32_t i = 0; i < g->chunk.n; i++)
        free_chunk(h, *VEC(&g->chunk, struct head_chunk *, i));
    vec_deinit(&g->chunk, &h->pool);
    vec_deinit(&g->run, &h->pool);
    pool_free(&h->pool, g, sizeof *g);
}

void head_deinit(struct head *h)
{
    enum {
        N_TABLE = 7,
        N_VEC = 10
    };
    struct table *table[N_TABLE] = {&h->svc,    &h->ptype, &h->series, &h->thread,
                                    &h->target, &h->scope, &h->mseries};
    struct vec *vec[N_VEC] = {&h->info,  &h->cover, &h->loss,    &h->metric, &h->step,
                              &h->event, &h->cpu,   &h->touched, &h->trie,   &h->group};

    for (uint32_t i = 0; i < h->group.n; i++)
        free_group(h, *VEC(&h->group, struct head_group *, i));
    for (uint32_t i = 0; i < h->trie.n; i++)
        dict_trie_free(&h->dict, head_trie(h, i));
    for (size_t i = 0; i < N_TABLE; i++)
        table_deinit(table[i], &h->pool);
    for (size_t i = 0; i < N_VEC; i++)
        vec_deinit(vec[i], &h->pool);
    map_deinit(&h->group_of);
    map_deinit(&h->cpu_of);
    dict_deinit(&h->dict);
    arena_deinit(&h->scratch);
    pool_deinit(&h->pool);
    (void)pthread_rwlock_destroy(&h->ids);
}

/* ---- ids ----------------------------------------------------------------------------------- */

static uint64_t hash_of(const struct head *h, const void *p, size_t n)
{
    return hash_seed(p, n, h->dict.seed);
}

static bool eq_svc(const void *entry, const void *key)
{
    return ((const struct head_svc *)entry)->name == *(const uint32_t *)key;
}

uint32_t head_service(struct head *h, uint32_t name)
{
    uint64_t hash = hash_of(h, &name, sizeof name);
    uint32_t i = table_find(&h->svc, hash, &name, eq_svc), at = h->trie.n;
    struct dict_trie *t, **slot;
    struct head_svc *s;

    if (i)
        return i;
    t = dict_trie_new(&h->dict, h->svc.v.n);
    slot = t ? vec_push(&h->trie, &h->pool) : NULL;
    if (!slot) {
        dict_trie_free(&h->dict, t);
        return NONE;
    }
    *slot = t;
    i = table_add(&h->svc, &h->pool, hash);
    if (!i)
        return NONE;
    s = TABLE(&h->svc, struct head_svc, i);
    s->name = name;
    s->trie = at;
    return i;
}

static bool eq_ptype(const void *entry, const void *key)
{
    const struct head_ptype *a = entry, *b = key;

    return a->name == b->name && a->unit == b->unit && a->kind == b->kind;
}

uint32_t head_type(struct head *h, struct str name, struct str unit, enum ptype_kind kind)
{
    struct head_ptype key = {.name = dict_text(&h->dict, name),
                             .unit = dict_text(&h->dict, unit),
                             .kind = kind},
                      *e;
    uint32_t field[3] = {key.name, key.unit, key.kind}, i;
    uint64_t hash = hash_of(h, field, sizeof field);

    if (key.name == NONE || key.unit == NONE)
        return NONE;
    i = table_find(&h->ptype, hash, &key, eq_ptype);
    if (i)
        return TABLE(&h->ptype, struct head_ptype, i)->id;
    i = table_add(&h->ptype, &h->pool, hash);
    if (!i)
        return NONE;
    e = TABLE(&h->ptype, struct head_ptype, i);
    key.link = e->link;
    key.id = PTYPE_IMPORTED_FIRST + i - 1;
    *e = key;
    return key.id;
}

bool head_type_info(const struct head *h, uint32_t n_ptype, ptype_id id, struct store_type *ret)
{
    const struct ptype *b = ptype_builtin(id);
    const struct head_ptype *e;

    if (b) {
        *ret = (struct store_type){
            .id = id, .name = str_c(b->name), .unit = str_c(b->unit), .kind = b->kind};
        return true;
    }
    if (id < PTYPE_IMPORTED_FIRST || id - PTYPE_IMPORTED_FIRST + 1 >= n_ptype)
        return false;
    e = TABLE(&h->ptype, struct head_ptype, id - PTYPE_IMPORTED_FIRST + 1);
    *ret = (struct store_type){
        .id = id, .name = head_str(h, e->name), .unit = head_str(h, e->unit), .kind = e->kind};
    return true;
}

static bool eq_series(const void *entry, const void *key)
{
    const struct head_series *a = entry, *b = key;

    return a->type == b->type && a->labels == b->labels;
}

static uint32_t label_value(const struct head *h, uint32_t set, struct str name)
{
    const struct dict_labels *l = head_labels(h, set);

    for (uint32_t i = 0; i < l->n; i++) {
        if (str_eq(l->v[i].name, name))
            return l->pair[2 * i + 1];
    }
    return 0;
}

/* The label set of what is folded: {service, __overflow__="true"}. */
static uint32_t overflow_labels(struct head *h, uint32_t service)
{
    uint32_t pair[4] = {dict_text(&h->dict, STR("service")), service,
                        dict_text(&h->dict, STR("__overflow__")), dict_text(&h->dict, STR("true"))};

    if (pair[0] == NONE || pair[2] == NONE || pair[3] == NONE)
        return NONE;
    return dict_label_set(&h->dict, 2, pair);
}

static uint32_t add_series(struct head *h, struct head_series *key, uint64_t hash)
{
    struct head_series *e;
    uint32_t i = table_add(&h->series, &h->pool, hash);

    if (!i)
        return NONE;
    e = TABLE(&h->series, struct head_series, i);
    key->link = e->link;
    *e = *key;
    TABLE(&h->svc, struct head_svc, key->svc)->n_series++;
    return i;
}

/* labels holds a service. */
uint32_t head_series_of(struct head *h, ptype_id type, uint32_t labels,
                        const struct batch_limits *limits)
{
    struct head_series key = {.type = type, .labels = labels};
    uint32_t field[2] = {type, labels}, service, i;
    uint64_t hash = hash_of(h, field, sizeof field);

    i = table_find(&h->series, hash, &key, eq_series);
    if (i)
        return i;
    service = label_value(h, labels, STR("service"));
    key.svc = table_find(&h->svc, hash_of(h, &service, sizeof service), &service, eq_svc);
    /* folded series are few (one per type and service), and not counted against the limits */
    if (h->series.v.n - 1 - h->n_folded_series >= limits->series ||
        (key.svc &&
         TABLE(&h->svc, struct head_svc, key.svc)->n_series >= limits->series_per_service)) {
        if (!key.svc) {
            service = dict_text(&h->dict, STR("__overflow__"));
            if (service == NONE)
                return NONE;
        }
        key.overflow = true;
        key.labels = field[1] = overflow_labels(h, service);
        if (key.labels == NONE)
            return NONE;
        hash = hash_of(h, field, sizeof field);
        i = table_find(&h->series, hash, &key, eq_series);
        if (i)
            return i;
        h->n_folded_series++;
    }
    key.svc = head_service(h, service);
    if (key.svc == NONE)
        return NONE;
    return add_series(h, &key, hash);
}

static bool eq_thread(const void *entry, const void *key)
{
    const struct head_thread *a = entry, *b = key;

    return a->target == b->target && a->tid == b->tid && a->name == b->name;
}

uint32_t head_thread_of(struct head *h, uint32_t target, uint32_t tid, uint32_t name)
{
    struct head_thread key = {.target = target, .tid = tid, .name = name}, *e;
    uint32_t field[3] = {target, tid, name}, i;
    uint64_t hash;

    if (!target && !tid && !name)
        return 0;
    hash = hash_of(h, field, sizeof field);
    i = table_find(&h->thread, hash, &key, eq_thread);
    if (i)
        return i;
    if (h->thread.v.n >= HEAD_THREADS)
        return 0;
    i = table_add(&h->thread, &h->pool, hash);
    if (!i)
        return NONE;
    e = TABLE(&h->thread, struct head_thread, i);
    key.link = e->link;
    *e = key;
    return i;
}

static bool key_eq(const struct target_key *a, const struct target_key *b)
{
    return memcmp(a->host, b->host, sizeof a->host) == 0 && a->pidns == b->pidns &&
           a->pid == b->pid && a->start.v == b->start.v;
}

static bool eq_target(const void *entry, const void *key)
{
    return key_eq(&((const struct head_target *)entry)->key, key);
}

uint32_t head_target_of(struct head *h, const struct target_key *key)
{
    uint64_t id = target_id(key), hash = hash_mix(id ^ h->dict.seed);
    uint32_t i = table_find(&h->target, hash, key, eq_target);
    struct head_target *e;

    if (i)
        return i;
    i = table_add(&h->target, &h->pool, hash);
    if (!i)
        return NONE;
    e = TABLE(&h->target, struct head_target, i);
    e->key = *key;
    e->id = id;
    return i;
}

static bool eq_scope(const void *entry, const void *key)
{
    const struct head_scope *a = entry, *b = key;

    return a->type == b->type && a->labels == b->labels && a->target == b->target;
}

uint32_t head_scope_of(struct head *h, ptype_id type, uint32_t labels, uint32_t target)
{
    struct head_scope key = {.type = type, .labels = labels, .target = target}, *e;
    uint32_t field[3] = {type, labels, target}, i;
    uint64_t hash = hash_of(h, field, sizeof field);

    i = table_find(&h->scope, hash, &key, eq_scope);
    if (i)
        return i;
    i = table_add(&h->scope, &h->pool, hash);
    if (!i)
        return NONE;
    e = TABLE(&h->scope, struct head_scope, i);
    e->type = type;
    e->labels = labels;
    e->target = target;
    return i;
}

uint32_t head_cpu_of(struct head *h, uint32_t cpu)
{
    uint64_t found;
    uint32_t i = h->cpu.n, *e;

    if (cpu == 0)
        return 0;
    if (map_get(&h->cpu_of, cpu, &found))
        return (uint32_t)found;
    if (i > HEAD_CPUS) {
        atomic_fetch_add_explicit(&h->attr_overflow, 1, memory_order_relaxed);
        return 0;
    }
    e = vec_push(&h->cpu, &h->pool);
    if (!e)
        return NONE;
    *e = cpu;
    return pool_map_put(&h->pool, &h->cpu_of, cpu, i) ? i : NONE;
}

/* ---- rows ---------------------------------------------------------------------------------- */

struct head_group *head_group_of(struct head *h, ptype_id type, uint32_t trie)
{
    uint64_t key = (uint64_t)trie << 32 | type, found;
    struct head_group *g, **slot;

    if (map_get(&h->group_of, key, &found))
        return *VEC(&h->group, struct head_group *, (uint32_t)found);
    g = pool_block(&h->pool, sizeof *g);
    if (!g)
        return NULL;
    g->type = type;
    g->trie = trie;
    vec_init(&g->chunk, sizeof(struct head_chunk *));
    vec_init(&g->run, sizeof(struct head_run));
    slot = vec_push(&h->group, &h->pool);
    if (!slot) {
        free_group(h, g);
        return NULL;
    }
    *slot = g;
    return pool_map_put(&h->pool, &h->group_of, key, h->group.n - 1) ? g : NULL;
}

static struct head_chunk *add_chunk(struct head *h, struct head_group *g, const struct head_row *r)
{
    uint32_t room = HEAD_CHUNK_MIN;
    struct head_chunk *c = pool_block(&h->pool, sizeof *c), **slot;

    if (!c)
        return NULL;
    while (room < HEAD_CHUNK_MAX && room < g->rows)
        room *= 2;
    c->room = room;
    c->first = g->rows;
    c->period = r->period;
    c->base_ms = r->ms - INT64_C(0x80000000);
    atomic_store_explicit(&c->min_ms, INT64_MAX, memory_order_relaxed);
    atomic_store_explicit(&c->max_ms, INT64_MIN, memory_order_relaxed);
    c->t = pool_block(&h->pool, 4 * (size_t)room);
    c->series = pool_block(&h->pool, 4 * (size_t)room);
    c->thread = pool_block(&h->pool, 4 * (size_t)room);
    c->node = pool_block(&h->pool, 4 * (size_t)room);
    slot = c->t && c->series && c->thread && c->node ? vec_push(&g->chunk, &h->pool) : NULL;
    if (!slot) {
        free_chunk(h, c);
        return NULL;
    }
    *slot = c;
    return c;
}

/* Columns that a row needs and the chunk has not: filled, then shown. */
static bool need_u32(struct head *h, struct head_chunk *c, _Atomic(uint32_t *) *column, bool need)
{
    uint32_t *v = atomic_load_explicit(column, memory_order_relaxed);

    if (v || !need)
        return true;
    v = pool_block(&h->pool, 4 * (size_t)c->room);
    atomic_store_explicit(column, v, memory_order_release);
    return v != NULL;
}

static bool need_count(struct head *h, struct head_chunk *c)
{
    uint64_t *v = pool_block(&h->pool, 8 * (size_t)c->room);

    for (uint32_t i = 0; v && i < c->n; i++)
        v[i] = 1;
    atomic_store_explicit(&c->count, v, memory_order_release);
    return v != NULL;
}

static bool need_value(struct head *h, struct head_chunk *c)
{
    const uint64_t *count = atomic_load_explicit(&c->count, memory_order_relaxed);
    int64_t *v = pool_block(&h->pool, 8 * (size_t)c->room);

    for (uint32_t i = 0; v && i < c->n; i++)
        v[i] = (int64_t)(count ? count[i] : 1) * c->period;
    atomic_store_explicit(&c->value, v, memory_order_release);
    return v != NULL;
}

static bool need_var(struct head *h, struct head_chunk *c)
{
    double *v = pool_block(&h->pool, 8 * (size_t)c->room);

    for (uint32_t i = 0; v && i < c->room; i++)
        v[i] = (double)NAN;
    atomic_store_explicit(&c->var, v, memory_order_release);
    return v != NULL;
}

static bool is_product(const struct head_row *r, int64_t period)
{
    int64_t v;

    return !__builtin_mul_overflow(r->count, period, &v) && v == r->value;
}

static bool add_columns(struct head *h, struct head_chunk *c, const struct head_row *r)
{
    uint64_t *count = atomic_load_explicit(&c->count, memory_order_relaxed);
    int64_t *value = atomic_load_explicit(&c->value, memory_order_relaxed);
    double *var = atomic_load_explicit(&c->var, memory_order_relaxed);

    if (!value && !is_product(r, c->period)) {
        if (!need_value(h, c))
            return false;
        value = atomic_load_explicit(&c->value, memory_order_relaxed);
    }
    if (!count && r->count != 1) {
        if (!need_count(h, c))
            return false;
        count = atomic_load_explicit(&c->count, memory_order_relaxed);
    }
    if (!var && !isnan(r->var)) {
        if (!need_var(h, c))
            return false;
        var = atomic_load_explicit(&c->var, memory_order_relaxed);
    }
    if (!need_u32(h, c, &c->cpu, r->cpu != 0) || !need_u32(h, c, &c->cover, r->cover != 0))
        return false;
    if (value)
        value[c->n] = r->value;
    if (count)
        count[c->n] = r->count;
    if (var)
        var[c->n] = r->var;
    if (atomic_load_explicit(&c->cpu, memory_order_relaxed))
        atomic_load_explicit(&c->cpu, memory_order_relaxed)[c->n] = r->cpu;
    if (atomic_load_explicit(&c->cover, memory_order_relaxed))
        atomic_load_explicit(&c->cover, memory_order_relaxed)[c->n] = r->cover;
    return true;
}

bool head_add_row(struct head *h, struct head_group *g, const struct head_row *r)
{
    struct head_chunk *c = g->chunk.n ? *VEC(&g->chunk, struct head_chunk *, g->chunk.n - 1) : NULL;

    if (!g->dirty) {
        uint32_t *e = vec_push(&h->touched, &h->pool);
        uint64_t found;

        if (!e || !map_get(&h->group_of, (uint64_t)g->trie << 32 | g->type, &found))
            return false;
        *e = (uint32_t)found;
        g->dirty = true;
    }
    if (!c || c->n == c->room || r->ms < c->base_ms || r->ms - c->base_ms > UINT32_MAX) {
        if (c && c->n < c->room)
            atomic_store_explicit(&c->end, c->n, memory_order_relaxed);
        c = add_chunk(h, g, r);
        if (!c)
            return false;
    }
    if (!add_columns(h, c, r))
        return false;
    c->t[c->n] = (uint32_t)(r->ms - c->base_ms);
    c->series[c->n] = r->series;
    c->thread[c->n] = r->thread;
    c->node[c->n] = r->node;
    c->n++;
    if (r->ms < atomic_load_explicit(&c->min_ms, memory_order_relaxed))
        atomic_store_explicit(&c->min_ms, r->ms, memory_order_relaxed);
    if (r->ms > atomic_load_explicit(&c->max_ms, memory_order_relaxed))
        atomic_store_explicit(&c->max_ms, r->ms, memory_order_relaxed);
    if (r->ms < h->oldest_ms)
        h->oldest_ms = r->ms;
    if (r->ms > h->newest_ms)
        h->newest_ms = r->ms;
    g->rows++;
    h->rows++;
    return true;
}

uint64_t head_group_rows(const struct head_group *g, uint64_t lsn)
{
    uint32_t lo = 0, hi = atomic_load_explicit(&g->n_run, memory_order_acquire);

    while (lo < hi) { /* the first run beyond lsn */
        uint32_t mid = lo + (hi - lo) / 2;

        if (VEC(&g->run, struct head_run, mid)->lsn <= lsn)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo ? VEC(&g->run, struct head_run, lo - 1)->rows : 0;
}

/* ---- publishing ---------------------------------------------------------------------------- */

static bool end_runs(struct head *h, uint64_t lsn)
{
    for (uint32_t i = 0; i < h->touched.n; i++) {
        uint32_t at = *VEC(&h->touched, uint32_t, i);
        struct head_group *g = *VEC(&h->group, struct head_group *, at);
        struct head_run *run = vec_push(&g->run, &h->pool);

        if (!run)
            return false;
        *run = (struct head_run){lsn, g->rows};
    }
    return true;
}

bool head_publish(struct head *h, uint64_t lsn)
{
    struct head_snap s = {.lsn = lsn,
                          .rows = h->rows,
                          .svc = h->svc.v.n,
                          .ptype = h->ptype.v.n,
                          .series = h->series.v.n,
                          .thread = h->thread.v.n,
                          .target = h->target.v.n,
                          .info = h->info.n,
                          .scope = h->scope.v.n,
                          .cover = h->cover.n,
                          .loss = h->loss.n,
                          .mseries = h->mseries.v.n,
                          .metric = h->metric.n,
                          .step = h->step.n,
                          .event = h->event.n,
                          .cpu = h->cpu.n,
                          .group = h->group.n,
                          .labels = h->dict.labels.v.n,
                          .trie = h->trie.n,
                          .oldest_ms = h->oldest_ms,
                          .newest_ms = h->newest_ms};

    if (!end_runs(h, lsn))
        return false;
    for (uint32_t i = 0; i < h->touched.n; i++) {
        uint32_t at = *VEC(&h->touched, uint32_t, i);
        struct head_group *g = *VEC(&h->group, struct head_group *, at);

        dict_trie_publish(head_trie(h, g->trie));
        atomic_store_explicit(&g->n_run, g->run.n, memory_order_release);
        g->dirty = false;
    }
    h->touched.n = 0;
    atomic_store_explicit(&h->dict.n_frame, h->dict.frame.v.n, memory_order_release);
    atomic_store_explicit(&h->dict.n_func, h->dict.func.v.n, memory_order_release);
    mutex_lock(&h->pool.mu);
    h->snap = s;
    mutex_unlock(&h->pool.mu);
    return true;
}

bool head_knows(struct head *h, const struct batch *b)
{
    bool all = true;
    int r;

    if (b->n_known == 0)
        return true;
    r = pthread_rwlock_rdlock(&h->ids);
    assert(r == 0);
    for (uint32_t i = 1; all && i <= b->n_known; i++)
        all = dict_knows(&h->dict, b->node[i].hash);
    r = pthread_rwlock_unlock(&h->ids);
    assert(r == 0);
    return all;
}
