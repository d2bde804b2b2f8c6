// SPDX-License-Identifier: Apache-2.0
#include "agent/file/perfmap.h"

#include <errno.h>
#include <linux/perf_event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "agent/file/procfile.h"
#include "base/arena.h"
#include "base/buf.h"
#include "base/bytes.h"

#define MANY_CPUS   32
#define PAGES       64 /* below kernel.perf_event_mlock_kb, so that no CAP_IPC_LOCK is needed */
#define PAGES_MANY  16
#define MAX_CPUS    8192
#define TRAILER     24 /* sample_id_all: u32 pid, tid; u64 time; u32 cpu, reserved */
#define MMAP2_FIXED 72 /* header to protection and flags, before the name */
#define ONLINE_PATH "devices/system/cpu/online"

struct ring {
    int fd; /* -1: CPU offline */
    struct perf_event_mmap_page *page;
    uint32_t cpu;
};

struct item {
    int64_t t;
    size_t at; /* in copies */
    uint32_t n, order;
};

struct perfmap {
    int epoll; /* of all rings */
    uint64_t page_size, data_size;
    uint32_t n_ring;
    struct ring *ring; /* by CPU number */
    struct item *item;
    uint32_t n_item, room;
    struct buf copies; /* records of one drain */
};

/* ---- one record ---------------------------------------------------------------------------- */

static struct str text_at(const uint8_t *p, uint64_t at, uint64_t end)
{
    const char *s = (const char *)p + at;

    return (struct str){s, strnlen(s, end - at)};
}

/* {header 8; u32 pid, tid; u64 addr, len, pgoff; either u32 maj, min; u64 ino, ino_generation or
 * u8 size, pad[3], id[20]; u32 prot, flags; name} */
static int parse_mmap2(const uint8_t *p, uint64_t end, uint16_t misc, struct perfmap_event *e)
{
    if (end < MMAP2_FIXED)
        return -EINVAL;
    if (!(bytes_u32(p + 64) & PROT_EXEC))
        return 1;
    e->kind = PERFMAP_MMAP;
    e->pid = bytes_u32(p + 8);
    e->tid = bytes_u32(p + 12);
    e->start = bytes_u64(p + 16);
    if (__builtin_add_overflow(e->start, bytes_u64(p + 24), &e->end))
        return -EINVAL;
    e->offset = bytes_u64(p + 32);
    if (misc & PERF_RECORD_MISC_MMAP_BUILD_ID) {
        e->build_id_len = p[40] <= sizeof e->build_id ? p[40] : 0;
        memcpy(e->build_id, p + 44, e->build_id_len);
    }
    e->name = text_at(p, MMAP2_FIXED, end);
    return 0;
}

static int parse_task(const uint8_t *p, uint64_t end, struct perfmap_event *e)
{
    if (end < 24)
        return -EINVAL;
    e->pid = bytes_u32(p + 8);
    e->ppid = bytes_u32(p + 12);
    e->tid = bytes_u32(p + 16);
    e->ptid = bytes_u32(p + 20);
    return 0;
}

int perfmap_parse(const void *record, uint64_t n, struct perfmap_event *ret)
{
    const uint8_t *p = record;
    struct perfmap_event e = {};
    struct perf_event_header h;
    uint64_t end;
    int r = 0;

    if (n < sizeof h + TRAILER)
        return -EINVAL;
    memcpy(&h, p, sizeof h);
    if (h.size != n)
        return -EINVAL;
    end = n - TRAILER;
    e.t = (int64_t)bytes_u64(p + end + 8);
    switch (h.type) {
    case PERF_RECORD_MMAP2:
        r = parse_mmap2(p, end, h.misc, &e);
        break;
    case PERF_RECORD_COMM:
        if (end < 16)
            return -EINVAL;
        e.kind = h.misc & PERF_RECORD_MISC_COMM_EXEC ? PERFMAP_EXEC : PERFMAP_COMM;
        e.pid = bytes_u32(p + 8);
        e.tid = bytes_u32(p + 12);
        e.name = text_at(p, 16, end);
        break;
    case PERF_RECORD_FORK:
    case PERF_RECORD_EXIT:
        e.kind = h.type == PERF_RECORD_FORK ? PERFMAP_FORK : PERFMAP_EXIT;
        r = parse_task(p, end, &e);
        break;
    case PERF_RECORD_LOST:
        if (end < 24)
            return -EINVAL;
        e.kind = PERFMAP_LOST;
        e.n = bytes_u64(p + 16);
        break;
    default:
        return 1;
    }
    if (r == 0)
        *ret = e;
    return r;
}

