// SPDX-License-Identifier: Apache-2.0
#include "agent/apart/apart.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "agent/apart/privs.h"
#include "agent/apart/sandbox.h"
#include "agent/file/procfile.h"
#include "base/thread.h"
#include "base/time.h"

#define ANSWER_MS 10000
#define CLOSE_MS  2000
#define FILES     256 /* descriptors of one of them */

/* To the starter and back, one message each. */
struct order {
    uint32_t role, n_fd;
};
struct report {
    int32_t pid; /* or a negative errno */
    int32_t before;
};

/* ---- the agent's side ---------------------------------------------------------------------- */

static struct {
    struct mutex mu;                    /* one order at a time */
    atomic_int control;                 /* 0: none */
    apart_serve_fn *serve[APART_ROLES]; /* as of apart_open() */
    _Atomic pid_t starter, pid[APART_ROLES];
    _Atomic uint64_t cpu_before; /* of those that ended */
    _Atomic uint64_t cpu_seen[APART_ROLES];
} the = {.mu = MUTEX_INIT};

const char *apart_role_name(enum apart_role r)
{
    static const char *const name[APART_ROLES] = {"reader", "sender"};

    return r < APART_ROLES ? name[r] : "";
}

bool apart_is_on(void)
{
    return atomic_load(&the.control) > 0;
}

pid_t apart_starter(void)
{
    return atomic_load(&the.starter);
}

pid_t apart_pid(enum apart_role role)
{
    return atomic_load(&the.pid[role]);
}

static int send_order(int to, const struct order *o, const int *fd)
{
    union {
        struct cmsghdr h;
        char room[CMSG_SPACE(APART_FDS * sizeof(int))];
    } control = {};
    struct iovec part = {(void *)(uintptr_t)o, sizeof *o}; // NOLINT(performance-no-int-to-ptr)
    struct msghdr m = {.msg_iov = &part,
                       .msg_iovlen = 1,
                       .msg_control = &control,
                       .msg_controllen = CMSG_SPACE(o->n_fd * sizeof(int))};

    control.h = (struct cmsghdr){.cmsg_level = SOL_SOCKET,
                                 .cmsg_type = SCM_RIGHTS,
                                 .cmsg_len = CMSG_LEN(o->n_fd * sizeof(int))};
    memcpy(CMSG_DATA(&control.h), fd, o->n_fd * sizeof(int));
    return sendmsg(to, &m, MSG_NOSIGNAL) < 0 ? -errno : 0;
}

/* 0, or -ETIMEDOUT, -EPIPE. */
static int wait_for(int fd, int ms)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    int r;

    do
        r = poll(&p, 1, ms);
    while (r < 0 && errno == EINTR);
    return r < 0 ? -errno : r == 0 ? -ETIMEDOUT : 0;
}

static int order_locked(const struct order *o, const int *fd, struct report *ret) REQUIRES(&the.mu)
{
    int control = atomic_load(&the.control), r;
    ssize_t n;

    if (control <= 0)
        return -EPIPE;
    r = send_order(control, o, fd);
    if (r == 0)
        r = wait_for(control, ANSWER_MS);
    if (r < 0)
        return r;
    n = recv(control, ret, sizeof *ret, 0);
    return n == sizeof *ret ? 0 : -EPIPE;
}

int apart_start(enum apart_role role, const int *fd, unsigned n, struct apart_started *ret,
                struct err *err)
{
    const struct order o = {.role = role, .n_fd = n};
    struct report got = {};
    int r;

    assert(n && n <= APART_FDS);
    mutex_lock(&the.mu);
    (void)apart_cpu_ns(); /* the last word of the one before */
    r = order_locked(&o, fd, &got);
    if (r < 0) /* a late answer would be taken for the next one's */
        (void)shutdown(atomic_load(&the.control), SHUT_RDWR);
    if (r == 0 && got.pid <= 0)
        r = got.pid < 0 ? got.pid : -EPIPE;
    if (r == 0) {
        atomic_fetch_add(&the.cpu_before, atomic_exchange(&the.cpu_seen[role], 0));
        atomic_store(&the.pid[role], got.pid);
    }
    mutex_unlock(&the.mu);
    if (r < 0)
        return err_set(err, r, "%s: cannot be started: %s", apart_role_name(role),
                       strerrordesc_np(-r));
    *ret = (struct apart_started){.pid = got.pid, .before = got.before};
    return 0;
}

