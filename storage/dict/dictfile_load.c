// SPDX-License-Identifier: Apache-2.0
/*
 * Reading dict/<epoch>.db into an epoch. Chunks are asked for by their keys, one after another, so
 * that a damaged page takes what is on it and nothing else. What a lost chunk held keeps its ids: a
 * text that says so, a frame that is marked damaged, nodes that are [no stack: damaged].
 */
#include <endian.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "storage/dict/dictfile_tables_private.h"

#define NONE     UINT32_MAX
#define ROOM_MAX (1u << 18) /* entries: what a damaged file says is not believed */

static const char lost_mark[] = "\0lost";

struct loader {
    const struct db *db;
    struct dictfile *f; /* keeps what is found, whatever the mode */
    struct epoch *e;
    struct dict *d;
    enum dictfile_how how;
    sqlite3_stmt *chunk, *last, *next;
    uint64_t fold, chunks, n_lost;
    uint32_t end;    /* of the kind that is read: no entry comes behind it */
    struct err *err; /* of the first damage */
    uint32_t lost_frame;
    uint64_t *hash;   /* by frame of the file; with DICTFILE_APPEND */
    struct str *text; /* working memory, DICTFILE_CHUNK */
    struct dict_place *place;
};

static int no_memory(const struct loader *l, struct err *err)
{
    return err_set(err, -ENOMEM, "%s: memory is short", l->db->name);
}

static void lost(struct loader *l, const struct err *why)
{
    if (l->n_lost++ == 0 && l->err && l->err->code == 0)
        *l->err = *why;
}

/* ---- chunks -------------------------------------------------------------------------------- */

static bool is_damage(int r)
{
    return r == -EBADMSG || r == -EIO;
}

static int bind(const struct loader *l, sqlite3_stmt *st, const int64_t *v, int n, struct err *err)
{
    (void)sqlite3_reset(st);
    for (int i = 0; i < n; i++)
        if (sqlite3_bind_int64(st, i + 1, v[i]) != SQLITE_OK)
            return db_fail(l->db, "chunk", err);
    return 0;
}

/* Where the last chunk of a kind begins; -1: there is none. */
static int last_of(struct loader *l, uint32_t svc, uint32_t sub, enum dict_kind kind, int64_t *ret,
                   struct err *err)
{
    struct err why = {};
    int r;

    *ret = -1;
    TRY(bind(l, l->last, (int64_t[]){svc, sub, (int64_t)kind}, 3, err));
    r = db_step(l->db, l->last, &why);
    if (r == 1 && sqlite3_column_type(l->last, 0) == SQLITE_INTEGER)
        *ret = sqlite3_column_int64(l->last, 0);
    (void)sqlite3_reset(l->last);
    if (r >= 0 && *ret < UINT32_MAX)
        return 0;
    *ret = -1;
    if (r == -ENOMEM)
        return no_memory(l, err);
    lost(l, &why);
    return 0;
}

/* 1: there, sound, *ret_n entries; 0: lost. Data until the next call. */
static int get_chunk(struct loader *l, uint32_t svc, uint32_t sub, enum dict_kind kind,
                     uint32_t first, uint32_t *ret_n, struct str *ret, struct err *err)
{
    const int64_t key[4] = {svc, sub, (int64_t)kind, first};
    struct err why = {};
    int64_t v[5] = {};
    int r;

    TRY(bind(l, l->chunk, key, 4, err));
    r = db_step(l->db, l->chunk, &why);
    if (r == 1)
        r = db_take(l->db, DB_CHUNK, l->chunk, v, 5, ret, 1, &why);
    else if (r == 0)
        r = db_damaged(l->db, &why, "chunk %d of service %" PRIu32 " at %" PRIu32 " is gone",
                       (int)kind, svc, first);
    if (r == 0 && (memcmp(v, key, sizeof key) != 0 || v[4] < 1 || v[4] > DICTFILE_CHUNK))
        r = db_damaged(l->db, &why, "chunk %d at %" PRIu32 ": impossible", (int)kind, first);
    if (r == 0) {
        l->fold += (uint64_t)sqlite3_column_int64(l->chunk, 6);
        l->chunks++;
        *ret_n = (uint32_t)v[4];
        return 1;
    }
    if (!is_damage(r))
        return err_set(err, r, "%s", why.msg);
    lost(l, &why);
    return 0;
}

