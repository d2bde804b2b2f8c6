// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <stdlib.h>

#include "query/query_private.h"

/*
 * Filters change stacks, one after the other. What each of them does to a frame or to a sample is
 * decided by the frames above it alone, so a whole chain is two answers per node of a tree of
 * stacks: does its frame stay, and do the samples that end at it. Each filter is one pass down.
 *
 *   keep      samples with a match stay
 *   drop      samples without one stay
 *   start     frames above the outermost match go; samples without a match go
 *   merge     matching frames go; what ended there ends at the nearest frame above that stays
 *   collapse  of a run of adjacent matches the outermost stays; collapse:recursion: of a run of one
 *             function
 *
 * A filter sees only frames that those before it left: two frames are adjacent if nothing between
 * them is left.
 */

/* ---- reading -----------------------------------------------------------------------------------
 */

static const struct {
    struct str word;
    enum query_verb verb;
} verbs[] = {
    {STR("keep:"), QUERY_KEEP},   {STR("drop:"), QUERY_DROP},         {STR("start:"), QUERY_START},
    {STR("merge:"), QUERY_MERGE}, {STR("collapse:"), QUERY_COLLAPSE},
};

static int filter_parse(struct query_filter *f, struct str text, struct query_err *e)
{
    for (size_t i = 0; i < sizeof verbs / sizeof verbs[0]; i++) {
        struct str pattern = str_from(text, verbs[i].word.n);

        if (!str_starts(text, verbs[i].word))
            continue;
        f->verb = verbs[i].verb;
        f->text = text;
        if (f->verb == QUERY_COLLAPSE && str_eq(pattern, STR("recursion"))) {
            f->verb = QUERY_COLLAPSE_RECURSION;
            return 0;
        }
        return query_pattern_filter(pattern, "f", &f->pattern, e);
    }
    return query_fail(e, -EINVAL, QUERY_BAD_PARAMETER, "f",
                      "f=%.*s: a filter is keep:, drop:, start:, merge: or collapse: and a pattern",
                      STR_ARG(str_to(text, 80)));
}

int query_filters_parse(struct arena *a, const struct str *text, uint32_t n,
                        struct query_filters *ret, struct query_err *e)
{
    struct query_filters f = {};

    if (n > QUERY_FILTER_MAX) {
        int r = query_fail(e, -EINVAL, QUERY_BAD_PARAMETER, "f", "%u filters, at most %d", n,
                           QUERY_FILTER_MAX);

        e->limit = QUERY_FILTER_MAX;
        e->actual = n;
        return r;
    }
    for (uint32_t i = 0; i < n; i++) {
        struct str copy = arena_str(a, text[i]);
        int r;

        if (text[i].n && !copy.p)
            r = query_fail(e, -ENOMEM, QUERY_TOO_EXPENSIVE, "f", "out of memory");
        else
            r = filter_parse(&f.v[i], copy, e);
        f.n = i + 1;
        if (r < 0) {
            query_filters_deinit(&f);
            return r;
        }
        f.drops |= f.v[i].verb <= QUERY_START;
        f.own |= query_pattern_own(&f.v[i].pattern);
    }
    *ret = f;
    return 0;
}

int query_filters_clone(const struct query_filters *f, struct query_filters *ret,
                        struct query_err *e)
{
    struct query_filters c = *f;

    for (c.n = 0; c.n < f->n; c.n++) {
        const struct query_pattern *p = &f->v[c.n].pattern;
        int r = query_pattern_clone(p, "f", &c.v[c.n].pattern, e);

        if (r < 0) {
            query_filters_deinit(&c);
            return r;
        }
    }
    *ret = c;
    return 0;
}

void query_filters_deinit(struct query_filters *f)
{
    for (uint32_t i = 0; i < f->n; i++)
        query_pattern_deinit(&f->v[i].pattern);
    f->n = 0;
}

/* ---- one pass down per filter ------------------------------------------------------------------
 */

static bool level_at(const struct query_paths *p, uint32_t i)
{
    return p->level ? p->level[i] != 0 : i == 0;
}

/* in[i]: a frame at or above i matches. */
static void mark_below(const struct query_paths *p, const uint8_t *hit, const uint8_t *present,
                       uint32_t *in)
{
    for (uint32_t i = 0; i < p->n; i++)
        in[i] = !level_at(p, i) && (in[p->parent[i]] || (present[i] && hit[p->func[i]]));
}

