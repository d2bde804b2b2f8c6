#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""gil.py [-o FD] MS: threads that fight for Python's interpreter lock, for about MS ms.

fight-1 and fight-2 run nothing but Python: what of their lives they neither ran nor waited for a CPU
they waited for the lock, and what they ran they held it. hash computes sums with the lock given up.
tree runs Python, too, in a function whose three lines burn known parts of its CPU time. Of each, in
ns, by the kernel's own counters, and of the lines by the thread's clock:

    fight-1.wall=N fight-1.cpu=N fight-1.queued=N fight-1.blocked=N
    tree.line=N tree.first=N tree.second=N tree.third=N
"""
import ctypes
import hashlib
import os
import sys
import threading
import time

PR_SET_NAME = 15
LIBC = ctypes.PyDLL(None)  # its calls keep the lock: nothing waits between two readings


def queued_ns(fd):
    """Waited for a CPU, by the kernel's count."""
    text = ctypes.create_string_buffer(128)
    LIBC.pread(fd, text, 127, ctypes.c_long(0))
    return int(text.value.split()[1])


def spin(n):
    x = 0
    for i in range(n):
        x += i & 3
    return x


def fight(until):
    while time.monotonic() < until:
        spin(20000)


def hash_loop(until):
    data = bytes(4 << 20)
    while time.monotonic() < until:
        hashlib.sha256(data).digest()


def shares(t):
    t[0] = time.thread_time_ns()
    spin(60000)
    t[1] = time.thread_time_ns()
    spin(30000)
    t[2] = time.thread_time_ns()
    spin(10000)
    t[3] = time.thread_time_ns()


def tree(until):
    t, burnt = [0] * 4, [0] * 3
    while time.monotonic() < until:
        shares(t)
        for i in range(3):
            burnt[i] += t[i + 1] - t[i]
    line = shares.__code__.co_firstlineno + 2
    say(f"tree.line={line} tree.first={burnt[0]} tree.second={burnt[1]} tree.third={burnt[2]}")


def say(text):
    os.write(OUT, (text + "\n").encode())


def life(name, work, until):
    fd = os.open("/proc/thread-self/schedstat", os.O_RDONLY)
    LIBC.prctl(PR_SET_NAME, name.encode())
    begun, queued, cpu = time.monotonic_ns(), queued_ns(fd), time.thread_time_ns()
    work(until)
    queued, cpu = queued_ns(fd) - queued, time.thread_time_ns() - cpu
    wall = time.monotonic_ns() - begun
    LIBC.prctl(PR_SET_NAME, b"done")  # what it waits for from here on is not in these
    say(f"{name}.wall={wall} {name}.cpu={cpu} {name}.queued={queued} "
        f"{name}.blocked={wall - cpu - queued}")


def main():
    until = time.monotonic() + int(sys.argv[-1]) / 1000
    threads = [threading.Thread(target=life, args=(name, work, until))
               for name, work in (("fight-1", fight), ("fight-2", fight), ("hash", hash_loop),
                                  ("tree", tree))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()


OUT = int(sys.argv[2]) if sys.argv[1] == "-o" else 1
main()
