// SPDX-License-Identifier: Apache-2.0
/* The probe's note: in this program itself (by sdk/c/strata_step.h), and in copies that lie. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/file/usdt.h"
#include "tests/lib/testing.h"

#define STRATA_STEP_IMPL
#include "sdk/c/strata_step.h"

static uint8_t *image;
static uint64_t size;

static int64_t read_image(void *ctx, void *to, uint64_t n, uint64_t at)
{
    (void)ctx;
    if (at >= size)
        return 0;
    if (n > size - at)
        n = size - at;
    memcpy(to, image + at, n);
    return (int64_t)n;
}

static enum usdt_found find(struct usdt_site *ret)
{
    struct elffile f = {};
    enum usdt_found found = USDT_NONE;

    if (elffile_open(&f, read_image, NULL, size, NULL) == 0)
        found = usdt_find_step(&f, ret);
    elffile_close(&f);
    return found;
}

static int load(void **state)
{
    int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    struct stat st;

    (void)state;
    assert_true(fd >= 0 && fstat(fd, &st) == 0);
    size = (uint64_t)st.st_size;
    image = malloc(size);
    assert_int_equal(read(fd, image, size), (ssize_t)size);
    close(fd);
    return 0;
}

static int unload(void **state)
{
    (void)state;
    free(image);
    return 0;
}

/* Where the note lies in the file. */
static uint8_t *note(uint64_t *ret_n)
{
    struct elffile f = {};
    const struct elffile_section *s;
    uint8_t *p;

    assert_int_equal(elffile_open(&f, read_image, NULL, size, NULL), 0);
    assert_int_equal(elffile_sections(&f, NULL), 0);
    s = elffile_section(&f, ".note.stapsdt");
    assert_non_null(s);
    p = image + s->offset;
    *ret_n = s->size;
    elffile_close(&f);
    return p;
}

static void own(void **state)
{
    static const uint8_t code[] = {0x0f, 0x1f, 0x44, 0x00, 0x00, 0xc3};
    const volatile uint8_t *probe = (const uint8_t *)(uintptr_t)strata_step_probe;
    struct usdt_site site;
    bool heard = probe[0] == 0xcc; /* an agent that runs beside listens, by a breakpoint */

    (void)state;
    assert_int_equal(find(&site), USDT_FOUND);
    assert_memory_equal(image + site.offset, code, sizeof code);
    for (size_t i = 1; i < sizeof code; i++)
        assert_int_equal(probe[i], code[i]);
    assert_int_equal(image[site.sem_offset] | image[site.sem_offset + 1], 0);
    strata_step_mark("nobody listens", STRATA_STEP_NEXT); /* and nothing happens */
    heard |= probe[0] == 0xcc;
    if (heard) {
        print_message("an agent beside this test listens\n");
    } else {
        assert_int_equal(probe[0], code[0]);
        assert_int_equal(strata_step_stats().probe, 0);
    }
}

/* Each single damage: refused, or no note at all; never another place. */
static void damaged(void **state)
{
    uint64_t n;
    uint8_t *p = note(&n), *copy = malloc(n);
    struct usdt_site good, site;
    unsigned foreign = 0, none = 0, same = 0;

    (void)state;
    memcpy(copy, p, n);
    assert_int_equal(find(&good), USDT_FOUND);
    for (uint64_t i = 0; i < n; i++) {
        for (unsigned k = 0; k < 3; k++) {
            static const uint8_t with[] = {0x01, 0x80, 0xff};

            p[i] ^= with[k];
            switch (find(&site)) {
            case USDT_FOUND: /* padding, or an address by which the file looks the same */
                same += site.offset == good.offset;
                assert_memory_equal(image + site.offset, "\x0f\x1f\x44\x00\x00", 5);
                break;
            case USDT_FOREIGN:
                foreign++;
                break;
            case USDT_NONE:
                none++;
                break;
            }
            memcpy(p, copy, n);
        }
    }
    print_message("%llu bytes x 3: %u no note, %u foreign, %u unharmed\n", (unsigned long long)n,
                  none, foreign, same);
    assert_true(none > 30 && foreign > 30);
    free(copy);
}

static void other_code(void **state)
{
    struct usdt_site site;

    (void)state;
    assert_int_equal(find(&site), USDT_FOUND);
    image[site.offset] = 0x90; /* would have to be single-stepped */
    assert_int_equal(find(&site), USDT_FOREIGN);
}

static void cut(void **state)
{
    struct usdt_site site;
    uint64_t whole = size;

    (void)state;
    for (size = 0; size < whole; size += 1 + whole / 4000)
        (void)find(&site); /* reads beyond would be found by the sanitizer */
    size = whole;
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, load, unload)
    const struct CMUnitTest tests[] = {T(own), T(damaged), T(other_code), T(cut)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
