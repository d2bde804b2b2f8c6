// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdatomic.h>

#include "base/sample.h"

/*
 * Questions and their answers: a selector and a range become a flame graph, a table of functions,
 * a time series, each with what was covered and what was lost.
 *
 *   query_open _open_diff   parse what is asked, resolve the type, take a view of the store
 *   query_flame _top _sandwich _diff _series      weights
 *   query_types _names _values _targets _status   what there is
 *   query_sets _steps _events _coverage _metrics _metric_lines   beside weights
 *   query_free              gives the view back and frees every answer
 *
 *   Results    0; negative errno with *e filled: e->code is the one word that error bodies carry.
 *   Ownership  Answers and all that they point to live in the query, until query_free().
 *   Thread     one query: one thread at a time (the store's workers call back into it meanwhile);
 *              different queries: any threads.
 *   Units      weights are in the unit of query_head.type, as 128-bit integers, exact; instants are
 *              real_ns, durations int64_t *_ns.
 *   Unknown    is not 0: QUERY_UNKNOWN for weights, BATCH_UNKNOWN for counts.
 */

struct store;
struct query;

#define QUERY_UNKNOWN ((unit_i128)-1) /* of a weight: not covered, or not said */

// clang-format off
#define QUERY_CODES(X)                                                                             \
    X(BAD_PARAMETER,       400, "bad_parameter")                                                   \
    X(BAD_SELECTOR,        400, "bad_selector")                                                    \
    X(BAD_PATTERN,         400, "bad_pattern")                                                     \
    X(BAD_TIME,            400, "bad_time")                                                        \
    X(BAD_RANGE,           400, "bad_range")                                                       \
    X(TYPE_REQUIRED,       400, "type_required")                                                   \
    X(AMBIGUOUS_TYPE,      400, "ambiguous_type")                                                  \
    X(UNKNOWN_TYPE,        404, "unknown_type")                                                    \
    X(REGEX_TOO_EXPENSIVE, 422, "regex_too_expensive")                                             \
    X(TOO_EXPENSIVE,       422, "query_too_expensive")                                             \
    X(TOO_MANY_SERIES,     422, "too_many_series")                                                 \
    X(NOT_SUPPORTED,       422, "not_supported")                                                   \
    X(TYPES_DIFFER,        422, "types_differ")                                                    \
    X(PERIOD_UNKNOWN,      422, "period_unknown")                                                  \
    X(NORM_NOT_FOR_LEVEL,  422, "norm_not_for_level")                                              \
    X(CANCELED,            503, "canceled")                                                        \
    X(INTERNAL,            500, "internal")
// clang-format on

enum query_code {
    QUERY_OK = 0,
#define X(ID, status, word) QUERY_##ID,
    QUERY_CODES(X)
#undef X
};

/* Why a question was refused. The first one wins, as in err_set(). Zeroed before use. */
struct query_err {
    enum query_code code;
    const char *param;   /* static: the parameter to blame; NULL: none */
    const char *setting; /* static: the limit's name in the configuration; NULL: none */
    uint64_t limit, actual;
    char msg[320]; /* may hold bytes of the request: repair before it is output */
};

/* Fill *e and return err_no, which is negative. param may be NULL. Never allocates. Any thread. */
[[nodiscard, gnu::format(printf, 5, 6)]] int query_fail(struct query_err *e, int err_no,
                                                        enum query_code code, const char *param,
                                                        const char *fmt, ...);

/* The word and the HTTP status of a code. Static. Any thread. */
const char *query_code_word(enum query_code code);
int query_code_status(enum query_code code);

/* ---- asking -------------------------------------------------------------------------------- */

struct query_conf {
    struct store *store;       /* borrowed until query_free() */
    real_ns now;               /* "now" means the whole second before it */
    mono_ns deadline;          /* 0: none. Beyond: TOO_EXPENSIVE */
    const atomic_bool *cancel; /* NULL: none. Set: CANCELED */
    uint64_t mem_max;          /* bytes for the scan, and again for the answer */
    int64_t max_range_ns;
    uint32_t max_points; /* of a time series */
};

