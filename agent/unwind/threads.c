// SPDX-License-Identifier: Apache-2.0
#include "agent/unwind/threads.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/file/procfile.h"
#include "agent/proc/procread.h"
#include "base/arena.h"
#include "base/time.h"

#define USER32_CS 0x23 /* __USER32_CS of every x86-64 kernel */
#define PAGE      UINT64_C(4096)
#define SLICE_NS  100000 /* the least that the kernel takes */

static const char *const call_names[] = {
#include "agent/sysnames.inc"
};

const char *thread_call_name(int64_t nr)
{
    if (nr < 0 || nr >= (int64_t)(sizeof call_names / sizeof *call_names))
        return NULL;
    return call_names[nr];
}

/* ---- /proc ---------------------------------------------------------------------------------- */

/* One small file of a thread. */
static int read_file(const char *proc, uint32_t pid, uint32_t tid, const char *name,
                     struct buf *out)
{
    char dir[128];

    (void)snprintf(dir, sizeof dir, "%.64s/%u/task/%u", proc, pid, tid);
    return procfile_read(dir, name, out, NULL);
}

struct thread_sched thread_sched(const char *proc, uint32_t pid, uint32_t tid)
{
    struct thread_sched v = {};
    struct buf b;

    buf_init(&b, 4096);
    if (read_file(proc, pid, tid, "schedstat", &b) == 0) {
        buf_chr(&b, '\0');
        (void)sscanf(b.p, "%" SCNu64 " %" SCNu64 " %" SCNu64, // NOLINT(cert-err34-c)
                     &v.exec_ns, &v.run_delay_ns, &v.waits);
    }
    buf_deinit(&b);
    return v;
}

int thread_look(const char *proc, uint32_t pid, uint32_t tid, struct thread_look *ret)
{
    struct thread_look l = {};
    struct procread_stat st;
    struct buf b;
    size_t n;

    buf_init(&b, 65536);
    if (read_file(proc, pid, tid, "stat", &b) < 0 || !procread_stat_parse(buf_view(&b), &st)) {
        buf_deinit(&b);
        return -ESRCH;
    }
    l.state = st.state;
    l.start_ticks = st.start_ticks;
    n = st.comm.n < sizeof l.comm - 1 ? st.comm.n : sizeof l.comm - 1;
    memcpy(l.comm, st.comm.p, n);
    buf_deinit(&b);
    l.sched = thread_sched(proc, pid, tid);
    *ret = l;
    return 0;
}

/* The next word of a line, without the 0x of hex numbers. */
static struct str next_word(struct str *s)
{
    size_t to = 0;
    struct str w;

    while (to < s->n && s->p[to] != ' ' && s->p[to] != '\n')
        to++;
    w = str_to(*s, to);
    *s = str_from(*s, to + 1);
    return str_starts(w, STR("0x")) ? str_from(w, 2) : w;
}

/* "running", "NR A1 .. A6 SP PC" or "-1 SP PC"; all but NR in hex. */
static int parse_call(struct str s, struct thread_call *ret)
{
    struct str w = next_word(&s);

    *ret = (struct thread_call){.nr = -1};
    if (str_eq(w, STR("running"))) {
        ret->running = true;
        return 0;
    }
    if (!str_i64(w, &ret->nr))
        return -ENOSYS;
    for (w = next_word(&s); w.n; w = next_word(&s)) {
        ret->sp = ret->pc;
        if (!str_hex64(w, &ret->pc))
            return -ENOSYS;
    }
    return ret->sp ? 0 : -ENOSYS;
}

int thread_call(const char *proc, uint32_t pid, uint32_t tid, struct thread_call *ret)
{
    struct buf b;
    int r;

    buf_init(&b, 4096);
    r = read_file(proc, pid, tid, "syscall", &b);
    if (r == 0) {
        r = parse_call(buf_view(&b), ret);
    } else if (r == -ENOENT) {
        struct thread_look l;

        r = thread_look(proc, pid, tid, &l) < 0 ? -ESRCH : -ENOSYS;
    }
    buf_deinit(&b);
    return r;
}

int threads_list(const char *proc, uint32_t pid, uint32_t **ret)
{
    uint32_t *v = NULL;
    size_t n = 0, room = 0;
    const struct dirent *e;
    char dir[128];
    DIR *d;

    (void)snprintf(dir, sizeof dir, "%.64s/%u/task", proc, pid);
    d = opendir(dir);
    if (!d)
        return -ESRCH;
    // NOLINTNEXTLINE(concurrency-mt-unsafe): a directory stream of our own
    while ((e = readdir(d))) {
        uint64_t tid;

        if (!str_u64(str_c(e->d_name), &tid) || tid > INT32_MAX)
            continue;
        if (n == room) {
            room = room ? 2 * room : 16;
            v = xrealloc(v, room * sizeof *v);
        }
        v[n++] = (uint32_t)tid;
    }
    (void)closedir(d);
    *ret = v;
    return n ? (int)n : -ESRCH;
}

