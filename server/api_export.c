// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <stdio.h>

#include "server/api_private.h"

/* /export: a tree as a file. folded: "root;...;leaf value" a line. svg: a picture without scripts.
 */

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

/* ---- svg ---------------------------------------------------------------------------------------
 */

#define SVG_WIDTH  1200
#define SVG_ROW    16
#define SVG_CHAR   6.6 /* width of a character, 11 px monospace */
#define SVG_LEGEND 14

/* Text for XML 1.0: repaired, controls as \xHH, markup as entities. */
static void svg_text(struct buf *b, struct str s)
{
    struct buf t;

    buf_init(&t, 8 * s.n + 16);
    api_text_name(&t, s);
    for (size_t i = 0; i < t.n; i++) {
        switch (t.p[i]) {
        case '<':
            buf_cstr(b, "&lt;");
            break;
        case '>':
            buf_cstr(b, "&gt;");
            break;
        case '&':
            buf_cstr(b, "&amp;");
            break;
        case '"':
            buf_cstr(b, "&quot;");
            break;
        case '\'':
            buf_cstr(b, "&#39;");
            break;
        case '\xef': /* U+FFFE and U+FFFF are UTF-8, but no XML */
            if (i + 2 < t.n && t.p[i + 1] == '\xbf' && (unsigned char)t.p[i + 2] >= 0xbe) {
                buf_cstr(b, "\\xef\\xbf");
                buf_printf(b, "\\x%02x", (unsigned char)t.p[i + 2]);
                i += 2;
                break;
            }
            buf_chr(b, t.p[i]);
            break;
        default:
            buf_chr(b, t.p[i]);
        }
    }
    buf_deinit(&t);
}

static const char *svg_fill(const struct query_func *f)
{
    switch (f->kind) {
    case FRAME_KERNEL:
        return "#e8a36f";
    case FRAME_NATIVE:
        return "#8fb8de";
    case FRAME_PYTHON:
        return "#93c98f";
    case FRAME_JIT:
        return "#c9b3e0";
    case FRAME_GPU:
        return "#7fc8c2";
    case FRAME_OTHER:
        return "#cfcfcf";
    default:
        return "#d9d9d9";
    }
}

struct svg {
    struct buf *b;
    const struct query_head *head;
    double per_px; /* weight of a pixel */
    uint32_t top;  /* where row 0 begins */
    unit_i128 all;
};

/* Characters of a name that fit, never half of a UTF-8 sequence. */
static struct str fit(struct str s, double width)
{
    size_t n = width < 4 * SVG_CHAR ? 0 : (size_t)((width - 4) / SVG_CHAR);

    if (n >= s.n)
        return s;
    while (n > 0 && ((unsigned char)s.p[n] & 0xc0) == 0x80)
        n--;
    return str_to(s, n);
}

static void svg_bar(const struct svg *g, struct str name, const char *fill, uint32_t depth,
                    unit_i128 at, unit_i128 value)
{
    double x = (double)at / g->per_px, w = (double)value / g->per_px;
    uint32_t y = g->top + depth * SVG_ROW;
    struct str label = fit(name, w);
    struct buf t;

    buf_cstr(g->b, "<g><title>");
    svg_text(g->b, name);
    buf_cstr(g->b, ": ");
    buf_init(&t, 4096);
    api_text_weight(&t, value, &g->head->type);
    buf_cstr(&t, ", ");
    api_text_share(&t, value, g->all);
    svg_text(g->b, buf_view(&t));
    buf_deinit(&t);
    buf_printf(g->b, "</title><rect x=\"%.2f\" y=\"%u\" width=\"%.2f\" height=\"%d\" fill=\"%s\"/>",
               x, y, w, SVG_ROW - 1, fill);
    if (label.n) {
        buf_printf(g->b, "<text x=\"%.2f\" y=\"%u\">", x + 2, y + 11);
        svg_text(g->b, label);
        buf_cstr(g->b, "</text>");
    }
    buf_cstr(g->b, "</g>\n");
}

