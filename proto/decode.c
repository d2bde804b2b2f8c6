// SPDX-License-Identifier: Apache-2.0
/*
 * Bytes from strangers -> struct batch. In this order, each step relying on the one before:
 *   scan      counts and depths, before anything is allocated
 *   unpack    by protobuf-c into the arena, whose cap is the budget
 *   validate  every index, enum and column length, with a place for the error answer
 *   refuse    single rows and streams that the limits do not let in
 *   cut       names, labels and stacks
 * Columns are used where protobuf-c put them: same widths, and wire index n of a table that leaves
 * out its entry 0 is entry n here.
 */
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/hash.h"
#include "proto/decode_private.h"
#include "proto/scan.h"

/* ---- shared -------------------------------------------------------------------------------- */

int wire_no_room(struct wire_decoding *d)
{
    const struct wire_fault_why why = {"decode_budget", "ingest.arena", d->limits->arena,
                                       d->arena->used, true};

    return wire_fault_set(d->fault, d->err, -ENOMEM, &why, "%s", "");
}

int wire_indices(struct wire_decoding *d, const uint32_t *v, size_t n, size_t end, const char *what,
                 ...)
{
    for (size_t i = 0; i < n; i++) {
        char place[56];
        va_list ap;

        if (v[i] < end)
            continue;
        va_start(ap, what);
        if (vsnprintf(place, sizeof place, what, ap) < 0)
            place[0] = '\0';
        va_end(ap);
        return WIRE_BAD(d->fault, d->err, "bad_index", "%s[%zu] = %u of %zu", place, i, v[i], end);
    }
    return 0;
}

static int one_index(struct wire_decoding *d, uint32_t v, size_t end, const char *table, size_t i,
                     const char *field)
{
    if (v < end)
        return 0;
    return WIRE_BAD(d->fault, d->err, "bad_index", "%s[%zu].%s = %u of %zu", table, i, field, v,
                    end);
}

static int length_is(struct wire_decoding *d, size_t n, size_t want, const char *what)
{
    if (n == want)
        return 0;
    return WIRE_BAD(d->fault, d->err, "column_length", "%s: %zu, not %zu", what, n, want);
}

int wire_labels(struct wire_decoding *d, const uint32_t *v, size_t n, const char *what, size_t i,
                struct batch_labels *ret)
{
    if (n % 2 != 0)
        return WIRE_BAD(d->fault, d->err, "column_length", "%s[%zu]: odd", what, i);
    TRY(wire_indices(d, v, n, d->b->n_str, "%s[%zu]", what, i));
    *ret = (struct batch_labels){(uint32_t)(n / 2), n ? v : NULL};
    return 0;
}

bool wire_undelta(int64_t *v, size_t n, int64_t from)
{
    for (size_t i = 0; i < n; i++) {
        if (__builtin_add_overflow(from, v[i], &from))
            return false;
        v[i] = from;
    }
    return true;
}

static struct str bytes(ProtobufCBinaryData b)
{
    return (struct str){b.len ? (const char *)b.data : NULL, b.len};
}

/* ---- tables -------------------------------------------------------------------------------- */

static int sixteen(struct wire_decoding *d, ProtobufCBinaryData from, uint8_t ret[static 16],
                   const char *what, size_t i)
{
    if (from.len != 0 && from.len != 16)
        return WIRE_BAD(d->fault, d->err, "bad_value", "%s[%zu]: %zu bytes, not 16", what, i,
                        from.len);
    if (from.len)
        memcpy(ret, from.data, 16);
    return 0;
}

static int texts(struct wire_decoding *d)
{
    const Strata__V1__Batch *m = d->m;
    size_t n = m->n_str + (m->n_str == 0);
    struct str *str = arena_array(d->arena, struct str, n + 16); /* some for what is added */

    if (!str)
        return wire_no_room(d);
    for (size_t i = 0; i < m->n_str; i++)
        str[i] = bytes(m->str[i]);
    if (str[0].n > 0)
        return WIRE_BAD(d->fault, d->err, "bad_value", "str[0]: %s", "not empty");
    d->b->str = d->str = str;
    d->str_room = (uint32_t)n + 16;
    d->b->n_str = (uint32_t)n;
    return 0;
}

