// SPDX-License-Identifier: Apache-2.0
#include "agent/proc/rules.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/proc/glob.h"
#include "base/buf.h"

#define CONDITIONS   16
#define SELECTS      32
#define TEMPLATE_MAX 256
#define CAPTURE_USED 1024 /* bytes of one in a text: a label's value is shorter */
#define PREFIX       "rule "

enum field {
    EXE,
    CMDLINE,
    CGROUP,
    COMM,
    SERVICE,
    ENV,
    N_FIELD
};

static const char *const field_name[N_FIELD] = {"exe",  "cmdline", "cgroup",
                                                "comm", "service", "env"};

struct condition {
    enum field field;
    char *env;
    struct glob *glob;
};

struct text {
    char *key, *template;
};

struct rule {
    char *name;
    char where[80]; /* of its last line: "FILE:LINE: " */
    uint32_t n_condition, n_label, n_capture;
    struct condition condition[CONDITIONS];
    enum action {
        NO_ACTION,
        KEEP,
        DROP
    } action;
    char *service;
    struct text label[RULES_LABELS];
};

struct rules {
    uint32_t n, n_include, n_exclude;
    struct rule rule[RULES_MAX];
    struct condition include[SELECTS], exclude[SELECTS];
};

struct rules *rules_new(void)
{
    return xcalloc(1, sizeof(struct rules));
}

static void conditions_free(struct condition *c, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        glob_free(c[i].glob);
        free(c[i].env);
    }
}

struct rules *rules_free(struct rules *r)
{
    if (!r)
        return NULL;
    for (uint32_t i = 0; i < r->n; i++) {
        struct rule *u = &r->rule[i];

        conditions_free(u->condition, u->n_condition);
        for (uint32_t k = 0; k < u->n_label; k++) {
            free(u->label[k].key);
            free(u->label[k].template);
        }
        free(u->service);
        free(u->name);
    }
    conditions_free(r->include, r->n_include);
    conditions_free(r->exclude, r->n_exclude);
    free(r);
    return NULL;
}

static char *copy(struct str s)
{
    char *c = xmalloc(s.n + 1);

    if (s.n)
        memcpy(c, s.p, s.n);
    c[s.n] = '\0';
    return c;
}

/* ---- the settings -------------------------------------------------------------------------- */

static struct rule *rule_of(struct rules *r, struct str name, struct err *err)
{
    for (uint32_t i = 0; i < r->n; i++) {
        if (str_eq(str_c(r->rule[i].name), name))
            return &r->rule[i];
    }
    if (r->n == RULES_MAX) {
        (void)err_set(err, -E2BIG, "more than %d rules", RULES_MAX);
        return NULL;
    }
    r->rule[r->n].name = copy(name);
    return &r->rule[r->n++];
}

/* The field that a key names; N_FIELD: none. */
static enum field field_of(struct str key, struct str *ret_env)
{
    *ret_env = (struct str){NULL, 0};
    for (unsigned i = 0; i < ENV; i++) {
        if (str_eq(key, str_c(field_name[i])))
            return (enum field)i;
    }
    if (!str_starts(key, STR("env.")) || key.n == 4)
        return N_FIELD;
    *ret_env = str_from(key, 4);
    return ENV;
}

static int add_condition(struct condition *c, uint32_t *n, uint32_t max, enum field f,
                         struct str env, struct str pattern, struct err *err)
{
    for (uint32_t i = 0; i < *n && max == CONDITIONS; i++) {
        if (c[i].field == f && (f != ENV || str_eq(str_c(c[i].env), env)))
            return err_set(err, -EEXIST, "given twice");
    }
    if (*n == max)
        return err_set(err, -E2BIG, "more than %u conditions", max);
    TRY(glob_new(pattern, &c[*n].glob, err));
    c[*n].field = f;
    c[*n].env = f == ENV ? copy(env) : NULL;
    ++*n;
    return 0;
}

static int check_template(struct str s, struct err *err)
{
    if (s.n == 0)
        return err_set(err, -EINVAL, "an empty text");
    if (s.n > TEMPLATE_MAX)
        return err_set(err, -E2BIG, "a text of %zu bytes, at most %d", s.n, TEMPLATE_MAX);
    for (size_t i = 0; i < s.n; i++) {
        if (s.p[i] != '$')
            continue;
        if (++i == s.n || (s.p[i] != '$' && (s.p[i] < '1' || s.p[i] > '9')))
            return err_set(err, -EINVAL, "\"$\" stands before 1 to 9 or \"$\"");
    }
    return 0;
}

