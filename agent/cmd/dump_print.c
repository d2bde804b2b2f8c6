// SPDX-License-Identifier: Apache-2.0
/* A dump as text for people and as JSON; names, files and lines are looked up here, once the
 * process has been let go. */
#include <inttypes.h>
#include <stdlib.h>

#include "agent/cmd/dump.h"
#include "agent/name/gilwait.h"
#include "agent/name/lines.h"
#include "agent/name/names.h"
#include "agent/unwind/threads.h"
#include "base/arena.h"
#include "base/json_out.h"
#include "base/time.h"

#define DEBUG_DIRS "/usr/lib/debug"
#define LINES_NS   (10 * NS_PER_S)
#define NAME_BYTES (UINT64_C(256) << 20)

struct printer {
    struct names *names;
    struct lines *lines;
    struct arena texts; /* of lines */
    struct buf name;
};

/* Lines of all frames are asked for at once: each file is then read once. */
static void printer_init(struct printer *p, const struct dump *d)
{
    const struct names_conf nc = {
        .cache = NAME_BYTES, .debug_dirs = DEBUG_DIRS, .proc = "/proc", .sys = "/sys"};
    const struct lines_conf lc = {
        .mode = LINES_ALL, .debug_dirs = DEBUG_DIRS, .cache = NAME_BYTES, .no_budget = true};

    p->names = names_new(&nc);
    arena_init(&p->texts, NAME_BYTES);
    buf_init(&p->name, 1 << 20);
    p->lines = NULL;
    if (lines_start(&lc, &p->lines, NULL) < 0)
        return;
    for (uint32_t i = 0; i < d->n_thread; i++)
        lines_count(p->lines, d->pid, d->thread[i].word, d->thread[i].n, 1);
    lines_tick(p->lines, mono_now().v);
    (void)lines_wait(p->lines, LINES_NS);
}

static void printer_deinit(struct printer *p)
{
    (void)lines_stop(p->lines);
    arena_deinit(&p->texts);
    buf_deinit(&p->name);
    (void)names_free(p->names);
}

struct frame {
    uint64_t addr;                     /* ELF address, or in memory without a binary */
    struct str function, binary, file; /* file: empty where no line is known */
    bool known;                        /* function is a symbol's name */
    bool deleted, python;
    uint32_t line;
};

/* What is executed there: the innermost of the functions inlined at it. */
static void find_line(struct printer *p, uint64_t w, struct frame *ret)
{
    struct lines_frame *f = NULL;
    uint32_t n;

    arena_reset(&p->texts);
    n = p->lines ? lines_get(p->lines, w, &p->texts, &f) : 0;
    if (n == 0 || f[n - 1].line == 0 || f[n - 1].file.n == 0)
        return;
    ret->file = f[n - 1].file;
    ret->line = f[n - 1].line;
}

/* false: the interpreter's own, which no program wrote. */
static bool python_frame(const struct dump_thread *t, uint64_t w, struct frame *ret)
{
    uint32_t i = (uint32_t)w;
    const struct pynames_frame *f = i < t->n_py ? &t->py[i] : NULL;

    *ret = (struct frame){.python = true, .function = STR("[python]")};
    if (!f)
        return true;
    ret->function = f->name;
    ret->file = f->file;
    ret->line = f->line;
    ret->known = f->file.n > 0;
    return !f->internal;
}

/* false: no frame to show. The texts live until the next call. */
static bool frame_of(struct printer *p, const struct dump_thread *t, uint64_t w, bool native,
                     struct frame *ret)
{
    struct binary *b;

    if ((w & SA_W_TAG) == SA_W_PY)
        return python_frame(t, w, ret);
    *ret = (struct frame){};
    buf_reset(&p->name);
    if (!native || (w & SA_W_TAG) == SA_W_MARK)
        return false;
    if ((w & SA_W_TAG) == SA_W_RAW) {
        ret->addr = w & ~SA_W_TAG;
        buf_printf(&p->name, "0x%" PRIx64, ret->addr);
        ret->function = buf_view(&p->name);
        return true;
    }
    b = binary_by_id(SA_W_BIN(w));
    ret->addr = SA_W_ADDR(w);
    if (b) {
        ret->known = names_native(p->names, b, ret->addr, &p->name);
        ret->binary = b->path; /* held by the process's mappings, too */
        ret->deleted = b->deleted;
        find_line(p, w, ret);
        (void)binary_unref(b);
    }
    ret->function = buf_view(&p->name);
    return true;
}

static const char *state_name(enum dump_state s)
{
    switch (s) {
    case DUMP_RUNNING:
        return "running";
    case DUMP_RUNNABLE:
        return "runnable";
    case DUMP_WAITING:
        return "waiting";
    case DUMP_STOPPED:
        return "stopped";
    case DUMP_ENDED:
        break;
    }
    return "ended";
}

static const char *stop_name(uint8_t stop)
{
    static const char *const name[SA_S_N] = {"",        "trunc",     "nomap",   "notable", "noinfo",
                                             "invalid", "readfault", "zeropc",  "badsp",   "badfp",
                                             "noproc",  "kthread",   "exiting", "compat32"};

    return stop < SA_S_N ? name[stop] : "";
}

