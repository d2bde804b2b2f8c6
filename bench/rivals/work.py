# SPDX-License-Identifier: Apache-2.0
"""The columns of a workload, what the rivals need beside them, and the right answers by numpy."""
import numpy as np
import pyarrow as pa

CPU = 0  # the profile type of all queries
SERVICE = 0  # the largest
SLICE = (1_200_000, 1_800_000)  # ms: ten minutes in the middle of the hour
BUCKET = 15_000  # ms
SAMPLE = {"type": "u1", "svc": "<u2", "series": "<u2", "ts": "<u4", "stack": "<u4", "value": "<i8"}
WIDTH = 10_000  # flame graphs leave out nodes below 1/WIDTH of the whole, as a drawn one would

QUERIES = {
    "a1": "one service, 1 h: sum by stack",
    "a2": "all services, 1 h: sum by stack",
    "b": "one service, 1 h: flame graph",
    "c": "all services, 1 h: flame graph",
    "d1": "one service, 10 of 60 min: sum by stack",
    "d2": "all services, 10 of 60 min: sum by stack",
    "e": "one service, 1 h: sum by series and 15 s",
}


class Work:
    """The columns of gen_profile, mapped, and what the rivals need beside them."""

    def __init__(self, data):
        self.meta = dict(line.split() for line in (data / "meta.txt").read_text().splitlines())
        self.samples = int(self.meta["samples"])
        for name, kind in SAMPLE.items():
            setattr(self, name, np.memmap(data / f"sample.{name}", dtype=kind, mode="r"))
        for name in ("parent", "function", "pre", "size"):
            setattr(self, name, np.fromfile(data / f"node.{name}", dtype="<u4"))
        self.first = np.fromfile(data / "service.first", dtype="<u4")
        self.nodes = int(self.first[-1])
        self.node_svc = np.repeat(np.arange(len(self.first) - 1, dtype="<u2"), np.diff(self.first))
        self.node_first = self.first[self.node_svc]
        self.node = np.arange(self.nodes, dtype="<u4") - self.node_first
        self.name_bytes = np.fromfile(data / "function.name", dtype="u1")
        self.name_end = np.fromfile(data / "function.end", dtype="<u4")

    def batches(self, rows):
        """Samples in arrival order as Arrow tables that share the mapped memory."""
        for i in range(0, self.samples, rows):
            part = slice(i, i + rows)
            values = {name: np.asarray(getattr(self, name)[part]) for name in SAMPLE}
            yield pa.table({name: pa.array(column) for name, column in values.items()})

    def trie(self):
        """Parent as distance upwards: small numbers compress better than ids."""
        return pa.table({"svc": self.node_svc, "node": self.node, "up": self.node - self.parent,
                         "function": self.function})

    def names(self):
        ends = np.concatenate(([0], self.name_end)).astype("<i4")
        text = pa.StringArray.from_buffers(len(self.name_end), pa.py_buffer(ends),
                                           pa.py_buffer(self.name_bytes))
        return pa.table({"function": np.arange(len(self.name_end), dtype="<u4"), "name": text})

    def span(self):
        """Depth-first numbering over all services: a subtree is the interval [pre, pre + size)."""
        pre = self.node_first + self.pre
        order = np.empty(self.nodes, dtype="<u4")
        order[pre] = np.arange(self.nodes, dtype="<u4")
        return pa.table({"svc": self.node_svc[order], "pre": np.arange(self.nodes, dtype="<u4"),
                         "size": self.size[order], "node": self.node[order]})

    def path(self):
        """For every node at which some stack ends: itself and its ancestors."""
        ends = np.zeros(self.nodes, dtype=bool)
        for i in range(0, self.samples, 1 << 22):
            part = slice(i, i + (1 << 22))
            ends[self.first[self.svc[part]] + self.stack[part]] = True
        leaf = np.flatnonzero(ends).astype("<u4")
        up = (self.node_first + self.parent).astype("<u4")
        depth = np.ones(len(leaf), dtype="<i4")
        rows, at = np.arange(len(leaf)), leaf.copy()
        steps = []
        while len(rows):
            steps.append((rows, self.node[at]))
            inner = self.node[at] != 0
            rows, at = rows[inner], up[at[inner]]
            depth[rows] += 1
        offsets = np.concatenate(([0], np.cumsum(depth, dtype="<i8")))
        path = np.empty(offsets[-1], dtype="<u4")
        for step, (rows, ids) in enumerate(steps):
            path[offsets[rows] + step] = ids
        return pa.table({"svc": self.node_svc[leaf], "stack": self.node[leaf],
                         "path": pa.LargeListArray.from_arrays(offsets, path)})


