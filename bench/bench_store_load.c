// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/hash.h"
#include "bench/bench_store.h"
#include "proto/wire.h"

/*
 * The workload as ten hosts send it. Host k has the series whose number ends in k; its rows go out
 * in the order of their time, in batches of one stream per type.
 *
 * A node is defined until the store has acknowledged a batch with it, then named by its hash: what
 * the agent does. Several services may share the path to a node; a batch has it once.
 */
static const uint32_t types[] = {PTYPE_CPU, PTYPE_ALLOC, PTYPE_GIL_WAIT, PTYPE_OFFCPU};
#define TYPES     4U
#define MIB       (UINT64_C(1) << 20)
#define NODE_NONE UINT32_MAX

struct host {
    const uint32_t *row; /* its rows, by time */
    size_t n, at;
    uint64_t seq;
    real_ns covered[TYPES]; /* end of what each type has covered */
    struct arena arena;
    struct buf plain, payload;
    struct batch batch;
    uint32_t n_defined, room; /* nodes of the workload in the last batch, each with its service */
    uint32_t *defined, *defined_svc;
    sem_t done;
    bool in_flight;
    int r;
    struct err err;
};

struct loader {
    uint32_t *rows;
    uint64_t *hash; /* of every node of the workload */
    uint8_t *held;
    uint32_t *frame, *stamp, now; /* function -> frame of the batch being made */
    struct host host[BENCH_HOSTS];
    uint64_t stream; /* of recorded ones, the next */
    int64_t sealed_ms;
};

/* ---- hashes ---------------------------------------------------------------------------------- */

/* A frame of the workload: a function with a name, nothing else. */
static uint64_t function_hash(const struct data *d, uint32_t function)
{
    struct batch_fn fn[2] = {{}, {.name = 1}};
    struct batch_frame frame[2] = {{}, {.kind = FRAME_NATIVE, .fn = 1}};
    struct batch_bin bin[1] = {};
    struct str text[2] = {};
    struct batch b = {.n_str = 2,
                      .str = text,
                      .n_fn = 2,
                      .fn = fn,
                      .n_frame = 2,
                      .frame = frame,
                      .n_bin = 1,
                      .bin = bin};

    text[1].p = data_name(d, function, &text[1].n);
    return batch_frame_hash(&b, 1);
}

static uint64_t *all_hashes(const struct data *d)
{
    uint64_t *function = data_alloc(d->functions, sizeof *function);
    uint64_t *hash = data_alloc(d->nodes, sizeof *hash);

    for (uint32_t f = 1; f < d->functions; f++)
        function[f] = function_hash(d, f);
    for (size_t s = 0; s < d->services; s++)
        for (uint32_t i = d->first[s] + 1; i < d->first[s + 1]; i++)
            hash[i] = node_hash(hash[d->first[s] + d->parent[i]], function[d->function[i]]);
    free(function);
    return hash;
}

static struct loader *loader(struct bench *b)
{
    const struct data *d = &b->d;
    size_t at[BENCH_HOSTS + 1] = {};
    struct loader *l = b->loader;

    if (l)
        return l;
    l = b->loader = data_alloc(1, sizeof *l);
    l->rows = data_alloc(d->rows, sizeof *l->rows);
    l->hash = all_hashes(d);
    l->held = data_alloc(d->nodes, 1);
    l->frame = data_alloc(d->functions, sizeof *l->frame);
    l->stamp = data_alloc(d->functions, sizeof *l->stamp);
    for (size_t i = 0; i < d->rows; i++)
        at[d->series[i] % BENCH_HOSTS + 1]++;
    for (uint32_t h = 0; h < BENCH_HOSTS; h++) {
        struct host *o = &l->host[h];

        at[h + 1] += at[h];
        *o = (struct host){.row = l->rows + at[h]};
        for (uint32_t t = 0; t < TYPES; t++)
            o->covered[t] = b->hour;
        arena_init(&o->arena, 256 * MIB);
        buf_init(&o->plain, 64 * MIB);
        buf_init(&o->payload, 64 * MIB);
        (void)sem_init(&o->done, 0, 0);
    }
    for (size_t i = 0; i < d->rows; i++) {
        struct host *o = &l->host[d->series[i] % BENCH_HOSTS];

        l->rows[(size_t)(o->row - l->rows) + o->n++] = (uint32_t)i;
    }
    return l;
}

