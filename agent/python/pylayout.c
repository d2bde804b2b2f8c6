// SPDX-License-Identifier: Apache-2.0
#include "agent/python/pylayout.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"

#define MAX_INTERPRETERS 64
#define MAX_THREADS      4096
#define COOKIE           "xdebugpy"

static int rd(const struct unwind_memory *m, void *to, uint32_t n, uint64_t at)
{
    return m->read(m->ctx, to, n, at);
}

const char *pylayout_name(enum pylayout_result r)
{
    static const char *const name[PYLAYOUT_N] = {
        "ok", "py_version", "py_layout", "py_free_threaded", "py_tls", "py_wait", "py_gone"};

    return name[r];
}

/* ---- the table ------------------------------------------------------------------------------- */

/* One CPython minor version. Offsets in bytes; from the headers of releases, proved on running
 * ones. Meanings as in bpf/py.h and pylayout.h. */
struct version {
    uint16_t ver, key, gil; /* from _PyRuntime; 0: none there. gil: of the lock's holder */
    uint16_t interpreters, first_thread, thread_id;
    uint16_t ts_frame, ts_interp, interp_gil, ts_base, ts_asks, co_adaptive, traceable;
    uint8_t ts_cframe, cf_cur, f_code, f_prev, f_instr, f_entry, entry_val;
    uint8_t entry_ge, entry_each, shim;
    uint8_t c_flags, c_argc, c_first, c_file, c_name, c_lines, c_version, c_plain;
    uint8_t str_ascii, str_other;
};

#define STR_HASH 24 /* in a str of every version */

// clang-format off
static const struct version versions[] = {
    {.ver = 0x30a, .key = 588, .gil = 360, .interpreters = 32,
     .first_thread = 8, .thread_id = 176, .ts_frame = 24, .ts_interp = 16,
     .f_code = 32, .f_prev = 24, .f_instr = 96, .entry_each = 1,
     .c_flags = 36, .c_argc = 16, .c_first = 40, .c_file = 104, .c_name = 112, .c_lines = 120,
     .c_plain = 112,
     .str_ascii = 48, .str_other = 72},
    {.ver = 0x30b, .key = 596, .gil = 368, .interpreters = 40,
     .first_thread = 16, .thread_id = 152, .ts_frame = 56, .ts_interp = 16, .ts_cframe = 1,
     .cf_cur = 8, .f_code = 32, .f_prev = 48, .f_instr = 56, .f_entry = 68, .entry_val = 1,
     .co_adaptive = 184, .traceable = 168,
     .c_flags = 48, .c_argc = 56, .c_first = 72, .c_file = 112, .c_name = 128, .c_lines = 136,
     .c_plain = 120,
     .str_ascii = 48, .str_other = 72},
    {.ver = 0x30c, .key = 1548, .interpreters = 40, .first_thread = 72, .thread_id = 136,
     .ts_frame = 56, .ts_interp = 16, .interp_gil = 384, .ts_cframe = 1,
     .f_prev = 8, .f_instr = 56, .f_entry = 70, .entry_val = 3, .shim = 1,
     .co_adaptive = 192, .traceable = 176,
     .c_flags = 48, .c_argc = 52, .c_first = 68, .c_file = 112, .c_name = 128, .c_lines = 136,
     .c_version = 92, .str_ascii = 40, .str_other = 56},
    {.ver = 0x30d, .key = 2164, .interpreters = 632, .first_thread = 7344, .thread_id = 152,
     .ts_frame = 72, .ts_interp = 16, .interp_gil = 16,
     .f_prev = 8, .f_instr = 56, .f_entry = 70, .entry_val = 3, .shim = 1,
     .co_adaptive = 200, .traceable = 184,
     .c_flags = 48, .c_argc = 52, .c_first = 68, .c_file = 112, .c_name = 128, .c_lines = 136,
     .c_version = 92, .str_ascii = 40, .str_other = 56},
    {.ver = 0x30e, .key = 2340, .interpreters = 808, .first_thread = 7344, .thread_id = 152,
     .ts_frame = 72, .ts_interp = 16, .interp_gil = 16,
     .f_prev = 8, .f_instr = 56, .f_entry = 74, .entry_val = 3, .entry_ge = 1, .shim = 1,
     .co_adaptive = 208, .traceable = 192,
     .c_flags = 48, .c_argc = 52, .c_first = 68, .c_file = 112, .c_name = 128, .c_lines = 136,
     .c_version = 92, .str_ascii = 40, .str_other = 56},
    {.ver = 0x30f, .interpreters = 936, .first_thread = 7336, .thread_id = 176,
     .ts_frame = 72, .ts_interp = 16, .interp_gil = 16, .ts_base = 80, .ts_asks = 40,
     .f_prev = 8, .f_instr = 56, .f_entry = 74, .entry_val = 3, .entry_ge = 1, .shim = 1,
     .co_adaptive = 208, .traceable = 192,
     .c_flags = 48, .c_argc = 52, .c_first = 68, .c_file = 112, .c_name = 128, .c_lines = 136,
     .c_version = 92, .str_ascii = 40, .str_other = 56},
};
// clang-format on

