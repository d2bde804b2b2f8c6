// SPDX-License-Identifier: Apache-2.0
/* dwarfline_read() on any file: a reason, or frames whose texts lie inside what was found. */
#include <sys/mman.h>
#include <unistd.h>

#include "agent/file/dwarfline.h"
#include "agent/file/elffile.h"
#include "tests/fuzz/fuzz.h"

#define MAX_ADDR 256

static uint64_t by_fail[DWARFLINE_FAIL_N], n_frames;

void fuzz_report(void)
{
    printf("dwarfline: %lu frames", n_frames);
    for (unsigned i = 0; i < DWARFLINE_FAIL_N; i++)
        printf(", %s %lu", dwarfline_fail_name((enum dwarfline_fail)i), by_fail[i]);
    printf("\n");
}

/* Addresses over all of its code. */
static uint32_t addresses(const uint8_t *data, size_t n, uint64_t *addr)
{
    struct elffile_bytes b = {data, n};
    struct elffile f = {};
    uint32_t found = 0;

    if (elffile_open(&f, elffile_copy, &b, n, NULL) < 0)
        return 0;
    for (uint32_t i = 0; i < f.n_load && found == 0; i++) {
        uint64_t size = f.load[i].memsz < 0x10000 ? f.load[i].memsz : 0x10000;

        if (!f.load[i].exec || f.load[i].vaddr >> 40 || size == 0)
            continue;
        for (; found < MAX_ADDR && found < size; found++)
            addr[found] = f.load[i].vaddr + size * found / (size < MAX_ADDR ? size : MAX_ADDR);
    }
    return found;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static int fd = -1;
    uint64_t addr[MAX_ADDR];
    struct dwarfline_job job = {.alt_fd = -1, .addr = addr, .max_bytes = UINT64_C(8) << 20};
    struct dwarfline_arrays a;
    enum dwarfline_fail why;

    if (fd < 0)
        fd = memfd_create("input", MFD_CLOEXEC);
    FUZZ_CHECK(ftruncate(fd, 0) == 0 && pwrite(fd, data, n, 0) == (ssize_t)n);
    job.fd = fd;
    job.n = addresses(data, n, addr);
    why = dwarfline_read(&job, &a);
    FUZZ_CHECK(why < DWARFLINE_FAIL_N);
    by_fail[why]++;
    for (uint32_t i = 0; i < job.n; i++) {
        struct dwarfline_found f = a.found[i];

        FUZZ_CHECK(f.n <= DWARFLINE_MAX_INLINES + 2 && f.first + f.n <= a.n_frame);
        n_frames += f.n;
        for (uint32_t k = f.first; k < f.first + f.n; k++) {
            FUZZ_CHECK(a.frame[k].inlined == (k > f.first));
            FUZZ_CHECK(a.frame[k].name.at + a.frame[k].name.n <= a.text_n);
            FUZZ_CHECK(a.frame[k].file.at + a.frame[k].file.n <= a.text_n);
        }
    }
    dwarfline_deinit(&a);
    return 0;
}
