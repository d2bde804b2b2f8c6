// SPDX-License-Identifier: Apache-2.0
/*
 * Journals that someone left, perhaps in the middle of a write, into the head.
 *
 *   1. Every journal and its -wal is fsynced: what a killed server committed may sit in the page
 *      cache only, while a sender is about to be told "duplicate" for it. Where that
 *      fails all is shown, and nothing is acknowledged, not even a duplicate.
 *   2. All formats are looked at before anything is changed: a newer one ends the start. A file of
 *      another store, put into this folder, is set aside: its rows are sound, and not ours.
 *   3. Files are read by number, rows by LSN, each decoded by the caller under the limits of its
 *      file. Rows up to the catalog's sealed_lsn are in parts already. Rows beyond the next file's
 *      after_lsn were never acknowledged: they are passed over. Rows that are missing below it
 *      were: a gap is damage.
 *   4. Writing begins in a new file, whose number is above any that was seen.
 *
 * Damage ends nothing. A file of which nothing can be read moves to quarantine/. One with some good
 * rows stays, unwritten; each bad row of it is copied to quarantine/, counted replay_failed, and
 * its identity stays unknown, so that a resend is stored. A file that is not damaged but cannot be
 * read (EIO, EACCES) makes the store read-only: rows written now would take the LSNs of its rows,
 * and later starts would pass those over.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "storage/keep/recover_private.h"

#define DECODE_ARENA ((size_t)1 << 30)
#define WAL_GONE     (-1)
#define WAL_UNKNOWN  INT64_MAX /* cannot be asked for: as if there were something in it */
#define BEFORE_NS                                                                                  \
    (60 * NS_PER_S) /* a batch holds what happened so long before its receipt, mostly */

struct file {
    uint64_t number;
    struct journal_info info;
    int state; /* of journal_info() */
    struct err err;
    int64_t wal;  /* its size, WAL_GONE, WAL_UNKNOWN */
    bool unused;  /* prepared, never written */
    bool foreign; /* of another store */
    bool no_rows; /* read to its end */
    bool read, removed;
    uint64_t last_lsn; /* all that was ever given to it is at or below */
};

struct replay {
    struct store *s;
    struct file *file;
    uint64_t *left; /* numbers of preparations that were not finished */
    uint32_t n, n_left;
    const struct file *now;            /* being read */
    uint64_t skip_after;               /* rows beyond were never acknowledged */
    uint64_t rows, last_lsn, file_lsn; /* file_lsn: of the file that is read */
    real_ns last_received;
    bool looked_before;
    uint32_t n_ended; /* of s->lost: their interval is set */
    struct arena arena;
    struct replay_figures figures;
    struct err *err; /* the first damage */
    bool partial;
};

static char *path_of(const char *dir, const char *sub, uint64_t number, const char *end)
{
    char *p = NULL;

    return asprintf(&p, "%s/%s%" PRIu64 ".db%s", dir, sub, number, end) < 0 ? NULL : p;
}

/* ---- damage -------------------------------------------------------------------------------- */

/*
 * n batches are gone. They arrived behind the last good row and before the next one, which
 * end_lost() will know; what they held began earlier than they arrived.
 */
static void lost(struct replay *p, uint64_t n, const struct err *why)
{
    p->partial = true;
    atomic_fetch_add(&p->s->replay_failed, n);
    if (p->err && p->err->code == 0)
        *p->err = *why;
    store_lose(p->s, (struct interval){.t0 = p->last_received}, str_c(why->msg));
}

/* until: when the next good row arrived, or now. */
static void end_lost(struct replay *p, real_ns until)
{
    struct store *s = p->s;

    for (; p->n_ended < s->n_lost; p->n_ended++) {
        struct interval *t = &s->lost[p->n_ended].t;

        t->t0.v =
            t->t0.v && t->t0.v < until.v ? t->t0.v - BEFORE_NS : until.v - s->conf.keep_raw_ns;
        t->t1.v = until.v + 1;
    }
}

/* The payload of a bad row, once. */
static void copy_row(const struct store *s, uint64_t number, const struct journal_row *row)
{
    char name[64];
    int dir = store_quarantine(s), fd;

    (void)snprintf(name, sizeof name, "journal-%" PRIu64 "-lsn-%" PRIu64 ".batch", number,
                   row->lsn);
    fd = dir < 0 ? -1 : openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd >= 0) {
        if (row->payload.n && write(fd, row->payload.p, row->payload.n) != (ssize_t)row->payload.n)
            (void)unlinkat(dir, name, 0); /* no room: the row is still in its file */
        (void)close(fd);
    }
    if (dir >= 0)
        (void)close(dir);
}

