// SPDX-License-Identifier: Apache-2.0
/* Names against nm(1), on this program and on libc; then on files that lie. */
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "agent/name/elfsym.h"
#include "agent/name/names.h"
#include "base/map.h"
#include "tests/lib/testing.h"

[[gnu::noinline]] int elfsym_marker(int x);
[[gnu::noinline]] int elfsym_marker(int x)
{
    return x * 3 + 1;
}

/* Three names of one function; by their bytes alone the first would win. */
int shape_body(int x) __asm__("__GI___elfsym_shape");
[[gnu::noinline]] int shape_body(int x)
{
    return x * 5 + 2;
}
int shape_a(int x) __asm__("__elfsym_shape");
[[gnu::alias("__GI___elfsym_shape")]] int shape_a(int x);
int shape_b(int x) __asm__("elfsym_shape");
[[gnu::alias("__GI___elfsym_shape")]] int shape_b(int x);

static struct binary *open_binary(const char *path)
{
    struct err err = {};
    struct binary *b = NULL;
    int fd = open(path, O_RDONLY | O_CLOEXEC);

    assert_true(fd >= 0);
    assert_ok(binary_open(fd, str_c(path), false, &b, &err), &err);
    return b;
}

/* Every sized function that nm lists: found at its first, middle and last byte, beginning there
 * unless another begins inside it, under one of the names that nm has for that address. */
static uint32_t compare_with_nm(const char *path, const char *options)
{
    struct err err = {};
    struct binary *b = open_binary(path);
    struct elfsym *s = NULL;
    char command[512], line[4096];
    uint32_t found = 0, listed = 0;
    uint64_t *equal;
    struct map seen;
    FILE *p;

    map_init(&seen, 0);
    assert_ok(elfsym_open(b, -1, 0, &s, &err), &err);
    snprintf(command, sizeof command, "nm -S --defined-only --without-symbol-versions %s %s",
             options, path);
    p = popen(command, "re");
    assert_non_null(p);
    while (fgets(line, sizeof line, p)) {
        struct str l = str_c(line), name;
        uint64_t addr, size;
        struct elfsym_hit hit = {};
        struct buf got;

        if (l.n < 37 || l.p[16] != ' ' || l.p[33] != ' ' || !strchr("TtWwi", l.p[34]))
            continue;
        assert_true(str_hex64(str_to(l, 16), &addr));
        assert_true(str_hex64(str_to(str_from(l, 17), 16), &size));
        name = str_to(str_from(l, 36), l.n - 37);
        if (size == 0 || str_starts(name, STR("__sancov_"))) /* weak, thread-local: no address */
            continue;
        if (!elfsym_find(s, addr, &hit))
            fail_msg("%.*s at %lx: not found", STR_ARG(name), addr);
        assert_int_equal(hit.addr, addr);
        buf_init(&got, 65536);
        assert_true(elfsym_name(s, hit.index, &got));
        if (map_at(&seen, addr, &equal) == MAP_ADDED)
            listed++;
        if (str_eq(buf_view(&got), name) && !*equal) { /* one alias of each address wins */
            *equal = 1;
            found++;
        }
        buf_deinit(&got);
        assert_true(elfsym_find(s, addr + size / 2, &hit));
        assert_true(elfsym_find(s, addr + size - 1, &hit));
        assert_true(hit.addr >= addr && hit.addr < addr + size);
    }
    pclose(p);
    printf("%s: %u symbols kept, %u of %u addresses named as nm does\n", path, elfsym_count(s),
           found, listed);
    assert_int_equal(found, listed);
    map_deinit(&seen);
    elfsym_close(s);
    binary_unref(b);
    return found;
}

static void against_nm(void **state)
{
    char self[4096];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);

    (void)state;
    assert_true(n > 0);
    self[n] = '\0';
    assert_true(compare_with_nm(self, "") > 50);
    assert_true(compare_with_nm("/lib/x86_64-linux-gnu/libc.so.6", "-D") > 1500);
}

