// SPDX-License-Identifier: Apache-2.0
/*
 * {"service","labels"?,"host"?,"pid"?,"pidns"?,"process_start_ns"?,
 *  "steps":[{"name","number","t0_ns","t1_ns","tid"?,"attributes"?}]}
 *
 * The library that reads JSON recurses and makes a tree, so depth and the number of values are
 * counted before it sees the text. A key that is not listed above is refused: a misspelt "labels"
 * would else be lost without a word.
 */
#include <errno.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/hash.h"
#include "base/map.h"
#include "server/ingest_steps_private.h"

enum {
    DEPTH_MAX = 4,                    /* body, steps, step, attributes */
    OBJECTS_MAX = 2 * STEPS_MAX + 2,  /* a step and its attributes; the body and its labels */
    VALUES_MAX = 40 * STEPS_MAX + 64, /* separators: more than any good body has */
};
#define PIDNS_FIRST UINT64_C(0xeffffffc) /* inode of a machine's first pid namespace */

struct parser {
    struct arena *a;
    struct steps_fault *fault;
    const struct batch_limits *limits;
    real_ns now;
    struct str *text;
    uint32_t n_text, room_text;
    struct map by_hash; /* text -> its number */
    struct steps_parsed *out;
};

[[gnu::format(printf, 3, 4)]] static int bad(struct parser *p, const char *field, const char *fmt,
                                             ...)
{
    va_list ap;

    *p->fault = (struct steps_fault){.status = 400, .code = "bad_value"};
    (void)snprintf(p->fault->field, sizeof p->fault->field, "%s", field);
    va_start(ap, fmt);
    if (vsnprintf(p->fault->text, sizeof p->fault->text, fmt, ap) < 0)
        p->fault->text[0] = '\0';
    va_end(ap);
    return -EINVAL;
}

static int no_room(struct parser *p)
{
    *p->fault = (struct steps_fault){.status = 413,
                                     .code = "decode_budget",
                                     .text = "the body needs more memory than one may have",
                                     .setting = "memory of one body",
                                     .limit = p->a->cap,
                                     .actual = (uint64_t)p->a->cap + 1};
    return -ENOMEM;
}

/* ---- before anything is allocated --------------------------------------------------------------
 */

static int count_values(struct parser *p, struct str s)
{
    uint32_t depth = 0, objects = 0, values = 0;
    bool quoted = false;

    for (size_t i = 0; i < s.n; i++) {
        char c = s.p[i];

        if (quoted) {
            i += c == '\\';
            quoted = c != '"';
            continue;
        }
        quoted = c == '"';
        values += c == ',' || c == ':';
        objects += c == '{';
        if (c == '{' || c == '[')
            depth++;
        else if (c == '}' || c == ']')
            depth -= depth > 0;
        if (depth > DEPTH_MAX)
            return bad(p, "", "the JSON is nested deeper than %d", DEPTH_MAX);
    }
    if (objects <= OBJECTS_MAX && values <= VALUES_MAX)
        return 0;
    *p->fault = (struct steps_fault){.status = 413,
                                     .code = "too_many_entries",
                                     .text = "the JSON holds more values than a body of steps has",
                                     .setting = "values of one body",
                                     .limit = VALUES_MAX,
                                     .actual = values > objects ? values : objects};
    return -E2BIG;
}

/* ---- texts and labels --------------------------------------------------------------------------
 */

static int text_of(struct parser *p, struct str s, uint32_t *ret)
{
    uint64_t *slot, key = hash_str(s);

    for (;; key = hash_mix(key + 1)) {
        if (map_at(&p->by_hash, key, &slot) == MAP_FULL)
            return no_room(p);
        if (*slot == 0)
            break;
        if (str_eq(p->text[*slot - 1], s)) {
            *ret = (uint32_t)*slot - 1;
            return 0;
        }
    }
    if (p->n_text == p->room_text) {
        uint32_t room = p->room_text ? p->room_text * 2 : 64;
        struct str *v = arena_array(p->a, struct str, room);

        if (!v)
            return no_room(p);
        if (p->n_text)
            memcpy(v, p->text, p->n_text * sizeof *v);
        p->text = v;
        p->room_text = room;
    }
    if (s.n) {
        s = arena_str(p->a, s);
        if (!s.p)
            return no_room(p);
    }
    p->text[p->n_text] = s;
    *ret = p->n_text++;
    *slot = p->n_text;
    return 0;
}

static struct str str_of(const json_t *v)
{
    return (struct str){json_string_value(v), json_string_length(v)};
}

/* Labels while they are collected. */
struct pairs {
    uint32_t n, room;
    uint32_t *v;
};

