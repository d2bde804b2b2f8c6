// SPDX-License-Identifier: Apache-2.0
#include "tests/lib/disk_model.h"

#include <assert.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/hash.h"

#define SECTOR 512u

enum kind {
    WRITE,
    TRUNCATE,
    NAME,  /* of folder node: name means target from now on, NULL: nothing */
    RENAME /* the same, and from means nothing */
};

struct change {
    enum kind kind;
    bool old;  /* was pending at the last image */
    bool lost; /* a sync of it failed */
    bool over; /* a later change of the same node lasts */
    struct node *node, *target;
    uint64_t at;
    size_t n;
    unsigned char *bytes;
    char *name, *from;
};

static struct node *all, *root;
static struct change *pending;
static size_t n_pending, room_pending;

/* ---- names --------------------------------------------------------------------------------- */

static void names_set(struct node_names *l, const char *name, struct node *node)
{
    uint32_t i = 0;

    while (i < l->n && strcmp(l->v[i].name, name) != 0)
        i++;
    if (i < l->n && node) {
        l->v[i].node = node;
    } else if (i < l->n) {
        free(l->v[i].name);
        l->v[i] = l->v[--l->n];
    } else if (node) {
        l->v = xrealloc(l->v, (l->n + 1) * sizeof *l->v);
        l->v[l->n++] = (struct node_entry){xstrdup(name), node};
    }
}

static void names_clear(struct node_names *l)
{
    for (uint32_t i = 0; i < l->n; i++)
        free(l->v[i].name);
    free(l->v);
    *l = (struct node_names){};
}

static void names_copy(struct node_names *to, const struct node_names *from)
{
    names_clear(to);
    for (uint32_t i = 0; i < from->n; i++)
        names_set(to, from->v[i].name, from->v[i].node);
}

/* ---- the tree ------------------------------------------------------------------------------ */

static struct node *node_new(bool is_dir, ino_t ino)
{
    struct node *n = xcalloc(1, sizeof *n);

    n->dir = is_dir;
    n->ino = ino;
    n->next = all;
    all = n;
    return n;
}

struct node *model_root(void)
{
    return root;
}

void model_begin(void)
{
    root = node_new(true, 0);
}

static void change_free(struct change *c)
{
    free(c->bytes);
    free(c->name);
    free(c->from);
}

static void forget_pending(void)
{
    for (size_t i = 0; i < n_pending; i++)
        change_free(&pending[i]);
    n_pending = 0;
}

void model_end(void)
{
    forget_pending();
    free(pending);
    pending = NULL;
    room_pending = 0;
    while (all) {
        struct node *n = all;

        all = n->next;
        names_clear(&n->names);
        names_clear(&n->kept_names);
        free(n->data.p);
        free(n->kept.p);
        free(n);
    }
    root = NULL;
}

struct node *model_find(const struct node *dir, const char *name)
{
    for (uint32_t i = 0; i < dir->names.n; i++) {
        if (strcmp(dir->names.v[i].name, name) == 0)
            return dir->names.v[i].node;
    }
    return NULL;
}

struct node *model_of(ino_t ino)
{
    struct node *n = all;

    while (n && n->ino != ino)
        n = n->next;
    return n;
}

/* ---- changes ------------------------------------------------------------------------------- */

static void set_size(struct node_bytes *b, size_t n)
{
    if (n > b->room) {
        b->room = n < 2 * b->room ? 2 * b->room : n;
        b->p = xrealloc(b->p, b->room);
    }
    if (n > b->n)
        memset(b->p + b->n, 0, n - b->n);
    b->n = n;
}

static void put(struct node_bytes *b, uint64_t at, const void *p, size_t n)
{
    if (n == 0)
        return;
    if (at + n > b->n)
        set_size(b, at + n);
    memcpy(b->p + at, p, n);
}

static struct change *note(enum kind kind, struct node *node)
{
    if (n_pending == room_pending) {
        room_pending = room_pending ? 2 * room_pending : 256;
        pending = xrealloc(pending, room_pending * sizeof *pending);
    }
    pending[n_pending] = (struct change){.kind = kind, .node = node};
    return &pending[n_pending++];
}

void model_write(struct node *f, uint64_t at, const void *p, size_t n)
{
    struct change *c;

    if (f->skip || n == 0)
        return;
    put(&f->data, at, p, n);
    c = note(WRITE, f);
    c->at = at;
    c->n = n;
    c->bytes = memcpy(xmalloc(n), p, n);
}

