"""Conditions of failures: where cells fail, and, inside of that, which way they fail.

Each key is first held against the cells that pass. Keys with one condition make a region. Inside of a region with
several keys, each is held against the others.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pytest_hetgpu.analysis.boundary.certificate import gaps
from pytest_hetgpu.analysis.boundary.next_cell import next_cell, weighed
from pytest_hetgpu.analysis.boundary.observations import Observations
from pytest_hetgpu.analysis.boundary.search import Term, best_terms, hypotheses, joined, without
from pytest_hetgpu.analysis.boundary.space import Space, places, union

ANY_FAILURE = ""
"""The key under which all failures are held against passes."""
MOST_KEYS = 50
REPEATS = 3
"""How often a failure is seen before its condition is established."""
_LIKELY = 0.05


class Ran(enum.Enum):
    """End of one run of a cell."""

    PASSED = "passed"
    FAILED = "failed"
    LOST = "lost"
    """A failure of the network or of the launch: it counts for its own key only."""


@dataclass(frozen=True, slots=True)
class RunEnd:
    """One run of a cell; `key` is that of its failure. Runs that show nothing are left out.

    `passed` is the number of points that it measured before it failed; None if that is not known.
    """

    ran: Ran
    key: str = ""
    passed: int | None = None


Runs = Mapping[int, Sequence[RunEnd]]
"""The runs of each cell that was run."""


class State(enum.Enum):
    """How well a condition is known."""

    ESTABLISHED = "established"
    OPEN = "open"
    SAME = "same in this matrix"
    FLAKY = "flaky"


@dataclass(frozen=True)
class Found:
    """The condition of a key: it holds for the cells of any of `terms`.

    `seen` are the observations by which the terms were found. `region` are the cells in which any of the `keys` fails.
    """

    key: str
    terms: tuple[Term, ...]
    seen: Observations
    region: int
    keys: tuple[str, ...] = ()

    @property
    def mask(self) -> int:
        """The cells for which the condition holds."""
        return union(term.mask for term in self.terms)


@dataclass(frozen=True)
class Boundary:
    """The condition of a failure, and how well it is known.

    `rivals` are other conditions that the runs leave possible, and `separating` is the cell that parts them. That cell
    was not run, or it passed and may be flaky.
    """

    found: Found
    state: State
    rivals: tuple[Term, ...] = ()
    separating: int | None = None


def conditions(space: Space, runs: Runs, untried: int | None = None) -> tuple[Boundary, ...]:
    """Return the condition of each key, in the order of the cells that failed with it; of the first MOST_KEYS.

    `untried` are the cells that may be run; None: all without a run.
    """
    failed = dict.fromkeys(run.key for cell in sorted(runs) for run in runs[cell] if run.ran is not Ran.PASSED)
    keys = tuple(failed)[:MOST_KEYS]
    outer = {key: against_passes(space, runs, key) for key in keys}
    regions: dict[int, list[str]] = {}
    for key, found in outer.items():
        regions.setdefault(found.mask, []).append(key)
    return tuple(
        judged(space, _among_others(space, runs, replace(found, keys=tuple(regions[found.mask]))), untried)
        for found in outer.values()
    )


def against_passes(space: Space, runs: Runs, key: str = ANY_FAILURE) -> Found:
    """Return the condition of a key, or of any failure, against the cells that pass."""
    seen = observations(runs, key)
    terms = best_terms(space, seen)
    return Found(key, terms, seen, union(term.mask for term in terms))


def observations(runs: Runs, key: str, *, others: bool = False) -> Observations:
    """Return the runs that count for a key: its failures, and passes; with `others` failures of other keys pass, too.

    A failure with a less exact key, or with a more exact one, does not count.
    """
    fails: dict[int, int] = {}
    passes: dict[int, int] = {}
    for cell, several in runs.items():
        for run in several:
            if run.ran is Ran.PASSED or (others and run.ran is Ran.FAILED and not _may_be(run.key, key)):
                passes[cell] = passes.get(cell, 0) + 1
            elif run.key == key or (key == ANY_FAILURE and run.ran is Ran.FAILED):
                fails[cell] = fails.get(cell, 0) + 1
    return Observations(fails, passes)


def _may_be(one: str, other: str) -> bool:
    """Return whether one of two keys is the other, or less exact: `SIGSEGV` beside `SIGSEGV@lib!f`."""
    short, long = sorted((one, other), key=len)
    return long == short or long.startswith((f"{short}@", f"{short}!"))


def _among_others(space: Space, runs: Runs, outer: Found) -> Found:
    """Return the condition of a key inside of a region that it shares with other keys."""
    if len(outer.keys) < 2:
        return outer
    seen = observations(runs, outer.key, others=True)
    inside = Observations(_of(seen.fails, outer.region), _of(seen.passes, outer.region))
    terms = tuple(
        joined(one, term)
        for term in best_terms(space, inside)
        for one in outer.terms
        if one.mask & term.mask & seen.failing
    )
    return replace(outer, terms=terms, seen=seen)


def _of(counts: Mapping[int, int], mask: int) -> dict[int, int]:
    return {cell: count for cell, count in counts.items() if mask >> cell & 1}


def judged(space: Space, found: Found, untried: int | None = None) -> Boundary:
    """Return a condition with its state, its rivals, and the cell that parts them, of the `untried` ones."""
    seen = found.seen
    rivals, left = [], seen
    for term in found.terms:
        if (seed := next(places(left.failing & term.mask), None)) is not None:
            weights = weighed(hypotheses(space, left, seed))
            rivals += [one for one, weight in weights if weight > _LIKELY and (one.mask ^ term.mask) & ~space.derived]
        left = without(left, term.mask)
    may_run = space.everything if untried is None else untried
    cell = next_cell(space, seen, found.terms, may_run & ~seen.failing & ~seen.passing)
    if seen.flaky:
        state = State.FLAKY
    elif cell is None and rivals:
        state = State.SAME
    elif (
        rivals
        or cell is not None
        or any(gaps(space, seen, term) for term in found.terms)
        or max(seen.fails.values(), default=0) < REPEATS
    ):
        state = State.OPEN
    else:
        state = State.ESTABLISHED
    return Boundary(found, state, tuple(rivals[:3]), cell)