#define QUERY_BY_MAX     3
#define QUERY_GROUPS_MAX 200
#define QUERY_ANY_MAX    16
#define QUERY_FILTER_MAX 16

enum query_agg {
    QUERY_SUM = 0,     /* types of kind sum */
    QUERY_AVERAGE = 1, /* levels: mean over the covered time per series, then their sum */
    QUERY_NOW = 2,     /* the last reading in range */
    QUERY_AT = 3,      /* what held at the instant asked for */
};

/* The parameters that every question shares, as texts; {NULL, 0}: not given. */
struct query_ask {
    struct str q, from, to, agg, at;
    struct str step; /* NAME, NAME:NUMBER or NAME:FIRST-LAST: only samples inside those steps */
    bool need_type;  /* refuse a selector without a type */
    uint32_t n_by;
    struct str by[QUERY_BY_MAX];
    uint32_t groups; /* the largest so many, the others together; 0: 20 */
    uint32_t n_filter;
    struct str filter[QUERY_FILTER_MAX]; /* "verb:[scope=]pattern", applied in this order */
    bool short_names;                    /* functions merge without their template arguments */
};

/* q or from or ... are borrowed during the call. */
[[nodiscard]] int query_open(const struct query_conf *conf, const struct query_ask *ask,
                             struct query **ret, struct query_err *e);

/* NULL is a no-op; returns NULL. */
struct query *query_free(struct query *q);

/* "15s", "250ms"; units ns us ms s m h d w. false, *ret_ns untouched, if it is anything else. */
[[nodiscard]] bool query_duration_parse(struct str s, int64_t *ret_ns);

/* The value that the selector demands of a label with "="; {NULL, 0}: none. */
struct str query_label(const struct query *q, struct str name);

struct query_type {
    ptype_id id; /* PTYPE_NONE: the selector names none */
    struct str name, unit;
    enum ptype_kind kind;
};

/* What step= restricts a question to: the steps of the processes that the selector selects. */
struct query_step_use {
    struct str name; /* {NULL, 0}: no restriction */
    bool numbered;
    uint64_t first, last; /* both included; where numbered */
    uint64_t n, whole;    /* steps that touch the range; of them those wholly inside it */
    uint64_t homeless;    /* further ones that name no process: no sample is known to be theirs */
};

struct query_head {
    struct query_type type;
    enum query_agg agg;
    struct interval range;
    struct interval effective; /* rounded outward to the tiers that were read */
    struct query_step_use step;
    real_ns until; /* end of the range; of a difference the later one */
    bool relative; /* the range moves with the clock; of a difference either does */
    bool partial;  /* beside weights: something that the store has cannot be read */
    uint64_t etag; /* equal: same question to the same data; 0 before an answer */
};
const struct query_head *query_head(const struct query *q);

/* ---- evidence ------------------------------------------------------------------------------ */

enum query_gap_why {
    QUERY_NOT_COVERED = 1,
    QUERY_LOST = 2,
    QUERY_ATTRIBUTE_NOT_KEPT = 3,
};

#define QUERY_GAPS_MAX 100

struct query_gap {
    struct interval t;
    enum query_gap_why why;
};

struct query_tier {
    const char *tier; /* static: raw, minute */
    int64_t resolution_ns;
    struct interval t;
};

struct query_coverage {
    int64_t asked_ns, covered_ns;         /* of the range; covered by at least one source */
    unit_i128 source_asked_ns, source_ns; /* the same, added over sources */
    uint32_t sources;                     /* that said anything about this range */
    uint64_t unknown_sources;             /* series that no source speaks for; or BATCH_UNKNOWN */
    uint32_t n_gap, gaps_more;
    const struct query_gap *gap;
    uint32_t n_tier;
    const struct query_tier *tier;
};

struct query_loss {
    struct str why;
    uint64_t n;       /* or BATCH_UNKNOWN */
    unit_i128 weight; /* or QUERY_UNKNOWN */
};

