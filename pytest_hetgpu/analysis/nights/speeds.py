"""How the speed of cells moved over many runs, and what changed in the run of each step. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pytest_hetgpu.analysis.cell_history import changes_between
from pytest_hetgpu.analysis.nights.change_points import find_changes
from pytest_hetgpu.analysis.nights.records import CourseShape, NightSeries, SeriesChange
from pytest_hetgpu.store.past_runs import PastCell, PastRuns
from pytest_hetgpu.store.past_speeds import PastSpeed, PastSpeeds

DATED_WITHIN = 1
"""Nights by which a step may be dated too early or too late."""
_HOST = "host of pytest"


@dataclass(frozen=True, slots=True)
class SpeedHistory:
    """The course of one quantity of a cell, and what changed at each of its steps."""

    cell: PastCell
    speed: PastSpeed
    change: SeriesChange
    changes: tuple[tuple[str, ...], ...] = ()


def speed_histories(past: PastRuns, speeds: PastSpeeds) -> tuple[SpeedHistory, ...]:
    """Return the course of each quantity. Raises MissingExtra without the extra `history`."""
    listed = [(cell, one) for cell, several in speeds.items() for one in several]
    hosts = [run.shared.get(_HOST) for run in past.runs]
    several = len(set(hosts)) > 1
    series = [NightSeries(tuple(map(_usable, one.values)), {"host": hosts} if several else {}) for _, one in listed]
    return tuple(
        SpeedHistory(cell, one, change, tuple(_changes(past, cell, one.values, change)))
        for (cell, one), change in zip(listed, find_changes(series), strict=True)
    )


def moved(histories: Sequence[SpeedHistory]) -> Mapping[PastCell, tuple[SpeedHistory, ...]]:
    """Return what is not steady, by cell."""
    found: dict[PastCell, list[SpeedHistory]] = {}
    for one in histories:
        if one.change.shape not in (CourseShape.STEADY, CourseShape.TOO_FEW):
            found.setdefault(one.cell, []).append(one)
    return {cell: tuple(several) for cell, several in found.items()}


def _usable(value: float | None) -> float | None:
    """Return a value that can be compared by ratio, None for any other."""
    return value if value is not None and 0 < value < float("inf") else None


def _changes(
    past: PastRuns, cell: PastCell, values: Sequence[float | None], change: SeriesChange
) -> Iterator[tuple[str, ...]]:
    """Yield what changed about each step, which may be dated a night too early or too late."""
    outcomes = past.cells.get(cell, (None,) * len(values))
    measured = [(place, one) for place, one in enumerate(outcomes) if one is not None and values[place] is not None]
    for step in change.steps:
        before = [one for one in measured if one[0] < step.night][-1 - DATED_WITHIN :]
        after = [one for one in measured if one[0] >= step.night][: 1 + DATED_WITHIN]
        if before and after:
            (was, old), (now, new) = before[0], after[-1]
            yield tuple(changes_between(past.runs[was], old, past.runs[now], new))
        else:
            yield ()
