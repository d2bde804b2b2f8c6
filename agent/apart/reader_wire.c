// SPDX-License-Identifier: Apache-2.0
#include "agent/apart/reader_wire.h"

#include <stdlib.h>
#include <string.h>

#include "agent/file/demangle.h"
#include "base/arena.h"

enum {
    MAX_REG = 16,
    MAX_FP_KIND = 3,
};

/* Where each field that has a meaning alone is a whole number: bool and padding are no bytes that
 * may be copied from outside. */
struct wire_frame {
    struct dwarfline_text name, file;
    uint32_t line, start_line, inlined;
};

struct wire_facts {
    uint8_t id[64], alt_id[64];
    uint32_t id_len, alt_id_len, has_link, bad_link, has_alt, crc;
    char link[256], alt[256];
};

const char *reader_kind_name(enum reader_kind k)
{
    static const char *const name[READER_KINDS] = {"",       "table", "symbols", "demangle",
                                                   "facts",  "prove", "perfmap", "lines",
                                                   "python", "step",  "ping"};

    return k < READER_KINDS ? name[k] : "";
}

bool reader_wire_ask_ok(const struct reader_ask *q, size_t n, unsigned n_fd)
{
    bool file = q->kind != READER_DEMANGLE && q->kind != READER_PING;
    bool second = q->kind == READER_SYMBOLS || q->kind == READER_LINES;

    if (n < sizeof *q || q->magic != READER_MAGIC || q->kind == 0 || q->kind >= READER_KINDS ||
        q->n_bytes > READER_BYTES || n - sizeof *q != q->n_bytes)
        return false;
    if ((q->fds & 1) != file || q->fds >> READER_FDS || (q->fds >> 1 && !second))
        return false;
    return n_fd == (q->fds & 1) + (q->fds >> 1);
}

static void add(struct reader_parts *p, const void *at, size_t n)
{
    p->part[p->n++] = (struct str){at, n};
}

/* Exactly the next n bytes, copied to the heap; NULL: there are fewer. At least one byte long. */
static void *take(struct str *rest, uint64_t n, size_t each)
{
    void *to;

    if (n > rest->n / each)
        return NULL;
    to = xmalloc(n ? n * each : 1);
    if (n) {
        memcpy(to, rest->p, n * each);
        *rest = str_from(*rest, n * each);
    }
    return to;
}

/* ---- unwind tables ------------------------------------------------------------------------- */

static_assert(sizeof(struct ehtab_row) == 24, "no padding: rows travel as they lie in memory");

void reader_wire_put_table(const struct ehtab *t, struct reader_answer *a, struct reader_parts *p)
{
    a->n[0] = t->n;
    a->n[1] = t->fdes;
    a->n[2] = t->cies;
    a->n[3] = t->bad_fde;
    a->n[4] = t->bad_expr;
    a->n[5] = t->bad_ra;
    a->n[6] = t->bad_off;
    a->n[7] = t->leaf_reg;
    a->n[8] = t->ra_reg;
    a->n[9] = t->ctx_end;
    a->n[10] = t->plt_made;
    add(p, t->row, t->n * sizeof *t->row);
}

static bool rule_ok(const struct sa_rule *r)
{
    return r->kind <= SA_K_PLT9 && r->fpk <= MAX_FP_KIND && r->reg <= MAX_REG && r->pad == 0 &&
           r->gen == 0;
}

bool reader_wire_get_table(const struct reader_answer *a, struct str payload, struct ehtab *ret)
{
    struct ehtab t = {.n = a->n[0],
                      .cap = a->n[0],
                      .fdes = a->n[1],
                      .cies = a->n[2],
                      .bad_fde = a->n[3],
                      .bad_expr = a->n[4],
                      .bad_ra = a->n[5],
                      .bad_off = a->n[6],
                      .leaf_reg = a->n[7],
                      .ra_reg = a->n[8],
                      .ctx_end = a->n[9],
                      .plt_made = a->n[10]};

    if (a->n[0] == 0 || a->n[0] > EHTAB_MAX_ROWS || payload.n != a->n[0] * sizeof *t.row)
        return false;
    t.row = take(&payload, t.n, sizeof *t.row);
    if (!t.row)
        return false;
    for (size_t i = 0; i < t.n; i++) {
        if ((i && t.row[i].pc <= t.row[i - 1].pc) || !rule_ok(&t.row[i].rule)) {
            free(t.row);
            return false;
        }
    }
    *ret = t;
    return true;
}

/* ---- symbols ------------------------------------------------------------------------------- */

static_assert(sizeof(struct elfsym_sym) == 16, "no padding");

enum {
    SYM_DEBUG = 1,
    SYM_MINI = 2,
    SYM_MINI_FAILED = 4,
};

void reader_wire_put_symbols(const struct elfsym_arrays *s, struct reader_answer *a,
                             struct reader_parts *p)
{
    a->n[0] = s->n;
    a->n[1] = (s->debug_used ? SYM_DEBUG : 0) | (s->mini_used ? SYM_MINI : 0) |
              (s->mini_failed ? SYM_MINI_FAILED : 0);
    for (unsigned i = 0; i < ELFSYM_TABLES; i++) {
        a->n[2 + 2 * i] = s->names[i].offset;
        a->n[3 + 2 * i] = s->names[i].size;
    }
    add(p, s->sym, s->n * sizeof *s->sym);
    if (s->mini)
        add(p, s->mini, s->names[ELFSYM_MINI].size);
}

