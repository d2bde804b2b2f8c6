// SPDX-License-Identifier: Apache-2.0
/*
 * A seal: see seal_private.h. Writer thread; at opening and closing, when it does not run, the
 * thread that opens and closes.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "storage/catalog/catalog_private.h"
#include "storage/dict/dictfile_private.h"
#include "storage/file/db_private.h"
#include "storage/keep/seal_private.h"

#define SEAL_BYTES   (UINT64_C(64) << 20)
#define SEAL_JOURNAL (UINT64_C(256) << 20)
#define CHANGE_MEM   ((size_t)1 << 30)

uint64_t seal_part_id(struct store *s)
{
    return atomic_fetch_add(&s->next_part, 1);
}

static uint64_t head_bytes(struct store *s)
{
    struct source_list *l = source_list_get(s);
    uint64_t n = atomic_load(&l->item[l->n - 1].head->pool.used);

    source_list_unref(l);
    return n;
}

bool seal_due(struct store *s)
{
    uint64_t bytes = store_tuning.seal_bytes ? store_tuning.seal_bytes : SEAL_BYTES;
    int64_t ns = store_tuning.seal_ns ? store_tuning.seal_ns : s->conf.seal_ns;
    int64_t since = atomic_load(&s->unsealed_since);

    if (store_tuning.seal_asked)
        return false;
    if (s->frozen)
        return true; /* the last attempt failed */
    if (!since)
        return false;
    return head_bytes(s) >= bytes || atomic_load(&s->unsealed) >= SEAL_JOURNAL ||
           mono_now().v - since >= ns;
}

/* ---- freezing ------------------------------------------------------------------------------ */

static struct head *fresh_head(struct store *s, struct epoch *e)
{
    const struct head_conf conf = {
        .names = &s->names, .epoch = e, .stats = &s->stats, .seed = s->seed};
    struct head *h = head_new(&conf);

    if (h)
        pool_count_in(&h->pool, &s->mem_used);
    return h;
}

/* The list as it is, with one more head at its end. */
static struct source_list *list_with(struct store *s, struct head *fresh)
{
    struct source_list *old = source_list_get(s);
    struct source_list *l = source_list_new(fresh->epoch, old->n + 1);

    for (uint32_t i = 0; l && i < old->n; i++)
        source_list_add(l, &old->item[i]);
    if (l)
        source_list_add_head(l, fresh);
    source_list_unref(old);
    return l;
}

void seal_put_fresh(struct store *s)
{
    struct head *h = s->fresh;

    s->fresh = NULL;
    if (s->apply_failed) /* half a batch lies behind what the head shows: it cannot be sealed */
        return;
    (void)head_publish(h, s->head->snap.lsn); /* nothing of it is written yet: cannot fail */
    s->head = h;
    source_list_publish(s, s->fresh_list);
    s->fresh_list = NULL;
    atomic_store(&s->unsealed_since, 0);
}

/* Between two batches: by the apply thread, or here when it does not run. False: it may not be. */
static bool exchange(struct store *s, struct head *fresh, struct source_list *l)
{
    bool ok;

    mutex_lock(&s->apply_mu);
    s->fresh = fresh;
    s->fresh_list = l;
    if (!s->apply_runs)
        seal_put_fresh(s);
    cond_signal(&s->applied);
    while (s->fresh)
        cond_wait(&s->froze, &s->apply_mu);
    ok = !s->fresh_list;
    s->fresh_list = NULL;
    mutex_unlock(&s->apply_mu);
    if (!ok)
        source_list_unref(l);
    return ok;
}

/* The last head of the list becomes s->frozen. 1: there is nothing in it. */
static int freeze(struct store *s, struct err *err)
{
    struct source_list *l = source_list_get(s);
    struct head *old = l->item[l->n - 1].head, *fresh; /* the list is ours to change: it stays */
    uint64_t lsn;

    mutex_lock(&old->pool.mu);
    lsn = old->snap.lsn;
    mutex_unlock(&old->pool.mu);
    source_list_unref(l);
    if (lsn == s->cat.sealed_lsn)
        return 1;
    if (s->unread)
        return err_set(err, -EROFS, "read-only: %s", atomic_load(&s->state_why));
    TRY(epoch_turn(s, err));
    fresh = fresh_head(s, s->next_epoch ? s->next_epoch : s->epoch);
    l = fresh ? list_with(s, fresh) : NULL;
    if (l && exchange(s, fresh, l))
        s->frozen = old; /* the list holds it, and the fresh one */
    head_unref(fresh);
    return s->frozen ? 0 : err_set(err, -ENOMEM, "seal: memory is short");
}

