// SPDX-License-Identifier: Apache-2.0
/* backup.c against a store_backup of this file: what it is asked for, and what its results become.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"
#include "server/backup.h"
#include "server/msg.h"
#include "storage/store.h"
#include "tests/lib/testing.h"

struct store {
    int result;
    char dir[300];
    uint32_t calls;
    bool nested; /* ask again from inside */
};
static struct store store;
static struct backup backup;
static struct msg_reply reply;

static void post(const struct msg_param *p, uint32_t n)
{
    const struct msg_request q = {
        .method = STR("POST"), .path = STR("/api/v1/backup"), .n_param = n, .param = p, .id = 7};

    msg_reply_deinit(&reply);
    backup_handle(&backup, &store, &q, &reply);
}

static void named(const char *name)
{
    const struct msg_param p = {STR("name"), str_c(name)};

    post(&p, 1);
}

static void file(const char *dir, const char *name, size_t bytes)
{
    char path[800];
    FILE *f;

    (void)snprintf(path, sizeof path, "%s/%s", dir, name);
    f = fopen(path, "w");
    assert_non_null(f);
    for (size_t i = 0; i < bytes; i++)
        assert_int_equal(fputc('x', f), 'x');
    assert_int_equal(fclose(f), 0);
}

int store_backup(struct store *s, const char *dir, uint64_t *ret_lsn, struct err *err)
{
    char sub[400];

    s->calls++;
    (void)snprintf(s->dir, sizeof s->dir, "%s", dir);
    if (s->nested) {
        s->nested = false;
        named("second");
        assert_int_equal(reply.status, 503);
        msg_reply_deinit(&reply); /* the outer one is filled next */
    }
    if (s->result < 0)
        return err_set(err, s->result, "words of the store");
    if (mkdir(dir, 0700) == 0) {
        (void)snprintf(sub, sizeof sub, "%s/shard", dir);
        assert_int_equal(mkdir(sub, 0700), 0);
        file(dir, "catalog.db", 100);
        file(sub, "one", 23);
    }
    *ret_lsn = 99;
    return 0;
}

static void want(int status, const char *text)
{
    if (reply.status != status || !memmem(reply.body.p, reply.body.n, text, strlen(text)))
        fail_msg("%d \"%s\", not %d %.*s", status, text, reply.status,
                 STR_ARG(buf_view(&reply.body)));
}

static void done(void **state)
{
    char dir[] = "/tmp/strata_backup_XXXXXX", text[300], path[340];

    (void)state;
    assert_non_null(mkdtemp(dir));
    backup = (struct backup){.dir = dir};
    store = (struct store){.nested = true};
    named("monday-1.x_Y");
    (void)snprintf(text, sizeof text,
                   "{\"path\":\"%s/monday-1.x_Y\",\"bytes\":\"123\",\"lsn\":\"99\"}", dir);
    want(200, text);
    assert_int_equal(store.calls, 1);
    (void)snprintf(path, sizeof path, "%s/monday-1.x_Y", dir);
    assert_string_equal(store.dir, path);
    (void)snprintf(text, sizeof text, "rm -r %s", dir);
    assert_int_equal(system(text), 0); // NOLINT(cert-env33-c,concurrency-mt-unsafe)
}

static void refusals(void **state)
{
    static const char *const bad[] = {"",  ".",   "..",  ".x",   "a/b", "../x", "a b",
                                      "ä", "a;b", "a\n", "a\\b", "*",   "/etc"};
    static const struct {
        int result, status;
        const char *code;
    } t[] = {{-EEXIST, 409, "exists"},        {-EXDEV, 422, "other_file_system"},
             {-ENOSPC, 507, "disk_full"},     {-EROFS, 503, "read_only"},
             {-ENOENT, 422, "no_backup_dir"}, {-EBADMSG, 500, "internal"}};
    const struct msg_param two[] = {{STR("name"), STR("a")}, {STR("name"), STR("b")}};
    const struct msg_param other[] = {{STR("dir"), STR("a")}};
    char longest[70];

    (void)state;
    backup = (struct backup){.dir = "/nowhere"};
    store = (struct store){};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        named(bad[i]);
        want(400, "\"code\":\"bad_parameter\"");
        want(400, "\"param\":\"name\"");
    }
    memset(longest, 'x', sizeof longest);
    longest[65] = '\0';
    named(longest);
    want(400, "\"limit\":64,\"actual\":65");
    post(&(struct msg_param){STR("name"), STR("a\0b")}, 1);
    want(400, "bad_parameter");
    post(NULL, 0);
    want(400, "bad_parameter");
    post(two, 2);
    want(400, "unknown_parameter");
    post(other, 1);
    want(400, "\"param\":\"dir\"");
    assert_int_equal(store.calls, 0);
    longest[64] = '\0';
    for (size_t i = 0; i < sizeof t / sizeof t[0]; i++) {
        store.result = t[i].result;
        named(longest);
        want(t[i].status, t[i].code);
        want(t[i].status, "words of the store");
    }
    backup.dir = "";
    store.calls = 0;
    named("a");
    want(422, "\"code\":\"no_backup_dir\"");
    assert_int_equal(store.calls, 0);
    assert_false(atomic_load(&backup.running));
    msg_reply_deinit(&reply);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(done), cmocka_unit_test(refusals)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
