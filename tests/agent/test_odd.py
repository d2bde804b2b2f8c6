#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Things that happen to a collector: CPUs come and go, its target is deleted or 32-bit, it is killed."""
import json
import os
import shutil
import signal
import struct
import subprocess
import tempfile
import time
import unittest

import agent_lib


def elf32():
    """A static 32-bit program that jumps to itself."""
    base, code = 0x8048000, b"\xeb\xfe"
    head = struct.pack("<16sHHIIIIIHHHHHH", b"\x7fELF\1\1\1", 2, 3, 1, base + 84, 52, 0, 0, 52, 32,
                       1, 0, 0, 0)
    return head + struct.pack("<8I", 1, 0, base, base, 84 + len(code), 84 + len(code), 5,
                              0x1000) + code


class Odd(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="strata_odd_")
        self.addCleanup(shutil.rmtree, self.dir)

    def start(self, *command):
        p = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)

        def end():
            p.kill()
            p.wait()

        self.addCleanup(end)
        return p

    def test_cpus_come_and_go(self):
        """A CPU without an event ends its part, one that comes starts with its first tick."""
        cpus = sorted(os.sched_getaffinity(0))
        if len(cpus) < 2:
            self.skipTest("one CPU")
        path = os.path.join(self.dir, "online")

        def online(text):
            with open(path + ".new", "w", encoding="ascii") as f:
                f.write(text + "\n")
            os.rename(path + ".new", path)

        online(f"{cpus[0]},{cpus[1]}")
        burn = self.start(agent_lib.tool("burn"), "600")
        stat = agent_lib.Stackstat([burn.pid], "-p", 2004008, "-s", 600, "-O", path)
        for width in (2, 1, 2, 1, 2):
            online(f"{cpus[0]},{cpus[1]}" if width == 2 else str(cpus[0]))
            stat.wait_window(lambda w: w["width"] == width)
        stat.proc.terminate()
        r = stat.finish()
        widths = [w["width"] for w in r.windows]
        print("widths", widths)
        self.assertEqual(r.code, 0, r.text)
        self.assertTrue(all(w["identity"] == "ok" for w in r.windows))
        self.assertEqual({1, 2}, set(widths))
        self.assertGreaterEqual(sum(a != b for a, b in zip(widths, widths[1:])), 4)

    def test_period_changes(self):
        burn = self.start(agent_lib.tool("burn"), "600")
        r = agent_lib.Stackstat([burn.pid], "-p", 10101010, "-c", 1001001, "-s", 4).finish()
        self.assertEqual(r.code, 0, r.text)
        periods = [w["period_ns"] for w in r.windows]
        self.assertEqual({10101010, 1001001}, set(periods))

        def rate(period):
            """Records for each second of the CPUs' clocks."""
            windows = [w for w in r.windows if w["period_ns"] == period]
            clock = sum(w[k] for w in windows for k in ("busy_ns", "idle_ns", "missed_ns",
                                                        "missed_idle_ns", "jitter_ns"))
            return sum(w["received"] for w in windows) / clock * 1e9

        print(f"records a second and CPU: {rate(10101010):.1f}, then {rate(1001001):.1f}")
        self.assertGreater(rate(1001001), 2 * rate(10101010))

    def test_deleted(self):
        path = os.path.join(self.dir, "traps")
        shutil.copy(agent_lib.tool("traps"), path)
        p = self.start(path, "qsort", "100")
        time.sleep(0.3)
        os.unlink(path)
        r = agent_lib.Stackstat([p.pid], "-p", 2004008, "-s", 2, "-w", 1).finish()
        p = r.process[p.pid]
        print("deleted binary:", p["n"], agent_lib.stop_text(p))
        self.assertGreater(p["n"], 5)
        self.assertTrue(agent_lib.nearly(p["end"], p["n"], 0.995))

    def test_compat32(self):
        path = os.path.join(self.dir, "loop32")
        with open(path, "wb") as f:
            f.write(elf32())
        os.chmod(path, 0o755)
        try:
            p = self.start(path)
        except OSError as e:
            self.skipTest(f"no 32-bit programs here: {e}")
        time.sleep(0.2)
        if p.poll() is not None:
            self.skipTest(f"no 32-bit programs here: status {p.returncode}")
        r = agent_lib.Stackstat([p.pid], "-p", 2004008, "-s", 1.5).finish()
        p = r.process[p.pid]
        print("32-bit:", p["n"], agent_lib.stop_text(p))
        self.assertGreater(p["compat32"], 5)
        self.assertEqual(p["compat32"] + p["exiting"], p["n"])

    def test_without_rights(self):
        """What is missing is said by name, with what to do; the status is that of a skip."""
        if not shutil.which("setpriv"):
            self.skipTest("no setpriv")
        for cap in ("bpf", "perfmon"):
            r = subprocess.run(["setpriv", "--bounding-set", f"-{cap},-sys_admin", "--inh-caps",
                                "-all", agent_lib.tool("stackstat"), "-s", "0.1"],
                               capture_output=True, text=True)
            self.assertEqual(r.returncode, agent_lib.SKIP, r.stdout + r.stderr)
            self.assertIn(f"cap_{cap}: ", r.stderr)
            self.assertIn("run as root, or grant it", r.stderr)

    def test_killed(self):
        """SIGKILL leaves no program behind."""
        bpftool = shutil.which("bpftool", path=os.environ["PATH"] + ":/usr/sbin")
        if not bpftool:
            self.skipTest("no bpftool")

        def programs():
            out = subprocess.run([bpftool, "-j", "prog", "show"], capture_output=True, text=True,
                                 check=True).stdout
            return {p["id"] for p in json.loads(out)}

        stat = agent_lib.Stackstat([], "-p", 10101010, "-s", 600)
        self.addCleanup(stat.proc.kill)
        mine, folder = set(), f"/proc/{stat.proc.pid}/fdinfo"
        for fd in os.listdir(folder):
            try:
                with open(os.path.join(folder, fd), encoding="ascii") as f:
                    mine |= {int(line.split()[1]) for line in f if line.startswith("prog_id:")}
            except FileNotFoundError:
                pass  # a file of /proc that it has just closed
        self.assertTrue(mine & programs(), "the program is not seen while it runs")
        stat.proc.send_signal(signal.SIGKILL)
        stat.proc.communicate()
        for _ in range(300):
            left = mine & programs()
            if not left:
                break
            time.sleep(0.1)
        self.assertFalse(left, "a program is still loaded")


if __name__ == "__main__":
    agent_lib.need_root()
    unittest.main(verbosity=0)
