// SPDX-License-Identifier: Apache-2.0
/*
 * The agent's side. Each kind of question has a lane: a connection on which one question at a time
 * is under way. Whoever finds a lane dead says so for all lanes of that reader (they share its
 * fate), and the next one that asks has a new reader started, when that is due. A lane's descriptor
 * is closed only by who holds the lane.
 */
#include "agent/apart/reader.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "agent/apart/apart.h"
#include "agent/file/demangle.h"
#include "base/arena.h"
#include "base/log.h"
#include "base/thread.h"
#include "base/time.h"

#define LOOK_MS    500
#define WAIT_NS    (2 * NS_PER_S) /* for a reader, where an answer may be missing */
#define PAUSE_NS   NS_PER_S       /* between two starts */
#define PAUSE_MOST 30             /* times the first */
#define LASTED_NS  (10 * NS_PER_S)
#define SEALS      (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE)
#define NO_TIMEOUT INT64_MAX

struct lane {
    struct mutex mu; /* who holds it asks */
    int fd;          /* -1: none */
    uint64_t gen;    /* of the reader that it leads to */
};

static struct {
    atomic_bool on, stop;
    struct lane lane[READER_LANES];
    struct mutex mu; /* guards what follows */
    struct cond changed;
    uint64_t gen; /* of the newest; 0: none yet */
    bool alive, starting;
    int fresh[READER_LANES]; /* ends of the newest that no lane has taken yet; -1 */
    int64_t started, due, first_pause, pause;
    uint64_t next_id;
    struct reader_stats stats;
    char news[READER_NEWS];
} the = {.mu = MUTEX_INIT};

bool reader_is_apart(void)
{
    return atomic_load(&the.on);
}

static unsigned lane_of(enum reader_kind k)
{
    switch (k) {
    case READER_TABLE:
        return 0;
    case READER_LINES:
        return 2;
    case READER_PYTHON:
    case READER_STEP:
    case READER_PING:
        return 3;
    case READER_SYMBOLS:
    case READER_DEMANGLE:
    case READER_FACTS:
    case READER_PROVE:
    case READER_PERFMAP:
    case READER_KINDS:
        break;
    }
    return 1;
}

/* ---- starting it --------------------------------------------------------------------------- */

static void close_fresh_locked(void) REQUIRES(&the.mu)
{
    for (unsigned i = 0; i < READER_LANES; i++) {
        if (the.fresh[i] >= 0)
            (void)close(the.fresh[i]);
        the.fresh[i] = -1;
    }
}

static void tell_start_locked(const struct apart_started *s) REQUIRES(&the.mu)
{
    char how[48] = "killed";

    if (the.stats.starts <= 1)
        return;
    if (s->before >= 0 && WIFSIGNALED(s->before) && WTERMSIG(s->before) != SIGKILL)
        (void)snprintf(how, sizeof how, "signal %d", WTERMSIG(s->before));
    else if (s->before >= 0 && WIFEXITED(s->before))
        (void)snprintf(how, sizeof how, "status %d", WEXITSTATUS(s->before));
    (void)snprintf(the.news, sizeof the.news,
                   "source=reader state=restarted before=\"%s\" restarts=%llu failed=%llu", how,
                   (unsigned long long)the.stats.starts - 1, (unsigned long long)the.stats.failed);
    log_event(LOG_WARN, "reader", LOG_C("before", how), LOG_U("restarts", the.stats.starts - 1),
              LOG_U("failed", the.stats.failed));
}

/* Both ends of each lane; 0 or negative errno, and then none. */
static int make_lanes(int ours[static READER_LANES], int theirs[static READER_LANES])
{
    for (unsigned n = 0; n < READER_LANES; n++) {
        int ends[2], r;

        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0) {
            ours[n] = ends[0];
            theirs[n] = ends[1];
            continue;
        }
        r = -errno;
        while (n--) {
            (void)close(ours[n]);
            (void)close(theirs[n]);
        }
        return r;
    }
    return 0;
}

