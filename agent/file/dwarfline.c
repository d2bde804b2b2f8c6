// SPDX-License-Identifier: Apache-2.0
/*
 * One pass over the units finds those that hold an address, one pass over the functions of each
 * such unit the function, and only then is walked inside. .debug_aranges is not used: clang writes
 * none.
 */
#include "agent/file/dwarfline.h"

#include <dwarf.h>
#include <elfutils/libdw.h>
#include <libelf.h>
#include <stdlib.h>
#include <string.h>

#include "agent/file/demangle.h"
#include "agent/file/dwarffile.h"
#include "base/arena.h"
#include "base/buf.h"
#include "base/map.h"

#define MAX_DEPTH 256 /* blocks and namespaces inside each other */
#define MAX_TEXT  4096

struct walk {
    const struct dwarfline_job *job;
    struct dwarfline_arrays *out;
    uint32_t room_frame, room_text;
    Dwarf *dw;
    const struct dwarffile *file[2]; /* the file and the one it shares, or NULL */
    uint64_t steps, max_steps;
    /* of the unit at hand */
    Dwarf_Die cu;
    bool has_lines;
    Dwarf_Files *files;
    size_t n_file;
};

const char *dwarfline_fail_name(enum dwarfline_fail f)
{
    static const char *const name[DWARFLINE_FAIL_N] = {"ok",  "no_dwarf", "too_big", "no_alt",
                                                       "bad", "steps",    "absent"};

    return f < DWARFLINE_FAIL_N ? name[f] : "";
}

static bool step(struct walk *w)
{
    return ++w->steps <= w->max_steps;
}

/* The next entry of the same level. One that lies before this one would be a loop. */
static bool next_die(struct walk *w, Dwarf_Die *die)
{
    Dwarf_Die next;

    if (!step(w) || dwarf_siblingof(die, &next) != 0 || next.addr <= die->addr)
        return false;
    *die = next;
    return true;
}

static bool first_child(struct walk *w, Dwarf_Die *die, Dwarf_Die *ret)
{
    return step(w) && dwarf_child(die, ret) == 0 && ret->addr > die->addr;
}

/* The first wanted address from lo on. */
static uint32_t first_addr(const struct walk *w, uint64_t lo)
{
    uint32_t a = 0;

    for (uint32_t b = w->job->n; a < b;) {
        uint32_t mid = a + (b - a) / 2;

        if (w->job->addr[mid] < lo)
            a = mid + 1;
        else
            b = mid;
    }
    return a;
}

/* ---- frames -------------------------------------------------------------------------------- */

static struct dwarfline_text keep(struct walk *w, const char *s, size_t len)
{
    struct dwarfline_arrays *o = w->out;
    uint32_t n = (uint32_t)len, at = o->text_n;

    if (len == 0 || len > MAX_TEXT || at > UINT32_MAX / 2)
        return (struct dwarfline_text){};
    if (at + n > w->room_text) {
        w->room_text = 2 * (at + n) + 4096;
        o->text = xrealloc(o->text, w->room_text);
    }
    memcpy(o->text + at, s, n);
    o->text_n = at + n;
    return (struct dwarfline_text){at, n};
}

/* A text that stands in a section as it is: libdw does not see whether it ends there. */
static struct dwarfline_text keep_name(struct walk *w, const char *s)
{
    for (unsigned i = 0; s && i < 2; i++) {
        const struct dwarffile *d = w->file[i];
        const char *image = d ? (const char *)d->image : NULL;

        if (image && s >= image && s < image + d->n)
            return keep(w, s, strnlen(s, d->n - (size_t)(s - image)));
    }
    return (struct dwarfline_text){};
}

static const char *name_of(Dwarf_Die *die)
{
    Dwarf_Attribute attr;
    const char *s = NULL;

    if (dwarf_attr_integrate(die, DW_AT_linkage_name, &attr) ||
        dwarf_attr_integrate(die, DW_AT_MIPS_linkage_name, &attr))
        s = dwarf_formstring(&attr);
    return s ? s : dwarf_diename(die);
}

