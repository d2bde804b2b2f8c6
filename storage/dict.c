// SPDX-License-Identifier: Apache-2.0
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "storage/dict_private.h"

#define NONE UINT32_MAX

bool dict_init(struct dict *d, struct pool *p, uint64_t seed, uint32_t max_nodes)
{
    *d = (struct dict){.pool = p, .seed = seed, .max_nodes = max_nodes};
    vec_init(&d->node, sizeof(struct dict_node));
    map_init(&d->by_hash, 0);
    map_init(&d->by_pair, 0);
    map_init(&d->ambiguous, 0);
    return table_init(&d->str, p, sizeof(struct dict_str)) &&
           table_init(&d->labels, p, sizeof(struct dict_labels)) &&
           table_init(&d->frame, p, sizeof(struct dict_frame)) &&
           table_init(&d->func, p, sizeof(struct dict_func)) && vec_push(&d->node, p);
}

void dict_deinit(struct dict *d)
{
    if (!d->pool)
        return;
    table_deinit(&d->str, d->pool);
    table_deinit(&d->labels, d->pool);
    table_deinit(&d->frame, d->pool);
    table_deinit(&d->func, d->pool);
    vec_deinit(&d->node, d->pool);
    map_deinit(&d->by_hash);
    map_deinit(&d->by_pair);
    map_deinit(&d->ambiguous);
}

/* ---- texts and labels ---------------------------------------------------------------------- */

static bool eq_str(const void *entry, const void *key)
{
    const struct dict_str *a = entry;
    const struct str *s = key;

    return str_eq(a->s, *s);
}

uint32_t dict_text(struct dict *d, struct str s)
{
    uint64_t h;
    uint32_t i;
    char *copy;

    if (s.n == 0)
        return 0;
    h = hash_seed(s.p, s.n, d->seed);
    i = table_find(&d->str, h, &s, eq_str);
    if (i)
        return i;
    copy = pool_fixed(d->pool, s.n + 1);
    if (!copy)
        return NONE;
    memcpy(copy, s.p, s.n);
    i = table_add(&d->str, d->pool, h);
    if (!i)
        return NONE;
    TABLE(&d->str, struct dict_str, i)->s = (struct str){copy, s.n};
    return i;
}

struct pairs {
    uint32_t n;
    const uint32_t *pair;
};

static bool eq_labels(const void *entry, const void *key)
{
    const struct dict_labels *a = entry;
    const struct pairs *b = key;

    return a->n == b->n && memcmp(a->pair, b->pair, 8 * (size_t)b->n) == 0;
}

