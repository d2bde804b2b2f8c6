// SPDX-License-Identifier: Apache-2.0
#include "server/http_parse.h"

#include <inttypes.h>
#include <stdio.h>

static int hex(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

static char lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c + ('a' - 'A')) : c;
}

static bool blank(char c)
{
    return c == ' ' || c == '\t';
}

static struct str trim(struct str s)
{
    while (s.n && blank(s.p[0]))
        s = str_from(s, 1);
    while (s.n && blank(s.p[s.n - 1]))
        s.n--;
    return s;
}

/* Cut s at the first c: the part before is returned, what is behind stays in *s. */
static struct str cut(struct str *s, char c)
{
    size_t at = str_find(*s, c);
    struct str head = *s;

    if (at == SIZE_MAX) {
        *s = (struct str){NULL, 0};
        return head;
    }
    head.n = at;
    *s = str_from(*s, at + 1);
    return head;
}

bool http_unescape(struct arena *a, struct str in, bool plus, struct str *ret)
{
    char *p = arena_alloc(a, in.n + 1);
    size_t n = 0;

    if (!p)
        return false;
    for (size_t i = 0; i < in.n; i++) {
        char c = in.p[i];

        if (c == '%') {
            int hi = in.n - i > 2 ? hex(in.p[i + 1]) : -1;
            int lo = in.n - i > 2 ? hex(in.p[i + 2]) : -1;

            if (hi < 0 || lo < 0)
                return false;
            c = (char)(hi << 4 | lo);
            i += 2;
        } else if (c == '+' && plus) {
            c = ' ';
        }
        p[n++] = c;
    }
    *ret = (struct str){p, n};
    return true;
}

enum http_params http_params_parse(struct arena *a, struct str in, struct msg_param *v, uint32_t *n)
{
    while (in.n) {
        struct str value = cut(&in, '&');
        struct str name = cut(&value, '=');

        if (!name.n && !value.n)
            continue;
        if (*n == HTTP_PARAMS_MAX)
            return HTTP_PARAMS_MANY;
        if (!http_unescape(a, name, true, &v[*n].name) ||
            !http_unescape(a, value, true, &v[*n].value))
            return HTTP_PARAMS_BAD;
        ++*n;
    }
    return HTTP_PARAMS_OK;
}

bool http_str_eq(struct str a, struct str low)
{
    if (a.n != low.n)
        return false;
    for (size_t i = 0; i < a.n; i++)
        if (lower(a.p[i]) != low.p[i])
            return false;
    return true;
}

struct str http_media_type(struct str header)
{
    return trim(cut(&header, ';'));
}

/* q=0, q=0.0, q=0.000: all else counts as above 0. */
static bool q_is_zero(struct str params)
{
    while (params.n) {
        struct str value = trim(cut(&params, ';'));
        struct str name = trim(cut(&value, '='));

        value = trim(value);
        if (!http_str_eq(name, STR("q")))
            continue;
        if (!value.n)
            return false;
        for (size_t i = 0; i < value.n; i++)
            if (value.p[i] != '0' && value.p[i] != '.')
                return false;
        return true;
    }
    return false;
}

bool http_list_has(struct str header, struct str item)
{
    while (header.n) {
        struct str params = cut(&header, ',');
        struct str name = trim(cut(&params, ';'));

        if (http_str_eq(name, item))
            return !q_is_zero(params);
    }
    return false;
}

struct str http_host_name(struct str host)
{
    size_t at;

    if (host.n && host.p[0] == '[') {
        at = str_find(host, ']');
        return at == SIZE_MAX ? host : str_to(host, at + 1);
    }
    at = str_find(host, ':');
    return at == SIZE_MAX ? host : str_to(host, at);
}

bool http_host_valid(struct str host)
{
    struct str name = http_host_name(host), port = str_from(host, name.n);
    uint64_t n = 0;

    if (!name.n || str_find(name, ' ') != SIZE_MAX || str_find(name, ',') != SIZE_MAX ||
        str_find(name, '@') != SIZE_MAX)
        return false;
    if (!port.n)
        return true;
    return port.p[0] == ':' && str_u64(str_from(port, 1), &n) && n <= 65535;
}

bool http_word_in(struct str name, struct str words)
{
    while (words.n) {
        struct str word = cut(&words, ' ');

        if (!word.n || word.n != name.n)
            continue;
        for (size_t i = 0; lower(word.p[i]) == lower(name.p[i]);)
            if (++i == word.n)
                return true;
    }
    return false;
}

bool http_etag_match(struct str header, uint64_t etag)
{
    char want[17];

    (void)snprintf(want, sizeof want, "%016" PRIx64, etag);
    while (header.n) {
        struct str tag = trim(cut(&header, ','));

        if (str_eq(tag, STR("*")))
            return true;
        if (str_starts(tag, STR("W/")))
            tag = str_from(tag, 2);
        if (str_starts(tag, STR("\"")))
            tag = str_from(tag, 1);
        if (str_starts(tag, (struct str){want, 16}))
            return true;
    }
    return false;
}

static int base64_value(char c)
{
    if (c >= 'A' && c <= 'Z')
        return c - 'A';
    if (c >= 'a' && c <= 'z')
        return c - 'a' + 26;
    if (c >= '0' && c <= '9')
        return c - '0' + 52;
    if (c == '+')
        return 62;
    return c == '/' ? 63 : -1;
}

bool http_base64(struct arena *a, struct str in, struct str *ret)
{
    char *p;
    size_t n = 0, pad = 0;

    if (in.n % 4)
        return false;
    while (pad < 2 && pad < in.n && in.p[in.n - 1 - pad] == '=')
        pad++;
    p = arena_alloc(a, in.n / 4 * 3 + 1);
    if (!p)
        return false;
    for (size_t i = 0; i < in.n; i += 4) {
        uint32_t word = 0;

        for (size_t k = 0; k < 4; k++) {
            int v = i + k >= in.n - pad ? 0 : base64_value(in.p[i + k]);

            if (v < 0)
                return false;
            word = word << 6 | (uint32_t)v;
        }
        p[n++] = (char)(word >> 16 & 0xff);
        p[n++] = (char)(word >> 8 & 0xff);
        p[n++] = (char)(word & 0xff);
    }
    *ret = (struct str){p, n - pad};
    return true;
}
