// SPDX-License-Identifier: Apache-2.0
#include "base/conf.h"

#include <assert.h>
#include <errno.h>
#include <ini.h>
#include <inttypes.h>
#include <stdlib.h>

#include "base/arena.h"

struct suffix {
    const char *text;
    uint64_t factor;
};

static const struct suffix duration_suffix[] = {
    {"ns", 1},
    {"us", 1000},
    {"ms", 1000000},
    {"s", UINT64_C(1000000000)},
    {"m", UINT64_C(60000000000)},
    {"h", UINT64_C(3600000000000)},
    {"d", UINT64_C(86400000000000)},
    {NULL, 0},
};
static const struct suffix size_suffix[] = {
    {"B", 1},
    {"KiB", UINT64_C(1) << 10},
    {"MiB", UINT64_C(1) << 20},
    {"GiB", UINT64_C(1) << 30},
    {"TiB", UINT64_C(1) << 40},
    {NULL, 0},
};

/* ---- values -------------------------------------------------------------------------------- */

static int with_suffix(struct str s, const struct suffix *table, const char *what, uint64_t *ret,
                       struct err *err)
{
    size_t n = 0;
    uint64_t v;

    while (n < s.n && s.p[n] >= '0' && s.p[n] <= '9')
        n++;
    if (!str_u64(str_to(s, n), &v))
        return err_set(err, -EINVAL, "\"%.*s\" is no %s", STR_ARG(str_to(s, 40)), what);
    for (const struct suffix *t = table; t->text; t++) {
        if (!str_eq(str_from(s, n), str_c(t->text)))
            continue;
        if (__builtin_mul_overflow(v, t->factor, &v) || v > INT64_MAX)
            return err_set(err, -ERANGE, "\"%.*s\" is too large", STR_ARG(str_to(s, 40)));
        *ret = v;
        return 0;
    }
    return err_set(err, -EINVAL, "\"%.*s\" is no %s: %s", STR_ARG(str_to(s, 40)), what,
                   table == duration_suffix ? "a suffix ns, us, ms, s, m, h or d is needed"
                                            : "a suffix B, KiB, MiB, GiB or TiB is needed");
}

int conf_duration(struct str s, int64_t *ret_ns, struct err *err)
{
    uint64_t v;

    TRY(with_suffix(s, duration_suffix, "duration", &v, err));
    *ret_ns = (int64_t)v;
    return 0;
}

int conf_size(struct str s, uint64_t *ret, struct err *err)
{
    return with_suffix(s, size_suffix, "size", ret, err);
}

static int parse_bool(struct str s, bool *ret, struct err *err)
{
    if (str_eq(s, STR("on")) || str_eq(s, STR("true")) || str_eq(s, STR("yes")))
        *ret = true;
    else if (str_eq(s, STR("off")) || str_eq(s, STR("false")) || str_eq(s, STR("no")))
        *ret = false;
    else
        return err_set(err, -EINVAL, "\"%.*s\" is not on, off, true, false, yes or no",
                       STR_ARG(str_to(s, 40)));
    return 0;
}

static int parse_count(struct str s, bool percent, uint64_t *ret, struct err *err)
{
    uint64_t v;

    if (!str_u64(s, &v) || v > INT64_MAX)
        return err_set(err, -EINVAL, "\"%.*s\" is no %s (digits alone)", STR_ARG(str_to(s, 40)),
                       percent ? "percentage" : "count");
    *ret = v;
    return 0;
}

/* A limit as a person would write it in the file. */
static const char *limit_text(const struct conf_opt *o, int64_t v, char *ret, size_t n)
{
    const struct suffix *t = o->type == CONF_DURATION ? duration_suffix
                             : o->type == CONF_SIZE   ? size_suffix
                                                      : NULL;
    const struct suffix *best = t;

    for (; t && t->text; t++) {
        if (v > 0 && (uint64_t)v % t->factor == 0)
            best = t;
    }
    if (best)
        (void)snprintf(ret, n, "%" PRIu64 "%s", (uint64_t)v / best->factor, best->text);
    else
        (void)snprintf(ret, n, "%" PRId64, v);
    return ret;
}

