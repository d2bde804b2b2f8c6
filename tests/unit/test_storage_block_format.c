// SPDX-License-Identifier: Apache-2.0
/*
 * The format of a block, fixed: its golden bytes, and the dump of a small one in
 * docs/format-shard.md, which is walked here by a reader of its own, so that the page stays true.
 * argv: the golden file, the page. UPDATE_GOLDEN=1 writes both anew; a byte that changes without
 * that is a break of the format.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "tests/lib/gen_block.h"
#include "tests/lib/testing.h"

#define NODES 100000u

static const char *golden_path, *page_path;

static bool update(void)
{
    return getenv("UPDATE_GOLDEN") != NULL;
}

static struct str file_read(const char *path)
{
    FILE *f = fopen(path, "rb");
    char *p = malloc(1 << 20);
    size_t n;

    if (!f)
        fail_msg("%s: cannot read", path);
    assert_non_null(p);
    n = fread(p, 1, 1 << 20, f);
    assert_int_equal(fclose(f), 0);
    return (struct str){p, n};
}

static void file_write(const char *path, struct str s)
{
    FILE *f = fopen(path, "wb");

    if (!f)
        fail_msg("%s: cannot write", path);
    assert_int_equal(fwrite(s.p, 1, s.n, f), s.n);
    assert_int_equal(fclose(f), 0);
}

/* ---- golden bytes -------------------------------------------------------------------------- */

/* Some thousand rows that use every column. */
static struct block_rows golden_rows(struct gen_block *g)
{
    const struct gen_shape sh = {5000, 300, 878, true};
    const struct gen_form f = {.values = GEN_VALUES,
                               .bytes = 3,
                               .quantum = 1,
                               .counts = true,
                               .unknown = true,
                               .cpu = true,
                               .attr = true,
                               .var = true};

    return gen_rows(g, 5000, &sh, &f);
}

/* u32 length of the summary; summary; cols. */
static void test_golden(void **state)
{
    struct block_coder *c = block_coder_new();
    struct arena arena;
    struct gen_block g = {.state = 1, .arena = &arena};
    struct block_meta m = {};
    struct block_rows rows, back;
    struct buf summary, out;
    struct str was, part[2];
    struct err err = {};
    uint32_t n;

    (void)state;
    arena_init(&arena, SIZE_MAX);
    buf_init(&summary, SIZE_MAX);
    buf_init(&out, SIZE_MAX);
    rows = golden_rows(&g);
    {
        struct buf cols;

        buf_init(&cols, SIZE_MAX);
        assert_ok(block_encode(c, &rows, 1, &m, &summary, &cols, &err), &err);
        buf_le32(&out, (uint32_t)summary.n);
        buf_add(&out, summary.p, summary.n);
        buf_add(&out, cols.p, cols.n);
        buf_deinit(&cols);
    }
    if (update())
        file_write(golden_path, buf_view(&out));
    was = file_read(golden_path);
    assert_true(was.n > 4);
    n = (uint8_t)was.p[0] | (uint32_t)(uint8_t)was.p[1] << 8 | (uint32_t)(uint8_t)was.p[2] << 16;
    assert_true(n < was.n - 4);
    part[0] = (struct str){was.p + 4, n};
    part[1] = (struct str){was.p + 4 + n, was.n - 4 - n};
    assert_ok(block_decode(c, part[0], part[1], NODES, &arena, &back, &err), &err);
    assert_int_equal(gb_differ(&rows, &back), UINT32_MAX);
    assert_ok(block_check(c, &m, part[0], part[1], NODES, &arena, &err), &err);
    assert_true(str_eq(was, buf_view(&out)));
    free((void *)(uintptr_t)was.p);
    buf_deinit(&summary);
    buf_deinit(&out);
    arena_deinit(&arena);
    (void)block_coder_free(c);
}

/* ---- the dump ------------------------------------------------------------------------------ */

struct dump {
    const uint8_t *p;
    uint32_t at, n;
    struct buf out;
};

static void line(struct dump *d, uint32_t n, const char *what)
{
    buf_printf(&d->out, "%04x ", d->at);
    for (uint32_t i = 0; i < n; i++)
        buf_printf(&d->out, " %02x", d->p[d->at + i]);
    for (uint32_t i = n; i < 8; i++)
        buf_cstr(&d->out, "   ");
    buf_printf(&d->out, "  %s\n", what);
    d->at += n;
    assert_true(d->at <= d->n);
}

