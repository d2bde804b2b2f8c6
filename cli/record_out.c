// SPDX-License-Identifier: Apache-2.0
/*
 * Where a capture goes. The agent writes the capture file as it samples, beside the output as
 * FILE.partial: so whatever kills us, what was taken is there, for `strata view`. Formats and the
 * summary come from a server that holds this capture alone, by its own exporter: there is one.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/loss.h"
#include "base/sudo.h"
#include "cli/answer.h"
#include "cli/record_private.h"
#include "cli/text.h"

enum {
    ANSWER_MAX = 64 << 20,
    TEXT_MAX = 1 << 20,
    RANKED_FROM = 3, /* samples */
};

static const char *const native_off[] = {"merge:kind=native", "merge:kind=kernel", NULL};

/* ---- before -------------------------------------------------------------------------------- */

/* "train.py-20261130T173000Z", of what a label may hold and a file may be called. */
static void make_name(struct record *r)
{
    struct str base = r->cmd ? str_basename(str_c(r->cmd[0])) : (struct str){NULL, 0};
    real_ns now = real_now();
    char text[40], when[40];
    size_t n = 0;

    now.v -= now.v % NS_PER_S;
    (void)real_ns_format(now, text);
    for (const char *c = text; *c; c++) {
        if (*c != '-' && *c != ':')
            when[n++] = *c;
    }
    when[n] = 0;
    if (r->cmd)
        (void)snprintf(r->name, sizeof r->name, "%.*s-%s", STR_ARG(str_to(base, 80)), when);
    else
        (void)snprintf(r->name, sizeof r->name, "pid%s-%s", r->pid, when);
    for (char *c = r->name; *c; c++) {
        if (!((*c >= '0' && *c <= '9') || (*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') ||
              strchr(".-_+", *c)))
            *c = '_';
    }
}

/* It must be possible to write it, or nothing begins. */
static int try_create(const char *path, struct err *err)
{
    int fd = sudo_create(path, err);

    if (fd < 0)
        return fd;
    (void)close(fd);
    return 0;
}

static int in_tmp(struct record *r, struct err *err)
{
    TRY(program_tmpdir(r->tmp, err));
    (void)snprintf(r->capture, sizeof r->capture, "%.4000s/capture.strata", r->tmp);
    return 0;
}

/* Beside its place, under FILE.partial. */
static int beside(struct record *r, const char *file, struct err *err)
{
    if ((size_t)snprintf(r->capture, sizeof r->capture, "%s.partial", file) >= sizeof r->capture)
        return err_set(err, -ENAMETOOLONG, "%.60s...: the name is too long", file);
    return try_create(r->capture, err);
}

static int place_output(struct record *r, struct err *err)
{
    struct stat st;

    if (strcmp(r->file, "-") != 0) {
        if (stat(r->file, &st) < 0)
            return beside(r, r->file, err);
        if (S_ISDIR(st.st_mode))
            return err_set(err, -EISDIR, "%.110s is a directory", r->file);
        if (access(r->file, W_OK) < 0)
            return err_set(err, -errno, "%.110s: %s", r->file, strerrordesc_np(errno));
        if (S_ISREG(st.st_mode))
            return beside(r, r->file, err);
    }
    return in_tmp(r, err); /* a pipe or a device: nothing is put beside it */
}

/* $XDG_STATE_HOME/strata or ~/.local/state/strata, made where it is missing. */
static int state_dir(char ret[static PROGRAM_PATH], struct err *err)
{
    const char *x = getenv("XDG_STATE_HOME"); // NOLINT(concurrency-mt-unsafe): one thread
    const char *home = program_home();

    if (x && x[0] == '/')
        (void)snprintf(ret, PROGRAM_PATH, "%.3900s/strata", x);
    else if (home)
        (void)snprintf(ret, PROGRAM_PATH, "%.3900s/.local/state/strata", home);
    else
        return err_set(err, -ENOENT, "no HOME and no XDG_STATE_HOME: say -o FILE");
    for (char *p = ret + 1;; p++) {
        char was = *p;

        if (was && was != '/')
            continue;
        *p = 0;
        if (mkdir(ret, 0700) == 0)
            TRY(sudo_give_folder(ret, err));
        else if (errno != EEXIST)
            return err_set(err, -errno, "%.110s: %s", ret, strerrordesc_np(errno));
        *p = was;
        if (!was)
            return 0;
    }
}

/* Does a stratad answer? One that wants a token we do not have counts where it was named. */
static int probe(const struct cli_server *s, bool named, struct err *err)
{
    struct buf out;
    json_t *root = NULL;
    int r;

    buf_init(&out, ANSWER_MAX);
    r = cli_get(s, "/api/v1/status", NULL, &out, err);
    if (r == 0)
        r = answer_read(&out, &root, err);
    if (r == 0 && !json_is_string(json_object_get(root, "version")))
        r = err_set(err, -EREMOTEIO, "%.100s: no stratad answers there", s->url);
    if (r == -EREMOTEIO && named && strstr(err->msg, "(403)")) {
        *err = (struct err){}; /* a token that may send, but not read */
        r = 0;
    }
    json_decref(root);
    buf_deinit(&out);
    return r;
}

/* Neither -o nor a server that was named: one that runs here, else one of our own. */
static int find_place(struct record *r, struct err *err)
{
    char dir[PROGRAM_PATH];
    struct err none = {};
    bool terminal = isatty(STDERR_FILENO);

    if (probe(&r->server, false, &none) == 0) {
        r->shared = true;
        return in_tmp(r, err);
    }
    r->server.url = NULL;
    if (!terminal) {
        (void)snprintf(r->kept, sizeof r->kept, "strata-%s.strata", r->name);
        return beside(r, r->kept, err);
    }
    TRY(state_dir(dir, err));
    (void)snprintf(r->kept, sizeof r->kept, "%.3900s/%s.strata", dir, r->name);
    TRY(beside(r, r->kept, err));
    TRY(private_start(&r->live, err));
    r->server = (struct cli_server){.url = r->live.url};
    return 0;
}

int record_prepare(struct record *r, struct err *err)
{
    make_name(r);
    if (r->no_server || (r->file && !r->server_named))
        r->server.url = NULL;
    if (r->server.url && r->server_named) {
        TRY(probe(&r->server, true, err));
        r->shared = true;
    }
    if (r->file) {
        if (strcmp(r->format, "strata") == 0 && strcmp(r->file, "-") != 0)
            (void)snprintf(r->kept, sizeof r->kept, "%.4000s", r->file);
        return place_output(r, err);
    }
    if (!r->server.url || r->shared)
        return in_tmp(r, err);
    return find_place(r, err);
}

/* ---- after --------------------------------------------------------------------------------- */

static double number(const json_t *end, const char *key)
{
    return answer_number(json_object_get(end, key));
}

static void put_seconds(struct buf *b, double ns)
{
    if (ns < 0)
        buf_cstr(b, "unknown");
    else if (ns < 1e9)
        buf_printf(b, "%.0f ms", ns / 1e6);
    else
        buf_printf(b, "%.2f s", ns / 1e9);
}

static void put_sums(struct buf *b, const struct record *r, const struct capture_sent *c)
{
    const json_t *end = c->end;
    struct str source = answer_text(json_object_get(end, "source"));
    double rate = number(end, "rate"), hidden = number(end, "hidden_ns");
    double measured = number(end, "measured_ns"), profiled = number(end, "profiled_ns");
    double lost = number(end, "lost_ns"), samples = number(end, "samples");
    double n = number(end, "processes"), refused = number(end, "not_watched");

    if (samples == 0) {
        buf_cstr(b, "0 samples in ");
        put_seconds(b, measured);
        buf_printf(b, " of CPU; try -r 9999%s\n",
                   r->rate >= 9999 ? ": it is too short to be sampled" : "");
        return;
    }
    buf_cstr(b, "CPU time    ");
    put_seconds(b, measured);
    buf_cstr(b, " measured, ");
    put_seconds(b, profiled);
    buf_cstr(b, " profiled");
    if (measured > 0)
        buf_printf(b, " (%.1f %%)", 100 * profiled / measured);
    buf_cstr(b, ", ");
    put_seconds(b, lost);
    buf_cstr(b, " lost");
    if (hidden > 0) {
        buf_cstr(b, ": ");
        put_seconds(b, hidden);
        buf_cstr(b, " of it in the kernel, which is not seen without rights");
    }
    buf_cstr(b, "\nsamples     ");
    text_count(b, (uint64_t)samples);
    buf_printf(b, " at %.0f Hz, %.0f process%s\n", rate, n, n == 1 ? "" : "es");
    if (source.n && !str_eq(source, STR("bpf"))) {
        buf_cstr(b, "source      ");
        text_name(b, source);
        buf_chr(b, '\n');
    }
    if (number(end, "paused_ns") > 0) {
        buf_cstr(b, "paused      threads stood still for ");
        put_seconds(b, number(end, "paused_ns"));
        buf_cstr(b, " to be read\n");
    }
    if (refused > 0)
        buf_printf(b, "            %.0f children were not watched: too many at a time\n", refused);
}

/* What a reason means, in words; "" where it is none of ours. */
static const char *meaning(const char *why)
{
    for (int i = 0; i < LOSS_N; i++) {
        const struct loss_info *l = loss_info((enum loss_reason)i);

        if (str_eq(l->name, str_c(why)))
            return l->text;
    }
    return "";
}

static void put_incomplete(struct buf *b, const json_t *end)
{
    json_t *in = json_object_get(end, "incomplete"), *v;
    double samples = number(end, "samples");
    json_int_t sum = 0;
    const char *why;

    json_object_foreach(in, why, v) sum += json_integer_value(v);
    if (!sum)
        return;
    buf_cstr(b, "incomplete  ");
    text_count(b, (uint64_t)sum);
    buf_cstr(b, " of ");
    text_count(b, samples > 0 ? (uint64_t)samples : 0);
    buf_printf(b, " stacks (%.1f %%)\n", samples > 0 ? 100.0 * (double)sum / samples : 0.0);
    json_object_foreach(in, why, v)
    {
        buf_printf(b, "%14lld  ", (long long)json_integer_value(v));
        text_name(b, str_c(why));
        buf_printf(b, ": %s\n", meaning(why));
    }
}

/* A name that is an address: "a.out+0x1234". */
static bool is_bare(struct str name, struct str bin)
{
    return bin.n && str_starts(name, bin) && str_starts(str_from(name, bin.n), STR("+0x"));
}

/* Why there are addresses among the names, for each program that has some. */
static void put_nameless(struct buf *b, const json_t *root)
{
    const json_t *strings = json_object_get(root, "strings"), *func = json_object_get(root, "func");
    const json_t *rows = json_object_get(json_object_get(root, "row"), "func"), *index;
    struct str last = {NULL, 0};
    size_t i;

    json_array_foreach(rows, i, index)
    {
        size_t f = (size_t)json_integer_value(index);
        const json_t *n = json_array_get(json_object_get(func, "name"), f);
        const json_t *p = json_array_get(json_object_get(func, "bin"), f);
        struct str name = answer_text(json_array_get(strings, (size_t)json_integer_value(n)));
        struct str bin = answer_text(json_array_get(strings, (size_t)json_integer_value(p)));

        if (!is_bare(name, bin) || str_eq(bin, last))
            continue;
        last = bin;
        buf_cstr(b, "no names    ");
        text_name(b, bin);
        buf_cstr(b, " has no symbols there: each address stands alone; not stripped, or with its "
                    "debug package, it has names\n");
    }
}

static void put_filters(struct buf *query, const struct record *r)
{
    for (const char *const *f = native_off; r->no_native && *f; f++)
        cli_param(query, "f", str_c(*f));
}

static void put_view(struct buf *query, const struct record *r, const struct capture_view *v)
{
    cli_param(query, "q", str_c(v->q));
    cli_param(query, "from", str_c(v->from));
    cli_param(query, "to", str_c(v->to));
    put_filters(query, r);
}

/* Samples of the function with the most of its own; negative: unknown. */
static double most_own(const json_t *root)
{
    const json_t *self = json_object_get(json_object_get(root, "row"), "self");
    double total = answer_number(json_object_get(root, "total"));
    double samples = answer_number(json_object_get(root, "samples"));

    if (!json_array_size(self) || total <= 0 || samples < 0)
        return -1;
    return answer_number(json_array_get(self, 0)) * samples / total;
}

static bool is_measured(const char *type)
{
    return strcmp(type, "cpu") != 0 && strcmp(type, "gil_held") != 0;
}

/* Which of the functions with a sample or two comes first is chance: that is said instead. A wait
 * is measured, and one of them is enough. */
static void put_rows(struct buf *b, const struct record *r, const char *type, const json_t *root)
{
    double own = is_measured(type) ? -1 : most_own(root);

    if (strcmp(type, "cpu") != 0)
        buf_printf(b, "functions   by %s\n", type);
    if (own >= 0 && own < RANKED_FROM - 0.5)
        buf_printf(
            b,
            "functions   too little to rank them: none has more than %.0f sample%s of its own; "
            "record longer%s\n",
            own, own < 1.5 ? "" : "s", r->rate < 9999 ? ", or with -r 9999" : "");
    else
        cli_top_rows(b, root);
}

/* The ten functions with the most of a type of their own. */
static int put_top(struct buf *b, const struct cli_server *s, const struct record *r,
                   const char *type, const struct capture_view *v, struct err *err)
{
    struct buf query, out;
    json_t *root;
    int code;

    buf_init(&query, TEXT_MAX);
    buf_init(&out, ANSWER_MAX);
    put_view(&query, r, v);
    cli_param(&query, "limit", STR("10"));
    cli_param(&query, "names", STR("short")); /* of a template, a line each */
    code = cli_get(s, "/api/v1/top", &query, &out, err);
    if (code == 0)
        code = answer_read(&out, &root, err);
    if (code == 0) {
        put_rows(b, r, type, root);
        put_nameless(b, root);
        if (r->no_native)
            buf_cstr(b, "left out    native and kernel frames (--no-native)\n");
        json_decref(root);
    }
    buf_deinit(&query);
    buf_deinit(&out);
    return code;
}

static int put_export(const struct cli_server *s, const struct record *r,
                      const struct capture_sent *c, struct err *err)
{
    struct capture_view v;
    struct buf query;
    int code;

    TRY(record_type_check(r, c, err));
    capture_view(c, str_c(r->type), &v);
    buf_init(&query, TEXT_MAX);
    put_view(&query, r, &v);
    code = cli_export_to(s, &query, r->format, r->file, err);
    buf_deinit(&query);
    return code;
}

/* A capture file to standard output, or into a pipe or device. */
static int copy_out(const struct record *r, struct err *err)
{
    struct buf b;
    FILE *f = fopen(r->capture, "re");
    char part[8192];
    size_t n;
    int code;

    if (!f)
        return err_set(err, -errno, "%.110s: %s", r->capture, strerrordesc_np(errno));
    buf_init(&b, SIZE_MAX / 4);
    while ((n = fread(part, 1, sizeof part, f)) > 0)
        buf_add(&b, part, n);
    code = ferror(f) || b.failed ? err_set(err, -EIO, "the capture cannot be read")
                                 : cli_write_file(r->file, buf_view(&b), err);
    (void)fclose(f);
    buf_deinit(&b);
    return code;
}

static void put_where(struct buf *b, const struct record *r, const struct capture_view *v,
                      const json_t *end)
{
    bool is_file = r->file && strcmp(r->file, "-") != 0;

    if (is_file || r->kept[0]) {
        buf_cstr(b, "file        ");
        text_name(b, str_c(is_file ? r->file : r->kept));
        if (r->kept[0])
            buf_cstr(b, "  (strata view opens it)");
        buf_chr(b, '\n');
    }
    if (r->server.url) {
        buf_cstr(b, "link        ");
        capture_link(b, r->server.url, v, r->no_native ? native_off : NULL);
        buf_chr(b, '\n');
    }
    if (number(end, "unsent") > 0) {
        buf_printf(b, "not sent    %.0f of %.0f batches: ", number(end, "unsent"),
                   number(end, "batches"));
        text_name(b, answer_text(json_object_get(end, "sender")));
        buf_chr(b, '\n');
    }
}

/* The file gets its name; what was not sent is kept. */
static int keep(struct record *r, const json_t *end, struct err *err)
{
    if (number(end, "unsent") > 0 && !r->kept[0] && r->tmp[0]) {
        (void)snprintf(r->kept, sizeof r->kept, "strata-%s.strata", r->name);
        if (rename(r->capture, r->kept) == 0)
            return 0;
        (void)snprintf(r->kept, sizeof r->kept, "%s", r->capture);
        r->tmp[0] = 0; /* then it stays where it is */
        return 0;
    }
    if (!r->kept[0]) {
        (void)unlink(r->capture);
        return 0;
    }
    if (rename(r->capture, r->kept) < 0)
        return err_set(err, -errno, "%.100s: %s", r->kept, strerrordesc_np(errno));
    return 0;
}

/* What the capture holds, from a server that has nothing else. */
static int deliver(struct record *r, const struct cli_server *s, struct err *err)
{
    const bool copy = r->file && strcmp(r->format, "strata") == 0;
    const char *type = "cpu"; /* of the functions that the summary names */
    struct capture_sent c;
    struct capture_view v;
    struct buf b;
    int code = capture_send(s, r->capture, &c, err);

    buf_init(&b, ANSWER_MAX);
    if (code == 0) {
        if (record_has_type(&c, r->type))
            type = r->type;
        capture_view(&c, str_c(type), &v);
        put_sums(&b, r, &c);
    }
    if (code == 0 && !r->quiet)
        code = record_put_types(&b, s, r, &c, err);
    if (code == 0 && !r->quiet && (is_measured(type) || number(c.end, "samples") > 0))
        code = put_top(&b, s, r, type, &v, err);
    if (code == 0 && copy && !r->kept[0])
        code = copy_out(r, err);
    else if (code == 0 && r->file && !copy)
        code = put_export(s, r, &c, err);
    if (code == 0)
        code = keep(r, c.end, err);
    if (code == 0 && !r->quiet) {
        put_incomplete(&b, c.end);
        put_where(&b, r, &v, c.end);
        if (r->file && !copy)
            record_put_held(&b, r, &c);
        (void)fwrite(b.p, 1, b.n, stderr);
    } else if (code == 0 && number(c.end, "samples") == 0) {
        (void)fprintf(stderr, "strata: %.*s", STR_ARG(buf_view(&b))); /* never an empty success */
    }
    buf_deinit(&b);
    capture_sent_free(&c);
    return code;
}

int record_deliver(struct record *r, struct err *err)
{
    struct private own = {};
    int code = 0;

    if (r->live.pid) {
        const struct cli_server live = {.url = r->live.url};

        return deliver(r, &live, err); /* all is there: sent again it counts once */
    }
    code = private_start(&own, err);
    if (code == 0) {
        const struct cli_server s = {.url = own.url};

        code = deliver(r, &s, err);
    }
    private_stop(&own);
    return code;
}

void record_leave_partial(struct record *r)
{
    char to[PROGRAM_PATH + 16];
    struct stat st;

    if (stat(r->capture, &st) < 0)
        return;
    if (st.st_size == 0) { /* nothing was begun */
        (void)unlink(r->capture);
        return;
    }
    if (!r->tmp[0]) {
        (void)fprintf(stderr, "strata: what was taken is in %s: strata view opens it\n",
                      r->capture);
        return;
    }
    (void)snprintf(to, sizeof to, "strata-%s.strata.partial", r->name);
    if (rename(r->capture, to) < 0)
        return;
    (void)fprintf(stderr, "strata: what was taken is in %s: strata view opens it\n", to);
}
