// SPDX-License-Identifier: Apache-2.0
#include <argp.h>
#include <curl/curl.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/text.h"

enum {
    TOKEN_MAX = 1024,
    CONNECT_S = 5,
    ANSWER_S = 150, /* longer than the longest query */
    WORK_S = 3600,  /* of what the server does for as long as it takes */
    ERROR_MAX = 64 << 10,
};

/* ---- options ------------------------------------------------------------------------------- */

enum {
    OPT_SERVER = 512,
    OPT_TOKEN_FILE,
    OPT_FROM,
    OPT_TO,
    OPT_JSON,
    OPT_STEP,
    OPT_NAMES,
};

#define SERVER_OPTIONS                                                                             \
    {"json", OPT_JSON, NULL, 0, "print the server's answer as it is", 0},                          \
        {"server", OPT_SERVER, "URL", 0, "default: STRATA_SERVER or http://127.0.0.1:4040", 0},    \
    {                                                                                              \
        "token-file", OPT_TOKEN_FILE, "FILE", 0,                                                   \
            "file with the token, mode 0600; default: STRATA_TOKEN_FILE", 0                        \
    }

static const struct argp_option options[] = {
    {"query", 'q', "SELECTOR", 0, "what to read: TYPE{label=\"value\", ...}; default cpu", 0},
    {"from", OPT_FROM, "TIME", 0, "begin: RFC 3339, now-15m, or 1764417600s; default now-1h", 0},
    {"to", OPT_TO, "TIME", 0, "end, likewise; default now", 0},
    {"step", OPT_STEP, "NAME[:FIRST-LAST]", 0, "only what happened inside these steps", 0},
    {"filter", 'f', "VERB:PATTERN", 0,
     "keep, drop, start, merge or collapse; [fn=|bin=|file=|kind=]TEXT or /REGEX/; repeatable, in "
     "this order",
     0},
    {"names", OPT_NAMES, "full|short", 0, "short hides template arguments; default full", 0},
    SERVER_OPTIONS,
    {},
};
static const struct argp_option server_options[] = {SERVER_OPTIONS, {}};

