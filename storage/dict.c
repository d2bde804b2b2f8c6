// SPDX-License-Identifier: Apache-2.0
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "storage/dict_private.h"

#define NONE UINT32_MAX

bool dict_init(struct dict *d, struct pool *p, uint64_t seed, uint32_t max_nodes)
{
    *d = (struct dict){.pool = p, .seed = seed, .max_nodes = max_nodes};
    paged_init(&d->node, sizeof(struct dict_node));
    paged_init(&d->home, sizeof(struct dict_home));
    dindex_init(&d->by_hash);
    map_init(&d->by_pair, 0);
    map_init(&d->ambiguous, 0);
    return texts_init(&d->text, p, seed) && table_init(&d->frame, p, sizeof(struct dict_frame)) &&
           table_init(&d->func, p, sizeof(struct dict_func)) && paged_push(&d->node, p) &&
           paged_push(&d->home, p);
}

void dict_deinit(struct dict *d)
{
    if (!d->pool)
        return;
    texts_deinit(&d->text);
    table_deinit(&d->frame, d->pool);
    table_deinit(&d->func, d->pool);
    paged_deinit(&d->node, d->pool);
    paged_deinit(&d->home, d->pool);
    dindex_deinit(&d->by_hash);
    map_deinit(&d->by_pair);
    map_deinit(&d->ambiguous);
}

/* ---- frames and functions ------------------------------------------------------------------ */

uint32_t dict_batch_text(struct dict *d, struct dict_batch *db, uint32_t s)
{
    if (db->text[s] == NONE)
        db->text[s] = text_id(&d->text, db->b->str[s]);
    return db->text[s];
}

static bool eq_func(const void *entry, const void *key)
{
    const struct dict_func *a = entry, *b = key;

    return a->scope == b->scope && a->name == b->name;
}

static uint32_t func_of(struct dict *d, const struct dict_frame *f)
{
    struct str scope = func_scope(f->kind, dict_str(d, f->bin), dict_str(d, f->file));
    struct dict_func key = {.kind = f->kind,
                            .scope = text_id(&d->text, scope),
                            .name = f->name,
                            .file = f->file,
                            .bin = f->bin};
    uint64_t h = hash_mix(hash_mix(key.scope ^ d->seed) ^ key.name);
    struct dict_func *e;
    uint32_t i;

    if (key.scope == NONE)
        return NONE;
    i = table_find(&d->func, h, &key, eq_func);
    if (i) {
        e = TABLE(&d->func, struct dict_func, i);
        if (f->file && atomic_load_explicit(&e->file, memory_order_relaxed) == 0)
            atomic_store_explicit(&e->file, f->file, memory_order_release);
        return i;
    }
    i = table_add(&d->func, d->pool, h);
    if (!i)
        return NONE;
    e = TABLE(&d->func, struct dict_func, i);
    key.key = func_key(dict_str(d, key.scope), dict_str(d, key.name));
    key.mark = func_mark((enum frame_kind)key.kind, dict_str(d, key.scope), dict_str(d, key.name));
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

uint32_t dict_frame_of(struct dict *d, struct dict_frame *key)
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
    key.bin_id = text_id(&d->text, bin->id);
    if (key.name == NONE || key.file == NONE || key.bin == NONE || key.bin_id == NONE)
        return NONE;
    return db->frame[frame] = dict_frame_of(d, &key);
}

/* ---- nodes --------------------------------------------------------------------------------- */

static uint32_t add_node(struct dict *d, uint32_t parent, uint32_t frame, uint64_t hash)
{
    uint32_t g = d->node.n;
    struct dict_node *n = paged_push(&d->node, d->pool);
    struct dict_home *home = n ? paged_push(&d->home, d->pool) : NULL;

    if (!home) {
        d->node.n = g;
        return NONE;
    }
    *n = (struct dict_node){.parent = parent, .frame = frame, .hash = hash};
    *home = (struct dict_home){.depth = (uint16_t)(dict_home(d, parent)->depth + 1)};
    return g;
}

/* The first g of a hash; 0: none, which is nobody's. */
static uint32_t find_hash(const struct dict *d, uint64_t hash)
{
    const uint32_t h = (uint32_t)hash_mix(hash);

    for (uint32_t at = dindex_place(&d->by_hash, h), g; dindex_next(&d->by_hash, h, &at, &g);) {
        if (dict_node(d, g)->hash == hash)
            return g;
    }
    return 0;
}

static uint32_t hash_of(const void *ctx, uint32_t g)
{
    return (uint32_t)hash_mix(dict_node(ctx, g)->hash);
}

