// SPDX-License-Identifier: Apache-2.0
#define PCRE2_CODE_UNIT_WIDTH 8

#include <errno.h>
#include <pcre2.h>
#include <stdlib.h>

#include "query/query_private.h"

/*
 * The interpreter, not the JIT: its limits are exact, and its frames lie on the heap, not on the
 * stack of a connection's thread. One subject may cost about 20 ms at most, and the first one that
 * would cost more ends the query.
 */
#define MATCH_LIMIT    1000000
#define DEPTH_LIMIT    100000
#define HEAP_LIMIT_KIB (16 * 1024)

struct query_regex {
    pcre2_code *code;
    pcre2_match_data *data;
    pcre2_match_context *limits;
};

static bool ascii(struct str s)
{
    for (size_t i = 0; i < s.n; i++) {
        if ((unsigned char)s.p[i] >= 0x80)
            return false;
    }
    return true;
}

struct query_regex *query_regex_free(struct query_regex *re)
{
    if (re) {
        pcre2_code_free(re->code);
        pcre2_match_data_free(re->data);
        pcre2_match_context_free(re->limits);
        free(re);
    }
    return NULL;
}

static int too_expensive(struct query_err *e, const char *param, const char *what, uint64_t limit,
                         uint64_t actual)
{
    int r = query_fail(e, -E2BIG, QUERY_REGEX_TOO_EXPENSIVE, param,
                       "regular expression: %s (limit %llu)", what, (unsigned long long)limit);

    e->limit = limit;
    e->actual = actual;
    return r;
}

static int compile_failed(struct query_err *e, const char *param, int code, size_t at, size_t n)
{
    PCRE2_UCHAR text[120] = "";

    switch (code) {
    case PCRE2_ERROR_PARENTHESES_NEST_TOO_DEEP:
        return too_expensive(e, param, "groups are nested too deep", QUERY_REGEX_NEST,
                             QUERY_REGEX_NEST + 1);
    case PCRE2_ERROR_PATTERN_TOO_LARGE:
    case PCRE2_ERROR_PATTERN_TOO_COMPLICATED:
    case PCRE2_ERROR_PATTERN_STRING_TOO_LONG:
        return too_expensive(e, param, "pattern is too large", QUERY_REGEX_MAX, n);
    default:
        (void)pcre2_get_error_message(code, text, sizeof text);
        return query_fail(e, -EINVAL, QUERY_BAD_PATTERN, param,
                          "regular expression: position %zu: %s", at + 1, (const char *)text);
    }
}

/*
 * Names are bytes. A pattern of ASCII works on bytes, so that "." takes any of them; only one that
 * itself holds other characters is matched by characters.
 */
static uint32_t compile_options(struct str pattern, bool whole, bool ignore_case)
{
    uint32_t o = PCRE2_DOTALL | PCRE2_DOLLAR_ENDONLY | PCRE2_NEVER_BACKSLASH_C;

    if (whole)
        o |= PCRE2_ANCHORED | PCRE2_ENDANCHORED;
    if (ignore_case)
        o |= PCRE2_CASELESS;
    if (ascii(pattern))
        return o | PCRE2_NEVER_UTF | PCRE2_NEVER_UCP;
    return o | PCRE2_UTF | PCRE2_MATCH_INVALID_UTF;
}

int query_regex_new(struct str pattern, bool whole, bool ignore_case, const char *param,
                    struct query_regex **ret, struct query_err *e)
{
    pcre2_compile_context *ctx;
    struct query_regex *re;
    PCRE2_SIZE at = 0;
    int code = 0;

    if (!pattern.p)
        pattern = STR("");
    if (pattern.n > QUERY_REGEX_MAX)
        return too_expensive(e, param, "pattern is too long", QUERY_REGEX_MAX, pattern.n);
    re = calloc(1, sizeof *re);
    ctx = pcre2_compile_context_create(NULL);
    if (re && ctx) {
        pcre2_set_parens_nest_limit(ctx, QUERY_REGEX_NEST);
        re->code = pcre2_compile((PCRE2_SPTR)pattern.p, pattern.n,
                                 compile_options(pattern, whole, ignore_case), &code, &at, ctx);
    }
    pcre2_compile_context_free(ctx);
    if (re && !re->code && code) {
        (void)query_regex_free(re);
        return compile_failed(e, param, code, at, pattern.n);
    }
    if (re && re->code) {
        re->data = pcre2_match_data_create(1, NULL);
        re->limits = pcre2_match_context_create(NULL);
    }
    if (!re || !re->data || !re->limits) {
        (void)query_regex_free(re);
        return query_fail(e, -ENOMEM, QUERY_TOO_EXPENSIVE, param, "out of memory");
    }
    pcre2_set_match_limit(re->limits, MATCH_LIMIT);
    pcre2_set_depth_limit(re->limits, DEPTH_LIMIT);
    pcre2_set_heap_limit(re->limits, HEAP_LIMIT_KIB);
    *ret = re;
    return 0;
}

