#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Situations that broke other profilers, played against the real server: each class is one kind of
fault, its first test the situation as it was reported, the others siblings of it (other numbers,
another type, another form of the answer)."""
import json
import time
import unittest

import stratabatch as sb
from servertest import Server

S = 10**9
MS = 10**6
TICK = 10 * MS
# whole minutes some time ago: inside every age limit
T0 = (time.time_ns() // (60 * S) - 30) * 60 * S


def strict(body):
    """JSON without NaN and infinities, without a key twice."""
    def pairs(items):
        keys = [k for k, _ in items]
        assert len(keys) == len(set(keys)), keys
        return dict(items)

    def no(word):
        raise AssertionError(f"{word} in an answer")

    return json.loads(body, parse_constant=no, object_pairs_hook=pairs)


class Case(unittest.TestCase):
    """One server per class: its tests use services of their own."""

    @classmethod
    def setUpClass(cls):
        cls.server = Server()
        cls.server.start()
        cls.addClassCleanup(cls.server.__exit__)

    def send(self, batch, http=200):
        answer = sb.post(self.server.url, batch)
        self.assertEqual(answer["http"], http, answer)
        return answer

    def ticks(self, service, stacks, t0=T0, seconds=10, type="cpu", period=TICK, **more):
        """stacks: (stack, number of ticks)."""
        b = sb.Batch(labels={"host": "h"})
        n = sum(w for _, w in stacks)
        b.stream(type, t0, t0 + seconds * S, period=period, labels={"service": service},
                 expected=more.pop("expected", n), received=more.pop("received", n),
                 rows=[dict(stack=stack, count=w) for stack, w in stacks], **more)
        return self.send(b)

    def ask(self, path, q, t0=T0, seconds=10, status=200, **more):
        a = self.server.get("/api/v1/" + path, q=q, **{"from": f"{t0}ns",
                            "to": f"{t0 + int(seconds * S)}ns"}, **more)
        self.assertEqual(a.status, status, a.body)
        return strict(a.body) if "json" in a.headers["Content-Type"] else a.body

    def tree(self, q, **more):
        """{path of (name): (self, total, samples)} and the whole answer."""
        a = self.ask("flamegraph", q, max_nodes=0, numbers="string", **more)
        strings, func, node = a["strings"], a["func"], a["node"]
        nodes, path = {}, []
        for i in range(a["n"]):
            f = node["func"][i]
            name = strings[func["name"][f]] if f >= 0 else "[hidden]"
            where = strings[func["file"][f]] if f >= 0 else ""
            path = path[:node["depth"][i]] + [name + (f" ({where})" if where else "")]
            nodes["/".join(path[1:])] = (int(node["self"][i]), int(node["total"][i]),
                                         node["samples"][i] and int(node["samples"][i]))
        self.conserved(a)
        return nodes, a

    def conserved(self, a):
        node = a["node"]
        depth, total = node["depth"], [int(v) for v in node["total"]]
        below, open_ = [0] * a["n"], []
        for i in range(a["n"]):
            open_ = open_[:depth[i]]
            if open_:
                below[open_[-1]] += total[i]
            open_.append(i)
        for i in range(a["n"]):
            self.assertEqual(int(node["self"][i]) + below[i], total[i])

    def top(self, q, **more):
        a = self.ask("top", q, numbers="string", **more)
        names, files = a["func"]["name"], a["func"]["file"]
        rows = a["rows"] if isinstance(a.get("rows"), dict) else a["row"]
        return [(a["strings"][names[f]], a["strings"][files[f]], int(s), int(t))
                for f, s, t in zip(rows["func"], rows["self"], rows["total"])], a


class B07PercentOfALargeNumber(Case):
    """Arithmetic on totals in too few bits (jonhoo/inferno#170)."""

    def big(self, service, values):
        b = sb.Batch()
        b.stream("cpu", T0, T0 + 60 * S, basis="every", labels={"service": service},
                 rows=[dict(stack=["swapper", f"f{i}"], count=1, value=v)
                       for i, v in enumerate(values)])
        self.send(b)

    def check(self, service, values):
        nodes, a = self.tree('cpu{service="%s"}' % service, seconds=60)
        self.assertEqual(a["total"], str(sum(values)))
        for i, v in enumerate(values):
            self.assertEqual(nodes[f"swapper/f{i}"][0], v)
        rows, a = self.top('cpu{service="%s"}' % service, seconds=60)
        self.assertEqual(a["total"], str(sum(values)))
        self.assertEqual({r[0]: r[2] for r in rows if r[0] != "swapper"},
                         {f"f{i}": v for i, v in enumerate(values)})
        line = self.ask("timeseries", 'cpu{service="%s"}' % service, seconds=60, bucket="60s",
                        numbers="string")["series"][0]
        self.assertEqual(line["total"], str(sum(values)))

    def test_b07_beyond_2_to_53(self):
        self.big("b07", [92233720369095933, 5])
        self.check("b07", [92233720369095933, 5])

    def test_b07_sibling_beyond_2_to_63(self):
        values = [2**62, 2**62, 2**62, 7]
        self.big("b07b", values)
        self.check("b07b", values)


class B09TypesNeverMeet(Case):
    """Units and counts guessed at an edge (async-profiler#1727, grafana#88847)."""

    def test_b09_four_types(self):
        b = sb.Batch()
        label = {"service": "b09"}
        b.stream("cpu", T0, T0 + 10 * S, period=TICK, labels=label,
                 rows=[dict(stack=["main"], count=101)])
        b.stream("alloc", T0, T0 + 10 * S, basis="every", labels=label,
                 rows=[dict(stack=["main"], count=3, value=1048576)])
        b.stream("gpu_kernel", T0, T0 + 10 * S, basis="every", labels=label,
                 rows=[dict(stack=["main"], count=1, value=5000)])
        b.stream("noop", T0, T0 + 10 * S, unit="total", basis="unknown", labels=label,
                 rows=[dict(stack=["main"], count=0, value=7)])
        self.send(b)
        listed = {(t["name"], t["unit"]) for t in self.ask("types", '{service="b09"}')["types"]}
        self.assertEqual(listed, {("cpu", "nanoseconds"), ("alloc", "bytes"),
                                  ("gpu_kernel", "nanoseconds"), ("noop", "total")})
        for q, total, samples in (("cpu", "1010000000", "101"), ("alloc", "1048576", "3"),
                                  ("gpu_kernel", "5000", "1"), ("noop", "7", None)):
            a = self.ask("flamegraph", q + '{service="b09"}')
            self.assertEqual((a["total"], a["samples"]), (total, samples), q)
        for path in ("flamegraph", "top", "timeseries"):
            a = self.ask(path, '{service="b09"}', status=400)
            self.assertEqual(a["error"]["code"], "type_required")

    def test_b09_sibling_same_name_other_unit(self):
        b = sb.Batch()
        for unit, value in (("total", 1), ("bytes", 10), ("seconds", 100)):
            b.stream("odd", T0, T0 + 10 * S, unit=unit, basis="every", labels={"service": "b09b"},
                     rows=[dict(stack=["main"], count=1, value=value)])
        self.send(b)
        self.assertEqual(self.ask("top", 'odd{service="b09b"}', status=400)["error"]["code"],
                         "ambiguous_type")
        for unit, value in (("total", 1), ("bytes", 10), ("seconds", 100)):
            self.assertEqual(self.ask("top", 'odd:%s{service="b09b"}' % unit)["total"], str(value))


class B10WhatIsASample(Case):
    """Count, weight, threads and wall clock mixed up (jonhoo/inferno#318, py-spy#33)."""

    def test_b10_weights_of_1_10_100(self):
        b = sb.Batch()
        b.stream("cycles", T0, T0 + 10 * S, unit="cycles", basis="every",
                 labels={"service": "b10"},
                 rows=[dict(stack=["main", "f"], count=1, value=v) for v in (1, 10, 100)])
        self.send(b)
        nodes, a = self.tree('cycles{service="b10"}')
        self.assertEqual((a["total"], a["samples"]), ("111", "3"))
        self.assertEqual(nodes["main/f"], (111, 111, 3))

    def test_b10_two_threads_for_a_minute(self):
        b = sb.Batch()
        b.stream("wall", T0, T0 + 60 * S, unit="nanoseconds", period=S,
                 labels={"service": "b10ii"},
                 rows=[dict(stack=["main", "wait"], count=60, value=60 * S, tid=i,
                            thread=f"worker-{i}") for i in (1, 2)])
        self.send(b)
        a = self.ask("flamegraph", 'wall{service="b10ii"}', seconds=60)
        self.assertEqual((a["total"], a["samples"]), (str(120 * S), "120"))
        self.assertEqual(int(a["coverage"]["covered_ns"]), 60 * S)
        for i in (1, 2):
            a = self.ask("flamegraph", 'wall{service="b10ii",thread="worker-%d"}' % i, seconds=60)
            self.assertEqual(a["total"], str(60 * S))

    def test_b10_count_unknown_is_not_one(self):
        b = sb.Batch()
        b.stream("cycles", T0, T0 + 10 * S, unit="cycles", basis="unknown",
                 labels={"service": "b10iii"}, rows=[dict(stack=["main"], count=0, value=111)])
        self.send(b)
        a = self.ask("flamegraph", 'cycles{service="b10iii"}')
        self.assertEqual((a["total"], a["samples"]), ("111", None))


class B11TheTotalFollowsTheStep(Case):
    """An amount divided by a display parameter (grafana PR 110470)."""

    def test_b11_one_hour_in_240_parts(self):
        b = sb.Batch()
        start = T0 - 3600 * S
        for i in range(240):
            b.stream("cpu", start + i * 15 * S, start + (i + 1) * 15 * S, period=TICK,
                     labels={"service": "b11"}, rows=[dict(stack=["main", "f"], count=1500)])
        self.send(b)
        q = 'cpu{service="b11"}'
        for step, points in ((15, 240), (60, 60), (300, 12)):
            a = self.ask("timeseries", q, t0=start, seconds=3600, bucket=f"{step}s",
                         numbers="string")
            values = [int(v) for v in a["series"][0]["value"]]
            self.assertEqual(values, [step * S] * points)
        # a step that divides nothing evenly still adds up
        a = self.ask("timeseries", q, t0=start, seconds=3600, bucket="17s", numbers="string")
        self.assertEqual(sum(int(v) for v in a["series"][0]["value"]), 3600 * S)
        self.assertEqual(self.ask("flamegraph", q, t0=start, seconds=3600)["total"],
                         str(3600 * S))


class B13Recursion(Case):
    """One sample counted once per occurrence (cpython#142374, pprof#707)."""

    def test_b13_a_b_a_d(self):
        self.ticks("b13", [(["main", "A", "B", "A", "D"], 50), (["main", "A"], 50)])
        rows, a = self.top('cpu{service="b13"}')
        self.assertEqual({r[0]: (r[2] // TICK, r[3] // TICK) for r in rows},
                         {"main": (0, 100), "A": (50, 100), "B": (0, 50), "D": (50, 50)})
        a = self.ask("flamegraph", 'cpu{service="b13"}', match="A")
        self.assertEqual(a["matched"]["total"], str(100 * TICK))
        a = self.ask("top", 'cpu{service="b13"}', any=["A", "D"])
        self.assertEqual([int(e["total"]) // TICK for e in a["any"]["each"]], [100, 50])
        self.assertEqual(int(a["any"]["union"]["total"]) // TICK, 100)

    def test_b13_500_deep(self):
        self.ticks("b13ii", [(["main"] + ["A"] * 500, 1)])
        rows, _ = self.top('cpu{service="b13ii"}')
        self.assertEqual({r[0]: (r[2] // TICK, r[3] // TICK) for r in rows},
                         {"main": (0, 1), "A": (1, 1)})

    def test_b13_sibling_mutual_recursion(self):
        self.ticks("b13iii", [(["main"] + ["A", "B"] * 3 + ["A"], 2), (["main", "B", "A"], 1)])
        rows, _ = self.top('cpu{service="b13iii"}')
        self.assertEqual({r[0]: (r[2] // TICK, r[3] // TICK) for r in rows},
                         {"main": (0, 3), "A": (3, 3), "B": (0, 3)})


class B15SeparatorsInsideNames(Case):
    """Text formats without escaping (pixie#539, google/pprof PR 669)."""

    STACKS = [(["main", "a;b"], 1), (["main", "a", "b"], 2), (["main", "f\ng"], 3),
              (["main", "f g"], 4), (["main", "f 12"], 5), (["main", "back\\slash"], 6),
              (["main", "nul\0byte"], 7), (["main", "cr\rhere"], 8)]

    def test_b15_folded_export_is_reversible(self):
        self.ticks("b15", self.STACKS)
        folded = self.ask("export", 'cpu{service="b15"}', format="folded").decode()
        back = {}
        for line in folded.splitlines():
            if line.startswith("#"):
                continue
            stack, value = line.rsplit(" ", 1)
            frames = []
            for f in stack.split(";"):
                for code, c in ("\\x3b", ";"), ("\\x0a", "\n"), ("\\x0d", "\r"), ("\\x00", "\0"):
                    f = f.replace(code, c)
                frames.append(f.replace("\\x5c", "\\"))
            back[tuple(frames)] = int(value) // TICK
        self.assertEqual(back, {tuple(s): w for s, w in self.STACKS})

    def test_b15_thread_names(self):
        b = sb.Batch()
        b.stream("cpu", T0, T0 + 10 * S, period=TICK, labels={"service": "b15ii"},
                 rows=[dict(stack=["main"], count=5, tid=1, thread="[ET_NET 0]"),
                       dict(stack=["main"], count=2, tid=2, thread='odd "quoted"\\')])
        self.send(b)
        a = self.ask("flamegraph", 'cpu{service="b15ii",thread="[ET_NET 0]"}')
        self.assertEqual(a["total"], str(5 * TICK))
        a = self.ask("flamegraph", 'cpu{service="b15ii",thread="odd \\"quoted\\"\\\\"}')
        self.assertEqual(a["total"], str(2 * TICK))


class B20OneBadItem(Case):
    """One bad item costs its neighbours (opentelemetry-ebpf-profiler#861)."""

    def test_b20_near_the_epoch_and_tomorrow(self):
        for bad, reason in ((397 * MS, "too_old"), (time.time_ns() + 86400 * S, "in_future")):
            b = sb.Batch()
            for i in range(10):
                t = bad if i == 4 else T0 + i * S
                b.stream("cpu", t, t + S, period=TICK, labels={"service": "b20" + reason},
                         rows=[dict(stack=["main", "f"], count=1)])
            answer = self.send(b)
            self.assertEqual([(r["reason"], r["samples"]) for r in answer["rejected"]],
                             [(reason, 1)])
            a = self.ask("flamegraph", 'cpu{service="b20%s"}' % reason)
            self.assertEqual((a["total"], int(a["coverage"]["covered_ns"])), (str(9 * TICK), 9 * S))

    def test_b20_sibling_one_bad_row(self):
        b = sb.Batch()
        b.stream("alloc", T0, T0 + 10 * S, basis="every", labels={"service": "b20row"},
                 rows=[dict(stack=["main"], count=1, value=v) for v in (5, -7, 2**62 + 1, 11)])
        answer = self.send(b)
        self.assertEqual({r["reason"] for r in answer["rejected"]},
                         {"negative_value", "value_out_of_range"})
        a = self.ask("flamegraph", 'alloc{service="b20row"}')
        self.assertEqual((a["total"], a["samples"]), ("16", "2"))


class B21TwinsOutOfOrder(Case):
    """Arrival order or label equality used as identity (pyroscope#2198)."""

    def test_b21_two_agents_equal_labels(self):
        seq = {b"a": 0, b"b": 0}
        for i, at in enumerate((10, 5, 15, 12)):
            agent = (b"a", b"b")[i % 2]
            seq[agent] += 1
            b = sb.Batch(agent=agent * 16, boot=b"boot" * 4, seq=seq[agent])
            b.stream("cpu", T0 + at * S, T0 + (at + 1) * S, period=TICK,
                     labels={"service": "b21"}, rows=[dict(stack=["main", "f"], count=1)])
            self.assertEqual(self.send(b)["status"], "stored")
        a = self.ask("flamegraph", 'cpu{service="b21"}', seconds=20)
        self.assertEqual((a["total"], a["samples"]), (str(4 * TICK), "4"))

    def test_b21_sibling_same_identity_counts_once(self):
        b = sb.Batch(agent=b"c" * 16, boot=b"boot" * 4, seq=1)
        b.stream("cpu", T0, T0 + S, period=TICK, labels={"service": "b21once"},
                 rows=[dict(stack=["main"], count=1)])
        self.assertEqual(self.send(b)["status"], "stored")
        self.assertEqual(self.send(b)["status"], "duplicate")
        other = sb.Batch(agent=b"c" * 16, boot=b"boot" * 4, seq=1)
        other.stream("cpu", T0, T0 + S, period=TICK, labels={"service": "b21once"},
                     rows=[dict(stack=["main"], count=2)])
        self.assertEqual(self.send(other, http=409)["reason"], "seq_conflict")
        a = self.ask("flamegraph", 'cpu{service="b21once"}')
        self.assertEqual(a["total"], str(TICK))


class B27ZeroSamples(Case):
    """Empty treated as an error, or as absent (pyroscope PR 2615, py-spy#321)."""

    def test_b27_covered_and_zero_is_not_absent(self):
        b = sb.Batch()
        b.stream("cpu", T0, T0 + 60 * S, period=TICK, labels={"service": "b27"}, expected=0,
                 received=0)
        b.stream("cpu", T0 + 300 * S, T0 + 301 * S, period=TICK, labels={"service": "b27"},
                 rows=[dict(stack=["main"], count=1)])
        self.send(b)
        q = 'cpu{service="b27"}'
        a = self.ask("flamegraph", q, seconds=60)
        self.assertEqual((a["total"], a["n"], int(a["coverage"]["covered_ns"])), ("0", 1, 60 * S))
        a = self.ask("flamegraph", q, t0=T0 + 120 * S, seconds=60)
        self.assertEqual((a["total"], a["n"]), (None, 0))
        a = self.ask("timeseries", q, seconds=120, bucket="60s")
        self.assertEqual(a["series"][0]["value"], [0, None])


class B28NotUtf8(Case):
    """Text repaired in a way that loses or merges data (pyroscope PR 2620)."""

    def test_b28_distinct_names_stay_distinct(self):
        odd = [b"foo\xff\xfe", b"foo\xff\xfd", b"a\x00b", b"\xc0\x80", b"\xed\xa0\x80"]
        stacks = [([b"main", n], 1 << i) for i, n in enumerate(odd)]
        stacks += [(["main", f"plain{i}"], 1) for i in range(95)]
        self.ticks("b28", stacks)
        nodes, a = self.tree('cpu{service="b28"}')
        self.assertEqual(a["total"], str(126 * TICK))
        self.assertEqual(len(nodes), 102)  # root, main, 100 leaves
        self.assertEqual(len(a["strings"]), len(set(a["strings"])))
        import base64
        raw = {base64.b64decode(v) for v in a["raw"].values()}
        self.assertEqual(raw, {n for n in odd if n != b"a\x00b"})

    def test_b28_sibling_labels_and_threads(self):
        b = sb.Batch()
        for i, value in enumerate((b"x\xff", b"x\xfe")):
            b.stream("cpu", T0, T0 + 10 * S, period=TICK,
                     labels={"service": "b28l", "note": value},
                     rows=[dict(stack=["main"], count=1 << i)])
        self.send(b)
        self.assertEqual(self.ask("flamegraph", 'cpu{service="b28l",note="x\\xff"}')["total"],
                         str(TICK))
        self.ask("labels/note/values", '{service="b28l"}')


class B32NamesAsCode(Case):
    """Data interpreted as markup, query or file name (cpython#153840)."""

    def test_b32_svg_and_json(self):
        hostile = "</script><img src=x onerror=window.__p=1>"
        self.ticks("<svg/onload=window.__p=1>", [(["main", hostile], 3), (["main", "<lambda>"], 4)])
        q = 'cpu{service="<svg/onload=window.__p=1>"}'
        svg = self.ask("export", q, format="svg")
        self.assertNotIn(b"<img", svg)
        self.assertNotIn(b"</script>", svg)
        self.assertNotIn(b"<svg/onload", svg)
        import xml.etree.ElementTree as tree
        texts = "".join(tree.fromstring(svg).itertext())
        self.assertIn(hostile, texts)
        self.assertIn("<lambda>", texts)
        a = self.server.get("/api/v1/flamegraph", q=q, **{"from": f"{T0}ns", "to": f"{T0+S}ns"})
        self.assertNotIn(b"<", a.body)  # an answer can stand in a page
        nodes, _ = self.tree(q)
        self.assertEqual(nodes["main/" + hostile][0], 3 * TICK)
        self.assertEqual(nodes["main/<lambda>"][0], 4 * TICK)

    def test_b32_sibling_in_errors_and_file_names(self):
        a = self.server.get("/api/v1/flamegraph", q='cpu{service=<b>}')
        self.assertEqual(a.status, 400)
        self.assertNotIn(b"<b>", a.body)
        self.ticks('../../etc/"x\r\nSet-Cookie: a', [(["main"], 1)])
        a = self.server.get("/api/v1/export", format="folded",
                            q='cpu{service="../../etc/\\"x\\x0d\\nSet-Cookie: a"}',
                            **{"from": f"{T0}ns", "to": f"{T0 + S}ns"})
        self.assertEqual(a.status, 200, a.body)
        name = a.headers["Content-Disposition"]
        self.assertNotIn("/", name)
        self.assertIsNone(a.headers["Set-Cookie"])


class B40LostRecordsShownAsNothing(Case):
    """Loss known at the source and gone by the screen (pytorch#192021, bcc#3389)."""

    def test_b40_ring_full(self):
        self.ticks("b40", [(["main", "f"], 800)], expected=1000, received=800,
                   lost={"ring_full": (200, 200 * TICK)})
        q = 'cpu{service="b40"}'
        for path, more in (("flamegraph", {}), ("top", {}), ("timeseries", {"bucket": "10s"})):
            a = self.ask(path, q, **more)
            lost = a["quality"]["lost"]
            self.assertEqual([(x["why"], int(x["n"]), int(x["weight"])) for x in lost],
                             [("ring_full", 200, 200 * TICK)], path)
            self.assertEqual((int(a["quality"]["expected"]), int(a["quality"]["received"])),
                             (1000, 800))
        self.assertEqual(self.ask("flamegraph", q)["total"], str(800 * TICK))
        a = self.ask("timeseries", q, bucket="10s", numbers="string")
        self.assertEqual([int(v) for v in a["series"][0]["lost"]], [200 * TICK])

    def test_b40_gpu_records_dropped_and_outside(self):
        b = sb.Batch()
        rows = [dict(stack=["main"], count=1, value=MS, t=T0 + i * MS) for i in range(49)]
        rows += [dict(stack=["main"], count=1, value=MS, t=T0 + 10 * S + i) for i in range(3)]
        b.stream("gpu_kernel", T0, T0 + 10 * S, basis="every", labels={"service": "b40ii"},
                 expected=50, received=49, lost={"gpu_dropped": (1, None)}, rows=rows)
        answer = self.send(b)
        self.assertEqual([(r["reason"], r["samples"]) for r in answer["rejected"]],
                         [("outside_interval", 3)])
        a = self.ask("flamegraph", 'gpu_kernel{service="b40ii"}')
        self.assertEqual((a["total"], a["samples"]), (str(49 * MS), "49"))
        lost = a["quality"]["lost"]
        self.assertEqual([(x["why"], int(x["n"]), x["weight"]) for x in lost],
                         [("gpu_dropped", 1, None)])


class B41TwoFilesOneName(Case):
    """Identity made from a name alone (google/pprof#206)."""

    def test_b41_python_files(self):
        def f(name, file):
            return ("python", name, file, 0, "")
        main, train = f("main", "main.py"), f("train", "train.py")
        a_py, b_py = f("forward", "a.py"), f("forward", "b.py")
        self.ticks("b41", [([main, train, a_py], 30), ([main, train, b_py], 15),
                           ([main, train, a_py, b_py], 5)])
        nodes, a = self.tree('cpu{service="b41"}')
        base = "main (main.py)/train (train.py)/"
        self.assertEqual(nodes[base + "forward (a.py)"][1], 35 * TICK)
        self.assertEqual(nodes[base + "forward (b.py)"][1], 15 * TICK)
        self.assertIn("7945efdb258ff2cc", a["func"]["key"])
        self.assertIn("ab84f3a85bca27b7", a["func"]["key"])
        rows, _ = self.top('cpu{service="b41"}', match="forward")
        self.assertEqual({r[1]: (r[2] // TICK, r[3] // TICK) for r in rows},
                         {"a.py": (30, 35), "b.py": (20, 20)})
        a = self.ask("flamegraph", 'cpu{service="b41"}', match="forward")
        self.assertEqual((a["matched"]["functions"], a["matched"]["total"]),
                         (2, str(50 * TICK)))

    def test_b41_binaries(self):
        def f(path):
            return ("native", "init", "", 0, path)
        self.ticks("b41iii", [(["run", f("/x/libx.so")], 4), (["run", f("/y/liby.so")], 6)])
        nodes, a = self.tree('cpu{service="b41iii"}')
        rows, _ = self.top('cpu{service="b41iii"}', match="init")
        self.assertEqual(sorted(r[2] // TICK for r in rows), [4, 6])


class S03NoEvidence(Case):
    """No evidence read as evidence of nothing (kineto#859)."""

    def test_s03_refused_is_not_covered(self):
        b = sb.Batch()
        b.stream("gpu_kernel", T0, T0 + 60 * S, basis="every", state="refused",
                 why="another subscriber", labels={"service": "s03i"})
        b.stream("gpu_kernel", T0, T0 + 60 * S, basis="every", labels={"service": "s03ii"},
                 expected=500, received=0, lost={"gpu_no_record": (500, None)})
        b.stream("gpu_kernel", T0, T0 + 60 * S, basis="every", labels={"service": "s03iii"},
                 expected=0, received=0)
        self.send(b)
        a = self.ask("flamegraph", 'gpu_kernel{service="s03i"}', seconds=60)
        self.assertEqual((a["total"], int(a["coverage"]["covered_ns"])), (None, 0))
        self.assertIn("another subscriber", json.dumps(a))
        a = self.ask("flamegraph", 'gpu_kernel{service="s03ii"}', seconds=60)
        self.assertEqual((a["total"], a["quality"]["lost"][0]["weight"]), ("0", None))
        self.assertEqual(int(a["quality"]["lost"][0]["n"]), 500)
        a = self.ask("flamegraph", 'gpu_kernel{service="s03iii"}', seconds=60)
        self.assertEqual((a["total"], int(a["coverage"]["covered_ns"]), a["quality"]["lost"]),
                         ("0", 60 * S, []))


class S06AlmostNoTime(Case):
    """An axis or loop scaled by a length near zero (memray#396)."""

    def test_s06_one_nanosecond(self):
        b = sb.Batch()
        b.stream("cpu", T0, T0 + 1, period=TICK, labels={"service": "s06"},
                 rows=[dict(stack=["main", "f"], count=1)])
        self.send(b)
        a = self.ask("flamegraph", 'cpu{service="s06"}')
        self.assertEqual((a["total"], int(a["coverage"]["covered_ns"])), (str(TICK), 1))
        a = self.ask("timeseries", 'cpu{service="s06"}', rate=1)
        self.assertLess(a["n"], 11001)
        self.ask("flamegraph", 'cpu{service="s06"}', seconds=0, status=400)


class FromThisSecondToNow(Case):
    """A program that began a moment ago asks for what it did so far."""

    def test_from_the_running_second(self):
        for _ in range(20):
            a = self.server.get("/api/v1/top", q="cpu", to="now",
                                **{"from": f"{time.time_ns() - 1000}ns"})
            self.assertEqual(a.status, 200, a.body)
            self.assertIsNone(a.json()["total"])
            time.sleep(0.07)

    def test_from_the_future_is_refused_or_empty(self):
        a = self.server.get("/api/v1/top", q="cpu", to="now",
                            **{"from": f"{time.time_ns() + 5 * S}ns"})
        self.assertEqual(a.code, "bad_range")


if __name__ == "__main__":
    unittest.main()