/* The starter may take its time: nobody who only wants to know something waits for it. */
static int start_locked(struct err *err) REQUIRES(&the.mu)
{
    int ours[READER_LANES] = {}, theirs[READER_LANES] = {}, r;
    struct apart_started started = {};
    int64_t now = mono_now().v;

    /* one that ran for a while may come back at once */
    the.pause = now - the.started > LASTED_NS ? the.first_pause : the.pause * 2;
    if (the.pause > PAUSE_MOST * the.first_pause)
        the.pause = PAUSE_MOST * the.first_pause;
    the.started = now;
    the.due = now + the.pause;
    the.starting = true;
    mutex_unlock(&the.mu);
    r = make_lanes(ours, theirs);
    if (r < 0) {
        r = err_set(err, r, "reader: socketpair: %s", strerrordesc_np(-r));
    } else {
        r = apart_start(APART_READER, theirs, READER_LANES, &started, err);
        for (unsigned i = 0; i < READER_LANES; i++) {
            (void)close(theirs[i]);
            if (r < 0)
                (void)close(ours[i]);
        }
    }
    mutex_lock(&the.mu);
    the.starting = false;
    cond_broadcast(&the.changed);
    if (r < 0)
        return r;
    close_fresh_locked();
    memcpy(the.fresh, ours, sizeof the.fresh);
    the.gen++;
    the.alive = true;
    the.stats.starts++;
    tell_start_locked(&started);
    return 0;
}

/* Of the reader gen: it is no more, for this reason. */
static void lost(uint64_t gen, uint64_t *why)
{
    mutex_lock(&the.mu);
    if (the.gen == gen && the.alive) {
        the.alive = false;
        ++*why;
        cond_broadcast(&the.changed);
    }
    mutex_unlock(&the.mu);
}

/* Leads the lane, which the caller holds, to a reader that lives. -EAGAIN: there is none in time.
 */
static int connect_lane(unsigned i, int64_t wait_ns)
{
    struct lane *l = &the.lane[i];
    int64_t begin = mono_now().v;
    struct err err = {};
    int r = 0;

    mutex_lock(&the.mu);
    while (r == 0 && !the.alive) {
        int64_t now = mono_now().v;

        /* no start is due that one could wait for */
        bool hopeless = atomic_load(&the.stop) || (!the.starting && the.due - begin > wait_ns);

        if (hopeless)
            r = -EAGAIN;
        else if (the.starting || now < the.due)
            (void)cond_wait_for(&the.changed, &the.mu, the.starting ? PAUSE_NS : the.due - now);
        else if (start_locked(&err) < 0)
            r = wait_ns == NO_TIMEOUT && err.code != -EPIPE ? 0 : -EAGAIN;
    }
    if (r == 0 && l->gen != the.gen) {
        if (l->fd >= 0)
            (void)close(l->fd);
        l->fd = the.fresh[i];
        the.fresh[i] = -1;
        l->gen = the.gen;
    }
    mutex_unlock(&the.mu);
    return r;
}

/* ---- one question -------------------------------------------------------------------------- */

struct question {
    enum reader_kind kind;
    uint64_t n[2];
    struct str bytes;
    int fd[READER_FDS]; /* -1: none */
    bool must;          /* waits until there is a reader, however long */
};

struct reply {
    struct reader_answer head;
    char *payload; /* heap */
    uint64_t gen;  /* of the reader that gave it */
};

