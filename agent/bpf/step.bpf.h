/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * One step of the unwinder: state, rules, frames. The same text is compiled into the BPF programs
 * (unwind.bpf.h) and into user space (unwind_native.c), so it knows no map and no helper: whoever
 * includes it, after cpu.h and his own __always_inline, defines the six functions declared below.
 * Everything here is x86-64.
 */
#pragma once

#define SA_MAX_STEPS   (SA_MAX_NATIVE + 4 * SA_MAX_PY) /* Python frames, looked for, and shims */
#define SA_FP_MAX      (1 << 20)		       /* a larger frame is not believed */
#define SA_TOP	       64	       /* return address and saved registers; a power of two */
#define SA_WIN	       512	       /* of the stack by one read: its length hardly costs */
#define SA_SEEN	       8	       /* code objects of one walk: a power of two */
#define SA_PAGE	       4096	       /* of memory: what lies in one is readable as a whole */
#define SA_SIG_REGS    17	       /* r8 .. r15, rdi, rsi, rbp, rbx, rdx, rax, rcx, rsp, rip */
#define SA_ADD8_RET    0xc308c48348ULL /* add $8,%rsp; ret */
#define SA_SUB8_CALL   0xd1ff08ec8348ULL     /* sub $8,%rsp; call *%rcx */
#define SA_CALL_ADD8   0xc308c48348d1ffULL   /* call *%rcx; add $8,%rsp; ret */
#define SA_ENDBR_PUSH  0xe5894855fa1e0ff3ULL /* endbr64; push %rbp; mov %rsp,%rbp */
#define SA_PUSH_MOV    0xe5894855ULL	     /* push %rbp; mov %rsp,%rbp */
#define SA_MOV_CALL    0xd1ffe58948ULL	     /* mov %rsp,%rbp; call *%rcx */
#define SA_POP_RET     0xc35d		     /* pop %rbp; ret */
#define SA_RET	       0xc3
#define SA_SIG_REGS_AT 40 /* in struct ucontext, which a signal frame's rsp points to */

enum sa_mode { /* what the next step takes */
	SA_MODE_NATIVE = 0,
	SA_MODE_PYTHON, /* Python frames of the activation that is next */
	SA_MODE_LEFT,	/* those that are left when the native part has ended */
	SA_MODE_LOOK,	/* the next entry frame */
};

/* A code object whose check word is known, as long as the walk lasts. */
struct sa_seen {
	u64 code;
	u32 walk, sum;
};

struct sa_state {
	u64 pc, sp, bp;
	u64 reg[16]; /* of the interrupted frame, DWARF numbering */
	u64 sig[SA_SIG_REGS];
	u32 nw, depth, lastmap;
	u8 ra;	 /* pc is a return address: look up pc - 1 */
	u8 leaf; /* reg is valid */
	u8 bp_bad;
	u8 no_fp; /* never step by the frame pointer */
	u8 mode;
	u8 pyon;     /* the thread has a thread state */
	u8 evaldone; /* the Python frames of the native frame that is next are out */
	u32 npy, nshim, nlook;
	u64 fsbase; /* thread pointer; 0: unknown, no Python frames */
	u64 pyframe, pybase;
	u64 turn;  /* a frame that was seen before */
	u64 cprev; /* up to 3.12, of the newest activation: the _PyCFrame before its own; 0: checked
		    */
	u32 pymark, pad;      /* words before the Python frames of this activation */
	u64 entry, look;      /* entry frame of the next activation; where it is looked for */
	u64 win_at, pywin_at; /* address of win, of pywin */
	u32 win_n, pywin_n;   /* bytes in them; 0: nothing that another frame may use */
	u64 pylast;	      /* address of the frame that was read last */
	u32 pyoff;	      /* the frame that was loaded last, in pywin */
	u32 walk;	      /* number of this one: sa_seen */
	struct sa_seen seen[SA_SEEN];
	u8 win[SA_WIN] __attribute__((aligned(8)));
	u8 pywin[SA_PY_WIN] __attribute__((aligned(8)));
	u8 pycode[SA_PY_CODE] __attribute__((aligned(8)));
	struct sa_proc pi;
	struct sa_ev e; /* its words are w */
	u64 w[SA_MAX_WORDS];
};

/*
 * A frame that was found before. Stacks of one program have most of their frames in common, and the
 * searches of a mapping, of a row and of a rule are cold memory each time. What is here stays
 * right: rule.gen is of one process and its mappings as they are, and a file's rows are those of
 * its code.
 */
