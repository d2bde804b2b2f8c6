// SPDX-License-Identifier: Apache-2.0
/* What a client reads of an answer, and base/pb.h under it. */
#include "base/pb.h"
#include "proto/wire.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct str in = {(const char *)data, n};
    struct wire_reply reply;
    struct wire_error error;
    struct err err = {};
    struct pb_field f;
    struct pb p;
    uint64_t v;

    if (wire_reply_decode(in, &reply, &err) == 0)
        FUZZ_CHECK(reply.status == WIRE_STORED || reply.status == WIRE_DUPLICATE);
    if (wire_error_decode(in, &error, NULL) == 0)
        FUZZ_CHECK(error.reason[0]);
    pb_init(&p, in);
    while (pb_next(&p, &f, NULL) == 0) {
        struct pb run;

        FUZZ_CHECK(f.number > 0 && p.at <= n);
        pb_init(&run, f.s);
        while (pb_packed(&run, &v, NULL) == 0)
            FUZZ_CHECK(run.at <= f.s.n);
    }
    return 0;
}
