// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdint.h>

#include "base/buf.h"
#include "base/str.h"
#include "base/time.h"
#include "base/unit.h"

/*
 * Values and names for people, on a terminal: pure text, appended to a buffer. Any thread.
 */

/* 1,234,567 */
void text_count(struct buf *b, uint64_t n);
/* 1 part, 1,234 parts */
void text_things(struct buf *b, uint64_t n, const char *one, const char *many);

/* A weight in its unit, scaled: "31.2 core-min", "412.0 ms", "1.50 GiB", "12,345". cpu time is said
 * in cores' time; other nanoseconds are not. unit as the API names it; value as a decimal string.
 */
void text_value(struct buf *b, struct str type, struct str unit, double value);

/* As it is: -170141183460469231731687303715884105728 */
void text_i128(struct buf *b, unit_i128 v);

/* 100 * part / whole: "18.6 %", or "-" where whole is 0. */
void text_percent(struct buf *b, double part, double whole);

/* "2026-11-29 13:00:00-14:00:00Z"; both dates where they differ. */
void text_range(struct buf *b, struct interval t);

/* A name from a profiled program: no control byte, no bidirectional override, nothing that is not
 * UTF-8 reaches the terminal; each is shown as \xHH or \u{H}. */
void text_name(struct buf *b, struct str name);

/* Columns on a terminal: bytes of UTF-8 that begin a character. */
size_t text_width(struct str s);
