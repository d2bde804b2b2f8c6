// SPDX-License-Identifier: Apache-2.0
#include <string.h>

#include "base/hash.h"
#include "storage/dict/names_private.h"

#define NONE UINT32_MAX

bool names_init(struct names *n, uint64_t seed)
{
    struct pool *p = &n->pool;

    *n = (struct names){};
    pool_init(p);
    return texts_init(&n->text, p, seed) &&
           table_init(&n->labels, p, sizeof(struct names_labels)) &&
           table_init(&n->svc, p, sizeof(struct names_svc)) &&
           table_init(&n->ptype, p, sizeof(struct names_ptype)) &&
           table_init(&n->series, p, sizeof(struct names_series));
}

void names_deinit(struct names *n)
{
    texts_deinit(&n->text);
    table_deinit(&n->labels, &n->pool);
    table_deinit(&n->svc, &n->pool);
    table_deinit(&n->ptype, &n->pool);
    table_deinit(&n->series, &n->pool);
    pool_deinit(&n->pool);
}

struct names_snap names_snap(const struct names *n)
{
    return (struct names_snap){
        .labels = n->labels.v.n, .svc = n->svc.v.n, .ptype = n->ptype.v.n, .series = n->series.v.n};
}

static uint64_t hash_of(const struct names *n, const void *p, size_t size)
{
    return hash_seed(p, size, n->text.seed);
}

/* ---- label sets ---------------------------------------------------------------------------- */

struct pairs {
    uint32_t n;
    const uint32_t *pair;
};

static bool eq_labels(const void *entry, const void *key)
{
    const struct names_labels *a = entry;
    const struct pairs *b = key;

    return a->n == b->n && memcmp(a->pair, b->pair, 8 * (size_t)b->n) == 0;
}

/* By the bytes of the names; stable, so that of two with one name the later stays behind. */
static uint32_t sort_pairs(const struct names *x, uint32_t n, uint32_t *pair)
{
    size_t kept = 0;

    for (size_t i = 1; i < n; i++) {
        const uint32_t name = pair[2 * i], value = pair[2 * i + 1];
        size_t k = i;

        while (k > 0 && str_cmp(names_str(x, pair[2 * k - 2]), names_str(x, name)) > 0) {
            pair[2 * k] = pair[2 * k - 2];
            pair[2 * k + 1] = pair[2 * k - 1];
            k--;
        }
        pair[2 * k] = name;
        pair[2 * k + 1] = value;
    }
    for (size_t i = 0; i < n; i++) {
        if (i + 1 < n && pair[2 * i] == pair[2 * i + 2])
            continue;
        if (pair[2 * i + 1] == 0) /* an empty value is the same as no label */
            continue;
        pair[2 * kept] = pair[2 * i];
        pair[2 * kept + 1] = pair[2 * i + 1];
        kept++;
    }
    return (uint32_t)kept;
}

uint32_t names_label_set(struct names *x, uint32_t n, uint32_t *pair)
{
    struct pairs key;
    struct names_labels *l;
    struct store_label *v;
    uint32_t *own;
    uint64_t h;
    uint32_t i;

    n = sort_pairs(x, n, pair);
    if (n == 0)
        return 0;
    key = (struct pairs){n, pair};
    h = hash_of(x, pair, 8 * (size_t)n);
    i = table_find(&x->labels, h, &key, eq_labels);
    if (i)
        return i;
    own = pool_fixed(&x->pool, 8 * (size_t)n);
    v = pool_fixed(&x->pool, n * sizeof *v);
    if (!own || !v)
        return NONE;
    i = table_add(&x->labels, &x->pool, h);
    if (!i)
        return NONE;
    memcpy(own, pair, 8 * (size_t)n);
    for (size_t k = 0; k < n; k++)
        v[k] = (struct store_label){names_str(x, pair[2 * k]), names_str(x, pair[2 * k + 1])};
    l = TABLE(&x->labels, struct names_labels, i);
    l->n = n;
    l->pair = own;
    l->v = v;
    return i;
}

bool names_labels_within(const struct names_labels *a, const struct names_labels *b)
{
    size_t k = 0;

    for (size_t i = 0; i < a->n; i++) {
        while (k < b->n && b->pair[2 * k] != a->pair[2 * i])
            k++;
        if (k == b->n || b->pair[2 * k + 1] != a->pair[2 * i + 1])
            return false;
    }
    return true;
}

/* ---- services and types -------------------------------------------------------------------- */

static bool eq_svc(const void *entry, const void *key)
{
    return ((const struct names_svc *)entry)->name == *(const uint32_t *)key;
}

static uint32_t find_service(const struct names *n, uint32_t name)
{
    return table_find(&n->svc, hash_of(n, &name, sizeof name), &name, eq_svc);
}

static uint32_t service_of(struct names *n, uint32_t name)
{
    uint32_t i = find_service(n, name);

    if (i)
        return i;
    i = table_add(&n->svc, &n->pool, hash_of(n, &name, sizeof name));
    if (!i)
        return NONE;
    TABLE(&n->svc, struct names_svc, i)->name = name;
    return i;
}

uint32_t names_service(struct names *n, struct str name)
{
    uint32_t text = text_id(&n->text, name);

    return text == NONE ? NONE : service_of(n, text);
}

static bool eq_ptype(const void *entry, const void *key)
{
    const struct names_ptype *a = entry, *b = key;

    return a->name == b->name && a->unit == b->unit && a->kind == b->kind;
}

