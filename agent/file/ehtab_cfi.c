// SPDX-License-Identifier: Apache-2.0
/*
 * The call frame instructions. A section is a list of CIEs (common part: factors, encodings,
 * initial instructions) and FDEs (one address range each, pointing back to its CIE). Zero
 * terminators occur in the middle of a linked section, so the walk goes on behind them.
 */
#include <stdlib.h>
#include <string.h>

#include "agent/file/ehtab_private.h"

#define REG_RBP   6
#define REG_RSP   7
#define REG_RA    16
#define STATE_MAX 16 /* depth of remember_state */

uint64_t ehtab_cur_u(struct ehtab_cur *c, unsigned n)
{
    uint64_t v = 0;

    if (c->bad || (size_t)(c->end - c->p) < n) {
        c->bad = true;
        return 0;
    }
    memcpy(&v, c->p, n);
    c->p += n;
    return v;
}

uint64_t ehtab_cur_uleb(struct ehtab_cur *c)
{
    uint64_t v = 0;

    for (unsigned s = 0;; s += 7) {
        uint64_t b = ehtab_cur_u(c, 1);

        if (c->bad)
            return 0;
        if (s < 64)
            v |= (b & 127) << s;
        if (!(b & 128))
            return v;
    }
}

int64_t ehtab_cur_sleb(struct ehtab_cur *c)
{
    uint64_t v = 0, b;
    unsigned s = 0;

    do {
        b = ehtab_cur_u(c, 1);
        if (c->bad)
            return 0;
        if (s < 64)
            v |= (b & 127) << s;
        s += 7;
    } while (b & 128);
    if (s < 64 && b & 64)
        v |= UINT64_MAX << s;
    return (int64_t)v;
}

uint64_t ehtab_cur_ptr(struct ehtab_cur *c, unsigned enc, uint64_t vaddr)
{
    uint64_t v;

    if (enc == 0xff) /* omitted */
        return 0;
    switch (enc & 15) {
    case 0:
    case 4:
    case 12:
        v = ehtab_cur_u(c, 8);
        break;
    case 1:
        v = ehtab_cur_uleb(c);
        break;
    case 2:
        v = ehtab_cur_u(c, 2);
        break;
    case 3:
        v = ehtab_cur_u(c, 4);
        break;
    case 9:
        v = (uint64_t)ehtab_cur_sleb(c);
        break;
    case 10:
        v = (uint64_t)(int64_t)(int16_t)ehtab_cur_u(c, 2);
        break;
    case 11:
        v = (uint64_t)(int64_t)(int32_t)ehtab_cur_u(c, 4);
        break;
    default:
        c->bad = true;
        return 0;
    }
    if ((enc & 0x70) == 0x10)
        v += vaddr;
    else if (enc & 0x70)
        c->bad = true; /* relative to text, data, function: no x86-64 tool chain writes it */
    return v;
}

/* ---- the three columns ---------------------------------------------------------------------- */

enum cfa_kind {
    CFA_REG,
    CFA_PLT11,
    CFA_PLT10,
    CFA_PLT9,
    CFA_DEREF,
    CFA_OTHER,
};

enum fp_kind {
    FP_SAME,
    FP_AT_CFA,
    FP_LOST,
    FP_AT_RBP,
};

enum ra_kind {
    RA_AT_CFA, /* at CFA - 8 */
    RA_NONE,   /* undefined: the outermost frame */
    RA_REG,
    RA_OTHER,
};

struct columns {
    uint8_t cfa, cfa_reg, fp, ra, ra_reg;
    int64_t cfa_off, fp_off;
};

struct cie {
    uint64_t at, caf;
    int64_t daf;
    uint8_t fde_enc;
    bool signal, sized, ok;
    const uint8_t *insn, *insn_end;
};

static int64_t scale(uint64_t v, int64_t by)
{
    return (int64_t)(v * (uint64_t)by); /* wraps: a hostile factor gives a wrong rule, no more */
}

void ehtab_add(struct ehtab *t, uint64_t pc, const struct sa_rule *r)
{
    if (t->n && t->row[t->n - 1].pc == pc && t->row[t->n - 1].rule.kind != SA_K_NOINFO) {
        t->row[t->n - 1].rule = *r;
        return;
    }
    if (t->n == t->cap) {
        size_t cap = t->cap ? t->cap * 2 : 4096;
        struct ehtab_row *p = cap > EHTAB_MAX_ROWS ? NULL : realloc(t->row, cap * sizeof *p);

        if (!p) {
            t->full = true;
            return;
        }
        t->row = p;
        t->cap = cap;
    }
    t->row[t->n++] = (struct ehtab_row){pc, *r};
}

