// SPDX-License-Identifier: Apache-2.0
/*
 * A line is built in an array on the stack (a buf that is already as large as its cap never
 * allocates), so logging works when memory is short. One mutex orders lines and counts.
 */
#include "base/log.h"

#include <stdio.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/thread.h"
#include "base/time.h"

#define LINE_MAX_BYTES  8192
#define VALUE_MAX_BYTES 1024

static struct mutex mu = MUTEX_INIT;
static enum log_level level_max = LOG_INFO;
static const char *prog;
static uint32_t rate = 10;
static struct log_site *held; /* sites that ever held a line back */

void log_set_level(enum log_level max)
{
    mutex_lock(&mu);
    level_max = max;
    mutex_unlock(&mu);
}

void log_set_name(const char *program)
{
    mutex_lock(&mu);
    prog = program;
    mutex_unlock(&mu);
}

void log_rate(uint32_t lines_per_s)
{
    mutex_lock(&mu);
    rate = lines_per_s;
    mutex_unlock(&mu);
}

static bool is_plain(struct str s)
{
    for (size_t i = 0; i < s.n; i++) {
        unsigned char c = (unsigned char)s.p[i];

        if (c <= ' ' || c >= 0x7f || c == '"' || c == '=' || c == '\\')
            return false;
    }
    return s.n > 0;
}

/* Quoted: nothing in it can end the line, the value or move a terminal's cursor. */
static void put_value(struct buf *b, struct str s)
{
    bool cut = s.n > VALUE_MAX_BYTES;

    s = str_to(s, VALUE_MAX_BYTES);
    if (!cut && is_plain(s)) {
        buf_str(b, s);
        return;
    }
    buf_chr(b, '"');
    for (size_t at = 0; at < s.n;) {
        size_t n = str_utf8_next(str_from(s, at));
        unsigned char c = (unsigned char)s.p[at];
        bool c1 = n == 2 && c == 0xc2 && (unsigned char)s.p[at + 1] < 0xa0;

        if (c == '"' || c == '\\') {
            buf_chr(b, '\\');
            buf_chr(b, (char)c);
        } else if (c == '\n') {
            buf_cstr(b, "\\n");
        } else if (n == 0 || c < ' ' || c == 0x7f || c1) {
            buf_printf(b, "\\x%02x", c);
            n = 1;
        } else {
            buf_add(b, s.p + at, n);
        }
        at += n;
    }
    buf_cstr(b, cut ? "...\"" : "\"");
}

static void put_field(struct buf *b, const struct log_field *f)
{
    size_t before = b->n;

    buf_chr(b, ' ');
    buf_cstr(b, f->key);
    buf_chr(b, '=');
    switch (f->kind) {
    case LOG_F_STR:
        put_value(b, f->s);
        break;
    case LOG_F_I64:
        buf_i64(b, (int64_t)f->u);
        break;
    case LOG_F_U64:
        buf_u64(b, f->u);
        break;
    case LOG_F_HEX:
        buf_hex64(b, f->u);
        break;
    }
    if (b->failed)
        b->n = before; /* whole fields only */
}

static void put_time(struct buf *b)
{
    int64_t now = real_now().v;
    char text[40];

    (void)real_ns_format((real_ns){now - now % NS_PER_S}, text);
    buf_printf(b, "ts=%.19s.%03dZ", text, (int)(now % NS_PER_S / NS_PER_MS));
}

static void write_line_locked(enum log_level level, const char *event, size_t n,
                              const struct log_field *fields, uint64_t suppressed) REQUIRES(&mu)
{
    static const char *const names[] = {"error", "warn", "info", "debug"};
    char bytes[LINE_MAX_BYTES + 64];
    struct buf b = {.p = bytes, .room = LINE_MAX_BYTES, .cap = LINE_MAX_BYTES};
    size_t at = 0;

    put_time(&b);
    if (prog)
        put_field(&b, &LOG_C("prog", prog));
    buf_printf(&b, " level=%s event=%s", names[level & 3], event);
    if (suppressed > 0)
        put_field(&b, &LOG_U("suppressed", suppressed));
    for (size_t i = 0; i < n && !b.failed; i++)
        put_field(&b, &fields[i]);
    if (b.failed) {
        b = (struct buf){.p = bytes, .n = b.n, .room = sizeof bytes, .cap = sizeof bytes};
        buf_cstr(&b, " cut=1");
    }
    buf_chr(&b, '\n');
    while (at < b.n) {
        ssize_t w = write(STDERR_FILENO, b.p + at, b.n - at);

        if (w <= 0)
            return; /* nowhere to say it */
        at += (size_t)w;
    }
}

void log_write(struct log_site *site, enum log_level level, const char *event, size_t n,
               const struct log_field *fields)
{
    int64_t second = mono_now().v / NS_PER_S;

    mutex_lock(&mu);
    if (level > level_max) {
        mutex_unlock(&mu);
        return;
    }
    if (site->second != second) {
        site->second = second;
        site->n = 0;
    }
    if (site->n >= rate) {
        site->suppressed++;
        if (!site->event) {
            site->event = event;
            site->next = held;
            held = site;
        }
    } else {
        site->n++;
        write_line_locked(level, event, n, fields, site->suppressed);
        site->suppressed = 0;
    }
    mutex_unlock(&mu);
}

void log_flush(void)
{
    mutex_lock(&mu);
    for (struct log_site *s = held; s; s = s->next) {
        struct log_field of = LOG_C("of", s->event);

        if (s->suppressed > 0)
            write_line_locked(LOG_WARN, "log_suppressed", 1, &of, s->suppressed);
        s->suppressed = 0;
    }
    mutex_unlock(&mu);
}
