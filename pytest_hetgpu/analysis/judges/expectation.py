"""Comparison of a run's kind with the expectations of its cell."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from pytest_hetgpu.analysis.judges.base import FinishedRun, describe_signature
from pytest_hetgpu.model.conditions import matches
from pytest_hetgpu.model.failure import Signature
from pytest_hetgpu.model.job import Expectation
from pytest_hetgpu.model.outcome import Finding, RunResult
from pytest_hetgpu.model.verdict import Kind, Verdict


@dataclass(frozen=True, slots=True)
class Ruling:
    """A verdict in view of the expectations; `note` is a line to add to the reason."""

    verdict: Verdict
    expectation: Expectation | None = None
    note: str = ""


def apply_expectations(run: FinishedRun, facts: Sequence[Finding], known: Collection[str] = ()) -> Ruling:
    """Return the verdict on a run with these findings; `known` are ids of known failures that match the first.

    `facts` are the decisive finding, if any, and further facts about the run. An expectation is met only if it covers
    them all. It applies if all its conditions hold. If a fact that it names is unknown, it does not apply, and the note
    gives the reason. A cell that the end of the whole run cut short was not run, and matches no expectation.
    """
    kind, signature = (facts[0].kind, facts[0].signature) if facts else (Kind.PASSED, None)
    if kind is Kind.SKIPPED or (kind is Kind.UNKNOWN and (run.result.interrupted is not None or run.result.spent)):
        return Ruling(Verdict.NOT_RUN)
    applicable, note = _applicable(run)
    fitting = [e for e in applicable if _fits(e, kind, signature, known, run.result)]
    whole = next((e for e in fitting if _outside(e, facts) is None), None)
    if whole:
        return Ruling(Verdict.OK if kind is Kind.PASSED else Verdict.KNOWN, whole)
    if fitting and (other := _outside(fitting[0], facts)):
        besides = f"{other.kind.value} besides: {other.why}"
        return Ruling(Verdict.CHANGED, fitting[0], f"expected {describe(fitting[0])}, and it came, with {besides}")
    if not applicable:
        return Ruling(Verdict.OK if kind is Kind.PASSED else Verdict.NEW, note=note)
    if kind is Kind.PASSED:
        return _passed(applicable)
    first = applicable[0]
    got = f"{kind.value} {describe_signature(signature)}" if signature else kind.value
    frameless = run.result.frameless if _lacks_frame(first, kind, signature) else ""
    without = f", no frame could be read: {frameless}" if frameless else ""
    return Ruling(Verdict.CHANGED, first, f"expected {describe(first)}, got {got}{without}")


def _outside(expectation: Expectation, facts: Sequence[Finding]) -> Finding | None:
    """Return the first further fact that an expectation does not cover.

    Two judges may report one failure, and ranks that wait for a dead one may hang.
    """
    covered = {*expectation.kinds, Kind.PASSED, Kind.SKIPPED, Kind.SLOW}
    if facts and facts[0].kind is Kind.CRASH:
        covered |= {Kind.HANG, Kind.TIMEOUT}
    same = facts[0].signature if facts else None
    others = (finding for finding in facts[1:] if same is None or finding.signature != same)
    return next((finding for finding in others if finding.kind not in covered), None)


def _passed(applicable: list[Expectation]) -> Ruling:
    """Return the verdict on a pass although failures are expected: OK unless an expectation is strict."""
    owed = next((expected for expected in applicable if expected.strict), None)
    if owed is None:
        return Ruling(Verdict.OK)
    where = f" at {owed.origin}" if owed.origin else ""
    return Ruling(Verdict.FIXED, owed, f"expected {describe(owed)}, passed: remove the expectation{where}")


def describe(expectation: Expectation) -> str:
    """Describe an expectation: `crash SIGSEGV@libuct.so!*`, `hang or timeout`, or the id of a known failure."""
    signatures = " or ".join(expectation.signatures)
    if expectation.known:
        return f"{expectation.known} {signatures}".strip()
    return f"{' or '.join(kind.value for kind in expectation.kinds)} {signatures}".strip()


def _applicable(run: FinishedRun) -> tuple[list[Expectation], str]:
    """Return expectations whose conditions all hold, and a note on those with a condition that could not be decided."""
    demand = run.job.demand
    facts = {**demand.facts, **run.evidence.facts}
    found, notes = [], []
    for expectation in demand.expectations:
        unknown = list(_unmet(expectation, facts, demand.capabilities))
        if not unknown:
            found.append(expectation)
        elif all(unknown):
            notes.append(f"expected {describe(expectation)} was not considered: {', '.join(unknown)}")
    return found, "; ".join(notes)


def _unmet(expectation: Expectation, facts: Mapping[str, str], capabilities: frozenset[str]) -> Iterator[str]:
    """Yield "" for each condition that does not hold, and the reason for each that cannot be decided."""
    for condition in expectation.when:
        held = matches(condition, facts, capabilities)
        if held is None:
            seen = facts.get(condition.fact)
            yield f"{condition.fact} is {seen!r}" if seen else f"the run does not report its {condition.fact}"
        elif not held:
            yield ""


_FORESEEN = "preflight@"
_BARE = re.compile(r"SIG[A-Z0-9]+")


def _fits(
    expectation: Expectation, kind: Kind, signature: Signature | None, known: Collection[str], result: RunResult
) -> bool:
    if kind not in expectation.kinds:
        return False
    key = signature.key if signature else None
    if key and key.startswith(_FORESEEN) and result.seconds == 0:
        # Preflight kept the cell from running. It predicted the kind, and has no log message to match.
        return True
    if expectation.known and expectation.known not in known:
        return False
    frameless = bool(result.frameless) and expectation.frame == "optional"
    return not expectation.signatures or (
        key is not None and any(_matches(key, glob, frameless=frameless) for glob in expectation.signatures)
    )


def _matches(key: str, glob: str, *, frameless: bool) -> bool:
    """Return whether an expected key covers the key of a crash.

    One without a function, or without any frame, covers those with one. If it is `frameless`, the signal alone is
    enough.
    """
    if fnmatch.fnmatchcase(key, glob):
        return True
    if not glob.startswith("SIG"):
        return False
    less = key.partition("!")[0], key.partition("@")[0]
    return glob in less or (frameless and _BARE.fullmatch(key) is not None and glob.partition("@")[0] == key)


def lacks_frame(expectation: Expectation, signature: Signature | None) -> bool:
    """Return whether an expectation with a frame was met by a signal alone."""
    key = signature.key if signature else ""
    return bool(_BARE.fullmatch(key)) and key not in expectation.signatures


def _lacks_frame(expectation: Expectation, kind: Kind, signature: Signature | None) -> bool:
    """Return whether an expectation would be met, had the crash a frame."""
    key = signature.key if signature else ""
    return kind in expectation.kinds and any(_matches(key, glob, frameless=True) for glob in expectation.signatures)
