// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "bench/gen_profile.h"

enum {
    DEPTH_MIN = 30,
    DEPTH_MAX = 60,
    NODES_MAX = GEN_STACKS * 3, /* per service */
    SET_BITS = 18,
};

void gen_die(const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    (void)fputs("gen_profile: ", stderr);
    (void)vfprintf(stderr, fmt, ap);
    (void)fputc('\n', stderr);
    va_end(ap);
    exit(EXIT_FAILURE); // NOLINT(concurrency-mt-unsafe): one thread
}

void *gen_alloc(size_t n, size_t size)
{
    void *p = calloc(n ? n : 1, size);

    if (!p)
        gen_die("out of memory");
    return p;
}

/* ---- random numbers ------------------------------------------------------------------------- */

uint64_t rng_u64(struct rng *r)
{
    uint64_t z = (r->state += UINT64_C(0x9e3779b97f4a7c15));

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

struct rng rng_stream(uint64_t seed, uint64_t purpose)
{
    struct rng r = {.state = seed ^ (purpose * UINT64_C(0xd1342543de82ef95))};

    r.state = rng_u64(&r);
    return r;
}

uint32_t rng_below(struct rng *r, uint32_t n)
{
    return (uint32_t)(((rng_u64(r) >> 32) * n) >> 32);
}

double rng_unit(struct rng *r)
{
    return ((double)(rng_u64(r) >> 11) + 0.5) * 0x1p-53;
}

struct alias alias_zipf(uint32_t n, double exponent)
{
    struct alias a = {
        .n = n, .keep = gen_alloc(n, sizeof *a.keep), .other = gen_alloc(n, sizeof *a.other)};
    double *share = gen_alloc(n, sizeof *share), sum = 0;
    uint32_t *small = gen_alloc(n, sizeof *small), *large = gen_alloc(n, sizeof *large);
    uint32_t n_small = 0, n_large = 0;

    for (uint32_t i = 0; i < n; i++)
        sum += share[i] = pow(i + 1, -exponent);
    for (uint32_t i = 0; i < n; i++) {
        share[i] *= n / sum;
        a.keep[i] = UINT32_MAX;
        a.other[i] = i;
        if (share[i] < 1)
            small[n_small++] = i;
        else
            large[n_large++] = i;
    }
    while (n_small && n_large) {
        uint32_t s = small[--n_small], l = large[n_large - 1];

        a.keep[s] = (uint32_t)(share[s] * UINT32_MAX);
        a.other[s] = l;
        share[l] -= 1 - share[s];
        if (share[l] < 1) {
            n_large--;
            small[n_small++] = l;
        }
    }
    free(share);
    free(small);
    free(large);
    return a;
}

uint32_t alias_draw(const struct alias *a, struct rng *r)
{
    uint64_t x = rng_u64(r);
    uint32_t i = (uint32_t)(((x >> 32) * a->n) >> 32);

    return (uint32_t)x <= a->keep[i] ? i : a->other[i];
}

/* ---- tries ---------------------------------------------------------------------------------- */

/* Nodes by depth, and a set of (parent, function): what building needs and one service leaves. */
struct builder {
    uint32_t *at[DEPTH_MAX + 1];
    uint32_t n_at[DEPTH_MAX + 1];
    uint64_t *set;
};

static uint64_t pair_key(uint32_t parent, uint32_t function)
{
    return ((uint64_t)parent << 32 | function) + 1;
}

static bool set_add(struct builder *b, uint32_t parent, uint32_t function)
{
    const uint32_t mask = (1U << SET_BITS) - 1;
    uint64_t key = pair_key(parent, function);

    for (uint64_t i = key * UINT64_C(0x9e3779b97f4a7c15) >> 40;; i++) {
        uint64_t *slot = &b->set[i & mask];

        if (*slot == key)
            return false;
        if (!*slot) {
            *slot = key;
            return true;
        }
    }
}

static void trie_room(struct gen_trie *t, uint32_t room)
{
    t->room = room;
    t->parent = gen_alloc(room, sizeof *t->parent);
    t->function = gen_alloc(room, sizeof *t->function);
    t->depth = gen_alloc(room, sizeof *t->depth);
    t->id = gen_alloc(room, sizeof *t->id);
    t->order = gen_alloc(room, sizeof *t->order);
}

static uint32_t trie_add(struct gen_trie *t, uint32_t parent, uint32_t function)
{
    uint32_t node = t->n++;

    if (node == t->room)
        gen_die("a trie is larger than planned: %u nodes", t->room);
    t->parent[node] = parent;
    t->function[node] = function;
    t->depth[node] = node ? (uint8_t)(t->depth[parent] + 1) : 0;
    t->id[node] = UINT32_MAX;
    return node;
}

static uint32_t build_add(struct gen_trie *t, struct builder *b, uint32_t parent, uint32_t function)
{
    uint32_t node = trie_add(t, parent, function), depth = t->depth[node];

    b->at[depth][b->n_at[depth]++] = node;
    return node;
}

/* A function of this service or a shared one; early ones of each range are favoured. */
static uint32_t any_function(struct rng *r, uint32_t service)
{
    double u = rng_unit(r);

    if (rng_below(r, 10) < 3)
        return 1 + (uint32_t)(u * u * GEN_FUNCTIONS_SHARED);
    return 1 + GEN_FUNCTIONS_SHARED + service * GEN_FUNCTIONS_OWN +
           (uint32_t)(u * u * GEN_FUNCTIONS_OWN);
}

/* How many frames of a new stack are its own: mostly one or two, sometimes a whole branch. */
static uint32_t own_frames(struct rng *r)
{
    uint32_t n = 1;

    if (rng_below(r, 100) < 3)
        return 1 + rng_below(r, 30);
    while (n < 12 && rng_below(r, 1000) < 460)
        n++;
    return n;
}

/*
 * A stack of depth d hangs its own frames on a random node of the right depth. Stacks are built by
 * falling popularity, so that a rare stack tends to share frames with a popular one.
 */
static void trie_build(struct gen_trie *t, struct builder *b, uint64_t seed, uint32_t service)
{
    struct rng r = rng_stream(seed, 1000 + service);

    memset(b->n_at, 0, sizeof b->n_at);
    memset(b->set, 0, sizeof *b->set << SET_BITS);
    trie_room(t, NODES_MAX);
    t->leaf = gen_alloc(GEN_STACKS, sizeof *t->leaf);
    (void)build_add(t, b, 0, 0);
    t->id[0] = 0;
    t->seen = 1;
    for (uint32_t i = 0; i < GEN_STACKS; i++) {
        uint32_t depth = DEPTH_MIN + rng_below(&r, DEPTH_MAX - DEPTH_MIN + 1);
        uint32_t from = depth - own_frames(&r), node, f;

        while (!b->n_at[from])
            from--;
        node = b->at[from][rng_below(&r, b->n_at[from])];
        while (from++ < depth) {
            do
                f = any_function(&r, service);
            while (!set_add(b, node, f));
            node = build_add(t, b, node, f);
        }
        t->leaf[i] = node;
    }
}

uint64_t gen_tries(struct gen_trie *tries, uint64_t seed)
{
    struct builder b = {.set = gen_alloc(1U << SET_BITS, sizeof *b.set)};
    uint64_t nodes = 0;

    for (size_t d = 0; d <= DEPTH_MAX; d++)
        b.at[d] = gen_alloc(NODES_MAX, sizeof *b.at[d]);
    for (uint32_t s = 0; s < GEN_SERVICES; s++) {
        trie_build(&tries[s], &b, seed, s);
        nodes += tries[s].n;
    }
    for (size_t d = 0; d <= DEPTH_MAX; d++)
        free(b.at[d]);
    free(b.set);
    return nodes;
}

uint32_t gen_trie_id(struct gen_trie *t, uint32_t node)
{
    uint32_t path[DEPTH_MAX + 1], n = 0;

    for (uint32_t i = node; t->id[i] == UINT32_MAX; i = t->parent[i])
        path[n++] = i;
    while (n) {
        uint32_t i = path[--n];

        t->order[t->seen] = i;
        t->id[i] = t->seen++;
    }
    return t->id[node];
}

/* ---- recursion ------------------------------------------------------------------------------ */

enum {
    WALK_DEPTH_MIN = 20,
    WALK_DEPTH_MAX = 200,
    WALK_CHOICES = 12, /* call sites of one function of the grammar */
    WALK_GRAMMAR = 60, /* its functions */
};

void gen_walk_init(struct gen_walk *w, uint32_t most_nodes)
{
    uint32_t slots = 1024;

    while (slots < 2 * (uint64_t)most_nodes)
        slots *= 2;
    *w = (struct gen_walk){.slot = gen_alloc(slots, 2 * sizeof *w->slot), .mask = slots - 1};
    trie_room(&w->trie, most_nodes);
    (void)trie_add(&w->trie, 0, 0);
    w->trie.id[0] = 0;
    w->trie.seen = 1;
}

static uint32_t walk_child(struct gen_walk *w, uint32_t parent, uint32_t function)
{
    uint64_t key = pair_key(parent, function);

    for (uint64_t i = key * UINT64_C(0x9e3779b97f4a7c15) >> 32;; i++) {
        uint64_t *slot = &w->slot[2 * (i & w->mask)];

        if (*slot == key)
            return (uint32_t)slot[1];
        if (!*slot) {
            uint32_t node = trie_add(&w->trie, parent, function);

            w->trie.id[node] = node;
            w->trie.order[node] = node;
            w->trie.seen = w->trie.n;
            slot[0] = key;
            slot[1] = node;
            return node;
        }
    }
}

/* Returns from some rules and descends into others: on average as deep as before. */
uint32_t gen_walk_step(struct gen_walk *w, struct rng *r, uint32_t service)
{
    uint32_t up = rng_below(r, 9), down = rng_below(r, 9);

    if (w->depth < WALK_DEPTH_MIN)
        down += WALK_DEPTH_MIN;
    up = up < w->depth ? up : w->depth;
    w->depth -= up;
    for (uint32_t i = 0; i < down && w->depth < WALK_DEPTH_MAX; i++) {
        uint32_t at = w->path[w->depth], rule = w->trie.function[at] * 7 + rng_below(r, 3);
        uint32_t site = rng_below(r, WALK_CHOICES);

        w->path[w->depth + 1] = walk_child(w, at,
                                           1 + GEN_FUNCTIONS_SHARED + service * GEN_FUNCTIONS_OWN +
                                               rule % WALK_GRAMMAR * WALK_CHOICES + site);
        w->depth++;
    }
    return w->path[w->depth];
}

/* ---- output --------------------------------------------------------------------------------- */

uint64_t gen_checksum = UINT64_C(0xcbf29ce484222325);

FILE *gen_open(const char *dir, const char *name)
{
    char path[4096];
    FILE *f;

    (void)snprintf(path, sizeof path, "%s/%s", dir, name);
    f = fopen(path, "wbe");
    if (!f)
        gen_die("%s: %s", path, strerrordesc_np(errno));
    return f;
}

void gen_put(FILE *f, const void *p, size_t size)
{
    const unsigned char *at = p;

    if (size && fwrite(p, size, 1, f) != 1)
        gen_die("write: %s", strerrordesc_np(errno));
    for (size_t i = 0; i + 8 <= size; i += 8) { /* whole words: enough to tell two runs apart */
        uint64_t word;

        memcpy(&word, at + i, sizeof word);
        gen_checksum = (gen_checksum ^ word) * UINT64_C(0x100000001b3);
    }
}

void gen_finish(FILE *f)
{
    if (fclose(f))
        gen_die("close: %s", strerrordesc_np(errno));
}

static const char *const words[] = {
    "account", "billing", "cache",  "cart",   "catalog", "cluster", "config",  "cursor",
    "decode",  "digest",  "encode", "event",  "fetch",   "filter",  "flush",   "gateway",
    "index",   "invoice", "ledger", "limit",  "lookup",  "merge",   "message", "metric",
    "order",   "parse",   "policy", "quota",  "render",  "replica", "request", "resolve",
    "retry",   "route",   "scan",   "search", "session", "shard",   "stream",  "token",
};
#define WORDS ((uint32_t)(sizeof words / sizeof words[0]))

double gen_write_functions(const char *dir, uint64_t seed)
{
    FILE *names = gen_open(dir, "function.name"), *ends = gen_open(dir, "function.end");
    struct rng r = rng_stream(seed, 1);
    uint32_t end = 0;

    for (uint32_t i = 0; i < GEN_FUNCTIONS; i++) {
        uint32_t own = i - 1 - GEN_FUNCTIONS_SHARED, service = own / GEN_FUNCTIONS_OWN;
        const char *w[4];
        char name[256];
        int n;

        for (size_t k = 0; k < 4; k++)
            w[k] = words[rng_below(&r, WORDS)];
        own %= GEN_FUNCTIONS_OWN;
        if (i == 0)
            n = snprintf(name, sizeof name, "[root]");
        else if (i <= GEN_FUNCTIONS_SHARED)
            n = snprintf(name, sizeof name, "runtime/%s.%s_%s%u", w[0], w[1], w[2], i);
        else if (service % 3 == 0)
            n = snprintf(name, sizeof name, "svc%03u/%s.(*%s).%s_%s%u", service, w[0], w[1], w[2],
                         w[3], own);
        else if (service % 3 == 1)
            n = snprintf(name, sizeof name, "svc%03u::%s::%s_%s(%s&)::%u", service, w[0], w[1],
                         w[2], w[3], own);
        else
            n = snprintf(name, sizeof name, "svc%03u.%s.%s.%s%s%u", service, w[0], w[1], w[2], w[3],
                         own);
        gen_put(names, name, (size_t)n);
        end += (uint32_t)n;
        gen_put(ends, &end, sizeof end);
    }
    gen_finish(names);
    gen_finish(ends);
    return (double)end / GEN_FUNCTIONS;
}

/* Depth-first positions, children by rising id. One pass each way, since parents come first. */
static void number_depth_first(const uint32_t *parent, uint32_t n, uint32_t *pre, uint32_t *size)
{
    uint32_t *next = gen_alloc(n, sizeof *next);

    for (uint32_t i = 0; i < n; i++)
        size[i] = 1;
    for (uint32_t i = n - 1; i > 0; i--)
        size[parent[i]] += size[i];
    pre[0] = 0;
    next[0] = 1;
    for (uint32_t i = 1; i < n; i++) {
        pre[i] = next[parent[i]];
        next[parent[i]] += size[i];
        next[i] = pre[i] + 1;
    }
    free(next);
}

uint32_t gen_write_tries(const char *dir, const struct gen_trie *tries, uint32_t services)
{
    FILE *first = gen_open(dir, "service.first"), *parents = gen_open(dir, "node.parent");
    FILE *functions = gen_open(dir, "node.function");
    FILE *pres = gen_open(dir, "node.pre"), *sizes = gen_open(dir, "node.size");
    uint32_t rows = 0;

    for (uint32_t s = 0; s < services; s++) {
        const struct gen_trie *t = &tries[s];
        size_t bytes = t->seen * sizeof(uint32_t);
        uint32_t *v = gen_alloc(t->seen, 4 * sizeof *v);
        uint32_t *parent = v, *function = v + t->seen, *pre = v + 2 * (size_t)t->seen,
                 *size = v + 3 * (size_t)t->seen;

        for (uint32_t id = 0; id < t->seen; id++) {
            parent[id] = t->id[t->parent[t->order[id]]];
            function[id] = t->function[t->order[id]];
        }
        number_depth_first(parent, t->seen, pre, size);
        gen_put(first, &rows, sizeof rows);
        gen_put(parents, parent, bytes);
        gen_put(functions, function, bytes);
        gen_put(pres, pre, bytes);
        gen_put(sizes, size, bytes);
        free(v);
        rows += t->seen;
    }
    gen_put(first, &rows, sizeof rows);
    gen_finish(first);
    gen_finish(parents);
    gen_finish(functions);
    gen_finish(pres);
    gen_finish(sizes);
    return rows;
}
