// SPDX-License-Identifier: Apache-2.0
/*
 * traps NAME SECONDS: one shape of stack that is hard to unwind, held for that long. Built without
 * frame pointers, so that only unwind tables help. Exit 77: this CPU cannot.
 */
#include <alloca.h>
#include <immintrin.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline))
#define KEEP()   __asm__ volatile("" ::: "memory") /* no tail call before it */

static double limit_s;
static volatile unsigned long sink;

static double now_s(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static NOINLINE void spin(void)
{
    for (unsigned long i = 0; i < 3000000; i++)
        sink += i;
    KEEP();
}

static NOINLINE void in_handler(void)
{
    spin();
    KEEP();
}

static void handler(int sig)
{
    (void)sig;
    in_handler();
    KEEP();
}

/* ---- the shapes ----------------------------------------------------------------------------- */

static void raise_for(int sig)
{
    double end = now_s() + limit_s;

    while (now_s() < end)
        (void)raise(sig);
}

static NOINLINE void do_signal(void)
{
    struct sigaction a = {.sa_handler = handler};

    (void)sigaction(SIGUSR1, &a, NULL);
    raise_for(SIGUSR1);
}

static NOINLINE void do_sigalt(void)
{
    static char stack[65536];
    stack_t s = {.ss_sp = stack, .ss_size = sizeof stack};
    struct sigaction a = {.sa_handler = handler, .sa_flags = SA_ONSTACK};

    (void)sigaltstack(&s, NULL);
    (void)sigaction(SIGUSR2, &a, NULL);
    raise_for(SIGUSR2);
}

/* The handler interrupts a busy leaf in its prologue, its body or its epilogue. */
static NOINLINE unsigned long small(unsigned long n)
{
    KEEP();
    return n * 7 + 1;
}

static NOINLINE void do_sigtimer(void)
{
    struct sigaction a = {.sa_handler = handler};
    struct itimerspec every = {.it_interval = {0, 20000000}, .it_value = {0, 20000000}};
    struct sigevent ev = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1};
    double end = now_s() + limit_s;
    timer_t t;

    (void)sigaction(SIGUSR1, &a, NULL);
    if (timer_create(CLOCK_MONOTONIC, &ev, &t) || timer_settime(t, 0, &every, NULL))
        exit(1);
    while (now_s() < end)
        for (int i = 0; i < 1000; i++)
            sink += small(sink);
}

static NOINLINE void do_vdso(void)
{
    double end = now_s() + limit_s;
    struct timespec t;

    while (now_s() < end)
        for (int i = 0; i < 10000; i++)
            (void)clock_gettime(CLOCK_MONOTONIC, &t);
}

static NOINLINE int compare(const void *a, const void *b)
{
    for (unsigned long i = 0; i < 300; i++)
        sink += i;
    return *(const int *)a - *(const int *)b;
}

static NOINLINE void do_qsort(void)
{
    double end = now_s() + limit_s;
    static int v[500];

    while (now_s() < end) {
        for (int i = 0; i < 500; i++)
            v[i] = (int)random();
        qsort(v, 500, sizeof v[0], compare);
    }
}

static NOINLINE void with_alloca(size_t n)
{
    char *p = alloca(n);

    memset(p, 1, n);
    spin();
    sink += (unsigned long)p[n / 2];
}

static NOINLINE void do_alloca(void)
{
    double end = now_s() + limit_s;

    while (now_s() < end)
        with_alloca(100 + (sink & 1023));
}

static NOINLINE __attribute__((target("avx512f"))) void wide(void)
{
    _Alignas(64) double v[64];

    for (int k = 0; k < 64; k++)
        v[k] = (double)sink;
    for (int j = 0; j < 20000; j++) {
        __m512d a = _mm512_load_pd(v);

        a = _mm512_add_pd(a, a);
        _mm512_store_pd(v, a);
    }
    sink += v[3] > 1;
    spin();
}

static NOINLINE void do_avx(void)
{
    double end = now_s() + limit_s;

    if (!__builtin_cpu_supports("avx512f"))
        exit(77);
    while (now_s() < end)
        wide();
}

typedef double v4 __attribute__((vector_size(32)));

/* A realigned frame of varying size: its CFA is *(rbp - 8) in the body, r10 in the prologue. */
static NOINLINE __attribute__((target("avx2"))) void realigned(size_t n)
{
    volatile v4 a[8];
    volatile char *p = alloca(n + 16);

    for (int i = 0; i < 8; i++)
        a[i] = (v4){i, 2, 3, 4};
    p[n] = 1;
    spin();
    sink += (unsigned long)a[3][1] + (unsigned long)p[n];
}

