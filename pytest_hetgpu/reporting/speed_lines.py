"""Steps, drifts and pairs of levels of a cell's speed, in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pytest_hetgpu.analysis.nights.speeds import SpeedHistory, moved
from pytest_hetgpu.model.sizes import show_size
from pytest_hetgpu.reporting.history_lines import cell_names, describe_run, letters
from pytest_hetgpu.store.past_runs import PastCell, PastRun, PastRuns
from pytest_hetgpu.store.past_speeds import SpeedQuantity
from pytest_hetgpu.store.text import one_line

_LONGEST = 200
_LONGEST_NAME = 120
_MOST_CHANGES = 8


def speed_changes(past: PastRuns, speeds: Sequence[SpeedHistory]) -> Iterator[str]:
    """Yield the cells whose speed has a step, a drift or two levels, the latest steps first."""

    def latest(cell: PastCell) -> int:
        return max((step.night for one in found[cell] for step in one.change.steps), default=-1)

    found, name = moved(speeds), cell_names(past)
    for cell in sorted(found, key=latest, reverse=True):
        yield ""
        yield f"{letters(past.cells[cell])}  {one_line(name(cell), _LONGEST_NAME)}"
        yield from (f"  {line}" for one in found[cell] for line in speed_lines(one, past.runs))


def describe_quantity(quantity: SpeedQuantity) -> str:
    """Format a quantity: `busbw at 1M float32`."""
    place = " in place" if quantity.place else ""
    at = f" at {show_size(quantity.size)} {quantity.dtype}{place}" if quantity.size else ""
    return one_line(f"{quantity.metric}{at}", _LONGEST)


def speed_line(one: SpeedHistory, place: int, runs: Sequence[PastRun]) -> str:
    """Format a step: `latency at 8 float32: 11.2 us since 2026-11-02 02:17 UTC (ID), 25 % more than 8.96 us`."""
    step, unit = one.change.steps[place], one.speed.quantity.unit
    percent = 100 * (step.ratio - 1)
    than = f"{abs(percent):.0f} % {'more' if percent > 0 else 'less'} than {step.before:.3g} {unit}"
    since = describe_run(runs[step.night])
    return one_line(f"{describe_quantity(one.speed.quantity)}: {step.after:.3g} {unit} since {since}, {than}", _LONGEST)


def speed_lines(one: SpeedHistory, runs: Sequence[PastRun]) -> Iterator[str]:
    """Yield the last step with what changed then, or the shape of what is no step."""
    if not one.change.steps:
        yield one_line(f"{describe_quantity(one.speed.quantity)}: {one.change.name}", _LONGEST)
        return
    yield speed_line(one, -1, runs)
    changes = one.changes[-1]
    yield from (f"then {one_line(change, _LONGEST)}" for change in changes[:_MOST_CHANGES])
    if len(changes) > _MOST_CHANGES:
        yield f"then {len(changes) - _MOST_CHANGES} more"