/* By the bytes of the names; stable, so that of two with one name the later stays behind. */
static uint32_t sort_pairs(const struct dict *d, uint32_t n, uint32_t *pair)
{
    size_t kept = 0;

    for (size_t i = 1; i < n; i++) {
        const uint32_t name = pair[2 * i], value = pair[2 * i + 1];
        size_t k = i;

        while (k > 0 && str_cmp(dict_str(d, pair[2 * k - 2]), dict_str(d, name)) > 0) {
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

uint32_t dict_label_set(struct dict *d, uint32_t n, uint32_t *pair)
{
    struct pairs key;
    struct dict_labels *l;
    struct store_label *v;
    uint32_t *own;
    uint64_t h;
    uint32_t i;

    n = sort_pairs(d, n, pair);
    if (n == 0)
        return 0;
    key = (struct pairs){n, pair};
    h = hash_seed(pair, 8 * (size_t)n, d->seed);
    i = table_find(&d->labels, h, &key, eq_labels);
    if (i)
        return i;
    own = pool_fixed(d->pool, 8 * (size_t)n);
    v = pool_fixed(d->pool, n * sizeof *v);
    if (!own || !v)
        return NONE;
    i = table_add(&d->labels, d->pool, h);
    if (!i)
        return NONE;
    memcpy(own, pair, 8 * (size_t)n);
    for (size_t k = 0; k < n; k++)
        v[k] = (struct store_label){dict_str(d, pair[2 * k]), dict_str(d, pair[2 * k + 1])};
    l = TABLE(&d->labels, struct dict_labels, i);
    l->n = n;
    l->pair = own;
    l->v = v;
    return i;
}

bool dict_labels_within(const struct dict_labels *a, const struct dict_labels *b)
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

uint32_t dict_batch_text(struct dict *d, struct dict_batch *db, uint32_t s)
{
    if (db->text[s] == NONE)
        db->text[s] = dict_text(d, db->b->str[s]);
    return db->text[s];
}

/* ---- frames and functions ------------------------------------------------------------------ */

static bool eq_func(const void *entry, const void *key)
{
    const struct dict_func *a = entry, *b = key;

    return a->scope == b->scope && a->name == b->name;
}

static uint32_t func_of(struct dict *d, const struct dict_frame *f)
{
    struct str scope = func_scope(f->kind, dict_str(d, f->bin), dict_str(d, f->file));
    struct dict_func key = {.kind = f->kind,
                            .scope = dict_text(d, scope),
                            .name = f->name,
                            .file = f->file,
                            .bin = f->bin};
    uint64_t h = hash_mix(hash_mix(key.scope ^ d->seed) ^ key.name);
    struct dict_func *e;
    uint32_t i;

    if (key.scope == NONE)
        return NONE;
    i = table_find(&d->func, h, &key, eq_func);
    if (i)
        return i;
    i = table_add(&d->func, d->pool, h);
    if (!i)
        return NONE;
    e = TABLE(&d->func, struct dict_func, i);
    key.link = e->link;
    key.key = func_key(dict_str(d, key.scope), dict_str(d, key.name));
    *e = key;
    return i;
}

static bool eq_frame(const void *entry, const void *key)
{
    const struct dict_frame *a = entry, *b = key;

    return a->kind == b->kind && a->flags == b->flags && a->id_kind == b->id_kind &&
           a->damaged == b->damaged && a->name == b->name && a->file == b->file &&
           a->start_line == b->start_line && a->line == b->line && a->bin == b->bin &&
           a->bin_id == b->bin_id && a->addr == b->addr;
}

static uint32_t add_frame(struct dict *d, struct dict_frame *key)
{
    const uint64_t field[] = {key->kind, key->flags,  key->id_kind,    key->damaged,
                              key->name, key->file,   key->start_line, key->line,
                              key->bin,  key->bin_id, key->addr};
    uint64_t h = hash_seed(field, sizeof field, d->seed);
    struct dict_frame *e;
    uint32_t i = table_find(&d->frame, h, key, eq_frame);

    if (i)
        return i;
    key->func = func_of(d, key);
    if (key->func == NONE)
        return NONE;
    i = table_add(&d->frame, d->pool, h);
    if (!i)
        return NONE;
    e = TABLE(&d->frame, struct dict_frame, i);
    key->link = e->link;
    *e = *key;
    return i;
}

static uint32_t batch_frame(struct dict *d, struct dict_batch *db, uint32_t frame)
{
    const struct batch *b = db->b;
    const struct batch_frame *f = &b->frame[frame];
    const struct batch_fn *fn = &b->fn[f->fn];
    const struct batch_bin *bin = &b->bin[f->bin];
    struct dict_frame key = {.kind = (uint8_t)f->kind,
                             .flags = (uint8_t)f->flags,
                             .id_kind = (uint8_t)bin->id_kind,
                             .start_line = fn->line,
                             .line = f->line,
                             .addr = f->addr};

    if (db->frame[frame] != NONE)
        return db->frame[frame];
    key.name = dict_batch_text(d, db, fn->name);
    key.file = dict_batch_text(d, db, fn->file);
    key.bin = dict_batch_text(d, db, bin->path);
    key.bin_id = dict_text(d, bin->id);
    if (key.name == NONE || key.file == NONE || key.bin == NONE || key.bin_id == NONE)
        return NONE;
    return db->frame[frame] = add_frame(d, &key);
}

/* ---- nodes --------------------------------------------------------------------------------- */

static uint32_t add_node(struct dict *d, uint32_t parent, uint32_t frame, uint64_t hash)
{
    uint32_t g = d->node.n;
    struct dict_node *n = vec_push(&d->node, d->pool);

    if (!n)
        return NONE;
    *n = (struct dict_node){.parent = parent,
                            .frame = frame,
                            .depth = VEC(&d->node, struct dict_node, parent)->depth + 1,
                            .hash = hash};
    return g;
}

static uint32_t define(struct dict *d, uint32_t parent, uint32_t frame, uint64_t hash)
{
    uint64_t pair = (uint64_t)parent << 32 | frame, first, other;
    const struct dict_node *n;
    uint32_t g;

    if (map_get(&d->by_hash, hash, &first)) {
        n = VEC(&d->node, struct dict_node, (uint32_t)first);
        if (n->parent == parent && n->frame == frame)
            return (uint32_t)first;
        if (map_get(&d->by_pair, pair, &other))
            return (uint32_t)other;
        g = add_node(d, parent, frame, hash);
        if (g == NONE || !pool_map_put(d->pool, &d->by_pair, pair, g) ||
            !pool_map_put(d->pool, &d->ambiguous, hash, 1))
            return NONE;
        d->clashes++;
        return g;
    }
    if (VEC(&d->node, struct dict_node, parent)->depth >= DICT_DEPTH ||
        d->node.n >= DICT_FOLDED - 1)
        return parent | DICT_FOLDED;
    g = add_node(d, parent, frame, hash);
    if (g == NONE || !pool_map_put(d->pool, &d->by_hash, hash, g))
        return NONE;
    return g;
}

/* The stack of weight whose definition was lost with a damaged row. */
static uint32_t damaged_node(struct dict *d)
{
    struct dict_frame key = {.kind = FRAME_OTHER, .damaged = true};
    uint32_t frame;

    if (d->damaged)
        return d->damaged;
    key.name = dict_text(d, STR("[no stack: damaged]"));
    if (key.name == NONE)
        return NONE;
    frame = add_frame(d, &key);
    if (frame == NONE)
        return NONE;
    d->damaged = add_node(d, 0, frame, 0); /* hash 0 is nobody's: never found by it */
    return d->damaged;
}

bool dict_batch_nodes(struct dict *d, struct dict_batch *db)
{
    const struct batch *b = db->b;

    db->node[0] = 0;
    for (uint32_t i = 1; i <= b->n_known; i++) {
        uint64_t g;

        if (map_get(&d->by_hash, b->node[i].hash, &g)) {
            db->node[i] = (uint32_t)g;
            continue;
        }
        db->damaged++;
        db->node[i] = damaged_node(d);
        if (db->node[i] == NONE)
            return false;
    }
    for (uint32_t i = b->n_known + 1; i < b->n_node; i++) {
        const struct batch_node *n = &b->node[i];
        uint32_t frame = batch_frame(d, db, n->frame), parent = db->node[n->parent];

        if (frame == NONE)
            return false;
        /* what hangs under a lost stack is as unknown as the stack */
        if ((d->damaged && parent == d->damaged) || parent & DICT_FOLDED)
            db->node[i] = parent;
        else
            db->node[i] = define(d, parent, frame, n->hash);
        if (db->node[i] == NONE)
            return false;
    }
    return true;
}

bool dict_knows(const struct dict *d, uint64_t hash)
{
    uint64_t v;

    return map_get(&d->by_hash, hash, &v) && !map_get(&d->ambiguous, hash, &v);
}
