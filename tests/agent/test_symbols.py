# SPDX-License-Identifier: Apache-2.0
"""Names and lines of installed files and of programs built here against gdb, nm and addr2line; where
debug files are found and when they are refused."""
import lzma
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

import symbols_lib as lib

LONG = os.environ.get("STRATA_LONG") == "1"
LIBS = ["/lib/x86_64-linux-gnu/libc.so.6", "/lib64/ld-linux-x86-64.so.2",
        "/lib/x86_64-linux-gnu/libm.so.6", "/usr/lib/x86_64-linux-gnu/libstdc++.so.6", "/bin/bash",
        "/usr/bin/python3"]
SOURCE = r"""
extern "C" int sink(int);
namespace deep {
struct S {
    int v;
    int get() const { return sink(v) + 1; }
};
}
static inline __attribute__((always_inline)) int in2(int x)
{
    deep::S s{x};
    return s.get() * 3;
}
static inline __attribute__((always_inline)) int in1(int x)
{
    int y = in2(x + 1);
    return y ^ sink(y);
}
extern "C" int outer(int x)
{
    int r = 0;
    for (int i = 0; i < x; i++)
        r += in1(i);
    return r;
}
extern "C" __attribute__((noinline)) int sink(int x)
{
    return x * 7 + 1;
}
namespace deep {
__attribute__((noinline)) int plain(int x)
{
    return in2(x) + outer(x);
}
}
static __attribute__((noinline)) int hidden(int x)
{
    return sink(x) * 5;
}
int main(int argc, char **)
{
    return deep::plain(argc) + hidden(argc) == 4711;
}
"""


def plain(symbol):
    """Without what GCC adds to the symbol of a part or a copy."""
    return re.sub(r"\.(cold|part|isra|constprop|lto_priv)\b.*", "", symbol)


def need(program, package):
    if not shutil.which(program):
        raise unittest.SkipTest(f"needs {program} (package {package})")


class Lines(unittest.TestCase):
    """Chains of inlined functions against addr2line -i; where it differs, LLVM decides: addr2line
    2.40 names the outermost function at the first byte of an inlined one, and the unit's own file
    for some that DWARF 5 counts from 0."""

    def inner(self, frames):
        return [(f[0], os.path.basename(f[1]), f[2]) for f in frames[:-1]]

    def outer(self, frames):
        return os.path.basename(frames[-1][1]), frames[-1][2]

    def same(self, mine, theirs):
        return (self.inner(mine), self.outer(mine)) == (self.inner(theirs), self.outer(theirs))

    def compare_lines(self, path, addresses, got, paths, label):
        """Returns how many inlined frames there were, and how often LLVM decided."""
        names = lib.aliases(paths)
        by_name = {n: all_ for all_ in names.values() for n in all_}
        want, doubtful, inlined = lib.addr2line(path, addresses), [], 0
        for a in addresses:
            mine, theirs = got.frames[a], want[a]
            if not any(line for _, _, line in theirs): # padding, or the C runtime's own
                self.assertFalse(any(f[2] for f in mine), f"{label} {a:x}")
                continue
            self.assertEqual([f[2] for f in mine], [line for _, _, line in theirs], f"{label} {a:x}")
            self.assertEqual([f[3] for f in mine], [True] * (len(mine) - 1) + [False])
            outermost = lib.shown([theirs[-1][0]])[0] if theirs[-1][0].startswith("_Z") \
                else theirs[-1][0]
            if "+0x" not in got.name[a]: # behind its function's last byte: as gdb, above
                self.assertIn(plain(got.name[a]),
                              {plain(n) for n in by_name.get(outermost, {outermost})},
                              f"{label} {a:x}")
            inlined += len(mine) - 1
            if not self.same(mine, theirs):
                doubtful.append(a)
        self.assertLess(len(doubtful) * 5, len(addresses))
        if doubtful and lib.symbolizer():
            second = lib.llvm_lines(path, doubtful)
            for a in doubtful:
                self.assertTrue(self.same(got.frames[a], second[a]),
                                f"{label} {a:x}: {got.frames[a]}, addr2line {want[a]}, "
                                f"LLVM {second[a]}")
        return inlined, len(doubtful)


