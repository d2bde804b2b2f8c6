// SPDX-License-Identifier: Apache-2.0
#include "agent/source/stackagg.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/python/pymend.h"
#include "base/hash.h"
#include "base/loss.h"

#define NO_ROW     UINT32_MAX
#define SPARE_ROWS 4096 /* for [no stack: table_full] of single threads */
#define TEXTS_CAP  ((size_t)64 << 20)

struct stackagg {
    struct stackagg_window *w;
    uint32_t room_who, room_row, room_word, room_py, room_holder;
    bool own_times;
    struct map by_hash;     /* -> row + 1, chained by same_hash */
    struct map by_serial;   /* mix of serial and facts -> who */
    struct map by_py;       /* key of a function -> index in the window's */
    real_ns since;          /* of the next record; 0: its second */
    struct stackagg_pys py; /* of the next record */
    struct sa_ev *mended;   /* room for pymend() */
};

static struct stackagg_window *window_new(void)
{
    struct stackagg_window *w = xcalloc(1, sizeof *w);

    arena_init(&w->texts, TEXTS_CAP);
    return w;
}

struct stackagg *stackagg_new(void)
{
    struct stackagg *a = xcalloc(1, sizeof *a);

    a->w = window_new();
    map_init(&a->by_hash, 0);
    map_init(&a->by_serial, 0);
    map_init(&a->by_py, 0);
    a->mended = xmalloc(sizeof *a->mended + PYMEND_WORDS * sizeof *a->mended->w);
    return a;
}

void stackagg_keep_times(struct stackagg *a)
{
    a->own_times = true;
}

struct stackagg_window *stackagg_window_free(struct stackagg_window *w)
{
    if (!w)
        return NULL;
    arena_deinit(&w->texts);
    free(w->who);
    free(w->row);
    free(w->word);
    free(w->step);
    free(w->py);
    free(w->holder);
    free(w);
    return NULL;
}

struct stackagg *stackagg_free(struct stackagg *a)
{
    if (!a)
        return NULL;
    stackagg_window_free(a->w);
    map_deinit(&a->by_hash);
    map_deinit(&a->by_serial);
    map_deinit(&a->by_py);
    free(a->mended);
    free(a);
    return NULL;
}

/* ---- who ----------------------------------------------------------------------------------- */

static struct label *copy_labels(struct arena *t, const struct label *l, uint32_t n)
{
    struct label *c = arena_array(t, struct label, n ? n : 1);

    for (uint32_t i = 0; c && i < n; i++)
        c[i] = (struct label){arena_str(t, l[i].name), arena_str(t, l[i].value)};
    return c;
}

static void set_who(struct stackagg *a, struct stackagg_who *who, const struct proc *p)
{
    struct arena *t = &a->w->texts;

    *who = (struct stackagg_who){.serial = p->serial,
                                 .key = p->key,
                                 .host_pid = p->tgid,
                                 .flags = p->flags,
                                 .exe = arena_str(t, p->exe),
                                 .cmdline = arena_str(t, p->cmdline),
                                 .comm = arena_str(t, p->comm),
                                 .cgroup = arena_str(t, p->cgroup),
                                 .container = arena_str(t, p->container)};
    who->env = arena_array(t, struct label, p->n_env ? p->n_env : 1);
    for (uint32_t i = 0; who->env && i < p->n_env; i++) {
        if (!p->env[i].local)
            who->env[who->n_env++] =
                (struct label){arena_str(t, p->env[i].name), arena_str(t, p->env[i].value)};
    }
    who->label = copy_labels(t, p->label, p->n_label);
    who->n_label = who->label ? p->n_label : 0;
}

static void set_unknown(struct stackagg *a, struct stackagg_who *who, const struct sa_ev *ev,
                        const uint8_t host[static 16])
{
    struct proc p = {.tgid = ev->tgid,
                     .serial = UINT64_C(1) << 63 | ev->tgid,
                     .flags = TARGET_UNSEEN,
                     .comm = {ev->comm, strnlen(ev->comm, sizeof ev->comm)}};

    struct labels_counts counts = {}; /* of a thread's name: not worth a metric */
    struct str comm = labels_value(p.comm, &a->w->texts, &counts);
    struct label service = {STR("service"), comm.n ? comm : STR("unknown")};

    memcpy(p.key.host, host, sizeof p.key.host);
    p.label = &service;
    p.n_label = 1;
    set_who(a, who, &p);
}

