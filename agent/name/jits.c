// SPDX-License-Identifier: Apache-2.0
#include "agent/name/jits.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/apart/reader.h"
#include "agent/file/jitmap.h"
#include "agent/file/procfile.h"
#include "agent/file/rootfile.h"
#include "agent/proc/procread.h"
#include "base/arena.h"
#include "base/map.h"
#include "base/time.h"

#define PAUSE_NS  NS_PER_S
#define SHARE     20 /* a read may take a twentieth of the time */
#define KEEP_NS   (60 * NS_PER_S)
#define MAX_MAPS  4096
#define MAX_BYTES (UINT64_C(64) << 20) /* of all maps */

struct target {
    struct jits_target t;
    int root;
    uint32_t uid[2];
    struct jitmap map;
    dev_t dev; /* of the file that was read */
    ino_t ino;
    off_t size;
    int64_t next_read, used;
    struct target *next;
};

struct jits {
    char *proc;
    bool drop_python;
    struct map by_serial; /* -> struct target * */
    struct target *all;
    struct jits_stats stats;
};

const char *jits_why_name(enum jits_why w)
{
    static const char *const name[JITS_N] = {"none", "link", "no_file", "owner", "failed"};

    return w < JITS_N ? name[w] : "";
}

struct jits *jits_new(const char *proc, bool drop_python)
{
    struct jits *j = xcalloc(1, sizeof *j);

    j->proc = xstrdup(proc);
    j->drop_python = drop_python;
    map_init(&j->by_serial, MAX_MAPS);
    return j;
}

static uint64_t bytes_of(const struct target *t)
{
    return t->map.n * sizeof *t->map.sym + t->map.text_n;
}

/* What t's map counts for, with sign. */
static void count(struct jits *j, const struct target *t, bool add)
{
    uint64_t has = t->map.n > 0;

    j->stats.maps += add ? has : -has;
    j->stats.entries += add ? t->map.n : -(uint64_t)t->map.n;
    j->stats.bytes += add ? bytes_of(t) : -bytes_of(t);
}

static void target_free(struct jits *j, struct target *t)
{
    count(j, t, false);
    jitmap_deinit(&t->map);
    if (t->root >= 0)
        close(t->root);
    free(t);
}

struct jits *jits_free(struct jits *j)
{
    if (!j)
        return NULL;
    while (j->all) {
        struct target *t = j->all;

        j->all = t->next;
        target_free(j, t);
    }
    map_deinit(&j->by_serial);
    free(j->proc);
    free(j);
    return NULL;
}

/* ---- reading ------------------------------------------------------------------------------- */

static enum jits_why why_of(int code)
{
    switch (-code) {
    case ENOENT:
        return JITS_NONE;
    case ELOOP:
        return JITS_LINK;
    case EINVAL:
        return JITS_NO_FILE;
    case EPERM:
        return JITS_OWNER;
    default:
        return JITS_FAILED;
    }
}

static bool changed(struct target *t, int fd)
{
    struct stat st;

    if (fstat(fd, &st) < 0 || (st.st_dev == t->dev && st.st_ino == t->ino && st.st_size == t->size))
        return false;
    t->dev = st.st_dev;
    t->ino = st.st_ino;
    t->size = st.st_size;
    return true;
}

static void look(struct jits *j, struct target *t, int64_t now)
{
    const struct jitmap_args args = {.drop_python = j->drop_python};
    struct jitmap m = {};
    int64_t t0 = mono_now().v, took;
    int fd;

    t->next_read = now + PAUSE_NS;
    fd = t->root < 0 ? -ENOENT : jitmap_open(t->root, t->t.pid, t->uid);
    if (fd < 0) {
        j->stats.refused[why_of(fd)]++;
        return;
    }
    if (changed(t, fd) && reader_perfmap(fd, &args, &m, NULL) == 0) {
        count(j, t, false);
        jitmap_deinit(&t->map);
        t->map = m;
        count(j, t, true);
        j->stats.reads++;
        j->stats.bad_lines += m.bad;
        j->stats.cut += m.cut;
    }
    close(fd);
    took = mono_now().v - t0;
    if (took * SHARE > PAUSE_NS)
        t->next_read = now + took * SHARE;
}

static struct target *find(const struct jits *j, uint64_t serial)
{
    uint64_t v;

    // NOLINTNEXTLINE(performance-no-int-to-ptr): a map value
    return map_get(&j->by_serial, serial, &v) ? (struct target *)(uintptr_t)v : NULL;
}

void jits_see(struct jits *j, const struct jits_target *s, int64_t now)
{
    struct procread_identity id;
    struct target *t;

    if (find(j, s->serial))
        return;
    t = xcalloc(1, sizeof *t);
    t->t = *s;
    t->used = now;
    t->root = -1;
    if (map_put(&j->by_serial, s->serial, (uint64_t)(uintptr_t)t) == MAP_FULL) {
        free(t);
        return;
    }
    t->next = j->all;
    j->all = t;
    t->root = rootfile_root(j->proc, s->host_pid);
    /* who it is now: users change, and a pid may be another's by now */
    if (procread_identity(j->proc, s->host_pid, &id, NULL) < 0 || id.pid != s->pid ||
        !procread_uids(j->proc, s->host_pid, t->uid)) {
        if (t->root >= 0)
            close(t->root);
        t->root = -1;
    }
    look(j, t, now);
}

bool jits_find(struct jits *j, uint64_t serial, uint64_t addr, int64_t now, struct str *ret)
{
    struct target *t = find(j, serial);
    bool found = false;

    if (t) {
        t->used = now;
        found = jitmap_find(&t->map, addr, ret);
        if (!found && now >= t->next_read) {
            look(j, t, now);
            found = jitmap_find(&t->map, addr, ret);
        }
    }
    j->stats.resolved += found;
    j->stats.unresolved += !found;
    return found;
}

void jits_tick(struct jits *j, int64_t now)
{
    for (struct target **at = &j->all; *at;) {
        struct target *t = *at;

        if (now - t->used < KEEP_NS && j->stats.bytes <= MAX_BYTES) {
            at = &t->next;
            continue;
        }
        if (now - t->used < KEEP_NS) { /* too much memory: forgotten, not refused */
            count(j, t, false);
            jitmap_deinit(&t->map);
            t->size = 0;
            at = &t->next;
            continue;
        }
        map_del(&j->by_serial, t->t.serial);
        *at = t->next;
        target_free(j, t);
    }
}

void jits_get_stats(const struct jits *j, struct jits_stats *ret)
{
    *ret = j->stats;
}
