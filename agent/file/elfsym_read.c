// SPDX-License-Identifier: Apache-2.0
/*
 * Loading is three steps: raw symbols of all tables (24 bytes each), sorted; one per address kept,
 * labels inside sized functions dropped; compacted to 16 bytes. Peak memory is 2.5 times the
 * result.
 */
#include "agent/file/elfsym_read.h"

#include <elf.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "agent/file/minidebug.h"
#include "base/arena.h"

#define READ_SYMBOLS 1024 /* per read */
#define COMPARED     192

struct raw {
    uint64_t addr, size, end; /* end of its section */
    uint32_t name;
    uint8_t rank;  /* GLOBAL 0, WEAK 1, LOCAL 2, PLT 3 */
    bool has_size; /* before the reach of size 0 is known */
};

struct loader {
    const struct elfsym_job *job;
    struct elfsym_arrays *to;
    struct raw *raw;
    uint32_t n, room, max;
};

static int push(struct loader *l, struct raw r, struct err *err)
{
    if (l->n == l->room) {
        if (l->n >= l->max)
            return err_set(err, -E2BIG, "elf: more than %u symbols", l->max);
        l->room = l->room ? 2 * l->room : 1024;
        l->raw = xrealloc(l->raw, l->room * sizeof *l->raw);
    }
    l->raw[l->n++] = r;
    return 0;
}

static bool wanted(const struct elffile *f, const Elf64_Sym *y)
{
    unsigned type = ELF64_ST_TYPE(y->st_info);

    if (y->st_shndx == SHN_UNDEF || y->st_shndx >= f->n_section || y->st_name == 0)
        return false;
    if (!(f->section[y->st_shndx].flags & SHF_EXECINSTR))
        return false;
    return type == STT_FUNC || type == STT_GNU_IFUNC || type == STT_NOTYPE;
}

/* One symbol table; its names become name table t. */
static int load_table(struct loader *l, const struct elffile *f, uint32_t type, enum elfsym_table t,
                      struct err *err)
{
    const struct elffile_section *sec = NULL, *str;
    Elf64_Sym *batch;
    uint64_t count;
    int r = 0;

    for (uint32_t i = 1; i < f->n_section && !sec; i++) {
        if (f->section[i].type == type)
            sec = &f->section[i];
    }
    if (!sec)
        return 0;
    if (sec->link >= f->n_section || sec->entsize != sizeof *batch)
        return err_set(err, -EINVAL, "elf: symbol table with entries of %" PRIu64 " bytes",
                       sec->entsize);
    str = &f->section[sec->link];
    if (str->type != SHT_STRTAB || str->offset > f->size || str->size > f->size - str->offset)
        return err_set(err, -EINVAL, "elf: names of a symbol table beyond the end");
    count = sec->size / sizeof *batch;
    if (count > ELFSYM_MAX_SYMBOLS)
        return err_set(err, -E2BIG, "elf: %" PRIu64 " symbols, the limit is %u", count,
                       ELFSYM_MAX_SYMBOLS);
    l->to->names[t] = (struct elfsym_names){.offset = str->offset, .size = str->size};
    batch = xmalloc(READ_SYMBOLS * sizeof *batch);
    for (uint64_t at = 0; r == 0 && at < count; at += READ_SYMBOLS) {
        uint64_t n = count - at < READ_SYMBOLS ? count - at : READ_SYMBOLS;

        r = elffile_read(f, batch, n * sizeof *batch, sec->offset + at * sizeof *batch, err);
        for (uint64_t i = 0; r == 0 && i < n; i++) {
            const Elf64_Sym *y = &batch[i];
            unsigned bind = ELF64_ST_BIND(y->st_info);

            if (!wanted(f, y) || y->st_name >= str->size || y->st_name > ELFSYM_NAME_MASK)
                continue;
            r = push(
                l,
                (struct raw){.addr = y->st_value,
                             .size = y->st_size,
                             .end = f->section[y->st_shndx].addr + f->section[y->st_shndx].size,
                             .name = elfsym_name_ref(t, false, y->st_name),
                             .rank = bind == STB_LOCAL  ? 2
                                     : bind == STB_WEAK ? 1
                                                        : 0,
                             .has_size = y->st_size > 0},
                err);
        }
    }
    free(batch);
    return r;
}

