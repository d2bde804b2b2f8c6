// SPDX-License-Identifier: Apache-2.0
#include "base/short.h"

#include <string.h>

/*
 * "std::vector<int, A<int>>::push_back(int)" -> "std::vector::push_back(int)". Template arguments
 * stand behind a word; so "<module>", "<lambda>", "foo.<locals>.bar", "<T as Trait>::f" and
 * "(anonymous namespace)" keep theirs. Behind the word operator first comes what it names.
 */

static bool word_char(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
           (unsigned char)c >= 0x80;
}

/* Behind the '>' that closes the '<' at i; 0: none does. Inside parentheses "<" and ">" compare. */
static size_t close_of(struct str s, size_t i)
{
    size_t angle = 0, round = 0;

    for (; i < s.n; i++) {
        char c = s.p[i];

        if (c == '(' || c == '[' || c == '{')
            round++;
        else if ((c == ')' || c == ']' || c == '}') && round)
            round--;
        else if (round)
            continue;
        else if (c == '<')
            angle++;
        else if (c == '>' && s.p[i - 1] != '-' && --angle == 0)
            return i + 1;
    }
    return 0;
}

/* Behind "operator" that begins at i, with the sign that it names. */
static size_t operator_end(struct str s, size_t i)
{
    static const struct str signs[] = {STR("<=>"), STR("<<="), STR(">>="), STR("<<"), STR(">>"),
                                       STR("<="),  STR(">="),  STR("->*"), STR("->"), STR("<"),
                                       STR(">"),   STR("()"),  STR("[]")};

    i += STR("operator").n;
    for (size_t k = 0; k < sizeof signs / sizeof signs[0]; k++) {
        if (str_starts(str_from(s, i), signs[k]))
            return i + signs[k].n;
    }
    while (i < s.n && s.p[i] && strchr("+-*/%^&|~!=,", s.p[i]))
        i++;
    return i;
}

static bool is_operator(struct str s, size_t i)
{
    struct str word = STR("operator");

    return str_starts(str_from(s, i), word) && (i == 0 || !word_char(s.p[i - 1])) &&
           (i + word.n == s.n || !word_char(s.p[i + word.n]));
}

/* Into out, of s.n bytes, or nowhere; how many bytes it has. */
static size_t shorten(struct str s, char *out)
{
    size_t n = 0, i = 0, named = SIZE_MAX; /* named: where a named operator has just ended */

    while (i < s.n) {
        size_t from = i, end = 0;

        if (is_operator(s, i)) {
            i = named = operator_end(s, i);
        } else if (s.p[i] == '<' && i > 0 && (word_char(s.p[i - 1]) || i == named)) {
            end = close_of(s, i);
            i = end ? end : s.n;
            if (end && s.p[from - 1] == ' ')
                n--;
        } else {
            if (s.p[i] == ' ' && i == named) /* "operator<< <char>" */
                named++;
            i++;
        }
        if (!end) {
            if (out)
                memcpy(out + n, s.p + from, i - from);
            n += i - from;
        }
    }
    return n;
}

bool func_has_short(struct str name)
{
    return str_find(name, '<') != SIZE_MAX && shorten(name, NULL) != name.n;
}

struct str func_short_name(struct arena *a, struct str s)
{
    char *out;

    if (!func_has_short(s))
        return s;
    out = arena_alloc(a, s.n);
    return (struct str){out, out ? shorten(s, out) : s.n};
}
