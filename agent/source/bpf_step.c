// SPDX-License-Identifier: Apache-2.0
#include "agent/source/bpf_step.h"

#include <assert.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <linux/bpf.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "agent/source/bpf_step_skel.h"
#include "base/arena.h"

#define TRACE_UPROBE_MULTI 48 /* Debian 12's header ends before it */

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
    if (r == 0) /* older kernels do not look at it */
        r = bpf_program__set_expected_attach_type(b->sk->progs.on_step,
                                                  (enum bpf_attach_type)TRACE_UPROBE_MULTI);
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

struct link {
    int fd;             /* of the kernel's link; < 0: none */
    struct bpf_link *l; /* of a perf event */
};

/* Kernels before 6.6. */
static int attach_perf(struct bpf_step *b, const struct bpf_step_at *at, struct link *link,
                       struct err *err)
{
    LIBBPF_OPTS(bpf_uprobe_opts, o, .ref_ctr_offset = at->sem_offset, .bpf_cookie = at->cookie);

    link->l = bpf_program__attach_uprobe_opts(b->sk->progs.on_step, -1, at->path, at->offset, &o);
    if (!link->l) {
        int e = errno ? -errno : -EIO;

        return err_set(err, e, "probe at %.100s: %s", at->path, strerrordesc_np(-e));
    }
    return 0;
}

/* The kernel's, since 6.6: needs no more than CAP_BPF and CAP_PERFMON, where perf's probes need
 * CAP_SYS_ADMIN. libbpf 1.1 does not know it. A descriptor, or negative errno. */
static int attach_multi(const struct bpf_step *b, const struct bpf_step_at *at)
{
    struct {
        uint32_t prog_fd, target_fd, attach_type, flags;
        uint64_t path, offsets, ref_ctr_offsets, cookies;
        uint32_t cnt, multi_flags, pid, pad;
    } attr = {.prog_fd = (uint32_t)bpf_program__fd(b->sk->progs.on_step),
              .attach_type = TRACE_UPROBE_MULTI,
              .path = (uintptr_t)at->path,
              .offsets = (uintptr_t)&at->offset,
              .ref_ctr_offsets = at->sem_offset ? (uintptr_t)&at->sem_offset : 0,
              .cookies = (uintptr_t)&at->cookie,
              .cnt = 1};
    int fd = (int)syscall(SYS_bpf, BPF_LINK_CREATE, &attr, sizeof attr);

    return fd < 0 ? -errno : fd;
}

int bpf_step_attach(struct bpf_step *b, const struct bpf_step_at *at, void **ret_link,
                    struct err *err)
{
    struct link *link = xcalloc(1, sizeof *link);
    int r = 0;

    link->fd = attach_multi(b, at);
    if (link->fd < 0)
        r = attach_perf(b, at, link, err);
    if (r < 0) {
        free(link);
        return r;
    }
    *ret_link = link;
    return 0;
}

void bpf_step_detach(void *link)
{
    struct link *l = link;

    if (!l)
        return;
    if (l->fd >= 0)
        (void)close(l->fd);
    (void)bpf_link__destroy(l->l);
    free(l);
}

int bpf_step_drain(struct bpf_step *b, void (*fn)(void *ctx, const struct sa_step_call *c),
                   void *ctx)
{
    b->fn = fn;
    b->ctx = ctx;
    return ring_buffer__consume(b->ring);
}

int bpf_step_ring_fd(const struct bpf_step *b)
{
    return bpf_map__fd(b->sk->maps.step_calls);
}

struct sa_step_drops bpf_step_drops(const struct bpf_step *b)
{
    return (struct sa_step_drops){b->sk->bss->step_drops.rate, b->sk->bss->step_drops.ring_full};
}
