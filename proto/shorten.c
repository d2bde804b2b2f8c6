// SPDX-License-Identifier: Apache-2.0
/*
 * The short form. A node that the server holds stays only if a row or a new node points to it, as
 * its hash; frames, functions and binaries go with the nodes that need them. Texts are pointed to
 * from everywhere, so they keep their numbers: one that nobody needs becomes empty (two bytes), and
 * the end of the table is cut off.
 */
#include <assert.h>
#include <errno.h>

#include "base/arena.h"
#include "proto/wire.h"

struct shorten {
    const struct batch *b;
    struct arena *arena;
    struct batch *ret;
    uint8_t *held;   /* per node: the server has it */
    uint32_t *node;  /* per node: its new number; 0: left out, or the root */
    uint32_t *frame; /* likewise */
    uint32_t *fn, *bin;
    uint8_t *text; /* per text: needed */
};

static int no_room(struct err *err)
{
    return err_set(err, -ENOMEM, "short form: the arena is full");
}

/* Mark with 1 what is needed, then number it from first on; returns the next number. */
static uint32_t number_marked(uint32_t *v, uint32_t n, uint32_t first)
{
    for (uint32_t i = 1; i < n; i++) {
        if (v[i])
            v[i] = first++;
    }
    return first;
}

/* Known nodes that something points to come first, then the new ones, each in the old order. */
static int nodes(struct shorten *s, struct err *err)
{
    const struct batch *b = s->b;
    uint32_t at = 1, first_new;
    struct batch_node *node;

    for (uint32_t i = 0; i < b->n_stream; i++) {
        const struct batch_rows *r = &b->stream[i].rows;

        for (uint32_t k = 0; r->node && k < r->n; k++)
            s->node[r->node[k]] = 1;
    }
    for (uint32_t i = 1; i < b->n_node; i++) {
        if (!s->held[i])
            s->node[b->node[i].parent] = 1;
    }
    for (uint32_t i = 1; i < b->n_node; i++) {
        if (s->held[i] && s->node[i])
            s->node[i] = at++;
    }
    first_new = at;
    for (uint32_t i = 1; i < b->n_node; i++) {
        if (!s->held[i])
            s->node[i] = at++;
    }
    s->node[0] = 0;
    node = arena_array(s->arena, struct batch_node, at);
    if (!node)
        return no_room(err);
    for (uint32_t i = 1; i < b->n_node; i++) {
        const struct batch_node *from = &b->node[i];

        if (s->held[i] && s->node[i])
            node[s->node[i]].hash = from->hash;
        if (s->held[i])
            continue;
        s->frame[from->frame] = 1;
        node[s->node[i]] = (struct batch_node){s->node[from->parent], from->frame, from->hash};
    }
    s->ret->n_frame = number_marked(s->frame, b->n_frame, 1);
    for (uint32_t i = first_new; i < at; i++)
        node[i].frame = s->frame[node[i].frame];
    s->ret->node = node;
    s->ret->n_node = at;
    s->ret->n_known = first_new - 1;
    return 0;
}

static int frames(struct shorten *s, struct err *err)
{
    const struct batch *b = s->b;
    struct batch_frame *frame = arena_array(s->arena, struct batch_frame, s->ret->n_frame);
    struct batch_fn *fn;
    struct batch_bin *bin;

    if (!frame)
        return no_room(err);
    for (uint32_t i = 1; i < b->n_frame; i++) {
        if (!s->frame[i])
            continue;
        frame[s->frame[i]] = b->frame[i];
        s->fn[b->frame[i].fn] = 1;
        s->bin[b->frame[i].bin] = 1;
    }
    s->fn[0] = s->bin[0] = 0; /* "none" keeps number 0 */
    s->ret->n_fn = number_marked(s->fn, b->n_fn, 1);
    s->ret->n_bin = number_marked(s->bin, b->n_bin, 1);
    fn = arena_array(s->arena, struct batch_fn, s->ret->n_fn);
    bin = arena_array(s->arena, struct batch_bin, s->ret->n_bin);
    if (!fn || !bin)
        return no_room(err);
    for (uint32_t i = 1; i < s->ret->n_frame; i++) {
        frame[i].fn = s->fn[frame[i].fn];
        frame[i].bin = s->bin[frame[i].bin];
    }
    for (uint32_t i = 1; i < b->n_fn; i++) {
        if (s->fn[i])
            fn[s->fn[i]] = b->fn[i];
    }
    for (uint32_t i = 1; i < b->n_bin; i++) {
        if (s->bin[i])
            bin[s->bin[i]] = b->bin[i];
    }
    s->ret->frame = frame;
    s->ret->fn = fn;
    s->ret->bin = bin;
    return 0;
}

