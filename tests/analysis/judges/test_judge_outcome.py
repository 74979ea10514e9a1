"""From findings to an outcome: the decisive finding, and the verdict against expectations."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from pytest_hetgpu.analysis.judge import JUDGES, LONGEST_WHY, judge
from pytest_hetgpu.analysis.judges import expectation as expectations
from pytest_hetgpu.analysis.judges.base import FinishedRun, Judge, RatedFinding
from pytest_hetgpu.model.failure import Condition
from pytest_hetgpu.model.job import Expectation, Origin
from pytest_hetgpu.model.outcome import Finding, Outcome
from pytest_hetgpu.model.records import MessagePoint, RankExit
from pytest_hetgpu.model.verdict import Kind, Verdict
from tests.analysis.judges.judge_cases import (
    BROKEN,
    NOTHING,
    POINTS,
    SEGV,
    case,
    evidence,
    expectation,
    hello,
    job,
    result,
    signature,
)

HANG = {"timed_out": True, "seconds": 60.0, "quiet": 60.0, "returncode": -15}
CRASHED = {"returncode": 139}
EXITED = {"exits": (RankExit(1, code=1),)}
DIED = {"exits": (RankExit(0, signal=11),), **BROKEN}


def outcome(of: FinishedRun) -> Outcome:
    return judge(of.job, of.result, of.evidence)


def text(kind: Kind, key: str = "key@place") -> dict[str, Any]:
    return {"signatures": (signature(kind, key),)}


@pytest.mark.parametrize(
    ("run", "seen", "kind"),
    [
        ({}, {}, Kind.PASSED),
        # An exit code yields to its explanation.
        ({"returncode": 3}, BROKEN, Kind.ERROR),
        ({"returncode": 14}, {**BROKEN, **text(Kind.TRANSPORT_UNAVAILABLE)}, Kind.TRANSPORT_UNAVAILABLE),
        ({"returncode": 1}, {**NOTHING, **text(Kind.MISSING_LIBRARY)}, Kind.MISSING_LIBRARY),
        ({"returncode": 1}, {**BROKEN, **text(Kind.OUT_OF_MEMORY)}, Kind.OUT_OF_MEMORY),
        ({"returncode": 1}, {**BROKEN, **text(Kind.GPU_ARCH_MISMATCH)}, Kind.GPU_ARCH_MISMATCH),
        ({"returncode": 1}, {**BROKEN, **text(Kind.NETWORK_FAILURE)}, Kind.NETWORK_FAILURE),
        ({"returncode": 14}, {**BROKEN, **text(Kind.CRASH, SEGV)}, Kind.CRASH),
        ({"returncode": 110}, {**BROKEN, **text(Kind.TIMEOUT)}, Kind.TIMEOUT),
        # Ranks that never reported.
        ({"returncode": 1}, NOTHING, Kind.LAUNCH_FAILURE),
        ({"returncode": 0}, NOTHING, Kind.LAUNCH_FAILURE),
        (CRASHED, {**NOTHING, "exits": (RankExit(0, signal=11),)}, Kind.CRASH),
        # Signals.
        (CRASHED, DIED, Kind.CRASH),
        (CRASHED, {**DIED, **text(Kind.ERROR)}, Kind.CRASH),
        (
            {"returncode": 137},
            {**DIED, "exits": (RankExit(0, signal=9),), **text(Kind.OUT_OF_MEMORY)},
            Kind.OUT_OF_MEMORY,
        ),
        ({}, {"exits": (RankExit(0, signal=11),)}, Kind.CRASH),
        # Time limits.
        (HANG, BROKEN, Kind.HANG),
        (HANG, NOTHING, Kind.HANG),
        ({**HANG, "quiet": 1.0}, BROKEN, Kind.TIMEOUT),
        (HANG, {**BROKEN, **text(Kind.TRANSPORT_UNAVAILABLE)}, Kind.HANG),
        (HANG, {**BROKEN, **text(Kind.CRASH, SEGV)}, Kind.CRASH),
        (HANG, {**BROKEN, **text(Kind.CRASH, "SIGKILL")}, Kind.HANG),
        # A rank that could not be started explains the effects of its silence on the others and the launcher.
        (HANG, {**NOTHING, **text(Kind.LAUNCH_FAILURE)}, Kind.LAUNCH_FAILURE),
        (HANG, {**NOTHING, **text(Kind.MISSING_LIBRARY)}, Kind.MISSING_LIBRARY),
        (HANG, {**BROKEN, **text(Kind.MISSING_LIBRARY)}, Kind.HANG),
        (HANG, {**NOTHING, **text(Kind.NETWORK_FAILURE)}, Kind.HANG),
        ({"returncode": -6}, {**NOTHING, **text(Kind.LAUNCH_FAILURE)}, Kind.LAUNCH_FAILURE),
        ({"returncode": -11}, {**NOTHING, **text(Kind.MISSING_LIBRARY)}, Kind.MISSING_LIBRARY),
        ({"returncode": -11}, {**BROKEN, **text(Kind.MISSING_LIBRARY)}, Kind.CRASH),
        ({"returncode": -11}, NOTHING, Kind.CRASH),
        # So does one that had ended by itself before the launcher got stuck or died of cleaning up.
        (HANG, {**NOTHING, **EXITED, **text(Kind.ERROR)}, Kind.ERROR),
        (HANG, {**BROKEN, **EXITED, **text(Kind.OUT_OF_MEMORY)}, Kind.OUT_OF_MEMORY),
        (HANG, {**BROKEN, "exits": (RankExit(1, code=143),), **text(Kind.ERROR)}, Kind.HANG),
        ({"returncode": -11}, {**BROKEN, **EXITED, **text(Kind.ERROR)}, Kind.ERROR),
        ({"returncode": 139}, {**BROKEN, "exits": (RankExit(1, code=139),), **text(Kind.ERROR)}, Kind.CRASH),
        ({"interrupted": "SIGINT", "returncode": -15}, {}, Kind.UNKNOWN),
        ({"interrupted": "SIGINT", "returncode": -15}, {**BROKEN, **text(Kind.CRASH, SEGV)}, Kind.UNKNOWN),
        # Results.
        ({}, {"wrong": ("rank 0: 1 wrong element",)}, Kind.WRONG_RESULT),
        ({"returncode": 1}, {"wrong": ("rank 0: 1 wrong element",), **text(Kind.ERROR)}, Kind.WRONG_RESULT),
        ({}, {"rows": ()}, Kind.UNKNOWN),
        ({}, {"checks": {}}, Kind.UNKNOWN),
        ({}, {"done": frozenset({1})}, Kind.ERROR),
        ({"survivors": ("python (7)",)}, {}, Kind.ERROR),
        # Transports.
        ({}, {"transports": ()}, Kind.UNKNOWN),
        ({}, {"transports": ("ob1/sm",)}, Kind.TRANSPORT_UNAVAILABLE),
        ({}, {"transports": (), "wrong": ("rank 0: 1 wrong element",)}, Kind.WRONG_RESULT),
        # Another world than the one asked for is all that counts.
        ({}, {"hellos": {0: hello(0, library="MPICH 5.0.2"), 1: hello(1)}}, Kind.LAUNCH_FAILURE),
        (CRASHED, {**DIED, "hellos": {0: hello(0, library="MPICH 5.0.2"), 1: hello(1)}}, Kind.LAUNCH_FAILURE),
        ({}, {"hellos": {0: hello(0, size=1)}, "done": frozenset({0})}, Kind.WRONG_RESULT),
    ],
)
def test_the_decisive_finding(run: dict[str, Any], seen: dict[str, Any], kind: Kind) -> None:
    found = outcome(case(run=run, **seen))
    assert found.kind is kind
    failed = Verdict.NOT_RUN if "interrupted" in run else Verdict.NEW
    assert found.verdict is (Verdict.OK if kind is Kind.PASSED else failed)
    assert "\n" not in found.why
    assert bool(found.why) is (kind is not Kind.PASSED)
    if found.findings:
        assert found.findings[0].kind is kind


def test_every_finding_is_kept_the_decisive_first() -> None:
    found = outcome(case(run=CRASHED, signatures=(signature(),), **DIED))
    assert found.signature == signature()
    assert [finding.judge for finding in found.findings][:2] == ["signature", "completeness"]
    assert any("did not reach the end" in finding.why for finding in found.findings)


def test_a_good_run_tells_what_it_measured_and_on_what() -> None:
    found = outcome(case(run={"seconds": 2.5}))
    assert found.stack == "Open MPI 5.0.11 (/opt/stack/lib/libmpi.so.40)"
    assert found.transports == ("ob1/tcp",)
    assert found.seconds == 2.5
    assert found.measurements[0].name == "busbw[8,float32]"
    assert len(found.measurements) == 3 * len(POINTS)


class Tripping(Judge):
    name = "tripping"

    def evaluate(self, case: FinishedRun) -> Iterator[RatedFinding]:
        raise ZeroDivisionError(f"{case.job.label}\nof all")


@pytest.mark.parametrize("seen", [{}, DIED])
def test_a_judge_that_fails_is_never_a_pass(seen: dict[str, Any]) -> None:
    found = judge(job(), result(), evidence(**seen), judges=(*JUDGES, Tripping))
    assert (found.kind, found.verdict) == (Kind.UNKNOWN, Verdict.NEW)
    assert found.why == "the judge 'tripping' failed: ZeroDivisionError: cell of all"


KNOWN = expectation(Kind.CRASH, signatures=(SEGV,), issue="https://example.org/1", origin=Origin("aws.yaml", 14))
NOW_AND_THEN = expectation(Kind.CRASH, signatures=(SEGV,), strict=False)
BAD = {"run": CRASHED, "signatures": (signature(),), **DIED}


@pytest.mark.parametrize(
    ("expected", "of", "verdict", "why"),
    [
        ((), {}, Verdict.OK, ""),
        ((), BAD, Verdict.NEW, SEGV),
        ((KNOWN,), BAD, Verdict.KNOWN, SEGV),
        ((expectation(Kind.CRASH),), BAD, Verdict.KNOWN, SEGV),
        ((expectation(Kind.HANG, Kind.CRASH),), BAD, Verdict.KNOWN, SEGV),
        ((expectation(Kind.CRASH, signatures=("SIGBUS@*", "SIGSEGV@libuct*.so!*")),), BAD, Verdict.KNOWN, SEGV),
        ((expectation(Kind.HANG), KNOWN), BAD, Verdict.KNOWN, SEGV),
        (
            (expectation(Kind.CRASH, signatures=("SIGBUS@x",)),),
            BAD,
            Verdict.CHANGED,
            f"expected crash SIGBUS@x, got crash {SEGV}",
        ),
        ((expectation(Kind.HANG, Kind.TIMEOUT),), BAD, Verdict.CHANGED, f"expected hang or timeout, got crash {SEGV}"),
        (
            (KNOWN,),
            {"run": {"returncode": 3}, **BROKEN},
            Verdict.CHANGED,
            f"expected crash {SEGV}, got error: the launcher",
        ),
        ((KNOWN,), {}, Verdict.FIXED, f"expected crash {SEGV}, passed: remove the expectation at aws.yaml:14"),
        ((expectation(Kind.PASSED, Kind.HANG),), {}, Verdict.OK, ""),
        # A cell that fails now and then may pass; the kind of its failure still counts.
        ((NOW_AND_THEN,), {}, Verdict.OK, ""),
        ((NOW_AND_THEN,), BAD, Verdict.KNOWN, SEGV),
        ((NOW_AND_THEN,), {"run": {"returncode": 3}, **BROKEN}, Verdict.CHANGED, f"expected crash {SEGV}, got error"),
        ((NOW_AND_THEN, expectation(Kind.HANG)), {}, Verdict.FIXED, "expected hang, passed: remove the expectation"),
        (
            (expectation(Kind.UNKNOWN),),
            {"run": {"interrupted": "SIGINT"}},
            Verdict.NOT_RUN,
            "the run was stopped (SIGINT)",
        ),
        ((), {"run": {"spent": "the run's time was spent", "timed_out": True}}, Verdict.NOT_RUN, "time was spent"),
        ((), {"run": {"spent": "time was spent", "timed_out": True}, **BAD}, Verdict.NEW, SEGV),
    ],
)
def test_verdicts(expected: tuple[Expectation, ...], of: dict[str, Any], verdict: Verdict, why: str) -> None:
    found = outcome(case({"expectations": expected}, **of))
    assert found.verdict is verdict
    assert why in found.why


@pytest.mark.parametrize(
    ("of", "why"),
    [
        (
            {**BAD, "signatures": (signature(ranks=(1,), entry_point="MPI_Send", detail="invalid permissions"),)},
            f"expected ucx-no-large-bar, got crash {SEGV} in MPI_Send on rank 1",
        ),
        (
            {
                "run": {"timed_out": True, "returncode": -9},
                **BROKEN,
                "signatures": (signature(Kind.HANG, "hang@MPI_Send", primary_line="hetgpu: stuck", detail="all wait"),),
            },
            "expected ucx-no-large-bar, got hang hang@MPI_Send: stopped after 2 s, nothing moved: all wait",
        ),
        (
            {"run": {"returncode": 3}, **BROKEN},
            "expected ucx-no-large-bar, got error: the launcher ended with exit code 3",
        ),
    ],
)
def test_a_changed_failure_is_told_in_one_sentence(of: dict[str, Any], why: str) -> None:
    expected = expectation(Kind.CRASH, Kind.HANG, Kind.ERROR, known="ucx-no-large-bar")
    found = outcome(case({"expectations": (expected,)}, **of))
    assert (found.verdict, found.why) == (Verdict.CHANGED, why)


def test_the_expectation_that_fits_is_the_one_shown() -> None:
    assert outcome(case({"expectations": (expectation(Kind.HANG), KNOWN)}, **BAD)).expectation == KNOWN


@pytest.mark.parametrize(("seconds", "verdict"), [(0.0, Verdict.KNOWN), (2.0, Verdict.CHANGED)])
def test_what_preflight_foresaw_is_the_known_failure_only_where_nothing_ran(seconds: float, verdict: Verdict) -> None:
    # The same text in a run's own output does not count.
    foreseen = signature(key="preflight@crash")
    found = outcome(
        case({"expectations": (KNOWN,)}, run={"returncode": 127, "seconds": seconds}, signatures=(foreseen,), hellos={})
    )
    assert (found.kind, found.verdict) == (Kind.CRASH, verdict)


def test_a_skipped_cell_is_not_run() -> None:
    skipped = Finding("tool", Kind.SKIPPED, "there is no lmp")
    assert expectations.apply_expectations(case(), [skipped]).verdict is Verdict.NOT_RUN


@pytest.mark.parametrize(
    ("conditions", "verdict"),
    [
        ([("ucx", "<1.18")], Verdict.KNOWN),
        ([("ucx", ">=1.18")], Verdict.NEW),
        ([("ucx", "<1.18"), ("openmpi", ">=5,<6")], Verdict.KNOWN),
        ([("ucx", "<1.18"), ("openmpi", "<5")], Verdict.NEW),
        ([("platform", "rocm")], Verdict.KNOWN),
        ([("platform", "r*")], Verdict.KNOWN),
        ([("platform", "cuda")], Verdict.NEW),
        ([("capability", "no-large-bar")], Verdict.KNOWN),
        ([("capability", "large-bar")], Verdict.NEW),
        ([("libfabric", "<2")], Verdict.NEW),
    ],
)
def test_conditions(conditions: list[tuple[str, str]], verdict: Verdict) -> None:
    expected = expectation(Kind.CRASH, when=tuple(Condition(*pair) for pair in conditions))
    demand = {
        "expectations": (expected,),
        "facts": {"platform": "rocm", "openmpi": "4.1.8"},
        "capabilities": frozenset({"no-large-bar"}),
    }
    assert outcome(case(demand, versions={"ucx": "1.13.1", "openmpi": "5.0.11"}, **BAD)).verdict is verdict


def test_a_fact_that_is_not_known_establishes_nothing_and_is_named() -> None:
    expected = expectation(Kind.CRASH, when=(Condition("libfabric", "<2"),))
    crashed = outcome(case({"expectations": (expected,)}, **BAD))
    assert "expected crash was not considered: the run does not report its libfabric" in crashed.why
    assert SEGV in crashed.why
    passed = outcome(case({"expectations": (expected,)}))
    assert (passed.verdict, passed.why) == (
        Verdict.OK,
        "expected crash was not considered: the run does not report its libfabric",
    )
    mixed = outcome(case({"expectations": (expected,)}, versions={"libfabric": "1.17, 2.1"}, **BAD))
    assert "libfabric is '1.17, 2.1'" in mixed.why


def test_a_condition_that_fails_beside_one_unknown_settles_it() -> None:
    expected = expectation(Kind.CRASH, when=(Condition("libfabric", "<2"), Condition("openmpi", "<5")))
    assert "not considered" not in outcome(case({"expectations": (expected,)}, **BAD)).why


def test_a_reason_is_one_line_of_bounded_length() -> None:
    found = outcome(case(wrong=("rank 0:\n" + "x" * 1000,)))
    assert len(found.why) == LONGEST_WHY
    assert found.why.startswith("rank 0: x")
    assert found.why.endswith("x...")
    exact = outcome(case(wrong=("x" * LONGEST_WHY,)))
    assert exact.why == "x" * LONGEST_WHY


FRAMED = "SIGSEGV@libuct.so!uct_mm_ep_am_short"
NO_CORE = "gdb is not installed"


@pytest.mark.parametrize(
    ("expected", "found", "frameless", "verdict"),
    [
        ("SIGSEGV", FRAMED, "", Verdict.KNOWN),
        ("SIGSEGV@libuct.so", FRAMED, "", Verdict.KNOWN),
        ("SIGSEGV@libuct.so", "SIGSEGV@libuct.so!another", "", Verdict.KNOWN),
        ("SIGSEGV@libuct.so", "SIGSEGV@libucp.so!f", "", Verdict.CHANGED),
        ("SIGBUS", FRAMED, "", Verdict.CHANGED),
        (FRAMED, "SIGSEGV", NO_CORE, Verdict.CHANGED),
        (FRAMED, "SIGSEGV", "", Verdict.CHANGED),
        (FRAMED, "SIGBUS", NO_CORE, Verdict.CHANGED),
        (FRAMED, "SIGSEGV@libuct.so", NO_CORE, Verdict.CHANGED),
        ("no-component", "no-component@pml", "", Verdict.CHANGED),
    ],
)
def test_a_crash_is_expected_with_less_or_without_a_frame(
    expected: str, found: str, frameless: str, verdict: Verdict
) -> None:
    run = case(
        {"expectations": (expectation(Kind.CRASH, signatures=(expected,)),)},
        **{**BAD, "run": {**CRASHED, "frameless": frameless}, "signatures": (signature(Kind.CRASH, found),)},
    )
    judged = outcome(run)
    assert judged.verdict is verdict
    assert (f"no frame could be read: {NO_CORE}" in judged.why) is (found == "SIGSEGV" and bool(frameless))


@pytest.mark.parametrize(
    ("found", "frameless", "verdict"),
    [
        ("SIGSEGV", NO_CORE, Verdict.KNOWN),
        ("SIGSEGV", "", Verdict.CHANGED),
        ("SIGBUS", NO_CORE, Verdict.CHANGED),
        ("SIGSEGV@libuct.so", NO_CORE, Verdict.CHANGED),
    ],
)
def test_the_frame_of_an_expected_crash_may_be_optional(found: str, frameless: str, verdict: Verdict) -> None:
    expected = expectation(Kind.CRASH, signatures=(FRAMED,), frame="optional")
    run = {**CRASHED, "frameless": frameless}
    judged = outcome(
        case({"expectations": (expected,)}, **{**BAD, "run": run, "signatures": (signature(Kind.CRASH, found),)})
    )
    assert judged.verdict is verdict
    noted = f"expected crash {FRAMED}, and no frame could be read: {NO_CORE}" in judged.notes
    assert noted is (verdict is Verdict.KNOWN)


def test_an_expectation_is_met_only_if_nothing_else_was_found() -> None:
    wrong = {MessagePoint(8, "float32"): 1}
    expected = expectation(Kind.CRASH, signatures=(FRAMED,))
    crashed = {**BAD, "run": CRASHED, "signatures": (signature(Kind.CRASH, FRAMED),)}
    assert outcome(case({"expectations": (expected,)}, **crashed)).verdict is Verdict.KNOWN
    both = outcome(case({"expectations": (expected,)}, **{**crashed, "checks": {0: wrong, 1: wrong}}))
    assert (both.kind, both.verdict) == (Kind.CRASH, Verdict.CHANGED)
    assert f"expected crash {FRAMED}, and it came, with wrong_result besides: rank 0: 1 wrong element" in both.why
    either = expectation(Kind.CRASH, Kind.WRONG_RESULT)
    assert outcome(case({"expectations": (either,)}, **{**crashed, "checks": {0: wrong}})).verdict is Verdict.KNOWN


def test_two_findings_of_one_failure_are_one() -> None:
    cause = signature(Kind.ERROR, "not-built@MPI")
    expected = expectation(Kind.TRANSPORT_UNAVAILABLE, signatures=("not-built@MPI",))
    run = case(
        {"expectations": (expected,)}, run={"returncode": 1}, signatures=(cause,), lacks=("backend mpi",), **BROKEN
    )
    assert (outcome(run).kind, outcome(run).verdict) == (Kind.TRANSPORT_UNAVAILABLE, Verdict.KNOWN)
