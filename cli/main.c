// SPDX-License-Identifier: Apache-2.0
#include <argp.h>
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"

const char *argp_program_version = "strata " STRATA_VERSION;

static const struct {
    const char *verb;
    int (*run)(int argc, char **argv);
    const char *text;
} verbs[] = {
    {"record", cli_record, "one capture of a command or a process: summary, link or file"},
    {"view", cli_view, "look at a capture file in the browser; needs no server"},
    {"top", cli_top, "functions by self time, total and samples"},
    {"flame", cli_flame, "a flame graph to a file: folded stacks, SVG, pprof, speedscope"},
    {"diff", cli_diff, "what changed between two ranges or two selectors"},
    {"dump", cli_dump, "stacks of all threads of a process, now; needs no server"},
    {"validate", cli_validate, "measured beside known, on this machine; needs no server"},
    {"agent", cli_agent, "strata-agent on this machine: status, check"},
    {"export", cli_export, "profiles to a file: pprof, folded, speedscope, SVG, text, JSON"},
    {"import", cli_import, "send a capture file to a server"},
    {"backup", cli_backup, "a coherent copy of the running store"},
    {"check", cli_check, "is a data directory sound? needs no server"},
    {"store", cli_store, "parts, sizes and rows of a data directory"},
};

static void help(FILE *to)
{
    (void)fprintf(
        to, "Usage: strata VERB [OPTION...]\nRecords, asks a running stratad, or looks into a data "
            "directory.\n\n");
    for (size_t i = 0; i < sizeof verbs / sizeof verbs[0]; i++)
        (void)fprintf(to, "  %-8s %s\n", verbs[i].verb, verbs[i].text);
    (void)fprintf(to, "\n`strata VERB --help` lists the options of a verb.\n");
}

int main(int argc, char **argv)
{
    static char name[64];

    argp_err_exit_status = CLI_TROUBLE;
    if (argc >= 2 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "help") == 0)) {
        help(stdout);
        return CLI_OK;
    }
    if (argc >= 2 && strcmp(argv[1], "--version") == 0) {
        (void)puts(argp_program_version);
        return CLI_OK;
    }
    for (size_t i = 0; argc >= 2 && i < sizeof verbs / sizeof verbs[0]; i++)
        if (strcmp(argv[1], verbs[i].verb) == 0) {
            (void)snprintf(name, sizeof name, "strata %s", verbs[i].verb);
            argv[1] = name;
            return verbs[i].run(argc - 1, argv + 1);
        }
    if (argc >= 2)
        (void)fprintf(stderr, "strata: no verb \"%.40s\"\n", argv[1]);
    help(stderr);
    return CLI_TROUBLE;
}
