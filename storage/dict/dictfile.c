// SPDX-License-Identifier: Apache-2.0
/*
 * Writing dict/<epoch>.db. Chunks are rows of one table; a chunk that was not full is written anew
 * with what came behind it. One row, of kind 0, holds the sum of the sums of all others, so that a
 * chunk that is lost or as it was before is noticed.
 *
 * Frames of struct dict hold their function and binary by value; in the file these are entries of
 * their own, numbered here by first use. Function nodes and flat functions follow from frames.
 */
#include <endian.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"
#include "storage/dict/dictfile_tables_private.h"

#define NONE     UINT32_MAX
#define DATA_MAX ((size_t)64 << 20)

static const char *const schema[] = {
    "CREATE TABLE chunk(svc INTEGER, sub INTEGER, kind INTEGER, first INTEGER, n INTEGER, "
    "sum INTEGER, data BLOB, PRIMARY KEY(svc, sub, kind, first)) STRICT, WITHOUT ROWID",
};

const struct db_kind dict_kind = {
    .kind = "dict", .page = DICTFILE_PAGE, .n_table = 1, .schema = schema};

void dictfile_name(char ret[static DICTFILE_NAME], uint32_t epoch)
{
    (void)snprintf(ret, DICTFILE_NAME, "dict/%" PRIu32 ".db", epoch);
}

static int no_memory(const struct dictfile *f, struct err *err)
{
    return err_set(err, -ENOMEM, "%s: memory is short", f->db.name);
}

/* ---- what is in the file ------------------------------------------------------------------- */

struct dictfile *dictfile_new(void)
{
    struct dictfile *f = mem_fail_now() ? NULL : calloc(1, sizeof *f);

    if (!f)
        return NULL;
    f->n_text = f->n_frame = f->bin.n = f->bin.written = f->function.n = f->function.written = 1;
    map_init(&f->bin.map, 0);
    map_init(&f->function.map, 0);
    map_init(&f->trie_of, 0);
    buf_init(&f->data, DATA_MAX);
    f->coder = dict_coder_new();
    if (f->coder)
        return f;
    dictfile_free(f);
    return NULL;
}

int dictfile_begin(struct dictfile *f, struct err *err)
{
    TRY(db_prepare(&f->db,
                   "INSERT OR REPLACE INTO chunk(svc, sub, kind, first, n, data, sum) "
                   "VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7)",
                   &f->put, err));
    return db_prepare(&f->db,
                      "SELECT sum FROM chunk WHERE svc = ?1 AND sub = ?2 AND kind = ?3 AND "
                      "first = ?4",
                      &f->sum, err);
}

void dictfile_free(struct dictfile *f)
{
    if (!f)
        return;
    (void)sqlite3_finalize(f->put);
    (void)sqlite3_finalize(f->sum);
    db_close(&f->db);
    for (uint32_t i = 0; i < f->n_trie; i++) {
        free(f->trie[i].list);
        map_deinit(&f->trie[i].place);
    }
    free(f->trie);
    free(f->bin.bin);
    free(f->function.function);
    map_deinit(&f->bin.map);
    map_deinit(&f->function.map);
    map_deinit(&f->trie_of);
    (void)dict_coder_free(f->coder);
    buf_deinit(&f->data);
    free(f);
}

/* Room for one more element of `size`; false: memory is short. */
static bool room_for(void **v, uint32_t n, uint32_t *room, size_t size)
{
    uint32_t more = *room ? 2 * *room : 64;
    void *p;

    if (n < *room)
        return true;
    p = mem_fail_now() ? NULL : realloc(*v, more * size);
    if (!p)
        return false;
    *v = p;
    *room = more;
    return true;
}

/* The entry equal to x, or the slot of a new one. Equal hashes of unequal ones: probe on. */
static uint32_t once(struct dict_once *o, const void *x, size_t size)
{
    static const char zero[sizeof(struct dict_function)];
    uint64_t h = hash_bytes(x, size), *at;
    void *v = o->bin; /* whichever of the union */

    static_assert(sizeof(struct dict_function) >= sizeof(struct dict_bin), "zero");
    if (memcmp(x, zero, size) == 0)
        return 0;
    for (;; h++) {
        switch ((int)map_at(&o->map, h, &at)) {
        case MAP_FOUND:
            if (memcmp((char *)v + *at * size, x, size) == 0)
                return (uint32_t)*at;
            continue;
        case MAP_ADDED:
            break;
        default:
            return NONE;
        }
        break;
    }
    *at = o->n;
    if (!room_for(&v, o->n, &o->room, size)) {
        (void)map_del(&o->map, h);
        return NONE;
    }
    o->bin = v;
    memset(v, 0, size);
    memcpy((char *)v + o->n * size, x, size);
    return o->n++;
}

