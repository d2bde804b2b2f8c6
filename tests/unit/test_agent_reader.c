// SPDX-License-Identifier: Apache-2.0
/*
 * The reader: what it answers is what this process would read itself; answers that lie are refused;
 * the process has no rights; killed, or brought down by a file, it is there again and what it could
 * not answer is counted.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/apart/apart.h"
#include "agent/apart/reader.h"
#include "base/arena.h"
#include "base/time.h"
#include "tests/lib/testing.h"

/* ---- the wire ------------------------------------------------------------------------------ */

static char *joined(const struct reader_parts *p, struct reader_answer *a)
{
    char *all, *to;

    a->bytes = 0;
    for (unsigned i = 0; i < p->n; i++)
        a->bytes += p->part[i].n;
    all = to = xmalloc(a->bytes + 1);
    for (unsigned i = 0; i < p->n; i++) {
        if (p->part[i].n)
            memcpy(to, p->part[i].p, p->part[i].n);
        to += p->part[i].n;
    }
    return all;
}

static bool table_ok(const struct reader_answer *a, const char *p)
{
    struct ehtab t;
    bool ok = reader_wire_get_table(a, (struct str){p, a->bytes}, &t);

    if (ok)
        ehtab_deinit(&t);
    return ok;
}

static void wire_table(void **state)
{
    struct ehtab_row row[3] = {{0x1000, {.kind = SA_K_RSP, .off = 8}},
                               {0x1004, {.kind = SA_K_RBP, .off = 16, .fpk = 1, .fpoff = -16}},
                               {0x2000, {.kind = SA_K_END}}};
    const struct ehtab t = {.row = row, .n = 3, .fdes = 2, .cies = 1};
    struct reader_answer a = {};
    struct reader_parts p = {};
    struct ehtab_row *r;
    struct ehtab got;
    char *all;

    (void)state;
    reader_wire_put_table(&t, &a, &p);
    all = joined(&p, &a);
    r = (struct ehtab_row *)(void *)all;
    assert_true(reader_wire_get_table(&a, (struct str){all, a.bytes}, &got));
    assert_int_equal(got.n, 3);
    assert_memory_equal(got.row, row, sizeof row);
    assert_int_equal(got.fdes, 2);
    ehtab_deinit(&got);
    r[1].pc = 0x1000; /* not ascending */
    assert_false(table_ok(&a, all));
    r[1].pc = 0x1004;
    r[1].rule.reg = 17;
    assert_false(table_ok(&a, all));
    r[1].rule.reg = 0;
    r[2].rule.kind = SA_K_PLT9 + 1;
    assert_false(table_ok(&a, all));
    r[2].rule.kind = SA_K_END;
    assert_true(table_ok(&a, all));
    a.n[0] = 4; /* more rows than there are bytes */
    assert_false(table_ok(&a, all));
    a.n[0] = UINT64_MAX / sizeof *r + 2;
    assert_false(table_ok(&a, all));
    free(all);
}

static bool symbols_ok(const struct reader_answer *a, const char *p, uint32_t max)
{
    struct elfsym_arrays s;
    bool ok = reader_wire_get_symbols(a, (struct str){p, a->bytes}, max, &s);

    if (ok) {
        free(s.sym);
        free(s.mini);
    }
    return ok;
}

static void wire_symbols(void **state)
{
    struct elfsym_sym sym[2] = {{0x10, 4, 1}, {0x20, 8, 5}};
    char mini[] = "names";
    const struct elfsym_arrays s = {
        .sym = sym,
        .n = 2,
        .names = {[ELFSYM_SYMTAB] = {100, 50}, [ELFSYM_MINI] = {0, sizeof mini}},
        .mini = mini,
        .mini_used = true};
    struct reader_answer a = {};
    struct reader_parts p = {};
    struct elfsym_arrays got;
    struct elfsym_sym *y;
    char *all;

    (void)state;
    reader_wire_put_symbols(&s, &a, &p);
    all = joined(&p, &a);
    y = (struct elfsym_sym *)(void *)all;
    assert_true(reader_wire_get_symbols(&a, (struct str){all, a.bytes}, 0, &got));
    assert_int_equal(got.n, 2);
    assert_memory_equal(got.sym, sym, sizeof sym);
    assert_int_equal(got.names[ELFSYM_SYMTAB].offset, 100);
    assert_string_equal(got.mini, "names");
    free(got.sym);
    free(got.mini);
    assert_false(symbols_ok(&a, all, 1)); /* more than was asked for */
    y[1].addr = 1;
    assert_false(symbols_ok(&a, all, 0));
    y[1].addr = 0x20;
    a.n[2] = UINT64_MAX; /* an offset that wraps */
    assert_false(symbols_ok(&a, all, 0));
    a.n[2] = 100;
    a.n[3 + 2 * ELFSYM_MINI]++; /* names beyond what came */
    assert_false(symbols_ok(&a, all, 0));
    a.n[3 + 2 * ELFSYM_MINI]--;
    assert_true(symbols_ok(&a, all, 0));
    free(all);
}

