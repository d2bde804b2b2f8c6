// SPDX-License-Identifier: Apache-2.0
#include "agent/python/py.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/file/procfile.h"
#include "agent/proc/facts.h"
#include "agent/python/pymend.h"
#include "base/log.h"
#include "base/map.h"
#include "base/time.h"

#define FIRST_NS    (5 * NS_PER_MS)
#define LATEST_NS   NS_PER_S
#define QUIET_TRIES 60 /* then it is looked at every 10 s */
#define QUIET_NS    (10 * NS_PER_S)
#define TLS_TRIES   8 /* a mismatch that stays so long is none of a thread that is being made */
#define DOUBT_PART  50
#define GLIBC_TID   0x2d0 /* in its descriptor of a thread, x86-64 */
#define ENVIRON_CAP ((size_t)1 << 20)

struct pyproc {
    uint64_t serial;
    uint32_t tgid, execs;
    uint32_t bin; /* the binary that is a Python */
    uint64_t bias;
    enum pylayout_result state;
    unsigned tries, mismatches;
    int64_t due; /* PYLAYOUT_WAIT */
    struct pylayout layout;
    uint32_t samples, errs, is_short; /* since they were judged */
    bool doubted;
};

struct py {
    struct py_conf conf;
    struct map by_bin;  /* binary's id -> index in elf + 1; 0: no Python */
    struct map by_tgid; /* -> struct pyproc * */
    struct pyelf *elf;
    uint32_t n_elf;
    int64_t due;
    uint64_t reads;
    bool any;
    struct map told;
    struct pynames *names;
    struct py_stats stats;
};

static struct pyproc *from_u64(uint64_t v)
{
    return (struct pyproc *)(uintptr_t)v; // NOLINT(performance-no-int-to-ptr): a map value
}

struct py *py_new(const struct py_conf *c)
{
    struct py *y = xcalloc(1, sizeof *y);

    y->conf = *c;
    map_init(&y->by_bin, 0);
    map_init(&y->by_tgid, 0);
    map_init(&y->told, 0);
    y->names = pynames_new(0);
    y->due = INT64_MAX;
    return y;
}

struct py *py_free(struct py *y)
{
    uint32_t pos = 0;
    uint64_t key, v;

    if (!y)
        return NULL;
    while (map_next(&y->by_tgid, &pos, &key, &v))
        free(from_u64(v));
    map_deinit(&y->by_bin);
    map_deinit(&y->by_tgid);
    map_deinit(&y->told);
    pynames_free(y->names);
    free(y->elf);
    free(y);
    return NULL;
}

[[gnu::format(printf, 3, 4)]] static void say(struct py *y, const char *kind, const char *fmt, ...)
{
    char text[160];
    va_list ap;

    va_start(ap, fmt);
    // NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): va_start is above
    (void)vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (y->conf.say)
        y->conf.say(y->conf.ctx, kind, text);
}

/* ---- recognition ----------------------------------------------------------------------------- */

/* NULL: none, or *ret_wait is set: not known yet. */
static const struct pyelf *elf_of(struct py *y, struct binary *b, bool *ret_wait)
{
    struct pyelf e;
    uint64_t v;
    int r;

    if (!map_get(&y->by_bin, b->id, &v)) {
        v = 0;
        r = facts_python(y->conf.facts, b, &e);
        if (r == -EAGAIN) {
            *ret_wait = true;
            return NULL;
        }
        if (r == 0) {
            y->elf = xrealloc(y->elf, (y->n_elf + 1) * sizeof *y->elf);
            y->elf[y->n_elf++] = e;
            v = y->n_elf;
        }
        (void)map_put(&y->by_bin, b->id, v);
    }
    return v ? &y->elf[v - 1] : NULL;
}

