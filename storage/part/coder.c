// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "storage/part/coder_private.h"

#define ARRAY_CAP  ((size_t)1 << 30)
#define BYTES_CAP  ((size_t)64 << 20) /* of one block */
#define DIGIT_BITS 11u
#define DIGITS     (1u << DIGIT_BITS)
#define FEW        64u /* sorted by insertion */

struct block_coder *block_coder_new(void)
{
    struct block_coder *c = mem_fail_now() ? NULL : calloc(1, sizeof *c);

    if (!c)
        return NULL;
    cell_coder_init(&c->cell);
    for (uint32_t i = 0; i < sizeof c->scratch / sizeof c->scratch[0]; i++)
        buf_init(&c->scratch[i], ARRAY_CAP);
    for (uint32_t i = 0; i < N_ARRAY; i++)
        buf_init(&c->array[i], ARRAY_CAP);
    buf_init(&c->cells, BYTES_CAP);
    buf_init(&c->directory, BYTES_CAP);
    buf_init(&c->entries, BYTES_CAP);
    buf_init(&c->bytes, BYTES_CAP);
    return c;
}

struct block_coder *block_coder_free(struct block_coder *c)
{
    if (!c)
        return NULL;
    cell_coder_deinit(&c->cell);
    for (uint32_t i = 0; i < sizeof c->scratch / sizeof c->scratch[0]; i++)
        buf_deinit(&c->scratch[i]);
    for (uint32_t i = 0; i < N_ARRAY; i++)
        buf_deinit(&c->array[i]);
    buf_deinit(&c->cells);
    buf_deinit(&c->directory);
    buf_deinit(&c->entries);
    buf_deinit(&c->bytes);
    free(c);
    return NULL;
}

void *coder_room(struct buf *b, size_t n, size_t size)
{
    size_t bytes;

    if (__builtin_mul_overflow(n + 1, size, &bytes))
        return NULL;
    buf_reset(b);
    return buf_reserve(b, bytes);
}

void *coder_array(struct block_coder *c, enum coder_array which, size_t n, size_t size)
{
    void *p = coder_room(&c->array[which], n, size);

    c->cell.no_memory |= !p;
    return p;
}

int coder_no_memory(struct err *err)
{
    return err_set(err, -ENOMEM, "block: memory is short");
}

int coder_damage(struct block_coder *c, struct err *err, const char *what)
{
    if (c->cell.no_memory) {
        c->cell.no_memory = false;
        return coder_no_memory(err);
    }
    return err_set(err, -EBADMSG, "block damaged: %s", what);
}

static void sort_few(uint64_t *v, size_t n, uint32_t shift)
{
    for (size_t i = 1; i < n; i++) {
        uint64_t x = v[i];
        size_t k = i;

        for (; k > 0 && v[k - 1] >> shift > x >> shift; k--)
            v[k] = v[k - 1];
        v[k] = x;
    }
}

uint64_t *sort_u64(uint64_t *v, uint64_t *tmp, size_t n, uint32_t shift)
{
    uint64_t any = 0, all = UINT64_MAX;

    if (n <= FEW) {
        sort_few(v, n, shift);
        return v;
    }
    for (size_t i = 0; i < n; i++) {
        any |= v[i];
        all &= v[i];
    }
    any ^= all; /* the bits that differ */
    for (; shift < 64; shift += DIGIT_BITS) {
        uint32_t at[DIGITS] = {}, sum = 0;
        uint64_t *swap = v;

        if (!(any >> shift & (DIGITS - 1)))
            continue;
        for (size_t i = 0; i < n; i++)
            at[v[i] >> shift & (DIGITS - 1)]++;
        for (uint32_t d = 0; d < DIGITS; d++) {
            uint32_t k = at[d];

            at[d] = sum;
            sum += k;
        }
        for (size_t i = 0; i < n; i++)
            tmp[at[v[i] >> shift & (DIGITS - 1)]++] = v[i];
        v = tmp;
        tmp = swap;
    }
    return v;
}

void unzigzag_wide(uint64_t *v, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++, v += 2) {
        uint64_t sign = -(v[0] & 1);
        uint64_t half[2] = {(v[0] >> 1 | v[1] << 63) ^ sign, v[1] >> 1 ^ sign};
        unit_i128 x = (unit_i128)((unsigned __int128)half[1] << 64 | half[0]);

        memcpy(v, &x, sizeof x);
    }
}
