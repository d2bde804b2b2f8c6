// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdbool.h>

#include "base/err.h"

/*
 * The listening socket. Start-up.
 *   address   HOST:PORT or [HOST]:PORT; port 0: any free one
 *   loopback  the address reaches this machine only
 */
struct listen_at {
    int fd;
    bool loopback;
    char text[80]; /* HOST:PORT as bound, brackets around IPv6 */
};

/* errors: -EINVAL not an address; -EADDRINUSE, -EACCES, ... each naming address and remedy.
 * need_loopback: refuse any other address before it is bound. */
[[nodiscard]] int listen_open(const char *address, bool need_loopback, struct listen_at *ret,
                              struct err *err);