/* journal/N.db and its -wal become quarantine/journal-N.db.SECONDS. */
static void set_aside(const struct store *s, uint64_t number)
{
    static const char *const end[] = {"", "-wal"};
    int dir = store_quarantine(s);

    for (size_t i = 0; dir >= 0 && i < 2; i++) {
        char from[64], to[96];

        (void)snprintf(from, sizeof from, "%" PRIu64 ".db%s", number, end[i]);
        (void)snprintf(to, sizeof to, "journal-%" PRIu64 ".db%s.%" PRId64, number, end[i],
                       store_now(s).v / NS_PER_S);
        (void)renameat(s->journal_fd, from, dir, to);
    }
    if (dir >= 0) {
        (void)fsync(dir);
        (void)close(dir);
        (void)fsync(s->journal_fd);
    }
}

/* ---- files --------------------------------------------------------------------------------- */

static int by_number(const void *a, const void *b)
{
    const struct file *x = a, *y = b;

    return (x->number > y->number) - (x->number < y->number);
}

/* "12.db" and all that begins so: the number of the file is taken. */
static bool number_of(const char *name, uint64_t *ret, bool *ret_main)
{
    struct str s = str_c(name);
    size_t dot = str_find(s, '.');

    if (dot == SIZE_MAX || !str_u64(str_to(s, dot), ret))
        return false;
    *ret_main = str_eq(str_from(s, dot), STR(".db"));
    return true;
}

static bool add_left(struct replay *p, uint64_t number)
{
    uint64_t *v = realloc(p->left, (p->n_left + 1) * sizeof *v);

    if (!v)
        return false;
    p->left = v;
    v[p->n_left++] = number;
    return true;
}

static int list(struct replay *p, struct err *err)
{
    struct store *s = p->s;
    DIR *d = opendir(s->journal_dir);
    const struct dirent *e;

    if (!d)
        return err_set(err, -errno, "%s: %m", s->journal_dir);
    errno = 0;
    while ((e = readdir(d))) { // NOLINT(concurrency-mt-unsafe): a stream of our own
        uint64_t number;
        bool is_main;
        struct file *f;

        if (!number_of(e->d_name, &number, &is_main))
            continue;
        if (number >= s->next_number)
            s->next_number = number + 1;
        if (!is_main) {
            if (strstr(e->d_name, ".new") && !add_left(p, number))
                goto out_of_memory;
            continue;
        }
        f = realloc(p->file, (p->n + 1) * sizeof *f);
        if (!f)
            goto out_of_memory;
        p->file = f;
        f[p->n++] = (struct file){.number = number};
    }
    (void)closedir(d);
    if (p->n > 0)
        qsort(p->file, p->n, sizeof *p->file, by_number);
    return 0;
out_of_memory:
    (void)closedir(d);
    return err_set(err, -ENOMEM, "%s: memory is short", s->journal_dir);
}

/* A file that is not there is no failure. */
static bool sync_file(const struct store *s, uint64_t number, const char *end)
{
    char name[64];
    int fd;
    bool ok;

    (void)snprintf(name, sizeof name, "%" PRIu64 ".db%s", number, end);
    fd = openat(s->journal_fd, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return errno == ENOENT;
    ok = fsync(fd) == 0;
    (void)close(fd);
    return ok;
}

static void sync_all(struct replay *p)
{
    struct store *s = p->s;
    bool ok = true;

    for (uint32_t i = 0; i < p->n; i++) {
        ok &= sync_file(s, p->file[i].number, "");
        ok &= sync_file(s, p->file[i].number, "-wal");
    }
    ok &= fsync(s->journal_fd) == 0;
    if (!ok)
        store_unsynced(s);
}

static int64_t wal_size(const struct store *s, uint64_t number)
{
    struct stat st;
    char name[64];

    (void)snprintf(name, sizeof name, "%" PRIu64 ".db-wal", number);
    if (fstatat(s->journal_fd, name, &st, 0) == 0)
        return (int64_t)st.st_size;
    return errno == ENOENT ? WAL_GONE : WAL_UNKNOWN;
}

/* How many files say that they are of the store id. */
static uint32_t votes(const struct replay *p, uint64_t id)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < p->n; i++)
        n += p->file[i].state == 0 && p->file[i].info.store == id;
    return n;
}

