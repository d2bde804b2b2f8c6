// SPDX-License-Identifier: Apache-2.0
#include <string.h>

#include "storage/local_private.h"

#define NONE UINT32_MAX

static uint32_t *none(struct arena *a, uint32_t n)
{
    uint32_t *v = arena_array(a, uint32_t, n);

    if (v)
        memset(v, 0xff, n * sizeof *v);
    return v;
}

bool local_copy_begin(struct local_copy *c, struct local *to, const struct local *from,
                      struct local_snap n, struct arena *arena)
{
    *c = (struct local_copy){.to = to,
                             .from = from,
                             .n = n,
                             .text = none(arena, texts_n(&from->text)),
                             .target = none(arena, n.target),
                             .thread = none(arena, n.thread),
                             .scope = none(arena, n.scope),
                             .mseries = none(arena, n.mseries)};
    if (!c->text || !c->target || !c->thread || !c->scope || !c->mseries)
        return false;
    c->text[0] = c->target[0] = c->thread[0] = c->scope[0] = c->mseries[0] = 0;
    return true;
}

uint32_t local_copy_text(struct local_copy *c, uint32_t text)
{
    if (c->text[text] == NONE)
        c->text[text] = text_id(&c->to->text, local_str(c->from, text));
    return c->text[text];
}

/* The newest version that the snapshot knows. */
static bool copy_info(struct local_copy *c, const struct local_target *t, uint32_t to)
{
    uint32_t i = atomic_load_explicit(&t->info, memory_order_acquire);
    struct local_info info;

    while (i > c->n.info)
        i = VEC(&c->from->info, struct local_info, i - 1)->prev;
    if (i == 0)
        return true;
    info = *VEC(&c->from->info, struct local_info, i - 1);
    info.exe = local_copy_text(c, info.exe);
    info.cmdline = local_copy_text(c, info.cmdline);
    info.comm = local_copy_text(c, info.comm);
    info.cgroup = local_copy_text(c, info.cgroup);
    info.container = local_copy_text(c, info.container);
    return info.exe != NONE && info.cmdline != NONE && info.comm != NONE && info.cgroup != NONE &&
           info.container != NONE && local_add_info(c->to, to, &info);
}

uint32_t local_copy_target(struct local_copy *c, uint32_t target)
{
    const struct local_target *t = TABLE(&c->from->target, struct local_target, target);
    uint32_t to;

    if (c->target[target] != NONE)
        return c->target[target];
    to = local_target_of(c->to, &t->key);
    if (to == NONE || !copy_info(c, t, to))
        return NONE;
    return c->target[target] = to;
}

uint32_t local_copy_thread(struct local_copy *c, uint32_t thread)
{
    const struct local_thread *t = TABLE(&c->from->thread, struct local_thread, thread);
    uint32_t target, name;

    if (c->thread[thread] != NONE)
        return c->thread[thread];
    target = local_copy_target(c, t->target);
    name = local_copy_text(c, t->name);
    if (target == NONE || name == NONE)
        return NONE;
    return c->thread[thread] = local_thread_of(c->to, target, t->tid, name);
}

uint32_t local_copy_scope(struct local_copy *c, uint32_t scope)
{
    const struct local_scope *s = TABLE(&c->from->scope, struct local_scope, scope);
    uint32_t target;

    if (c->scope[scope] != NONE)
        return c->scope[scope];
    target = local_copy_target(c, s->target);
    if (target == NONE)
        return NONE;
    return c->scope[scope] = local_scope_of(c->to, s->type, s->labels, target);
}

bool local_copy_cover(struct local_copy *c, uint32_t i)
{
    struct local_cover v = *VEC(&c->from->cover, struct local_cover, i);
    uint32_t first = c->to->loss.n;

    for (uint32_t k = 0; k < v.n_loss; k++) {
        struct local_loss l = *VEC(&c->from->loss, struct local_loss, v.loss + k);

        l.why = local_copy_text(c, l.why);
        if (l.why == NONE || !local_add_loss(c->to, &l))
            return false;
    }
    v.loss = first;
    v.scope = local_copy_scope(c, v.scope);
    v.why = local_copy_text(c, v.why);
    return v.scope != NONE && v.why != NONE && local_add_cover(c->to, &v);
}

static uint32_t copy_mseries(struct local_copy *c, uint32_t i)
{
    const struct local_mseries *s = TABLE(&c->from->mseries, struct local_mseries, i);
    struct local_mseries key = {.labels = s->labels, .kind = s->kind, .is_int = s->is_int};

    if (c->mseries[i] != NONE)
        return c->mseries[i];
    key.name = local_copy_text(c, s->name);
    key.unit = local_copy_text(c, s->unit);
    key.target = local_copy_target(c, s->target);
    if (key.name == NONE || key.unit == NONE || key.target == NONE)
        return NONE;
    return c->mseries[i] = local_mseries_of(c->to, &key);
}

bool local_copy_metric(struct local_copy *c, uint32_t i, uint32_t first, uint32_t n)
{
    struct local_metric m = *VEC(&c->from->metric, struct local_metric, i);
    bool ok = true;

    m.series = copy_mseries(c, m.series);
    m.n = n;
    m.t = local_keep(c->to, m.t + first, n * sizeof *m.t);
    ok = m.series != NONE && m.t;
    if (m.num) {
        m.num = local_keep(c->to, m.num + first, n * sizeof *m.num);
        ok = ok && m.num;
    }
    if (m.inum) {
        m.inum = local_keep(c->to, m.inum + first, n * sizeof *m.inum);
        ok = ok && m.inum;
    }
    if (m.status) {
        m.status = local_keep(c->to, m.status + first, n);
        ok = ok && m.status;
    }
    return ok && local_add_metric(c->to, &m);
}

bool local_copy_step(struct local_copy *c, uint32_t i)
{
    struct local_step s = *VEC(&c->from->step, struct local_step, i);
    uint32_t *part = pool_fixed(c->to->pool, 4 * (size_t)s.n_part);
    bool ok = part != NULL;

    for (uint32_t k = 0; ok && k < s.n_part; k++) {
        part[k] = local_copy_text(c, s.part[k]);
        ok = part[k] != NONE;
    }
    s.part = part;
    s.target = local_copy_target(c, s.target);
    s.name = local_copy_text(c, s.name);
    if (s.n_part) {
        s.part_ns = local_keep(c->to, s.part_ns, s.n_part * sizeof *s.part_ns);
        ok = ok && s.part_ns;
    }
    return ok && s.target != NONE && s.name != NONE && local_add_step(c->to, &s);
}

bool local_copy_event(struct local_copy *c, uint32_t i)
{
    struct local_event e = *VEC(&c->from->event, struct local_event, i);

    e.kind = local_copy_text(c, e.kind);
    e.text = local_copy_text(c, e.text);
    e.target = local_copy_target(c, e.target);
    return e.kind != NONE && e.text != NONE && e.target != NONE && local_add_event(c->to, &e);
}
