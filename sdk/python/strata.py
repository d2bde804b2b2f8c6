# SPDX-License-Identifier: Apache-2.0
"""Steps: where a unit of work (a training step, a request, an epoch) begins and ends.

    import strata

    for batch in loader:
        with strata.step("train"):                  # numbered 0, 1, 2, ...
            ...
    for i, batch in enumerate(loader):
        strata.mark("train", i)                     # ends the one before, begins this one

One file, nothing but Python's library; 3.8 or later. While an agent listens each call reaches it
through a probe. Else, with STRATA_SERVER set (http://HOST:PORT, https://...), finished steps are
sent there every 5 s by a thread. Else nothing happens. No function of this module raises, blocks on
a network or ends the program; what went wrong is counted in stats().

Each thread's marks and automatic numbers count for themselves. Without an agent and off Linux on
x86-64 only the server is left.
"""
import base64
import itertools
import json
import os
import sys
import threading
import time
import zlib

__all__ = ["mark", "step", "begin", "end", "stats", "name_threads"]

# libstrata_step.so (agent/inject/step_probe.S), packed; tests/lint/step_probe.py compares and
# rewrites it.
_LIBRARY = (
    "c-rlo&ubGw6vy8tX-unDV?9(v+=B&0TonWZ1>It*5j3b+P$&(X?#2X~Y}lP*>P1And+h(<$+HMW?;`joNdE){L5=(4z0"
    "K^9B`ty%-v>6|%w)eiZ{E!2^yc~UotrsL10oOCVAKLIQMWJ4eHADLpR;f{y0-w?e95I1j>Z!Drlhv2MM$gci^kKjU(ph"
    "zRrZC?GB4sBuBY__q?LTR3BDajD~(&AIBDLBo`JMd4)5;@y9j%S()J+m74{LQCXIVMT6ch3^%Z#Y>BXsMweIV+)nC=+_"
    "dl+-zP@`)VQW$zgUB^gdQNM1?d4o?<!4r$;eE%#6<5}GF1X4tooqBp6Zpcjgw^nc({J=Wx9OyMe5Y&m+pg!pMyDzLVE8"
    "UD48t%C!!QiPFk?7!x(e`-^T03+!!QiPFbu;m48t%C!!QiPFbu=|-^`+(L;d!97*!yj#X{yO?BB*V)ji+C_6)WcQ4gZd"
    "|HC<iHR~qCHQ>Im`o1kjh2=V`8B1Ji4PmV{Trn3MyQ5dk1<#Mg9z?P}$Q&!KAulC$>BJ0WM<3l6astNJjh}~%y75N!ae"
    "e9T?HkZAa4tsE@|```lY`-Jb%oUoRCuwr>08egj`5_oX*4%G8}@~c4N<FY`E4-ltzO`aRd`?sXCNRQgW<FrEzjyY(Op)"
    "zvkpcSi;vGvvj5kd46XxmUNX)f5b7BYBe=c~hc4M@KPQU)d1(*HRB$inl>JUxlg8B~|Gc!_@{*t4AJWA!`%0z;@>vDQJ"
    "YS;zOw`ez<WEnlHevi##b46XI_@2mX<>|%-{d?8p6}RE)~%$>!^QE*pB&`5q`WUMzWo&Uk4gdk4=3y&ZOk)69-*K9Ar4"
    "`T>iSR1u}geL|I&o~moxljJje8Eg8vUieW>a"
)

_MARK, _BEGIN, _END = 0, 1, 2
_NEXT = (1 << 64) - 1
_EVERY_S = 5.0
_WAITING = 10000  # steps that wait for sending
_OPEN = 64
_AT_EXIT_S = 2.0

_counts = {"probe": 0, "sent": 0, "dropped": 0, "errors": 0}
_numbers = threading.local()
_lock = threading.Lock()
_open, _queue = {}, []
_sender = None
_ordinal = itertools.count()


class _Zero:
    value = 0


_semaphore, _probe = _Zero(), None


