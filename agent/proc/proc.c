// SPDX-License-Identifier: Apache-2.0
/*
 * Ordering. The rings are open before /proc is scanned, and their records are applied by time
 * afterwards, so a record may tell what a scan saw already. A mapping is then entered once more,
 * which changes nothing; FORK and EXIT up to the time of the reading only make us look again.
 * A pid is of the entry that was born last before the time in question: the table holds the newest
 * entry of each pid, older ones hang behind it until they are forgotten.
 */
#include "agent/proc/proc.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/file/procfile.h"
#include "agent/proc/cgroup.h"
#include "agent/proc/proc_private.h"
#include "agent/proc/who.h"
#include "base/hash.h"
#include "base/map.h"
#include "base/time.h"

#define READS_PER_TICK     256
#define RESCAN_FIRST_NS    (100 * NS_PER_MS)
#define RESCAN_LAST_NS     (25 * NS_PER_S)
#define RESCANS_PER_S      50
#define LOST_RESCAN_NS     (5 * NS_PER_S)
#define CHECK_ALL_NS       (30 * NS_PER_S)
#define UNPUBLISH_AFTER_NS NS_PER_S
#define DEAD_MAX           2048 /* of more, only those that died within DEAD_LEAST_NS */
#define DEAD_LEAST_NS      (2 * NS_PER_S)
#define FACTS_AGAIN_NS     NS_PER_S
#define BARE_FIRST_NS      (10 * NS_PER_MS)
#define BARE_READS         8 /* the last 2.5 s after the first */
#define MAX_SERVICES       500

struct entry {
    struct proc p;             /* first: callers hold it */
    struct entry *older;       /* the same pid before */
    struct entry *next, *prev; /* of the living, or of the dead */
    struct entry *next_dirty, *next_work;
    struct procmaps maps; /* p.map and p.n_map show it */
    uint32_t threads;
    int64_t born;    /* FORK, or 0: before us */
    int64_t read_at; /* /proc was read; 0: not yet */
    int64_t died;
    int64_t rescan_due, rescan_wait; /* 0: none asked for */
    int64_t maps_again;              /* not read before */
    int64_t facts_read, facts_due;   /* facts_due 0: none asked for */
    bool need_identity, need_facts, need_check, dirty, has_work, leader_dead;
    uint8_t bare; /* readings since the exec that found nothing */
    struct arena texts;
};

struct proc_table {
    struct proc_conf conf;
    char *proc;
    struct map by_pid; /* -> newest struct entry * */
    struct entry *living, *dirty;
    struct entry *dead, *last_dead; /* in the order of dying */
    uint32_t n_dead;
    struct entry *untold;           /* the first dead one that is still published */
    struct entry *work, *last_work; /* something to read or check; so that a drain costs what
                                     * happened, not what there is */
    int64_t work_due;               /* the earliest of it */
    struct map services;            /* hash of each name */
    uint64_t last_serial;
    int64_t lost_at, checked_at, rescan_second, now;
    uint32_t rescans_in_second;
    struct environ_want usual; /* where none is given */
    struct proc_stats stats;
};

static struct entry *entry_of(uint64_t v)
{
    return (struct entry *)(uintptr_t)v; // NOLINT(performance-no-int-to-ptr): a map value
}

struct proc_table *proc_new(const struct proc_conf *c)
{
    struct proc_table *t = xcalloc(1, sizeof *t);

    t->conf = *c;
    t->proc = xstrdup(c->proc);
    if (t->conf.tick_ns == 0)
        t->conf.tick_ns = 10 * NS_PER_MS;
    if (t->conf.max_services == 0)
        t->conf.max_services = MAX_SERVICES;
    if (!t->conf.want) {
        environ_init(&t->usual);
        (void)environ_allow(&t->usual, STR(ENVIRON_DEFAULT), NULL); /* known to be good */
        t->conf.want = &t->usual;
    }
    map_init(&t->by_pid, 0);
    map_init(&t->services, 0);
    return t;
}

/* ---- entries ------------------------------------------------------------------------------- */

static struct procmaps_of maps_of(struct proc_table *t, const struct entry *e)
{
    uint32_t pid = e->leader_dead ? procread_alive_tid(t->proc, e->p.tgid) : e->p.tgid;

    return (struct procmaps_of){.proc = t->proc, .pid = pid, .stats = &t->stats};
}

