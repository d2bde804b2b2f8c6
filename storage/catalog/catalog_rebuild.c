// SPDX-License-Identifier: Apache-2.0
/*
 * A catalog made from the parts. Each part says its period, its LSN and the parts that it replaced,
 * and repeats what the catalog ids mean that it uses. Ids that no part knows (their data has
 * expired) keep a name of their own, so that no id is given twice. What is not in parts is lost
 * with the old catalog: senders (known from the journals only), marks of expiry and damage.
 */
#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/hash.h"
#include "storage/catalog/catalog_tables_private.h"
#include "storage/dict/dictfile_private.h"

/* ---- files --------------------------------------------------------------------------------- */

static int by_name(const void *a, const void *b)
{
    return strcmp(a, b);
}

static int add_files(const char *dir, const char *sub, struct file_list *l, struct err *err)
{
    char path[4096];
    const struct dirent *e;
    DIR *d;

    (void)snprintf(path, sizeof path, "%s/%s", dir, sub);
    d = opendir(path);
    if (!d)
        return errno == ENOENT ? 0 : err_set(err, -errno, "%s: %m", sub);
    while ((e = readdir(d))) { // NOLINT(concurrency-mt-unsafe): a stream of our own
        char name[PART_NAME];
        void *v;
        int n = snprintf(name, sizeof name, "%s/%s", sub, e->d_name);

        if (n < 0 || (size_t)n >= sizeof name || !str_ends(str_c(name), STR(".db")))
            continue;
        v = realloc(l->v, ((size_t)l->n + 1) * sizeof *l->v);
        if (!v) {
            (void)closedir(d);
            return err_set(err, -ENOMEM, "%s: memory is short", sub);
        }
        l->v = v;
        memcpy(l->v[l->n++], name, sizeof name);
    }
    (void)closedir(d);
    return 0;
}

int part_files(const char *dir, struct file_list *ret, struct err *err)
{
    struct file_list l = {};
    int r = add_files(dir, "shard/minute", &l, err);

    if (r == 0)
        r = add_files(dir, "shard/raw", &l, err);
    if (r != 0) {
        free(l.v);
        return r;
    }
    if (l.n > 1)
        qsort(l.v, l.n, sizeof *l.v, by_name);
    *ret = l;
    return 0;
}

/* The file becomes quarantine/NAME.SECONDS. */
static int quarantine(const char *dir, const char *name, real_ns now, struct err *err)
{
    const char *base = strrchr(name, '/');
    char from[4096], to[4096];

    (void)snprintf(to, sizeof to, "%s/quarantine", dir);
    if (mkdir(to, 0700) != 0 && errno != EEXIST)
        return err_set(err, -errno, "quarantine: %m");
    (void)snprintf(from, sizeof from, "%s/%s", dir, name);
    (void)snprintf(to, sizeof to, "%s/quarantine/%s.%" PRId64, dir, base ? base + 1 : name,
                   now.v / NS_PER_S);
    return rename(from, to) == 0 ? 0 : err_set(err, -errno, "%s: %m", name);
}

/* ---- parts --------------------------------------------------------------------------------- */

struct found {
    struct part_info info;
    uint8_t (*input)[16];
    uint32_t n_input;
    bool drop; /* replaced by another, or the same again */
};

struct ids {
    uint32_t max;
    struct map hash; /* id -> hash of what it means */
};

struct rebuild {
    struct catalog *c;
    const char *dir, *vfs;
    real_ns now;
    struct found *v;
    uint32_t n;
    struct ids svc, ptype, labelset, series;
    struct arena mem; /* of one part's names */
    struct catalog_change change;
    uint32_t room[4];
};

static bool is_in(const uint8_t uuid[16], const uint8_t (*v)[16], uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (memcmp(uuid, v[i], 16) == 0)
            return true;
    return false;
}

static bool is_replaced(const struct rebuild *rb, uint32_t i)
{
    for (uint32_t k = 0; k < rb->n; k++) {
        const struct found *f = &rb->v[k];

        if (k != i && is_in(rb->v[i].info.uuid, (const uint8_t(*)[16])f->input, f->n_input))
            return true;
        if (k < i && memcmp(rb->v[i].info.uuid, f->info.uuid, 16) == 0)
            return true;
    }
    return false;
}

