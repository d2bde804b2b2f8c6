// SPDX-License-Identifier: Apache-2.0
/* A file that says it is a Python and asks for all the work it can: it gets so much and no more. */
#include <elf.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "agent/file/pyelf.h"
#include "base/time.h"
#include "tests/lib/testing.h"

#define TEXT    0x100000U
#define EVAL    0x2000U /* bytes of the eval function */
#define COLD    0x200000U
#define MOST_NS (5 * NS_PER_S) /* half of what a job of the reader may take */

/* sections: their names, in this order, are the string table, too */
enum {
    NONE,
    NAMES,
    RUNTIME,
    SYMTAB,
    TEXT_S,
    FRAMES,
    N_SECTION
};
static const char names[] = "\0.shstrtab\0.PyRuntime\0.symtab\0.text\0.eh_frame\0"
                            "_PyEval_EvalFrameDefault\0"
                            "_PyEval_EvalFrameDefaulu"; /* wrong in its last letter */
static const uint32_t name_at[N_SECTION] = {0, 1, 11, 22, 30, 36};
#define EVAL_NAME  46
#define WRONG_NAME 71

struct making {
    Elf64_Sym *sym;
    uint64_t n_sym;
    uint8_t *frames;
    uint64_t n_frames;
    uint8_t code[EVAL];
};

static void put(int fd, const void *p, uint64_t n, uint64_t at)
{
    while (n) {
        ssize_t r = pwrite(fd, p, n, (off_t)at);

        assert_true(r > 0);
        p = (const char *)p + r;
        n -= (uint64_t)r;
        at += (uint64_t)r;
    }
}

static struct pyelf read_made(const struct making *m, int64_t *ret_ns)
{
    Elf64_Shdr s[N_SECTION] = {};
    Elf64_Ehdr h = {
        .e_ident = {ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64, ELFDATA2LSB, EV_CURRENT},
        .e_type = ET_DYN,
        .e_machine = EM_X86_64,
        .e_version = EV_CURRENT,
        .e_ehsize = sizeof h,
        .e_shoff = sizeof h,
        .e_shentsize = sizeof(Elf64_Shdr),
        .e_shnum = N_SECTION,
        .e_shstrndx = NAMES};
    const uint64_t n[N_SECTION] = {[NAMES] = sizeof names,
                                   [RUNTIME] = 64,
                                   [SYMTAB] = m->n_sym * sizeof *m->sym,
                                   [TEXT_S] = sizeof m->code,
                                   [FRAMES] = m->n_frames};
    const void *p[N_SECTION] = {names, names, m->code, m->sym, m->code, m->frames};
    uint64_t at = sizeof h + sizeof s;
    int fd = memfd_create("python", MFD_CLOEXEC);
    struct binary *b = NULL;
    struct err err = {};
    struct pyelf e;

    p[NAMES] = names;
    assert_true(fd >= 0);
    for (unsigned i = NAMES; i < N_SECTION; i++) {
        s[i] = (Elf64_Shdr){.sh_name = name_at[i],
                            .sh_type = i == SYMTAB ? SHT_SYMTAB : SHT_PROGBITS,
                            .sh_offset = at,
                            .sh_size = n[i],
                            .sh_link = i == SYMTAB ? NAMES : 0,
                            .sh_entsize = i == SYMTAB ? sizeof(Elf64_Sym) : 0,
                            .sh_addr = i == TEXT_S ? TEXT : 0x8000000 + at};
        put(fd, p[i], n[i], at);
        at += n[i];
    }
    put(fd, s, sizeof s, sizeof h);
    put(fd, &h, sizeof h, 0);
    assert_ok(binary_open(fd, STR("/usr/bin/python3.15"), false, &b, &err), &err);
    *ret_ns = thread_cpu_ns();
    assert_true(pyelf_read(b, &e));
    *ret_ns = thread_cpu_ns() - *ret_ns;
    binary_unref(b);
    return e;
}

static Elf64_Sym symbol(uint32_t name)
{
    return (Elf64_Sym){.st_name = name, .st_value = TEXT, .st_size = EVAL, .st_shndx = TEXT_S};
}

/* The symbol behind n others whose names must be read to be told from it. */
static struct pyelf behind(uint64_t n, int64_t *ret_ns)
{
    struct making m = {.n_sym = n + 1};
    struct pyelf e;

    m.sym = calloc(n + 1, sizeof *m.sym);
    assert_non_null(m.sym);
    for (uint64_t i = 0; i < n; i++)
        m.sym[i] = symbol(WRONG_NAME);
    m.sym[n] = symbol(EVAL_NAME);
    e = read_made(&m, ret_ns);
    free(m.sym);
    return e;
}

static void symbols(void **state)
{
    struct pyelf e;
    int64_t ns;

    (void)state;
    e = behind(1000, &ns);
    assert_true(e.eval_lo == TEXT && e.eval_hi == TEXT + EVAL);
    e = behind(3 << 20, &ns);
    printf("3 M symbols: %lld ms\n", (long long)(ns / NS_PER_MS));
    assert_int_equal(e.eval_lo, 0); /* not looked for to the end */
    assert_true(ns < MOST_NS);
}

static void jump(struct making *m, unsigned i, uint32_t to)
{
    uint8_t *c = m->code + (size_t)8 * i;
    uint32_t d = to - (TEXT + 8 * i + 5);

    c[0] = 0xe9;
    memcpy(c + 1, &d, 4);
}

/* n jumps to where nothing is, then five into a function whose FDE is the last of many. */
static struct pyelf jumps(unsigned n, uint64_t frames, int64_t *ret_ns)
{
    Elf64_Sym s = symbol(EVAL_NAME);
    struct making m = {.sym = &s, .n_sym = 1, .n_frames = frames};
    struct pyelf e;
    uint32_t fde[4] = {12, 1, 0, 64};
    uint64_t at = frames - sizeof fde;

    m.frames = calloc(1, frames); /* lengths of 0: a step each */
    assert_non_null(m.frames);
    /* pc-relative, from where the section will lie */
    uint64_t addr =
        sizeof(Elf64_Ehdr) + N_SECTION * sizeof(Elf64_Shdr) + sizeof names + 64 + sizeof s + EVAL;
    addr += 0x8000000;
    fde[2] = COLD - (uint32_t)(addr + at + 8);
    memcpy(m.frames + at, fde, sizeof fde);
    memset(m.code, 0x90, sizeof m.code);
    for (unsigned i = 0; i < n; i++)
        jump(&m, i, 0x7000000 + 16 * i);
    for (unsigned i = 0; i < 5; i++)
        jump(&m, n + i, COLD + 8 + i);
    e = read_made(&m, ret_ns);
    free(m.frames);
    return e;
}

static void frames(void **state)
{
    struct pyelf e;
    int64_t ns;

    (void)state;
    e = jumps(10, 1 << 16, &ns);
    assert_true(e.cold_lo == COLD && e.cold_hi == COLD + 64);
    e = jumps(900, (uint64_t)64 << 20, &ns);
    printf("900 jumps, 16 M records: %lld ms\n", (long long)(ns / NS_PER_MS));
    assert_int_equal(e.cold_lo, 0);
    assert_true(ns < MOST_NS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(symbols), cmocka_unit_test(frames)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
