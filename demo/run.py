#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Server, agent and demo on this machine, together. What ./dev run calls.

usage: run.py --build BUILD_FOLDER [--check] [--port PORT] [--data FOLDER] [--seconds N]

Without --check: starts the three, prints the address of the UI and the demo's largest functions,
runs until Ctrl-C. With --check: samples for some seconds, asks the API for the demo's flame graph,
compares it with what the demo burns by construction (check.py), stops everything.
Exit status: 0; 1 failed; 77 no source can sample here (last line: no BPF here: REASON).
"""
import argparse
import ctypes
import fcntl
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
DEFAULT_PORT = 4040
ENOUGH_SAMPLES = 100  # for a first picture,
ENOUGH_SECONDS = 4.4  # or this old
NO_BPF = 77  # status of strata-agent, and ours
PATIENCE = 60  # seconds, on a busy machine
STOP_SECONDS = 20  # what a program may take to stop before it is killed
CAPABILITIES = ("cap_bpf,cap_perfmon,cap_sys_ptrace,cap_checkpoint_restore,"
                "cap_dac_read_search,cap_syslog=ep")


class Failure(Exception):
    """What went wrong, in words for a person."""


class NoBpf(Exception):
    """strata-agent cannot sample on this machine, or not with these rights."""


class Stopped(Exception):
    """Ctrl-C or SIGTERM."""


BEGUN = time.monotonic()


def say(text):
    print(f"{time.monotonic() - BEGUN:6.1f} s  {text}", flush=True)


def shown(path):
    short = os.path.relpath(path)
    return path if short.startswith("..") else short


def on_signal(number, _frame):
    raise Stopped(signal.Signals(number).name)


# ---- programs ------------------------------------------------------------------------------------


def follow_parent():
    """In the child: end when run.py ends, even if that was killed."""
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Program:
    """One of the three, with its standard error in a log."""

    def __init__(self, name, command, log_dir, env=None, stdout=None):
        self.name = name
        self.log = os.path.join(log_dir, name + ".log")
        self.ended = None
        with open(self.log, "wb") as log:
            # a session of its own: Ctrl-C reaches us alone, and we stop the three in order
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=stdout or log, stderr=log,
                env={**os.environ, **(env or {})}, start_new_session=True,
                preexec_fn=follow_parent)

    def check(self):
        """Failure if it ended although nobody asked it to."""
        status = self.process.poll()
        if status is None:
            return
        if self.name == "strata-agent" and status == NO_BPF:
            raise NoBpf()
        raise Failure(f"{self.name} ended with status {status}:\n{self.tail()}")

    def tail(self, lines=15):
        with open(self.log, encoding="utf-8", errors="replace") as log:
            return "".join("    " + l for l in log.readlines()[-lines:]) or "    (no message)\n"

    def stop(self):
        """SIGTERM, and SIGKILL where that does not help. Returns its exit status."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                say(f"{self.name} does not stop: killed (log: {self.log})")
                self.process.kill()
                self.process.wait()
        return self.process.returncode


def free_port(wanted):
    """The default port where it is free, else one that the kernel gives. A port that was asked for
    and is taken is an error."""
    for port in (wanted or DEFAULT_PORT, 0):
        with socket.socket() as s:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                s.bind(("127.0.0.1", port))
                return s.getsockname()[1]
            except OSError as error:
                if wanted:
                    raise Failure(f"port {wanted}: {error.strerror}: stop what uses it "
                                  f"(ss -ltnp 'sport = :{wanted}') or take another --port") from error
                say(f"port {port} is in use: taking a free one")
    raise Failure("no free port")