struct sa_known {
	u64 pc, word;
	struct sa_rule rule;
};

/* n bytes of the target's memory; 0, or it cannot be read. */
static __always_inline int sa_read(struct sa_state *s, void *to, u32 n, u64 at);
/* Entry idx of mapents, of pgidx, of rules, the rows of a chunk; NULL: there is none. */
static __always_inline const struct sa_mapent *sa_ent(struct sa_state *s, u32 idx);
static __always_inline const struct sa_pg *sa_page(struct sa_state *s, u32 idx);
static __always_inline const struct sa_rule *sa_rule_at(struct sa_state *s, u32 idx);
static __always_inline void *sa_chunk(struct sa_state *s, u32 chunk);
/* Row idx of a chunk: pc_low in bits 0-15, rule in bits 16-31. 0, or beyond its end. */
static __always_inline int sa_row(void *chunk, u32 idx, u32 *row);

/* The place where pc's frame may be remembered; NULL: nothing is. */
static __always_inline struct sa_known *sa_known_at(struct sa_state *s, u64 pc);

static __always_inline void push(struct sa_state *s, u64 w)
{
	u32 n = s->nw;

	if (n < SA_MAX_WORDS - 1) {
		s->w[n] = w;
		s->nw = n + 1;
	}
}

static __always_inline void push_raw(struct sa_state *s, u64 pc)
{
	push(s, SA_W_RAW | (pc & SA_W_RAWBITS));
}

/*
 * n bytes of the stack at `at`: where they are in win, SA_WIN if they cannot be read. What lies
 * behind them in the same page comes with them: the callers' frames. Another page may not be there.
 */
static __always_inline u32 stack_at(struct sa_state *s, u64 at, u32 n)
{
	u64 off = at - s->win_at;
	u32 len = SA_PAGE - ((u32)at & (SA_PAGE - 1));

	if (off <= SA_WIN - n && off + n <= s->win_n)
		return (u32)off;
	if (len > SA_WIN)
		len = SA_WIN;
	if (len < n)
		len = n;
	s->win_n = 0;
	if (sa_read(s, s->win, len, at)) {
		/* memory that is a copy ends anywhere */
		if (len == n || sa_read(s, s->win, n, at))
			return SA_WIN;
		len = n;
	}
	s->win_at = at;
	s->win_n = len;
	return 0;
}

#include "agent/bpf/py.bpf.h"

/* The mapping that holds pc, by binary search in the process's range; the last hit first. */
static __always_inline const struct sa_mapent *find_map(struct sa_state *s, u64 pc)
{
	u32 lo = 0, hi = s->pi.n, idx = s->lastmap;
	const struct sa_mapent *m = sa_ent(s, idx);

	if (m && idx && pc >= m->start && pc < m->end)
		return m;
	for (int i = 0; i < 13; i++) { /* 4,096 mappings */
		if (lo >= hi)
			break;
		u32 mid = (lo + hi) >> 1;

		idx = s->pi.maps_off + mid;
		m = sa_ent(s, idx);
		if (!m)
			return 0;
		if (m->end <= pc)
			lo = mid + 1;
		else
			hi = mid;
	}
	if (lo >= s->pi.n)
		return 0;
	idx = s->pi.maps_off + lo;
	m = sa_ent(s, idx);
	if (!m || pc < m->start || pc >= m->end)
		return 0;
	s->lastmap = idx;
	return m;
}

static __always_inline int stop(struct sa_state *s, int why)
{
	s->e.stop = (u8)why;
	return 1;
}

/*
 * One frame by rbp, only where nothing better is known. Believed if the frame is plausible and the
 * return address lies in an executable mapping. 0: done; else the state is as before.
 */
static __always_inline int fp_step(struct sa_state *s)
{
	u64 v[2];

	if (s->no_fp)
		return SA_S_NOINFO;
	if (s->bp_bad || s->bp < s->sp || (s->bp & 7) || s->bp - s->sp > SA_FP_MAX)
		return SA_S_BADFP;
	if (sa_read(s, v, sizeof v, s->bp))
		return SA_S_READFAULT;
	if (v[1] && !find_map(s, v[1] - 1))
		return SA_S_BADFP;
	s->sp = s->bp + 16;
	s->bp = v[0];
	s->pc = v[1];
	s->ra = 1;
	s->leaf = 0;
	s->e.flags |= SA_F_FP_USED;
	return 0;
}

