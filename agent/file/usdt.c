// SPDX-License-Identifier: Apache-2.0
#include "agent/file/usdt.h"

#include <stdlib.h>
#include <string.h>

#include "base/arena.h"

#define NOTES_MAX ((uint64_t)256 << 10)
#define NOTE_TYPE 3
#define ARGUMENTS "4@%edi 8@%rsi 8@%rdx 8@%rcx"

static const uint8_t nop5[] = {0x0f, 0x1f, 0x44, 0x00, 0x00};

struct note {
    uint64_t pc, base, semaphore;
    struct str provider, name, args;
};

static bool take_text(struct str *rest, struct str *ret)
{
    size_t nul = str_find(*rest, '\0');

    if (nul == SIZE_MAX)
        return false;
    *ret = str_to(*rest, nul);
    *rest = str_from(*rest, nul + 1);
    return true;
}

static bool parse(struct str desc, struct note *ret)
{
    struct note n;

    if (desc.n < 24)
        return false;
    memcpy(&n.pc, desc.p, 8);
    memcpy(&n.base, desc.p + 8, 8);
    memcpy(&n.semaphore, desc.p + 16, 8);
    desc = str_from(desc, 24);
    if (!take_text(&desc, &n.provider) || !take_text(&desc, &n.name) || !take_text(&desc, &n.args))
        return false;
    *ret = n;
    return true;
}

static uint64_t up4(uint64_t n)
{
    return (n + 3) & ~UINT64_C(3);
}

/* The next note of ours; false at the end, or where the sizes lie. */
static bool next(struct str *rest, struct note *ret)
{
    while (rest->n >= 12) {
        uint32_t head[3];
        uint64_t name, desc;
        struct str owner, body;

        memcpy(head, rest->p, sizeof head);
        name = up4(head[0]);
        desc = up4(head[1]);
        if (name > rest->n - 12 || head[1] > rest->n - 12 - name)
            return false;
        owner = str_to(str_from(*rest, 12), head[0]);
        body = str_to(str_from(*rest, 12 + name), head[1]);
        *rest = str_from(*rest, 12 + name + desc);
        if (str_eq(owner, (struct str){"stapsdt", 8}) && head[2] == NOTE_TYPE && parse(body, ret) &&
            str_eq(ret->provider, STR("strata")) && str_eq(ret->name, STR("step")))
            return true;
    }
    return false;
}

/* File offset of n bytes at an ELF address, which lie in the file. */
static bool offset_of(const struct elffile *f, uint64_t addr, uint64_t n, bool exec, uint64_t *ret)
{
    for (uint32_t i = 0; i < f->n_load; i++) {
        const struct elffile_load *l = &f->load[i];

        if (addr < l->vaddr || addr - l->vaddr > l->filesz || l->filesz - (addr - l->vaddr) < n ||
            l->exec != exec)
            continue;
        *ret = l->offset + (addr - l->vaddr);
        return true;
    }
    return false;
}

static bool usable(const struct elffile *f, struct note *n, struct usdt_site *ret)
{
    const struct elffile_section *base = elffile_section(f, ".stapsdt.base");
    uint8_t code[sizeof nop5];

    if (base && n->base) { /* moved by prelink */
        n->pc += base->addr - n->base;
        n->semaphore += n->semaphore ? base->addr - n->base : 0;
    }
    return str_eq(n->args, STR(ARGUMENTS)) && n->semaphore &&
           offset_of(f, n->pc, sizeof nop5, true, &ret->offset) &&
           offset_of(f, n->semaphore, 2, false, &ret->sem_offset) &&
           elffile_read(f, code, sizeof code, ret->offset, NULL) == 0 &&
           memcmp(code, nop5, sizeof nop5) == 0;
}

enum usdt_found usdt_find_step(struct elffile *f, struct usdt_site *ret)
{
    const struct elffile_section *s;
    enum usdt_found found = USDT_NONE;
    struct usdt_site site = {};
    struct note n;
    struct str rest;
    char *text;

    if (!f->section && elffile_sections(f, NULL) < 0)
        return USDT_NONE;
    s = elffile_section(f, ".note.stapsdt");
    if (!s || s->size == 0 || s->size > NOTES_MAX)
        return USDT_NONE;
    text = xmalloc(s->size);
    rest = (struct str){text, s->size};
    if (elffile_read(f, text, s->size, s->offset, NULL) < 0)
        rest.n = 0;
    while (found != USDT_FOUND && next(&rest, &n)) {
        found = usable(f, &n, &site) ? USDT_FOUND : USDT_FOREIGN;
    }
    if (found == USDT_FOUND)
        *ret = site;
    free(text);
    return found;
}

static bool in_segment(const struct binary *b, uint64_t at, uint64_t n, bool exec)
{
    for (uint32_t i = 0; i < b->n_load; i++) {
        const struct elffile_load *l = &b->load[i];

        if (l->exec == exec && at >= l->offset && at - l->offset <= l->filesz &&
            n <= l->filesz - (at - l->offset))
            return true;
    }
    return false;
}

bool usdt_site_ok(const struct binary *b, const struct usdt_site *s)
{
    uint8_t code[sizeof nop5], word[2];

    return in_segment(b, s->offset, sizeof code, true) &&
           in_segment(b, s->sem_offset, sizeof word, false) &&
           binary_read(b, code, sizeof code, s->offset) == sizeof code &&
           memcmp(code, nop5, sizeof nop5) == 0 &&
           binary_read(b, word, sizeof word, s->sem_offset) == sizeof word && !word[0] && !word[1];
}