static void wire_facts(void **state)
{
    const struct debugfile_facts f = {.id = {1, 2, 3},
                                      .id_len = 3,
                                      .has_link = true,
                                      .link = "a.debug",
                                      .crc = 7,
                                      .has_alt = true,
                                      .alt = "/x",
                                      .alt_id = {9},
                                      .alt_id_len = 1};
    struct debugfile_facts up = f, got;
    struct reader_answer a = {};
    struct reader_parts p = {};

    (void)state;
    reader_wire_put_facts(&f, &p);
    assert_true(reader_wire_get_facts(p.part[0], &got));
    assert_memory_equal(&got, &f, sizeof f);
    assert_false(reader_wire_get_facts(str_to(p.part[0], p.part[0].n - 1), &got));
    free(p.heap);
    /* a link that would lead out of its folder, as the agent would open it */
    (void)snprintf(up.link, sizeof up.link, "../../etc/shadow");
    p = (struct reader_parts){};
    reader_wire_put_facts(&up, &p);
    assert_false(reader_wire_get_facts(p.part[0], &got));
    free(p.heap);
    (void)a;
}

static bool perfmap_ok(const struct reader_answer *a, const char *p)
{
    struct jitmap m;
    bool ok = reader_wire_get_perfmap(a, (struct str){p, a->bytes}, &m);

    if (ok)
        jitmap_deinit(&m);
    return ok;
}

static void wire_perfmap(void **state)
{
    struct jitmap_sym sym[2] = {{0x10, 0x20, 0, 3}, {0x20, 0x30, 3, 2}};
    char text[] = "fooba";
    const struct jitmap m = {.sym = sym, .n = 2, .text = text, .text_n = 5, .bad = 1};
    struct reader_answer a = {};
    struct reader_parts p = {};
    struct jitmap_sym *y;
    struct jitmap got;
    struct str name;
    char *all;

    (void)state;
    reader_wire_put_perfmap(&m, &a, &p);
    all = joined(&p, &a);
    y = (struct jitmap_sym *)(void *)all;
    assert_true(reader_wire_get_perfmap(&a, (struct str){all, a.bytes}, &got));
    assert_true(jitmap_find(&got, 0x25, &name));
    assert_str(name, STR("ba"));
    jitmap_deinit(&got);
    y[1].name_len = 3; /* beyond the texts */
    assert_false(perfmap_ok(&a, all));
    y[1].name = UINT32_MAX;
    assert_false(perfmap_ok(&a, all));
    y[1].name = 3;
    y[1].name_len = 2;
    y[1].start = 0x1f; /* overlaps */
    assert_false(perfmap_ok(&a, all));
    y[1].start = 0x20;
    assert_true(perfmap_ok(&a, all));
    free(all);
}

static bool lines_ok(const struct reader_answer *a, const char *p, uint32_t n)
{
    struct dwarfline_arrays l;
    bool ok = reader_wire_get_lines(a, (struct str){p, a->bytes}, n, &l);

    if (ok)
        dwarfline_deinit(&l);
    return ok;
}

static void wire_lines(void **state)
{
    struct dwarfline_frame frame[1] = {{{0, 4}, {4, 3}, 12, 10, true}};
    struct dwarfline_found found[2] = {{0, 1}, {1, 0}};
    char text[] = "mainx.c";
    const struct dwarfline_arrays l = {
        .frame = frame, .n_frame = 1, .found = found, .text = text, .text_n = 7, .steps = 5};
    struct reader_answer a = {};
    struct reader_parts p = {};
    struct dwarfline_arrays got;
    struct dwarfline_found *y;
    char *all;

    (void)state;
    reader_wire_put_lines(&l, 2, &a, &p);
    all = joined(&p, &a);
    y = (struct dwarfline_found *)(void *)all;
    assert_true(reader_wire_get_lines(&a, (struct str){all, a.bytes}, 2, &got));
    assert_int_equal(got.frame[0].line, 12);
    assert_true(got.frame[0].inlined);
    assert_memory_equal(got.text + got.frame[0].file.at, "x.c", 3);
    dwarfline_deinit(&got);
    assert_false(lines_ok(&a, all, 1)); /* of another question */
    y[1].n = 1;
    assert_false(lines_ok(&a, all, 2));
    y[1].n = 0;
    assert_true(lines_ok(&a, all, 2));
    a.n[0] = 200;
    assert_false(lines_ok(&a, all, 2));
    free(all);
    free(p.heap);
}