static uint64_t number_of(Dwarf_Die *die, unsigned name, bool integrate)
{
    Dwarf_Attribute attr;
    Dwarf_Word v;
    bool has = integrate ? dwarf_attr_integrate(die, name, &attr) : dwarf_attr(die, name, &attr);

    return has && dwarf_formudata(&attr, &v) == 0 && v <= UINT32_MAX ? v : 0;
}

static const char *file_of(const struct walk *w, uint64_t number)
{
    return w->files && number < w->n_file ? dwarf_filesrc(w->files, number, NULL, NULL) : NULL;
}

/* The place in the source that the line program has for an address. */
static void place_of(struct walk *w, uint64_t addr, const char **ret_file, uint32_t *ret_line)
{
    Dwarf_Line *line = w->has_lines ? dwarf_getsrc_die(&w->cu, addr) : NULL;
    int n = 0;

    *ret_file = line ? dwarf_linesrc(line, NULL, NULL) : NULL;
    *ret_line = line && dwarf_lineno(line, &n) == 0 && n > 0 ? (uint32_t)n : 0;
}

static struct dwarfline_frame *push_frame(struct walk *w)
{
    struct dwarfline_arrays *o = w->out;

    if (o->n_frame == w->room_frame) {
        w->room_frame = w->room_frame ? 2 * w->room_frame : 256;
        o->frame = xrealloc(o->frame, w->room_frame * sizeof *o->frame);
    }
    o->frame[o->n_frame] = (struct dwarfline_frame){};
    return &o->frame[o->n_frame++];
}

/* chain[0] the function or NULL, then what is inlined, outermost first. */
static void emit(struct walk *w, uint32_t i, Dwarf_Die *chain, uint32_t n)
{
    w->out->found[i] = (struct dwarfline_found){w->out->n_frame, n ? n : 1};
    for (uint32_t k = 0; k < n || k == 0; k++) {
        struct dwarfline_frame *f = push_frame(w);
        const char *file, *decl;
        uint32_t start;

        if (k + 1 < n) { /* where the next one was called from */
            file = file_of(w, number_of(&chain[k + 1], DW_AT_call_file, false));
            f->line = (uint32_t)number_of(&chain[k + 1], DW_AT_call_line, false);
        } else {
            place_of(w, w->job->addr[i], &file, &f->line);
        }
        f->file = keep(w, file, file ? strlen(file) : 0); /* libdw's own copy */
        f->inlined = k > 0;
        if (n == 0)
            break;
        f->name = keep_name(w, name_of(&chain[k]));
        decl = file_of(w, number_of(&chain[k], DW_AT_decl_file, true));
        start = (uint32_t)number_of(&chain[k], DW_AT_decl_line, true);
        if (decl && file && strcmp(decl, file) == 0)
            f->start_line = start;
    }
}

/* ---- inside a function --------------------------------------------------------------------- */

static bool has_ranges(Dwarf_Die *die)
{
    return dwarf_hasattr(die, DW_AT_ranges) || dwarf_hasattr(die, DW_AT_low_pc);
}

/* What was inlined at addr, from chain[1] on; n frames so far. */
static uint32_t walk_inlines(struct walk *w, Dwarf_Die *in, uint64_t addr, Dwarf_Die *chain,
                             uint32_t n, unsigned depth)
{
    Dwarf_Die die;

    if (depth >= MAX_DEPTH || n > DWARFLINE_MAX_INLINES || !first_child(w, in, &die))
        return n;
    do {
        int tag = dwarf_tag(&die);
        bool inlined = tag == DW_TAG_inlined_subroutine;
        uint32_t found;

        if (!inlined && tag != DW_TAG_lexical_block && tag != DW_TAG_try_block &&
            tag != DW_TAG_catch_block)
            continue;
        if (dwarf_haspc(&die, addr) == 1) {
            if (inlined)
                chain[n++] = die;
            return walk_inlines(w, &die, addr, chain, n, depth + 1);
        }
        if (inlined || has_ranges(&die))
            continue;
        found =
            walk_inlines(w, &die, addr, chain, n, depth + 1); /* a block without code of its own */
        if (found > n)
            return found;
    } while (next_die(w, &die));
    return n;
}

