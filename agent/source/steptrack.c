// SPDX-License-Identifier: Apache-2.0
#include "agent/source/steptrack.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/hash.h"
#include "base/map.h"

#define NAME_MAX_BYTES 63
#define CLOCK_SET_NS   1000000 /* what a measured difference of two clocks never errs by */

struct open {
    uint32_t name, tid;
    bool mark;
    uint64_t number;
    int64_t t0, real;
    char *attr; /* NULL: none */
    char comm[16];
};

struct seq { /* of a name and a thread */
    uint64_t key;
    uint64_t next; /* number */
    int64_t used;
};

struct name {
    char text[NAME_MAX_BYTES + 1];
    uint32_t first_tid;
    bool several; /* threads */
};

struct target {
    uint64_t id, program;
    uint32_t n_open, n_seq, room_seq, n_name;
    struct open open[STEPTRACK_OPEN];
    struct seq *seq;
    struct name name[STEPTRACK_NAMES + 1]; /* one more: "other" */
};

struct steptrack {
    steptrack_fn *fn;
    void *ctx;
    struct map by_target; /* -> struct target * */
    struct map names;     /* hash of (service, name) */
    struct map n_names;   /* service -> how many */
    struct steptrack_stats stats;
};

const char *steptrack_drop_name(enum steptrack_drop d)
{
    static const char *const name[STEPTRACK_N_DROP] = {"unclosed", "unopened",  "open_at_exit",
                                                       "rate",     "ring_full", "bad_text"};

    return name[d];
}

struct steptrack *steptrack_new(steptrack_fn *fn, void *ctx)
{
    struct steptrack *t = xcalloc(1, sizeof *t);

    t->fn = fn;
    t->ctx = ctx;
    map_init(&t->by_target, 0);
    map_init(&t->names, 0);
    map_init(&t->n_names, 0);
    return t;
}

static struct target *target_at(uint64_t v)
{
    return (struct target *)(uintptr_t)v; // NOLINT(performance-no-int-to-ptr): a map value
}

static void drop(struct steptrack *t, enum steptrack_drop why, uint64_t n)
{
    t->stats.dropped[why] += n;
}

/* Marks that end with their process are no steps: nobody misses their end. */
static void close_all(struct steptrack *t, struct target *g)
{
    for (uint32_t i = 0; i < g->n_open; i++) {
        if (!g->open[i].mark)
            drop(t, STEPTRACK_OPEN_AT_EXIT, 1);
        free(g->open[i].attr);
    }
    t->stats.open -= g->n_open;
    g->n_open = 0;
}

static void target_free(struct steptrack *t, struct target *g)
{
    close_all(t, g);
    t->stats.targets--;
    free(g->seq);
    free(g);
}

struct steptrack *steptrack_free(struct steptrack *t)
{
    uint64_t key, v;
    uint32_t pos = 0;

    if (!t)
        return NULL;
    while (map_next(&t->by_target, &pos, &key, &v))
        target_free(t, target_at(v));
    map_deinit(&t->by_target);
    map_deinit(&t->names);
    map_deinit(&t->n_names);
    free(t);
    return NULL;
}

static struct target *target_of(struct steptrack *t, const struct steptrack_call *c)
{
    struct target *g;
    uint64_t *at;

    if (map_at(&t->by_target, c->target, &at) == MAP_FULL)
        abort(); /* no memory for 100 bytes: as xmalloc */
    if (*at == 0) {
        g = xcalloc(1, sizeof *g);
        g->id = c->target;
        g->program = c->program;
        *at = (uint64_t)(uintptr_t)g;
        t->stats.targets++;
    }
    g = target_at(*at);
    if (g->program !=
        c->program) { /* another program: it neither ends nor goes on with those steps */
        close_all(t, g);
        g->program = c->program;
        g->n_seq = g->n_name = 0;
    }
    return g;
}

/* Does the service have room for this name? */
static bool admit(struct steptrack *t, uint64_t service, struct str name)
{
    uint64_t key = hash_seed(name.p, name.n, service), v;
    uint64_t *n;

    if (map_get(&t->names, key, &v))
        return true;
    if (map_at(&t->n_names, service, &n) == MAP_FULL || *n >= STEPTRACK_NAMES)
        return false;
    ++*n;
    return map_put(&t->names, key, 1) != MAP_FULL;
}

