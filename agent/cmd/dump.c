// SPDX-License-Identifier: Apache-2.0
#include "agent/cmd/dump.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "agent/file/procfile.h"
#include "agent/python/pymend.h"
#include "agent/unwind/threads.h"
#include "base/arena.h"
#include "base/thread.h"
#include "base/time.h"

#define TEXT_BYTES (UINT64_C(64) << 20)
#define PYTHON_NS  (500 * NS_PER_MS) /* for an interpreter that is starting */
#define TABLES_NS  (10 * NS_PER_S)   /* before any thread is touched */
#define TABLE_NS   (5 * NS_PER_S)    /* one that a copied stack asks for */
#define STOP_NS    (8 * NS_PER_S)    /* for all threads to get a CPU, on which they stop */
#define NAP_NS     NS_PER_MS
#define FIRST_COPY ((size_t)16 << 10) /* while a thread stands; what is deeper is read singly */
#define GROUP      8 /* threads asked at once: while one is read, the others stand */
#define ROUNDS     4 /* a thread that moves while it is read is read again */

/* ---- one thread ------------------------------------------------------------------------------ */

struct taking {
    const struct dump_opts *o;
    struct dump *d;
    int64_t end; /* of waiting for threads, CLOCK_MONOTONIC */
    uint8_t room[STACK_COPY_MAX];
};

static struct str keep_text(struct dump *d, struct str s)
{
    struct str kept = arena_str(&d->texts, s);

    return kept.p ? kept : STR("");
}

/* Names and lines, read from the process; texts that found no room are empty. */
static void keep_python(struct dump *d, struct dump_thread *t, const struct sa_ev *ev)
{
    struct pynames_frame *py = xcalloc(SA_MAX_PY, sizeof *py);

    t->gil = ev->gil;
    t->gil_asked = ev->flags & SA_F_GIL_ASKED;
    t->gil_holder = py_holder(d->py, d->proc, ev);
    t->pyerr = ev->pyerr;
    t->n_py = py_sample(d->py, d->proc, ev, py);
    t->py = xcalloc(t->n_py ? t->n_py : 1, sizeof *t->py);
    for (uint32_t i = 0; i < t->n_py; i++) {
        t->py[i] = py[i];
        t->py[i].name = keep_text(d, py[i].name);
        t->py[i].file = keep_text(d, py[i].file);
    }
    free(py);
}

static void forget_chain(struct dump_thread *t)
{
    free(t->word);
    free(t->py);
    t->word = NULL;
    t->py = NULL;
    t->n = t->n_py = 0;
    t->done = false;
}

static void keep_chain(struct dump *d, struct dump_thread *t, const struct sa_ev *ev)
{
    struct sa_ev *room = xmalloc(sizeof *room + PYMEND_WORDS * sizeof *room->w);
    const struct sa_ev *m = pymend(ev, room);

    forget_chain(t);
    t->stop = ev->stop;
    t->word = xmalloc((m->nu ? m->nu : 1) * sizeof *t->word);
    for (uint32_t i = 0, py = 0; i < m->nu; i += sa_words(m->w[i]))
        t->word[t->n++] = (m->w[i] & SA_W_TAG) == SA_W_PY ? SA_W_PY | py++ : m->w[i];
    keep_python(d, t, ev);
    free(room);
    t->done = true;
}

/* The copy outlives the moment, so tables may take their time. Python's frames are not in it: such
 * a thread is read again, if there is a round left. */
static void unwind_copy(struct taking *k, struct dump_thread *t, const struct unwind_regs *regs,
                        struct stack_copy *c)
{
    struct unwind_memory mem = stack_copy_memory(c);

    keep_chain(k->d, t, unwind_native_whole(k->d->unwind, k->d->pid, regs, &mem, TABLE_NS));
}

static void let_go(struct taking *k, struct dump_thread *t, int sig)
{
    int64_t stood;

    thread_let_go(t->tid, sig);
    stood = mono_now().v - t->not_yet;
    k->d->n_stopped += !t->stood;
    t->stood = true;
    t->unknown_thread = false;
    k->d->stood_sum_ns += stood;
    if (stood > k->d->stood_ns)
        k->d->stood_ns = stood;
}

