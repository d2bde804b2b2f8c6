# SPDX-License-Identifier: Apache-2.0
"""ClickHouse in process, through chdb."""
import pyarrow as pa

from engine_sql import Sql, columns
from work import BUCKET, CPU, SERVICE


class ClickHouse(Sql):
    """In process through chdb. Codecs are the smallest that were found, see README."""

    total = "sum(value)"
    bucket = f"intDiv(ts, {BUCKET})"
    plain, bits = "CODEC(ZSTD(1))", "CODEC(T64, ZSTD(1))"
    delta, delta_bits = "CODEC(Delta(4), ZSTD(1))", "CODEC(Delta(4), T64, ZSTD(1))"
    tables = (  # name, sort key, columns
        ("sample", "type, svc, series, ts",
         f"type UInt8 {plain}, svc UInt16 {plain}, series UInt16 {plain}, ts UInt32 {delta_bits}, "
         f"stack UInt32 {bits}, value Int64 {bits}"),
        ("rollup", "type, svc, stack",
         f"type UInt8 {plain}, svc UInt16 {plain}, stack UInt32 {delta}, value Int64 {plain}, "
         f"n UInt32 {bits}"),
        ("rollup_span", "type, svc, pre",
         f"type UInt8 {plain}, svc UInt16 {plain}, pre UInt32 {delta}, value Int64 {plain}"),
        ("trie", "svc, node",
         f"svc UInt16 {plain}, node UInt32 {delta}, up UInt32 {bits}, function UInt32 {bits}"),
        ("names", "function", f"function UInt32 {delta}, name String CODEC(ZSTD(3))"),
        ("path", "svc, stack",
         f"svc UInt16 {plain}, stack UInt32 {delta}, path Array(UInt32) {delta}"),
        ("span", "svc, pre",
         f"svc UInt16 {plain}, pre UInt32 {delta}, size UInt32 {plain}, node UInt32 {bits}"),
    )

    def __init__(self, work, directory, floor, memory):
        from chdb import session

        self.work, self.floor = work, floor
        self.session = session.Session(str(directory))
        self.run("CREATE DATABASE bench ENGINE = Atomic")
        self.run("USE bench")
        self.settings = (" SETTINGS max_threads = 1, max_insert_threads = 1, "
                         f"max_memory_usage = {memory}")
        for name, key, fields in self.tables:
            self.run(f"CREATE TABLE {name} ({fields}) ENGINE = MergeTree ORDER BY ({key}) "
                     "SETTINGS min_bytes_for_wide_part = 0")
        self.version = "ClickHouse " + self.run("SELECT version()").data().strip().strip('"')

    def run(self, sql, form="CSV"):
        return self.session.query(sql, form)

    def insert(self, name, table):
        global batch  # the table function finds it by name
        batch = table
        self.run(f"INSERT INTO {name} SELECT * FROM Python(batch)" + self.settings)

    def merge(self, name):
        self.run(f"OPTIMIZE TABLE {name} FINAL")

    def load(self):
        yield "samples in, batches of 1 M, merged"
        for table in self.work.batches(1_000_000):
            self.insert("sample", table)
        self.merge("sample")
        yield "roll-up"
        self.run("INSERT INTO rollup SELECT type, svc, stack, sum(value), count() FROM sample "
                 "GROUP BY type, svc, stack" + self.settings)
        self.merge("rollup")
        yield None  # dictionaries: not timed
        for name in ("trie", "names", "path", "span"):
            self.insert(name, getattr(self.work, name)())
            self.merge(name)
        self.run("INSERT INTO rollup_span SELECT type, r.svc, pre, value FROM rollup AS r "
                 "JOIN span AS s ON s.svc = r.svc AND s.node = r.stack" + self.settings)
        self.merge("rollup_span")
        self.run("SYSTEM STOP MERGES")

    def bytes(self):
        rows = self.run("SELECT table, sum(bytes_on_disk) FROM system.parts WHERE active AND "
                        "database = 'bench' GROUP BY table", "TSV").data()
        return {name: int(size) for name, size in (row.split("\t") for row in rows.splitlines())}

    def answer(self, sql):
        result = self.run(sql + self.settings, "Arrow")
        return columns(pa.ipc.open_file(pa.py_buffer(result.bytes())).read_all())

    def by_path(self, sums, svc, floor):
        """svc: "svc, " for all services, "" for the one."""
        where = "" if svc else f"WHERE svc = {SERVICE}"
        return f"""
            SELECT {svc}node, sum(value) AS total
            FROM (
                SELECT {svc}value, path
                FROM (SELECT {svc}stack, path FROM path {where}) AS p
                ANY INNER JOIN ({sums}) AS r USING ({svc}stack)
            )
            ARRAY JOIN path AS node
            GROUP BY {svc}node HAVING total >= {floor}"""

    def by_span(self, lo, hi, svc, floor):
        """Services lo..hi-1: array of leaf sums by pre, running sum, two look-ups per node."""
        base, n = self.work.first[lo], self.work.first[hi] - self.work.first[lo]
        where = f"svc >= {lo} AND svc < {hi}"
        return f"""
            SELECT {svc}node, total FROM (
                WITH (
                    SELECT arrayCumSum(
                        groupArrayInsertAt(toInt64(0), {n + 1})(value, toUInt32(pre - {base} + 1)))
                    FROM rollup_span WHERE type = {CPU} AND {where}
                ) AS run
                SELECT {svc}node, run[pre - {base} + size + 1] - run[pre - {base} + 1] AS total
                FROM span WHERE {where} AND total >= {floor}
            )"""

    def trees(self, raw1, raw2, floor_b, floor_c):
        first, parts, lo = self.work.first, [], 0
        for hi in range(1, len(first)):  # a constant array holds a million values at most
            if hi + 1 == len(first) or first[hi + 1] - first[lo] > 990_000:
                parts.append(self.by_span(lo, hi, "svc, ", floor_c))
                lo = hi
        return [
            ("b", "SQL: raw, path arrays", self.by_path(raw1, "", floor_b)),
            ("b", "SQL: roll-up, path arrays", self.by_path(self.rollup1, "", floor_b)),
            ("b", "SQL: roll-up, intervals", self.by_span(SERVICE, SERVICE + 1, "", floor_b)),
            ("c", "SQL: raw, path arrays", self.by_path(raw2, "svc, ", floor_c)),
            ("c", "SQL: roll-up, path arrays", self.by_path(self.rollup2, "svc, ", floor_c)),
            ("c", "SQL: roll-up, intervals", " UNION ALL ".join(parts)),
        ]
