// SPDX-License-Identifier: Apache-2.0
#include <errno.h>

#include "base/buf.h"
#include "base/hash.h"
#include "query/query_private.h"

/*
 * One tree over all tries that have weight: services, epochs, groups. A trie is walked once upward
 * to see which of its function nodes hold weight at or below them, and once downward to find or
 * make their union nodes: both are plain loops, since parents have smaller numbers than children.
 * The union keeps that order, so totals are again one loop upward.
 */

#define OTHER_GROUPS STR("[other groups]")
#define FEW          8u /* children that are looked through without a map */

/* ---- functions ---------------------------------------------------------------------------------
 */

int query_tree_func_room(struct query *q, struct query_tree *t, uint32_t n, struct query_err *e)
{
    uint32_t cap = t->cap_func ? t->cap_func * 2 : 256;
    struct query_func *fn;
    uint8_t *flag;

    if (n > 1 && !map_reserve(&t->fn_by_key, t->n_func + n))
        return query_no_memory(q, e);
    if (n <= t->cap_func - t->n_func)
        return 0;
    if (cap - t->n_func < n)
        cap = t->n_func + n;
    QUERY_NEW(q, &fn, cap, e);
    QUERY_NEW(q, &flag, cap, e);
    if (t->n_func) {
        memcpy(fn, t->fn, t->n_func * sizeof *fn);
        memcpy(flag, t->fn_flag, t->n_func);
    }
    t->fn = fn;
    t->fn_flag = flag;
    t->cap_func = cap;
    return 0;
}

static bool same_func(const struct query_tree *t, const struct query_func *a,
                      const struct query_func *b)
{
    return str_eq(a->scope, b->scope) && str_eq(a->name, b->name) && a->line == b->line &&
           a->addr == b->addr && a->start_line == b->start_line && a->inlined == b->inlined &&
           str_eq(a->path, b->path) && str_eq(a->build, b->build) &&
           (!(t->apart & QUERY_BY_FILE) || str_eq(a->file, b->file)) &&
           (!(t->apart & QUERY_BY_KIND) || (a->kind == b->kind && str_eq(a->bin, b->bin)));
}

uint64_t query_func_key(const struct query *q, const struct query_func *f)
{
    uint64_t key = func_key(f->scope, f->name);

    /* a line is one of a file */
    if ((q->detail == QUERY_OF_LINES || q->detail == QUERY_OF_FRAMES) && f->file.n &&
        !str_eq(f->file, f->scope))
        key = hash_mix(key ^ hash_str(f->file));
    if (!f->line && !f->addr && !f->start_line && !f->inlined && !f->path.n && !f->build.n)
        return key;
    key = hash_mix(key ^ f->addr);
    key = hash_mix(key ^ ((uint64_t)f->start_line << 32 | f->line));
    return hash_mix(hash_mix(key ^ hash_str(f->path)) ^ hash_str(f->build)) + f->inlined;
}

/* The number of this function, by content: a key that two functions share is rehashed. */
int query_tree_func(struct query *q, struct query_tree *t, const struct query_func *f,
                    uint32_t *ret, struct query_err *e)
{
    uint64_t *slot, key = f->key;

    for (;; key = hash_mix(key + 1)) {
        if (map_at(&t->fn_by_key, key, &slot) == MAP_FULL)
            return query_no_memory(q, e);
        if (*slot == 0)
            break;
        if (same_func(t, &t->fn[*slot], f)) {
            if (t->fn[*slot].file.n == 0) /* this epoch's dictionary knows more */
                t->fn[*slot].file = f->file;
            *ret = (uint32_t)*slot;
            return 0;
        }
    }
    TRY(query_tree_func_room(q, t, 1, e));
    *slot = t->n_func;
    t->fn[t->n_func] = *f;
    if (!t->stacks) /* else told by the tries */
        t->fn_flag[t->n_func] = func_mark(f->kind, f->scope, f->name);
    *ret = t->n_func++;
    return 0;
}

/* What of a frame the question tells apart. */
static int frame_func(struct query *q, uint32_t epoch, uint32_t id, struct query_func *ret,
                      struct query_err *e)
{
    struct store_frame s = {};
    struct err err = {};
    int r = store_frame(q->view, epoch, id, &s, &err);

