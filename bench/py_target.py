# SPDX-License-Identifier: Apache-2.0
"""py_target.py SECONDS: what bench_python.py samples: Python in functions of known shares, 9 calls deep, sums in C
with the lock given up, a callback of C. Prints work=N cpu=S wall=S: rounds done, CPU time and time used."""
import hashlib
import sys
import time

SECONDS = float(sys.argv[1])
DATA = bytes(1 << 16)


def spin(n):
    x = 0
    for i in range(n):
        x += i & 3
    return x


def half():
    return spin(10000)


def fifth():
    return sum(i * i for i in range(4000))


def key(n):
    return n * 7919 % 101


def tenth():
    return sorted(range(3000), key=key)


def rest():
    return hashlib.sha256(DATA).digest()


def down(n):
    if n:
        return down(n - 1)
    half()
    fifth()
    tenth()
    rest()


begun, cpu, work = time.monotonic(), time.process_time(), 0
while time.monotonic() - begun < SECONDS:
    down(6)
    work += 1
print(f"work={work} cpu={time.process_time() - cpu:.6f} wall={time.monotonic() - begun:.6f}", flush=True)
