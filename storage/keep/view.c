// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "storage/keep/seal_private.h"

#define VIEW_MEM ((size_t)1 << 30)

/* ---- lists of sources ---------------------------------------------------------------------- */

struct source_list *source_list_new(struct epoch *epoch, uint32_t n)
{
    struct source_list *l =
        mem_fail_now() ? NULL : calloc(1, sizeof *l + n * sizeof(struct source_item));

    if (!l)
        return NULL;
    atomic_store(&l->refs, 1);
    epoch_ref(epoch);
    l->epoch = epoch;
    return l;
}

void source_list_add_head(struct source_list *l, struct head *h)
{
    head_ref(h);
    l->item[l->n++] = (struct source_item){.head = h, .epoch = h->epoch->id};
}

void source_list_add_part(struct source_list *l, struct part *p)
{
    (void)part_ref(p);
    l->item[l->n++] = (struct source_item){.part = p, .t = p->info.data, .epoch = p->info.epoch};
}

void source_list_add(struct source_list *l, const struct source_item *item)
{
    if (item->head)
        source_list_add_head(l, item->head);
    else
        source_list_add_part(l, item->part);
}

void source_list_unref(struct source_list *l)
{
    if (!l || atomic_fetch_sub(&l->refs, 1) > 1)
        return;
    for (uint32_t i = 0; i < l->n; i++) {
        head_unref(l->item[i].head);
        (void)part_unref(l->item[i].part);
    }
    epoch_unref(l->epoch);
    free(l);
}

void source_list_publish(struct store *s, struct source_list *l)
{
    struct source_list *old;

    mutex_lock(&s->view);
    old = s->list;
    s->list = l;
    mutex_unlock(&s->view);
    source_list_unref(old);
}

struct source_list *source_list_get(struct store *s)
{
    struct source_list *l;

    mutex_lock(&s->view);
    l = s->list;
    atomic_fetch_add(&l->refs, 1);
    mutex_unlock(&s->view);
    return l;
}

/* ---- views --------------------------------------------------------------------------------- */

static void enter(struct source *src)
{
    pool_enter(&src->head->epoch->pool);
    head_enter(src->head, &src->reader, &src->snap);
    src->t = (struct interval){{src->snap.t0}, {src->snap.t1}};
}

struct store_view *store_view_get(struct store *s)
{
    struct store_view *v = xcalloc(1, sizeof *v);
    struct source_list *l;

    assert(s->magic == STORE_MAGIC);
    v->s = s;
    v->names = &s->names;
    mutex_init(&v->mu);
    arena_init(&v->mem, VIEW_MEM);
    map_init(&v->trie, 0);
    pool_init(&v->pool);
    pool_enter(&s->names.pool);
    l = v->list = source_list_get(s);
    v->epoch = l->epoch;
    v->n_source = l->n;
    v->source = xcalloc(l->n, sizeof *v->source);
    for (uint32_t i = 0; i < l->n; i++) { /* the current head is the last */
        v->source[i] = (struct source){.head = l->item[i].head,
                                       .part = l->item[i].part,
                                       .t = l->item[i].t,
                                       .epoch = l->item[i].epoch};
        if (l->item[i].head)
            enter(&v->source[i]);
    }
    v->snap = v->source[l->n - 1].snap.names;
    v->lsn = v->source[l->n - 1].snap.lsn;
    return v;
}

/* True: local tables of a part were used. */
static bool leave(struct source *src)
{
    if (src->head) {
        head_leave(src->head, &src->reader);
        pool_leave(&src->head->epoch->pool);
    }
    if (src->held)
        (void)part_unref(src->part);
    return src->held;
}

struct store_view *store_view_put(struct store_view *v)
{
    bool trim = false;

    if (!v)
        return NULL;
    for (uint32_t i = 0; i < v->n_source; i++)
        trim |= leave(&v->source[i]);
    for (uint32_t i = 0; i < v->n_epoch; i++)
        epoch_unref(v->old_epoch[i]);
    if (trim)
        parts_trim(v->s->parts, v->s->conf.mem_cache / 2); /* the other half: sums (scan.c) */
    pool_leave(&v->s->names.pool);
    source_list_unref(v->list);
    table_deinit(&v->target, &v->pool);
    table_deinit(&v->scope, &v->pool);
    pool_deinit(&v->pool);
    arena_deinit(&v->mem);
    map_deinit(&v->trie);
    mutex_deinit(&v->mu);
    free(v->old_epoch);
    free(v->source);
    free(v);
    return NULL;
}

uint32_t store_workers(const struct store_view *v)
{
    return v->s->conf.workers;
}

