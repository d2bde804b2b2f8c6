// SPDX-License-Identifier: Apache-2.0
/*
 * The unwinder in user space on recorded stacks: tests/golden/unwind/tiny (built from
 * tests/agent/workloads/tiny.c), what it looked like at each of its stops (tiny.dump, written by
 * tests/agent/stackdump.c), and the chains that these stacks are (tiny.chains, checked against the
 * program's symbols when they were written; UPDATE_GOLDEN=1 writes them anew). No kernel is asked.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/unwind/unwind_native.h"
#include "base/buf.h"
#include "base/time.h"
#include "tests/lib/testing.h"

enum {
    PID = 4711,
    MAX_DUMPS = 16,
    WAIT_NS = 2000000000,
};

struct dump {
    struct unwind_regs regs;
    uint64_t at, n;
    uint8_t stack[4096];
};

static struct replay {
    struct unwind_native *u;
    struct binary *bin;
    struct proc_map map;
    struct proc proc;
    struct dump dump[MAX_DUMPS];
    uint32_t n_dump;
} rp;

static void golden_path(char ret[4096], const char *name)
{
    const char *dir = getenv("STRATA_GOLDEN"); // NOLINT(concurrency-mt-unsafe): one thread

    assert_non_null(dir);
    (void)snprintf(ret, 4096, "%s/unwind/%s", dir, name);
}

static char *read_text(const char *name)
{
    char path[4096], *text = calloc(1, 1 << 20);
    FILE *f;

    golden_path(path, name);
    f = fopen(path, "re");
    if (f) {
        (void)fread(text, 1, (1 << 20) - 1, f);
        (void)fclose(f);
    }
    return text;
}

static struct str word(struct str *line)
{
    size_t sp = str_find(*line, ' ');
    struct str w = str_to(*line, sp);

    *line = sp == SIZE_MAX ? (struct str){} : str_from(*line, sp + 1);
    return w;
}

static uint64_t hex(struct str *line)
{
    uint64_t v = 0;

    assert_true(str_hex64(word(line), &v));
    return v;
}

static void parse_line(struct str line)
{
    struct str key = word(&line);
    struct dump *d = &rp.dump[rp.n_dump];

    if (str_eq(key, STR("map"))) {
        rp.map.start = hex(&line);
        rp.map.end = hex(&line);
        rp.map.offset = hex(&line);
    } else if (str_eq(key, STR("dump"))) {
        d->regs.pc = hex(&line);
        for (int i = 0; i < 16; i++)
            d->regs.reg[i] = hex(&line);
    } else if (str_eq(key, STR("stack"))) {
        d->at = hex(&line);
        for (d->n = 0; line.n >= 2; line = str_from(line, 2)) {
            uint64_t v = 0;

            assert_true(str_hex64(str_to(line, 2), &v));
            d->stack[d->n++] = (uint8_t)v;
        }
        assert_true(++rp.n_dump < MAX_DUMPS);
    }
}

static void parse_dumps(void)
{
    char *text = read_text("tiny.dump");
    struct str left = str_c(text);

    while (left.n) {
        size_t nl = str_find(left, '\n');

        parse_line(str_to(left, nl));
        left = nl == SIZE_MAX ? (struct str){} : str_from(left, nl + 1);
    }
    free(text);
    assert_true(rp.n_dump >= 5);
}

static int setup(void **state)
{
    struct err err = {};
    char path[4096];
    int fd;

    (void)state;
    parse_dumps();
    golden_path(path, "tiny");
    fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_ok(binary_open(fd, STR("/tiny"), false, &rp.bin, &err), &err);
    rp.map.bin = rp.bin;
    rp.map.bias = rp.map.start - binary_vaddr(rp.bin, rp.map.offset);
    rp.proc = (struct proc){.tgid = PID, .exe = STR("/tiny"), .n_map = 1, .map = &rp.map, .gen = 1};
    assert_ok(unwind_native_open(&rp.u, NULL, &err), &err);
    assert_ok(tables_publish(unwind_native_tables(rp.u), &rp.proc, &err), &err);
    assert_true(unwind_native_settle(rp.u, WAIT_NS));
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    rp.u = unwind_native_close(rp.u);
    (void)binary_unref(rp.bin);
    return 0;
}

static int read_dump(void *ctx, void *to, uint32_t n, uint64_t at)
{
    const struct dump *d = ctx;

    if (at < d->at || at - d->at >= d->n || d->n - (at - d->at) < n)
        return -1;
    memcpy(to, d->stack + (at - d->at), n);
    return 0;
}

static struct sa_ev *chain(struct dump *d)
{
    const struct unwind_memory mem = {read_dump, d};

    return unwind_native(rp.u, PID, &d->regs, &mem);
}

static void golden_chains(void **state)
{
    char *want = read_text("tiny.chains");
    char path[4096];
    struct buf got;

    (void)state;
    buf_init(&got, 1 << 20);
    for (uint32_t i = 0; i < rp.n_dump; i++) {
        const struct sa_ev *ev = chain(&rp.dump[i]);

        buf_printf(&got, "stop %u flags %u:", ev->stop, ev->flags);
        for (uint32_t k = 0; k < ev->nu; k++)
            if ((ev->w[k] & SA_W_TAG) == SA_W_MARK)
                buf_cstr(&got, " signal");
            else
                buf_printf(&got, " %" PRIx64, (uint64_t)SA_W_ADDR(ev->w[k]));
        buf_chr(&got, '\n');
    }
    if (getenv("UPDATE_GOLDEN")) { // NOLINT(concurrency-mt-unsafe)
        FILE *f;

        golden_path(path, "tiny.chains");
        f = fopen(path, "we");
        assert_non_null(f);
        assert_int_equal(fwrite(got.p, 1, got.n, f), got.n);
        assert_int_equal(fclose(f), 0);
    } else {
        assert_str(buf_view(&got), str_c(want));
    }
    free(want);
    buf_deinit(&got);
}

static void all_whole(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < rp.n_dump; i++) {
        const struct sa_ev *ev = chain(&rp.dump[i]);

        assert_int_equal(ev->stop, SA_S_END);
        assert_int_equal(ev->flags & SA_F_FP_USED, 0);
        assert_int_equal(ev->tgid, PID);
    }
}

/* Cut anywhere, the chain is a prefix of the whole one and says why it ends. */
static void cut_stacks(void **state)
{
    uint64_t whole[SA_MAX_NATIVE];

    (void)state;
    for (uint32_t i = 0; i < rp.n_dump; i++) {
        struct dump d = rp.dump[i];
        const struct sa_ev *ev = chain(&d);
        uint32_t n = ev->nu;

        memcpy(whole, ev->w, n * sizeof *whole);
        for (d.n = 0; d.n < 512; d.n += 8) {
            ev = chain(&d);
            assert_true(ev->nu <= n);
            assert_true(ev->stop == SA_S_END || ev->stop == SA_S_READFAULT);
            assert_int_equal(ev->stop == SA_S_END, ev->nu == n);
            assert_memory_equal(ev->w, whole, (ev->nu - 1U) * sizeof *whole);
            /* the word of a signal frame is put right once its registers are read */
            assert_true(whole[ev->nu - 1] - ev->w[ev->nu - 1] <= (ev->stop != SA_S_END));
        }
    }
}

