// SPDX-License-Identifier: Apache-2.0
#include <stdlib.h>
#include <string.h>

#include "storage/dict/dictchunk_private.h"

#define CELL_MAX  ((size_t)64 << 20)
#define CLIMB_MAX 255u /* and the mark for a parent that is said */

struct dict_coder *dict_coder_new(void)
{
    struct dict_coder *c = mem_fail_now() ? NULL : calloc(1, sizeof *c);

    if (!c)
        return NULL;
    cell_coder_init(&c->coder);
    buf_init(&c->scratch, CELL_MAX + 64);
    buf_init(&c->scratch2, CELL_MAX + 64);
    return c;
}

struct dict_coder *dict_coder_free(struct dict_coder *c)
{
    if (!c)
        return NULL;
    cell_coder_deinit(&c->coder);
    buf_deinit(&c->scratch);
    buf_deinit(&c->scratch2);
    free(c);
    return NULL;
}

static bool planes(struct dict_coder *c, struct cell_in *in, uint64_t *ret, uint32_t n)
{
    return cell_get_planes(&c->coder, in, n, ret, &c->scratch);
}

/* n numbers of 32 bits. */
static bool planes_u32(struct dict_coder *c, struct cell_in *in, uint32_t *ret, uint32_t n)
{
    if (!planes(c, in, c->a, n))
        return false;
    for (uint32_t i = 0; i < n; i++) {
        if (c->a[i] > UINT32_MAX)
            return false;
        ret[i] = (uint32_t)c->a[i];
    }
    return true;
}

static void put_u32(struct dict_coder *c, struct buf *b, const uint32_t *v, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        c->a[i] = v[i];
    cell_put_planes(&c->coder, b, c->a, n);
}

/* Differences to the one before, zigzag. */
static void put_deltas(struct dict_coder *c, struct buf *b, const uint32_t *v, uint32_t n)
{
    int64_t last = 0;

    for (uint32_t i = 0; i < n; i++) {
        c->a[i] = cell_zigzag((int64_t)v[i] - last);
        last = v[i];
    }
    cell_put_planes(&c->coder, b, c->a, n);
}

static bool get_deltas(struct dict_coder *c, struct cell_in *in, uint32_t *ret, uint32_t n)
{
    int64_t last = 0;

    if (!planes(c, in, c->a, n))
        return false;
    for (uint32_t i = 0; i < n; i++) {
        if (__builtin_add_overflow(last, cell_unzigzag(c->a[i]), &last) || last < 0 ||
            last > UINT32_MAX)
            return false;
        ret[i] = (uint32_t)last;
    }
    return true;
}

/* Numbers that mostly are new: by how much each exceeds all before it, 0: it does not; then those.
 */
static void put_fresh(struct dict_coder *c, struct buf *b, const uint32_t *v, uint32_t n)
{
    int64_t top = -1;
    uint32_t m = 0;

    for (uint32_t i = 0; i < n; i++) {
        int64_t x = v[i];

        c->a[i] = x > top ? (uint64_t)(x - top) : 0;
        if (x > top)
            top = x;
        else
            c->b[m++] = v[i];
    }
    cell_put_planes(&c->coder, b, c->a, n);
    cell_put_planes(&c->coder, b, c->b, m);
}

static bool get_fresh(struct dict_coder *c, struct cell_in *in, uint32_t *ret, uint32_t n)
{
    uint64_t top = UINT64_MAX; /* one below 0 */
    uint32_t m = 0, k = 0;

    if (!planes(c, in, c->a, n))
        return false;
    for (uint32_t i = 0; i < n; i++)
        m += c->a[i] == 0;
    if (!planes(c, in, c->b, m))
        return false;
    for (uint32_t i = 0; i < n; i++) {
        uint64_t x;

        if (c->a[i] > (uint64_t)UINT32_MAX + 1)
            return false;
        x = c->a[i] ? (top += c->a[i]) : c->b[k++];
        if (x > UINT32_MAX || (c->a[i] == 0 && (top == UINT64_MAX || x > top)))
            return false;
        ret[i] = (uint32_t)x;
    }
    return true;
}

static void put_bytes(struct dict_coder *c, struct buf *b, const uint8_t *v, uint32_t n)
{
    cell_put(&c->coder, b, v, n, CELL_FAST);
}

static const uint8_t *get_bytes(struct dict_coder *c, struct cell_in *in, uint32_t n)
{
    size_t got;
    const uint8_t *p = cell_get(&c->coder, in, n, &c->scratch, &got);

    return p && got == n ? p : NULL;
}

