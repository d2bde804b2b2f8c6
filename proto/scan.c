// SPDX-License-Identifier: Apache-2.0
#include "proto/scan.h"

#include <assert.h>
#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/pb.h"
#include "proto/fault_private.h"

/* What protobuf-c 1.4 keeps per field while it reads a message (32 bytes, in slabs that double) and
 * per unknown field (a record and the bytes); each of its arrays is rounded up by the arena. */
#define COST_FIELD   64
#define COST_UNKNOWN 48
#define COST_ALLOC   16

struct level {
    struct pb pb;
    const struct wire_scan_msg *msg;
    const char *name; /* of the field it stands in */
    uint64_t index;   /* among all of that field in the body */
    uint64_t given;   /* fields that may be there once: a bit each */
};

struct scan {
    struct level level[WIRE_SCAN_NESTING];
    uint32_t depth;
    const struct wire_limits *limits;
    struct wire_fault *fault;
    struct err *err;
    uint64_t cost;
    uint64_t unknown;
    uint64_t count[WIRE_SCAN_SLOTS];
};

/* "stream[3].stack" */
static const char *place(const struct scan *s, const char *field, char ret[static 64])
{
    size_t n = 0;

    ret[0] = '\0';
    for (uint32_t i = 1; i < s->depth && n < 48; i++) {
        const struct level *l = &s->level[i];

        n += (size_t)snprintf(ret + n, 64 - n, "%.20s[%llu].", l->name,
                              (unsigned long long)l->index);
    }
    if (n < 48)
        (void)snprintf(ret + n, 64 - n, "%.15s", field);
    return ret;
}

static int bad(struct scan *s, const char *field)
{
    char at[64];

    return WIRE_BAD(s->fault, s->err, "bad_encoding", "%s", place(s, field, at));
}

/* The place is the message that it stands in; what is wrong, and at which byte, is in text. */
static int unreadable(struct scan *s, const char *text)
{
    char at[64];
    size_t n;

    n = strlen(place(s, "", at));
    if (n > 0 && at[n - 1] == '.')
        at[--n] = '\0';
    (void)!WIRE_BAD(s->fault, NULL, "bad_encoding", "%s", at);
    return err_set(s->err, -EINVAL, "batch%s%s: bad_encoding: %s", n ? ": " : "", at, text);
}

static int too_many(struct scan *s, const char *field, const char *reason, const char *setting,
                    uint64_t limit, uint64_t actual, bool too_large)
{
    const struct wire_fault_why why = {reason, setting, limit, actual, too_large};
    char at[64];

    return wire_fault_set(s->fault, s->err, -E2BIG, &why, "%s", place(s, field, at));
}

/* Varints of at most four bytes at the beginning of a packed run, which are most: how many, and how
 * many bytes they take. Eight bytes are looked at, of which five are taken: where no four in a row
 * go on from any of the five, no varint that begins in them is longer. */
static size_t short_varints(struct str run, uint64_t *ret)
{
    const uint64_t high = UINT64_C(0x8080808080808080), five = (UINT64_C(1) << 40) - 1;
    size_t at = 0, end = 0;
    uint64_t n = 0, w;

    for (; run.n - at >= sizeof w; at += 5) {
        memcpy(&w, run.p + at, sizeof w);
        w = le64toh(w) & high;
        if (w & w >> 8 & w >> 16 & w >> 24)
            break;
        w = ~w & high & five;
        n += (uint64_t)__builtin_popcountll(w);
        if (w)
            end = at + 8 - (size_t)__builtin_clzll(w) / 8;
    }
    *ret = n;
    return end;
}

/* Varints in a packed run: how many; false if one is too long or the last is not whole. */
static bool count_varints(struct str run, enum wire_scan_type type, uint64_t *ret)
{
    const unsigned long_n = type == WIRE_SCAN_U32 ? 5 : 10;
    const unsigned char last_max = type == WIRE_SCAN_U32 ? 0x0f : 1;
    unsigned len = 0;
    uint64_t n;

    for (size_t i = short_varints(run, &n); i < run.n; i++) {
        unsigned char c = (unsigned char)run.p[i];

        len++;
        if (len > long_n || (len == long_n && c > last_max))
            return false;
        if (c < 0x80) {
            n++;
            len = 0;
        }
    }
    *ret = n;
    return len == 0;
}

