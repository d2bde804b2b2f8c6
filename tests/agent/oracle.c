// SPDX-License-Identifier: Apache-2.0
/*
 * oracle [-l] [-p PERIOD_NS] [-s SECONDS] [-w SECONDS] [-v N] -- COMMAND...
 *
 * Same sample, two unwinders (agent/cmd/oracle.h), of a command. -w: at least so long nothing
 * counts, and until all tables are built that samples asked for. -v: print so many differences. -l:
 * as without bpf_loop(). Output: one line of key=value: the counters of struct oracle_result;
 * ours_STOP: we stopped with that reason, libdw went on. Exit 0, 77 no BPF here, 2 usage or another
 * error.
 */
#include "agent/cmd/oracle.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/str.h"

static void print(const struct oracle_result *r)
{
    (void)printf("oracle samples=%" PRIu64 " same=%" PRIu64 " dump=%" PRIu64 " theirs=%" PRIu64
                 " differ=%" PRIu64 " unmatched=%" PRIu64 " fp_used=%" PRIu64,
                 r->samples, r->same, r->dump, r->theirs, r->differ, r->unmatched, r->fp_used);
    for (int k = 0; k < SA_S_N; k++)
        if (r->stop[k])
            (void)printf(" ours_%s=%" PRIu64, oracle_stop_name[k], r->stop[k]);
    (void)printf("\n");
}

static int usage(void)
{
    (void)fputs(
        "usage: oracle [-l] [-p PERIOD_NS] [-s SECONDS] [-w SECONDS] [-v N] -- COMMAND...\n",
        stderr);
    return 2;
}

static pid_t start(char **argv)
{
    pid_t p = fork();

    if (p == 0) {
        (void)execvp(argv[0], argv);
        (void)fprintf(stderr, "oracle: %s: %s\n", argv[0], strerror(errno));
        _exit(127);
    }
    return p;
}

int main(int argc, char **argv)
{
    struct oracle_opts o = {.period_ns = 5025125, .seconds = 4, .warm = 2, .to = stdout};
    struct oracle_result res;
    struct err err = {};
    uint64_t v;
    int c, r;

    while ((c = getopt(argc, argv, "+lp:s:w:v:")) != -1) {
        if (c == 's' || c == 'w')
            *(c == 's' ? &o.seconds : &o.warm) = strtod(optarg, NULL);
        else if (c == 'l')
            o.no_loop = true;
        else if (c == '?' || !str_u64(str_c(optarg), &v))
            return usage();
        else if (c == 'p')
            o.period_ns = v;
        else
            o.verbose = (uint32_t)v;
    }
    if (optind >= argc)
        return usage();
    (void)setvbuf(stdout, NULL, _IOLBF, 0);
    o.child = start(argv + optind);
    r = oracle_run(&o, &res, &err);
    if (!res.ended && o.child > 0) {
        (void)kill(o.child, SIGKILL);
        (void)waitpid(o.child, NULL, 0);
    }
    if (r < 0) {
        (void)fprintf(stderr, "oracle: %s\n", err.msg);
        return r == -EPERM || r == -EACCES || r == -ENOTSUP || r == -ENOENT ? 77 : 2;
    }
    print(&res);
    return 0;
}
