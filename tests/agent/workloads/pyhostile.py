# SPDX-License-Identifier: Apache-2.0
"""pyhostile.py SECONDS MODE [LIBRARY]: what a Python may do to whoever reads its frames, for so much CPU time.

lie      a frame's words are overwritten while it stands in C (pyliar.c): with its own address, with those of
         other objects, of nothing, of the kernel
deep     10,000 calls deep
recycle  functions of one shape are made, run and freed, each at the place in memory of the one before:
         made_N is in file <made N>, and nowhere else
"""
import array
import ctypes
import sys
import threading
import time

SECONDS, MODE = float(sys.argv[1]), sys.argv[2]
VERSION = sys.version_info[:2]


def caller(prev):
    """Address of the caller's frame: offsets as agent/python/pylayout.c has them."""
    get = ctypes.pythonapi.PyThreadState_Get
    get.restype = ctypes.c_void_p
    at = ctypes.c_uint64.from_address  # C: no frame comes on top
    state = get()
    if VERSION == (3, 10):
        mine = at(state + 24).value
    elif VERSION <= (3, 12):
        mine = at(at(state + 56).value + (8 if VERSION == (3, 11) else 0)).value
    else:
        mine = at(state + 72).value
    return at(mine + 8 * prev).value


def lie(library):
    code, prev = {(3, 10): (4, 3), (3, 11): (4, 6)}.get(VERSION, (0, 1))
    call = ctypes.PyDLL(library).pyliar_lie  # keeps the lock: no Python runs meanwhile
    call.restype = ctypes.c_double
    text, freed = "not code", bytes(64)
    junk = [id(text), id([]), id(lie), id(lie.__code__) + 8, id(lie.__code__) + 1, id(freed), 0, 8, 2**47 - 4096,
            2**64 - 4096, 0xffffffff81000000, 2**63, id(None)]
    del freed
    junk = array.array("Q", junk)
    end = time.process_time() + SECONDS
    while time.process_time() < end:
        address = caller(prev)  # the frame of lie(): a call into C has none
        if call(ctypes.c_void_p(address), code, prev, ctypes.c_void_p(junk.buffer_info()[0]), len(junk),
                ctypes.c_double(0.05)) < 0:
            raise SystemExit("no thread")


def spin():
    x = 0
    for i in range(20000):
        x += i
    return x


def deep(n, end):
    if n:
        return deep(n - 1, end)
    while time.thread_time() < end:
        spin()


def recycle():
    end = time.process_time() + SECONDS
    n = 0
    while time.process_time() < end:
        text = f"def made_{n % 900 + 100}():\n x = 0\n for i in range(3000):\n  x += i\n return x\n"
        scope = {}
        exec(compile(text, f"<made {n % 900 + 100}>", "exec"), scope)
        scope[f"made_{n % 900 + 100}"]()
        del scope
        n += 1


if MODE == "lie":
    lie(sys.argv[3])
elif MODE == "recycle":
    recycle()
else:
    sys.setrecursionlimit(20000)
    threading.stack_size(512 << 20)
    t = threading.Thread(target=lambda: deep(10000, time.thread_time() + SECONDS))
    t.start()
    t.join()