/* ---- PLT ----------------------------------------------------------------------------------- */

struct slot {
    uint64_t got;
    uint32_t name; /* in .dynstr */
};

struct slots {
    struct slot *v;
    uint32_t n, room;
};

static int by_got(const void *a, const void *b)
{
    const struct slot *x = a, *y = b;

    return (x->got > y->got) - (x->got < y->got);
}

static int add_slot(struct slots *s, const struct elffile *f, const struct elffile_section *dynsym,
                    const Elf64_Rela *x, struct err *err)
{
    uint64_t type = ELF64_R_TYPE(x->r_info), sym = ELF64_R_SYM(x->r_info);
    Elf64_Sym y;

    if ((type != R_X86_64_JUMP_SLOT && type != R_X86_64_GLOB_DAT) || sym >= dynsym->size / sizeof y)
        return 0;
    TRY(elffile_read(f, &y, sizeof y, dynsym->offset + sym * sizeof y, err));
    if (!y.st_name)
        return 0;
    if (s->n == s->room) {
        s->room = s->room ? 2 * s->room : 256;
        s->v = xrealloc(s->v, s->room * sizeof *s->v);
    }
    s->v[s->n++] = (struct slot){x->r_offset, y.st_name};
    return 0;
}

/* The GOT slots that the loader fills with functions, and their names. */
static int read_slots(struct slots *ret, const struct elffile *f, const char *section,
                      struct err *err)
{
    const struct elffile_section *rela = elffile_section(f, section);
    const struct elffile_section *dynsym;
    Elf64_Rela *batch;
    uint64_t n;
    int r = 0;

    if (!rela || rela->type != SHT_RELA || rela->link >= f->n_section)
        return 0;
    dynsym = &f->section[rela->link];
    n = rela->size / sizeof(Elf64_Rela);
    if (n > ELFSYM_MAX_SYMBOLS / 16)
        return 0;
    batch = xmalloc(READ_SYMBOLS * sizeof *batch);
    for (uint64_t at = 0; r == 0 && at < n; at += READ_SYMBOLS) {
        uint64_t part = n - at < READ_SYMBOLS ? n - at : READ_SYMBOLS;

        r = elffile_read(f, batch, part * sizeof *batch, rela->offset + at * sizeof *batch, err);
        for (uint64_t i = 0; r == 0 && i < part; i++)
            r = add_slot(ret, f, dynsym, &batch[i], err);
    }
    free(batch);
    return r;
}

/* A stub is an indirect jump through a GOT slot: ff 25 and a displacement from the next
 * instruction, found anywhere in the stub's 8 or 16 bytes (x86-64 psABI, with and without IBT). */
static int load_stubs(struct loader *l, const struct elffile *f, const char *section,
                      const struct slots *slots, struct err *err)
{
    const struct elffile_section *p = elffile_section(f, section);
    uint64_t size = strcmp(section, ".plt.got") == 0 ? 8 : 16;
    uint8_t *code;
    int r;

    if (!p || p->type != SHT_PROGBITS || p->size > UINT64_C(1) << 20)
        return 0;
    if (p->entsize == 8 || p->entsize == 16)
        size = p->entsize;
    code = xmalloc(p->size + 1);
    r = elffile_read(f, code, p->size, p->offset, err);
    for (uint64_t at = 0; r == 0 && at + size <= p->size; at += size) {
        for (uint64_t i = at; i + 6 <= at + size; i++) {
            struct slot key = {}, *hit;
            int32_t disp;

            if (code[i] != 0xff || code[i + 1] != 0x25)
                continue;
            memcpy(&disp, code + i + 2, sizeof disp);
            key.got = p->addr + i + 6 + (uint64_t)(int64_t)disp;
            hit = bsearch(&key, slots->v, slots->n, sizeof key, by_got);
            if (hit && hit->name <= ELFSYM_NAME_MASK)
                r = push(l,
                         (struct raw){.addr = p->addr + at,
                                      .size = size,
                                      .name = elfsym_name_ref(ELFSYM_DYNSYM, true, hit->name),
                                      .rank = 3,
                                      .has_size = true},
                         err);
            break;
        }
    }
    free(code);
    return r;
}

