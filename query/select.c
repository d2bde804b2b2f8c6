// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <stdio.h>

#include "query/query_private.h"

/*
 *   selector  = [type] ["{" [condition {"," condition}] "}"]
 *   type      = part [":" part [":" part]]           name, unit, kind
 *   condition = part op string                       op: = != =~ !~
 *   part      = word | string                        string: "..." with escapes, or `...`
 */
struct cursor {
    struct arena *a;
    struct str s;
    size_t at;
    struct query_err *e;
};

#define SELECTOR_MAX 8192

static int bad(struct cursor *c, const char *why)
{
    return query_fail(c->e, -EINVAL, QUERY_BAD_SELECTOR, "q", "selector: position %zu: %s",
                      c->at + 1, why);
}

static bool blank(char ch)
{
    return ch == ' ' || ch == '\t' || ch == '\r' || ch == '\n';
}

static void blanks(struct cursor *c)
{
    while (c->at < c->s.n && blank(c->s.p[c->at]))
        c->at++;
}

static int peek(const struct cursor *c)
{
    return c->at < c->s.n ? (unsigned char)c->s.p[c->at] : -1;
}

static bool word_char(int ch)
{
    return ch >= 0x80 || (ch >= '0' && ch <= '9') || (ch >= 'a' && ch <= 'z') ||
           (ch >= 'A' && ch <= 'Z') || (ch > 0 && strchr("_.-/%[]()", ch));
}

static int hex_digits(struct cursor *c, size_t n, uint32_t *ret)
{
    uint64_t v;

    if (c->s.n - c->at < n || !str_hex64(str_to(str_from(c->s, c->at), n), &v))
        return bad(c, n == 2 ? "\\x needs two hex digits" : "\\u needs four hex digits");
    c->at += n;
    *ret = (uint32_t)v;
    return 0;
}

static size_t put_utf8(char *p, uint32_t v)
{
    if (v < 0x80) {
        p[0] = (char)v;
        return 1;
    }
    if (v < 0x800) {
        p[0] = (char)(0xc0 | v >> 6);
        p[1] = (char)(0x80 | (v & 0x3f));
        return 2;
    }
    p[0] = (char)(0xe0 | v >> 12);
    p[1] = (char)(0x80 | (v >> 6 & 0x3f));
    p[2] = (char)(0x80 | (v & 0x3f));
    return 3;
}

/* Behind the backslash. An escape is never shorter than what it stands for. */
static int escape(struct cursor *c, char *out, size_t *n)
{
    uint32_t v = 0;

    switch (peek(c)) {
    case '\\':
    case '"':
        out[(*n)++] = c->s.p[c->at++];
        return 0;
    case 'n':
        out[(*n)++] = '\n';
        c->at++;
        return 0;
    case 'x':
        c->at++;
        TRY(hex_digits(c, 2, &v));
        out[(*n)++] = (char)v;
        return 0;
    case 'u':
        c->at++;
        TRY(hex_digits(c, 4, &v));
        if (v >= 0xd800 && v < 0xe000)
            return bad(c, "\\u of half a surrogate pair");
        *n += put_utf8(out + *n, v);
        return 0;
    default:
        return bad(c, "unknown escape: there are \\\\ \\\" \\n \\xHH \\uHHHH");
    }
}

static int string(struct cursor *c, struct str *ret)
{
    char quote = c->s.p[c->at++];
    char *out = arena_alloc(c->a, c->s.n - c->at + 1);
    size_t n = 0;

    if (!out)
        return query_fail(c->e, -ENOMEM, QUERY_TOO_EXPENSIVE, "q", "out of memory");
    for (;;) {
        int ch = peek(c);

        if (ch < 0)
            return bad(c, "the string does not end");
        c->at++;
        if (ch == quote)
            break;
        if (ch == '\\' && quote == '"')
            TRY(escape(c, out, &n));
        else
            out[n++] = (char)ch;
    }
    *ret = (struct str){out, n};
    return 0;
}

static int part(struct cursor *c, const char *what, struct str *ret)
{
    size_t from = c->at;

    if (peek(c) == '"' || peek(c) == '`')
        return string(c, ret);
    while (word_char(peek(c)))
        c->at++;
    if (c->at == from)
        return bad(c, what);
    *ret = str_to(str_from(c->s, from), c->at - from);
    return 0;
}