static void own_function(void **state)
{
    struct binary *b = open_binary("/proc/self/exe"); /* by whatever name it is known */
    struct names_conf conf = {
        .cache = 16 << 20, .debug_dirs = "", .proc = "/nowhere", .sys = "/nowhere"};
    struct names *n = names_new(&conf);
    struct names_stats st;
    struct elfsym *s = NULL;
    struct err err = {};
    struct buf out;

    (void)state;
    assert_int_equal(elfsym_marker(1), 4);
    assert_ok(elfsym_open(b, -1, 0, &s, &err), &err);
    buf_init(&out, 65536);
    for (uint32_t i = 0; i < elfsym_count(s); i++) {
        struct elfsym_hit hit = {};

        buf_reset(&out);
        assert_true(elfsym_name(s, i, &out));
        if (!str_eq(buf_view(&out), STR("elfsym_marker")))
            continue;
        /* the same through the cache, twice */
        for (uint64_t a = 0; a < UINT64_C(1) << 24; a++) {
            if (elfsym_find(s, a, &hit) && hit.index == i)
                break;
        }
        for (int k = 0; k < 2; k++) {
            buf_reset(&out);
            assert_true(names_native(n, b, hit.addr, &out));
            assert_str(buf_view(&out), STR("elfsym_marker"));
        }
        break;
    }
    /* no symbol: the file and the address */
    buf_reset(&out);
    assert_false(names_native(n, b, 0xfffffff0, &out));
    assert_true(str_ends(buf_view(&out), STR("+0xfffffff0")));
    assert_true(str_starts(buf_view(&out), str_basename(b->path)));
    names_get_stats(n, &st);
    assert_int_equal(st.resolved, 2);
    assert_int_equal(st.unresolved, 1);
    buf_deinit(&out);
    elfsym_close(s);
    names_free(n);
    binary_unref(b);
}

/* A call through the PLT of this program: some stub is called fgets@plt. */
static void plt(void **state)
{
    struct binary *b = open_binary("/bin/ls");
    struct elfsym *s = NULL;
    struct err err = {};
    uint32_t stubs = 0;

    (void)state;
    assert_ok(elfsym_open(b, -1, 0, &s, &err), &err);
    for (uint32_t i = 0; i < elfsym_count(s); i++) {
        struct buf out;

        buf_init(&out, 65536);
        if (elfsym_name(s, i, &out) && str_ends(buf_view(&out), STR("@plt")))
            stubs++;
        buf_deinit(&out);
    }
    printf("/bin/ls: %u stubs\n", stubs);
    assert_true(stubs > 50);
    elfsym_close(s);
    binary_unref(b);
}

static void *slurp(const char *path, size_t *ret_n)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    off_t n = lseek(fd, 0, SEEK_END);
    void *p = malloc((size_t)n);

    assert_non_null(p);
    assert_int_equal(pread(fd, p, (size_t)n, 0), n);
    close(fd);
    *ret_n = (size_t)n;
    return p;
}

static int memfd_of(const void *p, size_t n)
{
    int fd = memfd_create("mutant", MFD_CLOEXEC);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, p, n), (ssize_t)n);
    return fd;
}

static void ask(struct binary *b)
{
    struct elfsym *s = NULL;

    if (elfsym_open(b, -1, 0, &s, NULL) < 0)
        return;
    for (uint64_t a = 0; a < 0x40000; a += 0x333) {
        struct elfsym_hit hit;
        struct buf out;

        if (!elfsym_find(s, a, &hit))
            continue;
        buf_init(&out, ELFSYM_MAX_NAME + 16);
        (void)elfsym_name(s, hit.index, &out);
        buf_deinit(&out);
    }
    elfsym_close(s);
}

