// SPDX-License-Identifier: Apache-2.0
#include "agent/name/lines.h"

#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "agent/apart/reader.h"
#include "agent/bpf/cpu.h"
#include "agent/file/binary.h"
#include "agent/name/debugfind.h"
#include "base/hash.h"
#include "base/map.h"
#include "base/thread.h"
#include "base/time.h"

#define MINUTE_NS   (60 * NS_PER_S)
#define MAX_COUNTED (UINT32_C(1) << 18) /* addresses of targets, of one minute */
#define MAX_TARGETS 65536
#define MAX_WAITING 65536
#define MAX_NONE    65536
#define PER_JOB     4096 /* addresses */
#define NICE        10

struct counted {
    uint64_t serial, word, n;
    uint64_t sample; /* the last one that counted: of a recursion each address counts once */
    bool asked;
};

struct cached {
    uint32_t n;
    struct lines_frame *frame;
};

struct lines {
    enum lines_mode mode;
    bool no_budget;
    char *debug_dirs;
    /* the batch thread's */
    struct map by_counted; /* hash of (serial, word) -> counted[] + 1 */
    struct counted *counted;
    uint32_t n_counted;
    struct map by_target; /* serial -> samples of this minute */
    uint64_t sample;
    int64_t minute;
    /* both threads' */
    pthread_t thread;
    struct mutex mu;
    struct cond changed, idle;
    bool stop, busy;
    uint64_t cpu_elsewhere; /* the reader's for this; the thread's own */
    uint64_t *waiting;      /* words */
    uint32_t n_waiting;
    struct map pending; /* words that wait or are read now */
    struct map known;   /* word -> struct cached * */
    struct map none;    /* binaries without DWARF */
    struct arena kept;
    struct lines_stats stats;
};

bool lines_mode_of(const char *s, enum lines_mode *ret)
{
    static const char *const name[] = {"off", "hot", "all"};

    for (unsigned i = 0; i < 3; i++) {
        if (strcmp(s, name[i]) == 0) {
            *ret = (enum lines_mode)i;
            return true;
        }
    }
    return false;
}

/* ---- who is hot ---------------------------------------------------------------------------- */

static struct counted *counted_of(struct lines *l, uint64_t serial, uint64_t word)
{
    uint64_t *at, key = hash_mix(serial) ^ word;
    struct counted *c;

    if (map_at(&l->by_counted, key, &at) == MAP_FULL)
        return NULL;
    if (*at == 0) {
        l->counted[l->n_counted] = (struct counted){.serial = serial, .word = word};
        *at = ++l->n_counted;
    }
    c = &l->counted[*at - 1];
    return c->serial == serial && c->word == word ? c : NULL;
}

void lines_count(struct lines *l, uint64_t serial, const uint64_t *words, uint32_t n_word,
                 uint64_t n)
{
    uint64_t *total;

    if (l->mode == LINES_OFF || map_at(&l->by_target, serial, &total) == MAP_FULL)
        return;
    *total += n;
    l->sample++;
    for (uint32_t i = 0; i < n_word; i++) {
        struct counted *c = NULL;

        if ((words[i] & SA_W_TAG) == SA_W_NATIVE && SA_W_BIN(words[i]))
            c = counted_of(l, serial, words[i]);
        if (!c || c->sample == l->sample)
            continue;
        c->sample = l->sample;
        c->n += n;
    }
}

static bool is_hot(const struct lines *l, const struct counted *c)
{
    uint64_t total = 0;

    if (l->mode == LINES_ALL)
        return true;
    return c->n >= LINES_LEAST && map_get(&l->by_target, c->serial, &total) &&
           c->n * 1000 >= total * LINES_HOT_PERMILLE;
}

static void ask_locked(struct lines *l, struct counted *c) REQUIRES(&l->mu)
{
    uint64_t v;

    if (map_get(&l->known, c->word, &v) || map_get(&l->none, SA_W_BIN(c->word), &v)) {
        c->asked = true;
        return;
    }
    if (l->n_waiting == MAX_WAITING || map_put(&l->pending, c->word, 1) != MAP_ADDED) {
        l->stats.dropped += l->n_waiting == MAX_WAITING;
        return;
    }
    c->asked = true;
    l->waiting[l->n_waiting++] = c->word;
    l->stats.asked++;
}