/*
 * Whose folder this is where the catalog does not say it: it is new, was made again, or is of a
 * program that did not write it yet. That of most files, of the newest where as many say another;
 * where none says any, a new one. Written down at once, or found in the same way again.
 */
static int find_id(struct replay *p, struct err *err)
{
    struct store *s = p->s;
    uint64_t id = 0;

    for (uint32_t i = 0; i < p->n; i++) {
        const struct file *f = &p->file[i];

        if (f->state == 0 && f->info.store && (!id || votes(p, f->info.store) >= votes(p, id)))
            id = f->info.store;
    }
    while (id == 0) {
        if (getrandom(&id, sizeof id, 0) != (ssize_t)sizeof id)
            return err_set(err, -errno, "getrandom: %m");
    }
    s->id = s->cat.store = id;
    if (s->catalog)
        (void)catalog_commit(s->catalog, &(struct catalog_change){.state = &s->cat}, NULL);
    return 0;
}

static int find_foreign(struct replay *p, struct err *err)
{
    struct store *s = p->s;

    s->id = s->cat.store;
    if (s->id == 0)
        TRY(find_id(p, err));
    for (uint32_t i = 0; i < p->n; i++) {
        struct file *f = &p->file[i];

        if (f->state != 0 || f->info.store == 0 || f->info.store == s->id)
            continue;
        f->foreign = true;
        f->unused = false;
        f->state =
            err_set(&f->err, -EBADMSG, "journal/%" PRIu64 ".db: is of another store", f->number);
    }
    return 0;
}

static int look(struct replay *p, struct err *err)
{
    struct store *s = p->s;

    sync_all(p);
    for (uint32_t i = 0; i < p->n; i++) {
        struct file *f = &p->file[i];
        char *path = path_of(s->journal_dir, "", f->number, "");

        if (!path)
            return err_set(err, -ENOMEM, "memory is short");
        f->state = journal_info(path, f->number, &f->info, &f->err);
        free(path);
        if (f->state == -EPROTO || f->state == -ENOMEM) {
            if (err)
                *err = f->err;
            return f->state;
        }
        f->wal = wal_size(s, f->number);
        f->unused = f->state == 0 && !f->info.used && f->wal == 0;
    }
    return find_foreign(p, err);
}

/* ---- rows ---------------------------------------------------------------------------------- */

static void bad_row(struct replay *p, const struct journal_row *row, const struct err *why)
{
    copy_row(p->s, p->now->number, row);
    lost(p, 1, why);
}

/* A batch may name what only the epoch before the current one holds: it was taken when that was
 * the current one. */
static void look_before(struct replay *p, const struct batch *b)
{
    struct store *s = p->s;
    struct epoch *e;

    if (p->looked_before || s->epoch->id == 1 || epoch_knows(s->epoch, b))
        return;
    p->looked_before = true;
    e = epoch_get_whole(s, s->epoch->id - 1, NULL);
    if (e)
        epoch_follow(s->epoch, e);
    epoch_unref(e);
}

static int apply_row(struct replay *p, const struct journal_row *row, struct err *err)
{
    struct store *s = p->s;
    const struct store_entry e = {.lsn = row->lsn,
                                  .received = row->received,
                                  .limits = &p->now->info.limits,
                                  .payload = row->payload};
    struct batch b = {};
    struct err why = {};
    struct append *flight;
    int r;

    arena_reset(&p->arena);
    r = s->conf.decode(s->conf.decode_ctx, &e, &p->arena, &b, &why);
    if (r == -ENOMEM) /* says nothing about the row */
        return err_set(err, r, "%s", why.msg[0] ? why.msg : "memory is short");
    if (r < 0) {
        struct err full = {};

        (void)err_set(&full, -EBADMSG, "journal/%" PRIu64 ".db: lsn %" PRIu64 ": %s",
                      p->now->number, row->lsn, why.msg[0] ? why.msg : "does not decode");
        bad_row(p, row, &full);
        return 0;
    }
    /* identity is what the journal says: a decoder may leave it out */
    memcpy(b.id.agent, row->agent, 16);
    memcpy(b.id.boot, row->boot, 16);
    b.id.seq = row->seq;
    b.id.content = row->content;
    b.received = row->received;
    if (!identity_none(row->agent)) {
        r = identity_claim(&s->identity, &b.id, row->received, NULL, &flight);
        if (r < 0)
            return err_set(err, r, "memory is short");
        if (r == IDENTITY_DUPLICATE || r == IDENTITY_CONFLICT)
            return 0; /* not acknowledged under this LSN */
    }
    look_before(p, &b);
    TRY(head_apply(s->head, &b, row->lsn, &p->now->info.limits, err));
    if (!identity_none(row->agent))
        identity_settle(&s->identity, &b.id, NULL, row->lsn);
    s->head->payload += row->payload.n;
    atomic_fetch_add(&s->unsealed, row->payload.n);
    atomic_store(&s->unsealed_since, mono_now().v);
    p->figures.rows++;
    p->figures.bytes += row->payload.n;
    return 0;
}

