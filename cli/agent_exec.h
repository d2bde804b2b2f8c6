// SPDX-License-Identifier: Apache-2.0
#pragma once

/*
 * The verbs that the agent does: this process becomes `strata-agent VERB ARG...`, found beside this
 * program, in the build tree, else by PATH. argv[0] is "strata VERB". Returns only if that fails:
 * the exit status, 125.
 */
int agent_exec(const char *verb, int argc, char **argv);
