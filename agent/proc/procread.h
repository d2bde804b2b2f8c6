// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "agent/proc/environ.h"
#include "base/arena.h"
#include "base/err.h"
#include "base/sample.h"
#include "base/str.h"

/*
 * What /proc/PID says (proc(5)): texts into structs. A process may be gone, or become another one,
 * between two reads: callers compare start times. Parsers are pure; results are parts of the input.
 * Any thread.
 */
struct procread_stat {
    struct str comm;
    char state;     /* R S D Z T X ... */
    uint64_t flags; /* PF_* */
    uint64_t threads;
    uint64_t start_ticks; /* since boot, in clock ticks */
};

/* /proc/PID/stat; a comm may hold blanks and parentheses. */
bool procread_stat_parse(struct str text, struct procread_stat *ret);
#define PROCREAD_PF_KTHREAD UINT64_C(0x00200000)

/* The innermost pid of /proc/PID/status: the last number of its line NSpid. */
bool procread_nspid(struct str status, uint64_t *ret);

struct procread_map {
    uint64_t start, end, offset, ino;
    bool exec;
    struct str dev;
    struct str path; /* "" anonymous; without " (deleted)" */
    bool deleted;
};

/* The next line of /proc/PID/maps; false at the end. Lines that make no sense are skipped. */
bool procread_map_next(struct str *text, struct procread_map *ret);

/* "PATH (deleted)" without it. */
struct str procread_undelete(struct str path, bool *ret_deleted);

enum procread_cmdline {
    PROCREAD_CMDLINE_MASKED = 0,
    PROCREAD_CMDLINE_EXE, /* the program's name alone */
    PROCREAD_CMDLINE_OFF,
};

/* Everything that an exec changes. Texts live in the arena given. */
struct procread_facts {
    struct str exe, cmdline, comm, cgroup, container, pod, service;
    struct str masked; /* the command line as rules see it, whatever is sent of it */
    bool exe_deleted, kthread;
    bool bare; /* neither arguments nor environment: most likely an exec that is not through */
    uint32_t n_env;
    struct environ_var env[ENVIRON_MAX];
};

struct procread_opts {
    enum procread_cmdline cmdline;
    const struct environ_want *want;
};

/* errors: -ENOENT, -ESRCH the process is gone; the rest is best effort: a file that cannot be read
 * leaves its field empty */
[[nodiscard]] int procread_facts(const char *proc, uint32_t pid, const struct procread_opts *opts,
                                 struct arena *a, struct procread_facts *ret, struct err *err);

/* By which number the files of a process are to be read: pid, or while its first thread is dead and
 * others live, the id of one of them (files of the dead one are empty). */
uint32_t procread_alive_tid(const char *proc, uint32_t pid);

/* Who it is. pidns: inode of its pid namespace; pid: as seen in it. errors as above */
struct procread_identity {
    uint64_t pidns, pid, start_ticks, threads;
    bool kthread;
    bool leader_dead; /* its first thread is gone, others live */
};
[[nodiscard]] int procread_identity(const char *proc, uint32_t pid, struct procread_identity *ret,
                                    struct err *err);

/* Its real and effective user; false if it is gone. */
bool procread_uids(const char *proc, uint32_t pid, uint32_t ret[static 2]);

/* The service a process belongs to: STRATA_SERVICE, systemd unit, Python script or module, exe
 * name; "kernel" for kernel threads. A part of the inputs, or static. */
struct procread_who {
    struct str strata_service, unit, exe, args, comm;
    bool kthread;
};
struct str procread_service(const struct procread_who *w);

/*
 * When this kernel booted, wall clock. It is read once per boot id and kept in the file "boot" of
 * state_dir: it must not move when the clock is set or the agent restarts. *ret_kept: false where
 * the directory could not be written (NULL allowed).
 */
real_ns procread_boot_time(const char *proc, const char *state_dir, bool *ret_kept);

/* 16 bytes that name this machine, hashed from its machine id; false if it has none. */
bool procread_host_id(const char *etc, uint8_t ret[static 16]);