static int send_question(int to, const struct question *q, uint64_t id)
{
    union {
        struct cmsghdr h;
        char room[CMSG_SPACE(READER_FDS * sizeof(int))];
    } control = {};
    struct reader_ask ask = {.magic = READER_MAGIC,
                             .kind = q->kind,
                             .id = id,
                             .n = {q->n[0], q->n[1]},
                             .n_bytes = (uint32_t)q->bytes.n};
    struct iovec part[2] = {{&ask, sizeof ask}};
    struct msghdr m = {.msg_iov = part, .msg_iovlen = 2};
    int fds[READER_FDS];
    size_t n = 0;

    part[1].iov_base = (void *)(uintptr_t)q->bytes.p; // NOLINT(performance-no-int-to-ptr)
    part[1].iov_len = q->bytes.n;
    for (unsigned i = 0; i < READER_FDS; i++) {
        if (q->fd[i] < 0)
            continue;
        ask.fds |= UINT32_C(1) << i;
        fds[n++] = q->fd[i];
    }
    if (n) {
        m.msg_control = &control;
        m.msg_controllen = CMSG_SPACE(n * sizeof(int));
        control.h = (struct cmsghdr){.cmsg_level = SOL_SOCKET,
                                     .cmsg_type = SCM_RIGHTS,
                                     .cmsg_len = CMSG_LEN(n * sizeof(int))};
        memcpy(CMSG_DATA(&control.h), fds, n * sizeof(int));
    }
    return sendmsg(to, &m, MSG_NOSIGNAL) < 0 ? -errno : 0;
}

static int64_t cpu_of(clockid_t id)
{
    struct timespec t;

    return clock_gettime(id, &t) < 0 ? 0 : t.tv_sec * NS_PER_S + t.tv_nsec;
}

/* An answer is there: 0. It is gone: -EPIPE; it hangs: -ETIMEDOUT; we are to stop: -EAGAIN. */
static int wait_answer(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    pid_t pid = apart_pid(APART_READER);
    clockid_t id = CLOCK_MONOTONIC;
    int64_t cpu0, cpu, moved = mono_now().v;

    if (pid <= 0 || clock_getcpuclockid(pid, &id) != 0)
        id = CLOCK_MONOTONIC; /* it is gone: an end of file follows */
    cpu0 = cpu = cpu_of(id);
    for (;;) {
        int r = poll(&p, 1, LOOK_MS);
        int64_t now = mono_now().v, c = cpu_of(id);

        if (r > 0)
            return 0;
        if (r < 0 && errno != EINTR)
            return -errno;
        if (c != cpu) {
            cpu = c;
            moved = now;
        }
        if (now - moved > READER_HUNG_NS)
            return -ETIMEDOUT;
        if (cpu - cpu0 > READER_CPU_NS)
            return -EFBIG;
        if (atomic_load(&the.stop))
            return -EAGAIN;
    }
}

/* The payload of a memfd: all of it, and nobody can change it any more. */
static char *read_sealed(int fd, uint64_t n)
{
    struct stat st;
    char *p;

    if (fcntl(fd, F_GET_SEALS) < 0 || (fcntl(fd, F_GET_SEALS) & SEALS) != SEALS ||
        fstat(fd, &st) < 0 || (uint64_t)st.st_size != n)
        return NULL;
    p = malloc(n ? n : 1);
    if (p && elffile_pread(&fd, p, n, 0) != (int64_t)n) {
        free(p);
        p = NULL;
    }
    return p;
}

static int take_fd(struct msghdr *m)
{
    const struct cmsghdr *h = CMSG_FIRSTHDR(m);
    int fd = -1;

    if (h && h->cmsg_level == SOL_SOCKET && h->cmsg_type == SCM_RIGHTS)
        memcpy(&fd, CMSG_DATA(h), sizeof fd);
    return fd;
}

static bool head_ok(const struct reader_answer *a, const struct question *q, uint64_t id)
{
    return a->magic == READER_MAGIC && a->kind == q->kind && a->id == id && a->in_fd <= 1 &&
           a->bytes <= READER_MAX && (a->code == 0 || a->bytes == 0);
}

