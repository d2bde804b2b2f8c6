// SPDX-License-Identifier: Apache-2.0
#include "agent/cmd/check_pid.h"

#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "agent/proc/procread.h"
#include "agent/proc/who.h"
#include "base/time.h"

/* A stranger's text on somebody's terminal. */
static void put(FILE *to, const char *name, struct str s, const char *by)
{
    struct labels_counts counts = {};
    struct arena a;
    struct str v;

    arena_init(&a, (size_t)64 << 10);
    v = labels_value(s, &a, &counts);
    (void)fprintf(to, "%-16s %.*s%s%s\n", name, STR_ARG(v), by && by[0] ? "    by " : "",
                  by ? by : "");
    arena_deinit(&a);
}

static void put_identity(FILE *to, const struct procread_identity *id, uint32_t pid,
                         const char *state_dir)
{
    int64_t tick = NS_PER_S / sysconf(_SC_CLK_TCK);
    struct target_key key = {.pidns = id->pidns, .pid = id->pid};
    char text[40];
    bool kept;

    key.start.v = procread_boot_time("/proc", state_dir, &kept).v + (int64_t)id->start_ticks * tick;
    if (!procread_host_id("/etc", key.host))
        memset(key.host, 0, sizeof key.host);
    (void)fprintf(to, "%-16s %016" PRIx64 "%s\n", "target", target_id(&key),
                  kept ? "" : "    (the boot time is not kept: it may move)");
    (void)fprintf(to, "%-16s %u on the host, %" PRIu64 " in pid namespace %" PRIu64 "\n", "pid",
                  pid, id->pid, id->pidns);
    (void)fprintf(to, "%-16s %s\n", "start", real_ns_format(key.start, text));
}

static const char *label_by(const struct rules_result *r, struct str name)
{
    for (uint32_t i = 0; i < r->n_label; i++) {
        if (str_eq(r->label[i].name, name))
            return r->label_by[i];
    }
    return str_eq(name, STR("service")) ? r->service_by : "";
}

static void put_who(FILE *to, const struct agent_conf *conf, const struct procread_facts *f,
                    struct arena *a)
{
    const struct rules_who who = who_of_facts(f);
    struct label label[LABELS_MAX];
    struct labels_counts counts = {};
    struct rules_result r;
    uint32_t n;

    rules_apply(conf->rules, &who, a, &counts, &r);
    n = who_labels(f, &conf->want, r.service, &r, a, &counts, label);
    for (uint32_t i = 0; i < f->n_env; i++) {
        char name[96];

        (void)snprintf(name, sizeof name, "env %.*s", STR_ARG(f->env[i].name));
        put(to, name, f->env[i].value, f->env[i].local ? NULL : "[labels] env, sent");
    }
    for (uint32_t i = 0; i < r.n_matched; i++)
        (void)fprintf(to, "%-16s %s\n", "rule matches", r.matched[i]);
    for (uint32_t i = 0; i < n; i++) {
        char name[LABELS_NAME + 8];

        (void)snprintf(name, sizeof name, "label %.*s", STR_ARG(label[i].name));
        put(to, name, label[i].value, label_by(&r, label[i].name));
    }
    (void)fprintf(to, "%-16s %s%s%s\n", "profiled", r.drop ? "no, its time is filtered" : "yes",
                  r.drop_by[0] ? ", by " : "", r.drop_by);
}

int check_pid(const struct agent_conf *conf, uint32_t pid, const char *state_dir, FILE *to)
{
    struct procread_opts o = {.cmdline = PROCREAD_CMDLINE_MASKED, .want = &conf->want};
    static struct procread_facts f;
    struct procread_identity id;
    struct err err = {};
    struct arena a;
    int r;

    arena_init(&a, (size_t)1 << 20);
    r = procread_identity("/proc", pid, &id, &err);
    if (r == 0)
        r = procread_facts("/proc", pid, &o, &a, &f, &err);
    if (r < 0) {
        (void)fprintf(stderr, "strata-agent: process %u: %s\n", pid, err.msg);
    } else {
        put_identity(to, &id, pid, state_dir);
        if (f.exe.n)
            put(to, "exe", f.exe, NULL);
        else
            (void)fprintf(to, "%-16s -    (it has none, or may not be read by this user)\n", "exe");
        put(to, "command line", f.masked, NULL);
        put(to, "comm", f.comm, NULL);
        put(to, "cgroup", f.cgroup, NULL);
        put_who(to, conf, &f, &a);
    }
    arena_deinit(&a);
    return r < 0 ? 1 : 0;
}
