// SPDX-License-Identifier: Apache-2.0
/*
 * Python in the agent without a kernel: line tables, layouts against words that interpreters
 * showed, a running interpreter, and made-up memory, honest and hostile, under the step of the BPF
 * programs.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "agent/file/procfile.h"
#include "agent/proc/procread.h"
#include "agent/python/pyline.h"
#include "agent/python/pymend.h"
#include "agent/python/pynames.h"
#include "base/buf.h"
#include "tests/lib/testing.h"

/* ---- lines ----------------------------------------------------------------------------------- */

/* def f(a): with lines 3, 4, 6 and 7, a comprehension and a lambda; compiled by 3.11.2, 3.10.13 */
static const uint8_t table_311[] = {
    0x80, 0x00, 0xf0, 0x02, 0x01, 0x09, 0x11, 0xf0, 0x00, 0x01, 0x09, 0x11, 0xd8, 0x0e,
    0x0f, 0xf0, 0x03, 0x01, 0x09, 0x11, 0xf1, 0x00, 0x01, 0x09, 0x11, 0xf4, 0x00, 0x01,
    0x09, 0x11, 0x80, 0x41, 0xf5, 0x06, 0x00, 0x0c, 0x12, 0x90, 0x21, 0xf0, 0x02, 0x01,
    0x0d, 0x0e, 0xf0, 0x00, 0x01, 0x0d, 0x0e, 0xf0, 0x03, 0x02, 0x0c, 0x0f, 0xf1, 0x00,
    0x02, 0x0c, 0x0f, 0xf4, 0x00, 0x02, 0x0c, 0x0f, 0xf0, 0x00, 0x02, 0x05, 0x0f};
static const uint8_t lines_311[] = {2, 3, 3, 4, 3, 3, 3, 3, 3, 3, 3, 3, 3, 6, 6, 6,
                                    6, 6, 6, 6, 7, 7, 6, 6, 6, 6, 6, 6, 6, 6, 6};
static const uint8_t table_310[] = {6, 1, 2, 1, 6, 0xff, 4, 3, 6, 1, 6, 0xff};
static const uint8_t lines_310[] = {3, 3, 3, 4, 3, 3, 3, 6, 6, 7, 7, 7, 6, 6, 6};

static void lines(void **state)
{
    (void)state;
    for (int32_t i = 0; i < (int32_t)sizeof lines_311; i++)
        assert_int_equal(pyline_of(0x30b, table_311, sizeof table_311, 2, i), lines_311[i]);
    for (int32_t i = 0; i < (int32_t)sizeof lines_310; i++)
        assert_int_equal(pyline_of(0x30a, table_310, sizeof table_310, 2, i), lines_310[i]);
    assert_int_equal(pyline_of(0x30b, table_311, sizeof table_311, 2, -1), 2);
    assert_int_equal(pyline_of(0x30b, table_311, sizeof table_311, 2, 31), 0);
    assert_int_equal(pyline_of(0x30a, table_310, sizeof table_310, 2, 15), 0);
    assert_int_equal(pyline_of(0x30b, NULL, 0, 2, 0), 0);
    assert_int_equal(pyline_of(0x30c, (const uint8_t[]){0xf8}, 1, 2, 0), 0); /* no line */
    assert_int_equal(pyline_of(0x30a, (const uint8_t[]){8, 0x80}, 2, 2, 0), 0);
}

static uint64_t seed;

static uint64_t any(void)
{
    seed = seed * 6364136223846793005 + 1442695040888963407;
    return seed >> 24;
}

static void lines_of_anything(void **state)
{
    uint8_t *t = malloc(64);

    (void)state;
    for (unsigned round = 0; round < 20000; round++) {
        uint32_t n = (uint32_t)any() % 64;

        for (uint32_t i = 0; i < n; i++)
            t[i] = (uint8_t)any();
        for (int32_t at = -2; at < 80; at += 7) {
            assert_true(pyline_of(0x30a, t, n, (int32_t)any(), at) <= INT32_MAX);
            assert_true(pyline_of(0x30f, t, n, (int32_t)any(), at) <= INT32_MAX);
        }
    }
    free(t);
}

/* ---- layouts --------------------------------------------------------------------------------- */

