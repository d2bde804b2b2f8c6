# SPDX-License-Identifier: Apache-2.0
"""What ClickHouse and DuckDB have in common.

queries() gives (query, approach, function); a function returns columns, keys first, the total last.
"raw" reads samples, "roll-up" a table of sums by hour and stack.
"""
from work import BUCKET, CPU, SERVICE, SLICE, one_tree_in_numpy, tree_in_numpy


def columns(table):
    return [c.to_numpy() for c in table.columns]


class Sql:
    one = f"type = {CPU} AND svc = {SERVICE}"
    every = f"type = {CPU}"
    cut = f"ts >= {SLICE[0]} AND ts < {SLICE[1]}"
    rollup1 = f"SELECT stack, value FROM rollup WHERE {one}"
    rollup2 = f"SELECT svc, stack, value FROM rollup WHERE {every}"

    def sums(self, keys, where):
        return f"SELECT {keys}, {self.total} AS value FROM sample WHERE {where} GROUP BY {keys}"

    def queries(self):
        raw1, raw2 = self.sums("stack", self.one), self.sums("svc, stack", self.every)
        sql = [
            ("a1", "raw", raw1),
            ("a1", "roll-up", self.rollup1),
            ("a2", "raw", raw2),
            ("a2", "roll-up", self.rollup2),
            ("d1", "raw", self.sums("stack", f"{self.one} AND {self.cut}")),
            ("d2", "raw", self.sums("svc, stack", f"{self.every} AND {self.cut}")),
            ("e", "raw", self.sums(f"series, {self.bucket}", self.one)),
        ] + self.trees(raw1, raw2, self.floor["b"], self.floor["c"])
        found = [(query, how, lambda text=text: self.answer(text)) for query, how, text in sql]
        for how, one, all_ in ("raw", raw1, raw2), ("roll-up", self.rollup1, self.rollup2):
            found.append(("b", f"client: {how}, tree in numpy", lambda text=one: one_tree_in_numpy(
                self.work, SERVICE, *self.answer(text), self.floor["b"])))
            found.append(("c", f"client: {how}, tree in numpy", lambda text=all_: tree_in_numpy(
                self.work, *self.answer(text), self.floor["c"])))
        return found
