// SPDX-License-Identifier: Apache-2.0
/* jitmap_read() on any text: entries in ascending order, apart from each other, all with a name. */
#include <sys/mman.h>
#include <unistd.h>

#include "agent/file/jitmap.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static int fd = -1;
    const struct jitmap_args args = {.max_entries = 10000, .drop_python = n & 1};
    struct jitmap m = {};
    struct str name;

    if (fd < 0)
        fd = memfd_create("input", MFD_CLOEXEC);
    FUZZ_CHECK(ftruncate(fd, 0) == 0 && pwrite(fd, data, n, 0) == (ssize_t)n);
    FUZZ_CHECK(jitmap_read(fd, &args, &m, NULL) == 0);
    for (uint32_t i = 0; i < m.n; i++) {
        FUZZ_CHECK(m.sym[i].start < m.sym[i].end);
        FUZZ_CHECK(i == 0 || m.sym[i - 1].end <= m.sym[i].start);
        FUZZ_CHECK(jitmap_find(&m, m.sym[i].end - 1, &name));
        FUZZ_CHECK(name.n > 0 && name.p + name.n <= m.text + m.text_n);
    }
    jitmap_deinit(&m);
    return 0;
}
