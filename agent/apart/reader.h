// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "agent/apart/reader_wire.h"
#include "agent/file/binary.h"

/*
 * Who reads strangers' files: ELF headers beyond what names a binary, unwind information, symbols,
 * DWARF, compressed debug information, perf maps. After reader_start() a process of its own without
 * any right (apart.h): it gets descriptors and answers with arrays, which are checked here. Before,
 * and in programs that never call it (record, dump, tests), this process itself: then each function
 * below is the one that it names.
 *
 * A question waits for its answer, so it is asked by threads that nobody samples with. They wait as
 * in the same process, one for each of READER_LANES kinds of work; a reader that dies, or uses no
 * CPU time for READER_HUNG_NS, or more than READER_CPU_NS of it for one question, is killed and
 * started again, once a second at most and less often where it goes on. A question that it died
 * over is asked once more. What stays without an answer is -EAGAIN where asking later may help
 * (there is no reader now) and -EBADMSG where it will not; each is counted.
 *
 * Any thread, but for start and stop; one reader per process, so its state is the module's own.
 */
#define READER_LANES   4
#define READER_HUNG_NS (INT64_C(10) * 1000000000)
#define READER_CPU_NS  (INT64_C(30) * 1000000000)

/* After apart_open(), before other threads. pause_ns: at least so long between two starts, up to
 * thirty times that where they do not help; 0: a second. errors: as apart_start() */
[[nodiscard]] int reader_start(int64_t pause_ns, struct err *err);
/* Threads that wait for it get -EAGAIN from now on. */
void reader_stop(void);
bool reader_is_apart(void);

enum ehtab_fail reader_table(struct binary *b, struct ehtab *ret); /* ehtab_build() */
[[nodiscard]] int reader_symbols(struct binary *b, int debug_fd, uint32_t max_symbols,
                                 struct elfsym_arrays *ret, struct err *err); /* elfsym_read() */
/* demangle(): 0 appended, 1 it is no mangled name, or -EAGAIN */
[[nodiscard]] int reader_demangle(struct str name, struct buf *out);
/* debugfile_facts() of a binary; false: none. */
bool reader_facts(const struct binary *b, struct debugfile_facts *ret);
bool reader_facts_of(int fd, struct debugfile_facts *ret); /* of a file */
enum debugfile_why reader_prove(int fd, const struct debugfile_proof *p);
[[nodiscard]] int reader_perfmap(int fd, const struct jitmap_args *args, struct jitmap *ret,
                                 struct err *err); /* jitmap_read() */
/* dwarfline_read(), with demangled names; cpu: ns that it cost elsewhere is added. */
enum dwarfline_fail reader_lines(const struct dwarfline_job *job, struct dwarfline_arrays *ret,
                                 uint64_t *cpu);
/* pyelf_read(): 0, 1 it is none, or -EAGAIN */
[[nodiscard]] int reader_python(struct binary *b, struct pyelf *ret);
/* usdt_find_step(): enum usdt_found, or -EAGAIN. What is found is looked at again here: a nop at
 * the site, and a word of zeros for the kernel to count in. */
[[nodiscard]] int reader_step(struct binary *b, struct usdt_site *ret);

/* Is it there and awake? Whoever asks this now and then has a dead one started again. */
void reader_ping(void);

struct reader_stats {
    uint64_t asked[READER_KINDS];
    uint64_t failed;          /* questions: it died twice over them, or the answer was nonsense */
    uint64_t absent;          /* questions that there was no reader for */
    uint64_t died, hung, bad; /* why it was started again */
    uint64_t starts;
};
void reader_get_stats(struct reader_stats *ret);

/* What happened since it was last asked, as logfmt of an event; false: nothing. Main thread. */
#define READER_NEWS 160
bool reader_news(char text[static READER_NEWS]);

/*
 * The process itself: answers until all ends are closed, then returns its exit status. fd:
 * READER_LANES ends. For tests the environment variable STRATA_TEST_READER_ABORT holds a build id,
 * in hex: whoever asks for this file's table makes it abort.
 */
int reader_serve(const int *fd, unsigned n);