static int check_range(const struct conf_opt *o, struct str value, int64_t v, struct err *err)
{
    char least[32], most[32];

    if ((o->min == 0 && o->max == 0) || (v >= o->min && v <= o->max))
        return 0;
    return err_set(err, -ERANGE, "\"%.*s\" is out of range: %s to %s", STR_ARG(str_to(value, 40)),
                   limit_text(o, o->min, least, sizeof least),
                   limit_text(o, o->max, most, sizeof most));
}

static void *field_of(const struct conf *c, const struct conf_opt *o)
{
    return (char *)c->target + o->offset;
}

static void set_string(char **field, struct str s)
{
    char *copy = xmalloc(s.n + 1);

    if (s.n > 0)
        memcpy(copy, s.p, s.n);
    copy[s.n] = '\0';
    free(*field);
    *field = copy;
}

static int set_value(const struct conf *c, const struct conf_opt *o, struct str s, struct err *err)
{
    void *field = field_of(c, o);
    uint64_t u = 0;
    bool on = false;

    switch (o->type) {
    case CONF_STR:
        set_string(field, s);
        return 0;
    case CONF_BOOL:
        TRY(parse_bool(s, &on, err));
        *(bool *)field = on;
        return 0;
    case CONF_COUNT:
    case CONF_PERCENT:
        TRY(parse_count(s, o->type == CONF_PERCENT, &u, err));
        break;
    case CONF_DURATION:
        TRY(with_suffix(s, duration_suffix, "duration", &u, err));
        break;
    case CONF_SIZE:
        TRY(with_suffix(s, size_suffix, "size", &u, err));
        break;
    }
    TRY(check_range(o, s, (int64_t)u, err));
    if (o->type == CONF_DURATION)
        *(int64_t *)field = (int64_t)u;
    else
        *(uint64_t *)field = u;
    return 0;
}

/* ---- the table ----------------------------------------------------------------------------- */

void conf_defaults(const struct conf *c)
{
    for (size_t i = 0; i < c->n_opt; i++) {
        const struct conf_opt *o = &c->opt[i];
        struct err err = {};
        int r;

        if (o->type == CONF_STR)
            *(char **)field_of(c, o) = NULL;
        if (!o->def && o->type != CONF_STR) {
            if (o->type == CONF_BOOL)
                *(bool *)field_of(c, o) = false;
            else
                *(uint64_t *)field_of(c, o) = 0;
            continue;
        }
        r = set_value(c, o, str_c(o->def), &err);
        if (r != 0)
            (void)fprintf(stderr, "default of %s.%s: %s\n", o->section, o->key, err.msg);
        assert(r == 0);
    }
}

void conf_free(const struct conf *c)
{
    for (size_t i = 0; i < c->n_opt; i++) {
        char **field;

        if (c->opt[i].type != CONF_STR)
            continue;
        field = field_of(c, &c->opt[i]);
        free(*field);
        *field = NULL;
    }
}

/* Where a value stands. */
struct place {
    uint32_t line; /* 0: on the command line */
    char text[80]; /* "FILE:LINE: " or "" */
};

static int note_line(const struct conf *c, size_t i, const struct place *at, struct err *err)
{
    if (!c->line)
        return 0;
    assert(c->n_opt <= CONF_OPTS_MAX);
    if (at->line && c->line[i])
        return err_set(err, -EINVAL, "%s%s.%s: given twice, first in line %" PRIu32, at->text,
                       c->opt[i].section, c->opt[i].key, c->line[i]);
    c->line[i] = at->line;
    return 0;
}

static int set_named(const struct conf *c, const struct place *at, struct str section,
                     struct str key, struct str value, struct err *err)
{
    const char *where = at->text;
    bool section_known = false;
    struct err why = {};
    int r;