/* The mappings of e were changed. */
static void show_maps(struct proc_table *t, struct entry *e)
{
    if (!e->p.dead)
        t->stats.maps += e->maps.n - (uint64_t)e->p.n_map;
    e->p.map = e->maps.map;
    e->p.n_map = e->maps.n;
}

static bool read_maps(struct proc_table *t, struct entry *e, int64_t now)
{
    const struct procmaps_of of = maps_of(t, e);
    bool changed = procmaps_read(&e->maps, &of);

    e->maps_again = now + e->maps.pause_ns;
    show_maps(t, e);
    return changed;
}

static void entry_free(struct entry *e)
{
    procmaps_free(&e->maps);
    arena_deinit(&e->texts);
    free(e);
}

static struct entry *newest(const struct proc_table *t, uint32_t pid)
{
    uint64_t v;

    return map_get(&t->by_pid, pid, &v) ? entry_of(v) : NULL;
}

static struct entry *entry_new(struct proc_table *t, uint32_t pid, int64_t born)
{
    uint64_t *slot;
    struct entry *e;

    if (t->stats.processes >= PROC_MAX || map_at(&t->by_pid, pid, &slot) == MAP_FULL) {
        t->stats.table_full++;
        return NULL;
    }
    e = xcalloc(1, sizeof *e);
    e->p.tgid = pid;
    e->p.serial = ++t->last_serial;
    e->p.gen = 1;
    memcpy(e->p.key.host, t->conf.host, sizeof t->conf.host);
    e->born = born;
    e->rescan_wait = RESCAN_FIRST_NS;
    e->threads = 1;
    arena_init(&e->texts, (size_t)64 << 10);
    e->older = entry_of(*slot);
    *slot = (uint64_t)(uintptr_t)e;
    e->next = t->living;
    if (t->living)
        t->living->prev = e;
    t->living = e;
    t->stats.processes++;
    return e;
}

/* When something is to be done with e; INT64_MIN: at the next tick. */
static int64_t work_due(const struct entry *e)
{
    int64_t at = e->facts_due ? e->facts_due : INT64_MAX;

    if (e->need_identity || e->need_facts || e->need_check)
        return INT64_MIN;
    return e->rescan_due && e->rescan_due < at ? e->rescan_due : at;
}

static void put_work(struct proc_table *t, struct entry *e)
{
    int64_t due = work_due(e);

    if (due < t->work_due)
        t->work_due = due;
    if (e->has_work)
        return;
    e->has_work = true;
    e->next_work = NULL;
    if (t->last_work)
        t->last_work->next_work = e;
    else
        t->work = e;
    t->last_work = e;
}

/* The oldest of the dead. */
static void forget(struct proc_table *t, struct entry *e)
{
    struct entry *n = newest(t, e->p.tgid);

    if (n == e) {
        if (e->older)
            (void)map_put(&t->by_pid, e->p.tgid, (uint64_t)(uintptr_t)e->older);
        else
            map_del(&t->by_pid, e->p.tgid);
    } else {
        while (n && n->older != e)
            n = n->older;
        if (n)
            n->older = e->older;
    }
    t->dead = e->next;
    if (t->dead)
        t->dead->prev = NULL;
    else
        t->last_dead = NULL;
    if (t->untold == e)
        t->untold = e->next;
    t->n_dead--;
    entry_free(e);
}

static void mark_dirty(struct proc_table *t, struct entry *e)
{
    e->p.gen++;
    if (e->dirty || e->p.dead)
        return;
    e->dirty = true;
    e->next_dirty = t->dirty;
    t->dirty = e;
}

static void die(struct proc_table *t, struct entry *e, int64_t now)
{
    if (e->p.dead)
        return;
    e->p.dead = true;
    e->p.flags |= TARGET_EXITED;
    e->p.facts++;
    e->died = now;
    t->n_dead++;
    t->stats.processes--;
    t->stats.maps -= e->p.n_map;
    if (e->prev)
        e->prev->next = e->next;
    else
        t->living = e->next;
    if (e->next)
        e->next->prev = e->prev;
    e->next = NULL;
    e->prev = t->last_dead;
    if (t->last_dead)
        t->last_dead->next = e;
    else
        t->dead = e;
    t->last_dead = e;
    if (!t->untold)
        t->untold = e;
}

/* ---- reading ------------------------------------------------------------------------------- */

/* At most max_services names; then "other". */
static struct str admit_service(struct proc_table *t, struct str s)
{
    uint64_t key = hash_str(s), v;