struct query_quality {
    uint64_t expected, received; /* observations, or BATCH_UNKNOWN */
    uint32_t n_loss;
    const struct query_loss *loss; /* largest weight first */
    unit_i128 no_stack, truncated,
        unsymbolised; /* weights, or QUERY_UNKNOWN: no stacks were read */
    uint32_t basis;   /* a bit per enum basis that occurs */
    uint32_t n_period;
    const int64_t *period; /* distinct, rising */
    int64_t skew_ns;       /* of the sender whose clock is furthest off */
    bool skew_known;
    uint64_t overflow_series;
    uint32_t parts_asked, parts_read, parts_unreadable;
    uint32_t n_warning;
    const struct str *warning; /* "word: text" */
};

enum query_why_empty {
    QUERY_NOT_EMPTY = 0,
    QUERY_NEVER_INGESTED,
    QUERY_NO_AGENT_IN_RANGE,
    QUERY_NO_MATCH,
    QUERY_TYPE_ABSENT,
    QUERY_EXPIRED,
    QUERY_FUTURE,
    QUERY_NO_STEPS,     /* none of the steps asked for is known in this range */
    QUERY_ZERO,         /* covered, and nothing happened */
    QUERY_FILTERED_OUT, /* the filters leave nothing of it */
};
const char *query_why_empty_word(enum query_why_empty why);

struct query_empty {
    enum query_why_empty why;
    struct str matcher; /* of NO_MATCH: the condition that removes all; else empty */
    real_ns last;       /* newest data that there is, of this type if possible; 0: none */
    bool last_known;
};

/* What one filter did, after those before it. */
struct query_filtered {
    struct str text;
    uint64_t functions; /* that its pattern matches, of those in the selection */
    unit_i128 dropped;  /* weight of the samples that it took out */
    uint64_t samples;   /* theirs, or BATCH_UNKNOWN */
};

/* What each answer about weights says first. total + all that filters dropped = whole.total */
struct query_sums {
    unit_i128 total;  /* after filters. QUERY_UNKNOWN: not covered */
    uint64_t samples; /* observations, or BATCH_UNKNOWN */
    double se;        /* standard error of total; negative: unknown */
    struct {
        unit_i128 total;
        uint64_t samples;
    } whole; /* before filters; quality is about this */
    uint32_t n_filtered;
    const struct query_filtered *filtered;
    struct query_coverage coverage;
    struct query_quality quality;
    struct query_empty empty;
};

/* ---- functions and patterns ---------------------------------------------------------------- */

/* What frames are told apart by: the functions of an answer. */
enum query_detail {
    QUERY_OF_FUNCTIONS = 0,
    QUERY_OF_FILES,     /* and the file, where those of one function have several */
    QUERY_OF_LINES,     /* and the line in it; inlined apart from called */
    QUERY_OF_ADDRESSES, /* and the address in the binary, by its build */
    QUERY_OF_FRAMES,    /* all that a sender tells apart */
};

/* Functions merge by (scope, name); key is their hash. kind 0: the root. */
struct query_func {
    struct str scope, name, file, bin; /* bin: base name */
    enum frame_kind kind;
    uint64_t key;
    /* of lines, addresses, frames; 0 unknown */
    uint32_t line;
    uint64_t addr;
    struct str path, build; /* of the binary */
    uint32_t start_line;    /* of frames */
    bool inlined;           /* into its caller; of lines and frames */
};

/* The word for a kind: "native", ...; "" for 0. Static. */
const char *query_kind_word(enum frame_kind kind);

/* ---- flame graph --------------------------------------------------------------------------- */

struct query_flame_ask {
    uint32_t width;           /* pixels: what is narrower than one is hidden; 0: nothing is */
    uint32_t max_nodes;       /* rows, hidden ones included; 0: no limit; else at least 2 */
    uint64_t root;            /* zoom hash of the view's root; 0: the tree's */
    bool by_name;             /* siblings by name instead of by value */
    bool invert;              /* leaves first: callers below callees */
    struct str match;         /* search pattern; {NULL, 0}: none */
    enum query_detail detail; /* what nodes are; root is of functions alone */
};

