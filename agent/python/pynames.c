// SPDX-License-Identifier: Apache-2.0
#include "agent/python/pynames.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/python/pyline.h"
#include "base/buf.h"
#include "base/hash.h"
#include "base/map.h"

#define MAX_NAME  512   /* characters of a function's name */
#define MAX_FILE  4096  /* of a file's */
#define MAX_LINES 65536 /* bytes of a line table */
#define BAD_TEXT  32
#define BAD_KEY   (UINT64_C(1) << 63)

struct code {
    struct str name, file;
    const uint8_t *lines;
    uint32_t n_lines;
    int32_t first, traceable;
    uint64_t key;
};

struct pynames {
    struct arena arena;
    struct map by_code; /* mix of process, address, check -> struct code * */
    struct map by_line; /* mix of code's key and instruction -> line */
    struct buf text;
    uint8_t data[4 * MAX_FILE];
    char bad[SA_MAX_PY][BAD_TEXT];
    uint64_t next_key;
    struct pynames_stats stats;
};

struct pynames *pynames_new(size_t bytes)
{
    struct pynames *n = xcalloc(1, sizeof *n);

    arena_init(&n->arena, bytes ? bytes : PYNAMES_BYTES);
    map_init(&n->by_code, 0);
    map_init(&n->by_line, 1 << 20);
    buf_init(&n->text, 4 * MAX_FILE + 16);
    return n;
}

struct pynames *pynames_free(struct pynames *n)
{
    if (!n)
        return NULL;
    arena_deinit(&n->arena);
    map_deinit(&n->by_code);
    map_deinit(&n->by_line);
    buf_deinit(&n->text);
    free(n);
    return NULL;
}

static void forget(struct pynames *n)
{
    arena_reset(&n->arena);
    map_clear(&n->by_code);
    map_clear(&n->by_line);
    n->stats.codes = 0;
    n->stats.forgotten++;
}

/* ---- reading --------------------------------------------------------------------------------- */

static int rd(const struct unwind_memory *m, void *to, uint32_t n, uint64_t at)
{
    return m->read(m->ctx, to, n, at);
}

static void put_utf8(struct buf *b, uint32_t c)
{
    if (c > 0x10ffff || (c >= 0xd800 && c < 0xe000) || c == 0)
        c = 0xfffd;
    if (c < 0x80) {
        buf_chr(b, (char)c);
    } else if (c < 0x800) {
        buf_chr(b, (char)(0xc0 | c >> 6));
        buf_chr(b, (char)(0x80 | (c & 63)));
    } else if (c < 0x10000) {
        buf_chr(b, (char)(0xe0 | c >> 12));
        buf_chr(b, (char)(0x80 | (c >> 6 & 63)));
        buf_chr(b, (char)(0x80 | (c & 63)));
    } else {
        buf_chr(b, (char)(0xf0 | c >> 18));
        buf_chr(b, (char)(0x80 | (c >> 12 & 63)));
        buf_chr(b, (char)(0x80 | (c >> 6 & 63)));
        buf_chr(b, (char)(0x80 | (c & 63)));
    }
}

/* A str: length at 16, state at 32: bytes per character in bits 2-4, compact 5, ASCII 6. */
static bool read_str(struct pynames *n, const struct pylayout *l, const struct unwind_memory *mem,
                     uint64_t at, uint32_t max)
{
    uint64_t length;
    uint8_t state, *data = n->data;
    uint32_t kind, w;

    buf_reset(&n->text);
    if (rd(mem, &length, 8, at + 16) < 0 || rd(mem, &state, 1, at + 32) < 0)
        return false;
    kind = state >> 2 & 7;
    if (!(state & 32) || (kind != 1 && kind != 2 && kind != 4))
        return false;
    if (length > max)
        length = max;
    if (length &&
        rd(mem, data, (uint32_t)length * kind, at + (state & 64 ? l->str_ascii : l->str_other)) < 0)
        return false;
    for (uint64_t i = 0; i < length; i++) {
        w = data[i * kind];
        if (kind > 1)
            w |= (uint32_t)data[i * kind + 1] << 8;
        if (kind > 2)
            w |= (uint32_t)data[i * kind + 2] << 16 | (uint32_t)data[i * kind + 3] << 24;
        put_utf8(&n->text, w);
    }
    return true;
}

static uint64_t word_at(const uint8_t *c, unsigned at)
{
    uint64_t v;

    memcpy(&v, c + at - SA_PY_CODE_AT, 8);
    return v;
}