    if (map_get(&t->services, key, &v))
        return s;
    if (t->services.n >= t->conf.max_services || map_put(&t->services, key, 1) == MAP_FULL) {
        t->stats.services_folded++;
        return STR("other");
    }
    return s;
}

/* Rules, service and labels, from f. */
static void take_who(struct proc_table *t, struct proc *p, struct arena *a,
                     const struct procread_facts *f)
{
    const struct who_conf c = {t->conf.rules, t->conf.want};
    struct who w;

    who_make(&c, f, a, &t->stats.labels, &w);
    p->service = w.service;
    p->admitted = false;
    p->n_label = w.n_label;
    p->label = w.label;
    p->n_env = w.n_env;
    p->env = w.env;
    p->dropped = w.drop;
}

/* Texts of f into e, whose older ones end here. */
static void take_facts(struct proc_table *t, struct entry *e, const struct procread_facts *f)
{
    bool dropped = e->p.dropped;
    struct proc *p = &e->p;
    struct arena a;

    arena_init(&a, (size_t)64 << 10);
    p->exe = arena_str(&a, f->exe);
    p->cmdline = arena_str(&a, f->cmdline);
    p->masked = arena_str(&a, f->masked);
    p->comm = arena_str(&a, f->comm);
    p->cgroup = arena_str(&a, f->cgroup);
    p->container = arena_str(&a, f->container);
    p->pod = arena_str(&a, f->pod);
    p->own_service = arena_str(&a, f->service);
    take_who(t, p, &a, f);
    p->kthread = f->kthread;
    p->flags = (p->flags & ~(uint32_t)TARGET_EXE_DELETED) |
               (f->exe_deleted ? (uint32_t)TARGET_EXE_DELETED : 0);
    p->facts++;
    t->stats.foreign_cgroups += str_starts(f->cgroup, STR("/../"));
    arena_deinit(&e->texts);
    e->texts = a;
    if (p->dropped != dropped)
        mark_dirty(t, e); /* the programs must know */
}

/* Gone before it could be read: known by its birth alone. */
static void unseen(struct proc_table *t, struct entry *e)
{
    struct clock_pair c;

    if (e->p.key.start.v)
        return;
    c = clock_pair_take(3);
    e->p.key.pid = 0;
    e->p.key.start.v = e->born ? c.real.v - (c.mono.v - e->born) : c.real.v;
    e->p.flags |= TARGET_UNSEEN;
    e->p.facts++;
    t->stats.unseen++;
}

static bool read_identity(struct proc_table *t, struct entry *e)
{
    struct procread_identity id;

    e->need_identity = false;
    if (procread_identity(t->proc, e->p.tgid, &id, NULL) < 0) {
        unseen(t, e);
        return false;
    }
    e->p.key.pidns = id.pidns;
    e->p.key.pid = id.pid;
    e->p.key.start.v = t->conf.boot.v + (int64_t)id.start_ticks * t->conf.tick_ns;
    e->p.kthread = id.kthread;
    e->leader_dead = id.leader_dead;
    e->threads = (uint32_t)id.threads;
    return true;
}

static void read_facts(struct proc_table *t, struct entry *e, int64_t now)
{
    const struct procread_opts o = {.cmdline = t->conf.cmdline, .want = t->conf.want};
    struct procread_facts f;
    struct arena a;

    e->need_facts = false;
    arena_init(&a, (size_t)256 << 10);
    e->facts_read = now;
    if (procread_facts(t->proc, e->p.tgid, &o, &a, &f, NULL) == 0) {
        take_facts(t, e, &f);
        /* the record of an exec comes before the kernel has put arguments and environment there */
        if (f.bare && e->bare < BARE_READS) {
            e->facts_due = now + (BARE_FIRST_NS << e->bare++);
            put_work(t, e);
        }
    }
    arena_deinit(&a);
}

static void read_pending(struct proc_table *t, struct entry *e, int64_t now)
{
    if (e->need_identity && !read_identity(t, e)) {
        e->need_facts = false;
        die(t, e, now);
    }
    if (e->need_facts)
        read_facts(t, e, now);
    e->read_at = now;
}

/* A process that no record told of. */
static struct entry *scan_one(struct proc_table *t, uint32_t pid, int64_t now)
{
    struct procread_identity id;
    struct entry *e;

    if (procread_identity(t->proc, pid, &id, NULL) < 0)
        return NULL;
    e = entry_new(t, pid, 0);
    if (!e)
        return NULL;
    e->need_identity = e->need_facts = true;
    read_pending(t, e, now);
    if (e->p.dead)
        return e;
    if (!e->p.kthread)
        read_maps(t, e, now);
    mark_dirty(t, e);
    return e;
}

