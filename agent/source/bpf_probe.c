// SPDX-License-Identifier: Apache-2.0
/* What this machine's kernel and our rights allow: asked by trying, never by version numbers. */
#include <bpf/libbpf.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <linux/capability.h>
#include <linux/perf_event.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "agent/source/bpf_load.h"
#include "agent/source/bpf_switch.h"
#include "base/str.h"

#define BTF_PATH      "/sys/kernel/btf/vmlinux"
#define LOCKDOWN_PATH "/sys/kernel/security/lockdown"

[[gnu::format(printf, 5, 6)]] static void add(struct bpf_probe *p, const char *name,
                                              enum bpf_probe_state state, const char *remedy,
                                              const char *fmt, ...)
{
    struct bpf_probe_item *i = &p->item[p->n];
    va_list ap;

    if (p->n == BPF_PROBE_MAX)
        return;
    *i = (struct bpf_probe_item){.name = name, .state = state};
    if (state != BPF_PROBE_OK) {
        va_start(ap, fmt);
        // NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized)
        (void)vsnprintf(i->why, sizeof i->why, fmt, ap);
        va_end(ap);
        (void)snprintf(i->remedy, sizeof i->remedy, "%s", remedy);
    }
    if (state > p->worst)
        p->worst = state;
    p->n++;
}

static void ok(struct bpf_probe *p, const char *name)
{
    add(p, name, BPF_PROBE_OK, "", "%s", "");
}

/* Bytes of a small file, NUL-terminated; negative errno. */
static ssize_t slurp(const char *path, char *ret, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, ret, size - 1);
    int e = errno;

    if (fd >= 0)
        (void)close(fd);
    if (n < 0)
        return -e;
    ret[n] = 0;
    return n;
}

static bool effective_caps(uint64_t *ret)
{
    char text[8192];
    const char *at;

    if (slurp("/proc/self/status", text, sizeof text) < 0)
        return false;
    at = strstr(text, "CapEff:\t");
    if (!at)
        return false;
    at += 8;
    return str_hex64((struct str){at, strcspn(at, "\n")}, ret);
}

static const struct cap {
    const char *name;
    unsigned bit;
    enum bpf_probe_state without;
    const char *why;
} cap_table[] = {
    {"cap_bpf", CAP_BPF, BPF_PROBE_IMPOSSIBLE, "BPF programs and maps need CAP_BPF"},
    {"cap_perfmon", CAP_PERFMON, BPF_PROBE_IMPOSSIBLE, "ticks of every CPU need CAP_PERFMON"},
    {"cap_sys_ptrace", CAP_SYS_PTRACE, BPF_PROBE_DEGRADED,
     "without CAP_SYS_PTRACE only this user's own processes have mappings; others stop at nomap"},
    {"cap_checkpoint_restore", CAP_CHECKPOINT_RESTORE, BPF_PROBE_DEGRADED,
     "without CAP_CHECKPOINT_RESTORE deleted files, and new ones without a build id, have no unwind "
     "table"},
    {"cap_dac_read_search", CAP_DAC_READ_SEARCH, BPF_PROBE_DEGRADED,
     "without CAP_DAC_READ_SEARCH files closed to this user have no unwind table"},
    {"cap_syslog", CAP_SYSLOG, BPF_PROBE_DEGRADED,
     "without CAP_SYSLOG kernel frames stay raw addresses"},
};

static uint64_t probe_caps(struct bpf_probe *p)
{
    uint64_t have = 0;

    if (!effective_caps(&have)) { /* not "no rights": nothing at all can be seen */
        add(p, "proc", BPF_PROBE_IMPOSSIBLE, "mount /proc", "%s",
            "/proc/self/status cannot be read: no process could be seen");
        return 0;
    }
    if (have >> CAP_SYS_ADMIN & 1) /* CAP_BPF and CAP_PERFMON were split from it */
        have |= UINT64_C(1) << CAP_BPF | UINT64_C(1) << CAP_PERFMON |
                UINT64_C(1) << CAP_CHECKPOINT_RESTORE;
    for (size_t i = 0; i < sizeof cap_table / sizeof cap_table[0]; i++) {
        const struct cap *c = &cap_table[i];

        if (have >> c->bit & 1)
            ok(p, c->name);
        else
            add(p, c->name, c->without, "run as root, or grant it (setcap, AmbientCapabilities=)",
                "%s", c->why);
    }
    return have;
}

static void probe_btf(struct bpf_probe *p)
{
    if (access(BTF_PATH, R_OK) == 0)
        ok(p, "btf");
    else
        add(p, "btf", BPF_PROBE_IMPOSSIBLE, "use a distribution kernel, or build with that option",
            "kernel built without CONFIG_DEBUG_INFO_BTF (%s: %s)", BTF_PATH,
            strerrordesc_np(errno));
}

