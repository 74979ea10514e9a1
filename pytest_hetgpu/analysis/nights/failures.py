"""Each failure over many runs: first and last seen, on which cells and hosts, fixed or back again. Pure."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pytest_hetgpu.analysis.cell_history import HistoryState, cell_history
from pytest_hetgpu.model.verdict import Kind, Verdict
from pytest_hetgpu.store.past_runs import PastCell, PastOutcome, PastRun, PastRuns

HOSTS = "hosts"
"""The fact of nodes with their hosts, joined by ` | `."""
_GOOD, _BAD = PastOutcome(Kind.PASSED, Verdict.OK), PastOutcome(Kind.CRASH, Verdict.NEW)


class FailureState(str, enum.Enum):
    """The present state of a failure."""

    OPEN = "open"
    """It is there since a run, or its cells have failed in another way since it was seen last."""
    REGRESSED = "regressed"
    """It was fixed, and is there again since a run."""
    FIXED = "fixed"
    """It is gone since a run in which one of its cells works."""
    FLAKY = "comes and goes"
    """Its turns are no change: it fails now and then."""


@dataclass(frozen=True, slots=True)
class FailureHistory:
    """One kind of failure with its signature.

    Attributes:
        name: name of the outcome, as in `PastOutcome`.
        first: the run (its place) in which it was first seen.
        last: the run in which it was last seen.
        runs: in how many runs it was seen.
        since: the run since which it is in this state.
        cells: the cells that had it.
        hosts: the hosts of the nodes on which it was seen.
        only_on: the host on which all of it was seen, though other hosts ran the same transports; "" if there is none.
        issue: the link that was given for it.

    """

    name: str
    state: FailureState
    first: int
    last: int
    runs: int
    since: int
    cells: tuple[PastCell, ...]
    hosts: tuple[str, ...] = ()
    only_on: str = ""
    issue: str = ""


def failure_histories(past: PastRuns) -> tuple[FailureHistory, ...]:
    """Return the history of each failure, the latest first."""
    seen: dict[str, dict[PastCell, list[int]]] = {}
    for cell, outcomes in past.cells.items():
        for place, one in enumerate(outcomes):
            if one is not None and one.ran and not one.good:
                seen.setdefault(one.name, {}).setdefault(cell, []).append(place)
    found = [_history(past, name, places) for name, places in seen.items()]
    return tuple(sorted(found, key=lambda one: (-one.last, -one.since, one.name)))


def hosts_of(outcome: PastOutcome) -> tuple[str, ...]:
    """Return the hosts of the nodes of an outcome."""
    return tuple(dict.fromkeys(filter(None, outcome.nodes.get(HOSTS, "").split(" | "))))


def _history(past: PastRuns, name: str, places: Mapping[PastCell, Sequence[int]]) -> FailureHistory:
    present = {place for several in places.values() for place in several}
    # A cell that fails in another way does not show that this failure is gone.
    works = [any(_works(past.cells[cell][place]) for cell in places) for place in range(len(past.runs))]
    turns = [_BAD if place in present else _GOOD if works[place] else None for place in range(len(past.runs))]
    state, since = _state(past.runs, turns, min(present))
    outcomes = [one for cell, several in places.items() for place in several if (one := past.cells[cell][place])]
    hosts = [hosts_of(one) for one in outcomes]
    return FailureHistory(
        name,
        state,
        min(present),
        max(present),
        len(present),
        since,
        tuple(places),
        tuple(dict.fromkeys(host for several in hosts for host in several)),
        _only_host(past, places, hosts),
        next((one.issue for one in outcomes if one.issue), ""),
    )


def _works(outcome: PastOutcome | None) -> bool:
    return outcome is not None and outcome.good


def _state(runs: Sequence[PastRun], turns: Sequence[PastOutcome | None], first: int) -> tuple[FailureState, int]:
    found = cell_history(runs, turns)
    if found.state is HistoryState.STEADY:
        return FailureState.OPEN, first
    if found.state is HistoryState.FLAKY:
        return FailureState.FLAKY, first
    if found.state is HistoryState.MENDED:
        return FailureState.FIXED, found.since
    return FailureState.OPEN if found.since == first else FailureState.REGRESSED, found.since


def _only_host(past: PastRuns, places: Mapping[PastCell, Sequence[int]], hosts: Sequence[Sequence[str]]) -> str:
    """Return the host that all outcomes share, if the cells' transports and workloads also ran without it."""
    shared = set(hosts[0]).intersection(*map(set, hosts)) if hosts else set()
    if len(shared) != 1:
        return ""
    [host] = shared
    alike = {_work(cell) for cell in places}
    elsewhere = (
        one is not None and one.ran and host not in hosts_of(one)
        for cell, outcomes in past.cells.items()
        if _work(cell) in alike
        for one in outcomes
    )
    return host if any(elsewhere) else ""


def _work(cell: PastCell) -> tuple[tuple[str, str], ...]:
    """Return the axes of a cell but the placement."""
    return tuple((axis, value) for axis, value in sorted(cell.axes.items()) if axis != "placement")


def hosts_with_own_failures(failures: Sequence[FailureHistory]) -> Iterator[tuple[str, tuple[FailureHistory, ...]]]:
    """Yield each host that has failures which no other host has, and these."""
    found: dict[str, list[FailureHistory]] = {}
    for one in failures:
        if one.only_on:
            found.setdefault(one.only_on, []).append(one)
    yield from ((host, tuple(several)) for host, several in sorted(found.items()))
