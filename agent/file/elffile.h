// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

/*
 * Reading a stranger's ELF file (System V gABI; ELF64, little-endian, x86-64): headers, segments,
 * sections, build id. Every offset and count is checked against the size and a cap, every read is
 * a copy, so a file that lies, or changes meanwhile, costs an error and nothing else. No mapping:
 * a truncated file would end us with SIGBUS. Thread: owner only; the reader's own rules hold.
 */
#define ELFFILE_MAX_LOADS    64
#define ELFFILE_MAX_SECTIONS 65536

struct elffile_load {
    uint64_t offset, filesz, vaddr, memsz; /* PT_LOAD; bytes and ELF addresses */
    bool exec;
};

struct elffile_section {
    uint32_t name; /* offset in the section names */
    uint32_t type; /* SHT_* */
    uint64_t flags, addr, offset, size, entsize;
    uint32_t link, info;
};

/* Bytes at an offset: the number read, short at the end, or a negative errno. */
typedef int64_t elffile_read_fn(void *ctx, void *to, uint64_t n, uint64_t at);

/* Of a descriptor: ctx is a pointer to it. */
int64_t elffile_pread(void *ctx, void *to, uint64_t n, uint64_t at);

/* Of memory: ctx is a pointer to this. */
struct elffile_bytes {
    const uint8_t *p;
    uint64_t n;
};
int64_t elffile_copy(void *ctx, void *to, uint64_t n, uint64_t at);

struct elffile {
    elffile_read_fn *read;
    void *ctx;
    uint64_t size; /* of the file */
    uint16_t type; /* ET_EXEC, ET_DYN, ... */
    uint32_t n_load;
    struct elffile_load load[ELFFILE_MAX_LOADS];
    uint8_t build_id[64]; /* NT_GNU_BUILD_ID; the first one found */
    uint8_t build_id_len; /* 0: none */
    uint32_t n_section;   /* after elffile_sections() */
    struct elffile_section *section;
    char *names; /* their names, n_names bytes and a NUL */
    uint64_t n_names;
    uint64_t shoff; /* the rest is private */
    uint32_t shnum, shstrndx;
    uint16_t shentsize;
};

/* Header, segments and build id. errors: -ENOEXEC no ELF for this machine, -EINVAL it lies, -EIO */
[[nodiscard]] int elffile_open(struct elffile *f, elffile_read_fn *read, void *ctx, uint64_t size,
                               struct err *err);

/* The section table and the sections' names; the build id of a note section too. Once. */
[[nodiscard]] int elffile_sections(struct elffile *f, struct err *err);

void elffile_close(struct elffile *f); /* frees; a zeroed one is a no-op */

/* The section of that name, or NULL. */
const struct elffile_section *elffile_section(const struct elffile *f, const char *name);

/* Exactly n bytes, or an error. */
[[nodiscard]] int elffile_read(const struct elffile *f, void *to, uint64_t n, uint64_t at,
                               struct err *err);

/* The ELF address that stands at a file offset, by the segment that holds it; false if none does.
 */
bool elffile_vaddr(const struct elffile_load *load, uint32_t n_load, uint64_t offset,
                   uint64_t *ret);
