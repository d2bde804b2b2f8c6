#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The container line of docs/install.md, without a container runtime: a bare Debian 12 with the
packages of packaging/Containerfile, and what the flags of that line ask for, made by unshare, mount
and setpriv. With STRATA_CONTAINER_ROOT that folder is the root, else debootstrap makes one. 77 where
that, or BPF, is not to be had."""
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import stratasink as sink

AGENT = os.environ.get("STRATA_AGENT", "build/agent/strata-agent")
BURN = os.path.join(os.environ.get("STRATA_AGENT_TESTS", "build/tests/agent"), "burn")
SOURCE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../..")
SERVICE = f"contained-{os.getpid()}"
ROOT = None
# what a runtime hides
MASKED = ("/proc/kcore", "/proc/keys", "/proc/timer_list")


def packages():
    with open(os.path.join(SOURCE, "packaging/Containerfile"), encoding="ascii") as f:
        return re.search(r"--no-install-recommends ([^&]*) &&", f.read()).group(1).split()


def documented():
    """The flags of the documented line, up to the image, and what follows it."""
    with open(os.path.join(SOURCE, "docs/install.md"), encoding="utf-8") as f:
        line = re.search(r"^docker run .*$", f.read(), re.M).group()
    words = shlex.split(line)[2:]
    image = max(i for i, w in enumerate(words) if w == "strata-agent")
    return words[:image], words[image + 1:]


def mirror():
    """The machine's own, which knows the way there."""
    done = subprocess.run("apt-get indextargets --format '$(REPO_URI) $(CREATED_BY)'", shell=True,
                          capture_output=True, text=True, check=False)
    found = [l.split()[0] for l in done.stdout.splitlines() if l.endswith(" Packages")]
    return found[0] if found else "http://deb.debian.org/debian"


def make_root(folder):
    """Why not; None if it is there."""
    if not shutil.which("debootstrap"):
        return "no debootstrap"
    try:
        done = subprocess.run(["debootstrap", "--variant=minbase",
                               "--include=" + ",".join(packages()), "bookworm", folder, mirror()],
                              capture_output=True, text=True, timeout=540, check=False)
    except subprocess.TimeoutExpired:
        return "debootstrap took too long"
    return None if done.returncode == 0 else "debootstrap: " + done.stdout.strip()[-200:]


