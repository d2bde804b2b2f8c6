// SPDX-License-Identifier: Apache-2.0
/*
 * Merging parts row by row. In each part the blocks of a trie are rows in time order, cut; so each
 * input is a stream of which one block is decoded at a time, and the earliest row of all streams
 * comes next. Threads are renumbered on the way, which changes the order among rows of one
 * millisecond: each block that is filled is sorted once more.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "storage/keep/compact_private.h"

#define BLOCK_MEM  ((size_t)64 << 20)
#define LOCAL_NONE UINT32_MAX

/* One input, at the trie that is being merged. */
struct stream {
    struct part *part;
    struct part_handle *handle;
    uint32_t *thread, *scope; /* the part's id -> that of the result */
    uint32_t n_thread, n_scope;
    const struct part_block *block;
    uint32_t n_block, next;
    struct arena mem;
    struct block_rows rows;
    uint32_t at;
};

/* The block being filled. Columns that no row needs are left out when it is written. */
struct filling {
    struct block_rows rows;
    bool count, wide, cpu, attr, var;
};

struct merge {
    const struct compact_job *job;
    struct part_writer *w;
    struct block_coder *coder;
    struct stream *stream;
    struct stream **heap; /* by the ms of the next row */
    uint32_t n_heap;
    struct filling out;
    struct arena mem, sort;
    const struct part_block *trie; /* any block of it */
};

static int no_memory(struct err *err)
{
    return err_set(err, -ENOMEM, "compaction: memory is short");
}

/* ---- the block being filled ---------------------------------------------------------------- */

static bool filling_init(struct filling *f, struct arena *a)
{
    struct block_rows *r = &f->rows;

    r->ms = arena_array(a, int64_t, BLOCK_ROWS);
    r->series = arena_array(a, uint32_t, BLOCK_ROWS);
    r->thread = arena_array(a, uint32_t, BLOCK_ROWS);
    r->node = arena_array(a, uint32_t, BLOCK_ROWS);
    r->count = arena_array(a, uint64_t, BLOCK_ROWS);
    r->value = arena_array(a, int64_t, BLOCK_ROWS);
    r->wide = arena_array(a, unit_i128, BLOCK_ROWS);
    r->cpu = arena_array(a, uint32_t, BLOCK_ROWS);
    r->attr = arena_array(a, uint32_t, BLOCK_ROWS);
    r->var = arena_array(a, float, BLOCK_ROWS);
    r->held = arena_array(a, uint32_t, BLOCK_ROWS);
    return r->ms && r->series && r->thread && r->node && r->count && r->value && r->wide &&
           r->cpu && r->attr && r->var && r->held;
}

static void filling_clear(struct filling *f)
{
    f->rows.n = 0;
    f->count = f->wide = f->cpu = f->attr = f->var = false;
}

/* Rows of levels hold their scope there, a number of the part. */
static uint32_t attr_of_row(const struct stream *s, const struct block_rows *from, uint32_t i)
{
    uint32_t attr = from->attr ? from->attr[i] : 0;

    return from->held ? s->scope[attr] : attr;
}

static void fill(struct filling *f, const struct stream *s)
{
    const struct block_rows *from = &s->rows;
    struct block_rows *to = &f->rows;
    uint32_t i = s->at, k = to->n++;

    if (k == 0)
        to->period = from->period;
    to->ms[k] = from->ms[i];
    to->series[k] = from->series[i];
    to->thread[k] = s->thread[from->thread[i]];
    to->node[k] = from->node[i];
    to->count[k] = from->count ? from->count[i] : 1;
    to->wide[k] = from->wide    ? from->wide[i]
                  : from->value ? (unit_i128)from->value[i]
                                : (unit_i128)from->period * to->count[k];
    to->value[k] = (int64_t)to->wide[k];
    to->cpu[k] = from->cpu ? from->cpu[i] : 0;
    to->attr[k] = attr_of_row(s, from, i);
    to->var[k] = from->var ? from->var[i] : NAN;
    to->held[k] = from->held ? from->held[i] : 0;
    f->count |= from->count != NULL;
    f->wide |= to->wide[k] != to->value[k];
    f->cpu |= from->cpu != NULL;
    f->attr |= from->attr != NULL;
    f->var |= from->var != NULL;
}

