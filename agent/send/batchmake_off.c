// SPDX-License-Identifier: Apache-2.0
/* Time off the CPU: streams offcpu, runq and gil_wait. */
#include <errno.h>
#include <string.h>

#include "agent/name/gilwait.h"
#include "agent/send/batchmake_private.h"
#include "base/loss.h"
#include "base/time.h"

#define JOIN_ROWS 64 /* looked back for a wait's first slice */

/* ---- rows ----------------------------------------------------------------------------------- */

static uint32_t holder_frame(struct making *k, struct str holder)
{
    bool is_new;
    uint32_t i = making_index(&k->by_holder, making_str(k, holder), k->frame.n, &is_new);

    return is_new ? making_frame(k, FRAME_OTHER, holder) : i;
}

static void put(struct batchfold_columns *c, const struct batchfold_columns *one, uint64_t count,
                int64_t value)
{
    uint32_t n = c->n;

    if (!count)
        return;
    c->n++;
    c->t[n] = *one->t;
    c->node[n] = *one->node;
    c->target[n] = *one->target;
    c->labels[n] = *one->labels;
    c->tid[n] = *one->tid;
    c->thread[n] = *one->thread;
    c->count[n] = count;
    c->value[n] = value;
}

static bool waits_for_gil(struct making *k, const struct stackagg_window *w,
                          const struct stackagg_row *r)
{
    return r->nu && (r->gil_asked ||
                     gilwait_by_stack(k->m->names, &k->name, w->word + r->word + r->nk, r->nu));
}

/* The interpreter waits in slices of 5 ms. In a capture each is a row of its own: it goes to the
 * one that it goes on with, which is among the last, unless that is another second's. */
static bool join(struct batchfold_columns *c, const struct batchfold_columns *one,
                 const struct stackagg_row *r)
{
    if (r->again < r->count)
        return false;
    for (uint32_t i = c->n; i > 0 && c->n - i < JOIN_ROWS; i--) {
        if (c->tid[i - 1] != *one->tid || c->target[i - 1] != *one->target)
            continue;
        if (c->node[i - 1] != *one->node || c->t[i - 1].v / NS_PER_S != one->t->v / NS_PER_S)
            return false;
        c->value[i - 1] += r->weight;
        return true;
    }
    return false;
}

void making_off_row(struct making *k, const struct stackagg_window *w, const struct stackagg_row *r,
                    uint32_t target, uint32_t labels, struct making_rows *to)
{
    uint32_t node = making_stack(k, w, r), tid = r->tid;
    uint32_t thread = making_str(k, (struct str){r->comm, strnlen(r->comm, sizeof r->comm)});
    real_ns t = r->t;
    struct batchfold_columns one = {.t = &t,
                                    .node = &node,
                                    .target = &target,
                                    .labels = &labels,
                                    .tid = &tid,
                                    .thread = &thread};

    put(&to->offcpu, &one, r->count, r->weight);
    put(&to->runq, &one, r->runq_count, r->runq_weight);
    if (!r->holder || !r->count || !waits_for_gil(k, w, r))
        return;
    node = making_node(k, node, holder_frame(k, w->holder[r->holder - 1]));
    if (!join(&to->gil_wait, &one, r))
        put(&to->gil_wait, &one, r->again < r->count ? r->count - r->again : 1, r->weight);
}

/* ---- streams -------------------------------------------------------------------------------- */

static uint64_t observations(const struct batchfold_columns *c)
{
    uint64_t n = 0;

    for (uint32_t i = 0; i < c->n; i++)
        n += c->count[i];
    return n;
}

static int add_stream(struct making *k, struct batch_stream st, struct batchfold_columns *c,
                      uint64_t lost, int64_t weight, struct err *err)
{
    struct batch_loss *room = arena_array(&k->arena, struct batch_loss, 1);

    if (!room)
        return err_set(err, -ENOMEM, "batch: no room for time off the CPU");
    batchfold(c, st.covers.t0, k->job->fold);
    c->by_period = false;
    st.received = st.expected = observations(c);
    st.lost = room;
    making_lost(k, &st, room, LOSS_RING_FULL, lost, weight);
    st.rows = making_rows_of(c);
    k->rows += c->n;
    making_stream(k, &st, c);
    return 0;
}

/* One stream for each process that has rows: of the others nothing is known. */
static int add_scoped(struct making *k, struct batch_stream st, const struct batchfold_columns *c,
                      struct err *err)
{
    bool *done = arena_array(&k->arena, bool, c->n ? c->n : 1);

    if (!done)
        return err_set(err, -ENOMEM, "batch: no room for time off the CPU");
    memset(done, 0, c->n);
    for (uint32_t i = 0; i < c->n; i++) {
        struct batchfold_columns own;
        size_t n;

        if (done[i])
            continue;
        n = 0;
        for (uint32_t j = i; j < c->n; j++)
            n += c->target[j] == c->target[i];
        TRY(making_columns(k, &own, n, err));
        for (uint32_t j = i; j < c->n; j++) {
            const struct batchfold_columns one = {.t = c->t + j,
                                                  .node = c->node + j,
                                                  .target = c->target + j,
                                                  .labels = c->labels + j,
                                                  .tid = c->tid + j,
                                                  .thread = c->thread + j};

            if (c->target[j] != c->target[i])
                continue;
            put(&own, &one, c->count[j], c->value[j]);
            done[j] = true;
        }
        st.target = c->target[i];
        TRY(add_stream(k, st, &own, 0, 0, err));
    }
    return 0;
}

int making_off_streams(struct making *k, struct stackagg_window *const *w, uint32_t n,
                       const struct batch_stream *cpu, struct making_rows *rows, struct err *err)
{
    struct batch_stream st = {.kind = KIND_SUM,
                              .width = 1,
                              .covers = cpu->covers,
                              .state = SOURCE_OK,
                              .basis = BASIS_EVERY};
    struct {
        ptype_id type;
        struct batchfold_columns *c;
        uint64_t lost;
        int64_t weight;
    } part[] = {{PTYPE_OFFCPU, &rows->offcpu, 0, 0},
                {PTYPE_RUNQ, &rows->runq, 0, 0},
                {PTYPE_GIL_WAIT, &rows->gil_wait, 0, 0}};
    bool python = false;

    if (!w[0]->off.on)
        return 0;
    for (uint32_t i = 0; i < n; i++) {
        part[0].lost += w[i]->off.lost;
        part[0].weight += w[i]->off.lost_blocked;
        part[1].lost += w[i]->off.lost;
        part[1].weight += w[i]->off.lost_queued;
        python |= w[i]->off.python;
    }
    part[2].lost = part[0].lost; /* each may have been a wait for the lock */
    part[2].weight = part[2].lost ? BATCH_NO_WEIGHT : 0;
    for (unsigned i = 0; i < (python ? 3 : 2); i++) {
        st.type = part[i].type;
        if (!(w[0]->off.types >> st.type & 1))
            continue;
        if (!w[0]->off.scoped)
            TRY(add_stream(k, st, part[i].c, part[i].lost, part[i].weight, err));
        else
            TRY(add_scoped(k, st, part[i].c, err));
        /* of whom is not known: the machine's */
        if (w[0]->off.scoped && part[i].lost) {
            struct batchfold_columns none = {};

            st.target = 0;
            TRY(add_stream(k, st, &none, part[i].lost, part[i].weight, err));
        }
    }
    return 0;
}
