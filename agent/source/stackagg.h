// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdint.h>

#include "agent/bpf/cpu.h"
#include "agent/proc/proc.h"
#include "agent/python/pynames.h"
#include "agent/source/source.h"
#include "base/arena.h"
#include "base/map.h"
#include "base/sample.h"

/*
 * Equal stacks of one window become one row. Key: second (or time), target, labels, tid, thread
 * name, stack, how the stack ended. The weight of every sample that is added is in some row,
 * whatever is full: beyond STACKAGG_ROWS rows or STACKAGG_WORDS words a sample goes to the row [no
 * stack: table_full] of its thread, then of its process, then of the machine.
 *
 * Thread: stackagg is the main thread's. A window that was taken belongs to whoever holds it.
 */
#define STACKAGG_ROWS  65536
#define STACKAGG_WORDS (UINT32_C(4) << 20)

/* A raw word (SA_W_RAW) whose address lies in anonymous executable memory. */
#define STACKAGG_W_ANON (UINT64_C(1) << 61)

static inline bool stackagg_anonymous(uint64_t w)
{
    return w >> 48 == (SA_W_RAW | STACKAGG_W_ANON) >> 48; /* not SA_W_VSYS */
}

/* A Python frame as it was read from the process: its words become one, SA_W_PY | index in the
 * window's functions << 32 | line. */
#define STACKAGG_PY_INDEX(w) ((uint32_t)((w) >> 32) & 0x3fffffff)
#define STACKAGG_PY_LINE(w)  ((uint32_t)(w))

/* Those of a record, in its order. */
struct stackagg_pys {
    const struct pynames_frame *v;
    uint32_t n;
};

/* Ends of stacks beyond enum sa_stop. */
enum {
    STACKAGG_TABLE_FULL = SA_S_N,
    STACKAGG_SHORT, /* time off the CPU: enum sa_left */
    STACKAGG_THROTTLED,
    STACKAGG_NOT_RUN,
    STACKAGG_RING,
    STACKAGG_STOPS,
};

/* A process as it was when the sample was added: an exec in the window makes a second one. */
struct stackagg_who {
    uint64_t serial; /* of struct proc; of an unknown process 2^63 + pid */
    struct target_key key;
    uint32_t host_pid, flags;
    struct str exe, cmdline, comm, cgroup, container;
    uint32_t n_env, n_label;
    struct label *env;
    struct label *label; /* service first */
};

struct stackagg_row {
    real_ns t; /* start of its second, or of the window; the last step call in it; its own with
                * stackagg_keep_times() */
    uint32_t who, tid;
    uint32_t word; /* first of nk kernel words and nu user words, leaf first */
    uint16_t nk, nu;
    uint8_t stop; /* enum sa_stop or STACKAGG_TABLE_FULL */
    char comm[16];
    uint64_t count;
    int64_t weight;
    uint64_t gil_count; /* of them: while its thread held Python's GIL */
    int64_t gil_weight;
    /* Of time off the CPU weight is what was blocked, and this is what waited for a CPU. */
    bool off;
    bool gil_asked; /* it said itself that it waits for the GIL */
    uint64_t runq_count;
    int64_t runq_weight;
    uint32_t holder; /* of the GIL, which it may have waited for: index in the window's + 1; 0 */
    uint32_t again;  /* of count: those that go on with the wait before them, if for the GIL */
    uint64_t hash;   /* private, as the next */
    uint32_t same_hash;
};

/* Part of an interval off the CPU (source_offcpu.h). */
struct stackagg_off {
    const struct sa_ev *ev; /* who, and with stop below STACKAGG_TABLE_FULL the stack */
    real_ns t;
    uint8_t stop;
    uint64_t n;
    int64_t blocked, queued;
    bool again;        /* as of struct source_offcpu_part */
    struct str holder; /* of the GIL, which the thread had not got: a frame for people; "" */
};

/* What is said of one window's time off the CPU; times are in its rows. */
struct stackagg_off_account {
    bool on;                           /* it was profiled, in the whole window */
    bool scoped;                       /* of some processes, not of all */
    bool python;                       /* there are Pythons whose lock is known */
    uint32_t types;                    /* 1 << PTYPE_OFFCPU, _RUNQ, _GIL_WAIT: what is asked for */
    uint64_t lost;                     /* intervals that the ring refused, */
    int64_t lost_blocked, lost_queued; /* and their time */
    uint64_t bpf_ns;
};

/* A finished step of a process (source_step.c). */
struct stackagg_step {
    uint32_t who, tid, n_label;
    struct str name;
    uint64_t number;
    real_ns t0;
    int64_t dur; /* ns, > 0 */
    const struct label *label;
};

struct stackagg_window {
    struct source_account account;
    uint32_t n_who, n_row;
    struct stackagg_who *who;
    struct stackagg_row *row;
    uint64_t *word;
    uint32_t n_word, n_step, room_step;
    struct stackagg_step *step; /* that ended in it; they may have begun before */
    struct pynames_frame *py;   /* functions of Python frames; line is 0 */
    uint32_t n_py;
    struct {
        bool on;                    /* gil_held is profiled: by whoever takes the window */
        uint64_t known, unreadable; /* ticks of threads with a GIL: could it be asked? */
        int64_t unreadable_weight;
    } gil;
    struct stackagg_off_account off; /* by whoever takes the window */
    struct str *holder;              /* of the GIL */
    uint32_t n_holder;
    uint64_t table_full; /* samples without their stack, for want of room */
    struct arena texts;
};

struct stackagg;

struct stackagg *stackagg_new(void);
/* From now on each sample keeps its own time, and so its own row, instead of its second's. */
void stackagg_keep_times(struct stackagg *a);
struct stackagg *stackagg_free(struct stackagg *a); /* NULL is a no-op; returns NULL */

/* The next record's row begins there and not with its second: what it is folded with has the same
 * steps. Not behind the record, and in its second. */
void stackagg_since(struct stackagg *a, real_ns since);

/* The functions of the next record's Python frames; borrowed until it was added. Without them each
 * is [python 0xADDR]. */
void stackagg_python(struct stackagg *a, struct stackagg_pys py);

/* One record of process p (NULL: unknown). Raw addresses are looked up in its mappings. host: for
 * the key of an unknown process. Returns whether code in anonymous memory is on the stack. */
bool stackagg_add(struct stackagg *a, const struct sa_ev *ev, real_ns t, const struct proc *p,
                  const uint8_t host[static 16]);

/* As stackagg_add(), of time off the CPU. Its Python frames: as said to stackagg_python(). */
void stackagg_add_off(struct stackagg *a, const struct stackagg_off *o, const struct proc *p,
                      const uint8_t host[static 16]);

/* A step of p; texts and labels are copied, who is set here. */
void stackagg_add_step(struct stackagg *a, const struct stackagg_step *s, const struct proc *p);

/* What was added since the last call, with its account; times outside its interval are moved to its
 * edge. The caller frees it. */
struct stackagg_window *stackagg_take(struct stackagg *a, const struct source_account *account);
struct stackagg_window *stackagg_window_free(struct stackagg_window *w); /* returns NULL */

/* So far: to cut a batch early. */
uint32_t stackagg_rows(const struct stackagg *a);
uint32_t stackagg_words(const struct stackagg *a);

/* The sum of the weights of all rows of CPU time. */
int64_t stackagg_weight(const struct stackagg_window *w);
