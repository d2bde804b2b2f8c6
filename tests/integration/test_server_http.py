#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What stratad says over HTTP, whatever it stores: routes, headers, pages, tokens, slow clients."""
import base64
import gzip
import hashlib
import os
import shutil
import signal
import socket
import tempfile
import time
import unittest

import stratabatch as sb
from servertest import STRATAD, Server
from test_server_start import one_batch

CSP = ("default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
       "connect-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'; "
       "require-trusted-types-for 'script'; trusted-types lit-html")


class Routes(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.s = Server(settings={"ingest.connections_per_address": 64})
        cls.s.start()

    @classmethod
    def tearDownClass(cls):
        cls.s.__exit__()

    def test_health(self):
        self.assertEqual(self.s.get("/healthz").body, b"ok\n")
        self.assertEqual(self.s.get("/readyz").status, 200)

    def test_methods(self):
        for method, path, allow in [("GET", "/api/v1/batch", "POST"),
                                    ("POST", "/metrics", "GET, HEAD"),
                                    ("PUT", "/api/v1/types", "GET, HEAD, POST"),
                                    ("DELETE", "/", "GET, HEAD")]:
            r = self.s.request(method, path)
            self.assertEqual((r.status, r.headers["Allow"]), (405, allow))

    def test_unknown(self):
        r = self.s.get("/api/v1/nothing")
        self.assertEqual((r.status, r.headers["Content-Type"]), (404, "application/json"))
        r = self.s.get("/nothing")
        self.assertEqual((r.status, r.headers["Content-Type"]), (404, "text/plain"))
        for path in ["/..%2f..%2fetc/passwd", "/ui/../../etc/passwd", "/ui/%00", "//etc/passwd",
                     "/ui/x/%2e%2e/%2e%2e/manifest.tsv"]:
            self.assertEqual(self.s.get(path).status, 404, path)

    def test_headers(self):
        for path in ["/api/v1/types", "/api/v1/nothing", "/healthz", "/metrics", "/nothing"]:
            h = self.s.get(path).headers
            self.assertEqual(h["X-Content-Type-Options"], "nosniff", path)
            self.assertEqual(h["Referrer-Policy"], "no-referrer")
            self.assertEqual(h["Cross-Origin-Resource-Policy"], "same-origin")
            self.assertRegex(h["X-Request-Id"], "^[0-9a-f]{16}$")
            self.assertRegex(h["Server-Timing"], r"^total;dur=[0-9.]+$")
            self.assertIn("default-src 'none'", h["Content-Security-Policy"])

    def test_bad_host(self):
        r = self.s.get("/api/v1/types", headers={"Host": "evil.example"})
        self.assertEqual((r.status, r.code), (421, "bad_host"))
        for host in ["localhost", "127.0.0.1:4040", "[::1]"]:
            self.assertEqual(self.s.get("/healthz", headers={"Host": host}).status, 200)

    def test_foreign_origin(self):
        for headers in [{"Origin": "http://evil.example"}, {"Origin": "null"},
                        {"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"}]:
            r = self.s.request("POST", "/api/v1/types", headers=headers)
            self.assertEqual(r.status, 403, headers)
        r = self.s.request("POST", "/api/v1/types",
                           headers={"Origin": f"http://127.0.0.1:{self.s.port}"})
        self.assertEqual(r.status, 200)

    def test_parameters(self):
        r = self.s.get("/api/v1/types", nonsense=1)
        self.assertEqual(r.status, 400)
        self.assertEqual(r.json()["error"]["param"], "nonsense")
        self.assertEqual(r.json()["error"]["request_id"], r.headers["X-Request-Id"])
        self.assertEqual(self.s.get("/api/v1/types?q=%zz").status, 400)
        r = self.s.request("POST", "/api/v1/types", body="q=cpu&from=now-5m",
                           headers={"Content-Type": "application/x-www-form-urlencoded"})
        self.assertEqual(r.status, 200)
        r = self.s.request("POST", "/api/v1/types", body="x" * 70000,
                           headers={"Content-Type": "application/x-www-form-urlencoded"})
        self.assertEqual((r.status, r.json()["error"]["setting"]), (413, "query.form"))

    def test_gzip_and_head(self):
        r = self.s.get("/metrics", headers={"Accept-Encoding": "gzip"})
        self.assertEqual(r.headers["Content-Encoding"], "gzip")
        self.assertIn(b"strata_build_info", gzip.decompress(r.body))
        self.assertIn("Accept-Encoding", r.headers["Vary"])
        r = self.s.get("/metrics", headers={"Accept-Encoding": "gzip;q=0"})
        self.assertNotIn("Content-Encoding", r.headers)
        r = self.s.request("HEAD", "/metrics")
        self.assertEqual((r.status, r.body), (200, b""))
        self.assertGreater(int(r.headers["Content-Length"]), 1000)

    def test_metrics_text(self):
        seen, helped = set(), set()
        r = self.s.get("/metrics")
        self.assertTrue(r.headers["Content-Type"].startswith("text/plain; version=0.0.4"))
        for line in r.body.decode().splitlines():
            if line.startswith("# HELP "):
                helped.add(line.split()[2])
            elif not line.startswith("#"):
                name = line.split("{")[0].split()[0]
                for end in ("_bucket", "_sum", "_count"):
                    if name.endswith(end) and name[:-len(end)] in helped:
                        name = name[:-len(end)]
                self.assertIn(name, helped)
                self.assertNotIn(line.rsplit(" ", 1)[0], seen)
                seen.add(line.rsplit(" ", 1)[0])
        self.assertIn("strata_ready", seen)

    def test_long_address_and_headers(self):
        r = self.s.get("/api/v1/types?q=" + "a" * 9000)
        self.assertEqual((r.status, r.json()["error"]["setting"]), (414, "ingest.uri"))
        r = self.s.get("/healthz", headers={f"X-{i}": "a" * 6000 for i in range(6)})
        self.assertEqual((r.status, r.code), (431, "headers_too_large"))

    def test_keep_alive(self):
        c = self.s.connect()
        for _ in range(20):
            c.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            self.assertIn(b"200 OK", c.recv(4096))
        c.close()


class Etag(unittest.TestCase):
    def test_absolute_range(self):
        with Server() as s:
            self.assertEqual(sb.post(s.url, one_batch())["http"], 200)
            end = (time.time_ns() // 10**9 + 1) * 10**9
            ask = dict(q="cpu", **{"from": f"{end - 60 * 10**9}ns", "to": f"{end}ns"})
            first = s.get("/api/v1/top", **ask)
            self.assertEqual(first.status, 200, first.body)
            self.assertIn("no-cache", first.headers["Cache-Control"])
            again = s.get("/api/v1/top", headers={"If-None-Match": first.headers["ETag"]}, **ask)
            self.assertEqual((again.status, again.body), (304, b""))
            self.assertEqual(sb.post(s.url, one_batch())["http"], 200)
            new = s.get("/api/v1/top", headers={"If-None-Match": first.headers["ETag"]}, **ask)
            self.assertEqual(new.status, 200)


class Pages(unittest.TestCase):
    def setUp(self):
        self.ui = os.environ.get("STRATA_UI")
        if not self.ui:
            self.skipTest("no packed user interface (STRATA_UI)")

    def test_served(self):
        with open(os.path.join(self.ui, "manifest.tsv"), encoding="utf-8") as f:
            rows = [line.rstrip("\n").split("\t") for line in f]
        with Server(ui=self.ui) as s:
            for url, media, name, size, gz in rows:
                with open(os.path.join(self.ui, name), "rb") as f:
                    want = f.read()
                r = s.get(url)
                self.assertEqual(r.status, 200, url)
                self.assertEqual(r.headers["Content-Type"], media)
                self.assertEqual(r.headers["Content-Security-Policy"], CSP)
                if url.startswith("/ui/"):
                    self.assertEqual(r.body, want)
                    self.assertEqual(r.headers["Cache-Control"],
                                     "public, max-age=31536000, immutable")
                    self.assertEqual(r.headers["Strata-UI"], url.split("/")[2])
                else:
                    self.assertEqual(r.body, want.replace(b"@BASE@", b""))
                    self.assertIn("no-cache", r.headers["Cache-Control"])
                    r = s.get(url, headers={"If-None-Match": r.headers["ETag"]})
                    self.assertEqual(r.status, 304)
                r = s.get(url, headers={"Accept-Encoding": "gzip"})
                if gz != "-":
                    self.assertEqual(gzip.decompress(r.body), want)
            r = s.get("/ui/0000000000000000/js/main.js")
            self.assertEqual((r.status, r.headers["Cache-Control"]), (404, "no-store"))


class Tokens(unittest.TestCase):
    def test_roles(self):
        d = tempfile.mkdtemp(prefix="stratad-test-")
        self.addCleanup(shutil.rmtree, d, True)
        path = os.path.join(d, "tokens")
        with open(path, "w", encoding="utf-8") as f:
            for role in ("ingest", "read", "admin"):
                f.write(f"{role} {role} {hashlib.sha256(role.encode()).hexdigest()}\n")
        os.chmod(path, 0o600)
        with Server("-o", f"http.tokens={path}") as s:
            bearer = lambda t: {"Authorization": f"Bearer {t}"}
            basic = base64.b64encode(b"x:read").decode()
            for route, good in [("/api/v1/types", "read"), ("/metrics", "read")]:
                self.assertEqual(s.get(route).status, 401)
                self.assertEqual(s.get(route, headers=bearer("wrong")).status, 401)
                self.assertEqual(s.get(route, headers=bearer("ingest")).status, 403)
                self.assertEqual(s.get(route, headers=bearer(good)).status, 200)
                self.assertEqual(s.get(route, headers={"Authorization": f"Basic {basic}"}).status,
                                 200)
            for route in ("/healthz", "/readyz"):
                self.assertEqual(s.get(route).status, 200)
            b = one_batch()
            self.assertEqual(sb.post(s.url, b)["http"], 401)
            self.assertEqual(sb.post(s.url, b, headers=bearer("read"))["reason"], "forbidden")
            self.assertEqual(sb.post(s.url, b, headers=bearer("ingest"))["status"], "stored")
            # any host name is right where tokens decide
            self.assertEqual(s.get("/healthz", headers={"Host": "elsewhere"}).status, 200)
            # SIGHUP reads the file again; one that is not right changes nothing
            for text, good in [("new read " + hashlib.sha256(b"new").hexdigest() + "\n", "new"),
                               ("nonsense\n", "new")]:
                with open(path, "w", encoding="utf-8") as f:
                    f.write(text)
                s.process.send_signal(signal.SIGHUP)
                self.await_text(s, "reloaded" if text.startswith("new") else "reload_failed")
                self.assertEqual(s.get("/api/v1/types", headers=bearer(good)).status, 200)
                self.assertEqual(s.get("/api/v1/types", headers=bearer("read")).status, 401)
            self.assertIn("reload_failed", s.text())
            self.assertNotIn("Bearer", s.text())

    def await_text(self, s, text):
        end = time.monotonic() + 5
        while text not in s.text() and time.monotonic() < end:
            time.sleep(0.05)


class Slow(unittest.TestCase):
    """Connections that trickle are closed, and cost others nothing."""

    def test_slow_senders(self):
        with Server(settings={"ingest.request_time": "2s"}) as s:
            slow = [s.connect() for _ in range(20)]
            for c in slow:
                c.sendall(b"POST /api/v1/batch HTTP/1.1\r\nHost: localhost\r\n")
            begun, worst, open_ = time.monotonic(), 0, set(slow)
            while open_ and time.monotonic() - begun < 10:
                for c in list(open_):
                    try:
                        c.sendall(b"X")
                        c.settimeout(0.001)
                        if c.recv(1) == b"":
                            open_.remove(c)
                    except socket.timeout:
                        pass
                    except OSError:
                        open_.discard(c)
                t = time.monotonic()
                self.assertEqual(s.get("/healthz").status, 200)
                worst = max(worst, time.monotonic() - t)
                time.sleep(0.2)
            self.assertFalse(open_)
            self.assertLess(worst, 0.5)
            self.assertEqual(s.metrics()['strata_http_refused_total{reason="too_slow"}'], 20)
            for c in slow:
                c.close()

    def test_idle(self):
        with Server(settings={"ingest.idle": "1s"}) as s:
            c = s.connect()
            begun = time.monotonic()
            self.assertEqual(c.recv(1), b"")
            self.assertLess(time.monotonic() - begun, 5)
            c.close()

    def test_cut_requests(self):
        """Peers that go away inside a request: their connections end long before the request's
        time, and nothing of them is kept."""
        starts = (b"GET /%s HTTP/1.1\r\nHos" % (b"a" * 7000), b"GET /a",
                  b"POST /api/v1/batch HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
                  + sb.MEDIA_TYPE.encode() + b"\r\nContent-Length: 100\r\n\r\nab")
        with Server(settings={"ingest.connections_per_address": 4096,
                              "ingest.request_time": "60s"}) as s:
            def round_of(n):
                for i in range(n):
                    c = s.connect()
                    c.sendall(starts[i % len(starts) if n < 1000 else 0])
                    c.close()
                end = time.monotonic() + 10
                # the one that asks, and perhaps the one that asked before
                while (left := s.metrics()["strata_http_connections"]) > 2:
                    self.assertLess(time.monotonic(), end, f"{left} connections are left")
                    time.sleep(0.1)
                with open(f"/proc/{s.process.pid}/statm", encoding="ascii") as f:
                    return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

            round_of(30)
            before = round_of(1000)
            after = max(round_of(1000) for _ in range(2))
            with open(STRATAD, "rb") as f:
                if b"__asan_init" in f.read():
                    return  # it keeps freed memory for a while, and finds leaks by itself
            self.assertLess(after - before, 16 << 20)

    def test_connections_per_address(self):
        with Server(settings={"ingest.connections_per_address": 4}) as s:
            held = [s.connect() for _ in range(4)]
            for c in held:
                c.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
                self.assertIn(b"200 OK", c.recv(4096))
            c = s.connect()
            c.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
            self.assertIn(b"503 ", c.recv(4096))
            # whether it lives can be asked all the same
            self.assertEqual(s.get("/healthz").status, 200)
            self.assertEqual(s.get("/readyz").status, 200)
            for c in [c, *held]:
                c.close()
            time.sleep(0.2)
            refused = s.metrics()['strata_http_refused_total{reason="too_many_connections"}']
            self.assertEqual(refused, 1)


if __name__ == "__main__":
    unittest.main(verbosity=2)
