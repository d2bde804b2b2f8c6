// SPDX-License-Identifier: Apache-2.0
#pragma once

/*
 * What the tests of a store's files share: a folder, whole files in memory, damage, a disk that is
 * full, and a sample of everything that a part can hold. Included by one test program each.
 */
#include <errno.h>
#include <fcntl.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/hash.h"
#include "storage/dict/local_private.h"
#include "storage/part/part_private.h"
#include "tests/lib/testing.h"
#include "tests/lib/tmpdir.h"

/* ---- files --------------------------------------------------------------------------------- */

[[maybe_unused]] static void folder_make(char dir[static 64])
{
    (void)snprintf(dir, 64, "%s/strata_file_XXXXXX", test_fast_dir());
    assert_non_null(mkdtemp(dir));
}

[[maybe_unused]] static void folder_sub(const char *dir, const char *name)
{
    char path[256];

    (void)snprintf(path, sizeof path, "%s/%s", dir, name);
    assert_true(mkdir(path, 0700) == 0 || errno == EEXIST);
}

struct bytes {
    char *p;
    size_t n;
};

[[maybe_unused]] static struct bytes file_get(const char *dir, const char *name)
{
    char path[512];
    struct stat st;
    struct bytes b;
    int fd;

    (void)snprintf(path, sizeof path, "%s/%s", dir, name);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(fstat(fd, &st), 0);
    b = (struct bytes){xmalloc((size_t)st.st_size + 1), (size_t)st.st_size};
    assert_int_equal(read(fd, b.p, b.n), b.n);
    (void)close(fd);
    return b;
}

[[maybe_unused]] static void file_put(const char *dir, const char *name, struct bytes b)
{
    char path[512];
    int fd;

    (void)snprintf(path, sizeof path, "%s/%s", dir, name);
    fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, b.p, b.n), b.n);
    (void)close(fd);
}

[[maybe_unused]] static bool file_there(const char *dir, const char *name)
{
    char path[512];

    (void)snprintf(path, sizeof path, "%s/%s", dir, name);
    return access(path, F_OK) == 0;
}

/* How many names are in a folder; 0 where there is none. */
[[maybe_unused]] static int folder_count(const char *dir, const char *sub)
{
    char cmd[512], line[32] = "0";
    FILE *f;

    (void)snprintf(cmd, sizeof cmd, "ls -A '%s/%s' 2>/dev/null | wc -l", dir, sub);
    f = popen(cmd, "re");
    assert_non_null(f);
    assert_non_null(fgets(line, sizeof line, f));
    (void)pclose(f);
    return atoi(line); // NOLINT: of our own making
}

/* One statement on a file, as somebody else's program could run it. */
[[maybe_unused]] static void file_sql(const char *dir, const char *name, const char *sql)
{
    char path[512], *why = NULL;
    sqlite3 *sq = NULL;

    (void)snprintf(path, sizeof path, "%s/%s", dir, name);
    assert_int_equal(sqlite3_open(path, &sq), SQLITE_OK);
    if (sqlite3_exec(sq, sql, NULL, NULL, &why) != SQLITE_OK)
        fail_msg("%s: %s", sql, why);
    (void)sqlite3_close(sq);
}

/* Every how many bytes a file is damaged: all of them with STRATA_ROUNDS. */
[[maybe_unused]] static size_t flip_step(size_t n, size_t rounds)
{
    // NOLINTNEXTLINE(concurrency-mt-unsafe)
    return getenv("STRATA_ROUNDS") || n <= rounds ? 1 : n / rounds | 1;
}

/* ---- a disk that is full after so many writes ----------------------------------------------- */

static sqlite3_vfs *full_real, full_vfs;
static int full_left; /* writes that still go; below 0: all */

struct full_file {
    sqlite3_file base;
    sqlite3_io_methods methods;
    sqlite3_file *real;
};

static int full_close(sqlite3_file *f)
{
    struct full_file *x = (struct full_file *)f;
    int r = x->real->pMethods->xClose(x->real);

    free(x->real);
    return r;
}

static int full_write(sqlite3_file *f, const void *p, int n, sqlite3_int64 at)
{
    struct full_file *x = (struct full_file *)f;

    if (full_left == 0)
        return SQLITE_FULL;
    full_left -= full_left > 0;
    return x->real->pMethods->xWrite(x->real, p, n, at);
}

#define FULL_FORWARD(name, args, call)                                                             \
    static int full_##name args                                                                    \
    {                                                                                              \
        struct full_file *x = (struct full_file *)f;                                               \
        return x->real->pMethods->name call;                                                       \
    }
