// SPDX-License-Identifier: Apache-2.0
#include "agent/file/ehtab.h"

#include <elf.h>
#include <stdlib.h>
#include <string.h>

#include "agent/file/ehtab_private.h"

enum {
    MAX_SECTIONS = 65535,
    MAX_NAMES = 1 << 20, /* bytes of section names */
    MAX_PHDRS = 512,
    MAX_SEGS = 64,
    MAX_DYNSYM = 8 << 20, /* bytes searched for makecontext */
    MAX_DYNSTR = 16 << 20,
    MAX_CTX_CODE = 64 << 10,
    MAX_PLT = 8,
    ENTRY_CODE = 64, /* bytes, of a program's entry that no FDE describes */
    PADDING = 16,    /* between functions: no information needed there */
};

const char *ehtab_fail_name(enum ehtab_fail f)
{
    static const char *const name[EHTAB_FAIL_N] = {
        [EHTAB_OK] = "ok",           [EHTAB_NO_EHFRAME] = "no_ehframe",
        [EHTAB_EMPTY] = "empty",     [EHTAB_BAD_HEADER] = "bad_header",
        [EHTAB_TOO_BIG] = "too_big", [EHTAB_TIMEOUT] = "timeout",
        [EHTAB_CRASHED] = "crashed", [EHTAB_BUDGET] = "table_budget",
    };

    return f < EHTAB_FAIL_N ? name[f] : "?";
}

/* What was read of the file. Tables are checked against its size before memory is taken. */
struct elf {
    const struct ehtab_file *file;
    Elf64_Ehdr eh;
    Elf64_Phdr *ph;
    Elf64_Shdr *sh; /* NULL: none, or not usable */
    char *names;
    size_t n_sh, n_names;
    struct ehtab_seg seg[MAX_SEGS];
    size_t n_seg;
};

/* n bytes at an offset into new memory; NULL if they are not there. n > 0 */
static void *load(const struct ehtab_file *f, uint64_t at, uint64_t n, enum ehtab_fail *why)
{
    uint8_t *p;

    *why = EHTAB_BAD_HEADER;
    if (!n || at > f->size || n > f->size - at)
        return NULL;
    *why = EHTAB_CRASHED;
    p = malloc(n);
    if (!p)
        return NULL;
    for (uint64_t got = 0; got < n;) {
        int64_t r = f->read(f->ctx, p + got, n - got, at + got);

        if (r <= 0) { /* shorter than it was */
            free(p);
            return NULL;
        }
        got += (uint64_t)r;
    }
    return p;
}

static enum ehtab_fail elf_open(struct elf *e)
{
    enum ehtab_fail why;
    void *p = load(e->file, 0, sizeof e->eh, &why);

    if (!p)
        return why;
    memcpy(&e->eh, p, sizeof e->eh);
    free(p);
    if (memcmp(e->eh.e_ident, ELFMAG, SELFMAG) != 0 || e->eh.e_ident[EI_CLASS] != ELFCLASS64 ||
        e->eh.e_machine != EM_X86_64 || e->eh.e_phentsize != sizeof *e->ph || !e->eh.e_phnum ||
        e->eh.e_phnum > MAX_PHDRS)
        return EHTAB_BAD_HEADER;
    e->ph = load(e->file, e->eh.e_phoff, e->eh.e_phnum * sizeof *e->ph, &why);
    if (!e->ph)
        return why;
    for (size_t i = 0; i < e->eh.e_phnum; i++) {
        const Elf64_Phdr *h = &e->ph[i];

        if (h->p_type == PT_LOAD && h->p_flags & PF_X && e->n_seg < MAX_SEGS &&
            h->p_memsz <= UINT64_MAX - h->p_vaddr)
            e->seg[e->n_seg++] = (struct ehtab_seg){h->p_vaddr, h->p_vaddr + h->p_memsz};
    }
    return EHTAB_OK;
}

