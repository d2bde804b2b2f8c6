# SPDX-License-Identifier: Apache-2.0
"""What the tests of the agent's kernel side share: run stackstat, read its lines."""
import os
import subprocess
import sys
import time

SKIP = 77


def build_dir():
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    return os.environ.get("STRATA_AGENT_TESTS", os.path.join(root, "build/tests/agent"))


def tool(name):
    return os.path.join(build_dir(), name)


def need_root():
    if os.geteuid() != 0:
        print("skip: needs root (BPF programs, ticks of every CPU)")
        sys.exit(SKIP)


class Result:
    def __init__(self, text, code):
        self.text, self.code = text, code
        self.windows, self.process, self.total, self.tables, self.stacks = [], {}, {}, {}, []
        for line in text.splitlines():
            word, _, rest = line.partition(" ")
            if word == "stack":
                self.stacks.append(rest)
                continue
            pairs = dict(w.split("=", 1) for w in rest.split() if "=" in w)
            values = {k: int(v) if v.lstrip("-").isdigit() else v for k, v in pairs.items()}
            if word == "window":
                self.windows.append(values)
            elif word == "process":
                self.process[values["pid"]] = values
            elif word == "total":
                self.total = values
            elif word == "tables":
                self.tables = values


class Stackstat:
    """A running stackstat; the context is entered when it samples."""

    def __init__(self, pids, *args, cpu=None):
        pin = None if cpu is None else lambda: os.sched_setaffinity(0, {cpu})
        self.proc = subprocess.Popen([tool("stackstat"), *map(str, args), *map(str, pids)],
                                     stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                     preexec_fn=pin)
        first = self.proc.stdout.readline()
        if first != "ready\n":
            out, err = self.proc.communicate()
            print(err or first + out)
            if self.proc.returncode == SKIP:
                print("skip: no BPF here")
                sys.exit(SKIP)
            raise RuntimeError("stackstat did not start: " + err)
        self.early = ""

    def wait_window(self, holds, most=60):
        """Reads windows as they end, until holds(window)."""
        for _ in range(most):
            line = self.proc.stdout.readline()
            self.early += line
            windows = Result(line, 0).windows
            if windows and holds(windows[0]):
                return
        raise AssertionError(f"no such window among {most}:\n{self.early}")

    def finish(self, timeout=60):
        if self.early:  # what the reader has in its buffer communicate() does not know
            out, err = self.early + self.proc.stdout.read(), self.proc.stderr.read()
            self.proc.communicate()
        else:
            out, err = self.proc.communicate(timeout=timeout)
        if err:
            print(err, file=sys.stderr)
        return Result(out, self.proc.returncode)


def read(path):
    """The file's text; "" where it is gone."""
    try:
        with open(path, encoding="utf-8", errors="replace") as f:
            return f.read()
    except OSError:
        return ""


def cpu_clock_ns(pid):
    """CPU time of a process and its threads, dead ones too: the kernel's exact figure."""
    return time.clock_gettime_ns((~pid << 3) | 2)


def steal_ns(cpu):
    """What the hypervisor took from a CPU, so far."""
    with open("/proc/stat", encoding="ascii") as f:
        words = next(l.split() for l in f if l.startswith(f"cpu{cpu} "))
    return int(words[8]) * 10 ** 9 // os.sysconf("SC_CLK_TCK")


class Burn:
    """A burner, waiting; go() lets it use its CPU seconds on one CPU and returns its exact CPU time.
    Then variance is that of a fair sampler's answer with this period, and stolen_ns the time that the
    hypervisor took while it was running, by its share: a process's clock leaves that out, the event's
    goes on."""

    def __init__(self, seconds, cpu, *pauses):
        self.cpu, self.stolen_ns = cpu, 0
        self.proc = subprocess.Popen([tool("burn"), *map(str, (seconds, cpu, *pauses))], text=True,
                                     stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.pid = self.proc.pid
        self.variance = 0.0

    def go(self, period_ns):
        self.proc.stdin.write("\n")
        self.proc.stdin.close()
        wall, cpu = time.monotonic_ns(), cpu_clock_ns(self.pid)
        begin, stolen = wall, steal_ns(self.cpu)
        while self.proc.poll() is None:
            time.sleep(0.2)
            now = time.monotonic_ns()
            try:
                used = cpu_clock_ns(self.pid)
            except OSError:
                break
            if now - wall < 900_000_000:
                continue
            self.add(now - wall, used - cpu, period_ns)
            wall, cpu = now, used
        total = int(self.proc.stdout.read().split()[1])
        self.proc.stdout.close()
        end = time.monotonic_ns()
        self.add(end - wall, total - cpu, period_ns)
        stolen = steal_ns(self.cpu) - stolen
        self.stolen_ns = total * stolen / max(end - begin - stolen, 1)
        self.proc.wait()
        return total

    def add(self, wall, cpu, period_ns):
        share = min(max(cpu / wall, 0.0), 1.0)
        self.variance += wall / period_ns * period_ns ** 2 * share * (1 - share)


def nearly(part, n, share):
    """At least this share of n; of few samples all but two, for a share says nothing of those."""
    return n - part <= max(2, (1 - share) * n)


def not_by_chance(check, tries=3):
    """What holds but for chance, which does not repeat: the check may fail in all but one of the
    tries, and a fault fails in each."""
    for k in range(tries):
        try:
            return check()
        except AssertionError as e:
            if k == tries - 1:
                raise
            print(f"once more: {str(e).splitlines()[-1]}", flush=True)


INCOMPLETE = ("trunc", "nomap", "notable", "noinfo", "invalid", "readfault", "zeropc", "badsp",
              "badfp", "noproc", "compat32")


def incomplete(p):
    """Stacks that are not whole; an exiting thread has no stack to take."""
    return sum(p[k] for k in INCOMPLETE)


def stop_text(p):
    return " ".join(f"{k}={p[k]}" for k in ("end", "exiting", *INCOMPLETE) if p[k])