void proc_scan(struct proc_table *t, int64_t now)
{
    DIR *d = opendir(t->proc);
    const struct dirent *de;

    if (!d)
        return;
    // NOLINTNEXTLINE(concurrency-mt-unsafe): a directory stream of our own
    while ((de = readdir(d))) {
        struct entry *e;
        uint64_t pid;

        if (!str_u64(str_c(de->d_name), &pid) || pid == 0 || pid > INT32_MAX)
            continue;
        e = newest(t, (uint32_t)pid);
        if (!e || e->p.dead) {
            scan_one(t, (uint32_t)pid, now);
        } else {
            e->need_check = true;
            put_work(t, e);
            if (now < e->maps_again)
                proc_missed(t, &e->p, now);
            else if (read_maps(t, e, now))
                mark_dirty(t, e);
        }
    }
    closedir(d);
}

/* Without cgroup v2 no record tells that a process was moved. */
static bool moved(const struct entry *e, const char *dir, struct buf *b)
{
    struct cgroup cg;

    buf_reset(b);
    if (e->p.kthread || e->need_facts || procfile_read(dir, "cgroup", b, NULL) < 0)
        return false;
    cgroup_parse(buf_view(b), &cg);
    return !str_eq(cg.path, e->p.cgroup);
}

/* Is this still the process we know? Its last thread may be gone, its pid another's. */
static void check_alive(struct proc_table *t, struct entry *e, int64_t now)
{
    struct procread_stat st;
    struct buf b;
    char dir[64];
    bool alive;

    e->need_check = false;
    (void)snprintf(dir, sizeof dir, "%.48s/%u", t->proc, e->p.tgid);
    buf_init(&b, 65536);
    alive = procfile_read(dir, "stat", &b, NULL) == 0 && procread_stat_parse(buf_view(&b), &st);
    if (alive && (st.state == 'Z' || st.state == 'X') && st.threads <= 1)
        alive = false;
    if (alive && e->p.key.start.v &&
        e->p.key.start.v != t->conf.boot.v + (int64_t)st.start_ticks * t->conf.tick_ns)
        alive = false;
    if (alive) {
        e->threads = (uint32_t)st.threads;
        e->leader_dead = st.state == 'Z' || st.state == 'X';
        if (!e->leader_dead && moved(e, dir, &b)) {
            t->stats.cgroup_changes++;
            e->need_facts = true;
            put_work(t, e);
        }
    } else {
        die(t, e, now);
    }
    buf_deinit(&b);
}

/* ---- records ------------------------------------------------------------------------------- */

static void share_parent(struct proc_table *t, struct entry *e, const struct entry *parent)
{
    struct procread_facts f = proc_facts_of(&parent->p);

    take_facts(t, e, &f);
    e->p.cgroup_id = parent->p.cgroup_id; /* another one in its first record will be seen */
    e->p.key.pidns = parent->p.key.pidns;
    e->p.kthread = parent->p.kthread;
    procmaps_copy(&e->maps, &parent->maps, &t->stats);
    show_maps(t, e);
}

static void on_fork(struct proc_table *t, const struct perfmap_event *ev)
{
    struct entry *e = newest(t, ev->pid);
    const struct entry *parent;

    if (ev->pid == ev->ppid) { /* a thread */
        if (e && !e->p.dead)
            e->threads++;
        return;
    }
    if (e && !e->p.dead && ev->t <= e->read_at)
        return; /* /proc told of it already */
    if (e && !e->p.dead)
        die(t, e, ev->t); /* its pid is another's now */
    parent = newest(t, ev->ppid);
    e = entry_new(t, ev->pid, ev->t);
    if (!e)
        return;
    e->need_identity = true;
    e->need_facts = !parent || parent->need_facts; /* what the parent was before its exec */
    if (parent)
        share_parent(t, e, parent);
    put_work(t, e);
    mark_dirty(t, e);
}

/* Until it is read, and for good if it is gone by then: of the new program only the name is known,
 * and nothing of the old one holds any more. */
static void on_exec(struct proc_table *t, struct entry *e, const struct perfmap_event *ev)
{
    e->need_facts = true;
    e->bare = 0;
    e->p.flags |= TARGET_EXEC;
    e->p.execs++;
    put_work(t, e);
    if (ev->t <= e->read_at)
        return;
    take_facts(t, e, &(struct procread_facts){.comm = ev->name, .service = ev->name});
    procmaps_clear(&e->maps);
    show_maps(t, e);
    mark_dirty(t, e);
}

