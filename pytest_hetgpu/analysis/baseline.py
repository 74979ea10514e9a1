"""Baselines (`--hetgpu-baseline`): find earlier runs, save them with this run, and turn them into limits per cell.

The rule for comparing like with like is that of `hetgpu compare`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pytest_hetgpu.analysis.compare import saved_side
from pytest_hetgpu.analysis.compare.find import RunLocations, find
from pytest_hetgpu.analysis.compare.numbers import Traits
from pytest_hetgpu.analysis.compare.sides import Side
from pytest_hetgpu.errors import UsageError
from pytest_hetgpu.model.job import Job
from pytest_hetgpu.model.quantities import better, independent, no_direction
from pytest_hetgpu.model.records import Measurement, MessagePoint
from pytest_hetgpu.model.sample import FEWEST, usable
from pytest_hetgpu.model.thresholds import EVERY, Threshold
from pytest_hetgpu.model.verdict import Kind, Verdict
from pytest_hetgpu.planning.matrix_set import MatrixSet
from pytest_hetgpu.planning.references import Thresholds, from_measured
from pytest_hetgpu.store.events import MatrixFile
from pytest_hetgpu.store.files import open_input
from pytest_hetgpu.store.folder import HISTORY
from pytest_hetgpu.store.run_summary import CellSummary, RunSummary, benchmark_program

if TYPE_CHECKING:
    from pytest_hetgpu.store.history_place import HistoryPlace

FILE = "baseline.json"
_MOST = 5


@dataclass(frozen=True)
class Baseline:
    """The runs, as the user called them, with the numbers of cells that this run may have."""

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
        if not job.demand.measured and job.demand.external is None:
            return {}
        cells = self.side.cells.get((job.matrix, job.scenario), ())
        working, points = _working(cells), job.demand.points if job.demand.measured else ()
        limit = Threshold("", self.name, tolerance=job.demand.tolerance)
        if not working:
            why = f"the cell did not work there ({cells[0].kind.value})" if cells else "it has no such cell"
            return {point: (_nothing(limit, why),) for point in points or ((EVERY,) if _is_own(job) else ())}
        found = {key: past for key, past in _numbers(working).items() if better(past[0].measured) or _is_own(job)}
        often = {key: past for key, past in found.items() if len(past) * 2 >= len(working)}
        limits: dict[MessagePoint, tuple[Threshold, ...]] = {}
        for (_, point), past in often.items():
            limits[point] = (*limits.get(point, ()), self._limit(limit, job, point, past))
        had = {point for _, at in found for point in (at, replace(at, dtype=""))}
        return {
            **limits,
            **{point: (_nothing(limit, "it has no such number"),) for point in points if point not in had},
        }

    def facts(self, job: Job) -> Mapping[str, str]:
        """Return versions and settings of the newest run in which the cell worked."""
        working = _working(self.side.cells.get((job.matrix, job.scenario), ()))
        return working[0].facts if working else {}

    def _limit(self, limit: Threshold, job: Job, point: MessagePoint, found: Sequence[_Past]) -> Threshold:
        """Return the limit of one metric at one point."""
        demand, newest = job.demand, found[0].measured
        limit = replace(limit, metric=newest.metric)
        if demand.points and not demand.requires(point):
            return replace(limit, lacks=_instead(point, demand.points))
        if not better(newest):
            return _nothing(limit, no_direction(newest.metric, newest.unit))
        # The release of an external program is known only after its run.
        tool = "" if demand.external else benchmark_program(job.command.argv)
        traits = Traits(demand.row_ranks, tool, demand.facts.get("memory", ""), newest.unit)
        like = [past for past in found if not past.traits.unlike(traits)]
        if not like:
            return replace(limit, lacks=found[0].traits.unlike(traits))
        limit = replace(limit, tool=like[0].traits.tool if demand.external else "")
        # Runs scatter; the repeats of one run are more alike than those of two runs.
        several = len(like) >= FEWEST
        values = (
            value
            for one in (past.measured for past in like)
            for value in ((one.value,) if several else one.samples or (one.value,))
        )
        return from_measured(limit, newest, values)


class _Past(NamedTuple):
    """A number of one metric at one point in one run."""

    measured: Measurement
    traits: Traits


def _nothing(limit: Threshold, why: str) -> Threshold:
    return replace(limit, lacks=why, owed=False)


def _is_own(job: Job) -> bool:
    """Return whether a job runs a program of the user, whose numbers are known only after its run."""
    return job.demand.external is not None and not job.demand.points


def _working(cells: Sequence[CellSummary]) -> list[CellSummary]:
    """Return the runs in which a cell passed; if there are none, those in which it was slow."""
    ran = [cell for cell in cells if cell.verdict is not Verdict.NOT_RUN]
    return next(filter(None, ([c for c in ran if c.kind is kind] for kind in (Kind.PASSED, Kind.SLOW))), [])


def _numbers(cells: Iterable[CellSummary]) -> dict[tuple[str, MessagePoint], list[_Past]]:
    """Return the independent numbers of each metric and point, the newest run's first."""
    found: dict[tuple[str, MessagePoint], list[_Past]] = {}
    for cell in cells:
        for one in independent(cell.measurements):
            if one.value > 0 and usable(one.value):
                traits = Traits(one.ranks, cell.tool, cell.memory, one.unit)
                found.setdefault((one.metric, one.point), []).append(_Past(one, traits))
    return found


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
        raise UsageError(f"baseline {name}: it has no number of any cell that this run has")
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
    """Yield the cells that this run may have, reduced to their independent numbers."""
    for cell in cells:
        if (cell.matrix, cell.scenario) in wanted:
            yield replace(cell, measurements=independent(cell.measurements))


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
