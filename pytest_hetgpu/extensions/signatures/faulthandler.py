"""Stacks of a Python program that faulthandler printed while it ran.

For dump_traceback_later, Modules/faulthandler.c prints `Timeout (0:00:05)!`. Python/traceback.c prints the threads,
`Thread 0x... (most recent call first):`, and their frames. For dump_traceback, and a signal given to register, there
are only threads: weaker evidence of a hang. (A signal that faulthandler caught belongs to `python_errors`.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from pytest_hetgpu.extensions.signatures.base import FailureMatch, LogLine, LogParser, Priority
from pytest_hetgpu.extensions.signatures.engine.places import StackFrame
from pytest_hetgpu.extensions.signatures.engine.stack_lines import faulthandler_frame
from pytest_hetgpu.extensions.signatures.engine.stacks import BARE, position_of, summarize
from pytest_hetgpu.model.failure import Signature
from pytest_hetgpu.model.lazy_regex import lazy
from pytest_hetgpu.model.verdict import Kind

_MOST = 1000
_MOST_THREADS, _MOST_FRAMES = 64, 200
_LONGEST = 2000

_TIMEOUT = lazy(r"Timeout \(\d{1,6}:\d\d:\d\d(?:\.\d{1,6})?\)!$")
_FATAL = "Fatal Python error: "
_THREAD = lazy(r"(?:Current t|T)hread 0x[0-9a-f]{1,16}(?: \[[^\]]{0,64}\])? \(most recent call first\):$")


@dataclass(slots=True)
class _Dump:
    """One dump of one process: its head, and its threads, of which the main one comes last.

    `late` is set if the program's own time was over.
    """

    line: LogLine
    late: bool
    threads: list[list[StackFrame]] = field(default_factory=list)


class Faulthandler(LogParser):
    """Parser of such stacks: one match for all processes together."""

    triggers = (b"Timeout (", b"hread 0x", b"Fatal Python error: ")
    context = 150

    def __init__(self) -> None:
        self._dumps: dict[int | None, _Dump] = {}
        self._dead: set[int | None] = set()

    def feed(self, line: LogLine) -> None:
        text = line.text[:_LONGEST].rstrip()
        dump = self._dumps.get(line.rank)
        if _TIMEOUT.match(text):
            # A later dump of the same rank replaces its first one.
            self._begin(line, late=True)
        elif text.startswith(_FATAL):
            self._dead.add(line.rank)
        elif _THREAD.match(text):
            dump = dump or self._begin(line, late=False)
            if dump and len(dump.threads) < _MOST_THREADS:
                dump.threads.append([])
        elif dump and dump.threads and len(dump.threads[-1]) < _MOST_FRAMES and (frame := faulthandler_frame(text)):
            dump.threads[-1].append(frame._replace(text=line.quote, number=line.number))

    def _begin(self, line: LogLine, *, late: bool) -> _Dump | None:
        if line.rank not in self._dumps and len(self._dumps) >= _MOST:
            return None
        dump = self._dumps[line.rank] = _Dump(line, late)
        return dump

    def finish(self) -> Sequence[FailureMatch]:
        dumps = [(rank, dump) for rank, dump in self._dumps.items() if dump.threads]
        late = any(dump.late for _, dump in dumps)
        # The stack after a fatal error is no evidence of a hang.
        dumps = [one for one in dumps if one[1].late or not (late or self._dead)]
        if not dumps:
            return ()
        positions = [position_of(dump.threads[-1])._replace(rank=rank) for rank, dump in dumps]
        told = summarize(positions)
        if not late and told.key == BARE:
            return ()
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
        return (FailureMatch(signature, Priority.STUCK if late else Priority.LIMIT, fatal=False),)