static int load_plt(struct loader *l, const struct elffile *f, struct err *err)
{
    struct slots slots = {};
    int r = read_slots(&slots, f, ".rela.plt", err);

    if (r == 0)
        r = read_slots(&slots, f, ".rela.dyn", err);
    if (r == 0 && slots.n) {
        qsort(slots.v, slots.n, sizeof *slots.v, by_got);
        r = load_stubs(l, f, ".plt", &slots, err);
        if (r == 0)
            r = load_stubs(l, f, ".plt.sec", &slots, err);
        if (r == 0)
            r = load_stubs(l, f, ".plt.got", &slots, err);
    }
    free(slots.v);
    return r;
}

/* ---- sorting ------------------------------------------------------------------------------- */

int64_t elfsym_read_names(const struct elfsym_job *job, const struct elfsym_arrays *a,
                          enum elfsym_table t, void *to, uint64_t n, uint64_t at)
{
    const struct elfsym_names *names = &a->names[t];
    const struct elfsym_file *f = t == ELFSYM_DEBUG ? job->debug : job->main;
    struct elffile_bytes mini = {(const uint8_t *)a->mini, names->size};

    if (at >= names->size)
        return 0;
    n = n < names->size - at ? n : names->size - at;
    if (t == ELFSYM_MINI)
        return elffile_copy(&mini, to, n, at);
    return f ? f->read(f->ctx, to, n, names->offset + at) : -EBADF;
}

/* Names of one table, by their first bytes: aliases differ there (C1 and C2 of constructors). The
 * one with fewer underscores before it is what people call it: clone3, not __GI___clone3. */
static int compare_names(const struct loader *l, uint32_t x, uint32_t y)
{
    enum elfsym_table t = x >> 30;
    char a[COMPARED + 1] = "", b[COMPARED + 1] = "";

    if (elfsym_read_names(l->job, l->to, t, a, COMPARED, x & ELFSYM_NAME_MASK) < 0 ||
        elfsym_read_names(l->job, l->to, t, b, COMPARED, y & ELFSYM_NAME_MASK) < 0)
        return 0;
    if (strspn(a, "_") != strspn(b, "_"))
        return strspn(a, "_") < strspn(b, "_") ? -1 : 1;
    return strcmp(a, b);
}

/* Sorting looks at no names: a comparison that reads files may contradict itself. */
static int by_addr(const void *a, const void *b)
{
    const struct raw *x = a, *y = b;

    if (x->addr != y->addr)
        return x->addr < y->addr ? -1 : 1;
    if (x->has_size != y->has_size)
        return x->has_size ? -1 : 1;
    if (x->rank != y->rank)
        return x->rank < y->rank ? -1 : 1;
    return (x->name > y->name) - (x->name < y->name); /* the same in two tables: the first */
}

/* Of the symbols that begin at raw[i], the one whose name is shown. *ret_next: behind them all. */
static struct raw best_of(const struct loader *l, uint32_t i, uint32_t *ret_next)
{
    const struct raw *first = &l->raw[i];
    struct raw best = *first;

    for (i++; i < l->n && l->raw[i].addr == first->addr; i++) {
        const struct raw *r = &l->raw[i];

        if (r->has_size == first->has_size && r->rank == first->rank &&
            r->name >> 30 == first->name >> 30 && compare_names(l, r->name, best.name) < 0)
            best = *r;
    }
    *ret_next = i;
    return best;
}

