// SPDX-License-Identifier: Apache-2.0
/*
 * What is too long is cut, its weight kept. Hashes of nodes are made before, so that sender and
 * server mean the same stack by the same hash; only a stack that is cut gets new nodes.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/hash.h"
#include "base/map.h"
#include "proto/decode_private.h"

#define TAIL 9 /* "~" and 8 hex digits */

/* s cut to most bytes, its hash at the end, not inside a character; p NULL: the arena is full. */
static struct str cut_text(struct wire_decoding *d, struct str s, size_t most)
{
    size_t n = most > TAIL ? most - TAIL : 0;
    char tail[TAIL + 1];
    char *p = arena_alloc(d->arena, n + TAIL);

    if (!p)
        return (struct str){NULL, 0};
    for (unsigned back = 0; back < 3 && n > 0 && ((unsigned char)s.p[n] & 0xc0) == 0x80; back++)
        n--;
    (void)snprintf(tail, sizeof tail, "~%08x", (unsigned)(hash_str(s) >> 32));
    if (n > 0)
        memcpy(p, s.p, n);
    memcpy(p + n, tail, TAIL);
    return (struct str){p, n + TAIL};
}

static int cut_names(struct wire_decoding *d)
{
    size_t most = d->limits->batch.name_bytes;

    for (uint32_t i = 1; i < d->b->n_str; i++) {
        if (d->str[i].n <= most)
            continue;
        d->str[i] = cut_text(d, d->str[i], most);
        if (!d->str[i].p)
            return wire_no_room(d);
        if (d->rejects)
            d->rejects->name_cut++;
    }
    return 0;
}

/* ---- labels -------------------------------------------------------------------------------- */

struct label {
    bool plain; /* not one of the names that the server itself uses */
    struct str name;
    uint32_t at; /* place in the set */
    uint32_t pair[2];
};

static bool is_builtin(struct str name)
{
    static const struct str names[] = {STR("service"), STR("host"),  STR("container"),
                                       STR("version"), STR("job"),   STR("rank"),
                                       STR("gpu"),     STR("source")};

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (str_eq(name, names[i]))
            return true;
    }
    return false;
}

/* Built-in names first, then by name; of one name the later first. */
static int label_order(const void *pa, const void *pb)
{
    const struct label *a = pa, *b = pb;
    int r;

    if (a->plain != b->plain)
        return a->plain - b->plain;
    r = str_cmp(a->name, b->name);
    return r != 0 ? r : (a->at < b->at) - (a->at > b->at);
}

/* Is anything of the set beyond a limit? */
static bool within(const struct wire_decoding *d, const struct batch_labels *l)
{
    const struct batch_limits *most = &d->limits->batch;

    for (size_t i = 0; i < l->n; i++) {
        if (d->str[l->pair[2 * i]].n > most->label_name_bytes ||
            d->str[l->pair[2 * i + 1]].n > most->label_value_bytes)
            return false;
    }
    return l->n <= most->labels;
}

/* The cut form of text i, made once; 0: no room. */
static uint32_t cut_value(struct wire_decoding *d, uint32_t *cut_of, uint32_t i)
{
    struct str cut;

    if (cut_of[i])
        return cut_of[i];
    cut = cut_text(d, d->str[i], d->limits->batch.label_value_bytes);
    if (cut.p)
        cut_of[i] = wire_add_text(d, cut);
    return cut_of[i];
}

static int cut_set(struct wire_decoding *d, uint32_t *cut_of, struct batch_labels *l)
{
    const struct batch_limits *most = &d->limits->batch;
    struct label *label;
    uint32_t *pair, n = 0;
    size_t kept = 0;

    if (within(d, l))
        return 0;
    label = arena_array(d->arena, struct label, l->n);
    pair = arena_array(d->arena, uint32_t, 2 * (size_t)l->n);
    if (!label || !pair)
        return wire_no_room(d);
    for (size_t i = 0; i < l->n; i++) {
        struct str name = d->str[l->pair[2 * i]];

        if (name.n <= most->label_name_bytes)
            label[n++] = (struct label){
                !is_builtin(name), name, (uint32_t)i, {l->pair[2 * i], l->pair[2 * i + 1]}};
    }
    qsort(label, n, sizeof *label, label_order);
    for (uint32_t i = 0; i < n && kept < most->labels; i++) {
        uint32_t value = label[i].pair[1];

        if (i > 0 && str_eq(label[i].name, label[i - 1].name))
            continue;
        if (d->str[value].n > most->label_value_bytes) {
            value = cut_value(d, cut_of, value);
            if (value == 0)
                return wire_no_room(d);
            if (d->rejects)
                d->rejects->label_cut++;
        }
        pair[2 * kept] = label[i].pair[0];
        pair[2 * kept + 1] = value;
        kept++;
    }
    if (d->rejects && kept < l->n)
        d->rejects->label_dropped += l->n - kept;
    *l = (struct batch_labels){(uint32_t)kept, pair};
    return 0;
}

static int cut_labels(struct wire_decoding *d)
{
    struct batch_labels *labels = arena_array(d->arena, struct batch_labels, d->b->n_labels);
    uint32_t *cut_of = arena_array(d->arena, uint32_t, d->b->n_str);

    if (!labels || !cut_of)
        return wire_no_room(d);
    memcpy(labels, d->b->labels, d->b->n_labels * sizeof *labels);
    for (uint32_t i = 1; i < d->b->n_labels; i++)
        TRY(cut_set(d, cut_of, &labels[i]));
    d->b->labels = labels;
    return cut_set(d, cut_of, &d->b->label);
}

/* ---- stacks -------------------------------------------------------------------------------- */

