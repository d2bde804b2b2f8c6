// SPDX-License-Identifier: Apache-2.0
#include "agent/file/demangle.h"

#include <libiberty/demangle.h>
#include <setjmp.h>
#include <string.h>

struct printer {
    struct buf *out;
    size_t start;
    jmp_buf too_long;
};

/* The demanglers print piecewise and cannot be told to stop; they hold no memory meanwhile, so
 * leaving them by a jump loses nothing. */
static void piece(const char *s, size_t n, void *ctx)
{
    struct printer *p = ctx;

    buf_add(p->out, s, n);
    if (p->out->failed || p->out->n - p->start > DEMANGLE_MAX_OUT)
        longjmp(p->too_long, 1);
}

static bool print(const char *name, bool rust, struct printer *p)
{
    if (setjmp(p->too_long)) // NOLINT(cert-err52-cpp)
        return false;
    return rust ? rust_demangle_callback(name, DMGL_AUTO, piece, p)
                : cplus_demangle_v3_callback(name, DMGL_AUTO, piece, p);
}

bool demangle_may(struct str name)
{
    if (name.n < 3 || name.n > DEMANGLE_MAX_IN || memchr(name.p, 0, name.n))
        return false;
    return str_starts(name, STR("_Z")) || str_starts(name, STR("_R")) ||
           str_starts(name, STR("_GLOBAL_"));
}

bool demangle(struct str name, struct buf *out)
{
    struct printer p = {.out = out, .start = out->n};
    struct buf in;
    bool done = false;

    if (out->failed || !demangle_may(name))
        return false;
    buf_init(&in, DEMANGLE_MAX_IN + 1);
    buf_str(&in, name);
    buf_chr(&in, '\0');
    if (!in.failed) {
        /* Rust first: its legacy names are well-formed C++ ones that end in a hash */
        for (int rust = 1; rust >= 0 && !done; rust--) {
            out->n = p.start;
            out->failed = false;
            done = print(in.p, rust, &p) && out->n > p.start;
        }
    }
    if (!done) {
        out->n = p.start;
        out->failed = false;
    }
    buf_deinit(&in);
    return done;
}