/* ---- texts, binaries, functions, frames ---------------------------------------------------- */

void dict_put_texts(struct dict_coder *c, struct buf *b, const struct str *v, uint32_t n)
{
    buf_reset(&c->scratch);
    for (uint32_t i = 0; i < n; i++) {
        cell_varint(&c->scratch, v[i].n);
        buf_str(&c->scratch, v[i]);
    }
    buf_fail(b, c->scratch.failed);
    cell_put(&c->coder, b, c->scratch.p, c->scratch.n, CELL_TEXT);
}

bool dict_get_texts(struct dict_coder *c, struct str data, struct str *ret, uint32_t n)
{
    struct cell_in in = cell_in(data.p, data.n), text;
    size_t size;
    const uint8_t *p = cell_get(&c->coder, &in, CELL_MAX, &c->scratch, &size);

    if (!p || !cell_at_end(&in))
        return false;
    text = cell_in(p, size);
    for (uint32_t i = 0; i < n; i++) {
        uint64_t len = cell_get_varint(&text);

        ret[i] = (struct str){(const char *)cell_get_bytes(&text, len), len};
        if (text.bad || !ret[i].p)
            return false;
    }
    return cell_at_end(&text);
}

void dict_put_bins(struct dict_coder *c, struct buf *b, const struct dict_bin *v, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        c->u[i] = v[i].path;
    put_deltas(c, b, c->u, n);
    for (uint32_t i = 0; i < n; i++)
        c->u[i] = v[i].id;
    put_deltas(c, b, c->u, n);
    for (uint32_t i = 0; i < n; i++)
        c->one[i] = (uint8_t)v[i].id_kind;
    put_bytes(c, b, c->one, n);
}

bool dict_get_bins(struct dict_coder *c, struct str data, struct dict_bin *ret, uint32_t n)
{
    struct cell_in in = cell_in(data.p, data.n);
    const uint8_t *kind;

    if (!get_deltas(c, &in, c->u, n) || !get_deltas(c, &in, c->v, n))
        return false;
    kind = get_bytes(c, &in, n);
    if (!kind || !cell_at_end(&in))
        return false;
    for (uint32_t i = 0; i < n; i++)
        ret[i] = (struct dict_bin){.path = c->u[i], .id = c->v[i], .id_kind = kind[i]};
    return true;
}

void dict_put_functions(struct dict_coder *c, struct buf *b, const struct dict_function *v,
                        uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        c->u[i] = v[i].name;
    put_deltas(c, b, c->u, n);
    for (uint32_t i = 0; i < n; i++)
        c->u[i] = v[i].file;
    put_deltas(c, b, c->u, n);
    for (uint32_t i = 0; i < n; i++)
        c->u[i] = v[i].line;
    put_u32(c, b, c->u, n);
    for (uint32_t i = 0; i < n; i++)
        c->one[i] = (uint8_t)v[i].kind;
    put_bytes(c, b, c->one, n);
}

bool dict_get_functions(struct dict_coder *c, struct str data, struct dict_function *ret,
                        uint32_t n)
{
    struct cell_in in = cell_in(data.p, data.n);
    const uint8_t *kind;

    if (!get_deltas(c, &in, c->u, n))
        return false;
    for (uint32_t i = 0; i < n; i++)
        ret[i].name = c->u[i];
    if (!get_deltas(c, &in, c->u, n) || !planes_u32(c, &in, c->v, n))
        return false;
    kind = get_bytes(c, &in, n);
    if (!kind || !cell_at_end(&in))
        return false;
    for (uint32_t i = 0; i < n; i++) {
        ret[i].file = c->u[i];
        ret[i].line = c->v[i];
        ret[i].kind = kind[i];
    }
    return true;
}

void dict_put_frames(struct dict_coder *c, struct buf *b, const struct dict_place *v, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        c->u[i] = v[i].function;
    put_fresh(c, b, c->u, n);
    for (uint32_t i = 0; i < n; i++)
        c->u[i] = v[i].bin;
    put_u32(c, b, c->u, n);
    for (uint32_t i = 0; i < n; i++)
        c->u[i] = v[i].line;
    put_u32(c, b, c->u, n);
    for (uint32_t i = 0; i < n; i++)
        c->a[i] = v[i].addr;
    cell_put_planes(&c->coder, b, c->a, n);
    for (uint32_t i = 0; i < n; i++)
        c->one[i] = (uint8_t)v[i].flags;
    put_bytes(c, b, c->one, n);
}

