// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "agent/file/binary.h"
#include "agent/file/pyelf.h"
#include "agent/file/usdt.h"
#include "base/err.h"

/*
 * What the main thread wants to know of each mapped file at once: is it a Python, does it hold the
 * probe of steps? It must not wait for the reader (reader.h), so a thread of its own asks, and each
 * second, whether the reader is there at all. Where there is no reader apart, the answer is read
 * here and now. Main thread.
 */
struct facts;

/* errors: as thread_start() */
[[nodiscard]] int facts_start(struct facts **ret, struct err *err);
struct facts *facts_stop(struct facts *f); /* NULL is a no-op; returns NULL */

/* pyelf_read(): 0; 1 it is none; -EAGAIN not known yet. */
[[nodiscard]] int facts_python(struct facts *f, struct binary *b, struct pyelf *ret);
/* usdt_find_step(): enum usdt_found, or -EAGAIN. */
[[nodiscard]] int facts_step(struct facts *f, struct binary *b, struct usdt_site *ret);

/* Answers that were "not yet" so far: who gets one is to be remembered by facts_remember(), and
 * facts_again() gives each of them back once, when more is known. */
uint64_t facts_waits(const struct facts *f);
void facts_remember(struct facts *f, uint32_t tgid);
bool facts_again(struct facts *f, uint32_t *ret_tgid);
/* Is anybody remembered? */
bool facts_waiting(const struct facts *f);