    for (size_t i = 0; i < c->n_opt; i++) {
        const struct conf_opt *o = &c->opt[i];

        if (!str_eq(section, str_c(o->section)))
            continue;
        section_known = true;
        if (!str_eq(key, str_c(o->key)))
            continue;
        r = set_value(c, o, value, &why);
        if (r < 0)
            return err_set(err, r, "%s%s.%s: %s", where, o->section, o->key, why.msg);
        return note_line(c, i, at, err);
    }
    if (!section_known && c->more) {
        const struct conf_pair pair = {section, key, value};

        r = c->more(c->more_ctx, where, &pair, &why);
        if (r < 0)
            return err_set(err, r, "%s[%.*s] %.*s: %s", where, STR_ARG(str_to(section, 60)),
                           STR_ARG(str_to(key, 60)), why.msg);
        if (r == 0)
            return 0;
    }
    if (!section_known)
        return err_set(err, -EINVAL, "%sunknown section [%.*s]", where,
                       STR_ARG(str_to(section, 60)));
    return err_set(err, -EINVAL, "%sunknown key \"%.*s\" in section [%.*s]", where,
                   STR_ARG(str_to(key, 60)), STR_ARG(section));
}

int conf_set(const struct conf *c, struct str assignment, struct err *err)
{
    const struct place nowhere = {};
    size_t eq = str_find(assignment, '=');
    size_t dot = eq == SIZE_MAX ? SIZE_MAX : str_find(str_to(assignment, eq), '.');

    if (dot == SIZE_MAX)
        return err_set(err, -EINVAL, "\"%.*s\" is not section.key=value",
                       STR_ARG(str_to(assignment, 60)));
    return set_named(c, &nowhere, str_to(assignment, dot),
                     str_to(str_from(assignment, dot + 1), eq - dot - 1),
                     str_from(assignment, eq + 1), err);
}

/* ---- the file ------------------------------------------------------------------------------ */

struct reading {
    const struct conf *c;
    const char *path;
    FILE *f;
    uint32_t line;
    const char *refused; /* why a line was not given to the parser */
    struct err *err;
    int r;        /* of a value that was refused */
    int unread_r; /* of the file */
};

static void place(const char *path, uint32_t line, struct place *ret)
{
    size_t len = strlen(path);

    ret->line = line;
    /* the end of a long path tells more than its start */
    (void)snprintf(ret->text, sizeof ret->text, "%s:%" PRIu32 ": ",
                   len > 60 ? path + len - 60 : path, line);
}

/* inih asks for one line at a time; it gives no line numbers, silently splits long lines and takes
 * a NUL for their end. */
static char *read_line(char *to, int n, void *ctx)
{
    struct reading *rd = ctx;
    size_t len;

    if (rd->refused)
        return NULL;
    memset(to, 1, (size_t)n); /* the last NUL is then the one that fgets wrote */
    if (!fgets(to, n, rd->f)) {
        rd->unread_r = ferror(rd->f) ? -errno : 0;
        return NULL;
    }
    rd->line++;
    len = strlen(to);
    if (to + len != memrchr(to, '\0', (size_t)n)) {
        rd->refused = "a NUL byte in the line";
        return NULL;
    }
    if (len + 1 == (size_t)n && to[len - 1] != '\n' && !feof(rd->f)) {
        rd->refused = "the line is too long";
        return NULL;
    }
    /* inih takes it for more of the value before, and forgets the first part */
    if ((to[0] == ' ' || to[0] == '\t') && to[strspn(to, " \t\r\n")] != '\0') {
        rd->refused = "a line must not begin with a blank";
        return NULL;
    }
    return to;
}

static int on_value(void *ctx, const char *section, const char *name, const char *value)
{
    struct reading *rd = ctx;
    struct place at;
    int r;

    if (rd->r < 0)
        return 0;
    place(rd->path, rd->line, &at);
    if (strlen(section) > CONF_NAME_MAX || strlen(name) > CONF_NAME_MAX) {
        /* the parser cuts a byte later, without a word */
        rd->r = err_set(rd->err, -EINVAL, "%sname of section or key: at most %d bytes", at.text,
                        CONF_NAME_MAX);
        return 0;
    }
    r = set_named(rd->c, &at, str_c(section), str_c(name), str_c(value), rd->err);
    if (r < 0)
        rd->r = r;
    return r == 0;
}

