// SPDX-License-Identifier: Apache-2.0
/* The upload thread's side of the sender process (sender.h): started when it is first needed, and
 * again when it has died or does not answer; what was under way then has no answer. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "agent/apart/apart.h"
#include "agent/send/sender.h"
#include "agent/send/upload_private.h"
#include "base/log.h"
#include "base/time.h"

#define PAUSE_NS   NS_PER_S
#define PAUSE_MOST 30
#define LASTED_NS  (10 * NS_PER_S)
#define HANGS_NS   (70 * NS_PER_S) /* libcurl gives up after 60 */
#define CHUNK      ((size_t)1 << 20)

static void hang_up(struct upload *u)
{
    if (u->sender >= 0)
        (void)close(u->sender);
    u->sender = -1;
}

static int set_up(struct upload *u)
{
    struct sender_ask q = {.magic = SENDER_MAGIC,
                           .kind = SENDER_SETUP,
                           .n = {strlen(u->url), strlen(u->token), strlen(u->ca_file)}};
    struct iovec part[4] = {
        {&q, sizeof q}, {u->url, q.n[0]}, {u->token, q.n[1]}, {u->ca_file, q.n[2]}};
    const struct msghdr m = {.msg_iov = part, .msg_iovlen = 4};

    return sendmsg(u->sender, &m, MSG_NOSIGNAL) < 0 ? -errno : 0;
}

static int start(struct upload *u, struct err *err)
{
    int64_t now = mono_now().v;
    struct apart_started started = {};
    int ends[2], r;

    u->pause = now - u->born > LASTED_NS ? PAUSE_NS : 2 * u->pause;
    u->pause = u->pause < PAUSE_MOST * PAUSE_NS ? u->pause : PAUSE_MOST * PAUSE_NS;
    u->born = now;
    u->due = now + u->pause;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
        return err_set(err, -errno, "sender: socketpair: %s", strerrordesc_np(errno));
    r = apart_start(APART_SENDER, &ends[1], 1, &started, err);
    (void)close(ends[1]);
    u->sender = ends[0];
    if (r == 0)
        r = set_up(u);
    if (r < 0)
        hang_up(u);
    else if (started.before != -1)
        log_event(LOG_WARN, "sender_restarted", LOG_I("before", started.before));
    return r;
}

static int apart_way_open(struct upload *u, struct err *err)
{
    u->sender = -1;
    u->born = INT64_MIN / 2;
    if (strlen(u->url) + strlen(u->token) + strlen(u->ca_file) > SENDER_TEXT)
        return err_set(err, -E2BIG, "server.url, token and ca_file: more than %zu bytes",
                       SENDER_TEXT);
    return start(u, err);
}

static void apart_way_close(struct upload *u)
{
    hang_up(u);
}

/* The body as a file of its own; -1: no memory. */
static int body_file(struct str body)
{
    int fd = memfd_create("batch", MFD_CLOEXEC);

    while (fd >= 0 && body.n) {
        ssize_t n = write(fd, body.p, body.n < CHUNK ? body.n : CHUNK);

        if (n <= 0) {
            (void)close(fd);
            return -1;
        }
        body = str_from(body, (size_t)n);
    }
    return fd;
}

static bool ask(struct upload *u, const struct sender_ask *q, int fd)
{
    union {
        struct cmsghdr h;
        char room[CMSG_SPACE(sizeof(int))];
    } control = {};
    // NOLINTNEXTLINE(performance-no-int-to-ptr): sheds const; it is only read
    struct iovec part = {(void *)(uintptr_t)q, sizeof *q};
    struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1};

    if (fd >= 0) {
        m.msg_control = &control;
        m.msg_controllen = sizeof control.room;
        control.h = (struct cmsghdr){
            .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof fd)};
        memcpy(CMSG_DATA(&control.h), &fd, sizeof fd);
    }
    return sendmsg(u->sender, &m, MSG_NOSIGNAL) >= 0;
}

static bool apart_way_post(struct upload *u, struct upload_slot *s, struct str body)
{
    struct sender_ask q = {.magic = SENDER_MAGIC,
                           .kind = SENDER_POST,
                           .slot = (uint32_t)(s - u->slot),
                           .id = ++u->asks,
                           .n = {body.n}};
    int fd = body_file(body);
    bool ok = false;

    /* one that died since the last request is seen only now */
    for (int tries = 0; fd >= 0 && !ok && tries < 2; tries++) {
        if (u->sender < 0 && (mono_now().v < u->due || start(u, NULL) < 0))
            break;
        ok = ask(u, &q, fd);
        if (!ok)
            hang_up(u);
    }
    if (fd >= 0)
        (void)close(fd);
    s->asked = ok ? q.id : 0;
    s->since = mono_now().v;
    return ok;
}

static void apart_way_cancel(struct upload *u, struct upload_slot *s)
{
    const struct sender_ask q = {.magic = SENDER_MAGIC,
                                 .kind = SENDER_CANCEL,
                                 .slot = (uint32_t)(s - u->slot),
                                 .id = s->asked};

    if (s->asked && u->sender >= 0)
        (void)ask(u, &q, -1);
    s->asked = 0;
}

/* One that will get no answer any more, or NULL. */
static struct upload_slot *orphan(struct upload *u, struct upload_answer *ret)
{
    for (unsigned i = 0; i < SPOOL_IN_FLIGHT; i++) {
        struct upload_slot *s = &u->slot[i];

        if (!s->asked || u->sender >= 0)
            continue;
        s->asked = 0;
        *ret = (struct upload_answer){.why = "no answer: the sender has ended"};
        return s;
    }
    return NULL;
}

static bool hangs(const struct upload *u)
{
    int64_t now = mono_now().v;

    for (unsigned i = 0; i < SPOOL_IN_FLIGHT; i++)
        if (u->slot[i].asked && now - u->slot[i].since > HANGS_NS)
            return true;
    return false;
}

static struct upload_slot *apart_way_next(struct upload *u, int wait_ms, struct upload_answer *ret)
{
    struct pollfd p = {.fd = u->sender, .events = POLLIN};
    struct upload_slot *s = orphan(u, ret);
    struct sender_answer a = {};
    ssize_t n;

    if (s || u->sender < 0)
        return s;
    if (poll(&p, 1, wait_ms) <= 0) {
        if (hangs(u))
            hang_up(u); /* killed when the next one is started */
        return orphan(u, ret);
    }
    n = recv(u->sender, &a, sizeof a, MSG_DONTWAIT);
    if (n <= 0 || !sender_answer_get(&a, (size_t)n, ret) || a.slot >= SPOOL_IN_FLIGHT) {
        hang_up(u);
        return orphan(u, ret);
    }
    s = &u->slot[a.slot];
    if (!s->asked || s->asked != a.id)
        return NULL; /* given up meanwhile */
    s->asked = 0;
    return s;
}

const struct upload_way upload_apart = {.open = apart_way_open,
                                        .close = apart_way_close,
                                        .post = apart_way_post,
                                        .next = apart_way_next,
                                        .cancel = apart_way_cancel};
