// SPDX-License-Identifier: Apache-2.0
/* `strata store ls|cat|stats DIR`: what a data directory is made of. Reads sealed parts only, with
 * or without a server beside. */
#include "storage/store.h"

#include <argp.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/arena.h"
#include "base/json_out.h"
#include "cli/cli.h"
#include "cli/text.h"

enum {
    OPT_JSON = 256,
    OUT_MAX = 1 << 30,
    DEPTH_MAX = 2304 /* more than a stack has */
};

struct verb_args {
    const char *verb, *dir, *part, *block;
    bool json;
};

static const struct argp_option options[] = {
    {"json", OPT_JSON, NULL, 0, "JSON instead of text", 0},
    {},
};

// NOLINTBEGIN(concurrency-mt-unsafe): argp and exit, before any thread
static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct verb_args *a = state->input;
    const char **slot[] = {&a->verb, &a->dir, &a->part, &a->block}, *verb;

    switch (key) {
    case OPT_JSON:
        a->json = true;
        return 0;
    case ARGP_KEY_ARG:
        if (state->arg_num >= sizeof slot / sizeof *slot)
            argp_error(state, "unexpected argument \"%s\"", arg);
        *slot[state->arg_num] = arg;
        return 0;
    case ARGP_KEY_END:
        verb = a->verb ? a->verb : "";
        if (strcmp(verb, "ls") != 0 && strcmp(verb, "cat") != 0 && strcmp(verb, "stats") != 0)
            argp_error(state, "ls, cat or stats comes first, not \"%s\"", verb);
        if (!a->dir)
            argp_error(state, "DIR is missing: the data directory of a store");
        if (strcmp(verb, "cat") == 0 ? !a->block : a->part != NULL)
            argp_error(state, "cat takes DIR PART BLOCK, the others DIR");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}
// NOLINTEND(concurrency-mt-unsafe)

/* ---- ls ------------------------------------------------------------------------------------ */

struct out {
    struct verb_args *args;
    struct store_view *v;
    struct buf b;
    struct json_out j;
    uint64_t n, rows, bytes;
    struct arena mem;
    struct str *name; /* cat: of frames on the way up */
    struct err *err;
    int r;
};

static const char *tier_name(enum store_tier t)
{
    return t == STORE_RAW ? "raw" : "minute";
}

static void number(struct json_out *j, const char *key, uint64_t v)
{
    json_key(j, key);
    json_u64(j, v);
}

static void instant(struct json_out *j, const char *key, real_ns t)
{
    json_key(j, key);
    json_dec_i64(j, t.v);
}

static void part_json(struct json_out *j, const struct store_part *p)
{
    json_object_begin(j);
    number(j, "id", p->id);
    json_key(j, "file");
    json_str(j, p->file);
    json_key(j, "tier");
    json_cstr(j, tier_name(p->tier));
    instant(j, "period_t0", p->period.t0);
    instant(j, "period_t1", p->period.t1);
    instant(j, "t0", p->data.t0);
    instant(j, "t1", p->data.t1);
    number(j, "epoch", p->epoch);
    number(j, "generation", p->generation);
    json_key(j, "dirty");
    json_bool(j, p->dirty);
    number(j, "rows", p->rows);
    number(j, "blocks", p->blocks);
    number(j, "bytes", p->bytes);
    json_object_end(j);
}

/* Right-aligned in so many columns. */
static void column(struct buf *b, uint64_t v, size_t width)
{
    char room[32];
    struct buf x;

    buf_init(&x, sizeof room);
    text_count(&x, v);
    for (size_t n = x.n; n < width; n++)
        buf_chr(b, ' ');
    buf_str(b, buf_view(&x));
    buf_deinit(&x);
}

