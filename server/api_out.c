// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#include "base/hash.h"
#include "server/api_private.h"

/* The parts that several answers have in common. */

#define EXACT_MAX (INT64_C(1) << 53) /* integers up to here are doubles as they are */
#define AT_ONCE   256u               /* numbers */

/* ---- strings -----------------------------------------------------------------------------------
 */

void api_strings_init(struct api_strings *s, struct arena *a)
{
    *s = (struct api_strings){.arena = a};
    map_init(&s->index, 0);
    (void)api_string(s, (struct str){NULL, 0});
}

void api_strings_deinit(struct api_strings *s)
{
    map_deinit(&s->index);
}

uint32_t api_string(struct api_strings *s, struct str text)
{
    uint64_t *slot, key = hash_str(text);

    for (;; key = hash_mix(key + 1)) {
        if (map_at(&s->index, key, &slot) == MAP_FULL)
            goto failed;
        if (*slot == 0)
            break;
        if (str_eq(s->v[*slot - 1], text))
            return (uint32_t)*slot - 1;
    }
    if (s->n == s->room) {
        uint32_t room = s->room ? s->room * 2 : 256;
        struct str *v = arena_calloc(s->arena, room, sizeof *v);

        if (!v)
            goto failed;
        if (s->n)
            memcpy(v, s->v, s->n * sizeof *v);
        s->v = v;
        s->room = room;
    }
    s->v[s->n] = text;
    *slot = ++s->n;
    return s->n - 1;
failed:
    s->failed = true;
    return 0;
}

