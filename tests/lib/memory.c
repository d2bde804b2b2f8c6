// SPDX-License-Identifier: Apache-2.0
#include "tests/lib/memory.h"

#include <assert.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"

static _Atomic int64_t left; /* the one at which it gets to 0 fails */
static _Atomic int64_t fail_n;
static _Atomic uint64_t failed;
static sqlite3_mem_methods sqlite_memory;

void memory_fail(uint64_t n, uint64_t n_fail)
{
    atomic_store(&fail_n, 0);
    atomic_store(&failed, 0);
    atomic_store(&left, (int64_t)n);
    atomic_store(&fail_n, n ? (int64_t)n_fail : 0);
}

uint64_t memory_failures(void)
{
    return atomic_load(&failed);
}

static bool must_fail(void)
{
    int64_t n = atomic_load_explicit(&fail_n, memory_order_relaxed), k;

    if (n == 0)
        return false;
    k = atomic_fetch_sub(&left, 1);
    if (k > 1 || k <= 1 - n)
        return false;
    atomic_fetch_add(&failed, 1);
    return true;
}

/* ---- what the linker puts in place of libc's, in our libraries ------------------------------ */

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
char *__real_strdup(const char *s);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);
char *__wrap_strdup(const char *s);
int __wrap_asprintf(char **ret, const char *format, ...) __attribute__((format(printf, 2, 3)));
void *__wrap_xmalloc(size_t n);
void *__wrap_xcalloc(size_t n, size_t size);
void *__wrap_xrealloc(void *p, size_t n);
char *__wrap_xstrdup(const char *s);

void *__wrap_malloc(size_t n)
{
    return must_fail() ? NULL : __real_malloc(n);
}

void *__wrap_calloc(size_t n, size_t size)
{
    return must_fail() ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *p, size_t n)
{
    return must_fail() ? NULL : __real_realloc(p, n);
}

char *__wrap_strdup(const char *s)
{
    return must_fail() ? NULL : __real_strdup(s);
}

int __wrap_asprintf(char **ret, const char *format, ...)
{
    va_list ap;
    int r;

    if (must_fail()) {
        *ret = (char *)1; /* undefined by then: whoever frees it is wrong */
        return -1;
    }
    va_start(ap, format);
    r = vasprintf(ret, format, ap);
    va_end(ap);
    return r;
}

/* May end the program, so they are left alone. */
static void *there(void *p)
{
    assert(p);
    return p;
}

void *__wrap_xmalloc(size_t n)
{
    return there(__real_malloc(n ? n : 1));
}

void *__wrap_xcalloc(size_t n, size_t size)
{
    return there(__real_calloc(n ? n : 1, size ? size : 1));
}

void *__wrap_xrealloc(void *p, size_t n)
{
    return there(__real_realloc(p, n ? n : 1));
}

char *__wrap_xstrdup(const char *s)
{
    return there(__real_strdup(s));
}

/* ---- SQLite's ------------------------------------------------------------------------------ */

static void *sqlite_malloc(int n)
{
    return must_fail() ? NULL : sqlite_memory.xMalloc(n);
}

static void *sqlite_realloc(void *p, int n)
{
    return must_fail() ? NULL : sqlite_memory.xRealloc(p, n);
}

void memory_begin(void)
{
    sqlite3_mem_methods m;
    int r = sqlite3_config(SQLITE_CONFIG_GETMALLOC, &sqlite_memory);

    assert(r == SQLITE_OK);
    m = sqlite_memory;
    m.xMalloc = sqlite_malloc;
    m.xRealloc = sqlite_realloc;
    r = sqlite3_config(SQLITE_CONFIG_MALLOC, &m);
    assert(r == SQLITE_OK);
}