static struct sa_py py_of(const struct version *v, uint64_t runtime)
{
    return (struct sa_py){
        .ver = v->ver,
        .shim = v->shim,
        .entry_val = v->entry_val,
        .entry_ge = v->entry_ge,
        .entry_each = v->entry_each,
        .ts_cframe = v->ts_cframe,
        .cf_cur = v->cf_cur,
        .f_code = v->f_code,
        .f_prev = v->f_prev,
        .f_instr = v->f_instr,
        .f_entry = v->f_entry,
        .c_flags = v->c_flags,
        .c_argc = v->c_argc,
        .c_first = v->c_first,
        .c_file = v->c_file,
        .c_name = v->c_name,
        .c_lines = v->c_lines,
        .c_version = v->c_version,
        .c_plain = v->c_plain,
        .s_hash = STR_HASH,
        .co_adaptive = v->co_adaptive,
        .ts_frame = v->ts_frame,
        .ts_interp = v->ts_interp,
        .interp_gil = v->interp_gil,
        .ts_base = v->ts_base,
        .ts_asks = v->ts_asks,
        .key_addr = v->key ? runtime + v->key : 0,
        .gil = v->gil ? runtime + v->gil : 0,
    };
}

enum pylayout_result pylayout_of_version(uint64_t hex, uint64_t runtime, struct pylayout *ret)
{
    for (size_t i = 0; i < sizeof versions / sizeof versions[0]; i++) {
        const struct version *v = &versions[i];

        if (hex >> 16 != v->ver)
            continue;
        *ret = (struct pylayout){.py = py_of(v, runtime),
                                 .runtime = runtime,
                                 .interpreters = v->interpreters,
                                 .first_thread = v->first_thread,
                                 .next = 8,
                                 .thread_id = v->thread_id,
                                 .traceable = v->traceable,
                                 .str_ascii = v->str_ascii,
                                 .str_other = v->str_other};
        return PYLAYOUT_OK;
    }
    return PYLAYOUT_VERSION;
}

/* ---- _Py_DebugOffsets, 3.13 on: the interpreter's own word ----------------------------------- */

/* Indices of its words, by version. */
struct debug_words {
    uint8_t ceval_gil, gil, locked, holder, next, interp, frame, thread_id;
    uint8_t f_prev, f_code, f_instr, f_owner;
    uint8_t c_file, c_name, c_qualname, c_lines, c_first, c_argc, c_adaptive;
};

// clang-format off
static const struct debug_words words_313 = {14, 15, 17, 18, 21, 22, 23, 24, 29, 30, 31, 33,
                                             35, 36, 37, 38, 39, 40, 43};
static const struct debug_words words_314 = {15, 16, 18, 19, 24, 25, 26, 27, 32, 33, 34, 36,
                                             40, 41, 42, 43, 44, 45, 48};
static const struct debug_words words_315 = {15, 16, 18, 19, 24, 25, 26, 30, 40, 41, 42, 44,
                                             48, 49, 50, 51, 52, 53, 56};
// clang-format on

enum pylayout_result pylayout_check_offsets(const struct pylayout *l,
                                            const uint64_t word[static 64])
{
    const struct sa_py *p = &l->py;
    const struct debug_words *d = p->ver == 0x30d   ? &words_313
                                  : p->ver == 0x30e ? &words_314
                                                    : &words_315;
    const struct {
        uint8_t at;
        uint64_t want;
    } t[] = {
        {5, l->interpreters},         {9, l->first_thread},           {d->ceval_gil, p->interp_gil},
        {d->next, l->next},           {d->interp, p->ts_interp},      {d->frame, p->ts_frame},
        {d->thread_id, l->thread_id}, {d->f_prev, p->f_prev},         {d->f_code, p->f_code},
        {d->f_instr, p->f_instr},     {d->f_owner, p->f_entry},       {d->c_file, p->c_file},
        {d->c_qualname, p->c_name},   {d->c_lines, p->c_lines},       {d->c_first, p->c_first},
        {d->c_argc, p->c_argc},       {d->c_adaptive, p->co_adaptive}};

    if (memcmp(word, COOKIE, 8) != 0 || word[1] >> 16 != p->ver)
        return PYLAYOUT_LAYOUT;
    if (word[2])
        return PYLAYOUT_FREE_THREADED;
    for (size_t i = 0; i < sizeof t / sizeof t[0]; i++) {
        if (word[t[i].at] != t[i].want)
            return PYLAYOUT_LAYOUT;
    }
    if (word[d->locked] - word[d->gil] != 16 || word[d->holder] - word[d->gil] != 8 ||
        (p->ts_base && word[27] != p->ts_base) || (p->ts_asks && word[35] != p->ts_asks))
        return PYLAYOUT_LAYOUT;
    return PYLAYOUT_OK;
}

