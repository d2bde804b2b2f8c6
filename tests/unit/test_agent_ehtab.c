// SPDX-License-Identifier: Apache-2.0
/* Small ELF files made by hand, so that each instruction's effect is known; then damaged ones. */
#include <elf.h>
#include <stdlib.h>
#include <string.h>

#include "agent/file/ehtab.h"
#include "tests/lib/testing.h"

enum {
    TEXT = 0x401000,
    FRAME = 0x402000,
    FRAME_AT = 0x800,
    HDR_AT = 0x600,
    SIZE = 0x1400
};

struct file {
    uint8_t b[SIZE];
    uint64_t size;
    uint32_t at; /* end of .eh_frame, from FRAME_AT */
    uint32_t cie;
};

static int64_t read_mem(void *ctx, void *to, uint64_t n, uint64_t at)
{
    const struct file *f = ctx;

    if (at >= f->size)
        return 0;
    n = n < f->size - at ? n : f->size - at;
    memcpy(to, f->b + at, n);
    return (int64_t)n;
}

static enum ehtab_fail build(struct file *f, struct ehtab *t)
{
    return ehtab_build(&(struct ehtab_file){read_mem, f, f->size}, t);
}

static void put(struct file *f, const void *p, size_t n)
{
    assert_true(FRAME_AT + f->at + n <= 0x1000);
    memcpy(f->b + FRAME_AT + f->at, p, n);
    f->at += (uint32_t)n;
}

static void put32(struct file *f, uint32_t v)
{
    put(f, &v, 4);
}

/* A CIE as compilers write it: factors 1 and -8, addresses relative to themselves in 4 bytes. */
static void put_cie(struct file *f, const char *aug)
{
    static const uint8_t insn[] = {0x0c, 7, 8, 0x90, 1, 0, 0};
    uint32_t n = (uint32_t)strlen(aug);
    uint8_t aug_data = 0x1b;

    f->cie = f->at;
    put32(f, 4 + 1 + n + 1 + 3 + 2 + sizeof insn);
    put32(f, 0);
    put(f, "\001", 1);
    put(f, aug, n + 1);
    put(f, "\001\170\020", 3); /* code 1, data -8, return address 16 */
    put(f, "\001", 1);         /* augmentation data: 1 byte */
    put(f, &aug_data, 1);
    put(f, insn, sizeof insn);
}

static void put_fde(struct file *f, uint32_t pc, uint32_t len, const uint8_t *insn, size_t n)
{
    put32(f, (uint32_t)(4 + 8 + 1 + n));
    put32(f, f->at - f->cie);
    put32(f, pc - (FRAME + f->at));
    put32(f, len);
    put(f, "", 1);
    put(f, insn, n);
}

static void finish(struct file *f, bool sections)
{
    static const char names[] = "\0.eh_frame\0.shstrtab";
    Elf64_Ehdr eh = {.e_ident = {0x7f, 'E', 'L', 'F', ELFCLASS64, ELFDATA2LSB, EV_CURRENT},
                     .e_type = ET_EXEC,
                     .e_machine = EM_X86_64,
                     .e_phoff = sizeof eh,
                     .e_phentsize = sizeof(Elf64_Phdr),
                     .e_phnum = 3,
                     .e_shentsize = sizeof(Elf64_Shdr)};
    const Elf64_Phdr ph[3] = {
        {.p_type = PT_LOAD, .p_flags = PF_X | PF_R, .p_vaddr = TEXT, .p_memsz = 0x1000},
        {.p_type = PT_LOAD,
         .p_flags = PF_R,
         .p_offset = HDR_AT,
         .p_vaddr = FRAME - (FRAME_AT - HDR_AT),
         .p_filesz = FRAME_AT - HDR_AT + f->at,
         .p_memsz = 0x1000},
        {.p_type = PT_GNU_EH_FRAME,
         .p_offset = HDR_AT,
         .p_vaddr = FRAME - (FRAME_AT - HDR_AT),
         .p_filesz = 12},
    };
    const Elf64_Shdr sh[3] = {
        {},
        {.sh_name = 1,
         .sh_type = SHT_PROGBITS,
         .sh_addr = FRAME,
         .sh_offset = FRAME_AT,
         .sh_size = f->at},
        {.sh_name = 11, .sh_type = SHT_STRTAB, .sh_offset = 0x1000, .sh_size = sizeof names},
    };
    /* version 1, pointer pc-relative, count absolute, both 4 bytes */
    const uint8_t hdr[4] = {1, 0x1b, 0x03, 0x3b};
    uint32_t to = FRAME_AT - HDR_AT - 4, count = 0;

    for (uint32_t at = 0; at + 8 <= f->at;) {
        uint32_t len, id;

        memcpy(&len, f->b + FRAME_AT + at, 4);
        memcpy(&id, f->b + FRAME_AT + at + 4, 4);
        count += len && id;
        at += 4 + len;
    }
    if (sections) {
        eh.e_shoff = 0x1100;
        eh.e_shnum = 3;
        eh.e_shstrndx = 2;
        memcpy(f->b + 0x1000, names, sizeof names);
        memcpy(f->b + 0x1100, sh, sizeof sh);
    }
    memcpy(f->b, &eh, sizeof eh);
    memcpy(f->b + sizeof eh, ph, sizeof ph);
    memcpy(f->b + HDR_AT, hdr, sizeof hdr);
    memcpy(f->b + HDR_AT + 4, &to, 4);
    memcpy(f->b + HDR_AT + 8, &count, 4);
    f->size = sizeof f->b;
}