class Container(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="strata-container-")
        self.addCleanup(shutil.rmtree, self.folder)
        self.volume = os.path.join(self.folder, "volume")
        os.mkdir(self.volume, 0o755)

    def run_line(self, *command, without=()):
        """The documented line as a command: its flags, the agent, these arguments."""
        flags = [f for f in documented()[0] if f not in without]
        caps = ",".join("+" + f.split("=")[1].lower() for f in flags if f.startswith("--cap-add="))
        self.assertIn("--cap-drop=ALL", flags)
        self.assertIn("--security-opt=no-new-privileges", flags)
        shares = ["--mount", "--ipc"]
        shares += [] if "--pid=host" in flags else ["--pid", "--fork", "--kill-child"]
        shares += [] if "--cgroupns=host" in flags else ["--cgroup"]
        shares += [] if "--network=host" in flags else ["--net", "--uts"]
        lines = ["set -e", "mount --make-rprivate /", f"mount --bind {ROOT} {ROOT}", f"cd {ROOT}",
                 "mount -t proc proc proc", "mount --rbind /sys sys", "mount -t tmpfs tmpfs dev",
                 "for d in null zero urandom; do touch dev/$d; mount --bind /dev/$d dev/$d; done",
                 f"touch usr/bin/strata-agent; mount --bind {os.path.abspath(AGENT)} "
                 "usr/bin/strata-agent"]
        for volume in (flags[i + 1] for i, f in enumerate(flags) if f == "-v"):
            source, target = volume.split(":")[:2]
            if source.startswith("/"):
                lines.append(f"[ ! -e {source} ] || {{ touch .{target}; "
                             f"mount --bind {source} .{target}; }}")
            else:
                lines.append(f"mkdir -p .{target}; mount --bind {self.volume} .{target}")
        lines += [f"[ ! -e .{m} ] || mount --bind /dev/null .{m}" for m in MASKED]
        if "--read-only" in flags:
            lines.append("mount -o remount,bind,ro .")
        lines += ["pivot_root . .", "umount -l .", "cd /",
                  f"exec setpriv --no-new-privs --inh-caps=-all --bounding-set=-all,{caps} "
                  "/usr/bin/strata-agent \"$@\""]
        return ["unshare", *shares, "sh", "-c", "\n".join(lines), "sh", *command]

    def check(self, without=()):
        done = subprocess.run(self.run_line("check", without=without), capture_output=True,
                              text=True, timeout=60, check=False)
        print(done.stdout, done.stderr)
        return done

    def test_check(self):
        done = self.check()
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertRegex(done.stdout, r"self_test +ok")

    def test_own_pids(self):
        """Without the host's pids it says why not, and what to do."""
        done = self.check(without=("--pid=host",))
        self.assertIn(done.returncode, (2, 77))
        self.assertRegex(done.stdout, r"no BPF here: pid_namespace: BPF sees the host's pids.*"
                                      r"--pid=host")

    def test_own_cgroups(self):
        done = self.check(without=("--cgroupns=host",))
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertRegex(done.stdout, r"cgroup_namespace +degraded .*--cgroupns=host")

    def test_run(self):
        """A program outside is profiled, by name; nothing can be written but the volume."""
        server = sink.Ingest()
        self.addCleanup(server.close)
        burner = subprocess.Popen([BURN, "600"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
                                  env={"STRATA_SERVICE": SERVICE})
        self.addCleanup(burner.wait)
        self.addCleanup(burner.kill)
        self.addCleanup(burner.stdin.close)
        burner.stdin.write(b"\n")
        burner.stdin.flush()
        arguments = [a.replace("http://127.0.0.1:4040", server.url) for a in documented()[1]]
        self.assertIn(f"server.url={server.url}", arguments)
        p = subprocess.Popen(self.run_line(*arguments))
        self.addCleanup(p.kill)
        end = time.monotonic() + 30
        stacks = []
        while time.monotonic() < end and not [s for s in stacks if "leaf" in s and "main" in s]:
            self.assertIsNone(p.poll(), "the agent ended")
            time.sleep(0.5)
            stacks = [s for b in server.batches() for r in b.rows()
                      if r["labels"]["service"] == SERVICE and (s := b.stack(r["node"]))]
        with open(f"/proc/{p.pid}/status", encoding="ascii") as f:
            print("".join(l for l in f if l.startswith(("CapEff", "NoNewPrivs", "Seccomp:"))))
        p.terminate()
        self.assertEqual(p.wait(30), 0)
        self.assertTrue([s for s in stacks if "leaf" in s and "main" in s], stacks[:5])
        status = sink.read_status(os.path.join(self.volume, "status"))
        self.assertEqual(status["degraded"], "")
        print(f"in a container: {status['figures']['agent_samples']} samples, burner by name")


def main():
    global ROOT
    if os.geteuid() != 0:
        print("skip: needs root")
        return 77
    with tempfile.TemporaryDirectory(prefix="strata-root-") as folder:
        checked = subprocess.run([AGENT, "check", "--state-dir", folder], capture_output=True,
                                 text=True, check=False)
        if checked.returncode not in (0, 1):
            print("skip:", checked.stdout.strip().splitlines()[-1])
            return 77
        ROOT = os.environ.get("STRATA_CONTAINER_ROOT") or os.path.join(folder, "root")
        why = None if os.path.isdir(ROOT) else make_root(ROOT)
        if why:
            print("skip:", why)
            return 77
        return 0 if unittest.main(exit=False).result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