/*
 * The code that the call returns to takes one word off the stack and returns: what CPython 3.12
 * puts between its functions for perf (-X perf), without a frame pointer. Exact, wherever it is.
 */
static __always_inline bool ret_step(struct sa_state *s)
{
	u64 code = 0, ra = 0;

	if (!s->ra || sa_read(s, &code, 5, s->pc) || code != SA_ADD8_RET ||
	    sa_read(s, &ra, 8, s->sp + 8))
		return false;
	s->sp += 16;
	s->pc = ra;
	return true;
}

/*
 * The interrupted instruction is one of those few that CPython puts between its functions for perf,
 * with a frame pointer (3.13 on) or without; of threads with Python alone, since in other generated
 * code nobody has compared it. Each says by itself how much of the frame stands: none of it at the
 * begin and at the return, one word elsewhere, which is the caller's rbp where that was pushed and
 * is not restored yet.
 */
static __always_inline bool leaf_step(struct sa_state *s)
{
	u64 code = 0, v[2];
	bool saved;

	if (!s->leaf || s->ra || sa_read(s, &code, 8, s->pc) || sa_read(s, v, sizeof v, s->sp))
		return false;
	if ((code & 0xff) == SA_RET || (code & 0xffffffff) == SA_PUSH_MOV ||
	    code == SA_ENDBR_PUSH || (code & 0xffffffffffff) == SA_SUB8_CALL) {
		s->sp += 8;
		s->pc = v[0];
	} else {
		saved = (code & 0xffff) == SA_POP_RET || (code & 0xffffffffff) == SA_MOV_CALL;
		if (!saved && (code & 0xffffffffffffff) != SA_CALL_ADD8 &&
		    (code & 0xffffffffff) != SA_ADD8_RET)
			return false;
		if (saved)
			s->bp = v[0];
		s->sp += 16;
		s->pc = v[1];
	}
	s->ra = 1;
	s->leaf = 0;
	return true;
}

/* Into a signal frame: the interrupted registers lie in its ucontext, so it is a leaf again. */
static __always_inline int sig_step(struct sa_state *s)
{
	u64 *g = s->sig;

	if (sa_read(s, g, sizeof s->sig, s->sp + SA_SIG_REGS_AT))
		return stop(s, SA_S_READFAULT);
	/* the kernel put its own address there as a return address: no call precedes it */
	u32 at = s->nw - 1;

	if (at < SA_MAX_WORDS)
		s->w[at] += s->ra;
	for (int i = 0; i < 8; i++)
		s->reg[8 + i] = g[i];
	s->reg[5] = g[8];
	s->reg[4] = g[9];
	s->reg[6] = g[10];
	s->reg[3] = g[11];
	s->reg[1] = g[12];
	s->reg[0] = g[13];
	s->reg[2] = g[14];
	s->reg[7] = g[15];
	s->bp = g[10];
	s->sp = g[15];
	s->pc = g[16];
	s->bp_bad = 0;
	s->ra = 0; /* an interrupted instruction, not a return address */
	s->leaf = 1;
	push(s, SA_W_MARK | SA_M_SIGNAL);
	return s->pc ? 0 : stop(s, SA_S_ZEROPC);
}

/*
 * The rule in force at ELF address va of a binary with a table of npages, which was read before the
 * rest: user space writes it last. 0, or why not.
 */
static __always_inline int find_rule(struct sa_state *s, const struct sa_mapent *m, u32 npages,
				     u64 va, const struct sa_rule **ret)
{
	u32 pg = (u32)(va >> 16) - *(const volatile u32 *)&m->first_page, row;

	*ret = 0;
	if (pg >= npages)
		return 0; /* before the first FDE or behind the last: no information */
	u32 i = *(const volatile u32 *)&m->pg_base + pg;
	const struct sa_pg *g = sa_page(s, i);

	if (!g)
		return SA_S_NOTABLE;
	u32 at = g->row, n = g->n, chunk = at >> 16;

	if (!n) /* evicted */
		return SA_S_NOTABLE;
	void *c = sa_chunk(s, chunk);

	if (!c)
		return SA_S_NOTABLE;
	u32 lo = at & 0xffff, hi = lo + n;

	for (int k = 0; k < 15; k++) { /* last row with pc_low <= va; 16,384 rows in a page */
		if (lo + 1 >= hi)
			break;
		u32 mid = (lo + hi) >> 1;

		if (sa_row(c, mid, &row))
			return SA_S_NOTABLE;
		if ((row & 0xffff) <= (va & 0xffff))
			lo = mid;
		else
			hi = mid;
	}
	if (sa_row(c, lo, &row))
		return SA_S_NOTABLE;
	*ret = sa_rule_at(s, row >> 16);
	return 0;
}

