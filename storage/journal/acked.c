// SPDX-License-Identifier: Apache-2.0
/*
 * journal/acked: the last LSN that was committed, written behind each commit without a sync of its
 * own; synced at a start only, before the first journal is made.
 *
 * A commit is on disk before its number is written here, so whatever of this file is found, after a
 * stop, a kill or a power cut, its number was on disk: a row up to it that is missing is lost, not
 * one that never was. Without it a torn end of the last -wal and a damaged one look the same.
 *
 * 32 bytes, within one sector: "STRAACKD", LSN, XXH3-64 of these 16, zeros; numbers little-endian.
 * Anything else says nothing.
 */
#include <endian.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/hash.h"
#include "storage/journal/journal_private.h"

enum {
    SIZE = 32,
    HEAD = 16,
};

static void fill(uint64_t lsn, uint8_t b[SIZE])
{
    static const char magic[8] = {'S', 'T', 'R', 'A', 'A', 'C', 'K', 'D'};
    uint64_t sum;

    memset(b, 0, SIZE);
    memcpy(b, magic, sizeof magic);
    memcpy(b + 8, &(uint64_t){htole64(lsn)}, 8);
    sum = htole64(hash_bytes(b, HEAD));
    memcpy(b + HEAD, &sum, 8);
}

void acked_write(int fd, uint64_t lsn)
{
    uint8_t b[SIZE];

    fill(lsn, b);
    if (fd >= 0 && pwrite(fd, b, SIZE, 0) != SIZE)
        return; /* an older number, or one that is not valid, says less and nothing wrong */
}

int acked_open(int dir_fd, uint64_t lsn)
{
    int fd = openat(dir_fd, "acked", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

    acked_write(fd, lsn);
    if (fd >= 0 && (fsync(fd) != 0 || fsync(dir_fd) != 0)) {
        (void)close(fd);
        return -1;
    }
    return fd;
}

bool acked_read(int dir_fd, uint64_t *ret)
{
    int fd = openat(dir_fd, "acked", O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    uint8_t b[SIZE] = {}, want[SIZE];
    uint64_t lsn;
    ssize_t n;

    *ret = 0;
    if (fd < 0)
        return false;
    n = pread(fd, b, SIZE, 0);
    (void)close(fd);
    memcpy(&lsn, b + 8, 8);
    lsn = le64toh(lsn);
    fill(lsn, want);
    if (n != SIZE || memcmp(b, want, SIZE) != 0)
        return false;
    *ret = lsn;
    return true;
}
