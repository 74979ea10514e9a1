"""Tracebacks of Python put together line by line: Lib/traceback.py and Python/traceback.c of CPython 3.6 to 3.14.

Several exceptions may be chained in one text, stand side by side in a group, or be quoted by a wrapper.
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass, field, replace

from pytest_hetgpu.extensions.signatures.base import LogLine
from pytest_hetgpu.model.lazy_regex import lazy

START = "Traceback (most recent call last)"
FATAL = "Fatal Python error: "
CAUSED, HANDLING = "exception was the direct cause of", "During handling of the above exception"
THREAD, IGNORED, LOGGING = "Exception in thread ", "Exception ignored ", "--- Logging error ---"
SYNTAX = ("SyntaxError: ", "IndentationError: ", "TabError: ")

_LONGEST = 4096
_MOST = 1000
_MOST_FRAMES = 200
_MOST_TAIL = 16
_AHEAD = 4

_FRAME = lazy(r'^(?P<indent> *)File "(?P<path>[^"]*)", line \d+(?:, in (?P<function>.+)| in (?P<fatal>\S+))?$')
# rich/traceback.py, which accelerate and others install
_RICH = lazy(r"^(?P<indent> *)│ (?P<path>\S+):\d+ in (?P<function>\S+)(?P<fatal>)")
_RAISED = lazy(r"^(?P<name>[A-Za-z_][\w.]*)(?:: ?(?P<message>.*))?$")
_NAMED = lazy(
    r"(?:\w+\.)*(?:_?[A-Z]\w*)?(?:Error|Exception|Exit|Interrupt|Timeout|Found|Iteration|Fault|Failure|Group|Warning)"
    r"|(?:socket|_?struct|zlib|lzma|binascii|select)\.(?:gaierror|herror|timeout|error)"
)
# As `_RAISED`, without any text around it.
_BARE = lazy(r"^(?P<name>(?:[A-Za-z_]\w*\.)+[A-Z]\w+|[A-Z]\w+(?:Error|Exception)): (?P<message>\S.*)$")
_GROUP = lazy(r"^ *(?:[|+] ?|\+-[+-]* ?)(?=\S| )")
_RANKED = lazy(r"(?<=.)\[rank(\d{1,7})\]: (?=Traceback|  |[\w.]+(?:Error|Exception)\b)")
# Python/pylifecycle.c and initconfig.c: the interpreter never ran.
_NOT_STARTED = lazy(r"init|Py_Init|Failed to import|_PyPathConfig")
# Text after an exception may be another process's. It is used only if these patterns promise more.
_LONG = lazy(r"NCCL|^DistBackendError|to pass monitoredBarrier|^AssertionError$")
_INNER = lazy(r"^(?:Original |-- Process \d+ terminated with the following error)")


def strip_rank_prefix(line: LogLine) -> LogLine:
    """Return the traceback part of a line, if a rank's prefix follows another process's text."""
    found = _RANKED.search(line.text[:_LONGEST])
    return replace(line, text=line.text[found.end() :], rank=int(found[1])) if found else line


def restore_exception_name(line: LogLine) -> LogLine:
    """Return the line with an exception's name restored that was taken for a host: `OSError: [Errno 28] No space`."""
    if line.host and _NAMED.fullmatch(line.host):
        return replace(line, text=f"{line.host}: {line.text}", host=None)
    return line


class ChainLink(enum.Enum):
    """Relation of an exception to the one printed before it."""

    CAUSED = "caused"
    HANDLING = "handling"
    INNER = "inner"
    MEMBER = "member"


@dataclass(slots=True)
class RaisedException:
    """One exception as printed; `tail` are further lines of its message, `after` is the one it is chained to.

    `bare`: without any frame. An empty name: the log ends within the traceback.
    """

    name: str
    message: str
    frames: tuple[tuple[str, str], ...]
    line: LogLine
    link: ChainLink | None = None
    after: RaisedException | None = None
    thread: bool = False
    bare: bool = False
    tail: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        """Return the name without its module, and the message; also the following lines if they hold the reason."""
        head = f"{self.name}: {self.message}" if self.message else self.name
        return ("\n".join((head, *self.tail)) if _LONG.search(head) else head)[:_LONGEST]


@dataclass(slots=True)
class InterpreterCrash:
    """The interpreter's fatal error: its cause, and the printed frames, innermost first."""

    what: str
    line: LogLine
    frames: list[tuple[str, str]] = field(default_factory=list)


