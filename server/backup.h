// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdatomic.h>

/*
 * POST /api/v1/backup?name=NAME: a coherent copy of the running store, as a new directory NAME
 * below storage.backup_dir. Takes as long as the copy: call it from a thread that may wait. Any
 * thread; one copy at a time, the others are 503 busy.
 */
struct msg_reply;
struct msg_request;
struct store;

struct backup {
    const char *dir; /* "": backups are switched off. Borrowed */
    atomic_bool running;
};

void backup_handle(struct backup *b, struct store *s, const struct msg_request *q,
                   struct msg_reply *r);
