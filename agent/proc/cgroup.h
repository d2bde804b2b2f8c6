// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/str.h"

/*
 * What /proc/PID/cgroup (cgroups(7)) says of a process. All results are parts of the input,
 * "" where there is none. Pure, any thread.
 */
struct cgroup {
    struct str path;      /* of the unified hierarchy, else of the v1 line with a container */
    struct str container; /* id: the last component with 64 hex digits */
    struct str pod;       /* uid after "pod", as the path spells it */
    struct str unit;      /* the last "NAME.service" but user@N.service; without ".service" */
};

void cgroup_parse(struct str file, struct cgroup *ret);