void read_arena(const struct store_view *v, struct arena *a)
{
    arena_init(a, v->s->conf.mem_query);
}

/* ---- what sources have of their own -------------------------------------------------------- */

int source_local(struct store_view *v, const struct source *src, const struct local **ret,
                 struct local_snap *ret_snap, struct err *err)
{
    if (src->part) {
        struct source *own = &v->source[src - v->source];

        mutex_lock(&v->mu);
        if (!own->held)
            (void)part_ref(src->part); /* its tables stay as long as the view */
        own->held = true;
        mutex_unlock(&v->mu);
        TRY(part_local(src->part, ret, ret_snap, err));
        ret_snap->cpu = LOCAL_CPUS; /* a part does not say what numbers it has */
        return 0;
    }
    *ret = &src->head->local;
    *ret_snap = src->snap.local;
    return 0;
}

static bool key_eq(const struct target_key *a, const struct target_key *b)
{
    return memcmp(a->host, b->host, sizeof a->host) == 0 && a->pidns == b->pidns &&
           a->pid == b->pid && a->start.v == b->start.v;
}

static bool eq_target(const void *entry, const void *key)
{
    return key_eq(&((const struct view_target *)entry)->key, key);
}

static bool eq_scope(const void *entry, const void *key)
{
    const struct view_scope *a = entry, *b = key;

    return a->type == b->type && a->labels == b->labels && a->target == b->target;
}

static uint32_t number_target(struct store_view *v, const struct target_key *key, uint64_t id)
    REQUIRES(&v->mu)
{
    uint32_t i = 0;

    if (!v->target.v.size && !table_init(&v->target, &v->pool, sizeof(struct view_target)))
        return UINT32_MAX;
    i = table_find(&v->target, id, key, eq_target);
    if (i)
        return i;
    i = table_add(&v->target, &v->pool, id);
    if (!i)
        return UINT32_MAX;
    TABLE(&v->target, struct view_target, i)->key = *key;
    TABLE(&v->target, struct view_target, i)->id = id;
    return i;
}

uint32_t view_target(struct store_view *v, const struct target_key *key)
{
    uint32_t i;

    mutex_lock(&v->mu);
    i = number_target(v, key, target_id(key));
    mutex_unlock(&v->mu);
    return i;
}

uint32_t view_n_target(struct store_view *v)
{
    uint32_t n;

    mutex_lock(&v->mu);
    n = v->target.v.n ? v->target.v.n : 1;
    mutex_unlock(&v->mu);
    return n;
}

uint32_t view_n_scope(struct store_view *v)
{
    uint32_t n;

    mutex_lock(&v->mu);
    n = v->scope.v.n ? v->scope.v.n : 1;
    mutex_unlock(&v->mu);
    return n;
}

static uint32_t number_scope(struct store_view *v, ptype_id type, uint32_t labels, uint32_t target)
    REQUIRES(&v->mu)
{
    const struct view_scope key = {.type = type, .labels = labels, .target = target};
    uint32_t field[3] = {type, labels, target}, i;
    uint64_t hash = hash_bytes(field, sizeof field);
    struct view_scope *e;

    if (!v->scope.v.size && !table_init(&v->scope, &v->pool, sizeof(struct view_scope)))
        return UINT32_MAX;
    i = table_find(&v->scope, hash, &key, eq_scope);
    if (i)
        return i;
    i = table_add(&v->scope, &v->pool, hash);
    if (!i)
        return UINT32_MAX;
    e = TABLE(&v->scope, struct view_scope, i);
    e->type = type;
    e->labels = labels;
    e->target = target;
    return i;
}

static bool number_all_targets(struct store_view *v, struct opened *o, struct arena *arena)
{
    bool ok = true;

    o->target = arena_array(arena, uint32_t, o->n.target);
    if (!o->target)
        return false;
    mutex_lock(&v->mu);
    for (uint32_t i = 1; ok && i < o->n.target; i++) {
        const struct local_target *t = TABLE(&o->local->target, struct local_target, i);

        o->target[i] = number_target(v, &t->key, t->id);
        ok = o->target[i] != UINT32_MAX;
    }
    mutex_unlock(&v->mu);
    return ok;
}

static bool touches(struct interval t, const struct interval *range, uint32_t n)
{
    bool yes = false;

    for (uint32_t i = 0; i < n; i++)
        yes |= intervals_touch(t, range[i]);
    return yes;
}

int view_open(struct store_view *v, const struct interval *range, uint32_t n, struct arena *arena,
              struct opened **ret, struct err *err)
{
    struct opened *o = arena_array(arena, struct opened, v->n_source);

