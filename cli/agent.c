// SPDX-License-Identifier: Apache-2.0
/* `strata agent VERB...` is `strata-agent VERB...` on this machine. */
#include <stdio.h>
#include <string.h>

#include "cli/agent_exec.h"
#include "cli/cli.h"

int cli_agent(int argc, char **argv)
{
    if (argc >= 2 && strcmp(argv[1], "--help") != 0)
        return agent_exec(argv[1], argc - 1, argv + 1);
    (void)fprintf(argc < 2 ? stderr : stdout,
                  "Usage: strata agent VERB [OPTION...]\n"
                  "Runs strata-agent on this machine.\n\n"
                  "  status   what the agent here counts, its rate, its spool; --json\n"
                  "  check    what this machine allows\n\n"
                  "`strata-agent --help` lists all.\n");
    return argc < 2 ? CLI_TROUBLE : CLI_OK;
}
