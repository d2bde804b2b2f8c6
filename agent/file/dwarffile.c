// SPDX-License-Identifier: Apache-2.0
#include "agent/file/dwarffile.h"

#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <zlib.h>

#include "agent/file/elffile.h"
#include "base/arena.h"

#define MAX_SECTIONS 64
#define MAX_NAME     64

struct packed {
    const struct elffile_section *from;
    char name[MAX_NAME];
    uint64_t size; /* inflated */
    uint64_t skip; /* bytes before the compressed data; 0: it is plain */
    uint64_t at;   /* in the image */
};

struct packing {
    struct elffile f;
    struct packed s[MAX_SECTIONS];
    uint32_t n;
    uint64_t max, sum;
    bool info, alt;
};

/* ".debug_x", of ".zdebug_x" too; false: no debug section. */
static bool debug_name(const char *name, char ret[static MAX_NAME], bool *ret_old)
{
    *ret_old = strncmp(name, ".zdebug_", 8) == 0;
    if (!*ret_old && strncmp(name, ".debug_", 7) != 0)
        return false;
    name += *ret_old ? 8 : 7;
    if (strlen(name) >= MAX_NAME - 7)
        return false;
    (void)snprintf(ret, MAX_NAME, ".debug_%s", name);
    return true;
}

/* What it takes when it is inflated, by its own header. */
static bool measure(const struct elffile *f, struct packed *s, bool old)
{
    Elf64_Chdr head;
    uint8_t zlib[12];

    s->size = s->from->size;
    if (s->from->flags & SHF_COMPRESSED) {
        s->skip = sizeof head;
        if (s->size < sizeof head || elffile_read(f, &head, sizeof head, s->from->offset, NULL) < 0)
            return false;
        s->size = head.ch_size;
        return head.ch_type == ELFCOMPRESS_ZLIB;
    }
    if (!old)
        return true;
    s->skip = sizeof zlib; /* "ZLIB" and the size, big-endian */
    if (s->size < sizeof zlib || elffile_read(f, zlib, sizeof zlib, s->from->offset, NULL) < 0)
        return false;
    s->size = 0;
    for (unsigned i = 4; i < 12; i++)
        s->size = s->size << 8 | zlib[i];
    return memcmp(zlib, "ZLIB", 4) == 0;
}

static enum dwarffile_fail choose(struct packing *p)
{
    for (uint32_t i = 1; i < p->f.n_section; i++) {
        const struct elffile_section *s = &p->f.section[i];
        const char *name = s->name < p->f.n_names ? p->f.names + s->name : "";
        struct packed *to = &p->s[p->n];
        bool old;

        p->alt |= strcmp(name, ".gnu_debugaltlink") == 0;
        if (s->type == SHT_NOBITS || s->size == 0)
            continue;
        if (p->n == MAX_SECTIONS)
            return DWARFFILE_BAD;
        *to = (struct packed){.from = s};
        if (!debug_name(name, to->name, &old))
            continue;
        if (!measure(&p->f, to, old))
            return DWARFFILE_BAD;
        if (s->size > p->max || to->size > p->max || (p->sum += to->size) > p->max)
            return DWARFFILE_TOO_BIG;
        p->info |= strcmp(to->name, ".debug_info") == 0;
        p->n++;
    }
    return p->info ? DWARFFILE_OK : DWARFFILE_NONE;
}

static bool fill(const struct elffile *f, const struct packed *s, uint8_t *to)
{
    uint64_t n = s->from->size - s->skip;
    uLongf got = s->size;
    uint8_t *in;
    bool ok;

    if (s->skip == 0)
        return elffile_read(f, to, s->size, s->from->offset, NULL) == 0;
    in = xmalloc(n + 1);
    ok = elffile_read(f, in, n, s->from->offset + s->skip, NULL) == 0 &&
         uncompress(to, &got, in, n) == Z_OK && got == s->size;
    free(in);
    return ok;
}

static uint64_t align8(uint64_t n)
{
    return (n + 7) & ~UINT64_C(7);
}

/* Header, sections with their padding, their names, section table. */
static enum dwarffile_fail pack(struct packing *p, struct dwarffile *ret)
{
    uint64_t at = sizeof(Elf64_Ehdr), names, table;
    uint32_t n_shdr = p->n + 2;
    Elf64_Ehdr eh = {.e_type = p->f.type,
                     .e_machine = EM_X86_64,
                     .e_version = EV_CURRENT,
                     .e_ehsize = sizeof eh,
                     .e_shentsize = sizeof(Elf64_Shdr),
                     .e_shnum = (Elf64_Half)n_shdr,
                     .e_shstrndx = (Elf64_Half)(n_shdr - 1)};
    Elf64_Shdr sh[MAX_SECTIONS + 2] = {};

    for (uint32_t i = 0; i < p->n; i++) {
        p->s[i].at = at;
        at = align8(at + p->s[i].size + DWARFFILE_PAD);
    }
    names = at;
    table = align8(names + (uint64_t)n_shdr * MAX_NAME);
    ret->n = table + n_shdr * sizeof *sh;
    ret->image = xcalloc(1, ret->n);
    memcpy(eh.e_ident, ELFMAG, SELFMAG);
    eh.e_ident[EI_CLASS] = ELFCLASS64;
    eh.e_ident[EI_DATA] = ELFDATA2LSB;
    eh.e_ident[EI_VERSION] = EV_CURRENT;
    eh.e_shoff = table;
    memcpy(ret->image, &eh, sizeof eh);
    for (uint32_t i = 0; i < p->n; i++) {
        const struct packed *s = &p->s[i];

        if (!fill(&p->f, s, ret->image + s->at))
            return DWARFFILE_BAD;
        sh[i + 1] = (Elf64_Shdr){.sh_name = (i + 1) * MAX_NAME,
                                 .sh_type = SHT_PROGBITS,
                                 .sh_offset = s->at,
                                 .sh_size = s->size,
                                 .sh_addralign = 1};
        memcpy(ret->image + names + (i + UINT64_C(1)) * MAX_NAME, s->name, MAX_NAME);
        if (strcmp(s->name, ".debug_line") == 0 && ret->line_n == 0) {
            ret->line_at = s->at;
            ret->line_n = s->size;
        }
    }
    sh[n_shdr - 1] = (Elf64_Shdr){.sh_type = SHT_STRTAB,
                                  .sh_offset = names,
                                  .sh_size = (uint64_t)n_shdr * MAX_NAME,
                                  .sh_addralign = 1};
    memcpy(ret->image + table, sh, n_shdr * sizeof *sh);
    return DWARFFILE_OK;
}

enum dwarffile_fail dwarffile_read(int fd, uint64_t max, struct dwarffile *ret)
{
    struct packing *p = xcalloc(1, sizeof *p);
    enum dwarffile_fail why = DWARFFILE_BAD;
    struct dwarffile d = {};
    struct stat st;

    p->max = max;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) &&
        elffile_open(&p->f, elffile_pread, &fd, (uint64_t)st.st_size, NULL) == 0 &&
        elffile_sections(&p->f, NULL) == 0 && (p->f.type == ET_EXEC || p->f.type == ET_DYN))
        why = choose(p);
    if (why == DWARFFILE_OK)
        why = pack(p, &d);
    d.has_alt = p->alt;
    elffile_close(&p->f);
    free(p);
    if (why != DWARFFILE_OK)
        dwarffile_deinit(&d);
    *ret = d;
    return why;
}

void dwarffile_deinit(struct dwarffile *d)
{
    free(d->image);
    *d = (struct dwarffile){};
}