/* 3.13's and 3.14's JIT code keeps no frame pointers. */
static bool jit_on(const struct py *y, const struct pyproc *q)
{
    struct str key = STR("PYTHON_JIT="), all;
    char dir[64];
    struct buf b;
    bool on = false, cut;

    if (q->layout.py.ver != 0x30d && q->layout.py.ver != 0x30e)
        return false;
    (void)snprintf(dir, sizeof dir, "%s/%u", y->conf.proc, q->tgid);
    buf_init(&b, ENVIRON_CAP);
    if (procfile_read_some(dir, "environ", &b, &cut, NULL) < 0)
        buf_reset(&b);
    for (all = buf_view(&b); all.n && !on;) {
        size_t end = str_find(all, '\0');
        struct str one = str_to(all, end);

        on = str_starts(one, key) && one.n > key.n && one.p[key.n] != '0';
        all = end == SIZE_MAX ? STR("") : str_from(all, end + 1);
    }
    buf_deinit(&b);
    return on;
}

/* ---- one process ----------------------------------------------------------------------------- */

static struct pyproc *find(const struct py *y, const struct proc *p)
{
    struct pyproc *q;
    uint64_t v;

    if (!map_get(&y->by_tgid, p->tgid, &v))
        return NULL;
    q = from_u64(v);
    return q->serial == p->serial ? q : NULL;
}

static void tell(struct py *y, const struct pyproc *q, const struct sa_py *py)
{
    struct err err = {};

    if (tables_python(y->conf.tables, q->tgid, py, &err) < 0)
        log_event(LOG_WARN, "python", LOG_U("pid", q->tgid), LOG_ERR(&err));
}

static void ready(struct py *y, struct pyproc *q)
{
    struct sa_py *py = &q->layout.py;

    py->jit_nofp = jit_on(y, q);
    tell(y, q, py);
    y->any = true;
    y->reads++;
}

static void refuse(struct py *y, struct pyproc *q, enum pylayout_result why)
{
    uint64_t *told;

    q->state = why;
    /* once for each program: a thousand processes of it are one message */
    if (map_at(&y->told, (uint64_t)q->bin << 8 | (uint64_t)why, &told) == MAP_ADDED)
        say(y, "state", "source=python state=refused why=%s pid=%u", pylayout_name(why), q->tgid);
}

static void later(struct py *y, struct pyproc *q, int64_t now)
{
    int64_t pause = q->tries < 8 ? FIRST_NS << q->tries : LATEST_NS;

    if (q->tries >= QUIET_TRIES)
        pause = QUIET_NS;
    q->tries++;
    q->state = PYLAYOUT_WAIT;
    q->due = now + pause;
    if (q->due < y->due)
        y->due = q->due;
}

static void look(struct py *y, struct pyproc *q, int64_t now)
{
    struct unwind_memory mem = unwind_memory_of_process(&q->tgid);
    const struct pyelf *e;
    uint64_t at;

    if (!map_get(&y->by_bin, q->bin, &at) || at == 0)
        return;
    e = &y->elf[at - 1];
    q->state = pylayout_read(e, q->bias, &mem, &q->layout);
    if (q->state == PYLAYOUT_OK)
        q->state = pylayout_check(&q->layout, &mem);
    if (q->state == PYLAYOUT_OK)
        ready(y, q);
    else if (q->state == PYLAYOUT_WAIT || q->state == PYLAYOUT_GONE ||
             (q->state == PYLAYOUT_TLS && ++q->mismatches < TLS_TRIES))
        later(y, q, now);
    else
        refuse(y, q, q->state);
}

static void forget(struct py *y, struct pyproc *q)
{
    (void)map_del(&y->by_tgid, q->tgid);
    free(q);
}

/* The mapping that is a Python, or NULL. *ret_wait: one before it may be. */
static const struct proc_map *python_of(struct py *y, const struct proc *p, bool *ret_wait)
{
    *ret_wait = false;
    for (uint32_t i = 0; i < p->n_map; i++) {
        if (p->map[i].bin && elf_of(y, p->map[i].bin, ret_wait))
            return &p->map[i];
    }
    return NULL;
}

