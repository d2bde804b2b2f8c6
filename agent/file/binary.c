// SPDX-License-Identifier: Apache-2.0
#include "agent/file/binary.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/file/rootfile.h"
#include "agent/file/sha256.h"
#include "base/arena.h"
#include "base/hash.h"
#include "base/map.h"
#include "base/thread.h"
#include "base/time.h"

#define HASHED_EDGE UINT64_C(4096)

/* The root of some processes: binaries of one container share it. */
struct root {
    dev_t dev;
    ino_t ino;
    int fd;
    uint32_t refs;
    struct root *next;
};

/* What the registry keeps beside the public part, which stands first. */
struct entry {
    struct binary b;
    struct root *root; /* NULL: ours, or nobody offered one */
    bool root_known;
    struct entry *same_hash; /* the next entry whose content id has this hash */
    int64_t idle_since;      /* of an unreferenced one, monotonic */
    uint64_t hash;
};

static struct mutex mu = MUTEX_INIT;
static struct map by_id;      /* id -> struct entry * */
static struct map by_content; /* hash of kind and id -> struct entry *, a chain */
static struct root *roots;
static uint32_t last_id;

static struct entry *entry_of(uint64_t v)
{
    return (struct entry *)(uintptr_t)v; // NOLINT(performance-no-int-to-ptr): a map value
}

static uint64_t content_hash(enum bin_id_kind kind, const uint8_t *id, uint8_t n)
{
    return hash_seed(id, n, kind);
}

static struct entry *find_content(enum bin_id_kind kind, const uint8_t *id, uint8_t n) REQUIRES(&mu)
{
    uint64_t v;
    struct entry *e;

    if (!map_get(&by_content, content_hash(kind, id, n), &v))
        return NULL;
    for (e = entry_of(v); e; e = e->same_hash) {
        if (e->b.id_kind == kind && e->b.id_len == n && memcmp(e->b.id_bytes, id, n) == 0)
            return e;
    }
    return NULL;
}

struct binary *binary_ref(struct binary *b)
{
    mutex_lock(&mu);
    b->refs++;
    mutex_unlock(&mu);
    return b;
}

struct binary *binary_unref(struct binary *b)
{
    if (!b)
        return NULL;
    mutex_lock(&mu);
    assert(b->refs > 0);
    if (--b->refs == 0)
        ((struct entry *)b)->idle_since = mono_now().v;
    mutex_unlock(&mu);
    return NULL;
}

struct binary *binary_by_id(uint32_t id)
{
    struct entry *e = NULL;
    uint64_t v;

    mutex_lock(&mu);
    if (map_get(&by_id, id, &v)) {
        e = entry_of(v);
        e->b.refs++;
    }
    mutex_unlock(&mu);
    return e ? &e->b : NULL;
}

struct binary *binary_by_build_id(const uint8_t *id, uint8_t n)
{
    struct entry *e;

    mutex_lock(&mu);
    e = find_content(BIN_ID_GNU, id, n);
    if (e)
        e->b.refs++;
    mutex_unlock(&mu);
    return e ? &e->b : NULL;
}

int64_t binary_read(const struct binary *b, void *to, uint64_t n, uint64_t at)
{
    uint64_t done = 0;

    if (at >= b->size)
        return 0;
    if (n > b->size - at)
        n = b->size - at;
    if (b->image) {
        memcpy(to, b->image + at, n);
        return (int64_t)n;
    }
    while (done < n) {
        ssize_t r = pread(b->fd, (char *)to + done, n - done, (off_t)(at + done));

        if (r < 0 && errno == EINTR)
            continue;
        if (r < 0)
            return -errno;
        if (r == 0) /* truncated since it was opened */
            break;
        done += (uint64_t)r;
    }
    return (int64_t)done;
}

static int64_t read_cb(void *ctx, void *to, uint64_t n, uint64_t at)
{
    return binary_read(ctx, to, n, at);
}

/* SHA-256 of the first and last 4 KiB and the size (big-endian, as OTLP's semantic conventions
 * have it), cut to 16 bytes. */
