// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdlib.h>

#include "base/arena.h"
#include "base/time.h"
#include "server/api.h"
#include "server/msg.h"
#include "tests/lib/fake_store.h"
#include "tests/lib/testing.h"

/* Requests to the JSON API over the double of the store, and what they are answered. One thread. */

#define S NS_PER_S

static struct store *store;
static struct api *api;
static struct msg_reply reply;
static struct str if_none_match, accept;

static inline void setup(struct store *s)
{
    store = s;
    api = api_new(&(struct api_conf){.store = s, .version = "test", .ui_hash = "0123"});
}

static inline void teardown(void)
{
    msg_reply_deinit(&reply);
    api = api_free(api);
    store = fake_store_free(store);
}

/* "name=value&name=value", nothing escaped; '&' and '=' in values: see handle_params(). */
static inline void handle_params(const char *path, const struct msg_param *p, uint32_t n)
{
    struct msg_request q = {.method = STR("GET"),
                            .path = str_c(path),
                            .n_param = n,
                            .param = p,
                            .accept = accept,
                            .if_none_match = if_none_match,
                            .id = 7,
                            .now = {1764417900 * S}};

    msg_reply_deinit(&reply);
    api_handle(api, &q, &reply);
}

static inline void handle(const char *path, const char *query)
{
    struct msg_param p[16];
    struct str rest = str_c(query);
    uint32_t n = 0;

    while (rest.n) {
        size_t amp = str_find(rest, '&');
        struct str one = str_to(rest, amp);
        size_t eq = str_find(one, '=');

        p[n++] = (struct msg_param){str_to(one, eq),
                                    eq == SIZE_MAX ? (struct str){NULL, 0} : str_from(one, eq + 1)};
        rest = amp == SIZE_MAX ? (struct str){NULL, 0} : str_from(rest, amp + 1);
    }
    handle_params(path, p, n);
}

static inline bool says(const char *text)
{
    return memmem(reply.body.p, reply.body.n, text, strlen(text)) != NULL;
}

static inline void want(const char *text)
{
    if (!says(text))
        fail_msg("\"%s\" is not in %d %.*s", text, reply.status, STR_ARG(buf_view(&reply.body)));
}

static inline void refused(int status, const char *code, const char *more)
{
    char text[100];

    assert_int_equal(reply.status, status);
    (void)snprintf(text, sizeof text, "{\"error\":{\"code\":\"%s\",\"message\":\"", code);
    want(text);
    want("\"request_id\":\"0000000000000007\"");
    if (more)
        want(more);
}

static inline void golden(const char *name)
{
    char path[256];
    const char *dir = getenv("STRATA_GOLDEN");
    FILE *f;
    char *have;
    size_t n;

    assert_non_null(dir);
    (void)snprintf(path, sizeof path, "%s/api/%s", dir, name);
    if (getenv("UPDATE_GOLDEN")) {
        f = fopen(path, "wb");
        assert_non_null(f);
        assert_int_equal(fwrite(reply.body.p, 1, reply.body.n, f), reply.body.n);
        assert_int_equal(fclose(f), 0);
        return;
    }
    f = fopen(path, "rb");
    if (!f)
        fail_msg("no golden file %s", path);
    have = xmalloc(reply.body.n + 1);
    n = fread(have, 1, reply.body.n + 1, f);
    (void)fclose(f);
    if (n != reply.body.n || memcmp(have, reply.body.p, n) != 0)
        fail_msg("%s: the answer is now\n%.*s", name, STR_ARG(buf_view(&reply.body)));
    free(have);
}
