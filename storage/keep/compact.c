// SPDX-License-Identifier: Apache-2.0
/*
 * Why a merged part may replace its inputs: it was read back from its file, every block decoded and
 * its sums computed again (block_check), and number, count and total of each (type, service) are
 * those of the inputs, in integers. The swap is one transaction of the catalog (seal_swap), which
 * fails if an input is no longer listed; readers keep the view they have.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "storage/keep/compact_private.h"

#define CHECK_MEM ((size_t)64 << 20)

struct sum {
    ptype_id type;
    uint32_t svc;
    uint64_t n, count;
    unit_i128 total;
};

struct sums {
    uint32_t n, room;
    struct sum *v;
};

static int by_key(const void *a, const void *b)
{
    const struct sum *x = a, *y = b;

    if (x->type != y->type)
        return x->type < y->type ? -1 : 1;
    return (x->svc > y->svc) - (x->svc < y->svc);
}

static bool add_blocks(struct sums *s, const struct part *p)
{
    for (uint32_t i = 0; i < p->n_block; i++) {
        const struct block_meta *m = &p->block[i].m;
        struct sum *last = s->n ? &s->v[s->n - 1] : NULL;

        if (!last || last->type != m->type || last->svc != m->svc) {
            if (s->n == s->room) {
                uint32_t room = s->room ? 2 * s->room : 64;
                struct sum *v = realloc(s->v, room * sizeof *v);

                if (!v)
                    return false;
                s->v = v;
                s->room = room;
            }
            last = &s->v[s->n++];
            *last = (struct sum){.type = m->type, .svc = m->svc};
        }
        last->n += m->n;
        last->count += m->count;
        last->total += m->total;
    }
    return true;
}

/* Equal keys become one. */
static void fold(struct sums *s)
{
    uint32_t kept = 0;

    if (s->n > 1)
        qsort(s->v, s->n, sizeof *s->v, by_key);
    for (uint32_t i = 0; i < s->n; i++) {
        if (kept > 0 && by_key(&s->v[kept - 1], &s->v[i]) == 0) {
            s->v[kept - 1].n += s->v[i].n;
            s->v[kept - 1].count += s->v[i].count;
            s->v[kept - 1].total += s->v[i].total;
        } else {
            s->v[kept++] = s->v[i];
        }
    }
    s->n = kept;
}

static int compare(const struct sums *in, const struct sums *out, struct err *err)
{
    if (in->n != out->n)
        return err_set(err, -EBADMSG,
                       "compaction: %" PRIu32 " services and types in, %" PRIu32 " out", in->n,
                       out->n);
    for (uint32_t i = 0; i < in->n; i++) {
        const struct sum *a = &in->v[i], *b = &out->v[i];

        if (by_key(a, b) != 0 || a->n != b->n || a->count != b->count || a->total != b->total)
            return err_set(err, -EBADMSG,
                           "compaction: type %" PRIu32 " service %" PRIu32 ": %" PRIu64
                           " rows in, %" PRIu64 " out, or their sums differ",
                           (uint32_t)a->type, a->svc, a->n, b->n);
    }
    return 0;
}

/* Decode every block of the file that was written. */
static int check_blocks(struct part *p, struct part_handle *h, struct block_coder *coder,
                        struct arena *mem, const atomic_bool *stop, struct err *err)
{
    for (uint32_t i = 0; i < p->n_block; i++) {
        const struct part_block *b = &p->block[i];
        struct str summary, cols;

        if (stop && atomic_load(stop))
            return err_set(err, -ECANCELED, "compaction: stopped");
        arena_reset(mem);
        TRY(part_summary(h, b->id, &summary, err));
        summary = arena_str(mem, summary);
        if (!summary.p)
            return err_set(err, -ENOMEM, "compaction: memory is short");
        TRY(part_cols(h, b->id, &cols, err));
        TRY(block_check(coder, &b->m, summary, cols, COMPACT_NODES, mem, err));
    }
    return 0;
}

static int read_back(const struct compact_job *job, struct part *p, struct err *err)
{
    struct block_coder *coder = block_coder_new();
    struct part_handle *h = NULL;
    struct arena mem;
    int r;

    arena_init(&mem, CHECK_MEM);
    r = coder ? part_load(p, err) : err_set(err, -ENOMEM, "compaction: memory is short");
    if (r == 0)
        r = part_enter(p, &h, err);
    if (r == 0)
        r = check_blocks(p, h, coder, &mem, job->stop, err);
    if (h)
        part_leave(h);
    arena_deinit(&mem);
    (void)block_coder_free(coder);
    return r;
}

/* Is what was written what was read? */
static int verify(const struct compact_job *job, struct part *out, struct err *err)
{
    struct sums a = {}, b = {};
    int r = read_back(job, out, err);
    bool ok = true;

    for (uint32_t i = 0; r == 0 && ok && i < job->n_in; i++)
        ok = add_blocks(&a, job->in[i]);
    if (r == 0 && (!ok || !add_blocks(&b, out)))
        r = err_set(err, -ENOMEM, "compaction: memory is short");
    if (r == 0) {
        fold(&a);
        fold(&b);
        r = compare(&a, &b, err);
    }
    free(a.v);
    free(b.v);
    return r;
}

static int write_part(const struct compact_job *job, const uint8_t (*uuid)[16],
                      struct part_info *ret, struct err *err)
{
    const struct part_info *first = &job->in[0]->info;
    struct part_conf conf = {.dir = job->dir,
                             .vfs = job->vfs,
                             .tier = first->tier,
                             .period = first->period,
                             .epoch = first->epoch,
                             .generation = job->generation,
                             .names = job->names,
                             .n_input = job->n_in,
                             .input = uuid};
    struct part_writer *w;
    int r;

    for (uint32_t i = 0; i < job->n_in; i++) {
        const struct part_info *x = &job->in[i]->info;

        assert(x->tier == first->tier && x->epoch == first->epoch &&
               x->period.t0.v == first->period.t0.v);
        if (x->sealed_lsn > conf.sealed_lsn)
            conf.sealed_lsn = x->sealed_lsn;
        TRY(part_load(job->in[i], err));
    }
    TRY(part_create(&conf, &w, err));
    r = merge_parts(job, w, err);
    if (r < 0) {
        (void)part_abort(w);
        return r;
    }
    return part_finish(w, ret, err);
}

int compact_merge(const struct compact_job *job, struct part_info *ret, struct err *err)
{
    uint8_t(*uuid)[16] = calloc(job->n_in, 16);
    struct part_info info;
    struct part *out;
    int r;

    if (!uuid)
        return err_set(err, -ENOMEM, "compaction: memory is short");
    for (uint32_t i = 0; i < job->n_in; i++)
        memcpy(uuid[i], job->in[i]->info.uuid, 16);
    r = write_part(job, (const uint8_t(*)[16])uuid, &info, err);
    free(uuid);
    if (r < 0)
        return r;
    out = part_new(job->parts, &info);
    r = out ? verify(job, out, err) : err_set(err, -ENOMEM, "compaction: memory is short");
    if (out && r < 0)
        part_set_gone(out);
    (void)part_unref(out);
    if (r < 0)
        return r;
    *ret = info;
    return 0;
}
