"""The present level of each quantity in several runs: what was measured before its last step is left out. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pytest_hetgpu.analysis.nights.change_points import find_changes
from pytest_hetgpu.analysis.nights.records import NightSeries
from pytest_hetgpu.model.records import Measurement, MessagePoint
from pytest_hetgpu.store.run_summary import CellSummary, RunSummary

_Key = tuple[str, str, str, MessagePoint]


@dataclass(frozen=True, slots=True)
class LevelStarts:
    """Runs without the measurements before the last step of their quantity, and these steps."""

    runs: tuple[RunSummary, ...]
    steps: tuple[tuple[str, str, str], ...] = ()
    """Cell, quantity (`busbw[1048576,float32]`) and first run of the present level."""


def since_last_step(runs: Sequence[RunSummary]) -> LevelStarts:
    """Leave out what was measured before the last step. `runs` are the newest first, and stay in this order.

    Raises MissingExtra without the extra `history`.
    """
    oldest_first = runs[::-1]
    values: dict[_Key, list[float | None]] = {}
    for place, run in enumerate(oldest_first):
        for cell in run.cells:
            for one in cell.measurements:
                if 0 < one.value < float("inf"):
                    values.setdefault(_key(cell, one), [None] * len(runs))[place] = one.value
    found = find_changes([NightSeries(series) for series in values.values()])
    starts = {key: one.steps[-1].night for key, one in zip(values, found, strict=True) if one.steps}
    kept = [_kept(run, place, starts) if starts else run for place, run in enumerate(oldest_first)]
    steps = (
        (scenario, f"{metric}[{point}]", oldest_first[place].id)
        for (_, scenario, metric, point), place in starts.items()
    )
    return LevelStarts(tuple(reversed(kept)), tuple(steps))


def _key(cell: CellSummary, one: Measurement) -> _Key:
    return cell.matrix, cell.scenario, one.metric, one.point


def _kept(run: RunSummary, place: int, starts: dict[_Key, int]) -> RunSummary:
    cells = (
        replace(cell, measurements=tuple(one for one in cell.measurements if starts.get(_key(cell, one), 0) <= place))
        for cell in run.cells
    )
    return replace(run, cells=tuple(cells))