void model_truncate(struct node *f, uint64_t n)
{
    if (f->skip)
        return;
    set_size(&f->data, n);
    note(TRUNCATE, f)->at = n;
}

static bool is_memory(const char *name)
{
    size_t n = strlen(name);

    return n > 4 && strcmp(name + n - 4, "-shm") == 0;
}

struct node *model_make(struct node *dir, const char *name, bool is_dir, ino_t ino)
{
    struct node *n, *gone = ino ? model_of(ino) : NULL;

    if (gone) /* a number used again */
        gone->ino = 0;
    n = node_new(is_dir, ino);
    n->skip = is_memory(name);
    model_name(dir, name, n);
    return n;
}

void model_name(struct node *dir, const char *name, struct node *node)
{
    struct change *c;

    names_set(&dir->names, name, node);
    if (is_memory(name))
        return;
    c = note(NAME, dir);
    c->target = node;
    c->name = xstrdup(name);
}

void model_rename(struct node *from, const char *a, struct node *to, const char *b)
{
    struct node *n = model_find(from, a);
    struct change *c;

    if (!n)
        return;
    if (from != to) { /* two folders, each with its own fsync */
        model_name(to, b, n);
        model_name(from, a, NULL);
        return;
    }
    names_set(&from->names, a, NULL);
    names_set(&from->names, b, n);
    c = note(RENAME, from);
    c->target = n;
    c->name = xstrdup(b);
    c->from = xstrdup(a);
}

/* ---- what lasts ---------------------------------------------------------------------------- */

static void keep_change(const struct change *c)
{
    struct node *n = c->node;

    switch (c->kind) {
    case WRITE:
        put(&n->kept, c->at, c->bytes, c->n);
        break;
    case TRUNCATE:
        set_size(&n->kept, c->at);
        break;
    case RENAME:
        names_set(&n->kept_names, c->from, NULL);
        names_set(&n->kept_names, c->name, c->target);
        break;
    case NAME:
        names_set(&n->kept_names, c->name, c->target);
        break;
    }
}

void model_sync(struct node *n, bool old)
{
    size_t left = 0;
    bool kept = false;

    for (size_t i = n_pending; i-- > 0;) {
        struct change *c = &pending[i];

        if (c->node != n)
            continue;
        if (c->lost || (c->old && !old))
            c->over |= kept;
        else
            kept = true;
    }
    for (size_t i = 0; i < n_pending; i++) {
        struct change *c = &pending[i];

        if (c->node == n && !c->lost && (old || !c->old)) {
            keep_change(c);
            change_free(c);
        } else {
            pending[left++] = *c;
        }
    }
    n_pending = left;
}

void model_lose(struct node *n)
{
    for (size_t i = 0; i < n_pending; i++)
        pending[i].lost |= pending[i].node == n && !n->dir;
}

/* ---- images -------------------------------------------------------------------------------- */

