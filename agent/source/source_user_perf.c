// SPDX-License-Identifier: Apache-2.0
/*
 * Ticks of the kernel's cpu-clock for chosen threads: an event per thread that exists at the start
 * and CPU, inherited by threads and children that come later, so none is missed. All events of a
 * CPU write into one ring. A tick in kernel mode is not delivered to an ordinary user
 * (exclude_kernel), while the event's counter goes on: the difference is what is hidden.
 */
#include <dirent.h>
#include <errno.h>
#include <linux/perf_event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "agent/file/perfmap.h"
#include "agent/file/procfile.h"
#include "agent/source/source_user_private.h"
#include "base/arena.h"
#include "base/bytes.h"
#include "base/time.h"

#define PAGE       4096UL
#define MAX_PAGES  128 /* of a ring: 0.16 s of a busy CPU at 99 Hz and 32 KiB */
#define MIN_PAGES  16  /* must hold the largest record */
#define MAX_CPUS   8192
#define SPARE_FDS  64
#define SETTLED_NS NS_PER_MS /* younger records may still be overtaken by another CPU's */
#define MAX_RECORD 65536
#define SAMPLE_TYPE                                                                                \
    (PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_CPU | PERF_SAMPLE_REGS_USER |                \
     PERF_SAMPLE_STACK_USER)
/* enum perf_event_x86_regs, all but the segments': ax bx cx dx si di bp sp ip flags cs ss r8 .. r15
 */
#define REGS   UINT64_C(0xff0fff)
#define N_REGS 20

struct ring {
    struct perf_event_mmap_page *page;
    uint64_t size;
    int fd; /* of the event that owns it; -1: none */
};

struct user_perf {
    struct ring *ring; /* by CPU */
    uint32_t n_cpu, width;
    int *fd;
    uint32_t n_fd, room;
    uint8_t *record; /* one that wraps */
};

/* ---- opening --------------------------------------------------------------------------------- */

static struct perf_event_attr attr_of(const struct source_user *s, bool on_exec)
{
    return (struct perf_event_attr){
        .type = PERF_TYPE_SOFTWARE,
        .size = sizeof(struct perf_event_attr),
        .config = PERF_COUNT_SW_CPU_CLOCK,
        .sample_period = s->period_ns,
        .sample_type = SAMPLE_TYPE,
        .sample_regs_user = REGS,
        .sample_stack_user = s->stack_bytes,
        .disabled = 1,
        .enable_on_exec = on_exec,
        .inherit = 1,
        .exclude_kernel = 1,
        .exclude_hv = 1,
        .mmap = 1,
        .mmap2 = 1,
        .build_id = 1,
        .comm = 1,
        .comm_exec = 1,
        .task = 1,
        .sample_id_all = 1,
        .use_clockid = 1,
        .clockid = CLOCK_MONOTONIC,
    };
}

static int paranoid(void)
{
    struct buf b;
    int64_t v = -99;

    buf_init(&b, 64);
    if (procfile_read("/proc/sys/kernel", "perf_event_paranoid", &b, NULL) == 0) {
        if (!str_i64(str_to(buf_view(&b), str_find(buf_view(&b), '\n')), &v))
            v = -99;
    }
    buf_deinit(&b);
    return (int)v;
}

static int refusal(int code, struct err *err)
{
    int v = paranoid();

    if (code == EACCES && v > 2)
        return err_set(err, -code,
                       "perf_event_open: kernel.perf_event_paranoid is %d; 2 would do (sysctl)", v);
    if (code == EPERM || code == EACCES || code == ENOSYS)
        return err_set(err, -code,
                       "perf_event_open: %s: a seccomp filter (as containers have) or a security "
                       "module forbids the call; kernel.perf_event_paranoid is %d",
                       strerrordesc_np(code), v);
    if (code == EMFILE || code == ENFILE)
        return err_set(err, -code, "perf_event_open: %s: raise ulimit -n", strerrordesc_np(code));
    return err_set(err, -code, "perf_event_open: %s", strerrordesc_np(code));
}

static long event_open(struct perf_event_attr *a, uint32_t tid, uint32_t cpu)
{
    return syscall(SYS_perf_event_open, a, (pid_t)tid, (int)cpu, -1, PERF_FLAG_FD_CLOEXEC);
}