static void probe_lockdown(struct bpf_probe *p)
{
    char text[256];

    if (slurp(LOCKDOWN_PATH, text, sizeof text) > 0 && strstr(text, "[confidentiality]"))
        add(p, "lockdown", BPF_PROBE_IMPOSSIBLE, "boot with lockdown=integrity or none",
            "kernel lockdown is \"confidentiality\": BPF may not read memory");
    else
        ok(p, "lockdown");
}

static void probe_perf(struct bpf_probe *p)
{
    struct perf_event_attr a = {
        .type = PERF_TYPE_SOFTWARE,
        .config = PERF_COUNT_SW_CPU_CLOCK,
        .size = sizeof a,
        .sample_period = 1000000000,
        .disabled = 1,
    };
    int fd = (int)syscall(SYS_perf_event_open, &a, -1, 0, -1, PERF_FLAG_FD_CLOEXEC);

    if (fd >= 0) {
        (void)close(fd);
        ok(p, "perf_event");
        return;
    }
    add(p, "perf_event", BPF_PROBE_IMPOSSIBLE,
        errno == EMFILE ? "raise ulimit -n to 2 per CPU + 64"
                        : "grant CAP_PERFMON; in a container allow perf_event_open",
        "perf_event_open: %s", strerrordesc_np(errno));
}

/* has: 1 yes, 0 no, negative errno */
static void probe_bpf(struct bpf_probe *p, const char *name, int has, enum bpf_probe_state without,
                      const char *lost)
{
    struct utsname u = {};

    if (has == 1) {
        ok(p, name);
        return;
    }
    (void)uname(&u);
    if (has == 0)
        add(p, name, without, "use a newer kernel (5.15 or later has all)",
            "this kernel's BPF has no %s (it calls itself %.40s)%s", name, u.release, lost);
    else
        add(p, name, without, "see the errno: memory limit of the cgroup, or a security module",
            "%s: %s%s", name, strerrordesc_np(-has), lost);
}

/* Not needed: a counted loop reaches as far. */
static void probe_loop(struct bpf_probe *p, bool none)
{
    int has = none ? 0 : libbpf_probe_bpf_helper(BPF_PROG_TYPE_PERF_EVENT, BPF_FUNC_loop, NULL);

    ok(p, "bpf_loop");
    if (has != 1)
        (void)snprintf(p->item[p->n - 1].why, sizeof p->item[0].why,
                       "not here: stacks are walked by a counted loop, chains up to %d frames",
                       SA_MAX_NATIVE);
}

void bpf_load_probe(bool no_bpf_loop, struct bpf_probe *ret)
{
    uint64_t need = UINT64_C(1) << CAP_BPF | UINT64_C(1) << CAP_PERFMON, have;
    const enum bpf_prog_type perf = BPF_PROG_TYPE_PERF_EVENT;

    *ret = (struct bpf_probe){};
    (void)libbpf_set_print(NULL);
    have = probe_caps(ret);
    probe_lockdown(ret);
    probe_btf(ret);
    probe_perf(ret);
    if ((have & need) != need)
        return; /* the answers below would only repeat EPERM */
    probe_bpf(ret, "bpf_task_pt_regs", libbpf_probe_bpf_helper(perf, BPF_FUNC_task_pt_regs, NULL),
              BPF_PROBE_IMPOSSIBLE, "");
    probe_bpf(ret, "ringbuf", libbpf_probe_bpf_map_type(BPF_MAP_TYPE_RINGBUF, NULL),
              BPF_PROBE_IMPOSSIBLE, "");
    probe_loop(ret, no_bpf_loop);
    probe_bpf(ret, "task_storage", libbpf_probe_bpf_map_type(BPF_MAP_TYPE_TASK_STORAGE, NULL),
              BPF_PROBE_DEGRADED, ": no off-CPU time");
    probe_bpf(ret, "sched_switch", bpf_switch_possible(), BPF_PROBE_DEGRADED, ": no off-CPU time");
}

void bpf_load_probe_text(const struct bpf_probe *p, char *ret, size_t size)
{
    for (uint32_t i = 0; i < p->n; i++) {
        const struct bpf_probe_item *m = &p->item[i];

        if (m->state != p->worst || m->state == BPF_PROBE_OK)
            continue;
        (void)snprintf(ret, size, "%s: %s%s%s", m->name, m->why, m->remedy[0] ? "; " : "",
                       m->remedy);
        return;
    }
    (void)snprintf(ret, size, "ok");
}