/* Its sum was right, its bytes are not. */
static int undecoded(struct loader *l, enum dict_kind kind, uint32_t first, struct err *err)
{
    struct err why = {};

    if (l->f->coder->coder.no_memory)
        return no_memory(l, err);
    (void)db_damaged(l->db, &why, "chunk %d at %" PRIu32 ": does not decode", (int)kind, first);
    lost(l, &why);
    return 0;
}

/* All chunks of a kind, from `base` on. take: n entries, data NULL where they are lost. A chunk
 * that is not full with others behind it is damage, too. */
typedef int take_fn(struct loader *l, void *ctx, struct str data, uint32_t first, uint32_t n,
                    struct err *err);

static int each_chunk(struct loader *l, uint32_t svc, uint32_t sub, enum dict_kind kind,
                      uint32_t base, take_fn *take, void *ctx, struct err *err)
{
    int64_t last;

    TRY(last_of(l, svc, sub, kind, &last, err));
    l->end = last < ROOM_MAX ? (uint32_t)(last + 1) + DICTFILE_CHUNK : 0;
    for (int64_t first = base; first <= last; first += DICTFILE_CHUNK) {
        uint32_t n = DICTFILE_CHUNK;
        struct str data = {};
        int r;

        TRY_OUTCOME(r, get_chunk(l, svc, sub, kind, (uint32_t)first, &n, &data, err));
        if (r == 1 && n < DICTFILE_CHUNK && first < last) {
            n = DICTFILE_CHUNK;
            data = (struct str){};
            TRY(undecoded(l, kind, (uint32_t)first, err));
        }
        TRY(take(l, ctx, r == 1 ? data : (struct str){}, (uint32_t)first, n, err));
    }
    return 0;
}

/* ---- texts, binaries, functions, frames ---------------------------------------------------- */

static bool is_lost(const struct loader *l, uint32_t text)
{
    struct str s = dict_str(l->d, text);

    return s.n > sizeof lost_mark && memcmp(s.p, lost_mark, sizeof lost_mark) == 0;
}

static int take_texts(struct loader *l, void *ctx, struct str data, uint32_t first, uint32_t n,
                      struct err *err)
{
    bool ok = data.p && dict_get_texts(l->f->coder, data, l->text, n);

    (void)ctx;
    if (data.p && !ok)
        TRY(undecoded(l, DICT_TEXT, first, err));
    vec_reserve(&l->d->text.t.v, l->d->pool, l->end);
    for (uint32_t i = 0; i < n; i++) {
        char mark[32] = {};
        struct str s = ok ? l->text[i] : (struct str){mark, sizeof mark};
        uint32_t id;

        if (!ok)
            (void)snprintf(mark + sizeof lost_mark, sizeof mark - sizeof lost_mark, "%" PRIu32,
                           first + i);
        if (!ok)
            memcpy(mark, lost_mark, sizeof lost_mark);
        id = text_id(&l->d->text, s);
        if (id == NONE)
            return no_memory(l, err);
        if (id != first + i) /* one text twice: all behind it would be others */
            return db_damaged(l->db, err, "text %" PRIu32 " is text %" PRIu32, first + i, id);
    }
    return 0;
}

/* Entries of dict_once in the order of their numbers; one that is lost is made up. */
static int take_bins(struct loader *l, void *ctx, struct str data, uint32_t first, uint32_t n,
                     struct err *err)
{
    struct dict_bin *v = ctx;
    bool ok = data.p && dict_get_bins(l->f->coder, data, v, n);

    if (data.p && !ok)
        TRY(undecoded(l, DICT_BIN, first, err));
    for (uint32_t i = 0; i < n; i++) {
        uint32_t id;

        if (!ok)
            v[i] = (struct dict_bin){.path = NONE, .id = first + i};
        id = dict_bin_of(&l->f->bin, &v[i]);
        if (id == NONE)
            return no_memory(l, err);
        if (id != first + i)
            return db_damaged(l->db, err, "binary %" PRIu32 " is binary %" PRIu32, first + i, id);
    }
    return 0;
}