/* ---- parts that are damaged ---------------------------------------------------------------- */

#define BAD_ROWS 3u /* a part with so many is not read any more */

int seal_note_bad(struct store *s, const struct part_info *part, const char *what, struct err *err)
{
    struct part_info row = *part;
    const struct catalog_damage d = {.at = store_now(s),
                                     .part = part->id,
                                     .t = part->data,
                                     .n = part->rows,
                                     .what = str_c(what)};
    const struct catalog_change c = {.n_part = 1, .part = &row, .n_damage = 1, .damage = &d};

    row.state = PART_QUARANTINED;
    return catalog_commit(s->catalog, &c, err);
}

void seal_look_at_parts(struct store *s)
{
    struct source_list *l = source_list_get(s);

    for (uint32_t i = 0; i < l->n && l->item[i].part; i++) {
        struct part *p = l->item[i].part;
        bool meta = atomic_load(&p->loaded) == 2 && p->err.code == -EBADMSG;
        char what[PART_NAME + 64];

        if (p->info.state != PART_SEALED || (!meta && atomic_load(&p->bad) < BAD_ROWS))
            continue;
        (void)snprintf(what, sizeof what, "%s: damaged", p->info.name);
        if (seal_note_bad(s, &p->info, what, NULL) == 0)
            p->info.state = PART_QUARANTINED; /* read by this thread alone */
    }
    source_list_unref(l);
}

/* ---- parts that are gone ------------------------------------------------------------------- */

bool seal_note_gone(struct store *s, const struct part_info *part)
{
    struct part_info *v = realloc(s->gone, (s->n_gone + 1) * sizeof *v);

    if (!v)
        return false;
    s->gone = v;
    v[s->n_gone++] = *part;
    return true;
}

/* What a replay found: the files that show it go. */
static bool change_damage(const struct store *s, struct arena *a, struct catalog_change *c)
{
    uint32_t n = s->n_lost - s->lost_from;
    struct catalog_damage *d = arena_array(a, struct catalog_damage, n);

    for (uint32_t i = 0; d && i < n; i++) {
        const struct store_lost *l = &s->lost[s->lost_from + i];

        d[c->n_damage++] = (struct catalog_damage){.at = store_now(s), .t = l->t, .what = l->what};
    }
    c->damage = d;
    return d != NULL;
}

/* Rows whose file is unlinked. False: memory is short. */
static bool change_gone(const struct store *s, struct arena *a, struct catalog_change *c)
{
    uint64_t *id = arena_array(a, uint64_t, s->n_gone);

    for (uint32_t i = 0; id && i < s->n_gone; i++) {
        if (faccessat(s->dir_fd, s->gone[i].name, F_OK, 0) != 0)
            id[c->n_gone++] = s->gone[i].id;
    }
    c->gone = id;
    return id != NULL;
}

static void told_gone(struct store *s, const struct catalog_change *c)
{
    uint32_t n = 0, k = 0;

    for (uint32_t i = 0; i < s->n_gone; i++) { /* both in one order */
        if (k < c->n_gone && s->gone[i].id == c->gone[k])
            k++;
        else
            s->gone[n++] = s->gone[i];
    }
    s->n_gone = n;
}

/* ---- the catalog's transaction ------------------------------------------------------------- */

static bool change_names(const struct store *s, const struct names_snap *to, struct arena *a,
                         struct catalog_change *c)
{
    const struct names *n = &s->names;
    const struct names_snap *from = &s->cat_names;
    struct catalog_svc *svc = arena_array(a, struct catalog_svc, to->svc - from->svc);
    struct catalog_ptype *ptype = arena_array(a, struct catalog_ptype, to->ptype - from->ptype);
    struct catalog_labelset *set =
        arena_array(a, struct catalog_labelset, to->labels - from->labels);
    struct catalog_series *series =
        arena_array(a, struct catalog_series, to->series - from->series);