void py_follow(struct py *y, const struct proc *p, int64_t now)
{
    const struct proc_map *m;
    struct pyproc *q;
    uint64_t v;
    bool wait;

    if (!y || p->dropped || p->kthread)
        return;
    m = python_of(y, p, &wait);
    if (wait)
        return;
    q = map_get(&y->by_tgid, p->tgid, &v) ? from_u64(v) : NULL;
    if (q && m && q->serial == p->serial && q->execs == p->execs && q->bin == m->bin->id &&
        q->bias == m->bias)
        return;
    if (q) { /* another program, or another life of the number */
        if (q->state == PYLAYOUT_OK)
            tell(y, q, &(struct sa_py){});
        forget(y, q);
    }
    if (!m)
        return;
    q = xcalloc(1, sizeof *q);
    *q = (struct pyproc){.serial = p->serial,
                         .tgid = p->tgid,
                         .execs = p->execs,
                         .bin = m->bin->id,
                         .bias = m->bias};
    if (map_put(&y->by_tgid, p->tgid, (uint64_t)(uintptr_t)q) == MAP_FULL) {
        free(q);
        return;
    }
    look(y, q, now);
}

void py_tick(struct py *y, int64_t now)
{
    uint32_t pos = 0;
    uint64_t key, v;

    if (!y || now < y->due)
        return;
    y->due = INT64_MAX;
    while (map_next(&y->by_tgid, &pos, &key, &v)) {
        struct pyproc *q = from_u64(v);

        if (q->state != PYLAYOUT_WAIT)
            continue;
        if (q->due <= now)
            look(y, q, now);
        else if (q->due < y->due)
            y->due = q->due;
    }
}

uint64_t py_reads(const struct py *y)
{
    struct pynames_stats st;

    if (!y)
        return 0;
    pynames_get_stats(y->names, &st);
    return y->reads + st.reads;
}

int64_t py_due(const struct py *y)
{
    return y ? y->due : INT64_MAX;
}

void py_gone(struct py *y, uint32_t tgid)
{
    uint64_t v;

    if (y && map_get(&y->by_tgid, tgid, &v))
        forget(y, from_u64(v));
}

enum pylayout_result py_state(const struct py *y, const struct proc *p)
{
    const struct pyproc *q = y ? find(y, p) : NULL;

    return q ? q->state : PYLAYOUT_N;
}

int py_thread_pointer(const struct py *y, const struct proc *p, uint32_t tid, uint64_t *ret)
{
    struct pyproc *q = y ? find(y, p) : NULL;
    struct unwind_memory mem;

    if (!q || q->state != PYLAYOUT_OK)
        return 0;
    mem = unwind_memory_of_process(&q->tgid);
    return pylayout_thread_pointer(&q->layout, &mem, tid, ret);
}

/* ---- samples --------------------------------------------------------------------------------- */

/* Where an eval range leaves activations without frames, the frames' own addresses are better. */
static void judge(struct py *y, struct pyproc *q)
{
    struct sa_py *py = &q->layout.py;

    if (q->samples < PY_DOUBT_SAMPLES)
        return;
    if (q->errs * DOUBT_PART > q->samples && !q->doubted) {
        q->doubted = true;
        say(y, "py_doubtful", "pid=%u samples=%u errors=%u", q->tgid, q->samples, q->errs);
    }
    if (q->is_short * 100 > q->samples && py->ver >= 0x30c && !py->by_shim) {
        py->by_shim = 1;
        tell(y, q, py);
    }
    q->samples = q->errs = q->is_short = 0;
}

