// SPDX-License-Identifier: Apache-2.0
/*
 * The command is forked when everything samples already, waits at a pipe until its process is
 * watched, and only then is executed: nothing of it runs unseen. It keeps our standard streams,
 * process group and environment, and gets back the signal mask and the limits we came with.
 * Between fork and exec nothing is called that could need a lock another thread holds.
 */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "agent/cmd/record_private.h"
#include "base/sudo.h"

enum {
    GROUPS = 256,
};

struct user {
    bool drop;
    uid_t uid;
    gid_t gid;
    gid_t group[GROUPS];
    int n_group;
};

static void find_user(struct user *u)
{
    const struct passwd *p;

    u->drop = sudo_user(&u->uid, &u->gid);
    if (!u->drop)
        return;
    p = getpwuid(u->uid); // NOLINT(concurrency-mt-unsafe): the only caller in this program
    u->n_group = GROUPS;
    if (!p || getgrouplist(p->pw_name, u->gid, u->group, &u->n_group) < 0) {
        u->group[0] = u->gid;
        u->n_group = 1;
    }
}

[[gnu::noreturn]] static void in_child(int go, int answer, char **cmd, const struct user *u,
                                       const struct record_before *before)
{
    char byte;
    int e;

    if (read(go, &byte, 1) != 1)
        _exit(RECORD_OURS); /* the parent gave up, or is gone */
    (void)setrlimit(RLIMIT_NOFILE, &before->files);
    if (!u->drop || (setgroups((size_t)u->n_group, u->group) == 0 && setgid(u->gid) == 0 &&
                     setuid(u->uid) == 0)) {
        (void)pthread_sigmask(SIG_SETMASK, &before->mask, NULL);
        (void)execvp(cmd[0], cmd);
    }
    e = errno;
    while (write(answer, &e, sizeof e) < 0 && errno == EINTR)
        ;
    _exit(RECORD_NOT_FOUND);
}

int record_child_start(struct record_child *c, char **cmd, const struct record_before *before,
                       struct err *err)
{
    int go[2], answer[2];
    struct user u = {};

    *c = (struct record_child){.name = cmd[0], .go = -1, .answer = -1};
    find_user(&u);
    if (pipe2(go, O_CLOEXEC) < 0)
        return err_set(err, -errno, "pipe: %s", strerrordesc_np(errno));
    if (pipe2(answer, O_CLOEXEC) < 0) {
        (void)close(go[0]);
        (void)close(go[1]);
        return err_set(err, -errno, "pipe: %s", strerrordesc_np(errno));
    }
    c->pid = fork();
    if (c->pid == 0) {
        (void)close(go[1]); /* so that it reads our end */
        in_child(go[0], answer[1], cmd, &u, before);
    }
    (void)close(go[0]);
    (void)close(answer[1]);
    c->go = go[1];
    c->answer = answer[0];
    return c->pid < 0 ? err_set(err, -errno, "fork: %s", strerrordesc_np(errno)) : 0;
}

void record_child_file(const char *name, char ret[static 4096])
{
    const char *path = getenv("PATH"); // NOLINT(concurrency-mt-unsafe): nothing changes it
    struct str list = str_c(path ? path : "/bin:/usr/bin");

    (void)snprintf(ret, 4096, "%s", name);
    if (strchr(name, '/'))
        return;
    while (list.n) {
        size_t colon = str_find(list, ':');

        (void)snprintf(ret, 4096, "%.*s/%s", STR_ARG(str_to(list, colon)), name);
        if (access(ret, X_OK) == 0)
            return;
        list = str_from(list, colon == SIZE_MAX ? list.n : colon + 1);
    }
    ret[0] = 0;
}

int record_child_go(struct record_child *c, struct err *err)
{
    char file[4096];
    int e = 0;
    ssize_t n;

    while (write(c->go, "", 1) < 0 && errno == EINTR)
        ;
    do
        n = read(c->answer, &e, sizeof e);
    while (n < 0 && errno == EINTR);
    (void)close(c->go);
    (void)close(c->answer);
    if (n != sizeof e)
        return 0; /* closed by exec */
    record_child_file(c->name, file);
    if (e == EACCES && !file[0])
        e = ENOENT; /* of a folder in PATH that is closed to us */
    (void)err_set(err, -e, "%s", e == ENOENT ? "not found" : strerrordesc_np(e));
    return e == ENOENT ? RECORD_NOT_FOUND : RECORD_NOT_EXECUTABLE;
}

bool record_child_ended(struct record_child *c, bool wait)
{
    siginfo_t info = {};
    int r;

    if (c->ended)
        return true;
    do /* not reaped yet, so that its clock can still be read */
        r = waitid(P_PID, (id_t)c->pid, &info, WEXITED | WNOWAIT | (wait ? 0 : WNOHANG));
    while (r < 0 && errno == EINTR);
    if (r < 0 || info.si_pid == 0)
        return false;
    c->clock_ns = process_cpu_ns(c->pid);
    c->ended = wait4(c->pid, &c->status, 0, &c->usage) == c->pid;
    return c->ended;
}

int record_child_status(const struct record_child *c)
{
    return WIFSIGNALED(c->status) ? 128 + WTERMSIG(c->status) : WEXITSTATUS(c->status);
}
