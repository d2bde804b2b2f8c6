// SPDX-License-Identifier: Apache-2.0
/*
 * Reading cols. Every length is checked against what the directory's n demands before a byte is
 * used, so the loops over rows need no checks of their own, but for numbers that are used as an
 * index: those are compared with their bound once per slice.
 */
#include <errno.h>
#include <string.h>

#include "base/time.h"
#include "storage/part/coder_private.h"

static uint8_t zeros[BLOCK_ROWS + 1]; /* never written */

static int damage(struct err *err, const char *what)
{
    return err_set(err, -EBADMSG, "block damaged: %s", what);
}

/* ---- directory ----------------------------------------------------------------------------- */

static bool open_cell(struct cell_in *dir, struct cell_in *in, struct block_cell *ret,
                      uint32_t after)
{
    uint64_t id = cell_get_varint(dir), codec = cell_get_varint(dir), raw = cell_get_varint(dir),
             stored = cell_get_varint(dir);
    const uint8_t *p = dir->bad || stored > UINT32_MAX ? NULL : cell_get_bytes(in, stored);

    if (!p || id <= after || id >= COL_END || codec > CELL_ZSTD || raw == 0 ||
        raw > 2ull * CELL_VARINT_MAX * BLOCK_ROWS)
        return false;
    *ret = (struct block_cell){(uint8_t)id, (uint8_t)codec, (uint32_t)raw, (uint32_t)stored, p};
    return true;
}

static bool open_slice(struct cell_in *dir, struct cell_in *in, uint32_t most,
                       struct block_slice *ret)
{
    uint64_t first = cell_get_varint(dir), span = cell_get_varint(dir), n = cell_get_varint(dir);
    uint64_t keys = cell_get_varint(dir), gap = cell_get_varint(dir), cells = cell_get_varint(dir);
    uint32_t last = 0;

    if (dir->bad || first > UINT32_MAX || span > UINT32_MAX - first || n == 0 || n > most ||
        keys == 0 || keys > n || gap > RANK_ESCAPE || cells >= COL_END)
        return false;
    ret->first = (uint32_t)first;
    ret->span = (uint32_t)span;
    ret->n = (uint32_t)n;
    ret->keys = (uint32_t)keys;
    ret->gap = (uint32_t)gap;
    ret->n_cell = (uint32_t)cells;
    for (uint32_t i = 0; i < cells; i++) {
        if (!open_cell(dir, in, &ret->cell[i], last))
            return false;
        last = ret->cell[i].id;
    }
    return true;
}

static const struct block_cell *find(const struct block_slice *s, uint32_t id)
{
    for (uint32_t i = 0; i < s->n_cell; i++)
        if (s->cell[i].id == id)
            return &s->cell[i];
    return NULL;
}

int block_open(struct str bytes, struct block *ret, struct err *err)
{
    struct cell_in in = cell_in(bytes.p, bytes.n), dir;
    uint64_t version = cell_get_fixed(&in, 1), mode = cell_get_fixed(&in, 1);
    uint64_t flags = cell_get_fixed(&in, 1), slices = cell_get_fixed(&in, 1);
    uint64_t n = cell_get_fixed(&in, 4), directory = cell_get_fixed(&in, 4);
    uint64_t quantum = cell_get_fixed(&in, 4);
    int64_t origin = (int64_t)cell_get_fixed(&in, 8), v = (int64_t)cell_get_fixed(&in, 8);
    const uint8_t *d = cell_get_bytes(&in, directory);
    uint32_t rows = 0;

    if (in.bad || version != BLOCK_VERSION || mode > BLOCK_WIDE || flags > BLOCK_LEVEL ||
        slices == 0 || slices > BLOCK_SLICES || n > BLOCK_ROWS || quantum == 0 ||
        quantum > BLOCK_MINUTE_MS || origin % NS_PER_MS)
        return damage(err, "header");
    ret->mode = (enum block_mode)mode;
    ret->level = flags & BLOCK_LEVEL;
    ret->n = (uint32_t)n;
    ret->n_slice = (uint32_t)slices;
    ret->quantum = (uint32_t)quantum;
    ret->origin_ms = origin / NS_PER_MS;
    ret->v = v;
    ret->end = in.end;
    dir = cell_in(d, directory);
    for (uint32_t k = 0; k < slices; k++) {
        struct block_slice *s = &ret->slice[k];

        if (!open_slice(&dir, &in, ret->n - rows, s) ||
            (k > 0 && s->first <= s[-1].first + s[-1].span) || (!ret->level && find(s, COL_HELD)))
            return damage(err, "directory");
        rows += s->n;
    }
    if (!cell_at_end(&dir) || !cell_at_end(&in) || rows != ret->n)
        return damage(err, "directory");
    return 0;
}