/* ---- 3.15: a thread-local variable ----------------------------------------------------------- */

/*
 * PyGILState_GetThisThreadState() only returns it, so its place is read from that function's code:
 *   executable   mov %fs:off,%rax
 *   library      lea got(%rip),%rdi; call __tls_get_addr; ... mov off(%rax),%rax
 * where the word at got is the module's number. Another form: refused.
 */
static enum pylayout_result find_tls(const struct unwind_memory *mem, uint64_t fn, struct sa_py *p)
{
    uint8_t c[48];
    uint64_t got = 0, m[2];
    int32_t d = 0;
    bool found = false;

    if (!fn || rd(mem, c, sizeof c, fn) < 0)
        return PYLAYOUT_TLS;
    for (unsigned i = 0; i + 9 < sizeof c && c[i] != 0xc3 && !found; i++) {
        if (!got && memcmp(c + i, "\x64\x48\x8b\x04\x25", 5) == 0) {
            memcpy(&d, c + i + 5, 4);
            p->tls_off = d;
            return PYLAYOUT_OK;
        }
        if (!got && memcmp(c + i, "\x48\x8d\x3d", 3) == 0) {
            memcpy(&d, c + i + 3, 4);
            got = fn + i + 7 + (uint64_t)(int64_t)d;
            i += 6;
        } else if (got && memcmp(c + i, "\x48\x8b\x80", 3) == 0) {
            memcpy(&d, c + i + 3, 4);
            found = true;
        } else if (got && memcmp(c + i, "\x48\x8b\x40", 3) == 0) {
            d = c[i + 3] < 0x80 ? c[i + 3] : c[i + 3] - 0x100; /* one signed byte */
            found = true;
        }
    }
    if (!found || rd(mem, m, sizeof m, got) < 0 || m[0] == 0)
        return PYLAYOUT_TLS;
    p->tls_mod = m[0];
    p->tls_off = (int64_t)m[1] + d;
    return PYLAYOUT_OK;
}

/* ---- of a process ---------------------------------------------------------------------------- */

static void set_eval(const struct pyelf *e, uint64_t bias, struct sa_py *p)
{
    if (p->ver >= 0x30c && !pyelf_has_eval(e)) {
        p->by_shim = 1;
        return;
    }
    p->eval_lo = e->eval_lo + bias;
    p->eval_hi = e->eval_hi + bias;
    if (!e->cold_lo)
        return;
    p->cold_lo = e->cold_lo + bias;
    p->cold_hi = e->cold_hi + bias;
}

enum pylayout_result pylayout_read(const struct pyelf *e, uint64_t bias,
                                   const struct unwind_memory *mem, struct pylayout *ret)
{
    uint64_t hex = e->named_310 ? 0x030a0000 : 0, word[64];
    enum pylayout_result r;

    if (e->version && rd(mem, &hex, sizeof hex, e->version + bias) < 0)
        return PYLAYOUT_GONE;
    r = pylayout_of_version(hex, e->runtime + bias, ret);
    ret->version = (uint32_t)hex;
    if (r != PYLAYOUT_OK)
        return r;
    ret->code_type = e->code_type ? e->code_type + bias : 0;
    if (!ret->code_type)
        return PYLAYOUT_LAYOUT;
    set_eval(e, bias, &ret->py);
    if (ret->py.ver < 0x30d)
        return PYLAYOUT_OK;
    if (rd(mem, word, sizeof word, ret->runtime) < 0)
        return PYLAYOUT_GONE;
    r = pylayout_check_offsets(ret, word);
    ret->interp_next = (uint16_t)word[8];
    if (r == PYLAYOUT_OK && ret->py.ver == 0x30f)
        r = find_tls(mem, e->gilstate ? e->gilstate + bias : 0, &ret->py);
    return r;
}

struct state {
    uint64_t ts, thread; /* thread: its thread pointer */
};

