# SPDX-License-Identifier: Apache-2.0
"""py_stack.py CPU: busy on that CPU until it is ended, in stacks of 9 Python frames among 18 native ones: the
interpreter's own, and a callback of C."""
import os
import sys

os.sched_setaffinity(0, {int(sys.argv[1])})


def leaf(n):
    x = 0
    for i in range(200000):
        x += i & n
    return x


def a(n):
    return b(n)


def b(n):
    return leaf(n)


def key(n):
    return a(n)


def down(n):
    return down(n - 1) if n else max([3], key=key)


def work():
    return down(2)


while True:
    work()