static int type(struct cursor *c, struct query_select *ret)
{
    struct str *to[] = {&ret->name, &ret->unit, &ret->kind};

    ret->has_type = true;
    for (size_t i = 0; i < 3; i++) {
        TRY(part(c, "a type is NAME, NAME:UNIT or NAME:UNIT:KIND", to[i]));
        if (peek(c) != ':')
            break;
        if (i == 2)
            return bad(c, "a type has three parts at most");
        c->at++;
    }
    if (ret->name.n == 0)
        return bad(c, "the type's name is empty");
    if (ret->kind.n && !str_eq(ret->kind, STR("sum")) && !str_eq(ret->kind, STR("level")))
        return bad(c, "a kind is sum or level");
    return 0;
}

static int operator(struct cursor *c, enum store_op *ret)
{
    static const struct {
        struct str text;
        enum store_op op;
    } ops[] = {{STR("=~"), STORE_LIKE},
               {STR("!~"), STORE_UNLIKE},
               {STR("!="), STORE_NE},
               {STR("="), STORE_EQ}};

    blanks(c);
    for (size_t i = 0; i < sizeof ops / sizeof ops[0]; i++) {
        if (str_starts(str_from(c->s, c->at), ops[i].text)) {
            c->at += ops[i].text.n;
            *ret = ops[i].op;
            return 0;
        }
    }
    return bad(c, "an operator is = != =~ or !~");
}

static int condition(struct cursor *c, struct query_select *ret)
{
    struct store_matcher *m = &ret->matcher[ret->n];
    size_t from;

    if (ret->n == QUERY_MATCHERS_MAX)
        return bad(c, "more than 32 conditions");
    blanks(c);
    from = c->at;
    TRY(part(c, "a label name", &m->name));
    TRY(operator(c, &m->op));
    blanks(c);
    if (peek(c) != '"' && peek(c) != '`')
        return bad(c, "a value stands in \" or `");
    TRY(string(c, &m->value));
    ret->text[ret->n] = str_to(str_from(c->s, from), c->at - from);
    if (m->op == STORE_LIKE || m->op == STORE_UNLIKE)
        TRY(query_regex_new(m->value, true, false, "q", &ret->regex[ret->n], c->e));
    ret->n++;
    return 0;
}

static int conditions(struct cursor *c, struct query_select *ret)
{
    c->at++;
    blanks(c);
    if (peek(c) == '}') {
        c->at++;
        return 0;
    }
    for (;;) {
        TRY(condition(c, ret));
        blanks(c);
        if (peek(c) != ',' && peek(c) != '}')
            return bad(c, "\",\" or \"}\" is missing");
        if (c->s.p[c->at++] == '}')
            return 0;
    }
}

static int selector(struct cursor *c, struct query_select *ret)
{
    blanks(c);
    if (peek(c) >= 0 && peek(c) != '{')
        TRY(type(c, ret));
    blanks(c);
    if (peek(c) == '{')
        TRY(conditions(c, ret));
    blanks(c);
    return peek(c) < 0 ? 0 : bad(c, "something follows the selector");
}

int query_select_parse(struct arena *a, struct str text, struct query_select *ret,
                       struct query_err *e)
{
    struct cursor c = {.a = a, .e = e};
    struct query_select s = {};
    int r;

    if (text.n > SELECTOR_MAX)
        return query_fail(e, -EINVAL, QUERY_BAD_SELECTOR, "q", "selector: %zu bytes, at most %d",
                          text.n, SELECTOR_MAX);
    c.s = arena_str(a, text); /* what it points to outlives the request's text */
    s.matcher = arena_array(a, struct store_matcher, QUERY_MATCHERS_MAX);
    s.regex = arena_array(a, struct query_regex *, QUERY_MATCHERS_MAX);
    s.text = arena_array(a, struct str, QUERY_MATCHERS_MAX);
    if (!s.matcher || !s.regex || !s.text || (text.n && !c.s.p))
        return query_fail(e, -ENOMEM, QUERY_TOO_EXPENSIVE, "q", "out of memory");
    r = selector(&c, &s);
    if (r < 0) {
        query_select_deinit(&s);
        return r;
    }
    *ret = s;
    return 0;
}

void query_select_deinit(struct query_select *s)
{
    for (uint32_t i = 0; s->regex && i < QUERY_MATCHERS_MAX; i++)
        s->regex[i] = query_regex_free(s->regex[i]);
    *s = (struct query_select){};
}

/* ---- which type is meant ----------------------------------------------------------------------
 */

struct choice {
    const struct query_select *s;
    uint32_t n;
    struct query_type first;
    char list[240]; /* the choices, for the error */
    struct query *q;
    bool failed;
};

