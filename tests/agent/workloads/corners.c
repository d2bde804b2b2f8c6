// SPDX-License-Identifier: Apache-2.0
/*
 * corners NAME SECONDS: one unwind rule each, held at the very instruction where it applies; the
 * code is written by hand, with the call frame information that compilers and linkers write for
 * theirs. Then code without such information. Exit 77: this machine cannot.
 */
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define NOINLINE __attribute__((noinline))
#define KEEP()   __asm__ volatile("" ::: "memory") /* no tail call before it */

/* Spins in the middle: about a millisecond. ecx counts, which nobody has to save. */
#define SPIN "mov $2000000, %ecx\n1: dec %ecx\njnz 1b\n"
#define FUNCTION(name, ...)                                                                        \
    void name(void);                                                                               \
    __asm__(".text\n.p2align 5\n.globl " #name "\n.type " #name ", @function\n" #name              \
            ":\n" __VA_ARGS__ "\n.size " #name ", . - " #name "\n")

/* ---- the three forms of a PLT stub: a word is pushed before its byte 11, 10 or 9 ------------- */

#define PLT(name, lit, at, pad)                                                                    \
    FUNCTION(                                                                                      \
        name,                                                                                      \
        ".cfi_startproc\n" /* breg7 8; breg16 0; lit15; and; lit11 (10, 9); ge; lit3; shl; plus */ \
        ".cfi_escape 0x0f, 11, 0x77, 8, 0x80, 0, 0x3f, 0x1a, " lit ", 0x2a, 0x33, 0x24, 0x22\n"    \
        "mov $2000000, %ecx\n" /* 5 bytes */                                                       \
        pad "push $0\n"        /* 2 */                                                             \
        "1: dec %ecx\n"        /* at 11 (10, 9): 2 */                                              \
        "jnz 1b\n"             /* 2 */                                                             \
        at "pop %rdx\n"        /* at 15 */                                                         \
        "ret\n"                /* at 16: popped */                                                 \
        ".cfi_endproc")
PLT(plt11, "0x3b", "", ".nops 4\n");
PLT(plt10, "0x3a", "nop\n", ".nops 3\n");
PLT(plt9, "0x39", "nop\nnop\n", ".nops 2\n");

/* ---- CFA in memory or in a register, return address in a register ---------------------------- */

FUNCTION(deref_rbp, ".cfi_startproc\n"
                    "lea 8(%rsp), %r10\n.cfi_def_cfa r10, 0\n"
                    "and $-64, %rsp\n"
                    "push -8(%r10)\n"
                    "push %rbp\nmov %rsp, %rbp\n"
                    ".cfi_escape 0x10, 6, 2, 0x76, 0\n" /* rbp at *(rbp + 0) */
                    "push %r10\n"
                    ".cfi_escape 0x0f, 3, 0x76, 0x78, 6\n" /* CFA = *(rbp - 8) */
         SPIN "pop %r10\n.cfi_def_cfa r10, 0\n"
                    "pop %rbp\nlea -8(%r10), %rsp\n.cfi_def_cfa rsp, 8\n.cfi_same_value rbp\n"
                    "ret\n.cfi_endproc");

FUNCTION(deref_rsp, ".cfi_startproc\n"
                    "lea 8(%rsp), %r10\n.cfi_def_cfa r10, 0\n"
                    "and $-64, %rsp\nsub $64, %rsp\nmov %r10, 16(%rsp)\n"
                    ".cfi_escape 0x0f, 3, 0x77, 16, 6\n" /* CFA = *(rsp + 16) */
         SPIN "mov 16(%rsp), %r10\n.cfi_def_cfa r10, 0\n"
                    "lea -8(%r10), %rsp\n.cfi_def_cfa rsp, 8\nret\n.cfi_endproc");

FUNCTION(leaf_reg, ".cfi_startproc\n"
                   "lea 8(%rsp), %r10\n.cfi_def_cfa r10, 0\n"
                   "and $-64, %rsp\n" SPIN "lea -8(%r10), %rsp\n.cfi_def_cfa rsp, 8\nret\n"
                   ".cfi_endproc");

FUNCTION(ra_reg, ".cfi_startproc\n"
                 "pop %rdi\n.cfi_def_cfa rsp, 0\n.cfi_register rip, rdi\n" SPIN
                 "push %rdi\n.cfi_def_cfa rsp, 8\n.cfi_offset rip, -8\nret\n.cfi_endproc");

FUNCTION(spin_leaf, ".cfi_startproc\n" SPIN "ret\n.cfi_endproc");

/* CFA in a register that the callee may have changed: this frame cannot be left, and says so. */
FUNCTION(reg_caller, ".cfi_startproc\n"
                     "push %rbx\n.cfi_adjust_cfa_offset 8\n.cfi_offset rbx, -16\n"
                     "lea 16(%rsp), %rbx\n.cfi_def_cfa rbx, 0\n"
                     "and $-64, %rsp\ncall spin_leaf\n"
                     "lea -16(%rbx), %rsp\n.cfi_def_cfa rsp, 16\npop %rbx\n"
                     ".cfi_def_cfa rsp, 8\nret\n.cfi_endproc");

/* ---- no information -------------------------------------------------------------------------- */

FUNCTION(bare_fp, "push %rbp\nmov %rsp, %rbp\n" SPIN "pop %rbp\nret\n");

/* rbp is data, as in hand-written kernels of numeric libraries. */
FUNCTION(bare_data, "push %rbp\nmov $0x1234567, %ebp\n" SPIN "pop %rbp\nret\n");

/* rbp points into the stack, to words that are no frame. */
FUNCTION(bare_near, "push %rbp\nsub $64, %rsp\nlea 16(%rsp), %rbp\nmovq $17, 24(%rsp)\n" SPIN
                    "add $64, %rsp\npop %rbp\nret\n");

/* ---- holding one for a while ----------------------------------------------------------------- */

static double now_s(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static double limit_s;

static NOINLINE void inner(void (*fn)(void))
{
    fn();
    KEEP();
}

static NOINLINE void hold(void (*fn)(void))
{
    double end = now_s() + limit_s;

    while (now_s() < end)
        inner(fn);
    KEEP();
}

/* The return address of a call that never returns belongs to the next function. */
static jmp_buf back;

static NOINLINE __attribute__((noreturn)) void never(void)
{
    spin_leaf();
    longjmp(back, 1);
}

static NOINLINE __attribute__((noreturn)) void calls_never(void)
{
    never();
}

static NOINLINE void noreturn_once(void)
{
    if (!setjmp(back))
        calls_never();
}

/* In another executable segment, whose addresses have another distance to the file. */
__attribute__((section(".far_text"), noinline)) static void far(void)
{
    spin_leaf();
    KEEP();
}

static NOINLINE void vsyscall_once(void)
{
    /* volatile: else the address is a constant that no call can reach */
    long (*volatile fn)(long *) = (long (*)(long *))0xffffffffff600400; // NOLINT: its address

    for (int i = 0; i < 1000; i++)
        (void)fn(NULL);
    KEEP();
}

static void do_vsyscall(void)
{
    FILE *f = fopen("/proc/self/maps", "re");
    char line[512];
    int found = 0;

    while (f && fgets(line, sizeof line, f))
        found |= strstr(line, "[vsyscall]") != NULL;
    if (!found)
        exit(77);
    hold(vsyscall_once);
}

/* Anonymous code whose rbp is data: refused, not guessed. */
static void do_jit_data(void)
{
    /* push rbp; mov ebp, 0x1234567; mov ecx, 2000000; 1: dec ecx; jnz 1b; pop rbp; ret */
    static const unsigned char code[] = {0x55, 0xbd, 0x67, 0x45, 0x23, 0x01, 0xb9, 0x80, 0x84,
                                         0x1e, 0x00, 0xff, 0xc9, 0x75, 0xfc, 0x5d, 0xc3};
    void *p =
        mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (p == MAP_FAILED)
        exit(77);
    memcpy(p, code, sizeof code);
    hold((void (*)(void))p);
}

static const struct {
    const char *name;
    void (*fn)(void);
} corner[] = {
    {"plt11", plt11},
    {"plt10", plt10},
    {"plt9", plt9},
    {"deref_rbp", deref_rbp},
    {"deref_rsp", deref_rsp},
    {"leaf_reg", leaf_reg},
    {"ra_reg", ra_reg},
    {"reg_caller", reg_caller},
    {"bare_fp", bare_fp},
    {"bare_data", bare_data},
    {"bare_near", bare_near},
    {"noreturn", noreturn_once},
    {"far", far},
};

int main(int argc, char **argv)
{
    if (argc == 3) {
        limit_s = strtod(argv[2], NULL);
        for (size_t i = 0; i < sizeof corner / sizeof corner[0]; i++) {
            if (strcmp(argv[1], corner[i].name) != 0)
                continue;
            hold(corner[i].fn);
            return 0;
        }
        if (strcmp(argv[1], "vsyscall") == 0) {
            do_vsyscall();
            return 0;
        }
        if (strcmp(argv[1], "jit_data") == 0) {
            do_jit_data();
            return 0;
        }
    }
    (void)fputs("usage: corners NAME SECONDS\n", stderr);
    return 2;
}
