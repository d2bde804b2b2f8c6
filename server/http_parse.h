// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/str.h"
#include "server/msg.h"

/*
 * The small grammars of HTTP (RFC 9110, RFC 3986) that we read ourselves: bytes in, structs out, no
 * I/O. What is returned lies in the arena or borrows from the input. Any thread.
 */

/* %HH to bytes, '+' to a blank where plus is set. false: a '%' without two hex digits, or no room.
 */
[[nodiscard]] bool http_unescape(struct arena *a, struct str in, bool plus, struct str *ret);

enum http_params {
    HTTP_PARAMS_OK = 0,
    HTTP_PARAMS_BAD,  /* malformed escape, or no room in the arena */
    HTTP_PARAMS_MANY, /* more than HTTP_PARAMS_MAX */
};

#define HTTP_PARAMS_MAX 128

/* a=b&c=d: appended to v, whose room is HTTP_PARAMS_MAX. A name without '=' has an empty value. */
[[nodiscard]] enum http_params http_params_parse(struct arena *a, struct str in,
                                                 struct msg_param *v, uint32_t *n);

/* Equal but for the case of ASCII letters. */
bool http_str_eq(struct str a, struct str lower);

/* "application/json; charset=utf-8" -> "application/json"; blanks trimmed. */
struct str http_media_type(struct str header);

/* Does a list like Accept or Accept-Encoding name item (lower case) with q above 0? Not by "*". */
bool http_list_has(struct str header, struct str item);

/* "Host: name:port" -> name, brackets of IPv6 kept. */
struct str http_host_name(struct str host);

/* Is it a name, and behind it nothing or a port? */
bool http_host_valid(struct str host);

/* Is name one of the words, separated by blanks? */
bool http_word_in(struct str name, struct str words);

/* Does If-None-Match hold this etag (16 hex digits, any coding suffix, weak or strong) or "*"? */
bool http_etag_match(struct str header, uint64_t etag);

/* Base64 (RFC 4648), padding required. false: anything else, or no room. */
[[nodiscard]] bool http_base64(struct arena *a, struct str in, struct str *ret);