ptype_id names_type(struct names *n, struct str name, struct str unit, enum ptype_kind kind)
{
    struct names_ptype key = {.name = text_id(&n->text, name),
                              .unit = text_id(&n->text, unit),
                              .kind = kind},
                       *e;
    uint32_t field[3] = {key.name, key.unit, key.kind}, i;
    uint64_t hash = hash_of(n, field, sizeof field);

    if (key.name == NONE || key.unit == NONE)
        return NONE;
    i = table_find(&n->ptype, hash, &key, eq_ptype);
    if (i)
        return TABLE(&n->ptype, struct names_ptype, i)->id;
    i = table_add(&n->ptype, &n->pool, hash);
    if (!i)
        return NONE;
    e = TABLE(&n->ptype, struct names_ptype, i);
    key.id = PTYPE_IMPORTED_FIRST + i - 1;
    *e = key;
    return key.id;
}

bool names_type_info(const struct names *n, uint32_t n_ptype, ptype_id id, struct store_type *ret)
{
    const struct ptype *b = ptype_builtin(id);
    const struct names_ptype *e;

    if (b) {
        *ret = (struct store_type){
            .id = id, .name = str_c(b->name), .unit = str_c(b->unit), .kind = b->kind};
        return true;
    }
    if (id < PTYPE_IMPORTED_FIRST || id - PTYPE_IMPORTED_FIRST + 1 >= n_ptype)
        return false;
    e = TABLE(&n->ptype, struct names_ptype, id - PTYPE_IMPORTED_FIRST + 1);
    *ret = (struct store_type){
        .id = id, .name = names_str(n, e->name), .unit = names_str(n, e->unit), .kind = e->kind};
    return true;
}

/* ---- series -------------------------------------------------------------------------------- */

static bool eq_series(const void *entry, const void *key)
{
    const struct names_series *a = entry, *b = key;

    return a->type == b->type && a->labels == b->labels;
}

static uint32_t label_value(const struct names *n, uint32_t set, struct str name)
{
    const struct names_labels *l = names_labels(n, set);

    for (uint32_t i = 0; i < l->n; i++) {
        if (str_eq(l->v[i].name, name))
            return l->pair[2 * i + 1];
    }
    return 0;
}

/* The label set of what is folded: {service, __overflow__="true"}. */
static uint32_t overflow_labels(struct names *n, uint32_t service)
{
    uint32_t pair[4] = {text_id(&n->text, STR("service")), service,
                        text_id(&n->text, STR("__overflow__")), text_id(&n->text, STR("true"))};

    if (pair[0] == NONE || pair[2] == NONE || pair[3] == NONE)
        return NONE;
    return names_label_set(n, 2, pair);
}

static uint32_t add_series(struct names *n, struct names_series *key)
{
    uint32_t field[2] = {key->type, key->labels};
    uint64_t hash = hash_of(n, field, sizeof field);
    uint32_t i = table_find(&n->series, hash, key, eq_series);
    struct names_series *e;
    struct names_svc *svc;

    if (i)
        return i;
    i = table_add(&n->series, &n->pool, hash);
    if (!i)
        return NONE;
    e = TABLE(&n->series, struct names_series, i);
    svc = TABLE(&n->svc, struct names_svc, key->svc);
    *e = *key;
    e->before = atomic_load_explicit(&svc->last, memory_order_relaxed);
    svc->n_series++;
    atomic_store_explicit(&svc->last, i, memory_order_release);
    n->n_folded_series += key->overflow;
    return i;
}

uint32_t names_last_series(const struct names *n, uint32_t svc, uint32_t n_series)
{
    uint32_t i =
        atomic_load_explicit(&TABLE(&n->svc, struct names_svc, svc)->last, memory_order_acquire);

    while (i >= n_series && i > 0)
        i = names_series(n, i)->before;
    return i;
}

/* Folded series are few (one per type and service), and not counted against the limits. */
static bool is_full(const struct names *n, uint32_t svc, const struct batch_limits *limits)
{
    return n->series.v.n - 1 - n->n_folded_series >= limits->series ||
           (svc && TABLE(&n->svc, struct names_svc, svc)->n_series >= limits->series_per_service);
}

uint32_t names_series_of(struct names *n, ptype_id type, uint32_t labels,
                         const struct batch_limits *limits)
{
    struct names_series key = {.type = type, .labels = labels};
    uint32_t field[2] = {type, labels}, service, i;

    i = table_find(&n->series, hash_of(n, field, sizeof field), &key, eq_series);
    if (i)
        return i;
    service = label_value(n, labels, STR("service"));
    key.svc = find_service(n, service);
    if (is_full(n, key.svc, limits)) {
        if (!key.svc) {
            service = text_id(&n->text, STR("__overflow__"));
            if (service == NONE)
                return NONE;
        }
        key.overflow = true;
        key.labels = overflow_labels(n, service);
        if (key.labels == NONE)
            return NONE;
    }
    key.svc = service_of(n, service);
    return key.svc == NONE ? NONE : add_series(n, &key);
}

uint32_t names_add_series(struct names *n, ptype_id type, uint32_t svc, uint32_t labels)
{
    struct names_series key = {.type = type,
                               .svc = svc,
                               .labels = labels,
                               .overflow = label_value(n, labels, STR("__overflow__")) != 0};

    return add_series(n, &key);
}