    if (!svc || !ptype || !set || !series)
        return false;
    for (uint32_t i = from->svc; i < to->svc; i++)
        svc[c->n_svc++] =
            (struct catalog_svc){i, names_str(n, TABLE(&n->svc, struct names_svc, i)->name)};
    for (uint32_t i = from->ptype; i < to->ptype; i++) {
        const struct names_ptype *t = TABLE(&n->ptype, struct names_ptype, i);

        ptype[c->n_ptype++] =
            (struct catalog_ptype){t->id, names_str(n, t->name), names_str(n, t->unit), t->kind};
    }
    for (uint32_t i = from->labels; i < to->labels; i++) {
        const struct names_labels *l = names_labels(n, i);

        set[c->n_labelset++] = (struct catalog_labelset){i, l->n, l->v};
    }
    for (uint32_t i = from->series; i < to->series; i++) {
        const struct names_series *x = names_series(n, i);

        series[c->n_series++] = (struct catalog_series){i, x->type, x->svc, x->labels, x->overflow};
    }
    c->svc = svc;
    c->ptype = ptype;
    c->labelset = set;
    c->series = series;
    return true;
}

/* *ret_forgot: how many of those forgotten it knows of. */
static bool change_senders(struct store *s, uint64_t lsn, struct arena *a, struct catalog_change *c,
                           uint32_t *ret_forgot)
{
    bool ok;

    mutex_lock(&s->admit);
    *ret_forgot = s->identity.n_forgot;
    ok = identity_export(&s->identity, s->cat.sealed_lsn, lsn, a, c);
    mutex_unlock(&s->admit);
    return ok;
}

static bool change_epochs(const struct store *s, struct arena *a, struct catalog_change *c)
{
    struct catalog_epoch *e;

    if (!s->next_epoch)
        return true;
    e = arena_array(a, struct catalog_epoch, 2);
    if (!e)
        return false;
    e[0] = (struct catalog_epoch){.id = s->epoch->id,
                                  .t0 = s->epoch_t0,
                                  .state = CATALOG_EPOCH_CLOSED,
                                  .dict_id = s->dict ? dictfile_mark(s->dict).id : 0};
    e[1] = (struct catalog_epoch){
        .id = s->next_epoch->id, .t0 = store_now(s), .state = CATALOG_EPOCH_CURRENT};
    c->epoch = e;
    c->n_epoch = 2;
    return true;
}

void seal_doubt(struct store *s, const struct part_info *part, uint32_t n)
{
    struct part_info *v = realloc(s->doubt, (s->n_doubt + n) * sizeof *v);

    if (!v)
        return; /* the next start finds them */
    s->doubt = v;
    memcpy(v + s->n_doubt, part, n * sizeof *v);
    s->n_doubt += n;
}

/* What a commit that succeeded makes certain. */
static void settle(struct store *s, const struct catalog_state *state)
{
    s->cat = *state;
    for (uint32_t i = 0; i < s->n_doubt; i++)
        db_remove(s->dir, s->doubt[i].name);
    s->n_doubt = 0;
}

static int commit(struct store *s, const struct seal_parts *parts, struct arena *a, struct err *err)
{
    const struct head_snap *snap = &s->frozen->snap;
    struct catalog_state state = s->cat;
    struct catalog_change c = {.n_part = parts->n, .part = parts->v, .state = &state};
    uint32_t forgot;
    int r;

    state.sealed_lsn = snap->lsn;
    state.next_seal++;
    state.next_part = atomic_load(&s->next_part);
    epoch_mark(&state, s->next_dict ? s->next_dict : s->dict);
    mutex_lock(&s->upkeep);
    state.next_journal = s->next_number;
    mutex_unlock(&s->upkeep);
    if (!change_names(s, &snap->names, a, &c) || !change_senders(s, snap->lsn, a, &c, &forgot) ||
        !change_epochs(s, a, &c) || !change_gone(s, a, &c) || !change_damage(s, a, &c))
        return err_set(err, -ENOMEM, "seal: memory is short");
    r = catalog_commit(s->catalog, &c, err);
    if (r == 0) {
        mutex_lock(&s->admit);
        identity_told(&s->identity, forgot);
        mutex_unlock(&s->admit);
        told_gone(s, &c);
        s->lost_from = s->n_lost;
        if (c.n_epoch == 2)
            s->epoch_t0 = c.epoch[1].t0;
        settle(s, &state);
        s->cat_names = snap->names;
        parts_know(s->parts, &s->cat_names);
    }
    return r;
}

