// SPDX-License-Identifier: Apache-2.0
/*
 * What a part takes from a source (a frozen head, or an older part): ids of the source become ids
 * of the part as they are met, so that a part holds what it uses and nothing else.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "storage/part/part_writer_private.h"

#define NONE UINT32_MAX

int part_no_memory(const struct part_writer *w, struct err *err)
{
    return err_set(err, -ENOMEM, "%s: memory is short", w->info.name);
}

bool marks_set(struct marks *m, uint32_t i)
{
    if (i >= m->n) {
        uint32_t n = m->n ? m->n : 64;
        bool *v;

        while (n <= i)
            n *= 2;
        v = mem_fail_now() ? NULL : realloc(m->v, n);
        if (!v)
            return false;
        memset(v + m->n, 0, n - m->n);
        m->v = v;
        m->n = n;
    }
    m->v[i] = true;
    return true;
}

void part_free_maps(struct part_writer *w)
{
    free(w->map_text);
    free(w->map_target);
    free(w->map_thread);
    w->map_text = w->map_target = w->map_thread = NULL;
}

void part_widen(struct part_writer *w, int64_t t0, int64_t t1)
{
    if (t0 < w->info.data.t0.v)
        w->info.data.t0.v = t0;
    if (t1 > w->info.data.t1.v)
        w->info.data.t1.v = t1;
}

/* ---- ids of the source --------------------------------------------------------------------- */

static uint32_t *new_map(uint32_t n)
{
    uint32_t *v = mem_fail_now() ? NULL : malloc((size_t)(n ? n : 1) * sizeof *v);

    if (v)
        memset(v, 0xff, (size_t)n * sizeof *v);
    if (v && n > 0)
        v[0] = 0;
    return v;
}

int part_source(struct part_writer *w, const struct local *src, const struct local_snap *snap,
                struct err *err)
{
    part_free_maps(w);
    w->src = src;
    w->snap = *snap;
    /* texts have no length of their own in a snapshot: those that the rest refers to exist */
    w->map_text = new_map(texts_n(&src->text));
    w->map_target = new_map(snap->target);
    w->map_thread = new_map(snap->thread);
    return w->map_text && w->map_target && w->map_thread ? 0 : part_no_memory(w, err);
}

static uint32_t text_of_part(struct part_writer *w, uint32_t text)
{
    uint32_t *to = &w->map_text[text];

    if (*to == NONE)
        *to = text_id(&w->out.text, local_str(w->src, text));
    return *to;
}

/* What was known of the target by the time of the snapshot. */
static bool copy_info(struct part_writer *w, const struct local_target *t, uint32_t to)
{
    uint32_t i = atomic_load_explicit(&t->info, memory_order_acquire);
    const struct local_info *from;
    struct local_info info;

    while (i > w->snap.info)
        i = VEC(&w->src->info, struct local_info, i - 1)->prev;
    if (i == 0)
        return true;
    from = VEC(&w->src->info, struct local_info, i - 1);
    info = (struct local_info){.exe = text_of_part(w, from->exe),
                               .cmdline = text_of_part(w, from->cmdline),
                               .comm = text_of_part(w, from->comm),
                               .cgroup = text_of_part(w, from->cgroup),
                               .container = text_of_part(w, from->container),
                               .env = from->env,
                               .flags = from->flags};
    return info.exe != NONE && info.cmdline != NONE && info.comm != NONE && info.cgroup != NONE &&
           info.container != NONE && marks_set(&w->labels, info.env) &&
           local_add_info(&w->out, to, &info);
}

static uint32_t target_of_part(struct part_writer *w, uint32_t target)
{
    uint32_t *to = &w->map_target[target];
    const struct local_target *t;

    if (*to != NONE)
        return *to;
    t = TABLE(&w->src->target, struct local_target, target);
    *to = local_target_of(&w->out, &t->key);
    if (*to != NONE && !copy_info(w, t, *to))
        *to = NONE;
    return *to;
}

uint32_t part_thread(struct part_writer *w, uint32_t thread)
{
    uint32_t *to = &w->map_thread[thread], target, name;
    const struct local_thread *t;

    if (*to != NONE)
        return *to;
    t = TABLE(&w->src->thread, struct local_thread, thread);
    target = target_of_part(w, t->target);
    name = text_of_part(w, t->name);
    if (target == NONE || name == NONE)
        return NONE;
    return *to = local_thread_of(&w->out, target, t->tid, name);
}

uint32_t part_scope(struct part_writer *w, uint32_t scope)
{
    const struct local_scope *sc = TABLE(&w->src->scope, struct local_scope, scope);
    uint32_t target = scope ? target_of_part(w, sc->target) : 0;

    if (scope == 0)
        return 0;
    if (target == NONE || !marks_set(&w->labels, sc->labels) || !marks_set(&w->ptype, sc->type))
        return NONE;
    return local_scope_of(&w->out, sc->type, sc->labels, target);
}

/* ---- records ------------------------------------------------------------------------------- */

