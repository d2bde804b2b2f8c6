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

    def diff(self, a, b, status=200, **more):
        """a, b: (selector, first second, seconds). The answer, and {name (file): row} of it."""
        sides = {}
        for k, (q, t0, seconds) in (("a", a), ("b", b)):
            sides.update({f"{k}_q": q, f"{k}_from": f"{t0}ns", f"{k}_to": f"{t0 + seconds * S}ns"})
        r = self.server.get("/api/v1/diff", **sides, **{"numbers": "string", "max_nodes": 0, **more})
        self.assertEqual(r.status, status, r.body)
        r = strict(r.body)
        if status != 200:
            return r, {}
        strings, func, rows = r["strings"], r["func"], r.get("node") or r["row"]
        found = {}
        for i, f in enumerate(rows["func"]):
            file = strings[func["file"][f]]
            found[strings[func["name"][f]] + (f" ({file})" if file else "")] = {
                k: v[i] for k, v in rows.items()}
        return r, found


class B01OneProgramTwoRates(Case):
    """Counts compared where weights are meant (cpython#154032)."""

    def send_at(self, service, period, t0, f, g, **more):
        b = sb.Batch()
        b.stream(t0=t0, t1=t0 + 10 * S, period=period, labels={"service": service},
                 rows=[dict(stack=["main", name], count=n, value=n * (period or 1))
                       for name, n in (("f", f), ("g", g))], **{"type": "cpu", **more})
        self.send(b)

    def test_b01_1_khz_and_100_hz(self):
        self.send_at("b01", MS, T0, 6000, 4000)
        self.send_at("b01", TICK, T0 + 60 * S, 600, 400)
        for norm in ("second", "share", "none"):
            for view in ("tree", "top"):
                a, rows = self.diff(('cpu{service="b01"}', T0, 10),
                                    ('cpu{service="b01"}', T0 + 60 * S, 10), norm=norm, view=view)
                self.assertTrue(a["comparable"])
                self.assertEqual((a["a"]["total"], a["b"]["total"]), (str(10 * S), str(10 * S)))
                for name, ns in (("f", 6 * S), ("g", 4 * S)):
                    r = rows[name]
                    self.assertEqual((r["total_a"], r["total_b"]), (str(ns), str(ns)))
                    self.assertEqual((r["d_self"], r["d_total"], r["sig"], r["state"]),
                                     (0, 0, 0, 0))
        self.assertIn("periods_differ", " ".join(a["warnings"]))

    def test_b01_bare_counts_are_refused(self):
        for t0, f, g in ((T0, 6000, 4000), (T0 + 60 * S, 600, 400)):
            self.send_at("b01bare", 0, t0, f, g, type="samples", unit="count", basis="unknown")
        q = 'samples:count{service="b01bare"}'
        self.assertEqual(self.ask("flamegraph", q)["total"], "10000")
        a, _ = self.diff((q, T0, 10), (q, T0 + 60 * S, 10), status=422)
        self.assertEqual(a["error"]["code"], "period_unknown")

    def test_b01_sibling_two_types(self):
        self.send_at("b01t", TICK, T0, 6, 4)
        a, _ = self.diff(('cpu{service="b01t"}', T0, 10), ('offcpu{service="b01t"}', T0, 10),
                         status=422)
        self.assertEqual(a["error"]["code"], "types_differ")
        self.assertIn("cpu:nanoseconds", a["error"]["message"])
        self.assertIn("offcpu:nanoseconds", a["error"]["message"])