static void in_function(struct walk *w, Dwarf_Die *fn)
{
    Dwarf_Die chain[DWARFLINE_MAX_INLINES + 2];
    Dwarf_Addr base, lo, hi;
    ptrdiff_t at = 0;

    while ((at = dwarf_ranges(fn, at, &base, &lo, &hi)) > 0 && step(w)) {
        for (uint32_t i = first_addr(w, lo); i < w->job->n && w->job->addr[i] < hi; i++) {
            if (w->out->found[i].n)
                continue;
            chain[0] = *fn;
            emit(w, i, chain, walk_inlines(w, fn, w->job->addr[i], chain, 1, 0));
        }
    }
}

/* Functions of a unit: its children, and those of namespaces, modules and classes. */
static void walk_functions(struct walk *w, Dwarf_Die *in, unsigned depth)
{
    Dwarf_Die die;

    if (depth >= MAX_DEPTH || !first_child(w, in, &die))
        return;
    do {
        switch (dwarf_tag(&die)) {
        case DW_TAG_subprogram:
            if (has_ranges(&die))
                in_function(w, &die);
            break;
        case DW_TAG_namespace:
        case DW_TAG_module:
        case DW_TAG_class_type:
        case DW_TAG_structure_type:
            walk_functions(w, &die, depth + 1);
            break;
        default:
            break;
        }
    } while (next_die(w, &die));
}

/* ---- units --------------------------------------------------------------------------------- */

/* Decoding a line program takes some 100 bytes per row, a row one byte at least. */
static bool program_fits(struct walk *w)
{
    const struct dwarffile *d = w->file[0];
    Dwarf_Attribute attr;
    Dwarf_Word at;
    uint64_t size;
    uint32_t word;

    if (!dwarf_attr(&w->cu, DW_AT_stmt_list, &attr) || dwarf_formudata(&attr, &at) != 0 ||
        d->line_n < 12 || at > d->line_n - 12)
        return false;
    memcpy(&word, d->image + d->line_at + at, sizeof word);
    size = word;
    if (word == UINT32_MAX)
        memcpy(&size, d->image + d->line_at + at + 4, sizeof size);
    return size <= DWARFLINE_MAX_PROGRAM;
}

static void in_unit(struct walk *w)
{
    Dwarf_Lines *lines;
    size_t n;

    w->has_lines = program_fits(w) && dwarf_getsrclines(&w->cu, &lines, &n) == 0;
    w->files = NULL;
    w->n_file = 0;
    if (w->has_lines && dwarf_getsrcfiles(&w->cu, &w->files, &w->n_file) != 0)
        w->files = NULL;
    walk_functions(w, &w->cu, 0);
}

/* Is there a wanted address without an answer in the unit? */
static bool unit_wanted(struct walk *w)
{
    Dwarf_Addr base, lo, hi;
    ptrdiff_t at = 0;

    while ((at = dwarf_ranges(&w->cu, at, &base, &lo, &hi)) > 0 && step(w)) {
        for (uint32_t i = first_addr(w, lo); i < w->job->n && w->job->addr[i] < hi; i++) {
            if (!w->out->found[i].n)
                return true;
        }
    }
    return false;
}

/* In no function, but in the unit: its line alone. */
static void rest_of_unit(struct walk *w)
{
    Dwarf_Addr base, lo, hi;
    ptrdiff_t at = 0;

    while (w->has_lines && (at = dwarf_ranges(&w->cu, at, &base, &lo, &hi)) > 0 && step(w)) {
        for (uint32_t i = first_addr(w, lo); i < w->job->n && w->job->addr[i] < hi; i++) {
            if (!w->out->found[i].n)
                emit(w, i, NULL, 0);
        }
    }
}

static void walk_units(struct walk *w)
{
    Dwarf_Off at = 0, next;
    size_t header;
    Dwarf_Half version;

    while (dwarf_next_unit(w->dw, at, &next, &header, &version, NULL, NULL, NULL, NULL, NULL) ==
               0 &&
           next > at && step(w)) {
        if (dwarf_offdie(w->dw, at + header, &w->cu) && unit_wanted(w)) {
            in_unit(w);
            rest_of_unit(w);
        }
        at = next;
    }
}

/* ---- the file ------------------------------------------------------------------------------ */

