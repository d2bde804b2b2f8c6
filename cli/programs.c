// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <ftw.h>
#include <grp.h>
#include <poll.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/sudo.h"
#include "cli/local.h"

volatile sig_atomic_t program_signals;
volatile pid_t program_signals_to;

// NOLINTBEGIN(concurrency-mt-unsafe): one thread

void program_find(const char *name, char ret[static PROGRAM_PATH])
{
    static const char *const in[] = {"", "../agent/", "../server/"};
    char self[PROGRAM_PATH - 64];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);

    self[n < 0 ? 0 : n] = 0;
    n = (ssize_t)(n < 0 ? 0 : str_rfind(str_c(self), '/') + 1);
    self[n] = 0;
    for (size_t i = 0; n && i < sizeof in / sizeof *in; i++) {
        (void)snprintf(ret, PROGRAM_PATH, "%s%s%s", self, in[i], name);
        if (access(ret, X_OK) == 0)
            return;
    }
    (void)snprintf(ret, PROGRAM_PATH, "%s", name);
}

bool program_drop(void)
{
    uid_t uid;
    gid_t gid;

    if (!sudo_user(&uid, &gid))
        return true;
    return setgroups(1, &gid) == 0 && setgid(gid) == 0 && setuid(uid) == 0;
}

const char *program_home(void)
{
    const char *home = getenv("HOME");
    const struct passwd *p;
    uid_t uid;
    gid_t gid;

    if (!sudo_user(&uid, &gid))
        return home && home[0] == '/' ? home : NULL;
    p = getpwuid(uid);
    return p && p->pw_dir[0] == '/' ? p->pw_dir : NULL;
}

int program_tmpdir(char ret[static PROGRAM_PATH], struct err *err)
{
    const char *t = getenv("TMPDIR");

    (void)snprintf(ret, PROGRAM_PATH, "%.4000s/strata-XXXXXX", t && t[0] == '/' ? t : "/tmp");
    if (!mkdtemp(ret))
        return err_set(err, -errno, "%.100s: %s", ret, strerrordesc_np(errno));
    return sudo_give_folder(ret, err);
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *f)
{
    (void)st;
    (void)type;
    (void)f;
    return remove(path);
}

void program_remove_tree(const char *dir)
{
    if (dir[0])
        (void)nftw(dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static void on_signal(int sig, siginfo_t *info, void *ctx)
{
    int saved = errno;

    (void)ctx;
    program_signals++;
    if (program_signals_to > 0 && info->si_code != SI_KERNEL)
        (void)kill(program_signals_to, sig);
    errno = saved;
}

void program_catch_signals(void)
{
    struct sigaction a = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO};

    (void)sigemptyset(&a.sa_mask);
    (void)sigaction(SIGINT, &a, NULL);
    (void)sigaction(SIGTERM, &a, NULL);
    (void)sigaction(SIGHUP, &a, NULL);
    (void)signal(SIGPIPE, SIG_IGN);
}

bool program_wait_signal(pid_t pid, int since)
{
    while (program_signals == since) {
        siginfo_t info = {};

        (void)poll(NULL, 0, 200);
        if (waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT | WNOHANG) < 0 || info.si_pid)
            return false;
    }
    return true;
}
// NOLINTEND(concurrency-mt-unsafe)