/* The first words of _PyRuntime of running interpreters. */
static const uint64_t debug_words[][64] = {
    /* 3.13.0 */
    {0x7970677562656478,
     0x30d00f0,
     0,
     283320,
     608,
     632,
     194968,
     7272,
     7264,
     7344,
     7400,
     7656,
     7640,
     7648,
     16,
     7752,
     0,
     7768,
     7760,
     304,
     0,
     8,
     16,
     72,
     152,
     160,
     232,
     32,
     80,
     8,
     0,
     56,
     72,
     70,
     208,
     112,
     120,
     128,
     136,
     68,
     52,
     96,
     104,
     200,
     16,
     8,
     416,
     24,
     88,
     168},
    /* 3.13.18 */
    {0x7970677562656478,
     0x30d12f0,
     0,
     283408,
     608,
     632,
     194984,
     7272,
     7264,
     7344,
     7400,
     7656,
     7640,
     7648,
     16,
     7752,
     0,
     7768,
     7760,
     312,
     0,
     8,
     16,
     72,
     152,
     160,
     232,
     32,
     80,
     8,
     0,
     56,
     72,
     70,
     208,
     112,
     120,
     128,
     136,
     68,
     52,
     96,
     104,
     200,
     16,
     8,
     416,
     24,
     88,
     168},
    /* 3.14.10 */
    {0x7970677562656478,
     0x30e0af0,
     0,
     316616,
     784,
     808,
     225864,
     7280,
     7272,
     7344,
     7360,
     7408,
     7688,
     7672,
     7680,
     16,
     7784,
     0,
     7800,
     7792,
     7992,
     0,
     832,
     0,
     8,
     16,
     72,
     152,
     160,
     232,
     32,
     88,
     8,
     0,
     56,
     80,
     74,
     64,
     0,
     216,
     112,
     120,
     128,
     136,
     68,
     52,
     96,
     104,
     208},
    /* 3.15.2 */
    {0x7970677562656478,
     0x30f02f0,
     0,
     346568,
     912,
     936,
     226240,
     7272,
     7264,
     7336,
     7352,
     7400,
     7592,
     7576,
     7584,
     16,
     7736,
     0,
     7752,
     7744,
     7944,
     0,
     888,
     0,
     8,
     16,
     72,
     80,
     88,
     96,
     176,
     184,
     256,
     32,
     36,
     40,
     136,
     288,
     0,
     88,
     8,
     0,
     56,
     80,
     74,
     64,
     0,
     216,
     112,
     120,
     128,
     136,
     68,
     52,
     96,
     104,
     208},
};

static void layouts(void **state)
{
    const unsigned used[] = {0, 1, 5, 9, 39, 40, 43, 44, 52, 53, 56};
    struct pylayout l;
    uint64_t w[64];

    (void)state;
    for (uint64_t v = 0; v < 0x400; v++)
        assert_int_equal(pylayout_of_version(v << 16 | 0xf0, 0x1000, &l),
                         v >= 0x30a && v <= 0x30f ? PYLAYOUT_OK : PYLAYOUT_VERSION);
    for (unsigned i = 0; i < sizeof debug_words / sizeof debug_words[0]; i++) {
        memcpy(w, debug_words[i], sizeof w);
        assert_int_equal(pylayout_of_version(w[1], 0x1000, &l), PYLAYOUT_OK);
        assert_int_equal(pylayout_check_offsets(&l, w), PYLAYOUT_OK);
        w[2] = 1;
        assert_int_equal(pylayout_check_offsets(&l, w), PYLAYOUT_FREE_THREADED);
        w[2] = 0;
        unsigned refused = 0;

        for (unsigned k = 0; k < sizeof used / sizeof used[0]; k++) {
            w[used[k]] ^= 0x40;
            refused += pylayout_check_offsets(&l, w) == PYLAYOUT_LAYOUT;
            w[used[k]] ^= 0x40;
        }
        assert_true(refused >= 6); /* 0, 1 apart from its low half, 5, 9 and most of a version's */
    }
    /* another version's words */
    assert_int_equal(pylayout_of_version(0x30f02f0, 0x1000, &l), PYLAYOUT_OK);
    assert_int_equal(pylayout_check_offsets(&l, debug_words[2]), PYLAYOUT_LAYOUT);
}

/* ---- a running interpreter ------------------------------------------------------------------- */

struct running {
    uint32_t pid;
    struct pyelf elf;
    uint64_t bias;
};

static bool find_python(struct running *r)
{
    struct procread_map m;
    bool found = false;
    char dir[64], link[128];
    struct buf b;
    struct str text;

    (void)snprintf(dir, sizeof dir, "/proc/%u", r->pid);
    buf_init(&b, 1 << 20);
    if (procfile_read(dir, "maps", &b, NULL) < 0)
        buf_reset(&b);
    for (text = buf_view(&b); !found && procread_map_next(&text, &m);) {
        struct binary *bin;
        int fd;

        if (!m.exec || m.path.n == 0 || m.path.p[0] != '/')
            continue;
        (void)snprintf(link, sizeof link, "%.*s", (int)(m.path.n < 127 ? m.path.n : 127), m.path.p);
        fd = open(link, O_RDONLY | O_CLOEXEC);
        if (fd < 0 || binary_open(fd, m.path, false, &bin, NULL) < 0)
            continue;
        found = pyelf_read(bin, &r->elf);
        r->bias = m.start - binary_vaddr(bin, m.offset);
        (void)binary_unref(bin);
    }
    buf_deinit(&b);
    return found;
}

