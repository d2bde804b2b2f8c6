// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/sudo.h"
#include "cli/local.h"

enum {
    START_MS = 30000,
    STOP_MS = 20000,
    LINE_MAX = 512,
};

/* The secret stands in a file that is ours alone, never in an argument list. */
static int write_conf(const struct private *p, const char *path, struct err *err)
{
    uint8_t secret[16];
    char hex[33];
    uid_t uid;
    gid_t gid;
    FILE *f;
    int fd;

    if (getrandom(secret, sizeof secret, 0) != sizeof secret)
        return err_set(err, -EIO, "no random numbers");
    for (size_t i = 0; i < sizeof secret; i++)
        (void)snprintf(hex + 2 * i, 3, "%02x", secret[i]);
    fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return err_set(err, -errno, "%.100s: %s", path, strerrordesc_np(errno));
    if (sudo_user(&uid, &gid) && fchown(fd, uid, gid) < 0) {
        (void)close(fd);
        return err_set(err, -errno, "%.100s: %s", path, strerrordesc_np(errno));
    }
    f = fdopen(fd, "w");
    if (!f) {
        (void)close(fd);
        return err_set(err, -ENOMEM, "%.100s: no memory", path);
    }
    /* an old capture is as welcome as a new one, and all of it at once */
    (void)fprintf(f,
                  "[http]\nlisten = 127.0.0.1:0\nbase_path = /%s\nbase_only = on\n"
                  "[ingest]\nage = 3650d\nrate = 0B\n"
                  "[storage]\ndir = %s/data\nmin_free = 16MiB\nreserve = 0B\n",
                  hex, p->dir);
    return fclose(f) == 0 ? 0 : err_set(err, -EIO, "%.100s cannot be written", path);
}

[[gnu::noreturn]] static void in_child(const char *conf, const char *log, int out, pid_t parent)
{
    static char program[PROGRAM_PATH], ui[PROGRAM_PATH + 32];
    char *with_ui[] = {program, (char[]){"-c"}, NULL, (char[]){"--ui"}, ui, NULL};
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    int to = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
    union {
        const char *in;
        char *out;
    } arg = {conf}; /* execvp does not write to it */

    with_ui[2] = arg.out;
    (void)setpgid(0, 0); /* Ctrl-C is ours to hear */
    program_find("stratad", program);
    (void)snprintf(ui, sizeof ui, "%s", program);
    if (str_rfind(str_c(ui), '/') != SIZE_MAX)
        ui[str_rfind(str_c(ui), '/') + 1] = 0;
    (void)strncat(ui, "../web/ui", sizeof ui - strlen(ui) - 1); /* of the build tree */
    if (access(ui, R_OK) < 0)
        with_ui[3] = NULL; /* the installed one */
    if (null < 0 || to < 0 || dup2(null, 0) < 0 || dup2(out, 1) < 0 || dup2(to, 2) < 0 ||
        !program_drop())
        _exit(127);
    (void)prctl(PR_SET_PDEATHSIG, SIGTERM); /* after the change of user, which takes it away */
    if (getppid() != parent)
        _exit(127);
    (void)execvp(program, with_ui);
    (void)dprintf(2, "%s: %s\n", program, strerrordesc_np(errno));
    _exit(127);
}

/* "ready: URL" within START_MS. */
static int read_ready(struct private *p, int fd, struct err *err)
{
    char line[LINE_MAX];
    size_t n = 0;
    struct str url;

    while (n < sizeof line - 1 && !memchr(line, '\n', n)) {
        struct pollfd w = {.fd = fd, .events = POLLIN};
        ssize_t got;
        int r = poll(&w, 1, START_MS);

        if (r < 0 && errno == EINTR && !cli_stop)
            continue;
        got = r > 0 ? read(fd, line + n, sizeof line - 1 - n) : 0;
        if (got <= 0)
            return err_set(err, -EIO, "stratad does not start: see %.80s/log", p->dir);
        n += (size_t)got;
    }
    line[n] = 0;
    url = str_from(str_c(line), strlen("ready: "));
    url = str_to(url, str_find(url, '\n'));
    while (url.n && url.p[url.n - 1] == '/')
        url.n--;
    if (!str_starts(str_c(line), STR("ready: ")) || url.n >= sizeof p->url)
        return err_set(err, -EIO, "stratad does not say where it listens");
    (void)snprintf(p->url, sizeof p->url, "%.*s", STR_ARG(url));
    return 0;
}

/* The last line of its log: why it did not start. */
static int say_why(const char *log, struct err *err)
{
    char text[4096];
    int fd = open(log, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof text - 1);
    struct str s = {text, n > 0 ? (size_t)n : 0};

    if (fd >= 0)
        (void)close(fd);
    while (s.n && s.p[s.n - 1] == '\n')
        s.n--;
    s = str_from(s, str_rfind(s, '\n') == SIZE_MAX ? 0 : str_rfind(s, '\n') + 1);
    if (!s.n)
        return err->code;
    *err = (struct err){};
    return err_set(err, -EIO, "stratad does not start: %.*s", STR_ARG(str_to(s, 120)));
}

int private_start(struct private *p, struct err *err)
{
    char conf[PROGRAM_PATH + 16], log[PROGRAM_PATH + 16];
    pid_t self = getpid();
    int since = program_signals;
    int out[2] = {-1, -1}, r;

    *p = (struct private){};
    TRY(program_tmpdir(p->dir, err));
    (void)snprintf(conf, sizeof conf, "%s/stratad.ini", p->dir);
    (void)snprintf(log, sizeof log, "%s/log", p->dir);
    r = write_conf(p, conf, err);
    if (r == 0 && pipe2(out, O_CLOEXEC) < 0)
        r = err_set(err, -errno, "pipe: %s", strerrordesc_np(errno));
    if (r < 0) {
        program_remove_tree(p->dir);
        return r;
    }
    p->pid = fork();
    if (p->pid == 0)
        in_child(conf, log, out[1], self);
    (void)close(out[1]);
    r = p->pid < 0 ? err_set(err, -errno, "fork: %s", strerrordesc_np(errno))
                   : read_ready(p, out[0], err);
    (void)close(out[0]);
    if (r < 0) {
        if (cli_stop || program_signals != since) {
            *err = (struct err){};
            r = err_set(err, -EINTR, "interrupted");
        } else {
            r = say_why(log, err);
        }
        private_stop(p);
    }
    return r;
}

void private_stop(struct private *p)
{
    int status;

    if (p->pid > 0) {
        (void)kill(p->pid, SIGTERM);
        for (int ms = 0; waitpid(p->pid, &status, WNOHANG) == 0; ms += 10) {
            if (ms == STOP_MS)
                (void)kill(p->pid, SIGKILL);
            (void)poll(NULL, 0, 10);
        }
    }
    program_remove_tree(p->dir);
    *p = (struct private){};
}
