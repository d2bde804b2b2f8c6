// SPDX-License-Identifier: Apache-2.0
/* demo: the photo server without photos, alone; see photos.c. */
#include "demo/workload.h"

int main(int argc, char **argv)
{
    return photos_main(argc, argv);
}