uint32_t dict_bin_of(struct dict_once *o, const struct dict_bin *x)
{
    return once(o, x, sizeof *x);
}

uint32_t dict_function_of(struct dict_once *o, const struct dict_function *x)
{
    return once(o, x, sizeof *x);
}

struct dict_written *dict_written_of(struct dictfile *f, uint32_t svc, uint32_t sub)
{
    uint64_t key = (uint64_t)svc << 32 | sub, i;
    void *v = f->trie;

    if (map_get(&f->trie_of, key, &i))
        return &f->trie[i];
    if (!room_for(&v, f->n_trie, &f->room, sizeof *f->trie))
        return NULL;
    f->trie = v;
    if (map_put(&f->trie_of, key, f->n_trie) == MAP_FULL)
        return NULL;
    f->trie[f->n_trie] = (struct dict_written){.svc = svc, .sub = sub, .n = 1};
    map_init(&f->trie[f->n_trie].place, 0);
    return &f->trie[f->n_trie++];
}

uint32_t dict_place_of(struct dict_written *t, uint32_t frame)
{
    uint64_t *at;
    void *v = t->list;

    if (!room_for(&v, t->n_list, &t->room, sizeof *t->list))
        return NONE;
    t->list = v;
    switch ((int)map_at(&t->place, frame, &at)) {
    case MAP_FOUND:
        return (uint32_t)*at;
    case MAP_ADDED:
        *at = t->n_list;
        t->list[t->n_list] = frame;
        return t->n_list++;
    default:
        return NONE;
    }
}

/* ---- chunks -------------------------------------------------------------------------------- */

/* A transaction: the fold as it will be. */
struct append {
    struct dictfile *f;
    const struct dict *d;
    uint64_t fold, chunks;
};

struct chunk_key {
    uint32_t svc, sub;
    enum dict_kind kind;
    uint32_t first, n;
};

static int put_chunk(struct append *a, const struct chunk_key *k, struct err *err)
{
    struct dictfile *f = a->f;
    const int64_t v[5] = {k->svc, k->sub, (int64_t)k->kind, k->first, k->n};
    struct str data = buf_view(&f->data);
    int64_t sum;
    int r;

    if (f->data.failed || f->coder->coder.no_memory)
        return no_memory(f, err);
    for (int i = 0; i < 4; i++)
        if (sqlite3_bind_int64(f->sum, i + 1, v[i]) != SQLITE_OK)
            return db_fail(&f->db, "chunk", err);
    r = db_step(&f->db, f->sum, err);
    if (r == 1)
        a->fold -= (uint64_t)sqlite3_column_int64(f->sum, 0);
    (void)sqlite3_reset(f->sum);
    if (r < 0)
        return r;
    TRY(db_put(&f->db, DB_CHUNK, f->put, v, 5, &data, 1, &sum, err));
    a->fold += (uint64_t)sum;
    a->chunks += r == 0;
    return 0;
}

/* The chunk that entry i is in begins there; entries are counted from `base`. */
static uint32_t chunk_of(uint32_t i, uint32_t base)
{
    return (i - base) / DICTFILE_CHUNK * DICTFILE_CHUNK + base;
}

static uint32_t chunk_size(uint32_t first, uint32_t end)
{
    return end - first < DICTFILE_CHUNK ? end - first : DICTFILE_CHUNK;
}

static int put_texts(struct append *a, uint32_t end, struct err *err)
{
    struct dictfile *f = a->f;
    struct str *v;
    int r = 0;

    if (end == f->n_text)
        return 0;
    v = malloc(DICTFILE_CHUNK * sizeof *v);
    if (!v)
        return no_memory(f, err);
    for (uint32_t first = chunk_of(f->n_text, 1); r == 0 && first < end; first += DICTFILE_CHUNK) {
        uint32_t n = chunk_size(first, end);

        for (uint32_t i = 0; i < n; i++)
            v[i] = dict_str(a->d, first + i);
        buf_reset(&f->data);
        dict_put_texts(f->coder, &f->data, v, n);
        r = put_chunk(a, &(struct chunk_key){0, 0, DICT_TEXT, first, n}, err);
    }
    free(v);
    return r;
}

