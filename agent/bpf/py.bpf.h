/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Python frames for the step of step.bpf.h, which includes this. The thread is interrupted, so its
 * frames do not move during the walk, but they may be half linked, or lie: everything read here is
 * a number that is checked before it is an offset, and a chain ends at SA_MAX_PY frames.
 */
#pragma once

/* The thread's PyThreadState. 0, or enum sa_pyerr. */
static __always_inline int py_thread(struct sa_state *s, u64 *ret)
{
	struct sa_py *p = &s->pi.py;
	u64 at = s->fsbase;
	u32 key = 0;

	*ret = 0;
	if (p->key_addr) { /* a slot of the second level exists for every key */
		if (sa_read(s, &key, 4, p->key_addr))
			return SA_PE_KEY;
		if (key >= SA_PY_KEYS)
			return SA_PE_BADKEY;
		if (sa_read(s, &at, 8, s->fsbase + SA_PY_TCB_KEYS + 8 * (u64)(key >> 5)))
			return SA_PE_SLOT;
		if (!at)
			return SA_PE_NONE;
		at += 16 * (u64)(key & 31) + 8;
	} else {
		if (p->tls_mod) {
			if (sa_read(s, &at, 8, at + 8) || sa_read(s, &at, 8, at + 16 * p->tls_mod))
				return SA_PE_SLOT;
			if (!at || at == ~0ULL) /* this thread never touched the block */
				return SA_PE_NONE;
		}
		at += (u64)p->tls_off;
	}
	if (sa_read(s, ret, 8, at))
		return SA_PE_SLOT;
	return *ret ? 0 : SA_PE_NONE;
}

static __always_inline void py_gil(struct sa_state *s, u64 ts)
{
	struct sa_py *p = &s->pi.py;
	u64 at = 0, holder = 0;
	u32 locked = 0;
	int bad = 0;

	if (p->gil_locked) {
		bad |= sa_read(s, &locked, 4, p->gil_locked);
		bad |= sa_read(s, &holder, 8, p->gil_holder);
	} else {
		bad |= sa_read(s, &at, 8, ts + p->ts_interp);
		bad |= sa_read(s, &at, 8, at + p->interp_gil);
		bad |= sa_read(s, &holder, 8, at + 8);
		bad |= sa_read(s, &locked, 4, at + 16);
	}
	s->e.gil = bad		  ? SA_G_UNREADABLE
		   : locked != 1  ? SA_G_FREE
		   : holder == ts ? SA_G_MINE
				  : SA_G_OTHER;
	s->e.gil_holder = bad ? 0 : holder;
	if (p->ts_asks && !sa_read(s, &locked, 4, ts + p->ts_asks) && locked)
		s->e.flags |= SA_F_GIL_ASKED;
}

/* Before the first step: thread state, newest frame, GIL. */
static __always_inline int py_find(struct sa_state *s)
{
	struct sa_py *p = &s->pi.py;
	u64 ts = 0, f = 0;
	int e = py_thread(s, &ts);

	if (e) {
		if (e != SA_PE_NONE) /* it has a lock, and whose it is cannot be asked */
			s->e.gil = SA_G_UNREADABLE;
		return e;
	}
	py_gil(s, ts);
	if (sa_read(s, &f, 8, ts + p->ts_frame))
		return SA_PE_FRAME0;
	if (p->ts_base && sa_read(s, &s->pybase, 8, ts + p->ts_base))
		return SA_PE_FRAME0;
	if (f == s->pybase)
		f = 0;
	if (p->ts_cframe) {
		u64 cf[2]; /* newest frame, and the _PyCFrame of the activation before */

		if (!f || sa_read(s, cf, sizeof cf, f + p->cf_cur))
			return SA_PE_CFRAME;
		f = cf[0];
		s->cprev = cf[1];
		if (f && !s->cprev) /* only below the outermost activation there is none */
			return SA_PE_CFRAME;
	}
	s->pyframe = f;
	return 0;
}

static __always_inline void py_start(struct sa_state *s)
{
	s->pyframe = s->pybase = s->look = s->entry = s->cprev = s->turn = 0;
	s->npy = 0;
	s->pymark = s->nw;
	s->mode = SA_MODE_NATIVE;
	s->evaldone = s->pyon = 0;
	if (!s->pi.py.ver || !s->fsbase)
		return;
	s->e.pyerr = (u8)py_find(s);
	if (s->e.pyerr)
		return;
	s->pyon = 1;
	if (s->pi.py.by_shim) {
		s->look = s->pyframe;
		s->mode = SA_MODE_LOOK;
	}
}