/* RFC 4648, with padding. */
static void put_base64(struct json_out *j, struct str s)
{
    static const char digit[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    struct buf b;

    buf_init(&b, (s.n / 3 + 1) * 4);
    for (size_t i = 0; i < s.n; i += 3) {
        size_t n = s.n - i < 3 ? s.n - i : 3;
        uint32_t v = 0;

        for (size_t k = 0; k < 3; k++)
            v = v << 8 | (k < n ? (unsigned char)s.p[i + k] : 0);
        buf_chr(&b, digit[v >> 18]);
        buf_chr(&b, digit[v >> 12 & 63]);
        buf_chr(&b, n > 1 ? digit[v >> 6 & 63] : '=');
        buf_chr(&b, n > 2 ? digit[v & 63] : '=');
    }
    json_str(j, buf_view(&b));
    buf_deinit(&b);
}

static void put_strings(struct json_out *j, const struct api_strings *s)
{
    uint64_t was = j->repaired;
    char key[12];

    json_key(j, "strings");
    json_array_begin(j);
    for (uint32_t i = 0; i < s->n; i++)
        json_str(j, s->v[i]);
    json_array_end(j);
    json_key(j, "raw");
    json_object_begin(j);
    for (uint32_t i = 0; j->repaired > was && i < s->n; i++) {
        if (str_utf8_ok(s->v[i]))
            continue;
        (void)snprintf(key, sizeof key, "%u", i);
        json_key_str(j, str_c(key));
        put_base64(j, s->v[i]);
    }
    json_object_end(j);
}

void api_put_indices(struct json_out *j, const char *key, const uint32_t *v, uint32_t n)
{
    json_key(j, key);
    json_array_begin(j);
    json_u32s(j, v, n);
    json_array_end(j);
}

/* Where lines or addresses are told apart: which, null where unknown; and what was inlined. */
static void put_places(struct json_out *j, const struct query_func *fn, uint32_t n)
{
    bool lines = false, addresses = false, inlined = false;

    for (uint32_t i = 0; i < n; i++) {
        lines |= fn[i].line != 0;
        addresses |= fn[i].addr != 0;
        inlined |= fn[i].inlined;
    }
    for (int k = 0; k < 2; k++) {
        if (!(k ? addresses : lines))
            continue;
        json_key(j, k ? "addr" : "line");
        json_array_begin(j);
        for (uint32_t i = 0; i < n; i++) {
            if (k && fn[i].addr)
                json_hex64(j, fn[i].addr);
            else if (!k && fn[i].line)
                json_u64(j, fn[i].line);
            else
                json_null_value(j);
        }
        json_array_end(j);
    }
    if (!inlined)
        return;
    json_key(j, "inlined");
    json_array_begin(j);
    for (uint32_t i = 0; i < n; i++)
        json_bool(j, fn[i].inlined);
    json_array_end(j);
}

/* The very same bytes: of a dictionary each text is there once. */
static bool same_text(struct str a, struct str b)
{
    return a.p == b.p && a.n == b.n;
}

int api_put_funcs(struct api_call *c, const struct query_func *fn, uint32_t n, struct query_err *e)
{
    struct json_out *j = &c->json;
    struct api_strings s;
    uint32_t *name = arena_calloc(&c->arena, n, 3 * sizeof *name);
    uint32_t *file = name ? name + n : NULL, *bin = name ? file + n : NULL;

    api_strings_init(&s, &c->arena);
    s.failed |= !map_reserve(&s.index, n);
    for (uint32_t i = 0; name && i < n; i++) {
        name[i] = api_string(&s, fn[i].name);
        /* neighbours mostly share these */
        file[i] =
            i && same_text(fn[i].file, fn[i - 1].file) ? file[i - 1] : api_string(&s, fn[i].file);
        bin[i] = i && same_text(fn[i].bin, fn[i - 1].bin) ? bin[i - 1] : api_string(&s, fn[i].bin);
    }
    if (!name || s.failed) {
        api_strings_deinit(&s);
        return query_fail(e, -ENOMEM, QUERY_TOO_EXPENSIVE, NULL, "out of memory");
    }
    put_strings(j, &s);
    api_strings_deinit(&s);
    json_key(j, "func");
    json_object_begin(j);
    api_put_indices(j, "name", name, n);
    api_put_indices(j, "file", file, n);
    api_put_indices(j, "bin", bin, n);
    json_key(j, "kind");
    json_array_begin(j);
    for (uint32_t i = 0; i < n; i++)
        json_cstr(j, query_kind_word(fn[i].kind));
    json_array_end(j);
    json_key(j, "key");
    json_array_begin(j);
    for (uint32_t i = 0; i < n; i++)
        json_hex64(j, fn[i].key);
    json_array_end(j);
    put_places(j, fn, n);
    json_object_end(j);
    return 0;
}

/* ---- values ------------------------------------------------------------------------------------
 */

void api_put_weight(struct json_out *j, unit_i128 v)
{
    if (v == QUERY_UNKNOWN)
        json_null_value(j);
    else
        json_dec_i128(j, v);
}

void api_put_count(struct json_out *j, uint64_t v)
{
    if (v == BATCH_UNKNOWN)
        json_null_value(j);
    else
        json_dec_u64(j, v);
}

void api_put_instant(struct json_out *j, real_ns t)
{
    json_dec_i64(j, t.v);
}

void api_put_ns(struct json_out *j, const char *key, int64_t ns)
{
    json_key(j, key);
    json_dec_i64(j, ns);
}

void api_put_text(struct json_out *j, const char *key, struct str s)
{
    json_key(j, key);
    json_str(j, s);
}

void api_put_labels(struct json_out *j, const struct query_labels *l)
{
    json_key(j, "labels");
    json_object_begin(j);
    for (uint32_t i = 0; i < l->n; i++) {
        json_key_str(j, l->v[i].name);
        json_str(j, l->v[i].value);
    }
    json_object_end(j);
}

void api_put_owner(struct json_out *j, const struct query_owner *o)
{
    json_key(j, "target");
    if (o->known)
        json_hex64(j, o->id);
    else
        json_null_value(j);
}

void api_put_lost(struct json_out *j, const struct query_loss *l, uint32_t n)
{
    json_key(j, "lost");
    json_array_begin(j);
    for (uint32_t i = 0; i < n; i++) {
        json_object_begin(j);
        api_put_text(j, "why", l[i].why);
        json_key(j, "n");
        api_put_count(j, l[i].n);
        json_key(j, "weight");
        api_put_weight(j, l[i].weight);
        json_object_end(j);
    }
    json_array_end(j);
}

void api_put_number(struct api_call *c, unit_i128 v)
{
    if (v == QUERY_UNKNOWN)
        json_null_value(&c->json);
    else if (c->numbers_as_strings)
        json_dec_i128(&c->json, v);
    else if (v <= EXACT_MAX)
        json_i64(&c->json, (int64_t)v);
    else
        json_double(&c->json, (double)v);
}

void api_put_samples(struct api_call *c, uint64_t v)
{
    if (v == BATCH_UNKNOWN)
        json_null_value(&c->json);
    else
        api_put_number(c, (unit_i128)v);
}

void api_put_weights(struct api_call *c, const char *key, const unit_i128 *v, uint32_t n)
{
    json_key(&c->json, key);
    json_array_begin(&c->json);
    for (uint32_t i = 0, some; i < n; i += some) {
        uint64_t plain[AT_ONCE];
        bool all = !c->numbers_as_strings;

        some = n - i < AT_ONCE ? n - i : AT_ONCE;
        for (uint32_t k = 0; k < some; k++) {
            plain[k] = (uint64_t)v[i + k];
            all &= v[i + k] >= 0 && v[i + k] <= EXACT_MAX;
        }
        if (all)
            json_u64s(&c->json, plain, some);
        for (uint32_t k = 0; !all && k < some; k++)
            api_put_number(c, v[i + k]);
    }
    json_array_end(&c->json);
}

void api_put_counts(struct api_call *c, const char *key, const uint64_t *v, uint32_t n)
{
    uint64_t most = 0;

    for (uint32_t i = 0; i < n; i++)
        most = v[i] > most ? v[i] : most;
    json_key(&c->json, key);
    json_array_begin(&c->json);
    if (most <= EXACT_MAX && !c->numbers_as_strings)
        json_u64s(&c->json, v, n);
    else
        for (uint32_t i = 0; i < n; i++)
            api_put_samples(c, v[i]);
    json_array_end(&c->json);
}

void api_put_type(struct json_out *j, const struct query_type *t)
{
    const char *kind = t->kind == KIND_LEVEL ? "level" : "sum";
    struct buf id;

    buf_init(&id, 1 << 20);
    buf_str(&id, t->name);
    buf_chr(&id, ':');
    buf_str(&id, t->unit);
    buf_printf(&id, ":%s", kind);
    json_key(j, "id");
    json_str(j, buf_view(&id));
    json_key(j, "name");
    json_str(j, t->name);
    json_key(j, "unit");
    json_str(j, t->unit);
    json_key(j, "kind");
    json_cstr(j, kind);
    buf_deinit(&id);
}

static const char *agg_word(enum query_agg agg)
{
    static const char *const words[] = {
        [QUERY_SUM] = "sum", [QUERY_AVERAGE] = "average", [QUERY_NOW] = "now", [QUERY_AT] = "at"};

    return words[agg];
}

/* whole is the denominator of a value per step. */
static void put_step(struct json_out *j, const struct query_step_use *s)
{
    if (s->name.n == 0)
        return;
    json_key(j, "step");
    json_object_begin(j);
    api_put_text(j, "name", s->name);
    json_key(j, "first");
    if (s->numbered)
        json_dec_u64(j, s->first);
    else
        json_null_value(j);
    json_key(j, "last");
    if (s->numbered)
        json_dec_u64(j, s->last);
    else
        json_null_value(j);
    json_key(j, "n");
    json_u64(j, s->n);
    json_key(j, "whole");
    json_u64(j, s->whole);
    json_object_end(j);
}

void api_put_kind(struct api_call *c, const char *kind)
{
    const struct query_head *h = query_head(c->query);
    struct json_out *j = &c->json;

    json_key(j, "v");
    json_i64(j, 1);
    json_key(j, "kind");
    json_cstr(j, kind);
    if (h->type.id != PTYPE_NONE) {
        json_key(j, "type");
        json_object_begin(j);
        api_put_type(j, &h->type);
        json_object_end(j);
        json_key(j, "agg");
        json_cstr(j, agg_word(h->agg));
    }
}

void api_put_range(struct json_out *j, const struct query_head *h)
{
    json_key(j, "range");
    json_object_begin(j);
    api_put_ns(j, "from_ns", h->range.t0.v);
    api_put_ns(j, "to_ns", h->range.t1.v);
    api_put_ns(j, "effective_from_ns", h->effective.t0.v);
    api_put_ns(j, "effective_to_ns", h->effective.t1.v);
    json_object_end(j);
    put_step(j, &h->step);
}

void api_put_head(struct api_call *c, const char *kind)
{
    api_put_kind(c, kind);
    api_put_range(&c->json, query_head(c->query));
}

/* ---- evidence ----------------------------------------------------------------------------------
 */

static void put_gaps(struct json_out *j, const struct query_coverage *c)
{
    static const char *const why[] = {[QUERY_NOT_COVERED] = "not_covered",
                                      [QUERY_LOST] = "lost",
                                      [QUERY_ATTRIBUTE_NOT_KEPT] = "attribute_not_kept"};

    json_key(j, "gaps");
    json_array_begin(j);
    for (uint32_t i = 0; i < c->n_gap; i++) {
        json_array_begin(j);
        api_put_instant(j, c->gap[i].t.t0);
        api_put_instant(j, c->gap[i].t.t1);
        json_cstr(j, why[c->gap[i].why]);
        json_array_end(j);
    }
    json_array_end(j);
    json_key(j, "gaps_more");
    json_u64(j, c->gaps_more);
}

static void put_coverage(struct json_out *j, const struct query_coverage *c)
{
    json_key(j, "coverage");
    json_object_begin(j);
    api_put_ns(j, "asked_ns", c->asked_ns);
    api_put_ns(j, "covered_ns", c->covered_ns);
    json_key(j, "source_ns");
    json_dec_i128(j, c->source_ns);
    json_key(j, "source_asked_ns");
    json_dec_i128(j, c->source_asked_ns);
    json_key(j, "sources");
    json_u64(j, c->sources);
    json_key(j, "unknown_sources");
    if (c->unknown_sources == BATCH_UNKNOWN)
        json_null_value(j);
    else
        json_u64(j, c->unknown_sources);
    put_gaps(j, c);
    json_key(j, "tiers");
    json_array_begin(j);
    for (uint32_t i = 0; i < c->n_tier; i++) {
        json_object_begin(j);
        json_key(j, "tier");
        json_cstr(j, c->tier[i].tier);
        api_put_ns(j, "resolution_ns", c->tier[i].resolution_ns);
        api_put_ns(j, "from_ns", c->tier[i].t.t0.v);
        api_put_ns(j, "to_ns", c->tier[i].t.t1.v);
        json_object_end(j);
    }
    json_array_end(j);
    json_object_end(j);
}

static void put_losses(struct json_out *j, const struct query_quality *q)
{
    json_key(j, "expected");
    api_put_count(j, q->expected);
    json_key(j, "received");
    api_put_count(j, q->received);
    api_put_lost(j, q->loss, q->n_loss);
    json_key(j, "rejected"); /* the store does not say which refused rows would have been these */
    json_null_value(j);
    json_key(j, "no_stack");
    api_put_weight(j, q->no_stack);
    json_key(j, "truncated");
    api_put_weight(j, q->truncated);
    json_key(j, "unsymbolised");
    api_put_weight(j, q->unsymbolised);
}

static void put_quality(struct json_out *j, const struct query_quality *q)
{
    static const char *const basis[] = {[BASIS_UNKNOWN] = "unknown",
                                        [BASIS_EVERY] = "every",
                                        [BASIS_PERIODIC] = "periodic",
                                        [BASIS_SCALED] = "scaled",
                                        [BASIS_RAW] = "raw"};

    json_key(j, "quality");
    json_object_begin(j);
    put_losses(j, q);
    json_key(j, "basis");
    json_array_begin(j);
    for (uint32_t i = 0; i < sizeof basis / sizeof basis[0]; i++) {
        if (q->basis >> i & 1)
            json_cstr(j, basis[i]);
    }
    json_array_end(j);
    json_key(j, "periods");
    json_array_begin(j);
    for (uint32_t i = 0; i < q->n_period; i++)
        json_dec_i64(j, q->period[i]);
    json_array_end(j);
    json_key(j, "clock_skew_ns");
    if (q->skew_known)
        json_dec_i64(j, q->skew_ns);
    else
        json_null_value(j);
    json_key(j, "overflow_series");
    json_u64(j, q->overflow_series);
    json_key(j, "shards");
    json_object_begin(j);
    json_key(j, "asked");
    json_u64(j, q->parts_asked);
    json_key(j, "read");
    json_u64(j, q->parts_read);
    json_key(j, "unreadable");
    json_u64(j, q->parts_unreadable);
    json_object_end(j);
    json_key(j, "warnings");
    json_array_begin(j);
    for (uint32_t i = 0; i < q->n_warning; i++)
        json_str(j, q->warning[i]);
    json_array_end(j);
    json_object_end(j);
}

static void put_empty(struct json_out *j, const struct query_empty *e)
{
    json_key(j, "empty");
    if (e->why == QUERY_NOT_EMPTY) {
        json_null_value(j);
        return;
    }
    json_object_begin(j);
    json_key(j, "why");
    json_cstr(j, query_why_empty_word(e->why));
    json_key(j, "matcher");
    if (e->matcher.n)
        json_str(j, e->matcher);
    else
        json_null_value(j);
    json_key(j, "last_ns");
    if (e->last_known)
        api_put_instant(j, e->last);
    else
        json_null_value(j);
    json_object_end(j);
}

/* What each filter took: with total it adds up to unfiltered.total. */
static void put_filtered(struct json_out *j, const struct query_sums *s)
{
    if (s->n_filtered == 0)
        return;
    json_key(j, "filtered");
    json_array_begin(j);
    for (uint32_t i = 0; i < s->n_filtered; i++) {
        const struct query_filtered *f = &s->filtered[i];

        json_object_begin(j);
        json_key(j, "f");
        json_str(j, f->text);
        json_key(j, "functions");
        json_u64(j, f->functions);
        json_key(j, "dropped");
        api_put_weight(j, s->whole.total == QUERY_UNKNOWN ? QUERY_UNKNOWN : f->dropped);
        json_key(j, "samples");
        api_put_count(j, s->whole.total == QUERY_UNKNOWN ? BATCH_UNKNOWN : f->samples);
        json_object_end(j);
    }
    json_array_end(j);
}

void api_put_sums(struct api_call *c, const struct query_sums *s)
{
    struct json_out *j = &c->json;
    char text[64];

    json_key(j, "total");
    api_put_weight(j, s->total);
    json_key(j, "samples");
    api_put_count(j, s->samples);
    json_key(j, "se");
    if (s->se >= 0) {
        (void)snprintf(text, sizeof text, "%.0f", s->se);
        json_cstr(j, text);
    } else {
        json_null_value(j);
    }
    json_key(j, "unfiltered");
    json_object_begin(j);
    json_key(j, "total");
    api_put_weight(j, s->whole.total);
    json_key(j, "samples");
    api_put_count(j, s->whole.samples);
    json_object_end(j);
    put_filtered(j, s);
    put_coverage(j, &s->coverage);
    put_quality(j, &s->quality);
    put_empty(j, &s->empty);
}

/* ---- plain text --------------------------------------------------------------------------------
 */

void api_text_name(struct buf *b, struct str s)
{
    struct buf clean;

    buf_init(&clean, 4 * s.n + 16);
    (void)str_repair(&clean, s);
    for (size_t i = 0; i < clean.n; i++) {
        unsigned char ch = (unsigned char)clean.p[i];

        if (ch < 0x20 || ch == 0x7f)
            buf_printf(b, "\\x%02x", ch);
        else
            buf_chr(b, (char)ch);
    }
    buf_deinit(&clean);
}

/* A 128-bit number in decimal. */
static void put_i128(struct buf *b, unit_i128 v)
{
    char digit[48];
    size_t n = 0;

    do {
        digit[n++] = (char)('0' + (int)(v % 10));
        v /= 10;
    } while (v > 0);
    while (n)
        buf_chr(b, digit[--n]);
}

void api_text_weight(struct buf *b, unit_i128 v, const struct query_type *t)
{
    if (v == QUERY_UNKNOWN) {
        buf_cstr(b, "unknown");
        return;
    }
    if (str_eq(t->unit, STR("nanoseconds")) && v == 0) {
        buf_cstr(b, "0 s");
        return;
    }
    if (str_eq(t->unit, STR("nanoseconds")) && v >= 1000) {
        double s = (double)v / 1e9;

        if (v >= NS_PER_S)
            buf_printf(b, "%.3f s", s);
        else if (v >= NS_PER_MS)
            buf_printf(b, "%.3f ms", s * 1e3);
        else
            buf_printf(b, "%.3f us", s * 1e6);
        return;
    }
    put_i128(b, v);
    buf_chr(b, ' ');
    api_text_name(b, t->unit);
}

void api_text_share(struct buf *b, unit_i128 v, unit_i128 total)
{
    if (v != QUERY_UNKNOWN && total > 0)
        buf_printf(b, "%.1f %%", 100.0 * (double)v / (double)total);
}

static void text_losses(struct buf *b, const struct query_head *h, const struct query_sums *s)
{
    for (uint32_t i = 0; i < s->quality.n_loss; i++) {
        const struct query_loss *l = &s->quality.loss[i];

        buf_cstr(b, "lost: ");
        api_text_name(b, l->why);
        buf_cstr(b, ", ");
        api_text_weight(b, l->weight, &h->type);
        if (l->n != BATCH_UNKNOWN)
            buf_printf(b, ", n = %" PRIu64, l->n);
        buf_chr(b, '\n');
    }
    if (s->quality.n_loss == 0)
        buf_cstr(b, s->coverage.sources ? "lost: nothing\n" : "lost: unknown\n");
}

/* A part of what was recorded must not pass for the whole. */
static void text_filters(struct buf *b, const struct query_head *h, const struct query_sums *s)
{
    for (uint32_t i = 0; i < s->n_filtered; i++) {
        buf_cstr(b, "filter: ");
        api_text_name(b, s->filtered[i].text);
        buf_cstr(b, ", took ");
        api_text_weight(b, s->filtered[i].dropped, &h->type);
        buf_chr(b, '\n');
    }
    if (s->n_filtered == 0 || s->whole.total == QUERY_UNKNOWN)
        return;
    buf_cstr(b, "before filters: ");
    api_text_weight(b, s->whole.total, &h->type);
    buf_cstr(b, ", left: ");
    api_text_share(b, s->total, s->whole.total);
    buf_chr(b, '\n');
}

void api_text_head(struct buf *b, const struct query_head *h, const struct query_sums *s)
{
    char from[40], to[40];

    api_text_name(b, h->type.name);
    buf_chr(b, ' ');
    api_text_name(b, h->type.unit);
    buf_printf(b, ", %s%s\n", h->type.kind == KIND_LEVEL ? "level, " : "", agg_word(h->agg));
    buf_printf(b, "range: %s to %s\n", real_ns_format(h->range.t0, from),
               real_ns_format(h->range.t1, to));
    buf_printf(b, "covered: %.3f s of %.3f s", (double)s->coverage.covered_ns / 1e9,
               (double)s->coverage.asked_ns / 1e9);
    if (s->coverage.asked_ns > 0) {
        buf_cstr(b, " (");
        api_text_share(b, s->coverage.covered_ns, s->coverage.asked_ns);
        buf_chr(b, ')');
    }
    buf_printf(b, ", sources: %u\n", s->coverage.sources);
    text_losses(b, h, s);
    for (uint32_t i = 0; i < s->quality.n_warning; i++) {
        buf_cstr(b, "warning: ");
        api_text_name(b, s->quality.warning[i]);
        buf_chr(b, '\n');
    }
    buf_cstr(b, "total: ");
    api_text_weight(b, s->total, &h->type);
    if (s->samples != BATCH_UNKNOWN)
        buf_printf(b, ", n = %" PRIu64, s->samples);
    buf_chr(b, '\n');
    text_filters(b, h, s);
    if (s->empty.why != QUERY_NOT_EMPTY)
        buf_printf(b, "empty: %s\n", query_why_empty_word(s->empty.why));
}
