// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <string.h>

#include "agent/cmd/validate_private.h"
#include "base/arena.h"
#include "base/loss.h"
#include "proto/wire.h"

#define ARENA_MAX ((size_t)256 << 20)
#define SETTLE_NS (NS_PER_S / 2) /* unwind tables are built on first touch */

const char *const photo_function[PHOTO_FUNCTIONS] = {"blur_image", "compress_image", "hash_tags"};

/* What lies on one stack. */
struct stack {
    uint32_t functions; /* bit per photo_function */
    uint32_t folders, kernel;
    uint32_t line; /* of Python's shares(); 0 */
    bool cut, in_read, loop;
};

/* Which source samples it. */
static enum validate_source source_of(uint32_t work)
{
    if (work == WORK_RING)
        return VALIDATE_RING;
    if (work == WORK_BLOCKED || work == WORK_GIL)
        return VALIDATE_OFF;
    return work == WORK_USER ? VALIDATE_USER : VALIDATE_BPF;
}

static struct str fn_name(const struct batch *b, const struct batch_frame *f)
{
    return b->str[b->fn[f->fn].name];
}

/* Each address of the controlled programs once, with the name it got. */
static void note_symbol(struct validate *v, const struct batch *b, const struct batch_frame *f)
{
    struct str name = fn_name(b, f);
    struct seen_symbol *s;

    if (!f->addr || (f->flags & FRAME_INLINED) ||
        !str_eq(str_basename(b->str[b->bin[f->bin].path]), STR("strata-workload")))
        return;
    for (uint32_t i = 0; i < v->n_symbol; i++)
        if (v->symbol[i].addr == f->addr)
            return;
    if (v->n_symbol == SEEN_SYMBOLS)
        return;
    s = &v->symbol[v->n_symbol++];
    s->addr = f->addr;
    (void)snprintf(s->name, sizeof s->name, "%.*s", STR_ARG(str_to(name, sizeof s->name - 1)));
}

static void look_at_frame(struct validate *v, const struct batch *b, const struct batch_frame *f,
                          struct stack *ret)
{
    struct str name = fn_name(b, f);

    if (f->kind == FRAME_OTHER) {
        ret->cut = ret->cut || (name.n && name.p[0] == '[');
        return;
    }
    if (f->kind == FRAME_KERNEL) {
        ret->kernel++;
        ret->in_read = ret->in_read || str_eq(name, STR("vfs_read")) ||
                       str_eq(name, STR("ksys_read")) || str_eq(name, STR("__x64_sys_read"));
        return;
    }
    if (f->kind == FRAME_PYTHON && str_eq(name, STR("shares")))
        ret->line = f->line;
    note_symbol(v, b, f);
    for (uint32_t k = 0; k < PHOTO_FUNCTIONS; k++)
        if (str_eq(name, str_c(photo_function[k])))
            ret->functions |= 1u << k;
    ret->folders += str_eq(name, STR("search_folder"));
    ret->loop = ret->loop || str_eq(name, STR("read_block"));
}

/* Of the thread's time of a type; its samples, if that is sampled. */
static void add_thread(struct seen *s, struct str name, ptype_id type, int64_t ns, uint64_t n,
                       const struct stack *k)
{
    uint32_t i = 0;

    name = str_to(name, sizeof s->thread->name - 1);
    while (i < s->n_thread && !str_eq(str_c(s->thread[i].name), name))
        i++;
    if (i == SEEN_THREADS)
        return;
    if (i == s->n_thread) {
        memcpy(s->thread[i].name, name.p, name.n);
        s->n_thread++;
    }
    if (type == PTYPE_CPU) {
        s->thread[i].ns += ns;
        s->thread[i].n += n;
    } else if (type == PTYPE_OFFCPU) {
        s->thread[i].offcpu += ns;
        s->thread[i].bare += k->cut ? ns : 0;
    } else if (type == PTYPE_RUNQ) {
        s->thread[i].runq += ns;
    } else if (type == PTYPE_GIL_HELD) {
        s->thread[i].gil_held += ns;
    } else if (type == PTYPE_GIL_WAIT) {
        s->thread[i].gil_wait += ns;
    }
}

static void add_line(struct seen *s, uint32_t line, int64_t ns)
{
    uint32_t i = 0;

    while (i < SEEN_LINES && s->line[i].line && s->line[i].line != line)
        i++;
    if (i == SEEN_LINES || !line)
        return;
    s->line[i].line = line;
    s->line[i].ns += ns;
}

