// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <jansson.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/str.h"
#include "base/time.h"

/*
 * Reading the server's answers, and the lines that several verbs print of them. An answer is never
 * trusted: what is missing or of another kind reads as unknown. Texts are borrowed from it. One
 * thread.
 */

struct str answer_text(const json_t *v);
/* A number or a decimal string; -1 where it is null or absent: for what the API has no negative
 * ones of. */
double answer_number(const json_t *v);
bool answer_ns(const json_t *o, const char *key, real_ns *ret);

/* part of whole in percent, or "unknown" */
void answer_put_share(struct buf *b, double part, double whole);
/* What was lost, of what was lost and what arrived, in percent; as it is where what arrived was
 * restricted to steps. */
void answer_put_lost(struct buf *b, const json_t *type, const json_t *root);
/* Range, sources, coverage, loss, total, and what filters left of it: the rest of a line. */
void answer_put_side(struct buf *b, const json_t *type, const json_t *side);
/* Type, unit, kind, range, coverage, loss, total: one line. */
void answer_put_head(struct buf *b, const json_t *root);
/* A cell, right-aligned in width columns, two blanks behind. */
void answer_put_right(struct buf *b, const struct buf *cell, size_t width);
/* A function's name, and where it is. index: into the columns of func. */
void answer_put_func(struct buf *b, const json_t *root, const json_t *index);
/* Why there is nothing, if there is nothing. */
void answer_put_empty(struct buf *b, const json_t *root);

/* The body as an object; the caller's to json_decref(). */
[[nodiscard]] int answer_read(const struct buf *text, json_t **ret, struct err *err);
/* To standard output. */
[[nodiscard]] int answer_print(const struct buf *text, struct err *err);
/* top.c: the rows of an answer of /top, one a line. */
void cli_top_rows(struct buf *b, const json_t *root);
