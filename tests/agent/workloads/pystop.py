# SPDX-License-Identifier: Apache-2.0
"""pystop.py SECONDS MODE [thread]: writes its Python stack as faulthandler sees it to stderr, then
stays in it for that long: its frames below hold() do not move.

MODE: take (a call into C that holds the interpreter lock), give (one that has released it), loop
(a Python loop), wait (blocked, without CPU). The way to hold() has every kind of frame.
"""
import asyncio
import faulthandler
import functools
import hashlib
import re
import sys
import threading
import time

SECONDS, MODE = float(sys.argv[1]), sys.argv[2]


def hold():
    faulthandler.dump_traceback(all_threads=False)
    sys.stderr.flush()
    end = time.process_time() + SECONDS
    big = 3 ** 20000
    if MODE == "wait":
        threading.Event().wait(SECONDS)
        return
    while time.process_time() < end:
        if MODE == "take":
            big * big
        elif MODE == "give":
            hashlib.pbkdf2_hmac("sha256", b"x", b"y", 20000)


def recursion(n):
    if n > 0:
        return recursion(
            n - 1)
    hold()


def decorator(f):
    @functools.wraps(f)
    def wrapper(*args, **kw):

        return f(*args, **kw)
    return wrapper


@decorator
def decorated(n):
    return (lambda m: recursion(m))(n)


def generator():
    yield 1
    yield decorated(3)


def delegating():
    yield from generator()


async def coroutine():
    return [x for x in delegating()]


async def awaiting():
    await asyncio.sleep(0)
    await coroutine()


class Meta(type):
    def __call__(cls, *args):
        return super().__call__(*args)


class Thing(metaclass=Meta):
    def __init__(self, n):
        self.n = n
        if n == 0:
            asyncio.run(awaiting())

    @property
    def prop(self):
        return exec("make()", {"make": lambda: Plain(0)})

    def __lt__(self, other):
        return bool(re.sub("a", lambda m: str(self.prop), "a"))


class Plain:
    def __init__(self, n):  # called by the specialised instruction after some rounds
        if n == 0:
            Thing(0)


def main():
    for _ in range(50):
        Plain(1)
    sorted([Thing(2), Thing(1)], key=lambda thing: thing)


if len(sys.argv) > 3:
    worker = threading.Thread(target=main, name="worker")
    worker.start()
    worker.join()
else:
    main()
