"""Outcomes of cells before and after. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pytest_hetgpu.analysis.compare.sides import ChangeKind, Identity, Side
from pytest_hetgpu.model.verdict import Kind, Verdict
from pytest_hetgpu.store.run_summary import CellSummary

_WORKS = (Kind.PASSED, Kind.SLOW)


@dataclass(frozen=True, slots=True)
class TypicalOutcome:
    """Outcome of a cell over several runs: the most frequent, among equals the newest; seen in `times` of `runs`."""

    kind: Kind
    verdict: Verdict
    signature: str = ""
    why: str = ""
    times: int = 1
    runs: int = 1

    @property
    def works(self) -> bool:
        """Whether the cell does its job, however slowly."""
        return self.kind in _WORKS

    @property
    def ran(self) -> bool:
        """Whether it was run at all."""
        return self.verdict is not Verdict.NOT_RUN

    @property
    def stopped(self) -> bool:
        """Whether the end of its run cut it short, so that it has no outcome of its own."""
        return self.kind is Kind.UNKNOWN and not self.ran

    @property
    def failing(self) -> bool:
        """Whether it fails unexpectedly."""
        return not self.works and self.verdict.fails

    @property
    def key(self) -> str:
        """Identity of its failure: the signature, or the kind if there is none; "" if it did not fail."""
        if self.works or not self.ran:
            return ""
        return self.signature or f"{self.kind.value} without a signature"


@dataclass(frozen=True, slots=True)
class CellChange:
    """A cell on both sides; None for a side without it."""

    matrix: str
    scenario: str
    kind: ChangeKind
    before: TypicalOutcome | None
    after: TypicalOutcome | None


@dataclass(frozen=True, slots=True)
class KeyChange:
    """A signature that is `new`, `gone` or `moved` to other cells, with its cells."""

    key: str
    what: str
    before: tuple[Identity, ...]
    after: tuple[Identity, ...]


def typical_outcome(cells: Sequence[CellSummary]) -> TypicalOutcome | None:
    """Return the outcome of a cell over its runs, the newest first; None if no run has it."""
    if not cells:
        return None
    ran = [cell for cell in cells if cell.verdict is not Verdict.NOT_RUN] or cells
    counted = Counter((cell.kind, cell.verdict, cell.signature) for cell in ran)
    (what, times) = counted.most_common(1)[0]
    why = next(cell.why for cell in ran if (cell.kind, cell.verdict, cell.signature) == what)
    return TypicalOutcome(*what, why=why, times=times, runs=len(ran))


def changes(before: Side, after: Side) -> Iterator[CellChange]:
    """Every cell of either side, in the order of the later one."""
    for identity in dict.fromkeys((*after.cells, *before.cells)):
        old, new = (side.cells.get(identity, ()) for side in (before, after))
        was, now = typical_outcome(old), typical_outcome(new)
        yield CellChange(*identity, _way(was, now, usual=before.often(len(old))), was, now)


def _way(was: TypicalOutcome | None, now: TypicalOutcome | None, *, usual: bool) -> ChangeKind:
    if was is None:
        return ChangeKind.WORSE if now and now.failing else ChangeKind.APPEARED
    if now is None:
        return ChangeKind.WORSE if was.works and usual else ChangeKind.VANISHED
    if (was.kind, was.verdict, was.key) == (now.kind, now.verdict, now.key):
        return ChangeKind.SAME
    if was.stopped or now.stopped:
        return ChangeKind.WORSE if now.failing else ChangeKind.CHANGED
    if was.works or now.works:
        worse = _severity(now) - _severity(was)
        return ChangeKind.WORSE if worse > 0 else ChangeKind.BETTER if worse < 0 else ChangeKind.CHANGED
    return _failed_otherwise(was, now)


def _severity(typical_outcome: TypicalOutcome) -> int:
    """Return how bad an outcome is; not running at all is worse than running slowly."""
    return typical_outcome.kind.severity if typical_outcome.ran and typical_outcome.works else Kind.UNKNOWN.severity + 1


def _failed_otherwise(was: TypicalOutcome, now: TypicalOutcome) -> ChangeKind:
    """Return the change between two failures: an expected one is better than an unexpected one."""
    if was.failing and (was.kind, was.key) == (now.kind, now.key):
        return ChangeKind.CHANGED if now.failing else ChangeKind.BETTER
    return ChangeKind.WORSE if now.failing else ChangeKind.CHANGED


def keys(changed: Sequence[CellChange]) -> Iterator[KeyChange]:
    """Return signatures that occur in different cells on the two sides."""
    places: dict[str, tuple[list[Identity], list[Identity]]] = {}
    for one in changed:
        for place, found in enumerate((one.before, one.after)):
            if found and found.key:
                places.setdefault(found.key, ([], []))[place].append((one.matrix, one.scenario))
    for key, (before, after) in places.items():
        if before != after:
            what = "new" if not before else "gone" if not after else "moved"
            yield KeyChange(key, what, tuple(before), tuple(after))