static NOINLINE void do_realigned(void)
{
    double end = now_s() + limit_s;

    if (!__builtin_cpu_supports("avx2"))
        exit(77);
    while (now_s() < end)
        realigned(sink & 255);
}

static NOINLINE unsigned long deep(unsigned n)
{
    unsigned long r;

    if (!n) {
        spin();
        return 1;
    }
    r = deep(n - 1);
    sink += r;
    return r + 1;
}

static void deep_for(unsigned n)
{
    double end = now_s() + limit_s;

    while (now_s() < end)
        sink += deep(n);
}

static NOINLINE void do_deep(void)
{
    deep_for(400);
}

static NOINLINE void do_deep600(void)
{
    deep_for(600);
}

static ucontext_t outside, fibre;

static NOINLINE void in_fibre(void)
{
    double end = now_s() + limit_s;

    while (now_s() < end)
        spin();
    (void)swapcontext(&fibre, &outside);
}

static NOINLINE void do_fiber(void)
{
    static char stack[65536];

    (void)getcontext(&fibre);
    fibre.uc_stack.ss_sp = stack;
    fibre.uc_stack.ss_size = sizeof stack;
    fibre.uc_link = &outside;
    makecontext(&fibre, in_fibre, 0);
    (void)swapcontext(&outside, &fibre);
}

static NOINLINE void *in_thread(void *arg)
{
    double end = now_s() + limit_s;

    while (now_s() < end)
        spin();
    return arg;
}

static NOINLINE void do_thread(void)
{
    pthread_t t[3];

    for (int i = 0; i < 3; i++)
        if (pthread_create(&t[i], NULL, in_thread, NULL))
            exit(1);
    for (int i = 0; i < 3; i++)
        (void)pthread_join(t[i], NULL);
}

static NOINLINE void do_sys(void)
{
    double end = now_s() + limit_s;

    while (now_s() < end)
        for (int i = 0; i < 100; i++)
            sink += (unsigned long)getppid();
}

/* Children are reaped by the kernel: else they fill the pid space. */
static NOINLINE void do_vfork(void)
{
    double end = now_s() + limit_s;

    (void)signal(SIGCHLD, SIG_IGN);
    while (now_s() < end) {
        pid_t p = vfork();

        if (!p)
            _exit(0);
    }
}

static NOINLINE void do_malloc(void)
{
    double end = now_s() + limit_s;
    static void *v[64];

    while (now_s() < end)
        for (int i = 0; i < 1000; i++) {
            long k = random() & 63;

            free(v[k]);
            v[k] = malloc((size_t)random() & 4095);
        }
}

/* Code that no file describes, with a frame pointer. */
static NOINLINE void do_jit(void)
{
    /* push rbp; mov rbp, rsp; mov ecx, 4000000; 1: dec ecx; jnz 1b; pop rbp; ret */
    static const unsigned char code[] = {0x55, 0x48, 0x89, 0xe5, 0xb9, 0x00, 0x09, 0x3d,
                                         0x00, 0xff, 0xc9, 0x75, 0xfc, 0x5d, 0xc3};
    void *p =
        mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    double end = now_s() + limit_s;

    if (p == MAP_FAILED)
        exit(77);
    memcpy(p, code, sizeof code);
    while (now_s() < end)
        ((void (*)(void))p)();
}

static const struct {
    const char *name;
    void (*fn)(void);
} shape[] = {
    {"signal", do_signal},   {"sigalt", do_sigalt}, {"sigtimer", do_sigtimer},
    {"vdso", do_vdso},       {"qsort", do_qsort},   {"alloca", do_alloca},
    {"avx", do_avx},         {"deep", do_deep},     {"realigned", do_realigned},
    {"fiber", do_fiber},     {"thread", do_thread}, {"sys", do_sys},
    {"vfork", do_vfork},     {"malloc", do_malloc}, {"jit", do_jit},
    {"deep600", do_deep600},
};

int main(int argc, char **argv)
{
    for (size_t i = 0; argc == 3 && i < sizeof shape / sizeof shape[0]; i++) {
        if (strcmp(argv[1], shape[i].name) != 0)
            continue;
        limit_s = strtod(argv[2], NULL);
        shape[i].fn();
        return 0;
    }
    (void)fputs("usage: traps NAME SECONDS\n", stderr);
    return 2;
}