/* ---- stops ---------------------------------------------------------------------------------- */

/* While a thread stands we must not wait for a CPU longer than need be. A short slice, which anyone
 * may ask for, brings an early deadline (Linux 6.12; without effect before). */
static void be_prompt(void)
{
    struct { /* struct sched_attr of linux/sched/types.h, which glibc's sched.h collides with */
        uint32_t size, policy;
        uint64_t flags;
        int32_t nice;
        uint32_t priority;
        uint64_t runtime, deadline, period;
    } a = {.size = sizeof a, .nice = getpriority(PRIO_PROCESS, 0), .runtime = SLICE_NS};

    (void)syscall(SYS_sched_setattr, 0, &a, 0U);
}

void thread_stop_prepare(void)
{
    sigset_t set;

    be_prompt();
    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGCHLD);
    (void)pthread_sigmask(SIG_BLOCK, &set, NULL);
}

void thread_stop_wait(int64_t ns)
{
    const struct timespec t = {.tv_sec = ns / NS_PER_S, .tv_nsec = ns % NS_PER_S};
    sigset_t set;

    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGCHLD);
    (void)sigtimedwait(&set, NULL, &t);
}

int thread_stop(uint32_t tid)
{
    if (ptrace(PTRACE_SEIZE, (pid_t)tid, NULL, NULL) < 0)
        return -errno;
    if (ptrace(PTRACE_INTERRUPT, (pid_t)tid, NULL, NULL) < 0)
        return -errno;
    return 0;
}

int thread_stopped(uint32_t tid, bool own_child, struct unwind_regs *ret, bool *ret_32,
                   int *ret_signal)
{
    struct user_regs_struct r;
    siginfo_t si = {};
    int stop;

    if (waitid(P_PID, (id_t)tid, &si, WSTOPPED | WNOHANG | __WALL | (own_child ? 0 : WEXITED)) < 0)
        return errno == EINTR ? 0 : -ESRCH;
    if (si.si_pid == 0)
        return 0;
    if (si.si_code != CLD_TRAPPED && si.si_code != CLD_STOPPED)
        return -ESRCH;
    stop = si.si_status;
    /* a signal that came first: it is handed on when the thread is let go */
    *ret_signal = stop >> 8 ? 0 : stop & 0x7f;
    if (ptrace(PTRACE_GETREGS, (pid_t)tid, NULL, &r) < 0)
        return -ESRCH;
    *ret = unwind_regs_of_user(&r);
    *ret_32 = r.cs == USER32_CS;
    return 1;
}

void thread_let_go(uint32_t tid, int signal)
{
    // NOLINTNEXTLINE(performance-no-int-to-ptr): ptrace(2) takes the signal as a pointer
    (void)ptrace(PTRACE_DETACH, (pid_t)tid, NULL, (void *)(intptr_t)signal);
}

/* ---- stacks --------------------------------------------------------------------------------- */

static struct iovec piece(uint64_t at, uint64_t n)
{
    return (struct iovec){(void *)(uintptr_t)at, n}; // NOLINT(performance-no-int-to-ptr)
}

// NOLINTNEXTLINE(readability-non-const-parameter): process_vm_readv writes it
void stack_copy_take(struct stack_copy *ret, uint32_t pid, uint64_t sp, size_t n, uint8_t *room)
{
    struct iovec to = {room, n}, from[STACK_COPY_MAX / PAGE + 1];
    uint64_t at = sp, end = sp + n;
    unsigned long pieces = 0;
    ssize_t got;

    /* by page: a call that meets unmapped memory gives the pieces before it */
    while (at < end && pieces < sizeof from / sizeof *from) {
        uint64_t next = (at / PAGE + 1) * PAGE;

        next = next < end ? next : end;
        from[pieces++] = piece(at, next - at);
        at = next;
    }
    got = process_vm_readv((pid_t)pid, &to, 1, from, pieces, 0);
    *ret = (struct stack_copy){
        .at = sp, .n = got > 0 ? (uint64_t)got : 0, .p = room, .pid = pid, .live = true};
}

static int read_copy(void *ctx, void *to, uint32_t n, uint64_t at)
{
    const struct stack_copy *c = ctx;
    struct iovec l = {to, n}, r = piece(at, n);

    if (at >= c->at && at - c->at < c->n && c->n - (at - c->at) >= n) {
        memcpy(to, c->p + (at - c->at), n);
        return 0;
    }
    if (!c->live)
        return -1;
    return process_vm_readv((pid_t)c->pid, &l, 1, &r, 1, 0) == (ssize_t)n ? 0 : -1;
}

struct unwind_memory stack_copy_memory(struct stack_copy *c)
{
    return (struct unwind_memory){read_copy, c};
}
