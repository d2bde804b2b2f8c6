// SPDX-License-Identifier: Apache-2.0
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#include "proto/fault_private.h"

int wire_fault_set(struct wire_fault *fault, struct err *err, int code,
                   const struct wire_fault_why *why, const char *field, ...)
{
    char place[sizeof fault->field];
    va_list ap;

    va_start(ap, field);
    if (vsnprintf(place, sizeof place, field, ap) < 0)
        place[0] = '\0';
    va_end(ap);
    if (fault) {
        *fault = (struct wire_fault){.reason = why->reason,
                                     .setting = why->setting,
                                     .limit = why->limit,
                                     .actual = why->actual,
                                     .too_large = why->too_large};
        memcpy(fault->field, place, sizeof place);
    }
    if (why->setting)
        return err_set(err, code, "batch%s%s: %s: %" PRIu64 ", limit %s = %" PRIu64,
                       place[0] ? ": " : "", place, why->reason, why->actual, why->setting,
                       why->limit);
    return err_set(err, code, "batch%s%s: %s", place[0] ? ": " : "", place, why->reason);
}

void wire_limits_default(struct wire_limits *ret)
{
    *ret = (struct wire_limits){
        .body = (size_t)16 << 20,
        .inflated = (size_t)64 << 20,
        .arena = (size_t)128 << 20,
        .nesting = 32,
        .unknown_fields = 10000,
        .members = 1024,
        .batch =
            {
                .age_ns = INT64_C(7) * 86400 * NS_PER_S,
                .future_ns = INT64_C(600) * NS_PER_S,
                .samples = 1000000,
                .streams = 1024,
                .entries = 1000000,
                .depth = 1024,
                .name_bytes = 65535,
                .labels = 32,
                .label_name_bytes = 128,
                .label_value_bytes = 256,
                .attributes = 16,
                .series_per_service = 10000,
                .series = 100000,
            },
    };
}
