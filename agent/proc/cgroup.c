// SPDX-License-Identifier: Apache-2.0
#include "agent/proc/cgroup.h"

#include <ctype.h>

#define ID_DIGITS 64

static bool all_hex(struct str s)
{
    for (size_t i = 0; i < s.n; i++) {
        if (!isxdigit((unsigned char)s.p[i]))
            return false;
    }
    return s.n > 0;
}

/* "docker-ID.scope", "cri-containerd-ID.scope", "crio-ID.scope", "ID" */
static struct str container_of(struct str part)
{
    if (str_ends(part, STR(".scope")))
        part.n -= sizeof ".scope" - 1;
    if (part.n < ID_DIGITS)
        return (struct str){NULL, 0};
    if (part.n > ID_DIGITS) {
        char before = part.p[part.n - ID_DIGITS - 1];

        if (before != '-' && before != ':')
            return (struct str){NULL, 0};
        part = str_from(part, part.n - ID_DIGITS);
    }
    return all_hex(part) ? part : (struct str){NULL, 0};
}

/* "kubepods-burstable-pod0b5c_....slice", "pod0b5c-..." */
static struct str pod_of(struct str part)
{
    if (str_ends(part, STR(".slice")))
        part.n -= sizeof ".slice" - 1;
    for (size_t i = 0; i + 3 + 36 <= part.n; i++) {
        struct str uid = {part.p + i + 3, 36};

        if (!str_eq((struct str){part.p + i, 3}, STR("pod")) || i + 3 + 36 != part.n)
            continue;
        for (size_t k = 0; k < uid.n; k++) {
            bool dash = k == 8 || k == 13 || k == 18 || k == 23;

            if (dash ? uid.p[k] != '-' && uid.p[k] != '_' : !isxdigit((unsigned char)uid.p[k]))
                return (struct str){NULL, 0};
        }
        return uid;
    }
    return (struct str){NULL, 0};
}

static void parse_path(struct str path, struct cgroup *c)
{
    struct str rest = path;

    c->path = path;
    while (rest.n) {
        size_t slash = str_find(rest, '/');
        struct str part = str_to(rest, slash);
        struct str found = container_of(part);

        if (found.n)
            c->container = found;
        found = pod_of(part);
        if (found.n)
            c->pod = found;
        if (str_ends(part, STR(".service")) && part.n > sizeof ".service" - 1 &&
            !str_starts(part, STR("user@")))
            c->unit = str_to(part, part.n - (sizeof ".service" - 1));
        rest = str_from(rest, slash == SIZE_MAX ? rest.n : slash + 1);
    }
}

void cgroup_parse(struct str file, struct cgroup *ret)
{
    struct cgroup v2 = {}, v1 = {};

    while (file.n) {
        size_t nl = str_find(file, '\n');
        struct str line = str_to(file, nl);
        size_t colon = str_find(line, ':');
        struct str rest = str_from(line, colon == SIZE_MAX ? line.n : colon + 1);
        size_t second = str_find(rest, ':');

        if (second != SIZE_MAX) {
            struct str path = str_from(rest, second + 1);

            if (second == 0 && str_eq(str_to(line, colon), STR("0"))) {
                parse_path(path, &v2);
            } else if (v1.container.n == 0) {
                struct cgroup c = {};

                parse_path(path, &c);
                if (c.container.n || (v1.path.n <= 1 && c.path.n > 1))
                    v1 = c;
            }
        }
        file = str_from(file, nl == SIZE_MAX ? file.n : nl + 1);
    }
    /* hybrid hosts have both: the unified line decides unless only v1 knows a container */
    *ret = v2.path.n > 1 && (v2.container.n || v1.container.n == 0) ? v2 : v1.path.n ? v1 : v2;
}