#define NO_NAME UINT32_MAX

static uint32_t name_find(const struct target *g, struct str name)
{
    for (uint32_t i = 0; i < g->n_name; i++) {
        if (str_eq(str_c(g->name[i].text), name))
            return i;
    }
    return NO_NAME;
}

static uint32_t name_of(struct steptrack *t, struct target *g, const struct steptrack_call *c)
{
    struct str name = c->name.n ? c->name : STR("step");
    uint32_t i = name_find(g, name);

    if (i == NO_NAME && c->what == STEPTRACK_END)
        return name_find(g, STR("other")); /* of a folded begin, or of none */
    if (i == NO_NAME && (g->n_name >= STEPTRACK_NAMES || !admit(t, c->service, name))) {
        t->stats.names_folded++;
        name = STR("other");
        i = name_find(g, name);
    }
    if (i != NO_NAME)
        return i;
    g->name[g->n_name] = (struct name){.first_tid = c->tid};
    memcpy(g->name[g->n_name].text, name.p, name.n);
    return g->n_name++;
}

static struct seq *seq_of(struct target *g, uint32_t name, uint32_t tid, int64_t t)
{
    uint64_t key = (uint64_t)name << 32 | tid;
    struct seq *oldest = NULL;

    for (uint32_t i = 0; i < g->n_seq; i++) {
        struct seq *s = &g->seq[i];

        if (s->key == key) {
            s->used = t;
            return s;
        }
        if (!oldest || s->used < oldest->used)
            oldest = s;
    }
    if (g->n_seq == STEPTRACK_SEQS) {
        *oldest = (struct seq){.key = key, .used = t};
        return oldest;
    }
    if (g->n_seq == g->room_seq) {
        g->room_seq = g->room_seq ? 2 * g->room_seq : 8;
        g->seq = xrealloc(g->seq, g->room_seq * sizeof *g->seq);
    }
    g->seq[g->n_seq] = (struct seq){.key = key, .used = t};
    return &g->seq[g->n_seq++];
}

/* ---- steps --------------------------------------------------------------------------------- */

/* The end on the wall clock. */
static int64_t real_end(const struct open *o, const struct steptrack_call *c)
{
    int64_t passed = c->t - o->t0, by_wall = c->real - o->real;

    if (by_wall - passed > CLOCK_SET_NS || passed - by_wall > CLOCK_SET_NS)
        by_wall = passed;
    return o->real + (by_wall > 0 ? by_wall : 1);
}

static void emit(struct steptrack *t, const struct target *g, const struct open *o,
                 const struct steptrack_call *c)
{
    const struct name *name = &g->name[o->name];
    struct label label[STEPTRACK_ATTRS + 1], item;
    struct steptrack_step s = {.target = g->id,
                               .tid = o->tid,
                               .name = str_c(name->text),
                               .number = o->number,
                               .t0 = o->real,
                               .t1 = real_end(o, c),
                               .label = label};
    struct str list = str_c(o->attr);
    bool of_several = name->several && o->tid != name->first_tid;
    uint32_t max = STEPTRACK_ATTRS + of_several;
    struct arena a;
    char thread[40];

    arena_init(&a, (size_t)64 << 10);
    if (of_several) {
        (void)snprintf(thread, sizeof thread, "%.16s/%" PRIu32, o->comm, o->tid);
        labels_add(label, &s.n_label, max, (struct label){STR("thread"), str_c(thread)}, &a,
                   &t->stats.labels);
    }
    while (labels_next(&list, &item))
        labels_add(label, &s.n_label, max, item, &a, &t->stats.labels);
    t->fn(t->ctx, &s);
    t->stats.steps++;
    arena_deinit(&a);
}

static void forget(struct steptrack *t, struct target *g, uint32_t i)
{
    free(g->open[i].attr);
    memmove(&g->open[i], &g->open[i + 1], (--g->n_open - i) * sizeof g->open[0]);
    t->stats.open--;
}

