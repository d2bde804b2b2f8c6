// SPDX-License-Identifier: Apache-2.0
#include "agent/proc/who.h"

#include <ctype.h>

#define USER_LABELS 16 /* of STRATA_LABELS */

struct rules_who who_of_facts(const struct procread_facts *f)
{
    return (struct rules_who){.exe = f->exe,
                              .cmdline = f->masked,
                              .cgroup = f->cgroup,
                              .comm = f->comm,
                              .service = f->service,
                              .env = f->env,
                              .n_env = f->n_env};
}

struct adding {
    struct label *l;
    uint32_t n;
    struct arena *a;
    struct labels_counts *counts;
};

static void add(struct adding *w, struct str name, struct str value)
{
    labels_add(w->l, &w->n, LABELS_MAX, (struct label){name, value}, w->a, w->counts);
}

static struct str first_of(struct str a, struct str b)
{
    return a.n ? a : b;
}

/* Variables that the user listed. */
static void add_listed(struct adding *w, const struct procread_facts *f,
                       const struct environ_want *want)
{
    for (uint32_t i = 0; want && i < want->n; i++) {
        struct str name = str_c(want->name[i].name);
        char lower[sizeof want->name[i].name];

        if (!want->name[i].label || want->name[i].local)
            continue;
        for (size_t k = 0; k <= name.n; k++)
            lower[k] = (char)tolower((unsigned char)name.p[k]);
        add(w, str_c(lower), environ_get(f->env, f->n_env, name));
    }
}

static void add_user(struct adding *w, struct str list)
{
    struct label item;

    for (uint32_t i = 0; labels_next(&list, &item); i++) {
        if (i < USER_LABELS)
            add(w, item.name, item.value);
        else
            w->counts->too_many++;
    }
}

uint32_t who_labels(const struct procread_facts *f, const struct environ_want *want,
                    struct str service, const struct rules_result *rules, struct arena *a,
                    struct labels_counts *n, struct label ret[LABELS_MAX])
{
    struct adding w = {ret, 0, a, n};
    struct str host = environ_get(f->env, f->n_env, STR("HOSTNAME"));
#define ENV(name) environ_get(f->env, f->n_env, STR(name))

    add(&w, STR("service"), service.n ? service : STR("unknown"));
    for (uint32_t i = 0; rules && i < rules->n_label; i++)
        add(&w, rules->label[i].name, rules->label[i].value);
    add(&w, STR("container"), f->container);
    if (f->pod.n)
        add(&w, STR("pod"), first_of(ENV("POD_NAME"), host));
    else if (f->container.n && !str_starts(f->container, host))
        add(&w, STR("container_name"), host);
    add(&w, STR("pod"), ENV("POD_NAME"));
    add(&w, STR("version"), ENV("STRATA_VERSION"));
    add(&w, STR("rank"), first_of(ENV("RANK"), ENV("SLURM_PROCID")));
    add(&w, STR("job"), first_of(ENV("JOB_NAME"), ENV("SLURM_JOB_ID")));
    add_listed(&w, f, want);
    add_user(&w, ENV("STRATA_LABELS"));
#undef ENV
    return w.n;
}

void who_make(const struct who_conf *c, const struct procread_facts *f, struct arena *a,
              struct labels_counts *n, struct who *ret)
{
    const struct rules_who in = who_of_facts(f);
    struct rules_result r;

    *ret = (struct who){.label = arena_array(a, struct label, LABELS_MAX),
                        .env = arena_array(a, struct environ_var, f->n_env ? f->n_env : 1)};
    rules_apply(c->rules, &in, a, n, &r);
    ret->drop = r.drop;
    ret->service = arena_str(a, labels_value(r.service, a, n));
    if (ret->label)
        ret->n_label = who_labels(f, c->want, ret->service, &r, a, n, ret->label);
    for (uint32_t i = 0; ret->env && i < f->n_env; i++)
        ret->env[ret->n_env++] = (struct environ_var){
            arena_str(a, f->env[i].name), arena_str(a, f->env[i].value), f->env[i].local};
}
