"""A run as its journals record it: the events of all writers, merged into one record per cell."""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import TypeVar

from pytest_hetgpu.errors import UsageError
from pytest_hetgpu.model.outcome import Attempt, Outcome, RunResult
from pytest_hetgpu.model.scenario import Scaling
from pytest_hetgpu.model.verdict import Kind, Verdict
from pytest_hetgpu.store import writer_lock
from pytest_hetgpu.store.event_log import read_events
from pytest_hetgpu.store.events import (
    Accepted,
    Attempted,
    Bisected,
    CellEvent,
    Controlled,
    Event,
    Finished,
    Merged,
    Planned,
    Sampled,
    SessionStarted,
    Shrunk,
    Skipped,
    Started,
    Tried,
)
from pytest_hetgpu.store.folder import RunFolder

E = TypeVar("E")

NEVER_STARTED = Outcome(Kind.SKIPPED, Verdict.NOT_RUN, why="never started: the run ended before its turn")


_WRITER_STATES = {
    True: "is still running",
    False: "is gone: killed, or stopped with its machine, before it could record more",
    None: "recorded nothing more",
}


class CellState(str, enum.Enum):
    """The last step that a cell reached."""

    PLANNED = "planned"
    STARTED = "started"
    FINISHED = "finished"
    JUDGED = "judged"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class CellRecord:
    """The state of one cell according to the journal; after several attempts, that of the last.

    `outcome` is always set. A cell that was started and not judged is `unknown` and `new`. A cell that never started is
    `skipped` and `not_run`.
    """

    matrix: str
    scenario: str
    label: str
    axes: Mapping[str, str] = field(default_factory=dict)
    argv: tuple[str, ...] = ()
    position: int | None = None
    scaling: Scaling | None = None
    state: CellState = CellState.PLANNED
    outcome: Outcome = NEVER_STARTED
    result: RunResult | None = None
    #: seconds since 1970
    started: float | None = None
    pid: int | None = None
    #: the link given with the skip
    skip_issue: str | None = None
    #: the writer and the part of the last event
    writer: str = ""
    part: int = 0
    #: whether the test passed whatever the outcome
    accepted: bool = False
    #: those that failed while the cell was in flight
    attempts: tuple[Attempt, ...] = ()
    #: further runs for the condition of a failure
    controls: tuple[Controlled, ...] = ()

    @property
    def issue(self) -> str | None:
        """The link given for the failure of the cell, or for its absence."""
        expectation = self.outcome.expectation
        return (expectation.issue if expectation else None) or self.skip_issue


@dataclass(frozen=True, slots=True)
class RunRecord:
    """The cells and sessions of a run."""

    #: in the order of the matrix files, as far as that is known
    cells: tuple[CellRecord, ...]
    sessions: tuple[SessionStarted, ...] = ()
    #: journal lines that were left out: `damaged` (half a line, garbage), `newer` (of a later version)
    unread: Mapping[str, int] = field(default_factory=dict)
    #: how often the run was resumed
    part: int = 0
    #: by matrix
    samples: Mapping[str, Sampled] = field(default_factory=dict)
    trials: tuple[Tried, ...] = ()
    smallest: tuple[Shrunk, ...] = ()
    bisected: tuple[Bisected, ...] = ()
    #: the runs of several sites that were merged into this one
    merged: tuple[Merged, ...] = ()

    @property
    def sites(self) -> Mapping[str, str]:
        """The site of each matrix of a merged run."""
        return {matrix: one.site for one in self.merged for matrix in one.matrices}

    @property
    def tried(self) -> tuple[Tried | Shrunk, ...]:
        """All that was tried for failures."""
        return (*self.trials, *self.smallest)

    @property
    def may_scale(self) -> bool:
        """Return whether cells were measured with different numbers of ranks."""
        return len({one.ranks for cell in self.cells for one in cell.outcome.measurements}) > 1


def read_cells(run_folder: Path) -> list[CellRecord]:
    """Read the cells of a run, as `read_run` does."""
    return list(read_run(run_folder).cells)


