// SPDX-License-Identifier: Apache-2.0
/* The executable mappings of one process, and the files behind them. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "agent/file/procfile.h"
#include "agent/file/rootfile.h"
#include "agent/proc/proc_private.h"
#include "base/hash.h"
#include "base/time.h"

#define MAX_MAPS_TEXT ((size_t)64 << 20)
#define READ_CHUNK    ((size_t)64 << 10) /* a line is shorter */
#define READ_NS       (100 * NS_PER_MS)  /* of our CPU, for one reading */
#define READ_SHARE    50                 /* reading pauses so many times as long as it took */
#define MAX_EVENTS_S  2000               /* mappings of one process that are followed in a second */
#define MAX_VDSO      65536

const struct proc_map *proc_map_find(const struct proc *p, uint64_t addr)
{
    uint32_t lo = 0, hi = p->n_map;

    while (lo < hi) { /* first mapping beyond addr */
        uint32_t mid = lo + (hi - lo) / 2;

        if (p->map[mid].start <= addr)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo > 0 && addr < p->map[lo - 1].end ? &p->map[lo - 1] : NULL;
}

static const char *open_why(int code)
{
    switch (code) {
    case EACCES:
    case EPERM:
        return "open: permission denied";
    case ENOENT:
    case ESRCH:
        return "open: gone";
    case EMFILE:
    case ENFILE:
        return "open: too many files";
    case EINVAL:
        return "open: no regular file";
    default:
        return "open: failed";
    }
}

/* Through map_files, which reaches deleted files and other mount namespaces. The link is looked at
 * first: opening a device would do something to it. A descriptor, or negative errno. */
static int open_map_file(const struct procmaps_of *of, const struct procread_map *m)
{
    char path[128];
    struct stat st;
    int fd;

    (void)snprintf(path, sizeof path, "%.48s/%u/map_files/%" PRIx64 "-%" PRIx64, of->proc, of->pid,
                   m->start, m->end);
    if (stat(path, &st) < 0)
        return -errno;
    if (!S_ISREG(st.st_mode))
        return -EINVAL;
    fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    return fd < 0 ? -errno : fd;
}

static bool same_file(const struct procread_map *m, const struct stat *st)
{
    char dev[32];

    (void)snprintf(dev, sizeof dev, "%02x:%02x", major(st->st_dev), minor(st->st_dev));
    return m->ino == st->st_ino && str_eq(m->dev, str_c(dev));
}

/* By its name in the process's root, for want of CAP_CHECKPOINT_RESTORE: another file may have that
 * name now. ret_known: it is the one that is mapped. */
static int open_name(const struct procmaps_of *of, const struct procread_map *m, bool *ret_known)
{
    int root = rootfile_root(of->proc, of->pid), fd;
    struct stat st;

    if (root < 0)
        return root;
    fd = rootfile_open(root, m->path, true);
    close(root);
    *ret_known = fd >= 0 && fstat(fd, &st) == 0 && same_file(m, &st);
    return fd;
}

/* The program itself, even where its name is gone: a link that needs no privilege. */
static int open_exe(const struct procmaps_of *of, const struct procread_map *m)
{
    char path[128];
    struct stat st;
    int fd;

    (void)snprintf(path, sizeof path, "%.48s/%u/exe", of->proc, of->pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && same_file(m, &st))
        return fd;
    (void)close(fd);
    return -EPERM;
}

/* Device and inode in maps differ from stat(2) on stacked file systems, as containers have: is what
 * is mapped the file's content? Code is not changed when it is loaded; its first and last page. */
static bool same_bytes(const struct procmaps_of *of, const struct procread_map *m,
                       const struct binary *b)
{
    const uint64_t page = 4096, last = m->end - m->start - page;
    uint8_t mapped[4096], file[4096];

    if (m->end - m->start < page)
        return false;
    for (int i = 0; i < 2; i++) {
        uint64_t at = i ? last : 0;
        struct iovec to = {mapped, page},
                     from = {(void *)(uintptr_t)(m->start + at), page}; // NOLINT: the target's
        int64_t n = binary_read(b, file, page, m->offset + at);

        if (n <= 0 || process_vm_readv((pid_t)of->pid, &to, 1, &from, 1, 0) != (ssize_t)page ||
            memcmp(mapped, file, (size_t)n) != 0)
            return false;
    }
    return true;
}

static bool has_build_id(const struct binary *b, const uint8_t *id, uint8_t id_len)
{
    return id_len && b->id_kind == BIN_ID_GNU && b->id_len == id_len &&
           memcmp(b->id_bytes, id, id_len) == 0;
}

static struct binary *open_mapped(const struct procmaps_of *of, const struct procread_map *m,
                                  const uint8_t *id, uint8_t id_len, const char **ret_why)
{
    struct binary *b = NULL;
    bool known = true;
    int fd = open_map_file(of, m);

    if (fd == -EPERM || fd == -EACCES) {
        int other = m->deleted ? open_exe(of, m) : open_name(of, m, &known);

        fd = other >= 0 ? other : fd;
    }
    if (fd < 0) {
        *ret_why = open_why(-fd);
        return NULL;
    }
    if (binary_open(fd, m->path, m->deleted, &b, NULL) < 0) {
        *ret_why = "open: failed";
        return NULL;
    }
    if (!known && !has_build_id(b, id, id_len) && !same_bytes(of, m, b)) {
        *ret_why = open_why(EPERM);
        binary_unref(b);
        return NULL;
    }
    if (!b->is_elf && str_starts(m->path, STR("/memfd:"))) { /* a JIT that maps its code twice */
        *ret_why = "anonymous";
        binary_unref(b);
        return NULL;
    }
    binary_offer_root(b, of->proc, of->pid);
    return b;
}

static struct binary *open_vdso(const struct procmaps_of *of, const struct procread_map *m,
                                const char **ret_why)
{
    uint64_t n = m->end - m->start;
    struct binary *b = NULL;
    struct iovec to, from;
    ssize_t got;

    *ret_why = "vdso: not readable";
    if (n > MAX_VDSO)
        return NULL;
    to = (struct iovec){xmalloc(n), n};
    from = (struct iovec){(void *)(uintptr_t)m->start, n}; // NOLINT(performance-no-int-to-ptr)
    got = process_vm_readv((pid_t)of->pid, &to, 1, &from, 1, 0);
    if (got == (ssize_t)n && binary_open_image(to.iov_base, n, STR("[vdso]"), &b, NULL) < 0)
        b = NULL;
    free(to.iov_base);
    return b;
}

static void set_binary(const struct procmaps_of *of, struct proc_map *pm, struct binary *b,
                       const char *why)
{
    pm->bin = b;
    pm->why = b ? NULL : why;
    pm->bias = b ? pm->start - binary_vaddr(b, pm->offset) : 0;
    if (!b && str_starts(str_c(why), STR("open")))
        of->stats->open_failed++;
}

/* The content behind one mapping; what is open already by its build id is not opened again. */
static void resolve(const struct procmaps_of *of, const struct procread_map *m, const uint8_t *id,
                    uint8_t id_len, struct proc_map *pm)
{
    const char *why = "anonymous";
    struct binary *b = NULL;

    if (str_eq(m->path, STR("[vdso]")))
        b = open_vdso(of, m, &why);
    else if (m->path.n && m->path.p[0] == '/' && !str_starts(m->path, STR("//"))) {
        if (id_len)
            b = binary_by_build_id(id, id_len);
        if (!b)
            b = open_mapped(of, m, id, id_len, &why);
    }
    set_binary(of, pm, b, why);
}

static bool insert_at(struct proc_stats *st, struct procmaps *s, uint32_t at,
                      const struct proc_map *pm, struct procmaps_source source)
{
    if (s->n >= PROC_MAX_MAPS || st->maps_held >= PROC_ALL_MAPS) {
        st->maps_truncated++;
        return false;
    }
    if (s->n == s->room) {
        s->room = s->room ? 2 * s->room : 16;
        s->map = xrealloc(s->map, s->room * sizeof *s->map);
        s->source = xrealloc(s->source, s->room * sizeof *s->source);
    }
    memmove(s->map + at + 1, s->map + at, (s->n - at) * sizeof *s->map);
    memmove(s->source + at + 1, s->source + at, (s->n - at) * sizeof *s->source);
    s->map[at] = *pm;
    s->source[at] = source;
    s->n++;
    s->stats = st;
    st->maps_held++;
    return true;
}

/* First one that begins at addr or behind it. */
static uint32_t lower(const struct procmaps *s, uint64_t addr)
{
    uint32_t lo = 0, hi = s->n;

    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;

        if (s->map[mid].start < addr)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

static void remove_at(struct procmaps *s, uint32_t at)
{
    binary_unref(s->map[at].bin);
    s->n--;
    s->stats->maps_held--;
    memmove(s->map + at, s->map + at + 1, (s->n - at) * sizeof *s->map);
    memmove(s->source + at, s->source + at + 1, (s->n - at) * sizeof *s->source);
}

/* Make [start, end) free: what lies in it goes, what overlaps is cut. */
static void cut(struct proc_stats *st, struct procmaps *s, uint64_t start, uint64_t end)
{
    uint32_t i = lower(s, start);

    if (i && s->map[i - 1].end > start)
        i--;
    while (i < s->n && s->map[i].start < end) {
        struct proc_map *m = &s->map[i];
        struct proc_map tail = *m;

        if (m->start >= start && m->end <= end) {
            remove_at(s, i);
        } else if (m->start < start) {
            m->end = start;
            if (tail.end > end) { /* it went on behind the new one */
                tail.offset += end - tail.start;
                tail.start = end;
                if (insert_at(st, s, i + 1, &tail, s->source[i]) && tail.bin)
                    binary_ref(tail.bin);
            }
            i++;
        } else {
            m->offset += end - m->start;
            m->start = end;
            i++;
        }
    }
}

static bool is_executable_map(const struct procread_map *m)
{
    return m->exec && m->start >> 63 == 0; /* the vsyscall page is the kernel's */
}

/* What an old entry of this range knew, kept if it is the same mapping. */
static bool keep(const struct procmaps *s, const struct procread_map *m, uint64_t path_hash,
                 struct proc_map *ret)
{
    uint32_t i = lower(s, m->start);
    const struct procmaps_source *src;
    const struct proc_map *o;

    if (i == s->n)
        return false;
    o = &s->map[i];
    src = &s->source[i];
    if (o->start != m->start || o->end != m->end || o->offset != m->offset || !o->bin ||
        src->path_hash != path_hash || (src->ino != m->ino && src->ino != 0))
        return false;
    *ret = *o;
    binary_ref(o->bin);
    return true;
}

static bool same_maps(const struct procmaps *a, const struct procmaps *b)
{
    if (a->n != b->n)
        return false;
    for (uint32_t i = 0; i < a->n; i++) {
        const struct proc_map *x = &a->map[i], *y = &b->map[i];

        if (x->start != y->start || x->end != y->end || x->bias != y->bias || x->bin != y->bin)
            return false;
    }
    return true;
}

/* The lines of text into fresh. false: it is full. */
static bool add_lines(struct procmaps *fresh, const struct procmaps *s,
                      const struct procmaps_of *of, struct str text)
{
    struct procread_map m;

    while (procread_map_next(&text, &m)) {
        struct proc_map pm = {.start = m.start, .end = m.end, .offset = m.offset};
        struct procmaps_source source = {.ino = m.ino, .path_hash = hash_str(m.path)};

        if (!is_executable_map(&m))
            continue;
        if (!keep(s, &m, source.path_hash, &pm))
            resolve(of, &m, NULL, 0, &pm);
        if (!insert_at(of->stats, fresh, fresh->n, &pm, source)) {
            binary_unref(pm.bin);
            return false;
        }
    }
    return true;
}

/* Piece by piece: its length is the target's choice. false: it cannot be read, or not to its end.
 */
static bool read_all(struct procmaps *fresh, const struct procmaps *s, const struct procmaps_of *of)
{
    int64_t until = thread_cpu_ns() + READ_NS;
    char path[80], *text = NULL;
    size_t have = 0, total = 0;
    ssize_t n = -1;
    int fd;

    (void)snprintf(path, sizeof path, "%.48s/%u/maps", of->proc, of->pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0)
        text = xmalloc(READ_CHUNK);
    while (fd >= 0 && (n = read(fd, text + have, READ_CHUNK - have)) > 0) {
        const char *end;
        size_t whole;

        have += (size_t)n;
        total += (size_t)n;
        end = memrchr(text, '\n', have);
        whole = end ? (size_t)(end - text) + 1 : have;
        if (!add_lines(fresh, s, of, (struct str){text, whole}))
            break;
        if (total >= MAX_MAPS_TEXT || thread_cpu_ns() > until) {
            of->stats->maps_truncated++;
            break;
        }
        have -= whole;
        memmove(text, text + whole, have);
    }
    if (n == 0 && have)
        (void)add_lines(fresh, s, of, (struct str){text, have});
    free(text);
    if (fd >= 0)
        close(fd);
    return n >= 0;
}

bool procmaps_read(struct procmaps *s, const struct procmaps_of *of)
{
    struct procmaps fresh = {.second = s->second, .n_event = s->n_event};
    int64_t begin = thread_cpu_ns();
    bool changed;

    if (!read_all(&fresh, s, of)) {
        procmaps_free(&fresh);
        return false;
    }
    if (fresh.room > fresh.n + fresh.n / 4) { /* most are read once */
        fresh.room = fresh.n ? fresh.n : 1;
        fresh.map = xrealloc(fresh.map, fresh.room * sizeof *fresh.map);
        fresh.source = xrealloc(fresh.source, fresh.room * sizeof *fresh.source);
    }
    fresh.pause_ns = (thread_cpu_ns() - begin) * READ_SHARE;
    changed = !same_maps(s, &fresh);
    procmaps_free(s);
    *s = fresh;
    return changed;
}

static bool too_many(struct procmaps *s, int64_t t)
{
    if (t / NS_PER_S != s->second) {
        s->second = t / NS_PER_S;
        s->n_event = 0;
    }
    if (s->n_event < MAX_EVENTS_S) {
        s->n_event++;
        return false;
    }
    s->behind = true;
    return true;
}

bool procmaps_enter(struct procmaps *s, const struct procmaps_of *of,
                    const struct perfmap_event *ev)
{
    struct procread_map m = {
        .start = ev->start, .end = ev->end, .offset = ev->offset, .exec = true};
    struct proc_map pm = {.start = ev->start, .end = ev->end, .offset = ev->offset};
    uint32_t at;

    if (ev->start >= ev->end || !is_executable_map(&m))
        return false;
    if (too_many(s, ev->t))
        return false;
    m.path = procread_undelete(ev->name, &m.deleted);
    resolve(of, &m, ev->build_id, ev->build_id_len, &pm);
    cut(of->stats, s, pm.start, pm.end);
    at = lower(s, pm.start);
    if (!insert_at(of->stats, s, at, &pm, (struct procmaps_source){.path_hash = hash_str(m.path)}))
        binary_unref(pm.bin);
    return true;
}

void procmaps_copy(struct procmaps *s, const struct procmaps *from, struct proc_stats *st)
{
    for (uint32_t i = 0; i < from->n; i++) {
        struct proc_map m = from->map[i];

        if (m.bin)
            binary_ref(m.bin);
        if (!insert_at(st, s, s->n, &m, from->source[i]))
            binary_unref(m.bin);
    }
}

void procmaps_clear(struct procmaps *s)
{
    for (uint32_t i = 0; i < s->n; i++)
        binary_unref(s->map[i].bin);
    if (s->n)
        s->stats->maps_held -= s->n;
    s->n = 0;
}

void procmaps_free(struct procmaps *s)
{
    procmaps_clear(s);
    free(s->map);
    free(s->source);
    *s = (struct procmaps){};
}
