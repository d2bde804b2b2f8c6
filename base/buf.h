// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"

/*
 * A growing byte buffer with a hard cap. Appending beyond the cap, or when memory is short, sets
 * failed and drops the bytes; later appends are no-ops. So a writer appends freely and asks once
 * at the end. Ownership: the caller's struct, the buffer's bytes. Thread: owner only.
 */
struct buf {
    char *p;
    size_t n, room, cap;
    int failed; /* 0; -E2BIG: its cap, -ENOMEM: what is in it is not whole */
};

void buf_init(struct buf *b, size_t cap);
void buf_deinit(struct buf *b);
void buf_reset(struct buf *b); /* empty, not failed, memory kept */

/* Its failure, said of `what`: "what: larger than N bytes" or "what: memory is short". 0: none. */
[[nodiscard]] int buf_check(const struct buf *b, const char *what, struct err *err);

void buf_add(struct buf *b, const void *p, size_t n);
void buf_str(struct buf *b, struct str s);
void buf_cstr(struct buf *b, const char *s);
void buf_chr(struct buf *b, char c);
[[gnu::format(printf, 2, 3)]] void buf_printf(struct buf *b, const char *fmt, ...);
void buf_u64(struct buf *b, uint64_t v); /* decimal */
void buf_i64(struct buf *b, int64_t v);
void buf_hex64(struct buf *b, uint64_t v); /* 16 digits, lower case */

/* Little-endian, fixed width. */
void buf_le16(struct buf *b, uint16_t v);
void buf_le32(struct buf *b, uint32_t v);
void buf_le64(struct buf *b, uint64_t v);

/* Decimal digits at p, which has room for BUF_DIGITS, whatever comes of them; how many. */
#define BUF_DIGITS 20
size_t buf_digits(char *p, uint64_t v);

/* Room for n more bytes that the caller writes itself, then buf_commit(); NULL if it fails. */
char *buf_reserve(struct buf *b, size_t n);
void buf_commit(struct buf *b, size_t n);

/* Take over the failure of another (0: it has none): what went into b is not whole either. */
static inline void buf_fail(struct buf *b, int failed)
{
    if (b->failed == 0)
        b->failed = failed;
}

static inline struct str buf_view(const struct buf *b)
{
    return (struct str){b->p, b->n};
}
