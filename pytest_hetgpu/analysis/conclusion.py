"""Conclusion about a run without a failure: passed by a sign of success, or unknown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pytest_hetgpu.analysis.logs.outline import progress_between
from pytest_hetgpu.analysis.logs.success import Proof, Success
from pytest_hetgpu.analysis.run_model import Course, is_of_program
from pytest_hetgpu.extensions.signatures.base import FailureMatch, Priority
from pytest_hetgpu.model.verdict import Kind


@dataclass(frozen=True, slots=True)
class Conclusion:
    """Outcome of a log without a failure: passed by a sign of success, or unknown with the `missing` sign."""

    kind: Kind
    success: Success | None = None
    missing: str = ""


_NO_RUN = "none is of a run that could be recognised"
_NO_SIGN = (
    "none shows a failure, and none shows success: an exit status 0, a complete table of results, or last words of the "
    "program. The exit status of the launcher or of the job would decide"
)


def conclude(
    course: Course, logged: Sequence[FailureMatch] = (), *, running: bool, survived: bool = False
) -> Conclusion:
    """Return the conclusion for a log without a failure that counts; `logged` are messages that proved none.

    An alarming line after the last sign of success, or errors of several ranks, forbid `passed`. A later exit status 0
    settles them, and so does a sign of success after further progress.
    """
    signs = course.signs
    best = _best(signs)
    if best is None:
        return Conclusion(Kind.UNKNOWN, missing=_NO_SIGN if running else _NO_RUN)
    alarms = [(line.number, line.quote) for line in course.alarms.lines]
    alarms += [
        (match.signature.line, match.signature.primary_line)
        for match in logged
        if is_of_program(match) and match.priority <= Priority.RELAYED
    ]
    number, quote = max(alarms, default=(0, ""))
    if number and not _settles(signs, number, course):
        return Conclusion(Kind.UNKNOWN, missing=_unread(number, quote))
    if not running and best.proof is Proof.WORDS and not survived:
        return Conclusion(Kind.UNKNOWN, missing=_NO_RUN)
    return Conclusion(Kind.PASSED, best)


def _best(signs: Sequence[Success]) -> Success | None:
    """Return the strongest kind of sign, the last of it."""
    order = list(Proof)
    return min(reversed(signs), key=lambda sign: order.index(sign.proof), default=None)


def _settles(signs: Sequence[Success], line: int, course: Course) -> bool:
    """Return whether a sign after an alarming line settles it: an exit status, or any sign after further progress."""
    after = [sign for sign in signs if sign.line > line]
    if any(sign.proof in (Proof.STATUS, Proof.TESTS, Proof.RESULT) for sign in after):
        return True
    return bool(after) and progress_between(course.read, line, course.lines + 1)


def _unread(number: int, quote: str) -> str:
    return f"line {number} ({quote[:100]}) looks like a failure. No later exit status 0 settles it"