uint32_t wire_add_text(struct wire_decoding *d, struct str s)
{
    uint32_t n = d->b->n_str;

    if (n == d->str_room) {
        struct str *more = arena_array(d->arena, struct str, 2 * (size_t)n);

        if (!more)
            return 0;
        memcpy(more, d->str, n * sizeof *more);
        d->b->str = d->str = more;
        d->str_room = 2 * n;
    }
    d->str[n] = s;
    return d->b->n_str++;
}

/* Beside the table on the wire, in it here: found or added. */
static int agent_version(struct wire_decoding *d)
{
    struct str v = bytes(d->m->agent_version);

    if (v.n == 0)
        return 0;
    for (uint32_t i = 1; i < d->b->n_str; i++) {
        if (str_eq(d->str[i], v)) {
            d->b->agent_version = i;
            return 0;
        }
    }
    d->b->agent_version = wire_add_text(d, v);
    return d->b->agent_version ? 0 : wire_no_room(d);
}

static int binaries(struct wire_decoding *d, const Strata__V1__Dict *m)
{
    size_t n = m->n_bin_path;
    struct batch_bin *bin = arena_array(d->arena, struct batch_bin, n + 1);

    if (!bin)
        return wire_no_room(d);
    TRY(length_is(d, m->n_bin_id_kind, n, "dict.bin_id_kind"));
    TRY(length_is(d, m->n_bin_id, n, "dict.bin_id"));
    TRY(wire_indices(d, m->bin_path, n, d->b->n_str, "dict.bin_path"));
    for (size_t i = 0; i < n; i++) {
        if (m->bin_id_kind[i] > BIN_ID_HTLHASH)
            return WIRE_BAD(d->fault, d->err, "bad_value", "dict.bin_id_kind[%zu] = %u", i,
                            m->bin_id_kind[i]);
        if (m->bin_id[i].len > 64)
            return WIRE_BAD(d->fault, d->err, "bad_value", "dict.bin_id[%zu]: %zu bytes of 64", i,
                            m->bin_id[i].len);
        bin[i + 1] = (struct batch_bin){m->bin_path[i], (enum bin_id_kind)m->bin_id_kind[i],
                                        bytes(m->bin_id[i])};
    }
    d->b->bin = bin;
    d->b->n_bin = (uint32_t)(n + 1);
    return 0;
}

static int functions(struct wire_decoding *d, const Strata__V1__Dict *m)
{
    size_t n = m->n_fn_name;
    struct batch_fn *fn = arena_array(d->arena, struct batch_fn, n + 1);

    if (!fn)
        return wire_no_room(d);
    TRY(length_is(d, m->n_fn_file, n, "dict.fn_file"));
    TRY(length_is(d, m->n_fn_line, n, "dict.fn_line"));
    TRY(wire_indices(d, m->fn_name, n, d->b->n_str, "dict.fn_name"));
    TRY(wire_indices(d, m->fn_file, n, d->b->n_str, "dict.fn_file"));
    for (size_t i = 0; i < n; i++)
        fn[i + 1] = (struct batch_fn){m->fn_name[i], m->fn_file[i], m->fn_line[i]};
    d->b->fn = fn;
    d->b->n_fn = (uint32_t)(n + 1);
    return 0;
}

