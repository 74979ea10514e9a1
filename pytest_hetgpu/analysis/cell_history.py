"""The history of a cell over many runs: since when it fails or works, how flaky it is, and what changed then. Pure.

Runs are in the order of their start. A cell that was not run in one of them has no outcome there.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pytest_hetgpu.store.past_runs import PastOutcome, PastRun

CHANCE = 0.01
"""A change is one if a flaky cell would show as much with less than this probability."""


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
        since: the run (its place) of the first outcome like the present one, without another in between.
        before: name of the outcome before that, "" if there is none.
        runs_before: for how many runs in a row it was that.
        failed: in how many runs it failed, of `ran`.
        changes: what differs between the run before `since` and that run: `ucx 1.18.0 became 1.20.0`.

    """

    state: HistoryState
    name: str = ""
    since: int = 0
    before: str = ""
    runs_before: int = 0
    failed: int = 0
    ran: int = 0
    changes: tuple[str, ...] = ()


def cell_history(runs: Sequence[PastRun], outcomes: Sequence[PastOutcome | None]) -> CellHistory:
    """Return the history of a cell from its outcome in each run, None where the run has no such cell."""
    seen = [(place, one) for place, one in enumerate(outcomes) if one and one.ran]
    if not seen:
        return CellHistory(HistoryState.NOT_RUN)
    streaks = list(_streaks(seen))
    last = streaks[-1]
    failed = sum(not one.good for _, one in seen)
    place, present = last[0]
    found = CellHistory(HistoryState.STEADY, present.name, place, failed=failed, ran=len(seen))
    if len(streaks) == 1:
        return found
    earlier = streaks[-2]
    before_place, before = earlier[-1]
    changes = tuple(_changes(runs[before_place], before, runs[place], present))
    state = _state(seen, len(last))
    return CellHistory(state, present.name, place, before.name, len(earlier), failed, len(seen), changes)


def _streaks(seen: Sequence[tuple[int, PastOutcome]]) -> Iterator[list[tuple[int, PastOutcome]]]:
    streak: list[tuple[int, PastOutcome]] = []
    for place, one in seen:
        if streak and streak[-1][1].name != one.name:
            yield streak
            streak = []
        streak.append((place, one))
    yield streak


def _state(seen: Sequence[tuple[int, PastOutcome]], length: int) -> HistoryState:
    """Decide whether the last `length` outcomes are a change, or one more turn of a flaky cell."""
    earlier, present = seen[:-length], seen[-1][1]
    changed = HistoryState.MENDED if present.good else HistoryState.BROKEN
    like = sum(one.good is present.good for _, one in earlier)
    other = not (present.good or earlier[-1][1].good or any(one.name == present.name for _, one in earlier))
    if not like or other:
        return changed
    # The rate of such outcomes before, by Laplace's rule of succession.
    rate = (like + 1) / (len(earlier) + 2)
    return changed if rate**length <= CHANCE else HistoryState.FLAKY


def _changes(was: PastRun, before: PastOutcome, now: PastRun, present: PastOutcome) -> Iterator[str]:
    """Yield what differs between two outcomes of a cell: its own facts, then those of the runs."""
    for old, new in ((before.facts, present.facts), (was.shared, now.shared)):
        for name in dict.fromkeys((*old, *new)):
            if old.get(name) != new.get(name):
                yield f"{name} {old.get(name, 'none')} became {new.get(name, 'none')}"
