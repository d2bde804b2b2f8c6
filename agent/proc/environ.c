// SPDX-License-Identifier: Apache-2.0
#include "agent/proc/environ.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "agent/proc/cmdline.h"

static struct environ_name *find(struct environ_want *w, struct str name)
{
    for (uint32_t i = 0; i < w->n; i++) {
        if (str_eq(str_c(w->name[i].name), name))
            return &w->name[i];
    }
    return NULL;
}

static int add(struct environ_want *w, struct str name, bool local, bool label, struct err *err)
{
    struct environ_name *e = find(w, name);

    if (e) {
        e->local &= local;
        return 0;
    }
    if (name.n == 0 || name.n >= sizeof w->name[0].name)
        return err_set(err, -EINVAL, "\"%.*s\" is no name of a variable: 1 to 63 bytes",
                       STR_ARG(str_to(name, 60)));
    for (size_t i = 0; i < name.n; i++) {
        unsigned char c = (unsigned char)name.p[i];

        if (c >= 0x80 || (!isalnum(c) && c != '_'))
            return err_set(err, -EINVAL, "\"%.*s\" is no name of a variable",
                           STR_ARG(str_to(name, 60)));
    }
    if (w->n == ENVIRON_MAX)
        return err_set(err, -E2BIG, "more than %d variables", ENVIRON_MAX);
    e = &w->name[w->n++];
    (void)snprintf(e->name, sizeof e->name, "%.*s", STR_ARG(name));
    e->local = local;
    e->label = label;
    return 0;
}

void environ_init(struct environ_want *w)
{
    static const char *const always[] = {"STRATA_SERVICE", "STRATA_VERSION", "STRATA_LABELS"};

    *w = (struct environ_want){};
    for (size_t i = 0; i < sizeof always / sizeof *always; i++)
        (void)add(w, str_c(always[i]), false, false, NULL); /* there is room, the names are good */
    (void)add(w, STR("HOSTNAME"), true, false, NULL);
}

static bool in_default(struct str name)
{
    struct str all = STR(ENVIRON_DEFAULT);

    while (all.n) {
        size_t comma = str_find(all, ',');

        if (str_eq(str_to(all, comma), name))
            return true;
        all = str_from(all, comma == SIZE_MAX ? all.n : comma + 1);
    }
    return false;
}

int environ_allow(struct environ_want *w, struct str list, struct err *err)
{
    while (list.n) {
        size_t comma = str_find(list, ',');
        struct str name = str_to(list, comma);

        while (name.n && name.p[0] == ' ')
            name = str_from(name, 1);
        while (name.n && name.p[name.n - 1] == ' ')
            name.n--;
        TRY(add(w, name, false, !in_default(name), err));
        list = str_from(list, comma == SIZE_MAX ? list.n : comma + 1);
    }
    return 0;
}

int environ_look(struct environ_want *w, struct str name, struct err *err)
{
    return add(w, name, true, false, err);
}

uint32_t environ_pick(const struct environ_want *w, struct str block, struct arena *a,
                      struct environ_var ret[ENVIRON_MAX])
{
    bool seen[ENVIRON_MAX] = {};
    struct str item;
    uint32_t n = 0;

    while (n < w->n && cmdline_next(&block, &item)) {
        size_t eq = str_find(item, '=');

        for (uint32_t i = 0; eq != SIZE_MAX && i < w->n; i++) {
            if (seen[i] || !str_eq(str_to(item, eq), str_c(w->name[i].name)))
                continue;
            seen[i] = true;
            ret[n++] = (struct environ_var){
                .name = arena_str(a, str_to(item, eq)),
                .value = arena_str(a, str_to(str_from(item, eq + 1), ENVIRON_VALUE)),
                .local = w->name[i].local};
            break;
        }
    }
    return n;
}

struct str environ_get(const struct environ_var *v, uint32_t n, struct str name)
{
    for (uint32_t i = 0; i < n; i++) {
        if (str_eq(v[i].name, name))
            return v[i].value;
    }
    return (struct str){NULL, 0};
}
