// SPDX-License-Identifier: Apache-2.0
/* Frames and stacks of a batch: words of records into names, lines, nodes. */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/send/batchmake_private.h"
#include "base/hash.h"
#include "base/loss.h"

#define TRACEPOINT_FRAMES 8

/* A function: name, and where in the source it stands, as far as that is known. */
struct place {
    struct str file;
    uint32_t line, start_line;
};

static uint32_t fn_of(struct making *k, struct str name, const struct place *p)
{
    uint32_t s = making_str(k, name), file = making_str(k, p->file);
    bool is_new;
    uint64_t key = hash_mix((uint64_t)s << 32 | file) ^ p->start_line;
    uint32_t i = making_index(&k->by_fn, key, k->fn.n, &is_new);

    if (!is_new && (k->fn.v[i].name != s || k->fn.v[i].file != file))
        is_new = true; /* two that share a hash */
    if (is_new) {
        i = k->fn.n;
        *vec_push(&k->fn) = (struct batch_fn){.name = s, .file = file, .line = p->start_line};
    }
    return i;
}

static uint32_t frame_new(struct making *k, enum frame_kind kind, struct str name, uint32_t bin,
                          uint64_t addr)
{
    uint32_t fn = fn_of(k, name, &(struct place){});
    struct batch_frame *f = vec_push(&k->frame);

    *f = (struct batch_frame){.kind = kind, .fn = fn, .bin = bin, .addr = addr};
    return k->frame.n - 1;
}

uint32_t making_frame(struct making *k, enum frame_kind kind, struct str name)
{
    return frame_new(k, kind, name, 0, 0);
}

static uint32_t bin_of(struct making *k, const struct binary *b)
{
    bool is_new;
    uint32_t i = making_index(&k->by_bin, b->id, k->bin.n, &is_new);

    if (is_new) {
        uint32_t path = making_str(k, b->path);
        struct batch_bin *e = vec_push(&k->bin);

        e->path = path;
        e->id_kind = b->id_kind;
        e->id = arena_str(&k->arena, (struct str){(const char *)b->id_bytes, b->id_len});
    }
    return i;
}

uint32_t making_node(struct making *k, uint32_t parent, uint32_t frame)
{
    bool is_new;
    uint32_t i = making_index(&k->by_node, (uint64_t)parent << 32 | frame, k->node.n, &is_new);

    if (is_new)
        *vec_push(&k->node) = (struct batch_node){.parent = parent, .frame = frame};
    return i;
}

static void add_link(struct making *k, struct chain *c, uint32_t frame)
{
    if (c->n++ == 0)
        c->first = k->link.n;
    *vec_push(&k->link) = frame;
}

/* The function of an address by its symbol, and by DWARF the lines and what is inlined there. */
static struct chain native_chain(struct making *k, uint64_t w)
{
    struct binary *b = binary_by_id(SA_W_BIN(w));
    struct lines_frame *line = NULL;
    struct chain c = {};
    uint32_t n, bin;

    if (!b) {
        add_link(k, &c, frame_new(k, FRAME_NATIVE, STR("[forgotten binary]"), 0, 0));
        return c;
    }
    bin = bin_of(k, b);
    buf_reset(&k->name);
    bool named = names_native(k->m->names, b, SA_W_ADDR(w), &k->name);

    (void)binary_unref(b);
    n = lines_get(k->m->lines, w, &k->arena, &line);
    for (uint32_t i = 0; i < n || i == 0; i++) {
        const struct lines_frame none = {}, *l = i < n ? &line[i] : &none;
        const struct place p = {l->file, l->line, l->start_line};
        struct str name = l->name.n && (i || !named) ? l->name : buf_view(&k->name);
        uint32_t fn = fn_of(k, i && !l->name.n ? STR("[inlined]") : name, &p);

        *vec_push(&k->frame) = (struct batch_frame){.kind = FRAME_NATIVE,
                                                    .flags = l->inlined ? FRAME_INLINED : 0,
                                                    .fn = fn,
                                                    .bin = bin,
                                                    .line = l->line,
                                                    .addr = SA_W_ADDR(w)};
        add_link(k, &c, k->frame.n - 1);
    }
    return c;
}

/* Code in anonymous memory: by its process's perf map; without a name all of it is one. */
static struct chain anonymous_chain(struct making *k, uint64_t serial, uint64_t addr)
{
    struct str name = STR("[anonymous]");
    struct chain c = {};
    bool is_new;
    uint32_t i;

