#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Builds native batches (docs/format-wire.md) from plain Python values and posts them.

    import stratabatch as sb

    b = sb.Batch(labels={"host": "h1"})
    t = b.target(pid=42, comm="demo", labels={})
    b.stream("cpu", t0_ns, t1_ns, period=10_000_000, labels={"service": "demo"}, rows=[
        # a stack: root first, each frame a name or (kind, name, file, line, binary)
        dict(stack=[("native", "main", "", 0, "/bin/demo"), "work"], count=3, target=t, tid=42),
        dict(stack=["main"], value=5_000_000, t=t0_ns + 1),
    ], lost={"ring_full": (2, 20_000_000)})
    b.metric("process_cpu", "nanoseconds", t0_ns, [(t0_ns, 1.5)], target=t)
    reply = sb.post("http://127.0.0.1:4040", b)       # {"http": 200, "status": "stored", ...}

Every call of encode() gives the same bytes. An identity (agent, boot, seq) is made up unless given.
Standard library only.
"""
import itertools
import os
import struct
import time
import urllib.error
import urllib.request

MEDIA_TYPE = "application/vnd.strata.batch+protobuf"
TYPES = {name: i + 1 for i, name in enumerate(
    "cpu offcpu runq gil_held gil_wait gpu_kernel gpu_busy gpu_idle alloc alloc_objects live "
    "live_objects gpu_alloc gpu_live gpu_copy gpu_copy_bytes gpu_exclusive gpu_tensor_alloc "
    "gpu_tensor_live pinned_alloc pinned_live".split())}
KINDS = {"kernel": 1, "native": 2, "python": 3, "jit": 4, "gpu": 5, "other": 6}
STATES = {"ok": 1, "paused": 2, "refused": 3, "absent": 4}
BASES = {"unknown": 0, "every": 1, "periodic": 2, "scaled": 3, "raw": 4}
_seq = itertools.count(1)
_boot = os.urandom(16)


# ---- protobuf ---------------------------------------------------------------------------------
def varint(v):
    v &= (1 << 64) - 1
    out = bytearray()
    while v >= 0x80:
        out.append(v & 0x7F | 0x80)
        v >>= 7
    out.append(v)
    return bytes(out)


def zigzag(v):
    return (v << 1) ^ (v >> 63)


def f_int(number, v):
    return varint(number << 3) + varint(v) if v else b""


def f_bytes(number, v):
    return varint(number << 3 | 2) + varint(len(v)) + v


def f_fixed64(number, v):
    return varint(number << 3 | 1) + struct.pack("<Q", v) if v else b""


def packed(number, values):
    return f_bytes(number, b"".join(map(varint, values))) if values else b""


def packed_sint(number, values):
    return packed(number, [zigzag(v) for v in values])


def packed_double(number, values):
    return f_bytes(number, struct.pack("<%dd" % len(values), *values)) if values else b""


def packed_fixed64(number, values):
    return f_bytes(number, struct.pack("<%dQ" % len(values), *values)) if values else b""


def deltas(values, start):
    return [b - a for a, b in zip([start] + values, values)]


def fields(data):
    """(number, value) of each field; a value is an int or bytes."""
    at = 0

    def read():
        nonlocal at
        v = shift = 0
        while True:
            c = data[at]
            at += 1
            v |= (c & 0x7F) << shift
            shift += 7
            if c < 0x80:
                return v

    while at < len(data):
        tag = read()
        if tag & 7 == 0:
            yield tag >> 3, read()
        elif tag & 7 == 1:
            yield tag >> 3, struct.unpack_from("<Q", data, at)[0]
            at += 8
        elif tag & 7 == 2:
            n = read()
            if at + n > len(data):
                raise ValueError("length past the end")
            yield tag >> 3, data[at:at + n]
            at += n
        elif tag & 7 == 5:
            yield tag >> 3, struct.unpack_from("<I", data, at)[0]
            at += 4
        else:
            raise ValueError("wire type %d" % (tag & 7))


def to_bytes(s):
    return s if isinstance(s, bytes) else str(s).encode("utf-8", "surrogateescape")


# ---- the batch --------------------------------------------------------------------------------
class Table:
    """Values numbered in the order they come; entry 0 is none."""

    def __init__(self, first):
        self.index = {first: 0}
        self.values = [first]

    def __call__(self, v):
        if v not in self.index:
            self.index[v] = len(self.values)
            self.values.append(v)
        return self.index[v]


class Batch:
    def __init__(self, agent=None, boot=None, seq=None, labels=None, agent_version="test",
                 sent_ns=None, content=0, version=1):
        self.agent = b"stratabatch-test" if agent is None else agent
        self.boot = _boot if boot is None else boot
        self.seq = next(_seq) if seq is None else seq
        self.agent_version, self.content, self.version = agent_version, content, version
        self.sent_ns = time.time_ns() if sent_ns is None else sent_ns
        self.text = Table(b"")
        self.bins = Table(None)    # (path, id_kind, id)
        self.fns = Table(None)     # (name, file, line)
        self.frames = Table(None)  # (kind, fn, line, bin, flags, addr)
        self.nodes = Table(None)   # (parent, frame): numbers before known nodes are put in front
        self.label_sets = Table(())
        self.known = []            # hashes; a row's stack may be a Known(i)
        self.label = self._pairs(labels)
        self.parts = {n: [] for n in (10, 12, 13, 14, 15)}
        self.dropped = []

    def s(self, text):
        return self.text(to_bytes(text))

    def _pairs(self, labels):
        return [self.s(x) for pair in sorted((labels or {}).items()) for x in pair]

    def labels(self, labels):
        return self.label_sets(tuple(self._pairs(labels)))

    def target(self, pid, comm="", exe="", cmdline="", cgroup="", container="", pidns=4026531836,
               start_ns=1, host_pid=None, env=None, flags=0, host_id=b"host-of-the-test"):
        """The number of a new target, for target= of rows, streams, metrics."""
        msg = (f_int(1, pidns) + f_int(2, pid) + f_int(3, pid if host_pid is None else host_pid)
               + f_int(4, start_ns))
        for number, v in ((5, exe), (6, cmdline), (7, comm), (8, cgroup), (9, container)):
            msg += f_int(number, self.s(v))
        msg += packed(10, self._pairs(env)) + f_int(11, flags) + f_bytes(12, host_id)
        self.parts[10].append(msg)
        return len(self.parts[10])

    def frame(self, frame):
        """A name, or (kind, name[, file[, line[, binary]]]), or a dict with more."""
        f = dict(kind="native", name="", file="", start_line=0, line=0, bin="", build_id=b"",
                 inlined=False, addr=0)
        if isinstance(frame, dict):
            f.update(frame)
        elif isinstance(frame, (tuple, list)):
            f.update(zip(("kind", "name", "file", "line", "bin"), frame))
        else:
            f["name"] = frame
        fn = self.fns((self.s(f["name"]), self.s(f["file"]), f["start_line"]))
        binary = 0
        if f["bin"]:
            ident = to_bytes(f["build_id"])
            binary = self.bins((self.s(f["bin"]), 1 if ident else 0, ident))
        kind = KINDS.get(f["kind"], f["kind"])
        return self.frames((kind, fn, f["line"], binary, int(f["inlined"]), f["addr"]))

    def stack(self, frames):
        """The node of a stack, root first. [] is the root."""
        node = 0
        for frame in frames:
            node = self.nodes((node, self.frame(frame)))
        return node

    def stream(self, type, t0, t1, rows=(), period=0, basis="periodic", state="ok", why="",
               target=0, labels=None, width=1, expected=None, received=None, lost=None, at=0,
               unit=None, kind=1, jitter=0, **raw):
        """type: a built-in name or number, or any name with unit=. rows: dicts of stack, count,
        value, t, target, tid, thread, cpu, labels, var. lost: {reason: (n, weight)}, None unknown.
        raw: whole columns by field name, as they are (for malformed batches)."""
        rows = list(rows)
        number = TYPES.get(type, type) if unit is None else 0
        if isinstance(number, str):
            raise ValueError("%s is no built-in type: say its unit" % type)
        msg = f_int(1, number)
        if unit is not None:
            msg += f_int(2, self.s(type)) + f_int(3, self.s(unit)) + f_int(4, kind)
        msg += (f_int(5, target) + f_int(6, self.labels(labels)) + f_int(7, t0) + f_int(8, t1)
                + f_int(9, at) + f_int(10, width) + f_int(11, STATES.get(state, state))
                + f_int(12, self.s(why)) + f_int(13, BASES.get(basis, basis)) + f_int(14, period)
                + f_int(15, 0 if expected is None else expected + 1)
                + f_int(16, 0 if received is None else received + 1))
        lost = sorted((lost or {}).items())
        plus = lambda v: 0 if v is None else v + 1
        msg += packed(17, [self.s(reason) for reason, _ in lost])
        msg += packed(18, [plus(n) for _, (n, _) in lost])
        msg += packed(19, [plus(weight) for _, (_, weight) in lost])
        self.parts[12].append((msg, self._columns(rows, t0, target, raw), jitter))

    def _columns(self, rows, t0, target, raw):
        def column(name, default):
            return ([r.get(name, default) for r in rows]
                    if any(name in r for r in rows) else [])

        c = dict(t_ns=deltas(column("t", t0), t0), s_target=column("target", target),
                 tid=column("tid", 0), thread=[self.s(v) for v in column("thread", "")],
                 cpu=[0 if v is None else v + 1 for v in column("cpu", None)],
                 s_labels=[self.labels(v) for v in column("labels", None)],
                 stack=[self.stack(r["stack"]) if isinstance(r.get("stack", []), list)
                        else r["stack"] for r in rows],
                 count=column("count", 1), value=column("value", 0), var=column("var", 0.0))
        for name, v in raw.items():
            if name not in c:
                raise TypeError("no column %s" % name)
            c[name] = v
        return c

    def metric(self, name, unit, t0, points, kind=1, target=0, labels=None):
        """points: (t, number) each; all ints or all floats."""
        times = [t for t, _ in points]
        values = [v for _, v in points]
        whole = all(isinstance(v, int) for v in values)
        self.parts[13].append(
            f_int(1, self.s(name)) + f_int(2, self.s(unit)) + f_int(3, kind) + f_int(4, target)
            + f_int(5, self.labels(labels)) + f_int(6, t0) + packed_sint(7, deltas(times, t0))
            + (packed_sint(9, values) if whole else packed_double(8, values)))

    def steps(self, name, steps, target=0, inferred=False, parts=()):
        """steps: dicts of number, t0, t1, tid, labels, and part: {name: ns or None}."""
        steps = list(steps)
        starts = [s["t0"] for s in steps]
        self.parts[14].append(
            f_int(1, target) + f_int(2, self.s(name)) + f_int(3, int(inferred))
            + packed(4, [s["number"] for s in steps]) + f_int(5, starts[0])
            + packed_sint(6, deltas(starts, starts[0]))
            + packed(7, [s["t1"] - s["t0"] for s in steps])
            + packed(8, [self.labels(s.get("labels")) for s in steps])
            + packed(9, [self.s(p) for p in parts])
            + packed_sint(10, [-1 if s["part"].get(p) is None else s["part"][p]
                               for s in steps for p in parts])
            + packed(11, [s.get("tid", 0) for s in steps]))

    def event(self, t, kind, text, target=0):
        self.parts[15].append(f_int(1, t) + f_int(2, self.s(kind)) + f_int(3, self.s(text))
                              + f_int(4, target))

    def _stream_bytes(self, head, c, jitter):
        # new nodes stand behind the known ones
        shift = len(self.known)
        stack = [v.i + 1 if isinstance(v, Known) else v + shift if v else 0 for v in c["stack"]]
        return (head + packed_sint(20, c["t_ns"]) + packed(21, c["s_target"]) + packed(22, c["tid"])
                + packed(23, c["thread"]) + packed(24, c["cpu"]) + packed(25, c["s_labels"])
                + packed(26, stack) + packed(27, c["count"]) + packed_sint(28, c["value"])
                + packed_double(29, c["var"]) + f_int(30, zigzag(jitter)))

    def _dict_bytes(self):
        bins, fns, frames = self.bins.values[1:], self.fns.values[1:], self.frames.values[1:]
        nodes, shift = self.nodes.values[1:], len(self.known)
        out = packed(1, [b[0] for b in bins]) + packed(2, [b[1] for b in bins])
        out += b"".join(f_bytes(3, b[2]) for b in bins)
        for i in range(3):
            out += packed(4 + i, [f[i] for f in fns])
        for i in range(6):  # kind, fn, line, bin, flags, addr
            out += packed(7 + i, [f[i] for f in frames])
        out += packed_fixed64(13, self.known)
        out += packed(14, [p + shift if p else 0 for p, _ in nodes])
        return out + packed(15, [f - 1 for _, f in nodes])

    def encode(self):
        out = f_int(1, self.version)
        out += f_bytes(2, self.agent) if self.agent else b""
        out += f_bytes(3, self.boot) if self.boot else b""
        out += f_int(4, self.seq) + f_bytes(5, to_bytes(self.agent_version))
        out += f_bytes(6, f_int(1, self.sent_ns) + f_int(2, 1) + f_int(3, self.sent_ns))
        out += b"".join(f_bytes(7, s) for s in self.text.values)
        out += packed(8, self.label) + f_bytes(9, self._dict_bytes())
        out += b"".join(f_bytes(10, m) for m in self.parts[10])
        out += b"".join(f_bytes(11, packed(1, pair)) for pair in self.label_sets.values[1:])
        out += b"".join(f_bytes(12, self._stream_bytes(*m)) for m in self.parts[12])
        for number in (13, 14, 15):
            out += b"".join(f_bytes(number, m) for m in self.parts[number])
        out += packed(16, [v for pair in self.dropped for v in pair])
        return out + f_fixed64(17, self.content)


class Known:
    """Stack of a row: entry i of Batch.known."""

    def __init__(self, i):
        self.i = i


# ---- talking to a server ----------------------------------------------------------------------
def decode_reply(data):
    r = dict(seq=0, status=None, lsn=0, rejected=[], server_ns=0, max_bytes=0, min_interval_ms=0)
    names = {1: "seq", 3: "lsn", 5: "server_ns", 6: "max_bytes", 7: "min_interval_ms"}
    for number, v in fields(data):
        if number == 2:
            r["status"] = {1: "stored", 2: "duplicate"}.get(v, v)
        elif number == 4:
            f = dict(fields(v))
            r["rejected"].append(dict(reason=f.get(1, b"").decode(), stream=f.get(2, 0),
                                      samples=f.get(3, 0), value=int(f.get(4, b"0"))))
        elif number in names:
            r[names[number]] = v
    return r


def decode_error(data):
    f = dict(fields(data))
    return dict(reason=f.get(1, b"").decode(), message=f.get(2, b"").decode("utf-8", "replace"),
                setting=f.get(3, b"").decode(), limit=f.get(4, 0), actual=f.get(5, 0),
                retry_after_ms=f.get(6, 0))


def post(url, batch, timeout=30, headers=None):
    """POST a Batch (or bytes) to the server at url; its answer with "http" added. Never raises for
    an HTTP status."""
    body = batch.encode() if isinstance(batch, Batch) else batch
    req = urllib.request.Request(url.rstrip("/") + "/api/v1/batch", data=body, method="POST")
    req.add_header("Content-Type", MEDIA_TYPE)
    req.add_header("Accept", MEDIA_TYPE)
    for name, v in (headers or {}).items():
        req.add_header(name, v)
    # never through a proxy: the server is on this machine
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(req, timeout=timeout) as answer:
            return dict(decode_reply(answer.read()), http=answer.status)
    except urllib.error.HTTPError as e:
        data = e.read()
        if e.headers.get("Content-Type", "").startswith(MEDIA_TYPE):
            return dict(decode_error(data), http=e.code)
        return dict(reason="", message=data.decode("utf-8", "replace"), http=e.code)