/* It stands: registers, stack, chain; then it goes on. */
static void read_stopped(struct taking *k, struct dump_thread *t, const struct unwind_regs *regs,
                         bool is_32, int sig)
{
    struct thread_sched now = {.waits = t->waits};
    struct stack_copy c;
    struct unwind_memory mem = stack_copy_memory(&c);
    struct sa_ev *ev;

    if (is_32) {
        let_go(k, t, sig);
        t->no_stack = "compat32";
        t->done = true;
        return;
    }
    stack_copy_take(&c, k->d->pid, regs->reg[7], FIRST_COPY, k->room);
    ev = unwind_native(k->d->unwind, k->d->pid, regs, &mem);
    if (ev->stop == SA_S_NOTABLE) /* to be continued when it has gone on */
        stack_copy_take(&c, k->d->pid, regs->reg[7], STACK_COPY_MAX, k->room);
    if (t->state == DUMP_RUNNING)
        now = thread_sched(k->o->proc, k->d->pid, t->tid);
    let_go(k, t, sig);
    if (now.waits != t->waits) /* it got a CPU only after we looked */
        t->state = DUMP_RUNNABLE;
    c.live = false;
    if (ev->stop != SA_S_NOTABLE) {
        keep_chain(k->d, t, ev);
        return;
    }
    unwind_copy(k, t, regs, &c);
    t->done = k->d->python != PYLAYOUT_OK;
}

/* Equal registers before and after mean that it stood while its stack and its Python frames were
 * read. */
static void read_blocked(struct taking *k, struct dump_thread *t)
{
    struct thread_call a, b;
    struct unwind_regs regs;
    struct stack_copy c;
    struct unwind_memory mem = stack_copy_memory(&c);

    if (thread_call(k->o->proc, k->d->pid, t->tid, &a) < 0 || a.running)
        return;
    regs = (struct unwind_regs){.pc = a.pc, .reg = {[7] = a.sp}, .only_pc_sp = true};
    t->unknown_thread = py_thread_pointer(k->d->py, k->d->proc, t->tid, &regs.fsbase) == -ENOTSUP;
    stack_copy_take(&c, k->d->pid, a.sp, STACK_COPY_MAX, k->room);
    keep_chain(k->d, t, unwind_native_whole(k->d->unwind, k->d->pid, &regs, &mem, TABLE_NS));
    if (thread_call(k->o->proc, k->d->pid, t->tid, &b) < 0 || b.running || a.sp != b.sp ||
        a.pc != b.pc || a.nr != b.nr) {
        forget_chain(t);
        return;
    }
    if (t->state == DUMP_WAITING)
        t->call = a.nr;
}

/* ---- all of them ----------------------------------------------------------------------------- */

static enum dump_state state_of(char c)
{
    switch (c) {
    case 'R':
        return DUMP_RUNNING;
    case 'T':
    case 't':
        return DUMP_STOPPED;
    case 'Z':
    case 'X':
        return DUMP_ENDED;
    default:
        return DUMP_WAITING;
    }
}

static void look(struct taking *k, struct dump_thread *t)
{
    struct thread_look l;

    t->asked = false;
    if (thread_look(k->o->proc, k->d->pid, t->tid, &l) < 0)
        l.state = 'X';
    t->state = state_of(l.state);
    t->call = -1;
    if (t->state == DUMP_ENDED) {
        t->done = true;
        return;
    }
    t->waits = l.sched.waits;
    memcpy(t->comm, l.comm, sizeof t->comm);
}

/* Those that are to stand are asked for it, all at once; the rest is read as it is. */
static void ask(struct taking *k, struct dump_thread *t)
{
    struct thread_call c;
    int r;

    look(k, t);
    if (t->done)
        return;
    if (t->state == DUMP_WAITING && !k->o->stop) {
        read_blocked(k, t);
        return;
    }
    if (t->state == DUMP_WAITING && thread_call(k->o->proc, k->d->pid, t->tid, &c) == 0)
        t->call = c.nr;
    t->not_yet = mono_now().v;
    r = thread_stop(t->tid);
    if (r == 0)
        t->asked = true;
    else if (t->state == DUMP_STOPPED) /* a debugger has it */
        read_blocked(k, t);
    else if (r != -ESRCH)
        t->no_stack = "ptrace refused";
}

/* One look at a thread that was asked. */
static void try_asked(struct taking *k, struct dump_thread *t)
{
    struct unwind_regs regs;
    int64_t now = mono_now().v;
    bool is_32 = false;
    int sig = 0, r = thread_stopped(t->tid, false, &regs, &is_32, &sig);

    if (r == 0) {
        t->not_yet = now;
        return;
    }
    t->asked = false;
    if (r > 0)
        read_stopped(k, t, &regs, is_32, sig);
}

/* Threads stop when they get a CPU, and each stands only while it is read. Until at most `most` are
 * left. */
static void read_asked(struct taking *k, uint32_t most)
{
    uint32_t left;

    do {
        left = 0;
        for (uint32_t i = 0; i < k->d->n_thread; i++) {
            if (k->d->thread[i].asked)
                try_asked(k, &k->d->thread[i]);
            left += k->d->thread[i].asked;
        }
        if (left > most)
            thread_stop_wait(NAP_NS);
    } while (left > most && mono_now().v < k->end);
}

