// SPDX-License-Identifier: Apache-2.0
/* Prints the names of the system calls that the agent's own filter lets pass, one a line. */
#include <stdio.h>

#include "agent/apart/sandbox.h"

int main(void)
{
    const char *s;

    for (size_t i = 0; (s = sandbox_call(i)); i++)
        (void)puts(s);
    return 0;
}