struct query_step {
    uint32_t func;
    uint64_t hash;
};

struct query_matched {
    uint64_t functions;
    unit_i128 view, total; /* weight of samples with a match, each once */
    uint64_t samples;      /* or BATCH_UNKNOWN */
    uint32_t n_func;       /* flame: indices into func, rising */
    const uint32_t *func;
};

/*
 * A tree in preorder. total[i] = self[i] + the totals of its children, exactly, for every i. A
 * parent with dropped children has one last child with func -1, which stands for hidden[] nodes.
 */
struct query_flame {
    struct query_sums sum;

    uint64_t view_root, view_asked;
    bool view_found;
    uint32_t n_path; /* from the tree's root down to the view's, both included; 0 at the root */
    const struct query_step *path;
    unit_i128 view_total;

    unit_i128 floor, hidden_total;
    uint64_t hidden_nodes;

    bool has_match;
    struct query_matched matched;

    uint32_t n_func;
    const struct query_func *func; /* 0 is the root; by first appearance in path and nodes */

    uint32_t n; /* 0: not covered; 1 with total 0: covered and zero */
    const uint32_t *depth;
    const int32_t *node_func;
    const unit_i128 *self, *total;
    const uint64_t *samples; /* of the subtree, or BATCH_UNKNOWN */
    const uint64_t *hidden;
    const uint64_t *hash; /* zoom hash; 0 for the root and hidden ones */
};

[[nodiscard]] int query_flame(struct query *q, const struct query_flame_ask *ask,
                              struct query_flame *ret, struct query_err *e);

/* ---- table of functions -------------------------------------------------------------------- */

enum query_sort {
    QUERY_BY_SELF = 0,
    QUERY_BY_TOTAL = 1,
    QUERY_BY_SAMPLES = 2,
};

enum query_key {
    QUERY_KEY_FN = 0,
    QUERY_KEY_FILE = 1,
    QUERY_KEY_BIN = 2,
    QUERY_KEY_LINE = 3,
    QUERY_KEY_ADDR = 4,
};

struct query_top_ask {
    enum query_sort sort;
    enum query_key key;
    struct str match; /* only rows that match; {NULL, 0}: all */
    uint32_t n_any;
    struct str any[QUERY_ANY_MAX];
    uint32_t limit;   /* rows; 0: sums alone */
    struct str after; /* the next of the page before; {NULL, 0}: the first page */
};

struct query_row {
    uint32_t func;
    unit_i128 self, total;  /* total: each sample once, however often it recurs */
    unit_i128 unsymbolised; /* of self, where the leaf's function has no name */
    uint64_t samples;       /* those behind total, or BATCH_UNKNOWN */
    uint64_t places;        /* paths of the tree at which it stands, outermost ones only */
};

struct query_any {
    struct str pattern;
    uint64_t functions;
    unit_i128 total;
    uint64_t samples;
};

/* A group of ask.by beside the rows of a table. */
struct query_top_group {
    bool rest;                      /* all that is in no other group */
    struct str label[QUERY_BY_MAX]; /* values of ask.by */
    unit_i128 total;
    uint64_t samples;             /* or BATCH_UNKNOWN */
    const unit_i128 *self, *sums; /* per row of the page: its self and total in this group */
};

struct query_top {
    struct query_sums sum;
    uint64_t rows; /* before limit and after */
    bool has_match;
    struct query_matched matched;
    uint32_t n_any;
    const struct query_any *any;
    struct query_any any_union;
    uint32_t n_func;
    const struct query_func *func; /* func[0] is the root */
    uint32_t n;
    const struct query_row *row;
    struct str next; /* empty: this was the last page */
    uint32_t n_by;
    struct str by[QUERY_BY_MAX];
    uint32_t n_group; /* largest first, the rest last */
    const struct query_top_group *group;
};

