// SPDX-License-Identifier: Apache-2.0
#include "server/app.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/log.h"
#include "base/thread.h"
#include "server/api.h"
#include "server/backup.h"
#include "server/http.h"
#include "server/ingest.h"
#include "server/listen.h"
#include "server/memory.h"
#include "server/metrics.h"
#include "server/msg.h"
#include "server/pool.h"
#include "server/static.h"
#include "server/work.h"
#include "storage/store.h"

enum {
    RELOADS_MAX = 1000, /* of the token file, in one life */
    EVENT_THREADS_MIN = 2,
    EVENT_THREADS_MAX = 4,
    CONNECTIONS_MAX = 4096,
    STORE_FILES = 192, /* descriptors that storage may hold, and one in eight for sealed parts */
};

struct app {
    struct app_conf conf;
    struct memory_plan plan;
    struct listen_at at;
    struct auth *auth[RELOADS_MAX]; /* the last one is in force; a request may still hold others */
    uint32_t n_auth;
    struct static_files *ui;
    struct pool pool;
    struct work *work;
    struct ingest *ingest;
    struct http *http;
    pthread_t opener;
    bool opener_runs;
    int open_result;
    struct err open_err;
    char *dir;
    struct store *_Atomic store;
    struct api *_Atomic api;
    struct backup backup;
};

static const struct auth *auth_of(const struct app *a)
{
    return a->auth[a->n_auth - 1];
}

/* ---- handlers ------------------------------------------------------------------------------ */

static void on_api(void *ctx, const struct msg_request *q, struct msg_reply *r)
{
    struct app *a = ctx;

    api_handle(atomic_load(&a->api), q, r);
}

static void on_backup(void *ctx, const struct msg_request *q, struct msg_reply *r)
{
    struct app *a = ctx;

    backup_handle(&a->backup, atomic_load(&a->store), q, r);
}

static void on_static(void *ctx, const struct msg_request *q, struct msg_reply *r)
{
    struct app *a = ctx;

    static_handle(a->ui, q, r);
}

static bool on_batch_admit(void *ctx, const struct msg_request *q, struct msg_reply *r)
{
    struct app *a = ctx;

    return ingest_admit(a->ingest, q, r);
}

static void on_batch(void *ctx, const struct msg_request *q, struct msg_reply *r,
                     http_done_fn *done, void *done_ctx)
{
    struct app *a = ctx;

    ingest_batch(a->ingest, q, r, done, done_ctx);
}

static void on_batch_fail(void *ctx, struct msg_reply *r, const struct msg_request *q,
                          const struct msg_error *e)
{
    struct app *a = ctx;

    ingest_fail(a->ingest, q, r, e);
}

static bool on_steps_admit(void *ctx, const struct msg_request *q, struct msg_reply *r)
{
    struct app *a = ctx;

    return ingest_steps_admit(a->ingest, q, r);
}

static void on_steps(void *ctx, const struct msg_request *q, struct msg_reply *r,
                     http_done_fn *done, void *done_ctx)
{
    struct app *a = ctx;

    ingest_steps(a->ingest, q, r, done, done_ctx);
}

static void on_steps_fail(void *ctx, struct msg_reply *r, const struct msg_request *q,
                          const struct msg_error *e)
{
    struct app *a = ctx;

    ingest_steps_fail(a->ingest, q, r, e);
}

static void plain(struct msg_reply *r, const char *text)
{
    *r = (struct msg_reply){.status = 200, .content_type = "text/plain", .fixed = str_c(text)};
}

static void on_healthz(void *ctx, const struct msg_request *q, struct msg_reply *r)
{
    (void)ctx, (void)q;
    plain(r, "ok\n");
}

/* Ready: the journal was read, and it can be written. */
static void on_readyz(void *ctx, const struct msg_request *q, struct msg_reply *r)
{
    struct app *a = ctx;
    struct store *s = atomic_load(&a->store);
    struct msg_error e = {.status = 503, .retry_after_s = 1};
    struct store_stats stats;

    if (!s || !http_is_ready(a->http)) {
        e.code = "starting";
        e.message = "the server is reading its journal";
        msg_fail(r, q, &e);
        return;
    }
    store_stats(s, &stats);
    if (stats.state == STORE_FULL || stats.state == STORE_READ_ONLY) {
        e.code = stats.state == STORE_FULL ? "disk_full" : "read_only";
        e.message = stats.state_why.n ? stats.state_why.p : e.code;
        msg_fail(r, q, &e);
        return;
    }
    plain(r, "ready\n");
}

static http_handle_fn on_metrics;