static void call_name(struct buf *out, int64_t nr)
{
    const char *name = thread_call_name(nr);

    if (name)
        buf_cstr(out, name);
    else
        buf_printf(out, "call %" PRId64, nr);
}

static bool waits_for_gil(struct printer *p, const struct dump_thread *t)
{
    return t->n > 0 && t->state == DUMP_WAITING && (t->gil == SA_G_OTHER || t->gil == SA_G_FREE) &&
           (t->gil_asked || gilwait_by_stack(p->names, &p->name, t->word, t->n));
}

/* The name of the thread that has the lock; "": it cannot be told. */
static struct str holder_name(const struct dump *d, const struct dump_thread *t)
{
    if (d->proc->key.pid != d->pid) /* the number is of another pid namespace */
        return STR("");
    for (uint32_t i = 0; i < d->n_thread; i++)
        if (d->thread[i].tid == t->gil_holder)
            return str_c(d->thread[i].comm);
    return STR("");
}

/* Why Python's frames, or some of them, are not there; NULL: they are, or there is no Python. */
static const char *python_why(const struct dump_thread *t)
{
    if (t->unknown_thread)
        return "CPython 3.10 does not say whose thread state is whose; --stop reads it";
    switch (t->pyerr) {
    case SA_PE_OK:
    case SA_PE_NONE:
        return NULL;
    case SA_PE_DEEP:
        return "too many";
    default:
        return "unreadable";
    }
}

/* ---- text ------------------------------------------------------------------------------------ */

/* Control characters are no part of a name that a terminal should act on: \xHH, as everywhere. */
static void put_clean(struct buf *out, struct str s)
{
    struct buf clean;
    struct str v;

    buf_init(&clean, 4 * s.n + 1);
    (void)str_repair(&clean, s);
    v = buf_view(&clean);
    for (size_t i = 0; i < v.n; i++) {
        unsigned char c = (unsigned char)v.p[i];
        unsigned char next = i + 1 < v.n ? (unsigned char)v.p[i + 1] : 0;

        if (c < ' ' || c == 127)
            buf_printf(out, "\\x%02x", c);
        else if (c == 0xc2 && next < 0xa0) /* U+0080 to U+009F */
            buf_printf(out, "\\x%02x", v.p[++i] & 0xff);
        else
            buf_chr(out, (char)c);
    }
    buf_deinit(&clean);
}

static void text_frame(const struct frame *f, struct buf *out)
{
    buf_cstr(out, "    ");
    put_clean(out, f->function);
    if (f->known && !f->python) {
        buf_cstr(out, "  ");
        put_clean(out, str_basename(f->binary));
    }
    if (f->deleted)
        buf_cstr(out, " (deleted)");
    if (f->file.n) {
        buf_cstr(out, "  ");
        put_clean(out, f->file);
        if (f->line)
            buf_printf(out, ":%u", f->line);
    }
    buf_chr(out, '\n');
}

static void text_frames(struct printer *p, const struct dump_thread *t, bool native,
                        struct buf *out)
{
    struct frame f;

    for (uint32_t i = 0; i < t->n; i++) {
        uint64_t w = t->word[i];

        if (frame_of(p, t, w, native, &f))
            text_frame(&f, out);
        else if (native && w == (SA_W_MARK | SA_M_SIGNAL))
            buf_cstr(out, "    [signal]\n");
        else if (w == (SA_W_MARK | SA_M_CUT))
            buf_printf(out, "    [truncated: %s; Python's frames are whole]\n", stop_name(t->stop));
    }
}

/* Markers of a chain that ended early and was continued with the rest of Python's frames. */
static bool was_cut(const struct dump_thread *t)
{
    for (uint32_t i = 0; i < t->n; i++) {
        if (t->word[i] == (SA_W_MARK | SA_M_CUT))
            return true;
    }
    return false;
}

static void text_gil(struct printer *p, const struct dump *d, const struct dump_thread *t,
                     struct buf *out)
{
    if (t->gil == SA_G_MINE) {
        buf_cstr(out, ", holds the GIL");
    } else if (waits_for_gil(p, t)) {
        buf_cstr(out, ", waits for the GIL");
        if (!t->gil_holder)
            return;
        buf_cstr(out, " of ");
        put_clean(out, holder_name(d, t));
        buf_printf(out, "/%u", t->gil_holder);
    }
}

static void text_thread(struct printer *p, const struct dump *d, const struct dump_thread *t,
                        bool native, struct buf *out)
{
    buf_printf(out, "\nThread %u \"", t->tid);
    put_clean(out, str_c(t->comm));
    buf_printf(out, "\": %s", state_name(t->state));
    if (t->state == DUMP_WAITING && t->call >= 0) {
        buf_cstr(out, " in ");
        call_name(out, t->call);
    }
    text_gil(p, d, t, out);
    buf_chr(out, '\n');
    if (t->no_stack) {
        buf_printf(out, "    [no stack: %s]\n", t->no_stack);
        return;
    }
    text_frames(p, t, native, out);
    if (t->stop != SA_S_END && !was_cut(t))
        buf_printf(out, "    [truncated: %s]\n", stop_name(t->stop));
    if (python_why(t))
        buf_printf(out, "    [Python frames missing: %s]\n", python_why(t));
}

