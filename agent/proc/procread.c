// SPDX-License-Identifier: Apache-2.0
#include "agent/proc/procread.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "agent/file/procfile.h"
#include "agent/file/sha256.h"
#include "agent/proc/cgroup.h"
#include "agent/proc/cmdline.h"
#include "base/buf.h"

#define MAX_CMDLINE ((size_t)32 << 10)

/* ---- parsers ------------------------------------------------------------------------------- */

static struct str next_word(struct str *s)
{
    size_t from = 0, to;

    while (from < s->n && (s->p[from] == ' ' || s->p[from] == '\t'))
        from++;
    to = from;
    while (to < s->n && s->p[to] != ' ' && s->p[to] != '\t')
        to++;
    struct str word = str_to(str_from(*s, from), to - from);

    *s = str_from(*s, to);
    return word;
}

static bool next_line(struct str *text, struct str *ret)
{
    size_t nl;

    if (text->n == 0)
        return false;
    nl = str_find(*text, '\n');
    *ret = str_to(*text, nl);
    *text = str_from(*text, nl == SIZE_MAX ? text->n : nl + 1);
    return true;
}

bool procread_stat_parse(struct str text, struct procread_stat *ret)
{
    size_t open = str_find(text, '('), close = str_rfind(text, ')');
    struct procread_stat st = {};
    struct str word;

    if (open == SIZE_MAX || close == SIZE_MAX || close < open)
        return false;
    st.comm = str_to(str_from(text, open + 1), close - open - 1);
    text = str_from(text, close + 1);
    if (text.n && text.p[text.n - 1] == '\n')
        text.n--;
    word = next_word(&text);
    if (word.n != 1)
        return false;
    st.state = word.p[0];
    for (unsigned field = 4; field <= 22; field++) {
        uint64_t v = 0;

        word = next_word(&text);
        if (word.n == 0)
            return false;
        if ((field == 9 || field == 20 || field == 22) && !str_u64(word, &v))
            return false;
        if (field == 9)
            st.flags = v;
        else if (field == 20)
            st.threads = v;
        else if (field == 22)
            st.start_ticks = v;
    }
    *ret = st;
    return true;
}

bool procread_nspid(struct str status, uint64_t *ret)
{
    struct str line;

    while (next_line(&status, &line)) {
        struct str word, last = {NULL, 0};

        if (!str_starts(line, STR("NSpid:")))
            continue;
        line = str_from(line, 6);
        while ((word = next_word(&line)).n)
            last = word;
        return str_u64(last, ret);
    }
    return false;
}

struct str procread_undelete(struct str path, bool *ret_deleted)
{
    const struct str tail = STR(" (deleted)");

    *ret_deleted = str_ends(path, tail);
    return *ret_deleted ? str_to(path, path.n - tail.n) : path;
}

static bool parse_map(struct str line, struct procread_map *ret)
{
    struct procread_map m = {};
    struct str range = next_word(&line), perms = next_word(&line), offset = next_word(&line);
    size_t dash = str_find(range, '-');
    struct str ino;

    m.dev = next_word(&line);
    ino = next_word(&line);
    if (dash == SIZE_MAX || perms.n < 4 || !str_hex64(str_to(range, dash), &m.start) ||
        !str_hex64(str_from(range, dash + 1), &m.end) || !str_hex64(offset, &m.offset) ||
        !str_u64(ino, &m.ino) || m.start >= m.end)
        return false;
    m.exec = perms.p[2] == 'x';
    while (line.n && line.p[0] == ' ')
        line = str_from(line, 1);
    m.path = procread_undelete(line, &m.deleted);
    *ret = m;
    return true;
}

bool procread_map_next(struct str *text, struct procread_map *ret)
{
    struct str line;

    while (next_line(text, &line)) {
        if (parse_map(line, ret))
            return true;
    }
    return false;
}

struct str procread_service(const struct procread_who *w)
{
    struct str script;

    if (w->strata_service.n)
        return w->strata_service;
    if (w->kthread)
        return STR("kernel");
    if (w->unit.n)
        return w->unit;
    script = cmdline_python(w->exe, w->args);
    if (script.n)
        return script;
    if (str_basename(w->exe).n)
        return str_basename(w->exe);
    return w->comm.n ? w->comm : STR("unknown");
}

/* ---- reading ------------------------------------------------------------------------------- */

static void pid_dir(char ret[static 64], const char *proc, uint32_t pid)
{
    (void)snprintf(ret, 64, "%.48s/%u", proc, pid);
}

static int read_stat(const char *dir, struct buf *b, struct procread_stat *ret, struct err *err)
{
    buf_reset(b);
    TRY(procfile_read(dir, "stat", b, err));
    if (!procread_stat_parse(buf_view(b), ret))
        return err_set(err, -EINVAL, "%s/stat: not understood", dir);
    return 0;
}

