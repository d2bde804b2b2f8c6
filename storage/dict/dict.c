// SPDX-License-Identifier: Apache-2.0
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "storage/dict/dict_private.h"

#define NONE UINT32_MAX

bool dict_init(struct dict *d, struct pool *p, uint64_t seed, uint32_t max_nodes)
{
    *d = (struct dict){.pool = p, .seed = seed, .max_nodes = max_nodes};
    vec_init(&d->page, sizeof(struct dict_page));
    paged_init(&d->hash, sizeof(uint64_t));
    dindex_init(&d->by_hash);
    map_init(&d->by_pair, 0);
    map_init(&d->ambiguous, 0);
    if (!texts_init(&d->text, p, seed) || !table_init(&d->frame, p, sizeof(struct dict_frame)) ||
        !table_init(&d->func, p, sizeof(struct dict_func)))
        return false;
    d->none = dict_trie_new(d, (struct store_trie_id){});
    return d->none && dict_trie_page(d, d->none); /* page 0: its root is g 0 */
}

void dict_deinit(struct dict *d)
{
    if (!d->pool)
        return;
    texts_deinit(&d->text);
    table_deinit(&d->frame, d->pool);
    table_deinit(&d->func, d->pool);
    dict_trie_free(d, d->none);
    vec_deinit(&d->page, d->pool);
    paged_deinit(&d->hash, d->pool);
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

static uint32_t parent_of(const struct dict *d, uint32_t g)
{
    uint32_t node;
    const struct dict_trie *t = dict_home(d, g, &node);

    return dict_trie_g(d, t, *VEC(&t->parent, uint32_t, node));
}

static uint32_t frame_of(const struct dict *d, uint32_t g)
{
    uint32_t node;
    const struct dict_trie *t = dict_home(d, g, &node);

    return *VEC(&t->frame, uint32_t, node);
}

static uint32_t depth_of(const struct dict *d, uint32_t g)
{
    uint32_t node, n = 0;
    const struct dict_trie *t = dict_home(d, g, &node);

    for (; node != 0; node = *VEC(&t->parent, uint32_t, node))
        n++;
    return n;
}

/* The first g of a hash; 0: none, which is nobody's. */
static uint32_t find_hash(const struct dict *d, uint64_t hash)
{
    const uint32_t h = (uint32_t)hash_mix(hash);

    for (uint32_t at = dindex_place(&d->by_hash, h), g; dindex_next(&d->by_hash, h, &at, &g);) {
        if (*dict_hash(d, g) == hash)
            return g;
    }
    return 0;
}

void dict_ahead(const struct dict *d, const struct batch_node *node, uint32_t n)
{
    uint32_t h[DICT_AHEAD], at, g;

    n = d->by_hash.slots == 0 ? 0 : n < DICT_AHEAD ? n : DICT_AHEAD;
    for (uint32_t i = 0; i < n; i++) {
        h[i] = (uint32_t)hash_mix(node[i].hash);
        __builtin_prefetch(d->by_hash.slot + dindex_place(&d->by_hash, h[i]));
    }
    for (uint32_t i = 0; i < n; i++) {
        at = dindex_place(&d->by_hash, h[i]);
        if (dindex_next(&d->by_hash, h[i], &at, &g))
            __builtin_prefetch(dict_hash(d, g));
    }
}

static uint32_t hash_of(const void *ctx, uint32_t g)
{
    return (uint32_t)hash_mix(*dict_hash(ctx, g));
}

/* A stack as somebody says what it is. */
struct definition {
    uint32_t parent, frame; /* parent: g */
    uint64_t hash;
};

/* The g of an equal one, 0 if there is none; *ret_clash: its hash means another one already. */
static uint32_t find_equal(const struct dict *d, const struct definition *x, bool *ret_clash)
{
    uint32_t first = find_hash(d, x->hash);
    uint64_t other;

    *ret_clash = false;
    if (first == 0 || (parent_of(d, first) == x->parent && frame_of(d, first) == x->frame))
        return first;
    *ret_clash = true;
    return map_get(&d->by_pair, (uint64_t)x->parent << 32 | x->frame, &other) ? (uint32_t)other : 0;
}

/* g is found by its hash from now on; or, where that is another one's, by parent and frame. */
static bool note(struct dict *d, const struct definition *x, uint32_t g, bool clash)
{
    if (!clash)
        return pool_dindex_add(d->pool, &d->by_hash, (uint32_t)hash_mix(x->hash), g, hash_of, d);
    d->clashes++;
    return pool_map_put(d->pool, &d->by_pair, (uint64_t)x->parent << 32 | x->frame, g) &&
           pool_map_put(d->pool, &d->ambiguous, x->hash, 1);
}

/* In t, or where that is full, in none: a hash that was once acknowledged is known. */
static uint32_t add_node(struct dict *d, struct dict_trie *t, const struct definition *x)
{
    bool full = t != d->none && t->parent.n >= d->max_nodes;
    uint32_t parent = full ? 0 : dict_trie_node(d, t, x->parent, &full), node;

    if (full)
        return add_node(d, d->none, x);
    node = parent == NONE ? NONE : dict_trie_add(d, t, parent, x->frame, x->hash);
    return node == NONE ? NONE : dict_trie_g(d, t, node);
}

/* depth: that of the parent. */
static uint32_t define(struct dict *d, struct dict_trie *t, const struct definition *x,
                       uint32_t depth)
{
    bool clash;
    uint32_t g = find_equal(d, x, &clash);

    if (g)
        return g;
    if (depth >= DICT_DEPTH || d->hash.n >= DICT_FOLDED - 2 * DICT_PAGE)
        return x->parent | DICT_FOLDED;
    g = add_node(d, t ? t : d->none, x);
    return g == NONE || note(d, x, g, clash) ? g : NONE;
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
    /* hash 0 is nobody's: never found by it */
    frame = dict_trie_add(d, d->none, 0, frame, 0);
    if (frame == NONE)
        return NONE;
    return d->damaged = dict_trie_g(d, d->none, frame);
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
    uint32_t path[DICT_DEPTH + 1], n = 0, g = 0;

    for (uint32_t i = from ? find_hash(from, hash) : 0; i != 0; i = parent_of(from, i))
        path[n++] = i;
    for (uint32_t depth = 0; n > 0; depth++) {
        uint32_t i = path[--n];
        const struct definition x = {.parent = g,
                                     .frame = frame_from(d, from, frame_of(from, i)),
                                     .hash = *dict_hash(from, i)};

        if (x.frame == NONE)
            return NONE;
        g = define(d, NULL, &x, depth);
        if (g == NONE || g & DICT_FOLDED)
            return g;
    }
    return g;
}

static bool known_node(struct dict *d, const struct dict *before, struct dict_batch *db, uint32_t i)
{
    const uint64_t hash = db->b->node[i].hash;
    uint32_t g = find_hash(d, hash);

    if (g == 0)
        g = take_over(d, before, hash);
    if (g == 0) {
        db->damaged++;
        g = damaged_node(d);
    }
    db->node[i] = g;
    return g != NONE;
}

static bool new_node(struct dict *d, struct dict_batch *db, uint32_t i)
{
    const struct batch_node *n = &db->b->node[i];
    const struct definition x = {
        .parent = db->node[n->parent], .frame = batch_frame(d, db, n->frame), .hash = n->hash};

    if (x.frame == NONE)
        return false;
    /* what hangs under a lost stack is as unknown as the stack */
    if ((d->damaged && x.parent == d->damaged) || x.parent & DICT_FOLDED) {
        db->node[i] = x.parent;
        return true;
    }
    if (n->parent != 0 && db->depth[n->parent] == 0)
        db->depth[n->parent] = (uint16_t)depth_of(d, x.parent);
    db->depth[i] = (uint16_t)(db->depth[n->parent] + 1);
    db->node[i] = define(d, db->trie[i], &x, db->depth[n->parent]);
    return db->node[i] != NONE;
}

/* A trie that uses a stack has its node from here on, new or not: nodes of a trie come in an order
 * that batches alone decide. */
static bool use_node(struct dict *d, const struct dict_batch *db, uint32_t i)
{
    bool folded; /* its rows will say so */

    return !db->trie[i] ||
           dict_trie_node(d, db->trie[i], db->node[i] & ~DICT_FOLDED, &folded) != NONE;
}

bool dict_batch_nodes(struct dict *d, const struct dict *before, struct dict_batch *db)
{
    const struct batch *b = db->b;

    for (uint32_t i = b->n_node; --i > b->n_known;) { /* what leads to a stack is used with it */
        if (!db->trie[b->node[i].parent])
            db->trie[b->node[i].parent] = db->trie[i];
    }
    db->node[0] = 0;
    for (uint32_t i = 1; i <= b->n_known; i++) {
        if (i % DICT_AHEAD == 1)
            dict_ahead(d, b->node + i, b->n_known + 1 - i);
        if (!known_node(d, before, db, i) || !use_node(d, db, i))
            return false;
    }
    for (uint32_t i = b->n_known + 1; i < b->n_node; i++) {
        if (!new_node(d, db, i) || !use_node(d, db, i))
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

bool dict_trie_load(struct dict *d, struct dict_trie *t, const struct dict_load *n)
{
    const uint32_t parent = dict_trie_g(d, t, n->parent);
    const struct definition x = {.parent = parent,
                                 .frame = n->frame,
                                 .hash = node_hash(*dict_hash(d, parent), n->frame_hash)};
    bool clash = false, damaged = TABLE(&d->frame, struct dict_frame, n->frame)->damaged;
    uint32_t g = damaged ? damaged_node(d) : find_equal(d, &x, &clash), node;

    if (g == NONE)
        return false;
    if (g == 0 && n->depth > DICT_DEPTH)
        g = parent;
    if (g != 0)
        return dict_trie_copy(d, t, n->parent, n->frame, g) != NONE;
    node = dict_trie_add(d, t, n->parent, n->frame, x.hash);
    return node != NONE && note(d, &x, dict_trie_g(d, t, node), clash);
}
