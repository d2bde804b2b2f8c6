// SPDX-License-Identifier: Apache-2.0
#include "server/auth.h"

#include <errno.h>
#include <fcntl.h>
#include <gnutls/crypto.h>
#include <gnutls/gnutls.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/buf.h"
#include "server/http_parse.h"

enum {
    SHA256_SIZE = 32,
    FILE_MAX = 1 << 20,
    TOKEN_MAX = 1024
};

struct auth_token {
    unsigned roles;
    uint8_t sha256[SHA256_SIZE];
};

struct auth {
    uint32_t n;
    struct auth_token *token;
};

static struct str word(struct str *line)
{
    size_t n = 0;
    struct str w;

    while (line->n && (line->p[0] == ' ' || line->p[0] == '\t'))
        *line = str_from(*line, 1);
    while (n < line->n && line->p[n] != ' ' && line->p[n] != '\t')
        n++;
    w = str_to(*line, n);
    *line = str_from(*line, n);
    return w;
}

static bool roles_parse(struct str s, unsigned *ret)
{
    unsigned roles = 0;

    while (s.n) {
        size_t at = str_find(s, ',');
        struct str one = at == SIZE_MAX ? s : str_to(s, at);

        s = at == SIZE_MAX ? (struct str){NULL, 0} : str_from(s, at + 1);
        if (str_eq(one, STR("ingest")))
            roles |= AUTH_INGEST;
        else if (str_eq(one, STR("read")))
            roles |= AUTH_READ;
        else if (str_eq(one, STR("admin")))
            roles |= AUTH_ADMIN;
        else
            return false;
    }
    *ret = roles;
    return roles != 0;
}

static bool sha256_parse(struct str s, uint8_t ret[static SHA256_SIZE])
{
    if (s.n != (size_t)2 * SHA256_SIZE)
        return false;
    for (size_t i = 0; i < SHA256_SIZE; i++) {
        uint64_t v;

        if (!str_hex64((struct str){s.p + 2 * i, 2}, &v))
            return false;
        ret[i] = (uint8_t)v;
    }
    return true;
}

static int line_parse(struct auth *a, const char *path, unsigned nr, struct str line,
                      struct err *err)
{
    struct str name = word(&line), roles = word(&line), sum = word(&line), rest = word(&line);
    struct auth_token t;

    if (!name.n || name.p[0] == '#')
        return 0;
    if (!roles_parse(roles, &t.roles))
        return err_set(err, -EINVAL, "%s:%u: roles are ingest, read, admin, joined by commas", path,
                       nr);
    if (!sha256_parse(sum, t.sha256) || rest.n)
        return err_set(err, -EINVAL, "%s:%u: the third word is the SHA-256 of the token, 64 digits",
                       path, nr);
    a->token = xrealloc(a->token, (a->n + 1) * sizeof *a->token);
    a->token[a->n++] = t;
    return 0;
}

static int file_read(const char *path, struct buf *b, struct err *err)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    ssize_t n = 0;
    int r = 0;

    if (fd < 0)
        return err_set(err, -errno, "token file %s: %s", path, strerrordesc_np(errno));
    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
        r = err_set(err, -EINVAL, "token file %s is not a regular file", path);
    else if (st.st_uid != geteuid() || st.st_mode & 077)
        r = err_set(err, -EPERM, "token file %s has mode %04o, uid %u: needs 0600 and uid %u", path,
                    (unsigned)st.st_mode & 07777, (unsigned)st.st_uid, (unsigned)geteuid());
    while (r == 0) {
        char *p = buf_reserve(b, 4096);

        if (!p) {
            r = err_set(err, -E2BIG, "token file %s is larger than %d bytes", path, FILE_MAX);
            break;
        }
        n = read(fd, p, 4096);
        if (n < 0)
            r = err_set(err, -errno, "token file %s: %s", path, strerrordesc_np(errno));
        if (n <= 0)
            break;
        buf_commit(b, (size_t)n);
    }
    (void)close(fd);
    return r;
}

static int tokens_parse(struct auth *a, const char *path, struct str text, struct err *err)
{
    for (unsigned nr = 1; text.n; nr++) {
        size_t at = str_find(text, '\n');
        struct str line = at == SIZE_MAX ? text : str_to(text, at);

        text = at == SIZE_MAX ? (struct str){NULL, 0} : str_from(text, at + 1);
        TRY(line_parse(a, path, nr, line, err));
    }
    if (!a->n)
        return err_set(err, -EINVAL, "token file %s holds no token", path);
    return 0;
}

int auth_load(const char *path, struct auth **ret, struct err *err)
{
    struct auth *a = xcalloc(1, sizeof *a);
    struct buf b;
    int r = 0;

    buf_init(&b, FILE_MAX);
    if (path && path[0]) {
        r = file_read(path, &b, err);
        if (r == 0)
            r = tokens_parse(a, path, buf_view(&b), err);
    }
    buf_deinit(&b);
    if (r < 0)
        auth_free(a);
    else
        *ret = a;
    return r;
}

struct auth *auth_free(struct auth *a)
{
    if (a)
        free(a->token);
    free(a);
    return NULL;
}

bool auth_required(const struct auth *a)
{
    return a->n > 0;
}

/* The token of either form; false if there is none. It may borrow from the header. */
static bool token_of(struct arena *arena, struct str header, struct str *ret)
{
    size_t at = str_find(header, ' ');
    struct str scheme = str_to(header, at == SIZE_MAX ? header.n : at), rest, text;

    if (at == SIZE_MAX)
        return false;
    rest = str_from(header, at + 1);
    while (rest.n && rest.p[0] == ' ')
        rest = str_from(rest, 1);
    if (http_str_eq(scheme, STR("bearer"))) {
        *ret = rest;
        return true;
    }
    if (!http_str_eq(scheme, STR("basic")) || !http_base64(arena, rest, &text))
        return false;
    at = str_find(text, ':');
    if (at == SIZE_MAX)
        return false;
    *ret = str_from(text, at + 1);
    return true;
}

enum auth_result auth_check(const struct auth *a, struct str authorization, enum auth_role role)
{
    uint8_t sum[SHA256_SIZE];
    struct arena arena;
    struct str token = {NULL, 0};
    enum auth_result result = AUTH_UNKNOWN;
    bool have;

    if (role == AUTH_NONE || !a->n)
        return AUTH_OK;
    arena_init(&arena, (size_t)2 * TOKEN_MAX);
    have = authorization.n <= TOKEN_MAX && token_of(&arena, authorization, &token) && token.n;
    if (have && gnutls_hash_fast(GNUTLS_DIG_SHA256, token.p, token.n, sum) == 0) {
        for (uint32_t i = 0; i < a->n; i++) /* no early end: time says nothing about which */
            if (gnutls_memcmp(sum, a->token[i].sha256, SHA256_SIZE) == 0)
                result = a->token[i].roles & (unsigned)role ? AUTH_OK : AUTH_DENIED;
    }
    arena_deinit(&arena);
    return result;
}
