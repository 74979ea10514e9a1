"""Whether the best class of a list carried the data, by path."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pytest_hetgpu.analysis.judge import judge
from pytest_hetgpu.analysis.judges.base import FinishedRun
from pytest_hetgpu.analysis.judges.transport import TransportJudge
from pytest_hetgpu.extensions.transports._mpi_log import MpiTransportParser
from pytest_hetgpu.extensions.transports.ob1 import Ob1, Ob1Settings
from pytest_hetgpu.extensions.transports.ucx import Ucx, UcxSettings
from pytest_hetgpu.model.job import Hardware, Job, Node
from pytest_hetgpu.model.transport_classes import PATHS, Connection
from pytest_hetgpu.model.verdict import Kind
from tests.analysis.judges.judge_cases import evidence, job, result

ONE_HOST, TWO_HOSTS, BOTH = (("a", 2),), (("a", 1), ("b", 1)), (("a", 2), ("b", 2))
ON, OFF, OPEN = "on-host", "off-host", "unknown"


def ucx(*tls: str, carried_by: Any = None) -> Ucx:
    return Ucx(UcxSettings.model_validate({"tls": list(tls), "carried_by": carried_by}))


def asked(transport: Ucx | Ob1, layout: tuple[tuple[str, int], ...]) -> Job:
    nodes = tuple(Node(place, Hardware("cpu"), host, ranks) for place, (host, ranks) in enumerate(layout))
    made = job(transports=transport.components(), duties=transport.required_classes(PATHS))
    return replace(made, nodes=nodes)


def shown(*connections: tuple[str, str]) -> dict[str, Any]:
    found = tuple(Connection(path, tuple(names.split())) for path, names in connections)
    return {"connections": found, "transports": tuple(sorted({name for one in found for name in one.components}))}


def why(wanted: Job, *connections: tuple[str, str]) -> str:
    findings = [
        one.finding for one in TransportJudge().evaluate(FinishedRun(wanted, result(), evidence(**shown(*connections))))
    ]
    assert {one.kind for one in findings} <= {Kind.TRANSPORT_UNAVAILABLE}
    return " | ".join(one.why for one in findings)


RC_TCP, RC_SM, TCP_SM = ucx("rc", "tcp", "self"), ucx("rc", "sm", "self"), ucx("tcp", "sm", "self")


def test_a_lesser_member_alone_is_no_pass_and_is_named() -> None:
    wanted = asked(RC_TCP, TWO_HOSTS)
    assert why(wanted, (OFF, "ucx/tcp")) == (
        "asked for rc, tcp (best off-host: rc), carried by tcp off-host: no RDMA device took part; "
        "add `carried_by: any` if that is meant"
    )
    outcome = judge(wanted, result(), evidence(**shown((OFF, "ucx/tcp"))))
    assert (outcome.kind, outcome.carried) == (Kind.TRANSPORT_UNAVAILABLE, {OFF: ("ucx/tcp",)})


def test_carried_by_any_accepts_it() -> None:
    wanted = asked(ucx("rc", "tcp", "self", carried_by="any"), TWO_HOSTS)
    outcome = judge(wanted, result(), evidence(**shown((OFF, "ucx/tcp"))))
    assert (outcome.kind, outcome.carried) == (Kind.PASSED, {OFF: ("ucx/tcp",)})


@pytest.mark.parametrize(
    ("transport", "layout", "connections"),
    [
        (RC_TCP, TWO_HOSTS, [(OFF, "ucx/rc_mlx5")]),
        (RC_TCP, TWO_HOSTS, [(OFF, "ucx/rc_mlx5 ucx/tcp")]),
        (RC_SM, BOTH, [(ON, "ucx/cma ucx/posix"), (OFF, "ucx/rc_mlx5")]),
        (RC_SM, ONE_HOST, [(OPEN, "ucx/sysv")]),
        (TCP_SM, BOTH, [(ON, "ucx/posix ucx/tcp"), (OFF, "ucx/tcp")]),
        # Data between hosts, though no pair has any: that path gives no finding.
        (RC_SM, BOTH, [(ON, "ucx/sysv")]),
        # The path is unknown: both classes took part, and nothing tells more.
        (RC_SM, BOTH, [(OPEN, "ucx/sysv"), (OPEN, "ucx/rc_verbs")]),
        (Ob1(Ob1Settings.model_validate({"btl": ["sm", "tcp", "self"]})), BOTH, [(ON, "ob1/sm"), (OFF, "ob1/tcp")]),
        (ucx("all"), TWO_HOSTS, [(OFF, "ucx/tcp")]),
    ],
)
def test_the_best_carried(transport: Ucx, layout: Any, connections: list[tuple[str, str]]) -> None:
    assert why(asked(transport, layout), *connections) == ""


@pytest.mark.parametrize(
    ("transport", "layout", "connections", "said"),
    [
        (TCP_SM, ONE_HOST, [(ON, "ucx/tcp")], "(best on-host: sm), carried by tcp on-host: no shared memory took part"),
        # One path is as asked for, the other is not.
        (RC_TCP, BOTH, [(ON, "ucx/rc_verbs"), (OFF, "ucx/tcp")], "(best off-host: rc), carried by tcp off-host"),
        (TCP_SM, BOTH, [(ON, "ucx/tcp"), (OFF, "ucx/tcp")], "(best on-host: sm), carried by tcp on-host"),
        (RC_TCP, TWO_HOSTS, [(OFF, "ucx/rc_mlx5"), (OFF, "ucx/tcp")], "carried by tcp off-host for some ranks:"),
        (RC_TCP, TWO_HOSTS, [(OPEN, "ucx/tcp")], "carried by tcp off-host"),
        (RC_TCP, BOTH, [(OPEN, "ucx/tcp")], "carried by tcp on-host: no RDMA device took part"),
        (ucx("tcp", "cuda_copy"), TWO_HOSTS, [(OFF, "ucx/cuda_copy")], "carried by cuda_copy off-host: tcp took no"),
    ],
)
def test_the_best_did_not_carry(transport: Ucx, layout: Any, connections: list[tuple[str, str]], said: str) -> None:
    assert said in why(asked(transport, layout), *connections)


ALL_THREE = ucx("rc", "sm", "tcp", "self")


@pytest.mark.parametrize(
    ("transport", "connections", "said"),
    [
        # Both paths of most ranks are as asked for, and some connections are not.
        (
            ALL_THREE,
            [(ON, "ucx/sysv"), (OFF, "ucx/rc_mlx5"), (OPEN, "ucx/tcp")],
            "asked for rc, sm, tcp (best on-host: sm; best off-host: rc), carried by tcp for some ranks, on a path "
            "that the log does not name: no shared memory took part, no RDMA device took part; add `carried_by: any` "
            "if that is meant",
        ),
        (ALL_THREE, [(OPEN, "ucx/sysv"), (OPEN, "ucx/rc_mlx5"), (OPEN, "ucx/tcp")], "carried by tcp for some ranks"),
        (RC_TCP, [(ON, "ucx/rc_verbs"), (OFF, "ucx/rc_verbs"), (OPEN, "ucx/tcp")], "(best on-host: rc; best off-host"),
        (ALL_THREE, [(ON, "ucx/sysv"), (OFF, "ucx/rc_mlx5"), (OPEN, "ucx/sysv"), (OPEN, "ucx/rc_mlx5 ucx/tcp")], ""),
        # Shared memory alone has no duty off-host, and the path may be that.
        (Ob1(Ob1Settings.model_validate({"btl": ["sm", "self"]})), [(ON, "ob1/sm"), (OPEN, "ob1/sm")], ""),
        (TCP_SM, [(ON, "ucx/sysv"), (OFF, "ucx/tcp"), (OPEN, "ucx/tcp")], ""),
    ],
)
def test_a_connection_that_is_as_no_path_owes(transport: Ucx, connections: list[tuple[str, str]], said: str) -> None:
    found = why(asked(transport, BOTH), *connections)
    assert said in found
    assert bool(found) == bool(said)
    assert "|" not in found


def test_exceptions_of_open_mpi_s_table_are_no_pass() -> None:
    lines = (
        "  on-host:  most connections are ucx=sysv;memory",
        "  off-host: most connections are ucx=rc_mlx5;mlx5_0:1",
        "Exceptions:",
        "  host 2: [1x ucx=tcp;lo] [2x ucx=tcp;eth0]",
    )
    proof = MpiTransportParser()
    for number, line in enumerate(lines, 1):
        proof.feed(line, number)
    seen = evidence(connections=tuple(proof.connections), transports=proof.transports)
    assert judge(asked(ALL_THREE, (*BOTH, ("c", 2))), result(), seen).kind is Kind.TRANSPORT_UNAVAILABLE


def test_what_may_carry_short_messages_alone_on_an_unknown_path_is_no_pass() -> None:
    paths = (Connection(ON, ("ucx/cma",)), Connection(OFF, ("ucx/rc_mlx5",)))
    doubted = Connection(OPEN, ("ucx/posix", "ucx/tcp"), ("ucx/posix",))
    seen = evidence(connections=(*paths, doubted), transports=("ucx/cma", "ucx/posix", "ucx/rc_mlx5", "ucx/tcp"))
    outcome = judge(asked(ALL_THREE, BOTH), result(), seen)
    assert outcome.kind is Kind.UNKNOWN
    assert "posix, tcp connect ranks on a path that the log does not name" in outcome.why


def test_what_is_not_on_the_list_at_all_is_told_once() -> None:
    assert why(asked(RC_TCP, TWO_HOSTS), (OFF, "ob1/tcp")).startswith("silent fallback: ")
    assert "|" not in why(asked(RC_TCP, TWO_HOSTS), (OFF, "ob1/tcp"))


def test_a_job_of_an_older_version_owes_nothing_by_path() -> None:
    older = replace(asked(RC_TCP, TWO_HOSTS), demand=job(transports=RC_TCP.components()).demand)
    assert why(older, (OFF, "ucx/tcp")) == ""


def test_what_may_carry_short_messages_alone_is_no_pass() -> None:
    wanted = asked(TCP_SM, ONE_HOST)
    doubted = Connection(ON, ("ucx/posix", "ucx/tcp"), ("ucx/posix",))
    outcome = judge(wanted, result(), evidence(connections=(doubted,), transports=doubted.components))
    assert (outcome.kind, outcome.why) == (
        Kind.UNKNOWN,
        "asked for tcp, sm (best on-host: sm): posix, tcp connect ranks on-host, and UCX before 1.16 may send large "
        "messages by other lanes than short ones, which its log does not show; allow cma, or add `carried_by: any`",
    )
    mapped = Connection(ON, ("ucx/cma", "ucx/posix", "ucx/tcp"), ("ucx/posix",))
    assert judge(wanted, result(), evidence(connections=(mapped,), transports=mapped.components)).kind is Kind.PASSED
