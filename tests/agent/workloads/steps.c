// SPDX-License-Identifier: Apache-2.0
/* demo/steps.c as a program of its own. */
#include "demo/workload.h"

int main(int argc, char **argv)
{
    return steps_main(argc, argv);
}
