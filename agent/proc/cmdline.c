// SPDX-License-Identifier: Apache-2.0
#include "agent/proc/cmdline.h"

#include <ctype.h>
#include <strings.h>

static const struct str secret_words[] = {STR("token"),  STR("password"), STR("passwd"),
                                          STR("secret"), STR("key"),      STR("auth")};

bool cmdline_next(struct str *args, struct str *ret)
{
    size_t nul;

    if (args->n == 0)
        return false;
    nul = str_find(*args, '\0');
    *ret = str_to(*args, nul);
    *args = str_from(*args, nul == SIZE_MAX ? args->n : nul + 1);
    return true;
}

static bool has_secret_word(struct str s)
{
    for (size_t w = 0; w < sizeof secret_words / sizeof *secret_words; w++) {
        for (size_t i = 0; i + secret_words[w].n <= s.n; i++) {
            if (strncasecmp(s.p + i, secret_words[w].p, secret_words[w].n) == 0)
                return true;
        }
    }
    return false;
}

/* SCHEME://user:password@host: where the password stands. */
static bool url_password(struct str s, size_t *ret_from, size_t *ret_to)
{
    size_t start = SIZE_MAX, colon = SIZE_MAX;

    for (size_t i = 0; i + 3 <= s.n; i++) {
        if (s.p[i] == ':' && s.p[i + 1] == '/' && s.p[i + 2] == '/') {
            start = i + 3;
            break;
        }
    }
    if (start == SIZE_MAX)
        return false;
    for (size_t i = start; i < s.n && s.p[i] != '/'; i++) {
        if (s.p[i] == ':' && colon == SIZE_MAX)
            colon = i;
        if (s.p[i] == '@' && colon != SIZE_MAX) {
            *ret_from = colon + 1;
            *ret_to = i;
            return true;
        }
    }
    return false;
}

static void put(struct buf *out, size_t start, struct str s)
{
    size_t used = out->n - start;

    buf_str(out, str_to(s, used < CMDLINE_MAX ? CMDLINE_MAX - used : 0));
}

void cmdline_mask(struct str args, struct buf *out)
{
    size_t start = out->n, from = 0, to = 0;
    bool first = true, hide_next = false;
    struct str arg;

    while (cmdline_next(&args, &arg) && out->n - start < CMDLINE_MAX) {
        size_t eq = str_find(arg, '=');
        bool option = str_starts(arg, STR("-"));

        if (!first)
            put(out, start, STR(" "));
        first = false;
        if (hide_next && !option) {
            put(out, start, STR("***"));
            hide_next = false;
            continue;
        }
        hide_next = false;
        if (eq != SIZE_MAX && has_secret_word(str_to(arg, eq))) {
            put(out, start, str_to(arg, eq + 1));
            put(out, start, STR("***"));
        } else if (url_password(arg, &from, &to)) {
            put(out, start, str_to(arg, from));
            put(out, start, STR("***"));
            put(out, start, str_from(arg, to));
        } else {
            put(out, start, arg);
            hide_next = str_starts(arg, STR("--")) && eq == SIZE_MAX && has_secret_word(arg);
        }
    }
}

/* python, python3, python3.11, pypy3, with a "d" or "t" of special builds */
static bool is_python(struct str exe)
{
    struct str base = str_basename(exe);

    if (str_starts(base, STR("python")))
        base = str_from(base, 6);
    else if (str_starts(base, STR("pypy")))
        base = str_from(base, 4);
    else
        return false;
    for (size_t i = 0; i < base.n; i++) {
        if (!isdigit((unsigned char)base.p[i]) && base.p[i] != '.' && base.p[i] != 'd' &&
            base.p[i] != 't')
            return false;
    }
    return true;
}

struct str cmdline_python(struct str exe, struct str args)
{
    struct str arg, none = {NULL, 0};

    if (!is_python(exe) || !cmdline_next(&args, &arg))
        return none;
    while (cmdline_next(&args, &arg)) {
        if (str_eq(arg, STR("-m")))
            return cmdline_next(&args, &arg) ? arg : none;
        if (str_starts(arg, STR("-m")) && !str_starts(arg, STR("--")))
            return str_from(arg, 2);
        if (str_starts(arg, STR("-c")) || str_eq(arg, STR("-")))
            return none;
        if (str_eq(arg, STR("-W")) || str_eq(arg, STR("-X")) ||
            str_eq(arg, STR("--check-hash-based-pycs"))) {
            if (!cmdline_next(&args, &arg))
                return none;
            continue;
        }
        if (arg.n && arg.p[0] == '-')
            continue;
        arg = str_basename(arg);
        return str_ends(arg, STR(".py")) ? str_to(arg, arg.n - 3) : arg;
    }
    return none;
}
