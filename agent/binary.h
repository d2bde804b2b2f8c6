// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/sample.h"
#include "base/str.h"

/*
 * A mapped file (or vDSO image), known once per content however many processes map it. Shared by
 * unwind tables (tables.h), symbols (elfsym.h) and the batch maker. Counted references, atomic: any
 * thread may ref and unref; the fields do not change after binary_open(). At the last unref the
 * descriptor is closed.
 */
struct binary {
    uint32_t id;            /* 1 .. 2^22 - 1, in words of BPF records; never reused in one run */
    enum bin_id_kind id_kind;
    uint8_t id_bytes[64];
    uint8_t id_len;
    struct str path;        /* as the target sees it, without " (deleted)" */
    bool deleted;
    int fd;                 /* read-only; -1 for an image */
    const uint8_t *image;   /* vDSO: its bytes; else NULL */
    uint64_t size;          /* bytes of file or image */
    bool big_address;       /* linked above 2^40: no table, raw words */
    uint32_t refs;          /* private */
};

struct binary *binary_ref(struct binary *b);
struct binary *binary_unref(struct binary *b); /* NULL is a no-op; returns NULL */

/* By the id of a BPF record's word; NULL if unknown. Adds a reference. Any thread. */
struct binary *binary_by_id(uint32_t id);

/* Read at an offset of the file or image; short reads at the end. Bytes read or negative errno. */
int64_t binary_read(const struct binary *b, void *to, uint64_t n, uint64_t at);