/* By system calls: those of libc are ours. */
static void write_file(int dir, const char *name, struct node *f)
{
    int fd = (int)syscall(SYS_openat, dir, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    struct stat st;

    assert(fd >= 0);
    for (size_t done = 0; done < f->data.n;) {
        long r = syscall(SYS_write, fd, f->data.p + done, f->data.n - done);

        assert(r > 0);
        done += (size_t)r;
    }
    if (fstat(fd, &st) == 0)
        f->ino = st.st_ino;
    (void)syscall(SYS_close, fd);
}

static void write_tree(int at, const char *name, struct node *dir)
{
    struct stat st;
    int fd;

    assert(syscall(SYS_mkdirat, at, name, 0700) == 0);
    fd = (int)syscall(SYS_openat, at, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    assert(fd >= 0);
    if (fstat(fd, &st) == 0)
        dir->ino = st.st_ino;
    for (uint32_t i = 0; i < dir->names.n; i++) {
        struct node *n = dir->names.v[i].node;

        if (n->dir)
            write_tree(fd, dir->names.v[i].name, n);
        else if (!n->skip)
            write_file(fd, dir->names.v[i].name, n);
    }
    (void)syscall(SYS_close, fd);
}

static void write_image(const char *dir)
{
    for (struct node *n = all; n; n = n->next)
        n->ino = 0;
    write_tree(AT_FDCWD, dir, root);
}

void model_kill(const char *dir)
{
    for (struct node *n = all; n; n = n->next) { /* memory goes with the program */
        for (uint32_t i = n->names.n; i-- > 0;) {
            if (n->names.v[i].node->skip)
                names_set(&n->names, n->names.v[i].name, NULL);
        }
    }
    for (size_t i = 0; i < n_pending; i++)
        pending[i].old = true;
    write_image(dir);
}

static uint64_t next_rnd(uint64_t *seed)
{
    *seed += UINT64_C(0x9e3779b97f4a7c15);
    return hash_mix(*seed);
}

/* Sectors of a write that was under way: some from its begin, or any. */
static void keep_torn(const struct change *c, uint64_t *seed)
{
    size_t sectors = (c->n + SECTOR - 1) / SECTOR;
    size_t first = next_rnd(seed) % (sectors + 1);
    bool any = next_rnd(seed) % 2;

    for (size_t i = 0; i < sectors; i++) {
        size_t from = i * SECTOR, n = c->n - from < SECTOR ? c->n - from : SECTOR;
        const struct change part = {
            .kind = WRITE, .node = c->node, .at = c->at + from, .n = n, .bytes = c->bytes + from};

        if (any ? next_rnd(seed) % 2 : i < first)
            keep_change(&part);
    }
}

void model_cut(const char *dir, enum disk_keep keep, uint64_t seed)
{
    size_t prefix = n_pending ? next_rnd(&seed) % (n_pending + 1) : 0, last = SIZE_MAX;
    bool *take = xcalloc(n_pending + 1, sizeof *take);

    for (size_t i = 0; i < n_pending; i++) {
        take[i] = !pending[i].over && (keep == DISK_ALL || (keep == DISK_PREFIX && i < prefix) ||
                                       (keep == DISK_SUBSET && next_rnd(&seed) % 2));
        if (take[i])
            last = i;
    }
    for (size_t i = 0; i < n_pending; i++) {
        const struct change *c = &pending[i];

        if (take[i] && i == last && keep != DISK_ALL && c->kind == WRITE)
            keep_torn(c, &seed);
        else if (take[i])
            keep_change(c);
    }
    free(take);
    forget_pending();
    for (struct node *n = all; n; n = n->next) {
        names_copy(&n->names, &n->kept_names);
        set_size(&n->data, 0);
        put(&n->data, 0, n->kept.p, n->kept.n);
    }
    write_image(dir);
}

/* ---- against the folder -------------------------------------------------------------------- */

static bool same_file(int dir, const char *name, const struct node *f)
{
    int fd = (int)syscall(SYS_openat, dir, name, O_RDONLY | O_CLOEXEC, 0);
    unsigned char *p = xmalloc(f->data.n + 1);
    long n = fd < 0 ? -1 : syscall(SYS_pread64, fd, p, f->data.n + 1, 0);
    bool same = n == (long)f->data.n && (n == 0 || memcmp(p, f->data.p, f->data.n) == 0);

    if (!same)
        (void)fprintf(stderr, "disk: %s: %ld bytes, noted %zu, or other ones\n", name, n,
                      f->data.n);
    if (fd >= 0)
        (void)syscall(SYS_close, fd);
    free(p);
    return same;
}

/* Each name of the folder was noted. */
static bool same_names(int fd, const struct node *dir)
{
    int again = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    DIR *d = fdopendir(again);
    const struct dirent *e;
    bool same = d;

    while (same && (e = readdir(d))) { // NOLINT(concurrency-mt-unsafe)
        same = e->d_name[0] == '.' || is_memory(e->d_name) || model_find(dir, e->d_name);
        if (!same)
            (void)fprintf(stderr, "disk: %s was made unseen\n", e->d_name);
    }
    if (d)
        (void)closedir(d);
    return same;
}

static bool same_tree(int at, const char *name, const struct node *dir)
{
    int fd = (int)syscall(SYS_openat, at, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    bool same = fd >= 0 && same_names(fd, dir);

    for (uint32_t i = 0; same && i < dir->names.n; i++) {
        const struct node_entry *e = &dir->names.v[i];

        if (!e->node->skip)
            same = e->node->dir ? same_tree(fd, e->name, e->node) : same_file(fd, e->name, e->node);
    }
    if (fd >= 0)
        (void)syscall(SYS_close, fd);
    return same;
}

bool model_equals(const char *dir)
{
    return same_tree(AT_FDCWD, dir, root);
}
