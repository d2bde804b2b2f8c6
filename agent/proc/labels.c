// SPDX-License-Identifier: Apache-2.0
#include "agent/proc/labels.h"

#include <ctype.h>
#include <inttypes.h>

#include "base/buf.h"
#include "base/hash.h"

#define HASH_TAIL 9 /* "~" and 8 digits */

bool labels_name_ok(struct str name)
{
    if (name.n == 0 || name.n > LABELS_NAME)
        return false;
    for (size_t i = 0; i < name.n; i++) {
        unsigned char c = (unsigned char)name.p[i];

        if (c >= 0x80 || !(isalpha(c) || c == '_' ||
                           (i > 0 && (isdigit(c) || c == '.' || c == '-' || c == '/'))))
            return false;
    }
    return true;
}

static bool clean(struct str s)
{
    for (size_t i = 0; i < s.n; i++) {
        unsigned char c = (unsigned char)s.p[i];

        if (c < 0x20 || c == 0x7f)
            return false;
    }
    return str_utf8_ok(s);
}

static void append_clean(struct buf *out, struct str s)
{
    while (s.n) {
        unsigned char c = (unsigned char)s.p[0];
        size_t n = str_utf8_next(s);

        if (n == 0 || c < 0x20 || c == 0x7f) {
            buf_printf(out, "\\x%02x", c);
            n = 1;
        } else {
            buf_str(out, str_to(s, n));
        }
        s = str_from(s, n);
    }
}

/* At most n bytes, not through the midst of a character. */
static struct str utf8_to(struct str s, size_t n)
{
    if (s.n <= n)
        return s;
    while (n > 0 && ((unsigned char)s.p[n] & 0xc0) == 0x80)
        n--;
    return str_to(s, n);
}

struct str labels_value(struct str s, struct arena *a, struct labels_counts *n)
{
    struct str whole = s, ret;
    struct buf b;

    if (s.n <= LABELS_VALUE && clean(s))
        return s;
    buf_init(&b, (size_t)16 << 10);
    if (!clean(s)) {
        n->bad_text++;
        append_clean(&b, str_to(s, 2 * (size_t)LABELS_VALUE)); /* more does not fit anyway */
        s = buf_view(&b);
    }
    if (s.n > LABELS_VALUE || whole.n > 2 * (size_t)LABELS_VALUE) {
        struct buf c;

        n->cut++;
        buf_init(&c, 1024);
        buf_str(&c, utf8_to(s, LABELS_VALUE - HASH_TAIL));
        buf_printf(&c, "~%08" PRIx32, (uint32_t)hash_str(whole));
        ret = arena_str(a, buf_view(&c));
        buf_deinit(&c);
    } else {
        ret = arena_str(a, s);
    }
    buf_deinit(&b);
    return ret;
}

void labels_add(struct label *l, uint32_t *n_l, uint32_t max, struct label add, struct arena *a,
                struct labels_counts *n)
{
    struct label done;

    if (add.value.n == 0)
        return;
    if (!labels_name_ok(add.name)) {
        n->bad_name++;
        return;
    }
    for (uint32_t i = 0; i < *n_l; i++) {
        if (str_eq(l[i].name, add.name))
            return;
    }
    if (*n_l == max) {
        n->too_many++;
        return;
    }
    done = (struct label){arena_str(a, add.name), labels_value(add.value, a, n)};
    if (done.value.p == add.value.p)
        done.value = arena_str(a, add.value);
    if (done.name.n && done.value.n)
        l[(*n_l)++] = done;
}

static struct str trim(struct str s)
{
    while (s.n && (s.p[0] == ' ' || s.p[0] == '\t'))
        s = str_from(s, 1);
    while (s.n && (s.p[s.n - 1] == ' ' || s.p[s.n - 1] == '\t'))
        s.n--;
    return s;
}

bool labels_next(struct str *list, struct label *ret)
{
    while (list->n) {
        size_t comma = str_find(*list, ',');
        struct str item = trim(str_to(*list, comma));
        size_t eq = str_find(item, '=');

        *list = str_from(*list, comma == SIZE_MAX ? list->n : comma + 1);
        if (item.n == 0)
            continue;
        *ret = eq == SIZE_MAX
                   ? (struct label){{NULL, 0}, item}
                   : (struct label){trim(str_to(item, eq)), trim(str_from(item, eq + 1))};
        return true;
    }
    return false;
}