def tree_in_numpy(work, svc, stack, value, floor):
    """Totals of all nodes from sums of leaves: a running sum in depth-first order."""
    row = work.first[svc] + stack
    at_pre = np.zeros(work.nodes + 1, dtype="<i8")
    at_pre[work.node_first[row] + work.pre[row] + 1] = value
    running = np.cumsum(at_pre)
    begin = work.node_first + work.pre
    total = running[begin + work.size] - running[begin]
    keep = np.flatnonzero(total >= floor)
    return work.node_svc[keep], work.node[keep], total[keep]


def one_tree_in_numpy(work, svc, stack, value, floor):
    rows = slice(work.first[svc], work.first[svc + 1])
    pre, size = work.pre[rows], work.size[rows]
    at_pre = np.zeros(len(pre) + 1, dtype="<i8")
    at_pre[pre[stack] + 1] = value
    running = np.cumsum(at_pre)
    total = running[pre + size] - running[pre]
    keep = np.flatnonzero(total >= floor)
    return keep, total[keep]


def digest(keys, total):
    """Order-independent: number of rows and a sum of mixed rows."""
    mixed = np.zeros(len(total), dtype="<u8")
    for key in keys:
        mixed += np.asarray(key).astype("<u8") + np.uint64(1)
        mixed *= np.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> np.uint64(29)
    mixed ^= np.asarray(total).astype("<u8") * np.uint64(0xBF58476D1CE4E5B9)
    return len(total), int(mixed.sum(dtype="<u8"))


class Truth:
    """The right answers, by plain array arithmetic. Also the floors that the queries name."""

    def __init__(self, work):
        leaf = np.zeros(work.nodes, dtype="<i8")
        cut = np.zeros(work.nodes, dtype="<i8")
        buckets = int(work.meta["span_ms"]) // BUCKET
        series = np.zeros(int(work.meta["series"]) * buckets, dtype="<i8")
        for i in range(0, work.samples, 1 << 22):
            part = slice(i, i + (1 << 22))
            cpu = work.type[part] == CPU
            row = (work.first[work.svc[part]] + work.stack[part])[cpu]
            ts, value = work.ts[part][cpu], work.value[part][cpu]
            inside = (ts >= SLICE[0]) & (ts < SLICE[1])
            one = work.svc[part][cpu] == SERVICE
            np.add.at(leaf, row, value)
            np.add.at(cut, row[inside], value[inside])
            np.add.at(series, work.series[part][cpu][one] * np.int64(buckets) + ts[one] // BUCKET,
                      value[one])
        own = slice(work.first[SERVICE], work.first[SERVICE + 1])
        self.floor = {"b": int(leaf[own].sum()) // WIDTH + 1, "c": int(leaf.sum()) // WIDTH + 1}
        self.digest = {}
        for query, sums in (("a", leaf), ("d", cut)):
            row = np.flatnonzero(sums)
            self.digest[query + "2"] = digest((work.node_svc[row], work.node[row]), sums[row])
            row = row[work.node_svc[row] == SERVICE]
            self.digest[query + "1"] = digest((work.node[row],), sums[row])
        svc, node, total = self.by_sweep(work, leaf)
        keep = total >= self.floor["c"]
        self.digest["c"] = digest((svc[keep], node[keep]), total[keep])
        keep = (svc == SERVICE) & (total >= self.floor["b"])
        self.digest["b"] = digest((node[keep],), total[keep])
        row = np.flatnonzero(series)
        self.digest["e"] = digest((row // buckets, row % buckets), series[row])

    @staticmethod
    def by_sweep(work, leaf):
        """Not by the numbering of tree_in_numpy: one must not vouch for itself."""
        total, up = leaf.copy(), work.node_first + work.parent
        rows, at = np.flatnonzero(leaf), np.flatnonzero(leaf)
        while len(rows):
            inner = work.node[at] != 0
            rows, at = rows[inner], up[at[inner]]
            np.add.at(total, at, leaf[rows])
        return work.node_svc, work.node, total