class Folder(Lines):
    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="strata-sym-")
        self.addCleanup(shutil.rmtree, self.dir, ignore_errors=True)

    def path(self, *parts):
        return os.path.join(self.dir, *parts)

    def build(self, name, *options, compiler="g++"):
        source = self.path("main.cc")
        with open(source, "w") as f:
            f.write(SOURCE)
        lib.must(compiler, "-O2", "-Wl,--build-id", *options, "-o", self.path(name), source)
        return self.path(name)


class AgainstGdb(Lines):
    def test_200_random_addresses_of_installed_files(self):
        need("gdb", "gdb")
        total = named = 0
        for path in LIBS:
            addresses = lib.random_addresses(path, 2000 if LONG else 40)
            debug = lib.debug_file(path)
            got = lib.Symbols(path, addresses, "-d", "/usr/lib/debug")
            starts = lib.gdb_starts(path, addresses)
            names = lib.aliases([path] + ([debug] if debug else []))
            for a in addresses:
                if starts[a] is None:
                    self.assertEqual(got.name[a], f"{os.path.basename(path)}+0x{a:x}")
                else:
                    self.assertIn(got.name[a], names[starts[a]], f"{path} {a:x}")
                    named += 1
            total += len(addresses)
        print(f"names: {total} addresses as gdb, {named} of them named")
        self.assertGreaterEqual(total, 200)
        self.assertGreater(named, 100)

    def test_lines_and_inlines_of_libc(self):
        path = LIBS[0]
        if not lib.debug_file(path):
            self.skipTest("needs libc6-dbg of this libc")
        addresses = lib.random_addresses(path, 5000 if LONG else 200)
        got = lib.Symbols(path, addresses, "-d", "/usr/lib/debug")
        inlined, doubtful = self.compare_lines(path, addresses, got, [path, lib.debug_file(path)],
                                               path)
        ms = got.stat["lines_ns"] / 1e6
        print(f"lines: {len(addresses)} addresses of libc as addr2line -i, {doubtful} of them as "
              f"LLVM; {inlined} inlined frames; {ms:.1f} ms CPU, {ms / len(addresses):.3f} ms per "
              f"address")
        self.assertGreater(inlined, 20)