static bool on_part(void *ctx, const struct store_part *p)
{
    struct out *o = ctx;

    o->n++;
    o->rows += p->rows;
    o->bytes += p->bytes;
    if (o->args->json) {
        part_json(&o->j, p);
        return true;
    }
    buf_printf(&o->b, "%6" PRIu64 "  %-6s  ", p->id, tier_name(p->tier));
    text_range(&o->b, p->data);
    buf_printf(&o->b, "  e%" PRIu32 " g%" PRIu32, p->epoch, p->generation);
    column(&o->b, p->rows, 14);
    column(&o->b, p->blocks, 8);
    column(&o->b, p->bytes, 15);
    buf_cstr(&o->b, p->dirty ? "  dirty  " : "  ");
    text_name(&o->b, p->file);
    buf_chr(&o->b, '\n');
    return true;
}

static int list(struct out *o, struct err *err)
{
    int r;

    if (!o->args->json)
        buf_cstr(&o->b,
                 "  part  tier    data                                 epoch, generation     "
                 "rows  blocks          bytes  file\n");
    r = store_list_parts(o->v, on_part, o, err);
    if (r < 0 || o->args->json)
        return r;
    text_things(&o->b, o->n, "part", "parts");
    buf_cstr(&o->b, ", ");
    text_things(&o->b, o->rows, "row", "rows");
    buf_cstr(&o->b, ", ");
    text_things(&o->b, o->bytes, "byte", "bytes");
    buf_chr(&o->b, '\n');
    return r;
}

/* ---- stats --------------------------------------------------------------------------------- */

static bool on_size(void *ctx, const struct store_size *s)
{
    struct out *o = ctx;

    if (o->args->json) {
        json_object_begin(&o->j);
        json_key(&o->j, "what");
        json_str(&o->j, s->what);
        number(&o->j, "n", s->n);
        number(&o->j, "raw", s->raw);
        number(&o->j, "stored", s->stored);
        json_object_end(&o->j);
        return true;
    }
    buf_printf(&o->b, "%-18.*s", STR_ARG(s->what));
    column(&o->b, s->n, 16);
    column(&o->b, s->raw, 18);
    column(&o->b, s->stored, 18);
    buf_printf(&o->b, "%16.3f\n", s->n ? (double)s->stored / (double)s->n : 0);
    return true;
}

static int stats(struct out *o, struct err *err)
{
    if (!o->args->json)
        buf_cstr(&o->b, "what                             n         bytes raw      bytes stored"
                        "   bytes per one\n");
    return store_list_sizes(o->v, on_size, o, err);
}

/* ---- cat ----------------------------------------------------------------------------------- */

static void put_name(struct buf *b, const struct store_frame *f)
{
    if (f->damaged)
        buf_cstr(b, "[damaged]");
    else
        text_name(b, f->name.n > 0 ? f->name : STR("[unknown]"));
}

/* Root first, as in a folded stack. */
static int put_stack(struct out *o, const struct store_rows *rows, const struct store_trie *trie,
                     uint32_t node)
{
    uint32_t path[DEPTH_MAX], n = 0;

    if (node >= trie->n) {
        buf_cstr(&o->b, "[no stack: damaged]");
        return 0;
    }
    for (; node != 0 && n < DEPTH_MAX; node = trie->parent[node])
        path[n++] = node;
    while (n > 0) {
        struct store_frame f;
        int r = store_frame(o->v, rows->trie.epoch, trie->frame[path[--n]], &f, o->err);

        if (r != 0)
            return r;
        put_name(&o->b, &f);
        if (n > 0)
            buf_chr(&o->b, ';');
    }
    return 0;
}

