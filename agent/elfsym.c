// SPDX-License-Identifier: Apache-2.0
/*
 * Loading is three steps: raw symbols of all tables (24 bytes each), sorted; one per address kept,
 * labels inside sized functions dropped; compacted to 16 bytes. Peak memory is 2.5 times the
 * result.
 */
#include "agent/elfsym.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/arena.h"

#define READ_SYMBOLS 1024 /* per read */
#define NAME_TABLES  3
#define COMPARED     192
#define NAME_MASK    ((UINT32_C(1) << 29) - 1)

/* Where the name stands: table (0 .symtab, 1 .dynsym, 2 of the debug file), PLT, offset. */
static uint32_t name_ref(uint32_t table, bool plt, uint64_t offset)
{
    return table << 30 | (uint32_t)plt << 29 | (uint32_t)(offset & NAME_MASK);
}

struct sym {
    uint64_t addr;
    uint32_t size; /* of size 0 symbols: what they reach to */
    uint32_t name;
};

struct raw {
    uint64_t addr, size, end; /* end of its section */
    uint32_t name;
    uint8_t rank;  /* GLOBAL 0, WEAK 1, LOCAL 2, PLT 3 */
    bool has_size; /* before the reach of size 0 is known */
};

struct names {
    bool debug; /* in the debug file */
    uint64_t offset, size;
};

struct elfsym {
    struct binary *b;
    int debug_fd; /* -1: none */
    uint64_t debug_size;
    struct names names[NAME_TABLES];
    uint32_t n;
    struct sym *sym;
};

struct loader {
    struct elfsym *s;
    struct raw *raw;
    uint32_t n, room;
};

static int64_t read_binary(void *ctx, void *to, uint64_t n, uint64_t at)
{
    const struct elfsym *s = ctx;

    return binary_read(s->b, to, n, at);
}

static int64_t read_debug(void *ctx, void *to, uint64_t n, uint64_t at)
{
    const struct elfsym *s = ctx;
    uint64_t done = 0;

    while (done < n) {
        ssize_t r = pread(s->debug_fd, (char *)to + done, n - done, (off_t)(at + done));

        if (r < 0 && errno == EINTR)
            continue;
        if (r < 0)
            return -errno;
        if (r == 0)
            break;
        done += (uint64_t)r;
    }
    return (int64_t)done;
}