/* CFA of rule r, and the return address where it is in a register. 0, or the stop. */
static __always_inline int find_cfa(struct sa_state *s, const struct sa_rule *r, u64 *cfa, u64 *ra)
{
	u64 off = (u64)(s64)r->off;

	switch (r->kind) {
	case SA_K_RSP:
		*cfa = s->sp + off;
		return 0;
	case SA_K_RBP:
		*cfa = s->bp + off;
		return s->bp_bad ? SA_S_BADFP : 0;
	case SA_K_PLT11:
		*cfa = s->sp + 8 + ((s->pc & 15) >= 11 ? 8 : 0);
		return 0;
	case SA_K_PLT10:
		*cfa = s->sp + 8 + ((s->pc & 15) >= 10 ? 8 : 0);
		return 0;
	case SA_K_PLT9:
		*cfa = s->sp + 8 + ((s->pc & 15) >= 9 ? 8 : 0);
		return 0;
	case SA_K_DEREF_RBP:
		if (s->bp_bad)
			return SA_S_BADFP;
		return sa_read(s, cfa, 8, s->bp + off) ? SA_S_READFAULT : 0;
	case SA_K_DEREF_RSP:
		return sa_read(s, cfa, 8, s->sp + off) ? SA_S_READFAULT : 0;
	case SA_K_REG:
		*cfa = s->reg[r->reg & 15] + off;
		return s->leaf ? 0 : SA_S_INVALID;
	case SA_K_RAREG:
		*cfa = s->sp + off;
		*ra = s->reg[r->reg & 15];
		return s->leaf ? 0 : SA_S_INVALID;
	default:
		return SA_S_INVALID;
	}
}

/* The caller's pc, and its rbp where rule r says where that is. 0, or the stop. */
static __always_inline int load_caller(struct sa_state *s, const struct sa_rule *r, u64 cfa,
				       u64 *ra)
{
	u32 near = (u32)(r->fpoff + SA_TOP); /* offset in the frame's top, if that holds it */
	u32 top = r->kind == SA_K_RAREG ? SA_WIN : stack_at(s, cfa - SA_TOP, SA_TOP);

	if (top <= SA_WIN - SA_TOP) {
		*ra = *(u64 *)(s->win + top + SA_TOP - 8);
		if (r->fpk == SA_FP_CFA && near <= SA_TOP - 16 && !(near & 7)) {
			s->bp = *(u64 *)(s->win + top + (near & (SA_TOP - 8)));
			s->bp_bad = 0;
			return 0;
		}
	} else if (r->kind != SA_K_RAREG && sa_read(s, ra, 8, cfa - 8)) {
		return SA_S_READFAULT;
	}
	if (r->fpk == SA_FP_UNDEF) {
		s->bp_bad = 1;
	} else if (r->fpk != SA_FP_SAME) {
		if (r->fpk == SA_FP_RBP && s->bp_bad)
			return SA_S_BADFP;
		if (sa_read(s, &s->bp, 8, (r->fpk == SA_FP_CFA ? cfa : s->bp) + (u64)(s64)r->fpoff))
			return SA_S_READFAULT;
		s->bp_bad = 0;
	}
	return 0;
}

/* Apply rule r: to the caller's frame. 0 go on, 1 stopped. evaldone: of this frame. */
static __always_inline int rule_step(struct sa_state *s, const struct sa_rule *r, bool evaldone)
{
	u64 cfa = 0, ra = 0;
	int e = find_cfa(s, r, &cfa, &ra);

	if (e)
		return stop(s, e);
	if (cfa < s->sp || (cfa == s->sp && r->kind != SA_K_RAREG))
		return stop(s, SA_S_BADSP);
	if (s->entry && !evaldone && s->entry >= s->sp && s->entry < cfa) {
		s->nw--; /* its Python frames come first, then this frame again */
		s->depth--;
		s->mode = SA_MODE_PYTHON;
		return 0;
	}
	e = load_caller(s, r, cfa, &ra);
	if (e)
		return stop(s, e);
	s->sp = cfa;
	s->pc = ra;
	s->ra = 1;
	s->leaf = 0;
	return ra ? 0 : stop(s, SA_S_END);
}

