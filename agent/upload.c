// SPDX-License-Identifier: Apache-2.0
#include "agent/upload.h"

#include <curl/curl.h>
#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/arena.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/map.h"
#include "base/thread.h"
#include "base/time.h"
#include "proto/wire.h"

#define ANSWER_CAP      ((size_t)64 << 10)
#define BODY_CAP        ((size_t)64 << 20)
#define ARENA_CAP       ((size_t)256 << 20)
#define MAX_KNOWN       (UINT32_C(1) << 18)
#define BACKOFF_NS      NS_PER_S
#define BACKOFF_MAX     30 /* times the first */
#define REFUSED_NS      (60 * NS_PER_S)
#define OUTAGE_NS       (30 * NS_PER_S)
#define TIMEOUT_S       60L
#define CONNECT_S       10L
#define MAX_RETRY_AFTER 3600
#define TRIES_INTERNAL  3

struct upload {
    struct upload_conf conf;
    char *url, *token, *ca_file;
    struct spool *spool;
    pthread_t thread;
    atomic_bool stop;
    _Atomic int64_t stop_at; /* CLOCK_MONOTONIC */
    /* the thread's */
    CURL *curl;
    struct curl_slist *headers;
    struct map known;
    struct wire_limits limits;
    uint64_t random;
    uint32_t failures; /* in a row */
    int64_t down_since;
    bool draining; /* after an outage: slowly */
    bool whole;    /* send the complete form next */
    struct buf answer;
    struct mutex mu; /* stats */
    struct upload_stats stats;
};

/* ---- small things -------------------------------------------------------------------------- */

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

static void say(struct upload *u, const char *state)
{
    mutex_lock(&u->mu);
    if (strcmp(u->stats.state, state) != 0) {
        (void)snprintf(u->stats.state, sizeof u->stats.state, "%s", state);
        log_event(strcmp(state, "ok") == 0 ? LOG_INFO : LOG_WARN, "upload", LOG_C("state", state));
    }
    mutex_unlock(&u->mu);
}

/* 0 .. n - 1 */
static int64_t jitter(struct upload *u, int64_t n)
{
    u->random = hash_mix(u->random + UINT64_C(0x9e3779b97f4a7c15));
    return n > 0 ? (int64_t)(u->random % (uint64_t)n) : 0;
}

static int64_t backoff(struct upload *u)
{
    int64_t first = u->conf.backoff_ns ? u->conf.backoff_ns : BACKOFF_NS;
    int64_t most = first;

    for (uint32_t i = 1; i < u->failures && most < first * BACKOFF_MAX; i++)
        most *= 2;
    if (most > first * BACKOFF_MAX)
        most = first * BACKOFF_MAX;
    /* after a long outage all agents would come at once */
    if (mono_now().v - u->down_since > OUTAGE_NS)
        most = first * BACKOFF_MAX;
    return jitter(u, most) + most / 16;
}

/* ---- forms --------------------------------------------------------------------------------- */

static bool is_known(void *ctx, uint64_t hash)
{
    const struct upload *u = ctx;
    uint64_t v;

    return map_get(&u->known, hash, &v);
}

/* The batch as it was made; it lives in a. */
static int unpack(struct upload *u, const struct spool_batch *b, struct arena *a, struct buf *raw,
                  struct batch *ret, struct err *err)
{
    TRY(wire_inflate(b->body, &u->limits, raw, NULL, err));
    return wire_decode(buf_view(raw), &u->limits, (real_ns){b->info.covers.t1.v}, a, ret, NULL,
                       NULL, err);
}

static bool nothing_known(void *ctx, uint64_t hash)
{
    (void)ctx;
    (void)hash;
    return false;
}

/*
 * The form that travels, compressed into out: sent now, with nodes that the server holds by their
 * hash alone, or complete. Sent is not when the batch was made: the server takes its distance to
 * the receipt for the difference of the clocks, and a batch may have waited hours. The identity
 * with its content digest stays: it is that of the spooled form.
 */