/* 0; -EPIPE it is gone; -EBADMSG. */
static int take_answer(int from, const struct question *q, uint64_t id, struct reply *ret)
{
    union {
        struct cmsghdr h;
        char room[CMSG_SPACE(sizeof(int))];
    } control = {};
    char *rest = xmalloc(READER_BYTES);
    struct iovec part[2] = {{&ret->head, sizeof ret->head}, {rest, READER_BYTES}};
    struct msghdr m = {.msg_iov = part,
                       .msg_iovlen = 2,
                       .msg_control = &control,
                       .msg_controllen = sizeof control};
    ssize_t n = recvmsg(from, &m, MSG_CMSG_CLOEXEC);
    int fd = n > 0 ? take_fd(&m) : -1, r = 0;

    ret->payload = NULL;
    if (n <= 0)
        r = -EPIPE;
    else if ((size_t)n < sizeof ret->head || !head_ok(&ret->head, q, id) || m.msg_flags & MSG_TRUNC)
        r = -EBADMSG;
    else if (!ret->head.in_fd && (size_t)n - sizeof ret->head == ret->head.bytes) {
        ret->payload = rest;
        rest = NULL;
    } else if (ret->head.in_fd && fd >= 0) {
        ret->payload = read_sealed(fd, ret->head.bytes);
    }
    if (r == 0 && !ret->payload)
        r = -EBADMSG;
    if (fd >= 0)
        (void)close(fd);
    free(rest);
    return r;
}

static int exchange(const struct lane *l, const struct question *q, struct reply *ret)
{
    uint64_t id;
    int r;

    mutex_lock(&the.mu);
    id = ++the.next_id;
    the.stats.asked[q->kind]++;
    mutex_unlock(&the.mu);
    r = send_question(l->fd, q, id);
    if (r == 0)
        r = wait_answer(l->fd);
    if (r == 0)
        r = take_answer(l->fd, q, id, ret);
    return r;
}

static void count_failed(int r)
{
    mutex_lock(&the.mu);
    if (r == -EAGAIN)
        the.stats.absent++;
    else
        the.stats.failed++;
    mutex_unlock(&the.mu);
}

/* 0: free ret->payload. -EAGAIN: no reader now. -EBADMSG: it will not be answered. */
static int ask(const struct question *q, struct reply *ret)
{
    unsigned i = lane_of(q->kind);
    struct lane *l = &the.lane[i];
    int r = -EBADMSG;

    mutex_lock(&l->mu);
    for (int tries = 0; tries < 2; tries++) {
        r = connect_lane(i, q->must ? NO_TIMEOUT : WAIT_NS);
        if (r < 0)
            break;
        ret->gen = l->gen;
        r = exchange(l, q, ret);
        if (r == 0 || r == -EAGAIN)
            break;
        lost(l->gen, r == -ETIMEDOUT || r == -EFBIG ? &the.stats.hung
                     : r == -EBADMSG                ? &the.stats.bad
                                                    : &the.stats.died);
        if (r == -EFBIG || r == -EBADMSG)
            break; /* this question is what it cannot do */
    }
    mutex_unlock(&l->mu);
    if (r < 0) {
        r = r == -EAGAIN ? -EAGAIN : -EBADMSG;
        count_failed(r);
    }
    return r;
}

/* The payload was none: as if it had not come, and such a reader is not asked again. */
static int nonsense(const struct reply *r)
{
    lost(r->gen, &the.stats.bad);
    count_failed(-EBADMSG);
    return -EBADMSG;
}

static struct str payload_of(const struct reply *r)
{
    return (struct str){r->payload, r->head.bytes};
}

/* ---- files --------------------------------------------------------------------------------- */

/* A descriptor of what b's bytes are; *ret_made: it is to be closed. An image becomes a memfd. */
static int fd_of(const struct binary *b, bool *ret_made)
{
    int fd;

    *ret_made = false;
    if (b->fd >= 0)
        return b->fd;
    fd = memfd_create("image", MFD_CLOEXEC);
    if (fd >= 0 && write(fd, b->image, b->size) != (ssize_t)b->size) {
        (void)close(fd);
        fd = -1;
    }
    *ret_made = fd >= 0;
    return fd;
}

/* ask() with b as the file. */
static int ask_of(const struct binary *b, struct question *q, struct reply *ret)
{
    bool made;
    int r;

    q->fd[0] = fd_of(b, &made);
    if (q->fd[0] < 0)
        return -EBADMSG;
    r = ask(q, ret);
    if (made)
        (void)close(q->fd[0]);
    return r;
}

