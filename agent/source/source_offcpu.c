// SPDX-License-Identifier: Apache-2.0
#include "agent/source/source_offcpu.h"

#include <stdlib.h>
#include <string.h>

#include "base/arena.h"

#define KEPT_BYTES (UINT64_C(16) << 20) /* of stacks whose threads are away */

struct source_offcpu {
    struct bpf_switch *bpf;
    struct offparts *parts;
    struct sa_swacct at0; /* at the window's begin */
    bool on;
    /* during a call */
    const struct source_offcpu_sink *sink;
    int64_t real_minus_mono;
    uint64_t edge;
    bool last;
};

static void on_left(void *ctx, const struct sa_ev *ev)
{
    struct source_offcpu *s = ctx;

    offparts_left(s->parts, ev, s->sink->left(s->sink->ctx, ev));
}

static void on_back(void *ctx, const struct sa_back *b)
{
    struct source_offcpu *s = ctx;

    offparts_back(s->parts, b, s->sink, s->real_minus_mono);
}

static void on_off(void *ctx, const struct sa_off *off)
{
    struct source_offcpu *s = ctx;

    offparts_off(s->parts, off, s->edge, s->last, s->sink, s->real_minus_mono);
}

static struct bpf_switch_sink sink_of(struct source_offcpu *s)
{
    return (struct bpf_switch_sink){.left = on_left, .back = on_back, .off = on_off, .ctx = s};
}

int source_offcpu_open(struct source_offcpu **ret, const struct source_offcpu_opts *opts,
                       struct err *err)
{
    const struct bpf_switch_opts bo = {
        .cpu = opts->cpu, .all = opts->all, .ring_bytes = opts->ring_bytes};
    struct source_offcpu *s = xcalloc(1, sizeof *s);
    int r = bpf_switch_open(&s->bpf, &bo, err);

    if (r < 0) {
        free(s);
        return r;
    }
    s->parts = offparts_new(KEPT_BYTES);
    *ret = s;
    return 0;
}

struct source_offcpu *source_offcpu_close(struct source_offcpu *s)
{
    if (!s)
        return NULL;
    (void)bpf_switch_close(s->bpf);
    offparts_free(s->parts);
    free(s);
    return NULL;
}

int source_offcpu_switch(struct source_offcpu *s, bool on, struct err *err)
{
    if (!s || s->on == on)
        return 0;
    TRY(bpf_switch_attach(s->bpf, on, err));
    s->on = on;
    if (!on)
        offparts_clear(s->parts);
    return 0;
}

bool source_offcpu_is_on(const struct source_offcpu *s)
{
    return s && s->on;
}

void source_offcpu_limit(struct source_offcpu *s, uint32_t stacks_per_s, uint64_t min_block_ns)
{
    if (s)
        bpf_switch_limit(s->bpf, stacks_per_s, min_block_ns);
}

int source_offcpu_ring_fd(const struct source_offcpu *s)
{
    return s ? bpf_switch_ring_fd(s->bpf) : -1;
}

void source_offcpu_wake(struct source_offcpu *s, uint32_t stops)
{
    if (s)
        bpf_switch_wake(s->bpf, stops);
}

int source_offcpu_poll(struct source_offcpu *s, const struct source_offcpu_sink *sink,
                       int64_t real_minus_mono, struct err *err)
{
    struct bpf_switch_sink own;
    int r;

    if (!s || !s->on)
        return 0;
    own = sink_of(s);
    s->sink = sink;
    s->real_minus_mono = real_minus_mono;
    r = bpf_switch_drain(s->bpf, &own);
    return r < 0 ? err_set(err, r, "read the ring of context switches: %s", strerrordesc_np(-r))
                 : 0;
}

int source_offcpu_window(struct source_offcpu *s, const struct source_offcpu_sink *sink, real_ns t1,
                         int64_t real_minus_mono, bool last, struct source_offcpu_account *ret,
                         struct err *err)
{
    struct bpf_switch_sink own;
    struct sa_swacct a = {};
    int r;

    *ret = (struct source_offcpu_account){};
    if (!s || !s->on)
        return 0;
    own = sink_of(s);
    s->sink = sink;
    s->real_minus_mono = real_minus_mono;
    s->edge = (uint64_t)(t1.v - real_minus_mono);
    s->last = last;
    r = bpf_switch_threads(s->bpf, &own);
    if (r == 0)
        r = bpf_switch_acct(s->bpf, &a);
    if (r < 0)
        return err_set(err, r, "read the threads that are off the CPU: %s", strerrordesc_np(-r));
    offparts_pass(s->parts);
    *ret = (struct source_offcpu_account){
        .lost = a.lost - s->at0.lost,
        .lost_blocked = (int64_t)(a.lost_blocked - s->at0.lost_blocked),
        .lost_queued = (int64_t)(a.lost_queued - s->at0.lost_queued),
        .bpf_ns = a.bpf_ns - s->at0.bpf_ns,
    };
    s->at0 = a;
    return 0;
}

void source_offcpu_get_stats(const struct source_offcpu *s, struct source_offcpu_stats *ret)
{
    *ret = (struct source_offcpu_stats){};
    if (!s)
        return;
    offparts_get_stats(s->parts, ret);
    ret->on = s->on;
    if (bpf_switch_acct(s->bpf, &ret->acct) < 0)
        ret->acct = s->at0;
}

uint64_t source_offcpu_map_bytes(const struct source_offcpu *s)
{
    return s ? bpf_switch_map_bytes(s->bpf) : 0;
}