static int push(struct loader *l, struct raw r, struct err *err)
{
    if (l->n == l->room) {
        if (l->room >= ELFSYM_MAX_SYMBOLS)
            return err_set(err, -E2BIG, "elf: more than %u symbols", ELFSYM_MAX_SYMBOLS);
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
static int load_table(struct loader *l, const struct elffile *f, uint32_t type, uint32_t t,
                      bool debug, struct err *err)
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
    l->s->names[t] = (struct names){.debug = debug, .offset = str->offset, .size = str->size};
    batch = xmalloc(READ_SYMBOLS * sizeof *batch);
    for (uint64_t at = 0; r == 0 && at < count; at += READ_SYMBOLS) {
        uint64_t n = count - at < READ_SYMBOLS ? count - at : READ_SYMBOLS;

        r = elffile_read(f, batch, n * sizeof *batch, sec->offset + at * sizeof *batch, err);
        for (uint64_t i = 0; r == 0 && i < n; i++) {
            const Elf64_Sym *y = &batch[i];
            unsigned bind = ELF64_ST_BIND(y->st_info);

            if (!wanted(f, y) || y->st_name >= str->size || y->st_name > NAME_MASK)
                continue;
            r = push(
                l,
                (struct raw){.addr = y->st_value,
                             .size = y->st_size,
                             .end = f->section[y->st_shndx].addr + f->section[y->st_shndx].size,
                             .name = name_ref(t, false, y->st_name),
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
            if (hit && hit->name <= NAME_MASK)
                r = push(l,
                         (struct raw){.addr = p->addr + at,
                                      .size = size,
                                      .name = name_ref(1, true, hit->name),
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

/* ---- debug files --------------------------------------------------------------------------- */

/* DIR/.build-id/ab/cdef....debug, of the host, with the same build id. */
static void load_debug(struct loader *l, const char *dir)
{
    struct elfsym *s = l->s;
    struct elffile f = {};
    struct buf path;
    struct stat st;
    uint32_t before = l->n;

    if (!dir || !dir[0] || s->b->id_kind != BIN_ID_GNU || s->b->id_len < 2)
        return;
    buf_init(&path, 4096);
    buf_printf(&path, "%s/.build-id/%02x/", dir, s->b->id_bytes[0]);
    for (unsigned i = 1; i < s->b->id_len; i++)
        buf_printf(&path, "%02x", s->b->id_bytes[i]);
    buf_str(&path, STR(".debug"));
    buf_chr(&path, '\0');
    s->debug_fd = path.failed ? -1 : open(path.p, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    buf_deinit(&path);
    if (s->debug_fd < 0)
        return;
    if (fstat(s->debug_fd, &st) == 0 && S_ISREG(st.st_mode) &&
        elffile_open(&f, read_debug, s, (uint64_t)st.st_size, NULL) == 0 &&
        elffile_sections(&f, NULL) == 0 && f.build_id_len == s->b->id_len &&
        memcmp(f.build_id, s->b->id_bytes, f.build_id_len) == 0 &&
        load_table(l, &f, SHT_SYMTAB, 2, true, NULL) == 0 && l->n > before) {
        s->debug_size = f.size;
    } else {
        l->n = before;
        close(s->debug_fd);
        s->debug_fd = -1;
    }
    elffile_close(&f);
}

/* ---- sorting ------------------------------------------------------------------------------- */

static int64_t read_names(const struct elfsym *s, const struct names *t, void *to, uint64_t n,
                          uint64_t at)
{
    // NOLINTNEXTLINE(performance-no-int-to-ptr): sheds const
    return t->debug ? read_debug((void *)(uintptr_t)s, to, n, t->offset + at)
                    : binary_read(s->b, to, n, t->offset + at);
}

/* Names of one table, by their first bytes: aliases differ there (C1 and C2 of constructors). The
 * one with fewer underscores before it is what people call it: clone3, not __GI___clone3. */
static int compare_names(const struct elfsym *s, uint32_t x, uint32_t y)
{
    const struct names *t = &s->names[x >> 30];
    char a[COMPARED + 1] = "", b[COMPARED + 1] = "";

    if (read_names(s, t, a, COMPARED, x & NAME_MASK) < 0 ||
        read_names(s, t, b, COMPARED, y & NAME_MASK) < 0)
        return 0;
    if (strspn(a, "_") != strspn(b, "_"))
        return strspn(a, "_") < strspn(b, "_") ? -1 : 1;
    return strcmp(a, b);
}

static int by_addr(const void *a, const void *b, void *ctx)
{
    const struct raw *x = a, *y = b;
    int r;

    if (x->addr != y->addr)
        return x->addr < y->addr ? -1 : 1;
    if (x->has_size != y->has_size)
        return x->has_size ? -1 : 1;
    if (x->rank != y->rank)
        return x->rank < y->rank ? -1 : 1;
    if (x->name >> 30 != y->name >> 30) /* the same symbol in two tables */
        return x->name >> 30 < y->name >> 30 ? -1 : 1;
    r = x->name == y->name ? 0 : compare_names(ctx, x->name, y->name);
    return r ? r : (x->name > y->name) - (x->name < y->name);
}

/* The sorted raw symbols into s: one per address, no labels inside sized functions. */
static void compact(struct elfsym *s, struct raw *raw, uint32_t n)
{
    uint32_t kept = 0;
    uint64_t covered = 0; /* end of the sized functions so far */

    for (uint32_t i = 0; i < n; i++) {
        if (kept && raw[kept - 1].addr == raw[i].addr)
            continue;
        if (!raw[i].has_size && raw[i].addr < covered)
            continue;
        if (raw[i].has_size && raw[i].addr + raw[i].size > covered)
            covered = raw[i].addr + raw[i].size;
        raw[kept++] = raw[i];
    }
    s->sym = xmalloc((kept ? kept : 1) * sizeof *s->sym);
    for (uint32_t i = 0; i < kept; i++) {
        uint64_t size = raw[i].size;

        if (!raw[i].has_size) {
            uint64_t next = i + 1 < kept ? raw[i + 1].addr : UINT64_MAX;
            uint64_t end = raw[i].end < next ? raw[i].end : next;

            size = end > raw[i].addr ? end - raw[i].addr : 0;
        }
        s->sym[i] = (struct sym){.addr = raw[i].addr,
                                 .size = size < UINT32_MAX ? (uint32_t)size : UINT32_MAX,
                                 .name = raw[i].name};
    }
    s->n = kept;
}

static int load(struct loader *l, struct elffile *f, const char *debug_dir, struct err *err)
{
    TRY(elffile_open(f, read_binary, l->s, l->s->b->size, err));
    TRY(elffile_sections(f, err));
    TRY(load_table(l, f, SHT_SYMTAB, 0, false, err));
    TRY(load_table(l, f, SHT_DYNSYM, 1, false, err));
    TRY(load_plt(l, f, err));
    if (l->s->names[0].size == 0) /* stripped */
        load_debug(l, debug_dir);
    return 0;
}

int elfsym_open(struct binary *b, const char *debug_dir, struct elfsym **ret, struct err *err)
{
    struct elfsym *s = xcalloc(1, sizeof *s);
    struct loader l = {.s = s};
    struct elffile f = {};
    int r;

    s->b = binary_ref(b);
    s->debug_fd = -1;
    r = load(&l, &f, debug_dir, err);
    elffile_close(&f);
    if (r == 0) {
        if (l.n)
            qsort_r(l.raw, l.n, sizeof *l.raw, by_addr, s);
        compact(s, l.raw, l.n);
        *ret = s;
    }
    free(l.raw);
    if (r < 0)
        elfsym_close(s);
    return r;
}

struct elfsym *elfsym_close(struct elfsym *s)
{
    if (!s)
        return NULL;
    if (s->debug_fd >= 0)
        close(s->debug_fd);
    binary_unref(s->b);
    free(s->sym);
    free(s);
    return NULL;
}

/* ---- asking -------------------------------------------------------------------------------- */

bool elfsym_find(const struct elfsym *s, uint64_t addr, struct elfsym_hit *ret)
{
    uint32_t lo = 0, hi = s->n;

    while (lo < hi) { /* first symbol beyond addr */
        uint32_t mid = lo + (hi - lo) / 2;

        if (s->sym[mid].addr <= addr)
            lo = mid + 1;
        else
            hi = mid;
    }
    /* an inner function that ends before addr may lie in a larger one: a few steps back */
    for (uint32_t back = 0; back < 16 && lo > 0; back++) {
        const struct sym *y = &s->sym[--lo];

        if (addr - y->addr < y->size) {
            *ret = (struct elfsym_hit){.index = lo, .addr = y->addr};
            return true;
        }
    }
    return false;
}

static bool read_name(const struct elfsym *s, uint32_t name, struct buf *out)
{
    const struct names *t = &s->names[name >> 30 < NAME_TABLES ? name >> 30 : 0];
    uint64_t at = name & NAME_MASK;
    size_t start = out->n;

    while (at < t->size && out->n - start < ELFSYM_MAX_NAME) {
        char part[256];
        uint64_t n = t->size - at < sizeof part ? t->size - at : sizeof part;
        int64_t got = read_names(s, t, part, n, at);
        const char *end;

        if (got <= 0)
            return false;
        end = memchr(part, 0, (size_t)got);
        buf_add(out, part, end ? (size_t)(end - part) : (size_t)got);
        if (end)
            return !out->failed && out->n > start;
        at += (uint64_t)got;
    }
    return false; /* no end, or too long */
}

bool elfsym_name(const struct elfsym *s, uint32_t index, struct buf *out)
{
    size_t start = out->n;
    uint32_t name;

    if (index >= s->n)
        return false;
    name = s->sym[index].name;
    if (!read_name(s, name, out)) {
        out->n = start;
        return false;
    }
    if (name >> 29 & 1)
        buf_str(out, STR("@plt"));
    return !out->failed;
}

uint64_t elfsym_bytes(const struct elfsym *s)
{
    return sizeof *s + (uint64_t)s->n * sizeof *s->sym;
}

uint32_t elfsym_count(const struct elfsym *s)
{
    return s->n;
}

bool elfsym_has_debug(const struct elfsym *s)
{
    return s->debug_fd >= 0;
}
