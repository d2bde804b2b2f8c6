// SPDX-License-Identifier: Apache-2.0
/*
 * refuse CALL... -- COMMAND...: executes the command under a seccomp filter that answers EPERM to
 * these system calls (perf_event_open, ptrace, bpf, process_vm_readv), as containers have it;
 * CALL:gone: ESRCH, as if what it names had ended.
 */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static long number_of(const char *name, unsigned *ret_error)
{
    size_t n = strcspn(name, ":");

    static const struct {
        const char *name;
        long nr;
    } known[] = {{"perf_event_open", SYS_perf_event_open},
                 {"ptrace", SYS_ptrace},
                 {"bpf", SYS_bpf},
                 {"process_vm_readv", SYS_process_vm_readv}};

    *ret_error = strcmp(name + n, ":gone") == 0 ? ESRCH : EPERM;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strlen(known[i].name) == n && strncmp(name, known[i].name, n) == 0)
            return known[i].nr;
    return -1;
}

int main(int argc, char **argv)
{
    struct sock_filter f[32] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr))};
    struct sock_fprog prog = {.len = 1, .filter = f};
    int i = 1;

    for (; i < argc && strcmp(argv[i], "--") != 0 && prog.len < 28; i++) {
        unsigned error;
        long nr = number_of(argv[i], &error);

        if (nr < 0)
            return 2;
        f[prog.len++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)nr, 0, 1);
        f[prog.len++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error);
    }
    f[prog.len++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    if (i + 1 >= argc || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog) < 0) {
        (void)fprintf(stderr, "refuse: %s\n", strerrordesc_np(errno));
        return 2;
    }
    (void)execvp(argv[i + 1], argv + i + 1);
    (void)fprintf(stderr, "refuse: %s: %s\n", argv[i + 1], strerrordesc_np(errno));
    return 127;
}