static int streams(struct shorten *s, struct err *err)
{
    const struct batch *b = s->b;
    struct batch_stream *st = arena_array(s->arena, struct batch_stream, b->n_stream);

    if (!st)
        return no_room(err);
    for (uint32_t i = 0; i < b->n_stream; i++) {
        const struct batch_rows *r = &b->stream[i].rows;
        uint32_t *node;

        st[i] = b->stream[i];
        if (!r->node || r->n == 0)
            continue;
        node = arena_array(s->arena, uint32_t, r->n);
        if (!node)
            return no_room(err);
        for (uint32_t k = 0; k < r->n; k++)
            node[k] = s->node[r->node[k]];
        st[i].rows.node = node;
    }
    s->ret->stream = st;
    return 0;
}

/* ---- texts --------------------------------------------------------------------------------- */

static void need(struct shorten *s, const uint32_t *v, size_t n)
{
    for (size_t i = 0; v && i < n; i++)
        s->text[v[i]] = 1;
}

static void need_labels(struct shorten *s, struct batch_labels l)
{
    need(s, l.pair, 2 * (size_t)l.n);
}

static void need_of_tables(struct shorten *s)
{
    const struct batch *b = s->ret;

    s->text[b->agent_version] = 1;
    need_labels(s, b->label);
    for (uint32_t i = 0; i < b->n_bin; i++)
        s->text[b->bin[i].path] = 1;
    for (uint32_t i = 0; i < b->n_fn; i++)
        s->text[b->fn[i].name] = s->text[b->fn[i].file] = 1;
    for (uint32_t i = 0; i < b->n_target; i++) {
        const struct batch_target *t = &b->target[i];

        need(s, (const uint32_t[]){t->exe, t->cmdline, t->comm, t->cgroup, t->container}, 5);
        need_labels(s, t->env);
    }
    for (uint32_t i = 0; i < b->n_labels; i++)
        need_labels(s, b->labels[i]);
}

static void need_of_data(struct shorten *s)
{
    const struct batch *b = s->ret;

    for (uint32_t i = 0; i < b->n_stream; i++) {
        const struct batch_stream *st = &b->stream[i];

        need(s, (const uint32_t[]){st->name, st->unit, st->state_why}, 3);
        need(s, st->rows.thread, st->rows.n);
        for (uint32_t k = 0; k < st->n_lost; k++)
            s->text[st->lost[k].why] = 1;
    }
    for (uint32_t i = 0; i < b->n_metric; i++)
        need(s, (const uint32_t[]){b->metric[i].name, b->metric[i].unit}, 2);
    for (uint32_t i = 0; i < b->n_steps; i++) {
        s->text[b->steps[i].name] = 1;
        need(s, b->steps[i].part, b->steps[i].n_part);
    }
    for (uint32_t i = 0; i < b->n_event; i++)
        need(s, (const uint32_t[]){b->event[i].kind, b->event[i].text}, 2);
}

static int texts(struct shorten *s, struct err *err)
{
    uint32_t n = s->b->n_str;
    struct str *str;

    need_of_tables(s);
    need_of_data(s);
    while (n > 1 && !s->text[n - 1])
        n--;
    str = arena_array(s->arena, struct str, n);
    if (!str)
        return no_room(err);
    for (uint32_t i = 1; i < n; i++) {
        if (s->text[i])
            str[i] = s->b->str[i];
    }
    s->ret->str = str;
    s->ret->n_str = n;
    return 0;
}

int wire_shorten(const struct batch *b, bool (*known)(void *ctx, uint64_t hash), void *ctx,
                 struct arena *arena, struct batch *ret, struct err *err)
{
    struct batch out = *b;
    struct shorten s = {.b = b, .arena = arena, .ret = &out};

    assert(b->n_known == 0);
    s.held = arena_array(arena, uint8_t, b->n_node);
    s.node = arena_array(arena, uint32_t, b->n_node);
    s.frame = arena_array(arena, uint32_t, b->n_frame);
    s.fn = arena_array(arena, uint32_t, b->n_fn);
    s.bin = arena_array(arena, uint32_t, b->n_bin);
    s.text = arena_array(arena, uint8_t, b->n_str);
    if (!s.held || !s.node || !s.frame || !s.fn || !s.bin || !s.text)
        return no_room(err);
    for (uint32_t i = 1; i < b->n_node; i++)
        s.held[i] = known(ctx, b->node[i].hash);
    TRY(nodes(&s, err));
    TRY(frames(&s, err));
    TRY(streams(&s, err));
    TRY(texts(&s, err));
    *ret = out;
    return 0;
}