static int note_damage(struct rebuild *rb, const char *what, struct err *err)
{
    const struct catalog_damage d = {.at = rb->now, .what = str_c(what)};
    const struct catalog_change ch = {.n_damage = 1, .damage = &d};

    return catalog_commit(rb->c, &ch, err);
}

static int find_parts(struct rebuild *rb, const struct file_list *files, struct err *err)
{
    rb->v = calloc(files->n, sizeof *rb->v);
    if (!rb->v)
        return err_set(err, -ENOMEM, "catalog.db: memory is short");
    for (uint32_t i = 0; i < files->n; i++) {
        struct found *f = &rb->v[rb->n];
        struct err why = {};
        int r =
            part_read_info(rb->dir, files->v[i], rb->vfs, &f->info, &f->input, &f->n_input, &why);

        if (r == 0) {
            rb->n++;
        } else if (r == -EBADMSG) {
            TRY(quarantine(rb->dir, files->v[i], rb->now, err));
            TRY(note_damage(rb, why.msg, err));
        } else {
            return err_set(err, r, "%s", why.msg);
        }
    }
    for (uint32_t i = 0; i < rb->n; i++)
        rb->v[i].drop = is_replaced(rb, i);
    for (uint32_t i = 0; i < rb->n; i++)
        if (rb->v[i].drop)
            TRY(quarantine(rb->dir, rb->v[i].info.name, rb->now, err));
    return 0;
}

/* ---- names --------------------------------------------------------------------------------- */

/* 1: new, 0: known with the same meaning. */
static int meet(struct ids *ids, uint32_t id, uint64_t hash, struct err *err)
{
    uint64_t *at;

    switch ((int)map_at(&ids->hash, id, &at)) {
    case MAP_ADDED:
        *at = hash;
        if (id > ids->max)
            ids->max = id;
        return 1;
    case MAP_FOUND:
        return *at == hash ? 0 : err_set(err, -EBADMSG, "id %" PRIu32 " has two meanings", id);
    default:
        return err_set(err, -ENOMEM, "catalog.db: memory is short");
    }
}

/* One more element of a growing array of the change, in mem. NULL: memory is short. */
static void *grow(struct rebuild *rb, const void **v, uint32_t *n, size_t size, uint32_t *room)
{
    if (*n == *room) {
        uint32_t more = *room ? 2 * *room : 64;
        char *to = arena_calloc(&rb->mem, more, size);

        if (!to)
            return NULL;
        if (*n > 0)
            memcpy(to, *v, *n * size);
        *v = to;
        *room = more;
    }
    return (char *)(uintptr_t)*v + (*n)++ * size; // NOLINT(performance-no-int-to-ptr)
}

uint64_t name_hash_ptype(struct str name, struct str unit, enum ptype_kind kind)
{
    return hash_seed(unit.p, unit.n, hash_mix(hash_str(name) + kind));
}

uint64_t name_hash_labels(uint32_t n, const struct store_label *v)
{
    uint64_t h = n;

    for (uint32_t i = 0; i < n; i++) {
        h = hash_seed(v[i].name.p, v[i].name.n, hash_mix(h));
        h = hash_seed(v[i].value.p, v[i].value.n, hash_mix(h));
    }
    return h;
}

uint64_t name_hash_series(ptype_id type, uint32_t svc, uint32_t labelset)
{
    const uint64_t field[3] = {type, svc, labelset};

    return hash_bytes(field, sizeof field);
}

static int short_memory(struct err *err)
{
    return err_set(err, -ENOMEM, "catalog.db: memory is short");
}

static int on_svc(void *ctx, uint32_t id, struct str name, struct err *err)
{
    struct rebuild *rb = ctx;
    struct catalog_svc *x;
    int r = meet(&rb->svc, id, hash_str(name), err);

    if (r <= 0)
        return r;
    x = grow(rb, (const void **)&rb->change.svc, &rb->change.n_svc, sizeof *x, &rb->room[0]);
    if (!x)
        return short_memory(err);
    *x = (struct catalog_svc){id, arena_str(&rb->mem, name)};
    return 0;
}

