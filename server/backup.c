// SPDX-License-Identifier: Apache-2.0
#include "server/backup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/json_out.h"
#include "base/log.h"
#include "server/msg.h"
#include "storage/store.h"

enum {
    NAME_BYTES_MAX = 64,
    DEPTH_MAX = 8, /* of a store's directories: more than it has */
    REPLY_MAX = 16 << 10,
};

static void refuse(const struct msg_request *q, struct msg_reply *r, struct msg_error e)
{
    msg_fail(r, q, &e);
}

/* ---- the question -------------------------------------------------------------------------- */

/* One path component, of letters that mean nothing to a shell; no leading dot. */
static bool good_name(struct str s)
{
    if (s.n == 0 || s.n > NAME_BYTES_MAX || s.p[0] == '.')
        return false;
    for (size_t i = 0; i < s.n; i++) {
        char c = s.p[i];

        if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
              c == '.' || c == '_' || c == '-'))
            return false;
    }
    return true;
}

static bool name_of(const struct msg_request *q, struct msg_reply *r, struct str *ret)
{
    char param[80];

    *ret = (struct str){NULL, 0};
    for (uint32_t i = 0; i < q->n_param; i++) {
        if (str_eq(q->param[i].name, STR("name")) && !ret->p) {
            *ret = q->param[i].value;
            continue;
        }
        (void)snprintf(param, sizeof param, "%.*s", STR_ARG(str_to(q->param[i].name, 79)));
        refuse(q, r,
               (struct msg_error){.status = 400,
                                  .code = "unknown_parameter",
                                  .message = "/backup: name is the one parameter, given once",
                                  .param = param});
        return false;
    }
    if (good_name(*ret))
        return true;
    refuse(q, r,
           (struct msg_error){
               .status = 400,
               .code = "bad_parameter",
               .message = "name is 1 to 64 of A-Z a-z 0-9 . _ -, and does not begin with a dot",
               .param = "name",
               .setting = "bytes of name",
               .limit = NAME_BYTES_MAX,
               .actual = ret->n});
    return false;
}

/* ---- the answer ---------------------------------------------------------------------------- */

/* Bytes of the files below fd, which is closed. */
static uint64_t bytes_below(int fd, unsigned depth)
{
    DIR *d = fdopendir(fd);
    const struct dirent *e;
    uint64_t n = 0;

    if (!d) {
        (void)close(fd);
        return 0;
    }
    while ((e = readdir(d)) != NULL) { // NOLINT(concurrency-mt-unsafe): a stream of our own
        struct stat st;
        int sub;

        if (str_eq(str_c(e->d_name), STR(".")) || str_eq(str_c(e->d_name), STR("..")) ||
            fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
            continue;
        if (S_ISREG(st.st_mode))
            n += (uint64_t)st.st_size;
        if (!S_ISDIR(st.st_mode) || depth == 0)
            continue;
        sub = openat(dirfd(d), e->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (sub >= 0)
            n += bytes_below(sub, depth - 1);
    }
    (void)closedir(d);
    return n;
}

static void reply_done(struct msg_reply *r, const char *path, uint64_t lsn)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct json_out j;

    r->status = 200;
    r->content_type = "application/json";
    buf_init(&r->body, REPLY_MAX);
    json_init(&j, &r->body);
    json_object_begin(&j);
    json_key(&j, "path");
    json_cstr(&j, path);
    json_key(&j, "bytes");
    if (fd >= 0)
        json_dec_u64(&j, bytes_below(fd, DEPTH_MAX));
    else
        json_null_value(&j);
    json_key(&j, "lsn");
    json_dec_u64(&j, lsn);
    json_object_end(&j);
}

static void reply_failed(const struct msg_request *q, struct msg_reply *r, int result,
                         const struct err *err)
{
    static const struct {
        int r, status;
        const char *code;
        uint32_t retry_after_s;
    } known[] = {
        {-EEXIST, 409, "exists", 0},        {-EXDEV, 422, "other_file_system", 0},
        {-ENOENT, 422, "no_backup_dir", 0}, {-ENOTDIR, 422, "no_backup_dir", 0},
        {-EACCES, 422, "no_backup_dir", 0}, {-ENOSPC, 507, "disk_full", 0},
        {-EDQUOT, 507, "disk_full", 0},     {-EROFS, 503, "read_only", 60},
        {-ESHUTDOWN, 503, "stopping", 5},   {-ENOMEM, 503, "overloaded", 5},
    };
    struct msg_error e = {.status = 500, .code = "internal", .message = err->msg};

    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (known[i].r != result)
            continue;
        e.status = known[i].status;
        e.code = known[i].code;
        e.retry_after_s = known[i].retry_after_s;
    }
    refuse(q, r, e);
}

void backup_handle(struct backup *b, struct store *s, const struct msg_request *q,
                   struct msg_reply *r)
{
    struct err err = {};
    char path[PATH_MAX];
    uint64_t lsn = 0;
    struct str name;
    int n, result;

    if (!name_of(q, r, &name))
        return;
    if (!b->dir || !b->dir[0]) {
        refuse(q, r,
               (struct msg_error){.status = 422,
                                  .code = "no_backup_dir",
                                  .message = "storage.backup_dir is not set: backups are off"});
        return;
    }
    n = snprintf(path, sizeof path, "%s/%.*s", b->dir, STR_ARG(name));
    if (n < 0 || (size_t)n >= sizeof path) {
        refuse(q, r,
               (struct msg_error){.status = 422,
                                  .code = "no_backup_dir",
                                  .message = "storage.backup_dir is too long"});
        return;
    }
    if (atomic_exchange(&b->running, true)) {
        refuse(q, r,
               (struct msg_error){.status = 503,
                                  .code = "busy",
                                  .message = "another backup is being made",
                                  .retry_after_s = 5});
        return;
    }
    result = store_backup(s, path, &lsn, &err);
    atomic_store(&b->running, false);
    if (result >= 0) {
        log_event(LOG_INFO, "backup", LOG_C("path", path), LOG_U("lsn", lsn));
        reply_done(r, path, lsn);
        return;
    }
    log_event(LOG_WARN, "backup_failed", LOG_C("path", path), LOG_ERR(&err));
    reply_failed(q, r, result, &err);
}