static void add_row(struct validate *v, struct work *w, const struct batch *b,
                    const struct batch_stream *st, uint32_t row)
{
    struct seen *s = &w->seen;
    const struct batch_rows *r = &st->rows;
    uint64_t n = r->count ? r->count[row] : 1;
    int64_t ns = r->value ? r->value[row] : (int64_t)n * st->period;
    struct stack k = {};

    for (uint32_t node = r->node ? r->node[row] : 0; node; node = b->node[node].parent)
        look_at_frame(v, b, &b->frame[b->node[node].frame], &k);
    if (r->thread)
        add_thread(s, b->str[r->thread[row]], st->type, ns, n, &k);
    if (st->type != PTYPE_CPU)
        return;
    add_line(s, k.line, ns);
    s->n += n;
    s->ns += ns;
    if (!r->t || r->t[row].v - w->from.v > SETTLE_NS) {
        s->settled += n;
        s->whole += k.cut ? 0 : n;
    }
    if (k.kernel) {
        s->kernel_ns += ns;
        s->kernel_n += n;
        s->in_read += k.in_read ? n : 0;
        s->below_loop += k.in_read && k.loop ? n : 0;
    }
    for (uint32_t f = 0; f < PHOTO_FUNCTIONS; f++)
        if (k.functions & (1u << f))
            s->function_ns[f] += ns;
    if ((k.functions & 4) && !k.cut) {
        s->deep_n += (int64_t)n;
        s->deep_ok += k.folders == 64 ? (int64_t)n : 0;
    }
}

/* Whose is this target? Nothing but the works and what they fork is sampled, so what is none of
 * them is a child of the one that has some. */
static struct work *work_of(struct validate *v, enum validate_source source, const struct batch *b,
                            uint32_t target)
{
    const struct batch_target *t = &b->target[target];

    for (uint32_t i = 0; i < WORK_N; i++)
        if (v->work[i].begun && (uint64_t)v->work[i].child.pid == t->host_pid)
            return &v->work[i];
    if (source != VALIDATE_BPF)
        return NULL;
    if (map_put(&v->child_pid, t->host_pid, 1) == MAP_ADDED) {
        v->child_processes++;
        v->child_named += str_eq(str_basename(b->str[t->exe]), STR("strata-workload"));
    }
    return &v->work[WORK_CHILDREN];
}

/* What was told as lost while the work ran may be the work's. */
static void add_lost(struct work *w, const struct batch *b, const struct batch_stream *st)
{
    struct interval run = {w->from, w->to};

    if (!w->begun || interval_cut(run, st->covers).t0.v == interval_cut(run, st->covers).t1.v)
        return;
    for (uint32_t i = 0; i < st->n_lost; i++) {
        struct str why = b->str[st->lost[i].why];

        if (st->type != PTYPE_CPU) {
            w->seen.off_lost += st->lost[i].weight > 0 ? st->lost[i].weight : 0;
            continue;
        }
        if (str_eq(why, loss_info(LOSS_TICKS_MISSED)->name))
            w->seen.missed += st->lost[i].weight;
        else if (str_eq(why, loss_info(LOSS_RING_FULL)->name))
            w->seen.refused += st->lost[i].weight;
        else if (str_eq(why, loss_info(LOSS_KERNEL_HIDDEN)->name))
            w->seen.hidden += st->lost[i].weight;
    }
}

static void add_stream(struct validate *v, enum validate_source source, const struct batch *b,
                       const struct batch_stream *st)
{
    const struct batch_rows *r = &st->rows;

    for (uint32_t i = 0; i < WORK_N; i++)
        if (source_of(i) == source)
            add_lost(&v->work[i], b, st);
    for (uint32_t i = 0; i < r->n; i++) {
        struct work *w = work_of(v, source, b, r->target ? r->target[i] : st->target);
        uint64_t n = r->count ? r->count[i] : 1;

        if (st->type == PTYPE_CPU)
            v->run[source].rows_ns += r->value ? r->value[i] : (int64_t)n * st->period;
        if (w)
            add_row(v, w, b, st, i);
    }
}

static void add_steps(struct validate *v, const struct batch *b, const struct batch_steps *s)
{
    const struct work *w = &v->work[WORK_STEPS];

    if (!w->begun || b->target[s->target].host_pid != (uint64_t)w->child.pid)
        return;
    for (uint32_t i = 0; i < s->n; i++) {
        struct seen_step *to;

        if (v->n_step == v->cap_step) {
            v->cap_step = v->cap_step ? 2 * v->cap_step : 512;
            v->step = xrealloc(v->step, v->cap_step * sizeof *v->step);
        }
        to = &v->step[v->n_step++];
        *to = (struct seen_step){.number = s->number[i],
                                 .tid = s->tid ? s->tid[i] : 0,
                                 .t0 = s->start[i].v,
                                 .t1 = s->start[i].v + s->dur_ns[i]};
        (void)snprintf(to->name, sizeof to->name, "%.*s",
                       STR_ARG(str_to(b->str[s->name], sizeof to->name - 1)));
    }
}

int validate_seen(struct validate *v, enum validate_source source, struct str body, struct err *err)
{
    struct wire_limits limits;
    struct arena arena;
    struct batch b;
    struct buf plain;
    int r;

    wire_limits_default(&limits);
    arena_init(&arena, ARENA_MAX);
    buf_init(&plain, limits.inflated);
    r = wire_inflate(body, &limits, &plain, NULL, err);
    if (r == 0)
        r = wire_decode(buf_view(&plain), &limits, real_now(), &arena, &b, NULL, NULL, err);
    for (uint32_t i = 0; r == 0 && i < b.n_stream; i++)
        add_stream(v, source, &b, &b.stream[i]);
    for (uint32_t i = 0; r == 0 && i < b.n_steps; i++)
        add_steps(v, &b, &b.steps[i]);
    v->run[source].batches += r == 0;
    buf_deinit(&plain);
    arena_deinit(&arena);
    return r;
}