/* A thread's name travels with its records; the first thread's is the process's too. */
static void on_comm(struct proc_table *t, struct entry *e, const struct perfmap_event *ev)
{
    if (ev->tid != ev->pid || str_eq(e->p.comm, ev->name) || e->facts_due)
        return;
    e->facts_due = e->facts_read + FACTS_AGAIN_NS; /* names may change without end */
    put_work(t, e);
}

static void on_mmap(struct proc_table *t, struct entry *e, const struct perfmap_event *ev)
{
    const struct procmaps_of of = maps_of(t, e);

    if (!procmaps_enter(&e->maps, &of, ev)) {
        if (e->maps.behind)
            proc_missed(t, &e->p, ev->t);
        return;
    }
    show_maps(t, e);
    mark_dirty(t, e);
}

static void on_thread_exit(struct proc_table *t, struct entry *e, const struct perfmap_event *ev)
{
    if (e->threads > 0)
        e->threads--;
    /* counting may drift by what a scan saw too: /proc decides */
    if (e->threads <= 1 || ev->tid == ev->pid) {
        e->need_check = true;
        put_work(t, e);
    }
}

void proc_event(struct proc_table *t, const struct perfmap_event *ev)
{
    struct entry *e;

    switch (ev->kind) {
    case PERFMAP_LOST:
        t->stats.lost += ev->n;
        if (!t->lost_at)
            t->lost_at = ev->t;
        return;
    case PERFMAP_FORK:
        on_fork(t, ev);
        return;
    case PERFMAP_MMAP:
    case PERFMAP_COMM:
    case PERFMAP_EXEC:
    case PERFMAP_EXIT:
        break;
    }
    e = newest(t, ev->pid);
    if (!e || e->p.dead || ev->t < e->born)
        return;
    if (ev->kind == PERFMAP_MMAP)
        on_mmap(t, e, ev);
    else if (ev->kind == PERFMAP_COMM)
        on_comm(t, e, ev);
    else if (ev->kind == PERFMAP_EXEC)
        on_exec(t, e, ev);
    else if (ev->kind == PERFMAP_EXIT)
        on_thread_exit(t, e, ev);
}

/* ---- every drain --------------------------------------------------------------------------- */

static void rescan(struct proc_table *t, struct entry *e, int64_t now)
{
    if (now / NS_PER_S != t->rescan_second) {
        t->rescan_second = now / NS_PER_S;
        t->rescans_in_second = 0;
    }
    if (t->rescans_in_second >= RESCANS_PER_S)
        return;
    t->rescans_in_second++;
    t->stats.rescans++;
    e->rescan_due = 0;
    if (read_maps(t, e, now)) {
        e->rescan_wait = RESCAN_FIRST_NS;
        mark_dirty(t, e);
    } else {
        e->rescan_wait = 2 * e->rescan_wait < RESCAN_LAST_NS ? 2 * e->rescan_wait : RESCAN_LAST_NS;
    }
    e->read_at = e->read_at ? e->read_at : now;
}

void proc_missed(struct proc_table *t, struct proc *p, int64_t now)
{
    struct entry *e = (struct entry *)p;

    if (p->dead || p->kthread || e->rescan_due)
        return;
    e->rescan_due = now + e->rescan_wait;
    if (e->rescan_due < e->maps_again)
        e->rescan_due = e->maps_again;
    put_work(t, e);
}

void proc_seen(struct proc_table *t, struct proc *p, uint64_t cgroup_id)
{
    struct entry *e = (struct entry *)p;

    if (!p->admitted && p->n_label) {
        p->service = admit_service(t, p->service);
        p->label[0].value = p->service;
    }
    p->admitted = true;
    if (cgroup_id == 0 || p->dead)
        return;
    if (p->cgroup_id && p->cgroup_id != cgroup_id) {
        t->stats.cgroup_changes++;
        e->need_facts = true;
        put_work(t, e);
    }
    p->cgroup_id = cgroup_id;
}

void proc_reread(struct proc_table *t, struct proc *p, int64_t now)
{
    struct entry *e = (struct entry *)p;

    if (p->dead)
        return;
    e->p.flags |= TARGET_EXEC;
    e->need_facts = true;
    read_pending(t, e, now);
    procmaps_clear(&e->maps);
    (void)read_maps(t, e, now);
    mark_dirty(t, e);
}