struct lies {
    struct unwind_memory mem;
    uint64_t at;
    uint32_t value;
};

static int read_lies(void *ctx, void *to, uint32_t n, uint64_t at)
{
    const struct lies *l = ctx;
    int r = l->mem.read(l->mem.ctx, to, n, at);

    if (r == 0 && l->at >= at && n >= 4 && l->at - at <= n - 4)
        memcpy((char *)to + (l->at - at), &l->value, 4);
    return r;
}

static enum pylayout_result until_known(const struct running *r, struct pylayout *l)
{
    struct unwind_memory mem = unwind_memory_of_process(&r->pid);
    const struct timespec nap = {.tv_nsec = 5000000};
    enum pylayout_result got = PYLAYOUT_WAIT;

    for (int i = 0; i < 1000 && got != PYLAYOUT_OK; i++) {
        (void)nanosleep(&nap, NULL);
        got = pylayout_read(&r->elf, r->bias, &mem, l);
        if (got == PYLAYOUT_OK)
            got = pylayout_check(l, &mem);
    }
    return got;
}

static void a_running_one(void **state)
{
    struct running r = {};
    struct lies l = {};
    struct unwind_memory lying = {read_lies, &l};
    struct pylayout p, q;

    (void)state;
    if (access("/usr/bin/python3", X_OK) != 0) {
        (void)printf("skip: no /usr/bin/python3\n");
        skip();
    }
    r.pid = (uint32_t)fork();
    if (r.pid == 0) {
        (void)execl("/usr/bin/python3", "python3", "-c", "import time; time.sleep(60)",
                    (char *)NULL);
        _exit(127);
    }
    for (int i = 0; i < 1000 && !find_python(&r); i++)
        (void)usleep(5000);
    assert_true(r.elf.runtime && r.elf.code_type && pyelf_has_eval(&r.elf));
    assert_int_equal(until_known(&r, &p), PYLAYOUT_OK);
    assert_true(p.py.ver >= 0x30a && p.py.ver <= 0x30f);
    l.mem = unwind_memory_of_process(&r.pid);
    l.at = r.elf.version + r.bias;
    l.value = 0x030a00f0; /* says that it is older than it is: the thread states are elsewhere */
    if (r.elf.version && p.py.ver > 0x30a) {
        enum pylayout_result got = pylayout_read(&r.elf, r.bias, &lying, &q);

        if (got == PYLAYOUT_OK)
            got = pylayout_check(&q, &lying);
        assert_int_not_equal(got, PYLAYOUT_OK);
        l.value = 0x031000f0;
        assert_int_equal(pylayout_read(&r.elf, r.bias, &lying, &q), PYLAYOUT_VERSION);
    }
    if (p.py.key_addr) {
        l.at = p.py.key_addr;
        l.value = 900;
        assert_int_equal(pylayout_check(&p, &lying), PYLAYOUT_TLS);
        l.value = 1024;
        assert_int_equal(pylayout_check(&p, &lying), PYLAYOUT_TLS);
    }
    (void)kill((pid_t)r.pid, SIGKILL);
    (void)waitpid((pid_t)r.pid, NULL, 0);
    assert_int_equal(pylayout_read(&r.elf, r.bias, &l.mem, &q), PYLAYOUT_GONE);
}

static void no_pythons(void **state)
{
    const char *const path[] = {"/bin/sh", "/lib/x86_64-linux-gnu/libc.so.6", "/proc/self/exe"};
    struct pyelf e;

    (void)state;
    for (unsigned i = 0; i < 3; i++) {
        int fd = open(path[i], O_RDONLY | O_CLOEXEC);
        struct binary *b;

        if (fd < 0 || binary_open(fd, str_c(path[i]), false, &b, NULL) < 0)
            continue;
        assert_false(pyelf_read(b, &e));
        (void)binary_unref(b);
    }
}

/* ---- made-up memory -------------------------------------------------------------------------- */

enum {
    BASE = 0x100000,
    SIZE = 0x10000,
    THREAD = BASE + 0x1000, /* thread pointer */
    RUNTIME = BASE + 0x2000,
    KEYS = BASE + 0x3000,
    STATE = BASE + 0x3400,
    CFRAME = BASE + 0x3600,
    CFRAME_BEFORE = BASE + 0x3640,
    FRAMES = BASE + 0x4000,
    CODE = BASE + 0x8000,
    TEXTS = BASE + 0x9000,
    TYPE = BASE + 0xa000,
    STACK = BASE + 0xc000,
    CODE_OF_PERF = BASE + 0xd800,
    EVAL = 0x700000,
    OTHER = 0x780000,
    PID = 815,
};

