// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/str.h"
#include "base/time.h"
#include "base/unit.h"

/*
 * A streaming JSON writer (RFC 8259) into a buf: no tree, no recursion, depth at most 64. Commas
 * and colons are its business. Misuse (a value without a key inside an object, unbalanced ends) is
 * a bug: assert. Strings are repaired to UTF-8 and escaped; '<' is written \u003c so that an answer
 * can stand in a page. Doubles: shortest form that reads back equal; NaN and infinities are bugs.
 * A full buffer is the buf's failed flag. Thread: owner only. Names differ from those that jansson
 * exports (json_object, json_array, json_null): programs link both.
 */
struct json_out {
    struct buf *b;
    uint64_t is_object, has_member; /* a bit per level */
    uint32_t depth;
    bool after_key;
    uint64_t repaired; /* strings that were not UTF-8 */
};

void json_init(struct json_out *j, struct buf *b);

void json_object_begin(struct json_out *j);
void json_object_end(struct json_out *j);
void json_array_begin(struct json_out *j);
void json_array_end(struct json_out *j);

void json_key(struct json_out *j, const char *key);    /* a literal */
void json_key_str(struct json_out *j, struct str key); /* from data */

void json_null_value(struct json_out *j);
void json_bool(struct json_out *j, bool v);
void json_i64(struct json_out *j, int64_t v);
void json_u64(struct json_out *j, uint64_t v);
/* Members of the array that is open. */
void json_u32s(struct json_out *j, const uint32_t *v, size_t n);
void json_u64s(struct json_out *j, const uint64_t *v, size_t n);
void json_i32s(struct json_out *j, const int32_t *v, size_t n);
void json_double(struct json_out *j, double v);
void json_str(struct json_out *j, struct str s);
void json_cstr(struct json_out *j, const char *s);
void json_hex64(struct json_out *j, uint64_t v);     /* "16 hex digits" */
void json_dec_i64(struct json_out *j, int64_t v);    /* "decimal string" */
void json_dec_u64(struct json_out *j, uint64_t v);   /* "decimal string" */
void json_dec_i128(struct json_out *j, unit_i128 v); /* "decimal string" */
void json_raw(struct json_out *j, struct str already_json);