static void count(struct py *y, struct pyproc *q, const struct sa_ev *ev)
{
    struct py_stats *s = &y->stats;
    bool drained = ev->flags & SA_F_PY_DRAINED, is_short = ev->flags & SA_F_PY_SHORT;

    s->samples++;
    s->with_frames += ev->npy > 0;
    s->merged += ev->npy > 0 && !drained && (!is_short || pymend_missing(ev) == 1);
    s->frames += ev->npy;
    s->is_short += is_short;
    s->drained += drained;
    s->err[ev->pyerr & 15]++;
    s->gil[ev->gil & 7]++;
    q->samples++;
    q->errs += ev->pyerr && ev->pyerr != SA_PE_NONE;
    q->is_short += is_short;
    judge(y, q);
}

static struct pyproc *find_ok(const struct py *y, const struct proc *p)
{
    struct pyproc *q = y && p ? find(y, p) : NULL;

    return q && q->state == PYLAYOUT_OK ? q : NULL;
}

uint32_t py_frames(struct py *y, const struct proc *p, const struct sa_ev *ev,
                   struct pynames_frame ret[static SA_MAX_PY])
{
    struct pyproc *q = find_ok(y, p);
    struct unwind_memory mem;

    if (!q || ev->npy == 0)
        return 0;
    mem = unwind_memory_of_process(&q->tgid);
    return pynames_get(y->names, p->serial, &q->layout, &mem, ev, ret);
}

uint32_t py_sample(struct py *y, const struct proc *p, const struct sa_ev *ev,
                   struct pynames_frame ret[static SA_MAX_PY])
{
    struct pyproc *q = find_ok(y, p);

    if (q)
        count(y, q, ev);
    return py_frames(y, p, ev, ret);
}

bool py_next(const struct py *y, uint32_t *pos, uint32_t *ret_tgid)
{
    uint64_t key, v;

    while (y && map_next(&y->by_tgid, pos, &key, &v)) {
        *ret_tgid = (uint32_t)key;
        if (from_u64(v)->state == PYLAYOUT_OK)
            return true;
    }
    return false;
}

uint32_t py_holder(struct py *y, const struct proc *p, const struct sa_ev *ev)
{
    struct pyproc *q = find_ok(y, p);
    struct unwind_memory mem;
    uint64_t at;
    uint32_t tid = 0;

    if (!q || ev->gil != SA_G_OTHER || !ev->gil_holder)
        return 0;
    y->reads++;
    mem = unwind_memory_of_process(&q->tgid);
    /* the native number stands behind the thread's; 3.10 has the thread's alone, its descriptor in
     * glibc, which has the native number, too */
    at = ev->gil_holder + q->layout.thread_id + 8;
    if (q->layout.py.ver == 0x30a) {
        if (mem.read(mem.ctx, &at, sizeof at, ev->gil_holder + q->layout.thread_id))
            return 0;
        at += GLIBC_TID;
    }
    return mem.read(mem.ctx, &tid, sizeof tid, at) ? 0 : tid;
}

bool py_any(const struct py *y)
{
    return y && y->any;
}

static void count_version(struct py_stats *s, uint32_t hex, enum pylayout_result state)
{
    uint32_t i = 0;

    while (i < s->n_version && (s->version[i].hex != hex || s->version[i].state != state))
        i++;
    if (i == PY_VERSIONS)
        return;
    if (i == s->n_version)
        s->version[s->n_version++] = (struct py_version){.hex = hex, .state = state};
    s->version[i].processes++;
}

void py_get_stats(const struct py *y, struct py_stats *ret)
{
    uint32_t pos = 0;
    uint64_t key, v;

    *ret = y ? y->stats : (struct py_stats){};
    if (!y)
        return;
    pynames_get_stats(y->names, &ret->names);
    while (map_next(&y->by_tgid, &pos, &key, &v)) {
        const struct pyproc *q = from_u64(v);

        ret->processes[q->state]++;
        count_version(ret, q->layout.version, q->state);
        ret->by_shim += q->state == PYLAYOUT_OK && q->layout.py.by_shim;
        ret->unmerged += q->state == PYLAYOUT_OK && q->layout.py.jit_nofp;
    }
}
