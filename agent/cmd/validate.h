// SPDX-License-Identifier: Apache-2.0
#pragma once

/* strata-agent validate: controlled programs on this machine, measured beside known. argv[0] is the
 * verb. Exit status: 0 no claim failed, 1 one did, 77 nothing can sample here, 125 trouble. */
int validate_main(int argc, char **argv);