static int take_functions(struct loader *l, void *ctx, struct str data, uint32_t first, uint32_t n,
                          struct err *err)
{
    struct dict_function *v = ctx;
    bool ok = data.p && dict_get_functions(l->f->coder, data, v, n);

    if (data.p && !ok)
        TRY(undecoded(l, DICT_FUNCTION, first, err));
    for (uint32_t i = 0; i < n; i++) {
        uint32_t id;

        if (!ok)
            v[i] = (struct dict_function){.name = NONE, .file = first + i};
        id = dict_function_of(&l->f->function, &v[i]);
        if (id == NONE)
            return no_memory(l, err);
        if (id != first + i)
            return db_damaged(l->db, err, "function %" PRIu32 " is function %" PRIu32, first + i,
                              id);
    }
    return 0;
}

static bool good_text(const struct loader *l, uint32_t text)
{
    return text < texts_n(&l->d->text) && !is_lost(l, text);
}

/* false: something that it is made of is lost. */
static bool frame_of(const struct loader *l, const struct dict_place *p, struct dict_frame *ret)
{
    static const struct dict_bin no_bin;
    static const struct dict_function no_function;
    const struct dict_bin *b = p->bin ? &l->f->bin.bin[p->bin] : &no_bin;
    const struct dict_function *fn =
        p->function ? &l->f->function.function[p->function] : &no_function;

    if (p->bin >= l->f->bin.n || p->function >= l->f->function.n || !good_text(l, b->path) ||
        !good_text(l, b->id) || !good_text(l, fn->name) || !good_text(l, fn->file) ||
        fn->kind > UINT8_MAX || b->id_kind > UINT8_MAX)
        return false;
    *ret = (struct dict_frame){.kind = (uint8_t)fn->kind,
                               .flags = (uint8_t)(p->flags & ~DICT_PLACE_DAMAGED),
                               .id_kind = (uint8_t)b->id_kind,
                               .damaged = p->flags & DICT_PLACE_DAMAGED,
                               .name = fn->name,
                               .file = fn->file,
                               .start_line = fn->line,
                               .line = p->line,
                               .bin = b->path,
                               .bin_id = b->id,
                               .addr = p->addr};
    return true;
}

/* A frame that stands for what is lost; addr makes it one of its own. Its text comes behind all
 * that were read. */
static bool damaged_frame(struct loader *l, uint64_t addr, struct dict_frame *ret)
{
    *ret = (struct dict_frame){.kind = FRAME_OTHER,
                               .damaged = true,
                               .name = text_id(&l->d->text, STR("[no stack: damaged]")),
                               .addr = addr};
    return ret->name != NONE;
}

static int take_frames(struct loader *l, void *ctx, struct str data, uint32_t first, uint32_t n,
                       struct err *err)
{
    bool ok = data.p && dict_get_frames(l->f->coder, data, l->place, n);

    (void)ctx;
    if (data.p && !ok)
        TRY(undecoded(l, DICT_FRAME, first, err));
    vec_reserve(&l->d->frame.v, l->d->pool, l->end);
    for (uint32_t i = 0; i < n; i++) {
        struct dict_frame x;
        uint32_t id;

        if (!ok || !frame_of(l, &l->place[i], &x)) {
            if (l->n_lost == 0)
                TRY(undecoded(l, DICT_FRAME, first, err));
            if (!damaged_frame(l, (uint64_t)1 << 63 | (first + i), &x))
                return no_memory(l, err);
        }
        id = dict_frame_of(l->d, &x);
        if (id == NONE)
            return no_memory(l, err);
        if (id != first + i)
            return db_damaged(l->db, err, "frame %" PRIu32 " is frame %" PRIu32, first + i, id);
    }
    return 0;
}

/* ---- tries --------------------------------------------------------------------------------- */

struct trie_load {
    struct dict_trie *t;
    struct dict_written *w;
    uint32_t n_list, room; /* of list: the file's, where a lost chunk keeps its places */
    uint32_t *list;
    uint32_t *parent; /* by node, as the next two */
    uint16_t *depth;  /* current epoch only */
    bool *damaged;
    uint32_t n_room;
};