static int pair(struct parser *p, struct pairs *l, struct str name, struct str value)
{
    if (l->n == l->room) {
        uint32_t room = l->room ? 2 * l->room : 8;
        uint32_t *v = arena_array(p->a, uint32_t, 2 * (size_t)room);

        if (!v)
            return no_room(p);
        if (l->n)
            memcpy(v, l->v, 2 * (size_t)l->n * sizeof *v);
        l->v = v;
        l->room = room;
    }
    TRY(text_of(p, name, &l->v[2 * (size_t)l->n]));
    TRY(text_of(p, value, &l->v[2 * (size_t)l->n + 1]));
    l->n++;
    return 0;
}

static struct batch_labels labels_of(const struct pairs *l)
{
    return (struct batch_labels){l->n, l->v};
}

/* An object of texts. */
static int pairs(struct parser *p, json_t *object, const char *field, struct pairs *l)
{
    const char *key;
    json_t *v;

    if (!object)
        return 0;
    if (!json_is_object(object))
        return bad(p, field, "an object of texts");
    json_object_foreach(object, key, v)
    {
        if (!json_is_string(v) || !key[0])
            return bad(p, field, "%.40s is no text with a name", key);
        TRY(pair(p, l, str_c(key), str_of(v)));
    }
    return 0;
}

/* ---- numbers -----------------------------------------------------------------------------------
 */

/* A number or a decimal text; *v NULL: it is not there. */
static int whole(struct parser *p, const json_t *object, const char *key, const char *at,
                 const int64_t **v, int64_t *room)
{
    const json_t *j = json_object_get(object, key);
    char field[64];

    *v = NULL;
    if (!j || json_is_null(j))
        return 0;
    if (json_is_integer(j))
        *room = json_integer_value(j);
    else if (!json_is_string(j) || !str_i64(str_of(j), room)) {
        (void)snprintf(field, sizeof field, "%s%s", at, key);
        return bad(p, field, "not a whole number below 2^63, nor one as text");
    }
    *v = room;
    return 0;
}

/* Step numbers have 64 bits without a sign. */
static int unsigned_whole(struct parser *p, const json_t *object, const char *key, const char *at,
                          bool *ret_there, uint64_t *ret)
{
    const json_t *j = json_object_get(object, key);
    char field[64];

    *ret_there = j && !json_is_null(j);
    if (!*ret_there)
        return 0;
    if (json_is_integer(j) && json_integer_value(j) >= 0) {
        *ret = (uint64_t)json_integer_value(j);
        return 0;
    }
    if (json_is_string(j) && str_u64(str_of(j), ret))
        return 0;
    (void)snprintf(field, sizeof field, "%s%s", at, key);
    return bad(p, field, "not a whole number of 64 bits, nor one as text");
}

static int known_keys(struct parser *p, json_t *object, const char *at, const char *const *keys)
{
    const char *key;
    json_t *v;

    json_object_foreach(object, key, v)
    {
        const char *const *k = keys;

        while (*k && strcmp(*k, key) != 0)
            k++;
        if (!*k) {
            char field[64];

            (void)snprintf(field, sizeof field, "%s%.40s", at, key);
            return bad(p, field, "there is no such field");
        }
    }
    return 0;
}

/* ---- whose steps -------------------------------------------------------------------------------
 */

static void host_id(struct str host, uint8_t ret[16])
{
    uint64_t hi, lo;

    if (host.n != 32 || !str_hex64(str_to(host, 16), &hi) || !str_hex64(str_from(host, 16), &lo)) {
        hi = hash_str(host); /* a name: the same one gives the same process */
        lo = hash_seed(host.p, host.n, 1);
    }
    for (unsigned i = 0; i < 8; i++) {
        ret[i] = (uint8_t)(hi >> (56 - 8 * i));
        ret[8 + i] = (uint8_t)(lo >> (56 - 8 * i));
    }
}

static bool is_host_id(struct str host)
{
    uint64_t v;

    return host.n == 32 && str_hex64(str_to(host, 16), &v) && str_hex64(str_from(host, 16), &v);
}

