#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""From a program's source to stratad's answer: lines and inlined functions, names of a stripped and
deleted binary by its debug file, of code in a container's root, of a JIT by its perf map. Needs root
and BPF, else 77."""
import gzip
import os
import shutil
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.parse
import urllib.request

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import stratasink as sink
import test_agent_run as run

LINES = r"""
static inline __attribute__((always_inline)) unsigned innermost(unsigned x)
{
    for (unsigned i = 0; i < 4000000; i++)
        x = x * 1664525 + 1013904223;                                           /* line 5 */
    return x;
}
static inline __attribute__((always_inline)) unsigned middle(unsigned x)
{
    return innermost(x) ^ 1;                                                    /* line 10 */
}
__attribute__((noinline)) unsigned outermost(unsigned x)
{
    return middle(x) + 3;                                                       /* line 14 */
}
int main(void)
{
    volatile unsigned x = 1;
    for (;;)
        x = outermost(x);
}
"""
# push %rbp; mov %rsp,%rbp; mov $1000000,%ecx; dec %ecx; jnz; pop %rbp; ret
JIT = r"""
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
int main(void)
{
    static const unsigned char code[] = {0x55, 0x48, 0x89, 0xe5, 0xb9, 0x40, 0x42, 0x0f, 0x00,
                                         0xff, 0xc9, 0x75, 0xfc, 0x5d, 0xc3};
    unsigned char *p = mmap(0, 4096, 7, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char path[64];
    FILE *f;
    memcpy(p, code, sizeof code);
    snprintf(path, sizeof path, "/tmp/perf-%d.map", getpid());
    f = fopen(path, "w");
    fprintf(f, "%lx %zx old name\n%lx %zx jit:spin /app/x.js:7\n", (long)p, sizeof code, (long)p,
            sizeof code);
    fclose(f);
    for (;;)
        ((void (*)(void))p)();
}
"""


def text_of(answer, index):
    return answer["strings"][index]


def paths_of(answer):
    """[(names from the root, self)] of a flame graph"""
    found, path = [], []
    f, n = answer["func"], answer["node"]
    for depth, func, own in zip(n["depth"], n["func"], n["self"]):
        del path[depth:]
        path.append(text_of(answer, f["name"][func]) if func >= 0 else "...")
        found.append((tuple(path[1:]), int(own)))
    return found


class Symbols(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="strata-symbols-")
        self.addCleanup(self.folder.cleanup)
        self.server = run.Stratad(self.folder.name)
        self.addCleanup(self.server.stop)
        self.begin = time.time_ns()

    def path(self, *parts):
        return os.path.join(self.folder.name, *parts)

    def build(self, name, source, *options):
        with open(self.path(name + ".c"), "w", encoding="utf-8") as f:
            f.write(source)
        subprocess.run(["gcc", "-O2", *options, "-o", self.path(name), self.path(name + ".c")],
                       check=True, cwd=self.folder.name)
        return self.path(name)

    def start(self, *command, **options):
        env = dict(os.environ, STRATA_SERVICE=self.service(command))
        p = subprocess.Popen(command, env=env, **options)

        def end():
            p.kill()
            p.wait()

        self.addCleanup(end)
        return p

    def service(self, command):
        return f"{os.path.basename(command[-1])}-{os.getpid()}"

    def ask(self, path, service, **parameters):
        return self.server.get(path, q=f'cpu{{service="{service}"}}',
                               **{"from": f"{self.begin}ns", "to": f"{time.time_ns()}ns"},
                               **parameters)

    def agent(self, *settings):
        agent = run.Agent(self.folder.name, self.server.url, *settings)
        self.addCleanup(lambda: agent.process.poll() is None and agent.kill())
        agent.wait_running()
        return agent

    def wait_for(self, service, what, seconds=120):
        """Asks until what(answer) holds, or for so long."""
        end = time.monotonic() + seconds
        while True:
            answer = self.ask("flamegraph", service)
            if what(answer) or time.monotonic() > end:
                return answer
            time.sleep(0.5)

    def check_lines(self, service):
        chain = ("outermost", "middle", "innermost")
        answer = self.wait_for(service, lambda a: any(
            p[-3:] == chain and own for p, own in paths_of(a)))
        whole = [own for p, own in paths_of(answer) if p[-3:] == chain]
        self.assertGreater(sum(whole), 0)
        f = answer["func"]
        where = {text_of(answer, n): text_of(answer, f["file"][i]) for i, n in enumerate(f["name"])}
        for name in chain:
            self.assertTrue(where[name].endswith("lines.c"), where)
        rows = self.ask("top", service, key="line")
        lines = {(text_of(rows, n), line) for n, line in zip(rows["func"]["name"],
                                                             rows["func"]["line"]) if line}
        self.assertLessEqual({("middle", 10), ("outermost", 14)}, lines)
        self.assertTrue(any(name == "innermost" and 3 <= line <= 6 for name, line in lines), lines)
        return answer

    def test_lines_and_inlined_functions(self):
        program = self.build("lines", LINES, "-g")
        self.start(program)
        agent = self.agent("symbols.lines=hot", "batch.interval=1s")
        self.check_lines(self.service([program]))
        with urllib.request.urlopen(
                f"{self.server.url}/api/v1/export?" + urllib.parse.urlencode(
                    {"q": f'cpu{{service="{self.service([program])}"}}', "format": "pprof",
                     "from": f"{self.begin}ns", "to": f"{time.time_ns()}ns"}), timeout=60) as got:
            profile = gzip.decompress(got.read())
        # a location with three lines: innermost, middle, outermost (profile.proto: 4 location, 4 line)
        deepest = max(sum(1 for n, _ in sink.fields(body) if n == 4)
                      for number, body in sink.fields(profile) if number == 4)
        self.assertEqual(deepest, 3)
        run.wait_for(lambda: agent.figure("lines_found") > 0, "lines") # told once a second
        figures = agent.status()["figures"]
        print({k: v for k, v in figures.items() if k.startswith("agent_lines_") and v != "0"})
        self.assertGreater(int(figures["agent_lines_found"]), 0)
        self.assertEqual(agent.stop(), 0)

    def test_stripped_deleted_with_a_debug_file(self):
        full = self.build("lines", LINES, "-g")
        program = self.path("stripped")
        subprocess.run(["objcopy", "--only-keep-debug", full, self.path("lines.debug")], check=True)
        subprocess.run(["objcopy", "--strip-all",
                        f"--add-gnu-debuglink={self.path('lines.debug')}", full, program], check=True)
        self.start(program)
        os.unlink(program)
        self.agent("symbols.lines=all", "batch.interval=1s", "symbols.debuginfo_dirs=/nowhere")
        answer = self.check_lines(self.service([program]))
        self.assertIn("stripped", answer["strings"]) # not "stripped (deleted)"
        self.assertNotIn("(deleted)", " ".join(answer["strings"]))

    def test_off(self):
        program = self.build("lines", LINES, "-g")
        self.start(program)
        self.agent("symbols.lines=off", "batch.interval=1s")
        answer = self.wait_for(self.service([program]), lambda a: any(
            p and p[-1] == "outermost" for p, _ in paths_of(a)))
        names = {p[-1] for p, _ in paths_of(answer) if p}
        self.assertIn("outermost", names)
        self.assertNotIn("middle", names)

    def test_jit_in_a_root_and_pid_namespace_of_its_own(self):
        self.build("jit", JIT, "-static", "-fno-omit-frame-pointer")
        root = self.path("root")
        os.makedirs(os.path.join(root, "tmp"))
        shutil.copy(self.path("jit"), os.path.join(root, "jit"))
        self.start("unshare", "--pid", "--fork", "--kill-child", "chroot", root, "/jit")
        self.agent("batch.interval=1s")
        service = self.service(["/jit"])
        # but for the first ticks, before its mappings are known: how many those are is chance
        answer = self.wait_for(service, lambda a: sum(
            own for p, own in paths_of(a) if p and p[-1].startswith("jit:")) * 10 >
            int(a["view"]["total"] or 0) * 8 > 0)
        spin = [(p, own) for p, own in paths_of(answer) if p and p[-1].startswith("jit:")]
        self.assertTrue(spin, paths_of(answer))
        self.assertEqual({p[-1] for p, _ in spin}, {"jit:spin /app/x.js:7"}) # not the old name
        whole = [p for p, _ in spin if not p[0].startswith("[")]
        self.assertEqual({p[-2:] for p in whole}, {("main", "jit:spin /app/x.js:7")})
        total = int(answer["view"]["total"])
        self.assertGreater(sum(own for _, own in spin) * 10, total * 8)
        self.assertTrue(os.path.exists(os.path.join(root, "tmp", "perf-1.map")))


def main():
    if os.geteuid() != 0:
        print("skip: needs root")
        return 77
    checked = subprocess.run([run.AGENT, "check"], capture_output=True, text=True, check=False)
    if checked.returncode in (2, 77):
        print(f"skip: {checked.stdout}")
        return 77
    return 0 if unittest.main(exit=False, verbosity=2).result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