static int on_ptype(void *ctx, ptype_id id, struct str name, struct str unit, enum ptype_kind kind,
                    struct err *err)
{
    struct rebuild *rb = ctx;
    struct catalog_ptype *x;
    int r;

    if (id < PTYPE_IMPORTED_FIRST)
        return 0;
    r = meet(&rb->ptype, id, name_hash_ptype(name, unit, kind), err);
    if (r <= 0)
        return r;
    x = grow(rb, (const void **)&rb->change.ptype, &rb->change.n_ptype, sizeof *x, &rb->room[1]);
    if (!x)
        return short_memory(err);
    *x = (struct catalog_ptype){id, arena_str(&rb->mem, name), arena_str(&rb->mem, unit), kind};
    return 0;
}

static int on_labelset(void *ctx, uint32_t id, uint32_t n, const struct store_label *v,
                       struct err *err)
{
    struct rebuild *rb = ctx;
    struct catalog_labelset *x;
    struct store_label *own;
    int r = meet(&rb->labelset, id, name_hash_labels(n, v), err);

    if (r <= 0)
        return r;
    x = grow(rb, (const void **)&rb->change.labelset, &rb->change.n_labelset, sizeof *x,
             &rb->room[2]);
    own = arena_array(&rb->mem, struct store_label, n);
    if (!x || !own)
        return short_memory(err);
    for (uint32_t i = 0; i < n; i++)
        own[i] =
            (struct store_label){arena_str(&rb->mem, v[i].name), arena_str(&rb->mem, v[i].value)};
    *x = (struct catalog_labelset){.id = id, .n = n, .v = own};
    return 0;
}

static int on_series(void *ctx, uint32_t id, ptype_id type, uint32_t svc, uint32_t labelset,
                     struct err *err)
{
    struct rebuild *rb = ctx;
    struct catalog_series *x;
    int r = meet(&rb->series, id, name_hash_series(type, svc, labelset), err);

    if (r <= 0)
        return r;
    x = grow(rb, (const void **)&rb->change.series, &rb->change.n_series, sizeof *x, &rb->room[3]);
    if (!x)
        return short_memory(err);
    *x = (struct catalog_series){.id = id, .type = type, .svc = svc, .labelset = labelset};
    return 0;
}

static void begin_change(struct rebuild *rb)
{
    arena_reset(&rb->mem);
    rb->change = (struct catalog_change){};
    memset(rb->room, 0, sizeof rb->room);
}

static int add_names(struct rebuild *rb, const struct part_info *info, struct err *err)
{
    const struct part_names fn = {
        .ctx = rb, .svc = on_svc, .ptype = on_ptype, .labelset = on_labelset, .series = on_series};

    return part_read_names(rb->dir, info->name, rb->vfs, &fn, err);
}

static bool has(const struct ids *ids, uint32_t id)
{
    uint64_t v;

    return map_get(&ids->hash, id, &v);
}

static struct str numbered(char text[static 32], const char *fmt, uint32_t i)
{
    int n = snprintf(text, 32, "%s%" PRIu32 "]", fmt, i);

    return (struct str){text, n > 0 ? (size_t)n : 0};
}

static int lost_labels(struct rebuild *rb, uint32_t id, struct err *err)
{
    char text[32];
    const struct store_label l = {STR("__lost__"), numbered(text, "[", id)};

    return on_labelset(rb, id, 1, &l, err);
}

/* Series that nothing uses: each has a label set of its own, behind those in use. */
static int lost_series(struct rebuild *rb, uint32_t last, uint32_t svc, uint32_t labels,
                       struct err *err)
{
    bool any = false;

    for (uint32_t i = 1; i <= last; i++) {
        if (has(&rb->series, i))
            continue;
        TRY(lost_labels(rb, ++labels, err));
        TRY(on_series(rb, i, PTYPE_CPU, svc, labels, err));
        any = true;
    }
    return any ? on_svc(rb, svc, STR("[lost]"), err) : 0;
}

