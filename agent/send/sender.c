// SPDX-License-Identifier: Apache-2.0
#include "agent/send/sender.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/apart/landlock.h"
#include "agent/apart/sandbox.h"
#include "agent/file/elffile.h"
#include "agent/send/upload_private.h"

#define MAX_RETRY_NS (3600 * NS_PER_S)
#define WAIT_MS      1000

/* ---- answers ------------------------------------------------------------------------------- */

void sender_answer_put(const struct upload_answer *a, struct sender_answer *ret)
{
    *ret = (struct sender_answer){.magic = SENDER_MAGIC,
                                  .status = a->status,
                                  .retry_after_ns = a->retry_after_ns,
                                  .have_reply = a->have_reply,
                                  .reply_status = a->reply.status,
                                  .min_interval_ms = a->reply.min_interval_ms,
                                  .retry_after_ms = a->error.retry_after_ms,
                                  .seq = a->reply.seq,
                                  .rejected_rows = a->reply.rejected_rows,
                                  .max_bytes = a->reply.max_bytes,
                                  .limit = a->error.limit,
                                  .actual = a->error.actual};
    memcpy(ret->why, a->why, sizeof ret->why);
    memcpy(ret->reason, a->error.reason, sizeof ret->reason);
    memcpy(ret->message, a->error.message, sizeof ret->message);
    memcpy(ret->setting, a->error.setting, sizeof ret->setting);
}

/* from, if it is a text that ends and is UTF-8; else nothing. */
static void text(char *to, const char *from, size_t room)
{
    size_t n = strnlen(from, room);

    to[0] = '\0';
    if (n < room && str_utf8_ok((struct str){from, n}))
        memcpy(to, from, n + 1);
}

bool sender_answer_get(const struct sender_answer *a, size_t n, struct upload_answer *ret)
{
    *ret = (struct upload_answer){};
    if (n != sizeof *a || a->magic != SENDER_MAGIC || a->status < 0 || a->status > 999 ||
        a->retry_after_ns < 0 || a->retry_after_ns > MAX_RETRY_NS || a->have_reply > 1)
        return false;
    ret->status = (long)a->status;
    ret->retry_after_ns = a->retry_after_ns;
    ret->have_reply = a->have_reply == 1;
    ret->reply = (struct wire_reply){.seq = a->seq,
                                     .status = a->reply_status,
                                     .rejected_rows = a->rejected_rows,
                                     .max_bytes = a->max_bytes,
                                     .min_interval_ms = a->min_interval_ms};
    ret->error = (struct wire_error){
        .limit = a->limit, .actual = a->actual, .retry_after_ms = a->retry_after_ms};
    static_assert(sizeof a->why == sizeof ret->why &&
                      sizeof a->reason == sizeof ret->error.reason &&
                      sizeof a->message == sizeof ret->error.message &&
                      sizeof a->setting == sizeof ret->error.setting,
                  "as long");
    text(ret->why, a->why, sizeof ret->why);
    text(ret->error.reason, a->reason, sizeof ret->error.reason);
    text(ret->error.message, a->message, sizeof ret->error.message);
    text(ret->error.setting, a->setting, sizeof ret->error.setting);
    return true;
}

/* ---- the process --------------------------------------------------------------------------- */

struct sending {
    int agent;
    struct upload u; /* as far as upload_http needs it */
    bool ready;
    char *body[SPOOL_IN_FLIGHT]; /* heap, while the request runs */
    uint64_t id[SPOOL_IN_FLIGHT];
};

/* What a client of the network reads: names and certificates, and the modules for them. */
static void give_away_rights(const char *ca_file)
{
    const char *const read[] = {"/etc/ssl",
                                "/etc/ca-certificates",
                                "/etc/pki",
                                "/etc/gnutls",
                                "/etc/crypto-policies",
                                "/etc/resolv.conf",
                                "/etc/hosts",
                                "/etc/host.conf",
                                "/etc/nsswitch.conf",
                                "/etc/gai.conf",
                                "/etc/services",
                                "/etc/ld.so.cache",
                                "/etc/localtime",
                                "/run/systemd/resolve",
                                "/run/resolvconf",
                                "/run/NetworkManager",
                                "/usr/lib",
                                "/usr/share",
                                "/usr/local/share/ca-certificates",
                                "/lib",
                                "/lib64",
                                ca_file[0] ? ca_file : NULL,
                                NULL};

    (void)landlock_restrict(read, true, NULL); /* where there is one */
    (void)sandbox_sender(NULL);                /* check has said whether there are filters */
}