static void take(struct query_fate *fate, const struct query_paths *p, const uint32_t *in,
                 bool match, uint32_t k)
{
    for (uint32_t i = 0; i < p->n; i++) {
        if (!fate->dead[i] && (in[i] != 0) == match)
            fate->dead[i] = (uint8_t)(k + 1);
    }
}

static void start_below(struct query_fate *fate, const struct query_paths *p, const uint32_t *in)
{
    for (uint32_t i = 0; i < p->n; i++) {
        if (!in[i] && !level_at(p, i))
            fate->present[i] = 0;
    }
}

static void merge(struct query_fate *fate, const struct query_paths *p, const uint8_t *hit)
{
    for (uint32_t i = 0; i < p->n; i++) {
        if (!level_at(p, i) && hit[p->func[i]])
            fate->present[i] = 0;
    }
}

/*
 * above[i]: 1 + what the nearest frame at or above i is, as it was before this filter; 0: there is
 * none. What a frame is: its function, or, with hit, whether it matches (1) or not (0).
 */
static void collapse(struct query_fate *fate, const struct query_paths *p, const uint8_t *hit,
                     uint32_t *above)
{
    for (uint32_t i = 0; i < p->n; i++) {
        uint32_t is;

        if (level_at(p, i)) {
            above[i] = 0;
            continue;
        }
        above[i] = above[p->parent[i]];
        if (!fate->present[i])
            continue;
        is = p->func[i];
        is = 1 + (hit ? hit[is] : p->same ? p->same[is] : is);
        if (above[i] == is && (!hit || is == 2))
            fate->present[i] = 0;
        above[i] = is;
    }
}

int query_filters_apply(const struct query *q, const struct query_filters *f,
                        const struct query_paths *p, uint8_t *const *hit, uint32_t *scratch,
                        struct query_fate *ret, struct query_err *e)
{
    memset(ret->present, 1, p->n);
    for (uint32_t k = 0; k < f->n; k++) {
        TRY(query_alive(q, e));
        switch (f->v[k].verb) {
        case QUERY_KEEP:
        case QUERY_DROP:
        case QUERY_START:
            mark_below(p, hit[k], ret->present, scratch);
            take(ret, p, scratch, f->v[k].verb == QUERY_DROP, k);
            if (f->v[k].verb == QUERY_START)
                start_below(ret, p, scratch);
            break;
        case QUERY_MERGE:
            merge(ret, p, hit[k]);
            break;
        case QUERY_COLLAPSE:
            collapse(ret, p, hit[k], scratch);
            break;
        case QUERY_COLLAPSE_RECURSION:
        default:
            collapse(ret, p, NULL, scratch);
        }
    }
    return 0;
}

/* ---- of a trie, while it is scanned ------------------------------------------------------------
 */

struct trie_work {
    struct store_trie trie;
    bool by_frame; /* nodes, not function nodes: a pattern sees what frames have themselves */
    uint32_t n;
    const uint32_t *parent, *id; /* id: function or frame of the epoch */
    uint32_t *func;              /* node -> dense number of its id */
    uint32_t *same;              /* by_frame: dense number -> function of the epoch */
    uint8_t *hit[QUERY_FILTER_MAX];
    uint32_t *scratch;
    struct query_fate fate;
    uint32_t n_func;
    struct map dense; /* id -> dense number; 0 is the root's */
    struct arena arena;
};

/* What patterns see of an id. */
static int seen_of(struct query *q, struct trie_work *w, uint32_t epoch, uint32_t id,
                   uint32_t dense, struct query_func *ret, struct query_err *e)
{
    struct store_frame frame = {};
    struct store_func func = {};
    struct err err = {};
    int r = w->by_frame ? store_frame(q->view, epoch, id, &frame, &err)
                        : store_func(q->view, epoch, id, &func, &err);

    if (r < 0)
        return query_store_failed(q, r, &err, e);
    if (w->by_frame) {
        w->same[dense] = frame.func;
        *ret = (struct query_func){.name = frame.name,
                                   .file = frame.file,
                                   .bin = str_basename(frame.bin),
                                   .kind = frame.kind};
    } else {
        *ret = (struct query_func){
            .name = func.name, .file = func.file, .bin = str_basename(func.bin), .kind = func.kind};
    }
    return 0;
}

