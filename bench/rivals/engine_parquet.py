# SPDX-License-Identifier: Apache-2.0
"""Parquet files, written and read by pyarrow."""
import numpy as np
import pyarrow as pa

from engine_sql import columns
from work import BUCKET, CPU, SAMPLE, SERVICE, SLICE, one_tree_in_numpy, tree_in_numpy


class Parquet:
    """Files written and read by pyarrow, which makes no trees: numpy does."""

    def __init__(self, work, directory, floor, memory):
        import pyarrow.dataset

        pa.set_cpu_count(1)
        pa.set_io_thread_count(1)
        self.work, self.floor, self.directory = work, floor, directory
        self.dataset = pyarrow.dataset
        self.version = "pyarrow " + pa.__version__

    def write(self, name, table, dictionary, encoding):
        import pyarrow.parquet

        pyarrow.parquet.write_table(
            table, self.directory / f"{name}.parquet", compression="zstd", compression_level=1,
            row_group_size=1 << 17, use_dictionary=dictionary, column_encoding=encoding,
            data_page_version="2.0")

    def load(self):
        work = self.work
        yield "samples in, sorted by numpy"
        key = work.type.astype("<u8") << np.uint64(48)
        key |= work.series.astype("<u8") << np.uint64(32)  # a series belongs to one service
        key |= work.ts
        order = np.argsort(key, kind="stable")
        del key
        self.write("sample", pa.table({name: getattr(work, name)[order] for name in SAMPLE}),
                   ["type", "svc", "series", "stack"],
                   {"ts": "DELTA_BINARY_PACKED", "value": "BYTE_STREAM_SPLIT"})
        del order
        yield "roll-up"
        rows = self.grouped("sample", ["type", "svc", "stack"], None)
        rows = rows.sort_by([(name, "ascending") for name in ("type", "svc", "stack")])
        self.write("rollup", rows, ["type", "svc"],
                   {"stack": "DELTA_BINARY_PACKED", "value_sum": "BYTE_STREAM_SPLIT"})
        yield None
        self.write("trie", work.trie().drop_columns(["node"]), ["svc"],
                   {"up": "BYTE_STREAM_SPLIT", "function": "BYTE_STREAM_SPLIT"})
        self.write("names", work.names().drop_columns(["function"]), False,
                   {"name": "DELTA_BYTE_ARRAY"})

    def bytes(self):
        return {p.stem: p.stat().st_size for p in self.directory.glob("*.parquet")}

    def read(self, name, columns, where):
        data = self.dataset.dataset(self.directory / f"{name}.parquet")
        return data.to_table(columns=columns, filter=where, use_threads=False)

    def grouped(self, name, keys, where):
        table = self.read(name, keys + ["value"], where)
        return table.group_by(keys, use_threads=False).aggregate([("value", "sum")])

    def queries(self):
        field = self.dataset.field
        all_ = field("type") == CPU
        one = all_ & (field("svc") == SERVICE)
        cut = (field("ts") >= SLICE[0]) & (field("ts") < SLICE[1])

        def raw(keys, where):
            return columns(self.grouped("sample", keys, where))

        def rollup(keys, where):
            return columns(self.read("rollup", keys + ["value_sum"], where))

        def series():
            table = self.read("sample", ["series", "ts", "value"], one)
            bucket = pa.compute.divide(table["ts"], pa.scalar(BUCKET, pa.uint32()))
            table = table.set_column(1, "bucket", bucket)
            groups = table.group_by(["series", "bucket"], use_threads=False)
            return columns(groups.aggregate([("value", "sum")]))

        found = [("d1", "raw", lambda: raw(["stack"], one & cut)),
                 ("d2", "raw", lambda: raw(["svc", "stack"], all_ & cut)), ("e", "raw", series)]
        for how, sums in (("raw", raw), ("roll-up", rollup)):
            found += [
                ("a1", how, lambda sums=sums: sums(["stack"], one)),
                ("a2", how, lambda sums=sums: sums(["svc", "stack"], all_)),
                ("b", f"client: {how}, tree in numpy", lambda sums=sums: one_tree_in_numpy(
                    self.work, SERVICE, *sums(["stack"], one), self.floor["b"])),
                ("c", f"client: {how}, tree in numpy", lambda sums=sums: tree_in_numpy(
                    self.work, *sums(["svc", "stack"], all_), self.floor["c"])),
            ]
        return found
