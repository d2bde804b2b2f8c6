#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What stands beside the samples, over the real server: steps by batch and by JSON, what they
restrict, events, metrics, coverage, label sets; series of any bucket length against plain sums."""
import gzip
import json
import os
import random
import time
import unittest

import stratabatch as sb
from servertest import Server

S = 10**9
MS = 10**6
TICK = 10 * MS
T0 = (time.time_ns() // (60 * S) - 30) * 60 * S  # whole minutes, inside every age limit
SEED = int(os.environ.get("STRATA_SEED", "1"))


class Case(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.s = Server()
        cls.s.start()
        cls.addClassCleanup(cls.s.__exit__)

    def send(self, batch):
        r = sb.post(self.s.url, batch)
        self.assertEqual((r["http"], r.get("rejected")), (200, []), r)
        return r

    def get(self, path, status=200, t0=T0, seconds=600, **more):
        a = self.s.get("/api/v1/" + path, **{"from": f"{t0}ns", "to": f"{t0 + int(seconds * S)}ns",
                                             **more})
        self.assertEqual(a.status, status, a.body)
        return json.loads(a.body, parse_constant=self.fail)

    def post_steps(self, body, status=200, headers=None, raw=False):
        r = self.s.request("POST", "/api/v1/steps", body=body if raw else json.dumps(body),
                           headers={"Content-Type": "application/json", **(headers or {})})
        self.assertEqual(r.status, status, r.body)
        return r.json()


def total(a):
    return None if a["total"] is None else int(a["total"])


class StepsRestrict(Case):
    """Two processes of a service, one of another; a row each 100 ms; steps of uneven length."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        rnd = random.Random(SEED)
        cls.rows, cls.marks = [], []
        b = sb.Batch(labels={"host": "h"})
        for pid, service, weight in ((1, "a", 1), (2, "a", 100), (3, "b", 10000)):
            t = b.target(pid=pid, comm=f"p{pid}")
            at = [T0 + i * 100 * MS for i in range(600)]
            cls.rows += [(pid, service, x, weight) for x in at]
            b.stream("alloc", T0, T0 + 60 * S, basis="every", labels={"service": service},
                     target=t, rows=[dict(stack=["main"], t=x, value=weight, count=1, target=t)
                                     for x in at])
            begin = T0 + rnd.randrange(2 * S)
            steps = []
            for n in range(12):
                dur = rnd.randrange(1, 4 * S)
                steps.append(dict(number=n, t0=begin, t1=begin + dur, tid=pid))
                begin += dur + rnd.randrange(S)
            b.steps("train", steps, target=t)
            cls.marks += [(pid, s["number"], s["t0"], s["t1"]) for s in steps]
        r = sb.post(cls.s.url, b)
        assert r["http"] == 200, r

    def expect(self, services, numbers=range(12), t0=T0, t1=T0 + 600 * S):
        return sum(w for pid, service, t, w in self.rows
                   if service in services and t0 <= t < t1 and any(
                       p == pid and n in numbers and a <= t < b for p, n, a, b in self.marks))

    def test_steps_restrict_every_answer(self):
        for q, services in (('alloc{service="a"}', "a"), ("alloc", "ab")):
            for step, numbers in (("train", range(12)), ("train:3-5", (3, 4, 5)), ("train:0", (0,))):
                want = self.expect(services, numbers)
                self.assertGreater(want, 0)
                for path, more in (("flamegraph", {}), ("top", {}), ("timeseries", {"points": 7})):
                    a = self.get(path, q=q, step=step, **more)
                    self.assertEqual(total(a), want, (path, q, step))
                    self.assertEqual(a["step"]["name"], "train")
                    self.assertEqual(a["step"]["n"], len(numbers) * (2 if services == "a" else 3))

    def test_steps_any_cut_adds_up(self):
        rnd = random.Random(SEED)
        for _ in range(20):
            cut = rnd.randrange(60 * S)
            parts = [total(self.get("top", q="alloc", step="train", t0=t, seconds=n / S, limit=0))
                     for t, n in ((T0, cut), (T0 + cut, 60 * S - cut)) if n]
            self.assertEqual(sum(p or 0 for p in parts), self.expect("ab"))

    def test_steps_absent_is_not_zero(self):
        a = self.get("flamegraph", q="alloc", step="evaluate")
        self.assertEqual((a["total"], a["n"], a["empty"]["why"]), (None, 0, "no_steps"))
        a = self.get("flamegraph", q="alloc", step="train", t0=T0 + 300 * S, seconds=60)
        self.assertEqual(a["total"], None)
        a = self.get("timeseries", q="alloc", step="train:40-50", bucket="60s")
        self.assertEqual(set(a["series"][0]["value"]), {None})

    def test_steps_refused(self):
        for step in ("train:5-4", ":7"):
            a = self.get("top", status=400, q="alloc", step=step)
            self.assertEqual((a["error"]["code"], a["error"]["param"]), ("bad_parameter", "step"))
        a = self.get("top", status=422, q="live", step="train")
        self.assertEqual((a["error"]["code"], a["error"]["param"]), ("not_supported", "step"))

    def test_steps_listed(self):
        a = self.get("steps", q='{service="a"}', name="train", limit=5)
        self.assertEqual((a["n"], a["summary"]["n"]), (5, 24))
        durations = sorted(b - x for pid, _, x, b in self.marks if pid < 3)
        for key, at in (("min", 0), ("p50", 11), ("p90", 21), ("p99", 23), ("max", 23)):
            self.assertEqual(int(a["summary"][key]), durations[at], key)
        seen, after = [], None
        while True:
            a = self.get("steps", limit=7, sort="duration", **({"after": after} if after else {}))
            base = int(a["base_ns"])
            r = a["row"]
            seen += [(base + s, base + s + d, int(n), tid) for s, d, n, tid in
                     zip(r["start"], r["dur"], r["number"], r["tid"])]
            after = a["next"]
            if not after:
                break
        self.assertEqual(seen, sorted(((x, b, n, p) for p, n, x, b in self.marks),
                                      key=lambda v: v[0] - v[1]))


