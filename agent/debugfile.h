// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "agent/binary.h"
#include "agent/elffile.h"
#include "base/str.h"

/*
 * Separate debug files: by build id (DIR/.build-id/ab/cdef.debug), else by the section
 * .gnu_debuglink (a name and the CRC-32 of the whole file) beside the binary, in .debug/ beside it,
 * and below each DIR; first in the root of the process that maps the binary, then in ours. A file
 * is used only if it proves to belong to the binary; what does not is counted by reason.
 *
 * debugfile_facts() and debugfile_prove() read strangers' bytes and need no path; debugfile_find()
 * opens paths and reads nothing itself. Any thread, no state.
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

struct debugfile_where {
    struct str path;  /* of the binary, as its process sees it */
    int target;       /* the root of that process, or -1: ours */
    const char *dirs; /* separated by ':'; "" or NULL: no debug files at all */
};

/* A descriptor of the binary's debug file, or -1. counts[DEBUGFILE_N]: what was found is added. */
int debugfile_find(const struct debugfile_facts *f, const struct debugfile_where *w,
                   uint64_t *counts);

/* The same for the file that its debug file (facts f, found at path) shares with others. */
int debugfile_find_alt(const struct debugfile_facts *f, const struct debugfile_where *w,
                       uint64_t *counts);

/* Facts of b, and its debug file as above. */
int debugfile_of(const struct binary *b, const char *dirs, struct debugfile_facts *ret,
                 uint64_t *counts);