[[nodiscard]] int query_top(struct query *q, const struct query_top_ask *ask, struct query_top *ret,
                            struct query_err *e);

/* ---- one function ---------------------------------------------------------------------------- */

struct query_sandwich_ask {
    struct str fn, bin, file; /* exact; bin (base name) and file narrow it, {NULL, 0}: any */
    uint32_t width, max_nodes;
    bool by_name;
};

/*
 * Who calls a function, and what it calls. Each sample is split once, at the outermost occurrence;
 * what recurs below stands among the callees. Row 0 of both trees is the function, with one total.
 * Only the columns, trim and view_total of the two are set.
 */
struct query_sandwich {
    struct query_sums sum;
    uint32_t n_hit; /* functions of this name */
    const uint32_t *hit;
    unit_i128 self, total; /* as in a table of functions */
    uint64_t samples;      /* of total, or BATCH_UNKNOWN */
    uint32_t n_func;
    const struct query_func *func; /* of both trees; 0 stands for several functions */
    struct query_flame callers, callees;
};

[[nodiscard]] int query_sandwich(struct query *q, const struct query_sandwich_ask *ask,
                                 struct query_sandwich *ret, struct query_err *e);

/* ---- difference ------------------------------------------------------------------------------ */

enum query_norm {
    QUERY_NORM_DEFAULT = 0, /* step, if both sides ask for some; else second; of levels none */
    QUERY_NORM_STEP,        /* per step that lies wholly inside the range */
    QUERY_NORM_SECOND,      /* per covered second, added over sources */
    QUERY_NORM_SHARE,       /* of that side's total before filters */
    QUERY_NORM_NONE,
};

enum query_diff_order {
    QUERY_ORDER_B = 0,
    QUERY_ORDER_A = 1,
    QUERY_ORDER_DELTA = 2,
    QUERY_ORDER_NAME = 3,
};

struct query_diff_ask {
    enum query_norm norm;
    enum query_diff_order order;
    bool table;                /* functions instead of a tree */
    uint32_t width, max_nodes; /* of the tree, as in query_flame_ask */
    uint64_t root;             /* of the tree; a table is of all */
    uint32_t limit;            /* rows of the table */
};

struct query_diff_side {
    struct query_head head;
    struct query_sums sum;
    unit_i128 view;  /* total of the view's root, or QUERY_UNKNOWN */
    uint64_t steps;  /* whole ones; BATCH_UNKNOWN: none were asked for */
    double seconds;  /* covered source-seconds; negative: unknown */
    unit_i128 share; /* total before filters, or QUERY_UNKNOWN */
    double norm;     /* what this side is divided by; 0: not possible */
};

enum query_state {
    QUERY_BOTH = 0,
    QUERY_ONLY_A = 1, /* removed */
    QUERY_ONLY_B = 2, /* new */
};

/* One row per node or function. d = b / norm of b - a / norm of a; unset unless comparable. */
struct query_delta {
    double self, total, se; /* se of total; negative: unknown */
    int32_t sig;            /* sign of total where it is certain enough, else 0 */
    double churn;           /* sum of |self| over the subtree, hidden nodes included */
};

struct query_diff {
    struct query_diff_side side[2];
    enum query_norm norm;
    bool comparable;
    const char *why_not; /* static; NULL if comparable */
    double delta, delta_se;
    uint32_t n_warning;
    const struct str *warning;

    uint64_t view_root, view_asked;
    bool view_found;
    uint32_t n_path;
    const struct query_step *path;
    uint64_t hidden_nodes;

    uint32_t n_func;
    const struct query_func *func;
    uint64_t rows; /* of the table, before limit */
    uint32_t n;
    const uint32_t *depth; /* of the tree; NULL: a table */
    const int32_t *node_func;
    const unit_i128 *self[2], *total[2];
    const uint64_t *samples[2], *hidden;
    const uint8_t *state; /* enum query_state */
    const struct query_delta *delta_row;
};

