// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "agent/file/elffile.h"
#include "base/err.h"
#include "base/sample.h"
#include "base/str.h"

/*
 * A mapped file (or vDSO image), known once per content however many processes map it. Shared by
 * unwind tables (tables.h), symbols (elfsym.h) and the batch maker. Counted references, any thread
 * may ref and unref; the fields do not change after binary_open(). Without a reference it lingers
 * BINARY_LINGER_NS, so that late records find it, then binary_sweep() closes the descriptor.
 */
#define BINARY_LINGER_NS (INT64_C(60) * 1000000000)
#define BINARY_MAX_ID    ((UINT32_C(1) << 22) - 1)

struct binary {
    uint32_t id; /* 1 .. 2^22 - 1, in words of BPF records; never reused in one run */
    enum bin_id_kind id_kind;
    uint8_t id_bytes[64];
    uint8_t id_len;
    struct str path; /* as the target sees it, without " (deleted)" */
    bool deleted;
    int fd;               /* read-only; -1 for an image */
    const uint8_t *image; /* vDSO: its bytes; else NULL */
    uint64_t size;        /* bytes of file or image */
    bool big_address;     /* linked above 2^40: no table, raw words */
    bool is_elf;          /* else addresses are file offsets, and there are no names */
    uint32_t n_load;      /* its PT_LOAD segments */
    const struct elffile_load *load;
    uint32_t refs; /* private */
};

struct binary *binary_ref(struct binary *b);
struct binary *binary_unref(struct binary *b); /* NULL is a no-op; returns NULL */

/* By the id of a BPF record's word; NULL if unknown. Adds a reference. Any thread. */
struct binary *binary_by_id(uint32_t id);

/* Read at an offset of the file or image; short reads at the end. Bytes read or negative errno. */
int64_t binary_read(const struct binary *b, void *to, uint64_t n, uint64_t at);

/*
 * The binary with the content of fd, which it takes (closed where the content is known already, or
 * on an error). path is copied. A reference is added. Id: the GNU build id, else SHA-256 of the
 * first and last 4 KiB and the size, 16 bytes, as OTLP's htlhash.
 *   errors   -EINVAL no regular file, -ENOSPC ids used up, errno of fstat and read
 *   thread   any
 */
[[nodiscard]] int binary_open(int fd, struct str path, bool deleted, struct binary **ret,
                              struct err *err);

/* The same for bytes of memory (copied): the vDSO. */
[[nodiscard]] int binary_open_image(const void *p, uint64_t n, struct str path, struct binary **ret,
                                    struct err *err);

/*
 * The root of a process that maps b, in which its debug files are looked for too; the first one
 * offered counts. binary_root(): a descriptor that
 * the caller closes, or -1: the agent's own. Any thread.
 */
void binary_offer_root(struct binary *b, const char *proc, uint32_t pid);
int binary_root(const struct binary *b);

/* By GNU build id, as perf records carry it; NULL if it is not open. Adds a reference. Any thread.
 */
struct binary *binary_by_build_id(const uint8_t *id, uint8_t n);

/* ELF address of a file offset; where no segment holds it, or it is no ELF file, the offset. */
uint64_t binary_vaddr(const struct binary *b, uint64_t offset);

/* Close what had no reference for BINARY_LINGER_NS. Main thread, once a second. */
void binary_sweep(int64_t now_ns);

/* How many are open, referenced or lingering. Any thread. */
uint32_t binary_count(void);
