// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "agent/bpf/cpu.h"
#include "agent/unwind/tables.h"
#include "base/err.h"

/*
 * The BPF side of the agent: programs, maps, perf events. bpf_load.c is the only file that sees the
 * skeleton. One owner, one thread, except where it says otherwise. Closing (or dying) takes
 * programs, maps and events away: nothing is pinned.
 */
struct bpf_load;

/* Whose ticks are samples. Time of others counts as idle. */
enum bpf_load_watch {
    BPF_LOAD_ALL = 0,
    BPF_LOAD_WATCHED,  /* of processes given to bpf_load_watch() */
    BPF_LOAD_CHILDREN, /* of these and what they fork, from the fork on */
};

struct bpf_load_opts {
    uint64_t period_ns;  /* of every CPU's event, 100 us to 1 s */
    uint32_t ring_bytes; /* power of two, a multiple of the page; 0: by period and CPUs, >= 4 MiB */
    bool no_fallback_fp; /* no frame pointers where no table says anything: stop there */
    bool no_bpf_loop;    /* as on a kernel without bpf_loop(), whatever this one has */
    enum bpf_load_watch watch;
    /* For tests; 0: what the machine has. */
    const char *online_path; /* a list as in /sys/devices/system/cpu/online */
    bool no_user;            /* leave the user part of stacks out (benchmarks) */
    uint32_t fake_cpus;      /* sizes, and bpf_load_map_bytes(), as with so many CPUs */
    /* This process's ticks also go to the events' own rings, with user registers and so many bytes
     * of stack: the same sample for another unwinder. */
    uint32_t pass_tgid, pass_stack;
};

/* Registers of passed samples: enum perf_event_x86_regs, all but the segments'. */
#define BPF_LOAD_PASS_REGS UINT64_C(0xff0fff)

/* Open, load, attach, start ticking. errors: the text names what is missing and what to do:
 * -EPERM, -EACCES capability; -ENOENT, -ENOTSUP a feature of the kernel; -EMFILE; -EINVAL */
[[nodiscard]] int bpf_load_open(struct bpf_load **ret, const struct bpf_load_opts *opts,
                                struct err *err);
struct bpf_load *bpf_load_close(struct bpf_load *b); /* NULL is a no-op; returns NULL */

/* Records since the last call, oldest first per CPU; each borrowed during the call. Its words are
 * checked against its length. Returns how many, or negative errno. */
int bpf_load_drain(struct bpf_load *b, void (*fn)(void *ctx, const struct sa_ev *ev), void *ctx);

/* For epoll, edge-triggered: more than a quarter of the ring waits, or a record with one of these
 * stops came, 1 << SA_S_... each; 0 at the open. Valid until the close. */
int bpf_load_ring_fd(const struct bpf_load *b);
void bpf_load_wake(struct bpf_load *b, uint32_t stops);

/* CPUs that may exist: the length of arrays by CPU. */
uint32_t bpf_load_cpus(const struct bpf_load *b);

/* Do programs walk stacks by bpf_loop(), or by a counted loop? */
bool bpf_load_has_loop(const struct bpf_load *b);

/* CPUs with an event now. */
uint32_t bpf_load_width(const struct bpf_load *b);

/*
 * A copy of every CPU's account into a[bpf_load_cpus()], whole per CPU: read twice with equal even
 * seq, at most 8 tries. Where that fails the entry is left as it was, so that what is missing comes
 * with the next call. Returns how many were left, or negative errno.
 */
int bpf_load_acct(struct bpf_load *b, struct sa_acct *a);

/* Watch a process, or no longer. errors: -E2BIG SA_MAX_WATCH are watched */
[[nodiscard]] int bpf_load_watch(struct bpf_load *b, uint32_t tgid, bool on, struct err *err);
bool bpf_load_watches(const struct bpf_load *b, uint32_t tgid);
/* Children that found no room. */
uint64_t bpf_load_watch_full(const struct bpf_load *b);

/* Exact from the next timer on. errors: as ioctl(2) */
[[nodiscard]] int bpf_load_set_period(struct bpf_load *b, uint64_t period_ns, struct err *err);

/* CPUs that went or came since the last call: their events are closed, opened. Call once a second.
 * Returns how many changed, or negative errno: some CPU has no event now. */
int bpf_load_poll_cpus(struct bpf_load *b, struct err *err);

/* The event of a CPU, -1 where it has none; for tests that pass samples on. Borrowed. */
int bpf_load_event_fd(const struct bpf_load *b, uint32_t cpu);

/* How tables.c reaches the maps. Valid until the close; chunk_new may be called by another thread.
 */
struct tables_io bpf_load_tables_io(struct bpf_load *b);

/* For programs that share them: the map of that name; what its programs were loaded with. */
int bpf_load_map_fd(const struct bpf_load *b, const char *name);
void bpf_load_rodata(const struct bpf_load *b, uint32_t *ret_watch, uint32_t *ret_has_loop,
                     uint32_t *ret_no_fp);

/* Bytes of one map, as the kernel counts them; 0: not told. */
uint64_t bpf_load_fd_bytes(int map);

/* Bytes that the maps held when they were made, as the kernel counts them (fdinfo memlock), chunks
 * apart; those by CPU scaled to fake_cpus. Only what a capture watches may add to them. */
uint64_t bpf_load_map_bytes(const struct bpf_load *b);

/* ---- what this machine can do --------------------------------------------------------------- */

enum bpf_probe_state {
    BPF_PROBE_OK = 0,
    BPF_PROBE_DEGRADED,   /* goes on with less: why says what is lost */
    BPF_PROBE_IMPOSSIBLE, /* no CPU profile by BPF */
};

struct bpf_probe_item {
    const char *name; /* static: "btf", "cap_perfmon", ... */
    enum bpf_probe_state state;
    char why[160];    /* mostly empty where OK */
    char remedy[160]; /* what to do; empty where there is nothing */
};

enum {
    BPF_PROBE_MAX = 16
};

struct bpf_probe {
    uint32_t n;
    enum bpf_probe_state worst;
    struct bpf_probe_item item[BPF_PROBE_MAX];
};

/* By trying, never by version. Loads nothing that stays. no_bpf_loop: as if that were missing. Any
 * thread. */
void bpf_load_probe(bool no_bpf_loop, struct bpf_probe *ret);

/* The first item of the worst state as one line "name: why; remedy", for an error message. */
void bpf_load_probe_text(const struct bpf_probe *p, char *ret, size_t size);
