// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct buf;

/*
 * A byte string by value: pointer and length, borrowed, not NUL-terminated, any bytes. Names from
 * outside keep their bytes in it until they are shown. {NULL, 0} is the empty string.
 * All functions: any thread, no allocation but in the buffer named.
 */
struct str {
    const char *p;
    size_t n;
};

/* STR("literal") */
#define STR(lit) ((struct str){(lit), sizeof(lit) - 1})

/* printf("%.*s", STR_ARG(s)) for short ones: cut at INT_MAX. */
#define STR_ARG(s) ((int)((s).n < 0x7fffffff ? (s).n : 0x7fffffff)), (s).p ? (s).p : ""

static inline struct str str_c(const char *s)
{
    return (struct str){s, s ? strlen(s) : 0};
}

static inline bool str_eq(struct str a, struct str b)
{
    return a.n == b.n && (a.n == 0 || memcmp(a.p, b.p, a.n) == 0);
}

/* By bytes, as memcmp: < 0, 0, > 0. A prefix comes first. */
int str_cmp(struct str a, struct str b);

bool str_starts(struct str s, struct str prefix);
bool str_ends(struct str s, struct str suffix);

/* Index of the first/last c, or SIZE_MAX. */
size_t str_find(struct str s, char c);
size_t str_rfind(struct str s, char c);

/* What stands behind the last '/': the base name of a path. "a/" gives "". */
struct str str_basename(struct str path);

static inline struct str str_from(struct str s, size_t at)
{
    return at >= s.n ? (struct str){NULL, 0} : (struct str){s.p + at, s.n - at};
}

static inline struct str str_to(struct str s, size_t n)
{
    return (struct str){s.p, n < s.n ? n : s.n};
}

/* The whole string as a decimal number (int: a leading '-' too); false, *ret untouched, if it is
 * anything else or does not fit. */
[[nodiscard]] bool str_u64(struct str s, uint64_t *ret);
[[nodiscard]] bool str_i64(struct str s, int64_t *ret);
/* 1 to 16 hex digits, no prefix. */
[[nodiscard]] bool str_hex64(struct str s, uint64_t *ret);

/* A decimal number as JSON writes it (RFC 8259: no "+1", ".5", "inf", hex), at most 63 bytes, and
 * finite. */
[[nodiscard]] bool str_double(struct str s, double *ret);

/* Length (1 to 4) of the well-formed UTF-8 sequence that s begins with; 0: none, or s is empty. */
size_t str_utf8_next(struct str s);

/* Well-formed UTF-8 (RFC 3629: no surrogates, no overlong forms, at most U+10FFFF)? */
bool str_utf8_ok(struct str s);

/*
 * For output: each byte that is no part of well-formed UTF-8 becomes the four characters \xHH, so
 * two different names stay different; returns how many bytes were replaced. Control characters are
 * left to the output format.
 */
size_t str_repair(struct buf *out, struct str s);