    if (r < 0)
        return query_store_failed(q, r, &err, e);
    *ret = (struct query_func){.scope = func_scope(s.kind, s.bin, s.file),
                               .name = s.name,
                               .file = s.file,
                               .bin = str_basename(s.bin),
                               .kind = s.kind};
    if (q->detail == QUERY_OF_FUNCTIONS || q->detail == QUERY_OF_FILES) {
        ret->key = query_func_key(q, ret);
        return 0;
    }
    if (q->detail != QUERY_OF_ADDRESSES)
        ret->line = s.line;
    if (q->detail != QUERY_OF_LINES && (s.addr || q->detail == QUERY_OF_FRAMES)) {
        ret->addr = s.addr;
        ret->path = s.bin;
        ret->build = s.bin_id;
    }
    if (q->detail == QUERY_OF_FRAMES)
        ret->start_line = s.start_line;
    if (q->detail != QUERY_OF_ADDRESSES)
        ret->inlined = (s.flags & FRAME_INLINED) != 0;
    ret->key = query_func_key(q, ret);
    return 0;
}

static struct query_func plain_func(const struct store_func *s)
{
    return (struct query_func){.scope = s->scope,
                               .name = s->name,
                               .file = s->file,
                               .bin = str_basename(s->bin),
                               .kind = s->kind,
                               .key = s->key};
}

/* The names that an epoch's functions have in the tree; room for those below n. */
int query_tree_ids(struct query *q, struct query_tree *t, uint32_t epoch, uint32_t n,
                   struct query_ids **ret, struct query_err *e)
{
    struct query_ids *ids = t->ids;
    uint32_t *func, cap;

    while (ids && ids->epoch != epoch)
        ids = ids->older;
    if (!ids) {
        QUERY_NEW(q, &ids, 1, e);
        *ids = (struct query_ids){.older = t->ids, .epoch = epoch};
        t->ids = ids;
    }
    *ret = ids;
    if (n <= ids->n)
        return 0;
    cap = ids->n > UINT32_MAX / 4 || 2 * ids->n < n ? n : 2 * ids->n;
    QUERY_NEW(q, &func, cap, e);
    if (ids->n)
        memcpy(func, ids->func, ids->n * sizeof *func);
    ids->func = func;
    ids->n = cap;
    return 0;
}

/* id: a function of the epoch, or a frame of it, by what the question tells apart. */
static int func_of(struct query *q, struct query_tree *t, uint32_t epoch, uint32_t id,
                   uint32_t *ret, struct query_err *e)
{
    struct query_func f = {};

    if (!query_by_frame(q))
        return query_tree_funcs(q, t, epoch, 1, &id, ret, e);
    TRY(frame_func(q, epoch, id, &f, e));
    if (t->short_names)
        TRY(query_short_func(q, &f, &f, e));
    return query_tree_func(q, t, &f, ret, e);
}

int query_tree_funcs(struct query *q, struct query_tree *t, uint32_t epoch, uint32_t n,
                     const uint32_t *id, uint32_t *ret, struct query_err *e)
{
    struct store_func s[QUERY_FUNCS_MAX];
    struct err err = {};
    int r;

    assert(n <= QUERY_FUNCS_MAX && !query_by_frame(q));
    r = store_funcs(q->view, epoch, n, id, s, &err);
    if (r < 0)
        return query_store_failed(q, r, &err, e);
    for (uint32_t i = 0; i < n; i++) {
        struct query_func f = plain_func(&s[i]);

        if (t->short_names)
            TRY(query_short_func(q, &f, &f, e));
        TRY(query_tree_func(q, t, &f, &ret[i], e));
    }
    return 0;
}

int query_tree_func_by_id(struct query *q, struct query_tree *t, struct query_ids *ids, uint32_t id,
                          uint32_t *ret, struct query_err *e)
{
    *ret = ids->func[id];
    if (*ret)
        return 0;
    TRY(func_of(q, t, ids->epoch, id, ret, e));
    ids->func[id] = *ret;
    return 0;
}

/* ---- nodes -------------------------------------------------------------------------------------
 */

#define GROW(q, to, from, n, cap, e)                                                               \
    do {                                                                                           \
        QUERY_NEW(q, to, cap, e);                                                                  \
        if ((n) && (from))                                                                         \
            memcpy(*(to), from, (n) * sizeof **(to));                                              \
    } while (0)