static uint32_t int_at(const uint8_t *c, unsigned at)
{
    uint32_t v;

    memcpy(&v, c + at - SA_PY_CODE_AT, 4);
    return v;
}

static uint32_t fold(uint64_t v)
{
    return (uint32_t)(v >> 4) ^ (uint32_t)(v >> 36);
}

/* As py_identity() of bpf/py.bpf.h. */
static uint32_t identity_of(const struct sa_py *p, const struct unwind_memory *mem,
                            const uint8_t *c)
{
    uint64_t hash = 0;

    if (p->c_version)
        return int_at(c, p->c_version);
    if (rd(mem, &hash, sizeof hash, word_at(c, p->c_plain) + p->s_hash) < 0)
        return 0;
    return (uint32_t)hash ^ (uint32_t)(hash >> 32);
}

/* As py_check() of bpf/py.bpf.h. */
static uint32_t check_of(const struct sa_py *p, uint32_t identity, const uint8_t *c)
{
    uint32_t sum = identity;

    sum = sum * 31 + int_at(c, p->c_flags);
    sum = sum * 31 + int_at(c, p->c_argc);
    sum = sum * 31 + int_at(c, p->c_first);
    sum = sum * 31 + fold(word_at(c, p->c_file));
    sum = sum * 31 + fold(word_at(c, p->c_name));
    return sum * 31 + fold(word_at(c, p->c_lines));
}

/* The program may have found the name's page away, and then has 0 for its hash. */
static bool is_checked(const struct sa_py *p, const struct unwind_memory *mem, uint32_t check,
                       const uint8_t *c)
{
    return check_of(p, identity_of(p, mem, c), c) == check ||
           (!p->c_version && check_of(p, 0, c) == check);
}

/* The parts of a code object that was found to be one. false: unreadable, or no room. */
static bool read_parts(struct pynames *n, const struct pylayout *l, const struct unwind_memory *mem,
                       const uint8_t *c, struct code *ret)
{
    uint64_t lines = word_at(c, l->py.c_lines), size = 0;
    uint8_t *table;

    if (!read_str(n, l, mem, word_at(c, l->py.c_name), MAX_NAME))
        return false;
    ret->name = arena_str(&n->arena, buf_view(&n->text));
    if (!read_str(n, l, mem, word_at(c, l->py.c_file), MAX_FILE))
        return false;
    ret->file = arena_str(&n->arena, buf_view(&n->text));
    ret->first = (int32_t)int_at(c, l->py.c_first);
    if (rd(mem, &size, 8, lines + 16) < 0) /* bytes: size at 16, data at 32 */
        return false;
    if (size > MAX_LINES)
        size = 0; /* the function is known, its lines are not */
    table = arena_alloc(&n->arena, size + 1);
    if (!table || (size && rd(mem, table, (uint32_t)size, lines + 32) < 0))
        return false;
    ret->lines = table;
    ret->n_lines = (uint32_t)size;
    return ret->name.p && ret->file.p;
}

enum got {
    GOT_IT,
    GOT_DIED,
    GOT_UNREADABLE,
    GOT_CHECK,
};

/* A freed object keeps its bytes, but where the number of references was lies a pointer, or none.
 * From 3.14 on flags are above it. */
static bool is_alive(uint64_t refs)
{
    return (uint32_t)refs != 0 && (refs >> 32 & 0xffff) == 0;
}

/* Is it still what was seen? Its texts are its own as long as it is there. */
static enum got check_code(const struct pylayout *l, const struct unwind_memory *mem, uint64_t at,
                           uint32_t check, uint8_t c[static SA_PY_CODE])
{
    uint64_t head[2]; /* references, type */

    if (rd(mem, head, sizeof head, at) < 0 || rd(mem, c, SA_PY_CODE, at + SA_PY_CODE_AT) < 0)
        return errno == ESRCH ? GOT_DIED : GOT_UNREADABLE;
    return is_alive(head[0]) && head[1] == l->code_type && is_checked(&l->py, mem, check, c)
               ? GOT_IT
               : GOT_CHECK;
}

static enum got read_code(struct pynames *n, const struct pylayout *l,
                          const struct unwind_memory *mem, uint64_t at, uint32_t check,
                          struct code *ret)
{
    uint8_t c[SA_PY_CODE], again[SA_PY_CODE];
    enum got r = check_code(l, mem, at, check, c);

