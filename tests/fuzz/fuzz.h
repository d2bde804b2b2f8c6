// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* What must hold for every input: else the program ends with the place. */
#define FUZZ_CHECK(cond)                                                                           \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            (void)fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #cond);                       \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

/* Called by libFuzzer, or by replay.c for each file of a corpus. Always 0. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

/* What a target saw, for those that mutate.c feeds too. Optional. */
void fuzz_report(void);