/* ---- cells --------------------------------------------------------------------------------- */

bool block_has_counts(const struct block *b)
{
    for (uint32_t k = 0; k < b->n_slice; k++)
        if (find(&b->slice[k], COL_COUNT))
            return true;
    return false;
}

static uint32_t raw_size(const struct block_slice *s, uint32_t id)
{
    const struct block_cell *c = find(s, id);

    return c ? c->raw : 0;
}

/* Exactly n bytes of a column, and one more that may be read; zeros if it is absent. */
static const uint8_t *cell_of(struct block_coder *c, const struct block *b, uint32_t k, uint32_t id,
                              uint32_t n, uint32_t scratch)
{
    const struct block_cell *cell = find(&b->slice[k], id);
    const uint8_t *p;
    uint8_t *copy;

    if (!cell)
        return n < sizeof zeros ? zeros : NULL;
    if (cell->raw != n)
        return NULL;
    p = cell_read(&c->cell, cell->codec, cell->p, cell->stored, n, &c->scratch[scratch]);
    if (!p || p + n != b->end)
        return p;
    copy = coder_room(&c->scratch[scratch], n, 1); /* what follows the last cell is not ours */
    if (copy)
        memcpy(copy, p, n);
    else
        c->cell.no_memory = true;
    return copy;
}

/* Both planes of a rank coding, in scratch `at` and the next. */
static bool planes_of(struct block_coder *c, const struct block *b, uint32_t k, uint32_t id,
                      uint32_t d, uint32_t at, const uint8_t **ret_one, const uint8_t **ret_two)
{
    uint32_t n = b->slice[k].n, m = raw_size(&b->slice[k], id + 1);

    *ret_one = cell_of(c, b, k, id, n, at);
    *ret_two = cell_of(c, b, k, id + 1, m, at + 1);
    return *ret_one && *ret_two && rank_followed(*ret_one, n, d) == m;
}

static bool below(const uint32_t *v, uint32_t n, uint32_t bound)
{
    uint32_t most = 0;

    for (uint32_t i = 0; i < n; i++)
        most = v[i] > most ? v[i] : most;
    return most < bound;
}

static bool bytes_below(const uint8_t *v, uint32_t n, uint32_t bound)
{
    uint8_t most = 0;

    for (uint32_t i = 0; i < n; i++)
        most = v[i] > most ? v[i] : most;
    return most < bound;
}

/* ---- keys ---------------------------------------------------------------------------------- */

static bool read_key_table(struct block_coder *c, const struct block *b, uint32_t k,
                           struct slice_rows *ret)
{
    const struct block_slice *s = &b->slice[k];
    uint32_t size = raw_size(s, COL_KEYS);
    uint32_t *series = CODER_ARRAY(c, ARRAY_KEY_SERIES, uint32_t, s->keys);
    uint32_t *thread = CODER_ARRAY(c, ARRAY_KEY_THREAD, uint32_t, s->keys);
    const uint8_t *p = cell_of(c, b, k, COL_KEYS, size, 0);
    struct cell_in in = cell_in(p, p ? size : 0);
    uint64_t at[2] = {};

    if (!series || !thread || !p)
        return false;
    for (uint32_t i = 0; i < s->keys; i++) {
        at[0] += (uint64_t)cell_unzigzag(cell_get_varint(&in));
        at[1] += (uint64_t)cell_unzigzag(cell_get_varint(&in));
        in.bad |= at[0] > UINT32_MAX || at[1] > UINT32_MAX;
        series[i] = (uint32_t)at[0];
        thread[i] = (uint32_t)at[1];
    }
    ret->n_key = s->keys;
    ret->key_series = series;
    ret->key_thread = thread;
    return cell_at_end(&in);
}

int slice_keys(struct block_coder *c, const struct block *b, uint32_t k, struct slice_rows *ret,
               struct err *err)
{
    c->cell.no_memory = false;
    *ret = (struct slice_rows){.n = b->slice[k].n};
    return read_key_table(c, b, k, ret) ? 0 : coder_damage(c, err, "keys");
}

