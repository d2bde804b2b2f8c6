// SPDX-License-Identifier: Apache-2.0
#include "cli/answer.h"

#include <errno.h>
#include <stdio.h>

#include "cli/text.h"

struct str answer_text(const json_t *v)
{
    return (struct str){json_string_value(v), json_string_length(v)};
}

double answer_number(const json_t *v)
{
    struct str s = answer_text(v);
    double d = 0;

    if (json_is_number(v))
        return json_number_value(v);
    if (!s.n)
        return -1;
    for (size_t i = 0; i < s.n; i++) {
        if (s.p[i] < '0' || s.p[i] > '9')
            return -1;
        d = d * 10 + (s.p[i] - '0');
    }
    return d;
}

bool answer_ns(const json_t *o, const char *key, real_ns *ret)
{
    return str_i64(answer_text(json_object_get(o, key)), &ret->v);
}

void answer_put_share(struct buf *b, double part, double whole)
{
    if (part < 0 || whole < 0)
        buf_cstr(b, "unknown");
    else
        text_percent(b, part, whole);
}

/* Only what lies inside steps was added up; loss is that of the range, no part of the same whole.
 */
static bool within_steps(const json_t *root)
{
    return json_is_object(json_object_get(root, "step")) ||
           json_is_integer(json_object_get(json_object_get(root, "denominators"), "step"));
}

void answer_put_lost(struct buf *b, const json_t *type, const json_t *root)
{
    const json_t *lost = json_object_get(json_object_get(root, "quality"), "lost"), *l;
    const json_t *whole = json_object_get(root, "unfiltered");
    double sum = 0, total = answer_number(json_object_get(whole ? whole : root, "total"));
    bool unknown = total < 0;
    size_t i;

    json_array_foreach(lost, i, l)
    {
        double w = answer_number(json_object_get(l, "weight"));

        if (w < 0)
            unknown = true;
        else
            sum += w;
    }
    if (within_steps(root) && sum > 0) {
        if (unknown && total >= 0)
            buf_cstr(b, "at least ");
        text_value(b, answer_text(json_object_get(type, "name")),
                   answer_text(json_object_get(type, "unit")), sum);
        buf_cstr(b, " of the range");
    } else if (unknown && json_array_size(lost))
        buf_cstr(b, "unknown");
    else
        answer_put_share(b, sum, sum + (total < 0 ? 0 : total));
}

void answer_put_head(struct buf *b, const json_t *root)
{
    const json_t *type = json_object_get(root, "type");

    text_name(b, answer_text(json_object_get(type, "name")));
    buf_chr(b, ' ');
    text_name(b, answer_text(json_object_get(type, "unit")));
    buf_cstr(b, ", ");
    text_name(b, answer_text(json_object_get(type, "kind")));
    answer_put_side(b, type, root);
}

void answer_put_side(struct buf *b, const json_t *type, const json_t *side)
{
    const json_t *range = json_object_get(side, "range");
    const json_t *cov = json_object_get(side, "coverage");
    double total = answer_number(json_object_get(side, "total"));
    double whole = answer_number(json_object_get(json_object_get(side, "unfiltered"), "total"));
    double n = answer_number(json_object_get(side, "samples"));
    double sources = answer_number(json_object_get(cov, "sources"));
    struct interval t = {};

    if (answer_ns(range, "from_ns", &t.t0) && answer_ns(range, "to_ns", &t.t1)) {
        buf_cstr(b, " · ");
        text_range(b, t);
    }
    if (sources >= 0) {
        buf_cstr(b, " · ");
        text_count(b, (uint64_t)sources);
        buf_cstr(b, sources == 1 ? " source" : " sources");
    }
    buf_cstr(b, " · covered ");
    answer_put_share(b, answer_number(json_object_get(cov, "covered_ns")),
                     answer_number(json_object_get(cov, "asked_ns")));
    buf_cstr(b, " · lost ");
    answer_put_lost(b, type, side);
    buf_cstr(b, " · ");
    if (total < 0)
        buf_cstr(b, "no data");
    else
        text_value(b, answer_text(json_object_get(type, "name")),
                   answer_text(json_object_get(type, "unit")), total);
    if (n >= 0) {
        buf_cstr(b, ", n = ");
        text_count(b, (uint64_t)n);
    }
    if (total >= 0 && whole > total) {
        buf_cstr(b, " · filters left ");
        answer_put_share(b, total, whole);
    }
    buf_chr(b, '\n');
}