/* Oldest first: of the same kind the last one is the latest. */
static void open_new(struct steptrack *t, struct target *g, const struct open *o,
                     const struct steptrack_call *c)
{
    struct str attr = c->attr, comm = str_to(c->comm, sizeof o->comm);

    if (g->n_open == STEPTRACK_OPEN) {
        drop(t, STEPTRACK_UNCLOSED, 1);
        forget(t, g, 0);
    }
    g->open[g->n_open] = *o;
    if (comm.n)
        memcpy(g->open[g->n_open].comm, comm.p, comm.n);
    if (attr.n) {
        char *copy = xmalloc(attr.n + 1);

        memcpy(copy, attr.p, attr.n);
        copy[attr.n] = '\0';
        g->open[g->n_open].attr = copy;
    }
    g->n_open++;
    t->stats.open++;
}

static uint64_t number_of(struct target *g, const struct steptrack_call *c, uint32_t name)
{
    struct seq *s = seq_of(g, name, c->tid, c->t);
    uint64_t number = c->number == STEPTRACK_NEXT ? s->next : c->number;

    s->next = number + 1;
    return number;
}

static void mark(struct steptrack *t, struct target *g, const struct steptrack_call *c,
                 uint32_t name)
{
    struct open o = {.name = name,
                     .tid = c->tid,
                     .mark = true,
                     .number = number_of(g, c, name),
                     .t0 = c->t,
                     .real = c->real};

    for (uint32_t i = 0; i < g->n_open; i++) {
        if (g->open[i].mark && g->open[i].name == name && g->open[i].tid == c->tid) {
            emit(t, g, &g->open[i], c);
            forget(t, g, i);
            break;
        }
    }
    open_new(t, g, &o, c);
}

static void begin(struct steptrack *t, struct target *g, const struct steptrack_call *c,
                  uint32_t name)
{
    struct open o = {
        .name = name, .tid = c->tid, .number = number_of(g, c, name), .t0 = c->t, .real = c->real};

    for (uint32_t i = 0; i < g->n_open; i++) {
        if (!g->open[i].mark && g->open[i].name == name && g->open[i].number == o.number) {
            drop(t, STEPTRACK_UNCLOSED, 1);
            emit(t, g, &g->open[i], c);
            forget(t, g, i);
            break;
        }
    }
    open_new(t, g, &o, c);
}

static void end(struct steptrack *t, struct target *g, const struct steptrack_call *c,
                uint32_t name)
{
    for (uint32_t i = g->n_open; i-- > 0;) {
        const struct open *o = &g->open[i];

        if (o->mark || o->name != name ||
            (c->number == STEPTRACK_NEXT ? o->tid != c->tid : o->number != c->number))
            continue;
        emit(t, g, o, c);
        forget(t, g, i);
        return;
    }
    drop(t, STEPTRACK_UNOPENED, 1);
}

bool steptrack_call(struct steptrack *t, const struct steptrack_call *c)
{
    struct target *g;
    struct name *n;
    uint32_t name;
    bool news = false;

    t->stats.calls++;
    if (c->name.n > NAME_MAX_BYTES || !str_utf8_ok(c->name) || str_find(c->name, 0) != SIZE_MAX ||
        c->what > STEPTRACK_END) {
        drop(t, STEPTRACK_BAD_TEXT, 1);
        return false;
    }
    g = target_of(t, c);
    name = name_of(t, g, c);
    if (name == NO_NAME) {
        drop(t, STEPTRACK_UNOPENED, 1);
        return false;
    }
    n = &g->name[name];
    if (c->what != STEPTRACK_END && !n->several && n->first_tid != c->tid)
        news = n->several = true;
    if (c->what == STEPTRACK_MARK)
        mark(t, g, c, name);
    else if (c->what == STEPTRACK_BEGIN)
        begin(t, g, c, name);
    else
        end(t, g, c, name);
    return news;
}

void steptrack_gone(struct steptrack *t, uint64_t target)
{
    uint64_t v;

    if (!map_get(&t->by_target, target, &v))
        return;
    (void)map_del(&t->by_target, target);
    target_free(t, target_at(v));
}

void steptrack_lost(struct steptrack *t, enum steptrack_drop why, uint64_t n)
{
    drop(t, why, n);
}

bool steptrack_next(const struct steptrack *t, uint32_t *pos, uint64_t *ret_target)
{
    uint64_t v;

    return map_next(&t->by_target, pos, ret_target, &v);
}

void steptrack_get_stats(const struct steptrack *t, struct steptrack_stats *ret)
{
    *ret = t->stats;
}
