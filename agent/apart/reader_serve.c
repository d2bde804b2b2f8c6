// SPDX-License-Identifier: Apache-2.0
/*
 * The reader process: a thread for each lane, which takes a question, reads the files that came
 * with it and answers. It opens nothing, it can reach nothing: no files by name, no sockets, no
 * other processes. It trusts the questions no more than the files.
 */
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "agent/apart/landlock.h"
#include "agent/apart/reader.h"
#include "agent/apart/sandbox.h"
#include "agent/file/demangle.h"
#include "base/arena.h"
#include "base/thread.h"
#include "base/time.h"

#define STACK      ((size_t)2 << 20)
#define LINES_LANE 2
#define NICE       10
#define MEMORY     (UINT64_C(2) << 30) /* of addresses: each thread's heap reserves some of them */

static char abort_id[2 * 64 + 1]; /* STRATA_TEST_READER_ABORT; written before the threads start */

struct asked {
    struct reader_ask head;
    char bytes[READER_BYTES];
    size_t n;
    int fd[READER_FDS]; /* -1: none */
    uint64_t size;      /* of the first */
};

struct answering {
    struct reader_answer head;
    struct reader_parts parts;
};

/* ---- kinds of work ------------------------------------------------------------------------- */

static void maybe_abort(int fd, uint64_t size)
{
    struct elffile f = {};
    char id[sizeof abort_id] = "";

    if (!abort_id[0])
        return;
    if (elffile_open(&f, elffile_pread, &fd, size, NULL) == 0)
        for (unsigned i = 0; i < f.build_id_len; i++)
            (void)snprintf(id + 2 * (size_t)i, 3, "%02x", f.build_id[i]);
    elffile_close(&f);
    if (strcmp(id, abort_id) == 0)
        abort();
}

static void do_table(struct asked *q, struct answering *a)
{
    const struct ehtab_file f = {.read = elffile_pread, .ctx = &q->fd[0], .size = q->size};
    struct ehtab t;

    maybe_abort(q->fd[0], q->size);
    a->head.code = (int32_t)ehtab_build(&f, &t);
    if (a->head.code)
        return;
    reader_wire_put_table(&t, &a->head, &a->parts);
    a->parts.heap = t.row;
}

static void do_symbols(struct asked *q, struct answering *a)
{
    struct elfsym_file main = {elffile_pread, &q->fd[0], q->size};
    struct elfsym_file debug = {elffile_pread, &q->fd[1], 0};
    struct elfsym_job job = {.main = &main, .max_symbols = (uint32_t)q->head.n[0]};
    struct elfsym_arrays s = {};
    struct stat st;

    if (q->fd[1] >= 0 && fstat(q->fd[1], &st) == 0) {
        debug.size = (uint64_t)st.st_size;
        job.debug = &debug;
    }
    a->head.code = elfsym_read(&job, &s, NULL);
    if (a->head.code)
        return;
    reader_wire_put_symbols(&s, &a->head, &a->parts);
    a->parts.heap = s.sym;
    a->parts.heap2 = s.mini;
}

static void do_demangle(struct asked *q, struct answering *a)
{
    struct buf out;

    buf_init(&out, DEMANGLE_MAX_OUT + 1024);
    if (demangle((struct str){q->bytes, q->n}, &out) && !out.failed) {
        a->parts.part[a->parts.n++] = buf_view(&out);
        a->parts.heap = out.p;
    } else {
        a->head.code = -ENOENT;
        buf_deinit(&out);
    }
}

static void do_facts(struct asked *q, struct answering *a)
{
    struct debugfile_facts facts;
    struct elffile f = {};

    a->head.code = -ENOEXEC;
    if (elffile_open(&f, elffile_pread, &q->fd[0], q->size, NULL) == 0 &&
        elffile_sections(&f, NULL) == 0) {
        debugfile_facts(&f, &facts);
        reader_wire_put_facts(&facts, &a->parts);
        a->head.code = 0;
    }
    elffile_close(&f);
}

static void do_prove(struct asked *q, struct answering *a)
{
    struct reader_proof w;
    struct debugfile_proof p;

    a->head.code = DEBUGFILE_BAD_FILE;
    if (q->n != sizeof w)
        return;
    memcpy(&w, q->bytes, sizeof w);
    if (w.id_len > sizeof w.id || w.with_crc > 1)
        return;
    p = (struct debugfile_proof){
        .id = w.id, .id_len = (uint8_t)w.id_len, .with_crc = w.with_crc, .crc = w.crc};
    a->head.code = (int32_t)debugfile_prove(q->fd[0], &p);
}

