// SPDX-License-Identifier: Apache-2.0
/* Answers of a reader that was taken over: a byte for the kind, a byte for what was asked, the
 * header's numbers, then the payload. Whatever is taken from them keeps what the header of
 * agent/apart/reader_wire.h promises. */
#include <string.h>

#include "agent/apart/reader_wire.h"
#include "tests/fuzz/fuzz.h"

static unsigned taken;

static void table(const struct reader_answer *a, struct str payload)
{
    struct ehtab t;

    if (!reader_wire_get_table(a, payload, &t))
        return;
    taken++;
    FUZZ_CHECK(t.n && t.n * sizeof *t.row == payload.n);
    for (size_t i = 0; i < t.n; i++) {
        FUZZ_CHECK(i == 0 || t.row[i].pc > t.row[i - 1].pc);
        FUZZ_CHECK(t.row[i].rule.reg <= 16 && t.row[i].rule.fpk <= 3);
    }
    ehtab_deinit(&t);
}

static void symbols(const struct reader_answer *a, struct str payload, uint32_t max)
{
    struct elfsym_arrays s;

    if (!reader_wire_get_symbols(a, payload, max, &s))
        return;
    taken++;
    FUZZ_CHECK(s.n <= (max ? max : ELFSYM_MAX_SYMBOLS) && s.n * sizeof *s.sym <= payload.n);
    for (uint32_t i = 1; i < s.n; i++)
        FUZZ_CHECK(s.sym[i].addr >= s.sym[i - 1].addr);
    FUZZ_CHECK(!s.mini_used || s.names[ELFSYM_MINI].size <= payload.n);
    free(s.sym);
    free(s.mini);
}

static void facts(struct str payload)
{
    struct debugfile_facts f;

    if (!reader_wire_get_facts(payload, &f))
        return;
    taken++;
    FUZZ_CHECK(f.id_len <= sizeof f.id && f.alt_id_len <= sizeof f.alt_id);
    FUZZ_CHECK(memchr(f.link, 0, sizeof f.link) && memchr(f.alt, 0, sizeof f.alt));
    FUZZ_CHECK(!f.has_link || debugfile_is_name(f.link));
}

static void perfmap(const struct reader_answer *a, struct str payload)
{
    struct jitmap m;

    if (!reader_wire_get_perfmap(a, payload, &m))
        return;
    taken++;
    for (uint32_t i = 0; i < m.n; i++) {
        FUZZ_CHECK(m.sym[i].start < m.sym[i].end);
        FUZZ_CHECK(i == 0 || m.sym[i - 1].end <= m.sym[i].start);
        FUZZ_CHECK((uint64_t)m.sym[i].name + m.sym[i].name_len <= m.text_n);
    }
    jitmap_deinit(&m);
}

static void lines(const struct reader_answer *a, struct str payload, uint32_t n_addr)
{
    struct dwarfline_arrays l;

    if (!reader_wire_get_lines(a, payload, n_addr, &l))
        return;
    taken++;
    for (uint32_t i = 0; i < n_addr; i++)
        FUZZ_CHECK((uint64_t)l.found[i].first + l.found[i].n <= l.n_frame);
    for (uint32_t i = 0; i < l.n_frame; i++) {
        FUZZ_CHECK((uint64_t)l.frame[i].name.at + l.frame[i].name.n <= l.text_n);
        FUZZ_CHECK((uint64_t)l.frame[i].file.at + l.frame[i].file.n <= l.text_n);
    }
    dwarfline_deinit(&l);
}

static void name(struct str payload)
{
    struct buf out;

    buf_init(&out, 1 << 20);
    if (reader_wire_get_name(payload, &out)) {
        taken++;
        FUZZ_CHECK(out.n == payload.n && !memchr(out.p, 0, out.n));
    }
    buf_deinit(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct reader_answer a = {.magic = READER_MAGIC};
    struct str payload;

    if (n < 2 + sizeof a.n)
        return 0;
    memcpy(a.n, data + 2, sizeof a.n);
    payload = (struct str){(const char *)data + 2 + sizeof a.n, n - 2 - sizeof a.n};
    a.bytes = payload.n;
    switch (data[0] % READER_KINDS) {
    case READER_TABLE:
        table(&a, payload);
        break;
    case READER_SYMBOLS:
        symbols(&a, payload, data[1]);
        break;
    case READER_DEMANGLE:
        name(payload);
        break;
    case READER_FACTS:
        facts(payload);
        break;
    case READER_PERFMAP:
        perfmap(&a, payload);
        break;
    case READER_LINES:
        lines(&a, payload, data[1]);
        break;
    default:
        break;
    }
    return 0;
}

void fuzz_report(void)
{
    (void)printf("%u answers taken\n", taken);
}
