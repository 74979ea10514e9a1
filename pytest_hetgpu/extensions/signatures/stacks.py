"""Stacks of a job that did not end, from this package, mpirun, gdb and py-spy.

- The lines of this package (`stack_dump.py`).
- `STACK TRACE FOR PROC` of mpirun --get-stack-traces, which runs gstack. Open MPI 4: orte/orted/orted_main.c and
  orte/tools/orterun; PRRTE: src/prted/prted_comm.c.
- gdb's threads and frames (gdb/thread.c, gdb/stack.c), alone or by gstack and pstack.
- py-spy dump (src/dump.rs).

A signal that gdb reports (gdb/infrun.c, gdb/corelow.c) is a crash.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from pytest_hetgpu.extensions.signatures.base import FailureMatch, LogLine, LogParser, Priority, token
from pytest_hetgpu.extensions.signatures.engine.frames import Frame, entry_point, faulting, library_key, signal_name
from pytest_hetgpu.extensions.signatures.engine.places import StackFrame
from pytest_hetgpu.extensions.signatures.engine.stack_lines import (
    GDB_THREAD,
    frame_number,
    gdb_frame,
    main_thread,
    spy_frame,
)
from pytest_hetgpu.extensions.signatures.engine.stacks import BARE, Position, parse_facts, position_of, summarize
from pytest_hetgpu.extensions.signatures.engine.stopped_processes import StoppedProcess, parse_stopped, stopped_key
from pytest_hetgpu.model.failure import Signature
from pytest_hetgpu.model.lazy_regex import lazy
from pytest_hetgpu.model.verdict import Kind

_MOST_PROCESSES, _MOST_THREADS, _MOST_FRAMES = 4096, 64, 200
_LONGEST = 2000

_OURS = lazy(
    r"hetgpu: stack: (?:rank (?P<rank>\d{1,7})|process)(?: on (?P<host>[\w.-]{1,253}))?(?: \(pid (?P<pid>\d{1,9})\))?"
    r" .*\[(?P<facts>[^\[\]]*)\]$"
)
_VERDICT = lazy(r"hetgpu: (?P<how>stuck|slow) after [\d.]+ s(?:, .{0,200}?)?: (?P<sentence>.*)$")
_PROC = lazy(
    r"\s{0,8}STACK TRACE FOR PROC \S{0,200}?,(?P<rank>\d{1,7})\]? \((?P<host>[\w.-]{1,253}), PID (?P<pid>\d{1,9})\)"
)
_SPY_PROCESS = lazy(r"\s{0,4}Process (?P<pid>\d{1,9}): ")
_SPY_PYTHON = lazy(r"\s{0,4}Python v[23]\.[\d.]+\S* \(")
_SPY_THREAD = lazy(
    r"\s{0,4}Thread (?P<tid>0x[0-9A-Fa-f]{1,16}|\d{1,9})(?:/0x[0-9A-Fa-f]{1,16})? "
    r"\((?:active|idle)(?:\+gil)?\)(?:: \"(?P<name>[^\"]{0,64})\")?"
)
_SIGNALLED = lazy(
    r"(?:Program|Thread \S{1,20}(?: \(.{1,100}?\))?(?: \"[^\"]{0,64}\")?) (?:received|terminated with) signal "
    r"(?P<signal>SIG[A-Z0-9]{2,8}|\d{1,2}), (?P<detail>[^.]{1,100})\."
)
_HARMLESS = frozenset(
    ("SIGINT", "SIGSTOP", "SIGTSTP", "SIGUSR1", "SIGUSR2", "SIGTRAP", "SIGTERM", "SIGCHLD", "SIGPIPE", "SIGCONT")
)
_FROM_LIBC = lazy(r"/(?:sysdeps|nptl|csu|glibc\S*)/")


@dataclass(slots=True)
class _Process:
    """One process's threads as they are read."""

    line: LogLine
    rank: int | None = None
    host: str = ""
    pid: int = 0
    by_mpirun: bool = False
    threads: dict[int, list[StackFrame]] = field(default_factory=dict)
    tid: int = 0
    first: bool = False
    name: str = ""
    python: bool = False
    signal: str = ""
    detail: str = ""

    def add(self, frame: StackFrame, line: LogLine) -> None:
        frames = self.threads.setdefault(self.tid, []) if len(self.threads) < _MOST_THREADS else None
        if frames is not None and len(frames) < _MOST_FRAMES:
            frames.append(frame._replace(text=line.quote, number=line.number))

    def whole(self) -> bool:
        """Return whether a further thread is another process's: gdb counts down to the first."""
        return self.first and bool(self.threads.get(self.tid))

    def position(self) -> Position:
        main = main_thread(self.threads, self.pid)
        return position_of(main)._replace(rank=self.rank, host=self.host, pid=self.pid)


