// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "agent/file/elffile.h"

/*
 * What a binary says of its separate debug file, and whether a file proves to be it: by build id,
 * else by the section .gnu_debuglink (a name and the CRC-32 of the whole file). Where they are
 * looked for: debugfind.h. Reads strangers' bytes, needs no path. Any thread, no state.
 */
enum debugfile_why {
    DEBUGFILE_OK = 0,
    DEBUGFILE_OTHER_ID, /* another build id than the binary's */
    DEBUGFILE_BAD_CRC,
    DEBUGFILE_BAD_LINK, /* what it names is no file name */
    DEBUGFILE_BAD_FILE, /* no ELF file, or one that lies, or not readable */
    DEBUGFILE_TOO_BIG,  /* beyond DEBUGFILE_MAX_CRC, to be read for its sum */
    DEBUGFILE_N,
};

/* "other_build_id", ... Static. */
const char *debugfile_why_name(enum debugfile_why w);

#define DEBUGFILE_MAX_CRC (INT64_C(1) << 30)

/* What a binary says of its debug files. */
struct debugfile_facts {
    uint8_t id[64]; /* GNU build id */
    uint8_t id_len; /* 0: none */
    bool has_link, bad_link;
    char link[256]; /* .gnu_debuglink */
    uint32_t crc;
    bool has_alt;  /* .gnu_debugaltlink: a further file that several debug files share */
    char alt[256]; /* its path */
    uint8_t alt_id[64];
    uint8_t alt_id_len;
};

/* f after elffile_sections(). What cannot be read is not there. */
void debugfile_facts(const struct elffile *f, struct debugfile_facts *ret);

/* Does the file fd have this build id (id_len 0: not asked) and, where with_crc, this CRC-32? */
struct debugfile_proof {
    const uint8_t *id;
    uint8_t id_len;
    bool with_crc;
    uint32_t crc;
};
enum debugfile_why debugfile_prove(int fd, const struct debugfile_proof *p);

/* A name that leads out of the folder it is looked for in is none. */
bool debugfile_is_name(const char *s);