static uint32_t who_of(struct stackagg *a, const struct sa_ev *ev, const struct proc *p,
                       const uint8_t *host)
{
    uint64_t key, v;

    assert(p || (ev && host));
    key = p ? hash_mix(p->serial << 20 ^ p->facts) : hash_mix(~(uint64_t)ev->tgid);
    if (map_get(&a->by_serial, key, &v))
        return (uint32_t)v;
    if (a->w->n_who == a->room_who) {
        a->room_who = a->room_who ? 2 * a->room_who : 64;
        a->w->who = xrealloc(a->w->who, a->room_who * sizeof *a->w->who);
    }
    if (p)
        set_who(a, &a->w->who[a->w->n_who], p);
    else
        set_unknown(a, &a->w->who[a->w->n_who], ev, host);
    (void)map_put(&a->by_serial, key, a->w->n_who);
    return a->w->n_who++;
}

/* ---- rows ---------------------------------------------------------------------------------- */

/* Raw addresses whose mapping is known by now: as if it had been known to the program. */
static uint64_t settle_word(uint64_t w, const struct proc *p)
{
    const struct proc_map *m;
    uint64_t addr = w & SA_W_RAWBITS, elf;

    if ((w & SA_W_TAG) != SA_W_RAW || !p)
        return w;
    m = proc_map_find(p, addr);
    if (!m)
        return w;
    if (!m->bin)
        return str_eq(str_c(m->why), STR("anonymous")) ? w | STACKAGG_W_ANON : w;
    elf = addr - m->bias;
    if (elf >> 40)
        return w;
    return SA_W_NATIVE | (uint64_t)m->bin->id << 40 | elf;
}

static uint64_t row_hash(const struct stackagg_row *r, const uint64_t *words)
{
    uint64_t h = hash_bytes(words, ((size_t)r->nk + r->nu) * sizeof *words);

    h ^=
        hash_mix((uint64_t)r->tid << 32 ^ r->who ^ (uint64_t)r->stop << 56 ^ (uint64_t)r->nk << 20);
    h ^= hash_mix((uint64_t)r->gil_asked << 33 | (uint64_t)r->off << 32 | r->holder);
    return h ^ hash_seed(r->comm, sizeof r->comm, (uint64_t)r->t.v);
}

static bool same_words(const uint64_t *a, const uint64_t *b, uint32_t n)
{
    return n == 0 || memcmp(a, b, n * sizeof *a) == 0;
}

static bool row_equal(const struct stackagg *a, const struct stackagg_row *x,
                      const struct stackagg_row *y, const uint64_t *y_words)
{
    return x->hash == y->hash && x->t.v == y->t.v && x->who == y->who && x->tid == y->tid &&
           x->stop == y->stop && x->nk == y->nk && x->nu == y->nu && x->off == y->off &&
           x->holder == y->holder && x->gil_asked == y->gil_asked &&
           memcmp(x->comm, y->comm, sizeof x->comm) == 0 &&
           same_words(a->w->word + x->word, y_words, (uint32_t)x->nk + x->nu);
}

static bool word_room(struct stackagg *a, uint32_t n)
{
    if (n > STACKAGG_WORDS - a->w->n_word)
        return false;
    if (a->w->n_word + n > a->room_word || !a->w->word) {
        a->room_word = a->room_word ? 2 * a->room_word : 16384;
        a->w->word = xrealloc(a->w->word, a->room_word * sizeof *a->w->word);
    }
    return true;
}

/* Adds r to the row that equals it, or as a new row while there are fewer than limit. */
static bool put(struct stackagg *a, struct stackagg_row *r, const uint64_t *words, uint32_t limit)
{
    struct stackagg_window *w = a->w;
    uint32_t n = (uint32_t)r->nk + r->nu;
    uint64_t *slot;

    r->hash = row_hash(r, words);
    if (map_at(&a->by_hash, r->hash, &slot) == MAP_FULL)
        return false;
    for (uint32_t i = *slot ? (uint32_t)*slot - 1 : NO_ROW; i != NO_ROW; i = w->row[i].same_hash) {
        if (row_equal(a, &w->row[i], r, words)) {
            w->row[i].count += r->count;
            w->row[i].weight += r->weight;
            w->row[i].gil_count += r->gil_count;
            w->row[i].gil_weight += r->gil_weight;
            w->row[i].runq_count += r->runq_count;
            w->row[i].runq_weight += r->runq_weight;
            w->row[i].again += r->again;
            return true;
        }
    }
    if (w->n_row >= limit || !word_room(a, n)) {
        if (*slot == 0)
            map_del(&a->by_hash, r->hash);
        return false;
    }
    if (w->n_row == a->room_row) {
        a->room_row = a->room_row ? 2 * a->room_row : 1024;
        w->row = xrealloc(w->row, a->room_row * sizeof *w->row);
    }
    r->word = w->n_word;
    if (n)
        memcpy(w->word + w->n_word, words, n * sizeof *words);
    w->n_word += n;
    r->same_hash = *slot ? (uint32_t)*slot - 1 : NO_ROW;
    w->row[w->n_row] = *r;
    *slot = ++w->n_row;
    return true;
}

