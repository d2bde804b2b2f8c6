// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "agent/send/upload_private.h"
#include "base/time.h"

#define ANSWER_CAP      ((size_t)64 << 10)
#define TIMEOUT_S       60L
#define CONNECT_S       10L
#define MAX_RETRY_AFTER 3600

bool upload_url_is_loopback(const char *url)
{
    struct str u = str_c(url), host;
    size_t end;

    for (size_t i = 0; i + 3 <= u.n; i++) {
        if (memcmp(u.p + i, "://", 3) == 0) {
            u = str_from(u, i + 3);
            break;
        }
    }
    end = str_find(u, '/');
    host = str_to(u, end);
    end = str_rfind(host, '@');
    if (end != SIZE_MAX)
        host = str_from(host, end + 1);
    if (str_starts(host, STR("[::1]")))
        return true;
    end = str_find(host, ':');
    host = str_to(host, end);
    return str_eq(host, STR("localhost")) || (str_starts(host, STR("127.")) && host.n >= 9);
}

static size_t on_answer(char *p, size_t size, size_t n, void *ctx)
{
    struct buf *b = ctx;
    size_t room = b->cap - b->n;

    buf_add(b, p, size * n < room ? size * n : room);
    return size * n <= room ? size * n : 0; /* more than anyone needs: hang up */
}

static int on_progress(void *ctx, curl_off_t dt, curl_off_t dn, curl_off_t ut, curl_off_t un)
{
    const struct upload *u = ctx;

    (void)dt;
    (void)dn;
    (void)ut;
    (void)un;
    return atomic_load(&u->stop) && mono_now().v >= atomic_load(&u->stop_at);
}

static bool http_post(struct upload *u, struct upload_slot *s, struct str body)
{
    s->curl_err[0] = '\0';
    buf_reset(&s->answer);
    curl_easy_setopt(s->curl, CURLOPT_POSTFIELDS, body.p);
    curl_easy_setopt(s->curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)body.n);
    return curl_multi_add_handle(u->multi, s->curl) == CURLM_OK;
}

static void http_cancel(struct upload *u, struct upload_slot *s)
{
    curl_multi_remove_handle(u->multi, s->curl);
}

static void answer_of(const struct upload_slot *s, CURLcode c, struct upload_answer *ret)
{
    curl_off_t after = 0;

    *ret = (struct upload_answer){};
    curl_easy_getinfo(s->curl, CURLINFO_RESPONSE_CODE, &ret->status);
    curl_easy_getinfo(s->curl, CURLINFO_RETRY_AFTER, &after);
    if (after > 0)
        ret->retry_after_ns = (after < MAX_RETRY_AFTER ? after : MAX_RETRY_AFTER) * NS_PER_S;
    if (c != CURLE_OK && c != CURLE_WRITE_ERROR)
        ret->status = 0;
    if (ret->status == 200)
        ret->have_reply = wire_reply_decode(buf_view(&s->answer), &ret->reply, NULL) == 0;
    else if (ret->status && wire_error_decode(buf_view(&s->answer), &ret->error, NULL) < 0)
        ret->error = (struct wire_error){};
    if (ret->status == 0)
        (void)snprintf(ret->why, sizeof ret->why, "no answer: %.140s",
                       s->curl_err[0] ? s->curl_err : curl_easy_strerror(c));
}

static struct upload_slot *slot_of(struct upload *u, const CURL *curl)
{
    for (unsigned i = 0; i < SPOOL_IN_FLIGHT; i++)
        if (u->slot[i].curl == curl)
            return &u->slot[i];
    return NULL;
}

static struct upload_slot *http_next(struct upload *u, int wait_ms, struct upload_answer *ret)
{
    int running = 0, left = 0;
    CURLMsg *m;

    (void)curl_multi_perform(u->multi, &running);
    m = curl_multi_info_read(u->multi, &left);
    if (!m && running) {
        (void)curl_multi_poll(u->multi, NULL, 0, wait_ms, NULL);
        (void)curl_multi_perform(u->multi, &running);
        m = curl_multi_info_read(u->multi, &left);
    }
    if (!m || m->msg != CURLMSG_DONE)
        return NULL;
    struct upload_slot *s = slot_of(u, m->easy_handle);

