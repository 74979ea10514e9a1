"""Comparison of two sides: everything that `hetgpu compare` prints. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

from pytest_hetgpu.analysis.compare import cells, numbers
from pytest_hetgpu.analysis.compare.boundaries import BoundaryMove, moves
from pytest_hetgpu.analysis.compare.cells import CellChange, KeyChange
from pytest_hetgpu.analysis.compare.numbers import NumberChange
from pytest_hetgpu.analysis.compare.sides import ChangeKind, Identity, Side
from pytest_hetgpu.errors import UsageError
from pytest_hetgpu.store.run_summary import CellSummary

MOST_FACTS = 12


@dataclass(frozen=True, slots=True)
class Comparison:
    """Differences between two sides; `cells` and `numbers` also hold what did not change."""

    before: Side
    after: Side
    tolerance: float
    cells: tuple[CellChange, ...]
    keys: tuple[KeyChange, ...]
    numbers: tuple[NumberChange, ...]
    notes: tuple[str, ...]
    boundaries: tuple[BoundaryMove, ...] = ()

    @property
    def worse(self) -> bool:
        """Whether anything got worse."""
        return ChangeKind.WORSE in {*(one.kind for one in self.cells), *(one.kind for one in self.numbers)}


def compare(before: Side, after: Side, tolerance: float, *, common: bool = False) -> Comparison:
    """Compare two sides; `common` keeps only the cells that both have.

    Raise UsageError if nothing can be compared: no matrix or cell in common, or no two numbers that are alike.
    """
    _refuse(before, after)
    if common:
        shared = before.cells.keys() & after.cells.keys()
        before, after = _only(shared, before), _only(shared, after)
    changed = tuple(cells.changes(before, after))
    found = tuple(numbers.changes(before, after, tolerance))
    made = Comparison(
        before,
        after,
        tolerance,
        changed,
        tuple(cells.keys(changed)),
        found,
        tuple(_notes(before, after)),
        tuple(moves(before, after)),
    )
    unlike = [one for one in found if one.kind is ChangeKind.UNLIKE]
    if unlike and not made.worse and all(one.kind in (ChangeKind.UNLIKE, ChangeKind.APPEARED) for one in found):
        why = f"{unlike[0].scenario}: {unlike[0].why}"
        raise UsageError(f"no number of {after.name} can be compared with one of {before.name} ({why})")
    return made


def _only(shared: AbstractSet[Identity], side: Side) -> Side:
    """Return a side without all other cells."""
    runs = (
        replace(run, cells=tuple(cell for cell in run.cells if (cell.matrix, cell.scenario) in shared))
        for run in side.runs
    )
    return replace(side, runs=tuple(runs))


def _refuse(before: Side, after: Side) -> None:
    for side in (before, after):
        if not side.cells:
            raise UsageError(f"{side.name} holds no cell")
    if not before.matrices.keys() & after.matrices.keys():
        was, now = (", ".join(sorted(side.matrices)) for side in (before, after))
        raise UsageError(f"nothing in common: {before.name} is of another matrix ({was}) than {after.name} ({now})")
    if not before.cells.keys() & after.cells.keys():
        shared = ", ".join(sorted(before.matrices.keys() & after.matrices.keys()))
        raise UsageError(f"nothing in common: {before.name} and {after.name} have no cell of {shared} in common")


def _notes(before: Side, after: Side) -> Iterator[str]:
    """Yield notes that explain differences, or cast doubt on them."""
    yield from filter(None, (before.note, after.note))
    for name in sorted(before.matrices.keys() ^ after.matrices.keys()):
        yield f"the matrix {name} is only in {(before if name in before.matrices else after).name}"
    for name in sorted(before.matrices.keys() & after.matrices.keys()):
        old, new = before.matrices[name], after.matrices[name]
        if old and new and old != new:
            yield f"the file of the matrix {name} is not the same any more: a cell may mean something else"
    for what in ("machine", "package"):
        old, new = (", ".join(dict.fromkeys(getattr(run, what) for run in side.runs)) for side in (before, after))
        if old and new and old != new:
            yield f"{'version of hetgpu' if what == 'package' else what}: {old} before, {new} after"
    yield from _flaky(before, after)
    yield from _facts(before, after)


def _flaky(before: Side, after: Side) -> Iterator[str]:
    """Yield cells that failed and then passed on either side, with the last state and the number of runs."""
    for side in (before, after):
        for (_, scenario), past in side.cells.items():
            shaky = [cell.flaky for cell in past if cell.flaky]
            often = f" [{len(shaky)} of {len(past)} runs]" if len(past) > 1 else ""
            if shaky:
                yield f"flaky {'before' if side is before else 'after'}: {scenario} {shaky[0]}{often}"


def _facts(before: Side, after: Side) -> Iterator[str]:
    """Versions, settings and transports that differ in cells that both have."""
    found: Counter[tuple[str, str, str]] = Counter()
    for identity in before.cells.keys() & after.cells.keys():
        old, new = (_known(side.cells[identity][0]) for side in (before, after))
        found.update((name, old[name], new[name]) for name in old.keys() & new.keys() if old[name] != new[name])
    ordered = sorted(found.items(), key=lambda item: (-item[1], item[0]))
    for (name, was, now), times in ordered[:MOST_FACTS]:
        yield f"{name}: {was} before, {now} after [{times} cell{'s' * (times > 1)}]"
    if len(ordered) > MOST_FACTS:
        yield f"{len(ordered) - MOST_FACTS} more versions and settings differ"


def _known(cell: CellSummary) -> dict[str, str]:
    seen = {"transport seen": ", ".join(sorted(cell.transports))} if cell.transports else {}
    return {**cell.facts, **seen}