static int64_t read_binary(void *ctx, void *to, uint64_t n, uint64_t at)
{
    return binary_read(ctx, to, n, at);
}

/* Does it begin as an ELF file does? Others are not shown to the reader: a name in a stranger's
 * file has led to this one. */
static bool is_elf(int fd)
{
    char magic[SELFMAG];

    return elffile_pread(&fd, magic, SELFMAG, 0) == SELFMAG && memcmp(magic, ELFMAG, SELFMAG) == 0;
}

/* ---- what is asked ------------------------------------------------------------------------- */

enum ehtab_fail reader_table(struct binary *b, struct ehtab *ret)
{
    const struct ehtab_file f = {.read = read_binary, .ctx = b, .size = b->size};
    struct question q = {.kind = READER_TABLE, .fd = {-1, -1}, .must = true};
    enum ehtab_fail why = EHTAB_CRASHED;
    struct reply a = {};

    if (!reader_is_apart())
        return ehtab_build(&f, ret);
    if (ask_of(b, &q, &a) < 0)
        return EHTAB_CRASHED;
    if (a.head.code > 0 && a.head.code < EHTAB_FAIL_N)
        why = (enum ehtab_fail)a.head.code;
    else if (a.head.code == 0 && reader_wire_get_table(&a.head, payload_of(&a), ret))
        why = EHTAB_OK;
    else
        (void)nonsense(&a);
    free(a.payload);
    return why;
}

static int symbols_here(struct binary *b, int debug_fd, uint32_t max_symbols,
                        struct elfsym_arrays *ret, struct err *err)
{
    struct elfsym_file main = {read_binary, b, b->size}, debug = {elffile_pread, &debug_fd, 0};
    struct elfsym_job job = {.main = &main, .max_symbols = max_symbols};
    struct stat st;

    if (debug_fd >= 0 && fstat(debug_fd, &st) == 0) {
        debug.size = (uint64_t)st.st_size;
        job.debug = &debug;
    }
    return elfsym_read(&job, ret, err);
}

int reader_symbols(struct binary *b, int debug_fd, uint32_t max_symbols, struct elfsym_arrays *ret,
                   struct err *err)
{
    struct question q = {.kind = READER_SYMBOLS, .n = {max_symbols}, .fd = {-1, debug_fd}};
    struct reply a = {};
    int r;

    if (!reader_is_apart())
        return symbols_here(b, debug_fd, max_symbols, ret, err);
    r = ask_of(b, &q, &a);
    if (r < 0)
        return err_set(err, r, "symbols: %s",
                       r == -EAGAIN ? "no reader now" : "the reader has no answer");
    if (a.head.code < 0)
        r = err_set(err, a.head.code > -4096 ? a.head.code : -EINVAL, "symbols: refused");
    else if (!reader_wire_get_symbols(&a.head, payload_of(&a), max_symbols, ret))
        r = err_set(err, nonsense(&a), "symbols: the reader's answer is none");
    free(a.payload);
    return r;
}

int reader_demangle(struct str name, struct buf *out)
{
    struct question q = {.kind = READER_DEMANGLE, .bytes = name, .fd = {-1, -1}};
    struct reply a = {};
    int r;

    if (!demangle_may(name))
        return 1;
    if (!reader_is_apart())
        return demangle(name, out) ? 0 : 1;
    r = ask(&q, &a);
    if (r < 0)
        return r == -EAGAIN ? r : 1;
    r = 1;
    if (a.head.code == 0 && reader_wire_get_name(payload_of(&a), out))
        r = 0;
    free(a.payload);
    return r;
}

static bool facts_here(elffile_read_fn *read, void *ctx, uint64_t size, struct debugfile_facts *ret)
{
    struct elffile f = {};
    bool ok = elffile_open(&f, read, ctx, size, NULL) == 0 && elffile_sections(&f, NULL) == 0;

    if (ok)
        debugfile_facts(&f, ret);
    elffile_close(&f);
    return ok;
}