/* What was lost before it was lost by then. */
static void good_row(struct replay *p, real_ns received)
{
    end_lost(p, received);
    p->last_received = received;
}

static int on_row(void *ctx, const struct journal_row *row, bool ok, struct err *err)
{
    struct replay *p = ctx;

    if (row->lsn > p->skip_after)
        return 0;
    p->rows++;
    if (row->lsn > p->last_lsn && (ok || row->lsn - p->last_lsn <= STORE_GROUP_ROWS))
        p->last_lsn = row->lsn; /* that of a bad row may be anything */
    if (row->lsn > p->file_lsn)
        p->file_lsn = row->lsn;
    if (row->lsn <= p->s->cat.sealed_lsn) {
        if (ok)
            good_row(p, row->received);
        return 0; /* in parts */
    }
    if (!ok) {
        struct err why = {};

        (void)err_set(&why, -EBADMSG, "journal/%" PRIu64 ".db: lsn %" PRIu64 ": wrong checksum",
                      p->now->number, row->lsn);
        bad_row(p, row, &why);
        return 0;
    }
    good_row(p, row->received);
    return apply_row(p, row, err);
}

/* Rows that must be there before file f and are not. */
static void check_gap(struct replay *p, const struct file *f)
{
    struct err why = {};

    if (!f->info.used || f->info.after_lsn <= p->last_lsn)
        return;
    (void)err_set(&why, -EBADMSG,
                  "journals before %" PRIu64 ".db: lsn %" PRIu64 " to %" PRIu64 " are gone",
                  f->number, p->last_lsn + 1, f->info.after_lsn);
    lost(p, f->info.after_lsn - p->last_lsn, &why);
    p->last_lsn = f->info.after_lsn;
}

/* after_lsn of the first used file behind file i: what of it was acknowledged. */
static uint64_t acknowledged(const struct replay *p, uint32_t i)
{
    for (uint32_t k = i + 1; k < p->n; k++) {
        if (p->file[k].state == 0 && p->file[k].info.used)
            return p->file[k].info.after_lsn;
    }
    return UINT64_MAX;
}

/*
 * What was committed to the last file behind a damaged place of its -wal; of earlier files the next
 * after_lsn tells it. The numbers of what is gone are not used again, which lets later starts see
 * the gap.
 */
static void check_behind(struct replay *p, const struct file *f)
{
    struct err why = {};
    uint64_t at = 0;
    char wal[64];
    uint32_t n;

    if (p->skip_after != UINT64_MAX)
        return;
    (void)snprintf(wal, sizeof wal, "%" PRIu64 ".db-wal", f->number);
    n = journal_behind(p->s->journal_fd, wal, &at);
    if (n < 2)
        return;
    (void)err_set(&why, -EBADMSG,
                  "journal/%s: damaged at byte %" PRIu64 ": %" PRIu32
                  " transactions behind it are gone",
                  wal, at, n);
    lost(p, n, &why);
    p->last_lsn += n;
    if (p->rows == 0)
        set_aside(p->s, f->number);
}

/*
 * The last file has no -wal: was it lost, or is the file one whose removal, or whose making, a
 * power cut took half of? Where rows are missing below a later file's after_lsn the gap says so by
 * itself.
 */
static bool wal_is_lost(const struct replay *p, const struct file *f)
{
    uint64_t acked;

    return !f->info.used && f->wal == WAL_GONE && p->skip_after == UINT64_MAX &&
           (!acked_read(p->s->journal_fd, &acked) || acked > p->last_lsn);
}

/* Nothing of ours is lost with it; what it may lie in the place of shows as a gap. */
static void put_away(struct replay *p, const struct file *f)
{
    p->partial = true;
    if (p->err && p->err->code == 0)
        *p->err = f->err;
    set_aside(p->s, f->number);
}

