// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "server/api_private.h"

/*
 * A tree as a picture without scripts. Its colours are those of the page in its light theme, by the
 * algorithm of docs/api.md ("Colours"), which web/js/origin.js and paint.js follow too; a test
 * compares what both draw. A pattern of the page is its ground here.
 */

/* ---- colours ------------------------------------------------------------------------------- */

enum {
    PYTHON,
    NATIVE,
    FRAMEWORK,
    CUDA,
    COMM,
    KERNEL,
    GPU,
    OTHER,
    N_ORIGIN,
    N_BINARY = 14, /* fills of binaries: origins without the last, two shades each */
};

#define HIDDEN 0xe2e2e2U
#define LEVEL  0xdde1e6U
#define LOST   0xd46a6aU

static const uint32_t origin[N_ORIGIN] = {0x86d6ff, 0xdba052, 0xe8d981, 0x159175,
                                          0x9578c7, 0xa8acaf, 0xd35624, 0x504b71};

struct colour {
    uint32_t rgb;
    bool white_text;
};

/* t parts of 100 of b over a */
static uint32_t mix(uint32_t a, uint32_t b, int t)
{
    uint32_t sum = 0;

    for (int shift = 0; shift < 24; shift += 8) {
        int x = (int)(a >> shift & 0xff), y = (int)(b >> shift & 0xff);

        sum |= (uint32_t)((100 * x + (y - x) * t + 50) / 100) << shift;
    }
    return sum;
}

/* Of an origin the first shade or the second. */
static struct colour shade(uint32_t fill)
{
    uint32_t base = origin[fill / 2], over = fill / 2 == OTHER ? 0x111111 : 0xffffff;

    return (struct colour){fill % 2 ? mix(base, over, 16) : base, fill / 2 == OTHER};
}

/* FNV-1a, 32 bits. */
static uint32_t fnv(struct str s)
{
    uint32_t h = 0x811c9dc5;

    for (size_t i = 0; i < s.n; i++)
        h = (h ^ (unsigned char)s.p[i]) * 0x01000193;
    return h;
}

static uint32_t origin_of(const struct query_func *f)
{
    static const struct {
        struct str begins;
        uint32_t origin;
    } t[] = {{STR("libtorch"), FRAMEWORK}, {STR("libc10"), FRAMEWORK}, {STR("libaten"), FRAMEWORK},
             {STR("libnccl"), COMM},       {STR("libmpi"), COMM},      {STR("libcuda"), CUDA},
             {STR("libcublas"), CUDA},     {STR("libcudnn"), CUDA},    {STR("libnv"), CUDA}};

    switch (f->kind) {
    case FRAME_PYTHON:
        return PYTHON;
    case FRAME_KERNEL:
        return KERNEL;
    case FRAME_GPU:
        return GPU;
    case FRAME_NATIVE:
        for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
            if (str_starts(f->bin, t[i].begins))
                return t[i].origin;
        }
        return NATIVE;
    case FRAME_JIT:
    case FRAME_OTHER:
    default:
        return OTHER;
    }
}

/* A name that ends in +0x and hex digits. */
static bool is_address(struct str name)
{
    size_t i = name.n;

    while (i && ((name.p[i - 1] >= '0' && name.p[i - 1] <= '9') ||
                 (name.p[i - 1] >= 'a' && name.p[i - 1] <= 'f')))
        i--;
    return i < name.n && i >= 3 && memcmp(name.p + i - 3, "+0x", 3) == 0;
}

/* No stack or no symbol: a pattern on the page. */
static bool is_pattern(struct str name, uint32_t *ret_rgb)
{
    if (str_starts(name, STR("[no stack")) || str_starts(name, STR("[truncated")))
        *ret_rgb = HIDDEN;
    else if (is_address(name))
        *ret_rgb = mix(origin[NATIVE], 0xffffff, 35);
    else
        return false;
    return true;
}

