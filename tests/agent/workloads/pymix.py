# SPDX-License-Identifier: Apache-2.0
"""pymix.py SECONDS: burns so much CPU time in Python code of every kind of frame: generators, decorators,
recursion, exec, lambdas, comprehensions, classes, callbacks of C (sorted(key=), map, re.sub), asyncio, threads.
Nothing holds still: every tick finds it elsewhere.
"""
import asyncio
import functools
import re
import sys
import threading
import time

SECONDS = float(sys.argv[1])


def recursion(n):
    return n + recursion(n - 1) if n else 0


def decorator(f):
    @functools.wraps(f)
    def wrapper(*args, **kw):
        return f(*args, **kw)
    return wrapper


@decorator
def decorated(n):
    return (lambda m: recursion(m))(n)


def generator(n):
    for i in range(n):
        yield decorated(i % 5)


def delegating(n):
    yield from generator(n)


def comprehensions(n):
    return {i: [j * j for j in range(i % 7)] for i in range(n)}, {x for x in delegating(n)}


class Key:
    def __init__(self, n):
        self.n = n

    @property
    def value(self):
        return self.n * 7919 % 101

    def __lt__(self, other):
        return self.value < other.value


def callbacks(n):
    keys = sorted((Key(i) for i in range(n)), key=lambda k: k.value)
    keys = sorted(keys)
    text = re.sub("[aeiou]", lambda m: m.group().upper(), "a line of some words and vowels")
    return sum(map(lambda k: k.value, keys)), text


async def coroutine(n):
    await asyncio.sleep(0)
    return sum(delegating(n))


async def tasks(n):
    return await asyncio.gather(*(coroutine(n) for _ in range(4)))


TEXT = compile("def made(n):\n    return sum(i * i for i in range(n))\nx = made(50)\n", "<made>", "exec")


def run():
    end = time.thread_time() + SECONDS / 2
    while time.thread_time() < end:
        recursion(50)
        comprehensions(20)
        callbacks(20)
        exec(TEXT, {})
        asyncio.run(tasks(5))


other = threading.Thread(target=run, name="other")
other.start()
run()
other.join()
