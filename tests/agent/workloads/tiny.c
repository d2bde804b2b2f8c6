// SPDX-License-Identifier: Apache-2.0
/*
 * Some kinds of stacks in a program without any library, which stops itself (int3) in each: what
 * tests/golden/unwind is recorded from. See stackdump.c.
 */
#define NOINLINE __attribute__((noinline, noclone))
#define HERE()   __asm__ volatile("int3" ::: "memory")

static volatile int sink;

static long call(long nr, long a, long b, long c, long d)
{
    register long r10 __asm__("r10") = d;
    long r;

    __asm__ volatile("syscall"
                     : "=a"(r)
                     : "a"(nr), "D"(a), "S"(b), "d"(c), "r"(r10)
                     : "rcx", "r11", "memory");
    return r;
}

NOINLINE static void leaf(int n)
{
    HERE();
    sink += n;
}

NOINLINE static void deep(int n) // NOLINT(misc-no-recursion)
{
    if (n > 0)
        deep(n - 1);
    else
        leaf(n);
    sink++;
}

/* A frame whose size is known at run time: found by rbp. */
NOINLINE static void sized(int n)
{
    volatile char *p = __builtin_alloca((unsigned long)n);

    p[0] = 1;
    leaf(n);
    sink += p[0];
}

/* Aligned by more than the ABI: its prologue goes by another register. */
NOINLINE static void aligned(int n)
{
    volatile char block[64] __attribute__((aligned(64)));

    block[0] = (char)n;
    leaf(n);
    sink += block[0];
}

/* What the kernel returns to behind a handler. Its unwind information begins one byte early. */
void restore(void);
__asm__(".text\n"
        ".cfi_startproc\n"
        ".cfi_signal_frame\n"
        "nop\n"
        ".globl restore\n"
        ".type restore, @function\n"
        "restore:\n"
        "mov $15, %eax\n"
        "syscall\n"
        ".size restore, . - restore\n"
        ".cfi_endproc\n");

NOINLINE static void handler(int sig)
{
    leaf(sig);
    sink++;
}

NOINLINE static void signalled(void)
{
    struct {
        void (*handler)(int);
        unsigned long flags;
        void (*restorer)(void);
        unsigned long mask;
    } a = {handler, 0x04000000, restore, 0};

    (void)call(13, 10, (long)&a, 0, 8);             /* rt_sigaction(SIGUSR1) */
    (void)call(62, call(39, 0, 0, 0, 0), 10, 0, 0); /* kill(getpid()) */
    sink++;
}

__attribute__((used, noreturn)) static void begin(void)
{
    leaf(1);
    deep(20);
    sized(100);
    aligned(1);
    signalled();
    (void)call(231, 0, 0, 0, 0); /* exit_group */
    __builtin_unreachable();
}

void _start(void);
__asm__(".text\n"
        ".globl _start\n"
        ".type _start, @function\n"
        "_start:\n"
        ".cfi_startproc\n"
        ".cfi_undefined rip\n"
        "xor %ebp, %ebp\n"
        "call begin\n"
        "hlt\n"
        ".cfi_endproc\n"
        ".size _start, . - _start\n");