static void wire_asks(void **state)
{
    struct reader_ask q = {.magic = READER_MAGIC, .kind = READER_TABLE, .fds = 1};

    (void)state;
    assert_true(reader_wire_ask_ok(&q, sizeof q, 1));
    assert_false(reader_wire_ask_ok(&q, sizeof q, 0)); /* without its file */
    assert_false(reader_wire_ask_ok(&q, sizeof q, 2));
    assert_false(reader_wire_ask_ok(&q, sizeof q + 1, 1));
    assert_false(reader_wire_ask_ok(&q, sizeof q - 1, 1));
    q.kind = READER_KINDS;
    assert_false(reader_wire_ask_ok(&q, sizeof q, 1));
    q.kind = READER_DEMANGLE;
    assert_false(reader_wire_ask_ok(&q, sizeof q, 1)); /* of a name no file comes */
}

/* ---- the process --------------------------------------------------------------------------- */

/* The files of each test: this program, and a copy of it with another build id, which brings the
 * reader down. */
struct files {
    struct binary *good, *evil;
    char path[64];
};

static int copy_self(const char *path)
{
    int from = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    int to = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    struct stat st = {};
    char *all;

    assert_true(from >= 0 && to >= 0 && fstat(from, &st) == 0);
    all = xmalloc((size_t)st.st_size);
    assert_int_equal(pread(from, all, (size_t)st.st_size, 0), st.st_size);
    assert_int_equal(write(to, all, (size_t)st.st_size), st.st_size);
    free(all);
    close(from);
    return to;
}

static struct binary *opened(int fd)
{
    struct binary *b = NULL;
    struct err err = {};

    assert_ok(binary_open(fd, STR("/opt/test"), false, &b, &err), &err);
    return b;
}

/* Another last byte of its build id. */
static struct binary *other_id(int fd, const struct binary *good)
{
    char part[4096];
    ssize_t n = pread(fd, part, sizeof part, 0);
    char *at;

    assert_int_equal(good->id_kind, BIN_ID_GNU);
    assert_true(n > 0);
    at = memmem(part, (size_t)n, good->id_bytes, good->id_len);
    assert_non_null(at);
    at[good->id_len - 1] ^= 1;
    assert_int_equal(pwrite(fd, part, (size_t)n, 0), n);
    return opened(fd);
}

static apart_serve_fn *const roles[APART_ROLES] = {[APART_READER] = reader_serve};

