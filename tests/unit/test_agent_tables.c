// SPDX-License-Identifier: Apache-2.0
/* Tables in memory instead of BPF maps: what a program would read at each moment. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/file/ehtab.h"
#include "agent/unwind/tables.h"
#include "base/time.h"
#include "tests/lib/testing.h"

enum {
    N_ENTS = 64,
    N_PAGES = 4096,
    N_PROCS = 32
};

struct fake {
    struct sa_mapent ents[N_ENTS];
    struct sa_pg pages[N_PAGES];
    struct sa_rule rules[SA_MAX_RULES];
    struct sa_row *chunk[SA_MAX_CHUNKS];
    uint32_t n_chunk;
    struct sa_proc proc[N_PROCS];
    uint32_t n_proc;
};

static struct sa_proc *fake_find(struct fake *f, uint32_t tgid)
{
    for (uint32_t i = 0; i < f->n_proc; i++)
        if (f->proc[i].tgid == tgid)
            return &f->proc[i];
    return NULL;
}

static int proc_set(void *ctx, const struct sa_proc *p)
{
    struct fake *f = ctx;
    struct sa_proc *at = fake_find(f, p->tgid);

    if (!at && f->n_proc == N_PROCS)
        return -E2BIG;
    *(at ? at : &f->proc[f->n_proc++]) = *p;
    return 0;
}

static int proc_del(void *ctx, uint32_t tgid)
{
    struct fake *f = ctx;
    struct sa_proc *at = fake_find(f, tgid);

    if (!at)
        return -ENOENT;
    *at = f->proc[--f->n_proc];
    return 0;
}

static int chunk_new(void *ctx, uint32_t first, uint32_t n, struct sa_row **ret)
{
    struct fake *f = ctx;

    if (first != f->n_chunk)
        return -EINVAL;
    for (uint32_t i = 0; i < n; i++)
        ret[i] = f->chunk[f->n_chunk++] = calloc(SA_CHUNK_ROWS, sizeof(struct sa_row));
    return 0;
}

/* What the program's find_rule() does. */
static const struct sa_rule *lookup(const struct fake *f, const struct sa_mapent *m, uint64_t va)
{
    uint32_t pg = (uint32_t)(va >> 16) - m->first_page, lo, hi;
    const struct sa_row *row;

    if (pg >= m->npages || !f->pages[m->pg_base + pg].n)
        return NULL;
    row = f->chunk[f->pages[m->pg_base + pg].row >> 16];
    lo = f->pages[m->pg_base + pg].row & 0xffff;
    hi = lo + f->pages[m->pg_base + pg].n;
    while (lo + 1 < hi) {
        uint32_t mid = (lo + hi) / 2;

        if (row[mid].pc_low <= (va & 0xffff))
            lo = mid;
        else
            hi = mid;
    }
    return &f->rules[row[lo].rule];
}

static struct fake *fake_new(struct tables_io *io)
{
    struct fake *f = calloc(1, sizeof *f);

    assert_non_null(f);
    *io = (struct tables_io){f->ents,       f->pages, f->rules, N_ENTS,   N_PAGES,  SA_MAX_RULES,
                             SA_MAX_CHUNKS, f,        proc_set, proc_del, chunk_new};
    return f;
}

static void fake_free(struct fake *f)
{
    for (uint32_t i = 0; i < f->n_chunk; i++)
        free(f->chunk[i]);
    free(f);
}

static struct binary *open_binary(const char *path)
{
    struct binary *b = NULL;
    struct err err = {};
    int fd = open(path, O_RDONLY | O_CLOEXEC);

    assert_true(fd >= 0);
    assert_ok(binary_open(fd, str_c(path), false, &b, &err), &err);
    return b;
}

/* Until nothing is under way. */
static void settle(struct tables *t)
{
    for (int i = 0; i < 2000; i++) {
        tables_tick(t);
        if (!tables_pending(t))
            return;
        (void)usleep(5000);
    }
    fail_msg("tables are still being built");
}

static int64_t read_bin(void *ctx, void *to, uint64_t n, uint64_t at)
{
    return binary_read(ctx, to, n, at);
}

#define LIBC "/lib/x86_64-linux-gnu/libc.so.6"
#define LDSO "/lib64/ld-linux-x86-64.so.2"
#define SELF "/proc/self/exe"