void lines_tick(struct lines *l, int64_t now)
{
    if (l->mode == LINES_OFF)
        return;
    mutex_lock(&l->mu);
    for (uint32_t i = 0; i < l->n_counted; i++) {
        struct counted *c = &l->counted[i];

        if (!c->asked && is_hot(l, c))
            ask_locked(l, c);
    }
    if (l->n_waiting)
        cond_signal(&l->changed);
    mutex_unlock(&l->mu);
    if (now - l->minute >= MINUTE_NS) {
        l->minute = now;
        l->n_counted = 0;
        map_clear(&l->by_counted);
        map_clear(&l->by_target);
    }
}

/* ---- what is known ------------------------------------------------------------------------- */

uint32_t lines_get(struct lines *l, uint64_t word, struct arena *a, struct lines_frame **ret)
{
    const struct cached *c;
    struct lines_frame *f = NULL;
    uint32_t n = 0;
    uint64_t v;

    if (l->mode == LINES_OFF)
        return 0;
    mutex_lock(&l->mu);
    if (map_get(&l->known, word, &v)) {
        c = (const struct cached *)(uintptr_t)v; // NOLINT(performance-no-int-to-ptr)
        f = arena_array(a, struct lines_frame, c->n ? c->n : 1);
        n = f ? c->n : 0;
        for (uint32_t i = 0; i < n; i++) {
            f[i] = c->frame[i];
            f[i].name = arena_str(a, f[i].name);
            f[i].file = arena_str(a, f[i].file);
        }
    }
    mutex_unlock(&l->mu);
    *ret = f;
    return n;
}

static struct str text_of(const struct dwarfline_arrays *a, struct dwarfline_text t)
{
    return t.n ? (struct str){a->text + t.at, t.n} : (struct str){NULL, 0};
}

static bool keep_one_locked(struct lines *l, uint64_t word, const struct dwarfline_arrays *a,
                            struct dwarfline_found found) REQUIRES(&l->mu)
{
    struct cached *c = arena_new(&l->kept, struct cached);

    if (!c)
        return false;
    c->frame = arena_array(&l->kept, struct lines_frame, found.n ? found.n : 1);
    if (!c->frame)
        return false;
    for (uint32_t i = 0; i < found.n; i++) {
        const struct dwarfline_frame *f = &a->frame[found.first + i];
        struct str name = text_of(a, f->name), file = text_of(a, f->file);

        c->frame[i] = (struct lines_frame){.name = arena_str(&l->kept, name),
                                           .file = arena_str(&l->kept, file),
                                           .line = f->line,
                                           .start_line = f->start_line,
                                           .inlined = f->inlined};
        if (c->frame[i].name.n != name.n || c->frame[i].file.n != file.n)
            return false;
        l->stats.inlined += f->inlined;
    }
    c->n = found.n;
    return map_put(&l->known, word, (uint64_t)(uintptr_t)c) != MAP_FULL;
}

static void keep_locked(struct lines *l, const uint64_t *word, uint32_t n,
                        const struct dwarfline_arrays *a) REQUIRES(&l->mu)
{
    for (uint32_t i = 0; i < n; i++) {
        map_del(&l->pending, word[i]);
        l->stats.found += a->found[i].n > 0;
        if (keep_one_locked(l, word[i], a, a->found[i]))
            continue;
        map_clear(&l->known); /* full: anew */
        arena_reset(&l->kept);
        (void)keep_one_locked(l, word[i], a, a->found[i]);
    }
}

/* ---- the thread ---------------------------------------------------------------------------- */

/* The thread's, and what it had done elsewhere. */
static int64_t own_cpu(const struct lines *l)
{
    return thread_cpu_ns() + (int64_t)l->cpu_elsewhere;
}