static const struct http_route routes[] = {
    {.path = "/api/v1/batch",
     .allow = "POST",
     .role = AUTH_INGEST,
     .body = HTTP_INGEST,
     .run = HTTP_ASYNC,
     .needs_store = true,
     .start = on_batch,
     .admit = on_batch_admit,
     .fail = on_batch_fail},
    {.path = "/api/v1/steps",
     .allow = "POST",
     .role = AUTH_INGEST,
     .body = HTTP_INGEST,
     .run = HTTP_ASYNC,
     .shares_path = true,
     .needs_store = true,
     .start = on_steps,
     .admit = on_steps_admit,
     .fail = on_steps_fail},
    {.path = "/api/v1/backup",
     .param = "name",
     .allow = "POST",
     .role = AUTH_ADMIN,
     .body = HTTP_FORM,
     .run = HTTP_WORKER,
     .needs_store = true,
     .handle = on_backup},
    {.path = "/api/v1/*",
     .allow = "GET, HEAD, POST",
     .role = AUTH_READ,
     .body = HTTP_FORM,
     .run = HTTP_WORKER,
     .needs_store = true,
     .handle = on_api},
    {.path = "/metrics", .allow = "GET, HEAD", .role = AUTH_READ, .handle = on_metrics},
    {.path = "/healthz", .allow = "GET, HEAD", .spare = true, .handle = on_healthz},
    {.path = "/readyz", .allow = "GET, HEAD", .spare = true, .handle = on_readyz},
    {.path = "/*", .allow = "GET, HEAD", .page = true, .handle = on_static},
};

enum {
    N_ROUTE = sizeof routes / sizeof routes[0]
};

static void on_metrics(void *ctx, const struct msg_request *q, struct msg_reply *r)
{
    struct app *a = ctx;
    const struct metrics m = {.http = a->http,
                              .route = routes,
                              .n_route = N_ROUTE,
                              .ingest = a->ingest,
                              .ingest_pool = &a->pool,
                              .work = a->work,
                              .store = atomic_load(&a->store),
                              .version = STRATA_VERSION,
                              .ui_hash = static_hash(a->ui)};

    (void)q;
    metrics_handle(&m, r);
}

void app_dump_routes(struct buf *out)
{
    for (uint32_t i = 0; i < N_ROUTE; i++)
        if (routes[i].handle != on_api)
            buf_printf(out, "%s %s%s%s\n", routes[i].allow, routes[i].path,
                       routes[i].param ? " " : "", routes[i].param ? routes[i].param : "");
    api_dump_routes(out);
}

/* ---- start --------------------------------------------------------------------------------- */

static uint32_t cores(void)
{
    cpu_set_t set;

    if (sched_getaffinity(0, sizeof set, &set) < 0)
        return 1;
    return (uint32_t)CPU_COUNT(&set);
}

static uint32_t clamp_u32(uint32_t v, uint32_t lo, uint32_t hi)
{
    return v < lo ? lo : v > hi ? hi : v;
}

static void wire_limits_of(const struct srv_conf *c, struct wire_limits *l)
{
    wire_limits_default(l);
    l->body = c->body;
    l->inflated = c->inflated;
    l->arena = c->arena;
    l->nesting = (uint32_t)c->nesting;
    l->unknown_fields = (uint32_t)c->unknown_fields;
    l->members = (uint32_t)c->members;
    l->batch = (struct batch_limits){.age_ns = c->age_ns,
                                     .future_ns = c->future_ns,
                                     .samples = (uint32_t)c->samples,
                                     .streams = (uint32_t)c->streams,
                                     .entries = (uint32_t)c->entries,
                                     .depth = (uint32_t)c->depth,
                                     .name_bytes = (uint32_t)c->name,
                                     .labels = (uint32_t)c->labels,
                                     .label_name_bytes = (uint32_t)c->label_name,
                                     .label_value_bytes = (uint32_t)c->label_value,
                                     .attributes = (uint32_t)c->attributes,
                                     .series_per_service = (uint32_t)c->series_per_service,
                                     .series = (uint32_t)c->series};
}

/*
 * The data directory must be ours alone, since what is in it is believed: a directory of our user
 * that nobody else can write. Links in its path are followed once, here.
 */
static int dir_prepare(const char *path, char **ret, struct err *err)
{
    struct stat st;
    char *real;

    if (mkdir(path, 0700) < 0 && errno != EEXIST)
        return err_set(err, -errno, "cannot create the data directory %s: %s", path,
                       strerrordesc_np(errno));
    real = realpath(path, NULL);
    if (!real)
        return err_set(err, -errno, "data directory %s: %s", path, strerrordesc_np(errno));
    if (stat(real, &st) < 0 || !S_ISDIR(st.st_mode)) {
        free(real);
        return err_set(err, -ENOTDIR, "data directory %s is not a directory", path);
    }
    if (st.st_uid != geteuid() || st.st_mode & 022) {
        free(real);
        return err_set(err, -EPERM,
                       "data directory %s has owner %u, mode %04o: it must be owned by uid %u and "
                       "not be writable by others (chmod 0700)",
                       path, (unsigned)st.st_uid, (unsigned)st.st_mode & 07777,
                       (unsigned)geteuid());
    }
    if (access(real, R_OK | W_OK | X_OK) < 0) {
        free(real);
        return err_set(err, -errno, "data directory %s is not writable: %s", path,
                       strerrordesc_np(errno));
    }
    *ret = real;
    return 0;
}