static int travelling(struct upload *u, struct batch *whole, bool complete, struct arena *a,
                      struct buf *out, bool *ret_complete, struct err *err)
{
    struct batch brief;
    struct buf plain;
    int r;

    whole->clock.sent = real_now();
    TRY(wire_shorten(whole, complete ? nothing_known : is_known, u, a, &brief, err));
    buf_init(&plain, BODY_CAP);
    r = wire_encode(&brief, &plain, NULL, err);
    if (r == 0)
        r = wire_compress(buf_view(&plain), out, err);
    buf_deinit(&plain);
    if (r == 0)
        *ret_complete = brief.n_known == 0;
    return r;
}

static void learn(struct upload *u, const struct batch *whole)
{
    if (u->known.n + whole->n_node > MAX_KNOWN)
        map_clear(&u->known);
    for (uint32_t i = 1; i < whole->n_node; i++)
        (void)map_put(&u->known, whole->node[i].hash, 1);
}

/* ---- one request --------------------------------------------------------------------------- */

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

struct answer {
    long status;            /* 0: none */
    int64_t retry_after_ns; /* 0: not said */
    char why[160];
};

static void post(struct upload *u, struct str body, struct answer *ret)
{
    char curl_err[CURL_ERROR_SIZE] = "";
    curl_off_t after = 0;
    CURLcode c;

    *ret = (struct answer){};
    buf_reset(&u->answer);
    curl_easy_setopt(u->curl, CURLOPT_POSTFIELDS, body.p);
    curl_easy_setopt(u->curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)body.n);
    curl_easy_setopt(u->curl, CURLOPT_ERRORBUFFER, curl_err);
    c = curl_easy_perform(u->curl);
    curl_easy_setopt(u->curl, CURLOPT_ERRORBUFFER, NULL);
    curl_easy_getinfo(u->curl, CURLINFO_RESPONSE_CODE, &ret->status);
    curl_easy_getinfo(u->curl, CURLINFO_RETRY_AFTER, &after);
    if (after > 0)
        ret->retry_after_ns = (after < MAX_RETRY_AFTER ? after : MAX_RETRY_AFTER) * NS_PER_S;
    if (c != CURLE_OK && c != CURLE_WRITE_ERROR)
        ret->status = 0;
    if (ret->status == 0)
        (void)snprintf(ret->why, sizeof ret->why, "no answer: %.140s",
                       curl_err[0] ? curl_err : curl_easy_strerror(c));
}

static bool reason_is(const struct wire_error *e, const char *reason)
{
    return strcmp(e->reason, reason) == 0;
}

/* ---- what an answer means ------------------------------------------------------------------ */

static void again(struct upload *u, const struct spool_batch *b, int64_t wait_ns, const char *why)
{
    say(u, why);
    if (u->failures++ == 0)
        u->down_since = mono_now().v;
    spool_retry(u->spool, b, mono_now().v + wait_ns);
}

static void give_up(struct upload *u, const struct spool_batch *b, enum spool_drop why,
                    const struct answer *a, const struct wire_error *e)
{
    log_event(LOG_ERROR, "batch_dropped", LOG_U("seq", b->seq), LOG_C("why", spool_drop_name(why)),
              LOG_I("status", a->status), LOG_C("reason", e->reason), LOG_C("message", e->message));
    spool_drop(u->spool, b, why);
    u->failures = 0;
}

static void accepted(struct upload *u, const struct spool_batch *b, const struct wire_reply *r,
                     const struct batch *whole, size_t sent_bytes)
{
    int64_t now = mono_now().v;

    if (u->failures)
        u->draining = now - u->down_since > OUTAGE_NS;
    u->failures = 0;
    if (whole)
        learn(u, whole);
    mutex_lock(&u->mu);
    u->stats.known = u->known.n;
    u->stats.rejected_rows += r->rejected_rows;
    u->stats.max_bytes = r->max_bytes;
    u->stats.min_interval_ns = (int64_t)r->min_interval_ms * NS_PER_MS;
    u->stats.last_ok = now;
    u->stats.short_bytes += sent_bytes;
    u->stats.full_bytes += b->body.n;
    mutex_unlock(&u->mu);
    if (r->rejected_rows)
        log_event(LOG_WARN, "rows_refused", LOG_U("seq", b->seq), LOG_U("rows", r->rejected_rows));
    say(u, "ok");
    spool_done(u->spool, b, r->status == WIRE_DUPLICATE);
}

