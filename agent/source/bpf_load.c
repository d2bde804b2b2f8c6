// SPDX-License-Identifier: Apache-2.0
#include "agent/source/bpf_load.h"

#include <assert.h>
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/perf_event.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "agent/source/bpf_skel.h"
#include "base/arena.h"
#include "base/str.h"
#include "base/time.h"

#define RING_MIN   (UINT32_C(4) << 20)
#define RING_MAX   (UINT32_C(1) << 30)
#define RECORD_LEN 512 /* of a usual record, to size the ring */
#define ACCT_TRIES 8
#define PERIOD_MIN UINT64_C(100000) /* 10 kHz */
#define ONLINE     "/sys/devices/system/cpu/online"

struct bpf_load {
    struct cpu_bpf *sk;
    struct ring_buffer *ring;
    const char *online_path;
    uint64_t period_ns;
    uint32_t pass_stack; /* 0: samples do not go to the events' rings */
    uint32_t n_cpu, width, fake_cpus;
    bool has_loop;
    uint64_t map_bytes;
    struct cpu_event {
        int fd; /* owned by link; -1: none */
        struct bpf_link *link;
    } * cpu;
    struct sa_acct *copy[2]; /* two readings of acct */
    struct sa_mapent *mapents;
    struct sa_pg *pgidx;
    struct sa_rule *rules;
    void (*fn)(void *ctx, const struct sa_ev *ev);
    void *fn_ctx;
};

/* libbpf's last complaint, for the error text. Its advice to raise "ulimit -l" is wrong on kernels
 * that charge maps to the cgroup. */
static _Thread_local char last_line[120];

[[gnu::format(printf, 2, 0)]] static int keep_line(enum libbpf_print_level level, const char *fmt,
                                                   va_list ap)
{
    char line[256];
    size_t n;

    if (level != LIBBPF_WARN)
        return 0;
    (void)vsnprintf(line, sizeof line, fmt, ap);
    n = strcspn(line, "\n");
    line[n] = 0;
    if (n && !strstr(line, "ulimit"))
        (void)snprintf(last_line, sizeof last_line, "%.*s", (int)sizeof last_line - 1, line);
    return 0;
}

/* ---- maps ----------------------------------------------------------------------------------- */

static uint32_t ring_size(uint64_t period_ns, uint32_t cpus)
{
    uint64_t want = (uint64_t)NS_PER_S / period_ns * cpus * RECORD_LEN / 2;
    uint32_t size = RING_MIN;

    while (size < want && size < RING_MAX)
        size *= 2;
    return size;
}

static int map_array(const struct bpf_map *m, size_t entry, void **ret, struct err *err)
{
    size_t n = bpf_map__max_entries(m) * entry;
    void *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_SHARED, bpf_map__fd(m), 0);

    if (p == MAP_FAILED)
        return err_set(err, -errno, "mmap of BPF map %s, %zu bytes: %s", bpf_map__name(m), n,
                       strerrordesc_np(errno));
    *ret = p;
    return 0;
}

static int map_arrays(struct bpf_load *b, struct err *err)
{
    void *p;

    TRY(map_array(b->sk->maps.mapents, sizeof *b->mapents, &p, err));
    b->mapents = p;
    TRY(map_array(b->sk->maps.pgidx, sizeof *b->pgidx, &p, err));
    b->pgidx = p;
    TRY(map_array(b->sk->maps.rules, sizeof *b->rules, &p, err));
    b->rules = p;
    return 0;
}

static int proc_set(void *ctx, const struct sa_proc *p)
{
    const struct bpf_load *b = ctx;

    return bpf_map_update_elem(bpf_map__fd(b->sk->maps.procs), &p->tgid, p, BPF_ANY);
}

static int proc_del(void *ctx, uint32_t tgid)
{
    const struct bpf_load *b = ctx;

    return bpf_map_delete_elem(bpf_map__fd(b->sk->maps.procs), &tgid);
}

static int chunk_make(int *ret_fd, struct sa_row **ret)
{
    LIBBPF_OPTS(bpf_map_create_opts, o, .map_flags = BPF_F_MMAPABLE);
    int fd = bpf_map_create(BPF_MAP_TYPE_ARRAY, "sa_rows", 4, 8, SA_CHUNK_ROWS / 2, &o);
    void *p;

    if (fd < 0)
        return fd;
    p = mmap(NULL, SA_CHUNK_ROWS * sizeof(struct sa_row), PROT_READ | PROT_WRITE, MAP_SHARED, fd,
             0);
    if (p == MAP_FAILED) {
        int e = -errno;

        (void)close(fd);
        return e;
    }
    *ret_fd = fd;
    *ret = p;
    return 0;
}

