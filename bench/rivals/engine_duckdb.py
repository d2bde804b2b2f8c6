# SPDX-License-Identifier: Apache-2.0
"""DuckDB in process."""
from engine_sql import Sql, columns
from work import BUCKET, CPU, SERVICE


class DuckDb(Sql):
    """In process. Sorted on load; one database file per table, so that their sizes are known."""

    total = "sum(value)::BIGINT"
    bucket = f"ts // {BUCKET}"
    tables = ("sample", "rollup", "rollup_span", "trie", "names", "path", "span")

    def __init__(self, work, directory, floor, memory):
        import duckdb

        self.work, self.floor, self.directory = work, floor, directory
        self.con = duckdb.connect(config={"threads": 1, "memory_limit": f"{memory}B",
                                          "temp_directory": str(directory / "spill")})
        for name in self.tables:
            self.con.sql(f"ATTACH '{directory / name}.db' AS db_{name} (STORAGE_VERSION 'latest')")
        self.con.sql("SET search_path = '" + ",".join(f"db_{name}" for name in self.tables) + "'")
        self.version = "DuckDB " + duckdb.__version__

    def create(self, name, sql, incoming=None):
        if incoming is not None:
            self.con.register("incoming", incoming)
        self.con.sql(f"CREATE TABLE db_{name}.main.{name} AS {sql}")
        self.con.sql(f"CHECKPOINT db_{name}")
        if incoming is not None:
            self.con.unregister("incoming")

    def load(self):
        yield "samples in, sorted"
        self.create("sample", "SELECT * FROM incoming ORDER BY type, svc, series, ts",
                    next(self.work.batches(self.work.samples)))
        yield "roll-up"
        self.create("rollup", "SELECT type, svc, stack, sum(value)::BIGINT AS value, "
                    "count(*)::UINTEGER AS n FROM sample GROUP BY ALL ORDER BY type, svc, stack")
        yield None
        for name in ("trie", "names", "path", "span"):
            self.create(name, "SELECT * FROM incoming", getattr(self.work, name)())
        self.create("rollup_span", "SELECT r.type, r.svc, s.pre, r.value FROM rollup r JOIN span s "
                    "ON s.svc = r.svc AND s.node = r.stack ORDER BY ALL")

    def bytes(self):
        return {name: (self.directory / f"{name}.db").stat().st_size for name in self.tables}

    def answer(self, sql):
        return columns(self.con.sql(sql).to_arrow_table())

    def by_path(self, sums, svc, floor):
        where = "" if svc else f"WHERE svc = {SERVICE}"
        return f"""
            SELECT {svc}node, sum(value)::BIGINT AS total
            FROM (
                SELECT {svc}value, unnest(path) AS node
                FROM ({sums}) JOIN (SELECT {svc}stack, path FROM path {where}) USING ({svc}stack)
            )
            GROUP BY {svc}node HAVING total >= {floor}"""

    def by_span(self, svc, floor):
        where = "" if svc else f"AND svc = {SERVICE}"
        return f"""
            WITH leaf AS (
                SELECT pre, value FROM rollup_span WHERE type = {CPU} {where}
            ), sums AS (
                SELECT {svc}node, pre, size, coalesce(value, 0) AS value
                FROM (SELECT {svc}node, pre, size FROM span WHERE true {where})
                LEFT JOIN leaf USING (pre)
            ), run AS (
                SELECT *, (sum(value) OVER (ORDER BY pre ROWS UNBOUNDED PRECEDING))::BIGINT AS upto
                FROM sums
            )
            SELECT {svc}node, last.upto - run.upto + run.value AS total
            FROM run JOIN (SELECT pre, upto FROM run) AS last ON last.pre = run.pre + run.size - 1
            WHERE total >= {floor}"""

    def by_recursion(self, sums, svc, floor):
        where, same, own = ("", "t.svc = u.svc AND", "u.svc, ") if svc else (
            f"WHERE svc = {SERVICE}", "", "")
        return f"""
            WITH RECURSIVE up({svc}node, value) AS (
                {sums}
                UNION ALL
                SELECT {own}u.node - t.up AS above, sum(u.value)::BIGINT
                FROM up AS u JOIN (SELECT {svc}node, up FROM trie {where}) AS t
                ON {same} t.node = u.node
                WHERE t.up > 0 GROUP BY {own}above
            )
            SELECT {svc}node, sum(value)::BIGINT AS total FROM up
            GROUP BY {svc}node HAVING total >= {floor}"""

    def trees(self, raw1, raw2, floor_b, floor_c):
        return [
            ("b", "SQL: raw, path arrays", self.by_path(raw1, "", floor_b)),
            ("b", "SQL: roll-up, path arrays", self.by_path(self.rollup1, "", floor_b)),
            ("b", "SQL: roll-up, recursion", self.by_recursion(self.rollup1, "", floor_b)),
            ("b", "SQL: roll-up, intervals", self.by_span("", floor_b)),
            ("c", "SQL: raw, path arrays", self.by_path(raw2, "svc, ", floor_c)),
            ("c", "SQL: roll-up, path arrays", self.by_path(self.rollup2, "svc, ", floor_c)),
            ("c", "SQL: roll-up, recursion", self.by_recursion(self.rollup2, "svc, ", floor_c)),
            ("c", "SQL: roll-up, intervals", self.by_span("svc, ", floor_c)),
        ]