/* Section headers and names; without them the file still has its program headers. */
static void elf_sections(struct elf *e)
{
    const Elf64_Shdr *s;
    enum ehtab_fail why;

    if (!e->eh.e_shoff || e->eh.e_shentsize != sizeof *e->sh || !e->eh.e_shnum ||
        e->eh.e_shstrndx >= e->eh.e_shnum)
        return;
    e->sh = load(e->file, e->eh.e_shoff, e->eh.e_shnum * sizeof *e->sh, &why);
    if (!e->sh)
        return;
    e->n_sh = e->eh.e_shnum;
    s = &e->sh[e->eh.e_shstrndx];
    e->n_names = s->sh_size <= MAX_NAMES && s->sh_type != SHT_NOBITS ? s->sh_size : 0;
    e->names = load(e->file, s->sh_offset, e->n_names, &why);
    if (e->names && e->names[e->n_names - 1] == 0)
        return;
    free(e->sh);
    e->sh = NULL;
    e->n_sh = 0;
}

static void elf_close(struct elf *e)
{
    free(e->ph);
    free(e->sh);
    free(e->names);
}

static const char *section_name(const struct elf *e, const Elf64_Shdr *s)
{
    return s->sh_name < e->n_names ? e->names + s->sh_name : "";
}

/* ---- where .eh_frame is --------------------------------------------------------------------- */

/* By PT_GNU_EH_FRAME: its header points to .eh_frame and says how many FDEs it has; the end is at
 * most that of the segment. */
static enum ehtab_fail frame_by_phdr(const struct elf *e, struct ehtab_frame *f, uint64_t *ret_at)
{
    const Elf64_Phdr *hdr = NULL, *in = NULL;
    enum ehtab_fail why;
    struct ehtab_cur c;
    uint64_t at, n;
    unsigned version, ptr_enc, count_enc;
    uint8_t *p;

    for (size_t i = 0; i < e->eh.e_phnum; i++)
        if (e->ph[i].p_type == PT_GNU_EH_FRAME)
            hdr = &e->ph[i];
    if (!hdr)
        return EHTAB_NO_EHFRAME;
    n = hdr->p_filesz < 24 ? hdr->p_filesz : 24;
    p = load(e->file, hdr->p_offset, n, &why);
    if (!p)
        return why;
    c = (struct ehtab_cur){p, p + n, false};
    version = (unsigned)ehtab_cur_u(&c, 1);
    ptr_enc = (unsigned)ehtab_cur_u(&c, 1);
    count_enc = (unsigned)ehtab_cur_u(&c, 1);
    (void)ehtab_cur_u(&c, 1);
    at = ehtab_cur_ptr(&c, ptr_enc, hdr->p_vaddr + 4);
    f->max_fdes = ehtab_cur_ptr(&c, count_enc, 0);
    free(p);
    for (size_t i = 0; i < e->eh.e_phnum; i++)
        if (e->ph[i].p_type == PT_LOAD && at >= e->ph[i].p_vaddr &&
            at - e->ph[i].p_vaddr < e->ph[i].p_filesz)
            in = &e->ph[i];
    if (c.bad || version != 1 || !in || !f->max_fdes)
        return EHTAB_BAD_HEADER;
    f->vaddr = at;
    f->n = in->p_filesz - (at - in->p_vaddr);
    *ret_at = in->p_offset + (at - in->p_vaddr);
    return EHTAB_OK;
}

static enum ehtab_fail find_frame(const struct elf *e, struct ehtab_frame *f, uint64_t *ret_at)
{
    for (size_t i = 0; i < e->n_sh; i++) {
        const Elf64_Shdr *s = &e->sh[i];

        if (s->sh_type == SHT_NOBITS || strcmp(section_name(e, s), ".eh_frame") != 0)
            continue;
        f->vaddr = s->sh_addr;
        f->n = s->sh_size;
        *ret_at = s->sh_offset;
        return EHTAB_OK;
    }
    return frame_by_phdr(e, f, ret_at);
}

/* ---- special cases -------------------------------------------------------------------------- */

static int by_pc(const void *a, const void *b)
{
    const struct ehtab_row *x = a, *y = b;

    if (x->pc != y->pc)
        return x->pc < y->pc ? -1 : 1;
    /* NOINFO first: a real row at the same address wins */
    return (y->rule.kind == SA_K_NOINFO) - (x->rule.kind == SA_K_NOINFO);
}

