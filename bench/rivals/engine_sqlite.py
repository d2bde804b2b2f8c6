# SPDX-License-Identifier: Apache-2.0
"""SQLite, a row per sample."""
import sqlite3

import numpy as np

from engine_sql import Sql
from work import BUCKET, SAMPLE, SERVICE, one_tree_in_numpy, tree_in_numpy


class SqliteRows:
    """A row per sample, clustered by (type, svc, series, ts): what a column store must beat."""

    limit = 20_000_000  # samples: beyond, loading takes longer than it tells

    def __init__(self, work, directory, floor, memory):
        self.work, self.floor, self.file = work, floor, directory / "rows.db"
        self.db = sqlite3.connect(self.file, isolation_level=None)
        self.db.executescript("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; "
                              "PRAGMA cache_size = -262144;")
        self.version = "SQLite " + sqlite3.sqlite_version

    def load(self):
        work = self.work
        yield "samples in, sorted by numpy, executemany"
        self.db.execute("CREATE TABLE sample(type INTEGER, svc INTEGER, series INTEGER, "
                        "ts INTEGER, seq INTEGER, stack INTEGER, value INTEGER, "
                        "PRIMARY KEY(type, svc, series, ts, seq)) WITHOUT ROWID")
        order = np.lexsort((work.ts, work.series, work.type))
        self.db.execute("BEGIN")
        for i in range(0, work.samples, 100_000):
            part = order[i:i + 100_000]
            type_, svc, series, ts, stack, value = (
                getattr(work, name)[part].tolist() for name in SAMPLE)
            rows = zip(type_, svc, series, ts, range(i, i + len(part)), stack, value)
            self.db.executemany("INSERT INTO sample VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
        self.db.execute("COMMIT")
        yield None
        self.db.execute("CREATE TABLE trie(node INTEGER PRIMARY KEY, parent INTEGER)")
        rows = work.node_svc == SERVICE  # as much as the one recursive query needs
        self.db.execute("BEGIN")
        self.db.executemany("INSERT INTO trie VALUES (?, ?)",
                            zip(work.node[rows].tolist(), work.parent[rows].tolist()))
        self.db.execute("COMMIT")

    def bytes(self):
        sql = "SELECT sum(pgsize) FROM dbstat WHERE name = 'sample'"
        return {"sample": self.db.execute(sql).fetchone()[0]}

    def answer(self, sql):
        return [np.array(c, dtype="<i8") for c in zip(*self.db.execute(sql).fetchall())]

    def queries(self):
        def sums(keys, *where):
            return (f"SELECT {keys}, sum(value) AS value FROM sample WHERE {' AND '.join(where)} "
                    f"GROUP BY {keys}")

        raw1, raw2 = sums("stack", Sql.one), sums("svc, stack", Sql.every)
        recursion = f"""
            WITH RECURSIVE up(node, value) AS (
                {raw1}
                UNION ALL SELECT parent, value FROM up JOIN trie USING (node) WHERE node > 0
            )
            SELECT node, sum(value) AS total FROM up
            GROUP BY node HAVING total >= {self.floor["b"]}"""
        return [
            ("a1", "raw", lambda: self.answer(raw1)),
            ("a2", "raw", lambda: self.answer(raw2)),
            ("b", "SQL: raw, recursion", lambda: self.answer(recursion)),
            ("b", "client: raw, tree in numpy", lambda: one_tree_in_numpy(
                self.work, SERVICE, *self.answer(raw1), self.floor["b"])),
            ("c", "client: raw, tree in numpy", lambda: tree_in_numpy(
                self.work, *self.answer(raw2), self.floor["c"])),
            ("d1", "raw", lambda: self.answer(sums("stack", Sql.one, Sql.cut))),
            ("d2", "raw", lambda: self.answer(sums("svc, stack", Sql.every, Sql.cut))),
            ("e", "raw", lambda: self.answer(sums(f"series, ts / {BUCKET}", Sql.one))),
        ]