static struct made {
    uint8_t bytes[SIZE];
    struct unwind_native *u;
    struct proc_map map[3];
    struct proc proc;
    struct pylayout l;
    struct unwind_regs regs;
} made;

static int read_made(void *ctx, void *to, uint32_t n, uint64_t at)
{
    (void)ctx;
    if (at < BASE || at - BASE > SIZE || SIZE - (at - BASE) < n)
        return -1;
    memcpy(to, made.bytes + (at - BASE), n);
    return 0;
}

static const struct unwind_memory mem_made = {read_made, NULL};

static void put8(uint64_t at, uint64_t v)
{
    memcpy(made.bytes + (at - BASE), &v, 8);
}

static void put4(uint64_t at, uint32_t v)
{
    memcpy(made.bytes + (at - BASE), &v, 4);
}

static void put_text(uint64_t at, const char *s, uint64_t n)
{
    put8(at + 16, n);
    made.bytes[at + 32 - BASE] = 1 << 2 | 32 | 64;
    memcpy(made.bytes + (at + 48 - BASE), s, strlen(s));
}

static uint64_t frame_at(unsigned i)
{
    return FRAMES + 128 * (uint64_t)i;
}

/* Frame i of 3.11: its caller is i + 1; entry: the last of its activation. */
static void put_frame(unsigned i, uint64_t prev, bool entry)
{
    put8(frame_at(i) + 32, CODE);
    put8(frame_at(i) + 48, prev);
    put8(frame_at(i) + 56, CODE + 184 + 2 * 7);
    made.bytes[frame_at(i) + 68 - BASE] = entry;
}

static void native_frame(unsigned i, uint64_t return_to)
{
    put8(STACK + 64 * (uint64_t)i, STACK + 64 * (uint64_t)(i + 1));
    put8(STACK + 64 * (uint64_t)i + 8, return_to);
}

/* Two activations: 0 and 1 in the first, 2 in the second; eval, other, eval, other, end. */
static void make_honest(void)
{
    struct err err = {};

    memset(made.bytes, 0, sizeof made.bytes);
    assert_int_equal(pylayout_of_version(0x30b02f0, RUNTIME, &made.l), PYLAYOUT_OK);
    made.l.py.eval_lo = EVAL;
    made.l.py.eval_hi = EVAL + 0x1000;
    made.l.code_type = TYPE;
    put4(RUNTIME + 596, 3);
    put8(THREAD + SA_PY_TCB_KEYS, KEYS);
    put8(KEYS + 16 * 3 + 8, STATE);
    put8(STATE + 56, CFRAME);
    put8(CFRAME + 8, frame_at(0));
    put8(CFRAME + 16, CFRAME_BEFORE);
    put8(CFRAME_BEFORE + 8, frame_at(2));
    put_frame(0, frame_at(1), false);
    put_frame(1, frame_at(2), true);
    put_frame(2, 0, true);
    put8(CODE, 1);
    put8(CODE + 8, TYPE);
    put4(CODE + 72, 2); /* first line */
    put8(CODE + 112, TEXTS);
    put8(CODE + 120, TEXTS + 0x100);
    put8(CODE + 128, TEXTS + 0x100);
    put8(CODE + 136, TEXTS + 0x200);
    put_text(TEXTS, "/srv/app.py", 11);
    put_text(TEXTS + 0x100, "Thing.f", 7);
    put8(TEXTS + 0x200 + 16, sizeof table_311);
    memcpy(made.bytes + (TEXTS + 0x200 + 32 - BASE), table_311, sizeof table_311);
    put4(RUNTIME + 376, 1);
    put8(RUNTIME + 368, STATE);
    native_frame(0, OTHER + 0x10);
    native_frame(1, EVAL + 0x20);
    native_frame(2, OTHER + 0x30);
    native_frame(3, 0);
    made.regs = (struct unwind_regs){
        .pc = EVAL + 8, .fsbase = THREAD, .reg = {[6] = STACK, [7] = STACK - 32}};
    assert_ok(tables_python(unwind_native_tables(made.u), PID, &made.l.py, &err), &err);
}

/* The same, in a function that the first activation calls. */
static void in_a_call(void)
{
    made.regs.pc = OTHER + 8;
    native_frame(0, EVAL + 0x10);
    native_frame(1, OTHER + 0x20);
    native_frame(2, EVAL + 0x30);
    native_frame(3, 0);
}

static struct sa_ev *walk(void)
{
    return unwind_native(made.u, PID, &made.regs, &mem_made);
}

