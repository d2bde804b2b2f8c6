// SPDX-License-Identifier: Apache-2.0
/* The tracker over a /proc of our own making: a folder of files that say what they should. */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/proc/proc.h"
#include "base/buf.h"
#include "base/time.h"
#include "tests/lib/testing.h"

#define S NS_PER_S

static char root[] = "/tmp/strata_proc_XXXXXX";
static struct proc_table *t;
static int64_t now;

static void put(const char *path, const char *text, size_t n)
{
    char full[256];
    int fd;

    snprintf(full, sizeof full, "%s/%s", root, path);
    fd = open(full, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, n), (ssize_t)n);
    close(fd);
}

static void put_c(uint32_t pid, const char *file, const char *text)
{
    char path[64];

    snprintf(path, sizeof path, "%u/%s", pid, file);
    put(path, text, strlen(text));
}

static void stat_of(uint32_t pid, char state, unsigned threads, unsigned start)
{
    char text[256];

    snprintf(text, sizeof text, "%u (app) %c 1 1 1 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 %u 0 %u 1 2\n",
             pid, state, threads, start);
    put_c(pid, "stat", text);
}

static void link_of(uint32_t pid, const char *name, const char *to)
{
    char full[256];

    snprintf(full, sizeof full, "%s/%u/%s", root, pid, name);
    unlink(full);
    assert_int_equal(symlink(to, full), 0);
}

/* A process with one mapped file: /bin/ls at 0x400000. */
static void make(uint32_t pid, unsigned start, const char *env, size_t n)
{
    char path[64];

    snprintf(path, sizeof path, "%s/%u", root, pid);
    (void)mkdir(path, 0700);
    snprintf(path, sizeof path, "%s/%u/ns", root, pid);
    (void)mkdir(path, 0700);
    snprintf(path, sizeof path, "%s/%u/map_files", root, pid);
    (void)mkdir(path, 0700);
    stat_of(pid, 'S', 1, start);
    put_c(pid, "status", "Name:\tapp\nNSpid:\t1\t7\n");
    put_c(pid, "cgroup", "0::/x\n");
    put_c(pid, "cmdline", "app");
    snprintf(path, sizeof path, "%u/environ", pid);
    put(path, env, n);
    put_c(pid, "maps",
          "00400000-00420000 r-xp 00004000 fd:01 9 /bin/ls\n"
          "00600000-00601000 rw-p 00000000 00:00 0 \n"
          "00700000-00701000 rwxp 00000000 00:00 0 \n");
    link_of(pid, "exe", "/opt/app (deleted)");
    link_of(pid, "ns/pid", "pid:[4026531999]");
    link_of(pid, "map_files/400000-420000", "/bin/ls");
}

static void gone(uint32_t pid)
{
    char command[128];

    snprintf(command, sizeof command, "rm -rf %s/%u", root, pid);
    assert_int_equal(system(command), 0);
}

static int set_up(void **state)
{
    struct proc_conf c = {
        .proc = root, .boot = {1000 * S}, .tick_ns = 10 * NS_PER_MS, .max_services = 3};

    (void)state;
    memset(c.host, 7, sizeof c.host);
    t = proc_new(&c);
    now = 100 * S;
    return 0;
}

static int tear_down(void **state)
{
    char command[128];

    (void)state;
    proc_free(t);
    snprintf(command, sizeof command, "rm -rf %s/*", root);
    return system(command);
}

static void event(enum perfmap_kind kind, uint32_t pid, uint32_t tid, uint32_t ppid)
{
    struct perfmap_event e = {
        .kind = kind, .t = now, .pid = pid, .tid = tid, .ppid = ppid, .name = STR("x")};

    proc_event(t, &e);
}

static void scan(void **state)
{
    static const char env[] = "PATH=/x\0STRATA_SERVICE=pay\0SECRET=1\0RANK=3";
    struct proc *p;

    (void)state;
    make(50, 200, env, sizeof env);
    proc_scan(t, now);
    p = proc_find(t, 50);
    assert_non_null(p);
    assert_int_equal(p->key.pid, 7);
    assert_int_equal(p->key.pidns, 4026531999);
    assert_int_equal(p->key.start.v, 1000 * S + 2 * S);
    assert_int_equal(p->key.host[3], 7);
    assert_str(p->exe, STR("/opt/app"));
    assert_true(p->flags & TARGET_EXE_DELETED);
    assert_str(p->service, STR("pay"));
    assert_int_equal(p->n_env, 2); /* the rest stays here */
    assert_str(p->env[1].name, STR("RANK"));
    assert_int_equal(p->n_map, 2);
    assert_non_null(p->map[0].bin);
    assert_null(p->map[1].bin);
    assert_string_equal(p->map[1].why, "anonymous");
    assert_ptr_equal(proc_map_find(p, 0x41ffff), &p->map[0]);
    assert_null(proc_map_find(p, 0x420000));
    assert_null(proc_map_find(p, 0x3fffff));
    assert_ptr_equal(proc_next_changed(t), p);
    assert_null(proc_next_changed(t));
}