/* Records of a scope in range, newest first as they are chained: copied the other way round. */
static bool copy_losses(struct part_writer *w, const struct local_cover *c, struct local_cover *to)
{
    to->loss = w->out.loss.n;
    for (uint32_t i = 0; i < c->n_loss; i++) {
        struct local_loss l = *VEC(&w->src->loss, struct local_loss, c->loss + i);

        l.why = text_of_part(w, l.why);
        if (l.why == NONE || !local_add_loss(&w->out, &l))
            return false;
    }
    return true;
}

static bool copy_cover(struct part_writer *w, const struct local_cover *c, uint32_t scope)
{
    struct local_cover to = *c;

    to.scope = scope;
    to.why = text_of_part(w, c->why);
    if (to.why == NONE || !copy_losses(w, c, &to) ||
        (c->series && !marks_set(&w->series, c->series)))
        return false;
    part_widen(w, c->t.t0.v, c->t.t1.v > c->t.t0.v ? c->t.t1.v : c->t.t0.v + 1);
    return local_add_cover(&w->out, &to);
}

static bool copy_scope(struct part_writer *w, uint32_t id, struct interval range, uint32_t *order)
{
    const struct local *src = w->src;
    const struct local_scope *sc = TABLE(&src->scope, struct local_scope, id);
    uint32_t n = 0, i, scope;
    const struct local_cover *c = local_cover_last(src, w->snap.cover, sc, &i);

    for (; c; c = local_cover_prev(src, c, &i))
        if (interval_has(range, c->t.t0))
            order[n++] = i;
    if (n == 0)
        return true;
    scope = part_scope(w, id);
    if (scope == NONE)
        return false;
    while (n > 0)
        if (!copy_cover(w, VEC(&src->cover, struct local_cover, order[--n]), scope))
            return false;
    return true;
}

static bool copy_covers(struct part_writer *w, struct interval range)
{
    uint32_t *order = malloc(((size_t)w->snap.cover + 1) * sizeof *order);
    bool ok = order != NULL;

    for (uint32_t i = 1; ok && i < w->snap.scope; i++)
        ok = copy_scope(w, i, range, order);
    free(order);
    return ok;
}

static bool copy_points(struct part_writer *w, const struct local_metric *m, uint32_t series,
                        uint32_t from, uint32_t to)
{
    struct local *out = &w->out;
    const size_t n = to - from;
    struct local_metric p = {
        .series = series, .n = to - from, .t = local_keep(out, m->t + from, n * sizeof *m->t)};

    if (m->num)
        p.num = local_keep(out, m->num + from, n * sizeof *m->num);
    else
        p.inum = local_keep(out, m->inum + from, n * sizeof *m->inum);
    if (m->status)
        p.status = local_keep(out, m->status + from, n);
    if (!p.t || (m->num ? !p.num : !p.inum) || (m->status && !p.status))
        return false;
    for (uint32_t i = from; i < to; i++)
        part_widen(w, m->t[i].v, m->t[i].v + 1);
    return local_add_metric(out, &p);
}

static uint32_t mseries_of_part(struct part_writer *w, const struct local_mseries *s)
{
    struct local_mseries key = {.name = text_of_part(w, s->name),
                                .unit = text_of_part(w, s->unit),
                                .labels = s->labels,
                                .target = target_of_part(w, s->target),
                                .kind = s->kind,
                                .is_int = s->is_int};

    if (key.name == NONE || key.unit == NONE || key.target == NONE ||
        !marks_set(&w->labels, s->labels))
        return NONE;
    return local_mseries_of(&w->out, &key);
}

/* Runs of points in range. */
static bool copy_metric(struct part_writer *w, const struct local_metric *m, struct interval range)
{
    uint32_t series = NONE;

    for (uint32_t i = 0, k; i < m->n; i = k) {
        k = i;
        while (k < m->n && interval_has(range, m->t[k]))
            k++;
        if (k == i) {
            k++;
            continue;
        }
        if (series == NONE)
            series = mseries_of_part(w, TABLE(&w->src->mseries, struct local_mseries, m->series));
        if (series == NONE || !copy_points(w, m, series, i, k))
            return false;
    }
    return true;
}

static bool copy_step(struct part_writer *w, const struct local_step *s)
{
    struct local *out = &w->out;
    struct local_step to = *s;
    uint32_t *part = s->n_part ? pool_fixed(&w->pool, s->n_part * sizeof *part) : NULL;

    if (s->n_part && !part)
        return false;
    for (uint32_t i = 0; i < s->n_part; i++) {
        part[i] = text_of_part(w, s->part[i]);
        if (part[i] == NONE)
            return false;
    }
    to.part = part;
    to.part_ns = local_keep(out, s->part_ns, s->n_part * sizeof *s->part_ns);
    to.target = target_of_part(w, s->target);
    to.name = text_of_part(w, s->name);
    if (to.target == NONE || to.name == NONE || (s->n_part && !to.part_ns) ||
        !marks_set(&w->labels, s->labels))
        return false;
    part_widen(w, s->t.t0.v, s->t.t1.v > s->t.t0.v ? s->t.t1.v : s->t.t0.v + 1);
    return local_add_step(out, &to);
}