/* Key of each row: *ret_wide where there are more than 256, else *ret. */
static bool read_key_index(struct block_coder *c, const struct block *b, uint32_t k,
                           const uint8_t **ret, uint32_t **ret_wide)
{
    const struct block_slice *s = &b->slice[k];
    const uint8_t *two;

    *ret_wide = NULL;
    if (!planes_of(c, b, k, COL_KEY, s->keys, 2, ret, &two))
        return false;
    if (s->keys <= 256)
        return bytes_below(*ret, s->n, s->keys);
    *ret_wide = CODER_ARRAY(c, ARRAY_KEY, uint32_t, s->n);
    if (!*ret_wide)
        return false;
    rank_join(*ret, two, s->n, s->keys, *ret_wide);
    return below(*ret_wide, s->n, s->keys);
}

/* ---- a cut of the time ---------------------------------------------------------------------- */

struct times {
    struct rank_table t;
    const uint8_t *one, *two;
    struct cell_in escape;
    bool escapes, bytes; /* bytes: no difference needs plane two */
};

static bool open_times(struct block_coder *c, const struct block *b, uint32_t k, struct times *ret)
{
    const struct block_slice *s = &b->slice[k];
    uint32_t size = raw_size(s, COL_TIME_ESCAPE);
    const uint8_t *p = cell_of(c, b, k, COL_TIME_ESCAPE, size, 2);

    if (!p || !planes_of(c, b, k, COL_TIME, s->gap + 1, 0, &ret->one, &ret->two))
        return false;
    rank_table(&ret->t, s->gap + 1);
    ret->escape = cell_in(p, size);
    ret->escapes = s->gap == RANK_ESCAPE;
    ret->bytes = s->gap < 256;
    return true;
}

#define STRIDE 32

/* Whole strides of rows before bound. */
static uint32_t skip_strides(const uint8_t *one, uint32_t from, uint32_t n, uint64_t bound,
                             uint64_t *at)
{
    uint32_t i = from;

    for (; n - i >= STRIDE; i += STRIDE) {
        const uint8_t *p = one + i;
        uint32_t sum = 0;

        for (int k = 0; k < STRIDE; k++)
            sum += p[k];
        if (*at + sum >= bound)
            break;
        *at += sum;
    }
    return i;
}

/* First row from `from` on whose time is at or after bound; *at: time of the row before, *j: place
 * in plane two. A slice that lacks escapes ends there: whoever reads its rows will notice. */
static uint32_t times_until(struct times *t, uint32_t from, uint32_t n, uint64_t bound,
                            uint64_t *at, uint32_t *j)
{
    uint32_t i = t->bytes ? skip_strides(t->one, from, n, bound, at) : from;

    for (; i < n; i++) {
        uint32_t mask = t->t.mask[t->one[i]], d = t->t.base[t->one[i]] + (t->two[*j] & mask);

        if (t->escapes && d == RANK_ESCAPE) {
            struct cell_in after = t->escape;

            d = (uint32_t)cell_get_fixed(&after, 4);
            if (after.bad || *at + d >= bound)
                break;
            t->escape = after;
        } else if (*at + d >= bound) {
            break;
        }
        *at += d;
        *j += mask & 1;
    }
    return i;
}

int slice_range(struct block_coder *c, const struct block *b, uint32_t k, int64_t lo, int64_t hi,
                uint32_t *ret_from, uint32_t *ret_to, struct err *err)
{
    const struct block_slice *s = &b->slice[k];
    int64_t first = slice_first_ms(b, s), last = slice_last_ms(b, s);
    uint64_t at = 0;
    uint32_t j = 0, from;
    struct times t;

    c->cell.no_memory = false;
    *ret_from = 0;
    *ret_to = lo >= hi || last < lo || first >= hi ? 0 : s->n;
    if (*ret_to == 0 || (lo <= first && last < hi))
        return 0;
    if (!open_times(c, b, k, &t))
        return coder_damage(c, err, "time");
    /* bounds in quanta from the slice's first: the first quantum that starts at or after them */
    from = lo <= first
               ? 0
               : times_until(&t, 0, s->n, ((uint64_t)(lo - first) + b->quantum - 1) / b->quantum,
                             &at, &j);
    *ret_from = from;
    if (hi <= last)
        *ret_to = times_until(&t, from, s->n,
                              ((uint64_t)(hi - first) + b->quantum - 1) / b->quantum, &at, &j);
    return 0;
}