int apart_check(struct err *err)
{
    int control = atomic_load(&the.control);
    struct pollfd p = {.fd = control};

    if (control <= 0)
        return 0;
    if (poll(&p, 1, 0) > 0 && p.revents & (POLLHUP | POLLERR))
        return err_set(err, -EPIPE, "the process that starts the others is gone");
    return 0;
}

uint64_t apart_cpu_ns(void)
{
    uint64_t sum = atomic_load(&the.cpu_before);

    for (unsigned i = 0; i < APART_ROLES; i++) {
        pid_t pid = atomic_load(&the.pid[i]);
        struct timespec t;
        clockid_t id;

        if (pid > 0 && clock_getcpuclockid(pid, &id) == 0 && clock_gettime(id, &t) == 0)
            atomic_store(&the.cpu_seen[i], (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec);
        sum += atomic_load(&the.cpu_seen[i]);
    }
    return sum;
}

static uint64_t status_hex(struct str status, struct str key)
{
    const char *at = status.n ? memmem(status.p, status.n, key.p, key.n) : NULL;
    struct str s;
    uint64_t v = 0;

    if (!at)
        return 0;
    s = str_from(status, (size_t)(at - status.p) + key.n);
    return str_hex64(str_to(s, str_find(s, '\n')), &v) ? v : 0;
}

void apart_rights(pid_t pid, char ret[static APART_RIGHTS])
{
    static const struct {
        unsigned bit;
        const char *name;
    } cap[] = {{CAP_BPF, "cap_bpf"},
               {CAP_PERFMON, "cap_perfmon"},
               {CAP_SYS_PTRACE, "cap_sys_ptrace"},
               {CAP_CHECKPOINT_RESTORE, "cap_checkpoint_restore"},
               {CAP_DAC_READ_SEARCH, "cap_dac_read_search"},
               {CAP_SYSLOG, "cap_syslog"}};
    uint64_t has;
    char dir[32];
    struct buf b;
    size_t n = 0;

    (void)snprintf(dir, sizeof dir, "/proc/%d", (int)pid);
    buf_init(&b, 65536);
    if (procfile_read(dir, "status", &b, NULL) < 0) {
        (void)snprintf(ret, APART_RIGHTS, "gone");
        buf_deinit(&b);
        return;
    }
    has = status_hex(buf_view(&b), STR("CapEff:\t"));
    for (size_t i = 0; i < sizeof cap / sizeof cap[0]; i++) {
        if (has >> cap[i].bit & 1)
            n += (size_t)snprintf(ret + n, APART_RIGHTS - n, "%s%s", n ? " " : "", cap[i].name);
        has &= ~(UINT64_C(1) << cap[i].bit);
    }
    if (has)
        n += (size_t)snprintf(ret + n, APART_RIGHTS - n, "%sothers %#llx", n ? " " : "",
                              (unsigned long long)has);
    (void)snprintf(ret + n, APART_RIGHTS - n, "%s, calls %s", n ? "" : "no capabilities",
                   status_hex(buf_view(&b), STR("Seccomp:\t")) ? "filtered" : "not filtered");
    buf_deinit(&b);
}

/* ---- the starter --------------------------------------------------------------------------- */

/* What its messages bring; a surplus is closed. -1: nothing that makes sense. */
static int take_order(int control, struct order *o, int fd[static APART_FDS])
{
    union {
        struct cmsghdr h;
        char room[CMSG_SPACE(APART_FDS * sizeof(int))];
    } space = {};
    struct iovec part = {o, sizeof *o};
    struct msghdr m = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = &space, .msg_controllen = sizeof space};
    ssize_t n = recvmsg(control, &m, MSG_CMSG_CLOEXEC);
    const struct cmsghdr *h = n > 0 ? CMSG_FIRSTHDR(&m) : NULL;
    unsigned have = 0;

    if (n <= 0)
        return (int)n;
    if (h && h->cmsg_type == SCM_RIGHTS) {
        have = (unsigned)((h->cmsg_len - CMSG_LEN(0)) / sizeof(int));
        memcpy(fd, CMSG_DATA(h), have * sizeof(int));
    }
    return n == sizeof *o && o->role < APART_ROLES && o->n_fd == have ? 1 : -1;
}

