/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Steps: where a unit of work (a training step, a request, an epoch) begins and ends. One file, no
 * dependency but libc, Linux on x86-64, -std=gnu99 or later, or C++11.
 *
 *     #define STRATA_STEP_IMPL          in exactly one source file of each program or library
 *     #include "strata_step.h"
 *
 *     for (uint64_t i = 0; i < n; i++) {
 *         strata_step_begin("train", i, "phase=warm");
 *         ...
 *         strata_step_end("train", i);
 *     }
 *
 * While an agent listens each call reaches it through a probe. Else, with STRATA_SERVER set to
 * http://ADDRESS:PORT (a number or "localhost": names would have to be resolved, which may block),
 * finished steps are sent there every 5 s, by the calling thread, without waiting. Else nothing
 * happens: a call costs a few nanoseconds. No call blocks, fails, allocates or ends the program.
 *
 * Any thread may call. Each thread's marks, and STRATA_STEP_NEXT, count for themselves.
 */
#ifndef STRATA_STEP_H
#define STRATA_STEP_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The number after this thread's last one of this name, from 0; at an end: the one begun last. */
#define STRATA_STEP_NEXT UINT64_MAX

/* Ends the step of this thread's last mark of this name and begins the next. name: UTF-8, at most
 * 63 bytes; NULL: "step". */
void strata_step_mark(const char *name, uint64_t number);
/* attributes: "k=v,k=v", at most 255 bytes and 8 pairs, or NULL */
void strata_step_begin(const char *name, uint64_t number, const char *attributes);
void strata_step_end(const char *name, uint64_t number);

/* What became of the calls of this process. */
struct strata_step_counts {
    uint64_t probe;   /* told to an agent */
    uint64_t sent;    /* steps that a server took */
    uint64_t waiting; /* steps that wait for sending */
    uint64_t dropped; /* calls: no room, not begun, bad text; steps that no server took */
    uint64_t errors;  /* requests that failed */
};
struct strata_step_counts strata_step_stats(void);

#ifdef __cplusplus
}
#endif
#endif /* STRATA_STEP_H */

#if defined(STRATA_STEP_IMPL) && !defined(STRATA_STEP_IMPL_DONE)
#define STRATA_STEP_IMPL_DONE

#ifndef __x86_64__
#error "strata_step.h: x86-64 only"
#endif

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* The probe; the same bytes as libstrata_step.so's. Hidden: each binary has its own. */
__asm__("	.pushsection .text.strata_step_probe, \"ax\", @progbits\n"
        "	.globl	strata_step_probe\n"
        "	.hidden	strata_step_probe\n"
        "	.type	strata_step_probe, @function\n"
        "	.balign	16\n"
        "strata_step_probe:\n"
        "990:	.byte	0x0f, 0x1f, 0x44, 0x00, 0x00\n"
        "	ret\n"
        "	.size	strata_step_probe, . - strata_step_probe\n"
        "	.popsection\n"
        "	.pushsection .probes, \"aw\", @progbits\n"
        "	.globl	strata_step_semaphore\n"
        "	.hidden	strata_step_semaphore\n"
        "	.type	strata_step_semaphore, @object\n"
        "	.balign	2\n"
        "strata_step_semaphore:\n"
        "	.2byte	0\n"
        "	.size	strata_step_semaphore, 2\n"
        "	.popsection\n"
        "	.pushsection .stapsdt.base, \"aG\", @progbits, .stapsdt.base, comdat\n"
        "	.weak	_.stapsdt.base\n"
        "	.hidden	_.stapsdt.base\n"
        "_.stapsdt.base:\n"
        "	.space	1\n"
        "	.size	_.stapsdt.base, 1\n"
        "	.popsection\n"
        "	.pushsection .note.stapsdt, \"\", @note\n"
        "	.balign	4\n"
        "	.4byte	992f - 991f, 994f - 993f, 3\n"
        "991:	.asciz	\"stapsdt\"\n"
        "992:	.balign	4\n"
        "993:	.8byte	990b\n"
        "	.8byte	_.stapsdt.base\n"
        "	.8byte	strata_step_semaphore\n"
        "	.asciz	\"strata\"\n"
        "	.asciz	\"step\"\n"
        "	.asciz	\"4@%edi 8@%rsi 8@%rdx 8@%rcx\"\n"
        "994:	.balign	4\n"
        "	.popsection\n");