static bool facts_there(const struct binary *b, int fd, struct debugfile_facts *ret)
{
    struct question q = {.kind = READER_FACTS, .fd = {fd, -1}};
    struct reply a = {};
    bool ok = false;

    if ((b ? ask_of(b, &q, &a) : ask(&q, &a)) < 0)
        return false;
    if (a.head.code == 0) {
        ok = reader_wire_get_facts(payload_of(&a), ret);
        if (!ok)
            (void)nonsense(&a);
    }
    free(a.payload);
    return ok;
}

bool reader_facts(const struct binary *b, struct debugfile_facts *ret)
{
    if (reader_is_apart())
        return facts_there(b, -1, ret);
    // NOLINTNEXTLINE(performance-no-int-to-ptr): sheds const; it is only read
    return facts_here(read_binary, (void *)(uintptr_t)b, b->size, ret);
}

bool reader_facts_of(int fd, struct debugfile_facts *ret)
{
    struct stat st;

    if (fstat(fd, &st) < 0 || st.st_size <= 0)
        return false;
    if (reader_is_apart())
        return is_elf(fd) && facts_there(NULL, fd, ret);
    return facts_here(elffile_pread, &fd, (uint64_t)st.st_size, ret);
}

enum debugfile_why reader_prove(int fd, const struct debugfile_proof *p)
{
    struct reader_proof w = {.id_len = p->id_len, .with_crc = p->with_crc, .crc = p->crc};
    struct question q = {
        .kind = READER_PROVE, .bytes = {(const char *)&w, sizeof w}, .fd = {fd, -1}};
    enum debugfile_why why = DEBUGFILE_BAD_FILE;
    struct reply a = {};

    if (!reader_is_apart())
        return debugfile_prove(fd, p);
    if (!is_elf(fd))
        return DEBUGFILE_BAD_FILE;
    if (p->id_len)
        memcpy(w.id, p->id, p->id_len);
    if (ask(&q, &a) < 0)
        return why;
    if (a.head.code >= 0 && a.head.code < DEBUGFILE_N)
        why = (enum debugfile_why)a.head.code;
    free(a.payload);
    return why;
}

int reader_perfmap(int fd, const struct jitmap_args *args, struct jitmap *ret, struct err *err)
{
    struct question q = {.kind = READER_PERFMAP, .n = {args->drop_python}, .fd = {fd, -1}};
    struct reply a = {};
    int r;

    if (!reader_is_apart())
        return jitmap_read(fd, args, ret, err);
    r = ask(&q, &a);
    if (r < 0)
        return err_set(err, r, "perf map: the reader has no answer");
    if (a.head.code < 0)
        r = err_set(err, -EIO, "perf map: refused");
    else if (!reader_wire_get_perfmap(&a.head, payload_of(&a), ret))
        r = err_set(err, nonsense(&a), "perf map: the reader's answer is none");
    free(a.payload);
    return r;
}

static enum dwarfline_fail lines_here(const struct dwarfline_job *job, struct dwarfline_arrays *ret)
{
    enum dwarfline_fail why = dwarfline_read(job, ret);

    dwarfline_demangle(ret);
    return why;
}

enum dwarfline_fail reader_lines(const struct dwarfline_job *job, struct dwarfline_arrays *ret,
                                 uint64_t *cpu)
{
    struct question q = {.kind = READER_LINES,
                         .bytes = {(const char *)job->addr, job->n * sizeof *job->addr},
                         .fd = {job->fd, job->alt_fd}};
    enum dwarfline_fail why = DWARFLINE_BAD;
    struct reply a = {};

    if (!reader_is_apart())
        return lines_here(job, ret);
    *ret = (struct dwarfline_arrays){};
    switch (ask(&q, &a)) {
    case 0:
        break;
    case -EAGAIN:
        return DWARFLINE_ABSENT;
    default:
        return why;
    }
    *cpu += a.head.cpu_ns < (uint64_t)READER_CPU_NS ? a.head.cpu_ns : (uint64_t)READER_CPU_NS;
    if (a.head.n[3] < DWARFLINE_FAIL_N)
        why = (enum dwarfline_fail)a.head.n[3];
    if (!reader_wire_get_lines(&a.head, payload_of(&a), job->n, ret)) {
        (void)nonsense(&a);
        why = DWARFLINE_BAD;
    }
    free(a.payload);
    return why;
}

