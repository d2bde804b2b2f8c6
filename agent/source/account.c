// SPDX-License-Identifier: Apache-2.0
#include "agent/source/account.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/str.h"
#include "base/time.h"

#define STAT_MAX (1 << 20)

static uint64_t clock_of(const struct sa_acct *a)
{
    return a->past + a->counter - a->first;
}

static uint64_t missed_of(const struct sa_acct *a)
{
    return a->missed_idle_ns + a->missed_busy_ns + a->missed_mixed_ns;
}

struct account_delta account_delta(const struct sa_acct *a0, const struct sa_acct *a1)
{
    return (struct account_delta){
        .clock = clock_of(a1) - clock_of(a0),
        .ticks = a1->ticks - a0->ticks,
        .busy = a1->busy_ns - a0->busy_ns,
        .idle = a1->idle_ns - a0->idle_ns,
        .filtered = a1->filtered_ns - a0->filtered_ns,
        .lost_n = a1->lost_ring - a0->lost_ring,
        .lost_ns = a1->lost_ring_ns - a0->lost_ring_ns,
        .missed_ticks = a1->missed_ticks - a0->missed_ticks,
        .jitter = a1->jitter_ns - a0->jitter_ns,
        .missed = missed_of(a1) - missed_of(a0),
        .missed_idle_ends = a1->missed_idle_ns - a0->missed_idle_ns,
        .bpf_ns = a1->bpf_ns - a0->bpf_ns,
    };
}

bool account_i1(uint32_t cpu, const struct account_delta *d, uint64_t period,
                char text[static ACCOUNT_TEXT])
{
    uint64_t sum = d->busy + d->idle + (uint64_t)d->jitter + d->missed;

    if (sum != d->clock) {
        (void)snprintf(text, ACCOUNT_TEXT,
                       "cpu %u: busy + idle + jitter + missed = %" PRIu64 ", clock %" PRIu64 " ns",
                       cpu, sum, d->clock);
        return false;
    }
    if (period && d->busy + d->idle != d->ticks * period) {
        (void)snprintf(text, ACCOUNT_TEXT,
                       "cpu %u: busy + idle = %" PRIu64 ", ticks * period = %" PRIu64 " ns", cpu,
                       d->busy + d->idle, d->ticks * period);
        return false;
    }
    return true;
}

bool account_i2(uint32_t cpu, const struct account_delta *d, uint64_t received,
                char text[static ACCOUNT_TEXT])
{
    uint64_t sum = received + d->lost_ns + d->filtered;

    if (sum == d->busy)
        return true;
    (void)snprintf(text, ACCOUNT_TEXT,
                   "cpu %u: received + ring_full + filtered = %" PRIu64 ", busy %" PRIu64 " ns",
                   cpu, sum, d->busy);
    return false;
}

bool account_i3(uint64_t rows, uint64_t received, char text[static ACCOUNT_TEXT])
{
    if (rows == received)
        return true;
    (void)snprintf(text, ACCOUNT_TEXT, "rows %" PRIu64 ", weight received %" PRIu64 " ns", rows,
                   received);
    return false;
}

static int64_t clamp(int64_t v, int64_t least, int64_t most)
{
    return v < least ? least : v > most ? most : v;
}

uint64_t account_missed_idle(const struct account_delta *d, const struct account_seen *seen,
                             struct account_carry *carry)
{
    int64_t bound = 2 * (int64_t)sqrt((double)seen->window * (double)seen->period);
    int64_t most = (int64_t)(d->missed - d->missed_idle_ends); /* that can be lost */
    int64_t lost;

    if (!seen->stat_idle)
        return d->missed_idle_ends;
    carry->unexplained += (int64_t)(d->missed + seen->open - carry->open) -
                          ((int64_t)seen->stat_idle - (int64_t)d->idle);
    carry->open = seen->open;
    lost = clamp(carry->unexplained - bound, 0, most);
    carry->unexplained = clamp(carry->unexplained - lost, -bound, bound);
    return d->missed - (uint64_t)lost;
}

static int slurp(const char *path, struct buf *b)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC), r = 0;

    if (fd < 0)
        return -errno;
    for (;;) {
        char *to = buf_reserve(b, 16384);
        ssize_t n = to ? read(fd, to, 16384) : -1;

        if (n < 0)
            r = to ? -errno : -E2BIG;
        if (n <= 0)
            break;
        buf_commit(b, (size_t)n);
    }
    (void)close(fd);
    return r;
}

/* The next field; s moves behind it. */
static struct str field(struct str *s)
{
    struct str f;

    while (s->n && s->p[0] == ' ')
        *s = str_from(*s, 1);
    f = str_to(*s, str_find(*s, ' '));
    *s = str_from(*s, f.n);
    return f;
}

static void stat_line(struct str line, uint64_t *ret, uint32_t n, uint64_t jiffy_ns)
{
    struct str name = field(&line);
    uint64_t cpu, v[5];

    if (!str_starts(name, STR("cpu")) || !str_u64(str_from(name, 3), &cpu) || cpu >= n)
        return;
    for (int i = 0; i < 5; i++) /* user nice system idle iowait */
        if (!str_u64(field(&line), &v[i]))
            return;
    ret[cpu] = (v[3] + v[4]) * jiffy_ns;
}

int account_read_stat(const char *path, uint64_t *ret, uint32_t n)
{
    uint64_t jiffy_ns = (uint64_t)(NS_PER_S / sysconf(_SC_CLK_TCK));
    struct str text;
    struct buf b;
    int r;

    buf_init(&b, STAT_MAX);
    r = slurp(path, &b);
    text = buf_view(&b);
    while (r == 0 && text.n) {
        struct str line = str_to(text, str_find(text, '\n'));

        text = str_from(text, line.n + 1);
        stat_line(line, ret, n, jiffy_ns);
    }
    buf_deinit(&b);
    return r;
}