/* One insert into the outer map waits for an RCU grace period; a batch waits once. */
static int chunk_new(void *ctx, uint32_t first, uint32_t n, struct sa_row **ret)
{
    const struct bpf_load *b = ctx;
    LIBBPF_OPTS(bpf_map_batch_opts, o);
    int fd[SA_MAX_CHUNKS] = {}, r = 0, outer = bpf_map__fd(b->sk->maps.chunks);
    uint32_t key[SA_MAX_CHUNKS], made = 0, count = n;

    assert(n <= SA_MAX_CHUNKS - first);
    for (; made < n; made++) {
        key[made] = first + made;
        r = chunk_make(&fd[made], &ret[made]);
        if (r < 0)
            break;
    }
    if (r == 0)
        r = bpf_map_update_batch(outer, key, fd, &count, &o);
    for (uint32_t i = 0; i < made; i++) {
        if (r < 0)
            (void)munmap(ret[i], SA_CHUNK_ROWS * sizeof(struct sa_row));
        (void)close(fd[i]);
    }
    return r;
}

struct tables_io bpf_load_tables_io(struct bpf_load *b)
{
    return (struct tables_io){
        .mapents = b->mapents,
        .pgidx = b->pgidx,
        .rules = b->rules,
        .n_mapents = SA_MAX_MAPENTS,
        .n_pgidx = SA_MAX_PAGES,
        .n_rules = SA_MAX_RULES,
        .n_chunks = SA_MAX_CHUNKS,
        .ctx = b,
        .proc_set = proc_set,
        .proc_del = proc_del,
        .chunk_new = chunk_new,
    };
}

uint64_t bpf_load_fd_bytes(int map)
{
    char path[64], text[1024];
    const char *at;
    uint64_t v = 0;
    ssize_t n;
    int fd;

    (void)snprintf(path, sizeof path, "/proc/self/fdinfo/%d", map);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0)
        (void)close(fd);
    text[n < 0 ? 0 : n] = 0;
    at = strstr(text, "memlock:");
    if (!at)
        return 0;
    at += strcspn(at, "0123456789");
    return str_u64((struct str){at, strcspn(at, "\n")}, &v) ? v : 0;
}

static uint64_t map_bytes(const struct bpf_load *b)
{
    uint64_t sum = 0;
    const struct bpf_map *m;

    bpf_object__for_each_map(m, b->sk->obj)
    {
        uint64_t v = bpf_load_fd_bytes(bpf_map__fd(m));

        if (b->fake_cpus &&
            (bpf_map__type(m) == BPF_MAP_TYPE_PERCPU_ARRAY || m == b->sk->maps.known))
            v = v / b->n_cpu * b->fake_cpus;
        sum += v;
    }
    return sum;
}

uint64_t bpf_load_map_bytes(const struct bpf_load *b)
{
    return b->map_bytes;
}

int bpf_load_map_fd(const struct bpf_load *b, const char *name)
{
    return bpf_object__find_map_fd_by_name(b->sk->obj, name);
}

void bpf_load_rodata(const struct bpf_load *b, uint32_t *ret_watch, uint32_t *ret_has_loop,
                     uint32_t *ret_no_fp)
{
    *ret_watch = b->sk->rodata->sa_watch;
    *ret_has_loop = b->sk->rodata->sa_has_loop;
    *ret_no_fp = b->sk->rodata->sa_no_fp;
}

/* ---- who is watched ------------------------------------------------------------------------- */

int bpf_load_watch(struct bpf_load *b, uint32_t tgid, bool on, struct err *err)
{
    int fd = bpf_map__fd(b->sk->maps.watch);
    const uint8_t one = 1;
    int r = on ? bpf_map_update_elem(fd, &tgid, &one, BPF_ANY) : bpf_map_delete_elem(fd, &tgid);

    if (r == -ENOENT)
        return 0; /* it was not */
    return r < 0 ? err_set(err, r, "watch process %u: %s", tgid, strerrordesc_np(-r)) : 0;
}