static bool leader_dead(const struct procread_stat *st)
{
    return (st->state == 'Z' || st->state == 'X') && st->threads > 1;
}

uint32_t procread_alive_tid(const char *proc, uint32_t pid)
{
    struct procread_stat st;
    const struct dirent *de;
    uint32_t found = pid;
    char dir[64];
    struct buf b;
    DIR *d;

    pid_dir(dir, proc, pid);
    buf_init(&b, 65536);
    if (read_stat(dir, &b, &st, NULL) == 0 && leader_dead(&st)) {
        (void)snprintf(dir, sizeof dir, "%.40s/%u/task", proc, pid);
        d = opendir(dir);
        // NOLINTNEXTLINE(concurrency-mt-unsafe): a directory stream of our own
        while (d && found == pid && (de = readdir(d))) {
            uint64_t tid;

            if (!str_u64(str_c(de->d_name), &tid) || tid == pid || tid > INT32_MAX)
                continue;
            pid_dir(dir, proc, (uint32_t)tid);
            if (read_stat(dir, &b, &st, NULL) == 0 && st.state != 'Z' && st.state != 'X')
                found = (uint32_t)tid;
        }
        if (d)
            closedir(d);
    }
    buf_deinit(&b);
    return found;
}

int procread_identity(const char *proc, uint32_t pid, struct procread_identity *ret,
                      struct err *err)
{
    struct procread_identity id = {};
    struct procread_stat st = {};
    struct str link;
    char dir[64];
    struct buf b;
    int r;

    pid_dir(dir, proc, pid);
    buf_init(&b, 65536);
    r = read_stat(dir, &b, &st, err);
    if (r < 0)
        goto out;
    id.start_ticks = st.start_ticks;
    id.threads = st.threads;
    id.leader_dead = leader_dead(&st);
    id.kthread = st.flags & PROCREAD_PF_KTHREAD;
    id.pid = pid;
    buf_reset(&b);
    if (procfile_read(dir, "status", &b, NULL) == 0 && !procread_nspid(buf_view(&b), &id.pid))
        id.pid = pid;
    buf_reset(&b);
    /* "pid:[4026531836]" */
    if (procfile_link(dir, "ns/pid", &b, NULL) == 0) {
        link = buf_view(&b);
        if (str_starts(link, STR("pid:[")) && str_ends(link, STR("]")) &&
            !str_u64(str_to(str_from(link, 5), link.n - 6), &id.pidns))
            id.pidns = 0;
    }
    *ret = id;
out:
    buf_deinit(&b);
    return r;
}

/* "Uid: 1000 1000 1000 1000": real, effective, saved, of files. */
static bool parse_uids(struct str status, uint32_t ret[static 2])
{
    struct str line;

    while (next_line(&status, &line)) {
        uint64_t v[2];

        if (!str_starts(line, STR("Uid:")))
            continue;
        line = str_from(line, 4);
        if (!str_u64(next_word(&line), &v[0]) || !str_u64(next_word(&line), &v[1]))
            return false;
        ret[0] = (uint32_t)v[0];
        ret[1] = (uint32_t)v[1];
        return true;
    }
    return false;
}

bool procread_uids(const char *proc, uint32_t pid, uint32_t ret[static 2])
{
    char dir[64];
    struct buf b;
    bool ok;

    pid_dir(dir, proc, pid);
    buf_init(&b, 65536);
    ok = procfile_read(dir, "status", &b, NULL) == 0 && parse_uids(buf_view(&b), ret);
    buf_deinit(&b);
    return ok;
}

static void read_env(const char *dir, const struct environ_want *want, struct buf *b,
                     struct arena *a, struct procread_facts *f)
{
    struct str text;
    bool cut;

    buf_reset(b);
    if (procfile_read_some(dir, "environ", b, &cut, NULL) < 0)
        return;
    text = buf_view(b);
    f->bare = text.n == 0;
    if (cut) /* half a value would be another one */
        text = str_to(text, str_rfind(text, '\0') == SIZE_MAX ? 0 : str_rfind(text, '\0'));
    f->n_env = environ_pick(want, text, a, f->env);
}

static void read_exe(const char *dir, struct buf *b, struct arena *a, struct procread_facts *f)
{
    buf_reset(b);
    if (procfile_link(dir, "exe", b, NULL) == 0)
        f->exe = arena_str(a, procread_undelete(buf_view(b), &f->exe_deleted));
}

static void set_cmdline(enum procread_cmdline mode, struct str args, struct arena *a,
                        struct procread_facts *f)
{
    struct buf b;

    buf_init(&b, 4 * CMDLINE_MAX);
    cmdline_mask(args, &b);
    f->masked = arena_str(a, buf_view(&b));
    buf_deinit(&b);
    if (mode == PROCREAD_CMDLINE_EXE)
        f->cmdline = str_basename(f->exe);
    else if (mode == PROCREAD_CMDLINE_MASKED)
        f->cmdline = f->masked;
}

