"""Whether data between hosts passed their kernels by."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pytest_hetgpu.analysis.judge import JUDGES, judge
from pytest_hetgpu.analysis.judges.base import FinishedRun, Precedence
from pytest_hetgpu.analysis.judges.rdma import TOO_LITTLE, RdmaJudge, _share
from pytest_hetgpu.analysis.judges.rdma import _placed as placed
from pytest_hetgpu.extensions.transports.ucx import Ucx, UcxSettings
from pytest_hetgpu.model.job import Fabric, Hardware, Job, Node
from pytest_hetgpu.model.records import MessagePoint, Row
from pytest_hetgpu.model.transport_classes import OFF_HOST, RDMA, RequiredClass
from pytest_hetgpu.model.verdict import Kind
from tests.analysis.judges.judge_cases import evidence, job, result

MB = 1_000_000
BIG = MessagePoint(100 * MB, "float32")
FLAT = {"node0": MB, "node1": MB}
THROUGH_TCP = {"node0": 4200 * MB, "node1": 4200 * MB}


def wired(*layout: tuple[str, int], netdev: str | None = "ens5f0", **demand: Any) -> Job:
    """Return a job with each node on its own host, with a number of ranks."""
    kind = Hardware("rail", fabric=Fabric("roce", netdev, "mlx5_0"))
    nodes = tuple(Node(index, kind, host, ranks, f"node{index}") for index, (host, ranks) in enumerate(layout))
    asked: dict[str, Any] = {"rdma": True, "transports": ("ucx/rc_*", "ucx/ud_*"), "transport_family": "ucx"}
    return replace(job(ranks=sum(ranks for _, ranks in layout), points=(BIG,), **(asked | demand)), nodes=nodes)


TWO = (("10.0.0.1", 1), ("10.0.0.2", 1))


def case(
    asked: Job,
    traffic: dict[str, int],
    *,
    operation: str = "allreduce",
    point: MessagePoint = BIG,
    iterations: int = 20,
    hca: dict[str, int] | None = None,
) -> FinishedRun:
    rows = (Row(operation, point, asked.demand.ranks, iterations, 0.1),)
    return FinishedRun(asked, result(traffic=traffic, hca_traffic=hca or {}), evidence(rows=rows))


def said(*args: Any, **kwargs: Any) -> list[tuple[Kind, Precedence]]:
    return [(rated.finding.kind, rated.precedence) for rated in RdmaJudge().evaluate(case(*args, **kwargs))]


UNUSED = (Kind.TRANSPORT_UNAVAILABLE, Precedence.DEFINITE)
UNPROVEN = (Kind.UNKNOWN, Precedence.INDIRECT)


def test_counters_that_stay_flat_prove_it() -> None:
    assert said(wired(*TWO), FLAT) == []


def test_data_that_went_through_the_interface_is_told_with_both_figures() -> None:
    asked = wired(*TWO)
    first, second = RdmaJudge().evaluate(case(asked, {"node0": 4200 * MB, "node1": 2100 * MB}))
    assert first.finding.why == (
        "RDMA was not used: 4,200 MB went through ens5f0 of node0, while the ranks there had to move 4,000 MB"
    )
    assert (first.finding.kind, first.precedence) == UNUSED
    assert "2,100 MB went through ens5f0 of node1" in second.finding.why
    assert said(asked, {"node0": 1999 * MB, "node1": 0}) == []


def test_nothing_counted_proves_nothing() -> None:
    (rated,) = RdmaJudge().evaluate(case(wired(*TWO), {}))
    assert (rated.finding.kind, rated.precedence) == UNPROVEN
    assert rated.finding.why == (
        "nothing proves that RDMA was used: no bytes were counted of the interface of node0, node1 "
        "(does the fabric name its netdev?)"
    )
    assert said(wired(*TWO, netdev=None), {"node0": 0}) == [UNPROVEN]
    assert said(wired(*TWO), {"node0": 4200 * MB}) == [UNPROVEN, UNUSED]


def test_what_an_hca_has_counted_is_proven() -> None:
    # Packets of Soft-RoCE pass the interface as well.
    assert said(wired(*TWO), THROUGH_TCP, hca={"node0": 4200 * MB, "node1": 4200 * MB}) == []
    assert said(wired(*TWO), {}, hca={"node0": 4200 * MB, "node1": 4200 * MB}) == []
    assert said(wired(*TWO), THROUGH_TCP, hca={"node0": 4200 * MB}) == [UNUSED]


def test_an_hca_that_counted_too_little_proves_nothing() -> None:
    # The matrix may name another one to the library (`net_devices`).
    idle = {"node0": 0, "node1": 0}
    assert said(wired(*TWO), FLAT, hca=idle) == []
    assert said(wired(*TWO), {}, hca=idle) == [UNPROVEN]
    assert said(wired(*TWO), THROUGH_TCP, hca=idle) == [UNUSED, UNUSED]


def test_beside_tcp_an_hca_must_carry_a_tenth() -> None:
    duties = {OFF_HOST: RequiredClass(RDMA, ("rc", "tcp"), ("rc",), ("ucx/rc_*",))}
    asked = wired(*TWO, transports=("ucx/rc_*", "ucx/tcp"), duties=duties)
    assert said(asked, THROUGH_TCP, hca={"node0": 500 * MB, "node1": 300 * MB}) == [UNUSED]


def test_a_run_is_judged_by_it() -> None:
    assert RdmaJudge in JUDGES
    good = case(wired(*TWO, operation="allreduce"), FLAT)
    seen = replace(
        good.evidence,
        checks={rank: {BIG: 0} for rank in range(2)},
        transports=("ucx/rc_mlx5",),
    )
    assert judge(good.job, good.result, seen).kind is Kind.PASSED
    assert judge(good.job, replace(good.result, traffic={}), seen).kind is Kind.UNKNOWN
    bad = judge(good.job, replace(good.result, traffic=THROUGH_TCP), seen)
    assert bad.kind is Kind.TRANSPORT_UNAVAILABLE
    assert bad.why.startswith("RDMA was not used: 4,200 MB")


@pytest.mark.parametrize(
    "asked",
    [
        # One host has no RDMA to prove, nor has a fabric without it.
        wired(("10.0.0.1", 1), ("10.0.0.1", 1)),
        wired(("10.0.0.1", 2)),
        wired(*TWO, rdma=False),
        # The same holds if IP is requested or allowed.
        *(
            wired(*TWO, transports=names)
            for names in (
                ("ucx/tcp",),
                ("ucx/tcp", "ucx/cuda_copy"),
                ("ucx/rc_*", "ucx/tcp"),
                ("ob1/tcp",),
                ("ofi/tcp",),
                ("ofi/sockets",),
                ("ucc/ucp:ucx/tcp",),
                ("ob1/sm", "ch4/posix"),
                ("*",),
            )
        ),
    ],
)
def test_where_it_has_no_opinion(asked: Job) -> None:
    assert said(asked, THROUGH_TCP) == []
    assert said(asked, {}) == []


@pytest.mark.parametrize(
    "names", [("ucx/*",), ("ofi/cxi",), ("ofi/efa",), ("ofi/verbs",), ("ucc/*:ucx/rc_*",), ("ob1/uct", "ob1/sm")]
)
def test_where_nothing_but_rdma_was_asked_for(names: tuple[str, ...]) -> None:
    assert said(wired(*TWO, transports=names), THROUGH_TCP) == [UNUSED, UNUSED]


def test_too_little_to_tell() -> None:
    # 2 x 20 times this is the threshold for the launcher's own traffic.
    enough = MessagePoint(TOO_LITTLE // 40, "float32")
    assert said(wired(*TWO), THROUGH_TCP, point=enough) == [UNUSED, UNUSED]
    assert said(wired(*TWO), THROUGH_TCP, point=replace(enough, size=enough.size - 4)) == []
    assert said(wired(*TWO), {}, point=replace(enough, size=8)) == []
    assert said(wired(*TWO), THROUGH_TCP, operation="barrier", point=MessagePoint(0, "none")) == []


def test_rows_of_another_world_do_not_count() -> None:
    whole = case(wired(*TWO), THROUGH_TCP)
    alone = replace(whole.evidence, rows=(Row("allreduce", BIG, 1, 20, 0.1),))
    assert list(RdmaJudge().evaluate(replace(whole, evidence=alone))) == []


@pytest.mark.parametrize(
    ("operation", "layout", "shares"),
    [
        ("allreduce", TWO, [2, 2]),
        ("broadcast", TWO, [1, 1]),
        ("reduce", TWO, [1, 1]),
        ("allgather", TWO, [1, 1]),
        ("reduce_scatter", TWO, [1, 1]),
        ("gather", (("a", 3), ("b", 1)), [0.25, 0.25]),
        ("scatter", TWO, [0.5, 0.5]),
        # Each of two ranks sends two quarters over, and gets two.
        ("alltoall", (("a", 2), ("b", 2)), [2, 2]),
        ("alltoall", TWO, [1, 1]),
        ("send_recv", TWO, [2, 2]),
        ("bidirectional_send_recv", TWO, [2, 2]),
        # Pairs that share a host send nothing between hosts.
        ("send_recv", (("a", 2), ("b", 2)), [0, 0]),
        ("send_recv", (("a", 1), ("b", 2), ("c", 1)), [2, 4, 2]),
        ("send_recv", (("a", 1), ("b", 2), ("a", 1)), [4, 4]),
        ("barrier", TWO, [0, 0]),
        ("guarded_send", TWO, [0, 0]),
    ],
)
def test_the_least_that_a_host_must_move(
    operation: str, layout: tuple[tuple[str, int], ...], shares: list[float]
) -> None:
    places = placed(wired(*layout))
    total = sum(ranks for _, ranks in layout)
    assert [_share(operation, place, total) for place in places] == shares


def test_of_several_nodes_on_a_host_the_busiest_counts() -> None:
    asked = wired(("a", 1), ("a", 1), ("b", 2))
    assert said(asked, {"node0": MB, "node1": 4200 * MB, "node2": MB}) == [UNUSED]
    assert said(asked, {"node1": MB, "node2": MB}) == []


@pytest.mark.parametrize(("share", "unused"), [(0.5, False), (0.8, False), (0.95, True), (1.05, True)])
def test_a_list_with_tcp_beside_rdma_may_send_some_by_tcp(share: float, unused: bool) -> None:
    mixed = Ucx(UcxSettings.model_validate({"tls": ["rc", "tcp", "self"]}))
    asked = wired(*TWO, transports=mixed.components(), duties=mixed.required_classes(["off-host"]))
    moved = int(4000 * MB * share)
    assert said(asked, {"node0": moved, "node1": moved}) == [UNUSED, UNUSED] * unused
    assert said(asked, {}) == []
    lenient = wired(*TWO, transports=mixed.components())
    assert said(lenient, {"node0": moved, "node1": moved}) == []
