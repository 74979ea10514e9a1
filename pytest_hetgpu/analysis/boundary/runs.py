"""The space of a matrix's cells with their facts, and the ends of the runs of each cell."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations

from pytest_hetgpu.analysis.boundary.condition import Ran, RunEnd, Runs
from pytest_hetgpu.analysis.boundary.space import Space
from pytest_hetgpu.model.outcome import Outcome
from pytest_hetgpu.model.sizes import ordinal
from pytest_hetgpu.model.verdict import Kind, Verdict

_PASSED = (Kind.PASSED, Kind.SLOW)
_NOTHING = (Kind.SKIPPED, Kind.UNKNOWN)
_SURROUNDINGS = (Kind.NETWORK_FAILURE, Kind.LAUNCH_FAILURE)


@dataclass(frozen=True, slots=True)
class RanCell:
    """An allowed cell: its values on the axes, the facts of its runs, and their ends.

    `points` are those that its job measures, in its order, each as `size`, `dtype` and `place`. `of_points` are runs of
    one point only; None for one that could not be run. A cell without a `result` was not run. One that is `refused`
    cannot be run again. Each point of a cell may be a RanCell with its `point`, and with the `number` of the cell. The
    matrix does not have one that is `derived`.
    """

    values: Mapping[str, str]
    facts: Mapping[str, str] = field(default_factory=dict)
    ends: Sequence[RunEnd] = ()
    points: Sequence[Mapping[str, str]] = ()
    of_points: Sequence[tuple[Mapping[str, str], RunEnd | None]] = ()
    number: int | None = None
    point: Mapping[str, str] = field(default_factory=dict)
    derived: bool = False
    result: bool = True
    refused: bool = False


def space_of(cells: Sequence[RanCell]) -> Space:
    """Return the space of the cells of one matrix.

    A fact is part of it if it follows from a cell's values on one axis or two. Axes of sizes, numbers and versions are
    ordered.
    """
    axes = tuple(dict.fromkeys(name for cell in cells for name in cell.values))
    names = dict.fromkeys(name for cell in cells for name in cell.facts if name not in axes)
    facts = {name: found for name in names if (found := _follows(name, cells, axes))}
    whole = tuple({**cell.values, **dict(_facts_of(cell, facts))} for cell in cells)
    numbers = tuple(place if cell.number is None else cell.number for place, cell in enumerate(cells))
    derived = sum(1 << place for place, cell in enumerate(cells) if cell.derived)
    return Space(whole, axes, dict(_ordered(whole, (*axes, *facts))), numbers, derived=derived)


_Rule = tuple[tuple[str, ...], Mapping[tuple[str | None, ...], str]]


TIME, HOST, YES, NO = "start time", "host ", "yes", "no"
"""Names of circumstances, which no axis can have: the start in seconds since 1970; for each host, if it was used."""


def with_circumstances(plain: Space, circumstances: Sequence[Mapping[str, str]]) -> Space:
    """Return a space with the time and the hosts of the runs of its cells, which do not follow from their values."""
    whole = tuple({**known, **more} for known, more in zip(plain.cells, circumstances, strict=True))
    times = sorted({cell[TIME] for cell in whole if TIME in cell}, key=float)
    ordered = {**plain.ordered, **({TIME: tuple(times)} if len(times) > 1 else {})}
    return replace(plain, cells=whole, ordered=ordered, thresholds=frozenset((TIME,)))


def _follows(name: str, cells: Sequence[RanCell], axes: Sequence[str]) -> _Rule | None:
    """Return the axes that determine a fact, and its values by theirs.

    Return None if no two axes do, if all values are equal, or if several do and disagree on cells that were not run.
    """
    ran = [cell for cell in cells if cell.facts]
    for count in (1, 2):
        rules = list(filter(None, (_rule(name, ran, some) for some in combinations(axes, count))))
        if rules:
            (some, values), *others = rules
            agree = all(
                values.get(_at(cell, some)) == other.get(_at(cell, names)) for names, other in others for cell in cells
            )
            return (some, values) if agree and len({*values.values()}) > 1 else None
    return None


def _rule(name: str, ran: Sequence[RanCell], some: tuple[str, ...]) -> _Rule | None:
    values: dict[tuple[str | None, ...], str] = {}
    same = all(values.setdefault(_at(cell, some), cell.facts.get(name, "")) == cell.facts.get(name, "") for cell in ran)
    return (some, values) if same else None


def _at(cell: RanCell, axes: Sequence[str]) -> tuple[str | None, ...]:
    return tuple(map(cell.values.get, axes))


def _facts_of(cell: RanCell, facts: Mapping[str, _Rule]) -> Iterator[tuple[str, str]]:
    for name, (axes, values) in facts.items():
        if value := values.get(_at(cell, axes)):
            yield name, value


def _ordered(cells: Sequence[Mapping[str, str]], names: Sequence[str]) -> Iterator[tuple[str, tuple[str, ...]]]:
    for name in names:
        values = list(dict.fromkeys(cell[name] for cell in cells if name in cell))
        ordinals = [ordinal(value) for value in values]
        if len(values) > 1 and all(ordinals) and len({len(one) == 1 for one in ordinals}) == 1:
            yield name, tuple(sorted(values, key=ordinal))


def runs_of(cells: Sequence[RanCell]) -> Runs:
    """Return the runs that show something, by the place of their cell."""
    return {place: tuple(cell.ends) for place, cell in enumerate(cells) if cell.ends}


def ends_of(outcome: Outcome, passed: int | None = None) -> Iterator[RunEnd]:
    """Yield the ends of the attempts of a cell, then of its last run, which passed so many points before its end."""
    for attempt in outcome.attempts:
        yield from end_of(attempt.kind, attempt.key)
    if outcome.verdict is not Verdict.NOT_RUN and not outcome.away:
        tests = outcome.suite.failure_key if outcome.suite else ""
        yield from end_of(outcome.kind, outcome.signature.key if outcome.signature else tests, passed)


def end_of(kind: Kind, key: str, passed: int | None = None) -> Iterator[RunEnd]:
    """Yield the end of a run; nothing if it shows nothing."""
    if kind in _PASSED:
        yield RunEnd(Ran.PASSED)
    elif kind not in _NOTHING:
        # A failure without a signature is one of its kind.
        yield RunEnd(Ran.LOST if kind in _SURROUNDINGS else Ran.FAILED, key or kind.value, passed)