def _load():
    """The probe: the installed library, or the packed one in memory."""
    global _semaphore, _probe
    if sys.platform != "linux" or os.uname().machine != "x86_64":
        return
    import ctypes
    path = os.environ.get("STRATA_STEP_LIB")
    library = None
    for name in filter(None, (path, "libstrata_step.so")):
        try:
            library = ctypes.CDLL(name)
            break
        except OSError:
            continue
    if library is None:
        fd = os.memfd_create("strata_step")
        try:
            os.write(fd, zlib.decompress(base64.b85decode("".join(_LIBRARY))))
            library = ctypes.CDLL(f"/proc/self/fd/{fd}")
        finally:
            os.close(fd)
    probe = library.strata_step_probe
    probe.restype = None
    probe.argtypes = (ctypes.c_int, ctypes.c_uint64, ctypes.c_char_p, ctypes.c_char_p)
    _probe, _semaphore = probe, ctypes.c_uint16.in_dll(library, "strata_step_semaphore")


def _text(value, size):
    """UTF-8, cut to size bytes between characters."""
    raw = str(value).encode("utf-8", "replace").replace(b"\0", b"?")
    return raw if len(raw) <= size else raw[:size].decode("utf-8", "ignore").encode()


def _pairs(attributes):
    out = b""
    for key, value in itertools.islice(attributes.items(), 8):
        pair = _text(f"{key}={value}".replace(",", ";"), 255)
        if len(out) + len(pair) + 1 > 255:
            break
        out += (b"," if out else b"") + pair
    return out


def _number(name, number):
    """The number after this thread's last one of this name, unless one is given."""
    last = _numbers.__dict__
    if number is None:
        number = last.get(name, -1) + 1
    last[name] = number
    return number


def _call(what, name, number, attributes):
    try:
        if what != _END:
            number = _number(name, number) & _NEXT
        if _semaphore.value:
            _counts["probe"] += 1
            raw = name.encode("utf-8", "replace")
            _probe(what, _NEXT if number is None else number & _NEXT, raw,
                   _pairs(attributes) if attributes else None)
        elif _server is not None:
            _keep(what, name, number, attributes)
    except Exception:  # pylint: disable=broad-except
        _counts["errors"] += 1


def mark(name="step", number=None):
    """Ends the step of this thread's last mark of this name and begins the next."""
    if _semaphore.value or _server is not None:
        _call(_MARK, name, number, None)


def begin(name="step", number=None, **attributes):
    """Begins a step; without a number the one after this thread's last of this name."""
    if _semaphore.value or _server is not None:
        _call(_BEGIN, name, number, attributes)


def end(name="step", number=None):
    """Ends the step of this name and number, whoever began it; without a number the one that this
    thread began last."""
    if _semaphore.value or _server is not None:
        _call(_END, name, number, None)


class _Step:
    __slots__ = ("name", "number", "attributes")

    def __init__(self, name, number, attributes):
        self.name, self.number, self.attributes = name, number, attributes

    def __enter__(self):
        _call(_BEGIN, self.name, self.number, self.attributes)
        return self

    def __exit__(self, *_):
        _call(_END, self.name, self.number, None)
        return False


class _Nothing:
    def __enter__(self):
        return self

    def __exit__(self, *_):
        return False


_NOTHING = _Nothing()


def step(name="step", number=None, **attributes):
    """with strata.step("train", number=None, phase="warm"): one step."""
    if _semaphore.value or _server is not None:
        return _Step(name, number, attributes)
    return _NOTHING


def stats():
    """What became of the calls: told to an agent, sent to a server, waiting, dropped, errors."""
    return {**_counts, "waiting": len(_queue)}


def name_threads():
    """Give the kernel the names that threading knows, so that profiles show them (Python does it by
    itself from 3.14 on). Call it again after new threads were started."""
    try:
        for thread in threading.enumerate():
            tid = getattr(thread, "native_id", None)
            if not tid or thread is threading.main_thread():
                continue
            with open(f"/proc/self/task/{tid}/comm", "wb") as file:
                file.write(_text(thread.name, 15))
    except Exception:  # pylint: disable=broad-except
        _counts["errors"] += 1


# ---- without an agent ---------------------------------------------------------------------------


def _finish(key, now):
    number, begun, attributes, tid = _open.pop(key)[:4]
    if len(_queue) >= _WAITING:
        _counts["dropped"] += 1
        return
    _queue.append({"name": key[0], "number": str(number), "t0_ns": str(begun),
                   "t1_ns": str(max(now, begun + 1)), "tid": tid, "attributes": attributes})


def _find(what, name, number, tid):
    """The open step that a call ends: a mark's by thread, others by number."""
    if what == _MARK:
        return (name, None, tid) if (name, None, tid) in _open else None
    if number is not None:
        return (name, number, 0) if (name, number, 0) in _open else None
    mine = [(entry[4], key) for key, entry in _open.items()
            if key[0] == name and key[1] is not None and entry[3] == tid]
    return max(mine)[1] if mine else None


