// SPDX-License-Identifier: Apache-2.0
#include "agent/file/elffile.h"

#include <elf.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/arena.h"

#define MAX_PHDRS 512
#define MAX_NAMES (UINT64_C(4) << 20)
#define MAX_NOTE  (UINT64_C(64) << 10)

int64_t elffile_pread(void *ctx, void *to, uint64_t n, uint64_t at)
{
    const int *fd = ctx;
    uint64_t done = 0;

    while (done < n) {
        ssize_t r = pread(*fd, (char *)to + done, n - done, (off_t)(at + done));

        if (r < 0 && errno == EINTR)
            continue;
        if (r < 0)
            return -errno;
        if (r == 0) /* truncated since it was opened */
            break;
        done += (uint64_t)r;
    }
    return (int64_t)done;
}

int64_t elffile_copy(void *ctx, void *to, uint64_t n, uint64_t at)
{
    const struct elffile_bytes *b = ctx;

    if (at >= b->n)
        return 0;
    n = n < b->n - at ? n : b->n - at;
    memcpy(to, b->p + at, n);
    return (int64_t)n;
}

int elffile_read(const struct elffile *f, void *to, uint64_t n, uint64_t at, struct err *err)
{
    int64_t r;

    if (at > f->size || n > f->size - at)
        return err_set(err, -EINVAL, "elf: %" PRIu64 " bytes at %" PRIu64 " of a file of %" PRIu64,
                       n, at, f->size);
    r = f->read(f->ctx, to, n, at);
    if (r < 0)
        return err_set(err, (int)r, "elf: read at %" PRIu64 ": %s", at, strerrordesc_np((int)-r));
    if ((uint64_t)r != n)
        return err_set(err, -EIO, "elf: short read at %" PRIu64, at);
    return 0;
}

static uint64_t align4(uint64_t n)
{
    return (n + 3) & ~UINT64_C(3);
}

/* Notes: {u32 name size, description size, type}, name and description padded to 4 bytes. */
static void find_build_id(struct elffile *f, uint64_t at, uint64_t n)
{
    uint8_t *note;
    uint64_t pos = 0;
    int64_t got;

    if (f->build_id_len || n > MAX_NOTE || at > f->size || n > f->size - at)
        return;
    note = xcalloc(1, n + 1);
    got = f->read(f->ctx, note, n, at);
    n = got < 0 ? 0 : (uint64_t)got;
    while (n - pos >= 12) {
        uint32_t h[3];
        uint64_t name, desc;

        memcpy(h, note + pos, sizeof h);
        name = pos + 12;
        desc = name + align4(h[0]);
        if (desc > n || h[1] > n - desc)
            break;
        if (h[2] == NT_GNU_BUILD_ID && h[0] == 4 && memcmp(note + name, "GNU", 4) == 0 && h[1] &&
            h[1] <= sizeof f->build_id) {
            memcpy(f->build_id, note + desc, h[1]);
            f->build_id_len = (uint8_t)h[1];
            break;
        }
        pos = desc + align4(h[1]);
        if (pos > n)
            break;
    }
    free(note);
}

static int read_segments(struct elffile *f, const Elf64_Ehdr *eh, struct err *err)
{
    struct {
        uint64_t at, n;
    } note[8];
    unsigned n_note = 0;

    if (eh->e_phnum > MAX_PHDRS || (eh->e_phnum && eh->e_phentsize < sizeof(Elf64_Phdr)))
        return err_set(err, -EINVAL, "elf: %u program headers of %u bytes", eh->e_phnum,
                       eh->e_phentsize);
    for (uint32_t i = 0; i < eh->e_phnum; i++) {
        Elf64_Phdr ph = {};

        TRY(elffile_read(f, &ph, sizeof ph, eh->e_phoff + (uint64_t)i * eh->e_phentsize, err));
        if (ph.p_type == PT_NOTE && n_note < 8) {
            note[n_note].at = ph.p_offset;
            note[n_note++].n = ph.p_filesz;
        }
        if (ph.p_type != PT_LOAD)
            continue;
        if (f->n_load == ELFFILE_MAX_LOADS)
            return err_set(err, -EINVAL, "elf: more than %u segments", ELFFILE_MAX_LOADS);
        f->load[f->n_load++] = (struct elffile_load){.offset = ph.p_offset,
                                                     .filesz = ph.p_filesz,
                                                     .vaddr = ph.p_vaddr,
                                                     .memsz = ph.p_memsz,
                                                     .exec = ph.p_flags & PF_X};
    }
    for (unsigned i = 0; i < n_note; i++)
        find_build_id(f, note[i].at, note[i].n);
    return 0;
}

int elffile_open(struct elffile *f, elffile_read_fn *read, void *ctx, uint64_t size,
                 struct err *err)
{
    Elf64_Ehdr eh = {};

