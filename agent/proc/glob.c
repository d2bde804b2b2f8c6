// SPDX-License-Identifier: Apache-2.0
/*
 * A pattern is parts between runs that hold a star. The first part stands at the text's begin, the
 * last at its end, those between are searched for from left to right with one bit per byte of the
 * part (Shift-And, Baeza-Yates and Gonnet 1992). The leftmost place of each is enough: whatever can
 * follow a later place can follow an earlier one.
 */
#include "agent/proc/glob.h"

#include <errno.h>
#include <stdlib.h>

#include "base/arena.h"

#define WORDS_MAX (GLOB_MAX / 64)

struct part {
    uint32_t n, words;
    uint32_t gap;   /* least length of the run before it */
    uint64_t *mask; /* [256][words]: bit i: byte i of the part may be this byte */
};

struct capture {
    bool gap; /* the run before part, else so many bytes at an offset in it */
    uint32_t part, at, n;
};

struct glob {
    uint32_t n_part, n_capture;
    struct part *part;
    struct capture capture[GLOB_CAPTURES];
};

struct compiling {
    struct glob *g;
    uint16_t byte[GLOB_MAX]; /* of the part in work; 256: any */
    uint32_t n;
    uint32_t gap; /* before it */
};

static void end_part(struct compiling *c)
{
    struct glob *g = c->g;
    struct part *p;

    g->part = xrealloc(g->part, (g->n_part + 1) * sizeof *g->part);
    p = &g->part[g->n_part++];
    *p = (struct part){.n = c->n, .words = (c->n + 63) / 64, .gap = c->gap};
    if (p->n == 0)
        return;
    p->mask = xcalloc((size_t)256 * p->words, sizeof *p->mask);
    for (uint32_t i = 0; i < c->n; i++) {
        for (uint32_t b = 0; b < 256; b++) {
            if (c->byte[i] == 256 || c->byte[i] == b)
                p->mask[b * p->words + i / 64] |= UINT64_C(1) << (i % 64);
        }
    }
    c->n = 0;
}

/* A run of stars and question marks that begins at *i. */
static void take_run(struct compiling *c, struct str s, size_t *i)
{
    struct glob *g = c->g;
    uint32_t any = 0;
    bool star = false;

    for (; *i < s.n && (s.p[*i] == '*' || s.p[*i] == '?'); ++*i) {
        star |= s.p[*i] == '*';
        any += s.p[*i] == '?';
    }
    if (g->n_capture < GLOB_CAPTURES)
        g->capture[g->n_capture++] = star ? (struct capture){true, g->n_part + 1, 0, 0}
                                          : (struct capture){false, g->n_part, c->n, any};
    if (star) {
        end_part(c);
        c->gap = any;
        return;
    }
    for (uint32_t k = 0; k < any; k++)
        c->byte[c->n++] = 256;
}

int glob_new(struct str pattern, struct glob **ret, struct err *err)
{
    struct compiling c = {};

    if (pattern.n > GLOB_MAX)
        return err_set(err, -E2BIG, "a pattern of %zu bytes, at most %d", pattern.n, GLOB_MAX);
    c.g = xcalloc(1, sizeof *c.g);
    for (size_t i = 0; i < pattern.n;) {
        if (pattern.p[i] == '*' || pattern.p[i] == '?') {
            take_run(&c, pattern, &i);
            continue;
        }
        if (pattern.p[i] == '\\' && ++i == pattern.n) {
            glob_free(c.g);
            return err_set(err, -EINVAL, "a pattern must not end with \"\\\"");
        }
        c.byte[c.n++] = (unsigned char)pattern.p[i++];
    }
    end_part(&c);
    *ret = c.g;
    return 0;
}

struct glob *glob_free(struct glob *g)
{
    if (!g)
        return NULL;
    for (uint32_t i = 0; i < g->n_part; i++)
        free(g->part[i].mask);
    free(g->part);
    free(g);
    return NULL;
}

uint32_t glob_captures(const struct glob *g)
{
    return g->n_capture;
}

static bool stands_at(const struct part *p, struct str text, size_t at)
{
    for (uint32_t i = 0; i < p->n; i++) {
        const uint64_t *m = p->mask + (size_t)(unsigned char)text.p[at + i] * p->words;

        if (!(m[i / 64] >> (i % 64) & 1))
            return false;
    }
    return true;
}

/* The first place from `from` on; SIZE_MAX: none. */
static size_t search(const struct part *p, struct str text, size_t from)
{
    uint64_t d[WORDS_MAX] = {};
    uint32_t last = p->n - 1;

    for (size_t i = from; i < text.n; i++) {
        const uint64_t *m = p->mask + (size_t)(unsigned char)text.p[i] * p->words;
        uint64_t carry = 1;

        for (uint32_t w = 0; w < p->words; w++) {
            uint64_t next = d[w] >> 63;

            d[w] = (d[w] << 1 | carry) & m[w];
            carry = next;
        }
        if (d[last / 64] >> (last % 64) & 1)
            return i - last;
    }
    return SIZE_MAX;
}

/* Where each part stands; false: no match. */
static bool place(const struct glob *g, struct str text, size_t *at)
{
    const struct part *last = &g->part[g->n_part - 1];
    size_t end;

    if (text.n < g->part[0].n || !stands_at(&g->part[0], text, 0))
        return false;
    at[0] = 0;
    end = g->part[0].n;
    if (g->n_part == 1)
        return end == text.n;
    for (uint32_t i = 1; i + 1 < g->n_part; i++) {
        at[i] = search(&g->part[i], text, end + g->part[i].gap);
        if (at[i] == SIZE_MAX)
            return false;
        end = at[i] + g->part[i].n;
    }
    if (text.n < last->n + last->gap || text.n - last->n < end + last->gap)
        return false;
    at[g->n_part - 1] = text.n - last->n;
    return stands_at(last, text, text.n - last->n);
}

bool glob_match(const struct glob *g, struct str text, struct str *capture)
{
    size_t at[GLOB_MAX + 1];

    if (!place(g, text, at))
        return false;
    for (uint32_t i = 0; capture && i < g->n_capture; i++) {
        const struct capture *c = &g->capture[i];

        if (c->gap) {
            size_t from = at[c->part - 1] + g->part[c->part - 1].n;

            capture[i] = (struct str){text.p + from, at[c->part] - from};
        } else {
            capture[i] = (struct str){text.p + at[c->part] + c->at, c->n};
        }
    }
    return true;
}
