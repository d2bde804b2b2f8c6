// SPDX-License-Identifier: Apache-2.0
/*
 * SQLite reads a write-ahead log up to the first frame whose checksum is wrong and takes the rest
 * for a transaction that was never finished. One damaged byte therefore hides every transaction
 * behind it without an error. Here the frames behind are looked at by themselves: each checksum
 * continues the one that is stored in the frame before, so a frame can be judged without the broken
 * one (https://www.sqlite.org/fileformat2.html#the_write_ahead_log).
 */
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "storage/journal/journal_private.h"

enum {
    HEADER = 32,
    FRAME_HEADER = 24,
    PAGE = 4096, /* of journals */
    FRAME = FRAME_HEADER + PAGE,
    MAGIC = 0x377f0682, /* and one more where the words of the checksum are big-endian */
};

struct sum {
    uint32_t a, b;
};

static uint32_t word(const uint8_t *p, bool big)
{
    return big ? (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3]
               : (uint32_t)p[3] << 24 | (uint32_t)p[2] << 16 | (uint32_t)p[1] << 8 | p[0];
}

static struct sum add(struct sum s, const uint8_t *p, size_t n, bool big)
{
    for (size_t i = 0; i < n; i += 8) {
        s.a += word(p + i, big) + s.b;
        s.b += word(p + i + 4, big) + s.a;
    }
    return s;
}

static struct sum stored(const uint8_t *p)
{
    return (struct sum){word(p, true), word(p + 4, true)};
}

static bool same(struct sum x, struct sum y)
{
    return x.a == y.a && x.b == y.b;
}

/* Transactions whose last frame is behind the first bad one; *ret_at: where that one begins. */
static uint32_t count_behind(int fd, uint64_t size, uint64_t *ret_at)
{
    static const struct sum zero;
    uint8_t head[HEADER], frame[FRAME], salt[8];
    bool big, bad, last_ended = false;
    struct sum before;
    uint32_t n = 0;

    if (pread(fd, head, sizeof head, 0) != HEADER)
        return 0;
    big = word(head, true) == MAGIC + 1;
    before = stored(head + 24);
    bad = word(head, true) >> 1 != MAGIC >> 1 || !same(add(zero, head, 24, big), before);
    *ret_at = 0;
    memcpy(salt, head + 16, sizeof salt);
    for (uint64_t at = HEADER; at + FRAME <= size; at += FRAME) {
        struct sum s;
        bool ok, ends;

        if (pread(fd, frame, sizeof frame, (off_t)at) != FRAME)
            break;
        if (at == HEADER && bad)
            memcpy(salt, frame + 8, sizeof salt); /* those of the header may be the damage */
        s = add(add(before, frame, 8, big), frame + FRAME_HEADER, PAGE, big);
        before = stored(frame + 16);
        ok = memcmp(salt, frame + 8, sizeof salt) == 0;
        ends = ok && word(frame + 4, true) != 0;
        if (!bad && !(ok && same(s, before))) {
            bad = true;
            *ret_at = at;
        }
        n += bad && ends && !last_ended; /* padding repeats the last frame */
        last_ended = ends;
    }
    return n;
}

uint32_t journal_behind(int dir_fd, const char *wal, uint64_t *ret_at)
{
    int fd = openat(dir_fd, wal, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat st;
    uint32_t n = 0;

    if (fd < 0)
        return 0;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode))
        n = count_behind(fd, (uint64_t)st.st_size, ret_at);
    (void)close(fd);
    return n;
}