/* Those that do not stop: uninterruptible, or without a CPU all the time. */
static void give_up(struct taking *k, struct dump_thread *t)
{
    read_blocked(k, t);
    if (!t->done && !t->word)
        t->no_stack = "did not get a CPU";
    t->done = true;
}

static void take_threads(struct taking *k)
{
    struct dump *d = k->d;

    k->end = mono_now().v + STOP_NS;
    for (unsigned round = 0; round < ROUNDS; round++) {
        for (uint32_t i = 0, asked = 0; i < d->n_thread; i++) {
            if (d->thread[i].done)
                continue;
            ask(k, &d->thread[i]);
            asked += d->thread[i].asked;
            if (asked % GROUP == 0 && asked)
                read_asked(k, GROUP / 2);
        }
        read_asked(k, 0);
        for (uint32_t i = 0; i < d->n_thread; i++)
            if (d->thread[i].asked)
                give_up(k, &d->thread[i]);
    }
    for (uint32_t i = 0; i < d->n_thread; i++)
        if (!d->thread[i].done && !d->thread[i].word && !d->thread[i].no_stack)
            d->thread[i].no_stack = "moved";
}

/* A thread of its own: what it asked to stop and did not see stopping is let go when it ends. */
static void *take_thread(void *arg)
{
    thread_stop_prepare();
    take_threads(arg);
    return NULL;
}

static int take_all(struct taking *k, struct err *err)
{
    pthread_t t;
    int r = thread_start(&t, "strata-dump", 0, take_thread, k);

    if (r < 0)
        return err_set(err, r, "a thread to read with: %s", strerrordesc_np(-r));
    (void)pthread_join(t, NULL);
    return 0;
}

/* Is it a Python that is read? One that starts is waited for, a little. */
static void open_python(struct dump *d, const struct dump_opts *o)
{
    const struct py_conf pc = {.proc = o->proc, .tables = unwind_native_tables(d->unwind)};
    int64_t now = mono_now().v, end = now + PYTHON_NS;

    d->py = py_new(&pc);
    py_follow(d->py, d->proc, now);
    while (py_due(d->py) < end) {
        thread_stop_wait(NAP_NS);
        py_tick(d->py, mono_now().v);
    }
    d->python = py_state(d->py, d->proc);
}

static int open_process(struct dump *d, const struct dump_opts *o, struct err *err)
{
    const struct proc_conf pc = {.proc = o->proc};
    int64_t now = mono_now().v;

    d->procs = proc_new(&pc);
    d->proc = proc_find_at(d->procs, o->pid, now, now);
    if (!d->proc || d->proc->dead)
        return err_set(err, -ESRCH, "process %u ended", o->pid);
    TRY(unwind_native_open(&d->unwind, NULL, err));
    TRY(tables_publish(unwind_native_tables(d->unwind), d->proc, err));
    (void)unwind_native_settle(d->unwind, TABLES_NS);
    open_python(d, o);
    return 0;
}

static int by_tid(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    return x < y ? -1 : x > y;
}

int dump_take(struct dump *d, const struct dump_opts *o, struct err *err)
{
    struct taking *k;
    uint32_t *tid = NULL;
    uint32_t alive = 0;
    int n;

    *d = (struct dump){.pid = o->pid, .python = PYLAYOUT_N};
    arena_init(&d->texts, TEXT_BYTES);
    TRY(threads_allowed(o->proc, o->pid, err));
    thread_stop_prepare();
    TRY(open_process(d, o, err));
    n = threads_list(o->proc, o->pid, &tid);
    if (n < 0)
        return err_set(err, n, "process %u ended", o->pid);
    qsort(tid, (size_t)n, sizeof *tid, by_tid);
    d->n_thread = (uint32_t)n;
    d->thread = xcalloc(d->n_thread, sizeof *d->thread);
    for (uint32_t i = 0; i < d->n_thread; i++)
        d->thread[i].tid = tid[i];
    free(tid);
    k = xcalloc(1, sizeof *k);
    k->o = o;
    k->d = d;
    n = take_all(k, err);
    free(k);
    if (n < 0)
        return n;
    for (uint32_t i = 0; i < d->n_thread; i++)
        alive += d->thread[i].state != DUMP_ENDED;
    return alive ? 0 : err_set(err, -ESRCH, "process %u ended while it was read", o->pid);
}

void dump_deinit(struct dump *d)
{
    for (uint32_t i = 0; i < d->n_thread; i++)
        forget_chain(&d->thread[i]);
    free(d->thread);
    (void)py_free(d->py);
    arena_deinit(&d->texts);
    (void)unwind_native_close(d->unwind);
    (void)proc_free(d->procs);
    *d = (struct dump){};
}
