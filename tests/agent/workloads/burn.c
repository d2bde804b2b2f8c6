// SPDX-License-Identifier: Apache-2.0
/* demo/burn.c as a program of its own. */
#include "demo/workload.h"

int main(int argc, char **argv)
{
    return burn_main(argc, argv);
}