void answer_put_right(struct buf *b, const struct buf *cell, size_t width)
{
    for (size_t w = text_width(buf_view(cell)); w < width; w++)
        buf_chr(b, ' ');
    buf_str(b, buf_view(cell));
    buf_cstr(b, "  ");
}

void answer_put_func(struct buf *b, const json_t *root, const json_t *index)
{
    const json_t *strings = json_object_get(root, "strings"), *func = json_object_get(root, "func");
    size_t f = (size_t)json_integer_value(index);
    const json_t *name = json_array_get(json_object_get(func, "name"), f);
    const json_t *bin = json_array_get(json_object_get(func, "bin"), f);
    const json_t *file = json_array_get(json_object_get(func, "file"), f);
    const json_t *line = json_array_get(json_object_get(func, "line"), f);
    const json_t *addr = json_array_get(json_object_get(func, "addr"), f);
    struct str where = answer_text(json_array_get(strings, (size_t)json_integer_value(bin)));

    if (!where.n)
        where = answer_text(json_array_get(strings, (size_t)json_integer_value(file)));
    text_name(b, answer_text(json_array_get(strings, (size_t)json_integer_value(name))));
    if (json_is_integer(line))
        buf_printf(b, ":%lld", (long long)json_integer_value(line));
    if (answer_text(addr).n) {
        buf_cstr(b, " 0x");
        text_name(b, answer_text(addr));
    }
    if (where.n) {
        bool bare = where.p[0] != '['; /* [kernel] and its like bring their own */

        buf_cstr(b, bare ? "  [" : "  ");
        text_name(b, where);
        buf_cstr(b, bare ? "]" : "");
    }
}

/* Why there is nothing, in words; the code of a later server stands for itself. */
static struct str empty_words(struct str why)
{
    static const struct {
        const char *why, *words;
    } t[] = {
        {"never_ingested", "this server has never been sent anything"},
        {"no_agent_in_range", "nobody watched in this range"},
        {"no_match", "nothing matches the selector"},
        {"type_absent", "there is nothing of this profile type"},
        {"expired", "what was there has expired"},
        {"future", "the range has not begun"},
        {"zero", "it was watched, and nothing happened"},
        {"no_steps", "no such step is known in this range"},
        {"filtered_out", "the filters leave nothing"},
    };

    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        if (str_eq(why, str_c(t[i].why)))
            return str_c(t[i].words);
    }
    return why;
}

void answer_put_empty(struct buf *b, const json_t *root)
{
    const json_t *empty = json_object_get(root, "empty");
    struct str why = answer_text(json_object_get(empty, "why"));

    if (!why.n)
        return;
    buf_cstr(b, "nothing to show: ");
    text_name(b, empty_words(why));
    if (json_is_string(json_object_get(empty, "matcher"))) {
        buf_cstr(b, ", by ");
        text_name(b, answer_text(json_object_get(empty, "matcher")));
    }
    buf_chr(b, '\n');
}

int answer_read(const struct buf *text, json_t **ret, struct err *err)
{
    json_error_t je;
    json_t *root = json_loadb(text->p, text->n, 0, &je);

    if (!json_is_object(root)) {
        json_decref(root);
        return err_set(err, -EREMOTEIO, "the server's answer is not JSON: %s", je.text);
    }
    *ret = root;
    return 0;
}

int answer_print(const struct buf *text, struct err *err)
{
    if (text->failed || fwrite(text->p, 1, text->n, stdout) != text->n || fflush(stdout) != 0)
        return err_set(err, -EIO, "standard output cannot be written");
    return 0;
}