/*
 * Both questions from one moment of the store, in one scan. a and b differ in q, from, to; the rest
 * is taken from a.
 *   errors  TYPES_DIFFER, PERIOD_UNKNOWN, NORM_NOT_FOR_LEVEL. e->param of a side's own parameter is
 *           the bare name; *ret_side says whose
 */
[[nodiscard]] int query_open_diff(const struct query_conf *conf, const struct query_ask *a,
                                  const struct query_ask *b, struct query **ret, uint32_t *ret_side,
                                  struct query_err *e);
[[nodiscard]] int query_diff(struct query *q, const struct query_diff_ask *ask,
                             struct query_diff *ret, struct query_err *e);

/* ---- time series --------------------------------------------------------------------------- */

struct query_series_ask {
    uint32_t points;   /* at most so many buckets of whole seconds; 0: bucket_ns says */
    int64_t bucket_ns; /* exactly this long */
};

struct query_line {
    bool rest;                      /* all that is in no other line */
    struct str label[QUERY_BY_MAX]; /* values of ask.by */
    unit_i128 total;                /* or QUERY_UNKNOWN */
    const unit_i128 *value;         /* per bucket; QUERY_UNKNOWN: not covered */
    const uint64_t *samples;        /* or BATCH_UNKNOWN */
    const int64_t *covered_ns;      /* by at least one source */
    const unit_i128 *lost;          /* weight, or QUERY_UNKNOWN */
};

struct query_series {
    struct query_sums sum;
    real_ns base;
    int64_t bucket_ns;
    bool raised; /* the data are coarser than what was asked for */
    uint32_t n;  /* buckets; the last is cut at the range's end */
    uint32_t n_by;
    struct str by[QUERY_BY_MAX];
    uint32_t n_line;
    const struct query_line *line;
    /* of all lines together, each source once: what several groups share is in each of their lines
     */
    const int64_t *covered_ns;
    const unit_i128 *lost;
};

[[nodiscard]] int query_series(struct query *q, const struct query_series_ask *ask,
                               struct query_series *ret, struct query_err *e);

/* ---- what there is ------------------------------------------------------------------------- */

struct query_type_row {
    struct query_type type;
    bool builtin;
    uint32_t sources;
    struct interval seen;
};
struct query_types {
    uint32_t n;
    const struct query_type_row *row;
};
[[nodiscard]] int query_types(struct query *q, struct query_types *ret, struct query_err *e);

struct query_name_row {
    struct str name;
    uint64_t values;
    bool attribute;
};
struct query_names {
    uint32_t n;
    const struct query_name_row *row;
};
[[nodiscard]] int query_names(struct query *q, struct query_names *ret, struct query_err *e);

struct query_values_ask {
    struct str name, prefix, after;
    uint32_t limit;
};
struct query_values {
    uint32_t n;
    const struct str *value; /* rising by bytes */
    bool truncated;          /* there are more behind the last */
};
[[nodiscard]] int query_values(struct query *q, const struct query_values_ask *ask,
                               struct query_values *ret, struct query_err *e);

struct query_target_row {
    uint64_t id;
    struct target_key key;
    struct str exe, cmdline, comm, cgroup, container;
    uint32_t flags; /* enum target_flag */
    uint32_t n_type;
    const struct query_type *type;
    struct interval seen;
};
struct query_targets {
    uint32_t n;
    const struct query_target_row *row; /* last seen first */
    bool truncated;
};
/* after: id of the last row of the page before; 0: the first page */
[[nodiscard]] int query_targets(struct query *q, uint32_t limit, uint64_t after,
                                struct query_targets *ret, struct query_err *e);