static void do_perfmap(struct asked *q, struct answering *a)
{
    const struct jitmap_args args = {.drop_python = q->head.n[0] != 0};
    struct jitmap m = {};

    a->head.code = jitmap_read(q->fd[0], &args, &m, NULL);
    if (a->head.code)
        return;
    reader_wire_put_perfmap(&m, &a->head, &a->parts);
    a->parts.heap = m.sym;
    a->parts.heap2 = m.text;
}

static void do_lines(struct asked *q, struct answering *a)
{
    uint32_t n = (uint32_t)(q->n / sizeof(uint64_t));
    uint64_t *addr = xmalloc(q->n + sizeof *addr);
    struct dwarfline_job job = {.fd = q->fd[0], .alt_fd = q->fd[1], .addr = addr, .n = n};
    struct dwarfline_arrays l = {};

    memcpy(addr, q->bytes, q->n);
    a->head.n[3] = dwarfline_read(&job, &l);
    dwarfline_demangle(&l);
    if (!l.found)
        l.found = xcalloc(n ? n : 1, sizeof *l.found);
    reader_wire_put_lines(&l, n, &a->head, &a->parts);
    a->parts.heap2 = l.found;
    a->parts.heap3 = l.text;
    free(l.frame);
    free(addr);
}

static void do_python(struct asked *q, struct answering *a)
{
    struct elffile f = {};
    struct pyelf e;
    struct binary b = {.fd = q->fd[0], .size = q->size, .is_elf = true, .path = {q->bytes, q->n}};

    a->head.code = -ENOENT;
    if (elffile_open(&f, elffile_pread, &q->fd[0], q->size, NULL) == 0) {
        b.n_load = f.n_load;
        b.load = f.load;
        if (pyelf_read(&b, &e)) {
            a->head.code = 0;
            reader_wire_put_python(&e, &a->head);
        }
    }
    elffile_close(&f);
}

static void do_step(struct asked *q, struct answering *a)
{
    struct usdt_site site = {};
    struct elffile f = {};

    a->head.code = USDT_NONE;
    if (elffile_open(&f, elffile_pread, &q->fd[0], q->size, NULL) == 0)
        a->head.code = (int32_t)usdt_find_step(&f, &site);
    reader_wire_put_step(&site, &a->head);
    elffile_close(&f);
}

static void do_ping(struct asked *q, struct answering *a)
{
    (void)q;
    (void)a;
}

static void (*const work[READER_KINDS])(struct asked *q, struct answering *a) = {
    [READER_TABLE] = do_table, [READER_SYMBOLS] = do_symbols, [READER_DEMANGLE] = do_demangle,
    [READER_FACTS] = do_facts, [READER_PROVE] = do_prove,     [READER_PERFMAP] = do_perfmap,
    [READER_LINES] = do_lines, [READER_PYTHON] = do_python,   [READER_STEP] = do_step,
    [READER_PING] = do_ping};

/* ---- questions and answers ----------------------------------------------------------------- */

/* false: the agent is gone, or talks nonsense. */
static bool take_question(int from, struct asked *q)
{
    union {
        struct cmsghdr h;
        char room[CMSG_SPACE(READER_FDS * sizeof(int))];
    } control = {};
    struct iovec part[2] = {{&q->head, sizeof q->head}, {q->bytes, sizeof q->bytes}};
    struct msghdr m = {.msg_iov = part,
                       .msg_iovlen = 2,
                       .msg_control = &control,
                       .msg_controllen = sizeof control};
    int fd[READER_FDS] = {-1, -1};
    const struct cmsghdr *h;
    unsigned n_fd = 0, next = 0;
    struct stat st;
    ssize_t n;

    do
        n = recvmsg(from, &m, MSG_CMSG_CLOEXEC);
    while (n < 0 && errno == EINTR);
    if (n <= 0 || m.msg_flags & (MSG_TRUNC | MSG_CTRUNC))
        return false;
    h = CMSG_FIRSTHDR(&m);
    if (h && h->cmsg_type == SCM_RIGHTS) {
        n_fd = (unsigned)((h->cmsg_len - CMSG_LEN(0)) / sizeof(int));
        memcpy(fd, CMSG_DATA(h), n_fd * sizeof(int));
    }
    if (!reader_wire_ask_ok(&q->head, (size_t)n, n_fd))
        return false;
    q->n = q->head.n_bytes;
    for (unsigned i = 0; i < READER_FDS; i++)
        q->fd[i] = q->head.fds >> i & 1 ? fd[next++] : -1;
    q->size =
        q->fd[0] >= 0 && fstat(q->fd[0], &st) == 0 && st.st_size > 0 ? (uint64_t)st.st_size : 0;
    return true;
}

static bool write_all(int fd, struct str s)
{
    while (s.n) {
        ssize_t n = write(fd, s.p, s.n);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        s = str_from(s, (size_t)n);
    }
    return true;
}

