// SPDX-License-Identifier: Apache-2.0
/*
 * bare SECONDS: a static program without .eh_frame, with frame pointers, as Go's are. No C library:
 * its start files have unwind information. The time is given to alarm(2).
 */
#define NOINLINE __attribute__((noinline))

static volatile unsigned long sink;

static long call1(long n, long a)
{
    long r;

    __asm__ volatile("syscall" : "=a"(r) : "0"(n), "D"(a) : "rcx", "r11", "memory");
    return r;
}

static NOINLINE void leaf(void)
{
    for (unsigned long i = 0; i < 1000000; i++)
        sink += i;
    __asm__ volatile("");
}

static NOINLINE void middle(void)
{
    leaf();
    __asm__ volatile("");
}

static NOINLINE void outer(void)
{
    for (;;) {
        middle();
        __asm__ volatile("");
    }
}

__attribute__((used)) static void begin(const long *stack)
{
    const char *s = stack[0] > 1 ? (const char *)stack[2] : "1"; // NOLINT: argv[1]
    long seconds = 0;

    for (; *s >= '0' && *s <= '9'; s++)
        seconds = seconds * 10 + (*s - '0');
    (void)call1(37, seconds); /* alarm */
    outer();
}

__asm__(".globl _start\n_start:\nxor %ebp, %ebp\nmov %rsp, %rdi\nand $-16, %rsp\npush $0\n"
        "push $0\nmov %rsp, %rbp\ncall begin\n");