void bench_next_hour(struct bench *b)
{
    struct loader *l = loader(b);

    b->hour.v += DATA_SPAN_MS * NS_PER_MS;
    l->sealed_ms = 0;
    for (uint32_t h = 0; h < BENCH_HOSTS; h++) {
        l->host[h].at = 0;
        for (uint32_t t = 0; t < TYPES; t++)
            l->host[h].covered[t] = b->hour;
    }
}

void bench_loader_free(struct bench *b)
{
    struct loader *l = b->loader;

    if (!l)
        return;
    for (uint32_t h = 0; h < BENCH_HOSTS; h++) {
        arena_deinit(&l->host[h].arena);
        buf_deinit(&l->host[h].plain);
        buf_deinit(&l->host[h].payload);
        free(l->host[h].defined);
        free(l->host[h].defined_svc);
        (void)sem_destroy(&l->host[h].done);
    }
    free(l->rows);
    free(l->hash);
    free(l->held);
    free(l->frame);
    free(l->stamp);
    free(l);
    b->loader = NULL;
}

/* ---- one batch ------------------------------------------------------------------------------- */

enum {
    S_SERVICE = 1,
    S_HOST,
    S_HOST_NAME,
    S_RING_FULL,
    S_FIRST
};

struct making {
    struct bench *b;
    struct loader *l;
    struct host *o;
    uint32_t n_row, n_svc;
    const uint32_t *row;
    struct map node; /* hash -> number among known or new ones, + 1; new ones have bit 31 */
    uint32_t *known, n_known; /* nodes of the workload */
    uint32_t *leaf;           /* per row: as in the map */
    uint32_t *label;          /* service -> labels */
    struct str *str;
    uint32_t n_str;
};

#define NEW_BIT (UINT64_C(1) << 31)

static void define(struct host *o, uint32_t node, uint32_t svc)
{
    if (o->n_defined == o->room) {
        o->room = o->room ? 2 * o->room : 4096;
        o->defined = realloc(o->defined, o->room * sizeof *o->defined);
        o->defined_svc = realloc(o->defined_svc, o->room * sizeof *o->defined_svc);
        if (!o->defined || !o->defined_svc)
            data_die("out of memory");
    }
    o->defined_svc[o->n_defined] = svc;
    o->defined[o->n_defined++] = node;
}

/* The batch's mark for a node, defining it and what stands above it where the store lacks them. */
static uint32_t node_of(struct making *m, uint32_t svc, uint32_t node)
{
    const struct data *d = &m->b->d;
    uint32_t path[1024], n = 0, base = d->first[svc];
    uint64_t *slot = NULL;

    for (uint32_t i = node; i; i = d->parent[base + i]) {
        if (map_at(&m->node, m->l->hash[base + i], &slot) == MAP_FULL)
            data_die("out of memory");
        if (*slot)
            break;
        if (m->l->held[base + i]) {
            m->known[m->n_known++] = base + i;
            *slot = m->n_known;
            break;
        }
        path[n++] = i;
    }
    while (n) {
        uint32_t i = path[--n];

        (void)map_at(&m->node, m->l->hash[base + i], &slot);
        define(m->o, base + i, svc);
        *slot = m->o->n_defined | NEW_BIT;
    }
    return node ? (uint32_t)*slot : 0;
}

/* Known ones come first in the table, then the new ones. */
static uint32_t table_number(const struct making *m, uint32_t mark)
{
    return mark & NEW_BIT ? m->n_known + (mark & ~(uint32_t)NEW_BIT) : mark;
}