/* The payload as a file that nobody can change any more; -1: no memory for it. */
static int seal(const struct reader_parts *p)
{
    int fd = memfd_create("answer", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    bool ok = fd >= 0;

    for (unsigned i = 0; ok && i < p->n; i++)
        ok = write_all(fd, p->part[i]);
    if (ok && fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL) == 0)
        return fd;
    if (fd >= 0)
        (void)close(fd);
    return -1;
}

static bool send_answer(int to, struct answering *a)
{
    union {
        struct cmsghdr h;
        char room[CMSG_SPACE(sizeof(int))];
    } control = {};
    struct iovec part[1 + READER_PARTS] = {{&a->head, sizeof a->head}};
    struct msghdr m = {.msg_iov = part, .msg_iovlen = 1};
    int fd = -1;
    bool ok;

    for (unsigned i = 0; i < a->parts.n; i++)
        a->head.bytes += a->parts.part[i].n;
    if (a->head.bytes > READER_BYTES) {
        fd = a->head.bytes <= READER_MAX ? seal(&a->parts) : -1;
        if (fd < 0)
            return false; /* what it takes is too much: the end, and counted there */
        a->head.in_fd = 1;
        m.msg_control = &control;
        m.msg_controllen = sizeof control.room;
        control.h = (struct cmsghdr){
            .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof fd)};
        memcpy(CMSG_DATA(&control.h), &fd, sizeof fd);
    } else {
        for (unsigned i = 0; i < a->parts.n; i++) {
            struct iovec *v = &part[m.msg_iovlen++];

            // NOLINTNEXTLINE(performance-no-int-to-ptr): sheds const; it is only read
            v->iov_base = (void *)(uintptr_t)a->parts.part[i].p;
            v->iov_len = a->parts.part[i].n;
        }
    }
    ok = sendmsg(to, &m, MSG_NOSIGNAL) >= 0;
    if (fd >= 0)
        (void)close(fd);
    return ok;
}

static uint64_t thread_cpu(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)(t.tv_sec * NS_PER_S + t.tv_nsec);
}

static bool answer_one(int lane, struct asked *q)
{
    struct answering a = {};
    uint64_t t0;
    bool ok;

    if (!take_question(lane, q))
        return false;
    t0 = thread_cpu();
    a.head = (struct reader_answer){.magic = READER_MAGIC, .kind = q->head.kind, .id = q->head.id};
    work[q->head.kind](q, &a);
    a.head.cpu_ns = thread_cpu() - t0;
    ok = send_answer(lane, &a);
    free(a.parts.heap);
    free(a.parts.heap2);
    free(a.parts.heap3);
    for (unsigned i = 0; i < READER_FDS; i++)
        if (q->fd[i] >= 0)
            (void)close(q->fd[i]);
    if (a.head.in_fd) /* a file's worth of pieces */
        (void)malloc_trim(0);
    return ok;
}

/* ---- the process --------------------------------------------------------------------------- */

struct lane {
    int fd;
    bool slow; /* nobody waits for it */
};

static void *run(void *ctx)
{
    const struct lane *l = ctx;
    struct asked *q = xcalloc(1, sizeof *q);

    if (l->slow)
        (void)setpriority(PRIO_PROCESS, (id_t)gettid(), NICE);
    while (answer_one(l->fd, q))
        ;
    _exit(0); /* of the other lanes, too: they are the same agent's */
}

static void give_away_rights(void)
{
    static const struct rlimit memory = {MEMORY, MEMORY}, size = {READER_MAX, READER_MAX};

    (void)prctl(PR_SET_NAME, "strata-reader");
#ifndef SANDBOX_SANITIZED /* whose shadow memory is larger than any limit */
    (void)setrlimit(RLIMIT_AS, &memory);
#endif
    (void)memory;
    (void)setrlimit(RLIMIT_FSIZE, &size);
    (void)landlock_restrict(NULL, false, NULL); /* where there is one */
}

int reader_serve(const int *fd, unsigned n)
{
    const char *id = getenv("STRATA_TEST_READER_ABORT"); // NOLINT(concurrency-mt-unsafe): no thread
    struct lane lane[READER_LANES];
    pthread_t thread[READER_LANES];

    if (n != READER_LANES)
        return 1;
    if (id && strlen(id) < sizeof abort_id)
        (void)snprintf(abort_id, sizeof abort_id, "%s", id);
    give_away_rights();
    for (unsigned i = 0; i < READER_LANES; i++) {
        lane[i] = (struct lane){fd[i], i == LINES_LANE};
        if (i && thread_start(&thread[i], "strata-reader", STACK, run, &lane[i]) < 0)
            return 1;
    }
    (void)sandbox_reader(NULL); /* all threads; check has said whether there are filters */
    (void)run(&lane[0]);
    return 0;
}
