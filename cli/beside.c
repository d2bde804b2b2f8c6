// SPDX-License-Identifier: Apache-2.0
#include "cli/beside.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "cli/answer.h"
#include "cli/text.h"

enum {
    NAMED = 3,   /* captures by their names; more are counted */
    MOST = 1000, /* what the server tells of */
    SELECTOR_MAX = 64 << 10,
    QUERY_MAX = 256 << 10,
    ANSWER_MAX = 16 << 20,
    TEXT_MAX = 64 << 10,
};

/* ---- selectors ----------------------------------------------------------------------------- */

/* Behind the quoted text that begins at *p. */
static const char *skip_quoted(const char *p)
{
    char quote = *p++;

    for (; *p && *p != quote; p++) {
        if (*p == '\\' && quote == '"' && p[1])
            p++;
    }
    return *p ? p + 1 : p;
}

bool selector_names(const char *q, struct str label)
{
    while (*q) {
        bool quoted = *q == '"' || *q == '`';
        const char *from = q, *end;

        if (quoted)
            q = skip_quoted(q);
        else if (isalnum((unsigned char)*q) || *q == '_')
            while (isalnum((unsigned char)*q) || *q == '_' || *q == '.')
                q++;
        else {
            q++;
            continue;
        }
        end = quoted && q > from + 1 ? q - 1 : q;
        from += quoted;
        while (isspace((unsigned char)*q))
            q++;
        if ((*q == '=' || *q == '!') && str_eq((struct str){from, (size_t)(end - from)}, label))
            return true;
    }
    return false;
}

void selector_narrow(struct buf *b, const char *q, const char *label, struct str value)
{
    struct str s = str_c(q && q[0] && q[0] != '{' ? q : "cpu");
    bool open = false;

    if (q && q[0] == '{') { /* of no type: of cpu */
        buf_cstr(b, "cpu");
        s = str_c(q);
    }
    while (s.n && isspace((unsigned char)s.p[s.n - 1]))
        s.n--;
    if (s.n && s.p[s.n - 1] == '}') {
        open = true;
        for (s.n--; s.n && (isspace((unsigned char)s.p[s.n - 1]) || s.p[s.n - 1] == ',');)
            s.n--;
    }
    buf_str(b, s);
    buf_cstr(b, !open ? "{" : s.n && s.p[s.n - 1] == '{' ? "" : ", ");
    buf_printf(b, "%s=\"", label);
    for (size_t i = 0; i < value.n; i++) {
        if (value.p[i] == '"' || value.p[i] == '\\')
            buf_chr(b, '\\');
        buf_chr(b, value.p[i]);
    }
    buf_cstr(b, "\"}");
}

/* ---- asking -------------------------------------------------------------------------------- */

static json_t *ask(const struct cli_server *s, const char *path, struct str q, const char *from,
                   const char *to)
{
    struct buf query, out;
    struct err err = {};
    json_t *root = NULL;
    int r;

    buf_init(&query, QUERY_MAX);
    buf_init(&out, ANSWER_MAX);
    cli_param(&query, "q", q);
    if (from)
        cli_param(&query, "from", str_c(from));
    if (to)
        cli_param(&query, "to", str_c(to));
    r = cli_get(s, path, &query, &out, &err);
    if (r == 0)
        r = answer_read(&out, &root, &err);
    buf_deinit(&query);
    buf_deinit(&out);
    return r == 0 ? root : NULL;
}

static void put_selector(struct buf *b, const char *q, struct str capture)
{
    struct buf t;

    buf_init(&t, SELECTOR_MAX);
    selector_narrow(&t, q, "capture", capture);
    buf_cstr(b, "-q '");
    text_name(b, buf_view(&t));
    buf_chr(b, '\'');
    buf_deinit(&t);
}

static void put_note(struct buf *b, const char *side, const char *q, const json_t *names,
                     bool agents)
{
    size_t n = json_array_size(names), i;
    const json_t *name;

    buf_printf(b, "strata: %s%zu%s capture%s of strata record %s added %s twice.\n", side, n,
               n >= MOST ? " or more" : "", n == 1 ? "" : "s", n == 1 ? "is" : "are",
               agents ? "to what agents saw: what both watched counts"
                      : "up: what two watched at one time counts");
    if (agents) {
        buf_cstr(b, "        without: ");
        put_selector(b, q, STR(""));
        buf_chr(b, '\n');
    }
    json_array_foreach(names, i, name)
    {
        if (n > NAMED)
            break;
        buf_cstr(b, "        alone:   ");
        put_selector(b, q, answer_text(name));
        buf_chr(b, '\n');
    }
}

void cli_tell_captures(const struct cli_server *s, const char *side, const char *q,
                       const char *from, const char *to)
{
    json_t *values, *types = NULL;
    const json_t *names;
    struct buf b;

    if (q && (selector_names(q, STR("capture")) || selector_names(q, STR("source"))))
        return;
    buf_init(&b, TEXT_MAX);
    if (!q || !q[0] || q[0] == '{')
        buf_cstr(&b, "cpu");
    buf_cstr(&b, q ? q : "");
    values = ask(s, "/api/v1/labels/capture/values", buf_view(&b), from, to);
    names = json_object_get(values, "values");
    buf_reset(&b);
    if (json_array_size(names) > 0) {
        selector_narrow(&b, q, "capture", STR(""));
        types = ask(s, "/api/v1/types", buf_view(&b), from, to);
    }
    buf_reset(&b);
    if (types) {
        bool agents = json_array_size(json_object_get(types, "types")) > 0;

        if (json_array_size(names) + agents > 1)
            put_note(&b, side, q, names, agents);
    }
    (void)fwrite(b.p, 1, b.n, stderr);
    buf_deinit(&b);
    json_decref(values);
    json_decref(types);
}
