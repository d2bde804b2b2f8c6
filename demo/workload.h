// SPDX-License-Identifier: Apache-2.0
#pragma once

/*
 * Programs whose CPU time, stacks and steps are known, because they say themselves what they did:
 * for `strata validate`, the demo and the tests. Each has the arguments of a main() and returns its
 * exit status; how to call it and what it prints stands at the top of its file.
 */
int photos_main(int argc, char **argv);
int burn_main(int argc, char **argv);
int blocked_main(int argc, char **argv);
int steps_main(int argc, char **argv);
int syscalls_main(int argc, char **argv); /* workload.c */
int children_main(int argc, char **argv); /* workload.c */
