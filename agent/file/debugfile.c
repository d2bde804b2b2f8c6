// SPDX-License-Identifier: Apache-2.0
#include "agent/file/debugfile.h"

#include <elf.h>
#include <lzma.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/arena.h"

#define CHUNK ((size_t)256 << 10)

const char *debugfile_why_name(enum debugfile_why w)
{
    static const char *const name[DEBUGFILE_N] = {"ok",       "other_build_id", "bad_crc",
                                                  "bad_link", "bad_file",       "too_big"};

    return w < DEBUGFILE_N ? name[w] : "";
}

/* ---- what a binary says -------------------------------------------------------------------- */

/* A section's bytes: the number read, at most cap. */
static size_t section_bytes(const struct elffile *f, const char *name, uint8_t *to, size_t cap)
{
    const struct elffile_section *s = elffile_section(f, name);
    size_t n;

    if (!s || s->type == SHT_NOBITS || s->size == 0)
        return 0;
    n = s->size < cap ? s->size : cap;
    return elffile_read(f, to, n, s->offset, NULL) == 0 ? n : 0;
}

bool debugfile_is_name(const char *s)
{
    return s[0] && !strchr(s, '/') && strcmp(s, ".") != 0 && strcmp(s, "..") != 0;
}

/* Name, NUL, padding to 4 bytes, CRC-32. */
static void read_link(const struct elffile *f, struct debugfile_facts *ret)
{
    uint8_t raw[sizeof ret->link + 8];
    size_t n = section_bytes(f, ".gnu_debuglink", raw, sizeof raw), len, at;

    if (n == 0)
        return;
    len = strnlen((const char *)raw, n);
    at = (len + 4) & ~(size_t)3;
    if (len >= sizeof ret->link || at + 4 > n) {
        ret->bad_link = true;
        return;
    }
    memcpy(ret->link, raw, len + 1);
    memcpy(&ret->crc, raw + at, 4);
    ret->bad_link = !debugfile_is_name(ret->link);
    ret->has_link = !ret->bad_link;
}

/* Path, NUL, build id. */
static void read_alt(const struct elffile *f, struct debugfile_facts *ret)
{
    uint8_t raw[sizeof ret->alt + sizeof ret->alt_id];
    size_t n = section_bytes(f, ".gnu_debugaltlink", raw, sizeof raw), len;

    if (n == 0)
        return;
    ret->has_alt = true;
    len = strnlen((const char *)raw, n);
    if (len >= sizeof ret->alt || len + 1 >= n || n - len - 1 > sizeof ret->alt_id)
        return; /* there is one, and it is not found */
    memcpy(ret->alt, raw, len + 1);
    ret->alt_id_len = (uint8_t)(n - len - 1);
    memcpy(ret->alt_id, raw + len + 1, ret->alt_id_len);
}

void debugfile_facts(const struct elffile *f, struct debugfile_facts *ret)
{
    *ret = (struct debugfile_facts){.id_len = f->build_id_len};
    memcpy(ret->id, f->build_id, f->build_id_len);
    read_link(f, ret);
    read_alt(f, ret);
}

/* ---- proof --------------------------------------------------------------------------------- */

static enum debugfile_why check_crc(int fd, uint64_t size, uint32_t want)
{
    uint8_t *part;
    uint32_t crc = 0;

    if (size > DEBUGFILE_MAX_CRC)
        return DEBUGFILE_TOO_BIG;
    part = xmalloc(CHUNK);
    for (uint64_t at = 0; at < size;) {
        int64_t n = elffile_pread(&fd, part, CHUNK, at);

        if (n <= 0) {
            free(part);
            return DEBUGFILE_BAD_FILE;
        }
        crc = lzma_crc32(part, (size_t)n, crc);
        at += (uint64_t)n;
    }
    free(part);
    return crc == want ? DEBUGFILE_OK : DEBUGFILE_BAD_CRC;
}

enum debugfile_why debugfile_prove(int fd, const struct debugfile_proof *p)
{
    enum debugfile_why why = DEBUGFILE_OK;
    struct elffile f = {};
    struct stat st;

    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) ||
        elffile_open(&f, elffile_pread, &fd, (uint64_t)st.st_size, NULL) < 0 ||
        elffile_sections(&f, NULL) < 0)
        why = DEBUGFILE_BAD_FILE;
    /* by CRC alone only where one of the two has no build id */
    else if (p->id_len && (f.build_id_len || !p->with_crc) &&
             (f.build_id_len != p->id_len || memcmp(f.build_id, p->id, p->id_len) != 0))
        why = DEBUGFILE_OTHER_ID;
    else if (p->with_crc)
        why = check_crc(fd, (uint64_t)st.st_size, p->crc);
    elffile_close(&f);
    return why;
}