/* Every rule of libc is what ehtab says; libc is wanted by itself, the rest on first touch. */
static void test_publish(void **state)
{
    struct tables_io io;
    struct fake *f = fake_new(&io);
    struct binary *libc = open_binary(LIBC), *exe = open_binary(SELF);
    const struct proc_map map[] = {
        {.start = 0x1000, .end = 0x100000, .bias = 0x1000, .bin = exe},
        {.start = 0x200000, .end = 0x210000, .why = "anonymous"},
        {.start = 0x300000, .end = 0x310000, .why = "open: Permission denied"},
        {.start = 0x7f0000000000, .end = 0x7f0000200000, .bias = 0x7f0000000000, .bin = libc},
    };
    const struct proc p = {.tgid = 17, .n_map = 4, .map = map};
    struct ehtab_file file = {read_bin, libc, libc->size};
    const struct sa_mapent *m;
    struct tables_stats st;
    struct tables *t;
    struct ehtab want;
    struct err err = {};

    (void)state;
    assert_ok(tables_open(&t, &io, &(struct tables_opts){.reuse_ns = 1}, &err), &err);
    assert_ok(tables_publish(t, &p, &err), &err);
    assert_int_equal(f->n_proc, 1);
    assert_int_equal(f->proc[0].n, 4);
    assert_int_equal(f->proc[0].gen, f->proc[0].gen2);
    settle(t);
    m = &f->ents[f->proc[0].maps_off];
    assert_int_equal(m[0].npages, 0);
    assert_int_equal(m[0].first_page, SA_NT_WAIT);
    assert_int_equal(m[0].bin, exe->id);
    assert_int_equal(m[1].first_page, SA_NT_FP);
    assert_int_equal(m[1].bin, 0);
    assert_int_equal(m[2].first_page, SA_NT_WAIT);
    assert_int_equal(m[3].bin, libc->id);
    assert_true(m[3].npages > 0);

    assert_int_equal(ehtab_build(&file, &want), EHTAB_OK);
    for (size_t i = 0; i < want.n; i++) {
        const struct sa_rule *r = lookup(f, &m[3], want.row[i].pc);

        assert_non_null(r);
        assert_memory_equal(r, &want.row[i].rule, sizeof *r);
        if (i && want.row[i].pc - want.row[i - 1].pc > 1) {
            r = lookup(f, &m[3], want.row[i].pc - 1);
            assert_memory_equal(r, &want.row[i - 1].rule, sizeof *r);
        }
    }
    ehtab_deinit(&want);

    tables_want(t, exe);
    settle(t);
    m = &f->ents[f->proc[0].maps_off];
    assert_true(m[0].npages > 0);
    tables_get_stats(t, &st);
    assert_int_equal(st.built, 2);
    assert_int_equal(st.procs, 1);

    assert_ok(tables_exclude(t, 17, true, &err), &err);
    assert_int_equal(f->proc[0].flags, SA_P_EXCLUDED);
    assert_int_equal(f->proc[0].n, 4);
    tables_unpublish(t, 17);
    assert_int_equal(f->n_proc, 0);
    (void)tables_close(t);
    (void)binary_unref(libc);
    (void)binary_unref(exe);
    fake_free(f);
}

/* A replaced range is not touched until it is due: readers may still be in it. */
static void test_ranges_rest(void **state)
{
    struct tables_io io;
    struct fake *f = fake_new(&io);
    struct proc_map map[8] = {};
    struct proc p = {.tgid = 5, .n_map = 8, .map = map};
    struct tables_stats st;
    struct tables *t;
    struct err err = {};
    uint32_t first;

    (void)state;
    for (uint64_t i = 0; i < 8; i++)
        map[i] = (struct proc_map){.start = i << 16, .end = (i + 1) << 16, .why = "anonymous"};
    assert_ok(tables_open(&t, &io, &(struct tables_opts){.reuse_ns = 50 * NS_PER_MS}, &err), &err);
    assert_ok(tables_publish(t, &p, &err), &err);
    first = f->proc[0].maps_off;
    for (int i = 0; i < 6; i++) { /* 7 ranges of 8: 56 of 63 entries */
        assert_ok(tables_publish(t, &p, &err), &err);
        assert_int_not_equal(f->proc[0].maps_off, first);
        assert_int_equal(f->ents[first + 7].end, 8 << 16);
    }
    /* the eighth does not fit, is said, and the process is gone rather than wrong */
    assert_int_equal(tables_publish(t, &p, &err), -ENOSPC);
    assert_non_null(strstr(err.msg, "mappings of process 5"));
    assert_null(fake_find(f, 5));
    tables_get_stats(t, &st);
    assert_int_equal(st.no_room, 1);
    (void)usleep(60000);
    for (int i = 0; i < 2; i++) /* room is given back, then used */
        tables_tick(t);
    assert_non_null(fake_find(f, 5));
    assert_int_equal(fake_find(f, 5)->n, 8);
    tables_get_stats(t, &st);
    assert_int_equal(st.mapents, 8);
    err = (struct err){};
    assert_ok(tables_publish(t, &p, &err), &err);
    (void)tables_close(t);
    fake_free(f);
}

