// SPDX-License-Identifier: Apache-2.0
#include "cli/agent_exec.h"
#include "cli/cli.h"

/* Options are the agent's: `strata validate --help` is what it says. */
int cli_validate(int argc, char **argv)
{
    return agent_exec("validate", argc, argv);
}
