// SPDX-License-Identifier: Apache-2.0
#pragma once

/*
 * `strata-agent record`: one capture of a command or of processes, into a capture file and, if
 * asked for, to a server. `strata record` (cli/record.c) executes it and makes the rest: formats,
 * summary, link. argv[0] is the verb. Returns the exit status: the command's own, 128 + n where a
 * signal ended it, 0 with -p; 125 ours, 126 not executable, 127 not found.
 */
int record_main(int argc, char **argv);