int slice_edges(struct block_coder *c, const struct block *b, uint32_t k, int64_t first_ns,
                int64_t step_ns, uint32_t n, uint32_t *edge, struct err *err)
{
    const struct block_slice *s = &b->slice[k];
    const int64_t unit = b->quantum * NS_PER_MS;
    int64_t after = first_ns - slice_first_ms(b, s) * NS_PER_MS;
    uint32_t row = 0, j = 0;
    uint64_t at = 0;
    struct times t;

    c->cell.no_memory = false;
    if (!open_times(c, b, k, &t))
        return coder_damage(c, err, "time");
    for (uint32_t i = 0; i < n; i++, after += step_ns) {
        uint64_t bound = after > 0 ? (uint64_t)((after + unit - 1) / unit) : 0;

        row = times_until(&t, row, s->n, bound, &at, &j);
        edge[i] = row;
    }
    return 0;
}

/* ---- counting ------------------------------------------------------------------------------ */

/* Whether each row's key is taken: takes[key[i]], two tables that the loop over rows can look up.
 */
struct choice {
    const uint8_t *key, *takes;
};

static bool read_choice(struct block_coder *c, const struct block *b, uint32_t k,
                        const uint8_t *takes, struct choice *ret)
{
    static const uint8_t same[256] = {0, 1};
    uint32_t n = b->slice[k].n, *wide;
    uint8_t *chosen;

    ret->takes = takes;
    if (!read_key_index(c, b, k, &ret->key, &wide))
        return false;
    if (!wide)
        return true;
    chosen = CODER_ARRAY(c, ARRAY_CHOICE, uint8_t, n);
    for (uint32_t i = 0; chosen && i < n; i++)
        chosen[i] = takes[wide[i]];
    *ret = (struct choice){chosen, same};
    return chosen != NULL;
}

static void count_bytes(const uint8_t *one, const struct choice *by, uint32_t from, uint32_t to,
                        uint32_t *count)
{
    if (by)
        for (uint32_t i = from; i < to; i++)
            count[one[i]] += by->takes[by->key[i]];
    else
        for (uint32_t i = from; i < to; i++)
            count[one[i]]++;
}

/* j: place of row `from` in plane two. No branch: which bytes are followed is noise. */
static void count_ranks(const uint8_t *one, const uint8_t *two, uint32_t d, uint32_t j,
                        const struct choice *by, uint32_t from, uint32_t to, uint32_t *count)
{
    struct rank_table t;

    rank_table(&t, d);
    if (by)
        for (uint32_t i = from; i < to; i++) {
            uint32_t mask = t.mask[one[i]];

            count[t.base[one[i]] + (two[j] & mask)] += by->takes[by->key[i]];
            j += mask & 1;
        }
    else
        for (uint32_t i = from; i < to; i++) {
            uint32_t mask = t.mask[one[i]];

            count[t.base[one[i]] + (two[j] & mask)]++;
            j += mask & 1;
        }
}

int slice_count(struct block_coder *c, const struct block *b, uint32_t k, uint32_t n, uint32_t from,
                uint32_t to, const uint8_t *takes, uint32_t *count, struct err *err)
{
    const uint8_t *one, *two;
    struct choice by;

    c->cell.no_memory = false;
    if (n > RANK_MAX || !planes_of(c, b, k, COL_STACK, n, 0, &one, &two))
        return coder_damage(c, err, "stack");
    if (takes && !read_choice(c, b, k, takes, &by))
        return coder_damage(c, err, "keys");
    if (n <= 256)
        count_bytes(one, takes ? &by : NULL, from, to, count);
    else
        count_ranks(one, two, n, rank_followed(one, from, n), takes ? &by : NULL, from, to, count);
    return 0;
}

int slice_count_keys(struct block_coder *c, const struct block *b, uint32_t k, uint32_t n_edge,
                     const uint32_t *edge, uint32_t *count, struct err *err)
{
    const uint8_t *key;
    uint32_t *wide;

    c->cell.no_memory = false;
    if (!read_key_index(c, b, k, &key, &wide))
        return coder_damage(c, err, "keys");
    for (uint32_t e = 0; e + 1 < n_edge; e++, count += b->slice[k].keys) {
        memset(count, 0, b->slice[k].keys * sizeof *count);
        if (wide)
            for (uint32_t i = edge[e]; i < edge[e + 1]; i++)
                count[wide[i]]++;
        else
            for (uint32_t i = edge[e]; i < edge[e + 1]; i++)
                count[key[i]]++;
    }
    return 0;
}

