// SPDX-License-Identifier: Apache-2.0
#include "agent/python/pymend.h"

#include <string.h>

static uint32_t end_of(const struct sa_ev *ev)
{
    uint32_t end = (uint32_t)ev->nk + ev->nu;

    return end < PYMEND_WORDS ? end : PYMEND_WORDS;
}

uint32_t pymend_missing(const struct sa_ev *ev)
{
    uint32_t n = 0;

    for (uint32_t i = ev->nk; i < end_of(ev); i += sa_words(ev->w[i]))
        n += ev->w[i] == (SA_W_MARK | SA_M_SHORT);
    return n;
}

const struct sa_ev *pymend(const struct sa_ev *ev, struct sa_ev *room)
{
    uint32_t missing = ev->flags & SA_F_PY_SHORT ? pymend_missing(ev) : 0, end = end_of(ev);
    uint64_t held[2 * SA_MAX_PY];
    uint32_t n_held = 0, n = ev->nk, run;

    if (!missing)
        return ev;
    memcpy(room, ev, sizeof *ev + n * sizeof *ev->w);
    for (uint32_t i = n; i < end;) {
        for (run = i; run + 1 < end && (ev->w[run] & SA_W_TAG) == SA_W_PY;)
            run += 2;
        if (run == i && ev->w[i] != (SA_W_MARK | SA_M_SHORT)) {
            room->w[n++] = ev->w[i++];
            continue;
        }
        /* here is the place of the frames before */
        memcpy(room->w + n, held, n_held * sizeof *held);
        n += n_held;
        n_held = 0;
        if (run == i) {
            i++;
            continue;
        }
        if (missing == 1 && run - i <= sizeof held / sizeof *held) {
            n_held = run - i;
            memcpy(held, ev->w + i, n_held * sizeof *held);
        } else {
            memcpy(room->w + n, ev->w + i, (run - i) * sizeof *held);
            n += run - i;
        }
        i = run;
    }
    memcpy(room->w + n, held, n_held * sizeof *held);
    room->nu = (uint16_t)(n + n_held - ev->nk);
    return room;
}
