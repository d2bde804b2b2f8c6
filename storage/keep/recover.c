// SPDX-License-Identifier: Apache-2.0
/*
 * Opening a directory that someone left, perhaps in the middle of a write.
 *
 *   1. LOCK, so that nobody else writes. Folders; build/ is emptied.
 *   2. The catalog, fsynced as it lies before it is read; one that cannot be read is set aside and
 *      made again from the parts.
 *   3. Parts. A file without a row was written by a seal that did not end: its rows are in the
 *      journal, the file goes to quarantine/orphan. A row without its file is damage.
 *   4. The current epoch's dictionary. Where it is damaged a new epoch begins.
 *   5. Journals (replay.c).
 *
 * Damage ends nothing; only LOCK, a newer format and memory do. Where nothing can be written the
 * store is read-only.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "storage/dict/dictfile_private.h"
#include "storage/file/db_private.h"
#include "storage/keep/recover_private.h"

struct found {
    struct part **v;
    uint32_t n, room;
};

struct recovery {
    struct store *s;
    struct found part;
    struct part_info *bad; /* files that cannot be right */
    uint32_t n_bad;
    uint32_t epoch, last_epoch; /* the current one, 0: none; the highest id */
    uint64_t next_part;
    real_ns epoch_t0;
    struct err *err; /* the first damage */
    bool partial;
};

void store_lose(struct store *s, struct interval t, struct str what)
{
    struct store_lost *v;
    char *text;

    for (uint32_t i = 0; i < s->n_lost; i++) {
        if (str_eq(s->lost[i].what, what))
            return; /* an earlier start has seen it */
    }
    v = realloc(s->lost, (s->n_lost + 1) * sizeof *v);
    text = strndup(what.p ? what.p : "", what.n);
    if (v)
        s->lost = v;
    if (!v || !text) {
        free(text);
        return;
    }
    // NOLINTNEXTLINE(clang-analyzer-unix.Malloc): s->lost keeps the text
    v[s->n_lost++] = (struct store_lost){.t = t, .what = str_c(text)};
}