static void *grow(void *v, uint32_t n, size_t size)
{
    return mem_fail_now() ? NULL : realloc(v, (size_t)n * size);
}

static int take_list(struct loader *l, void *ctx, struct str data, uint32_t first, uint32_t n,
                     struct err *err)
{
    struct trie_load *t = ctx;
    uint32_t *v = grow(t->list, first + n, sizeof *v);

    if (!v)
        return no_memory(l, err);
    t->list = v;
    t->n_list = first + n;
    if (data.p && dict_get_list(l->f->coder, data, v + first, n))
        return 0;
    memset(v + first, 0xff, n * sizeof *v);
    return data.p ? undecoded(l, DICT_LIST, first, err) : 0;
}

static bool room_for(struct trie_load *t, uint32_t n, bool maps)
{
    uint32_t *parent;
    uint16_t *depth;
    bool *damaged;
    uint32_t room = t->n_room ? t->n_room : 4 * DICTFILE_CHUNK;

    if (n <= t->n_room)
        return true;
    while (room < n)
        room *= 2;
    parent = grow(t->parent, room, sizeof *parent);
    if (parent)
        t->parent = parent;
    damaged = grow(t->damaged, room, sizeof *damaged);
    if (damaged)
        t->damaged = damaged;
    depth = maps ? grow(t->depth, room, sizeof *depth) : NULL;
    if (depth)
        t->depth = depth;
    if (!parent || !damaged || (maps && !depth))
        return false;
    if (t->n_room == 0) {
        parent[0] = 0;
        damaged[0] = false;
        if (maps)
            depth[0] = 0;
    }
    t->n_room = room;
    return true;
}

static uint32_t lost_frame(struct loader *l)
{
    struct dict_frame x;

    if (l->lost_frame == 0 && damaged_frame(l, 0, &x)) {
        uint32_t id = dict_frame_of(l->d, &x);

        l->lost_frame = id == NONE ? 0 : id;
    }
    return l->lost_frame ? l->lost_frame : NONE;
}

/* Hashes of all frames: many nodes have the same one. */
static int hash_frames(struct loader *l, struct err *err)
{
    if (l->how != DICTFILE_APPEND)
        return 0;
    l->hash = mem_fail_now() ? NULL : malloc(((size_t)l->f->n_frame + 1) * sizeof *l->hash);
    if (!l->hash)
        return no_memory(l, err);
    for (uint32_t i = 1; i < l->f->n_frame; i++)
        l->hash[i] = dict_frame_hash(l->d, i);
    return 0;
}

static uint64_t hash_of(const struct loader *l, uint32_t frame)
{
    return frame < l->f->n_frame ? l->hash[frame] : dict_frame_hash(l->d, frame);
}

/* Frame of a node by its place in the list; that of what is lost where it leads nowhere. */
static uint32_t frame_at(struct loader *l, const struct trie_load *t, uint32_t place, bool damaged)
{
    uint32_t frame = !damaged && place < t->n_list ? t->list[place] : NONE;

    if (frame != NONE && frame > 0 && frame < l->f->n_frame)
        return frame;
    if (l->n_lost == 0)
        lost(l, &(struct err){.code = -EBADMSG, .msg = "a node without a frame"});
    return lost_frame(l);
}

/* A node with its hash. */
static bool add_known(struct loader *l, struct trie_load *t, uint32_t node, uint32_t frame)
{
    const struct dict_load n = {.parent = t->parent[node],
                                .frame = frame,
                                .frame_hash = hash_of(l, frame),
                                .depth = t->depth[t->parent[node]] + 1u};

    t->depth[node] = (uint16_t)(n.depth < UINT16_MAX ? n.depth : UINT16_MAX);
    return dict_trie_load(l->d, t->t, &n);
}

static int take_nodes(struct loader *l, void *ctx, struct str data, uint32_t first, uint32_t n,
                      struct err *err)
{
    struct trie_load *t = ctx;
    const bool maps = l->how == DICTFILE_APPEND;
    uint32_t *place = l->f->coder->u;
    bool ok;

