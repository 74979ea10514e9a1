"""Stacks of a Python program that exceeded its own time: faulthandler.dump_traceback_later.

Modules/faulthandler.c prints `Timeout (0:00:05)!`, Python/traceback.c the threads, `Thread 0x... (most recent call
first):`, and their frames. (A signal that faulthandler caught belongs to `python_errors`.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from pytest_hetgpu.extensions.signatures.base import FailureMatch, LogLine, LogParser, Priority
from pytest_hetgpu.extensions.signatures.engine.stack_lines import faulthandler_frame
from pytest_hetgpu.extensions.signatures.engine.stacks import StackFrame, position_of, summarize
from pytest_hetgpu.model.failure import Signature
from pytest_hetgpu.model.lazy_regex import lazy
from pytest_hetgpu.model.verdict import Kind

_MOST = 1000
_MOST_FRAMES = 200
_LONGEST = 2000

_TIMEOUT = lazy(r"Timeout \(\d{1,6}:\d\d:\d\d(?:\.\d{1,6})?\)!$")
_THREAD = lazy(r"(?:Current t|T)hread 0x[0-9a-f]{1,16}(?: \[[^\]]{0,64}\])? \(most recent call first\):$")


@dataclass(slots=True)
class _Dump:
    """One dump of one process: its head, and its threads, of which the main one comes last."""

    line: LogLine
    threads: list[list[StackFrame]] = field(default_factory=list)


class Faulthandler(LogParser):
    """Parser of such stacks: one match for all processes together."""

    triggers = (b"Timeout (",)
    context = 150

    def __init__(self) -> None:
        self._dumps: dict[int | None, _Dump] = {}

    def feed(self, line: LogLine) -> None:
        text = line.text[:_LONGEST].rstrip()
        dump = self._dumps.get(line.rank)
        if _TIMEOUT.match(text):
            # A later dump of the same rank replaces its first one.
            if dump or len(self._dumps) < _MOST:
                self._dumps[line.rank] = _Dump(line)
        elif dump is None:
            return
        elif _THREAD.match(text):
            dump.threads.append([])
        elif dump.threads and len(dump.threads[-1]) < _MOST_FRAMES and (frame := faulthandler_frame(text)):
            dump.threads[-1].append(frame._replace(text=line.quote, number=line.number))

    def finish(self) -> Sequence[FailureMatch]:
        dumps = [(rank, dump) for rank, dump in self._dumps.items() if dump.threads]
        if not dumps:
            return ()
        positions = [position_of(dump.threads[-1])._replace(rank=rank) for rank, dump in dumps]
        told = summarize(positions)
        blamed = told.odd or tuple(positions)
        head = dumps[0][1].line
        signature = Signature(
            Kind.HANG,
            told.key,
            blamed[0].text or head.quote,
            blamed[0].number or head.number,
            detail=told.sentence,
            entry_point=blamed[0].entry or None,
            ranks=tuple(one.rank for one in blamed if one.rank is not None)[:64],
        )
        return (FailureMatch(signature, Priority.STUCK, fatal=False),)
