// SPDX-License-Identifier: Apache-2.0
/* Which epoch is current, when the next one begins, and older ones that queries ask for. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "storage/dict/dictfile_private.h"
#include "storage/file/db_private.h"
#include "storage/keep/recover_private.h"
#include "storage/keep/seal_private.h"

#define EPOCH_NS     (INT64_C(7) * 86400 * NS_PER_S)
#define EPOCH_FRAMES (UINT32_C(1) << 24)
#define BEFORE_NS    (60 * NS_PER_S)  /* an append does not take so long */
#define KEEP_NS      (600 * NS_PER_S) /* nor does a query that has a part of it */

static bool must_turn(const struct store *s)
{
    int64_t ns = store_tuning.epoch_ns ? store_tuning.epoch_ns : EPOCH_NS;

    return store_now(s).v - s->epoch_t0.v >= ns ||
           atomic_load(&s->epoch->dict.n_frame) >= EPOCH_FRAMES ||
           atomic_load(&s->epoch->pool.used) > s->conf.mem_head / 2;
}

static int make(struct store *s, uint32_t id, struct epoch **ret, struct dictfile **ret_file,
                struct err *err)
{
    struct epoch *e = epoch_new(id, s->seed, store_trie_nodes());
    char name[DICTFILE_NAME];
    int r;

    if (!e)
        return err_set(err, -ENOMEM, "epoch: memory is short");
    dictfile_name(name, id);
    db_remove(s->dir, name); /* of a turn that came to nothing: the catalog does not know it */
    r = dictfile_create(s->dir, id, store_tuning.vfs, ret_file, err);
    if (r != 0) {
        epoch_unref(e);
        return r;
    }
    pool_count_in(&e->pool, &s->mem_used);
    *ret = e;
    return 0;
}

int epoch_turn(struct store *s, struct err *err)
{
    struct err why = {};
    int r;

    if (s->next_epoch || !must_turn(s))
        return 0;
    r = make(s, s->epoch->id + 1, &s->next_epoch, &s->next_dict, &why);
    if (r == -ENOMEM)
        return err_set(err, r, "%s", why.msg);
    if (r != 0)
        return 0; /* no file can be made now: the epoch goes on, the next seal tries again */
    epoch_follow(s->next_epoch, s->epoch);
    return 0;
}

/* Keep it at hand: the most recently used. Takes a reference of its own. */
static void keep(struct store *s, struct epoch *e) REQUIRES(&s->epochs)
{
    struct epoch **v = realloc(s->old_epoch, (s->n_old_epoch + 1) * sizeof(struct epoch *));

    if (!v)
        return; /* it is loaded again when it is asked for */
    epoch_ref(e);
    s->old_epoch = v;
    v[s->n_old_epoch++] = e;
}

/* Forget those that nobody uses, the longest unused first, while they take more than their pool. */
static void shrink(struct store *s) REQUIRES(&s->epochs)
{
    uint64_t used = 0;
    uint32_t n = 0;

    for (uint32_t i = 0; i < s->n_old_epoch; i++)
        used += atomic_load(&s->old_epoch[i]->pool.used);
    for (uint32_t i = 0; i < s->n_old_epoch; i++) {
        struct epoch *e = s->old_epoch[i];

        if (used > s->conf.mem_dict && atomic_load(&e->refs) == 1) {
            used -= atomic_load(&e->pool.used);
            epoch_unref(e);
        } else {
            s->old_epoch[n++] = e;
        }
    }
    s->n_old_epoch = n;
}

void epoch_turned(struct store *s)
{
    const struct store_epoch over = {.id = s->epoch->id,
                                     .dict_id = s->dict ? dictfile_mark(s->dict).id : 0};

    (void)dictfile_close(s->dict);
    s->dict = s->next_dict;
    /* without memory its file is removed after the next start */
    (void)epoch_note_closed(s, &over);
    pool_count_in(&s->epoch->pool, NULL); /* from here on one of those at hand */
    mutex_lock(&s->epochs);
    keep(s, s->epoch);
    shrink(s);
    mutex_unlock(&s->epochs);
    epoch_unref(s->epoch);
    s->turned = mono_now();
    s->epoch = s->next_epoch;
    s->next_epoch = NULL;
    s->next_dict = NULL;
}

bool epoch_note_closed(struct store *s, const struct store_epoch *e)
{
    struct store_epoch *v;

    mutex_lock(&s->epochs);
    v = realloc(s->closed, (s->n_closed + 1) * sizeof *v);
    if (v) {
        s->closed = v;
        v[s->n_closed++] = *e;
    }
    mutex_unlock(&s->epochs);
    return v != NULL;
}

/* Which file the dictionary of a closed epoch is; 0: not known. */
static uint64_t dict_of(const struct store *s, uint32_t id) REQUIRES(&s->epochs)
{
    for (uint32_t i = 0; i < s->n_closed; i++) {
        if (s->closed[i].id == id)
            return s->closed[i].dict_id;
    }
    return 0;
}

