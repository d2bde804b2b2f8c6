#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Steps without an agent: STRATA_SERVER set, programs in C and Python send what they marked. No
rights needed. A server that is not there, or refuses, costs the program nothing but a count.
"""
import http.server
import os
import subprocess
import sys
import threading
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from servertest import Server

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
STEPS = os.path.join(os.environ.get("STRATA_AGENT_TESTS", "build/tests/agent"), "steps")
STEPS_PY = os.path.join(ROOT, "tests/agent/workloads/steps.py")
SDK = os.path.join(ROOT, "sdk/python")


class Program:
    def __init__(self, *command, server, service):
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env={**os.environ, "STRATA_SERVER": server, "STRATA_SERVICE": service, "RANK": "3",
                 "STRATA_LABELS": "team=x", "STRATA_SDK": SDK})
        self.truth, self.counts = [], {}
        assert self.process.stdout.readline() == "ready\n"

    def go(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        self.read()

    def read(self):
        for line in self.process.stdout:
            words = line.split()
            if words[0] == "done":
                return
            if words[0] == "counts":
                self.counts = dict(zip(("probe", "sent", "dropped", "errors"), map(int, words[1:])))
            elif len(words) == 7:
                n = list(map(int, words[1:]))
                self.truth.append((words[0], n[0], n[1], n[2], n[3], n[4], n[5]))

    def tick(self, n, pause=0.02):
        """Calls that let the C library go on with its request."""
        for _ in range(n):
            self.process.stdin.write("\n")
            self.process.stdin.flush()
            time.sleep(pause)

    def end(self):
        self.process.stdin.close()
        code = self.process.wait(timeout=30)
        self.process.stdout.close()
        error = self.process.stderr.read()
        self.process.stderr.close()
        return code, error


class Refuses(http.server.BaseHTTPRequestHandler):
    """Answers what its server was told to."""

    def do_POST(self):  # pylint: disable=invalid-name
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.seen.append((self.headers["Strata-Batch-Id"], body))
        status = self.server.answers.pop(0) if self.server.answers else 200
        self.send_response(status)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_):
        pass


class Http(unittest.TestCase):
    def alone(self, p):
        if p.counts.get("probe"):
            p.process.kill()
            p.process.communicate()
            self.skipTest("an agent listens on this machine: it goes before the server")

    def asked(self, server, service, n):
        end = time.monotonic() + 25
        while True:
            answer = server.get(f"/api/v1/steps?q=cpu%7Bservice%3D%22{service}%22%7D&from=now-5m"
                                "&limit=10000")
            a = answer.json()
            if a.get("n", 0) >= n or time.monotonic() > end:
                return a
            time.sleep(0.2)

    def compare(self, p, a, what):
        row, base = a["row"], int(a["base_ns"])
        rows = sorted((a["names"][row["name"][i]]["name"], int(row["number"][i]), row["tid"][i],
                       base + int(row["start"][i]), base + int(row["start"][i]) + int(row["dur"][i]))
                      for i in range(a["n"]))
        truth = sorted(p.truth)
        self.assertEqual([r[:3] for r in rows], [t[:3] for t in truth])
        for r, t in zip(rows, truth):  # the program's own clock: inside the bracket
            self.assertTrue(t[3] <= r[3] <= t[4] and t[5] <= r[4] <= t[6] + 1, (r, t))
        labels = a["row"]["labels"][0]
        self.assertEqual({k: labels.get(k) for k in ("service", "rank", "team")},
                         {"service": labels["service"], "rank": "3", "team": "x"})
        self.assertEqual(len(set(a["row"]["target"])), 1)
        print(f"{what}: {len(rows)} of {len(truth)} steps")

    def test_python(self):
        with Server() as server:
            p = Program(sys.executable, STEPS_PY, server=server.url, service="http-py")
            p.go()
            self.alone(p)
            self.assertEqual(p.end(), (0, ""))  # what waits is sent at the exit
            a = self.asked(server, "http-py", len(p.truth))
            self.compare(p, a, "Python over HTTP")
            epoch = next(i for i in range(a["n"])
                         if a["names"][a["row"]["name"][i]]["name"] == "epoch")
            self.assertEqual(a["row"]["labels"][epoch]["phase"], "warm")

    def test_c(self):
        with Server() as server:
            p = Program(STEPS, "all", server=server.url, service="http-c")
            p.go()
            self.alone(p)
            self.assertLess(p.counts["dropped"], len(p.truth))
            # what waits is sent every 5 s, and the request goes on by calls alone
            left, end = {t[:3] for t in p.truth}, time.monotonic() + 40
            while len(left) > p.counts["dropped"] and time.monotonic() < end:
                p.tick(20)
                a = self.asked(server, "http-c", 1)
                left -= {(a["names"][a["row"]["name"][i]]["name"], int(a["row"]["number"][i]),
                          a["row"]["tid"][i]) for i in range(a["n"])}
            code, error = p.end()
            self.assertEqual((code, error), (0, ""))
            names = [a["names"][k]["name"] for k in a["row"]["name"]]
            got = [i for i, n in enumerate(names) if n != "tick"]
            numbers = {(names[i], int(a["row"]["number"][i]), a["row"]["tid"][i]) for i in got}
            self.assertTrue(numbers <= {t[:3] for t in p.truth})
            self.assertEqual(len(got), len(numbers))
            missing = len(p.truth) - len(got)  # a lost begin makes its end one more lost call
            self.assertTrue(missing <= p.counts["dropped"] <= 2 * missing)
            print(f"C over HTTP: {len(got)} of {len(p.truth)} steps, {p.counts['dropped']} dropped, "
                  "counted")

    def test_no_server(self):
        for command in ((STEPS, "all"), (sys.executable, STEPS_PY)):
            begin = time.monotonic()
            p = Program(*command, server="http://127.0.0.1:1", service="http-none")
            p.go()
            self.alone(p)
            self.assertEqual(p.end(), (0, ""))
            self.assertLess(time.monotonic() - begin, 15)
            self.assertEqual(p.counts["sent"], 0)
        for url in ("nonsense", "http://", "http://127.0.0.1:99999", "ftp://x", "http://[::"):
            p = Program(STEPS, "all", server=url, service="http-none")
            p.go()
            self.alone(p)
            self.assertEqual(p.end(), (0, ""))
            self.assertEqual(p.counts["sent"] + p.counts["errors"], 0)

    def test_resent_once(self):
        """A failed request comes again as it was; a refused one does not."""
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Refuses)
        server.seen, server.answers = [], [503, 200, 400]
        threading.Thread(target=server.serve_forever, daemon=True).start()
        code = ("import sys, time; sys.path.insert(0, sys.argv[1]); import strata\n"
                "if strata._semaphore.value: sys.exit(77)\n"
                "strata._EVERY_S = 0.2\n"
                "def one(k):\n"
                "    with strata.step('s', k): pass\n"
                "def until(sent, dropped, errors):\n"
                "    for _ in range(200):\n"
                "        s = strata.stats()\n"
                "        if s['probe']: sys.exit(77)\n"
                "        if (s['sent'], s['dropped'], s['errors']) >= (sent, dropped, errors): return\n"
                "        time.sleep(0.05)\n"
                "one(1); until(1, 0, 1); one(2); until(1, 1, 2)\n"
                "print(strata.stats())")
        done = subprocess.run([sys.executable, "-c", code, SDK], capture_output=True, text=True,
                              timeout=30, check=False,
                              env={**os.environ,
                                   "STRATA_SERVER": f"http://127.0.0.1:{server.server_port}"})
        server.shutdown()
        server.server_close()
        if done.returncode == 77:
            self.skipTest("an agent listens on this machine")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(len(server.seen), 3)
        self.assertEqual(server.seen[0], server.seen[1])
        self.assertNotEqual(server.seen[1][0], server.seen[2][0])
        self.assertIn("'sent': 1, 'dropped': 1, 'errors': 2", done.stdout)


if __name__ == "__main__":
    unittest.main()
