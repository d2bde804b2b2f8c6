// SPDX-License-Identifier: Apache-2.0
#include "agent/proc/proc_private.h"

struct procread_facts proc_facts_of(const struct proc *p)
{
    struct procread_facts f = {.exe = p->exe,
                               .cmdline = p->cmdline,
                               .masked = p->masked,
                               .comm = p->comm,
                               .cgroup = p->cgroup,
                               .container = p->container,
                               .pod = p->pod,
                               .service = p->own_service,
                               .exe_deleted = p->flags & TARGET_EXE_DELETED,
                               .kthread = p->kthread};

    f.n_env = p->n_env < ENVIRON_MAX ? p->n_env : ENVIRON_MAX;
    for (uint32_t i = 0; i < f.n_env; i++)
        f.env[i] = p->env[i];
    return f;
}
