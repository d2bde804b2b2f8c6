// SPDX-License-Identifier: Apache-2.0
#include "agent/name/ksym.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/file/procfile.h"
#include "base/arena.h"
#include "base/buf.h"
#include "base/hash.h"
#include "base/time.h"

#define MAX_SYMBOLS  (UINT32_C(2) << 20)
#define MAX_KALLSYMS ((size_t)256 << 20)
#define REREAD_NS    (60 * NS_PER_S)
#define MAX_REACH    (UINT64_C(1) << 20) /* a text symbol reaches to the next one, at most 1 MiB */
#define MAX_MODULES  4096
#define MODULE_NAME  64

struct ksym_entry {
    uint64_t addr;
    uint32_t name;   /* offset in text */
    uint32_t module; /* index */
};

struct module {
    char name[MODULE_NAME];
    uint64_t start; /* the lowest text symbol */
};

struct ksym {
    char *proc, *sys;
    char state[96];
    struct buf text; /* names, each with a NUL */
    struct ksym_entry *v;
    uint32_t n, room;
    struct module *module; /* 0: the kernel */
    uint32_t n_module;
    uint64_t text_start, modules_hash;
    int64_t read_at;
    bool missed;
    uint8_t build_id[64];
    uint8_t build_id_len;
};

static uint32_t module_index(struct ksym *k, struct str name)
{
    if (name.n >= MODULE_NAME)
        name.n = MODULE_NAME - 1;
    /* kallsyms lists module by module: the last one is nearly always it */
    for (uint32_t i = k->n_module; i-- > 0;) {
        if (strlen(k->module[i].name) == name.n &&
            (name.n == 0 || memcmp(k->module[i].name, name.p, name.n) == 0))
            return i;
    }
    if (k->n_module == MAX_MODULES)
        return 0;
    k->module[k->n_module] = (struct module){.start = UINT64_MAX};
    if (name.n)
        memcpy(k->module[k->n_module].name, name.p, name.n);
    return k->n_module++;
}

/* "ffffffff81000000 T name\t[module]" */
static bool parse_line(struct str line, uint64_t *ret_addr, char *ret_type, struct str *ret_name,
                       struct str *ret_module)
{
    size_t sp = str_find(line, ' ');
    size_t tab;

    if (sp == SIZE_MAX || !str_hex64(str_to(line, sp), ret_addr))
        return false;
    line = str_from(line, sp + 1);
    if (line.n < 3 || line.p[1] != ' ')
        return false;
    *ret_type = line.p[0];
    line = str_from(line, 2);
    tab = str_find(line, '\t');
    *ret_name = str_to(line, tab);
    *ret_module = (struct str){NULL, 0};
    if (tab != SIZE_MAX) {
        line = str_from(line, tab + 1);
        if (line.n > 2 && line.p[0] == '[' && line.p[line.n - 1] == ']')
            *ret_module = (struct str){line.p + 1, line.n - 2};
    }
    return ret_name->n > 0;
}

static void add(struct ksym *k, uint64_t addr, struct str name, struct str module)
{
    uint32_t m = module_index(k, module);

    if (k->n == MAX_SYMBOLS)
        return;
    if (k->n == k->room) {
        k->room = k->room ? 2 * k->room : 65536;
        k->v = xrealloc(k->v, k->room * sizeof *k->v);
    }
    if (addr < k->module[m].start)
        k->module[m].start = addr;
    k->v[k->n++] = (struct ksym_entry){.addr = addr, .name = (uint32_t)k->text.n, .module = m};
    buf_str(&k->text, name);
    buf_chr(&k->text, '\0');
}

static int by_addr(const void *a, const void *b)
{
    const struct ksym_entry *x = a, *y = b;

    if (x->addr != y->addr)
        return x->addr < y->addr ? -1 : 1;
    return (x->name > y->name) - (x->name < y->name); /* as the file has them */
}

static void parse(struct ksym *k, struct str all)
{
    bool any = false, seen = false;

    k->n = 0;
    k->n_module = 0;
    k->text_start = 0;
    buf_reset(&k->text);
    module_index(k, STR(""));
    while (all.n) {
        size_t nl = str_find(all, '\n');
        struct str name, module;
        uint64_t addr;
        char type;

        if (parse_line(str_to(all, nl), &addr, &type, &name, &module)) {
            seen = true;
            any |= addr != 0;
            if (addr != 0 && str_eq(name, STR("_text")) && module.n == 0)
                k->text_start = addr;
            if (addr != 0 && strchr("tTwW", type))
                add(k, addr, name, module);
        }
        all = str_from(all, nl == SIZE_MAX ? all.n : nl + 1);
    }
    if (k->n)
        qsort(k->v, k->n, sizeof *k->v, by_addr);
    if (k->n && k->text_start)
        k->module[0].start = k->text_start;
    if (seen && !any)
        (void)snprintf(k->state, sizeof k->state,
                       "withheld: kernel.kptr_restrict or no CAP_SYSLOG");
    else if (k->n == 0 || k->text.failed)
        (void)snprintf(k->state, sizeof k->state, "unreadable: no symbols in kallsyms");
    else
        (void)snprintf(k->state, sizeof k->state, "ok");
}

