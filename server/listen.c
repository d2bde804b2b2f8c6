// SPDX-License-Identifier: Apache-2.0
#include "server/listen.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/str.h"

enum {
    BACKLOG = 1024
};

static bool is_loopback(const struct sockaddr *sa)
{
    if (sa->sa_family == AF_INET) {
        const struct sockaddr_in *in = (const struct sockaddr_in *)(const void *)sa;

        return ntohl(in->sin_addr.s_addr) >> 24 == 127;
    }
    if (sa->sa_family == AF_INET6) {
        const struct in6_addr *a = &((const struct sockaddr_in6 *)(const void *)sa)->sin6_addr;

        return IN6_IS_ADDR_LOOPBACK(a) || (IN6_IS_ADDR_V4MAPPED(a) && a->s6_addr[12] == 127);
    }
    return false;
}

static int split(const char *address, char *host, size_t n, const char **ret_port, struct err *err)
{
    struct str s = str_c(address);
    size_t at = str_rfind(s, ':');
    uint64_t port = 0;

    if (at == SIZE_MAX || !str_u64(str_from(s, at + 1), &port) || port > 65535)
        return err_set(err, -EINVAL, "http.listen \"%s\" is not HOST:PORT", address);
    s.n = at;
    if (s.n >= 2 && s.p[0] == '[' && s.p[s.n - 1] == ']')
        s = (struct str){s.p + 1, s.n - 2};
    if (!s.n || s.n >= n)
        return err_set(err, -EINVAL, "http.listen \"%s\" names no host", address);
    memcpy(host, s.p, s.n);
    host[s.n] = '\0';
    *ret_port = address + at + 1;
    return 0;
}

static int bind_failed(const char *address, int e, struct err *err)
{
    switch (e) {
    case EADDRINUSE:
        return err_set(err, -e,
                       "%s is in use by another program (see `ss -ltnp`): stop that one, or choose "
                       "another port with --listen",
                       address);
    case EACCES:
        return err_set(err, -e,
                       "no right to listen on %s: ports below 1024 need CAP_NET_BIND_SERVICE",
                       address);
    case EADDRNOTAVAIL:
        return err_set(err, -e, "%s is no address of this machine", address);
    default:
        return err_set(err, -e, "cannot listen on %s: %s", address, strerrordesc_np(e));
    }
}

static int bound_name(int fd, struct listen_at *ret)
{
    struct sockaddr_storage ss = {};
    socklen_t n = sizeof ss;
    char host[64], port[8];

    if (getsockname(fd, (struct sockaddr *)&ss, &n) < 0 ||
        getnameinfo((struct sockaddr *)&ss, n, host, sizeof host, port, sizeof port,
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0)
        return -EIO;
    (void)snprintf(ret->text, sizeof ret->text, ss.ss_family == AF_INET6 ? "[%s]:%s" : "%s:%s",
                   host, port);
    return 0;
}

static int socket_open(const struct addrinfo *ai, const char *address, struct listen_at *ret,
                       struct err *err)
{
    int on = 1;
    int fd = socket(ai->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd < 0)
        return err_set(err, -errno, "socket: %s", strerrordesc_np(errno));
    /* a port in TIME_WAIT of our own last run is free; one that is listened on is not */
    if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) < 0 ||
        bind(fd, ai->ai_addr, ai->ai_addrlen) < 0 || listen(fd, BACKLOG) < 0) {
        int r = bind_failed(address, errno, err);

        (void)close(fd);
        return r;
    }
    ret->fd = fd;
    ret->loopback = is_loopback(ai->ai_addr);
    if (bound_name(fd, ret) < 0) {
        (void)close(fd);
        return err_set(err, -EIO, "%s: the bound address cannot be read", address);
    }
    return 0;
}

int listen_open(const char *address, bool need_loopback, struct listen_at *ret, struct err *err)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
                                   .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
    struct addrinfo *ai = NULL;
    const char *port = NULL;
    char host[256];
    int r;

    TRY(split(address, host, sizeof host, &port, err));
    r = getaddrinfo(host, port, &hints, &ai);
    if (r != 0)
        return err_set(err, -EINVAL, "http.listen \"%s\": %s", address, gai_strerror(r));
    if (need_loopback && !is_loopback(ai->ai_addr))
        r = err_set(err, -EPERM,
                    "http.listen %s is reachable from other machines: set http.tokens to a token "
                    "file, or listen on 127.0.0.1",
                    address);
    else
        r = socket_open(ai, address, ret, err);
    freeaddrinfo(ai);
    return r;
}
