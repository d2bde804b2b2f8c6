// SPDX-License-Identifier: Apache-2.0
/*
 * ehdump FILE [ADDRESS...]: the unwind rules of a file, all or those in force at ELF addresses
 * (hex). One line each: address, kind, off, where rbp is, fpoff. Beside readelf
 * --debug-dump=frames-interp it shows whether the table says what the file says
 * (tests/agent/readelf_check.py).
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/file/ehtab.h"
#include "base/str.h"

static int64_t read_fd(void *ctx, void *to, uint64_t n, uint64_t at)
{
    ssize_t r = pread(*(int *)ctx, to, n, (off_t)at);

    return r < 0 ? -errno : r;
}

static void print(uint64_t pc, const struct sa_rule *r)
{
    static const char *const kind[] = {"INVALID", "RSP",   "RBP",       "PLT11",     "PLT10",
                                       "SIG",     "END",   "DEREF_RBP", "DEREF_RSP", "NOINFO",
                                       "REG",     "RAREG", "PLT9"};
    static const char *const fp[] = {"same", "cfa", "rbp", "lost"};

    (void)printf("%" PRIx64 " %s %d %s %d %u\n", pc, kind[r->kind], r->off, fp[r->fpk], r->fpoff,
                 r->reg);
}

static int usage(void)
{
    (void)fputs("usage: ehdump FILE [ADDRESS...]\n", stderr);
    return 2;
}

int main(int argc, char **argv)
{
    struct stat st;
    struct ehtab t;
    enum ehtab_fail why;
    int fd;

    if (argc < 2)
        return usage();
    fd = open(argv[1], O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st)) {
        (void)fprintf(stderr, "%s: %s\n", argv[1], strerror(errno));
        return 1;
    }
    why = ehtab_build(&(struct ehtab_file){read_fd, &fd, (uint64_t)st.st_size}, &t);
    (void)close(fd);
    if (why) {
        (void)fprintf(stderr, "%s: no table: %s\n", argv[1], ehtab_fail_name(why));
        return 1;
    }
    (void)fprintf(stderr,
                  "rows %zu, FDEs %" PRIu64 ", unusable: FDEs %" PRIu64 ", CFA %" PRIu64
                  ", return address %" PRIu64 ", offset %" PRIu64 "; leaf-only %" PRIu64
                  ", in register %" PRIu64 ", context end %" PRIu64 ", PLT %" PRIu64 "\n",
                  t.n, t.fdes, t.bad_fde, t.bad_expr, t.bad_ra, t.bad_off, t.leaf_reg, t.ra_reg,
                  t.ctx_end, t.plt_made);
    for (size_t i = 0; argc == 2 && i < t.n; i++)
        print(t.row[i].pc, &t.row[i].rule);
    for (int i = 2; i < argc; i++) {
        uint64_t pc;
        const struct sa_rule none = {.kind = SA_K_NOINFO}, *r;

        if (!str_hex64(str_c(argv[i]), &pc))
            return usage();
        r = ehtab_find(&t, pc);
        print(pc, r ? r : &none);
    }
    ehtab_deinit(&t);
    return 0;
}