/* A process, if the body names one. */
static int target(struct parser *p, const json_t *root, struct str host)
{
    struct batch_target *t = arena_array(p->a, struct batch_target, 2);
    uint64_t pid = 0, pidns = PIDNS_FIRST;
    bool has_pid, has_ns;
    const int64_t *start;
    int64_t room;

    if (!t)
        return no_room(p);
    p->out->batch.target = t;
    p->out->batch.n_target = 1;
    TRY(unsigned_whole(p, root, "pid", "", &has_pid, &pid));
    TRY(unsigned_whole(p, root, "pidns", "", &has_ns, &pidns));
    TRY(whole(p, root, "process_start_ns", "", &start, &room));
    if (!has_pid && !start && !has_ns)
        return 0;
    if (!has_pid || !start || host.n == 0)
        return bad(p,
                   !has_pid ? "pid"
                   : !start ? "process_start_ns"
                            : "host",
                   "a process is named by host, pid and process_start_ns together");
    t[1] = (struct batch_target){
        .key = {.pidns = pidns, .pid = pid, .start = {*start}},
        .host_pid = pid,
        .flags = TARGET_UNSEEN, /* its names are for others to say */
    };
    host_id(host, t[1].key.host);
    p->out->batch.n_target = 2;
    return 0;
}

static int owner(struct parser *p, json_t *root)
{
    const json_t *service = json_object_get(root, "service");
    const json_t *host = json_object_get(root, "host");
    struct pairs l = {};

    if (!json_is_string(service) || json_string_length(service) == 0)
        return bad(p, "service", "a text that is not empty");
    if (host && !json_is_string(host))
        return bad(p, "host", "a text: a name, or the host id of /targets");
    TRY(pairs(p, json_object_get(root, "labels"), "labels", &l));
    TRY(pair(p, &l, STR("service"), str_of(service)));
    if (host && json_string_length(host) && !is_host_id(str_of(host)))
        TRY(pair(p, &l, STR("host"), str_of(host)));
    p->out->batch.label = labels_of(&l);
    return target(p, root, host ? str_of(host) : (struct str){NULL, 0});
}

/* ---- steps -------------------------------------------------------------------------------------
 */

struct one {
    uint32_t name, labels, tid;
    uint64_t number;
    int64_t t0, dur;
};

/* 1: a step, 0: refused alone and counted. */
static int read_one(struct parser *p, json_t *j, uint32_t i, struct one *ret,
                    struct pairs *attributes)
{
    static const char *const keys[] = {"name", "number",     "t0_ns", "t1_ns",
                                       "tid",  "attributes", NULL};
    const json_t *name = json_object_get(j, "name");
    const int64_t *t0, *t1;
    int64_t room[2];
    uint64_t tid = 0;
    bool has_number, has_tid;
    char at[24], field[40];

    (void)snprintf(at, sizeof at, "steps[%u].", i);
    if (!json_is_object(j)) {
        at[strlen(at) - 1] = '\0';
        return bad(p, at, "not an object");
    }
    TRY(known_keys(p, j, at, keys));
    (void)snprintf(field, sizeof field, "%sname", at);
    if (name && !json_is_string(name))
        return bad(p, field, "not a text");
    TRY(unsigned_whole(p, j, "number", at, &has_number, &ret->number));
    TRY(unsigned_whole(p, j, "tid", at, &has_tid, &tid));
    TRY(whole(p, j, "t0_ns", at, &t0, &room[0]));
    TRY(whole(p, j, "t1_ns", at, &t1, &room[1]));
    (void)snprintf(field, sizeof field, "%sattributes", at);
    TRY(pairs(p, json_object_get(j, "attributes"), field, attributes));
    if (!name || json_string_length(name) == 0 || !has_number || !t0 || !t1 || tid > UINT32_MAX ||
        __builtin_sub_overflow(*t1, *t0, &ret->dur) || ret->dur <= 0 ||
        ret->dur > STEPS_LONGEST_NS) {
        p->out->bad_step++;
        return 0;
    }
    if (*t0 < p->now.v - p->limits->age_ns) {
        p->out->too_old++;
        return 0;
    }
    if (*t1 > p->now.v + p->limits->future_ns) {
        p->out->in_future++;
        return 0;
    }
    ret->tid = (uint32_t)tid;
    ret->t0 = *t0;
    TRY(text_of(p, str_of(name), &ret->name));
    return 1;
}

static int by_name(const void *va, const void *vb)
{
    const struct one *a = va, *b = vb;

    if (a->name != b->name)
        return (a->name > b->name) - (a->name < b->name);
    if (a->t0 != b->t0)
        return (a->t0 > b->t0) - (a->t0 < b->t0);
    if (a->number != b->number)
        return (a->number > b->number) - (a->number < b->number);
    return (a->labels > b->labels) - (a->labels < b->labels);
}