static void mapping(uint64_t start, uint64_t end, uint64_t offset, const char *name)
{
    struct perfmap_event e = {.kind = PERFMAP_MMAP,
                              .t = now,
                              .pid = 50,
                              .tid = 50,
                              .start = start,
                              .end = end,
                              .offset = offset,
                              .name = str_c(name)};

    proc_event(t, &e);
}

/* Overlapped mappings are cut; what lies on both sides of a new one stays on both sides. */
static void overlaps(void **state)
{
    struct proc *p;
    uint32_t gen;

    (void)state;
    make(50, 200, "", 0);
    proc_scan(t, now);
    p = proc_find(t, 50);
    gen = p->gen;
    now += S;
    mapping(0x405000, 0x406000, 0, "//anon");
    assert_int_equal(p->n_map, 4);
    assert_true(p->gen > gen);
    assert_int_equal(p->map[0].end, 0x405000);
    assert_int_equal(p->map[1].start, 0x405000);
    assert_null(p->map[1].bin);
    assert_int_equal(p->map[2].start, 0x406000);
    assert_int_equal(p->map[2].offset, 0x4000 + 0x6000);
    assert_ptr_equal(p->map[2].bin, p->map[0].bin);
    assert_int_equal(p->map[2].bias, p->map[0].bias);
    mapping(0x3ff000, 0x407000, 0, "//anon");
    assert_int_equal(p->n_map, 3);
    assert_int_equal(p->map[1].start, 0x407000);
    mapping(0x100000, 0x800000, 0, "//anon");
    assert_int_equal(p->n_map, 1);
    mapping(0x100000, 0x800000, 0, "//anon"); /* once more: nothing changes */
    assert_int_equal(p->n_map, 1);
    mapping(0x900000, 0x800000, 0, "//anon");
    mapping(UINT64_C(0xffffffffff600000), UINT64_C(0xffffffffff601000), 0, "[vsyscall]");
    assert_int_equal(p->n_map, 1);
}

/* A child has its parent's mappings and names until it executes something; its identity is its
 * own and stays. */
static void fork_and_exec(void **state)
{
    static const char env[] = "STRATA_SERVICE=pay", other[] = "STRATA_SERVICE=mail";
    struct proc *p, *c;
    uint64_t serial;

    (void)state;
    make(50, 200, env, sizeof env);
    proc_scan(t, now);
    now += S;
    make(51, 300, other, sizeof other);
    event(PERFMAP_FORK, 51, 51, 50);
    c = proc_find(t, 51);
    p = proc_find(t, 50);
    assert_int_equal(c->n_map, p->n_map);
    assert_ptr_equal(c->map[0].bin, p->map[0].bin);
    proc_tick(t, now);
    assert_int_equal(c->key.start.v, 1000 * S + 3 * S);
    assert_str(c->service, STR("pay"));
    serial = c->serial;
    now += S;
    event(PERFMAP_EXEC, 51, 51, 0);
    assert_int_equal(c->n_map, 0);
    proc_tick(t, now);
    assert_str(c->service, STR("mail"));
    assert_true(c->flags & TARGET_EXEC);
    assert_int_equal(c->key.start.v, 1000 * S + 3 * S);
    assert_int_equal(c->serial, serial);
    assert_ptr_equal(proc_find(t, 51), c);
}

/* The record of an exec is there before the kernel has put arguments and environment into place. */
static void inside_exec(void **state)
{
    static const char old[] = "STRATA_SERVICE=pay", new[] = "STRATA_SERVICE=mail";
    const struct proc *p;

    (void)state;
    make(50, 200, old, sizeof old);
    proc_scan(t, now);
    now += S;
    make(50, 200, "", 0);
    put_c(50, "cmdline", "");
    event(PERFMAP_EXEC, 50, 50, 0);
    proc_tick(t, now);
    p = proc_find(t, 50);
    assert_str(p->service, STR("app"));
    make(50, 200, new, sizeof new);
    now += 10 * NS_PER_MS;
    proc_tick(t, now);
    assert_str(p->service, STR("mail"));
}

