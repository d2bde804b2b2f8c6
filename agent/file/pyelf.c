// SPDX-License-Identifier: Apache-2.0
/*
 * Every mapped file is asked for the symbol _PyRuntime, so the answer "no" must be cheap: the hash
 * table of the dynamic symbols (.gnu.hash) tells it by its Bloom filter, in two reads.
 */
#include "agent/file/pyelf.h"

#include <elf.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"

#define MAX_NAME  64
#define MAX_TABLE ((uint64_t)256 << 20) /* bytes of a symbol table or of .eh_frame */
#define BLOCK     1024                  /* symbols read at once */
#define MAX_HOT   ((uint64_t)1 << 20)   /* bytes of an eval function that are searched for jumps */
#define MAX_COLD  16
#define JUMPS     4 /* fewer into one other function are no proof */
/* Work that a file may ask for. Debian's python3.11: 2,000 and 6 million. */
#define MAX_SYMBOLS (1U << 20) /* looked at one by one, in all searches together */
#define MAX_FDES    (1U << 25) /* looked at for all jumps together */

static int64_t read_binary(void *ctx, void *to, uint64_t n, uint64_t at)
{
    return binary_read(ctx, to, n, at);
}

/* ---- symbols by name ------------------------------------------------------------------------- */

struct symbols {
    const struct elffile *f;
    const struct elffile_section *sym, *str, *hash;
    uint64_t n;
    uint32_t left; /* of MAX_SYMBOLS */
};

static bool symbols_of(const struct elffile *f, const char *name, const char *hash,
                       struct symbols *ret)
{
    const struct elffile_section *s = elffile_section(f, name);

    if (!s || s->link >= f->n_section || s->entsize != sizeof(Elf64_Sym) || s->size > MAX_TABLE)
        return false;
    *ret = (struct symbols){.f = f,
                            .sym = s,
                            .str = &f->section[s->link],
                            .hash = hash ? elffile_section(f, hash) : NULL,
                            .n = s->size / sizeof(Elf64_Sym),
                            .left = MAX_SYMBOLS};
    return true;
}

static bool at_section(const struct elffile *f, const struct elffile_section *s, uint64_t at,
                       void *to, uint64_t n)
{
    return at <= s->size && n <= s->size - at && elffile_read(f, to, n, s->offset + at, NULL) == 0;
}

static bool named(const struct symbols *t, const Elf64_Sym *s, const char *name)
{
    char got[MAX_NAME];
    uint64_t n = strlen(name) + 1;

    return s->st_value && s->st_shndx != SHN_UNDEF && n <= sizeof got &&
           at_section(t->f, t->str, s->st_name, got, n) && memcmp(got, name, n) == 0;
}

static uint32_t gnu_hash(const char *s)
{
    uint32_t h = 5381;

    for (; *s; s++)
        h = h * 33 + (unsigned char)*s;
    return h;
}

/* By the hash table: header, Bloom filter of 64-bit words, buckets, chains. */
static bool find_hashed(const struct symbols *t, const char *name, Elf64_Sym *ret)
{
    uint32_t h[4], hash = gnu_hash(name), i, link;
    uint64_t bloom, at;

    if (!at_section(t->f, t->hash, 0, h, sizeof h) || h[0] == 0 || h[2] == 0)
        return false;
    if (!at_section(t->f, t->hash, 16 + 8 * (uint64_t)(hash / 64 % h[2]), &bloom, 8) ||
        !(bloom >> (hash & 63) & 1) || !(bloom >> (hash >> (h[3] & 31) & 63) & 1))
        return false;
    at = 16 + 8 * (uint64_t)h[2];
    if (!at_section(t->f, t->hash, at + 4 * (uint64_t)(hash % h[0]), &i, 4) || i < h[1])
        return false;
    at += 4 * (uint64_t)h[0];
    for (uint32_t steps = 0; steps < BLOCK; steps++, i++) {
        if (!at_section(t->f, t->hash, at + 4 * (uint64_t)(i - h[1]), &link, 4))
            return false;
        if ((link | 1) == (hash | 1) &&
            at_section(t->f, t->sym, i * sizeof *ret, ret, sizeof *ret) && named(t, ret, name))
            return true;
        if (link & 1)
            return false;
    }
    return false;
}