FULL_FORWARD(xRead, (sqlite3_file * f, void *p, int n, sqlite3_int64 at), (x->real, p, n, at))
FULL_FORWARD(xTruncate, (sqlite3_file * f, sqlite3_int64 n), (x->real, n))
FULL_FORWARD(xSync, (sqlite3_file * f, int flags), (x->real, flags))
FULL_FORWARD(xFileSize, (sqlite3_file * f, sqlite3_int64 *n), (x->real, n))
FULL_FORWARD(xLock, (sqlite3_file * f, int l), (x->real, l))
FULL_FORWARD(xUnlock, (sqlite3_file * f, int l), (x->real, l))
FULL_FORWARD(xCheckReservedLock, (sqlite3_file * f, int *r), (x->real, r))
FULL_FORWARD(xFileControl, (sqlite3_file * f, int op, void *p), (x->real, op, p))
FULL_FORWARD(xSectorSize, (sqlite3_file * f), (x->real))
FULL_FORWARD(xDeviceCharacteristics, (sqlite3_file * f), (x->real))

static int full_open(sqlite3_vfs *v, const char *name, sqlite3_file *f, int flags, int *out)
{
    static const sqlite3_io_methods methods = {
        .iVersion = 1,
        .xClose = full_close,
        .xRead = full_xRead,
        .xWrite = full_write,
        .xTruncate = full_xTruncate,
        .xSync = full_xSync,
        .xFileSize = full_xFileSize,
        .xLock = full_xLock,
        .xUnlock = full_xUnlock,
        .xCheckReservedLock = full_xCheckReservedLock,
        .xFileControl = full_xFileControl,
        .xSectorSize = full_xSectorSize,
        .xDeviceCharacteristics = full_xDeviceCharacteristics,
    };
    struct full_file *x = (struct full_file *)f;
    int r;

    (void)v;
    x->real = xcalloc(1, (size_t)full_real->szOsFile);
    r = full_real->xOpen(full_real, name, x->real, flags, out);
    x->base.pMethods = r == SQLITE_OK ? &methods : NULL;
    if (r != SQLITE_OK)
        free(x->real);
    return r;
}

/* Name of the VFS. */
[[maybe_unused]] static const char *full_register(void)
{
    if (!full_real) {
        full_real = sqlite3_vfs_find(NULL);
        full_vfs = *full_real;
        full_vfs.pNext = NULL;
        full_vfs.zName = "full";
        full_vfs.szOsFile = sizeof(struct full_file);
        full_vfs.xOpen = full_open;
        assert_int_equal(sqlite3_vfs_register(&full_vfs, 0), SQLITE_OK);
    }
    full_left = -1;
    return "full";
}

/* Every field of it, as a number: padding is nobody's. */
[[maybe_unused]] static uint64_t info_hash(const struct part_info *x)
{
    const uint64_t field[] = {x->id,
                              x->tier,
                              x->state,
                              x->dirty,
                              x->epoch,
                              x->generation,
                              (uint64_t)x->period.t0.v,
                              (uint64_t)x->period.t1.v,
                              (uint64_t)x->data.t0.v,
                              (uint64_t)x->data.t1.v,
                              x->rows,
                              x->blocks,
                              x->bytes,
                              x->sealed_lsn};
    uint64_t h = hash_seed(x->name, strlen(x->name), hash_bytes(field, sizeof field));

    return hash_seed(x->hash, 16, hash_seed(x->uuid, 16, h));
}

/* ---- a sample ------------------------------------------------------------------------------ */

#define HOUR   (3600 * NS_PER_S)
#define T0     (INT64_C(1764417600) * NS_PER_S) /* 2025-11-29 12:00 UTC */
#define PERIOD ((struct interval){{T0}, {T0 + HOUR}})
#define MS0    (T0 / NS_PER_MS)
#define WHOLE  ((struct interval){{INT64_MIN}, {INT64_MAX}})

/* Catalog ids: services api 1, web 2; imported type; label sets; series. */
struct sample_names {
    struct names n;
    ptype_id custom;
    uint32_t labels[4], series[4]; /* [1..]; series 1, 2: cpu of api, web; 3: custom of api */
};

static uint32_t label_set_of(struct names *n, const char *svc, const char *name, const char *value)
{
    uint32_t pair[4] = {text_id(&n->text, STR("service")), text_id(&n->text, str_c(svc)),
                        text_id(&n->text, str_c(name)), text_id(&n->text, str_c(value))};

    return names_label_set(n, 2, pair);
}

