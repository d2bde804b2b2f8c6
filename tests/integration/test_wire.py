#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Two encoders of the native batch, in C and in Python, written apart, agree on every byte: the
batch below is the one of tests/golden/wire_v1.bin, which test_proto_encode.c writes from its own
description."""
import pathlib
import unittest

import stratabatch as sb

GOLDEN = pathlib.Path(__file__).resolve().parent.parent / "golden" / "wire_v1.bin"
T0 = 1_796_000_000_000_000_000
MS = 1_000_000


def golden_batch():
    b = sb.Batch(agent=bytes(range(16)), boot=bytes(range(16, 32)), seq=300, agent_version="main",
                 sent_ns=T0 + 2500 * MS, labels={"host": "h1"}, content=0x1122334455667788)
    t = b.target(pid=42, comm="demo", exe="/usr/bin/demo", cgroup="/sys", start_ns=T0 - 5,
                 host_pid=4242, env={"RANK": "3"}, flags=4, host_id=bytes(range(32, 48)))
    main = dict(kind="native", name="main", bin="/usr/bin/demo", build_id=b"\x01\x02", addr=0x1040)
    train = ("python", "train", "a.py", 7)
    b.stream("cpu", T0, T0 + 2000 * MS, period=10 * MS, target=t, labels={"service": "job"},
             width=4, expected=5, received=4, lost={"ring_full": (1, 10 * MS)}, jitter=-3, rows=[
                 dict(stack=[main, train], count=2, t=T0, tid=42, thread=b"w\xff", cpu=0),
                 dict(stack=[main], count=1, t=T0 + 1000 * MS, tid=43, cpu=3),
                 dict(stack=[("other", "[no stack: short]")], count=1, t=T0 + 999 * MS, tid=42),
             ])
    b.stream("live", T0, T0 + 1000 * MS, basis="scaled", at=T0, rows=[
        dict(stack=[main, dict(kind="native", name="train", inlined=True, line=9)],
             value=1 << 62, var=2.5)])
    b.stream("goroutine", T0, T0 + 1, unit="count", kind=2, basis="unknown", state="refused",
             why="perms", lost={"sender_gave_up": (None, None)})
    b.metric("process_cpu", "nanoseconds", T0, [(T0, 5), (T0 + 10, -7)], kind=2, target=t)
    b.metric("power", "milliwatts", T0 + 3, [(T0 + 3, 0.5)])
    b.event(T0 + 4, "restart", "dur=1s", target=t)
    b.dropped = [(7, 9)]
    return b


class Wire(unittest.TestCase):
    def test_same_bytes_as_c(self):
        ours, golden = golden_batch().encode(), GOLDEN.read_bytes()
        self.assertEqual(ours.hex(), golden.hex())

    def test_deterministic(self):
        self.assertEqual(golden_batch().encode(), golden_batch().encode())

    def test_reply(self):
        data = (sb.f_int(1, 300) + sb.f_int(2, 1) + sb.f_int(3, 9)
                + sb.f_bytes(4, sb.f_bytes(1, b"too_old") + sb.f_int(2, 3) + sb.f_int(3, 5)
                             + sb.f_bytes(4, b"-12")))
        r = sb.decode_reply(data)
        self.assertEqual((r["seq"], r["status"], r["lsn"]), (300, "stored", 9))
        self.assertEqual(r["rejected"], [dict(reason="too_old", stream=3, samples=5, value=-12)])


if __name__ == "__main__":
    unittest.main()
