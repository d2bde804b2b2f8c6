// SPDX-License-Identifier: Apache-2.0
#include "server/msg.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/json_out.h"

enum {
    ERROR_BODY_MAX =
        16 << 10 /* code and message are ours; param and message hold little of theirs */
};

void msg_reply_deinit(struct msg_reply *r)
{
    buf_deinit(&r->body);
    *r = (struct msg_reply){};
}

void msg_fail(struct msg_reply *r, const struct msg_request *q, const struct msg_error *e)
{
    struct json_out j;
    char id[17];

    msg_reply_deinit(r);
    buf_init(&r->body, ERROR_BODY_MAX);
    r->status = e->status;
    r->content_type = "application/json";
    r->cache = MSG_NO_STORE;
    r->retry_after_s = e->retry_after_s;

    json_init(&j, &r->body);
    json_object_begin(&j);
    json_key(&j, "error");
    json_object_begin(&j);
    json_key(&j, "code");
    json_cstr(&j, e->code);
    json_key(&j, "message");
    json_cstr(&j, e->message ? e->message : e->code);
    if (e->param) {
        json_key(&j, "param");
        json_cstr(&j, e->param);
    }
    if (e->setting) {
        json_key(&j, "setting");
        json_cstr(&j, e->setting);
        json_key(&j, "limit");
        json_u64(&j, e->limit);
        json_key(&j, "actual");
        json_u64(&j, e->actual);
    }
    json_key(&j, "request_id");
    (void)snprintf(id, sizeof id, "%016" PRIx64, q->id);
    json_cstr(&j, id);
    json_object_end(&j);
    json_object_end(&j);
    buf_chr(&r->body, '\n');
}

bool msg_param(const struct msg_request *q, const char *name, struct str *ret)
{
    struct str want = str_c(name);

    for (uint32_t i = 0; i < q->n_param; i++)
        if (str_eq(q->param[i].name, want)) {
            *ret = q->param[i].value;
            return true;
        }
    return false;
}
