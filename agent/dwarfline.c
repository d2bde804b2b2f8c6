// SPDX-License-Identifier: Apache-2.0
#include "agent/dwarfline.h"

#include <elfutils/libdw.h>
#include <elfutils/libdwelf.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/arena.h"

struct dwarfline {
    Dwarf *dwarf;
    int fd;
};

/* Takes fd. NULL: no compilation unit in it, or another build id than the one asked for. */
static struct dwarfline *of_fd(int fd, const struct binary *same_id)
{
    struct dwarfline *d;
    Dwarf *dw = fd >= 0 ? dwarf_begin(fd, DWARF_C_READ) : NULL;
    Dwarf_CU *cu = NULL;
    const void *id = NULL;
    bool ok = dw && dwarf_get_units(dw, NULL, &cu, NULL, NULL, NULL, NULL) == 0;

    if (ok && same_id) {
        ssize_t n = dwelf_elf_gnu_build_id(dwarf_getelf(dw), &id);

        ok = n == same_id->id_len && memcmp(id, same_id->id_bytes, (size_t)n) == 0;
    }
    if (!ok) {
        if (dw)
            (void)dwarf_end(dw);
        if (fd >= 0)
            (void)close(fd);
        return NULL;
    }
    d = xcalloc(1, sizeof *d);
    *d = (struct dwarfline){dw, fd};
    return d;
}

static int open_debug_file(const struct binary *b, const char *debug_dir)
{
    char path[4096], hex[130] = "";

    if (!debug_dir[0] || b->id_kind != BIN_ID_GNU || b->id_len < 2)
        return -1;
    for (unsigned i = 0; i < b->id_len; i++)
        (void)snprintf(hex + 2 * i, 3, "%02x", b->id_bytes[i]);
    (void)snprintf(path, sizeof path, "%.2048s/.build-id/%.2s/%s.debug", debug_dir, hex, hex + 2);
    return open(path, O_RDONLY | O_CLOEXEC);
}

struct dwarfline *dwarfline_open(const struct binary *b, const char *debug_dir)
{
    char path[64];
    struct dwarfline *d;

    if (b->fd < 0 || !b->is_elf)
        return NULL;
    /* a descriptor of its own: libdw moves the file position */
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", b->fd);
    d = of_fd(open(path, O_RDONLY | O_CLOEXEC), NULL);
    return d ? d : of_fd(open_debug_file(b, debug_dir), b);
}

struct dwarfline *dwarfline_close(struct dwarfline *d)
{
    if (!d)
        return NULL;
    (void)dwarf_end(d->dwarf);
    (void)close(d->fd);
    free(d);
    return NULL;
}

/* The unit that holds addr: by .debug_aranges, which not every compiler writes, else by asking each
 * one. */
static bool unit_of(Dwarf *dw, uint64_t addr, Dwarf_Die *ret)
{
    Dwarf_CU *cu = NULL;

    if (dwarf_addrdie(dw, addr, ret))
        return true;
    while (dwarf_get_units(dw, cu, &cu, NULL, NULL, ret, NULL) == 0)
        if (dwarf_haspc(ret, addr) > 0)
            return true;
    return false;
}

bool dwarfline_find(struct dwarfline *d, uint64_t addr, const char **ret_file, uint32_t *ret_line)
{
    Dwarf_Line *line;
    Dwarf_Die unit;
    const char *file;
    int n = 0;

    if (!unit_of(d->dwarf, addr, &unit))
        return false;
    line = dwarf_getsrc_die(&unit, addr);
    file = line ? dwarf_linesrc(line, NULL, NULL) : NULL;
    if (!file || dwarf_lineno(line, &n) < 0 || n <= 0)
        return false;
    *ret_file = file;
    *ret_line = (uint32_t)n;
    return true;
}