static int by_word(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

/* The file that its debug file shares with others; path: unknown, so by build id or full path. */
static int alt_of(const struct binary *b, int fd, const char *dirs, uint64_t *counts)
{
    struct debugfind_where w = {.dirs = dirs, .target = binary_root(b)};
    struct debugfile_facts facts = {};
    int alt = -1;

    if (reader_facts_of(fd, &facts))
        alt = debugfind_alt(&facts, &w, counts);
    if (w.target >= 0)
        close(w.target);
    return alt;
}

/* From the binary itself, else from its debug file. */
static enum dwarfline_fail read_binary(struct lines *l, const struct binary *b,
                                       struct dwarfline_job *job, struct dwarfline_arrays *ret)
{
    uint64_t counts[DEBUGFILE_N] = {};
    struct debugfile_facts facts;
    enum dwarfline_fail why;
    int fd;

    job->fd = b->fd;
    job->alt_fd = alt_of(b, b->fd, l->debug_dirs, counts);
    why = reader_lines(job, ret, &l->cpu_elsewhere);
    if (job->alt_fd >= 0)
        close(job->alt_fd);
    if (why != DWARFLINE_NO_DWARF)
        return why;
    fd = debugfind_of(b, l->debug_dirs, &facts, counts);
    if (fd < 0)
        return why;
    dwarfline_deinit(ret);
    job->fd = fd;
    job->alt_fd = alt_of(b, fd, l->debug_dirs, counts);
    why = reader_lines(job, ret, &l->cpu_elsewhere);
    if (job->alt_fd >= 0)
        close(job->alt_fd);
    close(fd);
    return why;
}

/* All addresses that wait of one binary, sorted; the binary of the oldest. */
static uint32_t take_locked(struct lines *l, uint64_t *word) REQUIRES(&l->mu)
{
    uint64_t bin = SA_W_BIN(l->waiting[0]);
    uint32_t n = 0, left = 0;

    for (uint32_t i = 0; i < l->n_waiting; i++) {
        if (n < PER_JOB && SA_W_BIN(l->waiting[i]) == bin)
            word[n++] = l->waiting[i];
        else
            l->waiting[left++] = l->waiting[i];
    }
    l->n_waiting = left;
    qsort(word, n, sizeof *word, by_word);
    return n;
}

static void do_job(struct lines *l, const uint64_t *word, uint32_t n)
{
    struct binary *b = binary_by_id((uint32_t)SA_W_BIN(word[0]));
    uint64_t *addr = xmalloc(n * sizeof *addr);
    struct dwarfline_job job = {.addr = addr, .n = n};
    struct dwarfline_arrays a = {};
    enum dwarfline_fail why = DWARFLINE_NO_DWARF;

    for (uint32_t i = 0; i < n; i++)
        addr[i] = SA_W_ADDR(word[i]);
    if (b && b->fd >= 0 && b->is_elf)
        why = read_binary(l, b, &job, &a);
    if (!a.found)
        a.found = xcalloc(n, sizeof *a.found);
    mutex_lock(&l->mu);
    l->stats.jobs++;
    l->stats.fail[why]++;
    if (why != DWARFLINE_OK && why != DWARFLINE_STEPS) {
        if (why != DWARFLINE_ABSENT && map_put(&l->none, SA_W_BIN(word[0]), 1) == MAP_FULL)
            map_clear(&l->none);
        for (uint32_t i = 0; i < n; i++)
            map_del(&l->pending, word[i]);
    } else {
        keep_locked(l, word, n, &a);
    }
    l->stats.cpu_ns = (uint64_t)own_cpu(l);
    mutex_unlock(&l->mu);
    dwarfline_deinit(&a);
    free(addr);
    (void)binary_unref(b);
    (void)malloc_trim(0); /* a file's worth of libdw's pieces */
}

/* What may be spent: it grows with time, up to a burst, and a job may leave it below 0. */
struct budget {
    int64_t left, at, cpu;
};

static int64_t budget_now(const struct lines *l, struct budget *b)
{
    int64_t now = mono_now().v, cpu = own_cpu(l);

    b->left += (now - b->at) * LINES_SHARE_PERCENT / 100;
    if (b->left > LINES_BURST_NS)
        b->left = LINES_BURST_NS;
    b->left -= cpu - b->cpu;
    b->at = now;
    b->cpu = cpu;
    return b->left;
}

static void *run(void *ctx)
{
    struct lines *l = ctx;
    struct budget budget = {.left = LINES_BURST_NS, .at = mono_now().v, .cpu = own_cpu(l)};
    uint64_t *word = xmalloc(PER_JOB * sizeof *word);

    if (!l->no_budget) /* somebody waits for a command */
        (void)setpriority(PRIO_PROCESS, (id_t)gettid(), NICE);
    mutex_lock(&l->mu);
    while (!l->stop) {
        int64_t left = l->no_budget ? 0 : budget_now(l, &budget);
        uint32_t n;

        if (l->n_waiting == 0 || left < 0) {
            if (l->n_waiting == 0)
                cond_broadcast(&l->idle);
            if (l->n_waiting)
                (void)cond_wait_for(&l->changed, &l->mu, -left * 100 / LINES_SHARE_PERCENT);
            else
                cond_wait(&l->changed, &l->mu);
            continue;
        }
        n = take_locked(l, word);
        l->busy = true;
        mutex_unlock(&l->mu);
        do_job(l, word, n);
        mutex_lock(&l->mu);
        l->busy = false;
    }
    mutex_unlock(&l->mu);
    free(word);
    return NULL;
}

bool lines_wait(struct lines *l, int64_t wait_ns)
{
    int64_t end = mono_now().v + wait_ns;
    bool done = true;

    mutex_lock(&l->mu);
    while (l->mode != LINES_OFF && (l->n_waiting || l->busy)) {
        int64_t left = end - mono_now().v;

        done = left > 0;
        if (!done)
            break;
        (void)cond_wait_for(&l->idle, &l->mu, left);
    }
    mutex_unlock(&l->mu);
    return done;
}

int lines_start(const struct lines_conf *c, struct lines **ret, struct err *err)
{
    struct lines *l = xcalloc(1, sizeof *l);
    int r = 0;

    l->mode = c->mode;
    l->no_budget = c->no_budget;
    l->debug_dirs = xstrdup(c->debug_dirs ? c->debug_dirs : "");
    map_init(&l->by_counted, MAX_COUNTED);
    map_init(&l->by_target, MAX_TARGETS);
    map_init(&l->pending, 2 * MAX_WAITING);
    map_init(&l->known, 0);
    map_init(&l->none, MAX_NONE);
    arena_init(&l->kept, c->cache);
    mutex_init(&l->mu);
    cond_init(&l->changed);
    cond_init(&l->idle);
    if (l->mode != LINES_OFF) {
        l->counted = xmalloc(MAX_COUNTED * sizeof *l->counted);
        l->waiting = xmalloc(MAX_WAITING * sizeof *l->waiting);
        l->minute = mono_now().v;
        r = thread_start(&l->thread, "lines", 0, run, l);
    }
    if (r < 0) {
        l->mode = LINES_OFF;
        (void)lines_stop(l);
        return err_set(err, r, "thread: %s", strerrordesc_np(-r));
    }
    *ret = l;
    return 0;
}

struct lines *lines_stop(struct lines *l)
{
    if (!l)
        return NULL;
    if (l->mode != LINES_OFF) {
        mutex_lock(&l->mu);
        l->stop = true;
        cond_broadcast(&l->changed);
        mutex_unlock(&l->mu);
        pthread_join(l->thread, NULL);
    }
    map_deinit(&l->by_counted);
    map_deinit(&l->by_target);
    map_deinit(&l->pending);
    map_deinit(&l->known);
    map_deinit(&l->none);
    arena_deinit(&l->kept);
    mutex_deinit(&l->mu);
    cond_deinit(&l->changed);
    cond_deinit(&l->idle);
    free(l->counted);
    free(l->waiting);
    free(l->debug_dirs);
    free(l);
    return NULL;
}

void lines_get_stats(struct lines *l, struct lines_stats *ret)
{
    mutex_lock(&l->mu);
    *ret = l->stats;
    ret->waiting = l->n_waiting;
    ret->bytes = l->kept.used + map_bytes(&l->known);
    mutex_unlock(&l->mu);
}