static uint8_t cfa_rule(struct ehtab *t, const struct columns *u, struct sa_rule *r)
{
    switch ((enum cfa_kind)u->cfa) {
    case CFA_REG:
        if (u->cfa_reg == REG_RSP)
            return SA_K_RSP;
        if (u->cfa_reg == REG_RBP)
            return SA_K_RBP;
        if (u->cfa_reg > 15)
            return SA_K_INVALID;
        t->leaf_reg++; /* r10 in prologues of realigned functions */
        r->reg = u->cfa_reg;
        return SA_K_REG;
    case CFA_PLT11:
        return SA_K_PLT11;
    case CFA_PLT10:
        return SA_K_PLT10;
    case CFA_PLT9:
        return SA_K_PLT9;
    case CFA_DEREF:
        return u->cfa_reg == REG_RBP ? SA_K_DEREF_RBP : SA_K_DEREF_RSP;
    case CFA_OTHER:
        break;
    }
    t->bad_expr++;
    return SA_K_INVALID;
}

static void fp_rule(const struct columns *u, struct sa_rule *r)
{
    r->fpk = SA_FP_UNDEF;
    if (u->fp == FP_SAME) {
        r->fpk = SA_FP_SAME;
    } else if (u->fp != FP_LOST && u->fp_off >= INT32_MIN && u->fp_off <= INT32_MAX) {
        r->fpk = u->fp == FP_AT_CFA ? SA_FP_CFA : SA_FP_RBP;
        r->fpoff = (int32_t)u->fp_off;
    }
}

/* What the columns say, as a rule; INVALID where it cannot be expressed. */
static struct sa_rule to_rule(struct ehtab *t, const struct columns *u, bool signal)
{
    struct sa_rule r = {};

    if (signal)
        return (struct sa_rule){.kind = SA_K_SIG};
    if (u->ra == RA_NONE)
        return (struct sa_rule){.kind = SA_K_END};
    if (u->ra == RA_OTHER) {
        t->bad_ra++;
        return r;
    }
    r.kind = cfa_rule(t, u, &r);
    if (u->ra == RA_REG && r.kind != SA_K_INVALID) {
        if (r.kind != SA_K_RSP || u->ra_reg > 15) {
            t->bad_ra++;
            return (struct sa_rule){};
        }
        t->ra_reg++;
        r.kind = SA_K_RAREG;
        r.reg = u->ra_reg;
    }
    if (u->cfa_off < INT32_MIN || u->cfa_off > INT32_MAX) {
        t->bad_off++;
        return (struct sa_rule){};
    }
    if (r.kind == SA_K_INVALID)
        return (struct sa_rule){};
    r.off = (int32_t)u->cfa_off;
    fp_rule(u, &r);
    return r;
}

/* ---- instructions --------------------------------------------------------------------------- */

/* The CFA expressions that occur: the three PLT forms, and *(rbp|rsp + off). */
static void cfa_expr(const uint8_t *p, uint64_t n, struct columns *u)
{
    /* breg7 8; breg16 0; lit15; and; lit11 (10, 9); ge; lit3; shl; plus */
    static const uint8_t plt[11] = {0x77, 8, 0x80, 0, 0x3f, 0x1a, 0x3b, 0x2a, 0x33, 0x24, 0x22};

    u->cfa = CFA_OTHER;
    u->cfa_off = 0;
    if (n == sizeof plt && !memcmp(p, plt, 6) && p[6] >= 0x39 && p[6] <= 0x3b &&
        !memcmp(p + 7, plt + 7, 4)) {
        u->cfa = p[6] == 0x3b ? CFA_PLT11 : p[6] == 0x3a ? CFA_PLT10 : CFA_PLT9;
    } else if (n >= 3 && (p[0] == 0x76 || p[0] == 0x77)) {
        struct ehtab_cur c = {p + 1, p + n, false};
        int64_t off = ehtab_cur_sleb(&c);

        if (c.bad || c.end - c.p != 1 || *c.p != 0x06)
            return;
        u->cfa = CFA_DEREF;
        u->cfa_reg = p[0] == 0x76 ? REG_RBP : REG_RSP;
        u->cfa_off = off;
    }
}

static void set_at_cfa(struct columns *u, uint64_t reg, int64_t off)
{
    if (reg == REG_RBP) {
        u->fp = FP_AT_CFA;
        u->fp_off = off;
    } else if (reg == REG_RA) {
        u->ra = off == -8 ? RA_AT_CFA : RA_OTHER;
    }
}