int query_regex_match(struct query_regex *re, struct str text)
{
    int r = pcre2_match(re->code, (PCRE2_SPTR)(text.p ? text.p : ""), text.n, 0, 0, re->data,
                        re->limits);

    if (r >= 0)
        return 1;
    return r == PCRE2_ERROR_NOMATCH ? 0 : -E2BIG;
}

/* ---- search patterns ------------------------------------------------------------------------ */

static char lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

/* [scope=] in front of text; *text becomes what follows. */
static enum query_scope scope_of(struct str *text, bool kind)
{
    static const struct {
        struct str prefix;
        enum query_scope scope;
    } scopes[] = {{STR("fn="), QUERY_IN_FN},
                  {STR("bin="), QUERY_IN_BIN},
                  {STR("file="), QUERY_IN_FILE},
                  {STR("kind="), QUERY_IN_KIND}};

    for (size_t i = 0; i < sizeof scopes / sizeof scopes[0]; i++) {
        if (str_starts(*text, scopes[i].prefix) && (kind || scopes[i].scope != QUERY_IN_KIND)) {
            *text = str_from(*text, scopes[i].prefix.n);
            return scopes[i].scope;
        }
    }
    return QUERY_IN_FN;
}

bool query_search_own(struct str text)
{
    return scope_of(&text, false) == QUERY_IN_FILE;
}

/* /regex/ or /regex/i: 1, p->regex set; 0: text is none. */
static int regex_of(struct str text, const char *param, struct query_pattern *p,
                    struct query_err *e)
{
    bool fold = str_ends(text, STR("/i"));
    size_t tail = fold ? 2 : 1;

    if (text.n < 2 + tail || text.p[0] != '/' || (text.p[text.n - 1] != '/' && !fold))
        return 0;
    p->fold = fold;
    p->source = (struct str){text.p + 1, text.n - 1 - tail};
    TRY(query_regex_new(p->source, false, fold, param, &p->regex, e));
    return 1;
}

static int too_long(struct query_err *e, const char *param, size_t n, size_t limit)
{
    int r = query_fail(e, -EINVAL, QUERY_BAD_PATTERN, param, "pattern: %zu bytes, at most %zu", n,
                       limit);

    e->limit = limit;
    e->actual = n;
    return r;
}

int query_pattern_new(struct arena *a, struct str text, const char *param,
                      struct query_pattern *ret, struct query_err *e)
{
    struct query_pattern p = {.scope = scope_of(&text, false)};
    char *copy;
    int r;

    if (text.n == 0)
        return query_fail(e, -EINVAL, QUERY_BAD_PATTERN, param, "search pattern: nothing to find");
    r = regex_of(text, param, &p, e);
    if (r < 0)
        return r;
    if (r == 0) {
        if (text.n > QUERY_REGEX_MAX)
            return too_long(e, param, text.n, QUERY_REGEX_MAX);
        copy = arena_alloc(a, text.n);
        if (!copy)
            return query_fail(e, -ENOMEM, QUERY_TOO_EXPENSIVE, param, "out of memory");
        for (size_t i = 0; i < text.n; i++)
            copy[i] = lower(text.p[i]);
        p.text = (struct str){copy, text.n};
    }
    *ret = p;
    return 0;
}

int query_pattern_filter(struct str text, const char *param, struct query_pattern *ret,
                         struct query_err *e)
{
    struct query_pattern p = {.exact = true, .scope = scope_of(&text, true)};
    int r;

    if (text.n == 0)
        return query_fail(e, -EINVAL, QUERY_BAD_PATTERN, param, "filter: the pattern is empty");
    r = regex_of(text, param, &p, e);
    if (r < 0)
        return r;
    if (r == 0 && text.n > QUERY_EXACT_MAX)
        return too_long(e, param, text.n, QUERY_EXACT_MAX);
    p.text = text;
    *ret = p;
    return 0;
}

int query_pattern_clone(const struct query_pattern *p, const char *param, struct query_pattern *ret,
                        struct query_err *e)
{
    struct query_pattern c = *p;

    if (p->regex) {
        c.regex = NULL;
        TRY(query_regex_new(p->source, false, p->fold, param, &c.regex, e));
    }
    *ret = c;
    return 0;
}

void query_pattern_deinit(struct query_pattern *p)
{
    p->regex = query_regex_free(p->regex);
}

static bool contains(struct str text, struct str low)
{
    if (low.n > text.n)
        return false;
    for (size_t i = 0; i <= text.n - low.n; i++) {
        size_t k = 0;

        while (k < low.n && lower(text.p[i + k]) == low.p[k])
            k++;
        if (k == low.n)
            return true;
    }
    return false;
}

static struct str scope_text(enum query_scope scope, const struct query_func *f)
{
    switch (scope) {
    case QUERY_IN_BIN:
        return f->bin;
    case QUERY_IN_FILE:
        return f->file;
    case QUERY_IN_KIND:
        return str_c(query_kind_word(f->kind));
    case QUERY_IN_FN:
    default:
        return f->name;
    }
}

int query_pattern_match(const struct query_pattern *p, const struct query_func *f)
{
    struct str s = scope_text(p->scope, f);

    if (p->regex)
        return query_regex_match(p->regex, s);
    return p->exact ? str_eq(s, p->text) : contains(s, p->text);
}
