// SPDX-License-Identifier: Apache-2.0
/* What a part says of itself, for whoever has lost the catalog; and the hash of its file. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/hash.h"
#include "storage/part/part_reader_private.h"

#define CELL_MAX   ((size_t)64 << 20)
#define LABELS_MAX 256u
#define INPUTS_MAX 4096u

int part_hash_file(const char *dir, const char *name, uint8_t ret[static 16], uint64_t *ret_bytes,
                   struct err *err)
{
    char path[4096];
    int n = snprintf(path, sizeof path, "%s/%s", dir, name), fd, r;

    if (n < 0 || (size_t)n >= sizeof path)
        return err_set(err, -ENAMETOOLONG, "%s: too long", name);
    fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return err_set(err, -errno, "%s: %m", name);
    r = hash_file128(fd, ret, ret_bytes);
    (void)close(fd);
    return r == 0 ? 0 : err_set(err, r, "%s: read: %s", name, strerrordesc_np(-r));
}

static int read_inputs(const struct db *db, uint8_t (**ret)[16], uint32_t *ret_n, struct err *err)
{
    uint8_t(*v)[16] = malloc((size_t)INPUTS_MAX * 16);
    size_t n = 0;
    int r;

    if (!v)
        return err_set(err, -ENOMEM, "%s: memory is short", db->name);
    r = db_meta_get_blob(db, "inputs", v, (size_t)INPUTS_MAX * 16, &n, err);
    if (r < 0 || n % 16 != 0) {
        free(v);
        return r < 0 ? r : db_damaged(db, err, "meta.inputs has %zu bytes", n);
    }
    *ret = v;
    *ret_n = (uint32_t)(n / 16);
    return 0;
}

int part_read_info(const char *dir, const char *name, const char *vfs, struct part_info *ret,
                   uint8_t (**ret_inputs)[16], uint32_t *ret_n_input, struct err *err)
{
    struct part_info info = {.state = PART_SEALED};
    struct db db;
    uint64_t hsums = 0;
    int r;

    (void)snprintf(info.name, sizeof info.name, "%s", name);
    TRY(part_hash_file(dir, name, info.hash, &info.bytes, err));
    TRY(db_open_read(dir, name, &part_kind, DB_AT_REST, 0, vfs, &db, err));
    r = part_read_meta(&db, &info, &hsums, err);
    if (r == 0 && ret_inputs)
        r = read_inputs(&db, ret_inputs, ret_n_input, err);
    db_close(&db);
    if (r == 0)
        *ret = info;
    return r;
}

/* ---- names --------------------------------------------------------------------------------- */

struct names_reader {
    const struct db *db;
    const struct part_names *fn;
    struct cell_coder coder;
    struct buf scratch;
    struct cell_in in;
    struct store_label label[LABELS_MAX];
    uint32_t n_label;
    struct part_fold fold;
};

static struct str take_str(struct names_reader *r)
{
    uint64_t n = cell_get_varint(&r->in);
    const uint8_t *p = cell_get_bytes(&r->in, n);

    if (!p)
        r->in.bad = true;
    return (struct str){(const char *)p, p ? n : 0};
}

static uint32_t take_u32(struct names_reader *r)
{
    uint64_t v = cell_get_varint(&r->in);

    if (v > UINT32_MAX)
        r->in.bad = true;
    return (uint32_t)v;
}

static bool on_pair(void *ctx, struct str name, struct str value)
{
    struct names_reader *r = ctx;

    if (r->n_label == LABELS_MAX)
        return false;
    r->label[r->n_label++] = (struct store_label){name, value};
    return true;
}

static int take_name(struct names_reader *r, enum part_local_kind kind, uint32_t id,
                     struct err *err)
{
    const struct part_names *fn = r->fn;
    uint32_t v[3];
    struct str s[2];