static int put_bins(struct append *a, struct err *err)
{
    struct dictfile *f = a->f;
    const struct dict_once *o = &f->bin;

    if (o->n == o->written)
        return 0;
    for (uint32_t first = chunk_of(o->written, 1); first < o->n; first += DICTFILE_CHUNK) {
        uint32_t n = chunk_size(first, o->n);

        buf_reset(&f->data);
        dict_put_bins(f->coder, &f->data, o->bin + first, n);
        TRY(put_chunk(a, &(struct chunk_key){0, 0, DICT_BIN, first, n}, err));
    }
    return 0;
}

static int put_functions(struct append *a, struct err *err)
{
    struct dictfile *f = a->f;
    const struct dict_once *o = &f->function;

    if (o->n == o->written)
        return 0;
    for (uint32_t first = chunk_of(o->written, 1); first < o->n; first += DICTFILE_CHUNK) {
        uint32_t n = chunk_size(first, o->n);

        buf_reset(&f->data);
        dict_put_functions(f->coder, &f->data, o->function + first, n);
        TRY(put_chunk(a, &(struct chunk_key){0, 0, DICT_FUNCTION, first, n}, err));
    }
    return 0;
}

static bool place_of(struct dictfile *f, const struct dict_frame *x, struct dict_place *ret)
{
    const struct dict_bin bin = {.path = x->bin, .id = x->bin_id, .id_kind = x->id_kind};
    const struct dict_function function = {
        .name = x->name, .file = x->file, .line = x->start_line, .kind = x->kind};

    *ret = (struct dict_place){.function = dict_function_of(&f->function, &function),
                               .bin = dict_bin_of(&f->bin, &bin),
                               .line = x->line,
                               .flags = x->flags | (x->damaged ? DICT_PLACE_DAMAGED : 0),
                               .addr = x->addr};
    return ret->function != NONE && ret->bin != NONE;
}

static int put_frames(struct append *a, uint32_t end, struct err *err)
{
    struct dictfile *f = a->f;
    struct dict_place *v;
    int r = 0;

    if (end == f->n_frame)
        return 0;
    v = malloc(DICTFILE_CHUNK * sizeof *v);
    if (!v)
        return no_memory(f, err);
    for (uint32_t first = chunk_of(f->n_frame, 1); r == 0 && first < end; first += DICTFILE_CHUNK) {
        uint32_t n = chunk_size(first, end);
        bool ok = true;

        for (uint32_t i = 0; ok && i < n; i++)
            ok = place_of(f, TABLE(&a->d->frame, struct dict_frame, first + i), &v[i]);
        buf_reset(&f->data);
        dict_put_frames(f->coder, &f->data, v, ok ? n : 0);
        r = ok ? put_chunk(a, &(struct chunk_key){0, 0, DICT_FRAME, first, n}, err)
               : no_memory(f, err);
    }
    free(v);
    return r;
}

/* ---- tries --------------------------------------------------------------------------------- */

static int put_list(struct append *a, const struct dict_written *t, struct err *err)
{
    struct dictfile *f = a->f;

    if (t->n_list == t->list_written)
        return 0;
    for (uint32_t first = chunk_of(t->list_written, 0); first < t->n_list;
         first += DICTFILE_CHUNK) {
        uint32_t n = chunk_size(first, t->n_list);

        buf_reset(&f->data);
        dict_put_list(f->coder, &f->data, t->list + first, n);
        TRY(put_chunk(a, &(struct chunk_key){t->svc, t->sub, DICT_LIST, first, n}, err));
    }
    return 0;
}

static int put_nodes(struct append *a, struct dict_written *t, const struct dict_trie *from,
                     uint32_t end, struct err *err)
{
    struct dictfile *f = a->f;
    const uint32_t *parent = VEC(&from->parent, uint32_t, 0);
    const uint32_t *frame = VEC(&from->frame, uint32_t, 0);
    uint32_t *place = f->coder->u;

    for (uint32_t first = chunk_of(t->n, 1); first < end; first += DICTFILE_CHUNK) {
        uint32_t n = chunk_size(first, end);

        for (uint32_t i = 0; i < n; i++) {
            place[i] = dict_place_of(t, frame[first + i]);
            if (place[i] == NONE)
                return no_memory(f, err);
        }
        buf_reset(&f->data);
        dict_put_nodes(f->coder, &f->data, parent, place, first, n, t->n_list);
        TRY(put_chunk(a, &(struct chunk_key){t->svc, t->sub, DICT_NODE, first, n}, err));
    }
    return put_list(a, t, err);
}