static int set_label(struct rule *u, struct str key, struct str value, struct err *err)
{
    if (!labels_name_ok(key) || str_eq(key, STR("service")))
        return err_set(err, -EINVAL, "no name of a label (for the service: service = TEXT)");
    for (uint32_t i = 0; i < u->n_label; i++) {
        if (str_eq(str_c(u->label[i].key), key))
            return err_set(err, -EEXIST, "given twice");
    }
    if (u->n_label == RULES_LABELS)
        return err_set(err, -E2BIG, "more than %d labels", RULES_LABELS);
    TRY(check_template(value, err));
    u->label[u->n_label++] = (struct text){copy(key), copy(value)};
    return 0;
}

static int set_action(struct rule *u, struct str value, struct err *err)
{
    if (u->action != NO_ACTION)
        return err_set(err, -EEXIST, "given twice");
    if (str_eq(value, STR("keep")))
        u->action = KEEP;
    else if (str_eq(value, STR("drop")))
        u->action = DROP;
    else
        return err_set(err, -EINVAL, "\"%.*s\" is not keep or drop", STR_ARG(str_to(value, 40)));
    return 0;
}

int rules_set(void *ctx, const char *where, const struct conf_pair *pair, struct err *err)
{
    struct rules *r = ctx;
    struct str name, env, section = pair->section, key = pair->key, value = pair->value;
    enum field f;
    struct rule *u;

    if (!str_starts(section, STR(PREFIX)))
        return CONF_NOT_MINE;
    name = str_from(section, sizeof PREFIX - 1);
    if (!labels_name_ok(name))
        return err_set(err, -EINVAL, "a rule is named by letters, digits, _ . - /");
    u = rule_of(r, name, err);
    if (!u)
        return -E2BIG;
    (void)snprintf(u->where, sizeof u->where, "%s", where);
    if (str_eq(key, STR("action")))
        return set_action(u, value, err);
    if (str_starts(key, STR("label.")))
        return set_label(u, str_from(key, 6), value, err);
    if (str_eq(key, STR("service"))) {
        if (u->service)
            return err_set(err, -EEXIST, "given twice");
        TRY(check_template(value, err));
        u->service = copy(value);
        return 0;
    }
    f = field_of(str_starts(key, STR("match.")) ? str_from(key, 6) : key, &env);
    if (f == N_FIELD)
        return err_set(err, -EINVAL,
                       "unknown key; conditions: exe cmdline cgroup comm env.NAME match.service, "
                       "effects: action service label.KEY");
    return add_condition(u->condition, &u->n_condition, CONDITIONS, f, env, value, err);
}

static int set_select(struct condition *c, uint32_t *n, const char *list, const char *key,
                      struct err *err)
{
    struct str rest = str_c(list), env;
    struct err why = {};
    struct label item;

    while (labels_next(&rest, &item)) {
        enum field f = item.name.n ? field_of(item.name, &env) : SERVICE;
        int r;

        if (f != SERVICE && f != EXE && f != CGROUP)
            return err_set(err, -EINVAL,
                           "select.%s: \"%.*s\": must be service=GLOB, exe=GLOB or cgroup=GLOB",
                           key, STR_ARG(str_to(item.name, 40)));
        r = add_condition(c, n, SELECTS, f, (struct str){NULL, 0}, item.value, &why);
        if (r < 0)
            return err_set(err, r, "select.%s: %s", key, why.msg);
    }
    return 0;
}

int rules_select(struct rules *r, const char *include, const char *exclude, struct err *err)
{
    TRY(set_select(r->include, &r->n_include, include, "include", err));
    return set_select(r->exclude, &r->n_exclude, exclude, "exclude", err);
}

static int check_captures(const struct rule *u, const char *template, struct err *err)
{
    for (const char *p = template; p && *p; p++) {
        if (*p != '$')
            continue;
        p++;
        if (*p != '$' && (uint32_t)(*p - '0') > u->n_capture)
            return err_set(err, -EINVAL,
                           "%s[rule %s]: $%c, but its conditions have %u runs of * or ?", u->where,
                           u->name, *p, u->n_capture);
    }
    return 0;
}

int rules_finish(struct rules *r, struct environ_want *w, struct err *err)
{
    for (uint32_t i = 0; i < r->n; i++) {
        struct rule *u = &r->rule[i];

        if (u->n_condition == 0)
            return err_set(err, -EINVAL, "%s[rule %s]: no condition", u->where, u->name);
        if (u->action == NO_ACTION && !u->service && u->n_label == 0)
            return err_set(err, -EINVAL, "%s[rule %s]: no effect", u->where, u->name);
        for (uint32_t k = 0; k < u->n_condition; k++) {
            u->n_capture += glob_captures(u->condition[k].glob);
            if (u->condition[k].field == ENV)
                TRY(environ_look(w, str_c(u->condition[k].env), err));
        }
        if (u->n_capture > GLOB_CAPTURES)
            u->n_capture = GLOB_CAPTURES;
        TRY(check_captures(u, u->service, err));
        for (uint32_t k = 0; k < u->n_label; k++)
            TRY(check_captures(u, u->label[k].template, err));
    }
    return 0;
}