/* exec and fork before the agent looks again: the child is no child of what the parent was. */
static void fork_after_exec(void **state)
{
    static const char old[] = "STRATA_SERVICE=pay", new[] = "STRATA_SERVICE=mail";

    (void)state;
    make(50, 200, old, sizeof old);
    proc_scan(t, now);
    now += S;
    make(50, 200, new, sizeof new);
    make(51, 300, new, sizeof new);
    event(PERFMAP_EXEC, 50, 50, 0);
    event(PERFMAP_FORK, 51, 51, 50);
    proc_tick(t, now);
    assert_str(proc_find(t, 50)->service, STR("mail"));
    assert_str(proc_find(t, 51)->service, STR("mail"));
}

/* A value of which there is only the begin is another value. */
static void environ_cut(void **state)
{
    static char env[ENVIRON_BYTES + 100];
    static const char first[] = "STRATA_SERVICE=pay";
    const struct proc *p;

    (void)state;
    memset(env, 'x', sizeof env);
    memcpy(env, first, sizeof first);
    env[ENVIRON_BYTES - 16] = '\0';
    memcpy(env + ENVIRON_BYTES - 15, "JOB_NAME=nightly", 16); /* its last byte is beyond */
    make(50, 200, env, sizeof env);
    proc_scan(t, now);
    p = proc_find(t, 50);
    assert_str(p->service, STR("pay"));
    assert_int_equal(p->n_env, 1);
}

/* The leader ends, a worker lives: not dead. The last thread ends: dead, told 1 s later, known for
 * 60 s. */
static void last_thread(void **state)
{
    struct proc *p;
    uint32_t tgid = 0;

    (void)state;
    make(50, 200, "", 0);
    stat_of(50, 'S', 2, 200);
    proc_scan(t, now);
    p = proc_find(t, 50);
    now += S;
    stat_of(50, 'Z', 2, 200); /* the leader is a zombie while others live */
    event(PERFMAP_EXIT, 50, 50, 1);
    proc_tick(t, now);
    assert_false(p->dead);
    stat_of(50, 'Z', 1, 200);
    event(PERFMAP_EXIT, 50, 52, 1);
    proc_tick(t, now);
    assert_true(p->dead);
    assert_true(p->flags & TARGET_EXITED);
    assert_false(proc_next_gone(t, &tgid));
    proc_tick(t, now + S);
    assert_true(proc_next_gone(t, &tgid));
    assert_int_equal(tgid, 50);
    assert_false(proc_next_gone(t, &tgid));
    gone(50);
    assert_null(proc_next_changed(t));
    proc_tick(t, now + 59 * S);
    assert_ptr_equal(proc_find(t, 50), p);
    proc_tick(t, now + 61 * S);
    assert_null(proc_find(t, 50));
}

/* The same pid again within the grace: two lives, told apart by time, never merged. */
static void reuse(void **state)
{
    struct proc *a, *b;
    int64_t before;

    (void)state;
    make(50, 200, "", 0);
    proc_scan(t, now);
    a = proc_find(t, 50);
    before = now;
    now += S;
    stat_of(50, 'S', 1, 400);
    event(PERFMAP_FORK, 50, 50, 1);
    proc_tick(t, now);
    b = proc_find(t, 50);
    assert_ptr_not_equal(a, b);
    assert_true(a->dead);
    assert_int_not_equal(a->key.start.v, b->key.start.v);
    assert_ptr_equal(proc_find_at(t, 50, before, now), a);
    assert_ptr_equal(proc_find_at(t, 50, now + 1, now), b);
    /* a change that no record told of: found by the check of all, every 30 s */
    stat_of(50, 'S', 1, 500);
    proc_tick(t, now + 40 * S);
    assert_true(b->dead);
}

/* Records up to the time of the scan tell what it saw already. */
static void old_records(void **state)
{
    struct proc *p;

    (void)state;
    make(50, 200, "", 0);
    proc_scan(t, now);
    p = proc_find(t, 50);
    now -= S;
    event(PERFMAP_FORK, 50, 50, 1);
    assert_ptr_equal(proc_find(t, 50), p);
    event(PERFMAP_EXEC, 50, 50, 0);
    assert_int_equal(p->n_map, 2);
}

/* Gone before it could be read: its birth is all we know. */
static void unseen(void **state)
{
    struct proc_stats st;
    struct proc *p;

    (void)state;
    now = mono_now().v;
    event(PERFMAP_FORK, 60, 60, 1);
    proc_tick(t, now);
    p = proc_find_at(t, 60, now, now);
    assert_non_null(p);
    assert_true(p->dead && (p->flags & TARGET_UNSEEN));
    assert_int_equal(p->key.pid, 0);
    assert_true(p->key.start.v > 0);
    proc_get_stats(t, &st);
    assert_int_equal(st.unseen, 1);
    assert_null(proc_find_at(t, 61, now, now)); /* never told of, nor there */
}