/* A level of `by`, which is no code. */
static bool is_level(const struct query_func *f)
{
    return f->kind == FRAME_OTHER &&
           (str_find(f->name, '=') != SIZE_MAX || str_eq(f->name, STR("[other groups]")));
}

/* ---- colours of binaries ------------------------------------------------------------------- */

struct binary {
    struct str name; /* of code without one its kind, in parentheses */
    unit_i128 self;
    uint32_t fill;
};

static int cmp_str(struct str a, struct str b)
{
    size_t n = a.n < b.n ? a.n : b.n;
    int r = n ? memcmp(a.p, b.p, n) : 0;

    return r ? r : (a.n > b.n) - (a.n < b.n);
}

static int by_name(const void *a, const void *b)
{
    return cmp_str(((const struct binary *)a)->name, ((const struct binary *)b)->name);
}

static int by_self(const void *a, const void *b)
{
    const struct binary *x = a, *y = b;

    if (x->self != y->self)
        return x->self < y->self ? 1 : -1;
    return cmp_str(x->name, y->name);
}

static struct str binary_name(const struct query_func *f)
{
    static const struct str kinds[] = {[FRAME_NATIVE] = STR("(native)"),
                                       [FRAME_KERNEL] = STR("(kernel)"),
                                       [FRAME_PYTHON] = STR("(python)"),
                                       [FRAME_JIT] = STR("(jit)"),
                                       [FRAME_GPU] = STR("(gpu)")};

    if (f->bin.n)
        return f->bin;
    if ((size_t)f->kind < sizeof kinds / sizeof *kinds && kinds[f->kind].n)
        return kinds[f->kind];
    return STR("(other)");
}

/* The binaries of all functions but the root, by name, each with its fill. */
static int binaries(struct api_call *c, const struct query_flame *f, struct binary **ret,
                    uint32_t *ret_n, struct query_err *e)
{
    struct binary *b = arena_calloc(&c->arena, (size_t)f->n_func + 1, sizeof *b);
    uint32_t n = 0, all = 0, rgb;
    unit_i128 *self = arena_calloc(&c->arena, (size_t)f->n_func + 1, sizeof *self);

    if (!b || !self)
        return query_fail(e, -ENOMEM, QUERY_TOO_EXPENSIVE, NULL, "out of memory");
    for (uint32_t i = 0; i < f->n; i++) {
        if (f->node_func[i] >= 0)
            self[f->node_func[i]] += f->self[i];
    }
    for (uint32_t i = 1; i < f->n_func; i++) {
        if (f->func[i].bin.n || !is_pattern(f->func[i].name, &rgb))
            b[all++] = (struct binary){binary_name(&f->func[i]), self[i], 0};
    }
    if (all > 1)
        qsort(b, all, sizeof *b, by_name);
    for (uint32_t i = 0; i < all; i++) {
        if (n && str_eq(b[n - 1].name, b[i].name))
            b[n - 1].self += b[i].self;
        else
            b[n++] = b[i];
    }
    if (n > 1)
        qsort(b, n, sizeof *b, by_self);
    /* hues first, their second shades when those are used up */
    for (uint32_t i = 0; i < n; i++)
        b[i].fill =
            i < N_BINARY ? i * 2 % N_BINARY + (i * 2 >= N_BINARY) : fnv(b[i].name) % N_BINARY;
    if (n > 1)
        qsort(b, n, sizeof *b, by_name);
    *ret = b;
    *ret_n = n;
    return 0;
}

/* A colour for each function. fill: f->n_func zeroes */
static int colours(struct api_call *c, const struct query_flame *f, bool by_binary,
                   struct colour *fill, struct query_err *e)
{
    struct binary *b = NULL;
    uint32_t n = 0;