/* ---- rows ---------------------------------------------------------------------------------- */

static bool read_keys(struct block_coder *c, const struct block *b, uint32_t k,
                      struct slice_rows *ret)
{
    const struct block_slice *s = &b->slice[k];
    const uint8_t *one;
    uint32_t *key;

    if (!read_key_table(c, b, k, ret) || !read_key_index(c, b, k, &one, &key))
        return false;
    if (!key) {
        key = CODER_ARRAY(c, ARRAY_KEY, uint32_t, s->n);
        for (uint32_t i = 0; key && i < s->n; i++)
            key[i] = one[i];
    }
    ret->key = key;
    return key != NULL;
}

static bool read_times(struct block_coder *c, const struct block *b, uint32_t k,
                       struct slice_rows *ret)
{
    const struct block_slice *s = &b->slice[k];
    uint32_t *v = CODER_ARRAY(c, ARRAY_TIME, uint32_t, s->n);
    uint64_t last = s->first;
    struct times t;

    if (!v || !open_times(c, b, k, &t))
        return false;
    rank_join(t.one, t.two, s->n, s->gap + 1, v);
    if (t.escapes)
        for (uint32_t i = 0; i < s->n; i++)
            if (v[i] == RANK_ESCAPE)
                v[i] = (uint32_t)cell_get_fixed(&t.escape, 4);
    for (uint32_t i = 0; i < s->n; i++) {
        last += v[i];
        v[i] = (uint32_t)last;
    }
    ret->t = v;
    return last == (uint64_t)s->first + s->span && cell_at_end(&t.escape);
}

static bool read_ranks(struct block_coder *c, const struct block *b, uint32_t k, uint32_t n,
                       struct slice_rows *ret)
{
    const struct block_slice *s = &b->slice[k];
    uint32_t *v = CODER_ARRAY(c, ARRAY_RANK, uint32_t, s->n);
    const uint8_t *one, *two;

    if (!v || n > RANK_MAX || !planes_of(c, b, k, COL_STACK, n, 0, &one, &two))
        return false;
    rank_join(one, two, s->n, n, v);
    ret->rank = v;
    return below(v, s->n, n);
}

static bool read_counts(struct block_coder *c, const struct block *b, uint32_t k,
                        struct slice_rows *ret)
{
    const struct block_slice *s = &b->slice[k];
    uint32_t size = raw_size(s, COL_COUNT);
    const uint8_t *p = cell_of(c, b, k, COL_COUNT, size, 0);
    struct cell_in in = cell_in(p, p ? size : 0);
    uint64_t *v;

    if (size == 0)
        return true;
    v = CODER_ARRAY(c, ARRAY_COUNT, uint64_t, s->n);
    if (!v || !p)
        return false;
    for (uint32_t i = 0; i < s->n; i++)
        v[i] = cell_get_varint(&in);
    ret->count = v;
    return cell_at_end(&in);
}

/* A column of varints that fit 32 bits, NULL if it is absent. */
static bool read_varints(struct block_coder *c, const struct block *b, uint32_t k, uint32_t id,
                         enum coder_array which, const uint32_t **ret)
{
    const struct block_slice *s = &b->slice[k];
    uint32_t size = raw_size(s, id);
    const uint8_t *p = cell_of(c, b, k, id, size, 0);
    struct cell_in in = cell_in(p, p ? size : 0);
    uint32_t *v;

    if (size == 0)
        return true;
    v = CODER_ARRAY(c, which, uint32_t, s->n);
    if (!v || !p)
        return false;
    for (uint32_t i = 0; i < s->n; i++) {
        uint64_t x = cell_get_varint(&in);

        in.bad |= x > UINT32_MAX;
        v[i] = (uint32_t)x;
    }
    *ret = v;
    return cell_at_end(&in);
}

static bool read_variances(struct block_coder *c, const struct block *b, uint32_t k,
                           struct slice_rows *ret)
{
    uint32_t n = b->slice[k].n;
    const uint8_t *p = cell_of(c, b, k, COL_VAR, 4 * n, 0);
    float *v;