static uint64_t fixed(struct dump *d, uint32_t n, const char *what)
{
    char text[100];
    uint64_t v = 0;

    for (uint32_t i = 0; i < n; i++)
        v |= (uint64_t)d->p[d->at + i] << (8 * i);
    (void)snprintf(text, sizeof text, "%s %" PRIu64, what, v);
    line(d, n, text);
    return v;
}

static uint64_t varint(struct dump *d, const char *what, bool is_signed)
{
    char text[100];
    uint64_t v = 0;
    uint32_t n = 0;

    do
        v |= (uint64_t)(d->p[d->at + n] & 0x7f) << (7 * n);
    while (d->p[d->at + n++] & 0x80);
    if (is_signed)
        (void)snprintf(text, sizeof text, "%s %" PRId64 " (zigzag)", what,
                       (int64_t)(v >> 1) ^ -(int64_t)(v & 1));
    else
        (void)snprintf(text, sizeof text, "%s %" PRIu64, what, v);
    line(d, n, text);
    return v;
}

static void bytes(struct dump *d, uint32_t n, const char *what)
{
    for (uint32_t k = 0; k < n; k += 8)
        line(d, n - k < 8 ? n - k : 8, k ? "" : what);
}

static const char *column_name(uint64_t id)
{
    static const char *const name[] = {[1] = "keys",
                                       [2] = "key, plane one",
                                       [3] = "key, plane two",
                                       [4] = "time, plane one",
                                       [5] = "time, plane two",
                                       [7] = "stack, plane one",
                                       [9] = "count",
                                       [11] = "cpu + 1",
                                       [16] = "value, byte 0",
                                       [17] = "value, byte 1"};

    assert_true(id < sizeof name / sizeof name[0] && name[id]);
    return name[id];
}

static void dump_cols(struct dump *d)
{
    uint32_t id[32], stored[32], n = 0;
    uint64_t slices;

    (void)fixed(d, 1, "version");
    (void)fixed(d, 1, "value mode");
    (void)fixed(d, 1, "flags");
    slices = fixed(d, 1, "slices");
    assert_int_equal(slices, 1);
    (void)fixed(d, 4, "n");
    (void)fixed(d, 4, "directory length");
    (void)fixed(d, 4, "quantum, ms");
    (void)fixed(d, 8, "origin, ns");
    (void)fixed(d, 8, "V");
    (void)varint(d, "slice: first time, quanta from origin", false);
    (void)varint(d, "  span", false);
    (void)varint(d, "  rows", false);
    (void)varint(d, "  keys", false);
    (void)varint(d, "  largest gap", false);
    for (uint64_t cells = varint(d, "  cells", false); n < cells; n++) {
        id[n] = (uint32_t)varint(d, "  cell: column", false);
        (void)varint(d, "    codec", false);
        (void)varint(d, "    raw length", false);
        stored[n] = (uint32_t)varint(d, "    stored length", false);
    }
    for (uint32_t i = 0; i < n; i++)
        bytes(d, stored[i], column_name(id[i]));
    assert_int_equal(d->at, d->n);
}

static void dump_cell(struct dump *d, const char *what)
{
    uint64_t stored;

    (void)fixed(d, 1, "cell: codec");
    (void)varint(d, "  raw length", false);
    stored = varint(d, "  stored length", false);
    bytes(d, (uint32_t)stored, what);
}

static void dump_summary(struct dump *d)
{
    uint64_t flags = fixed(d, 1, "flags"), width;

    (void)varint(d, "V", true);
    (void)varint(d, "n", false);
    (void)varint(d, "groups", false);
    (void)varint(d, "largest gap", false);
    dump_cell(d, "groups: rows, size; by how many rows less, size");
    dump_cell(d, "gaps, plane one");
    dump_cell(d, "gaps, plane two");
    dump_cell(d, "escapes");
    for (uint32_t f = 1; f <= 4; f *= 2) {
        if (!(flags & f))
            continue;
        width = fixed(d, 1, f == 1 ? "counts: width" : f == 2 ? "sums: width" : "variances: width");
        for (uint64_t k = 0; k < width; k++)
            dump_cell(d, "plane");
    }
    assert_int_equal(d->at, d->n);
}