/* ---- rings --------------------------------------------------------------------------------- */

static int open_ring(struct perfmap *p, uint32_t cpu, struct err *err)
{
    struct perf_event_attr a = {.type = PERF_TYPE_SOFTWARE,
                                .config = PERF_COUNT_SW_DUMMY,
                                .size = sizeof a,
                                .mmap = 1,
                                .mmap2 = 1,
                                .build_id = 1,
                                .comm = 1,
                                .comm_exec = 1,
                                .task = 1,
                                .sample_id_all = 1,
                                .sample_type = PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_CPU,
                                .watermark = 1,
                                .wakeup_watermark = 1, /* any record */
                                .use_clockid = 1,
                                .clockid = CLOCK_MONOTONIC};
    struct ring *r = &p->ring[cpu];
    void *at;
    int code;

    r->fd = (int)syscall(SYS_perf_event_open, &a, -1, (int)cpu, -1, PERF_FLAG_FD_CLOEXEC);
    if (r->fd < 0) {
        code = errno;
        r->fd = -1;
        if (code == EACCES || code == EPERM)
            return err_set(err, -code, "perf_event_open refused: run as root or with CAP_PERFMON");
        if (code == EMFILE)
            return err_set(err, -code, "perf_event_open: descriptor limit; raise LimitNOFILE");
        return err_set(err, -code, "perf_event_open on CPU %u: %s", cpu, strerrordesc_np(code));
    }
    at = mmap(NULL, p->page_size + p->data_size, PROT_READ | PROT_WRITE, MAP_SHARED, r->fd, 0);
    if (at == MAP_FAILED) {
        code = errno;
        close(r->fd);
        r->fd = -1;
        return err_set(err, -code,
                       "ring of CPU %u: %s; raise kernel.perf_event_mlock_kb or grant "
                       "CAP_IPC_LOCK",
                       cpu, strerrordesc_np(code));
    }
    r->page = at;
    (void)epoll_ctl(p->epoll, EPOLL_CTL_ADD, r->fd, &(struct epoll_event){.events = EPOLLIN});
    return 0;
}

static void close_ring(struct perfmap *p, struct ring *r)
{
    if (r->fd < 0)
        return;
    munmap(r->page, p->page_size + p->data_size);
    close(r->fd);
    r->fd = -1;
    r->page = NULL;
}

/* "0-3,7" into bits; false if it cannot be read. */
static bool online_cpus(bool *online, uint32_t n)
{
    struct buf b;
    struct str list;
    bool ok;

    buf_init(&b, 65536);
    ok = procfile_read("/sys", ONLINE_PATH, &b, NULL) == 0;
    list = buf_view(&b);
    while (ok && list.n) {
        size_t comma = str_find(list, ',');
        struct str part = str_to(list, comma);
        size_t dash;
        uint64_t lo, hi;

        list = str_from(list, comma == SIZE_MAX ? list.n : comma + 1);
        if (part.n && part.p[part.n - 1] == '\n')
            part.n--;
        dash = str_find(part, '-');
        if (!str_u64(str_to(part, dash), &lo))
            continue;
        hi = lo;
        if (dash != SIZE_MAX && !str_u64(str_from(part, dash + 1), &hi))
            continue;
        for (uint64_t c = lo; c <= hi && c < n; c++)
            online[c] = true;
    }
    buf_deinit(&b);
    return ok;
}

int perfmap_open(struct perfmap **ret, struct err *err)
{
    long page = sysconf(_SC_PAGESIZE), cpus = sysconf(_SC_NPROCESSORS_CONF);
    struct perfmap *p = xcalloc(1, sizeof *p);
    bool *online;
    int r = 0;

    p->page_size = page > 0 ? (uint64_t)page : 4096;
    p->n_ring = cpus > 0 && cpus <= MAX_CPUS ? (uint32_t)cpus : 1;
    p->data_size = p->page_size * (p->n_ring > MANY_CPUS ? PAGES_MANY : PAGES);
    p->ring = xcalloc(p->n_ring, sizeof *p->ring);
    buf_init(&p->copies, (size_t)1 << 30);
    for (uint32_t i = 0; i < p->n_ring; i++)
        p->ring[i] = (struct ring){.fd = -1, .cpu = i};
    p->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (p->epoll < 0)
        r = err_set(err, -errno, "epoll: %s", strerrordesc_np(errno));
    online = xcalloc(p->n_ring, sizeof *online);
    if (!online_cpus(online, p->n_ring))
        memset(online, 1, p->n_ring);
    for (uint32_t i = 0; r == 0 && i < p->n_ring; i++) {
        if (online[i])
            r = open_ring(p, i, err);
    }
    free(online);
    if (r < 0) {
        perfmap_close(p);
        return r;
    }
    *ret = p;
    return 0;
}