static int frames(struct wire_decoding *d, const Strata__V1__Dict *m)
{
    size_t n = m->n_fr_kind;
    struct batch_frame *frame = arena_array(d->arena, struct batch_frame, n + 1);

    if (!frame)
        return wire_no_room(d);
    TRY(length_is(d, m->n_fr_fn, n, "dict.fr_fn"));
    TRY(length_is(d, m->n_fr_line, n, "dict.fr_line"));
    TRY(length_is(d, m->n_fr_bin, n, "dict.fr_bin"));
    TRY(length_is(d, m->n_fr_flags, n, "dict.fr_flags"));
    TRY(length_is(d, m->n_fr_addr, n, "dict.fr_addr"));
    TRY(wire_indices(d, m->fr_fn, n, d->b->n_fn, "dict.fr_fn"));
    TRY(wire_indices(d, m->fr_bin, n, d->b->n_bin, "dict.fr_bin"));
    for (size_t i = 0; i < n; i++) {
        if (m->fr_kind[i] < FRAME_KERNEL || m->fr_kind[i] > FRAME_OTHER)
            return WIRE_BAD(d->fault, d->err, "bad_value", "dict.fr_kind[%zu] = %u", i,
                            m->fr_kind[i]);
        frame[i + 1] = (struct batch_frame){.kind = (enum frame_kind)m->fr_kind[i],
                                            .flags = m->fr_flags[i],
                                            .fn = m->fr_fn[i],
                                            .bin = m->fr_bin[i],
                                            .line = m->fr_line[i],
                                            .addr = m->fr_addr[i]};
    }
    d->b->frame = frame;
    d->b->n_frame = (uint32_t)(n + 1);
    return 0;
}

/*
 * Hashes of frames. Each reads the texts of its function and binary again, so a few long texts and
 * many frames would make much work of a small body: the bytes in all are limited too.
 */
static int frame_hashes(struct wire_decoding *d, uint64_t **ret)
{
    const struct batch *b = d->b;
    uint64_t *hash = arena_array(d->arena, uint64_t, b->n_frame);
    uint64_t most = 16 * (uint64_t)d->limits->inflated, all = 0;

    if (!hash)
        return wire_no_room(d);
    for (uint32_t i = 1; i < b->n_frame; i++) {
        const struct batch_fn *fn = &b->fn[b->frame[i].fn];

        /* most is far below 2^63, and so is one text: no overflow */
        all += b->str[fn->name].n + b->str[fn->file].n + b->str[b->bin[b->frame[i].bin].path].n;
        if (all > most) {
            const struct wire_fault_why why = {"decode_budget", "ingest.inflated", most, all, true};

            return wire_fault_set(d->fault, d->err, -E2BIG, &why, "dict.fr_fn[%u]: texts", i - 1);
        }
    }
    for (uint32_t i = 1; i < b->n_frame; i++)
        hash[i] = batch_frame_hash(b, i);
    *ret = hash;
    return 0;
}

/* Known nodes, then new ones, whose hashes are made here: no sender's word is taken for them. */
static int nodes(struct wire_decoding *d, const Strata__V1__Dict *m)
{
    size_t known = m->n_known, n = m->n_node_parent;
    struct batch_node *node = arena_array(d->arena, struct batch_node, known + n + 1);
    uint64_t *hash = NULL;

    if (!node)
        return wire_no_room(d);
    TRY(frame_hashes(d, &hash));
    TRY(length_is(d, m->n_node_frame, n, "dict.node_frame"));
    TRY(wire_indices(d, m->node_frame, n, m->n_fr_kind, "dict.node_frame"));
    for (size_t i = 0; i < known; i++) {
        if (m->known[i] == 0)
            return WIRE_BAD(d->fault, d->err, "bad_value", "dict.known[%zu] = 0", i);
        node[i + 1].hash = m->known[i];
    }
    for (size_t i = 0; i < n; i++) {
        size_t at = known + 1 + i;
        uint32_t parent = m->node_parent[i], frame = m->node_frame[i] + 1;

        if (parent >= at)
            return WIRE_BAD(d->fault, d->err, "bad_index", "dict.node_parent[%zu] = %u of %zu", i,
                            parent, at);
        node[at] = (struct batch_node){parent, frame, node_hash(node[parent].hash, hash[frame])};
    }
    d->b->node = node;
    d->b->n_node = (uint32_t)(known + n + 1);
    d->b->n_known = (uint32_t)known;
    return 0;
}