bool dict_get_frames(struct dict_coder *c, struct str data, struct dict_place *ret, uint32_t n)
{
    struct cell_in in = cell_in(data.p, data.n);
    const uint8_t *flags;

    if (!get_fresh(c, &in, c->u, n))
        return false;
    for (uint32_t i = 0; i < n; i++)
        ret[i].function = c->u[i];
    if (!planes_u32(c, &in, c->u, n) || !planes_u32(c, &in, c->v, n))
        return false;
    if (!planes(c, &in, c->a, n))
        return false;
    flags = get_bytes(c, &in, n);
    if (!flags || !cell_at_end(&in))
        return false;
    for (uint32_t i = 0; i < n; i++) {
        ret[i].bin = c->u[i];
        ret[i].line = c->v[i];
        ret[i].addr = c->a[i];
        ret[i].flags = flags[i];
    }
    return true;
}

/* ---- tries --------------------------------------------------------------------------------- */

void dict_put_list(struct dict_coder *c, struct buf *b, const uint32_t *v, uint32_t n)
{
    put_fresh(c, b, v, n);
}

bool dict_get_list(struct dict_coder *c, struct str data, uint32_t *ret, uint32_t n)
{
    struct cell_in in = cell_in(data.p, data.n);

    return get_fresh(c, &in, ret, n) && cell_at_end(&in);
}

/* How many steps up from the node before one has to go to reach its parent; CLIMB_MAX: too many,
 * or it does not lie there. Ancestors have smaller numbers. */
static uint8_t climb_of(const uint32_t *parent, uint32_t node)
{
    uint32_t at = node - 1, k = 0;

    while (k < CLIMB_MAX && at > parent[node]) {
        at = parent[at];
        k++;
    }
    return k < CLIMB_MAX && at == parent[node] ? (uint8_t)k : (uint8_t)CLIMB_MAX;
}

void dict_put_nodes(struct dict_coder *c, struct buf *b, const uint32_t *parent,
                    const uint32_t *frame, uint32_t first, uint32_t n, uint32_t d)
{
    uint32_t m = 0;

    for (uint32_t i = 0; i < n; i++) {
        c->one[i] = climb_of(parent, first + i);
        if (c->one[i] == CLIMB_MAX)
            c->b[m++] = parent[first + i];
    }
    cell_varint(b, d);
    put_bytes(c, b, c->one, n);
    cell_put_planes(&c->coder, b, c->b, m);
    if (d > RANK_MAX) {
        put_u32(c, b, frame, n);
        return;
    }
    m = rank_split(frame, n, d, c->one, c->two);
    put_bytes(c, b, c->one, n);
    put_bytes(c, b, c->two, m);
}

static bool get_ranks(struct dict_coder *c, struct cell_in *in, uint32_t *ret, uint32_t n,
                      uint32_t d)
{
    size_t got;
    const uint8_t *one = get_bytes(c, in, n), *two;

    if (!one)
        return false;
    two = cell_get(&c->coder, in, n, &c->scratch2, &got);
    if (!two || got != rank_followed(one, n, d))
        return false;
    rank_join(one, two, n, d, ret);
    return true;
}

bool dict_get_nodes(struct dict_coder *c, struct str data, uint32_t *parent, bool *damaged,
                    uint32_t *ret_frame, uint32_t first, uint32_t n)
{
    struct cell_in in = cell_in(data.p, data.n);
    uint64_t d = cell_get_varint(&in);
    const uint8_t *climb = get_bytes(c, &in, n);
    uint32_t m = 0, k = 0;

    if (in.bad || !climb || d == 0 || d > UINT32_MAX)
        return false;
    memcpy(c->one, climb, n);
    for (uint32_t i = 0; i < n; i++)
        m += c->one[i] == CLIMB_MAX;
    if (!planes(c, &in, c->b, m))
        return false;
    if (!(d > RANK_MAX ? planes_u32(c, &in, ret_frame, n)
                       : get_ranks(c, &in, ret_frame, n, (uint32_t)d)) ||
        !cell_at_end(&in))
        return false;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t node = first + i, at = node - 1;
        bool lost = false;

        if (c->one[i] == CLIMB_MAX) {
            if (c->b[k] >= node)
                return false;
            at = (uint32_t)c->b[k++];
        } else {
            for (uint32_t up = 0; up < c->one[i]; up++) {
                lost |= damaged[at];
                at = parent[at];
            }
        }
        if (ret_frame[i] >= d)
            return false;
        damaged[node] = lost || damaged[at];
        parent[node] = damaged[node] ? 0 : at;
    }
    return true;
}
