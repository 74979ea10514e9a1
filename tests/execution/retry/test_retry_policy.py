"""What is tried again, and what several attempts come to."""

from __future__ import annotations

import pytest

from pytest_hetgpu.execution.retry.policy import ENVIRONMENT, MAY_BE_RETRIED, may_be_retried, settled, taints
from pytest_hetgpu.model.outcome import Finding, Outcome, RunResult
from pytest_hetgpu.model.verdict import Kind, Verdict
from pytest_hetgpu.session.settings import RETRIABLE, Settings


def failed(kind: Kind, verdict: Verdict = Verdict.NEW, *beside: Kind) -> Outcome:
    findings = tuple(Finding("judge", one, "why") for one in (kind, *beside))
    return Outcome(kind, verdict, "why", findings=findings)


PASSED = Outcome(Kind.PASSED, Verdict.OK)


def test_options_name_the_kinds_that_may_be_retried() -> None:
    assert tuple(kind.value for kind in MAY_BE_RETRIED) == RETRIABLE
    assert tuple(kind.value for kind in ENVIRONMENT) == Settings().retry_on


@pytest.mark.parametrize("kind", Kind)
def test_only_failures_that_can_be_the_environments_are_retried(kind: Kind) -> None:
    assert may_be_retried(failed(kind)) is (kind.value in RETRIABLE)


def test_what_is_expected_or_stands_beside_a_bug_is_not_retried() -> None:
    assert not may_be_retried(failed(Kind.NETWORK_FAILURE, Verdict.KNOWN))
    assert may_be_retried(failed(Kind.NETWORK_FAILURE, Verdict.CHANGED))
    assert may_be_retried(failed(Kind.LAUNCH_FAILURE, Verdict.NEW, Kind.ERROR))
    assert not may_be_retried(failed(Kind.LAUNCH_FAILURE, Verdict.NEW, Kind.CRASH))
    assert not may_be_retried(failed(Kind.NETWORK_FAILURE), ENVIRONMENT[1:])


def test_failed_then_passed_is_flaky() -> None:
    found = settled([("attempt-1/output.log", failed(Kind.NETWORK_FAILURE)), ("output.log", PASSED)])
    assert (found.kind, found.flaky) == (Kind.PASSED, True)
    assert [(one.kind, one.log) for one in found.attempts] == [(Kind.NETWORK_FAILURE, "attempt-1/output.log")]
    assert not settled([("output.log", PASSED)]).flaky
    assert not settled([("a", failed(Kind.NETWORK_FAILURE)), ("b", failed(Kind.NETWORK_FAILURE))]).flaky


def test_an_earlier_attempt_that_is_a_bug_as_read_now_decides() -> None:
    found = settled([("a", failed(Kind.NETWORK_FAILURE)), ("b", failed(Kind.CRASH)), ("c", PASSED)])
    assert found.kind is Kind.CRASH
    assert len(found.attempts) == 1
    assert found.notes == ("attempt 2 of 3 decides, see b: such an outcome is not tried again",)


def test_nodes_that_may_have_lost_each_other_are_not_for_the_next_cell() -> None:
    good = RunResult((), 0, "", 0.0, 1.0)
    spoiling = {kind for kind in Kind if taints(failed(kind), good)}
    assert {Kind.LAUNCH_FAILURE, Kind.NETWORK_FAILURE, Kind.CRASH, Kind.HANG, Kind.UNKNOWN} <= spoiling
    assert not spoiling & {Kind.PASSED, Kind.SLOW, Kind.WRONG_RESULT, Kind.ERROR, Kind.TRANSPORT_UNAVAILABLE}
    assert taints(PASSED, RunResult((), 0, "", 0.0, 1.0, lost=("node1 was lost",)))
