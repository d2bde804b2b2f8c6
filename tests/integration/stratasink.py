# SPDX-License-Identifier: Apache-2.0
"""An independent reader of native batches (docs/format-wire.md) and an ingest server of the tests'
own: it answers what it is told to, keeps what it acknowledged and can sum it up."""
import ctypes
import http.server
import json
import struct
import sys
import threading
import traceback
import urllib.error
import urllib.request

LOSS_N, LOSS_WEIGHT = 18, 19
BATCH_TYPE = "application/vnd.strata.batch+protobuf"


def inflate(data):
    lib = ctypes.CDLL("libzstd.so.1")
    lib.ZSTD_decompress.restype = ctypes.c_size_t
    lib.ZSTD_decompress.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p,
                                    ctypes.c_size_t]
    lib.ZSTD_getFrameContentSize.restype = ctypes.c_uint64
    lib.ZSTD_getFrameContentSize.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
    size = lib.ZSTD_getFrameContentSize(data, len(data))
    out = ctypes.create_string_buffer(size + 1 if size < 64 << 20 else 64 << 20)
    n = lib.ZSTD_decompress(out, len(out), data, len(data))
    if lib.ZSTD_isError(ctypes.c_size_t(n)):
        raise ValueError("not a zstd frame")
    return out.raw[:n]


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7


def fields(data):
    """(number, value): an int, or bytes."""
    at = 0
    while at < len(data):
        tag, at = varint(data, at)
        number, wire = tag >> 3, tag & 7
        if wire == 0:
            value, at = varint(data, at)
        elif wire == 1:
            value, at = struct.unpack_from("<Q", data, at)[0], at + 8
        elif wire == 2:
            n, at = varint(data, at)
            value, at = data[at:at + n], at + n
        elif wire == 5:
            value, at = struct.unpack_from("<I", data, at)[0], at + 4
        else:
            raise ValueError(f"wire type {wire}")
        yield number, value


def packed(value):
    out, at = [], 0
    while at < len(value):
        v, at = varint(value, at)
        out.append(v)
    return out


def signed(v):
    return v - (1 << 64) if v >> 63 else v


def zigzag(v):
    return (v >> 1) ^ -(v & 1)


def fixed64(value):
    return list(struct.unpack(f"<{len(value) // 8}Q", value))


class Message(dict):
    """Field number -> list of values."""

    def __init__(self, data):
        super().__init__()
        for number, value in fields(data):
            self.setdefault(number, []).append(value)

    def one(self, number, default=0):
        return self.get(number, [default])[-1]

    def column(self, number):
        out = []
        for value in self.get(number, []):
            out += packed(value) if isinstance(value, bytes) else [value]
        return out


CPU = 1  # profile type


class Batch:
    """One batch; nodes named by hash are unknown here, so their stacks are None."""

    def __init__(self, data):
        m = self.message = Message(data)
        self.agent, self.boot = m.one(2, b""), m.one(3, b"")
        self.seq, self.content = m.one(4), m.one(17)
        self.sent = Message(m.one(6, b"")).one(1)
        self.str = [s.decode("utf-8", "backslashreplace") for s in m.get(7, [b""])]
        self.dict = Message(m.one(9, b""))
        self.known = [h for v in self.dict.get(13, []) for h in fixed64(v)]
        self.targets = [Message(t) for t in m.get(10, [])]
        self.labels = [self.pairs(Message(v).column(1)) for v in m.get(11, [])]
        self.label = self.pairs(m.column(8))
        streams = [Message(s) for s in m.get(12, [])]
        self.streams = [s for s in streams if s.one(1) == CPU]
        self.other_streams = [s for s in streams if s.one(1) != CPU]
        self.metrics = [Message(s) for s in m.get(13, [])]
        self.events = [(self.str[e.one(2)], self.str[e.one(3)]) for e in map(Message, m.get(15, []))]
        dropped = m.column(16)
        self.dropped = list(zip(dropped[::2], dropped[1::2]))
        self.fn = self.dict.column(4)
        self.frame_fn = self.dict.column(8)
        self.parent, self.frame = self.dict.column(14), self.dict.column(15)

    def pairs(self, flat):
        return {self.str[a]: self.str[b] for a, b in zip(flat[::2], flat[1::2])}

    def stack(self, node):
        """Root first; None where a part of it is known to the server only."""
        out = []
        while node:
            if node <= len(self.known):
                return None
            i = node - len(self.known) - 1
            fn = self.frame_fn[self.frame[i]] if self.frame_fn else 0
            out.append(self.str[self.fn[fn - 1]] if fn else "")
            node = self.parent[i]
        return out[::-1]

    def rows(self, kind=CPU):
        """Of all streams of a profile type: dicts."""
        for s in self.streams if kind == CPU else self.other_streams:
            if s.one(1) != kind:
                continue
            t0, period = signed(s.one(7)), signed(s.one(14))
            t, at = [], t0
            for d in s.column(20):
                at += zigzag(d)
                t.append(at)
            target, tid = s.column(21), s.column(22)
            thread, labels, count = s.column(23), s.column(25), s.column(27)
            value = [zigzag(v) for v in s.column(28)]
            for i, node in enumerate(s.column(26)):
                n = count[i] if count else 1
                yield {"t": t[i] if t else t0, "node": node, "count": n,
                       "value": value[i] if value else n * period,
                       "target": target[i] if target else 0, "tid": tid[i] if tid else 0,
                       "thread": self.str[thread[i]] if thread else "",
                       "labels": self.labels[labels[i] - 1] if labels and labels[i] else {}}

    def lost(self, why=None, ptype=None):
        """(n, weight) over all streams, or those of a type."""
        n = weight = 0
        for s in self.streams:
            if ptype is not None and s.one(1) != ptype:
                continue
            for w, k, v in zip(s.column(17), s.column(LOSS_N), s.column(LOSS_WEIGHT)):
                if why is None or self.str[w] == why:
                    n += max(k - 1, 0)
                    weight += max(v - 1, 0)
        return n, weight

    def weight(self):
        return sum(r["value"] for r in self.rows())

    def received(self):
        return sum(max(s.one(16) - 1, 0) for s in self.streams)

    def expected(self):
        return sum(max(s.one(15) - 1, 0) for s in self.streams)

    def covers(self):
        return [(signed(s.one(7)), signed(s.one(8))) for s in self.streams]

    def metric(self, name):
        """Values by target index."""
        out = {}
        for m in self.metrics:
            if self.str[m.one(1)] == name:
                out[m.one(4)] = [zigzag(v) for v in m.column(9)]
        return out


