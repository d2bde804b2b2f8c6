// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "agent/cmd/record_private.h"
#include "agent/proc/cmdline.h"
#include "base/capture.h"
#include "base/json_out.h"
#include "base/loss.h"
#include "base/sudo.h"

enum {
    TEXT_MAX = 1 << 20,
};

/* The command as it may be shown: secrets hidden. */
static void put_command(struct json_out *j, char **cmd)
{
    struct buf args, text;

    buf_init(&args, TEXT_MAX);
    buf_init(&text, TEXT_MAX);
    for (char **a = cmd; a && *a; a++) {
        buf_cstr(&args, *a);
        buf_chr(&args, '\0');
    }
    cmdline_mask(buf_view(&args), &text);
    json_key(j, "command");
    if (cmd)
        json_str(j, buf_view(&text));
    else
        json_null_value(j);
    buf_deinit(&args);
    buf_deinit(&text);
}

static void put_about(struct buf *b, const struct record_opts *o, const struct ids *ids,
                      const char *why)
{
    struct json_out j;
    char id[33];

    json_init(&j, b);
    json_object_begin(&j);
    json_key(&j, "version");
    json_cstr(&j, STRATA_VERSION);
    json_key(&j, "name");
    json_cstr(&j, o->name);
    json_key(&j, "host");
    json_cstr(&j, ids->hostname);
    json_key(&j, "agent");
    ids_hex(ids->agent, id);
    json_cstr(&j, id);
    json_key(&j, "begun_ns");
    json_dec_i64(&j, real_now().v);
    json_key(&j, "rate");
    json_u64(&j, o->rate);
    json_key(&j, "source");
    json_cstr(&j, why ? why : "bpf");
    json_key(&j, "types");
    json_array_begin(&j);
    for (ptype_id t = 1; t < PTYPE_BUILTIN_END; t++)
        if (t == PTYPE_CPU || o->types >> t & 1)
            json_cstr(&j, ptype_builtin(t)->name);
    json_array_end(&j);
    put_command(&j, o->cmd);
    json_key(&j, "pids");
    json_array_begin(&j);
    for (uint32_t i = 0; i < o->n_pid; i++)
        json_u64(&j, o->pid[i]);
    json_array_end(&j);
    json_object_end(&j);
}

int record_file_open(struct record_file *f, const struct record_opts *o, struct err *err)
{
    *f = (struct record_file){.fd = -1};
    if (!o->file)
        return 0;
    f->fd = sudo_create(o->file, err);
    if (f->fd < 0)
        return f->fd;
    (void)ftruncate(f->fd, 0); /* of a pipe: nothing to empty */
    return 0;
}

int record_file_about(struct record_file *f, const struct record_opts *o, const struct ids *ids,
                      const char *why, struct err *err)
{
    struct buf b;
    int r;

    if (f->fd < 0)
        return 0;
    buf_init(&b, TEXT_MAX);
    put_about(&b, o, ids, why);
    r = capture_begin(f->fd, err);
    if (r == 0)
        r = capture_put(f->fd, CAPTURE_ABOUT, buf_view(&b), err);
    buf_deinit(&b);
    return r;
}

/* The batcher's thread; the main thread looks at it after that has ended. */
static void on_batch(void *ctx, struct str body, const struct batchmake_info *info)
{
    struct record_file *f = ctx;

    f->batches++;
    if (info->covers.t1.v > info->covers.t0.v) {
        if (f->covers.t1.v == 0) /* they come by time */
            f->covers.t0 = info->covers.t0;
        f->covers.t1 = info->covers.t1;
    }
    if (f->fd >= 0 && !f->failed)
        f->failed = -capture_put(f->fd, CAPTURE_BATCH, body, NULL);
}

struct batcher_tap record_file_tap(struct record_file *f)
{
    return (struct batcher_tap){.batch = on_batch, .ctx = f};
}

/* ---- what it came to ----------------------------------------------------------------------- */

