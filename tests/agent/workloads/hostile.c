// SPDX-License-Identifier: Apache-2.0
/*
 * hostile maps N SECONDS: N executable mappings, then one more is made and unmade without end.
 *
 * hostile elf FILE N SEED SECONDS: N copies of the shared library FILE, damaged outside of its
 * code, are mapped, and their function runs in turn.
 *
 * hostile births SECONDS: processes that end at once, as many as there is time for: by fork, and by
 * vfork and exec of this program without arguments.
 *
 * hostile crowd N SECONDS FILE...: N processes that work a little, each with the code of all FILEs
 * mapped by itself.
 *
 * What a program may do to whoever watches it. Prints what it did at the end.
 */
#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline))
#define KEEP()   __asm__ volatile("" ::: "memory")
#define PAGE     4096UL

static double now_s(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static int die(const char *what)
{
    perror(what);
    return 1;
}

/* ---- mappings ------------------------------------------------------------------------------- */

/* Neighbours differ in their rights, or the kernel would make one of them. */
static int do_maps(unsigned long n, double seconds)
{
    /* mov ecx, 1000000; 1: dec ecx; jnz 1b; ret */
    static const unsigned char code[] = {0xb9, 0x40, 0x42, 0x0f, 0x00,
                                         0xff, 0xc9, 0x75, 0xfc, 0xc3};
    double end = now_s() + seconds;
    unsigned long made = 1, turns = 0;
    unsigned char *p = mmap(NULL, n * PAGE, PROT_READ | PROT_WRITE | PROT_EXEC,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    void (*fn)(void);

    if (p == MAP_FAILED)
        return die("mmap");
    memcpy(p + (n - 1) * PAGE, code, sizeof code);
    memcpy(&fn, &(void *){p + (n - 1) * PAGE}, sizeof fn);
    for (unsigned long i = 0; i < n; i += 2)
        if (mprotect(p + i * PAGE, PAGE, PROT_READ | PROT_EXEC) == 0)
            made += 2;
    (void)printf("made %lu mappings\n", made);
    (void)fflush(stdout);
    for (; now_s() < end; turns++) {
        for (int i = 0; i < 100; i++)
            (void)mmap(p, PAGE, PROT_READ | (i & 1 ? PROT_WRITE : 0) | PROT_EXEC,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
        fn();
    }
    (void)printf("turned %lu\n", turns * 100);
    return 0;
}

/* ---- damaged files -------------------------------------------------------------------------- */

struct victim {
    unsigned char *b;
    size_t n, text_at, text_n, fn_at; /* in the file; fn_at in the text */
    size_t id_at, id_n;
};

static int victim_open(struct victim *v, const char *path)
{
    void *lib = dlopen(path, RTLD_NOW), *fn = lib ? dlsym(lib, "victim_spin") : NULL;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    Elf64_Ehdr eh;
    struct stat st;
    Dl_info in;

    if (!fn || !dladdr(fn, &in) || fd < 0 || fstat(fd, &st))
        return die(path);
    v->n = (size_t)st.st_size;
    v->b = malloc(v->n);
    if (!v->b || read(fd, v->b, v->n) != st.st_size)
        return die(path);
    (void)close(fd);
    memcpy(&eh, v->b, sizeof eh);
    for (size_t i = 0; i < eh.e_phnum; i++) {
        uintptr_t at = (uintptr_t)fn - (uintptr_t)in.dli_fbase;
        Elf64_Phdr ph;

        memcpy(&ph, v->b + eh.e_phoff + i * sizeof ph, sizeof ph);
        if (ph.p_type == PT_LOAD && ph.p_flags & PF_X) {
            v->text_at = ph.p_offset;
            v->text_n = ph.p_filesz;
            v->fn_at = at - ph.p_vaddr;
        }
        /* the build id: 16 bytes of note header, then the id */
        for (size_t k = 0; ph.p_type == PT_NOTE && k + 36 <= ph.p_filesz; k += 4)
            if (memcmp(v->b + ph.p_offset + k + 8, "\3\0\0\0GNU", 8) == 0) {
                v->id_at = ph.p_offset + k + 16;
                v->id_n = 20;
            }
    }
    return v->text_n && v->id_n ? 0 : die("victim");
}

static void damage(struct victim *v, unsigned char *b, unsigned i)
{
    memcpy(b, v->b, v->n);
    memcpy(b + v->id_at, &i, sizeof i); /* else all are one binary */
    for (int k = rand() % 8; k >= 0; k--) {
        size_t at = (size_t)rand() % v->n;

        if (k % 2) /* most of what is read lies in the headers */
            at %= 4096;
        if ((at >= v->text_at && at < v->text_at + v->text_n) ||
            (at >= v->id_at && at < v->id_at + v->id_n))
            continue;
        b[at] = (unsigned char)rand();
    }
}

/* A new file with the damaged bytes, some of them too short; its text, mapped. */
static void *map_damaged(struct victim *v, unsigned char *b, unsigned i)
{
    int fd = memfd_create("damaged", MFD_CLOEXEC);
    size_t end = (v->text_at + v->text_n + PAGE - 1) & ~(PAGE - 1);
    size_t n = i % 7 == 0 && end < v->n ? end + (size_t)rand() % (v->n - end) : v->n;
    void *p = MAP_FAILED;

    damage(v, b, i);
    if (fd >= 0 && write(fd, b, n) == (ssize_t)n)
        p = mmap(NULL, v->text_n, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, (off_t)v->text_at);
    if (fd >= 0)
        (void)close(fd);
    return p;
}

static NOINLINE void call(void (*fn)(void))
{
    fn();
    KEEP();
}

static int do_elf(const char *path, unsigned n, unsigned seed, double seconds)
{
    void (**fn)(void) = calloc(n, sizeof *fn);
    struct victim v = {};
    unsigned char *b;
    unsigned made = 0;
    double end;

    if (!fn || victim_open(&v, path))
        return 1;
    b = malloc(v.n);
    srand(seed);
    for (unsigned i = 0; b && i < n; i++) {
        unsigned char *p = map_damaged(&v, b, i);

        if (p != MAP_FAILED)
            memcpy(&fn[made++], &(void *){p + v.fn_at}, sizeof *fn);
    }
    (void)printf("mapped %u damaged files\n", made);
    (void)fflush(stdout);
    end = now_s() + seconds;
    while (made && now_s() < end)
        for (unsigned i = 0; i < made; i++)
            call(fn[i]);
    return made ? 0 : 1;
}

/* ---- births --------------------------------------------------------------------------------- */

static int do_births(char *self, double seconds)
{
    char *none[] = {self, NULL};
    double begin = now_s();
    unsigned long n = 0;

    for (; now_s() < begin + seconds; n++) {
        pid_t p = n % 2 ? vfork() : fork();

        if (p == 0 && n % 2)
            (void)execv(self, none);
        if (p == 0)
            _exit(0);
        if (p < 0)
            return die("fork");
        (void)waitpid(p, NULL, 0);
    }
    (void)printf("born %lu per_s %.0f\n", n, (double)n / (now_s() - begin));
    return 0;
}

/* ---- a crowd -------------------------------------------------------------------------------- */

/* Where a file's code begins; -1: it has none. */
static off_t code_of(int fd)
{
    Elf64_Ehdr eh;
    Elf64_Phdr ph;

    if (pread(fd, &eh, sizeof eh, 0) != sizeof eh || memcmp(eh.e_ident, ELFMAG, SELFMAG) != 0)
        return -1;
    for (size_t i = 0; i < eh.e_phnum; i++)
        if (pread(fd, &ph, sizeof ph, (off_t)(eh.e_phoff + i * sizeof ph)) == sizeof ph &&
            ph.p_type == PT_LOAD && ph.p_flags & PF_X)
            return (off_t)(ph.p_offset & ~(PAGE - 1));
    return -1;
}

static void member(char **file, int n, int to, double seconds)
{
    const struct timespec nap = {.tv_sec = 1}; /* together they use little */
    double end = now_s() + seconds;

    for (int i = 0; i < n; i++) {
        int fd = open(file[i], O_RDONLY | O_CLOEXEC);
        off_t at = fd < 0 ? -1 : code_of(fd);

        if (at >= 0)
            (void)mmap(NULL, PAGE, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, at);
        if (fd >= 0)
            (void)close(fd);
    }
    if (write(to, "", 1) != 1)
        _exit(1);
    while (now_s() < end && getppid() != 1) {
        for (int i = 0; i < 10000; i++)
            KEEP();
        (void)nanosleep(&nap, NULL);
    }
    _exit(0);
}

static int do_crowd(unsigned n, double seconds, char **file, int n_file)
{
    unsigned made = 0;
    int ends[2];
    char byte;

    if (pipe(ends))
        return die("pipe");
    for (unsigned i = 0; i < n; i++) {
        pid_t p = fork();

        if (p == 0)
            member(file, n_file, ends[1], seconds);
        if (p < 0)
            return die("fork");
    }
    while (made < n && read(ends[0], &byte, 1) == 1)
        made++;
    (void)printf("made %u processes\n", made);
    (void)fflush(stdout);
    while (wait(NULL) > 0)
        ;
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 1)
        return 0;
    if (argc == 4 && strcmp(argv[1], "maps") == 0)
        return do_maps(strtoul(argv[2], NULL, 10), strtod(argv[3], NULL));
    if (argc == 6 && strcmp(argv[1], "elf") == 0)
        return do_elf(argv[2], (unsigned)strtoul(argv[3], NULL, 10),
                      (unsigned)strtoul(argv[4], NULL, 10), strtod(argv[5], NULL));
    if (argc == 3 && strcmp(argv[1], "births") == 0)
        return do_births(argv[0], strtod(argv[2], NULL));
    if (argc > 4 && strcmp(argv[1], "crowd") == 0)
        return do_crowd((unsigned)strtoul(argv[2], NULL, 10), strtod(argv[3], NULL), argv + 4,
                        argc - 4);
    (void)fputs("usage: hostile maps|elf|births|crowd ... (see its first comment)\n", stderr);
    return 2;
}
