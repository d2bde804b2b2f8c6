// SPDX-License-Identifier: Apache-2.0
#include <errno.h>

#include "base/hash.h"
#include "base/pb.h"
#include "server/api_private.h"

/*
 * pprof's profile.proto: a sample per stack, with its observations where they are known and its
 * weight. A location is a place in the machine: a frame and all that was inlined into it, the
 * innermost first. Ids count from 1; strings are written last, when all are known.
 */

enum {
    P_SAMPLE_TYPE = 1,
    P_SAMPLE,
    P_MAPPING,
    P_LOCATION,
    P_FUNCTION,
    P_STRING,
    P_TIME = 9,
    P_DURATION,
    P_PERIOD_TYPE,
    P_PERIOD,
    P_COMMENT,
    P_DEFAULT_TYPE,
};

/* Numbers triples of numbers, from 1. */
struct ids {
    struct arena *arena;
    struct map map;
    uint32_t n, room;
    uint32_t (*v)[3];
    bool failed;
};

static uint32_t id_of(struct ids *t, uint32_t a, uint32_t b, uint32_t c)
{
    uint64_t *slot, key = hash_mix(hash_mix((uint64_t)a << 32 | b) ^ c);

    for (;; key = hash_mix(key + 1)) {
        if (map_at(&t->map, key, &slot) == MAP_FULL)
            goto failed;
        if (*slot == 0)
            break;
        if (t->v[*slot][0] == a && t->v[*slot][1] == b && t->v[*slot][2] == c)
            return (uint32_t)*slot;
    }
    if (t->n + 1 >= t->room) {
        uint32_t room = t->room ? t->room * 2 : 256;
        uint32_t(*v)[3] = arena_calloc(t->arena, room, sizeof *v);

        if (!v)
            goto failed;
        if (t->n)
            memcpy(v, t->v, ((size_t)t->n + 1) * sizeof *v);
        t->v = v;
        t->room = room;
    }
    *slot = ++t->n;
    t->v[t->n][0] = a;
    t->v[t->n][1] = b;
    t->v[t->n][2] = c;
    return t->n;
failed:
    t->failed = true;
    return 0;
}

struct pprof {
    struct api_call *c;
    const struct query_flame *f;
    struct buf *out;
    struct buf part, inner; /* a message, and one inside it */
    struct api_strings str;
    struct ids location; /* the location's caller of the same place or 0, function of the answer */
    struct ids function; /* name, file, first line */
    struct ids mapping;  /* path, build */
    uint32_t *place;     /* per row: its location */
    uint32_t *caller;    /* per row: the row where the next location begins; 0: none */
    uint64_t *own;       /* per row: its own observations */
    bool counts;
};

static void put_part(struct pprof *p, uint32_t field)
{
    pb_put_bytes(p->out, field, buf_view(&p->part));
    buf_reset(&p->part);
}

static void put_inner(struct pprof *p, uint32_t field)
{
    pb_put_bytes(&p->part, field, buf_view(&p->inner));
    buf_reset(&p->inner);
}

/* ---- stacks -----------------------------------------------------------------------------------
 */

/* Which location each row ends in, and what a row's own observations are. */
static void find_places(struct pprof *p, uint32_t *open)
{
    const struct query_flame *f = p->f;

    for (uint32_t i = 0; i < f->n; i++) {
        uint32_t up = i ? open[f->depth[i] - 1] : 0, fn = (uint32_t)f->node_func[i];
        bool inlined = up && f->func[fn].inlined;

        open[f->depth[i]] = i;
        p->own[i] = f->samples[i];
        if (i)
            p->own[up] -= f->samples[i];
        if (i == 0 && f->self[0] == 0)
            continue;
        p->place[i] = id_of(&p->location, inlined ? p->place[up] : 0, fn, 0);
        p->caller[i] = inlined ? p->caller[up] : up;
    }
}

static void put_sample(struct pprof *p, uint32_t i)
{
    const struct query_flame *f = p->f;

    for (uint32_t k = i;; k = p->caller[k]) {
        pb_put_raw_varint(&p->inner, p->place[k]);
        if (!p->caller[k])
            break;
    }
    put_inner(p, 1);
    if (p->counts)
        pb_put_raw_varint(&p->inner, p->own[i]);
    pb_put_raw_varint(&p->inner, (uint64_t)f->self[i]);
    put_inner(p, 2);
    put_part(p, P_SAMPLE);
}