    if (!room_for(t, first + n, maps))
        return no_memory(l, err);
    ok = data.p && dict_get_nodes(l->f->coder, data, t->parent, t->damaged, place, first, n);
    if (data.p && !ok)
        TRY(undecoded(l, DICT_NODE, first, err));
    for (uint32_t i = 0, node = first; i < n; i++, node++) {
        uint32_t frame;

        if (!ok) {
            t->parent[node] = 0;
            t->damaged[node] = true;
        }
        frame = frame_at(l, t, place[i], t->damaged[node]);
        if (frame == NONE || !(maps ? add_known(l, t, node, frame)
                                    : dict_trie_load_bare(l->d, t->t, t->parent[node], frame)))
            return no_memory(l, err);
    }
    return 0;
}

/* What was found is what the file holds, for later appends. */
static int keep_trie(struct loader *l, const struct trie_load *t, struct err *err)
{
    struct dict_written *w = dict_written_of(l->f, t->t->id.svc, t->t->id.sub);

    if (!w)
        return no_memory(l, err);
    for (uint32_t i = 0; i < t->n_list && l->n_lost == 0; i++) {
        uint32_t place = dict_place_of(w, t->list[i]);

        if (place == NONE)
            return no_memory(l, err);
        if (place != i)
            return db_damaged(l->db, err, "a frame twice in the list of service %" PRIu32, w->svc);
    }
    w->n = t->t->parent.n;
    w->list_written = w->n_list;
    return 0;
}

static int load_trie(struct loader *l, uint32_t svc, uint32_t sub, struct err *err)
{
    struct trie_load t = {};
    struct dict_trie *found = epoch_find_newest(l->e, svc);
    int r;

    /* a sub whose chunks are all gone: it keeps its number, and no node */
    for (uint32_t next = found ? found->id.sub + 1 : 0; next <= sub; next++) {
        t.t = epoch_add_trie(l->e, svc);
        if (!t.t)
            return no_memory(l, err);
    }
    assert(t.t); /* load_tries() comes by svc and sub, each once */
    r = each_chunk(l, svc, sub, DICT_LIST, 0, take_list, &t, err);
    if (r == 0)
        r = each_chunk(l, svc, sub, DICT_NODE, 1, take_nodes, &t, err);
    if (r == 0 && l->how == DICTFILE_APPEND)
        r = keep_trie(l, &t, err);
    free(t.list);
    free(t.parent);
    free(t.depth);
    free(t.damaged);
    return r;
}

static int load_tries(struct loader *l, struct err *err)
{
    int64_t at[2] = {0, INT64_MAX};
    struct err why = {};

    for (;;) {
        int r;

        TRY(bind(l, l->next, at, 2, err));
        r = db_step(l->db, l->next, &why);
        if (is_damage(r)) {
            lost(l, &why);
            return 0;
        }
        if (r <= 0)
            return r < 0 ? err_set(err, r, "%s", why.msg) : 0;
        at[0] = sqlite3_column_int64(l->next, 0);
        at[1] = sqlite3_column_int64(l->next, 1);
        (void)sqlite3_reset(l->next);
        if (at[0] < 1 || at[0] > (1 << 24) || at[1] < 0 || at[1] > (1 << 16)) {
            (void)db_damaged(l->db, &why, "no such trie");
            lost(l, &why);
            continue;
        }
        TRY(load_trie(l, (uint32_t)at[0], (uint32_t)at[1], err));
    }
}

/* ---- all of it ----------------------------------------------------------------------------- */

static int load_shared(struct loader *l, struct err *err)
{
    void *v = malloc(DICTFILE_CHUNK * sizeof(struct dict_function));
    int r;

    if (!v)
        return no_memory(l, err);
    r = each_chunk(l, 0, 0, DICT_TEXT, 1, take_texts, NULL, err);
    if (r == 0)
        r = each_chunk(l, 0, 0, DICT_BIN, 1, take_bins, v, err);
    if (r == 0)
        r = each_chunk(l, 0, 0, DICT_FUNCTION, 1, take_functions, v, err);
    l->f->n_text = texts_n(&l->d->text);
    if (r == 0)
        r = each_chunk(l, 0, 0, DICT_FRAME, 1, take_frames, NULL, err);
    l->f->n_frame = l->d->frame.v.n;
    l->f->bin.written = l->f->bin.n;
    l->f->function.written = l->f->function.n;
    free(v);
    return r;
}

