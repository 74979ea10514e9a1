"""Transport, data and signature: one side of a run each."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_hetgpu.analysis.judges.base import Judge, Precedence
from pytest_hetgpu.analysis.judges.data import DataJudge
from pytest_hetgpu.analysis.judges.signature import SignatureJudge, describe
from pytest_hetgpu.analysis.judges.transport import TransportJudge
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
    assert rated.finding.why == "rank 1: 3 wrong elements at 8,float32; 1 more ranks or points"
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
