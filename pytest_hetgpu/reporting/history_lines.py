"""The history of cells as lines for a terminal: one letter for each run, and since when a cell is as it is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

from pytest_hetgpu.analysis.cell_history import CellHistory, HistoryState, cell_history
from pytest_hetgpu.analysis.significance import rate_interval
from pytest_hetgpu.reporting.table import LETTERS
from pytest_hetgpu.store.cells import MINUTES, format_utc
from pytest_hetgpu.store.past_runs import PastCell, PastOutcome, PastRun, PastRuns
from pytest_hetgpu.store.text import one_line

_ORDER = (HistoryState.BROKEN, HistoryState.FLAKY, HistoryState.MENDED)
_MOST_CHANGES = 8
_LONGEST = 120


def history_lines(past: PastRuns) -> Iterator[str]:
    """Yield the cells that were not always the same, the broken ones first; the newest run is right."""
    runs = past.runs
    if not runs:
        yield "no run is in the history"
        return
    first, last = _time(runs[0]), _time(runs[-1])
    yield f"{len(runs)} run{'s' * (len(runs) > 1)}, {first} to {last}, the newest right"
    name = cell_names(past)
    found = {cell: cell_history(runs, outcomes) for cell, outcomes in past.cells.items()}
    for state in _ORDER:
        for cell, one in found.items():
            if one.state is state:
                yield ""
                yield f"{letters(past.cells[cell])}  {one_line(name(cell), _LONGEST)}"
                yield from (f"  {line}" for line in cell_lines(one, runs))
    yield from _steady(found.values())


def cell_names(past: PastRuns) -> Callable[[PastCell], str]:
    """Return a function to the name of a cell, with its site and matrix if the runs have several."""
    sites, matrices = ({getattr(cell, part) for cell in past.cells} for part in ("site", "matrix"))

    def name(cell: PastCell) -> str:
        parts = (cell.site if len(sites) > 1 else "", cell.matrix if len(matrices) > 1 else "", cell.scenario)
        return ": ".join(filter(None, parts))

    return name


def letters(outcomes: Sequence[PastOutcome | None]) -> str:
    """Return one letter for each run, as in the table of a run; a blank for a run without the cell."""
    return "".join(LETTERS[one.verdict][0] if one else " " for one in outcomes)


def cell_lines(one: CellHistory, runs: Sequence[PastRun]) -> Iterator[str]:
    """Yield the state of a cell in words, and the changes at that time."""
    name, before = one_line(one.name, _LONGEST), one_line(one.before, _LONGEST)
    if one.state is HistoryState.FLAKY:
        yield f"{flake_rate(one)}; now {name}"
        return
    since, run = runs[one.since], "run" if one.runs_before == 1 else "runs"
    yield f"{name} since {describe_run(since)}, was {before} for {one.runs_before} {run}"
    if one.later:
        place, now = one.later
        yield f"{one_line(now, _LONGEST)} since {describe_run(runs[place])}"
    for change in one.changes[:_MOST_CHANGES]:
        yield f"then {one_line(change, 2 * _LONGEST)}"
    if len(one.changes) > _MOST_CHANGES:
        yield f"then {len(one.changes) - _MOST_CHANGES} more"


def _steady(found: Iterable[CellHistory]) -> Iterator[str]:
    histories = tuple(found)
    counts = Counter(one_line(one.name, _LONGEST) for one in histories if one.state is HistoryState.STEADY)
    if counts or any(one.state is HistoryState.NOT_RUN for one in histories):
        yield ""
    for name, number in counts.most_common():
        yield f"{number} cell{'s are' if number > 1 else ' is'} always {name}"
    if never := sum(one.state is HistoryState.NOT_RUN for one in histories):
        yield f"{never} cell{'s were' if never > 1 else ' was'} never run"


def flake_rate(one: CellHistory) -> str:
    """Return how often a flaky cell fails, with the interval of 95 %."""
    low, high = rate_interval(one.failed, one.ran)
    return f"flaky: {one.failed} of {one.ran} runs fail, {100 * low:.0f} to {100 * high:.0f} %"


def describe_run(run: PastRun) -> str:
    """Format a run as its start and its id."""
    return f"{_time(run)} ({one_line(run.id)})"


def _time(run: PastRun) -> str:
    return format_utc(run.started, MINUTES)
