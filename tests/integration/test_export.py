#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Exports as other tools read them: pprof by a reader of its own, speedscope's JSON, folded stacks;
each gives back what was sent."""
import gzip
import json
import time
import unittest

import stratabatch as sb
from servertest import Server

S = 10**9
TICK = 10**7
T0 = (time.time_ns() // (60 * S) - 30) * 60 * S


def varint(data, at):
    value = shift = 0
    while True:
        value |= (data[at] & 127) << shift
        shift += 7
        at += 1
        if data[at - 1] < 128:
            return value, at


def fields(data):
    """(number, value) of a message: an integer, or bytes."""
    at = 0
    while at < len(data):
        tag, at = varint(data, at)
        if tag & 7 == 0:
            value, at = varint(data, at)
        elif tag & 7 == 2:
            n, at = varint(data, at)
            value, at = data[at:at + n], at + n
            assert len(value) == n
        else:
            raise AssertionError(f"wire type {tag & 7}")
        yield tag >> 3, value


def packed(data):
    at, out = 0, []
    while at < len(data):
        v, at = varint(data, at)
        out.append(v)
    return out


def message(data):
    m = {}
    for number, value in fields(data):
        m.setdefault(number, []).append(value)
    return m


class Pprof:
    """A profile, checked as strictly as any reader: ids from 1 and unique, all references found."""

    def __init__(self, data):
        p = message(gzip.decompress(data))
        self.strings = p[6]
        assert self.strings[0] == b""
        s = self.strings
        self.types = [tuple(s[message(t).get(k, [0])[0]].decode() for k in (1, 2)) for t in p[1]]
        self.default = s[p[14][0]].decode()
        self.comments = [s[c].decode() for c in p.get(13, [])]
        self.time, self.duration = p[9][0], p[10][0]
        self.period = p.get(12, [0])[0]
        table = {}
        for field in (3, 4, 5):
            table[field] = {}
            for m in map(message, p.get(field, [])):
                assert m[1][0] > 0 and m[1][0] not in table[field]
                table[field][m[1][0]] = m
        self.mappings = {i: s[m[5][0]].decode() for i, m in table[3].items()}
        self.samples = []
        for m in map(message, p.get(2, [])):
            locations = packed(m[1][0])
            assert locations and len(packed(m[2][0])) == len(self.types)
            stack = []  # leaf first; of a location the innermost line first
            for i in locations:
                place = table[4][i]
                assert place.get(2, [0])[0] in (0, *self.mappings)
                lines = []
                for line in map(message, place[4]):
                    f = table[5][line[1][0]]
                    assert f[2][0] < len(s) and f.get(4, [0])[0] < len(s)
                    lines.append((s[f[2][0]], s[f.get(4, [0])[0]].decode(),
                                  line.get(2, [0])[0]))
                stack.append((place.get(3, [0])[0], lines))
            self.samples.append((stack, packed(m[2][0])))

    def total(self, column):
        return sum(v[column] for _, v in self.samples)


class Export(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server()
        cls.server.start()
        cls.addClassCleanup(cls.server.__exit__)

    def send(self, service, rows, type="cpu", **more):
        b = sb.Batch(labels={"host": "h"})
        more.setdefault("period", TICK)
        b.stream(type, T0, T0 + 10 * S, labels={"service": service}, rows=rows, **more)
        answer = sb.post(self.server.url, b)
        self.assertEqual(answer["http"], 200, answer)

    def export(self, service, format, type="cpu", status=200, **more):
        a = self.server.get("/api/v1/export", q='%s{service="%s"}' % (type, service), format=format,
                            **{"from": f"{T0}ns", "to": f"{T0 + 10 * S}ns", **more})
        self.assertEqual(a.status, status, a.body)
        return a

    def pprof(self, service, **more):
        a = self.export(service, "pprof", **more)
        self.assertIsNone(a.headers["Content-Encoding"])
        self.assertTrue(a.headers["Content-Disposition"].endswith('.pb.gz"'))
        return Pprof(a.body)

    def test_b14_inlined_frames(self):
        def f(name, line, inlined=False, addr=0):
            return dict(name=name, file="m.c", line=line, bin="/usr/bin/demo", build_id=b"\1" * 20,
                        inlined=inlined, addr=addr)
        main = f("main", 10, addr=0x40)
        self.send("b14", [dict(stack=[main, f("printf", 3, addr=0x80),
                                      f("memcpy", 7, True, 0x80)], count=7),
                          dict(stack=[main, f("printf", 3, addr=0x80)], count=2),
                          dict(stack=[main, f("printf", 4, addr=0x90), f("memcpy", 7, True, 0x90),
                                      f("copy", 1, True, 0x90)], count=1)])
        p = self.pprof("b14")
        got = {tuple((hex(a), tuple((n.decode(), l) for n, _, l in lines)) for a, lines in stack):
               values for stack, values in p.samples}
        base = ("0x40", (("main", 10),))
        self.assertEqual(got, {
            (("0x80", (("memcpy", 7), ("printf", 3))), base): [7, 7 * TICK],
            (("0x80", (("printf", 3),)), base): [2, 2 * TICK],
            (("0x90", (("copy", 1), ("memcpy", 7), ("printf", 4))), base): [1, TICK]})
        self.assertEqual(list(p.mappings.values()), ["/usr/bin/demo"])
        self.assertEqual((p.types, p.default), ([("samples", "count"), ("cpu", "nanoseconds")],
                                                "cpu"))
        self.assertEqual((p.time, p.duration, p.period), (T0, 10 * S, TICK))
        a = self.server.get("/api/v1/top", q='cpu{service="b14"}', key="line", sort="total",
                            **{"from": f"{T0}ns", "to": f"{T0 + 10 * S}ns"}).json()
        func, row = a["func"], a["row"]
        self.assertEqual({(a["strings"][func["name"][i]], func["line"][i], func["inlined"][i]):
                          row["total"][i] // TICK for i in row["func"]},
                         {("main", 10, False): 10, ("printf", 3, False): 9, ("memcpy", 7, True): 8,
                          ("printf", 4, False): 1, ("copy", 1, True): 1})

    def test_the_same_sum_everywhere(self):
        rows = [dict(stack=["main", ("python", f"f{i % 7}", f"{i % 3}.py", i % 5, "")] +
                     ["g"] * (i % 4), count=1 + i) for i in range(60)]
        rows.append(dict(stack=[b"main", b"\xff\xfe;\n"], count=5))
        self.send("sums", rows, expected=2000, received=1890, lost={"ring_full": (110, 110 * TICK)})
        n = sum(r["count"] for r in rows)
        for more, left in (({}, n), ({"f": "drop:f1"}, sum(
                r["count"] for i, r in enumerate(rows) if i == 60 or i % 7 != 1))):
            p = self.pprof("sums", **more)
            self.assertEqual((p.total(0), p.total(1)), (left, left * TICK))
            j = json.loads(self.export("sums", "speedscope", **more).body)
            profile = j["profiles"][0]
            self.assertEqual((sum(profile["weights"]), profile["endValue"]),
                             (left * TICK, left * TICK))
            self.assertEqual(len(profile["samples"]), len(profile["weights"]))
            self.assertLess(max(max(x) for x in profile["samples"]), len(j["shared"]["frames"]))
            folded = self.export("sums", "folded", **more).body.splitlines()
            self.assertEqual(sum(int(x.rsplit(b" ", 1)[1]) for x in folded), left * TICK)
        self.assertIn(b"\xff\xfe;\n", self.pprof("sums").strings)  # names keep their bytes
        self.assertIn("lost: ring_full, 1.100 s, n = 110", self.pprof("sums").comments)
        p = self.pprof("sums", lost="frame")
        self.assertEqual(p.total(1), (n + 110) * TICK)
        j = json.loads(self.export("sums", "speedscope", lost="frame").body)
        self.assertEqual(sum(j["profiles"][0]["weights"]), (n + 110) * TICK)

    def test_types_under_their_names(self):
        self.send("mem", [dict(stack=["main", "f"], count=3, value=1000)], type="alloc", period=0,
                  basis="every")
        p = self.pprof("mem", type="alloc")
        self.assertEqual((p.types[-1], p.default), (("alloc_space", "bytes"), "alloc_space"))
        self.assertEqual((p.total(0), p.total(1), p.period), (3, 1000, 0))

    def test_count_unknown_is_left_out(self):
        self.send("odd", [dict(stack=["main"], count=0, value=7)], type="noop", unit="total",
                  period=0, basis="unknown")
        p = self.pprof("odd", type="noop")
        self.assertEqual((p.types, p.total(0)), ([("noop", "total")], 7))

    def test_nothing(self):
        p = self.pprof("nobody")
        self.assertEqual(p.samples, [])
        self.assertTrue(any("no_match" in c for c in p.comments), p.comments)
        self.assertEqual(json.loads(self.export("nobody", "speedscope").body)["profiles"][0]
                         ["samples"], [])

    def test_refused(self):
        self.send("big", [dict(stack=["main"], count=1, value=2**62) for _ in range(2)],
                  period=0, basis="every")
        a = self.export("big", "pprof", status=422)
        self.assertEqual(a.code, "not_supported")
        a = self.export("big", "pprof", status=422, root="48046b589efdba3f")
        self.assertEqual(a.json()["error"]["param"], "root")
        self.assertIn(b"main 9223372036854775808", self.export("big", "folded").body)


if __name__ == "__main__":
    unittest.main()