static int targets(struct wire_decoding *d)
{
    const Strata__V1__Batch *m = d->m;
    struct batch_target *target = arena_array(d->arena, struct batch_target, m->n_target + 1);
    size_t n = d->b->n_str;

    if (!target)
        return wire_no_room(d);
    for (size_t i = 0; i < m->n_target; i++) {
        const Strata__V1__Target *t = m->target[i];
        struct batch_target *to = &target[i + 1];

        TRY(one_index(d, t->exe, n, "target", i, "exe"));
        TRY(one_index(d, t->cmdline, n, "target", i, "cmdline"));
        TRY(one_index(d, t->comm, n, "target", i, "comm"));
        TRY(one_index(d, t->cgroup, n, "target", i, "cgroup"));
        TRY(one_index(d, t->container, n, "target", i, "container"));
        *to =
            (struct batch_target){.key = {.pidns = t->pidns, .pid = t->pid, .start = {t->start_ns}},
                                  .host_pid = t->host_pid,
                                  .exe = t->exe,
                                  .cmdline = t->cmdline,
                                  .comm = t->comm,
                                  .cgroup = t->cgroup,
                                  .container = t->container,
                                  .flags = t->flags};
        TRY(sixteen(d, t->host_id, to->key.host, "target.host_id", i));
        TRY(wire_labels(d, t->env, t->n_env, "target.env", i, &to->env));
    }
    d->b->target = target;
    d->b->n_target = (uint32_t)(m->n_target + 1);
    return 0;
}

static int label_sets(struct wire_decoding *d)
{
    const Strata__V1__Batch *m = d->m;
    struct batch_labels *labels = arena_array(d->arena, struct batch_labels, m->n_labels + 1);

    if (!labels)
        return wire_no_room(d);
    for (size_t i = 0; i < m->n_labels; i++)
        TRY(wire_labels(d, m->labels[i]->pair, m->labels[i]->n_pair, "labels", i, &labels[i + 1]));
    d->b->labels = labels;
    d->b->n_labels = (uint32_t)(m->n_labels + 1);
    return wire_labels(d, m->label, m->n_label, "label", 0, &d->b->label);
}

static int tables(struct wire_decoding *d)
{
    static const Strata__V1__Dict empty = STRATA__V1__DICT__INIT;
    const Strata__V1__Dict *dict = d->m->dict ? d->m->dict : &empty;

    TRY(texts(d));
    TRY(binaries(d, dict));
    TRY(functions(d, dict));
    TRY(frames(d, dict));
    TRY(nodes(d, dict));
    TRY(targets(d));
    return label_sets(d);
}

/* ---- beside profiles ----------------------------------------------------------------------- */

static int metric(struct wire_decoding *d, const Strata__V1__Metric *m, size_t i,
                  struct batch_metric *ret)
{
    size_t n = m->n_t_ns;
    uint8_t *status = NULL;

    TRY(one_index(d, m->name, d->b->n_str, "metric", i, "name"));
    TRY(one_index(d, m->unit, d->b->n_str, "metric", i, "unit"));
    TRY(one_index(d, m->target, d->b->n_target, "metric", i, "target"));
    TRY(one_index(d, m->labels, d->b->n_labels, "metric", i, "labels"));
    if (m->name == 0 || m->kind < METRIC_GAUGE || m->kind > METRIC_COUNTER)
        return WIRE_BAD(d->fault, d->err, "bad_value", "metric[%zu].%s", i,
                        m->name ? "kind" : "name");
    if ((m->n_num != n && m->n_num) || (m->n_inum != n && m->n_inum) ||
        (n && !m->n_num == !m->n_inum) || (m->n_status && m->n_status != n))
        return WIRE_BAD(d->fault, d->err, "column_length", "metric[%zu]", i);
    for (size_t k = 0; k < m->n_num; k++) {
        if (!isfinite(m->num[k]))
            return WIRE_BAD(d->fault, d->err, "bad_value", "metric[%zu].num[%zu]", i, k);
    }
    if (!wire_undelta(m->t_ns, n, m->t0_ns))
        return WIRE_BAD(d->fault, d->err, "bad_value", "metric[%zu].t_ns", i);
    if (m->n_status) {
        status = arena_array(d->arena, uint8_t, n);
        if (!status)
            return wire_no_room(d);
    }
    for (size_t k = 0; k < m->n_status; k++) {
        if (m->status[k] > METRIC_READ_ERROR)
            return WIRE_BAD(d->fault, d->err, "bad_value", "metric[%zu].status[%zu]", i, k);
        status[k] = (uint8_t)m->status[k];
    }
    *ret = (struct batch_metric){.name = m->name,
                                 .unit = m->unit,
                                 .kind = (enum metric_kind)m->kind,
                                 .target = m->target,
                                 .labels = m->labels,
                                 .n = (uint32_t)n,
                                 .t = n ? (const real_ns *)m->t_ns : NULL,
                                 .num = m->n_num ? m->num : NULL,
                                 .inum = m->n_inum ? m->inum : NULL,
                                 .status = status};
    return 0;
}

