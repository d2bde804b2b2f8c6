// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/err.h"
#include "base/time.h"
#include "server/conf_table.h"

/*
 * The running server: listen first, open the store in a thread of its own (it may take seconds to
 * read the journal) and answer 503 starting meanwhile. Thread: owner only.
 */
struct app;
struct buf;

/* conf and strings are borrowed until app_stop(). NULL: no user interface. */
struct app_conf {
    const struct srv_conf *conf;
    const char *ui, *ui_dev;
    int opened_fd; /* eventfd, written once when opening the store has ended */
};

/* errors: whatever keeps the server from starting, in words for people */
[[nodiscard]] int app_start(const struct app_conf *conf, struct app **ret, struct err *err);

/* After opened_fd became readable: 0 ready; negative: the store could not be opened. */
[[nodiscard]] int app_opened(struct app *a, struct err *err);

/* The address that is served, "127.0.0.1:4040". */
const char *app_address(const struct app *a);

/* Read the token file again. On an error the tokens in force stay. */
[[nodiscard]] int app_reload(struct app *a, struct err *err);

/* Answer what was received, close the store, free. NULL is a no-op. false: something hangs; nothing
 * was freed and the process should end (what was acknowledged is in the journal). */
bool app_stop(struct app *a, int64_t wait_ns);

/* Every route with its methods, one a line. */
void app_dump_routes(struct buf *out);