int query_tree_room(struct query *q, struct query_tree *t, uint32_t cap, struct query_err *e)
{
    struct query_tree n = *t;

    if (cap <= t->cap)
        return 0;
    if (cap < 2 * t->cap) /* many small tries: copy a node twice at most, on average */
        cap = 2 * t->cap;
    GROW(q, &n.parent, t->parent, t->n, cap, e);
    GROW(q, &n.func, t->func, t->n, cap, e);
    GROW(q, &n.flag, t->flag, t->n, cap, e);
    GROW(q, &n.first, t->first, t->n, cap, e);
    GROW(q, &n.next, t->next, t->n, cap, e);
    if (q->n_by)
        GROW(q, &n.group, t->group, t->n, cap, e);
    for (uint32_t s = 0; s < t->n_side; s++) {
        GROW(q, &n.w[s].self, t->w[s].self, t->n, cap, e);
        GROW(q, &n.w[s].self_samples, t->w[s].self_samples, t->n, cap, e);
        if (!t->w[s].var_missing)
            GROW(q, &n.w[s].self_var, t->w[s].self_var, t->n, cap, e);
    }
    n.cap = cap;
    *t = n;
    return 0;
}

/* A child that is known not to be there yet. */
int query_tree_add(struct query *q, struct query_tree *t, uint32_t parent, uint32_t func,
                   uint32_t *ret, struct query_err *e)
{
    uint32_t i = t->n;

    if (i == t->cap)
        TRY(query_tree_room(q, t, i + 1, e));
    t->parent[i] = parent;
    t->func[i] = func;
    t->next[i] = t->first[parent];
    t->first[parent] = i;
    t->n++;
    *ret = i;
    return 0;
}

static uint64_t child_key(uint32_t parent, uint32_t func)
{
    return (uint64_t)parent << 32 | func;
}

static int map_children(struct query *q, struct query_tree *t, uint32_t parent, struct query_err *e)
{
    for (uint32_t i = t->first[parent]; i; i = t->next[i]) {
        if (map_put(&t->child, child_key(parent, t->func[i]), i) == MAP_FULL)
            return query_no_memory(q, e);
    }
    t->flag[parent] |= QUERY_NODE_MANY;
    return 0;
}

/* A few children are walked; only a parent of many has them in the map. */
int query_tree_child(struct query *q, struct query_tree *t, uint32_t parent, uint32_t func,
                     uint32_t *ret, struct query_err *e)
{
    uint32_t seen = 0, i;
    uint64_t *slot;

    if (!(t->flag[parent] & QUERY_NODE_MANY)) {
        for (i = t->first[parent]; i && seen < FEW; i = t->next[i], seen++) {
            if (t->func[i] == func) {
                *ret = i;
                return 0;
            }
        }
        if (!i)
            return query_tree_add(q, t, parent, func, ret, e);
        TRY(map_children(q, t, parent, e));
    }
    if (map_at(&t->child, child_key(parent, func), &slot) == MAP_FULL)
        return query_no_memory(q, e);
    if (*slot == 0) {
        *slot = t->n;
        return query_tree_add(q, t, parent, func, ret, e);
    }
    *ret = (uint32_t)*slot;
    return 0;
}

void query_tree_give(struct query_tree *t, uint32_t k, const struct query_tree *from, uint32_t i)
{
    for (uint32_t s = 0; s < t->n_side; s++) {
        t->w[s].self[k] += from->w[s].self[i];
        t->w[s].self_samples[k] += from->w[s].self_samples[i];
        if (t->w[s].self_var)
            t->w[s].self_var[k] += from->w[s].self_var[i];
    }
    t->flag[k] |= from->flag[i] & (QUERY_SELF_UNKNOWN | QUERY_SELF_UNKNOWN << 1);
}

static void weigh(struct query_tree *t, uint32_t node, const struct query_acc *a, uint32_t i)
{
    struct query_weigh *w = &t->w[a->side];

    w->self[node] += a->sum[i];
    w->self_samples[node] += a->count[i];
    if (w->self_var && a->var)
        w->self_var[node] += a->var[i];
    if (query_bit(a->unknown, i))
        t->flag[node] |= (uint8_t)(QUERY_SELF_UNKNOWN << a->side);
}