static int hash_file(struct binary *b, struct err *err)
{
    uint8_t edge[HASHED_EDGE], size[8], sum[32];
    uint64_t last = b->size > HASHED_EDGE ? b->size - HASHED_EDGE : 0;
    struct sha256 s;

    sha256_init(&s);
    for (int i = 0; i < 2; i++) {
        int64_t n = binary_read(b, edge, sizeof edge, i ? last : 0);

        if (n < 0)
            return err_set(err, (int)n, "read: %s", strerrordesc_np((int)-n));
        sha256_add(&s, edge, (size_t)n);
    }
    for (unsigned i = 0; i < 8; i++)
        size[i] = (uint8_t)(b->size >> (56 - 8 * i));
    sha256_add(&s, size, sizeof size);
    sha256_end(&s, sum);
    b->id_kind = BIN_ID_HTLHASH;
    b->id_len = 16;
    memcpy(b->id_bytes, sum, 16);
    return 0;
}

static int identify(struct binary *b, struct err *err)
{
    struct elffile f;
    struct elffile_load *load;

    if (elffile_open(&f, read_cb, b, b->size, NULL) < 0)
        return hash_file(b, err); /* no ELF file, or one that lies: known by its bytes */
    b->is_elf = true;
    b->n_load = f.n_load;
    load = xcalloc(f.n_load ? f.n_load : 1, sizeof *load);
    memcpy(load, f.load, f.n_load * sizeof *load);
    b->load = load;
    for (uint32_t i = 0; i < f.n_load; i++) {
        if (f.load[i].vaddr >> 40 || (f.load[i].vaddr + f.load[i].memsz) >> 40)
            b->big_address = true;
    }
    if (f.build_id_len == 0)
        return hash_file(b, err);
    b->id_kind = BIN_ID_GNU;
    b->id_len = f.build_id_len;
    memcpy(b->id_bytes, f.build_id, f.build_id_len);
    return 0;
}

static void root_unref(struct root *r)
{
    struct root **at = &roots;

    mutex_lock(&mu);
    if (--r->refs) {
        mutex_unlock(&mu);
        return;
    }
    while (*at != r)
        at = &(*at)->next;
    *at = r->next;
    mutex_unlock(&mu);
    close(r->fd);
    free(r);
}

static void entry_free(struct entry *e)
{
    if (!e)
        return;
    if (e->root)
        root_unref(e->root);
    if (e->b.fd >= 0)
        close(e->b.fd);
    free((void *)(uintptr_t)e->b.image);  // NOLINT(performance-no-int-to-ptr): sheds const
    free((void *)(uintptr_t)e->b.load);   // NOLINT(performance-no-int-to-ptr)
    free((void *)(uintptr_t)e->b.path.p); // NOLINT(performance-no-int-to-ptr)
    free(e);
}

static int add_locked(struct entry *e, struct err *err) REQUIRES(&mu)
{
    uint64_t *chain;

    if (last_id >= BINARY_MAX_ID)
        return err_set(err, -ENOSPC, "%u binaries were opened, the limit", last_id);
    if (map_put(&by_id, last_id + 1, (uint64_t)(uintptr_t)e) == MAP_FULL)
        return err_set(err, -ENOMEM, "no memory for a binary");
    if (map_at(&by_content, e->hash, &chain) == MAP_FULL) {
        map_del(&by_id, last_id + 1);
        return err_set(err, -ENOMEM, "no memory for a binary");
    }
    e->same_hash = entry_of(*chain);
    *chain = (uint64_t)(uintptr_t)e;
    e->b.id = ++last_id;
    e->b.refs = 1;
    return 0;
}

/* e was filled but for its ids: into the registry, or away where its content is known. */
static int settle(struct entry *e, struct binary **ret, struct err *err)
{
    struct entry *old;
    int r = identify(&e->b, err);

    if (r < 0) {
        entry_free(e);
        return r;
    }
    e->hash = content_hash(e->b.id_kind, e->b.id_bytes, e->b.id_len);
    mutex_lock(&mu);
    old = find_content(e->b.id_kind, e->b.id_bytes, e->b.id_len);
    if (old)
        old->b.refs++;
    else
        r = add_locked(e, err);
    mutex_unlock(&mu);
    if (old || r < 0)
        entry_free(e);
    if (r < 0)
        return r;
    *ret = old ? &old->b : &e->b;
    return 0;
}

static struct str copy_str(struct str s)
{
    char *p = xmalloc(s.n + 1);

    if (s.n)
        memcpy(p, s.p, s.n);
    p[s.n] = '\0';
    return (struct str){p, s.n};
}