def read_capture(path):
    """The batches of a capture file, and what its last record says (None: it has none)."""
    with open(path, "rb") as f:
        data = f.read()
    at, batches, end = 16, [], None
    while at < len(data):
        kind, size = struct.unpack_from("<II", data, at)
        body = data[at + 16:at + 16 + size]
        at += 16 + size
        if kind == 2:
            batches.append(Batch(inflate(body)))
        elif kind == 3:
            end = json.loads(body)
    return batches, end


def put_varint(value):
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def put(number, value):
    if isinstance(value, bytes):
        return put_varint(number << 3 | 2) + put_varint(len(value)) + value
    return put_varint(number << 3) + put_varint(value) if value else b""


def reply(seq, status=1, max_bytes=0, min_interval_ms=0, rejects=()):
    body = put(1, seq) + put(2, status)
    for reason, samples in rejects:
        body += put(4, put(1, reason.encode()) + put(3, samples))
    return body + put(6, max_bytes) + put(7, min_interval_ms)


def error(reason, message="", retry_after_ms=0):
    return put(1, reason.encode()) + put(2, message.encode()) + put(6, retry_after_ms)


class Ingest:
    """A server that stores (agent, boot, seq) once, as the real one does, unless `answer` says
    otherwise: a function (batch, request number) -> None, or (status, headers, body), or "hang up"
    before or "hang up after" storing."""

    def __init__(self, answer=None):
        self.answer = answer
        self.stored = {}  # (boot, seq) -> Batch
        self.requests = []  # (headers, Batch)
        self.duplicates = 0
        self.errors = []
        self.nodes = set()
        self.lock = threading.Lock()
        ingest = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *args):
                pass

            def do_POST(self):
                ingest.serve(self)

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *args):
                error = sys.exc_info()[1]
                if not isinstance(error, OSError):  # a peer that went away is what tests do
                    ingest.errors.append(error)
                    traceback.print_exc()

        self.http = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}"
        self.thread = threading.Thread(target=self.http.serve_forever, args=(0.05,), daemon=True)
        self.thread.start()

    def close(self):
        """Raises what went wrong in here: an unreadable batch is a failed test."""
        self.http.shutdown()
        self.http.server_close()
        if self.errors:
            raise self.errors[0]

    def serve(self, h):
        body = h.rfile.read(int(h.headers["Content-Length"]))
        batch = Batch(inflate(body))
        batch.body = body
        with self.lock:
            self.requests.append((dict(h.headers), batch))
            n = len(self.requests)
        said = self.answer(batch, n) if self.answer else None
        if said == "hang up":
            h.close_connection = True
            h.connection.close()
            return
        if said is None or said == "hang up after":
            answer = self.store(batch)
            if said == "hang up after":
                h.close_connection = True
                h.connection.close()
                return
            said = answer
        status, headers, out = said
        h.send_response(status)
        if status == 204:  # by definition without a body
            out = b""
        else:
            h.send_header("Content-Type", BATCH_TYPE)
            h.send_header("Content-Length", str(len(out)))
        for k, v in headers.items():
            h.send_header(k, v)
        h.end_headers()
        h.wfile.write(out)

    def store(self, batch):
        with self.lock:
            key = (batch.boot, batch.seq)
            if key in self.stored:
                if self.stored[key].content != batch.content:
                    return 409, {}, error("seq_conflict")
                self.duplicates += 1
                return 200, {}, reply(batch.seq, 2)
            self.stored[key] = batch
            return 200, {}, reply(batch.seq)

    def batches(self):
        with self.lock:
            return sorted(self.stored.values(), key=lambda b: (b.boot, b.seq))


class Proxy(Ingest):
    """Hands every batch on to a real server and keeps those that it acknowledged: what its answers
    must add up to."""

    def __init__(self, url, answer=None):
        super().__init__(answer)
        self.server = url

    def store(self, batch):
        request = urllib.request.Request(
            self.server + "/api/v1/batch", data=batch.body,
            headers={"Content-Type": BATCH_TYPE, "Content-Encoding": "zstd", "Accept": BATCH_TYPE})
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                status, headers, out = answer.status, {}, answer.read()
        except urllib.error.HTTPError as e:
            status, out = e.code, e.read()
            headers = {k: v for k, v in e.headers.items() if k == "Retry-After"}
        except OSError:
            return 502, {}, b""
        if status == 200:
            with self.lock:
                key = (batch.boot, batch.seq)
                if key in self.stored:
                    self.duplicates += 1
                self.stored.setdefault(key, batch)
        return status, headers, out


def read_status(path):
    with open(path, encoding="utf-8") as file:
        status = json.load(file)
    status["figures"] = {k: int(v) for k, v in status["figures"].items()}
    return status
