/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Where the BPF programs find the Python frames of a process: the layout of its CPython, as offsets
 * in bytes, and the addresses of this process. Filled by user space (pylayout.c, py.c), part of
 * struct sa_proc. Included by cpu.h, which is where to look for the rest.
 */
#pragma once

#ifndef SA_BPF_SIDE
#include <stdint.h>
typedef uint64_t u64;
typedef uint32_t u32;
typedef uint16_t u16;
typedef uint8_t u8;
typedef int64_t s64;
typedef int32_t s32;
#endif

#define SA_MAX_PY     128  /* Python frames of one stack */
#define SA_PY_FRAME   112  /* bytes of a frame that hold every field below */
#define SA_PY_LEAST   80   /* those that every version's frame has */
#define SA_PY_WIN     1024 /* of frames by one read */
#define SA_PY_THREAD  88   /* bytes of a thread state, likewise */
#define SA_PY_CODE_AT 16   /* of a code object the bytes from here */
#define SA_PY_CODE    128  /* so many */
#define SA_PY_KEYS    1024
#define SA_PY_RUNTIME 256 /* of 3.10 and 3.11: from the lock's holder to behind the key */
/* of glibc: thread pointer to the slots of the first 32 keys, to its table of blocks of 32; both */
#define SA_PY_TCB_FIRST 0x310
#define SA_PY_TCB_KEYS	0x510
#define SA_PY_TCB	0x300

struct sa_py {
	u16 ver;    /* 0x30a .. 0x30f; 0: no Python, or none that we read */
	u8 by_shim; /* no eval range: an activation is known by its entry frame's address (3.12+) */
	u8 jit_nofp;   /* its JIT code keeps no frame pointers: cut there instead of guessing */
	u8 shim;       /* the entry frame is a shim: no function of the program */
	u8 entry_val;  /* a frame is an entry frame if its byte f_entry is this, */
	u8 entry_ge;   /* or at least this, */
	u8 entry_each; /* or always: 3.10 has an activation per frame */
	u8 ts_cframe;  /* ts_frame holds a _PyCFrame pointer, and cf_cur is the frame in it */
	u8 cf_cur;
	u8 f_code, f_prev, f_instr, f_entry;
	/* of the code object, what never changes: the check word */
	u8 c_flags, c_argc, c_first, c_file, c_name, c_lines;
	u8 c_version; /* 3.12+: no other code object of the process has the same; else 0, and */
	u8 c_plain;   /* the name alone, whose hash (s_hash of a str) is known from its birth */
	u8 s_hash;
	u16 co_adaptive; /* code object to bytecode; 0: the frame holds the index itself */
	u16 ts_frame, ts_interp, interp_gil;
	u16 ts_base; /* 3.15: sentinel frame below the outermost */
	u16 ts_asks; /* 3.15: the thread waits for the GIL, an int; 0: not there */
	u8 pad[5];
	u64 key_addr; /* of the pthread key of thread states; 0: a thread-local variable (3.15) */
	s64 tls_off;  /* from the thread pointer, or inside the module's block */
	u64 tls_mod;  /* index in the dtv; 0: tls_off is from the thread pointer */
	u64 gil;      /* address of its holder, 3.10 and 3.11; 0: by the interpreter */
	u64 eval_lo, eval_hi, cold_lo, cold_hi;
};

enum sa_gil {
	SA_G_NA = 0, /* no Python here, or no thread state: not asked */
	SA_G_FREE,
	SA_G_MINE,
	SA_G_OTHER,
	SA_G_UNREADABLE,
};

/* What went wrong with the Python frames of a record. */
enum sa_pyerr {
	SA_PE_OK = 0,
	SA_PE_KEY,    /* the key's number cannot be read */
	SA_PE_BADKEY, /* no number of a key */
	SA_PE_SLOT,   /* the thread's slot cannot be read */
	SA_PE_NONE,   /* a thread without Python: not an error */
	SA_PE_FRAME0, /* thread state: newest frame */
	SA_PE_CFRAME,
	SA_PE_FRAME = 10, /* a frame cannot be read */
	SA_PE_CODE,	  /* a code object */
	SA_PE_DEEP,	  /* more than SA_MAX_PY frames */
	SA_PE_N,
};
