// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/hash.h"
#include "storage/catalog/catalog_private.h"
#include "storage/head/identity_private.h"

struct entry {
    uint64_t seq, content, lsn; /* lsn: 0 from the catalog */
    struct append *flight;      /* NULL: stored */
    bool used;
};

/* entry[seq % room]; room is a power of two up to the window, in which no two numbers of the window
 * share a place. */
struct identity_sender {
    uint8_t key[32];
    uint64_t hi;
    real_ns last;
    uint32_t next; /* index + 1 of the next one with that hash */
    uint32_t room;
    struct entry *entry;
};

void identity_init(struct identity *id, uint64_t seed)
{
    *id = (struct identity){.seed = seed};
    map_init(&id->by_hash, 0);
}

static void free_sender(struct identity_sender *s)
{
    free(s->entry);
    free(s);
}

void identity_deinit(struct identity *id)
{
    for (uint32_t i = 0; i < id->n; i++)
        free_sender(id->sender[i]);
    free(id->sender);
    free(id->forgot);
    map_deinit(&id->by_hash);
    *id = (struct identity){};
}

bool identity_none(const uint8_t agent[16])
{
    static const uint8_t zero[16];

    return memcmp(agent, zero, sizeof zero) == 0;
}

static void key_of(const struct batch_id *b, uint8_t key[32])
{
    memcpy(key, b->agent, 16);
    memcpy(key + 16, b->boot, 16);
}

static struct identity_sender *find(const struct identity *id, const uint8_t key[32])
{
    uint64_t at;

    if (!map_get(&id->by_hash, hash_seed(key, 32, id->seed), &at))
        return NULL;
    for (uint32_t i = (uint32_t)at; i != 0; i = id->sender[i - 1]->next) {
        if (memcmp(id->sender[i - 1]->key, key, 32) == 0)
            return id->sender[i - 1];
    }
    return NULL;
}

static bool link_in(struct identity *id, uint32_t i)
{
    struct identity_sender *s = id->sender[i];
    uint64_t *at;

    if (map_at(&id->by_hash, hash_seed(s->key, 32, id->seed), &at) == MAP_FULL)
        return false;
    s->next = (uint32_t)*at;
    *at = i + 1;
    return true;
}

static struct identity_sender *add(struct identity *id, const uint8_t key[32])
{
    struct identity_sender *s;

    if (id->n == id->room) {
        uint32_t room = id->room ? 2 * id->room : 64;
        struct identity_sender **v = realloc(id->sender, room * sizeof(struct identity_sender *));

        if (!v)
            return NULL;
        id->sender = v;
        id->room = room;
    }
    s = mem_fail_now() ? NULL : calloc(1, sizeof *s);
    if (!s)
        return NULL;
    s->room = 8;
    s->entry = calloc(s->room, sizeof *s->entry);
    memcpy(s->key, key, 32);
    id->sender[id->n] = s;
    if (!s->entry || !link_in(id, id->n)) {
        free_sender(s);
        return NULL;
    }
    id->n++;
    return s;
}

static struct entry *slot(struct identity_sender *s, uint64_t seq)
{
    return &s->entry[seq & (s->room - 1)];
}

static bool in_window(const struct identity_sender *s, uint64_t seq)
{
    return seq > s->hi || s->hi - seq < IDENTITY_WINDOW;
}

/* Make the place of seq free of numbers that still matter. */
static bool make_room(struct identity_sender *s, uint64_t seq)
{
    uint64_t hi = seq > s->hi ? seq : s->hi;

    while (slot(s, seq)->used && slot(s, seq)->seq != seq &&
           hi - slot(s, seq)->seq < IDENTITY_WINDOW) {
        struct entry *old = s->entry;
        uint32_t n = s->room;

        assert(n < IDENTITY_WINDOW);
        s->entry = calloc((size_t)2 * n, sizeof *old);
        if (!s->entry) {
            s->entry = old;
            return false;
        }
        s->room = 2 * n;
        for (uint32_t i = 0; i < n; i++) {
            if (old[i].used)
                *slot(s, old[i].seq) = old[i];
        }
        free(old);
    }
    return true;
}

int identity_claim(struct identity *id, const struct batch_id *b, real_ns received,
                   struct append *flight, struct append **ret_flight)
{
    struct identity_sender *s;
    const struct entry *e;
    uint8_t key[32];

    key_of(b, key);
    s = find(id, key);
    if (!s)
        s = add(id, key);
    if (!s)
        return -ENOMEM;
    if (!in_window(s, b->seq))
        return IDENTITY_TOO_OLD;
    e = slot(s, b->seq);
    if (e->used && e->seq == b->seq) {
        if (e->flight) {
            *ret_flight = e->flight;
            return IDENTITY_IN_FLIGHT;
        }
        return e->content == b->content ? IDENTITY_DUPLICATE : IDENTITY_CONFLICT;
    }
    if (!make_room(s, b->seq))
        return -ENOMEM;
    *slot(s, b->seq) =
        (struct entry){.seq = b->seq, .content = b->content, .flight = flight, .used = true};
    if (b->seq > s->hi)
        s->hi = b->seq;
    if (received.v > s->last.v)
        s->last = received;
    return IDENTITY_NEW;
}