    if (s)
        answer_of(s, m->data.result, ret);
    curl_multi_remove_handle(u->multi, m->easy_handle);
    return s;
}

/* ---- start and end ------------------------------------------------------------------------- */

static int set_header(struct upload *u, const char *text)
{
    struct curl_slist *l = curl_slist_append(u->headers, text);

    if (!l)
        return -ENOMEM;
    u->headers = l;
    return 0;
}

static int set_headers(struct upload *u)
{
    struct buf line;
    bool ok;

    buf_init(&line, 8192);
    if (u->token[0])
        buf_printf(&line, "Authorization: Bearer %s", u->token);
    buf_chr(&line, '\0');
    ok = set_header(u, "Content-Type: " WIRE_MEDIA_TYPE) == 0 &&
         set_header(u, "Content-Encoding: zstd") == 0 &&
         set_header(u, "Accept: " WIRE_MEDIA_TYPE) == 0 && set_header(u, "Expect:") == 0 &&
         (!u->token[0] || set_header(u, line.p) == 0);
    buf_deinit(&line);
    return ok ? 0 : -ENOMEM;
}

static void set_up(struct upload *u, struct upload_slot *s)
{
    curl_easy_setopt(s->curl, CURLOPT_URL, u->url);
    curl_easy_setopt(s->curl, CURLOPT_POST, 1L);
    curl_easy_setopt(s->curl, CURLOPT_HTTPHEADER, u->headers);
    curl_easy_setopt(s->curl, CURLOPT_USERAGENT, "strata-agent/" STRATA_VERSION);
    curl_easy_setopt(s->curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(s->curl, CURLOPT_PROXY, upload_url_is_loopback(u->url) ? "" : NULL);
    curl_easy_setopt(s->curl, CURLOPT_FOLLOWLOCATION, 0L);
    curl_easy_setopt(s->curl, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(s->curl, CURLOPT_TIMEOUT, TIMEOUT_S);
    curl_easy_setopt(s->curl, CURLOPT_CONNECTTIMEOUT, CONNECT_S);
    curl_easy_setopt(s->curl, CURLOPT_WRITEFUNCTION, on_answer);
    curl_easy_setopt(s->curl, CURLOPT_WRITEDATA, &s->answer);
    curl_easy_setopt(s->curl, CURLOPT_ERRORBUFFER, s->curl_err);
    curl_easy_setopt(s->curl, CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(s->curl, CURLOPT_XFERINFOFUNCTION, on_progress);
    curl_easy_setopt(s->curl, CURLOPT_XFERINFODATA, u);
    if (u->ca_file[0])
        curl_easy_setopt(s->curl, CURLOPT_CAINFO, u->ca_file);
}

static int http_open(struct upload *u, struct err *err)
{
    if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
        return err_set(err, -ENOMEM, "libcurl does not start");
    u->multi = curl_multi_init();
    if (!u->multi)
        return err_set(err, -ENOMEM, "libcurl: no handle");
    if (set_headers(u) < 0)
        return err_set(err, -ENOMEM, "libcurl: no memory for headers");
    for (unsigned i = 0; i < SPOOL_IN_FLIGHT; i++) {
        struct upload_slot *s = &u->slot[i];

        buf_init(&s->answer, ANSWER_CAP);
        s->curl = curl_easy_init();
        if (!s->curl)
            return err_set(err, -ENOMEM, "libcurl: no handle");
        set_up(u, s);
    }
    return 0;
}

static void http_close(struct upload *u)
{
    for (unsigned i = 0; i < SPOOL_IN_FLIGHT; i++) {
        if (u->slot[i].curl)
            curl_easy_cleanup(u->slot[i].curl);
        buf_deinit(&u->slot[i].answer);
    }
    if (u->multi)
        curl_multi_cleanup(u->multi);
    curl_slist_free_all(u->headers);
    curl_global_cleanup();
}

const struct upload_way upload_http = {.open = http_open,
                                       .close = http_close,
                                       .post = http_post,
                                       .next = http_next,
                                       .cancel = http_cancel};