static int flush(struct merge *m, bool level, struct err *err)
{
    struct block_rows r = m->out.rows;

    if (r.n == 0)
        return 0;
    if (!m->out.count)
        r.count = NULL;
    if (m->out.wide)
        r.value = NULL;
    else
        r.wide = NULL;
    if (!m->out.cpu)
        r.cpu = NULL;
    if (!m->out.attr)
        r.attr = NULL;
    if (!m->out.var)
        r.var = NULL;
    if (!level)
        r.held = NULL;
    arena_reset(&m->sort);
    TRY(block_sort(&r, &m->sort, err));
    TRY(part_put_block(m->w, &r, m->trie->m.type, m->trie->m.svc, m->trie->m.sub, err));
    filling_clear(&m->out);
    return 0;
}

/* ---- streams ------------------------------------------------------------------------------- */

/* Threads and scopes of the rows are entries of the part's tables: what is not there is damage, and
 * never row 0. */
static bool known_ids(const struct stream *s)
{
    const struct block_rows *r = &s->rows;

    for (uint32_t i = 0; i < r->n; i++) {
        if (r->thread[i] >= s->n_thread)
            return false;
        if (r->held && r->attr && r->attr[i] >= s->n_scope)
            return false;
    }
    return true;
}

static int decode(struct merge *m, struct stream *s, const struct part_block *b, struct str summary,
                  struct str cols, struct err *err)
{
    int r = block_decode(m->coder, summary, cols, COMPACT_NODES, &s->mem, &s->rows, err);

    if (r == 0 && (s->rows.n != b->m.n || s->rows.n == 0))
        r = err_set(err, -EBADMSG, "%s: block %u: %u rows, its row says %u", s->part->info.name,
                    b->id, s->rows.n, b->m.n);
    if (r == 0 && !known_ids(s))
        r = err_set(err, -EBADMSG, "%s: block %u: a thread or scope that the part does not have",
                    s->part->info.name, b->id);
    if (r == -EBADMSG)
        atomic_fetch_add(&s->part->bad, 1);
    return r;
}

/* Decode the next block. *ret_more: there was one. */
static int advance(struct merge *m, struct stream *s, bool *ret_more, struct err *err)
{
    const struct part_block *b = &s->block[s->next];
    struct str summary, cols;

    *ret_more = s->next < s->n_block;
    if (!*ret_more)
        return 0;
    if (m->job->stop && atomic_load(m->job->stop))
        return err_set(err, -ECANCELED, "compaction: stopped");
    arena_reset(&s->mem);
    TRY(part_summary(s->handle, b->id, &summary, err));
    summary = arena_str(&s->mem, summary); /* the handle's bytes end with its next call */
    if (!summary.p)
        return no_memory(err);
    TRY(part_cols(s->handle, b->id, &cols, err));
    TRY(decode(m, s, b, summary, cols, err));
    s->next++;
    s->at = 0;
    return 0;
}

static int64_t next_ms(const struct stream *s)
{
    return s->rows.ms[s->at];
}

static void sift_down(struct merge *m, uint32_t i)
{
    for (;;) {
        uint32_t least = i, left = 2 * i + 1;
        struct stream *t = m->heap[i];

        for (uint32_t k = left; k < left + 2 && k < m->n_heap; k++) {
            if (next_ms(m->heap[k]) < next_ms(m->heap[least]))
                least = k;
        }
        if (least == i)
            return;
        m->heap[i] = m->heap[least];
        m->heap[least] = t;
        i = least;
    }
}

static int start_streams(struct merge *m, struct err *err)
{
    m->n_heap = 0;
    for (uint32_t i = 0; i < m->job->n_in; i++) {
        struct stream *s = &m->stream[i];
        bool more;

        s->n_block =
            part_blocks(s->part, m->trie->m.type, m->trie->m.svc, m->trie->m.sub, &s->block);
        s->next = 0;
        TRY(advance(m, s, &more, err));
        if (more)
            m->heap[m->n_heap++] = s;
    }
    for (uint32_t i = m->n_heap / 2; i-- > 0;)
        sift_down(m, i);
    return 0;
}

static int merge_trie(struct merge *m, struct err *err)
{
    bool level = false;

    TRY(start_streams(m, err));
    while (m->n_heap > 0) {
        struct stream *s = m->heap[0];
        bool more = true;

        level |= s->rows.held != NULL;
        fill(&m->out, s);
        if (m->out.rows.n == BLOCK_ROWS)
            TRY(flush(m, level, err));
        if (++s->at == s->rows.n)
            TRY(advance(m, s, &more, err));
        if (!more)
            m->heap[0] = m->heap[--m->n_heap];
        sift_down(m, 0);
    }
    return flush(m, level, err);
}

/* ---- all tries ----------------------------------------------------------------------------- */

