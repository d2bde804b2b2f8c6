// SPDX-License-Identifier: Apache-2.0
/* Time off the CPU: streams offcpu, runq and gil_wait. */
#include <errno.h>
#include <string.h>

#include "agent/send/batchmake_private.h"
#include "base/loss.h"

#define MAX_LIBC   8 /* words of the C library above a wait */
#define MAX_UNSEEN 2 /* unnamed functions of the interpreter: take_gil, _PyThreadState_Attach */

/* ---- is it the interpreter's lock that the thread waits for? -------------------------------- */

/* The name of the function at a user word, in k->name; false: it has none there. */
static bool name_of(struct making *k, uint64_t w)
{
    struct binary *b = (w & SA_W_TAG) == SA_W_NATIVE ? binary_by_id(SA_W_BIN(w)) : NULL;
    bool named;

    buf_reset(&k->name);
    if (!b)
        return false;
    named = names_native(k->m->names, b, SA_W_ADDR(w), &k->name);
    (void)binary_unref(b);
    return named;
}

static bool is_named(const struct making *k, const char *const *name, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (str_eq(buf_view(&k->name), str_c(name[i])))
            return true;
    return false;
}

/* A wait for a condition or its mutex, of which the lock is made, as the outermost frame of the C
 * library: where the interpreter begins, or end. Python's other locks wait in other ways. */
static uint32_t above_wait(struct making *k, const uint64_t *word, uint32_t n)
{
    static const char *const wait[] = {"pthread_cond_timedwait",   "pthread_cond_clockwait",
                                       "__pthread_cond_timedwait", "__pthread_cond_clockwait",
                                       "pthread_cond_wait",        "__pthread_cond_wait",
                                       "pthread_mutex_lock",       "__pthread_mutex_lock",
                                       "pthread_cond_signal",      "__pthread_cond_signal"};

    for (uint32_t i = 0; i < n && i < MAX_LIBC; i++) {
        if (name_of(k, word[i]) && is_named(k, wait, sizeof wait / sizeof *wait))
            return i + 1;
    }
    return n;
}

/*
 * take_gil, or drop_gil, which gave the lock up on request and waits until another thread has taken
 * it: by its name or where that is missing (it is local) by who calls it: one or two unnamed
 * functions of the interpreter, called by one of those that take the lock, or by the eval function,
 * before which its Python frames stand. The thread did not have the lock: the record said so.
 */
static bool waits_for_gil(struct making *k, const uint64_t *word, uint32_t n)
{
    static const char *const take[] = {"take_gil", "drop_gil"};
    static const char *const caller[] = {"PyEval_RestoreThread", "PyEval_AcquireThread",
                                         "PyGILState_Ensure", "_Py_HandlePending",
                                         "_PyEval_EvalFrameDefault"};
    uint32_t i = above_wait(k, word, n), first = i, bin;

    if (i == n || (word[i] & SA_W_TAG) != SA_W_NATIVE)
        return false;
    bin = SA_W_BIN(word[i]);
    for (; i < n && i < first + MAX_UNSEEN; i++) {
        if ((word[i] & SA_W_TAG) != SA_W_NATIVE || SA_W_BIN(word[i]) != bin)
            break;
        if (name_of(k, word[i])) {
            if (is_named(k, take, sizeof take / sizeof *take))
                return true;
            break;
        }
    }
    if (i == n)
        return false;
    if ((word[i] & SA_W_TAG) == SA_W_NATIVE)
        return SA_W_BIN(word[i]) == bin && name_of(k, word[i]) &&
               is_named(k, caller, sizeof caller / sizeof *caller);
    if ((word[i] & SA_W_TAG) != SA_W_PY)
        return false;
    while (i < n && (word[i] & SA_W_TAG) == SA_W_PY)
        i++;
    return i < n && (word[i] & SA_W_TAG) == SA_W_NATIVE && SA_W_BIN(word[i]) == bin;
}

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
    if (!r->holder || !r->count || !r->nu || !waits_for_gil(k, w->word + r->word + r->nk, r->nu))
        return;
    node = making_node(k, node, holder_frame(k, w->holder[r->holder - 1]));
    put(&to->gil_wait, &one, r->count, r->weight);
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