/* ---- a process ----------------------------------------------------------------------------- */

static struct str text_of(const struct rules_who *w, struct str service, const struct condition *c)
{
    switch (c->field) {
    case EXE:
        return w->exe;
    case CMDLINE:
        return w->cmdline;
    case CGROUP:
        return w->cgroup;
    case COMM:
        return w->comm;
    case SERVICE:
        return service;
    case ENV:
        return environ_get(w->env, w->n_env, str_c(c->env));
    case N_FIELD:
        break;
    }
    return (struct str){NULL, 0};
}

/* A variable that is not set matches nothing, not even "*". */
static bool is_set(const struct rules_who *w, const struct condition *c)
{
    if (c->field != ENV)
        return true;
    for (uint32_t i = 0; i < w->n_env; i++) {
        if (str_eq(w->env[i].name, str_c(c->env)))
            return true;
    }
    return false;
}

static bool holds(const struct rule *u, const struct rules_who *w, struct str service,
                  struct str *capture)
{
    struct str of[GLOB_CAPTURES];
    uint32_t n = 0;

    for (uint32_t i = 0; i < u->n_condition; i++) {
        const struct condition *c = &u->condition[i];

        if (!is_set(w, c) || !glob_match(c->glob, text_of(w, service, c), of))
            return false;
        for (uint32_t k = 0; k < glob_captures(c->glob) && n < GLOB_CAPTURES; k++)
            capture[n++] = of[k];
    }
    return true;
}

static struct str expand(const char *template, const struct str *capture, struct arena *a,
                         struct labels_counts *n)
{
    struct buf b;
    struct str s;

    buf_init(&b, (size_t)TEMPLATE_MAX * CAPTURE_USED);
    for (const char *p = template; *p; p++) {
        if (*p != '$')
            buf_chr(&b, *p);
        else if (*++p == '$')
            buf_chr(&b, '$');
        else
            buf_str(&b, str_to(capture[*p - '1'], CAPTURE_USED));
    }
    s = labels_value(buf_view(&b), a, n);
    if (s.p == b.p)
        s = arena_str(a, s);
    buf_deinit(&b);
    return s;
}

static void set_labels(const struct rule *u, const struct str *capture, struct arena *a,
                       struct labels_counts *n, struct rules_result *ret)
{
    for (uint32_t i = 0; i < u->n_label; i++) {
        uint32_t had = ret->n_label;
        struct label l = {str_c(u->label[i].key), expand(u->label[i].template, capture, a, n)};

        labels_add(ret->label, &ret->n_label, RULES_LABELS, l, a, n);
        if (ret->n_label > had)
            ret->label_by[had] = u->name;
    }
}

static bool any_matches(const struct condition *c, uint32_t n, const struct rules_who *w,
                        struct str service)
{
    for (uint32_t i = 0; i < n; i++) {
        if (glob_match(c[i].glob, text_of(w, service, &c[i]), NULL))
            return true;
    }
    return false;
}

void rules_apply(const struct rules *r, const struct rules_who *who, struct arena *a,
                 struct labels_counts *n, struct rules_result *ret)
{
    enum action action = NO_ACTION;

    *ret = (struct rules_result){.service = who->service, .drop_by = "", .service_by = ""};
    for (uint32_t i = 0; r && i < r->n; i++) {
        const struct rule *u = &r->rule[i];
        struct str capture[GLOB_CAPTURES] = {};

        if (!holds(u, who, ret->service, capture))
            continue;
        ret->matched[ret->n_matched++] = u->name;
        if (action == NO_ACTION && u->action != NO_ACTION) {
            action = u->action;
            ret->drop_by = u->name;
        }
        if (u->service && !ret->service_by[0]) {
            struct str s = expand(u->service, capture, a, n);

            if (s.n) { /* captures may be empty: no service is called "" */
                ret->service = s;
                ret->service_by = u->name;
            }
        }
        set_labels(u, capture, a, n, ret);
    }
    ret->drop = action == DROP;
    if (!r || action != NO_ACTION)
        return;
    if (any_matches(r->exclude, r->n_exclude, who, ret->service))
        ret->drop_by = "select.exclude";
    else if (r->n_include && !any_matches(r->include, r->n_include, who, ret->service))
        ret->drop_by = "select.include";
    ret->drop = ret->drop_by[0] != '\0';
}