class Tracebacks:
    """Parser of the tracebacks of one process, fed in the order of writing."""

    def __init__(self) -> None:
        self.raised: list[RaisedException] = []
        self.fatal: list[InterpreterCrash] = []
        self._frames: list[tuple[str, str]] = []
        self._open = self._in_frame = self._in_group = self._in_fatal = False
        self._thread = self._ignored = False
        self._indent = 0
        self._link: ChainLink | None = None
        self._last: RaisedException | None = None
        self._group: RaisedException | None = None
        self._announced = 0
        self._said: LogLine | None = None

    def feed(self, said: LogLine) -> None:
        """Take any line."""
        text = said.text[:_LONGEST]
        self._announced = max(0, self._announced - 1)
        if self._in_group:
            text = _GROUP.sub("", text)
        if START in text:
            self._begin(text)
        elif text.startswith(FATAL) and not _NOT_STARTED.match(text, len(FATAL)):
            self._die(text, said)
        elif not self._announce(text):
            self._inside(text, said)

    def _begin(self, text: str) -> None:
        inner = _INNER.match(text.lstrip()) is not None
        self._link = ChainLink.INNER if inner else self._link if self._announced else None
        self._last = self._last if self._link else None
        self._in_group = self._in_group and text.lstrip(" ").startswith(START)
        self._in_group = self._in_group or "Exception Group " in text
        self._group = self._group if self._in_group else None
        self._ignored, self._thread = self._ignored and bool(self._announced), self._thread and bool(self._announced)
        self._frames, self._open, self._in_frame, self._in_fatal, self._indent = [], True, False, False, 0
        self._announced = 0

    def _die(self, text: str, said: LogLine) -> None:
        if len(self.fatal) < _MOST:
            self.fatal.append(InterpreterCrash(text[len(FATAL) :].strip(), said))
        self._in_fatal, self._open = True, False

    def _announce(self, text: str) -> bool:
        """Return whether a line announces how the next traceback is related."""
        if CAUSED in text or HANDLING in text:
            self._link = ChainLink.CAUSED if CAUSED in text else ChainLink.HANDLING
            self._announced = _AHEAD
        elif _INNER.match(text):
            self._link, self._announced = ChainLink.INNER, _AHEAD
        elif text.startswith((IGNORED, THREAD, LOGGING)):
            self._ignored, self._thread = not text.startswith(THREAD), text.startswith(THREAD)
            self._announced = _AHEAD
        else:
            return False
        return True

    def _inside(self, text: str, said: LogLine) -> None:
        frame = _FRAME.match(text) or _RICH.match(text)
        if frame:
            self._frame(frame, said)
        elif not self._open:
            self._headless(text, said)
        elif not self._raise(text[self._indent :] if not text[: self._indent].strip() else text, said):
            self._in_frame = self._in_frame and text.startswith("  ")
            if self._last and not self._in_frame and len(self._last.tail) < _MOST_TAIL:
                self._last.tail.append(text.strip())

    def _frame(self, frame: re.Match[str], said: LogLine) -> None:
        found = (frame["path"], frame["function"] or frame["fatal"] or "")
        if self._in_fatal:
            if self.fatal and len(self.fatal[-1].frames) < _MOST_FRAMES:
                self.fatal[-1].frames.append(found)
            return
        if not self._open:
            self._frames = []
        if len(self._frames) >= _MOST_FRAMES:
            del self._frames[_MOST_FRAMES // 2]
        self._frames.append(found)
        self._in_frame, self._said = True, said
        self._indent = max(0, len(frame["indent"]) - 2)

    def _headless(self, text: str, said: LogLine) -> None:
        """Take an error of the program's own source, a traceback without its head, or an exception alone."""
        framed = self._frames if text.startswith(SYNTAX) or self._in_frame else []
        self._in_frame = self._in_frame and text.startswith("  ")
        found = (_RAISED if framed else _BARE).match(text)
        if not found or self._ignored or self._in_fatal or not _NAMED.fullmatch(found["name"]):
            if self._last and self._last.bare and len(self._last.tail) < _MOST_TAIL:
                self._last.tail.append(text.strip())
            return
        name, message = found["name"].rpartition(".")[2], found["message"] or ""
        told = any(one.name == name and one.message == message for one in self.raised[-_AHEAD:])
        if not told and len(self.raised) < _MOST:
            self.raised.append(RaisedException(name, message, tuple(framed), said, bare=not framed))
            self._last, self._open, self._in_frame = self.raised[-1], bool(framed), False

    def finish(self) -> None:
        """Take an unfinished traceback at the end of the log."""
        if self._open and self._in_frame and self._frames and self._said and len(self.raised) < _MOST:
            self.raised.append(RaisedException("", "", tuple(self._frames), self._said))

    def _raise(self, text: str, said: LogLine) -> bool:
        found = _RAISED.match(text)
        if not found or not self._frames or not self._is_exception(found["name"]):
            return False
        of_one_message = self._last and said.rank is not None and not self._in_frame and not self._in_group
        if of_one_message and self._last and self._last.frames == tuple(self._frames):
            return False
        link, after = self._link, self._last
        if self._in_group and self._group and not self._is_group(found["name"]):
            link, after = ChainLink.MEMBER, self._group
        name = found["name"].rpartition(".")[2]
        one = RaisedException(name, found["message"] or "", tuple(self._frames), said, link, after, self._thread)
        if len(self.raised) < _MOST and not self._ignored:
            self.raised.append(one)
        self._last, self._in_frame = one, False
        self._group = one if self._in_group and self._is_group(found["name"]) else self._group
        return True

    @staticmethod
    def _is_group(name: str) -> bool:
        return name.endswith("ExceptionGroup")

    def _is_exception(self, name: str) -> bool:
        if _NAMED.fullmatch(name):
            return True
        last = name.rpartition(".")[2]
        return self._in_frame and last[:1].isupper() and ("." in name or re.search(r"[a-z][A-Z]", last) is not None)
