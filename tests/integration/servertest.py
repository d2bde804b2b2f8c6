# SPDX-License-Identifier: Apache-2.0
"""Starts stratad for a test: a free port, a temporary directory, and its end.

    with Server() as s:
        s.get("/api/v1/types")          # Answer: status, headers, body, json()

Programs come from the environment: STRATAD, STRATA, STRATA_UI (a packed user interface; may be
missing).
"""
import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse

STRATAD = os.environ.get("STRATAD", "stratad")
STRATA = os.environ.get("STRATA", "strata")
START_S = 30


class Answer:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    def json(self):
        return json.loads(self.body)

    @property
    def code(self):
        return self.json()["error"]["code"]


class Server:
    """A running stratad. dir: its data directory, kept if it was given."""

    def __init__(self, *options, dir=None, prefix=(), wait=True, ui=None, settings=None):
        self.own_dir = dir is None
        self.dir = dir or tempfile.mkdtemp(prefix="stratad-test-")
        self.command = [*prefix, STRATAD, "--listen", "127.0.0.1:0", "--data", self.dir]
        if ui:
            self.command += ["--ui", ui]
        for name, value in (settings or {}).items():
            self.command += ["-o", f"{name}={value}"]
        self.command += options
        self.wait, self.process, self.port, self.log = wait, None, None, []

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.kill()
        if self.own_dir:
            shutil.rmtree(self.dir, ignore_errors=True)

    def start(self):
        self.port, self.log = None, []
        self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, text=True,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.listening, self.ready = threading.Event(), threading.Event()
        self.threads = [threading.Thread(target=f, daemon=True) for f in (self._out, self._err)]
        for t in self.threads:
            t.start()
        # the port is told on the one pipe, that it is ready on the other
        events = (self.listening, self.ready) if self.wait else (self.listening,)
        end = time.monotonic() + START_S
        while not all(e.wait(0.02) for e in events):
            if self.process.poll() is not None:
                for t in self.threads:
                    t.join(5)
                raise RuntimeError(f"stratad ended with {self.process.returncode}: {self.text()}")
            if time.monotonic() > end:
                self.kill()
                raise RuntimeError(f"stratad is not ready after {START_S} s: {self.text()}")

    def _out(self):
        for line in self.process.stdout:
            if line.startswith("ready: "):
                self.ready.set()

    def _err(self):
        for line in self.process.stderr:
            self.log.append(line)
            if "event=listening" in line:
                self.port = int(line.split("address=")[1].split()[0].strip('"').rsplit(":", 1)[1])
                self.listening.set()

    def text(self):
        return "".join(self.log)

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def kill(self, sig=signal.SIGKILL):
        """End it; the exit status."""
        if self.process is None:
            return None
        if self.process.poll() is None:
            self.process.send_signal(sig)
        status = self.process.wait(30)
        for t in self.threads:
            t.join(5)
        self.process.stdout.close()
        self.process.stderr.close()
        self.process = None
        return status

    def stop(self):
        status = self.kill(signal.SIGTERM)
        if status:
            print(f"stratad ended with {status}:\n{self.text()}", file=sys.stderr)
        return status

    # ---- asking -----------------------------------------------------------------------------
    def request(self, method, path, body=None, headers=None, timeout=30):
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            c.request(method, path, body=body, headers=headers or {})
            r = c.getresponse()
            return Answer(r.status, r.headers, r.read())
        finally:
            c.close()

    def get(self, path, headers=None, **parameters):
        if parameters:
            path += "?" + urllib.parse.urlencode(parameters, doseq=True)
        return self.request("GET", path, headers=headers)

    def connect(self):
        return socket.create_connection(("127.0.0.1", self.port), timeout=30)

    def metrics(self):
        """{'name{labels}': value}"""
        values = {}
        for line in self.get("/metrics").body.decode().splitlines():
            if not line.startswith("#"):
                name, value = line.rsplit(" ", 1)
                values[name] = float(value)
        return values


def run_to_end(*arguments, timeout=30, **more):
    """A stratad that is expected not to start: (status, stderr)."""
    done = subprocess.run([STRATAD, *arguments], stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, timeout=timeout, **more)
    return done.returncode, done.stderr


def strata(server, *arguments, timeout=60, env=None):
    return subprocess.run([STRATA, *arguments], stdin=subprocess.DEVNULL, capture_output=True,
                          timeout=timeout,
                          env={**os.environ, "STRATA_SERVER": server.url, **(env or {})})