static void set_other(struct columns *u, uint64_t reg, uint8_t fp, uint8_t ra)
{
    if (reg == REG_RBP)
        u->fp = fp;
    else if (reg == REG_RA)
        u->ra = ra;
}

static void restore(struct columns *u, const struct columns *init, uint64_t reg)
{
    if (reg == REG_RBP) {
        u->fp = init->fp;
        u->fp_off = init->fp_off;
    } else if (reg == REG_RA) {
        u->ra = init->ra;
        u->ra_reg = init->ra_reg;
    }
}

/* DW_CFA_expression and val_expression: only rbp saved at rbp + k is kept. */
static void reg_expr(struct ehtab_cur *c, bool is_value, struct columns *u)
{
    uint64_t reg = ehtab_cur_uleb(c), n = ehtab_cur_uleb(c);
    struct ehtab_cur q;
    int64_t off;

    if (c->bad || n > (uint64_t)(c->end - c->p)) {
        c->bad = true;
        return;
    }
    q = (struct ehtab_cur){c->p + (n ? 1 : 0), c->p + n, false};
    set_other(u, reg, FP_LOST, RA_OTHER);
    if (reg == REG_RBP && !is_value && n >= 2 && c->p[0] == 0x76) {
        off = ehtab_cur_sleb(&q);
        if (!q.bad && q.p == q.end) {
            u->fp = FP_AT_RBP;
            u->fp_off = off;
        }
    }
    c->p += n;
}

struct machine {
    const struct ehtab_frame *f;
    const struct cie *cie;
    struct columns u, init, stack[STATE_MAX];
    unsigned depth;
    uint64_t loc, end;
    struct ehtab *t; /* NULL while the CIE's own instructions run */
};

static bool def_cfa_expr(struct machine *m, struct ehtab_cur *c)
{
    uint64_t n = ehtab_cur_uleb(c);

    if (c->bad || n > (uint64_t)(c->end - c->p))
        return false;
    cfa_expr(c->p, n, &m->u);
    c->p += n;
    return true;
}

static void def_cfa(struct columns *u, uint64_t reg, int64_t off)
{
    u->cfa = CFA_REG;
    u->cfa_reg = reg > 255 ? 255 : (uint8_t)reg;
    u->cfa_off = off;
}

/* Those with opcodes below 0x40 that change a column; false: unknown, or nested too deep. */
static bool set_column(struct machine *m, struct ehtab_cur *c, unsigned op)
{
    struct columns *u = &m->u;
    const int64_t daf = m->cie->daf;
    uint64_t reg;

    switch (op) {
    case 0x00: /* nop */
        return true;
    case 0x05: /* offset_extended */
        reg = ehtab_cur_uleb(c);
        set_at_cfa(u, reg, scale(ehtab_cur_uleb(c), daf));
        return true;
    case 0x06: /* restore_extended */
        restore(u, &m->init, ehtab_cur_uleb(c));
        return true;
    case 0x07: /* undefined */
        set_other(u, ehtab_cur_uleb(c), FP_LOST, RA_NONE);
        return true;
    case 0x08: /* same_value */
        set_other(u, ehtab_cur_uleb(c), FP_SAME, RA_OTHER);
        return true;
    case 0x09: { /* register */
        uint64_t in;

        reg = ehtab_cur_uleb(c);
        in = ehtab_cur_uleb(c);
        set_other(u, reg, FP_LOST, RA_REG);
        if (reg == REG_RA)
            u->ra_reg = in > 255 ? 255 : (uint8_t)in;
        return true;
    }
    case 0x0a: /* remember_state: the CFA too */
        if (m->depth == STATE_MAX)
            return false;
        m->stack[m->depth++] = *u;
        return true;
    case 0x0b: /* restore_state */
        if (!m->depth)
            return false;
        *u = m->stack[--m->depth];
        return true;
    case 0x0c: /* def_cfa */
        reg = ehtab_cur_uleb(c);
        def_cfa(u, reg, (int64_t)ehtab_cur_uleb(c));
        return true;
    case 0x0d: /* def_cfa_register */
        def_cfa(u, ehtab_cur_uleb(c), u->cfa_off);
        return true;
    case 0x0e: /* def_cfa_offset */
        u->cfa_off = (int64_t)ehtab_cur_uleb(c);
        return true;
    case 0x0f: /* def_cfa_expression */
        return def_cfa_expr(m, c);
    case 0x10: /* expression */
    case 0x16: /* val_expression */
        reg_expr(c, op == 0x16, u);
        return true;
    case 0x11: /* offset_extended_sf */
        reg = ehtab_cur_uleb(c);
        set_at_cfa(u, reg, scale((uint64_t)ehtab_cur_sleb(c), daf));
        return true;
    case 0x12: /* def_cfa_sf */
        reg = ehtab_cur_uleb(c);
        def_cfa(u, reg, scale((uint64_t)ehtab_cur_sleb(c), daf));
        return true;
    case 0x13: /* def_cfa_offset_sf */
        u->cfa_off = scale((uint64_t)ehtab_cur_sleb(c), daf);
        return true;
    case 0x14: /* val_offset */
    case 0x15: /* val_offset_sf */
        reg = ehtab_cur_uleb(c);
        (void)ehtab_cur_uleb(c);
        set_other(u, reg, FP_LOST, RA_OTHER);
        return true;
    case 0x2d: /* GNU_window_save */
        return true;
    case 0x2e: /* GNU_args_size */
        (void)ehtab_cur_uleb(c);
        return true;
    case 0x2f: /* GNU_negative_offset_extended */
        reg = ehtab_cur_uleb(c);
        set_at_cfa(u, reg, -scale(ehtab_cur_uleb(c), daf));
        return true;
    default:
        return false;
    }
}

