// SPDX-License-Identifier: Apache-2.0
#include "agent/collect/restrain.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/time.h"

#define OVER_WINDOWS  2
#define UNDER_WINDOWS 6
#define LASTED        60 /* windows */
#define MOST_PATIENCE 384
#define SETTLE        10
#define MEMORY_BASE   (UINT64_C(120) << 20)
#define MEMORY_CPU    (UINT64_C(3) << 20) /* for each ten */

static const uint64_t slower[] = {10101010, 20408163, 52631578}; /* 99, 49, 19 Hz */

void restrain_init(struct restrain *r, const struct restrain_conf *c)
{
    *r = (struct restrain){.conf = *c, .n_period = 1};
    r->period[0] = c->period_ns;
    for (unsigned i = 0; i < sizeof slower / sizeof slower[0]; i++)
        if (slower[i] > c->period_ns)
            r->period[r->n_period++] = slower[i];
    r->budget_ns = c->cpu_percent * ((c->cpus + 15) / 16) * (NS_PER_S / 100);
    if (r->conf.memory == 0)
        r->conf.memory = MEMORY_BASE + MEMORY_CPU * c->cpus / 10;
    r->patience = UNDER_WINDOWS;
    r->since_back = LASTED;
    r->settle = c->settle_windows ? c->settle_windows : SETTLE;
}

static void stepped(struct restrain *r, bool back)
{
    r->over = r->under = r->ring = r->off_ring = 0;
    r->steps++;
    if (back)
        r->since_back = 0;
    else if (r->since_back >= LASTED)
        r->patience = UNDER_WINDOWS;
    else if (r->patience < MOST_PATIENCE)
        r->patience *= 2;
}

static void step(struct restrain *r, int by)
{
    r->at = (uint32_t)((int)r->at + by);
    stepped(r, by < 0);
}

/* What this costs at the period before, if all of it were ticks: more than it will be. */
static bool would_fit(const struct restrain *r)
{
    return (double)r->cpu_ns * (double)r->period[r->at] / (double)r->period[r->at - 1] <=
           (double)r->budget_ns;
}

static void count(struct restrain *r, const struct restrain_seen *s)
{
    if (r->since_back < LASTED)
        r->since_back++;
    r->ring = s->ring_full ? r->ring + 1 : 0;
    r->off_ring = s->off_lost ? r->off_ring + 1 : 0;
    r->over = r->cpu_ns > r->budget_ns ? r->over + 1 : 0;
    r->under = r->cpu_ns < r->budget_ns / 2 && !s->ring_full && !s->off_lost ? r->under + 1 : 0;
}

/* A third of the cost is enough: as much again follows each of its stacks in user space. */
static bool look_at_off(struct restrain *r, const struct restrain_seen *s,
                        char text[static RESTRAIN_TEXT])
{
    bool over = r->over >= OVER_WINDOWS && s->off_ns * 3 >= s->cpu_ns;
    bool less = (over || r->off_ring >= OVER_WINDOWS) && r->off_level < RESTRAIN_OFF;
    bool more = r->under >= r->patience && r->at == 0 && r->off_level > 0;

    if (!less && !more)
        return false;
    r->off_level += less ? 1U : -1U;
    stepped(r, more);
    (void)snprintf(text, RESTRAIN_TEXT,
                   "source=offcpu cause=%s off_ns_per_s=%" PRIu64 " cpu_ns_per_s=%" PRIu64
                   " off_lost=%" PRIu64 " level=%u",
                   more   ? "recovered"
                   : over ? "cpu"
                          : "ring_full",
                   s->off_ns, r->cpu_ns, s->off_lost, r->off_level);
    return true;
}

static bool look_at_rate(struct restrain *r, const struct restrain_seen *s,
                         char text[static RESTRAIN_TEXT])
{
    uint64_t from = restrain_period(r);
    const char *cause;

    if ((r->over >= OVER_WINDOWS || r->ring >= OVER_WINDOWS) && r->at + 1 < r->n_period) {
        cause = r->over >= OVER_WINDOWS ? "cpu" : "ring_full";
        step(r, 1);
    } else if (r->under >= r->patience && r->at > 0 && would_fit(r)) {
        cause = "recovered";
        step(r, -1);
    } else {
        return false;
    }
    (void)snprintf(text, RESTRAIN_TEXT,
                   "source=cpu cause=%s cpu_ns_per_s=%" PRIu64 " budget_ns_per_s=%" PRIu64
                   " ring_full=%" PRIu64 " period_ns=%" PRIu64 " was_ns=%" PRIu64,
                   cause, r->cpu_ns, r->budget_ns, s->ring_full, restrain_period(r), from);
    return true;
}

static bool look_at_memory(struct restrain *r, const struct restrain_seen *s,
                           char text[static RESTRAIN_TEXT])
{
    static const char *const step_name[] = {"all", "symbols_shrink", "tables_evicted",
                                            "tables_refused"};
    enum restrain_memory was = r->memory;

    r->memory_over = s->memory > r->conf.memory ? r->memory_over + 1 : 0;
    /* an eighth below, so that it does not go to and fro */
    r->memory_under = s->memory < r->conf.memory - r->conf.memory / 8 ? r->memory_under + 1 : 0;
    if (r->memory_over >= OVER_WINDOWS && r->memory < RESTRAIN_MEMORY_REFUSE) {
        r->memory++;
        r->memory_over = 0;
    } else if (r->memory_under >= UNDER_WINDOWS && r->memory > RESTRAIN_MEMORY_OK) {
        r->memory--;
        r->memory_under = 0;
    }
    if (r->memory == was)
        return false;
    r->steps++;
    (void)snprintf(text, RESTRAIN_TEXT,
                   "source=memory cause=%s memory_bytes=%" PRIu64 " limit_bytes=%" PRIu64
                   " now=%s was=%s",
                   r->memory > was ? "memory" : "recovered", s->memory, r->conf.memory,
                   step_name[r->memory], step_name[was]);
    return true;
}

bool restrain_look(struct restrain *r, const struct restrain_seen *s,
                   char text[static RESTRAIN_TEXT])
{
    if (s->window_ns <= 0)
        return false;
    r->cpu_ns = (uint64_t)((double)s->cpu_ns * (double)NS_PER_S / (double)s->window_ns);
    if (r->settle) {
        r->settle--;
        return false;
    }
    count(r, s);
    return look_at_off(r, s, text) || look_at_rate(r, s, text) || look_at_memory(r, s, text);
}