/* As large as the limits of locked memory allow. */
static int map_ring(struct ring *r, int fd, struct err *err)
{
    for (unsigned long pages = MAX_PAGES; pages >= MIN_PAGES; pages /= 2) {
        void *p = mmap(NULL, (1 + pages) * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

        if (p == MAP_FAILED)
            continue;
        *r = (struct ring){p, pages * PAGE, fd};
        return 0;
    }
    return err_set(err, -errno,
                   "perf: ring of %lu KiB: %s: raise ulimit -l or kernel.perf_event_mlock_kb",
                   MIN_PAGES * PAGE / 1024, strerrordesc_np(errno));
}

static void keep_fd(struct user_perf *p, int fd)
{
    if (p->n_fd == p->room) {
        p->room = p->room ? 2 * p->room : 64;
        p->fd = xrealloc(p->fd, p->room * sizeof *p->fd);
    }
    p->fd[p->n_fd++] = fd;
}

/* Of one thread on one CPU. 0; 1: the CPU is offline, or the thread has ended. */
static int open_one(struct source_user *s, struct perf_event_attr *a, uint32_t tid, uint32_t cpu,
                    struct err *err)
{
    struct user_perf *p = s->perf;
    struct ring *r = &p->ring[cpu];
    int fd = (int)event_open(a, tid, cpu);

    if (fd < 0 && errno == EINVAL && a->build_id) { /* before 5.12 */
        a->build_id = 0;
        fd = (int)event_open(a, tid, cpu);
    }
    if (fd < 0)
        return errno == ENODEV || errno == ESRCH ? 1 : refusal(errno, err);
    keep_fd(p, fd);
    if (r->fd < 0) {
        TRY(map_ring(r, fd, err));
        p->width++;
    } else if (ioctl(fd, PERF_EVENT_IOC_SET_OUTPUT, r->fd) < 0) {
        return err_set(err, -errno, "perf: redirect an event: %s", strerrordesc_np(errno));
    }
    return 0;
}

static int open_thread(struct source_user *s, uint32_t tid, bool on_exec, struct err *err)
{
    struct perf_event_attr a = attr_of(s, on_exec);

    for (uint32_t cpu = 0; cpu < s->perf->n_cpu; cpu++) {
        int r = open_one(s, &a, tid, cpu, err);

        if (r < 0) /* 1: there is nothing to open, and nothing is lost */
            return r;
    }
    return 0;
}

/* An event costs a descriptor, and there must be some left. */
static int enough_fds(uint64_t events, struct err *err)
{
    struct rlimit l;

    if (getrlimit(RLIMIT_NOFILE, &l) < 0)
        return 0;
    if (l.rlim_cur < events + SPARE_FDS && l.rlim_max >= events + SPARE_FDS) {
        l.rlim_cur = l.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &l);
    }
    return l.rlim_cur >= events + SPARE_FDS
               ? 0
               : err_set(err, -EMFILE,
                         "perf: %llu events (threads x CPUs) need as many descriptors: raise "
                         "ulimit -n",
                         (unsigned long long)events);
}

static int open_process(struct source_user *s, uint32_t pid, bool on_exec, struct err *err)
{
    uint32_t *tid = NULL;
    int n = threads_list("/proc", pid, &tid), r = 0;

    if (n < 0)
        return err_set(err, n, "process %u ended", pid);
    r = enough_fds(s->perf->n_fd + (uint64_t)n * s->perf->n_cpu, err);
    for (int i = 0; i < n && r >= 0; i++)
        r = open_thread(s, tid[i], on_exec, err);
    free(tid);
    return r;
}

int user_perf_open(struct source_user *s, const struct source_user_opts *o, struct err *err)
{
    struct user_perf *p = s->perf = xcalloc(1, sizeof *p);
    long n = sysconf(_SC_NPROCESSORS_CONF);

    p->n_cpu = n < 1 ? 1 : n > MAX_CPUS ? MAX_CPUS : (uint32_t)n;
    p->ring = xcalloc(p->n_cpu, sizeof *p->ring);
    p->record = xmalloc(MAX_RECORD);
    for (uint32_t i = 0; i < p->n_cpu; i++)
        p->ring[i].fd = -1;
    for (uint32_t i = 0; i < o->n_pid; i++)
        TRY(open_process(s, o->pid[i], o->on_exec && i == 0, err));
    if (!p->width)
        return err_set(err, -ESRCH, "process %u ended", o->pid[0]);
    for (uint32_t i = 0; i < p->n_fd && !o->on_exec; i++)
        (void)ioctl(p->fd[i], PERF_EVENT_IOC_ENABLE, 0);
    return 0;
}

void user_perf_close(struct user_perf *p)
{
    if (!p)
        return;
    for (uint32_t i = 0; i < p->n_cpu; i++)
        if (p->ring[i].page)
            (void)munmap(p->ring[i].page, PAGE + p->ring[i].size);
    for (uint32_t i = 0; i < p->n_fd; i++)
        (void)close(p->fd[i]);
    free(p->ring);
    free(p->fd);
    free(p->record);
    free(p);
}

/* ---- records --------------------------------------------------------------------------------- */

/* The record at the ring's tail, whole; NULL: there is none. */
static const uint8_t *peek(struct user_perf *p, struct ring *r, uint16_t *ret_size)
{
    const uint8_t *data = (const uint8_t *)r->page + r->page->data_offset;
    uint64_t head = __atomic_load_n(&r->page->data_head, __ATOMIC_ACQUIRE);
    uint64_t at = r->page->data_tail % r->size, first = r->size - at;
    struct perf_event_header h;

    if (r->page->data_tail >= head)
        return NULL;
    memcpy(&h, data + at, sizeof h); /* aligned to 8: a header never wraps */
    *ret_size = h.size;
    if (h.size <= first)
        return data + at;
    memcpy(p->record, data + at, first);
    memcpy(p->record + first, data, h.size - first);
    return p->record;
}