int conf_read(const struct conf *c, const char *path, struct err *err)
{
    struct reading rd = {.c = c, .path = path, .err = err};
    struct place at;
    int bad_line;

    rd.f = fopen(path, "re");
    if (!rd.f)
        return err_set(err, -errno, "%s: %m", path);
    bad_line = ini_parse_stream(read_line, &rd, on_value, &rd);
    (void)fclose(rd.f);
    if (rd.r < 0)
        return rd.r;
    if (rd.unread_r < 0) /* a directory, for instance */
        return err_set(err, rd.unread_r, "%s: %s", path, strerrordesc_np(-rd.unread_r));
    if (rd.refused || bad_line != 0) {
        if (!rd.refused && bad_line > 0)
            rd.line = (uint32_t)bad_line;
        place(path, rd.line, &at);
        return err_set(err, -EINVAL, "%s%s", at.text,
                       rd.refused ? rd.refused : "neither [section], key = value nor a comment");
    }
    return 0;
}

void conf_place(const struct conf *c, const char *path, struct err *err)
{
    struct str msg = str_c(err->msg);

    for (size_t i = 0; path && c->line && i < c->n_opt; i++) {
        const struct conf_opt *o = &c->opt[i];
        struct err found = *err;
        struct place at;
        char name[2 * CONF_NAME_MAX + 2];
        size_t n;

        (void)snprintf(name, sizeof name, "%s.%s", o->section, o->key);
        n = strlen(name);
        if (!c->line[i] || !str_starts(msg, str_c(name)) || (msg.n > n && !strchr(": =", msg.p[n])))
            continue;
        place(path, c->line[i], &at);
        *err = (struct err){};
        (void)err_set(err, found.code, "%s%s", at.text, found.msg);
        return;
    }
}

/* ---- help ---------------------------------------------------------------------------------- */

static const char *type_text(enum conf_type t)
{
    switch (t) {
    case CONF_STR:
        return "text";
    case CONF_BOOL:
        return "on/off";
    case CONF_COUNT:
        return "count";
    case CONF_PERCENT:
        return "percent";
    case CONF_DURATION:
        return "duration";
    case CONF_SIZE:
        return "size";
    }
    return "";
}

static bool new_section(const struct conf *c, size_t i)
{
    return i == 0 || strcmp(c->opt[i].section, c->opt[i - 1].section) != 0;
}

void conf_print_help(const struct conf *c, FILE *to)
{
    for (size_t i = 0; i < c->n_opt; i++) {
        const struct conf_opt *o = &c->opt[i];
        char least[32], most[32];

        if (new_section(c, i))
            (void)fprintf(to, "%s[%s]\n", i ? "\n" : "", o->section);
        (void)fprintf(to, "; %s (%s", o->text, type_text(o->type));
        if (o->min != 0 || o->max != 0)
            (void)fprintf(to, ", %s to %s", limit_text(o, o->min, least, sizeof least),
                          limit_text(o, o->max, most, sizeof most));
        (void)fprintf(to, ")\n%s = %s\n", o->key, o->def ? o->def : "");
    }
}

void conf_print_markdown(const struct conf *c, FILE *to)
{
    (void)fprintf(to, "| section | key | type | default | least | most | meaning |\n");
    (void)fprintf(to, "|---|---|---|---|---|---|---|\n");
    for (size_t i = 0; i < c->n_opt; i++) {
        const struct conf_opt *o = &c->opt[i];
        bool range = o->min != 0 || o->max != 0;
        char least[32], most[32];

        (void)fprintf(to, "| `%s` | `%s` | %s | `%s` | %s | %s | %s |\n", o->section, o->key,
                      type_text(o->type), o->def ? o->def : "",
                      range ? limit_text(o, o->min, least, sizeof least) : "",
                      range ? limit_text(o, o->max, most, sizeof most) : "", o->text);
    }
}