[[maybe_unused]] static void sample_names_init(struct sample_names *s)
{
    static const struct batch_limits limits = {.series = 100, .series_per_service = 100};

    assert_true(names_init(&s->n, 7));
    s->custom = names_type(&s->n, STR("custom"), STR("widgets"), KIND_SUM);
    s->labels[1] = label_set_of(&s->n, "api", "job", "a");
    s->labels[2] = label_set_of(&s->n, "web", "job", "");
    s->labels[3] = label_set_of(&s->n, "web", "bytes\xff", "\x01 odd");
    s->series[1] = names_series_of(&s->n, PTYPE_CPU, s->labels[1], &limits);
    s->series[2] = names_series_of(&s->n, PTYPE_CPU, s->labels[2], &limits);
    s->series[3] = names_series_of(&s->n, s->custom, s->labels[1], &limits);
    assert_true(s->custom == PTYPE_IMPORTED_FIRST && s->series[3] == 3);
}

struct sample_local {
    struct pool pool;
    struct local l;
};

[[maybe_unused]] static void sample_local_deinit(struct sample_local *s)
{
    local_deinit(&s->l);
    pool_deinit(&s->pool);
}

static uint32_t sample_text(struct sample_local *s, const char *text)
{
    return text_id(&s->l.text, str_c(text));
}

/* Coverage: ten stretches of a minute of cpu, the seventh with a loss; one level. */
static void sample_covers(struct sample_local *s, const struct sample_names *nm, uint32_t target)
{
    uint32_t sc = local_scope_of(&s->l, PTYPE_CPU, nm->labels[1], target);
    uint32_t level = local_scope_of(&s->l, PTYPE_LIVE, nm->labels[2], 0);

    /* of neighbours that become one record the least is kept; 0 is unknown */
    static const int64_t skew[10] = {0, 9000, 8000, 7000, 6000, 5000, -6000, 9000, 10000, 11000};

    for (int64_t i = 0; i < 10; i++) {
        struct local_cover c = {.scope = sc,
                                .t = {{T0 + i * 60 * NS_PER_S}, {T0 + (i + 1) * 60 * NS_PER_S}},
                                .width = 8,
                                .state = SOURCE_OK,
                                .basis = BASIS_PERIODIC,
                                .period = 10 * NS_PER_MS,
                                .jitter = i - 3,
                                .skew_ns = skew[i],
                                .ended = i == 9,
                                .expected = 600,
                                .received = i == 6 ? 590 : 600};
        struct local_loss loss = {.why = sample_text(s, "ring_full"), .n = 10, .weight = -1};

        if (i == 6) {
            c.loss = s->l.loss.n;
            c.n_loss = 1;
            assert_true(local_add_loss(&s->l, &loss));
        }
        assert_true(local_add_cover(&s->l, &c));
    }
    for (int64_t i = 0; i < 3; i++) {
        struct local_cover c = {.scope = level,
                                .t = {{T0 + i * 1234567}, {T0 + (i + 1) * 1234567}},
                                .at = {T0 + i * 1234567 + 5},
                                .width = 1,
                                .why = sample_text(s, "because"),
                                .state = SOURCE_PAUSED,
                                .basis = BASIS_RAW,
                                .series = i == 1 ? nm->series[2] : 0,
                                .expected = BATCH_UNKNOWN,
                                .received = BATCH_UNKNOWN};

        assert_true(local_add_cover(&s->l, &c));
    }
}

static void sample_metrics(struct sample_local *s, const struct sample_names *nm, uint32_t target)
{
    struct local *l = &s->l;
    struct local_mseries key = {.name = sample_text(s, "gpu_power"),
                                .unit = sample_text(s, "watts"),
                                .labels = nm->labels[3],
                                .target = target,
                                .kind = METRIC_GAUGE};
    uint32_t power = local_mseries_of(l, &key), reads;

    key.name = sample_text(s, "reads");
    key.is_int = true;
    key.kind = METRIC_COUNTER;
    reads = local_mseries_of(l, &key);
    for (int k = 0; k < 2; k++) {
        const real_ns t[3] = {{T0 + k * 5000}, {T0 + k * 5000 + 7}, {T0 + k * 5000 + 1000}};
        const double num[3] = {1.5 + k, -0.0, 1e300};
        const int64_t inum[3] = {INT64_MIN, 17, INT64_MAX - k};
        const uint8_t status[3] = {METRIC_OK, METRIC_DENIED, METRIC_OK};
        struct local_metric m = {.series = power,
                                 .n = 3,
                                 .t = local_keep(l, t, sizeof t),
                                 .num = local_keep(l, num, sizeof num)};

        assert_true(local_add_metric(l, &m));
        m.series = reads;
        m.num = NULL;
        m.inum = local_keep(l, inum, sizeof inum);
        m.status = local_keep(l, status, sizeof status);
        assert_true(local_add_metric(l, &m));
    }
}