/* One after the other: only of what is a Python already. */
static bool find_linear(struct symbols *t, const char *name, Elf64_Sym *ret)
{
    Elf64_Sym *s = xmalloc(BLOCK * sizeof *s);
    bool found = false;

    for (uint64_t at = 0; at < t->n && !found; at += BLOCK) {
        uint64_t n = t->n - at < BLOCK ? t->n - at : BLOCK;

        if (n > t->left)
            break;
        t->left -= (uint32_t)n;
        if (!at_section(t->f, t->sym, at * sizeof *s, s, n * sizeof *s))
            break;
        for (uint64_t i = 0; i < n && !found; i++) {
            found = named(t, &s[i], name);
            if (found)
                *ret = s[i];
        }
    }
    free(s);
    return found;
}

struct both {
    struct symbols dyn, all;
    bool has_dyn, has_all;
};

static bool find(struct both *t, const char *name, Elf64_Sym *ret)
{
    if (t->has_dyn &&
        (t->dyn.hash ? find_hashed(&t->dyn, name, ret) : find_linear(&t->dyn, name, ret)))
        return true;
    return t->has_all && find_linear(&t->all, name, ret);
}

static uint64_t find_addr(struct both *t, const char *name)
{
    Elf64_Sym s;

    return find(t, name, &s) ? s.st_value : 0;
}

/* ---- the cold part without a symbol ---------------------------------------------------------- */

struct cold {
    uint64_t lo, hi;
    unsigned jumps;
};

struct eh {
    const uint8_t *p;
    uint64_t n, addr;
    uint32_t left; /* of MAX_FDES */
};

/* The function that holds an address, by an FDE with pc-relative 4-byte addresses, which is what
 * compilers write on x86-64. */
static bool fde_of(struct eh *x, uint64_t to, struct cold *ret)
{
    uint32_t len, cie;
    int32_t rel, n;

    for (uint64_t at = 0; at + 16 <= x->n && x->left; at += 4 + (uint64_t)len, x->left--) {
        memcpy(&len, x->p + at, 4);
        memcpy(&cie, x->p + at + 4, 4);
        if (len == UINT32_MAX)
            return false;
        if (len == 0 || cie == 0)
            continue;
        memcpy(&rel, x->p + at + 8, 4);
        memcpy(&n, x->p + at + 12, 4);
        uint64_t lo = x->addr + at + 8 + (uint64_t)(int64_t)rel;

        if (n > 0 && to >= lo && to - lo < (uint64_t)n) {
            *ret = (struct cold){.lo = lo, .hi = lo + (uint64_t)n};
            return true;
        }
    }
    return false;
}

/* A direct jump at code[at], 6 bytes of which are there: where it goes. */
static bool jump_at(const uint8_t *code, uint64_t pc, uint64_t *ret)
{
    int32_t d;

    if (code[0] == 0xe9) {
        memcpy(&d, code + 1, 4);
        *ret = pc + 5 + (uint64_t)(int64_t)d;
        return true;
    }
    if (code[0] != 0x0f || (code[1] & 0xf0) != 0x80)
        return false;
    memcpy(&d, code + 2, 4);
    *ret = pc + 6 + (uint64_t)(int64_t)d;
    return true;
}

/*
 * GCC 16 leaves 1 or 2 KB under the symbol and puts the main loop, 80 KB, into a part that only
 * .symtab names. It has an FDE of its own: the one into whose middle most direct jumps of the hot
 * part go; a jump to its start would be a tail call.
 */