static int by_trie(const void *a, const void *b)
{
    const struct block_meta *x = &(*(const struct part_block *const *)a)->m,
                            *y = &(*(const struct part_block *const *)b)->m;

    if (x->type != y->type)
        return x->type < y->type ? -1 : 1;
    if (x->svc != y->svc)
        return x->svc < y->svc ? -1 : 1;
    return (x->sub > y->sub) - (x->sub < y->sub);
}

/* One block of each trie that occurs in any input, by (type, svc, sub). */
static int list_tries(struct merge *m, const struct part_block ***ret, uint32_t *ret_n,
                      struct err *err)
{
    const struct part_block **v;
    uint32_t room = 0, n = 0, kept = 0;

    for (uint32_t i = 0; i < m->job->n_in; i++)
        room += m->job->in[i]->n_block;
    v = arena_array(&m->mem, const struct part_block *, room);
    if (!v)
        return no_memory(err);
    for (uint32_t i = 0; i < m->job->n_in; i++) {
        for (uint32_t k = 0; k < m->job->in[i]->n_block; k++)
            v[n++] = &m->job->in[i]->block[k];
    }
    if (n > 1)
        qsort(v, n, sizeof *v, by_trie); // NOLINT(bugprone-sizeof-expression)
    for (uint32_t i = 0; i < n; i++) {
        if (kept == 0 || by_trie(&v[kept - 1], &v[i]) != 0)
            v[kept++] = v[i];
    }
    *ret = v;
    *ret_n = kept;
    return 0;
}

/* Numbers that entries of the source of w get in the result. */
static uint32_t *translate(struct merge *m, uint32_t n,
                           uint32_t (*number)(struct part_writer *w, uint32_t id))
{
    uint32_t *v = arena_array(&m->mem, uint32_t, n ? n : 1);

    for (uint32_t i = 1; v && i < n; i++) {
        v[i] = number(m->w, i);
        if (v[i] == LOCAL_NONE)
            return NULL;
    }
    return v;
}

/* Each input becomes a source of the writer; its threads and scopes get their numbers. */
static int open_streams(struct merge *m, struct err *err)
{
    for (uint32_t i = 0; i < m->job->n_in; i++) {
        struct stream *s = &m->stream[i];
        const struct local *local;
        struct local_snap snap;

        s->part = m->job->in[i];
        arena_init(&s->mem, BLOCK_MEM);
        TRY(part_enter(s->part, &s->handle, err));
        TRY(part_local(s->part, &local, &snap, err));
        TRY(part_source(m->w, local, &snap, err));
        s->n_thread = snap.thread;
        s->n_scope = snap.scope;
        s->thread = translate(m, snap.thread, part_thread);
        s->scope = translate(m, snap.scope, part_scope);
        if (!s->thread || !s->scope)
            return no_memory(err);
    }
    return 0;
}

static int put_locals(struct merge *m, struct err *err)
{
    const struct interval all = {{INT64_MIN}, {INT64_MAX}};

    for (uint32_t i = 0; i < m->job->n_in; i++) {
        const struct local *local;
        struct local_snap snap;

        TRY(part_local(m->job->in[i], &local, &snap, err));
        TRY(part_source(m->w, local, &snap, err));
        TRY(part_put_local(m->w, all, err));
    }
    return 0;
}

static int merge_all(struct merge *m, struct err *err)
{
    const struct part_block **trie = NULL;
    uint32_t n = 0;

    TRY(open_streams(m, err));
    TRY(list_tries(m, &trie, &n, err));
    for (uint32_t i = 0; i < n; i++) {
        m->trie = trie[i];
        TRY(merge_trie(m, err));
    }
    return put_locals(m, err);
}

int merge_parts(const struct compact_job *job, struct part_writer *w, struct err *err)
{
    struct merge m = {.job = job, .w = w, .coder = block_coder_new()};
    int r;

    arena_init(&m.mem, (size_t)1 << 30);
    arena_init(&m.sort, BLOCK_MEM);
    m.stream = arena_array(&m.mem, struct stream, job->n_in);
    m.heap = arena_array(&m.mem, struct stream *, job->n_in);
    r = m.coder && m.stream && m.heap && filling_init(&m.out, &m.mem) ? merge_all(&m, err)
                                                                      : no_memory(err);
    for (uint32_t i = 0; m.stream && i < job->n_in; i++) {
        if (m.stream[i].handle)
            part_leave(m.stream[i].handle);
        arena_deinit(&m.stream[i].mem);
    }
    arena_deinit(&m.mem);
    arena_deinit(&m.sort);
    (void)block_coder_free(m.coder);
    return r;
}
