// SPDX-License-Identifier: Apache-2.0
/* Records as perf_event_open(2) lays them out, whole and cut at every byte. */
#include <errno.h>
#include <linux/perf_event.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "agent/file/perfmap.h"
#include "base/buf.h"
#include "base/time.h"
#include "tests/lib/testing.h"

static void begin(struct buf *b, uint32_t type, uint16_t misc)
{
    buf_init(b, 4096);
    buf_le32(b, type);
    buf_le16(b, misc);
    buf_le16(b, 0);
}

/* The trailer of sample_id_all, and the size into the header. */
static void end(struct buf *b, uint64_t t)
{
    uint16_t n;

    buf_le32(b, 77);
    buf_le32(b, 78);
    buf_le64(b, t);
    buf_le32(b, 3);
    buf_le32(b, 0);
    n = (uint16_t)b->n;
    memcpy(b->p + 6, &n, 2);
}

static void mmap2(struct buf *b, uint32_t prot, const char *name)
{
    static const uint8_t id[20] = {0xab, 0xcd, 1,  2,  3,  4,  5,  6,  7,  8,
                                   9,    10,   11, 12, 13, 14, 15, 16, 17, 18};

    begin(b, PERF_RECORD_MMAP2, PERF_RECORD_MISC_MMAP_BUILD_ID);
    buf_le32(b, 100);
    buf_le32(b, 101);
    buf_le64(b, 0x7f0000001000);
    buf_le64(b, 0x3000);
    buf_le64(b, 0x2000);
    buf_chr(b, 20);
    buf_add(b, "\0\0\0", 3);
    buf_add(b, id, 20);
    buf_le32(b, prot);
    buf_le32(b, 2);
    buf_add(b, name, strlen(name) + 1);
    while (b->n % 8)
        buf_chr(b, '\0');
    end(b, 123456);
}

static void mapping(void **state)
{
    struct perfmap_event e;
    struct buf b;

    (void)state;
    mmap2(&b, PROT_READ | PROT_EXEC, "/usr/lib/x.so (deleted)");
    assert_int_equal(perfmap_parse(b.p, b.n, &e), 0);
    assert_int_equal(e.kind, PERFMAP_MMAP);
    assert_int_equal(e.t, 123456);
    assert_int_equal(e.pid, 100);
    assert_int_equal(e.start, 0x7f0000001000);
    assert_int_equal(e.end, 0x7f0000004000);
    assert_int_equal(e.offset, 0x2000);
    assert_int_equal(e.build_id_len, 20);
    assert_int_equal(e.build_id[1], 0xcd);
    assert_str(e.name, STR("/usr/lib/x.so (deleted)"));
    buf_deinit(&b);
    mmap2(&b, PROT_READ, "/usr/lib/x.so");
    assert_int_equal(perfmap_parse(b.p, b.n, &e), 1);
    buf_deinit(&b);
}

static void tasks(void **state)
{
    struct perfmap_event e;
    struct buf b;

    (void)state;
    for (int exit = 0; exit < 2; exit++) {
        begin(&b, exit ? PERF_RECORD_EXIT : PERF_RECORD_FORK, 0);
        for (uint32_t v = 10; v < 14; v++)
            buf_le32(&b, v);
        buf_le64(&b, 5);
        end(&b, 9);
        assert_int_equal(perfmap_parse(b.p, b.n, &e), 0);
        assert_int_equal(e.kind, exit ? PERFMAP_EXIT : PERFMAP_FORK);
        assert_int_equal(e.pid, 10);
        assert_int_equal(e.ppid, 11);
        assert_int_equal(e.tid, 12);
        assert_int_equal(e.ptid, 13);
        buf_deinit(&b);
    }
    begin(&b, PERF_RECORD_COMM, PERF_RECORD_MISC_COMM_EXEC);
    buf_le32(&b, 10);
    buf_le32(&b, 11);
    buf_add(&b, "a;b\n\xff\0\0\0", 8);
    end(&b, 9);
    assert_int_equal(perfmap_parse(b.p, b.n, &e), 0);
    assert_int_equal(e.kind, PERFMAP_EXEC);
    assert_str(e.name, STR("a;b\n\xff"));
    buf_deinit(&b);
    begin(&b, PERF_RECORD_LOST, 0);
    buf_le64(&b, 1);
    buf_le64(&b, 42);
    end(&b, 9);
    assert_int_equal(perfmap_parse(b.p, b.n, &e), 0);
    assert_int_equal(e.kind, PERFMAP_LOST);
    assert_int_equal(e.n, 42);
    buf_deinit(&b);
    begin(&b, 4242, 0);
    end(&b, 9);
    assert_int_equal(perfmap_parse(b.p, b.n, &e), 1);
    buf_deinit(&b);
}

/* Every shorter length, once as it is and once with a header that agrees: refused or parsed within
 * its bytes (the sanitizers watch). */
static void cut(void **state)
{
    struct perfmap_event e;
    struct buf b;

    (void)state;
    mmap2(&b, PROT_EXEC, "/x");
    for (size_t n = 0; n < b.n; n++) {
        uint8_t *copy = malloc(n ? n : 1);
        uint16_t size = (uint16_t)n;

        assert_non_null(copy);
        memcpy(copy, b.p, n);
        assert_int_equal(perfmap_parse(copy, n, &e), -EINVAL);
        if (n >= 8) {
            memcpy(copy + 6, &size, 2);
            assert_true(perfmap_parse(copy, n, &e) <= 1);
        }
        free(copy);
    }
    buf_deinit(&b);
}

struct seen {
    pid_t child;
    bool fork, exec, exit, exec_map;
    int64_t last;
    bool in_order;
};

static void on_event(void *ctx, const struct perfmap_event *e)
{
    struct seen *s = ctx;

    s->in_order &= e->t >= s->last;
    s->last = e->t;
    if (e->pid != (uint32_t)s->child)
        return;
    s->fork |= e->kind == PERFMAP_FORK;
    s->exec |= e->kind == PERFMAP_EXEC && str_eq(e->name, STR("true"));
    s->exec_map |= e->kind == PERFMAP_MMAP && str_ends(e->name, STR("/true"));
    s->exit |= e->kind == PERFMAP_EXIT;
}

/* A real child, where the kernel lets us. */
static void live(void **state)
{
    struct seen s = {.in_order = true};
    struct perfmap *p = NULL;
    struct err err = {};
    int status;

    (void)state;
    if (perfmap_open(&p, &err) < 0) {
        print_message("%s\n", err.msg);
        skip();
    }
    s.child = fork();
    if (s.child == 0) {
        execl("/bin/true", "true", NULL);
        _exit(1);
    }
    assert_int_equal(waitpid(s.child, &status, 0), s.child);
    perfmap_drain(p, mono_now().v + NS_PER_S, on_event, &s);
    assert_true(s.fork && s.exec && s.exec_map && s.exit && s.in_order);
    perfmap_close(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(mapping), cmocka_unit_test(tasks),
                                       cmocka_unit_test(cut), cmocka_unit_test(live)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