static uint64_t connections_max(const struct srv_conf *c, const struct memory_plan *plan)
{
    struct rlimit files = {};
    uint64_t n = CONNECTIONS_MAX, by_memory = plan->total / 32 / c->header, by_files = 64;

    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &files);
        if (files.rlim_cur / 2 > STORE_FILES)
            by_files = files.rlim_cur - files.rlim_cur / 8 - STORE_FILES;
    }
    if (c->connections)
        n = c->connections;
    else if (by_memory < n)
        n = by_memory;
    return n < by_files ? n : by_files;
}

static int ui_load(struct app *a, struct err *err)
{
    const char *base = a->conf.conf->base_path;

    if (a->conf.ui_dev) {
        if (!a->at.loopback)
            return err_set(err, -EPERM, "--ui-dev is for a loopback address only");
        return static_load_dev(a->conf.ui_dev, base, &a->ui, err);
    }
    if (a->conf.ui)
        return static_load(a->conf.ui, base, &a->ui, err);
    a->ui = static_none();
    log_event(LOG_WARN, "no_ui", LOG_C("why", "no packed user interface was given (--ui DIR)"));
    return 0;
}

static int serve(struct app *a, struct err *err)
{
    const struct srv_conf *c = a->conf.conf;
    const struct http_conf h = {
        .listen_fd = a->at.fd,
        .threads = clamp_u32(cores(), EVENT_THREADS_MIN, EVENT_THREADS_MAX),
        .route = routes,
        .n_route = N_ROUTE,
        .ctx = a,
        .auth = auth_of(a),
        .ingest = &a->pool,
        .work = a->work,
        .base_path = c->base_path,
        .base_only = c->base_only,
        .hosts = c->hosts,
        .ui_hash = static_hash(a->ui),
        .header_max = c->header,
        .uri_max = c->uri,
        .body_max = c->body,
        .form_max = c->form,
        .connections = connections_max(c, &a->plan),
        .per_address = auth_required(auth_of(a)) ? 0 : c->connections_per_address,
        .idle_ns = c->idle_ns,
        .request_time_ns = c->request_time_ns,
        .deadline_ns = c->query_timeout_max_ns,
        .min_rate = c->min_rate,
    };

    return http_start(&h, &a->http, err);
}

static void log_opened(struct store *s)
{
    struct store_stats st;

    store_stats(s, &st);
    log_event(LOG_INFO, "store_opened", LOG_I("ms", st.start.ns / NS_PER_MS),
              LOG_I("journal_ms", st.start.journal_ns / NS_PER_MS),
              LOG_U("batches", st.start.batches), LOG_U("journal_bytes", st.start.bytes),
              LOG_U("nodes", st.start.nodes), LOG_U("parts", st.parts));
}

static void *opener_main(void *arg)
{
    struct app *a = arg;
    const struct srv_conf *c = a->conf.conf;
    const uint64_t one = 1;
    struct wire_limits wire;
    struct store *s = NULL;
    struct store_conf conf = {.dir = a->dir,
                              .decode = ingest_replay,
                              .decode_ctx = a->ingest,
                              .keep_raw_ns = c->age_ns,
                              .min_free = c->min_free ? c->min_free : 1, /* 0: its default */
                              .max_unsealed = c->max_unsealed,
                              .reserve = c->reserve ? c->reserve : 1, /* 0: its default */
                              .seal_ns = c->seal_after_ns,
                              .mem_head = a->plan.head,
                              .mem_dict = a->plan.dict,
                              .mem_cache = a->plan.cache,
                              .mem_query = a->plan.query,
                              .warm = true};
    ssize_t n;

    wire_limits_of(c, &wire);
    conf.limits = wire.batch;
    a->open_result = store_open(&conf, &s, &a->open_err);
    if (a->open_result >= 0) {
        const struct api_conf api = {.store = s,
                                     .version = STRATA_VERSION,
                                     .ui_hash = static_hash(a->ui),
                                     .age_ns = c->age_ns,
                                     .timeout_ns = c->query_timeout_ns,
                                     .timeout_max_ns = c->query_timeout_max_ns,
                                     .mem_max = c->query_memory < a->plan.query ? c->query_memory
                                                                                : a->plan.query,
                                     .answer_max = c->answer,
                                     .max_range_ns = c->max_range_ns,
                                     .max_points = (uint32_t)c->max_points,
                                     .max_nodes = (uint32_t)c->max_nodes,
                                     .keep_raw_ns = c->age_ns};

        atomic_store(&a->api, api_new(&api));
        atomic_store(&a->store, s);
        ingest_set_store(a->ingest, s);
        log_opened(s);
        http_ready(a->http);
    }
    do
        n = write(a->conf.opened_fd, &one, sizeof one);
    while (n < 0 && errno == EINTR);
    return NULL;
}