struct perfmap *perfmap_close(struct perfmap *p)
{
    if (!p)
        return NULL;
    for (uint32_t i = 0; i < p->n_ring; i++)
        close_ring(p, &p->ring[i]);
    if (p->epoll >= 0)
        close(p->epoll);
    buf_deinit(&p->copies);
    free(p->item);
    free(p->ring);
    free(p);
    return NULL;
}

int perfmap_fd(const struct perfmap *p)
{
    return p->epoll;
}

uint32_t perfmap_poll_cpus(struct perfmap *p)
{
    bool *online = xcalloc(p->n_ring, sizeof *online);
    uint32_t changed = 0;

    if (online_cpus(online, p->n_ring)) {
        for (uint32_t i = 0; i < p->n_ring; i++) {
            if (online[i] && p->ring[i].fd < 0)
                changed += open_ring(p, i, NULL) == 0;
            if (!online[i] && p->ring[i].fd >= 0) {
                close_ring(p, &p->ring[i]);
                changed++;
            }
        }
    }
    free(online);
    return changed;
}

/* A copy of n bytes of the ring, which wraps. */
static void copy_out(const struct perfmap *p, const struct ring *r, uint64_t at, void *to, size_t n)
{
    const uint8_t *data = (const uint8_t *)r->page + p->page_size;
    uint64_t from = at % p->data_size;
    size_t part = p->data_size - from < n ? (size_t)(p->data_size - from) : n;

    memcpy(to, data + from, part);
    memcpy((uint8_t *)to + part, data, n - part);
}

/* true: younger records were left */
static bool take_ring(struct perfmap *p, struct ring *r, int64_t before_ns)
{
    uint64_t head = __atomic_load_n(&r->page->data_head, __ATOMIC_ACQUIRE);
    uint64_t tail = r->page->data_tail;

    while (head - tail >= sizeof(struct perf_event_header)) {
        struct perf_event_header h;
        uint8_t trailer[16];
        int64_t t;
        char *to;

        copy_out(p, r, tail, &h, sizeof h);
        if (h.size < sizeof h + TRAILER || h.size > head - tail)
            break; /* the kernel does not write such; without a size there is no next record */
        copy_out(p, r, tail + h.size - 16, trailer, sizeof trailer);
        memcpy(&t, trailer, sizeof t);
        if (t >= before_ns)
            break;
        to = buf_reserve(&p->copies, h.size);
        if (!to)
            break;
        copy_out(p, r, tail, to, h.size);
        if (p->n_item == p->room) {
            p->room = p->room ? 2 * p->room : 256;
            p->item = xrealloc(p->item, p->room * sizeof *p->item);
        }
        p->item[p->n_item] =
            (struct item){.t = t, .at = p->copies.n, .n = h.size, .order = p->n_item};
        p->n_item++;
        buf_commit(&p->copies, h.size);
        tail += h.size;
    }
    __atomic_store_n(&r->page->data_tail, tail, __ATOMIC_RELEASE);
    return tail != head;
}

static int by_time(const void *a, const void *b)
{
    const struct item *x = a, *y = b;

    if (x->t != y->t)
        return x->t < y->t ? -1 : 1;
    return (x->order > y->order) - (x->order < y->order);
}

bool perfmap_drain(struct perfmap *p, int64_t before_ns, perfmap_fn *fn, void *ctx)
{
    struct epoll_event ev[16];
    bool left = false;

    p->n_item = 0;
    buf_reset(&p->copies);
    while (epoll_wait(p->epoll, ev, 16, 0) == 16) /* the wake-ups are taken */
        ;
    for (uint32_t i = 0; i < p->n_ring; i++) {
        if (p->ring[i].fd >= 0)
            left |= take_ring(p, &p->ring[i], before_ns);
    }
    if (p->n_item)
        qsort(p->item, p->n_item, sizeof *p->item, by_time);
    for (uint32_t i = 0; i < p->n_item; i++) {
        struct perfmap_event e;

        if (perfmap_parse(p->copies.p + p->item[i].at, p->item[i].n, &e) == 0)
            fn(ctx, &e);
    }
    if (p->copies.room > (size_t)4 << 20) { /* a burst is over */
        buf_deinit(&p->copies);
        buf_init(&p->copies, (size_t)1 << 30);
    }
    return left;
}