bool bpf_load_watches(const struct bpf_load *b, uint32_t tgid)
{
    uint8_t v;

    return b->sk->rodata->sa_watch == BPF_LOAD_ALL ||
           bpf_map_lookup_elem(bpf_map__fd(b->sk->maps.watch), &tgid, &v) == 0;
}

uint64_t bpf_load_watch_full(const struct bpf_load *b)
{
    return b->sk->bss->sa_watch_full;
}

/* ---- events, one per CPU -------------------------------------------------------------------- */

static int event_error(uint32_t cpu, int code, struct err *err)
{
    if (code == -EACCES || code == -EPERM)
        return err_set(err, code,
                       "perf_event_open on CPU %u: %s: needs CAP_PERFMON (or root), or a seccomp "
                       "filter forbids the call",
                       cpu, strerrordesc_np(-code));
    if (code == -EMFILE)
        return err_set(err, code,
                       "perf_event_open on CPU %u: descriptor limit reached: needs 2 per CPU + 64, "
                       "raise ulimit -n",
                       cpu);
    return err_set(err, code, "perf_event_open on CPU %u: %s", cpu, strerrordesc_np(-code));
}

static int event_open(struct bpf_load *b, uint32_t cpu, struct err *err)
{
    /* never .freq: a frequency becomes a period at open, and a later change in Hz is then read as
     * nanoseconds */
    struct perf_event_attr a = {
        .type = PERF_TYPE_SOFTWARE,
        .config = PERF_COUNT_SW_CPU_CLOCK,
        .size = sizeof a,
        .sample_period = b->period_ns,
    };
    struct bpf_link *l;
    int fd;

    if (b->pass_stack) {
        a.sample_type =
            PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_REGS_USER | PERF_SAMPLE_STACK_USER;
        a.sample_regs_user = BPF_LOAD_PASS_REGS;
        a.sample_stack_user = b->pass_stack;
        a.use_clockid = 1;
        a.clockid = CLOCK_MONOTONIC;
    }
    fd = (int)syscall(SYS_perf_event_open, &a, -1, (int)cpu, -1, PERF_FLAG_FD_CLOEXEC);
    if (fd < 0)
        return event_error(cpu, -errno, err);
    l = bpf_program__attach_perf_event(b->sk->progs.on_tick, fd);
    if (!l) {
        int e = -errno;

        (void)close(fd);
        return err_set(err, e, "attach to the clock of CPU %u: %s", cpu, strerrordesc_np(-e));
    }
    b->cpu[cpu] = (struct cpu_event){fd, l};
    b->width++;
    return 0;
}

static void event_close(struct bpf_load *b, uint32_t cpu)
{
    if (b->cpu[cpu].fd < 0)
        return;
    (void)bpf_link__destroy(b->cpu[cpu].link); /* closes fd too */
    b->cpu[cpu] = (struct cpu_event){.fd = -1};
    b->width--;
}

int bpf_load_event_fd(const struct bpf_load *b, uint32_t cpu)
{
    return b->cpu[cpu].fd;
}

/* "0-3,5" into on[n]; CPUs beyond n are not ours. */
static int online_parse(struct str s, bool *on, uint32_t n)
{
    while (s.n) {
        struct str part = str_to(s, str_find(s, ','));
        size_t dash = str_find(part, '-');
        uint64_t lo, hi;

        s = str_from(s, part.n < s.n ? part.n + 1 : s.n);
        if (!str_u64(str_to(part, dash), &lo))
            return -EINVAL;
        hi = lo;
        if (dash != SIZE_MAX && !str_u64(str_from(part, dash + 1), &hi))
            return -EINVAL;
        for (; lo <= hi && lo < n; lo++)
            on[lo] = true;
    }
    return 0;
}

static int online_read(const struct bpf_load *b, bool *on, struct err *err)
{
    char text[4096];
    int fd = open(b->online_path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text);
    int e = n < 0 ? -errno : 0;

    if (fd >= 0)
        (void)close(fd);
    if (e)
        return err_set(err, e, "%s: %s", b->online_path, strerrordesc_np(-e));
    while (n && text[n - 1] == '\n')
        n--;
    if (online_parse((struct str){text, (size_t)n}, on, b->n_cpu))
        return err_set(err, -EINVAL, "%s: \"%.*s\" is no list of CPUs", b->online_path, (int)n,
                       text);
    return 0;
}

