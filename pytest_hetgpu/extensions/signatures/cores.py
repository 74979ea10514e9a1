"""Core files that this package has read (`extensions/runtimes/process/cores.py`): a line, then frames of gdb."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from pytest_hetgpu.extensions.signatures.base import FailureMatch, LogLine, LogParser
from pytest_hetgpu.extensions.signatures.engine.frames import Crash, Frame, library_key
from pytest_hetgpu.extensions.signatures.engine.places import StackFrame
from pytest_hetgpu.extensions.signatures.engine.stack_lines import gdb_frame
from pytest_hetgpu.model.lazy_regex import lazy

_PREFIX = "hetgpu: core: "
_DIED = lazy(
    r"pid (?P<pid>\d{1,9})(?: of (?P<program>[\w.+-]{1,255}))? on (?P<host>[\w.-]{1,253})"
    r" died of (?P<signal>SIG[A-Z0-9]{2,8})"
    r"(?: \((?P<detail>[^()]{1,100})\))?(?P<where> at 0x[0-9a-f]{1,16} in .{1,1000})?$"
)
_INTERPRETER = "python"  # of our own ranks, which has debug information
_HANDLER = "<signal handler called>"
_FROM_LIBC = lazy(r"/(?:sysdeps|nptl|csu|glibc\S*)/")
_MOST, _MOST_FRAMES, _LONGEST = 64, 200, 2000


class Cores(LogParser):
    """One crash for each core file."""

    triggers = (_PREFIX.encode(),)

    def __init__(self) -> None:
        self._crashes: list[Crash] = []
        self._program = _INTERPRETER

    def feed(self, line: LogLine) -> None:
        if not line.text.startswith(_PREFIX):
            return
        text = line.text[len(_PREFIX) : _LONGEST]
        if found := _DIED.match(text):
            crash = Crash((found["host"], int(found["pid"])), line)
            crash.signal = found["signal"]
            crash.detail = f"{found['detail'] or ''}{found['where'] or ''}".strip() or None
            self._program = found["program"] or _INTERPRETER
            if len(self._crashes) < _MOST:
                self._crashes.append(crash)
        elif self._crashes and _HANDLER in text:
            # The frames so far are of a handler of the signal, not of what caused it.
            self._crashes[-1].frames.clear()
        elif self._crashes and len(self._crashes[-1].frames) < _MOST_FRAMES and (frame := gdb_frame(text)):
            self._crashes[-1].frames.append(_frame(frame, self._program))

    def finish(self) -> Sequence[FailureMatch]:
        for crash in self._crashes:
            crash.frames = list(_named(crash.frames))
        return [crash.build_match() for crash in self._crashes]


def _frame(frame: StackFrame, program: str) -> Frame:
    """Return a frame of gdb; one without a library is of libc, or of the program."""
    name = frame.function.partition("(")[0]
    library = frame.library.rpartition("/")[2] or ("libc.so" if _FROM_LIBC.search(frame.file) else program)
    return Frame(library, None if name == "??" else name)


def _named(frames: Sequence[Frame]) -> Iterator[Frame]:
    """Yield frames; one without a symbol gets the name of the function of the same library that called it."""
    for number, frame in enumerate(frames):
        yield frame if frame.function else frame._replace(function=_caller(library_key(frame.library), frames[number:]))


def _caller(library: str, frames: Iterable[Frame]) -> str | None:
    for frame in frames:
        if library_key(frame.library) != library:
            return None
        if frame.function:
            return frame.function
    return None