/* "EEonp|..": P a Python frame, E in the eval function, o elsewhere, | the cut. */
static const char *shape(const struct sa_ev *ev)
{
    static char s[SA_MAX_WORDS + 1];
    uint32_t n = 0;

    for (uint32_t i = 0; i < ev->nu; i += sa_words(ev->w[i])) {
        uint64_t w = ev->w[i], pc = w & SA_W_RAWBITS;

        s[n++] = (w & SA_W_TAG) == SA_W_PY          ? 'P'
                 : (w & SA_W_TAG) == SA_W_MARK      ? '|'
                 : pc >= EVAL && pc < EVAL + 0x1000 ? 'E'
                                                    : 'o';
    }
    s[n] = 0;
    return s;
}

static int setup(void **state)
{
    struct err err = {};

    (void)state;
    made.map[0] =
        (struct proc_map){.start = CODE_OF_PERF, .end = CODE_OF_PERF + 0x100, .why = "anonymous"};
    made.map[1] = (struct proc_map){.start = EVAL, .end = EVAL + 0x1000, .why = "anonymous"};
    made.map[2] = (struct proc_map){.start = OTHER, .end = OTHER + 0x1000, .why = "anonymous"};
    made.proc = (struct proc){
        .tgid = PID, .exe = STR("/usr/bin/python3"), .n_map = 3, .map = made.map, .gen = 1};
    assert_ok(unwind_native_open(&made.u, NULL, &err), &err);
    assert_ok(tables_publish(unwind_native_tables(made.u), &made.proc, &err), &err);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    made.u = unwind_native_close(made.u);
    return 0;
}

static void merged(void **state)
{
    struct sa_ev *ev;

    (void)state;
    make_honest();
    ev = walk();
    assert_string_equal(shape(ev), "PPEoPEo");
    assert_int_equal(ev->npy, 3);
    assert_int_equal(ev->stop, SA_S_END);
    assert_int_equal(ev->pyerr, 0);
    assert_int_equal(ev->gil, SA_G_MINE);
    assert_int_equal(ev->flags & (SA_F_PY_SHORT | SA_F_PY_DRAINED), 0);
    put8(RUNTIME + 368, STATE + 8);
    assert_int_equal(walk()->gil, SA_G_OTHER);
    put4(RUNTIME + 376, 0);
    assert_int_equal(walk()->gil, SA_G_FREE);
    put8(STATE + 56, 0);
    assert_int_equal(walk()->pyerr, SA_PE_CFRAME);
    put8(STATE + 56, CFRAME);
    /* a thread without Python; one whose thread pointer is unknown */
    put8(KEYS + 16 * 3 + 8, 0);
    ev = walk();
    assert_string_equal(shape(ev), "EoEo");
    assert_int_equal(ev->pyerr, SA_PE_NONE);
    assert_int_equal(ev->gil, SA_G_NA);
    made.regs.fsbase = 0;
    assert_int_equal(walk()->pyerr, 0);
}

static uint64_t lasti_of(const struct sa_ev *ev, uint32_t nth)
{
    for (uint32_t i = ev->nk; i < (uint32_t)ev->nk + ev->nu; i += sa_words(ev->w[i])) {
        if ((ev->w[i] & SA_W_TAG) == SA_W_PY && nth-- == 0)
            return (uint32_t)ev->w[i + 1];
    }
    fail();
    return 0;
}

/* In the first instructions of an activation, or the last ones: it has no frame. */
static void mended(void **state)
{
    struct sa_ev *room = malloc(sizeof *room + PYMEND_WORDS * sizeof *room->w);
    const struct sa_ev *m;
    struct sa_ev *ev;

    (void)state;
    make_honest();
    assert_ptr_equal(pymend(walk(), room), walk()); /* nothing to do */
    native_frame(3, EVAL + 0x60);
    native_frame(4, OTHER + 0x70);
    native_frame(5, 0);
    put8(frame_at(1) + 56, CODE + 184 + 2 * 3);
    put8(frame_at(2) + 56, CODE + 184 + 2 * 5);
    ev = walk();
    assert_string_equal(shape(ev), "PPEoPEo|Eo");
    assert_int_equal(ev->flags & SA_F_PY_SHORT, SA_F_PY_SHORT);
    assert_int_equal(pymend_missing(ev), 1);
    m = pymend(ev, room);
    assert_string_equal(shape(m), "EoPPEoPEo");
    assert_int_equal(m->npy, 3);
    assert_int_equal(lasti_of(m, 0), 7);
    assert_int_equal(lasti_of(m, 1), 3);
    assert_int_equal(lasti_of(m, 2), 5);
    /* of two nobody knows which */
    native_frame(5, EVAL + 0x80);
    native_frame(6, 0);
    ev = walk();
    assert_string_equal(shape(ev), "PPEoPEo|Eo|E");
    assert_int_equal(pymend_missing(ev), 2);
    assert_string_equal(shape(pymend(ev, room)), "PPEoPEoEoE");
    free(room);
}

