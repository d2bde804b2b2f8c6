// SPDX-License-Identifier: Apache-2.0
#include "agent/send/upload.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "agent/apart/apart.h"
#include "agent/apart/privs.h"
#include "agent/send/upload_private.h"
#include "agent/source/clock.h"
#include "base/hash.h"
#include "base/log.h"

#define BODY_CAP       ((size_t)64 << 20)
#define ARENA_CAP      ((size_t)256 << 20)
#define MAX_KNOWN      (UINT32_C(1) << 18)
#define BACKOFF_NS     NS_PER_S
#define BACKOFF_MAX    30 /* times the first */
#define REFUSED_NS     (60 * NS_PER_S)
#define OUTAGE_NS      (30 * NS_PER_S)
#define TRIES_INTERNAL 3
#define TRIES_READ     10   /* of a file that the disk does not give */
#define POLL_MS        20   /* when it is to stop, or another batch may fly, too */
#define LOOK_MS        1000 /* else: an answer wakes it, and of other news none is urgent */
#define BACKLOG        3    /* batches of an older run beyond which they are sent slowly */

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
    if (u->failures && clock_mono().v - u->down_since > OUTAGE_NS)
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

/* The batch as it was made; it lives in the slot's arena. */
static int unpack(struct upload *u, struct upload_slot *s, struct err *err)
{
    TRY(wire_inflate(buf_view(&s->spooled), &u->limits, &s->raw, NULL, err));
    return wire_decode(buf_view(&s->raw), &u->limits, (real_ns){s->batch->covers.t1.v}, &s->arena,
                       &s->whole, NULL, NULL, err);
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
static int travelling(struct upload *u, struct upload_slot *s, struct err *err)
{
    struct batch brief;
    struct buf plain;
    int r;

    s->whole.clock.sent = clock_real();
    TRY(wire_shorten(&s->whole, s->batch->whole ? nothing_known : is_known, u, &s->arena, &brief,
                     err));
    buf_init(&plain, BODY_CAP);
    r = wire_encode(&brief, &plain, NULL, err);
    if (r == 0)
        r = wire_compress(buf_view(&plain), &s->brief, err);
    buf_deinit(&plain);
    if (r == 0)
        s->was_whole = brief.n_known == 0;
    return r;
}

static void learn(struct upload *u, const struct batch *whole)
{
    if (u->known.n + whole->n_node > MAX_KNOWN)
        map_clear(&u->known);
    for (uint32_t i = 1; i < whole->n_node; i++)
        (void)map_put(&u->known, whole->node[i].hash, 1);
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
        u->down_since = clock_mono().v;
    spool_retry(u->spool, b, clock_mono().v + wait_ns, b->whole);
}

static void give_up(struct upload *u, const struct spool_batch *b, enum spool_drop why,
                    const struct upload_answer *a, const struct wire_error *e)
{
    log_event(LOG_ERROR, "batch_dropped", LOG_U("seq", b->seq), LOG_C("why", spool_drop_name(why)),
              LOG_I("status", a->status), LOG_C("reason", e->reason), LOG_C("message", e->message));
    spool_drop(u->spool, b, why);
    u->failures = 0;
}

static void accepted(struct upload *u, struct upload_slot *s, const struct wire_reply *r)
{
    const struct spool_batch *b = s->batch;
    int64_t now = clock_mono().v;

    if (u->failures && now - u->down_since > OUTAGE_NS)
        u->draining = true;
    u->failures = 0;
    u->healthy = true;
    learn(u, &s->whole);
    mutex_lock(&u->mu);
    u->stats.known = u->known.n;
    u->stats.rejected_rows += r->rejected_rows;
    u->stats.max_bytes = r->max_bytes;
    u->stats.min_interval_ns = (int64_t)r->min_interval_ms * NS_PER_MS;
    u->stats.last_ok = now;
    u->stats.short_bytes += s->brief.n;
    u->stats.full_bytes += b->bytes;
    mutex_unlock(&u->mu);
    if (r->rejected_rows)
        log_event(LOG_WARN, "rows_refused", LOG_U("seq", b->seq), LOG_U("rows", r->rejected_rows));
    say(u, "ok");
    spool_done(u->spool, b, r->status == WIRE_DUPLICATE);
}

static void refused(struct upload *u, const struct spool_batch *b, const struct upload_answer *a)
{
    char text[160];
    const char *what = a->status == 401   ? "token missing or unknown: set server.token_file"
                       : a->status == 403 ? "the token may not send: it needs the role ingest"
                                          : "no Strata server at this URL: set server.url";

    (void)snprintf(text, sizeof text, "HTTP %ld: %s", a->status, what);
    again(u, b, u->conf.refused_ns ? u->conf.refused_ns : REFUSED_NS, text);
}

static void on_conflict(struct upload *u, const struct spool_batch *b,
                        const struct upload_answer *a, const struct wire_error *e, bool was_whole)
{
    if (reason_is(e, "dict_miss") && !was_whole) {
        map_clear(&u->known);
        mutex_lock(&u->mu);
        u->stats.dict_miss++;
        u->stats.known = 0;
        mutex_unlock(&u->mu);
        spool_retry(u->spool, b, 0, true);
    } else {
        give_up(u, b, reason_is(e, "seq_too_old") ? SPOOL_DROP_SEQ_OLD : SPOOL_DROP_CONFLICT, a, e);
    }
}

static void on_busy(struct upload *u, const struct spool_batch *b, const struct upload_answer *a,
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

static void on_status(struct upload *u, struct upload_slot *s, const struct upload_answer *a)
{
    const struct spool_batch *b = s->batch;
    const struct wire_error e = a->error;
    char text[160];

    u->healthy = false;
    switch (a->status) {
    case 0:
        again(u, b, backoff(u), a->why);
        return;
    case 409:
        on_conflict(u, b, a, &e, s->was_whole);
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

static void count_answer(struct upload *u, long status)
{
    static const long known[] = UPLOAD_STATUS;
    unsigned i = 0;

    static_assert(sizeof known / sizeof known[0] == UPLOAD_N_STATUS, "as many counters");
    while (i < UPLOAD_N_STATUS && known[i] != status)
        i++;
    if (i == UPLOAD_N_STATUS)
        i = status == 0 ? UPLOAD_NO_ANSWER : UPLOAD_OTHER;
    mutex_lock(&u->mu);
    u->stats.answers[i]++;
    mutex_unlock(&u->mu);
}

static void free_slot(struct upload *u, struct upload_slot *s)
{
    s->batch = NULL;
    buf_deinit(&s->spooled);
    buf_deinit(&s->raw);
    buf_deinit(&s->brief);
    arena_deinit(&s->arena);
    u->n_busy--;
}

static void on_answered(struct upload *u, struct upload_slot *s, const struct upload_answer *a)
{
    const struct wire_reply *reply = &a->reply;

    count_answer(u, a->status);
    u->answered = clock_mono().v;
    if (a->status == 200 && a->have_reply && reply->seq == s->batch->seq &&
        (reply->status == WIRE_STORED || reply->status == WIRE_DUPLICATE))
        accepted(u, s, reply);
    else
        on_status(u, s, a);
    free_slot(u, s);
}

/* Is a batch that was not read still there? What lacks now, memory or the disk's answer, may come.
 */
static bool may_come(int r, const struct spool_batch *b)
{
    return r == -ENOMEM || (b->unread && b->unread < TRIES_READ && r != -EBADMSG && r != -ENOENT);
}

static void start(struct upload *u, const struct spool_batch *b)
{
    struct upload_slot *s = &u->slot[u->slot[0].batch ? 1 : 0];
    struct err err = {};
    int r;

    assert(!s->batch);
    s->batch = b;
    u->n_busy++;
    s->whole = (struct batch){};
    arena_init(&s->arena, ARENA_CAP);
    buf_init(&s->spooled, BODY_CAP);
    buf_init(&s->raw, BODY_CAP);
    buf_init(&s->brief, BODY_CAP);
    r = spool_read(u->spool, b, &s->spooled, &err);
    if (r == 0)
        r = unpack(u, s, &err);
    if (r == 0)
        r = travelling(u, s, &err);
    if (r < 0 && may_come(r, b)) {
        again(u, b, backoff(u), err.msg);
        free_slot(u, s);
        return;
    }
    if (r < 0) { /* what was made is not what is there: nobody can send it */
        log_event(LOG_ERROR, "batch_unreadable", LOG_U("seq", b->seq), LOG_ERR(&err));
        spool_drop(u->spool, b, SPOOL_DROP_DAMAGED);
        free_slot(u, s);
        return;
    }
    u->started = clock_mono().v;
    mutex_lock(&u->mu);
    u->stats.requests++;
    mutex_unlock(&u->mu);
    if (!u->way->post(u, s, buf_view(&s->brief)))
        on_answered(u, s,
                    &(struct upload_answer){.why = "no answer: the request cannot be sent now"});
}

/* How long until a request may start: the server's wish, and no flood after an outage. */
static int64_t pause_ns(struct upload *u)
{
    struct spool_stats st;
    int64_t until;

    mutex_lock(&u->mu);
    u->stats.draining = u->draining;
    /* from its answer on: when it came to the server nobody here knows */
    until = u->stats.min_interval_ns ? u->answered + u->stats.min_interval_ns : 0;
    mutex_unlock(&u->mu);
    if (u->draining) {
        spool_get_stats(u->spool, &st);
        if (st.spooled == 0)
            u->draining = false;
        else if (u->started && u->started + u->drain_gap > until)
            until = u->started + u->drain_gap;
    }
    return until - clock_mono().v;
}

/* Beside one that is repeated, after a refusal or after an outage none may start. */
static bool beside_allowed(const struct upload *u)
{
    const struct spool_batch *b = u->slot[u->slot[0].batch ? 0 : 1].batch;

    return u->n_busy < SPOOL_IN_FLIGHT && u->healthy && !u->draining &&
           u->stats.min_interval_ns == 0 && b->tries == 1;
}

/* The next request, if one may start now; else waits a little. */
static void send_next(struct upload *u, bool stop)
{
    int64_t pause = stop ? 0 : pause_ns(u), wait = u->n_busy ? 0 : NS_PER_S;
    const struct spool_batch *b;

    if (u->n_busy && !beside_allowed(u))
        return;
    if (pause > 0) {
        if (!u->n_busy)
            spool_wait(u->spool, pause < wait ? pause : wait);
        return;
    }
    if (stop && wait > POLL_MS * NS_PER_MS)
        wait = POLL_MS * NS_PER_MS;
    b = spool_front(u->spool, wait);
    if (!b)
        return;
    u->drain_gap = u->conf.interval_ns / 2 + jitter(u, u->conf.interval_ns / 8);
    start(u, b);
}

static int look_ms(const struct upload *u, bool stop)
{
    return stop || beside_allowed(u) ? POLL_MS : LOOK_MS;
}

static bool nothing_left(struct upload *u)
{
    struct spool_stats st;

    spool_get_stats(u->spool, &st);
    /* what an outage left stays for the next run: it is to go slowly */
    return st.spooled == 0 || (u->draining && st.memory_batches == 0);
}

static void *run(void *ctx)
{
    struct upload *u = ctx;
    struct upload_answer a;
    struct upload_slot *s;

    (void)pthread_setname_np(pthread_self(), "upload");
    privs_drop_thread(); /* it reads what strangers answer */
    for (;;) {
        bool stop = atomic_load(&u->stop);

        if (stop && (mono_now().v >= atomic_load(&u->stop_at) || (!u->n_busy && nothing_left(u))))
            break;
        send_next(u, stop);
        while (u->n_busy && (s = u->way->next(u, look_ms(u, stop), &a)))
            on_answered(u, s, &a);
        if (stop && u->failures) { /* everything is due now: no hot loop */
            struct timespec t = {.tv_nsec = 100 * NS_PER_MS};

            nanosleep(&t, NULL);
        }
    }
    for (unsigned i = 0; i < SPOOL_IN_FLIGHT; i++) {
        if (!u->slot[i].batch)
            continue;
        u->way->cancel(u, &u->slot[i]);
        spool_retry(u->spool, u->slot[i].batch, 0, false);
        free_slot(u, &u->slot[i]);
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

struct upload *upload_free(struct upload *u)
{
    if (!u)
        return NULL;
    u->way->close(u);
    map_deinit(&u->known);
    mutex_deinit(&u->mu);
    free(u->url);
    free(u->token);
    free(u->ca_file);
    free(u);
    return NULL;
}

int upload_start(const struct upload_conf *c, struct spool *spool, struct upload **ret,
                 struct err *err)
{
    struct str base = str_c(c->url);
    struct spool_stats st;
    struct upload *u;
    struct buf url;
    int r;

    TRY(check_conf(c, err));
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
    u->way = apart_is_on() ? &upload_apart : &upload_http;
    u->token = xstrdup(c->token);
    u->ca_file = xstrdup(c->ca_file);
    u->spool = spool;
    map_init(&u->known, MAX_KNOWN);
    wire_limits_default(&u->limits);
    u->limits.batch.age_ns = INT64_MAX / 4; /* it is our own, whatever its age */
    u->limits.batch.future_ns = INT64_MAX / 4;
    mutex_init(&u->mu);
    if (getrandom(&u->random, sizeof u->random, 0) != sizeof u->random)
        u->random = (uint64_t)mono_now().v;
    (void)snprintf(u->stats.state, sizeof u->stats.state, "connecting");
    spool_get_stats(spool, &st);
    u->draining = st.spooled > BACKLOG;
    r = u->way->open(u, err);
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
    spool_wake(u->spool, true);
    pthread_join(u->thread, NULL);
}

void upload_get_stats(struct upload *u, struct upload_stats *ret)
{
    mutex_lock(&u->mu);
    *ret = u->stats;
    mutex_unlock(&u->mu);
}
