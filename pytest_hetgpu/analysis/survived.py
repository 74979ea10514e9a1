"""Failures that a run got over: earlier attempts, caught exceptions, and those that a passing test provokes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from pytest_hetgpu.analysis.logs.outline import progress_between
from pytest_hetgpu.analysis.logs.success import Proof, Success
from pytest_hetgpu.analysis.run_model import Course
from pytest_hetgpu.extensions.signatures.base import FailureMatch, Phase, Priority
from pytest_hetgpu.model.lazy_regex import lazy
from pytest_hetgpu.model.verdict import Kind

_NEAR = 40
_SOON = 3
_FEW = 24
_LONGEST_TRACE = 60
_LONGEST = 1000
_RAISED = (Kind.ERROR, Kind.MISSING_LIBRARY)
_TRACE = lazy(r"Traceback \(most recent call last\)")
_CAUGHT = lazy(
    r"(?i:\b(?:re-?try\w*|ignor(?:ed|ing)|caught|handled|continuing|fall(?:ing|s)? back|fallback|skip(?:ped|ping)"
    r"|recovered|recovering|non-?fatal|not fatal|trying again|will try)\b)"
)


def settled(
    matches: Iterable[FailureMatch], course: Course
) -> tuple[tuple[FailureMatch, ...], tuple[FailureMatch, ...]]:
    """Return the matches that still count, and those that the run got over.

    A run got over a failure in an attempt before the last if the last shows success and no failure. A test suite that
    passed got over the failures that its tests provoke. A program got over an exception that it reports as caught, if
    it shows success later.
    """
    events = tuple(matches)
    if not events:
        return (), ()
    if tests := course.read_tests():
        return _parted(events, lambda match: match.signature.line < tests.line)
    begin = course.attempts.last
    if begin and not any(match.fatal and match.signature.line >= begin for match in events):
        done = next((sign for sign in reversed(course.signs) if sign.line > begin), None)
        if done is not None and (_is_strong(done) or progress_between(course.read, begin, course.lines + 1)):
            return _parted(events, lambda match: match.signature.line < done.line)
    if len(events) > _FEW and not course.signs:
        return events, ()
    # Signs are searched last: few crashes need them.
    job = _last_job(events, course)
    over = {
        id(match)
        for match in events
        if match.signature.line <= job or _is_caught(match, course) or _is_beside(match, course)
    }
    last = course.signs[-1].line if over and course.signs else 0
    return _parted(events, lambda match: id(match) in over and match.signature.line < last)


def _is_strong(sign: Success) -> bool:
    return sign.proof in (Proof.STATUS, Proof.TESTS, Proof.RESULT)


def _last_job(events: Sequence[FailureMatch], course: Course) -> int:
    """Return the line of the last report of a failed job that a report of a successful job follows; 0 without one.

    LSF appends a report to the output of each job in one file.
    """
    ends = [match.signature.line for match in events if match.phase is Phase.FINISHING]
    last = max((match.signature.line for match in events if match.fatal), default=0)
    if last not in ends:
        return 0
    done = any(sign.line > last and sign.quote.startswith("Successfully completed.") for sign in course.signs)
    return last if done else 0


def _is_beside(match: FailureMatch, course: Course) -> bool:
    """Return whether ranks made progress before and after a launcher's message: they ran."""
    line = match.signature.line
    return (
        match.signature.kind is Kind.LAUNCH_FAILURE
        and progress_between(course.read, max(0, line - _NEAR), line)
        and progress_between(course.read, line, course.lines + 1)
    )


def _is_caught(match: FailureMatch, course: Course) -> bool:
    """Return whether the lines around an exception report that the program handled it."""
    signature = match.signature
    if signature.signal or signature.kind not in _RAISED or match.priority > Priority.RELAYED:
        return False
    line = signature.line
    around = [found for found in course.read(max(1, line - _LONGEST_TRACE), line + _SOON) if found.number != line]
    after = [found for found in around if found.number > line]
    begin = max((found.number for found in around if _TRACE.search(found.text)), default=line)
    before = [found for found in around if begin - _SOON <= found.number < begin]
    return any(_CAUGHT.search(found.text[:_LONGEST]) for found in (*before, *after))


def _parted(
    events: Sequence[FailureMatch], over: Callable[[FailureMatch], bool]
) -> tuple[tuple[FailureMatch, ...], tuple[FailureMatch, ...]]:
    return tuple(match for match in events if not over(match)), tuple(match for match in events if over(match))
