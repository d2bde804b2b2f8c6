// SPDX-License-Identifier: Apache-2.0
#include "base/loss.h"

#include <assert.h>

static const struct loss_info info[LOSS_N] = {
#define X(ID, kind, name, text) [LOSS_##ID] = {LOSS_KIND_##kind, STR(name), text},
    LOSS_TABLE(X)
#undef X
};

const struct loss_info *loss_info(enum loss_reason r)
{
    assert(r < LOSS_N);
    return &info[r];
}

bool loss_name_ok(struct str s)
{
    if (s.n < 1 || s.n > 32)
        return false;
    for (size_t i = 0; i < s.n; i++) {
        char c = s.p[i];

        if (!(c >= 'a' && c <= 'z') && !(c >= '0' && c <= '9') && c != '_')
            return false;
    }
    return true;
}