static bool is_used(struct store *s, uint32_t id)
{
    struct source_list *l = source_list_get(s);
    bool yes = false;

    for (uint32_t i = 0; i < l->n; i++)
        yes |= l->item[i].epoch == id;
    source_list_unref(l);
    return yes;
}

/* True: its file is gone, and the catalog knows. */
static bool remove_epoch(struct store *s, const struct store_epoch *e)
{
    const struct catalog_epoch row = {.id = e->id, .t0 = e->t0, .state = CATALOG_EPOCH_GONE};
    const struct catalog_change c = {.n_epoch = 1, .epoch = &row};
    char name[DICTFILE_NAME];

    if (catalog_commit(s->catalog, &c, NULL) != 0)
        return false;
    dictfile_name(name, e->id);
    db_remove(s->dir, name);
    return true;
}

static void remove_unused(struct store *s)
{
    int64_t keep_ns = store_tuning.epoch_keep_ns ? store_tuning.epoch_keep_ns : KEEP_NS;
    mono_ns now = mono_now();
    uint32_t n = 0;

    for (uint32_t i = 0; i < s->n_closed; i++) {
        struct store_epoch e = s->closed[i];

        if (is_used(s, e.id))
            e.unused = (mono_ns){};
        else if (!e.unused.v)
            e.unused = now;
        else if (now.v - e.unused.v >= keep_ns && remove_epoch(s, &e))
            continue;
        mutex_lock(&s->epochs);
        s->closed[n++] = e;
        mutex_unlock(&s->epochs);
    }
    mutex_lock(&s->epochs);
    s->n_closed = n;
    mutex_unlock(&s->epochs);
}

void epoch_settle(struct store *s)
{
    if (mono_now().v - s->turned.v >= BEFORE_NS)
        epoch_forget(s->epoch);
    remove_unused(s);
}

/* ---- older ones ---------------------------------------------------------------------------- */

static struct epoch *find(struct store *s, uint32_t id) REQUIRES(&s->epochs)
{
    for (uint32_t i = 0; i < s->n_old_epoch; i++) {
        struct epoch *e = s->old_epoch[i];

        if (e->id != id)
            continue;
        memmove(s->old_epoch + i, s->old_epoch + i + 1,
                (s->n_old_epoch - i - 1) * sizeof(struct epoch *));
        s->old_epoch[s->n_old_epoch - 1] = e;
        epoch_ref(e);
        return e;
    }
    return NULL;
}

/* It names stacks of another store otherwise. dict_id 0: not known which it is. */
static bool is_listed_file(const struct epoch *e, uint64_t dict_id, struct err *err)
{
    if (dict_id && e->file_id != dict_id)
        (void)err_set(err, -ESTALE, "dict/%" PRIu32 ".db: is another file than the catalog says",
                      e->id);
    return !dict_id || e->file_id == dict_id;
}

struct epoch_load {
    uint32_t id;
    struct epoch_load *next;
};

static bool is_loading(const struct store *s, uint32_t id) REQUIRES(&s->epochs)
{
    for (const struct epoch_load *l = s->epoch_load; l; l = l->next) {
        if (l->id == id)
            return true;
    }
    return false;
}

static struct epoch *load_old(struct store *s, uint32_t id, uint64_t dict_id, struct err *err)
{
    struct epoch *e = epoch_new(id, s->seed, store_trie_nodes());

    atomic_fetch_add(&s->epoch_loads, 1);
    if (!e) {
        (void)err_set(err, -ENOMEM, "epoch %u: memory is short", id);
        return NULL;
    }
    if (dictfile_load(s->dir, store_tuning.vfs, DICTFILE_READ, e, NULL, err) >= 0 &&
        is_listed_file(e, dict_id, err))
        return e;
    epoch_unref(e);
    return NULL;
}

/* The workers of a query come for the same one at once: the first loads it, the others wait. */
struct epoch *epoch_get(struct store *s, uint32_t id, struct err *err)
{
    struct epoch_load load = {.id = id}, **at = &s->epoch_load;
    struct epoch *e;
    uint64_t dict_id;

    mutex_lock(&s->epochs);
    while (!(e = find(s, id)) && is_loading(s, id))
        cond_wait(&s->epoch_loaded, &s->epochs);
    if (e) {
        mutex_unlock(&s->epochs);
        return e;
    }
    load.next = s->epoch_load;
    s->epoch_load = &load;
    dict_id = dict_of(s, id);
    mutex_unlock(&s->epochs);
    e = load_old(s, id, dict_id, err);
    mutex_lock(&s->epochs);
    while (*at != &load)
        at = &(*at)->next;
    *at = load.next;
    if (e)
        keep(s, e);
    shrink(s);
    cond_broadcast(&s->epoch_loaded);
    mutex_unlock(&s->epochs);
    return e;
}

uint64_t epochs_bytes(struct store *s)
{
    uint64_t n = 0;

    mutex_lock(&s->epochs);
    for (uint32_t i = 0; i < s->n_old_epoch; i++)
        n += atomic_load(&s->old_epoch[i]->pool.used);
    mutex_unlock(&s->epochs);
    return n;
}