    (void)jits_find(k->m->jits, serial, addr, k->now, &name);
    i = making_index(&k->by_jit, making_str(k, name), k->frame.n, &is_new);
    if (is_new)
        i = frame_new(k, FRAME_JIT, name, 0, 0);
    add_link(k, &c, i);
    return c;
}

/* Below node: the frames of one user word of a process. */
static uint32_t user_node(struct making *k, uint32_t node, uint64_t serial, uint64_t w)
{
    uint64_t key = w;
    struct chain c = {};
    bool is_new;
    uint32_t i;

    if (stackagg_anonymous(w))
        key = hash_mix(serial) ^ w;
    else if ((w & SA_W_TAG) == SA_W_RAW && w != SA_W_VSYS) /* nothing tells them apart later */
        key = SA_W_RAW;
    i = making_index(&k->by_user, key, k->chain.n, &is_new);
    if (is_new) {
        if (stackagg_anonymous(w))
            c = anonymous_chain(k, serial, w & ~(SA_W_TAG | STACKAGG_W_ANON));
        else if (w == SA_W_VSYS)
            add_link(k, &c, frame_new(k, FRAME_NATIVE, STR("[vsyscall]"), 0, 0));
        else if ((w & SA_W_TAG) == SA_W_RAW)
            add_link(k, &c, frame_new(k, FRAME_NATIVE, STR("[unmapped]"), 0, 0));
        else
            c = native_chain(k, w);
        *vec_push(&k->chain) = c;
    }
    c = k->chain.v[i];
    for (uint32_t j = 0; j < c.n; j++)
        node = making_node(k, node, k->link.v[c.first + j]);
    return node;
}

/* A Python frame: its function is the window's, not an address. */
static uint32_t python_frame(struct making *k, const struct stackagg_window *w, uint64_t word)
{
    const struct pynames_frame *f = &w->py[STACKAGG_PY_INDEX(word)];
    const struct place p = {.file = f->file, .start_line = f->start_line};
    uint32_t fn = fn_of(k, f->name, &p), line = STACKAGG_PY_LINE(word);
    bool is_new;
    uint32_t i = making_index(&k->by_python, (uint64_t)fn << 32 | line, k->frame.n, &is_new);

    if (is_new)
        *vec_push(&k->frame) = (struct batch_frame){.kind = FRAME_PYTHON, .fn = fn, .line = line};
    return i;
}

static uint32_t kernel_bin_of(struct making *k, struct str module)
{
    struct str in = module.n ? module : STR("kernel");
    char path[96];
    bool is_new;
    uint32_t i, s;

    (void)snprintf(path, sizeof path, "[%.64s]", in.p);
    s = making_str(k, str_c(path));
    i = making_index(&k->by_bin, UINT64_C(1) << 32 | s, k->bin.n, &is_new);
    if (is_new) {
        struct batch_bin *e = vec_push(&k->bin);

        e->path = s;
        if (module.n == 0) {
            e->id = ksym_build_id(names_kernel(k->m->names));
            e->id_kind = e->id.n ? BIN_ID_GNU : BIN_ID_NONE;
        }
    }
    return i;
}

static uint32_t kernel_frame(struct making *k, uint64_t addr)
{
    struct ksym_hit hit = {};
    bool is_new;
    uint32_t i = making_index(&k->by_kernel, addr, k->frame.n, &is_new);

    if (!is_new)
        return i;
    if (ksym_find(names_kernel(k->m->names), addr, &hit))
        return frame_new(k, FRAME_KERNEL, hit.name, kernel_bin_of(k, hit.module), hit.offset);
    /* each its own, never the nearest */
    buf_reset(&k->name);
    buf_printf(&k->name, "0x%" PRIx64, addr);
    return frame_new(k, FRAME_KERNEL, buf_view(&k->name), kernel_bin_of(k, STR("")), addr);
}

/* ---- stacks -------------------------------------------------------------------------------- */

