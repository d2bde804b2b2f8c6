// SPDX-License-Identifier: Apache-2.0
#include "base/capture.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "cli/answer.h"
#include "cli/local.h"
#include "cli/text.h"

enum {
    TRIES = 8,
    WAIT_MS = 250, /* doubling */
    WAIT_MOST_MS = 30000,
};

static int send_one(const struct cli_server *s, struct str body, struct capture_sent *c,
                    struct err *err)
{
    int64_t wait_ns = 0;
    int wait = WAIT_MS, r;

    for (int i = 0;; i++) {
        *err = (struct err){};
        r = cli_send_batch(s, body, &c->rejected, &wait_ns, err);
        if (r != -EAGAIN || i == TRIES - 1 || cli_stop)
            break;
        if (wait_ns > (int64_t)wait * NS_PER_MS)
            wait = wait_ns > WAIT_MOST_MS * NS_PER_MS ? WAIT_MOST_MS : (int)(wait_ns / NS_PER_MS);
        (void)poll(NULL, 0, wait);
        wait = wait * 2 < WAIT_MOST_MS ? wait * 2 : WAIT_MOST_MS;
    }
    if (r < 0)
        return r;
    if (r == CLI_DUPLICATE)
        c->duplicate++;
    else
        c->stored++;
    return 0;
}

static json_t *json_of(const struct buf *b)
{
    json_t *j = json_loadb(b->p ? b->p : "", b->n, 0, NULL);

    if (json_is_object(j))
        return j;
    json_decref(j);
    return NULL;
}

static int take(const struct cli_server *s, struct capture *f, struct capture_sent *c,
                struct err *err)
{
    switch (f->kind) {
    case CAPTURE_ABOUT:
        json_decref(c->about);
        c->about = json_of(&f->body);
        return 0;
    case CAPTURE_BATCH:
        return send_one(s, buf_view(&f->body), c, err);
    case CAPTURE_END:
        json_decref(c->end);
        c->end = json_of(&f->body);
        return 0;
    default:
        return 0; /* of a later writer */
    }
}

int capture_send(const struct cli_server *s, const char *path, struct capture_sent *ret,
                 struct err *err)
{
    struct capture f;
    int r;

    *ret = (struct capture_sent){};
    TRY(capture_open(&f, path, err));
    ret->changed = f.changed;
    while ((r = capture_next(&f, err)) == 0) {
        r = take(s, &f, ret, err);
        if (r < 0)
            break;
    }
    if (r == -EBADMSG) { /* what comes behind cannot be found; what came before is whole */
        ret->damaged = true;
        ret->cut = "a record is damaged, the rest was left";
        r = 0;
        *err = (struct err){};
    } else if (r == CAPTURE_CUT) {
        ret->cut = "the file ends inside a record";
        r = 0;
    } else if (r == CAPTURE_EOF) {
        ret->cut = ret->end ? NULL : "the recording did not come to its end";
        r = 0;
    }
    ret->whole = r == 0 && !ret->cut;
    capture_close(&f);
    return r;
}

void capture_sent_free(struct capture_sent *c)
{
    json_decref(c->about);
    json_decref(c->end);
    *c = (struct capture_sent){};
}

/* ---- where it is seen ---------------------------------------------------------------------- */

/* Just what was watched, so that none of it counts as not covered. Where the end is not known:
 * until the file was last written, a day at most. The first samples are a little older than the
 * file. */
static struct interval range_of(const struct capture_sent *c)
{
    struct interval t = {};

    if (answer_ns(c->end, "from_ns", &t.t0) && answer_ns(c->end, "to_ns", &t.t1) && t.t1.v > t.t0.v)
        return t;
    if (answer_ns(c->about, "begun_ns", &t.t0)) {
        t.t0.v -= t.t0.v % NS_PER_S;
        t.t1.v = t.t0.v + 86400 * NS_PER_S;
        if (c->changed.v > t.t0.v && c->changed.v < t.t1.v)
            t.t1.v = c->changed.v + NS_PER_S - c->changed.v % NS_PER_S;
        t.t0.v -= 2 * NS_PER_S;
    }
    return t;
}

void capture_view(const struct capture_sent *c, struct str type, struct capture_view *ret)
{
    struct interval t = range_of(c);
    struct str name = answer_text(json_object_get(c->about, "name"));
    struct buf b;

    buf_init(&b, sizeof ret->q - 1);
    buf_str(&b, type);
    if (name.n) {
        buf_cstr(&b, "{capture=\"");
        for (size_t i = 0; i < name.n; i++) {
            if (name.p[i] == '"' || name.p[i] == '\\')
                buf_chr(&b, '\\');
            buf_chr(&b, name.p[i]);
        }
        buf_cstr(&b, "\"}");
    }
    (void)snprintf(ret->q, sizeof ret->q, "%.*s", STR_ARG(buf_view(&b)));
    if (b.failed)
        (void)snprintf(ret->q, sizeof ret->q, "%.*s", STR_ARG(str_to(type, sizeof ret->q - 1)));
    buf_deinit(&b);
    (void)real_ns_format(t.t0, ret->from);
    (void)real_ns_format(t.t1, ret->to);
}

void capture_link(struct buf *out, const char *url, const struct capture_view *v,
                  const char *const *filters)
{
    struct str base = str_c(url);
    struct buf query;

    while (base.n && base.p[base.n - 1] == '/')
        base.n--;
    buf_init(&query, 64 << 10);
    cli_param(&query, "v", STR("1"));
    cli_param(&query, "q", str_c(v->q));
    cli_param(&query, "from", str_c(v->from));
    cli_param(&query, "to", str_c(v->to));
    for (; filters && *filters; filters++)
        cli_param(&query, "f", str_c(*filters));
    buf_str(out, base);
    buf_chr(out, '/');
    buf_str(out, buf_view(&query));
    buf_deinit(&query);
}

void capture_describe(const struct capture_sent *c, struct buf *out)
{
    const json_t *a = c->about;
    struct interval t = {};
    struct str command = answer_text(json_object_get(a, "command"));

    if (!command.n)
        command = answer_text(json_object_get(a, "name"));
    text_name(out, command.n ? command : STR("nobody says of what"));
    if (answer_ns(c->end, "from_ns", &t.t0) && answer_ns(c->end, "to_ns", &t.t1))
        buf_printf(out, ", %.1f s", (double)(t.t1.v - t.t0.v) / (double)NS_PER_S);
    if (json_is_integer(json_object_get(a, "rate")))
        buf_printf(out, ", %lld Hz", (long long)json_integer_value(json_object_get(a, "rate")));
    if (answer_text(json_object_get(a, "host")).n) {
        buf_cstr(out, ", on ");
        text_name(out, answer_text(json_object_get(a, "host")));
    }
    if (!c->whole)
        buf_printf(out, " - a part only: %s", c->cut ? c->cut : "it could not be read");
}