#define INSN(...) ((const uint8_t[]){__VA_ARGS__}), sizeof((const uint8_t[]){__VA_ARGS__})

static void expect(const struct ehtab *t, uint64_t pc, struct sa_rule want)
{
    const struct sa_rule *r = ehtab_find(t, pc);

    assert_non_null(r);
    if (memcmp(r, &want, sizeof want) != 0)
        fail_msg(
            "at %lx: kind %u off %d fpk %u fpoff %d reg %u, not kind %u off %d fpk %u fpoff %d",
            (unsigned long)pc, r->kind, r->off, r->fpk, r->fpoff, r->reg, want.kind, want.off,
            want.fpk, want.fpoff);
}

/* push rbp; mov rsp, rbp; ...; pop rbp; ret, and a function right behind it. */
static void make_plain(struct file *f, bool sections)
{
    put_cie(f, "zR");
    put_fde(f, TEXT, 0x20,
            INSN(0x41, 0x0e, 16, 0x86, 2, 0x43, 0x0d, 6, 0x0a, 0x58, 0x0c, 7, 8, 0xc6, 0x41, 0x0b));
    put_fde(f, TEXT + 0x20, 0x10, INSN(0x44, 0x0e, 0x80, 0x02));
    put32(f, 0); /* a terminator in the middle */
    put_fde(f, TEXT + 0x100, 0x10, INSN(0));
    finish(f, sections);
}

static void check_plain(const struct ehtab *t)
{
    expect(t, TEXT, (struct sa_rule){.kind = SA_K_RSP, .off = 8});
    expect(t, TEXT + 1,
           (struct sa_rule){.kind = SA_K_RSP, .off = 16, .fpk = SA_FP_CFA, .fpoff = -16});
    expect(t, TEXT + 0x10,
           (struct sa_rule){.kind = SA_K_RBP, .off = 16, .fpk = SA_FP_CFA, .fpoff = -16});
    expect(t, TEXT + 0x1c, (struct sa_rule){.kind = SA_K_RSP, .off = 8});
    expect(t, TEXT + 0x1f,
           (struct sa_rule){.kind = SA_K_RBP, .off = 16, .fpk = SA_FP_CFA, .fpoff = -16});
    expect(t, TEXT + 0x20, (struct sa_rule){.kind = SA_K_RSP, .off = 8});
    expect(t, TEXT + 0x24, (struct sa_rule){.kind = SA_K_RSP, .off = 256});
    expect(t, TEXT + 0x30, (struct sa_rule){.kind = SA_K_NOINFO});
    assert_null(ehtab_find(t, TEXT - 1));
}

