// SPDX-License-Identifier: Apache-2.0
#include "server/memory.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/str.h"

#define MEMORY_MIN (UINT64_C(256) << 20)

/* The first line of a small file, without its end; "" if it cannot be read. */
static struct str line_read(const char *path, char *p, size_t n)
{
    FILE *f = fopen(path, "re");
    struct str s = {p, 0};

    if (!f)
        return s;
    if (fgets(p, (int)n, f)) {
        s.n = strlen(p);
        while (s.n && p[s.n - 1] == '\n')
            p[--s.n] = '\0';
    }
    (void)fclose(f);
    return s;
}

/* cgroups(7): the line "0::/path" names the cgroup of version 2. */
static bool cgroup_path(const char *proc_self_cgroup, char *ret, size_t n)
{
    FILE *f = fopen(proc_self_cgroup, "re");
    char line[1024];
    bool found = false;

    if (!f)
        return false;
    while (!found && fgets(line, sizeof line, f)) {
        struct str s = str_c(line);

        if (!str_starts(s, STR("0::/")))
            continue;
        if (line[s.n - 1] == '\n')
            line[--s.n] = '\0';
        found = snprintf(ret, n, "%s", line + 3) < (int)n;
    }
    (void)fclose(f);
    return found;
}

uint64_t memory_cgroup_limit(const char *sysfs, const char *proc_self_cgroup)
{
    char cgroup[1024], path[2048], text[64];
    uint64_t limit = 0, v = 0;

    if (!cgroup_path(proc_self_cgroup, cgroup, sizeof cgroup))
        return 0;
    for (;;) {
        char *slash;

        (void)snprintf(path, sizeof path, "%s%s/memory.max", sysfs, cgroup);
        if (str_u64(line_read(path, text, sizeof text), &v) && (!limit || v < limit))
            limit = v;
        slash = strrchr(cgroup, '/');
        if (!slash || !cgroup[0])
            return limit;
        *slash = '\0';
    }
}

static uint64_t min_u64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

int memory_plan_make(uint64_t wanted, struct memory_plan *ret, struct err *err)
{
    uint64_t ram = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    uint64_t cgroup = memory_cgroup_limit("/sys/fs/cgroup", "/proc/self/cgroup");
    uint64_t m = wanted;

    if (!m)
        m = cgroup && cgroup < ram ? cgroup / 5 * 4 : ram / 2;
    if (m < MEMORY_MIN)
        return err_set(err, -ENOMEM,
                       "limits.memory is %" PRIu64 " MiB%s: at least %" PRIu64 " MiB are needed",
                       m >> 20, wanted ? "" : " here (of cgroup or machine)", MEMORY_MIN >> 20);
    *ret = (struct memory_plan){.total = m,
                                .ingest = min_u64(UINT64_C(384) << 20, m / 4),
                                .head = m / 4,
                                .query = m / 4,
                                .dict = m / 8,
                                .cache = min_u64(UINT64_C(256) << 20, m / 16)};
    return 0;
}