/* How far everything reached when the append began. */
struct reach {
    uint32_t n_trie, n_frame, n_text;
    uint32_t *n; /* nodes, by trie */
};

/* Tries before frames before texts: each was published behind what it points to. */
static bool look(const struct epoch *e, struct reach *ret)
{
    ret->n_trie = atomic_load_explicit(&e->n_trie, memory_order_acquire);
    ret->n = mem_fail_now() ? NULL : malloc(((size_t)ret->n_trie + 1) * sizeof *ret->n);
    for (uint32_t i = 0; ret->n && i < ret->n_trie; i++)
        ret->n[i] = atomic_load_explicit(&epoch_trie_at(e, i)->n, memory_order_acquire);
    ret->n_frame = atomic_load_explicit(&e->dict.n_frame, memory_order_acquire);
    ret->n_text = atomic_load_explicit(&e->dict.n_text, memory_order_acquire);
    return ret->n != NULL;
}

static int put_all(struct append *a, const struct epoch *e, const struct reach *to, struct err *err)
{
    struct dictfile *f = a->f;
    uint64_t fold;

    TRY(put_texts(a, to->n_text, err));
    TRY(put_frames(a, to->n_frame, err));
    TRY(put_bins(a, err));
    TRY(put_functions(a, err));
    for (uint32_t i = 0; i < to->n_trie; i++) {
        const struct dict_trie *from = epoch_trie_at(e, i);
        struct dict_written *t = dict_written_of(f, from->id.svc, from->id.sub);

        if (!t)
            return no_memory(f, err);
        if (to->n[i] > t->n)
            TRY(put_nodes(a, t, from, to->n[i], err));
    }
    fold = htole64(a->fold);
    buf_reset(&f->data);
    buf_add(&f->data, &fold, sizeof fold);
    return db_put(&f->db, DB_CHUNK, f->put, (int64_t[]){0, 0, DICT_TOTAL, 0, (int64_t)a->chunks}, 5,
                  &(struct str){f->data.p, f->data.n}, 1, NULL, err);
}

static void keep(struct append *a, const struct epoch *e, const struct reach *to)
{
    struct dictfile *f = a->f;

    f->fold = a->fold;
    f->chunks = a->chunks;
    f->n_text = to->n_text;
    f->n_frame = to->n_frame;
    f->bin.written = f->bin.n;
    f->function.written = f->function.n;
    for (uint32_t i = 0; i < to->n_trie; i++) {
        const struct dict_trie *from = epoch_trie_at(e, i);
        struct dict_written *t = dict_written_of(f, from->id.svc, from->id.sub);

        t->n = to->n[i];
        t->list_written = t->n_list;
    }
}

static bool is_new(struct dictfile *f, const struct epoch *e, const struct reach *to)
{
    if (to->n_text > f->n_text || to->n_frame > f->n_frame)
        return true;
    for (uint32_t i = 0; i < to->n_trie; i++) {
        const struct dict_trie *from = epoch_trie_at(e, i);
        uint64_t at;

        if (!map_get(&f->trie_of, (uint64_t)from->id.svc << 32 | from->id.sub, &at) ||
            to->n[i] > f->trie[at].n)
            return true;
    }
    return false;
}

int dictfile_append(struct dictfile *f, const struct epoch *e, struct err *err)
{
    struct append a = {.f = f, .d = &e->dict, .fold = f->fold, .chunks = f->chunks};
    struct reach to;
    int r = 0;

    if (!look(e, &to))
        return no_memory(f, err);
    if (is_new(f, e, &to)) {
        r = db_exec(&f->db, "BEGIN IMMEDIATE", err);
        if (r == 0)
            r = put_all(&a, e, &to, err);
        if (r == 0)
            r = db_exec(&f->db, "COMMIT", err);
        if (r == 0)
            keep(&a, e, &to);
        else if (!sqlite3_get_autocommit(f->db.sq))
            (void)db_exec(&f->db, "ROLLBACK", NULL);
    }
    free(to.n);
    return r;
}