int binary_open(int fd, struct str path, bool deleted, struct binary **ret, struct err *err)
{
    struct entry *e;
    struct stat st;

    if (fstat(fd, &st) < 0) {
        int code = errno;

        close(fd);
        return err_set(err, -code, "fstat: %s", strerrordesc_np(code));
    }
    if (!S_ISREG(st.st_mode)) {
        close(fd);
        return err_set(err, -EINVAL, "no regular file");
    }
    e = xcalloc(1, sizeof *e);
    e->b.fd = fd;
    e->b.size = (uint64_t)st.st_size;
    e->b.path = copy_str(path);
    e->b.deleted = deleted;
    return settle(e, ret, err);
}

int binary_open_image(const void *p, uint64_t n, struct str path, struct binary **ret,
                      struct err *err)
{
    struct entry *e = xcalloc(1, sizeof *e);
    uint8_t *image = xmalloc(n ? n : 1);

    if (n)
        memcpy(image, p, n);
    e->b.fd = -1;
    e->b.image = image;
    e->b.size = n;
    e->b.path = copy_str(path);
    return settle(e, ret, err);
}

/* The root behind fd, taken over; NULL: ours. */
static struct root *root_of_locked(int fd) REQUIRES(&mu)
{
    struct stat st, own;
    struct root *r;

    if (fstat(fd, &st) < 0 || stat("/", &own) < 0 ||
        (st.st_dev == own.st_dev && st.st_ino == own.st_ino)) {
        close(fd);
        return NULL;
    }
    for (r = roots; r; r = r->next) {
        if (r->dev == st.st_dev && r->ino == st.st_ino) {
            close(fd);
            r->refs++;
            return r;
        }
    }
    r = xcalloc(1, sizeof *r);
    *r = (struct root){.dev = st.st_dev, .ino = st.st_ino, .fd = fd, .refs = 1, .next = roots};
    roots = r;
    return r;
}

void binary_offer_root(struct binary *b, const char *proc, uint32_t pid)
{
    struct entry *e = (struct entry *)b;
    int fd;

    mutex_lock(&mu);
    if (!e->root_known) {
        fd = rootfile_root(proc, pid);
        if (fd >= 0) {
            e->root_known = true;
            e->root = root_of_locked(fd);
        }
    }
    mutex_unlock(&mu);
}

int binary_root(const struct binary *b)
{
    const struct entry *e = (const struct entry *)b;
    int fd;

    mutex_lock(&mu);
    fd = e->root ? fcntl(e->root->fd, F_DUPFD_CLOEXEC, 0) : -1;
    mutex_unlock(&mu);
    return fd;
}

uint64_t binary_vaddr(const struct binary *b, uint64_t offset)
{
    uint64_t v;

    return elffile_vaddr(b->load, b->n_load, offset, &v) ? v : offset;
}

static void remove_locked(struct entry *e) REQUIRES(&mu)
{
    uint64_t *chain;
    struct entry *p;

    map_del(&by_id, e->b.id);
    if (map_at(&by_content, e->hash, &chain) != MAP_FOUND)
        return;
    p = entry_of(*chain);
    if (p != e) {
        while (p->same_hash != e)
            p = p->same_hash;
        p->same_hash = e->same_hash;
    } else if (e->same_hash) {
        *chain = (uint64_t)(uintptr_t)e->same_hash;
    } else {
        map_del(&by_content, e->hash);
    }
}

void binary_sweep(int64_t now_ns)
{
    struct entry *dead[64];
    uint32_t n = 0, pos = 0;
    uint64_t key, v;

    mutex_lock(&mu);
    while (n < 64 && map_next(&by_id, &pos, &key, &v)) {
        struct entry *e = entry_of(v);

        if (e->b.refs == 0 && now_ns - e->idle_since >= BINARY_LINGER_NS)
            dead[n++] = e;
    }
    for (uint32_t i = 0; i < n; i++)
        remove_locked(dead[i]);
    mutex_unlock(&mu);
    for (uint32_t i = 0; i < n; i++)
        entry_free(dead[i]);
}

uint32_t binary_count(void)
{
    uint32_t n;

    mutex_lock(&mu);
    n = by_id.n;
    mutex_unlock(&mu);
    return n;
}