static uint32_t define(struct dict *d, uint32_t parent, uint32_t frame, uint64_t hash)
{
    uint64_t pair = (uint64_t)parent << 32 | frame, other;
    const struct dict_node *n;
    uint32_t first = find_hash(d, hash), g;

    if (first) {
        n = dict_node(d, first);
        if (n->parent == parent && n->frame == frame)
            return first;
        if (map_get(&d->by_pair, pair, &other))
            return (uint32_t)other;
        g = add_node(d, parent, frame, hash);
        if (g == NONE || !pool_map_put(d->pool, &d->by_pair, pair, g) ||
            !pool_map_put(d->pool, &d->ambiguous, hash, 1))
            return NONE;
        d->clashes++;
        return g;
    }
    if (dict_home(d, parent)->depth >= DICT_DEPTH || d->node.n >= DICT_FOLDED - 1)
        return parent | DICT_FOLDED;
    g = add_node(d, parent, frame, hash);
    if (g == NONE ||
        !pool_dindex_add(d->pool, &d->by_hash, (uint32_t)hash_mix(hash), g, hash_of, d))
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
    key.name = text_id(&d->text, STR("[no stack: damaged]"));
    if (key.name == NONE)
        return NONE;
    frame = dict_frame_of(d, &key);
    if (frame == NONE)
        return NONE;
    d->damaged = add_node(d, 0, frame, 0); /* hash 0 is nobody's: never found by it */
    return d->damaged;
}

/* The frame of another dictionary, here. */
static uint32_t frame_from(struct dict *d, const struct dict *from, uint32_t frame)
{
    struct dict_frame f = *TABLE(&from->frame, struct dict_frame, frame);

    f.name = text_id(&d->text, dict_str(from, f.name));
    f.file = text_id(&d->text, dict_str(from, f.file));
    f.bin = text_id(&d->text, dict_str(from, f.bin));
    f.bin_id = text_id(&d->text, dict_str(from, f.bin_id));
    if (f.name == NONE || f.file == NONE || f.bin == NONE || f.bin_id == NONE)
        return NONE;
    return dict_frame_of(d, &f);
}

/* The stack that another dictionary knows by that hash, root first; 0: it does not. */
static uint32_t take_over(struct dict *d, const struct dict *from, uint64_t hash)
{
    uint32_t path[DICT_DEPTH + 1], n = 0, g = 0, at = from ? find_hash(from, hash) : 0;

    for (uint32_t i = at; i != 0; i = dict_node(from, i)->parent)
        path[n++] = i;
    while (n > 0) {
        const struct dict_node *x = dict_node(from, path[--n]);
        uint32_t frame = frame_from(d, from, x->frame);

        if (frame == NONE)
            return NONE;
        g = define(d, g, frame, x->hash);
        if (g == NONE || g & DICT_FOLDED)
            return g;
    }
    return g;
}

bool dict_batch_nodes(struct dict *d, const struct dict *before, struct dict_batch *db)
{
    const struct batch *b = db->b;

    db->node[0] = 0;
    for (uint32_t i = 1; i <= b->n_known; i++) {
        uint32_t g = find_hash(d, b->node[i].hash);

        if (g) {
            db->node[i] = g;
            continue;
        }
        db->node[i] = take_over(d, before, b->node[i].hash);
        if (db->node[i] == NONE)
            return false;
        if (db->node[i] != 0)
            continue;
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

bool dict_holds(const struct dict *d, uint64_t hash)
{
    return find_hash(d, hash) != 0;
}

bool dict_knows(const struct dict *d, uint64_t hash)
{
    uint64_t v;

    return find_hash(d, hash) != 0 && !map_get(&d->ambiguous, hash, &v);
}

/* ---- loading ------------------------------------------------------------------------------- */

/* The hash that a sender gives the frame: made of what it says, not of our numbers. */
uint64_t dict_frame_hash(const struct dict *d, uint32_t frame)
{
    const struct dict_frame *f = TABLE(&d->frame, struct dict_frame, frame);
    const struct str str[] = {dict_str(d, f->name), dict_str(d, f->file), dict_str(d, f->bin)};
    const struct batch_fn fn = {.name = 0, .file = 1, .line = f->start_line};
    const struct batch_bin bin = {
        .path = 2, .id_kind = (enum bin_id_kind)f->id_kind, .id = dict_str(d, f->bin_id)};
    const struct batch_frame fr = {
        .kind = (enum frame_kind)f->kind, .flags = f->flags, .line = f->line, .addr = f->addr};
    const struct batch b = {.str = str, .fn = &fn, .bin = &bin, .frame = &fr};

    return batch_frame_hash(&b, 0);
}

uint32_t dict_load_node(struct dict *d, uint32_t parent, uint32_t frame, uint64_t frame_hash)
{
    uint64_t hash = node_hash(dict_node(d, parent)->hash, frame_hash);
    uint32_t g;

    if (TABLE(&d->frame, struct dict_frame, frame)->damaged)
        return damaged_node(d);
    g = define(d, parent, frame, hash);
    return g == NONE ? NONE : g & ~DICT_FOLDED;
}