struct query_sender_row {
    uint8_t agent[16], boot[16];
    uint64_t seq;
    real_ns last;
};
/* The newest state of one source (a scope of one type). */
struct query_source_row {
    struct query_type type;
    struct str host; /* its label, if it has one */
    enum source_state state;
    struct str why;
    real_ns last;
};
struct query_status {
    const char *state; /* static: ok, tight, full, read_only */
    struct str state_why;
    uint64_t disk_free, disk_used, bytes_per_day;
    uint64_t lsn, batches, rows, series, nodes, head_rows, journal_bytes;
    real_ns oldest, newest, raw_from; /* 0: no data */
    uint32_t n_sender, senders_more;
    const struct query_sender_row *sender; /* newest first */
    uint32_t n_source, sources_more;
    const struct query_source_row *source; /* of the range, those not ok first */
};
[[nodiscard]] int query_status(struct query *q, struct query_status *ret, struct query_err *e);

/* ---- beside weights ---------------------------------------------------------------------------
 *
 * Steps, metrics and events belong to processes and have labels of their own, not those of the
 * series. A selector takes them if their own labels and process fulfil it, or if it selects data of
 * their process in this range.
 */

struct query_pair {
    struct str name, value;
};
struct query_labels {
    uint32_t n;
    const struct query_pair *v; /* by name, rising */
};

/* The process that something belongs to. */
struct query_owner {
    bool known; /* false: the host, or nobody said */
    uint64_t id;
};

/* Label sets with data. */
struct query_set_row {
    uint64_t id; /* of type and labels: what after takes */
    struct query_type type;
    struct query_labels labels;
    struct interval seen;
};
struct query_sets {
    uint32_t n;
    const struct query_set_row *row;
    bool truncated;
};
/* after: id of the last row of the page before; 0: the first page */
[[nodiscard]] int query_sets(struct query *q, uint32_t limit, uint64_t after,
                             struct query_sets *ret, struct query_err *e);

enum query_step_sort {
    QUERY_STEPS_BY_TIME = 0,     /* earliest first */
    QUERY_STEPS_BY_DURATION = 1, /* longest first */
};
struct query_steps_ask {
    struct str name; /* {NULL, 0}: every name */
    enum query_step_sort sort;
    uint32_t limit;
    struct str after; /* the next of the page before */
};
struct query_step_row {
    uint32_t name; /* index into query_steps.name */
    struct query_owner owner;
    struct query_labels labels;
    uint64_t number;
    struct interval t; /* as it was reported, also beyond the range */
    uint32_t tid;      /* 0 unknown */
    bool inferred;
    const int64_t *part_ns; /* query_steps.n_part of them, -1 unknown; NULL: all unknown */
};
/* Durations of all steps of a name, whatever page is shown; quantiles by nearest rank. */
struct query_step_name {
    struct str name;
    uint64_t n;
    int64_t min_ns, p50_ns, p90_ns, p99_ns, max_ns, mean_ns;
};
struct query_steps {
    uint32_t n_name;
    const struct query_step_name *name; /* by bytes */
    uint32_t n_part;
    const struct str *part; /* of the rows of this page, by bytes */
    uint32_t n;
    const struct query_step_row *row;
    struct str next; /* empty: this was the last page */
};
[[nodiscard]] int query_steps(struct query *q, const struct query_steps_ask *ask,
                              struct query_steps *ret, struct query_err *e);

struct query_event_row {
    real_ns t;
    struct str kind, text;
    struct query_owner owner;
};
struct query_events {
    uint32_t n;
    const struct query_event_row *row; /* by time */
    struct str next;
};
[[nodiscard]] int query_events(struct query *q, uint32_t limit, struct str after,
                               struct query_events *ret, struct query_err *e);

/* What a source said, the best first: of several at one instant the best counts. */
enum query_run_state {
    QUERY_RUN_OK = 0,
    QUERY_RUN_LOST, /* it looked, and the whole batch was given up on its way */
    QUERY_RUN_PAUSED,
    QUERY_RUN_REFUSED,
    QUERY_RUN_ABSENT,
};
const char *query_run_word(enum query_run_state state);

struct query_run {
    struct interval t;
    enum query_run_state state;
    struct str why;
};
struct query_loss_run {
    struct interval t; /* the stretch that the loss was reported for */
    struct query_loss loss;
};

