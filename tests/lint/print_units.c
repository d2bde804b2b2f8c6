// SPDX-License-Identifier: Apache-2.0
#include <stdio.h>

#include "base/unit.h"

/* The first four columns of the table in docs/units.md. */
int main(void)
{
    for (ptype_id id = 1; id < PTYPE_BUILTIN_END; id++) {
        const struct ptype *t = ptype_builtin(id);

        if (t)
            printf("| %u | `%s` | %s | %s |\n", t->id, t->name, t->unit,
                   t->kind == KIND_SUM ? "sum" : "level");
    }
    return 0;
}
