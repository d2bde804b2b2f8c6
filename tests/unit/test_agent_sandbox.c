// SPDX-License-Identifier: Apache-2.0
/*
 * The filter of system calls: 64 calls that the agent never makes are refused with EPERM, also in a
 * thread that was there before; what it makes passes. Each is tried in a child, where the filter
 * stays. As arguments the calls get values that the kernel refuses otherwise with something else.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <linux/sched.h>
#include <pthread.h>
#include <seccomp.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/apart/sandbox.h"
#include "tests/lib/testing.h"

/* Without arguments that mean something: descriptors of nothing, addresses of nothing. */
static const char *const forbidden[] = {
    /* other programs, other processes */
    "execve",
    "execveat",
    "fork",
    "vfork",
    "ptrace",
    "process_vm_writev",
    "process_madvise",
    "pidfd_open",
    "pidfd_getfd",
    "pidfd_send_signal",
    "kcmp",
    "kill",
    "tkill",
    "rt_sigqueueinfo",
    "rt_tgsigqueueinfo",
    "wait4",
    "waitid",
    "setsid",
    "setpgid",
    "unshare",
    "setns",
    /* the machine */
    "mount",
    "umount2",
    "pivot_root",
    "chroot",
    "move_mount",
    "open_tree",
    "fsopen",
    "fsmount",
    "mount_setattr",
    "swapon",
    "swapoff",
    "reboot",
    "kexec_load",
    "kexec_file_load",
    "init_module",
    "finit_module",
    "delete_module",
    "sethostname",
    "setdomainname",
    "iopl",
    "ioperm",
    "acct",
    "settimeofday",
    "clock_settime",
    "adjtimex",
    "quotactl",
    "syslog",
    "vhangup",
    /* rights */
    "setuid",
    "setgid",
    "setreuid",
    "setresuid",
    "setgroups",
    "keyctl",
    "add_key",
    "request_key",
    "userfaultfd",
    "personality",
    /* files that it does not make, ports that it does not open */
    "mknodat",
    "linkat",
    "symlinkat",
    "fchmodat",
    "fchownat",
    "setxattr",
    "io_uring_setup",
    "fanotify_init",
    "listen",
    "accept4",
};
#define N_FORBIDDEN (sizeof forbidden / sizeof forbidden[0])

static long try_call(int nr)
{
    return syscall(nr, -1L, -1L, -1L, -1L, -1L, -1L);
}

/* Calls fn in a child under the filters; what it returns. */
static int in_child(int (*fn)(void), bool opened)
{
    int status;
    pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid == 0) {
        struct err err = {};

        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        if (sandbox_begin(true, &err) < 0 || (opened && sandbox_opened(&err) < 0)) {
            (void)fprintf(stderr, "%s\n", err.msg);
            _exit(200);
        }
        _exit(fn());
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

/* A build with sanitizers lets some pass that they make themselves. */
static bool is_listed(const char *call)
{
    const char *s;

    for (size_t i = 0; (s = sandbox_call(i)); i++) {
        if (strcmp(s, call) == 0)
            return true;
    }
    return false;
}

/* How many are not refused. */
static int try_forbidden(void)
{
    unsigned tried = 0;
    int passed = 0;

    for (unsigned i = 0; i < N_FORBIDDEN; i++) {
        int nr = seccomp_syscall_resolve_name(forbidden[i]);

        if (is_listed(forbidden[i]))
            continue;
        tried++;
        errno = 0;
        if (nr >= 0 && try_call(nr) == -1 && errno == EPERM)
            continue;
        (void)fprintf(stderr, "%s passes, errno %d\n", forbidden[i], errno);
        passed++;
    }
    return tried >= 60 ? passed : 100;
}

static void refused(void **state)
{
    (void)state;
    assert_true(N_FORBIDDEN >= 60);
    assert_int_equal(in_child(try_forbidden, false), 0);
    print_message("%zu forbidden calls: EPERM\n", N_FORBIDDEN);
}

/* The same without a filter, for those that do no harm: else the test above could not fail. */
static void otherwise_not(void **state)
{
    static const char *const harmless[] = {
        "pidfd_open", "kcmp",    "wait4",     "waitid",   "setpgid",
        "mknodat",    "linkat",  "symlinkat", "setxattr", "listen",
        "accept4",    "seccomp", "execve",    "keyctl",   "process_vm_writev"};

    (void)state;
    for (unsigned i = 0; i < sizeof harmless / sizeof harmless[0]; i++) {
        errno = 0;
        assert_int_equal(try_call(seccomp_syscall_resolve_name(harmless[i])), -1);
        if (errno == EPERM)
            print_message("%s: EPERM without our filter, too\n", harmless[i]);
        assert_int_not_equal(errno, EPERM);
    }
}

static void *nothing(void *ctx)
{
    return ctx;
}

#define EXPECT(cond)                                                                               \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            (void)fprintf(stderr, "line %d: %s, errno %d\n", __LINE__, #cond, errno);              \
            return 1;                                                                              \
        }                                                                                          \
    } while (0)

