"""Results of remedies, and the search for the smallest job that fails in the same way. Pure."""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from typing import TypeVar

from pytest_hetgpu.analysis.boundary.bisect import OK
from pytest_hetgpu.analysis.judges.transport import TransportJudge
from pytest_hetgpu.model.outcome import Outcome
from pytest_hetgpu.model.verdict import Kind
from pytest_hetgpu.store.events import Shrunk, Tried

T = TypeVar("T")
_FEW = 8


class TrialResult(str, enum.Enum):
    """Result of a remedy."""

    CURED = "cured"
    OTHER_TRANSPORT = "cured by another transport"
    CHANGED = "changes the failure"
    NO_EFFECT = "no effect"
    INCONCLUSIVE = "inconclusive"
    IMPOSSIBLE = "cannot be tried"


_SHOWS_NOTHING = (TrialResult.INCONCLUSIVE.value, TrialResult.IMPOSSIBLE.value)


def key_of(outcome: Outcome) -> str:
    """Return the key of a failure: of its signature, or its kind if it has none."""
    return outcome.signature.key if outcome.signature else outcome.kind.value


def end_key(outcome: Outcome) -> str | None:
    """Return OK or the key of a failure; None for an outcome that shows nothing about the cell."""
    if outcome.kind in (Kind.SKIPPED, Kind.UNKNOWN) or outcome.away:
        return None
    return key_of(outcome) if outcome.kind.failed else OK


def result_of(outcome: Outcome, key: str) -> TrialResult:
    """Return the result of a remedy for the failure `key`, from the outcome of one run with it.

    A cell that works, but over another transport than asked for, is not cured.
    """
    found = end_key(outcome)
    if found is None:
        return TrialResult.INCONCLUSIVE
    if found == OK:
        return TrialResult.CURED
    bad = {one.judge for one in outcome.findings if one.kind.failed}
    if outcome.kind is Kind.TRANSPORT_UNAVAILABLE and outcome.signature is None and bad == {TransportJudge.name}:
        return TrialResult.OTHER_TRANSPORT
    return TrialResult.NO_EFFECT if found == key else TrialResult.CHANGED


def cure_text(trials: Sequence[Tried]) -> str:
    """Return the results of the remedies for one failure: `none of 7 tried; UCX_ZCOPY_THRESH=0 changes the failure`."""
    tried = [one for one in trials if one.result not in _SHOWS_NOTHING]
    if not tried:
        return ""
    parts = [f"{one.settings} ({len(one.runs)} of {len(one.runs)})" for one in _of(tried, TrialResult.CURED)]
    head = f"{', '.join(parts)}; {len(parts)} of {len(tried)} tried" if parts else f"none of {len(tried)} tried"
    more = [f"{one.settings} {one.result}" for one in _of(tried, TrialResult.OTHER_TRANSPORT)]
    more += [f"{one.settings} {one.result} ({one.why})" for one in _of(tried, TrialResult.CHANGED)]
    return "; ".join((head, *more))


def _of(trials: Sequence[Tried], result: TrialResult) -> Sequence[Tried]:
    return [one for one in trials if one.result == result.value]


def smallest_text(one: Shrunk) -> str:
    """Return the smallest job in words: `2 ranks, size 8, 3 of 22 settings: pml=ucx ... (3 of 3)`."""
    ranks = "1 rank" if one.ranks == 1 else f"{one.ranks} ranks"
    nodes = "" if one.nodes < 2 else f" on {one.nodes} nodes"
    points = f", {', '.join(one.points)}" if one.points else ""
    needed = f": {' '.join(one.settings)}" if one.settings else ""
    settings = f", {len(one.settings)} of {one.settings_before} settings{needed}" if one.settings_before else ""
    return f"{ranks}{nodes}{points}{settings} ({one.same} of {one.runs})"


def smallest(items: Sequence[T], fails: Callable[[Sequence[T]], bool]) -> list[T]:
    """Return items that suffice for the failure, each of them needed; `fails` runs the job with some of them only.

    QuickXplain (Junker 2004), then each item that is left once alone; one by one if there are few. All items together
    must fail.
    """
    if not items or fails(()):
        return []
    found = list(items) if len(items) < _FEW else _explained(fails, [], [], list(items))
    for item in tuple(found):
        rest = [one for one in found if one is not item]
        if rest and fails(rest):
            found = rest
    return found


def _explained(fails: Callable[[Sequence[T]], bool], known: list[T], added: list[T], items: list[T]) -> list[T]:
    """Return the items that are needed beside the known ones, of which some were just added."""
    if added and fails(known):
        return []
    if len(items) == 1:
        return items
    half = len(items) // 2
    first, second = items[:half], items[half:]
    of_second = _explained(fails, [*known, *first], first, second)
    of_first = _explained(fails, [*known, *of_second], of_second, first)
    return [*of_first, *of_second]