static bool copy_event(struct part_writer *w, const struct local_event *e)
{
    struct local_event to = {.t = e->t,
                             .kind = text_of_part(w, e->kind),
                             .text = text_of_part(w, e->text),
                             .target = target_of_part(w, e->target)};

    if (to.kind == NONE || to.text == NONE || to.target == NONE)
        return false;
    part_widen(w, e->t.v, e->t.v + 1);
    return local_add_event(&w->out, &to);
}

int part_put_local(struct part_writer *w, struct interval range, struct err *err)
{
    const struct local *src = w->src;
    bool ok = copy_covers(w, range);

    for (uint32_t i = 0; ok && i < w->snap.metric; i++)
        ok = copy_metric(w, VEC(&src->metric, struct local_metric, i), range);
    for (uint32_t i = 0; ok && i < w->snap.step; i++) {
        const struct local_step *s = VEC(&src->step, struct local_step, i);

        ok = !interval_has(range, s->t.t0) || copy_step(w, s);
    }
    for (uint32_t i = 0; ok && i < w->snap.event; i++) {
        const struct local_event *e = VEC(&src->event, struct local_event, i);

        ok = !interval_has(range, e->t) || copy_event(w, e);
    }
    return ok ? 0 : part_no_memory(w, err);
}

/* ---- names of the catalog ------------------------------------------------------------------ */

/* Entries of one kind, 4,096 a row; each begins with by how much its id exceeds the one before. */
struct names_out {
    struct part_writer *w;
    const struct local_writer *lw;
    enum part_local_kind kind;
    uint32_t first, last, n; /* ids; entries in lw->tmp */
};

static int flush_names(struct names_out *o, struct err *err)
{
    const int64_t v[3] = {(int64_t)o->kind, o->first, o->n};

    if (o->n == 0)
        return 0;
    TRY(chunk_put(o->lw, DB_LOCAL, o->w->local_st, v, 3, CELL_TEXT, err));
    o->n = 0;
    return 0;
}

static int next_name(struct names_out *o, uint32_t id, struct err *err)
{
    if (o->n == PART_CHUNK)
        TRY(flush_names(o, err));
    if (o->n == 0) {
        buf_reset(o->lw->tmp);
        o->first = o->last = id;
    }
    cell_varint(o->lw->tmp, id - o->last);
    o->last = id;
    o->n++;
    return 0;
}

static void put_text(struct buf *b, struct str s)
{
    cell_varint(b, s.n);
    buf_str(b, s);
}

static int put_series(struct part_writer *w, const struct local_writer *lw, struct err *err)
{
    struct names_out o = {.w = w, .lw = lw, .kind = PART_SERIES};

    for (uint32_t i = 1; i < w->series.n; i++) {
        const struct names_series *s;

        if (!w->series.v[i])
            continue;
        s = names_series(w->conf.names, i);
        if (!marks_set(&w->ptype, s->type) || !marks_set(&w->svc, s->svc) ||
            !marks_set(&w->labels, s->labels))
            return part_no_memory(w, err);
        TRY(next_name(&o, i, err));
        cell_varint(lw->tmp, s->type);
        cell_varint(lw->tmp, s->svc);
        cell_varint(lw->tmp, s->labels);
    }
    return flush_names(&o, err);
}

static int put_labelsets(struct part_writer *w, const struct local_writer *lw, struct err *err)
{
    struct names_out o = {.w = w, .lw = lw, .kind = PART_LABELSET};

    for (uint32_t i = 1; i < w->labels.n; i++) {
        const struct names_labels *l;

        if (!w->labels.v[i])
            continue;
        l = names_labels(w->conf.names, i);
        TRY(next_name(&o, i, err));
        labels_put(lw->tmp, l->n, l->v);
    }
    return flush_names(&o, err);
}

static int put_services(struct part_writer *w, const struct local_writer *lw, struct err *err)
{
    struct names_out o = {.w = w, .lw = lw, .kind = PART_SVC};

    for (uint32_t i = 1; i < w->svc.n; i++) {
        if (!w->svc.v[i])
            continue;
        TRY(next_name(&o, i, err));
        put_text(lw->tmp,
                 names_str(w->conf.names, TABLE(&w->conf.names->svc, struct names_svc, i)->name));
    }
    return flush_names(&o, err);
}

/* Built-in types too: a program to come may not know them any more. */
static int put_ptypes(struct part_writer *w, const struct local_writer *lw, struct err *err)
{
    struct names_out o = {.w = w, .lw = lw, .kind = PART_PTYPE};

    for (uint32_t i = 1; i < w->ptype.n; i++) {
        struct store_type t;

        if (!w->ptype.v[i] || !names_type_info(w->conf.names, UINT32_MAX, i, &t))
            continue;
        TRY(next_name(&o, i, err));
        put_text(lw->tmp, t.name);
        put_text(lw->tmp, t.unit);
        cell_varint(lw->tmp, t.kind);
    }
    return flush_names(&o, err);
}

int part_put_names(struct part_writer *w, const struct local_writer *lw, struct err *err)
{
    TRY(put_series(w, lw, err)); /* marks the rest */
    TRY(put_labelsets(w, lw, err));
    TRY(put_services(w, lw, err));
    return put_ptypes(w, lw, err);
}
