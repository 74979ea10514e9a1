"""A run as its journals tell it: every writer's events merged into one record a cell."""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path

from pytest_hetgpu.errors import UsageError
from pytest_hetgpu.model.outcome import Attempt, Outcome, RunResult
from pytest_hetgpu.model.verdict import Kind, Verdict
from pytest_hetgpu.store import writer_lock
from pytest_hetgpu.store.event_log import read_events
from pytest_hetgpu.store.events import (
    Accepted,
    Attempted,
    BandwidthMeasured,
    CellEvent,
    Finished,
    HealthReported,
    Planned,
    SessionStarted,
    Skipped,
    Started,
    WaitingForHost,
)
from pytest_hetgpu.store.folder import RunFolder

NEVER_STARTED = Outcome(Kind.SKIPPED, Verdict.NOT_RUN, why="never started: the run ended before its turn")


_WRITER_STATES = {
    True: "is still running",
    False: "is gone: killed, or stopped with its machine, before it could say more",
    None: "said no more",
}


class CellState(str, enum.Enum):
    """How far a cell came."""

    PLANNED = "planned"
    STARTED = "started"
    FINISHED = "finished"
    JUDGED = "judged"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class CellRecord:
    """What the journal knows of a cell: of several attempts the last.

    `outcome` is always there: `unknown` and `new` for a cell that was started and not judged, `skipped` and `not_run`
    for one that never started. `started` is in seconds since 1970; `skip_issue` the link given with the skip. `writer`
    and `part` are whose event was the last; `accepted` says that its test passed whatever the outcome. `attempts` are
    those that failed while the cell was in flight.
    """

    matrix: str
    scenario: str
    label: str
    axes: Mapping[str, str] = field(default_factory=dict)
    argv: tuple[str, ...] = ()
    position: int | None = None
    state: CellState = CellState.PLANNED
    outcome: Outcome = NEVER_STARTED
    result: RunResult | None = None
    started: float | None = None
    pid: int | None = None
    skip_issue: str | None = None
    writer: str = ""
    part: int = 0
    accepted: bool = False
    attempts: tuple[Attempt, ...] = ()

    @property
    def issue(self) -> str | None:
        """The link given for its failure, or for its absence."""
        expectation = self.outcome.expectation
        return (expectation.issue if expectation else None) or self.skip_issue


@dataclass(frozen=True, slots=True)
class RunRecord:
    """A run's cells, in the order of the matrix files as far as that is known, and its sessions.

    `unread` counts journal lines that were left out: `damaged` (a half line, garbage), `newer` (of a later version).
    `part` counts how often the run was taken up again.
    """

    cells: tuple[CellRecord, ...]
    sessions: tuple[SessionStarted, ...] = ()
    unread: Mapping[str, int] = field(default_factory=dict)
    part: int = 0


def read_cells(run_folder: Path) -> list[CellRecord]:
    """The cells of a run; as `read_run`."""
    return list(read_run(run_folder).cells)


def read_run(run_folder: Path, before: int | None = None) -> RunRecord:
    """All that the journals in `run_folder` tell. Lines that cannot be read are counted and left out.

    With `before` only what was there when that part began. Raises UsageError where the folder holds no journal.
    """
    journals = run_folder / "journal"
    if not journals.is_dir():
        raise UsageError(f"{run_folder}: not the folder of a run (it holds no folder `journal`)")
    moments, unread = read_events(journals)
    cells: dict[tuple[str, str], CellRecord] = {}
    sessions: dict[int, SessionStarted] = {}
    began: list[SessionStarted] = []
    for moment in moments:
        if before is not None and moment.part >= before:
            break
        event = moment.event
        if isinstance(event, SessionStarted):
            sessions[moment.part] = event
            began.append(event)
            continue
        if isinstance(event, BandwidthMeasured | HealthReported | WaitingForHost):
            continue  # cells carry what it says of them
        identity = (event.matrix, event.scenario)
        record = cells.get(identity) or CellRecord(*identity, label=event.scenario)
        cells[identity] = replace(_apply(record, event, moment.epoch), writer=moment.writer, part=moment.part)
    concluded = (_with_interruption(record, run_folder, sessions.get(record.part)) for record in cells.values())
    ordered = sorted(concluded, key=lambda r: math.inf if r.position is None else r.position)
    return RunRecord(tuple(ordered), tuple(began), unread, max((moment.part for moment in moments), default=0))


def missing_logs(record: RunRecord, folder: RunFolder) -> tuple[str, ...]:
    """The labels of cells that ran, and whose output is not there any more."""
    return tuple(cell.label for cell in record.cells if cell.result and not folder.log(cell.label).exists())


def format_utc(epoch: float) -> str:
    """Seconds since 1970 as `2026-11-20 14:08:03 UTC`; the number itself where no calendar reaches."""
    try:
        return f"{datetime.fromtimestamp(epoch, timezone.utc):%Y-%m-%d %H:%M:%S} UTC"
    except (OverflowError, ValueError, OSError):
        return f"{epoch:g} s after 1970"


def _apply(record: CellRecord, event: CellEvent, epoch: float) -> CellRecord:
    """The record once the event happened."""
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
    )


def _with_interruption(record: CellRecord, folder: Path, session: SessionStarted | None) -> CellRecord:
    """A cell in flight is a new failure that nobody could read, never a pass."""
    if record.state not in (CellState.STARTED, CellState.FINISHED):
        return record
    since = "at a time unknown" if record.started is None else f"at {format_utc(record.started)}"
    why = f"cut short: started {since}, never judged"
    if record.result:
        why += f"; its command had ended with return code {record.result.returncode}"
    if record.pid is not None:
        who = f"process {record.pid} ({record.writer}){f' on {session.host}' if session else ''}"
        living = writer_lock.writer_alive(folder / "journal" / f"{record.writer}.jsonl")
        why += f"; {who}, which ran it, {_WRITER_STATES[living]}"
    seconds = record.result.seconds if record.result else 0.0
    outcome = Outcome(Kind.UNKNOWN, Verdict.NEW, why=why, seconds=seconds, attempts=record.attempts)
    return replace(record, outcome=outcome)