static void make_nodes(struct making *m, struct batch *b)
{
    const struct data *d = &m->b->d;
    struct arena *a = &m->o->arena;
    const struct host *o = m->o;
    size_t most = (size_t)o->n_defined + 1, n_fn = 1;
    struct batch_node *node = arena_array(a, struct batch_node, m->n_known + most);
    struct batch_fn *fn = arena_array(a, struct batch_fn, most);
    struct batch_frame *frame = arena_array(a, struct batch_frame, most);

    m->l->now++;
    for (uint32_t i = 0; i < m->n_known; i++)
        node[1 + i].hash = m->l->hash[m->known[i]];
    for (uint32_t i = 0; i < o->n_defined; i++) {
        uint32_t at = o->defined[i], f = d->function[at], base = d->first[o->defined_svc[i]];
        uint64_t parent = 0;

        if (m->l->stamp[f] != m->l->now) {
            struct str name;

            name.p = data_name(d, f, &name.n);
            m->l->stamp[f] = m->l->now;
            m->l->frame[f] = (uint32_t)n_fn;
            m->str[m->n_str] = name;
            fn[n_fn] = (struct batch_fn){.name = m->n_str++};
            frame[n_fn] = (struct batch_frame){.kind = FRAME_NATIVE, .fn = (uint32_t)n_fn};
            n_fn++;
        }
        if (d->parent[at])
            (void)map_get(&m->node, m->l->hash[base + d->parent[at]], &parent);
        node[1 + m->n_known + i] =
            (struct batch_node){table_number(m, (uint32_t)parent), m->l->frame[f], m->l->hash[at]};
    }
    b->n_node = 1 + m->n_known + o->n_defined;
    b->n_known = m->n_known;
    b->node = node;
    b->n_fn = b->n_frame = (uint32_t)n_fn;
    b->fn = fn;
    b->frame = frame;
}

static void make_labels(struct making *m, struct batch *b)
{
    struct arena *a = &m->o->arena;
    const struct data *d = &m->b->d;
    struct batch_labels *labels = arena_array(a, struct batch_labels, d->services + 1);
    uint32_t n = 1;

    m->label = arena_array(a, uint32_t, d->services);
    for (uint32_t i = 0; i < m->n_row; i++) {
        uint32_t svc = d->svc[m->row[i]], *pair;
        char text[16];

        if (m->label[svc])
            continue;
        (void)snprintf(text, sizeof text, "svc%03u", svc);
        pair = arena_array(a, uint32_t, 2);
        pair[0] = S_SERVICE;
        pair[1] = m->n_str;
        m->str[m->n_str++] = arena_str(a, str_c(text));
        labels[n] = (struct batch_labels){1, pair};
        m->label[svc] = n++;
    }
    b->labels = labels;
    b->n_labels = n;
}

static void make_rows(struct making *m, uint32_t type, struct batch_stream *st)
{
    const struct data *d = &m->b->d;
    struct arena *a = &m->o->arena;
    uint32_t n = 0, *node, *labels, *tid = NULL;
    uint64_t *count = NULL;
    int64_t *value = NULL;
    real_ns *t;

    for (uint32_t i = 0; i < m->n_row; i++)
        n += d->type[m->row[i]] == type;
    t = arena_array(a, real_ns, n);
    node = arena_array(a, uint32_t, n);
    labels = arena_array(a, uint32_t, n);
    if (d->thread)
        tid = arena_array(a, uint32_t, n);
    if (d->count)
        count = arena_array(a, uint64_t, n);
    if (type != DATA_CPU)
        value = arena_array(a, int64_t, n);
    n = 0;
    for (uint32_t i = 0; i < m->n_row; i++) {
        uint32_t r = m->row[i];

        if (d->type[r] != type)
            continue;
        t[n].v = m->b->hour.v + d->ts[r] * NS_PER_MS;
        node[n] = table_number(m, m->leaf[i]);
        labels[n] = m->label[d->svc[r]];
        if (tid)
            tid[n] = 1000U + d->thread[r];
        if (count)
            count[n] = d->count[r];
        if (value)
            value[n] = d->value[r];
        st->received += d->count ? d->count[r] : 1;
        n++;
    }
    st->rows = (struct batch_rows){
        .n = n, .t = t, .node = node, .labels = labels, .tid = tid, .count = count, .value = value};
}