/* Every entry is in use when a table comes that all processes map: none loses its range, all are
 * told in place, and again when it is evicted. */
static void test_full_told(void **state)
{
    struct tables_io io;
    struct fake *f = fake_new(&io);
    struct binary *libc = open_binary(LIBC), *other = open_binary("/usr/bin/python3");
    struct proc_map map[2] = {
        {.start = 0x1000, .end = 0x2000, .why = "anonymous"},
        {.start = 0x400000, .end = 0x40000000, .bias = 0x400000, .bin = libc}};
    struct proc_map last = {.start = 0x400000, .end = 0x40000000, .bias = 0x400000, .bin = other};
    struct sa_proc before[N_PROCS];
    struct tables_stats st;
    struct tables *t;
    struct err err = {};

    (void)state;
    io.n_pgidx = 60; /* of the two tables only one at a time */
    assert_ok(tables_open(&t, &io, &(struct tables_opts){.reuse_ns = 1}, &err), &err);
    for (uint32_t i = 0; i < 31; i++)
        assert_ok(tables_publish(t, &(struct proc){.tgid = 10 + i, .n_map = 2, .map = map}, &err),
                  &err);
    assert_ok(tables_publish(t, &(struct proc){.tgid = 99, .n_map = 1, .map = &last}, &err), &err);
    memcpy(before, f->proc, sizeof before);
    for (int k = 0; k < 4; k++) {
        tables_want(t, k % 2 ? other : libc);
        settle(t);
        tables_want(t, k % 2 ? other : libc); /* the first time another had to go */
        settle(t);
        assert_memory_equal(before, f->proc, sizeof before);
        for (uint32_t i = 0; i < 31; i++) {
            const struct sa_mapent *m = &f->ents[f->proc[i].maps_off];

            assert_int_equal(m[0].first_page, SA_NT_FP);
            assert_int_equal(m[1].npages > 0, k % 2 == 0);
            assert_int_equal(m[1].bias, 0x400000);
        }
        assert_int_equal(f->ents[fake_find(f, 99)->maps_off].npages > 0, k % 2);
    }
    tables_get_stats(t, &st);
    assert_int_equal(st.no_room, 0);
    assert_int_equal(st.mapents, 63);
    assert_true(st.evicted >= 3);
    (void)tables_close(t);
    (void)binary_unref(libc);
    (void)binary_unref(other);
    fake_free(f);
}

/* One process that maps and unmaps without end does not use the space up. */
static void test_large_pauses(void **state)
{
    enum {
        N = 1000,
        ENTS = 6 * N
    };
    struct tables_io io;
    struct fake *f = fake_new(&io);
    struct sa_mapent *ents = calloc(ENTS, sizeof *ents);
    struct proc_map *map = calloc(N, sizeof *map);
    struct proc p = {.tgid = 5, .n_map = N, .map = map};
    struct tables_stats st;
    struct tables *t;
    struct err err = {};

    (void)state;
    assert_true(ents && map);
    io.mapents = ents;
    io.n_mapents = ENTS;
    for (uint64_t i = 0; i < N; i++)
        map[i] = (struct proc_map){.start = i << 16, .end = (i + 1) << 16, .why = "anonymous"};
    assert_ok(tables_open(&t, &io, &(struct tables_opts){.reuse_ns = 120 * NS_PER_MS}, &err), &err);
    for (int64_t end = mono_now().v + 500 * NS_PER_MS; mono_now().v < end;) {
        map[0].start = (uint64_t)mono_now().v & 0xff;
        assert_ok(tables_publish(t, &p, &err), &err);
        tables_tick(t);
        (void)usleep(100);
    }
    map[0].start = 7;
    assert_ok(tables_publish(t, &p, &err), &err);
    (void)usleep(60000);
    tables_tick(t);
    assert_int_equal(ents[f->proc[0].maps_off].start, 7);
    p.n_map = 2; /* an exec is not waited for */
    map[0].start = 9;
    assert_ok(tables_publish(t, &p, &err), &err);
    assert_int_equal(ents[f->proc[0].maps_off].start, 9);
    tables_get_stats(t, &st);
    assert_int_equal(st.no_room, 0);
    (void)tables_close(t);
    free(ents);
    free(map);
    fake_free(f);
}