    n->stats.reads++;
    if (r != GOT_IT)
        return r;
    ret->traceable = 0;
    if (l->traceable && rd(mem, &ret->traceable, 4, at + l->traceable) < 0)
        return GOT_UNREADABLE;
    if (!read_parts(n, l, mem, c, ret))
        return GOT_UNREADABLE;
    return check_code(l, mem, at, check, again); /* freed meanwhile: the texts may be another's */
}

static enum got code_of(struct pynames *n, uint64_t serial, const struct pylayout *l,
                        const struct unwind_memory *mem, uint64_t at, uint32_t check,
                        const struct code **ret)
{
    uint64_t key = hash_mix(hash_mix(serial) ^ at) ^ hash_mix((uint64_t)check << 32 | 1), v;
    struct code c = {}, *kept;
    enum got r;

    if (map_get(&n->by_code, key, &v)) {
        *ret = (const void *)(uintptr_t)v; // NOLINT(performance-no-int-to-ptr): a map value
        return GOT_IT;
    }
    r = read_code(n, l, mem, at, check, &c);
    if (r != GOT_IT)
        return r;
    c.key = ++n->next_key;
    kept = arena_new(&n->arena, struct code);
    if (!kept || map_put(&n->by_code, key, (uint64_t)(uintptr_t)kept) == MAP_FULL)
        return GOT_UNREADABLE;
    *kept = c;
    n->stats.codes++;
    *ret = kept;
    return GOT_IT;
}

static uint32_t line_of(struct pynames *n, uint16_t ver, const struct code *c, int32_t lasti)
{
    uint64_t key = c->key << 32 ^ (uint32_t)lasti, *at;
    enum map_result r = map_at(&n->by_line, hash_mix(key), &at);

    if (r == MAP_FOUND)
        return (uint32_t)*at;
    uint32_t line = pyline_of(ver, c->lines, c->n_lines, c->first, lasti);

    if (r == MAP_ADDED)
        *at = line;
    return line;
}

/* ---- frames ---------------------------------------------------------------------------------- */

static struct pynames_frame unnamed(struct pynames *n, uint32_t i, uint64_t at, enum got why)
{
    n->stats.died += why == GOT_DIED;
    n->stats.unreadable += why == GOT_UNREADABLE;
    n->stats.check += why == GOT_CHECK;
    (void)snprintf(n->bad[i], BAD_TEXT, "[python 0x%llx]", (unsigned long long)at);
    return (struct pynames_frame){.key = BAD_KEY | at, .name = str_c(n->bad[i])};
}

static struct pynames_frame frame(struct pynames *n, uint64_t serial, const struct pylayout *l,
                                  const struct unwind_memory *mem, const uint64_t *w, uint32_t i)
{
    uint64_t at = w[0] & ~SA_W_TAG;
    const struct code *c = NULL;
    enum got r = code_of(n, serial, l, mem, at, (uint32_t)(w[1] >> 32), &c);
    int32_t lasti = (int32_t)(uint32_t)w[1];

    n->stats.frames++;
    if (r != GOT_IT)
        return unnamed(n, i, at, r);
    /* a frame that is being made, or that the interpreter puts between a class and __init__ */
    if (l->traceable && lasti < c->traceable) {
        n->stats.internal++;
        return (struct pynames_frame){.internal = true};
    }
    return (struct pynames_frame){.key = c->key,
                                  .name = c->name,
                                  .file = c->file,
                                  .start_line = c->first > 0 ? (uint32_t)c->first : 0,
                                  .line = line_of(n, l->py.ver, c, lasti)};
}

uint32_t pynames_get(struct pynames *n, uint64_t serial, const struct pylayout *l,
                     const struct unwind_memory *mem, const struct sa_ev *ev,
                     struct pynames_frame ret[static SA_MAX_PY])
{
    uint32_t end = (uint32_t)ev->nk + ev->nu, k = 0;

    /* room for this record, so that none of its texts goes away while it is read */
    if (n->arena.used + n->arena.cap / 4 > n->arena.cap || n->by_line.n > (1 << 19))
        forget(n);
    for (uint32_t i = ev->nk; i < end && k < SA_MAX_PY; i += sa_words(ev->w[i])) {
        if ((ev->w[i] & SA_W_TAG) == SA_W_PY && i + 1 < end) {
            ret[k] = frame(n, serial, l, mem, &ev->w[i], k);
            k++;
        }
    }
    return k;
}

void pynames_get_stats(const struct pynames *n, struct pynames_stats *ret)
{
    *ret = n->stats;
    ret->bytes = n->arena.used;
}