void identity_settle(struct identity *id, const struct batch_id *b, struct append *flight,
                     uint64_t lsn)
{
    struct identity_sender *s;
    struct entry *e;
    uint8_t key[32];

    key_of(b, key);
    s = find(id, key);
    e = s ? slot(s, b->seq) : NULL;
    if (!e || !e->used || e->seq != b->seq || e->flight != flight)
        return; /* 1,024 further numbers came meanwhile */
    if (lsn) {
        e->flight = NULL;
        e->lsn = lsn;
        return;
    }
    *e = (struct entry){};
    if (s->hi != b->seq)
        return;
    /* a number that was never stored must not make others too old */
    s->hi = 0;
    for (uint32_t i = 0; i < s->room; i++) {
        if (s->entry[i].used && s->entry[i].seq > s->hi)
            s->hi = s->entry[i].seq;
    }
}

static bool in_flight(const struct identity_sender *s)
{
    for (uint32_t i = 0; i < s->room; i++) {
        if (s->entry[i].used && s->entry[i].flight)
            return true;
    }
    return false;
}

/* Without memory the catalog keeps it: it is forgotten again some other day. */
static void note_forgotten(struct identity *id, const struct identity_sender *s)
{
    void *v = realloc(id->forgot, (id->n_forgot + 1) * sizeof *id->forgot);

    if (!v)
        return;
    id->forgot = v;
    memcpy(id->forgot[id->n_forgot++], s->key, sizeof s->key);
}

void identity_forget(struct identity *id, real_ns before)
{
    uint32_t n = 0;

    map_clear(&id->by_hash);
    for (uint32_t i = 0; i < id->n; i++) {
        struct identity_sender *s = id->sender[i];

        if (s->last.v < before.v && !in_flight(s)) {
            note_forgotten(id, s);
            free_sender(s);
            continue;
        }
        id->sender[n] = s;
        if (link_in(id, n)) /* there was room for more of them a moment ago */
            n++;
    }
    id->n = n;
}

struct identity_view identity_at(const struct identity *id, uint32_t i)
{
    const struct identity_sender *s = id->sender[i];

    return (struct identity_view){
        .agent = s->key, .boot = s->key + 16, .seq = s->hi, .last = s->last};
}

/* ---- the catalog --------------------------------------------------------------------------- */

bool identity_load(struct identity *id, const struct catalog_sender *x)
{
    struct batch_id b = {};
    struct append *flight;

    memcpy(b.agent, x->agent, sizeof b.agent);
    memcpy(b.boot, x->boot, sizeof b.boot);
    for (uint32_t i = 0; i < x->n_seen; i++) {
        b.seq = x->seen[i].seq;
        b.content = x->seen[i].content;
        if (identity_claim(id, &b, x->last, NULL, &flight) < 0)
            return false;
    }
    return true;
}

static bool is_new(const struct entry *e, uint64_t after, uint64_t upto)
{
    return e->used && !e->flight && e->lsn > after && e->lsn <= upto;
}

static bool export(const struct identity_sender *s, uint64_t after, uint64_t upto, struct arena *a,
                   struct catalog_sender *ret)
{
    struct catalog_seen *seen;
    uint32_t n = 0;

    for (uint32_t i = 0; i < s->room; i++)
        n += is_new(&s->entry[i], after, upto);
    *ret = (struct catalog_sender){.last = s->last};
    if (n == 0)
        return true;
    seen = arena_array(a, struct catalog_seen, n);
    if (!seen)
        return false;
    memcpy(ret->agent, s->key, 16);
    memcpy(ret->boot, s->key + 16, 16);
    ret->seen = seen;
    for (uint32_t i = 0; i < s->room; i++) {
        const struct entry *e = &s->entry[i];

        if (is_new(e, after, upto))
            seen[ret->n_seen++] = (struct catalog_seen){e->seq, e->content};
        if (e->used && !e->flight && e->lsn <= upto && e->seq > ret->hi)
            ret->hi = e->seq;
    }
    return true;
}

bool identity_export(const struct identity *id, uint64_t after, uint64_t upto, struct arena *a,
                     struct catalog_change *ret)
{
    struct catalog_sender *v = arena_array(a, struct catalog_sender, id->n);
    struct catalog_sender *gone = arena_array(a, struct catalog_sender, id->n_forgot);

    if (!v || !gone)
        return false;
    for (uint32_t i = 0; i < id->n; i++) {
        if (!export(id->sender[i], after, upto, a, &v[ret->n_sender]))
            return false;
        ret->n_sender += v[ret->n_sender].n_seen > 0;
    }
    for (uint32_t i = 0; i < id->n_forgot; i++) {
        if (find(id, id->forgot[i]))
            continue; /* it came back */
        memcpy(gone[ret->n_forget].agent, id->forgot[i], 16);
        memcpy(gone[ret->n_forget++].boot, id->forgot[i] + 16, 16);
    }
    ret->sender = v;
    ret->forget = gone;
    return true;
}

void identity_told(struct identity *id, uint32_t n_forget)
{
    if (n_forget == 0)
        return;
    id->n_forgot -= n_forget;
    memmove(id->forgot, id->forgot + n_forget, id->n_forgot * sizeof *id->forgot);
}