struct states {
    uint32_t n;
    struct state v[MAX_THREADS];
};

/* What BPF will find for a thread; as py_thread() of bpf/py.bpf.h. 0: nothing. */
static uint64_t slot_of(const struct pylayout *l, const struct unwind_memory *mem, uint64_t thread)
{
    const struct sa_py *p = &l->py;
    uint64_t at = thread, v = 0;
    uint32_t key;

    if (p->key_addr) {
        if (rd(mem, &key, 4, p->key_addr) < 0 || key >= SA_PY_KEYS ||
            rd(mem, &at, 8, thread + SA_PY_TCB_KEYS + UINT64_C(8) * (key >> 5)) < 0 || !at)
            return 0;
        at += UINT64_C(16) * (key & 31) + 8;
    } else {
        if (p->tls_mod && (rd(mem, &at, 8, at + 8) < 0 ||
                           rd(mem, &at, 8, at + 16 * p->tls_mod) < 0 || !at || at == UINT64_MAX))
            return 0;
        at += (uint64_t)p->tls_off;
    }
    return rd(mem, &v, 8, at) < 0 ? 0 : v;
}

/* The thread states of one interpreter, from ts on. A list without an end is being changed, or
 * lies.
 */
static bool gather_threads(const struct pylayout *l, const struct unwind_memory *mem, uint64_t ts,
                           struct states *ret)
{
    for (unsigned steps = 0; ts && ret->n < MAX_THREADS; steps++) {
        struct state *s = &ret->v[ret->n];

        if (steps == MAX_THREADS)
            return false;

        s->ts = ts;
        if (rd(mem, &s->thread, 8, ts + l->thread_id) < 0 || rd(mem, &ts, 8, ts + l->next) < 0)
            return false;
        ret->n += s->thread != 0; /* else it does not run yet */
    }
    return true;
}

static enum pylayout_result gather(const struct pylayout *l, const struct unwind_memory *mem,
                                   struct states *ret)
{
    uint64_t interp, ts;

    ret->n = 0;
    if (rd(mem, &interp, 8, l->runtime + l->interpreters) < 0)
        return PYLAYOUT_GONE;
    for (unsigned i = 0; interp && i < MAX_INTERPRETERS; i++) {
        if (rd(mem, &ts, 8, interp + l->first_thread) < 0 || !gather_threads(l, mem, ts, ret) ||
            rd(mem, &interp, 8, interp + l->interp_next) < 0)
            return PYLAYOUT_WAIT; /* it is being changed */
    }
    return PYLAYOUT_OK;
}

/* One of the states of the same thread is in its slot. */
static bool in_slot(const struct states *s, uint64_t thread, uint64_t slot)
{
    for (uint32_t i = 0; i < s->n; i++) {
        if (s->v[i].ts == slot && s->v[i].thread == thread)
            return true;
    }
    return false;
}

static bool all_in_slots(const struct pylayout *l, const struct unwind_memory *mem,
                         const struct states *s)
{
    for (uint32_t i = 0; i < s->n; i++) {
        uint64_t slot = slot_of(l, mem, s->v[i].thread);

        if (slot != s->v[i].ts && !in_slot(s, s->v[i].thread, slot))
            return false;
    }
    return true;
}

enum pylayout_result pylayout_check(const struct pylayout *l, const struct unwind_memory *mem)
{
    struct states *s = xmalloc(sizeof *s);
    enum pylayout_result r = gather(l, mem, s);

    if (r == PYLAYOUT_OK && s->n == 0)
        r = PYLAYOUT_WAIT;
    if (r == PYLAYOUT_OK && !all_in_slots(l, mem, s))
        r = PYLAYOUT_TLS;
    free(s);
    return r;
}

int pylayout_thread_pointer(const struct pylayout *l, const struct unwind_memory *mem, uint32_t tid,
                            uint64_t *ret)
{
    struct states *s;
    uint64_t at = 0, native, self;

    if (l->py.ver < 0x30b) /* native_thread_id stands behind thread_id since 3.11 */
        return -ENOTSUP;
    s = xmalloc(sizeof *s);
    if (gather(l, mem, s) == PYLAYOUT_OK) {
        for (uint32_t i = 0; i < s->n && !at; i++) {
            if (rd(mem, &native, 8, s->v[i].ts + l->thread_id + 8) == 0 && native == tid)
                at = s->v[i].thread;
        }
    }
    free(s);
    /* the x86-64 ABI: the word at the thread pointer is the thread pointer */
    if (!at || rd(mem, &self, 8, at) < 0 || self != at)
        return 0;
    *ret = at;
    return 1;
}
