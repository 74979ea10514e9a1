"""The history of a cell over many runs: since when it fails or works, how flaky it is, and what changed then. Pure.

Runs are in the order of their start. A cell that was not run in one of them has no outcome there.
"""

from __future__ import annotations

import enum
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from pytest_hetgpu.store.past_runs import PastOutcome, PastRun

CHANCE = 0.01
"""A change is one if a flaky cell would show as much with less than this probability."""
WIRE = "wire"
"""The fact of the measured bandwidth between the nodes of a cell."""
WIRE_NOISE = 0.2
"""Two measurements of an unchanged link may differ by so much."""


class HistoryState(str, enum.Enum):
    """The present state of a cell."""

    STEADY = "steady"
    """The same outcome in every run."""
    BROKEN = "broken"
    """It fails, or fails in another way, since a run."""
    MENDED = "mended"
    """It works since a run."""
    FLAKY = "flaky"
    """It fails now and then."""
    NOT_RUN = "not run"


@dataclass(frozen=True, slots=True)
class CellHistory:
    """The history of one cell.

    Attributes:
        name: name of the outcome in the run `since`.
        since: the run (its place) since which it fails, or works; if it always failed, since which it fails like this.
        before: name of the outcome before that, "" if there is none.
        runs_before: for how many runs in a row it worked, or failed, before.
        failed: in how many runs it failed, of `ran`.
        changes: what differs between the run before `since` and that run: `ucx 1.18.0 became 1.20.0`.
        later: the run since which it fails in another way than in `since`, and that way; None if it does not.

    """

    state: HistoryState
    name: str = ""
    since: int = 0
    before: str = ""
    runs_before: int = 0
    failed: int = 0
    ran: int = 0
    changes: tuple[str, ...] = ()
    later: tuple[int, str] | None = None


_Seen = list[tuple[int, PastOutcome]]


def cell_history(runs: Sequence[PastRun], outcomes: Sequence[PastOutcome | None]) -> CellHistory:
    """Return the history of a cell from its outcome in each run, None where the run has no such cell."""
    seen = [(place, one) for place, one in enumerate(outcomes) if one and one.ran]
    if not seen:
        return CellHistory(HistoryState.NOT_RUN)
    named, turns = (list(_streaks(seen, key)) for key in (lambda one: one.name, lambda one: one.good))
    failed, present = sum(not one.good for _, one in seen), named[-1][0]
    if len(named) == 1:
        return CellHistory(HistoryState.STEADY, present[1].name, present[0], failed=failed, ran=len(seen))
    several = turns if len(turns) > 1 else named
    (place, first), (before_place, before) = several[-1][0], several[-2][-1]
    return CellHistory(
        _state(turns),
        first.name,
        place,
        before.name,
        len(several[-2]),
        failed,
        len(seen),
        tuple(changes_between(runs[before_place], before, runs[place], first)),
        (present[0], present[1].name) if present[0] > place else None,
    )


def _streaks(seen: _Seen, key: Callable[[PastOutcome], object]) -> Iterator[_Seen]:
    """Yield neighbouring outcomes of equal keys."""
    for _, streak in itertools.groupby(seen, lambda one: key(one[1])):
        yield list(streak)


def _state(turns: Sequence[_Seen]) -> HistoryState:
    """Decide whether the last turn to good or bad is a change, or one more turn of a flaky cell."""
    good = turns[-1][0][1].good
    changed = HistoryState.MENDED if good else HistoryState.BROKEN
    earlier = [one for turn in turns[:-1] for _, one in turn]
    like = sum(one.good is good for one in earlier)
    if not like:
        return changed
    # The rate of such outcomes before, by Laplace's rule of succession.
    rate = (like + 1) / (len(earlier) + 2)
    return changed if rate ** len(turns[-1]) <= CHANCE else HistoryState.FLAKY


def changes_between(was: PastRun, before: PastOutcome, now: PastRun, present: PastOutcome) -> Iterator[str]:
    """Yield what differs between two outcomes of a cell: its own facts, those of its nodes, then those of the runs."""
    yield from _differences(_reported(before, present), _reported(present, before))
    # Runs of earlier versions have stored no facts of nodes, which is no change.
    if before.nodes and present.nodes:
        yield from _differences(before.nodes, present.nodes)
    yield from changes_of_runs(was, now)


def _reported(one: PastOutcome, other: PastOutcome) -> Mapping[str, str]:
    """Return the facts of an outcome without those that the other lacks because its ranks failed: they report few."""
    return one.facts if other.good else {name: text for name, text in one.facts.items() if name in other.facts}


def changes_of_runs(was: PastRun, now: PastRun) -> Iterator[str]:
    """Yield what differs between two runs in all of their cells."""
    yield from _differences(was.shared, now.shared)
    if was.basis and now.basis:
        yield from _differences(was.basis, now.basis)


def _differences(old: Mapping[str, str], new: Mapping[str, str]) -> Iterator[str]:
    for name in dict.fromkeys((*old, *new)):
        if old.get(name) != new.get(name) and not (name == WIRE and _near(old.get(name, ""), new.get(name, ""))):
            yield f"{name} {old.get(name, 'none')} became {new.get(name, 'none')}"


def _near(was: str, now: str) -> bool:
    """Return whether two measured bandwidths (`2.9 GB/s (...)`) differ by no more than measurements do."""
    try:
        low, high = sorted(float(text.partition(" ")[0]) for text in (was, now))
    except ValueError:
        return False
    return high <= low * (1 + WIRE_NOISE)