/* A field of the code object, from the copy of its bytes; pointers are folded. */
static __always_inline u32 py_field(struct sa_state *s, u32 at, bool pointer)
{
	at = (at - SA_PY_CODE_AT) & (pointer ? ~7U : ~3U);
	if (at > SA_PY_CODE - 8)
		return 0;
	if (!pointer)
		return *(u32 *)(s->pycode + at);
	u64 v = *(u64 *)(s->pycode + at);

	return (u32)(v >> 4) ^ (u32)(v >> 36);
}

/* What tells a code object from one that lies there later, of the same shape, with a name and a
 * file where those of the old one were. */
static __always_inline u32 py_identity(struct sa_state *s)
{
	struct sa_py *p = &s->pi.py;
	u32 at = (p->c_plain - SA_PY_CODE_AT) & ~7U;
	u64 hash = 0;

	if (p->c_version)
		return py_field(s, p->c_version, false);
	if (at > SA_PY_CODE - 8 || sa_read(s, &hash, 8, *(u64 *)(s->pycode + at) + p->s_hash))
		return 0; /* not in memory: user space takes that for an answer, too */
	return (u32)hash ^ (u32)(hash >> 32);
}

/* Over fields that never change: 3.11 keeps a warm-up counter right beside co_flags. */
static __always_inline u32 py_check(struct sa_state *s)
{
	struct sa_py *p = &s->pi.py;
	u32 sum = py_identity(s);

	sum = sum * 31 + py_field(s, p->c_flags, false);
	sum = sum * 31 + py_field(s, p->c_argc, false);
	sum = sum * 31 + py_field(s, p->c_first, false);
	sum = sum * 31 + py_field(s, p->c_file, true);
	sum = sum * 31 + py_field(s, p->c_name, true);
	return sum * 31 + py_field(s, p->c_lines, true);
}

static __always_inline void py_push(struct sa_state *s, u64 code, u64 instr)
{
	u32 sum = 0, lasti = (u32)instr;

	if (code && !sa_read(s, s->pycode, SA_PY_CODE, code + SA_PY_CODE_AT))
		sum = py_check(s);
	else
		s->e.pyerr = SA_PE_CODE;
	if (s->pi.py.co_adaptive)
		lasti = (u32)((s64)(instr - code - s->pi.py.co_adaptive) >> 1);
	push(s, SA_W_PY | (code & ~SA_W_TAG));
	push(s, (u64)sum << 32 | lasti);
	s->npy++;
}

/* This activation's Python frames are done: its native frame comes next. */
static __always_inline void py_activated(struct sa_state *s)
{
	if (s->mode == SA_MODE_LEFT)
		return;
	s->evaldone = 1;
	s->entry = 0;
	s->look = s->pyframe;
	s->mode = s->pi.py.by_shim ? SA_MODE_LOOK : SA_MODE_NATIVE;
}

/*
 * 3.11 and 3.12 link the _PyCFrame of a new activation before they fill it: until then it holds
 * what lay there on the stack, most often what was there before. A chain that does not lead on to
 * the newest frame of the activation before (prev: where it leads to) is no chain. Where the real
 * one is cannot be told then.
 */
static __always_inline bool py_unlinked(struct sa_state *s, u64 prev)
{
	u64 at = s->cprev, want = 0;

	s->cprev = 0;
	if (!at || (!sa_read(s, &want, 8, at + s->pi.py.cf_cur) && want == prev))
		return false;
	s->nw = s->pymark;
	s->npy = 0;
	s->pyframe = s->look = 0;
	s->e.pyerr = SA_PE_CFRAME;
	py_activated(s);
	return true;
}

static __always_inline void py_end(struct sa_state *s, u8 why)
{
	if (why != SA_PE_DEEP && py_unlinked(s, why ? ~0ULL : 0))
		return;
	if (why)
		s->e.pyerr = why;
	s->pyframe = 0;
	py_activated(s);
}

static __always_inline u64 py_word(struct sa_state *s, u32 at)
{
	at &= ~7U;
	return at <= SA_PY_FRAME - 8 ? *(u64 *)(s->pybuf + at) : 0;
}

/* The frame at f into pybuf. */
static __always_inline int py_load(struct sa_state *s, u64 f)
{
	/* the last frame of a chunk may end a page */
	return sa_read(s, s->pybuf, SA_PY_FRAME, f) && sa_read(s, s->pybuf, 80, f);
}