def _keep(what, name, number, attributes):
    now, tid = time.time_ns(), threading.get_native_id()
    with _lock:
        found = _find(what, name, number, tid)
        if found is not None:
            _finish(found, now)
        if what == _END:
            _counts["dropped"] += found is None
            return
        if len(_open) >= _OPEN:
            _counts["dropped"] += 1
            return
        key = (name, None, tid) if what == _MARK else (name, number, 0)
        text = {_text(k, 128).decode(): _text(v, 255).decode()
                for k, v in itertools.islice((attributes or {}).items(), 8)}
        _open[key] = (number, now, text, tid, next(_ordinal))
    _start()


def _start():
    global _sender
    if _sender is None or not _sender.is_alive():
        _sender = threading.Thread(target=_run, name="strata-steps", daemon=True)
        _sender.start()


def _run():
    pid = os.getpid()
    while pid == os.getpid():
        time.sleep(_EVERY_S)
        _flush(10)


_batch = [None, 0, 0]  # what was not acknowledged yet: steps, sequence, tries


def _flush(timeout):
    """One request; a failed one is sent again as it was, three times in all."""
    try:
        with _lock:
            if _batch[0] is None and _queue:
                _batch[:] = [_queue[:_WAITING], _batch[1] + 1, 0]
                del _queue[:len(_batch[0])]
        if _batch[0] is None:
            return
        status = _post(timeout)
        if 200 <= status < 300:
            _counts["sent"] += len(_batch[0])
            _batch[0] = None
            return
        _counts["errors"] += 1
        _batch[2] += 1
        if _batch[2] >= 3 or (400 <= status < 500 and status != 429):
            _counts["dropped"] += len(_batch[0])
            _batch[0] = None
    except Exception:  # pylint: disable=broad-except
        _counts["errors"] += 1


def _labels():
    labels = {}
    for item in os.environ.get("STRATA_LABELS", "").split(","):
        key, eq, value = item.strip().partition("=")
        if eq and key and value:
            labels[_text(key, 128).decode()] = _text(value, 256).decode()
    for key, name in (("rank", "RANK"), ("job", "JOB_NAME"), ("version", "STRATA_VERSION")):
        if os.environ.get(name):
            labels.setdefault(key, _text(os.environ[name], 256).decode())
    return labels


def _service():
    script = os.path.basename(sys.argv[0] if sys.argv else "")
    name = os.environ.get("STRATA_SERVICE") or script[:-3 if script.endswith(".py") else None]
    return _text(name or "python", 256).decode()


def _token(url):
    """From STRATA_TOKEN_FILE; over plain HTTP to this machine only."""
    path = os.environ.get("STRATA_TOKEN_FILE")
    here = ("http://127.0.0.1", "http://localhost", "http://[::1]", "https://")
    if not path or not url.startswith(here):
        return {}
    with open(path, encoding="ascii") as file:
        return {"Authorization": "Bearer " + file.read().strip()}


def _post(timeout):
    import socket
    import urllib.error
    import urllib.request
    body = {"service": _service(), "labels": _labels(), "host": socket.gethostname(),
            "pid": os.getpid(), "process_start_ns": str(_begun), "steps": _batch[0]}
    try:
        request = urllib.request.Request(
            _server + "/api/v1/steps", json.dumps(body).encode(), method="POST",
            headers={"Content-Type": "application/json", **_token(_server),
                     "Strata-Batch-Id": f"py-{os.getpid()}-{_begun}:{_batch[1]}"})
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            return answer.status
    except urllib.error.HTTPError as refused:
        refused.close()
        return refused.code
    except OSError:
        return 0


def _after_fork():
    """A child sends what is its own, under its own name."""
    global _sender, _lock, _begun
    _lock = threading.Lock()
    _sender, _begun = None, time.time_ns()
    _open.clear()
    _queue.clear()
    _batch[:] = [None, 0, 0]


def _at_exit():
    if _server is not None and (_queue or _batch[0]):
        _flush(_AT_EXIT_S)


_begun = time.time_ns()
_server = (os.environ.get("STRATA_SERVER") or "").rstrip("/") or None
try:
    _load()
except Exception:  # pylint: disable=broad-except
    _counts["errors"] += 1
try:
    import atexit
    atexit.register(_at_exit)
    os.register_at_fork(after_in_child=_after_fork)
except Exception:  # pylint: disable=broad-except
    _counts["errors"] += 1
