// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdint.h>

#include "base/err.h"
#include "base/str.h"

/*
 * Log lines on stderr, logfmt, one write(2) each:
 *     ts=2026-11-29T13:00:00.123Z level=warn event=batch_late agent=... late_ms=12
 * Values are escaped and repaired, so a line is a line whatever is in them. Each call site writes
 * at most 10 lines a second (log_rate()); what is held back is counted exactly and said in the
 * site's next line (suppressed=N), or by log_flush(). Any thread. Library code logs at LOG_DEBUG
 * only; whoever handles an error logs it, once.
 */
enum log_level {
    LOG_ERROR = 0,
    LOG_WARN = 1,
    LOG_INFO = 2,
    LOG_DEBUG = 3,
};

struct log_field {
    const char *key;
    enum {
        LOG_F_STR,
        LOG_F_I64,
        LOG_F_U64,
        LOG_F_HEX,
    } kind;
    struct str s;
    uint64_t u;
};

#define LOG_S(k, v)   ((struct log_field){.key = (k), .kind = LOG_F_STR, .s = (v)})
#define LOG_C(k, v)   ((struct log_field){.key = (k), .kind = LOG_F_STR, .s = str_c(v)})
#define LOG_I(k, v)   ((struct log_field){.key = (k), .kind = LOG_F_I64, .u = (uint64_t)(int64_t)(v)})
#define LOG_U(k, v)   ((struct log_field){.key = (k), .kind = LOG_F_U64, .u = (uint64_t)(v)})
#define LOG_X(k, v)   ((struct log_field){.key = (k), .kind = LOG_F_HEX, .u = (uint64_t)(v)})
#define LOG_ERR(errp) LOG_C("error", (errp)->msg)

struct log_site {
    int64_t second; /* the rest is private */
    uint32_t n;
    uint64_t suppressed;
    const char *event;
    struct log_site *next;
};

void log_set_level(enum log_level max); /* default LOG_INFO */
void log_set_name(const char *program); /* adds prog=NAME; static string */
void log_rate(uint32_t lines_per_s);    /* per call site; default 10 */
void log_write(struct log_site *site, enum log_level level, const char *event, size_t n,
               const struct log_field *fields);

/* Say now what is held back: one line per site that has something. At the end of a program. */
void log_flush(void);

/* log_event(LOG_WARN, "batch_late", LOG_S("agent", id), LOG_I("late_ms", ms)); */
#define log_event(level, event, ...)                                                               \
    do {                                                                                           \
        static struct log_site site_;                                                              \
        const struct log_field f_[] = {__VA_ARGS__ __VA_OPT__(, )(struct log_field){}};            \
        log_write(&site_, (level), (event), sizeof f_ / sizeof f_[0] - 1, f_);                     \
    } while (0)