static void svg_legend(const struct svg *g, struct str legend)
{
    uint32_t y = SVG_LEGEND;

    while (legend.n) {
        size_t end = str_find(legend, '\n');

        buf_printf(g->b, "<text x=\"2\" y=\"%u\">", y);
        svg_text(g->b, str_to(legend, end));
        buf_cstr(g->b, "</text>\n");
        y += SVG_LEGEND;
        legend = end == SIZE_MAX ? (struct str){NULL, 0} : str_from(legend, end + 1);
    }
}

static uint32_t lines(struct str s)
{
    uint32_t n = 0;

    for (size_t i = 0; i < s.n; i++)
        n += s.p[i] == '\n';
    return n;
}

static void svg_bars(struct svg *g, const struct query_flame *f, unit_i128 lost, unit_i128 *next)
{
    for (uint32_t i = 0; i < f->n; i++) {
        uint32_t d = f->depth[i];
        bool hidden = f->node_func[i] < 0;
        const struct query_func *fn = hidden ? NULL : &f->func[f->node_func[i]];
        unit_i128 total = f->total[i] + (i == 0 ? lost : 0);

        svg_bar(g, fn ? fn->name : STR("(hidden)"), fn ? svg_fill(fn) : "#efefef", d, next[d],
                total);
        next[d + 1] = next[d];
        next[d] += total;
        if (i == 0)
            next[0] = 0;
    }
    if (lost > 0)
        svg_bar(g, STR("[lost]"), "#d46a6a", 1, f->n ? f->total[0] : 0, lost);
}

static int write_svg(struct api_call *c, const struct query_flame *f, unit_i128 lost,
                     struct query_err *e)
{
    struct svg g = {.b = &c->reply->body, .head = query_head(c->query)};
    uint32_t depth = lost > 0 ? 1 : 0;
    struct buf legend;
    unit_i128 *next;

    for (uint32_t i = 0; i < f->n; i++)
        depth = f->depth[i] > depth ? f->depth[i] : depth;
    next = arena_calloc(&c->arena, (size_t)depth + 2, sizeof *next);
    if (!next)
        return query_fail(e, -ENOMEM, QUERY_TOO_EXPENSIVE, NULL, "out of memory");
    buf_init(&legend, 1 << 20);
    api_text_head(&legend, g.head, &f->sum);
    g.all = (f->n ? f->total[0] : 0) + lost;
    g.per_px = g.all > 0 ? (double)g.all / SVG_WIDTH : 1;
    g.top = lines(buf_view(&legend)) * SVG_LEGEND + SVG_LEGEND;
    buf_printf(g.b,
               "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
               "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%u\" "
               "viewBox=\"0 0 %d %u\" font-family=\"monospace\" font-size=\"11\">\n"
               "<rect width=\"100%%\" height=\"100%%\" fill=\"#ffffff\"/>\n",
               SVG_WIDTH, g.top + (depth + 1) * SVG_ROW, SVG_WIDTH, g.top + (depth + 1) * SVG_ROW);
    svg_legend(&g, buf_view(&legend));
    svg_bars(&g, f, lost, next);
    buf_cstr(g.b, "</svg>\n");
    buf_deinit(&legend);
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
    static const char *const extension[] = {"folded", "svg",   "json",
                                            "txt",    "pb.gz", "speedscope.json"};
    struct query_flame_ask ask;
    struct query_flame f = {};
    uint32_t format = UINT32_MAX, lost = 0;
    unit_i128 frame;

    TRY(api_open(c, true, e));
    TRY(api_flame_ask(c, &ask, e));
    TRY(api_param_word(c, "format", formats, &format, e));
    TRY(api_param_word(c, "lost", lost_words, &lost, e));
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
        ask.width = SVG_WIDTH;
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
        return write_svg(c, &f, frame, e);
    case FOLDED:
        c->reply->content_type = "text/plain; charset=utf-8";
        return write_folded(c, &f, frame, e);
    case JSON:
    case TEXT:
    default:
        return api_write_tree(c, &f, e);
    }
}