static const uint8_t reasons[SA_S_N] = {
    [SA_S_TRUNC] = LOSS_TRUNC,   [SA_S_NOMAP] = LOSS_NOMAP,     [SA_S_NOTABLE] = LOSS_NOTABLE,
    [SA_S_NOINFO] = LOSS_NOINFO, [SA_S_INVALID] = LOSS_INVALID, [SA_S_READFAULT] = LOSS_READFAULT,
    [SA_S_ZEROPC] = LOSS_ZEROPC, [SA_S_BADSP] = LOSS_BADSP,     [SA_S_BADFP] = LOSS_BADFP,
    [SA_S_NOPROC] = LOSS_NOPROC, [SA_S_EXITING] = LOSS_EXITING, [SA_S_COMPAT32] = LOSS_COMPAT32,
};

static int64_t lost_ns(const struct collector_stats *s)
{
    return s->missed.weight + s->ring_full.weight + s->hidden;
}

static void put_result(struct buf *b, const struct record_result *r)
{
    const struct collector_stats *s = &r->stats;
    struct json_out j;

    json_init(&j, b);
    json_object_begin(&j);
    json_key(&j, "from_ns");
    json_dec_i64(&j, r->from.v);
    json_key(&j, "to_ns");
    json_dec_i64(&j, r->to.v);
    json_key(&j, "wall_ns");
    json_dec_i64(&j, r->wall_ns);
    json_key(&j, "measured_ns");
    if (r->measured_ns < 0)
        json_null_value(&j);
    else
        json_dec_i64(&j, r->measured_ns);
    json_key(&j, "profiled_ns");
    json_dec_i64(&j, s->weight);
    json_key(&j, "lost_ns");
    json_dec_i64(&j, lost_ns(s));
    json_key(&j, "hidden_ns");
    json_dec_i64(&j, s->hidden);
    json_key(&j, "paused_ns");
    json_dec_i64(&j, s->paused);
    json_key(&j, "samples");
    json_u64(&j, s->samples);
    json_key(&j, "processes");
    json_u64(&j, s->sampled);
    json_key(&j, "source");
    json_cstr(&j, r->source ? r->source : "bpf");
    json_key(&j, "rate");
    json_u64(&j, r->rate);
    json_key(&j, "not_watched");
    json_u64(&j, r->watch_full);
    json_key(&j, "incomplete");
    json_object_begin(&j);
    for (unsigned i = 0; i < SA_S_N; i++) {
        if (i == SA_S_END || i == SA_S_KTHREAD || !s->stop[i])
            continue;
        json_key_str(&j, loss_info((enum loss_reason)reasons[i])->name);
        json_u64(&j, s->stop[i]);
    }
    json_object_end(&j);
    json_key(&j, "batches");
    json_u64(&j, r->batches);
    json_key(&j, "unsent");
    json_u64(&j, r->unsent);
    json_key(&j, "sender");
    if (r->sender)
        json_cstr(&j, r->sender);
    else
        json_null_value(&j);
    json_object_end(&j);
}

int record_file_end(struct record_file *f, const struct record_result *r, struct err *err)
{
    struct buf b;
    int code;

    if (f->fd < 0)
        return 0;
    if (f->failed)
        return err_set(err, -f->failed, "the capture file cannot be written: %s",
                       strerrordesc_np(f->failed));
    buf_init(&b, TEXT_MAX);
    put_result(&b, r);
    code = capture_put(f->fd, CAPTURE_END, buf_view(&b), err);
    buf_deinit(&b);
    if (code == 0 && fsync(f->fd) < 0 && errno != EINVAL && errno != EROFS)
        code =
            err_set(err, -errno, "the capture file cannot be written: %s", strerrordesc_np(errno));
    return code;
}

void record_file_close(struct record_file *f)
{
    if (f->fd >= 0)
        (void)close(f->fd);
    f->fd = -1;
}

void record_print(const struct record_result *r)
{
    const struct collector_stats *s = &r->stats;

    if (r->measured_ns >= 0)
        (void)fprintf(stderr, "CPU time %.3f s, ", (double)r->measured_ns / NS_PER_S);
    (void)fprintf(stderr, "profiled %.3f s, lost %.3f s, %llu samples, %llu batches\n",
                  (double)s->weight / NS_PER_S, (double)lost_ns(s) / NS_PER_S,
                  (unsigned long long)s->samples, (unsigned long long)r->batches);
}