static int put_samples(struct pprof *p, struct query_err *e)
{
    const struct query_flame *f = p->f;

    for (uint32_t i = 0; i < f->n && !p->out->failed; i++) {
        if (f->self[i] == 0 && (!p->counts || p->own[i] == 0))
            continue;
        if (f->self[i] > INT64_MAX)
            return query_fail(e, -E2BIG, QUERY_NOT_SUPPORTED, "format",
                              "a value is beyond the 64 bits of pprof: ask for less time");
        if (p->place[i])
            put_sample(p, i);
    }
    return 0;
}

static void put_lost(struct pprof *p, unit_i128 lost)
{
    if (lost <= 0 || lost > INT64_MAX)
        return;
    pb_put_raw_varint(&p->inner, id_of(&p->location, 0, p->f->n_func, 0));
    put_inner(p, 1);
    if (p->counts)
        pb_put_raw_varint(&p->inner, 0);
    pb_put_raw_varint(&p->inner, (uint64_t)lost);
    put_inner(p, 2);
    put_part(p, P_SAMPLE);
}

/* ---- what locations mean ----------------------------------------------------------------------
 */

/* Texts are numbered in one order, whatever the compiler does with arguments. */
static uint32_t function_id(struct pprof *p, const struct query_func *fn)
{
    uint32_t name = api_string(&p->str, fn->name), file = api_string(&p->str, fn->file);

    return id_of(&p->function, name, file, fn->start_line);
}

static uint32_t mapping_id(struct pprof *p, const struct query_func *fn)
{
    uint32_t path = api_string(&p->str, fn->path), build = api_string(&p->str, fn->build);

    return fn->path.n ? id_of(&p->mapping, path, build, 0) : 0;
}

static void put_location(struct pprof *p, uint32_t id)
{
    static const struct query_func lost = {.name = STR("[lost]")};
    const struct query_func *fn = NULL;

    for (uint32_t k = id; k; k = p->location.v[k][0]) {
        uint32_t at = p->location.v[k][1];

        fn = at < p->f->n_func ? &p->f->func[at] : &lost;
        pb_put_varint(&p->inner, 1, function_id(p, fn));
        pb_put_varint(&p->inner, 2, fn->line);
        put_inner(p, 4);
    }
    pb_put_varint(&p->part, 1, id);
    if (fn) {
        pb_put_varint(&p->part, 2, mapping_id(p, fn));
        pb_put_varint(&p->part, 3, fn->addr);
    }
    put_part(p, P_LOCATION);
}

static void put_tables(struct pprof *p)
{
    for (uint32_t i = 1; i <= p->location.n; i++)
        put_location(p, i);
    for (uint32_t i = 1; i <= p->function.n; i++) {
        pb_put_varint(&p->part, 1, i);
        pb_put_varint(&p->part, 2, p->function.v[i][0]);
        pb_put_varint(&p->part, 3, p->function.v[i][0]);
        pb_put_varint(&p->part, 4, p->function.v[i][1]);
        pb_put_varint(&p->part, 5, p->function.v[i][2]);
        put_part(p, P_FUNCTION);
    }
    for (uint32_t i = 1; i <= p->mapping.n; i++) {
        pb_put_varint(&p->part, 1, i);
        pb_put_varint(&p->part, 5, p->mapping.v[i][0]);
        pb_put_varint(&p->part, 6, p->mapping.v[i][1]);
        for (uint32_t k = 7; k <= 10; k++) /* all is symbolised that can be */
            pb_put_varint(&p->part, k, 1);
        put_part(p, P_MAPPING);
    }
}

/* ---- the whole --------------------------------------------------------------------------------
 */

/* Built-in types under the names that pprof's readers know them by. */
static struct str type_name(const struct query_type *t)
{
    static const struct {
        ptype_id id;
        struct str name;
    } names[] = {{PTYPE_ALLOC, STR("alloc_space")},
                 {PTYPE_LIVE, STR("inuse_space")},
                 {PTYPE_LIVE_OBJECTS, STR("inuse_objects")}};

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (names[i].id == t->id)
            return names[i].name;
    }
    return t->name;
}