static int replay_file(struct replay *p, uint32_t i, struct err *err)
{
    struct file *f = &p->file[i];
    char *path = path_of(p->s->journal_dir, "", f->number, "");
    struct err why = {};
    int r = f->state;

    if (!path)
        return err_set(err, -ENOMEM, "memory is short");
    p->now = f;
    p->skip_after = acknowledged(p, i);
    p->rows = p->file_lsn = 0;
    if (r == 0 && wal_is_lost(p, f))
        r = err_set(&f->err, -EBADMSG, "journal/%" PRIu64 ".db: its -wal is gone", f->number);
    if (r == 0)
        check_gap(p, f);
    else
        why = f->err;
    if (r == 0)
        r = journal_read(path, f->number, on_row, p, &why);
    free(path);
    if (r == -ENOMEM) {
        if (err)
            *err = why;
        return r;
    }
    if (r != 0) {
        lost(p, 1, &why);
        if (r != -EBADMSG) {
            store_set_state(p->s, STORE_READ_ONLY, "a journal cannot be read");
            p->s->unread = true; /* a seal would pass its rows over */
        } else if (p->rows == 0) {
            set_aside(p->s, f->number);
        }
        return 0;
    }
    f->no_rows = p->rows == 0;
    if (!f->info.used && f->wal == WAL_GONE &&
        (p->skip_after == UINT64_MAX || p->skip_after <= p->last_lsn))
        f->unused = true; /* nothing is missing */
    check_behind(p, f);
    f->last_lsn = p->last_lsn > p->file_lsn ? p->last_lsn : p->file_lsn;
    f->read = true;
    return 0;
}

/* What was committed, by journal/acked, and is in no file. */
static void check_acked(struct replay *p)
{
    struct err why = {};
    uint64_t acked;

    (void)acked_read(p->s->journal_fd, &acked);
    if (acked <= p->last_lsn)
        return;
    (void)err_set(&why, -EBADMSG, "journals: lsn %" PRIu64 " to %" PRIu64 " are gone",
                  p->last_lsn + 1, acked);
    lost(p, acked - p->last_lsn, &why);
    p->last_lsn = acked;
}

static void remove_name(const struct store *s, uint64_t number, const char *end)
{
    char name[64];

    (void)snprintf(name, sizeof name, "%" PRIu64 "%s", number, end);
    (void)unlinkat(s->journal_fd, name, 0);
}

/* Files that were prepared and never used, marks of an earlier stop, and what a killed preparation
 * left. Their numbers are not used again. */
static void remove_unused(struct replay *p)
{
    static const char *const left[] = {".new", ".new-wal", ".new-journal", ".new-shm"};
    bool later = false; /* a file behind says up to where LSNs were acknowledged */

    for (uint32_t i = p->n; i-- > 0;) {
        struct file *f = &p->file[i];

        if (f->unused || (later && f->state == 0 && f->info.used && f->no_rows)) {
            remove_name(p->s, f->number, ".db");
            remove_name(p->s, f->number, ".db-wal");
            f->removed = true;
        }
        later = later || (f->state == 0 && f->info.used);
    }
    for (uint32_t i = 0; i < p->n_left; i++) {
        for (size_t k = 0; k < sizeof left / sizeof *left; k++)
            remove_name(p->s, p->left[i], left[k]);
    }
}

static int read_all(struct replay *p, struct err *err)
{
    struct store *s = p->s;

    TRY(list(p, err));
    TRY(look(p, err));
    for (uint32_t i = 0; i < p->n; i++) {
        if (p->file[i].foreign)
            put_away(p, &p->file[i]);
        else if (!p->file[i].unused)
            TRY(replay_file(p, i, err));
    }
    check_acked(p);
    end_lost(p, store_now(s));
    s->acked_lsn = p->last_lsn;
    s->next_lsn = p->last_lsn + 1;
    remove_unused(p);
    for (uint32_t i = 0; i < p->n; i++) {
        const struct file *f = &p->file[i];

        if (f->read && !f->removed && !journal_retire(s, NULL, f->number, f->last_lsn))
            return err_set(err, -ENOMEM, "memory is short");
    }
    return 0;
}

int replay(struct store *s, struct replay_figures *ret, struct err *err)
{
    struct replay p = {.s = s, .err = err, .last_lsn = s->cat.sealed_lsn, .n_ended = s->n_lost};
    int r;

    s->next_number = s->cat.next_journal ? s->cat.next_journal : 1;
    s->next_lsn = p.last_lsn + 1;
    arena_init(&p.arena, DECODE_ARENA);
    r = read_all(&p, err);
    arena_deinit(&p.arena);
    free(p.file);
    free(p.left);
    *ret = p.figures;
    return r == 0 && p.partial ? STORE_PARTIAL : r;
}