/* Bytes of headers, section table, symbol tables set to nonsense; and cut at any length. */
static void mutants(void **state)
{
    size_t n;
    uint8_t *good = slurp("/bin/true", &n), *bad = malloc(n);
    Elf64_Ehdr eh;
    unsigned seed = 20261129;

    (void)state;
    assert_non_null(bad);
    memcpy(&eh, good, sizeof eh);
    for (unsigned round = 0; round < 1000; round++) {
        struct binary *b = NULL;
        struct err err = {};
        size_t len = n;

        memcpy(bad, good, n);
        for (unsigned k = 0; k < 1 + round % 6; k++) {
            size_t at;

            seed = seed * 1103515245 + 12345;
            switch (round % 3) {
            case 0:
                at = seed / 7 % 0x400;
                break;
            case 1:
                at = eh.e_shoff + seed / 7 % (n - eh.e_shoff);
                break;
            default:
                at = seed / 7 % n;
            }
            bad[at] = (uint8_t)(seed >> 13);
        }
        if (round % 10 == 9)
            len = seed % n;
        assert_ok(binary_open(memfd_of(bad, len), STR("mutant"), false, &b, &err), &err);
        ask(b);
        binary_unref(b);
    }
    free(good);
    free(bad);
    binary_sweep(INT64_MAX);
}

static void one_content_one_binary(void **state)
{
    struct binary *a, *b, *c;
    struct err err = {};
    uint32_t before;

    (void)state;
    binary_sweep(INT64_MAX); /* what other tests left */
    before = binary_count();
    a = open_binary("/bin/ls");
    b = open_binary("/bin/ls");
    assert_ptr_equal(a, b);
    assert_int_equal(a->id_kind, BIN_ID_GNU);
    c = binary_by_build_id(a->id_bytes, a->id_len);
    assert_ptr_equal(c, a);
    binary_unref(c);
    c = binary_by_id(a->id);
    assert_ptr_equal(c, a);
    assert_int_equal(a->refs, 3);
    binary_unref(a);
    binary_unref(b);
    binary_unref(c);
    /* lingering: a late record still finds it */
    binary_sweep(0);
    c = binary_by_id(a->id);
    assert_ptr_equal(c, a);
    binary_unref(c);
    binary_sweep(INT64_MAX);
    assert_int_equal(binary_count(), before);
    /* without a build id: htlhash, SHA-256("x" twice, as first and last 4 KiB, then the size) */
    assert_ok(binary_open(memfd_of("x", 1), STR("/tmp/x"), true, &c, &err), &err);
    assert_int_equal(c->id_kind, BIN_ID_HTLHASH);
    assert_int_equal(c->id_len, 16);
    assert_false(c->is_elf);
    assert_true(c->deleted);
    assert_int_equal(binary_vaddr(c, 77), 77);
    binary_unref(c);
    assert_int_equal(
        binary_open(open("/dev/null", O_RDONLY | O_CLOEXEC), STR("n"), false, &c, &err), -EINVAL);
    binary_sweep(INT64_MAX);
}

static void aliases(void **state)
{
    struct binary *b = open_binary("/proc/self/exe");
    struct elfsym *s = NULL;
    struct err err = {};
    struct buf out;
    uint32_t plain = 0;

    (void)state;
    assert_int_equal(shape_a(1), 7);
    assert_int_equal(shape_b(1), 7);
    assert_ok(elfsym_open(b, -1, 0, &s, &err), &err);
    buf_init(&out, 65536);
    for (uint32_t i = 0; i < elfsym_count(s); i++) {
        buf_reset(&out);
        assert_true(elfsym_name(s, i, &out));
        plain += str_eq(buf_view(&out), STR("elfsym_shape"));
        assert_false(str_ends(buf_view(&out), STR("__elfsym_shape")));
    }
    assert_int_equal(plain, 1);
    buf_deinit(&out);
    elfsym_close(s);
    binary_unref(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(against_nm), cmocka_unit_test(own_function),
        cmocka_unit_test(aliases),    cmocka_unit_test(plt),
        cmocka_unit_test(mutants),    cmocka_unit_test(one_content_one_binary)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