static struct str stop_name(uint8_t stop)
{
    static const uint8_t reason[] = {[SA_S_TRUNC] = LOSS_TRUNC,
                                     [SA_S_NOMAP] = LOSS_NOMAP,
                                     [SA_S_NOTABLE] = LOSS_NOTABLE,
                                     [SA_S_NOINFO] = LOSS_NOINFO,
                                     [SA_S_INVALID] = LOSS_INVALID,
                                     [SA_S_READFAULT] = LOSS_READFAULT,
                                     [SA_S_ZEROPC] = LOSS_ZEROPC,
                                     [SA_S_BADSP] = LOSS_BADSP,
                                     [SA_S_BADFP] = LOSS_BADFP,
                                     [SA_S_NOPROC] = LOSS_NOPROC,
                                     [SA_S_EXITING] = LOSS_EXITING,
                                     [SA_S_COMPAT32] = LOSS_COMPAT32,
                                     [STACKAGG_TABLE_FULL] = LOSS_TABLE_FULL,
                                     [STACKAGG_SHORT] = LOSS_SHORT,
                                     [STACKAGG_THROTTLED] = LOSS_THROTTLED,
                                     [STACKAGG_NOT_RUN] = LOSS_NOT_RUN,
                                     [STACKAGG_RING] = LOSS_RING_REFUSED};

    return loss_info((enum loss_reason)reason[stop])->name;
}

static uint32_t pseudo_frame(struct making *k, const char *what, uint8_t stop)
{
    uint64_t key = (uint64_t)(what[1] == 'n') << 8 | stop;
    bool is_new;
    uint32_t i = making_index(&k->by_pseudo, key, k->frame.n, &is_new);

    if (!is_new)
        return i;
    buf_reset(&k->name);
    buf_printf(&k->name, "%s%.*s]", what, STR_ARG(stop_name(stop)));
    return frame_new(k, FRAME_OTHER, buf_view(&k->name), 0, 0);
}

/* "": it has none. */
static struct str kernel_name(struct making *k, uint64_t addr)
{
    struct ksym_hit hit = {};

    return ksym_find(names_kernel(k->m->names), addr, &hit) ? hit.name : STR("");
}

/* schedule(), schedule_timeout(), __schedule(), io_schedule(), preempt_schedule_irq(). */
static bool is_scheduler(struct str name)
{
    return str_starts(name, STR("schedule")) || str_starts(name, STR("__schedule")) ||
           str_starts(name, STR("io_schedule")) || str_starts(name, STR("preempt_schedule"));
}

/*
 * Which kernel frame waited. Above it, on the leaf's side, lie the tracepoint's own frames and the
 * scheduler's, which every wait has: with them as the leaf all waits would be one function. A
 * stack that has no __schedule near its leaf stays whole.
 */
static uint32_t first_that_waits(struct making *k, const uint64_t *words, uint32_t nk)
{
    struct str name = {};
    uint32_t i = 0;

    while (i < nk && i < TRACEPOINT_FRAMES &&
           !str_eq(name = kernel_name(k, words[i]), STR("__schedule")))
        i++;
    if (!str_eq(name, STR("__schedule")))
        return 0;
    while (i < nk && is_scheduler(kernel_name(k, words[i])))
        i++;
    return i;
}

/* Root first: what is missing, user part, kernel part. */
uint32_t making_stack(struct making *k, const struct stackagg_window *w,
                      const struct stackagg_row *r)
{
    const uint64_t *words = w->word ? w->word + r->word : NULL; /* none in a window of bare rows */
    uint64_t serial = w->who[r->who].serial;
    uint32_t node = 0;

    assert(words || (r->nk == 0 && r->nu == 0));
    if (r->stop != SA_S_END && r->stop != SA_S_KTHREAD) {
        bool none = r->nk == 0 && r->nu == 0;

        node = making_node(k, 0, pseudo_frame(k, none ? "[no stack: " : "[truncated: ", r->stop));
    }
    for (uint32_t i = (uint32_t)r->nk + r->nu; i-- > r->nk;) {
        if ((words[i] & SA_W_TAG) == SA_W_NATIVE || (words[i] & SA_W_TAG) == SA_W_RAW)
            node = user_node(k, node, serial, words[i]);
        else if ((words[i] & SA_W_TAG) == SA_W_PY)
            node = making_node(k, node, python_frame(k, w, words[i]));
    }
    if (words)
        lines_count(k->m->lines, serial, words + r->nk, r->nu, r->count);
    uint32_t from = r->off ? first_that_waits(k, words, r->nk) : 0;

    for (uint32_t i = r->nk; i-- > from;)
        node = making_node(k, node, kernel_frame(k, words[i]));
    return node;
}