static int steps(struct wire_decoding *d, const Strata__V1__Steps *m, size_t i,
                 struct batch_steps *ret)
{
    size_t n = m->n_number;
    uint64_t parts;

    TRY(one_index(d, m->target, d->b->n_target, "steps", i, "target"));
    TRY(one_index(d, m->name, d->b->n_str, "steps", i, "name"));
    if (m->n_start != n || m->n_dur != n || (m->n_labels && m->n_labels != n) ||
        (m->n_tid && m->n_tid != n) || __builtin_mul_overflow(n, m->n_part, &parts) ||
        m->n_part_ns != parts)
        return WIRE_BAD(d->fault, d->err, "column_length", "steps[%zu]", i);
    TRY(wire_indices(d, m->labels, m->n_labels, d->b->n_labels, "steps[%zu].labels", i));
    TRY(wire_indices(d, m->part, m->n_part, d->b->n_str, "steps[%zu].part", i));
    if (!wire_undelta(m->start, n, m->t0_ns))
        return WIRE_BAD(d->fault, d->err, "bad_value", "steps[%zu].start", i);
    for (size_t k = 0; k < n; k++) {
        if (m->dur[k] == 0 || m->dur[k] > INT64_MAX)
            return WIRE_BAD(d->fault, d->err, "bad_value", "steps[%zu].dur[%zu]", i, k);
    }
    *ret = (struct batch_steps){.target = m->target,
                                .name = m->name,
                                .inferred = m->inferred != 0,
                                .n = (uint32_t)n,
                                .number = m->number,
                                .start = (const real_ns *)m->start,
                                .dur_ns = (const int64_t *)m->dur,
                                .tid = m->n_tid ? m->tid : NULL,
                                .labels = m->n_labels ? m->labels : NULL,
                                .n_part = (uint32_t)m->n_part,
                                .part = m->part,
                                .part_ns = m->part_ns};
    return 0;
}

static int events(struct wire_decoding *d)
{
    const Strata__V1__Batch *m = d->m;
    struct batch_event *event = arena_array(d->arena, struct batch_event, m->n_event);

    if (!event)
        return wire_no_room(d);
    for (size_t i = 0; i < m->n_event; i++) {
        const Strata__V1__Event *e = m->event[i];

        TRY(one_index(d, e->kind, d->b->n_str, "event", i, "kind"));
        TRY(one_index(d, e->text, d->b->n_str, "event", i, "text"));
        TRY(one_index(d, e->target, d->b->n_target, "event", i, "target"));
        event[i] = (struct batch_event){{e->t_ns}, e->kind, e->text, e->target};
    }
    d->b->event = event;
    d->b->n_event = (uint32_t)m->n_event;
    return 0;
}

static int dropped(struct wire_decoding *d)
{
    const Strata__V1__Batch *m = d->m;
    size_t n = m->n_dropped_seq / 2;
    struct seq_range *range = arena_array(d->arena, struct seq_range, n);

    if (!range)
        return wire_no_room(d);
    if (m->n_dropped_seq % 2 != 0)
        return WIRE_BAD(d->fault, d->err, "column_length", "dropped_seq: %s", "odd");
    for (size_t i = 0; i < n; i++) {
        range[i] = (struct seq_range){m->dropped_seq[2 * i], m->dropped_seq[2 * i + 1]};
        if (range[i].first > range[i].last)
            return WIRE_BAD(d->fault, d->err, "bad_value", "dropped_seq[%zu]", 2 * i);
    }
    d->b->dropped = range;
    d->b->n_dropped = (uint32_t)n;
    return 0;
}