/* By argument: one value passes, another does not. */
static int try_arguments(void)
{
    union bpf_attr a = {};
    pthread_t t;
    int one = 1, s;

    EXPECT(pthread_create(&t, NULL, nothing, NULL) == 0 && pthread_join(t, NULL) == 0);
    EXPECT(syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0) == -1 && errno == EPERM);
    EXPECT(syscall(SYS_clone3, NULL, 0) == -1 && errno == ENOSYS);
    s = socket(AF_INET, SOCK_STREAM, 0);
    EXPECT(s >= 0 && ioctl(s, FIONBIO, &one) == 0);
    EXPECT(ioctl(s, TIOCSTI, "x") == -1 && errno == EPERM);
    EXPECT(socket(AF_PACKET, SOCK_RAW, 0) == -1 && errno == EPERM);
    EXPECT(socket(AF_VSOCK, SOCK_STREAM, 0) == -1 && errno == EPERM);
    EXPECT(prctl(PR_SET_NAME, "x") == 0);
    EXPECT(prctl(PR_SET_DUMPABLE, 1) == -1 && errno == EPERM);
    EXPECT(syscall(SYS_prlimit64, 0, 0, NULL, NULL) == 0);
    EXPECT(syscall(SYS_prlimit64, 0, 0, &a, NULL) == -1 && errno == EPERM);
    EXPECT(syscall(SYS_tgkill, getpid(), gettid(), 0) == 0);
    EXPECT(syscall(SYS_tgkill, getppid(), getppid(), 0) == -1 && errno == EPERM);
    EXPECT(open("/dev/null", O_RDONLY) >= 0);
    EXPECT(mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED);
    return 0;
}

static void by_argument(void **state)
{
    (void)state;
#if defined(__SANITIZE_ADDRESS__)
    skip();
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
    skip();
#endif
#endif
    assert_int_equal(in_child(try_arguments, false), 0);
}

/* Programs may be loaded until all is open; maps afterwards, too. EPERM may be the kernel's where
 * we have no rights: the size of the attributes is refused before it looks at them. */
static int try_bpf(void)
{
    return syscall(SYS_bpf, BPF_PROG_LOAD, NULL, 1UL << 20) == -1 && errno == E2BIG;
}

static int try_bpf_opened(void)
{
    EXPECT(syscall(SYS_bpf, BPF_PROG_LOAD, NULL, 1UL << 20) == -1 && errno == EPERM);
    EXPECT(syscall(SYS_bpf, BPF_OBJ_GET, NULL, 1UL << 20) == -1 && errno == EPERM);
    EXPECT(syscall(SYS_bpf, BPF_MAP_GET_FD_BY_ID, NULL, 1UL << 20) == -1 && errno == EPERM);
    EXPECT(syscall(SYS_bpf, BPF_MAP_UPDATE_ELEM, NULL, 1UL << 20) == -1 && errno == E2BIG);
    EXPECT(syscall(SYS_bpf, BPF_LINK_CREATE, NULL, 1UL << 20) == -1 && errno == E2BIG);
    EXPECT(try_call(SYS_seccomp) == -1 && errno == EPERM);
    return try_forbidden();
}

static void loading(void **state)
{
    (void)state;
    errno = 0;
    if (syscall(SYS_bpf, BPF_PROG_LOAD, NULL, 1UL << 20) != -1 || errno != E2BIG)
        skip(); /* bpf() is kept from us anyway */
    assert_int_equal(in_child(try_bpf, false), 1);
    assert_int_equal(in_child(try_bpf_opened, true), 0);
}

/* A thread that runs already gets it, too. */
static sem_t go;
static int thread_errno;

static void *wait_and_try(void *ctx)
{
    (void)ctx;
    sem_wait(&go);
    errno = 0;
    (void)try_call(SYS_pidfd_open);
    thread_errno = errno;
    return NULL;
}

static int with_thread(void)
{
    struct err err = {};
    pthread_t t;

    sem_init(&go, 0, 0);
    EXPECT(pthread_create(&t, NULL, wait_and_try, NULL) == 0);
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    EXPECT(sandbox_begin(true, &err) == 0);
    sem_post(&go);
    EXPECT(pthread_join(t, NULL) == 0);
    EXPECT(thread_errno == EPERM);
    return 0;
}

static void threads(void **state)
{
    pid_t pid = fork();
    int status;

    (void)state;
    assert_true(pid >= 0);
    if (pid == 0)
        _exit(with_thread());
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

/* Every name of the list is a call of this machine, or the list has a slip of the pen. */
static void names(void **state)
{
    size_t n = 0;

    (void)state;
    for (const char *s; (s = sandbox_call(n)); n++) {
        if (seccomp_syscall_resolve_name(s) == __NR_SCMP_ERROR)
            fail_msg("\"%s\" is no system call", s);
    }
    assert_true(n > 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refused), cmocka_unit_test(otherwise_not), cmocka_unit_test(by_argument),
        cmocka_unit_test(loading), cmocka_unit_test(threads),       cmocka_unit_test(names),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