#ifdef __cplusplus
extern "C" {
#endif

__attribute__((visibility("hidden"))) extern void
strata_step_probe(int what, uint64_t number, const char *name, const char *attributes);
__attribute__((visibility("hidden"))) extern volatile uint16_t strata_step_semaphore;

#define STRATA_STEP_QUEUE 256
#define STRATA_STEP_OPEN  64
#define STRATA_STEP_NAMES 16 /* of one thread, that count for themselves */
#define STRATA_STEP_BODY  (256 * 1024)
#define STRATA_STEP_EVERY 5000000000LL
#define STRATA_STEP_TRIES 3
#define STRATA_STEP_SPIN  10000

struct strata_step_item {
    char name[64], attr[256];
    uint64_t number;
    int64_t t0, t1;
    long tid;
    int mark;
};

static struct {
    char lock; /* taken by __atomic_test_and_set: whoever finds it taken for long gives its call up
                */
    char mode; /* 0 not asked yet, 1 a server, 2 none */
    pid_t pid;
    struct sockaddr_in to;
    char host[80], service[128], who[64];
    int64_t start, due;
    unsigned n_open, n_queue, n_body, sequence, tries;
    struct strata_step_item open[STRATA_STEP_OPEN], queue[STRATA_STEP_QUEUE];
    unsigned n_request, sent, n_reply;
    char request[STRATA_STEP_BODY + 512], reply[16];
    struct strata_step_counts counts;
} strata_step_state;
static int strata_step_fd = -1; /* -1: no request under way; apart, so that the rest is zero */

static __thread struct {
    char name[64];
    uint64_t next;
} strata_step_numbers[STRATA_STEP_NAMES];

static uint64_t strata_step_number(const char *name, size_t n, uint64_t number)
{
    unsigned i;

    for (i = 0; i < STRATA_STEP_NAMES && strata_step_numbers[i].name[0]; i++) {
        if (strncmp(strata_step_numbers[i].name, name, sizeof strata_step_numbers[i].name) == 0)
            break;
    }
    if (i == STRATA_STEP_NAMES)
        return number; /* the agent counts then */
    if (!strata_step_numbers[i].name[0])
        memcpy(strata_step_numbers[i].name, name, n + 1);
    if (number == STRATA_STEP_NEXT)
        number = strata_step_numbers[i].next;
    strata_step_numbers[i].next = number + 1;
    return number;
}

static int64_t strata_step_now(clockid_t id)
{
    struct timespec t;

    clock_gettime(id, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* ---- to a server ----------------------------------------------------------------------------- */

/* "http://127.0.0.1:4040" */
static int strata_step_parse(const char *url)
{
    const char *p = url, *end;
    unsigned long port = 80;
    char host[64];
    size_t n;

    if (!p || strncmp(p, "http://", 7) != 0)
        return 0;
    p += 7;
    n = strcspn(p, ":/");
    if (n == 0 || n >= sizeof host)
        return 0;
    memcpy(host, p, n);
    host[n] = 0;
    if (p[n] == ':') {
        port = 0;
        for (end = p + n + 1; *end >= '0' && *end <= '9' && port < 65536; end++)
            port = port * 10 + (unsigned long)(*end - '0');
    }
    if (strcmp(host, "localhost") == 0)
        memcpy(host, "127.0.0.1", 10);
    strata_step_state.to.sin_family = AF_INET;
    strata_step_state.to.sin_port = htons((uint16_t)port);
    (void)snprintf(strata_step_state.host, sizeof strata_step_state.host, "%s:%lu", host, port);
    return port > 0 && port < 65536 &&
           inet_pton(AF_INET, host, &strata_step_state.to.sin_addr) == 1;
}

/* Length of the well-formed UTF-8 sequence at s, 0: none. */
static size_t strata_step_utf8(const unsigned char *s)
{
    size_t n = s[0] < 0x80                   ? 1
               : s[0] >= 0xc2 && s[0] < 0xe0 ? 2
               : (s[0] & 0xf0) == 0xe0       ? 3
               : s[0] >= 0xf0 && s[0] < 0xf5 ? 4
                                             : 0;

    for (size_t i = 1; i < n; i++) {
        if ((s[i] & 0xc0) != 0x80)
            return 0;
    }
    if ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] > 0x9f) ||
        (s[0] == 0xf0 && s[1] < 0x90) || (s[0] == 0xf4 && s[1] > 0x8f))
        return 0;
    return n;
}