static void put_without_stack(struct stackagg *a, struct stackagg_row *r)
{
    a->w->table_full++;
    r->stop = STACKAGG_TABLE_FULL;
    r->nk = r->nu = 0;
    if (put(a, r, NULL, STACKAGG_ROWS + SPARE_ROWS))
        return;
    r->tid = 0;
    memset(r->comm, 0, sizeof r->comm);
    if (put(a, r, NULL, STACKAGG_ROWS + 2 * SPARE_ROWS))
        return;
    r->who = 0; /* there are rows, so there is one */
    if (!put(a, r, NULL, UINT32_MAX))
        abort(); /* no memory for 100 bytes: as xmalloc */
}

void stackagg_since(struct stackagg *a, real_ns since)
{
    a->since = since;
}

/* ---- Python ---------------------------------------------------------------------------------- */

void stackagg_python(struct stackagg *a, struct stackagg_pys py)
{
    a->py = py;
}

static uint32_t py_index(struct stackagg *a, const struct pynames_frame *f)
{
    struct stackagg_window *w = a->w;
    uint64_t v;

    if (map_get(&a->by_py, hash_mix(f->key), &v))
        return (uint32_t)v;
    if (w->n_py == a->room_py) {
        a->room_py = a->room_py ? 2 * a->room_py : 256;
        w->py = xrealloc(w->py, a->room_py * sizeof *w->py);
    }
    w->py[w->n_py] = (struct pynames_frame){.key = f->key,
                                            .name = arena_str(&w->texts, f->name),
                                            .file = arena_str(&w->texts, f->file),
                                            .start_line = f->start_line};
    (void)map_put(&a->by_py, hash_mix(f->key), w->n_py);
    return w->n_py++;
}

/* The k-th Python frame, whose code object is at addr, into to; how many words: 0 or 1. */
static uint32_t settle_python(struct stackagg *a, uint32_t k, uint64_t addr, uint64_t *to)
{
    char name[32];
    struct pynames_frame f = {.key = UINT64_C(1) << 63 | addr};

    if (k < a->py.n) {
        if (a->py.v[k].internal)
            return 0;
        f = a->py.v[k];
    } else {
        (void)snprintf(name, sizeof name, "[python 0x%llx]", (unsigned long long)addr);
        f.name = str_c(name);
    }
    *to = SA_W_PY | (uint64_t)py_index(a, &f) << 32 | f.line;
    return 1;
}

/* The record's words as they are kept: Python frames of two words become one, or none. */
static uint32_t settle(struct stackagg *a, const struct sa_ev *ev, const struct proc *p,
                       uint64_t *to)
{
    uint32_t n = ev->nk, k = 0, end = (uint32_t)ev->nk + ev->nu;

    if (n)
        memcpy(to, ev->w, n * sizeof *to);
    for (uint32_t i = n; i < end; i += sa_words(ev->w[i])) {
        if ((ev->w[i] & SA_W_TAG) == SA_W_PY)
            n += settle_python(a, k++, ev->w[i] & ~SA_W_TAG, &to[n]);
        else
            to[n++] = settle_word(ev->w[i], p);
    }
    return n - ev->nk;
}

static void add_gil(struct stackagg *a, const struct sa_ev *ev, struct stackagg_row *r)
{
    if (ev->gil == SA_G_NA)
        return;
    if (ev->gil == SA_G_UNREADABLE) {
        a->w->gil.unreadable++;
        a->w->gil.unreadable_weight += r->weight;
        return;
    }
    a->w->gil.known++;
    if (ev->gil != SA_G_MINE)
        return;
    r->gil_count = 1;
    r->gil_weight = r->weight;
}

/* The record's stack and the row's place; true: code in anonymous memory is on it. */
static bool add_row(struct stackagg *a, struct stackagg_row *r, const struct sa_ev *ev,
                    const struct proc *p)
{
    uint64_t words[PYMEND_WORDS];
    bool anon = false;

    if (a->since.v && !a->own_times)
        r->t = a->since;
    a->since.v = 0;
    memcpy(r->comm, ev->comm, strnlen(ev->comm, sizeof r->comm));
    if ((uint32_t)r->nk + r->nu > sizeof words / sizeof *words) {
        a->py = (struct stackagg_pys){};
        put_without_stack(a, r);
        return false;
    }
    if (r->nk || r->nu)
        r->nu = (uint16_t)settle(a, pymend(ev, a->mended), p, words);
    a->py = (struct stackagg_pys){};
    for (uint32_t i = r->nk; i < (uint32_t)r->nk + r->nu; i++)
        anon |= stackagg_anonymous(words[i]);
    if (!put(a, r, words, STACKAGG_ROWS))
        put_without_stack(a, r);
    return anon;
}