    *f = (struct elffile){.read = read, .ctx = ctx, .size = size};
    if (size < sizeof eh)
        return err_set(err, -ENOEXEC, "elf: only %" PRIu64 " bytes", size);
    TRY(elffile_read(f, &eh, sizeof eh, 0, err));
    if (memcmp(eh.e_ident, ELFMAG, SELFMAG) != 0 || eh.e_ident[EI_CLASS] != ELFCLASS64 ||
        eh.e_ident[EI_DATA] != ELFDATA2LSB || eh.e_machine != EM_X86_64)
        return err_set(err, -ENOEXEC, "elf: no 64-bit x86-64 file");
    f->type = eh.e_type;
    f->shoff = eh.e_shoff;
    f->shnum = eh.e_shnum;
    f->shstrndx = eh.e_shstrndx;
    f->shentsize = eh.e_shentsize;
    return read_segments(f, &eh, err);
}

static int read_section(const struct elffile *f, uint32_t i, Elf64_Shdr *ret, struct err *err)
{
    return elffile_read(f, ret, sizeof *ret, f->shoff + (uint64_t)i * f->shentsize, err);
}

static int read_names(struct elffile *f, struct err *err)
{
    const struct elffile_section *s;

    if (f->shstrndx >= f->n_section)
        return err_set(err, -EINVAL, "elf: section names are section %u of %u", f->shstrndx,
                       f->n_section);
    s = &f->section[f->shstrndx];
    if (s->type == SHT_NOBITS || s->size > MAX_NAMES)
        return err_set(err, -EINVAL, "elf: section names of %" PRIu64 " bytes", s->size);
    f->names = xcalloc(1, s->size + 1);
    TRY(elffile_read(f, f->names, s->size, s->offset, err));
    f->n_names = s->size;
    return 0;
}

int elffile_sections(struct elffile *f, struct err *err)
{
    Elf64_Shdr sh = {};

    if (f->shoff == 0)
        return 0;
    if (f->shentsize < sizeof sh)
        return err_set(err, -EINVAL, "elf: section headers of %u bytes", f->shentsize);
    TRY(read_section(f, 0, &sh, err));
    /* more than 65,279 sections: the true numbers stand in section 0 */
    if (f->shnum == 0)
        f->shnum = sh.sh_size < UINT32_MAX ? (uint32_t)sh.sh_size : UINT32_MAX;
    if (f->shstrndx == SHN_XINDEX)
        f->shstrndx = sh.sh_link;
    if (f->shnum > ELFFILE_MAX_SECTIONS)
        return err_set(err, -EINVAL, "elf: %u sections, the limit is %u", f->shnum,
                       ELFFILE_MAX_SECTIONS);
    if (f->shoff > f->size || (uint64_t)f->shnum * f->shentsize > f->size - f->shoff)
        return err_set(err, -EINVAL, "elf: section table beyond the end");
    f->section = xcalloc(f->shnum ? f->shnum : 1, sizeof *f->section);
    for (uint32_t i = 0; i < f->shnum; i++) {
        TRY(read_section(f, i, &sh, err));
        f->section[i] = (struct elffile_section){.name = sh.sh_name,
                                                 .type = sh.sh_type,
                                                 .flags = sh.sh_flags,
                                                 .addr = sh.sh_addr,
                                                 .offset = sh.sh_offset,
                                                 .size = sh.sh_size,
                                                 .entsize = sh.sh_entsize,
                                                 .link = sh.sh_link,
                                                 .info = sh.sh_info};
    }
    f->n_section = f->shnum;
    TRY(read_names(f, err));
    for (uint32_t i = 0; i < f->n_section; i++) {
        if (f->section[i].type == SHT_NOTE)
            find_build_id(f, f->section[i].offset, f->section[i].size);
    }
    return 0;
}

void elffile_close(struct elffile *f)
{
    free(f->section);
    free(f->names);
    f->section = NULL;
    f->names = NULL;
    f->n_section = 0;
    f->n_names = 0;
}

const struct elffile_section *elffile_section(const struct elffile *f, const char *name)
{
    for (uint32_t i = 1; i < f->n_section; i++) {
        if (f->section[i].name < f->n_names && strcmp(f->names + f->section[i].name, name) == 0)
            return &f->section[i];
    }
    return NULL;
}

bool elffile_vaddr(const struct elffile_load *load, uint32_t n_load, uint64_t offset, uint64_t *ret)
{
    /* the exact segment first: a page at a border belongs to two mappings. Segments are mapped in
     * whole pages, so what lies in their first or last page belongs to them as well */
    for (int whole_pages = 0; whole_pages < 2; whole_pages++) {
        uint64_t mask = whole_pages ? UINT64_C(4095) : 0;

        for (uint32_t i = 0; i < n_load; i++) {
            uint64_t lo = load[i].offset & ~mask;
            uint64_t hi = (load[i].offset + load[i].filesz + mask) & ~mask;

            if (offset >= lo && offset < hi && load[i].exec) {
                *ret = offset - load[i].offset + load[i].vaddr;
                return true;
            }
        }
    }
    return false;
}
