// SPDX-License-Identifier: Apache-2.0
#include "agent/source/bpf_switch.h"

#include <assert.h>
#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/source/bpf_switch_skel.h"
#include "base/arena.h"
#include "base/time.h"

#define RING_CPU                                                                                   \
    (UINT32_C(256) << 10) /* 500 stacks a second of 0.5 KiB, for half a second, twice */
#define RING_MIN (UINT32_C(1) << 20)
#define RING_MAX (UINT32_C(64) << 20)

struct bpf_switch {
    struct switch_bpf *sk;
    struct ring_buffer *ring;
    struct bpf_link *link[4], *iter;
    struct sa_swacct *acct; /* by CPU */
    uint32_t n_cpu;
    uint64_t map_bytes;
    const struct bpf_switch_sink *sink; /* during a drain */
};

static int on_record(void *ctx, void *data, size_t size)
{
    const struct bpf_switch *b = ctx;
    const struct sa_back *back = data;
    const struct sa_ev *ev = data;

    /* our own programs wrote it */
    if (size == sizeof *back && back->kind == SA_KIND_BACK) {
        b->sink->back(b->sink->ctx, back);
        return 0;
    }
    assert(size >= sizeof *ev && size == sizeof *ev + 8 * ((size_t)ev->nk + ev->nu));
    b->sink->left(b->sink->ctx, ev);
    return 0;
}

/* 5.18 gave the tracepoint a fourth argument, the state that the thread leaves with. */
static int switch_args(void)
{
    struct btf *btf = btf__load_vmlinux_btf();
    const struct btf_type *t = NULL;
    int n = -1, id;

    if (!btf)
        return -1;
    id = btf__find_by_name_kind(btf, "btf_trace_sched_switch", BTF_KIND_TYPEDEF);
    if (id > 0)
        t = btf__type_by_id(btf, btf__type_by_id(btf, (uint32_t)id)->type);
    if (t && btf_is_ptr(t))
        t = btf__type_by_id(btf, t->type);
    if (t && btf_is_func_proto(t))
        n = btf_vlen(t) - 1; /* the first is the tracepoint's own */
    btf__free(btf);
    return n;
}

bool bpf_switch_possible(void)
{
    int n = switch_args();

    return (n == 3 || n == 4) && libbpf_probe_bpf_map_type(BPF_MAP_TYPE_TASK_STORAGE, NULL) == 1;
}

static int share_maps(const struct bpf_switch *b, const struct bpf_load *cpu)
{
    static const char *const name[] = {"procs", "mapents", "pgidx", "rules", "chunks", "watch"};
    int r = 0;

    for (size_t i = 0; r == 0 && i < sizeof name / sizeof name[0]; i++)
        r = bpf_map__reuse_fd(bpf_object__find_map_by_name(b->sk->obj, name[i]),
                              bpf_load_map_fd(cpu, name[i]));
    return r;
}

static uint32_t ring_size(const struct bpf_switch_opts *o, uint32_t cpus)
{
    uint32_t size = RING_MIN;

    if (o->ring_bytes)
        return o->ring_bytes;
    while (size < (uint64_t)cpus * RING_CPU && size < RING_MAX)
        size *= 2;
    return size;
}

static uint64_t map_bytes(const struct bpf_switch *b)
{
    const struct bpf_map *own[] = {b->sk->maps.samples, b->sk->maps.scratch, b->sk->maps.swacct,
                                   b->sk->maps.buckets, b->sk->maps.known};
    uint64_t sum = 0;

    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++)
        sum += bpf_load_fd_bytes(bpf_map__fd(own[i]));
    return sum;
}

static int load(struct bpf_switch *b, const struct bpf_switch_opts *o)
{
    int args = switch_args(), r;
    uint32_t ring;

    b->sk = switch_bpf__open();
    if (!b->sk)
        return -errno;
    b->n_cpu = bpf_load_cpus(o->cpu);
    ring = ring_size(o, b->n_cpu);
    b->acct = xcalloc(b->n_cpu, sizeof *b->acct);
    b->sk->rodata->sa_all = o->all;
    b->sk->rodata->sa_wake_bytes = ring / 4;
    bpf_load_rodata(o->cpu, &b->sk->rodata->sa_watch, &b->sk->rodata->sa_has_loop,
                    &b->sk->rodata->sa_no_fp);
    r = share_maps(b, o->cpu);
    if (r == 0)
        r = bpf_map__set_max_entries(b->sk->maps.samples, ring);
    if (r == 0)
        r = bpf_map__set_max_entries(b->sk->maps.known, b->n_cpu);
    if (r == 0)
        r = bpf_program__set_autoload(b->sk->progs.on_switch3, args == 3);
    if (r == 0)
        r = bpf_program__set_autoload(b->sk->progs.on_switch4, args != 3);
    if (r == 0)
        r = switch_bpf__load(b->sk);
    if (r == 0) {
        b->map_bytes = map_bytes(b);
        b->ring = ring_buffer__new(bpf_map__fd(b->sk->maps.samples), on_record, b, NULL);
        r = b->ring ? 0 : -errno;
    }
    if (r == 0) {
        b->iter = bpf_program__attach_iter(b->sk->progs.on_threads, NULL);
        r = b->iter ? 0 : -errno;
    }
    return r;
}