/* Columns of the steps [from, to) of one name. */
static int columns(struct parser *p, const struct one *v, uint32_t n, struct batch_steps *ret)
{
    uint64_t *number = arena_array(p->a, uint64_t, n);
    real_ns *start = arena_array(p->a, real_ns, n);
    int64_t *dur = arena_array(p->a, int64_t, n);
    uint32_t *tid = arena_array(p->a, uint32_t, n), *labels = arena_array(p->a, uint32_t, n);

    if (!number || !start || !dur || !tid || !labels)
        return no_room(p);
    for (uint32_t i = 0; i < n; i++) {
        number[i] = v[i].number;
        start[i].v = v[i].t0;
        dur[i] = v[i].dur;
        tid[i] = v[i].tid;
        labels[i] = v[i].labels;
    }
    *ret = (struct batch_steps){.target = p->out->batch.n_target - 1,
                                .name = v[0].name,
                                .n = n,
                                .number = number,
                                .start = start,
                                .dur_ns = dur,
                                .tid = tid,
                                .labels = labels};
    return 0;
}

static int steps(struct parser *p, json_t *array)
{
    struct batch *b = &p->out->batch;
    size_t room = json_array_size(array);
    struct one *v = arena_array(p->a, struct one, room);
    struct batch_labels *labels = arena_array(p->a, struct batch_labels, room + 1);
    struct batch_steps *all = arena_array(p->a, struct batch_steps, room);
    uint32_t n = 0;

    if (!v || !labels || !all)
        return no_room(p);
    b->n_labels = 1;
    for (uint32_t i = 0; i < room; i++) {
        struct pairs l = {};
        int r = read_one(p, json_array_get(array, i), i, &v[n], &l);

        if (r < 0)
            return r;
        if (r == 0)
            continue;
        v[n].labels = 0;
        if (l.n) {
            v[n].labels = b->n_labels;
            labels[b->n_labels++] = labels_of(&l);
        }
        n++;
    }
    if (n > 1)
        qsort(v, n, sizeof *v, by_name);
    for (uint32_t i = 0, k; i < n; i += k) {
        for (k = 1; i + k < n && v[i + k].name == v[i].name; k++)
            ;
        TRY(columns(p, v + i, k, &all[b->n_steps++]));
    }
    b->labels = labels;
    b->steps = all;
    p->out->steps = n;
    return 0;
}

/* ---- the whole ---------------------------------------------------------------------------------
 */

/* Tables of stacks: entry 0 alone. */
static int empty_tables(struct parser *p)
{
    struct batch *b = &p->out->batch;

    b->bin = arena_array(p->a, struct batch_bin, 1);
    b->fn = arena_array(p->a, struct batch_fn, 1);
    b->frame = arena_array(p->a, struct batch_frame, 1);
    b->node = arena_array(p->a, struct batch_node, 1);
    b->n_bin = b->n_fn = b->n_frame = b->n_node = 1;
    return b->bin && b->fn && b->frame && b->node ? 0 : no_room(p);
}

static int body(struct parser *p, json_t *root)
{
    static const char *const keys[] = {"service", "labels",           "host",  "pid",
                                       "pidns",   "process_start_ns", "steps", NULL};
    json_t *array = json_object_get(root, "steps");
    uint32_t none;

    if (!json_is_object(root))
        return bad(p, "", "the body is no object");
    TRY(known_keys(p, root, "", keys));
    if (!json_is_array(array))
        return bad(p, "steps", "not an array");
    if (json_array_size(array) > STEPS_MAX) {
        *p->fault = (struct steps_fault){.status = 413,
                                         .code = "too_many_steps",
                                         .field = "steps",
                                         .text = "more steps than one request may hold",
                                         .setting = "steps of one request",
                                         .limit = STEPS_MAX,
                                         .actual = json_array_size(array)};
        return -E2BIG;
    }
    TRY(text_of(p, (struct str){NULL, 0}, &none)); /* entry 0 */
    TRY(empty_tables(p));
    TRY(owner(p, root));
    TRY(steps(p, array));
    p->out->batch.n_str = p->n_text;
    p->out->batch.str = p->text;
    return 0;
}

int steps_parse(struct str json, const struct batch_limits *limits, real_ns now,
                struct arena *arena, struct steps_parsed *ret, struct steps_fault *fault)
{
    struct steps_parsed out = {};
    struct parser p = {.a = arena, .fault = fault, .limits = limits, .now = now, .out = &out};
    json_error_t error;
    json_t *root;
    int r;

    TRY(count_values(&p, json));
    root = json_loadb(json.p ? json.p : "", json.n, JSON_REJECT_DUPLICATES, &error);
    if (!root)
        return bad(&p, "", "no JSON at byte %d: %.100s", error.position, error.text);
    map_init(&p.by_hash, 0);
    r = body(&p, root);
    map_deinit(&p.by_hash);
    json_decref(root);
    if (r == 0)
        *ret = out;
    return r;
}
