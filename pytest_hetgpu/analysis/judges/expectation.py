"""A run's kind held against what was expected of its cell."""

from __future__ import annotations

import fnmatch
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from pytest_hetgpu.analysis.judges.base import Case, placed
from pytest_hetgpu.model.conditions import matches
from pytest_hetgpu.model.failure import Signature
from pytest_hetgpu.model.job import Expectation
from pytest_hetgpu.model.outcome import RunResult
from pytest_hetgpu.model.verdict import Kind, Verdict


@dataclass(frozen=True, slots=True)
class Ruling:
    """A verdict in view of the expectations; `note` is what it adds to the reason, in one line."""

    verdict: Verdict
    expectation: Expectation | None = None
    note: str = ""


def rule(case: Case, kind: Kind, signature: Signature | None, known: Collection[str] = ()) -> Ruling:
    """The verdict on a run of this kind and signature; `known` are the ids of what is established about it.

    An expectation applies where all its conditions hold; where a fact that it asks for is not known, it is not
    established and does not apply, and the note says so. A run that was cut short is nobody's known failure.
    """
    if kind is Kind.SKIPPED:
        return Ruling(Verdict.NOT_RUN)
    if case.result.interrupted is not None:
        return Ruling(Verdict.NEW)
    applicable, note = _applicable(case)
    fitting = next((e for e in applicable if _fits(e, kind, signature, known, case.result)), None)
    if fitting:
        return Ruling(Verdict.OK if kind is Kind.PASSED else Verdict.KNOWN, fitting)
    if not applicable:
        return Ruling(Verdict.OK if kind is Kind.PASSED else Verdict.NEW, note=note)
    if kind is Kind.PASSED:
        return _passed(applicable)
    first = applicable[0]
    got = f"{kind.value} {placed(signature)}" if signature else kind.value
    return Ruling(Verdict.CHANGED, first, f"expected {in_words(first)}, got {got}")


def _passed(applicable: list[Expectation]) -> Ruling:
    """A pass where failures are expected: only what is not strict allows it."""
    owed = next((expected for expected in applicable if expected.strict), None)
    if owed is None:
        return Ruling(Verdict.OK)
    where = f" at {owed.origin}" if owed.origin else ""
    return Ruling(Verdict.FIXED, owed, f"expected {in_words(owed)}, passed: remove the expectation{where}")


def in_words(expectation: Expectation) -> str:
    """`crash SIGSEGV@libuct.so!*`, `hang or timeout` where any signature will do, or the id of a known failure."""
    signatures = " or ".join(expectation.signatures)
    if expectation.known:
        return f"{expectation.known} {signatures}".strip()
    return f"{' or '.join(kind.value for kind in expectation.kinds)} {signatures}".strip()


def _applicable(case: Case) -> tuple[list[Expectation], str]:
    """Expectations whose conditions all hold, and a note on those of which that could not be told."""
    demand = case.job.demand
    facts = {**demand.facts, **case.evidence.facts}
    found, notes = [], []
    for expectation in demand.expectations:
        unknown = list(_unmet(expectation, facts, demand.capabilities))
        if not unknown:
            found.append(expectation)
        elif all(unknown):
            notes.append(f"expected {in_words(expectation)} was not considered: {', '.join(unknown)}")
    return found, "; ".join(notes)


def _unmet(expectation: Expectation, facts: Mapping[str, str], capabilities: frozenset[str]) -> Iterator[str]:
    """For each condition that does not hold "", for each of which that cannot be told the reason."""
    for condition in expectation.when:
        held = matches(condition, facts, capabilities)
        if held is None:
            seen = facts.get(condition.fact)
            yield f"{condition.fact} is {seen!r}" if seen else f"the run does not tell its {condition.fact}"
        elif not held:
            yield ""


_FORESEEN = "preflight@"


def _fits(
    expectation: Expectation, kind: Kind, signature: Signature | None, known: Collection[str], result: RunResult
) -> bool:
    if kind not in expectation.kinds:
        return False
    key = signature.key if signature else None
    if key and key.startswith(_FORESEEN) and result.seconds == 0:
        # Preflight kept it from running: it foresaw the kind, and cannot know the words.
        return True
    if expectation.known and expectation.known not in known:
        return False
    return not expectation.signatures or (
        key is not None and any(fnmatch.fnmatchcase(key, glob) for glob in expectation.signatures)
    )
