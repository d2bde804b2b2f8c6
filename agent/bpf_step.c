// SPDX-License-Identifier: Apache-2.0
#include "agent/bpf_step.h"

#include <assert.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "agent/bpf_step_skel.h"
#include "base/arena.h"

struct bpf_step {
    struct steps_bpf *sk;
    struct ring_buffer *ring;
    void (*fn)(void *ctx, const struct sa_step_call *c);
    void *ctx;
};

static int on_record(void *ctx, void *data, size_t size)
{
    const struct bpf_step *b = ctx;
    const struct sa_step_call *c = data;

    /* our own program wrote it */
    assert(size >= sizeof *c - SA_STEP_ATTR && (c->attr_len == 0 || size >= sizeof *c));
    b->fn(b->ctx, c);
    return 0;
}

int bpf_step_open(struct bpf_step **ret, struct err *err)
{
    struct bpf_step *b = xcalloc(1, sizeof *b);
    int r = 0;

    b->sk = steps_bpf__open();
    if (!b->sk)
        r = -errno;
    if (r == 0)
        r = steps_bpf__load(b->sk);
    if (r == 0) {
        b->ring = ring_buffer__new(bpf_map__fd(b->sk->maps.step_calls), on_record, b, NULL);
        r = b->ring ? 0 : -errno;
    }
    if (r < 0) {
        bpf_step_close(b);
        return err_set(err, r, "load of the program for steps: %s", strerrordesc_np(-r));
    }
    *ret = b;
    return 0;
}

struct bpf_step *bpf_step_close(struct bpf_step *b)
{
    if (!b)
        return NULL;
    ring_buffer__free(b->ring);
    steps_bpf__destroy(b->sk);
    free(b);
    return NULL;
}

int bpf_step_attach(struct bpf_step *b, const struct bpf_step_at *at, void **ret_link,
                    struct err *err)
{
    LIBBPF_OPTS(bpf_uprobe_opts, o, .ref_ctr_offset = at->sem_offset, .bpf_cookie = at->cookie);
    struct bpf_link *l =
        bpf_program__attach_uprobe_opts(b->sk->progs.on_step, -1, at->path, at->offset, &o);

    if (!l) {
        int e = errno ? -errno : -EIO;

        return err_set(err, e, "probe at %.100s: %s", at->path, strerrordesc_np(-e));
    }
    *ret_link = l;
    return 0;
}

void bpf_step_detach(void *link)
{
    (void)bpf_link__destroy(link);
}

int bpf_step_drain(struct bpf_step *b, void (*fn)(void *ctx, const struct sa_step_call *c),
                   void *ctx)
{
    b->fn = fn;
    b->ctx = ctx;
    return ring_buffer__consume(b->ring);
}

struct sa_step_drops bpf_step_drops(const struct bpf_step *b)
{
    return (struct sa_step_drops){b->sk->bss->step_drops.rate, b->sk->bss->step_drops.ring_full};
}