/* advance_loc and its forms; false: op is none of them. */
static bool advance(const struct machine *m, struct ehtab_cur *c, unsigned op, uint64_t *ret)
{
    uint64_t a;

    *ret = 0;
    switch (op) {
    case 0x01: /* set_loc */
        a = ehtab_cur_ptr(c, m->cie->fde_enc, m->f->vaddr + (uint64_t)(c->p - m->f->sec));
        *ret = a > m->loc ? a - m->loc : 0;
        return true;
    case 0x02:
        *ret = ehtab_cur_u(c, 1) * m->cie->caf;
        return true;
    case 0x03:
        *ret = ehtab_cur_u(c, 2) * m->cie->caf;
        return true;
    case 0x04:
        *ret = ehtab_cur_u(c, 4) * m->cie->caf;
        return true;
    default:
        if ((op & 0xc0) != 0x40)
            return false;
        *ret = (op & 0x3f) * m->cie->caf;
        return true;
    }
}

static void put_row(struct machine *m)
{
    struct sa_rule r = to_rule(m->t, &m->u, m->cie->signal);

    ehtab_add(m->t, m->loc, &r);
}

/* Run instructions; a row before every advance. false: the rest cannot be known. */
static bool run(struct machine *m, const uint8_t *from, const uint8_t *to)
{
    struct ehtab_cur c = {from, to, false};
    uint64_t by;

    while (c.p < c.end && !c.bad) {
        unsigned op = (unsigned)ehtab_cur_u(&c, 1);

        if (advance(m, &c, op, &by)) {
            if (!by || !m->t || c.bad)
                continue;
            put_row(m);
            if (by >= m->end - m->loc) {
                m->loc = m->end;
                return true;
            }
            m->loc += by;
        } else if ((op & 0xc0) == 0x80) {
            set_at_cfa(&m->u, op & 0x3f, scale(ehtab_cur_uleb(&c), m->cie->daf));
        } else if ((op & 0xc0) == 0xc0) {
            restore(&m->u, &m->init, op & 0x3f);
        } else if (!set_column(m, &c, op)) {
            return false;
        }
    }
    return !c.bad;
}

/* ---- CIEs and FDEs -------------------------------------------------------------------------- */

/* Letters behind 'z' describe data that its length bounds; one that we do not know may hide 'R'. */
static bool parse_augmentation(struct cie *ci, const char *letters, struct ehtab_cur *a)
{
    for (const char *s = letters; *s; s++) {
        unsigned enc;

        switch (*s) {
        case 'R':
            ci->fde_enc = (uint8_t)ehtab_cur_u(a, 1);
            break;
        case 'L':
            (void)ehtab_cur_u(a, 1);
            break;
        case 'P':
            enc = (unsigned)ehtab_cur_u(a, 1);
            (void)ehtab_cur_ptr(a, enc & 15, 0);
            break;
        case 'S':
            ci->signal = true;
            break;
        default:
            return false;
        }
    }
    return !a->bad;
}

