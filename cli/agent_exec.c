// SPDX-License-Identifier: Apache-2.0
#include "cli/agent_exec.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/local.h"

#define TROUBLE 125

int agent_exec(const char *verb, int argc, char **argv)
{
    char program[PROGRAM_PATH];
    const char **args = calloc((size_t)argc + 2, sizeof *args);
    int e = ENOMEM;

    program_find("strata-agent", program);
    if (args) {
        args[0] = "strata-agent";
        args[1] = verb;
        for (int i = 1; i < argc; i++)
            args[i + 1] = argv[i];
        (void)execvp(program, (char *const *)(const void *)args);
        e = errno;
    }
    (void)fprintf(stderr, "strata: %s: %s\n", program, strerrordesc_np(e));
    free(args);
    return TROUBLE;
}