// NOLINTBEGIN(concurrency-mt-unsafe,readability-non-const-parameter): argp, before any thread
static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct cli_ask *a = state->input;

    switch (key) {
    case 'q':
        a->q = arg;
        return 0;
    case OPT_FROM:
        a->from = arg;
        return 0;
    case OPT_TO:
        a->to = arg;
        return 0;
    case OPT_JSON:
        a->json = true;
        return 0;
    case OPT_STEP:
        a->step = arg;
        return 0;
    case OPT_NAMES:
        a->names = arg;
        return 0;
    case 'f':
        if (a->n_filter == CLI_FILTERS_MAX)
            argp_error(state, "more than %d times --filter", CLI_FILTERS_MAX);
        a->filter[a->n_filter++] = arg;
        return 0;
    case OPT_SERVER:
        a->server.url = arg;
        return 0;
    case OPT_TOKEN_FILE:
        a->server.token_file = arg;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

// NOLINTEND(concurrency-mt-unsafe,readability-non-const-parameter)

const struct argp cli_ask_argp = {.options = options, .parser = parse};
const struct argp cli_server_argp = {.options = server_options, .parser = parse};

void cli_ask_init(struct cli_ask *a)
{
    /* before any thread: nothing changes the environment */
    const char *url = getenv("STRATA_SERVER"); // NOLINT(concurrency-mt-unsafe)

    *a = (struct cli_ask){
        .server = {.url = url && url[0] ? url : "http://127.0.0.1:4040",
                   .token_file = getenv("STRATA_TOKEN_FILE")}}; // NOLINT(concurrency-mt-unsafe)
}

int cli_fail(const struct err *err)
{
    struct buf b;

    buf_init(&b, 4096);
    text_name(&b, str_c(err->msg)); /* it may hold words of the server */
    (void)fprintf(stderr, "strata: %.*s\n", STR_ARG(buf_view(&b)));
    buf_deinit(&b);
    return CLI_TROUBLE;
}

volatile sig_atomic_t cli_stop;

/* ---- asking -------------------------------------------------------------------------------- */

void cli_param(struct buf *query, const char *name, struct str value)
{
    static const char plain[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~";

    buf_chr(query, query->n ? '&' : '?');
    buf_cstr(query, name);
    buf_chr(query, '=');
    for (size_t i = 0; i < value.n; i++) {
        if (value.p[i] && strchr(plain, value.p[i]))
            buf_chr(query, value.p[i]);
        else
            buf_printf(query, "%%%02X", (unsigned char)value.p[i]);
    }
}

void cli_param_selector(struct buf *query, const char *name, const char *q)
{
    struct buf b;

    buf_init(&b, 64 << 10);
    if (!q || !q[0] || q[0] == '{')
        buf_cstr(&b, "cpu");
    if (q)
        buf_cstr(&b, q);
    cli_param(query, name, buf_view(&b));
    buf_deinit(&b);
}

void cli_params_shape(struct buf *query, const struct cli_ask *a)
{
    for (size_t i = 0; i < a->n_filter; i++)
        cli_param(query, "f", str_c(a->filter[i]));
    if (a->names)
        cli_param(query, "names", str_c(a->names));
}

void cli_params_ask(struct buf *query, const struct cli_ask *a)
{
    cli_param_selector(query, "q", a->q);
    cli_params_shape(query, a);
    if (a->step)
        cli_param(query, "step", str_c(a->step));
    if (a->from)
        cli_param(query, "from", str_c(a->from));
    if (a->to)
        cli_param(query, "to", str_c(a->to));
}

/* The first word of the file, as "Authorization: Bearer TOKEN". */
static int token_read(const char *path, char *ret, size_t n, struct err *err)
{
    char text[TOKEN_MAX];
    struct stat st;
    ssize_t got;
    size_t len = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);

    if (fd < 0)
        return err_set(err, -EPERM, "token file %s: %s", path, strerrordesc_np(errno));
    if (fstat(fd, &st) < 0 || st.st_uid != geteuid() || st.st_mode & 077) {
        (void)close(fd);
        return err_set(err, -EPERM, "token file %s must be yours alone: chmod 0600", path);
    }
    got = read(fd, text, sizeof text - 1);
    (void)close(fd);
    while (got > 0 && len < (size_t)got && text[len] > ' ' && text[len] < 0x7f)
        len++;
    if (!len)
        return err_set(err, -EPERM, "token file %s holds no token", path);
    (void)snprintf(ret, n, "Authorization: Bearer %.*s", (int)len, text);
    return 0;
}

/* A token in the clear goes to this machine only. */
static bool is_safe(const char *url)
{
    static const char *const ok[] = {"https://", "http://127.0.0.1", "http://localhost",
                                     "http://[::1]"};

    for (size_t i = 0; i < sizeof ok / sizeof ok[0]; i++) {
        struct str end = str_from(str_c(url), strlen(ok[i]));

        if (str_starts(str_c(url), str_c(ok[i])) &&
            (i == 0 || !end.n || end.p[0] == ':' || end.p[0] == '/'))
            return true;
    }
    return false;
}

static size_t on_body(char *p, size_t size, size_t n, void *ctx)
{
    struct buf *b = ctx;

    buf_add(b, p, size * n);
    return b->failed ? 0 : size * n;
}

static int answer_failed(long status, struct str body, struct err *err)
{
    json_t *root = json_loadb(body.p ? body.p : "", body.n, 0, NULL);
    const json_t *e = json_object_get(root, "error");
    const char *code = json_string_value(json_object_get(e, "code"));
    const char *text = json_string_value(json_object_get(e, "message"));
    int r;

    if (code)
        r = err_set(err, -EREMOTEIO, "%s (%ld): %s", code, status, text ? text : "");
    else
        r = err_set(err, -EREMOTEIO, "the server answered %ld: is it a stratad?", status);
    json_decref(root);
    return r;
}

static int network_failed(CURLcode c, const char *url, const struct buf *out, struct err *err)
{
    if (c == CURLE_COULDNT_CONNECT)
        return err_set(err, -ECONNREFUSED,
                       "no server at %s: start stratad, or name another with "
                       "--server",
                       url);
    if (out->failed)
        return err_set(err, -EIO, "the answer exceeds %zu bytes", out->cap);
    return err_set(err, -EIO, "%s: %s", url, curl_easy_strerror(c));
}

static int on_progress(void *ctx, curl_off_t dt, curl_off_t dn, curl_off_t ut, curl_off_t un)
{
    (void)ctx;
    (void)dt;
    (void)dn;
    (void)ut;
    (void)un;
    return cli_stop != 0;
}

struct request {
    bool post;       /* what the server does may take as long as it likes */
    struct str body; /* of a post */
    struct curl_slist *headers;
    long status;
    curl_off_t retry_after; /* s */
};

static void set_body(CURL *curl, const struct request *q)
{
    (void)curl_easy_setopt(curl, CURLOPT_POST, 1L);
    (void)curl_easy_setopt(curl, CURLOPT_POSTFIELDS, q->body.n ? q->body.p : "");
    (void)curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)q->body.n);
}

static int add_token(const struct cli_server *s, struct request *q, struct err *err)
{
    char auth[TOKEN_MAX + 32];

    if (!s->token_file || !s->token_file[0])
        return 0;
    if (!is_safe(s->url))
        return err_set(err, -EPERM, "a token is not sent in the clear to another machine: %s",
                       s->url);
    TRY(token_read(s->token_file, auth, sizeof auth, err));
    q->headers = curl_slist_append(q->headers, auth);
    return 0;
}

