# SPDX-License-Identifier: Apache-2.0
"""steps.c in Python, by sdk/python/strata.py: prints what it marked, with the clock around it."""
import os
import sys
import threading
import time

sys.path.insert(0, os.environ["STRATA_SDK"])
import strata  # noqa: E402  pylint: disable=wrong-import-position

lines = []


def at(call, *args, **kwargs):
    before = time.time_ns()
    call(*args, **kwargs)
    return before, time.time_ns()


def say(name, number, begin, end):
    lines.append(f"{name} {number} {threading.get_native_id()} {begin[0]} {begin[1]} "
                 f"{end[0]} {end[1]}")


def marks(name, n, seconds):
    last = at(strata.mark, name)
    for i in range(n):
        time.sleep(seconds)
        now = at(strata.mark, name)
        say(name, i, last, now)
        last = now


def thread(k):
    marks("threaded", 20, 0.003)
    for i in range(10):
        begin = at(strata.begin, "numbered", k * 1000 + i)
        time.sleep(0.001)
        say("numbered", k * 1000 + i, begin, at(strata.end, "numbered", k * 1000 + i))


def work():
    epoch = at(strata.begin, "epoch", 7, phase="warm", kind="x")
    marks("mark", 20, 0.002)
    for i in range(20):
        before = time.time_ns()
        with strata.step("outer"):
            outer = before, time.time_ns()
            inner = at(strata.begin, "inner", 100 + i)
            time.sleep(0.0005)
            say("inner", 100 + i, inner, at(strata.end, "inner", 100 + i))
            before = time.time_ns()
        say("outer", i, outer, (before, time.time_ns()))
    threads = [threading.Thread(target=thread, args=(k,)) for k in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    say("epoch", 7, epoch, at(strata.end, "epoch", 7))


print("ready", flush=True)
sys.stdin.readline()
work()
print("\n".join(lines))
stats = strata.stats()
print("counts", stats["probe"], stats["sent"], stats["dropped"], stats["errors"])
print("done", flush=True)
sys.stdin.read()