    if (by_binary)
        TRY(binaries(c, f, &b, &n, e));
    for (uint32_t i = 0; i < f->n_func; i++) {
        const struct query_func *fn = &f->func[i];
        struct binary key = {.name = binary_name(fn)}, *mine;

        if (is_pattern(fn->name, &fill[i].rgb))
            continue;
        if (i == 0 || is_level(fn)) {
            fill[i].rgb = LEVEL;
            continue;
        }
        mine = b ? bsearch(&key, b, n, sizeof *b, by_name) : NULL;
        if (mine)
            fill[i] = shade(mine->fill);
        else
            fill[i] = shade(origin_of(fn) * 2 +
                            (fnv(fn->bin.n ? fn->bin : str_c(query_kind_word(fn->kind))) & 1));
    }
    return 0;
}

/* ---- bars ---------------------------------------------------------------------------------- */

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

static void svg_bar(const struct svg *g, struct str name, struct colour fill, uint32_t depth,
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
    buf_printf(g->b,
               "</title><rect x=\"%.2f\" y=\"%u\" width=\"%.2f\" height=\"%d\" fill=\"#%06x\"/>", x,
               y, w, SVG_ROW - 1, fill.rgb);
    if (label.n) {
        buf_printf(g->b, "<text x=\"%.2f\" y=\"%u\"%s>", x + 2, y + 11,
                   fill.white_text ? " fill=\"#ffffff\"" : "");
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

static void svg_bars(struct svg *g, const struct query_flame *f, const struct colour *fill,
                     unit_i128 lost, unit_i128 *next)
{
    const struct colour small = {.rgb = HIDDEN}, gone = {.rgb = LOST};

    for (uint32_t i = 0; i < f->n; i++) {
        uint32_t d = f->depth[i];
        bool hidden = f->node_func[i] < 0;
        const struct query_func *fn = hidden ? NULL : &f->func[f->node_func[i]];
        unit_i128 total = f->total[i] + (i == 0 ? lost : 0);

        svg_bar(g, fn ? fn->name : STR("(hidden)"), fn ? fill[f->node_func[i]] : small, d, next[d],
                total);
        next[d + 1] = next[d];
        next[d] += total;
        if (i == 0)
            next[0] = 0;
    }
    if (lost > 0)
        svg_bar(g, STR("[lost]"), gone, 1, f->n ? f->total[0] : 0, lost);
}

int api_write_svg(struct api_call *c, const struct query_flame *f, unit_i128 lost, bool by_binary,
                  struct query_err *e)
{
    struct svg g = {.b = &c->reply->body, .head = query_head(c->query)};
    uint32_t depth = lost > 0 ? 1 : 0;
    struct colour *fill;
    struct buf legend;
    unit_i128 *next;

    for (uint32_t i = 0; i < f->n; i++)
        depth = f->depth[i] > depth ? f->depth[i] : depth;
    next = arena_calloc(&c->arena, (size_t)depth + 2, sizeof *next);
    fill = arena_calloc(&c->arena, (size_t)f->n_func + 1, sizeof *fill);
    if (!next || !fill)
        return query_fail(e, -ENOMEM, QUERY_TOO_EXPENSIVE, NULL, "out of memory");
    TRY(colours(c, f, by_binary, fill, e));
    buf_init(&legend, 1 << 20);
    api_text_head(&legend, g.head, &f->sum);
    g.all = (f->n ? f->total[0] : 0) + lost;
    g.per_px = g.all > 0 ? (double)g.all / API_SVG_WIDTH : 1;
    g.top = lines(buf_view(&legend)) * SVG_LEGEND + SVG_LEGEND;
    buf_printf(g.b,
               "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
               "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%u\" "
               "viewBox=\"0 0 %d %u\" font-family=\"monospace\" font-size=\"11\">\n"
               "<rect width=\"100%%\" height=\"100%%\" fill=\"#ffffff\"/>\n",
               API_SVG_WIDTH, g.top + (depth + 1) * SVG_ROW, API_SVG_WIDTH,
               g.top + (depth + 1) * SVG_ROW);
    svg_legend(&g, buf_view(&legend));
    svg_bars(&g, f, fill, lost, next);
    buf_cstr(g.b, "</svg>\n");
    buf_deinit(&legend);
    return 0;
}
