"""What the counters of a running placement's nodes give."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from pytest_hetgpu.cluster.cluster import Cluster, ClusterNode
from pytest_hetgpu.model.job import Fabric, Hardware, Node
from tests.analysis.judges.judge_cases import job
from tests.cluster.bandwidth.bandwidth_cases import FakeMember

PORT = "/sys/class/infiniband/rxe0/ports/1"
MLX5 = "/sys/class/infiniband/mlx5_0/ports/2"


@pytest.mark.parametrize(
    ("hca", "files", "found"),
    [
        ("rxe0", {f"{PORT}/hw_counters/sent_pkts": b"3\n", f"{PORT}/hw_counters/rcvd_pkts": b"2\n"}, 5 * 4096),
        ("rxe0", {f"{PORT}/hw_counters/sent_pkts": b"0\n", f"{PORT}/hw_counters/rcvd_pkts": b"0\n"}, 0),
        ("mlx5_0:2", {f"{MLX5}/counters/port_xmit_data": b"10\n", f"{MLX5}/counters/port_rcv_data": b"1\n"}, 44),
        # A virtual function may have counters that never count.
        ("mlx5_0:2", {f"{MLX5}/counters/port_xmit_data": b"0\n", f"{MLX5}/counters/port_rcv_data": b"0\n"}, None),
        ("mlx5_0:2", {f"{MLX5}/counters/port_xmit_data": b"N/A\n"}, None),
        (None, {f"{PORT}/hw_counters/sent_pkts": b"3\n"}, None),
    ],
)
def test_what_an_hca_moved_at_most(hca: str | None, files: Mapping[str, bytes], found: int | None) -> None:
    class Reading(FakeMember):
        def read(self, paths: Sequence[str]) -> dict[str, bytes | None]:
            return {path: files.get(path) for path in paths}

    node = Node(0, Hardware("roce", fabric=Fabric("roce", "eth0", hca)), "localhost", 2)
    cluster = Cluster(job(), (ClusterNode(node, Reading(0, dict)),))
    assert cluster.hca_traffic().get(node.name) == found