void dump_print(const struct dump *d, bool native, struct buf *out)
{
    struct printer p;
    uint32_t alive = 0;

    printer_init(&p, d);
    for (uint32_t i = 0; i < d->n_thread; i++)
        alive += d->thread[i].state != DUMP_ENDED;
    buf_printf(out, "Process %u: ", d->pid);
    put_clean(out, d->proc->cmdline.n ? d->proc->cmdline : d->proc->comm);
    buf_printf(out, "\n%u thread%s", alive, alive == 1 ? "" : "s");
    if (d->n_stopped)
        buf_printf(out, ", %u of them stopped for at most %.2f ms each\n", d->n_stopped,
                   (double)d->stood_ns / (double)NS_PER_MS);
    else
        buf_cstr(out, ", none was stopped\n");
    if (d->python != PYLAYOUT_N && d->python != PYLAYOUT_OK)
        buf_printf(out, "Python: not read (%s)\n", pylayout_name(d->python));
    for (uint32_t i = 0; i < d->n_thread; i++)
        if (d->thread[i].state != DUMP_ENDED)
            text_thread(&p, d, &d->thread[i], native, out);
    printer_deinit(&p);
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static void json_frame(struct json_out *j, const struct frame *f)
{
    json_object_begin(j);
    json_key(j, "kind");
    json_cstr(j, f->python ? "python" : "native");
    json_key(j, "function");
    json_str(j, f->function);
    json_key(j, "symbol");
    json_bool(j, f->known);
    json_key(j, "binary");
    json_str(j, f->binary);
    json_key(j, "deleted");
    json_bool(j, f->deleted);
    json_key(j, "address");
    json_hex64(j, f->addr);
    json_key(j, "file");
    json_str(j, f->file);
    json_key(j, "line");
    json_u64(j, f->line);
    json_object_end(j);
}

static void json_frames(struct printer *p, struct json_out *j, const struct dump_thread *t,
                        bool native)
{
    struct frame f;

    json_array_begin(j);
    for (uint32_t i = 0; i < t->n; i++)
        if (frame_of(p, t, t->word[i], native, &f))
            json_frame(j, &f);
    json_array_end(j);
}

static const char *gil_name(uint8_t gil)
{
    static const char *const name[] = {"", "free", "held", "other", "unreadable"};

    return gil < sizeof name / sizeof name[0] ? name[gil] : "";
}

static void json_thread(struct printer *p, struct json_out *j, const struct dump_thread *t,
                        bool native)
{
    const char *call = thread_call_name(t->call);

    json_object_begin(j);
    json_key(j, "tid");
    json_u64(j, t->tid);
    json_key(j, "name");
    json_cstr(j, t->comm);
    json_key(j, "state");
    json_cstr(j, state_name(t->state));
    json_key(j, "call");
    json_cstr(j, t->state == DUMP_WAITING && call ? call : "");
    json_key(j, "incomplete"); /* empty: the stack is whole */
    json_cstr(j, t->no_stack ? t->no_stack : stop_name(t->stop));
    json_key(j, "gil"); /* empty: no Python, or not known */
    json_cstr(j, gil_name(t->gil));
    json_key(j, "gil_waits");
    json_bool(j, waits_for_gil(p, t));
    json_key(j, "gil_holder"); /* 0: none, or not known */
    json_u64(j, t->gil_holder);
    json_key(j, "python_missing"); /* empty: nothing is */
    json_cstr(j, python_why(t) ? python_why(t) : "");
    json_key(j, "frames");
    json_frames(p, j, t, native);
    json_object_end(j);
}

void dump_json(const struct dump *d, bool native, struct buf *out)
{
    struct printer p;
    struct json_out j;

    printer_init(&p, d);
    json_init(&j, out);
    json_object_begin(&j);
    json_key(&j, "pid");
    json_u64(&j, d->pid);
    json_key(&j, "command");
    json_str(&j, d->proc->cmdline);
    json_key(&j, "t_ns");
    json_dec_i64(&j, real_now().v);
    json_key(&j, "stopped");
    json_u64(&j, d->n_stopped);
    json_key(&j, "stood_max_ns");
    json_dec_i64(&j, d->stood_ns);
    json_key(&j, "stood_sum_ns");
    json_dec_i64(&j, d->stood_sum_ns);
    json_key(&j, "python"); /* empty: no Python; ok: its frames are read; else why not */
    json_cstr(&j, d->python == PYLAYOUT_N    ? ""
                  : d->python == PYLAYOUT_OK ? "ok"
                                             : pylayout_name(d->python));
    json_key(&j, "threads");
    json_array_begin(&j);
    for (uint32_t i = 0; i < d->n_thread; i++)
        if (d->thread[i].state != DUMP_ENDED)
            json_thread(&p, &j, &d->thread[i], native);
    json_array_end(&j);
    json_object_end(&j);
    buf_chr(out, '\n');
    printer_deinit(&p);
}
