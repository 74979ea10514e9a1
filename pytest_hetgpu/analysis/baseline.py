"""Baselines (`--hetgpu-baseline`): find earlier runs, save them with this run, and turn them into limits per cell.

The rule for comparing like with like is that of `hetgpu compare`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_hetgpu.analysis.compare import saved_side
from pytest_hetgpu.analysis.compare.find import RunLocations, find
from pytest_hetgpu.analysis.compare.numbers import Traits
from pytest_hetgpu.analysis.compare.sides import Side
from pytest_hetgpu.errors import UsageError
from pytest_hetgpu.model.job import Job
from pytest_hetgpu.model.records import Measurement, MessagePoint
from pytest_hetgpu.model.sample import FEWEST, usable
from pytest_hetgpu.model.thresholds import Threshold
from pytest_hetgpu.model.verdict import Kind, Verdict
from pytest_hetgpu.planning.matrix_set import MatrixSet
from pytest_hetgpu.planning.references import Thresholds, metric_of
from pytest_hetgpu.store.events import MatrixFile
from pytest_hetgpu.store.files import open_input
from pytest_hetgpu.store.folder import HISTORY
from pytest_hetgpu.store.run_summary import CellSummary, RunSummary, benchmark_program

if TYPE_CHECKING:
    from pytest_hetgpu.store.history_place import HistoryPlace

FILE = "baseline.json"
_MICRO = 1e6
_GIGA = 1e9
_TIMES = ("latency", "bandwidth")
"""Metrics that give the time of a message or an operation; the first has precedence."""
_MOST = 5


@dataclass(frozen=True)
class Baseline:
    """The runs, as the user called them, with the times of cells that this run may have."""

    side: Side

    @property
    def name(self) -> str:
        """`baseline 20261120-020006-02b3`, `baseline last:10 (10 runs)`."""
        runs = self.side.runs
        return f"baseline {runs[0].id if len(runs) == 1 else f'{self.side.name} ({len(runs)} runs)'}"

    def save(self, run: Path) -> Path:
        """Write the baseline into the folder of a run and return the file. Raise OSError."""
        saved_side.save(self.path_in(run), self.side)
        return self.path_in(run)

    def path_in(self, run: Path) -> Path:
        """Return the file that `save` writes."""
        return run / FILE

    def limits(self, job: Job) -> Thresholds:
        """Return the limits of each point of a job, or limits with the reason why it cannot be compared."""
        demand = job.demand
        if not demand.measured:
            return {}
        cells = self.side.cells.get((job.matrix, job.scenario), ())
        working = _working(cells)
        if not working:
            why = f"the cell did not work there ({cells[0].kind.value})" if cells else "it has no such cell"
            return {point: (self._nothing(job, point, why),) for point in demand.points}
        found = _times(working)
        often = {point: rows for point, rows in found.items() if len(rows) * 2 >= len(working)}
        had = {*found, *(replace(point, dtype="") for point in found)}
        new = (point for point in demand.points if point not in had)
        return {
            **{point: (self._limit(job, point, often),) for point in often},
            **{point: (self._nothing(job, point, "it has no such number"),) for point in new},
        }

    def facts(self, job: Job) -> Mapping[str, str]:
        """Return versions and settings of the newest run in which the cell worked."""
        working = _working(self.side.cells.get((job.matrix, job.scenario), ()))
        return working[0].facts if working else {}

    def _nothing(self, job: Job, point: MessagePoint, why: str) -> Threshold:
        return Threshold(metric_of(job.demand, point), self.name, lacks=why, owed=False)

    def _limit(self, job: Job, point: MessagePoint, found: Mapping[MessagePoint, Sequence[_Time]]) -> Threshold:
        demand = job.demand
        limit = Threshold(metric_of(demand, point), self.name, tolerance=demand.tolerance)
        if not demand.requires(point):
            return replace(limit, lacks=_instead(point, demand.points))
        # The release of an external program is known only after its run.
        tool = "" if demand.external else benchmark_program(job.command.argv)
        traits = Traits(demand.row_ranks, tool, demand.facts.get("memory", ""))
        like = [time for time in found[point] if not time.traits.unlike(traits)]
        if not like:
            return replace(limit, lacks=found[point][0].traits.unlike(traits))
        limit = replace(limit, tool=like[0].traits.tool if demand.external else "")
        if len(like) >= FEWEST:
            # Runs scatter; the repeats of one run are more alike than those of two runs.
            return replace(limit, seconds=tuple(time.middle for time in like))
        return replace(limit, seconds=tuple(sample for time in like for sample in time.samples))


@dataclass(frozen=True, slots=True)
class _Time:
    """Times of one point in one run, in seconds."""

    middle: float
    samples: tuple[float, ...]
    traits: Traits


def _working(cells: Sequence[CellSummary]) -> list[CellSummary]:
    """Return the runs in which a cell passed; if there are none, those in which it was slow."""
    ran = [cell for cell in cells if cell.verdict is not Verdict.NOT_RUN]
    return next(filter(None, ([c for c in ran if c.kind is kind] for kind in (Kind.PASSED, Kind.SLOW))), [])


def _times(cells: Iterable[CellSummary]) -> dict[MessagePoint, list[_Time]]:
    found: dict[MessagePoint, list[_Time]] = {}
    for cell in cells:
        times: dict[MessagePoint, _Time] = {}
        for metric in reversed(_TIMES):
            usables = (one for one in cell.measurements if one.metric == metric and one.value > 0 and usable(one.value))
            times.update({one.point: _time(cell, one) for one in usables})
        for point, time in times.items():
            found.setdefault(point, []).append(time)
    return found


def _time(cell: CellSummary, one: Measurement) -> _Time:
    middle, *samples = (_seconds(one, value) for value in (one.value, *(one.samples or (one.value,))))
    return _Time(middle, tuple(samples), Traits(one.ranks, cell.tool, cell.memory))


def _seconds(one: Measurement, value: float) -> float:
    """Return the seconds of one operation, or of one message if several were in flight."""
    return value / _MICRO if one.metric == _TIMES[0] else one.point.size / (value * _GIGA)


def _instead(point: MessagePoint, points: Sequence[MessagePoint]) -> str:
    """Return why a point is missing: its size was measured differently, or not at all."""
    others = [other for other in points if other.size == point.size]
    if not others:
        return "this run does not measure it"
    kinds = (f"{other.dtype}{' in place' if other.place else ''}" for other in (point, *others))
    before, *after = kinds
    return f"{before} before and {', '.join(after)} after"


def find_baseline(
    name: str, places: RunLocations, matrices: Sequence[MatrixFile], cells: Iterable[tuple[str, str]]
) -> Baseline:
    """Find the baseline that the user calls `name`, for a run over these matrices and cells (matrix and id).

    Take from a history file the newest run that shares a matrix.

    Raise UsageError if there is no such run, or if it shares no matrix, no cell or no number with this run.
    """
    this = Side("this run", (RunSummary("", "", 0.0, "", "", tuple(matrices), ()),))
    path = Path(name)
    side = find("last:1", replace(places, history=path), this) if _is_history(path) else find(name, places, this)
    if not side.matrices.keys() & this.matrices.keys():
        was, now = (", ".join(sorted(one.matrices)) or "none" for one in (side, this))
        raise UsageError(f"baseline {name}: it is of another matrix ({was}) than this run ({now})")
    wanted = set(cells)
    if not side.cells.keys() & wanted:
        raise UsageError(f"baseline {name}: it has no cell of {', '.join(sorted(this.matrices))} that this run has")
    runs = tuple(replace(run, cells=tuple(_pruned(run.cells, wanted))) for run in side.runs)
    if not any(cell.measurements for run in runs for cell in run.cells):
        raise UsageError(f"baseline {name}: it has no time of any cell that this run has")
    return Baseline(replace(side, runs=runs))


def select_baseline(
    given: str, reports: Path, history: HistoryPlace | None, suite: MatrixSet
) -> tuple[Baseline, list[str]]:
    """Return the baseline for a run of this suite on this machine, and remarks on it. Raise UsageError."""
    places = RunLocations(reports, history or reports / HISTORY)
    matrices = [MatrixFile(name, one.file, one.sha256) for name, one in suite.matrices.items()]
    found = find_baseline(given, places, matrices, [(cell.matrix, cell.id) for cell in suite.scenarios])
    return found, list(remarks(found, matrices, os.uname().nodename))


def _is_history(path: Path) -> bool:
    try:
        with open_input(path) as file:
            return file.read(15) == b"SQLite format 3"
    except (OSError, ValueError):
        return False


def _pruned(cells: Iterable[CellSummary], wanted: set[tuple[str, str]]) -> Iterator[CellSummary]:
    """Yield the cells that this run may have, reduced to their times."""
    for cell in cells:
        if (cell.matrix, cell.scenario) in wanted:
            yield replace(cell, measurements=tuple(one for one in cell.measurements if one.metric in _TIMES))


def remarks(baseline: Baseline, matrices: Sequence[MatrixFile], machine: str) -> Iterator[str]:
    """Yield facts that may explain differences: the chosen run, a changed matrix file, another machine."""
    side = baseline.side
    yield from filter(None, (side.note,))
    for matrix in matrices:
        if side.matrices.get(matrix.name, "") not in ("", matrix.sha256):
            yield f"{baseline.name}: the file of the matrix {matrix.name} is not the same any more"
    machines = dict.fromkeys(run.machine for run in side.runs if run.machine)
    if machines and machine not in machines:
        yield f"{baseline.name}: it is of another machine ({', '.join(list(machines)[:_MOST])})"


def saved_baseline(run: Path) -> Baseline | None:
    """Read the baseline of a run that another process opened; return None if it has none."""
    return Baseline(saved_side.read(run / FILE)) if (run / FILE).exists() else None
