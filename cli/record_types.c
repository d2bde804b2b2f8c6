// SPDX-License-Identifier: Apache-2.0
/*
 * The profile types of one capture: what each adds up to, which of them a file holds. A file has
 * one; sums of two are never made.
 */
#include <errno.h>
#include <string.h>

#include "cli/answer.h"
#include "cli/record_private.h"
#include "cli/text.h"

enum {
    ANSWER_MAX = 64 << 20,
    QUERY_MAX = 16 << 10,
};

static const struct {
    const char *type, *what; /* an interval of a thread */
} words[] = {
    {"offcpu", "of threads off the CPU"},
    {"runq", "of threads waiting for a CPU"},
    {"gil_held", "of threads holding Python's lock"},
    {"gil_wait", "of threads waiting for Python's lock"},
};

static const json_t *types_of(const struct capture_sent *c)
{
    return json_object_get(c->about, "types");
}

bool record_has_type(const struct capture_sent *c, const char *type)
{
    const json_t *t;
    size_t i;

    json_array_foreach(types_of(c), i, t)
    {
        if (str_eq(answer_text(t), str_c(type)))
            return true;
    }
    return false;
}

int record_type_check(const struct record *r, const struct capture_sent *c, struct err *err)
{
    if (record_has_type(c, r->type))
        return 0;
    return err_set(err, -ENODATA,
                   "%s was not recorded, so %.80s is not written: without the rights of the agent "
                   "there is cpu alone",
                   r->type, r->file);
}

/* One line, if there is any of it. */
static int put_total(struct buf *b, const struct cli_server *s, const struct capture_sent *c,
                     struct str type, struct err *err)
{
    struct capture_view v;
    struct buf query, out;
    json_t *root = NULL;
    int r;

    capture_view(c, type, &v);
    buf_init(&query, QUERY_MAX);
    buf_init(&out, ANSWER_MAX);
    cli_param(&query, "q", str_c(v.q));
    cli_param(&query, "from", str_c(v.from));
    cli_param(&query, "to", str_c(v.to));
    cli_param(&query, "limit", STR("0"));
    r = cli_get(s, "/api/v1/top", &query, &out, err);
    if (r == 0)
        r = answer_read(&out, &root, err);
    if (r == 0 && answer_number(json_object_get(root, "total")) > 0) {
        buf_printf(b, "%-12.*s", STR_ARG(type));
        text_value(b, type, answer_text(json_object_get(json_object_get(root, "type"), "unit")),
                   answer_number(json_object_get(root, "total")));
        for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
            if (str_eq(type, str_c(words[i].type)))
                buf_printf(b, " %s", words[i].what);
        }
        buf_chr(b, '\n');
    }
    json_decref(root);
    buf_deinit(&query);
    buf_deinit(&out);
    return r;
}

/* How the types beside cpu are looked at, in what is left of this capture. */
static void put_how(struct buf *b, const struct record *r, const struct capture_sent *c)
{
    struct capture_view v;

    buf_cstr(b, "            each by itself: ");
    if (r->server.url) {
        capture_view(c, STR("TYPE"), &v);
        buf_printf(b, "strata top --server %s -q '%s' --from %s --to %s\n", r->server.url, v.q,
                   v.from, v.to);
    } else if (r->kept[0]) {
        buf_cstr(b, "strata view ");
        text_name(b, str_c(r->kept));
        buf_cstr(b, ", and its type\n");
    } else {
        buf_cstr(b, "-t TYPE -o FILE.svg, or all of them: -o FILE.strata\n");
    }
}

int record_put_types(struct buf *b, const struct cli_server *s, const struct record *r,
                     const struct capture_sent *c, struct err *err)
{
    double wall;
    const json_t *t;
    size_t before, i;

    wall = answer_number(json_object_get(c->end, "wall_ns"));
    if (wall > 0) {
        buf_cstr(b, "wall time   ");
        text_value(b, STR("wall"), STR("nanoseconds"), wall);
        buf_chr(b, '\n');
    }
    before = b->n;
    json_array_foreach(types_of(c), i, t)
    {
        if (!str_eq(answer_text(t), STR("cpu")))
            TRY(put_total(b, s, c, answer_text(t), err));
    }
    if (b->n > before)
        put_how(b, r, c);
    return 0;
}

void record_put_held(struct buf *b, const struct record *r, const struct capture_sent *c)
{
    const json_t *t;
    const char *between = "";
    size_t i;

    buf_printf(b, "holds       %s alone", r->type);
    json_array_foreach(types_of(c), i, t)
    {
        if (str_eq(answer_text(t), str_c(r->type)))
            continue;
        buf_cstr(b, *between ? between : "; recorded besides: ");
        text_name(b, answer_text(t));
        between = ", ";
    }
    buf_cstr(b, *between ? " (-o FILE.strata holds all)\n" : "\n");
}
