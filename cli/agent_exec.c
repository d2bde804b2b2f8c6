// SPDX-License-Identifier: Apache-2.0
#include "cli/agent_exec.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/str.h"

#define PATH_BYTES 4096
#define TROUBLE    125

/* Beside this program, or where the build leaves it; else its plain name, for execvp(3). */
static void find(char ret[static PATH_BYTES])
{
    static const char *const in[] = {"", "../agent/"};
    char self[PATH_BYTES - 64];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    size_t dir;

    self[n < 0 ? 0 : n] = '\0';
    dir = str_rfind(str_c(self), '/') + 1; /* SIZE_MAX + 1: 0 */
    self[dir] = '\0';
    for (size_t i = 0; dir && i < sizeof in / sizeof *in; i++) {
        (void)snprintf(ret, PATH_BYTES, "%s%sstrata-agent", self, in[i]);
        if (access(ret, X_OK) == 0)
            return;
    }
    (void)snprintf(ret, PATH_BYTES, "strata-agent");
}

int agent_exec(const char *verb, int argc, char **argv)
{
    char program[PATH_BYTES];
    const char **args = calloc((size_t)argc + 2, sizeof *args);
    int e = ENOMEM;

    find(program);
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
