// SPDX-License-Identifier: Apache-2.0
#include "agent/source/crosscheck.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/arena.h"
#include "base/map.h"

#define MIN_SAMPLES 200

struct entry {
    int64_t clock_ns, profiled_ns;
};

struct crosscheck {
    struct map before, now; /* serial -> index of an entry */
    struct entry *v[2];     /* of before, of now */
    uint32_t n[2], room[2];
    int64_t lost_ns, lost_before_ns, period_ns;
};

struct crosscheck *crosscheck_new(void)
{
    struct crosscheck *c = xcalloc(1, sizeof *c);

    map_init(&c->before, 0);
    map_init(&c->now, 0);
    return c;
}

struct crosscheck *crosscheck_free(struct crosscheck *c)
{
    if (!c)
        return NULL;
    map_deinit(&c->before);
    map_deinit(&c->now);
    free(c->v[0]);
    free(c->v[1]);
    free(c);
    return NULL;
}

void crosscheck_begin(struct crosscheck *c, int64_t lost_ns, int64_t period_ns)
{
    struct map map = c->before;
    struct entry *v = c->v[0];
    uint32_t room = c->room[0];

    c->before = c->now;
    c->v[0] = c->v[1];
    c->n[0] = c->n[1];
    c->room[0] = c->room[1];
    c->now = map;
    map_clear(&c->now);
    c->v[1] = v;
    c->n[1] = 0;
    c->room[1] = room;
    c->lost_before_ns = c->lost_ns;
    c->lost_ns = lost_ns;
    c->period_ns = period_ns;
}

static void keep(struct crosscheck *c, const struct crosscheck_seen *s)
{
    if (c->n[1] == c->room[1]) {
        c->room[1] = c->room[1] ? 2 * c->room[1] : 64;
        c->v[1] = xrealloc(c->v[1], c->room[1] * sizeof *c->v[1]);
    }
    c->v[1][c->n[1]] = (struct entry){s->clock_ns, s->profiled_ns};
    if (map_put(&c->now, s->serial, c->n[1]) != MAP_FULL)
        c->n[1]++;
}

bool crosscheck_look(struct crosscheck *c, const struct crosscheck_seen *s,
                     char text[static CROSSCHECK_TEXT])
{
    int64_t clock, profiled, lost = c->lost_ns - c->lost_before_ns;
    double n, bound;
    uint64_t at;

    keep(c, s);
    if (!map_get(&c->before, s->serial, &at))
        return true;
    clock = s->clock_ns - c->v[0][at].clock_ns;
    profiled = s->profiled_ns - c->v[0][at].profiled_ns;
    n = (double)(clock > profiled ? clock : profiled) / (double)c->period_ns;
    if (n <= MIN_SAMPLES)
        return true;
    bound = fmax(0.05, 5 / sqrt(n)) * (double)clock;
    if ((double)(profiled - clock) <= bound && (double)(clock - profiled - lost) <= bound)
        return true;
    (void)snprintf(text, CROSSCHECK_TEXT,
                   "pid=%" PRIu32 " clock_ns=%" PRId64 " profiled_ns=%" PRId64
                   " samples=%.0f bound_ns=%.0f lost_ns=%" PRId64,
                   s->pid, clock, profiled, n, bound, lost);
    return false;
}
