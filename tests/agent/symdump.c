// SPDX-License-Identifier: Apache-2.0
/*
 * symdump [-d DIRS] [-p PID] BINARY: names, lines and inlined functions of the hexadecimal ELF
 * addresses on standard input, each with the line "ADDRESS NAME", then "  FUNCTION FILE:LINE" from
 * the innermost frame outwards, as addr2line -i has them. At the end what it cost and what was
 * refused: "stat KEY VALUE". -p: the root of that process is looked into too.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "agent/file/binary.h"
#include "agent/file/demangle.h"
#include "agent/file/dwarfline.h"
#include "agent/name/debugfind.h"
#include "agent/name/names.h"
#include "base/arena.h"
#include "base/time.h"

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

static uint32_t read_addresses(uint64_t **ret)
{
    uint32_t n = 0, room = 0;
    uint64_t v;

    *ret = NULL;
    while (scanf("%" SCNx64, &v) == 1) {
        if (n == room)
            *ret = xrealloc(*ret, (room = room ? 2 * room : 256) * sizeof **ret);
        (*ret)[n++] = v;
    }
    if (n)
        qsort(*ret, n, sizeof **ret, by_value);
    return n;
}

static void print_text(const struct dwarfline_arrays *a, struct dwarfline_text t, const char *none)
{
    if (t.n)
        printf("%.*s", (int)t.n, a->text + t.at);
    else
        printf("%s", none);
}

static void print_frames(const struct dwarfline_arrays *a, struct dwarfline_found f)
{
    for (uint32_t i = f.first + f.n; i-- > f.first;) {
        printf("  ");
        print_text(a, a->frame[i].name, "??");
        printf(" ");
        print_text(a, a->frame[i].file, "??");
        printf(":%u%s\n", a->frame[i].line, a->frame[i].inlined ? " inlined" : "");
    }
}

/* The peak of this program alone: getrusage() tells that of whoever started it, too. */
static uint64_t peak_kib(void)
{
    FILE *f = fopen("/proc/self/status", "re");
    char line[256];
    uint64_t v = 0;

    while (f && fgets(line, sizeof line, f)) {
        if (strncmp(line, "VmHWM:", 6) == 0)
            v = strtoull(line + 6, NULL, 10);
    }
    if (f)
        (void)fclose(f);
    return v;
}

static int64_t cpu_now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return t.tv_sec * NS_PER_S + t.tv_nsec;
}

static enum dwarfline_fail lines_of(struct binary *b, const char *dirs, struct dwarfline_job *job,
                                    struct dwarfline_arrays *ret)
{
    uint64_t counts[DEBUGFILE_N] = {};
    struct debugfile_facts facts;
    enum dwarfline_fail why;

    job->fd = b->fd;
    job->alt_fd = -1;
    why = dwarfline_read(job, ret);
    if (why == DWARFLINE_NO_DWARF) {
        job->fd = debugfind_of(b, dirs, &facts, counts);
        if (job->fd >= 0) {
            dwarfline_deinit(ret);
            why = dwarfline_read(job, ret);
        }
    }
    return why;
}

int main(int argc, char **argv)
{
    struct names_conf conf = {
        .cache = UINT64_C(64) << 20, .debug_dirs = "", .proc = "/nowhere", .sys = "/nowhere"};
    struct err err = {};
    struct binary *b = NULL;
    struct names_stats st;
    struct dwarfline_arrays a = {};
    uint64_t *addr;
    uint32_t n, pid = 0;
    struct buf out;
    int opt, fd;

    while ((opt = getopt(argc, argv, "d:p:")) != -1) {
        if (opt == 'd')
            conf.debug_dirs = optarg;
        else if (opt == 'p')
            pid = (uint32_t)strtoul(optarg, NULL, 10);
        else
            return 2;
    }
    if (optind + 1 != argc)
        return 2;
    n = read_addresses(&addr);
    fd = open(argv[optind], O_RDONLY | O_CLOEXEC);
    if (fd < 0 || binary_open(fd, str_c(argv[optind]), false, &b, &err) < 0) {
        printf("stat error %s\n", err.msg);
        return 0;
    }
    if (pid)
        binary_offer_root(b, "/proc", pid);
    struct names *names = names_new(&conf);
    struct dwarfline_job job = {.addr = addr, .n = n, .max_bytes = UINT64_C(1) << 30};
    int64_t t0 = cpu_now(), t1;
    enum dwarfline_fail why = lines_of(b, conf.debug_dirs, &job, &a);

    t1 = cpu_now();
    buf_init(&out, 1 << 20);
    for (uint32_t i = 0; i < n; i++) {
        buf_reset(&out);
        (void)names_native(names, b, addr[i], &out);
        printf("%" PRIx64 " %.*s\n", addr[i], (int)out.n, out.p);
        print_frames(&a, a.found[i]);
    }
    names_get_stats(names, &st);
    printf("stat lines %s\nstat lines_ns %" PRId64 "\nstat steps %" PRIu64 "\n",
           dwarfline_fail_name(why), t1 - t0, a.steps);
    printf("stat names_ns %" PRId64 "\nstat bytes %" PRIu64 "\nstat rss_kib %" PRIu64 "\n",
           cpu_now() - t1, st.bytes, peak_kib());
    printf("stat failed %" PRIu64 "\nstat mini %" PRIu64 "\nstat mini_failed %" PRIu64
           "\nstat debug %" PRIu64 "\n",
           st.failed, st.mini, st.mini_failed, st.debug_files);
    for (unsigned i = 0; i < DEBUGFILE_N; i++)
        printf("stat %s %" PRIu64 "\n", debugfile_why_name((enum debugfile_why)i),
               st.debug_found[i]);
    buf_deinit(&out);
    dwarfline_deinit(&a);
    names_free(names);
    free(addr);
    (void)binary_unref(b);
    return 0;
}