/* Where a process has a table for this mapping, it is the file's own. */
static bool check_table(const struct fake *f, const struct sa_mapent *m, struct binary *b)
{
    struct ehtab want;

    if (!m->npages)
        return false;
    assert_int_equal(ehtab_build(&(struct ehtab_file){read_bin, b, b->size}, &want), EHTAB_OK);
    for (size_t k = 0; k < want.n; k += 101) {
        const struct sa_rule *r = lookup(f, m, want.row[k].pc);

        assert_non_null(r);
        assert_memory_equal(r, &want.row[k].rule, sizeof *r);
    }
    ehtab_deinit(&want);
    return true;
}

/* Files without end, each mapped once: what is known of them is forgotten. */
static void test_forgotten(void **state)
{
    struct tables_io io;
    struct fake *f = fake_new(&io);
    struct binary *libc = open_binary(LIBC);
    const struct proc_map lmap = {.start = 0x400000, .end = 0x40000000, .bin = libc};
    struct tables_stats st;
    struct tables *t;
    struct err err = {};

    (void)state;
    assert_ok(tables_open(&t, &io, &(struct tables_opts){.reuse_ns = 1}, &err), &err);
    assert_ok(tables_publish(t, &(struct proc){.tgid = 1, .n_map = 1, .map = &lmap}, &err), &err);
    settle(t);
    for (uint32_t i = 0; i < 20000; i++) {
        struct binary b = {.id = 1000000 + i, .path = STR("x"), .fd = -1};
        const struct proc_map map = {.start = 0x1000, .end = 0x2000, .bin = &b};

        assert_ok(tables_publish(t, &(struct proc){.tgid = 2, .n_map = 1, .map = &map}, &err),
                  &err);
        tables_tick(t);
    }
    tables_get_stats(t, &st);
    assert_true(st.known < 9000);
    assert_int_equal(st.known + st.forgotten, 20001);
    assert_true(check_table(f, &f->ents[fake_find(f, 1)->maps_off], libc));
    (void)tables_close(t);
    (void)binary_unref(libc);
    fake_free(f);
}

/*
 * Many tables through a budget of two chunks. Whoever was evicted is told: the process that maps
 * libc all the time has libc's table or none, never another's; what is wanted comes, or is refused
 * for being larger than the budget.
 */
static void test_evict(void **state)
{
    static const char *const path[] = {
        "/usr/bin/python3", LDSO, "/bin/bash", "/usr/bin/gdb", "/usr/bin/cmake", "/usr/bin/git"};
    struct tables_io io;
    struct fake *f = fake_new(&io);
    struct binary *libc = open_binary(LIBC);
    struct proc_map lmap = {.start = 0x400000, .end = 0x40000000, .bias = 0x400000, .bin = libc};
    const struct proc keeps = {.tgid = 200, .n_map = 1, .map = &lmap};
    struct tables_stats st;
    struct tables *t;
    struct err err = {};

    (void)state;
    assert_ok(tables_open(&t, &io,
                          &(struct tables_opts){.budget = 2 * SA_CHUNK_ROWS * sizeof(struct sa_row),
                                                .reuse_ns = NS_PER_MS},
                          &err),
              &err);
    assert_ok(tables_publish(t, &keeps, &err), &err);
    for (size_t i = 0; i < 2 * sizeof path / sizeof path[0]; i++) {
        struct proc_map map = {.start = 0x400000, .end = 0x40000000, .bias = 0x400000};
        const struct proc p = {.tgid = 100, .n_map = 1, .map = &map};
        uint64_t failed;

        if (access(path[i / 2], R_OK))
            continue;
        map.bin = open_binary(path[i / 2]);
        tables_get_stats(t, &st);
        failed = st.failed;
        assert_ok(tables_publish(t, &p, &err), &err);
        tables_want(t, i % 2 ? libc : map.bin);
        settle(t);
        tables_get_stats(t, &st);
        if (i % 2 == 0 && st.failed == failed)
            assert_true(check_table(f, &f->ents[fake_find(f, 100)->maps_off], map.bin));
        (void)check_table(f, &f->ents[fake_find(f, 200)->maps_off], libc);
        (void)binary_unref(map.bin);
    }
    tables_get_stats(t, &st);
    print_message("built %lu, evicted %lu, too large %lu\n", (unsigned long)st.built,
                  (unsigned long)st.evicted, (unsigned long)st.failed_why[EHTAB_BUDGET]);
    assert_true(st.evicted > 0);
    assert_true(st.bytes <= 2 * SA_CHUNK_ROWS * sizeof(struct sa_row));
    assert_int_equal(st.failed, st.failed_why[EHTAB_BUDGET]);
    (void)tables_close(t);
    (void)binary_unref(libc);
    fake_free(f);
}

