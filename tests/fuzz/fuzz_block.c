// SPDX-License-Identifier: Apache-2.0
/*
 * A block from any bytes: u16 length of the summary, summary, cols. An error, or rows that are the
 * same again after they were written and read once more.
 */
#include <errno.h>
#include <string.h>

#include "tests/fuzz/fuzz.h"
#include "tests/lib/gen_block.h"

#define NODES 70000u

static void again(struct block_coder *c, const struct block_rows *r, uint32_t quantum,
                  struct arena *arena)
{
    struct buf summary, cols;
    struct block_meta m = {};
    struct block_rows back;
    int k;

    buf_init(&summary, SIZE_MAX);
    buf_init(&cols, SIZE_MAX);
    k = block_encode(c, r, quantum, &m, &summary, &cols, NULL);
    FUZZ_CHECK(k == 0 || k == -EINVAL); /* rows out of order decode, but are not written */
    if (k == 0) {
        FUZZ_CHECK(
            block_decode(c, buf_view(&summary), buf_view(&cols), NODES, arena, &back, NULL) == 0);
        FUZZ_CHECK(gb_differ(r, &back) == UINT32_MAX);
        FUZZ_CHECK(block_check(c, &m, buf_view(&summary), buf_view(&cols), NODES, arena, NULL) ==
                   0);
    }
    buf_deinit(&summary);
    buf_deinit(&cols);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    size_t split = n < 2 ? 0 : data[0] | (size_t)data[1] << 8;
    struct block_coder *c = block_coder_new();
    struct str summary, cols;
    struct block_rows rows;
    struct arena arena;
    struct err err = {};
    int r;

    FUZZ_CHECK(c);
    split = n < 2 ? 0 : split > n - 2 ? n - 2 : split;
    summary = (struct str){(const char *)data + (n < 2 ? 0 : 2), split};
    cols = (struct str){summary.p + split, n < 2 ? 0 : n - 2 - split};
    arena_init(&arena, (size_t)256 << 20);
    r = block_decode(c, summary, cols, NODES, &arena, &rows, &err);
    FUZZ_CHECK(r == 0 || (r == -EBADMSG && err.code == r));
    if (r == 0) {
        struct block *b = arena_new(&arena, struct block);
        struct summary s;

        FUZZ_CHECK(b && block_open(cols, b, NULL) == 0);
        FUZZ_CHECK(summary_open(c, summary, NODES, &s, NULL) == 0);
        for (uint32_t k = 0; k < b->n_slice; k++) {
            int64_t first = slice_first_ms(b, &b->slice[k]), last = slice_last_ms(b, &b->slice[k]);
            uint32_t from, to;

            FUZZ_CHECK(slice_range(c, b, k, first + (last - first) / 3, last, &from, &to, NULL) ==
                       0);
            FUZZ_CHECK(from <= to && to <= b->slice[k].n);
        }
        again(c, &rows, b->quantum, &arena);
    }
    arena_deinit(&arena);
    (void)block_coder_free(c);
    return 0;
}
