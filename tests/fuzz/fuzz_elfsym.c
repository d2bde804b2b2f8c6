// SPDX-License-Identifier: Apache-2.0
/*
 * elfsym_read() on any file, which is its own debug file too: an error, or symbols in ascending
 * order, each with a name that ends. And what it says of its debug files.
 */
#include <string.h>

#include "agent/file/debugfile.h"
#include "agent/name/elfsym.h"
#include "tests/fuzz/fuzz.h"

static uint64_t n_ok, n_refused, n_mini, n_mini_failed, n_link, n_bad_link;

void fuzz_report(void)
{
    printf(
        "elfsym: %lu with symbols, %lu refused, mini debug info %lu and %lu damaged, debug links "
        "%lu and %lu bad\n",
        n_ok, n_refused, n_mini, n_mini_failed, n_link, n_bad_link);
}

static void ask_names(const struct elfsym_job *job, const struct elfsym_arrays *a)
{
    char part[64];

    for (uint32_t i = 0; i < a->n; i++) {
        uint32_t name = a->sym[i].name;
        int64_t n;

        FUZZ_CHECK(i == 0 || a->sym[i - 1].addr < a->sym[i].addr);
        if (i > 4096)
            continue;
        n = elfsym_read_names(job, a, name >> 30, part, sizeof part, name & ELFSYM_NAME_MASK);
        FUZZ_CHECK(n <= (int64_t)sizeof part);
    }
}

static void ask_links(const struct elfsym_file *f)
{
    struct debugfile_facts facts;
    struct elffile e = {};

    if (elffile_open(&e, f->read, f->ctx, f->size, NULL) == 0 && elffile_sections(&e, NULL) == 0) {
        debugfile_facts(&e, &facts);
        FUZZ_CHECK(!facts.has_link || (!strchr(facts.link, '/') && facts.link[0]));
        FUZZ_CHECK(memchr(facts.alt, 0, sizeof facts.alt));
        n_link += facts.has_link;
        n_bad_link += facts.bad_link;
    }
    elffile_close(&e);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct elffile_bytes b = {data, n};
    const struct elfsym_file f = {elffile_copy, &b, n};
    const struct elfsym_job job = {.main = &f, .debug = &f, .max_symbols = 100000};
    struct elfsym_arrays a = {};

    ask_links(&f);
    if (elfsym_read(&job, &a, NULL) < 0) {
        n_refused++;
        return 0;
    }
    n_ok += a.n > 0;
    n_mini += a.mini_used;
    n_mini_failed += a.mini_failed;
    ask_names(&job, &a);
    free(a.sym);
    free(a.mini);
    return 0;
}
