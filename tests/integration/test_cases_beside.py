#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Situations that broke other profilers, where what stands beside the samples is concerned: steps,
events, metrics, coverage. Named as in test_cases.py, whose kinds of fault they share."""
import json
import unittest

import stratabatch as sb
from test_cases import MS, S, T0, TICK, Case, strict


class Beside(Case):
    """ask() without a selector; steps by JSON."""

    def look(self, path, status=200, t0=T0, seconds=60, **more):
        a = self.server.get("/api/v1/" + path, **{"from": f"{t0}ns",
                            "to": f"{t0 + int(seconds * S)}ns"}, **more)
        self.assertEqual(a.status, status, a.body)
        self.assertNotIn(b"<", a.body)  # an answer can stand in a page
        return strict(a.body)

    def post_steps(self, service, steps, status=200, headers=None):
        r = self.server.request("POST", "/api/v1/steps",
                                body=json.dumps(dict(service=service, steps=steps)),
                                headers={"Content-Type": "application/json", **(headers or {})})
        self.assertEqual(r.status, status, r.body)
        return strict(r.body)


class B06CounterStartsAgain(Beside):
    """Differences of counters without knowing whose counter it is (pyroscope#2282)."""

    POINTS = [(0, 1000), (10, 5000), (20, 200), (30, 700)]

    def rate(self, name, points, whole, **more):
        b = sb.Batch(labels={"host": "h"})
        b.metric(name, "bytes", T0, [(T0 + t * S, v if whole else float(v)) for t, v in points],
                 kind=2)
        self.send(b)
        (line,) = self.look("metrics/query", name=name, **more)["series"]
        return line

    def test_b06_a_fall_is_a_gap(self):
        for name, whole in (("mem_a", True), ("mem_b", False)):
            line = self.rate(name, self.POINTS, whole, bucket="10s", seconds=40)
            self.assertEqual(line["value"], [400, None, 50, None])
            self.assertEqual(line["status"], [None, "reset", None, "no_data"])
            self.assertEqual(line["resets"], 1)

    def test_b06_sibling_any_bucket_is_never_negative(self):
        for i, bucket in enumerate(("1s", "3s", "7s", "40s", "333ms")):
            line = self.rate(f"mem_c{i}", self.POINTS, True, bucket=bucket, seconds=40)
            self.assertTrue(all(v is None or v >= 0 for v in line["value"]), line)

    def test_b06_sibling_falls_to_zero_and_wraps(self):
        line = self.rate("mem_d", [(0, 2**62), (10, 0), (20, 2**62)], True, bucket="10s",
                         seconds=20)
        self.assertEqual([v and float(v) for v in line["value"]], [None, 2**62 / 10])


class B07BigNumbers(Beside):
    def test_b07_metrics_beyond_2_to_53(self):
        big = 92233720369095933
        b = sb.Batch()
        b.metric("big", "bytes", T0, [(T0, big)])
        b.steps("long", [dict(number=2**64 - 1, t0=T0, t1=T0 + S)])
        self.send(b)
        (line,) = self.look("metrics/query", name="big", agg="last", bucket="60s",
                            numbers="string")["series"]
        self.assertEqual(line["value"], [str(big)])
        self.assertEqual(self.look("steps", name="long")["row"]["number"], [str(2**64 - 1)])


class B09UnitsNeverMeet(Beside):
    def test_b09_one_name_two_units(self):
        b = sb.Batch()
        b.metric("gpu_time", "nanoseconds", T0, [(T0, 5)])
        b.metric("gpu_time", "percent", T0, [(T0, 50)])
        b.metric("gpu_time", "percent", T0, [(T0, 70)], labels={"gpu": "1"})
        self.send(b)
        lines = self.look("metrics/query", name="gpu_time", bucket="60s")["series"]
        self.assertEqual(sorted((x["value_unit"], x["value"][0]) for x in lines),
                         [("nanoseconds", 5), ("percent", 50), ("percent", 70)])


class B15AndB32Names(Beside):
    """Separators, markup and bytes inside names of steps, events and metrics."""

    ODD = ["a;b", "a:5-7", "f\ng", "</script><img src=x onerror=window.__p=1>", "a&b=c", "%00", "ä"]

    def test_b15_b32_every_name_comes_back(self):
        b = sb.Batch()
        t = b.target(pid=9)
        for i, name in enumerate(self.ODD):
            b.steps(name, [dict(number=i, t0=T0 + i * S, t1=T0 + i * S + S, labels={name: name})],
                    target=t)
            b.event(T0 + i * S, name, name, target=t)
            b.metric(name, name, T0, [(T0, i)], target=t, labels={name: name})
        self.send(b)
        a = self.look("steps")
        self.assertEqual([n["name"] for n in a["names"]], sorted(self.ODD, key=str.encode))
        self.assertEqual(a["row"]["labels"], [{n: n} for n in self.ODD])
        self.assertEqual([(v["kind"], v["text"]) for v in self.look("events")["events"]],
                         [(n, n) for n in self.ODD])
        self.assertEqual({m["name"] for m in self.look("metrics")["metrics"]}, set(self.ODD))
        for i, name in enumerate(self.ODD):
            self.assertEqual(self.look("steps", name=name)["n"], 1)
            (line,) = self.look("metrics/query", name=name, bucket="60s")["series"]
            self.assertEqual((line["value"], line["unit"]), ([i], name))

    def test_b28_bytes_that_are_no_text(self):
        b = sb.Batch()
        for odd in (b"x\xff", b"x\xfe"):
            b.metric(odd, "count", T0, [(T0, 1)], labels={"k": odd})
            b.event(T0, odd, odd)
        self.send(b)
        self.assertEqual({m["labels"]["k"] for m in self.look("metrics")["metrics"]
                          if "k" in m["labels"]}, {"x\\xff", "x\\xfe"})


class B20OneBadStep(Beside):
    """One bad item costs its neighbours (opentelemetry-ebpf-profiler#861)."""

    def test_b20_one_step_alone(self):
        for bad, reason in ((dict(t1_ns=T0), "bad_step"), (dict(number=None), "bad_step"),
                            (dict(t0_ns=397 * MS, t1_ns=398 * MS), "too_old"),
                            (dict(t0_ns=T0, t1_ns=T0 + 86400 * S + 1), "bad_step"),
                            (dict(name=""), "bad_step")):
            steps = [dict(name=f"s{reason}", number=i, t0_ns=T0 + i * S, t1_ns=T0 + (i + 1) * S)
                     for i in range(10)]
            steps[4].update(bad)
            before = self.look("steps")["n"]
            r = self.post_steps("b20", steps)
            self.assertEqual((r["steps"], r["rejected"]), (9, [dict(reason=reason, steps=1)]))
            self.assertEqual(self.look("steps")["n"], before + 9)


class B21Twins(Beside):
    def test_b21_equal_steps_of_two_senders_are_kept(self):
        step = [dict(name="twin", number=1, t0_ns=T0, t1_ns=T0 + S)]
        for sender in ("a:1", "b:1"):
            self.post_steps("b21", step, headers={"Strata-Batch-Id": sender})
        r = self.post_steps("b21", step, headers={"Strata-Batch-Id": "a:1"})
        self.assertEqual(r["status"], "duplicate")
        self.assertEqual(self.look("steps", name="twin")["n"], 2)
        self.assertEqual(self.look("steps", name="twin")["summary"]["n"], 2)


class B27ZeroIsNotAbsent(Beside):
    def test_b27_runs(self):
        b = sb.Batch(labels={"host": "h"})
        b.stream("cpu", T0, T0 + 10 * S, period=TICK, labels={"service": "b27"}, expected=0,
                 received=0)
        b.stream("cpu", T0 + 20 * S, T0 + 30 * S, period=TICK, labels={"service": "b27"},
                 state="paused", why="budget")
        self.send(b)
        (source,) = self.look("coverage", q='cpu{service="b27"}')["sources"]
        self.assertEqual(source["runs"], dict(t=[0, 20 * S], dur=[10 * S, 10 * S],
                                              state=["ok", "paused"], why=["", "budget"]))
        self.assertEqual(self.look("coverage", q='cpu{service="b27"}', t0=T0 + 40 * S)["sources"],
                         [])
        b = sb.Batch()
        b.metric("zero", "count", T0, [(T0, 0), (T0 + 20 * S, 0)])
        self.send(b)
        (line,) = self.look("metrics/query", name="zero", bucket="10s", seconds=30)["series"]
        self.assertEqual(line["value"], [0, None, 0])


class B31Cardinality(Beside):
    """Something unbounded becomes an index (pyroscope PR 5220)."""

    def test_b31_names_and_pages(self):
        b = sb.Batch()
        for i in range(3000):
            b.steps(f"name{i}", [dict(number=i, t0=T0 + i, t1=T0 + i + 1)])
            b.event(T0 + i, f"kind{i}", "x")
        self.send(b)
        for path, key in (("steps", "n"), ("events", None)):
            a = self.look(path)
            self.assertEqual(a[key] if key else len(a["events"]), 1000)
            self.assertIsNotNone(a["next"])
            n, after = 0, {}
            while True:
                a = self.look(path, limit=999, **after)
                n += a["n"] if key else len(a["events"])
                if not a["next"]:
                    break
                after = dict(after=a["next"])
            self.assertEqual(n, 3000)

    def test_b31_series_of_a_metric(self):
        b = sb.Batch()
        for i in range(150):
            b.metric("many", "count", T0, [(T0, i)], labels={"k": str(i)})
        self.send(b)
        a = self.look("metrics/query", status=422, name="many", bucket="60s")
        self.assertEqual((a["error"]["code"], a["error"]["limit"]), ("too_many_series", 100))
        a = self.look("metrics/query", name="many", bucket="60s", limit=150)
        self.assertEqual(sorted(x["value"][0] for x in a["series"]), list(range(150)))
        a = self.look("metrics/query", name="many", bucket="60s", q='{k=~"1."}')
        self.assertEqual(len(a["series"]), 10)


class B40LossInItsPlace(Beside):
    def test_b40_when_it_was_lost(self):
        b = sb.Batch(labels={"host": "h"})
        for i, lost in enumerate((0, 200, 0, 7)):
            b.stream("cpu", T0 + i * 10 * S, T0 + (i + 1) * 10 * S, period=TICK,
                     labels={"service": "b40"}, expected=1000, received=1000 - lost,
                     lost={"ring_full": (lost, lost * TICK)} if lost else None,
                     rows=[dict(stack=["main"], count=1000 - lost)])
        self.send(b)
        (source,) = self.look("coverage", q='cpu{service="b40"}')["sources"]
        self.assertEqual(source["lost"], [dict(why="ring_full", n="207", weight=str(207 * TICK))])
        self.assertEqual(source["loss_runs"], dict(t=[10 * S, 30 * S], dur=[10 * S, 10 * S],
                                                   why=["ring_full"] * 2, n=[200, 7],
                                                   weight=[200 * TICK, 7 * TICK]))


class S03Disagreement(Beside):
    """No evidence read as evidence of nothing (kineto#859)."""

    def test_s03_metric_beside_coverage(self):
        b = sb.Batch(labels={"host": "h"})
        for service, more in (("s03i", dict(state="refused", why="another subscriber")),
                              ("s03ii", dict(expected=500, received=0,
                                             lost={"gpu_no_record": (500, None)})),
                              ("s03iii", dict(expected=0, received=0))):
            b.stream("gpu_kernel", T0, T0 + 60 * S, basis="every", labels={"service": service},
                     **more)
        b.metric("nvml_gpu_utilisation", "percent", T0, [(T0 + i * S, 97) for i in range(60)],
                 labels={"gpu": "0"})
        self.send(b)
        states = {}
        for service in ("s03i", "s03ii", "s03iii"):
            (source,) = self.look("coverage", q='gpu_kernel{service="%s"}' % service)["sources"]
            states[service] = (source["runs"]["state"], source["covered_ns"],
                               [(x["why"], x["n"], x["weight"]) for x in source["lost"]])
        self.assertEqual(states, {"s03i": (["refused"], "0", []),
                                  "s03ii": (["ok"], str(60 * S), [("gpu_no_record", "500", None)]),
                                  "s03iii": (["ok"], str(60 * S), [])})
        (line,) = self.look("metrics/query", name="nvml_gpu_utilisation", bucket="60s")["series"]
        self.assertEqual(line["value"], [97])


class S06AlmostNoTime(Beside):
    def test_s06_steps_of_a_nanosecond(self):
        self.post_steps("s06", [dict(name="tick", number=i, t0_ns=T0 + i, t1_ns=T0 + i + 1)
                                for i in range(3)])
        a = self.look("steps", name="tick", seconds=2 / S)
        self.assertEqual((a["n"], a["row"]["dur"]), (2, [1, 1]))
        b = sb.Batch()
        b.metric("m", "count", T0, [(T0, 1), (T0 + 1, 3)], kind=2)
        self.send(b)
        (line,) = self.look("metrics/query", name="m", seconds=1 / S)["series"]
        self.assertEqual(line["value"], [2 * S])
        self.look("steps", seconds=0, status=400)


if __name__ == "__main__":
    unittest.main()