/* ---- afterwards ---------------------------------------------------------------------------- */

/* By period, then id; heads stay behind. */
static int by_period(const void *a, const void *b)
{
    const struct source_item *x = a, *y = b;
    int r = real_ns_cmp(x->part->info.period.t0, y->part->info.period.t0);

    return r ? r : (x->part->info.id > y->part->info.id) - (x->part->info.id < y->part->info.id);
}

struct source_list *seal_list(struct store *s, struct part *const *drop, uint32_t n_drop,
                              struct part *const *add, uint32_t n_add, const struct head *frozen)
{
    struct source_list *old = source_list_get(s);
    struct source_list *l = source_list_new(old->epoch, old->n + n_add);
    uint32_t k = 0;

    for (uint32_t i = 0; l && i < old->n && old->item[i].part; i++) {
        bool dropped = false;

        for (uint32_t d = 0; d < n_drop; d++)
            dropped |= old->item[i].part == drop[d];
        if (!dropped)
            source_list_add(l, &old->item[i]);
    }
    for (uint32_t i = 0; l && i < n_add; i++)
        source_list_add_part(l, add[i]);
    if (l && l->n > 1)
        qsort(l->item, l->n, sizeof *l->item, by_period);
    for (k = 0; k < old->n && old->item[k].part; k++)
        ;
    for (; l && k < old->n; k++) {
        if (old->item[k].head != frozen)
            source_list_add(l, &old->item[k]);
    }
    source_list_unref(old);
    return l;
}

struct made {
    struct part **part;
    struct source_list *list;
};

/* What the swap needs, before the commit: afterwards nothing may fail. */
static int prepare(struct store *s, const struct seal_parts *parts, struct made *m, struct err *err)
{
    bool ok;

    m->part = calloc(parts->n + 1, sizeof(struct part *));
    ok = m->part != NULL;
    for (uint32_t i = 0; ok && i < parts->n; i++) {
        m->part[i] = part_new(s->parts, &parts->v[i]);
        ok = m->part[i] != NULL;
    }
    m->list = ok ? seal_list(s, NULL, 0, m->part, parts->n, s->frozen) : NULL;
    return m->list ? 0 : err_set(err, -ENOMEM, "seal: memory is short");
}

static void forget(const struct seal_parts *parts, struct made *m)
{
    source_list_unref(m->list);
    for (uint32_t i = 0; m->part && i < parts->n; i++)
        (void)part_unref(m->part[i]); /* the list holds them, or nobody */
    free(m->part);
}

static void done(struct store *s, struct made *m)
{
    atomic_fetch_sub(&s->unsealed, s->frozen->payload);
    atomic_fetch_add(&s->seals, 1);
    source_list_publish(s, m->list); /* the head is gone with its last view */
    m->list = NULL;
    if (s->next_epoch)
        epoch_turned(s);
    epoch_settle(s);
    s->frozen = NULL;
    atomic_store(&s->sealed_lsn, s->cat.sealed_lsn);
    mutex_lock(&s->upkeep); /* journals may go */
    cond_broadcast(&s->upkeep_cond);
    mutex_unlock(&s->upkeep);
}

/* Steps 2 to 5. */
static int seal_frozen(struct store *s, struct err *err)
{
    struct seal_parts parts;
    struct made m = {};
    struct arena a;
    int r;

    TRY(dictfile_append(s->dict, s->epoch, err));
    TRY(seal_write(s, s->frozen, &parts, err));
    arena_init(&a, CHANGE_MEM);
    r = prepare(s, &parts, &m, err);
    if (r != 0) {
        forget(&parts, &m);
        seal_discard(s, &parts);
        arena_deinit(&a);
        return r;
    }
    r = commit(s, &parts, &a, err);
    if (r == 0)
        done(s, &m);
    else
        seal_doubt(s, parts.v, parts.n);
    forget(&parts, &m);
    free(parts.v);
    arena_deinit(&a);
    return r;
}