int query_tree_init(struct query *q, struct query_tree *t, uint32_t n_side, uint32_t room,
                    struct query_err *e)
{
    static const struct query_func root = {.name = STR("all")};

    map_init(&t->child, 0);
    map_init(&t->fn_by_key, 0);
    t->n_side = n_side;
    TRY(query_tree_room(q, t, room > 64 ? room : 64, e));
    TRY(query_tree_func_room(q, t, 1, e));
    t->n = t->n_func = 1;
    t->fn[0] = root;
    t->flag[0] = QUERY_NODE_LEVEL;
    return 0;
}

/* ---- tries into the union ----------------------------------------------------------------------
 */

/* The node under which a group's stacks hang: levels name=value below the root. */
int query_tree_group(struct query *q, struct query_tree *t, uint32_t group, uint32_t *ret,
                     struct query_err *e)
{
    struct query_gather *g = q->gather;
    uint32_t node = 0, func = 0;

    for (uint32_t i = 0; i < q->n_by; i++) {
        struct query_func f = {.kind = FRAME_OTHER, .name = OTHER_GROUPS};
        struct buf b;
        int r;

        if (group < g->n_group) {
            buf_init(&b, 1 << 20);
            buf_str(&b, q->by[i]);
            buf_chr(&b, '=');
            buf_str(&b, g->group[group].value[i]);
            r = b.failed ? query_no_memory(q, e) : query_copy(q, buf_view(&b), &f.name, e);
            buf_deinit(&b);
            if (r < 0)
                return r;
        }
        f.key = func_key(f.scope, f.name);
        TRY(query_tree_func(q, t, &f, &func, e));
        TRY(query_tree_child(q, t, node, func, &node, e));
        t->flag[node] |= QUERY_NODE_LEVEL;
        if (group >= g->n_group)
            break;
    }
    *ret = node;
    return 0;
}

/* Marks in need[] what has weight at or below it; returns how many. */
static uint32_t mark_needed(const struct query_acc *a, const uint32_t *parent, uint32_t *need)
{
    uint32_t n = 0;

    for (uint32_t i = a->n - 1; i > 0; i--) {
        if (a->sum[i] || a->count[i])
            need[i] = 1;
        if (need[i]) {
            need[parent[i]] = 1;
            n++;
        }
    }
    return n;
}

static int place(struct query *q, struct query_tree *t, const struct query_acc *a, uint32_t top,
                 uint32_t *node, struct query_err *e)
{
    bool plain = !query_by_frame(q);
    const uint32_t *parent, *id;
    struct store_trie trie = {};
    struct query_ids *ids;
    struct err err = {};
    uint32_t func = 0, last = 0, fresh;
    int r = store_trie(q->view, a->trie, &trie, &err);

    if (r < 0)
        return query_store_failed(q, r, &err, e);
    assert((plain ? trie.n_fnode : trie.n) == a->n);
    parent = plain ? trie.fparent : trie.parent;
    id = plain ? trie.func : trie.frame;
    TRY(query_alive(q, e));
    TRY(query_tree_room(q, t, t->n + mark_needed(a, parent, node), e));
    for (uint32_t i = 1; i < a->n; i++)
        last = node[i] && id[i] > last ? id[i] : last;
    TRY(query_tree_ids(q, t, a->trie.epoch, last + 1, &ids, e));
    node[0] = top;
    /* functions occur once below a function node: what hangs below a new node is new */
    fresh = plain ? t->n : UINT32_MAX;
    for (uint32_t i = 1; i < a->n; i++) {
        if (!node[i])
            continue;
        TRY(query_tree_func_by_id(q, t, ids, id[i], &func, e));
        if (node[parent[i]] >= fresh)
            TRY(query_tree_add(q, t, node[parent[i]], func, &node[i], e));
        else
            TRY(query_tree_child(q, t, node[parent[i]], func, &node[i], e));
        t->fn_flag[func] |= QUERY_FN_FRAME;
        if (plain && query_bit(trie.again, i))
            t->flag[node[i]] |= QUERY_NODE_AGAIN;
        if (t->group)
            t->group[node[i]] = t->group[top];
    }
    return 0;
}