class B02SidesOfDifferentLength(Case):
    """A difference without both denominators (pyroscope#408)."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        b = sb.Batch()
        for run, t0, seconds, cart, other in (("a", T0 - 1200 * S, 100, 30, 70),
                                              ("b", T0 - 900 * S, 600, 360, 240),
                                              ("half", T0 - 200 * S, 200, 30, 70)):
            b.stream("cpu", t0, t0 + seconds * S, period=TICK,
                     labels={"service": "b02", "run": run},
                     rows=[dict(stack=["main", "cart"], count=cart * 100),
                           dict(stack=["main", "other"], count=other * 100)])
        sb.post(cls.server.url, b)

    def check(self, run, seconds, cart, other, **more):
        """(per second or share of A, of B) of each function."""
        def side(r):
            return (f'cpu{{run="{r}"}}', T0 - 1200 * S, 1200)
        a, rows = self.diff(side(run), side("b"), **more)
        self.assertEqual(a["a"]["denominators"]["second"], seconds)
        self.assertEqual(a["b"]["denominators"]["second"], 600)
        self.assertEqual(a["a"]["denominators"]["share"], str(100 * S))
        self.assertEqual(a["b"]["denominators"]["share"], str(600 * S))
        for name, (before, after) in (("cart", cart), ("other", other)):
            r = rows[name]
            n = ((seconds, 600) if a["norm"] == "second" else (100 * S, 600 * S))
            unit = S if a["norm"] == "second" else 1
            self.assertAlmostEqual(int(r["total_a"]) / n[0] / unit, before)
            self.assertAlmostEqual(int(r["total_b"]) / n[1] / unit, after)
            self.assertAlmostEqual(r["d_total"] / unit, after - before)
        return a

    def test_b02_per_second_is_the_default(self):
        a = self.check("a", 100, (0.30, 0.60), (0.70, 0.40))
        self.assertEqual(a["norm"], "second")
        self.check("half", 200, (0.15, 0.60), (0.35, 0.40))

    def test_b02_share_tells_another_story(self):
        self.check("a", 100, (0.30, 0.60), (0.70, 0.40), norm="share")
        self.check("half", 200, (0.30, 0.60), (0.70, 0.40), norm="share")

    def test_b02_sibling_filters_leave_the_denominators(self):
        a, rows = self.diff(('cpu{run="a"}', T0 - 1200 * S, 1200),
                            ('cpu{run="b"}', T0 - 1200 * S, 1200), norm="share", f="keep:cart")
        self.assertEqual((a["a"]["total"], a["a"]["unfiltered"]["total"]),
                         (str(30 * S), str(100 * S)))
        self.assertAlmostEqual(rows["cart"]["d_total"], 0.30)
        self.assertNotIn("other", rows)


class B04OneSideEmpty(Case):
    """Zero and absent taken for each other (kibana PR 138498)."""

    def test_b04_zero_and_absent(self):
        self.ticks("b04", [(["main", "f"], 1000)], seconds=60)
        b = sb.Batch()
        b.stream("cpu", T0 + 120 * S, T0 + 180 * S, period=TICK, labels={"service": "b04"},
                 expected=0, received=0)
        self.send(b)
        q = 'cpu{service="b04"}'
        a, rows = self.diff((q, T0, 60), (q, T0 + 120 * S, 60))
        self.assertTrue(a["comparable"])
        self.assertEqual((a["b"]["total"], int(a["b"]["coverage"]["covered_ns"])), ("0", 60 * S))
        self.assertEqual((rows["f"]["total_a"], rows["f"]["total_b"], rows["f"]["state"]),
                         (str(10 * S), "0", 1))
        self.assertAlmostEqual(rows["f"]["d_total"], -S / 6)
        a, rows = self.diff((q, T0, 60), (q, T0 + 1200 * S, 60))
        self.assertEqual((a["comparable"], a["why_not"], a["b"]["total"]),
                         (False, "b_not_covered", None))
        self.assertNotIn("d_total", rows["f"])
        self.assertEqual(a["delta"], {"value": None, "se": None})
        # the other way round, and what share says of nothing
        a, _ = self.diff((q, T0 + 1200 * S, 60), (q, T0, 60))
        self.assertEqual(a["why_not"], "a_not_covered")
        a, _ = self.diff((q, T0, 60), (q, T0 + 120 * S, 60), norm="share")
        self.assertEqual(a["why_not"], "b_zero_total")


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

    def test_b13_sandwich(self):
        self.ticks("b13s", [(["main", "A", "B", "A", "D"], 50), (["main", "A"], 50)])
        a = self.ask("sandwich", 'cpu{service="b13s"}', fn="A", numbers="string", max_nodes=0)
        names = [a["strings"][i] for i in a["func"]["name"]]
        self.assertEqual((int(a["function"]["total"]) // TICK, int(a["function"]["self"]) // TICK),
                         (100, 50))
        for tree, want in (("callers", [("A", 100), ("main", 100)]),
                           ("callees", [("A", 100), ("B", 50), ("A", 50), ("D", 50)])):
            node = a[tree]["node"]
            self.assertEqual([(names[f], int(t) // TICK)
                              for f, t in zip(node["func"], node["total"])], want, tree)
            self.conserved(a[tree])
        # by file and by binary as well, and as one frame where recursion is folded
        for key in ("file", "bin"):
            rows, a = self.top('cpu{service="b13s"}', key=key)
            self.assertEqual(sum(r[3] // TICK for r in rows), 100, key)

        def at(line):
            return ("python", "A", "a.py", line, "")
        self.ticks("b13l", [([at(1), at(2), at(1), at(2)], 6), ([at(1)], 4)])
        rows, a = self.top('cpu{service="b13l"}', key="line", sort="total")
        self.assertEqual([(line, r[2] // TICK, r[3] // TICK)
                          for line, r in zip(a["func"]["line"], rows)], [(1, 4, 10), (2, 6, 6)])
        nodes, a = self.tree('cpu{service="b13s"}', f="merge:B")
        self.assertEqual(nodes["main/A/A/D"][0], 50 * TICK)
        nodes, a = self.tree('cpu{service="b13s"}', f=["merge:B", "collapse:recursion"])
        self.assertEqual((nodes["main/A"][0], nodes["main/A/D"][0]), (50 * TICK, 50 * TICK))

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

    def test_b41_gone_and_new(self):
        def f(name, file):
            return ("python", name, file, 0, "")
        for file, t0 in (("a.py", T0), ("b.py", T0 + 60 * S)):
            self.ticks("b41ii", [([f("main", "main.py"), f("train", "train.py"),
                                   f("forward", file)], 40)], t0=t0)
        q = 'cpu{service="b41ii"}'
        for view in ("tree", "top"):
            _, rows = self.diff((q, T0, 10), (q, T0 + 60 * S, 10), view=view)
            self.assertEqual({k: r["state"] for k, r in rows.items() if "forward" in k},
                             {"forward (a.py)": 1, "forward (b.py)": 2}, view)
            self.assertEqual(rows["train (train.py)"]["d_total"], 0)
        a = self.ask("sandwich", q, seconds=70, fn="forward")
        self.assertEqual(a["function"]["functions"], 2)
        a = self.ask("sandwich", q, seconds=70, fn="forward", file="a.py")
        self.assertEqual((a["function"]["functions"], a["function"]["total"]),
                         (1, str(40 * TICK)))

    def test_b41_binaries(self):
        def f(path):
            return ("native", "init", "", 0, path)
        self.ticks("b41iii", [(["run", f("/x/libx.so")], 4), (["run", f("/y/liby.so")], 6)])
        nodes, a = self.tree('cpu{service="b41iii"}')
        rows, _ = self.top('cpu{service="b41iii"}', match="init")
        self.assertEqual(sorted(r[2] // TICK for r in rows), [4, 6])


class FiltersOnTheServer(Case):
    """What filters take is said, and adds up; a series shows what the tree shows."""

    STACKS = [(["main", "train", "cuda::launch<int>", "ioctl"], 40),
              (["main", "train", "cuda::launch<float>", "ioctl"], 20),
              (["main", "load", "read"], 25), (["main"], 10), (["idle"], 5)]

    def test_filters(self):
        self.ticks("flt", self.STACKS)
        q = 'cpu{service="flt"}'
        for f, left, paths in (
                ("keep:/launch/", 60, {"main/train/cuda::launch<int>/ioctl": 40}),
                ("drop:main", 5, {"idle": 5}),
                ("start:train", 60, {"train/cuda::launch<int>/ioctl": 40}),
                ("merge:/^cuda::/", 100, {"main/train/ioctl": 60}),
                ("collapse:/^(train|cuda::.*)$/", 100, {"main/train/ioctl": 60}),
                (["start:train", "merge:ioctl", "drop:/float/"], 40,
                 {"train/cuda::launch<int>": 40})):
            nodes, a = self.tree(q, f=f)
            self.assertEqual(int(a["total"]), left * TICK, f)
            self.assertEqual(int(a["total"]) + sum(int(x["dropped"]) for x in a["filtered"]),
                             int(a["unfiltered"]["total"]), f)
            self.assertEqual(a["unfiltered"]["total"], str(100 * TICK))
            for path, n in paths.items():
                self.assertEqual(nodes[path][0], n * TICK, f)
            t = self.ask("timeseries", q, bucket="1s", f=f, numbers="string")
            self.assertEqual((t["total"], t["unfiltered"]["total"]),
                             (a["total"], str(100 * TICK)), f)
            rows, t = self.top(q, f=f)
            self.assertEqual(t["total"], a["total"])
            folded = self.ask("export", q, format="folded", f=f).decode()
            self.assertEqual(sum(int(line.rsplit(" ", 1)[1]) for line in folded.splitlines()),
                             left * TICK)
        a = self.ask("flamegraph", q, f="keep:nobody")
        self.assertEqual((a["total"], a["empty"]["why"]), ("0", "filtered_out"))

    def test_short_names(self):
        self.ticks("flt2", self.STACKS)
        q = 'cpu{service="flt2"}'
        nodes, a = self.tree(q, names="short", match="launch<int>")
        self.assertEqual(nodes["main/train/cuda::launch/ioctl"][0], 60 * TICK)
        self.assertEqual(a["matched"]["total"], str(40 * TICK))
        for names in ("short", "full"):
            a = self.ask("top", q, names=names, any=["/<int>/", "launch", "read"], limit=0)
            self.assertEqual([int(e["total"]) // TICK for e in a["any"]["each"]], [40, 60, 25])
            self.assertEqual(int(a["any"]["union"]["total"]) // TICK, 85)

    def test_groups_of_an_attribute(self):
        b = sb.Batch()
        b.stream("cpu", T0, T0 + 10 * S, period=TICK, labels={"service": "flt3"},
                 rows=[dict(stack=["main", f"f{i % 2}"], count=10 - i, tid=i, thread=f"worker-{i}")
                       for i in range(5)])
        self.send(b)
        q = 'cpu{service="flt3"}'
        a = self.ask("top", q, by="thread", groups=2, numbers="string")
        self.assertEqual([(g["labels"], g["rest"], int(g["total"]) // TICK) for g in a["groups"]],
                         [({"thread": "worker-0"}, False, 10), ({"thread": "worker-1"}, False, 9),
                          ({}, True, 21)])
        names = [a["strings"][i] for i in a["func"]["name"]]
        for i, name in enumerate(names):
            self.assertEqual(sum(int(g["row"]["total"][i]) for g in a["groups"]),
                             int(a["row"]["total"][i]), name)
        # filters first: the largest of what they leave
        a = self.ask("top", q, by="thread", groups=1, f="keep:f1", numbers="string")
        self.assertEqual([(g["labels"].get("thread"), int(g["total"]) // TICK)
                          for g in a["groups"]], [("worker-1", 9), (None, 7)])
        t = self.ask("timeseries", q, by="thread", groups=1, f="keep:f1", bucket="10s",
                     numbers="string")
        self.assertEqual([(x["labels"].get("thread"), x["rest"], int(x["total"]) // TICK)
                          for x in t["series"]], [("worker-1", False, 9), (None, True, 7)])
        nodes, _ = self.tree(q, by="thread", groups=1, f="keep:f1")
        self.assertEqual(nodes["thread=worker-1/main/f1"][0], 9 * TICK)
        self.assertEqual(nodes["[other groups]/main/f1"][0], 7 * TICK)


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
