// SPDX-License-Identifier: Apache-2.0
/*
 * ehtab_build() on any file: a reason, or rows in ascending order whose rules a program can follow.
 */
#include <string.h>

#include "agent/file/ehtab.h"
#include "tests/fuzz/fuzz.h"

struct bytes {
    const uint8_t *p;
    size_t n;
};

static int64_t read_bytes(void *ctx, void *to, uint64_t n, uint64_t at)
{
    const struct bytes *b = ctx;

    if (at >= b->n)
        return 0;
    n = n < b->n - at ? n : b->n - at;
    memcpy(to, b->p + at, n);
    return (int64_t)n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct bytes b = {data, n};
    struct ehtab t;
    enum ehtab_fail why = ehtab_build(&(struct ehtab_file){read_bytes, &b, n}, &t);

    FUZZ_CHECK(why < EHTAB_FAIL_N);
    FUZZ_CHECK((why == EHTAB_OK) == (t.n > 0));
    for (size_t i = 0; i < t.n; i++) {
        FUZZ_CHECK(i == 0 || t.row[i - 1].pc < t.row[i].pc);
        FUZZ_CHECK(t.row[i].rule.kind <= SA_K_PLT9 && t.row[i].rule.fpk <= SA_FP_UNDEF);
        FUZZ_CHECK(t.row[i].rule.reg < 16);
    }
    ehtab_deinit(&t);
    return 0;
}
