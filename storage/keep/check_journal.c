// SPDX-License-Identifier: Apache-2.0
/* Journals: meta, the sum of every row, numbers that are missing. What is in a payload is not
 * storage's to judge. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "storage/journal/journal_private.h"
#include "storage/keep/check_private.h"

static const struct interval unknown;

struct one {
    uint64_t number;
    struct journal_info info;
    bool ok;
};

struct journals {
    struct check *c;
    struct one *v;
    uint32_t n;
    int fd; /* of the directory */
    char file[64];
    uint64_t last; /* LSN */
    uint64_t most; /* rows beyond were never acknowledged */
};

static int by_number(const void *a, const void *b)
{
    const struct one *x = a, *y = b;

    return (x->number > y->number) - (x->number < y->number);
}

static int list(struct journals *j, struct err *err)
{
    const struct dirent *e;
    int fd = dup(j->fd);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);

    if (!d) {
        (void)close(fd);
        return err_set(err, -errno, "journal: %m");
    }
    rewinddir(d);
    while ((e = readdir(d))) { // NOLINT(concurrency-mt-unsafe): a stream of our own
        struct str s = str_c(e->d_name);
        uint64_t number;
        struct one *v;

        if (!str_ends(s, STR(".db")) || !str_u64(str_to(s, s.n - 3), &number))
            continue;
        v = realloc(j->v, (j->n + 1) * sizeof *v);
        if (!v) {
            (void)closedir(d);
            return err_set(err, -ENOMEM, "journal: memory is short");
        }
        j->v = v;
        v[j->n++] = (struct one){.number = number};
    }
    (void)closedir(d);
    if (j->n > 1)
        qsort(j->v, j->n, sizeof *j->v, by_number);
    return 0;
}

static int on_row(void *ctx, const struct journal_row *row, bool ok, struct err *err)
{
    struct journals *j = ctx;
    struct err why = {};
    const struct interval t = {row->received, {row->received.v + 1}};

    if (row->lsn > j->most)
        return 0;
    j->c->out.batches++;
    if (row->lsn > j->last)
        j->last = row->lsn;
    check_progress(j->c, row->payload.n);
    if (ok)
        return 0;
    (void)err_set(&why, -EBADMSG, "%s: wrong checksum", j->file);
    return check_note(j->c, j->file, "batch", (int64_t)row->lsn, t, &why, err);
}

/* Rows that were acknowledged before the file began, are not sealed, and are not there. */
static int check_gap(struct journals *j, const struct one *o, struct err *err)
{
    uint64_t sealed = j->c->state.sealed_lsn, from = j->last > sealed ? j->last : sealed;
    struct err why = {};

    if (!o->info.used || o->info.after_lsn <= from)
        return 0;
    (void)err_set(&why, -EBADMSG, "lsn %" PRIu64 " to %" PRIu64 " are gone", from + 1,
                  o->info.after_lsn);
    j->last = o->info.after_lsn;
    return check_note(j->c, j->file, "batch", (int64_t)from + 1, unknown, &why, err);
}

static uint64_t acknowledged(const struct journals *j, uint32_t i)
{
    for (uint32_t k = i + 1; k < j->n; k++)
        if (j->v[k].ok && j->v[k].info.used)
            return j->v[k].info.after_lsn;
    return UINT64_MAX;
}

static int check_behind(struct journals *j, struct err *err)
{
    struct err why = {};
    char wal[80];
    uint64_t at = 0;
    uint32_t n;

    (void)snprintf(wal, sizeof wal, "%s-wal", strrchr(j->file, '/') + 1);
    n = j->most == UINT64_MAX ? journal_behind(j->fd, wal, &at) : 0;
    if (n < 2)
        return 0;
    (void)err_set(&why, -EBADMSG, "%s: damaged at byte %" PRIu64 ", %" PRIu32 " transactions lost",
                  wal, at, n);
    return check_note(j->c, j->file, "batch", -1, unknown, &why, err);
}

/* What was committed, by journal/acked, and is neither sealed nor in a file. */
static int check_acked(struct journals *j, struct err *err)
{
    uint64_t sealed = j->c->state.sealed_lsn, from = j->last > sealed ? j->last : sealed, acked;
    struct err why = {};

    if (!acked_read(j->fd, &acked) || acked <= from)
        return 0;
    (void)err_set(&why, -EBADMSG, "lsn %" PRIu64 " to %" PRIu64 " are gone", from + 1, acked);
    return check_note(j->c, "journal/acked", "batch", (int64_t)from + 1, unknown, &why, err);
}

static int check_one(struct journals *j, uint32_t i, struct err *err)
{
    struct one *o = &j->v[i];
    struct err why = {};
    char path[4096];
    int r;

    (void)snprintf(j->file, sizeof j->file, "journal/%" PRIu64 ".db", o->number);
    (void)snprintf(path, sizeof path, "%s/%s", j->c->dir, j->file);
    j->most = acknowledged(j, i);
    TRY(check_gap(j, o, err));
    r = journal_read(path, o->number, on_row, j, &why);
    if (r == -ECANCELED)
        return err_set(err, r, "%s", why.msg);
    j->c->out.journals++;
    TRY(check_result(j->c, j->file, "batch", -1, unknown, r, &why, err));
    return check_behind(j, err);
}

int check_journals(struct check *c, struct err *err)
{
    struct journals j = {.c = c};
    char path[4096];
    int r;

    (void)snprintf(path, sizeof path, "%s/journal", c->dir);
    j.fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (j.fd < 0)
        return errno == ENOENT ? 0 : err_set(err, -errno, "journal: %m");
    r = list(&j, err);
    for (uint32_t i = 0; r == 0 && i < j.n; i++) {
        struct err why = {};

        (void)snprintf(j.file, sizeof j.file, "journal/%" PRIu64 ".db", j.v[i].number);
        (void)snprintf(path, sizeof path, "%s/%s", c->dir, j.file);
        r = journal_info(path, j.v[i].number, &j.v[i].info, &why);
        if (r == 0 && c->state.store && j.v[i].info.store && j.v[i].info.store != c->state.store)
            r = err_set(&why, -EBADMSG, "%s: is of another store", j.file);
        j.v[i].ok = r == 0;
        r = check_result(c, j.file, "meta", -1, unknown, r, &why, err);
    }
    for (uint32_t i = 0; r == 0 && c->conf->depth >= STORE_CHECK_FULL && i < j.n; i++)
        if (j.v[i].ok)
            r = check_one(&j, i, err);
    if (r == 0 && c->conf->depth >= STORE_CHECK_FULL)
        r = check_acked(&j, err);
    free(j.v);
    (void)close(j.fd);
    return r;
}