/* The sorted raw symbols into the result: one per address, no labels inside sized functions. */
static void compact(struct loader *l)
{
    struct elfsym_arrays *s = l->to;
    struct raw *raw = l->raw;
    uint32_t kept = 0;
    uint64_t covered = 0; /* end of the sized functions so far */

    for (uint32_t i = 0; i < l->n;) {
        struct raw r = best_of(l, i, &i);

        if (!r.has_size && r.addr < covered)
            continue;
        if (r.has_size && r.addr + r.size > covered)
            covered = r.addr + r.size;
        raw[kept++] = r;
    }
    s->sym = xmalloc((kept ? kept : 1) * sizeof *s->sym);
    for (uint32_t i = 0; i < kept; i++) {
        uint64_t size = raw[i].size;

        if (!raw[i].has_size) {
            uint64_t next = i + 1 < kept ? raw[i + 1].addr : UINT64_MAX;
            uint64_t end = raw[i].end < next ? raw[i].end : next;

            size = end > raw[i].addr ? end - raw[i].addr : 0;
        }
        s->sym[i] = (struct elfsym_sym){.addr = raw[i].addr,
                                        .size = size < UINT32_MAX ? (uint32_t)size : UINT32_MAX,
                                        .name = raw[i].name};
    }
    s->n = kept;
}

/* ---- other files --------------------------------------------------------------------------- */

/* .symtab of another file for this binary, proved to be one. What is wrong with it costs its names
 * alone. */
static void load_debug(struct loader *l)
{
    const struct elfsym_file *d = l->job->debug;
    uint32_t before = l->n;
    struct elffile f = {};

    if (elffile_open(&f, d->read, d->ctx, d->size, NULL) < 0 || elffile_sections(&f, NULL) < 0 ||
        load_table(l, &f, SHT_SYMTAB, ELFSYM_DEBUG, NULL) < 0)
        l->n = before;
    l->to->debug_used = l->n > before;
    elffile_close(&f);
}

/* Its names are kept: the file that they stand in is in no file of the disk. */
static int keep_mini_names(struct elfsym_arrays *a, const struct elffile *f, struct err *err)
{
    const struct elfsym_names *n = &a->names[ELFSYM_MINI];

    a->mini = xmalloc(n->size + 1);
    TRY(elffile_read(f, a->mini, n->size, n->offset, err));
    a->mini[n->size] = '\0';
    return 0;
}

static void load_mini(struct loader *l, const struct elffile *main)
{
    struct elfsym_arrays *a = l->to;
    struct elffile_bytes bytes = {};
    uint32_t before = l->n;
    struct elffile f = {};
    uint8_t *inside = NULL;
    int r = minidebug_read(main, &inside, &bytes.n, NULL);

    if (r == -ENOENT)
        return;
    bytes.p = inside;
    if (r == 0)
        r = elffile_open(&f, elffile_copy, &bytes, bytes.n, NULL);
    if (r == 0)
        r = elffile_sections(&f, NULL);
    if (r == 0)
        r = load_table(l, &f, SHT_SYMTAB, ELFSYM_MINI, NULL);
    if (r == 0 && l->n > before)
        r = keep_mini_names(a, &f, NULL);
    if (r < 0)
        l->n = before;
    a->mini_used = l->n > before;
    a->mini_failed = r < 0;
    elffile_close(&f);
    free(inside);
}

static int load(struct loader *l, struct elffile *f, struct err *err)
{
    const struct elfsym_file *main = l->job->main;

    TRY(elffile_open(f, main->read, main->ctx, main->size, err));
    TRY(elffile_sections(f, err));
    TRY(load_table(l, f, SHT_SYMTAB, ELFSYM_SYMTAB, err));
    TRY(load_table(l, f, SHT_DYNSYM, ELFSYM_DYNSYM, err));
    TRY(load_plt(l, f, err));
    if (l->to->names[ELFSYM_SYMTAB].size)
        return 0;
    if (l->job->debug) /* stripped */
        load_debug(l);
    if (!l->to->debug_used)
        load_mini(l, f);
    return 0;
}

int elfsym_read(const struct elfsym_job *job, struct elfsym_arrays *ret, struct err *err)
{
    struct elfsym_arrays a = {};
    struct loader l = {.job = job, .to = &a};
    struct elffile f = {};
    int r;

    l.max = job->max_symbols && job->max_symbols < ELFSYM_MAX_SYMBOLS ? job->max_symbols
                                                                      : ELFSYM_MAX_SYMBOLS;
    r = load(&l, &f, err);
    elffile_close(&f);
    if (r == 0) {
        if (l.n)
            qsort(l.raw, l.n, sizeof *l.raw, by_addr);
        compact(&l);
        *ret = a;
    } else {
        free(a.mini);
    }
    free(l.raw);
    return r;
}