/* A process that no record told of is read when its first sample comes. */
static void found_by_sample(void **state)
{
    (void)state;
    make(70, 200, "", 0);
    assert_null(proc_find(t, 70));
    assert_non_null(proc_find_at(t, 70, now, now));
    assert_int_equal(proc_find(t, 70)->n_map, 2);
}

/* Mappings that no record told of, after back-off; lost records bring a scan. */
static void rescans(void **state)
{
    struct proc_stats st;
    struct proc *p;

    (void)state;
    make(50, 200, "", 0);
    proc_scan(t, now);
    p = proc_find(t, 50);
    while (proc_next_changed(t))
        ;
    put_c(50, "maps",
          "00400000-00420000 r-xp 00004000 fd:01 9 /bin/ls\n"
          "00900000-00901000 r-xp 00000000 00:00 0 \n");
    proc_missed(t, p, now);
    proc_tick(t, now + 50 * NS_PER_MS);
    assert_null(proc_map_find(p, 0x900000));
    proc_tick(t, now + 100 * NS_PER_MS);
    assert_non_null(proc_map_find(p, 0x900000));
    assert_null(proc_map_find(p, 0x700000));
    assert_ptr_equal(proc_next_changed(t), p);
    proc_missed(t, p, now + S); /* nothing new: the next one waits longer */
    proc_tick(t, now + 2 * S);
    assert_null(proc_next_changed(t));
    proc_missed(t, p, now + 2 * S);
    proc_tick(t, now + 2 * S + 150 * NS_PER_MS);
    proc_get_stats(t, &st);
    assert_int_equal(st.rescans, 2);
    proc_tick(t, now + 2 * S + 200 * NS_PER_MS);
    proc_get_stats(t, &st);
    assert_int_equal(st.rescans, 3);
    make(80, 200, "", 0);
    now += 10 * S;
    event(PERFMAP_LOST, 0, 0, 0);
    proc_tick(t, now + 5 * S);
    assert_non_null(proc_find(t, 80));
}

/* A fourth service of at most three is "other". */
static void many_services(void **state)
{
    static const char *const env[] = {"STRATA_SERVICE=a", "STRATA_SERVICE=b", "STRATA_SERVICE=c",
                                      "STRATA_SERVICE=d", "STRATA_SERVICE=a"};
    static const char *const want[] = {"a", "b", "c", "other", "a"};

    (void)state;
    for (uint32_t i = 0; i < 5; i++) {
        make(90 + i, 200, env[i], strlen(env[i]) + 1);
        struct proc *p = proc_find_at(t, 90 + i, now, now);

        assert_str(p->service, str_c(i == 3 ? "d" : want[i])); /* nothing was seen of it yet */
        proc_seen(t, p, 0);
        assert_str(p->service, str_c(want[i]));
        assert_str(p->label[0].value, str_c(want[i]));
    }
}

/* Of twenty every other one dies, some later than others: each is told once and forgotten in its
 * turn; the others stay. */
static void many_deaths(void **state)
{
    uint32_t tgid = 0, told = 0, alive = 0;

    (void)state;
    for (uint32_t pid = 100; pid < 120; pid++)
        make(pid, 200, "", 0);
    proc_scan(t, now);
    for (uint32_t pid = 100; pid < 120; pid += 2) {
        if (pid == 110)
            now += 10 * S;
        gone(pid);
        event(PERFMAP_EXIT, pid, pid, 1);
        proc_tick(t, now);
    }
    while (proc_next_gone(t, &tgid)) /* those of 10 s ago */
        assert_int_equal(tgid, 100 + 2 * told++);
    assert_int_equal(told, 5);
    proc_tick(t, now + S);
    while (proc_next_gone(t, &tgid))
        assert_int_equal(tgid, 100 + 2 * told++);
    assert_int_equal(told, 10);
    for (struct proc *p = proc_next(t, NULL); p; p = proc_next(t, p))
        alive += p->tgid % 2;
    assert_int_equal(alive, 10);
    while (proc_next_changed(t))
        ;
    proc_tick(t, now + 55 * S);
    assert_null(proc_find(t, 108));
    assert_non_null(proc_find(t, 110));
    proc_tick(t, now + 61 * S);
    assert_null(proc_find(t, 118));
    assert_non_null(proc_find(t, 119));
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        T(scan),        T(overlaps),      T(fork_and_exec), T(fork_after_exec), T(environ_cut),
        T(last_thread), T(reuse),         T(old_records),   T(unseen),          T(found_by_sample),
        T(rescans),     T(many_services), T(many_deaths),   T(inside_exec)};
    int r;

    if (!mkdtemp(root))
        return 1;
    r = cmocka_run_group_tests(tests, NULL, NULL);
    rmdir(root);
    return r;
}