/* What is to be read of e; at most READS_PER_TICK in all. */
static void do_work(struct proc_table *t, struct entry *e, int64_t now, uint32_t *reads)
{
    if (e->facts_due && e->facts_due <= now) {
        e->facts_due = 0;
        e->need_facts = true;
    }
    if (*reads < READS_PER_TICK && (e->need_identity || e->need_facts)) {
        ++*reads;
        read_pending(t, e, now);
    }
    if (*reads < READS_PER_TICK && e->need_check && !e->p.dead) {
        ++*reads;
        check_alive(t, e, now);
    }
    if (e->rescan_due && e->rescan_due <= now && !e->p.dead)
        rescan(t, e, now);
}

/* For late records; not so long where processes die by the thousand. */
static int64_t linger_ns(const struct proc_table *t)
{
    return t->n_dead > DEAD_MAX ? DEAD_LEAST_NS : PROC_LINGER_NS;
}

void proc_tick(struct proc_table *t, int64_t now)
{
    struct entry *next, *e;
    uint32_t reads = 0;

    t->now = now;
    if (t->lost_at && now - t->lost_at >= LOST_RESCAN_NS / 5) {
        t->lost_at = 0;
        t->stats.rescans++;
        proc_scan(t, now);
    }
    if (now - t->checked_at >= CHECK_ALL_NS) {
        t->checked_at = now;
        for (e = t->living; e; e = e->next) {
            e->need_check |= !e->need_identity;
            put_work(t, e);
        }
    }
    e = t->work;
    t->work = t->last_work = NULL;
    t->work_due = INT64_MAX;
    for (; e; e = next) {
        next = e->next_work;
        e->has_work = false;
        if (!e->p.dead)
            do_work(t, e, now, &reads);
        if (!e->p.dead && work_due(e) < INT64_MAX)
            put_work(t, e);
    }
    while (t->dead && !t->dead->dirty && now - t->dead->died >= linger_ns(t))
        forget(t, t->dead);
}

int64_t proc_due(const struct proc_table *t)
{
    int64_t at = t->work ? t->work_due : INT64_MAX;

    if (t->dirty)
        return INT64_MIN;
    return t->lost_at && t->lost_at + LOST_RESCAN_NS / 5 < at ? t->lost_at + LOST_RESCAN_NS / 5
                                                              : at;
}

/* ---- asking -------------------------------------------------------------------------------- */

struct proc *proc_find(struct proc_table *t, uint32_t tgid)
{
    struct entry *e = newest(t, tgid);

    return e ? &e->p : NULL;
}

struct proc *proc_find_at(struct proc_table *t, uint32_t tgid, int64_t when, int64_t now)
{
    struct entry *e = newest(t, tgid);

    while (e && e->born > when && e->older)
        e = e->older;
    if (!e)
        e = scan_one(t, tgid, now);
    if (e && !e->p.dead && (e->need_identity || e->need_facts))
        read_pending(t, e, now);
    return e ? &e->p : NULL;
}

struct proc *proc_next_changed(struct proc_table *t)
{
    while (t->dirty) {
        struct entry *e = t->dirty;

        t->dirty = e->next_dirty;
        e->dirty = false;
        if (!e->p.dead)
            return &e->p;
    }
    return NULL;
}

bool proc_next_gone(struct proc_table *t, uint32_t *ret_tgid)
{
    while (t->untold && t->now - t->untold->died >= UNPUBLISH_AFTER_NS) {
        const struct entry *e = t->untold, *n = newest(t, e->p.tgid);

        t->untold = e->next;
        if (n != e && n && !n->p.dead)
            continue; /* the pid was published anew */
        *ret_tgid = e->p.tgid;
        return true;
    }
    return false;
}

struct proc *proc_next(struct proc_table *t, struct proc *pos)
{
    struct entry *e = pos ? ((struct entry *)pos)->next : t->living;

    return e ? &e->p : NULL;
}

void proc_get_stats(const struct proc_table *t, struct proc_stats *ret)
{
    *ret = t->stats;
}

static void free_all(struct entry *e)
{
    struct entry *next;

    for (; e; e = next) {
        next = e->next;
        entry_free(e);
    }
}

struct proc_table *proc_free(struct proc_table *t)
{
    if (!t)
        return NULL;
    free_all(t->living);
    free_all(t->dead);
    map_deinit(&t->by_pid);
    map_deinit(&t->services);
    free(t->proc);
    free(t);
    return NULL;
}