static void dump_rows(struct buf *out, const struct block_rows *r)
{
    buf_cstr(out, "row  ms             series  thread  node  count  value  cpu\n");
    for (uint32_t i = 0; i < r->n; i++) {
        buf_printf(out, "%-4u %" PRId64 "  %-7u %-7u %-5u %-6" PRIu64 " %-6" PRId64, i, r->ms[i],
                   r->series[i], r->thread[i], r->node[i], r->count[i], r->value[i]);
        if (r->cpu[i])
            buf_printf(out, " %u\n", r->cpu[i] - 1);
        else
            buf_cstr(out, " not kept\n");
    }
}

/* Six rows: two keys, three stacks of which one occurs thrice. */
static void make_dump(struct buf *out)
{
    int64_t ms[] = {1796000000000, 1796000000000, 1796000000010,
                    1796000000020, 1796000000020, 1796000000300};
    uint32_t series[] = {3, 3, 3, 3, 5, 3}, thread[] = {1, 2, 1, 1, 1, 2};
    uint32_t node[] = {7, 7, 9, 7, 20, 9}, cpu[] = {1, 2, 1, 1, 0, 3};
    uint64_t count[] = {1, 1, 2, 1, 1, 0};
    int64_t value[] = {100, 90, 400, 100, 5, 300};
    struct block_rows r = {.n = 6,
                           .ms = ms,
                           .series = series,
                           .thread = thread,
                           .node = node,
                           .count = count,
                           .value = value,
                           .cpu = cpu};
    struct block_coder *c = block_coder_new();
    struct block_meta m = {};
    struct buf summary, cols;
    struct err err = {};
    struct dump d;

    buf_init(&summary, SIZE_MAX);
    buf_init(&cols, SIZE_MAX);
    assert_ok(block_encode(c, &r, 1, &m, &summary, &cols, &err), &err);
    dump_rows(out, &r);
    buf_printf(out,
               "\nmeta: t0 %" PRId64 "  t1 %" PRId64 "  n %u  count %" PRIu64
               "  series %u to %u  value %" PRId64 " to %" PRId64 "  total %" PRId64 "  flags %u\n",
               m.t0, m.t1, m.n, m.count, m.smin, m.smax, m.vmin, m.vmax, (int64_t)m.total, m.flags);
    d = (struct dump){.p = (uint8_t *)cols.p, .n = (uint32_t)cols.n, .out = *out};
    buf_cstr(&d.out, "\ncols.data\n");
    dump_cols(&d);
    d.p = (uint8_t *)summary.p;
    d.n = (uint32_t)summary.n;
    d.at = 0;
    buf_cstr(&d.out, "\nsummary.data\n");
    dump_summary(&d);
    *out = d.out;
    assert_false(out->failed);
    buf_deinit(&summary);
    buf_deinit(&cols);
    (void)block_coder_free(c);
}

static void test_page(void **state)
{
    static const char begin[] = "<!-- dump of one block: a test writes and compares it -->\n```\n";
    static const char end[] = "```\n<!-- end of dump -->\n";
    struct str page = file_read(page_path);
    struct buf dump, text;
    char *from, *to;

    (void)state;
    buf_init(&dump, SIZE_MAX);
    buf_init(&text, SIZE_MAX);
    make_dump(&dump);
    from = memmem(page.p, page.n, begin, sizeof begin - 1);
    assert_non_null(from);
    from += sizeof begin - 1;
    to = memmem(from, (size_t)(page.p + page.n - from), end, sizeof end - 1);
    assert_non_null(to);
    buf_add(&text, page.p, (size_t)(from - page.p));
    buf_add(&text, dump.p, dump.n);
    buf_add(&text, to, (size_t)(page.p + page.n - to));
    if (update())
        file_write(page_path, buf_view(&text));
    else if (!str_eq(page, buf_view(&text)))
        fail_msg("%s: the dump of a block is not that of the code:\n%.*s", page_path, (int)dump.n,
                 dump.p);
    free((void *)(uintptr_t)page.p);
    buf_deinit(&dump);
    buf_deinit(&text);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden),
        cmocka_unit_test(test_page),
    };

    if (argc != 3)
        return 2;
    golden_path = argv[1];
    page_path = argv[2];
    return cmocka_run_group_tests(tests, NULL, NULL);
}