static void refused(struct upload *u, const struct spool_batch *b, const struct answer *a)
{
    char text[160];
    const char *what = a->status == 401   ? "token missing or unknown: set server.token_file"
                       : a->status == 403 ? "the token may not send: it needs the role ingest"
                                          : "no Strata server at this URL: set server.url";

    (void)snprintf(text, sizeof text, "HTTP %ld: %s", a->status, what);
    again(u, b, u->conf.refused_ns ? u->conf.refused_ns : REFUSED_NS, text);
}

static void on_conflict(struct upload *u, const struct spool_batch *b, const struct answer *a,
                        const struct wire_error *e, bool was_whole)
{
    if (reason_is(e, "dict_miss") && !was_whole) {
        map_clear(&u->known);
        u->whole = true;
        mutex_lock(&u->mu);
        u->stats.dict_miss++;
        u->stats.known = 0;
        mutex_unlock(&u->mu);
        spool_retry(u->spool, b, 0);
    } else {
        give_up(u, b, reason_is(e, "seq_too_old") ? SPOOL_DROP_SEQ_OLD : SPOOL_DROP_CONFLICT, a, e);
    }
}

static void on_busy(struct upload *u, const struct spool_batch *b, const struct answer *a,
                    const struct wire_error *e)
{
    int64_t ra = a->retry_after_ns;
    char text[160];

    if (ra == 0 && e->retry_after_ms)
        ra = (int64_t)e->retry_after_ms * NS_PER_MS;
    (void)snprintf(text, sizeof text, "HTTP %ld: %s", a->status,
                   e->reason[0] ? e->reason : "the server asks to wait");
    again(u, b, ra ? ra + jitter(u, ra / 5) : backoff(u), text);
}

static void on_status(struct upload *u, const struct spool_batch *b, const struct answer *a,
                      bool was_whole)
{
    struct wire_error e = {};
    char text[160];

    if (a->status && wire_error_decode(buf_view(&u->answer), &e, NULL) < 0)
        e = (struct wire_error){};
    switch (a->status) {
    case 0:
        again(u, b, backoff(u), a->why);
        return;
    case 409:
        on_conflict(u, b, a, &e, was_whole);
        return;
    case 413:
    case 414:
    case 431:
        give_up(u, b, SPOOL_DROP_TOO_LARGE, a, &e);
        return;
    case 429:
    case 503:
        on_busy(u, b, a, &e);
        return;
    case 500:
        if (b->tries >= TRIES_INTERNAL) {
            give_up(u, b, SPOOL_DROP_INTERNAL, a, &e);
            return;
        }
        again(u, b, backoff(u), "HTTP 500: the server failed on a batch");
        return;
    case 400:
    case 422:
        give_up(u, b, SPOOL_DROP_BAD, a, &e);
        return;
    case 408:
    case 502:
    case 504:
        (void)snprintf(text, sizeof text, "HTTP %ld: a proxy has no answer", a->status);
        again(u, b, backoff(u), text);
        return;
    default: /* 401 403 404 405 415 421, 3xx, another 2xx: not the server we look for */
        refused(u, b, a);
        return;
    }
}

static void send_one(struct upload *u, const struct spool_batch *b)
{
    struct batch whole = {};
    struct wire_reply reply = {};
    struct answer a;
    struct arena arena;
    struct buf raw, brief;
    struct err err = {};
    struct str body = b->body;
    bool have = false, was_whole = true;

    arena_init(&arena, ARENA_CAP);
    buf_init(&raw, BODY_CAP);
    buf_init(&brief, BODY_CAP);
    have = unpack(u, b, &arena, &raw, &whole, &err) == 0;
    if (!have)
        log_event(LOG_WARN, "batch_unreadable", LOG_U("seq", b->seq), LOG_ERR(&err));
    if (have && travelling(u, &whole, u->whole, &arena, &brief, &was_whole, NULL) == 0)
        body = buf_view(&brief);
    u->whole = false;
    mutex_lock(&u->mu);
    u->stats.requests++;
    mutex_unlock(&u->mu);
    post(u, body, &a);
    if (a.status == 200 && wire_reply_decode(buf_view(&u->answer), &reply, NULL) == 0 &&
        reply.seq == b->seq && (reply.status == WIRE_STORED || reply.status == WIRE_DUPLICATE))
        accepted(u, b, &reply, have ? &whole : NULL, body.n);
    else
        on_status(u, b, &a, was_whole);
    buf_deinit(&raw);
    buf_deinit(&brief);
    arena_deinit(&arena);
}

