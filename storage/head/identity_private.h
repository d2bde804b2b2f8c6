// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/map.h"
#include "base/sample.h"

/*
 * Who sent what: a batch counts once, however often it comes. Of each sender (agent, boot) the last
 * 1,024 numbers are known with their content. A number that is on its way is reserved: whoever
 * brings it meanwhile waits for that outcome, and a failure frees it, so that a resend is stored.
 * Protected by the lock "admit" of the store.
 */
#define IDENTITY_WINDOW 1024u

struct append;
struct arena;
struct catalog_change;
struct catalog_sender;
struct identity_sender;

struct identity {
    struct identity_sender **sender;
    uint32_t n, room;
    struct map by_hash; /* hash of (agent, boot) -> index + 1 of the first with it */
    uint64_t seed;
    uint8_t (*forgot)[32]; /* agent, boot: not in the catalog's next state any more */
    uint32_t n_forgot;
};

struct identity_view {
    const uint8_t *agent, *boot;
    uint64_t seq;
    real_ns last;
};

enum identity_answer {
    IDENTITY_NEW = 0, /* reserved for flight */
    IDENTITY_DUPLICATE,
    IDENTITY_CONFLICT,
    IDENTITY_TOO_OLD,
    IDENTITY_IN_FLIGHT, /* *ret_flight carries it */
};

void identity_init(struct identity *id, uint64_t seed);
void identity_deinit(struct identity *id);

/* No identity: nothing is checked, nothing remembered. */
bool identity_none(const uint8_t agent[16]);

/* What is known of it; nothing changes but where the answer is NEW: that is then reserved for
 * flight. Negative: -ENOMEM. */
int identity_claim(struct identity *id, const struct batch_id *b, real_ns received,
                   struct append *flight, struct append **ret_flight);

/* The outcome of a claim: known from now on, as of lsn; or, lsn 0, free again. */
void identity_settle(struct identity *id, const struct batch_id *b, struct append *flight,
                     uint64_t lsn);

/* What the catalog knows: all numbers of a sender. False: memory is short. */
[[nodiscard]] bool identity_load(struct identity *id, const struct catalog_sender *x);
/* What it has to learn: numbers stored after one LSN and up to another; and senders forgotten since
 * identity_told(). In the arena. False: memory is short. */
[[nodiscard]] bool identity_export(const struct identity *id, uint64_t after, uint64_t upto,
                                   struct arena *a, struct catalog_change *ret);
void identity_told(struct identity *id, uint32_t n_forget);

/* Forget senders that were last heard of before that. */
void identity_forget(struct identity *id, real_ns before);

/* Sender i of id->n, newest last in no order; sorted by the caller. */
struct identity_view identity_at(const struct identity *id, uint32_t i);