static void make_streams(struct making *m, struct batch *b, real_ns end)
{
    const struct data *d = &m->b->d;
    struct arena *a = &m->o->arena;
    struct batch_stream *st = arena_array(a, struct batch_stream, TYPES);
    uint32_t n = 0;

    for (uint32_t type = 0; type < (d->count ? 2 : TYPES); type++) {
        struct batch_stream *s = &st[n++];

        *s = (struct batch_stream){.type = d->count && type ? PTYPE_OFFCPU : types[type],
                                   .kind = KIND_SUM,
                                   .width = 1,
                                   .covers = {m->o->covered[type], end},
                                   .state = SOURCE_OK,
                                   .basis = type == DATA_CPU ? BASIS_PERIODIC : BASIS_EVERY,
                                   .period = type == DATA_CPU ? DATA_CPU_NS : 1};
        m->o->covered[type] = end;
        make_rows(m, type, s);
        s->expected = s->received;
        if (d->streams) {
            size_t at = m->l->stream++ % d->streams;

            s->jitter = type == DATA_CPU ? d->jitter[at] : 0;
            if (d->lost[at]) {
                struct batch_loss *lost = arena_new(a, struct batch_loss);

                *lost = (struct batch_loss){S_RING_FULL, d->lost[at], BATCH_NO_WEIGHT};
                s->n_lost = 1;
                s->lost = lost;
                s->expected += d->lost[at];
            }
        }
    }
    b->stream = st;
    b->n_stream = n;
}

/* Rows [at, at + n) of the host; what happened at one time stays together, so that intervals do not
 * overlap. */
static uint32_t take(const struct bench *b, const struct host *o, uint32_t rows, size_t to,
                     real_ns *ret_end)
{
    const struct data *d = &b->d;
    uint32_t n = 0;

    while (o->at + n < o->n && o->row[o->at + n] < to &&
           (n < rows || d->ts[o->row[o->at + n]] == d->ts[o->row[o->at + n - 1]]))
        n++;
    if (n == 0)
        return 0;
    ret_end->v = b->hour.v + (d->ts[o->row[o->at + n - 1]] + (d->count ? 1000 : 1)) * NS_PER_MS;
    if (o->at + n == o->n)
        ret_end->v = b->hour.v + DATA_SPAN_MS * NS_PER_MS;
    return n;
}

static void make_batch(struct bench *b, uint32_t host, uint32_t n, real_ns end)
{
    struct loader *l = b->loader;
    struct host *o = &l->host[host];
    struct arena *a = &o->arena;
    struct making m = {.b = b, .l = l, .o = o, .n_row = n, .row = o->row + o->at};
    static const struct batch_bin no_bin[1];
    static const struct batch_target no_target[1];
    uint32_t *pair = arena_array(a, uint32_t, 2);
    char text[16];

    m.known = arena_array(a, uint32_t, n);
    m.leaf = arena_array(a, uint32_t, n);
    o->n_defined = 0;
    map_init(&m.node, 0);
    for (uint32_t i = 0; i < n; i++)
        m.leaf[i] = node_of(&m, b->d.svc[m.row[i]], b->d.stack[m.row[i]]);
    m.str = arena_array(a, struct str, S_FIRST + b->d.services + o->n_defined);
    if (!pair || !m.known || !m.leaf || !m.str)
        data_die("out of memory");
    (void)snprintf(text, sizeof text, "host-%u", host);
    m.str[S_SERVICE] = STR("service");
    m.str[S_HOST] = STR("host");
    m.str[S_HOST_NAME] = arena_str(a, str_c(text));
    m.str[S_RING_FULL] = STR("ring_full");
    m.n_str = S_FIRST;
    pair[0] = S_HOST;
    pair[1] = S_HOST_NAME;
    o->batch = (struct batch){.clock = {.sent = end},
                              .received = end,
                              .label = {1, pair},
                              .n_bin = 1,
                              .bin = no_bin,
                              .n_target = 1,
                              .target = no_target};
    memcpy(o->batch.id.agent, "bench-host-", 11);
    o->batch.id.agent[15] = (uint8_t)(host + 1);
    o->batch.id.boot[0] = 1;
    o->batch.id.seq = ++o->seq;
    o->batch.id.content = hash_mix(o->seq << 8 | host) | 1;
    make_labels(&m, &o->batch);
    make_nodes(&m, &o->batch);
    make_streams(&m, &o->batch, end);
    o->batch.n_str = m.n_str;
    o->batch.str = m.str;
    map_deinit(&m.node);
}