    if (!o)
        return no_memory(err);
    for (uint32_t i = 0; i < v->n_source; i++) {
        int r;

        if (!touches(v->source[i].t, range, n))
            continue;
        r = source_local(v, &v->source[i], &o[i].local, &o[i].n, err);
        if (r == -ENOMEM)
            return r;
        o[i].damaged = r != 0;
        if (r != 0)
            atomic_fetch_add(&v->s->damaged_blocks, v->source[i].part->info.blocks);
        if (r == 0 && !number_all_targets(v, &o[i], arena))
            return no_memory(err);
    }
    *ret = o;
    return 0;
}

int view_open_scopes(struct store_view *v, struct opened *o, struct arena *arena, struct err *err)
{
    bool ok = true;

    for (uint32_t k = 0; ok && k < v->n_source; k++) {
        if (!o[k].local)
            continue;
        o[k].scope = arena_array(arena, uint32_t, o[k].n.scope);
        if (!o[k].scope)
            return no_memory(err);
        mutex_lock(&v->mu);
        for (uint32_t i = 1; ok && i < o[k].n.scope; i++) {
            const struct local_scope *sc = TABLE(&o[k].local->scope, struct local_scope, i);

            o[k].scope[i] = number_scope(v, sc->type, sc->labels, o[k].target[sc->target]);
            ok = o[k].scope[i] != UINT32_MAX;
        }
        mutex_unlock(&v->mu);
    }
    return ok ? 0 : no_memory(err);
}

static struct epoch *find_epoch(struct store_view *v, uint32_t id) REQUIRES(&v->mu)
{
    for (uint32_t i = 0; i < v->n_epoch; i++) {
        if (v->old_epoch[i]->id == id)
            return v->old_epoch[i];
    }
    return NULL;
}

/* Takes the reference. */
static struct epoch *keep_epoch(struct store_view *v, struct epoch *e) REQUIRES(&v->mu)
{
    struct epoch *other = find_epoch(v, e->id);

    if (other) {
        epoch_unref(e);
        return other;
    }
    v->old_epoch = xrealloc(v->old_epoch, (v->n_epoch + 1) * sizeof(struct epoch *));
    v->old_epoch[v->n_epoch++] = e;
    return e;
}

struct epoch *view_epoch(struct store_view *v, uint32_t id, struct err *err)
{
    struct epoch *e;

    for (uint32_t i = v->n_source; i-- > 0 && v->source[i].head;) {
        if (v->source[i].epoch == id)
            return v->source[i].head->epoch;
    }
    mutex_lock(&v->mu);
    e = find_epoch(v, id);
    mutex_unlock(&v->mu);
    if (e)
        return e;
    e = epoch_get(v->s, id, err);
    if (!e)
        return NULL;
    mutex_lock(&v->mu);
    e = keep_epoch(v, e);
    mutex_unlock(&v->mu);
    return e;
}

/* ---- tries, frames, functions -------------------------------------------------------------- */

struct trie_at {
    struct trie_at *next; /* of another epoch */
    uint32_t epoch;
    struct store_trie t;
};

static struct trie_at *look_up(struct store_view *v, struct epoch *e, struct dict_trie *t,
                               struct trie_at *next) REQUIRES(&v->mu)
{
    struct trie_at *at = arena_new(&v->mem, struct trie_at);

    if (!at)
        return NULL;
    at->next = next;
    at->epoch = t->id.epoch;
    return dict_trie_read(&e->dict, t, &v->mem, &at->t) ? at : NULL;
}

static const struct trie_at *find_trie(const struct store_view *v, struct store_trie_id id)
    REQUIRES(&v->mu)
{
    const struct trie_at *at;
    uint64_t slot = 0;

    (void)map_get(&v->trie, (uint64_t)id.svc << 32 | id.sub, &slot);
    for (at = (const struct trie_at *)(uintptr_t)slot; at; at = at->next) { // NOLINT
        if (at->epoch == id.epoch)
            break;
    }
    return at;
}

static const struct trie_at *trie_at(struct store_view *v, struct epoch *e, struct dict_trie *t)
    REQUIRES(&v->mu)
{
    const struct trie_at *at = find_trie(v, t->id);
    struct trie_at *new;
    uint64_t *slot;

    if (at)
        return at;
    if (map_at(&v->trie, (uint64_t)t->id.svc << 32 | t->id.sub, &slot) == MAP_FULL)
        return NULL;
    new = look_up(v, e, t, (struct trie_at *)(uintptr_t)*slot); // NOLINT
    if (new)
        *slot = (uintptr_t) new;
    return new;
}