class PostSteps(Case):
    def body(self, steps, **more):
        return {"service": "rl", **more, "steps": steps}

    def test_post_is_durable(self):
        step = dict(name="update", number=3, t0_ns=T0 + S, t1_ns=str(T0 + 3 * S), tid=7,
                    attributes={"loss": "0.5"})
        r = self.post_steps(self.body([step], labels={"job": "j1"}, host="gpu7"))
        self.assertEqual((r["status"], r["steps"], r["rejected"]), ("stored", 1, []))
        self.assertGreater(int(r["lsn"]), 0)
        a = self.get("steps", name="update")
        self.s.kill()
        self.s.start()
        self.assertEqual(self.get("steps", name="update"), a)
        self.assertEqual(a["row"]["labels"], [dict(host="gpu7", job="j1", loss="0.5", service="rl")])
        self.assertEqual((a["row"]["number"], a["row"]["dur"], a["row"]["tid"]),
                         (["3"], [2 * S], [7]))
        self.assertEqual(a["row"]["target"], [None])
        self.assertEqual(self.get("steps", q='{service="other"}', name="update")["n"], 0)
        self.assertEqual(self.get("steps", q='{job="j1"}', name="update")["n"], 1)

    def test_post_identity(self):
        body = self.body([dict(name="once", number=1, t0_ns=T0, t1_ns=T0 + S)])
        headers = {"Strata-Batch-Id": "run-9:1"}
        self.assertEqual(self.post_steps(body, headers=headers)["status"], "stored")
        self.assertEqual(self.post_steps(body, headers=headers)["status"], "duplicate")
        self.s.kill()
        self.s.start()
        self.assertEqual(self.post_steps(body, headers=headers)["status"], "duplicate")
        body["steps"][0]["number"] = 2
        r = self.post_steps(body, status=409, headers=headers)
        self.assertEqual(r["error"]["code"], "seq_conflict")
        self.assertEqual(self.get("steps", name="once")["n"], 1)
        for _ in range(2):  # without one each counts
            self.post_steps(self.body([dict(name="twice", number=1, t0_ns=T0, t1_ns=T0 + S)]))
        self.assertEqual(self.get("steps", name="twice")["n"], 2)

    def test_post_of_a_process(self):
        b = sb.Batch()
        host = bytes(range(16))
        t = b.target(pid=77, comm="p", start_ns=T0 - 5 * S, pidns=9, host_id=host)
        b.stream("alloc", T0, T0 + 10 * S, basis="every", labels={"service": "rl"}, target=t,
                 rows=[dict(stack=["main"], t=T0 + i * S, value=1 << i, count=1, target=t)
                       for i in range(10)])
        self.send(b)
        r = self.post_steps(self.body([dict(name="it", number=1, t0_ns=T0 + 2 * S,
                                            t1_ns=T0 + 5 * S)],
                                      host=host.hex(), pid=77, pidns=9,
                                      process_start_ns=T0 - 5 * S))
        self.assertEqual(r["steps"], 1)
        a = self.get("flamegraph", q='alloc{service="rl"}', step="it:1")
        self.assertEqual((total(a), a["step"]["whole"]), (4 + 8 + 16, 1))

    def test_post_without_a_process_restricts_nothing(self):
        b = sb.Batch()
        b.stream("alloc", T0, T0 + 10 * S, basis="every", labels={"service": "import"},
                 rows=[dict(stack=["main"], value=5, count=1)])
        self.send(b)
        self.post_steps({"service": "import", "steps": [dict(name="lone", number=1, t0_ns=T0,
                                                             t1_ns=T0 + S)]})
        a = self.get("flamegraph", q='alloc{service="import"}', step="lone")
        self.assertEqual((a["total"], a["empty"]["why"]), (None, "no_steps"))
        self.assertIn("steps_without_process: 1 ", a["quality"]["warnings"][0])

    def test_post_refusals(self):
        ok = dict(name="r", number=1, t0_ns=T0, t1_ns=T0 + S)
        now = time.time_ns()
        r = self.post_steps(self.body([ok, dict(ok, t1_ns=T0), dict(ok, number=None),
                                       dict(ok, t0_ns=397, t1_ns=400),
                                       dict(ok, t1_ns=now + 700 * S, t0_ns=now + 690 * S)]))
        self.assertEqual(r["steps"], 1)
        self.assertEqual(r["rejected"], [dict(reason="bad_step", steps=2),
                                         dict(reason="too_old", steps=1),
                                         dict(reason="in_future", steps=1)])
        self.assertEqual(self.get("steps", name="r")["n"], 1)
        m = self.s.metrics()
        self.assertEqual(m['strata_rejected_total{proto="steps",reason="bad_step"}'], 2)
        for body, status, word in ((b"{", 400, "no JSON"), (b'{"steps":[]}', 400, "service"),
                                   (b'{"service":"a","steps":[],"x":1}', 400, "no such field"),
                                   (b" " * (1 << 20) + b" ", 413, "larger than its limit")):
            r = self.post_steps(body, status=status, raw=True)
            self.assertIn(word, r["error"]["message"])
        r = self.s.request("POST", "/api/v1/steps", body="q=cpu",
                           headers={"Content-Type": "application/x-www-form-urlencoded"})
        self.assertEqual((r.status, r.code), (415, "unsupported_media_type"))
        r = self.s.request("DELETE", "/api/v1/steps")
        self.assertEqual((r.status, r.headers["Allow"]), (405, "GET, HEAD, POST"))

    def test_post_gzip(self):
        body = json.dumps(self.body([dict(name="z", number=i, t0_ns=T0 + i, t1_ns=T0 + i + 1)
                                     for i in range(2000)])).encode()
        r = self.post_steps(gzip.compress(body), headers={"Content-Encoding": "gzip"}, raw=True)
        self.assertEqual(r["steps"], 2000)
        self.assertEqual(self.get("steps", name="z")["summary"]["n"], 2000)
        r = self.post_steps(gzip.compress(b" " * (64 << 20)), status=413, raw=True,
                            headers={"Content-Encoding": "gzip"})
        self.assertEqual(r["error"]["code"], "inflated_too_large")