/* s up to its end or to stop, as JSON has it; what is no UTF-8 or a control becomes "?". */
static void strata_step_json(char *to, size_t size, const char *s, const char *stop)
{
    size_t n = 0;

    while (*s && s != stop && n + 8 < size) {
        size_t k = strata_step_utf8((const unsigned char *)s);

        if (k == 0 || (unsigned char)*s < 0x20 || *s == 0x7f) {
            to[n++] = '?';
            s++;
            continue;
        }
        if (*s == '"' || *s == '\\')
            to[n++] = '\\';
        memcpy(to + n, s, k);
        n += k;
        s += k;
    }
    to[n] = 0;
}

static void strata_step_ask(void)
{
    const char *service = getenv("STRATA_SERVICE");

    strata_step_state.mode = strata_step_parse(getenv("STRATA_SERVER")) ? 1 : 2;
    strata_step_state.pid = getpid();
    if (strata_step_fd >= 0)
        close(strata_step_fd);
    strata_step_fd = -1;
    strata_step_state.n_open = strata_step_state.n_queue = 0;
    strata_step_state.n_request = strata_step_state.sequence = 0;
    strata_step_state.start = strata_step_now(CLOCK_REALTIME);
    strata_step_state.due = strata_step_now(CLOCK_MONOTONIC) + STRATA_STEP_EVERY;
    (void)snprintf(strata_step_state.who, sizeof strata_step_state.who, "c-%lx-%llx",
                   (long)getpid(), (unsigned long long)strata_step_state.start);
#ifdef _GNU_SOURCE
    if (!service || !service[0])
        service = program_invocation_short_name;
#endif
    strata_step_json(strata_step_state.service, sizeof strata_step_state.service,
                     service && service[0] ? service : "unknown", NULL);
}

__attribute__((format(printf, 4, 5))) static int strata_step_put(char *to, size_t size, size_t *n,
                                                                 const char *fmt, ...)
{
    va_list ap;
    int k;

    va_start(ap, fmt);
    k = vsnprintf(to + *n, size - *n, fmt, ap);
    va_end(ap);
    if (k < 0 || (size_t)k >= size - *n)
        return 0;
    *n += (size_t)k;
    return 1;
}

/* "k=v,k=v" as the fields of an object. */
static void strata_step_pairs(char *to, size_t size, size_t *n, const char *list)
{
    const char *comma = "";

    while (*list) {
        const char *end = list + strcspn(list, ",");
        const char *eq = (const char *)memchr(list, '=', (size_t)(end - list));
        char key[256], value[560];

        if (eq && eq > list) {
            strata_step_json(key, sizeof key, list, eq);
            strata_step_json(value, sizeof value, eq + 1, end);
            (void)strata_step_put(to, size, n, "%s\"%s\":\"%s\"", comma, key, value);
            comma = ",";
        }
        list = *end ? end + 1 : end;
    }
}

static int strata_step_put_item(char *to, size_t size, size_t *n, const struct strata_step_item *s,
                                const char *comma)
{
    size_t begin = *n;
    char name[160];

    strata_step_json(name, sizeof name, s->name, NULL);
    if (strata_step_put(
            to, size, n,
            "%s{\"name\":\"%s\",\"number\":\"%llu\",\"t0_ns\":\"%lld\",\"t1_ns\":\"%lld\","
            "\"tid\":%ld,\"attributes\":{",
            comma, name, (unsigned long long)s->number, (long long)s->t0, (long long)s->t1,
            s->tid)) {
        strata_step_pairs(to, size - 8, n, s->attr);
        if (strata_step_put(to, size, n, "}}"))
            return 1;
    }
    *n = begin;
    return 0;
}

/* What waits, as one request; it stays what it is until it is answered. */
static void strata_step_make(void)
{
    static char body[STRATA_STEP_BODY];
    const char *labels = getenv("STRATA_LABELS"), *rank = getenv("RANK");
    size_t n = 0, head = 0;
    char host[64] = "";
    unsigned i;

    (void)gethostname(host, sizeof host - 1);
    (void)strata_step_put(body, sizeof body, &n, "{\"service\":\"%s\",\"labels\":{",
                          strata_step_state.service);
    strata_step_pairs(body, 4096, &n, labels ? labels : "");
    if (rank && rank[0] && strspn(rank, "0123456789") == strlen(rank) &&
        !(labels && strstr(labels, "rank=")))
        (void)strata_step_put(body, sizeof body, &n, "%s\"rank\":\"%.8s\"",
                              body[n - 1] == '{' ? "" : ",", rank);
    (void)strata_step_put(body, sizeof body, &n,
                          "},\"host\":\"%s\",\"pid\":%ld,"
                          "\"process_start_ns\":\"%lld\",\"steps\":[",
                          host, (long)strata_step_state.pid, (long long)strata_step_state.start);
    for (i = 0; i < strata_step_state.n_queue; i++) {
        if (!strata_step_put_item(body, sizeof body - 4, &n, &strata_step_state.queue[i],
                                  i ? "," : ""))
            break;
    }
    strata_step_state.n_body = i; /* taken from the queue when a server took them */
    (void)strata_step_put(body, sizeof body, &n, "]}");
    strata_step_state.sequence++;
    strata_step_state.tries = 0;
    (void)strata_step_put(strata_step_state.request, sizeof strata_step_state.request, &head,
                          "POST /api/v1/steps HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n"
                          "Content-Type: application/json\r\nStrata-Batch-Id: %s:%u\r\n"
                          "Content-Length: %zu\r\n\r\n",
                          strata_step_state.host, strata_step_state.who, strata_step_state.sequence,
                          n);
    memcpy(strata_step_state.request + head, body, n);
    strata_step_state.n_request = (unsigned)(head + n);
}