struct epoch *epoch_get_whole(struct store *s, uint32_t id, struct err *err)
{
    struct epoch *e = epoch_new(id, s->seed, store_trie_nodes());
    struct dictfile *f = NULL;
    uint64_t dict_id;
    int r;

    if (!e) {
        (void)err_set(err, -ENOMEM, "epoch %u: memory is short", id);
        return NULL;
    }
    r = dictfile_load(s->dir, store_tuning.vfs, DICTFILE_APPEND, e, &f, err);
    (void)dictfile_close(f);
    mutex_lock(&s->epochs);
    dict_id = dict_of(s, id);
    mutex_unlock(&s->epochs);
    if (r >= 0 && is_listed_file(e, dict_id, err))
        return e;
    epoch_unref(e);
    return NULL;
}

void epochs_close(struct store *s)
{
    for (uint32_t i = 0; i < s->n_old_epoch; i++)
        epoch_unref(s->old_epoch[i]);
    free(s->old_epoch);
    s->dict = dictfile_close(s->dict);
    s->next_dict = dictfile_close(s->next_dict);
    epoch_unref(s->epoch);
    epoch_unref(s->next_epoch);
}

/* ---- opening ------------------------------------------------------------------------------- */

void epoch_mark(struct catalog_state *state, const struct dictfile *f)
{
    const struct dictfile_mark m = f ? dictfile_mark(f) : (struct dictfile_mark){};

    state->dict_id = m.id;
    state->dict_n = m.n;
}

/*
 * Is this the dictionary that the catalog was committed beside? What is behind it may have more.
 * One that has less would give numbers of stacks that parts use to other stacks.
 */
static int is_ours(const struct store *s, uint32_t id, struct err *err)
{
    const struct dictfile_mark m = dictfile_mark(s->dict);

    if (s->cat.dict_id == 0)
        return 0;
    if (m.id != s->cat.dict_id)
        return err_set(err, -ESTALE, "dict/%" PRIu32 ".db: is another file than the catalog says",
                       id);
    if (m.n < s->cat.dict_n)
        return err_set(err, -EBADMSG,
                       "dict/%" PRIu32 ".db: is as it was earlier: it has %" PRIu64
                       " entries, the catalog says %" PRIu64,
                       id, m.n, s->cat.dict_n);
    return 0;
}

/* It names stacks of another store: nothing here may be read by it. */
static void set_aside(const struct store *s, uint32_t id)
{
    int to = store_quarantine(s);
    char name[DICTFILE_NAME], file[64];

    if (to < 0)
        return;
    dictfile_name(name, id);
    (void)snprintf(file, sizeof file, "dict-%" PRIu32 ".db.%" PRId64, id,
                   store_now(s).v / NS_PER_S);
    if (renameat(s->dir_fd, name, to, file) == 0)
        db_remove(s->dir, name); /* what SQLite kept beside it */
    (void)close(to);
}

/* Written down at once: nothing was added to the one before that is not in its file. */
static int begin(struct store *s, uint32_t id, uint32_t before, real_ns before_t0, struct err *err)
{
    const struct catalog_epoch row[2] = {
        {.id = id, .t0 = store_now(s), .state = CATALOG_EPOCH_CURRENT},
        {.id = before, .t0 = before_t0, .state = CATALOG_EPOCH_CLOSED, .dict_id = s->cat.dict_id}};
    struct catalog_state state = s->cat;
    const struct catalog_change c = {.n_epoch = before ? 2 : 1, .epoch = row, .state = &state};

    TRY(make(s, id, &s->epoch, &s->dict, err));
    epoch_mark(&state, s->dict);
    TRY(catalog_commit(s->catalog, &c, err));
    s->cat = state;
    s->epoch_t0 = row[0].t0;
    return 0;
}

int epoch_open(struct store *s, uint32_t id, real_ns t0, uint32_t next, struct err *err)
{
    struct epoch *e;
    int r;

    if (id == 0)
        return begin(s, next, 0, (real_ns){}, err);
    e = epoch_new(id, s->seed, store_trie_nodes());
    if (!e)
        return err_set(err, -ENOMEM, "epoch: memory is short");
    r = dictfile_load(s->dir, store_tuning.vfs, DICTFILE_APPEND, e, &s->dict, err);
    if (r == 0 && (r = is_ours(s, id, err)) != 0) {
        s->dict = dictfile_close(s->dict);
        if (r == -ESTALE)
            set_aside(s, id);
    }
    if (r == 0) {
        dictfile_checkpoint(s->dict); /* what a failed sync left is written anew */
        pool_count_in(&e->pool, &s->mem_used);
        s->epoch = e;
        s->epoch_t0 = t0;
        return 0;
    }
    epoch_unref(e);
    if (r == -ENOMEM || r == -EPROTO)
        return r;
    TRY(begin(s, next, id, t0, NULL));
    return STORE_PARTIAL; /* err says what of the old one is damaged */
}