/* Linked, but not filled yet: what lies there is no chain, and nobody's frames are shown. */
static void unlinked(void **state)
{
    struct sa_ev *ev;

    (void)state;
    make_honest();
    put8(CFRAME + 8, frame_at(8)); /* a frame that is no more */
    put_frame(8, frame_at(9), false);
    put_frame(9, frame_at(1), true); /* its chain leads elsewhere */
    ev = walk();
    assert_string_equal(shape(ev), "EoEo");
    assert_int_equal(ev->pyerr, SA_PE_CFRAME);
    assert_int_equal(ev->npy, 0);
    put_frame(9, frame_at(8), false); /* or round */
    assert_string_equal(shape(walk()), "EoEo");
    put_frame(9, 8, false); /* or nowhere */
    assert_string_equal(shape(walk()), "EoEo");
    put8(CFRAME + 16, 0);
    assert_string_equal(shape(walk()), "EoEo");
    put8(CFRAME + 16, CFRAME_BEFORE);
    put_frame(9, frame_at(2), true);
    assert_string_equal(shape(walk()), "PPEoPEo");
    /* an activation that has called something is linked, whatever the one before says */
    put8(CFRAME_BEFORE + 8, 0);
    in_a_call();
    assert_string_equal(shape(walk()), "oPPEoPE");
}

/* Interrupted between the functions: each instruction says how much of the frame stands. */
static void in_trampoline(void **state)
{
    static const struct {
        uint8_t n, code[11];
        uint8_t at, words, bp; /* interrupted there; words above the return address; rbp is one */
    } t[] = {
        {11, {0x48, 0x83, 0xec, 8, 0xff, 0xd1, 0x48, 0x83, 0xc4, 8, 0xc3}, 0, 0, 0},
        {11, {0x48, 0x83, 0xec, 8, 0xff, 0xd1, 0x48, 0x83, 0xc4, 8, 0xc3}, 4, 1, 0},
        {11, {0x48, 0x83, 0xec, 8, 0xff, 0xd1, 0x48, 0x83, 0xc4, 8, 0xc3}, 6, 1, 0},
        {11, {0x48, 0x83, 0xec, 8, 0xff, 0xd1, 0x48, 0x83, 0xc4, 8, 0xc3}, 10, 0, 0},
        {8, {0x55, 0x48, 0x89, 0xe5, 0xff, 0xd1, 0x5d, 0xc3}, 0, 0, 0},
        {8, {0x55, 0x48, 0x89, 0xe5, 0xff, 0xd1, 0x5d, 0xc3}, 1, 1, 1},
        {8, {0x55, 0x48, 0x89, 0xe5, 0xff, 0xd1, 0x5d, 0xc3}, 6, 1, 1},
        {8, {0x55, 0x48, 0x89, 0xe5, 0xff, 0xd1, 0x5d, 0xc3}, 7, 0, 0},
        {8, {0xf3, 0x0f, 0x1e, 0xfa, 0x55, 0x48, 0x89, 0xe5}, 0, 0, 0},
    };

    (void)state;
    for (unsigned i = 0; i < sizeof t / sizeof *t; i++) {
        make_honest();
        memcpy(made.bytes + (CODE_OF_PERF - BASE), t[i].code, t[i].n);
        made.regs.pc = CODE_OF_PERF + t[i].at;
        /* rbp is of no use where it is on the stack, or is taken from there */
        made.regs.reg[6] = t[i].bp ? 0 : STACK + 64;
        made.regs.reg[7] = STACK + 32 - 8 * (uint64_t)t[i].words;
        put8(STACK + 24, STACK + 64);
        put8(STACK + 32, EVAL + 0x20);
        native_frame(1, OTHER + 0x30);
        native_frame(2, EVAL + 0x40);
        native_frame(3, 0);
        assert_string_equal(shape(walk()), "oPPEoPE");
    }
    memset(made.bytes + (CODE_OF_PERF - BASE), 0x90, 16);
    assert_string_equal(shape(walk()), "ooPPE|P"); /* by the frame pointer, one is left out */
}

/* Between the functions 3.12 calls for perf: four instructions, no frame pointer. */
static void trampoline(void **state)
{
    static const uint8_t add8_ret[] = {0x48, 0x83, 0xc4, 8, 0xc3};

    (void)state;
    make_honest();
    native_frame(0, CODE_OF_PERF + 8);
    memcpy(made.bytes + (CODE_OF_PERF + 8 - BASE), add8_ret, sizeof add8_ret);
    put8(STACK + 24, EVAL + 0x20);
    native_frame(1, OTHER + 0x30);
    native_frame(2, 0);
    assert_string_equal(shape(walk()), "PPEoPEo");
    put8(STACK + 24, 0);
    assert_int_equal(walk()->stop, SA_S_END);
    made.bytes[CODE_OF_PERF + 8 - BASE] =
        0x90; /* other code: by the frame pointer, which is the next one's */
    assert_string_equal(shape(walk()), "PPEoo|P");
}