int bpf_load_poll_cpus(struct bpf_load *b, struct err *err)
{
    bool *on = xcalloc(b->n_cpu, sizeof *on);
    int r = online_read(b, on, err), n = 0;

    for (uint32_t i = 0; i < b->n_cpu && r == 0; i++) {
        if (on[i] == (b->cpu[i].fd >= 0))
            continue;
        n++;
        if (on[i])
            r = event_open(b, i, err);
        else
            event_close(b, i);
    }
    free(on);
    return r < 0 ? r : n;
}

int bpf_load_set_period(struct bpf_load *b, uint64_t period_ns, struct err *err)
{
    b->period_ns = period_ns;
    b->sk->bss->sa_period = period_ns;
    for (uint32_t i = 0; i < b->n_cpu; i++)
        if (b->cpu[i].fd >= 0 && ioctl(b->cpu[i].fd, PERF_EVENT_IOC_PERIOD, &period_ns))
            return err_set(err, -errno, "period of CPU %u to %llu ns: %s", i,
                           (unsigned long long)period_ns, strerrordesc_np(errno));
    return 0;
}

/* ---- ring, account -------------------------------------------------------------------------- */

static int on_record(void *ctx, void *data, size_t size)
{
    const struct bpf_load *b = ctx;
    const struct sa_ev *ev = data;

    /* our own program wrote it */
    assert(size >= sizeof *ev && size == sizeof *ev + 8 * ((size_t)ev->nk + ev->nu));
    b->fn(b->fn_ctx, ev);
    return 0;
}

int bpf_load_drain(struct bpf_load *b, void (*fn)(void *ctx, const struct sa_ev *ev), void *ctx)
{
    b->fn = fn;
    b->fn_ctx = ctx;
    return ring_buffer__consume(b->ring);
}

int bpf_load_ring_fd(const struct bpf_load *b)
{
    return bpf_map__fd(b->sk->maps.samples);
}

void bpf_load_wake(struct bpf_load *b, uint32_t stops)
{
    b->sk->bss->sa_wake_stops = stops;
}

uint32_t bpf_load_cpus(const struct bpf_load *b)
{
    return b->n_cpu;
}

bool bpf_load_has_loop(const struct bpf_load *b)
{
    return b->has_loop;
}

uint32_t bpf_load_width(const struct bpf_load *b)
{
    return b->width;
}

int bpf_load_acct(struct bpf_load *b, struct sa_acct *a)
{
    int fd = bpf_map__fd(b->sk->maps.acct), left = (int)b->n_cpu;
    bool *have = xcalloc(b->n_cpu, sizeof *have);
    uint32_t zero = 0;

    for (int t = 0; t < ACCT_TRIES && left > 0; t++) {
        for (int k = 0; k < 2; k++) {
            int r = bpf_map_lookup_elem(fd, &zero, b->copy[k]);

            if (r < 0) {
                free(have);
                return r;
            }
        }
        for (uint32_t i = 0; i < b->n_cpu; i++) {
            if (have[i] || b->copy[0][i].seq % 2 ||
                memcmp(&b->copy[0][i], &b->copy[1][i], sizeof b->copy[0][i]) != 0)
                continue;
            a[i] = b->copy[0][i];
            have[i] = true;
            left--;
        }
    }
    free(have);
    return left;
}

/* ---- life ----------------------------------------------------------------------------------- */

static int load_failed(int code, struct err *err)
{
    struct bpf_probe p;
    char text[340];

    if (code == -EMFILE)
        return err_set(err, code,
                       "load of the BPF programs: descriptor limit reached: needs 2 per CPU + 64, "
                       "raise ulimit -n");
    bpf_load_probe(false, &p);
    if (p.worst == BPF_PROBE_IMPOSSIBLE) {
        bpf_load_probe_text(&p, text, sizeof text);
        return err_set(err, code, "no BPF here: %.140s", text);
    }
    return err_set(err, code, "load of the BPF programs: %s: %s", strerrordesc_np(-code),
                   last_line);
}

