"""UCX: its signal handler, its assertions, and its `UCX  ERROR` lines."""

from __future__ import annotations

import re
from collections.abc import Sequence

from pytest_hetgpu.evidence import Signature
from pytest_hetgpu.model import Kind
from pytest_hetgpu.signatures._frames import Crash, signal_name
from pytest_hetgpu.signatures.base import Dialect, Reading, Weight, process_of, quoted, slug

_MOST = 1000
_LONGEST = 4096
_NO_HEX = str.maketrans("", "", "0123456789abcdef")

# src/ucs/debug/debug.c and assert.c
_CAUGHT = re.compile(
    r"\[[^\[\]\s:]+:\d+\s*:\d+(?::(?P<thread>\d+))?\]\s+Caught signal (?P<number>\d+) "
    r"\([^:()]*(?:: (?P<detail>.*?))?(?: at address \S+)?\)\s*$"
)
_ASSERTED = re.compile(
    r"\[[^\[\]\s:]+:\d+\s*:\d+(?::(?P<thread>\d+))?\]\s+\S+:\d+\s+(?P<detail>Assertion [`'].*' failed.*|Fatal: .*)"
)
_BACKTRACE = re.compile(r"==== backtrace \(tid:\s*(\d+)\) ====")
_FRAME = re.compile(r"^\s*(\d+)\s+\S")
_LOGGED = re.compile(r"\bUCX\s+(?:ERROR|FATAL)\s+(.+)$")

# What a message means; no kind: nothing, no key: the message's own.
_TEXTS: tuple[tuple[str, Kind | None, str, Weight], ...] = (
    (r"shm_unlink|try to increase \"net\.core", None, "", Weight.CONSEQUENCE),
    (r"\B/dev/shm\b", Kind.OUT_OF_MEMORY, "no-space@dev-shm", Weight.CAUSE),
    (
        r"[Nn]ot enough memory|[Oo]ut of memory|Cannot allocate memory",
        Kind.OUT_OF_MEMORY,
        "out-of-memory@ucx",
        Weight.CAUSE,
    ),
    (
        r"no \S+ \S+ transport to|no remote registered memory access",
        Kind.TRANSPORT_UNAVAILABLE,
        "no-transport@ucx",
        Weight.CAUSE,
    ),
    (r"no usable transports/devices", Kind.TRANSPORT_UNAVAILABLE, "no-device@ucx", Weight.CAUSE),
    (
        r"[Cc]onnection re|[Tt]imed? ?out|[Uu]nreachable|No route to host|Broken pipe",
        Kind.NETWORK_FAILURE,
        "",
        Weight.SYMPTOM,
    ),
    (r"", Kind.ERROR, "", Weight.SYMPTOM),
)


class Ucx(Dialect):
    """A backtrace belongs to the thread that its header names; those of several processes may be mixed."""

    triggers = (
        b"Caught signal ",
        b"==== backtrace (tid:",
        b") [0x",
        b"Assertion ",
        b" Fatal: ",
        b"UCX  ERROR",
        b"UCX  FATAL",
    )
    context = 60

    def __init__(self) -> None:
        self._crashes: list[Crash] = []
        self._unprinted: dict[str, list[Crash]] = {}
        self._growing: list[Crash] = []
        self._errors: dict[str, Reading] = {}
        self._shapes: set[str] = set()

    def feed(self, line: str, number: int) -> None:
        line = line[:_LONGEST]
        if "UCX" in line and (logged := _LOGGED.search(line)):
            self._error(logged[1], line, number)
        elif found := _CAUGHT.search(line):
            self._crash(found, line, number, signal_name(int(found["number"])))
        elif ("Assertion" in line or "Fatal: " in line) and (found := _ASSERTED.search(line)):
            self._crash(found, line, number, "SIGABRT")
        elif header := _BACKTRACE.search(line):
            waiting = self._unprinted.get(header[1])
            self._growing += [waiting.pop(0)] if waiting else []
        elif self._growing and (place := _FRAME.match(line)):
            self._frame(int(place[1]), line)

    def _crash(self, found: re.Match[str], line: str, number: int, signal: str) -> None:
        process = process_of(line)
        thread = found["thread"] or (str(process[1]) if process else "")
        if len(self._crashes) >= _MOST:
            return
        crash = Crash(process, line, number)
        crash.signal, crash.detail = signal, found["detail"]
        self._crashes.append(crash)
        self._unprinted.setdefault(thread, []).append(crash)

    def _frame(self, place: int, line: str) -> None:
        """Adds the frame to the backtrace whose next number it has; of several, to that with addresses like its own."""
        address = line.rpartition("[")[2]
        fitting = [crash for crash in self._growing if len(crash.frames) == place]
        if fitting:
            crash = max(reversed(fitting), key=lambda one: _alike(one.address, address))
            crash.add(line)
            crash.address = address

    def _error(self, text: str, line: str, number: int) -> None:
        shape = text.translate(_NO_HEX)
        if shape in self._shapes or len(self._shapes) >= _MOST:
            return
        self._shapes.add(shape)
        kind, key, weight = next((kind, key, weight) for words, kind, key, weight in _TEXTS if re.search(words, text))
        key = key or f"{slug(text)}@ucx"
        if kind is None or key in self._errors:
            return
        process = process_of(line)
        hosts = (process[0],) if process else ()
        signature = Signature(kind, key, quoted(line), number, detail=text.strip()[:200], hosts=hosts)
        self._errors[key] = Reading(signature, weight, process)

    def finish(self) -> Sequence[Reading]:
        return (*(crash.reading() for crash in self._crashes), *self._errors.values())


def _alike(one: str, other: str) -> int:
    """How many characters the two begin with alike: libraries of one process lie near each other."""
    differs = (place for place, (left, right) in enumerate(zip(one, other, strict=False)) if left != right)
    return next(differs, min(len(one), len(other)))
