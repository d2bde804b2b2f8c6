// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <stdio.h>

#include "server/api_private.h"

/* /export: a tree as a file. folded: "root;...;leaf value" a line. */

/* ---- loss as a frame ---------------------------------------------------------------------------
 */

static unit_i128 lost_weight(const struct query_sums *s)
{
    unit_i128 sum = 0;

    for (uint32_t i = 0; i < s->quality.n_loss; i++) {
        if (s->quality.loss[i].weight != QUERY_UNKNOWN)
            sum += s->quality.loss[i].weight;
    }
    return sum;
}

/* ---- folded ------------------------------------------------------------------------------------
 */

/* What would end a name, a line or a text stands as \xHH; all other bytes as they are. */
static void folded_name(struct buf *b, struct str s)
{
    size_t from = 0;

    for (size_t i = 0; i < s.n; i++) {
        char ch = s.p[i];

        if (ch != '\\' && ch != ';' && ch != '\n' && ch != '\r' && ch != '\0')
            continue;
        buf_str(b, str_to(str_from(s, from), i - from));
        buf_printf(b, "\\x%02x", (unsigned char)ch);
        from = i + 1;
    }
    buf_str(b, str_from(s, from));
}

static void put_value(struct buf *b, unit_i128 v)
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

static int write_folded(struct api_call *c, const struct query_flame *f, unit_i128 lost,
                        struct query_err *e)
{
    struct buf *b = &c->reply->body;
    uint32_t *path = arena_calloc(&c->arena, (size_t)f->n + 1, sizeof *path);

    if (!path)
        return query_fail(e, -ENOMEM, QUERY_TOO_EXPENSIVE, NULL, "out of memory");
    for (uint32_t i = 0; i < f->n && !b->failed; i++) {
        path[f->depth[i]] = i;
        if (f->self[i] <= 0)
            continue;
        /* weight of the root itself has no frame; it keeps the root's own name */
        for (uint32_t d = f->depth[i] ? 1 : 0; d <= f->depth[i]; d++) {
            if (d > 1)
                buf_chr(b, ';');
            folded_name(b, f->func[f->node_func[path[d]]].name);
        }
        buf_chr(b, ' ');
        put_value(b, f->self[i]);
        buf_chr(b, '\n');
    }
    if (lost > 0) {
        buf_cstr(b, "[lost] ");
        put_value(b, lost);
        buf_chr(b, '\n');
    }
    return 0;
}

/* ---- the route ---------------------------------------------------------------------------------
 */

enum format {
    FOLDED,
    SVG,
    JSON,
    TEXT,
    PPROF,
    SPEEDSCOPE,
};

/* strata-TYPE[-SERVICE]-FROM.EXT, ASCII. */
static void file_name(struct api_call *c, const char *ext)
{
    const struct query_head *h = query_head(c->query);
    struct str service = query_label(c->query, STR("service"));
    char from[40], *out = c->reply->filename;
    int n = snprintf(out, sizeof c->reply->filename, "strata-%.*s%s%.*s-%s.%s",
                     STR_ARG(str_to(h->type.name, 24)), service.n ? "-" : "",
                     STR_ARG(str_to(service, 24)), real_ns_format(h->range.t0, from), ext);

    for (int i = 0; i < n && out[i]; i++) {
        char ch = out[i];

        if (!((ch >= '0' && ch <= '9') || (ch >= 'a' && ch <= 'z') || (ch >= 'A' && ch <= 'Z') ||
              ch == '-' || ch == '.' || ch == '_'))
            out[i] = '_';
    }
}

int api_export(struct api_call *c, struct query_err *e)
{
    static const char *const formats[] = {"folded", "svg",        "json", "text",
                                          "pprof",  "speedscope", NULL};
    static const char *const lost_words[] = {"none", "frame", NULL};
    static const char *const colours[] = {"origin", "binary", NULL};
    static const char *const extension[] = {"folded", "svg",   "json",
                                            "txt",    "pb.gz", "speedscope.json"};
    struct query_flame_ask ask;
    struct query_flame f = {};
    uint32_t format = UINT32_MAX, lost = 0, colour = 0;
    unit_i128 frame;

    TRY(api_open(c, true, e));
    TRY(api_flame_ask(c, &ask, e));
    TRY(api_param_word(c, "format", formats, &format, e));
    TRY(api_param_word(c, "lost", lost_words, &lost, e));
    TRY(api_param_word(c, "color", colours, &colour, e));
    if (format == UINT32_MAX)
        return query_fail(e, -EINVAL, QUERY_BAD_PARAMETER, "format",
                          "format is folded, svg, json, text, pprof or speedscope");
    if (format == PPROF && ask.root)
        return query_fail(e, -ENOTSUP, QUERY_NOT_SUPPORTED, "root",
                          "root is a node of functions, and pprof holds lines and addresses: "
                          "f=start: does what it would");
    file_name(c, extension[format]);
    if (format == TEXT)
        return api_write_report(c, e);
    if (format != SVG) /* never cut */
        ask.width = ask.max_nodes = 0;
    else if (!api_param(c, "width").n && ask.width)
        ask.width = API_SVG_WIDTH;
    if (format == PPROF)
        ask.detail = QUERY_OF_FRAMES;
    TRY(query_flame(c->query, &ask, &f, e));
    frame = lost ? lost_weight(&f.sum) : 0;
    switch ((enum format)format) {
    case PPROF:
        c->reply->content_type = "application/octet-stream";
        c->reply->gzip_file = true;
        return api_write_pprof(c, &f, frame, e);
    case SPEEDSCOPE:
        return api_write_speedscope(c, &f, frame, e);
    case SVG:
        c->reply->content_type = "image/svg+xml";
        return api_write_svg(c, &f, frame, colour == 1, e);
    case FOLDED:
        c->reply->content_type = "text/plain; charset=utf-8";
        return write_folded(c, &f, frame, e);
    case JSON:
    case TEXT:
    default:
        return api_write_tree(c, &f, e);
    }
}