/*
 * No mapping. The vsyscall page belongs to none: its three functions have no frame, and a kernel
 * that emulates them is seen with its address. Only as a leaf.
 */
static __always_inline int unmapped_step(struct sa_state *s, u64 pc)
{
	u64 ra;

	if ((pc & ~0xfffULL) != SA_VSYSCALL || !s->leaf) {
		push_raw(s, pc);
		return stop(s, SA_S_NOMAP);
	}
	push(s, SA_W_VSYS);
	s->depth++;
	if (sa_read(s, &ra, 8, s->sp))
		return stop(s, SA_S_READFAULT);
	s->sp += 8;
	s->pc = ra;
	s->ra = 1;
	s->leaf = 0;
	return 0;
}

/* On to the caller by rule r, of the frame that was pushed last. */
static __always_inline int by_rule(struct sa_state *s, const struct sa_rule *r, bool evaldone)
{
	if (!r || r->kind == SA_K_NOINFO) {
		if (fp_step(s))
			return stop(s, SA_S_NOINFO);
		return s->pc ? 0 : stop(s, SA_S_END);
	}
	if (r->kind == SA_K_END)
		return stop(s, SA_S_END);
	if (r->kind == SA_K_SIG)
		return sig_step(s);
	return rule_step(s, r, evaldone);
}

/* One frame without a table: by what its code says, else by the frame pointer. */
static __always_inline int no_table(struct sa_state *s, u32 why)
{
	if (why != SA_NT_FP)
		return stop(s, SA_S_NOTABLE);
	if (ret_step(s) || (s->pyon && leaf_step(s)))
		return s->pc ? 0 : stop(s, SA_S_END);
	if (s->pyon && s->pi.py.jit_nofp)
		return stop(s, SA_S_NOINFO);
	int e = fp_step(s);

	if (e)
		return stop(s, e);
	return s->pc ? 0 : stop(s, SA_S_END);
}

static __always_inline int native_step(struct sa_state *s)
{
	const struct sa_rule *r;
	struct sa_known *k;
	bool evaldone = s->evaldone;

	if (s->nw >= SA_MAX_WORDS - 8 || s->depth >= SA_MAX_NATIVE)
		return stop(s, SA_S_TRUNC);
	if (!s->pc)
		return stop(s, SA_S_ZEROPC);
	u64 pc = s->pc - s->ra;

	k = sa_known_at(s, pc);
	if (k && k->pc == pc && k->rule.gen == s->pi.gen) {
		if (py_enter(s, pc))
			return 0;
		s->evaldone = 0;
		push(s, k->word);
		s->depth++;
		return by_rule(s, &k->rule, evaldone);
	}
	const struct sa_mapent *m = find_map(s, pc);

	if (!m)
		return unmapped_step(s, pc);
	if (py_enter(s, pc))
		return 0;
	s->evaldone = 0;
	u64 va = pc - m->bias, word = SA_W_RAW | (pc & SA_W_RAWBITS);
	u32 npages = *(const volatile u32 *)&m->npages;

	if (m->bin)
		word = SA_W_NATIVE | ((u64)(m->bin & 0x3fffff) << 40) | (va & 0xffffffffffULL);
	push(s, word);
	s->depth++;
	if (!npages)
		return no_table(s, m->first_page);
	int e = find_rule(s, m, npages, va, &r);

	if (e)
		return stop(s, e);
	if (k && r) {
		k->pc = pc;
		k->word = word;
		k->rule = *r;
		k->rule.gen = s->pi.gen;
	}
	return by_rule(s, r, evaldone);
}

/* One frame, native or Python's. 0: go on. */
static __always_inline int step_frame(struct sa_state *s)
{
	if (s->mode == SA_MODE_LOOK) {
		py_look(s);
		return 0;
	}
	if (s->mode != SA_MODE_NATIVE) {
		if (s->nw >= SA_MAX_WORDS - 8)
			return 1;
		py_step(s);
		return s->mode == SA_MODE_LEFT && !s->pyframe;
	}
	return native_step(s) ? py_left(s) : 0;
}