/* What a blocked thread shows: nothing but pc and sp. Frames by rsp are found as ever; one by rbp
 * ends the chain, and is not guessed. */
static void only_pc_and_sp(void **state)
{
    uint32_t whole = 0, lost = 0;

    (void)state;
    for (uint32_t i = 0; i < rp.n_dump; i++) {
        struct dump d = rp.dump[i];
        const struct sa_ev *ev;

        for (int r = 0; r < 16; r++)
            if (r != 7)
                d.regs.reg[r] = UINT64_C(0xdead0000dead0000);
        d.regs.only_pc_sp = true;
        ev = chain(&d);
        assert_true(ev->stop == SA_S_END || ev->stop == SA_S_BADFP);
        whole += ev->stop == SA_S_END;
        lost += ev->stop == SA_S_BADFP;
    }
    assert_true(whole >= 2);
    assert_true(lost >= 1);
}

static void stops(void **state)
{
    struct dump d = rp.dump[0];
    const struct unwind_memory mem = {read_dump, &d};
    const struct sa_ev *ev = unwind_native(rp.u, PID + 1, &d.regs, &mem);

    (void)state;
    assert_int_equal(ev->stop, SA_S_NOPROC);
    assert_int_equal(ev->nu, 1);
    assert_int_equal(ev->w[0], SA_W_RAW | d.regs.pc);
    /* 61 bits of it: the others say what kind of word it is */
    d.regs.pc = UINT64_C(0x2000000012345678);
    ev = unwind_native(rp.u, PID + 1, &d.regs, &mem);
    assert_int_equal(ev->w[0], SA_W_RAW | 0x12345678);
    d.regs.pc = 0x1234;
    assert_int_equal(chain(&d)->stop, SA_S_NOMAP);
    d.regs.pc = 0;
    assert_int_equal(chain(&d)->stop, SA_S_ZEROPC);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(golden_chains), cmocka_unit_test(all_whole),
                                       cmocka_unit_test(cut_stacks),
                                       cmocka_unit_test(only_pc_and_sp), cmocka_unit_test(stops)};

    return cmocka_run_group_tests(tests, setup, teardown);
}
