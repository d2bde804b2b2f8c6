// SPDX-License-Identifier: Apache-2.0
#include "agent/collect/conf_table.h"

#include "agent/apart/privs.h"

#define K(n)      (INT64_C(1) << 10) * (n)
#define M(n)      (INT64_C(1) << 20) * (n)
#define G(n)      (INT64_C(1) << 30) * (n)
#define MS(n)     INT64_C(1000000) * (n)
#define SEC(n)    INT64_C(1000000000) * (n)
#define AT(field) offsetof(struct agent_conf, field)

// clang-format off
const struct conf_opt agent_opts[] = {
    {"server", "url", CONF_STR, AT(url), "http://127.0.0.1:4040", 0, 0,
     "where batches are sent to"},
    {"server", "token_file", CONF_STR, AT(token_file), "", 0, 0,
     "file with the token for sending, mode 0600"},
    {"server", "ca_file", CONF_STR, AT(ca_file), "", 0, 0,
     "certificates that https servers are checked by; empty: the system's"},
    {"server", "insecure", CONF_BOOL, AT(insecure), "off", 0, 0,
     "send the token over plain HTTP to another host"},

    {"cpu", "period_ns", CONF_DURATION, AT(period_ns), "10101010ns", MS(1), SEC(1),
     "time between two samples of a CPU; 10101010ns is 99 Hz"},
    {"cpu", "ring", CONF_SIZE, AT(ring_bytes), "0B", 0, G(1),
     "ring of records from the kernel, a power of two; 0B: by period and CPUs"},

    {"offcpu", "enabled", CONF_STR, AT(offcpu), "auto", 0, 0,
     "time blocked and time waiting for a CPU: off, on (every process), auto (Python programs with "
     "several threads) or globs of services, separated by commas"},
    {"offcpu", "min_block", CONF_DURATION, AT(min_block_ns), "1ms", 0, SEC(1),
     "shorter waits are added up, without a stack"},
    {"offcpu", "stacks_per_s", CONF_COUNT, AT(stacks_per_s), "500", 1, 100000,
     "stacks for each CPU and second, at most; beyond it time off the CPU has none"},

    {"batch", "interval", CONF_DURATION, AT(batch_interval_ns), "10s", SEC(1), SEC(60),
     "time between two batches; 2s at most for a server on this machine"},

    {"symbols", "cache", CONF_SIZE, AT(symbols_cache), "64MiB", M(1), G(4),
     "memory for symbol tables and names"},
    {"symbols", "lines", CONF_STR, AT(lines), "hot", 0, 0,
     "source lines and inlined functions: off, hot (of what a target spends its time in) or all"},
    {"symbols", "debuginfo_dirs", CONF_STR, AT(debuginfo_dirs), "/usr/lib/debug", 0, 0,
     "folders of debug files, by build id or debug link, separated by :; empty: none"},

    {"unwind", "table_budget", CONF_SIZE, AT(table_budget), "64MiB", M(8), G(1),
     "memory for unwind tables; beyond it those seen longest ago go"},
    {"unwind", "fallback_fp", CONF_BOOL, AT(fallback_fp), "on", 0, 0,
     "where no table says anything (JIT, Go): the frame pointer, if it is plausible; else stop"},

    {"python", "enabled", CONF_BOOL, AT(python), "on", 0, 0,
     "Python functions in the stacks of CPython 3.10 to 3.15"},
    {"python", "gil", CONF_BOOL, AT(gil), "on", 0, 0,
     "also profile gil_held, the CPU time of threads that hold Python's interpreter lock"},

    {"labels", "cmdline", CONF_STR, AT(cmdline), "masked", 0, 0,
     "what is sent of command lines: masked (secrets hidden), exe (the program's name) or off"},
    {"labels", "env", CONF_STR, AT(label_env), ENVIRON_DEFAULT, 0, 0,
     "variables of processes that may leave the host besides STRATA_SERVICE, STRATA_VERSION and "
     "STRATA_LABELS; one that is not in the default list becomes a label, in lower case"},
    {"labels", "static", CONF_STR, AT(label_static), "", 0, 0,
     "labels of everything that this agent sends: k=v,k=v"},

    {"steps", "enabled", CONF_BOOL, AT(steps), "on", 0, 0,
     "listen to what programs say of their steps (docs/steps.md)"},

    {"select", "include", CONF_STR, AT(include), "", 0, 0,
     "profile only what matches: service=GLOB, exe=GLOB, cgroup=GLOB, separated by commas; a bare "
     "glob is of the service; empty: everything"},
    {"select", "exclude", CONF_STR, AT(exclude), "", 0, 0,
     "leave out what matches, as include; its time is counted as filtered"},

    {"limits", "cpu_percent_per_16_cpus", CONF_PERCENT, AT(cpu_percent), "4", 1, 1600,
     "of one CPU, what the agent may use for each 16 CPUs or part of 16; beyond it the rate falls"},
    {"limits", "memory", CONF_SIZE, AT(memory), "0B", 0, G(64),
     "what the agent may use, BPF maps included; 0B: 120 MiB and 0.3 MiB for each CPU"},

    {"spool", "dir", CONF_STR, AT(spool_dir), "", 0, 0,
     "directory, mode 0700, of batches that wait; empty: spool in the state directory"},
    {"spool", "max_bytes", CONF_SIZE, AT(spool_max_bytes), "1GiB", K(64), G(1024),
     "room for batches that wait for the server; beyond it the oldest are dropped, and counted"},
    {"spool", "max_age", CONF_DURATION, AT(spool_max_age_ns), "24h", SEC(1), SEC(604800),
     "older batches are dropped, and counted"},

    {"privileges", "user", CONF_STR, AT(user), PRIVS_USER, 0, 0,
     "whom the agent becomes when it is started as root; root, or empty: stays root. The default "
     "may be missing on this machine, another user may not"},
    {"privileges", "processes", CONF_STR, AT(processes), "apart", 0, 0,
     "apart: processes without any right read strangers' files, and talk to the server; single: all "
     "in one process"},
};
// clang-format on
const size_t agent_n_opts = sizeof agent_opts / sizeof *agent_opts;