static void put_row(struct out *o, const struct store_rows *rows, uint32_t i)
{
    char t[40];
    struct buf *b = &o->b;

    buf_printf(b, "%s\t", real_ns_format(rows->t[i], t));
    if (rows->target)
        buf_printf(b, "%" PRIu64, rows->target->pid);
    buf_printf(b, "\t%" PRIu32 "\t", rows->tid);
    text_name(b, rows->thread);
    buf_chr(b, '\t');
    if (rows->cpu && rows->cpu[i])
        buf_printf(b, "%" PRIu32, rows->cpu[i] - 1);
    buf_chr(b, '\t');
    if (rows->count[i])
        buf_u64(b, rows->count[i]);
    buf_chr(b, '\t');
    text_i128(b, rows->value.wide ? rows->value.wide[i] : rows->value.v[i]);
    buf_chr(b, '\t');
}

static bool on_rows(void *ctx, const struct store_rows *rows)
{
    struct out *o = ctx;
    struct store_trie trie;

    o->r = store_trie(o->v, rows->trie, &trie, o->err);
    for (uint32_t i = 0; o->r == 0 && i < rows->n; i++) {
        put_row(o, rows, i);
        o->r = put_stack(o, rows, &trie, rows->node[i]);
        buf_chr(&o->b, '\n');
    }
    return o->r == 0;
}

static int cat(struct out *o, struct err *err)
{
    uint64_t part, block;
    int r;

    if (o->args->json)
        return err_set(err, -EINVAL, "cat has no --json: its lines are tab-separated");
    if (!str_u64(str_c(o->args->part), &part) || !str_u64(str_c(o->args->block), &block))
        return err_set(err, -EINVAL, "PART and BLOCK are numbers: `strata store ls` has them");
    buf_cstr(&o->b, "time\tpid\ttid\tthread\tcpu\tcount\tvalue\tstack\n");
    r = store_cat(o->v, part, block, on_rows, o, err);
    return r == -ECANCELED && o->r ? o->r : r;
}

/* ---- all of them --------------------------------------------------------------------------- */

static int run(struct out *o, struct err *err)
{
    const char *verb = o->args->verb;
    int r;

    if (o->args->json) {
        json_init(&o->j, &o->b);
        json_array_begin(&o->j);
    }
    r = strcmp(verb, "ls") == 0 ? list(o, err) : verb[0] == 's' ? stats(o, err) : cat(o, err);
    if (r >= 0 && o->args->json) {
        json_array_end(&o->j);
        buf_chr(&o->b, '\n');
    }
    if (r >= 0 && o->b.failed)
        return err_set(err, -E2BIG, "more than %d MiB of text", OUT_MAX >> 20);
    if (r >= 0 && (fwrite(o->b.p, 1, o->b.n, stdout) != o->b.n || fflush(stdout) != 0))
        return err_set(err, -EIO, "standard output cannot be written");
    return r;
}

int cli_store(int argc, char **argv)
{
    const struct argp argp = {.options = options,
                              .parser = parse,
                              .args_doc = "ls DIR\nstats DIR\ncat DIR PART BLOCK",
                              .doc =
                                  "What a data directory is made of: its parts, the bytes of each "
                                  "column and kind of name, the rows of one block. Sealed parts "
                                  "only; a server may run beside."};
    struct verb_args args = {};
    struct store_conf conf = {.read_only = true};
    struct store *s = NULL;
    struct out o = {.args = &args};
    struct err err = {};
    int r;

    if (argp_parse(&argp, argc, argv, 0, NULL, &args) != 0) // NOLINT(concurrency-mt-unsafe)
        return CLI_TROUBLE;
    conf.dir = args.dir;
    r = store_open(&conf, &s, &err);
    if (r < 0)
        return cli_fail(&err);
    buf_init(&o.b, OUT_MAX);
    o.err = &err;
    o.v = store_view_get(s);
    r = run(&o, &err);
    o.v = store_view_put(o.v);
    s = store_close(s);
    buf_deinit(&o.b);
    if (r < 0)
        return cli_fail(&err);
    if (r == STORE_PARTIAL)
        (void)fprintf(stderr, "strata: not all of it could be read: %s\n", err.msg);
    return r == STORE_PARTIAL ? CLI_DAMAGE : CLI_OK;
}