def read_run(run_folder: Path, before: int | None = None) -> RunRecord:
    """Merge the journals in `run_folder` into one record. Unreadable lines are counted and left out.

    With `before`, ignore that part of the run and all later ones. Raises UsageError if the folder holds no journal.
    """
    journals = run_folder / "journal"
    if not journals.is_dir():
        raise UsageError(f"{run_folder}: not the folder of a run (it holds no folder `journal`)")
    logged, unread = read_events(journals)
    cells: dict[tuple[str, str], CellRecord] = {}
    sessions: dict[int, SessionStarted] = {}
    of_run: list[Event] = []
    for entry in logged:
        if before is not None and entry.part >= before:
            break
        event = entry.event
        if isinstance(event, SessionStarted):
            sessions[entry.part] = event
        if not isinstance(event, CellEvent):
            of_run.append(event)
            continue
        identity = (event.matrix, event.scenario)
        record = cells.get(identity) or CellRecord(*identity, label=event.scenario)
        cells[identity] = replace(_apply(record, event, entry.epoch), writer=entry.writer, part=entry.part)
    merged = tuple(_of(Merged, of_run))
    writers = {writer: alive for one in merged for writer, alive in one.writers.items()}
    concluded = (
        _with_interruption(record, sessions.get(record.part), partial(_is_alive, run_folder, writers))
        for record in cells.values()
    )
    ordered = sorted(concluded, key=lambda r: math.inf if r.position is None else r.position)
    return RunRecord(
        tuple(ordered),
        tuple(_of(SessionStarted, of_run)),
        unread,
        max((entry.part for entry in logged), default=0),
        {one.matrix: one for one in _of(Sampled, of_run)},
        tuple(_of(Tried, of_run)),
        tuple(_of(Shrunk, of_run)),
        tuple(_of(Bisected, of_run)),
        merged,
    )


def _of(kind: type[E], events: Iterable[Event]) -> Iterator[E]:
    return (event for event in events if isinstance(event, kind))


def missing_logs(record: RunRecord, folder: RunFolder) -> tuple[str, ...]:
    """List the labels of cells that ran and have no log any more."""
    return tuple(cell.label for cell in record.cells if cell.result and not folder.log(cell.label).exists())


MINUTES = "%Y-%m-%d %H:%M UTC"
"""The pattern of a time without its seconds, for `format_utc`."""


def format_utc(epoch: float, pattern: str = "%Y-%m-%d %H:%M:%S UTC") -> str:
    """Format seconds since 1970 as `2026-11-20 14:08:03 UTC`; print the number itself if it is outside the calendar."""
    try:
        return datetime.fromtimestamp(epoch, timezone.utc).strftime(pattern)
    except (OverflowError, ValueError, OSError):
        return f"{epoch:g} s after 1970"


def _apply(record: CellRecord, event: CellEvent, epoch: float) -> CellRecord:
    """Apply an event to the record of its cell."""
    match event:
        case Planned():
            after = _with_plan(record, event)
        case Attempted(number=number, attempt=attempt):
            after = replace(record, state=CellState.FINISHED, attempts=(*record.attempts[: number - 1], attempt))
        case Skipped():
            outcome = Outcome(Kind.SKIPPED, Verdict.NOT_RUN, why=event.reason)
            skipped = replace(
                _with_plan(record, event), state=CellState.SKIPPED, outcome=outcome, skip_issue=event.issue
            )
            after = replace(skipped, result=None, started=None, pid=None)
        case Started(pid=pid):
            after = replace(
                record, state=CellState.STARTED, started=epoch, pid=pid, result=None, skip_issue=None, accepted=False
            )
        case Finished(result=result):
            after = replace(record, state=CellState.FINISHED, result=result)
        case Accepted():
            after = replace(record, accepted=True)
        case Controlled():
            after = replace(record, label=event.label, controls=(*record.controls, event))
            after = replace(after, axes=after.axes or event.axes)
        case _:
            after = replace(record, state=CellState.JUDGED, outcome=event.outcome, skip_issue=None, attempts=())
    return after


def _with_plan(record: CellRecord, event: Planned | Skipped) -> CellRecord:
    return replace(
        record,
        label=event.label,
        axes=event.axes or record.axes,
        argv=(event.argv if isinstance(event, Planned) else ()) or record.argv,
        position=record.position if event.position is None else event.position,
        scaling=(event.scaling if isinstance(event, Planned) else None) or record.scaling,
    )


def _is_alive(run_folder: Path, merged: Mapping[str, bool | None], writer: str) -> bool | None:
    """Return whether a writer of a run lives, or lived when its run was merged into this one."""
    if writer in merged:
        return merged[writer]
    return writer_lock.writer_alive(run_folder / "journal" / f"{writer}.jsonl")


def _with_interruption(
    record: CellRecord, session: SessionStarted | None, is_alive: Callable[[str], bool | None]
) -> CellRecord:
    """Turn a cell in flight into a new failure of unknown kind. Never turn it into a pass."""
    if record.state not in (CellState.STARTED, CellState.FINISHED):
        return record
    since = "at a time unknown" if record.started is None else f"at {format_utc(record.started)}"
    why = f"cut short: started {since}, never judged"
    if record.result:
        why += f"; its command had ended with return code {record.result.returncode}"
    if record.pid is not None:
        name = record.writer.partition("@")[0]  # in a merged run, the site follows
        who = f"process {record.pid} ({name}){f' on {session.host}' if session else ''}"
        why += f"; {who}, which ran it, {_WRITER_STATES[is_alive(record.writer)]}"
    seconds = record.result.seconds if record.result else 0.0
    outcome = Outcome(Kind.UNKNOWN, Verdict.NEW, why=why, seconds=seconds, attempts=record.attempts)
    return replace(record, outcome=outcome)