static int load_programs(struct bpf_load *b, const struct bpf_load_opts *o, struct err *err)
{
    uint32_t cpus = o->fake_cpus ? o->fake_cpus : b->n_cpu;
    uint32_t ring = o->ring_bytes ? o->ring_bytes : ring_size(o->period_ns, cpus);
    int r;

    b->sk = cpu_bpf__open();
    if (!b->sk)
        return load_failed(-errno, err);
    b->has_loop = !o->no_bpf_loop &&
                  libbpf_probe_bpf_helper(BPF_PROG_TYPE_PERF_EVENT, BPF_FUNC_loop, NULL) == 1;
    b->sk->rodata->sa_has_loop = b->has_loop;
    b->sk->rodata->sa_no_fp = o->no_fallback_fp;
    b->sk->rodata->sa_do_user = !o->no_user;
    b->sk->rodata->sa_pass_tgid = o->pass_tgid;
    b->sk->bss->sa_period = o->period_ns;
    b->sk->rodata->sa_watch = o->watch;
    b->sk->rodata->sa_wake_bytes = ring / 4;
    r = bpf_map__set_max_entries(b->sk->maps.samples, ring);
    if (r == 0)
        r = bpf_map__set_max_entries(b->sk->maps.known, b->n_cpu);
    if (r == 0)
        r = bpf_program__set_autoload(b->sk->progs.on_fork, o->watch == BPF_LOAD_CHILDREN);
    if (r == 0)
        r = cpu_bpf__load(b->sk);
    if (r < 0)
        return load_failed(r, err);
    b->map_bytes = map_bytes(b);
    if (o->watch == BPF_LOAD_CHILDREN) {
        b->sk->links.on_fork = bpf_program__attach(b->sk->progs.on_fork);
        if (!b->sk->links.on_fork)
            return err_set(err, -errno, "attach to forks: %s", strerrordesc_np(errno));
    }
    b->ring = ring_buffer__new(bpf_map__fd(b->sk->maps.samples), on_record, b, NULL);
    if (!b->ring)
        return err_set(err, -errno, "ring buffer of %u bytes: %s", ring, strerrordesc_np(errno));
    return map_arrays(b, err);
}

int bpf_load_open(struct bpf_load **ret, const struct bpf_load_opts *opts, struct err *err)
{
    struct bpf_load *b;
    int n, r;

    if (opts->period_ns < PERIOD_MIN || opts->period_ns > (uint64_t)NS_PER_S)
        return err_set(err, -EINVAL, "sampling period %llu ns: 100 us to 1 s",
                       (unsigned long long)opts->period_ns);
    if (opts->ring_bytes % 4096 || opts->ring_bytes & (opts->ring_bytes - 1))
        return err_set(err, -EINVAL, "ring of %u bytes: a power of two, at least 4096",
                       opts->ring_bytes);
    (void)libbpf_set_print(keep_line);
    n = libbpf_num_possible_cpus();
    if (n <= 0)
        return err_set(err, n ? n : -EIO, "number of CPUs: %s", strerrordesc_np(-n));
    b = xcalloc(1, sizeof *b);
    b->n_cpu = (uint32_t)n;
    b->period_ns = opts->period_ns;
    b->pass_stack = opts->pass_stack;
    b->fake_cpus = opts->fake_cpus;
    b->online_path = opts->online_path ? opts->online_path : ONLINE;
    b->cpu = xcalloc(b->n_cpu, sizeof *b->cpu);
    for (uint32_t i = 0; i < b->n_cpu; i++)
        b->cpu[i].fd = -1;
    for (int k = 0; k < 2; k++)
        b->copy[k] = xcalloc(b->n_cpu, sizeof *b->copy[k]);
    r = load_programs(b, opts, err);
    if (r == 0)
        r = bpf_load_poll_cpus(b, err);
    if (r < 0) {
        (void)bpf_load_close(b);
        return r;
    }
    *ret = b;
    return 0;
}

static void unmap(void *p, size_t n)
{
    if (p)
        (void)munmap(p, n);
}

/* Row arrays stay mapped until the process ends: tables.c may still hold them. */
struct bpf_load *bpf_load_close(struct bpf_load *b)
{
    if (!b)
        return NULL;
    for (uint32_t i = 0; i < b->n_cpu; i++)
        event_close(b, i);
    ring_buffer__free(b->ring);
    unmap(b->mapents, SA_MAX_MAPENTS * sizeof *b->mapents);
    unmap(b->pgidx, SA_MAX_PAGES * sizeof *b->pgidx);
    unmap(b->rules, SA_MAX_RULES * sizeof *b->rules);
    cpu_bpf__destroy(b->sk);
    for (int k = 0; k < 2; k++)
        free(b->copy[k]);
    free(b->cpu);
    free(b);
    return NULL;
}