struct file {
    struct dwarffile d;
    Elf *elf;
    Dwarf *dw;
};

static void file_close(struct file *f)
{
    if (f->dw)
        dwarf_end(f->dw);
    if (f->elf)
        elf_end(f->elf);
    dwarffile_deinit(&f->d);
}

static enum dwarfline_fail file_open(int fd, uint64_t max, struct file *ret)
{
    switch (dwarffile_read(fd, max, &ret->d)) {
    case DWARFFILE_OK:
        break;
    case DWARFFILE_NONE:
        return DWARFLINE_NO_DWARF;
    case DWARFFILE_TOO_BIG:
        return DWARFLINE_TOO_BIG;
    case DWARFFILE_BAD:
        return DWARFLINE_BAD;
    }
    (void)elf_version(EV_CURRENT);
    ret->elf = elf_memory((char *)ret->d.image, ret->d.n);
    ret->dw = ret->elf ? dwarf_begin_elf(ret->elf, DWARF_C_READ, NULL) : NULL;
    return ret->dw ? DWARFLINE_OK : DWARFLINE_BAD;
}

/* A file of debug info that main shares with others. */
static enum dwarfline_fail open_alt(const struct dwarfline_job *job, uint64_t max, Dwarf *main,
                                    struct file *ret)
{
    if (job->alt_fd < 0 || file_open(job->alt_fd, max, ret) != DWARFLINE_OK || ret->d.has_alt)
        return DWARFLINE_NO_ALT;
    dwarf_setalt(main, ret->dw);
    return DWARFLINE_OK;
}

enum dwarfline_fail dwarfline_read(const struct dwarfline_job *job, struct dwarfline_arrays *ret)
{
    uint64_t max = job->max_bytes ? job->max_bytes : DWARFLINE_MAX_BYTES;
    struct file main = {}, alt = {};
    struct walk w = {.job = job, .out = ret};
    enum dwarfline_fail why;

    *ret = (struct dwarfline_arrays){};
    ret->found = xcalloc(job->n ? job->n : 1, sizeof *ret->found);
    w.max_steps = job->max_steps ? job->max_steps : DWARFLINE_MAX_STEPS;
    why = file_open(job->fd, max, &main);
    if (why == DWARFLINE_OK && main.d.has_alt)
        why = open_alt(job, max, main.dw, &alt);
    if (why == DWARFLINE_OK) {
        w.dw = main.dw;
        w.file[0] = &main.d;
        w.file[1] = alt.dw ? &alt.d : NULL;
        walk_units(&w);
        if (w.steps > w.max_steps)
            why = DWARFLINE_STEPS;
    }
    file_close(&main);
    file_close(&alt);
    ret->steps = w.steps;
    return why;
}

void dwarfline_deinit(struct dwarfline_arrays *a)
{
    free(a->frame);
    free(a->found);
    free(a->text);
    *a = (struct dwarfline_arrays){};
}

/* Each text once, however many frames have it. */
void dwarfline_demangle(struct dwarfline_arrays *a)
{
    struct map done; /* where a name stood -> where its new text stands: at << 32 | length */
    struct buf out;

    map_init(&done, 0);
    buf_init(&out, UINT32_MAX - a->text_n);
    for (uint32_t i = 0; i < a->n_frame; i++) {
        struct dwarfline_text *t = &a->frame[i].name;
        uint64_t key = (uint64_t)t->at << 32 | t->n, *to;
        size_t at = out.n;
        enum map_result is = map_at(&done, key, &to);

        if (is == MAP_FULL) /* no memory: the rest stay as they are */
            break;
        if (is == MAP_ADDED) {
            *to = key;
            if (t->n && demangle((struct str){a->text + t->at, t->n}, &out) && !out.failed)
                *to = (a->text_n + at) << 32 | (out.n - at);
        }
        *t = (struct dwarfline_text){(uint32_t)(*to >> 32), (uint32_t)*to};
    }
    if (out.n) {
        a->text = xrealloc(a->text, a->text_n + out.n);
        memcpy(a->text + a->text_n, out.p, out.n);
        a->text_n += (uint32_t)out.n;
    }
    buf_deinit(&out);
    map_deinit(&done);
}