int bpf_switch_open(struct bpf_switch **ret, const struct bpf_switch_opts *opts, struct err *err)
{
    struct bpf_switch *b = xcalloc(1, sizeof *b);
    int r = load(b, opts);

    if (r < 0) {
        bpf_switch_close(b);
        return err_set(err, r, "load of the programs of context switches: %s", strerrordesc_np(-r));
    }
    *ret = b;
    return 0;
}

static void detach(struct bpf_switch *b)
{
    for (size_t i = 0; i < sizeof b->link / sizeof b->link[0]; i++) {
        (void)bpf_link__destroy(b->link[i]); /* NULL is a no-op */
        b->link[i] = NULL;
    }
}

struct bpf_switch *bpf_switch_close(struct bpf_switch *b)
{
    if (!b)
        return NULL;
    detach(b);
    (void)bpf_link__destroy(b->iter);
    ring_buffer__free(b->ring);
    switch_bpf__destroy(b->sk);
    free(b->acct);
    free(b);
    return NULL;
}

int bpf_switch_attach(struct bpf_switch *b, bool on, struct err *err)
{
    struct bpf_program *switch3 = b->sk->progs.on_switch3;
    /* wakeups first: a switch without them would call waiting for a CPU blocked */
    struct bpf_program *prog[] = {b->sk->progs.on_wakeup, b->sk->progs.on_wakeup_new,
                                  bpf_program__autoload(switch3) ? switch3
                                                                 : b->sk->progs.on_switch4};

    if (!on) {
        detach(b);
        return 0;
    }
    for (size_t i = 0; i < sizeof prog / sizeof prog[0]; i++) {
        if (b->link[i])
            continue;
        b->link[i] = bpf_program__attach_trace(prog[i]);
        if (!b->link[i]) {
            int e = errno ? -errno : -EIO;

            detach(b);
            return err_set(err, e, "attach %s: %s", bpf_program__name(prog[i]),
                           strerrordesc_np(-e));
        }
    }
    return 0;
}

void bpf_switch_limit(struct bpf_switch *b, uint32_t stacks_per_s, uint64_t min_block_ns)
{
    b->sk->data->sa_token_ns = (uint64_t)NS_PER_S / (stacks_per_s ? stacks_per_s : 1);
    b->sk->data->sa_min_block = min_block_ns;
}

int bpf_switch_ring_fd(const struct bpf_switch *b)
{
    return bpf_map__fd(b->sk->maps.samples);
}

void bpf_switch_wake(struct bpf_switch *b, uint32_t stops)
{
    b->sk->bss->sa_wake_stops = stops;
}

int bpf_switch_drain(struct bpf_switch *b, const struct bpf_switch_sink *sink)
{
    b->sink = sink;
    return ring_buffer__consume(b->ring);
}

int bpf_switch_threads(struct bpf_switch *b, const struct bpf_switch_sink *sink)
{
    struct sa_off off[64];
    int fd = bpf_iter_create(bpf_link__fd(b->iter)), r = 0;
    size_t have = 0;

    if (fd < 0)
        return fd;
    for (;;) {
        ssize_t n = read(fd, (char *)off + have, sizeof off - have);

        if (n <= 0) {
            r = n < 0 ? -errno : 0;
            break;
        }
        have += (size_t)n;
        for (size_t i = 0; i < have / sizeof *off; i++)
            sink->off(sink->ctx, &off[i]);
        memmove(off, (char *)off + have / sizeof *off * sizeof *off, have % sizeof *off);
        have %= sizeof *off;
    }
    (void)close(fd);
    return r;
}

int bpf_switch_acct(const struct bpf_switch *b, struct sa_swacct *ret)
{
    uint32_t zero = 0;
    int r = bpf_map_lookup_elem(bpf_map__fd(b->sk->maps.swacct), &zero, b->acct);
    uint64_t *sum = (uint64_t *)ret;

    if (r < 0)
        return r;
    *ret = (struct sa_swacct){};
    for (uint32_t i = 0; i < b->n_cpu; i++)
        for (size_t k = 0; k < sizeof *ret / sizeof *sum; k++)
            sum[k] += ((const uint64_t *)&b->acct[i])[k];
    return 0;
}

uint64_t bpf_switch_map_bytes(const struct bpf_switch *b)
{
    return b->map_bytes;
}
