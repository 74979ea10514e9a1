"""The space of each matrix of a run, with the ends of its runs, from the records of its cells."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

from pytest_hetgpu.analysis.boundary.condition import Boundary, RunEnd, Runs, against_passes, conditions, judged
from pytest_hetgpu.analysis.boundary.jobs import CONTROL, NO_JOBS, CellJobs
from pytest_hetgpu.analysis.boundary.points import by_point, point_values, points_before_end, stopped_between_points
from pytest_hetgpu.analysis.boundary.runs import (
    HOST,
    NO,
    TIME,
    YES,
    RanCell,
    end_of,
    ends_of,
    runs_of,
    space_of,
    with_circumstances,
)
from pytest_hetgpu.analysis.boundary.space import Space
from pytest_hetgpu.analysis.boundary.summary import Summary, Trials, summary
from pytest_hetgpu.analysis.boundary.trials import cure_text, smallest_text
from pytest_hetgpu.model.outcome import Attempt, Outcome
from pytest_hetgpu.model.records import MessagePoint
from pytest_hetgpu.model.verdict import Kind
from pytest_hetgpu.planning.derived import has_same_nodes
from pytest_hetgpu.planning.expand import cell_id
from pytest_hetgpu.store.cells import NEVER_STARTED, CellRecord, RunRecord
from pytest_hetgpu.store.events import Controlled, Shrunk, Tried
from pytest_hetgpu.store.packed_cells import unpack

_MOST_JOBS, _MOST_HOSTS = 500, 64
_VENDORS = (("openmpi", "Open MPI"), ("mpich", "MPICH"), ("intelmpi", "Intel MPI"), ("mvapich", "MVAPICH"))
MOST_CELLS = 100_000
"""The largest number of cells, with those that a sample left out, among which a condition is searched."""


@dataclass(frozen=True)
class MatrixRuns:
    """The allowed cells of a matrix, by number: `ids`; and `entries`, which are cells or their points.

    `trials` are what was tried for each key.
    """

    matrix: str
    ids: tuple[str, ...]
    entries: Sequence[RanCell]
    trials: Mapping[str, Trials] = field(default_factory=dict)
    #: returns the circumstances of each entry, which are read from its job
    circumstances: Callable[[], Sequence[Mapping[str, str]]] = tuple

    @cached_property
    def space(self) -> Space:
        """The space of the entries."""
        return space_of(self.entries)

    @cached_property
    def runs(self) -> Runs:
        """The ends of the runs of each entry."""
        return runs_of(self.entries)

    @cached_property
    def untried(self) -> int:
        """The entries that were not run: of cells without a result, or points of cells that were run."""
        shown = {self.number(place) for place in self.runs}
        return sum(
            1 << place
            for place, entry in enumerate(self.entries)
            if not (entry.ends or entry.refused) and (not entry.result or self.number(place) in shown)
        )

    @cached_property
    def conditions(self) -> tuple[Boundary, ...]:
        """The condition of each key with which a cell of the matrix failed.

        If the values do not explain a failure with one term, time and hosts may.
        """
        found = conditions(self.space, self.runs, self.untried)
        if not all(map(_is_plain, found)):
            wider = zip(found, conditions(self.wider, self.runs, self.untried), strict=True)
            found = tuple(other if not _is_plain(one) and _is_plain(other) else one for one, other in wider)
        return tuple(one for one in found if one.found.seen.failing & ~self.space.derived)

    @cached_property
    def wider(self) -> Space:
        """The space with the circumstances of the runs."""
        return with_circumstances(self.space, self.circumstances() or ({},) * len(self.entries))

    def summaries(self) -> Iterator[Summary]:
        """Yield the condition of any failure if there are several keys, then of each key."""
        whole = against_passes(self.space, self.runs) if len(self.conditions) > 1 else None
        for one in (*([judged(self.space, whole, self.untried)] if whole else ()), *self.conditions):
            known = all(each.literal.axis in self.space.masks for term in one.found.terms for each in term.literals)
            yield summary(self.space if known else self.wider, self.runs, one, self.trials.get(one.found.key, Trials()))

    def number(self, place: int) -> int:
        """Return the number of the cell of an entry."""
        number = self.entries[place].number
        return place if number is None else number


def _is_plain(one: Boundary) -> bool:
    """Return whether one term holds for all failing cells and for no passing one."""
    seen = one.found.seen
    return len(one.found.terms) == 1 and not (seen.failing & ~one.found.mask or seen.passing & one.found.mask)


def matrices_of(
    cells: Sequence[CellRecord], jobs: CellJobs = NO_JOBS, trials: Sequence[Tried | Shrunk] = ()
) -> Iterator[MatrixRuns]:
    """Yield each matrix of a run.

    A cell of several runs counts with all of them. Cells that the matrix or the machines exclude are left out.
    """
    for matrix in dict.fromkeys(cell.matrix for cell in cells):
        allowed = allowed_cells(cells, matrix)
        made = [one for several in allowed.values() for cell in several for one in cell.controls]
        mine = [one for one in trials if one.matrix == matrix]
        keys = dict.fromkeys(one.key for one in (*made, *mine))
        tried = {
            key: _trials([one for one in made if one.key == key], [one for one in mine if one.key == key])
            for key in keys
        }
        ran = _ran_cells(allowed, jobs)
        derived = _derived(allowed, ran, jobs)
        numbered = [replace(one, number=len(allowed) + place) for place, one in enumerate(derived.values())]
        entries = (*ran, *numbered)
        placed = partial(_placed, entries, allowed, jobs)
        yield MatrixRuns(matrix, (*allowed, *derived), entries, tried, placed)


def _placed(
    entries: Sequence[RanCell], allowed: Mapping[str, Sequence[CellRecord]], jobs: CellJobs
) -> Sequence[Mapping[str, str]]:
    """Return the circumstances of each entry: those of the last run of its cell."""
    known = _circumstances([several[-1] for several in allowed.values()], jobs)
    ids = list(allowed)
    numbers = (place if entry.number is None else entry.number for place, entry in enumerate(entries))
    return [known.get(ids[number], {}) if number < len(ids) else {} for number in numbers]


def _derived(
    allowed: Mapping[str, Sequence[CellRecord]], ran: Sequence[RanCell], jobs: CellJobs
) -> Mapping[str, RanCell]:
    """Return the cells that the matrix does not have and whose runs show something, by a name."""
    axes = {name for cell in ran for name in cell.values}
    found: dict[str, RanCell] = {}
    for name, several in allowed.items():
        for cell in several:
            for one in cell.controls:
                end = _of_attempt(one.attempt) if one.attempt else None
                if end and one.values.keys() & cell.axes.keys():
                    other = f"{name} {' '.join(one.values.values())}"
                    values = {axis: value for axis, value in one.values.items() if axis in axes}
                    new = RanCell({**cell.axes, **values}, _facts(cell, one, jobs), derived=True)
                    known = found.get(other, new)
                    found[other] = replace(known, ends=[*known.ends, end])
    return found


def _facts(cell: CellRecord, control: Controlled, jobs: CellJobs) -> Mapping[str, str]:
    """Return the facts of a derived cell: those of its job, and on the nodes of its cell those that were seen there."""
    mine = jobs.facts(cell, f"{CONTROL}-{control.number}")
    seen = _with_vendor(cell.outcome.facts) if has_same_nodes(cell.axes, control.values) else {}
    return {**seen, **mine} if mine else {}


def _trials(controls: Sequence[Controlled], trials: Sequence[Tried | Shrunk]) -> Trials:
    shrunk = [one for one in trials if isinstance(one, Shrunk)]
    cure = cure_text([one for one in trials if isinstance(one, Tried)])
    return Trials(len(controls), cure, smallest_text(shrunk[-1]) if shrunk else "")


def with_left_out(record: RunRecord) -> Sequence[CellRecord]:
    """Return the cells of a run, and those that a sample left out; not if these are too many."""
    known = {(cell.matrix, cell.scenario) for cell in record.cells}
    left = list(record.cells)
    for sample in record.samples.values():
        for values in unpack(sample.axes, sample.allowed):
            name = cell_id(values)
            if (sample.matrix, name) not in known:
                left.append(CellRecord(sample.matrix, name, name, dict(zip(sample.axes, values, strict=True))))
                if len(left) > MOST_CELLS:
                    return record.cells
    return left


def allowed_cells(cells: Sequence[CellRecord], matrix: str) -> Mapping[str, Sequence[CellRecord]]:
    """Return the records of each cell of a matrix, by its id, without excluded ones.

    A summary's numbers of cells are places in this mapping.
    """
    found: dict[str, list[CellRecord]] = {}
    for cell in cells:
        if cell.matrix == matrix and (cell.outcome.kind is not Kind.SKIPPED or cell.outcome is NEVER_STARTED):
            found.setdefault(cell.scenario, []).append(cell)
    return found


def _ran_cells(allowed: Mapping[str, Sequence[CellRecord]], jobs: CellJobs) -> Sequence[RanCell]:
    """Return the cells of a matrix; their points if a run passed some and failed at the next."""

    def measuring(cell: CellRecord) -> Sequence[MessagePoint]:
        return jobs.points(cell) if cell.outcome.measurements else ()

    failed = any(cell.outcome.kind.failed for several in allowed.values() for cell in several)
    facts = jobs.facts if failed and len(allowed) <= _MOST_JOBS else NO_JOBS.facts
    cells = [_ran(several, measuring, facts) for several in allowed.values()]
    if not any(map(stopped_between_points, cells)):
        return cells
    # Only now the points of the other failed cells are worth reading.
    return by_point([_ran(several, jobs.points, facts) for several in allowed.values()])


def _circumstances(cells: Sequence[CellRecord], jobs: CellJobs) -> Mapping[str, Mapping[str, str]]:
    """Return the start and the hosts of each cell that was run, by its id; of each host whether a cell was on it."""
    ran = [cell for cell in cells if cell.started is not None]
    places = {cell.scenario: frozenset(jobs.hosts(cell)) for cell in ran[:_MOST_JOBS]}
    names = sorted(frozenset().union(*places.values())) if places else []
    return {
        cell.scenario: {
            TIME: repr(cell.started),
            **{f"{HOST}{name}": YES if name in places.get(cell.scenario, ()) else NO for name in names[:_MOST_HOSTS]},
        }
        for cell in ran
    }


def _ran(
    several: Sequence[CellRecord],
    points: Callable[[CellRecord], Sequence[MessagePoint]],
    job_facts: Callable[[CellRecord], Mapping[str, str]],
) -> RanCell:
    ran = [cell for cell in several if cell.outcome.kind is not Kind.SKIPPED]
    facts = _with_vendor(next((cell.outcome.facts for cell in ran if cell.outcome.facts), {}))
    facts = {**facts, **(job_facts(ran[-1]) if ran else {}), **facts}
    asked = next((points(cell) if cell.outcome.kind.failed else _measured(cell.outcome) for cell in ran), ())
    ends = [end for cell in ran for end in _ends(cell.outcome, asked)]
    again = [
        (one.values, _of_attempt(one.attempt))
        for cell in several
        for one in cell.controls
        if one.attempt and not one.values.keys() & cell.axes.keys()
    ]
    whole = [end for values, end in again if not values]
    return RanCell(
        several[0].axes,
        facts,
        [*ends, *filter(None, whole)],
        point_values(asked),
        of_points=[one for one in again if one[0]],
        result=bool(ran),
        refused=None in whole,
    )


def _with_vendor(facts: Mapping[str, str]) -> Mapping[str, str]:
    """Return facts with the vendor of the MPI, by the versions that they have."""
    vendor = next((vendor for name, vendor in _VENDORS if name in facts), None)
    return {**facts, "mpi": vendor} if vendor else facts


def _of_attempt(attempt: Attempt) -> RunEnd | None:
    return next(end_of(attempt.kind, attempt.key), None)


def _measured(outcome: Outcome) -> Sequence[MessagePoint]:
    return tuple(dict.fromkeys(one.point for one in outcome.measurements))


def _ends(outcome: Outcome, asked: Sequence[MessagePoint]) -> Iterator[RunEnd]:
    return ends_of(outcome, points_before_end(outcome.kind, _measured(outcome), asked))