struct dictfile_mark dictfile_mark(const struct dictfile *f)
{
    struct dictfile_mark m = {.id = f->db.seed, .n = (uint64_t)f->n_text + f->n_frame};

    for (uint32_t i = 0; i < f->n_trie; i++)
        m.n += f->trie[i].n - 1;
    return m;
}

/* ---- files --------------------------------------------------------------------------------- */

int dictfile_create(const char *dir, uint32_t epoch, const char *vfs, struct dictfile **ret,
                    struct err *err)
{
    char name[DICTFILE_NAME], path[4096];
    struct dictfile *f;
    int r;

    dictfile_name(name, epoch);
    (void)snprintf(path, sizeof path, "%s/dict", dir);
    if (mkdir(path, 0700) == 0)
        TRY(db_sync_dir(dir, "dict", err));
    f = dictfile_new();
    if (!f)
        return err_set(err, -ENOMEM, "%s: memory is short", name);
    r = db_create(dir, name, &dict_kind, DB_LIVE, vfs, &f->db, err);
    if (r == 0)
        r = dictfile_begin(f, err);
    if (r != 0)
        dictfile_free(f);
    else
        *ret = f;
    return r;
}

void dictfile_checkpoint(struct dictfile *f)
{
    (void)db_exec(&f->db, "PRAGMA wal_checkpoint(TRUNCATE)", NULL);
}

struct dictfile *dictfile_close(struct dictfile *f)
{
    if (f)
        dictfile_checkpoint(f);
    dictfile_free(f);
    return NULL;
}

int dictfile_copy(struct dictfile *f, const char *path, struct err *err)
{
    return db_copy(&f->db, path, err);
}

/* ---- sizes --------------------------------------------------------------------------------- */

/* Length of the cell that a chunk of texts is, before it was packed. */
static uint64_t raw_length(const void *p, int n)
{
    struct cell_in in = cell_in(p, n > 0 ? (size_t)n : 0);

    (void)cell_get_fixed(&in, 1);
    return cell_get_varint(&in);
}

static int sizes(const struct db *db, struct store_size ret[static DICTFILE_KINDS], struct err *err)
{
    static const struct {
        const char *what;
        uint32_t raw; /* bytes of an entry as plain numbers; 0: said by the cell */
    } kind[DICT_KINDS] = {
        [DICT_TEXT] = {"dict text", 0},          [DICT_BIN] = {"dict binary", 9},
        [DICT_FUNCTION] = {"dict function", 13}, [DICT_FRAME] = {"dict frame", 21},
        [DICT_NODE] = {"dict node", 8},          [DICT_LIST] = {"dict frame list", 4},
    };
    sqlite3_stmt *st = NULL;
    int r = db_prepare(db, "SELECT kind, n, data FROM chunk WHERE kind > 0", &st, err);

    static_assert(DICT_KINDS == DICTFILE_KINDS, "one size for each");
    while (r == 0 && (r = db_step(db, st, err)) == 1) {
        int64_t k = sqlite3_column_int64(st, 0);
        uint64_t n = (uint64_t)sqlite3_column_int64(st, 1);
        const void *data = sqlite3_column_blob(st, 2);

        r = 0;
        if (k <= 0 || k >= DICT_KINDS)
            continue;
        ret[k].what = str_c(kind[k].what);
        ret[k].n += n;
        ret[k].stored += (uint64_t)sqlite3_column_bytes(st, 2);
        ret[k].raw += kind[k].raw ? n * kind[k].raw : raw_length(data, sqlite3_column_bytes(st, 2));
    }
    (void)sqlite3_finalize(st);
    return r;
}

int dictfile_own_sizes(struct dictfile *f, struct store_size ret[static DICTFILE_KINDS],
                       struct err *err)
{
    return sizes(&f->db, ret, err);
}

int dictfile_sizes(const char *dir, uint32_t epoch, const char *vfs,
                   struct store_size ret[static DICTFILE_KINDS], struct err *err)
{
    char name[DICTFILE_NAME];
    struct db db;
    int r;

    dictfile_name(name, epoch);
    TRY(db_open_read(dir, name, &dict_kind, DB_COPY_OF_LIVE, 0, vfs, &db, err));
    r = sizes(&db, ret, err);
    db_close(&db);
    return r;
}