static void sort(struct ehtab *t)
{
    bool sorted = true;

    for (size_t i = 1; i < t->n && sorted; i++)
        sorted = by_pc(&t->row[i - 1], &t->row[i]) <= 0;
    if (!sorted)
        qsort(t->row, t->n, sizeof *t->row, by_pc);
}

/* First row with pc >= at. */
static size_t lower(const struct ehtab *t, uint64_t at)
{
    size_t lo = 0, hi = t->n;

    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;

        if (t->row[mid].pc < at)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

static bool covered(const struct ehtab *t, uint64_t lo, uint64_t hi)
{
    size_t i = lower(t, lo);

    if (i && t->row[i - 1].rule.kind != SA_K_NOINFO && (i == t->n || t->row[i].pc != lo))
        return true;
    for (; i < t->n && t->row[i].pc < hi; i++)
        if (t->row[i].rule.kind != SA_K_NOINFO)
            return true;
    return false;
}

/* lld writes no FDE for PLT sections: one stack slot. t is sorted before and after. */
static void add_plt(const struct elf *e, struct ehtab *t)
{
    const struct sa_rule slot = {.kind = SA_K_RSP, .off = 8}, noinfo = {.kind = SA_K_NOINFO};
    struct ehtab_seg plt[MAX_PLT];
    size_t n = 0;

    for (size_t i = 0; i < e->n_sh && n < MAX_PLT; i++) {
        const Elf64_Shdr *s = &e->sh[i];

        if (strncmp(section_name(e, s), ".plt", 4) != 0 || !s->sh_size ||
            s->sh_size > UINT64_MAX - s->sh_addr || covered(t, s->sh_addr, s->sh_addr + s->sh_size))
            continue;
        plt[n++] = (struct ehtab_seg){s->sh_addr, s->sh_addr + s->sh_size};
    }
    for (size_t i = 0; i < n; i++) {
        ehtab_add(t, plt[i].lo, &slot);
        ehtab_add(t, plt[i].hi, &noinfo);
        t->plt_made++;
    }
    if (n)
        sort(t);
}

/* Where the program begins is where its stack ends. The dynamic loader's entry, written in
 * assembly, has no FDE to say so; it reaches to the next one. t is sorted before and after. */
static void add_entry(const struct elf *e, struct ehtab *t)
{
    const struct sa_rule end = {.kind = SA_K_END}, noinfo = {.kind = SA_K_NOINFO};
    uint64_t at = e->eh.e_entry;
    size_t next;

    if (!at || at > UINT64_MAX - ENTRY_CODE || covered(t, at, at + 1))
        return;
    next = lower(t, at + 1);
    if (next == t->n || t->row[next].pc > at + ENTRY_CODE)
        ehtab_add(t, at + ENTRY_CODE, &noinfo);
    ehtab_add(t, at, &end);
    sort(t);
}

/* Value and size of the exported function makecontext; 0 if there is none. */
static uint64_t find_makecontext(const struct elf *e, uint64_t *ret_size)
{
    static const char name[] = "makecontext";
    uint64_t found = 0;

    for (size_t i = 0; i < e->n_sh && !found; i++) {
        const Elf64_Shdr *s = &e->sh[i], *st;
        enum ehtab_fail why;
        Elf64_Sym *sym;
        char *str;

        if (s->sh_type != SHT_DYNSYM || s->sh_link >= e->n_sh || s->sh_size > MAX_DYNSYM)
            continue;
        st = &e->sh[s->sh_link];
        if (st->sh_size > MAX_DYNSTR || st->sh_size < sizeof name)
            continue;
        sym = load(e->file, s->sh_offset, s->sh_size, &why);
        str = load(e->file, st->sh_offset, st->sh_size, &why);
        for (size_t k = 0; sym && str && k < s->sh_size / sizeof *sym && !found; k++) {
            if (!sym[k].st_value || sym[k].st_name > st->sh_size - sizeof name ||
                memcmp(str + sym[k].st_name, name, sizeof name) != 0)
                continue;
            found = sym[k].st_value;
            *ret_size = sym[k].st_size;
        }
        free(sym);
        free(str);
    }
    return found;
}

/*
 * makecontext() stores the address of a local function, __start_context, as the return address of
 * the new stack. The byte before it belongs to padding or to another function, so looking up the
 * return address - 1 goes astray. Find it: a RIP-relative LEA inside makecontext whose target
 * starts an FDE. 0: none.
 */
static uint64_t start_context(const struct elf *e, const struct ehtab *t)
{
    uint64_t n = 0, fn = find_makecontext(e, &n), target = 0;

    for (size_t i = 0; fn && i < e->eh.e_phnum && !target; i++) {
        const Elf64_Phdr *h = &e->ph[i];
        enum ehtab_fail why;
        uint8_t *code;

        if (h->p_type != PT_LOAD || fn < h->p_vaddr || fn - h->p_vaddr >= h->p_filesz ||
            n > MAX_CTX_CODE)
            continue;
        code = load(e->file, h->p_offset + (fn - h->p_vaddr), n, &why);
        for (uint64_t k = 0; code && k + 7 <= n && !target; k++) {
            int32_t disp;
            uint64_t to;
            size_t at;

            if ((code[k] != 0x48 && code[k] != 0x4c) || code[k + 1] != 0x8d ||
                (code[k + 2] & 0xc7) != 0x05)
                continue;
            memcpy(&disp, code + k + 3, sizeof disp);
            to = fn + k + 7 + (uint64_t)(int64_t)disp;
            for (at = lower(t, to); at < t->n && t->row[at].pc == to; at++)
                if (t->row[at].rule.kind != SA_K_NOINFO)
                    target = to;
        }
        free(code);
    }
    return target;
}

/* Of equal addresses the last; no row for padding; no row that says what the one before says. */
static void squeeze(struct ehtab *t, uint64_t ctx)
{
    size_t out = 0;

    for (size_t i = 0; i < t->n; i++) {
        struct ehtab_row r = t->row[i];

        if (i + 1 < t->n && t->row[i + 1].pc == r.pc)
            continue;
        if (ctx && r.pc == ctx) {
            /* the byte before __start_context, and the function itself, end the stack */
            r = (struct ehtab_row){ctx - 1, {.kind = SA_K_END}};
            if (out && t->row[out - 1].pc == r.pc)
                out--;
            t->ctx_end++;
        } else if (r.rule.kind == SA_K_NOINFO && i + 1 < t->n &&
                   t->row[i + 1].pc - r.pc < PADDING) {
            continue;
        }
        if (out && !memcmp(&t->row[out - 1].rule, &r.rule, sizeof r.rule))
            continue;
        t->row[out++] = r;
    }
    t->n = out;
}

static enum ehtab_fail build(struct elf *e, struct ehtab *t)
{
    struct ehtab_frame f = {};
    enum ehtab_fail why = elf_open(e);
    uint64_t at = 0;
    uint8_t *sec;

    if (why)
        return why;
    elf_sections(e);
    why = find_frame(e, &f, &at);
    if (why)
        return why;
    if (f.n > EHTAB_MAX_SECTION)
        return EHTAB_TOO_BIG;
    if (!f.n)
        return EHTAB_EMPTY;
    sec = load(e->file, at, f.n, &why);
    if (!sec)
        return why;
    f.sec = sec;
    f.seg = e->seg;
    f.n_seg = e->n_seg;
    ehtab_walk(&f, t);
    free(sec);
    if (t->full)
        return EHTAB_TOO_BIG;
    if (!t->n)
        return EHTAB_EMPTY;
    sort(t);
    add_plt(e, t);
    add_entry(e, t);
    squeeze(t, start_context(e, t));
    return t->full ? EHTAB_TOO_BIG : EHTAB_OK;
}

enum ehtab_fail ehtab_build(const struct ehtab_file *f, struct ehtab *t)
{
    struct elf e = {.file = f};
    enum ehtab_fail why;

    *t = (struct ehtab){};
    why = build(&e, t);
    elf_close(&e);
    if (why)
        ehtab_deinit(t);
    return why;
}

void ehtab_deinit(struct ehtab *t)
{
    free(t->row);
    *t = (struct ehtab){};
}

const struct sa_rule *ehtab_find(const struct ehtab *t, uint64_t pc)
{
    size_t i = lower(t, pc);

    if (i < t->n && t->row[i].pc == pc)
        return &t->row[i].rule;
    return i ? &t->row[i - 1].rule : NULL;
}