/* One match per function, or frame, and filter, however many nodes it has. */
static int match_functions(struct query *q, const struct query_filters *f, uint32_t epoch,
                           struct trie_work *w, struct query_err *e)
{
    for (uint32_t i = 1; i < w->n; i++) {
        struct query_func fn = {};
        uint64_t *slot;
        enum map_result m = map_at(&w->dense, w->id[i], &slot);
        int r;

        if (m == MAP_FULL)
            return query_no_memory(q, e);
        if (m == MAP_FOUND) {
            w->func[i] = (uint32_t)*slot;
            continue;
        }
        *slot = w->func[i] = w->n_func++;
        if (w->n_func % 256 == 0)
            TRY(query_alive(q, e));
        TRY(seen_of(q, w, epoch, w->id[i], w->func[i], &fn, e));
        for (uint32_t k = 0; k < f->n; k++) {
            if (f->v[k].verb == QUERY_COLLAPSE_RECURSION)
                continue;
            r = query_pattern_match(&f->v[k].pattern, &fn);
            if (r < 0)
                return query_fail(e, r, QUERY_REGEX_TOO_EXPENSIVE, "f",
                                  "the regular expression takes too much work on one name of %zu "
                                  "bytes",
                                  fn.name.n);
            w->hit[k][w->func[i]] = (uint8_t)r;
        }
    }
    return 0;
}

static int trie_arrays(struct query *q, const struct query_filters *f, struct trie_work *w,
                       struct query_err *e)
{
    uint32_t n = w->n;

    w->func = arena_array(&w->arena, uint32_t, n);
    w->same = w->by_frame ? arena_array(&w->arena, uint32_t, (size_t)n + 1) : NULL;
    w->scratch = arena_array(&w->arena, uint32_t, n);
    w->fate.present = arena_array(&w->arena, uint8_t, n);
    w->fate.dead = arena_array(&w->arena, uint8_t, n);
    if (!w->func || (w->by_frame && !w->same) || !w->scratch || !w->fate.present || !w->fate.dead)
        return query_no_memory(q, e);
    for (uint32_t k = 0; k < f->n; k++) {
        w->hit[k] = arena_array(&w->arena, uint8_t, (size_t)n + 1);
        if (!w->hit[k])
            return query_no_memory(q, e);
    }
    return 0;
}

static int trie_fate(struct query *q, const struct query_filters *f, struct store_trie_id id,
                     struct trie_work *w, struct query_err *e)
{
    struct err err = {};
    struct query_paths p;
    int r = store_trie(q->view, id, &w->trie, &err);

    if (r < 0)
        return query_store_failed(q, r, &err, e);
    w->by_frame = f->own;
    w->n = f->own ? w->trie.n : w->trie.n_fnode;
    w->parent = f->own ? w->trie.parent : w->trie.fparent;
    w->id = f->own ? w->trie.frame : w->trie.func;
    TRY(trie_arrays(q, f, w, e));
    TRY(match_functions(q, f, id.epoch, w, e));
    p = (struct query_paths){
        .n = w->n, .n_func = w->n_func, .parent = w->parent, .func = w->func, .same = w->same};
    return query_filters_apply(q, f, &p, w->hit, w->scratch, &w->fate, e);
}

int query_filters_nodes(struct query *q, const struct query_filters *f, struct store_trie_id trie,
                        uint64_t **ret, uint64_t *ret_bytes, struct query_err *e)
{
    struct trie_work w = {.n_func = 1};
    uint64_t *bits = NULL;
    int r;

    arena_init(&w.arena, q->conf.mem_max);
    map_init(&w.dense, 0);
    r = trie_fate(q, f, trie, &w, e);
    if (r == 0) {
        *ret_bytes = ((uint64_t)w.trie.n / 64 + 1) * sizeof *bits;
        bits = calloc(w.trie.n / 64 + 1, sizeof *bits);
        if (!bits)
            r = query_no_memory(q, e);
    }
    for (uint32_t i = 0; bits && i < w.trie.n; i++) {
        if (!w.fate.dead[w.by_frame ? i : w.trie.fnode[i]])
            query_bit_set(bits, i);
    }
    map_deinit(&w.dense);
    arena_deinit(&w.arena);
    if (r == 0)
        *ret = bits;
    return r;
}