int store_quarantine(const struct store *s)
{
    if (mkdirat(s->dir_fd, "quarantine", 0700) != 0 && errno != EEXIST)
        return -1;
    return openat(s->dir_fd, "quarantine", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

static void damaged(struct recovery *r, const struct err *why)
{
    r->partial = true;
    if (r->err && r->err->code == 0)
        *r->err = *why;
}

/* ---- folders ------------------------------------------------------------------------------- */

static void cannot_write(struct store *s, int code)
{
    if (code == ENOSPC)
        store_set_state(s, STORE_FULL, "no space left on the device");
    else
        store_set_state(s, STORE_READ_ONLY, "the directory cannot be written");
}

static int lock(struct store *s, struct err *err)
{
    s->lock_fd = openat(s->dir_fd, "LOCK", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (s->lock_fd < 0 && errno == EROFS)
        s->lock_fd = openat(s->dir_fd, "LOCK", O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (s->lock_fd < 0) {
        cannot_write(s, errno);
        return 0;
    }
    if (flock(s->lock_fd, LOCK_EX | LOCK_NB) != 0)
        return err_set(err, -EBUSY, "%s: another process has it open (LOCK)", s->dir);
    return 0;
}

static void sync_dir(const struct store *s, const char *name)
{
    int fd = openat(s->dir_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (fd < 0)
        return;
    (void)fsync(fd);
    (void)close(fd);
}

static void make_dirs(struct store *s)
{
    static const char *const name[] = {"journal", "dict",      "shard",
                                       "build",   "shard/raw", "shard/minute"};

    for (size_t i = 0; i < sizeof name / sizeof *name; i++) {
        if (mkdirat(s->dir_fd, name[i], 0700) != 0 && errno != EEXIST) {
            cannot_write(s, errno);
            return;
        }
    }
    sync_dir(s, "shard/raw"); /* renames of a killed process */
    sync_dir(s, "shard/minute");
    sync_dir(s, "shard");
    if (fsync(s->dir_fd) != 0)
        store_unsynced(s);
}

static void empty_build(const struct store *s)
{
    int fd = openat(s->dir_fd, "build", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    const struct dirent *e;

    while (d && (e = readdir(d))) { // NOLINT(concurrency-mt-unsafe): a stream of our own
        if (e->d_name[0] != '.')
            (void)unlinkat(dirfd(d), e->d_name, 0);
    }
    if (d)
        (void)closedir(d);
    else if (fd >= 0)
        (void)close(fd);
}

/* ---- the catalog --------------------------------------------------------------------------- */

static int wrong_id(uint32_t id, uint32_t got, struct err *err)
{
    if (got == UINT32_MAX)
        return err_set(err, -ENOMEM, "catalog.db: memory is short");
    return got == id ? 0
                     : err_set(err, -EBADMSG,
                               "catalog.db: id %" PRIu32 " stands where %" PRIu32 " is expected",
                               id, got);
}

static int on_svc(void *ctx, const struct catalog_svc *x, struct err *err)
{
    struct recovery *r = ctx;

    return wrong_id(x->id, names_service(&r->s->names, x->name), err);
}

static int on_ptype(void *ctx, const struct catalog_ptype *x, struct err *err)
{
    struct recovery *r = ctx;

    return wrong_id(x->id, names_type(&r->s->names, x->name, x->unit, x->kind), err);
}

static int on_labelset(void *ctx, const struct catalog_labelset *x, struct err *err)
{
    struct recovery *r = ctx;
    struct names *n = &r->s->names;
    uint32_t *pair = malloc(8 * ((size_t)x->n + 1)), set = 0;
    bool ok = pair != NULL;

    for (size_t i = 0; ok && i < x->n; i++) {
        pair[2 * i] = text_id(&n->text, x->v[i].name);
        pair[2 * i + 1] = text_id(&n->text, x->v[i].value);
        ok = pair[2 * i] != UINT32_MAX && pair[2 * i + 1] != UINT32_MAX;
    }
    set = ok ? names_label_set(n, x->n, pair) : UINT32_MAX;
    free(pair);
    return wrong_id(x->id, set, err);
}

static int on_series(void *ctx, const struct catalog_series *x, struct err *err)
{
    struct recovery *r = ctx;
    struct names *n = &r->s->names;

    if (x->svc == 0 || x->svc >= n->svc.v.n || x->labelset >= n->labels.v.n)
        return err_set(err, -EBADMSG, "catalog.db: series %" PRIu32 " has no service or labels",
                       x->id);
    return wrong_id(x->id, names_add_series(n, x->type, x->svc, x->labelset), err);
}

static int on_epoch(void *ctx, const struct catalog_epoch *x, struct err *err)
{
    struct recovery *r = ctx;

    r->last_epoch = x->id > r->last_epoch ? x->id : r->last_epoch;
    if (x->state == CATALOG_EPOCH_CLOSED &&
        !epoch_note_closed(r->s,
                           &(struct store_epoch){.id = x->id, .dict_id = x->dict_id, .t0 = x->t0}))
        return err_set(err, -ENOMEM, "catalog.db: memory is short");
    if (x->state == CATALOG_EPOCH_CURRENT) {
        r->epoch = x->id;
        r->epoch_t0 = x->t0;
    }
    return 0;
}

static bool is_there(const struct store *s, const char *name)
{
    return faccessat(s->dir_fd, name, F_OK, 0) == 0;
}

static int note_bad(struct recovery *r, const struct part_info *x, struct err *err)
{
    struct part_info *v = realloc(r->bad, (r->n_bad + 1) * sizeof *v);

    if (!v)
        return err_set(err, -ENOMEM, "catalog.db: memory is short");
    r->bad = v;
    v[r->n_bad++] = *x;
    return 0;
}

static bool has_size(const struct store *s, const struct part_info *x)
{
    struct stat st;

    return fstatat(s->dir_fd, x->name, &st, 0) != 0 || (uint64_t)st.st_size == x->bytes;
}

/* Keep what is gone: its row goes with the next seal, its file now if a reader kept it. */
static int on_gone(struct store *s, const struct part_info *x, struct err *err)
{
    db_remove(s->dir, x->name);
    return seal_note_gone(s, x) ? 0 : err_set(err, -ENOMEM, "catalog.db: memory is short");
}

static int on_part(void *ctx, const struct part_info *x, struct err *err)
{
    struct recovery *r = ctx;
    struct found *f = &r->part;
    struct err why = {};

    if (x->generation >= r->next_part) /* of a rebuilt catalog ids are new, generations are not */
        r->next_part = x->generation + UINT64_C(1);
    if (x->state == PART_GONE)
        return r->s->conf.read_only ? 0 : on_gone(r->s, x, err);
    if (x->state == PART_QUARANTINED || !has_size(r->s, x))
        return note_bad(r, x, err);
    if (!is_there(r->s, x->name)) {
        (void)err_set(&why, -EBADMSG, "%s: the file is gone", x->name);
        damaged(r, &why);
        store_lose(r->s, x->data, str_c(why.msg));
        return 0;
    }
    if (f->n == f->room) {
        uint32_t room = f->room ? 2 * f->room : 64;
        struct part **v = realloc(f->v, room * sizeof(struct part *));

        if (!v)
            return err_set(err, -ENOMEM, "catalog.db: memory is short");
        f->v = v;
        f->room = room;
    }
    f->v[f->n] = part_new(r->s->parts, x);
    if (!f->v[f->n])
        return err_set(err, -ENOMEM, "catalog.db: memory is short");
    f->n++;
    atomic_fetch_add(&r->s->stats.rows, x->tier == STORE_RAW ? x->rows : 0);
    return 0;
}

static int on_sender(void *ctx, const struct catalog_sender *x, struct err *err)
{
    struct recovery *r = ctx;

    return identity_load(&r->s->identity, x) ? 0
                                             : err_set(err, -ENOMEM, "catalog.db: memory is short");
}

static int on_damage(void *ctx, const struct catalog_damage *x, struct err *err)
{
    struct recovery *r = ctx;

    (void)err;
    store_lose(r->s, x->t, x->what);
    return 0;
}

/* The catalog where it can be written, else for reading alone: *ret is NULL where there is none. */
static int open_catalog(struct recovery *r, struct catalog **ret, struct err *err)
{
    struct store *s = r->s;
    struct err why = {};
    int out = -EROFS;

    *ret = NULL;
    if (s->conf.read_only)
        return open_read_catalog(s, ret, err);
    if (atomic_load(&s->state) != STORE_READ_ONLY)
        out = catalog_open(s->dir, store_tuning.vfs, store_now(s), ret, &why);
    if (out == CATALOG_REBUILT)
        damaged(r, &why);
    if (out >= 0) {
        s->catalog = *ret;
        return 0;
    }
    if (out == -ENOMEM || out == -EPROTO)
        return err_set(err, out, "%s", why.msg);
    cannot_write(s, -out);
    out = is_there(s, "catalog.db") ? catalog_open_read(s->dir, store_tuning.vfs, ret, &why) : 0;
    if (out < 0)
        damaged(r, &why);
    return 0;
}

static int load_catalog(struct recovery *r, struct err *err)
{
    const struct catalog_sink sink = {.ctx = r,
                                      .svc = on_svc,
                                      .ptype = on_ptype,
                                      .labelset = on_labelset,
                                      .series = on_series,
                                      .epoch = on_epoch,
                                      .part = on_part,
                                      .sender = on_sender,
                                      .damage = on_damage};
    struct store *s = r->s;
    struct catalog *c;
    int out;

    TRY(open_catalog(r, &c, err));
    out = c ? catalog_load(c, &sink, &s->cat, err) : 0;
    if (c && !s->catalog)
        (void)catalog_close(c);
    if (out < 0)
        return out;
    s->cat_names = names_snap(&s->names);
    if (s->catalog ||
        s->conf.read_only) /* else it may be a commit that does not last: no journal may go */
        atomic_store(&s->sealed_lsn, s->cat.sealed_lsn);
    r->next_part = s->cat.next_part > r->next_part ? s->cat.next_part : r->next_part;
    atomic_store(&s->next_part, r->next_part ? r->next_part : 1);
    parts_know(s->parts, &s->cat_names);
    return 0;
}

/* ---- parts --------------------------------------------------------------------------------- */

static bool is_listed(const struct recovery *r, const char *name)
{
    for (uint32_t i = 0; i < r->part.n; i++) {
        if (strcmp(r->part.v[i]->info.name, name) == 0)
            return true;
    }
    return false;
}

/* name becomes quarantine/WHERE<its last part>.SECONDS. */
static void set_aside(const struct store *s, const char *where, const char *name)
{
    int to = store_quarantine(s);
    const char *base = strrchr(name, '/');
    char file[2 * PART_NAME];

    if (to < 0)
        return;
    if (*where)
        (void)mkdirat(to, "orphan", 0700);
    (void)snprintf(file, sizeof file, "%s%.60s.%" PRId64, where, base ? base + 1 : name,
                   store_now(s).v / NS_PER_S);
    (void)renameat(s->dir_fd, name, to, file);
    (void)close(to);
}

/* Parts whose file has another size than when it was made, or that were found bad before. */
static int quarantine_bad(struct recovery *r, struct err *err)
{
    struct store *s = r->s;

    for (uint32_t i = 0; i < r->n_bad; i++) {
        struct part_info *x = &r->bad[i];
        struct err why = {};

        if (x->state == PART_SEALED) {
            (void)err_set(&why, -EBADMSG, "%s: not of the size that it had", x->name);
            damaged(r, &why);
            if (s->catalog)
                TRY(seal_note_bad(s, x, why.msg, err));
            store_lose(s, x->data, str_c(why.msg));
        }
        if (s->catalog && is_there(s, x->name))
            set_aside(s, "", x->name);
    }
    return 0;
}

static void find_orphans(const struct recovery *r, const char *folder)
{
    const struct store *s = r->s;
    int fd = openat(s->dir_fd, folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    const struct dirent *e;

    while (d && (e = readdir(d))) { // NOLINT(concurrency-mt-unsafe): a stream of our own
        char name[PART_NAME];
        int n = snprintf(name, sizeof name, "%s/%s", folder, e->d_name);

        if (e->d_name[0] != '.' && n > 0 && (size_t)n < sizeof name && !is_listed(r, name) &&
            s->catalog)
            set_aside(s, "orphan/", name);
    }
    if (d)
        (void)closedir(d);
    else if (fd >= 0)
        (void)close(fd);
}

/* ---- head ---------------------------------------------------------------------------------- */

/* The epoch that the head begins with. Where nothing can be written one in memory alone. */
static int open_epoch(struct recovery *r, struct err *err)
{
    struct store *s = r->s;
    struct err why = {};
    int out;

    if (s->conf.read_only) {
        out = open_read_epoch(s, r->epoch, r->last_epoch + 1, &why);
        if (out == STORE_PARTIAL)
            damaged(r, &why);
        return out < 0 ? err_set(err, out, "%s", why.msg) : 0;
    }
    out = s->catalog ? epoch_open(s, r->epoch, r->epoch_t0, r->last_epoch + 1, &why) : -EROFS;

    if (out == STORE_PARTIAL)
        damaged(r, &why);
    if (out >= 0)
        return 0;
    if (out == -ENOMEM || out == -EPROTO)
        return err_set(err, out, "%s", why.msg);
    if (s->catalog)
        cannot_write(s, -out);
    s->catalog = catalog_close(s->catalog);
    s->dict = dictfile_close(s->dict); /* one whose row could not be written down */
    epoch_unref(s->epoch);
    s->epoch = r->epoch ? epoch_get_whole(s, r->epoch, NULL) : NULL;
    if (!s->epoch)
        s->epoch = epoch_new(r->last_epoch + 1, s->seed, store_trie_nodes());
    return s->epoch ? 0 : err_set(err, -ENOMEM, "epoch: memory is short");
}

static int first_list(struct recovery *r, struct err *err)
{
    struct store *s = r->s;
    const struct head_conf conf = {.names = &s->names,
                                   .epoch = s->epoch,
                                   .stats = &s->stats,
                                   .seed = s->seed,
                                   .lsn = s->cat.sealed_lsn};
    struct source_list *l = source_list_new(s->epoch, 1);
    struct head *h = l ? head_new(&conf) : NULL;

    if (h) {
        pool_count_in(&h->pool, &s->mem_used);
        source_list_add_head(l, h);
        head_unref(h); /* the list has it */
        s->head = h;
        s->list = l;
        l = seal_list(s, NULL, 0, r->part.v, r->part.n, NULL);
        if (l) {
            source_list_publish(s, l);
            return 0;
        }
        return err_set(err, -ENOMEM, "head: memory is short");
    }
    source_list_unref(l);
    return err_set(err, -ENOMEM, "head: memory is short");
}

static int open_all(struct recovery *r, struct err *err)
{
    struct store *s = r->s;

    if (!s->conf.read_only)
        TRY(lock(s, err));
    if (atomic_load(&s->state) == STORE_OK)
        make_dirs(s);
    if (atomic_load(&s->state) == STORE_OK)
        empty_build(s);
    s->parts = parts_new(s->dir, store_tuning.vfs, 0, !s->conf.no_mmap);
    if (!s->parts)
        return err_set(err, -ENOMEM, "parts: memory is short");
    TRY(load_catalog(r, err));
    TRY(quarantine_bad(r, err));
    find_orphans(r, "shard/raw");
    find_orphans(r, "shard/minute");
    TRY(open_epoch(r, err));
    return first_list(r, err);
}

static int open_journals(struct store *s, struct replay_figures *ret, struct err *err)
{
    if (s->conf.read_only) /* sealed parts alone */
        return 0;
    s->journal_fd = openat(s->dir_fd, "journal", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (s->journal_fd < 0 && errno == ENOENT) {
        s->next_number = s->next_lsn = 1; /* nothing there, nothing can be made */
        return 0;
    }
    if (s->journal_fd < 0)
        return err_set(err, -errno, "%s: %m", s->journal_dir);
    s->lost_from = s->n_lost;
    return replay(s, ret, err);
}

static uint64_t nodes_of(const struct epoch *e)
{
    uint64_t n = 0;

    for (uint32_t i = 0; e && i < e->trie.n; i++)
        n += epoch_trie_at(e, i)->parent.n;
    return n;
}

int recover(struct store *s, struct err *err)
{
    struct recovery r = {.s = s, .err = err};
    struct replay_figures f = {};
    mono_ns begun = mono_now(), loaded;
    int out = open_all(&r, err);

    for (uint32_t i = 0; i < r.part.n; i++)
        (void)part_unref(r.part.v[i]); /* the list has them */
    free(r.part.v);
    free(r.bad);
    loaded = mono_now();
    s->start.nodes = nodes_of(s->epoch);
    if (out == 0)
        out = open_journals(s, &f, err);
    s->start.ns = mono_now().v - begun.v;
    s->start.journal_ns = mono_now().v - loaded.v;
    s->start.batches = f.rows;
    s->start.bytes = f.bytes;
    return out == 0 && r.partial ? STORE_PARTIAL : out;
}