static int beside(struct wire_decoding *d)
{
    const Strata__V1__Batch *m = d->m;
    struct batch_metric *metrics = arena_array(d->arena, struct batch_metric, m->n_metric);
    struct batch_steps *all = arena_array(d->arena, struct batch_steps, m->n_steps);

    if (!metrics || !all)
        return wire_no_room(d);
    for (size_t i = 0; i < m->n_metric; i++)
        TRY(metric(d, m->metric[i], i, &metrics[i]));
    for (size_t i = 0; i < m->n_steps; i++)
        TRY(steps(d, m->steps[i], i, &all[i]));
    d->b->metric = metrics;
    d->b->n_metric = (uint32_t)m->n_metric;
    d->b->steps = all;
    d->b->n_steps = (uint32_t)m->n_steps;
    TRY(events(d));
    return dropped(d);
}

/* ---- the batch ----------------------------------------------------------------------------- */

static int head(struct wire_decoding *d)
{
    const Strata__V1__Batch *m = d->m;
    const Strata__V1__Clock *c = m->clock;
    struct batch_id *id = &d->b->id;
    static const uint8_t none[16];

    if (m->version != WIRE_VERSION)
        return WIRE_BAD(d->fault, d->err, "unsupported_version", "version = %u, not %u", m->version,
                        WIRE_VERSION);
    TRY(sixteen(d, m->agent, id->agent, "agent", 0));
    TRY(sixteen(d, m->boot, id->boot, "boot", 0));
    id->seq = m->seq;
    id->content = m->content;
    if (memcmp(id->agent, none, 16) != 0 && m->seq == 0)
        return WIRE_BAD(d->fault, d->err, "bad_value", "seq = %s", "0");
    if (c)
        d->b->clock = (struct batch_clock){.sent = {c->sent_ns},
                                           .mono = {c->mono_ns},
                                           .real = {c->real_ns},
                                           .err_ns = c->err_ns,
                                           .stepped = c->stepped != 0};
    return 0;
}

static void *pb_alloc(void *ctx, size_t n)
{
    return arena_alloc(ctx, n);
}

static void pb_free(void *ctx, void *p)
{
    (void)ctx;
    (void)p; /* the arena goes as a whole */
}

static int unpack(struct wire_decoding *d, struct str body)
{
    ProtobufCAllocator allocator = {pb_alloc, pb_free, d->arena};

    d->m = strata__v1__batch__unpack(&allocator, body.n, (const uint8_t *)body.p);
    if (d->m)
        return 0;
    /* what the scan let through unpacks, unless memory ends */
    return wire_no_room(d);
}

int wire_decode(struct str body, const struct wire_limits *limits, real_ns received,
                struct arena *arena, struct batch *ret, struct wire_fault *fault,
                struct wire_rejects *rejects, struct err *err)
{
    struct batch b = {.received = received};
    struct wire_decoding d = {
        .limits = limits, .arena = arena, .b = &b, .fault = fault, .rejects = rejects, .err = err};
    size_t room = arena->cap - arena->used;

    if (rejects)
        *rejects = (struct wire_rejects){};
    if (room > limits->arena)
        room = limits->arena;
    TRY(wire_scan(body, &wire_scan_batch, limits, room, fault, err));
    TRY(unpack(&d, body));
    TRY(head(&d));
    TRY(tables(&d));
    TRY(wire_streams(&d));
    TRY(beside(&d));
    TRY(agent_version(&d));
    TRY(wire_cut(&d));
    if (b.id.content == 0)
        b.id.content = hash_str(body);
    if (batch_check(&b, NULL) < 0) {
        struct err why = {};

        (void)!batch_check(&b, &why);
        return WIRE_BAD(fault, err, "bad_value", "%.60s", why.msg);
    }
    *ret = b;
    return 0;
}