static void strata_step_taken(void)
{
    unsigned left = strata_step_state.n_queue - strata_step_state.n_body;

    memmove(strata_step_state.queue, strata_step_state.queue + strata_step_state.n_body,
            left * sizeof strata_step_state.queue[0]);
    strata_step_state.n_queue = left;
    strata_step_state.n_request = strata_step_state.n_body = 0;
}

/* The connection ended: well, or not. status: of the answer, 0 where there was none. */
static void strata_step_close(int status)
{
    close(strata_step_fd);
    strata_step_fd = -1;
    strata_step_state.due = strata_step_now(CLOCK_MONOTONIC) + STRATA_STEP_EVERY;
    if (status >= 200 && status < 300) {
        strata_step_state.counts.sent += strata_step_state.n_body;
        strata_step_taken();
        return;
    }
    strata_step_state.counts.errors++;
    if ((status >= 400 && status < 500 && status != 429) ||
        ++strata_step_state.tries >= STRATA_STEP_TRIES) {
        strata_step_state.counts.dropped += strata_step_state.n_body;
        strata_step_taken();
    }
}

static void strata_step_connect(void)
{
    strata_step_fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    strata_step_state.sent = strata_step_state.n_reply = 0;
    if (strata_step_fd < 0)
        return;
    if (connect(strata_step_fd, (const struct sockaddr *)&strata_step_state.to,
                sizeof strata_step_state.to) < 0 &&
        errno != EINPROGRESS)
        strata_step_close(0);
}

