// SPDX-License-Identifier: Apache-2.0
/*
 * The table of proto/ingest.proto. A field that is added there is added here: an unknown one is
 * skipped. cost: what protobuf-c makes of an element, and what decoding makes of it besides.
 */
#include "proto/ingest.pb-c.h"
#include "proto/scan.h"

#define N(a) (sizeof(a) / sizeof((a)[0]))
#define P    ((uint32_t)sizeof(void *))

#define U32(number, name)                                                                          \
    {                                                                                              \
#name, NULL, number, WIRE_SCAN_U32, false, WIRE_SCAN_FREE, 0                               \
    }
#define U64(number, name)                                                                          \
    {                                                                                              \
#name, NULL, number, WIRE_SCAN_U64, false, WIRE_SCAN_FREE, 0                               \
    }
#define F64(number, name)                                                                          \
    {                                                                                              \
#name, NULL, number, WIRE_SCAN_F64, false, WIRE_SCAN_FREE, 0                               \
    }
#define BYTES(number, name)                                                                        \
    {                                                                                              \
#name, NULL, number, WIRE_SCAN_BYTES, false, WIRE_SCAN_FREE, 0                             \
    }
#define ONE(number, name, child)                                                                   \
    {                                                                                              \
#name, child, number, WIRE_SCAN_MSG, false, WIRE_SCAN_FREE, 0                              \
    }
#define COL(number, name, t, l, cost)                                                              \
    {                                                                                              \
#name, NULL, number, WIRE_SCAN_##t, true, WIRE_SCAN_##l, cost                              \
    }
#define MANY(number, name, child, l, cost)                                                         \
    {                                                                                              \
#name, child, number, WIRE_SCAN_MSG, true, WIRE_SCAN_##l, cost                             \
    }

static const struct wire_scan_field clock_f[] = {
    U64(1, sent_ns), U64(2, mono_ns), U64(3, real_ns), U64(4, err_ns), U32(5, stepped),
};
static const struct wire_scan_field labels_f[] = {
    COL(1, pair, U32, ENTRIES, 8),
};
static const struct wire_scan_field target_f[] = {
    U64(1, pidns),     U64(2, pid),
    U64(3, host_pid),  U64(4, start_ns),
    U32(5, exe),       U32(6, cmdline),
    U32(7, comm),      U32(8, cgroup),
    U32(9, container), COL(10, env, U32, ENTRIES, 4),
    U32(11, flags),    BYTES(12, host_id),
};
static const struct wire_scan_field dict_f[] = {
    COL(1, bin_path, U32, ENTRIES, 4 + sizeof(struct batch_bin)),
    COL(2, bin_id_kind, U32, ENTRIES, 4),
    COL(3, bin_id, BYTES, ENTRIES, sizeof(ProtobufCBinaryData)),
    COL(4, fn_name, U32, ENTRIES, 4 + sizeof(struct batch_fn)),
    COL(5, fn_file, U32, ENTRIES, 4),
    COL(6, fn_line, U32, ENTRIES, 4),
    COL(7, fr_kind, U32, ENTRIES, 4 + sizeof(struct batch_frame) + 8),
    COL(8, fr_fn, U32, ENTRIES, 4),
    COL(9, fr_line, U32, ENTRIES, 4),
    COL(10, fr_bin, U32, ENTRIES, 4),
    COL(11, fr_flags, U32, ENTRIES, 4),
    COL(12, fr_addr, U64, ENTRIES, 8),
    COL(13, known, F64, ENTRIES, 8 + sizeof(struct batch_node)),
    COL(14, node_parent, U32, ENTRIES, 4 + sizeof(struct batch_node)),
    COL(15, node_frame, U32, ENTRIES, 4),
};
static const struct wire_scan_field stream_f[] = {
    U32(1, type),
    U32(2, name),
    U32(3, unit),
    U32(4, kind),
    U32(5, target),
    U32(6, labels),
    U64(7, t0_ns),
    U64(8, t1_ns),
    U64(9, at_ns),
    U32(10, width),
    U32(11, state),
    U32(12, state_why),
    U32(13, basis),
    U64(14, period),
    U64(15, expected),
    U64(16, received),
    COL(17, lost_why, U32, ENTRIES, 4 + sizeof(struct batch_loss)),
    COL(18, lost_n, U64, ENTRIES, 8),
    COL(19, lost_weight, U64, ENTRIES, 8),
    COL(20, t_ns, U64, SAMPLES, 8),
    COL(21, s_target, U32, SAMPLES, 4),
    COL(22, tid, U32, SAMPLES, 4),
    COL(23, thread, U32, SAMPLES, 4),
    COL(24, cpu, U32, SAMPLES, 4),
    COL(25, s_labels, U32, SAMPLES, 4),
    COL(26, stack, U32, SAMPLES, 4),
    COL(27, count, U64, SAMPLES, 8),
    COL(28, value, U64, SAMPLES, 8),
    COL(29, var, F64, SAMPLES, 8),
    U64(30, jitter_ns),
};
static const struct wire_scan_field metric_f[] = {
    U32(1, name),
    U32(2, unit),
    U32(3, kind),
    U32(4, target),
    U32(5, labels),
    U64(6, t0_ns),
    COL(7, t_ns, U64, SAMPLES, 8),
    COL(8, num, F64, SAMPLES, 8),
    COL(9, inum, U64, SAMPLES, 8),
    COL(10, status, U32, SAMPLES, 5),
};
static const struct wire_scan_field steps_f[] = {
    U32(1, target),
    U32(2, name),
    U32(3, inferred),
    COL(4, number, U64, SAMPLES, 8),
    U64(5, t0_ns),
    COL(6, start, U64, SAMPLES, 8),
    COL(7, dur, U64, SAMPLES, 8),
    COL(8, labels, U32, SAMPLES, 4),
    COL(9, part, U32, ENTRIES, 4),
    COL(10, part_ns, U64, SAMPLES, 8),
    COL(11, tid, U32, SAMPLES, 4),
};
static const struct wire_scan_field event_f[] = {
    U64(1, t_ns),
    U32(2, kind),
    U32(3, text),
    U32(4, target),
};

