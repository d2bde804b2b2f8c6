// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/err.h"

/*
 * The user interface: a directory made by web/tools/pack.sh, read into memory at start. Its
 * manifest.tsv names every address with media type, file and sizes; a request is an exact match in
 * that table, and no path is ever built from its bytes. Read-only afterwards: any thread.
 */
struct msg_request;
struct msg_reply;
struct static_files;

/*
 * Read a packed directory.
 *   base_path  replaces @BASE@ in pages; "" none
 *   errors     -ENOENT, -EINVAL (manifest, naming the line), -E2BIG more than 4 MiB in all
 */
[[nodiscard]] int static_load(const char *dir, const char *base_path, struct static_files **ret,
                              struct err *err);

/* The unpacked web/ directory, files read again on each request: for work on the pages themselves.
 * Hash "dev", never cached. The table of files is made once, by walking css/, js/ and vendor/. */
[[nodiscard]] int static_load_dev(const char *dir, const char *base_path, struct static_files **ret,
                                  struct err *err);

/* No pages: every address is 404. */
struct static_files *static_none(void);
struct static_files *static_free(struct static_files *s);

/* 16 hex digits, "dev", or "" without pages. */
const char *static_hash(const struct static_files *s);

/* Answer a GET; 404 in plain text for what is not in the table. */
void static_handle(const struct static_files *s, const struct msg_request *q, struct msg_reply *r);
