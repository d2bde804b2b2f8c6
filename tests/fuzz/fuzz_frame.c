// SPDX-License-Identifier: Apache-2.0
/* wire_inflate() on any bytes: an error with a reason, or at most the cap. */
#include "proto/wire.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct wire_fault fault = {};
    struct wire_limits limits;
    struct err err = {};
    struct buf out;
    int r;

    wire_limits_default(&limits);
    limits.inflated = 100000;
    limits.members = 8;
    buf_init(&out, limits.inflated);
    r = wire_inflate((struct str){(const char *)data, n}, &limits, &out, &fault, &err);
    FUZZ_CHECK(r == 0 ? out.n <= limits.inflated : fault.reason && err.code == r && out.n == 0);
    buf_deinit(&out);
    return 0;
}
