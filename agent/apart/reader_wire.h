// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "agent/file/debugfile.h"
#include "agent/file/dwarfline.h"
#include "agent/file/ehtab.h"
#include "agent/file/elfsym_read.h"
#include "agent/file/jitmap.h"
#include "agent/file/pyelf.h"
#include "agent/file/usdt.h"
#include "base/buf.h"
#include "base/str.h"

/*
 * What the agent and its reader say to each other, each in one message of a SOCK_SEQPACKET: a
 * question is a header, at most READER_BYTES behind it, and up to two descriptors of files; an
 * answer is a header and a payload, behind it or, where it is larger, in a sealed memfd. Both sides
 * are the same program, so numbers and arrays are as they lie in memory.
 *
 * Neither side trusts the other. reader_wire_get_*() take an answer apart: whatever bytes they are
 * given they return something that the callers may use without a further look (sorted, inside their
 * arrays, NUL-terminated, within the limits of the header they come from), or false. Pure; any
 * thread.
 */
#define READER_MAGIC UINT32_C(0x64525453) /* "STRd" */
#define READER_BYTES ((size_t)64 << 10)
#define READER_FDS   2
#define READER_MAX   (UINT64_C(1) << 30) /* bytes of a payload */

enum reader_kind {
    READER_TABLE = 1, /* file -> struct ehtab */
    READER_SYMBOLS,   /* file, debug file or none; n[0] most symbols -> struct elfsym_arrays */
    READER_DEMANGLE,  /* name -> name */
    READER_FACTS,     /* file -> struct debugfile_facts */
    READER_PROVE,     /* file; struct reader_proof -> code enum debugfile_why */
    READER_PERFMAP,   /* file; n[0] drop Python's names -> struct jitmap */
    READER_LINES,     /* file, alternative one or none; addresses -> struct dwarfline_arrays,
                         n[3] enum dwarfline_fail */
    READER_PYTHON,    /* file; path -> struct pyelf */
    READER_STEP,      /* file -> code enum usdt_found, struct usdt_site */
    READER_PING,
    READER_KINDS,
};

/* "table", "symbols", ... Static. */
const char *reader_kind_name(enum reader_kind k);

struct reader_ask {
    uint32_t magic, kind;
    uint64_t id;
    uint64_t n[2];
    uint32_t n_bytes; /* behind it */
    uint32_t fds;     /* a bit for each of READER_FDS that comes with it, in order */
};

struct reader_answer {
    uint32_t magic, kind;
    uint64_t id;     /* the question's */
    int32_t code;    /* 0, negative errno, or what kind says; a payload comes with 0 alone */
    uint32_t in_fd;  /* the payload is in a memfd */
    uint64_t bytes;  /* of it */
    uint64_t cpu_ns; /* spent on it */
    uint64_t n[12];  /* what kind says */
};

struct reader_proof {
    uint8_t id[64];
    uint32_t id_len, with_crc, crc;
};

/* Pieces of a payload, one behind the other: for writev(). They point into what was given. */
#define READER_PARTS 4
struct reader_parts {
    struct str part[READER_PARTS];
    uint32_t n;
    void *heap, *heap2, *heap3; /* free() them afterwards */
};

void reader_wire_put_table(const struct ehtab *t, struct reader_answer *a, struct reader_parts *p);
void reader_wire_put_symbols(const struct elfsym_arrays *s, struct reader_answer *a,
                             struct reader_parts *p);
void reader_wire_put_facts(const struct debugfile_facts *f, struct reader_parts *p);
void reader_wire_put_perfmap(const struct jitmap *m, struct reader_answer *a,
                             struct reader_parts *p);
void reader_wire_put_lines(const struct dwarfline_arrays *l, uint32_t n_addr,
                           struct reader_answer *a, struct reader_parts *p);
void reader_wire_put_python(const struct pyelf *e, struct reader_answer *a);
void reader_wire_put_step(const struct usdt_site *s, struct reader_answer *a);

/* payload: a->bytes of them. What is returned is the caller's, on the heap as what made it says. */
bool reader_wire_get_table(const struct reader_answer *a, struct str payload, struct ehtab *ret);
bool reader_wire_get_symbols(const struct reader_answer *a, struct str payload, uint32_t max,
                             struct elfsym_arrays *ret);
bool reader_wire_get_name(struct str payload, struct buf *out);
bool reader_wire_get_facts(struct str payload, struct debugfile_facts *ret);
bool reader_wire_get_perfmap(const struct reader_answer *a, struct str payload, struct jitmap *ret);
bool reader_wire_get_lines(const struct reader_answer *a, struct str payload, uint32_t n_addr,
                           struct dwarfline_arrays *ret);
void reader_wire_get_python(const struct reader_answer *a, struct pyelf *ret);
void reader_wire_get_step(const struct reader_answer *a, struct usdt_site *ret);

/* Is this a question that may be answered: kind, sizes, descriptors? n: bytes received. */
bool reader_wire_ask_ok(const struct reader_ask *q, size_t n, unsigned n_fd);
