"""Transport, data and signature: one side of a run each."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pytest_hetgpu.analysis.judges.base import Judge, Precedence, RatedFinding
from pytest_hetgpu.analysis.judges.data import DataJudge
from pytest_hetgpu.analysis.judges.signature import SignatureJudge, describe
from pytest_hetgpu.analysis.judges.transport import TransportJudge
from pytest_hetgpu.model.external_program import ExternalProgram
from pytest_hetgpu.model.failure import Signature
from pytest_hetgpu.model.outcome import ProgramOutput
from pytest_hetgpu.model.program_output import BenchmarkResult
from pytest_hetgpu.model.records import RankExit
from pytest_hetgpu.model.verdict import Kind
from tests.analysis.judges.judge_cases import BROKEN, POINTS, SEGV, case, hello, signature

UNAVAILABLE = signature(Kind.TRANSPORT_UNAVAILABLE, "no-transport@ucx", detail="no active messages transport")
RAISED = signature(Kind.ERROR, "ValueError@train.py!main")
FAILED = {"returncode": 14}


@pytest.mark.parametrize("judge", [TransportJudge, DataJudge, SignatureJudge])
def test_nothing_to_say_of_a_good_run(judge: type[Judge]) -> None:
    assert list(judge().evaluate(case())) == []


@pytest.mark.parametrize(
    ("demand", "seen", "expected"),
    [
        ({}, {"transports": ()}, (Kind.UNKNOWN, Precedence.INDIRECT)),
        ({}, {"transports": (), "hellos": {0: hello(0)}}, None),
        ({"ranks": 1}, {"transports": (), "hellos": {0: hello(0, size=1)}}, None),
        ({}, {"transports": ("ob1/sm",)}, (Kind.TRANSPORT_UNAVAILABLE, Precedence.DEFINITE)),
        ({}, {"transports": ("ob1/sm", "ob1/tcp")}, (Kind.TRANSPORT_UNAVAILABLE, Precedence.DEFINITE)),
        ({"transports": ("ucx/rc_*", "ucx/ud_*")}, {"transports": ("ucx/rc_mlx5",)}, None),
        ({"transports": ("ucx/*",)}, {"transports": ("ob1/tcp",)}, (Kind.TRANSPORT_UNAVAILABLE, Precedence.DEFINITE)),
    ],
)
def test_transport(demand: dict[str, Any], seen: dict[str, Any], expected: tuple[Kind, Precedence] | None) -> None:
    evaluate = list(TransportJudge().evaluate(case(demand, **seen)))
    assert [(o.finding.kind, o.precedence) for o in evaluate] == ([expected] if expected else [])


def test_a_fallback_names_what_was_asked_and_what_was_seen() -> None:
    (rated,) = TransportJudge().evaluate(case({"transports": ("ucx/tcp",)}, transports=("ob1/sm",)))
    assert rated.finding.why == "silent fallback: asked for ucx/tcp, used ob1/sm"


def test_data() -> None:
    told = "rank 1: 3 wrong elements at 8 B float32, first at [0]: expected 1.0, got 2.0"
    counted = {0: dict.fromkeys(POINTS, 0), 1: {POINTS[0]: 3, POINTS[1]: 1}}
    for seen in ({"checks": counted, "wrong": (told,)}, {"wrong": (told,)}):
        (rated,) = DataJudge().evaluate(case(**seen))
        assert rated.finding.kind is Kind.WRONG_RESULT
        assert rated.finding.why.startswith(told)
    (rated,) = DataJudge().evaluate(case(checks=counted))
    assert rated.finding.why == "rank 1: 3 wrong elements at 8,float32; 1 more ranks, points or repeats"
    (rated,) = DataJudge().evaluate(case(checks={0: {POINTS[0]: 1}}))
    assert rated.finding.why == "rank 0: 1 wrong element at 8,float32"


@pytest.mark.parametrize(
    ("run", "seen", "key", "precedence"),
    [
        (FAILED, {"signatures": (UNAVAILABLE,)}, UNAVAILABLE.key, Precedence.DEFINITE),
        ({}, {"signatures": (UNAVAILABLE,), "done": frozenset()}, UNAVAILABLE.key, Precedence.DEFINITE),
        # A dead rank is explained by a crash further down, and by nothing else.
        (FAILED, {"signatures": (RAISED, signature()), "exits": (RankExit(0, signal=11),)}, SEGV, Precedence.DEFINITE),
        (FAILED, {"signatures": (RAISED,), "exits": (RankExit(0, signal=11),)}, RAISED.key, Precedence.INDIRECT),
        ({"returncode": 139}, {"signatures": (RAISED, signature())}, SEGV, Precedence.DEFINITE),
        # An exit shows in the first, a rank's death from outside in the second.
        (FAILED, {"signatures": (RAISED, signature())}, RAISED.key, Precedence.DEFINITE),
        ({"returncode": 137}, {"signatures": (signature(key="SIGKILL"), RAISED)}, "SIGKILL", Precedence.DEFINITE),
        # A time limit stays one, unless something crashed before.
        ({"timed_out": True}, {"signatures": (UNAVAILABLE,)}, UNAVAILABLE.key, Precedence.INDIRECT),
        ({"timed_out": True}, {"signatures": (UNAVAILABLE, signature())}, SEGV, Precedence.DEFINITE),
        ({"timed_out": True}, {"signatures": (signature(key="SIGTERM"), RAISED)}, RAISED.key, Precedence.INDIRECT),
        # Wrong data stay wrong data if the program merely complains.
        (FAILED, {"signatures": (RAISED,), "wrong": ("rank 0: 1 wrong element",)}, RAISED.key, Precedence.INDIRECT),
        (FAILED, {"signatures": (signature(),), "wrong": ("rank 0: 1 wrong element",)}, SEGV, Precedence.DEFINITE),
    ],
)
def test_signature_that_explains(run: dict[str, Any], seen: dict[str, Any], key: str, precedence: Precedence) -> None:
    (rated,) = SignatureJudge().evaluate(case(run=run, **{**BROKEN, **seen}))
    assert rated.finding.signature is not None
    assert (rated.finding.signature.key, rated.precedence) == (key, precedence)
    assert key in rated.finding.why


def test_a_signature_in_words() -> None:
    plain = signature(primary_line="Signal: Segmentation fault (11)")
    assert describe(plain) == f"{SEGV}: Signal: Segmentation fault (11) (line 7)"
    full = signature(entry_point="MPI_Send", ranks=(0, 3), detail="invalid permissions")
    assert describe(full) == f"{SEGV} in MPI_Send on ranks 0, 3: invalid permissions (line 7)"


def test_killed_by_our_own_time_limit_is_no_signature() -> None:
    assert (
        list(SignatureJudge().evaluate(case(run={"timed_out": True}, signatures=(signature(key="SIGKILL"),), **BROKEN)))
        == []
    )


def test_benign_text_cannot_fail_a_clean_run() -> None:
    assert list(SignatureJudge().evaluate(case(signatures=(signature(), UNAVAILABLE, RAISED)))) == []


UNCHECKED = ExternalProgram(("./app",), "command", check=False)
ASSURED = ExternalProgram(("./app",), "command", settings='{"success":"Done"}', check=False)
CHECKED = ExternalProgram(("osu_bw",), "osu")
REGISTERED = signature(Kind.ERROR, "Cannot-allocate-memory@ibv_reg_mr", ranks=(0, 1))


def exited(external: ExternalProgram | None, *signatures: Signature, **run: Any) -> list[RatedFinding]:
    """Return the findings about a run of so many required points as its program verifies."""
    program = ProgramOutput(BenchmarkResult("app"), "app") if external else None
    demand = {"external": external, "points": ()} if external else {"external": None}
    return list(SignatureJudge().evaluate(case(demand, run, signatures=signatures, program=program)))


def test_errors_on_every_rank_of_a_run_that_verified_nothing_are_no_pass() -> None:
    (rated,) = exited(UNCHECKED, REGISTERED)
    assert (rated.finding.kind, rated.precedence) == (Kind.UNKNOWN, Precedence.INDIRECT)
    assert rated.finding.signature == REGISTERED
    assert rated.finding.why == (
        "exit status 0, but ranks logged an error and no result was verified: "
        "Cannot-allocate-memory@ibv_reg_mr on ranks 0, 1: the line (line 7)"
    )


def test_different_errors_may_be_those_of_every_rank() -> None:
    one, other = (replace(REGISTERED, key=f"{rank}@x", ranks=(rank,)) for rank in range(2))
    assert exited(UNCHECKED, one) == []
    assert [rated.finding.signature for rated in exited(UNCHECKED, one, other)] == [one]


@pytest.mark.parametrize("external", [None, CHECKED, ASSURED])
def test_errors_of_a_run_with_verified_results_do_not_matter(external: ExternalProgram | None) -> None:
    assert exited(external, REGISTERED) == []


def test_the_only_rank_is_every_rank() -> None:
    nameless = replace(REGISTERED, ranks=())
    assert exited(UNCHECKED, nameless) == []
    program = ProgramOutput(BenchmarkResult("app"), "app")
    lone = case({"external": UNCHECKED, "points": (), "ranks": 1}, signatures=(nameless,), program=program)
    assert [rated.finding.kind for rated in SignatureJudge().evaluate(lone)] == [Kind.UNKNOWN]