static void test_plain(void **state)
{
    struct file f = {};
    struct ehtab t;

    (void)state;
    make_plain(&f, true);
    assert_int_equal(build(&f, &t), EHTAB_OK);
    assert_int_equal(t.fdes, 3);
    assert_int_equal(t.bad_fde, 0);
    check_plain(&t);
    expect(&t, TEXT + 0x100, (struct sa_rule){.kind = SA_K_RSP, .off = 8});
    for (size_t i = 1; i < t.n; i++)
        assert_true(t.row[i - 1].pc < t.row[i].pc);
    ehtab_deinit(&t);
}

/* Without section headers the program headers lead to it; what lies behind a terminator is not
 * known to belong to it. */
static void test_no_sections(void **state)
{
    struct file f = {};
    struct ehtab t;

    (void)state;
    make_plain(&f, false);
    assert_int_equal(build(&f, &t), EHTAB_OK);
    check_plain(&t);
    ehtab_deinit(&t);
}

static void test_special(void **state)
{
    struct file f = {};
    struct ehtab t;

    (void)state;
    put_cie(&f, "zR");
    put_fde(&f, TEXT, 16, INSN(0x09, 16, 5, 0x0e, 0));          /* vfork */
    put_fde(&f, TEXT + 0x40, 16, INSN(0x07, 16));               /* _start */
    put_fde(&f, TEXT + 0x80, 16, INSN(0x0c, 10, 0));            /* r10 */
    put_fde(&f, TEXT + 0xc0, 16, INSN(0x0f, 3, 0x76, 0x78, 6)); /* *(rbp - 8) */
    put_fde(&f, TEXT + 0x100, 16,
            INSN(0x0f, 11, 0x77, 8, 0x80, 0, 0x3f, 0x1a, 0x3b, 0x2a, 0x33, 0x24, 0x22)); /* PLT */
    put_fde(&f, TEXT + 0x110, 16,
            INSN(0x0f, 11, 0x77, 8, 0x80, 0, 0x3f, 0x1a, 0x3a, 0x2a, 0x33, 0x24, 0x22));
    put_fde(&f, TEXT + 0x120, 16,
            INSN(0x0f, 11, 0x77, 8, 0x80, 0, 0x3f, 0x1a, 0x39, 0x2a, 0x33, 0x24, 0x22));
    put_fde(&f, TEXT + 0x140, 16, INSN(0x0f, 2, 0x77, 8));       /* another expression */
    put_fde(&f, TEXT + 0x180, 16, INSN(0x10, 6, 2, 0x76, 0x70)); /* rbp at rbp - 16 */
    put_fde(&f, TEXT + 0x1c0, 16, INSN(0x80 | 16, 2));           /* RA at CFA - 16 */
    put_fde(&f, TEXT + 0x200, 16, INSN(0x44, 0x3f));             /* unknown */
    put_fde(&f, 0, 16, INSN(0));                                 /* discarded */
    put_fde(&f, TEXT + 0x2000, 16, INSN(0));                     /* not executable */
    put_cie(&f, "zRS");
    put_fde(&f, TEXT + 0x240, 16, INSN(0));
    finish(&f, true);
    assert_int_equal(build(&f, &t), EHTAB_OK);
    expect(&t, TEXT, (struct sa_rule){.kind = SA_K_RAREG, .reg = 5});
    expect(&t, TEXT + 0x40, (struct sa_rule){.kind = SA_K_END});
    expect(&t, TEXT + 0x80, (struct sa_rule){.kind = SA_K_REG, .reg = 10});
    expect(&t, TEXT + 0xc0, (struct sa_rule){.kind = SA_K_DEREF_RBP, .off = -8});
    expect(&t, TEXT + 0x100, (struct sa_rule){.kind = SA_K_PLT11});
    expect(&t, TEXT + 0x110, (struct sa_rule){.kind = SA_K_PLT10});
    expect(&t, TEXT + 0x120, (struct sa_rule){.kind = SA_K_PLT9});
    expect(&t, TEXT + 0x140, (struct sa_rule){});
    expect(&t, TEXT + 0x180,
           (struct sa_rule){.kind = SA_K_RSP, .off = 8, .fpk = SA_FP_RBP, .fpoff = -16});
    expect(&t, TEXT + 0x1c0, (struct sa_rule){});
    expect(&t, TEXT + 0x200, (struct sa_rule){.kind = SA_K_RSP, .off = 8});
    expect(&t, TEXT + 0x204, (struct sa_rule){});
    expect(&t, TEXT + 0x240, (struct sa_rule){.kind = SA_K_SIG});
    assert_int_equal(t.bad_fde, 3);
    assert_int_equal(t.bad_expr, 1);
    assert_int_equal(t.bad_ra, 1);
    ehtab_deinit(&t);
}