class Stacks(LogParser):
    """Parser of stacks: one match for all waiting processes, and one per process that died under gdb."""

    triggers = (
        b"hetgpu: stack: ",
        b"hetgpu: stopped: ",
        b"hetgpu: stuck after",
        b"hetgpu: slow after",
        b"STACK TRACE FOR PROC",
        b"(LWP ",
        b"(active)",
        b"(idle)",
        b"(active+gil)",
        b"Python v3.",
        b"Python v2.",
        b" received signal SIG",
        b"terminated with signal ",
        b"#0  ",
    )
    context = 150

    def __init__(self) -> None:
        self._ours: list[Position] = []
        self._halted: list[StoppedProcess] = []
        self._verdicts: list[FailureMatch] = []
        self._processes: list[_Process] = []
        self._open: dict[int | None, _Process] = {}
        self._announced: dict[int | None, int] = {}

    def feed(self, line: LogLine) -> None:
        text = line.text[:_LONGEST]
        if text.startswith("hetgpu: "):
            self._own(line, text)
        elif not (self._head(line, text) or self._frame(line, text)):
            found = _SPY_PROCESS.match(text)
            if found:
                self._announced[line.rank] = int(found["pid"])

    def _own(self, line: LogLine, text: str) -> None:
        if (found := _OURS.match(text)) and len(self._ours) < _MOST_PROCESSES:
            known = Position(
                rank=int(found["rank"]) if found["rank"] else None,
                host=found["host"] or "",
                pid=int(found["pid"] or 0),
                text=line.quote,
                number=line.number,
            )
            self._ours.append(parse_facts(known, found["facts"]))
        elif stopped := parse_stopped(text):
            self._halted.append(stopped)
        elif found := _VERDICT.match(text):
            verdict = _judged(found["how"] == "slow", found["sentence"], self._ours, line)
            self._verdicts = [_by_signal(verdict, self._halted) if self._halted else verdict]
            self._ours, self._halted = [], []

    def _head(self, line: LogLine, text: str) -> bool:
        """Take the lines that name the process of the next stack."""
        if found := _PROC.match(text):
            self._begin(line, _Process(line, int(found["rank"]), found["host"], int(found["pid"]), by_mpirun=True))
        elif _SPY_PYTHON.match(text):
            pid = self._announced.pop(line.rank, 0)
            self._begin(line, _Process(line, line.rank, line.host or "", pid, python=True))
        elif found := _SIGNALLED.search(text):
            name = found["signal"] if found["signal"].startswith("SIG") else signal_name(int(found["signal"]))
            if name not in _HARMLESS:
                died = _Process(line, line.rank, line.host or "", signal=name, detail=found["detail"])
                self._begin(line, died)
        elif found := GDB_THREAD.match(text):
            process, tid = self._open.get(line.rank), int(found["tid"])
            if process is None or process.python or process.signal or process.whole():
                process = self._begin(line, _Process(line, line.rank, line.host or ""))
            process.tid, process.name, process.first = tid, found["name"] or process.name, found["ordinal"] == "1"
        elif found := _SPY_THREAD.match(text):
            process = self._open.get(line.rank)
            if process is None or not process.python:
                process = self._begin(line, _Process(line, line.rank, line.host or "", python=True))
            process.tid = int(found["tid"], 0)
            process.pid = process.pid or process.tid
        else:
            return False
        return True

    def _begin(self, line: LogLine, process: _Process) -> _Process:
        self._open[line.rank] = process
        if len(self._processes) < _MOST_PROCESSES:
            self._processes.append(process)
        return process

    def _frame(self, line: LogLine, text: str) -> bool:
        process = self._open.get(line.rank)
        if process is not None and process.python:
            frame = spy_frame(text)
        else:
            frame = gdb_frame(text)
            first = frame is not None and frame_number(text) == 0
            if first and (process is None or process.threads.get(process.tid)):
                process = self._begin(line, _Process(line, line.rank, line.host or ""))
        if frame is None or process is None:
            return False
        process.add(frame, line)
        return True

    def finish(self) -> Sequence[FailureMatch]:
        dead = [process for process in self._processes if process.signal]
        alive = [process for process in self._processes if not process.signal and process.threads]
        return (*self._verdicts, *map(_crashed, dead), *_stuck(alive, alone=not (dead or self._verdicts)))