/* Are these all chunks, each as it was written last? */
static int check_total(struct loader *l, struct err *err)
{
    const uint64_t fold = l->fold, chunks = l->chunks;
    struct err why = {};
    uint64_t want = 0;
    struct str data = {};
    int64_t v[5] = {};
    int r;

    TRY(bind(l, l->chunk, (int64_t[]){0, 0, DICT_TOTAL, 0}, 4, err));
    r = db_step(l->db, l->chunk, &why);
    if (r == 0 && chunks == 0)
        return 0; /* made, and never written */
    if (r == 1)
        r = db_take(l->db, DB_CHUNK, l->chunk, v, 5, &data, 1, &why);
    if (r == -ENOMEM)
        return no_memory(l, err);
    if (r == 0 && data.n == sizeof want) {
        memcpy(&want, data.p, sizeof want);
        want = le64toh(want);
    }
    l->f->fold = fold;
    l->f->chunks = chunks;
    if (l->n_lost == 0 && (r != 0 || want != fold || v[4] != (int64_t)chunks)) {
        (void)db_damaged(l->db, &why, "chunks are missing, or older than the rest");
        lost(l, &why);
    }
    return 0;
}

static int prepare(struct loader *l, struct err *err)
{
    TRY(db_prepare(l->db,
                   "SELECT svc, sub, kind, first, n, data, sum FROM chunk WHERE svc = ?1 AND "
                   "sub = ?2 AND kind = ?3 AND first = ?4",
                   &l->chunk, err));
    TRY(db_prepare(l->db, "SELECT max(first) FROM chunk WHERE svc = ?1 AND sub = ?2 AND kind = ?3",
                   &l->last, err));
    return db_prepare(l->db,
                      "SELECT svc, sub FROM chunk WHERE (svc, sub) > (?1, ?2) "
                      "ORDER BY svc, sub LIMIT 1",
                      &l->next, err);
}

static int load(struct loader *l, struct err *err)
{
    struct epoch *e = l->e;

    l->text = malloc(DICTFILE_CHUNK * sizeof *l->text);
    l->place = malloc(DICTFILE_CHUNK * sizeof *l->place);
    if (!l->text || !l->place)
        return no_memory(l, err);
    TRY(prepare(l, err));
    TRY(load_shared(l, err));
    TRY(hash_frames(l, err));
    TRY(load_tries(l, err));
    TRY(check_total(l, err));
    epoch_publish(e);
    for (uint32_t i = 0; i < e->trie.n; i++)
        dict_trie_publish(epoch_trie_at(e, i));
    return 0;
}

int dictfile_load(const char *dir, const char *vfs, enum dictfile_how how, struct epoch *e,
                  struct dictfile **ret_file, struct err *err)
{
    struct dictfile *f = dictfile_new();
    struct err first = {};
    struct loader l = {.f = f, .e = e, .d = &e->dict, .how = how, .err = &first};
    char name[DICTFILE_NAME];
    int r;

    dictfile_name(name, e->id);
    if (!f)
        return err_set(err, -ENOMEM, "%s: memory is short", name);
    l.db = &f->db;
    if (how == DICTFILE_APPEND) {
        r = db_settle(dir, name, err);
        if (r == 0)
            r = db_open_live(dir, name, &dict_kind, vfs, &f->db, err);
    } else {
        r = db_open_read(dir, name, &dict_kind, DB_COPY_OF_LIVE, 0, vfs, &f->db, err);
    }
    if (r == 0)
        r = load(&l, err);
    e->file_id = f->db.seed;
    (void)sqlite3_finalize(l.chunk);
    (void)sqlite3_finalize(l.last);
    (void)sqlite3_finalize(l.next);
    free(l.text);
    free(l.hash);
    free(l.place);
    if (r == 0 && l.n_lost > 0) {
        (void)err_set(err, -EBADMSG, "%s", first.msg);
        r = STORE_PARTIAL;
    }
    if (r == 0 && how == DICTFILE_APPEND)
        r = dictfile_begin(f, err);
    if (r == 0 && how == DICTFILE_APPEND)
        *ret_file = f;
    else
        dictfile_free(f);
    return r;
}