bool reader_wire_get_symbols(const struct reader_answer *a, struct str payload, uint32_t max,
                             struct elfsym_arrays *ret)
{
    struct elfsym_arrays s = {.n = (uint32_t)a->n[0],
                              .debug_used = a->n[1] & SYM_DEBUG,
                              .mini_used = a->n[1] & SYM_MINI,
                              .mini_failed = a->n[1] & SYM_MINI_FAILED};

    if (a->n[0] > (max ? max : ELFSYM_MAX_SYMBOLS))
        return false;
    for (unsigned i = 0; i < ELFSYM_TABLES; i++) {
        s.names[i] = (struct elfsym_names){a->n[2 + 2 * i], a->n[3 + 2 * i]};
        /* of a file: no sum of the two may wrap; a read beyond its end is short */
        if (s.names[i].offset > INT64_MAX / 2 || s.names[i].size > INT64_MAX / 2)
            return false;
    }
    s.sym = take(&payload, s.n, sizeof *s.sym);
    if (!s.sym)
        return false;
    if (payload.n != (s.mini_used ? s.names[ELFSYM_MINI].size : 0) ||
        (!s.mini_used && s.names[ELFSYM_MINI].size)) {
        free(s.sym);
        return false;
    }
    for (uint32_t i = 1; i < s.n; i++) {
        if (s.sym[i].addr < s.sym[i - 1].addr) {
            free(s.sym);
            return false;
        }
    }
    if (s.mini_used)
        s.mini = take(&payload, payload.n, 1);
    *ret = s;
    return true;
}

bool reader_wire_get_name(struct str payload, struct buf *out)
{
    if (payload.n == 0 || payload.n > DEMANGLE_MAX_OUT || memchr(payload.p, 0, payload.n))
        return false;
    buf_str(out, payload);
    return true;
}

/* ---- debug files --------------------------------------------------------------------------- */

void reader_wire_put_facts(const struct debugfile_facts *f, struct reader_parts *p)
{
    struct wire_facts *w = xcalloc(1, sizeof *w);

    memcpy(w->id, f->id, f->id_len);
    memcpy(w->alt_id, f->alt_id, f->alt_id_len);
    w->id_len = f->id_len;
    w->alt_id_len = f->alt_id_len;
    w->has_link = f->has_link;
    w->bad_link = f->bad_link;
    w->has_alt = f->has_alt;
    w->crc = f->crc;
    memcpy(w->link, f->link, strnlen(f->link, sizeof w->link - 1));
    memcpy(w->alt, f->alt, strnlen(f->alt, sizeof w->alt - 1));
    p->heap = w;
    add(p, w, sizeof *w);
}

bool reader_wire_get_facts(struct str payload, struct debugfile_facts *ret)
{
    struct wire_facts w;

    if (payload.n != sizeof w)
        return false;
    memcpy(&w, payload.p, sizeof w);
    if (w.id_len > sizeof w.id || w.alt_id_len > sizeof w.alt_id || w.has_link > 1 ||
        w.bad_link > 1 || w.has_alt > 1 || !memchr(w.link, 0, sizeof w.link) ||
        !memchr(w.alt, 0, sizeof w.alt) || (w.has_link && !debugfile_is_name(w.link)))
        return false;
    *ret = (struct debugfile_facts){.id_len = (uint8_t)w.id_len,
                                    .has_link = w.has_link,
                                    .bad_link = w.bad_link,
                                    .crc = w.crc,
                                    .has_alt = w.has_alt,
                                    .alt_id_len = (uint8_t)w.alt_id_len};
    memcpy(ret->id, w.id, w.id_len);
    memcpy(ret->alt_id, w.alt_id, w.alt_id_len);
    memcpy(ret->link, w.link, strlen(w.link) + 1);
    memcpy(ret->alt, w.alt, strlen(w.alt) + 1);
    return true;
}

/* ---- perf maps ----------------------------------------------------------------------------- */

static_assert(sizeof(struct jitmap_sym) == 24, "no padding");

void reader_wire_put_perfmap(const struct jitmap *m, struct reader_answer *a,
                             struct reader_parts *p)
{
    a->n[0] = m->n;
    a->n[1] = m->text_n;
    a->n[2] = m->bad;
    a->n[3] = m->hidden;
    a->n[4] = m->dropped;
    a->n[5] = m->cut;
    add(p, m->sym, m->n * sizeof *m->sym);
    add(p, m->text, m->text_n);
}