/* slots: the fields of all messages one after the other */
enum {
    S_BATCH = 0,
    S_CLOCK = S_BATCH + 17,
    S_LABELS = S_CLOCK + N(clock_f),
    S_TARGET = S_LABELS + N(labels_f),
    S_DICT = S_TARGET + N(target_f),
    S_STREAM = S_DICT + N(dict_f),
    S_METRIC = S_STREAM + N(stream_f),
    S_STEPS = S_METRIC + N(metric_f),
    S_EVENT = S_STEPS + N(steps_f),
    S_END = S_EVENT + N(event_f),
};
static_assert(S_END <= WIRE_SCAN_SLOTS, "more fields than slots");

#define MSG(f, slot, T)                                                                            \
    {                                                                                              \
        f, N(f), slot, sizeof(Strata__V1__##T) + 16                                                \
    }
static const struct wire_scan_msg clock_m = MSG(clock_f, S_CLOCK, Clock);
static const struct wire_scan_msg labels_m = MSG(labels_f, S_LABELS, Labels);
static const struct wire_scan_msg target_m = MSG(target_f, S_TARGET, Target);
static const struct wire_scan_msg dict_m = MSG(dict_f, S_DICT, Dict);
static const struct wire_scan_msg stream_m = MSG(stream_f, S_STREAM, Stream);
static const struct wire_scan_msg metric_m = MSG(metric_f, S_METRIC, Metric);
static const struct wire_scan_msg steps_m = MSG(steps_f, S_STEPS, Steps);
static const struct wire_scan_msg event_m = MSG(event_f, S_EVENT, Event);

static const struct wire_scan_field batch_f[] = {
    U32(1, version),
    BYTES(2, agent),
    BYTES(3, boot),
    U64(4, seq),
    BYTES(5, agent_version),
    ONE(6, clock, &clock_m),
    COL(7, str, BYTES, ENTRIES, sizeof(ProtobufCBinaryData) + sizeof(struct str)),
    COL(8, label, U32, ENTRIES, 8),
    ONE(9, dict, &dict_m),
    MANY(10, target, &target_m, ENTRIES, P + sizeof(struct batch_target)),
    MANY(11, labels, &labels_m, ENTRIES, P + sizeof(struct batch_labels)),
    MANY(12, stream, &stream_m, STREAMS, P + sizeof(struct batch_stream)),
    MANY(13, metric, &metric_m, ENTRIES, P + sizeof(struct batch_metric)),
    MANY(14, steps, &steps_m, ENTRIES, P + sizeof(struct batch_steps)),
    MANY(15, event, &event_m, ENTRIES, P + sizeof(struct batch_event)),
    COL(16, dropped_seq, U64, ENTRIES, 8 + 8),
    F64(17, content),
};
static_assert(N(batch_f) == S_CLOCK, "slots of the batch");

const struct wire_scan_msg wire_scan_batch = {batch_f, N(batch_f), S_BATCH,
                                              sizeof(Strata__V1__Batch) + 16};
