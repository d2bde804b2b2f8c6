#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""tree.py and links.py on small trees made for it: each rule refuses what it is there for, at the
right place, and a good tree passes."""
import os
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
SPDX = "// SPDX-License-Identifier: Apache-2.0\n"


def run(script, files):
    """Exit status and output of a lint script on a tree of these files."""
    with tempfile.TemporaryDirectory() as root:
        for name, text in files.items():
            path = os.path.join(root, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
        done = subprocess.run([sys.executable, os.path.join(HERE, script), root], text=True,
                              stdin=subprocess.DEVNULL, capture_output=True, check=False)
        return done.returncode, done.stdout + done.stderr


class Tree(unittest.TestCase):
    GOOD = {
        "base/str.c": SPDX + "long v = strtol(p, &e, 10);\n",
        "server/a.c": SPDX + "/* unlike strcpy() */\n * not sprintf() either\n"
                      "n = snprintf(b, sizeof b, \"%s\", s);\nr = strtol_like(x);\n"
                      "p = \"SELECT v FROM meta WHERE k = ?1\";\nq = \"/proc/self/root/usr\";\n",
        "web/js/a.js": SPDX + "// never innerHTML\ne.textContent = name;\n",
        "README.md": "text\n",
    }
    BAD = [
        ("server/b.c", SPDX + "strcpy(a, b);\n", "server/b.c:2: banned call"),
        ("agent/b.c", SPDX + "v = atoi(s);\n", "agent/b.c:2: banned call"),
        ("storage/b.c", SPDX + "x = strtoull (s, 0, 0);\n", "storage/b.c:2: banned call"),
        ("cli/b.c", SPDX + "t = localtime_r(&a, &b);\n", "cli/b.c:2: banned call"),
        ("storage/c.c", SPDX + 'f("SELECT a FROM %s", t);\n', "storage/c.c:2: SQL"),
        ("web/js/b.js", SPDX + "e.innerHTML = x;\n", "web/js/b.js:2: markup"),
        ("web/index.html", "<!-- SPDX -->\n<script>x()</script>\n", "web/index.html:2: inline"),
        ("docs/a.md", "see /wo" + "rk/a/b\n", "docs/a.md:1: machine path"),
        ("web/lock.json", '"https://regis' + 'try.example.org/a.tgz"\n', "web/lock.json:1: registry"),
        ("base/no.c", "int x;\n", "base/no.c:1: no SPDX"),
        ("proto/x.pb-c.h", SPDX, "proto/x.pb-c.h: generated"),
    ]

    def test_good(self):
        status, out = run("tree.py", self.GOOD)
        self.assertEqual((status, out), (0, "tree: 4 files, 0 problems\n"))

    def test_each_rule(self):
        for name, text, want in self.BAD:
            status, out = run("tree.py", {**self.GOOD, name: text})
            self.assertEqual(status, 1, name)
            self.assertIn(want, out)
            self.assertIn("1 problems", out)

    def test_nothing(self):
        self.assertEqual(run("tree.py", {})[0], 2)


class Links(unittest.TestCase):
    GOOD = {
        "README.md": "# A b\n[x](docs/x.md#two-words) [y](https://example.org/) `base/unit.h`\n"
                     "`server/ingest*` `storage/<name>.c` `agent` [here](#a-b)\n```\n`base/no.h`\n```\n",
        "docs/x.md": "## Two words\n[up](../README.md)\n",
        "base/unit.h": "", "server/ingest.c": "",
    }
    BAD = [
        ("docs/y.md", "[z](z.md)\n", "docs/y.md:1: link to z.md: no such file"),
        ("docs/y.md", "[z](x.md#three)\n", "docs/y.md:1: link to x.md#three: no such heading"),
        ("docs/y.md", "\n`base/gone.h`\n", "docs/y.md:2: `base/gone.h`: no such path"),
        ("docs/y.md", "`query/none*`\n", "docs/y.md:1: `query/none*`: no such path"),
    ]

    def test_good(self):
        status, out = run("links.py", self.GOOD)
        self.assertEqual((status, out), (0, "links: 2 pages, 0 problems\n"))

    def test_each_rule(self):
        for name, text, want in self.BAD:
            status, out = run("links.py", {**self.GOOD, name: text})
            self.assertEqual(status, 1, text)
            self.assertIn(want, out)

    def test_no_readme(self):
        self.assertEqual(run("links.py", {"docs/x.md": "x\n"})[0], 2)


if __name__ == "__main__":
    unittest.main()
