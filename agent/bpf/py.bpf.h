/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Python frames for the step of step.bpf.h, which includes this. The thread is interrupted, so its
 * frames do not move during the walk, but they may be half linked, or lie: everything read here is
 * a number that is checked before it is an offset, and a chain ends at SA_MAX_PY frames.
 */
#pragma once

/* A word of the frame that was loaded last; before the first one, of what was read into pywin. */
static __always_inline u64 py_word(struct sa_state *s, u32 at)
{
	u32 off = s->pyoff + (at & ~7U);

	return off <= SA_PY_WIN - 8 ? *(u64 *)(s->pywin + off) : 0;
}

/* What is known of the lock before the thread state is. */
struct py_lock {
	u64 word[2]; /* its holder, whether it is taken */
	bool have;
};

/* The number of the pthread key. 0, or enum sa_pyerr. */
static __always_inline int py_key(struct sa_state *s, u32 *key, struct py_lock *lock)
{
	struct sa_py *p = &s->pi.py;
	u64 off = p->key_addr - p->gil;

	/* 3.10 and 3.11 have the lock before it */
	if (off <= SA_PY_RUNTIME - 8 && !sa_read(s, s->pywin, SA_PY_RUNTIME, p->gil)) {
		lock->word[0] = py_word(s, 0);
		lock->word[1] = py_word(s, 8);
		lock->have = true;
		*key = (u32)(py_word(s, (u32)off) >> 8 * (off & 4));
	} else if (sa_read(s, key, 4, p->key_addr)) {
		return SA_PE_KEY;
	}
	return *key < SA_PY_KEYS ? 0 : SA_PE_BADKEY;
}

/* The thread's PyThreadState. 0, or enum sa_pyerr. */
static __always_inline int py_thread(struct sa_state *s, u64 *ret, struct py_lock *lock)
{
	struct sa_py *p = &s->pi.py;
	u64 at = s->fsbase, first = at + SA_PY_TCB_FIRST;
	u32 key = 0;
	int e;

	*ret = 0;
	if (p->key_addr) { /* a slot of the second level exists for every key */
		e = py_key(s, &key, lock);
		if (e)
			return e;
		if (!sa_read(s, s->pywin, SA_PY_TCB, first)) {
			at = py_word(s, SA_PY_TCB_KEYS - SA_PY_TCB_FIRST + 8 * (key >> 5));
			*ret = at == first ? py_word(s, 16 * (key & 31) + 8) : 0;
			if (at == first)
				return *ret ? 0 : SA_PE_NONE;
		} else if (sa_read(s, &at, 8, at + SA_PY_TCB_KEYS + 8 * (u64)(key >> 5))) {
			return SA_PE_SLOT;
		}
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

static __always_inline void py_gil(struct sa_state *s, u64 ts, struct py_lock *lock)
{
	struct sa_py *p = &s->pi.py;
	u64 at = p->gil;
	int bad = 0;

	if (!at) {
		bad = sa_read(s, &at, 8, py_word(s, p->ts_interp) + p->interp_gil);
		at += 8;
	}
	if (!lock->have) /* the word that says whether it is taken follows its holder */
		bad |= sa_read(s, lock->word, sizeof lock->word, at);
	s->e.gil = bad			     ? SA_G_UNREADABLE
		   : (u32)lock->word[1] != 1 ? SA_G_FREE
		   : lock->word[0] == ts     ? SA_G_MINE
					     : SA_G_OTHER;
	s->e.gil_holder = bad ? 0 : lock->word[0];
	if (p->ts_asks && (u32)py_word(s, p->ts_asks))
		s->e.flags |= SA_F_GIL_ASKED;
}

/* Before the first step: thread state, newest frame, GIL. */
static __always_inline int py_find(struct sa_state *s)
{
	struct sa_py *p = &s->pi.py;
	struct py_lock lock = {};
	u64 ts = 0, f;
	int e = py_thread(s, &ts, &lock);

	if (!e && sa_read(s, s->pywin, SA_PY_THREAD, ts))
		e = SA_PE_FRAME0;
	if (e) {
		if (e != SA_PE_NONE) /* it has a lock, and whose it is cannot be asked */
			s->e.gil = SA_G_UNREADABLE;
		return e;
	}
	py_gil(s, ts, &lock);
	f = py_word(s, p->ts_frame);
	if (p->ts_base)
		s->pybase = py_word(s, p->ts_base);
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
	s->pylast = 0;
	s->pywin_n = s->pyoff = 0;
	s->walk++;
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
	/* its caller's lies before it, but for 3.10's, which are objects of the heap */
	s->pylast = s->pi.py.entry_each ? 0 : s->pyframe;
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

/* The check word of the code object; 0: unreadable, or it happens to be. A recursion has the same
 * one again, which cannot change while the thread stands in it. */
static __always_inline u32 py_sum(struct sa_state *s, u64 code)
{
	struct sa_seen *seen = &s->seen[(code >> 4 ^ code >> 10) & (SA_SEEN - 1)];
	u32 sum;

	if (seen->code == code && seen->walk == s->walk)
		return seen->sum;
	if (!code || sa_read(s, s->pycode, SA_PY_CODE, code + SA_PY_CODE_AT)) {
		s->e.pyerr = SA_PE_CODE;
		return 0;
	}
	sum = py_check(s);
	seen->code = code;
	seen->walk = s->walk;
	seen->sum = sum;
	return sum;
}

static __always_inline void py_push(struct sa_state *s, u64 code, u64 instr)
{
	u32 sum = py_sum(s, code), lasti = (u32)instr;

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

/*
 * The frame at f into pywin. Frames of Python functions that call each other lie one after the
 * other, the caller's below: those before come with it, as far as they are in the same page, until
 * two were not near.
 */
static __always_inline int py_load(struct sa_state *s, u64 f)
{
	u64 off = f - s->pywin_at;
	u32 before = 0;

	if (off <= SA_PY_WIN - SA_PY_FRAME && off + SA_PY_FRAME <= s->pywin_n && !(off & 7)) {
		s->pyoff = (u32)off;
		return 0;
	}
	if (s->pylast - f < SA_PY_WIN && !(f & 7)) /* one that is no frame's is read alone */
		before = (u32)f & (SA_PAGE - 1);
	if (before > SA_PY_WIN - SA_PY_FRAME)
		before = SA_PY_WIN - SA_PY_FRAME;
	s->pylast = f;
	s->pyoff = before;
	s->pywin_at = f - before;
	s->pywin_n = before + SA_PY_FRAME;
	if (!sa_read(s, s->pywin, before + SA_PY_FRAME, s->pywin_at))
		return 0;
	/* the last frame of a chunk may end a page */
	s->pyoff = s->pywin_n = 0;
	return sa_read(s, s->pywin, SA_PY_LEAST, f);
}

static __always_inline bool py_is_entry(struct sa_state *s)
{
	struct sa_py *p = &s->pi.py;
	u32 at = s->pyoff + p->f_entry;

	if (p->entry_each)
		return true;
	if (at >= SA_PY_WIN)
		return false;
	return s->pywin[at] == p->entry_val || (p->entry_ge && s->pywin[at] >= p->entry_val);
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