static void count_jumps(const uint8_t *code, const struct pyelf *e, struct eh *x, struct cold *best)
{
    struct cold c[MAX_COLD];
    unsigned n = 0, k;
    uint64_t to;

    for (uint64_t pc = e->eval_lo; pc + 6 <= e->eval_hi; pc++) {
        if (!jump_at(code + (pc - e->eval_lo), pc, &to) || (to >= e->eval_lo && to < e->eval_hi))
            continue;
        for (k = 0; k < n && !(to >= c[k].lo && to < c[k].hi); k++)
            ;
        if (k == n && (n == MAX_COLD || !fde_of(x, to, &c[n])))
            continue;
        n += k == n;
        c[k].jumps += to != c[k].lo;
        if (c[k].jumps > best->jumps)
            *best = c[k];
    }
}

static void find_cold(const struct elffile *f, struct pyelf *e)
{
    const struct elffile_section *eh = elffile_section(f, ".eh_frame"), *text = NULL;
    uint64_t n = e->eval_hi - e->eval_lo;
    struct cold best = {};
    uint8_t *code, *frames;

    for (uint32_t i = 0; i < f->n_section; i++) {
        const struct elffile_section *s = &f->section[i];

        if (s->type == SHT_PROGBITS && e->eval_lo >= s->addr && e->eval_lo - s->addr < s->size)
            text = s;
    }
    if (!eh || !text || eh->size > MAX_TABLE || n == 0 || n > MAX_HOT)
        return;
    code = xmalloc(n);
    frames = xmalloc(eh->size + 1);
    if (at_section(f, text, e->eval_lo - text->addr, code, n) &&
        at_section(f, eh, 0, frames, eh->size))
        count_jumps(code, e, &(struct eh){frames, eh->size, eh->addr, MAX_FDES}, &best);
    free(code);
    free(frames);
    if (best.jumps < JUMPS)
        return;
    e->cold_lo = best.lo;
    e->cold_hi = best.hi;
}

/* ---- a Python -------------------------------------------------------------------------------- */

static void find_eval(const struct elffile *f, struct both *t, struct pyelf *e)
{
    Elf64_Sym s;

    if (!find(t, "_PyEval_EvalFrameDefault", &s))
        return;
    e->eval_lo = s.st_value;
    e->eval_hi = s.st_value + s.st_size;
    if (t->has_all && find_linear(&t->all, "_PyEval_EvalFrameDefault.cold", &s)) {
        e->cold_lo = s.st_value;
        e->cold_hi = s.st_value + s.st_size;
    } else {
        find_cold(f, e);
    }
}

static bool is_310(struct str path)
{
    struct str name = str_basename(path);

    return str_starts(name, STR("python3.10")) || str_starts(name, STR("libpython3.10"));
}

static bool read_python(const struct elffile *f, const struct binary *b, struct pyelf *ret)
{
    const struct elffile_section *s;
    struct both t = {};

    t.has_dyn = symbols_of(f, ".dynsym", ".gnu.hash", &t.dyn);
    if (t.has_dyn && t.dyn.hash)
        ret->runtime = find_addr(&(struct both){.dyn = t.dyn, .has_dyn = true}, "_PyRuntime");
    if (!ret->runtime && (s = elffile_section(f, ".PyRuntime")))
        ret->runtime = s->addr;
    if (!ret->runtime)
        return false;
    t.has_all = symbols_of(f, ".symtab", NULL, &t.all);
    ret->version = find_addr(&t, "Py_Version");
    ret->code_type = find_addr(&t, "PyCode_Type");
    ret->gilstate = find_addr(&t, "PyGILState_GetThisThreadState");
    ret->named_310 = is_310(b->path);
    find_eval(f, &t, ret);
    return true;
}

bool pyelf_read(const struct binary *b, struct pyelf *ret)
{
    struct elffile f = {};
    // NOLINTNEXTLINE(performance-no-int-to-ptr): sheds const, it is only read
    void *ctx = (void *)(uintptr_t)b;
    bool is;

    *ret = (struct pyelf){};
    if (!b->is_elf)
        return false;
    is = elffile_open(&f, read_binary, ctx, b->size, NULL) == 0 &&
         elffile_sections(&f, NULL) == 0 && read_python(&f, b, ret);
    elffile_close(&f);
    return is;
}