/* The server's wish, and no flood after an outage. */
static void pace(struct upload *u, int64_t sent_at)
{
    struct spool_stats st;
    int64_t gap;

    mutex_lock(&u->mu);
    gap = u->stats.min_interval_ns;
    mutex_unlock(&u->mu);
    if (u->draining) {
        spool_get_stats(u->spool, &st);
        if (st.spooled == 0)
            u->draining = false;
        else if (u->conf.interval_ns / 2 > gap)
            gap = u->conf.interval_ns / 2 + jitter(u, u->conf.interval_ns / 8);
    }
    while (!atomic_load(&u->stop) && mono_now().v - sent_at < gap) {
        struct timespec t = {.tv_nsec = 20 * NS_PER_MS};

        nanosleep(&t, NULL);
    }
}

static void *run(void *ctx)
{
    struct upload *u = ctx;

    for (;;) {
        bool stop = atomic_load(&u->stop);
        const struct spool_batch *b;
        int64_t at = mono_now().v;

        if (stop && at >= atomic_load(&u->stop_at))
            break;
        b = spool_front(u->spool, stop ? 20 * NS_PER_MS : NS_PER_S);
        if (!b && stop) {
            struct spool_stats st;

            spool_get_stats(u->spool, &st);
            if (st.spooled == 0)
                break;
        }
        if (!b)
            continue;
        at = mono_now().v;
        send_one(u, b);
        if (stop && u->failures) { /* everything is due now: no hot loop */
            struct timespec t = {.tv_nsec = 100 * NS_PER_MS};

            nanosleep(&t, NULL);
        }
        pace(u, at);
    }
    return NULL;
}

/* ---- start and stop ------------------------------------------------------------------------ */

static int check_conf(const struct upload_conf *c, struct err *err)
{
    struct str url = str_c(c->url);
    bool plain = str_starts(url, STR("http://"));

    if (!plain && !str_starts(url, STR("https://")))
        return err_set(err, -EINVAL, "server.url = %.80s: must begin with http:// or https://",
                       c->url);
    if (plain && c->token[0] && !c->insecure && !upload_url_is_loopback(c->url))
        return err_set(err, -EPERM,
                       "server.url = %.60s: a token goes to another host over https:// only, or "
                       "with server.insecure = on",
                       c->url);
    return 0;
}

static int set_header(struct upload *u, const char *text)
{
    struct curl_slist *l = curl_slist_append(u->headers, text);

    if (!l)
        return -ENOMEM;
    u->headers = l;
    return 0;
}