/* Functions are made before mu is taken: workers do that for several tries at once. */
int store_trie(struct store_view *v, struct store_trie_id id, struct store_trie *ret,
               struct err *err)
{
    struct epoch *e = view_epoch(v, id.epoch, err);
    struct dict_trie *t = e && id.svc < v->snap.svc ? epoch_find(e, id.svc, id.sub) : NULL;
    const struct trie_at *at;

    if (!e)
        return err ? err->code : -ENOENT;
    if (!t)
        return err_set(err, -ENOENT, "no trie %u/%u/%u", id.epoch, id.svc, id.sub);
    mutex_lock(&v->mu);
    at = find_trie(v, id);
    mutex_unlock(&v->mu);
    if (!at && dict_functions_make(&e->dict, t)) {
        mutex_lock(&v->mu);
        at = trie_at(v, e, t);
        mutex_unlock(&v->mu);
    }
    if (!at)
        return err_set(err, -ENOMEM, "trie: the dictionary pool is full");
    *ret = at->t;
    return 0;
}

int store_frame(struct store_view *v, uint32_t epoch, uint32_t frame, struct store_frame *ret,
                struct err *err)
{
    const struct epoch *e = view_epoch(v, epoch, err);
    const struct dict *d = e ? &e->dict : NULL;
    const struct dict_frame *f;

    if (!d)
        return err ? err->code : -ENOENT;
    /* not by the snapshot: a trie may be younger than it */
    if (frame >= atomic_load_explicit(&d->n_frame, memory_order_acquire))
        return err_set(err, -ENOENT, "no frame %u in epoch %u", frame, epoch);
    if (frame == 0) {
        *ret = (struct store_frame){};
        return 0;
    }
    f = TABLE(&d->frame, struct dict_frame, frame);
    *ret = (struct store_frame){.kind = f->kind,
                                .flags = f->flags,
                                .func = f->func,
                                .name = dict_str(d, f->name),
                                .file = dict_str(d, f->file),
                                .start_line = f->start_line,
                                .line = f->line,
                                .bin = dict_str(d, f->bin),
                                .bin_id = dict_str(d, f->bin_id),
                                .bin_id_kind = f->id_kind,
                                .addr = f->addr};
    return 0;
}

/* Functions of an answer lie anywhere in a large dictionary: entry, text and bytes are asked for
 * of all of them before the first is read. */
static void fetch_names(const struct dict *d, uint32_t n, const uint32_t *func)
{
    for (uint32_t i = 0; i < n; i++)
        __builtin_prefetch(TABLE(&d->func, struct dict_func, func[i]));
    for (uint32_t i = 0; i < n; i++)
        __builtin_prefetch(
            TABLE(&d->text.t, struct text, TABLE(&d->func, struct dict_func, func[i])->name));
    for (uint32_t i = 0; i < n; i++) {
        struct str s = dict_str(d, TABLE(&d->func, struct dict_func, func[i])->name);

        __builtin_prefetch(s.p);
        if (s.n > 1)
            __builtin_prefetch(s.p + s.n - 1);
    }
}

int store_funcs(struct store_view *v, uint32_t epoch, uint32_t n, const uint32_t *func,
                struct store_func *ret, struct err *err)
{
    const struct epoch *e = view_epoch(v, epoch, err);
    const struct dict *d = e ? &e->dict : NULL;
    uint32_t end;

    if (!d)
        return err ? err->code : -ENOENT;
    end = atomic_load_explicit(&d->n_func, memory_order_acquire);
    for (uint32_t i = 0; i < n; i++) {
        if (func[i] >= end)
            return err_set(err, -ENOENT, "no function %u in epoch %u", func[i], epoch);
    }
    fetch_names(d, n, func);
    for (uint32_t i = 0; i < n; i++) {
        const struct dict_func *f;

        if (func[i] == 0) {
            ret[i] = (struct store_func){.key = func_key((struct str){}, (struct str){})};
            continue;
        }
        f = TABLE(&d->func, struct dict_func, func[i]);
        ret[i] = (struct store_func){
            .kind = f->kind,
            .scope = dict_str(d, f->scope),
            .name = dict_str(d, f->name),
            .file = dict_str(d, atomic_load_explicit(&f->file, memory_order_acquire)),
            .bin = dict_str(d, f->bin),
            .key = f->key};
    }
    return 0;
}

int store_func(struct store_view *v, uint32_t epoch, uint32_t func, struct store_func *ret,
               struct err *err)
{
    struct store_func f = {};

    TRY(store_funcs(v, epoch, 1, &func, &f, err));
    *ret = f;
    return 0;
}
