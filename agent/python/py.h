// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "agent/proc/proc.h"
#include "agent/python/pylayout.h"
#include "agent/python/pynames.h"
#include "agent/unwind/tables.h"

/*
 * The Pythons among the processes: which they are (pyelf.h), whether their layout is one that we
 * read (pylayout.h), told to the BPF programs (tables_python()), and the names of their frames
 * (pynames.h). A process is not told of before its layout is proved on itself, so a Python that
 * just starts has native frames alone for some 20 ms. Owner: the collector's main thread.
 */
struct py;

struct py_conf {
    const char *proc; /* "/proc" */
    struct tables *tables;
    struct facts *facts; /* NULL: files are read here */
    /* What is to be said once, for an event: logfmt. */
    void (*say)(void *ctx, const char *kind, const char *text);
    void *ctx;
};

#define PY_DOUBT_SAMPLES 200 /* from so many on a share is judged */

#define PY_VERSIONS 24 /* told apart; of one beyond them the processes alone are counted */

struct py_version {
    uint32_t hex; /* PY_VERSION_HEX; 0: not known yet */
    enum pylayout_result state;
    uint64_t processes; /* now */
};

struct py_stats {
    uint64_t processes[PYLAYOUT_N]; /* now, by how the check went; PYLAYOUT_OK: read */
    uint32_t n_version;
    struct py_version version[PY_VERSIONS];
    uint64_t by_shim, unmerged; /* of those read: by entry frames; JIT code without frames */
    uint64_t samples;           /* of threads in processes that are read */
    uint64_t with_frames;       /* with a Python frame */
    uint64_t merged;            /* of them: all of the frames in their places */
    uint64_t frames;
    uint64_t is_short, drained; /* samples with SA_F_PY_SHORT, SA_F_PY_DRAINED */
    uint64_t err[16];           /* by enum sa_pyerr */
    uint64_t gil[8];            /* by enum sa_gil */
    struct pynames_stats names;
};

struct py *py_new(const struct py_conf *c);
struct py *py_free(struct py *y); /* NULL is a no-op; returns NULL */

/* p's mappings have changed and were published. now: CLOCK_MONOTONIC. NULL y: no-op, as below. */
void py_follow(struct py *y, const struct proc *p, int64_t now);

/* Every drain: processes that were not ready are looked at again. */
void py_tick(struct py *y, int64_t now);

/* When it is due next; INT64_MAX: nothing waits. */
int64_t py_due(const struct py *y);

/* New interpreters, code objects and holders of a lock that were read from memory so far. While it
 * rises drains must follow soon: what a record names may be gone. */
uint64_t py_reads(const struct py *y);

void py_gone(struct py *y, uint32_t tgid);

/* How it stands with p; PYLAYOUT_N: it is no Python. */
enum pylayout_result py_state(const struct py *y, const struct proc *p);

/* pylayout_thread_pointer() of a thread of p; 0 where p is not read. */
int py_thread_pointer(const struct py *y, const struct proc *p, uint32_t tid, uint64_t *ret);

/* A record of p: counted; its Python frames into ret, how many. Texts are borrowed until the next
 * call. */
uint32_t py_sample(struct py *y, const struct proc *p, const struct sa_ev *ev,
                   struct pynames_frame ret[static SA_MAX_PY]);

/* The processes that are read, one after the other; *pos 0 at first. false: no more. */
bool py_next(const struct py *y, uint32_t *pos, uint32_t *ret_tgid);

/* The thread that held the GIL when ev, a record of p, was taken: its number as p's pid namespace
 * has it; 0: it cannot be told. Reads p's memory. */
uint32_t py_holder(struct py *y, const struct proc *p, const struct sa_ev *ev);

/* As py_sample(), of a record that was counted already. */
uint32_t py_frames(struct py *y, const struct proc *p, const struct sa_ev *ev,
                   struct pynames_frame ret[static SA_MAX_PY]);

/* Was there ever a process that is read? */
bool py_any(const struct py *y);

void py_get_stats(const struct py *y, struct py_stats *ret);