int reader_python(struct binary *b, struct pyelf *ret)
{
    struct question q = {
        .kind = READER_PYTHON, .bytes = str_to(b->path, READER_BYTES), .fd = {-1, -1}};
    struct reply a = {};
    int r;

    if (!reader_is_apart())
        return pyelf_read(b, ret) ? 0 : 1;
    r = ask_of(b, &q, &a);
    if (r < 0)
        return r == -EAGAIN ? r : 1;
    r = a.head.code == 0 ? 0 : 1;
    if (r == 0)
        reader_wire_get_python(&a.head, ret);
    free(a.payload);
    return r;
}

static int step_here(struct binary *b, struct usdt_site *ret)
{
    enum usdt_found found = USDT_NONE;
    struct elffile f = {};

    if (elffile_open(&f, read_binary, b, b->size, NULL) == 0)
        found = usdt_find_step(&f, ret);
    elffile_close(&f);
    return (int)found;
}

int reader_step(struct binary *b, struct usdt_site *ret)
{
    struct question q = {.kind = READER_STEP, .fd = {-1, -1}};
    struct reply a = {};
    int r;

    if (!reader_is_apart())
        return step_here(b, ret);
    r = ask_of(b, &q, &a);
    if (r < 0)
        return r == -EAGAIN ? r : (int)USDT_NONE;
    r = a.head.code == USDT_FOREIGN ? USDT_FOREIGN : USDT_NONE;
    if (a.head.code == USDT_FOUND) {
        struct usdt_site site;

        reader_wire_get_step(&a.head, &site);
        r = usdt_site_ok(b, &site) ? USDT_FOUND : USDT_FOREIGN;
        if (r == USDT_FOUND)
            *ret = site;
    }
    free(a.payload);
    return r;
}

void reader_ping(void)
{
    const struct question q = {.kind = READER_PING, .fd = {-1, -1}};
    struct reply a = {};

    if (reader_is_apart() && ask(&q, &a) == 0)
        free(a.payload);
}

/* ---- start, stop, stats -------------------------------------------------------------------- */

int reader_start(int64_t pause_ns, struct err *err)
{
    int r;

    cond_init(&the.changed);
    for (unsigned i = 0; i < READER_LANES; i++) {
        mutex_init(&the.lane[i].mu);
        the.lane[i].fd = -1;
        the.lane[i].gen = 0;
        the.fresh[i] = -1;
    }
    atomic_store(&the.stop, false);
    mutex_lock(&the.mu);
    the.pause = the.first_pause = pause_ns ? pause_ns : PAUSE_NS;
    the.started = INT64_MIN / 2;
    r = start_locked(err);
    mutex_unlock(&the.mu);
    atomic_store(&the.on, r == 0);
    return r;
}

void reader_stop(void)
{
    atomic_store(&the.stop, true);
    if (!reader_is_apart())
        return;
    mutex_lock(&the.mu);
    the.alive = false; /* nobody gets a new one */
    close_fresh_locked();
    cond_broadcast(&the.changed);
    mutex_unlock(&the.mu);
    for (unsigned i = 0; i < READER_LANES; i++) {
        mutex_lock(&the.lane[i].mu);
        if (the.lane[i].fd >= 0)
            (void)close(the.lane[i].fd);
        the.lane[i].fd = -1;
        the.lane[i].gen = 0;
        mutex_unlock(&the.lane[i].mu);
    }
}

void reader_get_stats(struct reader_stats *ret)
{
    mutex_lock(&the.mu);
    *ret = the.stats;
    mutex_unlock(&the.mu);
}

bool reader_news(char text[static READER_NEWS])
{
    bool have;

    mutex_lock(&the.mu);
    have = the.news[0] != '\0';
    memcpy(text, the.news, sizeof the.news);
    the.news[0] = '\0';
    mutex_unlock(&the.mu);
    return have;
}