static real_ns row_time(const struct stackagg *a, real_ns t)
{
    return (real_ns){a->own_times ? t.v : t.v - t.v % NS_PER_S};
}

bool stackagg_add(struct stackagg *a, const struct sa_ev *ev, real_ns t, const struct proc *p,
                  const uint8_t host[static 16])
{
    struct stackagg_row r = {.t = row_time(a, t),
                             .who = who_of(a, ev, p, host),
                             .tid = ev->tid,
                             .nk = ev->nk,
                             .nu = ev->nu,
                             .stop = ev->stop < SA_S_N ? ev->stop : (uint8_t)SA_S_INVALID,
                             .count = 1,
                             .weight = (int64_t)ev->weight_ns};

    add_gil(a, ev, &r);
    return add_row(a, &r, ev, p);
}

/* Few of a window, one or two for each process. */
static uint32_t holder_of(struct stackagg *a, struct str name)
{
    struct stackagg_window *w = a->w;

    if (!name.n)
        return 0;
    for (uint32_t i = 0; i < w->n_holder; i++)
        if (str_eq(w->holder[i], name))
            return i + 1;
    if (w->n_holder == a->room_holder) {
        a->room_holder = a->room_holder ? 2 * a->room_holder : 16;
        w->holder = xrealloc(w->holder, a->room_holder * sizeof *w->holder);
    }
    w->holder[w->n_holder++] = arena_str(&w->texts, name);
    return w->n_holder;
}

void stackagg_add_off(struct stackagg *a, const struct stackagg_off *o, const struct proc *p,
                      const uint8_t host[static 16])
{
    bool stack = o->stop < STACKAGG_TABLE_FULL;
    struct stackagg_row r = {.t = row_time(a, o->t),
                             .who = who_of(a, o->ev, p, host),
                             .tid = o->ev->tid,
                             .nk = stack ? o->ev->nk : 0,
                             .nu = stack ? o->ev->nu : 0,
                             .stop = o->stop,
                             .off = true,
                             .count = o->blocked ? o->n : 0,
                             .weight = o->blocked,
                             .runq_count = o->queued ? o->n : 0,
                             .runq_weight = o->queued,
                             .holder = holder_of(a, o->holder),
                             .gil_asked = stack && o->ev->flags & SA_F_GIL_ASKED,
                             .again = o->again && o->blocked ? 1 : 0};

    (void)add_row(a, &r, o->ev, p);
}

void stackagg_add_step(struct stackagg *a, const struct stackagg_step *s, const struct proc *p)
{
    struct stackagg_window *w = a->w;
    struct stackagg_step *n;

    if (w->n_step == w->room_step) {
        w->room_step = w->room_step ? 2 * w->room_step : 64;
        w->step = xrealloc(w->step, w->room_step * sizeof *w->step);
    }
    n = &w->step[w->n_step++];
    *n = *s;
    n->who = who_of(a, NULL, p, NULL);
    n->name = arena_str(&w->texts, s->name);
    n->label = copy_labels(&w->texts, s->label, s->n_label);
    n->n_label = n->label ? s->n_label : 0;
}

struct stackagg_window *stackagg_take(struct stackagg *a, const struct source_account *account)
{
    struct stackagg_window *w = a->w;
    struct interval c = account->covers;

    w->account = *account;
    for (uint32_t i = 0; i < w->n_row; i++) {
        if (w->row[i].t.v >= c.t1.v)
            w->row[i].t.v = c.t1.v - 1;
        if (w->row[i].t.v < c.t0.v)
            w->row[i].t = c.t0;
    }
    a->w = window_new();
    a->room_who = a->room_row = a->room_word = a->room_py = a->room_holder = 0;
    map_clear(&a->by_py);
    map_clear(&a->by_hash);
    map_clear(&a->by_serial);
    return w;
}

uint32_t stackagg_rows(const struct stackagg *a)
{
    return a->w->n_row;
}

uint32_t stackagg_words(const struct stackagg *a)
{
    return a->w->n_word;
}

int64_t stackagg_weight(const struct stackagg_window *w)
{
    int64_t sum = 0;

    for (uint32_t i = 0; i < w->n_row; i++)
        sum += w->row[i].off ? 0 : w->row[i].weight;
    return sum;
}