int query_tree_place(struct query *q, struct query_tree *t, const struct query_acc *a,
                     uint32_t *node, struct query_err *e)
{
    return place(q, t, a, 0, node, e);
}

static int add_acc(struct query *q, struct query_tree *t, const struct query_acc *a,
                   struct query_err *e)
{
    uint32_t *node, top = 0;

    TRY(query_tree_group(q, t, a->group, &top, e));
    t->flag[top] |= QUERY_NODE_TOP;
    if (t->group)
        t->group[top] = a->group < q->gather->n_group ? a->group : q->gather->n_group;
    weigh(t, top, a, 0);
    QUERY_NEW(q, &node, a->n, e);
    TRY(place(q, t, a, top, node, e));
    for (uint32_t i = 1; i < a->n; i++) {
        if (node[i])
            weigh(t, node[i], a, i);
    }
    return 0;
}

static void sum_side(struct query_tree *t, uint32_t s)
{
    struct query_weigh *w = &t->w[s];
    uint8_t own = (uint8_t)(QUERY_SELF_UNKNOWN << s), below = (uint8_t)(QUERY_NODE_UNKNOWN << s);
    unit_i128 all = 0;

    for (uint32_t i = 0; i < t->n; i++) {
        all += w->self[i];
        w->total[i] = w->self[i];
        w->samples[i] = w->self_samples[i];
        if (w->var)
            w->var[i] = w->self_var[i];
        if (t->flag[i] & own)
            t->flag[i] |= below;
    }
    for (uint32_t i = t->n - 1; i > 0; i--) {
        uint32_t p = t->parent[i];

        assert(p < i);
        w->total[p] += w->total[i];
        w->samples[p] += w->samples[i];
        if (w->var)
            w->var[p] += w->var[i];
        t->flag[p] |= t->flag[i] & below;
    }
    assert(w->total[0] == all);
}

int query_tree_sum(struct query *q, struct query_tree *t, struct query_err *e)
{
    for (uint32_t s = 0; s < t->n_side; s++) {
        QUERY_NEW(q, &t->w[s].total, t->n, e);
        QUERY_NEW(q, &t->w[s].samples, t->n, e);
        if (!t->w[s].var_missing)
            QUERY_NEW(q, &t->w[s].var, t->n, e);
        sum_side(t, s);
    }
    QUERY_NEW(q, &t->hash, t->n, e);
    for (uint32_t i = 1; i < t->n; i++)
        t->hash[i] = hash_zoom(t->hash[t->parent[i]], t->fn[t->func[i]].key);
    return query_alive(q, e);
}

int query_tree_union(struct query *q, struct query_tree *ret, struct query_err *e)
{
    const struct query_gather *g = q->gather;
    bool told[2] = {};

    for (uint32_t i = 0; i < g->n_acc; i++) {
        ret->w[g->acc[i]->side].var_missing |= g->acc[i]->var_missing;
        told[g->acc[i]->side] |= g->acc[i]->var != NULL;
    }
    for (uint32_t s = 0; s < 2; s++)
        ret->w[s].var_missing |= !told[s] || q->head.agg != QUERY_SUM;
    ret->apart = query_tried_apart(q);
    TRY(query_tree_init(q, ret, q->other ? 2 : 1, 0, e));
    for (uint32_t i = 0; i < g->n_acc; i++)
        TRY(add_acc(q, ret, g->acc[i], e));
    for (uint32_t s = 0; q->head.agg != QUERY_SUM && s < ret->n_side; s++) {
        for (uint32_t i = 0; i < ret->n; i++)
            ret->w[s].self[i] = query_round(ret->w[s].self[i]);
    }
    if (query_by_frame(q))
        TRY(query_tree_mark_again(q, ret, e));
    return query_tree_sum(q, ret, e);
}

void query_tree_deinit(struct query_tree *t)
{
    map_deinit(&t->child);
    map_deinit(&t->fn_by_key);
}

/* ---- what the tree says about itself -----------------------------------------------------------
 */

struct query_stacks query_tree_stacks(const struct query_tree *t, uint32_t side)
{
    const struct query_weigh *w = &t->w[side];
    struct query_stacks s = {};

