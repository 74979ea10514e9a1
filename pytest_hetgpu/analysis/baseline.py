"""Earlier runs that this one is held against (`--hetgpu-baseline`): found, kept with the run, and as limits of a cell.

The rule that like is compared with like is that of `hetgpu compare`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pytest_hetgpu.analysis.compare import kept
from pytest_hetgpu.analysis.compare.find import Places, find
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
from pytest_hetgpu.store.folder import HISTORY
from pytest_hetgpu.store.run_summary import PastCell, PastRun, program

FILE = "baseline.json"
_MICRO = 1e6
_GIGA = 1e9
_TIMES = ("latency", "bandwidth")
"""Metrics that tell how long a message or an operation took, the one that counts first."""
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

    def keep(self, run: Path) -> Path:
        """Puts it into a run's folder, and gives the file. Raises OSError."""
        kept.keep(self.kept_in(run), self.side)
        return self.kept_in(run)

    def kept_in(self, run: Path) -> Path:
        """Where `keep` puts it."""
        return run / FILE

    def limits(self, job: Job) -> Thresholds:
        """What each point of a job is held against, or why it cannot be."""
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
        """Versions and settings of the newest run in which the cell worked."""
        working = _working(self.side.cells.get((job.matrix, job.scenario), ()))
        return working[0].facts if working else {}

    def _nothing(self, job: Job, point: MessagePoint, why: str) -> Threshold:
        return Threshold(metric_of(job.demand, point), self.name, lacks=why, owed=False)

    def _limit(self, job: Job, point: MessagePoint, found: Mapping[MessagePoint, Sequence[_Time]]) -> Threshold:
        demand = job.demand
        limit = Threshold(metric_of(demand, point), self.name, tolerance=demand.tolerance)
        if not demand.requires(point):
            return replace(limit, lacks=_instead(point, demand.points))
        # Which release a program is that is not ours shows when it has run.
        tool = "" if demand.foreign else program(job.command.argv)
        traits = Traits(demand.row_ranks, tool, demand.facts.get("memory", ""))
        like = [time for time in found[point] if not time.traits.unlike(traits)]
        if not like:
            return replace(limit, lacks=found[point][0].traits.unlike(traits))
        limit = replace(limit, tool=like[0].traits.tool if demand.foreign else "")
        if len(like) >= FEWEST:
            # Runs are what scatters; the repeats of one are more alike than those of two.
            return replace(limit, seconds=tuple(time.middle for time in like))
        return replace(limit, seconds=tuple(sample for time in like for sample in time.samples))


@dataclass(frozen=True, slots=True)
class _Time:
    """What one run measured of a point, in seconds."""

    middle: float
    samples: tuple[float, ...]
    traits: Traits


def _working(cells: Sequence[PastCell]) -> list[PastCell]:
    """The runs in which a cell passed; without any those in which it was slow, which are better than none."""
    ran = [cell for cell in cells if cell.verdict is not Verdict.NOT_RUN]
    return next(filter(None, ([c for c in ran if c.kind is kind] for kind in (Kind.PASSED, Kind.SLOW))), [])


def _times(cells: Iterable[PastCell]) -> dict[MessagePoint, list[_Time]]:
    found: dict[MessagePoint, list[_Time]] = {}
    for cell in cells:
        times: dict[MessagePoint, _Time] = {}
        for metric in reversed(_TIMES):
            usables = (one for one in cell.measurements if one.metric == metric and one.value > 0 and usable(one.value))
            times.update({one.point: _time(cell, one) for one in usables})
        for point, time in times.items():
            found.setdefault(point, []).append(time)
    return found


def _time(cell: PastCell, one: Measurement) -> _Time:
    middle, *samples = (_seconds(one, value) for value in (one.value, *(one.samples or (one.value,))))
    return _Time(middle, tuple(samples), Traits(one.ranks, cell.tool, cell.memory))


def _seconds(one: Measurement, value: float) -> float:
    """Of one operation, or of one message where several were under way."""
    return value / _MICRO if one.metric == _TIMES[0] else one.point.size / (value * _GIGA)


def _instead(point: MessagePoint, points: Sequence[MessagePoint]) -> str:
    """Why a point is not there: something else was measured at its size, or nothing."""
    others = [other for other in points if other.size == point.size]
    if not others:
        return "this run does not measure it"
    kinds = (f"{other.dtype}{' in place' if other.place else ''}" for other in (point, *others))
    before, *after = kinds
    return f"{before} before and {', '.join(after)} after"


def of(name: str, places: Places, matrices: Sequence[MatrixFile], cells: Iterable[tuple[str, str]]) -> Baseline:
    """The baseline that the user calls `name`, for a run over these matrices with these cells (matrix and id).

    A history file stands for the newest run in it that shares a matrix. UsageError where there is none, or where it has
    nothing to hold a cell against: another matrix, other cells, no number.
    """
    this = Side("this run", (PastRun("", "", 0.0, "", "", tuple(matrices), ()),))
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


def chosen(given: str, reports: Path, history: Path | None, suite: MatrixSet) -> tuple[Baseline, list[str]]:
    """What a run of these matrices, now and here, is held against, with remarks on it. Raises UsageError."""
    places = Places(reports, history or reports / HISTORY)
    matrices = [MatrixFile(name, one.file, one.sha256) for name, one in suite.documents.items()]
    found = of(given, places, matrices, [(cell.matrix, cell.id) for cell in suite.scenarios])
    return found, list(remarks(found, matrices, os.uname().nodename))


def _is_history(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(15) == b"SQLite format 3"
    except (OSError, ValueError):
        return False


def _pruned(cells: Iterable[PastCell], wanted: set[tuple[str, str]]) -> Iterator[PastCell]:
    """The cells that this run may have, with nothing but their times."""
    for cell in cells:
        if (cell.matrix, cell.scenario) in wanted:
            yield replace(cell, measurements=tuple(one for one in cell.measurements if one.metric in _TIMES))


def remarks(baseline: Baseline, matrices: Sequence[MatrixFile], machine: str) -> Iterator[str]:
    """What may explain differences: of which run it is, another file of the matrix, another machine."""
    side = baseline.side
    yield from filter(None, (side.note,))
    for matrix in matrices:
        if side.matrices.get(matrix.name, "") not in ("", matrix.sha256):
            yield f"{baseline.name}: the file of the matrix {matrix.name} is not the same any more"
    machines = dict.fromkeys(run.machine for run in side.runs if run.machine)
    if machines and machine not in machines:
        yield f"{baseline.name}: it is of another machine ({', '.join(list(machines)[:_MOST])})"


def kept_with(run: Path) -> Baseline | None:
    """The baseline of a run that another process opened; None where it has none."""
    return Baseline(kept.read(run / FILE)) if (run / FILE).exists() else None