static void sample_steps(struct sample_local *s, const struct sample_names *nm, uint32_t target)
{
    const uint32_t part[2] = {sample_text(s, "compute"), sample_text(s, "idle_host")};
    const int64_t part_ns[2] = {70 * NS_PER_MS, -1};

    for (int64_t i = 0; i < 5; i++) {
        const struct local_step st = {
            .target = target,
            .name = sample_text(s, i % 2 ? "train" : "eval"),
            .tid = (uint32_t)i,
            .labels = i == 3 ? nm->labels[1] : 0,
            .inferred = i == 4,
            .number = (uint64_t)(100 + i),
            .t = {{T0 + i * 100 * NS_PER_MS}, {T0 + (i + 1) * 100 * NS_PER_MS}},
            .n_part = i < 4 ? 2 : 0,
            .part = i < 4 ? local_keep(&s->l, part, sizeof part) : NULL,
            .part_ns = i < 4 ? local_keep(&s->l, part_ns, sizeof part_ns) : NULL};

        assert_true(local_add_step(&s->l, &st));
    }
}

[[maybe_unused]] static void sample_local_init(struct sample_local *s,
                                               const struct sample_names *nm)
{
    struct target_key key = {.host = {1, 2}, .pidns = 4026531836, .pid = 77, .start = {T0 - 5}};
    uint32_t target, other;
    struct local_info info;

    *s = (struct sample_local){};
    pool_init(&s->pool);
    assert_true(local_init(&s->l, &s->pool, 3));
    (void)sample_text(s, "of no use");
    target = local_target_of(&s->l, &key);
    key.pid = 78;
    other = local_target_of(&s->l, &key);
    info = (struct local_info){.exe = sample_text(s, "/usr/bin/old"), .env = nm->labels[3]};
    assert_true(local_add_info(&s->l, target, &info));
    info.exe = sample_text(s, "/usr/bin/python3");
    info.comm = sample_text(s, "python3");
    info.flags = TARGET_EXEC;
    assert_true(local_add_info(&s->l, target, &info));
    assert_int_equal(local_thread_of(&s->l, target, 77, sample_text(s, "main")), 1);
    assert_int_equal(local_thread_of(&s->l, other, 0, 0), 2);
    sample_covers(s, nm, target);
    sample_metrics(s, nm, target);
    sample_steps(s, nm, other);
    assert_true(local_add_event(&s->l, &(struct local_event){.t = {T0 + 9},
                                                             .kind = sample_text(s, "oom"),
                                                             .text = sample_text(s, "killed 5"),
                                                             .target = other}));
}

/* Rows of one block: n of them from ms on, of one series, on both threads. Freed as one. */
struct sample_rows {
    struct block_rows r;
    void *mem;
};

[[maybe_unused]] static struct sample_rows sample_rows(uint32_t n, int64_t ms, uint32_t series,
                                                       const uint32_t thread[2], bool values)
{
    struct sample_rows s = {.mem = xcalloc(n, 8 + 8 + 3 * 4)};
    char *p = s.mem;

    s.r = (struct block_rows){.n = n, .period = 10 * NS_PER_MS};
    s.r.ms = (int64_t *)(void *)p;
    s.r.value = values ? (int64_t *)(void *)(p + 8 * (size_t)n) : NULL;
    s.r.series = (uint32_t *)(void *)(p + 16 * (size_t)n);
    s.r.thread = s.r.series + n;
    s.r.node = s.r.thread + n;
    for (uint32_t i = 0; i < n; i++) {
        s.r.ms[i] = ms + 10 * (int64_t)i;
        s.r.series[i] = series;
        s.r.thread[i] = thread[i % 2];
        s.r.node[i] = 1 + i * i % 11;
        if (values)
            s.r.value[i] = 1000 + i;
    }
    return s;
}

/* Four blocks, two of them of one group, and all that stands beside. */
static int sample_put_rows(struct part_writer *w, uint32_t n, int64_t ms, uint32_t series,
                           ptype_id type, uint32_t svc, bool values, struct err *err)
{
    const uint32_t thread[2] = {part_thread(w, 1), part_thread(w, 2)};
    struct sample_rows s = sample_rows(n, ms, series, thread, values);
    int r = part_put_block(w, &s.r, type, svc, 0, err);

    free(s.mem);
    return r;
}

[[maybe_unused]] static int sample_put(struct part_writer *w, const struct sample_names *nm,
                                       const struct sample_local *sl, struct err *err)
{
    struct local_snap snap = local_snap(&sl->l);

    TRY(part_source(w, &sl->l, &snap, err));
    TRY(sample_put_rows(w, 300, MS0, nm->series[1], PTYPE_CPU, 1, false, err));
    TRY(sample_put_rows(w, 200, MS0 + 3000, nm->series[1], PTYPE_CPU, 1, true, err));
    TRY(sample_put_rows(w, 40, MS0 + 10, nm->series[2], PTYPE_CPU, 2, true, err));
    TRY(sample_put_rows(w, 7, MS0, nm->series[3], nm->custom, 1, true, err));
    return part_put_local(w, WHOLE, err);
}