static void plain_limits(void)
{
    static const struct rlimit files = {FILES, FILES}, none = {0, 0};

    (void)setrlimit(RLIMIT_NOFILE, &files);
    (void)setrlimit(RLIMIT_CORE, &none);
}

/* In the child: descriptors 3.., and nothing beside them but the standard ones. */
[[gnu::noreturn]] static void be(enum apart_role role, const int *fd, unsigned n, int control)
{
    pid_t starter = getppid();
    int at[APART_FDS];
    int most = 2;

    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != starter)
        _exit(1);
    (void)close(control);
    for (unsigned i = 0; i < n; i++) { /* they lie above what is closed, in any order */
        at[i] = fd[i];
        most = at[i] > most ? at[i] : most;
    }
    (void)close_range((unsigned)most + 1, ~0U, 0);
    plain_limits();
    _exit(the.serve[role](at, n));
}

static int make(enum apart_role role, const int *fd, unsigned n, int control)
{
    pid_t pid = fork();

    if (pid == 0)
        be(role, fd, n, control);
    return pid < 0 ? -errno : (int)pid;
}

static int end_one(pid_t *pid)
{
    int status = -1;

    if (*pid <= 0)
        return -1;
    (void)kill(*pid, SIGKILL);
    while (waitpid(*pid, &status, 0) < 0 && errno == EINTR)
        ;
    *pid = 0;
    return status;
}

/* Until the agent is gone. */
[[gnu::noreturn]] static void start_them(int control)
{
    pid_t pid[APART_ROLES] = {};
    struct order o;
    int fd[APART_FDS], r;

    while ((r = take_order(control, &o, fd)) != 0) {
        struct report report = {.pid = -EINVAL, .before = -1};

        if (r < 0 && errno == EINTR)
            continue;
        if (r > 0) {
            report.before = end_one(&pid[o.role]);
            report.pid = make(o.role, fd, o.n_fd, control);
            pid[o.role] = report.pid > 0 ? report.pid : 0;
            for (unsigned i = 0; i < o.n_fd; i++)
                (void)close(fd[i]);
        }
        if (send(control, &report, sizeof report, MSG_NOSIGNAL) < 0)
            break;
    }
    for (unsigned i = 0; i < APART_ROLES; i++)
        (void)end_one(&pid[i]);
    _exit(0);
}

/* Its rights are those of all whom it starts: they give away what is not theirs. */
[[gnu::noreturn]] static void starter(int control, pid_t agent)
{
    static const int ignored[] = {SIGINT, SIGTERM, SIGHUP, SIGPIPE};
    struct err err = {};

    (void)prctl(PR_SET_NAME, "strata-starter");
    for (unsigned i = 0; i < sizeof ignored / sizeof ignored[0]; i++)
        (void)signal(ignored[i], SIG_IGN); // the agent hears them, and ends the others
    privs_drop_thread();
    (void)prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    (void)prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != agent)
        _exit(1);
    (void)sandbox_starter(&err); /* missing: check has said so */
    start_them(control);
}

int apart_open(apart_serve_fn *const serve[static APART_ROLES], struct err *err)
{
    pid_t agent = getpid(), pid;
    int ends[2];

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
        return err_set(err, -errno, "other processes: socketpair: %s", strerrordesc_np(errno));
    memcpy(the.serve, serve, sizeof the.serve);
    (void)signal(SIGCHLD, SIG_IGN); /* it is never waited for */
    pid = fork();
    if (pid < 0) {
        int r = -errno;

        (void)close(ends[0]);
        (void)close(ends[1]);
        return err_set(err, r, "other processes: fork: %s", strerrordesc_np(-r));
    }
    if (pid == 0) {
        (void)close(ends[0]);
        (void)signal(SIGCHLD, SIG_DFL);
        starter(ends[1], agent);
    }
    (void)close(ends[1]);
    atomic_store(&the.starter, pid);
    atomic_store(&the.control, ends[0]);
    return 0;
}

void apart_close(void)
{
    int control = atomic_exchange(&the.control, 0);
    char byte;

    if (control <= 0)
        return;
    (void)shutdown(control, SHUT_WR);
    if (wait_for(control, CLOSE_MS) == 0)
        (void)recv(control, &byte, 1, MSG_DONTWAIT);
    (void)close(control);
    atomic_store(&the.starter, 0);
    for (unsigned i = 0; i < APART_ROLES; i++)
        atomic_store(&the.pid[i], 0);
}