int seal(struct store *s, struct err *err)
{
    struct epoch *e;
    int r = s->frozen ? 0 : freeze(s, err);

    if (r != 0)
        return r < 0 ? r : 0;
    e = s->epoch;
    epoch_ref(e);
    pool_enter(&s->names.pool);
    pool_enter(&e->pool);
    r = seal_frozen(s, err);
    pool_leave(&e->pool);
    pool_leave(&s->names.pool);
    epoch_unref(e);
    /* also where there was no room: the frames of what failed would keep all that there is, and the
     * journal could not go on */
    if (r == 0 || r == -ENOSPC) {
        dictfile_checkpoint(s->dict);
        catalog_checkpoint(s->catalog);
    }
    return r;
}

/* ---- exchanging parts ---------------------------------------------------------------------- */

struct swap {
    struct part *const *in;
    uint32_t n;
    const struct part_info *out;
};

static bool is_listed(struct store *s, const struct part *p)
{
    struct source_list *l = source_list_get(s);
    bool yes = false;

    for (uint32_t i = 0; i < l->n; i++)
        yes |= l->item[i].part == p;
    source_list_unref(l);
    return yes;
}

/* Rows of the catalog: those that go, the one that comes. NULL: memory is short. */
static struct part_info *swap_rows(struct store *s, const struct swap *w)
{
    struct part_info *v = calloc(w->n + 1, sizeof *v);

    for (uint32_t i = 0; v && i < w->n; i++) {
        v[i] = w->in[i]->info;
        v[i].state = PART_GONE;
        if (!seal_note_gone(s, &v[i])) {
            free(v);
            return NULL;
        }
    }
    if (v && w->out)
        v[w->n] = *w->out;
    return v;
}

/* *ret_named: the commit was tried. */
static int swap(struct store *s, const struct swap *w, const struct part_info *row,
                struct part *out, bool *ret_named, struct err *err)
{
    struct source_list *l = seal_list(s, w->in, w->n, &out, out ? 1 : 0, NULL);
    struct catalog_state state = s->cat;
    const struct catalog_change c = {.n_part = w->n + (out ? 1 : 0), .part = row, .state = &state};
    int r;

    if (!l)
        return err_set(err, -ENOMEM, "parts: memory is short");
    state.next_part = atomic_load(&s->next_part);
    *ret_named = true;
    r = catalog_commit(s->catalog, &c, err);
    if (r != 0) {
        source_list_unref(l);
        return r;
    }
    settle(s, &state);
    for (uint32_t i = 0; i < w->n; i++)
        part_set_gone(w->in[i]);
    source_list_publish(s, l);
    return 0;
}

static int try_swap(struct store *s, const struct swap *w, bool *ret_named, struct err *err)
{
    struct part_info *row;
    struct part *out;
    int r;

    for (uint32_t i = 0; i < w->n; i++) {
        if (!is_listed(s, w->in[i]))
            return err_set(err, -ESTALE, "%s: replaced or expired meanwhile", w->in[i]->info.name);
    }
    row = swap_rows(s, w);
    out = row && w->out ? part_new(s->parts, w->out) : NULL;
    r = row && (out || !w->out) ? swap(s, w, row, out, ret_named, err)
                                : err_set(err, -ENOMEM, "parts: memory is short");
    (void)part_unref(out);
    free(row);
    return r;
}

static int swap_job(struct store *s, void *ctx, struct err *err)
{
    const struct swap *w = ctx;
    uint32_t n_gone = s->n_gone;
    bool named = false;
    int r = try_swap(s, w, &named, err);

    if (r == 0)
        return 0;
    s->n_gone = n_gone;
    if (w->out && named)
        seal_doubt(s, w->out, 1);
    else if (w->out)
        db_remove(s->dir, w->out->name);
    return r;
}

int seal_swap(struct store *s, struct part *const *in, uint32_t n, const struct part_info *out,
              struct err *err)
{
    struct swap w = {in, n, out};
    int r = writer_call(s, swap_job, &w, err);

    if (r == -ESHUTDOWN && out)
        db_remove(s->dir, out->name);
    return r;
}