    if (!find(&b->slice[k], COL_VAR))
        return true;
    v = CODER_ARRAY(c, ARRAY_VAR, float, n);
    if (!v || !p)
        return false;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t bits = p[i] | (uint32_t)p[n + i] << 8 | (uint32_t)p[2 * (size_t)n + i] << 16 |
                        (uint32_t)p[3 * (size_t)n + i] << 24;

        bits ^= VAR_UNKNOWN;
        memcpy(&v[i], &bits, sizeof bits);
    }
    ret->var = v;
    return true;
}

/* Byte k of m numbers, `words` words apart. */
static bool join_planes(struct block_coder *c, const struct block *b, uint32_t k, uint32_t m,
                        uint32_t words, uint64_t *v)
{
    memset(v, 0, (size_t)m * words * sizeof *v);
    for (uint32_t byte = 0; byte < 8 * words; byte++) {
        const uint8_t *p;

        if (!find(&b->slice[k], COL_VALUE + byte))
            continue;
        p = cell_of(c, b, k, COL_VALUE + byte, m, 0);
        if (!p)
            return false;
        for (uint32_t i = 0; i < m; i++)
            v[(size_t)i * words + byte / 8] |= (uint64_t)p[i] << (byte % 8 * 8);
    }
    return true;
}

/* Values of all rows: those of single stacks come from the summary, unless all are stored. */
static bool read_values(struct block_coder *c, const struct block *b, const struct summary *sum,
                        uint32_t k, struct slice_rows *ret)
{
    uint32_t n = b->slice[k].n, words = b->mode == BLOCK_WIDE ? 2 : 1, m = n;
    uint32_t many = b->level ? UINT32_MAX : sum->many;
    uint64_t *v;

    if (b->mode < BLOCK_VALUES)
        return true;
    v = CODER_ARRAY(c, ARRAY_VALUE, uint64_t, (size_t)n * words);
    if (!v)
        return false;
    for (uint32_t i = 0; i < n; i++)
        m -= ret->rank[i] >= many;
    if (!join_planes(c, b, k, m, words, v)) /* dense first, spread below */
        return false;
    if (words == 2) {
        unit_i128 *wide = (unit_i128 *)v;

        unzigzag_wide(v, m);
        for (uint32_t i = n; i-- > 0;)
            wide[i] = ret->rank[i] < many ? wide[--m] : summary_sum(sum, ret->rank[i]);
        ret->wide = wide;
        return true;
    }
    for (uint32_t i = n; i-- > 0;)
        v[i] = ret->rank[i] < many ? (uint64_t)cell_unzigzag(v[--m])
                                   : (uint64_t)summary_sum(sum, ret->rank[i]);
    ret->value = (const int64_t *)v;
    return true;
}

int slice_read(struct block_coder *c, const struct block *b, const struct summary *s, uint32_t k,
               uint32_t want, struct slice_rows *ret, struct err *err)
{
    c->cell.no_memory = false;
    *ret = (struct slice_rows){.n = b->slice[k].n};
    if ((want & SLICE_KEY) && !read_keys(c, b, k, ret))
        return coder_damage(c, err, "keys");
    if ((want & SLICE_TIME) && !read_times(c, b, k, ret))
        return coder_damage(c, err, "time");
    if ((want & (SLICE_RANK | SLICE_VALUE)) && !read_ranks(c, b, k, s->n, ret))
        return coder_damage(c, err, "stack");
    if ((want & SLICE_COUNT) && !read_counts(c, b, k, ret))
        return coder_damage(c, err, "count");
    if ((want & SLICE_ATTR) && !read_varints(c, b, k, COL_ATTR, ARRAY_ATTR, &ret->attr))
        return coder_damage(c, err, "attributes");
    if ((want & SLICE_CPU) && !read_varints(c, b, k, COL_CPU, ARRAY_CPU, &ret->cpu))
        return coder_damage(c, err, "cpu");
    if ((want & SLICE_VAR) && !read_variances(c, b, k, ret))
        return coder_damage(c, err, "variance");
    if ((want & SLICE_HELD) && !read_varints(c, b, k, COL_HELD, ARRAY_HELD, &ret->held))
        return coder_damage(c, err, "held");
    if ((want & SLICE_VALUE) && !read_values(c, b, s, k, ret))
        return coder_damage(c, err, "value");
    return 0;
}