static int perform(CURL *curl, const struct cli_server *s, const char *url, struct request *q,
                   struct buf *out, struct err *err)
{
    CURLcode c;

    TRY(add_token(s, q, err));
    (void)curl_easy_setopt(curl, CURLOPT_URL, url);
    (void)curl_easy_setopt(curl, CURLOPT_HTTPHEADER, q->headers);
    (void)curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
    (void)curl_easy_setopt(curl, CURLOPT_ACCEPT_ENCODING, "gzip");
    (void)curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    (void)curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT, (long)CONNECT_S);
    (void)curl_easy_setopt(curl, CURLOPT_TIMEOUT, q->post ? (long)WORK_S : (long)ANSWER_S);
    if (q->post)
        set_body(curl, q);
    (void)curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_body);
    (void)curl_easy_setopt(curl, CURLOPT_WRITEDATA, out);
    (void)curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
    (void)curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, on_progress);
    c = curl_easy_perform(curl);
    (void)curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &q->status);
    (void)curl_easy_getinfo(curl, CURLINFO_RETRY_AFTER, &q->retry_after);
    if (c == CURLE_ABORTED_BY_CALLBACK)
        return err_set(err, -EINTR, "interrupted");
    if (c != CURLE_OK)
        return network_failed(c, s->url, out, err);
    return q->status == 200 ? 0 : answer_failed(q->status, buf_view(out), err);
}

static int ask(const struct cli_server *s, const char *path, const struct buf *query,
               struct request *q, struct buf *out, struct err *err)
{
    struct str base = str_c(s->url);
    CURL *curl = curl_easy_init();
    struct buf url;
    int r;

    if (!curl)
        return err_set(err, -ENOMEM, "libcurl does not start");
    while (base.n && base.p[base.n - 1] == '/')
        base.n--;
    buf_init(&url, 256 << 10);
    buf_str(&url, base);
    buf_cstr(&url, path);
    if (query)
        buf_str(&url, buf_view(query));
    buf_chr(&url, '\0');
    if (url.failed || (query && query->failed))
        r = err_set(err, -E2BIG, "the question is too long");
    else
        r = perform(curl, s, url.p, q, out, err);
    curl_slist_free_all(q->headers);
    curl_easy_cleanup(curl);
    buf_deinit(&url);
    return r;
}

int cli_get(const struct cli_server *s, const char *path, const struct buf *query, struct buf *out,
            struct err *err)
{
    struct request q = {};

    return ask(s, path, query, &q, out, err);
}

int cli_post(const struct cli_server *s, const char *path, const struct buf *query, struct buf *out,
             struct err *err)
{
    struct request q = {.post = true};

    return ask(s, path, query, &q, out, err);
}

/* ---- batches ------------------------------------------------------------------------------- */

/* "stored" or "duplicate", and what of it was not taken. */
static int read_reply(struct str body, uint64_t *ret_rejected, struct err *err)
{
    json_t *root = json_loadb(body.p ? body.p : "", body.n, 0, NULL);
    const char *status = json_string_value(json_object_get(root, "status"));
    const json_t *row;
    int r = status && strcmp(status, "duplicate") == 0 ? CLI_DUPLICATE : 0;
    size_t i;

    if (!status)
        r = err_set(err, -EIO, "the server's answer is not understood");
    json_array_foreach(json_object_get(root, "rejected"), i, row)
    {
        const char *n = json_string_value(json_object_get(row, "samples"));
        uint64_t v;

        if (n && str_u64(str_c(n), &v))
            *ret_rejected += v;
    }
    json_decref(root);
    return r;
}

int cli_send_batch(const struct cli_server *s, struct str body, uint64_t *ret_rejected,
                   int64_t *ret_wait_ns, struct err *err)
{
    static const char *const header[] = {"Content-Type: application/vnd.strata.batch+protobuf",
                                         "Content-Encoding: zstd", "Accept: application/json",
                                         "Expect:"};
    struct request q = {.post = true, .body = body};
    struct buf out;
    int r;

    for (size_t i = 0; i < sizeof header / sizeof *header; i++)
        q.headers = curl_slist_append(q.headers, header[i]);
    buf_init(&out, ERROR_MAX);
    r = ask(s, "/api/v1/batch", NULL, &q, &out, err);
    if (r == 0)
        r = read_reply(buf_view(&out), ret_rejected, err);
    else if (r == -ECONNREFUSED || r == -EIO || q.status == 429 || q.status >= 500)
        r = -EAGAIN;
    *ret_wait_ns = (int64_t)q.retry_after * NS_PER_S;
    buf_deinit(&out);
    return r;
}