class EventsAndSets(Case):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        b = sb.Batch(labels={"host": "h1"})
        one, two = (b.target(pid=p, comm=f"p{p}") for p in (1, 2))
        for t, service in ((one, "a"), (two, "b")):
            b.stream("cpu", T0, T0 + 10 * S, period=TICK, labels={"service": service}, target=t,
                     rows=[dict(stack=["main"], count=1, target=t)])
        b.event(T0 + 3 * S, "restart", "dur=2s cause=\"oom\"", target=one)
        b.event(T0 + 1 * S, "clock_step", "by=-1s")
        b.event(T0 + 2 * S, "state", "cpu <paused>", target=two)
        b.event(T0 + 3 * S, "state", "cpu ok", target=two)
        r = sb.post(cls.s.url, b)
        assert r["http"] == 200, r

    def events(self, **more):
        return [(v["kind"], (int(v["t_ns"]) - T0) // S) for v in self.get("events", **more)["events"]]

    def test_events(self):
        self.assertEqual(self.events()[:3], [("clock_step", 1), ("state", 2), ("restart", 3)])
        self.assertEqual(self.events(q='{service="a"}'), [("clock_step", 1), ("restart", 3)])
        self.assertEqual(self.events(q='{pid="2"}'), [("state", 2), ("state", 3)])
        self.assertEqual(self.events(t0=T0 + 2 * S, seconds=1), [("state", 2)])
        seen, after = [], None
        while True:
            a = self.get("events", limit=1, **({"after": after} if after else {}))
            seen += a["events"]
            after = a["next"]
            if not after:
                break
        self.assertEqual(seen, self.get("events")["events"])

    def test_series(self):
        a = self.get("series", q='cpu{host="h1"}')
        self.assertEqual([s["labels"] for s in a["series"]],
                         [dict(host="h1", service="a"), dict(host="h1", service="b")])
        self.assertEqual({s["type"]["id"] for s in a["series"]}, {"cpu:nanoseconds:sum"})
        first = self.get("series", q="cpu", limit=1)
        second = self.get("series", q="cpu", limit=1, after=first["next"])
        self.assertEqual(first["series"] + second["series"], a["series"])
        self.assertIsNone(second["next"])
        self.assertEqual(self.get("series", q='{service="none"}')["series"], [])

    def test_coverage(self):
        b = sb.Batch(labels={"host": "h2"})
        label = {"service": "c"}
        b.stream("gpu_kernel", T0, T0 + 10 * S, basis="every", labels=label, state="refused",
                 why="another subscriber")
        b.stream("gpu_kernel", T0 + 10 * S, T0 + 20 * S, basis="every", labels=label, expected=5,
                 received=3, lost={"gpu_dropped": (2, None)},
                 rows=[dict(stack=["k"], count=3, value=9)])
        b.stream("gpu_kernel", T0 + 30 * S, T0 + 40 * S, basis="every", labels=label, expected=0,
                 received=0)
        self.send(b)
        a = self.get("coverage", q='gpu_kernel{service="c"}', by="host")
        (source,) = a["sources"]
        self.assertEqual((source["host"], source["covered_ns"]), ("h2", str(20 * S)))
        self.assertEqual(source["runs"]["state"], ["refused", "ok", "ok"])
        self.assertEqual(source["runs"]["t"], [0, 10 * S, 30 * S])
        self.assertEqual(source["runs"]["why"][0], "another subscriber")
        self.assertEqual(source["lost"], [dict(why="gpu_dropped", n="2", weight=None)])
        self.assertEqual(source["loss_runs"]["t"], [10 * S])
        flame = self.get("flamegraph", q='gpu_kernel{service="c"}')
        self.assertEqual(flame["coverage"]["covered_ns"], source["covered_ns"])
        every = self.get("coverage", by="target")
        self.assertEqual({s["type"]["name"] for s in every["sources"]}, {"cpu", "gpu_kernel"})
        self.assertEqual(len([s for s in every["sources"] if s["type"]["name"] == "cpu"]), 2)


class OpenApi(Case):
    def test_openapi_is_the_page(self):
        a = self.s.get("/api/v1/openapi.json")
        self.assertEqual((a.status, a.headers["Content-Type"]), (200, "application/json"))
        here = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../docs/openapi.json")
        with open(here, "rb") as f:
            self.assertEqual(a.body, f.read())
        self.assertIn("/steps", a.json()["paths"])
        self.assertEqual(self.s.get("/api/v1/openapi.json", x=1).status, 400)


class Metrics(Case):
    def test_metrics_gauge_counter_and_status(self):
        b = sb.Batch(labels={"host": "h"})
        t = b.target(pid=5)
        b.stream("cpu", T0, T0 + 10 * S, period=TICK, labels={"service": "m"}, target=t,
                 rows=[dict(stack=["main"], count=1, target=t)])
        b.metric("process_rss", "bytes", T0, [(T0 + i * S, 1000 + i) for i in range(60)], target=t)
        b.metric("process_cpu", "nanoseconds", T0,
                 [(T0 + i * S, i * S // 2 if i < 30 else (i - 30) * S) for i in range(60)], kind=2,
                 target=t)
        b.metric("nvml_power", "milliwatts", T0, [(T0 + i * S, 1.5 * i) for i in range(10)],
                 labels={"gpu": "0"})
        self.send(b)
        names = {(m["name"], m["unit"], m["kind"]) for m in self.get("metrics")["metrics"]}
        self.assertEqual(names, {("process_rss", "bytes", "gauge"),
                                 ("process_cpu", "nanoseconds", "counter"),
                                 ("nvml_power", "milliwatts", "gauge")})
        mine = self.get("metrics", q='{service="m"}')["metrics"]  # those of its process
        self.assertEqual([m["name"] for m in mine], ["process_cpu", "process_rss"])
        self.assertEqual(self.get("metrics", q='{gpu="0"}')["metrics"][0]["labels"],
                         dict(gpu="0", host="h"))
        (line,) = self.get("metrics/query", name="process_rss", bucket="20s", agg="max",
                           q='{service="m"}', seconds=80)["series"]
        self.assertEqual((line["value"], line["status"]),
                         ([1019, 1039, 1059, None], [None, None, None, "no_data"]))
        (line,) = self.get("metrics/query", name="process_rss", bucket="20s", seconds=60)["series"]
        self.assertEqual((line["agg"], line["value"]), ("avg", [1009.5, 1029.5, 1049.5]))
        (line,) = self.get("metrics/query", name="process_cpu", bucket="10s", seconds=60)["series"]
        self.assertEqual((line["agg"], line["value_unit"], line["resets"]),
                         ("rate", "nanoseconds/s", 1))
        for got, want in zip(line["value"], [S / 2] * 3 + [S] * 3):
            self.assertAlmostEqual(got, want, delta=1)
        a = self.get("metrics/query", status=400, name="process_rss", agg="rate")
        self.assertEqual((a["error"]["code"], a["error"]["param"]), ("bad_parameter", "agg"))
        a = self.get("metrics/query", status=400)
        self.assertEqual(a["error"]["param"], "name")
        a = self.get("metrics/query", status=400, name="x", bucket="1ms", seconds=600)
        self.assertEqual((a["error"]["limit"], a["error"]["actual"]), (11000, 600000))


class SeriesOfAnyLength(Case):
    """Buckets from 1 ms up, aligned to nothing: each holds exactly its rows."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        rnd = random.Random(SEED)
        cls.rows = []
        for host in "xyz":
            b = sb.Batch(labels={"host": host})
            rows = [dict(stack=["main", rnd.choice("fgh")], t=T0 + rnd.randrange(40000) * MS,
                         value=rnd.randrange(1, 1 << 40), count=1) for _ in range(400)]
            cls.rows += [(r["t"], host, r["value"]) for r in rows]
            b.stream("alloc", T0, T0 + 40 * S, basis="every", labels={"service": "s"}, rows=rows)
            r = sb.post(cls.s.url, b)
            assert r["http"] == 200, r

    def check(self, t0, length, bucket, **more):
        a = self.get("timeseries", q="alloc", t0=t0, seconds=length / S, bucket=f"{bucket}ns",
                     numbers="string", **more)
        self.assertEqual((int(a["bucket_ns"]), a["n"]), (bucket, -(-length // bucket)))
        flame = self.get("flamegraph", q="alloc", t0=t0, seconds=length / S)
        self.assertEqual(a["total"], flame["total"])
        want = {}
        for t, host, value in self.rows:
            if t0 <= t < t0 + length:
                key = host if more else ""
                want.setdefault(key, {}).setdefault((t - t0) // bucket, []).append(value)
        for line in a["series"]:
            key = line["labels"].get("host", "")
            for i, v in enumerate(line["value"]):
                begin = t0 + i * bucket
                covered = max(0, min(begin + bucket, t0 + length, T0 + 40 * S) - max(begin, T0))
                self.assertEqual(line["covered"][i], covered)
                rows = want.get(key, {}).get(i)
                self.assertEqual(v, str(sum(rows)) if rows else "0" if covered else None)
        return a

    def test_series_odd_buckets(self):
        rnd = random.Random(SEED)
        for bucket in (MS, 1_500_000, 7 * MS + 1, 333_333_333, S, 13 * S, 100 * S):
            t0 = T0 + rnd.randrange(-2 * S, 30 * S)
            length = min(10_000 * bucket, rnd.randrange(5 * S, 15 * S))
            self.check(t0, length, bucket)
        self.check(T0 + 1, MS, MS)       # one bucket
        self.check(T0 - 1, 40 * S + 2, 9 * S)  # both edges a nanosecond outside

    def test_series_by_and_the_rest(self):
        self.check(T0, 12 * S, 700 * MS, by="host")
        a = self.get("timeseries", q="alloc", bucket="7s", by="host", groups=1, numbers="string",
                     seconds=40)
        named, rest = a["series"]
        self.assertEqual((named["rest"], rest["rest"], rest["labels"]), (False, True, {}))
        self.assertEqual(int(named["total"]) + int(rest["total"]), total(a))

    def test_series_limits(self):
        for more, limit, actual in (({"bucket": "1ms"}, 11000, 40000),
                                    ({"points": 11001}, 11000, 11001)):
            a = self.get("timeseries", status=400, q="alloc", seconds=40, **more)
            self.assertEqual((a["error"]["limit"], a["error"]["actual"],
                              a["error"]["setting"]), (limit, actual, "query.max_points"))
        a = self.get("timeseries", status=400, q="alloc", seconds=-1)
        self.assertEqual((a["error"]["code"], a["error"]["param"]), ("bad_range", "from"))


if __name__ == "__main__":
    unittest.main()