static int start(struct app *a, struct err *err)
{
    const struct srv_conf *c = a->conf.conf;
    struct ingest_conf ic = {.rate = c->rate,
                             .burst = c->burst,
                             .pool = &a->pool,
                             .decoders = clamp_u32(cores(), EVENT_THREADS_MIN, EVENT_THREADS_MAX)};
    uint32_t running = c->running ? (uint32_t)c->running : 2 * cores();
    int r;

    TRY(memory_plan_make(c->memory, &a->plan, err));
    TRY(auth_load(c->tokens, &a->auth[0], err));
    a->n_auth = 1;
    if (auth_required(auth_of(a)))
        (void)prctl(PR_SET_DUMPABLE, 0, 0, 0, 0); /* requests carry tokens */
    TRY(dir_prepare(c->dir, &a->dir, err));
    TRY(listen_open(c->listen, !auth_required(auth_of(a)), &a->at, err));
    TRY(ui_load(a, err));
    a->pool.max = c->ingest_memory ? c->ingest_memory : a->plan.ingest;
    TRY(work_start(running, (uint32_t)c->waiting, &a->work, err));
    wire_limits_of(c, &ic.limits);
    a->ingest = ingest_new(&ic);
    TRY(serve(a, err));
    log_event(LOG_INFO, "listening", LOG_C("address", a->at.text), LOG_U("memory", a->plan.total),
              LOG_U("ingest_memory", a->pool.max), LOG_U("query_workers", running));
    r = thread_start(&a->opener, "opener", 0, opener_main, a);
    if (r < 0)
        return err_set(err, r, "cannot start a thread");
    a->opener_runs = true;
    return 0;
}

int app_start(const struct app_conf *conf, struct app **ret, struct err *err)
{
    struct app *a = xcalloc(1, sizeof *a);
    int r;

    a->conf = *conf;
    a->backup.dir = conf->conf->backup_dir;
    a->at.fd = -1;
    r = start(a, err);
    if (r < 0)
        (void)app_stop(a, 0);
    else
        *ret = a;
    return r;
}

int app_opened(struct app *a, struct err *err)
{
    (void)pthread_join(a->opener, NULL);
    a->opener_runs = false;
    if (a->open_result < 0) {
        switch (a->open_result) {
        case -EBUSY:
            return err_set(err, a->open_result,
                           "data directory %.64s is in use by another stratad: stop that one, or "
                           "choose another with --data",
                           a->dir);
        case -EPROTO:
            return err_set(err, a->open_result,
                           "data directory %s: %s. Nothing was touched: start the version that "
                           "wrote it, or choose another with --data",
                           a->dir, a->open_err.msg);
        default:
            return err_set(err, a->open_result, "data directory %s: %s", a->dir, a->open_err.msg);
        }
    }
    if (a->open_result == STORE_PARTIAL)
        log_event(LOG_WARN, "store_damaged", LOG_C("dir", a->dir),
                  LOG_C("what", a->open_err.msg[0] ? a->open_err.msg : "see strata_store_total"));
    return 0;
}

const char *app_address(const struct app *a)
{
    return a->at.text;
}

int app_reload(struct app *a, struct err *err)
{
    if (!auth_required(auth_of(a)))
        return 0; /* none to read again; a loopback server does not become another one */
    if (a->n_auth == RELOADS_MAX)
        return err_set(err, -E2BIG, "the token file was read %d times: restart", RELOADS_MAX);
    TRY(auth_load(a->conf.conf->tokens, &a->auth[a->n_auth], err));
    a->n_auth++;
    http_set_auth(a->http, auth_of(a));
    return 0;
}

bool app_stop(struct app *a, int64_t wait_ns)
{
    if (!a)
        return true;
    if (a->opener_runs)
        return false; /* reading a journal cannot be interrupted, and need not be waited for */
    if (a->http)
        a->at.fd = -1; /* http's from here */
    if (http_stop(a->http, wait_ns))
        return false;
    if (a->at.fd >= 0)
        (void)close(a->at.fd);
    work_stop(a->work);
    api_free(atomic_load(&a->api));
    store_close(atomic_load(&a->store));
    ingest_free(a->ingest);
    static_free(a->ui);
    for (uint32_t i = 0; i < a->n_auth; i++)
        auth_free(a->auth[i]);
    free(a->dir);
    free(a);
    return true;
}