    if (t->stacks)
        return t->stacks[side];
    for (uint32_t i = 1; i < t->n; i++) {
        uint8_t f = t->flag[i] & QUERY_NODE_LEVEL ? 0 : t->fn_flag[t->func[i]];

        if (f & FUNC_NO_STACK)
            s.no_stack += w->self[i];
        if ((f & FUNC_TRUNCATED) && !(t->flag[i] & QUERY_NODE_AGAIN))
            s.truncated += w->total[i];
        if (f & FUNC_UNSYMBOLISED)
            s.unsymbolised += w->self[i];
    }
    return s;
}

/* Depth first with a counter per key. */
int query_again(struct query *q, uint32_t n, const uint32_t *parent, const uint32_t *key,
                uint32_t n_key, uint8_t *again, struct query_err *e)
{
    uint32_t *first, *next, *open, i;

    QUERY_NEW(q, &first, n, e); /* first child; next sibling: 0 is no child of anyone */
    QUERY_NEW(q, &next, n, e);
    QUERY_NEW(q, &open, n_key, e);
    for (i = n - 1; i > 0; i--) {
        next[i] = first[parent[i]];
        first[parent[i]] = i;
    }
    for (i = first[0]; i;) {
        if (key[i] != UINT32_MAX)
            again[i] = open[key[i]]++ > 0;
        if (first[i]) {
            i = first[i];
            continue;
        }
        for (;;) { /* done with i: to its sibling, or up */
            if (key[i] != UINT32_MAX)
                open[key[i]]--;
            if (next[i] || parent[i] == 0)
                break;
            i = parent[i];
        }
        i = next[i];
    }
    return 0;
}

int query_tree_again(struct query *q, const struct query_tree *t, const uint32_t *key_of,
                     uint32_t n_key, uint8_t *again, struct query_err *e)
{
    uint32_t *key;

    QUERY_NEW(q, &key, t->n, e);
    for (uint32_t i = 0; i < t->n; i++)
        key[i] = t->flag[i] & QUERY_NODE_LEVEL ? UINT32_MAX : key_of[t->func[i]];
    return query_again(q, t->n, t->parent, key, n_key, again, e);
}

int query_tree_mark_again(struct query *q, struct query_tree *t, struct query_err *e)
{
    uint32_t *key_of;
    uint8_t *again;

    QUERY_NEW(q, &key_of, t->n_func, e);
    QUERY_NEW(q, &again, t->n, e);
    for (uint32_t f = 0; f < t->n_func; f++)
        key_of[f] = f;
    TRY(query_tree_again(q, t, key_of, t->n_func, again, e));
    for (uint32_t i = 0; i < t->n; i++) {
        if (again[i])
            t->flag[i] |= QUERY_NODE_AGAIN;
    }
    return 0;
}

int query_tree_match(struct query *q, const struct query_tree *t, const struct query_pattern *p,
                     const char *param, uint8_t *ret, struct query_err *e)
{
    ret[0] = 0;
    for (uint32_t i = 1; i < t->n_func; i++) {
        int r = t->fn_flag[i] & QUERY_FN_FRAME ? query_pattern_match(p, &t->fn[i]) : 0;

        if (r < 0)
            return query_fail(e, r, QUERY_REGEX_TOO_EXPENSIVE, param,
                              "the regular expression takes too much work on one name of %zu bytes",
                              t->fn[i].name.n);
        ret[i] = (uint8_t)r;
        if (i % 256 == 0)
            TRY(query_alive(q, e));
    }
    return 0;
}

int query_tree_match_all(struct query *q, const struct query_tree *t, const struct str *pattern,
                         uint32_t n, const char *param, uint32_t *ret, struct query_err *e)
{
    uint8_t *hit;

    QUERY_NEW(q, &hit, t->n_func, e);
    for (uint32_t k = 0; k < n; k++) {
        struct query_pattern p = {};
        int r;

        TRY(query_pattern_new(&q->arena, pattern[k], param, &p, e));
        r = query_tree_match(q, t, &p, param, hit, e);
        query_pattern_deinit(&p);
        if (r < 0)
            return r;
        for (uint32_t f = 1; f < t->n_func; f++)
            ret[f] |= (uint32_t)hit[f] << k;
    }
    return 0;
}
