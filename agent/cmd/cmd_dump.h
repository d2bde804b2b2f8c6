// SPDX-License-Identifier: Apache-2.0
#pragma once

/* strata-agent dump: argv[0] is the verb. Exit status: 0, or 125 with the reason on stderr. */
int cmd_dump(int argc, char **argv);