bool bench_next(struct bench *b, uint32_t host, uint32_t rows, size_t to, struct built *ret)
{
    struct host *o = &loader(b)->host[host];
    struct err err = {};
    real_ns end;
    uint32_t n = take(b, o, rows, to, &end);

    if (n == 0)
        return false;
    arena_reset(&o->arena);
    make_batch(b, host, n, end);
    o->at += n;
    if (batch_check(&o->batch, &err) < 0)
        bench_die("the bench's own batch", &err);
    buf_reset(&o->plain);
    buf_reset(&o->payload);
    if (wire_encode(&o->batch, &o->plain, NULL, &err) < 0 ||
        wire_compress(buf_view(&o->plain), &o->payload, &err) < 0)
        bench_die("encode", &err);
    *ret = (struct built){&o->batch, buf_view(&o->payload), n};
    return true;
}

void bench_held(struct bench *b, uint32_t host)
{
    struct host *o = &b->loader->host[host];

    for (uint32_t i = 0; i < o->n_defined; i++)
        b->loader->held[o->defined[i]] = 1;
    o->n_defined = 0;
}

/* ---- appending ------------------------------------------------------------------------------- */

static void on_done(void *ctx, int r, uint64_t lsn, const struct err *err)
{
    struct host *o = ctx;

    (void)lsn;
    o->r = r;
    if (r < 0)
        o->err = *err;
    (void)sem_post(&o->done);
}

static void settle(struct bench *b, uint32_t host)
{
    struct host *o = &b->loader->host[host];

    if (!o->in_flight)
        return;
    while (sem_wait(&o->done) < 0 && errno == EINTR)
        ;
    o->in_flight = false;
    if (o->r < 0)
        bench_die("append", &o->err);
    if (o->r > 0)
        data_die("append: outcome %d, a batch of its own was not stored", o->r);
    bench_held(b, host);
}

static void seal_if_due(struct bench *b, const struct load_ask *ask, struct loaded *ret)
{
    struct loader *l = b->loader;
    int64_t ms = (atomic_load(&b->now) - b->hour.v) / NS_PER_MS;
    double cpu;

    if (!ask->seal_ms || ms - l->sealed_ms < ask->seal_ms)
        return;
    for (uint32_t h = 0; h < BENCH_HOSTS; h++)
        settle(b, h);
    cpu = data_cpu_ns();
    bench_seal(b);
    ret->seal_cpu_ns += data_cpu_ns() - cpu;
    ret->seals++;
    l->sealed_ms = ms / ask->seal_ms * ask->seal_ms;
}

struct loaded bench_load(struct bench *b, const struct load_ask *ask)
{
    struct loader *l = loader(b);
    struct loaded ret = {};
    double begun = data_cpu_ns();
    bool more = true;

    while (more) {
        more = false;
        for (uint32_t h = 0; h < BENCH_HOSTS; h++) {
            struct built built;
            double cpu;
            bool got;

            settle(b, h);
            cpu = data_thread_cpu_ns();
            got = bench_next(b, h, ask->rows_per_batch, ask->to, &built);
            ret.encode_cpu_ns += data_thread_cpu_ns() - cpu;
            if (!got)
                continue;
            more = true;
            if (built.batch->received.v > atomic_load(&b->now))
                atomic_store(&b->now, built.batch->received.v);
            l->host[h].in_flight = true;
            store_append(b->store, built.batch, built.payload, on_done, &l->host[h]);
            ret.rows += built.rows;
            ret.batches++;
            ret.payload_bytes += built.payload.n;
        }
        seal_if_due(b, ask, &ret);
    }
    for (uint32_t h = 0; h < BENCH_HOSTS; h++)
        settle(b, h);
    ret.append_cpu_ns = data_cpu_ns() - begun - ret.encode_cpu_ns - ret.seal_cpu_ns;
    return ret;
}