static uint64_t hash_modules(const struct ksym *k)
{
    struct buf b;
    uint64_t h = 0;

    buf_init(&b, (size_t)4 << 20);
    if (procfile_read(k->proc, "modules", &b, NULL) == 0)
        h = hash_bytes(b.p, b.n);
    buf_deinit(&b);
    return h;
}

static void read_all(struct ksym *k)
{
    struct err err = {};
    struct buf b;

    buf_init(&b, MAX_KALLSYMS);
    if (procfile_read(k->proc, "kallsyms", &b, &err) == 0)
        parse(k, buf_view(&b));
    else {
        k->n = 0;
        (void)snprintf(k->state, sizeof k->state, "unreadable: %.80s", err.msg);
    }
    buf_deinit(&b);
    k->missed = false;
}

/* /sys/kernel/notes holds ELF notes; the build id is NT_GNU_BUILD_ID (3) of "GNU". */
static void read_build_id(struct ksym *k)
{
    struct buf b;
    size_t at = 0;

    buf_init(&b, 65536);
    if (procfile_read(k->sys, "kernel/notes", &b, NULL) < 0)
        b.n = 0;
    while (b.n - at >= 12) {
        uint32_t h[3];
        size_t desc;

        memcpy(h, b.p + at, sizeof h);
        desc = at + 12 + (((size_t)h[0] + 3) & ~(size_t)3);
        if (desc > b.n || h[1] > b.n - desc)
            break;
        if (h[2] == 3 && h[0] == 4 && memcmp(b.p + at + 12, "GNU", 4) == 0 && h[1] <= 64) {
            memcpy(k->build_id, b.p + desc, h[1]);
            k->build_id_len = (uint8_t)h[1];
            break;
        }
        at = desc + (((size_t)h[1] + 3) & ~(size_t)3);
        if (at > b.n)
            break;
    }
    buf_deinit(&b);
}

struct ksym *ksym_new(const char *proc, const char *sys)
{
    struct ksym *k = xcalloc(1, sizeof *k);

    k->proc = xstrdup(proc);
    k->sys = xstrdup(sys);
    k->module = xcalloc(MAX_MODULES, sizeof *k->module);
    buf_init(&k->text, (size_t)64 << 20);
    k->modules_hash = hash_modules(k);
    read_all(k);
    read_build_id(k);
    k->read_at = mono_now().v;
    return k;
}

struct ksym *ksym_free(struct ksym *k)
{
    if (!k)
        return NULL;
    buf_deinit(&k->text);
    free(k->v);
    free(k->module);
    free(k->proc);
    free(k->sys);
    free(k);
    return NULL;
}

bool ksym_find(struct ksym *k, uint64_t addr, struct ksym_hit *ret)
{
    uint32_t lo = 0, hi = k->n;
    const struct ksym_entry *e;
    const struct module *m;

    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;

        if (k->v[mid].addr <= addr)
            lo = mid + 1;
        else
            hi = mid;
    }
    if (lo == 0 || addr - k->v[lo - 1].addr >= MAX_REACH) {
        k->missed = true;
        return false;
    }
    e = &k->v[lo - 1];
    while (e > k->v && e[-1].addr == e->addr) /* of aliases the first in the file */
        e--;
    m = &k->module[e->module];
    *ret = (struct ksym_hit){
        .name = str_c(k->text.p + e->name), .module = str_c(m->name), .offset = addr - m->start};
    return true;
}

bool ksym_refresh(struct ksym *k, int64_t now_ns)
{
    uint64_t h;

    if (now_ns - k->read_at < (k->missed ? REREAD_NS : REREAD_NS / 6))
        return false;
    k->read_at = now_ns;
    h = hash_modules(k);
    if (h == k->modules_hash && !k->missed)
        return false;
    k->modules_hash = h;
    read_all(k);
    return true;
}

const char *ksym_state(const struct ksym *k)
{
    return k->state;
}

struct str ksym_build_id(const struct ksym *k)
{
    return (struct str){(const char *)k->build_id, k->build_id_len};
}

uint32_t ksym_count(const struct ksym *k)
{
    return k->n;
}

uint64_t ksym_bytes(const struct ksym *k)
{
    return k->room * sizeof *k->v + k->text.room + MAX_MODULES * sizeof *k->module;
}