static void cut(void **state)
{
    struct sa_ev *ev;

    (void)state;
    make_honest();
    put8(STACK, 8); /* the saved rbp of the first frame: no frame */
    ev = walk();
    assert_string_equal(shape(ev), "PPEo|P");
    assert_int_equal(ev->npy, 3);
    assert_int_equal(ev->stop, SA_S_BADFP);
    assert_int_equal(ev->flags & SA_F_PY_DRAINED, SA_F_PY_DRAINED);
    assert_int_equal(sa_last_native(ev) & SA_W_RAWBITS, OTHER + 0x10 - 1);
}

static void hostile(void **state)
{
    struct sa_ev *ev;

    (void)state;
    make_honest();
    in_a_call();
    put_frame(0, frame_at(0), false); /* its own caller */
    ev = walk();
    assert_int_equal(ev->npy, SA_MAX_PY);
    assert_int_equal(ev->pyerr, SA_PE_DEEP);
    assert_int_equal(ev->stop, SA_S_END);
    assert_string_equal(shape(ev) + 1 + SA_MAX_PY, "EoE");
    make_honest();
    put_frame(1, frame_at(0), true); /* in a circle, through an entry frame */
    ev = walk();
    assert_int_equal(ev->stop, SA_S_END);
    assert_true(ev->npy <= SA_MAX_PY);
    make_honest();
    in_a_call();
    put_frame(0, 0xdead0000, false);
    ev = walk();
    assert_int_equal(ev->pyerr, SA_PE_FRAME);
    assert_string_equal(shape(ev), "oPEoE");
    make_honest();
    put8(frame_at(0) + 32, 0);
    assert_int_equal(walk()->pyerr, SA_PE_CODE);
    make_honest();
    put4(RUNTIME + 596, 5000);
    ev = walk();
    assert_int_equal(ev->pyerr, SA_PE_BADKEY);
    assert_int_equal(ev->gil,
                     SA_G_UNREADABLE); /* who holds the lock is not known, so not "nobody" */
    make_honest();
    put8(THREAD + SA_PY_TCB_KEYS, 0x10);
    ev = walk();
    assert_int_equal(ev->pyerr, SA_PE_SLOT);
    assert_int_equal(ev->gil, SA_G_UNREADABLE);
}

/* A list of thread states that never run, and that comes back to its first one. */
static void without_end(void **state)
{
    (void)state;
    make_honest();
    put8(RUNTIME + made.l.interpreters, BASE + 0xe000);
    put8(BASE + 0xe000 + made.l.first_thread, BASE + 0xf000);
    put8(BASE + 0xf000 + made.l.thread_id, 0);
    put8(BASE + 0xf000 + made.l.next, BASE + 0xf000);
    assert_int_equal(pylayout_check(&made.l, &mem_made), PYLAYOUT_WAIT);
}

/* Whatever memory and layout hold: it ends, and the record is one. */
static void anything(void **state)
{
    struct err err = {};

    (void)state;
    seed = 7;
    for (unsigned round = 0; round < 3000; round++) {
        struct sa_py py;
        struct sa_ev *ev;
        uint32_t n = 0;

        make_honest();
        for (unsigned i = 0; i < 40; i++)
            put8(BASE + (any() % (SIZE / 8)) * 8, any() % 3 ? BASE + any() % SIZE : any());
        for (unsigned i = 0; i < 3; i++)
            put8(frame_at((unsigned)any() % 3) + any() % 13 * 8, BASE + any() % SIZE);
        py = made.l.py;
        if (round % 2)
            ((uint8_t *)&py)[2 + any() % 18] = (uint8_t)any();
        if (round % 3 == 0)
            py.by_shim = 1;
        assert_ok(tables_python(unwind_native_tables(made.u), PID, &py, &err), &err);
        ev = walk();
        assert_true(ev->nu < SA_MAX_WORDS && ev->npy <= SA_MAX_PY);
        for (uint32_t i = 0; i < ev->nu; i += sa_words(ev->w[i]))
            n += (ev->w[i] & SA_W_TAG) == SA_W_PY;
        assert_int_equal(n, ev->npy);
    }
}

/* ---- names ----------------------------------------------------------------------------------- */

static struct pynames_frame first_of(struct pynames *n, struct sa_ev *ev)
{
    static struct pynames_frame py[SA_MAX_PY];

    memset(py, 0, sizeof py);
    assert_int_equal(pynames_get(n, 1, &made.l, &mem_made, ev, py), ev->npy);
    return py[0];
}