def _judged(slow: bool, sentence: str, positions: Sequence[Position], line: LogLine) -> FailureMatch:
    """Return our own verdict on a run that exceeded its time limit."""
    if slow:
        signature = Signature(Kind.TIMEOUT, "slow", line.quote, line.number, detail=sentence)
        return FailureMatch(signature, Priority.LIMIT)
    return FailureMatch(_signature(positions, sentence, line.quote, line.number), Priority.STUCK)


def _by_signal(verdict: FailureMatch, parse_stopped: Sequence[StoppedProcess]) -> FailureMatch:
    """Return the same for a run whose launcher or daemon a signal had stopped, which explains everything else."""
    hosts = tuple(dict.fromkeys(one.host for one in parse_stopped if one.host))
    told = replace(
        verdict.signature, key=stopped_key(parse_stopped), library=None, function=None, ranks=(), hosts=hosts
    )
    return replace(verdict, signature=told)


def _signature(positions: Sequence[Position], sentence: str, quote: str, number: int) -> Signature:
    told = summarize(positions)
    blamed = told.odd or tuple(one for one in positions if one.known)
    first = next((one for one in blamed if one.waits), blamed[0] if blamed else Position())
    waited = first.entry or next((one.entry for one in told.others if one.entry), "")
    return Signature(
        Kind.HANG,
        told.key,
        quote,
        number,
        detail=sentence or told.sentence,
        library=first.library or None,
        function=(first.entry if first.waits else first.function) or None,
        entry_point=waited or None,
        ranks=tuple(one.rank for one in blamed if one.rank is not None)[:64],
        hosts=tuple(dict.fromkeys(one.host for one in blamed if one.host))[:64],
    )


def _stuck(processes: Sequence[_Process], *, alone: bool) -> Iterator[FailureMatch]:
    """Return the positions of processes whose stacks another tool took.

    Stacks of user frames only are weak evidence. They count if this log has no other report of this parser.
    """
    positions = [process.position() for process in processes]
    called = any(one.call for one in positions)
    told = summarize(positions)
    if not called and (not alone or told.key == BARE):
        return
    apart = next((one for one in told.odd if one.text), None)
    quoted = apart or next((one for one in positions if one.text and (one.call or not called)), positions[0])
    signature = _signature(positions, "", quoted.text, quoted.number)
    priority = Priority.STUCK if called else Priority.LIMIT
    yield FailureMatch(signature, priority, fatal=any(process.by_mpirun for process in processes))


def _crashed(process: _Process) -> FailureMatch:
    """Return a process that died under gdb, or whose core gdb read."""
    stack = next(iter(process.threads.values()), [])
    frames = [Frame(_file(frame, process.name), frame.function.partition("(")[0] or None) for frame in stack]
    frames = [frame._replace(function=None) if frame.function == "??" else frame for frame in frames]
    frame = faulting(frames)
    library = library_key(frame.library) if frame else ""
    function = frame.function if frame and library != "python" else None
    where = (f"@{library}" if library else "") + (f"!{token(function)}" if function else "")
    signature = Signature(
        Kind.CRASH,
        process.signal + where,
        process.line.quote,
        process.line.number,
        signal=process.signal,
        detail=process.detail,
        library=(frame.library or None) if frame else None,
        function=function,
        entry_point=entry_point(frames),
        ranks=() if process.rank is None else (process.rank,),
        hosts=(process.host,) if process.host else (),
    )
    return FailureMatch(signature)


def _file(frame: StackFrame, program: str) -> str:
    if frame.library:
        return frame.library.rpartition("/")[2]
    return "libc.so" if _FROM_LIBC.search(frame.file) else program
