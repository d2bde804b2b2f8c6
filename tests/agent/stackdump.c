// SPDX-License-Identifier: Apache-2.0
/*
 * stackdump PROGRAM: runs it and writes what it looks like at each int3 that it meets, for replay
 * by test_agent_unwind_native.c. Output, all numbers in hex: map START END OFFSET      an
 * executable mapping of the program's file dump PC R0 .. R15         registers in DWARF numbering
 *   stack ADDRESS BYTES       from the stack pointer on, at most 4 KiB
 */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/file/procfile.h"
#include "agent/proc/procread.h"
#include "agent/unwind/unwind_native.h"

static void maps(pid_t pid)
{
    struct procread_map m;
    struct buf b;
    struct str text;
    char dir[64];

    (void)snprintf(dir, sizeof dir, "/proc/%d", pid);
    buf_init(&b, 1 << 20);
    if (procfile_read(dir, "maps", &b, NULL) == 0) {
        text = buf_view(&b);
        while (procread_map_next(&text, &m))
            if (m.exec && m.path.n && m.path.p[0] == '/')
                (void)printf("map %" PRIx64 " %" PRIx64 " %" PRIx64 "\n", m.start, m.end, m.offset);
    }
    buf_deinit(&b);
}

static void dump(pid_t pid)
{
    struct user_regs_struct r;
    struct unwind_regs u;
    uint8_t stack[4096];
    struct iovec to = {stack, sizeof stack}, from[2];
    ssize_t n;

    if (ptrace(PTRACE_GETREGS, pid, NULL, &r) < 0)
        return;
    u = unwind_regs_of_user(&r);
    (void)printf("dump %" PRIx64, u.pc);
    for (int i = 0; i < 16; i++)
        (void)printf(" %" PRIx64, u.reg[i]);
    /* by page: the second may be beyond the stack's end */
    from[0] = (struct iovec){(void *)(uintptr_t)u.reg[7], 4096 - u.reg[7] % 4096}; // NOLINT
    from[1] = (struct iovec){(char *)from[0].iov_base + from[0].iov_len, 4096 - from[0].iov_len};
    n = process_vm_readv(pid, &to, 1, from, 2, 0);
    (void)printf("\nstack %" PRIx64 " ", (uint64_t)u.reg[7]);
    for (ssize_t i = 0; i < n; i++)
        (void)printf("%02x", stack[i]);
    (void)printf("\n");
}

int main(int argc, char **argv)
{
    bool seen = false;
    int status;
    pid_t pid;

    if (argc != 2)
        return 2;
    pid = fork();
    if (pid == 0) {
        (void)ptrace(PTRACE_TRACEME, 0, NULL, NULL);
        (void)execl(argv[1], argv[1], (char *)NULL);
        _exit(127);
    }
    while (waitpid(pid, &status, 0) == pid && WIFSTOPPED(status)) {
        int sig = WSTOPSIG(status);

        if (sig == SIGTRAP) {
            if (seen)
                dump(pid); /* the first one is the exec */
            else
                maps(pid);
            seen = true;
            sig = 0;
        }
        (void)ptrace(PTRACE_CONT, pid, NULL, (void *)(intptr_t)sig); // NOLINT
    }
    return seen ? 0 : 2;
}