static int begin(void **state)
{
    struct files *f = xcalloc(1, sizeof *f);
    char id[129] = "";
    struct err err = {};

    (void)snprintf(f->path, sizeof f->path, "/tmp/strata-reader-%d", (int)getpid());
    f->good = opened(open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
    f->evil = other_id(copy_self(f->path), f->good);
    for (unsigned i = 0; i < f->evil->id_len; i++)
        (void)snprintf(id + 2 * (size_t)i, 3, "%02x", f->evil->id_bytes[i]);
    assert_int_equal(setenv("STRATA_TEST_READER_ABORT", id, 1), 0); // NOLINT(concurrency-mt-unsafe)
    assert_ok(apart_open(roles, &err), &err);
    assert_ok(reader_start(NS_PER_MS, &err), &err);
    *state = f;
    return 0;
}

static int end(void **state)
{
    struct files *f = *state;

    reader_stop();
    apart_close();
    (void)unlink(f->path);
    binary_unref(f->good);
    binary_unref(f->evil);
    free(f);
    return 0;
}

static int64_t read_binary(void *ctx, void *to, uint64_t n, uint64_t at)
{
    return binary_read(ctx, to, n, at);
}

static void same_table(struct binary *b)
{
    const struct ehtab_file file = {read_binary, b, b->size};
    struct ehtab here, there;

    assert_int_equal(ehtab_build(&file, &here), EHTAB_OK);
    assert_int_equal(reader_table(b, &there), EHTAB_OK);
    assert_int_equal(there.n, here.n);
    assert_true(here.n > 100);
    assert_memory_equal(there.row, here.row, here.n * sizeof *here.row);
    assert_int_equal(there.fdes, here.fdes);
    ehtab_deinit(&here);
    ehtab_deinit(&there);
}

static void answers(void **state)
{
    struct files *f = *state;
    struct elfsym_file main = {read_binary, f->good, f->good->size};
    const struct elfsym_job job = {.main = &main};
    struct elfsym_arrays here = {}, there = {};
    struct debugfile_facts facts;
    const struct debugfile_proof proof = {.id = f->good->id_bytes, .id_len = f->good->id_len};
    struct reader_stats s;
    struct usdt_site site;
    struct pyelf py;
    struct err err = {};
    struct buf out;

    same_table(f->good);
    assert_ok(elfsym_read(&job, &here, &err), &err);
    assert_ok(reader_symbols(f->good, -1, 0, &there, &err), &err);
    assert_int_equal(there.n, here.n);
    assert_memory_equal(there.sym, here.sym, here.n * sizeof *here.sym);
    assert_memory_equal(there.names, here.names, sizeof here.names);
    free(here.sym);
    free(there.sym);
    buf_init(&out, 1 << 20);
    assert_int_equal(reader_demangle(STR("_ZN3foo3barEi"), &out), 0);
    assert_str(buf_view(&out), STR("foo::bar"));
    assert_int_equal(reader_demangle(STR("plain"), &out), 1);
    assert_int_equal(reader_demangle(STR("_Znothing"), &out), 1);
    buf_deinit(&out);
    assert_true(reader_facts(f->good, &facts));
    assert_int_equal(facts.id_len, f->good->id_len);
    assert_memory_equal(facts.id, f->good->id_bytes, facts.id_len);
    assert_int_equal(reader_prove(f->good->fd, &proof), DEBUGFILE_OK);
    assert_int_equal(reader_prove(f->evil->fd, &proof), DEBUGFILE_OTHER_ID);
    assert_int_equal(reader_python(f->good, &py), 1);
    assert_int_equal(reader_step(f->good, &site), USDT_NONE);
    reader_ping();
    reader_get_stats(&s);
    assert_int_equal(s.starts, 1);
    assert_int_equal(s.failed + s.absent + s.died + s.hung + s.bad, 0);
}

/* A file that no reader would be asked about: not even its descriptor is handed out. */
static void no_elf(void **state)
{
    const struct debugfile_proof proof = {.id = (const uint8_t *)"x", .id_len = 1};
    int fd = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
    struct reader_stats before, after;

    (void)state;
    reader_get_stats(&before);
    assert_int_equal(reader_prove(fd, &proof), DEBUGFILE_BAD_FILE);
    reader_get_stats(&after);
    assert_int_equal(after.asked[READER_PROVE], before.asked[READER_PROVE]);
    close(fd);
}

static void perfmap_and_lines(void **state)
{
    extern char __executable_start[]; // NOLINT(bugprone-reserved-identifier): the linker's
    struct files *f = *state;
    const uint64_t at[] = {(uint64_t)(uintptr_t)same_table -
                           (uint64_t)(uintptr_t)__executable_start};
    const struct dwarfline_job job = {.fd = f->good->fd, .alt_fd = -1, .addr = at, .n = 1};
    struct dwarfline_arrays l;
    struct jitmap_args args = {};
    struct jitmap m;
    struct str name;
    struct err err = {};
    uint64_t cpu = 0;
    int fd = open("/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

    assert_true(fd >= 0 && write(fd, "1000 10 one\n2000 10 two\n", 24) == 24);
    assert_ok(reader_perfmap(fd, &args, &m, &err), &err);
    assert_true(jitmap_find(&m, 0x2005, &name));
    assert_str(name, STR("two"));
    jitmap_deinit(&m);
    close(fd);
    assert_int_equal(reader_lines(&job, &l, &cpu), DWARFLINE_OK);
    assert_int_equal(l.found[0].n, 1);
    name =
        (struct str){l.text + l.frame[l.found[0].first].name.at, l.frame[l.found[0].first].name.n};
    assert_str(name, STR("same_table"));
    assert_true(cpu > 0);
    dwarfline_deinit(&l);
}

static uint64_t field(const char *text, const char *key, int base)
{
    const char *at = strstr(text, key);
    struct str s;
    uint64_t v = 99;

    assert_non_null(at);
    s = str_c(at + strlen(key));
    while (s.n && (*s.p == ' ' || *s.p == '\t'))
        s = str_from(s, 1);
    s = str_to(s, str_find(s, '\n'));
    assert_true(base == 16 ? str_hex64(s, &v) : str_u64(s, &v));
    return v;
}

/* As the kernel says it of the starter and the reader. */
static void no_rights(void **state)
{
    const pid_t pid[] = {apart_starter(), apart_pid(APART_READER)};

    (void)state;
    reader_ping(); /* its filter is loaded before it answers */
    for (unsigned i = 0; i < 2; i++) {
        char path[64], text[8192] = "";
        FILE *f;

        (void)snprintf(path, sizeof path, "/proc/%d/status", (int)pid[i]);
        f = fopen(path, "re");
        assert_non_null(f);
        assert_true(fread(text, 1, sizeof text - 1, f) > 0);
        (void)fclose(f);
        assert_int_equal(field(text, "CapEff:", 16), 0);
        assert_int_equal(field(text, "CapPrm:", 16), 0);
        assert_int_equal(field(text, "NoNewPrivs:", 10), 1);
        assert_int_equal(field(text, "Seccomp:", 10), 2);
    }
}

static void killed(void **state)
{
    struct files *f = *state;
    struct reader_stats before, s;
    char news[READER_NEWS];

    reader_get_stats(&before);
    (void)reader_news(news);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(kill(apart_pid(APART_READER), SIGKILL), 0);
        same_table(f->good); /* it waits for the next one */
    }
    reader_get_stats(&s);
    assert_int_equal(s.died - before.died, 3);
    assert_int_equal(s.starts - before.starts, 3);
    assert_int_equal(s.failed, before.failed);
    assert_true(reader_news(news));
    assert_non_null(strstr(news, "source=reader state=restarted"));
    assert_false(reader_news(news));
}

static void brought_down(void **state)
{
    struct files *f = *state;
    struct reader_stats before, s;
    struct ehtab t;

    reader_get_stats(&before);
    assert_int_equal(reader_table(f->evil, &t), EHTAB_CRASHED); /* asked twice */
    reader_get_stats(&s);
    assert_int_equal(s.failed - before.failed, 1);
    assert_int_equal(s.died - before.died, 2);
    same_table(f->good);
}

/* Does the reader still answer? It ends a moment after its parent. */
static bool answers_still(struct binary *b)
{
    struct ehtab t;
    enum ehtab_fail r = reader_table(b, &t);

    if (r == EHTAB_OK)
        ehtab_deinit(&t);
    else
        assert_int_equal(r, EHTAB_CRASHED);
    return r == EHTAB_OK;
}

/* The starter is what makes them: without it there is no reader any more, and nobody waits. */
static void orphaned(void **state)
{
    struct files *f = *state;
    struct reader_stats before, s;
    struct elfsym_arrays syms;
    struct err err = {};

    reader_get_stats(&before);
    assert_ok(apart_check(&err), &err);
    assert_int_equal(kill(apart_starter(), SIGKILL), 0);
    for (int i = 0; i < 3000 && answers_still(f->good); i++)
        (void)usleep(10000);
    assert_false(answers_still(f->good));
    assert_int_equal(reader_symbols(f->good, -1, 0, &syms, NULL), -EAGAIN);
    reader_get_stats(&s);
    assert_true(s.absent > before.absent);
    assert_int_equal(apart_check(&err), -EPIPE);
}

int main(void)
{
    const struct CMUnitTest wire[] = {
        cmocka_unit_test(wire_table), cmocka_unit_test(wire_symbols),
        cmocka_unit_test(wire_facts), cmocka_unit_test(wire_perfmap),
        cmocka_unit_test(wire_lines), cmocka_unit_test(wire_asks),
    };
    const struct CMUnitTest process[] = {
        cmocka_unit_test(answers),   cmocka_unit_test(no_elf), cmocka_unit_test(perfmap_and_lines),
        cmocka_unit_test(no_rights), cmocka_unit_test(killed), cmocka_unit_test(brought_down),
        cmocka_unit_test(orphaned),
    };
    int failed = cmocka_run_group_tests(wire, NULL, NULL);

    return failed + cmocka_run_group_tests(process, begin, end);
}