/* Names for ids that nothing uses any more: ids are dense, and none is given twice. */
static int fill_gaps(struct rebuild *rb, struct err *err)
{
    const uint32_t svc = rb->svc.max, ptype = rb->ptype.max, labels = rb->labelset.max;
    char text[32];

    begin_change(rb);
    for (uint32_t i = 1; i <= svc; i++)
        if (!has(&rb->svc, i))
            TRY(on_svc(rb, i, numbered(text, "[lost ", i), err));
    for (uint32_t i = PTYPE_IMPORTED_FIRST; i <= ptype; i++)
        if (!has(&rb->ptype, i))
            TRY(on_ptype(rb, i, numbered(text, "[lost ", i), STR(""), KIND_SUM, err));
    for (uint32_t i = 1; i <= labels; i++)
        if (!has(&rb->labelset, i))
            TRY(lost_labels(rb, i, err));
    TRY(lost_series(rb, rb->series.max, svc + 1, labels, err));
    return catalog_commit(rb->c, &rb->change, err);
}

/* ---- all of it ----------------------------------------------------------------------------- */

static int add_part(struct rebuild *rb, struct found *f, uint64_t id, struct catalog_state *state,
                    struct err *err)
{
    struct err why = {};
    int r;

    begin_change(rb);
    r = add_names(rb, &f->info, &why);
    if (r == -EBADMSG) {
        TRY(quarantine(rb->dir, f->info.name, rb->now, err));
        TRY(note_damage(rb, why.msg, err));
        return catalog_commit(rb->c, &rb->change, err); /* names that it had said rightly */
    }
    if (r < 0)
        return err_set(err, r, "%s", why.msg);
    f->info.id = id;
    if (f->info.sealed_lsn > state->sealed_lsn)
        state->sealed_lsn = f->info.sealed_lsn;
    state->next_part = id + 1;
    if (f->info.generation >= state->next_seal)
        state->next_seal = f->info.generation + 1;
    rb->change.n_part = 1;
    rb->change.part = &f->info;
    return catalog_commit(rb->c, &rb->change, err);
}

/* Every dictionary that is there, closed: the next seal begins a new epoch. */
static int add_epochs(struct rebuild *rb, struct err *err)
{
    char path[4096];
    const struct dirent *e;
    DIR *d;
    int r = 0;

    (void)snprintf(path, sizeof path, "%s/dict", rb->dir);
    d = opendir(path);
    if (!d)
        return errno == ENOENT ? 0 : err_set(err, -errno, "dict: %m");
    while (r == 0 && (e = readdir(d))) { // NOLINT(concurrency-mt-unsafe): a stream of our own
        struct str s = str_c(e->d_name);
        uint64_t id;

        if (str_ends(s, STR(".db")) && str_u64(str_to(s, s.n - 3), &id) && id > 0 &&
            id <= UINT32_MAX) {
            const struct catalog_epoch x = {.id = (uint32_t)id, .state = CATALOG_EPOCH_CLOSED};
            const struct catalog_change ch = {.n_epoch = 1, .epoch = &x};

            r = catalog_commit(rb->c, &ch, err);
        }
    }
    (void)closedir(d);
    return r;
}

static int rebuild_all(struct rebuild *rb, const struct file_list *files, struct err *err)
{
    struct catalog_state state = {.next_part = 1, .next_seal = 1};
    const struct catalog_change last = {.state = &state};
    uint64_t id = 1;

    TRY(find_parts(rb, files, err));
    for (uint32_t i = 0; i < rb->n; i++)
        if (!rb->v[i].drop)
            TRY(add_part(rb, &rb->v[i], id++, &state, err));
    TRY(fill_gaps(rb, err));
    TRY(add_epochs(rb, err));
    return catalog_commit(rb->c, &last, err);
}

int catalog_rebuild(struct catalog *c, const char *dir, const char *vfs, real_ns now,
                    const struct file_list *files, struct err *err)
{
    struct rebuild rb = {.c = c, .dir = dir, .vfs = vfs, .now = now};
    struct ids *ids[] = {&rb.svc, &rb.ptype, &rb.labelset, &rb.series};
    int r;

    for (size_t i = 0; i < 4; i++)
        map_init(&ids[i]->hash, 0);
    arena_init(&rb.mem, SIZE_MAX);
    r = rebuild_all(&rb, files, err);
    for (uint32_t i = 0; i < rb.n; i++)
        free(rb.v[i].input);
    free(rb.v);
    for (size_t i = 0; i < 4; i++)
        map_deinit(&ids[i]->hash);
    arena_deinit(&rb.mem);
    return r;
}
