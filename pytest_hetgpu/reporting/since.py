"""Since when a cell of a run fails, after which changes, and how often it failed before: from `past.json`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pytest_hetgpu.analysis.cell_history import CellHistory, HistoryState, cell_history
from pytest_hetgpu.model.verdict import Verdict
from pytest_hetgpu.reporting.history_lines import describe_run, flake_rate
from pytest_hetgpu.store import saved_past
from pytest_hetgpu.store.cells import CellRecord, RunRecord, format_utc
from pytest_hetgpu.store.past_runs import PastRun, as_past
from pytest_hetgpu.store.run_summary import summarise
from pytest_hetgpu.store.text import one_line

_LONGEST = 120
_MOST_CHANGES = 4


@dataclass(frozen=True, slots=True)
class Pasts:
    """The history of each cell (matrix and id) up to and with this run, the last of `runs`."""

    runs: tuple[PastRun, ...]
    cells: dict[tuple[str, str], CellHistory]

    def line(self, cell: CellRecord) -> str:
        """Return one line for a failure that is new or changed, or for a cell that works again; else ""."""
        one = self.cells.get((cell.matrix, cell.scenario))
        if one is None or cell.outcome.verdict not in (Verdict.NEW, Verdict.CHANGED, Verdict.FIXED):
            return ""
        return "; ".join(_phrases(one, self.runs))

    def properties(self, cell: CellRecord) -> Iterator[tuple[str, str]]:
        """Yield `since`, the start of the first run with this failure, and `flake_rate`, the share of failed runs."""
        one = self.cells.get((cell.matrix, cell.scenario))
        if one is None or not one.ran:
            return
        if cell.outcome.kind.failed:
            place = one.later[0] if one.later else one.since
            yield "since", format_utc(self.runs[place].started, "%Y-%m-%dT%H:%M:%SZ")
        if one.state is HistoryState.FLAKY:
            yield "flake_rate", f"{one.failed / one.ran:.3g}"


def pasts(record: RunRecord, folder: Path) -> Pasts | None:
    """Return the histories of the cells of a run, None if it is the first, or its `past.json` is missing."""
    past = saved_past.read(folder)
    if past is None or not past.runs:
        return None
    this = as_past(summarise(record, folder))
    runs = (*past.runs, *this.runs)
    before = {(cell.matrix, cell.scenario): outcomes for cell, outcomes in past.cells.items()}
    nothing = (None,) * len(past.runs)
    return Pasts(
        runs,
        {
            (cell.matrix, cell.scenario): cell_history(
                runs, (*before.get((cell.matrix, cell.scenario), nothing), *outcomes)
            )
            for cell, outcomes in this.cells.items()
        },
    )


def _phrases(one: CellHistory, runs: Sequence[PastRun]) -> Iterator[str]:
    """Yield since when, what it was, and what changed then."""
    if one.state is HistoryState.FLAKY:
        yield flake_rate(one)
        return
    if one.state is HistoryState.STEADY:
        yield "never run before" if one.ran == 1 else f"the same in all {one.ran} runs"
        return
    run = "run" if one.runs_before == 1 else "runs"
    if one.later:
        yield f"like this {_began(runs, one.later[0])}"
    yield f"{_began(runs, one.since)}, was {one_line(one.before, _LONGEST)} for {one.runs_before} {run}"
    yield from (one_line(change, _LONGEST) for change in one.changes[:_MOST_CHANGES])
    if len(one.changes) > _MOST_CHANGES:
        yield f"{len(one.changes) - _MOST_CHANGES} more changes"


def _began(runs: Sequence[PastRun], place: int) -> str:
    return "since this run" if place == len(runs) - 1 else f"since {describe_run(runs[place])}"