/* The entry without an FDE ends the stack, up to the next FDE or 64 bytes. */
static void test_entry(void **state)
{
    static const uint64_t entry[] = {TEXT + 0x30, TEXT + 0x80, TEXT + 0xf0, TEXT + 0x108};
    struct file f = {};
    struct ehtab t;

    (void)state;
    make_plain(&f, true);
    for (size_t i = 0; i < 4; i++) {
        memcpy(f.b + offsetof(Elf64_Ehdr, e_entry), &entry[i], 8);
        assert_int_equal(build(&f, &t), EHTAB_OK);
        expect(&t, entry[i],
               i == 3 ? (struct sa_rule){.kind = SA_K_RSP, .off = 8}
                      : (struct sa_rule){.kind = SA_K_END});
        expect(&t, TEXT + 0x2f, (struct sa_rule){.kind = SA_K_RSP, .off = 256});
        expect(&t, TEXT + 0x100, (struct sa_rule){.kind = SA_K_RSP, .off = 8});
        if (i == 1) {
            expect(&t, TEXT + 0x7f, (struct sa_rule){.kind = SA_K_NOINFO});
            expect(&t, TEXT + 0xbf, (struct sa_rule){.kind = SA_K_END});
            expect(&t, TEXT + 0xc0, (struct sa_rule){.kind = SA_K_NOINFO});
        }
        ehtab_deinit(&t);
    }
}

static void test_refused(void **state)
{
    struct file f = {};
    struct ehtab t;

    (void)state;
    f.size = 10;
    assert_int_equal(build(&f, &t), EHTAB_BAD_HEADER);
    make_plain(&f, true);
    f.b[EI_CLASS] = ELFCLASS32;
    assert_int_equal(build(&f, &t), EHTAB_BAD_HEADER);
    f.b[EI_CLASS] = ELFCLASS64;
    f.b[sizeof(Elf64_Ehdr) + 2 * sizeof(Elf64_Phdr)] = PT_NOTE; /* and no sections: */
    memset(f.b + offsetof(Elf64_Ehdr, e_shoff), 0, 8);
    assert_int_equal(build(&f, &t), EHTAB_NO_EHFRAME);
    assert_null(t.row);
    assert_string_equal(ehtab_fail_name(EHTAB_NO_EHFRAME), "no_ehframe");
    for (int i = 0; i < EHTAB_FAIL_N; i++)
        assert_non_null(ehtab_fail_name((enum ehtab_fail)i));
}

/* Whatever a file says: an answer, rows in order, no fault (run under ASan and UBSan). */
static void test_damaged(void **state)
{
    struct file f = {}, d;
    struct ehtab t;
    unsigned good = 0;

    (void)state;
    make_plain(&f, true);
    srand(20261129);
    for (int i = 0; i < 20000; i++) {
        d = f;
        if (i % 8 == 0)
            d.size = (uint64_t)(rand() % SIZE);
        for (int k = 0; k <= rand() % 4; k++) {
            uint32_t at = (uint32_t)rand() % (i % 3 ? f.at : 0x200);

            d.b[(i % 3 ? FRAME_AT : 0) + at] = (uint8_t)rand();
        }
        if (build(&d, &t) != EHTAB_OK)
            continue;
        good++;
        for (size_t k = 1; k < t.n; k++)
            assert_true(t.row[k - 1].pc < t.row[k].pc);
        ehtab_deinit(&t);
    }
    assert_true(good > 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plain),   cmocka_unit_test(test_no_sections),
        cmocka_unit_test(test_special), cmocka_unit_test(test_entry),
        cmocka_unit_test(test_refused), cmocka_unit_test(test_damaged),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