enum query_cover_by {
    QUERY_COVER_BY_SOURCE = 0, /* each scope of each type alone */
    QUERY_COVER_BY_HOST = 1,   /* type and label host */
    QUERY_COVER_BY_TARGET = 2, /* type and process */
};

#define QUERY_RUNS_MAX 1000

/* One source, or what by puts together. */
struct query_source {
    struct query_type type;
    struct str host;            /* its label; empty: none, or by target */
    struct query_owner owner;   /* by source and target */
    struct query_labels labels; /* by source */
    uint32_t scopes;
    int64_t covered_ns;
    unit_i128 asked_ns, source_ns; /* added over scopes */
    bool ended;                    /* every scope of it has */
    uint32_t n_run, runs_more;
    const struct query_run *run; /* rising, apart; what lies between them nobody spoke of */
    uint32_t n_lost;
    const struct query_loss *lost; /* by reason, largest weight first */
    uint32_t n_loss_run, loss_runs_more;
    const struct query_loss_run *loss_run; /* by time */
};
struct query_cover_answer {
    uint32_t n, more;
    const struct query_source *source; /* by type, then as the store has them */
};
/* Of the selector's type, or of every type. */
[[nodiscard]] int query_coverage(struct query *q, enum query_cover_by by, uint32_t limit,
                                 struct query_cover_answer *ret, struct query_err *e);

struct query_metric {
    uint64_t id; /* of name, unit, kind, labels and process: what after takes */
    struct str name, unit;
    enum metric_kind kind;
    struct query_labels labels;
    struct query_owner owner;
};
struct query_metric_row {
    struct query_metric metric;
    uint64_t n;                /* readings in range, failed ones included */
    enum metric_status status; /* of the last */
    bool is_int;               /* the last is in inum, else in num; METRIC_OK alone has one */
    double num;
    int64_t inum;
    struct interval seen; /* first and last reading */
};
struct query_metrics {
    uint32_t n;
    const struct query_metric_row *row; /* by name, unit, then id */
    bool truncated;
};
/* name: n_name of them, no two alike; 0: all */
[[nodiscard]] int query_metrics(struct query *q, const struct str *name, uint32_t n_name,
                                uint32_t limit, uint64_t after, struct query_metrics *ret,
                                struct query_err *e);

enum query_metric_agg {
    QUERY_METRIC_AUTO = 0, /* avg of gauges, rate of counters */
    QUERY_METRIC_AVG,      /* mean of the readings */
    QUERY_METRIC_MIN,
    QUERY_METRIC_MAX,
    QUERY_METRIC_LAST,
    QUERY_METRIC_RATE, /* of counters: growth per second of what lies between two readings */
};
const char *query_metric_agg_word(enum query_metric_agg agg);

/* Why a bucket holds no number. Beside enum metric_status, which comes first. */
enum query_metric_none {
    QUERY_METRIC_NO_DATA = 16,
    QUERY_METRIC_RESET,        /* the counter fell, and nothing else is known of this stretch */
    QUERY_METRIC_OUT_OF_RANGE, /* the sum of the readings is beyond a double */
};
const char *query_metric_status_word(uint8_t status);

struct query_metric_ask {
    struct str name;
    enum query_metric_agg agg;
    struct query_series_ask bucket;
    uint32_t limit; /* of series: beyond it TOO_MANY_SERIES */
};
/* One metric series; never added to another. */
struct query_metric_line {
    struct query_metric metric;
    enum query_metric_agg agg; /* never AUTO */
    uint64_t readings, resets; /* those with a number; falls of a counter */
    const double *num;         /* per bucket; exactly one of num and inum */
    const int64_t *inum;
    const uint8_t *status; /* METRIC_OK: there is a number */
};
struct query_metric_lines {
    real_ns base;
    int64_t bucket_ns;
    uint32_t n; /* buckets; the last is cut at the range's end */
    uint32_t n_line;
    const struct query_metric_line *line; /* by unit, then id */
};
[[nodiscard]] int query_metric_lines(struct query *q, const struct query_metric_ask *ask,
                                     struct query_metric_lines *ret, struct query_err *e);