int procread_facts(const char *proc, uint32_t pid, const struct procread_opts *opts,
                   struct arena *a, struct procread_facts *ret, struct err *err)
{
    struct procread_facts f = {};
    struct procread_who who = {};
    struct procread_stat st = {};
    struct cgroup cg;
    struct buf b;
    char dir[64];
    bool cut;
    int r;

    pid_dir(dir, proc, pid);
    buf_init(&b, ENVIRON_BYTES);
    r = read_stat(dir, &b, &st, err);
    if (r < 0)
        goto out;
    f.kthread = st.flags & PROCREAD_PF_KTHREAD;
    f.comm = arena_str(a, st.comm);
    if (leader_dead(&st))
        pid_dir(dir, proc, procread_alive_tid(proc, pid));
    read_exe(dir, &b, a, &f);
    if (!f.kthread)
        read_env(dir, opts->want, &b, a, &f);
    buf_reset(&b);
    if (procfile_read(dir, "cgroup", &b, NULL) == 0) {
        cgroup_parse(buf_view(&b), &cg);
        f.cgroup = arena_str(a, cg.path);
        f.container = arena_str(a, cg.container);
        f.pod = arena_str(a, cg.pod);
        who.unit = arena_str(a, cg.unit);
    }
    buf_deinit(&b);
    buf_init(&b, MAX_CMDLINE);
    if (procfile_read_some(dir, "cmdline", &b, &cut, NULL) < 0)
        buf_reset(&b);
    f.bare &= b.n == 0;
    set_cmdline(opts->cmdline, buf_view(&b), a, &f);
    who.strata_service = environ_get(f.env, f.n_env, STR("STRATA_SERVICE"));
    who.exe = f.exe;
    who.args = buf_view(&b);
    who.comm = f.comm;
    who.kthread = f.kthread;
    f.service = arena_str(a, procread_service(&who));
    *ret = f;
out:
    buf_deinit(&b);
    return r;
}

/* ---- this machine -------------------------------------------------------------------------- */

static struct str trimmed(struct str s)
{
    while (s.n && (s.p[s.n - 1] == '\n' || s.p[s.n - 1] == ' '))
        s.n--;
    return s;
}

/* Of 9 readings the one with the closest clocks: each is late by what lay between them. */
static int64_t measure_boot(void)
{
    int64_t best = INT64_MAX, gap = INT64_MAX;

    for (unsigned i = 0; i < 9; i++) {
        int64_t b0 = boot_now_ns();
        int64_t real = real_now().v;
        int64_t b1 = boot_now_ns();

        if (b1 - b0 < gap) {
            gap = b1 - b0;
            best = real - (b0 + (b1 - b0) / 2);
        }
    }
    return best;
}

real_ns procread_boot_time(const char *proc, const char *state_dir, bool *ret_kept)
{
    struct buf id, kept;
    real_ns t = {measure_boot()};
    bool ok = false;
    int64_t v;

    buf_init(&id, 4096);
    buf_init(&kept, 4096);
    if (procfile_read(proc, "sys/kernel/random/boot_id", &id, NULL) == 0 && state_dir) {
        struct str boot = trimmed(buf_view(&id));

        if (procfile_read(state_dir, "boot", &kept, NULL) == 0) {
            struct str text = trimmed(buf_view(&kept));
            size_t sp = str_find(text, ' ');

            if (sp != SIZE_MAX && str_eq(str_to(text, sp), boot) &&
                str_i64(str_from(text, sp + 1), &v)) {
                t.v = v;
                ok = true;
            }
        }
        if (!ok) {
            buf_reset(&kept);
            buf_str(&kept, boot);
            buf_printf(&kept, " %" PRId64 "\n", t.v);
            ok = procfile_replace(state_dir, "boot", buf_view(&kept), true, NULL) == 0;
        }
    }
    buf_deinit(&id);
    buf_deinit(&kept);
    if (ret_kept)
        *ret_kept = ok;
    return t;
}

bool procread_host_id(const char *etc, uint8_t ret[static 16])
{
    static const char salt[] = "strata host 1";
    struct sha256 s;
    uint8_t sum[32];
    struct str id;
    struct buf b;
    bool ok;

    buf_init(&b, 4096);
    ok = procfile_read(etc, "machine-id", &b, NULL) == 0;
    id = trimmed(buf_view(&b));
    ok = ok && id.n >= 16;
    if (ok) {
        /* the machine id itself is not for others: machine-id(5) */
        sha256_init(&s);
        sha256_add(&s, salt, sizeof salt);
        sha256_add(&s, id.p, id.n);
        sha256_end(&s, sum);
        memcpy(ret, sum, 16);
    }
    buf_deinit(&b);
    return ok;
}