/* Elements of one field as it stands on the wire; false if it does not fit its type. */
static bool elements(const struct wire_scan_field *f, const struct pb_field *got, uint64_t *ret)
{
    bool packed = f->repeated && got->wire == PB_LEN;

    *ret = 1;
    switch (f->type) {
    case WIRE_SCAN_U32:
        if (got->wire == PB_VARINT)
            return got->v <= UINT32_MAX;
        return packed && count_varints(got->s, f->type, ret);
    case WIRE_SCAN_U64:
        return got->wire == PB_VARINT || (packed && count_varints(got->s, f->type, ret));
    case WIRE_SCAN_F64:
        if (got->wire == PB_I64)
            return true;
        *ret = got->s.n / 8;
        return packed && got->s.n % 8 == 0;
    case WIRE_SCAN_BYTES:
    case WIRE_SCAN_MSG:
        return got->wire == PB_LEN;
    }
    return false;
}

static const struct wire_scan_field *find(const struct wire_scan_msg *m, uint32_t number,
                                          uint32_t *ret_i)
{
    for (uint32_t i = 0; i < m->n && m->field[i].number <= number; i++) {
        if (m->field[i].number == number) {
            *ret_i = i;
            return &m->field[i];
        }
    }
    return NULL;
}

static int count_against(struct scan *s, const struct wire_scan_field *f, uint64_t n)
{
    const struct batch_limits *l = &s->limits->batch;

    switch (f->limit) {
    case WIRE_SCAN_SAMPLES:
        if (n > l->samples)
            return too_many(s, f->name, "too_many_samples", "ingest.samples", l->samples, n, true);
        break;
    case WIRE_SCAN_STREAMS:
        if (n > l->streams)
            return too_many(s, f->name, "too_many_profiles", "ingest.streams", l->streams, n, true);
        break;
    case WIRE_SCAN_ENTRIES:
        if (n > l->entries)
            return too_many(s, f->name, "too_many_entries", "ingest.entries", l->entries, n, true);
        break;
    case WIRE_SCAN_FREE:
        break;
    }
    return 0;
}

static int descend(struct scan *s, const struct wire_scan_field *f, struct str bytes,
                   uint64_t index)
{
    uint32_t most = s->limits->nesting;

    if (most > WIRE_SCAN_NESTING)
        most = WIRE_SCAN_NESTING;
    if (s->depth >= most)
        return too_many(s, f->name, "nesting_too_deep", "ingest.nesting", most,
                        (uint64_t)s->depth + 1, false);
    s->level[s->depth] = (struct level){.msg = f->child, .name = f->name, .index = index};
    pb_init(&s->level[s->depth].pb, bytes);
    s->depth++;
    return 0;
}

static int on_field(struct scan *s, struct level *l, const struct pb_field *got)
{
    const struct wire_scan_field *f;
    uint64_t n, *count;
    uint32_t i = 0;

    s->cost += COST_FIELD;
    f = find(l->msg, got->number, &i);
    if (!f) {
        s->cost += COST_UNKNOWN + got->s.n;
        if (++s->unknown > s->limits->unknown_fields)
            return too_many(s, "", "too_many_unknown_fields", "ingest.unknown_fields",
                            s->limits->unknown_fields, s->unknown, false);
        return 0;
    }
    if (!elements(f, got, &n))
        return bad(s, f->name);
    assert(l->msg->slot + i < WIRE_SCAN_SLOTS && i < 64);
    count = &s->count[l->msg->slot + i];
    *count += n;
    TRY(count_against(s, f, *count));
    s->cost += n * f->cost + COST_ALLOC;
    if (f->type == WIRE_SCAN_BYTES)
        s->cost += got->s.n + COST_ALLOC;
    if (f->type != WIRE_SCAN_MSG)
        return 0;
    /* two of a message that may be there once would be merged: nobody sends that */
    if (!f->repeated && l->given >> i & 1)
        return bad(s, f->name);
    l->given |= UINT64_C(1) << i;
    s->cost += f->child->cost;
    return descend(s, f, got->s, *count - 1);
}

int wire_scan(struct str body, const struct wire_scan_msg *root, const struct wire_limits *limits,
              size_t room, struct wire_fault *fault, struct err *err)
{
    struct scan s = {.depth = 1, .limits = limits, .fault = fault, .err = err, .cost = root->cost};

    s.level[0] = (struct level){.msg = root, .name = ""};
    pb_init(&s.level[0].pb, body);
    while (s.depth > 0) {
        struct level *l = &s.level[s.depth - 1];
        struct pb_field got;
        struct err why = {};
        int r = pb_next(&l->pb, &got, &why);

        if (r < 0)
            return unreadable(&s, why.msg);
        if (r == 1) {
            s.depth--;
            continue;
        }
        TRY(on_field(&s, l, &got));
        if (s.cost > room) {
            const struct wire_fault_why much = {"decode_budget", "ingest.arena", limits->arena,
                                                s.cost, true};

            return wire_fault_set(fault, err, -ENOMEM, &much, "%s", "");
        }
    }
    return 0;
}