static void put_type(struct pprof *p, uint32_t field, struct str name, struct str unit)
{
    pb_put_varint(&p->part, 1, api_string(&p->str, name));
    pb_put_varint(&p->part, 2, api_string(&p->str, unit));
    put_part(p, field);
}

/* Type, range, coverage, loss: a comment a line. */
static void put_comments(struct pprof *p)
{
    struct str rest, line;
    struct buf text;

    buf_init(&text, 1 << 20);
    api_text_head(&text, query_head(p->c->query), &p->f->sum);
    rest = buf_view(&text);
    while (rest.n) {
        line = arena_str(&p->c->arena, str_to(rest, str_find(rest, '\n')));
        pb_put_varint(p->out, P_COMMENT, api_string(&p->str, line));
        rest = str_from(rest, str_to(rest, str_find(rest, '\n')).n + 1);
    }
    buf_deinit(&text);
}

static void put_head(struct pprof *p)
{
    const struct query_head *h = query_head(p->c->query);
    const struct query_quality *q = &p->f->sum.quality;
    struct str name = type_name(&h->type);

    if (p->counts)
        put_type(p, P_SAMPLE_TYPE, STR("samples"), STR("count"));
    put_type(p, P_SAMPLE_TYPE, name, h->type.unit);
    pb_put_varint(p->out, P_DEFAULT_TYPE, api_string(&p->str, name));
    pb_put_varint(p->out, P_TIME, (uint64_t)h->range.t0.v);
    pb_put_varint(p->out, P_DURATION, (uint64_t)(h->range.t1.v - h->range.t0.v));
    if (q->n_period == 1) {
        put_type(p, P_PERIOD_TYPE, name, h->type.unit);
        pb_put_varint(p->out, P_PERIOD, (uint64_t)q->period[0]);
    }
    put_comments(p);
}

static int write(struct pprof *p, unit_i128 lost, struct query_err *e)
{
    uint32_t *open = arena_calloc(&p->c->arena, (size_t)p->f->n + 1, sizeof *open);

    p->place = arena_calloc(&p->c->arena, p->f->n, sizeof *p->place);
    p->caller = arena_calloc(&p->c->arena, p->f->n, sizeof *p->caller);
    p->own = arena_calloc(&p->c->arena, p->f->n, sizeof *p->own);
    if (!open || !p->place || !p->caller || !p->own)
        return query_fail(e, -ENOMEM, QUERY_TOO_EXPENSIVE, NULL, "out of memory");
    p->counts = p->f->sum.samples != BATCH_UNKNOWN;
    find_places(p, open);
    put_head(p);
    TRY(put_samples(p, e));
    put_lost(p, lost);
    put_tables(p);
    for (uint32_t i = 0; i < p->str.n; i++)
        pb_put_bytes(p->out, P_STRING, p->str.v[i]);
    if (p->str.failed || p->location.failed || p->function.failed || p->mapping.failed ||
        p->part.failed || p->inner.failed)
        return query_fail(e, -ENOMEM, QUERY_TOO_EXPENSIVE, NULL, "out of memory");
    return 0;
}

int api_write_pprof(struct api_call *c, const struct query_flame *f, unit_i128 lost,
                    struct query_err *e)
{
    struct pprof p = {.c = c, .f = f, .out = &c->reply->body};
    struct ids *ids[] = {&p.location, &p.function, &p.mapping};
    int r;

    for (size_t i = 0; i < 3; i++) {
        ids[i]->arena = &c->arena;
        map_init(&ids[i]->map, 0);
    }
    buf_init(&p.part, 16 << 20);
    buf_init(&p.inner, 16 << 20);
    api_strings_init(&p.str, &c->arena);
    r = write(&p, lost, e);
    api_strings_deinit(&p.str);
    buf_deinit(&p.part);
    buf_deinit(&p.inner);
    for (size_t i = 0; i < 3; i++)
        map_deinit(&ids[i]->map);
    return r;
}