static void strata_step_read(void)
{
    char rest[512];
    ssize_t n;
    int status = 0;

    do {
        char *to = rest;
        size_t room = sizeof rest;

        if (strata_step_state.n_reply < sizeof strata_step_state.reply - 1) {
            to = strata_step_state.reply + strata_step_state.n_reply;
            room = sizeof strata_step_state.reply - 1 - strata_step_state.n_reply;
        }
        n = recv(strata_step_fd, to, room, MSG_DONTWAIT);
        if (n > 0 && to != rest)
            strata_step_state.n_reply += (unsigned)n;
    } while (n > 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    strata_step_state.reply[strata_step_state.n_reply] = 0;
    if (strata_step_state.n_reply >= 12 && memcmp(strata_step_state.reply, "HTTP/1.", 7) == 0)
        status = (strata_step_state.reply[9] - '0') * 100 +
                 (strata_step_state.reply[10] - '0') * 10 + (strata_step_state.reply[11] - '0');
    strata_step_close(status);
}

/* As far as it goes without waiting. */
static void strata_step_go_on(void)
{
    int64_t now = strata_step_now(CLOCK_MONOTONIC);
    struct pollfd p;
    ssize_t n;

    if (strata_step_fd < 0) {
        if (now < strata_step_state.due &&
            (strata_step_state.n_request || strata_step_state.n_queue < STRATA_STEP_QUEUE / 2))
            return;
        if (!strata_step_state.n_request && strata_step_state.n_queue)
            strata_step_make();
        if (strata_step_state.n_request)
            strata_step_connect();
        return;
    }
    p.fd = strata_step_fd;
    p.events = strata_step_state.sent < strata_step_state.n_request ? POLLOUT : POLLIN;
    p.revents = 0;
    if (poll(&p, 1, 0) <= 0) {
        if (now - strata_step_state.due > 2 * STRATA_STEP_EVERY)
            strata_step_close(0); /* no answer for ten seconds */
        return;
    }
    if (p.events == POLLIN) {
        strata_step_read();
        return;
    }
    n = send(strata_step_fd, strata_step_state.request + strata_step_state.sent,
             strata_step_state.n_request - strata_step_state.sent, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n > 0)
        strata_step_state.sent += (unsigned)n;
    else if (n < 0 && errno != EAGAIN && errno != EINTR)
        strata_step_close(0);
}

static void strata_step_finish(unsigned i, int64_t t1)
{
    struct strata_step_item *o = &strata_step_state.open[i];

    o->t1 = t1 > o->t0 ? t1 : o->t0 + 1;
    if (strata_step_state.n_queue < STRATA_STEP_QUEUE)
        strata_step_state.queue[strata_step_state.n_queue++] = *o;
    else
        strata_step_state.counts.dropped++;
    *o = strata_step_state.open[--strata_step_state.n_open];
}

static int strata_step_same(const struct strata_step_item *o, int what, uint64_t number,
                            const char *name, long tid)
{
    if (o->mark != (what == 0) || strcmp(o->name, name) != 0)
        return 0;
    if (what == 0 || number == STRATA_STEP_NEXT)
        return o->tid == tid;
    return o->number == number;
}

static void strata_step_keep(int what, uint64_t number, const char *name, const char *attr)
{
    int64_t now = strata_step_now(CLOCK_REALTIME), latest = INT64_MIN;
    long tid = syscall(SYS_gettid);
    unsigned i, found = STRATA_STEP_OPEN;
    struct strata_step_item *o;

    for (i = 0; i < strata_step_state.n_open; i++) {
        o = &strata_step_state.open[i];
        if (strata_step_same(o, what, number, name, tid) && o->t0 >= latest) {
            found = i;
            latest = o->t0;
        }
    }
    if (found < STRATA_STEP_OPEN)
        strata_step_finish(found, now);
    if (what == 2) {
        strata_step_state.counts.dropped += found == STRATA_STEP_OPEN;
        return;
    }
    if (strata_step_state.n_open == STRATA_STEP_OPEN) {
        strata_step_state.counts.dropped++;
        return;
    }
    o = &strata_step_state.open[strata_step_state.n_open++];
    memset(o, 0, sizeof *o);
    (void)snprintf(o->name, sizeof o->name, "%s", name);
    (void)snprintf(o->attr, sizeof o->attr, "%s", attr ? attr : "");
    o->number = number;
    o->t0 = now;
    o->tid = tid;
    o->mark = what == 0;
}

/* ---- calls ----------------------------------------------------------------------------------- */

static void strata_step_call(int what, const char *name, uint64_t number, const char *attr)
{
    int saved = errno, tries;
    size_t n;

    if (!strata_step_semaphore && strata_step_state.mode == 2)
        return;
    n = strnlen(name ? name : (name = "step"), 64);
    if (n == 0)
        n = strlen(name = "step");
    if (n > 63) {
        __atomic_add_fetch(&strata_step_state.counts.dropped, 1, __ATOMIC_RELAXED);
        return;
    }
    if (what != 2)
        number = strata_step_number(name, n, number);
    if (strata_step_semaphore) {
        volatile const char *touch = attr; /* the probe cannot fault pages in */

        while (touch && *touch)
            touch++;
        strata_step_probe(what, number, name, attr);
        __atomic_add_fetch(&strata_step_state.counts.probe, 1, __ATOMIC_RELAXED);
        return;
    }
    for (tries = 0; __atomic_test_and_set(&strata_step_state.lock, __ATOMIC_ACQUIRE); tries++) {
        if (tries < STRATA_STEP_SPIN) {
            if (tries % 64 == 63)
                sched_yield();
            continue;
        }
        __atomic_add_fetch(&strata_step_state.counts.dropped, 1, __ATOMIC_RELAXED);
        return;
    }
    if (strata_step_state.mode == 0 || strata_step_state.pid != getpid())
        strata_step_ask();
    if (strata_step_state.mode == 1) {
        strata_step_keep(what, number, name, attr);
        strata_step_go_on();
    }
    __atomic_clear(&strata_step_state.lock, __ATOMIC_RELEASE);
    errno = saved;
}

void strata_step_mark(const char *name, uint64_t number)
{
    strata_step_call(0, name, number, NULL);
}

void strata_step_begin(const char *name, uint64_t number, const char *attributes)
{
    strata_step_call(1, name, number, attributes);
}

void strata_step_end(const char *name, uint64_t number)
{
    strata_step_call(2, name, number, NULL);
}

struct strata_step_counts strata_step_stats(void)
{
    struct strata_step_counts c = strata_step_state.counts;

    c.waiting = strata_step_state.n_queue;
    return c;
}

#ifdef __cplusplus
}
#endif
#endif /* STRATA_STEP_IMPL */