static bool wanted(const struct query_select *s, struct str name, struct str unit,
                   enum ptype_kind kind)
{
    return str_eq(s->name, name) && (s->unit.n == 0 || str_eq(s->unit, unit)) &&
           (s->kind.n == 0 || str_eq(s->kind, STR("level")) == (kind == KIND_LEVEL));
}

static void offer(struct choice *c, const struct query_type *t)
{
    size_t used = strlen(c->list);
    int n;

    if (c->n++ == 0)
        c->first = *t;
    n = snprintf(c->list + used, sizeof c->list - used, "%s%.*s:%.*s:%s", used ? ", " : "",
                 STR_ARG(t->name), STR_ARG(t->unit), t->kind == KIND_LEVEL ? "level" : "sum");
    if (n < 0 || (size_t)n >= sizeof c->list - used)
        c->list[used] = '\0'; /* no half names */
}

static bool on_type(void *ctx, const struct store_type *t)
{
    struct choice *c = ctx;
    struct query_type type = {.id = t->id, .kind = t->kind};
    struct query_err e = {};

    if (ptype_builtin(t->id) || !wanted(c->s, t->name, t->unit, t->kind))
        return true;
    if (query_copy(c->q, t->name, &type.name, &e) < 0 ||
        query_copy(c->q, t->unit, &type.unit, &e) < 0) {
        c->failed = true;
        return false;
    }
    offer(c, &type);
    return true;
}

/* Imported types of the name that is meant: few, if any. */
struct known {
    const struct query_select *s;
    struct query *q;
    uint32_t n, room;
    ptype_id *id;
    struct query_err *e;
    int r;
};

static bool on_known(void *ctx, const struct store_type *t)
{
    struct known *k = ctx;
    ptype_id *id;

    if (!wanted(k->s, t->name, t->unit, t->kind))
        return true;
    id = query_grow(k->q, k->id, k->n, &k->room, sizeof *id, k->e);
    if (!id) {
        k->r = -ENOMEM;
        return false;
    }
    id[k->n++] = t->id;
    k->id = id;
    return true;
}

/* Those of the known types that occur in the range. */
static int occurring(struct query *q, const struct known *k, struct interval range,
                     struct choice *c, struct query_err *e)
{
    for (uint32_t i = 0; i < k->n; i++) {
        struct store_ask ask = {.sel.type = k->id[i], .range = range};
        struct err err = {};
        int r = store_list_types(q->view, &ask, on_type, c, &err);

        if (c->failed)
            return query_no_memory(q, e);
        if (r < 0)
            return query_store_failed(q, r, &err, e);
    }
    return 0;
}

/*
 * Built-in types have a name always. Imported ones count as candidates where they occur: in the
 * range, and only if nothing of that name does, anywhere. Rows are looked at only for types that
 * could be meant: seldom any.
 */
int query_select_type(struct query *q, struct query_err *e)
{
    struct choice c = {.s = &q->select, .q = q};
    struct known known = {.s = &q->select, .q = q, .e = e};
    struct interval range = q->head.range;
    struct err err = {};
    int r;

    for (ptype_id id = 1; id < PTYPE_BUILTIN_END; id++) {
        const struct ptype *p = ptype_builtin(id);

        if (p && wanted(c.s, str_c(p->name), str_c(p->unit), p->kind))
            offer(&c, &(struct query_type){id, str_c(p->name), str_c(p->unit), p->kind});
    }
    r = store_known_types(q->view, on_known, &known, &err);
    if (known.r < 0)
        return known.r;
    if (r < 0)
        return query_store_failed(q, r, &err, e);
    for (int pass = 0; pass < 2 && !(c.n && (pass || c.s->unit.n)); pass++) {
        TRY(occurring(q, &known, range, &c, e));
        range = (struct interval){{INT64_MIN}, {INT64_MAX}};
    }
    if (c.n == 0)
        return query_fail(e, -ENOENT, QUERY_UNKNOWN_TYPE, "q", "no profile type %.*s%s%.*s%s%.*s",
                          STR_ARG(str_to(c.s->name, 100)), c.s->unit.n ? ":" : "",
                          STR_ARG(str_to(c.s->unit, 60)), c.s->kind.n ? ":" : "",
                          STR_ARG(c.s->kind));
    if (c.n > 1)
        return query_fail(e, -EINVAL, QUERY_AMBIGUOUS_TYPE, "q", "%.*s is one of: %s",
                          STR_ARG(str_to(c.s->name, 60)), c.list);
    q->head.type = c.first;
    return 0;
}
