// SPDX-License-Identifier: Apache-2.0
/*
 * mutate FOLDER: feeds a fuzz target inputs that were made from a corpus by a seeded generator:
 * 500, or 20,000 with STRATA_LONG=1. What a fuzzer finds in minutes of chance this repeats exactly,
 * with every compiler. One input may take 10 s, all together 1 GiB (not asked of sanitized
 * programs).
 */
#include <dirent.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/fuzz/fuzz.h"

#if defined(__SANITIZE_ADDRESS__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif

#define SEED      UINT64_C(20261130)
#define MAX_FILES 64
#define MAX_KIB   (UINT64_C(1) << 20)

#pragma weak fuzz_report

struct file {
    uint8_t *p;
    size_t n;
};

static uint64_t rng = SEED;

static size_t below(size_t n)
{
    rng ^= rng << 13;
    rng ^= rng >> 7;
    rng ^= rng << 17;
    return n ? (size_t)(rng >> 11) % n : 0;
}

static struct file read_file(const char *path)
{
    struct file f = {};
    struct stat st;
    FILE *in = fopen(path, "rbe");

    if (in && fstat(fileno(in), &st) == 0 && S_ISREG(st.st_mode)) {
        f.n = (size_t)st.st_size;
        f.p = malloc(f.n + 1);
        if (!f.p || fread(f.p, 1, f.n, in) != f.n)
            abort();
    }
    if (in)
        (void)fclose(in);
    return f;
}

static void put(uint8_t *p, size_t n, size_t at, uint64_t v, size_t width)
{
    if (at + width <= n)
        memcpy(p + at, &v, width);
}

/* One change; returns the new length. */
static size_t mutate(uint8_t *p, size_t n)
{
    static const uint64_t odd[] = {
        0,         1,          0x7f,       0x80,       0xff,
        0xffff,    0x7fffffff, 0x80000000, 0xffffffff, 0x7fffffffffffffff,
        UINT64_MAX};
    size_t at = below(n), len;

    if (below(3) == 0) /* headers matter more than their share of the bytes */
        at = below(n < 0x400 ? n : 0x400);
    if (n == 0)
        return 0;
    switch (below(8)) {
    case 0:
        p[at] ^= (uint8_t)(1u << below(8));
        return n;
    case 1:
    case 2:
        p[at] = (uint8_t)below(256);
        return n;
    case 3:
        put(p, n, at & ~(size_t)3, odd[below(sizeof odd / sizeof *odd)], 4);
        return n;
    case 4:
        put(p, n, at & ~(size_t)7, odd[below(sizeof odd / sizeof *odd)], 8);
        return n;
    case 5: /* a piece of it elsewhere */
        len = 1 + below(64);
        if (at + len <= n)
            memmove(p + below(n - len + 1), p + at, len);
        return n;
    case 6:
        len = 1 + below(32);
        memset(p + at, below(2) ? 0xff : 0, at + len <= n ? len : n - at);
        return n;
    default:
        return below(8) ? n : at; /* cut off, now and then */
    }
}

static void feed(const struct file *f)
{
    size_t n = f->n;
    uint8_t *whole = malloc(n + 1), *data;

    if (!whole)
        abort();
    memcpy(whole, f->p, n);
    for (size_t i = 1 + below(8); i > 0; i--)
        n = mutate(whole, n);
    data = malloc(n ? n : 1); /* exactly as large */
    if (!data)
        abort();
    memcpy(data, whole, n);
    free(whole);
    (void)alarm(SANITIZED ? 60 : 10);
    (void)LLVMFuzzerTestOneInput(data, n);
    (void)alarm(0);
    free(data);
}

static uint64_t peak_kib(void)
{
    FILE *f = fopen("/proc/self/status", "re");
    char line[256];
    uint64_t v = 0;

    while (f && fgets(line, sizeof line, f)) {
        if (strncmp(line, "VmHWM:", 6) == 0)
            v = strtoull(line + 6, NULL, 10);
    }
    if (f)
        (void)fclose(f);
    return v;
}

int main(int argc, char **argv)
{
    DIR *dir = argc == 2 ? opendir(argv[1]) : NULL;
    const char *slow = getenv("STRATA_LONG"); // NOLINT(concurrency-mt-unsafe): one thread
    unsigned rounds = slow && strcmp(slow, "1") == 0 ? 20000 : 500;
    struct file file[MAX_FILES];
    char path[PATH_MAX];
    size_t n = 0;

    if (!dir) {
        perror(argc == 2 ? argv[1] : "usage: mutate FOLDER");
        return 2;
    }
    for (const struct dirent *e; n < MAX_FILES && (e = readdir(dir));) {
        if (snprintf(path, sizeof path, "%s/%s", argv[1], e->d_name) < (int)sizeof path)
            file[n] = read_file(path);
        n += file[n].n > 0;
    }
    (void)closedir(dir);
    for (unsigned i = 0; n && i < rounds; i++)
        feed(&file[i % n]);
    for (size_t i = 0; i < n; i++)
        free(file[i].p);
    printf("%u inputs of %zu files, seed %lu, peak %lu KiB\n", rounds, n, SEED, peak_kib());
    if (fuzz_report)
        fuzz_report();
    return n == 0 || (!SANITIZED && peak_kib() > MAX_KIB);
}