struct deep {
    struct wire_decoding *d;
    uint32_t *depth;         /* per old node; a known one counts as 1, its parents are not said */
    uint32_t *place;         /* per old node: its new number, once it has one */
    struct batch_node *node; /* the new table */
    uint32_t n, room;
    struct map child;   /* new parent, frame -> new node, of what is added */
    uint32_t frame_cut; /* the frame [truncated] */
    uint32_t *path;     /* scratch: depth entries */
    uint64_t steps;     /* frames walked in all */
};

static int add_truncated(struct wire_decoding *d, uint32_t *ret_frame)
{
    struct batch *b = d->b;
    uint32_t name = wire_add_text(d, STR("[truncated]"));
    struct batch_fn *fn = arena_array(d->arena, struct batch_fn, (size_t)b->n_fn + 1);
    struct batch_frame *frame = arena_array(d->arena, struct batch_frame, (size_t)b->n_frame + 1);

    if (!name || !fn || !frame)
        return wire_no_room(d);
    memcpy(fn, b->fn, b->n_fn * sizeof *fn);
    memcpy(frame, b->frame, b->n_frame * sizeof *frame);
    fn[b->n_fn].name = name;
    frame[b->n_frame] = (struct batch_frame){.kind = FRAME_OTHER, .fn = b->n_fn};
    *ret_frame = b->n_frame;
    b->fn = fn;
    b->frame = frame;
    b->n_fn++;
    b->n_frame++;
    return 0;
}

/* The child of a new node by a frame, found or added; 0: no room. */
static uint32_t child_of(struct deep *p, uint32_t parent, uint32_t frame)
{
    uint64_t *at;

    switch (map_at(&p->child, (uint64_t)parent << 32 | frame, &at)) {
    case MAP_FOUND:
        return (uint32_t)*at;
    case MAP_ADDED:
        break;
    case MAP_FULL:
        return 0;
    }
    if (p->n == p->room)
        return 0;
    p->node[p->n] = (struct batch_node){
        parent, frame, node_hash(p->node[parent].hash, batch_frame_hash(p->d->b, frame))};
    *at = p->n;
    return p->n++;
}

/* The new leaf of a stack that is too deep: its last frames under [truncated]. 0: no room. */
static uint32_t rebuild(struct deep *p, uint32_t leaf)
{
    const struct batch_node *old = p->d->b->node;
    uint32_t keep = p->d->limits->batch.depth - 1, n = 0, at = leaf, to;

    if (p->place[leaf])
        return p->place[leaf];
    p->steps += keep;
    if (p->steps > 16 * (uint64_t)p->room)
        return 0; /* many leaves whose paths are all the same cost no memory, but time */
    for (; n < keep; at = old[at].parent)
        p->path[n++] = old[at].frame;
    to = child_of(p, 0, p->frame_cut);
    while (to && n > 0)
        to = child_of(p, to, p->path[--n]);
    p->place[leaf] = to;
    return to;
}

static int rebuild_rows(struct deep *p)
{
    struct wire_decoding *d = p->d;

    for (uint32_t i = 0; i < d->b->n_stream; i++) {
        const struct batch_rows *r = &d->b->stream[i].rows;
        uint32_t *node;

        if (!r->node)
            continue;
        node = arena_array(d->arena, uint32_t, r->n);
        if (!node)
            return wire_no_room(d);
        for (uint32_t k = 0; k < r->n; k++) {
            bool cut = p->depth[r->node[k]] > d->limits->batch.depth;

            node[k] = cut ? rebuild(p, r->node[k]) : p->place[r->node[k]];
            if (cut && node[k] == 0) {
                const struct wire_fault_why why = {"too_many_entries", "ingest.entries", p->room,
                                                   (uint64_t)p->room + 1, true};

                return wire_fault_set(d->fault, d->err, -E2BIG, &why, "stream[%u].stack: cut", i);
            }
            if (cut && d->rejects)
                d->rejects->stack_cut++;
        }
        d->stream[i].rows.node = node;
    }
    return 0;
}

static int cut_deep(struct deep *p)
{
    struct wire_decoding *d = p->d;
    const struct batch *b = d->b;
    uint32_t most = d->limits->batch.depth;

    TRY(add_truncated(d, &p->frame_cut));
    p->room = d->limits->batch.entries > b->n_node ? d->limits->batch.entries : b->n_node;
    p->node = arena_array(d->arena, struct batch_node, p->room);
    p->place = arena_array(d->arena, uint32_t, b->n_node);
    p->path = arena_array(d->arena, uint32_t, most);
    if (!p->node || !p->place || !p->path)
        return wire_no_room(d);
    p->n = 1;
    for (uint32_t i = 1; i < b->n_node; i++) {
        if (p->depth[i] > most)
            continue;
        p->node[p->n] = b->node[i];
        p->node[p->n].parent = p->place[b->node[i].parent];
        p->place[i] = p->n++;
    }
    TRY(rebuild_rows(p));
    d->b->node = p->node;
    d->b->n_node = p->n;
    return 0;
}

static int cut_stacks(struct wire_decoding *d)
{
    struct deep p = {.d = d};
    const struct batch *b = d->b;
    bool deep = false;
    int r;

    p.depth = arena_array(d->arena, uint32_t, b->n_node);
    if (!p.depth)
        return wire_no_room(d);
    for (uint32_t i = 1; i < b->n_node; i++) {
        p.depth[i] = i <= b->n_known ? 1 : p.depth[b->node[i].parent] + 1;
        deep = deep || p.depth[i] > d->limits->batch.depth;
    }
    if (!deep)
        return 0;
    map_init(&p.child, 0);
    r = cut_deep(&p);
    map_deinit(&p.child);
    return r;
}

int wire_cut(struct wire_decoding *d)
{
    TRY(cut_stacks(d));
    TRY(cut_labels(d));
    return cut_names(d);
}