def refuse_used(data):
    """Failure if a stratad has this folder's store open; nothing in it was touched then."""
    try:
        lock = os.open(os.path.join(data, "store", "LOCK"), os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return  # no store yet, or not ours: stratad says what is wrong with it
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise Failure(f"{shown(data)} is in use: stop the ./dev run that uses it, or give this one "
                      "a folder of its own: ./dev run --data FOLDER") from None
    finally:
        os.close(lock)


# ---- API -----------------------------------------------------------------------------------------


class Api:
    def __init__(self, port):
        self.base = f"http://127.0.0.1:{port}"

    def get(self, path, **parameters):
        url = self.base + path
        if parameters:
            url += "?" + urllib.parse.urlencode(parameters)
        try:
            with urllib.request.urlopen(url, timeout=30) as answer:
                body = answer.read()
        except urllib.error.HTTPError as error:
            text = error.read(2000).decode(errors="replace")
            raise Failure(f"GET {url}: {error.code}: {text}") from error
        except OSError as error:
            raise Failure(f"GET {url}: {error}") from error
        return json.loads(body)

    def ready(self):
        try:
            with urllib.request.urlopen(self.base + "/readyz", timeout=2) as answer:
                return answer.status == 200
        except OSError:
            return False

    def top(self, selector, since_ns):
        """Rows (name, self, samples) of the demo's largest functions, and its total; or None."""
        # "now" is the last whole second, which may lie before what began within this one
        answer = self.get("/api/v1/top", q=selector, sort="self", limit=3,
                          **{"from": f"{since_ns}ns", "to": "now+1s"})
        if not answer.get("total") or answer["total"] == "0":
            return None
        names = function_names(answer)
        row = answer["row"]
        rows = [(names[f], int(s)) for f, s in zip(row["func"], row["self"])]
        return rows, int(answer["total"]), int(answer["samples"] or 0)


def function_names(answer):
    strings = answer["strings"]
    return [strings[i] for i in answer["func"]["name"]]


# ---- the row of steps ----------------------------------------------------------------------------


class Run:
    def __init__(self, options):
        self.options = options
        self.programs = []
        self.folder = None   # of a --check: removed at the end
        self.api = None
        self.data = None
        self.told_ready = False
        self.status_file = None
        self.selector = None
        self.rights = None
        self.begun_ns = time.time_ns()

    def path(self, *parts):
        path = os.path.join(self.options.build, *parts)
        if not os.path.exists(path):
            raise Failure(f"{path}: not built: ./dev build")
        return path

    def start(self, name, command, **more):
        program = Program(name, command, self.folder, **more)
        self.programs.append(program)
        return program

    def check_programs(self):
        for program in self.programs:
            program.check()

    def wait(self, what, seconds, ready):
        """Until ready() gives something that counts, with a sign of life every 2 s."""
        end = time.monotonic() + seconds
        spoken = time.monotonic()
        while True:
            got = ready()
            if got:
                return got
            self.check_programs()
            now = time.monotonic()
            if now > end:
                logs = "".join(f"  {p.name}:\n{p.tail(8)}" for p in self.programs)
                raise Failure(f"{what}: nothing after {seconds} s\n{logs}")
            if now - spoken > 2:
                say(f"waiting for {what} ...")
                spoken = now
            time.sleep(0.1)

    def ask_rights(self):
        """Asks strata-agent what this machine allows; refused() takes its answer."""
        self.rights = subprocess.Popen(
            [self.path("agent", "strata-agent"), "check"], stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, preexec_fn=follow_parent)

    def refused(self):
        """Why this machine cannot be sampled; None if it can."""
        agent = self.path("agent", "strata-agent")
        text = self.rights.communicate(timeout=60)[0].strip()
        if self.rights.returncode == 0:
            return None
        print("\n".join(l for l in text.splitlines() if l.split()[1:2] != ["ok"]), flush=True)
        if self.rights.returncode == 1:  # degraded: named above, the rest works
            return None
        if os.geteuid() != 0:
            say("to grant the rights, one of")
            print(f"          sudo ./dev run\n"
                  f"          sudo setcap {CAPABILITIES} {agent}", flush=True)
        return text.splitlines()[-1] if text else f"strata-agent check: status {self.rights.returncode}"

    def start_server(self, data):
        port = free_port(self.options.port)
        self.api = Api(port)
        self.data = data
        return self.start("stratad", [
            self.path("server", "stratad"), "--listen", f"127.0.0.1:{port}", "--data", data,
            "--ui", self.path("web", "ui")])

    def start_agent(self):
        state = os.path.join(os.path.dirname(self.folder) if not self.options.check
                             else self.folder, "agent")
        os.makedirs(state, mode=0o700, exist_ok=True)
        self.status_file = os.path.join(state, "status")
        return self.start("strata-agent", [
            self.path("agent", "strata-agent"), "-o", f"server.url={self.api.base}",
            "-o", "batch.interval=1s", "--state-dir", state, "--status-file", self.status_file])

    def agent_status(self):
        with open(self.status_file, encoding="utf-8") as file:
            return json.load(file)

    def status_command(self):
        return (f"{shown(self.path('cli', 'strata'))} agent status "
                f"--state-dir {shown(os.path.dirname(self.status_file))}")

    def start_demo(self):
        return self.start("demo", [self.path("demo", "demo")], env={"STRATA_SERVICE": "demo"},
                          stdout=subprocess.PIPE)

    def wait_for_server(self):
        if self.told_ready:
            return
        self.wait("stratad to be ready", PATIENCE, self.api.ready)
        say(f"stratad       {self.api.base}/   data in {shown(self.data)}")
        self.told_ready = True

    def start_agent_and_demo(self, in_turn=False):
        agent = self.start_agent()
        say(f"strata-agent  pid {agent.process.pid}, samples every program of this machine")
        if in_turn:
            self.wait_for_agent()
        self.begun_ns = time.time_ns()
        demo = self.start_demo()
        # other programs of that name may run: this one alone
        self.selector = f'cpu{{service="demo",pid="{demo.process.pid}"}}'
        say(f"demo          pid {demo.process.pid}, burns 60 / 30 / 10 % in three functions")

    def largest(self):
        """As soon as there are enough samples to name three, or after some seconds what there is."""
        def picture():
            top = self.api.top(self.selector, self.begun_ns)
            enough = top and (top[2] >= ENOUGH_SAMPLES or time.monotonic() - BEGUN > ENOUGH_SECONDS)
            return top if enough else None

        return self.wait("the first samples of the demo", PATIENCE, picture)

    def wait_for_agent(self):
        """Until it has closed a window: what starts from now on is covered from its first instant."""
        def sampling():
            try:
                return int(self.agent_status()["figures"]["agent_windows"]) > 0
            except (OSError, ValueError, KeyError):
                return False

        self.wait("strata-agent to sample", PATIENCE, sampling)

    def stop(self):
        """The demo first, then the agent, which sends what it still has, then the server."""
        statuses = {}
        for program in reversed(self.programs):
            statuses[program.name] = program.stop()
        return statuses

    # ---- verbs

    def run(self):
        data = os.path.abspath(self.options.data or os.path.join("build", "run-data"))
        refuse_used(data)
        self.folder = os.path.join(data, "log")
        os.makedirs(self.folder, exist_ok=True)
        self.start_server(os.path.join(data, "store"))
        self.start_agent_and_demo() # at once: the agent keeps what it sees until the server is ready
        try:
            self.wait_for_server()
            first = self.largest()
        except NoBpf:
            first = None
            self.programs = [p for p in self.programs if p.name == "stratad" or p.stop() is None]
            self.ask_rights()
            self.refused()
            self.wait_for_server()
            say("the server and its UI run; nothing is sampled here")
        if first:
            rows, total, samples = first
            say(f"the three largest functions of the demo, of {samples} samples:")
            for name, value in rows:
                print(f"          {100 * value / total:5.1f} %  {name}", flush=True)
            say(f"its agent:    {self.status_command()}")
        query = urllib.parse.urlencode({"q": 'cpu{service="demo"}', "from": "now-1m"})
        say(f"look at it:   {self.api.base}/?{query}")
        say("Ctrl-C stops all three")
        while True:
            self.check_programs()
            time.sleep(0.5)

    def check(self):
        import check  # beside this file

        self.ask_rights()
        refused = self.refused()
        if refused:
            print(f"no BPF here: {refused.removeprefix('no BPF here: ')}", flush=True)
            return 77
        self.folder = tempfile.mkdtemp(prefix="strata-check-")
        self.start_server(os.path.join(self.folder, "store"))
        self.wait_for_server()
        self.start_agent_and_demo(in_turn=True)
        rows, total, samples = self.largest()
        say("first picture: " + ", ".join(f"{n} {100 * v / total:.0f} %" for n, v in rows))
        return check.verify(self, say)


def main():
    parser = argparse.ArgumentParser(description="server, agent and demo together")
    parser.add_argument("--build", required=True, help="folder with the programs")
    parser.add_argument("--check", action="store_true", help="verify the answer, then stop")
    parser.add_argument("--port", type=int, help=f"default {DEFAULT_PORT}, or a free one")
    parser.add_argument("--data", help="folder for store and logs (default build/run-data)")
    parser.add_argument("--seconds", type=int, default=15, help="how long --check samples (15)")
    options = parser.parse_args()
    options.build = os.path.abspath(options.build)

    signal.signal(signal.SIGINT, on_signal)
    signal.signal(signal.SIGTERM, on_signal)
    run = Run(options)
    status = 1
    try:
        status = run.check() if options.check else run.run()
    except Stopped:
        print(flush=True)
        status = 1 if options.check else 0
    except Failure as failure:
        say(f"failed: {failure}")
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if run.programs:
            say("stopping " + ", ".join(p.name for p in reversed(run.programs)))
        bad = {n: s for n, s in run.stop().items() if s not in (0, -signal.SIGTERM)}
        if bad and status == 0:
            say("did not end well: " + ", ".join(f"{n} status {s}" for n, s in bad.items()))
            status = 1
        if options.check and run.folder and status in (0, 77):
            shutil.rmtree(run.folder, ignore_errors=True)
        elif options.check and run.folder:
            say(f"logs and data are left in {run.folder}")
        if run.programs:
            say("stopped")
    return status


if __name__ == "__main__":
    sys.exit(main())
