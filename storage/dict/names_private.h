// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/sample.h"
#include "storage/file/text_private.h"
#include "storage/store.h"

/*
 * What lives as long as the store: label sets, services, imported types, series. Their ids are
 * those of the catalog: dense from 1, never used for anything else, the same in every part and
 * epoch. The catalog is read into it whole at the start, in order of ids, and gets what is new with
 * each seal.
 *
 * Writer: the opening thread, then the apply thread. Readers: below the lengths of a names_snap.
 */
struct names_labels {
    uint32_t n;
    const uint32_t *pair;        /* texts: name, value; by name, rising */
    const struct store_label *v; /* the same as bytes */
};

struct names_svc {
    uint32_t name;         /* text */
    uint32_t n_series;     /* writer */
    _Atomic uint32_t last; /* its newest series, which may be younger than a snapshot */
};

struct names_ptype {
    ptype_id id;         /* PTYPE_IMPORTED_FIRST + index - 1 */
    uint32_t name, unit; /* texts */
    enum ptype_kind kind;
};

struct names_series {
    ptype_id type;
    uint32_t labels, svc;
    uint32_t before; /* the service's series before this one, 0: none */
    bool overflow;   /* folded: label __overflow__ */
};

/* Lengths, entry 0 included. */
struct names_snap {
    uint32_t labels, svc, ptype, series;
};

struct names {
    struct pool pool;
    struct texts text;
    struct table labels, svc, ptype, series;
    uint32_t n_folded_series;
};

[[nodiscard]] bool names_init(struct names *n, uint64_t seed);
void names_deinit(struct names *n);
struct names_snap names_snap(const struct names *n); /* writer */

/* Ids; UINT32_MAX when memory is short. Found, else added as the next one. The empty set is 0. */
uint32_t names_service(struct names *n, struct str name);
ptype_id names_type(struct names *n, struct str name, struct str unit, enum ptype_kind kind);
/* pair: n texts of names and values, in any order; of two with one name the later counts, an empty
 * value is no label. Sorted in place. */
uint32_t names_label_set(struct names *x, uint32_t n, uint32_t *pair);
/* Series of a label set that holds a service. Beyond the limits: the folded series of the service
 * or of all. */
uint32_t names_series_of(struct names *n, ptype_id type, uint32_t labels,
                         const struct batch_limits *limits);
/* For loading: no limit, the service is named. */
uint32_t names_add_series(struct names *n, ptype_id type, uint32_t svc, uint32_t labels);

/* Is each pair of a also in b? */
bool names_labels_within(const struct names_labels *a, const struct names_labels *b);
/* Text of a built-in or imported type; false if there is no such type below n_ptype. */
bool names_type_info(const struct names *n, uint32_t n_ptype, ptype_id id, struct store_type *ret);

static inline struct str names_str(const struct names *n, uint32_t text)
{
    return text_of(&n->text, text);
}

static inline const struct names_labels *names_labels(const struct names *n, uint32_t set)
{
    return TABLE(&n->labels, struct names_labels, set);
}

static inline const struct names_series *names_series(const struct names *n, uint32_t series)
{
    return TABLE(&n->series, struct names_series, series);
}

/* The newest series of a service below n_series; older ones by names_series.before. 0: none. */
uint32_t names_last_series(const struct names *n, uint32_t svc, uint32_t n_series);