static void names(void **state)
{
    struct pynames *n = pynames_new(0);
    struct pynames_stats s;
    struct pynames_frame f;

    (void)state;
    make_honest();
    f = first_of(n, walk());
    assert_str(f.name, STR("Thing.f"));
    assert_str(f.file, STR("/srv/app.py"));
    assert_int_equal(f.start_line, 2);
    assert_int_equal(f.line, lines_311[7]);
    pynames_get_stats(n, &s);
    assert_int_equal(s.codes, 1);
    assert_int_equal(s.reads, 1); /* three frames */
    put4(CODE + 168, 9);
    n = pynames_free(n);
    n = pynames_new(0);
    assert_true(first_of(n, walk()).internal);
    n = pynames_free(n);
}

static void names_that_lie(void **state)
{
    struct pynames *n = pynames_new(0);
    struct pynames_stats s;
    struct pynames_frame f;
    struct sa_ev *ev;

    (void)state;
    make_honest();
    ev = walk();
    put4(CODE + 72, 3); /* another code object by the time it is read */
    assert_str(first_of(n, ev).name, STR("[python 0x108000]"));
    put4(CODE + 72, 2);
    put8(CODE + 8, TYPE + 8); /* no code object */
    assert_str(first_of(n, ev).name, STR("[python 0x108000]"));
    put8(CODE + 8, TYPE);
    put8(CODE, 0x7f1234567890); /* freed: all but the number of references is as it was */
    assert_str(first_of(n, ev).name, STR("[python 0x108000]"));
    pynames_get_stats(n, &s);
    assert_int_equal(s.check, 9);             /* three frames each */
    put8(CODE, UINT64_C(0x00c00000c0000000)); /* never freed, with 3.14's flags */
    put8(TEXTS + 0x100 + 16, UINT64_MAX);     /* length */
    assert_str(first_of(n, ev).name.n ? str_to(first_of(n, ev).name, 7) : STR(""), STR("Thing.f"));
    n = pynames_free(n);
    n = pynames_new(0);
    made.bytes[TEXTS + 0x100 + 32 - BASE] = 7 << 2 | 32;
    f = first_of(n, ev);
    assert_str(f.name, STR("[python 0x108000]"));
    pynames_get_stats(n, &s);
    assert_int_equal(s.unreadable, 3);
    n = pynames_free(n);
}

/* A code object that lies where another one lay, of its shape, with its texts in their places: the
 * one that is gone must not lend its name. */
static void names_recycled(void **state)
{
    struct pynames *n = pynames_new(0);
    struct pynames_frame f;
    struct sa_ev *ev;

    (void)state;
    make_honest();
    assert_str(first_of(n, walk()).name, STR("Thing.f"));
    made.bytes[TEXTS + 0x100 + 48 - BASE] = 'S'; /* of 3.11, by the hash of the name */
    put8(TEXTS + 0x100 + 24, 12345);
    ev = walk();
    f = first_of(n, ev);
    assert_str(f.name, STR("Shing.f"));
    put8(TEXTS + 0x100 + 24, 12346);                  /* between the tick and the reading */
    assert_str(first_of(n, ev).name, STR("Shing.f")); /* read before */
    n = pynames_free(n);
    n = pynames_new(0);
    assert_str(first_of(n, ev).name, STR("[python 0x108000]"));
    put8(CODE + 120, 0x1000); /* the name cannot be read where its hash was to be taken */
    ev = walk();
    put8(CODE + 120, TEXTS + 0x100);
    assert_str(first_of(n, ev).name, STR("Shing.f"));
    n = pynames_free(n);
}

static void names_of_anything(void **state)
{
    struct pynames *n = pynames_new(1 << 20);
    struct pynames_stats s;

    (void)state;
    seed = 11;
    for (unsigned round = 0; round < 3000; round++) {
        struct sa_ev *ev;

        make_honest();
        for (unsigned i = 0; i < 6; i++)
            made.bytes[0x8000 + any() % 0x1300] = (uint8_t)any();
        put4(CODE + 56, round); /* each its own */
        ev = walk();
        (void)first_of(n, ev);
    }
    pynames_get_stats(n, &s);
    assert_true(s.forgotten > 0); /* the room is bounded */
    assert_true(s.bytes <= 1 << 20);
    n = pynames_free(n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines),
        cmocka_unit_test(lines_of_anything),
        cmocka_unit_test(layouts),
        cmocka_unit_test(a_running_one),
        cmocka_unit_test(no_pythons),
        cmocka_unit_test(merged),
        cmocka_unit_test(mended),
        cmocka_unit_test(unlinked),
        cmocka_unit_test(in_trampoline),
        cmocka_unit_test(trampoline),
        cmocka_unit_test(cut),
        cmocka_unit_test(hostile),
        cmocka_unit_test(without_end),
        cmocka_unit_test(anything),
        cmocka_unit_test(names),
        cmocka_unit_test(names_that_lie),
        cmocka_unit_test(names_recycled),
        cmocka_unit_test(names_of_anything),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