/* A page index for one of two tables: the other goes, nothing is refused for ever. */
static void test_pages_full(void **state)
{
    struct tables_io io;
    struct fake *f = fake_new(&io);
    struct binary *libc = open_binary(LIBC), *exe = open_binary("/usr/bin/python3");
    const struct proc_map map[] = {
        {.start = 0x400000, .end = 0x4000000, .bin = exe},
        {.start = 0x10000000, .end = 0x18000000, .bias = 0x10000000, .bin = libc},
    };
    const struct proc p = {.tgid = 3, .n_map = 2, .map = map};
    struct tables_stats st;
    struct tables *t;
    struct err err = {};
    bool both[2] = {};

    (void)state;
    io.n_pgidx = 60; /* libc has 22 pages, python 44 */
    assert_ok(tables_open(&t, &io, &(struct tables_opts){.reuse_ns = 1}, &err), &err);
    assert_ok(tables_publish(t, &p, &err), &err);
    for (int i = 0; i < 12; i++) {
        const struct sa_mapent *m;

        tables_want(t, i / 2 % 2 ? libc : exe); /* the second time there is room */
        settle(t);
        m = &f->ents[f->proc[0].maps_off];
        both[0] |= check_table(f, &m[0], exe);
        both[1] |= check_table(f, &m[1], libc);
        assert_false(m[0].npages && m[1].npages);
    }
    tables_get_stats(t, &st);
    assert_true(both[0] && both[1]);
    assert_true(st.evicted > 2);
    assert_int_equal(st.failed, 0);
    (void)tables_close(t);
    (void)binary_unref(libc);
    (void)binary_unref(exe);
    fake_free(f);
}

/* A file that is none: remembered, asked for again without another try. */
static void test_failed(void **state)
{
    struct tables_io io;
    struct fake *f = fake_new(&io);
    struct binary *b = NULL;
    uint8_t junk[4096] = "\177ELF but no more";
    const struct proc_map map = {.start = 0x10000, .end = 0x20000};
    struct proc_map m1 = map;
    struct proc p = {.tgid = 1, .n_map = 1, .map = &m1};
    struct tables_stats st;
    struct tables *t;
    struct err err = {};

    (void)state;
    if (binary_open_image(junk, sizeof junk, STR("junk"), &b, &err) < 0) {
        fake_free(f);
        return; /* refused even earlier */
    }
    m1.bin = b;
    assert_ok(tables_open(&t, &io, NULL, &err), &err);
    assert_ok(tables_publish(t, &p, &err), &err);
    for (int i = 0; i < 3; i++) {
        tables_want(t, b);
        settle(t);
    }
    tables_get_stats(t, &st);
    assert_int_equal(st.failed, 1);
    assert_int_equal(st.failed_why[EHTAB_BAD_HEADER], 1);
    assert_int_equal(f->ents[f->proc[0].maps_off].first_page, SA_NT_WAIT);
    (void)tables_close(t);
    (void)binary_unref(b);
    fake_free(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_publish),      cmocka_unit_test(test_ranges_rest),
        cmocka_unit_test(test_evict),        cmocka_unit_test(test_failed),
        cmocka_unit_test(test_pages_full),   cmocka_unit_test(test_full_told),
        cmocka_unit_test(test_large_pauses), cmocka_unit_test(test_forgotten),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
