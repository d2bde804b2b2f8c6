// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdbool.h>

#include "base/buf.h"
#include "base/str.h"

/*
 * C++ (Itanium ABI) and Rust (legacy and v0) symbol names for people, without parameter types.
 * Hostile names are normal: input beyond DEMANGLE_MAX_IN, and names whose text would pass
 * DEMANGLE_MAX_OUT (a few back references can make gigabytes), are kept as they are.
 */
#define DEMANGLE_MAX_IN  ((size_t)64 << 10)
#define DEMANGLE_MAX_OUT ((size_t)65535)

/* Could it be one? Looks at its length and first letters. */
bool demangle_may(struct str name);

/* Appends the text to out and returns true; false, with out untouched, where name is no mangled
 * one: the caller keeps it. Any thread; needs up to 512 KiB of stack for nested names. */
bool demangle(struct str name, struct buf *out);