bool reader_wire_get_perfmap(const struct reader_answer *a, struct str payload, struct jitmap *ret)
{
    struct jitmap m = {.n = (uint32_t)a->n[0],
                       .text_n = a->n[1],
                       .bad = (uint32_t)a->n[2],
                       .hidden = (uint32_t)a->n[3],
                       .dropped = (uint32_t)a->n[4],
                       .cut = a->n[5] != 0};
    bool ok = true;

    if (a->n[0] > JITMAP_MAX_ENTRIES || a->n[1] > JITMAP_MAX_BYTES)
        return false;
    m.sym = take(&payload, m.n, sizeof *m.sym);
    m.text = m.sym && payload.n == m.text_n ? take(&payload, m.text_n, 1) : NULL;
    ok = m.text != NULL;
    for (uint32_t i = 0; ok && i < m.n; i++) {
        const struct jitmap_sym *s = &m.sym[i];

        ok = s->start < s->end && (i == 0 || s[-1].end <= s->start) &&
             s->name_len <= JITMAP_MAX_NAME && s->name <= m.text_n &&
             s->name_len <= m.text_n - s->name;
    }
    if (!ok) {
        free(m.sym);
        free(m.text);
        return false;
    }
    *ret = m;
    return true;
}

/* ---- lines --------------------------------------------------------------------------------- */

static_assert(sizeof(struct dwarfline_found) == 8 && sizeof(struct wire_frame) == 28, "no padding");

void reader_wire_put_lines(const struct dwarfline_arrays *l, uint32_t n_addr,
                           struct reader_answer *a, struct reader_parts *p)
{
    struct wire_frame *f = xcalloc(l->n_frame ? l->n_frame : 1, sizeof *f);

    for (uint32_t i = 0; i < l->n_frame; i++)
        f[i] = (struct wire_frame){.name = l->frame[i].name,
                                   .file = l->frame[i].file,
                                   .line = l->frame[i].line,
                                   .start_line = l->frame[i].start_line,
                                   .inlined = l->frame[i].inlined};
    a->n[0] = l->n_frame;
    a->n[1] = l->text_n;
    a->n[2] = l->steps;
    p->heap = f;
    add(p, l->found, n_addr * sizeof *l->found);
    add(p, f, l->n_frame * sizeof *f);
    add(p, l->text, l->text_n);
}

static bool text_ok(const struct dwarfline_arrays *l, struct dwarfline_text t)
{
    return t.at <= l->text_n && t.n <= l->text_n - t.at;
}

bool reader_wire_get_lines(const struct reader_answer *a, struct str payload, uint32_t n_addr,
                           struct dwarfline_arrays *ret)
{
    struct dwarfline_arrays l = {
        .n_frame = (uint32_t)a->n[0], .text_n = (uint32_t)a->n[1], .steps = a->n[2]};
    struct wire_frame *f;
    bool ok;

    if (a->n[0] > (uint64_t)n_addr * (DWARFLINE_MAX_INLINES + 2) || a->n[1] > UINT32_MAX)
        return false;
    l.found = take(&payload, n_addr, sizeof *l.found);
    f = l.found ? take(&payload, l.n_frame, sizeof *f) : NULL;
    l.text = f && payload.n == l.text_n ? take(&payload, l.text_n, 1) : NULL;
    l.frame = xcalloc(l.n_frame ? l.n_frame : 1, sizeof *l.frame);
    ok = l.text != NULL;
    for (uint32_t i = 0; ok && i < n_addr; i++)
        ok = l.found[i].first <= l.n_frame && l.found[i].n <= l.n_frame - l.found[i].first;
    for (uint32_t i = 0; ok && i < l.n_frame; i++) {
        ok = text_ok(&l, f[i].name) && text_ok(&l, f[i].file) && f[i].inlined <= 1;
        l.frame[i] = (struct dwarfline_frame){.name = f[i].name,
                                              .file = f[i].file,
                                              .line = f[i].line,
                                              .start_line = f[i].start_line,
                                              .inlined = f[i].inlined == 1};
    }
    free(f);
    if (!ok) {
        dwarfline_deinit(&l);
        return false;
    }
    *ret = l;
    return true;
}

/* ---- what else a binary is ----------------------------------------------------------------- */

void reader_wire_put_python(const struct pyelf *e, struct reader_answer *a)
{
    const uint64_t n[] = {e->runtime, e->version, e->code_type, e->gilstate, e->eval_lo,
                          e->eval_hi, e->cold_lo, e->cold_hi,   e->named_310};

    static_assert(sizeof n <= sizeof a->n, "room for all");
    memcpy(a->n, n, sizeof n);
}

void reader_wire_get_python(const struct reader_answer *a, struct pyelf *ret)
{
    *ret = (struct pyelf){.runtime = a->n[0],
                          .version = a->n[1],
                          .code_type = a->n[2],
                          .gilstate = a->n[3],
                          .eval_lo = a->n[4],
                          .eval_hi = a->n[5],
                          .cold_lo = a->n[6],
                          .cold_hi = a->n[7],
                          .named_310 = a->n[8] != 0};
}

void reader_wire_put_step(const struct usdt_site *s, struct reader_answer *a)
{
    a->n[0] = s->offset;
    a->n[1] = s->sem_offset;
}

void reader_wire_get_step(const struct reader_answer *a, struct usdt_site *ret)
{
    *ret = (struct usdt_site){.offset = a->n[0], .sem_offset = a->n[1]};
}