static int set_up(struct upload *u, struct err *err)
{
    struct buf line;
    bool ok;

    u->curl = curl_easy_init();
    if (!u->curl)
        return err_set(err, -ENOMEM, "libcurl: no handle");
    buf_init(&line, 8192);
    if (u->token[0])
        buf_printf(&line, "Authorization: Bearer %s", u->token);
    buf_chr(&line, '\0');
    ok = set_header(u, "Content-Type: " WIRE_MEDIA_TYPE) == 0 &&
         set_header(u, "Content-Encoding: zstd") == 0 &&
         set_header(u, "Accept: " WIRE_MEDIA_TYPE) == 0 && set_header(u, "Expect:") == 0 &&
         (!u->token[0] || set_header(u, line.p) == 0);
    buf_deinit(&line);
    if (!ok)
        return err_set(err, -ENOMEM, "libcurl: no memory for headers");
    curl_easy_setopt(u->curl, CURLOPT_URL, u->url);
    curl_easy_setopt(u->curl, CURLOPT_POST, 1L);
    curl_easy_setopt(u->curl, CURLOPT_HTTPHEADER, u->headers);
    curl_easy_setopt(u->curl, CURLOPT_USERAGENT, "strata-agent/" STRATA_VERSION);
    curl_easy_setopt(u->curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(u->curl, CURLOPT_PROXY, upload_url_is_loopback(u->url) ? "" : NULL);
    curl_easy_setopt(u->curl, CURLOPT_FOLLOWLOCATION, 0L);
    curl_easy_setopt(u->curl, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(u->curl, CURLOPT_TIMEOUT, TIMEOUT_S);
    curl_easy_setopt(u->curl, CURLOPT_CONNECTTIMEOUT, CONNECT_S);
    curl_easy_setopt(u->curl, CURLOPT_WRITEFUNCTION, on_answer);
    curl_easy_setopt(u->curl, CURLOPT_WRITEDATA, &u->answer);
    curl_easy_setopt(u->curl, CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(u->curl, CURLOPT_XFERINFOFUNCTION, on_progress);
    curl_easy_setopt(u->curl, CURLOPT_XFERINFODATA, u);
    if (u->ca_file[0])
        curl_easy_setopt(u->curl, CURLOPT_CAINFO, u->ca_file);
    return 0;
}

struct upload *upload_free(struct upload *u)
{
    if (!u)
        return NULL;
    curl_slist_free_all(u->headers);
    if (u->curl)
        curl_easy_cleanup(u->curl);
    map_deinit(&u->known);
    buf_deinit(&u->answer);
    mutex_deinit(&u->mu);
    free(u->url);
    free(u->token);
    free(u->ca_file);
    free(u);
    curl_global_cleanup();
    return NULL;
}

int upload_start(const struct upload_conf *c, struct spool *spool, struct upload **ret,
                 struct err *err)
{
    struct str base = str_c(c->url);
    struct upload *u;
    struct buf url;
    int r;

    TRY(check_conf(c, err));
    if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
        return err_set(err, -ENOMEM, "libcurl does not start");
    while (base.n && base.p[base.n - 1] == '/')
        base.n--;
    u = xcalloc(1, sizeof *u);
    buf_init(&url, 8192);
    buf_str(&url, base);
    buf_cstr(&url, "/api/v1/batch");
    buf_chr(&url, '\0');
    u->url = xstrdup(url.failed ? "" : url.p);
    buf_deinit(&url);
    u->conf = *c;
    u->token = xstrdup(c->token);
    u->ca_file = xstrdup(c->ca_file);
    u->spool = spool;
    map_init(&u->known, MAX_KNOWN);
    wire_limits_default(&u->limits);
    u->limits.batch.age_ns = INT64_MAX / 4; /* it is our own, whatever its age */
    u->limits.batch.future_ns = INT64_MAX / 4;
    buf_init(&u->answer, ANSWER_CAP);
    mutex_init(&u->mu);
    if (getrandom(&u->random, sizeof u->random, 0) != sizeof u->random)
        u->random = (uint64_t)mono_now().v;
    (void)snprintf(u->stats.state, sizeof u->stats.state, "connecting");
    r = set_up(u, err);
    if (r == 0) {
        r = thread_start(&u->thread, "upload", 0, run, u);
        if (r < 0)
            r = err_set(err, r, "thread: %s", strerrordesc_np(-r));
    }
    if (r < 0) {
        upload_free(u);
        return r;
    }
    *ret = u;
    return 0;
}

void upload_stop(struct upload *u, int64_t wait_ns)
{
    atomic_store(&u->stop_at, mono_now().v + wait_ns);
    atomic_store(&u->stop, true);
    spool_hurry(u->spool);
    pthread_join(u->thread, NULL);
}

void upload_get_stats(struct upload *u, struct upload_stats *ret)
{
    mutex_lock(&u->mu);
    *ret = u->stats;
    mutex_unlock(&u->mu);
}