static char *cut(const char *p, size_t n)
{
    char *s = xmalloc(n + 1);

    memcpy(s, p, n);
    s[n] = '\0';
    return s;
}

static bool set_up(struct sending *s, const struct sender_ask *q, struct str texts)
{
    if (s->ready || q->n[0] > texts.n || q->n[1] > texts.n - q->n[0] ||
        q->n[2] != texts.n - q->n[0] - q->n[1])
        return false;
    s->u.url = cut(texts.p, q->n[0]);
    s->u.token = cut(texts.p + q->n[0], q->n[1]);
    s->u.ca_file = cut(texts.p + q->n[0] + q->n[1], q->n[2]);
    give_away_rights(s->u.ca_file);
    s->ready = upload_http.open(&s->u, NULL) == 0;
    return s->ready;
}

static bool answer(struct sending *s, unsigned slot, const struct upload_answer *a)
{
    struct sender_answer out;

    sender_answer_put(a, &out);
    out.slot = slot;
    out.id = s->id[slot];
    s->id[slot] = 0;
    free(s->body[slot]);
    s->body[slot] = NULL;
    return send(s->agent, &out, sizeof out, MSG_NOSIGNAL) == sizeof out;
}

static bool post(struct sending *s, const struct sender_ask *q, int fd)
{
    uint64_t n = q->n[0];
    char *body;

    if (fd < 0 || n > SENDER_BODY || s->id[q->slot] || !q->id)
        return false;
    body = xmalloc(n + 1);
    s->id[q->slot] = q->id;
    s->body[q->slot] = body;
    if (elffile_pread(&fd, body, n, 0) == (int64_t)n &&
        upload_http.post(&s->u, &s->u.slot[q->slot], (struct str){body, n}))
        return true;
    return answer(s, q->slot,
                  &(struct upload_answer){.why = "no answer: the request cannot be made"});
}

static void cancel(struct sending *s, const struct sender_ask *q)
{
    if (!s->id[q->slot] || s->id[q->slot] != q->id)
        return;
    upload_http.cancel(&s->u, &s->u.slot[q->slot]);
    s->id[q->slot] = 0;
    free(s->body[q->slot]);
    s->body[q->slot] = NULL;
}

/* The agent's next message; false: it is gone, or talks nonsense. */
static bool take(struct sending *s)
{
    union {
        struct cmsghdr h;
        char room[CMSG_SPACE(sizeof(int))];
    } control = {};
    struct sender_ask q = {};
    char *texts = xmalloc(SENDER_TEXT);
    struct iovec part[2] = {{&q, sizeof q}, {texts, SENDER_TEXT}};
    struct msghdr m = {.msg_iov = part,
                       .msg_iovlen = 2,
                       .msg_control = &control,
                       .msg_controllen = sizeof control};
    ssize_t n = recvmsg(s->agent, &m, MSG_CMSG_CLOEXEC);
    const struct cmsghdr *h = n > 0 ? CMSG_FIRSTHDR(&m) : NULL;
    bool ok = n >= (ssize_t)sizeof q && q.magic == SENDER_MAGIC && q.slot < SPOOL_IN_FLIGHT;
    int fd = -1;

    if (h && h->cmsg_type == SCM_RIGHTS)
        memcpy(&fd, CMSG_DATA(h), sizeof fd);
    if (ok && q.kind == SENDER_SETUP)
        ok = set_up(s, &q, (struct str){texts, (size_t)n - sizeof q});
    else if (ok && q.kind == SENDER_POST)
        ok = s->ready && post(s, &q, fd);
    else if (ok && q.kind == SENDER_CANCEL && s->ready)
        cancel(s, &q);
    else
        ok = false;
    if (fd >= 0)
        (void)close(fd);
    explicit_bzero(texts, SENDER_TEXT);
    free(texts);
    return ok;
}

static bool turn(struct sending *s)
{
    struct curl_waitfd agent = {.fd = s->agent, .events = CURL_WAIT_POLLIN};
    struct upload_answer a;
    struct upload_slot *slot;
    bool ok = true;
    int n = 0;

    if (!s->ready)
        return take(s);
    (void)curl_multi_poll(s->u.multi, &agent, 1, WAIT_MS, &n);
    if (agent.revents)
        ok = take(s);
    while (ok && (slot = upload_http.next(&s->u, 0, &a)))
        ok = answer(s, (unsigned)(slot - s->u.slot), &a);
    return ok;
}

int sender_serve(const int *fd, unsigned n)
{
    struct sending s = {.agent = fd[0]};

    if (n != 1)
        return 1;
    (void)prctl(PR_SET_NAME, "strata-sender");
    while (turn(&s))
        ;
    return 0;
}