class Built(Folder):
    def compare(self, path, label, *options):
        addresses = lib.in_functions(path)
        got = lib.Symbols(path, addresses, *options)
        self.assertEqual(got.stat["lines"], "ok")
        inlined, doubtful = self.compare_lines(path, addresses, got, [path], label)
        deepest = max(len(f) for f in got.frames.values())
        self.assertGreaterEqual(deepest, 4) # get in in2 in in1 in outer
        self.assertGreater(inlined, 30)
        print(f"{label}: {len(addresses)} addresses as addr2line -i, {doubtful} of them as LLVM; "
              f"{inlined} inlined frames, up to {deepest} at one address")

    def test_dwarf_4_and_5_of_both_compilers(self):
        for compiler in ("g++", "clang++" if shutil.which("clang++") else "clang++-14"):
            for version in (4, 5):
                path = self.build(f"{compiler}-{version}", f"-gdwarf-{version}", compiler=compiler)
                self.compare(path, f"{compiler} DWARF {version}")

    def test_compressed_sections(self):
        path = self.build("z", "-g", "-gz=zlib")
        self.compare(path, "compressed")

    def split(self, name="prog", *options):
        """A stripped program with a debug link; its debug file is DIR/NAME.debug."""
        full = self.build(name + ".full", "-g", *options)
        stripped, debug = self.path(name), self.path(name + ".debug")
        lib.must("objcopy", "--only-keep-debug", full, debug)
        lib.must("objcopy", "--strip-all", f"--add-gnu-debuglink={debug}", full, stripped)
        return full, stripped, debug

    def hidden_at(self, full):
        return next(a for a, names in lib.aliases([full]).items() if "hidden" in names)

    def looked_at(self, stripped, at, *options):
        got = lib.Symbols(stripped, [at], *options)
        return got.name[at], got.frames[at], got.stat

    def test_debug_link_in_each_place(self):
        full, stripped, debug = self.split()
        at = self.hidden_at(full)
        unnamed = f"prog+0x{at:x}"
        self.assertEqual(self.looked_at(stripped, at)[0], unnamed) # no folders: none is looked for
        dirs = self.path("debugs")
        places = [debug, self.path(".debug", "prog.debug"),
                  os.path.join(dirs, self.dir.lstrip("/"), "prog.debug")]
        os.rename(debug, self.path("aside"))
        self.assertEqual(self.looked_at(stripped, at, "-d", dirs)[0], unnamed)
        for place in places:
            os.makedirs(os.path.dirname(place), exist_ok=True)
            shutil.copy(self.path("aside"), place)
            name, frames, stat = self.looked_at(stripped, at, "-d", f"/nowhere:{dirs}")
            os.remove(place)
            self.assertEqual((name, frames[-1][0]), ("hidden", "hidden"), place)
            self.assertEqual((stat["debug"], stat["ok"]), (1, 1))
        self.compare_with_full(full, stripped, self.path("aside"), dirs, places[2])

    def compare_with_full(self, full, stripped, debug, dirs, place):
        shutil.copy(debug, place)
        start, size = lib.text_section(full)
        addresses = list(range(start, start + size))
        a, b = lib.Symbols(full, addresses), lib.Symbols(stripped, addresses, "-d", dirs)
        self.assertEqual(a.frames, b.frames)
        for x in addresses:
            self.assertTrue(a.name[x] == b.name[x] or a.name[x].startswith("prog.full+"), hex(x))

    def test_by_build_id(self):
        full, stripped, debug = self.split()
        id_, dirs = lib.build_id(full), self.path("debugs")
        place = os.path.join(dirs, ".build-id", id_[:2], id_[2:] + ".debug")
        os.makedirs(os.path.dirname(place))
        os.rename(debug, place)
        at = self.hidden_at(full)
        self.assertEqual(self.looked_at(stripped, at, "-d", dirs)[0], "hidden")
        self.compare(full, "full")
        # another program's file at its place
        _, _, other = self.split("other", "-DOTHER", "-O1")
        shutil.copy(other, place)
        name, frames, stat = self.looked_at(stripped, at, "-d", dirs)
        self.assertEqual((name, frames, stat["other_build_id"], stat["ok"]),
                         (f"prog+0x{at:x}", [], 1, 0))

    def test_wrong_crc_other_build_id_and_evil_names(self):
        full, stripped, debug = self.split()
        at = self.hidden_at(full)
        with open(debug, "r+b") as f: # still an ELF file with the right build id
            f.seek(-1, os.SEEK_END)
            last = f.read(1)
            f.seek(-1, os.SEEK_END)
            f.write(bytes([last[0] ^ 1]))
        name, _, stat = self.looked_at(stripped, at, "-d", "/nowhere")
        self.assertEqual((name, stat["bad_crc"], stat["ok"]), (f"prog+0x{at:x}", 1, 0))
        # the CRC is right, the build id another's
        _, _, other = self.split("other", "-DOTHER", "-O1")
        os.replace(other, debug)
        lib.must("objcopy", "--remove-section=.gnu_debuglink", stripped)
        lib.must("objcopy", f"--add-gnu-debuglink={debug}", stripped)
        name, _, stat = self.looked_at(stripped, at, "-d", "/nowhere")
        self.assertEqual((name, stat["other_build_id"], stat["ok"]), (f"prog+0x{at:x}", 1, 0))
        os.remove(debug)
        os.mkfifo(debug) # never waited for
        self.assertEqual(self.looked_at(stripped, at, "-d", "/nowhere")[2]["ok"], 0)
        for link in (b"../../etc/shadow\0", b"..\0", b"a/b\0", b"x" * 300, b"\0"):
            with open(self.path("link"), "wb") as f:
                f.write(link + b"\0" * (-len(link) % 4) + b"abcd")
            lib.must("objcopy", "--remove-section=.gnu_debuglink", stripped)
            lib.must("objcopy", f"--add-section=.gnu_debuglink={self.path('link')}", stripped)
            stat = self.looked_at(stripped, at, "-d", "/nowhere")[2]
            self.assertEqual((stat["bad_link"], stat["ok"]), (1, 0), link)

    def test_mini_debug_info(self):
        full = self.build("mini.full", "-g")
        path, data = self.path("mini"), self.path("data")
        lib.must("objcopy", "--only-keep-debug", full, data)
        lib.must("objcopy", "-S", "--remove-section=.comment", "--keep-symbol=_ZL6hiddeni",
                 "--keep-symbol=sink", data)
        with open(data, "rb") as f:
            packed = lzma.compress(f.read(), format=lzma.FORMAT_XZ)
        at = self.hidden_at(full)
        for what, content, mini, failed in (("whole", packed, 1, 0), ("cut", packed[:-20], 0, 1),
                                            ("none", b"not xz at all", 0, 1),
                                            ("bomb", lzma.compress(b"\0" * (200 << 20)), 0, 1)):
            with open(data, "wb") as f:
                f.write(content)
            lib.must("objcopy", "--strip-all", f"--add-section=.gnu_debugdata={data}", full, path)
            name, _, stat = self.looked_at(path, at)
            self.assertEqual((what, name), (what, "hidden" if mini else f"mini+0x{at:x}"))
            self.assertEqual((stat["mini"], stat["mini_failed"], stat["failed"]), (mini, failed, 0))
            self.assertLess(stat["rss_kib"], 200 << 10)