    switch ((int)kind) {
    case PART_SVC:
        s[0] = take_str(r);
        return r->in.bad || !fn->svc ? 0 : fn->svc(fn->ctx, id, s[0], err);
    case PART_PTYPE:
        s[0] = take_str(r);
        s[1] = take_str(r);
        v[0] = take_u32(r);
        r->in.bad |= v[0] != KIND_SUM && v[0] != KIND_LEVEL;
        return r->in.bad || !fn->ptype
                   ? 0
                   : fn->ptype(fn->ctx, id, s[0], s[1], (enum ptype_kind)v[0], err);
    case PART_LABELSET:
        r->n_label = 0;
        r->in.bad |= !labels_get(&r->in, on_pair, r);
        return r->in.bad || !fn->labelset ? 0
                                          : fn->labelset(fn->ctx, id, r->n_label, r->label, err);
    default:
        for (int i = 0; i < 3; i++)
            v[i] = take_u32(r);
        return r->in.bad || !fn->series ? 0 : fn->series(fn->ctx, id, v[0], v[1], v[2], err);
    }
}

static int take_row(struct names_reader *r, sqlite3_stmt *st, enum part_local_kind kind,
                    uint32_t *last, struct err *err)
{
    struct str data;
    int64_t v[3];
    uint64_t id;
    struct cell_in in;
    const uint8_t *p;
    size_t n;

    TRY(db_take(r->db, DB_LOCAL, st, v, 3, &data, 1, err));
    part_fold_add(&r->fold, sqlite3_column_int64(st, 4));
    if (v[0] != (int64_t)kind || v[1] <= *last || v[1] > UINT32_MAX || v[2] < 1 ||
        v[2] > PART_CHUNK)
        return db_damaged(r->db, err, "local: kind %d is not whole", (int)kind);
    in = cell_in(data.p, data.n);
    p = cell_get(&r->coder, &in, CELL_MAX, &r->scratch, &n);
    r->in = cell_in(p, p ? n : 0);
    r->in.bad = !p || !cell_at_end(&in);
    id = (uint64_t)v[1];
    for (int64_t i = 0; i < v[2] && !r->in.bad; i++) {
        uint64_t d = cell_get_varint(&r->in);

        id += d;
        if (id > UINT32_MAX || (d == 0) != (i == 0)) {
            r->in.bad = true;
            break;
        }
        TRY(take_name(r, kind, (uint32_t)id, err));
    }
    if (r->coder.no_memory)
        return err_set(err, -ENOMEM, "%s: memory is short", r->db->name);
    if (!cell_at_end(&r->in))
        return db_damaged(r->db, err, "local kind %d: does not decode", (int)kind);
    *last = (uint32_t)id;
    return 0;
}

static int read_names(struct names_reader *r, sqlite3_stmt *st, struct err *err)
{
    static const enum part_local_kind kind[] = {PART_SVC, PART_PTYPE, PART_LABELSET, PART_SERIES};
    int step = 0;

    for (size_t i = 0; i < sizeof kind / sizeof *kind; i++) {
        uint32_t last = 0;

        if (sqlite3_reset(st) != SQLITE_OK || sqlite3_bind_int64(st, 1, kind[i]) != SQLITE_OK)
            return db_fail(r->db, "local", err);
        while ((step = db_step(r->db, st, err)) == 1)
            TRY(take_row(r, st, kind[i], &last, err));
        TRY(step);
    }
    return part_fold_check(r->db, FOLD_NAMES, &r->fold, err);
}

int part_read_names(const char *dir, const char *name, const char *vfs, const struct part_names *fn,
                    struct err *err)
{
    struct names_reader *r = mem_fail_now() ? NULL : calloc(1, sizeof *r);
    sqlite3_stmt *st = NULL;
    struct db db;
    int out;

    if (!r)
        return err_set(err, -ENOMEM, "%s: memory is short", name);
    out = db_open_read(dir, name, &part_kind, DB_AT_REST, 0, vfs, &db, err);
    if (out != 0) {
        free(r);
        return out;
    }
    r->db = &db;
    r->fn = fn;
    cell_coder_init(&r->coder);
    buf_init(&r->scratch, CELL_MAX + 64);
    out = db_prepare(&db,
                     "SELECT kind, first, n, data, sum FROM local WHERE kind = ?1 ORDER BY first",
                     &st, err);
    if (out == 0)
        out = read_names(r, st, err);
    (void)sqlite3_finalize(st);
    cell_coder_deinit(&r->coder);
    buf_deinit(&r->scratch);
    db_close(&db);
    free(r);
    return out;
}
