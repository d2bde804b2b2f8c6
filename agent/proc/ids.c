// SPDX-License-Identifier: Apache-2.0
#include "agent/proc/ids.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/file/procfile.h"
#include "agent/proc/procread.h"
#include "base/time.h"

#define MAX_TOKEN 4096

static void random_id(uint8_t ret[static 16])
{
    int64_t t[2] = {real_now().v, mono_now().v};

    if (getrandom(ret, 16, 0) != 16)
        memcpy(ret, t, 16);
}

void ids_hex(const uint8_t id[static 16], char ret[static 33])
{
    for (unsigned i = 0; i < 16; i++)
        (void)snprintf(ret + (size_t)2 * i, 3, "%02x", id[i]);
}

static bool from_hex(struct str s, uint8_t ret[static 16])
{
    uint64_t hi, lo;

    if (s.n != 33 || s.p[32] != '\n' || !str_hex64(str_to(s, 16), &hi) ||
        !str_hex64(str_to(str_from(s, 16), 16), &lo))
        return false;
    for (unsigned i = 0; i < 8; i++) {
        ret[i] = (uint8_t)(hi >> (56 - 8 * i));
        ret[8 + i] = (uint8_t)(lo >> (56 - 8 * i));
    }
    return true;
}

/* Ours alone: what is in it decides who we are. */
static bool dir_usable(const char *dir, char why[static 160])
{
    struct stat st;

    if (mkdir(dir, 0700) < 0 && errno != EEXIST) {
        (void)snprintf(why, 160, "%.80s: %s", dir, strerrordesc_np(errno));
        return false;
    }
    if (stat(dir, &st) < 0 || !S_ISDIR(st.st_mode)) {
        (void)snprintf(why, 160, "%.80s: no directory", dir);
        return false;
    }
    if (st.st_uid != geteuid() || st.st_mode & 022) {
        (void)snprintf(why, 160,
                       "%.80s: owner %u, mode %04o; it must be ours and nobody else's to write",
                       dir, (unsigned)st.st_uid, (unsigned)st.st_mode & 07777);
        return false;
    }
    return true;
}

static void load_agent_id(const char *state_dir, struct ids *ids)
{
    struct err err = {};
    char hex[34];
    struct buf b;

    buf_init(&b, 4096);
    if (procfile_read(state_dir, "agent-id", &b, NULL) == 0 && from_hex(buf_view(&b), ids->agent)) {
        ids->kept = true;
    } else {
        ids_hex(ids->agent, hex);
        hex[32] = '\n';
        if (procfile_replace(state_dir, "agent-id", (struct str){hex, 33}, true, &err) == 0)
            ids->kept = true;
        else
            (void)snprintf(ids->why, sizeof ids->why, "%s", err.msg);
    }
    buf_deinit(&b);
}

void ids_load(const char *state_dir, const char *etc, struct ids *ret)
{
    struct ids ids = {};

    random_id(ids.agent);
    random_id(ids.boot);
    ids.dir_ok = dir_usable(state_dir, ids.why);
    if (ids.dir_ok)
        load_agent_id(state_dir, &ids);
    if (!procread_host_id(etc, ids.host))
        memcpy(ids.host, ids.agent, sizeof ids.host);
    if (gethostname(ids.hostname, sizeof ids.hostname - 1) < 0 || !ids.hostname[0])
        (void)snprintf(ids.hostname, sizeof ids.hostname, "localhost");
    *ret = ids;
}

int ids_token(const char *path, struct buf *out, struct err *err)
{
    char text[MAX_TOKEN + 2];
    struct stat st;
    ssize_t n;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);

    if (fd < 0)
        return err_set(err, -errno, "server.token_file = %.80s: %s", path, strerrordesc_np(errno));
    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_mode & 077 || st.st_uid != geteuid()) {
        close(fd);
        return err_set(err, -EACCES,
                       "server.token_file = %.80s: must be a file of ours with mode 0600", path);
    }
    n = read(fd, text, sizeof text);
    close(fd);
    while (n > 0 && (text[n - 1] == '\n' || text[n - 1] == '\r'))
        n--;
    if (n <= 0 || n > MAX_TOKEN || memchr(text, '\n', (size_t)n) || memchr(text, 0, (size_t)n))
        return err_set(err, -EINVAL, "server.token_file = %.80s: must hold one line, the token",
                       path);
    buf_add(out, text, (size_t)n);
    buf_chr(out, '\0');
    return 0;
}