static void pop(struct ring *r, uint16_t size)
{
    __atomic_store_n(&r->page->data_tail, r->page->data_tail + size, __ATOMIC_RELEASE);
}

static int64_t time_of(const uint8_t *rec, uint16_t size)
{
    const struct perf_event_header *h = (const void *)rec;

    /* a sample begins with {tid, time, cpu}; the others end with it */
    return (int64_t)bytes_u64(rec + (h->type == PERF_RECORD_SAMPLE ? 16U : (size_t)size - 16));
}

/* {header; u32 pid, tid; u64 time; u32 cpu, res; u64 abi, regs[]; u64 size, stack[], dyn_size} */
static void take_sample(struct source_user *s, const uint8_t *rec, uint16_t size)
{
    static const int dwarf[N_REGS] = {0,  3,  2, 1, 4,  5,  6,  7,  16, -1,
                                      -1, -1, 8, 9, 10, 11, 12, 13, 14, 15};
    struct user_sample u = {.weight = s->period_ns};
    const struct proc *p;
    size_t at = 32;

    u.pid = bytes_u32(rec + 8);
    u.tid = bytes_u32(rec + 12);
    u.t = (int64_t)bytes_u64(rec + 16);
    u.cpu = bytes_u32(rec + 24);
    u.is_32 = size >= at + 8 && bytes_u64(rec + at) == PERF_SAMPLE_REGS_ABI_32;
    if (size >= at + 8 && bytes_u64(rec + at) == PERF_SAMPLE_REGS_ABI_64 &&
        size >= at + 8 + (size_t)N_REGS * 8 + 8) {
        uint64_t n;

        at += 8;
        for (int i = 0; i < N_REGS; i++, at += 8)
            if (dwarf[i] == 16)
                u.regs.pc = bytes_u64(rec + at);
            else if (dwarf[i] >= 0)
                u.regs.reg[dwarf[i]] = bytes_u64(rec + at);
        n = bytes_u64(rec + at);
        at += 8;
        if (n && n <= size - at - 8) {
            uint64_t valid = bytes_u64(rec + at + n);

            u.stack = (struct stack_copy){
                .at = u.regs.reg[7], .n = valid < n ? valid : n, .p = rec + at, .pid = u.pid};
        }
    }
    p = proc_find_at(s->procs, u.pid, u.t, s->now);
    if (p && p->comm.n)
        memcpy(u.comm, p->comm.p, p->comm.n < 15 ? p->comm.n : 15);
    user_sample(s, &u, user_unwind(s, &u));
}

static void take_record(struct source_user *s, const uint8_t *rec, uint16_t size)
{
    const struct perf_event_header *h = (const void *)rec;
    struct perfmap_event e;

    if (h->type == PERF_RECORD_SAMPLE) {
        take_sample(s, rec, size);
        return;
    }
    if (perfmap_parse(rec, size, &e) != 0)
        return;
    if (e.kind == PERFMAP_LOST) { /* nearly all are samples: 33 KB each, the others 100 bytes */
        s->lost_n += e.n;
        s->stats.lost += e.n;
    }
    proc_event(s->procs, &e);
}

/* The ring whose next record is the oldest; -1: none before the time. */
static int oldest(struct user_perf *p, int64_t before)
{
    int best = -1;

    for (uint32_t i = 0; i < p->n_cpu; i++) {
        const uint8_t *rec;
        uint16_t size;
        int64_t t;

        if (!p->ring[i].page)
            continue;
        rec = peek(p, &p->ring[i], &size);
        if (!rec)
            continue;
        t = time_of(rec, size);
        if (t < before) {
            before = t;
            best = (int)i;
        }
    }
    return best;
}

int user_perf_drain(struct source_user *s, struct err *err)
{
    int64_t before = s->finished ? INT64_MAX : s->now - SETTLED_NS;
    int i;

    (void)err;
    while ((i = oldest(s->perf, before)) >= 0) {
        struct ring *r = &s->perf->ring[i];
        uint16_t size;
        const uint8_t *rec = peek(s->perf, r, &size);

        if (((const struct perf_event_header *)(const void *)rec)->type == PERF_RECORD_SAMPLE)
            user_publish(s); /* mappings up to this moment */
        take_record(s, rec, size);
        pop(r, size);
    }
    return 0;
}

void user_perf_end(struct user_perf *p)
{
    for (uint32_t i = 0; i < p->n_fd; i++)
        (void)ioctl(p->fd[i], PERF_EVENT_IOC_DISABLE, 0);
}

uint64_t user_perf_counter(const struct user_perf *p)
{
    uint64_t sum = 0, v;

    for (uint32_t i = 0; i < p->n_fd; i++)
        if (read(p->fd[i], &v, sizeof v) == sizeof v)
            sum += v;
    return sum;
}

uint32_t user_perf_width(const struct user_perf *p)
{
    return p->width;
}