class OtherRoot(Folder):
    """A chroot's debug files are looked for in the chroot, and its links end there."""

    def test_debug_files_of_a_chroot(self):
        if os.geteuid() != 0:
            self.skipTest("needs root (chroot)")
        with open(self.path("p.c"), "w") as f:
            f.write("#include <unistd.h>\nstatic __attribute__((noinline)) int hidden(int x)"
                    "{return x * 7;}\nint main(int c, char **v){(void)v; pause(); "
                    "return hidden(c);}\n")
        root = self.path("root")
        os.makedirs(os.path.join(root, "app"))
        full, path = self.path("full"), os.path.join(root, "app", "p")
        lib.must("gcc", "-O1", "-g", "-static", "-o", full, self.path("p.c"))
        debug = self.path("p.debug")
        lib.must("objcopy", "--only-keep-debug", full, debug)
        lib.must("objcopy", "--strip-all", f"--add-gnu-debuglink={debug}", full, path)
        os.makedirs(os.path.join(root, "real"))
        shutil.move(debug, os.path.join(root, "real", "p.debug"))
        os.symlink("/real/p.debug", os.path.join(root, "app", "p.debug")) # absolute: in the root
        child = subprocess.Popen(["/app/p"], preexec_fn=lambda: os.chroot(root))
        self.addCleanup(child.wait)
        self.addCleanup(child.kill)
        time.sleep(0.1)
        at = next(a for a, names in lib.aliases([full]).items() if "hidden" in names)
        # known as the chroot has it: symdump is told the path there, and reads the file itself
        os.makedirs("/app", exist_ok=False)
        self.addCleanup(os.rmdir, "/app")
        os.symlink(path, "/app/p")
        self.addCleanup(os.remove, "/app/p")
        got = lib.Symbols("/app/p", [at], "-d", "/nowhere", "-p", str(child.pid))
        self.assertEqual((got.name[at], got.stat["ok"]), ("hidden", 1))
        self.assertTrue(got.frames[at][0][1].endswith("p.c"))
        got = lib.Symbols("/app/p", [at], "-d", "/nowhere")
        self.assertEqual(got.stat["ok"], 0)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], "-v"] + sys.argv[1:])