static __always_inline bool py_is_entry(struct sa_state *s)
{
	struct sa_py *p = &s->pi.py;
	u32 at = p->f_entry;

	if (p->entry_each)
		return true;
	if (at >= SA_PY_FRAME)
		return false;
	return s->pybuf[at] == p->entry_val || (p->entry_ge && s->pybuf[at] >= p->entry_val);
}

/* What is no chain may lead round: f, the n-th frame of it, was there before. */
static __always_inline bool py_round(struct sa_state *s, u64 f, u32 n)
{
	if (!s->cprev)
		return false;
	if (f == s->turn)
		return true;
	if (!(n & (n - 1)))
		s->turn = f;
	return false;
}

/* One Python frame, up to and with the entry frame of this activation. */
static __always_inline void py_step(struct sa_state *s)
{
	struct sa_py *p = &s->pi.py;
	u64 f = s->pyframe;

	if (!f)
		return py_end(s, 0);
	if (s->npy >= SA_MAX_PY)
		return py_end(s, SA_PE_DEEP);
	if (py_load(s, f) || py_round(s, f, s->npy))
		return py_end(s, SA_PE_FRAME);
	u64 code = py_word(s, p->f_code), prev = py_word(s, p->f_prev);
	u64 instr = py_word(s, p->f_instr);
	bool entry = py_is_entry(s);

	if (!p->co_adaptive)
		instr = (u32)instr;
	if (p->ver >= 0x30e)
		code &= ~3ULL; /* a tagged pointer */
	s->pyframe = prev == s->pybase ? 0 : prev;
	if (entry && p->shim) {
		if (py_unlinked(s, prev))
			return;
		if (++s->nshim > SA_MAX_PY)
			return py_end(s, SA_PE_DEEP);
		return py_activated(s);
	}
	py_push(s, code, instr);
	if (entry && !py_unlinked(s, prev))
		py_activated(s);
}

/*
 * 3.12+: the entry frame of each activation is a local variable of the eval function, so the native
 * frame whose stack range holds its address is the eval frame, whatever that function is called or
 * inlined into. One frame per call.
 */
static __always_inline void py_look(struct sa_state *s)
{
	bool deep = ++s->nlook > 2 * SA_MAX_PY;
	bool good = s->look && s->look != s->pybase && !deep && !py_round(s, s->look, s->nlook) &&
		    !py_load(s, s->look);

	if (deep)
		s->cprev = 0; /* most likely a recursion, whose frames are all there */
	if ((!good || py_is_entry(s)) && py_unlinked(s, good ? py_word(s, s->pi.py.f_prev) : ~0ULL))
		good = false;
	if (!good) {
		s->look = 0;
		s->mode = SA_MODE_NATIVE;
		return;
	}
	if (py_is_entry(s)) {
		s->entry = s->look;
		s->mode = SA_MODE_NATIVE;
		return;
	}
	s->look = py_word(s, s->pi.py.f_prev);
}

static __always_inline bool py_in_eval(struct sa_state *s, u64 pc)
{
	struct sa_py *p = &s->pi.py;

	return !p->by_shim &&
	       ((pc >= p->eval_lo && pc < p->eval_hi) || (pc >= p->cold_lo && pc < p->cold_hi));
}

/* The native frame at pc, which is next, is an activation's: its Python frames come before it. */
static __always_inline bool py_enter(struct sa_state *s, u64 pc)
{
	if (!s->pyon || s->evaldone || !py_in_eval(s, pc))
		return false;
	if (!s->pyframe) {
		if (!s->e.pyerr) { /* else there are more, which were not read */
			s->e.flags |= SA_F_PY_SHORT;
			push(s, SA_W_MARK | SA_M_SHORT);
		}
		return false;
	}
	if (s->ra) /* it has called something since, so its frame is linked */
		s->cprev = 0;
	s->pymark = s->nw;
	s->mode = SA_MODE_PYTHON;
	return true;
}

/* The native part has ended: what is left of the Python frames is kept, after a marker. */
static __always_inline int py_left(struct sa_state *s)
{
	if (!s->pyframe || s->e.stop == SA_S_TRUNC)
		return 1;
	push(s, SA_W_MARK | SA_M_CUT);
	s->cprev = 0;
	s->e.flags |= SA_F_PY_DRAINED;
	s->mode = SA_MODE_LEFT;
	return 0;
}
