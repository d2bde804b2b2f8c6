// SPDX-License-Identifier: Apache-2.0
/*
 * Linked with the agent's main: its clocks do what STRATA_TEST_CLOCK says, "MS:set:NS" (the wall
 * clock is set) or "MS:sleep:NS" (the machine is suspended), separated by blanks, MS milliseconds
 * after the start of the program or of the entry before.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "agent/source/clock.h"
#include "base/str.h"
#include "base/thread.h"

static struct str word(struct str *s, char end)
{
    size_t n = str_find(*s, end);
    struct str w = str_to(*s, n);

    *s = str_from(*s, w.n + 1);
    return w;
}

static void *run(void *ctx)
{
    struct str script = str_c(ctx);

    while (script.n) {
        struct str entry = word(&script, ' '), at = word(&entry, ':'), what = word(&entry, ':');
        struct timespec t;
        int64_t by;
        uint64_t ms;

        if (!str_u64(at, &ms) || !str_i64(entry, &by))
            abort();
        t = (struct timespec){(time_t)(ms / 1000), (long)(ms % 1000 * 1000000)};
        nanosleep(&t, NULL);
        clock_shift_add(
            (struct clock_shift){.real_ns = by, .boot_ns = str_eq(what, STR("sleep")) ? by : 0});
    }
    return NULL;
}

[[gnu::constructor]] static void begin(void)
{
    char *script = getenv("STRATA_TEST_CLOCK"); // NOLINT(concurrency-mt-unsafe): no thread yet
    pthread_t thread;

    if (script && thread_start(&thread, "clock", 0, run, script) < 0)
        abort();
}
