// SPDX-License-Identifier: Apache-2.0
/* The vectors of FIPS 180-4's examples and NIST's short-message file. */
#include "agent/file/sha256.h"
#include "tests/lib/testing.h"

static void check(const char *text, size_t repeat, const char *hex)
{
    struct sha256 s;
    uint8_t sum[32];
    char got[65];

    sha256_init(&s);
    for (size_t i = 0; i < repeat; i++)
        sha256_add(&s, text, strlen(text));
    sha256_end(&s, sum);
    for (unsigned i = 0; i < 32; i++)
        snprintf(got + (size_t)2 * i, 3, "%02x", sum[i]);
    assert_string_equal(got, hex);
}

static void vectors(void **state)
{
    (void)state;
    check("", 1, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    check("abc", 1, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    check("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 1,
          "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    check("aaaaaaaaaa", 100000, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

/* Lengths around the block size, in one piece and byte by byte. */
static void pieces(void **state)
{
    uint8_t data[200], one[32], many[32];

    (void)state;
    for (unsigned i = 0; i < sizeof data; i++)
        data[i] = (uint8_t)i;
    for (size_t n = 0; n <= sizeof data; n++) {
        struct sha256 a, b;

        sha256_init(&a);
        sha256_add(&a, data, n);
        sha256_end(&a, one);
        sha256_init(&b);
        for (size_t i = 0; i < n; i++)
            sha256_add(&b, data + i, 1);
        sha256_end(&b, many);
        assert_memory_equal(one, many, 32);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(vectors), cmocka_unit_test(pieces)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