static void parse_cie(struct ehtab_cur c, uint64_t at, struct cie *ci)
{
    unsigned version = (unsigned)ehtab_cur_u(&c, 1);
    const char *aug = (const char *)c.p;
    size_t left = (size_t)(c.end - c.p), len = strnlen(aug, left);

    *ci = (struct cie){.at = at};
    if (c.bad || len == left || (version != 1 && version != 3))
        return;
    c.p += len + 1;
    ci->caf = ehtab_cur_uleb(&c);
    ci->daf = ehtab_cur_sleb(&c);
    if (version == 1)
        (void)ehtab_cur_u(&c, 1);
    else
        (void)ehtab_cur_uleb(&c);
    if (aug[0] == 'z') {
        uint64_t n = ehtab_cur_uleb(&c);
        struct ehtab_cur a;

        if (c.bad || n > (uint64_t)(c.end - c.p))
            return;
        a = (struct ehtab_cur){c.p, c.p + n, false};
        c.p += n;
        ci->sized = true;
        if (!parse_augmentation(ci, aug + 1, &a))
            return;
    } else if (aug[0]) {
        return;
    }
    ci->insn = c.p;
    ci->insn_end = c.end;
    ci->ok = !c.bad;
}

/* By offset; CIEs are met in ascending order. */
static const struct cie *find_cie(const struct cie *ci, size_t n, uint64_t at)
{
    size_t lo = 0, hi = n;

    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;

        if (ci[mid].at < at)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < n && ci[lo].at == at && ci[lo].ok ? &ci[lo] : NULL;
}

static bool executable(const struct ehtab_frame *f, uint64_t lo, uint64_t n)
{
    for (size_t i = 0; i < f->n_seg; i++)
        if (lo >= f->seg[i].lo && lo < f->seg[i].hi && n <= f->seg[i].hi - lo)
            return true;
    return false;
}

static bool parse_fde(const struct ehtab_frame *f, const struct cie *ci, struct ehtab_cur c,
                      struct ehtab *t)
{
    uint64_t pc = ehtab_cur_ptr(&c, ci->fde_enc, f->vaddr + (uint64_t)(c.p - f->sec));
    uint64_t n = ehtab_cur_ptr(&c, ci->fde_enc & 15, 0);
    struct machine m = {.f = f, .cie = ci, .u = {.cfa = CFA_REG, .cfa_reg = REG_RSP, .cfa_off = 8}};
    const struct sa_rule invalid = {}, noinfo = {.kind = SA_K_NOINFO};
    bool ok;

    if (ci->sized) {
        uint64_t skip = ehtab_cur_uleb(&c);

        if (c.bad || skip > (uint64_t)(c.end - c.p))
            return false;
        c.p += skip;
    }
    if (c.bad || !pc || !n || !executable(f, pc, n))
        return false;
    m.init = m.u;
    if (!run(&m, ci->insn, ci->insn_end))
        return false;
    m.init = m.u;
    m.depth = 0;
    m.t = t;
    m.loc = pc;
    m.end = pc + n;
    ok = run(&m, c.p, c.end);
    if (ok && m.loc < m.end)
        put_row(&m);
    else if (!ok)
        ehtab_add(t, m.loc, &invalid);
    ehtab_add(t, m.end, &noinfo);
    return ok;
}

static bool cie_room(struct cie **ci, size_t n, size_t *cap)
{
    size_t want = *cap ? *cap * 2 : 64;
    struct cie *p;

    if (n < *cap)
        return true;
    p = realloc(*ci, want * sizeof *p);
    if (!p)
        return false;
    *ci = p;
    *cap = want;
    return true;
}

void ehtab_walk(const struct ehtab_frame *f, struct ehtab *t)
{
    struct ehtab_cur c = {f->sec, f->sec + f->n, false};
    struct cie *ci = NULL;
    size_t n = 0, cap = 0;

    while (c.end - c.p >= 4 && !t->full) {
        uint64_t at = (uint64_t)(c.p - f->sec), len = ehtab_cur_u(&c, 4), id_at, id;
        const struct cie *of;
        struct ehtab_cur body;

        if (!len) {
            if (f->max_fdes)
                break; /* nothing says that more of it follows */
            continue;
        }
        if (len == UINT32_MAX)
            len = ehtab_cur_u(&c, 8);
        if (c.bad || len > (uint64_t)(c.end - c.p) || len < 4)
            break;
        id_at = (uint64_t)(c.p - f->sec);
        body = (struct ehtab_cur){c.p, c.p + len, false};
        c.p += len;
        id = ehtab_cur_u(&body, 4);
        if (!id) {
            if (!cie_room(&ci, n, &cap)) {
                t->full = true;
                break;
            }
            parse_cie(body, at, &ci[n++]);
            t->cies++;
            continue;
        }
        of = id > id_at ? NULL : find_cie(ci, n, id_at - id);
        if (!of || !parse_fde(f, of, body, t))
            t->bad_fde++;
        t->fdes++;
        if (f->max_fdes && t->fdes >= f->max_fdes)
            break;
    }
    free(ci);
}
