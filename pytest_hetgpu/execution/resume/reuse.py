"""The cells of an earlier part that keep their verdict, and the cells that run again. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from pytest_hetgpu.model.job import Scenario
from pytest_hetgpu.model.outcome import STOPPED
from pytest_hetgpu.model.verdict import Verdict
from pytest_hetgpu.store.cells import CellRecord, CellState, RunRecord
from pytest_hetgpu.store.disk_errors import JUDGE as STORAGE

Reusable = Mapping[tuple[str, str], CellRecord]
"""Cells by matrix and id."""
_CUT = (STOPPED, "cut short by ")
"""Reasons of cells that a stop of the run ended; the second is of earlier releases."""
_WHY = {
    "flight": ("was in flight", "were in flight"),
    "storage": ("could not be recorded", "could not be recorded"),
    "spent": ("was cut short by the end of the run's time", "were cut short by the end of the run's time"),
    "away": ("failed while its engine or stack was away", "failed while their engine or stack was away"),
    "absent": ("was skipped for what was not here", "were skipped for what was not here"),
}


def reusable(record: RunRecord) -> Reusable:
    """Return the cells with a final verdict: they were neither interrupted nor skipped."""
    return {(cell.matrix, cell.scenario): cell for cell in record.cells if not _again(cell)}


def describe(run: str, cells: Iterable[Scenario], record: RunRecord) -> str:
    """Return `resumed RUN: 3 of 5 cells are kept, 2 to run (1 was in flight)`, without excluded cells."""
    wanted = [cell for cell in cells if not cell.excluded]
    there = {(cell.matrix, cell.scenario): cell for cell in record.cells}
    standing = reusable(record)
    missing = [cell for cell in wanted if (cell.matrix, cell.id) not in standing]
    found = Counter(_again(there[cell.matrix, cell.id]) for cell in missing if (cell.matrix, cell.id) in there)
    said = f"resumed {run}: {len(wanted) - len(missing)} of {len(wanted)} cells are kept, "
    if not missing:
        return f"{said}nothing is left to run"
    whys = ", ".join(f"{found[why]} {_WHY[why][found[why] > 1]}" for why in _WHY if found[why])
    return f"{said}{len(missing)} to run{f' ({whys})' if whys else ''}"


def remarks(record: RunRecord) -> Iterator[str]:
    """Yield further lines about the earlier part."""
    damaged = record.unread.get("damaged", 0)
    if damaged:
        lines = f"{damaged} line{'s' * (damaged > 1)}"
        yield f"{lines} of its journal could not be read: what is recorded only there is run again"


def _again(cell: CellRecord) -> str:
    """Return why a cell runs again, or ""."""
    if cell.state in (CellState.STARTED, CellState.FINISHED):
        return "flight"
    if cell.state is CellState.JUDGED and (why := _of_verdict(cell)):
        return why
    if cell.state is CellState.SKIPPED or cell.outcome.verdict is Verdict.NOT_RUN:
        return "absent" if cell.state is not CellState.PLANNED else "planned"
    return "" if cell.state is CellState.JUDGED else "planned"


def _of_verdict(cell: CellRecord) -> str:
    """Return why a verdict is not final, or ""."""
    if any(one.judge == STORAGE for one in cell.outcome.findings):
        return "storage"
    if cell.result is not None and cell.result.spent:
        return "spent"
    stopped = cell.result is not None and cell.result.interrupted is not None
    if stopped or any(one.why.startswith(_CUT) for one in cell.outcome.findings):
        return "flight"
    return "away" if cell.outcome.away and cell.outcome.verdict.fails else ""
