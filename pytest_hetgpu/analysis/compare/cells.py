"""What became of cells, held against what became of them before. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pytest_hetgpu.analysis.compare.sides import Identity, Side, Way
from pytest_hetgpu.model.verdict import Kind, Verdict
from pytest_hetgpu.store.run_summary import CellSummary

_WORKS = (Kind.PASSED, Kind.SLOW)


@dataclass(frozen=True, slots=True)
class State:
    """What became of a cell: of several runs in which it ran what happened most, of equals the newest.

    It was so in `times` of `runs`.
    """

    kind: Kind
    verdict: Verdict
    signature: str = ""
    why: str = ""
    times: int = 1
    runs: int = 1

    @property
    def works(self) -> bool:
        """Whether it does what it is for, however slowly."""
        return self.kind in _WORKS

    @property
    def ran(self) -> bool:
        """Whether it was run at all."""
        return self.verdict is not Verdict.NOT_RUN

    @property
    def failing(self) -> bool:
        """Whether it fails and nobody expects it to."""
        return not self.works and self.verdict.fails

    @property
    def key(self) -> str:
        """By what its failure is known: the signature, or its kind where there is none; "" where it did not fail."""
        if self.works or not self.ran:
            return ""
        return self.signature or f"{self.kind.value} without a signature"


@dataclass(frozen=True, slots=True)
class CellChange:
    """A cell on both sides; None where a side has no such cell."""

    matrix: str
    scenario: str
    way: Way
    before: State | None
    after: State | None


@dataclass(frozen=True, slots=True)
class KeyChange:
    """A signature that is `new`, `gone` or `moved` to other cells, with its cells."""

    key: str
    what: str
    before: tuple[Identity, ...]
    after: tuple[Identity, ...]


def state(cells: Sequence[CellSummary]) -> State | None:
    """What became of a cell that several runs have, the newest first; None where there is none."""
    if not cells:
        return None
    ran = [cell for cell in cells if cell.verdict is not Verdict.NOT_RUN] or cells
    counted = Counter((cell.kind, cell.verdict, cell.signature) for cell in ran)
    (what, times) = counted.most_common(1)[0]
    why = next(cell.why for cell in ran if (cell.kind, cell.verdict, cell.signature) == what)
    return State(*what, why=why, times=times, runs=len(ran))


def changes(before: Side, after: Side) -> Iterator[CellChange]:
    """Every cell of either side, in the order of the later one."""
    for identity in dict.fromkeys((*after.cells, *before.cells)):
        old, new = (side.cells.get(identity, ()) for side in (before, after))
        was, now = state(old), state(new)
        yield CellChange(*identity, _way(was, now, usual=before.often(len(old))), was, now)


def _way(was: State | None, now: State | None, *, usual: bool) -> Way:
    if was is None:
        return Way.WORSE if now and now.failing else Way.APPEARED
    if now is None:
        return Way.WORSE if was.works and usual else Way.VANISHED
    if (was.kind, was.verdict, was.key) == (now.kind, now.verdict, now.key):
        return Way.SAME
    if was.works or now.works:
        worse = _severity(now) - _severity(was)
        return Way.WORSE if worse > 0 else Way.BETTER if worse < 0 else Way.CHANGED
    return _failed_otherwise(was, now)


def _severity(state: State) -> int:
    """How bad it is; not to run at all is worse than to run slowly."""
    return state.kind.severity if state.ran and state.works else Kind.UNKNOWN.severity + 1


def _failed_otherwise(was: State, now: State) -> Way:
    """Of two failures none is better, but what is expected is better than what is not."""
    if was.failing and (was.kind, was.key) == (now.kind, now.key):
        return Way.CHANGED if now.failing else Way.BETTER
    return Way.WORSE if now.failing else Way.CHANGED


def keys(changed: Sequence[CellChange]) -> Iterator[KeyChange]:
    """The signatures that are not in the same cells on both sides."""
    places: dict[str, tuple[list[Identity], list[Identity]]] = {}
    for one in changed:
        for place, found in enumerate((one.before, one.after)):
            if found and found.key:
                places.setdefault(found.key, ([], []))[place].append((one.matrix, one.scenario))
    for key, (before, after) in places.items():
        if before != after:
            what = "new" if not before else "gone" if not after else "moved"
            yield KeyChange(key, what, tuple(before), tuple(after))
